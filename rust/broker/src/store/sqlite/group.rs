//! Applies what several shards tell as one group. A message that is kept and forgotten in one group is not written at all.
//!
//! A message may even be forgotten before its shard tells that it is kept: then neither is written, and the record is
//! remembered until the message comes.

use std::time::Duration;

use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{CachedStatement, Connection, ToSql, Transaction, params};

use crate::door::{HashMap, Instant};
use crate::ids::RecordId;
use crate::store::file::batch::{Batch, Call, Piece};
use crate::store::file::entry::{Counts, Entry, Found, Message, Salt};

/// Records that were forgotten before they were kept.
pub type Early = HashMap<RecordId, ()>;

/// A group, sorted by what has to be done.
#[derive(Debug, Default)]
struct Group<'a> {
    kept: Vec<(&'a Batch, Piece)>,
    forgotten: HashMap<RecordId, ()>,
    delivered: HashMap<RecordId, Counts>,
}

impl<'a> Group<'a> {
    fn of(batches: &'a [Batch]) -> Self {
        let mut group = Group::default();
        for (batch, call) in
            batches.iter().flat_map(|batch| batch.calls.iter().map(move |call| (batch, call)))
        {
            match call {
                Call::Keep(piece) => group.kept.push((batch, *piece)),
                Call::Forget(record) => _ = group.forgotten.insert(*record, ()),
                Call::Deliver(record, counts) => {
                    let known = group.delivered.entry(*record).or_default();
                    *known = (*known).max(*counts);
                }
                Call::Commit(commit) => {
                    group.kept.extend(commit.kept.iter().map(|piece| (batch, *piece)));
                    group.forgotten.extend(commit.forgotten.iter().map(|record| (*record, ())));
                }
                Call::Move(..) | Call::StayForgotten(..) => {
                    debug_assert!(false, "only a log tells that to itself")
                }
            }
        }
        group
    }
}

/// A text, which need not be UTF-8.
struct Text<'a>(&'a [u8]);

impl ToSql for Text<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(ValueRef::Text(self.0)))
    }
}

/// What was done.
#[derive(Clone, Copy, Debug)]
pub struct Applied {
    /// Messages that were written.
    pub written: u64,
    /// Messages that were deleted.
    pub deleted: u64,
    /// How long the commit took.
    pub commit: Duration,
}

/// Applies batches in one transaction, and commits it. Smaller records than `first_record` are all known.
///
/// # Errors
/// SQLite fails: nothing has changed.
pub fn apply(
    connection: &mut Connection,
    batches: &[Batch],
    first_record: RecordId,
    early: &mut Early,
) -> rusqlite::Result<Applied> {
    let Group { kept, mut forgotten, mut delivered } = Group::of(batches);
    let transaction = connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
    let (mut come, mut written) = (Vec::new(), 0);
    {
        let mut insert = insertion(&transaction)?;
        for (batch, piece) in kept {
            if forgotten.remove(&piece.record).is_some() {
                continue;
            }
            if early.contains_key(&piece.record) {
                come.push(piece.record);
                continue;
            }
            let Found::Entry(Entry::Message(mut message), _) = Found::at(batch.bytes_of(piece), Salt::NONE)
            else {
                debug_assert!(false, "a shard encodes messages");
                continue;
            };
            if let Some(counts) = delivered.remove(&piece.record) {
                message.counts = message.counts.max(counts);
            }
            insert_message(&mut insert, &message)?;
            written += 1;
        }
    }
    let (deleted, missing) = delete(&transaction, forgotten, first_record)?;
    let mut update = transaction.prepare_cached(
        "UPDATE messages SET deliveries = max(deliveries, ?2), failures = max(failures, ?3) WHERE record = ?1",
    )?;
    for (record, counts) in delivered {
        update.execute(params![record.cast_signed(), counts.deliveries, counts.failures])?;
    }
    drop(update);
    let began = Instant::now();
    transaction.commit()?;
    come.iter().for_each(|record| _ = early.remove(record));
    early.extend(missing.into_iter().map(|record| (record, ())));
    Ok(Applied { written, deleted, commit: began.elapsed() })
}

fn insertion<'a>(transaction: &'a Transaction<'_>) -> rusqlite::Result<CachedStatement<'a>> {
    transaction.prepare_cached(
        "INSERT INTO messages (record, queue, place, message_id, destination, persistent, expires, deliveries, failures,
           failures_max, grouped, plain, sender, headers, body) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    )
}

fn insert_message(insert: &mut CachedStatement<'_>, message: &Message<'_>) -> rusqlite::Result<()> {
    let optional = |number: u64| (number != 0).then_some(number.cast_signed());
    insert.execute(params![
        message.record.cast_signed(),
        Text(message.queue),
        message.place.cast_signed(),
        Text(message.id),
        Text(message.destination),
        message.persistent,
        optional(message.expires_ms),
        message.counts.deliveries,
        message.counts.failures,
        optional(message.failures_max.into()),
        message.grouped,
        message.plain,
        message.sender.cast_signed(),
        Text(message.headers),
        message.body,
    ])?;
    Ok(())
}

/// Deletes messages. Returns how many there were, and the records of those that have not come.
fn delete(
    transaction: &Transaction<'_>,
    forgotten: Early,
    first_record: RecordId,
) -> rusqlite::Result<(u64, Vec<RecordId>)> {
    let mut records: Vec<RecordId> = forgotten.into_keys().collect();
    records.sort_unstable(); // neighbours are on one page
    let mut statement = transaction.prepare_cached("DELETE FROM messages WHERE record = ?")?;
    let (mut deleted, mut missing) = (0, Vec::new());
    for record in records {
        if statement.execute([record.cast_signed()])? > 0 {
            deleted += 1;
        } else if record >= first_record {
            missing.push(record);
        }
    }
    Ok((deleted, missing))
}
