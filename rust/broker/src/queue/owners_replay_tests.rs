//! Tests of durable subscriptions, of stale and retained messages, and of their replay.

use stompica_proto::error::Code;

use super::*;
use crate::queue::replay::Newcomer;

#[test]
fn a_durable_subscription_announces_its_topic_and_waits_for_its_initial_replay() {
    let mut world = World::new(2, Config::default());
    world.attach(subscriber(OWN, 0), durable(b"t", false), frame(1));
    assert_eq!(world.local(), ["announce t (new)"]);
    let found = world.find(b"durable\nc\nd").expect("a queue");
    world.owners().durable_replay_ended(found);
    world.owners().durable_replay_ended(found);
    assert_eq!(world.local(), ["applied 1", "applied 1"], "each home's answer");
    assert_eq!(take_lost(), 0);
}

#[test]
fn a_durable_subscription_has_one_topic_and_one_holder() {
    let mut world = World::new(1, Config::default());
    world.attach(subscriber(OWN, 0), durable(b"t", false), frame(1));
    world.attach(subscriber(OWN, 1), durable(b"t", true), frame(2));
    world.attach(subscriber(OWN, 1), durable(b"u", false), frame(3));
    assert_eq!(
        world.local(),
        ["announce t (new)", "refused 2 E-DURABLE-IN-USE", "refused 3 E-DURABLE-OTHER"]
    );
    world.tell(HomeNote::Detach(subscriber(OWN, 0)));
    world.attach(subscriber(OWN, 1), durable(b"t", false), frame(4));
    assert_eq!(world.local(), ["announce t", "opens 4", "applied 4"], "its credit follows the RECEIPT");
    world.tell(end_durable(5));
}

#[test]
fn the_end_of_a_durable_subscription_answers_all_requesters() {
    let mut world = World::new(1, Config::default());
    world.attach(subscriber(OWN, 0), durable(b"t", false), frame(1));
    world.local();
    world.tell(end_durable(2));
    assert_eq!(world.local(), ["unbind", "applied 1", "applied 2"]);
    world.tell(end_durable(3));
    assert_eq!(world.local(), [format!("refused 3 {}", Code::SubscriptionUnknown.as_str())]);
    assert!(world.queues.bindings.is_empty() && world.find(b"durable\nc\nd").is_none());
    assert_eq!(take_lost(), 0);
}

#[test]
fn a_consumer_of_a_worker_topic_gets_stale_messages_before_its_receipt() {
    let mut world = World::new(1, Config { ttl_ms: 1000, ..Config::default() });
    for text in ["a", "b"] {
        world.tell(HomeNote::Enqueue(message("#w", text), None));
    }
    assert!(world.find(b"#w").is_none() && !world.queues.stale.is_empty());
    world.attach(subscriber(OWN, 0), worker(b"#w"), frame(1));
    assert_eq!(world.local(), ["deliver a", "deliver b", "applied 1"]);
    assert!(world.queues.stale.is_empty());
}

#[test]
fn many_stale_messages_for_a_consumer_are_delivered_as_a_job() {
    let mut world = World::new(1, Config { ttl_ms: 1000, ..Config::default() });
    for _ in 0..100 {
        world.tell(HomeNote::Enqueue(message("#w", "x"), None));
    }
    let credit = Credit { messages: 1000, bytes: 1 << 20 };
    world.tell_attach(Attach { credit, ..attach(subscriber(OWN, 0), worker(b"#w"), frame(1)) });
    let first = world.local();
    assert!(first.len() < 100 && first.iter().all(|note| note == "deliver x"), "{first:?}");
    assert_eq!(world.turn.jobs.pop(), Some(Job::Revive));
    world.owners().proceed_with_revivals();
    let rest = world.local();
    assert_eq!((first.len() + rest.len(), rest.last().map(String::as_str)), (101, Some("applied 1")));
}

#[test]
fn a_replay_begins_once_all_shards_know_the_new_subscription() {
    let mut world = World::new(3, Config { ttl_ms: 1000, ..Config::default() });
    assert!(world.owners().queues.retained.reserve_ahead(100));
    world.tell(HomeNote::Retain(message("t", "last"), true, Some(frame(1))));
    world.tell(HomeNote::Stale(message("t", "stale")));
    assert_eq!(world.local(), ["applied 1"]);
    let newcomer = Newcomer { key: subscriber(OWN, 0).key, without: 0 };
    world.owners().await_replay(b"t", OWN, newcomer, Some(frame(2)));
    assert!(!world.owners().proceed_with_next_replay(), "two shards have not acknowledged it");
    world.tell(ReplayNote::InterestAck(subscriber(OWN, 0)));
    assert!(!world.owners().proceed_with_next_replay());
    world.tell(ReplayNote::InterestAck(subscriber(OWN, 0)));
    assert!(world.owners().proceed_with_next_replay());
    world.tell(ReplayNote::More(subscriber(OWN, 0)));
    while world.owners().proceed_with_next_replay() {}
    let told = world.local();
    assert_eq!(told.iter().filter(|it| it.starts_with("replayed")).count(), 2, "{told:?}");
    assert_eq!(told[told.len() - 2..], ["applied 2", "replay end"], "{told:?}");
}

#[test]
fn a_stale_message_that_comes_back_reaches_a_subscription_while_another_one_waits_for_its_replay() {
    let mut world = World::new(2, Config { ttl_ms: 1000, ..Config::default() });
    world.attach(subscriber(OWN, 0), durable(b"t", false), frame(1));
    let replayed =
        Subscriber { shard: OWN, key: world.queues.bindings.values().next().expect("one").subscription };
    world.tell(ReplayNote::InterestAck(replayed));
    assert!(world.owners().proceed_with_next_replay() && world.queues.pending_replays.is_empty());
    world.local();
    for (topic, end) in [("u", "publish back"), ("*", "")] {
        let newcomer = Newcomer { key: subscriber(OTHER, 7).key, without: 0 };
        world.queues.pending_replays.clear();
        world.owners().await_replay(topic.as_bytes(), OWN, newcomer, None);
        world.tell(HomeNote::Stale(message("t", "back")));
        assert_eq!(world.local().concat(), end, "{topic}");
    }
}

#[test]
fn a_home_tells_the_others_that_it_knows_a_subscription_of_another_shard() {
    let mut world = World::new(3, Config::default());
    let newcomer = Newcomer { key: subscriber(OTHER, 0).key, without: 0 };
    world.owners().await_replay(b"t", OTHER, newcomer, Some(frame_of(OTHER, 1)));
    assert_eq!(world.remote(), ["interest ack", "interest ack"]);
    world.tell(ReplayNote::InterestAck(subscriber(OTHER, 0)));
    world.tell(ReplayNote::Stop(subscriber(OTHER, 0)));
    assert_eq!(world.remote(), ["applied 1"], "the end of a subscription ends its replay");
}

#[test]
fn room_that_was_reserved_ahead_is_released_if_the_topic_has_some() {
    let mut world = World::new(1, Config::default());
    for (token, topic) in [(1, "t"), (2, "t"), (3, "u")] {
        assert!(world.owners().queues.retained.reserve_ahead(102));
        world.tell(HomeNote::Retain(message(topic, "x"), true, Some(frame(token))));
    }
    assert_eq!(world.local(), ["applied 1", "applied 2", "applied 3"]);
    assert!(world.owners().queues.retained.count() == 2 && world.owners().may_replay());
    assert!(!world.owners().queues.retained.reserve_ahead(101), "too little is left");
    assert!(world.owners().queues.retained.claim(b"t", 2), "it has room");
    assert!(world.owners().queues.retained.reserve_ahead(102));
    world.tell(HomeNote::Retain(message("t", ""), false, Some(frame(4))));
    world.tell(HomeNote::Retain(message("t", "x"), true, Some(frame(5))));
    world.owners().queues.retained.unclaim(b"t");
    assert_eq!(world.owners().queues.retained.count(), 2);
}

#[test]
fn a_stale_message_expires_at_its_time() {
    let mut world = World::new(1, Config { ttl_ms: 1000, ..Config::default() });
    world.tell(HomeNote::Stale(message("t", "x")));
    assert_eq!(world.turn.timers.next_ms(), Some(1000));
    world.turn.now_ms = 1000;
    world.owners().expire_waiting();
    assert_eq!((world.queues.stale.is_empty(), world.turn.counters.expired), (true, 1));
}

#[test]
fn a_stale_message_is_published_if_a_subscription_has_begun_meanwhile() {
    let mut world = World::new(1, Config { ttl_ms: 1000, ..Config::default() });
    world.attach(subscriber(OWN, 0), durable(b"t", false), frame(1));
    world.owners().proceed_with_next_replay();
    world.local();
    world.tell(HomeNote::Stale(message("t", "x")));
    assert_eq!(world.local(), ["publish x"]);
    world.tell(end_durable(2));
}

#[test]
fn an_unmatched_message_goes_to_a_consumer_that_has_come_meanwhile() {
    let mut world = World::new(1, Config { ttl_ms: 1000, ..Config::default() });
    world.owners().unmatched(message("#w", "early"));
    assert!(!world.queues.stale.is_empty());
    world.attach(subscriber(OWN, 0), worker(b"#w"), frame(1));
    world.owners().unmatched(message("#w", "late"));
    assert!(world.waiting(b"#w") >= 1);
    assert_eq!(world.turn.counters.unmatched, 0);
}

#[test]
fn without_a_ttl_a_message_without_subscriber_is_only_counted() {
    let mut world = World::new(1, Config { ttl_ms: 0, ..Config::default() });
    world.tell(HomeNote::Stale(message("t", "x")));
    assert_eq!((world.queues.stale.is_empty(), world.turn.counters.unmatched), (true, 1));
}

#[test]
fn a_returned_message_that_has_expired_is_not_kept() {
    let mut world = World::new(1, Config { ttl_ms: 1000, ..Config::default() });
    world.turn.now_ms = 10;
    let mut late = message("t", "x");
    late.expires_ms = 5;
    world.tell(HomeNote::Stale(late));
    assert_eq!((world.queues.stale.is_empty(), world.turn.counters.expired), (true, 1));
}

#[test]
fn of_too_many_stale_messages_the_oldest_is_dropped() {
    let mut world = World::new(1, Config { ttl_ms: 1000, max_stale_queue_size: 2, ..Config::default() });
    for body in ["a", "b", "c"] {
        world.tell(HomeNote::Stale(message("t", body)));
    }
    assert_eq!(world.turn.counters.dropped, 1);
    let newcomer = Newcomer { key: subscriber(OWN, 0).key, without: 0 };
    world.owners().await_replay(b"t", OWN, newcomer, None);
    world.tell(ReplayNote::More(subscriber(OWN, 0)));
    while world.owners().proceed_with_next_replay() {}
    let told = world.local();
    assert_eq!(told[told.len() - 3..], ["replayed b", "replayed c", "replay end"], "{told:?}");
    assert!(!told.contains(&"replayed a".to_owned()));
    world.tell(HomeNote::DropStale);
    assert_eq!(world.turn.counters.dropped, 1, "there is none left to drop");
}

#[test]
fn a_pattern_is_replayed_what_it_matches_window_by_window() {
    let mut world = World::new(1, Config { ttl_ms: 1000, ..Config::default() });
    for at in 0..100 {
        world.tell(HomeNote::Stale(message(&format!("a.{at}"), "x")));
        world.tell(HomeNote::Stale(message(&format!("b.{at}"), "x")));
    }
    let newcomer = Newcomer { key: subscriber(OWN, 0).key, without: 0 };
    world.owners().await_replay(b"a.*", OWN, newcomer, Some(frame(1)));
    let mut windows = Vec::new();
    loop {
        world.tell(ReplayNote::More(subscriber(OWN, 0)));
        while world.owners().proceed_with_next_replay() {}
        let told = world.local();
        windows.push(told.iter().filter(|it| it.starts_with("replayed")).count());
        if told.last().is_some_and(|last| last == "replay end") {
            assert!(told.contains(&"applied 1".to_owned()), "{told:?}");
            break;
        }
    }
    assert_eq!(windows.iter().sum::<usize>(), 100, "{windows:?}");
    assert!(windows.len() > 1, "{windows:?}");
}

#[test]
fn a_subscription_without_credit_is_confirmed_before_the_end_of_its_replay() {
    let mut world = World::new(1, Config { ttl_ms: 1000, ..Config::default() });
    (0..100).for_each(|_| world.tell(HomeNote::Stale(message("t", "x"))));
    let newcomer = Newcomer { key: subscriber(OWN, 0).key, without: 0 };
    world.owners().await_replay(b"t", OWN, newcomer, Some(frame(1)));
    world.tell(ReplayNote::More(subscriber(OWN, 0)));
    while world.owners().proceed_with_next_replay() {}
    let told = world.local();
    assert!(told.contains(&"replayed x".to_owned()) && !told.contains(&"applied 1".to_owned()), "{told:?}");
    world.tell(ReplayNote::Unacked(subscriber(OWN, 0)));
    assert_eq!(world.local(), ["applied 1"]);
    world.tell(ReplayNote::Stop(subscriber(OWN, 0)));
    assert!(world.local().is_empty() && !world.owners().proceed_with_next_replay());
}
