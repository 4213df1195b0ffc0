//! The only way from shard to shard: batches of messages and notes, with one wake-up per batch.
//!
//! Posting never blocks and never fails. The senders bound a mailbox: a shard that sees a mailbox above its limit stops
//! accepting SENDs for that shard until the owner reports that it is under half of the limit again
//! ([`Mail::Uncongested`]). Deliveries of queues have a limit of their own, so that other mail never waits long behind
//! them ([`Mail::ReadsOn`]), and so do messages that have very many receivers on the owner's shard
//! ([`Mail::RoutesOn`]).

use std::sync::Arc;

use stompica_proto::encode::Message;

pub use super::accepted::Accepted;
use crate::config::Config;
use crate::door::sync::{AtomicI64, AtomicUsize, Mutex, MutexGuard, Ordering, PoisonError, Sender};
use crate::door::{Waker, planted, planted_in_loom};
use crate::ids::ShardId;
use crate::queue::mail::Note;
use crate::queue::replay::Newcomer;
use crate::queue::restored::Share;
use crate::report::ConnectionInfo;
use crate::report::Query;
use crate::report::merge::Report;
use crate::requester::Requester;
use crate::router::Holdup;
use crate::store::recording::desk::Desk;
use crate::text::Text;

/// Mail to a shard, from another shard or from the handle.
#[derive(Debug)]
pub enum Mail {
    /// Messages for local subscriptions; items for the receiver have its bit set.
    Batch(Arc<Batch>),
    /// A new connection.
    Accepted(Accepted),
    /// `from` has its first subscription to a name or pattern, or has no longer any. An answer to `reply` is expected.
    Interest {
        /// The sender.
        from: ShardId,
        /// The name or pattern.
        name: Arc<Text>,
        /// Whether there is a subscription.
        interested: bool,
        /// The frame whose RECEIPT waits for this.
        reply: Option<Requester>,
        /// The new subscription, if it gets stale and retained messages.
        newcomer: Option<Newcomer>,
    },
    /// Notes of this shard about queues.
    Queue(ShardId, Vec<Note>),
    /// `from` has a subscription to a name or pattern that makes publishers wait, or has no longer any.
    Full {
        /// The sender.
        from: ShardId,
        /// The name or pattern.
        name: Arc<[u8]>,
        /// The reason to wait.
        holdup: Holdup,
        /// Whether publishers have to wait.
        full: bool,
    },
    /// The mailbox of `from` is under half of its limit again.
    Uncongested(ShardId),
    /// This shard has read half of the deliveries that homes may post to it in advance.
    ReadsOn(ShardId),
    /// This shard has routed half of the large fan-outs that others may mail to it in advance.
    RoutesOn(ShardId),
    /// The maximum number of deliveries at `from` of a message to a name or pattern; 0: few.
    FanOutSize {
        /// The sender.
        from: ShardId,
        /// The name or pattern.
        name: Arc<[u8]>,
        /// The number of deliveries.
        fan_out_size: u32,
    },
    /// `from` is draining and will send no more messages.
    Drained(ShardId),
    /// A connection was closed on some shard: accept again if descriptors had run out.
    Closed,
    /// The recording, before clients may log in.
    Record(Arc<Desk>),
    /// What the store has kept for this home.
    Restore(Box<Share>),
    /// All homes have what the store has kept: clients may log in.
    Ready,
    /// Begin an ordered shutdown.
    Drain,
    /// Stop at once.
    Stop,
    /// Apply new settings.
    Reload(Arc<Config>),
    /// Report every connection.
    Connections(Sender<Vec<ConnectionInfo>>),
    /// Answer a diagnostics query for this shard.
    Diagnose(Query, Sender<Report>),
    /// Panic, for a test of the effect on the other shards.
    #[cfg(any(test, loom))]
    Panic,
    /// Report whether all work is done, and a count of all activity so far.
    Settle(Sender<(bool, u64)>),
}

/// Capacity above this is freed once the list is empty.
const KEPT_MAILS: usize = 256;

/// Frees the memory of a long list that is empty.
pub(super) fn give_back(mails: &mut Vec<Mail>) {
    if mails.is_empty() && mails.capacity() > KEPT_MAILS {
        *mails = Vec::new();
    }
}

/// The mail of one shard.
#[derive(Debug)]
pub struct Mailbox {
    mails: Mutex<Vec<Mail>>,
    waker: Waker,
    /// Frames in batches that the owner has not routed yet.
    frames: AtomicUsize,
    /// The deliveries that the owner has not read yet, in [`Note::load`].
    deliveries: AtomicUsize,
    /// The large fan-outs that the owner has not routed yet, in deliveries.
    work: AtomicUsize,
}

impl Mailbox {
    /// An empty mailbox that wakes its owner's poll.
    #[must_use]
    pub fn new(waker: Waker) -> Self {
        Mailbox {
            mails: Mutex::new(Vec::new()),
            waker,
            frames: AtomicUsize::new(0),
            deliveries: AtomicUsize::new(0),
            work: AtomicUsize::new(0),
        }
    }

    /// Empty mailboxes without a thread to wake.
    #[cfg(test)]
    #[must_use]
    pub fn detached(count: usize) -> Arc<[Mailbox]> {
        let waker = |_| {
            let poll = crate::door::Poll::new().expect("a poll");
            Waker::new(poll.registry(), crate::door::Token(0)).expect("a waker")
        };
        (0..count).map(|at| Mailbox::new(waker(at))).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Mail>> {
        // A shard never panics while it holds the lock, so the state is always consistent.
        self.mails.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds all of `mails` and empties it; wakes the owner if the mailbox was empty.
    pub fn post(&self, mails: &mut Vec<Mail>) {
        #[cfg(loom)]
        if self.post_wrongly(mails) {
            return;
        }
        let mut held = self.lock();
        let wake = held.is_empty();
        if !wake && planted!("mail-overtakes") {
            mails.append(&mut held);
        }
        held.append(mails);
        drop(held);
        self.wake_if(wake);
        give_back(mails);
    }

    fn wake_if(&self, was_empty: bool) {
        if was_empty && !planted!("wake-up-forgotten") {
            // This fails only if the poll was dropped; then no thread waits for it.
            _ = self.waker.wake();
        }
    }

    /// Wakes the owner although it has no new mail.
    pub fn wake(&self) {
        _ = self.waker.wake();
    }

    /// Errors that `rust/loom` has to find. Returns false, without an effect, if none is planted.
    #[cfg(loom)]
    fn post_wrongly(&self, mails: &mut Vec<Mail>) -> bool {
        if planted_in_loom!("wake-up-before-mail") {
            let wake = self.lock().is_empty();
            self.wake_if(wake);
            self.lock().append(mails);
        } else if planted_in_loom!("wake-up-decided-late") {
            self.lock().append(mails);
            let wake = self.lock().len() == 1;
            self.wake_if(wake);
        } else if planted_in_loom!("mail-reordered") {
            let mut held = self.lock();
            let wake = held.is_empty();
            held.splice(..0, mails.drain(..));
            drop(held);
            self.wake_if(wake);
        }
        mails.is_empty()
    }

    /// Swaps all mail into `into`, which is empty.
    pub fn take(&self, into: &mut Vec<Mail>) {
        std::mem::swap(&mut *self.lock(), into);
    }

    /// Visits all mail.
    #[cfg(any(test, simulated))]
    pub(super) fn visit(&self, visit: impl FnMut(&Mail)) {
        self.lock().iter().for_each(visit);
    }

    /// Whether it is empty.
    #[cfg(any(test, feature = "simulation"))]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    /// Counts frames of a new batch. Returns how many are unread now.
    pub fn add_frames(&self, frames: usize) -> usize {
        add(&self.frames, frames)
    }

    /// Counts deliveries that will be posted. Returns the unread load.
    pub fn add_deliveries(&self, load: usize) -> usize {
        add(&self.deliveries, load)
    }

    /// Counts deliveries that were read. Returns the unread load.
    pub fn remove_deliveries(&self, load: usize) -> usize {
        self.deliveries.fetch_sub(load, Ordering::Relaxed) - load
    }

    /// Counts the deliveries of a large fan-out. Returns how many are not routed yet.
    pub fn add_work(&self, work: usize) -> usize {
        add(&self.work, work)
    }

    /// Counts the deliveries of routed messages. Returns how many are not routed yet.
    pub fn remove_work(&self, work: usize) -> usize {
        self.work.fetch_sub(work, Ordering::Relaxed) - work
    }

    /// Counts frames that were routed. Returns how many are left.
    pub fn remove_frames(&self, frames: usize) -> usize {
        self.frames.fetch_sub(frames, Ordering::Relaxed) - frames
    }
}

/// Adds to a count; returns the new one.
#[inline]
fn add(count: &AtomicUsize, amount: usize) -> usize {
    if planted_in_loom!("count-torn") {
        let sum = count.load(Ordering::Relaxed) + amount;
        count.store(sum, Ordering::Relaxed);
        return sum;
    }
    count.fetch_add(amount, Ordering::Relaxed) + amount
}

/// A batch is not grown by doubling for a body of this size or more.
const LARGE_BODY: usize = 256 << 10;

/// Messages of one turn, for several shards; it is dropped once all of them have read it.
#[derive(Debug, Default)]
pub struct Batch {
    bytes: Vec<u8>,
    items: Vec<Item>,
    /// The broker's count of held bytes, and the number of bytes of this batch in it.
    pub(super) counted: Option<(Arc<AtomicI64>, i64)>,
}

impl Drop for Batch {
    fn drop(&mut self) {
        if let Some((memory, bytes)) = &self.counted
            && !planted!("batch-counted-forever")
        {
            memory.fetch_sub(*bytes, Ordering::Relaxed);
        }
    }
}

#[derive(Debug)]
struct Item {
    shards: u64,
    start: usize,
    destination_len: u32,
    id_len: u32,
    headers_len: u32,
    body_len: u32,
    /// The number of deliveries that were counted for it at each receiver, if its fan-out is large.
    work: u32,
    sender: u64,
    expires_ms: u64,
    plain: bool,
}

impl Batch {
    /// Counts the memory of the batch until it is dropped, and that of the copies that its receivers will make: a publisher
    /// must not fill the memory many times over while its receivers are behind.
    pub fn count_in(&mut self, memory: &Arc<AtomicI64>) {
        let bytes = i64::try_from(self.held_bytes() + self.copied_bytes()).unwrap_or(i64::MAX);
        memory.fetch_add(bytes, Ordering::Relaxed);
        self.counted = Some((Arc::clone(memory), bytes));
    }

    /// Copies a message for the shards whose bits are set; `work` was counted at each of them.
    pub fn push(&mut self, message: &Message<'_>, shards: u64, work: u32) {
        self.items.push(Item {
            shards,
            start: self.bytes.len(),
            destination_len: message.destination.len() as u32,
            id_len: message.id.len() as u32,
            headers_len: message.headers.len() as u32,
            body_len: message.body.len() as u32,
            work,
            sender: message.sender,
            expires_ms: message.expires_ms,
            plain: message.plain,
        });
        if message.body.len() > LARGE_BODY {
            self.bytes
                .reserve_exact(message.body.len() + message.headers.len() + message.destination.len() + 64);
        }
        for report in [message.destination, message.id, message.headers, message.body] {
            self.bytes.extend_from_slice(report);
        }
    }

    /// Whether it has no messages.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// All shards that receive a message of it.
    #[must_use]
    pub fn shards(&self) -> u64 {
        self.items.iter().fold(0, |shards, item| shards | item.shards)
    }

    /// The number of messages for one shard.
    #[must_use]
    pub fn count_for(&self, shard: ShardId) -> usize {
        self.items.iter().filter(|item| item.shards & shard.bit() != 0).count()
    }

    /// The first message for `shard` at or after index `from`, and the index after it.
    #[must_use]
    pub fn next_for(&self, shard: ShardId, from: usize) -> Option<(Message<'_>, usize)> {
        let offset = self.items.get(from..)?.iter().position(|item| item.shards & shard.bit() != 0)?;
        let item = &self.items[from + offset];
        let mut rest = &self.bytes[item.start..];
        let mut report = |len: u32| {
            let (report, behind) = rest.split_at(len as usize);
            rest = behind;
            report
        };
        let destination = report(item.destination_len);
        let id = report(item.id_len);
        let headers = report(item.headers_len);
        let body = report(item.body_len);
        let Item { sender, expires_ms, plain, .. } = *item;
        Some((Message { destination, id, sender, headers, plain, expires_ms, body }, from + offset + 1))
    }

    /// The work that was counted for the message before an index.
    #[must_use]
    pub fn work_before(&self, place: usize) -> usize {
        place.checked_sub(1).and_then(|at| self.items.get(at)).map_or(0, |item| item.work as usize)
    }

    /// The number of bytes that the receivers will copy, each its own messages.
    pub(super) fn copied_bytes(&self) -> usize {
        let bytes = |item: &Item| (item.headers_len + item.body_len) as usize;
        self.items.iter().map(|item| bytes(item) * item.shards.count_ones() as usize).sum()
    }

    /// The number of reserved bytes.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.bytes.capacity() + self.items.capacity() * size_of::<Item>()
    }
}

#[cfg(test)]
#[path = "mailbox_tests.rs"]
mod tests;
