//! Fan-outs that take several turns, stopped on their way because memory is short.

use std::time::Duration;

use super::SimulatedBroker;
use super::client::Client;
use super::support::{broker, connect, exchange, fill_memory, messages, receipts};
use crate::config::Config;

/// A message of 100 kB to a topic with so many groups that it takes several turns, published, and begun.
fn begin_fan_out(broker: &mut SimulatedBroker, publisher: &mut Client, shard: usize) -> Vec<Client> {
    let receipt = publisher.expect_receipt();
    begin_fan_out_with(&format!("receipt:{receipt}\n"), broker, publisher, shard)
}

/// The same with other headers, and a RECEIPT only if they ask for one.
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

fn is_going(broker: &SimulatedBroker, shard: usize) -> bool {
    broker.threads[shard].shard.deliveries.fan_outs.first().is_some()
}

#[test]
fn a_shard_looks_again_soon_where_memory_ran_out_within_its_turn() {
    let mut broker = broker(Config { writers: 1, memory_limit: 64 << 20, ..Config::default() });
    let mut publisher = connect(&mut broker, 0);
    let mut readers = begin_fan_out(&mut broker, &mut publisher, 0);
    assert!(broker.threads[0].shard.goes_on());
    fill_memory(&broker, true);
    let sleep = broker.threads[0].shard.sleep();
    assert!(sleep.is_some_and(|sleep| sleep <= Duration::from_millis(10)), "{sleep:?}");
    broker.round();
    assert!(is_going(&broker, 0) && !broker.threads[0].shard.goes_on());
    fill_memory(&broker, false);
    assert!(broker.threads[0].shard.goes_on());
    readers.iter_mut().for_each(|reader| exchange(&mut broker, reader));
    assert!(!is_going(&broker, 0));
    assert_eq!(readers.iter().map(messages).sum::<usize>(), readers.len());
}

#[test]
fn a_shard_rests_while_an_unsubscribe_waits_for_what_waits_for_memory() {
    for leaving in ["UNSUBSCRIBE\nid:x", "DISCONNECT", "SUBSCRIBE\nid:y\ndestination:/topic/b"] {
        let config = Config { writers: 2, memory_limit: 64 << 20, ..Config::default() };
        let mut broker = broker(config);
        let mut publisher = connect(&mut broker, 0);
        let mut leaver = connect(&mut broker, 1);
        leaver.send(b"SUBSCRIBE\nid:x\ndestination:/topic/a\n\n\0");
        let mut readers = begin_fan_out(&mut broker, &mut publisher, 1);
        publisher.send(b"SEND\ndestination:/topic/a\n\nlast\0");
        broker.turn(0);
        fill_memory(&broker, true);
        let receipt = leaver.expect_receipt();
        leaver.send(format!("{leaving}\nreceipt:{receipt}\n\n\0").as_bytes());
        broker.run_until_idle();
        assert!(is_going(&broker, 1));
        broker.advance_ms(120_000);
        broker.run_until_idle();
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
fn a_fan_out_that_waits_for_memory_ends_when_its_message_expires() {
    let mut broker = broker(Config { writers: 1, memory_limit: 64 << 20, ..Config::default() });
    let mut publisher = connect(&mut broker, 0);
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
fn the_receipt_of_a_query_comes_when_its_answer_has_reached_everybody() {
    const COUNT: usize = 2100;
    let mut broker = broker(Config { writers: 1, memory_limit: 64 << 20, ..Config::default() });
    let [mut reader, mut requester] = [0; 2].map(|shard| connect(&mut broker, shard));
    for at in 0..COUNT {
        reader.send(format!("SUBSCRIBE\nid:{at}\ndestination:DIAG/a\n\n\0").as_bytes());
    }
    exchange(&mut broker, &mut reader);
    let receipt = requester.expect_receipt();
    let query = format!("SEND\ndestination:DIAG/a\nreceipt:{receipt}\nx:{}\n\nsession\0", "x".repeat(5000));
    requester.send(query.as_bytes());
    let receipt = requester.expect_receipt();
    requester.send(format!("SEND\ndestination:DIAG/a\nreceipt:{receipt}\n\nsession\0").as_bytes());
    while !is_going(&broker, 0) {
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

/// What a client that has been refused was error.
fn refusal(client: &mut Client) -> String {
    client.read(usize::MAX);
    assert!(client.is_closed());
    client.received_frames().last().expect("an ERROR").to_owned()
}

#[test]
fn a_publisher_whose_message_memory_stops_is_refused_and_the_message_goes_on() {
    for receipt in ["", "receipt:mine\n"] {
        let mut broker = broker(Config { writers: 1, memory_limit: 64 << 20, ..Config::default() });
        let mut publisher = connect(&mut broker, 0);
        let mut readers = begin_fan_out_with(&format!("x-mark:a\n{receipt}"), &mut broker, &mut publisher, 0);
        publisher.send(b"SEND\ndestination:/topic/next\n\n\0");
        fill_memory(&broker, true);
        broker.run_until_idle();
        broker.advance_ms(20_000);
        broker.run_until_idle();
        publisher.read(usize::MAX);
        assert!(!publisher.is_closed());
        broker.advance_ms(11_000);
        broker.run_until_idle();
        let error = refusal(&mut publisher);
        assert!(error.starts_with("ERROR") && error.contains("code:E-MEMORY"), "{error}");
        assert!(error.contains("SEND | destination:/topic/wide | ") && error.contains("x-mark:a"), "{error}");
        assert!(
            !error.contains("/topic/next") && error.contains("receipt-id:mine") != receipt.is_empty(),
            "{error}"
        );
        assert!(is_going(&broker, 0));
        fill_memory(&broker, false);
        readers.iter_mut().for_each(|reader| exchange(&mut broker, reader));
        assert_eq!(readers.iter().map(messages).sum::<usize>(), readers.len());
        assert!(broker.threads[0].shard.deliveries.fan_outs.is_empty());
        drop((publisher, readers));
        broker.run_until_idle();
        assert_eq!((broker.snapshot().connections, broker.snapshot().unanswered), (0, 0));
    }
}

#[test]
fn a_message_that_goes_on_now_and_then_has_its_whole_time_again() {
    let mut broker = broker(Config { writers: 1, memory_limit: 64 << 20, ..Config::default() });
    let mut publisher = connect(&mut broker, 0);
    let mut readers = begin_fan_out(&mut broker, &mut publisher, 0);
    for _ in 0..2 {
        fill_memory(&broker, true);
        broker.run_until_idle();
        broker.advance_ms(29_000);
        broker.run_until_idle();
        fill_memory(&broker, false);
        broker.round();
        assert!(is_going(&broker, 0));
    }
    fill_memory(&broker, true);
    broker.run_until_idle();
    broker.advance_ms(29_000);
    broker.run_until_idle();
    publisher.read(usize::MAX);
    assert!(!publisher.is_closed());
    broker.advance_ms(2_000);
    broker.run_until_idle();
    let error = refusal(&mut publisher);
    assert!(error.contains("code:E-MEMORY") && error.contains("receipt-id:1 "), "{error}");
    fill_memory(&broker, false);
    readers.iter_mut().for_each(|reader| exchange(&mut broker, reader));
    assert_eq!(readers.iter().map(messages).sum::<usize>(), readers.len());
}

#[test]
fn a_last_value_that_memory_stops_on_its_way_is_kept() {
    let mut broker = broker(Config { writers: 2, memory_limit: 64 << 20, ..Config::default() });
    let [mut publisher, mut late] = [0; 2].map(|shard| connect(&mut broker, shard));
    publisher.expect_receipt();
    let mut readers = begin_fan_out_with("retain:set\nreceipt:1\n", &mut broker, &mut publisher, 0);
    fill_memory(&broker, true);
    broker.run_until_idle();
    broker.advance_ms(31_000);
    broker.run_until_idle();
    let error = refusal(&mut publisher);
    assert!(error.contains("code:E-MEMORY") && error.contains("receipt-id:1 "), "{error}");
    fill_memory(&broker, false);
    readers.iter_mut().for_each(|reader| exchange(&mut broker, reader));
    assert_eq!(readers.iter().map(messages).sum::<usize>(), readers.len());
    late.send(b"SUBSCRIBE\nid:0\ndestination:/topic/wide\n\n\0");
    exchange(&mut broker, &mut late);
    assert_eq!(messages(&late), 1);
}

#[test]
fn a_commit_that_is_decided_waits_for_memory_as_long_as_it_takes() {
    let mut broker = broker(Config { writers: 1, memory_limit: 64 << 20, ..Config::default() });
    let mut publisher = connect(&mut broker, 0);
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
    while !is_going(&broker, 0) {
        broker.round();
    }
    fill_memory(&broker, true);
    for _ in 0..10 {
        broker.run_until_idle();
        broker.advance_ms(29_000);
        broker.run_until_idle();
    }
    publisher.read(usize::MAX);
    assert!(is_going(&broker, 0) && receipts(&publisher) == 0 && !publisher.is_closed());
    fill_memory(&broker, false);
    readers.iter_mut().for_each(|reader| exchange(&mut broker, reader));
    exchange(&mut broker, &mut publisher);
    assert_eq!(receipts(&publisher), 1);
    assert_eq!(readers.iter().map(messages).sum::<usize>(), 2 * readers.len());
}

#[test]
fn nobody_waits_for_a_message_that_memory_stops_on_another_shard() {
    let mut broker = broker(Config { writers: 2, memory_limit: 64 << 20, ..Config::default() });
    let mut publisher = connect(&mut broker, 0);
    let mut readers = begin_fan_out(&mut broker, &mut publisher, 1);
    fill_memory(&broker, true);
    broker.run_until_idle();
    publisher.read(usize::MAX);
    assert!(is_going(&broker, 1) && receipts(&publisher) == 1);
    broker.advance_ms(60_000);
    broker.run_until_idle();
    publisher.read(usize::MAX);
    assert!(!publisher.is_closed());
    publisher.expect_receipt();
    publisher.send(b"SEND\ndestination:/topic/wide\nreceipt:2\n\n\0");
    broker.run_until_idle();
    broker.advance_ms(31_000);
    broker.run_until_idle();
    let error = refusal(&mut publisher);
    assert!(error.contains("code:E-MEMORY") && error.contains("receipt-id:2 "), "{error}");
    fill_memory(&broker, false);
    readers.iter_mut().for_each(|reader| exchange(&mut broker, reader));
    assert_eq!(readers.iter().map(messages).sum::<usize>(), readers.len());
}

#[test]
fn a_query_whose_answer_memory_stops_on_its_way_is_named_without_the_answers_headers() {
    let mut broker = broker(Config { writers: 1, memory_limit: 64 << 20, ..Config::default() });
    let [mut reader, mut requester] = [0; 2].map(|shard| connect(&mut broker, shard));
    for at in 0..2100 {
        reader.send(format!("SUBSCRIBE\nid:{at}\ndestination:DIAG/a\n\n\0").as_bytes());
    }
    exchange(&mut broker, &mut reader);
    requester.expect_receipt();
    let mark = "x".repeat(5000);
    requester.send(format!("SEND\ndestination:DIAG/a\nreceipt:1\nx:{mark}\n\nsession\0").as_bytes());
    while !is_going(&broker, 0) {
        broker.turn(0);
    }
    fill_memory(&broker, true);
    broker.run_until_idle();
    broker.advance_ms(31_000);
    broker.run_until_idle();
    let error = refusal(&mut requester);
    assert!(error.ends_with("The frame was: | SEND | destination:DIAG/a | receipt:1 | "), "{error}");
    fill_memory(&broker, false);
    exchange(&mut broker, &mut reader);
    assert_eq!(messages(&reader), 2100);
}
