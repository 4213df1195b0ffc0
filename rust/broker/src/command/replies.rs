//! Answers without a SUBSCRIBE, as in RabbitMQ: a SEND whose `reply-to` names a temporary queue of its sender also
//! subscribes the sender to that queue under the queue's name, with `ack:auto`. An explicit SUBSCRIBE, before or
//! after, replaces this subscription.

use stompica_proto::session::AckMode;
use stompica_proto::{Frame, ProtocolError};

use super::Owners;
use super::subscribe::Wanted;
use crate::destination::shown;
use crate::door::planted;
use crate::ids::ConnKey;
use crate::message::options::SubscribeOptions;
use crate::queue::QueueKind;
use crate::text::Text;

impl Owners<'_> {
    /// Subscribes a connection to its temporary queue, unless that has a consumer already. `name` is the connection's
    /// name of the queue, `full` the broker's.
    ///
    /// # Errors
    /// `E-SUB-COUNT`.
    pub(super) fn subscribe_to_answers(
        &mut self,
        key: ConnKey,
        frame: &Frame<'_>,
        name: &[u8],
        full: &[u8],
    ) -> Result<(), ProtocolError> {
        // An id that is in use is left to the client.
        if self.queues.home.find(full).is_none_or(|queue| self.queues.home.is_consumed(queue))
            || self.find_subscription(key, name).is_some()
        {
            return Ok(());
        }
        let own = || self.connections.table.get(key).and_then(|conn| conn.temporary.as_ref());
        if planted!("implicit-consumer-forgotten", if own().is_some_and(|own| own.answered.contains(name))) {
            return Ok(());
        }
        self.check_subscription(key, name)?;
        let wanted =
            Wanted { frame, id: Some(name), destination: name, ack: AckMode::Auto, without_backlog: None };
        let options = SubscribeOptions::default();
        self.subscribe_named(key, full, QueueKind::Temporary, &wanted, &options, None)?;
        if let Some(own) = self.connections.table.get_mut(key).and_then(|conn| conn.temporary.as_mut()) {
            own.answered.insert(name.into());
        }
        Ok(())
    }

    /// Replaces the implicit subscriptions to this temporary queue, or to all that match this pattern, with an explicit
    /// one.
    pub(super) fn leave_answers(&mut self, key: ConnKey, destination: &[u8]) {
        let Some(own) = self.connections.table.get_mut(key).and_then(|conn| conn.temporary.as_mut()) else {
            return;
        };
        if own.answered.is_empty() || planted!("implicit-consumer-stays") {
            return;
        }
        let name = shown(destination);
        let left: Vec<Text> = match self.router.parse(&name) {
            Ok(Some(pattern)) => {
                self.turn.budget.visit(own.answered.len());
                own.answered.extract_if(|name| pattern.matches(name)).collect()
            }
            _ => own.answered.take(&*name).into_iter().collect(),
        };
        for name in left {
            // The client may have unsubscribed meanwhile, and may use the id for something else.
            let index = self.find_subscription(key, &name).filter(|index| {
                self.queues.consumers.at(*index).is_some_and(|consumer| *consumer.destination == *name)
            });
            if let Some(index) = index {
                self.leave(key, index);
            }
        }
    }
}
