//! What the log's thread does again and again: it takes what has arrived, writes it, makes it safe, and tells the shards. What
//! arrives meanwhile is written next.
//!
//! On a full disk nothing is lost that a shard has told: it waits here, in order, and is written once there is room. What makes
//! room comes first. Positions of what waits are not safe, so nothing is confirmed that could be lost.

mod serving;

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use super::batch::{Batch, Call, forgotten};
use super::compaction::{Replacing, Step};
use super::entry::SegmentNumber;
use super::group::CALL_BYTES;
use super::inbox::{Inbox, Work};
use super::log::{Log, Lookup, Written};
use super::reader::Request;
use super::requests::Requests;
use super::segments::Purpose;
use super::waiting::{Done, Gathered, Waiting};
use crate::config::Fsync;
use crate::door::medium::is_no_room;
use crate::door::{HashMap, Instant, planted};
use crate::report::types::StoreFigures;

/// How long the thread waits before it tries again to get room.
const RETRY: Duration = Duration::from_millis(500);
/// The largest share of what is written that compaction may write while shards write, as a divisor of what they write.
const COMPACTION_SHARE: u64 = 3;
/// The bytes of a group at most, unless one call takes more, as a divisor of the length of a segment.
const GROUP_SHARE: u64 = 4;
/// More than this part of a segment is not to be unwritten, as a divisor of its length.
const UNWRITTEN_SHARE: u64 = 16;
/// Calls without messages that are written at a time on a full disk.
const URGENT_MAX: usize = 10_000;

/// The state of the thread.
#[derive(Debug)]
pub struct Writer {
    log: Log,
    fsync: Fsync,
    synced_at: Instant,
    /// What is not written.
    waiting: Waiting,
    /// What makes room and was taken out of it.
    urgent: Vec<Call>,
    /// The batches that the log has taken and could not write completely.
    stuck: Gathered,
    /// What was written and is not confirmed.
    written: Vec<Done>,
    replacing: Option<Replacing>,
    /// The step of compaction that is to be written.
    step: Option<Batch>,
    /// A segment that is removed once everything is safe.
    to_remove: Option<SegmentNumber>,
    /// The bytes that compaction may write before shards write more.
    allowance: u64,
    /// Requests for messages that have not come.
    early: Requests,
    /// Whether messages could not be written in the last turn for want of room.
    is_blocked: bool,
    /// Whether compaction could not go on in the last turn for want of room.
    is_compaction_blocked: bool,
    has_room: bool,
    /// Compaction has found nothing to do since shards told something last.
    has_looked: bool,
    /// When room is looked for again.
    look_at: Instant,
    has_ended: bool,
    /// Whether nothing more is written.
    has_failed: bool,
    /// Messages that were lost because a segment could not be read.
    lost: u64,
}

impl Writer {
    /// A writer of this log.
    #[must_use]
    pub fn new(log: Log, fsync: Fsync) -> Self {
        Writer {
            log,
            fsync,
            synced_at: Instant::now(),
            waiting: Waiting::default(),
            urgent: Vec::new(),
            stuck: Gathered::default(),
            written: Vec::new(),
            replacing: None,
            step: None,
            to_remove: None,
            allowance: 0,
            early: Requests::default(),
            is_blocked: false,
            is_compaction_blocked: false,
            has_room: true,
            has_looked: false,
            look_at: Instant::now(),
            has_ended: false,
            has_failed: false,
            lost: 0,
        }
    }

    /// The state of the log, for people.
    #[must_use]
    #[cfg(simulated)]
    pub fn describe(&self) -> String {
        format!("{}; replacing {:?}, step {}", self.log.describe(), self.replacing, self.step.is_some())
    }

    /// The figures of the log, and the number of messages that were lost because a segment could not be read.
    #[must_use]
    #[cfg(test)]
    pub fn figures(&self) -> (StoreFigures, u64) {
        (self.log.figures(), self.lost)
    }

    /// How long to wait for work; `None`: without a limit.
    pub(crate) fn patience(&self) -> Option<Duration> {
        let is_compacting = self.replacing.is_some() || self.step.is_some() || self.to_remove.is_some();
        if is_compacting && !self.is_compaction_blocked && !self.log.is_stuck() {
            return Some(Duration::ZERO);
        }
        if !self.has_looked && self.has_room && !self.is_compaction_blocked && !self.log.is_stuck() {
            return Some(Duration::ZERO); // nobody disturbs compaction now
        }
        let until_sync = match self.fsync {
            Fsync::Interval(interval) if self.log.is_behind() => {
                Some(interval.saturating_sub(self.synced_at.elapsed()))
            }
            _ => None,
        };
        let is_waiting = !self.has_room || is_compacting || self.log.is_stuck() || !self.early.is_empty();
        until_sync.into_iter().chain(is_waiting.then_some(RETRY)).min()
    }

    /// Whether the last shard has ended.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Works until the last shard has ended.
    ///
    /// # Errors
    /// The disk fails: the log cannot be used any more, but [`serve_reads`](Writer::serve_reads) goes on. Or it is full at the
    /// end, and what was not confirmed could not be written.
    pub fn run(&mut self, inbox: &Inbox, read: &mut impl FnMut(Request)) -> io::Result<()> {
        while self.turn(inbox.take(self.patience()), inbox, read)? {}
        Ok(())
    }

    /// Does everything that has arrived, and a step of compaction. Returns false once the last shard has ended.
    ///
    /// # Errors
    /// As for [`run`](Writer::run).
    pub fn turn(&mut self, work: Work, inbox: &Inbox, read: &mut impl FnMut(Request)) -> io::Result<bool> {
        let Work { batches, loads, has_ended } = work;
        self.has_ended |= has_ended;
        let is_wanted = !loads.is_empty() || !self.early.is_empty();
        let forgotten =
            if is_wanted { forgotten(batches.iter().map(|it| &it.1)) } else { HashMap::default() };
        self.push(batches);
        let loads = self.serve_written(loads, read);
        let done = self.work(inbox);
        loads.into_iter().for_each(|(shard, record)| self.serve(shard, record, inbox, read));
        self.answer_early(&forgotten, inbox, read);
        done.map(|()| !self.has_ended)
    }

    fn push(&mut self, batches: Vec<(usize, Batch, u64)>) {
        let group_bytes = self.group_bytes();
        self.has_looked &= batches.is_empty();
        for (shard, batch, position) in batches {
            self.allowance = self.allowance.saturating_add(batch.bytes.len() as u64 / COMPACTION_SHARE);
            self.waiting.push(shard, batch, position, group_bytes);
        }
    }

    /// Looks for room in the next turn, however soon that comes.
    #[cfg(test)]
    pub(super) fn retry_now(&mut self) {
        self.look_at = Instant::now();
    }

    fn group_bytes(&self) -> u64 {
        self.log.segment_bytes() / GROUP_SHARE
    }

    fn work(&mut self, inbox: &Inbox) -> io::Result<()> {
        inbox.set_unwritten_max(self.log.segment_bytes() / UNWRITTEN_SHARE);
        let is_silent = self.waiting.is_empty();
        (self.is_blocked, self.is_compaction_blocked) = (false, false);
        if !self.has_room && Instant::now() >= self.look_at {
            self.look_for_room()?;
        }
        if self.log.finish()? {
            self.written.append(&mut std::mem::take(&mut self.stuck).told);
            // What was taken out comes first: the rest of its batches may be confirmed only behind it.
            self.write_urgent(inbox)?;
            if self.urgent.is_empty() && !self.log.is_stuck() {
                self.write_messages(inbox)?;
            }
            if self.is_blocked {
                self.sift();
                self.write_urgent(inbox)?;
            }
            self.compact(is_silent, inbox)?;
        }
        let has_removed = self.make_safe()?;
        self.publish(inbox);
        self.confirm(inbox);
        let spare_bytes = self.log.spare_bytes();
        self.reserve(has_removed, inbox)?;
        if self.log.spare_bytes() != spare_bytes {
            self.publish(inbox);
        }
        if self.has_ended {
            self.log.close()?;
            let left = self.waiting.messages();
            if left > 0 {
                let text = format!("it is full: {left} messages that were not confirmed are lost");
                return Err(io::Error::new(io::ErrorKind::StorageFull, text));
            }
        }
        Ok(())
    }

    fn write_messages(&mut self, inbox: &Inbox) -> io::Result<()> {
        let purpose = if self.has_ended { Purpose::End } else { Purpose::Messages };
        while !self.waiting.is_empty() && !self.is_blocked {
            let gathered = self.waiting.gather(self.group_bytes());
            match self.log.write(&gathered.batches, inbox.next_record(), purpose) {
                Ok(Written::Nothing | Written::Done) => self.written.extend(gathered.told),
                Ok(Written::Stuck) => {
                    self.stuck = gathered;
                    self.is_blocked = true;
                }
                Ok(Written::NoRoom) => {
                    self.waiting.put_back(gathered);
                    self.is_blocked = true;
                }
                Err(error) => {
                    self.waiting.put_back(gathered); // it can be read from here
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Takes out what makes room, since messages have to wait.
    fn sift(&mut self) {
        let log = &self.log;
        self.waiting.sift(&mut self.urgent, |record| !matches!(log.find(record), Lookup::Unknown));
    }

    /// Writes what makes room.
    fn write_urgent(&mut self, inbox: &Inbox) -> io::Result<()> {
        if self.log.is_stuck() {
            return Ok(()); // nothing behind the group that is stuck may be confirmed
        }
        // Compaction has to end what it has begun, and to begin again.
        let rest = self.log.segment_bytes();
        let count = URGENT_MAX.min(usize::try_from(self.group_bytes() / CALL_BYTES).unwrap_or(URGENT_MAX));
        while !self.urgent.is_empty() {
            let later = self.urgent.split_off(self.urgent.len().min(count.max(1)));
            let batch = Batch { calls: std::mem::replace(&mut self.urgent, later), ..Batch::default() };
            let batch = [batch];
            match self.log.write(&batch, inbox.next_record(), Purpose::Forgets(rest))? {
                Written::Nothing | Written::Done => {}
                Written::Stuck => {
                    self.is_blocked = true;
                    return Ok(());
                }
                Written::NoRoom => {
                    let [batch] = batch;
                    let later = std::mem::replace(&mut self.urgent, batch.calls);
                    self.urgent.extend(later);
                    self.is_blocked = true;
                    return Ok(());
                }
            }
        }
        self.written.extend(self.waiting.take_done());
        Ok(())
    }

    /// Takes a step of compaction. While shards are silent or the disk is full, it has the disk for itself.
    fn compact(&mut self, is_silent: bool, inbox: &Inbox) -> io::Result<()> {
        if self.to_remove.is_some() || self.log.is_stuck() {
            return Ok(());
        }
        let is_full = !self.has_room || self.is_blocked;
        if self.step.is_none() && (is_silent || is_full || self.allowance > 0) {
            match self.log.compact(&mut self.replacing, is_full) {
                Step::Nothing => (self.allowance, self.has_looked) = (0, true),
                Step::Write(batch) => self.step = Some(batch),
                Step::Remove(segment) => self.to_remove = Some(segment),
            }
        }
        if let Some(batch) = self.step.take() {
            let batch = [batch];
            if self.log.write(&batch, inbox.next_record(), Purpose::Compaction)? == Written::NoRoom {
                let [batch] = batch;
                self.step = Some(batch);
                self.is_compaction_blocked = true;
            } else {
                self.allowance = self.allowance.saturating_sub(batch[0].bytes.len() as u64);
            }
        }
        Ok(())
    }

    /// Makes what was written safe, if that is due, and removes the segment that was replaced. Returns whether one was removed.
    fn make_safe(&mut self) -> io::Result<bool> {
        let is_due = match self.fsync {
            Fsync::Always => true,
            Fsync::Interval(interval) => self.synced_at.elapsed() >= interval,
            Fsync::Never => false,
        };
        let is_due = is_due && !(self.log.is_behind() && planted!("receipt-before-sync"));
        let is_replaced = self.to_remove.is_some();
        let is_replaced = is_replaced && !(self.log.is_behind() && planted!("segment-removed-early"));
        if is_due || self.has_ended || is_replaced {
            self.log.sync()?;
            self.synced_at = Instant::now();
        }
        let Some(segment) = self.to_remove.filter(|_| !self.log.is_stuck()) else { return Ok(false) };
        match self.log.remove(segment) {
            Ok(lost) => {
                self.lost += lost;
                self.to_remove = None;
                Ok(true)
            }
            Err(error) if is_no_room(&error) => {
                self.is_compaction_blocked = true;
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Tells shards up to where everything they told is safe.
    fn confirm(&mut self, inbox: &Inbox) {
        let (mut positions, mut written) = (BTreeMap::new(), 0);
        for (shard, position, bytes) in self.written.drain(..) {
            written += bytes;
            position.and_then(|position| positions.insert(shard, position));
        }
        // Before RECEIPTs leave: who has one is not told that its message is unwritten.
        if written > 0 {
            inbox.set_written(written);
        }
        positions.into_iter().for_each(|(shard, position)| inbox.set_safe(shard, position));
    }

    /// Tells what diagnostics show: before a RECEIPT leaves, so that it is never behind what a client knows.
    fn publish(&mut self, inbox: &Inbox) {
        let figures = StoreFigures { lost_messages: self.lost, ..self.log.figures() };
        inbox.publish(figures, self.log.take_sync_times());
    }

    fn look_for_room(&mut self) -> io::Result<()> {
        self.look_at = Instant::now() + RETRY;
        self.log.reserve().map(|_| ())
    }

    fn reserve(&mut self, has_removed: bool, inbox: &Inbox) -> io::Result<()> {
        if self.has_room || has_removed {
            self.look_for_room()?;
        }
        self.has_room = !self.log.is_full() && !self.is_blocked && !self.log.is_stuck();
        inbox.set_full(!self.has_room);
        Ok(())
    }
}

#[cfg(test)]
#[path = "writer_tests.rs"]
mod tests;
