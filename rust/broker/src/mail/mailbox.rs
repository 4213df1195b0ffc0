//! The only way from shard to shard: batches of messages and notes, one wake-up per batch.
//!
//! A mailbox never blocks and never fails. It is bounded by its senders: a shard that sees a mailbox over its mark
//! stops taking SENDs for that shard until the owner says that it is under half again ([`Mail::Uncongested`]). Deliveries of
//! queues have a mark of their own, so that other mail is never far behind them ([`Mail::ReadsOn`]), and so have messages
//! that very many want at the owner's ([`Mail::RoutesOn`]).

use std::net::SocketAddr;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mio::Waker;
use mio::net::TcpStream;
use stompica_proto::encode::Message;

use crate::config::Config;
use crate::ids::ShardId;
use crate::queue::mail::Note;
use crate::queue::replay::Newcomer;
use crate::report::ConnectionInfo;
use crate::report::Query;
use crate::report::types::Report;
use crate::requester::Requester;
use crate::router::Holdup;
use crate::text::Text;

/// One accepted socket on its way to the shard that will own it.
#[derive(Debug)]
pub struct Accepted {
    /// The socket, non-blocking.
    pub stream: TcpStream,
    /// Where it comes from.
    pub peer: SocketAddr,
    /// The connection's number, counted over the whole broker.
    pub id: u64,
    /// Accepted only to be told that `max_connections` is reached.
    pub refused: bool,
}

/// What one shard, or the handle, tells a shard.
#[derive(Debug)]
pub enum Mail {
    /// Messages for local subscriptions; the bit of the receiver is set in the items that concern it.
    Batch(Arc<Batch>),
    /// A new connection.
    Accepted(Accepted),
    /// `from` has its first subscription to a name or pattern, or none any more. `reply` is to come back.
    Interest {
        /// Who.
        from: ShardId,
        /// The name or pattern.
        name: Arc<Text>,
        /// Whether there is a subscription.
        interested: bool,
        /// Whose RECEIPT waits for this.
        reply: Option<Requester>,
        /// The new subscription, if it is to get stale and retained messages.
        backlog: Option<Newcomer>,
    },
    /// About queues, from this shard.
    Queue(ShardId, Vec<Note>),
    /// `from` has a subscription to a name or pattern for which messages have to wait, or has none any more.
    Full {
        /// Who.
        from: ShardId,
        /// The name or pattern.
        name: Arc<[u8]>,
        /// Why they have to.
        holdup: Holdup,
        /// Whether there is one.
        full: bool,
    },
    /// The mailbox of `from` is under half of its mark again.
    Uncongested(ShardId),
    /// This shard has read half of the deliveries that homes may post to it ahead.
    ReadsOn(ShardId),
    /// This shard has routed half of the wide messages that others may mail to it ahead.
    RoutesOn(ShardId),
    /// A message to a name or pattern is so many deliveries at `from`, at most; 0: not many.
    Width {
        /// Who.
        from: ShardId,
        /// The name or pattern.
        name: Arc<[u8]>,
        /// How many.
        width: u32,
    },
    /// `from` will send no message any more: it is draining.
    Drained(ShardId),
    /// A connection was closed somewhere: accept again if descriptors had run out.
    Closed,
    /// Begin an ordered shutdown.
    Drain,
    /// End now.
    Stop,
    /// Take over new settings.
    Reload(Arc<Config>),
    /// Report every connection.
    Connections(Sender<Vec<ConnectionInfo>>),
    /// Answer a query of diagnostics, for this shard's part.
    Diagnose(Query, Sender<Report>),
    /// Panic, to see what becomes of the others.
    #[cfg(test)]
    Panic,
    /// Report whether nothing waits here, and a count that grows with all that is done.
    Settle(Sender<(bool, u64)>),
}

/// Room for more mails than these is given back once they are gone.
const KEPT_MAILS: usize = 256;

/// Gives the memory of a long list back once it is empty.
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
    /// What the owner has to read of deliveries, in [`Note::load`].
    deliveries: AtomicUsize,
    /// What the owner has to route of wide messages, in deliveries.
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

    /// Empty mailboxes that wake nobody.
    #[cfg(test)]
    #[must_use]
    pub fn detached(count: usize) -> Arc<[Mailbox]> {
        let waker = |_| {
            let poll = mio::Poll::new().expect("a poll");
            Waker::new(poll.registry(), mio::Token(0)).expect("a waker")
        };
        (0..count).map(|at| Mailbox::new(waker(at))).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Mail>> {
        // A shard that panicked never holds the lock over a state that is half changed.
        self.mails.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds all of `mails` and empties it; wakes the owner if it had none.
    pub fn post(&self, mails: &mut Vec<Mail>) {
        let mut held = self.lock();
        let wake = held.is_empty();
        held.append(mails);
        drop(held);
        if wake {
            // Fails only when the poll is gone, and then no thread waits.
            _ = self.waker.wake();
        }
        give_back(mails);
    }

    /// Swaps all mail into `into`, which is empty.
    pub fn take(&self, into: &mut Vec<Mail>) {
        std::mem::swap(&mut *self.lock(), into);
    }

    /// Whether nothing waits.
    #[cfg(any(test, feature = "simulation"))]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    /// Counts frames that a batch brings. Returns how many wait now.
    pub fn add_frames(&self, frames: usize) -> usize {
        self.frames.fetch_add(frames, Ordering::Relaxed) + frames
    }

    /// Counts deliveries that will be posted. Returns how much waits now.
    pub fn add_deliveries(&self, load: usize) -> usize {
        self.deliveries.fetch_add(load, Ordering::Relaxed) + load
    }

    /// Counts deliveries that were read. Returns how much waits now.
    pub fn remove_deliveries(&self, load: usize) -> usize {
        self.deliveries.fetch_sub(load, Ordering::Relaxed) - load
    }

    /// Counts deliveries that a wide message stands for. Returns how many wait now.
    pub fn add_work(&self, work: usize) -> usize {
        self.work.fetch_add(work, Ordering::Relaxed) + work
    }

    /// Counts those of messages that were routed. Returns how many wait now.
    pub fn remove_work(&self, work: usize) -> usize {
        self.work.fetch_sub(work, Ordering::Relaxed) - work
    }

    /// Counts frames that were routed. Returns how many wait now.
    pub fn remove_frames(&self, frames: usize) -> usize {
        self.frames.fetch_sub(frames, Ordering::Relaxed) - frames
    }
}

/// A body of this size is not worth growing a batch by doubling.
const LARGE_BODY: usize = 256 << 10;

/// Messages of one turn, for several shards: dead after the turn in which they are read.
#[derive(Debug, Default)]
pub struct Batch {
    bytes: Vec<u8>,
    items: Vec<Item>,
    /// The broker's count of bytes held, and what this batch has added to it.
    counted: Option<(Arc<AtomicI64>, i64)>,
}

impl Drop for Batch {
    fn drop(&mut self) {
        if let Some((memory, bytes)) = &self.counted {
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
    /// Deliveries that were counted for it at each receiver, if it is wide.
    work: u32,
    sender: u64,
    plain: bool,
}

impl Batch {
    /// Counts the batch as held until it is dropped.
    pub fn count_in(&mut self, memory: &Arc<AtomicI64>) {
        let bytes = i64::try_from(self.held_bytes()).unwrap_or(i64::MAX);
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

    /// Whether nothing was pushed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// All shards that some message is for.
    #[must_use]
    pub fn shards(&self) -> u64 {
        self.items.iter().fold(0, |shards, item| shards | item.shards)
    }

    /// How many messages are for one shard.
    #[must_use]
    pub fn count_for(&self, shard: ShardId) -> usize {
        self.items.iter().filter(|item| item.shards & shard.bit() != 0).count()
    }

    /// The first message for `shard` at or behind place `from`, and the place behind it.
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
        Some((
            Message { destination, id, sender: item.sender, headers, plain: item.plain, body },
            from + offset + 1,
        ))
    }

    /// What was counted for the message in front of a place.
    #[must_use]
    pub fn work_before(&self, place: usize) -> usize {
        place.checked_sub(1).and_then(|at| self.items.get(at)).map_or(0, |item| item.work as usize)
    }

    /// Bytes reserved.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.bytes.capacity() + self.items.capacity() * size_of::<Item>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_room_of_many_mails_is_given_back() {
        let poll = mio::Poll::new().expect("a poll");
        let mailbox = Mailbox::new(Waker::new(poll.registry(), mio::Token(0)).expect("a waker"));
        let (mut sent, mut read) = (Vec::new(), Vec::new());
        for many in [10_000, KEPT_MAILS] {
            sent.extend((0..many).map(|_| Mail::Closed));
            mailbox.post(&mut sent);
            mailbox.take(&mut read);
            assert_eq!((read.len(), sent.len()), (many, 0));
            read.clear();
            give_back(&mut read);
        }
        mailbox.take(&mut read);
        assert!([&sent, &read].iter().all(|mails| mails.capacity() <= KEPT_MAILS));
        assert!(mailbox.lock().capacity() <= KEPT_MAILS);
    }

    #[test]
    fn each_shard_reads_its_own_messages_in_order() {
        let mut batch = Batch::default();
        for (number, shards) in [(1_u8, 0b01), (2, 0b11), (3, 0b10)] {
            let body = [number];
            let message = Message {
                destination: b"/t",
                id: b"0-0-1",
                sender: 7,
                headers: b"a:1\n",
                plain: true,
                body: &body,
            };
            batch.push(&message, shards, 0);
        }
        assert_eq!((batch.shards(), batch.count_for(ShardId(0)), batch.count_for(ShardId(2))), (0b11, 2, 0));
        let mut read = Vec::new();
        let mut at = 0;
        while let Some((message, next)) = batch.next_for(ShardId(1), at) {
            assert_eq!(
                (message.destination, message.id, message.headers),
                (&b"/t"[..], &b"0-0-1"[..], &b"a:1\n"[..])
            );
            read.push(message.body[0]);
            at = next;
        }
        assert_eq!(read, [2, 3]);
    }
}
