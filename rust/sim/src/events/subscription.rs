//! Subscriptions as clients request them.

use std::time::Duration;

use stompica_broker::config::SlowConsumer;

use super::{SubscriptionId, is_queue};

/// The mode in which a subscription acknowledges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AckMode {
    /// The broker considers a message consumed once it is written.
    Auto,
    /// An ACK covers all earlier messages of the subscription.
    Client,
    /// An ACK covers one message.
    Individual,
}

impl AckMode {
    /// The value of the header `ack`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            AckMode::Auto => "auto",
            AckMode::Client => "client",
            AckMode::Individual => "client-individual",
        }
    }
}

/// A subscription as the client requested it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subscription {
    /// Its id.
    pub id: SubscriptionId,
    /// A topic, a queue or a pattern.
    pub destination: String,
    /// The ack mode.
    pub ack: AckMode,
    /// The largest number of unacknowledged messages.
    pub prefetch: Option<u64>,
    /// What else it asks for.
    pub terms: Terms,
    /// The durable subscription that it creates or resumes.
    pub durable: Option<Durable>,
}

/// The beginnings of topics, behind a slash.
const COPIED: [&str; 3] = ["topic/", "stale/", "last/"];

impl Subscription {
    /// Whether messages of topics wait for it in a queue of its own from the beginning, where they may be paged out.
    #[must_use]
    pub fn has_own_queue(&self) -> bool {
        self.ack != AckMode::Auto || self.terms.policy.is_some()
    }

    /// The store from which it takes messages; `None`: it gets copies of its own.
    #[must_use]
    pub fn store(&self) -> Option<Store> {
        let dead = self.destination.strip_prefix("/queue/dlq/");
        match &self.durable {
            Some(durable) => Some(Store::Durable(durable.number)),
            // Copies of one message may become several dead letters of topics.
            None if dead.is_some_and(|name| COPIED.iter().any(|start| name.starts_with(start))) => None,
            None if dead.is_some() => Some(Store::DeadLetters),
            None => is_queue(&self.destination).then_some(Store::Queues),
        }
    }
}

/// What holds messages until they are acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Store {
    /// All queues: a message is in one of them.
    Queues,
    /// All dead-letter queues of queues.
    DeadLetters,
    /// A durable subscription.
    Durable(usize),
}

/// The durable subscription that a SUBSCRIBE asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Durable {
    /// Its number in the options.
    pub number: usize,
    /// Whether others may share it.
    pub is_shared: bool,
    /// Whether a RECEIPT was requested.
    pub has_receipt: bool,
}

/// Rare options of a subscription; `None`: not given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Terms {
    /// `consumer-window-size`: the largest number of unacknowledged bytes.
    pub window: Option<u64>,
    /// `max-deliveries`.
    pub max_deliveries: Option<u64>,
    /// `redelivery-delay`.
    pub delay: Option<Duration>,
    /// `slow-consumer`.
    pub policy: Option<SlowConsumer>,
}
