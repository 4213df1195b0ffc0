//! Assembly of an answer of DIAG with many rows: sorted and written over as many turns as it takes.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use super::Owners;
use super::inquiries::Subject;
use super::survey::HASH_BYTES;
use super::survey::ROWS_BYTES_MAX;
use crate::report::Query;
use crate::report::answer::Answer;
use crate::report::answer::json;
use crate::report::merge::{Report, ShardReport};
use crate::report::types::QueueRow;
use crate::text::Weight;
use crate::turn::jobs::Job;

/// Rows that are sorted or written before another job runs.
const ROWS_MAX: usize = 500;

/// The approximate memory of a sorted row besides its bytes.
const ROW_BYTES: usize = 96;

/// An answer that is being assembled.
#[derive(Debug)]
pub(crate) struct Assembly {
    pub(crate) subject: Subject,
    /// The reports whose rows are still to be sorted.
    reports: Vec<ShardReport>,
    /// Rows by their sort key and a number, since several rows may have the same key.
    sorted: BTreeMap<((u64, String), u64), String>,
    sorted_bytes: usize,
    /// Names, by their hashes, if they are only counted.
    counted: BTreeSet<u64>,
    last: u64,
    text: String,
    pub(crate) left_out: u64,
    weight: Weight,
}

impl Assembly {
    /// Begins an answer with the reports of all shards.
    pub(crate) fn new(subject: Subject, reports: Vec<ShardReport>) -> Self {
        let left_out = reports.iter().map(|report| report.left_out).sum();
        Assembly {
            subject,
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

    /// Visits the rows.
    #[cfg(any(test, simulated))]
    pub(super) fn audit(&self, audit: &mut crate::audit::Audit) {
        audit.weight(&self.weight);
        self.reports.iter().for_each(|report| audit.weight(&report.weight));
    }

    /// Sorts or writes some rows; returns their number, 0 if none are left.
    pub(crate) fn proceed(&mut self, text_bytes_max: usize) -> usize {
        let is_monitor = self.subject == Subject::Monitor;
        let of_queue = |row: &_| if is_monitor { text_of(row) } else { json(row) };
        let mut rows = 0;
        while rows < ROWS_MAX
            && let Some(report) = self.reports.last_mut()
        {
            if let Report::Subscribed(hashes) = &mut report.report
                && let Some(hash) = hashes.pop_last()
            {
                rows += 1;
                self.counted.insert(hash);
                continue;
            }
            let Some((key, text)) = report.report.pop_row(of_queue) else {
                self.reports.pop();
                continue;
            };
            rows += 1;
            // Names are reported once, whichever shards report them.
            self.last += u64::from(self.subject != Subject::Query(Query::Subs));
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

    /// The text of all rows, in the form of the answer.
    pub(crate) fn finish(&mut self) -> String {
        let text = std::mem::take(&mut self.text);
        match self.subject {
            Subject::Query(Query::PubsubSize) => self.counted.len().to_string(),
            Subject::Query(Query::Subs) | Subject::Monitor => text,
            Subject::Query(_) => format!("[{text}]"),
        }
    }
}

/// A queue's lines in the format of stompserver; empty for other kinds than work queues. Control characters of its name
/// are escaped: a line end in it would let anybody add lines about other queues.
pub(crate) fn text_of(queue: &QueueRow) -> String {
    let QueueRow { name, size, dequeued, enqueued, .. } = queue;
    let name = on_one_line(name);
    match queue.kind {
        "work" => format!("Queue: {name}\nsize: {size}\ndequeued: {dequeued}\nenqueued: {enqueued}\n\n"),
        _ => String::new(),
    }
}

fn on_one_line(name: &str) -> Cow<'_, str> {
    if !name.contains(char::is_control) {
        return Cow::Borrowed(name);
    }
    let escaped = |letter: char| match letter.is_control() {
        true => letter.escape_debug().to_string(),
        false => letter.to_string(),
    };
    Cow::Owned(name.chars().map(escaped).collect::<String>())
}

impl Owners<'_> {
    /// Continues an answer; the last step delivers it.
    pub(crate) fn proceed_with_assembly(&mut self, mut assembly: Box<Assembly>) {
        if !self.is_still_awaited(assembly.subject) {
            return;
        }
        let limit = ROWS_BYTES_MAX.min(self.turn.config.outbox_limit);
        let rows = assembly.proceed(limit);
        self.turn.budget.visit(rows);
        if rows > 0 {
            self.diagnostics.assemblies.push_back(assembly);
            return self.turn.jobs.push(Job::Assemble);
        }
        let text = assembly.finish();
        self.turn.budget.encoded += text.len();
        let answer = Answer::of_text(assembly.subject.query(), text, assembly.left_out);
        self.announce(assembly.subject, answer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_adds_no_lines_to_the_text() {
        let row = |name: &str| QueueRow { name: name.to_owned(), kind: "work", ..QueueRow::default() };
        let end = "\nsize: 0\ndequeued: 0\nenqueued: 0\n\n";
        assert_eq!(text_of(&row("/queue/é:\\")), format!("Queue: /queue/é:\\{end}"));
        assert_eq!(text_of(&row("/queue/a\nsize: 9\r")), format!("Queue: /queue/a\\nsize: 9\\r{end}"));
    }
}
