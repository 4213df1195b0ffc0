//! The state of `memory_limit`, as far as it decides whether work may continue.

use crate::door::planted_in_loom;
use crate::door::sync::{AtomicBool, AtomicI64, Ordering};

/// The interval at which large messages that had no room are tried again.
const LARGE_RETRY_MS: u64 = 10;

/// One shard's view of the memory that all shards hold.
#[derive(Debug, Default)]
pub struct MemoryGauge {
    /// 80 % of the limit was reached, and usage has not fallen below 70 % since: publishers are paused.
    pub is_short: bool,
    /// 60 % of the limit is used: queues page messages out, if the store can load them again.
    pub is_paging: bool,
    /// Half of the limit is used: a connection that does not read its answers is not read.
    pub is_half_used: bool,
    /// The time of the next try of large messages that had no room although memory is not short, if there are any.
    large_retry_ms: Option<u64>,
    /// Bytes of this shard that are included in the broker's total.
    counted_bytes: i64,
    /// Bytes of this shard that are included in the broker's total of output.
    counted_output: i64,
    /// The maximum of held bytes by which anything was decided in this turn.
    #[cfg(simulated)]
    most_seen: std::cell::Cell<i64>,
}

impl MemoryGauge {
    /// Compares the bytes held with the limit, once a turn. The shortage of all shards begins at 80 % and ends at 70 %, so
    /// that it does not flap.
    pub fn compare(&mut self, held: i64, limit: i64, is_short: &AtomicBool) {
        #[cfg(simulated)]
        self.most_seen.set(held);
        self.is_short = is_short.load(Ordering::Relaxed);
        let is_now = self.is_short_at(held, limit);
        if is_now != self.is_short {
            is_short.store(is_now, Ordering::Relaxed);
            self.is_short = is_now;
        }
        self.is_paging = held >= limit / 10 * 6;
        self.is_half_used = held >= limit / 2;
    }

    /// Whether memory is short if this much is held: it may have grown since the turn began.
    #[must_use]
    pub fn is_short_at(&self, held: i64, limit: i64) -> bool {
        held >= limit / 10 * if self.is_short { 7 } else { 8 }
    }

    /// Notes that a large message has no room now.
    pub fn lacks_room(&mut self, now_ms: u64) {
        self.large_retry_ms.get_or_insert(now_ms + LARGE_RETRY_MS);
    }

    /// Whether large messages that had no room are to be tried again now. Notes that they are.
    pub fn takes_large_retry(&mut self, now_ms: u64) -> bool {
        self.large_retry_ms.take_if(|at_ms| *at_ms <= now_ms).is_some()
    }

    /// Whether SENDs may wait for memory, so that it has to be checked again soon.
    #[must_use]
    pub fn is_awaited(&self) -> bool {
        self.is_short || self.large_retry_ms.is_some()
    }

    /// Bytes of this shard that are included in the broker's total.
    #[cfg(any(test, simulated))]
    pub fn counted_bytes(&self) -> i64 {
        self.counted_bytes
    }

    /// Notes the bytes that all shards hold when something is decided by them.
    #[cfg(simulated)]
    pub fn note_seen(&self, held: i64) {
        self.most_seen.set(self.most_seen.get().max(held));
    }

    /// The maximum of held bytes by which anything was decided in the last turn.
    #[cfg(simulated)]
    pub fn most_seen(&self) -> i64 {
        self.most_seen.get()
    }

    /// Output of this shard that is included in the broker's total.
    #[must_use]
    pub fn counted_output(&self) -> i64 {
        self.counted_output
    }

    /// Updates the output of this shard in the broker's total.
    pub fn count_output(&mut self, output_here: i64, everywhere: &AtomicI64) {
        share(&mut self.counted_output, output_here, everywhere);
    }

    /// Updates the share of this shard in the broker's total.
    pub fn count(&mut self, held_here: i64, everywhere: &AtomicI64) {
        share(&mut self.counted_bytes, held_here, everywhere);
    }
}

/// Updates what a shard has counted in a total of all shards.
fn share(counted: &mut i64, here: i64, everywhere: &AtomicI64) {
    let change = here - std::mem::replace(counted, here);
    if change == 0 {
        return;
    }
    if planted_in_loom!("memory-torn") {
        everywhere.store(everywhere.load(Ordering::Relaxed) + change, Ordering::Relaxed);
    } else {
        everywhere.fetch_add(change, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn publishers_pause_at_80_percent_and_resume_at_70() {
        let (mut gauge, is_short) = (MemoryGauge::default(), AtomicBool::new(false));
        let mut is_short_at = |held| {
            gauge.compare(held, 100, &is_short);
            gauge.is_short
        };
        assert_eq!([79, 80, 75, 70, 69, 75].map(&mut is_short_at), [false, true, true, true, false, false]);
    }

    #[test]
    fn queues_page_out_before_publishers_pause() {
        let (mut gauge, is_short) = (MemoryGauge::default(), AtomicBool::new(false));
        let states = [59, 60, 79, 80].map(|held| {
            gauge.compare(held, 100, &is_short);
            (gauge.is_paging, gauge.is_short)
        });
        assert_eq!(states, [(false, false), (true, false), (true, false), (true, true)]);
    }

    #[test]
    fn large_messages_without_room_are_tried_again_at_intervals() {
        let mut gauge = MemoryGauge::default();
        assert!(!gauge.takes_large_retry(5) && !gauge.is_awaited());
        [5, 9].into_iter().for_each(|now_ms| gauge.lacks_room(now_ms));
        assert!(!gauge.is_short && gauge.is_awaited());
        assert_eq!([14, 15, 16].map(|now_ms| gauge.takes_large_retry(now_ms)), [false, true, false]);
    }

    #[test]
    fn only_the_difference_is_added_to_the_total() {
        let everywhere = AtomicI64::new(5);
        let mut gauge = MemoryGauge::default();
        [3, 3, 1].into_iter().for_each(|held| gauge.count(held, &everywhere));
        assert_eq!(everywhere.into_inner(), 6);
    }
}
