//! A whole broker: its shards sleep and are stopped, drained, asked, or one of them panics.

mod support;

use std::sync::Arc;
use std::time::Duration;

use stompica_broker::interleaved::{Config, Level, LogQueue, ThreadBuilder};
use stompica_broker::{Broker, DiagError};

/// How long a query waits; here, no time passes.
const PATIENCE: Duration = Duration::from_secs(10);

fn broker(writers: usize) -> Broker {
    let config = Config { host: "127.0.0.1".into(), port: 0, writers, ..Config::default() };
    Broker::start(config, LogQueue::new(9, Level::Error), || ()).expect("nothing can fail here")
}

/// Runs on a thread that has room for it.
fn run(test: fn()) {
    let thread = ThreadBuilder::new().spawn(test).expect("a thread");
    thread.join().expect("it does not panic");
}

fn check(test: fn()) {
    check_with(3, test);
}

fn check_with(interruptions: usize, test: fn()) {
    support::check(Some(interruptions), move || run(test));
}

fn check_that_it_fails(fault: &'static str, test: fn()) {
    support::check_that_it_fails(fault, move || run(test));
}

fn stop() {
    let broker = broker(1);
    broker.stop();
    assert_eq!(broker.wait(None), Some(Ok(())));
}

fn drain() {
    let broker = broker(2);
    broker.drain();
    assert_eq!(broker.wait(None), Some(Ok(())));
}

fn panic() {
    let broker = broker(2);
    broker.fail(1);
    let ended = broker.wait(None).expect("a wait without a limit");
    assert!(ended.expect_err("it did not end in order").starts_with("shard 1 panicked"));
}

/// Asks a broker that ends meanwhile: an answer comes, or the end.
fn ask_while_it_ends(end: fn(&Broker), ask: fn(&Broker)) {
    let broker = Arc::new(broker(1));
    let asked = Arc::clone(&broker);
    let thread = ThreadBuilder::new().spawn(move || ask(&asked)).expect("a thread");
    end(&broker);
    thread.join().expect("it does not panic");
    assert!(broker.wait(None).is_some());
    assert_eq!(broker.diag("memory"), Err(DiagError::Silent(PATIENCE)), "the end is known");
}

fn connections_while_it_stops() {
    ask_while_it_ends(Broker::stop, |broker| assert!(broker.connections().is_empty()));
}

fn diag_while_it_drains() {
    ask_while_it_ends(Broker::drain, |broker| _ = broker.diag("memory"));
}

fn settle_while_it_fails() {
    ask_while_it_ends(|broker| broker.fail(0), |broker| _ = broker.settle(PATIENCE));
}

#[test]
fn a_stop_reaches_a_sleeping_shard() {
    check(stop);
    check_that_it_fails("wake-up-forgotten", stop);
}

#[test]
fn a_drain_ends_all_shards() {
    check_with(2, drain); // 400,000 orders with 3
}

#[test]
fn a_panic_ends_all_shards() {
    check(panic);
    check_that_it_fails("panic-not-told", panic);
}

#[test]
fn a_query_of_a_broker_that_ends_is_answered_or_ends() {
    check(connections_while_it_stops);
    check(diag_while_it_drains);
    check_with(2, settle_while_it_fails);
    for fault in ["queries-of-ended-kept", "end-not-checked-again"] {
        check_that_it_fails(fault, connections_while_it_stops);
    }
}
