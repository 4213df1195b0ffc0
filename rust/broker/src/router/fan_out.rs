//! Fan-outs of messages to topics that take several turns: to very many subscriptions, or to some with a full outbox.
//!
//! ```text
//! begin ─► next_group, next_group, … (a cursor, over turns) ─┬─► finished: its publisher continues
//!               └─► wait: a copy is deferred ─► arrived ─────┘
//! ```
//! A fan-out owns one copy of its message. Its recipients are fixed at its beginning: the groups at that time, and
//! those of their members that are no newer; members that have left are skipped. Fan-outs proceed in the order of their
//! beginning. A fan-out is over when its cursor is at the end and all deferred copies are in outboxes.

use std::collections::VecDeque;

#[cfg(any(test, simulated))]
use crate::audit::Audit;
use crate::collections::keyed::{Key, Keyed};
#[cfg(any(test, simulated))]
use crate::door::HashMap;
use crate::ids::ConnKey;
use crate::message::OwnedMessage;
use crate::requester::Requester;
use crate::router::group::GroupIndex;

/// Identifies a fan-out of one shard.
pub type FanOutKey = Key;

/// The approximate memory of a deferred copy.
pub const WAITING_BYTES: usize = 40;

/// A fan-out: a message on its way to many receivers.
#[derive(Debug)]
struct FanOut {
    /// `None` while it is being delivered.
    message: Option<OwnedMessage>,
    groups: Vec<GroupIndex>,
    next: usize,
    /// The generation of the newest subscription that receives it.
    newest: u32,
    /// The number of deferred copies.
    waiting: usize,
    publisher: Option<Publisher>,
    /// Its publisher may have got the RECEIPT: the publisher is on another shard, or the message was stale.
    is_accepted: bool,
}

/// The connection that is parked until the end of a fan-out, and its requester.
#[derive(Debug)]
struct Publisher {
    conn: ConnKey,
    requester: Requester,
}

/// All fan-outs of one shard that are not over.
#[derive(Debug, Default)]
pub struct FanOuts {
    table: Keyed<FanOut>,
    /// Fan-outs whose cursor is not at the end, in order.
    going: VecDeque<FanOutKey>,
    /// The number of deferred copies of all fan-outs.
    waiting: usize,
    /// The number of groups in their lists.
    listed: usize,
    /// The time since which a lack of memory has stopped all cursors.
    stopped_since_ms: Option<u64>,
    /// Whether a message that is published now has to follow all current fan-outs.
    pub in_order: bool,
}

impl FanOuts {
    /// Begins a fan-out to these groups, after all others.
    pub fn begin(&mut self, message: OwnedMessage, groups: Vec<GroupIndex>, newest: u32) -> FanOutKey {
        self.listed += groups.capacity();
        let is_going = !groups.is_empty();
        let (message, publisher, is_accepted) = (Some(message), None, false);
        let fan_out = FanOut { message, groups, next: 0, newest, waiting: 0, publisher, is_accepted };
        let key = self.table.insert(fan_out);
        if is_going {
            self.going.push_back(key);
        }
        key
    }

    /// Records that the RECEIPT of its message may have been sent.
    pub fn accept(&mut self, key: FanOutKey) {
        if let Some(fan_out) = self.table.get_mut(key) {
            fan_out.is_accepted = true;
        }
    }

    /// Whether the RECEIPT of its message may have been sent.
    #[must_use]
    pub fn is_accepted(&self, key: FanOutKey) -> bool {
        self.table.get(key).is_some_and(|fan_out| fan_out.is_accepted)
    }

    /// The fan-out that proceeds first.
    #[must_use]
    pub fn first(&self) -> Option<FanOutKey> {
        self.going.front().copied()
    }

    /// The fan-out that proceeds last.
    #[must_use]
    pub fn last(&self) -> Option<FanOutKey> {
        self.going.back().copied()
    }

    /// Whether a message that is published now has to wait for other fan-outs.
    #[must_use]
    pub fn must_queue(&self) -> bool {
        self.in_order && !self.going.is_empty()
    }

    /// Whether its cursor is not at the end.
    #[must_use]
    pub fn is_going(&self, key: FanOutKey) -> bool {
        self.table.get(key).is_some_and(|fan_out| fan_out.next < fan_out.groups.len())
    }

    /// Whether it is not over.
    #[must_use]
    pub fn is_live(&self, key: FanOutKey) -> bool {
        self.table.get(key).is_some()
    }

    /// Whether there are no fan-outs.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.table.len() == 0
    }

    /// Takes the message; [`FanOuts::put_back`] returns it.
    pub fn take_message(&mut self, key: FanOutKey) -> Option<OwnedMessage> {
        self.table.get_mut(key)?.message.take()
    }

    /// Returns the message. If the fan-out has ended meanwhile, it is removed.
    pub fn put_back(&mut self, key: FanOutKey, message: OwnedMessage) {
        if let Some(fan_out) = self.table.get_mut(key) {
            fan_out.message = Some(message);
        }
    }

    /// The next group, and the generation of the newest subscription in it that receives the message.
    pub fn next_group(&mut self, key: FanOutKey) -> Option<(GroupIndex, u32)> {
        let fan_out = self.table.get_mut(key)?;
        let group = *fan_out.groups.get(fan_out.next)?;
        fan_out.next += 1;
        self.stopped_since_ms = None;
        Some((group, fan_out.newest))
    }

    /// Skips all groups that have not got the message.
    pub fn skip(&mut self, key: FanOutKey) {
        if let Some(fan_out) = self.table.get_mut(key) {
            fan_out.next = fan_out.groups.len();
            self.stopped_since_ms = None;
        }
    }

    /// Records that a lack of memory stops all fan-outs.
    pub fn stop(&mut self, now_ms: u64) {
        self.stopped_since_ms.get_or_insert(now_ms);
    }

    /// The time since which a lack of memory stops the fan-out that a connection waits for; `now_ms` if it does not, or
    /// this is not recorded yet. `None`: it waits for outboxes.
    #[must_use]
    pub fn stopped_since_ms(&self, key: FanOutKey, now_ms: u64) -> Option<u64> {
        self.table.get(key)?.publisher.as_ref()?;
        self.is_going(key).then(|| self.stopped_since_ms.unwrap_or(now_ms))
    }

    /// Makes a connection wait for the end of a fan-out. Returns the requester if the fan-out is over.
    pub fn await_end(&mut self, key: FanOutKey, conn: ConnKey, requester: Requester) -> Option<Requester> {
        let Some(fan_out) = self.table.get_mut(key) else { return Some(requester) };
        fan_out.publisher = Some(Publisher { conn, requester });
        None
    }

    /// Ends the wait for a fan-out. Returns the requester to answer, and the message.
    pub fn dismiss(&mut self, key: FanOutKey) -> Option<(Requester, &OwnedMessage)> {
        let fan_out = self.table.get_mut(key)?;
        let message = fan_out.message.as_ref()?;
        Some((fan_out.publisher.take()?.requester, message))
    }

    /// Counts a deferred copy.
    pub fn wait(&mut self, key: FanOutKey) {
        if let Some(fan_out) = self.table.get_mut(key) {
            fan_out.waiting += 1;
            self.waiting += 1;
        }
    }

    /// Counts a deferred copy that was encoded or is obsolete.
    pub fn arrived(&mut self, key: FanOutKey) {
        if let Some(fan_out) = self.table.get_mut(key) {
            fan_out.waiting -= 1;
            self.waiting -= 1;
        }
    }

    /// Ends a fan-out that has reached all receivers; returns the connection that waits for it.
    pub fn finish(&mut self, key: FanOutKey) -> Option<(ConnKey, Requester)> {
        if self.first() == Some(key) && !self.is_going(key) {
            self.going.pop_front();
        }
        let over = |fan_out: &FanOut| fan_out.next == fan_out.groups.len() && fan_out.waiting == 0;
        if !self.table.get(key).is_some_and(over) {
            return None;
        }
        let ended = self.table.remove(key)?;
        self.listed -= ended.groups.capacity();
        ended.publisher.map(|publisher| (publisher.conn, publisher.requester))
    }

    /// Visits all fan-outs. `copies` are the deferred copies that were found.
    #[cfg(any(test, simulated))]
    pub fn audit(&self, audit: &mut Audit, copies: &HashMap<FanOutKey, usize>) {
        let (mut waiting, mut listed, mut going) = (0, 0, 0);
        for (key, fan_out) in self.table.iter() {
            fan_out.message.iter().for_each(|message| message.audit(audit));
            fan_out.publisher.iter().for_each(|publisher| audit.answer(publisher.requester.to()));
            let found = copies.get(&key).copied().unwrap_or(0);
            audit.equal("deferred copies of a fan-out", fan_out.waiting, found);
            let is_going = fan_out.next < fan_out.groups.len();
            audit.require(is_going || fan_out.waiting > 0, || format!("a fan-out never ends: {fan_out:?}"));
            let is_listed = self.going.contains(&key);
            audit.require(is_going == is_listed, || {
                format!("a fan-out goes on: {is_going}, and is on the list: {is_listed}")
            });
            waiting += fan_out.waiting;
            listed += fan_out.groups.capacity();
            going += usize::from(is_going);
        }
        audit.equal("deferred copies", self.waiting, waiting);
        audit.equal("groups of fan-outs", self.listed, listed);
        audit.equal("fan-outs on the list", self.going.len(), going);
    }

    /// The memory of cursors and deferred copies in bytes, without the messages.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        size_of::<GroupIndex>() * self.listed
            + WAITING_BYTES * self.waiting
            + size_of::<FanOut>() * self.table.len()
    }
}

/// Whether a subscription of this generation existed when the one of generation `newest` began.
#[must_use]
pub fn is_meant(generation: u32, newest: u32) -> bool {
    newest.wrapping_sub(generation) < 1 << 31
}

#[cfg(test)]
mod tests {
    use stompica_proto::encode::Message;

    use super::*;
    use crate::ids::ShardId;
    use crate::requester::AnswerTo;

    fn message() -> OwnedMessage {
        OwnedMessage::new(&Message {
            destination: b"/t",
            id: b"i",
            sender: 0,
            headers: b"",
            plain: true,
            expires_ms: 0,
            body: b"x",
        })
    }

    const PUBLISHER: ConnKey = ConnKey { index: 1, generation: 2 };

    fn answer() -> AnswerTo {
        AnswerTo { shard: ShardId(0), conn: PUBLISHER, token: 3, awaited: true }
    }

    fn finish(all: &mut FanOuts, key: FanOutKey) -> Option<(ConnKey, AnswerTo)> {
        all.finish(key).map(|(conn, requester)| (conn, requester.answered()))
    }

    #[test]
    fn a_fan_out_is_over_when_its_cursor_is_at_the_end_and_no_copy_is_deferred() {
        let mut all = FanOuts::default();
        let key = all.begin(message(), vec![4, 5], 7);
        assert!(all.await_end(key, PUBLISHER, answer().requester()).is_none());
        assert_eq!(
            (all.first(), all.next_group(key), finish(&mut all, key)),
            (Some(key), Some((4, 7)), None)
        );
        all.wait(key);
        assert_eq!(
            (all.next_group(key), all.next_group(key), finish(&mut all, key)),
            (Some((5, 7)), None, None)
        );
        assert_eq!((all.first(), all.is_going(key), all.is_live(key)), (None, false, true));
        assert!(all.held_bytes() >= WAITING_BYTES);
        all.arrived(key);
        assert_eq!(finish(&mut all, key), Some((PUBLISHER, answer())));
        assert_eq!((finish(&mut all, key), all.is_empty(), all.held_bytes()), (None, true, 0));
        assert!(
            all.await_end(key, PUBLISHER, answer().requester())
                .is_some_and(|requester| requester.answered().awaited)
        );
    }

    #[test]
    fn fan_outs_proceed_in_the_order_of_their_beginning() {
        let mut all = FanOuts::default();
        let (first, second) = (all.begin(message(), vec![1], 0), all.begin(message(), vec![2], 0));
        all.in_order = true;
        assert!(all.must_queue() && all.first() == Some(first));
        _ = all.next_group(first);
        all.finish(first);
        assert_eq!((all.first(), all.is_live(first)), (Some(second), false));
        _ = all.next_group(second);
        all.finish(second);
        assert!(!all.must_queue() && all.is_empty());
    }

    #[test]
    fn a_fan_out_without_recipients_ends_when_its_message_is_put_back() {
        let mut all = FanOuts::default();
        let key = all.begin(message(), Vec::new(), 0);
        let message = all.take_message(key).expect("a message");
        assert!(all.take_message(key).is_none());
        all.put_back(key, message);
        assert!(all.take_message(key).is_some() && all.first().is_none());
        assert_eq!((finish(&mut all, key), all.is_empty()), (None, true));
    }

    #[test]
    fn a_stopped_fan_out_may_continue_without_its_publisher() {
        let mut all = FanOuts::default();
        let (first, second) = (all.begin(message(), vec![4, 5], 7), all.begin(message(), vec![4], 7));
        assert!(all.await_end(first, PUBLISHER, answer().requester()).is_none());
        assert_eq!((all.stopped_since_ms(first, 10), all.stopped_since_ms(second, 10)), (Some(10), None));
        all.stop(11);
        all.stop(12);
        assert_eq!((all.stopped_since_ms(first, 13), all.stopped_since_ms(second, 13)), (Some(11), None));
        _ = all.next_group(first);
        assert_eq!(all.stopped_since_ms(first, 14), Some(14));
        let (requester, message) = all.dismiss(first).expect("a publisher");
        assert_eq!((requester.answered(), message.destination()), (answer(), &b"/t"[..]));
        assert!(all.dismiss(first).is_none() && all.stopped_since_ms(first, 15).is_none());
        _ = all.next_group(first);
        assert_eq!((finish(&mut all, first), all.is_live(first)), (None, false));
        _ = all.next_group(second);
        assert_eq!((finish(&mut all, second), all.is_empty()), (None, true));
    }

    #[test]
    fn generations_may_wrap() {
        assert!(is_meant(5, 5) && is_meant(4, 5) && !is_meant(6, 5));
        assert!(is_meant(u32::MAX, 3) && !is_meant(3, u32::MAX));
    }
}
