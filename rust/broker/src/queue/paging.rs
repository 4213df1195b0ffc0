//! Queues whose messages are partly in the store: the newest messages of a line are paged out while much memory is
//! used, and are loaded again before they are delivered.
//!
//! A queue keeps a window of messages loaded at its front ([`Window`]), a longer one while consumers wait for them.
//! When it is dispatched, it requests the missing messages of the window. While the next message is not loaded, the
//! queue waits and others are dispatched; an answer of the store makes it ready again. If a requested message is
//! dropped before the answer comes, its answer is ignored. If its queue is removed, but its turn to be dropped comes
//! after the answer, the answer has ended its record.
//!
//! Messages in flight stay in memory, too. At 95 % of `memory_limit`, what was requested included, a queue therefore
//! requests one message at a time, when none of its messages is in flight; and one that has expired. All queues of a home
//! together request little more than one window then; the others wait in line. Below 90 % all load ahead again.
//! Messages that come to a queue meanwhile, mostly those that have expired in another one, are paged out at once, except one
//! when none is in flight. Else a consumer of dead letters that does not acknowledge would fill memory without end.
//!
//! A message whose stub expires is forgotten without being loaded, unless it goes to a dead-letter queue. A message
//! that the store cannot read is counted as dropped and logged, and later messages are delivered. The store is not told
//! to forget its record.
//!
//! Messages that were delivered before stay in memory. So do messages of a worker topic, because they leave it with its
//! last consumer, and messages of a queue with a [`Pick`](super::pick::Pick).

use std::collections::VecDeque;

use super::home::Home;
use super::paged::{Dropped, WINDOW, WINDOW_WANTED, Window};
use super::types::{Effect, Queue};
use super::{Owners, QueueKind};
use crate::collections::spread::{Map, give_back};
use crate::door::{planted, turn_divisor};
use crate::ids::{NO_RECORD, QueueKey, RecordId};
use crate::log::Level;
use crate::message::OwnedMessage;
use crate::store::Unreadable;

/// The maximum number of messages that are paged out in one turn.
#[inline(always)]
fn paged_at_once() -> usize {
    (1024 / turn_divisor()).max(1)
}

/// The maximum number of messages of one queue that are paged out before another queue is visited.
const PORTION: usize = 256;

/// The maximum number of queues that are visited in one turn.
#[inline(always)]
fn looks_max() -> usize {
    (256 / turn_divisor()).max(1)
}

/// The maximum number of loaded messages that are taken from the store in one turn.
#[inline(always)]
fn loaded_at_once() -> usize {
    (1024 / turn_divisor()).max(1)
}

/// The number of queues that are let to request a message in one turn while memory is full.
const LOADING_AT_ONCE: usize = 16;

/// The state of paging at one home.
#[derive(Debug)]
pub(super) struct Paging {
    /// Whether the store can load messages.
    is_on: bool,
    pub(super) window: Window,
    /// The window of a queue with consumers that are waiting.
    wanted: Window,
    /// Nothing is to be loaded ahead, because memory is full.
    is_full: bool,
    /// The bytes that may be requested in this turn before memory counts as full.
    room: i64,
    /// The messages that were requested.
    requested: Map<RecordId, Requested>,
    pub(super) requested_bytes: usize,
    /// Queues that request a message once fewer are requested.
    pub(super) waiting: VecDeque<QueueKey>,
    /// Whether the store may have more answers now.
    has_more: bool,
    /// The slot of the queue that is visited next.
    next: usize,
    /// The slots that were visited since the last message was paged out. If all were visited, paging out alone causes
    /// no further turn.
    unproductive: usize,
}

/// A message that was requested.
#[derive(Clone, Copy, Debug)]
struct Requested {
    /// Its queue and its place; `None`: it was dropped meanwhile.
    place: Option<(QueueKey, u64)>,
    bytes: usize,
}

impl Paging {
    /// The initial state; `is_on`: the store can load messages.
    pub(super) fn new(is_on: bool) -> Self {
        Paging {
            is_on,
            window: WINDOW,
            wanted: WINDOW_WANTED,
            is_full: false,
            room: i64::MAX,
            requested: Map::default(),
            requested_bytes: 0,
            waiting: VecDeque::new(),
            has_more: false,
            next: 0,
            unproductive: 0,
        }
    }

    /// Sets whether the store can load messages.
    pub(super) fn turn_on(&mut self, is_on: bool) {
        self.is_on = is_on;
    }

    /// Whether a queue may request a message, at least one.
    fn has_room(&self) -> bool {
        !self.is_full || self.requested_bytes < self.window.bytes
    }

    /// The bytes of all requested messages.
    #[cfg(any(test, simulated))]
    pub(super) fn bytes_of_requested(&self) -> usize {
        self.requested.values().map(|requested| requested.bytes).sum()
    }
}

impl Home {
    /// Whether [`Owners::proceed_with_paging`] has work to do; `pages_out`: much memory is used.
    #[must_use]
    pub fn has_paging_work(&self, pages_out: bool) -> bool {
        self.paging.has_more
            || (!self.paging.waiting.is_empty() && self.paging.has_room())
            || (pages_out && self.paging.is_on && self.paging.unproductive < self.queues.slots())
    }

    /// The number of stubs.
    #[cfg(test)]
    pub fn stubs(&self) -> usize {
        self.iter().map(|queue| queue.pending.stubs()).sum()
    }

    /// Pages out some of the newest messages of queues.
    pub(super) fn page_out(&mut self) {
        let slots = self.queues.slots();
        let (mut left, mut looks) = (paged_at_once(), slots.min(looks_max()));
        while left > 0 && looks > 0 {
            looks -= 1;
            let at = if self.paging.next < slots { self.paging.next } else { 0 };
            self.paging.next = at + 1;
            let portion = left.min(PORTION);
            let window = self.paging.window;
            let done = self.queues.key_at(at).map_or(0, |key| self.page_out_of(key, window, portion));
            self.paging.unproductive = if done > 0 { 0 } else { self.paging.unproductive + 1 };
            left -= done;
            self.visited += 1 + done;
        }
    }

    /// Whether memory is full, so that a queue loads a message only when none is in flight.
    #[inline]
    pub(super) fn loads_one_at_a_time(&self) -> bool {
        self.paging.is_full && self.paging.is_on
    }

    /// Pages out what has come to a queue while memory is full, as far as it would not be loaded now.
    #[cold]
    pub(super) fn page_out_arrivals(&mut self, key: QueueKey) {
        let is_busy = self.queues.get(key).is_some_and(|queue| queue.in_flight > 0);
        let window = Window { messages: usize::from(!is_busy), ..self.paging.window };
        self.visited += self.page_out_of(key, window, PORTION);
    }

    fn page_out_of(&mut self, key: QueueKey, window: Window, messages_max: usize) -> usize {
        if !self.store.has_room_to_page() {
            return 0;
        }
        let pages = |queue: &&mut Queue| queue.kind != QueueKind::Worker && queue.picking.is_none();
        let Some(queue) = self.queues.get_mut(key).filter(pages) else { return 0 };
        let (store, name, now_ms) = (&mut self.store, &queue.name, self.now_ms);
        // An expired message is about to leave: it would be loaded again at once.
        let page_out = |message: &OwnedMessage| match message.is_expired(now_ms) {
            true => NO_RECORD,
            false => store.page_out(name, message),
        };
        let done = queue.pending.page_out(window, messages_max, page_out);
        queue.is_special |= queue.pending.is_paged();
        done
    }

    /// Requests the missing messages at the front of a queue; the store's answer makes the queue ready again.
    #[cold]
    pub(super) fn load_missing(&mut self, key: QueueKey) {
        self.read_ahead(key);
        if let Some(queue) = self.queues.get_mut(key) {
            queue.is_special = queue.pending.is_paged();
        }
    }

    /// Requests the missing messages of a queue's window, and handles expired stubs.
    pub(super) fn read_ahead(&mut self, key: QueueKey) {
        let Some(queue) = self.queues.get_mut(key) else { return };
        if !queue.is_dead_lettered() {
            while let Some(record) = queue.pending.drop_expired_stub() {
                self.counts.expired += 1;
                self.store.forget(record);
            }
        }
        let paging = &mut self.paging;
        loop {
            if !paging.has_room() {
                if queue.pending.is_paged() && !std::mem::replace(&mut queue.waits_to_load, true) {
                    paging.waiting.push_back(key);
                }
                return;
            }
            let mut window = if queue.ready.is_empty() { paging.window } else { paging.wanted };
            if paging.is_full {
                window.messages = usize::from(queue.in_flight == 0);
            }
            let Some(stub) = queue.pending.load_next(window) else { return };
            self.visited += 1;
            let bytes = stub.bytes as usize;
            paging.requested_bytes += bytes;
            paging.room = paging.room.saturating_sub_unsigned(bytes as u64);
            paging.is_full |= paging.room <= 0;
            paging.requested.insert(stub.record, Requested { place: Some((key, stub.seq)), bytes });
            self.store.load(stub.record);
        }
    }

    /// Notes how much memory is held: an equal share of what is left may be requested. Memory is full at 95 %, and until less
    /// than 90 % is held, so that the state does not flap: at its end all queues load ahead again.
    pub(super) fn note_memory(&mut self, held: i64, limit: i64, shards: usize) {
        let shards = i64::try_from(shards).unwrap_or(i64::MAX);
        let requested = i64::try_from(self.paging.requested_bytes).unwrap_or(i64::MAX);
        let left_below = |percent| (limit / 100 * percent - held) / shards - requested;
        let was_full = self.paging.is_full;
        self.paging.room = left_below(95);
        self.paging.is_full = left_below(if was_full { 90 } else { 95 }) <= 0;
        if was_full && !self.paging.is_full {
            self.sweep_all();
        }
    }

    /// Lets queues that waited request messages, as many as may find room.
    pub(super) fn let_load(&mut self) {
        let mut left = if self.paging.is_full { LOADING_AT_ONCE } else { looks_max() };
        while left > 0
            && self.paging.has_room()
            && let Some(key) = self.paging.waiting.pop_front()
        {
            (left, self.visited) = (left - 1, self.visited + 1);
            if let Some(queue) = self.queues.get_mut(key) {
                queue.waits_to_load = false;
                self.mark_ready(key);
            }
        }
    }

    /// Takes the messages that the store has loaded.
    pub(super) fn take_loaded(&mut self) {
        self.paging.has_more = false;
        for _ in 0..loaded_at_once() {
            let Some((record, loaded)) = self.store.loaded() else {
                return give_back(&mut self.paging.requested);
            };
            self.visited += 1;
            let Some(Requested { place, bytes }) = self.paging.requested.remove(&record) else { continue };
            self.paging.requested_bytes -= bytes;
            if let Some((key, seq)) = place {
                self.arrive(key, seq, record, loaded);
            }
        }
        self.paging.has_more = true;
    }

    fn arrive(
        &mut self,
        key: QueueKey,
        seq: u64,
        record: RecordId,
        loaded: Result<OwnedMessage, Unreadable>,
    ) {
        let Some(queue) = self.queues.get_mut(key) else {
            return self.store.forget(loaded.map_or(record, |message| message.record));
        };
        let is_unreadable = loaded.is_err();
        if queue.pending.arrive(seq, loaded.ok()) && is_unreadable {
            self.counts.dropped += 1;
            self.effects.push(Effect::Unreadable(key, record));
        }
        if !planted!("loaded-not-ready") {
            self.mark_ready(key);
        }
        if self.queues.get(key).is_some_and(Queue::is_idle) {
            self.became_idle(key);
        } else {
            self.rearm(key);
        }
    }

    /// Tells the store that a message was dropped from its line.
    pub(super) fn forget_dropped(&mut self, dropped: Dropped) {
        if dropped.was_requested {
            let Some(requested) = self.paging.requested.get_mut(&dropped.record) else { return };
            requested.place = None;
        }
        self.store.forget(dropped.record);
    }

    /// Replaces the store of a home without messages.
    #[cfg(test)]
    pub fn use_store(&mut self, store: Box<dyn crate::store::Store>) {
        self.replace_store(store, crate::door::HashMap::default());
    }

    /// Sets the limits of the messages that stay loaded at the front of each queue.
    #[cfg(any(test, simulated))]
    pub fn set_window(&mut self, messages: usize, bytes: usize) {
        self.paging.window = Window { messages, bytes };
        self.paging.wanted = self.paging.window;
    }

    /// The messages that were requested and have not been answered.
    #[cfg(test)]
    pub fn requested(&self) -> usize {
        self.paging.requested.len()
    }
}

impl Owners<'_> {
    /// Takes the messages that the store has loaded, and pages out others while much memory is held. Does nothing if the store
    /// cannot load messages.
    #[inline]
    pub(crate) fn proceed_with_paging(&mut self) {
        if self.queues.home.paging.is_on {
            self.page();
        }
    }

    /// Logs that the store cannot read a message.
    #[cold]
    pub(super) fn note_unreadable(&mut self, queue: QueueKey, record: RecordId) {
        let name =
            self.queues.home.queue(queue).map(|queue| String::from_utf8_lossy(&queue.name).into_owned());
        self.turn.log(Level::Error, || {
            let name = name.unwrap_or_default();
            format!("the store cannot read record {record}: a message of '{name}' is dropped")
        });
    }

    fn page(&mut self) {
        let (held, limit) = (self.turn.held_bytes(), self.turn.memory_limit());
        self.queues.home.note_memory(held, limit, self.turn.shards);
        self.queues.home.take_loaded();
        self.queues.home.let_load();
        if self.turn.memory.is_paging {
            self.queues.home.page_out();
        }
        self.count_visits();
    }
}

#[cfg(test)]
#[path = "paging_tests.rs"]
mod tests;
