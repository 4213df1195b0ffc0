//! How often clients use destinations of their own.

use rand::rngs::SmallRng;
use rand::seq::IndexedRandom as _;
use rand::{Rng as _, SeedableRng as _};
use stompica_broker::config::{Compat, Config};

use super::Options;

/// All names that clients use.
const NAMES: [&str; 5] =
    ["/temp-queue/a", "/temp-queue/b", "/temp-queue/a/b", "/temp-topic/a", "/temp-topic/b"];
/// The number with which a seed draws that clients may have few names. With it, the seeds that were kept before draw none.
const FEW: u64 = 0x0b13_a25a_0000_04b3;

/// The use of temporary destinations.
#[derive(Clone, Debug, Default)]
pub struct Private {
    /// Percentage of the actions that concern them.
    pub percent: u32,
    /// The names that clients use. Several clients use the same ones, for different destinations.
    pub names: Vec<&'static str>,
    /// Percentage of answers that go to any address that was ever seen, of ended connections, too; the others go to the newest.
    pub late: u32,
    /// Percentage of explicit subscriptions that are patterns.
    pub patterns: u32,
}

impl Private {
    /// Draws it for this seed: in half of them nobody has such a destination.
    #[must_use]
    pub fn draw(seed: u64, config: &Config) -> Self {
        let random = &mut SmallRng::seed_from_u64(seed ^ 0x7E3A_0011);
        if config.compat == Compat::Stompica || random.random_ratio(1, 2) {
            return Private::default();
        }
        let names: Vec<&str> = NAMES.into_iter().filter(|_| random.random_ratio(1, 2)).collect();
        let mut one_of = |all: &[u32]| *all.choose(random).expect("a list that is not empty");
        Private {
            percent: one_of(&[10, 30, 70]),
            names: if names.is_empty() { vec!["/temp-queue/a"] } else { names },
            late: one_of(&[0, 20, 100]),
            patterns: one_of(&[0, 0, 30]),
        }
    }

    /// Allows clients fewer names than they use, in some of the runs.
    pub(super) fn allow_few(options: &mut Options) {
        let random = &mut SmallRng::seed_from_u64(options.seed ^ FEW);
        let is_other =
            options.rogues.pace > 0 || options.watching.percent > 0 || options.retained.percent > 0;
        if !random.random_ratio(1, 10) || is_other || options.private.percent == 0 {
            return;
        }
        options.config.max_subscriptions = random.random_range(1..=2);
        (options.private.percent, options.private.names) = (70, NAMES.to_vec());
    }
}
