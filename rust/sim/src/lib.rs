//! A deterministic simulator of the real broker: one seed determines settings, clients, network, time and the order in
//! which shards run. Checkers follow everything that clients send and receive. See docs/simulator.md.
//!
//! ```text
//! seed ─► Options ─► World ─► steps: a client acts, bytes arrive, a shard takes a turn, time passes
//!                      └────► Events ─► checkers ─► Violation, with the step at which it was found
//! ```

pub mod actions;
pub mod checkers;
pub mod client;
pub mod events;
pub mod faults;
mod finish;
pub mod frames;
pub mod options;
pub mod shrink;
pub mod websocket;
pub mod world;
