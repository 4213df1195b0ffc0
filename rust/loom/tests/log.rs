//! The queue of log records: each is read once or reported as dropped, and a waiting reader is woken.

mod support;

use std::sync::Arc;
use std::time::Duration;

use loom::thread;
use stompica_broker::interleaved::{Level, LogQueue};
use support::{check, check_that_it_fails};

/// Reads once: what arrived, and how many were reported as dropped.
fn drain(queue: &LogQueue) -> (Vec<String>, u64) {
    let (mut texts, mut dropped) = (Vec::new(), 0);
    for record in queue.drain(Duration::MAX) {
        match &record.fields[..] {
            [("dropped", count)] => dropped += count.parse::<u64>().expect("a number"),
            _ => texts.push(record.text),
        }
    }
    (texts, dropped)
}

/// Two shards push three records into a queue with room for one.
fn a_full_queue() {
    let queue = LogQueue::new(1, Level::Info);
    let push = |texts: &'static [&'static str]| {
        let queue = Arc::clone(&queue);
        thread::spawn(move || texts.iter().for_each(|text| queue.push(Level::Info, (*text).into(), vec![])))
    };
    let threads = [push(&["a1", "a2"]), push(&["b1"])];
    let (mut read, mut dropped) = (Vec::new(), 0);
    while read.is_empty() {
        let (texts, more) = drain(&queue);
        read.extend(texts);
        dropped += more;
    }
    threads.into_iter().for_each(|thread| thread.join().expect("it does not panic"));
    queue.close();
    while !queue.is_finished() {
        let (texts, more) = drain(&queue);
        read.extend(texts);
        dropped += more;
    }
    assert_eq!(read.len() as u64 + dropped, 3, "{read:?}");
    let first = read.iter().filter(|text| text.starts_with('a'));
    assert!(first.is_sorted(), "{read:?}");
    read.sort_unstable();
    assert!(read.is_sorted_by(|one, other| one < other), "twice: {read:?}");
}

/// A reader reads until the queue is closed.
fn the_end() {
    let queue = LogQueue::new(2, Level::Info);
    let reader = Arc::clone(&queue);
    let thread = thread::spawn(move || {
        let mut read = Vec::new();
        while !reader.is_finished() {
            read.extend(drain(&reader).0);
        }
        assert_eq!(read, ["a"]);
    });
    queue.push(Level::Info, "a".into(), vec![]);
    queue.close();
    queue.push(Level::Info, "late".into(), vec![]);
    thread.join().expect("it does not panic");
}

#[test]
fn each_record_is_read_once_or_counted_as_dropped() {
    check(None, a_full_queue);
    check_that_it_fails("log-wake-up-forgotten", a_full_queue);
    check_that_it_fails("log-unlocked-between", a_full_queue);
}

#[test]
fn the_end_of_the_log_wakes_its_reader() {
    check(None, the_end);
    check_that_it_fails("log-end-not-told", the_end);
}
