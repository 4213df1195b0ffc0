//! Answers of commands that wait for a durable store, alone: the test decides what is safe.

use super::fixture::{Fixture, RECEIPT, config};
use crate::connection::Effect;
use crate::connection::flow::Flow;
use crate::connection::pausing::Pause;
use crate::delivery::fixture::{OTHER, OWN};
use crate::ids::ConnKey;
use crate::queue::mail::{AnswerNote, HomeNote, Note};
use crate::requester::Requester;
use crate::store::Room;
use crate::store::double::Journal;
use crate::store::handle::Handle;
use crate::turn::budget::Budget;

/// A shard with a store, and a client.
fn fixture() -> (Fixture, Journal, ConnKey) {
    let (mut fixture, journal) = (Fixture::new(config(|_| ())), Journal::default());
    fixture.queues.home.store = Handle::new(journal.handle());
    let key = fixture.client();
    (fixture, journal, key)
}

fn send(fixture: &mut Fixture, key: ConnKey, destination: &str, headers: &str) {
    fixture.send(key, &format!("SEND\ndestination:{destination}\npersistent:true\n{headers}\nx"));
}

/// The same after the client has sent a message with these headers to a queue of this shard; and the queue.
fn with_sent(headers: &str) -> (Fixture, Journal, ConnKey, String) {
    let (mut fixture, journal, key) = fixture();
    let queue = fixture.name_at(OWN, "/queue/");
    send(&mut fixture, key, &queue, headers);
    (fixture, journal, key, queue)
}

/// Answers the frames that waited for the store.
fn answer_saved(fixture: &mut Fixture) {
    fixture.owners().queue().answer_saved();
    fixture.settle();
}

/// The other shard's question whether it has everything, also in its store.
fn round_trip(fixture: &mut Fixture) -> Requester {
    match fixture.notes_to_other().pop() {
        Some(Note::Answer(AnswerNote::RoundTrip(requester, None))) => requester,
        note => panic!("not a round trip: {note:?}"),
    }
}

#[test]
fn a_receipt_waits_for_the_own_store() {
    let (mut fixture, journal, key, queue) = with_sent("receipt:r\n");
    answer_saved(&mut fixture);
    assert_eq!((fixture.waiting(&queue), fixture.sent_to(key).as_str()), (1, ""));
    journal.save_all();
    answer_saved(&mut fixture);
    assert_eq!(fixture.sent_to(key), RECEIPT);
}

#[test]
fn a_frame_that_tells_the_store_nothing_does_not_wait() {
    let (mut fixture, _, _, queue) = with_sent("");
    let other = fixture.client();
    fixture.send(other, &format!("SEND\ndestination:{queue}\nreceipt:r\n\nx"));
    assert_eq!(fixture.sent_to(other), RECEIPT);
}

#[test]
fn a_store_that_fails_turns_the_receipt_into_an_error() {
    let (mut fixture, journal, key, _) = with_sent("receipt:r\n");
    journal.fail();
    answer_saved(&mut fixture);
    assert_eq!(fixture.error_to(key), "E-STORE-IO");
}

#[test]
fn a_receipt_of_a_message_to_a_topic_waits_for_shards_with_durable_subscriptions() {
    let (mut fixture, _, key) = fixture();
    fixture.subscribe_other("/topic/a");
    send(&mut fixture, key, "/topic/a", "receipt:r\n");
    let requester = round_trip(&mut fixture);
    assert_eq!((fixture.peers.batch.count_for(OTHER), fixture.sent_to(key).as_str()), (1, ""));
    fixture.confirm(requester);
    assert_eq!(fixture.sent_to(key), RECEIPT);
}

#[test]
fn a_receipt_of_a_retained_message_waits_for_its_home_and_for_stores() {
    let (mut fixture, _, key) = fixture();
    let topic = fixture.name_at(OTHER, "/topic/");
    fixture.subscribe_other(&topic);
    send(&mut fixture, key, &topic, "retain:set\nreceipt:r\n");
    for note in fixture.notes_to_other() {
        assert_eq!(fixture.sent_to(key), "");
        match note {
            Note::Answer(AnswerNote::RoundTrip(requester, None))
            | Note::Home(HomeNote::Retain(_, true, Some(requester))) => fixture.confirm(requester),
            note => panic!("unexpected: {note:?}"),
        }
    }
    assert_eq!(fixture.sent_to(key), RECEIPT);
}

#[test]
fn a_removal_of_a_last_value_waits_for_somebody_elses_removal_that_is_not_safe() {
    let (mut fixture, journal, key) = fixture();
    let (topic, other) = (fixture.name_at(OWN, "/topic/"), fixture.client());
    send(&mut fixture, key, &topic, "retain:set\n");
    journal.save_all();
    answer_saved(&mut fixture);
    send(&mut fixture, key, &topic, "retain:remove\n");
    send(&mut fixture, other, &topic, "retain:remove\nreceipt:r\n");
    answer_saved(&mut fixture);
    assert_eq!(fixture.sent_to(other), "", "the value would return after a crash");
    journal.save_all();
    answer_saved(&mut fixture);
    assert_eq!(fixture.sent_to(other), RECEIPT);
}

#[test]
fn a_disconnect_asks_the_shards_that_were_not_asked_before() {
    let (mut fixture, _, key) = fixture();
    fixture.subscribe_other("/topic/a");
    send(&mut fixture, key, "/topic/a", "");
    assert!(fixture.notes_to_other().is_empty(), "a frame without a RECEIPT does not wait");
    fixture.send(key, "DISCONNECT\nreceipt:r\n\n");
    let effect = fixture.connections.effects.pop_back();
    assert!(
        matches!(effect, Some(Effect::AsksForRoundTrips(_, shards)) if shards == OTHER.bit()),
        "{effect:?}"
    );
    assert_eq!(fixture.sent_to(key), "");
}

#[test]
fn the_receipt_of_an_ack_waits_until_the_message_is_forgotten() {
    let (mut fixture, journal, key) = fixture();
    let queue = fixture.name_at(OWN, "/queue/");
    fixture.send(key, &format!("SUBSCRIBE\nid:s\ndestination:{queue}\nack:client\n\n"));
    send(&mut fixture, key, &queue, "");
    let ack = super::fixture::header(&fixture.sent_to(key), "ack");
    journal.save_all();
    answer_saved(&mut fixture);
    fixture.send(key, &format!("ACK\nid:{ack}\nreceipt:r\n\n"));
    answer_saved(&mut fixture);
    assert_eq!(fixture.sent_to(key), "");
    journal.save_all();
    answer_saved(&mut fixture);
    assert_eq!(fixture.sent_to(key), RECEIPT);
}

#[test]
fn a_nack_of_several_turns_waits_for_the_homes_of_all_its_deliveries() {
    let (mut fixture, journal, key) = fixture();
    let queue = fixture.name_at(OWN, "/queue/");
    fixture.send(key, &format!("SUBSCRIBE\nid:s\ndestination:{queue}\nack:client\n\n"));
    for _ in 0..300 {
        send(&mut fixture, key, &queue, "");
    }
    let sent = fixture.sent_to(key);
    journal.save_all();
    answer_saved(&mut fixture);
    let last = sent.rsplit_once("\nack:").expect("a delivery").1.lines().next().expect("an id").to_owned();
    let subscription = fixture.subscription(key, "s");
    let consumer = fixture.queues.consumers.get_mut(subscription).expect("it consumes");
    // The older ones came from the other shard, as those of a pattern may.
    let mut held = std::mem::take(&mut consumer.unacked);
    let mut number = 0;
    while let Some(mut taken) = held.pop() {
        number += 1;
        if number <= 256 {
            taken.origin.home = OTHER;
        }
        consumer.unacked.push(number, 0, 0, taken.origin, taken.message);
    }
    let nack = format!("NACK\nid:{last}\nreceipt:r\n\n");
    fixture.turn.budget.visit(usize::MAX / 2);
    assert_eq!(fixture.handle(key, &nack), Flow::Later);
    fixture.turn.budget = Budget::default();
    fixture.notes_to_other();
    assert_eq!(fixture.handle(key, &nack), Flow::Done);
    round_trip(&mut fixture).answered();
}

#[test]
fn a_failed_store_refuses_persistent_messages_and_values_while_others_go_on() {
    let (mut fixture, journal, key) = fixture();
    journal.fail();
    let queue = fixture.name_at(OWN, "/queue/");
    fixture.send(key, &format!("SEND\ndestination:{queue}\nreceipt:r\n\nx"));
    assert_eq!((fixture.sent_to(key).as_str(), fixture.waiting(&queue)), (RECEIPT, 1));
    let persistent = format!("SEND\ndestination:{queue}\npersistent:true\n\nx");
    fixture.expect_refusals(&[
        (&persistent, "E-STORE-IO"),
        ("SEND\ndestination:/topic/a\nretain:set\n\nx", "E-STORE-IO"),
    ]);
    assert_eq!(fixture.waiting(&queue), 1);
}

#[test]
fn publishers_pause_while_the_store_is_behind_and_are_refused_while_its_disk_is_full() {
    let (mut fixture, journal, key) = fixture();
    let queue = fixture.name_at(OWN, "/queue/");
    let send = format!("SEND\ndestination:{queue}\npersistent:true\n\nx");
    journal.set_room(Room::Behind);
    assert_eq!(fixture.send(key, &send), Flow::Parked);
    assert_eq!((fixture.conn(key).wait.pause(), fixture.waiting(&queue)), (Some(Pause::Store), 0));
    let other = fixture.client();
    assert_eq!(fixture.send(other, &format!("SEND\ndestination:{queue}\n\nx")), Flow::Done);
    journal.set_room(Room::Free);
    fixture.unpark(key);
    assert_eq!((fixture.send(key, &send), fixture.waiting(&queue)), (Flow::Done, 2));
    journal.set_room(Room::Full);
    fixture.expect_refusals(&[
        (&send, "E-STORE-FULL"),
        ("SEND\ndestination:/topic/a\nretain:set\n\nx", "E-STORE-FULL"),
    ]);
}
