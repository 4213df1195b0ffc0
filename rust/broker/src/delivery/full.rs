//! Full outboxes, memory and mailboxes: publishers wait, and slow consumers are cut off.
//!
//! | full | seen by | effect |
//! |---|---|---|
//! | an outbox (`outbox_limit`) | every shard, through its filter | policy `slow_consumer` |
//! | memory (`memory_limit`, 80 %) | every shard, once per turn | SENDs park if their messages would be kept; all
//! SENDs from 95 % on |
//! | a shard's mailbox (`max_input_queue_size`) | the shard that feeds it | SENDs to it park |
//! | a shard's work of large fan-outs (`mail/peers.rs`) | the shard that feeds it | SENDs with a large fan-out to it park |
//!
//! A connection is parked at its next SEND, so that all frames before it are handled and none overtakes it. A SEND
//! that is parked longer than `publish_timeout` is refused with `E-MEMORY`.

use std::sync::Arc;

use super::Owners;
use super::memory::LARGE_OUTBOX;
use crate::config::SlowConsumer;
use crate::connection::conn::Phase;
use crate::connection::full::Full;
use crate::door::planted;
use crate::ids::{ConnKey, QueueKey};
use crate::log::Level;
use crate::mail::mailbox::Mail;
use crate::message::OwnedMessage;
use crate::queue::types::Queue;
use crate::router::Holdup;
use crate::router::group::{Member, SubscriptionIndex};

/// The visits that a message to one of many queues counts as: neither is in the processor's cache, and the queue may
/// need memory that is new from the system.
const QUEUE_VISITS: usize = 1;

impl Owners<'_> {
    /// Puts a message to a topic into the queue of one subscription. The queue of a subscription with
    /// acknowledgements counts as part of its connection's outbox.
    pub fn deliver_to_queue(&mut self, mut message: OwnedMessage, queue: QueueKey, member: Member) {
        self.turn.budget.deliveries += 1;
        self.turn.budget.visit(QUEUE_VISITS);
        if member.conn == ConnKey::NONE.index {
            self.queues.home.enqueue(queue, message); // a durable subscription
            self.queue().count_visits();
            if self.turn.memory.is_short {
                self.note_growing_queue(member.subscription.index, queue);
            }
            return;
        }
        let waiting = self.queues.home.queue(queue).map_or(0, Queue::waiting_bytes);
        let consumer = self.queues.consumers.get(member.subscription);
        if consumer.is_some_and(|consumer| consumer.ends) {
            return; // the frame that ends it waits only for what was there
        }
        let own = consumer.and_then(|consumer| consumer.slow_consumer);
        let policy = own.unwrap_or(self.turn.config.slow_consumer);
        let blocks = matches!(policy, SlowConsumer::Block(_));
        let limit = match self.turn.memory.is_short && !blocks {
            true => self.turn.config.outbox_limit.min(LARGE_OUTBOX),
            false => self.turn.config.outbox_limit,
        };
        let conn = self.connections.table.member_mut(member.conn);
        let key = ConnKey { index: member.conn, generation: conn.life.generation };
        if conn.life.leaving.is_some() {
            return;
        }
        if waiting >= limit {
            match policy {
                SlowConsumer::Block(_) => {}
                SlowConsumer::Disconnect => return self.connections.too_slow.push(key),
                SlowConsumer::DropNewest => return self.count_dropped(key, 1),
                SlowConsumer::DropOldest => self.drop_oldest(queue, key, limit),
            }
        }
        message.owe();
        self.queues.home.enqueue(queue, message);
        // A message to many subscriptions would dispatch what waits in all of their queues.
        if !self.turn.budget.is_exhausted() {
            self.dispatch_at_once(queue);
        }
        self.queue().count_visits();
        let conn = self.connections.table.member_mut(member.conn);
        if own.is_none() && !conn.output.is_full() && waiting + conn.output.outbox.bytes() >= limit {
            self.connections.newly_full.push(key);
        }
        if self.turn.memory.is_short && blocks {
            self.note_growing_queue(member.subscription.index, queue);
        }
    }

    /// Drops the oldest messages of the private queue of a connection's subscription until it is under this limit.
    pub(super) fn drop_oldest(&mut self, queue: QueueKey, key: ConnKey, limit: usize) {
        let mut dropped = 0;
        while self.queues.home.queue(queue).is_some_and(|queue| queue.waiting_bytes() >= limit)
            && self.queues.home.drop_live(queue)
        {
            dropped += 1;
        }
        self.turn.budget.visit(dropped as usize / 4);
        self.count_dropped(key, dropped);
    }

    fn count_dropped(&mut self, key: ConnKey, dropped: u32) {
        if let Some(conn) = self.connections.table.get_mut(key) {
            conn.output.dropped = conn.output.dropped.saturating_add(dropped);
        }
        self.turn.counters.dropped += u64::from(dropped);
    }

    /// Pauses the publishers to this connection's subscriptions, if its outbox is full.
    pub fn mark_full(&mut self, key: ConnKey) {
        let now_ms = self.turn.now_ms;
        let blocks = matches!(self.turn.config.slow_consumer, SlowConsumer::Block(_));
        let Some(conn) = self.connections.table.get(key) else { return };
        let may_be_full = match conn.life.phase {
            Phase::Open => blocks,
            phase => phase == Phase::Closing, // nobody waits for its outbox, but for the memory that it takes
        };
        if !may_be_full {
            return;
        }
        if conn.output.is_full() {
            return self.excuse_waits(key);
        }
        self.turn.budget.change(conn.subscriptions.len());
        let waiting = self.waiting_bytes(key);
        let owed = self.owed(key);
        let short = self.turn.memory.is_short && owed.all() > 0;
        let Some(conn) = self.connections.table.get_mut(key) else { return };
        // An outbox that is completely written is not flushed again, so its state would not be updated.
        let limit = self.turn.config.outbox_limit;
        let is_over = waiting >= limit || conn.has_deferred();
        if !(short || (is_over && conn.life.is_open())) {
            return;
        }
        let mut full = Full::new(now_ms, owed, conn.output.outbox.taken());
        full.note_wait(conn.wait.delays_acks(), now_ms);
        conn.output.full = Some(Box::new(full));
        conn.output.stuck_since_ms = now_ms;
        conn.output.has_taken_all = conn.output.outbox.is_empty();
        conn.check_socket(now_ms);
        let bytes = waiting;
        self.turn.counters.full_outboxes += 1;
        self.change_full(key, true);
        self.excuse_waits(key);
        if !planted!("slow-consumer-not-timed") {
            self.connections.rearm(self.turn, key);
        }
        // At debug level, since this is frequent for a consumer at the limit of its speed.
        let text = || format!("outbox full: {bytes} bytes wait, its publishers pause");
        self.connections.log(self.turn, Level::Debug, key, text);
    }

    /// While memory is short, the waits of its own frames do not count for a connection that is full, unless its outbox is:
    /// whatever its frames wait for, it can read.
    fn excuse_waits(&mut self, key: ConnKey) {
        let limit = self.turn.config.outbox_limit;
        if let Some(conn) = self.connections.table.get_mut(key)
            && self.turn.memory.is_short
            && conn.output.outbox.bytes() < limit
            && !conn.has_deferred()
            && let Some(full) = &mut conn.output.full
        {
            full.excuse_waits();
        }
    }

    /// Resumes publishers once a full outbox is under half, and while memory is short, its client has made progress. A frame
    /// or a heart-beat between is none.
    pub fn note_progress(&mut self, key: ConnKey) {
        let limit = self.turn.config.outbox_limit;
        self.note_output(key);
        let Some(conn) = self.connections.table.get(key) else { return };
        let is_open = conn.life.is_open();
        if !conn.output.is_full()
            || conn.has_deferred()
            || (is_open && conn.output.outbox.bytes() >= limit / 2)
        {
            return;
        }
        if !self.turn.budget.may_change() {
            return self.connections.queue_for_flushing(key); // again in the next turn
        }
        self.turn.budget.change(conn.subscriptions.len());
        if self.is_relieved(key) {
            if let Some(conn) = self.connections.table.get_mut(key) {
                conn.output.full = None;
            }
            self.change_full(key, false);
        }
    }

    /// Looks at a connection that is full once more, since its client has acknowledged or refused something: no write may
    /// follow. So many bytes of it were owed to the client.
    #[cold]
    pub(crate) fn note_ack(&mut self, key: ConnKey, bytes: usize) {
        if let Some(full) = self.connections.table.get_mut(key).and_then(|conn| conn.output.full.as_mut()) {
            full.note_acknowledged(bytes);
            self.connections.queue_for_flushing(key);
        }
    }

    /// Whether the connection that is full has something to take now.
    fn note_output(&mut self, key: ConnKey) {
        let Some(conn) = self.connections.table.get_mut(key) else { return };
        let has_taken_all = conn.output.outbox.is_empty();
        if conn.output.has_taken_all && !has_taken_all {
            conn.output.stuck_since_ms = self.turn.now_ms;
        }
        if conn.output.has_taken_all != has_taken_all {
            conn.output.has_taken_all = has_taken_all;
            self.connections.rearm(self.turn, key);
        }
    }

    /// Whether a connection that is full has taken, acknowledged or lost so much that it is so no longer: what waited in a
    /// queue may have expired.
    pub fn is_relieved(&self, key: ConnKey) -> bool {
        let Some(conn) = self.connections.table.get(key).filter(|conn| !conn.has_deferred()) else {
            return false;
        };
        let has_progressed = |full: &Full| {
            full.has_progressed(self.owed(key), conn.output.outbox.taken(), self.relevant_bytes())
        };
        // Nobody waits for the outbox of one that is closing, only for its memory.
        (!conn.life.is_open() || self.waiting_bytes(key) < self.turn.config.outbox_limit / 2)
            && (!self.turn.memory.is_short || conn.output.full.as_deref().is_none_or(has_progressed))
    }

    /// Applies a reloaded policy by which no publisher waits to the outboxes that are full.
    pub fn stop_blocking(&mut self) {
        let policy = self.turn.config.slow_consumer;
        if matches!(policy, SlowConsumer::Block(_)) {
            return;
        }
        for key in self.connections.table.keys() {
            let Some(conn) = self.connections.table.get_mut(key) else { continue };
            let has_deferred = conn.has_deferred();
            if conn.output.full.take().is_some() {
                self.change_full(key, false);
            }
            match policy {
                _ if !has_deferred => {}
                SlowConsumer::Disconnect => self.connections.too_slow.push(key),
                _ => self.drop_deferred_topics(key),
            }
        }
    }

    /// Reports every filter of a connection, here and on other shards, as full or no longer full.
    fn change_full(&mut self, key: ConnKey, full: bool) {
        let Some(conn) = self.connections.table.get(key) else { return };
        let subscriptions: Vec<u32> = conn.subscriptions.iter().copied().collect();
        for index in subscriptions {
            self.change_full_of(index, Holdup::Outbox, full);
        }
    }

    /// Does the same for one subscription.
    pub fn change_full_of(&mut self, subscription: SubscriptionIndex, holdup: Holdup, full: bool) {
        let consumer = self.queues.consumers.at(subscription);
        if holdup == Holdup::Outbox && consumer.is_some_and(|consumer| consumer.slow_consumer.is_some()) {
            return; // its own queue takes its messages, whatever its connection's outbox holds
        }
        let Some(index) = self.router.subscriptions[subscription as usize].filter_index() else { return };
        let filter = &mut self.router.filters[index as usize];
        let count = match holdup {
            Holdup::Outbox => &mut filter.full_local,
            Holdup::GrowingQueue => &mut filter.growing_local,
        };
        *count = if full { *count + 1 } else { *count - 1 };
        let count = *count;
        if count == 0 {
            self.connections.parking.retry(holdup.into());
        }
        if count == u32::from(full) && !(count == 0 && planted!("room-untold")) {
            let name = self.router.filter_name(index).into();
            let tell = |from| Mail::Full { from, name: Arc::clone(&name), holdup, full };
            self.peers.tell_all(tell);
        }
    }

    /// Removes frames that were not sent at all from an outbox, and requeues the messages of queues among them.
    /// Returns the number of removed frames.
    pub fn cut_unsent(&mut self, key: ConnKey) -> usize {
        let Some(conn) = self.connections.table.get_mut(key) else { return 0 };
        let frames = conn.output.outbox.cut_unsent(&mut self.connections.chunks);
        let cut = conn.output.outbox.take_cut();
        if let Some(mut pending_writes) = conn.pending_writes.take() {
            self.give_back_unwritten(&mut pending_writes, Some(cut));
            if let Some(conn) = self.connections.table.get_mut(key) {
                conn.pending_writes = Some(pending_writes);
            }
        }
        frames
    }
}
