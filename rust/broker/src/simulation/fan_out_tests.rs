//! Fan-outs that take several turns, stopped on their way because memory is short.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::SimulatedBroker;
use super::client::Client;
use super::support::{broker, connect, exchange, fill_memory, messages, receipts};
use crate::config::Config;

/// A broker with enough memory for a message of 100 kB to many readers, and clients of its first shard.
fn small_broker<const CLIENTS: usize>(writers: usize) -> (SimulatedBroker, [Client; CLIENTS]) {
    let mut broker = broker(Config { writers, memory_limit: 32 << 20, ..Config::default() });
    let clients = [0; CLIENTS].map(|shard| connect(&mut broker, shard));
    (broker, clients)
}

/// Lets this time pass, and the broker do what is due then.
fn wait_ms(broker: &mut SimulatedBroker, ms: u64) {
    broker.advance_ms(ms);
    broker.run_until_idle();
}

/// Lets this time pass as if every client took a byte twice a second, so that nobody is cut off. (The system counts what
/// waits in these sockets in whole writes.)
fn wait_for_slow_readers(broker: &mut SimulatedBroker, ms: u64) {
    for _ in 0..ms / 500 {
        for shard in broker.threads.iter_mut().map(|thread| &mut thread.shard) {
            let now_ms = shard.turn.now_ms;
            for key in shard.connections.table.keys() {
                let conn = shard.connections.table.get_mut(key).expect("its key was listed");
                conn.output.stuck_since_ms = now_ms;
                conn.output.full.iter_mut().for_each(|full| full.restart(now_ms));
            }
        }
        wait_ms(broker, 500);
    }
}

/// Publishes a message of 100 kB to a topic with so many groups that the fan-out takes several turns, and starts it.
fn begin_fan_out(broker: &mut SimulatedBroker, publisher: &mut Client, shard: usize) -> Vec<Client> {
    let receipt = publisher.expect_receipt();
    begin_fan_out_with(&format!("receipt:{receipt}\n"), broker, publisher, shard)
}

/// The same with these headers; a RECEIPT is requested only if they contain one.
fn begin_fan_out_with(
    headers: &str,
    broker: &mut SimulatedBroker,
    publisher: &mut Client,
    shard: usize,
) -> Vec<Client> {
    let mut readers: Vec<Client> = (0..40).map(|_| connect(broker, shard)).collect();
    for (at, reader) in readers.iter_mut().enumerate() {
        reader.send(format!("SUBSCRIBE\nid:{at}\ndestination:/topic/wide\n\n\0").as_bytes());
    }
    broker.run_until_idle();
    let body = "x".repeat(100_000);
    publisher.send(format!("SEND\ndestination:/topic/wide\n{headers}\n{body}\0").as_bytes());
    while broker.threads[shard].shard.deliveries.fan_outs.first().is_none() {
        publisher.send(b"");
        broker.round();
    }
    readers
}

fn is_in_progress(broker: &SimulatedBroker, shard: usize) -> bool {
    broker.threads[shard].shard.deliveries.fan_outs.first().is_some()
}

/// Frees memory; then the fan-out delivers the message to each reader once.
fn finish_fan_out(broker: &mut SimulatedBroker, readers: &mut [Client]) {
    fill_memory(broker, false);
    readers.iter_mut().for_each(|reader| exchange(broker, reader));
    assert_eq!(readers.iter().map(messages).sum::<usize>(), readers.len());
}

fn expect_open(client: &mut Client) {
    client.read(usize::MAX);
    assert!(!client.is_closed());
}

/// Publishing has timed out while memory was short: the client gets an ERROR for the SEND with this receipt, and the
/// fan-out ends as soon as there is memory.
fn expect_timeout(client: &mut Client, receipt: &str, broker: &mut SimulatedBroker, readers: &mut [Client]) {
    let error = refusal(client);
    assert!(error.contains("code:E-MEMORY") && error.contains(&format!("receipt-id:{receipt} ")), "{error}");
    finish_fan_out(broker, readers);
}

#[test]
fn a_shard_checks_again_soon_if_memory_ran_out_during_its_turn() {
    let (mut broker, [mut publisher]) = small_broker(1);
    let mut readers = begin_fan_out(&mut broker, &mut publisher, 0);
    assert!(broker.threads[0].shard.goes_on());
    fill_memory(&broker, true);
    let sleep = broker.threads[0].shard.sleep();
    assert!(sleep.is_some_and(|sleep| sleep <= Duration::from_millis(10)), "{sleep:?}");
    broker.round();
    assert!(is_in_progress(&broker, 0) && !broker.threads[0].shard.goes_on());
    fill_memory(&broker, false);
    assert!(broker.threads[0].shard.goes_on());
    readers.iter_mut().for_each(|reader| exchange(&mut broker, reader));
    assert!(!is_in_progress(&broker, 0));
    assert_eq!(readers.iter().map(messages).sum::<usize>(), readers.len());
}

#[test]
fn a_shard_is_idle_while_an_unsubscribe_waits_for_a_fan_out_that_waits_for_memory() {
    for leaving in ["UNSUBSCRIBE\nid:x", "DISCONNECT", "SUBSCRIBE\nid:y\ndestination:/topic/b"] {
        let (mut broker, [mut publisher]) = small_broker(2);
        let mut leaver = connect(&mut broker, 1);
        leaver.send(b"SUBSCRIBE\nid:x\ndestination:/topic/a\n\n\0");
        let mut readers = begin_fan_out(&mut broker, &mut publisher, 1);
        publisher.send(b"SEND\ndestination:/topic/a\n\nlast\0");
        broker.turn(0);
        fill_memory(&broker, true);
        let receipt = leaver.expect_receipt();
        leaver.send(format!("{leaving}\nreceipt:{receipt}\n\n\0").as_bytes());
        broker.run_until_idle();
        assert!(is_in_progress(&broker, 1));
        wait_ms(&mut broker, 120_000);
        leaver.send(b"\n");
        broker.run_until_idle();
        leaver.read(usize::MAX);
        assert!(receipts(&leaver) == 0 && !leaver.is_closed(), "{leaving}");
        fill_memory(&broker, false);
        readers.iter_mut().for_each(|reader| exchange(&mut broker, reader));
        exchange(&mut broker, &mut leaver);
        assert_eq!((receipts(&leaver), messages(&leaver)), (1, 1), "{leaving}");
    }
}

#[test]
fn readers_that_take_nothing_while_a_fan_out_waits_for_memory_are_cut_off() {
    let (mut broker, [mut publisher]) = small_broker(1);
    // Each outbox is too small to be full by itself, and all of them are a small part of the memory.
    let readers = begin_fan_out(&mut broker, &mut publisher, 0);
    // As if others held this much for ever.
    broker.shared.totals.memory.fetch_add((32 << 20) / 100 * 95, Ordering::Relaxed);
    (0..60).for_each(|_| wait_ms(&mut broker, 500));
    publisher.read(usize::MAX);
    assert!(!is_in_progress(&broker, 0) && receipts(&publisher) == 1, "it waits for clients that never read");
    assert!(broker.threads[0].shard.turn.counters.slow_consumers > 0);
    drop(readers);
}

#[test]
fn a_fan_out_that_waits_for_memory_ends_when_its_message_expires() {
    let (mut broker, [mut publisher]) = small_broker(1);
    publisher.expect_receipt();
    let mut readers = begin_fan_out_with("ttl:20000\nreceipt:1\n", &mut broker, &mut publisher, 0);
    fill_memory(&broker, true);
    broker.run_until_idle();
    broker.advance_ms(21_000);
    fill_memory(&broker, false);
    readers.iter_mut().for_each(|reader| exchange(&mut broker, reader));
    let received: usize = readers.iter().map(messages).sum();
    assert!((1..40).contains(&received), "{received}");
    assert_eq!(broker.threads[0].shard.turn.counters.expired, 1);
    exchange(&mut broker, &mut publisher);
    assert_eq!(receipts(&publisher), 1);
}

#[test]
fn a_query_gets_its_receipt_when_its_answer_has_reached_all_subscriptions() {
    const COUNT: usize = 2100;
    let (mut broker, [mut reader, mut requester]) = small_broker(1);
    for at in 0..COUNT {
        reader.send(format!("SUBSCRIBE\nid:{at}\ndestination:DIAG/a\n\n\0").as_bytes());
    }
    exchange(&mut broker, &mut reader);
    let receipt = requester.expect_receipt();
    let query = format!("SEND\ndestination:DIAG/a\nreceipt:{receipt}\nx:{}\n\nsession\0", "x".repeat(5000));
    requester.send(query.as_bytes());
    let receipt = requester.expect_receipt();
    requester.send(format!("SEND\ndestination:DIAG/a\nreceipt:{receipt}\n\nsession\0").as_bytes());
    while !is_in_progress(&broker, 0) {
        broker.turn(0);
    }
    fill_memory(&broker, true);
    broker.run_until_idle();
    requester.read(usize::MAX);
    assert_eq!(receipts(&requester), 0);
    fill_memory(&broker, false);
    exchange(&mut broker, &mut reader);
    exchange(&mut broker, &mut requester);
    assert_eq!((receipts(&requester), messages(&reader)), (2, 2 * COUNT));
}

/// The ERROR that a refused client received last.
fn refusal(client: &mut Client) -> String {
    client.read(usize::MAX);
    assert!(client.is_closed());
    client.received_frames().last().expect("an ERROR").to_owned()
}

#[test]
fn a_publisher_whose_fan_out_waits_too_long_gets_an_error_and_the_fan_out_continues() {
    for receipt in ["", "receipt:mine\n"] {
        let (mut broker, [mut publisher]) = small_broker(1);
        let mut readers = begin_fan_out_with(&format!("x-mark:a\n{receipt}"), &mut broker, &mut publisher, 0);
        publisher.send(b"SEND\ndestination:/topic/next\n\n\0");
        fill_memory(&broker, true);
        broker.run_until_idle();
        wait_for_slow_readers(&mut broker, 20_000);
        expect_open(&mut publisher);
        wait_for_slow_readers(&mut broker, 11_000);
        let error = refusal(&mut publisher);
        assert!(error.starts_with("ERROR") && error.contains("code:E-MEMORY"), "{error}");
        assert!(error.contains("SEND | destination:/topic/wide | ") && error.contains("x-mark:a"), "{error}");
        assert!(
            !error.contains("/topic/next") && error.contains("receipt-id:mine") != receipt.is_empty(),
            "{error}"
        );
        assert!(is_in_progress(&broker, 0));
        finish_fan_out(&mut broker, &mut readers);
        assert!(broker.threads[0].shard.deliveries.fan_outs.is_empty());
        drop((publisher, readers));
        broker.run_until_idle();
        assert_eq!((broker.snapshot().connections, broker.snapshot().unanswered), (0, 0));
    }
}

#[test]
fn progress_of_a_fan_out_restarts_the_publish_timeout() {
    let (mut broker, [mut publisher]) = small_broker(1);
    let mut readers = begin_fan_out(&mut broker, &mut publisher, 0);
    for _ in 0..2 {
        fill_memory(&broker, true);
        broker.run_until_idle();
        wait_for_slow_readers(&mut broker, 29_000);
        fill_memory(&broker, false);
        broker.round();
        assert!(is_in_progress(&broker, 0));
    }
    fill_memory(&broker, true);
    broker.run_until_idle();
    wait_for_slow_readers(&mut broker, 29_000);
    expect_open(&mut publisher);
    wait_for_slow_readers(&mut broker, 2_000);
    expect_timeout(&mut publisher, "1", &mut broker, &mut readers);
}

#[test]
fn a_retained_message_whose_fan_out_waits_too_long_is_kept() {
    let (mut broker, [mut publisher, mut late]) = small_broker(2);
    publisher.expect_receipt();
    let mut readers = begin_fan_out_with("retain:set\nreceipt:1\n", &mut broker, &mut publisher, 0);
    fill_memory(&broker, true);
    broker.run_until_idle();
    wait_for_slow_readers(&mut broker, 31_000);
    expect_timeout(&mut publisher, "1", &mut broker, &mut readers);
    late.send(b"SUBSCRIBE\nid:0\ndestination:/topic/wide\n\n\0");
    exchange(&mut broker, &mut late);
    assert_eq!(messages(&late), 1);
}

#[test]
fn a_commit_that_is_being_applied_waits_for_memory_without_a_timeout() {
    let (mut broker, [mut publisher]) = small_broker(1);
    let mut readers: Vec<Client> = (0..40).map(|_| connect(&mut broker, 0)).collect();
    for (at, reader) in readers.iter_mut().enumerate() {
        reader.send(format!("SUBSCRIBE\nid:{at}\ndestination:/topic/wide\n\n\0").as_bytes());
    }
    publisher.send(b"BEGIN\ntransaction:1\n\n\0");
    for _ in 0..2 {
        let body = "x".repeat(100_000);
        publisher.send(format!("SEND\ndestination:/topic/wide\ntransaction:1\n\n{body}\0").as_bytes());
    }
    exchange(&mut broker, &mut publisher);
    let receipt = publisher.expect_receipt();
    publisher.send(format!("COMMIT\ntransaction:1\nreceipt:{receipt}\n\n\0").as_bytes());
    while !is_in_progress(&broker, 0) {
        broker.round();
    }
    fill_memory(&broker, true);
    for _ in 0..10 {
        broker.run_until_idle();
        wait_for_slow_readers(&mut broker, 29_000);
    }
    publisher.read(usize::MAX);
    assert!(is_in_progress(&broker, 0) && receipts(&publisher) == 0 && !publisher.is_closed());
    fill_memory(&broker, false);
    for _ in 0..2 {
        readers.iter_mut().for_each(|reader| exchange(&mut broker, reader));
    }
    exchange(&mut broker, &mut publisher);
    assert_eq!(receipts(&publisher), 1);
    assert_eq!(readers.iter().map(messages).sum::<usize>(), 2 * readers.len());
}

#[test]
fn a_publisher_does_not_wait_for_a_fan_out_on_another_shard() {
    let (mut broker, [mut publisher]) = small_broker(2);
    let mut readers = begin_fan_out(&mut broker, &mut publisher, 1);
    fill_memory(&broker, true);
    broker.run_until_idle();
    publisher.read(usize::MAX);
    assert!(is_in_progress(&broker, 1) && receipts(&publisher) == 1);
    wait_for_slow_readers(&mut broker, 60_000);
    expect_open(&mut publisher);
    publisher.expect_receipt();
    publisher.send(b"SEND\ndestination:/topic/wide\nreceipt:2\n\n\0");
    broker.run_until_idle();
    wait_for_slow_readers(&mut broker, 31_000);
    expect_timeout(&mut publisher, "2", &mut broker, &mut readers);
}

#[test]
fn the_error_for_a_stopped_query_shows_the_query_without_the_headers_of_its_answer() {
    let (mut broker, [mut reader, mut requester]) = small_broker(1);
    for at in 0..2100 {
        reader.send(format!("SUBSCRIBE\nid:{at}\ndestination:DIAG/a\n\n\0").as_bytes());
    }
    exchange(&mut broker, &mut reader);
    requester.expect_receipt();
    let mark = "x".repeat(5000);
    requester.send(format!("SEND\ndestination:DIAG/a\nreceipt:1\nx:{mark}\n\nsession\0").as_bytes());
    while !is_in_progress(&broker, 0) {
        broker.turn(0);
    }
    fill_memory(&broker, true);
    broker.run_until_idle();
    wait_for_slow_readers(&mut broker, 31_000);
    let error = refusal(&mut requester);
    assert!(error.ends_with("The frame was: | SEND | destination:DIAG/a | receipt:1 | "), "{error}");
    fill_memory(&broker, false);
    exchange(&mut broker, &mut reader);
    assert_eq!(messages(&reader), 2100);
}
