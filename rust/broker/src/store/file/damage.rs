//! Damage in a segment: where to go on behind it, and what is known of what is lost.

use std::fmt;
use std::iter::successors;

use super::entry::{
    Entry, Found, GROUP_BYTES, Group, HEAD_BYTES, Salt, SegmentNumber, TRANSACTION, messages_in,
};
use crate::ids::RecordId;

/// How far an entry is looked for behind damage of which not even the length is known, and the longest one that is found so.
const SEARCH_BYTES: usize = 16 << 10;

/// What is damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    /// The beginning of a group; its entries are whole.
    GroupHead,
    /// One entry, whose neighbours are whole.
    Entry,
    /// Nobody knows.
    Unknown,
}

/// The most messages of one damage that are named.
const NAMED_MAX: usize = 100;

/// A part of a segment that the disk has lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The segment.
    pub segment: SegmentNumber,
    /// Its first byte.
    pub from: u64,
    /// The byte behind it.
    pub to: u64,
    /// The file to which it was copied; `None`: that failed, too.
    pub copy: Option<String>,
    /// How many messages were lost; `None`: that is unknown. Messages that were no longer needed count, too.
    pub messages: Option<u64>,
    /// The queues and records of lost messages, as far as they can still be read: what is damaged may be wrong, too.
    pub affected: Vec<(Vec<u8>, RecordId)>,
}

impl Damage {
    /// What is known of the damage in these bytes, which begin at an offset of a segment.
    #[must_use]
    pub fn of(segment: SegmentNumber, from: u64, bytes: &[u8], broken: Broken) -> Self {
        let (mut affected, mut at, mut entries) = (Vec::new(), 0, 0);
        // Behind the first damaged entry there may be more of them.
        while let Some(length) = entry_length(bytes, at)
            && affected.len() < NAMED_MAX
        {
            let named = messages_in(&bytes[at..]).map(|message| (message.queue.to_vec(), message.record));
            let before = affected.len();
            affected.extend(named.take(NAMED_MAX));
            entries += usize::from(affected.len() > before);
            at += if bytes[at + 8] == TRANSACTION { HEAD_BYTES } else { length };
        }
        let to = from.saturating_add(bytes.len() as u64);
        let messages = match broken {
            Broken::GroupHead => Some(0),
            Broken::Entry if entries == 1 && affected.len() < NAMED_MAX => Some(affected.len() as u64),
            Broken::Entry | Broken::Unknown => None,
        };
        Damage { segment, from, to, copy: None, messages, affected }
    }
}

impl fmt::Display for Damage {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Damage { segment, from, to, .. } = self;
        write!(formatter, "segment {segment} is damaged from byte {from} to {to}: ")?;
        match self.messages {
            Some(messages) => write!(formatter, "{messages} messages are lost")?,
            None => write!(formatter, "an unknown number of messages is lost")?,
        }
        for (at, (queue, record)) in self.affected.iter().take(3).enumerate() {
            let queue = String::from_utf8_lossy(queue);
            write!(formatter, "{} record {record} of '{queue}'", if at == 0 { ", probably" } else { "," })?;
        }
        match &self.copy {
            Some(copy) => write!(formatter, " ({copy} has what was there)"),
            None => write!(formatter, " (what was there could not be copied)"),
        }
    }
}

/// The length of the entry at an offset according to itself, if so much is there.
fn entry_length(bytes: &[u8], at: usize) -> Option<usize> {
    let length = u32::from_le_bytes(*bytes.get(at..)?.first_chunk::<4>()?) as usize;
    let whole = length.checked_add(8)?;
    (length > 0 && bytes.len() - at >= whole).then_some(whole)
}

/// Where to go on behind what is no valid entry, at least one byte further on or at the end, and what is broken then.
/// `group_end`: the end of the group in which it stands; `None`: it stands where a group has to begin.
#[must_use]
pub fn resume(bytes: &[u8], at: usize, group_end: Option<usize>, salt: Salt) -> (usize, Broken) {
    let is_entry =
        |at: usize| bytes.get(at..).is_some_and(|bytes| matches!(Found::at(bytes, salt), Found::Entry(..)));
    // The beginning of a group is always so long.
    if is_entry(at.saturating_add(GROUP_BYTES)) {
        let broken = if group_end.is_none() { Broken::GroupHead } else { Broken::Entry };
        return (at + GROUP_BYTES, broken);
    }
    // The transaction is damaged, but it was confirmed: its other entries are served.
    if bytes.get(at.saturating_add(8)) == Some(&TRANSACTION) && is_entry(at + HEAD_BYTES) {
        return (at + HEAD_BYTES, Broken::Unknown);
    }
    // Its own length tells where the next one begins, if it is right.
    let end = group_end.unwrap_or(bytes.len()).min(bytes.len());
    match entry_length(bytes, at).map(|length| at + length) {
        Some(next) if next < end && is_entry(next) => (next, Broken::Entry),
        Some(next) if Some(next) == group_end => (next, Broken::Entry),
        _ => {
            // The next group is looked for last: that may take a walk to the end, for each of many damaged parts.
            let group = || next_group(bytes, at + 1, salt).map_or(bytes.len(), |(start, _)| start);
            (search(bytes, at + 1, salt).unwrap_or_else(group), Broken::Unknown)
        }
    }
}

/// The next valid entry from an offset on, if it is near and small. It is one of the segment: nobody else knows the salt.
fn search(bytes: &[u8], from: usize, salt: Salt) -> Option<usize> {
    let is_small = |at: usize| entry_length(bytes, at).is_some_and(|length| length <= SEARCH_BYTES);
    let is_entry = |at: usize| matches!(Found::at(&bytes[at..], salt), Found::Entry(..));
    // Blocks that were lost are often zeros; no entry begins with a zero unless its length is a multiple of 256.
    let zeros = bytes.get(from..)?.iter().take_while(|byte| **byte == 0).count();
    let first = from + zeros.saturating_sub(1);
    (first..bytes.len().min(first + SEARCH_BYTES)).find(|at| is_small(*at) && is_entry(*at))
}

/// The next valid beginning of a group at or behind an offset.
#[must_use]
pub fn next_group(bytes: &[u8], from: usize, salt: Salt) -> Option<(usize, Group)> {
    let bytes_of_salt = salt.0.to_le_bytes();
    let mut salts = memchr::memmem::find_iter(bytes.get(from..)?, &bytes_of_salt);
    salts.find_map(|found| {
        let start = (from + found).checked_sub(HEAD_BYTES).filter(|start| *start >= from)?;
        match Found::at(&bytes[start..], salt) {
            Found::Entry(Entry::Group(group), _) => Some((start, group)),
            _ => None,
        }
    })
}

/// The valid beginnings of groups at or behind an offset.
pub fn groups(bytes: &[u8], from: usize, salt: Salt) -> impl Iterator<Item = (usize, Group)> {
    successors(next_group(bytes, from, salt), move |(start, _)| next_group(bytes, start + 1, salt))
}

/// The last group that any group behind an offset calls synced; 0: none does.
#[must_use]
pub fn synced_behind(bytes: &[u8], from: usize, salt: Salt) -> u64 {
    groups(bytes, from, salt).map(|(_, group)| group.synced).max().unwrap_or(0)
}
