//! Tests of the delivery layer alone: without a poll, and with test doubles as sockets.

#[path = "admission_tests.rs"]
mod admission_tests;
#[path = "receive_tests.rs"]
mod receive_tests;

use std::sync::Arc;

use stompica_proto::session::AckMode;

use super::fixture::{Fixture, OTHER, OWN, message};
use super::*;
use crate::config::{Config, SlowConsumer};
use crate::connection::pausing::{Pause, Question};
use crate::ids::{ConnKey, SubscriptionKey};
use crate::mail::inbound::Inbound;
use crate::mail::mailbox::Batch;
use crate::queue::mail::{AnswerNote, Note};
use crate::queue::notes::Local;
use crate::requester::AnswerTo;
use crate::router::Holdup;
use crate::router::group::Place;
use crate::turn::budget::Budget;

/// More bytes than any test writes.
const ROOM: usize = 1 << 20;
/// Fewer bytes than any frame has.
const NO_ROOM: usize = 0;

/// Owners with small outboxes: one frame fills them, and publishers wait.
fn with_small_outboxes() -> Fixture {
    Fixture::new(Config {
        outbox_limit: 40,
        slow_consumer: SlowConsumer::Block(std::time::Duration::from_secs(5)),
        ..Config::default()
    })
}

fn with_large_outboxes() -> Fixture {
    Fixture::new(Config::default())
}

/// Adds a connection with this room, and a subscription of it to `/queue/a`.
fn with_consumer(mut fixture: Fixture, room: usize, mode: AckMode) -> (Fixture, ConnKey, SubscriptionKey) {
    let conn = fixture.connect(room);
    let key = fixture.consume(conn, "/queue/a", mode);
    (fixture, conn, key)
}

/// Adds a connection with this room, and a subscription of it to `/t`.
fn with_subscriber(mut fixture: Fixture, room: usize) -> (Fixture, ConnKey) {
    let conn = fixture.connect(room);
    fixture.subscribe(conn, "/t", "0", None);
    (fixture, conn)
}

fn mark_full(fixture: &mut Fixture, conn: ConnKey) {
    fixture.connections.newly_full.clear();
    fixture.owners().mark_full(conn);
    assert!(fixture.connections.table.get(conn).is_some_and(|conn| conn.output.is_full()));
}

#[test]
fn consecutive_messages_to_a_group_reach_each_member_as_one_range() {
    let mut fixture = with_large_outboxes();
    let conns = [ROOM; 3].map(|room| fixture.connect(room));
    conns.iter().for_each(|conn| _ = fixture.subscribe(*conn, "/t", "0", None));
    for body in ["a", "b"] {
        assert_eq!(fixture.deliver("/t", body), None);
    }
    assert!(fixture.connections.pending_range.is_some() && fixture.connections.dirty.is_empty());
    for conn in conns {
        assert_eq!(fixture.write(conn, ROOM), ["a", "b"]);
    }
    assert!(fixture.connections.pending_range.is_none());
    assert_eq!(fixture.turn.counters.deliveries, 6);
    fixture.owners().close_idle_groups();
    assert!(fixture.deliveries.open_groups.is_empty());
}

#[test]
fn frames_keep_their_order_where_groups_alternate() {
    let mut fixture = with_large_outboxes();
    let (both, one) = (fixture.connect(ROOM), fixture.connect(ROOM));
    fixture.subscribe(both, "/t", "0", None);
    fixture.subscribe(one, "/t", "0", None);
    fixture.subscribe(both, "/u", "1", None);
    for (topic, body) in [("/t", "a"), ("/u", "b"), ("/t", "c")] {
        fixture.deliver(topic, body);
    }
    assert_eq!(fixture.write(both, ROOM), ["a", "b", "c"]);
    assert_eq!(fixture.write(one, ROOM), ["a", "c"]);
}

#[test]
fn closing_a_group_distributes_its_frames() {
    let mut fixture = with_large_outboxes();
    let conns = [ROOM; 2].map(|room| fixture.connect(room));
    let keys = conns.map(|conn| fixture.subscribe(conn, "/t", "0", None));
    fixture.deliver("/t", "a");
    let group = match fixture.router.subscriptions[keys[0].index as usize].place {
        Place::Topic { group, .. } => group,
        Place::Queue => panic!("a subscription to a topic"),
    };
    fixture.owners().close_group(group);
    fixture.router.unsubscribe(keys[0].index);
    fixture.deliver("/t", "b");
    assert_eq!(fixture.write(conns[0], ROOM), ["a"]);
    assert_eq!(fixture.write(conns[1], ROOM), ["a", "b"]);
}

#[test]
fn a_full_outbox_stops_publishers_until_it_is_under_half() {
    let mut fixture = with_small_outboxes();
    let conns = [ROOM; 2].map(|room| fixture.connect(room));
    conns.iter().for_each(|conn| _ = fixture.subscribe(*conn, "/t", "0", None));
    fixture.deliver("/t", "a");
    assert_eq!(fixture.write(conns[1], ROOM), ["a"]);
    assert_eq!(fixture.connections.newly_full.first(), Some(&conns[0]));
    mark_full(&mut fixture, conns[0]);
    conns.iter().for_each(|conn| fixture.owners().mark_full(*conn));
    assert_eq!(fixture.told_full(), [("/t".to_owned(), true)], "reported once, and only for the full one");
    assert_eq!(fixture.write(conns[0], ROOM), ["a"]);
    assert_eq!(fixture.told_full(), [("/t".to_owned(), false)]);
}

#[test]
fn deferred_deliveries_follow_when_a_full_outbox_has_room() {
    let mut fixture = with_small_outboxes();
    let conns = [ROOM; 2].map(|room| fixture.connect(room));
    ["0", "1"].iter().zip(conns).for_each(|(id, conn)| _ = fixture.subscribe(conn, "/t", id, None));
    fixture.deliver("/t", "a");
    assert_eq!(fixture.write(conns[1], ROOM), ["a"]);
    mark_full(&mut fixture, conns[0]);
    // The other connection gets it at once; the publisher waits for both.
    let fan_out = fixture.deliver("/t", "b").expect("a fan-out of several turns");
    assert_eq!(fixture.write(conns[1], ROOM), ["b"]);
    let conn = fixture.connect(ROOM);
    fixture.connections.wait_for(&mut fixture.turn, conn, Question::FanOut(fan_out));
    let to = AnswerTo { shard: OWN, conn, token: 7, awaited: true };
    assert!(fixture.deliveries.fan_outs.await_end(fan_out, conn, to.requester()).is_none());
    assert!(
        fixture.connections.has_deferred(conns[0]) && !fixture.connections.has_accepted_deferred(conns[0])
    );
    assert_eq!(fixture.write(conns[0], ROOM), ["a"]);
    assert_eq!(fixture.write(conns[0], ROOM), ["b"]);
    assert!(fixture.deliveries.fan_outs.is_empty() && !fixture.connections.has_deferred(conns[0]));
    assert!(
        matches!(fixture.notes.next_local(), Some(Local::Note(Note::Answer(AnswerNote::Applied(to, 7)))) if to == conn)
    );
    assert_eq!(fixture.connections.undrained, [conn], "its connection is read again");
}

#[test]
fn the_end_of_a_connection_drops_its_deferred_deliveries_and_ends_waits_for_them() {
    let (mut fixture, conn) = with_subscriber(with_small_outboxes(), NO_ROOM);
    fixture.deliver("/t", "a");
    let fan_out = fixture.deliver("/t", "b").expect("a fan-out of several turns");
    assert!(fixture.deliveries.fan_outs.is_live(fan_out));
    fixture.owners().forget_deferred(conn);
    assert!(fixture.deliveries.fan_outs.is_empty() && !fixture.connections.has_deferred(conn));
}

#[test]
fn deliveries_dropped_by_a_reload_are_counted_and_later_ones_continue() {
    let (mut fixture, conn) = with_subscriber(with_small_outboxes(), NO_ROOM);
    fixture.deliver("/t", "a");
    let fan_out = fixture.deliver("/t", "b").expect("a fan-out of several turns");
    fixture.deliveries.fan_outs.accept(fan_out);
    fixture.connections.park(&mut fixture.turn, conn, Pause::Deferred);
    fixture.owners().drop_deferred_topics(conn);
    assert_eq!(fixture.turn.counters.dropped, 1);
    assert_eq!(fixture.connections.undrained, [conn], "its connection is read again");
    assert_eq!(fixture.connections.table.get(conn).map(|conn| conn.output.dropped), Some(1));
}

#[test]
fn a_member_of_a_group_that_is_too_slow_is_told_what_it_lost() {
    for (policy, too_slow, dropped, bodies) in [
        (SlowConsumer::Disconnect, 1, 0, &["a", "c"][..]),
        (SlowConsumer::DropNewest, 0, 1, &["a", "c"]),
        (SlowConsumer::DropOldest, 0, 1, &["b", "c"]),
    ] {
        let config = Config { outbox_limit: 40, slow_consumer: policy, ..Config::default() };
        let mut fixture = Fixture::new(config);
        let (slow, fast) = (fixture.connect(NO_ROOM), fixture.connect(ROOM));
        [slow, fast].iter().for_each(|conn| _ = fixture.subscribe(*conn, "/t", "0", None));
        for body in ["a", "b"] {
            fixture.deliver("/t", body);
            assert_eq!(fixture.write(fast, ROOM), [body]);
        }
        assert_eq!((fixture.connections.too_slow.len(), fixture.turn.counters.dropped), (too_slow, dropped));
        let mut sent = fixture.write(slow, ROOM);
        let is_told = fixture.connections.table.get(slow).is_some_and(|conn| conn.output.dropped > 0);
        assert_eq!(is_told, policy == SlowConsumer::DropNewest, "the next message says so");
        fixture.deliver("/t", "c");
        sent.extend(fixture.write(slow, ROOM));
        assert_eq!(sent, bodies, "{policy:?}");
        assert_eq!(fixture.connections.table.get(slow).map(|conn| conn.output.dropped), Some(0));
    }
}

#[test]
fn a_consumer_that_is_too_slow_is_cut_off_or_loses_messages() {
    for (policy, too_slow, dropped, bodies) in [
        (SlowConsumer::Disconnect, 1, 0, &["a"][..]),
        (SlowConsumer::DropNewest, 0, 1, &["a"]),
        (SlowConsumer::DropOldest, 0, 1, &["b"]),
    ] {
        let config = Config { outbox_limit: 40, slow_consumer: policy, ..Config::default() };
        let mut fixture = Fixture::new(config);
        let conn = fixture.connect(NO_ROOM);
        fixture.subscribe(conn, "/t", "0", None);
        ["a", "b"].iter().for_each(|body| assert_eq!(fixture.deliver("/t", body), None));
        assert_eq!((fixture.connections.too_slow.len(), fixture.turn.counters.dropped), (too_slow, dropped));
        assert_eq!(fixture.write(conn, ROOM), bodies, "{policy:?}");
    }
}

#[test]
fn a_message_to_very_many_groups_takes_several_turns() {
    let mut fixture = with_large_outboxes();
    let conn = fixture.connect(ROOM);
    (0..3000).for_each(|id| _ = fixture.subscribe(conn, "/t", &id.to_string(), None));
    fixture.turn.budget = Budget::nearly_over();
    let fan_out = fixture.deliver("/t", "a").expect("a fan-out of several turns");
    assert!(fixture.deliveries.fan_outs.is_going(fan_out));
    let late = fixture.connect(ROOM);
    fixture.subscribe(late, "/t", "0", None);
    while fixture.deliveries.fan_outs.first().is_some() {
        fixture.turn.budget = Budget::default();
        fixture.owners().proceed_with_fan_outs(2);
    }
    assert_eq!(fixture.write(conn, usize::MAX).len(), 3000);
    assert!(fixture.write(late, ROOM).is_empty(), "it subscribed later");
    assert!(fixture.deliveries.fan_outs.is_empty());
}

#[test]
fn a_fan_out_does_not_wait_behind_messages_of_queues_where_slow_consumers_lose_messages() {
    let config = Config { outbox_limit: 64, slow_consumer: SlowConsumer::DropNewest, ..Config::default() };
    let (mut fixture, conn, _) = with_consumer(Fixture::new(config), NO_ROOM, AckMode::Client);
    fixture.enqueue("/queue/a", &["a", "b", "c"]);
    let other = fixture.connect(NO_ROOM);
    for (conn, id) in [(conn, "1"), (other, "2")] {
        fixture.subscribe(conn, "/t", id, None);
    }
    let is_deferred = |fixture: &Fixture| {
        fixture.connections.table.get(conn).is_some_and(|it| it.output.deferred.is_some())
    };
    assert!(is_deferred(&fixture));
    fixture.deliver("/t", &"x".repeat(1 << 20));
    assert!(
        is_deferred(&fixture) && !fixture.connections.has_deferred(conn),
        "smaller ones would overtake it"
    );
}

#[test]
fn a_subscription_whose_queue_grows_stops_publishers_while_memory_is_short() {
    let mut fixture = with_large_outboxes();
    let conn = fixture.connect(ROOM);
    let queue = fixture.queues.home.create(b"/t", crate::queue::QueueKind::Private);
    fixture.subscribe(conn, "/t", "0", Some(queue));
    fixture.turn.memory.is_short = true;
    ["a", "b"].iter().for_each(|body| _ = fixture.deliver("/t", body));
    assert_eq!(fixture.told_full(), [("/t".to_owned(), true)]);
    fixture.owners().check_growing_queues();
    assert!(fixture.told_full().is_empty(), "its queue still grows");
    fixture.turn.memory.is_short = false;
    fixture.owners().check_growing_queues();
    assert_eq!(fixture.told_full(), [("/t".to_owned(), false)]);
}

/// Seed 27006164: each of them delivered what waited in it, 64 messages at a time.
#[test]
fn a_message_to_many_private_queues_waits_in_them_once_the_turn_is_over() {
    let mut fixture = with_large_outboxes();
    let conn = fixture.connect(ROOM);
    for id in ["0", "1"] {
        let queue = fixture.queues.home.create(b"/t", crate::queue::QueueKind::Private);
        fixture.subscribe(conn, "/t", id, Some(queue));
    }
    fixture.turn.budget = Budget::nearly_over();
    fixture.deliver("/t", "a");
    assert_eq!(fixture.turn.counters.deliveries, 0);
    fixture.turn.budget = Budget::default();
    fixture.owners().dispatch();
    assert_eq!(fixture.turn.counters.deliveries, 2);
}

#[test]
fn a_filter_is_full_while_one_of_its_subscriptions_is() {
    let mut fixture = with_large_outboxes();
    let conn = fixture.connect(ROOM);
    let keys = ["0", "1"].map(|id| fixture.subscribe(conn, "/t", id, None));
    let mut change = |key: SubscriptionKey, full| {
        fixture.owners().change_full_of(key.index, Holdup::Outbox, full);
        fixture.told_full().len()
    };
    assert_eq!([change(keys[0], true), change(keys[1], true)], [1, 0]);
    assert_eq!([change(keys[0], false), change(keys[1], false)], [0, 1]);
}

#[test]
fn the_memory_of_a_shard_is_counted_in_the_total() {
    let mut fixture = with_large_outboxes();
    fixture.owners().count_memory();
    let before = fixture.turn.held_bytes();
    let conn = fixture.connect(NO_ROOM);
    fixture.subscribe(conn, "/t", "0", None);
    fixture.deliver("/t", &"x".repeat(10_000));
    fixture.owners().count_memory();
    assert!(fixture.turn.held_bytes() - before >= 10_000);
}

#[test]
fn a_message_goes_to_local_subscriptions_and_once_to_each_interested_shard() {
    let (mut fixture, conn) = with_subscriber(with_large_outboxes(), ROOM);
    fixture.router.set_interest(&Arc::new(b"/t/*"[..].into()), OTHER, true);
    for (topic, mailed) in [("/t", 0), ("/t/u", 1), ("/u", 1)] {
        let destination = fixture.router.destination(topic.as_bytes()).expect("a topic");
        let reach = fixture.router.reach(destination);
        fixture.owners().publish(&message(topic.as_bytes(), b"a"), destination, &reach);
        assert_eq!(fixture.peers.batch.count_for(OTHER), mailed, "{topic}");
    }
    assert_eq!(fixture.write(conn, ROOM), ["a"]);
    assert_eq!(fixture.turn.counters.messages_in, 3);
}

#[test]
fn messages_of_another_shard_are_routed_in_order() {
    let (mut fixture, conn) = with_subscriber(with_large_outboxes(), ROOM);
    let newest = fixture.router.newest_subscription();
    for bodies in [["a", "b"], ["c", "d"]] {
        let mut batch = Batch::default();
        bodies.iter().for_each(|body| batch.push(&message(b"/t", body.as_bytes()), OWN.bit(), 0));
        let inbound = Inbound { batch: Arc::new(batch), round: 0, newest, next: 0, behind: None };
        fixture.peers.inbound.batches.push_back(inbound);
        fixture.peers.mailboxes[usize::from(OWN.0)].add_frames(2); // as its sender does
    }
    fixture.owners().route_inbound();
    assert!(fixture.peers.inbound.is_empty());
    assert_eq!(fixture.write(conn, ROOM), ["a", "b", "c", "d"]);
}

#[test]
fn a_change_to_a_non_blocking_policy_resumes_publishers() {
    let (mut fixture, conn) = with_subscriber(with_small_outboxes(), NO_ROOM);
    fixture.deliver("/t", "a");
    mark_full(&mut fixture, conn);
    fixture.told_full();
    fixture.owners().stop_blocking();
    assert!(fixture.told_full().is_empty(), "the policy still blocks");
    let config = Config { slow_consumer: SlowConsumer::DropNewest, ..Config::clone(&fixture.turn.config) };
    fixture.turn.config = Arc::new(config);
    fixture.owners().stop_blocking();
    assert_eq!(fixture.told_full(), [("/t".to_owned(), false)]);
}
