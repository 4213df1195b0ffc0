//! Writes entries; their format is described in [`entry`](super::entry).

use super::entry::{
    COUNTS, Counts, DELIVERED, EXCEPTIONS, EXPIRES, FORGOTTEN, GROUP, GROUPED, Group, HEAD_BYTES, MESSAGE,
    Message, PERSISTENT, PLAIN, QUEUE, SHARED, Salt, SegmentNumber, TRANSACTION, checksum_of,
};
use super::varint::{put, put_step, put_text};
use crate::ids::RecordId;

/// Appends an entry whose fields are written by `fields`.
#[inline]
pub(in crate::store) fn append(out: &mut Vec<u8>, kind: u8, fields: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.resize(start + HEAD_BYTES, 0);
    fields(out);
    complete(&mut out[start..], kind);
}

/// Writes length, checksum and kind of an entry, for which its first [`HEAD_BYTES`] are free.
fn complete(entry: &mut [u8], kind: u8) {
    entry[8] = kind;
    let content = &entry[8..];
    let (length, checksum) = (content.len() as u32, checksum_of(content));
    entry[..4].copy_from_slice(&length.to_le_bytes());
    entry[4..8].copy_from_slice(&checksum.to_le_bytes());
}

/// Appends the beginning of a group, for a segment with this salt.
pub fn append_group(out: &mut Vec<u8>, group: Group, salt: Salt) {
    let start = out.len();
    append(out, GROUP, |out| {
        out.extend_from_slice(&salt.0.to_le_bytes());
        out.extend_from_slice(&group.number.to_le_bytes());
        out.extend_from_slice(&group.synced.to_le_bytes());
        out.extend_from_slice(&group.length.to_le_bytes());
    });
    salt.change(&mut out[start..]);
}

/// Appends a message, without salt.
pub fn append_message(out: &mut Vec<u8>, message: &Message<'_>) {
    append(out, MESSAGE, |out| put_message(out, message));
}

/// Appends a message that stands in several queues, without salt: one payload, and what differs.
pub fn append_shared<'a>(
    out: &mut Vec<u8>,
    first: &Message<'_>,
    further: impl ExactSizeIterator<Item = Message<'a>>,
) {
    append(out, SHARED, |out| {
        put(out, further.len() as u64);
        for message in further {
            put_head(out, &message, true);
            put_text(out, message.queue);
        }
        put_message(out, first);
    });
}

fn put_message(out: &mut Vec<u8>, message: &Message<'_>) {
    let has_queue = message.queue != message.destination;
    put_head(out, message, has_queue);
    put(out, message.sender);
    if has_queue {
        put_text(out, message.queue);
    }
    [message.destination, message.id, message.headers].into_iter().for_each(|text| put_text(out, text));
    out.extend_from_slice(message.body);
}

#[inline]
fn put_head(out: &mut Vec<u8>, message: &Message<'_>, has_queue: bool) {
    put(out, message.record);
    put(out, message.place);
    let has_counts = message.counts != Counts::default();
    let flags = [
        (message.persistent, PERSISTENT),
        (message.plain, PLAIN),
        (message.grouped, GROUPED),
        (message.expires_ms != 0, EXPIRES),
        (message.failures_max != 0, EXCEPTIONS),
        (has_counts, COUNTS),
        (has_queue, QUEUE),
    ];
    out.push(flags.into_iter().filter(|(is_set, _)| *is_set).fold(0, |all, (_, flag)| all | flag));
    if message.expires_ms != 0 {
        put(out, message.expires_ms);
    }
    if message.failures_max != 0 {
        put(out, message.failures_max.into());
    }
    if has_counts {
        put_counts(out, message.counts);
    }
}

fn put_counts(out: &mut Vec<u8>, counts: Counts) {
    put(out, counts.deliveries.into());
    put(out, counts.failures.into());
}

/// Appends that messages are no longer needed, each with the segment that has it; sorts them. Nothing if there are none. It has no
/// salt.
pub fn append_forgotten(out: &mut Vec<u8>, forgotten: &mut [(SegmentNumber, RecordId)]) {
    if forgotten.is_empty() {
        return;
    }
    forgotten.sort_unstable();
    append(out, FORGOTTEN, |out| {
        for of_segment in forgotten.chunk_by(|one, next| one.0 == next.0) {
            put(out, of_segment[0].0.into());
            put(out, of_segment.len() as u64);
            let mut before = 0;
            for (_, record) in of_segment {
                put_step(out, before, *record);
                before = *record;
            }
        }
    });
}

/// Appends how often messages were delivered; sorts them. Nothing if there are none. It has no salt.
pub fn append_delivered(out: &mut Vec<u8>, delivered: &mut [(RecordId, Counts)]) {
    if delivered.is_empty() {
        return;
    }
    delivered.sort_unstable();
    append(out, DELIVERED, |out| {
        let mut before = 0;
        for (record, counts) in &*delivered {
            put_step(out, before, *record);
            put_counts(out, *counts);
            before = *record;
        }
    });
}

/// Completes a transaction: its entries, which have this salt, stand behind [`HEAD_BYTES`] free bytes.
pub fn complete_transaction(transaction: &mut [u8], salt: Salt) {
    complete(transaction, TRANSACTION);
    salt.change(transaction);
}
