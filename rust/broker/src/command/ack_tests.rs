//! Tests of ACK and NACK alone: ids, settled deliveries, and requeued messages.

use std::hash::BuildHasher as _;

use super::fixture::{Fixture, RECEIPT, bodies, fixture, header};
use crate::connection::flow::Flow;
use crate::delivery::fixture::OWN;
use crate::ids::ConnKey;
use crate::turn::budget::Budget;

/// A client of this version that consumes a queue of this shard, and the queue's name.
fn consumer(fixture: &mut Fixture, version: &str, headers: &str) -> (ConnKey, String) {
    let (key, queue) = (fixture.client_of(version), fixture.name_at(OWN, "/queue/"));
    fixture.send(key, &format!("SUBSCRIBE\nid:s\ndestination:{queue}\n{headers}\n"));
    (key, queue)
}

/// Adds messages to a queue.
fn put(fixture: &mut Fixture, queue: &str, bodies: &[&str]) {
    let publisher = fixture.client();
    for body in bodies {
        fixture.send(publisher, &format!("SEND\ndestination:{queue}\n\n{body}"));
    }
}

/// The headers by which an ACK or NACK in a version names a delivery.
fn names(version: &str, frame: &str) -> String {
    match version {
        "1.2" => format!("id:{}\n", header(frame, "ack")),
        "1.1" => format!("message-id:{}\nsubscription:s\n", header(frame, "message-id")),
        _ => format!("message-id:{}\n", header(frame, "message-id")),
    }
}

/// The frames that were sent to a client.
fn frames(fixture: &mut Fixture, key: ConnKey) -> Vec<String> {
    fixture.sent_to(key).split_terminator('\0').map(str::to_owned).collect()
}

/// A client that consumes a queue and has received messages with these bodies: its key, the queue, the frames.
fn delivered(version: &str, headers: &str, bodies: &[&str]) -> (Fixture, ConnKey, String, Vec<String>) {
    let mut fixture = fixture();
    let (key, queue) = consumer(&mut fixture, version, headers);
    put(&mut fixture, &queue, bodies);
    let sent = frames(&mut fixture, key);
    (fixture, key, queue, sent)
}

#[test]
fn an_ack_settles_its_delivery_and_gives_credit_in_every_version() {
    for version in ["1.0", "1.1", "1.2"] {
        let mut fixture = fixture();
        let (key, queue) = consumer(&mut fixture, version, "ack:client-individual\nprefetch:1\n");
        put(&mut fixture, &queue, &["a", "b"]);
        let first = frames(&mut fixture, key);
        assert_eq!(bodies(&first[0]), ["a"]);
        let named = names(version, &first[0]);
        assert_eq!(fixture.send(key, &format!("ACK\n{named}receipt:r\n\n")), Flow::Done);
        let next = frames(&mut fixture, key);
        assert!(next.len() == 2 && next.iter().any(|frame| bodies(frame) == ["b"]), "{version}: {next:?}");
        assert_eq!(fixture.turn.counters.acked, 1);
        fixture.send(key, &format!("ACK\n{named}\n"));
        assert_eq!(fixture.error_to(key), "E-ACK-UNKNOWN", "{version}");
    }
}

#[test]
fn in_client_mode_an_ack_settles_all_earlier_deliveries() {
    let (mut fixture, key, _, sent) = delivered("1.2", "ack:client\n", &["a", "b", "c"]);
    fixture.send(key, &format!("ACK\n{}\n", names("1.2", &sent[1])));
    assert_eq!(fixture.turn.counters.acked, 2);
    assert_eq!(fixture.conn(key).pending_writes.as_ref().map(|writes| writes.unacked), Some(1));
    fixture.send(key, &format!("ACK\n{}\n", names("1.2", &sent[0])));
    assert_eq!(fixture.error_to(key), "E-ACK-UNKNOWN");
}

#[test]
fn an_id_of_another_connection_is_unknown() {
    let (mut fixture, _, _, sent) = delivered("1.2", "ack:client\n", &["a"]);
    let other = fixture.client();
    fixture.send(other, &format!("ACK\n{}\n", names("1.2", &sent[0])));
    assert_eq!(fixture.error_to(other), "E-ACK-UNKNOWN");
    for id in ["x", "1-2"] {
        let other = fixture.client();
        fixture.send(other, &format!("NACK\nid:{id}\n\n"));
        assert_eq!(fixture.error_to(other), "E-ACK-UNKNOWN", "{id}");
    }
    let other = fixture.client_of("1.1");
    fixture.send(other, "ACK\nmessage-id:x\nsubscription:s\n\n");
    assert_eq!(fixture.error_to(other), "E-ACK-UNKNOWN");
}

#[test]
fn a_nacked_message_is_delivered_again_until_its_last_delivery() {
    let mut fixture = fixture();
    let (key, queue) = consumer(&mut fixture, "1.2", "ack:client-individual\nmax-deliveries:2\n");
    put(&mut fixture, &queue, &["a"]);
    for delivery in 1..=2 {
        let sent = frames(&mut fixture, key);
        assert_eq!(bodies(&sent[0]), ["a"], "{delivery}");
        fixture.send(key, &format!("NACK\n{}\n", names("1.2", &sent[0])));
        assert_eq!(fixture.turn.counters.nacked, delivery);
        fixture.pass_time(60_000);
    }
    assert_eq!(fixture.sent_to(key), "");
    assert_eq!((fixture.waiting(&queue), fixture.queues.home.counts.dead_lettered), (0, 1));
}

#[test]
fn a_rejected_message_is_dead_lettered_at_once() {
    let (mut fixture, key, queue, sent) = delivered("1.2", "ack:client-individual\n", &["a"]);
    fixture.send(key, &format!("NACK\n{}requeue:false\n\n", names("1.2", &sent[0])));
    assert_eq!((fixture.turn.counters.nacked, fixture.queues.home.counts.dead_lettered), (1, 1));
    assert_eq!(fixture.waiting(&queue), 0);
    fixture.send(key, "NACK\nid:0-1\nrequeue:x\n\n");
    assert_eq!(fixture.error_to(key), "E-VALUE");
}

#[test]
fn an_ack_of_a_requeued_delivery_has_no_effect() {
    for version in ["1.1", "1.2"] {
        let (mut fixture, key, queue, sent) = delivered(version, "ack:client\n", &["a"]);
        fixture.send(key, "UNSUBSCRIBE\nid:s\n\n");
        let named = names(version, &sent[0]);
        fixture.send(key, &format!("ACK\n{named}receipt:r\n\n"));
        assert_eq!(fixture.sent_to(key), RECEIPT, "{version}");
        assert_eq!((fixture.turn.counters.late_acks, fixture.turn.counters.acked), (1, 0));
        assert_eq!(fixture.waiting(&queue), 1);
        fixture.send(key, "BEGIN\ntransaction:t\n\n");
        fixture.send(key, &format!("ACK\n{named}transaction:t\nreceipt:r\n\n"));
        assert_eq!(fixture.sent_to(key), RECEIPT, "{version}");
        fixture.send(key, &format!("ACK\n{named}transaction:u\n\n"));
        assert_eq!(fixture.error_to(key), "E-TX-UNKNOWN");
    }
}

/// Seed 59065983: the ACK covered the last message alone.
#[test]
fn in_stomp_1_1_an_ack_means_the_deliveries_of_a_subscription_that_began_again() {
    for (frame, acked, nacked) in [("ACK", 2, 0), ("NACK", 0, 2)] {
        let (mut fixture, key, queue, sent) = delivered("1.1", "ack:client\n", &["a", "b"]);
        fixture.send(key, "UNSUBSCRIBE\nid:s\n\n");
        fixture.send(key, &format!("SUBSCRIBE\nid:s\ndestination:{queue}\nack:client\n\n"));
        assert_eq!(frames(&mut fixture, key).len(), 2, "both come again");
        fixture.send(key, &format!("{frame}\n{}\n", names("1.1", &sent[1])));
        assert_eq!((fixture.turn.counters.acked, fixture.turn.counters.nacked), (acked, nacked));
    }
}

#[test]
fn an_ack_of_a_transaction_waits_for_commit() {
    let (mut fixture, key, _, sent) = delivered("1.2", "ack:client\n", &["a"]);
    fixture.send(key, "BEGIN\ntransaction:t\n\n");
    fixture.send(key, &format!("ACK\n{}transaction:t\nreceipt:r\n\n", names("1.2", &sent[0])));
    assert_eq!((fixture.sent_to(key).as_str(), fixture.turn.counters.acked), (RECEIPT, 0));
    fixture.send(key, "COMMIT\ntransaction:t\nreceipt:r\n\n");
    assert_eq!((fixture.sent_to(key).as_str(), fixture.turn.counters.acked), (RECEIPT, 1));
}

/// A client in client mode that holds 600 deliveries, and the last one.
fn with_very_many(version: &str) -> (Fixture, ConnKey, String) {
    let mut fixture = fixture();
    let (key, queue) = consumer(&mut fixture, version, "ack:client\nprefetch:1000\n");
    let publisher = fixture.client();
    for _ in 0..600 {
        fixture.send(publisher, &format!("SEND\ndestination:{queue}\n\n"));
        fixture.turn.budget = Budget::default();
    }
    let mut last = String::new();
    while let Some(frame) = frames(&mut fixture, key).last() {
        last.clone_from(frame);
    }
    (fixture, key, last)
}

/// Handles an ACK or NACK of all of them, which takes three turns.
fn check_turns(fixture: &mut Fixture, key: ConnKey, frame: &str) {
    for _ in 0..2 {
        fixture.turn.budget = Budget::nearly_over();
        assert_eq!(fixture.handle(key, frame), Flow::Later);
        assert!(fixture.conn(key).is_acknowledging());
    }
    assert_eq!(fixture.sent_to(key), "");
    assert_eq!(fixture.handle(key, frame), Flow::Done);
    assert!(fixture.sent_to(key).ends_with(RECEIPT) && !fixture.conn(key).is_acknowledging());
}

#[test]
fn an_ack_of_very_many_deliveries_takes_turns() {
    for (frame, acked, nacked) in [("ACK", 600, 0), ("NACK", 0, 600)] {
        let (mut fixture, key, last) = with_very_many("1.2");
        check_turns(&mut fixture, key, &format!("{frame}\n{}receipt:r\n\n", names("1.2", &last)));
        assert_eq!((fixture.turn.counters.acked, fixture.turn.counters.nacked), (acked, nacked));
    }
}

/// Seed 60025273: a later ACK covered what the NACK had refused.
#[test]
fn a_nack_of_what_a_late_ack_has_settled_covers_all_before_it() {
    let (mut fixture, key, _) = with_very_many("1.1");
    let subscription = fixture.subscription(key, "s");
    let settled = fixture.connections.subscription_hasher.hash_one(b"settled".as_slice());
    fixture.owners().delivery().remember_settled(key, subscription, [(u64::MAX, settled)].into_iter());
    check_turns(&mut fixture, key, "NACK\nsubscription:s\nmessage-id:settled\nreceipt:r\n\n");
    assert_eq!((fixture.turn.counters.nacked, fixture.turn.counters.late_acks), (600, 1));
    let unacked = fixture.conn(key).pending_writes.as_ref().map(|writes| writes.unacked);
    assert_eq!(unacked, Some(0));
}

/// Else the next ACK would be taken for a part of this one.
#[test]
fn an_ack_ends_with_its_subscription() {
    let (mut fixture, key, last) = with_very_many("1.2");
    let ack = format!("ACK\n{}receipt:r\n\n", names("1.2", &last));
    fixture.turn.budget = Budget::nearly_over();
    assert_eq!(fixture.handle(key, &ack), Flow::Later);
    let subscription = fixture.subscription(key, "s");
    fixture.owners().remove_subscription(subscription.index, false);
    assert_eq!(fixture.handle(key, &ack), Flow::Done);
    assert!(!fixture.conn(key).is_acknowledging());
}

/// Seed 63036369: what a drop policy forgets is older than all that is held.
#[test]
fn a_nack_of_a_forgotten_delivery_takes_nothing_back() {
    let (mut fixture, key, _, _) = delivered("1.1", "ack:client\n", &["a", "b"]);
    let conn = fixture.connections.table.get_mut(key).expect("an open connection");
    conn.pending_writes.as_mut().expect("a consumer").accepts_unknown = true;
    fixture.send(key, "NACK\nsubscription:s\nmessage-id:gone\nreceipt:r\n\n");
    assert_eq!(fixture.sent_to(key), RECEIPT);
    let unacked = fixture.conn(key).pending_writes.as_ref().map(|writes| writes.unacked);
    assert_eq!((fixture.turn.counters.timed_out, unacked), (0, Some(2)));
}
