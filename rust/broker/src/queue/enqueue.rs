//! Messages on their way into the queues of one home, and messages that no queue takes.

use stompica_proto::encode::Offender;
use stompica_proto::error::Code;
use stompica_proto::{ProtocolError, Version, escape};

use super::types::Refusal;
use super::{Owners, QueueKind};
use crate::destination::Kind;
use crate::door::sync::Ordering;
use crate::ids::QueueKey;
use crate::log::Level;
use crate::message::OwnedMessage;
use crate::requester::Requester;
use crate::router::Destination;

/// The ERROR for a message that a queue refuses.
fn refused(refusal: Refusal) -> ProtocolError {
    let Refusal::Full(text) = refusal;
    ProtocolError::new(Code::QueueFull, text)
}

/// The description, for an ERROR, of a SEND that was refused after it had been accepted.
pub(crate) fn describe(owned: &OwnedMessage) -> Offender {
    let message = owned.message();
    Offender { receipt: None, subscription: None, head: head_of_send(message.destination, message.headers) }
}

/// The head of a SEND without the headers that only the broker reads.
pub(crate) fn head_of_send(destination: &[u8], headers: &[u8]) -> Vec<u8> {
    let mut head = b"SEND\ndestination:".to_vec();
    escape::escape_into(&mut head, destination, Version::V1_2);
    head.push(b'\n');
    head.extend_from_slice(headers);
    head
}

impl Owners<'_> {
    /// The queue for messages to a name, created if necessary, with room for `count` messages of `bytes` in total.
    /// `None`: the name has no queue and gets none.
    ///
    /// # Errors
    /// `E-QUEUE-FULL`, `E-DEST-COUNT`.
    pub(super) fn queue_for(
        &mut self,
        name: &[u8],
        count: u64,
        bytes: u64,
    ) -> Result<Option<QueueKey>, ProtocolError> {
        let destination = self.router.destination_of(self.turn, name)?;
        self.queue_at(destination, name, count, bytes)
    }

    /// Does the same for a name that was looked up.
    fn queue_at(
        &mut self,
        destination: Destination,
        name: &[u8],
        count: u64,
        bytes: u64,
    ) -> Result<Option<QueueKey>, ProtocolError> {
        let kind = destination.kind;
        let cached = self.router.queue_of(destination).filter(|key| self.queues.home.queue(*key).is_some());
        let key = match cached.or_else(|| self.queues.home.find(name)) {
            Some(key) => key,
            None => match kind {
                Kind::Queue => self.create_queue(name, QueueKind::Work)?,
                Kind::WorkerTopic if self.queues.home.has_patterns() => {
                    self.create_queue(name, QueueKind::Worker)?
                }
                _ => return Ok(None),
            },
        };
        if cached.is_none() {
            self.router.set_queue(destination, key);
        }
        if kind == Kind::Queue {
            self.queues.home.check_room(key, count, bytes).map_err(refused)?;
        }
        Ok(Some(key))
    }

    /// Creates a queue.
    ///
    /// # Errors
    /// `E-DEST-COUNT`.
    pub(crate) fn create_queue(&mut self, name: &[u8], kind: QueueKind) -> Result<QueueKey, ProtocolError> {
        self.count_queues();
        // It is counted before it is created: another home may create one at the same moment.
        let others = self.turn.totals.queues.fetch_add(1, Ordering::Relaxed);
        if self.router.is_at_limit(others) {
            self.turn.totals.queues.fetch_sub(1, Ordering::Relaxed);
            return Err(self.router.too_many());
        }
        self.queues.counted += 1;
        let key = self.queues.home.create(name, kind);
        if kind == QueueKind::Worker {
            self.hold_behind_stale(key);
        }
        Ok(key)
    }

    /// Updates the broker's count of queues with those of this home.
    pub(crate) fn count_queues(&mut self) {
        let (now, before) = (self.queues.home.named(), self.queues.counted);
        if now != before {
            self.turn.totals.queues.fetch_add(now.wrapping_sub(before), Ordering::Relaxed);
            self.queues.counted = now;
        }
    }

    /// The number of queues of all homes.
    pub(crate) fn queues_everywhere(&self) -> usize {
        self.turn.totals.queues.load(Ordering::Relaxed)
    }

    /// Adds a message to the queue it names.
    ///
    /// # Errors
    /// `E-QUEUE-FULL`, `E-DEST-COUNT`, with the message.
    pub(crate) fn enqueue(&mut self, message: OwnedMessage) -> Result<(), (ProtocolError, OwnedMessage)> {
        match self.router.destination_of(self.turn, message.destination()) {
            Ok(destination) => self.enqueue_at(message, destination),
            Err(error) => Err((error, message)),
        }
    }

    /// Does the same for a message whose destination was looked up.
    ///
    /// # Errors
    /// `E-QUEUE-FULL`, `E-DEST-COUNT`, with the message.
    pub(crate) fn enqueue_at(
        &mut self,
        mut message: OwnedMessage,
        destination: Destination,
    ) -> Result<(), (ProtocolError, OwnedMessage)> {
        match self.queue_at(destination, message.destination(), 1, message.size() as u64) {
            Ok(Some(key)) => {
                if message.grouped {
                    self.warn_of_grouping(key);
                }
                if destination.is_recorded {
                    message = self.record(message);
                }
                if message.seq == 0 && destination.kind == Kind::WorkerTopic {
                    message.seq = self.queues.stale.next_arrival();
                }
                if message.persistent && message.is_expired(self.turn.now_ms) {
                    // It may become a dead letter at the end of the frame.
                    self.queues.home.store.add_concerned(self.turn.id.bit());
                }
                self.queues.home.enqueue(key, message);
            }
            Ok(None) => self.unmatched(message),
            Err(error) => return Err((error, message)),
        }
        self.count_visits();
        Ok(())
    }

    /// Logs once that messages of a group go to any consumer.
    #[cold]
    fn warn_of_grouping(&mut self, key: QueueKey) {
        let found = self.queues.home.queue(key).filter(|queue| self.queues.home.consumers_of(queue) > 1);
        if let Some(name) = found.map(|queue| String::from_utf8_lossy(&queue.name).into_owned())
            && self.turn.totals.grouping.is_first()
        {
            self.turn.log(Level::Warn, || {
                format!(
                    "JMSXGroupID was asked for on '{name}', which has several consumers: groups are not built \
                     yet, its messages are shared out like others"
                )
            });
        }
    }

    /// Adds a message to the queue it names, and answers the frame that waits for that.
    pub(super) fn enqueue_for(&mut self, message: OwnedMessage, requester: Option<Requester>) {
        let waits_for_recording = message.persistent && self.is_recorded(&message);
        let outcome = self.enqueue(message);
        match (outcome, requester) {
            (Ok(()), Some(requester)) if waits_for_recording => self.answer_when_recorded(requester),
            (outcome, Some(requester)) => {
                let outcome = outcome.map_err(|(error, message)| (error, describe(&message)));
                self.answer(requester, outcome);
            }
            (outcome, None) => self.drop_refused(outcome),
        }
    }

    /// Drops a message that its queue refuses, and whose sender does not wait for an answer.
    pub(super) fn drop_refused(&mut self, outcome: Result<(), (ProtocolError, OwnedMessage)>) {
        if let Err((error, message)) = outcome {
            self.turn.counters.dropped += 1;
            self.queues.home.forget(&message);
            let name = String::from_utf8_lossy(message.destination()).into_owned();
            self.turn.log(Level::Warn, || format!("a message to '{name}' is dropped: {error}"));
        }
    }

    /// Keeps a message that no queue takes as stale while `TTL` allows, or drops it.
    pub(super) fn unmatched(&mut self, message: OwnedMessage) {
        if self.router.kind(message.destination()) == Kind::WorkerTopic {
            match self.queues.home.find(message.destination()) {
                // A consumer has come meanwhile: no other event would bring the message to it.
                Some(queue) if self.queues.home.is_consumed(queue) => {
                    let outcome = self.enqueue(message);
                    self.drop_refused(outcome);
                }
                _ => self.hold_stale(message),
            }
        } else {
            // The temporary queue was removed with its owner.
            self.turn.counters.unmatched += 1;
        }
    }
}
