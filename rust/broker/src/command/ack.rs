//! ACK and NACK (STOMP 1.2, "ACK"): by `ack` id in 1.2, by `message-id` and subscription in 1.1, by `message-id` in 1.0.
//!
//! An `ack` id is the subscription's slot, `-`, and the delivery's number; the pair is never used for another
//! delivery. A delivery that was requeued (`ack_timeout`, UNSUBSCRIBE) may still be acknowledged, without effect.

use std::hash::BuildHasher as _;

use stompica_proto::error::Code;
use stompica_proto::session::AckMode;
use stompica_proto::{Frame, ProtocolError, Version};

use super::Owners;
use crate::connection::flow::Flow;
use crate::connection::transaction::Operation;
use crate::door::planted;
use crate::ids::{ConnKey, ShardId, SubscriptionKey};
use crate::message::options;
use crate::message::options::Verdict;
use crate::queue::consumer_state::{ConsumerState, Retries};
use crate::queue::unacked::{TakenOnes, Unacked};

/// Deliveries that are acknowledged before the turn's budget is checked again.
const PORTION: usize = 256;

/// Any number with this number of digits fits into a `u64`.
const DIGITS_FIT: usize = 19;

/// Takes the deliveries that an ACK or NACK covers, or a portion of them, and whether these were all.
fn take_portion(unacked: &mut Unacked, ack: AckMode, number: u64) -> (TakenOnes, bool) {
    let taken: TakenOnes = match ack {
        AckMode::Client => {
            unacked.take_through(number - u64::from(planted!("cumulative-ack-one-short")), PORTION)
        }
        _ => unacked.take(number).into_iter().collect(),
    };
    // The named delivery comes last in its portion.
    let is_done = taken.len() < PORTION || !unacked.holds(number);
    (taken, is_done)
}

/// The two numbers at the end of an id: slot and number.
fn numbers(id: &[u8]) -> Option<(u32, u64)> {
    let (slot, number) = last_number(id)?;
    let (before, slot) = last_number(slot.strip_suffix(b"-")?)?;
    let is_whole = before.last().is_none_or(|last| *last == b'-');
    Some((u32::try_from(slot).ok().filter(|_| is_whole)?, number))
}

/// The number at the end of an id, and the bytes before it. Every ACK runs this: parsing with the standard library
/// took 7 % of the instructions of the workload queue-4x4.
fn last_number(bytes: &[u8]) -> Option<(&[u8], u64)> {
    let digits = bytes.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
    let (before, digits) =
        bytes.split_at_checked(bytes.len() - digits).filter(|(_, digits)| !digits.is_empty())?;
    let number = if digits.len() <= DIGITS_FIT {
        digits.iter().fold(0, |number, digit| number * 10 + u64::from(digit - b'0'))
    } else {
        digits
            .iter()
            .try_fold(0_u64, |number, digit| number.checked_mul(10)?.checked_add(u64::from(digit - b'0')))?
    };
    Some((before, number))
}

/// What an ACK or NACK names.
#[derive(Clone, Copy, Debug)]
enum Named {
    /// A delivery in flight of this subscription.
    Held(SubscriptionKey, u64),
    /// A delivery that was requeued.
    Requeued {
        /// The subscription, if a NACK may cover others of its deliveries that nobody can tell from the rest.
        covering: Option<SubscriptionKey>,
    },
}

/// An ACK or NACK as the session has parsed it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Acked<'a> {
    pub id: &'a [u8],
    pub subscription: Option<&'a [u8]>,
    pub accept: bool,
    pub transaction: Option<&'a [u8]>,
    pub receipt: Option<&'a [u8]>,
}

impl Owners<'_> {
    /// Acknowledges, now or at COMMIT. `Flow::Later`: only a part of the deliveries that it covers, since they are
    /// very many. The named delivery is the last of them, so the frame finds the others when it is handled again;
    /// later deliveries have higher numbers.
    ///
    /// # Errors
    /// `E-ACK-UNKNOWN`; `E-TX-UNKNOWN`, `E-TX-COUNT`, `E-MEMORY`.
    pub(super) fn ack(
        &mut self,
        key: ConnKey,
        frame: &Frame<'_>,
        acked: &Acked<'_>,
    ) -> Result<Flow, ProtocolError> {
        let Acked { id, subscription, accept, transaction, receipt } = *acked;
        let verdict = options::verdict_of(frame, accept)?;
        let named = self.find_delivery(key, id, subscription)?;
        if let Some(transaction) = transaction {
            // ACK of a requeued delivery has no effect, but its transaction must be open.
            self.require_transaction(key, transaction)?;
        }
        let is_continued = self.is_acknowledging(key);
        let is_done = match (named, transaction) {
            (Named::Held(subscription, number), None) => self.acknowledge(key, subscription, number, verdict),
            (Named::Held(subscription, number), Some(transaction)) => {
                let first = self.first_covered(key, subscription, number);
                let ack = Operation::Ack { subscription, number, first, verdict };
                self.keep_ack_for_commit(key, transaction, ack)?;
                true
            }
            (Named::Requeued { covering: Some(subscription) }, None) if verdict != Verdict::Accepted => {
                self.take_back_all(key, subscription)
            }
            (Named::Requeued { covering: Some(subscription) }, Some(transaction))
                if verdict != Verdict::Accepted =>
            {
                // Nobody holds this delivery, so COMMIT refuses the transaction.
                let void = Operation::Ack { subscription, number: u64::MAX, first: u64::MAX, verdict };
                self.keep_ack_for_commit(key, transaction, void)?;
                true
            }
            (Named::Requeued { .. }, _) => true,
        };
        if !is_done {
            return Ok(Flow::Later);
        }
        self.turn.counters.late_acks += u64::from(matches!(named, Named::Requeued { .. }));
        if is_continued {
            self.set_acknowledging(key, false);
            self.queues.home.store.began_before();
            if verdict != Verdict::Accepted {
                // Dead letters of earlier turns may be at any home.
                let shards = (0..self.turn.shards).map(|at| ShardId(at as u8));
                self.queues.home.store.add_concerned(shards.fold(0, |bits, shard| bits | shard.bit()));
            }
        }
        self.receipt(key, receipt);
        Ok(Flow::Done)
    }

    /// The first delivery that an ACK or NACK of this one covers now.
    fn first_covered(&self, key: ConnKey, subscription: SubscriptionKey, number: u64) -> u64 {
        let consumer = self.queues.consumers.get(subscription);
        let consumer = consumer.filter(|consumer| consumer.ack == AckMode::Client);
        let consumer = consumer.filter(|consumer| !self.may_be_late(key, consumer, number));
        consumer.and_then(|consumer| consumer.unacked.oldest()).map_or(number, |(first, _)| first)
    }

    /// The delivery that an id names.
    ///
    /// # Errors
    /// `E-ACK-UNKNOWN`.
    fn find_delivery(
        &self,
        key: ConnKey,
        id: &[u8],
        subscription: Option<&[u8]>,
    ) -> Result<Named, ProtocolError> {
        let Some(conn) = self.connections.table.get(key) else {
            return Ok(Named::Requeued { covering: None });
        };
        let held = match (conn.protocol.session.version(), subscription) {
            (Version::V1_1, Some(name)) => self.find_subscription(key, name).and_then(|index| {
                let consumer = self.queues.consumers.at(index)?;
                let hash = self.connections.subscription_hasher.hash_one(id);
                Some((consumer.key, consumer.unacked.number_of(hash)?))
            }),
            _ => numbers(id).and_then(|(index, number)| {
                let consumer = self.queues.consumers.at(index)?;
                (consumer.conn == key && consumer.unacked.holds(number)).then_some((consumer.key, number))
            }),
        };
        if let Some((subscription, number)) = held {
            return Ok(Named::Held(subscription, number));
        }
        let hash = match (conn.protocol.session.version(), subscription) {
            (Version::V1_1, Some(name)) => {
                self.connections.hash_by_message(name, self.connections.subscription_hasher.hash_one(id))
            }
            _ => numbers(id).map_or(0, |numbers| self.connections.subscription_hasher.hash_one(numbers)),
        };
        if let Some(writes) = conn.pending_writes.as_deref() {
            let (from, may_be_forgotten) = (writes.requeued_from(hash), writes.may_have_forgotten(hash));
            if from.is_some() || may_be_forgotten || writes.accepts_unknown {
                // What a drop policy has forgotten was older than all that is held: a NACK of it covers none of that.
                let is_of = |own: SubscriptionKey| from.map_or(may_be_forgotten, |from| from == own);
                let covering = self.cumulative_by_message(key, subscription);
                return Ok(Named::Requeued { covering: covering.filter(|own| is_of(*own)) });
            }
        }
        let text =
            format!("'{}' is not an unsettled delivery of this connection", String::from_utf8_lossy(id));
        Err(ProtocolError::new(Code::AckUnknown, text))
    }

    /// The subscription with this id, if it holds deliveries that ACKs cover without naming them, by a `message-id`: STOMP 1.1 in
    /// client mode. The other versions name deliveries: before one that is no longer held, none is held in client mode.
    fn cumulative_by_message(&self, key: ConnKey, subscription: Option<&[u8]>) -> Option<SubscriptionKey> {
        let consumer = self.queues.consumers.at(self.find_subscription(key, subscription?)?)?;
        let is_cumulative = consumer.ack == AckMode::Client && consumer.wire_format.version == Version::V1_1;
        (is_cumulative && consumer.unacked.len() > 0).then_some(consumer.key)
    }

    /// Takes back all deliveries of a subscription, for half of a turn, since a NACK names a message that it no longer holds: a
    /// late ACK has taken that message alone. The NACK covers deliveries before it, and nobody knows which. A later ACK would
    /// cover them, too, and what the client has refused would be lost. Returns whether all are done.
    fn take_back_all(&mut self, key: ConnKey, subscription: SubscriptionKey) -> bool {
        loop {
            let Some(consumer) = self.queues.consumers.get_mut(subscription) else { return true };
            let taken = consumer.unacked.take_through(u64::MAX, PORTION);
            let is_done = taken.len() < PORTION;
            self.turn.budget.visit(taken.len());
            self.delivery().time_out(subscription, taken);
            self.set_acknowledging(key, !is_done);
            if is_done || self.turn.budget.is_half_spent() {
                return is_done;
            }
        }
    }

    /// Whether an ACK or NACK in client mode may be a late answer to an earlier delivery of the same message, which was taken
    /// back: in STOMP 1.1 it names the message, not the delivery.
    fn may_be_late(&self, key: ConnKey, consumer: &ConsumerState, number: u64) -> bool {
        if consumer.ack != AckMode::Client || consumer.wire_format.version != Version::V1_1 {
            return false;
        }
        let writes = self.connections.table.get(key).and_then(|conn| conn.pending_writes.as_ref());
        let name = self.router.subscriptions.get(consumer.key.index as usize).map(|found| &found.id);
        let (Some(writes), Some(name)) = (writes, name) else { return false };
        let Some(id_hash) = consumer.unacked.id_hash_of(number) else { return false };
        let hash = self.connections.hash_by_message(name, id_hash);
        // A subscription that has begun anew had no earlier delivery. By chance a first one may look like one that was forgotten.
        writes.requeued_from(hash) == Some(consumer.key)
            || (consumer.unacked.is_redelivery(number) && writes.may_have_forgotten(hash))
    }

    /// Settles or requeues a delivery, and in client mode all before it, the oldest first, for half of a turn.
    /// Returns whether all are done.
    pub(crate) fn acknowledge(
        &mut self,
        key: ConnKey,
        subscription: SubscriptionKey,
        number: u64,
        verdict: Verdict,
    ) -> bool {
        let Some(consumer) = self.queues.consumers.get_mut(subscription) else { return true };
        if consumer.ack != AckMode::Client && verdict == Verdict::Accepted {
            // The common case: one delivery, without a list.
            let Some(taken) = consumer.unacked.take(number) else { return true };
            let bytes = consumer.owed_bytes(taken.message.size());
            self.note_acknowledged(key, 1, bytes, true);
            self.turn.counters.acked += 1;
            self.delivery().settle_one(subscription, &taken);
            self.delivery().grant_credit(subscription);
            return true;
        }
        let Some(consumer) = self.queues.consumers.get(subscription) else { return true };
        let may_be_late = self.may_be_late(key, consumer, number);
        let is_accepted = verdict == Verdict::Accepted;
        // A late ACK covers nothing else. A late NACK covers the others all the same: a later ACK would cover what the client
        // has refused, and that would be lost.
        let covers_one = may_be_late
            && ((is_accepted && !planted!("late-ack-covers-others"))
                || (!is_accepted && planted!("late-nack-covers-one")));
        let covered = if covers_one { AckMode::ClientIndividual } else { consumer.ack };
        loop {
            let Some(consumer) = self.queues.consumers.get_mut(subscription) else { return true };
            let (taken, is_done) = take_portion(&mut consumer.unacked, covered, number);
            let retries = Retries::of(consumer);
            let bytes = match verdict {
                Verdict::Failed => 0, // it is delivered again
                _ => taken.iter().map(|taken| consumer.owed_bytes(taken.message.size())).sum(),
            };
            self.note_acknowledged(key, taken.len(), bytes, is_done);
            if may_be_late && !is_accepted {
                // The client may not have refused these, and acknowledges their earlier deliveries later.
                let ids = taken.iter().map(|taken| (taken.number, taken.id_hash));
                self.delivery().remember_requeued(key, subscription, ids);
            }
            self.carry_out_verdict(subscription, retries, verdict, taken);
            if is_done || self.turn.budget.is_half_spent() {
                return is_done;
            }
        }
    }

    /// Whether an earlier turn has acknowledged some of the deliveries that the ACK at hand covers.
    fn is_acknowledging(&self, key: ConnKey) -> bool {
        let conn = self.connections.table.get(key);
        let writes = conn.and_then(|conn| conn.pending_writes.as_ref());
        writes.is_some_and(|writes| writes.is_acknowledging)
    }

    fn set_acknowledging(&mut self, key: ConnKey, is_acknowledging: bool) {
        let conn = self.connections.table.get_mut(key);
        if let Some(pending_writes) = conn.and_then(|conn| conn.pending_writes.as_mut()) {
            pending_writes.is_acknowledging = is_acknowledging;
        }
    }

    fn note_acknowledged(&mut self, key: ConnKey, count: usize, bytes: usize, is_done: bool) {
        self.turn.budget.visit(count);
        if self.turn.memory.is_short {
            self.delivery().note_ack(key, bytes);
        }
        if let Some(pending_writes) =
            self.connections.table.get_mut(key).and_then(|conn| conn.pending_writes.as_mut())
        {
            pending_writes.unacked -= count;
            pending_writes.is_acknowledging = !is_done;
        }
    }

    /// Does the same for a subscription that has ended meanwhile, of which this is the remaining state.
    pub(crate) fn acknowledge_late(
        &mut self,
        consumer: &mut ConsumerState,
        number: u64,
        verdict: Verdict,
    ) -> bool {
        loop {
            let (taken, is_done) = take_portion(&mut consumer.unacked, consumer.ack, number);
            self.turn.budget.visit(taken.len());
            self.carry_out_verdict(consumer.key, Retries::of(consumer), verdict, taken);
            if is_done || self.turn.budget.is_half_spent() {
                return is_done;
            }
        }
    }

    fn carry_out_verdict(
        &mut self,
        subscription: SubscriptionKey,
        retries: Retries,
        verdict: Verdict,
        taken: TakenOnes,
    ) {
        match verdict {
            Verdict::Accepted => {
                self.turn.counters.acked += taken.len() as u64;
                self.delivery().settle_all(subscription, taken);
            }
            Verdict::Failed => {
                self.turn.counters.nacked += taken.len() as u64;
                self.delivery().give_back_failed(subscription, retries, taken);
            }
            Verdict::Rejected => {
                self.turn.counters.nacked += taken.len() as u64;
                self.delivery().give_back_failed(
                    subscription,
                    Retries { deliveries_max: 0, ..retries },
                    taken,
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::numbers;

    #[test]
    fn an_id_ends_with_two_numbers() {
        assert_eq!(numbers(b"7-12"), Some((7, 12)));
        assert_eq!(numbers(b"e-0-1-7-12"), Some((7, 12)));
        assert_eq!(numbers(b"0-18446744073709551615"), Some((0, u64::MAX)));
        for wrong in [
            &b"7"[..],
            b"",
            b"-",
            b"7-",
            b"a-1",
            b"1-a",
            b"-1-2-",
            b"\xff-1",
            b"1-18446744073709551616",
            b"a1-2",
            b"4294967296-1",
        ] {
            assert_eq!(numbers(wrong), None, "{wrong:?}");
        }
    }
}
