//! Reads a store without changing it.

use std::path::Path;

use stompica_proto::{Version, escape};

use super::{Headers, Kind, OfflineError, StoredMessage};
use crate::door::{HashMap, ViewedDirectory};
use crate::ids::RecordId;
use crate::storage::SEGMENT_BYTES;
use crate::storage::ended::leave_out_ended;
use crate::store::file::damage::Damage;
use crate::store::file::entry::{Counts, Entry, Found, Message, Salt};
use crate::store::file::handle::message_of as message_of_entry;
use crate::store::file::reader::Request;
use crate::store::file::recovery::{self, Opened, Recovered, Waiting};
use crate::store::file::segment;
use crate::store::file::segments::Segments;
use crate::store::file::table::{Place, Table};
use crate::store::{DEFINITIONS, RETAINED};

/// A queue of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredQueue {
    /// Its name.
    pub name: Vec<u8>,
    /// What it has.
    pub kind: Kind,
    /// The number of its messages.
    pub messages: usize,
    /// Destination, id, headers and body of all of them, in bytes.
    pub bytes: u64,
}

/// A part of a file that the disk has lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DamagedPart {
    /// The file.
    pub file: String,
    /// Its first byte.
    pub from: u64,
    /// The byte behind it.
    pub to: u64,
    /// How many messages are lost; `None`: that is unknown.
    pub messages: Option<u64>,
    /// The queues of lost messages, as far as they can still be read.
    pub queues: Vec<Vec<u8>>,
}

impl DamagedPart {
    fn of(damage: &Damage) -> Self {
        let mut queues: Vec<Vec<u8>> = damage.affected.iter().map(|(queue, _)| queue.clone()).collect();
        queues.sort_unstable();
        queues.dedup();
        let (from, to, messages) = (damage.from, damage.to, damage.messages);
        DamagedPart { file: segment::name(damage.segment), from, to, messages, queues }
    }
}

/// A store as its files were when they were opened. No broker can use the directory meanwhile.
#[derive(Debug)]
pub struct View {
    segments: Segments,
    table: Table,
    queues: Vec<(Vec<u8>, Vec<Waiting>)>,
    counts: HashMap<RecordId, Counts>,
    damages: Vec<Damage>,
    torn_bytes: u64,
}

impl View {
    /// Reads the store in a directory. `progress` is told the bytes that were read and all bytes, and says whether to go on.
    ///
    /// # Errors
    /// The directory is in use, cannot be read, or has no store that this version knows; or `progress` has ended it.
    pub fn open(path: &Path, progress: impl FnMut(u64, u64) -> bool) -> Result<Self, OfflineError> {
        let dir = path.display().to_string();
        let directory =
            ViewedDirectory::open(path).map_err(|error| OfflineError::of_claim("read", &dir, &error))?;
        let opened = recovery::open(Box::new(directory), *SEGMENT_BYTES.end(), progress);
        let Opened { segments, table, mut recovered, .. } =
            opened.map_err(|error| OfflineError::of("read", &dir, error))?;
        leave_out_ended(&mut recovered, |record| {
            let bytes = request(&segments, &table, record)?.read().ok()?;
            message_of_entry(&bytes, RecordId::MAX)
        });
        let Recovered { queues, counts, damages, torn_bytes } = recovered;
        Ok(View { segments, table, queues: queues.into_iter().collect(), counts, damages, torn_bytes })
    }

    /// The number of its files.
    #[must_use]
    pub fn segments(&self) -> usize {
        self.segments.iter().count()
    }

    /// The bytes of its files that are needed.
    #[must_use]
    pub fn needed_bytes(&self) -> u64 {
        self.segments.needed_bytes()
    }

    /// The bytes at the end that a crash has left incomplete.
    #[must_use]
    pub fn torn_bytes(&self) -> u64 {
        self.torn_bytes
    }

    /// What the disk has lost.
    #[must_use]
    pub fn damages(&self) -> Vec<DamagedPart> {
        self.damages.iter().map(DamagedPart::of).collect()
    }

    /// Its queues, sorted by name.
    #[must_use]
    pub fn queues(&self) -> Vec<StoredQueue> {
        let queue = |(name, waiting): &(Vec<u8>, Vec<Waiting>)| StoredQueue {
            name: name.clone(),
            kind: match &name[..] {
                DEFINITIONS => Kind::Durable,
                RETAINED => Kind::Retained,
                _ => Kind::Message,
            },
            messages: waiting.len(),
            bytes: waiting.iter().map(|one| u64::from(one.bytes)).sum(),
        };
        self.queues.iter().map(queue).collect()
    }

    /// Reads a message of a queue by the index of the queue and of the message in it, from 0. `None`: there is none.
    ///
    /// # Errors
    /// It cannot be read: the file and the offset at which it stands.
    #[must_use]
    pub fn read(&self, queue: usize, index: usize) -> Option<Result<StoredMessage, (String, u64)>> {
        let (_, waiting) = self.queues.get(queue)?;
        Some(self.read_one(waiting.get(index)?.record))
    }

    fn read_one(&self, record: RecordId) -> Result<StoredMessage, (String, u64)> {
        let Place { segment, offset } = self.table.find(record).ok_or_else(|| (String::new(), 0))?.place;
        let counts = self.counts.get(&record).copied().unwrap_or_default();
        let read = request(&self.segments, &self.table, record).and_then(|request| read(request, counts));
        read.ok_or_else(|| (segment::name(segment), offset))
    }
}

fn request(segments: &Segments, table: &Table, record: RecordId) -> Option<Request> {
    let stored = table.find(record)?;
    let file = segments.find(stored.place.segment)?.file.clone();
    Some(Request { shard: 0, record, file, stored })
}

/// Reads a message; `counts` is what was noted of its deliveries behind it. `None`: it cannot be read.
pub(super) fn read(request: Request, counts: Counts) -> Option<StoredMessage> {
    let bytes = request.read().ok()?;
    match Found::at(&bytes, Salt::NONE) {
        Found::Entry(Entry::Message(message), _) => Some(message_of(&message, counts)),
        _ => None,
    }
}

/// The message of an entry; `counts` is what was noted of its deliveries later.
fn message_of(message: &Message<'_>, counts: Counts) -> StoredMessage {
    let counts = message.counts.max(counts);
    StoredMessage {
        queue: message.queue.to_vec(),
        place: message.place,
        destination: message.destination.to_vec(),
        id: message.id.to_vec(),
        // A definition has none of a client.
        headers: if message.queue == DEFINITIONS { Vec::new() } else { headers_of(message.headers) },
        body: message.body.to_vec(),
        persistent: message.persistent,
        grouped: message.grouped,
        expires_ms: message.expires_ms,
        failures_max: message.failures_max,
        deliveries: counts.deliveries,
        failures: counts.failures,
    }
}

/// The headers of lines that are escaped as in 1.2.
fn headers_of(lines: &[u8]) -> Headers {
    let unescape = |text: &[u8]| escape::unescape(text, Version::V1_2).into_owned();
    let lines = lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let split = |line: &[u8]| {
        let colon = line.iter().position(|byte| *byte == b':').unwrap_or(line.len());
        (unescape(&line[..colon]), unescape(line.get(colon + 1..).unwrap_or_default()))
    };
    lines.map(split).collect()
}
