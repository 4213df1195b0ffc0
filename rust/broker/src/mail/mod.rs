//! Communication between shards: the mailbox, and the mail that was taken from it.

mod accepted;
#[cfg(any(test, simulated))]
mod audit;
pub mod inbound;
pub mod incoming;
pub mod mailbox;
pub mod peers;
pub mod shared;
