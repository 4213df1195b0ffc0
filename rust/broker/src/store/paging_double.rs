//! A store for tests that can load messages again. It answers requests late, in any order, and some of them with an error.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};
use stompica_proto::encode::Message;

use super::{Store, Unreadable};
use crate::ids::{NO_RECORD, RecordId};
use crate::message::OwnedMessage;

/// A message in the store.
#[derive(Clone, Debug)]
struct OnDisk {
    parts: [Vec<u8>; 4],
    sender: u64,
    plain: bool,
    persistent: bool,
    /// Whether it was kept, not only paged out.
    is_kept: bool,
    grouped: bool,
    failures_max: u16,
}

impl OnDisk {
    fn of(owned: &OwnedMessage, is_kept: bool) -> Self {
        let message = owned.message();
        OnDisk {
            parts: [message.destination, message.id, message.headers, message.body].map(<[u8]>::to_vec),
            sender: message.sender,
            plain: message.plain,
            persistent: owned.persistent,
            is_kept,
            grouped: owned.grouped,
            failures_max: owned.failures_max,
        }
    }

    fn read(&self, record: RecordId) -> OwnedMessage {
        let [destination, id, headers, body] = self.parts.each_ref().map(Vec::as_slice);
        let message =
            Message { destination, id, sender: self.sender, headers, plain: self.plain, expires_ms: 0, body };
        let mut owned = OwnedMessage::new(&message);
        owned.persistent = self.persistent;
        owned.grouped = self.grouped;
        owned.failures_max = self.failures_max;
        owned.record = if self.is_kept { record } else { NO_RECORD };
        owned
    }
}

/// The state that the handles of the store share.
#[derive(Debug)]
struct Disk {
    records: BTreeMap<RecordId, OnDisk>,
    last: RecordId,
    /// Records that were requested, each with its handle.
    requested: Vec<(usize, RecordId)>,
    damaged: BTreeSet<RecordId>,
    handles: usize,
    requested_max: usize,
    random: SmallRng,
    /// The chance in percent that it answers when it is asked for an answer.
    readiness: u32,
}

/// The store.
#[derive(Clone, Debug)]
pub struct PagingStore(Arc<Mutex<Disk>>);

/// The store, as seen by one shard.
#[derive(Debug)]
struct Handle {
    number: usize,
    store: PagingStore,
}

impl PagingStore {
    /// An empty store. The order of its answers follows from `seed`; `readiness` is the chance in percent that it answers when
    /// it is asked for an answer.
    pub fn new(seed: u64, readiness: u32) -> Self {
        PagingStore(Arc::new(Mutex::new(Disk {
            records: BTreeMap::new(),
            last: NO_RECORD,
            requested: Vec::new(),
            damaged: BTreeSet::new(),
            handles: 0,
            requested_max: 0,
            random: SmallRng::seed_from_u64(seed),
            readiness,
        })))
    }

    fn lock(&self) -> MutexGuard<'_, Disk> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A handle for one more shard.
    pub fn handle(&self) -> Box<dyn Store> {
        let mut disk = self.lock();
        disk.handles += 1;
        Box::new(Handle { number: disk.handles, store: self.clone() })
    }

    /// Changes the chance that it answers.
    pub fn set_readiness(&self, readiness: u32) {
        self.lock().readiness = readiness;
    }

    /// Damages the message with this body.
    pub fn damage(&self, body: &[u8]) {
        let mut disk = self.lock();
        let found: Vec<_> =
            disk.records.iter().filter(|(_, it)| it.parts[3] == body).map(|(at, _)| *at).collect();
        disk.damaged.extend(found);
    }

    /// The bodies of all messages in the store.
    pub fn bodies(&self) -> Vec<String> {
        self.lock().records.values().map(|it| String::from_utf8_lossy(&it.parts[3]).into_owned()).collect()
    }

    /// The messages that were kept.
    pub fn kept(&self) -> usize {
        self.lock().records.values().filter(|it| it.is_kept).count()
    }

    /// The bodies of messages that were requested and have not been returned.
    pub fn requested(&self) -> Vec<String> {
        let disk = self.lock();
        let body = |it: &OnDisk| String::from_utf8_lossy(&it.parts[3]).into_owned();
        let found = |record: &RecordId| disk.records.get(record).map(body).unwrap_or_default();
        disk.requested.iter().map(|(_, record)| found(record)).collect()
    }

    /// The largest number of requests that waited for an answer at a time.
    pub fn requested_max(&self) -> usize {
        self.lock().requested_max
    }
}

impl Disk {
    fn write(&mut self, message: &OwnedMessage, is_kept: bool) -> RecordId {
        self.last += 1;
        self.records.insert(self.last, OnDisk::of(message, is_kept));
        self.last
    }
}

impl Store for Handle {
    fn keep(&mut self, _: &[u8], message: &OwnedMessage) -> RecordId {
        self.store.lock().write(message, true)
    }

    fn forget(&mut self, record: RecordId) {
        assert!(self.store.lock().records.remove(&record).is_some(), "record {record} is forgotten once");
    }

    fn pages(&self) -> bool {
        true
    }

    fn page_out(&mut self, _: &[u8], message: &OwnedMessage) -> RecordId {
        match message.message().headers.starts_with(b"unpageable") {
            true => NO_RECORD,
            false if message.record != NO_RECORD => message.record,
            false => self.store.lock().write(message, false),
        }
    }

    fn load(&mut self, record: RecordId) {
        let mut disk = self.store.lock();
        assert!(disk.records.contains_key(&record), "record {record} is not in the store");
        disk.requested.push((self.number, record));
        disk.requested_max = disk.requested_max.max(disk.requested.len());
    }

    fn loaded(&mut self) -> Option<(RecordId, Result<OwnedMessage, Unreadable>)> {
        let mut guard = self.store.lock();
        let disk = &mut *guard;
        let own: Vec<usize> =
            (0..disk.requested.len()).filter(|at| disk.requested[*at].0 == self.number).collect();
        if own.is_empty() || disk.random.random_range(0..100) >= disk.readiness {
            return None;
        }
        let at = own[disk.random.random_range(0..own.len())];
        let (_, record) = disk.requested.swap_remove(at);
        if disk.damaged.contains(&record) {
            return Some((record, Err(Unreadable)));
        }
        // It may have been forgotten meanwhile.
        let Some(found) = disk.records.get(&record).cloned() else { return Some((record, Err(Unreadable))) };
        if !found.is_kept {
            disk.records.remove(&record);
        }
        Some((record, Ok(found.read(record))))
    }
}
