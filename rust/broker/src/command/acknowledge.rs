//! Carries out ACKs and NACKs, over several turns if they cover very many deliveries.

use super::Owners;
use crate::connection::acknowledgement::{Acknowledgement, Covers};
use crate::door::planted;
use crate::ids::{ConnKey, SubscriptionKey};
use crate::message::options::Verdict;
use crate::queue::consumer_state::{ConsumerState, Retries};
use crate::queue::unacked::{TakenOnes, Unacked};

/// Deliveries that are acknowledged before the turn's budget is checked again.
const PORTION: usize = 256;

/// Takes the deliveries that an ACK or NACK covers, or a portion of them, and whether these were all.
fn take_portion(unacked: &mut Unacked, covers: Covers, number: u64) -> (TakenOnes, bool) {
    if !covers.is_cumulative() {
        return (unacked.take(number).into_iter().collect(), true);
    }
    let taken = unacked.take_through(number - u64::from(planted!("cumulative-ack-one-short")), PORTION);
    let is_done = taken.len() < PORTION || unacked.oldest().is_none_or(|(oldest, _)| oldest > number);
    (taken, is_done)
}

impl Owners<'_> {
    /// Settles or requeues a delivery, or all up to it, the oldest first, for half of a turn. Returns whether all are done.
    #[inline]
    pub(crate) fn acknowledge(&mut self, key: ConnKey, acknowledgement: Acknowledgement) -> bool {
        let Acknowledgement { subscription, number, covers, verdict } = acknowledgement;
        if covers != Covers::Named || verdict != Verdict::Accepted {
            let is_done = self.acknowledge_some(key, acknowledgement);
            if is_done && covers.is_cumulative() {
                self.set_rest_of_ack(key, None); // the subscription may have ended in between
            }
            return is_done;
        }
        // The common case: one delivery, without a list.
        let Some(consumer) = self.queues.consumers.get_mut(subscription) else { return true };
        let Some(taken) = consumer.unacked.take(number) else { return true };
        let bytes = consumer.owed_bytes(taken.message.size());
        self.note_acknowledged(key, 1, bytes);
        self.turn.counters.acked += 1;
        self.delivery().settle_one(subscription, &taken);
        self.delivery().grant_credit(subscription);
        true
    }

    #[inline(never)]
    fn acknowledge_some(&mut self, key: ConnKey, acknowledgement: Acknowledgement) -> bool {
        let Acknowledgement { subscription, number, covers, verdict } = acknowledgement;
        loop {
            let Some(consumer) = self.queues.consumers.get_mut(subscription) else { return true };
            let (taken, is_done) = take_portion(&mut consumer.unacked, covers, number);
            let retries = Retries::of(consumer);
            let bytes = match verdict {
                Verdict::Failed => 0, // it is delivered again
                _ => taken.iter().map(|taken| consumer.owed_bytes(taken.message.size())).sum(),
            };
            self.note_acknowledged(key, taken.len(), bytes);
            let ids = taken.iter().map(|taken| (taken.number, taken.id_hash));
            match covers {
                // The client may not have refused these, and acknowledges their earlier deliveries later.
                Covers::AllBeforeLate => self.delivery().remember_requeued(key, subscription, ids),
                Covers::NamedLate => self.delivery().remember_settled(key, subscription, ids),
                Covers::Named | Covers::AllBefore => {}
            }
            self.carry_out_verdict(subscription, retries, verdict, taken);
            if is_done {
                return true;
            }
            if self.turn.budget.is_half_spent() {
                self.set_rest_of_ack(key, Some(acknowledgement));
                return false;
            }
        }
    }

    /// Does the same for a subscription that has ended meanwhile, of which this is the remaining state.
    pub(crate) fn acknowledge_late(
        &mut self,
        consumer: &mut ConsumerState,
        acknowledgement: Acknowledgement,
    ) -> bool {
        let Acknowledgement { number, covers, verdict, .. } = acknowledgement;
        loop {
            let (taken, is_done) = take_portion(&mut consumer.unacked, covers, number);
            self.turn.budget.visit(taken.len());
            self.carry_out_verdict(consumer.key, Retries::of(consumer), verdict, taken);
            if is_done || self.turn.budget.is_half_spent() {
                return is_done;
            }
        }
    }

    /// Notes what is left of an ACK or NACK, for the next turn.
    fn set_rest_of_ack(&mut self, key: ConnKey, rest: Option<Acknowledgement>) {
        let conn = self.connections.table.get_mut(key);
        if let Some(pending_writes) = conn.and_then(|conn| conn.pending_writes.as_mut()) {
            pending_writes.acknowledging = rest;
        }
    }

    /// Notes that deliveries are no longer in flight.
    #[inline]
    fn note_acknowledged(&mut self, key: ConnKey, count: usize, bytes: usize) {
        self.turn.budget.visit(count);
        if self.turn.memory.is_short {
            self.delivery().note_ack(key, bytes);
        }
        if let Some(pending_writes) =
            self.connections.table.get_mut(key).and_then(|conn| conn.pending_writes.as_mut())
        {
            pending_writes.unacked -= count;
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
                let retries = Retries { deliveries_max: 0, ..retries };
                self.delivery().give_back_failed(subscription, retries, taken);
            }
        }
    }
}
