//! A frame that has taken effect is answered before the broker has drained.

use std::collections::BTreeSet;
use std::time::Duration;

use super::{Checker, broken};
use crate::events::{Event, MessageId, Request, Violation};

/// Follows which messages somebody has received.
#[derive(Debug, Default)]
pub struct Drain {
    delivered: BTreeSet<MessageId>,
}

impl Checker for Drain {
    fn see(&mut self, event: &Event, _: Duration) -> Result<(), Violation> {
        match event {
            Event::Delivered(_, delivery) => _ = self.delivered.insert(delivery.message),
            Event::Drained(missing) => {
                for (client, request) in missing {
                    if let Request::Send(message) = request
                        && message.transaction.is_none()
                        && self.delivered.contains(&message.id)
                    {
                        let text =
                            format!("client {client} has no RECEIPT of {request:?}, which was delivered");
                        return broken("drain", text);
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }
}
