//! Subscriptions to topics that acknowledge little, until memory is short.

use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};
use stompica_broker::config::SlowConsumer;

use super::acking::Acking;
use super::{Keeping, Options, Pace, Private, Tree, one_of};

/// The number with which a seed draws this. With it, the seeds that were kept before draw none.
const OWN: u64 = 0x0c13_a25a_0000_039c;

/// Changes some of the runs, but none beside clients that expect their answers in time.
pub(super) fn draw(options: &mut Options) {
    let random = &mut SmallRng::seed_from_u64(options.seed ^ OWN);
    if options.has_special_clients() || !random.random_ratio(1, 10) {
        return;
    }
    let block = |ms| SlowConsumer::Block(Duration::from_millis(ms));
    let policies =
        [block(300), block(3_000), block(3_000), SlowConsumer::DropOldest, SlowConsumer::DropNewest];
    let config = &mut options.config;
    (config.memory_limit, config.outbox_limit) = (one_of(random, &[200_000, 500_000]), 1 << 20);
    (config.slow_consumer, config.writers) = (one_of(random, &policies), config.writers.min(4));
    config.publish_timeout = Duration::from_secs(one_of(random, &[1, 30]));
    (options.tree, options.private, options.keeping) =
        (Tree::default(), Private::default(), Keeping::default());
    options.topics = ["/topic/0", "/topic/1"].map(str::to_owned).to_vec();
    options.queues.truncate(1);
    options.acking = Acking { percent: 100, nack: one_of(random, &[0, 0, 5]) };
    (options.body_max, options.expiring) = (one_of(random, &[10_000, 40_000]), one_of(random, &[0, 0, 30]));
    options.pressure.burst_max = options.pressure.burst_max.max(4);
    (options.piece_max, options.buffer_bytes) = (1 << 20, one_of(random, &[1_000, 64_000]));
    options.pause_max = Duration::from_millis(500);
    options.pace = Pace { act: 60, arrive: 40, receive: 20, turn: 60, pass: 3 };
    let weights = &mut options.weights;
    (weights.send, weights.ack, weights.subscribe) = (30, one_of(random, &[1, 6]), 6);
    (weights.unsubscribe, weights.stall) = (weights.unsubscribe.min(2), weights.stall.min(1));
    (weights.disconnect, weights.reset) = (weights.disconnect.min(1), weights.reset.min(1));
    (weights.abandon, weights.finish, weights.begin) = (0, 0, weights.begin.min(1));
}
