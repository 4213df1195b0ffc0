//! Where frames stand in all that an outbox is ever to send, and whether they were written.

use std::io::{self, Write as _};

use super::Outbox;
use crate::connection::socket::Socket;

impl Outbox {
    /// Where what was appended last ends: a position for [`Outbox::has_passed`].
    #[must_use]
    pub fn end(&self) -> u64 {
        self.taken + self.bytes as u64
    }

    /// Bytes that were written since the connection began: those that the socket took and does not hold back.
    #[must_use]
    pub fn written(&self) -> u64 {
        self.taken - self.held as u64
    }

    /// Whether all in front of a position was written. Where frames were dropped meanwhile it may be known late,
    /// but no later than that nothing waits any more.
    #[must_use]
    pub fn has_passed(&self, position: u64) -> bool {
        (self.bytes == 0 && self.held == 0) || self.written() >= position
    }

    /// Follows what was appended last: it is reported by [`Outbox::take_passed`] once it was written.
    pub fn mark(&mut self) {
        self.marks.add(self.end());
    }

    /// Lets the last mark follow what was appended since, too.
    pub fn move_last_mark(&mut self) {
        self.marks.move_last(self.end());
    }

    /// How many marked frames were written since the last call; the oldest ones.
    pub fn take_passed(&mut self) -> usize {
        self.marks.take_through(self.written())
    }

    /// How many marks stand behind all that still waits: their frames were cut. The newest ones.
    pub fn take_cut(&mut self) -> usize {
        self.marks.take_behind(self.end())
    }

    /// Has the socket pass on what it took and holds back. Returns whether it holds nothing any more.
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
