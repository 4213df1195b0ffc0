//! `store=sqlite`: messages in a SQLite database, which people can read while the broker runs.
//!
//! ```text
//! shards ─► batches ─► one transaction ─► COMMIT, which syncs ─► RECEIPTs      in this order, one group at a time
//! ```
//! Shards have the same handles as with a log (`store/file/handle.rs`), which encode messages as entries and hand them over in
//! batches. [`writer`] takes what has arrived and applies it as one group; what arrives meanwhile is the next one. The
//! database is in WAL mode, so it can be read meanwhile: by [`reader`], and by anybody else.
//!
//! A message is a row, and its record is the row's number ([`schema`]). A row that is no longer needed is deleted. There is
//! nothing in memory for each message but the stub in its queue.
//!
//! On a full disk, what cannot be written waits in memory, in order, and what makes room comes first, as with the log
//! (`store/file/waiting.rs`); the room for that is [`reserve`]d. After any other error nothing more is written, and what is
//! there can still be read.

pub mod database;
mod group;
pub mod reader;
mod reserve;
pub mod schema;
pub mod writer;

#[cfg(test)]
mod full_tests;
