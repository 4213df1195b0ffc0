//! Events as a trace shows them.

use super::{Delivery, Event};

impl Event {
    /// For people, without bodies.
    #[must_use]
    pub fn shown(&self) -> String {
        let without_body = |delivery: &Delivery| Delivery { body: Vec::new(), ..delivery.clone() };
        match self {
            Event::Delivered(client, delivery) => format!("{client} received {:?}", without_body(delivery)),
            Event::Work(client, delivery) => format!("{client} got work {:?}", without_body(delivery)),
            other => format!("{other:?}"),
        }
    }
}
