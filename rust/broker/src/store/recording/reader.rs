//! Reads recorded messages of one destination, a portion at a time, from the files and so from the page cache.

use std::io;
use std::sync::Arc;

use super::block::{Block, Part, Standing, name_at_beginning};
use super::catalog::{Catalog, Extent, Located, Place};
use super::log::lock;
use crate::door::sync::Mutex;
use crate::store::file::entry::ENTRY_BYTES_MAX;

/// A portion ends with the block that reaches this many bytes.
pub const PORTION_BYTES: usize = 64 << 10;
/// What is read at a time.
const READ_BYTES: usize = 128 << 10;

/// Some of the messages of a destination.
#[derive(Debug, Default)]
pub struct Portion {
    /// Blocks, in order; the first one may begin before what was asked for.
    pub blocks: Vec<Arc<Block>>,
    /// Where the next portion begins.
    pub place: Option<Place>,
    /// Whether nothing more was written when it was read.
    pub is_end: bool,
    /// What is recorded now; `None`: nothing.
    pub extent: Option<Extent>,
}

/// Reads blocks with messages from this number on. `place` is that of the portion before; then nothing is passed over.
///
/// # Errors
/// The disk fails, or has damaged what was whole when the recording was opened.
pub fn portion(catalog: &Mutex<Catalog>, name: &[u8], seq: u64, place: Option<Place>) -> io::Result<Portion> {
    let mut portion = Portion { place, extent: lock(catalog).extent(name), ..Portion::default() };
    let Some(own) = portion.extent.as_ref().map(|extent| Arc::clone(&extent.name)) else {
        return Ok(Portion { is_end: true, ..portion });
    };
    let (mut bytes, mut buffer) = (0, Vec::new());
    while bytes < PORTION_BYTES {
        let Some(located) = lock(catalog).locate(name, seq, portion.place) else {
            portion.is_end = true;
            break;
        };
        let (segment, mut at, mut used) = (located.place.segment, located.place.offset, 0);
        buffer.clear();
        while bytes < PORTION_BYTES && at < located.until {
            if whole_length(&buffer[used..]).is_none_or(|length| length > buffer.len() - used) {
                read_some(&located, at, READ_BYTES, &mut buffer)?;
                used = 0;
            }
            let length = whole_length(&buffer[used..]).ok_or(io::ErrorKind::InvalidData)?;
            if name_at_beginning(&buffer[used..]).is_some_and(|found| found == name) {
                if length > buffer.len() - used {
                    read_some(&located, at, length, &mut buffer)?;
                    used = 0;
                }
                let Standing::Part(Part::Block(head), _) = Standing::at(&buffer[used..], located.salt) else {
                    return Err(io::ErrorKind::InvalidData.into());
                };
                if head.first + head.count > seq {
                    let block = head.copy(&own);
                    bytes += block.bytes();
                    portion.blocks.push(Arc::new(block));
                }
            }
            at += length as u64;
            used = (used + length).min(buffer.len());
        }
        portion.place = Some(Place { segment, offset: at });
    }
    Ok(portion)
}

/// The length of the entry at the beginning of these bytes, if it is there.
fn whole_length(bytes: &[u8]) -> Option<usize> {
    let length = u32::from_le_bytes(*bytes.first_chunk::<4>()?) as usize;
    (length > 0 && length <= ENTRY_BYTES_MAX).then_some(length + 8)
}

fn read_some(located: &Located, at: u64, count: usize, buffer: &mut Vec<u8>) -> io::Result<()> {
    let count = count.min(usize::try_from(located.end.saturating_sub(at)).unwrap_or(usize::MAX));
    buffer.clear();
    buffer.resize(count, 0);
    let read = located.file.read_at(buffer, at)?;
    buffer.truncate(read);
    Ok(())
}

/// The number of the first message of this time or later; `None`: there is none.
///
/// # Errors
/// As for [`portion`].
pub fn seq_at(catalog: &Mutex<Catalog>, name: &[u8], time_ms: u64) -> io::Result<Option<u64>> {
    let mut place = lock(catalog).place_at(name, time_ms);
    if place.is_none() {
        return Ok(None);
    }
    loop {
        let portion = portion(catalog, name, 0, place)?;
        if let Some(block) = portion.blocks.iter().find(|block| block.last_ms >= time_ms) {
            let earlier = block.messages(0, block.time_ms).take_while(|message| message.time_ms < time_ms);
            return Ok(Some(block.first + earlier.count() as u64));
        }
        if portion.is_end {
            return Ok(None);
        }
        place = portion.place;
    }
}
