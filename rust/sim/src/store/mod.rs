//! A store double. The broker's shards call its handles; the driver decides when their calls are written and their
//! requests are answered, and whether it fails.
//!
//! ```text
//! handle of shard 0 ─► its calls ─┐ end_turn           a step of the driver writes some of them
//! handle of shard 1 ─► its calls ─┴─────────► unwritten calls ─► journal ─► Event::Written
//! ```
//! Calls are written in the order in which they are handed over. What is written is safe.

mod handle;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rand::Rng as _;
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom as _;
use stompica_broker::simulated::{Position, RecordId, Store, StoreTransactionId, outside};

use self::handle::{Handle, Stored};
use crate::events::{Change, Event, MessageId, Violation};
use crate::options::store::StoreOptions;
use crate::world::World;

/// The calls of one handle.
#[derive(Debug, Default)]
struct Calls {
    /// The number of all calls; a transaction is one.
    position: Position,
    /// The number of written calls.
    safe: Position,
    /// Calls that are not handed over.
    told: Vec<Vec<Change>>,
    /// The calls of incomplete transactions.
    open: BTreeMap<StoreTransactionId, Vec<Change>>,
    /// Records that were requested and are not loaded.
    requested: Vec<RecordId>,
    /// Records that are loaded, and whether they can be read.
    answers: VecDeque<(RecordId, bool)>,
}

#[derive(Debug)]
struct State {
    options: StoreOptions,
    handles: Vec<Calls>,
    /// The calls of all handles that were handed over, each with its handle.
    unwritten: VecDeque<(usize, Vec<Change>)>,
    records: BTreeMap<RecordId, Stored>,
    last_record: RecordId,
    last_transaction: StoreTransactionId,
    /// Everything that was written: each element as a whole.
    journal: Vec<Vec<Change>>,
    events: Vec<Event>,
    /// Handles whose calls were written at once, so that their shards have to be woken.
    woken: BTreeSet<usize>,
    /// The first call that a store need not expect.
    complaint: Option<String>,
    has_failed: bool,
}

/// The store, as seen by the driver.
#[derive(Clone, Debug)]
pub struct Disk(Arc<Mutex<State>>);

impl Disk {
    /// An empty store for so many shards.
    #[must_use]
    pub fn new(options: StoreOptions, shards: usize) -> Self {
        Disk(Arc::new(Mutex::new(State {
            options,
            handles: (0..shards).map(|_| Calls::default()).collect(),
            unwritten: VecDeque::new(),
            records: BTreeMap::new(),
            last_record: 0,
            last_transaction: 0,
            journal: Vec::new(),
            events: Vec::new(),
            woken: BTreeSet::new(),
            complaint: None,
            has_failed: false,
        })))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The handle of a shard.
    #[must_use]
    pub fn handle(&self, shard: usize) -> Box<dyn Store> {
        Box::new(Handle::new(self.clone(), shard))
    }

    /// Writes some calls, answers some requests of one handle, or fails. Returns the shards to wake.
    pub fn act(&self, random: &mut SmallRng) -> Vec<usize> {
        let state = &mut *self.lock();
        let failure_steps = state.options.failure_steps;
        if failure_steps > 0 && !state.has_failed && random.random_ratio(1, failure_steps) {
            return state.fail();
        }
        let count = random.random_range(1..=state.options.burst_max);
        let is_requested = |at: &usize| !state.handles[*at].requested.is_empty();
        let requesters: Vec<usize> = (0..state.handles.len()).filter(is_requested).collect();
        let can_write = !state.unwritten.is_empty() && !state.has_failed;
        if let Some(at) = requesters.choose(random).copied()
            && (!can_write || random.random())
        {
            for _ in 0..count {
                state.answer(at, random);
            }
            return vec![at];
        }
        let mut woken: Vec<usize> =
            if can_write { (0..count).map_while(|_| state.write()).collect() } else { Vec::new() };
        woken.sort_unstable();
        woken.dedup();
        woken
    }

    /// Writes all calls and answers all requests, unless it has failed. Returns the shards to wake.
    pub fn act_on_all(&self, random: &mut SmallRng) -> Vec<usize> {
        let state = &mut *self.lock();
        let mut woken = Vec::new();
        for at in 0..state.handles.len() {
            while state.answer(at, random) {
                woken.push(at);
            }
        }
        while !state.has_failed
            && let Some(at) = state.write()
        {
            woken.push(at);
        }
        woken.sort_unstable();
        woken.dedup();
        woken
    }

    /// Removes and returns what has happened.
    #[must_use]
    pub fn take_events(&self) -> Vec<Event> {
        std::mem::take(&mut self.lock().events)
    }

    /// Whether it has failed.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.lock().has_failed
    }

    /// Whether some calls are not written.
    #[must_use]
    pub fn is_behind(&self) -> bool {
        let state = self.lock();
        !state.unwritten.is_empty() || state.handles.iter().any(|calls| !calls.told.is_empty())
    }

    /// The first call that breaks the rules of the trait.
    #[must_use]
    pub fn complaint(&self) -> Option<String> {
        self.lock().complaint.clone()
    }
}

impl State {
    fn fail(&mut self) -> Vec<usize> {
        self.has_failed = true;
        self.events.push(Event::StoreFailed);
        (0..self.handles.len()).collect()
    }

    fn complain(&mut self, text: String) {
        self.complaint.get_or_insert(text);
    }

    /// Adds a message; returns its record and its number.
    fn add(&mut self, stored: Stored) -> (RecordId, Option<MessageId>) {
        self.last_record += 1;
        let number = stored.number();
        self.records.insert(self.last_record, stored);
        (self.last_record, number)
    }

    /// Registers a complete call of a handle.
    fn call(&mut self, at: usize, changes: Vec<Change>) {
        let calls = &mut self.handles[at];
        calls.position += 1;
        calls.told.push(changes);
    }

    /// The calls of a handle are handed over.
    fn hand_over(&mut self, at: usize) {
        let told = std::mem::take(&mut self.handles[at].told);
        self.unwritten.extend(told.into_iter().map(|changes| (at, changes)));
        while self.options.is_fast
            && !self.has_failed
            && let Some(at) = self.write()
        {
            self.woken.insert(at);
        }
    }

    /// Writes the next call. Returns its handle.
    fn write(&mut self) -> Option<usize> {
        let (at, changes) = self.unwritten.pop_front()?;
        self.handles[at].safe += 1;
        for change in &changes {
            if let Change::Forgotten(record) = change {
                self.records.remove(record);
            }
        }
        self.journal.push(changes.clone());
        self.events.push(Event::Written(changes));
        Some(at)
    }

    /// Answers one request of a handle. Returns false if there is none.
    fn answer(&mut self, at: usize, random: &mut SmallRng) -> bool {
        let requested = &mut self.handles[at].requested;
        if requested.is_empty() {
            return false;
        }
        let record = requested.swap_remove(random.random_range(0..requested.len()));
        let is_damaged = random.random_range(0..100) < self.options.unreadable;
        if is_damaged && let Some(stored) = self.records.get(&record).filter(|stored| !stored.is_forgotten) {
            self.events.extend(stored.number().map(Event::Damaged));
        }
        self.handles[at].answers.push_back((record, !is_damaged));
        true
    }
}

impl World {
    /// The store writes or answers something.
    pub(crate) fn write_some(&mut self, random: &mut SmallRng) -> Result<(), Violation> {
        if self.log.is_some() {
            return self.log_step(random);
        }
        let woken = self.disk.as_ref().map_or_else(Vec::new, |disk| disk.act(random));
        self.wake(woken).map(|_| ())
    }

    /// The store writes and answers everything. Returns whether there was anything to do.
    pub(crate) fn write_all(&mut self, random: &mut SmallRng) -> Result<bool, Violation> {
        if outside::now() < self.disturbed.store_waits_until {
            return Ok(false);
        }
        if self.log.is_some() {
            return self.log_all();
        }
        let woken = self.disk.as_ref().map_or_else(Vec::new, |disk| disk.act_on_all(random));
        self.wake(woken)
    }

    fn wake(&mut self, shards: Vec<usize>) -> Result<bool, Violation> {
        if shards.is_empty() {
            return Ok(false);
        }
        self.note(|| format!("store acts for {shards:?}"));
        shards.iter().for_each(|shard| self.broker.wake(*shard));
        self.tell_of_store().map(|()| true)
    }

    /// Tells what has happened in the store.
    pub(crate) fn tell_of_store(&mut self) -> Result<(), Violation> {
        let Some(disk) = &self.disk else { return Ok(()) };
        if let Some(text) = disk.complaint() {
            return Err(Violation { checker: "store", text });
        }
        let woken = std::mem::take(&mut disk.lock().woken);
        let events = disk.take_events();
        woken.into_iter().for_each(|shard| self.broker.wake(shard));
        self.tell(events)
    }
}
