//! COMMIT over several homes: all of them keep room, then all apply (STOMP 1.2, "COMMIT").
//!
//! ```text
//! COMMIT ─► acks still held? ─► every home: room for its messages? ─► all yes: apply everywhere ─► RECEIPT
//!                └─ E-TX-LOST               └─ one no: give the room back, ERROR, nothing took effect
//! ```
//! The connection's next frames wait meanwhile. Where only this shard is concerned it all happens at once.

use stompica_proto::encode::Offender;
use stompica_proto::error::Code;
use stompica_proto::{Frame, ProtocolError};

use super::Shard;
use super::parking::{Pause, Question};
use super::passing::Load;
use crate::command::Flow;
use crate::fan_out::FanOutKey;
use crate::ids::{ConnKey, ShardId};
use crate::io::conn::Conn;
use crate::options::Retain;
use crate::queue::asker::AnswerTo;
use crate::queue::mail::{Need, QueueMail};
use crate::queue::stored::Stored;
use crate::router::Destination;
use crate::router::destination::Kind;
use crate::tx::{self, Commit, Operation};

/// The name under which a home keeps room: who asked, and its token.
pub(super) type Prepared = (ShardId, u64);

/// What a transaction needs of each home.
type Needs = Vec<(ShardId, Vec<Need>)>;

impl Shard {
    /// COMMIT. Whatever must wait parks the connection in front of the frame, or behind it.
    pub(crate) fn commit(
        &mut self,
        key: ConnKey,
        id: &[u8],
        frame: &Frame<'_>,
    ) -> Result<Flow, ProtocolError> {
        let Some(open) = self.conns.get_mut(key).and_then(|conn| conn.transactions.take()) else {
            return Err(tx::not_open(id));
        };
        let checked = open.operations(id).and_then(|operations| self.check(key, operations));
        let Some(conn) = self.conns.get_mut(key) else { return Ok(Flow::Done) };
        let open = conn.transactions.insert(open);
        let (needs, pause) = checked?;
        if let Some(pause) = pause {
            self.park(key, pause);
            return Ok(Flow::Parked);
        }
        let operations = open.end(id)?;
        conn.wait.passed();
        self.commit_prepared(key, operations, needs, frame)
    }

    /// Does what a frame asks for as a transaction of its own.
    pub(crate) fn commit_operations(
        &mut self,
        key: ConnKey,
        operations: Vec<Operation>,
        frame: &Frame<'_>,
    ) -> Result<Flow, ProtocolError> {
        let (needs, pause) = self.check(key, &operations)?;
        if let Some(pause) = pause {
            self.park(key, pause);
            return Ok(Flow::Parked);
        }
        self.commit_prepared(key, operations, needs, frame)
    }

    fn commit_prepared(
        &mut self,
        key: ConnKey,
        operations: Vec<Operation>,
        needs: Needs,
        frame: &Frame<'_>,
    ) -> Result<Flow, ProtocolError> {
        self.next_token += 1;
        let token = self.next_token;
        let receipt = frame.header(stompica_proto::header::RECEIPT).map(|id| (*id).into());
        let homes: Vec<ShardId> =
            needs.iter().map(|(home, _)| *home).filter(|home| *home != self.id).collect();
        let waiting = homes.len();
        let offender = super::close::describe(frame);
        let commit = Commit { operations, token, receipt, homes, waiting, refusal: None, offender };
        let to = AnswerTo { shard: self.id, conn: key, token, awaited: true };
        let (own, others): (Vec<_>, Vec<_>) = needs.into_iter().partition(|(home, _)| *home == self.id);
        for (home, needs) in own {
            self.prepare(needs, (home, token))?;
        }
        for (home, needs) in others {
            self.tell(home, QueueMail::Prepare(needs, to.asker()));
        }
        if waiting == 0 {
            self.apply(key, commit);
            let waits = self.conns.get(key).is_some_and(|conn| conn.wait.is_on());
            return Ok(if waits { Flow::Waiting } else { Flow::Done });
        }
        if let Some(conn) = self.conns.get_mut(key) {
            conn.committing = Some(Box::new(commit));
        }
        self.wait_for(key, Question::Commit(token));
        Ok(Flow::Waiting)
    }

    /// Whether a transaction can take effect now: the room it needs at each home, and what it has to wait for.
    ///
    /// # Errors
    /// `E-TX-LOST`; what a SEND of it would get.
    fn check(
        &mut self,
        key: ConnKey,
        operations: &[Operation],
    ) -> Result<(Needs, Option<Pause>), ProtocolError> {
        let mut needs = Needs::new();
        for operation in operations {
            match operation {
                Operation::Ack { subscription, number, .. } => {
                    let held = self.router.subscription_mut(*subscription).is_some_and(|found| {
                        found.receiver.as_ref().is_some_and(|receiver| receiver.unacked.holds(*number))
                    });
                    if !held {
                        let text = "an ACK or NACK of the transaction is void: its delivery was taken back";
                        return Err(ProtocolError::new(Code::TransactionLost, text));
                    }
                }
                Operation::Send(stored, retain) => {
                    let destination = self.destination(stored.destination())?;
                    let Destination { kind, home, .. } = destination;
                    let shards = if kind.is_topic() { self.router.remote(destination) } else { home.bit() };
                    let (name, shards) = (stored.destination(), shards & !self.id.bit());
                    let load = Load { name, destination, shards, bytes: stored.size(), kept: true };
                    if let Some(pause) = self.pause_for(key, &load) {
                        return Ok((Vec::new(), Some(pause)));
                    }
                    let retained = *retain == Some(Retain::Set);
                    if kind == Kind::Queue || retained {
                        add_need(&mut needs, home, stored, retained);
                    }
                }
            }
        }
        Ok((needs, None))
    }

    /// Keeps room for a transaction in queues of this home, in all of them or none.
    ///
    /// # Errors
    /// `E-QUEUE-FULL`, `E-DEST-COUNT`.
    pub(super) fn prepare(&mut self, mut needs: Vec<Need>, name: Prepared) -> Result<(), ProtocolError> {
        let outcome = needs.iter_mut().try_for_each(|need| self.reserve(need));
        self.prepared.insert(name, needs);
        if outcome.is_err() {
            self.cancel(name);
        }
        outcome
    }

    fn reserve(&mut self, need: &mut Need) -> Result<(), ProtocolError> {
        if need.retained {
            need.reserved = self.reserve_retained(&need.name)?;
            return Ok(());
        }
        let is_new = self.home.find(&need.name).is_none();
        if let Some(queue) = self.queue_for(&need.name, need.count, need.bytes)? {
            (need.reserved, need.created) = (true, is_new);
            need.first = self.home.reserve(queue, need.count, need.bytes);
        }
        Ok(())
    }

    /// Nothing comes of a transaction: gives the room free that was kept for it.
    pub(super) fn cancel(&mut self, name: Prepared) {
        self.settle_prepared(name, Vec::new(), true);
    }

    /// Puts the messages of a transaction at the places that were kept for them; those to worker topics and temporary
    /// queues, for which none are, behind all others.
    pub(super) fn settle_prepared(&mut self, name: Prepared, messages: Vec<Stored>, undo: bool) {
        let mut needs = self.prepared.remove(&name).unwrap_or_default();
        let mut others = Vec::new();
        for stored in messages {
            let need = needs.iter_mut().find(|need| need.takes(stored.destination()));
            match need.and_then(|need| Some((self.home.find(&need.name)?, need))) {
                Some((queue, need)) => {
                    self.home.enqueue_at(queue, stored, need.first + need.placed);
                    need.placed += 1;
                }
                None => others.push(stored),
            }
        }
        for need in needs.iter().filter(|need| need.reserved) {
            if need.retained {
                self.retained.reserve(-1, 0);
            } else if let Some(queue) = self.home.find(&need.name) {
                self.home.release(queue, need.first, need.count, need.bytes);
                if undo && need.created {
                    self.home.delete_unused(queue);
                }
            }
        }
        self.enqueue_all(others);
        self.count_queues();
    }

    /// A home has answered: with room, or not.
    pub(super) fn prepare_answered(&mut self, key: ConnKey, refusal: Option<ProtocolError>) {
        let Some(conn) = self.conns.get_mut(key) else { return };
        let Some(commit) = &mut conn.committing else { return };
        commit.waiting -= 1;
        if commit.refusal.is_none() {
            commit.refusal = refusal;
        }
        if commit.waiting > 0 {
            return;
        }
        let Some(mut commit) = conn.committing.take() else { return };
        let question = Question::Commit(commit.token);
        match commit.refusal.take() {
            None => self.apply(key, *commit),
            Some(error) => {
                self.cancel_everywhere(&commit);
                self.fail_with(key, error, &commit.offender);
            }
        }
        self.go_on_after(key, question);
    }

    fn cancel_everywhere(&mut self, commit: &Commit) {
        self.cancel((self.id, commit.token));
        for home in &commit.homes {
            self.tell(*home, QueueMail::Cancel(commit.token));
        }
    }

    /// Nobody waits any more for a COMMIT that waits for its homes: nothing takes effect. Returns what an ERROR tells
    /// about it.
    pub(super) fn abandon_commit(&mut self, key: ConnKey) -> Option<Offender> {
        let commit = self.conns.get_mut(key).and_then(|conn: &mut Conn| conn.committing.take())?;
        self.cancel_everywhere(&commit);
        Some(commit.offender)
    }

    /// Does all that a transaction holds; nothing can fail any more.
    fn apply(&mut self, key: ConnKey, commit: Commit) {
        let Commit { operations, token, receipt, homes, .. } = commit;
        // Also a home that gets no message has to learn that the room it kept is free.
        let prepared = homes.iter().copied().chain([self.id]);
        let mut queued: Vec<(ShardId, Vec<Stored>)> = prepared.map(|home| (home, Vec::new())).collect();
        let mut retained = Vec::new();
        let mut going = Vec::new();
        self.batch.join(true);
        self.fan_outs.in_order = true;
        for operation in operations {
            match operation {
                Operation::Ack { subscription, number, verdict } => {
                    self.acknowledge(key, subscription, number, verdict);
                }
                Operation::Send(stored, retain) => {
                    going.extend(self.apply_send(stored, retain, &mut queued, &mut retained));
                }
            }
        }
        self.fan_outs.in_order = false;
        self.batch.join(false);
        let homes = queued.iter().fold(0, |bits, (home, _)| bits | home.bit()) & !self.id.bit();
        going.retain(|fan_out| self.fan_outs.is_live(*fan_out));
        let waits_here = if going.is_empty() { 0 } else { self.id.bit() };
        let to = self.ask_in_any_case(key, receipt.as_deref(), homes | waits_here);
        if let Some((last, earlier)) = going.split_last() {
            self.await_fan_outs(key, earlier, to);
            self.await_fan_out(key, *last, to.asker());
        }
        for (home, messages) in queued {
            if home == self.id {
                self.settle_prepared((self.id, token), messages, false);
            } else {
                self.tell(home, QueueMail::Commit(messages, token, to.asker()));
            }
        }
        for (home, stored, set) in retained {
            self.tell(home, QueueMail::Retain(stored, set, None));
        }
    }

    fn apply_send(
        &mut self,
        stored: Stored,
        retain: Option<Retain>,
        queued: &mut Vec<(ShardId, Vec<Stored>)>,
        retained: &mut Vec<(ShardId, Stored, bool)>,
    ) -> Option<FanOutKey> {
        let destination = self.destination(stored.destination()).ok()?;
        let Destination { kind, home, .. } = destination;
        if kind.is_topic() {
            if let Some(retain) = retain {
                let mut copy = Stored::new(&stored.message());
                copy.expires_ms = stored.expires_ms;
                retained.push((home, copy, retain == Retain::Set));
            }
            return self.publish_stored(stored, destination, home, retain == Some(Retain::Set));
        }
        match queued.iter_mut().find(|(at, _)| *at == home) {
            Some((_, messages)) => messages.push(stored),
            None => queued.push((home, vec![stored])),
        }
        None
    }
}

fn add_need(needs: &mut Needs, home: ShardId, stored: &Stored, retained: bool) {
    let at = needs.iter().position(|(at, _)| *at == home).unwrap_or_else(|| {
        needs.push((home, Vec::new()));
        needs.len() - 1
    });
    let (name, bytes) = (stored.destination(), stored.size() as u64);
    match needs[at].1.iter_mut().rfind(|need| *need.name == *name && need.retained == retained) {
        Some(need) => {
            need.count += 1;
            need.bytes += bytes;
        }
        None => needs[at].1.push(Need { name: name.into(), retained, count: 1, bytes, ..Need::default() }),
    }
}
