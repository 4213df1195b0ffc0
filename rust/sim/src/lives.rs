//! The lives of the broker: one ends with each crash. Most checkers judge a single life, and what was sent in it; those of
//! what survives see everything (`checkers/survival`).

use crate::events::{ClientId, Event, MessageId, Request};

/// Where the current life of the broker begins.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Lives {
    /// How many have ended.
    pub(crate) ended: u64,
    first_client: ClientId,
    first_message: MessageId,
}

impl Lives {
    /// A new life begins: these are the numbers of its first client and its first message.
    pub(crate) fn begin(&mut self, first_client: ClientId, first_message: MessageId) {
        *self = Lives { ended: self.ended + 1, first_client, first_message };
    }

    /// The event without messages of earlier lives; `None`: it is about an earlier life.
    pub(crate) fn of_this_life(&self, event: Event) -> Option<Event> {
        if self.ended == 0 {
            return Some(event);
        }
        let is_new = |message: MessageId| message >= self.first_message;
        match event {
            Event::Unread(client, ..) | Event::Released(client) | Event::Ended(client, _)
                if client < self.first_client =>
            {
                None
            }
            Event::Delivered(_, ref delivery) => is_new(delivery.message).then_some(event),
            Event::Work(_, ref delivery) => is_new(delivery.message).then_some(event),
            Event::Unread(_, _, message) | Event::Damaged(message) => is_new(message).then_some(event),
            Event::Requested(client, request) => Some(Event::Requested(client, self.of(request))),
            Event::Confirmed(client, request) => Some(Event::Confirmed(client, self.of(request))),
            Event::Refused(client, request) => Some(Event::Refused(client, self.of(request))),
            event => Some(event),
        }
    }

    fn of(&self, mut request: Request) -> Request {
        match &mut request {
            Request::Ack(_, messages, _)
            | Request::Nack(_, messages, _)
            | Request::Reject(_, messages, _) => {
                messages.retain(|message| *message >= self.first_message);
            }
            Request::Work(inner) => **inner = self.of((**inner).clone()),
            _ => {}
        }
        request
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::End;

    #[test]
    fn what_concerns_an_earlier_life_is_not_told() {
        let mut lives = Lives::default();
        let acked = |messages| Event::Requested(5, Request::Ack(1, messages, None));
        assert_eq!(lives.of_this_life(acked(vec![1, 10])), Some(acked(vec![1, 10])));
        lives.begin(5, 10);
        assert_eq!(lives.of_this_life(acked(vec![1, 10])), Some(acked(vec![10])));
        assert_eq!(lives.of_this_life(Event::Ended(4, End::Lost)), None);
        assert_eq!(lives.of_this_life(Event::Damaged(9)), None);
        assert!(lives.of_this_life(Event::Ended(5, End::Lost)).is_some());
    }
}
