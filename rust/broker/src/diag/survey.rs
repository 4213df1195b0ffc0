//! The walk that collects one shard's contribution to an answer of DIAG, over as many turns as it takes.
//!
//! One survey runs at a time, so that only one partial answer is in memory. Items added meanwhile are omitted, so
//! that nothing is reported twice; items removed meanwhile may or may not be reported.

use std::hash::BuildHasher as _;

use super::View;
use super::rows::{add_client, is_client};
use crate::collections::keyed::was_there;
use crate::door::sync::Sender;
use crate::ids::{ConnKey, ShardId};
use crate::report::Query;
use crate::report::merge::Report;
use crate::router::group::Subscription;
use crate::text::Weight;

/// Items that are visited before another job runs.
const VISITS_MAX: usize = 1000;
/// The approximate memory of a name's hash in its set.
pub(crate) const HASH_BYTES: usize = 16;
/// The approximate limit on the memory of one answer's rows; `outbox_limit` applies, too.
pub(crate) const ROWS_BYTES_MAX: usize = 16 << 20;

/// The recipient of a report.
#[derive(Debug)]
pub(crate) enum ReportTo {
    /// A shard, which asked with this query number.
    Shard(ShardId, u64),
    /// The handle.
    Handle(Sender<Report>),
}

/// A table that a survey walks.
#[derive(Clone, Copy, Debug)]
enum Table {
    Conns,
    Subscriptions,
    Queues,
}

/// A partial answer that is being collected.
#[derive(Debug)]
pub(crate) struct Survey {
    query: Query,
    to: ReportTo,
    report: Report,
    /// The tables that are left; the first of them from this slot on.
    tables: &'static [Table],
    next: usize,
    /// The newest subscription and the newest queue that are included; known once the survey has begun.
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
        Query::Queues | Query::Store => &[Table::Queues],
        Query::WsBuffer | Query::Network | Query::Benchmark | Query::Recorded => &[],
    }
}

impl Survey {
    /// A survey that has not begun.
    pub(crate) fn new(query: Query, to: ReportTo) -> Self {
        Survey {
            query,
            to,
            report: Report::empty(query),
            tables: tables(query),
            next: 0,
            newest: None,
            row_bytes: 0,
            left_out: 0,
            weight: Weight::new(0),
        }
    }

    /// Whether all tables were walked.
    pub(crate) fn is_over(&self) -> bool {
        self.tables.is_empty()
    }

    /// The memory of its rows.
    #[cfg(any(test, simulated))]
    pub(super) fn weight(&self) -> &Weight {
        &self.weight
    }

    /// Counts the memory of its rows until the next step.
    pub(crate) fn count_rows(&mut self) {
        self.weight = Weight::new(self.row_bytes);
    }

    /// The query, the recipient, the report, the number of rows that were left out, and the memory of the others in
    /// bytes.
    pub(crate) fn into_parts(self) -> (Query, ReportTo, Report, u64, usize) {
        (self.query, self.to, self.report, self.left_out, self.row_bytes)
    }
}

impl View<'_> {
    /// Continues the walk for a while. Returns the number of visits.
    pub(crate) fn walk(&self, survey: &mut Survey) -> usize {
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
                Table::Conns => self.add_conn(survey, &mut visits),
                Table::Subscriptions => self.add_subscription(survey, newest.0),
                Table::Queues => self.add_queue(survey, newest.1, &mut visits),
            };
            survey.next += 1;
            // Hashes are so small that all of them are kept: the answer is their number.
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
        visits
    }

    /// Adds the rows of one connection. Returns the memory of one row, if there is one.
    fn add_conn(&self, survey: &mut Survey, visits: &mut usize) -> usize {
        let Some(conn) = self.connections.table.at(survey.next) else { return 0 };
        match &mut survey.report {
            Report::Session(session) if is_client(conn) => add_client(session, conn),
            Report::Stale(waiting) => {
                *visits += conn.output.outbox.ranges();
                waiting.out += conn.output.outbox.messages(&self.connections.chunks) as u64;
            }
            Report::Shards(rows) => {
                rows.iter_mut().for_each(|row| row.unanswered += conn.answers.len() as u64);
            }
            Report::Memory(memory) => memory.outbox_bytes += conn.output.outbox.bytes() as u64,
            Report::Slow(rows) => rows.extend(self.slow_row(conn)),
            _ => {}
        }
        size_of::<crate::report::types::SlowRow>() + 64
    }

    fn add_subscription(&self, survey: &mut Survey, newest: u32) -> usize {
        let found = self.router.subscriptions.get(survey.next);
        let Some(one) = found.filter(|one| belongs_to_client(one) && was_there(one.generation, newest))
        else {
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

    fn add_queue(&self, survey: &mut Survey, newest: u32, visits: &mut usize) -> usize {
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
            Report::Store(store) => store.status.figures.paged_messages += queue.paged_messages() as u64,
            _ => {}
        }
        0
    }
}

/// Whether a subscription belongs to a client; those that feed durable queues belong to the broker.
fn belongs_to_client(one: &Subscription) -> bool {
    one.conn != ConnKey::NONE
}
