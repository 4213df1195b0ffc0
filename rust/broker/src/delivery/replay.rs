//! Requests and receives windows of stale and retained messages for new subscriptions.
//!
//! ```text
//! home: replay ──messages of one window──► subscription's queue ──► outbox
//!         ▲  └──ReplayPause: there is more──► its connection: waiting to ask
//!         └──────More: there is room────────────────┘
//! ```
//! A home sends no more than one window before the connection's outbox has room for the next. When a subscription
//! ends, its replays end ([`ReplayNote::Stop`]), also those that wait for memory, and pending requests are answered. They
//! are also answered when a replay cannot continue before its client acknowledges something ([`ReplayNote::Unacked`]): a
//! RECEIPT never waits for an ACK, since the ACK may come after it, or be impossible after DISCONNECT. It waits for memory
//! only while consumers are owed a relevant part of it: the messages of the replay itself may be what fills it.

use super::Owners;
use super::memory::must_wait_for_memory;
use crate::ids::{ConnKey, ShardId};
use crate::ids::{Subscriber, SubscriptionKey};
use crate::queue::consumer_state::InitialReplay;
use crate::queue::mail::ReplayNote;
use crate::queue::replay::WINDOW_BYTES;
use crate::queue::types::Queue;

/// Subscriptions of one connection that are checked for room in one turn.
const ASKED_MAX: usize = 64;
/// The maximum of pending windows of one connection: they are encoded when they come.
const WINDOWS_MAX: usize = 8;

impl Owners<'_> {
    /// Records that a home has more messages for a new subscription.
    pub(super) fn replay_paused(&mut self, home: ShardId, key: SubscriptionKey) {
        let subscriber = Subscriber { shard: self.turn.id, key };
        let Some(conn) = self.router.subscription_mut(key).map(|found| found.conn) else {
            return self.queue().tell(home, ReplayNote::Stop(subscriber));
        };
        if conn == ConnKey::NONE {
            return self.queue().tell(home, ReplayNote::More(subscriber)); // a durable subscription keeps all messages
        }
        self.window_has_come(home, key);
        if let Some(initial_replay) = self.initial_replay(key) {
            initial_replay.listed |= home.bit();
            if let Some(conn) = self.connections.table.get_mut(conn) {
                conn.pulls.get_or_insert_default().requests.push_back((key, home));
            }
        }
        self.pull_replay(conn);
    }

    fn initial_replay(&mut self, key: SubscriptionKey) -> Option<&mut InitialReplay> {
        self.queues.consumers.get_mut(key)?.initial_replay.as_mut()
    }

    /// Records that a requested window has come.
    pub fn window_has_come(&mut self, home: ShardId, key: SubscriptionKey) {
        let Some(consumer) = self.queues.consumers.get_mut(key) else { return };
        let Some(initial_replay) = &mut consumer.initial_replay else { return };
        let asked = initial_replay.asked & home.bit() != 0;
        initial_replay.asked &= !home.bit();
        if asked
            && let Some(pulls) =
                self.connections.table.get_mut(consumer.conn).and_then(|conn| conn.pulls.as_mut())
        {
            pulls.windows = pulls.windows.saturating_sub(1);
        }
    }

    /// Requests more windows from homes, as far as a connection has room, after a change.
    pub fn pull_replay(&mut self, key: ConnKey) {
        if let Some(pulls) = self.connections.table.get_mut(key).and_then(|conn| conn.pulls.as_mut()) {
            pulls.unexamined = pulls.requests.len();
            self.pull_some(key);
        }
    }

    /// Does the same for some of its subscriptions; the others follow later.
    fn pull_some(&mut self, key: ConnKey) {
        let limit = self.turn.config.outbox_limit;
        if must_wait_for_memory(self.turn, self.connections) {
            if let Some(pulls) = self.connections.table.get_mut(key).and_then(|conn| conn.pulls.as_mut())
                && !pulls.is_listed
            {
                pulls.is_listed = true;
                self.queues.replays.short_of_memory.push(key);
            }
            return;
        }
        for _ in 0..ASKED_MAX {
            let Some(conn) = self.connections.table.get_mut(key) else { return };
            let Some(pulls) = &mut conn.pulls else { return };
            let waiting = conn.output.outbox.bytes() + pulls.windows * WINDOW_BYTES;
            let has_room =
                pulls.windows < WINDOWS_MAX && (waiting + WINDOW_BYTES <= limit / 2 || waiting <= limit / 64);
            if !has_room
                || conn.output.deferred.is_some()
                || (pulls.unexamined == 0 && !pulls.requests.is_empty())
            {
                return;
            }
            let Some((subscription, home)) = pulls.requests.pop_front() else {
                if pulls.windows == 0 {
                    conn.pulls = None;
                }
                return;
            };
            pulls.unexamined -= 1;
            if conn.output.outbox.is_empty() {
                conn.output.stuck_since_ms = self.turn.now_ms; // its consumer has something to read from now on
            }
            self.turn.budget.visit(1);
            self.pull(key, subscription, home);
        }
        if let Some(pulls) = self.connections.table.get_mut(key).and_then(|conn| conn.pulls.as_mut())
            && pulls.unexamined > 0
            && !pulls.is_listed
        {
            pulls.is_listed = true;
            self.queues.replays.pulling.push_back(key);
        }
    }

    /// Requests one window from one home for one subscription, unless that has not consumed the messages it has.
    fn pull(&mut self, key: ConnKey, subscription: SubscriptionKey, home: ShardId) {
        let subscriber = Subscriber { shard: self.turn.id, key: subscription };
        if self.router.subscription_mut(subscription).is_none() {
            if let Some(pulls) = self.connections.table.get_mut(key).and_then(|conn| conn.pulls.as_mut()) {
                pulls.gone = pulls.gone.saturating_sub(1);
            }
            return; // the home was told when it ended
        }
        let consumer = self.queues.consumers.get_mut(subscription);
        let Some((bytes_on_ack, initial_replay, queue)) =
            consumer.and_then(|it| Some((it.bytes_on_ack, it.initial_replay.as_mut()?, it.own_queue?)))
        else {
            return;
        };
        if self.queues.home.queue(queue).is_some_and(Queue::has_first) {
            let is_news = initial_replay.told & home.bit() == 0
                && self.queues.home.waits_for_ack(subscriber, bytes_on_ack);
            initial_replay.told |= if is_news { home.bit() } else { 0 };
            if let Some(pulls) = self.connections.table.get_mut(key).and_then(|conn| conn.pulls.as_mut()) {
                pulls.requests.push_back((subscription, home));
            }
            if is_news {
                self.queue().tell(home, ReplayNote::Unacked(subscriber));
            }
            return;
        }
        initial_replay.asked |= home.bit();
        initial_replay.listed &= !home.bit();
        if let Some(pulls) = self.connections.table.get_mut(key).and_then(|conn| conn.pulls.as_mut()) {
            pulls.windows += 1;
        }
        self.queue().tell(home, ReplayNote::More(subscriber));
    }

    /// Continues requests for windows that were left, or that waited for memory.
    pub fn pull_again(&mut self) {
        if !must_wait_for_memory(self.turn, self.connections) {
            // None of them has been retried since.
            self.queues.replays.pulling.extend(self.queues.replays.short_of_memory.drain(..));
        }
        for _ in 0..self.queues.replays.pulling.len() {
            if self.turn.budget.is_exhausted() {
                break;
            }
            self.turn.budget.visit(1);
            let Some(key) = self.queues.replays.pulling.pop_front() else { break };
            if let Some(pulls) = self.connections.table.get_mut(key).and_then(|conn| conn.pulls.as_mut()) {
                pulls.is_listed = false;
                self.pull_some(key);
            }
        }
    }

    /// Removes the requests of an ended subscription: all homes are told if any may have more for it, and its windows are
    /// not awaited any more.
    pub fn forget_pulls_of(&mut self, conn: ConnKey, key: SubscriptionKey) {
        for home in (0..self.turn.shards).map(|at| ShardId(at as u8)) {
            self.window_has_come(home, key);
        }
        self.pull_soon(conn); // other subscriptions have waited for these windows
        let listed = self.initial_replay(key).map(|found| std::mem::take(&mut found.listed));
        if listed.is_some() {
            for home in (0..self.turn.shards).map(|at| ShardId(at as u8)) {
                let subscriber = Subscriber { shard: self.turn.id, key };
                self.queue().tell(home, ReplayNote::Stop(subscriber));
            }
        }
        let Some(pulls) = self.connections.table.get_mut(conn).and_then(|conn| conn.pulls.as_mut()) else {
            return;
        };
        pulls.gone += listed.unwrap_or_default().count_ones() as usize;
        if 2 * pulls.gone < pulls.requests.len() || pulls.gone == 0 {
            return; // otherwise each of many consecutive ends would walk the list
        }
        self.turn.budget.visit(pulls.requests.len());
        let router = &mut self.router;
        pulls.requests.retain(|(other, _)| *other != key && router.subscription_mut(*other).is_some());
        pulls.gone = 0;
        pulls.unexamined = pulls.unexamined.min(pulls.requests.len());
    }
}
