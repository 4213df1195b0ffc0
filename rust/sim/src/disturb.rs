//! What happens to the broker from outside: reloads, short descriptors, jumps of the wall clock, pauses of shards, and its
//! end before the steps are over.

use std::time::Duration;

use rand::rngs::SmallRng;
use rand::seq::IndexedRandom as _;
use rand::{Rng as _, SeedableRng as _};
use stompica_broker::simulated::outside;

use crate::client::Phase;
use crate::events::{Event, Violation};
use crate::finish::BUFFER_BYTES;
use crate::options::disturbances::{Disturbance, Disturbances, Ending};
use crate::store::Disk;
use crate::world::World;

/// The state of disturbances.
#[derive(Debug, Default)]
pub(crate) struct Disturbed {
    /// The time until which each shard gets no turn; zero: it has had one since its last pause.
    paused_until: Vec<Duration>,
    /// The time before which the store does nothing at the end.
    pub(crate) store_waits_until: Duration,
    /// The broker has ended.
    pub(crate) is_over: bool,
    /// The time from which a drain that runs out cuts connections off.
    pub(crate) cuts_from: Option<Duration>,
    /// Descriptors have been short, so that connections may be refused.
    had_few_descriptors: bool,
    /// `max_connections` was so low that connections may have been refused.
    was_full: bool,
    /// For each client: the connections that were open when it connected, and how many may be.
    neighbours: Vec<(usize, usize)>,
}

impl Disturbed {
    /// No shard pauses any more.
    pub(crate) fn forget_pauses(&mut self) {
        self.paused_until.clear();
    }
}

impl World {
    /// Something happens to the broker.
    pub(crate) fn disturb(&mut self, random: &mut SmallRng) {
        let Some(kind) = self.options.disturbances.kinds.choose(random).copied() else { return };
        match kind {
            Disturbance::Reload => {
                self.options.config = Disturbances::reloaded(&self.options.config, random);
                self.broker.reload(self.options.config.clone());
            }
            Disturbance::Descriptors => {
                let left = if random.random() { usize::MAX } else { random.random_range(0..3) };
                self.disturbed.had_few_descriptors |= left < usize::MAX;
                outside::set_descriptors(left);
            }
            Disturbance::WallClock => {
                let time = Duration::from_millis(random.random_range(0..10_u64.pow(9)));
                outside::jump(time, random.random());
            }
            Disturbance::Pause => {
                let shard = random.random_range(0..self.broker.shards());
                self.disturbed.paused_until.resize(self.broker.shards(), Duration::ZERO);
                let time = self.options.disturbances.pause_max.mul_f64(random.random::<f64>());
                if self.disturbed.paused_until[shard].is_zero() {
                    self.disturbed.paused_until[shard] = outside::now() + time;
                }
            }
        }
        self.note(|| format!("{kind:?}"));
    }

    /// Counts the connections beside that of a new client.
    pub(crate) fn count_neighbours(&mut self) {
        let others = self.clients.iter().filter(|client| client.wire.has_broker()).count();
        self.disturbed.neighbours.push((others, self.options.config.max_connections));
    }

    /// A shard takes a turn.
    pub(crate) fn end_pause(&mut self, shard: usize) {
        if let Some(until) = self.disturbed.paused_until.get_mut(shard) {
            *until = Duration::ZERO;
        }
    }

    /// Whether a shard may take a turn now.
    pub(crate) fn may_turn(&self, shard: usize) -> bool {
        self.disturbed.paused_until.get(shard).is_none_or(|until| *until <= outside::now())
    }

    /// The broker ends, in one of so many steps.
    pub(crate) fn may_end(&mut self, random: &mut SmallRng) -> Result<(), Violation> {
        let Some(ending) = self.options.disturbances.ending else { return Ok(()) };
        let steps = u32::try_from(self.options.steps).unwrap_or(u32::MAX).max(1);
        if !random.random_ratio(1, steps) {
            return Ok(());
        }
        self.disturbed.is_over = true;
        self.mend_disk();
        for client in self.clients.iter_mut().filter(|client| client.phase != Phase::Over) {
            client.phase = Phase::Leaving;
            client.leaves = false; // what it sent may not have arrived
            client.may_be_cut = ending == Ending::Stop;
        }
        match ending {
            Ending::Drain => self.drain_early(random),
            Ending::Stop => self.stop_early(random),
        }
    }

    /// Ends all disturbances.
    pub(crate) fn end_disturbances(&mut self) {
        self.disturbed.paused_until.clear();
        outside::set_descriptors(usize::MAX);
        if self.options.config.max_connections <= self.options.clients_max {
            self.disturbed.was_full = true;
            self.options.config.max_connections = usize::MAX;
            self.broker.reload(self.options.config.clone());
        }
    }

    /// All connections are accepted or refused, and a client can connect after connections could be refused.
    pub(crate) fn expect_acceptance(&mut self) -> Result<(), Violation> {
        if let Some(client) = self.clients.iter().find(|client| client.phase == Phase::Connecting) {
            let text = format!("client {} still waits for CONNECTED", client.id);
            return Err(Violation { checker: "connections", text });
        }
        if self.disturbed.was_full || self.disturbed.had_few_descriptors {
            self.expect_connection(&mut SmallRng::seed_from_u64(1))?;
        }
        Ok(())
    }

    /// Whether a client of this number may have been refused: descriptors were short, or enough connections were open.
    pub(crate) fn check_refusal(&self, at: usize) -> Result<(), Violation> {
        let (others, others_max) = self.disturbed.neighbours[at];
        let is_allowed = self.disturbed.had_few_descriptors || others >= others_max;
        match self.clients[at].error() == Some("E-CONNECTIONS") && !is_allowed {
            true => Err(Violation {
                checker: "connections",
                text: format!("client {at} is refused beside {others} others of {others_max}"),
            }),
            false => Ok(()),
        }
    }

    pub(crate) fn has_ended(&self) -> bool {
        (0..self.broker.shards()).all(|at| self.broker.has_ended(at))
    }

    /// Drains while the world goes on. Everything that was received takes effect, and is answered and stored.
    fn drain_early(&mut self, random: &mut SmallRng) -> Result<(), Violation> {
        self.note(|| "the broker drains".to_owned());
        let (began, drain) = (outside::now(), self.options.config.drain);
        self.broker.drain();
        self.disturbed.cuts_from = Some(began + drain);
        for _ in 0..random.random_range(0..1000) {
            if self.has_ended() {
                break;
            }
            match random.random_range(0..5) {
                0 => self.arrive(random)?,
                1 => self.receive_some(random)?,
                2 => self.write_some(random)?,
                _ => self.turn_of_any(random)?,
            }
        }
        self.disturbed.paused_until.clear();
        if random.random() {
            // The store goes on after a while.
            self.disturbed.store_waits_until = began + drain / 8;
        }
        self.await_end(outside::now() + drain + Duration::from_secs(1))?;
        let is_quick = outside::now() < began + drain / 2;
        let is_stored = self.disk.as_ref().is_none_or(Disk::is_settled) && self.has_log_ended();
        if is_quick && !is_stored {
            let text = "the drain has ended before everything was stored".to_owned();
            return Err(Violation { checker: "drain", text });
        }
        let readers = self.clients.iter().filter(|client| !client.is_stalled && client.is_closed_in_order());
        let missing: Vec<_> = readers
            .flat_map(|client| client.missing().map(|request| (client.id, request.clone())))
            .filter(|_| is_quick)
            .collect();
        self.tell(vec![Event::Drained(missing)])
    }

    /// Stops: shards end with their next turns, and nobody waits for anything.
    fn stop_early(&mut self, random: &mut SmallRng) -> Result<(), Violation> {
        self.note(|| "the broker stops".to_owned());
        self.broker.stop();
        self.disturbed.paused_until.clear();
        for _ in 0..1000 {
            if self.has_ended() {
                self.log_all()?;
                return self.read_rest();
            }
            self.turn_of_any(random)?;
        }
        Err(Violation { checker: "liveness", text: "a broker that stops does not end".to_owned() })
    }

    /// Waits until all shards have ended, while clients read as fast as they can; then nothing is held.
    pub(crate) fn await_end(&mut self, deadline: Duration) -> Result<(), Violation> {
        self.clients.iter().for_each(|client| client.wire.set_buffer(BUFFER_BYTES));
        while !self.has_ended() {
            self.run_until_idle()?;
            let shards = (0..self.broker.shards()).filter_map(|at| self.broker.sleep(at));
            let next = shards.chain(self.log_sleep()).min();
            outside::advance(next.unwrap_or(Duration::from_millis(10)).max(Duration::from_micros(100)));
            if outside::now() > deadline {
                let text = format!("the drain does not end: {:?}", self.broker.snapshot());
                return Err(Violation { checker: "liveness", text });
            }
        }
        self.log_all()?;
        let snapshot = self.broker.snapshot();
        if (snapshot.held_bytes, snapshot.connections, snapshot.fan_out_work) != (0, 0, 0) {
            return Err(Violation { checker: "accounting", text: format!("left at the end: {snapshot:?}") });
        }
        self.read_rest()
    }

    /// Clients read what the broker has sent before it ended.
    fn read_rest(&mut self) -> Result<(), Violation> {
        for at in 0..self.clients.len() {
            if self.clients[at].phase != Phase::Over && !self.clients[at].is_stalled {
                self.receive(at, usize::MAX)?;
            }
        }
        Ok(())
    }
}

impl Disk {
    /// Whether everything that it was told is written, or it has failed.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.has_failed() || !self.is_behind()
    }
}
