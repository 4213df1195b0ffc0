//! The checker `accounting`: after each turn the broker counts anew what it holds, and must agree with its own counts. All
//! that waits must have somebody who will answer it. See `audit` in each folder of the broker.

use crate::events::Violation;
use crate::world::World;

impl World {
    /// Audits all shards.
    ///
    /// # Errors
    /// The first thing that is inconsistent.
    pub(crate) fn audit(&mut self) -> Result<(), Violation> {
        match self.broker.audit().into_iter().next() {
            Some(text) => Err(Violation { checker: "accounting", text }),
            None => Ok(()),
        }
    }
}
