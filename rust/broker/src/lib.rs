//! The stompica broker.

pub mod config;
pub mod log;
