//! Each queue delivers in the order of arrival, over all publishers; a message whose consumer was lost is back at its old
//! place.
//!
//! Of two messages the first one has arrived first for certain if its RECEIPT came before the second one was sent.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::{Checker, broken};
use crate::events::{
    ClientId, Delivery, Event, MessageId, Request, SubscriptionId, TransactionId, Violation, is_queue,
};
use crate::options::Options;

/// A subscription of a client.
type Key = (ClientId, SubscriptionId);
/// Deliveries of a queue with which a new one is compared, at most.
const COMPARED_MAX: usize = 100;

/// A delivery of a queue.
#[derive(Clone, Copy, Debug)]
struct Seen {
    message: MessageId,
    key: Key,
    count: u64,
    decided_from: Duration,
    written: Duration,
    /// When it was sent; nothing that was confirmed before can have a later place.
    sent: Duration,
}

/// Follows the order of queues.
#[derive(Debug)]
pub struct QueueOrder {
    takes_back: bool,
    /// When each message, or its COMMIT, was sent.
    sent: BTreeMap<MessageId, Duration>,
    /// When that was confirmed.
    confirmed: BTreeMap<MessageId, Duration>,
    members: BTreeMap<(ClientId, TransactionId), Vec<MessageId>>,
    /// Messages that somebody has refused: they wait for their delay.
    refused: BTreeSet<MessageId>,
    /// When a client's deliveries were given back.
    released: BTreeMap<ClientId, Duration>,
    /// The last delivery of each message.
    last: BTreeMap<MessageId, Seen>,
    queues: BTreeMap<String, Vec<Seen>>,
}

impl QueueOrder {
    /// Expects what the settings promise.
    #[must_use]
    pub fn new(options: &Options) -> Self {
        QueueOrder {
            takes_back: options.config.ack_timeout_ms > 0,
            sent: BTreeMap::new(),
            confirmed: BTreeMap::new(),
            members: BTreeMap::new(),
            refused: BTreeSet::new(),
            released: BTreeMap::new(),
            last: BTreeMap::new(),
            queues: BTreeMap::new(),
        }
    }

    fn deliver(&mut self, client: ClientId, delivery: &Delivery) -> Result<(), Violation> {
        let id = delivery.message;
        let Some(sent) = self.sent.get(&id).copied() else { return Ok(()) };
        if delivery.dead_letter.is_some() || !is_queue(&delivery.destination) {
            return Ok(());
        }
        let seen = Seen {
            message: id,
            key: (client, delivery.subscription),
            count: delivery.count,
            decided_from: delivery.written.decided_from,
            written: delivery.written.at,
            sent,
        };
        let before = self.last.insert(id, seen);
        let queue = self.queues.entry(delivery.destination.clone()).or_default();
        queue.push(seen);
        let Some(confirmed) = self.confirmed.get(&id).copied() else { return Ok(()) };
        // Since then it has been in its queue, unless somebody held it.
        let waits_since = match (delivery.count, before) {
            (1, _) => Some(confirmed),
            (count, Some(before)) if before.count + 1 == count => {
                let is_certain = !self.takes_back && !self.refused.contains(&id);
                self.released.get(&before.key.0).filter(|_| is_certain).copied()
            }
            _ => None,
        };
        let Some(waits_since) = waits_since else { return Ok(()) };
        let others = queue.iter().rev().skip(1).take(COMPARED_MAX).filter(|other| other.message != id);
        for other in others {
            // Decided while this one was there, and before it was decided to deliver this one.
            let was_there = seen.count == 1 || other.decided_from > waits_since;
            let came_first = other.key == seen.key || other.written < seen.decided_from;
            if other.sent > confirmed && other.count == 1 && was_there && came_first {
                let text = format!(
                    "{} overtook {id} in {}, which waited since {waits_since:?}: {other:?}, {seen:?}",
                    other.message, delivery.destination
                );
                return broken("order", text);
            }
        }
        Ok(())
    }
}

impl Checker for QueueOrder {
    fn see(&mut self, event: &Event, now: Duration) -> Result<(), Violation> {
        match event {
            Event::Requested(client, request) => match request {
                Request::Send(message) => match message.transaction {
                    None => _ = self.sent.insert(message.id, now),
                    Some(transaction) => {
                        self.members.entry((*client, transaction)).or_default().push(message.id);
                    }
                },
                Request::Commit(transaction) => {
                    for message in self.members.get(&(*client, *transaction)).into_iter().flatten() {
                        self.sent.insert(*message, now);
                    }
                }
                Request::Nack(_, messages, _) | Request::Reject(_, messages, _) => {
                    self.refused.extend(messages)
                }
                _ => {}
            },
            Event::Confirmed(client, request) => match request {
                Request::Send(message) if message.transaction.is_none() => {
                    self.confirmed.insert(message.id, now);
                }
                Request::Commit(transaction) => {
                    for message in self.members.remove(&(*client, *transaction)).unwrap_or_default() {
                        self.confirmed.insert(message, now);
                    }
                }
                _ => {}
            },
            Event::Released(client) => _ = self.released.insert(*client, now),
            Event::Delivered(client, delivery) => return self.deliver(*client, delivery),
            _ => {}
        }
        Ok(())
    }
}
