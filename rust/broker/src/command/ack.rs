//! ACK and NACK (STOMP 1.2, "ACK"): by `ack` id in 1.2, by `message-id` and subscription in 1.1, by `message-id` in 1.0.
//!
//! An `ack` id is the subscription's slot, `-`, and the delivery's number; the pair is never used for another
//! delivery. A delivery that was requeued (`ack_timeout`, UNSUBSCRIBE) may still be acknowledged, without effect.

use std::hash::BuildHasher as _;

use stompica_proto::error::Code;
use stompica_proto::session::AckMode;
use stompica_proto::{Frame, ProtocolError, Version};

use super::Owners;
use crate::connection::acknowledgement::{Acknowledgement, Covers};
use crate::connection::flow::Flow;
use crate::connection::pending_writes::Requeued;
use crate::connection::transaction::Operation;
use crate::door::planted;
use crate::ids::{ConnKey, ShardId, SubscriptionKey};
use crate::message::options;
use crate::message::options::Verdict;
use crate::queue::consumer_state::ConsumerState;

/// Any number with this number of digits fits into a `u64`.
const DIGITS_FIT: usize = 19;

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
    /// A delivery in flight, of a subscription in this mode.
    Held(SubscriptionKey, u64, AckMode),
    /// A delivery that a late ACK has settled, while others before it are in flight.
    Settled(SubscriptionKey, u64),
    /// A delivery that was requeued or forgotten.
    Gone,
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
    /// very many. When the frame is handled again, it goes on with the rest.
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
        if let Some(rest) = self.rest_of_ack(key) {
            if !self.acknowledge(key, rest) {
                return Ok(Flow::Later);
            }
            self.queues.home.store.began_before();
            if verdict != Verdict::Accepted {
                // Dead letters of earlier turns may be at any home.
                let shards = (0..self.turn.shards).map(|at| ShardId(at as u8));
                self.queues.home.store.add_concerned(shards.fold(0, |bits, shard| bits | shard.bit()));
            }
            self.receipt(key, receipt);
            return Ok(Flow::Done);
        }
        let is_accepted = verdict == Verdict::Accepted;
        let named = self.find_delivery(key, id, subscription, is_accepted)?;
        if let Some(transaction) = transaction {
            // What has no effect needs an open transaction, too.
            self.require_transaction(key, transaction)?;
        }
        self.turn.counters.late_acks += u64::from(!matches!(named, Named::Held(..)));
        let acknowledgement = match named {
            Named::Held(subscription, number, mode) => {
                let covers = match mode {
                    AckMode::Client => self.covers(key, subscription, number, is_accepted),
                    _ => Covers::Named,
                };
                Some(Acknowledgement { subscription, number, covers, verdict })
            }
            Named::Settled(subscription, number) if !is_accepted => {
                let covers = Covers::AllBeforeLate;
                Some(Acknowledgement { subscription, number, covers, verdict })
            }
            Named::Settled(..) | Named::Gone => None,
        };
        match (acknowledgement, transaction) {
            (Some(acknowledgement), Some(transaction)) => {
                let first = self.first_covered(acknowledgement);
                self.keep_ack_for_commit(key, transaction, Operation::Ack { acknowledgement, first })?;
            }
            (Some(acknowledgement), None) if !self.acknowledge(key, acknowledgement) => {
                return Ok(Flow::Later);
            }
            _ => {}
        }
        self.receipt(key, receipt);
        Ok(Flow::Done)
    }

    /// What is left of an ACK or NACK of which an earlier turn has carried out a part.
    fn rest_of_ack(&self, key: ConnKey) -> Option<Acknowledgement> {
        self.connections.table.get(key)?.pending_writes.as_ref()?.acknowledging
    }

    /// The first delivery that it covers now.
    fn first_covered(&self, acknowledgement: Acknowledgement) -> u64 {
        let Acknowledgement { subscription, number, covers, .. } = acknowledgement;
        let consumer = self.queues.consumers.get(subscription).filter(|_| covers.is_cumulative());
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
        is_accepted: bool,
    ) -> Result<Named, ProtocolError> {
        let Some(conn) = self.connections.table.get(key) else { return Ok(Named::Gone) };
        let by_message = subscription.filter(|_| conn.protocol.session.version() == Version::V1_1);
        let hasher = &self.connections.subscription_hasher;
        let hash = match by_message {
            Some(name) => {
                let id_hash = hasher.hash_one(id);
                let consumer =
                    self.find_subscription(key, name).and_then(|index| self.queues.consumers.at(index));
                let held = consumer.and_then(|it| it.unacked.number_of(id_hash, is_accepted));
                let hash = self.connections.hash_by_message(name, id_hash);
                if let Some(consumer) = consumer {
                    let settled = || conn.pending_writes.as_ref()?.settled_late(hash, consumer.key);
                    let covers_some =
                        |number: &u64| consumer.unacked.oldest().is_some_and(|(first, _)| first < *number);
                    match (held, settled().filter(covers_some)) {
                        (Some(number), _) => return Ok(Named::Held(consumer.key, number, consumer.ack)),
                        (None, Some(number)) => return Ok(Named::Settled(consumer.key, number)),
                        (None, None) => {}
                    }
                }
                hash
            }
            None => {
                let found = numbers(id);
                let held = found.and_then(|(index, number)| {
                    let consumer = self.queues.consumers.at(index)?;
                    let is_held = consumer.conn == key && consumer.unacked.holds(number);
                    is_held.then_some(Named::Held(consumer.key, number, consumer.ack))
                });
                if let Some(held) = held {
                    return Ok(held);
                }
                found.map_or(0, |numbers| hasher.hash_one(numbers))
            }
        };
        let is_known = conn.pending_writes.as_deref().is_some_and(|writes| {
            writes.is_remembered(hash) || writes.accepts_unknown || writes.may_have_forgotten(hash)
        });
        if is_known {
            return Ok(Named::Gone);
        }
        let text =
            format!("'{}' is not an unsettled delivery of this connection", String::from_utf8_lossy(id));
        Err(ProtocolError::new(Code::AckUnknown, text))
    }

    /// What an ACK or NACK of a delivery in flight covers in client mode.
    fn covers(&self, key: ConnKey, subscription: SubscriptionKey, number: u64, is_accepted: bool) -> Covers {
        let Some(consumer) = self.queues.consumers.get(subscription) else { return Covers::Named };
        match (self.may_be_late(key, consumer, number), is_accepted) {
            (true, true) if !planted!("late-ack-covers-others") => Covers::NamedLate,
            (true, false) if planted!("late-nack-covers-one") => Covers::NamedLate,
            (true, false) => Covers::AllBeforeLate,
            _ => Covers::AllBefore,
        }
    }

    /// Whether an ACK or NACK in client mode may be a late answer to an earlier delivery of the same message, which was taken
    /// back: in STOMP 1.1 it names the message, not the delivery.
    fn may_be_late(&self, key: ConnKey, consumer: &ConsumerState, number: u64) -> bool {
        if consumer.wire_format.version != Version::V1_1 {
            return false;
        }
        let writes = self.connections.table.get(key).and_then(|conn| conn.pending_writes.as_ref());
        let name = self.router.subscriptions.get(consumer.key.index as usize).map(|found| &found.id);
        let (Some(writes), Some(name)) = (writes, name) else { return false };
        let Some(id_hash) = consumer.unacked.id_hash_of(number) else { return false };
        let hash = self.connections.hash_by_message(name, id_hash);
        // A subscription that has begun anew had no earlier delivery. By chance a first one may look like one that was forgotten.
        match writes.may_have_requeued(hash, consumer.key) {
            Requeued::Surely => true,
            Requeued::Perhaps => consumer.unacked.is_redelivery(number),
            Requeued::Never => false,
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
