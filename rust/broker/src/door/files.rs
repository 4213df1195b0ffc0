//! Files of one directory, as the store uses them: written at the end, synced, read at any place, removed.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{FallocateFlags, fallocate};

/// The file by which a process claims a directory.
pub(super) const LOCK: &str = "lock";

/// The number of this process.
#[must_use]
pub fn process_id() -> u32 {
    std::process::id()
}

/// Removes a directory with everything in it, if it exists.
///
/// # Errors
/// It cannot be removed.
pub fn remove_directory(path: &Path) -> io::Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// Why a directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ClaimError {
    /// Another process, or another broker of this one, uses it.
    #[error("it is in use by {0}")]
    InUse(String),
    /// It cannot be created, read or written.
    #[error("{0}")]
    Io(#[from] io::Error),
}

/// What the holder of a lock says of itself.
pub(super) fn holder_of(lock: &mut File) -> String {
    let mut holder = String::new();
    _ = lock.read_to_string(&mut holder);
    let holder = holder.trim();
    if holder.is_empty() { "another process".to_owned() } else { holder.to_owned() }
}

/// A directory that only this broker uses, until it is dropped.
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
    handle: File,
    /// `None`: it was only looked at.
    _lock: Option<File>,
}

impl Directory {
    /// Looks at a directory without claiming it; `None` if a stompica has claimed it before, or if it cannot be read.
    #[must_use]
    pub fn look_at(path: &Path) -> Option<Self> {
        let handle = File::open(path).ok().filter(|_| !path.join(LOCK).exists())?;
        Some(Directory { path: path.to_owned(), handle, _lock: None })
    }

    /// Claims a directory, which is created with its parents if it does not exist. `holder` is what others are told who try
    /// to claim it meanwhile.
    ///
    /// # Errors
    /// See [`ClaimError`]; nothing in the directory was changed then.
    pub fn claim(path: &Path, holder: &str) -> Result<Self, ClaimError> {
        fs::create_dir_all(path)?;
        let mut lock =
            OpenOptions::new().create(true).truncate(false).read(true).write(true).open(path.join(LOCK))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                // The lock names its last holder, not those that only read.
                let is_read = lock.try_lock_shared().is_ok();
                let reader = "a command that reads it";
                let holder = if is_read { reader.to_owned() } else { holder_of(&mut lock) };
                return Err(ClaimError::InUse(holder));
            }
            Err(TryLockError::Error(error)) => return Err(error.into()),
        }
        lock.set_len(0)?;
        lock.write_all(holder.as_bytes())?;
        let directory = Directory { path: path.to_owned(), handle: File::open(path)?, _lock: Some(lock) };
        directory.sync()?;
        Ok(directory)
    }

    /// The names of its files.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn list(&self) -> io::Result<Vec<String>> {
        let names =
            fs::read_dir(&self.path)?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
        names.collect()
    }

    /// Creates a file with so much room. Its name is safe with the next [`sync`](Directory::sync).
    ///
    /// # Errors
    /// A file of this name exists, or the disk has no room: then no file is left.
    pub fn create(&self, name: &str, bytes: u64) -> io::Result<DiskFile> {
        let path = self.path.join(name);
        let file = OpenOptions::new().create_new(true).read(true).write(true).open(&path)?;
        let room = fallocate(&file, FallocateFlags::empty(), 0, bytes);
        // Some file systems cannot reserve room: the file is then as long as if they could.
        let reserved = match room {
            Err(rustix::io::Errno::OPNOTSUPP) => file.set_len(bytes),
            other => other.map_err(io::Error::from),
        };
        if let Err(error) = reserved {
            drop(file);
            _ = fs::remove_file(&path);
            return Err(error);
        }
        Ok(DiskFile(Arc::new(file)))
    }

    /// Opens a file.
    ///
    /// # Errors
    /// It does not exist, or cannot be opened.
    pub fn open(&self, name: &str) -> io::Result<DiskFile> {
        let file = OpenOptions::new().read(true).write(true).open(self.path.join(name))?;
        Ok(DiskFile(Arc::new(file)))
    }

    /// Removes a file. It can still be read where it is open.
    ///
    /// # Errors
    /// It does not exist, or cannot be removed.
    pub fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.path.join(name))
    }

    /// Gives a file another name.
    ///
    /// # Errors
    /// It does not exist, or cannot be renamed.
    pub fn rename(&self, name: &str, other: &str) -> io::Result<()> {
        fs::rename(self.path.join(name), self.path.join(other))
    }

    /// The size of its disk in bytes, if the system tells.
    #[must_use]
    pub fn disk_bytes(&self) -> Option<u64> {
        let disk = rustix::fs::fstatvfs(&self.handle).ok()?;
        disk.f_blocks.checked_mul(disk.f_frsize)
    }

    /// Makes names of files safe, created and removed ones.
    ///
    /// # Errors
    /// The disk fails.
    pub fn sync(&self) -> io::Result<()> {
        self.handle.sync_all()
    }

    /// Its path, for people.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// An open file; clones are the same file.
#[derive(Clone, Debug)]
pub struct DiskFile(Arc<File>);

impl DiskFile {
    /// A file that was opened elsewhere.
    pub(super) fn of(file: File) -> Self {
        DiskFile(Arc::new(file))
    }

    /// Writes all bytes at a place.
    ///
    /// # Errors
    /// The disk fails or is full; some of the bytes may be written.
    pub fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.0.write_all_at(bytes, offset)
    }

    /// Reads as many bytes as there are at a place. Returns how many.
    ///
    /// # Errors
    /// The disk fails.
    pub fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut done = 0;
        while done < bytes.len() {
            match self.0.read_at(&mut bytes[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    /// Makes what was written safe.
    ///
    /// # Errors
    /// The disk fails: nobody knows what of it is safe, and a further call would not tell.
    pub fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    /// Makes what was written and the length safe.
    ///
    /// # Errors
    /// As for [`sync_data`](DiskFile::sync_data).
    pub fn sync_all(&self) -> io::Result<()> {
        self.0.sync_all()
    }

    /// Its length.
    ///
    /// # Errors
    /// The system does not tell.
    pub fn length(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    /// Cuts it off, or adds zeros.
    ///
    /// # Errors
    /// The disk fails.
    pub fn set_length(&self, bytes: u64) -> io::Result<()> {
        self.0.set_len(bytes)
    }
}
