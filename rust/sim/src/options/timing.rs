//! What a seed expands into about time: expiry, redelivery, acknowledgements that come late.

use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};
use stompica_broker::config::Config;

use super::one_of;

/// How often clients use what depends on time. All zero in half of the seeds.
#[derive(Clone, Debug, Default)]
pub struct Timing {
    /// Percentage of expiring SENDs that use `expires` or `ttl`, or a time that has passed.
    pub odd_expiries: u32,
    /// Percentage of SENDs with `max-exceptions`.
    pub exceptions: u32,
    /// Percentage of subscriptions with `max-deliveries`, `redelivery-delay` or `consumer-window-size`.
    pub terms: u32,
    /// Percentage of subscriptions that consume a dead-letter queue.
    pub dead_letters: u32,
    /// Percentage of NACKs with `requeue:false`.
    pub rejects: u32,
    /// Percentage of acknowledgements that join an open transaction, cumulative ones and NACKs included.
    pub joins: u32,
    /// `ack_timeout`; zero: never.
    pub ack_timeout: Duration,
    /// Consumers of queues acknowledge cumulatively, and often only the first message.
    pub is_late: bool,
}

impl Timing {
    /// What a seed expands into; changes the settings as far as they concern time. Beside a store that is followed
    /// record by record nothing is taken back: a confirmed ACK has to have an effect there.
    #[must_use]
    pub fn draw(seed: u64, config: &mut Config, has_durable_store: bool) -> Self {
        let random = &mut SmallRng::seed_from_u64(seed ^ 0x71_3146);
        if random.random_ratio(1, 2) {
            return Timing::default();
        }
        let mut timing = Timing {
            odd_expiries: one_of(random, &[0, 50, 100]),
            exceptions: one_of(random, &[0, 0, 30]),
            terms: one_of(random, &[0, 30, 80]),
            dead_letters: one_of(random, &[0, 0, 20, 50]),
            rejects: one_of(random, &[0, 0, 10, 50]),
            joins: one_of(random, &[0, 30, 80]),
            ack_timeout: Duration::from_millis(one_of(random, &[0, 0, 30, 300, 3_000])),
            is_late: false,
        };
        if has_durable_store {
            timing.ack_timeout = Duration::ZERO;
        }
        config.ack_timeout_ms = timing.ack_timeout.as_millis() as u64;
        timing
    }
}
