//! Connections that are not read for a while, and the events that end their waits.
//!
//! | waits for | ends by |
//! |---|---|
//! | room ([`Pause`]) | a retry: its frame is looked at again, and may have to wait again |
//! | an answer ([`Question`]) | that answer, nothing else |
//! | either | the end of the connection |
//!
//! Only [`Parking`] changes what a connection waits for, so that its lists and the connections agree. A retry examines
//! the waiting frame again; so each kind of room has a list of its own, and a turn retries a limited number.

use std::num::NonZeroU32;

use super::conn::Conns;
use crate::collections::line::Line;
use crate::door::planted;
use crate::ids::ConnKey;
use crate::router::Holdup;
use crate::router::fan_out::FanOutKey;
use crate::router::group::SubscriptionIndex;
use crate::timer::Since;

/// The room for which a connection's next frame waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pause {
    /// A receiver's outbox is full.
    SlowConsumer,
    /// `memory_limit` is nearly reached.
    Memory,
    /// Memory is short, and the message would be kept.
    Kept,
    /// Another shard's mailbox is over its limit.
    Mailbox,
    /// Another shard has enough large fan-outs to route.
    LargeFanOut,
    /// Too much unfinished input is held, and only a part of this frame has arrived.
    Arriving,
    /// The connection's own answers fill its outbox.
    Answers,
    /// Memory is short, and messages of other shards have to be routed before its next frame.
    Mail,
    /// Messages of topics, whose publishers have their RECEIPT, wait for room in the connection's own outbox, or for the
    /// end of an initial replay; a frame that ends subscriptions has to wait until they are on their way.
    Deferred,
    /// The store has too much to write.
    Store,
}

impl From<Holdup> for Pause {
    /// The pause of a SEND for this reason.
    fn from(holdup: Holdup) -> Self {
        match holdup {
            Holdup::Outbox => Pause::SlowConsumer,
            Holdup::GrowingQueue => Pause::Kept,
        }
    }
}

impl Pause {
    pub(crate) const ALL: [Pause; 10] = [
        Pause::SlowConsumer,
        Pause::Memory,
        Pause::Kept,
        Pause::Mailbox,
        Pause::LargeFanOut,
        Pause::Arriving,
        Pause::Answers,
        Pause::Mail,
        Pause::Deferred,
        Pause::Store,
    ];
}

/// The answer for which a connection's next frame waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    /// The decision about the COMMIT with this token, by the homes of its queues.
    Commit(u64),
    /// The answers of all shards to the diagnostics query with this number.
    Query(u64),
    /// The end of a fan-out: its message has reached all recipients.
    FanOut(FanOutKey),
    /// The result of the login check for the CONNECT with this token.
    Login(u64),
    /// The end of a COMMIT that was decided, whose RECEIPT has this token: it is being applied.
    Turn(u64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reason {
    /// The kind of room, the place in its list, and, one higher, the index of the subscription that it waits for.
    Room(Pause, u64, Option<NonZeroU32>),
    Answer(Question),
}

/// The wait of one connection, if it waits.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wait {
    pub(super) reason: Option<Reason>,
    since_ms: u64,
    /// The time at which the waiting frame was held first; kept until it passes.
    held_since_ms: Since,
    /// The time since which memory stops the fan-out, as far as known; `None` if only outboxes do.
    stopped_since_ms: Since,
}

impl Wait {
    /// Whether the connection is not read.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.reason.is_some()
    }

    /// The room it waits for.
    #[must_use]
    pub fn pause(&self) -> Option<Pause> {
        match self.reason {
            Some(Reason::Room(pause, ..)) => Some(pause),
            _ => None,
        }
    }

    /// The subscription it waits for, with [`Pause::Deferred`]: that is owed messages in its private queue.
    #[must_use]
    pub fn awaited(&self) -> Option<SubscriptionIndex> {
        match self.reason {
            Some(Reason::Room(_, _, Some(next))) => Some(next.get() - 1),
            _ => None,
        }
    }

    /// Records that it waits for a subscription.
    pub fn awaits(&mut self, subscription: SubscriptionIndex) {
        if let Some(Reason::Room(_, _, awaited)) = &mut self.reason {
            *awaited = NonZeroU32::new(subscription + 1);
        }
    }

    /// The answer it waits for.
    #[must_use]
    pub fn question(&self) -> Option<Question> {
        match self.reason {
            Some(Reason::Answer(question)) => Some(question),
            _ => None,
        }
    }

    /// The time since which it waits, including retries.
    #[must_use]
    pub fn since_ms(&self) -> Option<u64> {
        self.is_on().then_some(self.since_ms)
    }

    /// The start of the wait that `publish_timeout` limits. A fan-out is limited only while memory stops it:
    /// otherwise it ends when its receivers have read, or were cut off. A connection that does not read its own
    /// answers is cut off, too. A frame that waits for mail is not a SEND, and a query's answer needs only turns.
    #[must_use]
    pub fn bounded_since_ms(&self) -> Option<u64> {
        if matches!(self.question(), Some(Question::FanOut(_))) {
            return self.stopped_since_ms.get().map(|stopped_ms| stopped_ms.max(self.since_ms));
        }
        let is_bounded = matches!(self.question(), Some(Question::Commit(_)) | None);
        let is_own = matches!(self.pause(), Some(Pause::Answers | Pause::Mail | Pause::Deferred));
        self.since_ms().filter(|_| is_bounded && !is_own)
    }

    /// Whether ACKs may wait behind its next frame, and not by its own fault: it does not wait until it reads.
    #[must_use]
    pub fn delays_acks(&self) -> bool {
        self.is_on() && !matches!(self.pause(), Some(Pause::Answers | Pause::Deferred))
    }

    /// Updates the time since which memory stops the fan-out; `None` if only outboxes do.
    pub fn note_stopped(&mut self, since_ms: Option<u64>) {
        self.stopped_since_ms = since_ms.map_or(Since::NONE, Since::at);
    }

    /// Records that the held frame has passed.
    pub fn passed(&mut self) {
        self.held_since_ms = Since::NONE;
    }

    /// The reason of the wait, as text for an ERROR.
    #[must_use]
    pub fn describe(&self) -> &'static str {
        match self.reason {
            Some(Reason::Room(Pause::SlowConsumer, ..)) => "a receiver's outbox is full",
            Some(Reason::Room(Pause::Memory, ..)) => "memory_limit is near",
            Some(Reason::Room(Pause::Kept, ..)) => "memory_limit is near, and the message would be kept",
            Some(Reason::Room(Pause::Arriving, ..)) => "unfinished frames take a quarter of memory_limit",
            Some(Reason::Room(Pause::Mailbox, ..)) => "max_input_queue_size is reached",
            Some(Reason::Room(Pause::LargeFanOut, ..)) => {
                "messages with very many receivers are still being delivered"
            }
            Some(Reason::Room(Pause::Answers, ..)) => "its own answers fill its outbox",
            Some(Reason::Room(Pause::Deferred, ..)) => "earlier messages wait for its outbox",
            Some(Reason::Room(Pause::Store, ..)) => "the disk of the store is slow",
            Some(Reason::Room(Pause::Mail, ..)) => "memory_limit is near, and earlier messages wait",
            Some(Reason::Answer(Question::Commit(_))) => "a COMMIT waits for the homes of its queues",
            Some(Reason::Answer(Question::FanOut(_))) => {
                "memory_limit is near; the remaining receivers get its message when there is room"
            }
            Some(Reason::Answer(Question::Turn(_) | Question::Query(_) | Question::Login(_))) | None => {
                "nothing"
            }
        }
    }
}

/// The connections of a shard that wait for room: a list for each kind, in the order in which they began to wait.
#[derive(Debug, Default)]
pub(crate) struct Parking {
    /// The last place that was assigned in any of the lists.
    last_place: u64,
    pub(super) waiting: [Line<ConnKey>; Pause::ALL.len()],
    /// Connections at places up to this one are to retry.
    retry_through: [u64; Pause::ALL.len()],
    /// How often room was reported.
    retries: [u64; Pause::ALL.len()],
    /// Whether the last retries were served before connections with new input.
    went_first: bool,
}

impl Parking {
    /// Makes a connection wait for room. Returns false if it waits already, or does not exist.
    pub(super) fn hold(&mut self, conns: &mut Conns, key: ConnKey, pause: Pause, now_ms: u64) -> bool {
        let Some(wait) = conns.get_mut(key).map(|conn| &mut conn.wait).filter(|wait| !wait.is_on()) else {
            return false;
        };
        self.last_place = self.waiting[pause as usize].push_behind(self.last_place, key);
        wait.since_ms = wait.held_since_ms.get_or_set(now_ms);
        wait.reason = Some(Reason::Room(pause, self.last_place, None));
        true
    }

    /// Makes a connection wait for an answer.
    pub(super) fn ask(&mut self, conns: &mut Conns, key: ConnKey, question: Question, now_ms: u64) {
        self.end_wait(conns, key);
        if let Some(conn) = conns.get_mut(key) {
            conn.wait.since_ms = conn.wait.held_since_ms.get().unwrap_or(now_ms);
            conn.wait.stopped_since_ms = Since::at(conn.wait.since_ms); // until it is known
            conn.wait.reason = Some(Reason::Answer(question));
        }
    }

    /// Ends the wait for this answer. Returns false if the connection does not wait for it.
    pub(super) fn answered(conns: &mut Conns, key: ConnKey, question: Question) -> bool {
        let wait = conns.get_mut(key).map(|conn| &mut conn.wait);
        let wait = wait.filter(|wait| wait.question() == Some(question));
        wait.is_some_and(|wait| wait.reason.take().is_some())
    }

    /// Ends a wait for room. Returns false if the connection does not wait for any.
    pub(super) fn end_wait(&mut self, conns: &mut Conns, key: ConnKey) -> bool {
        let Some(wait) = conns.get_mut(key).map(|conn| &mut conn.wait) else { return false };
        let Some(Reason::Room(pause, place, _)) = wait.reason else { return false };
        wait.reason = None;
        self.waiting[pause as usize].leave(place);
        true
    }

    /// Ends the wait of a connection that ends itself, whatever it is for.
    pub(super) fn end(&mut self, conns: &mut Conns, key: ConnKey) {
        self.end_wait(conns, key);
        if let Some(conn) = conns.get_mut(key) {
            conn.wait = Wait::default();
        }
    }

    /// Makes all connections retry that wait for this kind of room now.
    pub(crate) fn retry(&mut self, pause: Pause) {
        if planted!("retry-forgotten") {
            return;
        }
        self.retry_through[pause as usize] = self.last_place;
        self.retries[pause as usize] += 1;
    }

    /// Whether a connection that waits for room is to retry.
    #[cfg(any(test, simulated))]
    pub(crate) fn retries_soon(&self, wait: &Wait) -> bool {
        matches!(wait.reason, Some(Reason::Room(pause, place, _)) if place <= self.retry_through[pause as usize])
    }

    /// The number of times that room of this kind was reported.
    pub(crate) fn retries(&self, pause: Pause) -> u64 {
        self.retries[pause as usize]
    }

    /// Whether a connection is to retry.
    pub(crate) fn has_retries(&self) -> bool {
        Pause::ALL.iter().any(|pause| self.first_to_retry(*pause).is_some())
    }

    /// Ends the wait of the next connection that is to retry; the longest wait goes first.
    pub(super) fn next_to_retry(&mut self, conns: &mut Conns) -> Option<ConnKey> {
        let first = Pause::ALL.iter().filter_map(|pause| self.first_to_retry(*pause)).min_by_key(|at| at.0);
        let (_, key) = first?;
        let found = self.end_wait(conns, key);
        debug_assert!(found, "every connection on a list waits");
        Some(key)
    }

    fn first_to_retry(&self, pause: Pause) -> Option<(u64, ConnKey)> {
        let first = self.waiting[pause as usize].first().map(|(place, key)| (place, *key));
        first.filter(|(place, _)| *place <= self.retry_through[pause as usize])
    }

    /// The connection that has waited longest for room of one of these kinds.
    pub(crate) fn first_of(&self, pauses: &[Pause]) -> Option<ConnKey> {
        let firsts = pauses.iter().filter_map(|pause| self.waiting[*pause as usize].first());
        firsts.min_by_key(|(place, _)| *place).map(|(_, key)| *key)
    }

    /// Whether retries of this turn are served before connections with new input; alternates.
    pub(super) fn go_first_by_turns(&mut self) -> bool {
        self.went_first = !self.went_first;
        self.went_first
    }

    /// All connections that wait for this kind of room, the longest wait first.
    pub(crate) fn waiting_for(&self, pause: Pause) -> impl Iterator<Item = ConnKey> {
        self.waiting[pause as usize].iter().copied()
    }

    /// The number of connections that wait for room.
    pub(crate) fn len(&self) -> usize {
        self.waiting.iter().map(Line::len).sum()
    }

    /// Whether no connection waits for room.
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
#[path = "pausing_tests.rs"]
mod tests;
