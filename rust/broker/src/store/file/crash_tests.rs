//! A writer against a model, on a disk that crashes at any call: what was confirmed is there again, and nothing that was
//! forgotten and confirmed returns.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};

use super::batch::{Batch, Call, Commit};
use super::entry::{Counts, Message};
use super::inbox::Inbox;
use super::log::Log;
use super::medium_double::Disk;
use super::recovery::Recovered;
use super::writer::Writer;
use crate::config::Fsync;
use crate::ids::RecordId;

const SEGMENT: u64 = 1024;

/// What a shard has told, and whether that was confirmed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Fate {
    kept_safely: bool,
    forgotten: bool,
    forgotten_safely: bool,
}

/// The model.
#[derive(Debug, Default)]
struct Model {
    fates: BTreeMap<RecordId, Fate>,
    /// For each position that is not confirmed: what was kept and forgotten up to it.
    open: Vec<(u64, Vec<RecordId>, Vec<RecordId>)>,
    /// Transactions: all of it is there, or nothing.
    commits: Vec<(Vec<RecordId>, Vec<RecordId>)>,
}

impl Model {
    fn confirm(&mut self, position: u64) {
        for (_, kept, forgotten) in self.open.extract_if(.., |(at, ..)| *at <= position) {
            for record in kept {
                self.fates.entry(record).or_default().kept_safely = true;
            }
            for record in forgotten {
                self.fates.entry(record).or_default().forgotten_safely = true;
            }
        }
    }

    /// Compares it with what was found, and takes that as the new beginning.
    fn check(&mut self, found: &BTreeSet<RecordId>, context: &str) {
        for (record, fate) in &self.fates {
            let is_there = found.contains(record);
            if fate.kept_safely && !fate.forgotten {
                assert!(is_there, "{context}: record {record} is lost");
            }
            if fate.forgotten_safely {
                assert!(!is_there, "{context}: record {record} has returned");
            }
        }
        for (kept, forgotten) in self.commits.drain(..) {
            // What was forgotten later, by others, tells nothing.
            let kept: Vec<_> = kept.into_iter().filter(|record| !self.fates[record].forgotten).collect();
            let there = kept.iter().filter(|record| found.contains(record)).count();
            assert!(there == 0 || there == kept.len(), "{context}: half of a transaction: {kept:?}");
            if there > 0 {
                assert!(forgotten.iter().all(|record| !found.contains(record)), "{context}: {forgotten:?}");
            }
        }
        assert!(found.iter().all(|record| self.fates.contains_key(record)), "{context}: an unknown record");
        self.open.clear();
        let fate = |record: &RecordId| match found.contains(record) {
            true => Fate { kept_safely: true, ..Fate::default() },
            false => Fate { forgotten: true, forgotten_safely: true, kept_safely: true },
        };
        let records: Vec<_> = self.fates.keys().copied().collect();
        self.fates = records.into_iter().map(|record| (record, fate(&record))).collect();
    }
}

fn records(recovered: &Recovered) -> BTreeSet<RecordId> {
    recovered.queues.values().flatten().map(|waiting| waiting.record).collect()
}

fn message(record: RecordId, body: &[u8]) -> Message<'_> {
    Message { record, place: record, queue: b"/q", destination: b"/q", body, ..Message::default() }
}

/// One process: some turns, until the disk fails or they are over.
struct Process<'a> {
    random: &'a mut SmallRng,
    model: &'a mut Model,
    writer: Writer,
    inbox: Arc<Inbox>,
    next: RecordId,
    position: u64,
}

impl Process<'_> {
    fn batch(&mut self) -> Batch {
        let mut batch = Batch::default();
        let (mut kept, mut forgotten) = (Vec::new(), Vec::new());
        let live = |model: &Model| -> Vec<RecordId> {
            model.fates.iter().filter(|(_, fate)| !fate.forgotten).map(|(record, _)| *record).collect()
        };
        for _ in 0..self.random.random_range(0..4) {
            self.position += 1;
            let body = vec![b'x'; self.random.random_range(0..120)];
            let live = live(self.model);
            let chosen = live.get(self.random.random_range(0..live.len().max(1))).copied();
            match (self.random.random_range(0..10), chosen) {
                (0..4, _) => {
                    batch.keep(&message(self.next, &body));
                    kept.push(self.next);
                    self.model.fates.insert(self.next, Fate::default());
                    self.next += 1;
                }
                (4..8, Some(record)) => {
                    batch.calls.push(Call::Forget(record));
                    forgotten.push(record);
                    self.model.fates.entry(record).or_default().forgotten = true;
                }
                (8, Some(record)) => {
                    batch.calls.push(Call::Deliver(record, Counts { deliveries: 1, failures: 0 }));
                }
                (_, Some(record)) => {
                    let new = [self.next, self.next + 1];
                    self.next += 2;
                    let pieces = new.map(|record| batch.add(&message(record, &body)));
                    batch.calls.push(Call::Commit(Commit { kept: pieces.to_vec(), forgotten: vec![record] }));
                    new.iter().for_each(|record| _ = self.model.fates.insert(*record, Fate::default()));
                    self.model.fates.entry(record).or_default().forgotten = true;
                    self.model.commits.push((new.to_vec(), vec![record]));
                    kept.extend(new);
                    forgotten.push(record);
                }
                _ => {}
            }
        }
        self.model.open.push((self.position, kept, forgotten));
        batch
    }

    fn turn(&mut self) -> io::Result<()> {
        let batch = self.batch();
        self.inbox.post(0, batch, self.position, &mut Vec::new());
        let work = self.inbox.take(Some(Duration::ZERO));
        let done = self.writer.turn(work, &self.inbox, &mut |_| ());
        let safe = self.inbox.safe(0).expect("nobody has told a failure");
        self.model.confirm(safe);
        done.map(|_| ())
    }
}

/// Runs several processes one after the other on one disk. Returns how many of them have crashed.
fn run(seed: u64, capacity: u64) -> u32 {
    let mut random = SmallRng::seed_from_u64(seed);
    let (mut disk, mut model, mut crashes) = (Disk::new(capacity), Model::default(), 0);
    for process in 0..6 {
        let context = format!("seed {seed}, process {process}");
        // A crash while the log is opened, too.
        if random.random_ratio(1, 3) {
            disk.fail_after(random.random_range(0..20), io::ErrorKind::Other);
            _ = Log::open(disk.clone(), SEGMENT, |_, _| ());
            disk = disk.crash(random.random());
        }
        let (log, recovered) = Log::open(disk.clone(), SEGMENT, |_, _| ()).expect("a log");
        assert!(recovered.damages.is_empty(), "{context}: {:?}", recovered.damages);
        model.check(&records(&recovered), &context);
        let inbox = Inbox::new(1, log.next_record(), Box::new(|_| ()));
        (0..100).for_each(|_| _ = inbox.records());
        let next = inbox.first_record();
        let fsync = if random.random_ratio(1, 3) { Fsync::Interval(Duration::ZERO) } else { Fsync::Always };
        let turns = random.random_range(0..150);
        let limit = random.random_range(0..turns * 3 + 10);
        if random.random_ratio(4, 5) {
            disk.fail_after(limit, io::ErrorKind::Other);
        }
        let writer = Writer::new(log, fsync);
        let mut process =
            Process { random: &mut random, model: &mut model, writer, inbox, next, position: 0 };
        if (0..turns).any(|_| process.turn().is_err()) {
            crashes += 1;
        }
        drop(process);
        disk = disk.crash(random.random());
    }
    crashes
}

#[test]
fn what_was_confirmed_survives_crashes_at_any_call_and_nothing_forgotten_returns() {
    let crashes: u32 = (0..400).map(|seed| run(seed, 1 << 20)).sum();
    assert!(crashes > 400, "{crashes} crashes");
}

#[test]
fn the_same_on_a_disk_that_is_nearly_full() {
    let crashes: u32 = (0..400).map(|seed| run(seed, 9 * SEGMENT)).sum();
    assert!(crashes > 100, "{crashes} crashes");
}
