//! Recovery of a log from any bytes: it ends without a panic, and serves nothing that was not written.
//!
//! The first byte chooses what the others are:
//!
//! - 0: the files themselves, each with two bytes for its length before it;
//! - 1: the contents of entries, which get the right length and checksum: so they are read however odd they are;
//! - 2: calls that a log has written, and then places in its files that are changed.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use crate::door::medium::{Medium, MediumFile, SharedFile};
use crate::ids::RecordId;
use crate::store::file::batch::{Batch, Call, Commit};
use crate::store::file::entry::{Counts, Entry, Found, Message, Salt};
use crate::store::file::log::{Log, Lookup};
use crate::store::file::reader::Request;
use crate::store::file::segment::{self, Header};
use crate::store::file::segments::Purpose;

/// The length of segments.
const SEGMENT: u64 = 1024;
/// The most entries and calls of one input.
const STEPS_MAX: usize = 2000;
const SALT: Salt = Salt(0x1122_3344_5566_7788);
/// The kinds of entries that hold others or begin a group.
const GROUP: u8 = 1;
const TRANSACTION: u8 = 5;

/// Files in memory; clones are the same ones.
#[derive(Clone, Debug, Default)]
struct Files(Arc<Mutex<BTreeMap<String, Arc<File>>>>);

#[derive(Debug, Default)]
struct File(Mutex<Vec<u8>>);

impl File {
    fn with<T>(&self, act: impl FnOnce(&mut Vec<u8>) -> T) -> T {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Files {
    fn with<T>(&self, act: impl FnOnce(&mut BTreeMap<String, Arc<File>>) -> T) -> T {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn add(&self, name: String, bytes: Vec<u8>) {
        self.with(|files| files.insert(name, Arc::new(File(Mutex::new(bytes)))));
    }
}

impl Medium for Files {
    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.with(|files| files.keys().cloned().collect()))
    }

    fn create(&self, name: &str, bytes: u64) -> io::Result<SharedFile> {
        let file = Arc::new(File(Mutex::new(vec![0; bytes as usize])));
        match self.with(|files| files.contains_key(name)) {
            true => Err(io::ErrorKind::AlreadyExists.into()),
            false => {
                self.with(|files| files.insert(name.to_owned(), Arc::clone(&file)));
                Ok(file)
            }
        }
    }

    fn open(&self, name: &str) -> io::Result<SharedFile> {
        let file = self.with(|files| files.get(name).cloned());
        file.map(|file| file as SharedFile).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.with(|files| files.remove(name)).map(|_| ()).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn rename(&self, name: &str, other: &str) -> io::Result<()> {
        let file = self.with(|files| files.remove(name)).ok_or(io::ErrorKind::NotFound)?;
        self.with(|files| files.insert(other.to_owned(), file));
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn name(&self) -> String {
        "memory".to_owned()
    }
}

impl MediumFile for File {
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let at = offset as usize;
        self.with(|contents| {
            contents.resize(contents.len().max(at + bytes.len()), 0);
            contents[at..at + bytes.len()].copy_from_slice(bytes);
        });
        Ok(())
    }

    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        self.with(|contents| {
            let rest = contents.get(usize::try_from(offset).unwrap_or(usize::MAX)..).unwrap_or_default();
            let count = rest.len().min(bytes.len());
            bytes[..count].copy_from_slice(&rest[..count]);
            Ok(count)
        })
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn sync_all(&self) -> io::Result<()> {
        Ok(())
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.with(|contents| contents.len() as u64))
    }

    fn set_length(&self, bytes: u64) -> io::Result<()> {
        self.with(|contents| contents.resize(bytes as usize, 0));
        Ok(())
    }
}

/// Bytes that are taken one after the other; zeros follow.
struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    fn number(&mut self) -> usize {
        usize::from(self.byte()) << 8 | usize::from(self.byte())
    }

    fn bytes(&mut self, count: usize) -> &[u8] {
        let (taken, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        taken
    }
}

/// Recovers a log from these bytes, reads what it serves, and recovers what that has left.
///
/// # Panics
/// Recovery serves what was not written, or something else the second time.
pub fn run(input: &[u8]) {
    let mut input = Input(input);
    match input.byte() % 3 {
        0 => _ = recover_twice(&files(&mut input)),
        1 => _ = recover_twice(&entries(&mut input)),
        _ => changed(&mut input),
    }
}

fn files(input: &mut Input<'_>) -> Files {
    let files = Files::default();
    for number in 1..=8 {
        let length = input.number();
        let number = if length & 1 << 15 == 0 { number } else { u32::MAX - number };
        let bytes = input.bytes(length & 0x3fff).to_vec();
        files.add(segment::name(number), bytes);
        if input.0.is_empty() {
            break;
        }
    }
    files
}

/// Appends an entry with this content, in which the kind comes first.
fn append(out: &mut Vec<u8>, content: &[u8]) {
    let length = (content.len() as u32).to_le_bytes();
    let checksum = crc32c::crc32c_append(crc32c::crc32c(&length), content);
    let start = out.len();
    out.extend_from_slice(&length);
    out.extend_from_slice(&checksum.to_le_bytes());
    out.extend_from_slice(content);
    SALT.change(&mut out[start..]);
}

fn entries(input: &mut Input<'_>) -> Files {
    let (files, mut number) = (Files::default(), 1);
    let header = |number, input: &mut Input<'_>| {
        let group = u64::from(input.byte());
        Header { number, record: u64::from(input.byte()), group, salt: SALT }.bytes().to_vec()
    };
    let (mut bytes, mut starts) = (header(number, input), Vec::new());
    for _ in 0..STEPS_MAX {
        if input.0.is_empty() {
            break;
        }
        let (step, length) = (input.byte(), usize::from(input.byte()));
        let start = bytes.len();
        match step % 8 {
            // A group, with a length that may be right.
            0 | 1 => {
                let (group, synced) = (u64::from(input.byte()), u64::from(input.byte()));
                let fields =
                    [&[GROUP][..], &SALT.0.to_le_bytes(), &group.to_le_bytes(), &synced.to_le_bytes()];
                append(&mut bytes, &[&fields.concat()[..], &(length as u32).to_le_bytes()].concat());
            }
            // The entries from one on become a transaction.
            2 => {
                let from = starts.len().saturating_sub(1 + length % 4);
                let at = starts.get(from).copied().unwrap_or(start);
                let content = [&[TRANSACTION][..], &bytes[at..]].concat();
                bytes.truncate(at);
                starts.truncate(from);
                append(&mut bytes, &content);
                starts.push(at);
                continue;
            }
            3 if number < 4 => {
                files.add(segment::name(number), std::mem::take(&mut bytes));
                number += 1;
                bytes = header(number, input);
                starts.clear();
                continue;
            }
            kind => append(&mut bytes, &[&[kind.max(2)][..], input.bytes(length)].concat()),
        }
        starts.push(start);
    }
    files.add(segment::name(number), bytes);
    files
}

/// What a log serves: each record with its queue and its body.
type Served = BTreeMap<RecordId, (Vec<u8>, Vec<u8>)>;

/// Opens the log in these files, and reads everything that it serves. `None`: it cannot be opened.
fn recover(files: &Files) -> Option<(Log, Served)> {
    let (log, recovered) = Log::open_with_reserve(files.clone(), SEGMENT, 0, |_, _| true).ok()?;
    let mut served = Served::new();
    for (queue, waiting) in &recovered.queues {
        for found in waiting {
            let Lookup::At(file, stored) = log.find(found.record) else { continue };
            let read = Request { shard: 0, record: found.record, file, stored }.read();
            if let Ok(bytes) = read
                && let Found::Entry(Entry::Message(message), _) = Found::at(&bytes, Salt::NONE)
            {
                served.insert(found.record, (queue.clone(), message.body.to_vec()));
            }
        }
    }
    Some((log, served))
}

/// Recovers these files, and again what that has left.
fn recover_twice(files: &Files) -> Option<(Log, Served)> {
    let bytes: usize = files.with(|all| all.values().map(|file| file.with(|bytes| bytes.len())).sum());
    let (log, served) = recover(files)?;
    assert!(served.len() <= bytes, "{} messages in {bytes} bytes", served.len());
    drop(log);
    let (log, again) = recover(files)?;
    assert_eq!(served, again, "a second start serves something else");
    Some((log, again))
}

/// Writes a log, changes its files, and compares what is served with what was written.
fn changed(input: &mut Input<'_>) {
    let (files, mut written) = (Files::default(), Served::new());
    let Some((mut log, _)) = recover(&files) else { panic!("an empty directory is a log") };
    let calls = usize::from(input.byte()).min(STEPS_MAX);
    let mut record = 256;
    for _ in 0..calls {
        let (step, length) = (input.byte(), usize::from(input.byte()));
        let mut batch = Batch::default();
        let mut message = |batch: &mut Batch, body: &[u8]| {
            let queue: &[u8] = if record % 2 == 0 { b"/queue/a" } else { b"/queue/b" };
            written.insert(record, (queue.to_vec(), body.to_vec()));
            let (place, destination, id) = (record, queue, b"i-1");
            let piece =
                batch.add(&Message { record, place, queue, destination, id, body, ..Message::default() });
            record += 1;
            piece
        };
        match step % 4 {
            0 | 1 => {
                let piece = message(&mut batch, input.bytes(length));
                batch.calls.push(Call::Keep(piece));
            }
            2 => {
                let forgotten = 256 + (length as u64) % 64;
                let kept = vec![message(&mut batch, &[step]), message(&mut batch, &[])];
                batch.calls.push(Call::Commit(Commit { kept, forgotten: vec![forgotten] }));
            }
            _ => {
                let known = 256 + (length as u64) % 64;
                batch.calls.push(Call::Deliver(known, Counts { deliveries: 1, failures: 0 }));
                batch.calls.push(Call::Forget(known));
            }
        }
        log.write(&[batch], record, Purpose::Messages).expect("memory does not fail");
        if step & 64 != 0 {
            log.sync().expect("memory does not fail");
        }
    }
    if input.byte().is_multiple_of(2) {
        log.close().expect("memory does not fail");
    }
    drop(log);
    damage(&files, input);
    let Some((mut log, served)) = recover_twice(&files) else { return };
    for (record, message) in &served {
        assert_eq!(written.get(record), Some(message), "record {record} was never written so");
    }
    // It is a log like any other: what is written now is served by the next start.
    let new = log.next_record().max(record);
    let mut batch = Batch::default();
    batch.keep(&Message { record: new, queue: b"/queue/a", destination: b"/queue/a", ..Message::default() });
    log.write(&[batch], new + 1, Purpose::Messages).expect("memory does not fail");
    log.sync().expect("memory does not fail");
    drop(log);
    let Some((_, again)) = recover(&files) else { panic!("it was a log before") };
    assert!(again.contains_key(&new), "what was synced is lost");
    assert!(served.keys().all(|record| again.contains_key(record)), "what was served is lost");
}

/// Changes files in places that the input names.
fn damage(files: &Files, input: &mut Input<'_>) {
    let segments: Vec<String> = files.with(|all| all.keys().cloned().collect());
    for _ in 0..64 {
        if input.0.is_empty() || segments.is_empty() {
            return;
        }
        let name = &segments[usize::from(input.byte()) % segments.len()];
        let (place, value) = (input.number(), input.byte());
        let Some(file) = files.with(|all| all.get(name).cloned()) else { continue };
        file.with(|bytes| {
            let at = place % bytes.len().max(1);
            match input.byte() % 4 {
                0 if at < bytes.len() => bytes[at] ^= value.max(1),
                1 => bytes.truncate(at),
                2 => bytes.iter_mut().skip(at).take(usize::from(value)).for_each(|byte| *byte = 0),
                _ => {
                    // A copy of something else in the file.
                    let from = usize::from(value) % bytes.len().max(1);
                    let copy: Vec<u8> = bytes.iter().skip(from).take(100).copied().collect();
                    bytes.iter_mut().skip(at).zip(copy).for_each(|(byte, copied)| *byte = copied);
                }
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    // PROPTEST_CASES=100000 tries more.
    proptest! {
        #[test]
        fn any_bytes_are_recovered_without_a_panic(
            mode in 0..3u8, bytes in proptest::collection::vec(any::<u8>(), 0..1500)
        ) {
            run(&[&[mode], &bytes[..]].concat());
        }

        #[test]
        fn changed_logs_serve_only_what_was_written(
            calls in proptest::collection::vec(any::<u8>(), 0..600),
            changes in proptest::collection::vec(any::<u8>(), 0..60)
        ) {
            let count = (calls.len() / 20) as u8;
            run(&[&[2, count], &calls[..], &changes[..]].concat());
        }
    }

    #[test]
    fn deeply_nested_transactions_are_damage() {
        let nested = [2, 0].repeat(STEPS_MAX);
        run(&[&[1, 1, 1, 0, 255, 1, 0, 4, 3, 1, 2, 3][..], &nested[..]].concat());
    }

    /// The corpus of the fuzz target `store_recovery`.
    #[test]
    fn the_corpus_is_recovered() {
        let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../fuzz/corpus/store_recovery");
        let files = std::fs::read_dir(corpus).expect("the corpus");
        let inputs = files.map(|entry| std::fs::read(entry.expect("an entry").path()).expect("a file"));
        assert!(inputs.map(|input| run(&input)).count() >= 6);
    }
}
