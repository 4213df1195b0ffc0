//! The storage of one broker: what opens a store at the start, restores what is in it, and ends it behind the last shard.
//!
//! ```text
//! start ─► directory claimed ─► shards run, nobody logs in ─► log read ─► homes restored ─► everybody may log in
//!                                                     last shard ends ─► everything written ─► the broker has ended
//! ```
//! The log is read on its own thread, so the port answers meanwhile: `/readyz` says 503, and a CONNECT waits.

pub mod control;
mod ended;
mod log_thread;
pub mod offline;
mod page_file;
mod recording;
mod restoring;
mod sharing;
#[cfg(simulated)]
pub(crate) mod simulated;
#[cfg_attr(any(simulated, loom), path = "no_sqlite.rs")]
mod sqlite_thread;

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

pub(crate) use self::control::Control;
use crate::config::{Config, Fsync, StoreKind, show_size};
use crate::door::{ClaimError, Directory, process_id};
use crate::mail::shared::Shared;
use crate::store::file::{recovery, segment};

/// The lengths of a segment of the log in bytes: a small disk has shorter ones, so that a few of them leave room for messages.
const SEGMENT_BYTES: std::ops::RangeInclusive<u64> = 1 << 20..=64 << 20;
/// A segment takes this part of the disk, as a divisor.
const DISK_SHARE: u64 = 64;

/// Reading the store is reported if it takes longer than this, and again after each further time.
const PROGRESS: Duration = Duration::from_secs(1);

/// The most messages that the reader of a store takes at a time.
const READ_AT_ONCE: usize = 1024;

/// The length of a segment in this directory.
fn segment_bytes(directory: &Directory) -> u64 {
    let share = directory.disk_bytes().map_or(u64::MAX, |bytes| bytes / DISK_SHARE);
    share.clamp(*SEGMENT_BYTES.start(), *SEGMENT_BYTES.end())
}

/// Why a store cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StorageError {
    /// The directory, or that of the recording in it, cannot be used.
    #[error("cannot use dir '{dir}' for store={}: {cause}", store.name())]
    Directory {
        /// The directory.
        dir: String,
        /// The store.
        store: StoreKind,
        /// Why.
        cause: Cause,
    },
    /// A value of `record` is no destination and no pattern.
    #[error("{0}")]
    Record(String),
}

/// Why a directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Cause {
    /// It cannot be claimed.
    #[error(transparent)]
    Claim(#[from] ClaimError),
    /// It cannot be opened.
    #[error(transparent)]
    Log(#[from] recovery::OpenError),
    /// It cannot be opened.
    #[error(transparent)]
    Database(#[from] sqlite_thread::OpenError),
    /// It cannot be read.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// Another kind of store has used it.
    #[error("it has the messages of store={other} ('{file}'): start with that, or choose another dir")]
    Other {
        /// That kind.
        other: &'static str,
        /// The file that shows it.
        file: String,
    },
    /// More is to be kept free than the disk may have.
    #[error("store_reserve={} is more than half of its disk, which has {disk} bytes", show_size(*reserve))]
    Reserve {
        /// The bytes to be kept free.
        reserve: u64,
        /// The bytes of the disk.
        disk: u64,
    },
}

/// The storage that the settings choose.
#[derive(Debug)]
pub(crate) enum Storage {
    /// `store=memory`.
    Memory,
    /// A store on disk.
    Disk(Files),
}

/// A directory that this broker alone uses, for a store.
#[derive(Debug)]
pub(crate) struct Files {
    store: StoreKind,
    directory: Directory,
    fsync: Fsync,
    reserve_bytes: u64,
    control: Arc<Control>,
    /// `record=`.
    recording: Option<recording::Settings>,
}

impl Storage {
    /// Claims the directory of the store for the broker at this address. What is no store of this version is not changed.
    ///
    /// # Errors
    /// See [`StorageError`].
    pub(crate) fn open(
        config: &Config,
        address: SocketAddr,
        control: &Arc<Control>,
    ) -> Result<Self, StorageError> {
        if config.store == StoreKind::Memory {
            return Ok(Storage::Memory);
        }
        let path = Path::new(&config.working_dir).join(&config.dir);
        let store = config.store;
        if let Some(refusal) = recording::refusal(config) {
            return Err(StorageError::Record(refusal));
        }
        let holder = format!("process {} (stompica, port {})", process_id(), address.port());
        let claim = || -> Result<Directory, Cause> {
            if let Some(directory) = Directory::look_at(&path) {
                check(store, &directory)?;
            }
            let directory = Directory::claim(&path, &holder)?;
            check(store, &directory)?;
            match directory.disk_bytes() {
                Some(disk) if config.store_reserve > disk / 2 => {
                    Err(Cause::Reserve { reserve: config.store_reserve, disk })
                }
                _ => Ok(directory),
            }
        };
        let refused = |cause| StorageError::Directory { dir: path.display().to_string(), store, cause };
        let directory = claim().map_err(refused)?;
        let recording = match config.record.0.is_empty() {
            true => None,
            false => Some(open_recording(config, &path.join(recording::DIRECTORY), &holder, &directory)?),
        };
        Ok(Storage::Disk(Files {
            store,
            directory,
            fsync: config.fsync,
            reserve_bytes: config.store_reserve,
            control: Arc::clone(control),
            recording,
        }))
    }
}

/// Whether the directory may be opened for this store, as far as the beginnings of its files tell. Changes nothing.
fn check(store: StoreKind, directory: &Directory) -> Result<(), Cause> {
    let names = directory.list()?;
    match store {
        StoreKind::Memory => Ok(()),
        StoreKind::File => match names.into_iter().find(|name| name == sqlite_thread::FILE) {
            Some(file) => Err(Cause::Other { other: StoreKind::Sqlite.name(), file }),
            None => Ok(recovery::check(directory)?),
        },
        StoreKind::Sqlite => match names.into_iter().find(|name| segment::number_of(name).is_some()) {
            Some(file) => Err(Cause::Other { other: StoreKind::File.name(), file }),
            None => Ok(sqlite_thread::check(directory)?),
        },
    }
}

/// Runs the thread of a store until the last shard has ended and everything is safe.
///
/// # Errors
/// The directory has nothing that can be read as this store, or the disk has failed, in one line.
pub(crate) fn run(files: Files, shared: &Arc<Shared>) -> Result<(), String> {
    match files.store {
        StoreKind::Sqlite => sqlite_thread::run(files, shared),
        StoreKind::File | StoreKind::Memory => log_thread::run(files, shared),
    }
}

/// Claims the directory of the recording, and checks that it is one of this version.
fn open_recording(
    config: &Config,
    path: &Path,
    holder: &str,
    store: &Directory,
) -> Result<recording::Settings, StorageError> {
    let claim = || -> Result<Directory, Cause> {
        let directory = Directory::claim(path, holder)?;
        crate::store::recording::recovery::check(&directory)?;
        Ok(directory)
    };
    let directory = claim().map_err(|cause| StorageError::Directory {
        dir: path.display().to_string(),
        store: config.store,
        cause,
    })?;
    Ok(recording::Settings::new(config, directory, segment_bytes(store)))
}
