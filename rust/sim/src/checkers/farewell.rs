//! The RECEIPT of UNSUBSCRIBE or DISCONNECT comes behind every message to the subscription's topic whose own RECEIPT had come
//! before the frame was sent; and a refused COMMIT has no effect.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::slowness::Slowness;
use super::{Checker, broken};
use crate::events::{
    AckMode, ClientId, Event, Message, MessageId, Request, Subscription, SubscriptionId, TransactionId,
    Violation, is_topic,
};
use crate::options::Options;
use crate::patterns::Rules;

/// Follows what has to precede the last RECEIPT of a subscription.
#[derive(Debug)]
pub struct Farewell {
    rules: Rules,
    slowness: Slowness,
    subscriptions: BTreeMap<(ClientId, SubscriptionId), Subscription>,
    /// Messages to topics that a confirmed subscription has not received; with `true`, they are confirmed.
    due: BTreeMap<(ClientId, SubscriptionId), BTreeMap<MessageId, bool>>,
    /// What has to come before the RECEIPT of a subscription's end.
    owed: BTreeMap<(ClientId, SubscriptionId), BTreeSet<MessageId>>,
    /// Clients that have sent DISCONNECT.
    leaving: BTreeSet<ClientId>,
    members: BTreeMap<(ClientId, TransactionId), Vec<Message>>,
    /// Messages of refused transactions, and messages that have arrived.
    void: BTreeSet<MessageId>,
    received: BTreeSet<MessageId>,
    /// The store has failed.
    has_failed: bool,
}

impl Farewell {
    /// Expects what the settings promise.
    #[must_use]
    pub fn new(options: &Options) -> Self {
        Farewell {
            rules: options.rules(),
            slowness: Slowness::new(options),
            subscriptions: BTreeMap::new(),
            due: BTreeMap::new(),
            owed: BTreeMap::new(),
            leaving: BTreeSet::new(),
            members: BTreeMap::new(),
            void: BTreeSet::new(),
            received: BTreeSet::new(),
            has_failed: false,
        }
    }

    fn publish(&mut self, message: &Message) {
        self.slowness.send(message);
        if !is_topic(&message.destination) || message.expires.is_some() {
            return;
        }
        for (key, subscription) in &self.subscriptions {
            if self.rules.matches(&subscription.destination, &message.destination) {
                self.due.entry(*key).or_default().insert(message.id, false);
            }
        }
    }

    fn confirm(&mut self, message: MessageId) {
        self.due
            .values_mut()
            .filter_map(|due| due.get_mut(&message))
            .for_each(|is_confirmed| *is_confirmed = true);
    }

    fn leave(&mut self, key: (ClientId, SubscriptionId)) {
        let drops = self.subscriptions.remove(&key).is_none_or(|it| self.slowness.drops(&it));
        let due = self.due.remove(&key).unwrap_or_default().into_iter();
        let owed = due.filter(|(_, is_confirmed)| *is_confirmed && !drops).map(|(id, _)| id).collect();
        self.owed.insert(key, owed);
    }

    fn leave_all(&mut self, client: ClientId) {
        let keys: Vec<_> = self.subscriptions.keys().filter(|key| key.0 == client).copied().collect();
        keys.into_iter().for_each(|key| self.leave(key));
    }

    fn left(&self, key: (ClientId, SubscriptionId)) -> Result<(), Violation> {
        match self.owed.get(&key).filter(|owed| !owed.is_empty()) {
            Some(owed) => broken("farewell", format!("{key:?} has ended with its RECEIPT before {owed:?}")),
            None => Ok(()),
        }
    }

    fn check_void(&self) -> Result<(), Violation> {
        if self.has_failed {
            return Ok(()); // its RECEIPT is refused, not the COMMIT
        }
        match self.void.intersection(&self.received).next() {
            Some(message) => {
                broken("farewell", format!("{message} has arrived although its COMMIT was refused"))
            }
            None => Ok(()),
        }
    }

    fn request(&mut self, client: ClientId, request: &Request) {
        match request {
            Request::Unsubscribe(subscription) => self.leave((client, *subscription)),
            Request::Disconnect => {
                self.leaving.insert(client);
                self.leave_all(client);
            }
            Request::Send(message) => match message.transaction {
                Some(transaction) => {
                    self.members.entry((client, transaction)).or_default().push(message.clone());
                }
                None => self.publish(message),
            },
            Request::Commit(transaction) => {
                let members = self.members.get(&(client, *transaction)).cloned().unwrap_or_default();
                members.iter().for_each(|message| self.publish(message));
            }
            _ => {}
        }
    }

    fn confirmed(&mut self, client: ClientId, request: &Request) -> Result<(), Violation> {
        match request {
            Request::Subscribe(subscription)
                if is_topic(&subscription.destination)
                    && subscription.ack == AckMode::Auto
                    && subscription.durable.is_none() // others may end it
                    && !self.leaving.contains(&client)
                    && !self.owed.contains_key(&(client, subscription.id)) =>
            {
                self.subscriptions.insert((client, subscription.id), subscription.clone());
            }
            Request::Send(message) if message.transaction.is_none() => self.confirm(message.id),
            Request::Commit(transaction) => {
                let members = self.members.get(&(client, *transaction)).into_iter().flatten();
                let ids: Vec<MessageId> = members.map(|message| message.id).collect();
                ids.into_iter().for_each(|id| self.confirm(id));
            }
            Request::Unsubscribe(subscription) => return self.left((client, *subscription)),
            Request::Disconnect => {
                let keys: Vec<_> = self.owed.keys().filter(|key| key.0 == client).copied().collect();
                keys.into_iter().try_for_each(|key| self.left(key))?;
            }
            _ => {}
        }
        Ok(())
    }
}

impl Checker for Farewell {
    fn see(&mut self, event: &Event, _: Duration) -> Result<(), Violation> {
        match event {
            Event::Requested(client, request) => self.request(*client, request),
            Event::Confirmed(client, request) => return self.confirmed(*client, request),
            Event::Refused(client, Request::Commit(transaction)) => {
                let members = self.members.get(&(*client, *transaction)).into_iter().flatten();
                self.void.extend(members.map(|message| message.id));
                return self.check_void();
            }
            Event::Delivered(client, delivery) => {
                let key = (*client, delivery.subscription);
                self.due.get_mut(&key).map(|due| due.remove(&delivery.message));
                self.owed.get_mut(&key).map(|owed| owed.remove(&delivery.message));
                if self.received.insert(delivery.message) && !self.void.is_empty() {
                    return self.check_void();
                }
            }
            // Queues of single subscriptions page messages out; a log line tells of those that are lost then.
            Event::Damaged(message) => {
                self.owed.values_mut().for_each(|owed| _ = owed.remove(message));
                let queues =
                    self.subscriptions.iter().filter(|(_, subscription)| subscription.has_own_queue());
                for key in queues.map(|(key, _)| key) {
                    self.due.get_mut(key).map(|due| due.remove(message));
                }
            }
            Event::StoreFailed => self.has_failed = true,
            Event::Released(client) | Event::Ended(client, _) => self.leave_all(*client),
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

    fn found(events: impl IntoIterator<Item = Event>) -> Option<&'static str> {
        let mut options = Options::new(1, 1);
        options.config.slow_consumer = SlowConsumer::Block(Duration::from_secs(1));
        let mut checker = Farewell::new(&options);
        let mut events = events.into_iter();
        events.find_map(|event| checker.see(&event, Duration::ZERO).err()).map(|violation| violation.checker)
    }

    #[test]
    fn messages_with_a_receipt_come_before_the_receipt_of_the_end() {
        let only = message(1, "/topic/a");
        for request in [Request::Unsubscribe(1), Request::Disconnect] {
            let mut events = subscribed(0, 1, "/topic/a", 1).to_vec();
            events.extend(sent(9, only.clone()));
            events.push(Event::Requested(0, request.clone()));
            let end = Event::Confirmed(0, request);
            assert_eq!(found(events.iter().cloned().chain([end.clone()])), Some("farewell"));
            assert_eq!(found(events.into_iter().chain([delivered(0, 1, &only, 1), end])), None);
        }
    }

    #[test]
    fn a_policy_of_its_own_excuses_only_what_can_be_dropped() {
        let only = message(1, "/topic/a");
        let with = |policy: SlowConsumer, outbox_limit: usize| {
            let mut options = Options::new(1, 1);
            options.config.slow_consumer = SlowConsumer::Block(Duration::from_secs(1));
            options.config.outbox_limit = outbox_limit;
            let mut checker = Farewell::new(&options);
            let asked = subscribed(0, 1, "/topic/a", 1).map(|event| match event {
                Event::Confirmed(client, Request::Subscribe(mut it)) => {
                    it.terms.policy = Some(policy);
                    Event::Confirmed(client, Request::Subscribe(it))
                }
                event => event,
            });
            let end =
                [Event::Requested(0, Request::Unsubscribe(1)), Event::Confirmed(0, Request::Unsubscribe(1))];
            let mut events = asked.into_iter().chain(sent(9, only.clone())).chain(end);
            events.any(|event| checker.see(&event, Duration::ZERO).is_err())
        };
        assert!(with(SlowConsumer::DropOldest, 1 << 20) && with(SlowConsumer::Disconnect, 600));
        assert!(!with(SlowConsumer::DropOldest, 600));
    }

    #[test]
    fn a_refused_commit_has_no_effect() {
        let inside = Message { transaction: Some(5), ..message(1, "/queue/a") };
        let commit = Request::Commit(5);
        let mut events = subscribed(0, 1, "/queue/a", 1).to_vec();
        events.push(Event::Requested(9, Request::Send(inside.clone())));
        events.push(Event::Requested(9, commit.clone()));
        assert_eq!(found(events.iter().cloned().chain([Event::Refused(9, commit.clone())])), None);
        let both = [delivered(0, 1, &inside, 1), Event::Refused(9, commit)];
        assert_eq!(found(events.iter().cloned().chain(both.clone())), Some("farewell"));
        assert_eq!(found(events.into_iter().chain(both.into_iter().rev())), Some("farewell"));
    }
}
