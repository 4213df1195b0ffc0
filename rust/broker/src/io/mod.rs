//! Sockets: the listener and one connection's state.

pub mod conn;
pub mod flight;
pub mod listener;
