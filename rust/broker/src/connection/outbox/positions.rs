//! Where frames stand in all that an outbox is ever to send, and whether the socket has taken them.

use super::Outbox;

impl Outbox {
    /// Where what was appended last ends: a position for [`Outbox::has_passed`].
    #[must_use]
    pub fn end(&self) -> u64 {
        self.written + self.bytes as u64
    }

    /// Whether the socket has taken all in front of a position. Where frames were dropped meanwhile it may be known late,
    /// but no later than that nothing waits any more.
    #[must_use]
    pub fn has_passed(&self, position: u64) -> bool {
        self.bytes == 0 || self.written >= position
    }

    /// Follows what was appended last: it is reported by [`Outbox::take_passed`] once the socket has taken it.
    pub fn mark(&mut self) {
        self.marks.add(self.end());
    }

    /// Lets the last mark follow what was appended since, too.
    pub fn move_last_mark(&mut self) {
        self.marks.move_last(self.end());
    }

    /// How many marks the socket has passed since the last call; the oldest ones.
    pub fn take_passed(&mut self) -> usize {
        self.marks.take_through(self.written)
    }

    /// How many marks stand behind all that still waits: their frames were cut. The newest ones.
    pub fn take_cut(&mut self) -> usize {
        self.marks.take_behind(self.end())
    }
}
