//! Persistent messages with a receipt each: what the broker's log did for them, and what the disk alone does.

use std::path::Path;
use std::time::Duration;

use serde_json::Value;

use crate::bare::{self, Bare};
use crate::connections::Connections;
use crate::fault::Fault;
use crate::publisher::Publisher;
use crate::result::{Outcome, Persist, Special};
use crate::topology::Topology;
use crate::workload::Kind;

use super::Repetition;
use super::dialogue::Dialogue;

/// How long the bare loop writes.
const BARE: Duration = Duration::from_secs(1);

/// Counters of the broker's log, from DIAG `store`.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Log {
    groups: f64,
    syncs: f64,
    bytes: f64,
}

impl Log {
    /// From the answer of DIAG; `None` if the store has no such counters.
    fn new(answer: &Value) -> Option<Log> {
        let counter = |name: &str| answer.get(name).and_then(Value::as_f64);
        Some(Log { groups: counter("groups")?, syncs: counter("syncs")?, bytes: counter("written_bytes")? })
    }

    fn since(self, before: Log) -> Log {
        Log {
            groups: self.groups - before.groups,
            syncs: self.syncs - before.syncs,
            bytes: self.bytes - before.bytes,
        }
    }
}

impl Repetition<'_> {
    /// The counters of the broker's log now; `None` if it has none.
    pub(super) fn log(&self) -> Result<Option<Log>, Fault> {
        if self.store.is_none() || !self.workload.has_receipts() {
            return Ok(None);
        }
        let mut dialogue = Dialogue::connect(self.target)?;
        let answer = dialogue.diag("store")?;
        Ok(Log::new(&answer))
    }

    /// Consumes what was confirmed, which must be all there, once and in order; then adds the figures of the log since `before`.
    pub(super) fn finish_persist(
        &self,
        run: &mut Outcome,
        senders: Connections,
        logs: [Option<Log>; 2],
    ) -> Result<(), Fault> {
        let sent = senders.publishers.iter().map(|publisher| publisher.next).sum();
        let frame = senders.publishers.first().map_or(0, Publisher::stored_len);
        drop(senders);
        let mut consumers = self.open(&Topology::new(self.workload).subscribers_only())?;
        consumers.take_all(sent)?;
        consumers.leave()?;
        self.nothing_is_left()?;
        let log = logs[1].zip(logs[0]).map(|(after, before)| after.since(before));
        let bare = self.store.map(|folder| self.bare(folder, log, frame)).transpose()?;
        run.special = Some(Special::Persist(figures(run, log, bare, frame)));
        Ok(())
    }

    /// The bare loop with groups as large as those of the log, or with one message if that is unknown.
    fn bare(&self, folder: &Path, log: Option<Log>, frame: usize) -> Result<(usize, Bare), Fault> {
        let group = log.filter(|log| log.groups > 0.0).map_or(frame, |log| (log.bytes / log.groups) as usize);
        let rate = u32::try_from(self.workload.rate).expect("it was checked");
        let interval = (self.workload.kind == Kind::PersistRate).then(|| Duration::from_secs(1) / rate);
        let bare = bare::measure(folder, group, BARE, interval);
        Ok((group, bare.map_err(|error| Fault::Io(format!("{}: {error}", folder.display())))?))
    }
}

/// The figures; those that are unknown are left out.
fn figures(run: &Outcome, log: Option<Log>, bare: Option<(usize, Bare)>, frame: usize) -> Persist {
    let log = log.filter(|log| log.groups > 0.0);
    let groups_per_s = log.map(|log| log.groups / run.seconds);
    Persist {
        receipts_per_group: log.map(|log| run.deliveries as f64 / log.groups),
        groups_per_s,
        syncs_by_groups_ratio: log.map(|log| log.syncs / log.groups),
        written_by_sent_ratio: log.map(|log| log.bytes / (run.messages * frame as u64) as f64),
        bare_write_bytes: bare.map(|(bytes, _)| bytes as u64),
        bare_per_s: bare.map(|(_, bare)| bare.per_s),
        bare_p50_us: bare.map(|(_, bare)| bare.p50_us),
        bare_p99_us: bare.map(|(_, bare)| bare.p99_us),
        groups_by_bare_ratio: groups_per_s.zip(bare).map(|(groups, (_, bare))| groups / bare.per_s),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_those_since_the_start_of_the_measurement() {
        let answer = |groups, bytes| serde_json::json!({"groups": groups, "syncs": groups + 1, "written_bytes": bytes});
        let log = |groups, bytes| Log::new(&answer(groups, bytes)).expect("all counters");
        let since = log(150, 4_000_000).since(log(50, 1_000_000));
        let run = Outcome { seconds: 2.0, messages: 10_000, deliveries: 10_000, ..Outcome::default() };
        let bare = Bare { per_s: 100.0, p50_us: 1.0, p99_us: 2.0 };
        let found = figures(&run, Some(since), Some((30_000, bare)), 250);
        assert_eq!(found.receipts_per_group, Some(100.0));
        assert_eq!((found.groups_per_s, found.groups_by_bare_ratio), (Some(50.0), Some(0.5)));
        assert_eq!((found.syncs_by_groups_ratio, found.written_by_sent_ratio), (Some(1.0), Some(1.2)));
        assert_eq!(found.bare_write_bytes, Some(30_000));
        assert!(Log::new(&serde_json::json!({"kind": "memory"})).is_none());
        let unknown = figures(&run, None, None, 250);
        assert!(unknown.groups_per_s.is_none() && unknown.groups_by_bare_ratio.is_none());
    }
}
