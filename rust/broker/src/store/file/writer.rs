//! What the log's thread does again and again: it takes what has arrived, writes it as one group, makes it safe, and tells the
//! shards. What arrives meanwhile is the next group.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use super::batch::{Batch, Call};
use super::compaction::{Replacing, Step};
use super::entry::SegmentNumber;
use super::inbox::{Inbox, Work};
use super::log::{Figures, Log, Lookup};
use super::reader::Request;
use crate::config::Fsync;
use crate::door::Instant;
use crate::ids::RecordId;
use crate::store::{Position, Unreadable};

/// How long the thread waits before it tries again to reserve room.
const RETRY: Duration = Duration::from_millis(500);
/// The largest share of what is written that compaction may write while shards write, as a divisor of what they write.
const COMPACTION_SHARE: u64 = 3;

/// The state of the thread.
#[derive(Debug)]
pub struct Writer {
    log: Log,
    fsync: Fsync,
    synced_at: Instant,
    replacing: Option<Replacing>,
    /// A segment that is removed once everything is safe.
    to_remove: Option<SegmentNumber>,
    /// The bytes that compaction may write before shards write more.
    allowance: u64,
    /// Messages that are wanted and have not come, with the shards that want them.
    early: BTreeMap<RecordId, Vec<usize>>,
    has_room: bool,
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
            replacing: None,
            to_remove: None,
            allowance: 0,
            early: BTreeMap::new(),
            has_room: true,
            lost: 0,
        }
    }

    /// The figures of the log, and the number of messages that were lost because a segment could not be read.
    #[must_use]
    pub fn figures(&self) -> (Figures, u64) {
        (self.log.figures(), self.lost)
    }

    /// How long to wait for work; `None`: without a limit.
    fn patience(&self) -> Option<Duration> {
        if self.replacing.is_some() || self.to_remove.is_some() {
            return Some(Duration::ZERO);
        }
        let until_sync = match self.fsync {
            Fsync::Interval(interval) if self.log.is_behind() => {
                Some(interval.saturating_sub(self.synced_at.elapsed()))
            }
            _ => None,
        };
        let until_retry = (!self.has_room).then_some(RETRY);
        until_sync.into_iter().chain(until_retry).min()
    }

    /// Works until the last shard has ended.
    ///
    /// # Errors
    /// The disk fails: the log cannot be used any more.
    pub fn run(&mut self, inbox: &Inbox, read: &mut impl FnMut(Request)) -> io::Result<()> {
        while self.turn(inbox.take(self.patience()), inbox, read)? {}
        Ok(())
    }

    /// Goes on to answer requests for messages after the log has failed, until the last shard has ended.
    pub fn serve_reads(&mut self, inbox: &Inbox, read: &mut impl FnMut(Request)) {
        loop {
            let Work { loads, has_ended, .. } = inbox.take(None);
            if has_ended {
                return;
            }
            for (shard, record) in loads {
                match self.log.find(record) {
                    Lookup::At(file, stored) => read(Request { shard, record, file, stored }),
                    Lookup::Lost | Lookup::Unknown => inbox.give(shard, (record, Err(Unreadable))),
                }
            }
        }
    }

    /// Does everything that has arrived, and a step of compaction. Returns false once the last shard has ended.
    ///
    /// # Errors
    /// The disk fails: the log cannot be used any more.
    pub fn turn(&mut self, work: Work, inbox: &Inbox, read: &mut impl FnMut(Request)) -> io::Result<bool> {
        let Work { batches, loads, has_ended } = work;
        let mut positions = BTreeMap::new();
        let mut group = Vec::with_capacity(batches.len() + 1);
        for (shard, batch, position) in batches {
            positions.insert(shard, position);
            group.push(batch);
        }
        self.write(group, inbox)?;
        self.make_safe(&positions, inbox, has_ended)?;
        self.serve_early(inbox, read);
        loads.into_iter().for_each(|(shard, record)| self.serve(shard, record, inbox, read));
        self.reserve(inbox)?;
        if has_ended {
            self.log.close()?;
        }
        Ok(!has_ended)
    }

    fn write(&mut self, mut group: Vec<Batch>, inbox: &Inbox) -> io::Result<()> {
        let from_shards: u64 = group.iter().map(|batch| batch.bytes.len() as u64).sum();
        self.allowance = self.allowance.saturating_add(from_shards / COMPACTION_SHARE);
        let mut removed = None;
        // While shards are silent, compaction has the disk for itself.
        if group.is_empty() || self.allowance > 0 || !self.has_room {
            match self.log.compact(&mut self.replacing)? {
                Step::Nothing => self.allowance = 0,
                Step::Write(batch) => {
                    self.allowance = self.allowance.saturating_sub(batch.bytes.len() as u64);
                    group.push(batch);
                }
                Step::Remove(segment) => removed = Some(segment),
            }
        }
        if !self.early.is_empty() {
            self.forget_early(&group);
        }
        self.log.write(&group, inbox.next_record())?;
        self.to_remove = self.to_remove.or(removed);
        Ok(())
    }

    fn make_safe(
        &mut self,
        positions: &BTreeMap<usize, Position>,
        inbox: &Inbox,
        has_ended: bool,
    ) -> io::Result<()> {
        let is_due = match self.fsync {
            Fsync::Always => true,
            Fsync::Interval(interval) => self.synced_at.elapsed() >= interval,
            Fsync::Never => false,
        };
        if is_due || has_ended || self.to_remove.is_some() {
            self.log.sync()?;
            self.synced_at = Instant::now();
        }
        if let Some(segment) = self.to_remove.take() {
            self.lost += self.log.remove(segment)?;
        }
        positions.iter().for_each(|(shard, position)| inbox.set_safe(*shard, *position));
        Ok(())
    }

    /// Lets a message be read, or notes that it is wanted: a shard may request what another one is about to hand over.
    fn serve(&mut self, shard: usize, record: RecordId, inbox: &Inbox, read: &mut impl FnMut(Request)) {
        match self.log.find(record) {
            Lookup::At(file, stored) => read(Request { shard, record, file, stored }),
            Lookup::Lost => inbox.give(shard, (record, Err(Unreadable))),
            Lookup::Unknown => self.early.entry(record).or_default().push(shard),
        }
    }

    fn serve_early(&mut self, inbox: &Inbox, read: &mut impl FnMut(Request)) {
        for (record, shards) in std::mem::take(&mut self.early) {
            shards.into_iter().for_each(|shard| self.serve(shard, record, inbox, read));
        }
    }

    /// Nobody waits any more for what these batches forget: the shard that wanted it has answered itself.
    fn forget_early(&mut self, batches: &[Batch]) {
        for call in batches.iter().flat_map(|batch| &batch.calls) {
            match call {
                Call::Forget(record) => _ = self.early.remove(record),
                Call::Commit(commit) => {
                    commit.forgotten.iter().for_each(|record| _ = self.early.remove(record))
                }
                _ => {}
            }
        }
    }

    fn reserve(&mut self, inbox: &Inbox) -> io::Result<()> {
        let has_room = self.log.reserve()?;
        if has_room != self.has_room {
            self.has_room = has_room;
            inbox.set_full(!has_room);
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "writer_tests.rs"]
mod tests;
