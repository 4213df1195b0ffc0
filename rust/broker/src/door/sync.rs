//! The ways in which threads meet: locks, atomic numbers, channels, threads and their own values.
//!
//! The shipped build and the simulated one compile the standard library's types under these names, without any wrapper.
//! A build with `--cfg loom` compiles those of loom instead, which runs the threads of a test in every order that makes
//! a difference: see `rust/loom`. `std::sync::Arc` is used directly: only the values in it are shared.

#[cfg(not(loom))]
pub use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU64, AtomicUsize, Ordering};
#[cfg(not(loom))]
pub use std::sync::mpsc::{Sender, channel};
#[cfg(not(loom))]
pub use std::sync::{Condvar, Mutex, MutexGuard};
pub use std::sync::{PoisonError, mpsc::RecvTimeoutError};
#[cfg(not(loom))]
pub use std::{thread, thread_local as per_thread};

#[cfg(loom)]
pub use loom::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU64, AtomicUsize, Ordering};
#[cfg(loom)]
pub use loom::sync::{Condvar, Mutex, MutexGuard};
/// A value of each thread; loom's own macro does not accept a constant one.
#[cfg(loom)]
macro_rules! per_thread {
    (static $name:ident: $type:ty = const { $first:expr };) => {
        loom::thread_local! { static $name: $type = $first; }
    };
}
#[cfg(loom)]
pub(crate) use per_thread;

#[cfg(loom)]
pub use super::loomed::channel::{Sender, channel};
#[cfg(loom)]
pub use super::loomed::thread;
