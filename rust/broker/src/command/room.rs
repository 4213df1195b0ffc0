//! Names that the shard looks up, and subscriptions that keep some: what that costs.

use std::sync::atomic::Ordering;

use stompica_proto::ProtocolError;
use stompica_proto::error::Code;

use super::Owners;

/// What a subscription holds at least, beside its texts.
const SUBSCRIPTION_BYTES: usize = 1024;
/// Copies of a subscription's name and id, about.
const COPIES: usize = 3;
/// What a subscription may take that comes although memory is full.
const LATE_SUBSCRIPTION_BYTES: usize = 2048;

impl Owners<'_> {
    /// Counts what the router has looked at against the turn.
    pub(crate) fn count_names(&mut self) {
        self.turn.budget.visit(self.router.take_visited());
    }

    /// Refuses a subscription for which memory has no room. Where it is messages that fill memory, only consumers free
    /// it, and they begin with a SUBSCRIBE: small ones may take it to the limit, as long as subscriptions are not what
    /// fills it.
    ///
    /// # Errors
    /// `E-MEMORY`.
    pub(crate) fn require_memory_for_subscription(
        &mut self,
        name: &[u8],
        id: &[u8],
    ) -> Result<(), ProtocolError> {
        let limit = self.turn.config.memory_limit;
        let subscriptions = (self.router.subscriptions.len() + 1) * self.turn.shards;
        let late = (subscriptions * LATE_SUBSCRIPTION_BYTES) as u64;
        if wanted_bytes(name, id) > LATE_SUBSCRIPTION_BYTES || late > limit / 20 {
            return self.require_memory_for(name, id);
        }
        self.delivery().count_memory();
        // Input that waits goes when there is room again, and has a bound of its own.
        let input = self.turn.totals.unfinished.load(Ordering::Relaxed);
        self.require_memory_up_to(limit, name, id, self.turn.held_bytes() - input)
    }

    /// Refuses a name that would take what is held over 90 % of `memory_limit`: nothing but its client can end it, so
    /// it is no use to wait, and what passes straight through goes on until 95 %.
    ///
    /// # Errors
    /// `E-MEMORY`.
    pub(crate) fn require_memory_for(&mut self, name: &[u8], id: &[u8]) -> Result<(), ProtocolError> {
        self.delivery().count_memory();
        let held = self.turn.held_bytes();
        self.require_memory_up_to(self.turn.config.memory_limit / 10 * 9, name, id, held)
    }

    fn require_memory_up_to(
        &self,
        most: u64,
        name: &[u8],
        id: &[u8],
        held: i64,
    ) -> Result<(), ProtocolError> {
        let held = u64::try_from(held).unwrap_or(0);
        if held.saturating_add(wanted_bytes(name, id) as u64) <= most {
            return Ok(());
        }
        let limit = self.turn.config.memory_limit;
        let text = format!("{held} bytes are held, memory_limit is {limit}: no room for another name");
        Err(ProtocolError::new(Code::Memory, text))
    }
}

fn wanted_bytes(name: &[u8], id: &[u8]) -> usize {
    SUBSCRIPTION_BYTES + COPIES * (name.len() + id.len())
}
