//! What full outboxes and full memory hold up, and what comes of it meanwhile.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::ByHand;
use super::client::Client;
use super::crossing::{broker, connect, homed, messages, receipts, talk};
use crate::config::{Config, SlowConsumer};
use crate::log::Level;
use crate::mail::mailbox::Mail;

#[test]
fn what_a_subscription_is_owed_comes_before_the_receipt_of_its_end_and_nothing_behind_it() {
    for leaving in ["UNSUBSCRIBE\nid:0", "DISCONNECT"] {
        leave_while_owed(leaving);
    }
}

fn leave_while_owed(leaving: &str) {
    let mut broker = broker(Config { writers: 1, outbox_limit: 4 << 10, ..Config::default() });
    // Two of each, so that messages are encoded for both at once.
    let [mut reader, mut other] = [0; 2].map(|shard| connect(&mut broker, shard));
    for client in [&mut reader, &mut other] {
        client.say(b"SUBSCRIBE\nid:0\ndestination:/topic/a\n\n\0SUBSCRIBE\nid:1\ndestination:/topic/b\n\n\0");
    }
    broker.run();
    let mut publisher = connect(&mut broker, 0);
    let owes = |broker: &ByHand| {
        broker.seats[0].shard.connections.table.iter().any(|(_, it)| it.output.deferred.is_some())
    };
    let mut sent = 0;
    while !owes(&broker) {
        for name in ["a", "b"].repeat(3) {
            publisher.say(format!("SEND\ndestination:/topic/{name}\n\n{}\0", "x".repeat(1000)).as_bytes());
            sent += 1;
        }
        broker.run();
        assert!(sent < 200);
    }
    let receipt = reader.ask();
    reader.say(format!("{leaving}\nreceipt:{receipt}\n\n\0").as_bytes());
    if leaving != "DISCONNECT" {
        reader.say(b"SUBSCRIBE\nid:0\ndestination:/topic/c\n\n\0");
    }
    talk(&mut broker, &mut reader);
    talk(&mut broker, &mut other);
    let heard: Vec<&str> = reader.heard().collect();
    let ended = heard.iter().position(|head| head.starts_with("RECEIPT")).expect("it comes");
    let of_first = |heard: &[&str]| heard.iter().filter(|head| head.contains("subscription:0 ")).count();
    assert_eq!((of_first(&heard[..ended]), of_first(&heard[ended..])), (sent / 2, 0), "{leaving}");
    assert_eq!(heard.iter().filter(|head| head.contains("subscription:1 ")).count(), sent / 2);
    assert_eq!((messages(&other), owes(&broker)), (sent, false));
}

/// Adds to what is held, as if another shard held it, so that 95 % of a large `memory_limit` is exceeded, or takes it
/// back.
pub(super) fn fill_memory(broker: &ByHand, full: bool) {
    let limit = broker.seats[0].shard.turn.config.memory_limit as i64;
    broker.shared.totals.memory.fetch_add(if full { limit } else { -limit }, Ordering::Relaxed);
}

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
fn who_waits_for_the_past_is_noted_once_however_often_its_socket_takes_something() {
    let config = Config {
        writers: 1,
        ttl_ms: 3_600_000,
        outbox_limit: 256 << 10,
        memory_limit: 64 << 20,
        ..Config::default()
    };
    let mut broker = broker(config);
    let [mut publisher, mut reader] = [0; 2].map(|shard| connect(&mut broker, shard));
    for _ in 0..1000 {
        publisher.say(format!("SEND\ndestination:/topic/a\n\n{}\0", "x".repeat(1000)).as_bytes());
        broker.round();
    }
    talk(&mut broker, &mut publisher);
    reader.say(b"SUBSCRIBE\nid:0\ndestination:/topic/a\n\n\0");
    broker.run();
    fill_memory(&broker, true);
    for _ in 0..20 {
        reader.read(2000);
        broker.round();
    }
    assert_eq!(broker.seats[0].shard.short_of_memory(), 1);
    fill_memory(&broker, false);
    assert!(broker.seats[0].shard.goes_on());
    talk(&mut broker, &mut reader);
    assert_eq!((messages(&reader), broker.seats[0].shard.short_of_memory()), (1000, 0));
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
fn a_whole_send_that_waits_is_not_refused_as_one_that_is_not_complete() {
    let config = Config {
        writers: 1,
        memory_limit: 1 << 20,
        outbox_limit: 4 << 10,
        slow_consumer: crate::config::SlowConsumer::Block(Duration::from_secs(600)),
        ..Config::default()
    };
    let mut broker = broker(config);
    let mut reader = connect(&mut broker, 0);
    reader.say(b"SUBSCRIBE\nid:0\ndestination:/topic/a\n\n\0");
    let [mut publisher, mut other] = [0; 2].map(|shard| connect(&mut broker, shard));
    let receipt = publisher.ask();
    let send = format!("SEND\ndestination:/topic/a\nreceipt:{receipt}\n\n{}\0", "x".repeat(20_000));
    publisher.say_in_part(send.as_bytes(), 10_000);
    broker.run();
    while !broker.seats[0].shard.connections.table.iter().any(|(_, conn)| conn.output.full_since_ms.is_some())
    {
        other.say(format!("SEND\ndestination:/topic/a\n\n{}\0", "x".repeat(1000)).as_bytes());
        broker.run();
    }
    publisher.say(b"");
    broker.run();
    let mut many: Vec<Client> = (0..120).map(|_| connect(&mut broker, 0)).collect();
    for client in &mut many {
        let part = format!("SEND\ndestination:/queue/a\ncontent-length:100000\n\n{}", "x".repeat(6000));
        client.say_wildly(part.as_bytes());
        broker.pass(1);
        broker.round();
    }
    broker.pass(1000);
    broker.run();
    many.iter_mut().for_each(|client| {
        client.read(usize::MAX);
    });
    assert!(many.iter().any(Client::has_ended), "there is too much");
    drop(many);
    talk(&mut broker, &mut reader);
    talk(&mut broker, &mut publisher);
    assert_eq!(receipts(&publisher), 1);
}

#[test]
fn what_has_expired_by_the_time_there_is_room_is_dropped_and_counted() {
    let config = Config { writers: 1, outbox_limit: 4 << 10, memory_limit: 64 << 20, ..Config::default() };
    let mut broker = broker(config);
    // Two subscriptions, so that each message is encoded for each alone.
    let mut reader = connect(&mut broker, 0);
    reader.say(b"SUBSCRIBE\nid:0\ndestination:/topic/a\n\n\0SUBSCRIBE\nid:1\ndestination:/topic/a\n\n\0");
    broker.run();
    // Each waits for what is owed of its message, so it takes several of them to have more owed than there is room for.
    let mut publishers = [0; 6].map(|shard| connect(&mut broker, shard));
    let mut sent = 0;
    while broker.seats[0].shard.deliveries.fan_outs.is_empty() {
        let send = format!("SEND\ndestination:/topic/a\nttl:500\n\n{}\0", "x".repeat(1000));
        publishers.iter_mut().for_each(|publisher| publisher.say(send.as_bytes()));
        sent += publishers.len();
        broker.run();
        assert!(sent < 200);
    }
    broker.pass(600);
    let conns = broker.seats[0].shard.connections.table.iter();
    let owed: usize = conns.filter_map(|(_, it)| it.output.deferred.as_ref()).map(|it| it.len()).sum();
    let expired = broker.seats[0].shard.turn.counters.expired;
    talk(&mut broker, &mut reader);
    assert!(broker.seats[0].shard.deliveries.fan_outs.is_empty());
    assert_eq!(broker.seats[0].shard.turn.counters.expired - expired, owed as u64);
    assert!(owed > 0 && messages(&reader) < 2 * sent);
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

#[test]
fn a_frame_that_waits_is_logged_once() {
    let mut broker =
        broker(Config { writers: 2, log_frames: true, memory_limit: 64 << 20, ..Config::default() });
    broker.shared.log.set_level(Level::Debug);
    let [mut publisher, mut other] = [0; 2].map(|shard| connect(&mut broker, shard));
    let far = homed(&broker, "/queue/far", 1).next().expect("one of two");
    fill_memory(&broker, true);
    publisher.say(format!("SEND\ndestination:{far}\n\nwaits\0").as_bytes());
    let mut records = Vec::new();
    for _ in 0..20 {
        broker.pass(200);
        broker.run();
        records.extend(broker.shared.log.drain(Duration::ZERO));
    }
    fill_memory(&broker, false);
    broker.run();
    records.extend(broker.shared.log.drain(Duration::ZERO));
    other.say(format!("SUBSCRIBE\nid:0\ndestination:{far}\n\n\0").as_bytes());
    talk(&mut broker, &mut other);
    assert_eq!(messages(&other), 1);
    let logged = records.iter().filter(|record| record.text.contains("frame SEND"));
    assert_eq!(logged.count(), 1);
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
fn a_query_is_answered_however_long_that_takes() {
    const QUEUES: usize = 20_000;
    let mut broker = broker(Config { writers: 1, ..Config::default() });
    let mut publisher = connect(&mut broker, 0);
    for at in 0..QUEUES {
        publisher.say(format!("SEND\ndestination:/queue/{at}\n\nx\0").as_bytes());
    }
    talk(&mut broker, &mut publisher);
    for turns in 0..8 {
        // The second waits until the first has its answer.
        let mut requesters = [0; 2].map(|shard| connect(&mut broker, shard));
        for (requester, asks) in requesters.iter_mut().zip(["DIAG\n", "SEND\ndestination:DIAG/a\n"]) {
            for asks in [asks, "SEND\ndestination:/topic/next\n"] {
                let receipt = requester.ask();
                requester.say(format!("{asks}receipt:{receipt}\n\nqueues\0").as_bytes());
            }
        }
        (0..turns).for_each(|_| broker.turn(0));
        broker.pass(31_000);
        broker.turn(0);
        requesters.iter_mut().for_each(|requester| talk(&mut broker, requester));
        assert_eq!(
            requesters.each_ref().map(|requester| (requester.rows, receipts(requester))),
            [(QUEUES, 2), (0, 2)]
        );
    }
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

#[test]
fn consumers_that_go_before_they_got_what_waits_for_their_socket_are_not_compared_with_each_other() {
    const COUNT: usize = 1000;
    let config = Config {
        writers: 1,
        outbox_limit: 4 << 10,
        slow_consumer: SlowConsumer::Block(Duration::from_secs(3600)),
        ..Config::default()
    };
    let mut broker = broker(config);
    let [mut reader, mut other, mut publisher] = [0; 3].map(|shard| connect(&mut broker, shard));
    // It says all that, and reads nothing.
    let say_all = |broker: &mut ByHand, reader: &mut Client, frames: &str, left: usize| {
        reader.say(frames.as_bytes());
        for _ in 0..1000 {
            broker.turn(0);
            reader.read(0);
        }
        assert_eq!(broker.left().subscriptions, left);
    };
    let subscribe = |at| format!("SUBSCRIBE\nid:{at}\ndestination:/queue/{at}\n\n\0");
    say_all(&mut broker, &mut reader, &(0..COUNT).map(subscribe).collect::<String>(), COUNT);
    let body = "x".repeat(1000);
    for at in 0..COUNT {
        publisher.say(format!("SEND\ndestination:/queue/{at}\n\n{body}\0").as_bytes());
        broker.run();
    }
    let before = broker.visits()[0];
    let stays = |at: &usize| at.is_multiple_of(20);
    let unsubscribe = |at| format!("UNSUBSCRIBE\nid:{at}\n\n\0");
    let leaving = (0..COUNT).filter(|at| !stays(at)).map(unsubscribe).collect::<String>();
    say_all(&mut broker, &mut reader, &leaving, COUNT / 20);
    let visits = broker.visits()[0] - before;
    assert!(visits < 100 * COUNT, "{visits} visits");
    other.say(b"SUBSCRIBE\nid:all\ndestination:/queue/>\n\n\0");
    talk(&mut broker, &mut other);
    talk(&mut broker, &mut reader);
    let heard = reader.heard().filter_map(|head| head.split("destination:/queue/").nth(1));
    let numbers = heard.filter_map(|rest| rest.split(' ').next()?.parse::<usize>().ok()).filter(stays);
    assert!(numbers.eq((0..COUNT).filter(stays)), "those that are left come in order");
    assert_eq!(messages(&reader) + messages(&other), COUNT);
}

#[test]
fn a_drain_delivers_what_waits_for_room_in_an_outbox_that_is_read() {
    let config = Config { writers: 1, outbox_limit: 4 << 10, heartbeat_ms: (0, 0), ..Config::default() };
    let mut broker = broker(Config { drain: Duration::from_secs(3600), ..config });
    // Two of each, so that messages are encoded for both at once.
    let mut readers = [0; 2].map(|_| connect(&mut broker, 0));
    for reader in &mut readers {
        reader.say(b"SUBSCRIBE\nid:0\ndestination:/topic/a\n\n\0SUBSCRIBE\nid:1\ndestination:/topic/b\n\n\0");
    }
    broker.run();
    let mut publisher = connect(&mut broker, 0);
    let is_owed =
        |broker: &ByHand| broker.seats[0].shard.connections.table.iter().any(|(_, conn)| conn.is_owed());
    let mut sent = 0;
    while !is_owed(&broker) {
        for name in ["a", "b"].repeat(10) {
            let (receipt, body) = (publisher.ask(), "x".repeat(1000));
            let send = format!("SEND\ndestination:/topic/{name}\nreceipt:{receipt}\n\n{body}\0");
            publisher.say(send.as_bytes());
            sent += 1;
        }
        broker.run();
        assert!(sent < 20_000);
    }
    broker.shared.mailboxes[0].post(&mut vec![Mail::Drain]);
    broker.run();
    publisher.read(usize::MAX);
    assert!(is_owed(&broker), "nobody has read");
    let mut rounds = 0;
    while !readers.iter().all(Client::has_ended) && rounds < 10_000 {
        readers.iter_mut().for_each(|reader| _ = reader.read(usize::MAX));
        broker.round();
        rounds += 1;
    }
    let accepted = receipts(&publisher);
    assert!(readers.iter().all(|reader| messages(reader) == accepted), "{accepted}");
}
