//! A queue with a consumer that acknowledges everything becomes empty.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::{Checker, broken};
use crate::events::{ClientId, Event, Request, Subscription, SubscriptionId, Violation, is_queue};
use crate::options::Options;
use crate::patterns::Rules;

/// Follows who consumes which queue.
#[derive(Debug)]
pub struct Starvation {
    rules: Rules,
    consumers: BTreeMap<(ClientId, SubscriptionId), Subscription>,
    /// Once everything is at rest: the clients that were open, and what they consume.
    at_rest: Option<(BTreeSet<ClientId>, BTreeSet<String>)>,
}

impl Starvation {
    /// Expects what the settings promise.
    #[must_use]
    pub fn new(options: &Options) -> Self {
        Starvation { rules: options.rules(), consumers: BTreeMap::new(), at_rest: None }
    }
}

impl Checker for Starvation {
    fn see(&mut self, event: &Event, _: Duration) -> Result<(), Violation> {
        match event {
            Event::Requested(client, Request::Subscribe(subscription)) => {
                self.consumers.insert((*client, subscription.id), subscription.clone());
            }
            Event::Requested(client, Request::Unsubscribe(subscription)) => {
                self.consumers.remove(&(*client, *subscription));
            }
            Event::Resting(open) => {
                let served = self
                    .consumers
                    .iter()
                    .filter(|((client, _), it)| open.contains(client) && is_queue(&it.destination));
                let names = served.map(|(_, subscription)| subscription.destination.clone()).collect();
                self.at_rest = Some((open.iter().copied().collect(), names));
            }
            Event::Delivered(client, delivery) => {
                let Some((open, names)) = &self.at_rest else { return Ok(()) };
                let is_served = names.iter().any(|name| self.rules.matches(name, &delivery.destination));
                if !open.contains(client) && is_served && delivery.dead_letter.is_none() {
                    let text = format!(
                        "{} waited in {} beside its consumer",
                        delivery.message, delivery.destination
                    );
                    return broken("starvation", text);
                }
            }
            _ => {}
        }
        Ok(())
    }
}
