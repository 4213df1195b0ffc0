//! What topics keep: which durable subscriptions there are, and how clients name them.

use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};

use super::{Weights, one_of};

/// How a SUBSCRIBE asks for a durable subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// `durable:true`: the `id` is the name, and several may share it.
    Durable,
    /// `persistent:true`, which is the older form of it.
    Persistent,
    /// A header with the name, which one holder has at a time.
    Named(&'static str),
}

const DIALECTS: [Dialect; 5] = [
    Dialect::Durable,
    Dialect::Persistent,
    Dialect::Named("activemq.subscriptionName"),
    Dialect::Named("durable-subscription-name"),
    Dialect::Named("durable-subscriber-name"),
];

/// A durable subscription that clients use.
#[derive(Clone, Debug)]
pub struct DurableName {
    /// The `client-id` of the connections that can name it; `None`: those without one.
    pub scope: Option<u64>,
    /// Its name. Another scope may have the same.
    pub name: u64,
    /// A topic or a pattern.
    pub destination: String,
}

impl DurableName {
    /// Its name as the store knows it.
    #[must_use]
    pub fn stored(&self) -> String {
        // The scope is the login, which none has, and the `client-id`.
        let scope = self.scope.map_or(String::new(), |scope| format!("\n{scope}"));
        format!("durable\n{scope}\n{}", self.name)
    }
}

/// The options of this part. All is empty and 0 in a run that leaves it out.
#[derive(Clone, Debug, Default)]
pub struct Keeping {
    /// How often clients subscribe to what is kept, as a weight; 0: never.
    pub subscribe: u32,
    /// How often they end what is kept.
    pub end: u32,
    /// The durable subscriptions.
    pub durables: Vec<DurableName>,
    /// How clients ask for them.
    pub dialects: Vec<Dialect>,
    /// Percentage of requests for them that follow messages of the same client to what they keep.
    pub send_before: u32,
}

impl Keeping {
    /// What a seed expands into. Adds a topic if there is none.
    #[must_use]
    pub fn draw(seed: u64, topics: &mut Vec<String>) -> Self {
        let random = &mut SmallRng::seed_from_u64(seed ^ 0x0DDB_A115);
        if random.random_ratio(1, 2) {
            return Keeping::default();
        }
        if topics.is_empty() {
            topics.push("/topic/0".to_owned());
        }
        let scopes = one_of(random, &[&[None][..], &[Some(1)], &[None, Some(1)], &[None, Some(1), Some(2)]]);
        let count = random.random_range(1..=4);
        let durables = (0..count).map(|at: u64| DurableName {
            scope: one_of(random, scopes),
            name: FIRST_NAME + at / 2,
            destination: if random.random_ratio(1, 4) {
                "/topic/*".to_owned()
            } else {
                one_of(random, topics)
            },
        });
        let mut durables: Vec<DurableName> = durables.collect();
        durables.sort_by_key(|it| (it.scope, it.name));
        durables.dedup_by_key(|it| (it.scope, it.name));
        let dialects = DIALECTS.into_iter().filter(|_| random.random_ratio(1, 2)).collect::<Vec<_>>();
        Keeping {
            subscribe: random.random_range(1..=6),
            end: one_of(random, &[0, 1, 3]),
            durables,
            dialects: if dialects.is_empty() { DIALECTS.to_vec() } else { dialects },
            send_before: 0,
        }
    }

    /// In some of the runs, what clients send just before they create a durable subscription arrives with the request for
    /// it, and others at the subscription's home want it, too.
    pub fn draw_haste(
        &mut self,
        seed: u64,
        writers: &mut usize,
        topics: &mut Vec<String>,
        weights: &mut Weights,
    ) {
        let random = &mut SmallRng::seed_from_u64(seed ^ 0x5E4D_B4F0);
        if self.subscribe == 0 || random.random_ratio(3, 4) {
            return;
        }
        // Many names, each of which is created now and then by one client alone.
        topics.truncate(1);
        let scopes: Vec<Option<u64>> = self.durables.iter().map(|durable| durable.scope).collect();
        let durables = scopes.iter().cycle().zip(FIRST_NAME..FIRST_NAME + HASTY_NAMES);
        self.durables = durables
            .map(|(scope, name)| DurableName { scope: *scope, name, destination: topics[0].clone() })
            .collect();
        (self.send_before, self.subscribe, self.end) = (one_of(random, &[50, 100]), 6, 6);
        *writers = (*writers).max(2);
        (weights.subscribe, weights.send) = (weights.subscribe.max(3), weights.send.min(10));
    }

    /// The `client-id` of a new connection.
    pub fn scope(&self, random: &mut SmallRng) -> Option<u64> {
        if self.durables.is_empty() { None } else { one_of(random, &self.durables).scope }
    }

    /// The durable subscriptions that a connection with this `client-id` can name.
    #[must_use]
    pub fn in_scope(&self, scope: Option<u64>) -> Vec<usize> {
        (0..self.durables.len()).filter(|at| self.durables[*at].scope == scope).collect()
    }
}

/// The number of durable subscriptions in runs with haste.
const HASTY_NAMES: u64 = 16;
/// Names are numbers above those of all other subscriptions, because in one dialect they are ids.
const FIRST_NAME: u64 = 1_000_000;
