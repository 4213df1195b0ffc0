//! Tests of the delivery layer alone: without a poll, and with test doubles as sockets.

use std::hash::BuildHasher as _;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use stompica_proto::session::AckMode;

use super::admission::{LARGE_BODY, Load};
use super::fixture::{Fixture, OTHER, OWN, message};
use super::returning::Fate;
use super::*;
use crate::config::{Config, SlowConsumer};
use crate::connection::pausing::{Pause, Question};
use crate::ids::{ConnKey, Subscriber, SubscriptionKey};
use crate::mail::inbound::Inbound;
use crate::mail::mailbox::Batch;
use crate::queue::allowance::Allowance;
use crate::queue::consumer_state::{Retries, SharedCredit};
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
    assert!(fixture.connections.table.get(conn).is_some_and(|conn| conn.output.full_since_ms.is_set()));
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

/// A shard that holds this many bytes of a limit of 1000.
fn holding(bytes: i64) -> Fixture {
    let mut fixture = Fixture::new(Config { memory_limit: 1000, ..Config::default() });
    hold(&mut fixture, bytes);
    fixture
}

fn hold(fixture: &mut Fixture, bytes: i64) {
    fixture.turn.totals.memory.store(bytes, Ordering::Relaxed);
    fixture.owners().check_memory();
}

/// The reason why a small SEND of a connection has to wait, if there is one.
fn pause(fixture: &mut Fixture, conn: ConnKey, name: &str, shards: u64) -> Option<Pause> {
    let mut destination = fixture.router.destination(name.as_bytes()).expect("a destination");
    destination.home = if shards == 0 { OWN } else { OTHER };
    let load = Load {
        name: name.as_bytes(),
        destination,
        shards,
        fan_out_size: 0,
        is_full: false,
        bytes: 1,
        kept: false,
    };
    fixture.owners().pause_for(conn, &load)
}

#[test]
fn a_send_waits_for_full_outboxes_mailboxes_and_memory() {
    let mut fixture = with_large_outboxes();
    let conn = fixture.connect(ROOM);
    let destination = fixture.router.destination(b"/t").expect("a topic");
    let load =
        Load { name: b"/t", destination, shards: 2, fan_out_size: 1, is_full: true, bytes: 1, kept: false };
    fixture.peers.busy.congested = 2;
    fixture.peers.busy.saturated = 2;
    assert_eq!(fixture.owners().pause_for(conn, &load), Some(Pause::Mailbox));
    fixture.peers.busy.congested = 1;
    assert_eq!(fixture.owners().pause_for(conn, &load), Some(Pause::LargeFanOut));
    let load = Load { fan_out_size: 0, ..load };
    assert_eq!(fixture.owners().pause_for(conn, &load), Some(Pause::SlowConsumer));
    let load = Load { is_full: false, ..load };
    assert_eq!(fixture.owners().pause_for(conn, &load), None);
}

/// The short check before [`Owners::pause_for`] must not admit a SEND that has to wait.
#[test]
fn a_send_that_has_to_wait_for_any_reason_is_not_admitted_by_the_short_check() {
    for reasons in 0..1_u32 << 6 {
        let is = |bit: u32| reasons & 1 << bit != 0;
        let mut fixture = if is(5) { holding(800) } else { with_large_outboxes() };
        let conn = fixture.connect(ROOM);
        let destination = fixture.router.destination(b"/queue/a").expect("a queue");
        fixture.peers.busy.congested = if is(0) { 2 } else { 1 };
        fixture.peers.busy.saturated = if is(1) { 2 } else { 1 };
        let (fan_out_size, is_full) = (usize::from(is(2)), is(3));
        let bytes = if is(4) { LARGE_BODY } else { LARGE_BODY - 1 };
        let load =
            Load { name: b"/queue/a", destination, shards: 2, fan_out_size, is_full, bytes, kept: false };
        let is_admitted = load.is_admitted(&fixture.turn, &fixture.peers);
        let pause = fixture.owners().pause_for(conn, &load);
        assert!(!is_admitted || pause.is_none(), "{reasons:06b}: {pause:?}");
        let is_plain = reasons & !0b100 == 0; // the size of a fan-out matters only to saturated shards
        assert_eq!(is_admitted, is_plain, "{reasons:06b}: most SENDs are admitted at once, others are not");
    }
}

#[test]
fn while_memory_is_short_only_messages_that_would_be_kept_wait() {
    let mut fixture = holding(800);
    let (conn, consumer) = (fixture.connect(ROOM), fixture.connect(ROOM));
    fixture.queue("/queue/kept");
    fixture.consume(consumer, "/queue/read", AckMode::Client);
    fixture.subscribe(consumer, "/t", "1", None);
    assert_eq!(pause(&mut fixture, conn, "/queue/kept", 0), Some(Pause::Kept));
    assert_eq!(pause(&mut fixture, conn, "/queue/read", 0), None);
    assert_eq!(pause(&mut fixture, conn, "/t", 0), None);
    hold(&mut fixture, 950);
    assert_eq!(pause(&mut fixture, conn, "/t", 0), Some(Pause::Memory), "nothing passes");
}

#[test]
fn without_memory_a_fan_out_goes_on_unless_outboxes_take_the_rest() {
    for (unread, waits) in [(1000, false), (100_000, true)] {
        let mut fixture = Fixture::new(Config { memory_limit: 1 << 20, ..Config::default() });
        let conn = fixture.connect(NO_ROOM);
        fixture.subscribe(conn, "/t", "0", None);
        fixture.deliver("/t", &"x".repeat(unread));
        hold(&mut fixture, 1 << 20);
        let destination = fixture.router.destination(b"/t").expect("a topic");
        let going = fixture.owners().fan_out(&message(b"/t", b"next"), destination);
        assert_eq!(going.is_some(), waits, "{unread}");
    }
}

#[test]
fn a_connection_that_holds_deliveries_may_send_while_memory_is_short() {
    let (mut fixture, conn, _) = with_consumer(holding(800), ROOM, AckMode::Client);
    fixture.enqueue("/queue/a", &["a"]);
    fixture.queue("/queue/kept");
    assert_eq!(pause(&mut fixture, conn, "/queue/kept", 0), None);
    hold(&mut fixture, 950);
    assert_eq!(pause(&mut fixture, conn, "/queue/kept", 0), Some(Pause::Memory));
}

#[test]
fn the_home_of_a_remote_queue_is_asked_whether_a_send_may_pass() {
    let mut fixture = holding(800);
    let conn = fixture.connect(ROOM);
    let asked =
        |fixture: &mut Fixture| fixture.notes.take_outgoing().map(|(_, list)| list.len()).sum::<usize>();
    for count in [1, 0] {
        assert_eq!(pause(&mut fixture, conn, "/queue/far", 2), Some(Pause::Kept));
        assert_eq!(asked(&mut fixture), count, "the home is asked once");
    }
    fixture.connections.park(&mut fixture.turn, conn, Pause::Kept);
    let hash = fixture.turn.hasher.hash_one(&b"/queue/far"[..]);
    fixture.owners().admit(hash, Allowance { messages: 1, bytes: 10 }, true);
    assert_eq!(fixture.connections.undrained, [conn], "the connection retries");
    assert_eq!(pause(&mut fixture, conn, "/queue/far", 2), None);
    assert_eq!(pause(&mut fixture, conn, "/queue/far", 2), Some(Pause::Kept), "the allowance is used up");
}

#[test]
fn all_sends_resume_when_memory_is_free_again() {
    let mut fixture = holding(800);
    let conn = fixture.connect(ROOM);
    fixture.queue("/queue/kept");
    assert_eq!(pause(&mut fixture, conn, "/queue/kept", 0), Some(Pause::Kept));
    fixture.connections.park(&mut fixture.turn, conn, Pause::Kept);
    hold(&mut fixture, 700);
    assert!(!fixture.connections.parking.has_retries());
    hold(&mut fixture, 699);
    assert!(fixture.connections.parking.has_retries());
    assert_eq!(pause(&mut fixture, conn, "/queue/kept", 0), None);
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
fn messages_of_queues_that_are_cut_from_an_outbox_are_requeued() {
    let (mut fixture, conn, key) = with_consumer(with_large_outboxes(), NO_ROOM, AckMode::Auto);
    fixture.enqueue("/queue/a", &["a", "b"]);
    fixture.queues.home.detach(Subscriber { shard: OWN, key });
    assert_eq!(fixture.owners().cut_unsent(conn), 2);
    assert_eq!(fixture.waiting("/queue/a"), 2);
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
