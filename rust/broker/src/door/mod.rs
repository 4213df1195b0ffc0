//! Every way from the broker to the outside: sockets and their readiness, clocks, randomness.
//!
//! The shipped build compiles [`system`]: the types of the system's libraries, under these names and without any
//! wrapper. A build with `--cfg simulated` compiles `simulated` instead, in which a world that is computed from one
//! number answers: see `rust/sim`. No other module of the broker reads a clock, opens a socket or draws a random
//! number (`tests/test_layers.py`). A build with `--cfg loom` compiles `loomed`, in which nothing comes from the
//! outside: there, [`sync`] is what matters (`rust/loom`).
//!
//! Two ways to the outside are parameters instead: the store ([`crate::store::Store`]) and the function that gives
//! memory back to the system ([`crate::mail::shared::Shared::reclaim`]).

mod files;
#[cfg(loom)]
pub mod loomed;
pub mod medium;
#[cfg(simulated)]
pub mod simulated;
pub mod sync;
#[cfg(not(any(simulated, loom)))]
mod system;
#[cfg(any(simulated, loom))]
mod values;
mod viewed;

use std::collections;

pub use self::files::{ClaimError, Directory, DiskFile, process_id, remove_directory};
#[cfg(loom)]
use self::loomed as outside;
pub use self::outside::{
    Events, HashState, Instant, Interest, Poll, Registry, SpareDescriptor, TcpListener, TcpStream, Token,
    Waker, bind, hash_state, random_bytes, thread_cpu_time, turn_divisor, untaken_bytes, wall_clock,
};
#[cfg(simulated)]
use self::simulated as outside;
#[cfg(not(any(simulated, loom)))]
use self::system as outside;
pub use self::viewed::ViewedDirectory;

#[cfg(any(simulated, loom))]
pub use self::outside::is_planted;

/// Whether a planted fault is switched on. Planted faults show that the simulator finds what it has to find; the shipped
/// build contains none of them. Ask last (`if is_late && planted!("…")`): a place counts as reached when it is asked, and
/// should be reached only where the fault changes something. A condition that only the fault needs, and that takes more
/// than a comparison, goes into the macro (`planted!("…", if is_found(name))`): the shipped build does not evaluate it.
macro_rules! planted {
    ($fault:literal, if $condition:expr) => {
        cfg!(any(simulated, loom)) && $condition && $crate::door::planted!($fault)
    };
    ($fault:literal) => {{
        #[cfg(any(simulated, loom))]
        let is_planted = $crate::door::is_planted($fault);
        #[cfg(not(any(simulated, loom)))]
        let is_planted = false;
        is_planted
    }};
}
pub(crate) use planted;

/// Whether a fault for `rust/loom` is planted; only its build contains any. A fault that both have to find is planted
/// with `planted!`.
macro_rules! planted_in_loom {
    ($fault:literal) => {{
        #[cfg(loom)]
        let is_planted = $crate::door::is_planted($fault);
        #[cfg(not(loom))]
        let is_planted = false;
        is_planted
    }};
}
pub(crate) use planted_in_loom;

/// A hash table whose order follows from [`HashState`] alone.
pub type HashMap<K, V> = collections::HashMap<K, V, HashState>;

/// The time since 1970 in milliseconds.
#[must_use]
pub fn wall_clock_ms() -> u64 {
    u64::try_from(wall_clock().as_millis()).unwrap_or(u64::MAX)
}

/// The wall-clock time of a log record.
#[must_use]
pub fn system_time() -> std::time::SystemTime {
    std::time::UNIX_EPOCH + wall_clock()
}
