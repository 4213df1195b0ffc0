//! Subscriptions that ask for a policy of their own, which applies while they read slowly.

use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};
use stompica_broker::config::SlowConsumer;

use super::{Options, one_of};

/// The number with which a seed draws this. With it, the seeds that were kept before there were such policies draw none.
const OWN: u64 = 0x51_0005_681b;

/// The use of the header `slow-consumer`. In most seeds nobody gives it.
#[derive(Clone, Debug, Default)]
pub struct Policies {
    /// Percentage of the subscriptions to topics with the header.
    pub percent: u32,
    /// What they ask for.
    pub asked: Vec<SlowConsumer>,
}

/// Changes some of the runs: in these, messages wait in the queues of single subscriptions.
pub(super) fn draw(options: &mut Options) {
    let random = &mut SmallRng::seed_from_u64(options.seed ^ OWN);
    if !random.random_ratio(1, 5) || options.workers.percent > 0 || options.timing.is_late {
        return;
    }
    let config = &mut options.config;
    let mut asked = vec![SlowConsumer::DropOldest, SlowConsumer::DropNewest, SlowConsumer::Disconnect];
    asked.retain(|_| random.random_ratio(1, 2));
    if matches!(config.slow_consumer, SlowConsumer::Block(_)) && random.random_ratio(1, 3) {
        asked.push(SlowConsumer::Block(Duration::from_millis(one_of(random, &[300, 3_000]))));
    }
    if asked.is_empty() {
        asked.push(SlowConsumer::DropOldest);
    }
    options.policies = Policies { percent: one_of(random, &[30, 100]), asked };
    if options.rogues.pace == 0 && random.random_ratio(1, 2) {
        // Little room in the socket and much in the queue, and subscriptions that end meanwhile.
        (options.buffer_bytes, options.body_max) = (one_of(random, &[1_000, 64_000]), 70_000);
        config.outbox_limit = one_of(random, &[20_000, 1 << 20, 32 << 20, 32 << 20]);
        config.memory_limit = 64 << 20;
        if config.slow_consumer != SlowConsumer::Disconnect {
            config.slow_consumer = SlowConsumer::Block(Duration::from_secs(30)); // others lose messages in any case
        }
        if options.retained.percent == 0 && options.topics.is_empty() {
            options.topics.push("/topic/0".to_owned());
        }
        options.topics.truncate(2);
        options.queues.truncate(1);
        (options.receipts, options.expiring) = (100, 0);
        options.pressure.burst_max = options.pressure.burst_max.max(4);
        let weights = &mut options.weights;
        (weights.unsubscribe, weights.stall) = (weights.unsubscribe.max(2), weights.stall.max(2));
        (weights.disconnect, weights.send) = (weights.disconnect.max(1), 40);
    }
}
