//! Positions of frames in the whole output of an outbox, and whether they were written.

use std::io::{self, Write as _};

use super::Outbox;
use crate::connection::socket::Socket;

impl Outbox {
    /// The number of pieces of chunks that it consists of: adjacent frames are one piece.
    #[must_use]
    pub fn ranges(&self) -> usize {
        self.ranges.len()
    }

    /// The end of the output so far: a position for [`Outbox::has_passed`].
    #[must_use]
    pub fn end(&self) -> u64 {
        self.taken + self.bytes as u64
    }

    /// Bytes written since the connection began: the socket took them and does not hold them back.
    #[must_use]
    pub fn written(&self) -> u64 {
        self.taken - self.held as u64
    }

    /// Whether everything before a position was written. If frames were dropped meanwhile, this may be reported late,
    /// but not later than when the outbox is empty.
    #[must_use]
    pub fn has_passed(&self, position: u64) -> bool {
        (self.bytes == 0 && self.held == 0) || self.written() >= position
    }

    /// Tracks the frame that was appended last: [`Outbox::take_passed`] reports it once it was written.
    pub fn mark(&mut self) {
        self.write_markers.add(self.end());
    }

    /// Moves the last write marker to the current end of the output.
    pub fn move_last_mark(&mut self) {
        self.write_markers.move_last(self.end());
    }

    /// Whether a tracked frame was written and not reported yet.
    #[must_use]
    pub fn has_passed_mark(&self) -> bool {
        self.write_markers.first().is_some_and(|mark| mark <= self.written())
    }

    /// The number of tracked frames that were written since the last call; they are the oldest ones.
    pub fn take_passed(&mut self) -> usize {
        self.write_markers.take_through(self.written())
    }

    /// The number of write markers after the pending output, because their frames were cut; they are the newest
    /// ones.
    pub fn take_cut(&mut self) -> usize {
        self.write_markers.take_behind(self.end())
    }

    /// Makes the socket pass on the bytes that it holds back. Returns whether it holds none any more.
    pub(super) fn pass_on(&mut self, socket: &mut Socket) -> io::Result<bool> {
        self.held = socket.held_bytes();
        if self.held > 0 {
            match socket.flush() {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                passed => passed?,
            }
            self.held = socket.held_bytes();
        }
        Ok(self.held == 0)
    }
}
