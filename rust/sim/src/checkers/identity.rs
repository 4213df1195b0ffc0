//! A `message-id` names one message, and stays the same over all deliveries.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Checker, broken};
use crate::events::{AckMode, ClientId, Event, MessageId, Request, SubscriptionId, Violation};
use crate::frames::Version;

/// Follows which `message-id` belongs to which message.
#[derive(Debug, Default)]
pub struct Identity {
    modes: BTreeMap<(ClientId, SubscriptionId), AckMode>,
    ids: BTreeMap<MessageId, String>,
    messages: BTreeMap<String, MessageId>,
}

impl Checker for Identity {
    fn see(&mut self, event: &Event, _: Duration) -> Result<(), Violation> {
        match event {
            Event::Requested(client, Request::Subscribe(subscription)) => {
                self.modes.insert((*client, subscription.id), subscription.ack);
            }
            Event::Delivered(client, delivery) => {
                let mode = self.modes.get(&(*client, delivery.subscription));
                // In STOMP 1.0 an ACK names the message-id, so there it names the delivery.
                if delivery.version == Version::V10 && mode != Some(&AckMode::Auto) {
                    return Ok(());
                }
                let (message, id) = (delivery.message, &delivery.message_id);
                let known = self.ids.entry(message).or_insert_with(|| id.clone());
                if known != id {
                    return broken("identity", format!("{message} has the ids {known} and {id}"));
                }
                let other = self.messages.entry(id.clone()).or_insert(message);
                if *other != message {
                    return broken("identity", format!("{message} and {other} have the id {id}"));
                }
            }
            _ => {}
        }
        Ok(())
    }
}
