//! Where shards and the thread of the log meet. Neither of them ever waits for the other while it holds a lock: batches are
//! moved, not copied.

use std::mem::take;
use std::sync::Arc;
use std::time::Duration;

use stompica_proto::ProtocolError;

use super::batch::Batch;
use crate::door::planted;
use crate::door::sync::{AtomicU64, Condvar, Mutex, MutexGuard, Ordering, PoisonError};
use crate::ids::RecordId;
use crate::report::stages::Histogram;
use crate::report::types::{StoreFigures, StoreStatus};
use crate::store::{Position, Room, Unreadable};

/// The records that a shard gets at a time.
const RECORDS: u64 = 256;

/// What shards have handed over.
#[derive(Debug, Default)]
pub struct Work {
    /// What each shard tells, with the shard and its position after that.
    pub batches: Vec<(usize, Batch, Position)>,
    /// Messages that are to be read, each with the shard that wants it.
    pub loads: Vec<(usize, RecordId)>,
    /// No more will come: the last shard has ended.
    pub has_ended: bool,
}

impl Work {
    /// Whether there is nothing to do.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.batches.is_empty() && self.loads.is_empty() && !self.has_ended
    }
}

/// A message that was read: the bytes of its entry.
pub type Loaded = (RecordId, Result<Vec<u8>, Unreadable>);

/// What the log has for one shard.
#[derive(Debug, Default)]
struct Outlet {
    /// The position up to which everything is safe.
    safe: AtomicU64,
    loaded: Mutex<Vec<Loaded>>,
}

/// What the log has said of itself last.
#[derive(Debug, Default)]
struct Published {
    figures: StoreFigures,
    sync: Histogram,
}

/// The meeting place.
pub struct Inbox {
    work: Mutex<Work>,
    arrived: Condvar,
    outlets: Vec<Outlet>,
    /// Why the log has failed.
    failure: Mutex<Option<ProtocolError>>,
    has_failed: AtomicU64,
    is_full: AtomicU64,
    /// The bytes that were posted and are not written.
    unwritten: AtomicU64,
    /// More unwritten bytes than this are too many.
    unwritten_max: AtomicU64,
    published: Mutex<Published>,
    next_record: AtomicU64,
    first_record: RecordId,
    /// Wakes a shard.
    wake: Box<dyn Fn(usize) + Send + Sync>,
}

impl std::fmt::Debug for Inbox {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Inbox").field("outlets", &self.outlets).finish_non_exhaustive()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Inbox {
    /// A meeting place of so many shards; `next_record`: all records so far are smaller.
    #[must_use]
    pub fn new(shards: usize, next_record: RecordId, wake: Box<dyn Fn(usize) + Send + Sync>) -> Arc<Self> {
        let first_record = next_record.next_multiple_of(RECORDS);
        Arc::new(Inbox {
            first_record,
            work: Mutex::default(),
            arrived: Condvar::new(),
            outlets: (0..shards).map(|_| Outlet::default()).collect(),
            failure: Mutex::default(),
            has_failed: AtomicU64::new(0),
            is_full: AtomicU64::new(0),
            unwritten: AtomicU64::new(0),
            unwritten_max: AtomicU64::new(u64::MAX),
            next_record: AtomicU64::new(first_record),
            published: Mutex::default(),
            wake,
        })
    }

    /// The number of shards.
    #[must_use]
    pub fn shards(&self) -> usize {
        self.outlets.len()
    }

    /// Records for a shard that nobody else has.
    #[must_use]
    pub fn records(&self) -> std::ops::Range<RecordId> {
        let first = self.next_record.fetch_add(RECORDS, Ordering::Relaxed);
        first..first + RECORDS
    }

    /// The first record of this process.
    #[must_use]
    pub fn first_record(&self) -> RecordId {
        self.first_record
    }

    /// All records that were given out are smaller.
    #[must_use]
    pub fn next_record(&self) -> RecordId {
        self.next_record.load(Ordering::Relaxed)
    }

    /// Hands over what a shard has to tell, and what it wants.
    pub fn post(&self, shard: usize, batch: Batch, position: Position, loads: &mut Vec<RecordId>) {
        let mut work = lock(&self.work);
        let was_empty = work.is_empty();
        if !batch.is_empty() {
            self.unwritten.fetch_add(batch.bytes.len() as u64, Ordering::Relaxed);
            if planted!("receipt-when-posted") {
                self.set_safe(shard, position);
            }
            work.batches.push((shard, batch, position));
        }
        work.loads.extend(loads.drain(..).map(|record| (shard, record)));
        drop(work);
        if was_empty {
            self.arrived.notify_one();
        }
    }

    /// Tells that no more will come.
    pub fn end(&self) {
        lock(&self.work).has_ended = true;
        self.arrived.notify_one();
    }

    /// Whether somebody has handed something over.
    #[cfg(simulated)]
    #[must_use]
    pub fn has_work(&self) -> bool {
        !lock(&self.work).is_empty()
    }

    /// Takes everything, after a wait for something of so long at most; without a limit if it is `None`.
    #[must_use]
    pub fn take(&self, patience: Option<Duration>) -> Work {
        let mut work = lock(&self.work);
        match patience {
            None => {
                while work.is_empty() {
                    work = self.arrived.wait(work).unwrap_or_else(PoisonError::into_inner);
                }
            }
            Some(patience) if work.is_empty() && !patience.is_zero() => {
                work = self.arrived.wait_timeout(work, patience).unwrap_or_else(PoisonError::into_inner).0;
            }
            Some(_) => {}
        }
        take(&mut *work)
    }

    /// Tells a shard that everything up to a position is safe.
    pub fn set_safe(&self, shard: usize, position: Position) {
        self.outlets[shard].safe.store(position, Ordering::Release);
        (self.wake)(shard);
    }

    /// The position of a shard up to which everything is safe.
    ///
    /// # Errors
    /// The log has failed.
    pub fn safe(&self, shard: usize) -> Result<Position, ProtocolError> {
        if self.has_failed.load(Ordering::Acquire) != 0
            && let Some(failure) = lock(&self.failure).clone()
        {
            return Err(failure);
        }
        Ok(self.outlets[shard].safe.load(Ordering::Acquire))
    }

    /// Tells all shards that the log has failed for good.
    pub fn fail(&self, failure: ProtocolError) {
        lock(&self.failure).get_or_insert(failure);
        self.has_failed.store(1, Ordering::Release);
        (0..self.outlets.len()).for_each(|shard| (self.wake)(shard));
    }

    /// What shards may still tell. It costs three reads of memory, and may be asked for every message. All shards are woken
    /// when it becomes [`Room::Free`], and when it was [`Room::Behind`].
    #[must_use]
    pub fn room(&self) -> Room {
        if self.is_full.load(Ordering::Relaxed) != 0 {
            Room::Full
        } else if self.unwritten.load(Ordering::Relaxed) > self.unwritten_max.load(Ordering::Relaxed) {
            Room::Behind
        } else {
            Room::Free
        }
    }

    /// Tells whether the disk is full.
    pub fn set_full(&self, is_full: bool) {
        self.change_room(|| self.is_full.store(u64::from(is_full), Ordering::Relaxed));
    }

    /// Tells that so many of the posted bytes are written.
    pub fn set_written(&self, bytes: u64) {
        self.change_room(|| _ = self.unwritten.fetch_sub(bytes, Ordering::Relaxed));
    }

    /// Sets how many posted bytes may be unwritten before publishers should pause.
    pub fn set_unwritten_max(&self, bytes: u64) {
        self.change_room(|| self.unwritten_max.store(bytes, Ordering::Relaxed));
    }

    fn change_room(&self, change: impl FnOnce()) {
        let before = self.room();
        change();
        let after = self.room();
        // Who pauses because the log is behind has to learn that the disk is full now.
        if before != after && (after == Room::Free || before == Room::Behind) {
            (0..self.outlets.len()).for_each(|shard| (self.wake)(shard));
        }
    }

    /// Publishes the figures of the log, and how long its last syncs took.
    pub fn publish(&self, figures: StoreFigures, sync_times: impl Iterator<Item = Duration>) {
        let mut published = lock(&self.published);
        published.figures = figures;
        for time in sync_times {
            published.sync.add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
        }
    }

    /// The figures of the log as they were published last, and what is not written now.
    #[must_use]
    pub fn figures(&self) -> StoreFigures {
        let unwritten_bytes = self.unwritten.load(Ordering::Relaxed);
        StoreFigures { unwritten_bytes, ..lock(&self.published).figures }
    }

    /// What the store says of itself, for diagnostics.
    #[must_use]
    pub fn status(&self) -> StoreStatus {
        let failure = lock(&self.failure).clone();
        let state = match (&failure, self.room()) {
            (Some(_), _) => "read-only",
            (None, Room::Full) => "full",
            (None, Room::Behind) => "behind",
            (None, Room::Free) => "ready",
        };
        let reason = failure.map_or_else(String::new, |failure| failure.detail);
        StoreStatus { state, reason, figures: self.figures(), sync: lock(&self.published).sync.clone() }
    }

    /// Gives a shard a message that it wants.
    pub fn give(&self, shard: usize, loaded: Loaded) {
        lock(&self.outlets[shard].loaded).push(loaded);
        (self.wake)(shard);
    }

    /// Gives a shard several messages that it wants.
    pub fn give_all(&self, shard: usize, loaded: Vec<Loaded>) {
        lock(&self.outlets[shard].loaded).extend(loaded);
        (self.wake)(shard);
    }

    /// Takes the messages that were read for a shard.
    #[must_use]
    pub fn loaded(&self, shard: usize) -> Vec<Loaded> {
        take(&mut *lock(&self.outlets[shard].loaded))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// Shards that waited for a log that was behind slept on when its disk was full.
    #[test]
    fn shards_learn_that_a_log_that_was_behind_is_full_now() {
        let woken = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&woken);
        let inbox = Inbox::new(1, 1, Box::new(move |_| _ = counter.fetch_add(1, Ordering::Relaxed)));
        inbox.post(0, Batch { bytes: vec![0; 10], ..Batch::default() }, 1, &mut Vec::new());
        inbox.set_unwritten_max(5);
        let count = || woken.load(Ordering::Relaxed);
        assert_eq!((inbox.room(), count()), (Room::Free, 0), "a batch without calls is no work");
        let calls = vec![crate::store::file::batch::Call::Forget(1)];
        inbox.post(0, Batch { bytes: vec![0; 10], calls }, 1, &mut Vec::new());
        assert_eq!((inbox.room(), count()), (Room::Behind, 0));
        inbox.set_full(true);
        assert_eq!((inbox.room(), count()), (Room::Full, 1));
        inbox.set_full(false);
        assert_eq!((inbox.room(), count()), (Room::Behind, 1));
        inbox.set_written(10);
        assert_eq!((inbox.room(), count()), (Room::Free, 2));
    }
}
