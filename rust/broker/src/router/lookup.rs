//! Looking a destination up: what that costs of a turn, and what is said of names that may surprise.

use stompica_proto::ProtocolError;

use super::{Destination, Router};
use crate::config::Compat;
use crate::destination::Kind;
use crate::log::Level;
use crate::turn::Turn;

/// So many bytes of a name are shown in the log.
const SHOWN_BYTES: usize = 100;

impl Router {
    /// The destination a message is for.
    ///
    /// # Errors
    /// `E-DEST-WILDCARD`.
    #[inline]
    pub fn destination_of(&mut self, turn: &mut Turn, name: &[u8]) -> Result<Destination, ProtocolError> {
        match self.last_destination(name) {
            Some(last) => Ok(last),
            None => self.look_up(turn, name),
        }
    }

    #[inline(never)]
    fn look_up(&mut self, turn: &mut Turn, name: &[u8]) -> Result<Destination, ProtocolError> {
        let found = self.destination(name);
        let visited = self.take_visited();
        if visited > 0 {
            turn.budget.visit(visited);
            self.warn_of_dotted(turn, name);
        }
        found
    }

    /// Warns once that a name with dots and without a prefix is a topic here. For other brokers it is a queue.
    #[cold]
    pub fn warn_of_dotted(&self, turn: &Turn, name: &[u8]) {
        let is_dotted = turn.config.compat == Compat::None
            && !name.starts_with(b"/")
            && name.contains(&b'.')
            && self.kind(name) == Kind::Topic;
        if is_dotted && turn.totals.explained_dotted.is_first() {
            let shown = String::from_utf8_lossy(&name[..name.len().min(SHOWN_BYTES)]);
            let more = if name.len() > SHOWN_BYTES { "…" } else { "" };
            turn.log(Level::Warn, || {
                format!("'{shown}{more}' is a topic, as are all dotted names; a queue's name begins with '/queue/'")
            });
        }
    }
}
