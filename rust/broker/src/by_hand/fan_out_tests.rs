//! Fan-outs that take several turns, stopped on their way because memory is short.

use std::time::Duration;

use super::ByHand;
use super::client::Client;
use super::support::{broker, connect, fill_memory, messages, receipts, talk};
use crate::config::Config;

/// A message of 100 kB to a topic with so many groups that it takes several turns, published, and begun.
fn begin_fan_out(broker: &mut ByHand, publisher: &mut Client, shard: usize) -> Vec<Client> {
    let receipt = publisher.ask();
    begin_fan_out_with(&format!("receipt:{receipt}\n"), broker, publisher, shard)
}

/// The same with other headers, and a RECEIPT only if they ask for one.
fn begin_fan_out_with(
    headers: &str,
    broker: &mut ByHand,
    publisher: &mut Client,
    shard: usize,
) -> Vec<Client> {
    let mut readers: Vec<Client> = (0..40).map(|_| connect(broker, shard)).collect();
    for (at, reader) in readers.iter_mut().enumerate() {
        reader.say(format!("SUBSCRIBE\nid:{at}\ndestination:/topic/wide\n\n\0").as_bytes());
    }
    broker.run();
    let body = "x".repeat(100_000);
    publisher.say(format!("SEND\ndestination:/topic/wide\n{headers}\n{body}\0").as_bytes());
    while broker.seats[shard].shard.deliveries.fan_outs.first().is_none() {
        publisher.say(b"");
        broker.round();
    }
    readers
}

fn is_going(broker: &ByHand, shard: usize) -> bool {
    broker.seats[shard].shard.deliveries.fan_outs.first().is_some()
}

#[test]
fn a_shard_looks_again_soon_where_memory_ran_out_within_its_turn() {
    let mut broker = broker(Config { writers: 1, memory_limit: 64 << 20, ..Config::default() });
    let mut publisher = connect(&mut broker, 0);
    let mut readers = begin_fan_out(&mut broker, &mut publisher, 0);
    assert!(broker.seats[0].shard.goes_on());
    fill_memory(&broker, true);
    let sleep = broker.seats[0].shard.sleep();
    assert!(sleep.is_some_and(|sleep| sleep <= Duration::from_millis(10)), "{sleep:?}");
    broker.round();
    assert!(is_going(&broker, 0) && !broker.seats[0].shard.goes_on());
    fill_memory(&broker, false);
    assert!(broker.seats[0].shard.goes_on());
    readers.iter_mut().for_each(|reader| talk(&mut broker, reader));
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
        leaver.say(b"SUBSCRIBE\nid:x\ndestination:/topic/a\n\n\0");
        let mut readers = begin_fan_out(&mut broker, &mut publisher, 1);
        publisher.say(b"SEND\ndestination:/topic/a\n\nlast\0");
        broker.turn(0);
        fill_memory(&broker, true);
        let receipt = leaver.ask();
        leaver.say(format!("{leaving}\nreceipt:{receipt}\n\n\0").as_bytes());
        broker.run();
        assert!(is_going(&broker, 1));
        broker.pass(120_000);
        broker.run();
        leaver.say(b"\n");
        broker.run();
        leaver.read(usize::MAX);
        assert!(receipts(&leaver) == 0 && !leaver.has_ended(), "{leaving}");
        fill_memory(&broker, false);
        readers.iter_mut().for_each(|reader| talk(&mut broker, reader));
        talk(&mut broker, &mut leaver);
        assert_eq!((receipts(&leaver), messages(&leaver)), (1, 1), "{leaving}");
    }
}

#[test]
fn a_fan_out_that_waits_for_memory_ends_when_its_message_expires() {
    let mut broker = broker(Config { writers: 1, memory_limit: 64 << 20, ..Config::default() });
    let mut publisher = connect(&mut broker, 0);
    publisher.ask();
    let mut readers = begin_fan_out_with("ttl:20000\nreceipt:1\n", &mut broker, &mut publisher, 0);
    fill_memory(&broker, true);
    broker.run();
    broker.pass(21_000);
    fill_memory(&broker, false);
    readers.iter_mut().for_each(|reader| talk(&mut broker, reader));
    let heard: usize = readers.iter().map(messages).sum();
    assert!((1..40).contains(&heard), "{heard}");
    assert_eq!(broker.seats[0].shard.turn.counters.expired, 1);
    talk(&mut broker, &mut publisher);
    assert_eq!(receipts(&publisher), 1);
}

#[test]
fn the_receipt_of_a_query_comes_when_its_answer_has_reached_everybody() {
    const COUNT: usize = 2100;
    let mut broker = broker(Config { writers: 1, memory_limit: 64 << 20, ..Config::default() });
    let [mut reader, mut requester] = [0; 2].map(|shard| connect(&mut broker, shard));
    for at in 0..COUNT {
        reader.say(format!("SUBSCRIBE\nid:{at}\ndestination:DIAG/a\n\n\0").as_bytes());
    }
    talk(&mut broker, &mut reader);
    let receipt = requester.ask();
    let query = format!("SEND\ndestination:DIAG/a\nreceipt:{receipt}\nx:{}\n\nsession\0", "x".repeat(5000));
    requester.say(query.as_bytes());
    let receipt = requester.ask();
    requester.say(format!("SEND\ndestination:DIAG/a\nreceipt:{receipt}\n\nsession\0").as_bytes());
    while !is_going(&broker, 0) {
        broker.turn(0);
    }
    fill_memory(&broker, true);
    broker.run();
    requester.read(usize::MAX);
    assert_eq!(receipts(&requester), 0);
    fill_memory(&broker, false);
    talk(&mut broker, &mut reader);
    talk(&mut broker, &mut requester);
    assert_eq!((receipts(&requester), messages(&reader)), (2, 2 * COUNT));
}

/// What a client that has been refused was told.
fn refusal(client: &mut Client) -> String {
    client.read(usize::MAX);
    assert!(client.has_ended());
    client.heard().last().expect("an ERROR").to_owned()
}

#[test]
fn a_publisher_whose_message_memory_stops_is_refused_and_the_message_goes_on() {
    for receipt in ["", "receipt:mine\n"] {
        let mut broker = broker(Config { writers: 1, memory_limit: 64 << 20, ..Config::default() });
        let mut publisher = connect(&mut broker, 0);
        let mut readers = begin_fan_out_with(&format!("x-mark:a\n{receipt}"), &mut broker, &mut publisher, 0);
        publisher.say(b"SEND\ndestination:/topic/next\n\n\0");
        fill_memory(&broker, true);
        broker.run();
        broker.pass(20_000);
        broker.run();
        publisher.read(usize::MAX);
        assert!(!publisher.has_ended());
        broker.pass(11_000);
        broker.run();
        let told = refusal(&mut publisher);
        assert!(told.starts_with("ERROR") && told.contains("code:E-MEMORY"), "{told}");
        assert!(told.contains("SEND | destination:/topic/wide | ") && told.contains("x-mark:a"), "{told}");
        assert!(
            !told.contains("/topic/next") && told.contains("receipt-id:mine") != receipt.is_empty(),
            "{told}"
        );
        assert!(is_going(&broker, 0));
        fill_memory(&broker, false);
        readers.iter_mut().for_each(|reader| talk(&mut broker, reader));
        assert_eq!(readers.iter().map(messages).sum::<usize>(), readers.len());
        assert!(broker.seats[0].shard.deliveries.fan_outs.is_empty());
        drop((publisher, readers));
        broker.run();
        assert_eq!((broker.left().connections, broker.left().unanswered), (0, 0));
    }
}

#[test]
fn a_message_that_goes_on_now_and_then_has_its_whole_time_again() {
    let mut broker = broker(Config { writers: 1, memory_limit: 64 << 20, ..Config::default() });
    let mut publisher = connect(&mut broker, 0);
    let mut readers = begin_fan_out(&mut broker, &mut publisher, 0);
    for _ in 0..2 {
        fill_memory(&broker, true);
        broker.run();
        broker.pass(29_000);
        broker.run();
        fill_memory(&broker, false);
        broker.round();
        assert!(is_going(&broker, 0));
    }
    fill_memory(&broker, true);
    broker.run();
    broker.pass(29_000);
    broker.run();
    publisher.read(usize::MAX);
    assert!(!publisher.has_ended());
    broker.pass(2_000);
    broker.run();
    let told = refusal(&mut publisher);
    assert!(told.contains("code:E-MEMORY") && told.contains("receipt-id:1 "), "{told}");
    fill_memory(&broker, false);
    readers.iter_mut().for_each(|reader| talk(&mut broker, reader));
    assert_eq!(readers.iter().map(messages).sum::<usize>(), readers.len());
}

#[test]
fn a_last_value_that_memory_stops_on_its_way_is_kept() {
    let mut broker = broker(Config { writers: 2, memory_limit: 64 << 20, ..Config::default() });
    let [mut publisher, mut late] = [0; 2].map(|shard| connect(&mut broker, shard));
    publisher.ask();
    let mut readers = begin_fan_out_with("retain:set\nreceipt:1\n", &mut broker, &mut publisher, 0);
    fill_memory(&broker, true);
    broker.run();
    broker.pass(31_000);
    broker.run();
    let told = refusal(&mut publisher);
    assert!(told.contains("code:E-MEMORY") && told.contains("receipt-id:1 "), "{told}");
    fill_memory(&broker, false);
    readers.iter_mut().for_each(|reader| talk(&mut broker, reader));
    assert_eq!(readers.iter().map(messages).sum::<usize>(), readers.len());
    late.say(b"SUBSCRIBE\nid:0\ndestination:/topic/wide\n\n\0");
    talk(&mut broker, &mut late);
    assert_eq!(messages(&late), 1);
}

#[test]
fn a_commit_that_is_decided_waits_for_memory_as_long_as_it_takes() {
    let mut broker = broker(Config { writers: 1, memory_limit: 64 << 20, ..Config::default() });
    let mut publisher = connect(&mut broker, 0);
    let mut readers: Vec<Client> = (0..40).map(|_| connect(&mut broker, 0)).collect();
    for (at, reader) in readers.iter_mut().enumerate() {
        reader.say(format!("SUBSCRIBE\nid:{at}\ndestination:/topic/wide\n\n\0").as_bytes());
    }
    publisher.say(b"BEGIN\ntransaction:1\n\n\0");
    for _ in 0..2 {
        let body = "x".repeat(100_000);
        publisher.say(format!("SEND\ndestination:/topic/wide\ntransaction:1\n\n{body}\0").as_bytes());
    }
    talk(&mut broker, &mut publisher);
    let receipt = publisher.ask();
    publisher.say(format!("COMMIT\ntransaction:1\nreceipt:{receipt}\n\n\0").as_bytes());
    while !is_going(&broker, 0) {
        broker.round();
    }
    fill_memory(&broker, true);
    for _ in 0..10 {
        broker.run();
        broker.pass(29_000);
        broker.run();
    }
    publisher.read(usize::MAX);
    assert!(is_going(&broker, 0) && receipts(&publisher) == 0 && !publisher.has_ended());
    fill_memory(&broker, false);
    readers.iter_mut().for_each(|reader| talk(&mut broker, reader));
    talk(&mut broker, &mut publisher);
    assert_eq!(receipts(&publisher), 1);
    assert_eq!(readers.iter().map(messages).sum::<usize>(), 2 * readers.len());
}

#[test]
fn nobody_waits_for_a_message_that_memory_stops_on_another_shard() {
    let mut broker = broker(Config { writers: 2, memory_limit: 64 << 20, ..Config::default() });
    let mut publisher = connect(&mut broker, 0);
    let mut readers = begin_fan_out(&mut broker, &mut publisher, 1);
    fill_memory(&broker, true);
    broker.run();
    publisher.read(usize::MAX);
    assert!(is_going(&broker, 1) && receipts(&publisher) == 1);
    broker.pass(60_000);
    broker.run();
    publisher.read(usize::MAX);
    assert!(!publisher.has_ended());
    publisher.ask();
    publisher.say(b"SEND\ndestination:/topic/wide\nreceipt:2\n\n\0");
    broker.run();
    broker.pass(31_000);
    broker.run();
    let told = refusal(&mut publisher);
    assert!(told.contains("code:E-MEMORY") && told.contains("receipt-id:2 "), "{told}");
    fill_memory(&broker, false);
    readers.iter_mut().for_each(|reader| talk(&mut broker, reader));
    assert_eq!(readers.iter().map(messages).sum::<usize>(), readers.len());
}

#[test]
fn a_query_whose_answer_memory_stops_on_its_way_is_named_without_the_answers_headers() {
    let mut broker = broker(Config { writers: 1, memory_limit: 64 << 20, ..Config::default() });
    let [mut reader, mut requester] = [0; 2].map(|shard| connect(&mut broker, shard));
    for at in 0..2100 {
        reader.say(format!("SUBSCRIBE\nid:{at}\ndestination:DIAG/a\n\n\0").as_bytes());
    }
    talk(&mut broker, &mut reader);
    requester.ask();
    let mark = "x".repeat(5000);
    requester.say(format!("SEND\ndestination:DIAG/a\nreceipt:1\nx:{mark}\n\nsession\0").as_bytes());
    while !is_going(&broker, 0) {
        broker.turn(0);
    }
    fill_memory(&broker, true);
    broker.run();
    broker.pass(31_000);
    broker.run();
    let told = refusal(&mut requester);
    assert!(told.ends_with("The frame was: | SEND | destination:DIAG/a | receipt:1 | "), "{told}");
    fill_memory(&broker, false);
    talk(&mut broker, &mut reader);
    assert_eq!(messages(&reader), 2100);
}
