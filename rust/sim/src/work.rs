//! Worker topics, and topics with stale or retained messages: which destinations they are, and which requests concern them.
//! Checkers that know nothing of `TTL` and `retain` do not see these.

use crate::client::Client;
use crate::events::{Event, Request, SubscriptionId};

/// The beginning of worker topics.
pub const WORK: &str = "#work/";
/// The beginning of topics whose messages become stale.
pub const STALE: &str = "/stale/";
/// The beginning of topics with retained messages.
pub const LAST: &str = "/last/";

/// What a SEND does to the retained message of its topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retain {
    /// `retain:set`.
    Set,
    /// `retain:remove`.
    Remove,
}

impl Retain {
    /// The value of the header.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Retain::Set => "set",
            Retain::Remove => "remove",
        }
    }

    /// What these headers of a SEND ask for.
    #[must_use]
    pub fn among(headers: &[(&'static str, String)]) -> Option<Retain> {
        let value = headers.iter().find(|(name, _)| *name == "retain").map(|(_, value)| value);
        [Retain::Set, Retain::Remove].into_iter().find(|retain| value.is_some_and(|it| it == retain.name()))
    }
}

/// Whether a destination of a SUBSCRIBE or a SEND is one of them, or a queue of their dead letters.
#[must_use]
pub fn is_work(destination: &str) -> bool {
    let rest = destination.strip_prefix("/queue/dlq/");
    destination.starts_with('#')
        || [STALE, LAST].iter().any(|start| destination.starts_with(start))
        || rest
            .is_some_and(|rest| [WORK, &STALE[1..], &LAST[1..]].iter().any(|start| rest.starts_with(start)))
}

/// A request as checkers see it: wrapped, if it concerns one of these destinations.
#[must_use]
pub fn told(client: &Client, request: Request) -> Request {
    let is_own = |id: &SubscriptionId| {
        let current = client.subscriptions.get(id).map(|held| &held.subscription);
        let found = current.or_else(|| client.ended.get(id).map(|(subscription, _)| subscription));
        found.is_some_and(|subscription| is_work(&subscription.destination))
    };
    let is_own = match &request {
        Request::Subscribe(subscription) => is_work(&subscription.destination),
        Request::Send(message) => is_work(&message.destination),
        Request::Unsubscribe(id) | Request::Ack(id, ..) | Request::Nack(id, ..) | Request::Reject(id, ..) => {
            is_own(id)
        }
        _ => false,
    };
    if is_own { Request::Work(Box::new(request)) } else { request }
}

/// The request in its wrapping.
#[must_use]
pub fn plain(request: &Request) -> &Request {
    match request {
        Request::Work(request) => request,
        request => request,
    }
}

/// An event as the checkers of these destinations see it; `None`: it does not concern them.
#[must_use]
pub fn unwrapped(event: &Event) -> Option<Event> {
    let request = |request: &Request| match request {
        Request::Work(request) => Some((**request).clone()),
        Request::Begin(_) | Request::Commit(_) | Request::Abort(_) | Request::Disconnect => {
            Some(request.clone())
        }
        _ => None,
    };
    match event {
        Event::Requested(client, it) => request(it).map(|it| Event::Requested(*client, it)),
        Event::Confirmed(client, it) => request(it).map(|it| Event::Confirmed(*client, it)),
        Event::Refused(client, it) => request(it).map(|it| Event::Refused(*client, it)),
        Event::Work(client, delivery) => Some(Event::Delivered(*client, (**delivery).clone())),
        Event::Delivered(..) => None,
        event => Some(event.clone()),
    }
}
