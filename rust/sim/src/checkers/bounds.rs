//! No queue holds more than `max_queue_length` messages or `max_queue_bytes` bytes.
//!
//! What new consumers find in a queue at the end was in it all at once.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::{Checker, broken};
use crate::events::{ClientId, Event, MessageId, Violation, is_queue};
use crate::options::Options;

/// Follows what is left in queues when everything is at rest.
#[derive(Debug)]
pub struct Bounds {
    length_max: u64,
    bytes_max: u64,
    /// The clients that were there when everything was at rest.
    open: Option<BTreeSet<ClientId>>,
    /// The messages that others have found in each queue since, and the bytes of their bodies.
    found: BTreeMap<String, (BTreeSet<MessageId>, u64)>,
}

impl Bounds {
    /// Expects what the settings promise.
    #[must_use]
    pub fn new(options: &Options) -> Self {
        let (length_max, bytes_max) = (options.config.max_queue_length, options.config.max_queue_bytes);
        Bounds { length_max, bytes_max, open: None, found: BTreeMap::new() }
    }
}

impl Checker for Bounds {
    fn see(&mut self, event: &Event, _: Duration) -> Result<(), Violation> {
        match event {
            Event::Resting(open) => self.open = Some(open.iter().copied().collect()),
            // Dead letters may still come while others are taken.
            Event::Delivered(client, delivery)
                if self.open.as_ref().is_some_and(|open| !open.contains(client))
                    && is_queue(&delivery.destination)
                    && delivery.dead_letter.is_none() =>
            {
                let (messages, bytes) = self.found.entry(delivery.destination.clone()).or_default();
                if messages.insert(delivery.message) {
                    *bytes += delivery.body.len() as u64;
                }
                if messages.len() as u64 > self.length_max || *bytes > self.bytes_max {
                    let count = messages.len();
                    let text = format!("{count} messages of {bytes} bytes were in {}", delivery.destination);
                    return broken("bounds", text);
                }
            }
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkers::tests::{delivered, message};

    #[test]
    fn a_queue_holds_no_more_than_allowed() {
        let found = |length_max: u64, bytes_max: u64| {
            let mut options = Options::new(1, 1);
            (options.config.max_queue_length, options.config.max_queue_bytes) = (length_max, bytes_max);
            let mut checker = Bounds::new(&options);
            let left = [1, 2].map(|id| delivered(5, 1, &message(id, "/queue/a"), 1));
            let events = [Event::Resting(vec![0])].into_iter().chain(left);
            events.into_iter().find_map(|event| checker.see(&event, Duration::ZERO).err())
        };
        assert_eq!(found(2, 20), None);
        assert!(found(1, 20).is_some_and(|violation| violation.checker == "bounds"));
        assert!(found(2, 19).is_some_and(|violation| violation.checker == "bounds"));
    }
}
