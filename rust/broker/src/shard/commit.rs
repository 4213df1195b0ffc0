//! COMMIT over several homes: all of them keep room, then all apply (STOMP 1.2, "COMMIT").
//!
//! ```text
//! COMMIT ─► acks still held? ─► every home: room for its messages? ─► all yes: apply everywhere ─► RECEIPT
//!                └─ E-TX-LOST               └─ one no: give the room back, ERROR, nothing took effect
//! ```
//! Each step goes on over as many turns as it needs; the connection's next frames wait meanwhile. Until all homes have
//! said yes, whatever ends the connection cancels it; from then on it takes effect, whatever happens. Deliveries of the
//! connection do not time out while its COMMIT is under way, so that what was held when it was checked is held when it is
//! applied. `reserve.rs` has the homes' part.

use std::collections::VecDeque;
use std::mem::take;

use stompica_proto::encode::Offender;
use stompica_proto::error::Code;
use stompica_proto::{Frame, ProtocolError};

use super::Shard;
use super::jobs::Job;
use super::parking::{Pause, Question};
use super::passing::Load;
use crate::command::Flow;
use crate::fan_out::FanOutKey;
use crate::ids::{ConnKey, ShardId};
use crate::io::conn::Conn;
use crate::options::Retain;
use crate::plan::{Place, Plan};
use crate::queue::asker::AnswerTo;
use crate::queue::mail::{Placed, QueueMail};
use crate::queue::stored::Stored;
use crate::router::Destination;
use crate::router::destination::Kind;
use crate::tx::{self, Commit, Committing, Operation};

/// What an operation costs of a turn's visits.
const OPERATION_VISITS: usize = 2;

/// A COMMIT that was decided, as far as it has not taken effect.
#[derive(Debug)]
pub(super) struct Applying {
    key: ConnKey,
    token: u64,
    /// With their numbers in the plan.
    operations: VecDeque<(usize, Operation)>,
    plan: Plan,
    receipt: Option<Box<[u8]>>,
    /// For each home of the plan, what goes there.
    out: Vec<(ShardId, Vec<Placed>)>,
    /// Messages to topics that are on their way to their receivers.
    going: Vec<FanOutKey>,
}

impl Applying {
    /// Whose it is.
    pub(super) fn conn(&self) -> ConnKey {
        self.key
    }
}

impl Shard {
    /// COMMIT.
    ///
    /// # Errors
    /// `E-TX-UNKNOWN`; what else is wrong with it is told as its ERROR later.
    pub(crate) fn commit(
        &mut self,
        key: ConnKey,
        id: &[u8],
        frame: &Frame<'_>,
    ) -> Result<Flow, ProtocolError> {
        let open = self.conns.get_mut(key).and_then(|conn| conn.transactions.as_mut());
        let operations = open.ok_or_else(|| tx::not_open(id))?.end(id)?;
        Ok(self.commit_operations(key, operations, frame))
    }

    /// Does what a frame asks for as a transaction of its own.
    pub(crate) fn commit_operations(
        &mut self,
        key: ConnKey,
        operations: Vec<Operation>,
        frame: &Frame<'_>,
    ) -> Flow {
        let token = self.next_token();
        let commit = Commit {
            token,
            operations,
            plan: Plan::new(self.shared.hasher.clone()),
            receipt: frame.header(stompica_proto::header::RECEIPT).map(|id| (*id).into()),
            offender: super::close::describe(frame),
            asked: Vec::new(),
            waiting: 0,
            refusal: None,
        };
        let Some(conn) = self.conns.get_mut(key) else { return Flow::Done };
        conn.committing = Some(Committing::Deciding(Box::new(commit)));
        self.jobs.push(Job::Check(key, token));
        self.begin_jobs();
        match self.conns.get(key) {
            Some(conn) if conn.wait.is_on() => return Flow::Waiting,
            Some(Conn { committing: Some(Committing::Deciding(_)), .. }) => {
                self.wait_for(key, Question::Commit(token));
            }
            Some(Conn { committing: Some(Committing::Applying), .. }) => {
                self.wait_for(key, Question::Turn(token));
            }
            _ => return Flow::Done,
        }
        Flow::Waiting
    }

    /// A COMMIT had to wait for room, and is to try again.
    pub(super) fn resume_commit(&mut self, key: ConnKey) -> bool {
        let committing = self.conns.get(key).and_then(|conn| conn.committing.as_ref());
        let Some(Committing::Deciding(commit)) = committing else { return false };
        let token = commit.token;
        self.wait_for(key, Question::Commit(token));
        self.jobs.push(Job::Check(key, token));
        true
    }

    /// Whether this is the token of a COMMIT of the connection that is not decided yet.
    pub(super) fn is_deciding(&self, key: ConnKey, token: u64) -> bool {
        let committing = self.conns.get(key).and_then(|conn| conn.committing.as_ref());
        matches!(committing, Some(Committing::Deciding(commit)) if commit.token == token)
    }

    fn take_commit(&mut self, key: ConnKey) -> Option<Box<Commit>> {
        let conn = self.conns.get_mut(key)?;
        match conn.committing.take()? {
            Committing::Deciding(commit) => Some(commit),
            applying @ Committing::Applying => {
                conn.committing = Some(applying);
                None
            }
        }
    }

    /// Goes on with the check of a COMMIT, as far as the turn allows; then asks the homes.
    pub(super) fn check_commit(&mut self, key: ConnKey, token: u64) {
        if !self.is_deciding(key, token) {
            return;
        }
        let Some(mut commit) = self.take_commit(key) else { return };
        let checked = self.check(key, &mut commit);
        let is_done = commit.plan.len() == commit.operations.len();
        let Some(conn) = self.conns.get_mut(key) else { return };
        match checked {
            Err(error) => self.fail_with(key, error, &commit.offender),
            Ok(pause) => {
                conn.committing = Some(Committing::Deciding(commit));
                match pause {
                    Some(pause) => {
                        // What it waits for is room now, not an answer.
                        self.end_wait_for(key, Question::Commit(token));
                        self.park(key, pause);
                    }
                    None if is_done => self.ask_homes(key),
                    None => self.jobs.push(Job::Check(key, token)),
                }
            }
        }
    }

    /// Checks whether a transaction can take effect now, and finds where; returns what it has to wait for.
    ///
    /// # Errors
    /// `E-TX-LOST`; what a SEND of it would get.
    fn check(&mut self, key: ConnKey, commit: &mut Commit) -> Result<Option<Pause>, ProtocolError> {
        let Commit { operations, plan, .. } = commit;
        for operation in operations.iter().skip(plan.len()) {
            if self.budget.is_exhausted() {
                break;
            }
            self.budget.visit(OPERATION_VISITS);
            match operation {
                Operation::Ack { subscription, number, .. } => {
                    let held = self.router.subscription_mut(*subscription).is_some_and(|found| {
                        found.receiver.as_ref().is_some_and(|receiver| receiver.unacked.holds(*number))
                    });
                    if !held {
                        let text = "an ACK or NACK of the transaction is void: its delivery was taken back";
                        return Err(ProtocolError::new(Code::TransactionLost, text));
                    }
                    plan.add_ack();
                }
                Operation::Send(stored, retain) => {
                    if let Some(pause) = self.check_send(key, stored, *retain, plan)? {
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
        stored: &Stored,
        retain: Option<Retain>,
        plan: &mut Plan,
    ) -> Result<Option<Pause>, ProtocolError> {
        let destination = self.destination(stored.destination())?;
        let Destination { kind, home, .. } = destination;
        let shards = if kind.is_topic() { self.router.remote(destination) } else { home.bit() };
        let (name, shards) = (stored.destination(), shards & !self.id.bit());
        let load = Load { name, destination, shards, bytes: stored.size(), kept: true };
        let pause = self.pause_for(key, &load);
        if pause.is_none() {
            match kind.is_topic() {
                true => plan.add_topic(home, stored, retain),
                false => plan.add_queued(home, stored, kind == Kind::Queue),
            }
        }
        Ok(pause)
    }

    /// All is checked: asks every home, this one included, to keep room.
    fn ask_homes(&mut self, key: ConnKey) {
        let Some(conn) = self.conns.get_mut(key) else { return };
        conn.wait.passed();
        let Some(Committing::Deciding(commit)) = &mut conn.committing else { return };
        let needs = commit.plan.take_needs();
        commit.asked = needs.iter().map(|(home, _)| *home).collect();
        commit.waiting = needs.len();
        let to = AnswerTo { shard: self.id, conn: key, token: commit.token, awaited: true };
        if needs.is_empty() {
            return self.decide(key);
        }
        for (home, needs) in needs {
            self.tell(home, QueueMail::Prepare(needs, to.asker()));
        }
    }

    /// A home has answered: with room, or not.
    pub(super) fn prepare_answered(&mut self, key: ConnKey, refusal: Option<ProtocolError>) {
        let committing = self.conns.get_mut(key).and_then(|conn| conn.committing.as_mut());
        let Some(Committing::Deciding(commit)) = committing else { return };
        commit.waiting -= 1;
        if commit.refusal.is_none() {
            commit.refusal = refusal;
        }
        if commit.waiting == 0 {
            self.decide(key);
        }
    }

    /// Every home has answered.
    fn decide(&mut self, key: ConnKey) {
        let Some(mut commit) = self.take_commit(key) else { return };
        if let Some(error) = commit.refusal.take() {
            self.cancel_everywhere(&commit);
            return self.fail_with(key, error, &commit.offender);
        }
        let Commit { token, operations, plan, receipt, .. } = *commit;
        if let Some(conn) = self.conns.get_mut(key) {
            conn.committing = Some(Committing::Applying);
        }
        // From now on nothing ends its wait but the end of its work.
        if self.end_wait_for(key, Question::Commit(token)) {
            self.wait_for(key, Question::Turn(token));
        }
        let out = plan.homes().map(|home| (home, Vec::new())).collect();
        let operations = operations.into_iter().enumerate().collect();
        self.jobs.push(Job::Apply(Box::new(Applying {
            key,
            token,
            operations,
            plan,
            receipt,
            out,
            going: Vec::new(),
        })));
    }

    fn cancel_everywhere(&mut self, commit: &Commit) {
        for home in &commit.asked {
            self.tell(*home, QueueMail::Cancel(commit.token));
        }
    }

    /// Nobody waits any more for a COMMIT that is not decided: nothing takes effect. Returns what an ERROR tells about it.
    pub(super) fn abandon_commit(&mut self, key: ConnKey) -> Option<Offender> {
        let commit = self.take_commit(key)?;
        self.cancel_everywhere(&commit);
        Some(commit.offender)
    }

    /// A connection that is about to lose its subscriptions has acknowledged what a COMMIT says that was decided.
    pub(super) fn finish_acks(&mut self, key: ConnKey) {
        let committing = self.conns.get(key).and_then(|conn| conn.committing.as_ref());
        if !matches!(committing, Some(Committing::Applying)) {
            return;
        }
        let Some(applying) = self.jobs.applying(key) else { return };
        let (acks, rest) = take(&mut applying.operations)
            .into_iter()
            .partition(|(_, one)| matches!(one, Operation::Ack { .. }));
        applying.operations = rest;
        let acks: VecDeque<(usize, Operation)> = acks;
        for (_, operation) in acks {
            if let Operation::Ack { subscription, number, verdict } = operation {
                self.acknowledge(key, subscription, number, verdict);
            }
        }
    }

    /// Goes on with a COMMIT that was decided, as far as the turn allows; nothing can fail any more.
    pub(super) fn apply(&mut self, mut applying: Box<Applying>) {
        let key = applying.key;
        self.fan_outs.in_order = true;
        let mut is_done = false;
        while !self.budget.is_exhausted() || applying.plan.is_open() {
            let Some((at, operation)) = applying.operations.pop_front() else {
                is_done = true;
                break;
            };
            self.budget.visit(OPERATION_VISITS);
            let place = applying.plan.follow(at);
            self.batch.join(applying.plan.is_open());
            match operation {
                Operation::Ack { subscription, number, verdict } => {
                    self.acknowledge(key, subscription, number, verdict);
                }
                Operation::Send(stored, retain) => {
                    let going = self.apply_send(stored, retain, place, &mut applying.out);
                    applying.going.extend(going);
                }
            }
        }
        self.fan_outs.in_order = false;
        self.batch.join(false);
        match is_done {
            true => self.conclude(applying),
            false => self.jobs.push(Job::Apply(applying)),
        }
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
