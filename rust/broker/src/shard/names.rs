//! Names that the shard looks up: what that costs, and what they hold.

use stompica_proto::ProtocolError;

use super::Shard;
use crate::router::Destination;

impl Shard {
    /// The destination a message is for.
    ///
    /// # Errors
    /// `E-DEST-WILDCARD`.
    pub(crate) fn destination(&mut self, name: &[u8]) -> Result<Destination, ProtocolError> {
        let found = self.router.destination(name);
        self.budget.visit(self.router.take_visited());
        found
    }
}
