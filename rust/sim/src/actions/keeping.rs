//! What clients do with what topics keep.

use rand::Rng as _;
use rand::seq::IndexedRandom as _;

use super::{Actor, Headers};
use crate::client::Held;
use crate::events::{AckMode, Durable, Request, Subscription, SubscriptionId, Terms};
use crate::frames::Version;
use crate::options::Dialect;

impl Actor<'_> {
    /// Creates or resumes a durable subscription.
    pub(super) fn subscribe_durable(&mut self) -> Option<()> {
        let number = *self.options.keeping.in_scope(self.client.scope).choose(self.random)?;
        let dialect = *self.options.keeping.dialects.choose(self.random)?;
        let modes = match self.client.version {
            Version::V10 => &[AckMode::Auto, AckMode::Client][..],
            _ => &[AckMode::Auto, AckMode::Client, AckMode::Individual],
        };
        let ack = *modes.choose(self.random)?;
        let prefetch = self.random.random_ratio(1, 2).then(|| self.random.random_range(1..8));
        let has_receipt = self.random.random_ratio(7, 8);
        let percent = self.options.keeping.send_before;
        if percent > 0 && self.percent(percent) {
            let destination = self.options.keeping.durables[number].destination.clone();
            for _ in 0..self.random.random_range(1..=4) {
                self.send_to(destination.clone(), None, Vec::new());
            }
        }
        self.hold(number, dialect, (ack, prefetch), has_receipt)
    }

    /// Becomes a holder of a durable subscription, unless this connection is or was one whose messages may still be on the
    /// way under the same id.
    pub(crate) fn hold(
        &mut self,
        number: usize,
        dialect: Dialect,
        (ack, prefetch): (AckMode, Option<u64>),
        has_receipt: bool,
    ) -> Option<()> {
        let durable = &self.options.keeping.durables[number];
        let is_shared = !matches!(dialect, Dialect::Named(_));
        let id = if is_shared { durable.name } else { self.client.next_subscription() };
        let is_over = self.client.ended.get(&id).is_none_or(|(_, is_confirmed)| *is_confirmed);
        if self.held(number).is_some() || self.client.subscriptions.contains_key(&id) || !is_over {
            return None;
        }
        self.client.ended.remove(&id);
        let destination = durable.destination.clone();
        let mut headers: Headers = vec![
            ("id", id.to_string()),
            ("destination", destination.clone()),
            ("ack", ack.name().to_owned()),
        ];
        headers.push(match dialect {
            Dialect::Durable => ("durable", "true".to_owned()),
            Dialect::Persistent => ("persistent", "true".to_owned()),
            Dialect::Named(header) => (header, durable.name.to_string()),
        });
        headers.extend(prefetch.map(|count| ("prefetch-count", count.to_string())));
        let durable = Some(Durable { number, is_shared, has_receipt });
        let subscription = Subscription { id, destination, ack, prefetch, terms: Terms::default(), durable };
        self.write_with("SUBSCRIBE", headers, b"", Request::Subscribe(subscription.clone()), has_receipt);
        self.client.subscriptions.insert(id, Held::new(subscription));
        Some(())
    }

    /// The id under which this connection holds a durable subscription.
    fn held(&self, number: usize) -> Option<SubscriptionId> {
        let is_meant =
            |held: &&Held| held.subscription.durable.as_ref().is_some_and(|durable| durable.number == number);
        Some(self.client.subscriptions.values().find(is_meant)?.subscription.id)
    }

    /// Ends a durable subscription, which this connection may hold, another one, or nobody.
    pub(super) fn end_durable(&mut self) -> Option<()> {
        let number = *self.options.keeping.in_scope(self.client.scope).choose(self.random)?;
        let dialect = *self.options.keeping.dialects.choose(self.random)?;
        let has_receipt = self.random.random_ratio(7, 8);
        self.end(number, dialect, has_receipt)
    }

    /// Ends a durable subscription by name; with its id, too, if this connection holds it and a coin says so.
    pub(crate) fn end(&mut self, number: usize, dialect: Dialect, has_receipt: bool) -> Option<()> {
        let held = self.held(number);
        let name = self.options.keeping.durables[number].name.to_string();
        let mut headers: Headers = match dialect {
            Dialect::Durable => vec![("id", name), ("durable", "true".to_owned())],
            Dialect::Persistent => vec![("id", name), ("persistent", "true".to_owned())],
            Dialect::Named(header) => vec![(header, name)],
        };
        if let (Dialect::Named(_), Some(id)) = (dialect, held)
            && self.random.random_ratio(1, 2)
        {
            headers.push(("id", id.to_string()));
        }
        if let Some(id) = held {
            self.forget(id)?;
            self.events.push(crate::events::Event::Requested(self.client.id, Request::Unsubscribe(id)));
        }
        self.client.has_ended_durables = true;
        self.write_with("UNSUBSCRIBE", headers, b"", Request::EndDurable(number, held), has_receipt);
        Some(())
    }

    /// Detaches this connection from all durable subscriptions that it holds.
    pub(crate) fn detach(&mut self) {
        for number in 0..self.options.keeping.durables.len() {
            if let Some(id) = self.held(number) {
                _ = self.forget(id);
                self.write("UNSUBSCRIBE", vec![("id", id.to_string())], b"", Request::Unsubscribe(id));
            }
        }
    }
}
