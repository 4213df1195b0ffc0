//! Subscriptions to diagnostics that get periodic answers.

use smallvec::SmallVec;
use stompica_proto::encode::Message;

use super::Owners;
use crate::collections::spread::give_back;
use crate::door::planted;
use crate::ids::NOBODY;
use crate::ids::SubscriptionKey;
use crate::message::OwnedMessage;
use crate::report::Query;
use crate::report::answer::Answer;
use crate::router::group::{Place, SubscriptionIndex};
use crate::text::Text;
use crate::timer::Due;

/// The longest delay between two checks whether the RECEIPT of a SUBSCRIBE has been sent, or before an answer that found
/// no room is asked for again. The former begins at a millisecond and doubles: otherwise thousands of clients that read
/// nothing would keep a processor busy.
const AGAIN_MS_MAX: u64 = 1000;

/// An answer for which others have left no room is asked for again after this part of its interval, and a millisecond:
/// otherwise those that find no room again would meet the same others in each interval.
const AGAIN_PART: u64 = 4;

/// A subscription that gets periodic answers.
#[derive(Debug)]
pub(crate) struct Watch {
    pub query: Query,
    pub interval_ms: u64,
    /// The destination of its MESSAGEs.
    pub name: Text,
    /// It has not got the answer to its last query yet.
    pub asking: bool,
    /// The delay of the next check if the first query cannot be sent yet; `None` if it was sent.
    pub again_ms: Option<u64>,
    /// The end of the last answer, as a position in the output of its connection.
    pub sent_through: u64,
}

impl Owners<'_> {
    /// Starts periodic answers to a subscription.
    pub(crate) fn watch(&mut self, index: SubscriptionIndex, query: Query, interval_ms: u64) {
        let Some(found) = self.router.subscriptions.get(index as usize) else { return };
        let key = SubscriptionKey { index, generation: found.generation };
        let subscribed = found.filter_index().map_or(&b"DIAG"[..], |filter| self.router.filter_name(filter));
        let name = match self.router.parse(subscribed) {
            Ok(None) => subscribed.into(),
            _ => [b"DIAG/", query.name().as_bytes()].concat().into(), // a MESSAGE names no pattern
        };
        let watch = Watch { query, interval_ms, name, asking: false, again_ms: Some(1), sent_through: 0 };
        self.diagnostics.watches.insert(key, watch);
        self.turn.timers.set(self.turn.now_ms, Due::Diagnostics(key));
    }

    /// Ends the periodic answers to a subscription that ends.
    pub(crate) fn unwatch(&mut self, key: SubscriptionKey) {
        let watches = &mut self.diagnostics.watches;
        if planted!("watch-outlives-subscription", if watches.contains_key(&key)) {
            return;
        }
        if !watches.is_empty() && watches.remove(&key).is_some() {
            give_back(watches);
            self.turn.timers.cancel(Due::Diagnostics(key));
        }
    }

    /// Sends the query for the next answer, which is due.
    pub(crate) fn watch_due(&mut self, at_ms: u64, key: SubscriptionKey) {
        let found = self.router.subscription_mut(key).map(|found| found.conn);
        let (Some(conn), Some(watch)) = (found, self.diagnostics.watches.get_mut(&key)) else { return };
        let Some(conn) = self.connections.table.get(conn) else { return };
        if let Some(again_ms) = watch.again_ms.take()
            && !conn.answers.is_empty()
        {
            // The RECEIPT of the SUBSCRIBE comes first.
            watch.again_ms = Some((2 * again_ms).min(AGAIN_MS_MAX));
            self.turn.timers.set(self.turn.now_ms + again_ms, Due::Diagnostics(key));
            return;
        }
        // The next time is a multiple of the interval after the first one, however late this one is.
        let late = self.turn.now_ms.saturating_sub(at_ms) / watch.interval_ms.max(1);
        let next_ms = at_ms.saturating_add(watch.interval_ms.saturating_mul(late + 1));
        let keeps_up = self.keeps_up(key);
        if keeps_up || !planted!("slow-watch-forgotten") {
            self.turn.timers.set(next_ms, Due::Diagnostics(key));
        }
        if !self.is_draining && keeps_up {
            self.ask_for_watch(key);
        }
    }

    /// Whether a subscription has been sent its last answer, and its connection has room for one. A slow one misses
    /// this answer: the next one replaces it.
    fn keeps_up(&mut self, key: SubscriptionKey) -> bool {
        let Some(found) = self.router.subscription_mut(key) else { return false };
        let queue = self.queues.consumers.get(key).and_then(|consumer| consumer.own_queue);
        let (Some(conn), Some(watch)) =
            (self.connections.table.get(found.conn), self.diagnostics.watches.get(&key))
        else {
            return false;
        };
        let is_kept =
            queue.and_then(|queue| self.queues.home.queue(queue)).is_some_and(|it| it.waiting_bytes() > 0);
        let has_room = !conn.output.is_full() && conn.has_room(self.turn.config.outbox_limit);
        !watch.asking && !is_kept && has_room && conn.output.outbox.has_passed(watch.sent_through)
    }

    /// Delivers an answer to a subscription with an interval.
    pub(crate) fn push_answer(&mut self, answer: &Answer, headers: &[u8], key: SubscriptionKey) {
        let Some(watch) = self.diagnostics.watches.get_mut(&key) else { return }; // it has ended meanwhile
        watch.asking = false;
        let again_ms = (watch.interval_ms / AGAIN_PART).min(AGAIN_MS_MAX) + 1;
        if !self.keeps_up(key) {
            // Other answers to its connection have taken the room. Where they are due at the same times, they would take
            // it each time: so this one and those after it come later.
            self.turn.timers.set(self.turn.now_ms + again_ms, Due::Diagnostics(key));
            return;
        }
        let place = self.router.subscription_mut(key).map(|found| found.place);
        let (Some(Place::Topic { group, member, .. }), Some(watch)) =
            (place, self.diagnostics.watches.get_mut(&key))
        else {
            return;
        };
        let body = answer.body();
        let id = SmallVec::<[u8; 40]>::from_slice(self.turn.message_ids.next_id());
        let message = Message {
            destination: &watch.name.clone(),
            id: &id,
            sender: NOBODY,
            headers,
            plain: false,
            expires_ms: 0,
            body: body.as_bytes(),
        };
        self.connections.distribute(self.turn);
        self.deliveries.suffixes.begin();
        let found = &self.router.groups[group as usize];
        let (target_queue, member) = (found.target_queue, found.members[member as usize]);
        match target_queue {
            Some(queue) => self.delivery().deliver_to_queue(OwnedMessage::new(&message), queue, member),
            None => self.delivery().deliver_to_one(&message, group, member),
        }
        let end = self.connections.table.member_mut(member.conn).output.outbox.end();
        if let Some(watch) = self.diagnostics.watches.get_mut(&key) {
            watch.sent_through = end;
        }
    }
}
