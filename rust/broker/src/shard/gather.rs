//! Questions of diagnostics to all shards, and where their answers go.
//!
//! ```text
//! DIAG, SEND, interval ─► Diagnose to every shard ─► a part of each ─► DIAG frame, or MESSAGE
//! ```
//! Whoever asked by a frame is parked until the answer is there. What nobody asked for costs nothing.

use std::collections::{BTreeMap, HashMap, VecDeque};

use smallvec::SmallVec;
use stompica_proto::encode::Message;

use super::Shard;
use super::assembly::Assembly;
use super::jobs::Job;
use super::parking::Question;
use super::survey::Survey;
use super::timer::Due;
use crate::command::Flow;
use crate::diag::Query;
use crate::diag::answer::Answer;
use crate::diag::part::{self, Report};
use crate::fan_out::FanOutKey;
use crate::ids::{ConnKey, NOBODY};
use crate::io::conn::Phase;
use crate::queue::SubscriptionKey;
use crate::queue::mail::QueueMail;
use crate::queue::stored::Stored;
use crate::router::group::{Place, SubscriptionIndex};

/// What a question takes of a turn's budget, in bytes encoded: every connection may have to be looked at.
const QUESTION_BYTES: usize = 16 << 10;

/// Answers at an interval that are begun in one turn: thousands may be due at once, and each looks at everything.
const TURN_PUSHES_MAX: usize = 32;

/// Rows of an answer that are put together at once; more of them take several turns.
const ROWS_AT_ONCE: usize = 500;

/// Where an answer goes.
#[derive(Debug)]
pub(crate) enum Purpose {
    /// To the connection that asked by a DIAG frame, with a RECEIPT if it wants one.
    Frame(Option<Box<[u8]>>),
    /// To the subscriptions of the destination of a SEND.
    Publish {
        /// The destination.
        name: Box<[u8]>,
        /// The sender's own headers.
        headers: Box<[u8]>,
        /// The RECEIPT it wants.
        receipt: Option<Box<[u8]>>,
    },
    /// To one subscription that asked for an interval.
    Push(SubscriptionKey),
    /// To the subscriptions of `/queue/monitor`, as text.
    Monitor,
}

/// A question that some shards have not answered.
#[derive(Debug)]
struct Gather {
    query: Query,
    /// Who is parked for it.
    conn: ConnKey,
    purpose: Purpose,
    reports: Vec<Report>,
    waiting: usize,
}

/// A question that is asked once the answer to another one is complete: those that have rows are large.
#[derive(Debug)]
struct Later {
    number: u64,
    query: Query,
    conn: ConnKey,
    purpose: Purpose,
}

/// A subscription that gets answers at an interval.
#[derive(Debug)]
struct Watch {
    query: Query,
    interval_ms: u64,
    /// The destination of its MESSAGEs.
    name: Box<[u8]>,
    /// The last question is still out.
    asking: bool,
    /// The first question was asked.
    begun: bool,
    /// When the answer was due that too many others are ahead of.
    due_ms: Option<u64>,
}

/// Questions out, and subscriptions with an interval.
#[derive(Debug, Default)]
pub(super) struct Diagnostics {
    last_number: u64,
    /// What this shard is to tell whoever asked, in the order in which it does.
    pub(super) surveys: VecDeque<Survey>,
    /// Those that some shards have not answered, by number.
    gathers: BTreeMap<u64, Gather>,
    /// The one whose answer has rows, until that is complete; and those behind it.
    busy: Option<u64>,
    later: VecDeque<Later>,
    /// A text for `/queue/monitor` is under way.
    monitoring: bool,
    watches: HashMap<SubscriptionKey, Watch>,
    /// The turn in which an interval asked last, and how many did in it.
    pushed: (u64, usize),
}

impl Diagnostics {
    /// Questions whose answer is not complete.
    pub(super) fn asked(&self) -> usize {
        let assembling = self.busy.is_some_and(|number| !self.gathers.contains_key(&number));
        self.gathers.len() + self.later.len() + usize::from(assembling)
    }

    /// Whether this question waits for its answer.
    fn is_out(&self, number: u64) -> bool {
        self.gathers.contains_key(&number)
            || self.busy == Some(number)
            || self.later.back().is_some_and(|last| last.number >= number)
    }

    /// Where the answer to a question goes of which parts are missing.
    pub(super) fn purpose_of(&self, number: u64) -> Option<&Purpose> {
        let later = || self.later.iter().find(|later| later.number == number).map(|later| &later.purpose);
        self.gathers.get(&number).map(|gather| &gather.purpose).or_else(later)
    }

    /// Whether one more interval may ask in this turn.
    fn may_push(&mut self, turn: u64) -> bool {
        if self.pushed.0 != turn {
            self.pushed = (turn, 0);
        }
        self.pushed.1 += 1;
        self.pushed.1 <= TURN_PUSHES_MAX
    }
}

impl Shard {
    /// Asks all shards for a connection, which waits meanwhile.
    pub(crate) fn ask_for(&mut self, key: ConnKey, query: Query, purpose: Purpose) -> Flow {
        let number = self.ask_everyone(key, query, purpose);
        if !self.diagnostics.is_out(number) {
            return Flow::Done; // there is but one shard, and little to tell
        }
        self.wait_for(key, Question::Query(number));
        Flow::Waiting
    }

    pub(super) fn ask_everyone(&mut self, conn: ConnKey, query: Query, purpose: Purpose) -> u64 {
        self.diagnostics.last_number += 1;
        self.diagnostics.monitoring |= matches!(purpose, Purpose::Monitor);
        let number = self.diagnostics.last_number;
        let later = Later { number, query, conn, purpose };
        let has_to_wait = self.diagnostics.busy.is_some() || !self.diagnostics.later.is_empty();
        match query.has_rows() && has_to_wait {
            true => self.diagnostics.later.push_back(later),
            false => self.ask_now(later),
        }
        number
    }

    fn ask_now(&mut self, Later { number, query, conn, purpose }: Later) {
        if query.has_rows() {
            self.diagnostics.busy = Some(number);
        }
        let waiting = self.shared_len();
        let gather = Gather { query, conn, purpose, reports: Vec::new(), waiting };
        self.diagnostics.gathers.insert(number, gather);
        self.budget.encoded += QUESTION_BYTES;
        self.tell_everyone(|| QueueMail::Diagnose(query, number));
    }

    /// Whether anybody waits for an answer; a connection that has gone does not.
    pub(super) fn is_awaited(&self, conn: ConnKey, purpose: &Purpose) -> bool {
        match purpose {
            Purpose::Frame(_) | Purpose::Publish { .. } => self.conns.get(conn).is_some(),
            Purpose::Push(subscription) => self.diagnostics.watches.contains_key(subscription),
            Purpose::Monitor => true,
        }
    }

    /// A monitor's text is under way.
    pub(super) fn is_monitoring(&self) -> bool {
        self.diagnostics.monitoring
    }

    /// An answer with rows is complete, or given up: the next question is asked soon.
    pub(super) fn finish_question(&mut self) {
        self.diagnostics.busy = None;
        if !self.diagnostics.later.is_empty() {
            self.jobs.push(Job::Ask);
        }
    }

    /// Asks the next question whose answer has rows, and no more than one: where there is but one shard its answer may be
    /// complete at once, and the question behind it is a job of its own.
    pub(super) fn ask_next(&mut self) {
        while self.diagnostics.busy.is_none()
            && let Some(later) = self.diagnostics.later.pop_front()
        {
            if self.is_awaited(later.conn, &later.purpose) {
                return self.ask_now(later);
            }
        }
    }

    /// A part has come; the last one completes the answer.
    pub(super) fn diagnosed(&mut self, number: u64, report: Report) {
        let Some(gather) = self.diagnostics.gathers.get_mut(&number) else { return };
        gather.reports.push(report);
        gather.waiting -= 1;
        if gather.waiting > 0 {
            return;
        }
        let Some(gather) = self.diagnostics.gathers.remove(&number) else { return };
        let Gather { query, conn, purpose, reports, .. } = gather;
        let rows: usize = reports.iter().map(|report| report.part.rows()).sum();
        if rows > ROWS_AT_ONCE {
            let assembly = Assembly::new(number, query, (conn, purpose), reports);
            return self.jobs.push(Job::Assemble(Box::new(assembly)));
        }
        let left_out = reports.iter().map(|report| report.left_out).sum();
        if let Some(part) = part::merge(reports.into_iter().map(|report| report.part)) {
            let mut answer = Answer::new(query, part);
            answer.left_out = left_out;
            self.give_answer(number, conn, purpose, &answer);
        }
    }

    /// Brings a complete answer to whoever asked.
    pub(super) fn give_answer(&mut self, number: u64, conn: ConnKey, purpose: Purpose, answer: &Answer) {
        match purpose {
            Purpose::Frame(receipt) => {
                if self.resume(conn, number) {
                    self.send_frame(conn, answer);
                    self.receipt(conn, receipt.as_deref());
                }
            }
            Purpose::Publish { name, headers, receipt } => {
                let going = self.publish_answer(answer, &name, &headers);
                if self.resume(conn, number) {
                    self.answer_query(conn, receipt.as_deref(), going);
                }
            }
            Purpose::Push(subscription) => self.push_answer(answer, subscription),
            Purpose::Monitor => {
                self.diagnostics.monitoring = false;
                self.publish_monitor(answer);
            }
        }
        if self.diagnostics.busy == Some(number) {
            self.finish_question();
        }
    }

    /// Lets whoever asked go on; false if it is gone, or was refused meanwhile.
    fn resume(&mut self, key: ConnKey, number: u64) -> bool {
        let Some(conn) = self.conns.get(key) else { return false };
        let listens = conn.phase == Phase::Open && !conn.ending;
        self.go_on_after(key, Question::Query(number));
        listens
    }

    fn send_frame(&mut self, key: ConnKey, answer: &Answer) {
        let Some(conn) = self.conns.get_mut(key) else { return };
        let mut frame = Vec::new();
        answer.frame(&mut frame, conn.session.version());
        self.budget.encoded += frame.len();
        self.answer_with(key, frame); // RECEIPTs of earlier frames come first
    }

    /// Tells the sender of a query that its answer was published. What goes on behind this turn is waited for, as that of
    /// any SEND.
    fn answer_query(&mut self, key: ConnKey, receipt: Option<&[u8]>, going: Option<FanOutKey>) {
        match going {
            Some(fan_out) => {
                let asker = self.ask(key, receipt, self.id().bit()).asker();
                self.await_fan_out(key, fan_out, asker);
            }
            None => self.receipt(key, receipt),
        }
    }

    /// Returns what goes on behind this turn.
    fn publish_answer(&mut self, answer: &Answer, name: &[u8], own: &[u8]) -> Option<FanOutKey> {
        let destination = self.destination(name).ok()?;
        // In front of the sender's own: the first of two headers with one name counts.
        let headers = [&answer.header_lines(), own].concat();
        let body = answer.body();
        let id = SmallVec::<[u8; 40]>::from_slice(self.ids.next_id());
        let message = Message {
            destination: name,
            id: &id,
            sender: NOBODY,
            headers: &headers,
            plain: false,
            body: body.as_bytes(),
        };
        let reach = self.router.reach(destination);
        if reach.remote != 0 {
            self.mail_message(&message, reach.remote);
        }
        self.deliver(&message, destination, &reach)
    }

    /// Answers a subscription at an interval, from now on.
    pub(crate) fn watch(&mut self, index: SubscriptionIndex, query: Query, interval_ms: u64) {
        let Some(found) = self.router.subscriptions.get(index as usize) else { return };
        let key = SubscriptionKey { index, generation: found.generation };
        let subscribed = found.entry().map_or(&b"DIAG"[..], |entry| self.router.entry_name(entry));
        let name = match self.router.parse(subscribed) {
            Ok(None) => subscribed.into(),
            _ => [b"DIAG/", query.name().as_bytes()].concat().into(), // a MESSAGE comes from no pattern
        };
        self.diagnostics
            .watches
            .insert(key, Watch { query, interval_ms, name, asking: false, begun: false, due_ms: None });
        self.timers.set(self.now_ms, Due::Diagnostics(key));
    }

    /// A subscription ends, and what it gets at an interval with it.
    pub(super) fn unwatch(&mut self, key: SubscriptionKey) {
        let watches = &mut self.diagnostics.watches;
        if !watches.is_empty() && watches.remove(&key).is_some() {
            self.timers.cancel(Due::Diagnostics(key));
        }
    }

    /// It is time for the next answer.
    pub(super) fn watch_due(&mut self, at_ms: u64, key: SubscriptionKey) {
        let found = self.router.subscription_mut(key).map(|found| found.conn);
        let (Some(conn), Some(watch)) = (found, self.diagnostics.watches.get_mut(&key)) else { return };
        let Some(conn) = self.conns.get(conn) else { return };
        if !watch.begun && !conn.answers.is_empty() {
            // The RECEIPT of the SUBSCRIBE comes first.
            self.timers.set(self.now_ms + 1, Due::Diagnostics(key));
            return;
        }
        watch.begun = true;
        let at_ms = watch.due_ms.take().unwrap_or(at_ms);
        if !self.diagnostics.may_push(self.turn) {
            self.timers.set(self.now_ms + 1, Due::Diagnostics(key));
            if let Some(watch) = self.diagnostics.watches.get_mut(&key) {
                watch.due_ms = Some(at_ms);
            }
            return;
        }
        let Some(watch) = self.diagnostics.watches.get_mut(&key) else { return };
        // In step with the first one, however late this one is.
        let late = self.now_ms.saturating_sub(at_ms) / watch.interval_ms.max(1);
        let next_ms = at_ms.saturating_add(watch.interval_ms.saturating_mul(late + 1));
        self.timers.set(next_ms, Due::Diagnostics(key));
        // Who does not keep up is left out: the next answer says all that this one would have.
        if conn.full_since_ms.is_none() && !watch.asking && self.draining.is_none() {
            watch.asking = true;
            let query = watch.query;
            self.ask_everyone(ConnKey::NONE, query, Purpose::Push(key));
        }
    }

    fn push_answer(&mut self, answer: &Answer, key: SubscriptionKey) {
        let place = self.router.subscription_mut(key).map(|found| found.place);
        let (Some(Place::Topic { group, member, .. }), Some(watch)) =
            (place, self.diagnostics.watches.get_mut(&key))
        else {
            return; // it has gone meanwhile
        };
        watch.asking = false;
        let name = watch.name.clone();
        let (headers, body) = (answer.header_lines(), answer.body());
        let id = SmallVec::<[u8; 40]>::from_slice(self.ids.next_id());
        let message = Message {
            destination: &name,
            id: &id,
            sender: NOBODY,
            headers: &headers,
            plain: false,
            body: body.as_bytes(),
        };
        self.hand_out();
        self.tails.begin();
        let found = &self.router.groups[group as usize];
        let (sink, member) = (found.sink, found.members[member as usize]);
        match sink {
            Some(queue) => self.deliver_to_queue(Stored::new(&message), queue, member),
            None => self.deliver_to_one(&message, group, member),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_than_a_few_intervals_ask_in_one_turn() {
        let mut diagnostics = Diagnostics::default();
        let asked = |diagnostics: &mut Diagnostics, turn| {
            (0..2 * TURN_PUSHES_MAX).filter(|_| diagnostics.may_push(turn)).count()
        };
        assert_eq!(asked(&mut diagnostics, 1), TURN_PUSHES_MAX);
        assert_eq!(asked(&mut diagnostics, 2), TURN_PUSHES_MAX);
    }
}
