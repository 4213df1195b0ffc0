//! The stompica broker: shards on mio, a router, outboxes. No Python here.
//!
//! A frame passes through [`connection`], the codec and the session of `stompica-proto`, [`command`], [`router`] and
//! the outbox to the socket, all within one [`shard`]; mail takes it to other shards. Start with [`shard`], then
//! `command/send.rs`, [`router`], `delivery/deliver.rs`, `connection/outbox/mod.rs`.
//!
//! ```
//! use stompica_broker::{Broker, config::Config, log::{Level, LogQueue}};
//!
//! let config = Config { port: 0, writers: 1, ..Config::default() };
//! let broker = Broker::start(config, LogQueue::new(100, Level::Info), || ()).expect("a free port");
//! assert_ne!(broker.address().port(), 0);
//! broker.drain();
//! assert_eq!(broker.wait(None), Some(Ok(())));
//! ```

#[macro_use]
mod owners;

#[cfg(any(test, simulated))]
mod audit;
mod broker;
mod clock;
mod collections;
mod command;
pub mod config;
mod connection;
mod delivery;
mod destination;
mod diag;
mod door;
mod held;
mod ids;
#[cfg(loom)]
pub mod interleaved;
pub mod log;
mod mail;
mod message;
mod queue;
mod recorded;
mod report;
mod requester;
mod router;
mod shard;
#[cfg(simulated)]
pub mod simulated;
#[cfg(any(test, feature = "simulation"))]
pub mod simulation;
#[cfg(any(test, feature = "simulation", simulated))]
pub mod snapshot;
mod stats;
mod storage;
mod store;
mod text;
mod timer;
mod totals;
mod turn;
#[cfg(simulated)]
pub mod usage;

pub use broker::{Broker, DiagError, StartError};
pub use report::ConnectionInfo;
pub use storage::offline;
