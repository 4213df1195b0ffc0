//! The threads of `record=`: one writes the recording until the last shard has ended, one reads it for replays.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use stompica_proto::ProtocolError;
use stompica_proto::error::Code;

use super::control::Control;
use super::restoring::waker;
use crate::config::{Config, Fsync, Ids};
use crate::destination::Pattern;
use crate::door::sync::{Ordering, channel, thread};
use crate::door::{Directory, Instant, wall_clock_ms};
use crate::held;
use crate::log::{Level, LogQueue};
use crate::mail::mailbox::Mail;
use crate::mail::shared::Shared;
use crate::store::Position;
use crate::store::recording::block::Block;
use crate::store::recording::desk::{Asked, Desk, Question, Read};
use crate::store::recording::log::{RecordLog, Retention};
use crate::store::recording::reader::{portion, seq_at};
use crate::store::recording::recovery::{Report, open};

/// The directory of the recording inside that of the store.
pub(super) const DIRECTORY: &str = "recorded";
/// The lengths of a segment in bytes.
const SEGMENT_BYTES: std::ops::RangeInclusive<u64> = 1 << 20..=64 << 20;
/// A segment takes this part of what may be kept, as a divisor.
const SEGMENT_SHARE: u64 = 16;
/// Publishers pause while more bytes than this are not written.
const UNWRITTEN_MAX: u64 = 16 << 20;
/// How often old segments are looked for, and how long the thread waits for room.
const PATIENCE: Duration = Duration::from_millis(500);

/// What the settings say about recording.
#[derive(Debug)]
pub(super) struct Settings {
    directory: Directory,
    fsync: Fsync,
    segment_bytes: u64,
    retention: Retention,
    epoch_min: u64,
}

impl Settings {
    /// The settings for a recording in this directory.
    pub(super) fn new(config: &Config, directory: Directory, segment_bytes_max: u64) -> Self {
        let segment_bytes = (config.record_size / SEGMENT_SHARE).min(segment_bytes_max);
        let age_ms = u64::try_from(config.record_age.as_millis()).unwrap_or(u64::MAX);
        Settings {
            directory,
            fsync: config.fsync,
            segment_bytes: segment_bytes.clamp(*SEGMENT_BYTES.start(), *SEGMENT_BYTES.end()),
            retention: Retention { age_ms, bytes: config.record_size },
            // Epochs of other directories, or of one that was cleared, are not mistaken for those of this one.
            epoch_min: if config.ids == Ids::Sequential { 1 } else { wall_clock_ms() / 1000 },
        }
    }
}

/// Why these names cannot be recorded, if so.
pub(super) fn refusal(config: &Config) -> Option<String> {
    config.record.0.iter().find_map(|name| {
        let error = Pattern::parse(name.as_bytes(), config.wildcards, config.compat).err()?;
        Some(format!("setting 'record' (value '{name}'): {}", error.detail))
    })
}

/// A recording that is open, and its threads.
#[derive(Debug)]
pub(super) struct Recording {
    desk: Arc<Desk>,
    writer: thread::JoinHandle<()>,
    reader: thread::JoinHandle<()>,
}

impl Recording {
    /// Opens the recording, and starts its threads.
    ///
    /// # Errors
    /// It cannot be read or written, in one line.
    pub(super) fn start(settings: Settings, shared: &Arc<Shared>, control: &Control) -> Result<Self, String> {
        let Settings { directory, fsync, segment_bytes, retention, epoch_min } = settings;
        let (dir, began) = (directory.path().display().to_string(), Instant::now());
        let (log, report) = open(Box::new(directory), segment_bytes, epoch_min, |_, _| !control.has_ended())
            .map_err(|error| format!("cannot use dir '{dir}' for record: {error}"))?;
        tell(&report, &log, &dir, began, &shared.log);
        let (questions, asked) = channel::<Asked>();
        let catalog = Arc::clone(log.catalog());
        let shards = shared.mailboxes.len();
        let desk = Desk::new(shards, Arc::clone(&catalog), questions, UNWRITTEN_MAX, waker(shared));
        let (answering, totals) = (Arc::clone(&desk), Arc::clone(&shared.totals));
        let read = move || {
            let mut counted = 0;
            while let Ok(Asked { shard, key, name, question }) = asked.recv_timeout(Duration::MAX) {
                let read = match question {
                    Question::Read(seq, place) => Read::Portion(portion(&catalog, &name, seq, place).ok()),
                    Question::Find(time_ms) => Read::Found(seq_at(&catalog, &name, time_ms).ok()),
                };
                let held = held::bytes();
                totals.memory.fetch_add(held - counted, Ordering::Relaxed);
                counted = held;
                answering.answer(shard, key, read);
            }
        };
        let (own, totals, records) = (Arc::clone(&desk), Arc::clone(&shared.totals), Arc::clone(&shared.log));
        let write = move || {
            let mut writer = Writer { log, fsync, retention, dir, counted: 0, synced_at: Instant::now() };
            let ended = writer.run(&own, &totals.memory);
            if let Err(error) = ended {
                let text = format!(
                    "the recording in '{}' has failed, and takes nothing more until a restart: {error}",
                    writer.dir
                );
                records.push(Level::Error, text.clone(), Vec::new());
                own.fail(ProtocolError::new(Code::StoreIo, text));
            }
        };
        let error = |error| format!("cannot start the threads of record: {error}");
        let reader = thread::Builder::new().name("stompica-replay".to_owned()).spawn(read).map_err(error)?;
        let writer = thread::Builder::new().name("stompica-record".to_owned()).spawn(write).map_err(error)?;
        for mailbox in shared.mailboxes.iter() {
            mailbox.post(&mut vec![Mail::Record(Arc::clone(&desk))]);
        }
        Ok(Recording { desk, writer, reader })
    }

    /// Waits until everything is written, behind the end of the last shard.
    pub(super) fn end(self) {
        self.desk.end();
        self.desk.end_questions();
        _ = self.writer.join();
        _ = self.reader.join();
    }
}

fn tell(report: &Report, log: &RecordLog, dir: &str, began: Instant, records: &LogQueue) {
    let destinations = log.catalog().lock().map_or(0, |catalog| catalog.len());
    let (messages, ms) = (report.messages, began.elapsed().as_millis());
    let text =
        format!("the recording in '{dir}' has {messages} messages of {destinations} destinations ({ms} ms)");
    records.push(Level::Info, text, Vec::new());
    if report.torn_bytes > 0 {
        let bytes = report.torn_bytes;
        let text = format!("the last {bytes} bytes of the recording were not complete, as after a crash");
        records.push(Level::Warn, text, Vec::new());
    }
    for hole in &report.holes {
        let copy = hole.copy.as_deref().unwrap_or("not copied");
        let text = format!(
            "segment {} of the recording is damaged from byte {} to {}; what was there is lost ({copy})",
            hole.segment, hole.from, hole.to
        );
        records.push(Level::Error, text, Vec::new());
    }
}

/// The state of the thread that writes.
struct Writer {
    log: RecordLog,
    fsync: Fsync,
    retention: Retention,
    dir: String,
    /// The bytes that this thread has counted in the total of the broker.
    counted: i64,
    synced_at: Instant,
}

impl Writer {
    fn run(&mut self, desk: &Desk, memory: &crate::door::sync::AtomicI64) -> std::io::Result<()> {
        // What is not written: blocks in order, and how many of them belong to each batch.
        let mut waiting: Vec<Arc<Block>> = Vec::new();
        let mut batches: VecDeque<(usize, Position, usize)> = VecDeque::new();
        let (mut written, mut retained_at) = (BTreeMap::new(), Instant::now());
        loop {
            let patience = match self.fsync {
                Fsync::Interval(interval) if self.log.is_behind() => interval.min(PATIENCE),
                _ => PATIENCE,
            };
            let work = desk.take(patience);
            for (shard, blocks, position) in work.batches {
                batches.push_back((shard, position, blocks.len()));
                waiting.extend(blocks);
            }
            let count = self.log.write(&waiting)?;
            let bytes: usize = waiting.drain(..count).map(|block| block.bytes()).sum();
            let mut left = count;
            while let Some((shard, position, blocks)) = batches.front_mut() {
                if *blocks > left {
                    *blocks -= left;
                    break;
                }
                left -= *blocks;
                written.insert(*shard, *position);
                batches.pop_front();
            }
            let is_due = match self.fsync {
                Fsync::Always => true,
                Fsync::Interval(interval) => self.synced_at.elapsed() >= interval,
                Fsync::Never => false,
            };
            if is_due {
                self.log.sync()?;
                self.synced_at = Instant::now();
            }
            // With another fsync a RECEIPT means that it was given to the system.
            while let Some((shard, position)) = written.pop_first() {
                desk.set_safe(shard, position);
            }
            let is_full = !waiting.is_empty();
            desk.set_room(is_full, bytes as u64);
            if retained_at.elapsed() >= PATIENCE {
                retained_at = Instant::now();
                self.log.retain(wall_clock_ms(), self.retention)?;
                let held = self.log.catalog().lock().map_or(0, |catalog| catalog.held_bytes());
                desk.catalog_bytes.store(held as u64, Ordering::Relaxed);
            }
            let held = held::bytes();
            memory.fetch_add(held - self.counted, Ordering::Relaxed);
            self.counted = held;
            if work.has_ended {
                if !waiting.is_empty() {
                    let text =
                        format!("the disk is full: {} blocks of messages are not recorded", waiting.len());
                    return Err(std::io::Error::new(std::io::ErrorKind::StorageFull, text));
                }
                return self.log.close();
            }
            if is_full {
                thread::sleep(PATIENCE / 10);
            }
        }
    }
}
