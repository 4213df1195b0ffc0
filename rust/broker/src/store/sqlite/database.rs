//! The database of a store: takes what shards tell, writes it, and says when it is safe. It knows no threads and waits for
//! nothing but the disk, and for others who have locked the file.

use std::io;
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, OptionalExtension as _, ffi};

use super::group::{self, Early};
use super::reserve::Reserve;
use super::schema::{self, FILE, OpenError};
use crate::config::Fsync;
use crate::door::medium::is_no_room;
use crate::door::{Directory, Instant};
use crate::ids::RecordId;
use crate::report::types::StoreFigures;
use crate::store::file::batch::Batch;
use crate::store::file::entry::Counts;
use crate::store::file::recovery::{Recovered, Waiting};

/// How long to wait for somebody else who writes; then the group is tried again later.
const PATIENCE: Duration = Duration::from_millis(250);
/// The reserve takes this part of the disk, as a divisor, within these limits.
const RESERVE_SHARE: u64 = 16;
const RESERVE_BYTES: std::ops::RangeInclusive<u64> = 1 << 20..=16 << 20;
/// What a call may write of the file, beside the bytes of messages: a part of a page, since neighbours share it.
const CALL_BYTES: u64 = 1024;
/// Rows between two looks at whether to go on.
const ROWS: u64 = 4096;
/// The least that is given back to the disk, in pages.
const SPARE_PAGES: i64 = 1024;
/// How many pages are given back at a time.
const PAGES: i64 = 1024;
/// A longer file of what is not in the database yet is cut when it is empty.
const WAL_BYTES_MAX: u64 = 64 << 20;

/// Why nothing was written.
#[derive(Debug)]
pub enum Failure {
    /// The disk is full: it may be better later.
    NoRoom,
    /// Somebody else writes: it may be better later.
    Busy,
    /// The disk fails, or the database is damaged. It cannot be used any more.
    Broken(String),
}

impl From<rusqlite::Error> for Failure {
    fn from(error: rusqlite::Error) -> Self {
        match error.sqlite_error() {
            Some(known) if known.code == ErrorCode::DiskFull => Failure::NoRoom,
            // The index of what is not in the database yet could not grow.
            Some(known) if known.extended_code == ffi::SQLITE_IOERR_SHMSIZE => Failure::NoRoom,
            Some(known) if matches!(known.code, ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
                Failure::Busy
            }
            _ => Failure::Broken(error.to_string()),
        }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match is_no_room(&error) {
            true => Failure::NoRoom,
            false => Failure::Broken(error.to_string()),
        }
    }
}

/// A database that is open.
#[derive(Debug)]
pub struct Database {
    connection: Connection,
    directory: Directory,
    reserve: Reserve,
    /// Smaller records were all known when it was opened.
    first_record: RecordId,
    early: Early,
    /// About how many bytes were written since they were brought into the database.
    written_bytes: u64,
    /// Whether something was committed that the system has not been told to sync.
    is_behind: bool,
    /// Whether a commit syncs.
    syncs: bool,
    /// The figures that are counted.
    counters: StoreFigures,
    /// How long the syncs took since they were taken last.
    sync_times: Vec<Duration>,
}

impl Database {
    /// Opens the database in a directory, or creates it. `progress` is told from time to time the share of it that was read, in
    /// per cent, and says whether to go on. So many bytes are kept free for what makes room on a full disk, some at least.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open(
        directory: Directory,
        fsync: Fsync,
        reserve_bytes: u64,
        progress: impl FnMut(u64) -> bool,
    ) -> Result<(Self, Recovered), OpenError> {
        let disk = directory.disk_bytes().unwrap_or(u64::MAX);
        let bytes = (disk / RESERVE_SHARE).clamp(*RESERVE_BYTES.start(), *RESERVE_BYTES.end());
        schema::check(&directory)?;
        let reserve = Reserve::new(&directory, bytes.max(reserve_bytes))?;
        let connection = schema::connect(&directory)?;
        connection.busy_timeout(PATIENCE)?;
        // Each commit syncs the file to which it appends, or only what brings it into the database does: see `sync`.
        let syncs = fsync == Fsync::Always;
        let synchronous = if syncs { "FULL" } else { "NORMAL" };
        connection.execute_batch(&format!(
            "PRAGMA journal_mode = WAL; PRAGMA synchronous = {synchronous}; PRAGMA wal_autocheckpoint = 0;
             PRAGMA journal_size_limit = {WAL_BYTES_MAX}; PRAGMA temp_store = MEMORY; PRAGMA cache_size = -8192;"
        ))?;
        let (recovered, first_record) = recover(&connection, progress)?;
        let messages = recovered.queues.values().map(|line| line.len() as u64).sum();
        let database = Database {
            connection,
            directory,
            reserve,
            first_record,
            early: Early::default(),
            written_bytes: 0,
            is_behind: false,
            syncs,
            counters: StoreFigures { messages, ..StoreFigures::default() },
            sync_times: Vec::new(),
        };
        Ok((database, recovered))
    }

    /// All records that are known are smaller.
    #[must_use]
    pub fn next_record(&self) -> RecordId {
        self.first_record
    }

    /// The directory.
    #[must_use]
    pub fn directory(&self) -> &Directory {
        &self.directory
    }

    /// The bytes of the reserve. A group should be a quarter of it at most, so that a full disk is noticed while there is still
    /// room for what is on its way.
    #[must_use]
    pub fn reserve_bytes(&self) -> u64 {
        self.reserve.bytes()
    }

    /// Writes what was told as one group; with `fsync=always` it is safe then, otherwise after [`sync`](Database::sync).
    ///
    /// # Errors
    /// See [`Failure`]; nothing has changed.
    pub fn write(&mut self, batches: &[Batch]) -> Result<(), Failure> {
        if batches.iter().all(Batch::is_empty) {
            return Ok(());
        }
        let applied = group::apply(&mut self.connection, batches, self.first_record, &mut self.early)?;
        let calls: u64 = batches.iter().map(|batch| batch.calls.len() as u64).sum();
        let bytes: u64 = batches.iter().map(|batch| batch.bytes.len() as u64).sum();
        self.counters.groups += 1;
        self.counters.written_bytes += bytes;
        self.counters.messages = (self.counters.messages + applied.written).saturating_sub(applied.deleted);
        if self.syncs {
            self.note_sync(applied.commit);
        }
        self.written_bytes = self.written_bytes.saturating_add(bytes + CALL_BYTES * calls);
        self.is_behind = !self.syncs;
        Ok(())
    }

    /// Whether something was written that is not safe.
    #[must_use]
    pub fn is_behind(&self) -> bool {
        self.is_behind
    }

    /// Makes everything that was written safe.
    ///
    /// # Errors
    /// The disk fails. What is safe is then unknown.
    pub fn sync(&mut self) -> Result<(), Failure> {
        if self.is_behind {
            match self.directory.open(&format!("{FILE}-wal")) {
                Ok(file) => {
                    let began = Instant::now();
                    file.sync_data()?;
                    self.note_sync(began.elapsed());
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => {} // all of it is in the database
                Err(error) => return Err(error.into()),
            }
            self.is_behind = false;
        }
        Ok(())
    }

    fn note_sync(&mut self, time: Duration) {
        self.counters.syncs += 1;
        self.sync_times.push(time);
    }

    /// Its figures now. What is needed is counted in whole pages, and the database is one segment.
    ///
    /// # Errors
    /// SQLite fails.
    pub fn figures(&self) -> rusqlite::Result<StoreFigures> {
        let size = self.number("page_size")?.cast_unsigned();
        let pages = self.number("page_count")?.cast_unsigned();
        let free = self.number("freelist_count")?.cast_unsigned();
        let wal = self.directory.open(&format!("{FILE}-wal")).and_then(|file| file.length());
        Ok(StoreFigures {
            disk_bytes: pages * size + wal.unwrap_or_default(),
            reserve_bytes: self.reserve.taken_bytes(),
            needed_bytes: pages.saturating_sub(free) * size,
            segments: 1,
            ..self.counters
        })
    }

    /// How long the syncs took since the last call.
    pub fn take_sync_times(&mut self) -> impl Iterator<Item = Duration> {
        self.sync_times.drain(..)
    }

    /// Brings what was written into the database, once that is much, so that its own file does not grow.
    ///
    /// # Errors
    /// See [`Failure`].
    pub fn checkpoint_if_due(&mut self) -> Result<(), Failure> {
        match self.written_bytes > self.reserve.bytes() {
            true => self.checkpoint(),
            false => Ok(()),
        }
    }

    /// Brings what was written into the database. What somebody still reads stays where it is.
    ///
    /// # Errors
    /// See [`Failure`].
    pub fn checkpoint(&mut self) -> Result<(), Failure> {
        self.connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()))?;
        self.written_bytes = 0;
        Ok(())
    }

    /// Gives the reserve to what makes room. Returns whether there was any.
    ///
    /// # Errors
    /// The disk fails.
    pub fn give_reserve(&mut self) -> Result<bool, Failure> {
        Ok(self.reserve.give(&self.directory)?)
    }

    /// Takes room for the reserve, on the disk or in the database itself. Returns whether there is as much.
    ///
    /// # Errors
    /// The disk fails otherwise than by being full.
    pub fn take_reserve(&mut self) -> Result<bool, Failure> {
        if self.reserve.take(&self.directory)? {
            return Ok(true);
        }
        let free = self.number("freelist_count")?.saturating_mul(self.number("page_size")?);
        Ok(u64::try_from(free).is_ok_and(|free| free >= self.reserve.bytes()))
    }

    /// Gives a part of the room that nothing uses back to the disk, if that is more than half of the file. Returns whether to go
    /// on.
    ///
    /// # Errors
    /// See [`Failure`].
    pub fn shrink(&mut self) -> Result<bool, Failure> {
        let free = self.number("freelist_count")?;
        if free < SPARE_PAGES || free <= self.number("page_count")? / 2 {
            return Ok(false);
        }
        let mut statement = self.connection.prepare(&format!("PRAGMA incremental_vacuum({PAGES})"))?;
        let mut rows = statement.query([])?;
        while rows.next()?.is_some() {}
        drop(rows);
        drop(statement);
        self.checkpoint()?;
        Ok(true)
    }

    /// How many pages its file may have, as on a full disk.
    #[cfg(test)]
    pub(super) fn set_pages_max(&self, pages: i64) {
        let set = |row: &rusqlite::Row<'_>| row.get::<_, i64>(0);
        self.connection.query_row(&format!("PRAGMA max_page_count = {pages}"), [], set).expect("a database");
    }

    fn number(&self, pragma: &str) -> rusqlite::Result<i64> {
        self.connection.prepare_cached(&format!("PRAGMA {pragma}"))?.query_row([], |row| row.get(0))
    }

    /// Whether there is a message of this record.
    ///
    /// # Errors
    /// SQLite fails.
    pub fn has(&self, record: RecordId) -> rusqlite::Result<bool> {
        let mut statement = self.connection.prepare_cached("SELECT 1 FROM messages WHERE record = ?")?;
        statement.exists([record.cast_signed()])
    }

    /// Whether a record that is unknown will never come: it was given out before the database was opened.
    #[must_use]
    pub fn is_old(&self, record: RecordId) -> bool {
        record < self.first_record
    }

    /// Reads a message; `None`: there is none of this record.
    ///
    /// # Errors
    /// SQLite fails.
    pub fn read(&self, record: RecordId) -> rusqlite::Result<Option<Vec<u8>>> {
        super::reader::read(&self.connection, record)
    }

    /// Ends in order: everything is safe, and in the database.
    ///
    /// # Errors
    /// The disk fails.
    pub fn close(&mut self) -> Result<(), Failure> {
        self.sync()?;
        self.give_reserve()?;
        match self.checkpoint() {
            Err(Failure::NoRoom | Failure::Busy) => Ok(()), // it is safe where it is
            other => other,
        }
    }
}

/// What the database has, and the first record that it has not.
fn recover(
    connection: &Connection,
    mut progress: impl FnMut(u64) -> bool,
) -> Result<(Recovered, RecordId), OpenError> {
    let mut recovered = Recovered::default();
    let span = "SELECT min(record), max(record) FROM messages";
    let span = connection.query_row(span, [], |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
    let Some((Some(first), Some(last))) = span.map(|(first, last): (Option<i64>, Option<i64>)| (first, last))
    else {
        return Ok((recovered, 1));
    };
    let mut statement = connection.prepare(
        "SELECT record, queue, place, ifnull(expires, 0), deliveries, failures, octet_length(destination)
           + octet_length(message_id) + octet_length(headers) + octet_length(body) FROM messages ORDER BY record",
    )?;
    let mut rows = statement.query([])?;
    let mut count = 0;
    while let Some(row) = rows.next()? {
        let record = row.get::<_, i64>(0)?;
        let waiting = Waiting {
            record: record.cast_unsigned(),
            place: row.get::<_, i64>(2)?.cast_unsigned(),
            expires_ms: row.get::<_, i64>(3)?.cast_unsigned(),
            bytes: u32::try_from(row.get::<_, i64>(6)?).unwrap_or(u32::MAX),
        };
        let counts = Counts { deliveries: row.get(4)?, failures: row.get(5)? };
        if counts != Counts::default() {
            recovered.counts.insert(waiting.record, counts);
        }
        let queue = row.get_ref(1)?.as_bytes().map_err(rusqlite::Error::from)?;
        match recovered.queues.get_mut(queue) {
            Some(line) => line.push(waiting),
            None => _ = recovered.queues.insert(queue.to_vec(), vec![waiting]),
        }
        count += 1;
        let read = record.saturating_sub(first).cast_unsigned().saturating_mul(100);
        if count % ROWS == 0 && !progress(read / (last - first + 1).cast_unsigned().max(1)) {
            return Err(OpenError::Stopped);
        }
    }
    recovered
        .queues
        .values_mut()
        .for_each(|line| line.sort_unstable_by_key(|waiting| (waiting.place, waiting.record)));
    Ok((recovered, last.cast_unsigned() + 1))
}
