//! Sockets: the listener and one connection's state.

pub mod answers;
pub mod arrival;
pub mod conn;
pub mod deferred;
pub mod listener;
pub mod outbox;
pub mod pending_writes;
pub mod pulse;
pub mod taken;
pub mod temporary;
pub mod transaction;
