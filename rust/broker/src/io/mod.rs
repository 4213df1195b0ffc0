//! Sockets: the listener and one connection's state.

pub mod conn;
pub mod listener;
