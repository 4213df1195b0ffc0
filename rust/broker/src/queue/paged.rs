//! A line in which some messages are stubs: only the store has these messages.
//!
//! ```text
//! head (loaded) ─ loading (requested) ─ stubs ─ Pending::fresh (loaded, the newest messages)      by place
//! ```
//! A message can be delivered when it is loaded and no stub has a lower place. A message waits in `Pending::returned`
//! if the store cannot take it, if it was delivered before, or if it is loaded before others with a lower place. A stub
//! whose message has expired leaves the line. Its message is loaded only to be sent to a dead-letter queue.

use std::collections::{BTreeMap, VecDeque};
use std::mem::{size_of, take};

use super::pending::Pending;
use super::stubs::Stubs;
use crate::collections::paged_deque::PagedDeque;
use crate::held;
use crate::ids::{NO_RECORD, RecordId};
use crate::message::OwnedMessage;

/// Approximate memory of a stub while its message is requested, in bytes.
const LOADING_BYTES: usize = size_of::<Stub>() + 16;

/// The part of a queue that is kept loaded, and is loaded before its consumers need it. A message is within the window
/// if both the number and the bytes of the messages before it are below these limits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    pub(super) messages: usize,
    pub(super) bytes: usize,
}

/// What stays loaded of each queue.
pub(super) const WINDOW: Window = Window { messages: 64, bytes: 256 << 10 };

/// What is loaded ahead of consumers that are waiting: an answer of the store may take as long as it takes to sync the disk.
pub(super) const WINDOW_WANTED: Window = Window { messages: 1024, ..WINDOW };

/// A stub: the data that a queue keeps of a message in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stub {
    /// Its record.
    pub record: RecordId,
    /// Its place.
    pub seq: u64,
    /// The time at which it expires; 0: never.
    pub expires_ms: u64,
    /// Its size.
    pub bytes: u32,
}

/// A message that was dropped from its line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Dropped {
    /// Its record.
    pub(super) record: RecordId,
    /// Whether it was a stub whose message had been requested.
    pub(super) was_requested: bool,
}

impl Dropped {
    fn loaded(message: &OwnedMessage) -> Self {
        Dropped { record: message.record, was_requested: false }
    }
}

/// The part of a line before the newest messages.
#[derive(Debug, Default)]
pub struct Paged {
    pub(super) head: PagedDeque<OwnedMessage>,
    pub(super) head_bytes: usize,
    /// Requested stubs by place. An expired one may have a higher place than some in `stubs`.
    pub(super) loading: BTreeMap<u64, Stub>,
    pub(super) loading_bytes: usize,
    pub(super) stubs: Stubs,
    /// Stubs whose messages have expired; they are no longer in the line.
    pub(super) expired: VecDeque<Stub>,
    /// The bytes of stubs in the count of held bytes.
    pub(super) counted: i64,
}

impl Drop for Paged {
    fn drop(&mut self) {
        held::add(-self.counted);
    }
}

impl Paged {
    pub(super) fn len(&self) -> usize {
        self.head.len() + self.stubs()
    }

    fn stubs(&self) -> usize {
        self.loading.len() + self.stubs.len() + self.expired.len()
    }

    /// The place of the first message of the line that is not loaded.
    fn first_unloaded(&self) -> Option<u64> {
        let loading = self.loading.keys().next().copied();
        loading.into_iter().chain(self.stubs.front().map(|stub| stub.seq)).min()
    }

    /// The highest place.
    pub(super) fn last_place(&self) -> Option<u64> {
        let loaded = self.head.back().map(|message| message.seq);
        let loading = self.loading.keys().next_back().copied();
        self.stubs.back().map(|stub| stub.seq).into_iter().chain(loading).chain(loaded).max()
    }

    /// Updates the count of held bytes.
    fn count(&mut self) {
        let held = self.stub_bytes();
        if held != self.counted {
            held::add(held - self.counted);
            self.counted = held;
        }
    }

    pub(super) fn stub_bytes(&self) -> i64 {
        let expired = self.expired.capacity() * size_of::<Stub>();
        (self.stubs.bytes() + expired + self.loading.len() * LOADING_BYTES) as i64
    }

    fn push_head(&mut self, message: OwnedMessage) {
        self.head_bytes += message.size();
        self.head.push_back(message);
    }

    fn pop_head(&mut self) -> Option<OwnedMessage> {
        let message = self.head.pop_front()?;
        self.head_bytes -= message.size();
        Some(message)
    }

    pub(super) fn remove_head(&mut self, seq: u64) -> Option<OwnedMessage> {
        let message = self.head.remove_key(&seq, |message| message.seq)?;
        self.head_bytes -= message.size();
        Some(message)
    }

    /// Whether a message is within the window. `before` others are before it, and so are all loaded or requested bytes.
    fn has_room(&self, before: usize, window: Window) -> bool {
        before < window.messages && self.head_bytes + self.loading_bytes < window.bytes
    }

    fn take_loading(&mut self, seq: u64) -> Option<Stub> {
        let stub = self.loading.remove(&seq)?;
        self.loading_bytes -= stub.bytes as usize;
        Some(stub)
    }

    /// Removes the first stub; expired ones come last.
    fn take_stub(&mut self) -> Option<Stub> {
        match self.loading.keys().next().copied() {
            Some(first) => self.take_loading(first),
            None => self.stubs.pop_front().or_else(|| self.expired.pop_front()),
        }
    }
}

impl Pending {
    /// Whether a part of the line is not loaded.
    #[must_use]
    pub fn is_paged(&self) -> bool {
        self.paged.is_some()
    }

    /// The number of messages that are stubs.
    #[must_use]
    pub fn stubs(&self) -> usize {
        self.paged.as_ref().map_or(0, |paged| paged.stubs())
    }

    /// The list that has the next message to deliver.
    fn next_in_paged(&self, paged: &Paged) -> Option<Side> {
        let (line, side) = match (paged.head.front(), paged.first_unloaded()) {
            (Some(first), unloaded) if unloaded.is_none_or(|unloaded| first.seq < unloaded) => {
                (Some(first.seq), Some(Side::Head))
            }
            (_, Some(unloaded)) => (Some(unloaded), None),
            (_, None) => (self.fresh.front().map(|first| first.seq), Some(Side::Fresh)),
        };
        match (self.returned.first_key_value(), line) {
            (Some((returned, _)), Some(line)) if *returned < line => Some(Side::Returned),
            (Some(_), None) => Some(Side::Returned),
            (_, None) => None,
            _ => side,
        }
    }

    #[cold]
    pub(super) fn first_of_paged<'a>(&'a self, paged: &'a Paged) -> Option<&'a OwnedMessage> {
        match self.next_in_paged(paged)? {
            Side::Returned => self.returned.first_key_value().map(|(_, message)| message),
            Side::Head => paged.head.front(),
            Side::Fresh => self.fresh.front(),
        }
    }

    #[cold]
    pub(super) fn pop_of_paged(&mut self) -> Option<OwnedMessage> {
        let side = self.next_in_paged(self.paged.as_deref()?)?;
        let message = match side {
            Side::Returned => self.returned.pop_first()?.1,
            Side::Head => self.paged.as_deref_mut()?.pop_head()?,
            Side::Fresh => self.fresh.pop_front()?,
        };
        self.forget(&message);
        self.close_gap();
        Some(message)
    }

    /// Converts a paged line to an ordinary one if no stub is left, and its first or its last part is empty.
    pub(super) fn close_gap(&mut self) {
        let Some(paged) = self.paged.as_deref_mut() else { return };
        if paged.stubs() > 0 {
            return paged.count();
        }
        if self.fresh.is_empty() {
            self.fresh = take(&mut paged.head);
        } else if !paged.head.is_empty() {
            return paged.count();
        }
        self.paged = None;
    }

    /// Replaces messages behind the window with stubs. A message for which `page_out` returns no record stays loaded,
    /// in `Pending::returned`. Takes out at most `messages_max` messages, and returns their number.
    pub(super) fn page_out(
        &mut self,
        window: Window,
        messages_max: usize,
        mut page_out: impl FnMut(&OwnedMessage) -> RecordId,
    ) -> usize {
        if self.paged.is_none() && self.fresh.len() <= window.messages && self.bytes <= window.bytes {
            return 0;
        }
        let paged = self.paged.get_or_insert_default();
        let mut taken = 0;
        while taken < messages_max
            && let Some(message) = self.fresh.pop_front()
        {
            if paged.first_unloaded().is_none() && paged.has_room(paged.head.len(), window) {
                paged.push_head(message);
                continue;
            }
            taken += 1;
            let bytes = u32::try_from(message.size()).ok().filter(|_| message.deliveries == 0);
            let record = bytes.map_or(NO_RECORD, |_| page_out(&message));
            match bytes {
                Some(bytes) if record != NO_RECORD => {
                    let (seq, expires_ms) = (message.seq, message.expires_ms);
                    paged.stubs.push_back(Stub { record, seq, expires_ms, bytes });
                }
                _ => _ = self.returned.insert(message.seq, message),
            }
        }
        self.close_gap();
        taken
    }

    /// Adds a message that only the store has, behind all others.
    pub(super) fn restore(&mut self, stub: Stub) {
        self.bytes += stub.bytes as usize;
        if stub.expires_ms != 0 {
            self.expiring.insert((stub.expires_ms, stub.seq));
        }
        let paged = self.paged.get_or_insert_default();
        paged.stubs.push_back(stub);
        paged.count();
    }

    /// Removes and returns the next stub whose message is to be requested now. Even without a window, one that has expired is.
    pub(super) fn load_next(&mut self, window: Window) -> Option<Stub> {
        let paged = self.paged.as_deref_mut()?;
        let loading = paged.loading.len();
        let stub = match paged.stubs.front() {
            _ if !paged.expired.is_empty() => {
                let is_free = loading < window.messages.max(1) && paged.loading_bytes < window.bytes;
                is_free.then(|| paged.expired.pop_front())?
            }
            Some(first) => {
                let beside = self.returned.range(..first.seq).take(window.messages).count();
                let before = paged.head.len() + beside + loading;
                paged.has_room(before, window).then(|| paged.stubs.pop_front())?
            }
            None => None,
        }?;
        paged.loading_bytes += stub.bytes as usize;
        paged.loading.insert(stub.seq, stub);
        paged.count();
        Some(stub)
    }

    /// Removes the stub at a place from the line, because its message has expired.
    pub(super) fn expire_stub(&mut self, seq: u64) {
        if let Some(paged) = self.paged.as_deref_mut()
            && let Some(stub) = paged.stubs.remove(seq)
        {
            paged.expired.push_back(stub);
            paged.count();
        }
    }

    /// Drops a stub whose message has expired. Returns its record.
    pub(super) fn drop_expired_stub(&mut self) -> Option<RecordId> {
        let stub = self.paged.as_deref_mut()?.expired.pop_front()?;
        Some(self.drop_stub(stub))
    }

    fn drop_stub(&mut self, stub: Stub) -> RecordId {
        self.bytes -= stub.bytes as usize;
        if stub.expires_ms != 0 {
            self.expiring.remove(&(stub.expires_ms, stub.seq));
        }
        self.close_gap();
        stub.record
    }

    /// Puts a requested message at its place; `None` means that it cannot be read. Returns whether the stub still
    /// existed.
    pub(super) fn arrive(&mut self, seq: u64, loaded: Option<OwnedMessage>) -> bool {
        let Some(paged) = self.paged.as_deref_mut() else { return false };
        let Some(stub) = paged.take_loading(seq) else { return false };
        match loaded {
            None => _ = self.drop_stub(stub),
            Some(mut message) => {
                (message.seq, message.expires_ms) = (seq, stub.expires_ms);
                // An expired message may arrive behind messages that were placed in the meantime.
                let is_behind_head = paged.head.back().is_none_or(|last| last.seq < seq)
                    && self.fresh.front().is_none_or(|first| first.seq > seq);
                self.bytes -= stub.bytes as usize;
                self.bytes += message.size();
                if stub.expires_ms != 0 {
                    self.expiring.insert((stub.expires_ms, seq));
                }
                match is_behind_head && paged.first_unloaded().is_none_or(|unloaded| seq < unloaded) {
                    true => paged.push_head(message),
                    false => _ = self.returned.insert(seq, message),
                }
                self.close_gap();
            }
        }
        true
    }

    /// Drops the next message, loaded or not.
    pub(super) fn drop_next(&mut self) -> Option<Dropped> {
        if let Some(message) = self.pop() {
            return Some(Dropped::loaded(&message));
        }
        let paged = self.paged.as_deref_mut()?;
        let was_requested = !paged.loading.is_empty();
        let stub = paged.take_stub()?;
        Some(Dropped { record: self.drop_stub(stub), was_requested })
    }

    /// Drops any message, delayed ones last.
    pub(super) fn drop_any(&mut self) -> Option<Dropped> {
        self.drop_next().or_else(|| self.pop_any().map(|message| Dropped::loaded(&message)))
    }
}

/// A list of loaded messages.
#[derive(Clone, Copy, Debug)]
enum Side {
    Returned,
    Head,
    Fresh,
}

#[cfg(test)]
#[path = "paged_tests.rs"]
mod tests;
