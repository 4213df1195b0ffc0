//! What every store on disk promises, tested with each of them through the same handles.

use std::fmt::Debug;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;

use super::file::handle::LogHandle;
use super::file::inbox::{Inbox, Work};
use super::file::log::Log;
use super::file::recovery::Recovered;
use super::file::{reader, writer};
use super::sqlite;
use super::sqlite::database::Database;
use crate::config::Fsync;
use crate::door::Directory;
use crate::door::sync::Mutex;
use crate::ids::RecordId;

mod handle_tests;
mod model_tests;
mod writer_tests;

/// The length of a segment.
const SEGMENT: u64 = 4096;

/// A store without its thread.
pub trait Backend: Debug + Sized + Send + 'static {
    /// Opens the store in a directory. Returns what it has, and the first record that it has not.
    fn open(at: &Path, fsync: Fsync) -> (Self, Recovered, RecordId);

    /// Does what has arrived. Returns whether it goes on.
    fn turn(&mut self, work: Work, inbox: &Inbox) -> Result<bool, String>;

    /// Works until the last shard has ended.
    fn run(&mut self, inbox: &Inbox) -> Result<(), String>;

    /// Goes on after a failure, until the last shard has ended.
    fn serve_reads(&mut self, inbox: &Inbox);

    /// How long it would wait for work.
    fn patience(&self) -> Option<Duration>;
}

/// `store=file`.
#[derive(Debug)]
pub struct File(writer::Writer);

/// `store=sqlite`.
#[derive(Debug)]
pub struct Sqlite(sqlite::writer::Writer, sqlite::reader::Reader);

fn claim(at: &Path) -> Directory {
    Directory::claim(at, "this test").expect("nobody else uses it")
}

impl Backend for File {
    fn open(at: &Path, fsync: Fsync) -> (Self, Recovered, RecordId) {
        let (log, recovered) = Log::open(claim(at), SEGMENT, |_, _| true).expect("a log");
        let next = log.next_record();
        (File(writer::Writer::new(log, fsync)), recovered, next)
    }

    fn turn(&mut self, work: Work, inbox: &Inbox) -> Result<bool, String> {
        let mut read = |request: reader::Request| request.answer(inbox);
        self.0.turn(work, inbox, &mut read).map_err(|error| error.to_string())
    }

    fn run(&mut self, inbox: &Inbox) -> Result<(), String> {
        self.0.run(inbox, &mut |_| ()).map_err(|error| error.to_string())
    }

    fn serve_reads(&mut self, inbox: &Inbox) {
        self.0.serve_reads(inbox, &mut |request| request.answer(inbox));
    }

    fn patience(&self) -> Option<Duration> {
        self.0.patience()
    }
}

impl Backend for Sqlite {
    fn open(at: &Path, fsync: Fsync) -> (Self, Recovered, RecordId) {
        let (database, recovered) = Database::open(claim(at), fsync, 0, |_| true).expect("a database");
        let next = database.next_record();
        let reader = sqlite::reader::Reader::new(database.directory()).expect("a database");
        (Sqlite(sqlite::writer::Writer::new(database, fsync), reader), recovered, next)
    }

    fn turn(&mut self, work: Work, inbox: &Inbox) -> Result<bool, String> {
        let Sqlite(writer, reader) = self;
        writer.turn(work, inbox, &mut |request| assert_eq!(reader.answer(&[request], inbox), 1))
    }

    fn run(&mut self, inbox: &Inbox) -> Result<(), String> {
        self.0.run(inbox, &mut |_| ())
    }

    fn serve_reads(&mut self, inbox: &Inbox) {
        let Sqlite(writer, reader) = self;
        writer.serve_reads(inbox, &mut |request| assert_eq!(reader.answer(&[request], inbox), 1));
    }

    fn patience(&self) -> Option<Duration> {
        self.0.patience()
    }
}

/// A store in a directory of its own; the test takes its turns.
#[derive(Debug)]
pub struct Fixture<B> {
    at: TempDir,
    inbox: Arc<Inbox>,
    store: B,
    handles: [LogHandle; 2],
    woken: Arc<Mutex<Vec<usize>>>,
}

impl<B: Backend> Fixture<B> {
    fn new() -> Self {
        Self::with(Fsync::Always)
    }

    fn with(fsync: Fsync) -> Self {
        let at = TempDir::new_in("/dev/shm").or_else(|_| TempDir::new()).expect("a disk with room");
        Self::open(at, fsync).0
    }

    fn open(at: TempDir, fsync: Fsync) -> (Self, Recovered) {
        let (store, recovered, next) = B::open(at.path(), fsync);
        let woken: Arc<Mutex<Vec<usize>>> = Arc::default();
        let note = Arc::clone(&woken);
        let inbox = Inbox::new(2, next, Box::new(move |shard| note.lock().expect("no panic").push(shard)));
        let handles = [0, 1].map(|shard| LogHandle::new(shard, Arc::clone(&inbox)));
        (Fixture { at, inbox, store, handles, woken }, recovered)
    }

    /// The turns of both shards end, and the store does what has arrived. Returns whether it goes on.
    fn turn(&mut self) -> bool {
        self.handles.iter_mut().for_each(crate::store::Store::end_turn);
        let work = self.inbox.take(Some(Duration::ZERO));
        self.store.turn(work, &self.inbox).expect("a disk that works")
    }

    /// Another process opens the store, after this one has ended without a word. Returns what it has.
    fn reopen(self) -> (Self, Recovered) {
        let Fixture { at, store, .. } = self;
        drop(store);
        Self::open(at, Fsync::Always)
    }

    /// The records that wait after the process has ended, in their order.
    fn records_after_end(self) -> Vec<RecordId> {
        let waiting = self.reopen().1.queues.into_values().flatten();
        waiting.map(|waiting| waiting.record).collect()
    }
}

/// Makes of each function with a [`Backend`] a test with every store.
macro_rules! for_each_store {
    ($($(#[$doc:meta])* fn $name:ident<$backend:ident>() $body:block)*) => {
        $($(#[$doc])* fn $name<$backend: $crate::store::promises::Backend>() $body)*

        mod file {
            $(#[test] fn $name() { super::$name::<$crate::store::promises::File>(); })*
        }

        mod sqlite {
            $(#[test] fn $name() { super::$name::<$crate::store::promises::Sqlite>(); })*
        }
    };
}
use for_each_store;
