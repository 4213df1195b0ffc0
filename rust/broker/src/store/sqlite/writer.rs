//! What the thread of the database does again and again: it takes what has arrived, writes it as one group, and tells the shards.
//! What arrives meanwhile is written next.
//!
//! On a full disk nothing is lost that a shard has told: it waits here, in order, and is written once there is room. What makes
//! room comes first. Positions of what waits are not safe, so nothing is confirmed that could be lost.

mod serving;

use std::collections::BTreeMap;
use std::time::Duration;

use super::database::{Database, Failure};
use super::reader::Request;
use crate::config::Fsync;
use crate::door::{HashMap, Instant};
use crate::store::file::batch::{Batch, Call, forgotten};
use crate::store::file::inbox::{Inbox, Work};
use crate::store::file::requests::Requests;
use crate::store::file::waiting::{Done, Waiting};

/// How long the thread waits before it tries again.
const RETRY: Duration = Duration::from_millis(500);
/// How long it waits after somebody else has written, who has made it wait before.
const RETRY_BUSY: Duration = Duration::from_millis(20);
/// How long others may make the end wait.
const END_PATIENCE: Duration = Duration::from_secs(10);
/// The bytes of a group, and those that are not to be unwritten, as a divisor of the reserve.
const GROUP_SHARE: u64 = 4;
/// Calls without messages that are written at a time on a full disk.
const URGENT_MAX: usize = 10_000;

/// The state of the thread.
#[derive(Debug)]
pub struct Writer {
    database: Database,
    fsync: Fsync,
    synced_at: Instant,
    /// What is not written.
    waiting: Waiting,
    /// What makes room and was taken out of it.
    urgent: Vec<Call>,
    /// What was written and is not confirmed.
    written: Vec<Done>,
    /// Requests for messages that have not come.
    early: Requests,
    /// Whether messages could not be written in the last turn for want of room.
    is_blocked: bool,
    /// Whether somebody else wrote.
    is_busy: bool,
    has_room: bool,
    /// Nothing could be given back to the disk since shards told something last.
    has_looked: bool,
    /// When room is looked for again.
    look_at: Instant,
    /// Since when no call can follow.
    ended_at: Option<Instant>,
    /// Whether nothing more is written.
    has_failed: bool,
}

impl Writer {
    /// A writer of this database.
    #[must_use]
    pub fn new(database: Database, fsync: Fsync) -> Self {
        Writer {
            database,
            fsync,
            synced_at: Instant::now(),
            waiting: Waiting::default(),
            urgent: Vec::new(),
            written: Vec::new(),
            early: Requests::default(),
            is_blocked: false,
            is_busy: false,
            has_room: true,
            has_looked: false,
            look_at: Instant::now(),
            ended_at: None,
            has_failed: false,
        }
    }

    /// How long to wait for work; `None`: without a limit.
    pub(in crate::store) fn patience(&self) -> Option<Duration> {
        if self.is_busy {
            return Some(RETRY_BUSY);
        }
        if !self.has_looked && self.has_room {
            return Some(Duration::ZERO); // nobody is disturbed now
        }
        let until_sync = match self.fsync {
            Fsync::Interval(interval) if self.database.is_behind() => {
                Some(interval.saturating_sub(self.synced_at.elapsed()))
            }
            _ => None,
        };
        let is_waiting = !self.has_room || !self.early.is_empty();
        until_sync.into_iter().chain(is_waiting.then_some(RETRY)).min()
    }

    /// Works until the last shard has ended.
    ///
    /// # Errors
    /// The disk fails: nothing more is written, but [`serve_reads`](Writer::serve_reads) goes on. Or what was not confirmed could
    /// not be written until the end.
    pub fn run(&mut self, inbox: &Inbox, read: &mut impl FnMut(Request)) -> Result<(), String> {
        while self.turn(inbox.take(self.patience()), inbox, read)? {}
        Ok(())
    }

    /// Does everything that has arrived. Returns false once the last shard has ended.
    ///
    /// # Errors
    /// As for [`run`](Writer::run).
    pub fn turn(
        &mut self,
        work: Work,
        inbox: &Inbox,
        read: &mut impl FnMut(Request),
    ) -> Result<bool, String> {
        let Work { batches, loads, has_ended } = work;
        if has_ended {
            self.ended_at.get_or_insert_with(Instant::now);
        }
        let is_wanted = !loads.is_empty() || !self.early.is_empty();
        let forgotten =
            if is_wanted { forgotten(batches.iter().map(|it| &it.1)) } else { HashMap::default() };
        let is_silent = batches.is_empty();
        self.push(batches);
        let loads = self.serve_written(loads, read);
        let done = self.work(is_silent, inbox);
        loads.into_iter().for_each(|(shard, record)| self.serve(shard, record, inbox, read));
        self.answer_early(&forgotten, inbox, read);
        done
    }

    fn push(&mut self, batches: Vec<(usize, Batch, u64)>) {
        let group_bytes = self.group_bytes();
        self.has_looked &= batches.is_empty();
        for (shard, batch, position) in batches {
            self.waiting.push(shard, batch, position, group_bytes);
        }
    }

    /// Looks for room in the next turn, however soon that comes.
    #[cfg(test)]
    pub(super) fn retry_now(&mut self) {
        self.look_at = Instant::now();
    }

    /// How many pages the file of the database may have, as on a full disk.
    #[cfg(test)]
    pub(super) fn set_pages_max(&self, pages: i64) {
        self.database.set_pages_max(pages);
    }

    fn group_bytes(&self) -> u64 {
        self.database.reserve_bytes() / GROUP_SHARE
    }

    /// Writes, confirms, and tidies up. Returns whether to go on.
    fn work(&mut self, is_silent: bool, inbox: &Inbox) -> Result<bool, String> {
        inbox.set_unwritten_max(self.group_bytes());
        (self.is_blocked, self.is_busy) = (false, false);
        // What was taken out comes first: the rest of its batches may be confirmed only behind it.
        self.write_urgent()?;
        if self.urgent.is_empty() && !self.is_busy {
            self.write_messages()?;
        }
        if self.is_blocked && !self.is_busy {
            self.sift();
            self.write_urgent()?;
        }
        self.make_safe()?;
        self.publish(inbox)?;
        self.confirm(inbox);
        let (goes_on, had_room) = (self.tidy(is_silent)?, self.has_room);
        self.look_for_room(inbox)?;
        if goes_on || had_room != self.has_room {
            self.publish(inbox)?;
        }
        match self.ended_at {
            Some(since) => self.end(since),
            None => Ok(true),
        }
    }

    fn write_messages(&mut self) -> Result<(), String> {
        while !self.waiting.is_empty() && !self.is_blocked && !self.is_busy {
            let gathered = self.waiting.gather(self.group_bytes());
            let outcome = self.database.write(&gathered.batches);
            if outcome.is_ok() {
                self.written.extend(gathered.told);
            } else {
                self.waiting.put_back(gathered); // it can be read from here
            }
            if self.succeeds(outcome)? {
                let outcome = self.database.checkpoint_if_due();
                self.succeeds(outcome)?;
            }
        }
        Ok(())
    }

    /// Whether something was done. If there was no room, the reserve is given for the next attempt.
    fn succeeds(&mut self, outcome: Result<(), Failure>) -> Result<bool, String> {
        match outcome {
            Ok(()) => return Ok(true),
            Err(Failure::Busy) => self.is_busy = true,
            Err(Failure::NoRoom) => self.make_room()?,
            Err(Failure::Broken(error)) => return Err(error),
        }
        Ok(false)
    }

    /// Gives the reserve, and brings into the database what was written beside it, so that its room can be used again.
    fn make_room(&mut self) -> Result<(), String> {
        let had_reserve = match self.database.give_reserve() {
            Ok(had_reserve) => had_reserve,
            Err(Failure::Broken(error)) => return Err(error),
            Err(Failure::NoRoom | Failure::Busy) => false,
        };
        if let Err(Failure::Broken(error)) = self.database.checkpoint() {
            return Err(error);
        }
        self.has_room = false;
        self.is_blocked = !had_reserve;
        Ok(())
    }

    /// Takes out what makes room, since messages have to wait.
    fn sift(&mut self) {
        let database = &self.database;
        self.waiting.sift(&mut self.urgent, |record| database.has(record).unwrap_or_default());
    }

    /// Writes what makes room.
    fn write_urgent(&mut self) -> Result<(), String> {
        let mut has_written = false;
        while !self.urgent.is_empty() {
            let later = self.urgent.split_off(self.urgent.len().min(URGENT_MAX));
            let calls = std::mem::replace(&mut self.urgent, later);
            let batch = [Batch { calls, ..Batch::default() }];
            let outcome = self.database.write(&batch);
            if outcome.is_err() {
                let [batch] = batch;
                let later = std::mem::replace(&mut self.urgent, batch.calls);
                self.urgent.extend(later);
            }
            has_written |= outcome.is_ok();
            if !self.succeeds(outcome)? && (self.is_blocked || self.is_busy) {
                return Ok(());
            }
        }
        self.written.extend(self.waiting.take_done());
        if has_written {
            let outcome = self.database.checkpoint();
            self.succeeds(outcome)?;
        }
        Ok(())
    }

    /// Makes what was written safe, if that is due.
    fn make_safe(&mut self) -> Result<(), String> {
        let is_due = match self.fsync {
            Fsync::Always => true,
            Fsync::Interval(interval) => self.synced_at.elapsed() >= interval,
            Fsync::Never => false,
        };
        if is_due || self.ended_at.is_some() {
            if let Err(Failure::Broken(error)) = self.database.sync() {
                return Err(error);
            }
            self.synced_at = Instant::now();
        }
        Ok(())
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
    fn publish(&mut self, inbox: &Inbox) -> Result<(), String> {
        match self.database.figures().map_err(Failure::from) {
            Ok(figures) => inbox.publish(figures, self.database.take_sync_times()),
            Err(Failure::Busy | Failure::NoRoom) => {} // next time
            Err(Failure::Broken(error)) => return Err(error),
        }
        Ok(())
    }

    /// Gives room back to the disk while shards are silent. Returns whether some was.
    fn tidy(&mut self, is_silent: bool) -> Result<bool, String> {
        if !is_silent || self.has_looked {
            return Ok(false);
        }
        let goes_on = match self.database.shrink() {
            Ok(goes_on) => goes_on,
            Err(Failure::NoRoom | Failure::Busy) => false,
            Err(Failure::Broken(error)) => return Err(error),
        };
        self.has_looked = !goes_on;
        Ok(goes_on)
    }

    /// Reserves room, and tells shards whether there is any.
    fn look_for_room(&mut self, inbox: &Inbox) -> Result<(), String> {
        if !self.is_blocked && (self.has_room || Instant::now() >= self.look_at) {
            self.look_at = Instant::now() + RETRY;
            match self.database.take_reserve() {
                Ok(has_room) => self.has_room = has_room,
                Err(Failure::NoRoom | Failure::Busy) => self.has_room = false,
                Err(Failure::Broken(error)) => return Err(error),
            }
        }
        inbox.set_full(!self.has_room || self.is_blocked);
        Ok(())
    }

    /// Ends, unless others make it wait. Returns whether to go on.
    fn end(&mut self, since: Instant) -> Result<bool, String> {
        if self.is_busy && since.elapsed() < END_PATIENCE {
            return Ok(true);
        }
        if let Err(Failure::Broken(error)) = self.database.close() {
            return Err(error);
        }
        let left = self.waiting.messages();
        let why = if self.is_busy { "another process writes to it" } else { "it is full" };
        match left {
            0 => Ok(false),
            _ => Err(format!("{why}: {left} messages that were not confirmed are lost")),
        }
    }
}
