//! COMMIT across several homes: all of them reserve room, then all apply it (STOMP 1.2, "COMMIT").
//!
//! ```text
//! COMMIT ─► acks valid? ─► every home: room for its messages? ─► all yes: apply everywhere ─► RECEIPT
//!                └─ E-TX-LOST               └─ one no: release the room, ERROR, nothing took effect
//! ```
//! Each step takes as many turns as it needs; the connection's next frames wait meanwhile. If the connection ends
//! before all homes have agreed, the COMMIT is cancelled; after that it is applied in any case. Deliveries of the
//! connection neither time out nor are forgotten during its COMMIT, so the deliveries that were in flight at the check
//! are in flight when it is applied. `apply.rs` follows the decision; `queue/prepared.rs` is the homes' part.

use stompica_proto::error::Code;
use stompica_proto::{Frame, ProtocolError};

use super::Owners;
use super::commits::{Applying, Discarded};
use crate::collections::paged_deque::PagedDeque;
use crate::connection::Effect;
use crate::connection::acknowledgement::Acknowledgement;
use crate::connection::flow::Flow;
use crate::connection::pausing::{Pause, Question};
use crate::connection::transaction::plan::Plan;
use crate::connection::transaction::{self, Commit, Committing, Operation, Transactions};
use crate::delivery::admission::Load;
use crate::destination::Kind;
use crate::door::planted;
use crate::ids::{ConnKey, ShardId};
use crate::message::OwnedMessage;
use crate::message::options::Retain;
use crate::queue::consumer_state::ConsumerState;
use crate::queue::mail::{Places, TransactionNote};
use crate::requester::AnswerTo;
use crate::router::Destination;
use crate::router::reach::Reach;
use crate::turn::jobs::Job;

/// The visits that an operation counts as.
pub(crate) const OPERATION_VISITS: usize = 2;
/// Operations that are discarded at once, whatever else the turn did.
const DISCARDED_AT_ONCE: usize = 256;

impl Owners<'_> {
    /// COMMIT.
    ///
    /// # Errors
    /// `E-TX-UNKNOWN`; all other errors are sent as ERRORs later.
    pub(crate) fn commit(
        &mut self,
        key: ConnKey,
        id: &[u8],
        frame: &Frame<'_>,
    ) -> Result<Flow, ProtocolError> {
        let open = self.connections.table.get_mut(key).and_then(|conn| conn.transactions.as_mut());
        let operations = open.ok_or_else(|| transaction::not_open(id))?.end(id)?;
        Ok(self.commit_operations(key, operations, frame))
    }

    /// Executes the operations of a frame as a transaction of its own.
    pub(crate) fn commit_operations(
        &mut self,
        key: ConnKey,
        operations: PagedDeque<Operation>,
        frame: &Frame<'_>,
    ) -> Flow {
        let token = self.connections.next_token();
        let commit = Commit {
            token,
            operations,
            plan: Plan::new(self.turn.hasher.clone()),
            receipt: frame.header(stompica_proto::header::RECEIPT).map(|id| (*id).into()),
            offender: crate::connection::answering::describe(frame),
            asked: Vec::new(),
            waiting: 0,
            places: Vec::new(),
            refusal: None,
        };
        let Some(conn) = self.connections.table.get_mut(key) else { return Flow::Done };
        conn.committing = Some(Committing::Deciding(Box::new(commit)));
        self.turn.jobs.push(Job::Check(key, token));
        self.connections.wait_for(self.turn, key, Question::Commit(token));
        self.connections.effects.push_back(Effect::RetriesCommit); // a small COMMIT is decided within the turn
        Flow::Waiting
    }

    /// Whether this is the token of a COMMIT of the connection that is not yet decided.
    pub(crate) fn is_deciding(&self, key: ConnKey, token: u64) -> bool {
        let committing = self.connections.table.get(key).and_then(|conn| conn.committing.as_ref());
        matches!(committing, Some(Committing::Deciding(commit)) if commit.token == token)
    }

    /// Continues to check a COMMIT, as far as the turn allows; then asks the homes.
    pub(crate) fn check_commit(&mut self, key: ConnKey, token: u64) {
        if !self.is_deciding(key, token) {
            return;
        }
        let Some(mut commit) = self.connections.take_commit(key) else { return };
        let checked = self.check(key, &mut commit);
        let is_done = commit.plan.len() == commit.operations.len();
        let Some(conn) = self.connections.table.get_mut(key) else { return };
        match checked {
            Err(error) => {
                self.connections.fail_with(self.turn, key, error, &commit.offender);
                self.discard_commit(*commit);
            }
            Ok(pause) => {
                conn.committing = Some(Committing::Deciding(commit));
                match pause {
                    Some(pause) => {
                        // It waits for room now, not for an answer.
                        self.connections.end_wait_for(key, Question::Commit(token));
                        self.connections.park(self.turn, key, pause);
                    }
                    None if is_done => {
                        self.ask_homes(key);
                        if planted!("read-on-behind-commit", if self.is_deciding(key, token)) {
                            self.connections.go_on_after(self.turn, key, Question::Commit(token));
                        }
                    }
                    None => self.turn.jobs.push(Job::Check(key, token)),
                }
                self.connections.count_input(self.turn, key); // the plan has grown
            }
        }
    }

    /// Checks whether a transaction can take effect now, and determines the homes; returns the reason to wait, if
    /// any.
    ///
    /// # Errors
    /// `E-TX-LOST`; the errors that one of its SENDs would get.
    fn check(&mut self, key: ConnKey, commit: &mut Commit) -> Result<Option<Pause>, ProtocolError> {
        let Commit { operations, plan, .. } = commit;
        while let Some(operation) = operations.get(plan.len()) {
            if self.turn.budget.is_exhausted() {
                break;
            }
            self.turn.budget.visit(OPERATION_VISITS);
            match operation {
                Operation::Ack { acknowledgement, first } => {
                    let Acknowledgement { subscription, number, .. } = *acknowledgement;
                    let consumer = self.queues.consumers.get(subscription);
                    let is_whole = |it: &ConsumerState| it.unacked.holds(number) && it.timed_out < *first;
                    if !consumer.is_some_and(is_whole) {
                        let text = "an ACK or NACK of the transaction is void: a delivery that it covers was requeued";
                        return Err(ProtocolError::new(Code::TransactionLost, text));
                    }
                    plan.add_ack();
                }
                Operation::Send(message, retain) => {
                    if let Some(pause) = self.check_send(key, message, *retain, plan)? {
                        return Ok(Some(pause));
                    }
                }
            }
        }
        Ok(None)
    }

    fn check_send(
        &mut self,
        key: ConnKey,
        message: &OwnedMessage,
        retain: Option<Retain>,
        plan: &mut Plan,
    ) -> Result<Option<Pause>, ProtocolError> {
        if message.persistent && self.queues.home.store.is_far_behind() {
            return Ok(Some(Pause::Store));
        }
        let destination = self.router.destination_of(self.turn, message.destination())?;
        let Destination { kind, home, .. } = destination;
        let Reach { remote: shards, fan_out_size, is_full, .. } =
            self.router.reach_of_any(destination, self.turn.id);
        let (name, bytes) = (message.destination(), message.size());
        let load = Load { name, destination, shards, fan_out_size, is_full, bytes, kept: true };
        let pause = self.delivery().pause_for(key, &load);
        if pause.is_none() {
            match kind.is_topic() {
                true => plan.add_topic(home, message, retain),
                false => plan.add_queued(
                    home,
                    message,
                    matches!(kind, Kind::Queue | Kind::TemporaryQueue | Kind::WorkerTopic),
                ),
            }
        }
        Ok(pause)
    }

    /// Asks every home, including this one, to reserve room, after all checks. A wait for room before that counts no
    /// longer: `publish_timeout` begins again.
    fn ask_homes(&mut self, key: ConnKey) {
        let Some(conn) = self.connections.table.get_mut(key) else { return };
        conn.wait.passed();
        if let Some(question) = conn.wait.question() {
            self.connections.end_wait_for(key, question);
            self.connections.wait_for(self.turn, key, question);
        }
        let committing = self.connections.table.get_mut(key).and_then(|conn| conn.committing.as_mut());
        let Some(Committing::Deciding(commit)) = committing else { return };
        let reservations = commit.plan.take_reservations();
        commit.asked = reservations.iter().map(|(home, _)| *home).collect();
        commit.waiting = reservations.len();
        let to = AnswerTo { shard: self.turn.id, conn: key, token: commit.token, awaited: true };
        if reservations.is_empty() {
            return self.decide(key);
        }
        for (home, reservations) in reservations {
            self.notes.tell(home, TransactionNote::Prepare(reservations, to.requester()));
        }
    }

    /// Handles a home's answer: room is reserved, or refused.
    pub(crate) fn prepare_answered(
        &mut self,
        key: ConnKey,
        outcome: Result<(ShardId, Places), ProtocolError>,
    ) {
        let committing = self.connections.table.get_mut(key).and_then(|conn| conn.committing.as_mut());
        let Some(Committing::Deciding(commit)) = committing else { return };
        commit.waiting -= 1;
        match outcome {
            Ok(places) => commit.places.push(places),
            Err(refusal) => _ = commit.refusal.get_or_insert(refusal),
        }
        if commit.waiting == 0 {
            self.decide(key);
        }
    }

    /// Decides once every home has answered.
    fn decide(&mut self, key: ConnKey) {
        let Some(mut commit) = self.connections.take_commit(key) else { return };
        if let Some(error) = commit.refusal.take() {
            self.cancel_everywhere(&commit);
            self.connections.fail_with(self.turn, key, error, &commit.offender);
            return self.discard_commit(*commit);
        }
        debug_assert_eq!(
            commit.places.len(),
            commit.asked.len(),
            "each home has returned its reserved places"
        );
        if let Some(conn) = self.connections.table.get_mut(key) {
            conn.committing = Some(Committing::Applying { has_acks: true });
        }
        self.connections.count_input(self.turn, key);
        // From now on its wait ends only when all of it is applied.
        let (receipt, own) = (commit.receipt.take(), self.turn.id.bit());
        let to = self.connections.ask_in_any_case(self.turn, key, receipt.as_deref(), own);
        if self.connections.end_wait_for(key, Question::Commit(commit.token)) {
            self.connections.wait_for(self.turn, key, Question::Turn(to.token));
        }
        let transaction = self.queues.home.store.begin_transaction();
        let applying = Applying::new(key, *commit, to.requester(), transaction);
        self.commits.applying.push_back(Box::new(applying));
        self.turn.jobs.push(Job::Apply);
    }

    fn cancel_everywhere(&mut self, commit: &Commit) {
        for home in &commit.asked {
            if planted!("cancel-forgotten") {
                return;
            }
            self.notes.tell(*home, TransactionNote::Cancel(commit.token));
        }
    }

    /// Discards a COMMIT that was not decided: none of it takes effect.
    pub(crate) fn forget_commit(&mut self, commit: Commit) {
        self.cancel_everywhere(&commit);
        self.discard_commit(commit);
    }

    fn discard_commit(&mut self, commit: Commit) {
        let Commit { operations, mut plan, .. } = commit;
        let reservations =
            plan.take_reservations().into_iter().map(|(_, reservations)| reservations).collect();
        self.discard(Discarded { operations, reservations });
    }

    /// Discards a transaction.
    pub(crate) fn discard_operations(&mut self, operations: PagedDeque<Operation>) {
        self.discard(Discarded { operations, reservations: Vec::new() });
    }

    /// Discards the open transactions of a connection that has ended.
    pub(crate) fn discard_transactions(&mut self, open: Option<Box<Transactions>>) {
        for operations in open.into_iter().flat_map(|open| open.end_all()) {
            self.discard_operations(operations);
        }
    }

    fn discard(&mut self, discarded: Discarded) {
        if discarded.len() > DISCARDED_AT_ONCE {
            self.commits.discarded.push_back(Box::new(discarded));
            self.turn.jobs.push(Job::Discard);
        }
    }

    /// Continues to discard a transaction.
    pub(crate) fn proceed_with_discarding(&mut self, mut discarded: Box<Discarded>) {
        while !self.turn.budget.is_exhausted() {
            self.turn.budget.visit(1);
            if !discarded.forget_one() {
                return;
            }
        }
        self.commits.discarded.push_back(discarded);
        self.turn.jobs.push(Job::Discard);
    }
}
