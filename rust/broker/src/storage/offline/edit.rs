//! Changes a store that no broker uses: adds messages, or compacts it.

use std::io;
use std::path::Path;

use stompica_proto::{Version, encode, escape};

use super::view::read;
use super::{Headers, OfflineError, StoredMessage};
use crate::door::{Directory, HashMap, process_id};
use crate::ids::RecordId;
use crate::queue::restored::since_header;
use crate::queue::types::FIRST_SEQ;
use crate::storage::segment_bytes;
use crate::store::file::batch::Batch;
use crate::store::file::compaction::Step;
use crate::store::file::entry::{Counts, Message};
use crate::store::file::log::{Log, Lookup, Written};
use crate::store::file::reader::Request;
use crate::store::file::recovery::{Recovered, Waiting, check};
use crate::store::file::segments::Purpose;
use crate::store::{DEFINITIONS, RETAINED};

/// No record is smaller.
const FIRST_RECORD: RecordId = 1;
/// A group of added messages is written when it takes more than this part of a segment, as a divisor of its length.
const GROUP_SHARE: u64 = 8;
/// A store that only this process uses.
#[derive(Debug)]
pub struct Editor {
    dir: String,
    log: Log,
    batch: Batch,
    /// The next place in each queue.
    places: HashMap<Vec<u8>, u64>,
    /// Topics with a last value, and queues of durable subscriptions.
    known: HashMap<(Vec<u8>, Vec<u8>), ()>,
    next_record: RecordId,
    /// Messages that are on disk, and those in the batch.
    added: (u64, u64),
    lost: u64,
}

impl Editor {
    /// Opens the store in a directory, which is created if it does not exist. `purpose` is what others are told who try to use
    /// it meanwhile; `progress` as for [`View::open`](super::View::open).
    ///
    /// # Errors
    /// The directory is in use, cannot be read or written, or has no store that this version knows; or `progress` has ended
    /// it.
    pub fn open(
        path: &Path,
        purpose: &str,
        progress: impl FnMut(u64, u64) -> bool,
    ) -> Result<Self, OfflineError> {
        let dir = path.display().to_string();
        let error = |cause: &dyn std::fmt::Display| OfflineError::of("change", &dir, cause);
        if let Some(directory) = Directory::look_at(path) {
            check(&directory).map_err(|cause| error(&cause))?;
        }
        let holder = format!("process {} ({purpose})", process_id());
        let directory = Directory::claim(path, &holder);
        let directory = directory.map_err(|cause| OfflineError::of_claim("change", &dir, &cause))?;
        let segment_bytes = segment_bytes(&directory);
        let opened = Log::open_with_reserve(directory, segment_bytes, 0, progress);
        let (log, recovered) = opened.map_err(|cause| error(&cause))?;
        let known = known_in(&log, &recovered);
        let last = |(name, waiting): (Vec<u8>, Vec<Waiting>)| {
            (name, waiting.last().map_or(0, |last| last.place.saturating_add(1)))
        };
        let places = recovered.queues.into_iter().map(last).collect();
        let next_record = log.next_record();
        Ok(Editor { dir, log, batch: Batch::default(), places, known, next_record, added: (0, 0), lost: 0 })
    }

    /// Adds a message behind those of its queue; its place is assigned anew. Returns false if the topic has a last value
    /// already, or if the durable subscription exists. What was added is on disk once [`close`](Editor::close) has returned.
    ///
    /// # Errors
    /// It is no valid message: nothing has changed then. Or the disk is full or fails: what was added before may be there.
    pub fn add(&mut self, message: &StoredMessage) -> Result<bool, OfflineError> {
        message.check().map_err(OfflineError)?;
        if let Some(key) = key_of(message)
            && self.known.insert(key, ()).is_some()
        {
            return Ok(false);
        }
        let place = self.places.entry(message.queue.clone()).or_insert(0);
        *place = (*place).max(FIRST_SEQ);
        // Its messages may come before it.
        let headers = match message.queue == DEFINITIONS {
            true => since_header(FIRST_RECORD),
            false => lines_of(&message.headers),
        };
        self.batch.keep(&Message {
            record: self.next_record,
            place: *place,
            persistent: message.persistent,
            plain: false,
            grouped: message.grouped,
            expires_ms: message.expires_ms,
            failures_max: message.failures_max,
            counts: Counts { deliveries: message.deliveries, failures: message.failures },
            sender: 0,
            queue: &message.queue,
            destination: &message.destination,
            id: &message.id,
            headers: &headers,
            body: &message.body,
        });
        *place += 1;
        self.next_record += 1;
        self.added.1 += 1;
        if self.batch.bytes.len() as u64 > self.log.segment_bytes() / GROUP_SHARE {
            self.flush()?;
        }
        Ok(true)
    }

    /// Writes what was added, and makes it safe.
    fn flush(&mut self) -> Result<(), OfflineError> {
        let batch = [std::mem::take(&mut self.batch)];
        let written = match self.log.write(&batch, self.next_record, Purpose::Messages) {
            Ok(Written::Done | Written::Nothing) => self.log.sync(),
            Ok(Written::NoRoom | Written::Stuck) => Err(io::ErrorKind::StorageFull.into()),
            Err(error) => Err(error),
        };
        self.done(written)?;
        self.added = (self.added.0 + self.added.1, 0);
        Ok(())
    }

    fn done(&self, result: io::Result<()>) -> Result<(), OfflineError> {
        let of = |error: &io::Error| match self.added.0 {
            0 => OfflineError::of("change", &self.dir, error),
            count => {
                OfflineError::of("change", &self.dir, format_args!("{error}; {count} messages were added"))
            }
        };
        result.map_err(|error| of(&error))
    }

    /// Rewrites segments until that saves nothing more. `goes_on` is asked after each of them.
    ///
    /// # Errors
    /// There is no room to begin, or the disk fails. Nothing is lost.
    pub fn compact(&mut self, mut goes_on: impl FnMut() -> bool) -> Result<(), OfflineError> {
        let began = self.log.begin_segment();
        self.done(began)?;
        // Each of them is rewritten once, and what comes of it is full; more would be a mistake here.
        let mut left = 2 * self.log.figures().segments + 16;
        loop {
            let before = left;
            // First many short ones are put together, then all are rewritten that are not full.
            for is_full in [false, true] {
                while left > 0 && self.compact_one(is_full)? {
                    left -= 1;
                    if !goes_on() {
                        return Ok(());
                    }
                }
            }
            if left == before || left == 0 {
                return Ok(());
            }
        }
    }

    /// Replaces a segment. Returns false if there is none that has to be.
    fn compact_one(&mut self, is_full: bool) -> Result<bool, OfflineError> {
        let mut replacing = None;
        loop {
            match self.log.compact(&mut replacing, is_full) {
                Step::Nothing => return Ok(false),
                Step::Write(batch) => {
                    let written = match self.log.write(&[batch], self.next_record, Purpose::Compaction) {
                        Ok(Written::Done | Written::Nothing) => Ok(()),
                        Ok(Written::NoRoom | Written::Stuck) => Err(io::ErrorKind::StorageFull.into()),
                        Err(error) => Err(error),
                    };
                    self.done(written)?;
                }
                Step::Remove(segment) => {
                    let removed = self.log.sync().and_then(|()| self.log.remove(segment));
                    match removed {
                        Ok(lost) => self.lost += lost,
                        Err(error) => self.done(Err(error))?,
                    }
                    return Ok(true);
                }
            }
        }
    }

    /// Makes everything safe, and gives the directory back. Returns how many messages were added, and how many were lost since
    /// they could not be read.
    ///
    /// # Errors
    /// The disk is full or fails.
    pub fn close(mut self) -> Result<(u64, u64), OfflineError> {
        self.flush()?;
        let closed = self.log.close();
        self.done(closed)?;
        Ok((self.added.0, self.lost))
    }
}

/// Topics with a last value, and queues of durable subscriptions, each with the queue that has it.
fn known_in(log: &Log, recovered: &Recovered) -> HashMap<(Vec<u8>, Vec<u8>), ()> {
    let read_one = |waiting: &Waiting| match log.find(waiting.record) {
        Lookup::At(file, stored) => {
            read(Request { shard: 0, record: waiting.record, file, stored }, Counts::default())
        }
        Lookup::Lost | Lookup::Unknown => None,
    };
    let found = [DEFINITIONS, RETAINED].into_iter().filter_map(|queue| recovered.queues.get(queue)).flatten();
    found.filter_map(read_one).filter_map(|message| Some((key_of(&message)?, ()))).collect()
}

/// What a last value or a definition is the only one of, with its queue.
fn key_of(message: &StoredMessage) -> Option<(Vec<u8>, Vec<u8>)> {
    match &message.queue[..] {
        RETAINED => Some((message.queue.clone(), message.destination.clone())),
        DEFINITIONS => Some((message.queue.clone(), message.body.clone())),
        _ => None,
    }
}

/// Header lines, escaped as in 1.2.
fn lines_of(headers: &Headers) -> Vec<u8> {
    let mut lines = Vec::new();
    for (name, value) in headers {
        escape::escape_into(&mut lines, name, Version::V1_2);
        encode::header(&mut lines, b"", value, Version::V1_2);
    }
    lines
}
