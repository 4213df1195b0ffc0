//! Compares the router with a plain list of subscriptions.

use proptest::prelude::*;
use stompica_proto::Version;

use super::group::Framing;
use stompica_proto::error::Code;
use stompica_proto::session::AckMode;

use super::group::{Place, SubscriptionIndex, WireFormat};
use super::*;
use crate::collections::keyed::Key;
use crate::ids::ConnKey;
use crate::ids::ShardId;

fn wire_format(number: u8) -> WireFormat {
    let framing = if number & 1 == 0 { Framing::Stomp } else { Framing::WebSocket };
    WireFormat { framing, version: Version::ALL[usize::from(number / 2 % 3)], without: 0 }
}

fn text(bytes: &[u8]) -> Arc<Text> {
    Arc::new(bytes.into())
}

fn key(index: u32) -> ConnKey {
    ConnKey { index, generation: 0 }
}

/// The subscriptions that a name reaches, sorted.
fn receivers(router: &mut Router, name: &str) -> Vec<SubscriptionIndex> {
    let destination = router.destination(name.as_bytes()).expect("a topic");
    let (mut found, mut groups) = (Vec::new(), Vec::new());
    router.groups_of(destination, &mut groups);
    for group in &groups {
        found.extend(router.groups[*group as usize].members.iter().map(|member| member.subscription.index));
    }
    let reach = router.reach(destination);
    assert_eq!((reach.filters, reach.groups), (router.filter_count(destination), groups.len()));
    assert_eq!(reach.group, groups.last().copied());
    found.sort_unstable();
    found
}

fn router() -> Router {
    Router::new(&Config::default(), crate::door::HashState::default())
}

proptest! {
    #[test]
    fn the_router_agrees_with_a_list(
        steps in prop::collection::vec((0..3_u8, "(/[ab]){1,2}(/[*>#]|/a\\*)?", 0..6_u8, 0..3_u8, any::<prop::sample::Index>()), 1..60),
    ) {
        let mut router = router();
        let mut live: Vec<(SubscriptionIndex, String)> = Vec::new();
        for (step, name, kind, id, pick) in steps {
            if step == 0 && !live.is_empty() {
                let (index, name) = live.swap_remove(pick.index(live.len()));
                let others = live.iter().any(|(_, other)| *other == name);
                prop_assert_eq!(router.unsubscribe(index).1.is_none(), others);
            } else {
                let id = format!("{id}");
                let target_queue = (kind == 5).then_some(Key { index: 0, generation: 0 });
                let who = (key(0), Some(id.as_bytes()), AckMode::Auto);
                let (Key { index, .. }, change) =
                    router.subscribe(name.as_bytes(), who, wire_format(kind), target_queue, Some(0)).expect("a legal name");
                let first = !live.iter().any(|(_, other)| *other == name);
                prop_assert_eq!(change == InterestChange::Changed, first);
                live.push((index, name));
            }
            for name in ["/a", "/a/b", "/b/a/a", "/a/ab", "/c"] {
                let mut expected: Vec<SubscriptionIndex> = live
                    .iter()
                    .filter(|(_, subscribed)| {
                        match Pattern::parse(subscribed.as_bytes(), Wildcards::Ancestor, Compat::None).expect("legal") {
                            Some(pattern) => pattern.matches(name.as_bytes()),
                            None => subscribed == name,
                        }
                    })
                    .map(|(index, _)| *index)
                    .collect();
                expected.sort_unstable();
                prop_assert_eq!(receivers(&mut router, name), expected, "{}", name);
            }
        }
        for (index, _) in live {
            router.unsubscribe(index);
        }
        prop_assert!(router.filters.is_empty() && router.groups.is_empty() && router.group_index.is_empty());
        prop_assert!(router.patterns.is_empty());
    }
}

#[test]
fn equal_subscriptions_share_a_group_unless_they_have_a_queue() {
    let mut router = router();
    let mut add = |id: &[u8], target_queue, number| {
        let who = (key(0), Some(id), AckMode::Auto);
        let (found, _) =
            router.subscribe(b"/t", who, wire_format(number), target_queue, Some(0)).expect("a topic");
        match router.subscriptions[found.index as usize].place {
            Place::Topic { group, .. } => group,
            Place::Queue => panic!("a subscription to a topic"),
        }
    };
    let queue = Some(Key { index: 0, generation: 0 });
    let first = add(b"0", None, 4);
    assert_eq!(add(b"0", None, 4), first);
    assert_ne!(add(b"1", None, 4), first, "another id");
    assert_ne!(add(b"0", None, 5), first, "another framing");
    assert_ne!(add(b"0", None, 2), first, "another version");
    let own = add(b"0", queue, 4);
    assert_ne!(own, first);
    assert_ne!(add(b"0", queue, 4), own);
}

#[test]
fn a_removed_subscription_is_not_found_in_its_slot() {
    let mut router = router();
    let first = router.subscribe_queue(key(0), b"0", AckMode::Client);
    router.unsubscribe(first.index);
    let second = router.subscribe_queue(key(0), b"0", AckMode::Client);
    assert_eq!(first.index, second.index);
    assert!(router.subscription_mut(first).is_none() && router.subscription_mut(second).is_some());
}

#[test]
fn interest_of_other_shards_is_part_of_a_destination() {
    let mut router = router();
    router.set_interest(&text(b"/t/*"), ShardId(3), true);
    router.set_interest(&text(b"/t/a"), ShardId(1), true);
    let destination = router.destination(b"/t/a").expect("a topic");
    assert_eq!(router.reach(destination).remote, 0b1010);
    router.set_full(b"/t/*", ShardId(3), Holdup::Outbox, true);
    assert!(router.reach(destination).is_full && !router.has_growing_queue(destination));
    router.set_full(b"/t/*", ShardId(3), Holdup::GrowingQueue, true);
    assert!(router.has_growing_queue(destination));
    router.set_interest(&text(b"/t/*"), ShardId(3), false);
    let destination = router.destination(b"/t/a").expect("a topic");
    assert!(!router.reach(destination).is_full && !router.has_growing_queue(destination));
    assert_eq!(router.reach(destination).remote, 0b0010);
    router.set_interest(&text(b"/t/a"), ShardId(1), false);
    assert!(router.filters.is_empty());
}

#[test]
fn the_receivers_of_a_name_and_of_a_pattern_are_added() {
    let mut router = router();
    let who = (key(0), None, AckMode::Auto);
    let (found, _) = router.subscribe(b"/t/a", who, wire_format(0), None, Some(0)).expect("a topic");
    router.set_interest(&text(b"/t/*"), ShardId(1), true);
    let destination = router.destination(b"/t/a").expect("a topic");
    let exact = router.subscriptions[found.index as usize].filter_index().expect("a topic's") as usize;
    router.filters[exact].full_local = 2;
    let reach = router.reach(destination);
    assert_eq!((reach.filters, reach.groups, reach.full, reach.remote), (2, 1, 2, 0b10));
    let groups = &router.filters[exact].groups;
    assert_eq!(
        (reach.group, reach.is_full),
        (groups.first().copied(), true),
        "the pattern has no group here"
    );
}

#[test]
fn messages_to_a_queue_reach_only_its_home() {
    let mut router = router();
    let mut destination = router.destination(b"/queue/a").expect("a queue");
    destination.home = ShardId(1);
    assert_eq!(router.reach_of_any(destination, ShardId(1)), reach::Reach::default());
    assert_eq!(router.reach_of_any(destination, ShardId(0)).remote, 0b10);
}

/// The reports to other shards while `count` subscriptions begin and end, and the number of subscriptions at each.
fn reports_of(count: u32, id: impl Fn(u32) -> String) -> Vec<(usize, u32)> {
    let mut router = router();
    let (mut keys, mut told) = (Vec::new(), Vec::new());
    for number in 0..count {
        let id = id(number);
        let who = (key(number), Some(id.as_bytes()), AckMode::Auto);
        let (found, _) = router.subscribe(b"/t", who, wire_format(0), None, Some(0)).expect("a topic");
        keys.push(found);
        told.extend(router.fan_out_size_to_tell(0).map(|fan_out_size| (keys.len(), fan_out_size)));
    }
    while let Some(found) = keys.pop() {
        router.unsubscribe(found.index);
        told.extend(router.fan_out_size_to_tell(0).map(|fan_out_size| (keys.len(), fan_out_size)));
    }
    told
}

#[test]
fn the_work_of_a_message_is_reported_when_it_has_changed_much() {
    let groups = reports_of(1000, |number| number.to_string());
    let coming = [(16, 16), (17, 32), (33, 64), (64, 128), (128, 256), (254, 512), (506, 1024)];
    assert_eq!(groups, [&coming[..], &[(252, 256), (63, 64), (15, 0)]].concat());
    let one_group = reports_of(5000, |_| "0".to_owned());
    let coming = [(960, 16), (1024, 32), (2048, 64), (4096, 128)];
    assert_eq!(one_group, [&coming[..], &[(1983, 32), (447, 0)]].concat());
    assert_eq!(reports_of(15, |number| number.to_string()), []);
}

#[test]
fn the_work_at_another_shard_is_forgotten_with_its_interest() {
    let mut router = router();
    router.set_fan_out_size(b"/t", ShardId(1), 512); // before its interest
    for (name, shard) in [(&b"/t"[..], 1), (b"/t", 2), (b"/*", 2)] {
        router.set_interest(&text(name), ShardId(shard), true);
    }
    let fan_out_size = |router: &mut Router| {
        let destination = router.destination(b"/t").expect("a name");
        router.reach(destination).fan_out_size
    };
    assert_eq!(fan_out_size(&mut router), 0);
    router.set_fan_out_size(b"/t", ShardId(1), 512);
    router.set_fan_out_size(b"/t", ShardId(2), 256);
    router.set_fan_out_size(b"/*", ShardId(2), 1024);
    assert_eq!(fan_out_size(&mut router), 512 + 1024);
    router.set_fan_out_size(b"/t", ShardId(1), 0);
    assert_eq!(fan_out_size(&mut router), 256 + 1024);
    router.set_interest(&text(b"/*"), ShardId(2), false);
    assert_eq!(fan_out_size(&mut router), 256);
    router.set_interest(&text(b"/t"), ShardId(2), false);
    router.set_interest(&text(b"/t"), ShardId(2), true);
    assert_eq!(fan_out_size(&mut router), 0);
}

#[test]
fn the_cache_of_names_without_subscriptions_is_bounded() {
    let mut router = router();
    let long = "x".repeat(1000);
    for number in 0..50_000 {
        router.destination(format!("/t/{number}/{long}").as_bytes()).expect("a topic");
    }
    assert!(router.has_to_trim() && router.take_visited() >= 50_000);
    while router.has_to_trim() {
        router.trim();
    }
    assert!((1..NAMES_BYTES_MAX / 1000).contains(&router.cached()));
}

#[test]
fn a_forgotten_name_has_no_receivers() {
    let config = Config { memory_limit: 0, ..Config::default() };
    let mut router = Router::new(&config, crate::door::HashState::default());
    let who = (key(0), None, AckMode::Auto);
    router.subscribe(b"/t/*", who, wire_format(0), None, Some(0)).expect("a pattern");
    router.set_interest(&text(b"/t/>"), ShardId(1), true);
    let kept = router.destination(b"/t/a").expect("a topic");
    assert_eq!((router.filter_count(kept), router.reach(kept).remote), (2, 2));
    router.trim();
    assert_eq!(
        (router.filter_count(kept), router.reach(kept).remote, router.reach(kept).is_full),
        (0, 0, false)
    );
    assert_eq!((router.reach(kept).filters, router.queue_of(kept)), (0, None));
    router.destination(b"/t/b").expect("a topic");
    assert_eq!(router.filter_count(kept), 0, "another name is in its slot");
}

#[test]
fn a_name_that_was_resolved_before_patterns_changed_has_no_receivers() {
    let mut router = router();
    let who = (key(0), None, AckMode::Auto);
    let (pattern, _) = router.subscribe(b"/t/*", who, wire_format(0), None, Some(0)).expect("a pattern");
    let before = router.destination(b"/t/a").expect("a topic");
    router.unsubscribe(pattern.index);
    assert_eq!((router.reach(before).filters, router.reach(before).remote), (0, 0));
}

#[test]
fn the_last_name_is_resolved_again_after_patterns_changed() {
    let mut router = router();
    let destination = router.destination(b"/t/a").expect("a topic");
    assert_eq!(router.last_destination(b"/t/a"), Some(destination));
    assert_eq!(router.last_destination(b"/t/b"), None);
    let who = (key(0), None, AckMode::Auto);
    let (pattern, _) = router.subscribe(b"/t/*", who, wire_format(0), None, Some(0)).expect("a pattern");
    assert_eq!(router.last_destination(b"/t/a"), None, "the pattern may match it");
    assert_eq!(receivers(&mut router, "/t/a"), [pattern.index]);
    assert_eq!(router.last_destination(b"/t/a"), Some(destination));
}

#[test]
fn a_change_of_patterns_costs_each_name_a_few_steps_regardless_of_other_subscriptions() {
    let mut router = router();
    for number in 0..9_990 {
        let name = format!("/topic/p{number}*");
        router.set_interest(&text(name.as_bytes()), ShardId(1), true);
    }
    router.destination(b"/topic/a").expect("a topic");
    router.take_visited();
    for _ in 0..100 {
        router.set_interest(&text(b"/topic/z*"), ShardId(1), true);
        router.destination(b"/topic/a").expect("a topic");
        router.set_interest(&text(b"/topic/z*"), ShardId(1), false);
        router.destination(b"/topic/a").expect("a topic");
    }
    let visited = router.take_visited();
    assert!(visited <= 200 * 10, "{visited} steps for 200 look-ups");
}

#[test]
fn destinations_are_counted_against_their_limit() {
    let mut router =
        Router::new(&Config { max_destinations: 1, ..Config::default() }, crate::door::HashState::default());
    let mut add = |name: &[u8], queues| {
        router
            .subscribe(name, (key(0), None, AckMode::Auto), wire_format(0), None, queues)
            .map(|(found, _)| found)
    };
    add(b"/a", Some(0)).expect("the first");
    add(b"/a", Some(1)).expect("the same again");
    assert_eq!(add(b"/b", Some(0)).expect_err("one more").code, Code::DestinationCount);
}
