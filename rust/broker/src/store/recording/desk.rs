//! Where shards, the thread that writes the recording and the one that reads it meet. Nobody waits for another one while it
//! holds a lock.

use std::mem::take;
use std::sync::Arc;
use std::time::Duration;

use stompica_proto::ProtocolError;

use super::block::Block;
use super::catalog::{Catalog, Place};
use super::reader::Portion;
use crate::door::sync::{AtomicU64, Condvar, Mutex, MutexGuard, Ordering, PoisonError, Sender};
use crate::ids::SubscriptionKey;
use crate::store::{Position, Room};

/// What a shard wants to know.
#[derive(Clone, Debug)]
pub enum Question {
    /// Messages from this number on, from where the portion before has ended.
    Read(u64, Option<Place>),
    /// The number of the first message of this time or later.
    Find(u64),
}

/// A question of a subscription.
#[derive(Clone, Debug)]
pub struct Asked {
    /// Its shard.
    pub shard: usize,
    /// The subscription.
    pub key: SubscriptionKey,
    /// The destination.
    pub name: Arc<[u8]>,
    /// The question.
    pub question: Question,
}

/// What was read.
#[derive(Debug)]
pub enum Read {
    /// Some messages; `None`: the disk has failed.
    Portion(Option<Portion>),
    /// A number, if there is such a message; the outer `None`: the disk has failed.
    Found(Option<Option<u64>>),
}

/// What shards have handed over.
#[derive(Debug, Default)]
pub struct Work {
    /// Blocks of each shard, with the shard and its position after that.
    pub batches: Vec<(usize, Vec<Arc<Block>>, Position)>,
    /// No more will come.
    pub has_ended: bool,
}

/// What the recording has for one shard.
#[derive(Debug, Default)]
struct Outlet {
    /// The position up to which everything is safe.
    safe: AtomicU64,
    read: Mutex<Vec<(SubscriptionKey, Read)>>,
    has_read: AtomicU64,
}

/// The meeting place.
pub struct Desk {
    work: Mutex<Work>,
    arrived: Condvar,
    outlets: Vec<Outlet>,
    catalog: Arc<Mutex<Catalog>>,
    questions: Mutex<Option<Sender<Asked>>>,
    failure: Mutex<Option<ProtocolError>>,
    has_failed: AtomicU64,
    is_full: AtomicU64,
    unwritten: AtomicU64,
    unwritten_max: u64,
    /// The memory of the catalog when it was last measured.
    pub catalog_bytes: AtomicU64,
    wake: Box<dyn Fn(usize) + Send + Sync>,
}

impl std::fmt::Debug for Desk {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Desk").field("outlets", &self.outlets).finish_non_exhaustive()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Desk {
    /// A meeting place of so many shards. Publishers pause while more than `unwritten_max` bytes are not written.
    #[must_use]
    pub fn new(
        shards: usize,
        catalog: Arc<Mutex<Catalog>>,
        questions: Sender<Asked>,
        unwritten_max: u64,
        wake: Box<dyn Fn(usize) + Send + Sync>,
    ) -> Arc<Self> {
        Arc::new(Desk {
            work: Mutex::default(),
            arrived: Condvar::new(),
            outlets: (0..shards).map(|_| Outlet::default()).collect(),
            catalog,
            questions: Mutex::new(Some(questions)),
            failure: Mutex::default(),
            has_failed: AtomicU64::new(0),
            is_full: AtomicU64::new(0),
            unwritten: AtomicU64::new(0),
            unwritten_max,
            catalog_bytes: AtomicU64::new(0),
            wake,
        })
    }

    /// What is recorded. Held for short times only.
    pub fn catalog(&self) -> MutexGuard<'_, Catalog> {
        lock(&self.catalog)
    }

    /// Hands over blocks of a shard.
    pub fn post(&self, shard: usize, blocks: Vec<Arc<Block>>, position: Position) {
        let bytes: usize = blocks.iter().map(|block| block.bytes()).sum();
        self.unwritten.fetch_add(bytes as u64, Ordering::Relaxed);
        let mut work = lock(&self.work);
        let was_empty = work.batches.is_empty();
        work.batches.push((shard, blocks, position));
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

    /// Takes everything, after a wait for something of so long at most.
    #[must_use]
    pub fn take(&self, patience: Duration) -> Work {
        let mut work = lock(&self.work);
        if work.batches.is_empty() && !work.has_ended && !patience.is_zero() {
            work = self.arrived.wait_timeout(work, patience).unwrap_or_else(PoisonError::into_inner).0;
        }
        let has_ended = work.has_ended;
        Work { has_ended, ..take(&mut *work) }
    }

    /// Tells a shard that everything up to a position is safe.
    pub fn set_safe(&self, shard: usize, position: Position) {
        self.outlets[shard].safe.store(position, Ordering::Release);
        (self.wake)(shard);
    }

    /// The position of a shard up to which everything is safe.
    ///
    /// # Errors
    /// The recording has failed.
    pub fn safe(&self, shard: usize) -> Result<Position, ProtocolError> {
        if self.has_failed.load(Ordering::Acquire) != 0
            && let Some(failure) = lock(&self.failure).clone()
        {
            return Err(failure);
        }
        Ok(self.outlets[shard].safe.load(Ordering::Acquire))
    }

    /// Tells all shards that the recording has failed for good.
    pub fn fail(&self, failure: ProtocolError) {
        lock(&self.failure).get_or_insert(failure);
        self.has_failed.store(1, Ordering::Release);
        self.wake_all();
    }

    fn wake_all(&self) {
        (0..self.outlets.len()).for_each(|shard| (self.wake)(shard));
    }

    /// Whether more messages can be recorded.
    #[must_use]
    pub fn room(&self) -> Room {
        if self.is_full.load(Ordering::Relaxed) != 0 {
            Room::Full
        } else if self.unwritten.load(Ordering::Relaxed) > self.unwritten_max {
            Room::Behind
        } else {
            Room::Free
        }
    }

    /// Tells whether the disk is full, and that so many bytes are written. All shards are woken when there is room again.
    pub fn set_room(&self, is_full: bool, written: u64) {
        let before = self.room();
        self.is_full.store(u64::from(is_full), Ordering::Relaxed);
        self.unwritten.fetch_sub(written, Ordering::Relaxed);
        if before != Room::Free && self.room() == Room::Free {
            self.wake_all();
        }
    }

    /// Asks a question, which is answered by [`Desk::take_read`]. Returns false if nobody answers any more.
    pub fn ask(&self, asked: Asked) -> bool {
        lock(&self.questions).as_ref().is_some_and(|questions| questions.send(asked).is_ok())
    }

    /// No more questions are answered.
    pub fn end_questions(&self) {
        lock(&self.questions).take();
    }

    /// Answers a question.
    pub fn answer(&self, shard: usize, key: SubscriptionKey, read: Read) {
        let outlet = &self.outlets[shard];
        lock(&outlet.read).push((key, read));
        outlet.has_read.store(1, Ordering::Release);
        (self.wake)(shard);
    }

    /// Takes the answers for a shard.
    #[must_use]
    pub fn take_read(&self, shard: usize) -> Vec<(SubscriptionKey, Read)> {
        let outlet = &self.outlets[shard];
        if outlet.has_read.swap(0, Ordering::AcqRel) == 0 {
            return Vec::new();
        }
        take(&mut *lock(&outlet.read))
    }
}
