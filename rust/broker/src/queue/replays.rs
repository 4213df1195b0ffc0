//! The current replays of stale and retained messages at one home.

use std::collections::VecDeque;

use super::Owners;
use super::mail::ConsumerNote;
use super::replay::{Replay, Step, Visits};
use crate::collections::spread::{Map, give_back};
use crate::ids::{ConnKey, Subscriber};
use crate::requester::Requester;
use crate::router::Router;

/// The maximum number of names that one replay visits before the next one continues.
const VISITS_MAX: usize = 2000;

/// The replays of one home, and the connections here that request more from other homes.
#[derive(Debug, Default)]
pub(crate) struct Replays {
    pub(crate) all: Map<Subscriber, Replay>,
    /// The replays that can continue.
    pub(crate) ready: VecDeque<Subscriber>,
    pub(crate) held_bytes: usize,
    /// Connections here that request more once there is memory.
    pub(crate) short_of_memory: Vec<ConnKey>,
    /// Connections here that request more in the next turn.
    pub(crate) pulling: VecDeque<ConnKey>,
}

impl Replays {
    /// Adds a replay, or puts it back.
    pub(crate) fn put(&mut self, subscriber: Subscriber, replay: Replay, is_ready: bool) {
        self.held_bytes += replay.held_bytes();
        self.all.insert(subscriber, replay);
        if is_ready {
            self.ready.push_back(subscriber);
        }
    }

    /// Removes a replay.
    pub(crate) fn take(&mut self, subscriber: Subscriber) -> Option<Replay> {
        let replay = self.all.remove(&subscriber)?;
        give_back(&mut self.all);
        self.held_bytes -= replay.held_bytes();
        Some(replay)
    }

    /// Opens the next window of a replay.
    pub(crate) fn open(&mut self, subscriber: Subscriber) {
        if let Some(replay) = self.all.get_mut(&subscriber) {
            replay.open();
            self.ready.push_back(subscriber);
        }
    }

    /// Whether a replay can continue.
    pub(crate) fn has_work(&self) -> bool {
        !self.ready.is_empty() || !self.pulling.is_empty()
    }

    /// The number of replays that can continue.
    #[cfg(test)]
    pub(crate) fn open_windows(&self) -> usize {
        self.ready.len()
    }

    /// Whether a connection waits for memory to request more.
    pub(crate) fn wait_for_memory(&self) -> bool {
        !self.short_of_memory.is_empty()
    }

    /// The approximate memory in bytes.
    pub(crate) fn held_bytes(&self) -> usize {
        self.held_bytes
    }
}

/// The replay of this home to a new subscription, without messages of the connection `without`; at its end `reply` is
/// answered.
pub(super) fn replay_of(router: &Router, name: &[u8], without: u64, reply: Option<Requester>) -> Replay {
    let literal_len = match router.parse(name) {
        Ok(Some(_)) => Some(literal_len(name)),
        _ => None,
    };
    Replay::new(name.into(), literal_len, without, reply)
}

/// The length of the prefix that all matches of a pattern have in common: the whole segments before the first wildcard.
pub(super) fn literal_len(pattern: &[u8]) -> usize {
    let wild = pattern.iter().position(|byte| matches!(byte, b'*' | b'>' | b'#')).unwrap_or(pattern.len());
    pattern[..wild].iter().rposition(|byte| matches!(byte, b'/' | b'.')).unwrap_or(0)
}

impl Owners<'_> {
    /// Continues the next replay that has a window. Returns false if there is none.
    pub(crate) fn proceed_with_next_replay(&mut self) -> bool {
        let Some(subscriber) = self.queues.replays.ready.pop_front() else { return false };
        self.proceed_with_replay(subscriber);
        true
    }

    fn proceed_with_replay(&mut self, subscriber: Subscriber) {
        let Some(mut replay) = self.queues.replays.take(subscriber) else { return };
        let mut visits = Visits { count: 0, max: VISITS_MAX };
        let mut found = Vec::new();
        let (router, name) = (&*self.router, replay.name.clone());
        let (kind, pattern) = (router.kind(&name), router.parse(&name).ok().flatten());
        let matches = |other: &[u8]| {
            router.kind(other) == kind && pattern.as_ref().is_some_and(|pattern| pattern.matches(other))
        };
        let step = loop {
            match replay.step(
                self.turn.now_ms,
                (&mut self.queues.retained, &mut self.queues.stale),
                matches,
                &mut visits,
            ) {
                Step::Send(message, retained) => found.push((message, retained)),
                step => break step,
            }
        };
        self.turn.budget.visit(visits.count);
        self.turn.budget.deliveries += found.len();
        for (message, retained) in found {
            if subscriber.shard != self.turn.id {
                self.turn.budget.encoded += message.size();
            }
            self.notes.tell(subscriber.shard, ConsumerNote::Replayed(subscriber.key, message, retained));
        }
        match step {
            Step::End => {
                if let Some(requester) = replay.reply {
                    self.notes.answer(requester, Ok(())); // before the live messages that follow the end
                }
                self.notes.tell(subscriber.shard, ConsumerNote::ReplayEnd(subscriber.key));
            }
            Step::Pause => {
                self.queues.replays.put(subscriber, replay, false);
                self.notes.tell(subscriber.shard, ConsumerNote::ReplayPause(subscriber.key));
            }
            Step::Send(..) | Step::Later => {
                self.queues.replays.put(subscriber, replay, true);
            }
        }
    }

    /// Removes the replay of a subscriber that has ended.
    pub(super) fn stop_replay(&mut self, subscriber: Subscriber) {
        if let Some(requester) = self.queues.replays.take(subscriber).and_then(|replay| replay.reply) {
            self.notes.answer(requester, Ok(()));
        }
    }

    /// Answers the frame of a subscriber whose credit is used up; the rest of the replay follows as it acknowledges.
    pub(super) fn answer_before_the_end(&mut self, subscriber: Subscriber) {
        let replay = self.queues.replays.all.get_mut(&subscriber);
        if let Some(requester) = replay.and_then(|replay| replay.reply.take()) {
            self.notes.answer(requester, Ok(()));
        }
    }
}
