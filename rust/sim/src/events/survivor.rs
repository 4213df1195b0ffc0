//! What a log has after a crash.

use stompica_broker::simulated::Found;

use super::{Message, MessageId};

/// A message that the log has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Survivor {
    /// Its queue, as the store knows it.
    pub queue: String,
    /// Its place in the queue.
    pub place: u64,
    /// Its record.
    pub record: u64,
    /// Its destination.
    pub destination: String,
    /// The message, if a client of the simulator has sent it.
    pub message: Option<MessageId>,
    /// The name of the durable subscription that it defines.
    pub name: String,
    /// How often it was delivered, as far as the log knows.
    pub deliveries: u64,
}

impl Survivor {
    /// From what was found.
    #[must_use]
    pub fn new(found: &Found) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let message = Message::id_in(&found.body);
        Survivor {
            queue: text(&found.queue),
            place: found.place,
            record: found.record,
            destination: text(&found.destination),
            message,
            name: if message.is_none() { text(&found.body) } else { String::new() },
            deliveries: u64::from(found.counts.deliveries),
        }
    }

    /// Whether it waits in a queue of clients that is no queue of dead letters.
    #[must_use]
    pub fn is_at_work(&self) -> bool {
        self.queue.starts_with("/queue/") && !self.queue.starts_with("/queue/dlq/")
    }

    /// Whether it is a message of a queue, at its queue or as its dead letter.
    #[must_use]
    pub fn is_of_queue(&self) -> bool {
        let dead = self.queue.strip_prefix("/queue/dlq/");
        // Copies of one message may become several dead letters of topics.
        self.is_at_work()
            || dead.is_some_and(|name| {
                !["topic/", "stale/", "last/"].iter().any(|start| name.starts_with(start))
            })
    }
}
