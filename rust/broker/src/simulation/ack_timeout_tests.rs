//! Deliveries that `ack_timeout` takes back: from a transaction, and from clients whose answers come late.

use super::SimulatedBroker;
use super::client::Client;
use super::near_limit::last_ack_id;
use super::support::{broker, connect, exchange};
use crate::config::Config;

/// Seed 55012516: the transaction took effect without the acknowledgement of one of them.
#[test]
fn a_transaction_is_void_if_a_delivery_that_its_ack_covers_has_timed_out() {
    for (ack, is_void) in [("client", true), ("client-individual", false)] {
        for verdict in ["ACK", "NACK"] {
            let mut broker = broker(Config { ack_timeout_ms: 1000, ..Config::default() });
            let (mut consumer, mut publisher) = (connect(&mut broker, 0), connect(&mut broker, 0));
            consumer.send(format!("SUBSCRIBE\nid:0\nack:{ack}\ndestination:/queue/a\n\n\0").as_bytes());
            exchange(&mut broker, &mut consumer);
            for pause_ms in [600, 0] {
                publisher.send(b"SEND\ndestination:/queue/a\n\nx\0");
                exchange(&mut broker, &mut publisher);
                exchange(&mut broker, &mut consumer);
                broker.advance_ms(pause_ms);
            }
            let last = last_ack_id(&consumer);
            consumer.send(b"BEGIN\ntransaction:t\n\n\0");
            consumer.send(format!("{verdict}\nid:{last}\ntransaction:t\n\n\0").as_bytes());
            exchange(&mut broker, &mut consumer);
            broker.advance_ms(600);
            broker.run_until_idle();
            consumer.send(b"COMMIT\ntransaction:t\n\n\0");
            exchange(&mut broker, &mut consumer);
            let is_lost = consumer.received_frames().any(|head| head.contains("E-TX-LOST"));
            assert_eq!((is_lost, consumer.is_closed()), (is_void, is_void), "{ack} {verdict}");
        }
    }
}

/// A client of STOMP 1.1 in client mode, which has got two messages twice, since they timed out; and the `message-id` of the
/// last one.
fn with_redeliveries(broker: &mut SimulatedBroker) -> (Client, String) {
    let mut publisher = connect(broker, 0);
    let mut consumer = Client::new(broker.connect(0).expect("sockets"));
    consumer.send(b"CONNECT\naccept-version:1.1\nhost:h\n\n\0");
    consumer.send(b"SUBSCRIBE\nid:0\nack:client\ndestination:/queue/a\n\n\0");
    exchange(broker, &mut consumer);
    publisher.send(&b"SEND\ndestination:/queue/a\n\nx\0".repeat(2));
    exchange(broker, &mut publisher);
    exchange(broker, &mut consumer);
    for pause_ms in [1000, 200] {
        broker.advance_ms(pause_ms); // they time out, and come again a little later
        broker.run_until_idle();
    }
    exchange(broker, &mut consumer);
    assert_eq!(consumer.bodies.len(), 4, "both come again");
    let lines = consumer.received_frames().flat_map(|head| head.split(" | "));
    let last = lines.filter_map(|line| line.strip_prefix("message-id:")).last();
    let last = last.expect("a message").to_owned();
    (consumer, last)
}

/// In STOMP 1.1 an ACK names the message, not the delivery.
#[test]
fn an_ack_of_a_message_that_came_again_covers_no_other_one_but_a_nack_does() {
    for (verdict, counts) in [("ACK", (1, 0)), ("NACK", (0, 2))] {
        let mut broker = broker(Config { ack_timeout_ms: 1000, ..Config::default() });
        let (mut consumer, last) = with_redeliveries(&mut broker);
        consumer.send(format!("{verdict}\nsubscription:0\nmessage-id:{last}\n\n\0").as_bytes());
        exchange(&mut broker, &mut consumer);
        let counters = &broker.threads[0].shard.turn.counters;
        assert_eq!((counters.acked, counters.nacked), counts, "{verdict}");
    }
}

/// Seed 60025273: a later ACK covered what the NACK had refused.
#[test]
fn a_nack_of_a_message_that_a_late_ack_has_taken_takes_back_the_others() {
    let mut broker = broker(Config { ack_timeout_ms: 1000, ..Config::default() });
    let (mut consumer, last) = with_redeliveries(&mut broker);
    for verdict in ["ACK", "NACK"] {
        consumer.send(format!("{verdict}\nsubscription:0\nmessage-id:{last}\n\n\0").as_bytes());
        exchange(&mut broker, &mut consumer);
    }
    assert_eq!(
        broker.threads[0].shard.turn.counters.acked, 1,
        "the ACK is late: it covers the last one alone"
    );
    broker.advance_ms(500);
    broker.run_until_idle();
    exchange(&mut broker, &mut consumer);
    assert_eq!(consumer.bodies.len(), 5, "the NACK covers the other one");
}

/// Seed 61002697: the others came again although the transaction was aborted.
#[test]
fn such_a_nack_in_a_transaction_does_nothing_before_commit_which_is_void() {
    for (end, is_void) in [("COMMIT", true), ("ABORT", false)] {
        let mut broker = broker(Config { ack_timeout_ms: 1000, ..Config::default() });
        let (mut consumer, last) = with_redeliveries(&mut broker);
        consumer.send(b"BEGIN\ntransaction:t\n\n\0");
        for (verdict, transaction) in [("ACK", ""), ("NACK", "transaction:t\n")] {
            let frame = format!("{verdict}\nsubscription:0\nmessage-id:{last}\n{transaction}\n\0");
            consumer.send(frame.as_bytes());
            exchange(&mut broker, &mut consumer);
        }
        let before = broker.threads[0].shard.turn.counters.timed_out;
        consumer.send(format!("{end}\ntransaction:t\n\n\0").as_bytes());
        exchange(&mut broker, &mut consumer);
        let is_lost = consumer.received_frames().any(|head| head.contains("E-TX-LOST"));
        assert_eq!((is_lost, consumer.is_closed()), (is_void, is_void), "{end}");
        assert_eq!(broker.threads[0].shard.turn.counters.timed_out, before, "{end}");
    }
}

/// The deliveries to a subscription that has ended are not those to the next one with the same id.
#[test]
fn answers_to_an_ended_subscription_concern_no_delivery_to_the_next_one() {
    for (verdict, acked) in [("ACK", 2), ("NACK", 0)] {
        let mut broker = broker(Config { ack_timeout_ms: 1000, ..Config::default() });
        let (mut consumer, last) = with_redeliveries(&mut broker);
        consumer.send(b"UNSUBSCRIBE\nid:0\n\n\0");
        exchange(&mut broker, &mut consumer);
        consumer.send(b"SUBSCRIBE\nid:0\nack:client\ndestination:/queue/a\n\n\0");
        exchange(&mut broker, &mut consumer);
        assert_eq!(consumer.bodies.len(), 6, "both come to the new one");
        consumer.send(format!("{verdict}\nsubscription:0\nmessage-id:{last}\n\n\0").as_bytes());
        exchange(&mut broker, &mut consumer);
        let counters = &broker.threads[0].shard.turn.counters;
        assert_eq!((counters.acked, counters.nacked), (acked, 2 - acked), "{verdict} covers both");
    }
}

#[test]
fn a_nack_in_a_transaction_that_is_not_open_takes_nothing_back() {
    let mut broker = broker(Config { ack_timeout_ms: 1000, ..Config::default() });
    let (mut consumer, last) = with_redeliveries(&mut broker);
    consumer.send(format!("ACK\nsubscription:0\nmessage-id:{last}\n\n\0").as_bytes());
    exchange(&mut broker, &mut consumer);
    let before = broker.threads[0].shard.turn.counters.timed_out;
    let nack = format!("NACK\nsubscription:0\nmessage-id:{last}\ntransaction:t\n\n\0");
    consumer.send(nack.as_bytes());
    exchange(&mut broker, &mut consumer);
    assert!(consumer.received_frames().any(|head| head.contains("E-TX-UNKNOWN")));
    assert_eq!(broker.threads[0].shard.turn.counters.timed_out, before);
}
