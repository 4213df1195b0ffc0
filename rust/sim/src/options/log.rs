//! What a seed expands into for the real log on a simulated disk.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};
use stompica_broker::config::{Config, Fsync, StoreKind};

use super::{Options, Watching, one_of};

/// Whether all seeds run without the log.
pub static IS_LEFT_OUT: AtomicBool = AtomicBool::new(false);

/// The log and its disk.
#[derive(Clone, Copy, Debug)]
pub struct LogOptions {
    /// The length of a segment in bytes: so small that a run needs many.
    pub segment_bytes: u64,
    /// The setting `store_reserve`, in segments.
    pub reserve: u64,
    /// The setting `fsync`.
    pub fsync: Fsync,
    /// A crash comes with a chance of one in so many steps; 0: none.
    pub crash_steps: u32,
    /// The percentage of crashes that are losses of power; at others the process is killed.
    pub power: u32,
    /// The percentage of crashes that come at a call of the disk; at others they come between two steps.
    pub at_calls: u32,
    /// The percentage of recoveries that end with another crash.
    pub again: u32,
    /// The length of the disk in segments, beside the reserve; 0: it is never full.
    pub room: u64,
    /// A call of the disk fails with a chance of one in so many steps; 0: none does.
    pub error_steps: u32,
    /// The broker runs for a while before the log is open; meanwhile nobody can log in.
    pub opens_late: bool,
    /// The thread of the log gets no turn for so long at most, as beside a slow disk.
    pub stall_max: Duration,
    /// How often it stalls, in percent of its turns.
    pub stalls: u32,
}

impl LogOptions {
    /// What a seed expands into; `None` in most of them.
    pub(super) fn draw(seed: u64, config: &mut Config) -> Option<Self> {
        let random = &mut SmallRng::seed_from_u64(seed ^ 0x0106_0D15_C000_0000);
        if random.random_ratio(2, 3) || IS_LEFT_OUT.load(Ordering::Relaxed) {
            return None;
        }
        let interval = Duration::from_millis(one_of(random, &[1, 20, 1000]));
        let fsync = one_of(
            random,
            &[Fsync::Always, Fsync::Always, Fsync::Always, Fsync::Interval(interval), Fsync::Never],
        );
        (config.store, config.fsync) = (StoreKind::File, fsync);
        Some(LogOptions {
            segment_bytes: one_of(random, &[1 << 10, 4 << 10, 16 << 10, 64 << 10]),
            reserve: one_of(random, &[0, 0, 4, 16]),
            fsync,
            crash_steps: one_of(random, &[0, 100, 300, 600, 1000]),
            power: one_of(random, &[0, 50, 100]),
            at_calls: one_of(random, &[0, 50, 100]),
            again: one_of(random, &[0, 20, 50]),
            room: one_of(random, &[0, 0, 0, 6, 12, 30]),
            error_steps: one_of(random, &[0, 0, 0, 1000]),
            opens_late: random.random_ratio(1, 3),
            stall_max: Duration::from_millis(one_of(random, &[1, 20, 200])),
            stalls: one_of(random, &[0, 0, 10, 50]),
        })
    }

    /// The bytes of a segment and of the reserve.
    #[must_use]
    pub fn sizes(&self) -> (u64, u64) {
        (self.segment_bytes, self.reserve * self.segment_bytes)
    }
}

/// Leaves out what does not go with crashes: rogues and watchers expect answers in time.
pub(super) fn adjust(options: &mut Options) {
    let has_rogues = options.rogues.pace > 0;
    let Some(log) = options.store.log.as_mut() else { return };
    if log.crash_steps == 0 {
        (log.error_steps, log.room) = (0, if has_rogues { 0 } else { log.room });
        return;
    }
    match has_rogues {
        true => (log.crash_steps, log.room) = (0, 0),
        false => options.watching = Watching::default(),
    }
}
