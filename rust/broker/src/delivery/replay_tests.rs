//! Tests of the initial replay of new subscriptions, on the subscription's side.

use super::fixture::{Fixture, OTHER, OWN, message};
use crate::config::Config;
use crate::ids::{ConnKey, SubscriptionKey};
use crate::message::OwnedMessage;
use crate::queue::QueueKind;
use crate::queue::consumer_state::InitialReplay;
use crate::queue::mail::{ConsumerNote, HomeNote, Note, ReplayNote};

/// More bytes than any test writes.
const ROOM: usize = 1 << 20;

fn owned(body: &str) -> OwnedMessage {
    OwnedMessage::new(&message(b"/t", body.as_bytes()))
}

/// A subscription with initial replay from two homes.
fn subscribe(fixture: &mut Fixture) -> (ConnKey, SubscriptionKey) {
    let conn = fixture.connect(ROOM);
    let queue = fixture.queues.home.create(b"/t", QueueKind::Private);
    fixture.queues.home.hold_live_back(queue);
    let key = fixture.subscribe(conn, "/t", "0", Some(queue));
    let consumer = fixture.queues.consumers.get_mut(key).expect("a consumer");
    consumer.initial_replay = Some(InitialReplay::new(2, 0));
    (conn, key)
}

/// The other home has sent two messages and has more.
fn replay_two_and_pause(fixture: &mut Fixture, key: SubscriptionKey) {
    for body in ["a", "b"] {
        fixture.owners().read_consumer_note(OTHER, ConsumerNote::Replayed(key, owned(body), false));
    }
    fixture.owners().read_consumer_note(OTHER, ConsumerNote::ReplayPause(key));
}

/// The notes to the other shard.
fn told(fixture: &mut Fixture) -> Vec<&'static str> {
    let notes = fixture.notes.take_outgoing().flat_map(|(_, list)| list);
    notes
        .map(|note| match note {
            Note::Replay(ReplayNote::More(_)) => "more",
            Note::Replay(ReplayNote::Stop(_)) => "stop",
            Note::Replay(ReplayNote::Unacked(_)) => "unacked",
            Note::Home(HomeNote::Stale(_)) => "stale",
            _ => "else",
        })
        .collect()
}

#[test]
fn replayed_messages_come_before_live_ones() {
    let mut fixture = Fixture::new(Config::default());
    let (conn, key) = subscribe(&mut fixture);
    fixture.queues.home.add_credit_of(
        crate::ids::Subscriber { shard: OWN, key },
        crate::queue::types::Credit { messages: 10, bytes: 0 },
    );
    fixture.deliver("/t", "live");
    fixture.owners().read_consumer_note(OTHER, ConsumerNote::Replayed(key, owned("past"), false));
    assert_eq!(fixture.write(conn, ROOM), ["past"]);
    for home in [OTHER, OWN] {
        assert!(fixture.write(conn, ROOM).is_empty());
        fixture.owners().read_consumer_note(home, ConsumerNote::ReplayEnd(key));
    }
    assert_eq!(fixture.write(conn, ROOM), ["live"]);
}

#[test]
fn a_home_with_more_messages_is_asked_while_the_outbox_has_room() {
    let mut fixture = Fixture::new(Config::default());
    let (_, key) = subscribe(&mut fixture);
    fixture.owners().read_consumer_note(OTHER, ConsumerNote::ReplayPause(key));
    assert_eq!(told(&mut fixture), ["more"]);
}

#[test]
fn a_home_is_told_when_the_next_message_needs_an_ack() {
    let mut fixture = Fixture::new(Config::default());
    let (_, key) = subscribe(&mut fixture);
    replay_two_and_pause(&mut fixture, key);
    fixture.owners().read_consumer_note(OTHER, ConsumerNote::ReplayPause(key));
    assert_eq!(
        told(&mut fixture),
        ["unacked"],
        "the second message waits for credit, which is reported once"
    );
}

#[test]
fn homes_are_told_to_stop_when_the_subscription_ends() {
    let mut fixture = Fixture::new(Config::default());
    let (conn, key) = subscribe(&mut fixture);
    replay_two_and_pause(&mut fixture, key);
    assert_eq!(told(&mut fixture), ["unacked"]);
    fixture.owners().forget_pulls_of(conn, key);
    assert_eq!(told(&mut fixture), ["stop"], "the home waits for an answer");
    fixture.unsubscribe(key);
    fixture.owners().read_consumer_note(OTHER, ConsumerNote::ReplayPause(key));
    assert_eq!(told(&mut fixture), ["stop"], "the home did not know that it had ended");
}

#[test]
fn a_stale_message_for_an_ended_subscription_is_requeued_and_a_retained_one_is_not() {
    let mut fixture = Fixture::new(Config { ttl_ms: 1000, ..Config::default() });
    let (_, key) = subscribe(&mut fixture);
    fixture.unsubscribe(key);
    for retained in [false, true] {
        fixture.owners().read_consumer_note(OTHER, ConsumerNote::Replayed(key, owned("x"), retained));
    }
    let here = usize::from(!fixture.queues.stale.is_empty());
    let elsewhere = told(&mut fixture).iter().filter(|note| **note == "stale").count();
    assert_eq!(here + elsewhere, 1);
}
