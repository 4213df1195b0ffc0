//! `store=file`: a log of segments on disk.
//!
//! ```text
//! shards ─► batches ─► group ─► current segment ─► sync ─► RECEIPTs      in this order, one group at a time
//!                        │
//!                        └─► table: where each message is that is still needed
//! ```
//! What arrives while one group is synced is the next group; nothing waits for a timer. Messages that are no longer needed
//! become entries of a few bytes. A segment of which little is needed is written again at the end of the log and removed.
//! [`recovery`] reads everything again.
//!
//! When the disk is full, what cannot be written waits in memory, in order; what makes room is written into a reserve
//! ([`segments`]). Shards learn that from the [`inbox`]. When the disk fails, nothing is written any more, and what is there
//! can still be read.
//!
//! Nothing on disk names a shard: the homes of queues are computed anew at each start.

pub mod batch;
pub mod compaction;
pub mod damage;
pub(in crate::store) mod encode;
pub mod entry;
pub mod group;
pub mod handle;
pub mod inbox;
pub mod log;
pub mod reader;
pub mod recovery;
pub mod requests;
mod scan;
pub mod segment;
pub mod segments;
pub mod table;
pub mod varint;
pub mod waiting;
pub mod writer;

#[cfg(test)]
mod crash_tests;
#[cfg(test)]
mod full_tests;
#[cfg(any(test, simulated))]
#[allow(missing_docs, clippy::unwrap_used)]
pub mod medium_double;
#[cfg(test)]
mod sample_tests;
