//! Deliveries are counted across crashes. What the log has been told before something else that is safe is safe, too: so a
//! delivery counts that a client got before it sent a persistent message which was confirmed.

use std::collections::BTreeMap;
use std::time::Duration;

use super::super::{Checker, broken};
use crate::events::{Delivery, Event, MessageId, Request, Survivor, Violation};
use crate::work::plain;

/// The number of an event.
type At = u64;

/// Follows counts.
#[derive(Debug, Default)]
pub struct Recount {
    now: At,
    /// When each persistent message to a queue was sent that belongs to no transaction.
    sent: BTreeMap<MessageId, At>,
    /// Which of them were confirmed: when they were sent, and when that was known.
    confirmed: Vec<(At, Duration)>,
    /// Deliveries of messages of queues, in the order of their reading.
    read: Vec<(At, MessageId, u64)>,
    safe: Duration,
    /// The counts that the last crash has left.
    counts: BTreeMap<MessageId, u64>,
}

impl Recount {
    fn recover(&mut self, survivors: &[Survivor]) -> Result<(), Violation> {
        let safe = self.confirmed.iter().filter(|(_, known)| *known <= self.safe);
        let until = safe.map(|(sent, _)| *sent).max().unwrap_or_default();
        let mut least = std::mem::take(&mut self.counts);
        for (_, id, count) in self.read.drain(..).filter(|(at, ..)| *at < until) {
            let known = least.entry(id).or_default();
            *known = count.max(*known);
        }
        self.confirmed.clear();
        for survivor in survivors.iter().filter(|survivor| survivor.is_at_work()) {
            let Some(id) = survivor.message else { continue };
            let expected = least.get(&id).copied().unwrap_or_default();
            if survivor.deliveries < expected {
                let found = survivor.deliveries;
                let text =
                    format!("{id} was delivered {expected} times, and after a crash the log says {found}");
                return broken("recount", text);
            }
            self.counts.insert(id, survivor.deliveries);
        }
        Ok(())
    }

    fn deliver(&mut self, delivery: &Delivery) -> Result<(), Violation> {
        let destination = &delivery.destination;
        if !destination.starts_with("/queue/") || destination.starts_with("/queue/dlq/") {
            return Ok(());
        }
        let (id, count) = (delivery.message, delivery.count);
        self.read.push((self.now, id, count));
        let Some(before) = self.counts.get(&id).filter(|before| **before > 0) else { return Ok(()) };
        if count <= *before || !delivery.redelivered {
            let text = format!(
                "{id} comes with delivery-count {count} and redelivered:{}, after {before} deliveries before a crash",
                delivery.redelivered
            );
            return broken("recount", text);
        }
        Ok(())
    }
}

impl Checker for Recount {
    fn see(&mut self, event: &Event, now: Duration) -> Result<(), Violation> {
        self.now += 1;
        match event {
            Event::Requested(_, request) => {
                if let Request::Send(message) = plain(request)
                    && message.persistent
                    && message.transaction.is_none()
                    && message.destination.starts_with("/queue/")
                {
                    self.sent.insert(message.id, self.now);
                }
            }
            Event::Confirmed(_, request) => {
                if let Request::Send(message) = plain(request)
                    && let Some(sent) = self.sent.remove(&message.id)
                {
                    self.confirmed.push((sent, now));
                }
            }
            Event::Crashed(safe) => self.safe = *safe,
            Event::Recovered(survivors) => return self.recover(survivors),
            Event::Delivered(_, delivery) => return self.deliver(delivery),
            _ => {}
        }
        Ok(())
    }
}
