//! What one turn may do, and the most that any turn did.

use std::time::Duration;

use stompica_proto::Frame;

/// Turns are so much shorter in fuzz targets, whose inputs are short, so that work goes over several turns there, too.
const SHORTER: usize = if cfg!(fuzzing) { 200 } else { 1 };
/// Bytes encoded in one turn.
const TURN_ENCODED_MAX: usize = (1 << 20) / SHORTER;
/// Deliveries made in one turn.
const TURN_DELIVERIES_MAX: usize = 20_000 / SHORTER;
/// Queues, names, patterns, reservations, frames and the like that are looked at in one turn: each takes a microsecond
/// at the very most.
pub(super) const TURN_VISITED_MAX: usize = 20_000 / SHORTER;
/// What homes may post to a shard ahead of its reading, in [`Delivery::load`](crate::queue::parts::Delivery::load): twice
/// what a turn reads, so that it never runs dry.
pub(super) const DELIVERIES_MAX: usize = TURN_ENCODED_MAX / 64;
/// What shards may mail to another one ahead of its routing of messages that very many want there: deliveries of a turn.
pub(super) const WIDE_WORK_MAX: usize = TURN_DELIVERIES_MAX;
/// Subscriptions added or removed in one turn, and told to be full or not any more; a connection that has begun to end
/// does so.
const TURN_CHANGED_MAX: usize = 8000 / SHORTER;
/// Bytes of input that are read, or of a body, for the price of one visit.
const VISIT_BYTES: usize = 512;
/// Bytes of a head: they are looked at one by one, and may be escapes.
const VISIT_HEAD_BYTES: usize = 64;
/// Header lines.
const VISIT_HEADERS: usize = 8;
/// Visits for which a system call stands.
const CALL_VISITS: usize = 8;
/// Visits for which the end of a connection stands: its log line, its timer, and four system calls.
const END_VISITS: usize = 64;

/// Visits that stand for connections which end together in one turn, whatever else it did.
const ENDS_VISITED_MAX: usize = 10_000;

/// What a turn has done so far; a turn has one budget for mail and one for sockets.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Budget {
    /// Bytes encoded.
    pub(super) encoded: usize,
    /// Deliveries made.
    pub(super) deliveries: usize,
    visited: usize,
    changed: usize,
}

impl Budget {
    /// Counts work that neither encodes nor delivers: queues, names, patterns and reservations that are looked at.
    pub(crate) fn visit(&mut self, count: usize) {
        self.visited += count;
    }

    /// Counts subscriptions that are added or removed, or that are told to be full or not any more.
    pub(crate) fn change(&mut self, count: usize) {
        self.changed += count;
    }

    /// Whether one more connection may end, or change all its subscriptions, in this turn.
    pub(super) fn may_change(self) -> bool {
        self.changed < TURN_CHANGED_MAX
    }

    /// The same for one of several that end together, since so much was counted.
    pub(super) fn may_end_more(self, since: usize) -> bool {
        self.may_change() && self.visited - since < ENDS_VISITED_MAX
    }

    /// Whether the rest has to wait for the next turn although one part in `share` is meant for it, whatever was done
    /// before `began`.
    pub(super) fn is_over_for(self, began: Budget, share: usize) -> bool {
        let since = Budget {
            encoded: self.encoded - began.encoded,
            deliveries: self.deliveries - began.deliveries,
            visited: self.visited - began.visited,
            changed: self.changed - began.changed,
        };
        self.is_exhausted() && since.is_used_up(share)
    }

    /// How much was looked at.
    pub(super) fn visited(&self) -> usize {
        self.visited
    }

    /// Counts a read from a socket.
    pub(super) fn read(&mut self, bytes: usize) {
        self.visited += CALL_VISITS + bytes / VISIT_BYTES;
    }

    /// Counts a frame that was decoded, of this length.
    #[inline]
    pub(super) fn decode(&mut self, frame: &Frame<'_>, bytes: usize) {
        let head_bytes = bytes - frame.body.len().min(bytes);
        let for_head = head_bytes / VISIT_HEAD_BYTES + frame.spans.len() / VISIT_HEADERS;
        self.visited += 1 + for_head + frame.body.len() / VISIT_BYTES;
    }

    /// Counts a piece of input that was looked at.
    #[inline]
    pub(super) fn look(&mut self, bytes: usize) {
        self.visited += 1 + bytes / VISIT_BYTES;
    }

    /// Counts a step to the end of a connection.
    pub(super) fn end_connection(&mut self) {
        self.visited += END_VISITS;
    }

    /// Whether half of the turn is over, so that something else has its share.
    pub(crate) fn is_half_spent(self) -> bool {
        self.encoded >= TURN_ENCODED_MAX / 2
            || self.deliveries >= TURN_DELIVERIES_MAX / 2
            || self.visited >= TURN_VISITED_MAX / 2
            || self.changed >= TURN_CHANGED_MAX / 2
    }

    /// Whether the rest has to wait for the next turn.
    pub(crate) fn is_exhausted(self) -> bool {
        self.is_used_up(1)
    }

    /// Whether one part in `share` of the turn is used up.
    pub(crate) fn is_used_up(self, share: usize) -> bool {
        self.encoded >= TURN_ENCODED_MAX / share
            || self.deliveries >= TURN_DELIVERIES_MAX / share
            || self.visited >= TURN_VISITED_MAX / share
            || self.changed >= TURN_CHANGED_MAX / share
    }
}

/// The most that one turn has done since the start, each number for itself.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Heaviest {
    /// Bytes encoded.
    pub encoded: usize,
    /// Deliveries made.
    pub deliveries: usize,
    /// Queues, names and the like looked at.
    pub visited: usize,
    /// The same in all turns together.
    pub all_visited: usize,
    /// Processor time, less than a millisecond too much.
    pub took: Duration,
}

impl Heaviest {
    /// Notes what a turn has done in all its parts.
    pub fn note(&mut self, parts: [Budget; 3], took: Duration) {
        self.encoded = self.encoded.max(parts.iter().map(|part| part.encoded).sum());
        self.deliveries = self.deliveries.max(parts.iter().map(|part| part.deliveries).sum());
        let visited = parts.iter().map(|part| part.visited).sum();
        self.visited = self.visited.max(visited);
        self.all_visited += visited;
        self.took = self.took.max(took);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_is_over_when_any_part_of_its_budget_is_used_up() {
        let used_up = [
            Budget { encoded: TURN_ENCODED_MAX, ..Budget::default() },
            Budget { deliveries: TURN_DELIVERIES_MAX, ..Budget::default() },
            Budget { visited: TURN_VISITED_MAX, ..Budget::default() },
            Budget { changed: TURN_CHANGED_MAX, ..Budget::default() },
        ];
        assert!(used_up.into_iter().all(Budget::is_exhausted));
        let mut budget = Budget { encoded: TURN_ENCODED_MAX - 1, ..Budget::default() };
        budget.visit(TURN_VISITED_MAX - 1);
        assert!(!budget.is_exhausted() && budget.is_used_up(2));
    }

    #[test]
    fn whoever_has_a_share_of_the_turn_gets_it_whatever_was_done_before() {
        let mut budget = Budget { encoded: TURN_ENCODED_MAX, ..Budget::default() };
        let began = budget;
        budget.visit(TURN_VISITED_MAX / 4 - 1);
        assert!(budget.is_exhausted() && !budget.is_over_for(began, 4));
        budget.visit(1);
        assert!(budget.is_over_for(began, 4));
        assert!(!Budget::default().is_over_for(Budget::default(), 4), "and more, where nobody else needs it");
    }

    #[test]
    fn the_heaviest_turn_is_known_number_by_number() {
        let one = Budget { encoded: 5, deliveries: 1, visited: 2, changed: 0 };
        let other = Budget { encoded: 1, deliveries: 4, visited: 3, changed: 0 };
        let mut heaviest = Heaviest::default();
        heaviest.note([one, other, Budget::default()], Duration::from_micros(7));
        heaviest.note([other, Budget::default(), Budget::default()], Duration::from_micros(9));
        let Heaviest { encoded, deliveries, visited, all_visited, took } = heaviest;
        assert_eq!((encoded, deliveries, visited, all_visited, took.as_micros()), (6, 5, 5, 8, 9));
    }
}
