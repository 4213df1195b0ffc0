//! Nobody misses a message of a topic without being told: where slow consumers lose messages, the header `dropped` counts
//! them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::slowness::Slowness;
use super::{Checker, broken};
use crate::events::{
    ClientId, Delivery, Event, MessageId, Request, Subscription, SubscriptionId, TransactionId, Violation,
    is_topic,
};
use crate::options::Options;
use crate::patterns::Rules;

/// A message to a topic that a subscription has to get, or to be told of.
#[derive(Clone, Copy, Debug)]
struct Due {
    message: MessageId,
    publisher: ClientId,
}

/// Follows which messages subscriptions have missed.
#[derive(Debug)]
pub struct Gaps {
    rules: Rules,
    slowness: Slowness,
    /// Confirmed subscriptions to topics, with what is due to each, in the order of publishing.
    due: BTreeMap<(ClientId, SubscriptionId), (Subscription, Vec<Due>)>,
    open: BTreeMap<(ClientId, TransactionId), Vec<(MessageId, String)>>,
    /// Messages that are known to be missed, and those that were reported, for each connection.
    missed: BTreeMap<ClientId, BTreeSet<(SubscriptionId, MessageId)>>,
    told: BTreeMap<ClientId, u64>,
}

impl Gaps {
    /// Expects what the settings promise.
    #[must_use]
    pub fn new(options: &Options) -> Self {
        Gaps {
            rules: options.rules(),
            slowness: Slowness::new(options),
            due: BTreeMap::new(),
            open: BTreeMap::new(),
            missed: BTreeMap::new(),
            told: BTreeMap::new(),
        }
    }

    fn publish(&mut self, publisher: ClientId, message: MessageId, destination: &str) {
        for (subscription, due) in self.due.values_mut() {
            if self.rules.matches(&subscription.destination, destination) {
                due.push(Due { message, publisher });
            }
        }
    }

    /// Everything that its publisher has sent before a message that has arrived is missed, unless it has arrived, too.
    fn deliver(&mut self, client: ClientId, delivery: &Delivery) -> Result<(), Violation> {
        let told = self.told.get(&client).copied().unwrap_or(0);
        let Some((subscription, due)) = self.due.get_mut(&(client, delivery.subscription)) else {
            return Ok(());
        };
        if !self.slowness.tells(subscription) {
            return Ok(()); // the ERROR tells it
        }
        let Some(at) = due.iter().position(|due| due.message == delivery.message) else { return Ok(()) };
        let publisher = due[at].publisher;
        let missed = self.missed.entry(client).or_default();
        let mut place = 0;
        due.retain(|other| {
            place += 1;
            let is_before = place <= at + 1 && other.publisher == publisher;
            if is_before && other.message != delivery.message {
                missed.insert((delivery.subscription, other.message));
            }
            !is_before
        });
        if missed.len() as u64 > told {
            let text = format!(
                "client {client} missed {} messages until {}, and was told of {told}: {missed:?}",
                missed.len(),
                delivery.message
            );
            return broken("gaps", text);
        }
        Ok(())
    }
}

impl Checker for Gaps {
    fn see(&mut self, event: &Event, _: Duration) -> Result<(), Violation> {
        match event {
            Event::Confirmed(client, Request::Subscribe(subscription))
                if is_topic(&subscription.destination) && subscription.durable.is_none() =>
            {
                self.due.insert((*client, subscription.id), (subscription.clone(), Vec::new()));
            }
            Event::Requested(client, Request::Unsubscribe(subscription)) => {
                self.due.remove(&(*client, *subscription));
            }
            // An expired message is dropped in silence.
            Event::Requested(client, Request::Send(message))
                if is_topic(&message.destination) && message.expires.is_none() =>
            {
                match message.transaction {
                    Some(transaction) => {
                        let list = self.open.entry((*client, transaction)).or_default();
                        list.push((message.id, message.destination.clone()));
                    }
                    None => self.publish(*client, message.id, &message.destination),
                }
            }
            Event::Requested(client, Request::Commit(transaction)) => {
                for (message, destination) in self.open.remove(&(*client, *transaction)).unwrap_or_default() {
                    self.publish(*client, message, &destination);
                }
            }
            // Queues of subscriptions that acknowledge page messages out; a log line tells of those that are lost then.
            Event::Damaged(message) => {
                for (_, due) in self.due.values_mut().filter(|(it, _)| it.has_own_queue()) {
                    due.retain(|due| due.message != *message);
                }
            }
            Event::Dropped(client, count) => *self.told.entry(*client).or_default() += count,
            Event::Delivered(client, delivery) => return self.deliver(*client, delivery),
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use stompica_broker::config::SlowConsumer;

    use super::*;
    use crate::checkers::tests::{delivered, message, sent, subscribed};
    use crate::events::AckMode;

    #[test]
    fn what_is_missed_has_to_be_told() {
        let messages = [1, 2, 3].map(|id| message(id, "/topic/a"));
        let found = |told: u64| {
            let sent = messages.iter().flat_map(|message| sent(9, message.clone()));
            let notice = (told > 0).then_some(Event::Dropped(0, told));
            let last = delivered(0, 1, &messages[2], 1);
            let arrived = std::iter::once(delivered(0, 1, &messages[0], 1)).chain(notice).chain([last]);
            let mut options = Options::new(1, 1);
            options.config.slow_consumer = SlowConsumer::DropNewest;
            let mut checker = Gaps::new(&options);
            let events = subscribed(0, 1, "/topic/a", 1).into_iter().chain(sent).chain(arrived);
            events.into_iter().find_map(|event| checker.see(&event, Duration::ZERO).err())
        };
        assert!(found(0).is_some_and(|violation| violation.checker == "gaps"));
        assert_eq!(found(1), None);
    }

    #[test]
    fn only_a_subscription_that_acknowledges_may_miss_what_the_store_cannot_read() {
        let found = |ack: AckMode| {
            let [first, second] = [1, 2].map(|id| message(id, "/topic/a"));
            let mut checker = Gaps::new(&Options::new(1, 1));
            let subscribed = subscribed(0, 1, "/topic/a", 1).map(|event| match event {
                Event::Confirmed(client, Request::Subscribe(it)) => {
                    Event::Confirmed(client, Request::Subscribe(Subscription { ack, ..it }))
                }
                event => event,
            });
            let sent = sent(9, first).into_iter().chain(sent(9, second.clone()));
            let rest = [Event::Damaged(1), delivered(0, 1, &second, 1)];
            let events = subscribed.into_iter().chain(sent).chain(rest);
            events.into_iter().find_map(|event| checker.see(&event, Duration::ZERO).err())
        };
        assert_eq!(found(AckMode::Client), None);
        assert!(found(AckMode::Auto).is_some(), "its messages are never paged out");
    }
}
