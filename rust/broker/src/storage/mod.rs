//! The storage of one broker: what opens a store at the start, restores what is in it, and ends it behind the last shard.
//!
//! ```text
//! start ─► directory claimed ─► shards run, nobody logs in ─► log read ─► homes restored ─► everybody may log in
//!                                                     last shard ends ─► everything written ─► the broker has ended
//! ```
//! The log is read on its own thread, so the port answers meanwhile: `/readyz` says 503, and a CONNECT waits.

pub mod control;
mod log_thread;
mod sharing;

use std::path::Path;
use std::sync::Arc;

pub(crate) use self::control::Control;
pub(crate) use self::log_thread::run;
use crate::config::{Config, Fsync, StoreKind};
use crate::door::{ClaimError, Directory, process_id};

/// The length of a segment of the log in bytes.
const SEGMENT_BYTES: u64 = 64 << 20;

/// Why a store cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("cannot use dir '{dir}' for store={store}: {error}")]
pub struct StorageError {
    dir: String,
    store: &'static str,
    error: ClaimError,
}

/// The storage that the settings choose.
#[derive(Debug)]
pub(crate) enum Storage {
    /// `store=memory`.
    Memory,
    /// `store=file`.
    File(Files),
}

/// A directory that this broker alone uses, for a log.
#[derive(Debug)]
pub(crate) struct Files {
    directory: Directory,
    fsync: Fsync,
    control: Arc<Control>,
}

impl Storage {
    /// Claims the directory of the store.
    ///
    /// # Errors
    /// See [`StorageError`].
    pub(crate) fn open(config: &Config, control: &Arc<Control>) -> Result<Self, StorageError> {
        if config.store == StoreKind::Memory {
            return Ok(Storage::Memory);
        }
        let holder = format!("process {} (stompica, port {})", process_id(), config.port);
        match Directory::claim(Path::new(&config.dir), &holder) {
            Ok(directory) => {
                Ok(Storage::File(Files { directory, fsync: config.fsync, control: Arc::clone(control) }))
            }
            Err(error) => Err(StorageError { dir: config.dir.clone(), store: "file", error }),
        }
    }
}
