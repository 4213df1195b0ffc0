//! Ends of frames whose way through an outbox is followed, as positions in all that was ever appended to it.

use std::collections::VecDeque;

/// The marks of one outbox, ascending.
#[derive(Debug, Default)]
pub struct WriteMarkers {
    positions: VecDeque<u64>,
}

impl WriteMarkers {
    /// Whether no frame is followed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.positions.is_empty()
    }

    /// Follows the frame that ends here; no mark stands behind it.
    pub fn add(&mut self, position: u64) {
        self.positions.push_back(position);
    }

    /// Moves the newest mark further back.
    pub fn move_last(&mut self, position: u64) {
        if let Some(last) = self.positions.back_mut() {
            *last = position;
        }
    }

    /// Takes those up to a position; returns how many.
    pub fn take_through(&mut self, position: u64) -> usize {
        let count = self.positions.iter().take_while(|mark| **mark <= position).count();
        self.positions.drain(..count);
        count
    }

    /// Takes those behind a position; returns how many.
    pub fn take_behind(&mut self, position: u64) -> usize {
        let kept = self.positions.iter().take_while(|mark| **mark <= position).count();
        let count = self.positions.len() - kept;
        self.positions.truncate(kept);
        count
    }

    /// Bytes were put in (or, negative, taken out) behind a position.
    pub fn shift(&mut self, position: u64, bytes: i64) {
        for mark in self.positions.iter_mut().filter(|mark| **mark > position) {
            *mark = mark.saturating_add_signed(bytes);
        }
    }
}
