//! All segments of a log. The last one is written to; a spare one with reserved room waits behind it, so that a full disk is
//! noticed while there is still room for what is on its way.

use std::collections::BTreeMap;
use std::io;

use super::entry::SegmentNumber;
use super::segment::{self, HEADER_BYTES, Header, Segment};
use super::table::{SEGMENT_MAX, Stored};
use crate::door::{Directory, DiskFile};

/// The segments of a log.
#[derive(Debug)]
pub struct Segments {
    directory: Directory,
    all: BTreeMap<SegmentNumber, Segment>,
    /// The length of a segment, unless one group needs more.
    segment_bytes: u64,
    /// The next segment: its room is reserved, its header is not written.
    spare: Option<(SegmentNumber, DiskFile, u64)>,
    /// Why there is no spare one, if that was tried.
    spare_error: Option<io::ErrorKind>,
}

impl Segments {
    /// The segments that were found in a directory.
    #[must_use]
    pub fn new(directory: Directory, segment_bytes: u64, found: BTreeMap<SegmentNumber, Segment>) -> Self {
        Segments { directory, all: found, segment_bytes, spare: None, spare_error: None }
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

    /// The bytes of all files, and of the spare one.
    #[must_use]
    pub fn disk_bytes(&self) -> u64 {
        let spare = self.spare.as_ref().map_or(0, |(_, _, room)| *room);
        self.all.values().map(|segment| segment.room).sum::<u64>() + spare
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

    /// Begins a new segment with room for so many bytes; everything before must be safe. Its header says what `header` says, but
    /// for the number.
    ///
    /// # Errors
    /// The disk is full, or fails. Nothing has changed then.
    pub fn begin(&mut self, bytes: u64, header: Header) -> io::Result<()> {
        let room = self.segment_bytes.max(HEADER_BYTES + bytes);
        if self.spare.as_ref().is_some_and(|(_, _, spare)| *spare < room) {
            self.drop_spare()?;
        }
        let (number, file, room) = match self.spare.take() {
            Some(spare) => spare,
            None => {
                let number = self.next_number()?;
                (number, self.create(number, room)?, room)
            }
        };
        file.write_at(&Header { number, ..header }.bytes(), 0)?;
        file.sync_data()?;
        if let Some(previous) = self.current_mut()
            && previous.file.set_length(previous.end).is_ok()
        {
            previous.room = previous.end;
        }
        self.all.insert(number, Segment::new(number, file, room));
        Ok(())
    }

    fn next_number(&self) -> io::Result<SegmentNumber> {
        let number = self.current().map_or(1, |current| current.number + 1);
        match number <= SEGMENT_MAX {
            true => Ok(number),
            false => Err(io::Error::other("no more segments can be numbered; export and import the store")),
        }
    }

    fn create(&self, number: SegmentNumber, room: u64) -> io::Result<DiskFile> {
        let file = self.directory.create(&segment::name(number), room)?;
        let made_safe = file.sync_all().and_then(|()| self.directory.sync());
        made_safe.inspect_err(|_| _ = self.directory.remove(&segment::name(number)))?;
        Ok(file)
    }

    /// Reserves the next segment, unless there is one.
    ///
    /// # Errors
    /// The disk is full, or fails.
    pub fn reserve(&mut self) -> io::Result<()> {
        if self.spare.is_none() {
            let number = self.next_number()?;
            let created = self.create(number, self.segment_bytes);
            self.spare_error = created.as_ref().err().map(io::Error::kind);
            self.spare = Some((number, created?, self.segment_bytes));
        }
        Ok(())
    }

    fn drop_spare(&mut self) -> io::Result<()> {
        match self.spare.take() {
            Some((number, ..)) => self.directory.remove(&segment::name(number)),
            None => Ok(()),
        }
    }

    /// Removes a segment. What is forgotten of its messages need not be forgotten any more. If it has messages that are needed,
    /// they cannot be read: its file is renamed instead. Returns how many these are.
    ///
    /// # Errors
    /// The disk fails.
    pub fn remove(&mut self, number: SegmentNumber) -> io::Result<u64> {
        let lost = self.all.get(&number).map_or(0, |segment| segment.messages);
        let name = segment::name(number);
        match lost {
            0 => self.directory.remove(&name)?,
            _ => self.directory.rename(&name, &format!("damaged-{name}.bin"))?,
        }
        self.directory.sync()?;
        self.all.remove(&number);
        self.all.values_mut().for_each(|segment| segment.forgets.remove(number));
        Ok(lost)
    }

    /// Ends the use of the directory: the spare segment is removed, the last one is cut to its length.
    pub fn close(&mut self) {
        _ = self.drop_spare();
        if let Some(current) = self.current() {
            _ = current.file.set_length(current.end);
        }
    }
}
