//! A store double. The broker's shards call its handles; the driver decides when their calls are written and their
//! requests are answered, and whether it fails.
//!
//! ```text
//! handle of shard 0 ─► unwritten calls ─┐  a step of the driver writes some calls of one handle
//! handle of shard 1 ─► unwritten calls ─┴─► journal ─► Event::Written
//! ```
//! Calls of one handle are written in their order, those of different handles in any order. What is written is safe.

mod handle;

use std::collections::{BTreeMap, VecDeque};
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
    unwritten: VecDeque<Vec<Change>>,
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
    records: BTreeMap<RecordId, Stored>,
    last_record: RecordId,
    last_transaction: StoreTransactionId,
    /// Everything that was written: each element as a whole.
    journal: Vec<Vec<Change>>,
    events: Vec<Event>,
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
            records: BTreeMap::new(),
            last_record: 0,
            last_transaction: 0,
            journal: Vec::new(),
            events: Vec::new(),
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

    /// Writes some calls of one handle, answers some of its requests, or fails. Returns the shards to wake.
    pub fn act(&self, random: &mut SmallRng) -> Vec<usize> {
        let state = &mut *self.lock();
        let failure_steps = state.options.failure_steps;
        if failure_steps > 0 && !state.has_failed && random.random_ratio(1, failure_steps) {
            return state.fail();
        }
        let has_work = |at: &usize| state.has_work(*at);
        let Some(at) = (0..state.handles.len()).filter(has_work).collect::<Vec<_>>().choose(random).copied()
        else {
            return Vec::new();
        };
        let count = random.random_range(1..=state.options.burst_max);
        let answers = !state.handles[at].requested.is_empty()
            && (state.handles[at].unwritten.is_empty() || state.has_failed || random.random());
        for _ in 0..count {
            if !(if answers { state.answer(at, random) } else { state.write(at) }) {
                break;
            }
        }
        vec![at]
    }

    /// Writes all calls and answers all requests, unless it has failed. Returns the shards to wake.
    pub fn act_on_all(&self, random: &mut SmallRng) -> Vec<usize> {
        let state = &mut *self.lock();
        let mut woken = Vec::new();
        for at in 0..state.handles.len() {
            if state.has_work(at) {
                while state.answer(at, random) {}
                while !state.has_failed && state.write(at) {}
                woken.push(at);
            }
        }
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
        self.lock().handles.iter().any(|calls| !calls.unwritten.is_empty())
    }

    /// The first call that breaks the rules of the trait.
    #[must_use]
    pub fn complaint(&self) -> Option<String> {
        self.lock().complaint.clone()
    }
}

impl State {
    fn has_work(&self, at: usize) -> bool {
        let calls = &self.handles[at];
        (!calls.unwritten.is_empty() && !self.has_failed) || !calls.requested.is_empty()
    }

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
        calls.unwritten.push_back(changes);
        if self.options.is_fast && !self.has_failed {
            self.write(at);
        }
    }

    /// Writes the next call of a handle. Returns false if there is none.
    fn write(&mut self, at: usize) -> bool {
        let calls = &mut self.handles[at];
        let Some(changes) = calls.unwritten.pop_front() else { return false };
        calls.safe += 1;
        for change in &changes {
            if let Change::Forgotten(record) = change {
                self.records.remove(record);
            }
        }
        self.journal.push(changes.clone());
        self.events.push(Event::Written(changes));
        true
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
        let woken = self.disk.as_ref().map_or_else(Vec::new, |disk| disk.act(random));
        self.wake(woken).map(|_| ())
    }

    /// The store writes and answers everything. Returns whether there was anything to do.
    pub(crate) fn write_all(&mut self, random: &mut SmallRng) -> Result<bool, Violation> {
        if outside::now() < self.disturbed.store_waits_until {
            return Ok(false);
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
        let events = disk.take_events();
        self.tell(events)
    }
}
