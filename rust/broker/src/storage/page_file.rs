//! The page file: where queues page out messages that need not survive the process. It is a log like the store's, in the
//! directory `paged` beside it, but nothing of it is ever synced, and it is removed at the start and at the end.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use stompica_proto::ProtocolError;
use stompica_proto::error::Code;

use super::Control;
use super::restoring::waker;
use crate::config::Fsync;
use crate::door::medium::{Medium, MediumFile, SharedFile};
use crate::door::sync::thread;
use crate::door::{Directory, process_id, remove_directory};
use crate::log::{Level, LogQueue};
use crate::mail::shared::Shared;
use crate::store::file::handle::PAGE_FILE_RECORD;
use crate::store::file::inbox::Inbox;
use crate::store::file::log::Log;
use crate::store::file::reader::Request;
use crate::store::file::writer::Writer;

/// Its directory.
const NAME: &str = "paged";
/// The longest segment in bytes: once something was paged out, a few of them stay until the end.
const SEGMENT_BYTES: u64 = 16 << 20;

/// A page file that shards use.
#[derive(Debug)]
pub(super) struct PageFile {
    inbox: Arc<Inbox>,
    thread: Option<thread::JoinHandle<()>>,
}

impl PageFile {
    /// Creates the page file of a store in this directory, with segments of at most so many bytes. Without one, messages that
    /// are not persistent stay in memory.
    pub(super) fn start(path: PathBuf, segment_bytes: u64, shared: &Arc<Shared>, control: &Control) -> Self {
        let path = path.join(NAME);
        let inbox = Inbox::new(shared.mailboxes.len(), PAGE_FILE_RECORD, waker(shared));
        control.watch(&inbox);
        let (shards, log) = (Arc::clone(&inbox), Arc::clone(&shared.log));
        let thread = create(&path, SEGMENT_BYTES.min(segment_bytes)).and_then(|file| {
            let run = move || run(file, &shards, path, &log);
            thread::Builder::new().name("stompica-paged".to_owned()).spawn(run)
        });
        if let Err(error) = &thread {
            fail(&inbox, &shared.log, error);
        }
        PageFile { inbox, thread: thread.ok() }
    }

    /// Where shards hand over messages.
    pub(super) fn inbox(&self) -> Arc<Inbox> {
        Arc::clone(&self.inbox)
    }

    /// Waits for its end, once the last shard has ended.
    pub(super) fn join(self) {
        _ = self.thread.map(thread::JoinHandle::join);
    }
}

fn create(path: &Path, segment_bytes: u64) -> io::Result<Log> {
    remove_directory(path)?;
    let holder = format!("process {} (stompica)", process_id());
    let directory = Directory::claim(path, &holder).map_err(io::Error::other)?;
    let (log, _) = Log::open_with_reserve(Unsynced(directory), segment_bytes, 0, |_, _| true)
        .map_err(io::Error::other)?;
    Ok(log)
}

/// Runs until the last shard has ended. It takes no room on disk before the first message.
fn run(log: Log, inbox: &Inbox, path: PathBuf, lines: &LogQueue) {
    let first = inbox.take(None);
    let mut writer = Writer::new(log, Fsync::Never);
    let mut read = |request: Request| request.answer(inbox);
    let ended = match writer.turn(first, inbox, &mut read) {
        Ok(true) => writer.run(inbox, &mut read),
        other => other.map(|_| ()),
    };
    if let Err(error) = ended
        && !writer.has_ended()
    {
        fail(inbox, lines, &error);
        writer.serve_reads(inbox, &mut read);
    }
    drop(writer);
    _ = remove_directory(&path);
}

fn fail(inbox: &Inbox, lines: &LogQueue, error: &io::Error) {
    let text = format!(
        "messages that are not persistent cannot be paged out until a restart, and stay in memory: {error}"
    );
    lines.push(Level::Error, text.clone(), Vec::new());
    inbox.fail(ProtocolError::new(Code::StoreIo, text));
}

/// A directory whose files need not be safe.
#[derive(Debug)]
struct Unsynced(Directory);

#[derive(Debug)]
struct UnsyncedFile(SharedFile);

impl Medium for Unsynced {
    fn list(&self) -> io::Result<Vec<String>> {
        self.0.list()
    }

    fn create(&self, name: &str, bytes: u64) -> io::Result<SharedFile> {
        Ok(Arc::new(UnsyncedFile(Medium::create(&self.0, name, bytes)?)))
    }

    fn open(&self, name: &str) -> io::Result<SharedFile> {
        Ok(Arc::new(UnsyncedFile(Medium::open(&self.0, name)?)))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.0.remove(name)
    }

    fn rename(&self, name: &str, other: &str) -> io::Result<()> {
        self.0.rename(name, other)
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn name(&self) -> String {
        Medium::name(&self.0)
    }
}

impl MediumFile for UnsyncedFile {
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.0.write_at(bytes, offset)
    }

    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        self.0.read_at(bytes, offset)
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn sync_all(&self) -> io::Result<()> {
        Ok(())
    }

    fn length(&self) -> io::Result<u64> {
        self.0.length()
    }

    fn set_length(&self, bytes: u64) -> io::Result<()> {
        self.0.set_length(bytes)
    }
}
