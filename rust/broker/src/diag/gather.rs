//! Sends diagnostics queries to all shards, and delivers the answers.
//!
//! ```text
//! DIAG, SEND ─┬─► next ─► Diagnose to every shard ─► a report of each ─► answers: DIAG frame, or MESSAGE
//! interval ───┘   (an audience for each subject)
//! ```
//! Each subject is gathered once at a time. Requests that come meanwhile share the next answer: so no request waits
//! for more than the current answer and the next one, however many there are. All get the same answer. A connection
//! that asked by a frame is parked until the answer comes. There is no cost without requests.

use smallvec::SmallVec;
use stompica_proto::encode::Message;

use super::Owners;
use super::assembly::Assembly;
use super::inquiries::{Audience, FrameRequester, Gather, Purpose, Subject, Telling};
use crate::connection::flow::Flow;
use crate::connection::pausing::Question;
use crate::door::planted;
use crate::ids::SubscriptionKey;
use crate::ids::{ConnKey, NOBODY, ShardId};
use crate::queue::mail::DiagnosticsNote;
use crate::report::Query;
use crate::report::answer::Answer;
use crate::report::merge::{self, ShardReport};
use crate::router::fan_out::FanOutKey;
use crate::text::Weight;
use crate::turn::jobs::Job;

/// The cost of a query in a turn's budget, in encoded bytes: every connection may have to be visited.
const QUESTION_BYTES: usize = 16 << 10;

/// The maximum of rows of an answer that are assembled at once; more of them take several turns.
const ROWS_AT_ONCE: usize = 500;

impl Owners<'_> {
    /// Asks all shards on behalf of a connection, which waits meanwhile.
    pub(crate) fn ask_for(&mut self, key: ConnKey, query: Query, purpose: Purpose) -> Flow {
        self.diagnostics.last_number += 1;
        let number = self.diagnostics.last_number;
        let subject = Subject::Query(query);
        self.diagnostics.inquiry(subject).next.requesters.push_back(FrameRequester {
            number,
            conn: key,
            purpose,
        });
        self.diagnostics.queue(subject);
        self.ask_next();
        self.connections.wait_for(self.turn, key, Question::Query(number));
        Flow::Waiting
    }

    /// Asks on behalf of a subscription with an interval, soon and together with all others that are due in this
    /// turn.
    pub(crate) fn ask_for_watch(&mut self, key: SubscriptionKey) {
        let Some(watch) = self.diagnostics.watches.get_mut(&key) else { return };
        watch.asking = true;
        let subject = Subject::Query(watch.query);
        self.diagnostics.inquiry(subject).next.watches.push_back(key);
        if self.diagnostics.queue(subject) {
            self.turn.jobs.push(Job::Ask);
        }
    }

    /// Asks for the text of `/queue/monitor`, unless that is pending already.
    pub(crate) fn ask_for_monitor(&mut self) {
        if self.diagnostics.queue(Subject::Monitor) {
            self.ask_next();
        }
    }

    /// Asks about the next subject, and only one: with a single shard its answer may be complete at once, and the
    /// next query is a job of its own.
    pub(crate) fn ask_next(&mut self) {
        while let Some(subject) = self.diagnostics.pop_later() {
            let mut audience = std::mem::take(&mut self.diagnostics.inquiry(subject).next);
            if self.is_awaited(subject, &mut audience) {
                self.ask_now(subject, audience);
                break;
            }
        }
        if self.diagnostics.first_askable().is_some() {
            self.turn.jobs.push(Job::Ask);
        }
    }

    fn ask_now(&mut self, subject: Subject, audience: Audience) {
        let query = subject.query();
        if query.has_rows() {
            self.diagnostics.busy = Some(subject);
        }
        self.diagnostics.last_number += 1;
        let number = self.diagnostics.last_number;
        let gather = Gather { number, audience, reports: Vec::new(), waiting: self.turn.shards };
        self.diagnostics.inquiry(subject).gather = Some(gather);
        self.turn.budget.encoded += QUESTION_BYTES;
        for shard in (0..self.turn.shards).map(|at| ShardId(at as u8)) {
            self.notes.tell(shard, DiagnosticsNote::Diagnose(query, number));
        }
    }

    /// Whether an answer still has recipients; ended ones at the front are removed.
    fn is_awaited(&mut self, subject: Subject, audience: &mut Audience) -> bool {
        let before = audience.len();
        while audience
            .requesters
            .front()
            .is_some_and(|requester| self.connections.table.get(requester.conn).is_none())
        {
            audience.requesters.pop_front();
        }
        while audience.watches.front().is_some_and(|key| !self.diagnostics.watches.contains_key(key)) {
            audience.watches.pop_front();
        }
        self.turn.budget.visit(before - audience.len());
        subject == Subject::Monitor || audience.len() > 0
    }

    /// The same for an answer that is being assembled; it is abandoned if no recipient is left.
    pub(crate) fn is_still_awaited(&mut self, subject: Subject) -> bool {
        let Some(mut gather) = self.diagnostics.inquiry(subject).gather.take() else { return false };
        let is_awaited = self.is_awaited(subject, &mut gather.audience);
        if is_awaited {
            self.diagnostics.inquiry(subject).gather = Some(gather);
        } else {
            self.finish_gather(subject);
        }
        is_awaited
    }

    /// Ends the gathering of a subject, complete or abandoned: the next query is sent soon.
    fn finish_gather(&mut self, subject: Subject) {
        self.diagnostics.busy.take_if(|busy| *busy == subject);
        if self.diagnostics.inquiry(subject).next.len() > 0 && !planted!("next-query-forgotten") {
            self.diagnostics.queue(subject);
        }
        if self.diagnostics.first_askable().is_some() {
            self.turn.jobs.push(Job::Ask);
        }
    }

    /// Adds one shard's report; the last one completes the answer.
    pub(crate) fn diagnosed(&mut self, number: u64, report: ShardReport) {
        let found = self.diagnostics.inquiries.iter_mut().find_map(|(subject, inquiry)| {
            let gather = inquiry.gather.as_mut().filter(|gather| gather.number == number)?;
            Some((*subject, gather))
        });
        let Some((subject, gather)) = found else { return };
        gather.reports.push(report);
        gather.waiting -= 1;
        if gather.waiting > 1 || (gather.waiting == 1 && !planted!("report-missing")) {
            return;
        }
        let reports = std::mem::take(&mut gather.reports);
        let rows: usize = reports.iter().map(|report| report.report.rows()).sum();
        if rows > ROWS_AT_ONCE {
            self.diagnostics.assemblies.push_back(Box::new(Assembly::new(subject, reports)));
            return self.turn.jobs.push(Job::Assemble);
        }
        let left_out = reports.iter().map(|report| report.left_out).sum();
        if let Some(report) = merge::merge(reports.into_iter().map(|report| report.report)) {
            let mut answer = Answer::new(subject.query(), report);
            answer.left_out = left_out;
            self.announce(subject, answer);
        }
    }

    /// Starts to deliver a complete answer; recipients that have not got the previous one get this one.
    pub(crate) fn announce(&mut self, subject: Subject, answer: Answer) {
        let Some(Gather { mut audience, .. }) = self.diagnostics.inquiry(subject).gather.take() else {
            return;
        };
        if subject == Subject::Monitor {
            self.publish_monitor(&answer);
        } else {
            let answer = answer.written();
            let headers = answer.header_lines();
            let before = self.diagnostics.inquiry(subject).telling.take();
            let goes_on = before.is_some();
            if let Some(Telling { audience: mut first, .. }) = before {
                first.append(audience);
                audience = first;
            }
            let weight = Weight::new(answer.bytes() + headers.len());
            let telling = Telling { answer, headers, audience, is_begun: false, _weight: weight };
            self.diagnostics.inquiry(subject).telling = Some(telling);
            if !goes_on {
                self.tell_some(subject);
            }
        }
        self.finish_gather(subject);
    }

    /// Delivers an answer to some of its recipients: those that asked by a frame and those with an interval,
    /// alternately.
    pub(crate) fn tell_some(&mut self, subject: Subject) {
        let Some(mut telling) = self.diagnostics.inquiry(subject).telling.take() else { return };
        if telling.is_begun && subject.query().has_rows() && self.turn.is_out_of_memory() {
            return self.ask_again(subject, telling.audience);
        }
        telling.is_begun = true;
        while telling.audience.len() > 0 {
            if let Some(requester) = telling.audience.requesters.pop_front() {
                self.answer_requester(requester, &telling.answer, &telling.headers);
            }
            if let Some(key) = telling.audience.watches.pop_front() {
                self.push_answer(&telling.answer, &telling.headers, key);
            }
            self.turn.budget.visit(1);
            if self.turn.budget.is_half_spent() {
                break;
            }
        }
        if telling.audience.len() > 0 {
            self.diagnostics.inquiry(subject).telling = Some(telling);
            self.diagnostics.told_later.push_back(subject);
            self.turn.jobs.push(Job::Tell);
        }
    }

    /// Repeats a query because there is no memory for the remaining copies of a long answer: the remaining recipients
    /// get a new answer, which is short as long as memory is.
    fn ask_again(&mut self, subject: Subject, audience: Audience) {
        let inquiry = self.diagnostics.inquiry(subject);
        let behind = std::mem::replace(&mut inquiry.next, audience);
        inquiry.next.append(behind);
        if self.diagnostics.queue(subject) {
            self.turn.jobs.push(Job::Ask);
        }
    }

    fn answer_requester(&mut self, requester: FrameRequester, answer: &Answer, headers: &[u8]) {
        let FrameRequester { number, conn, purpose } = requester;
        self.diagnostics.told = number;
        match purpose {
            Purpose::Frame(receipt) => {
                if self.resume(conn, number) {
                    self.send_frame(conn, answer);
                    self.connections.receipt(self.turn, conn, receipt.as_deref());
                }
            }
            Purpose::Publish { name, headers: own, receipt } => {
                // In front of the sender's own headers: of two headers with one name, the first one counts.
                let going = self.publish_answer(answer, &name, &[headers, &own].concat());
                if self.resume(conn, number) {
                    self.answer_query(conn, receipt.as_deref(), going);
                }
            }
        }
    }

    /// Lets a connection that asked continue; false if it has ended.
    fn resume(&mut self, key: ConnKey, number: u64) -> bool {
        let Some(conn) = self.connections.table.get(key) else { return false };
        let listens = conn.life.is_open() && !conn.life.ending;
        self.connections.go_on_after(self.turn, key, Question::Query(number));
        listens
    }

    fn send_frame(&mut self, key: ConnKey, answer: &Answer) {
        let Some(conn) = self.connections.table.get_mut(key) else { return };
        let mut frame = Vec::new();
        answer.frame(&mut frame, conn.protocol.session.version());
        self.turn.budget.encoded += frame.len();
        self.connections.answer_with(self.turn, key, frame); // RECEIPTs of earlier frames come first
    }

    /// Answers the sender of a query after the answer was published. If the publication takes more turns, the sender
    /// waits for its end, as after any SEND.
    fn answer_query(&mut self, key: ConnKey, receipt: Option<&[u8]>, going: Option<FanOutKey>) {
        match going {
            Some(fan_out) => {
                let requester = self.connections.ask(self.turn, key, receipt, self.turn.id.bit()).requester();
                self.delivery().await_fan_out(key, fan_out, requester);
            }
            None => self.connections.receipt(self.turn, key, receipt),
        }
    }

    /// Returns the fan-out if it takes more turns.
    fn publish_answer(&mut self, answer: &Answer, name: &[u8], headers: &[u8]) -> Option<FanOutKey> {
        let destination = self.router.destination_of(self.turn, name).ok()?;
        let body = answer.body();
        let id = SmallVec::<[u8; 40]>::from_slice(self.turn.message_ids.next_id());
        let message = Message {
            destination: name,
            id: &id,
            sender: NOBODY,
            headers,
            plain: false,
            expires_ms: 0,
            body: body.as_bytes(),
        };
        let reach = self.router.reach(destination);
        if reach.remote != 0 {
            self.peers.mail_message(&message, &reach);
        }
        self.delivery().deliver(&message, destination, &reach)
    }
}
