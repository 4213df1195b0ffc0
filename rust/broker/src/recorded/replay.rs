//! Replays to the subscriptions of one shard: what each one has had, and where the next messages come from.

use std::collections::VecDeque;
use std::sync::Arc;

use super::windows::{Window, Windows};
use crate::door::HashMap;
use stompica_proto::encode::Offender;

use crate::ids::{ConnKey, ConsumerKey, QueueKey, SubscriptionKey};
use crate::message::options::{ReplayFrom, ReplayOptions};
use crate::requester::Requester;
use crate::store::recording::block::{Block, Recorded, Span};
use crate::store::recording::catalog::{Extent, Place};
use crate::store::recording::reader::Portion;

/// The approximate memory of a replay.
const REPLAY_BYTES: usize = size_of::<Replay>() + 120;

/// A block, and which of its messages comes next.
#[derive(Clone, Debug)]
struct Current {
    block: Arc<Block>,
    seq: u64,
    offset: usize,
    time_ms: u64,
}

/// What a replay waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The home's answer.
    Opening,
    /// The number of the message with which it begins.
    Finding,
    /// Nothing: it is delivered what comes.
    Open,
    /// It has had everything that it wanted.
    Ended,
}

/// A replay to one subscription.
#[derive(Debug)]
pub struct Replay {
    /// The destination.
    pub name: Arc<[u8]>,
    /// The subscription's own queue.
    pub queue: QueueKey,
    /// The subscription as its consumer.
    pub consumer: ConsumerKey,
    /// The credit that it gets once its RECEIPT has been sent: messages and bytes.
    pub credit: (i64, i64),
    /// The subscription's connection.
    pub conn: ConnKey,
    /// What was asked for.
    pub options: ReplayOptions,
    /// The frame that waits, and its description for an ERROR.
    pub requester: Option<(Requester, Box<Offender>)>,
    /// What it waits for.
    pub phase: Phase,
    /// The number of the next message.
    pub next: u64,
    current: Option<Current>,
    blocks: VecDeque<Arc<Block>>,
    place: Option<Place>,
    /// Whether history was asked for.
    pub is_asked: bool,
    /// Whether it is in the list of those that may go on.
    is_listed: bool,
    /// Whether a message was delivered.
    pub is_begun: bool,
    /// The number that it wanted when its lease was renewed last, and when that was: the lease says what it wanted one time before.
    pub leased: (u64, u64),
}

/// The next thing that a replay has.
#[derive(Debug)]
pub enum Step<'a> {
    /// A message, with its number and epoch.
    Message(Recorded<'a>, u64, u64),
    /// Messages up to this number are gone.
    Gap(u64),
    /// History has to be read.
    Read,
    /// Nothing before more is recorded.
    Wait,
}

/// Where a replay begins, and whether nothing that its reader wants is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beginning {
    /// With this number.
    At(u64, bool),
    /// What it wants is gone; it can begin with this number.
    Gone(u64),
    /// With the first message of a time.
    Find(u64),
}

/// Where a replay begins. `next` is the number of the next message, `extent` what is recorded.
#[must_use]
pub fn beginning(options: &ReplayOptions, (epoch, next): (u64, u64), extent: Option<&Extent>) -> Beginning {
    let first = extent.map_or(1, |extent| extent.first); // what is not written yet follows
    match options.from {
        ReplayFrom::First => Beginning::At(first, true),
        ReplayFrom::Last => Beginning::At(next.saturating_sub(1).max(first), true),
        ReplayFrom::Next => Beginning::At(next, true),
        ReplayFrom::Time(ms) => Beginning::Find(ms),
        ReplayFrom::Seq(seq) => {
            let spans = extent.map_or(&[][..], |extent| &extent.spans);
            let known = match options.epoch {
                Some(other) if other != epoch => match spans.iter().find(|span| span.epoch == other) {
                    // Numbers behind the end of an epoch that has ended belong to other messages now.
                    Some(Span { last, .. }) if seq > last + 1 => Err(last + 1),
                    Some(_) => Ok(seq),
                    None => Err(first),
                },
                _ => Ok(seq),
            };
            match known {
                Ok(seq) if seq >= first => Beginning::At(seq, true),
                Ok(_) => Beginning::Gone(first),
                Err(other) => Beginning::Gone(other.max(first)),
            }
        }
    }
}

impl Replay {
    /// A replay that waits for its home.
    #[must_use]
    pub fn new(
        name: Arc<[u8]>,
        conn: ConnKey,
        (queue, consumer, credit): (QueueKey, ConsumerKey, (i64, i64)),
        options: ReplayOptions,
        (requester, offender): (Requester, Offender),
    ) -> Self {
        Replay {
            name,
            queue,
            consumer,
            credit,
            conn,
            options,
            requester: Some((requester, Box::new(offender))),
            phase: Phase::Opening,
            next: 0,
            current: None,
            blocks: VecDeque::new(),
            place: None,
            is_asked: false,
            is_listed: false,
            is_begun: false,
            leased: (0, 0),
        }
    }

    /// What comes next.
    pub fn step<'a>(&'a mut self, window: &Window) -> Step<'a> {
        if self.current.as_ref().is_none_or(|current| current.seq != self.next) && !self.find_current(window)
        {
            let gone = self.blocks.front().map(|block| block.first);
            return match gone {
                Some(first) => Step::Gap(first),
                None if self.next < window.next => Step::Read,
                None => Step::Wait,
            };
        }
        let Some(current) = &self.current else { return Step::Wait };
        let mut messages = current.block.messages(current.offset, current.time_ms);
        match messages.next() {
            Some(message) => Step::Message(message, current.seq, current.block.epoch),
            // It was verified when it was read, so this is a mistake of the writer: go on behind it.
            None => Step::Gap(current.block.next()),
        }
    }

    /// The message of the last step is delivered.
    pub fn advance(&mut self) {
        self.next += 1;
        if let Some(current) = &mut self.current {
            let mut messages = current.block.messages(current.offset, current.time_ms);
            if messages.next().is_some() {
                (current.offset, current.time_ms) = (messages.offset(), messages.time_ms());
            }
            current.seq += 1;
            if current.seq >= current.block.next() {
                self.current = None;
            }
        }
    }

    /// Messages before this number are given up.
    pub fn skip_to(&mut self, seq: u64) {
        self.next = seq.max(self.next + 1);
        self.current = None;
    }

    /// Finds the block with the next message among those that were read, or in the window.
    fn find_current(&mut self, window: &Window) -> bool {
        while self.blocks.front().is_some_and(|block| block.next() <= self.next) {
            self.blocks.pop_front();
        }
        let found = match self.blocks.front() {
            Some(block) if block.first <= self.next => self.blocks.pop_front(),
            Some(_) => None,
            None => window.find(self.next).inspect(|_| self.place = None),
        };
        let Some(block) = found else { return false };
        let mut messages = block.messages(0, block.time_ms);
        let passed = self.next - block.first;
        let count = (0..passed).take_while(|_| messages.next().is_some()).count() as u64;
        let (offset, time_ms) = (messages.offset(), messages.time_ms());
        self.current = (count == passed).then_some(Current { block, seq: self.next, offset, time_ms });
        self.current.is_some()
    }

    /// History that was asked for has come. Returns the first number that is there if what comes next is gone.
    pub fn take(&mut self, portion: Portion) -> Option<u64> {
        self.is_asked = false;
        self.place = portion.place;
        let is_empty = portion.blocks.is_empty();
        self.blocks.extend(portion.blocks);
        let first = portion.extent.map_or(0, |extent| extent.first);
        (is_empty && first > self.next).then_some(first)
    }

    /// Whether it may ask for more before it has delivered what it has.
    #[must_use]
    pub fn wants_more(&self, window: &Window) -> bool {
        !self.is_asked
            && self.blocks.is_empty()
            && self.place.is_some()
            && self.next < window.next
            && window.find(self.next).is_none()
    }

    /// Where to read on.
    #[must_use]
    pub fn place(&self) -> Option<Place> {
        self.place
    }
}

/// The replays of one shard.
#[derive(Debug, Default)]
pub struct Replays {
    all: HashMap<SubscriptionKey, Replay>,
    by_queue: HashMap<QueueKey, SubscriptionKey>,
    windows: Windows,
    /// Those that may go on.
    line: VecDeque<SubscriptionKey>,
}

impl Replays {
    /// Whether a subscription has one.
    #[cfg(any(test, simulated))]
    #[must_use]
    pub fn has(&self, key: SubscriptionKey) -> bool {
        self.all.contains_key(&key)
    }

    /// Adds a replay.
    pub fn insert(&mut self, key: SubscriptionKey, replay: Replay) {
        self.by_queue.insert(replay.queue, key);
        self.windows.entry(Arc::clone(&replay.name)).or_default().subscriptions.push(key);
        self.all.insert(key, replay);
    }

    /// Removes a replay, if the subscription has one. Returns it, and whether it was the last one of its destination.
    pub fn remove(&mut self, key: SubscriptionKey) -> Option<(Replay, bool)> {
        let replay = self.all.remove(&key)?;
        self.by_queue.remove(&replay.queue);
        let window = self.windows.get_mut(&replay.name)?;
        window.subscriptions.retain(|other| *other != key);
        let is_last = window.subscriptions.is_empty();
        if is_last {
            self.windows.remove(&replay.name);
        }
        Some((replay, is_last))
    }

    /// A replay and the window of its destination.
    pub fn get_mut(&mut self, key: SubscriptionKey) -> Option<(&mut Replay, &mut Window)> {
        let replay = self.all.get_mut(&key)?;
        let window = self.windows.get_mut(&replay.name)?;
        Some((replay, window))
    }

    /// The replay into a queue.
    #[must_use]
    pub fn of_queue(&self, queue: QueueKey) -> Option<SubscriptionKey> {
        self.by_queue.get(&queue).copied()
    }

    /// Adds a block to its window. All its replays may go on. Returns how many these are.
    pub fn note(&mut self, block: Arc<Block>) -> usize {
        let Some(window) = self.windows.get_mut(&block.name) else { return 0 };
        window.push(block);
        for key in &window.subscriptions {
            if let Some(replay) = self.all.get_mut(key)
                && !replay.is_listed
            {
                replay.is_listed = true;
                self.line.push_back(*key);
            }
        }
        window.subscriptions.len()
    }

    /// A replay may go on.
    pub fn list(&mut self, key: SubscriptionKey) {
        if let Some(replay) = self.all.get_mut(&key)
            && !replay.is_listed
        {
            replay.is_listed = true;
            self.line.push_back(key);
        }
    }

    /// Whether one may go on.
    #[must_use]
    pub fn has_listed(&self) -> bool {
        !self.line.is_empty()
    }

    /// The next one that may go on.
    pub fn next_listed(&mut self) -> Option<SubscriptionKey> {
        let key = self.line.pop_front()?;
        if let Some(replay) = self.all.get_mut(&key) {
            replay.is_listed = false;
        }
        Some(key)
    }

    /// Drops all answers, because the shard ends.
    pub fn abandon_answers(&mut self) {
        let requesters = self.all.values_mut().filter_map(|replay| replay.requester.take());
        requesters.for_each(|(requester, _)| _ = requester.answered());
    }

    /// The approximate memory in bytes.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.all.len() * REPLAY_BYTES + self.windows.len() * size_of::<Window>()
    }
}

#[cfg(test)]
#[path = "replay_tests.rs"]
mod tests;
