//! The temporary destinations of one connection.

use crate::text::Text;

/// The temporary destinations of one connection.
#[derive(Debug)]
pub struct Temporary {
    /// Part of their full names.
    pub secret: String,
    /// Their names as the owner uses them.
    pub names: Names,
    /// Those that it consumes without a SUBSCRIBE, because a `reply-to` named them.
    pub answered: Names,
}

/// Names that count themselves as held.
pub type Names = hashbrown::HashSet<Text, crate::door::HashState>;

impl Temporary {
    /// The state without names.
    #[must_use]
    pub fn new(secret: String) -> Self {
        Temporary { secret, names: Names::default(), answered: Names::default() }
    }
}
