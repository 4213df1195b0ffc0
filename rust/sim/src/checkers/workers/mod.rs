//! Worker topics and stale messages keep the promises of queues and of topics that apply to them.
//!
//! Other checkers do not see these messages, because a topic or a queue without `TTL` promises other things. Some of these
//! checkers follow them here, as a second copy of each.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::{
    Checker, acking, broken, content, expiry, holding, identity, loss, matching, order, queue_order,
    redelivery, starvation, transactions,
};
use crate::events::{ClientId, Event, MessageId, Request, SubscriptionId, Violation};
use crate::options::Options;
use crate::patterns::Rules;
use crate::work::{STALE, unwrapped};

/// Checkers in a run with worker topics or stale messages.
#[derive(Default)]
pub struct Workers {
    /// Checkers of both.
    all: Vec<Box<dyn Checker>>,
    /// Those of worker topics only.
    queues: Vec<Box<dyn Checker>>,
    /// Checkers of both if nothing ends by `TTL`, else of topics.
    keeping: Vec<Box<dyn Checker>>,
    keeps: bool,
    consumers: Consumers,
}

impl Workers {
    /// Expects what the settings promise; nothing in a run without worker topics and stale messages.
    #[must_use]
    pub fn new(options: &Options) -> Self {
        if options.workers.percent == 0 {
            return Workers::default();
        }
        Workers {
            all: vec![
                Box::new(content::Content::default()),
                Box::new(identity::Identity::default()),
                Box::new(matching::Matching::new(options)),
                Box::new(expiry::Expiry::new(options)),
                Box::new(transactions::Transactions::new(options)),
                Box::new(holding::Holding::new(options)),
                Box::new(acking::Acking::new(options)),
            ],
            queues: vec![
                Box::new(order::Order::default()),
                Box::new(queue_order::QueueOrder::new(options)),
                Box::new(redelivery::Redelivery::new(options)),
                Box::new(starvation::Starvation::new(options)),
            ],
            keeping: vec![Box::new(loss::Loss::new(options))],
            keeps: options.workers.keeps,
            consumers: Consumers {
                rules: options.rules(),
                may_fail_unread: options.config.ack_timeout_ms > 0 && options.may_refuse_dead_letters(),
                ..Consumers::default()
            },
        }
    }
}

/// Whether an event tells of a topic's message.
fn is_of_topic(event: &Event) -> bool {
    match event {
        Event::Delivered(_, delivery) => {
            delivery.original.as_ref().unwrap_or(&delivery.destination).starts_with(STALE)
        }
        Event::Requested(_, Request::Send(message)) => message.destination.starts_with(STALE),
        _ => false,
    }
}

/// Whether an event tells of a message to a worker topic.
fn is_of_queue(event: &Event) -> bool {
    let is_message = matches!(event, Event::Delivered(..) | Event::Requested(_, Request::Send(_)));
    is_message && !is_of_topic(event)
}

impl Checker for Workers {
    fn see(&mut self, event: &Event, now: Duration) -> Result<(), Violation> {
        let Some(event) = unwrapped(event).filter(|_| !self.all.is_empty()) else { return Ok(()) };
        let of_queues = self.queues.iter_mut().filter(|_| !is_of_topic(&event));
        let is_kept = match &event {
            // Only messages of queues become dead letters when they expire.
            Event::Requested(_, Request::Send(message)) => self.keeps && message.expires.is_none(),
            _ => self.keeps,
        };
        let keeping = self.keeping.iter_mut().filter(|_| is_kept || !is_of_queue(&event));
        for checker in self.all.iter_mut().chain(of_queues).chain(keeping) {
            if let Err(violation) = checker.see(&event, now) {
                return broken("workers", format!("{}: {}", violation.checker, violation.text));
            }
        }
        self.consumers.see(&event)
    }
}

/// A worker topic with a consumer gives it its messages, whatever `TTL` is.
#[derive(Debug, Default)]
struct Consumers {
    rules: Rules,
    /// What fails for want of an ACK in time is dropped unread if its dead-letter queue is full.
    may_fail_unread: bool,
    /// Confirmed subscriptions that have not ended.
    live: BTreeMap<(ClientId, SubscriptionId), String>,
    ended: BTreeSet<(ClientId, SubscriptionId)>,
    /// The consumers that a message of a worker topic had when it was sent.
    due: BTreeMap<MessageId, Vec<(ClientId, SubscriptionId)>>,
    confirmed: BTreeSet<MessageId>,
    received: BTreeSet<MessageId>,
}

impl Consumers {
    fn see(&mut self, event: &Event) -> Result<(), Violation> {
        match event {
            Event::Confirmed(client, Request::Subscribe(it)) if !self.ended.contains(&(*client, it.id)) => {
                self.live.insert((*client, it.id), it.destination.clone());
            }
            Event::Requested(client, Request::Unsubscribe(id)) => {
                self.live.remove(&(*client, *id));
                self.ended.insert((*client, *id));
            }
            Event::Requested(client, Request::Disconnect)
            | Event::Ended(client, _)
            | Event::Released(client) => self.live.retain(|(other, _), _| other != client),
            Event::Requested(_, Request::Send(message))
                if message.transaction.is_none() && message.expires.is_none() && is_of_queue(event) =>
            {
                let own = self.live.iter().filter(|(_, it)| self.rules.matches(it, &message.destination));
                self.due.insert(message.id, own.map(|(key, _)| *key).collect());
            }
            Event::Confirmed(_, Request::Send(message)) => _ = self.confirmed.insert(message.id),
            Event::Delivered(_, delivery) => _ = self.received.insert(delivery.message),
            Event::Unread(_, _, message) => _ = self.received.insert(*message),
            Event::Finished(_) if !self.may_fail_unread => {
                let is_live = |key: &(ClientId, SubscriptionId)| self.live.contains_key(key);
                let lost = self.due.iter().find(|(id, due)| {
                    self.confirmed.contains(id) && !self.received.contains(id) && due.iter().any(is_live)
                });
                if let Some((id, due)) = lost {
                    return broken("workers", format!("nobody got {id}, although {due:?} consumed"));
                }
            }
            _ => {}
        }
        Ok(())
    }
}
