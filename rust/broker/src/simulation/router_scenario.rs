//! Changes of a router encoded as bytes: subscriptions, interest and full outboxes are added and removed, names are
//! resolved and trimmed. After each step, every name must have the receivers that a plain list of the subscriptions
//! gives it.

use std::sync::Arc;

use stompica_proto::session::AckMode;
use stompica_proto::{Version, error::Code};

use crate::config::{Compat, Config, Wildcards};
use crate::destination::Pattern;
use crate::ids::{ConnKey, ShardId};
use crate::router::group::{Framing, SubscriptionIndex, WireFormat};
use crate::router::{Holdup, InterestChange, Router};

const STEPS_MAX: usize = 300;
const SEGMENTS: [&str; 10] = ["/a", "/b", ".a", "/ab", "/", "/*", "/a*", "/>", "/#", "*"];
const HEADS: [&str; 5] = ["", "/topic", "/queue", "#w", "/temp-topic/"];
const OTHERS: [ShardId; 2] = [ShardId(1), ShardId(2)];

/// The expected state of the router, as lists.
#[derive(Default)]
struct Model {
    local: Vec<(SubscriptionIndex, String)>,
    remote: Vec<(ShardId, String)>,
    full: Vec<(ShardId, String)>,
    names: Vec<String>,
}

struct Scenario<'a> {
    bytes: std::slice::Iter<'a, u8>,
    config: Config,
    router: Router,
    model: Model,
}

/// Runs the scenario that `input` encodes.
///
/// # Panics
/// If the router disagrees with the lists.
pub fn run(input: &[u8]) {
    let mut bytes = input.iter();
    let kind = bytes.next().copied().unwrap_or_default();
    let config = Config {
        writers: 3,
        wildcards: if kind & 1 == 0 { Wildcards::Ancestor } else { Wildcards::Segment },
        compat: if kind & 6 == 6 { Compat::Stompica } else { Compat::None },
        memory_limit: if kind & 8 == 0 { 1 << 30 } else { 0 },
        ..Config::default()
    };
    let router = Router::new(&config, crate::door::HashState::default());
    let mut scenario = Scenario { bytes, config, router, model: Model::default() };
    for _ in 0..STEPS_MAX {
        if scenario.bytes.len() == 0 {
            break;
        }
        scenario.step();
        scenario.check();
    }
    scenario.end();
}

impl Scenario<'_> {
    fn next(&mut self) -> usize {
        usize::from(self.bytes.next().copied().unwrap_or_default())
    }

    fn name(&mut self) -> String {
        let mut name = HEADS[self.next() % HEADS.len()].to_owned();
        for _ in 0..=self.next() % 3 {
            name.push_str(SEGMENTS[self.next() % SEGMENTS.len()]);
        }
        name
    }

    fn pattern<'a>(&self, name: &'a str) -> Result<Option<Pattern<'a>>, Code> {
        Pattern::parse(name.as_bytes(), self.config.wildcards, self.config.compat).map_err(|error| error.code)
    }

    fn step(&mut self) {
        match self.next() % 8 {
            0..=2 => self.subscribe(),
            3 if !self.model.local.is_empty() => {
                let at = self.next() % self.model.local.len();
                let (index, name) = self.model.local.swap_remove(at);
                let others = self.model.local.iter().any(|(_, other)| *other == name);
                assert_eq!(
                    self.router.unsubscribe(index).1.is_none(),
                    others,
                    "{name}: the last subscription was removed"
                );
            }
            4 => self.set_interest(),
            5 => self.set_full(),
            6 => self.router.trim(),
            _ => {
                let name = self.name();
                let found = self.router.destination(name.as_bytes());
                if found.is_ok() && !self.model.names.contains(&name) {
                    self.model.names.push(name);
                }
            }
        }
    }

    fn subscribe(&mut self) {
        let name = self.name();
        let number = self.next();
        let framing = if number & 1 == 0 { Framing::Stomp } else { Framing::WebSocket };
        let wire_format = WireFormat { framing, version: Version::ALL[number / 2 % 3], without: 0 };
        let id = [b'0' + (number / 8 % 3) as u8];
        let who = (ConnKey { index: 0, generation: 0 }, Some(&id[..]), AckMode::Auto);
        let is_legal = self.pattern(&name).is_ok();
        match self.router.subscribe(name.as_bytes(), who, wire_format, None, Some(0)) {
            Ok((key, change)) => {
                let first = !self.model.local.iter().any(|(_, other)| *other == name);
                assert_eq!(
                    change == InterestChange::Changed,
                    first,
                    "{name}: the first subscription was added"
                );
                self.model.local.push((key.index, name));
            }
            Err(error) => assert!(!is_legal, "{name}: {error:?}"),
        }
    }

    /// Changes the interest of another shard, which has checked the name.
    fn set_interest(&mut self) {
        let (name, shard, interested) = (self.name(), OTHERS[self.next() % 2], self.next() % 2 == 1);
        if self.pattern(&name).is_err() {
            return;
        }
        self.router.set_interest(&Arc::new(name.as_bytes().into()), shard, interested);
        let entry = (shard, name);
        self.model.full.retain(|one| interested || *one != entry);
        self.model.remote.retain(|one| *one != entry);
        if interested {
            self.model.remote.push(entry);
        }
    }

    /// Another shard reports full outboxes of receivers of a filter, or that they have room again.
    fn set_full(&mut self) {
        let (at, full) = (self.next(), self.next() % 2 == 1);
        let Some(entry) = self.model.remote.get(at % self.model.remote.len().max(1)).cloned() else { return };
        self.router.set_full(entry.1.as_bytes(), entry.0, Holdup::Outbox, full);
        self.model.full.retain(|one| *one != entry);
        if full {
            self.model.full.push(entry);
        }
    }

    fn matches(&self, subscribed: &str, name: &str) -> bool {
        match self.pattern(subscribed).expect("only legal names are kept") {
            Some(pattern) => {
                pattern.matches(name.as_bytes())
                    && self.router.kind(subscribed.as_bytes()) == self.router.kind(name.as_bytes())
            }
            None => subscribed == name,
        }
    }

    /// Checks that every name that was ever resolved has the receivers that the lists give it.
    fn check(&mut self) {
        for name in std::mem::take(&mut self.model.names) {
            let destination = self.router.destination(name.as_bytes()).expect("it was resolved before");
            let (mut found, mut groups) = (Vec::new(), Vec::new());
            self.router.groups_of(destination, &mut groups);
            for group in groups {
                found.extend(
                    self.router.groups[group as usize].members.iter().map(|one| one.subscription.index),
                );
            }
            found.sort_unstable();
            let local = self.model.local.iter().filter(|(_, subscribed)| self.matches(subscribed, &name));
            let mut expected: Vec<SubscriptionIndex> = local.map(|(index, _)| *index).collect();
            expected.sort_unstable();
            assert_eq!(found, expected, "{name}: local subscriptions");
            let remote = self.model.remote.iter().filter(|(_, subscribed)| self.matches(subscribed, &name));
            let remote = remote.fold(0, |shards, (shard, _)| shards | shard.bit());
            assert_eq!(self.router.reach(destination).remote, remote, "{name}: other shards");
            let full = self.model.full.iter().any(|(_, subscribed)| self.matches(subscribed, &name));
            assert_eq!(self.router.reach(destination).is_full, full, "{name}: full");
            self.model.names.push(name);
        }
    }

    /// Removes everything; no filter must remain.
    fn end(mut self) {
        for (index, _) in std::mem::take(&mut self.model.local) {
            self.router.unsubscribe(index);
        }
        for (shard, name) in std::mem::take(&mut self.model.remote) {
            self.router.set_interest(&Arc::new(name.as_bytes().into()), shard, false);
        }
        assert!(self.router.filters.is_empty() && self.router.groups.is_empty());
        assert!(self.router.subscriptions.is_empty());
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::test_runner::Config as Runs;

    proptest! {
        #![proptest_config(Runs { cases: 100, failure_persistence: None, ..Runs::default() })]

        #[test]
        fn the_router_agrees_with_lists(input in prop::collection::vec(any::<u8>(), 0..300)) {
            super::run(&input);
        }
    }
}
