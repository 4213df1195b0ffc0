//! What happens when something is full: publishers wait, slow consumers go.
//!
//! | full | seen by | effect |
//! |---|---|---|
//! | an outbox (`outbox_limit`) | every shard, through the entry behind it | policy `slow_consumer` |
//! | memory (`memory_limit`, 80 %) | every shard, once per turn | SENDs park that would be kept, all from 95 % on |
//! | a shard's mailbox (`max_input_queue_size`) | the shard that feeds it | SENDs to it park |
//! | the same, of messages that very many want there (`wide.rs`) | the shard that feeds it | such SENDs to it park |
//!
//! A connection is parked at its next SEND, so that whatever came before is done and nothing overtakes it. A SEND
//! parked longer than `publish_timeout` is refused with `E-MEMORY`.

use stompica_proto::ProtocolError;
use stompica_proto::error::Code;

use super::Shard;
use crate::config::SlowConsumer;
use crate::connection::pausing::Pause;
use crate::delivery::passing::{LARGE_BODY, Load};
use crate::ids::ConnKey;
use crate::log::Level;

impl Shard {
    /// Why a SEND has to wait, if it has to.
    #[inline]
    pub(crate) fn pause_for(&mut self, key: ConnKey, load: &Load<'_>) -> Option<Pause> {
        if load.shards & self.peers.busy.congested != 0 {
            Some(Pause::Mailbox)
        } else if load.width > 0 && load.shards & self.peers.busy.laden != 0 {
            Some(Pause::Wide)
        } else if load.is_full {
            Some(Pause::SlowConsumer)
        } else if self.turn.memory.is_short || load.bytes >= LARGE_BODY {
            self.pause_for_memory(key, load)
        } else {
            None
        }
    }

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

    /// A reload may have brought a policy by which no publisher waits: whoever is full gets what that policy has for it.
    pub(super) fn stop_blocking(&mut self) {
        let policy = self.turn.config.slow_consumer;
        if matches!(policy, SlowConsumer::Block(_)) {
            return;
        }
        for key in self.connections.table.keys() {
            let Some(conn) = self.connections.table.get_mut(key) else { continue };
            let owed = conn.is_owed();
            if conn.output.full_since_ms.take().is_some() {
                self.delivery().change_full(key, false);
            }
            match policy {
                _ if !owed => {}
                SlowConsumer::Disconnect => self.connections.too_slow.push(key),
                _ => self.delivery().drop_owed(key),
            }
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
        let Some(conn) = self.connections.table.get_mut(key) else { return };
        let frames = conn.output.outbox.cut_unsent(&mut self.connections.chunks);
        let cut = conn.output.outbox.take_cut();
        if let Some(mut pending_writes) = conn.pending_writes.take() {
            self.give_back_unwritten(&mut pending_writes, Some(cut));
            if let Some(conn) = self.connections.table.get_mut(key) {
                conn.pending_writes = Some(pending_writes);
            }
        }
        self.turn.counters.slow_consumers += 1;
        self.log_conn(Level::Warn, key, || {
            format!("slow consumer cut off: {bytes} bytes waited, {frames} frames are lost to it")
        });
        let text = format!("{bytes} bytes waited for this connection; {frames} frames were not sent");
        self.fail(key, ProtocolError::new(Code::SlowConsumer, text), None);
    }
}
