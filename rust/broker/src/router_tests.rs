//! Tests of the router against a plain list of subscriptions.

use proptest::prelude::*;
use stompica_proto::Version;

use super::group::Framing;
use super::*;
use crate::ids::ShardId;

fn dialect(number: u8) -> Dialect {
    let framing = if number & 1 == 0 { Framing::Stomp } else { Framing::WebSocket };
    Dialect { framing, version: Version::ALL[usize::from(number / 2 % 3)] }
}

fn key(index: u32) -> ConnKey {
    ConnKey { index, generation: 0 }
}

/// The subscriptions that a name reaches, sorted.
fn receivers(router: &mut Router, name: &str) -> Vec<SubscriptionIndex> {
    let destination = router.destination(name.as_bytes()).expect("a topic");
    let mut found = Vec::new();
    for place in 0..router.entry_count(destination) {
        let entry = router.entry_at(destination, place);
        for group in &router.entries[entry as usize].groups {
            found.extend(router.groups[*group as usize].members.iter().map(|member| member.subscription));
        }
    }
    found.sort_unstable();
    found
}

proptest! {
    #[test]
    fn the_router_agrees_with_a_list(
        steps in prop::collection::vec((0..3_u8, "(/[ab]){1,2}(/[*>#]|/a\\*)?", 0..6_u8, 0..3_u8, any::<prop::sample::Index>()), 1..60),
    ) {
        let mut router = Router::new(&Config::default());
        let mut live: Vec<(SubscriptionIndex, String)> = Vec::new();
        for (step, name, kind, id, pick) in steps {
            if step == 0 && !live.is_empty() {
                let (index, name) = live.swap_remove(pick.index(live.len()));
                let others = live.iter().any(|(_, other)| *other == name);
                prop_assert_eq!(router.unsubscribe(index).1.is_none(), others);
            } else {
                let id = format!("{id}");
                let ack = if kind == 5 { AckMode::Client } else { AckMode::Auto };
                let (index, change) = router
                    .subscribe(name.as_bytes(), key(0), Some(id.as_bytes()), ack, dialect(kind))
                    .expect("a legal name");
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
        prop_assert!(router.entries.is_empty() && router.groups.is_empty() && router.group_index.is_empty());
        prop_assert!(router.patterns.is_empty());
    }
}

#[test]
fn equal_subscriptions_share_a_group_and_client_acks_do_not() {
    let mut router = Router::new(&Config::default());
    let mut add = |id: &[u8], ack, number| {
        let (index, _) = router.subscribe(b"/t", key(0), Some(id), ack, dialect(number)).expect("a topic");
        router.subscriptions[index as usize].group
    };
    let first = add(b"0", AckMode::Auto, 4);
    assert_eq!(add(b"0", AckMode::Auto, 4), first);
    assert_ne!(add(b"1", AckMode::Auto, 4), first, "another id");
    assert_ne!(add(b"0", AckMode::Auto, 5), first, "another framing");
    assert_ne!(add(b"0", AckMode::Auto, 2), first, "another version");
    let individual = add(b"0", AckMode::Client, 4);
    assert_ne!(individual, first);
    assert_ne!(add(b"0", AckMode::Client, 4), individual);
}

#[test]
fn interest_of_other_shards_is_part_of_a_destination() {
    let mut router = Router::new(&Config::default());
    router.set_interest(b"/t/*", ShardId(3), true);
    router.set_interest(b"/t/a", ShardId(1), true);
    let destination = router.destination(b"/t/a").expect("a topic");
    assert_eq!(router.remote(destination), 0b1010);
    router.set_full(b"/t/*", ShardId(3), true);
    assert!(router.is_full(destination));
    router.set_interest(b"/t/*", ShardId(3), false);
    let destination = router.destination(b"/t/a").expect("a topic");
    assert!(!router.is_full(destination));
    assert_eq!(router.remote(destination), 0b0010);
    router.set_interest(b"/t/a", ShardId(1), false);
    assert!(router.entries.is_empty());
}

#[test]
fn names_without_subscription_are_remembered_within_a_bound() {
    let mut router = Router::new(&Config::default());
    for number in 0..CACHED_MAX + 10 {
        router.destination(format!("/t/{number}").as_bytes()).expect("a topic");
    }
    assert!(router.destinations.len() <= CACHED_MAX);
}

#[test]
fn destinations_are_counted_against_their_limit() {
    let mut router = Router::new(&Config { max_destinations: 1, ..Config::default() });
    router.subscribe(b"/a", key(0), None, AckMode::Auto, dialect(0)).expect("the first");
    router.subscribe(b"/a", key(1), None, AckMode::Auto, dialect(0)).expect("the same again");
    let error = router.subscribe(b"/b", key(0), None, AckMode::Auto, dialect(0)).expect_err("one more");
    assert_eq!(error.code, Code::DestinationCount);
}
