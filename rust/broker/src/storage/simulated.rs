//! The thread of `store=file` in the simulated build: the driver chooses when it does something. It opens the log, writes and
//! reads with the code that ships.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use super::Control;
use super::ended::leave_out_ended;
use super::log_thread::{read, tell_failure};
use super::restoring::{give, meet, waker};
use crate::config::Fsync;
use crate::door::Instant;
use crate::mail::shared::Shared;
use crate::store::Counts;
use crate::store::file::handle::PAGE_FILE_RECORD;
use crate::store::file::inbox::Inbox;
use crate::store::file::log::{Log, Lookup};
use crate::store::file::medium_double::Disk;
use crate::store::file::reader::Request;
use crate::store::file::recovery::OpenError;
use crate::store::file::writer::Writer;

/// The name of the directory in messages.
const DIR: &str = "simulated";
/// The disk of the page file never fills up.
const PAGE_FILE_BYTES: u64 = 1 << 40;

/// The state of the thread.
#[derive(Debug)]
pub struct SteppedLog {
    writer: Writer,
    inbox: Arc<Inbox>,
    /// The page file, which the same thread writes here.
    page_writer: Writer,
    page_file: Arc<Inbox>,
    shared: Arc<Shared>,
    /// What the reader has still to read.
    wanted: VecDeque<Request>,
    /// When it took its last turn.
    turned_at: Instant,
    has_failed: bool,
    has_ended: bool,
}

impl SteppedLog {
    /// Opens the log on a disk and gives all homes their shares. `None`: the last shard has ended.
    ///
    /// # Errors
    /// It cannot be opened, in one line.
    pub(crate) fn open(
        disk: Disk,
        (segment_bytes, reserve_bytes): (u64, u64),
        fsync: Fsync,
        control: &Control,
        shared: &Arc<Shared>,
    ) -> Result<Option<Self>, String> {
        let progress = |_, _| !control.has_ended();
        let (log, recovered) = match Log::open_with_reserve(disk, segment_bytes, reserve_bytes, progress) {
            Ok(opened) => opened,
            Err(OpenError::Stopped) => return Ok(None),
            Err(error) => return Err(error.to_string()),
        };
        let inbox = meet(log.next_record(), log.figures(), control, shared);
        let page_file = Inbox::new(shared.mailboxes.len(), PAGE_FILE_RECORD, waker(shared));
        control.watch(&page_file);
        give(recovered, |record| read(&log, record), (&inbox, &page_file), shared);
        let paged = Log::open_with_reserve(Disk::new(PAGE_FILE_BYTES), segment_bytes, 0, |_, _| true);
        let (paged, _) = paged.map_err(|error| error.to_string())?;
        Ok(Some(SteppedLog {
            writer: Writer::new(log, fsync),
            inbox,
            page_writer: Writer::new(paged, Fsync::Never),
            page_file,
            shared: Arc::clone(shared),
            wanted: VecDeque::new(),
            turned_at: Instant::now(),
            has_failed: false,
            has_ended: false,
        }))
    }

    /// How long it waits for work; `None`: without a limit.
    #[must_use]
    pub fn sleep(&self) -> Option<Duration> {
        if self.has_ended {
            return None;
        }
        if self.inbox.has_work() || self.page_file.has_work() {
            return Some(Duration::ZERO);
        }
        let own = if self.has_failed { None } else { self.writer.patience() };
        let patience = own.into_iter().chain(self.page_writer.patience()).min();
        patience.map(|patience| patience.saturating_sub(self.turned_at.elapsed()))
    }

    /// Does what the thread does once.
    pub fn turn(&mut self) {
        if self.has_ended {
            return;
        }
        let page_file = &self.page_file;
        let work = page_file.take(Some(Duration::ZERO));
        let has_paged = self.page_writer.turn(work, page_file, &mut |request| request.answer(page_file));
        debug_assert!(has_paged.is_ok(), "its disk has room and does not fail");
        let (wanted, inbox) = (&mut self.wanted, &self.inbox);
        let mut read = |request| wanted.push_back(request);
        let work = inbox.take(Some(Duration::ZERO));
        if self.has_failed {
            self.has_ended = work.has_ended;
            self.writer.serve_turn(work, inbox, &mut read);
        } else {
            match self.writer.turn(work, inbox, &mut read) {
                Ok(goes_on) => self.has_ended = !goes_on,
                Err(error) => {
                    tell_failure(&error, DIR, inbox, &self.shared.log);
                    self.has_failed = true;
                    self.writer.begin_to_serve(inbox, &mut read);
                }
            }
        }
        self.turned_at = Instant::now();
    }

    /// The state of the log, for people.
    #[must_use]
    pub fn describe(&self) -> String {
        self.writer.describe()
    }

    /// The number of messages that the reader has to read.
    #[must_use]
    pub fn wanted(&self) -> usize {
        self.wanted.len()
    }

    /// The reader reads the next one.
    pub fn read_next(&mut self) {
        if let Some(request) = self.wanted.pop_front() {
            request.answer(&self.inbox);
        }
    }

    /// Whether the disk has failed.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.has_failed
    }

    /// Whether it has ended behind the last shard.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Whether the disk is full.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.inbox.room() == crate::store::Room::Full
    }
}

/// A message that a log has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Its queue, as the store knows it.
    pub queue: Vec<u8>,
    /// Its place in the queue.
    pub place: u64,
    /// Its record.
    pub record: u64,
    /// Its destination.
    pub destination: Vec<u8>,
    /// Its `message-id`.
    pub id: Vec<u8>,
    /// Its body.
    pub body: Vec<u8>,
    /// How often it was delivered, and how often that has failed.
    pub counts: Counts,
    /// The segment that it is in.
    pub segment: u32,
    /// Whether it can be read.
    pub is_readable: bool,
}

/// What a log has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Contents {
    /// Its messages, in the order of queues and places.
    pub messages: Vec<Found>,
    /// The damaged parts that were reported: segment, first byte, end.
    pub damages: Vec<(u32, u64, u64)>,
    /// The bytes that were cut off.
    pub torn_bytes: u64,
}

/// The number of the segment of a record; 0: it is not there.
fn segment_of(log: &Log, record: u64) -> u32 {
    match log.find(record) {
        Lookup::At(_, stored) => stored.place.segment,
        _ => 0,
    }
}

/// Opens the log on a disk, which may change it, and reads everything.
///
/// # Errors
/// It cannot be opened, in one line.
pub fn inspect(disk: Disk, segment_bytes: u64) -> Result<Contents, String> {
    let (log, mut recovered) = match Log::open_with_reserve(disk, segment_bytes, 0, |_, _| true) {
        Ok(opened) => opened,
        Err(error) => return Err(error.to_string()),
    };
    leave_out_ended(&mut recovered, |record| read(&log, record));
    let mut messages = Vec::new();
    for (queue, waiting) in &recovered.queues {
        for found in waiting {
            let message = read(&log, found.record);
            let counts = recovered.counts.get(&found.record).copied().unwrap_or_default();
            let parts = message.as_ref().map(|owned| {
                let message = owned.message();
                let own = Counts { deliveries: owned.deliveries, failures: owned.failures };
                ([message.destination, message.id, message.body].map(<[u8]>::to_vec), own)
            });
            let is_readable = parts.is_some();
            let ([destination, id, body], own) = parts.unwrap_or_default();
            messages.push(Found {
                queue: queue.clone(),
                place: found.place,
                record: found.record,
                destination,
                id,
                body,
                counts: Counts {
                    deliveries: counts.deliveries.max(own.deliveries),
                    failures: counts.failures.max(own.failures),
                },
                segment: segment_of(&log, found.record),
                is_readable,
            });
        }
    }
    let damages = recovered.damages.iter().map(|it| (it.segment, it.from, it.to)).collect();
    Ok(Contents { messages, damages, torn_bytes: recovered.torn_bytes })
}
