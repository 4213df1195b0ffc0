//! The numbers of recorded destinations whose home is one shard, and their messages of this turn.

use std::borrow::Cow;
use std::sync::Arc;

use memchr::memmem;

use crate::door::HashMap;
use crate::ids::ShardId;
use crate::message::OwnedMessage;
use crate::store::Position;
use crate::store::recording::block::{Block, Recorded};
use crate::store::recording::catalog::Start;
use crate::store::recording::desk::Desk;

/// The approximate memory of a destination besides its name.
const DESTINATION_BYTES: usize = size_of::<(Arc<[u8]>, Numbers)>() + 40;

/// A destination.
#[derive(Debug)]
struct Numbers {
    epoch: u64,
    next: u64,
    /// The number with which it began in this process.
    began: u64,
    last_ms: u64,
    /// Its block of this turn.
    open: Option<usize>,
    /// Shards with replays, as bits.
    watchers: u64,
}

/// The destinations of one home.
#[derive(Debug, Default)]
pub struct Homes {
    known: HashMap<Arc<[u8]>, Numbers>,
    name_bytes: usize,
    blocks: Vec<Block>,
    /// The number of messages that were recorded here.
    position: Position,
}

impl Homes {
    fn numbers<'a>(&'a mut self, desk: &Desk, name: &[u8]) -> (Arc<[u8]>, &'a mut Numbers) {
        let name = match self.known.get_key_value(name) {
            Some((name, _)) => Arc::clone(name),
            None => {
                let Start { epoch, next, last_ms } = desk.catalog().start(name);
                let name: Arc<[u8]> = name.into();
                self.name_bytes += name.len();
                self.known.insert(
                    Arc::clone(&name),
                    Numbers { epoch, next, began: next, last_ms, open: None, watchers: 0 },
                );
                name
            }
        };
        let numbers = self.known.get_mut(&name).expect("found or inserted above");
        (name, numbers)
    }

    /// The number of destinations.
    #[must_use]
    pub fn len(&self) -> usize {
        self.known.len()
    }

    /// Whether a destination is known.
    #[must_use]
    pub fn knows(&self, name: &[u8]) -> bool {
        self.known.contains_key(name)
    }

    /// Records a message. Returns it with the headers `seq` and `epoch`; headers of these names that its sender gave it are
    /// left out. `wall_ms` is the time since 1970.
    pub fn record(&mut self, desk: &Desk, message: OwnedMessage, wall_ms: u64) -> OwnedMessage {
        let view = message.message();
        let headers = without_numbers(view.headers);
        let position = self.position + 1;
        let first_free = self.blocks.len();
        let (name, numbers) = self.numbers(desk, view.destination);
        let time_ms = wall_ms.max(numbers.last_ms);
        let (seq, epoch) = (numbers.next, numbers.epoch);
        (numbers.next, numbers.last_ms) = (seq + 1, time_ms);
        let open = numbers.open;
        let at = match open.filter(|at| !self.blocks[*at].is_full()) {
            Some(at) => at,
            None => {
                self.blocks.push(Block::new(Arc::clone(&name), epoch, seq, time_ms));
                if let Some(numbers) = self.known.get_mut(&name) {
                    numbers.open = Some(first_free);
                }
                first_free
            }
        };
        let (plain, persistent) = (view.plain, message.persistent);
        self.blocks[at].push(&Recorded {
            time_ms,
            plain,
            persistent,
            id: view.id,
            headers: &headers,
            body: view.body,
        });
        self.position = position;
        message.with_headers(&numbered(seq, epoch, &headers))
    }

    /// A shard has a replay of this destination from now on. Returns its epoch and the number of its next message: the shard is
    /// told of all blocks from there on.
    pub fn watch(&mut self, desk: &Desk, name: &[u8], shard: ShardId) -> (u64, u64) {
        let (_, numbers) = self.numbers(desk, name);
        numbers.watchers |= shard.bit();
        // Messages of the block that is open come with it.
        (numbers.epoch, numbers.next)
    }

    /// A shard has no replay of this destination any more.
    pub fn unwatch(&mut self, name: &[u8], shard: ShardId) {
        if let Some(numbers) = self.known.get_mut(name) {
            numbers.watchers &= !shard.bit();
            // Clients may ask for any number of names; those without messages leave nothing behind.
            if numbers.watchers == 0 && numbers.next == numbers.began {
                self.known.remove(name);
                self.name_bytes -= name.len();
            }
        }
    }

    /// The number of messages that were recorded.
    #[must_use]
    pub fn position(&self) -> Position {
        self.position
    }

    /// Whether messages were recorded in this turn.
    #[must_use]
    pub fn has_blocks(&self) -> bool {
        !self.blocks.is_empty()
    }

    /// Takes the blocks of this turn, in order; and again those that shards have to be told of, as bits.
    #[must_use]
    #[allow(clippy::type_complexity)]
    pub fn take_blocks(&mut self) -> (Vec<Arc<Block>>, Vec<(u64, Arc<Block>)>) {
        let blocks: Vec<Arc<Block>> = self.blocks.drain(..).map(Arc::new).collect();
        let mut watched = Vec::new();
        for block in &blocks {
            if let Some(numbers) = self.known.get_mut(&block.name) {
                numbers.open = None;
                if numbers.watchers != 0 {
                    watched.push((numbers.watchers, Arc::clone(block)));
                }
            }
        }
        (blocks, watched)
    }

    /// The approximate memory in bytes.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.known.len() * DESTINATION_BYTES + self.name_bytes
    }
}

/// Headers that begin with the numbers of a message.
#[must_use]
pub fn numbered(seq: u64, epoch: u64, headers: &[u8]) -> Vec<u8> {
    let mut all = Vec::with_capacity(headers.len() + 40);
    for (name, number) in [(&b"seq:"[..], seq), (b"epoch:", epoch)] {
        all.extend_from_slice(name);
        all.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
        all.push(b'\n');
    }
    all.extend_from_slice(headers);
    all
}

/// Headers without any `seq` and `epoch`.
fn without_numbers(headers: &[u8]) -> Cow<'_, [u8]> {
    let has = |name: &[u8]| memmem::find(headers, name).is_some();
    let is_number = |line: &[u8]| line.starts_with(b"seq:") || line.starts_with(b"epoch:");
    if !has(b"seq:") && !has(b"epoch:") {
        return Cow::Borrowed(headers);
    }
    headers
        .split_inclusive(|byte| *byte == b'\n')
        .filter(|line| !is_number(line))
        .flatten()
        .copied()
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_the_sender_are_left_out() {
        for (headers, left) in [
            (&b""[..], &b""[..]),
            (b"a:b\nsequel:1\n", b"a:b\nsequel:1\n"),
            (b"seq:5\na:seq:1\nepoch:2\nseq:6\n", b"a:seq:1\n"),
            (b"my-epoch:3\n", b"my-epoch:3\n"),
        ] {
            assert_eq!(&*without_numbers(headers), left);
        }
        assert_eq!(numbered(7, 9, b"a:b\n"), b"seq:7\nepoch:9\na:b\n");
    }
}
