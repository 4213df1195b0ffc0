//! Checks whether there is memory for new names and subscriptions, and counts look-ups of names.

use stompica_proto::ProtocolError;
use stompica_proto::error::Code;

use super::Owners;
use crate::destination::Kind;
use crate::door::sync::Ordering;
use crate::ids::ConnKey;

/// The minimum memory of a subscription, without its texts.
const SUBSCRIPTION_BYTES: usize = 1024;
/// The approximate number of copies of a subscription's name and id.
const COPIES: usize = 3;
/// The memory that a new subscription may take although memory is short.
const LATE_SUBSCRIPTION_BYTES: usize = 2048;

impl Owners<'_> {
    /// Counts the router's visits against the turn's budget.
    pub(crate) fn count_names(&mut self) {
        self.turn.budget.visit(self.router.take_visited());
    }

    /// Refuses a subscription if memory is short. If messages fill the memory, only consumers free it, and they begin
    /// with a SUBSCRIBE: small subscriptions are accepted up to the limit, unless subscriptions themselves fill the
    /// memory.
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
        // Input that waits is freed when there is room again, and has a limit of its own.
        let input = self.turn.totals.unfinished.load(Ordering::Relaxed);
        self.require_memory_up_to(limit, name, id, self.turn.held_bytes() - input)
    }

    /// Whether a subscription may begin whatever memory is held, if its queue has messages: they may be what fills the
    /// memory, and only consumers free them. Each connection has one, and it is small.
    pub(crate) fn may_empty_queue(
        &self,
        key: ConnKey,
        name: &[u8],
        id: &[u8],
        is_durable: bool,
    ) -> Result<bool, ProtocolError> {
        let is_first = self.connections.table.get(key).is_some_and(|conn| conn.subscriptions.is_empty());
        let is_small = wanted_bytes(name, id) <= LATE_SUBSCRIPTION_BYTES;
        let kind = self.router.kind(name);
        Ok(is_first
            && is_small
            && (is_durable && kind == Kind::Topic
                || kind == Kind::Queue && self.router.parse(name)?.is_none()))
    }

    /// Refuses a name that would raise usage above 90 % of `memory_limit`: only its client can remove it, so waiting
    /// does not help. Messages that are not kept continue until 95 %.
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
