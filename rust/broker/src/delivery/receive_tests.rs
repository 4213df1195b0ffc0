//! Tests of deliveries of queues: written, settled, deferred, and given back.

use super::*;
use crate::delivery::returning::Fate;
use crate::ids::Subscriber;
use crate::queue::consumer_state::{Retries, SharedCredit};

#[test]
fn with_ack_auto_a_message_is_settled_once_the_socket_has_taken_it() {
    let (mut fixture, conn, _) = with_consumer(with_large_outboxes(), NO_ROOM, AckMode::Auto);
    fixture.enqueue("/queue/a", &["a", "b"]);
    assert!(fixture.write(conn, NO_ROOM).is_empty());
    assert_eq!(fixture.queues.home.counts.dequeued, 0);
    assert_eq!(fixture.write(conn, ROOM), ["a", "b"]);
    assert_eq!((fixture.queues.home.counts.dequeued, fixture.waiting("/queue/a")), (2, 0));
}

#[test]
fn an_unacknowledged_message_is_in_flight_until_it_is_settled_or_requeued() {
    let (mut fixture, conn, key) = with_consumer(with_large_outboxes(), ROOM, AckMode::ClientIndividual);
    fixture.enqueue("/queue/a", &["a", "b"]);
    assert_eq!(fixture.write(conn, ROOM), ["a", "b"]);
    let consumer = fixture.queues.consumers.get_mut(key).expect("a consumer");
    assert_eq!((consumer.number, consumer.unacked.len()), (2, 2));
    let (first, second) = (consumer.unacked.take(1).expect("held"), consumer.unacked.take(2).expect("held"));
    let retries = Retries::of(consumer);
    fixture.owners().settle_one(key, &first);
    assert_eq!((fixture.queues.home.counts.dequeued, fixture.waiting("/queue/a")), (1, 0));
    fixture.owners().give_back_failed(key, retries, [second].into_iter().collect());
    assert_eq!((fixture.queues.home.counts.dequeued, fixture.waiting("/queue/a")), (1, 1));
}

#[test]
fn a_delivery_for_an_ended_subscription_is_requeued() {
    let (mut fixture, _, key) = with_consumer(with_large_outboxes(), ROOM, AckMode::Client);
    let queue = fixture.queue("/queue/a");
    fixture.queues.home.enqueue(queue, OwnedMessage::new(&message(b"/queue/a", b"a")));
    fixture.queues.home.dispatch(1);
    fixture.unsubscribe(key);
    for effect in std::mem::take(&mut fixture.queues.home.effects) {
        if let Effect::Deliver(delivery) = effect {
            fixture.owners().carry_out(delivery);
        }
    }
    assert_eq!((fixture.waiting("/queue/a"), fixture.turn.counters.deliveries), (1, 0));
}

#[test]
fn only_unwritten_deliveries_are_requeued() {
    let (mut fixture, conn, key) = with_consumer(with_large_outboxes(), ROOM, AckMode::Auto);
    fixture.enqueue("/queue/a", &["a"]);
    assert_eq!(fixture.write(conn, ROOM), ["a"]);
    fixture.enqueue("/queue/a", &["b", "c"]);
    fixture.queues.home.detach(Subscriber { shard: OWN, key });
    let mut pending = fixture.connections.table.get_mut(conn).and_then(|conn| conn.pending_writes.take());
    fixture.owners().give_back_unwritten(pending.as_mut().expect("two pending writes"), None);
    assert_eq!((fixture.waiting("/queue/a"), fixture.queues.home.counts.dequeued), (2, 1));
}

#[test]
fn very_many_deliveries_are_requeued_over_several_turns() {
    let (mut fixture, _, key) = with_consumer(with_large_outboxes(), NO_ROOM, AckMode::Client);
    fixture.enqueue("/queue/a", &["a"; 300]);
    let held = std::mem::take(&mut fixture.queues.consumers.get_mut(key).expect("a consumer").unacked);
    assert_eq!(held.len(), 300);
    fixture.queues.home.detach(Subscriber { shard: OWN, key });
    fixture.owners().return_deliveries(Fate::GiveBack, held);
    assert_eq!(fixture.waiting("/queue/a"), 0, "later");
    fixture.owners().proceed_with_returning();
    assert_eq!(fixture.waiting("/queue/a"), 300);
    assert!(fixture.deliveries.returning.is_empty());
}

#[test]
fn a_message_for_a_full_outbox_is_deferred_and_requeued_with_its_subscription() {
    let (mut fixture, conn, key) = with_consumer(with_small_outboxes(), NO_ROOM, AckMode::Client);
    fixture.enqueue("/queue/a", &["a", "b", "c"]);
    let deferred = fixture.connections.table.get(conn).and_then(|conn| conn.output.deferred.as_ref());
    assert!(deferred.is_some_and(|deferred| deferred.len() == 2));
    assert!(!fixture.connections.has_deferred(conn), "its publishers do not wait");
    fixture.queues.home.detach(Subscriber { shard: OWN, key });
    fixture.owners().forget_deferred_of(conn, key);
    assert_eq!(fixture.waiting("/queue/a"), 2);
}

#[test]
fn a_subscription_with_a_private_queue_gets_messages_within_its_credit() {
    let mut fixture = with_large_outboxes();
    let conn = fixture.connect(ROOM);
    let queue = fixture.queues.home.create(b"/t", crate::queue::QueueKind::Private);
    let key = fixture.subscribe(conn, "/t", "0", Some(queue));
    ["a", "b"].iter().for_each(|body| assert_eq!(fixture.deliver("/t", body), None));
    assert_eq!(fixture.write(conn, ROOM), ["a"]);
    let consumer = fixture.queues.consumers.get_mut(key).expect("a consumer");
    let taken = consumer.unacked.take(1).expect("held");
    fixture.owners().settle_one(key, &taken);
    fixture.dispatch();
    assert_eq!(fixture.write(conn, ROOM), ["b"]);
}

#[test]
fn homes_that_request_the_credit_of_a_pattern_get_it_in_turn() {
    let (mut fixture, _, key) = with_consumer(with_large_outboxes(), ROOM, AckMode::Client);
    let consumer = fixture.queues.consumers.get_mut(key).expect("a consumer");
    consumer.shared_credit = Some(SharedCredit { available: 3, ..SharedCredit::default() });
    fixture.owners().credit_requested(OTHER, key, key);
    let granted = |fixture: &mut Fixture| -> Vec<i64> {
        let told: Vec<Note> = fixture.notes.take_outgoing().flat_map(|(_, list)| list).collect();
        let grants = told.iter().filter_map(|note| match note {
            Note::Home(HomeNote::CreditGrant(_, messages)) => Some(*messages),
            _ => None,
        });
        grants.collect()
    };
    assert_eq!(granted(&mut fixture), [3]);
    fixture.owners().credit_requested(OTHER, key, key);
    assert!(granted(&mut fixture).is_empty(), "nothing is left");
    fixture.owners().credit_returned(key, 2);
    assert_eq!(granted(&mut fixture), [2]);
}

#[test]
fn messages_of_queues_that_are_cut_from_an_outbox_are_requeued() {
    let (mut fixture, conn, key) = with_consumer(with_large_outboxes(), NO_ROOM, AckMode::Auto);
    fixture.enqueue("/queue/a", &["a", "b"]);
    fixture.queues.home.detach(Subscriber { shard: OWN, key });
    assert_eq!(fixture.owners().cut_unsent(conn), 2);
    assert_eq!(fixture.waiting("/queue/a"), 2);
}
