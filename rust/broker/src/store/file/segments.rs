//! All segments of a log, and the room for further ones.
//!
//! The last segment is written to. Behind it wait spare files whose room is reserved: one for the next segment, so that a full
//! disk is noticed while there is still room for what is on its way, and those of the *reserve*. When the disk is full, the
//! reserve serves what makes room: notes of messages that are no longer needed may take all of it but for what compaction
//! needs to replace a segment. A spare file becomes a segment by its header and a new name.

use std::collections::BTreeMap;
use std::io;

use super::entry::{Salt, SegmentNumber};
use super::segment::{self, HEADER_BYTES, Header, Segment, SegmentFile};
use super::table::{SEGMENT_MAX, Stored};
use crate::door::medium::{Medium, SharedFile, is_no_room};
use crate::door::{planted, random_bytes};
use crate::ids::RecordId;

/// The fewest spare files of the reserve.
const RESERVE_MIN: usize = 2;
/// The beginning of the names of spare files.
const SPARE: &str = "spare-";

/// What is written, and so how much of the room it may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Messages: nothing of the reserve.
    Messages,
    /// What makes room later: it leaves so many bytes to compaction.
    Forgets(u64),
    /// Compaction makes room at once: everything.
    Compaction,
    /// The log ends: everything but for one segment, without which a full log could not be compacted at the next start.
    End,
}

/// A file whose room is reserved and that has no entries.
#[derive(Debug)]
pub struct Spare {
    name: String,
    file: SharedFile,
    room: u64,
}

/// The segments of a log.
#[derive(Debug)]
pub struct Segments {
    medium: Box<dyn Medium>,
    all: BTreeMap<SegmentNumber, Segment>,
    /// The length of a segment, unless one group needs more.
    segment_bytes: u64,
    spares: Vec<Spare>,
    /// The number of spare files of the reserve.
    reserve: usize,
    /// Whether the last attempt to create a spare file has found no room.
    is_full: bool,
}

/// Whether a file has the name of a spare one.
#[must_use]
pub fn is_spare(name: &str) -> bool {
    name.strip_prefix(SPARE).is_some_and(|number| number.parse::<u32>().is_ok())
}

impl Segments {
    /// The segments that were found in a directory. Spare files in it are used again.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn new(
        medium: Box<dyn Medium>,
        segment_bytes: u64,
        found: BTreeMap<SegmentNumber, Segment>,
    ) -> io::Result<Self> {
        let mut spares = Vec::new();
        for name in medium.list()?.into_iter().filter(|name| is_spare(name)) {
            match medium.open(&name).and_then(|file| Ok((file.length()?, file))) {
                Ok((room, file)) if room == segment_bytes => spares.push(Spare { name, file, room }),
                _ => _ = medium.remove(&name),
            }
        }
        Ok(Segments { medium, all: found, segment_bytes, spares, reserve: RESERVE_MIN, is_full: false })
    }

    /// Sets the bytes of the reserve; they are rounded to whole segments, two at least.
    pub fn set_reserve(&mut self, bytes: u64) {
        self.reserve =
            RESERVE_MIN.max(usize::try_from(bytes.div_ceil(self.segment_bytes)).unwrap_or(usize::MAX));
    }

    /// The segment that is written to.
    #[must_use]
    pub fn current(&self) -> Option<&Segment> {
        self.all.last_key_value().map(|(_, segment)| segment)
    }

    /// As [`current`](Segments::current), to be changed.
    pub fn current_mut(&mut self) -> Option<&mut Segment> {
        self.all.last_entry().map(std::collections::btree_map::OccupiedEntry::into_mut)
    }

    /// A segment.
    #[must_use]
    pub fn find(&self, number: SegmentNumber) -> Option<&Segment> {
        self.all.get(&number)
    }

    /// A segment, to be changed.
    pub fn find_mut(&mut self, number: SegmentNumber) -> Option<&mut Segment> {
        self.all.get_mut(&number)
    }

    /// All segments, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &Segment> {
        self.all.values()
    }

    /// The length of a segment, unless one group needs more.
    #[must_use]
    pub fn segment_bytes(&self) -> u64 {
        self.segment_bytes
    }

    /// The bytes of the files of the reserve.
    #[must_use]
    pub fn reserve_bytes(&self) -> u64 {
        self.spares.iter().take(self.reserve).map(|spare| spare.room).sum()
    }

    /// The bytes that can be written before new room is needed.
    #[must_use]
    pub fn free_bytes(&self) -> u64 {
        let free = self.current().map_or(0, |current| current.room.saturating_sub(current.end));
        free + self.spare_bytes()
    }

    /// The bytes of all spare files.
    #[must_use]
    pub fn spare_bytes(&self) -> u64 {
        self.spares.iter().map(|spare| spare.room).sum()
    }

    /// The bytes of all entries that are needed.
    #[must_use]
    pub fn needed_bytes(&self) -> u64 {
        self.all.values().map(Segment::needed_bytes).sum()
    }

    /// A message is no longer needed at its place.
    pub fn release(&mut self, stored: Stored) {
        if let Some(segment) = self.all.get_mut(&stored.place.segment) {
            segment.release(stored);
        }
    }

    /// Whether so many bytes may be written for this purpose. `free`: the bytes that are left in the current segment.
    #[must_use]
    pub fn may_take(&self, bytes: u64, free: u64, purpose: Purpose) -> bool {
        let rest = match purpose {
            Purpose::Messages => (self.reserve as u64).saturating_mul(self.segment_bytes),
            Purpose::Forgets(rest) => rest,
            Purpose::End => self.segment_bytes,
            Purpose::Compaction => return true,
        };
        let spare = self.spare_bytes();
        // What is longer than a segment gets a file of its own.
        match bytes {
            _ if bytes <= free => spare >= rest || free >= rest.saturating_add(bytes),
            _ if bytes + HEADER_BYTES > self.segment_bytes => spare >= rest,
            _ => spare >= rest.saturating_add(bytes),
        }
    }

    /// Begins a new segment with room for so many bytes; everything before must be safe. All records so far are smaller than
    /// `record`, and `group` is the number of its first group.
    ///
    /// # Errors
    /// There is no room: nothing has changed then. Or the disk fails.
    pub fn begin(&mut self, bytes: u64, record: RecordId, group: u64) -> io::Result<()> {
        let number = self.next_number()?;
        let spare = match self.spares.pop_if(|spare| spare.room >= HEADER_BYTES + bytes) {
            Some(spare) => spare,
            None => self.create_for(HEADER_BYTES + bytes)?,
        };
        let salt = Salt(u64::from_le_bytes(random_bytes()));
        let written = spare.file.write_at(&Header { number, record, group, salt }.bytes(), 0);
        // Its name says that it has a header: that has to be safe before.
        let written = written.and_then(|()| spare.file.sync_data());
        if let Err(error) = written.and_then(|()| self.medium.rename(&spare.name, &segment::name(number))) {
            self.spares.push(spare);
            return Err(error);
        }
        if !planted!("directory-not-synced") {
            self.medium.sync()?;
        }
        self.cut_current();
        let file = SegmentFile { file: spare.file, salt };
        self.all.insert(number, Segment::new(number, file, spare.room));
        Ok(())
    }

    /// Gives back what the current segment does not use: nothing more is written to it.
    fn cut_current(&mut self) {
        if let Some(current) = self.current_mut()
            && current.room > current.end
            && current.file.file.set_length(current.end).is_ok()
        {
            current.room = current.end;
        }
    }

    fn next_number(&self) -> io::Result<SegmentNumber> {
        let number = self.current().map_or(1, |current| current.number + 1);
        match number <= SEGMENT_MAX {
            true => Ok(number),
            false => Err(io::Error::other("no more segments can be numbered; export and import the store")),
        }
    }

    /// A file for so many bytes: as long as a segment, or shorter if there is no room for that.
    fn create_for(&mut self, bytes: u64) -> io::Result<Spare> {
        match self.create(bytes.max(self.segment_bytes)) {
            Err(error) if is_no_room(&error) && bytes < self.segment_bytes => {
                self.cut_current();
                self.create(bytes)
            }
            other => other,
        }
    }

    fn create(&self, room: u64) -> io::Result<Spare> {
        let names = (0..u32::MAX).map(|number| format!("{SPARE}{number}"));
        let is_free = |name: &String| self.spares.iter().all(|spare| spare.name != *name);
        let name = names.into_iter().find(is_free).unwrap_or_default();
        let file = match self.medium.create(&name, room) {
            // One that could not be removed.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                self.medium.remove(&name)?;
                self.medium.create(&name, room)?
            }
            other => other?,
        };
        let made_safe = file.sync_all().and_then(|()| self.medium.sync());
        made_safe.inspect_err(|_| _ = self.medium.remove(&name))?;
        Ok(Spare { name, file, room })
    }

    /// Reserves room as far as it is wanted and not reserved. Returns whether all of it is.
    ///
    /// # Errors
    /// The disk fails otherwise than by being full.
    pub fn reserve(&mut self) -> io::Result<bool> {
        self.is_full = false;
        self.reserve_again()
    }

    /// As [`reserve`](Segments::reserve), unless the last attempt has found no room.
    ///
    /// # Errors
    /// The disk fails otherwise than by being full.
    pub fn reserve_again(&mut self) -> io::Result<bool> {
        while !self.is_full && self.spares.len() <= self.reserve {
            match self.create(self.segment_bytes) {
                Ok(spare) => self.spares.push(spare),
                Err(error) if is_no_room(&error) => self.is_full = true,
                Err(error) => return Err(error),
            }
        }
        Ok(!self.is_full)
    }

    /// Whether less room could be reserved than is wanted.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.is_full
    }

    /// Removes a segment. What is forgotten of its messages need not be forgotten any more. If it has messages that are needed,
    /// they cannot be read: its file is renamed instead. Returns how many these are. It may be called again after an error.
    ///
    /// # Errors
    /// The disk fails.
    pub fn remove(&mut self, number: SegmentNumber) -> io::Result<u64> {
        let Some(segment) = self.all.get(&number) else { return Ok(0) };
        let lost = segment.messages;
        let name = segment::name(number);
        let removed = match lost > 0 || segment.keeps_file {
            false => self.medium.remove(&name),
            true => self.medium.rename(&name, &format!("damaged-{name}.bin")),
        };
        match removed {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {} // the call before has come so far
            other => other?,
        }
        self.medium.sync()?;
        self.all.remove(&number);
        self.all.values_mut().for_each(|segment| segment.forgets.remove(number));
        Ok(lost)
    }

    /// Ends the use of the directory: the last segment is cut to its length, and spare files are removed unless the disk is
    /// full.
    pub fn close(&mut self) {
        if !self.is_full {
            self.spares.drain(..).for_each(|spare| _ = self.medium.remove(&spare.name));
        }
        self.cut_current();
    }
}
