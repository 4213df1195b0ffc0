//! Room that is kept free for what makes room when the disk is full: a file of that length, removed when it is needed.

use std::io;

use crate::door::Directory;
use crate::door::medium::is_no_room;

/// Its file.
const FILE: &str = "messages.db-reserve";

/// The room.
#[derive(Debug)]
pub struct Reserve {
    bytes: u64,
    is_there: bool,
}

impl Reserve {
    /// So much room. What a process before has left is given up, and so is free for the start.
    ///
    /// # Errors
    /// The disk fails.
    pub fn new(directory: &Directory, bytes: u64) -> io::Result<Self> {
        match directory.remove(FILE) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(Reserve { bytes, is_there: false }),
        }
    }

    /// Its length.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Its length on the disk now.
    #[must_use]
    pub fn taken_bytes(&self) -> u64 {
        if self.is_there { self.bytes } else { 0 }
    }

    /// Takes the room, if it is free. Returns whether it is taken now.
    ///
    /// # Errors
    /// The disk fails otherwise than by being full.
    pub fn take(&mut self, directory: &Directory) -> io::Result<bool> {
        if !self.is_there {
            match directory.create(FILE, self.bytes) {
                Ok(_) => self.is_there = true,
                Err(error) if is_no_room(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(self.is_there)
    }

    /// Gives the room. Returns whether there was any.
    ///
    /// # Errors
    /// The disk fails.
    pub fn give(&mut self, directory: &Directory) -> io::Result<bool> {
        if self.is_there {
            directory.remove(FILE)?;
        }
        Ok(std::mem::take(&mut self.is_there))
    }
}
