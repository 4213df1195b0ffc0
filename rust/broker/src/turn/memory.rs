//! How much of `memory_limit` is held, as far as it matters for whether something may go on.

use std::sync::atomic::{AtomicI64, Ordering};

/// What one shard knows of the memory that all of them hold.
#[derive(Debug, Default)]
pub struct MemoryGauge {
    /// 80 % of the limit was reached, and it has not fallen under 70 % since: publishers pause.
    pub is_short: bool,
    /// Half of the limit is held: a connection that does not read its answers is not read.
    pub is_half_used: bool,
    /// Bytes of this shard in the broker's count.
    counted_bytes: i64,
}

impl MemoryGauge {
    /// Compares what is held with the limit, both in bytes. Paused at 80 %, on again at 70 %, so that it does not flap.
    pub fn compare(&mut self, held: i64, limit: i64) {
        self.is_short = held >= limit / 10 * if self.is_short { 7 } else { 8 };
        self.is_half_used = held >= limit / 2;
    }

    /// Brings what this shard holds into the broker's count.
    pub fn count(&mut self, held_here: i64, everywhere: &AtomicI64) {
        if held_here != self.counted_bytes {
            everywhere.fetch_add(held_here - self.counted_bytes, Ordering::Relaxed);
            self.counted_bytes = held_here;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn publishers_pause_at_four_fifths_and_go_on_at_seven_tenths() {
        let mut gauge = MemoryGauge::default();
        let mut is_short_at = |held| {
            gauge.compare(held, 100);
            gauge.is_short
        };
        assert_eq!([79, 80, 75, 70, 69, 75].map(&mut is_short_at), [false, true, true, true, false, false]);
    }

    #[test]
    fn only_changes_are_counted() {
        let everywhere = AtomicI64::new(5);
        let mut gauge = MemoryGauge::default();
        [3, 3, 1].into_iter().for_each(|held| gauge.count(held, &everywhere));
        assert_eq!(everywhere.into_inner(), 6);
    }
}
