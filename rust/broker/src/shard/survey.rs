//! What this shard contributes to an answer of DIAG, gathered item by item over as many turns as that takes.
//!
//! One survey goes on at a time, so that no more than one part of an answer is in the making. What comes meanwhile is
//! left out, so that nothing is told twice; what goes may be told or not.

use std::hash::BuildHasher as _;
use std::sync::mpsc::Sender;

use super::Shard;
use crate::collections::keyed::was_there;
use crate::connection::conn::Conn;
use crate::ids::{ConnKey, ShardId};
use crate::log::Level;
use crate::queue::mail::DiagnosticsNote;
use crate::report::Query;
use crate::report::types::{Report, ShardReport};
use crate::router::group::Subscription;
use crate::text::Weight;
use crate::turn::jobs::Job;

/// Items that are looked at before another job has its turn.
const VISITS_MAX: usize = 1000;
/// What waits in an outbox is counted range by range: a small one has so many bytes.
const RANGE_BYTES: usize = 128;
/// What the hash of a name occupies in its set, about.
pub(super) const HASH_BYTES: usize = 16;
/// The rows of one answer occupy no more than this, about, and no more than `outbox_limit`.
pub(super) const ROWS_BYTES_MAX: usize = 16 << 20;

/// Who gets the part.
#[derive(Debug)]
pub(super) enum ReportTo {
    /// A shard, which asked under this number.
    Shard(ShardId, u64),
    /// The handle.
    Handle(Sender<Report>),
}

/// A table that is walked.
#[derive(Clone, Copy, Debug)]
enum Table {
    Conns,
    Subscriptions,
    Queues,
}

/// One part of an answer in the making.
#[derive(Debug)]
pub(super) struct Survey {
    query: Query,
    to: ReportTo,
    report: Report,
    /// What is still to be walked; the first of them from this slot on.
    tables: &'static [Table],
    next: usize,
    /// The newest subscription and the newest queue of those that it tells of; known once it has begun.
    newest: Option<(u32, u32)>,
    row_bytes: usize,
    left_out: u64,
    weight: Weight,
}

fn tables(query: Query) -> &'static [Table] {
    match query {
        Query::Session
        | Query::SessionSize
        | Query::SessionEncodedSize
        | Query::SessionConnectedSize
        | Query::Shards => &[Table::Conns, Table::Subscriptions],
        Query::Memory => &[Table::Conns, Table::Queues],
        Query::Stale | Query::Slow => &[Table::Conns],
        Query::PubsubSize | Query::Subs | Query::Ack => &[Table::Subscriptions],
        Query::Queues => &[Table::Queues],
        Query::WsBuffer | Query::Network | Query::Benchmark | Query::Store => &[],
    }
}

impl Shard {
    /// Makes this shard's part of an answer, behind those that were asked for before.
    pub(super) fn survey(&mut self, query: Query, to: ReportTo) {
        let is_idle = self.diagnostics.surveys.is_empty();
        self.diagnostics.surveys.push_back(Survey {
            query,
            to,
            report: Report::empty(query),
            tables: tables(query),
            next: 0,
            newest: None,
            row_bytes: 0,
            left_out: 0,
            weight: Weight::new(0),
        });
        if is_idle {
            self.proceed_with_survey();
        }
    }

    /// Goes on with the first survey.
    pub(super) fn proceed_with_survey(&mut self) {
        let Some(mut survey) = self.diagnostics.surveys.pop_front() else { return };
        let is_over = self.survey_some(&mut survey);
        if is_over {
            self.report_survey(survey);
        } else {
            survey.weight = Weight::new(survey.row_bytes);
            self.diagnostics.surveys.push_front(survey);
        }
        if !self.diagnostics.surveys.is_empty() {
            self.turn.jobs.push(Job::Survey);
        }
    }

    /// Walks on; true at the end.
    fn survey_some(&mut self, survey: &mut Survey) -> bool {
        let newest = (self.router.newest_subscription(), self.queues.home.table().newest());
        let newest = *survey.newest.get_or_insert(newest);
        let may_have_rows = !self.turn.is_out_of_memory();
        let mut visits = 0;
        while let Some(table) = survey.tables.first() {
            if visits >= VISITS_MAX {
                break;
            }
            let slots = match table {
                Table::Conns => self.connections.table.slots(),
                Table::Subscriptions => self.router.subscriptions.slots(),
                Table::Queues => self.queues.home.table().slots(),
            };
            if survey.next >= slots {
                (survey.tables, survey.next) = (&survey.tables[1..], 0);
                continue;
            }
            visits += 1;
            let rows = survey.report.rows();
            let bytes = match table {
                Table::Conns => self.survey_conn(survey, &mut visits),
                Table::Subscriptions => self.survey_subscription(survey, newest.0),
                Table::Queues => self.survey_queue(survey, newest.1, &mut visits),
            };
            survey.next += 1;
            // A hash is so small that all of them are kept: what is told is their number.
            if survey.query != Query::PubsubSize && survey.report.rows() > rows {
                let limit = ROWS_BYTES_MAX.min(self.turn.config.outbox_limit);
                if may_have_rows && survey.row_bytes + bytes <= limit {
                    survey.row_bytes += bytes;
                } else {
                    survey.report.drop_last();
                    survey.left_out += 1;
                }
            }
        }
        self.turn.budget.visit(visits);
        survey.tables.is_empty()
    }

    /// Adds what is to be told of one connection. Returns how much a row takes, if there is one.
    fn survey_conn(&self, survey: &mut Survey, visits: &mut usize) -> usize {
        let Some(conn) = self.connections.table.at(survey.next) else { return 0 };
        match &mut survey.report {
            Report::Session(session) if Self::is_client(conn) => Self::add_client(session, conn),
            Report::Stale(waiting) => {
                *visits += conn.outbox.bytes() / RANGE_BYTES;
                waiting.out += conn.outbox.messages(&self.connections.chunks) as u64;
            }
            Report::Shards(rows) => {
                rows.iter_mut().for_each(|row| row.unanswered += conn.answers.len() as u64);
            }
            Report::Memory(memory) => memory.outbox_bytes += conn.outbox.bytes() as u64,
            Report::Slow(rows) => rows.extend(self.slow_row(conn)),
            _ => {}
        }
        size_of::<crate::report::types::SlowRow>() + 64
    }

    fn survey_subscription(&self, survey: &mut Survey, newest: u32) -> usize {
        let found = self.router.subscriptions.get(survey.next);
        let Some(one) = found.filter(|one| is_client_s(one) && was_there(one.generation, newest)) else {
            return 0;
        };
        let index = survey.next as u32;
        match &mut survey.report {
            Report::Session(session) => session.subscriptions += 1,
            Report::Shards(rows) => rows.iter_mut().for_each(|row| row.subscriptions += 1),
            Report::Subs(names) => {
                let name = self.subscribed_name(index, one);
                let text = String::from_utf8_lossy(name).into_owned();
                names.insert(text);
                return name.len() + 64;
            }
            Report::Subscribed(hashes) => {
                hashes.insert(self.turn.hasher.hash_one(self.subscribed_name(index, one)));
                survey.row_bytes = hashes.len() * HASH_BYTES;
            }
            Report::Ack(rows) => {
                rows.extend(self.ack_row(index, one));
                return size_of::<crate::report::types::AckRow>()
                    + rows.last().map_or(0, |row| row.subscription.len() + row.destination.len());
            }
            _ => {}
        }
        0
    }

    fn survey_queue(&self, survey: &mut Survey, newest: u32, visits: &mut usize) -> usize {
        let table = self.queues.home.table();
        let Some(queue) = table
            .key_at(survey.next)
            .filter(|key| was_there(key.generation, newest))
            .and_then(|key| table.get(key))
        else {
            return 0;
        };
        match &mut survey.report {
            Report::Memory(memory) => {
                memory.queue_bytes += queue.waiting_bytes() as u64 + queue.in_flight().1;
            }
            Report::Queues(rows) => {
                *visits += queue.known_patterns() / 16;
                rows.extend(self.queue_row(queue));
                return size_of::<crate::report::types::QueueRow>() + queue.name.len();
            }
            _ => {}
        }
        0
    }

    fn report_survey(&mut self, survey: Survey) {
        let Survey { query, to, mut report, left_out, row_bytes, .. } = survey;
        self.complete(query, &mut report);
        if left_out > 0 {
            let name = query.name();
            self.turn.log(Level::Warn, || {
                format!("an answer to the query '{name}' has no room for {left_out} rows of this thread")
            });
        }
        match to {
            ReportTo::Shard(shard, number) => {
                let report = ShardReport { report, left_out, weight: Weight::new(row_bytes) };
                self.tell(shard, DiagnosticsNote::Diagnosed(number, Box::new(report)));
            }
            ReportTo::Handle(reply) => _ = reply.send(report), // who asked may have given up waiting
        }
    }
}

/// Whether it is a client's; those that feed durable queues are the broker's own.
fn is_client_s(one: &Subscription) -> bool {
    one.conn != ConnKey::NONE
}

impl Shard {
    /// Whether a connection is neither refused nor on its way out.
    pub(super) fn is_client(conn: &Conn) -> bool {
        conn.phase == crate::connection::conn::Phase::Open && !conn.refused
    }
}
