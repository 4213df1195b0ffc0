//! Reads messages again, on a thread and with a connection of its own, so that no group waits for it.

use std::time::Duration;

use rusqlite::{Connection, OptionalExtension as _, Row};

use super::database::Failure;
use super::schema;
use crate::door::Directory;
use crate::ids::RecordId;
use crate::store::Unreadable;
use crate::store::file::batch::Batch;
use crate::store::file::entry::{Counts, Message};
use crate::store::file::inbox::Inbox;

/// How long to wait for somebody who changes the file as a whole.
const PATIENCE: Duration = Duration::from_secs(5);

/// The bytes that a shard gets at once, unless one message has more.
const BYTES_AT_ONCE: usize = 256 << 10;

/// A message that is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The shard that wants it.
    pub shard: usize,
    /// Its record.
    pub record: RecordId,
}

/// A connection to read with.
#[derive(Debug)]
pub struct Reader(Connection);

impl Reader {
    /// A reader of the database in this directory.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn new(directory: &Directory) -> rusqlite::Result<Self> {
        let connection = schema::connect_to_read(directory)?;
        connection.busy_timeout(PATIENCE)?;
        Ok(Reader(connection))
    }

    /// Reads messages, and gives them to the shards that want them: each shard is woken once for several. Returns how many; the
    /// others have to be tried again, since somebody prevents it, which says nothing of the messages.
    #[must_use]
    pub fn answer(&self, requests: &[Request], inbox: &Inbox) -> usize {
        let mut answered = 0;
        while let Some(first) = requests.get(answered) {
            let same = requests[answered..].iter().take_while(|request| request.shard == first.shard);
            let (mut loaded, mut bytes) = (Vec::new(), 0);
            for request in same {
                let Some(read) = self.read(request.record) else { break };
                bytes += read.as_ref().map_or(0, Vec::len);
                loaded.push((request.record, read));
                if bytes > BYTES_AT_ONCE {
                    break;
                }
            }
            if loaded.is_empty() {
                break;
            }
            answered += loaded.len();
            inbox.give_all(first.shard, loaded);
        }
        answered
    }

    /// Reads a message; `None`: somebody prevents it.
    fn read(&self, record: RecordId) -> Option<Result<Vec<u8>, Unreadable>> {
        match read(&self.0, record).map_err(Failure::from) {
            Err(Failure::Busy) => None,
            Err(Failure::NoRoom | Failure::Broken(_)) => Some(Err(Unreadable)),
            Ok(found) => Some(found.ok_or(Unreadable)),
        }
    }
}

/// Reads a message as an entry of the log; `None`: there is none of this record.
///
/// # Errors
/// SQLite fails.
pub fn read(connection: &Connection, record: RecordId) -> rusqlite::Result<Option<Vec<u8>>> {
    let mut statement = connection.prepare_cached(
        "SELECT record, queue, place, message_id, destination, persistent, expires, deliveries, failures,
           failures_max, grouped, plain, sender, headers, body FROM messages WHERE record = ?",
    )?;
    statement.query_row([record.cast_signed()], entry).optional()
}

fn entry(row: &Row<'_>) -> rusqlite::Result<Vec<u8>> {
    let number = |column: usize| row.get::<_, i64>(column).map(i64::cast_unsigned);
    let optional =
        |column: usize| row.get::<_, Option<i64>>(column).map(|found| found.map_or(0, i64::cast_unsigned));
    let bytes = |column: usize| {
        Ok::<_, rusqlite::Error>(row.get_ref(column)?.as_bytes_or_null()?.unwrap_or_default())
    };
    let mut batch = Batch::default();
    batch.add(&Message {
        record: number(0)?,
        queue: bytes(1)?,
        place: number(2)?,
        id: bytes(3)?,
        destination: bytes(4)?,
        persistent: row.get(5)?,
        expires_ms: optional(6)?,
        counts: Counts { deliveries: row.get(7)?, failures: row.get(8)? },
        failures_max: u16::try_from(optional(9)?).unwrap_or(u16::MAX),
        grouped: row.get(10)?,
        plain: row.get(11)?,
        sender: number(12)?,
        headers: bytes(13)?,
        body: bytes(14)?,
    });
    Ok(batch.bytes)
}
