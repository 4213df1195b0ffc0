//! Small limits of what a connection or the broker may have, so that clients exceed them and are refused.

use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};

use super::{Options, one_of};

/// So many destinations are never reached in a run.
pub(super) const DESTINATIONS_MANY: usize = 10_000;
/// So many connections are never open in a run.
pub(super) const CONNECTIONS_MANY: usize = 100_000;

/// Changes limits in some of the runs, but not beside rogues: these expect answers within limits of their own.
pub(super) fn draw(options: &mut Options) {
    let random = &mut SmallRng::seed_from_u64(options.seed ^ 0x0011_11D5);
    let (config, is_watched) = (&mut options.config, options.watching.percent > 0);
    if options.rogues.pace > 0 {
        return;
    }
    match random.random_range(0..20) {
        0 if !is_watched => config.max_destinations = random.random_range(1..=12),
        1 if !is_watched => config.max_subscriptions = random.random_range(1..=4),
        2 => config.max_transactions = random.random_range(0..=2),
        3 => config.max_transaction_size = one_of(random, &[100, 1_000, 20_000]),
        _ => {}
    }
}
