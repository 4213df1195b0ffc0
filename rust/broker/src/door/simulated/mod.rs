//! The doors of the simulated build: one thread's outside, which the driver (`rust/sim`) builds from a seed and moves
//! step by step. Nothing here happens by itself: time passes, bytes arrive and sockets break when the driver says so.
//!
//! The state is a thread-local value, because the broker's own calls (read a clock, open a socket) carry no handle.
//! All shards of a simulated broker run on the thread of its driver, and each test thread has an outside of its own.

mod network;
mod poll;
mod wire;
mod writes;

use std::cell::RefCell;
use std::collections::HashSet;
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};

use self::network::{Link, Waiting};
pub use self::network::{SpareDescriptor, TcpListener, TcpStream, bind, untaken_bytes};
use self::poll::PollState;
pub use self::poll::{Event, Events, Poll, Registry, Source, Waker};
pub use self::wire::{Wire, connect};
pub use self::writes::Written;
pub use super::values::{HashState, Instant, Interest, Token};

/// System calls of the broker that moved bytes, and these bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Calls that read something.
    pub reads: usize,
    /// Bytes read.
    pub read: usize,
    /// Calls that wrote something.
    pub writes: usize,
    /// Bytes written.
    pub written: usize,
}

/// The outside of one simulated broker.
#[derive(Debug)]
struct Outside {
    now: Duration,
    /// The last time at which the broker had nothing to do.
    quiet: Duration,
    wall: Duration,
    random: SmallRng,
    polls: Vec<PollState>,
    links: Vec<Link>,
    /// Connections that wait to be accepted; `None` before the broker listens.
    listening: Option<Waiting>,
    descriptors: usize,
    turn_divisor: usize,
    /// Calls of the allocator since they were taken last.
    reclaims: usize,
    /// What was read and written since it was taken last.
    traffic: Traffic,
    /// The planted fault that is switched on.
    fault: Option<String>,
    /// Planted faults whose place was reached, on or off.
    reached: HashSet<&'static str, HashState>,
}

impl Outside {
    fn new(seed: u64) -> Self {
        Outside {
            now: Duration::ZERO,
            quiet: Duration::ZERO,
            wall: Duration::from_secs(1_700_000_000),
            random: SmallRng::seed_from_u64(seed),
            polls: Vec::new(),
            links: Vec::new(),
            listening: None,
            descriptors: usize::MAX,
            turn_divisor: 1,
            reclaims: 0,
            traffic: Traffic::default(),
            fault: None,
            reached: HashSet::default(),
        }
    }
}

thread_local! {
    static OUTSIDE: RefCell<Outside> = RefCell::new(Outside::new(0));
}

fn with<T>(act: impl FnOnce(&mut Outside) -> T) -> T {
    OUTSIDE.with_borrow_mut(act)
}

/// Forgets everything, and begins at time zero. The seed determines what the broker draws.
pub fn begin(seed: u64) {
    with(|outside| *outside = Outside::new(seed));
}

/// Lets time pass.
pub fn advance(time: Duration) {
    with(|outside| {
        outside.now += time;
        outside.wall += time;
    });
}

/// Notes that the broker has nothing to do now: nothing is on its way between its shards.
pub fn note_quiet() {
    with(|outside| outside.quiet = outside.now);
}

/// The last time at which the broker had nothing to do.
#[must_use]
pub fn quiet() -> Duration {
    with(|outside| outside.quiet)
}

/// Sets the wall clock forwards or back.
pub fn jump(time: Duration, forwards: bool) {
    with(|outside| {
        outside.wall = if forwards { outside.wall + time } else { outside.wall.saturating_sub(time) };
    });
}

/// The time that has passed since [`begin`].
#[must_use]
pub fn now() -> Duration {
    with(|outside| outside.now)
}

/// Notes that the allocator is asked to give memory back.
pub fn note_reclaim() {
    with(|outside| outside.reclaims += 1);
}

/// Returns how often the allocator was asked since the last call.
pub fn take_reclaims() -> usize {
    with(|outside| std::mem::take(&mut outside.reclaims))
}

/// Returns what was read and written since the last call.
#[must_use]
pub fn take_traffic() -> Traffic {
    with(|outside| std::mem::take(&mut outside.traffic))
}

/// Sets how many more descriptors can be opened.
pub fn set_descriptors(left: usize) {
    with(|outside| outside.descriptors = left);
}

/// The keys of the table that decides which shard is the home of a name; they follow from the seed.
#[must_use]
pub fn hash_state() -> HashState {
    with(|outside| HashState::with_seed(outside.random.random()))
}

/// Divides the limits of a turn, so that work goes over several turns although it is little.
pub fn set_turn_divisor(divisor: usize) {
    with(|outside| outside.turn_divisor = divisor);
}

/// The number by which the limits of a turn are divided.
#[must_use]
pub fn turn_divisor() -> usize {
    with(|outside| outside.turn_divisor)
}

/// Switches a planted fault on, or all off.
pub fn plant(fault: Option<String>) {
    with(|outside| outside.fault = fault);
}

/// Whether this planted fault is switched on. Its place counts as reached.
#[must_use]
pub fn is_planted(fault: &'static str) -> bool {
    with(|outside| {
        outside.reached.insert(fault);
        outside.fault.as_deref() == Some(fault)
    })
}

/// The planted faults whose place was reached since [`begin`], whether they were switched on or not.
#[must_use]
pub fn reached() -> Vec<&'static str> {
    with(|outside| outside.reached.iter().copied().collect())
}

/// The time since 1970.
#[must_use]
pub fn wall_clock() -> Duration {
    with(|outside| outside.wall)
}

/// Processor time of a shard: a simulated turn takes the time that the driver gives it.
#[must_use]
pub fn thread_cpu_time() -> Duration {
    now()
}

/// Bytes that follow from the seed.
#[must_use]
pub fn random_bytes<const BYTES: usize>() -> [u8; BYTES] {
    with(|outside| {
        let mut bytes = [0; BYTES];
        outside.random.fill(&mut bytes[..]);
        bytes
    })
}
