//! Notes that wait: those to other shards until the end of the turn, those to this shard for the layers above the
//! queues.
//!
//! A home acts on a note at once if that affects only queues. Notes to the layers above (a delivery to a connection, an
//! answer to a frame) wait in [`Notes::next_local`] until the current frame, note or job is done. Notes to one shard
//! keep their order, so an answer follows the notes about its effects.

use std::collections::VecDeque;
use std::mem::take;
use std::sync::Arc;

use stompica_proto::ProtocolError;
use stompica_proto::encode::Offender;

use super::mail::{AnswerNote, ConsumerNote, HomeNote, Note};
use super::types::{Delivery, Progress};
use crate::ids::{ShardId, SubscriptionKey};
use crate::message::OwnedMessage;
use crate::queue::replay::Newcomer;
use crate::requester::{AnswerTo, Requester};
use crate::text::Text;

/// An item on this shard for the layers above the queues.
#[derive(Debug)]
pub enum Local {
    /// A note.
    Note(Note),
    /// Publish a message that was stale to the subscriptions that have begun since.
    Publish(OwnedMessage),
    /// Tell the other shards that a durable subscription here receives the messages of a topic or pattern.
    Announce {
        /// The topic or pattern.
        topic: Arc<Text>,
        /// The frame whose RECEIPT waits for their answers.
        to: Option<AnswerTo>,
        /// The subscription that gets their stale and retained messages, if it is new.
        newcomer: Option<Newcomer>,
    },
    /// Remove the subscription to a topic that fed a durable subscription, which has ended.
    Unbind(SubscriptionKey),
}

/// Capacity above this is freed.
const KEPT_LOCAL: usize = 256;

/// The maximum number of notes for which a list has room from the beginning.
const EXPECTED_MAX: usize = 4096;

/// The number of reports to other homes for which all mail is posted before the turn ends.
const BULK: usize = 64;

/// Notes to another shard.
#[derive(Debug, Default)]
pub(super) struct Outgoing {
    /// The notes.
    pub(super) list: Vec<Note>,
    /// A new list begins with room for this many notes, because to grow it step by step would copy each note several
    /// times: as many as the largest of the last lists had, up to [`EXPECTED_MAX`]. Its room is a power of two. Lists are
    /// freed by other threads, and the allocator keeps memory of this one for each size that it had.
    expected: usize,
}

impl Outgoing {
    fn push(&mut self, note: Note) {
        if self.list.capacity() == 0 {
            self.list.reserve_exact(self.expected.next_power_of_two());
        }
        self.list.push(note);
    }

    fn take(&mut self) -> Vec<Note> {
        let earlier = self.expected - self.expected / 4;
        self.expected = self.list.len().max(earlier).min(EXPECTED_MAX);
        take(&mut self.list)
    }
}

/// Notes of one shard that wait.
#[derive(Debug)]
pub struct Notes {
    /// The sending shard.
    own: ShardId,
    /// Notes to each other shard, in order.
    pub(super) outgoing: Vec<Outgoing>,
    /// The load of deliveries to each shard that is not counted yet, in [`Note::load`].
    deliveries: Vec<usize>,
    /// The number of reports that were added to `outgoing` since it was last taken.
    reports: usize,
    /// Items for this shard.
    pub(super) local: VecDeque<Local>,
}

impl Notes {
    /// An empty value for the shard `own`; `shards` is the number of all shards.
    #[must_use]
    pub fn new(own: ShardId, shards: usize) -> Self {
        Notes {
            own,
            outgoing: (0..shards).map(|_| Outgoing::default()).collect(),
            deliveries: vec![0; shards],
            reports: 0,
            local: VecDeque::new(),
        }
    }

    /// Adds a note to a shard, after all earlier ones.
    pub fn tell(&mut self, shard: ShardId, note: impl Into<Note>) {
        let note = note.into();
        match shard == self.own {
            true => self.local.push_back(Local::Note(note)),
            false => self.outgoing[usize::from(shard.0)].push(note),
        }
    }

    /// Adds a note to every shard, including this one.
    pub fn tell_everyone<N: Into<Note>>(&mut self, mut note: impl FnMut() -> N) {
        for shard in 0..self.outgoing.len() {
            self.tell(ShardId(shard as u8), note());
        }
    }

    /// Adds a delivery to another shard.
    pub fn deliver(&mut self, delivery: Delivery) {
        let shard = delivery.subscriber.shard;
        self.deliveries[usize::from(shard.0)] += delivery.load();
        self.tell(shard, ConsumerNote::Deliver(delivery));
    }

    /// Adds a report about deliveries to another home; consecutive reports about one consumer are merged.
    pub fn report(&mut self, home: ShardId, progress: Progress) {
        self.reports += 1;
        let outgoing = &mut self.outgoing[usize::from(home.0)];
        match outgoing.list.last_mut() {
            Some(Note::Home(HomeNote::Progress(last))) if last.is_of_same(&progress) => last.add(&progress),
            _ => outgoing.push(Note::Home(HomeNote::Progress(progress))),
        }
    }

    /// Answers a frame on any shard. A frame that waits for no answer is only told of a refusal.
    pub fn answer(&mut self, requester: Requester, outcome: Result<(), (ProtocolError, Offender)>) {
        let to = requester.answered();
        match outcome {
            Ok(()) if !to.awaited => {}
            Ok(()) => self.tell(to.shard, AnswerNote::Applied(to.conn, to.token)),
            Err(refusal) => self.tell(to.shard, AnswerNote::Refused(to.conn, to.token, Box::new(refusal))),
        }
    }

    /// Adds an item for the layers above the queues, after all notes to this shard.
    pub fn leave(&mut self, local: Local) {
        self.local.push_back(local);
    }

    /// The number of items for this shard.
    #[must_use]
    pub fn local_len(&self) -> usize {
        self.local.len()
    }

    /// Removes the next item for this shard.
    pub fn next_local(&mut self) -> Option<Local> {
        let note = self.local.pop_front();
        if note.is_none() && self.local.capacity() > KEPT_LOCAL {
            self.local = VecDeque::new();
        }
        note
    }

    /// Whether there are items for this shard.
    #[must_use]
    #[inline]
    pub fn has_local(&self) -> bool {
        !self.local.is_empty()
    }

    /// Whether there are no notes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        !self.has_local() && self.outgoing.iter().all(|outgoing| outgoing.list.is_empty())
    }

    /// Whether so many reports wait that all mail is posted before the turn ends: other homes need the credit.
    #[inline]
    #[must_use]
    pub fn has_many_reports(&self) -> bool {
        self.reports >= BULK
    }

    /// Removes all notes to other shards.
    pub fn take_outgoing(&mut self) -> impl Iterator<Item = (ShardId, Vec<Note>)> {
        self.reports = 0;
        let outgoing = self.outgoing.iter_mut().enumerate().filter(|(_, outgoing)| !outgoing.list.is_empty());
        outgoing.map(|(at, outgoing)| (ShardId(at as u8), outgoing.take()))
    }

    /// The load of deliveries since the last call, for each shard with some.
    pub fn take_deliveries(&mut self) -> impl Iterator<Item = (ShardId, usize)> {
        let loads = self.deliveries.iter_mut().enumerate().filter(|(_, load)| **load > 0);
        loads.map(|(at, load)| (ShardId(at as u8), take(load)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collections::keyed::Key;
    use crate::ids::{ConnKey, Subscriber};
    use crate::queue::types::Credit;
    use crate::requester::take_lost;

    const OWN: ShardId = ShardId(1);
    const OTHER: ShardId = ShardId(0);

    fn progress(consumer: u32) -> Progress {
        let (queue, consumer) = (Key { index: 0, generation: 0 }, Key { index: consumer, generation: 0 });
        let credit = Credit { messages: 1, bytes: 10 };
        Progress { queue, consumer, settled: 1, settled_bytes: 10, credit }
    }

    fn outgoing(notes: &mut Notes) -> Vec<(ShardId, Vec<Note>)> {
        notes.take_outgoing().collect()
    }

    #[test]
    fn notes_to_other_shards_keep_their_order() {
        let mut notes = Notes::new(OWN, 3);
        notes.tell(OTHER, HomeNote::DropStale);
        notes.report(OTHER, progress(0));
        assert!(!notes.has_local() && !notes.is_empty());
        let taken = outgoing(&mut notes);
        assert!(matches!(
            &taken[..],
            [(OTHER, list)] if matches!(&list[..], [Note::Home(HomeNote::DropStale), Note::Home(HomeNote::Progress(_))])
        ));
        assert!(notes.is_empty() && outgoing(&mut notes).is_empty());
    }

    #[test]
    fn notes_to_the_own_shard_are_separate() {
        let mut notes = Notes::new(OWN, 2);
        notes.tell(OWN, HomeNote::DropStale);
        assert!(notes.has_local() && !notes.is_empty() && outgoing(&mut notes).is_empty());
        assert!(matches!(notes.next_local(), Some(Local::Note(Note::Home(HomeNote::DropStale)))));
        assert!(notes.next_local().is_none() && notes.is_empty());
    }

    #[test]
    fn the_memory_of_very_many_notes_to_the_own_shard_is_freed_after_them() {
        let mut notes = Notes::new(OWN, 2);
        (0..=KEPT_LOCAL).for_each(|_| notes.tell(OWN, HomeNote::DropStale));
        assert_eq!(notes.local_len(), KEPT_LOCAL + 1);
        while notes.next_local().is_some() {}
        assert_eq!(notes.local.capacity(), 0);
        notes.tell(OWN, HomeNote::DropStale);
        while notes.next_local().is_some() {}
        assert!(notes.local.capacity() > 0, "a short list is kept");
    }

    #[test]
    fn consecutive_progress_of_one_consumer_is_one_note() {
        let mut notes = Notes::new(OWN, 2);
        for consumer in [0, 0, 1, 0] {
            notes.report(OTHER, progress(consumer));
        }
        let settled: Vec<u64> = outgoing(&mut notes)
            .into_iter()
            .flat_map(|(_, list)| list)
            .map(|note| if let Note::Home(HomeNote::Progress(it)) = note { it.settled } else { 0 })
            .collect();
        assert_eq!(settled, [2, 1, 1]);
    }

    #[test]
    fn a_frame_without_receipt_is_told_of_a_refusal_only() {
        let mut notes = Notes::new(OWN, 2);
        let to = |shard, awaited| AnswerTo { shard, conn: ConnKey::NONE, token: 7, awaited };
        notes.answer(to(OWN, false).requester(), Ok(()));
        assert!(notes.is_empty());
        notes.answer(to(OWN, true).requester(), Ok(()));
        assert!(matches!(notes.next_local(), Some(Local::Note(Note::Answer(AnswerNote::Applied(_, 7))))));
        let error = ProtocolError::new(stompica_proto::error::Code::Memory, "no room");
        notes.answer(to(OTHER, false).requester(), Err((error, Offender::default())));
        let taken = outgoing(&mut notes);
        assert!(matches!(taken[0].1[..], [Note::Answer(AnswerNote::Refused(_, 7, _))]));
        assert_eq!(take_lost(), 0);
    }

    #[test]
    fn deliveries_are_counted_once() {
        let mut notes = Notes::new(OWN, 2);
        let message = stompica_proto::encode::Message {
            destination: b"/queue/a",
            id: b"i",
            sender: 0,
            headers: b"",
            plain: true,
            expires_ms: 0,
            body: b"",
        };
        let key = Key { index: 0, generation: 0 };
        let subscriber = Subscriber { shard: OTHER, key };
        let delivery =
            Delivery { subscriber, queue: key, consumer: key, message: OwnedMessage::new(&message) };
        let load = delivery.load();
        notes.deliver(delivery);
        assert_eq!(notes.take_deliveries().collect::<Vec<_>>(), [(OTHER, load)]);
        assert_eq!(notes.take_deliveries().count(), 0);
        assert_eq!(outgoing(&mut notes)[0].1[0].load(), load);
    }

    #[test]
    fn a_list_begins_with_room_for_as_many_notes_as_the_last_ones_had() {
        let mut notes = Notes::new(OWN, 2);
        let mut capacity_after = |count: usize| {
            (0..count).for_each(|_| notes.tell(OTHER, HomeNote::DropStale));
            outgoing(&mut notes).pop().map_or(0, |(_, list)| list.capacity())
        };
        let grown = capacity_after(1000);
        assert!(grown >= 1000);
        assert_eq!(capacity_after(1), 1024, "expects as many again");
        let rooms: Vec<usize> = (0..40).map(|_| capacity_after(1)).collect();
        assert!(
            rooms.contains(&512) && rooms.is_sorted_by(|one, next| one >= next),
            "expects fewer: {rooms:?}"
        );
        assert!(rooms.iter().all(|room| room.is_power_of_two()), "has few sizes: {rooms:?}");
        assert!(rooms.last().is_some_and(|room| *room < 10), "forgets the long list: {rooms:?}");
        capacity_after(3 * EXPECTED_MAX);
        assert_eq!(capacity_after(1), EXPECTED_MAX, "and reserves no more than this");
    }

    #[test]
    fn many_reports_to_other_homes_are_worth_posting_early() {
        let mut notes = Notes::new(OWN, 2);
        for _ in 0..BULK {
            assert!(!notes.has_many_reports());
            notes.tell(OTHER, HomeNote::DropStale);
            notes.report(OTHER, progress(0));
        }
        assert!(notes.has_many_reports());
        assert_eq!(outgoing(&mut notes).len(), 1);
        (0..BULK).for_each(|_| notes.tell(OTHER, HomeNote::DropStale));
        assert!(!notes.has_many_reports(), "only reports count");
    }
}
