//! The database file: its tables, its version, and how it is created.
//!
//! It is created under another name, and gets its own when it is complete: a database that is found has all its tables.

use std::io;

use rusqlite::{Connection, OpenFlags};

use crate::door::{Directory, DiskFile};

/// The name of the database in its directory.
pub const FILE: &str = "messages.db";
/// Its name while it is created.
const NEW: &str = "messages.db-new";
/// What SQLite appends to the name of a database for files of its own.
const COMPANIONS: [&str; 3] = ["-journal", "-wal", "-shm"];
/// The version of the format: `user_version`.
pub const VERSION: i32 = 1;
/// What says that it is a store of stompica, `application_id`: `STMP`.
const APPLICATION: i32 = 0x5354_4d50;
/// How a SQLite file begins.
const MAGIC: &[u8] = b"SQLite format 3\0";
/// The length of a SQLite file's header, and where it has `user_version` and `application_id`.
const HEADER_BYTES: usize = 100;
const VERSION_AT: usize = 60;
const APPLICATION_AT: usize = 68;

/// The comments are for people who look at it: `sqlite3 messages.db .schema`.
const TABLES: &str = "
CREATE TABLE messages (
  record INTEGER PRIMARY KEY,   -- the number of the message in the store
  queue TEXT NOT NULL,          -- the queue in which it waits; see docs/store.md for those with a line end in their names
  place INTEGER NOT NULL,       -- its place in the queue: the smallest one comes first
  message_id TEXT NOT NULL,     -- message-id
  destination TEXT NOT NULL,    -- destination
  persistent INTEGER NOT NULL,  -- 1: persistent:true
  expires INTEGER,              -- when it expires, in milliseconds since 1970; NULL: never
  deliveries INTEGER NOT NULL,  -- how often it was delivered
  failures INTEGER NOT NULL,    -- how often that failed: NACK, ack_timeout
  failures_max INTEGER,         -- max-exceptions; NULL: as in the settings
  grouped INTEGER NOT NULL,     -- 1: it belongs to a message group
  plain INTEGER NOT NULL,       -- 1: nothing in destination and headers needs escaping
  sender INTEGER NOT NULL,      -- the connection that sent it, of interest to the process that wrote it
  headers TEXT NOT NULL,        -- the sender's own headers, one a line, escaped as in STOMP 1.2
  body BLOB NOT NULL
) STRICT;
-- What waits in queues, as stompserver's table of this name has it: each message as a MESSAGE frame.
CREATE VIEW ar_messages (stomp_id, frame) AS
SELECT message_id,
  'MESSAGE' || char(10) || 'message-id:' || message_id || char(10) || 'destination:'
  || replace(replace(replace(replace(destination, '\\', '\\\\'), ':', '\\c'), char(10), '\\n'), char(13), '\\r')
  || char(10) || headers || 'content-length:' || length(body) || char(10) || char(10) || CAST(body AS TEXT) || char(0)
FROM messages WHERE instr(queue, char(10)) = 0 ORDER BY queue, place;
";

/// Why a directory cannot be opened as a store. Nothing in it was changed.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The database has a format that this version does not know.
    #[error("'{FILE}' has version {0} of the format, and this stompica knows version {VERSION}")]
    Version(i32),
    /// The file is something else.
    #[error("'{FILE}' is no database of a stompica store")]
    Foreign,
    /// A file that belongs to a database is there without it, and would be taken for a part of a new one.
    #[error("'{0}' is there without its database '{FILE}'")]
    Orphan(String),
    /// What SQLite has found is not what it has written.
    #[error("'{FILE}' is damaged: {0}; 'sqlite3 {FILE} .recover' shows what can still be read")]
    Damaged(rusqlite::Error),
    /// The caller did not want to go on.
    #[error("it was not read to its end")]
    Stopped,
    /// The disk fails.
    #[error("'{FILE}': {0}")]
    Io(#[from] io::Error),
    /// SQLite fails.
    #[error("'{FILE}': {0}")]
    Database(rusqlite::Error),
}

impl From<rusqlite::Error> for OpenError {
    fn from(error: rusqlite::Error) -> Self {
        use rusqlite::ErrorCode::{DatabaseCorrupt, NotADatabase};
        match error.sqlite_error_code() {
            Some(DatabaseCorrupt | NotADatabase) => OpenError::Damaged(error),
            _ => OpenError::Database(error),
        }
    }
}

/// Whether a file in the directory says that it is, or may be, a store of this kind.
///
/// # Errors
/// The directory cannot be read.
pub fn is_there(directory: &Directory) -> io::Result<bool> {
    Ok(directory.list()?.iter().any(|name| name == FILE))
}

/// Whether a directory may be opened, as far as the beginning of the database tells. Changes nothing.
///
/// # Errors
/// See [`OpenError`].
pub fn check(directory: &Directory) -> Result<(), OpenError> {
    let names = directory.list()?;
    if names.iter().any(|name| name == FILE) {
        return check_header(&directory.open(FILE)?);
    }
    let orphan = COMPANIONS.map(|end| format!("{FILE}{end}")).into_iter().find(|name| names.contains(name));
    orphan.map_or(Ok(()), |name| Err(OpenError::Orphan(name)))
}

fn check_header(file: &DiskFile) -> Result<(), OpenError> {
    let mut header = [0; HEADER_BYTES];
    let count = file.read_at(&mut header, 0)?;
    let number = |at: usize| header[at..].first_chunk().map_or(0, |bytes| i32::from_be_bytes(*bytes));
    if count < HEADER_BYTES || !header.starts_with(MAGIC) || number(APPLICATION_AT) != APPLICATION {
        return Err(OpenError::Foreign);
    }
    check_version(number(VERSION_AT))
}

fn check_version(version: i32) -> Result<(), OpenError> {
    match version {
        VERSION => Ok(()),
        other => Err(OpenError::Version(other)),
    }
}

/// A connection to write with. The database is created if there is none.
///
/// # Errors
/// See [`OpenError`].
pub fn connect(directory: &Directory) -> Result<Connection, OpenError> {
    check(directory)?;
    if !is_there(directory)? {
        create(directory)?;
    }
    let path = directory.path().join(FILE);
    let connection = Connection::open_with_flags(
        path,
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX,
    )?;
    // A newer version may have changed it and not have brought that into the file itself.
    check_version(connection.pragma_query_value(None, "user_version", |row| row.get(0))?)?;
    Ok(connection)
}

/// A connection to read with, beside one to write with.
///
/// # Errors
/// The database cannot be opened.
pub fn connect_to_read(directory: &Directory) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    Connection::open_with_flags(directory.path().join(FILE), flags)
}

fn create(directory: &Directory) -> Result<(), OpenError> {
    let names = directory.list()?;
    let left = std::iter::once("").chain(COMPANIONS).map(|end| format!("{NEW}{end}"));
    for name in left.filter(|name| names.contains(name)) {
        directory.remove(&name)?;
    }
    let connection = Connection::open(directory.path().join(NEW))?;
    let made = connection.execute_batch(&format!(
        "PRAGMA auto_vacuum = INCREMENTAL; PRAGMA synchronous = FULL; BEGIN; {TABLES} COMMIT;
         PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {VERSION}; PRAGMA journal_mode = WAL;"
    ));
    made.map_err(OpenError::from).and_then(|()| connection.close().map_err(|(_, error)| error.into()))?;
    directory.rename(NEW, FILE)?;
    Ok(directory.sync()?)
}

#[cfg(test)]
#[path = "schema_tests.rs"]
mod tests;
