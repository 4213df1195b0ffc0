//! Where the log has each message that is still needed: about nine bytes a message.
//!
//! Records are numbered in blocks, each of which one shard uses up in order. So messages that wait together have records near
//! each other, and a page of the table, which ends with the last message on it, is mostly full.

use std::collections::hash_map::Entry;

use super::entry::SegmentNumber;
use crate::door::HashMap;
use crate::ids::RecordId;

/// The records of a page.
const PAGE: usize = 256;
/// The bits of an offset in a segment.
const OFFSET_BITS: u32 = 36;
/// The largest number of a segment.
pub const SEGMENT_MAX: SegmentNumber = (1 << (64 - OFFSET_BITS)) - 2;
/// The end of the longest segment.
pub const OFFSET_MAX: u64 = (1 << OFFSET_BITS) - 1;

/// Where an entry stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The segment; 0: the group that is being put together.
    pub segment: SegmentNumber,
    /// The offset of its first byte; in a group, the number that the group gives it.
    pub offset: u64,
}

/// The place and the length of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stored {
    /// The place.
    pub place: Place,
    /// The length in bytes, rounded down by an eighth at most.
    pub length: u64,
}

#[derive(Debug)]
struct Page {
    used: u16,
    /// Segment and offset, or [`NONE`].
    places: [u64; PAGE],
    lengths: [u8; PAGE],
}

const NONE: u64 = u64::MAX;

impl Page {
    fn new() -> Box<Self> {
        Box::new(Page { used: 0, places: [NONE; PAGE], lengths: [0; PAGE] })
    }

    fn stored(&self, at: usize) -> Option<Stored> {
        let packed = self.places[at];
        let segment = (packed >> OFFSET_BITS) as SegmentNumber;
        let place = Place { segment, offset: packed & OFFSET_MAX };
        (packed != NONE).then(|| Stored { place, length: long(self.lengths[at]) })
    }
}

/// The length that is kept of a length: its four highest bits.
#[must_use]
pub fn rounded(length: u64) -> u64 {
    long(short(length))
}

/// A length in one byte: the three bits behind its highest one, and how far they are shifted.
fn short(length: u64) -> u8 {
    let shift = length.max(8).ilog2() - 3;
    (shift as u8) << 3 | (length >> shift) as u8 & 7
}

fn long(short: u8) -> u64 {
    u64::from(8 | short & 7) << (short >> 3)
}

/// The places of all messages.
#[derive(Debug, Default)]
pub struct Table {
    pages: HashMap<u64, Box<Page>>,
    /// The number of messages.
    len: usize,
}

impl Table {
    fn split(record: RecordId) -> (u64, usize) {
        (record / PAGE as u64, (record % PAGE as u64) as usize)
    }

    /// Sets the place of a message, and returns the one before.
    pub fn set(&mut self, record: RecordId, place: Place, length: u64) -> Option<Stored> {
        debug_assert!(place.segment <= SEGMENT_MAX && place.offset <= OFFSET_MAX);
        let (number, at) = Self::split(record);
        let page = self.pages.entry(number).or_insert_with(Page::new);
        let before = page.stored(at);
        page.places[at] = u64::from(place.segment) << OFFSET_BITS | place.offset;
        page.lengths[at] = short(length);
        if before.is_none() {
            page.used += 1;
            self.len += 1;
        }
        before
    }

    /// Where a message stands.
    #[must_use]
    pub fn find(&self, record: RecordId) -> Option<Stored> {
        let (number, at) = Self::split(record);
        self.pages.get(&number)?.stored(at)
    }

    /// Removes a message.
    pub fn remove(&mut self, record: RecordId) -> Option<Stored> {
        let (number, at) = Self::split(record);
        let Entry::Occupied(mut page) = self.pages.entry(number) else { return None };
        let stored = page.get().stored(at)?;
        page.get_mut().places[at] = NONE;
        page.get_mut().used -= 1;
        if page.get().used == 0 {
            page.remove();
        }
        self.len -= 1;
        Some(stored)
    }

    /// The number of messages.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no message.
    #[must_use]
    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Approximate memory of the table in bytes.
    #[must_use]
    #[cfg(test)]
    pub fn bytes(&self) -> usize {
        self.pages.capacity() * 17 + self.pages.len() * size_of::<Page>()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_length_is_rounded_down_by_an_eighth_at_most() {
        for length in (9..5000).chain([1 << 20, (1 << 30) - 1, 1 << 30]) {
            let kept = rounded(length);
            assert!(kept <= length && kept > length - length / 8 - 1, "{length} is kept as {kept}");
        }
    }

    #[test]
    fn messages_that_wait_together_take_nine_bytes_each() {
        let mut table = Table::default();
        let place = Place { segment: SEGMENT_MAX, offset: OFFSET_MAX };
        for record in 1..=100_000 {
            assert_eq!(table.set(record, place, 300), None);
        }
        assert!(table.bytes() < 100_000 * 10, "{} bytes", table.bytes());
        assert_eq!(table.find(7), Some(Stored { place, length: 288 }));
        (1..=100_000).for_each(|record| assert!(table.remove(record).is_some()));
        assert!(table.is_empty() && table.pages.is_empty());
    }

    proptest! {
        #[test]
        fn it_agrees_with_a_map(
            steps in proptest::collection::vec((0..600u64, any::<bool>(), 0..1000u64), 0..300)
        ) {
            let (mut table, mut map) = (Table::default(), BTreeMap::new());
            for (record, is_set, offset) in steps {
                let place = Place { segment: 1, offset };
                let before = if is_set { map.insert(record, place) } else { map.remove(&record) };
                let found = if is_set { table.set(record, place, 20) } else { table.remove(record) };
                prop_assert_eq!(found.map(|stored| stored.place), before);
                prop_assert_eq!(table.len(), map.len());
            }
            for record in 0..600 {
                prop_assert_eq!(table.find(record).map(|stored| stored.place), map.get(&record).copied());
            }
        }
    }
}
