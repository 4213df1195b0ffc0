//! The ack mode and the prefetch of a new subscription.

use rand::Rng as _;
use rand::seq::IndexedRandom as _;

use super::Actor;
use crate::events::{AckMode, is_queue};
use crate::frames::Version;

impl Actor<'_> {
    /// Draws how a subscription acknowledges, and its prefetch if it asks for one.
    pub(super) fn credit(&mut self, destination: &str) -> Option<(AckMode, Option<u64>)> {
        let modes = match is_queue(destination) {
            true if self.options.timing.is_late => &[AckMode::Client][..],
            true => &[AckMode::Auto, AckMode::Client, AckMode::Individual][..],
            false if self.percent(self.options.acking.percent) => &[AckMode::Client, AckMode::Individual],
            false => return Some((AckMode::Auto, None)),
        };
        let ack = *modes.choose(self.random)?;
        let is_unknown = self.client.version == Version::V10 && ack == AckMode::Individual;
        let prefetch = self.random.random_ratio(1, 2).then(|| self.random.random_range(1..8));
        Some((if is_unknown { AckMode::Client } else { ack }, prefetch))
    }
}
