//! A COMMIT that was decided takes effect, over as many turns as it needs; nothing can fail any more.
//!
//! Its messages to a topic stand together. So while some of them are published and some are not, nobody else publishes
//! here: SENDs to topics wait ([`Pause::Transaction`]), and mail is not read. Other shards get them as one batch.

use std::collections::{BTreeMap, VecDeque};
use std::mem::{replace, take};

use stompica_proto::session::AckMode;

use super::Shard;
use super::commit::OPERATION_VISITS;
use super::jobs::Job;
use super::mailbox::Batch;
use super::parking::{Pause, Question};
use crate::fan_out::FanOutKey;
use crate::ids::{ConnKey, ShardId};
use crate::options::Retain;
use crate::plan::{Place, Plan};
use crate::queue::SubscriptionKey;
use crate::queue::mail::{Placed, QueueMail};
use crate::queue::stored::Stored;
use crate::router::receiver::Receiver;
use crate::tx::{Commit, Operation, Verdict};

/// A COMMIT that was decided, as far as it has not taken effect.
#[derive(Debug)]
pub(super) struct Applying {
    key: ConnKey,
    token: u64,
    /// With their numbers in the plan.
    operations: VecDeque<(usize, Operation)>,
    /// ACKs and NACKs take effect last: one may cover more deliveries than fit in between messages to a topic.
    acks: VecDeque<(SubscriptionKey, u64, Verdict)>,
    plan: Plan,
    receipt: Option<Box<[u8]>>,
    /// For each home of the plan, what goes there.
    out: Vec<(ShardId, Vec<Placed>)>,
    /// Messages to topics that are on their way to their receivers.
    going: Vec<FanOutKey>,
    late: LateOnes,
}

/// A transaction of which messages to topics have been published, and some have not, at the end of a turn.
#[derive(Debug, Default)]
pub(super) struct Publishing {
    is_on: bool,
    /// The turn in which it was over last: no other begins in that, so that SENDs have their turn.
    ended_in: u64,
    /// What it has for other shards.
    batch: Batch,
}

/// What is left of subscriptions that went while a COMMIT of theirs takes effect: how they acknowledge, and what they held.
pub(super) type LateOnes = BTreeMap<SubscriptionKey, (AckMode, Box<Receiver>)>;

impl Applying {
    pub(super) fn new(key: ConnKey, commit: Commit) -> Self {
        let Commit { token, operations, plan, receipt, .. } = commit;
        let out = plan.homes().map(|home| (home, Vec::new())).collect();
        let operations = operations.into_iter().enumerate().collect();
        let (acks, going, late) = (VecDeque::new(), Vec::new(), LateOnes::new());
        Applying { key, token, operations, acks, plan, receipt, out, going, late }
    }
}

impl Shard {
    /// Goes on with a COMMIT that was decided, as far as the turn allows; nothing can fail any more.
    pub(super) fn apply(&mut self, mut applying: Box<Applying>) {
        applying.late.append(&mut self.jobs.late.remove(&applying.key).unwrap_or_default());
        let others_are_on = self.inbound.is_broken_off() || self.jobs.publishing.ended_in == self.turn;
        if !applying.plan.is_open() && applying.plan.has_topics() && others_are_on {
            return self.jobs.hold(Job::Apply(applying));
        }
        let is_done = self.apply_operations(&mut applying);
        if applying.plan.is_open() {
            self.jobs.push_first(Job::Apply(applying));
        } else if is_done && self.apply_acks(&mut applying) && self.give_back_late(&mut applying.late) {
            self.conclude(applying);
        } else {
            self.jobs.push(Job::Apply(applying));
        }
    }

    /// Whether the messages of a transaction are published, or routed, in part.
    pub(crate) fn is_within_transaction(&self) -> bool {
        self.jobs.publishing.is_on || self.inbound.is_broken_off()
    }

    /// The same for one of this shard.
    pub(super) fn publishes_transaction(&self) -> bool {
        self.jobs.publishing.is_on
    }

    /// Goes on with what is in a COMMIT, but for ACKs and NACKs. Returns whether that is done.
    fn apply_operations(&mut self, applying: &mut Applying) -> bool {
        let others =
            applying.plan.is_open().then(|| replace(&mut self.batch, take(&mut self.jobs.publishing.batch)));
        let (mut is_done, mut from) = (false, 0);
        self.fan_outs.in_order = true;
        while !self.budget.is_exhausted() {
            let Some((at, operation)) = applying.operations.pop_front() else {
                is_done = true;
                break;
            };
            self.budget.visit(OPERATION_VISITS);
            if !applying.plan.is_open() {
                from = self.batch.len();
            }
            let place = applying.plan.follow(at);
            self.batch.join(applying.plan.is_open());
            match operation {
                Operation::Ack { subscription, number, verdict } => {
                    applying.acks.push_back((subscription, number, verdict));
                }
                Operation::Send(stored, retain) => {
                    let going = self.apply_send(stored, retain, place, &mut applying.out);
                    applying.going.extend(going);
                }
            }
        }
        self.fan_outs.in_order = false;
        self.batch.join(false);
        self.leave_publishing(applying.plan.is_open(), from);
        if let Some(others) = others {
            self.batch.append(others);
        }
        is_done
    }

    /// Keeps what is for other shards, from this place of the batch on, until the transaction is published as a whole.
    fn leave_publishing(&mut self, is_on: bool, from: usize) {
        let publishing = &mut self.jobs.publishing;
        let was_on = replace(&mut publishing.is_on, is_on);
        if is_on {
            publishing.batch = self.batch.split_off(from);
            publishing.batch.count_in(&self.shared.memory);
        } else if was_on {
            publishing.ended_in = self.turn;
            self.retry_parked(&[Pause::Transaction]);
        }
    }

    /// Goes on with the ACKs and NACKs of a COMMIT, as far as the turn allows. Returns whether they are done.
    fn apply_acks(&mut self, applying: &mut Applying) -> bool {
        let Applying { key, acks, late, .. } = applying;
        while let Some((subscription, number, verdict)) = acks.front().copied() {
            if self.budget.is_exhausted() {
                return false;
            }
            let is_done = match late.get_mut(&subscription) {
                Some((ack, receiver)) => {
                    self.acknowledge_late((subscription, *ack, receiver), number, verdict)
                }
                None => self.acknowledge(*key, subscription, number, verdict),
            };
            if !is_done {
                return false;
            }
            acks.pop_front();
        }
        true
    }

    /// What subscriptions held that have gone, and the COMMIT does not acknowledge, goes back. Returns whether that is done.
    fn give_back_late(&mut self, late: &mut LateOnes) -> bool {
        while !late.is_empty() {
            if self.budget.is_exhausted() {
                return false;
            }
            self.budget.visit(OPERATION_VISITS);
            if let Some((_, (_, receiver))) = late.pop_first() {
                let Receiver { own_queue, unacked, .. } = *receiver;
                self.give_back_rest(own_queue, unacked);
            }
        }
        true
    }

    fn apply_send(
        &mut self,
        stored: Stored,
        retain: Option<Retain>,
        place: Place,
        out: &mut [(ShardId, Vec<Placed>)],
    ) -> Option<FanOutKey> {
        match place {
            Place::Here => {} // of an ACK
            Place::Home { home, need } => {
                out[home as usize].1.push(Placed { need, retain: None, stored });
            }
            Place::Topic { retained, .. } => {
                let destination = self.destination(stored.destination()).ok()?;
                if let Some((home, need)) = retained {
                    let mut copy = Stored::new(&stored.message());
                    copy.expires_ms = stored.expires_ms;
                    let retain = Some(retain == Some(Retain::Set));
                    out[home as usize].1.push(Placed { need, retain, stored: copy });
                }
                let retained = retain == Some(Retain::Set);
                return self.publish_stored(stored, destination, destination.home, retained);
            }
        }
        None
    }

    /// Sends every home what it has to place, and lets the connection go on.
    fn conclude(&mut self, applying: Box<Applying>) {
        let Applying { key, token, receipt, out, mut going, .. } = *applying;
        let homes = out.iter().fold(0, |bits, (home, _)| bits | home.bit());
        going.retain(|fan_out| self.fan_outs.is_live(*fan_out));
        let waits_here = if going.is_empty() { 0 } else { self.id.bit() };
        let to = self.ask_in_any_case(key, receipt.as_deref(), homes | waits_here);
        if let Some((last, earlier)) = going.split_last() {
            let more = if homes & waits_here == 0 { earlier } else { &going }; // this home answers, too
            self.await_fan_outs(key, more, to);
            if homes & waits_here == 0 {
                self.await_fan_out(key, *last, to.asker());
            }
        }
        for (home, messages) in out {
            self.tell(home, QueueMail::Commit(messages, token, to.asker()));
        }
        if let Some(conn) = self.conns.get_mut(key) {
            conn.committing = None;
        }
        self.go_on_after(key, Question::Turn(token));
    }
}
