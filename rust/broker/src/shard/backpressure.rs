//! Acts on outboxes that are full: publishers wait, slow consumers go.

use stompica_proto::ProtocolError;
use stompica_proto::error::Code;

use super::Shard;
use crate::ids::ConnKey;
use crate::log::Level;

impl Shard {
    /// Acts on the outboxes that this turn filled, and that flushing did not relieve; on some in the next turn, where
    /// many subscriptions are behind them.
    pub(super) fn act_on_outboxes(&mut self) {
        self.connections.newly_full.sort_unstable();
        self.connections.newly_full.dedup(); // it is there once for each message that came too much
        while self.turn.budget.may_change()
            && let Some(key) = self.connections.newly_full.pop()
        {
            self.delivery().mark_full(key);
        }
        let before = self.turn.budget.visited();
        while self.turn.budget.may_end_more(before)
            && let Some(key) = self.connections.too_slow.pop()
        {
            self.cut_off(key);
        }
    }

    /// Ends a connection whose consumer is too slow: what was not sent at all gives way to the ERROR.
    pub(super) fn cut_off(&mut self, key: ConnKey) {
        let Some(conn) = self.connections.table.get_mut(key) else { return };
        if !conn.life.is_open() || conn.life.leaving.is_some() {
            return;
        }
        let bytes = conn.output.outbox.bytes();
        self.connections.begin_leaving(&mut self.turn, key);
        self.settle(); // what its subscriptions held goes back before what was not written
        let frames = self.delivery().cut_unsent(key);
        self.turn.counters.slow_consumers += 1;
        self.log_conn(Level::Warn, key, || {
            format!("slow consumer cut off: {bytes} bytes waited, {frames} frames are lost to it")
        });
        let text = format!("{bytes} bytes waited for this connection; {frames} frames were not sent");
        self.fail(key, ProtocolError::new(Code::SlowConsumer, text), None);
    }
}
