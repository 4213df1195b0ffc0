//! Options that bring the broker to its limits with little work. Each seed has some of them.

use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};
use stompica_broker::config::SlowConsumer;

use super::{Options, one_of};

/// How much harder the limits of the broker are.
#[derive(Clone, Debug, Default)]
pub struct Pressure {
    /// The limits of a turn are divided by this, so that short work goes over several turns.
    pub turn_divisor: usize,
    /// The largest number of messages that a client sends together.
    pub burst_max: u32,
    /// Shards whose turn comes seldom, one bit each.
    pub lazy_shards: u32,
    /// Faults last until every SEND has waited for `publish_timeout`.
    pub outlasts_patience: bool,
    /// ACKs join a transaction whenever one is open.
    pub transactional: bool,
}

impl Pressure {
    /// Draws the pressure of a run, and changes other options accordingly.
    pub(super) fn draw(options: &mut Options) {
        let random = &mut SmallRng::seed_from_u64(options.seed ^ 0x5E55_0BE5);
        let (config, weights) = (&mut options.config, &mut options.weights);
        if random.random_ratio(1, 4) {
            config.max_input_queue_size = config.writers * one_of(random, &[1, 2, 4]);
        }
        let mut pressure = Pressure {
            turn_divisor: one_of(random, &[1, 1, 20, 200]),
            burst_max: one_of(random, &[1, 1, 4, 15]),
            lazy_shards: one_of(random, &[0, 0, 1, 2]),
            outlasts_patience: random.random_ratio(1, 4),
            transactional: false,
        };
        match random.random_range(0..16) {
            0 | 1 => {
                // Outboxes are full all the time.
                let lossy = [SlowConsumer::DropOldest, SlowConsumer::DropNewest];
                if random.random_ratio(2, 3) {
                    config.slow_consumer = one_of(random, &lossy);
                }
                config.outbox_limit = one_of(random, &[600, 2_000, 5_000]);
                (options.buffer_bytes, options.body_max) = (one_of(random, &[64, 1_000]), 300);
                (options.expiring, weights.stall) = (0, 3);
            }
            2 => {
                // Many consumers of few names.
                options.topics.truncate(1);
                options.queues.truncate(1);
                options.clients_max = 16;
                (weights.connect, weights.subscribe, weights.unsubscribe) = (8, 10, 5);
            }
            3 => (weights.nack, weights.ack) = (20, 10),
            4 => {
                pressure.transactional = true;
                (weights.begin, weights.commit) = (10, 5);
            }
            5 => {
                // Queues that fill the memory.
                config.memory_limit = 1 << 20;
                (options.body_max, weights.subscribe) = (70_000, 2);
            }
            _ => {}
        }
        options.pressure = pressure;
    }
}
