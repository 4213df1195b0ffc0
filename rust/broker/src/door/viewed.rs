//! A directory that is only read: nothing in it changes, whatever is asked of it.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::files::{ClaimError, DiskFile, LOCK, holder_of};
use super::medium::{Medium, MediumFile, SharedFile};

/// A directory to be read. What would change it does nothing, so that recovery can run on it; no file can be created.
#[derive(Debug)]
pub struct ViewedDirectory {
    path: PathBuf,
    /// Keeps others from claiming the directory; `None` if it was never claimed.
    _lock: Option<File>,
}

impl ViewedDirectory {
    /// Opens a directory. No broker can claim it until this is dropped, but others may view it.
    ///
    /// # Errors
    /// A broker uses it, or it cannot be read.
    pub fn open(path: &Path) -> Result<Self, ClaimError> {
        fs::read_dir(path)?;
        let lock = match File::open(path.join(LOCK)) {
            Ok(mut lock) => match lock.try_lock_shared() {
                Ok(()) => Some(lock),
                Err(TryLockError::WouldBlock) => return Err(ClaimError::InUse(holder_of(&mut lock))),
                Err(TryLockError::Error(error)) => return Err(error.into()),
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error.into()),
        };
        Ok(ViewedDirectory { path: path.to_owned(), _lock: lock })
    }
}

impl Medium for ViewedDirectory {
    fn list(&self) -> io::Result<Vec<String>> {
        let names =
            fs::read_dir(&self.path)?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
        names.collect()
    }

    fn create(&self, _: &str, _: u64) -> io::Result<SharedFile> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn open(&self, name: &str) -> io::Result<SharedFile> {
        Ok(Arc::new(ViewedFile(DiskFile::of(File::open(self.path.join(name))?))))
    }

    fn remove(&self, _: &str) -> io::Result<()> {
        Ok(())
    }

    fn rename(&self, _: &str, _: &str) -> io::Result<()> {
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn name(&self) -> String {
        self.path.display().to_string()
    }
}

/// A file that is only read.
#[derive(Debug)]
struct ViewedFile(DiskFile);

impl MediumFile for ViewedFile {
    fn write_at(&self, _: &[u8], _: u64) -> io::Result<()> {
        Ok(())
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

    fn set_length(&self, _: u64) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;
    use crate::door::Directory;

    #[test]
    fn a_directory_is_viewed_by_several_and_claimed_by_nobody_meanwhile() {
        let at = TempDir::new().expect("a disk with room");
        drop(Directory::claim(at.path(), "the first").expect("nobody uses it"));
        let view = ViewedDirectory::open(at.path()).expect("nobody uses it");
        assert!(ViewedDirectory::open(at.path()).is_ok());
        let refused = Directory::claim(at.path(), "the second").expect_err("it is viewed").to_string();
        assert_eq!(refused, "it is in use by a command that reads it");
        drop(view);
        let claimed = Directory::claim(at.path(), "the second").expect("nobody uses it");
        let refused = ViewedDirectory::open(at.path()).expect_err("it is claimed").to_string();
        assert_eq!(refused, "it is in use by the second");
        drop(claimed);
    }

    #[test]
    fn nothing_in_a_viewed_directory_changes() {
        let at = TempDir::new().expect("a disk with room");
        fs::write(at.path().join("a"), b"12345").expect("room");
        let view = ViewedDirectory::open(at.path()).expect("nobody uses it");
        let file = view.open("a").expect("it exists");
        file.write_at(b"x", 0).and_then(|()| file.set_length(1)).expect("it is ignored");
        view.remove("a").and_then(|()| view.rename("a", "b")).expect("it is ignored");
        assert!(view.create("c", 1).is_err());
        assert_eq!(fs::read(at.path().join("a")).expect("it exists"), b"12345");
        assert_eq!(view.list().expect("it exists"), ["a"]);
    }

    #[test]
    fn what_is_no_directory_cannot_be_viewed() {
        let at = TempDir::new().expect("a disk with room");
        assert!(ViewedDirectory::open(&at.path().join("missing")).is_err());
        assert!(!at.path().join("missing").exists());
    }
}
