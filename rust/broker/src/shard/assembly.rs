//! An answer of DIAG that has many rows: sorted and written over as many turns as that takes.

use std::collections::{BTreeMap, BTreeSet};

use stompica_proto::encode::Offender;
use stompica_proto::{Version, escape};

use super::Shard;
use super::gather::Purpose;
use super::jobs::Job;
use super::queues::head_of_send;
use super::survey::{HASH_BYTES, ROWS_BYTES_MAX};
use crate::diag::Query;
use crate::diag::answer::{Answer, json};
use crate::diag::part::{Part, Report};
use crate::ids::ConnKey;
use crate::text::Weight;

/// Rows that are sorted or written before another job has its turn.
const ROWS_MAX: usize = 500;
/// What a sorted row occupies beside its bytes, about.
const ROW_BYTES: usize = 96;

/// An answer in the making.
#[derive(Debug)]
pub(super) struct Assembly {
    number: u64,
    query: Query,
    conn: ConnKey,
    purpose: Purpose,
    /// Whose rows are still to be sorted.
    reports: Vec<Report>,
    /// By what the answer is sorted by, and then by a number, as several rows may agree in that.
    sorted: BTreeMap<((u64, String), u64), String>,
    sorted_bytes: usize,
    /// Names, by their hashes, where they are only counted.
    counted: BTreeSet<u64>,
    last: u64,
    text: String,
    left_out: u64,
    weight: Weight,
}

impl Assembly {
    /// Where it goes, if it is the answer to this question.
    pub(super) fn purpose_of(&self, number: u64) -> Option<&Purpose> {
        (self.number == number).then_some(&self.purpose)
    }

    /// One from the parts of all shards, for whoever asked.
    pub(super) fn new(
        number: u64,
        query: Query,
        (conn, purpose): (ConnKey, Purpose),
        reports: Vec<Report>,
    ) -> Self {
        let left_out = reports.iter().map(|report| report.left_out).sum();
        Assembly {
            number,
            query,
            conn,
            purpose,
            reports,
            sorted: BTreeMap::new(),
            sorted_bytes: 0,
            counted: BTreeSet::new(),
            last: 0,
            text: String::new(),
            left_out,
            weight: Weight::new(0),
        }
    }

    /// Sorts or writes some rows; returns how many. None are left: 0.
    fn proceed(&mut self, text_bytes_max: usize) -> usize {
        let is_monitor = matches!(self.purpose, Purpose::Monitor);
        let of_queue = |row: &_| if is_monitor { super::monitor::text_of(row) } else { json(row) };
        let mut rows = 0;
        while rows < ROWS_MAX
            && let Some(report) = self.reports.last_mut()
        {
            if let Part::Subscribed(hashes) = &mut report.part
                && let Some(hash) = hashes.pop_last()
            {
                rows += 1;
                self.counted.insert(hash);
                continue;
            }
            let Some((key, text)) = report.part.pop_row(of_queue) else {
                self.reports.pop();
                continue;
            };
            rows += 1;
            // Names are told once, whatever shards they come from.
            self.last += u64::from(self.query != Query::Subs);
            let bytes = key.1.len() + text.len() + ROW_BYTES;
            if self.sorted.insert((key, self.last), text).is_none() {
                self.sorted_bytes += bytes;
            }
        }
        let mut written = 0;
        while rows < ROWS_MAX
            && let Some(((key, _), text)) = self.sorted.pop_first()
        {
            rows += 1;
            self.sorted_bytes -= (key.1.len() + text.len() + ROW_BYTES).min(self.sorted_bytes);
            written += text.len();
            if self.text.len() + text.len() > text_bytes_max {
                self.left_out += 1;
                continue;
            }
            if !self.text.is_empty() && !is_monitor {
                self.text.push(',');
            }
            self.text.push_str(&text);
        }
        let waiting: usize = self.reports.iter().map(|report| report.weight.bytes()).sum();
        self.weight = Weight::new(self.sorted_bytes + self.text.capacity() + self.counted.len() * HASH_BYTES);
        debug_assert!(waiting == 0 || written == 0, "rows are written when all are sorted");
        rows
    }

    /// The text of all rows, as the answer has it.
    fn finish(&mut self) -> String {
        let text = std::mem::take(&mut self.text);
        match self.query {
            Query::PubsubSize => self.counted.len().to_string(),
            Query::Subs => text,
            _ if matches!(self.purpose, Purpose::Monitor) => text,
            _ => format!("[{text}]"),
        }
    }
}

impl Shard {
    /// What an ERROR tells about a frame whose question has no answer yet.
    pub(super) fn offender_asking(&self, number: u64) -> Offender {
        let purpose = self.diagnostics.purpose_of(number).or_else(|| self.jobs.assembled_for(number));
        let (mut head, receipt) = match purpose {
            Some(Purpose::Frame(receipt)) => (b"DIAG\n".to_vec(), receipt),
            Some(Purpose::Publish { name, headers, receipt }) => (head_of_send(name, headers), receipt),
            _ => return Offender::default(),
        };
        if let Some(id) = receipt {
            head.extend_from_slice(b"receipt:");
            escape::escape_into(&mut head, id, Version::V1_2);
            head.push(b'\n');
        }
        Offender { receipt: receipt.as_deref().map(Into::into), subscription: None, head }
    }

    /// Goes on with an answer; the last step brings it to whoever asked.
    pub(super) fn proceed_with_assembly(&mut self, mut assembly: Box<Assembly>) {
        if !self.is_awaited(assembly.conn, &assembly.purpose) {
            return self.finish_question();
        }
        let limit = ROWS_BYTES_MAX.min(self.config.outbox_limit);
        let rows = assembly.proceed(limit);
        self.budget.visit(rows);
        if rows > 0 {
            return self.jobs.push(Job::Assemble(assembly));
        }
        let text = assembly.finish();
        self.budget.encoded += text.len();
        let Assembly { number, query, conn, purpose, left_out, .. } = *assembly;
        let answer = Answer::of_text(query, text, left_out);
        self.give_answer(number, conn, purpose, &answer);
    }
}
