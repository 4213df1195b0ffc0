//! Applies a COMMIT that was decided, over as many turns as it needs; it cannot fail any more.
//!
//! Its ACKs come first: they may end what takes the memory. Its messages to topics are published like those of any
//! connection: one after the other, each after the one before has reached all recipients, and none while memory is out,
//! another shard has too much mail or a receiver's outbox is full. So its additional memory is bounded by one message. It
//! waits as SENDs do, but without `publish_timeout`.

use super::Owners;
use super::commit::OPERATION_VISITS;
use super::commits::{Applying, LateOnes, WaitReason};
use crate::connection::pausing::{Pause, Question};
use crate::connection::transaction::plan::Place;
use crate::connection::transaction::{Committing, Operation};
use crate::delivery::memory::{last_share, must_wait_for_memory};
use crate::destination::Kind;
use crate::door::planted;
use crate::ids::ShardId;
use crate::message::OwnedMessage;
use crate::message::options::Retain;
use crate::queue::consumer_state::ConsumerState;
use crate::queue::mail::{HomeNote, Placed, RecordNote, TransactionNote};
use crate::router::fan_out::FanOutKey;
use crate::router::reach::Reach;
use crate::turn::jobs::Job;

/// Operations that are searched for ACKs as one visit.
const SEARCHED_AT_ONCE: usize = 16;

impl Owners<'_> {
    /// Continues to apply a COMMIT, as far as the turn allows; it cannot fail any more.
    pub(crate) fn apply(&mut self, mut applying: Box<Applying>) {
        self.turn.budget.visit(1);
        applying.late.append(&mut self.commits.late.remove(&applying.key).unwrap_or_default());
        self.queues.home.store.begin();
        self.queues.home.store.enter(applying.transaction);
        let is_applied = self.apply_all_acks(&mut applying) && self.apply_sends(&mut applying);
        self.queues.home.store.enter(None);
        applying.concerned |= self.queues.home.store.take_concerned();
        if applying.wait_reason.is_some() {
            self.commits.held.push_back(applying);
        } else if is_applied {
            self.conclude(applying);
        } else {
            self.commits.applying.push_back(applying);
            self.turn.jobs.push(Job::Apply);
        }
    }

    /// Continues with the SENDs of a COMMIT. Returns whether all are done.
    fn apply_sends(&mut self, applying: &mut Applying) -> bool {
        while !self.turn.budget.is_exhausted() {
            applying.wait_reason = self.reason_to_wait(applying);
            if applying.wait_reason.is_some() {
                return false;
            }
            let Some(operation) = applying.operations.pop_front() else { return true };
            self.turn.budget.visit(OPERATION_VISITS);
            let place = applying.plan.take_place();
            if let Operation::Send(message, retain) = operation {
                let going = self.apply_send(message, retain, place, applying);
                applying.has_fanned_out |= going.is_some();
                applying.wait_reason = going.map(WaitReason::FanOut);
            }
        }
        false
    }

    /// The reason why the next operation has to wait.
    fn reason_to_wait(&mut self, applying: &Applying) -> Option<WaitReason> {
        if applying.wait_reason.is_some_and(|wait_reason| {
            wait_reason.stands(self.turn, self.connections, self.deliveries, self.peers)
        }) {
            return applying.wait_reason;
        }
        let Some(Operation::Send(message, _)) = applying.operations.front() else { return None };
        if !matches!(applying.plan.next_place(), Place::Topic { .. }) {
            return None;
        }
        if self.turn.budget.published >= last_share(self.turn) {
            return Some(WaitReason::NextTurn);
        }
        if must_wait_for_memory(self.turn, self.connections) {
            return Some(WaitReason::Memory);
        }
        let destination = self.router.destination_of(self.turn, message.destination()).ok()?;
        let Reach { remote, fan_out_size, is_full, .. } = self.router.reach(destination);
        if remote & self.peers.busy.congested != 0 {
            return Some(WaitReason::Mailboxes(remote & self.peers.busy.congested));
        }
        if fan_out_size > 0 && self.peers.holds_large_fan_outs(remote) {
            return Some(WaitReason::LargeFanOut(remote));
        }
        is_full.then(|| WaitReason::SlowConsumer(self.connections.parking.retries(Pause::SlowConsumer)))
    }

    /// Continues with the ACKs and NACKs of a COMMIT, and with deliveries of ended subscriptions that it does not acknowledge.
    /// Returns whether all are done.
    fn apply_all_acks(&mut self, applying: &mut Applying) -> bool {
        while let Some(operation) = applying.operations.get(applying.searched) {
            if self.turn.budget.is_exhausted() {
                return false;
            }
            applying.searched += 1;
            self.turn.budget.visit(usize::from(applying.searched.is_multiple_of(SEARCHED_AT_ONCE)));
            if let Operation::Ack { acknowledgement, .. } = operation {
                applying.acks.push_back(*acknowledgement);
            }
        }
        if !self.apply_acks(applying) || !self.give_back_late(&mut applying.late) {
            return false;
        }
        if let Some(conn) = self.connections.table.get_mut(applying.key)
            && let Some(Committing::Applying { has_acks }) = &mut conn.committing
        {
            *has_acks = false;
        }
        true
    }

    /// Continues with the ACKs and NACKs of a COMMIT, as far as the turn allows. Returns whether all are done.
    fn apply_acks(&mut self, applying: &mut Applying) -> bool {
        let Applying { key, acks, late, .. } = applying;
        while let Some(acknowledgement) = acks.front().copied() {
            if self.turn.budget.is_exhausted() {
                return false;
            }
            if planted!("commit-without-acks") {
                acks.pop_front();
                continue;
            }
            let is_done = match late.get_mut(&acknowledgement.subscription) {
                Some(consumer) => self.acknowledge_late(consumer, acknowledgement),
                None => self.acknowledge(*key, acknowledgement),
            };
            if !is_done {
                return false;
            }
            acks.pop_front();
            if !acks.is_empty() && planted!("commit-of-first-ack") {
                return true;
            }
        }
        true
    }

    /// Requeues deliveries of ended subscriptions that the COMMIT does not acknowledge. Returns whether all are done.
    fn give_back_late(&mut self, late: &mut LateOnes) -> bool {
        while !late.is_empty() {
            if self.turn.budget.is_exhausted() {
                return false;
            }
            self.turn.budget.visit(OPERATION_VISITS);
            if let Some((_, consumer)) = late.pop_first() {
                let ConsumerState { own_queue, unacked, .. } = *consumer;
                self.give_back_rest(own_queue, unacked);
            }
        }
        true
    }

    fn apply_send(
        &mut self,
        mut message: OwnedMessage,
        retain: Option<Retain>,
        place: Place,
        applying: &mut Applying,
    ) -> Option<FanOutKey> {
        match place {
            Place::Here => {} // an ACK
            Place::Home { home, reservation } => {
                let is_worker = self.router.kind(message.destination()) == Kind::WorkerTopic;
                applying.awaits_homes |= reservation.is_none() || is_worker;
                if let Some(seq) = applying.next_place(home, reservation)
                    && message.persistent
                    && applying.transaction.is_some()
                {
                    message.seq = seq;
                    let name: Box<[u8]> = message.destination().into();
                    self.queues.home.store.keep(&name, &mut message);
                }
                applying.out[home as usize].1.push_back(Placed { reservation, message });
            }
            Place::Topic { retained } => {
                let destination = self.router.destination_of(self.turn, message.destination()).ok()?;
                let sets = retain == Some(Retain::Set) && !message.is_expired(self.turn.now_ms);
                if destination.is_recorded && !message.is_expired(self.turn.now_ms) {
                    self.apply_recorded(message, (retained, sets), destination.home, applying);
                    return None;
                }
                // In the same turn as the message itself: a SUBSCRIBE gets one of them.
                if let Some(home) = retained.filter(|_| !planted!("value-of-commit-lost")) {
                    let copy = OwnedMessage::new(&message.message());
                    let home = applying.out[home as usize].0;
                    self.notes.tell(home, HomeNote::Retain(copy, sets, None));
                    if home != self.turn.id {
                        self.queues.home.store.add_concerned(home.bit());
                    }
                }
                let remote = self.router.reach(destination).remote;
                if message.persistent {
                    self.queues.home.store.add_concerned(remote);
                }
                self.turn.budget.published += message.size() * (1 + remote.count_ones() as usize);
                return self.delivery().publish_owned(message, destination, destination.home, sets);
            }
        }
        None
    }

    /// Passes a message to the home of its topic, which numbers, records and publishes it.
    fn apply_recorded(
        &mut self,
        message: OwnedMessage,
        (retained, sets): (Option<u32>, bool),
        home: ShardId,
        applying: &mut Applying,
    ) {
        let to = applying.requester.to();
        self.connections.await_more(to, 1);
        self.turn.budget.published += message.size();
        let value = retained.map(|_| OwnedMessage::new(&message.message()));
        let note = match value {
            None => RecordNote::Publish(message, Some(to.requester())),
            Some(_) => RecordNote::PublishRetained(message, Some(to.requester())),
        };
        self.notes.tell(home, note);
        if let Some(value) = value {
            self.notes.tell(home, HomeNote::Retain(value, sets, None));
            if home != self.turn.id {
                self.queues.home.store.add_concerned(home.bit());
            }
        }
    }

    /// Sends every home the messages of its part, and lets the connection continue. The RECEIPT waits for the homes and
    /// for the stores.
    fn conclude(&mut self, applying: Box<Applying>) {
        let Applying { key, token, requester, out, transaction, concerned, awaits_homes, .. } = *applying;
        self.queues.home.store.begin();
        if let Some(transaction) = transaction {
            self.queues.home.store.end_transaction(transaction);
        }
        if applying.has_fanned_out {
            self.queues.home.store.began_before();
        }
        let own = self.own_store();
        let to = requester.to();
        self.connections.await_more(to, out.len() as u32 + (own | concerned).count_ones());
        for (home, messages) in out {
            self.notes.tell(home, TransactionNote::Commit(messages, token, to.requester()));
        }
        self.ask_stores(to, own, concerned);
        if let Some(conn) = self.connections.table.get_mut(key) {
            conn.committing = None;
        }
        self.notes.answer(requester, Ok(()));
        if !awaits_homes {
            self.connections.go_on_after(self.turn, key, Question::Turn(to.token));
        }
    }
}
