//! The world of one run: the broker, its clients, the network between them, and time.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::seq::IndexedRandom as _;
use rand::{Rng as _, SeedableRng as _};
use stompica_broker::log::{Level, LogQueue};
use stompica_broker::simulated::{Memory, SteppedBroker, Store, outside};

use crate::actions::{Actor, Numbers};
use crate::checkers::{self, Checker};
use crate::client::{Client, Phase};
use crate::disturb::Disturbed;
use crate::events::{Event, Violation};
use crate::limits::Limits;
use crate::lives::Lives;
use crate::log::LogWorld;
use crate::options::Options;
use crate::rogue::{Bystanders, Crowd};
use crate::store::Disk;

/// The time that a turn takes.
const TURN: Duration = Duration::from_micros(20);
/// Lines of the trace that a failure shows.
const TRACE_LINES: usize = 4000;
/// How often idle shards wake without an effect before they are left asleep until a deadline. A frame that waits for
/// others to arrive needs two wakes for each of them.
const WAKES_MAX: u32 = 64;

/// A failed run.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The seed.
    pub seed: u64,
    /// The step in which it was found.
    pub step: u64,
    /// What is wrong.
    pub violation: Violation,
    /// The last events.
    pub trace: Vec<String>,
}

/// The figures of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Steps.
    pub steps: u64,
    /// Events of clients: requests, deliveries, confirmations, ends.
    pub events: u64,
    /// Crashes of the broker.
    pub crashes: u64,
    /// A hash of all events, the same in each run of a seed.
    pub trace_hash: u64,
}

/// The world of one run.
pub struct World {
    pub(crate) options: Options,
    pub(crate) broker: SteppedBroker,
    /// The double of a store; `None`: messages are in memory only, or in the real log.
    pub(crate) disk: Option<Disk>,
    /// The real log, in place of the double.
    pub(crate) log: Option<LogWorld>,
    pub(crate) disturbed: Disturbed,
    pub(crate) clients: Vec<Client>,
    pub(crate) crowd: Crowd,
    pub(crate) bystanders: Bystanders,
    pub(crate) checkers: Vec<Box<dyn Checker>>,
    /// Checkers of what survives a crash.
    survival: Vec<Box<dyn Checker>>,
    pub(crate) lives: Lives,
    pub(crate) limits: Limits,
    pub(crate) numbers: Numbers,
    trace: VecDeque<String>,
    pub(crate) summary: Summary,
    /// The events when time last passed while the broker was idle, and how often it has passed since they changed.
    pub(crate) idle: (u64, u32),
    pub(crate) step: u64,
    pub(crate) finishes: bool,
    /// Queues that were consumed at the end.
    pub(crate) drained: BTreeSet<String>,
}

impl World {
    /// The world of a seed, before its first step.
    #[must_use]
    pub fn new(options: Options) -> Self {
        outside::begin(options.seed);
        outside::set_turn_divisor(options.pressure.turn_divisor);
        outside::plant(options.fault.clone());
        let disk = options.store.is_double().then(|| Disk::new(options.store, options.config.writers));
        let store = |shard| match &disk {
            Some(disk) => disk.handle(shard),
            None => Box::new(Memory) as Box<dyn Store>,
        };
        let stores = (0..options.config.writers).map(store).collect();
        let (config, records) = (options.config.clone(), LogQueue::new(1000, Level::Warn));
        let broker = match options.store.log {
            Some(_) => SteppedBroker::start_without_log(config, records),
            None => SteppedBroker::start(config, records, stores),
        };
        let mut world = World {
            log: options.store.log.map(LogWorld::new),
            checkers: checkers::all(&options),
            survival: checkers::across_crashes(&options),
            lives: Lives::default(),
            limits: Limits::default(),
            options,
            broker,
            disk,
            disturbed: Disturbed::default(),
            clients: Vec::new(),
            crowd: Crowd::default(),
            bystanders: Bystanders::default(),
            numbers: Numbers::default(),
            trace: VecDeque::new(),
            summary: Summary::default(),
            idle: (0, 0),
            step: 0,
            finishes: false,
            drained: BTreeSet::new(),
        };
        world.set_window();
        world
    }

    /// Runs all steps of a seed; `is_kept` says which steps are taken.
    ///
    /// # Errors
    /// A broken promise.
    pub fn run(mut self, is_kept: impl Fn(u64) -> bool) -> Result<Summary, Box<Failure>> {
        let run = std::panic::AssertUnwindSafe(|| self.run_all(&is_kept));
        let outcome = std::panic::catch_unwind(run).unwrap_or_else(|panic| {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
            Err(Violation { checker: "panic", text: text.unwrap_or_default() })
        });
        match outcome {
            Ok(()) => Ok(Summary { steps: self.step, ..self.summary }),
            Err(violation) => Err(Box::new(Failure {
                seed: self.options.seed,
                step: self.step,
                violation,
                trace: self.trace.into(),
            })),
        }
    }

    fn run_all(&mut self, is_kept: &impl Fn(u64) -> bool) -> Result<(), Violation> {
        self.begin()?;
        while self.step < self.options.steps && !self.disturbed.is_over {
            self.step += 1;
            if is_kept(self.step) {
                // Each step has random numbers of its own, so that others can be left out.
                let mut random = SmallRng::seed_from_u64(self.options.seed.rotate_left(32) ^ self.step);
                self.take_step(&mut random)?;
            }
        }
        if self.disturbed.is_over { Ok(()) } else { self.finish() }
    }

    fn take_step(&mut self, random: &mut SmallRng) -> Result<(), Violation> {
        self.may_end(random)?;
        self.may_crash(random)?;
        if self.disturbed.is_over {
            return Ok(());
        }
        let pace = &self.options.pace;
        let kinds = [
            ("act", pace.act),
            ("arrive", pace.arrive),
            ("receive", pace.receive),
            ("turn", pace.turn),
            ("pass", pace.pass),
            ("disturb", self.options.disturbances.pace),
            ("store", self.options.store.pace),
            ("rogue", self.options.rogues.pace),
            ("pair", self.options.rogues.probes),
        ];
        let Ok((kind, _)) = kinds.choose_weighted(random, |(_, weight)| *weight) else { return Ok(()) };
        match *kind {
            "act" => self.act(random),
            "arrive" => self.arrive(random),
            "receive" => self.receive_some(random),
            "turn" => self.turn_of_any(random),
            "store" => self.write_some(random),
            "rogue" => self.rogue_step(random),
            "pair" => self.time_bystanders(random),
            "disturb" => {
                self.disturb(random);
                Ok(())
            }
            _ => self.pass(random),
        }
    }

    fn act(&mut self, random: &mut SmallRng) -> Result<(), Violation> {
        let open: Vec<usize> =
            (0..self.clients.len()).filter(|at| self.clients[*at].phase != Phase::Over).collect();
        let weight = self.options.weights.connect;
        if open.is_empty()
            || (open.len() < self.options.clients_max && random.random_ratio(weight, weight + 40))
        {
            return self.connect(random);
        }
        let Some(at) = open.choose(random) else { return Ok(()) };
        let at = *at;
        if let Some(name) = self.act_as(at, random, |actor| actor.act())? {
            self.note(|| format!("{at} {name}"));
        }
        Ok(())
    }

    /// Lets a client act.
    pub(crate) fn act_as<T>(
        &mut self,
        at: usize,
        random: &mut SmallRng,
        act: impl FnOnce(&mut Actor<'_>) -> T,
    ) -> Result<T, Violation> {
        let mut events = Vec::new();
        let (client, options, numbers) = (&mut self.clients[at], &self.options, &mut self.numbers);
        let acted = act(&mut Actor { client, options, numbers, random, events: &mut events });
        self.tell(events)?;
        Ok(acted)
    }

    pub(crate) fn connect(&mut self, random: &mut SmallRng) -> Result<(), Violation> {
        let scope = self.options.keeping.scope(random);
        self.connect_as(random, scope)
    }

    /// Opens a connection with this `client-id`.
    pub(crate) fn connect_as(&mut self, random: &mut SmallRng, scope: Option<u64>) -> Result<(), Violation> {
        let Some(wire) = outside::connect() else { return Ok(()) };
        wire.set_buffer(if self.finishes { 64 << 10 } else { self.options.buffer_bytes });
        let version = *self.options.versions.choose(random).expect("at least one");
        let id = self.clients.len();
        self.count_neighbours();
        let is_websocket = random.random_range(0..100) < self.options.websockets;
        let mut client = Client::new(id, wire, version, is_websocket, scope);
        client.private.rules = self.options.rules();
        self.clients.push(client);
        self.note(|| format!("{id} connect {version:?}"));
        self.tell(vec![Event::Connecting(id, is_websocket)])
    }

    pub(crate) fn arrive(&mut self, random: &mut SmallRng) -> Result<(), Violation> {
        let some: Vec<&Client> = self.clients.iter().filter(|client| client.wire.in_transit() > 0).collect();
        let Some(client) = some.choose(random) else { return self.turn_of_any(random) };
        let (id, len) = (client.id, random.random_range(1..=self.options.piece_max));
        client.wire.arrive(len);
        self.note(|| format!("{id} arrive {len}"));
        Ok(())
    }

    pub(crate) fn receive_some(&mut self, random: &mut SmallRng) -> Result<(), Violation> {
        let readers = self.clients.iter().filter(|client| client.phase != Phase::Over && !client.is_stalled);
        let some: Vec<usize> = readers
            .filter(|client| client.wire.receivable() > 0 || client.wire.is_ended())
            .map(|client| client.id)
            .collect();
        let Some(at) = some.choose(random) else { return self.turn_of_any(random) };
        let len = random.random_range(1..=self.options.piece_max);
        self.receive(*at, len).map(|_| ())
    }

    pub(crate) fn receive(&mut self, at: usize, bytes_max: usize) -> Result<usize, Violation> {
        let mut events = Vec::new();
        let is_cut_off = self.disturbed.cuts_from.is_some_and(|from| outside::now() >= from);
        self.clients[at].may_be_cut |= is_cut_off;
        let received = self.clients[at].receive(bytes_max, &mut events);
        if matches!(received, Ok(len) if len > 0) {
            self.note(|| match bytes_max {
                usize::MAX => format!("{at} receive all"),
                _ => format!("{at} receive {bytes_max}"),
            });
        }
        self.tell(events)?;
        self.check_refusal(at)?;
        received.map_err(|text| Violation { checker: "protocol", text: format!("client {at}: {text}") })
    }

    pub(crate) fn turn_of_any(&mut self, random: &mut SmallRng) -> Result<(), Violation> {
        let shards = (0..self.broker.shards()).filter(|at| self.may_turn(*at));
        let ready: Vec<usize> = shards.filter(|at| self.broker.sleep(*at) == Some(Duration::ZERO)).collect();
        let lazy = self.options.pressure.lazy_shards;
        let prompt: Vec<usize> = ready.iter().copied().filter(|at| lazy >> at & 1 == 0).collect();
        let is_theirs = lazy == 0 || random.random_ratio(1, 20);
        let chosen = if is_theirs || prompt.is_empty() { ready } else { prompt };
        match chosen.choose(random) {
            Some(shard) => self.turn(*shard),
            None => self.pass(random),
        }
    }

    pub(crate) fn turn(&mut self, shard: usize) -> Result<(), Violation> {
        self.note(|| format!("turn {shard}"));
        outside::advance(TURN);
        self.end_pause(shard);
        let before = self.broker.usage();
        _ = outside::take_traffic();
        self.broker.turn(shard);
        if let (Some(before), Some(after)) = (before, self.broker.usage()) {
            self.limits.check(&self.options, shard, &before, &after, outside::take_traffic())?;
        }
        let released = self.clients.iter_mut().filter_map(Client::release).collect();
        self.tell(released)?;
        self.tell_of_store()?;
        self.tell_of_rogues()?;
        if self.broker.has_reclaimed_while_busy() {
            let text = format!("shard {shard} has work and gives memory back, which takes long");
            return Err(Violation { checker: "memory", text });
        }
        for record in self.broker.log() {
            self.note(|| format!("log: {} {:?}", record.text, record.fields));
        }
        self.audit()
    }

    /// Lets time pass until a deadline of the broker, or less.
    fn pass(&mut self, random: &mut SmallRng) -> Result<(), Violation> {
        let shards = (0..self.broker.shards()).filter(|at| self.may_turn(*at));
        let next = shards.filter_map(|at| self.broker.sleep(at)).chain(self.log_sleep()).min();
        let pause = self.options.pause_max.mul_f64(random.random::<f64>());
        let time = next.map_or(pause, |next| next.min(pause));
        if time > Duration::ZERO {
            self.note(|| format!("pass {time:?}"));
            self.advance(time);
        }
        Ok(())
    }

    /// Lets time pass until an idle shard wakes, at most `limit`, and returns the time. Shards wake often while memory is
    /// short, and look for free memory; once this has changed nothing many times, they sleep until a deadline.
    pub(crate) fn pass_idly(&mut self, limit: Duration) -> Duration {
        let skips = self.is_idle_for_long();
        let wake = |at| if skips { self.broker.deadline(at) } else { self.broker.sleep(at) };
        let next = (0..self.broker.shards()).filter_map(wake).chain(self.log_sleep()).min();
        let time = next.unwrap_or(limit).max(Duration::from_millis(1)).min(limit);
        self.advance(time);
        time
    }

    /// Notes that time passes. Returns whether it has passed many times without an event.
    pub(crate) fn is_idle_for_long(&mut self) -> bool {
        let (events, times) = self.idle;
        self.idle =
            if events == self.summary.events { (events, times + 1) } else { (self.summary.events, 0) };
        self.idle.1 > WAKES_MAX
    }

    /// Lets time pass.
    pub(crate) fn advance(&mut self, time: Duration) {
        let is_quiet = (0..self.broker.shards()).all(|at| self.broker.sleep(at) != Some(Duration::ZERO));
        outside::advance(time);
        if is_quiet {
            outside::note_quiet(); // whatever the broker does from now on, it decides from now on
        }
    }

    pub(crate) fn note(&mut self, line: impl FnOnce() -> String) {
        if self.trace.len() == TRACE_LINES {
            self.trace.pop_front();
        }
        let line = format!("{:>7} {:>12?} {}", self.step, outside::now(), line());
        // FNV-1a
        for byte in line.bytes() {
            self.summary.trace_hash =
                (self.summary.trace_hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3);
        }
        self.trace.push_back(line);
    }

    pub(crate) fn tell(&mut self, events: Vec<Event>) -> Result<(), Violation> {
        for event in events {
            self.summary.events += u64::from(!matches!(event, Event::Written(_)));
            self.note(|| event.shown());
            for checker in &mut self.survival {
                checker.see(&event, outside::now())?;
            }
            let Some(event) = self.lives.of_this_life(event) else { continue };
            for checker in &mut self.checkers {
                checker.see(&event, outside::now())?;
            }
        }
        Ok(())
    }
}
