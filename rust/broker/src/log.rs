//! The bounded queue of log records between the broker and its log's reader. It never blocks a shard.
//!
//! Shards push, and one dispatcher (the command line's printer or Python's `logging`) drains in batches. A full queue
//! drops the new record and counts it; the next drained batch ends with a record that reports how many were lost.
//! Never called per message.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::door::planted_in_loom;
use crate::door::sync::{AtomicU8, Condvar, Mutex, MutexGuard, Ordering, PoisonError};
use crate::door::{Instant, system_time};

/// The severity of a record; the setting `log_level` is the lowest one that is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Level {
    /// Frames and decisions, for troubleshooting.
    Debug,
    /// Start, stop, reload, connections.
    Info,
    /// Events that an operator should look at: a limit was reached, a slow consumer was cut off.
    Warn,
    /// Failures: a panic, a setting that could not be applied.
    Error,
}

impl Level {
    /// The name as the setting `log_level` spells it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Level::Debug => "debug",
            Level::Info => "info",
            Level::Warn => "warn",
            Level::Error => "error",
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// One line of the log.
#[derive(Clone, Debug)]
pub struct Record {
    /// Wall-clock time of `push`.
    pub time: SystemTime,
    /// Severity.
    pub level: Level,
    /// The event, in one line, without the fields.
    pub text: String,
    /// Further facts (connection, peer, cause), in order.
    pub fields: Vec<(&'static str, String)>,
}

/// Bounded queue of records between the shards and one dispatcher.
#[derive(Debug)]
pub struct LogQueue {
    capacity: usize,
    level: AtomicU8,
    state: Mutex<State>,
    arrived: Condvar,
}

#[derive(Debug, Default)]
struct State {
    records: VecDeque<Record>,
    /// Records dropped because the queue was full, and not yet reported.
    dropped: u64,
    closed: bool,
}

impl LogQueue {
    /// Makes a queue of at most `capacity` records (at least one) that keeps records of `level` and above.
    #[must_use]
    pub fn new(capacity: usize, level: Level) -> Arc<LogQueue> {
        Arc::new(LogQueue {
            capacity: capacity.max(1),
            level: AtomicU8::new(level as u8),
            state: Mutex::new(State::default()),
            arrived: Condvar::new(),
        })
    }

    /// Whether a record of this level would be kept. It costs one relaxed load, so callers check it before they format.
    #[must_use]
    #[inline]
    pub fn enabled(&self, level: Level) -> bool {
        level as u8 >= self.level.load(Ordering::Relaxed)
    }

    /// Changes the lowest level that is kept.
    pub fn set_level(&self, level: Level) {
        self.level.store(level as u8, Ordering::Relaxed);
    }

    /// Queues one record. It is dropped if its level is not kept or the queue is full or closed. Never waits for the
    /// reader.
    pub fn push(&self, level: Level, text: String, fields: Vec<(&'static str, String)>) {
        if self.enabled(level) {
            self.announce(level, text, fields);
        }
    }

    /// Queues one record regardless of the level: the address, for example, is logged even with `log_level=error`.
    pub fn announce(&self, level: Level, text: String, fields: Vec<(&'static str, String)>) {
        let mut state = self.lock();
        if state.closed {
            return;
        }
        if state.records.len() >= self.capacity {
            state.dropped += 1;
            return;
        }
        state.records.push_back(Record { time: system_time(), level, text, fields });
        if state.records.len() == 1 && !planted_in_loom!("log-wake-up-forgotten") {
            self.arrived.notify_all();
        }
    }

    /// Takes all queued records; waits up to `timeout` for the first. Empty if none came or the queue is closed.
    #[must_use]
    pub fn drain(&self, timeout: Duration) -> Vec<Record> {
        let deadline = Instant::now().checked_add(timeout);
        let mut state = self.lock();
        while state.records.is_empty() && !state.closed {
            let remaining = deadline.map_or(timeout, |at| at.saturating_duration_since(Instant::now()));
            if remaining.is_zero() {
                break;
            }
            state = self.arrived.wait_timeout(state, remaining).unwrap_or_else(PoisonError::into_inner).0;
        }
        let dropped = std::mem::take(&mut state.dropped);
        if planted_in_loom!("log-unlocked-between") {
            drop(state);
            state = self.lock();
            state.dropped = 0;
        }
        let mut records: Vec<Record> = state.records.drain(..).collect();
        drop(state);
        if dropped > 0 {
            records.push(Record {
                time: system_time(),
                level: Level::Warn,
                text: "log records were dropped: the reader of the log is too slow".to_owned(),
                fields: vec![("dropped", dropped.to_string())],
            });
        }
        records
    }

    /// Ends the log: later pushes are dropped, a waiting `drain` returns what is left.
    pub fn close(&self) {
        self.lock().closed = true;
        if !planted_in_loom!("log-end-not-told") {
            self.arrived.notify_all();
        }
    }

    /// Whether `close` was called and everything has been drained.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        let state = self.lock();
        state.closed && state.records.is_empty() && state.dropped == 0
    }

    /// Ignores poisoning: a panic while the lock was held leaves a valid queue, since every change is one assignment.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(records: &[Record]) -> Vec<&str> {
        records.iter().map(|record| record.text.as_str()).collect()
    }

    #[test]
    fn records_come_out_in_order() {
        let queue = LogQueue::new(8, Level::Info);
        queue.push(Level::Info, "a".into(), vec![("peer", "x".into())]);
        queue.push(Level::Error, "b".into(), vec![]);
        let records = queue.drain(Duration::ZERO);
        assert_eq!(texts(&records), ["a", "b"]);
        assert_eq!(records[0].fields, [("peer", "x".to_owned())]);
        assert!(queue.drain(Duration::ZERO).is_empty());
    }

    #[test]
    fn a_record_below_the_level_is_dropped() {
        let queue = LogQueue::new(8, Level::Warn);
        queue.push(Level::Info, "a".into(), vec![]);
        assert!(!queue.enabled(Level::Info));
        queue.set_level(Level::Debug);
        assert!(queue.enabled(Level::Debug));
        queue.push(Level::Debug, "b".into(), vec![]);
        assert_eq!(texts(&queue.drain(Duration::ZERO)), ["b"]);
    }

    #[test]
    fn a_full_queue_counts_dropped_records() {
        let queue = LogQueue::new(2, Level::Info);
        for text in ["a", "b", "c", "d", "e"] {
            queue.push(Level::Info, text.into(), vec![]);
        }
        let records = queue.drain(Duration::ZERO);
        assert_eq!(texts(&records)[..2], ["a", "b"]);
        assert_eq!(records[2].fields, [("dropped", "3".to_owned())]);
        assert!(queue.drain(Duration::ZERO).is_empty());
    }

    #[test]
    fn drain_waits_for_a_record_of_another_thread() {
        let queue = LogQueue::new(2, Level::Info);
        let pusher = Arc::clone(&queue);
        let thread = std::thread::spawn(move || pusher.push(Level::Info, "a".into(), vec![]));
        assert_eq!(texts(&queue.drain(Duration::from_secs(30))), ["a"]);
        thread.join().expect("the pusher does not panic");
    }

    #[test]
    fn close_wakes_the_reader_and_drops_later_records() {
        let queue = LogQueue::new(2, Level::Info);
        let closer = Arc::clone(&queue);
        let thread = std::thread::spawn(move || closer.close());
        assert!(queue.drain(Duration::from_secs(30)).is_empty());
        thread.join().expect("the closer does not panic");
        queue.push(Level::Info, "late".into(), vec![]);
        assert!(queue.is_finished());
    }
}
