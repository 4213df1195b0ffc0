//! The disk as the log sees it: the files of one directory. Tests replace it by one that crashes, fills up and fails.

use std::fmt::Debug;
use std::io;
use std::sync::Arc;

use super::{Directory, DiskFile};

/// What is read again block by block if reading a longer part fails.
const BLOCK: usize = 4096;

/// A directory that only this broker uses.
pub trait Medium: Debug + Send {
    /// The names of its files.
    ///
    /// # Errors
    /// It cannot be read.
    fn list(&self) -> io::Result<Vec<String>>;

    /// Creates a file of so many zeros, with room reserved for them where the file system can do that.
    ///
    /// # Errors
    /// A file of this name exists, or there is no room: then no file is left.
    fn create(&self, name: &str, bytes: u64) -> io::Result<SharedFile>;

    /// Opens a file.
    ///
    /// # Errors
    /// It does not exist, or cannot be opened.
    fn open(&self, name: &str) -> io::Result<SharedFile>;

    /// Removes a file. It can still be read where it is open.
    ///
    /// # Errors
    /// It does not exist, or cannot be removed.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Gives a file another name.
    ///
    /// # Errors
    /// It does not exist, or cannot be renamed.
    fn rename(&self, name: &str, other: &str) -> io::Result<()>;

    /// Makes names of files safe, created and removed ones.
    ///
    /// # Errors
    /// The disk fails.
    fn sync(&self) -> io::Result<()>;

    /// Its name, for people.
    fn name(&self) -> String;
}

/// An open file.
pub trait MediumFile: Debug + Send + Sync {
    /// Writes all bytes at a place.
    ///
    /// # Errors
    /// The disk fails or is full; some of the bytes may be written.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;

    /// Reads as many bytes as there are at a place. Returns how many.
    ///
    /// # Errors
    /// The disk fails.
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Makes what was written safe.
    ///
    /// # Errors
    /// The disk fails: nobody knows what of it is safe, and a further call would not tell.
    fn sync_data(&self) -> io::Result<()>;

    /// Makes what was written and the length safe.
    ///
    /// # Errors
    /// As for [`sync_data`](MediumFile::sync_data).
    fn sync_all(&self) -> io::Result<()>;

    /// Its length.
    ///
    /// # Errors
    /// The system does not tell.
    fn length(&self) -> io::Result<u64>;

    /// Cuts it off, or adds zeros.
    ///
    /// # Errors
    /// The disk fails.
    fn set_length(&self, bytes: u64) -> io::Result<()>;
}

/// An open file; clones are the same file.
pub type SharedFile = Arc<dyn MediumFile>;

impl Medium for Directory {
    fn list(&self) -> io::Result<Vec<String>> {
        self.list()
    }

    fn create(&self, name: &str, bytes: u64) -> io::Result<SharedFile> {
        Ok(Arc::new(self.create(name, bytes)?))
    }

    fn open(&self, name: &str) -> io::Result<SharedFile> {
        Ok(Arc::new(self.open(name)?))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.remove(name)
    }

    fn rename(&self, name: &str, other: &str) -> io::Result<()> {
        self.rename(name, other)
    }

    fn sync(&self) -> io::Result<()> {
        self.sync()
    }

    fn name(&self) -> String {
        self.path().display().to_string()
    }
}

impl MediumFile for DiskFile {
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.write_at(bytes, offset)
    }

    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        self.read_at(bytes, offset)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.sync_data()
    }

    fn sync_all(&self) -> io::Result<()> {
        self.sync_all()
    }

    fn length(&self) -> io::Result<u64> {
        self.length()
    }

    fn set_length(&self, bytes: u64) -> io::Result<()> {
        self.set_length(bytes)
    }
}

/// Reads what can be read: blocks that the disk does not give are zeros. Returns how many bytes there are.
pub fn read_readable(file: &dyn MediumFile, bytes: &mut [u8], offset: u64) -> usize {
    if let Ok(count) = file.read_at(bytes, offset) {
        return count;
    }
    let length = file.length().unwrap_or(u64::MAX).saturating_sub(offset);
    let count = bytes.len().min(usize::try_from(length).unwrap_or(usize::MAX));
    for (block, at) in bytes[..count].chunks_mut(BLOCK).zip((offset..).step_by(BLOCK)) {
        if file.read_at(block, at).is_err() {
            block.fill(0);
        }
    }
    count
}

/// Whether an error says that there is no room now: the disk or a quota is full, or no descriptor is free. It may be better
/// later, and what was done before is not affected.
#[must_use]
pub fn is_no_room(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
        || matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
}
