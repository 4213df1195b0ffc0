//! Tracked frame ends in an outbox, as positions in its whole output.

use std::collections::VecDeque;

/// The write markers of one outbox, in ascending order.
#[derive(Debug, Default)]
pub struct WriteMarkers {
    pub(in crate::connection) positions: VecDeque<u64>,
}

impl WriteMarkers {
    /// Whether no frame is tracked.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.positions.is_empty()
    }

    /// The position of the oldest tracked frame.
    #[must_use]
    pub fn first(&self) -> Option<u64> {
        self.positions.front().copied()
    }

    /// Tracks the frame that ends here; no marker is after this position.
    pub fn add(&mut self, position: u64) {
        self.positions.push_back(position);
    }

    /// Moves the newest marker further back.
    pub fn move_last(&mut self, position: u64) {
        if let Some(last) = self.positions.back_mut() {
            *last = position;
        }
    }

    /// Removes the markers up to a position; returns their number.
    pub fn take_through(&mut self, position: u64) -> usize {
        let count = self.positions.iter().take_while(|mark| **mark <= position).count();
        self.positions.drain(..count);
        count
    }

    /// Removes the markers after a position; returns their number.
    pub fn take_behind(&mut self, position: u64) -> usize {
        let kept = self.positions.iter().take_while(|mark| **mark <= position).count();
        let count = self.positions.len() - kept;
        self.positions.truncate(kept);
        count
    }

    /// Adjusts the markers after bytes were inserted (or, if negative, removed) at a position.
    pub fn shift(&mut self, position: u64, bytes: i64) {
        for mark in self.positions.iter_mut().filter(|mark| **mark > position) {
            *mark = mark.saturating_add_signed(bytes);
        }
    }
}
