//! Requests with a `reply-to`, answers to it, and subscriptions to temporary destinations.

use rand::Rng as _;
use rand::seq::IndexedRandom as _;

use super::{Actor, Headers};
use crate::events::{Event, Message, PrivateEvent, Request, TransactionId};

/// Addresses that are remembered.
const ADDRESSES_MAX: usize = 40;

impl Actor<'_> {
    /// Does something with temporary destinations. Returns its name; `None` if nothing is possible.
    pub(super) fn act_privately(&mut self) -> Option<&'static str> {
        self.numbers.addresses.append(&mut self.client.private.addresses);
        let surplus = self.numbers.addresses.len().saturating_sub(ADDRESSES_MAX);
        self.numbers.addresses.drain(..surplus);
        let name =
            *["request", "request", "answer", "answer", "answer", "own", "own-subscribe", "own-unsubscribe"]
                .choose(self.random)?;
        match name {
            "request" => self.request()?,
            "answer" => self.answer()?,
            "own" => self.send_to_own()?,
            "own-subscribe" => self.subscribe_to_own()?,
            _ => self.unsubscribe_from_own()?,
        }
        Some(name)
    }

    /// A message that asks for an answer.
    fn request(&mut self) -> Option<()> {
        let name = *self.options.private.names.choose(self.random)?;
        self.send_with(vec![("reply-to", name.to_owned())])?;
        self.client.private.ask(name);
        let asked = PrivateEvent::Asked { message: self.numbers.message, name: name.to_owned() };
        self.events.push(Event::Private(self.client.id, asked));
        Some(())
    }

    fn answer(&mut self) -> Option<()> {
        let is_late = self.percent(self.options.private.late);
        let all = &self.numbers.addresses;
        let address = if is_late { all.choose(self.random) } else { all.last() }?.clone();
        self.send_privately(address);
        Some(())
    }

    fn send_to_own(&mut self) -> Option<()> {
        let names: Vec<String> = self.client.private.names.iter().cloned().collect();
        let name = names.choose(self.random)?.clone();
        self.send_privately(name);
        Some(())
    }

    fn send_privately(&mut self, destination: String) {
        self.numbers.message += 1;
        let transactions: Vec<TransactionId> = self.client.transactions.keys().copied().collect();
        let joins = self.random.random_ratio(1, 4);
        let message = Message {
            id: self.numbers.message,
            destination: destination.clone(),
            persistent: false,
            expires: None,
            ttl: None,
            max_exceptions: None,
            retain: None,
            transaction: if joins { transactions.choose(self.random).copied() } else { None },
            header: "a".to_owned(),
            body_len: self.random.random_range(0..=self.options.body_max),
        };
        let body = message.body();
        let mut headers: Headers = vec![("destination", destination), ("x", message.header.clone())];
        headers.push(("content-length", body.len().to_string()));
        headers.extend(message.transaction.map(|transaction| ("transaction", transaction.to_string())));
        self.write("SEND", headers, &body, Request::Answer(message));
    }

    fn subscribe_to_own(&mut self) -> Option<()> {
        if self.client.private.subscriptions.len() >= 4 {
            return None;
        }
        let name = *self.options.private.names.choose(self.random)?;
        let is_pattern = self.percent(self.options.private.patterns);
        let (prefix, _) = name.split_at("/temp-queue/".len());
        self.subscribe_own(if is_pattern { format!("{prefix}*") } else { name.to_owned() });
        Some(())
    }

    fn subscribe_own(&mut self, name: String) {
        let id = self.client.next_subscription();
        self.client.private.subscribe(id, &name);
        let headers = vec![("id", id.to_string()), ("destination", name.clone())];
        self.write("SUBSCRIBE", headers, b"", Request::SubscribeOwn(id, name));
    }

    fn unsubscribe_from_own(&mut self) -> Option<()> {
        let own = &mut self.client.private;
        let explicit = own.subscriptions.iter().map(|(id, name)| (*id, id.to_string(), name.clone()));
        let implicit = own.implicit.iter().map(|name| (0, name.clone(), name.clone()));
        let all: Vec<_> = explicit.chain(implicit).collect();
        let (mut id, text, name) = all.choose(self.random)?.clone();
        if id == 0 {
            id = self.client.next_subscription(); // of the request: there is no such subscription
            self.client.private.leave(id, |other| other == name);
        } else {
            own.unsubscribe(id, &name);
        }
        self.write("UNSUBSCRIBE", vec![("id", text)], b"", Request::Unsubscribe(id));
        Some(())
    }

    /// Consumes everything that is left in the client's temporary queues, at the end.
    pub fn consume_own(&mut self) {
        let own = &self.client.private;
        let is_left = |name: &&String| name.starts_with("/temp-queue/") && !own.is_consumed(name);
        let names: Vec<String> = own.names.iter().filter(is_left).cloned().collect();
        names.into_iter().for_each(|name| self.subscribe_own(name));
    }
}
