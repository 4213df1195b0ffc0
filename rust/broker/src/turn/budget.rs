//! What one turn may do, and the most that any turn did.

use std::time::Duration;

use stompica_proto::Frame;

/// Turns are so much shorter in fuzz targets, whose inputs are short, so that work goes over several turns there, too.
const SHORTER: usize = if cfg!(fuzzing) { 200 } else { 1 };
/// Bytes encoded in one turn.
const TURN_ENCODED_MAX: usize = (1 << 20) / SHORTER;
/// Deliveries made in one turn.
const TURN_DELIVERIES_MAX: usize = 20_000 / SHORTER;
/// Queues, names, patterns, reservations, frames and the like that are looked at in one turn, but for the [`LEAST`] of
/// each of its parts: each takes a microsecond at the very most.
const TURN_VISITED_MAX: usize = 20_000 / SHORTER;
/// What each part of a turn may look at, however much those before it did, so that none starves another.
const LEAST: usize = TURN_VISITED_MAX / 4;
/// What homes may post to a shard ahead of its reading, in the load of a delivery: twice
/// what a turn reads, so that it never runs dry.
pub(crate) const DELIVERIES_MAX: usize = TURN_ENCODED_MAX / 64;
/// What shards may mail to another one ahead of its routing of messages that very many want there: deliveries of a turn.
pub(crate) const WIDE_WORK_MAX: usize = TURN_DELIVERIES_MAX;
/// Subscriptions added or removed in one turn, and told to be full or not any more, all of a connection at once.
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

/// A part of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TurnPart {
    /// What other shards say of queues and the like, and what earlier turns began.
    Mail,
    /// What other shards publish.
    Routes,
    /// Fan-outs, and what connections are owed.
    Deliveries,
    /// What clients say.
    Sockets,
    /// What queues have to deliver.
    Queues,
}

impl TurnPart {
    /// Eighths of what a turn may look at that are used up when this part ends, unless it has its [`LEAST`] then.
    fn end(self) -> usize {
        match self {
            TurnPart::Mail => 3,
            TurnPart::Routes => 4,
            TurnPart::Deliveries => 5,
            TurnPart::Sockets | TurnPart::Queues => 8,
        }
    }
}

/// What one part of a turn has done so far.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    /// Bytes encoded.
    pub(crate) encoded: usize,
    /// Deliveries made.
    pub(crate) deliveries: usize,
    visited: usize,
    /// What may be encoded, delivered and looked at.
    encoded_max: usize,
    deliveries_max: usize,
    visited_max: usize,
    /// What the parts before looked at.
    before: usize,
    changed: usize,
}

impl Default for Budget {
    /// That of the first part of a turn.
    fn default() -> Self {
        let (encoded_max, deliveries_max) = (TURN_ENCODED_MAX, TURN_DELIVERIES_MAX);
        let none = Budget {
            encoded: 0,
            deliveries: 0,
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
    /// That of this part of the turn, which comes next.
    pub(crate) fn of(self, part: TurnPart) -> Self {
        let before = self.before + self.visited;
        let visited_max = (TURN_VISITED_MAX * part.end() / 8).saturating_sub(before).max(LEAST);
        // What other shards say and what they publish is one part as to these.
        let (encoded, deliveries) =
            if part == TurnPart::Routes { (self.encoded, self.deliveries) } else { (0, 0) };
        let encoded_max = TURN_ENCODED_MAX.saturating_sub(encoded).max(TURN_ENCODED_MAX / 4);
        let deliveries_max = TURN_DELIVERIES_MAX.saturating_sub(deliveries).max(TURN_DELIVERIES_MAX / 4);
        Budget {
            encoded: 0,
            deliveries: 0,
            visited: 0,
            changed: 0,
            before,
            visited_max,
            encoded_max,
            deliveries_max,
        }
    }

    /// Goes on to the next part of the turn; returns what this one did.
    pub(crate) fn go_on_to(&mut self, next: TurnPart) -> Self {
        std::mem::replace(self, self.of(next))
    }

    /// Counts work that neither encodes nor delivers: queues, names, patterns and reservations that are looked at.
    pub(crate) fn visit(&mut self, count: usize) {
        self.visited += count;
    }

    /// Counts subscriptions that are added or removed, or that are told to be full or not any more.
    pub(crate) fn change(&mut self, count: usize) {
        self.changed += count;
    }

    /// Whether all subscriptions of one more connection may be told in this turn that it is full, or not any more.
    pub(crate) fn may_change(self) -> bool {
        self.changed < TURN_CHANGED_MAX
    }

    /// Whether one more of several connections that end together may do so in this turn, since so much was counted.
    pub(crate) fn may_end_more(self, since: usize) -> bool {
        self.visited - since < ENDS_VISITED_MAX
    }

    /// Only one visit is left.
    #[cfg(test)]
    pub(crate) fn nearly_over() -> Self {
        let whole = Budget::default();
        Budget { visited: whole.visited_max - 1, ..whole }
    }

    /// That of queues in a turn of which all other parts had all they may have.
    #[cfg(test)]
    pub(crate) fn least() -> Self {
        Budget { before: TURN_VISITED_MAX, ..Budget::default() }.of(TurnPart::Queues)
    }

    /// How much was looked at.
    pub(crate) fn visited(&self) -> usize {
        self.visited
    }

    /// Counts a read from a socket.
    pub(crate) fn read(&mut self, bytes: usize) {
        self.visited += CALL_VISITS + bytes / VISIT_BYTES;
    }

    /// Counts a frame that was decoded, of this length.
    #[inline]
    pub(crate) fn decode(&mut self, frame: &Frame<'_>, bytes: usize) {
        let head_bytes = bytes - frame.body.len().min(bytes);
        let for_head = head_bytes / VISIT_HEAD_BYTES + frame.spans.len() / VISIT_HEADERS;
        self.visited += 1 + for_head + frame.body.len() / VISIT_BYTES;
    }

    /// Counts a piece of input that was looked at.
    #[inline]
    pub(crate) fn look(&mut self, bytes: usize) {
        self.visited += 1 + bytes / VISIT_BYTES;
    }

    /// How much of this part is left to be looked at.
    pub(crate) fn left(&self) -> usize {
        self.visited_max.saturating_sub(self.visited)
    }

    /// Counts a step to the end of a connection.
    pub(crate) fn end_connection(&mut self) {
        self.visited += END_VISITS;
    }

    /// Whether half of this part of the turn is over, so that something else has its share.
    pub(crate) fn is_half_spent(self) -> bool {
        self.is_used_up(2)
    }

    /// The same for three quarters of it.
    pub(crate) fn is_mostly_spent(self) -> bool {
        self.has_used(3)
    }

    /// Whether the rest has to wait for the next turn.
    pub(crate) fn is_exhausted(self) -> bool {
        self.is_used_up(1)
    }

    /// Whether one part in `share` of it is used up.
    pub(crate) fn is_used_up(self, share: usize) -> bool {
        self.has_used(4 / share)
    }

    fn has_used(self, quarters: usize) -> bool {
        self.encoded >= self.encoded_max * quarters / 4
            || self.deliveries >= self.deliveries_max * quarters / 4
            || self.visited >= self.visited_max * quarters / 4
            || self.changed >= TURN_CHANGED_MAX * quarters / 4
    }
}

/// The most that one turn has done since the start, each number for itself.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Heaviest {
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
            Budget { encoded: TURN_ENCODED_MAX, ..whole },
            Budget { deliveries: TURN_DELIVERIES_MAX, ..whole },
            Budget { visited: TURN_VISITED_MAX, ..whole },
            Budget { changed: TURN_CHANGED_MAX, ..whole },
        ];
        assert!(used_up.into_iter().all(Budget::is_exhausted));
        let mut budget = Budget { encoded: TURN_ENCODED_MAX - 1, ..whole };
        budget.visit(TURN_VISITED_MAX - 1);
        assert!(!budget.is_exhausted() && budget.is_half_spent());
    }

    #[test]
    fn the_parts_of_a_turn_share_what_it_may_look_at_and_none_is_left_out() {
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
        let of_turn = |eighths: usize| TURN_VISITED_MAX * eighths / 8;
        assert_eq!(allowed(0), [3, 4, 5, 8, 8].map(of_turn), "whoever comes last has what nobody else needs");
        assert_eq!(allowed(usize::MAX), [3, 2, 2, 2, 2].map(of_turn));
        assert_eq!(allowed(of_turn(1)), [3, 3, 3, 5, 4].map(of_turn));
    }

    #[test]
    fn what_other_shards_say_and_publish_encodes_and_delivers_together() {
        let mail =
            Budget { encoded: TURN_ENCODED_MAX, deliveries: TURN_DELIVERIES_MAX / 2, ..Budget::default() };
        let routes = mail.of(TurnPart::Routes);
        assert_eq!(routes.encoded_max, TURN_ENCODED_MAX / 4, "it is not left out");
        assert_eq!(routes.deliveries_max, TURN_DELIVERIES_MAX / 2);
        assert!(!routes.is_exhausted());
        let next = routes.of(TurnPart::Deliveries);
        assert_eq!((next.encoded_max, next.deliveries_max), (TURN_ENCODED_MAX, TURN_DELIVERIES_MAX));
    }

    #[test]
    fn the_heaviest_turn_is_known_number_by_number() {
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
