//! Messages to topics on their way to more subscriptions than one turn serves, or to some whose outbox is full.
//!
//! ```text
//! begin ─► next_group, next_group, … (a cursor, over turns) ─┬─► finished: its publisher goes on
//!               └─► wait: a copy is owed ─► arrived ─────────┘
//! ```
//! A fan-out owns one copy of its message. Its recipients are fixed at the start: the groups there were then, and of
//! their members those that are no newer; whoever left meanwhile is skipped. Fan-outs proceed in the order of their
//! beginning. One is over when its cursor is at the end and no connection owes a copy of it to its outbox any more.

use std::collections::VecDeque;

use crate::collections::keyed::{Key, Keyed};
use crate::ids::ConnKey;
use crate::message::OwnedMessage;
use crate::requester::Requester;
use crate::router::group::GroupIndex;

/// Names a fan-out of one shard.
pub type FanOutKey = Key;

/// What a copy that waits occupies, about.
pub const WAITING_BYTES: usize = 40;

/// One message on its way.
#[derive(Debug)]
struct FanOut {
    /// Not here while it is being delivered.
    stored: Option<OwnedMessage>,
    groups: Vec<GroupIndex>,
    next: usize,
    /// Generation of the newest subscription that gets it.
    newest: u32,
    /// Copies that wait for room in outboxes.
    waiting: usize,
    publisher: Option<Publisher>,
    /// Its publisher may have had its RECEIPT: it is on another shard, or the message was held as stale.
    is_accepted: bool,
}

/// Who is parked until the end of a fan-out, and the answer it gets.
#[derive(Debug)]
struct Publisher {
    conn: ConnKey,
    requester: Requester,
}

/// All fan-outs of one shard that are not over.
#[derive(Debug, Default)]
pub struct FanOuts {
    table: Keyed<FanOut>,
    /// Those whose cursor is not at the end, in order.
    going: VecDeque<FanOutKey>,
    /// Copies that wait, of all of them.
    waiting: usize,
    /// Groups in their lists.
    listed: usize,
    /// Since when memory has not let any cursor move.
    stopped_since_ms: Option<u64>,
    /// Whatever is published now stays behind what is going.
    pub in_order: bool,
}

impl FanOuts {
    /// Begins one to these groups, behind all others.
    pub fn begin(&mut self, stored: OwnedMessage, groups: Vec<GroupIndex>, newest: u32) -> FanOutKey {
        self.listed += groups.capacity();
        let is_going = !groups.is_empty();
        let (stored, publisher, is_accepted) = (Some(stored), None, false);
        let fan_out = FanOut { stored, groups, next: 0, newest, waiting: 0, publisher, is_accepted };
        let key = self.table.insert(fan_out);
        if is_going {
            self.going.push_back(key);
        }
        key
    }

    /// Notes that a RECEIPT for its message may have left.
    pub fn accept(&mut self, key: FanOutKey) {
        if let Some(fan_out) = self.table.get_mut(key) {
            fan_out.is_accepted = true;
        }
    }

    /// Whether a RECEIPT for its message may have left.
    #[must_use]
    pub fn is_accepted(&self, key: FanOutKey) -> bool {
        self.table.get(key).is_some_and(|fan_out| fan_out.is_accepted)
    }

    /// The one that proceeds next.
    #[must_use]
    pub fn first(&self) -> Option<FanOutKey> {
        self.going.front().copied()
    }

    /// The one that proceeds last.
    #[must_use]
    pub fn last(&self) -> Option<FanOutKey> {
        self.going.back().copied()
    }

    /// Whether what is published now has to wait for its turn.
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

    /// Whether none is left.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.table.len() == 0
    }

    /// The message, to be given back by [`FanOuts::put_back`].
    pub fn take_message(&mut self, key: FanOutKey) -> Option<OwnedMessage> {
        self.table.get_mut(key)?.stored.take()
    }

    /// Gives the message back. If the fan-out is over meanwhile, it goes.
    pub fn put_back(&mut self, key: FanOutKey, stored: OwnedMessage) {
        if let Some(fan_out) = self.table.get_mut(key) {
            fan_out.stored = Some(stored);
        }
    }

    /// The next group, and the generation of the newest subscription in it that is meant.
    pub fn next_group(&mut self, key: FanOutKey) -> Option<(GroupIndex, u32)> {
        let fan_out = self.table.get_mut(key)?;
        let group = *fan_out.groups.get(fan_out.next)?;
        fan_out.next += 1;
        self.stopped_since_ms = None;
        Some((group, fan_out.newest))
    }

    /// Leaves out the groups that have not had it.
    pub fn skip(&mut self, key: FanOutKey) {
        if let Some(fan_out) = self.table.get_mut(key) {
            fan_out.next = fan_out.groups.len();
            self.stopped_since_ms = None;
        }
    }

    /// Memory lets none of them go on.
    pub fn stop(&mut self, now_ms: u64) {
        self.stopped_since_ms.get_or_insert(now_ms);
    }

    /// Since when memory stops what a connection waits for; `now_ms` if it does not, or has not been noticed yet. `None`:
    /// it waits for outboxes.
    #[must_use]
    pub fn stopped_since_ms(&self, key: FanOutKey, now_ms: u64) -> Option<u64> {
        self.table.get(key)?.publisher.as_ref()?;
        self.is_going(key).then(|| self.stopped_since_ms.unwrap_or(now_ms))
    }

    /// A connection waits for its end. Gives the asker back if it is over.
    pub fn attend(&mut self, key: FanOutKey, conn: ConnKey, requester: Requester) -> Option<Requester> {
        let Some(fan_out) = self.table.get_mut(key) else { return Some(requester) };
        fan_out.publisher = Some(Publisher { conn, requester });
        None
    }

    /// Nobody waits for its end any more. Returns who is to be told so, and the message.
    pub fn dismiss(&mut self, key: FanOutKey) -> Option<(Requester, &OwnedMessage)> {
        let fan_out = self.table.get_mut(key)?;
        let stored = fan_out.stored.as_ref()?;
        Some((fan_out.publisher.take()?.requester, stored))
    }

    /// One more copy waits for room.
    pub fn wait(&mut self, key: FanOutKey) {
        if let Some(fan_out) = self.table.get_mut(key) {
            fan_out.waiting += 1;
            self.waiting += 1;
        }
    }

    /// A copy that waited was encoded, or nobody wants it any more.
    pub fn arrived(&mut self, key: FanOutKey) {
        if let Some(fan_out) = self.table.get_mut(key) {
            fan_out.waiting -= 1;
            self.waiting -= 1;
        }
    }

    /// Ends a fan-out that has reached everybody; returns who waited for that.
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

    /// Bytes that cursors and waiting copies occupy, without the messages themselves.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        size_of::<GroupIndex>() * self.listed
            + WAITING_BYTES * self.waiting
            + size_of::<FanOut>() * self.table.len()
    }
}

/// Whether a subscription of this generation was there when the one of generation `newest` came.
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

    fn stored() -> OwnedMessage {
        OwnedMessage::new(&Message {
            destination: b"/t",
            id: b"i",
            sender: 0,
            headers: b"",
            plain: true,
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
    fn it_is_over_when_the_cursor_is_at_the_end_and_no_copy_waits() {
        let mut all = FanOuts::default();
        let key = all.begin(stored(), vec![4, 5], 7);
        assert!(all.attend(key, PUBLISHER, answer().requester()).is_none());
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
            all.attend(key, PUBLISHER, answer().requester())
                .is_some_and(|requester| requester.answered().awaited)
        );
    }

    #[test]
    fn they_proceed_in_the_order_of_their_beginning() {
        let mut all = FanOuts::default();
        let (first, second) = (all.begin(stored(), vec![1], 0), all.begin(stored(), vec![2], 0));
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
    fn the_message_is_lent_and_one_without_recipients_ends_at_once() {
        let mut all = FanOuts::default();
        let key = all.begin(stored(), Vec::new(), 0);
        let message = all.take_message(key).expect("it is there");
        assert!(all.take_message(key).is_none());
        all.put_back(key, message);
        assert!(all.take_message(key).is_some() && all.first().is_none());
        assert_eq!((finish(&mut all, key), all.is_empty()), (None, true));
    }

    #[test]
    fn one_that_memory_stops_may_go_on_without_its_publisher() {
        let mut all = FanOuts::default();
        let (first, second) = (all.begin(stored(), vec![4, 5], 7), all.begin(stored(), vec![4], 7));
        assert!(all.attend(first, PUBLISHER, answer().requester()).is_none());
        assert_eq!((all.stopped_since_ms(first, 10), all.stopped_since_ms(second, 10)), (Some(10), None));
        all.stop(11);
        all.stop(12);
        assert_eq!((all.stopped_since_ms(first, 13), all.stopped_since_ms(second, 13)), (Some(11), None));
        _ = all.next_group(first);
        assert_eq!(all.stopped_since_ms(first, 14), Some(14));
        let (requester, message) = all.dismiss(first).expect("it waits");
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
