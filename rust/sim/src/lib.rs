//! A deterministic simulator of the real broker: one seed determines settings, clients, network, time and the order in
//! which shards run. Checkers follow everything that clients send and receive. See docs/simulator.md.
//!
//! ```text
//! seed ─► Options ─► World ─► steps: a client acts, bytes arrive, a shard takes a turn, time passes
//!                      └────► Events ─► checkers ─► Violation, with the step at which it was found
//! crash ─► the next life of the broker, on what the disk has
//! ```

mod accounting;
pub mod actions;
pub mod beats;
pub mod checkers;
pub mod client;
mod disturb;
pub mod events;
pub mod faults;
mod finish;
mod finish_keeping;
pub mod frames;
pub mod json;
mod limits;
mod lives;
pub mod log;
pub mod options;
pub mod patterns;
mod rest;
pub mod rogue;
pub mod shrink;
pub mod store;
pub mod variables;
pub mod websocket;
pub mod work;
pub mod world;
