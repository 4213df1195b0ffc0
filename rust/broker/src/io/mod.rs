//! Sockets: the listener and one connection's state.

pub mod answers;
pub mod arrival;
pub mod conn;
pub mod deferred;
pub mod flight;
pub mod listener;
pub mod pulse;
pub mod taken;
