//! The real log of the broker on a simulated disk. Its thread and its reader take turns when the seed says so: what arrives
//! between two turns is a group.

mod crash;

use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};
use stompica_broker::simulated::{Disk, outside};

use crate::events::Violation;
use crate::options::log::LogOptions;
use crate::world::World;

/// The bytes of a disk that is never full.
const LARGE: u64 = 1 << 40;
/// Turns that the thread of the log takes one after the other, at most, before it counts as going in circles.
const TURNS_MAX: usize = 10_000;

/// The disk of a run, and what is known of the thread of the log.
#[derive(Debug)]
pub(crate) struct LogWorld {
    pub(crate) disk: Disk,
    /// Whether the log is open.
    is_open: bool,
    /// The thread gets no turn before this time: the disk is slow.
    stalls_until: Duration,
    /// When the thread took its last turn.
    turned_at: Duration,
    /// A kill has left what was found at the start and is not safe before the log is open: it was told to the checkers, so the
    /// power does not fail meanwhile.
    pub(super) has_unsafe: bool,
}

impl LogWorld {
    /// An empty disk.
    pub(crate) fn new(options: LogOptions) -> Self {
        let bytes = match options.room {
            0 => LARGE,
            segments => (segments + options.reserve) * options.segment_bytes,
        };
        LogWorld {
            disk: Disk::new(bytes),
            is_open: false,
            stalls_until: Duration::ZERO,
            turned_at: Duration::ZERO,
            has_unsafe: false,
        }
    }
}

impl World {
    /// How long the thread of the log sleeps; `None`: until somebody hands something over.
    pub(crate) fn log_sleep(&self) -> Option<Duration> {
        let log = self.log.as_ref()?;
        let stall = log.stalls_until.saturating_sub(outside::now());
        match self.broker.log_thread() {
            Some(thread) => thread.sleep().map(|sleep| sleep.max(stall)),
            None if log.is_open => None,
            None => Some(stall),
        }
    }

    /// The thread of the log takes a turn, or its reader reads a message, if one of them has something to do.
    pub(crate) fn log_step(&mut self, random: &mut SmallRng) -> Result<(), Violation> {
        if self.log_sleep() == Some(Duration::ZERO) && (self.wanted() == 0 || random.random()) {
            self.log_turn()?;
            let options = self.options.store.log.filter(|it| random.random_range(0..100) < it.stalls);
            if let (Some(options), Some(log)) = (options, &mut self.log) {
                log.stalls_until = outside::now() + options.stall_max.mul_f64(random.random::<f64>());
            }
        } else if self.wanted() > 0 {
            self.read_next();
        }
        Ok(())
    }

    /// The log does everything that it can do now. Returns whether there was anything.
    pub(crate) fn log_all(&mut self) -> Result<bool, Violation> {
        let Some(log) = &mut self.log else { return Ok(false) };
        log.stalls_until = Duration::ZERO;
        for turns in 0..TURNS_MAX {
            if self.wanted() > 0 {
                self.read_next();
            } else if self.log_sleep() == Some(Duration::ZERO) {
                self.log_turn()?;
            } else {
                return Ok(turns > 0);
            }
        }
        let state = self.broker.log_thread().map_or_else(String::new, |thread| thread.describe());
        let text = format!("the thread of the log does not become idle: {state}");
        Err(Violation { checker: "liveness", text })
    }

    fn wanted(&self) -> usize {
        self.broker.log_thread().map_or(0, |thread| thread.wanted())
    }

    fn read_next(&mut self) {
        self.note(|| "the reader reads".to_owned());
        if let Some(thread) = self.broker.log_thread_mut() {
            thread.read_next();
        }
    }

    /// The thread of the log takes a turn; the first one opens the log. The process may end meanwhile.
    pub(crate) fn log_turn(&mut self) -> Result<(), Violation> {
        let (Some(log), Some(options)) = (&mut self.log, self.options.store.log) else { return Ok(()) };
        let (disk, is_open) = (log.disk.clone(), log.is_open);
        (log.is_open, log.turned_at) = (true, outside::now());
        self.note(|| if is_open { "the log acts" } else { "the log opens" }.to_owned());
        if let Some(thread) = self.broker.log_thread_mut() {
            thread.turn();
        } else if !is_open {
            self.may_crash_again(&disk);
            let opened = self.broker.open_log(disk.clone(), options.sizes(), options.fsync);
            match opened {
                Ok(()) => {
                    // Opening it has made safe what it has found.
                    self.log.iter_mut().for_each(|log| log.has_unsafe = false);
                    self.set_window();
                }
                Err(_) if disk.has_ended() => {}
                // An error of the disk ends the process.
                Err(_) if disk.has_failed() => {
                    return self.crash(&mut SmallRng::seed_from_u64(self.summary.trace_hash));
                }
                Err(text) => return Err(Violation { checker: "recovery", text }),
            }
        }
        match disk.has_ended() {
            true => self.crash(&mut SmallRng::seed_from_u64(self.summary.trace_hash)),
            false => Ok(()),
        }
    }

    /// The disk is as good as new.
    pub(crate) fn mend_disk(&mut self) {
        if let Some(log) = &self.log {
            log.disk.set_capacity(LARGE);
            log.disk.plan_nothing();
        }
    }

    /// Before the first step.
    pub(crate) fn begin(&mut self) -> Result<(), Violation> {
        match self.options.store.log {
            Some(log) if !log.opens_late || self.options.rogues.pace > 0 => self.log_turn(),
            _ => Ok(()),
        }
    }

    /// Sets how much of a queue stays loaded.
    pub(crate) fn set_window(&mut self) {
        if self.options.store.pages {
            let (messages, bytes) = self.options.store.window;
            self.broker.set_window(messages, bytes);
        }
    }

    /// Whether everything that the log was told is safe, as far as the disk works, and its thread has ended.
    pub(crate) fn has_log_ended(&self) -> bool {
        self.broker.log_thread().is_none_or(|thread| thread.has_ended() || thread.has_failed())
    }
}
