//! Worker topics and stale messages: which destinations they are, and which requests concern them. Checkers that know nothing
//! of `TTL` do not see these.

use crate::client::Client;
use crate::events::{Event, Request, SubscriptionId};

/// The beginning of worker topics.
pub const WORK: &str = "#work/";
/// The beginning of topics whose messages become stale.
pub const STALE: &str = "/stale/";

/// Whether a destination of a SUBSCRIBE or a SEND is one of them, or a queue of their dead letters.
#[must_use]
pub fn is_work(destination: &str) -> bool {
    let rest = destination.strip_prefix("/queue/dlq/");
    destination.starts_with('#')
        || destination.starts_with(STALE)
        || rest.is_some_and(|rest| rest.starts_with(WORK) || rest.starts_with(&STALE[1..]))
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

/// An event as a checker of worker topics and stale messages sees it; `None`: it does not concern them.
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
