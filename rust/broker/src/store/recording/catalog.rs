//! What is recorded, in memory: the segments, and for each destination its numbers and where its messages stand.
//!
//! A destination has a *mark* for its first block in each segment, and one at each [`STRIDE`] bytes behind it. If there are very
//! many marks, the distance grows: reading then passes over more blocks of others.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::block::{Lease, Note, Span};
pub use super::extent::{Extent, Located, Place, Written};
use crate::door::HashMap;
use crate::door::medium::SharedFile;
use crate::store::file::entry::{Salt, SegmentNumber};

/// The distance of two marks of a destination in a segment at first.
const STRIDE: u64 = 64 << 10;
/// The marks of all destinations from which on the distance grows.
const MARKS_MAX: usize = 1 << 18;
/// The epochs that are remembered for a destination.
const SPANS_MAX: usize = 64;

/// Where a block of a destination stands.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mark {
    pub(super) first: u64,
    time_ms: u64,
    pub(super) place: Place,
    /// The bytes from here to the next mark.
    bytes: u64,
}

/// A recorded destination.
#[derive(Debug)]
pub(super) struct Track {
    pub(super) name: Arc<[u8]>,
    pub(super) spans: Vec<Span>,
    pub(super) marks: Vec<Mark>,
    pub(super) next: u64,
    durable: u64,
    pub(super) last_ms: u64,
    /// Its messages in an earlier process ended with this epoch, which goes on.
    epoch: u64,
    /// The last segment that has a block of it, or a note.
    pub(super) segment: SegmentNumber,
}

/// A segment.
#[derive(Debug)]
pub struct Segment {
    /// Its file.
    pub file: SharedFile,
    /// The salt of its entries.
    pub salt: Salt,
    /// Where its entries end.
    pub end: u64,
    /// Where its file ends.
    pub room: u64,
    /// The time of its last message.
    pub last_ms: u64,
    /// Damaged parts.
    pub holes: Vec<(u64, u64)>,
    /// Destinations that have blocks or notes in it.
    pub(super) tracks: Vec<u32>,
}

impl Segment {
    /// A segment without entries.
    #[must_use]
    pub fn new(file: SharedFile, salt: Salt, end: u64, room: u64) -> Self {
        Segment { file, salt, end, room, last_ms: 0, holes: Vec::new(), tracks: Vec::new() }
    }
}

/// Everything that is recorded.
#[derive(Debug)]
pub struct Catalog {
    pub(super) tracks: Vec<Option<Track>>,
    pub(super) free: Vec<u32>,
    pub(super) by_name: HashMap<Arc<[u8]>, u32>,
    /// The segments.
    pub segments: BTreeMap<SegmentNumber, Segment>,
    pub(super) leases: Vec<Lease>,
    /// Whether leases have changed since they were written.
    pub leases_changed: bool,
    stride: u64,
    pub(super) marks: usize,
    /// The epoch of destinations that have none yet.
    pub epoch: u64,
    /// Whether the recording was ended in order, so that epochs go on.
    pub was_closed: bool,
}

impl Default for Catalog {
    fn default() -> Self {
        Catalog {
            tracks: Vec::new(),
            free: Vec::new(),
            by_name: HashMap::default(),
            segments: BTreeMap::new(),
            leases: Vec::new(),
            leases_changed: false,
            stride: STRIDE,
            marks: 0,
            epoch: 1,
            was_closed: false,
        }
    }
}

/// The numbers with which a destination goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Start {
    /// Its epoch.
    pub epoch: u64,
    /// The number of its next message.
    pub next: u64,
    /// No message may be earlier than this.
    pub last_ms: u64,
}

impl Catalog {
    /// Nothing, as if it had been ended in order.
    #[must_use]
    pub fn closed() -> Self {
        Catalog { epoch: 0, was_closed: true, ..Catalog::default() }
    }

    /// The number of destinations.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_name.len()
    }

    /// The bytes of all files.
    #[must_use]
    pub fn disk_bytes(&self) -> u64 {
        self.segments.values().map(|segment| segment.room).sum()
    }

    /// The approximate memory in bytes.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        let names: usize = self.by_name.keys().map(|name| name.len()).sum();
        self.marks * size_of::<Mark>() + self.tracks.len() * (size_of::<Track>() + 64) + names
    }

    pub(super) fn track(&self, name: &[u8]) -> Option<&Track> {
        self.tracks[*self.by_name.get(name)? as usize].as_ref()
    }

    fn track_at(&mut self, name: &Arc<[u8]>) -> (u32, &mut Track) {
        let at = match self.by_name.get(name) {
            Some(at) => *at,
            None => {
                let track = Track {
                    name: Arc::clone(name),
                    spans: Vec::new(),
                    marks: Vec::new(),
                    next: 1,
                    durable: 1,
                    last_ms: 0,
                    epoch: 0,
                    segment: 0,
                };
                let at = self.free.pop().unwrap_or(self.tracks.len() as u32);
                if at as usize == self.tracks.len() {
                    self.tracks.push(None);
                }
                self.tracks[at as usize] = Some(track);
                self.by_name.insert(Arc::clone(name), at);
                at
            }
        };
        (at, self.tracks[at as usize].as_mut().expect("it is found by name or was added above"))
    }

    /// The numbers with which a destination goes on in this process.
    #[must_use]
    pub fn start(&self, name: &[u8]) -> Start {
        match self.track(name) {
            Some(Track { epoch, next, last_ms, .. }) => {
                let epoch = if self.was_closed && *epoch != 0 { *epoch } else { self.epoch };
                Start { epoch, next: *next, last_ms: *last_ms }
            }
            None => Start { epoch: self.epoch, next: 1, last_ms: 0 },
        }
    }

    /// A block stands in a segment.
    pub fn add(&mut self, block: &Written<'_>) {
        let stride = self.stride;
        let segment = block.place.segment;
        let (at, track) = self.track_at(block.name);
        let is_first = track.segment != segment || track.marks.is_empty();
        let is_far = track.marks.last().is_none_or(|last| block.place.offset >= last.place.offset + stride);
        let mut added = 0;
        if is_first || is_far {
            let Written { first, time_ms, place, bytes, .. } = *block;
            track.marks.push(Mark { first, time_ms, place, bytes });
            added = 1;
        } else if let Some(last) = track.marks.last_mut() {
            last.bytes += block.bytes;
        }
        let last = block.next - 1;
        match track.spans.last_mut() {
            Some(span) if span.epoch == block.epoch => span.last = span.last.max(last),
            _ => {
                track.spans.push(Span { epoch: block.epoch, first: block.first, last });
                if track.spans.len() > SPANS_MAX {
                    track.spans.remove(0);
                }
            }
        }
        track.epoch = block.epoch;
        track.next = track.next.max(block.next);
        track.last_ms = track.last_ms.max(block.last_ms);
        let is_new = track.segment != segment;
        track.segment = segment;
        self.marks += added;
        if let Some(segment) = self.segments.get_mut(&segment) {
            segment.last_ms = segment.last_ms.max(block.last_ms);
            if is_new {
                segment.tracks.push(at);
            }
        }
        if self.marks > MARKS_MAX {
            self.thin_out();
        }
    }

    /// Doubles the distance of marks.
    pub(super) fn thin_out(&mut self) {
        self.stride = self.stride.saturating_mul(2);
        self.marks = 0;
        for track in self.tracks.iter_mut().flatten() {
            let mut kept: Vec<Mark> = Vec::new();
            for mark in track.marks.drain(..) {
                match kept.last_mut() {
                    Some(last)
                        if last.place.segment == mark.place.segment
                            && mark.place.offset < last.place.offset + self.stride =>
                    {
                        last.bytes += mark.bytes;
                    }
                    _ => kept.push(mark),
                }
            }
            kept.shrink_to_fit();
            self.marks += kept.len();
            track.marks = kept;
        }
    }

    /// What is known of a destination from a note in a segment.
    pub fn note(&mut self, segment: SegmentNumber, note: Note) {
        let (at, track) = self.track_at(&note.name);
        track.segment = segment;
        if track.marks.is_empty() {
            track.epoch = note.spans.last().map_or(0, |span| span.epoch);
        }
        track.next = track.next.max(note.next);
        track.last_ms = track.last_ms.max(note.last_ms);
        for span in note.spans {
            if let Err(at) = track.spans.binary_search_by_key(&span.epoch, |span| span.epoch) {
                track.spans.insert(at, span);
            }
        }
        if let Some(segment) = self.segments.get_mut(&segment) {
            segment.tracks.push(at);
        }
    }

    /// All messages of a destination below this number are safe.
    pub fn set_durable(&mut self, name: &[u8], next: u64) {
        if let Some(at) = self.by_name.get(name)
            && let Some(track) = &mut self.tracks[*at as usize]
        {
            track.durable = track.durable.max(next);
        }
    }

    /// Everything that was found is safe.
    pub fn all_durable(&mut self) {
        self.tracks.iter_mut().flatten().for_each(|track| track.durable = track.next);
    }

    /// How much of a destination is recorded.
    #[must_use]
    pub fn extent(&self, name: &[u8]) -> Option<Extent> {
        self.track(name).map(Track::extent)
    }

    /// The same, of all destinations in no order.
    pub fn extents(&self) -> impl Iterator<Item = Extent> {
        self.tracks.iter().flatten().map(Track::extent)
    }

    /// Where to read a destination: from the block that has this number, or the first one behind it; or from a place on that
    /// an earlier call has led to. `None`: nothing more was written.
    #[must_use]
    pub fn locate(&self, name: &[u8], seq: u64, from: Option<Place>) -> Option<Located> {
        let track = self.track(name)?;
        let mut place = match from {
            Some(from) => from,
            None if seq >= track.next => return None,
            None => {
                let after = track.marks.partition_point(|mark| mark.first <= seq);
                track.marks.get(after.saturating_sub(1))?.place
            }
        };
        loop {
            let after = track.marks.partition_point(|mark| mark.place <= place);
            let following = track.marks.get(after).map(|mark| mark.place);
            let mark = after.checked_sub(1).map(|before| track.marks[before].place);
            let found = mark
                .filter(|mark| mark.segment == place.segment)
                .and_then(|mark| Some((mark, self.segments.get(&mark.segment)?)));
            if let Some((mark, segment)) = found {
                let hole = segment.holes.iter().find(|(from, to)| (*from..*to).contains(&place.offset));
                place.offset = hole.map_or(place.offset, |(_, to)| *to);
                // A block that is further away from its mark has one of its own.
                let mut until = segment.end.min(mark.offset.saturating_add(self.stride));
                if let Some(following) = following.filter(|following| following.segment == mark.segment) {
                    until = until.min(following.offset);
                }
                if let Some((hole, _)) = segment.holes.iter().find(|(from, _)| *from > place.offset) {
                    until = until.min(*hole);
                }
                if place.offset < until {
                    let (file, salt, end) = (Arc::clone(&segment.file), segment.salt, segment.end);
                    return Some(Located { file, salt, place, until, end });
                }
                if hole.is_some() {
                    continue;
                }
            }
            place = following?;
        }
    }

    /// The place from which on messages of this time and later stand, and perhaps some earlier ones.
    #[must_use]
    pub fn place_at(&self, name: &[u8], time_ms: u64) -> Option<Place> {
        let track = self.track(name)?;
        let after = track.marks.partition_point(|mark| mark.time_ms < time_ms);
        track.marks.get(after.saturating_sub(1)).map(|mark| mark.place)
    }
}

impl Track {
    fn extent(&self) -> Extent {
        Extent {
            name: Arc::clone(&self.name),
            epoch: self.epoch,
            first: self.marks.first().map_or(self.next, |mark| mark.first),
            next: self.next,
            durable: self.durable,
            last_ms: self.last_ms,
            bytes: self.marks.iter().map(|mark| mark.bytes).sum(),
            spans: self.spans.clone(),
        }
    }
}
