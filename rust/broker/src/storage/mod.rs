//! The storage of one broker: what opens a store at the start, restores what is in it, and ends it behind the last shard.
//!
//! ```text
//! start ─► directory claimed ─► shards run, nobody logs in ─► log read ─► homes restored ─► everybody may log in
//!                                                     last shard ends ─► everything written ─► the broker has ended
//! ```
//! The log is read on its own thread, so the port answers meanwhile: `/readyz` says 503, and a CONNECT waits.

pub mod control;
mod log_thread;
pub mod offline;
mod page_file;
mod sharing;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

pub(crate) use self::control::Control;
pub(crate) use self::log_thread::run;
use crate::config::{Config, Fsync, StoreKind, show_size};
use crate::door::{ClaimError, Directory, process_id};
use crate::store::file::recovery::{OpenError, check};

/// The lengths of a segment of the log in bytes: a small disk has shorter ones, so that a few of them leave room for messages.
const SEGMENT_BYTES: std::ops::RangeInclusive<u64> = 1 << 20..=64 << 20;
/// A segment takes this part of the disk, as a divisor.
const DISK_SHARE: u64 = 64;

/// The length of a segment in this directory.
fn segment_bytes(directory: &Directory) -> u64 {
    let share = directory.disk_bytes().map_or(u64::MAX, |bytes| bytes / DISK_SHARE);
    share.clamp(*SEGMENT_BYTES.start(), *SEGMENT_BYTES.end())
}

/// Why a store cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("cannot use dir '{dir}' for store=file: {cause}")]
pub struct StorageError {
    dir: String,
    cause: Cause,
}

#[derive(Debug, thiserror::Error)]
enum Cause {
    #[error(transparent)]
    Claim(#[from] ClaimError),
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error("store_reserve={} is more than half of its disk, which has {disk} bytes", show_size(*reserve))]
    Reserve { reserve: u64, disk: u64 },
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
    reserve_bytes: u64,
    control: Arc<Control>,
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
        let claim = || -> Result<Directory, Cause> {
            if let Some(directory) = Directory::look_at(&path) {
                check(&directory)?;
            }
            let holder = format!("process {} (stompica, port {})", process_id(), address.port());
            let directory = Directory::claim(&path, &holder)?;
            check(&directory)?;
            match directory.disk_bytes() {
                Some(disk) if config.store_reserve > disk / 2 => {
                    Err(Cause::Reserve { reserve: config.store_reserve, disk })
                }
                _ => Ok(directory),
            }
        };
        let directory = claim().map_err(|cause| StorageError { dir: path.display().to_string(), cause })?;
        Ok(Storage::File(Files {
            directory,
            fsync: config.fsync,
            reserve_bytes: config.store_reserve,
            control: Arc::clone(control),
        }))
    }
}
