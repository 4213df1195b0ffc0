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

/// A message of a topic, for one of several durable subscriptions.
fn copy(record: RecordId, body: &[u8]) -> Message<'_> {
    let queue: &[u8] = if record.is_multiple_of(2) { b"even" } else { b"odd" };
    Message { queue, destination: b"/t", ..message(record, body) }
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
                (3, _) => {
                    for record in self.next..self.next + self.random.random_range(1..5) {
                        batch.keep(&copy(record, &body));
                        kept.push(record);
                        self.model.fates.insert(record, Fate::default());
                        self.next = record + 1;
                    }
                }
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
            _ = Log::open(disk.clone(), SEGMENT, |_, _| true);
            disk = disk.crash(random.random());
        }
        let (log, recovered) = Log::open(disk.clone(), SEGMENT, |_, _| true).expect("a log");
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

/// A writer on a disk, without a thread.
struct Plain {
    disk: Disk,
    writer: Writer,
    inbox: Arc<Inbox>,
}

impl Plain {
    fn new(disk: Disk) -> Self {
        let (log, _) = Log::open(disk.clone(), SEGMENT, |_, _| true).expect("a log");
        let inbox = Inbox::new(2, log.next_record(), Box::new(|_| ()));
        (0..100).for_each(|_| _ = inbox.records());
        Plain { disk, writer: Writer::new(log, Fsync::Always), inbox }
    }

    fn turn(&mut self) {
        let work = self.inbox.take(Some(Duration::ZERO));
        self.writer.turn(work, &self.inbox, &mut |_| ()).expect("a disk that works");
    }

    fn post(&self, shard: usize, build: impl FnOnce(&mut Batch), position: u64) {
        let mut batch = Batch::default();
        build(&mut batch);
        self.inbox.post(shard, batch, position, &mut Vec::new());
    }

    fn found_after_a_crash(&self) -> BTreeSet<RecordId> {
        let (_, recovered) = Log::open(self.disk.crash(7), SEGMENT, |_, _| true).expect("a log");
        records(&recovered)
    }
}

#[test]
fn nothing_behind_a_group_that_is_stuck_is_confirmed() {
    let disk = Disk::new(1 << 20);
    disk.without_reservations();
    let mut plain = Plain::new(disk);
    plain.post(0, |batch| batch.keep(&message(256, b"x")), 1);
    plain.turn();
    assert_eq!(plain.inbox.safe(0).expect("it works"), 1);
    plain.disk.set_capacity(plain.disk.used() + 10);
    plain.post(0, |batch| batch.keep(&message(257, &[b'y'; 200])), 2);
    let passing = |batch: &mut Batch| {
        batch.keep(&message(258, b"z"));
        batch.calls.push(Call::Forget(258));
    };
    plain.post(0, passing, 4);
    plain.turn();
    let safe = plain.inbox.safe(0).expect("it works");
    let found = plain.found_after_a_crash();
    assert!(safe < 2 || found.contains(&257), "confirmed up to {safe}, and found {found:?}");
}

#[test]
fn a_dead_letter_is_not_lost_on_a_full_disk() {
    let mut plain = Plain::new(Disk::new(8 * SEGMENT));
    plain.post(0, |batch| batch.keep(&message(256, b"x")), 1);
    plain.turn();
    assert_eq!(plain.inbox.safe(0).expect("it works"), 1, "its RECEIPT has left");
    // Five messages wait for room, however long.
    let mut record = 300;
    while plain.inbox.safe(0).expect("it works") + 5 > record - 299 {
        record += 1;
        plain.post(0, |batch| batch.keep(&message(record, &[b'f'; 100])), record - 299);
        (0..20).for_each(|_| plain.turn());
        assert!(record < 1000, "the disk fills up");
    }
    // The home of the dead letters keeps it at its new place, and then forgets it at the old one.
    let dead_letter = |batch: &mut Batch| {
        batch.keep(&message(900, b"x"));
        batch.calls.push(Call::Forget(256));
    };
    plain.post(1, dead_letter, 2);
    plain.turn();
    let found = plain.found_after_a_crash();
    assert!(found.contains(&256) || found.contains(&900), "found {found:?}");
}

/// How both come into the log: one turn has replaced a value, and a crash has come between two of its groups.
#[test]
fn a_value_and_the_one_that_it_replaces_are_not_found_together() {
    let mut both = Vec::new();
    for calls in 0..10 {
        let mut plain = Plain::new(Disk::new(1 << 20));
        plain.post(0, |batch| batch.keep(&message(256, b"old")), 1);
        plain.turn();
        let replace = |batch: &mut Batch| {
            batch.keep(&message(257, &[b'n'; 300]));
            batch.calls.push(Call::Forget(256));
        };
        plain.post(0, replace, 3);
        plain.disk.fail_after(calls, io::ErrorKind::Other);
        let work = plain.inbox.take(Some(Duration::ZERO));
        _ = plain.writer.turn(work, &plain.inbox, &mut |_| ());
        for seed in 0..20 {
            let (_, recovered) = Log::open(plain.disk.crash(seed), SEGMENT, |_, _| true).expect("a log");
            if records(&recovered).len() == 2 {
                both.push((calls, seed));
            }
        }
    }
    assert!(both.is_empty(), "both after so many calls, with these seeds: {both:?}");
}
