//! What a subscription to topics may lose because it reads slowly.

use stompica_broker::config::SlowConsumer;

use crate::events::{Message, Subscription};
use crate::options::Options;

/// More than the headers of a message take, in bytes.
const HEADERS_BYTES: u64 = 600;
/// No run fills a good part of so much memory with few messages.
pub const LARGE_MEMORY: u64 = 64 << 20;
/// Memory may be short once this share of it was sent: each shard has a copy, and what waits is encoded, too.
const SHORT_SHARE: u64 = 64;

/// The policies of the broker and of its subscriptions.
#[derive(Debug, Default)]
pub struct Slowness {
    /// By the setting `slow_consumer`, every subscription loses messages, or its connection.
    drops: bool,
    disconnects: bool,
    outbox_limit: u64,
    /// Once so much was sent, the largest queues may be halved, however little waits in each.
    short_bytes: u64,
    /// No more bytes can wait for one subscription: each message may wait twice, as a last value and as a live one.
    sent_bytes: u64,
}

impl Slowness {
    /// Expects what the settings promise.
    #[must_use]
    pub fn new(options: &Options) -> Self {
        let config = &options.config;
        // While memory is short, less counts as full.
        let is_small = config.memory_limit < LARGE_MEMORY;
        let limit = if is_small { config.outbox_limit.min(64 << 10) } else { config.outbox_limit };
        Slowness {
            drops: is_lossy(config.slow_consumer),
            disconnects: config.slow_consumer == SlowConsumer::Disconnect,
            outbox_limit: limit as u64,
            short_bytes: config.memory_limit / SHORT_SHARE,
            sent_bytes: 0,
        }
    }

    /// Notes that a message was sent.
    pub fn send(&mut self, message: &Message) {
        let bytes = (message.body_len + message.header.len()) as u64 + HEADERS_BYTES;
        self.sent_bytes += 2 * bytes;
    }

    /// Whether a subscription may lose messages. With the policy `disconnect` it loses its connection, too.
    #[must_use]
    pub fn drops(&self, subscription: &Subscription) -> bool {
        let may_lose = self.sent_bytes >= self.outbox_limit.min(self.short_bytes);
        self.drops || (subscription.terms.policy.is_some_and(is_lossy) && may_lose)
    }

    /// Whether the broker may forget what a subscription has not acknowledged.
    #[must_use]
    pub fn forgets(&self, subscription: &Subscription) -> bool {
        self.drops(subscription) && self.sent_bytes >= self.short_bytes
    }

    /// Whether it is told of what it loses: by a number, and not by the end of its connection.
    #[must_use]
    pub fn tells(&self, subscription: &Subscription) -> bool {
        !self.disconnects && subscription.terms.policy != Some(SlowConsumer::Disconnect)
    }
}

/// Whether messages are dropped by a policy while the connection stays.
#[must_use]
pub fn is_lossy(policy: SlowConsumer) -> bool {
    matches!(policy, SlowConsumer::DropOldest | SlowConsumer::DropNewest)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::checkers::tests::message;
    use crate::events::{AckMode, Terms};

    fn with(policy: Option<SlowConsumer>) -> Subscription {
        let (destination, ack) = ("/topic/a".to_owned(), AckMode::Auto);
        let terms = Terms { policy, ..Terms::default() };
        Subscription { id: 1, destination, ack, prefetch: None, terms, durable: None }
    }

    fn slowness(server: SlowConsumer) -> Slowness {
        let mut options = Options::new(1, 1);
        (options.config.slow_consumer, options.config.outbox_limit) = (server, 5_000);
        Slowness::new(&options)
    }

    #[test]
    fn a_policy_of_its_own_drops_no_more_than_what_can_wait() {
        let mut slowness = slowness(SlowConsumer::Block(Duration::from_secs(1)));
        let [oldest, disconnect] =
            [SlowConsumer::DropOldest, SlowConsumer::Disconnect].map(|it| with(Some(it)));
        assert!(!slowness.drops(&oldest));
        (0..5).for_each(|id| slowness.send(&message(id, "/topic/a")));
        assert!(slowness.drops(&oldest) && slowness.tells(&oldest));
        assert!(!slowness.drops(&disconnect) && !slowness.tells(&disconnect));
        assert!(!slowness.drops(&with(None)));
    }

    #[test]
    fn what_has_left_its_queue_is_subject_to_the_policy_of_the_broker() {
        let oldest = with(Some(SlowConsumer::DropOldest));
        assert!(slowness(SlowConsumer::DropNewest).drops(&oldest));
        assert!(!slowness(SlowConsumer::Disconnect).tells(&oldest));
    }
}
