//! `record=`: the history of destinations, in a log of its own beside that of the store.
//!
//! ```text
//! home: numbers a message ─► block ─► group ─► current segment ─► sync ─► RECEIPTs of persistent messages
//!           └─► live subscribers        │
//!                                       └─► catalog: where the blocks of each destination stand ─► readers
//! ```
//! Messages are appended and never changed. The oldest segments are removed as a whole ([`log::Retention`]). Readers get
//! portions of a destination from the files ([`reader`]), on a thread of their own, while shards only pass the messages on.
//!
//! Each destination counts its messages from 1 without holes, also across restarts; its *epoch* changes when a process did not
//! end in order, since messages may have been delivered then whose recording was lost.

pub mod block;
pub mod catalog;
pub mod desk;
pub mod extent;
pub mod log;
pub mod reader;
pub mod recovery;
mod retention;
pub mod segment;
