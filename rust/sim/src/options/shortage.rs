//! Clients that make the broker short of memory, or of room in outboxes, and meanwhile go on.

use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};

use super::{Options, one_of};

/// Changes some of the runs, but none beside clients that expect their answers in time.
pub(super) fn draw(options: &mut Options) {
    let random = &mut SmallRng::seed_from_u64(options.seed ^ 0x5408_7A6E);
    if options.has_special_clients() || random.random_ratio(4, 5) {
        return;
    }
    let (config, weights) = (&mut options.config, &mut options.weights);
    if random.random_ratio(1, 2) {
        // RECEIPTs that nobody reads.
        config.outbox_limit = one_of(random, &[600, 2_000]);
        (options.receipts, options.buffer_bytes) = (100, 64);
        (options.body_max, options.expiring, weights.stall) = (options.body_max.min(300), 0, 5);
        (weights.disconnect, weights.reset, weights.abandon, weights.finish) = (0, 0, 0, 0);
        (options.pace.act, options.pace.receive) = (40, 2);
    } else if options.queues.len() > 1 {
        // Queues fill the memory, and their consumers come and go, and send.
        config.memory_limit = 1 << 20;
        (config.max_queue_length, config.max_queue_bytes) = (u64::MAX, u64::MAX);
        config.publish_timeout = Duration::from_secs(30);
        (options.body_max, options.expiring, options.pressure.burst_max) = (20_000, 0, 4);
        (weights.send, weights.ack, weights.subscribe, weights.unsubscribe) = (30, 4, 10, 3);
        (weights.connect, options.clients_max) = (8, 16);
        (options.pace.act, config.writers) = (40, config.writers.max(2));
    }
}
