//! What happens when something is full: publishers wait, slow consumers go.
//!
//! | full | seen by | effect |
//! |---|---|---|
//! | an outbox (`outbox_limit`) | every shard, through the entry behind it | policy `slow_consumer` |
//! | memory (`memory_limit`, 80 %) | every shard, once per turn | SENDs park that would be kept, all from 95 % on |
//! | a shard's mailbox (`max_input_queue_size`) | the shard that feeds it | SENDs to it park |
//! | the same, of messages that very many want there (`wide.rs`) | the shard that feeds it | such SENDs to it park |
//!
//! A connection is parked at its next SEND, so that whatever came before is done and nothing overtakes it. A SEND
//! parked longer than `publish_timeout` is refused with `E-MEMORY`.

use stompica_proto::ProtocolError;
use stompica_proto::error::Code;

use super::Shard;
use crate::config::SlowConsumer;
use crate::connection::conn::Phase;
use crate::connection::pausing::Pause;
use crate::delivery::passing::{LARGE_BODY, Load};
use crate::ids::QueueKey;
use crate::ids::{ConnKey, ShardId};
use crate::log::Level;
use crate::mail::mailbox::Mail;
use crate::message::OwnedMessage;
use crate::queue::types::Queue;
use crate::router::Holdup;
use crate::router::group::Member;

/// Visits for which a message stands that goes into one of many queues: neither is in the processor's cache, and the list
/// may go on in memory that is fresh from the system.
const QUEUE_VISITS: usize = 1;

impl Holdup {
    /// What a SEND waits for then.
    pub(super) fn pause(self) -> Pause {
        match self {
            Holdup::Outbox => Pause::SlowConsumer,
            Holdup::Keeper => Pause::Kept,
        }
    }
}

impl Shard {
    /// Why a SEND has to wait, if it has to.
    #[inline]
    pub(crate) fn pause_for(&mut self, key: ConnKey, load: &Load<'_>) -> Option<Pause> {
        if load.shards & self.peers.busy.congested != 0 {
            Some(Pause::Mailbox)
        } else if load.width > 0 && load.shards & self.peers.busy.laden != 0 {
            Some(Pause::Wide)
        } else if load.is_full {
            Some(Pause::SlowConsumer)
        } else if self.turn.memory.is_short || load.bytes >= LARGE_BODY {
            self.pause_for_memory(key, load)
        } else {
            None
        }
    }

    /// Bytes that wait for a connection: in its outbox, and in queues of its subscriptions to topics.
    fn waiting_bytes(&self, key: ConnKey) -> usize {
        let Some(conn) = self.connections.table.get(key) else { return 0 };
        let queued = conn.subscriptions.iter().filter_map(|index| {
            let consumer = self.queues.consumers.at(*index)?;
            // A queue with a policy of its own never makes others wait.
            let queue = consumer.own_queue.filter(|_| consumer.slow_consumer.is_none())?;
            self.queues.home.queue(queue).map(Queue::waiting_bytes)
        });
        conn.outbox.bytes() + queued.sum::<usize>()
    }

    /// Puts a message to a topic into the queue of one subscription. The queue of one that acknowledges counts as a part
    /// of its connection's outbox.
    pub(super) fn deliver_to_queue(&mut self, stored: OwnedMessage, queue: QueueKey, member: Member) {
        self.turn.budget.deliveries += 1;
        self.turn.budget.visit(QUEUE_VISITS);
        if member.conn == ConnKey::NONE.index {
            self.queues.home.enqueue(queue, stored); // a durable subscription
            self.count_visits();
            if self.turn.memory.is_short {
                self.note_keeper(member.subscription.index, queue);
            }
            return;
        }
        let waiting = self.queues.home.queue(queue).map_or(0, Queue::waiting_bytes);
        let limit = self.turn.config.outbox_limit;
        let own = self.queues.consumers.get(member.subscription).and_then(|consumer| consumer.slow_consumer);
        let policy = own.unwrap_or(self.turn.config.slow_consumer);
        let conn = self.connections.table.member_mut(member.conn);
        let key = ConnKey { index: member.conn, generation: conn.generation };
        if conn.leaving.is_some() {
            return;
        }
        if waiting >= limit {
            match policy {
                SlowConsumer::Block(_) => {}
                SlowConsumer::Disconnect => return self.connections.too_slow.push(key),
                policy => {
                    conn.dropped = conn.dropped.saturating_add(1);
                    self.turn.counters.dropped += 1;
                    if policy == SlowConsumer::DropNewest {
                        return;
                    }
                    self.queues.home.drop_first(queue);
                }
            }
        }
        self.queues.home.enqueue(queue, stored);
        self.dispatch_at_once(queue);
        self.count_visits();
        let conn = self.connections.table.member_mut(member.conn);
        if own.is_none() && conn.full_since_ms.is_none() && waiting + conn.outbox.bytes() >= limit {
            self.connections.newly_full.push(key);
        }
        if self.turn.memory.is_short {
            self.note_keeper(member.subscription.index, queue);
        }
    }

    /// Acts on the outboxes that this turn filled, and that flushing did not relieve; on some in the next turn, where
    /// many subscriptions are behind them.
    pub(super) fn act_on_outboxes(&mut self) {
        self.connections.newly_full.sort_unstable();
        self.connections.newly_full.dedup(); // it is there once for each message that came too much
        while self.turn.budget.may_change()
            && let Some(key) = self.connections.newly_full.pop()
        {
            self.mark_full(key);
        }
        let before = self.turn.budget.visited();
        while self.turn.budget.may_end_more(before)
            && let Some(key) = self.connections.too_slow.pop()
        {
            self.cut_off(key);
        }
    }

    /// From now on publishers to this connection's subscriptions pause.
    pub(super) fn mark_full(&mut self, key: ConnKey) {
        let now_ms = self.turn.now_ms;
        let blocks = matches!(self.turn.config.slow_consumer, SlowConsumer::Block(_));
        let Some(conn) = self.connections.table.get(key) else { return };
        if !blocks || conn.full_since_ms.is_some() || conn.phase != Phase::Open {
            return;
        }
        self.turn.budget.change(conn.subscriptions.len());
        let waiting = self.waiting_bytes(key);
        let Some(conn) = self.connections.table.get_mut(key) else { return };
        let owed = conn.is_owed();
        // An outbox that the socket has taken whole is not written again, so nothing would tell that it is not full.
        let short = self.turn.memory.is_short && !conn.outbox.is_empty();
        let full = waiting >= self.turn.config.outbox_limit || owed || short;
        if !full {
            return;
        }
        conn.full_since_ms = Some(now_ms);
        conn.stuck_since_ms = now_ms;
        conn.look_at_socket(now_ms);
        let bytes = waiting;
        self.turn.counters.full_outboxes += 1;
        self.change_full(key, true);
        self.rearm(key);
        // Not louder: a consumer at the limit of its speed comes here again and again.
        self.log_conn(Level::Debug, key, || format!("outbox full: {bytes} bytes wait, its publishers pause"));
    }

    /// Publishers may go on once a full outbox is under half.
    pub(super) fn note_progress(&mut self, key: ConnKey) {
        let limit = self.turn.config.outbox_limit;
        let Some(conn) = self.connections.table.get(key) else { return };
        if conn.full_since_ms.is_none() || conn.is_owed() || conn.outbox.bytes() >= limit / 2 {
            return;
        }
        if !self.turn.budget.may_change() {
            return self.queue_for_flushing(key); // again in the next turn
        }
        self.turn.budget.change(conn.subscriptions.len());
        if self.waiting_bytes(key) < limit / 2 {
            if let Some(conn) = self.connections.table.get_mut(key) {
                conn.full_since_ms = None;
            }
            self.change_full(key, false);
        }
    }

    /// A reload may have brought a policy by which no publisher waits: whoever is full gets what that policy has for it.
    pub(super) fn stop_blocking(&mut self) {
        let policy = self.turn.config.slow_consumer;
        if matches!(policy, SlowConsumer::Block(_)) {
            return;
        }
        for key in self.connections.table.keys() {
            let Some(conn) = self.connections.table.get_mut(key) else { continue };
            let owed = conn.is_owed();
            if conn.full_since_ms.take().is_some() {
                self.change_full(key, false);
            }
            match policy {
                _ if !owed => {}
                SlowConsumer::Disconnect => self.connections.too_slow.push(key),
                _ => self.drop_owed(key),
            }
        }
    }

    /// Tells every entry behind a connection, here and on other shards, that it is full or no longer so.
    fn change_full(&mut self, key: ConnKey, full: bool) {
        let Some(conn) = self.connections.table.get(key) else { return };
        let subscriptions: Vec<u32> = conn.subscriptions.iter().copied().collect();
        for index in subscriptions {
            self.change_full_of(index, Holdup::Outbox, full);
        }
    }

    /// The same for one subscription.
    pub(crate) fn change_full_of(&mut self, subscription: u32, holdup: Holdup, full: bool) {
        let Some(index) = self.router.subscriptions[subscription as usize].filter_index() else { return };
        let filter = &mut self.router.filters[index as usize];
        let count = match holdup {
            Holdup::Outbox => &mut filter.full_local,
            Holdup::Keeper => &mut filter.keepers_local,
        };
        *count = if full { *count + 1 } else { *count - 1 };
        let count = *count;
        if count == 0 {
            self.retry_parked(&[holdup.pause()]);
        }
        if count == u32::from(full) {
            let name = self.router.filter_name(index).into();
            self.tell_all(|from| Mail::Full { from, name: std::sync::Arc::clone(&name), holdup, full });
        }
    }

    /// Ends a connection whose consumer is too slow: what was not sent at all gives way to the ERROR.
    pub(super) fn cut_off(&mut self, key: ConnKey) {
        let Some(conn) = self.connections.table.get_mut(key) else { return };
        if conn.phase != Phase::Open || conn.leaving.is_some() {
            return;
        }
        let bytes = conn.outbox.bytes();
        self.forget_subscriptions(key);
        let Some(conn) = self.connections.table.get_mut(key) else { return };
        let frames = conn.outbox.cut_unsent(&mut self.connections.chunks);
        let cut = conn.outbox.take_cut();
        if let Some(mut pending_writes) = conn.pending_writes.take() {
            self.give_back_unwritten(&mut pending_writes, Some(cut));
            if let Some(conn) = self.connections.table.get_mut(key) {
                conn.pending_writes = Some(pending_writes);
            }
        }
        self.turn.counters.slow_consumers += 1;
        self.log_conn(Level::Warn, key, || {
            format!("slow consumer cut off: {bytes} bytes waited, {frames} frames are lost to it")
        });
        let text = format!("{bytes} bytes waited for this connection; {frames} frames were not sent");
        self.fail(key, ProtocolError::new(Code::SlowConsumer, text), None);
    }

    /// The mark of one mailbox, in frames.
    pub(super) fn mailbox_mark(&self) -> usize {
        (self.turn.config.max_input_queue_size / self.shared.mailboxes.len()).max(1)
    }

    /// Another shard has room again.
    pub(super) fn has_room(&mut self, shard: ShardId) {
        self.peers.busy.congested &= !shard.bit();
        self.retry_parked(&[Pause::Mailbox]);
    }
}
