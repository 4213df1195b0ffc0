//! What survives crashes, by what the log has after each of them and what clients get then: each persistent message of a queue
//! whose SEND was confirmed is there until it is acknowledged, and none whose ACK was confirmed returns.

pub mod atomicity;
mod known;
pub mod recount;
pub mod resumption;
pub mod sequence;
#[cfg(test)]
mod tests;
pub mod values;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use self::known::Known;
use super::{Checker, broken};
use crate::events::{Delivery, Event, MessageId, Survivor, Violation, is_queue};
use crate::options::Options;

/// Follows persistent messages of queues over all lives of the broker.
#[derive(Debug)]
pub struct Survival {
    known: Known,
    safe: Duration,
    /// Messages that the last crash has left.
    there: BTreeSet<MessageId>,
    /// Messages that it has not left.
    gone: BTreeSet<MessageId>,
    /// Messages that clients have got since then.
    seen: BTreeSet<MessageId>,
    /// Messages of earlier lives have smaller numbers.
    first: MessageId,
}

impl Survival {
    /// Expects what the settings promise.
    #[must_use]
    pub fn new(options: &Options) -> Self {
        Survival {
            known: Known::new(options),
            safe: Duration::ZERO,
            there: BTreeSet::new(),
            gone: BTreeSet::new(),
            seen: BTreeSet::new(),
            first: 0,
        }
    }

    fn recover(&mut self, survivors: &[Survivor]) -> Result<(), Violation> {
        let mut counts: BTreeMap<MessageId, u32> = BTreeMap::new();
        for survivor in survivors.iter().filter(|survivor| survivor.is_of_queue()) {
            let Some(id) = survivor.message else { continue };
            if survivor.is_at_work() && !self.known.sent.contains_key(&id) {
                return broken("survival", format!("{id} is in the log, and was not persistent"));
            }
            *counts.entry(id).or_default() += 1;
        }
        if let Some((id, count)) = counts.iter().find(|(_, count)| **count > 1) {
            return broken("survival", format!("{id} has {count} records after a crash"));
        }
        for (id, sent) in &self.known.sent {
            let is_there = counts.contains_key(id);
            if !is_there && sent.is_confirmed(self.safe) && !self.known.is_excused(*id) {
                let destination = &sent.message.destination;
                return broken("survival", format!("{id} to {destination} is lost: its SEND was confirmed"));
            }
            if is_there && sent.is_acknowledged(self.safe) {
                return broken("survival", format!("{id} is still in the log: its ACK was confirmed"));
            }
            if is_there && self.gone.contains(id) {
                return broken("survival", format!("{id} has returned after a crash without it"));
            }
        }
        self.there = counts.keys().copied().filter(|id| self.known.sent.contains_key(id)).collect();
        self.gone = self.known.sent.keys().copied().filter(|id| !self.there.contains(id)).collect();
        self.first = self.known.last + 1;
        self.seen.clear();
        Ok(())
    }

    fn deliver(&mut self, delivery: &Delivery) -> Result<(), Violation> {
        let id = delivery.message;
        if id < self.first
            && is_queue(&delivery.destination)
            && !delivery.destination.starts_with("/queue/dlq/")
        {
            if self.gone.contains(&id) {
                return broken(
                    "survival",
                    format!("{id} is delivered, and was not in the log after a crash"),
                );
            }
            if !self.known.sent.contains_key(&id) {
                return broken("survival", format!("{id} has survived a crash, and was not persistent"));
            }
        }
        self.seen.insert(id);
        Ok(())
    }

    fn finish(&self) -> Result<(), Violation> {
        let is_missing = |id: &&MessageId| !self.seen.contains(id) && !self.known.is_excused(**id);
        match self.there.iter().find(is_missing) {
            Some(id) => broken("survival", format!("{id} was in the log after a crash, and nobody gets it")),
            None => Ok(()),
        }
    }
}

impl Checker for Survival {
    fn see(&mut self, event: &Event, now: Duration) -> Result<(), Violation> {
        match event {
            Event::Crashed(safe) => self.safe = *safe,
            Event::Recovered(survivors) => self.recover(survivors)?,
            Event::Delivered(_, delivery) => self.deliver(delivery)?,
            Event::Unread(_, _, id) => _ = self.seen.insert(*id),
            Event::Finished(_) => return self.finish(),
            _ => {}
        }
        self.known.see(event, now);
        Ok(())
    }
}
