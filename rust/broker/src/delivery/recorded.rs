//! Recorded topics are published by their homes; and replays are fed: history is read by portions on another thread, and its
//! messages go to the queues of their subscriptions, as far as these have room.

use std::sync::Arc;

use stompica_proto::ProtocolError;
use stompica_proto::encode::{Message, Offender};
use stompica_proto::error::Code;

use super::Owners;
use super::memory::must_wait_for_memory;
use crate::ids::{NOBODY, ShardId, SubscriptionKey};
use crate::message::OwnedMessage;
use crate::message::options::{ReplayFrom, ReplayOptions};
use crate::queue::mail::RecordNote;
use crate::queue::types::{Credit, Progress};
use crate::recorded::numbers::numbered;
use crate::recorded::replay::{Beginning, Phase, Replay, Step, beginning};
use crate::requester::Requester;
use crate::store::recording::block::Lease;
use crate::store::recording::desk::{Asked, Desk, Question, Read};
use crate::timer::Due;

/// What comes next may not be written yet: after this time it is looked for again.
const RETRY_MS: u64 = 5;
/// The messages of a replay before another one goes on.
const MESSAGES_MAX: usize = 512;
/// A lease is renewed after this time.
const RENEWAL_MS: u64 = 1000;
/// How long a lease keeps history after its reader has read.
const LEASE_MS: u64 = 24 * 3_600_000;

/// What a replay does after a step.
enum Next {
    /// Go on.
    On,
    /// Wait for an event.
    Wait,
    /// Go on at this time of the broker's clock.
    At(u64),
    /// Go on when others have had their turn.
    Later,
    /// What it wants is gone, up to this number.
    Gap(u64),
}

impl Owners<'_> {
    /// Handles a note about a recorded destination.
    pub(crate) fn read_record_note(&mut self, from: ShardId, note: RecordNote) {
        match note {
            RecordNote::Publish(message, requester) => self.publish_recorded(message, false, requester),
            RecordNote::PublishRetained(message, requester) => {
                self.publish_recorded(message, true, requester)
            }
            RecordNote::Watch(name, key) => {
                let recorded = &mut self.queues.recorded;
                // A subscription is accepted only when the recording is open.
                if let Some(desk) = &recorded.desk {
                    let (epoch, next) = recorded.homes.watch(desk, &name, from);
                    self.notes.tell(from, RecordNote::Watched(key, epoch, next));
                }
            }
            RecordNote::Unwatch(name) => self.queues.recorded.homes.unwatch(&name, from),
            RecordNote::Watched(key, epoch, next) => self.begin_replay(key, epoch, next),
            RecordNote::Block(block) => {
                let replays = self.queues.recorded.replays.note(block);
                self.turn.budget.visit(replays / 16);
            }
        }
    }

    /// Numbers, records and publishes a message of a topic whose home this is.
    fn publish_recorded(&mut self, message: OwnedMessage, retained: bool, requester: Option<Requester>) {
        let limit = self.turn.config.max_destinations;
        let homes = &self.queues.recorded.homes;
        if homes.len() >= limit && !homes.knows(message.destination()) {
            let text = format!("{limit} destinations are recorded, max_destinations is {limit}");
            let refusal = (ProtocolError::new(Code::DestinationCount, text), Offender::default());
            requester.into_iter().for_each(|requester| self.notes.answer(requester, Err(refusal.clone())));
            return;
        }
        let persistent = message.persistent;
        if message.is_expired(self.turn.now_ms) {
            self.turn.counters.expired += 1;
        } else if let Ok(destination) = self.router.destination_of(self.turn, message.destination()) {
            let message = self.queue().record(message);
            // The same publisher may have a fan-out that is not complete.
            self.deliveries.fan_outs.in_order = true;
            let reach = self.router.reach(destination);
            self.publish(&message.message(), destination, &reach);
            self.deliveries.fan_outs.in_order = false;
            if persistent {
                self.queues.home.store.add_concerned(reach.remote); // durable subscriptions may have it there
            }
            if !retained && self.queue().waits_for_subscriber(destination) {
                self.queue().hold_stale(message);
            }
        }
        match requester {
            Some(requester) if persistent => self.queue().answer_when_recorded(requester),
            Some(requester) => self.queue().answer(requester, Ok(())),
            None => {}
        }
    }

    /// The home of a destination knows that it is replayed here.
    fn begin_replay(&mut self, key: SubscriptionKey, epoch: u64, next: u64) {
        let recorded = &mut self.queues.recorded;
        let Some(desk) = &recorded.desk else { return };
        let Some((replay, window)) = recorded.replays.get_mut(key) else { return };
        window.next = window.next.max(next);
        let extent = desk.catalog().extent(&replay.name);
        match beginning(&replay.options, (epoch, next), extent.as_ref()) {
            Beginning::At(seq, recovered) => self.open_replay(key, seq, recovered),
            Beginning::Gone(first) if replay.options.skips_gaps => self.open_replay(key, first, false),
            Beginning::Gone(first) => {
                let error = gone(&replay.options, &replay.name, first);
                if let Some((requester, offender)) = replay.requester.take() {
                    self.notes.answer(requester, Err((error, *offender)));
                }
            }
            Beginning::Find(time_ms) => {
                replay.phase = Phase::Finding;
                let (name, shard) = (Arc::clone(&replay.name), usize::from(self.turn.id.0));
                desk.ask(Asked { shard, key, name, question: Question::Find(time_ms) });
            }
        }
    }

    /// A replay begins with this number. Its messages follow its RECEIPT.
    fn open_replay(&mut self, key: SubscriptionKey, seq: u64, recovered: bool) {
        let own = self.turn.id;
        let wall_ms = self.turn.wall_ms();
        let recorded = &mut self.queues.recorded;
        let (Some(desk), Some((replay, _))) = (&recorded.desk, recorded.replays.get_mut(key)) else { return };
        (replay.next, replay.leased, replay.phase) = (seq, (seq, 0), Phase::Open);
        if !renew_lease(desk, replay, wall_ms) {
            let text = "there are too many leases; one ends 24 hours after its reader has read last";
            return self.fail_replay(key, |_| ProtocolError::new(Code::SubscriptionCount, text));
        }
        let (messages, bytes) = replay.credit;
        let (queue, consumer) = (replay.queue, replay.consumer);
        let requester = replay.requester.take();
        let credit = Credit { messages, bytes };
        let credit = Progress { queue, consumer, settled: 0, settled_bytes: 0, credit };
        let to = requester.as_ref().map(|(requester, _)| requester.to());
        let is_pending = to.is_some_and(|to| {
            let conn = self.connections.table.get_mut(to.conn);
            conn.is_some_and(|conn| conn.answers.replay_behind(to.token, recovered, own, credit))
        });
        if !is_pending {
            self.queue().report(own, credit);
        }
        if let Some((requester, _)) = requester {
            self.notes.answer(requester, Ok(()));
        }
        self.queues.recorded.replays.list(key);
    }

    /// Takes the history that was read for replays of this shard.
    pub(crate) fn take_history(&mut self) {
        let own = usize::from(self.turn.id.0);
        let Some(read) = self.queues.recorded.desk.as_ref().map(|desk| desk.take_read(own)) else { return };
        for (key, read) in read {
            self.turn.budget.visit(1);
            match read {
                Read::Portion(Some(portion)) => {
                    let is_end = portion.is_end && portion.blocks.is_empty();
                    let Some((replay, window)) = self.queues.recorded.replays.get_mut(key) else { continue };
                    let gone = replay.take(portion);
                    if let Some(first) = gone {
                        self.skip_gap(key, first);
                    } else if is_end && replay.next < window.next && window.find(replay.next).is_none() {
                        // It is not written yet.
                        self.turn.timers.set(self.turn.now_ms + RETRY_MS, Due::Replay(key));
                        continue;
                    }
                    self.queues.recorded.replays.list(key);
                }
                Read::Found(Some(found)) => {
                    let recorded = &mut self.queues.recorded;
                    let Some((replay, _)) = recorded.replays.get_mut(key) else { continue };
                    // Without one, it begins with what is not written yet.
                    let written = recorded.desk.as_ref().and_then(|desk| desk.catalog().extent(&replay.name));
                    let next = written.map_or(1, |extent| extent.next);
                    self.open_replay(key, found.unwrap_or(next), true);
                }
                Read::Portion(None) | Read::Found(None) => self.fail_replay(key, |name| {
                    let name = String::from_utf8_lossy(name);
                    let text = format!("the recording of '{name}' cannot be read: the disk has failed");
                    ProtocolError::new(Code::StoreIo, text)
                }),
            }
        }
    }

    /// Continues replays that may go on, as far as this part of the turn and memory allow.
    pub(crate) fn proceed_with_history(&mut self) {
        while !self.turn.budget.is_exhausted()
            && !must_wait_for_memory(self.turn, self.connections)
            && let Some(key) = self.queues.recorded.replays.next_listed()
        {
            self.turn.budget.visit(1);
            self.feed(key);
        }
    }

    /// Passes messages to the queue of a replay's subscription.
    fn feed(&mut self, key: SubscriptionKey) {
        let mut count = 0;
        let next = loop {
            match self.feed_one(key) {
                Next::On => count += 1,
                other => break other,
            }
            if count >= MESSAGES_MAX || self.turn.budget.is_exhausted() {
                break Next::Later;
            }
        };
        self.turn.budget.visit(count / 4);
        match next {
            Next::On | Next::Later => self.queues.recorded.replays.list(key),
            Next::Wait => {}
            Next::At(at_ms) => self.turn.timers.set(at_ms, Due::Replay(key)),
            Next::Gap(first) => {
                self.skip_gap(key, first);
                self.queues.recorded.replays.list(key);
            }
        }
    }

    fn feed_one(&mut self, key: SubscriptionKey) -> Next {
        let wall_ms = self.turn.wall_ms();
        let ends = self.queues.consumers.get(key).is_none_or(|consumer| consumer.ends);
        let recorded = &mut self.queues.recorded;
        let (Some(desk), Some((replay, window))) = (&recorded.desk, recorded.replays.get_mut(key)) else {
            return Next::Wait;
        };
        if replay.phase != Phase::Open || ends {
            return Next::Wait;
        }
        renew_lease(desk, replay, wall_ms);
        if !self.queues.home.has_room_for_replay(replay.queue) {
            if replay.wants_more(window) {
                ask(desk, self.turn.id, key, replay);
            }
            return Next::Wait;
        }
        let (options, queue, name) = (replay.options.clone(), replay.queue, Arc::clone(&replay.name));
        let (is_begun, next) = (replay.is_begun, replay.next);
        let owned = match replay.step(window) {
            Step::Wait => return Next::Wait,
            Step::Gap(first) => return Next::Gap(first),
            Step::Read => {
                if !replay.is_asked {
                    ask(desk, self.turn.id, key, replay);
                }
                return Next::Wait;
            }
            Step::Message(message, seq, epoch) => {
                let is_early = matches!(options.from, ReplayFrom::Time(from_ms) if message.time_ms < from_ms)
                    && !is_begun;
                let due_ms = message.time_ms.saturating_add(options.delay_ms);
                if options.is_behind_end(next, message.time_ms) {
                    replay.phase = Phase::Ended;
                    return Next::Wait;
                }
                if options.delay_ms > 0 && due_ms > wall_ms {
                    return Next::At(self.turn.now_ms.saturating_add(due_ms - wall_ms));
                }
                (!is_early).then(|| {
                    OwnedMessage::new(&Message {
                        destination: &name,
                        id: message.id,
                        sender: NOBODY,
                        headers: &numbered(seq, epoch, message.headers),
                        plain: message.plain,
                        expires_ms: 0,
                        body: message.body,
                    })
                })
            }
        };
        replay.advance();
        if let Some(mut owned) = owned {
            replay.is_begun = true;
            owned.owe();
            self.queues.home.enqueue(queue, owned);
            self.turn.budget.deliveries += 1;
        }
        Next::On
    }

    /// Messages that a replay wants are gone: it goes on behind them, or ends.
    fn skip_gap(&mut self, key: SubscriptionKey, first: u64) {
        let Some((replay, _)) = self.queues.recorded.replays.get_mut(key) else { return };
        let chooses = !replay.is_begun && !matches!(replay.options.from, ReplayFrom::Seq(_));
        if replay.options.skips_gaps || chooses {
            replay.skip_to(first);
        } else {
            let options = replay.options.clone();
            self.fail_replay(key, |name| gone(&options, name, first));
        }
    }

    /// Ends the connection of a replay that cannot go on.
    fn fail_replay(&mut self, key: SubscriptionKey, error: impl FnOnce(&[u8]) -> ProtocolError) {
        let Some((replay, _)) = self.queues.recorded.replays.get_mut(key) else { return };
        replay.phase = Phase::Ended;
        let (conn, error) = (replay.conn, error(&replay.name));
        if let Some((requester, offender)) = replay.requester.take() {
            return self.notes.answer(requester, Err((error, *offender)));
        }
        let subscription = self.router.subscription_mut(key).map(|found| found.id.to_vec());
        let offender = Offender { subscription, ..Offender::default() };
        self.connections.fail_with(self.turn, conn, error, &offender);
    }

    /// Ends the replay of a subscription that ends, if it has one.
    pub(crate) fn end_replay(&mut self, key: SubscriptionKey) {
        let Some((replay, is_last)) = self.queues.recorded.replays.remove(key) else { return };
        self.turn.timers.cancel(Due::Replay(key));
        if let Some((requester, _)) = replay.requester {
            self.notes.answer(requester, Ok(()));
        }
        if is_last {
            let home = self.router.home(&replay.name);
            self.notes.tell(home, RecordNote::Unwatch(replay.name));
        }
    }
}

/// Renews the lease of a replay, if it has one and some time has passed. Returns false if there are too many leases.
fn renew_lease(desk: &Desk, replay: &mut Replay, wall_ms: u64) -> bool {
    let (next, renewed_ms) = replay.leased;
    let Some(name) = replay.options.lease.as_ref().filter(|_| wall_ms >= renewed_ms + RENEWAL_MS) else {
        return true;
    };
    let (name, destination) = (name.clone(), Arc::clone(&replay.name));
    let lease = Lease { name, destination, next, expires_ms: wall_ms.saturating_add(LEASE_MS) };
    replay.leased = (replay.next, wall_ms);
    desk.catalog().set_lease(lease)
}

/// Asks for what a replay wants next.
fn ask(desk: &Desk, shard: ShardId, key: SubscriptionKey, replay: &mut Replay) {
    replay.is_asked = true;
    let question = Question::Read(replay.next, replay.place());
    desk.ask(Asked { shard: usize::from(shard.0), key, name: Arc::clone(&replay.name), question });
}

fn gone(options: &ReplayOptions, name: &[u8], first: u64) -> ProtocolError {
    let name = String::from_utf8_lossy(name);
    let wanted = match options.from {
        ReplayFrom::Seq(seq) => format!("seq={seq}"),
        _ => "what comes next".to_owned(),
    };
    let epoch = options.epoch.map_or(String::new(), |epoch| format!(" of epoch {epoch}"));
    let text = format!(
        "{wanted}{epoch} of '{name}' is not recorded any more; {first} is (on-gap:first begins there)"
    );
    ProtocolError::new(Code::ReplayGone, text)
}
