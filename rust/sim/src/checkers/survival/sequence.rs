//! The order of a queue survives crashes: the messages of one publisher have places in their order, and each consumer gets the
//! messages of earlier lives in the order of their places.

use std::collections::BTreeMap;
use std::time::Duration;

use super::super::{Checker, broken};
use crate::events::{ClientId, Delivery, Event, MessageId, Request, SubscriptionId, Survivor, Violation};
use crate::work::plain;

/// Follows places.
#[derive(Debug, Default)]
pub struct Sequence {
    /// The publishers of messages to queues that belong to no transaction.
    publishers: BTreeMap<MessageId, ClientId>,
    /// The places that the last crash has left, and the deliveries so far.
    places: BTreeMap<(String, MessageId), (u64, u64)>,
    /// The last place that each consumer has got.
    last: BTreeMap<(ClientId, SubscriptionId, String), (u64, MessageId)>,
}

impl Sequence {
    fn recover(&mut self, survivors: &[Survivor]) -> Result<(), Violation> {
        let mut last: BTreeMap<(&str, ClientId), MessageId> = BTreeMap::new();
        self.places.clear();
        for survivor in survivors.iter().filter(|survivor| survivor.is_at_work()) {
            let Some(id) = survivor.message else { continue };
            self.places.insert((survivor.queue.clone(), id), (survivor.place, survivor.deliveries));
            let Some(publisher) = self.publishers.get(&id) else { continue };
            let before = last.insert((&survivor.queue, *publisher), id).unwrap_or_default();
            if before > id {
                let text = format!("{id} of client {publisher} is behind {before} in {}", survivor.queue);
                return broken("sequence", text);
            }
        }
        self.last.clear();
        Ok(())
    }

    fn deliver(&mut self, client: ClientId, delivery: &Delivery) -> Result<(), Violation> {
        let (destination, id) = (&delivery.destination, delivery.message);
        let Some((place, deliveries)) = self.places.get(&(destination.clone(), id)) else { return Ok(()) };
        if delivery.count != deliveries + 1 || delivery.dead_letter.is_some() {
            return Ok(());
        }
        let key = (client, delivery.subscription, destination.clone());
        let (before, other) = self.last.insert(key, (*place, id)).unwrap_or_default();
        match before > *place {
            true => broken("sequence", format!("client {client} got {id} of {destination} behind {other}")),
            false => Ok(()),
        }
    }
}

impl Checker for Sequence {
    fn see(&mut self, event: &Event, _: Duration) -> Result<(), Violation> {
        match event {
            Event::Requested(client, request) => {
                if let Request::Send(message) = plain(request)
                    && message.transaction.is_none()
                {
                    self.publishers.insert(message.id, *client);
                }
            }
            Event::Recovered(survivors) => return self.recover(survivors),
            Event::Delivered(client, delivery) => return self.deliver(*client, delivery),
            _ => {}
        }
        Ok(())
    }
}
