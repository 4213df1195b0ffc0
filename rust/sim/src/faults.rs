//! Planted faults: errors in the broker that `FAULT=name` switches on. Each has to be found.
//!
//! A run of a seed without a fault shows which faults' places it reaches. Where it does not reach a place, the run with
//! that fault is the same and finds nothing, so the search does not repeat it.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use stompica_broker::simulated::outside;

use crate::options::Options;
use crate::world::World;

/// All planted faults.
pub const ALL: &[&str] = &[
    "accept-not-retried",
    "ack-forgotten",
    "ack-not-awaited",
    "announced-counts",
    "answers-without-end",
    "batch-counted-forever",
    "batch-for-one-shard",
    "bytes-as-text-message",
    "cancel-forgotten",
    "chunk-leaked",
    "claimed-room-released",
    "close-code-lost",
    "commit-at-one-place",
    "commit-in-pieces",
    "commit-not-cancelled",
    "commit-of-first-ack",
    "commit-without-acks",
    "congested-forever",
    "connections-without-end",
    "consumer-waits-to-arrive",
    "counts-not-restored",
    "credit-not-called-back",
    "credit-twice",
    "cumulative-ack-one-short",
    "dead-letter-lost",
    "dead-letter-twice",
    "deadline-not-renewed",
    "deadline-outlives-connection",
    "deferred-not-resumed",
    "deferred-not-returned",
    "deferred-overtaken",
    "definition-not-restored",
    "deliveries-not-moved",
    "deliveries-not-written",
    "delivery-count-lost",
    "destination-too-many",
    "directory-not-synced",
    "disinterest-of-all",
    "dropped-newest-untold",
    "dropped-notice-lost",
    "durable-askers-forgotten",
    "durable-backlog-dropped",
    "durable-credit-early",
    "durable-gets-past",
    "durable-in-use-ignored",
    "durable-interest-left",
    "durable-scope-ignored",
    "early-tombstone-lost",
    "end-before-answers",
    "error-before-receipts",
    "error-overtakes",
    "error-without-close",
    "escaped-for-1.2",
    "expiry-not-checked",
    "forgotten-copy-still-counted",
    "fragments-unlimited",
    "frame-overtakes-receipts",
    "frame-timeout-forgotten",
    "frames-after-error",
    "full-before-interest",
    "full-outbox-outlives-subscription",
    "full-queue-takes-bytes",
    "full-queue-takes-one-more",
    "heart-beat-late",
    "idle-with-messages-in-flight",
    "implicit-consumer-forgotten",
    "implicit-consumer-stays",
    "interest-forgotten",
    "interest-withdrawn-early",
    "kept-sends-not-retried",
    "late-ack-covers-others",
    "late-mail-forgotten",
    "late-nack-covers-one",
    "linger-forever",
    "loaded-not-ready",
    "long-body-without-nul",
    "mail-overtakes",
    "memory-without-end",
    "message-not-moved",
    "moved-member-misplaced",
    "nack-credit-lost",
    "name-outlives-queue",
    "newest-transaction-ended",
    "next-query-forgotten",
    "notice-not-in-length",
    "old-record-forgotten-first",
    "one-delivery-more",
    "passing-sends-wait",
    "pattern-unnoticed",
    "pending-writes-uncounted",
    "pings-count-as-beats",
    "places-ignored",
    "pong-without-payload",
    "pongs-keep-alive",
    "prefetch-plus-one",
    "private-queue-left-behind",
    "private-queue-outlives-owner",
    "publish-timeout-not-armed",
    "publisher-of-fan-out-left",
    "queue-delivery-dropped",
    "queue-of-pattern-unserved",
    "queue-timer-lost",
    "range-cut-inside-frame",
    "read-not-counted",
    "read-on-behind-commit",
    "receipt-before-replay",
    "receipt-before-sync",
    "receipt-early",
    "receipt-id-cut",
    "receipt-id-forgotten",
    "receipt-when-posted",
    "reclaim-while-busy",
    "record-left",
    "records-reused",
    "recovered-not-synced",
    "redelivered-early",
    "redelivered-forgotten",
    "redelivery-timer-lost",
    "refusal-not-awaited",
    "refusal-without-receipt-id",
    "refused-not-counted-down",
    "removal-forgotten",
    "replay-not-awaited",
    "report-dropped-when-congested",
    "report-missing",
    "requeue-ignored",
    "requeued-at-the-end",
    "requeued-message-lost",
    "reservation-released-early",
    "reserved-place-ignored",
    "reserved-room-ignored",
    "retry-forgotten",
    "returned-credit-lost",
    "room-untold",
    "round-trip-too-short",
    "secrets-alike",
    "segment-removed-early",
    "sign-of-life-missed",
    "sleeps-with-input",
    "slow-consumer-not-timed",
    "slow-end-silent",
    "slow-watch-forgotten",
    "stale-matches-used",
    "star-ignores-separator",
    "stored-receipt-early",
    "stub-not-restored",
    "subscription-too-many",
    "suffix-of-another-version",
    "sweep-forgets-patterns",
    "temporary-too-many",
    "timeout-not-counted",
    "tombstone-lost",
    "tombstones-not-moved",
    "topic-prefetch-ignored",
    "topic-retry-forgotten",
    "torn-group-accepted",
    "transaction-in-parts",
    "transaction-too-many",
    "transaction-without-end",
    "uncongested-untold",
    "unread-input-dropped",
    "unwritten-not-returned",
    "value-not-replaced",
    "value-of-commit-lost",
    "wait-ends-message",
    "waiting-consumer-forgotten",
    "wake-up-forgotten",
    "watch-outlives-subscription",
    "websocket-rest-left",
    "written-credit-lost",
];

/// Series of seeds in which each fault is searched.
const SERIES: usize = 5;
/// The number of seeds of a series after which a fault counts as not found.
pub const SEEDS_MAX: u64 = 5000;
/// The distance of the first seeds of two series.
const SERIES_DISTANCE: u64 = 1_000_000;
/// All faults are searched in so many seeds of each series before further seeds run.
const ROUNDS: [u64; 6] = [30, 100, 300, 1000, 2500, SEEDS_MAX];

/// What a search has found about one fault.
#[derive(Clone, Debug)]
pub struct Row {
    /// Its name.
    pub fault: &'static str,
    /// The number of seeds that each series needed until it found the fault; `None`: it did not.
    pub needed: [Option<u64>; SERIES],
    /// The checkers that found it.
    pub checkers: BTreeSet<&'static str>,
    /// Seeds that ran without a fault, and those of them that reached its place.
    pub seeds: (u64, u64),
}

impl Row {
    fn new(fault: &'static str) -> Self {
        Row { fault, needed: [None; SERIES], checkers: BTreeSet::new(), seeds: (0, 0) }
    }

    /// Whether all series have found it.
    #[must_use]
    pub fn is_found(&self) -> bool {
        self.needed.iter().all(Option::is_some)
    }

    /// As a line of the table.
    #[must_use]
    pub fn line(&self, seeds_max: u64) -> String {
        let mut needed = self.needed.map(|seeds| seeds.unwrap_or(u64::MAX));
        needed.sort_unstable();
        let shown = [0, SERIES / 2, SERIES - 1].map(|at| match needed[at] {
            u64::MAX => format!("> {seeds_max}"),
            seeds => seeds.to_string(),
        });
        let (all, reached) = self.seeds;
        let share = if reached == 0 {
            "never".to_owned()
        } else {
            format!("{:.1} %", 100.0 * reached as f64 / all as f64)
        };
        let checkers: Vec<&str> = self.checkers.iter().copied().collect();
        let fault = self.fault;
        format!("| `{fault}` | {share} | {} | {} |", shown.join(" | "), checkers.join(", "))
    }
}

/// Lines above those of the rows.
#[must_use]
pub fn table_head() -> String {
    "| fault | seeds that reach its place | least | median | most | found by |\n|---|---|---|---|---|---|"
        .to_owned()
}

/// How to search.
#[derive(Clone, Copy, Debug)]
pub struct Search {
    /// Steps of each run.
    pub steps: u64,
    /// Seeds of each series at most.
    pub seeds_max: u64,
    /// Threads.
    pub cores: usize,
}

impl Search {
    /// Searches these faults; `tell` is called after each round with its last seed and the rows so far.
    #[must_use]
    pub fn run(&self, faults: &[&'static str], mut tell: impl FnMut(u64, &[Row])) -> Vec<Row> {
        let mut rows: Vec<Row> = faults.iter().copied().map(Row::new).collect();
        let mut begin = 0;
        for round in ROUNDS {
            let end = round.min(self.seeds_max);
            if begin == end || rows.iter().all(Row::is_found) {
                break;
            }
            self.run_round(begin, end, &mut rows);
            tell(end, &rows);
            begin = end;
        }
        rows
    }

    /// Runs the seeds `begin + 1` to `end` of each series.
    fn run_round(&self, begin: u64, end: u64, rows: &mut [Row]) {
        let len = (end - begin) as usize;
        // Which places does each seed reach?
        let seed = |series: usize, at: usize| series as u64 * SERIES_DISTANCE + begin + 1 + at as u64;
        let reached = self.in_parallel(SERIES * len, |job| {
            let seed = seed(job / len, job % len);
            match World::new(Options::new(seed, self.steps)).run(|_| true) {
                Ok(_) => outside::reached(),
                // What it finds without a fault says nothing of any fault.
                Err(failure) => {
                    let violation = failure.violation;
                    eprintln!("seed {seed} fails without a fault: {}: {}", violation.checker, violation.text);
                    Vec::new()
                }
            }
        });
        for row in &mut *rows {
            row.seeds.0 += reached.len() as u64;
            row.seeds.1 += reached.iter().filter(|places| places.contains(&row.fault)).count() as u64;
        }
        // Which of them find a fault there?
        let missing = |at: usize| rows[at].needed.iter().enumerate().filter(|(_, seeds)| seeds.is_none());
        let jobs: Vec<(usize, usize)> = (0..rows.len())
            .flat_map(|row| missing(row).map(move |(series, _)| (row, series)).collect::<Vec<_>>())
            .collect();
        let found = self.in_parallel(jobs.len(), |job| {
            let (row, series) = jobs[job];
            let fault = rows[row].fault;
            let reaching = (0..len).filter(|at| reached[series * len + at].contains(&fault));
            for at in reaching {
                let options = Options::new(seed(series, at), self.steps);
                let world = World::new(Options { fault: Some(fault.to_owned()), ..options });
                if let Err(failure) = world.run(|_| true) {
                    return Some((begin + 1 + at as u64, failure.violation.checker));
                }
            }
            None
        });
        for ((row, series), found) in jobs.into_iter().zip(found) {
            let Some((seeds, checker)) = found else { continue };
            rows[row].needed[series] = Some(seeds);
            rows[row].checkers.insert(checker);
        }
    }

    /// Runs jobs on all threads; returns their results in the order of jobs.
    fn in_parallel<T: Send>(&self, jobs: usize, run: impl Fn(usize) -> T + Sync) -> Vec<T> {
        let next = AtomicUsize::new(0);
        let results: Mutex<Vec<(usize, T)>> = Mutex::default();
        let work = || loop {
            let job = next.fetch_add(1, Ordering::Relaxed);
            if job >= jobs {
                return;
            }
            let result = run(job);
            results.lock().expect("no thread panics while it pushes").push((job, result));
        };
        thread::scope(|scope| (0..self.cores).for_each(|_| drop(scope.spawn(work))));
        let mut results = results.into_inner().expect("no thread panics while it pushes");
        results.sort_unstable_by_key(|(job, _)| *job);
        results.into_iter().map(|(_, result)| result).collect()
    }
}
