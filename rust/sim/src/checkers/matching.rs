//! A subscription gets only messages of the destinations that it names or that its pattern matches.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Checker, broken};
use crate::events::{ClientId, Event, Request, SubscriptionId, Violation};
use crate::options::Options;
use crate::patterns::Rules;

/// Follows what was subscribed to.
#[derive(Debug)]
pub struct Matching {
    rules: Rules,
    subscribed: BTreeMap<(ClientId, SubscriptionId), String>,
}

impl Matching {
    /// Expects what the settings promise.
    #[must_use]
    pub fn new(options: &Options) -> Self {
        Matching { rules: options.rules(), subscribed: BTreeMap::new() }
    }
}

impl Checker for Matching {
    fn see(&mut self, event: &Event, _: Duration) -> Result<(), Violation> {
        match event {
            Event::Requested(client, Request::Subscribe(subscription)) => {
                self.subscribed.insert((*client, subscription.id), subscription.destination.clone());
            }
            Event::Delivered(client, delivery) => {
                let subscribed = self.subscribed.get(&(*client, delivery.subscription));
                if let Some(pattern) =
                    subscribed.filter(|pattern| !self.rules.matches(pattern, &delivery.destination))
                {
                    let text = format!(
                        "client {client} got {} of {} for {pattern}",
                        delivery.message, delivery.destination
                    );
                    return broken("matching", text);
                }
            }
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkers::tests::{delivered, message, subscribed};

    #[test]
    fn a_subscription_gets_only_what_it_matches() {
        let found = |pattern: &str, name: &str| {
            let mut checker = Matching::new(&Options::new(1, 1));
            let events =
                subscribed(0, 1, pattern, 1).into_iter().chain([delivered(0, 1, &message(1, name), 1)]);
            events.into_iter().find_map(|event| checker.see(&event, Duration::ZERO).err())
        };
        assert!(found("/topic/a", "/topic/a").is_none() && found("/topic/a/>", "/topic/a/b").is_none());
        assert!(found("/topic/a", "/topic/b").is_some() && found("/topic/*/b", "/topic/a/c").is_some());
    }
}
