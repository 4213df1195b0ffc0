//! What the store has kept from an earlier process: queues, durable subscriptions and retained messages return to their homes.
//! Queues return as stubs, whose messages are loaded when their turn comes. Until all homes have everything, nobody logs in.
//!
//! Durable subscriptions and retained messages are kept as messages of two queues that nobody can name: so the store needs
//! to know no more than messages.

use std::sync::Arc;
use std::vec;

use stompica_proto::Version;
use stompica_proto::encode::Message;
use stompica_proto::session::AckMode;

use super::durable::Binding;
use super::home::Home;
use super::notes::Local;
pub use super::paged::Stub;
use super::types::FIRST_SEQ;
use super::{Owners, QueueKind};
use crate::door::sync::{AtomicUsize, Ordering};
use crate::door::{HashMap, planted};
use crate::ids::{ConnKey, NO_RECORD, QueueKey, RecordId};
use crate::log::Level;
use crate::message::OwnedMessage;
use crate::router::group::{Framing, WireFormat};
use crate::store::handle::Handle;
use crate::store::{Counts, Store};
use crate::turn::jobs::Job;

/// How names of queues of durable subscriptions begin.
pub const DURABLE: &[u8] = b"durable\n";

/// The message id of the definition of a durable subscription that several may hold.
const SHARED: &[u8] = b"shared";

/// How the header begins that names the first record of a durable subscription.
const SINCE: &[u8] = b"since:";

/// The definition of a durable subscription as a message. `since`: its messages have larger records; [`NO_RECORD`]: larger than
/// that of the definition.
pub(super) fn definition(name: &[u8], topic: &[u8], shared: bool, since: RecordId) -> OwnedMessage {
    let id = if shared { SHARED } else { b"" };
    let headers = if since == NO_RECORD { Vec::new() } else { since_header(since) };
    let message = Message {
        destination: topic,
        id,
        sender: 0,
        headers: &headers,
        plain: true,
        expires_ms: 0,
        body: name,
    };
    let mut owned = OwnedMessage::new(&message);
    owned.persistent = true;
    owned
}

/// The header of a definition by which messages with smaller records do not belong to it.
#[must_use]
pub fn since_header(since: RecordId) -> Vec<u8> {
    [SINCE, since.to_string().as_bytes(), b"\n"].concat()
}

/// The first record of the durable subscription whose definition has these headers and this record.
#[must_use]
pub fn since_of(headers: &[u8], record: RecordId) -> RecordId {
    let header = headers.strip_prefix(SINCE).and_then(|rest| rest.strip_suffix(b"\n"));
    header.and_then(|number| str::from_utf8(number).ok()?.parse().ok()).unwrap_or(record)
}

/// A queue and the messages in it, in order.
pub type Line = (Box<[u8]>, Vec<Stub>);

/// The homes that have not everything yet.
#[derive(Debug)]
pub struct Restoring {
    left: AtomicUsize,
}

impl Restoring {
    /// So many homes have to get something.
    #[must_use]
    pub fn new(homes: usize) -> Arc<Self> {
        Arc::new(Restoring { left: AtomicUsize::new(homes) })
    }

    /// One of them has everything. Returns whether it was the last one.
    pub fn is_last(&self) -> bool {
        self.left.fetch_sub(1, Ordering::AcqRel) == 1
    }
}

/// What one home gets.
#[derive(Debug)]
pub struct Share {
    /// Its store.
    pub store: Box<dyn Store>,
    /// How often messages were delivered, of those that were.
    pub counts: HashMap<RecordId, Counts>,
    /// Definitions of durable subscriptions, in the order of their records.
    pub definitions: Vec<OwnedMessage>,
    /// Retained messages, in the order of their records.
    pub retained: Vec<OwnedMessage>,
    /// Queues with their messages, in order.
    pub lines: Vec<Line>,
    /// The other homes.
    pub homes: Arc<Restoring>,
}

/// What a home has still to do.
#[derive(Debug)]
pub(crate) struct Restoration {
    definitions: vec::IntoIter<OwnedMessage>,
    retained: vec::IntoIter<OwnedMessage>,
    lines: vec::IntoIter<Line>,
    /// The line at hand, and how many of its messages were restored.
    line: Option<(Line, usize)>,
    homes: Arc<Restoring>,
    /// Durable subscriptions that cannot be restored: their messages stay in the store.
    failed: Vec<Box<[u8]>>,
}

impl Restoration {
    /// Visits what is still to be restored.
    #[cfg(any(test, simulated))]
    pub(super) fn audit(&self, audit: &mut crate::audit::Audit) {
        self.definitions.as_slice().iter().chain(self.retained.as_slice()).for_each(|it| it.audit(audit));
    }

    fn is_done(&self) -> bool {
        self.line.is_none()
            && self.lines.len() == 0
            && self.retained.len() == 0
            && self.definitions.len() == 0
    }
}

/// Messages that are restored before the budget is checked again.
const PORTION: usize = 256;

impl Owners<'_> {
    /// Begins to restore what the store has for this home.
    pub(crate) fn restore(&mut self, share: Share) {
        let Share { store, counts, definitions, retained, lines, homes } = share;
        // The thread of the store has created them, and its sum is in no total: from now on this thread counts them.
        definitions.iter().chain(&retained).for_each(OwnedMessage::count_here);
        self.queues.home.replace_store(store, counts);
        self.queues.restoration = Some(Box::new(Restoration {
            definitions: definitions.into_iter(),
            retained: retained.into_iter(),
            lines: lines.into_iter(),
            line: None,
            homes,
            failed: Vec::new(),
        }));
        self.turn.jobs.push(Job::Restore);
    }

    /// Continues to restore, as far as the turn allows. Definitions come first: queues without one are not restored.
    pub(crate) fn proceed_with_restoring(&mut self) {
        let Some(mut restoration) = self.queues.restoration.take() else { return };
        while !self.turn.budget.is_exhausted() && !restoration.is_done() {
            // The newest ones come first: a crash may have left those that they replace.
            if let Some(definition) = restoration.definitions.next_back() {
                self.turn.budget.visit(PORTION / 16);
                restoration.failed.extend(self.restore_durable(&definition));
            } else if let Some(message) = restoration.retained.next_back() {
                self.turn.budget.visit(1);
                match self.queues.retained.has(message.destination()) {
                    true => self.queues.home.store.forget(message.record),
                    false => self.queues.retained.restore(message),
                }
            } else {
                self.restore_messages(&mut restoration);
            }
        }
        if !restoration.is_done() {
            self.turn.jobs.push(Job::Restore);
        }
        self.rearm_waiting();
        self.queues.restoration = Some(restoration);
    }

    /// Once everything is restored and other shards have been told, returns the homes that were restored together.
    pub(crate) fn take_restored(&mut self) -> Option<Arc<Restoring>> {
        let restoration = self.queues.restoration.take_if(|restoration| restoration.is_done())?;
        Some(restoration.homes)
    }

    /// Restores a durable subscription. Returns its name if that is not possible with the settings of today.
    fn restore_durable(&mut self, definition: &OwnedMessage) -> Option<Box<[u8]>> {
        let (topic, name) = (definition.destination(), definition.message().body);
        let kind = QueueKind::Durable { shared: definition.message().id == SHARED };
        if self.queues.home.find(name).is_some() {
            // It was defined anew.
            self.queues.home.store.forget(definition.record);
            return None;
        }
        let queue = self.queues.home.create(name, kind);
        let wire_format = WireFormat { framing: Framing::Stomp, version: Version::V1_2, without: 0 };
        let nobody = (ConnKey::NONE, None, AckMode::Auto);
        match self.router.subscribe(topic, nobody, wire_format, Some(queue), None) {
            Ok((subscription, _)) => {
                let (topic, record) = (topic.into(), definition.record);
                let since = since_of(definition.message().headers, record);
                let binding = Binding { subscription, topic, requesters: Vec::new(), record, since };
                self.notes.leave(Local::Announce {
                    topic: self.router.shared_text(&binding.topic),
                    to: None,
                    newcomer: None,
                });
                self.queues.bindings.insert(queue, binding);
            }
            Err(error) => {
                let text = format!(
                    "the durable subscription '{}' to '{}' cannot be restored, and stays in the store: {}",
                    String::from_utf8_lossy(name).replace('\n', " "),
                    String::from_utf8_lossy(topic),
                    error.detail
                );
                self.turn.log(Level::Error, || text);
                self.queues.home.delete(queue);
                return Some(name.into());
            }
        }
        self.count_queues();
        None
    }

    fn restore_messages(&mut self, restoration: &mut Restoration) {
        let next = restoration.line.take().or_else(|| Some((restoration.lines.next()?, 0)));
        let Some((line, done)) = next else { return };
        let (name, messages) = &line;
        let end = messages.len().min(done + PORTION);
        self.turn.budget.visit(end - done);
        let found = self.queues.home.find(name);
        let key = match found {
            Some(key) => key,
            None if restoration.failed.contains(name) => return,
            None if name.starts_with(DURABLE) => {
                let text = || {
                    let name = String::from_utf8_lossy(name).replace('\n', " ");
                    format!(
                        "{} messages of '{name}' are dropped: that subscription has ended",
                        messages.len()
                    )
                };
                if done == 0 {
                    self.turn.log(Level::Warn, text);
                }
                messages[done..end].iter().for_each(|stub| self.queues.home.store.forget(stub.record));
                restoration.line = (end < messages.len()).then_some((line, end));
                return;
            }
            None => {
                let key = self.queues.home.create(name, QueueKind::Work);
                self.count_queues();
                key
            }
        };
        // Of an earlier subscription of this name: the process ended before all of them were forgotten.
        let since = self.queues.bindings.get(&key).map_or(NO_RECORD, |binding| binding.since);
        let mut own = Vec::with_capacity(end - done);
        for stub in &messages[done..end] {
            match stub.record < since {
                true => self.queues.home.store.forget(stub.record),
                false => own.push(*stub),
            }
        }
        self.queues.home.restore(key, &own);
        restoration.line = (end < messages.len()).then_some((line, end));
    }
}

impl Home {
    /// Replaces the store of a home without messages.
    pub(super) fn replace_store(&mut self, store: Box<dyn Store>, counts: HashMap<RecordId, Counts>) {
        self.store = Handle::new(store).knowing(counts);
        self.paging.turn_on(self.store.pages());
    }

    /// Adds messages that are in the store behind those of a queue.
    fn restore(&mut self, key: QueueKey, messages: &[Stub]) {
        let Some(queue) = self.queues.get_mut(key) else { return };
        for stub in messages {
            if stub.record % 4 == 0 && planted!("stub-not-restored") {
                continue;
            }
            queue.pending.restore(*stub);
            match stub.seq < FIRST_SEQ {
                true => queue.next_first = stub.seq + 1,
                false => queue.next_seq = stub.seq + 1,
            }
        }
        queue.enqueued += messages.len() as u64;
        queue.is_special = true;
        self.counts.enqueued += messages.len() as u64;
        self.rearm(key);
        self.mark_ready(key);
    }
}

#[cfg(test)]
#[path = "restored_tests.rs"]
mod tests;
