//! How much one turn may do, so that no connection starves another.

/// Bytes encoded in one turn.
const TURN_ENCODED_MAX: usize = 1 << 20;
/// Deliveries made in one turn.
const TURN_DELIVERIES_MAX: usize = 20_000;
/// Queues, names, patterns, reservations and the like that are looked at in one turn.
const TURN_VISITED_MAX: usize = 20_000;

/// What is left of a turn.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Budget {
    /// Bytes encoded.
    pub(super) encoded: usize,
    /// Deliveries made.
    pub(super) deliveries: usize,
    visited: usize,
}

impl Budget {
    /// Counts work that neither encodes nor delivers: queues, names, patterns and reservations that are looked at.
    pub(crate) fn visit(&mut self, count: usize) {
        self.visited += count;
    }

    /// Whether the rest has to wait for the next turn.
    pub(crate) fn is_exhausted(self) -> bool {
        self.encoded >= TURN_ENCODED_MAX
            || self.deliveries >= TURN_DELIVERIES_MAX
            || self.visited >= TURN_VISITED_MAX
    }
}
