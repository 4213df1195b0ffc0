//! The replays of stale and retained messages that go on at one home.

use std::collections::VecDeque;

use super::replay::Replay;
use crate::collections::spread::{Map, give_back};
use crate::ids::{ConnKey, Subscriber};

/// The replays of one home, and who asks other homes for more.
#[derive(Debug, Default)]
pub(crate) struct Replays {
    pub(crate) all: Map<Subscriber, Replay>,
    /// Those that can go on.
    pub(crate) ready: VecDeque<Subscriber>,
    pub(crate) held_bytes: usize,
    /// Connections here that ask for more once there is memory.
    pub(crate) short_of_memory: Vec<ConnKey>,
    /// Those that have more to ask for in the next turn.
    pub(crate) pulling: VecDeque<ConnKey>,
}

impl Replays {
    /// Keeps one, new or taken out before.
    pub(crate) fn put(&mut self, subscriber: Subscriber, replay: Replay, is_ready: bool) {
        self.held_bytes += replay.held_bytes();
        self.all.insert(subscriber, replay);
        if is_ready {
            self.ready.push_back(subscriber);
        }
    }

    /// Takes one out.
    pub(crate) fn take(&mut self, subscriber: Subscriber) -> Option<Replay> {
        let replay = self.all.remove(&subscriber)?;
        give_back(&mut self.all);
        self.held_bytes -= replay.held_bytes();
        Some(replay)
    }

    /// Gives one its next window.
    pub(crate) fn open(&mut self, subscriber: Subscriber) {
        if let Some(replay) = self.all.get_mut(&subscriber) {
            replay.open();
            self.ready.push_back(subscriber);
        }
    }

    /// Whether one can go on.
    pub(crate) fn has_work(&self) -> bool {
        !self.ready.is_empty() || !self.pulling.is_empty()
    }

    /// How many can go on.
    #[cfg(test)]
    pub(crate) fn open_windows(&self) -> usize {
        self.ready.len()
    }

    /// Whether somebody waits for memory to ask for more.
    pub(crate) fn wait_for_memory(&self) -> bool {
        !self.short_of_memory.is_empty()
    }

    /// Bytes they occupy, about.
    pub(crate) fn held_bytes(&self) -> usize {
        self.held_bytes
    }
}
