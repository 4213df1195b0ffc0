//! A message arrives as it was sent: destination, headers, body; and not after it has expired.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Checker, broken};
use crate::events::{Event, Message, MessageId, Request, Violation};
use crate::frames::Version;

/// Follows what was sent.
#[derive(Debug, Default)]
pub struct Content {
    sent: BTreeMap<MessageId, Message>,
}

impl Checker for Content {
    fn see(&mut self, event: &Event, _: Duration) -> Result<(), Violation> {
        match event {
            Event::Requested(_, Request::Send(message)) => {
                self.sent.insert(message.id, message.clone());
            }
            Event::Delivered(client, delivery) => {
                let Some(sent) = self.sent.get(&delivery.message) else {
                    return broken(
                        "content",
                        format!("client {client} got a message that nobody sent: {delivery:?}"),
                    );
                };
                let name = sent.destination.strip_prefix("/queue").unwrap_or(&sent.destination);
                let dead = format!("/queue/dlq/{}", name.strip_prefix('/').unwrap_or(name));
                let expected = if delivery.dead_letter.is_some() { &dead } else { &sent.destination };
                if delivery.destination != *expected {
                    return broken("content", format!("sent to {expected}, but {delivery:?}"));
                }
                // STOMP 1.0 has neither escapes nor empty values, so such a header cannot be sent to it.
                let may_lack = delivery.version == Version::V10
                    && (sent.header.contains('\n') || sent.header.is_empty());
                if delivery.header.as_ref() != Some(&sent.header) && !(may_lack && delivery.header.is_none())
                {
                    let text =
                        format!("{:?} became {:?} in {}", sent.header, delivery.header, delivery.message);
                    return broken("content", text);
                }
                if delivery.body != sent.body() {
                    let lens = (sent.body().len(), delivery.body.len());
                    return broken(
                        "content",
                        format!("the body of {} has changed; lengths {lens:?}", sent.id),
                    );
                }
            }
            _ => {}
        }
        Ok(())
    }
}
