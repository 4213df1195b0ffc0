//! How often subscriptions to topics acknowledge.

use rand::SeedableRng as _;
use rand::rngs::SmallRng;

use super::one_of;

/// The use of the modes `client` and `client-individual` on topics. Zero in half of the seeds.
#[derive(Clone, Debug, Default)]
pub struct Acking {
    /// Percentage of the subscriptions to topics that acknowledge.
    pub percent: u32,
    /// The least weight of NACK.
    pub nack: u32,
}

impl Acking {
    /// Draws it for this seed.
    #[must_use]
    pub fn draw(seed: u64) -> Self {
        let random = &mut SmallRng::seed_from_u64(seed ^ 0xAC4E_0011);
        match one_of(random, &[0, 0, 30, 100]) {
            0 => Acking::default(),
            percent => Acking { percent, nack: one_of(random, &[0, 0, 5, 20]) },
        }
    }
}
