//! The limits of one turn's work, and the maxima that any turn reached.

use std::time::Duration;

use stompica_proto::Frame;

use crate::door::{planted, turn_divisor};

/// A part of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TurnPart {
    /// Mail of other shards about queues and the like, and the continuation of earlier turns' work.
    Mail,
    /// Messages that other shards publish.
    Routes,
    /// Fan-outs, and deliveries that wait for outboxes.
    Deliveries,
    /// Input of clients.
    Sockets,
    /// Deliveries of queues.
    Queues,
}

/// Maximum of bytes encoded in one turn.
#[inline(always)]
fn turn_encoded_max() -> usize {
    (1 << 20) / turn_divisor()
}

/// Maximum of deliveries in one turn.
#[inline(always)]
fn turn_deliveries_max() -> usize {
    20_000 / turn_divisor()
}

/// Maximum of visits in one turn, except for the [`least_visits`] of each part. A visit is a small step, such as looking
/// at a queue, a name, a pattern, a reservation or a frame, and takes a microsecond at most.
#[inline(always)]
fn turn_visits_max() -> usize {
    20_000 / turn_divisor()
}

/// Visits that each part of a turn is granted, however many the parts before it made, so that no part starves
/// another.
#[inline(always)]
fn least_visits() -> usize {
    turn_visits_max() / 4
}

/// Maximum load of deliveries that homes post to a shard before it has read them: twice what a turn reads, so that
/// the shard never runs dry.
#[inline(always)]
pub(crate) fn deliveries_max() -> usize {
    turn_encoded_max() / 64
}

/// Maximum work that shards post to another shard before it has routed it, in deliveries of messages with very many
/// recipients there.
#[inline(always)]
pub(crate) fn fan_out_work_max() -> usize {
    turn_deliveries_max()
}

/// The maximum number of subscriptions that are added, removed, or reported as full or no longer full in one turn.
/// Those of one connection are never split.
#[inline(always)]
fn turn_changes_max() -> usize {
    8000 / turn_divisor()
}

/// Bytes of input or of a body that count as one visit.
const VISIT_BYTES: usize = 512;
/// Bytes of a head that count as one visit: they are examined one by one, and may be escapes.
const VISIT_HEAD_BYTES: usize = 64;
/// Header lines that count as one visit.
const VISIT_HEADERS: usize = 8;
/// Visits that a system call counts as.
const CALL_VISITS: usize = 8;
/// Visits that a delivery to a consumer counts as: the table of its unacknowledged deliveries may be new, or grow.
const RECEIVE_VISITS: usize = 2;
/// Visits that the end of a connection counts as: its log line, its timer, and four system calls.
const END_VISITS: usize = 64;

/// Maximum of visits for connections that end together in one turn, whatever else it did.
const ENDS_VISITED_MAX: usize = 10_000;

impl TurnPart {
    /// The eighths of a turn's visits that are used up when this part ends, unless it has had less than [`least_visits`]
    /// then.
    fn end(self) -> usize {
        match self {
            TurnPart::Mail => 3,
            TurnPart::Routes => 4,
            TurnPart::Deliveries => 5,
            TurnPart::Sockets | TurnPart::Queues => 8,
        }
    }
}

/// The work that one part of a turn has done so far, and its limits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    /// Bytes encoded.
    pub(crate) encoded: usize,
    /// Deliveries made.
    pub(crate) deliveries: usize,
    /// Bytes of messages that COMMITs have published in this turn, in all parts, once for each shard that gets them.
    pub(crate) published: usize,
    visited: usize,
    /// The limits of this part.
    encoded_max: usize,
    deliveries_max: usize,
    visited_max: usize,
    /// Visits of the parts before.
    before: usize,
    changed: usize,
}

impl Default for Budget {
    /// The budget of the first part of a turn.
    fn default() -> Self {
        let (encoded_max, deliveries_max) = (turn_encoded_max(), turn_deliveries_max());
        let none = Budget {
            encoded: 0,
            deliveries: 0,
            published: 0,
            visited: 0,
            changed: 0,
            before: 0,
            visited_max: 0,
            encoded_max,
            deliveries_max,
        };
        none.of(TurnPart::Mail)
    }
}

impl Budget {
    /// The budget of the given part, which comes next.
    pub(crate) fn of(self, part: TurnPart) -> Self {
        let before = self.before + self.visited;
        let visited_max = (turn_visits_max() * part.end() / 8).saturating_sub(before).max(least_visits());
        // Mail and routes share these two limits.
        let (encoded, deliveries) =
            if part == TurnPart::Routes { (self.encoded, self.deliveries) } else { (0, 0) };
        let encoded_max = turn_encoded_max().saturating_sub(encoded).max(turn_encoded_max() / 4);
        let deliveries_max = turn_deliveries_max().saturating_sub(deliveries).max(turn_deliveries_max() / 4);
        Budget {
            encoded: 0,
            deliveries: 0,
            published: self.published,
            visited: 0,
            changed: 0,
            before,
            visited_max,
            encoded_max,
            deliveries_max,
        }
    }

    /// Begins the next part of the turn; returns the budget of the part that ends.
    pub(crate) fn go_on_to(&mut self, next: TurnPart) -> Self {
        std::mem::replace(self, self.of(next))
    }

    /// Counts visits: work that neither encodes nor delivers, such as looking at queues, names, patterns and
    /// reservations.
    pub(crate) fn visit(&mut self, count: usize) {
        self.visited += count;
    }

    /// A message of a queue is delivered to a consumer of this shard.
    #[inline]
    pub(crate) fn deliver(&mut self) {
        self.deliveries += 1;
        self.visit(RECEIVE_VISITS);
    }

    /// Counts subscriptions that are added, removed, or reported as full or no longer full.
    pub(crate) fn change(&mut self, count: usize) {
        self.changed += count;
    }

    /// Whether this turn may still report all subscriptions of one more connection as full, or no longer full.
    pub(crate) fn may_change(self) -> bool {
        self.changed < turn_changes_max()
    }

    /// Whether one more of several connections that end together may do so in this turn; `since` is the count of
    /// visits at which the first one ended.
    pub(crate) fn may_end_more(self, since: usize) -> bool {
        self.visited - since < ENDS_VISITED_MAX
    }

    /// A budget with one visit left.
    #[cfg(test)]
    pub(crate) fn nearly_over() -> Self {
        let whole = Budget::default();
        Budget { visited: whole.visited_max - 1, ..whole }
    }

    /// The budget of queues in a turn whose other parts used up theirs.
    #[cfg(test)]
    pub(crate) fn least() -> Self {
        Budget { before: turn_visits_max(), ..Budget::default() }.of(TurnPart::Queues)
    }

    /// The visits counted so far.
    pub(crate) fn visited(&self) -> usize {
        self.visited
    }

    /// Counts copies of one message, with this many bytes in total. Copying takes half the time of encoding, system
    /// calls included.
    #[inline]
    pub(crate) fn copy(&mut self, copies: usize, bytes: usize) {
        self.deliveries += copies;
        self.encoded += bytes / 2;
    }

    /// Counts a read from a socket.
    pub(crate) fn read(&mut self, bytes: usize) {
        if planted!("read-not-counted") {
            return;
        }
        self.visited += CALL_VISITS + bytes / VISIT_BYTES;
    }

    /// Counts a decoded frame of this length.
    #[inline]
    pub(crate) fn decode(&mut self, frame: &Frame<'_>, bytes: usize) {
        let head_bytes = bytes - frame.body.len().min(bytes);
        let for_head = head_bytes / VISIT_HEAD_BYTES + frame.spans.len() / VISIT_HEADERS;
        self.visited += 1 + for_head + frame.body.len() / VISIT_BYTES;
    }

    /// Counts a piece of input that was examined.
    #[inline]
    pub(crate) fn look(&mut self, bytes: usize) {
        self.visited += 1 + bytes / VISIT_BYTES;
    }

    /// The visits that are left in this part.
    pub(crate) fn left(&self) -> usize {
        self.visited_max.saturating_sub(self.visited)
    }

    /// Counts a step towards the end of a connection.
    pub(crate) fn end_connection(&mut self) {
        self.visited += END_VISITS;
    }

    /// Whether half of this part of the turn is used up, so that other work gets its share.
    pub(crate) fn is_half_spent(self) -> bool {
        self.is_used_up(2)
    }

    /// Whether three quarters of this part of the turn are used up.
    pub(crate) fn is_mostly_spent(self) -> bool {
        self.has_used(3)
    }

    /// Whether the rest has to wait for the next turn.
    pub(crate) fn is_exhausted(self) -> bool {
        self.is_used_up(1)
    }

    /// Whether one part in `share` of the budget is used up.
    pub(crate) fn is_used_up(self, share: usize) -> bool {
        self.has_used(4 / share)
    }

    fn has_used(self, quarters: usize) -> bool {
        self.encoded >= self.encoded_max * quarters / 4
            || self.deliveries >= self.deliveries_max * quarters / 4
            || self.visited >= self.visited_max * quarters / 4
            || self.changed >= turn_changes_max() * quarters / 4
    }
}

/// The maxima of all turns since the start, each for itself.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Heaviest {
    /// Bytes encoded.
    pub encoded: usize,
    /// Deliveries made.
    pub deliveries: usize,
    /// Visits.
    pub visited: usize,
    /// The visits of all turns together.
    pub all_visited: usize,
    /// Processor time, at most a millisecond too long.
    pub took: Duration,
}

impl Heaviest {
    /// Records the work of all parts of a turn.
    pub fn note(&mut self, parts: [Budget; 5], took: Duration) {
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
    fn a_part_of_a_turn_is_over_when_any_share_of_it_is_used_up() {
        let whole = Budget::default().of(TurnPart::Sockets);
        let used_up = [
            Budget { encoded: turn_encoded_max(), ..whole },
            Budget { deliveries: turn_deliveries_max(), ..whole },
            Budget { visited: turn_visits_max(), ..whole },
            Budget { changed: turn_changes_max(), ..whole },
        ];
        assert!(used_up.into_iter().all(Budget::is_exhausted));
        let mut budget = Budget { encoded: turn_encoded_max() - 1, ..whole };
        budget.visit(turn_visits_max() - 1);
        assert!(!budget.is_exhausted() && budget.is_half_spent());
    }

    #[test]
    fn the_parts_of_a_turn_share_its_visits_and_none_starves() {
        let parts =
            [TurnPart::Mail, TurnPart::Routes, TurnPart::Deliveries, TurnPart::Sockets, TurnPart::Queues];
        let allowed = |done: usize| {
            let mut budget = Budget::default();
            parts.map(|part| {
                if part != TurnPart::Mail {
                    budget = budget.of(part);
                }
                let allowed = budget.visited_max;
                budget.visit(done.min(allowed));
                allowed
            })
        };
        let of_turn = |eighths: usize| turn_visits_max() * eighths / 8;
        assert_eq!(
            allowed(0),
            [3, 4, 5, 8, 8].map(of_turn),
            "the last part gets all visits that the others left"
        );
        assert_eq!(allowed(usize::MAX), [3, 2, 2, 2, 2].map(of_turn));
        assert_eq!(allowed(of_turn(1)), [3, 3, 3, 5, 4].map(of_turn));
    }

    #[test]
    fn mail_and_routes_share_their_limits_of_bytes_and_deliveries() {
        let mail = Budget {
            encoded: turn_encoded_max(),
            deliveries: turn_deliveries_max() / 2,
            ..Budget::default()
        };
        let routes = mail.of(TurnPart::Routes);
        assert_eq!(routes.encoded_max, turn_encoded_max() / 4, "a quarter is granted in any case");
        assert_eq!(routes.deliveries_max, turn_deliveries_max() / 2);
        assert!(!routes.is_exhausted());
        let next = routes.of(TurnPart::Deliveries);
        assert_eq!((next.encoded_max, next.deliveries_max), (turn_encoded_max(), turn_deliveries_max()));
    }

    #[test]
    fn each_maximum_is_kept_for_itself() {
        let none = Budget::default();
        let one = Budget { encoded: 5, deliveries: 1, visited: 2, ..none };
        let other = Budget { encoded: 1, deliveries: 4, visited: 3, ..none };
        let mut heaviest = Heaviest::default();
        heaviest.note([one, other, none, none, none], Duration::from_micros(7));
        heaviest.note([other, none, none, none, none], Duration::from_micros(9));
        let Heaviest { encoded, deliveries, visited, all_visited, took } = heaviest;
        assert_eq!((encoded, deliveries, visited, all_visited, took.as_micros()), (6, 5, 5, 8, 9));
    }
}
