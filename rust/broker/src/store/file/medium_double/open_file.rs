//! Calls of one file.

use std::io;

use super::{Change, OpenFile, apply};
use crate::door::medium::MediumFile;

impl MediumFile for OpenFile {
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let mut state = self.0.lock();
        let had_ended = state.has_ended;
        let failed = state.call();
        if had_ended {
            return failed;
        }
        let free = state.capacity.saturating_sub(state.used());
        let file = &mut state.files[self.1];
        // Some of the bytes are written before the call fails.
        let fitting = (file.room + free).saturating_sub(offset).min(bytes.len() as u64) as usize;
        let count = if failed.is_err() { fitting / 2 } else { fitting };
        let change = Change::Write(offset, bytes[..count].to_vec());
        apply(&mut file.now, &change);
        file.changes.push(change);
        file.room = file.room.max(offset + count as u64);
        failed?;
        if count < bytes.len() { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }

    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        let state = self.0.lock();
        let from = state.files[self.1].now.get(offset as usize..).unwrap_or_default();
        let count = bytes.len().min(from.len());
        bytes[..count].copy_from_slice(&from[..count]);
        Ok(count)
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut state = self.0.lock();
        let done = state.call();
        let goes_on = state.calls_left.is_none();
        let file = &mut state.files[self.1];
        if done.is_ok() {
            file.sync();
        } else if goes_on {
            // Some of what can be read is not written, and the system takes it for written.
            let half = file.changes.len() / 2;
            file.changes.truncate(half);
            file.sync();
        }
        done
    }

    fn sync_all(&self) -> io::Result<()> {
        self.sync_data()
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.0.lock().files[self.1].now.len() as u64)
    }

    fn set_length(&self, bytes: u64) -> io::Result<()> {
        let mut state = self.0.lock();
        state.call()?;
        let file = &mut state.files[self.1];
        file.now.resize(bytes as usize, 0);
        file.changes.push(Change::Length(bytes));
        file.room = file.room.min(bytes);
        Ok(())
    }
}
