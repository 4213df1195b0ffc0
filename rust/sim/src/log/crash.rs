//! Crashes: the process ends at any moment, or within a call of the disk, and another one begins. The power may fail with it.

use std::io::ErrorKind;
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};
use stompica_broker::config::Fsync;
use stompica_broker::log::{Level, LogQueue};
use stompica_broker::simulated::{Disk, Fault, SteppedBroker, SteppedLog, inspect, outside};

use crate::checkers;
use crate::client::Phase;
use crate::events::{Event, Survivor, Violation};
use crate::limits::Limits;
use crate::world::World;

/// A crash at a call comes at one of so many next calls.
const CALLS_MAX: u64 = 12;
/// A process takes so long to start. Its clock begins at zero and counts in milliseconds: what had expired before expires at one.
const START: Duration = Duration::from_millis(2);
/// A broker whose disk has failed is restarted in one of so many steps.
const RESTART_STEPS: u32 = 100;

impl World {
    /// The broker crashes, in one of so many steps.
    pub(crate) fn may_crash(&mut self, random: &mut SmallRng) -> Result<(), Violation> {
        let options = self.options.store.log.filter(|log| log.crash_steps > 0);
        let (Some(options), Some(log)) = (options, &self.log) else { return Ok(()) };
        if self.disturbed.is_over {
            return Ok(());
        }
        if options.error_steps > 0 && random.random_ratio(1, options.error_steps) {
            log.disk.plan(random.random_range(0..CALLS_MAX), Fault::Once(ErrorKind::Other));
            self.note(|| "a call of the disk will fail".to_owned());
            return Ok(());
        }
        let is_broken = self.broker.log_thread().is_some_and(SteppedLog::has_failed);
        let steps = if is_broken { RESTART_STEPS } else { options.crash_steps };
        if !random.random_ratio(1, steps) {
            return Ok(());
        }
        if random.random_range(0..100) < options.at_calls {
            log.disk.plan(random.random_range(0..CALLS_MAX), Fault::End);
            return Ok(());
        }
        self.crash(random)
    }

    /// Only a restart ends the state of a log whose disk has failed.
    pub(crate) fn restart_failed_log(&mut self) -> Result<(), Violation> {
        match self.broker.log_thread().is_some_and(SteppedLog::has_failed) {
            true => self.crash(&mut SmallRng::seed_from_u64(self.summary.trace_hash)),
            false => Ok(()),
        }
    }

    /// The recovery that begins may end with a crash, too.
    pub(super) fn may_crash_again(&mut self, disk: &Disk) {
        let mut random = SmallRng::seed_from_u64(self.summary.trace_hash);
        let again = self.options.store.log.map_or(0, |log| if log.crash_steps > 0 { log.again } else { 0 });
        if !self.finishes && random.random_range(0..100) < again {
            disk.plan(random.random_range(0..CALLS_MAX), Fault::End);
        }
    }

    /// The process ends here and now, perhaps with the power, and a new one begins.
    pub(crate) fn crash(&mut self, random: &mut SmallRng) -> Result<(), Violation> {
        let (Some(options), Some(log)) = (self.options.store.log, &self.log) else { return Ok(()) };
        let is_power_lost = random.random_range(0..100) < options.power && !log.has_unsafe;
        let safe = match options.fsync {
            _ if !is_power_lost => outside::now(),
            Fsync::Always => outside::now(),
            // The thread of the log syncs when it has a turn so long after the last time.
            Fsync::Interval(interval) => log.turned_at.saturating_sub(interval),
            Fsync::Never => Duration::ZERO,
        };
        self.note(|| if is_power_lost { "the power fails" } else { "the broker is killed" }.to_owned());
        self.lose_all_clients(random)?;
        self.tell(vec![Event::Crashed(safe)])?;
        self.broker.kill();
        self.summary.crashes += 1;
        self.log.iter_mut().for_each(|log| log.has_unsafe = !is_power_lost);
        self.begin_life(random, |disk, seed| if is_power_lost { disk.crash(seed) } else { disk.kill() })
    }

    /// Some clients still read what the broker has sent them; then all connections are lost.
    fn lose_all_clients(&mut self, random: &mut SmallRng) -> Result<(), Violation> {
        for at in 0..self.clients.len() {
            if self.clients[at].phase != Phase::Over && !self.clients[at].is_stalled && random.random() {
                self.receive(at, usize::MAX)?;
            }
            if self.clients[at].phase != Phase::Over {
                self.clients[at].wire.reset();
                let lost = self.clients[at].lose();
                self.tell(vec![lost])?;
            }
        }
        Ok(())
    }

    /// A new process begins on what the disk has.
    fn begin_life(
        &mut self,
        random: &mut SmallRng,
        restart: impl FnOnce(&Disk, u64) -> Disk,
    ) -> Result<(), Violation> {
        let (Some(options), Some(log)) = (self.options.store.log, &mut self.log) else { return Ok(()) };
        log.disk = restart(&log.disk, random.random());
        (log.is_open, log.stalls_until) = (false, Duration::ZERO);
        let disk = log.disk.clone();
        if random.random() {
            self.options.config.writers = random.random_range(1..=6);
        }
        self.lives.begin(self.clients.len(), self.numbers.next_message());
        self.checkers = checkers::all(&self.options);
        (self.limits, self.idle) = (Limits::default(), (0, 0));
        self.disturbed.forget_pauses();
        self.drained.clear();
        let records = LogQueue::new(1000, Level::Warn);
        self.broker = SteppedBroker::start_without_log(self.options.config.clone(), records);
        outside::advance(START);
        let found = inspect(disk.kill(), options.segment_bytes);
        let found = found.map_err(|text| Violation { checker: "recovery", text })?;
        if !found.damages.is_empty() {
            let text = format!("a crash is taken for damage of the disk: {:?}", found.damages);
            return Err(Violation { checker: "recovery", text });
        }
        if let Some(unreadable) = found.messages.iter().find(|message| !message.is_readable) {
            return Err(Violation {
                checker: "recovery",
                text: format!("it cannot be read: {unreadable:?}"),
            });
        }
        self.tell(vec![Event::Recovered(found.messages.iter().map(Survivor::new).collect())])?;
        if !options.opens_late { self.log_turn() } else { Ok(()) }
    }
}
