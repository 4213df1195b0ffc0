//! How much input is not done with, on this shard and on all.

use std::sync::atomic::{AtomicI64, Ordering};

use stompica_proto::decode::offending_head;

use super::READ_BYTES;
use crate::ids::ConnKey;

/// The others learn at once of a change by more than this, else once a turn.
pub(crate) const SYNC_BYTES: i64 = 1 << 20;

/// A connection is always read up to this, so that small frames pass.
pub(crate) const BITE_BYTES_MIN: i64 = 4 << 10;

/// What one shard knows of unfinished input: its own and that of all shards.
#[derive(Debug, Default)]
pub(crate) struct Unfinished {
    pub(crate) bytes: i64,
    published: i64,
    pub(crate) elsewhere: i64,
    /// `memory_limit`.
    pub(crate) limit: i64,
    pub(crate) bite: i64,
    /// The connection that is read on all the same.
    pub(crate) turn: Option<Turn>,
    /// The next turn is that of the frame that has waited longest, not of the one that lacks least.
    pub(crate) longest_next: bool,
    pub(crate) next_check_ms: u64,
}

/// A frame arrives while others wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Turn {
    pub(crate) key: ConnKey,
    pub(crate) since_ms: u64,
    /// Bytes of it that had come before.
    pub(crate) bytes_before: usize,
}

impl Unfinished {
    /// Counts a change on this shard.
    pub(crate) fn add(&mut self, change: i64, everywhere: &AtomicI64) {
        self.bytes += change;
        if (self.bytes - self.published).abs() > SYNC_BYTES {
            self.sync(everywhere);
        }
    }

    pub(crate) fn sync(&mut self, everywhere: &AtomicI64) {
        let change = self.bytes - self.published;
        let before = match change {
            0 => everywhere.load(Ordering::Relaxed),
            _ => everywhere.fetch_add(change, Ordering::Relaxed),
        };
        self.elsewhere = before - self.published;
        self.published = self.bytes;
    }

    /// Brings it up to date, once a turn.
    pub(crate) fn look(&mut self, everywhere: &AtomicI64, memory_limit: u64, connections: usize) {
        self.sync(everywhere);
        let limit = i64::try_from(memory_limit).unwrap_or(i64::MAX);
        self.limit = limit;
        let share = limit / 64 / i64::try_from(connections.max(1)).unwrap_or(i64::MAX);
        self.bite = share.clamp(BITE_BYTES_MIN, READ_BYTES as i64);
    }

    /// Bytes on all shards.
    pub(crate) fn total(&self) -> i64 {
        self.bytes + self.elsewhere
    }

    /// Whether frames arrive one at a time.
    pub(crate) fn is_over(&self) -> bool {
        self.total() + READ_BYTES as i64 > self.limit / 12
    }

    /// By how much there is more than one frame after the other can relieve; negative if there is not.
    pub(crate) fn crowd(&self) -> i64 {
        self.total() - self.limit / 6
    }

    /// By how much there is more than there may ever be; negative if there is not. What has come may be a quarter, and
    /// there is room for half as much behind it.
    pub(crate) fn excess(&self) -> i64 {
        self.total() - self.limit / 8 * 3
    }

    /// How much a connection may hold and is not refused, though all hold too much together: others are to blame, maybe
    /// on other shards, and what everybody may hold is little.
    pub(crate) fn harmless(&self) -> i64 {
        if self.total() > self.limit / 2 { 0 } else { 2 * self.bite }
    }

    /// How little each connection may keep where much is kept.
    pub(crate) fn bite(&self) -> usize {
        self.bite as usize
    }

    /// How much is read at a time from a connection.
    pub(crate) fn read_bytes(&self, key: ConnKey) -> usize {
        if self.is_over() && !self.has_turn(key) { self.bite as usize } else { READ_BYTES }
    }

    /// Whether this is the connection whose frame may arrive.
    pub(crate) fn has_turn(&self, key: ConnKey) -> bool {
        self.turn.is_some_and(|turn| turn.key == key)
    }

    /// The shard ends.
    pub(crate) fn forget(&mut self, everywhere: &AtomicI64) {
        self.bytes = 0;
        self.sync(everywhere);
    }
}

/// The command and headers of a SEND that begins `input`, as far as they are complete lines.
pub(crate) fn send_head(input: &[u8]) -> Option<&[u8]> {
    let head = offending_head(input);
    let lines = head.get(..head.iter().rposition(|byte| *byte == b'\n')? + 1)?;
    (lines.starts_with(b"SEND\n") || lines.starts_with(b"SEND\r\n")).then_some(lines)
}

#[cfg(test)]
mod tests {
    use stompica_proto::decode::head_value;
    use stompica_proto::header;

    use super::*;

    const MIB: i64 = 1 << 20;

    #[test]
    fn shards_learn_of_each_other() {
        let everywhere = AtomicI64::new(0);
        let (mut one, mut other) = (Unfinished::default(), Unfinished::default());
        for shard in [&mut one, &mut other] {
            shard.look(&everywhere, 96 << 20, 1);
            assert!(!shard.is_over());
        }
        one.add(4 * MIB, &everywhere);
        other.add(3 * MIB, &everywhere);
        assert_eq!((one.total(), other.total()), (4 * MIB, 7 * MIB), "by the last look of each");
        one.look(&everywhere, 96 << 20, 1);
        assert_eq!(one.total(), 7 * MIB);
        other.add(MIB, &everywhere);
        assert!(other.is_over() && !one.is_over());
        one.look(&everywhere, 96 << 20, 1);
        assert!(!one.is_over(), "a small change is told once a turn");
        other.look(&everywhere, 96 << 20, 1);
        one.look(&everywhere, 96 << 20, 1);
        assert!(one.is_over());
        other.forget(&everywhere);
        one.look(&everywhere, 96 << 20, 1);
        assert_eq!(one.total(), 4 * MIB);
    }

    #[test]
    fn reads_are_small_while_there_is_too_much() {
        let everywhere = AtomicI64::new(0);
        let mut shard = Unfinished::default();
        shard.look(&everywhere, 64 << 20, 100);
        let (key, other) = (ConnKey { index: 1, generation: 1 }, ConnKey { index: 2, generation: 1 });
        assert_eq!(shard.read_bytes(key), READ_BYTES);
        shard.add(16 * MIB, &everywhere);
        shard.turn = Some(Turn { key, since_ms: 0, bytes_before: 0 });
        assert_eq!((shard.read_bytes(key), shard.read_bytes(other)), (READ_BYTES, (1 << 20) / 100));
        shard.look(&everywhere, 64 << 20, 1_000_000);
        assert_eq!(shard.read_bytes(other), BITE_BYTES_MIN as usize);
    }

    #[test]
    fn only_the_lines_that_are_complete_are_looked_at() {
        assert_eq!(send_head(b"SEND\ndestination:/queue/a"), Some(&b"SEND\n"[..]));
        let head = send_head(b"SEND\r\ndestination:/queue/a\r\n\r\nbody").expect("a SEND");
        assert_eq!(head_value(head, header::DESTINATION), Some(&b"/queue/a"[..]));
        assert_eq!((send_head(b"SEN"), send_head(b"ACK\nid:1\n")), (None, None));
    }
}
