//! Hot path: copies consecutive messages to one topic into the outboxes of connections that cannot share frames.
//!
//! Where subscription ids differ, each subscriber gets a copy of every message. If each message were copied at once,
//! the broker would visit all outboxes for every message, and none of them would stay in the processor's cache. So the
//! suffixes of the messages are collected. When the run of messages ends, they are copied for one receiver after
//! another. See docs/decisions/0025-copies-one-receiver-at-a-time.md.
//!
//! Invariants: while messages are pending, nothing else is appended to the outboxes of their receivers, no receiver is
//! added or removed, and no range is pending: [`Connections::distribute`] is called first. No connection is a receiver
//! twice.

use stompica_proto::Version;
use stompica_proto::ws::{self, Opcode};

use super::Connections;
use super::conn::Flush;
use crate::ids::ConnKey;
use crate::message::chunk::CHUNK_BYTES;
use crate::router::group::{Framing, WireFormat};
use crate::turn::Turn;

/// An outbox that was empty and now holds this much is written at once, while the copies are in the processor's cache.
/// The copies for the next receiver then reuse their memory.
const EARLY_WRITE_BYTES: usize = 16 << 10;

/// The origin of a run of messages. While it stays the same, so do the receivers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Source {
    /// The filter that the messages match.
    pub filter: u32,
    /// The number of its groups.
    pub groups: usize,
}

/// A connection that gets a copy of each message.
#[derive(Clone, Copy, Debug)]
struct Receiver {
    key: ConnKey,
    version: Version,
    is_websocket: bool,
    /// Its range of `prefixes`.
    prefix: (u32, u32),
}

/// The suffixes of the pending messages in one version of STOMP.
#[derive(Debug, Default)]
struct Suffixes {
    /// The number of receivers that use the version; without any, it has no suffixes.
    receivers: usize,
    bytes: Vec<u8>,
    /// For each message the end of its suffix and, if some receivers use WebSocket, the opcode of its frame.
    ends: Vec<(u32, Option<Opcode>)>,
}

/// Messages that are not copied yet, and their receivers.
#[derive(Debug, Default)]
pub struct PendingCopies {
    /// The origin of the last message to be copied, unless no other message was collected with it.
    last: Option<Source>,
    /// The number of the turn in which messages of `last` cannot be collected.
    unfit_turn: Option<u64>,
    /// The origin of the pending messages.
    source: Option<Source>,
    receivers: Vec<Receiver>,
    prefixes: Vec<u8>,
    suffixes: [Suffixes; 3],
    has_websockets: bool,
    messages: usize,
}

impl PendingCopies {
    /// Whether no message is pending.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.messages == 0
    }

    /// Whether this message should be collected: the message before it had the same source, and the receivers do not
    /// rule it out.
    pub fn is_worthwhile(&mut self, source: Source, turn: u64) -> bool {
        if self.last != Some(source) {
            (self.last, self.unfit_turn) = (Some(source), None);
            return false;
        }
        self.unfit_turn != Some(turn)
    }

    /// Rules out collecting messages of the last source in this turn, because of its receivers.
    pub fn rule_out(&mut self, turn: u64) {
        self.unfit_turn = Some(turn);
    }

    /// Starts to collect messages of a source. Its receivers have to be added next.
    pub fn begin(&mut self, source: Source) {
        debug_assert!(self.is_empty(), "messages are copied before others are collected");
        self.source = Some(source);
        self.receivers.clear();
        self.prefixes.clear();
        self.suffixes.iter_mut().for_each(|suffixes| suffixes.receivers = 0);
        self.has_websockets = false;
    }

    /// Adds a receiver, whose frames begin with this prefix.
    pub fn add_receiver(&mut self, key: ConnKey, wire_format: WireFormat, prefix: &[u8]) {
        let WireFormat { framing, version, .. } = wire_format;
        let is_websocket = framing == Framing::WebSocket;
        let start = self.prefixes.len() as u32;
        self.prefixes.extend_from_slice(prefix);
        let prefix = (start, self.prefixes.len() as u32);
        self.receivers.push(Receiver { key, version, is_websocket, prefix });
        self.suffixes[version as usize].receivers += 1;
        self.has_websockets |= is_websocket;
    }

    /// Whether the receivers can get their copies one after another. Their prefixes must not be too long to be kept,
    /// and no connection may have two subscriptions, because the order of its messages would change.
    pub fn is_fit(&mut self) -> bool {
        self.receivers.sort_unstable_by_key(|receiver| receiver.key);
        self.prefixes.len() <= CHUNK_BYTES && self.receivers.is_sorted_by(|one, other| one.key < other.key)
    }

    /// Whether a message of this source can be added to the pending ones.
    #[inline]
    #[must_use]
    pub fn takes(&self, source: Source) -> bool {
        !self.is_empty()
            && self.source == Some(source)
            && self.suffixes.iter().all(|suffixes| suffixes.bytes.len() < CHUNK_BYTES)
    }

    /// Whether some receivers use WebSocket, so that opcodes are needed.
    #[must_use]
    pub fn has_websockets(&self) -> bool {
        self.has_websockets
    }

    /// Whether some receivers use this version of STOMP, so that suffixes in it are needed.
    #[must_use]
    pub fn uses(&self, version: Version) -> bool {
        self.suffixes[version as usize].receivers > 0
    }

    /// Adds the suffix of a message in one version that receivers use.
    #[inline]
    pub fn add_suffix(&mut self, version: Version, suffix: &[u8], opcode: Option<Opcode>) {
        let suffixes = &mut self.suffixes[version as usize];
        suffixes.bytes.extend_from_slice(suffix);
        suffixes.ends.push((suffixes.bytes.len() as u32, opcode));
    }

    /// Completes a message after its suffixes were added. Returns the number of its copies, and their bytes in total
    /// without WebSocket headers.
    #[inline]
    pub fn end_message(&mut self) -> (usize, usize) {
        self.messages += 1;
        let suffixes: usize = self.suffixes.iter().map(Suffixes::copied_of_last).sum();
        (self.receivers.len(), self.prefixes.len() + suffixes)
    }
}

impl Suffixes {
    /// The bytes that all copies of the last suffix have in total.
    fn copied_of_last(&self) -> usize {
        let end = |back: usize| self.ends.len().checked_sub(back).map_or(0, |at| self.ends[at].0);
        self.receivers * (end(1) - end(2)) as usize
    }
}

impl Connections {
    /// Copies the pending messages into the outboxes of their receivers. It is a function of its own, so that the check
    /// for pending messages can be inlined everywhere.
    #[inline(never)]
    pub(super) fn distribute_copies(&mut self, turn: &mut Turn) {
        let limit = turn.config.outbox_limit;
        let Connections { pending_copies: copies, table, chunks, dirty, newly_full, .. } = self;
        for receiver in &copies.receivers {
            let Some(conn) = table.get_mut(receiver.key) else { continue };
            let prefix = &copies.prefixes[receiver.prefix.0 as usize..receiver.prefix.1 as usize];
            let Suffixes { bytes, ends, .. } = &copies.suffixes[receiver.version as usize];
            let (mut ends, mut start) = (ends.iter(), 0);
            let was_empty = conn.output.outbox.is_empty();
            conn.output.outbox.append_messages(chunks, |out| {
                let Some(&(end, opcode)) = ends.next() else { return false };
                let suffix = &bytes[start as usize..end as usize];
                start = end;
                if receiver.is_websocket
                    && let Some(opcode) = opcode
                {
                    ws::encode::header(out, opcode, prefix.len() + suffix.len());
                }
                out.extend_from_slice(prefix);
                out.extend_from_slice(suffix);
                true
            });
            turn.counters.deliveries += copies.messages as u64;
            let is_large = conn.output.outbox.bytes() >= EARLY_WRITE_BYTES;
            if was_empty && is_large && conn.write_early(chunks, turn) {
                continue;
            }
            if conn.output.flush != Flush::Prompt {
                conn.output.flush = Flush::Prompt;
                dirty.push(receiver.key);
            }
            if conn.output.outbox.bytes() >= limit && !conn.output.is_full() {
                newly_full.push(receiver.key);
            }
        }
        if copies.messages == 1 {
            copies.last = None; // messages to other destinations come in between
        }
        copies.messages = 0;
        for suffixes in &mut copies.suffixes {
            suffixes.bytes.clear();
            suffixes.ends.clear();
        }
    }
}
