//! UNSUBSCRIBE (STOMP 1.2, "UNSUBSCRIBE"), and look-ups of a connection's subscriptions.

use stompica_proto::encode::Offender;
use stompica_proto::error::Code;
use stompica_proto::{Frame, ProtocolError};

use super::Owners;
use crate::connection::flow::Flow;
use crate::connection::pausing::Pause;
use crate::ids::ConnKey;
use crate::message::options::{self, Durable};
use crate::queue::mail::HomeNote;
use crate::router::group::SubscriptionIndex;

impl Owners<'_> {
    /// Removes a subscription by its id, or, in 1.0, by its destination, once it has got what it is owed. A durable one
    /// is removed permanently if the frame names it as such; its name identifies it without the id.
    pub(super) fn unsubscribe(
        &mut self,
        key: ConnKey,
        frame: &Frame<'_>,
        id: Option<&[u8]>,
        destination: Option<&[u8]>,
        receipt: Option<&[u8]>,
    ) -> Result<Flow, ProtocolError> {
        let given = id.or(destination);
        let name = given.unwrap_or_default();
        let durable = options::durable_of(frame, Some(name))?;
        let index = given.and_then(|name| {
            self.find_subscription(key, name).or_else(|| self.find_by_destination(key, name))
        });
        if let Some(index) = index
            && self.delivery().is_owed_at_its_end(index)
        {
            self.connections.park_for(self.turn, key, Pause::Deferred, Some(index));
            return Ok(Flow::Parked);
        }
        let held =
            index.and_then(|index| Some(self.queues.consumers.at(index)?.durable.as_deref().map(Box::from)));
        let asked = match (durable, held) {
            (None, _) => None,
            // The headers of a durable subscription do not affect another kind.
            (Some(_), held) if index.is_some() && held.as_ref().is_none_or(Option::is_none) => None,
            // RabbitMQ identifies a durable subscription by its id; in 1.0 it may have been found by its destination.
            (Some(Durable { shared: true, .. }), Some(Some(held))) => Some(held),
            (Some(durable), _) => Some(self.durable_name(key, &durable.name)),
        };
        let holder = asked.as_deref().and_then(|asked| self.find_holder(key, asked));
        if index.is_none() && asked.is_none() {
            let name = String::from_utf8_lossy(name);
            let text = format!("'{name}' is not a subscription of this connection");
            return Err(ProtocolError::new(Code::SubscriptionUnknown, text));
        }
        for index in [index, holder.filter(|holder| Some(*holder) != index)].into_iter().flatten() {
            self.leave(key, index);
        }
        let Some(name) = asked else {
            self.receipt(key, receipt);
            return Ok(Flow::Done);
        };
        let home = self.router.home(&name);
        let requester = self.connections.ask(self.turn, key, receipt, home.bit()).requester();
        let offender: Offender = crate::connection::answering::describe(frame);
        self.notes.tell(home, HomeNote::EndDurable(name, requester, Box::new(offender)));
        Ok(Flow::Done)
    }

    /// The connection's subscription that holds a durable subscription, by its full name.
    fn find_holder(&mut self, key: ConnKey, durable: &[u8]) -> Option<SubscriptionIndex> {
        let conn = self.connections.table.get(key)?;
        self.turn.budget.visit(conn.subscriptions.len());
        let holds = |at: &SubscriptionIndex| {
            self.queues.consumers.at(*at).is_some_and(|consumer| consumer.durable.as_deref() == Some(durable))
        };
        conn.subscriptions.iter().copied().find(|at| holds(at))
    }

    /// Removes a subscription of a connection that stays open.
    pub(super) fn leave(&mut self, key: ConnKey, index: SubscriptionIndex) {
        let hash = self.subscription_hash(&self.router.subscriptions[index as usize].id);
        let mut full = false;
        if let Some(conn) = self.connections.table.get_mut(key) {
            full = conn.output.is_full();
            if let Ok(found) = conn.subscriptions.find_entry(hash, |&at| at == index) {
                found.remove();
            }
        }
        self.remember_held(key, index);
        self.remove_subscription(index, full);
    }

    /// Finds a connection's subscription by its id.
    pub(super) fn find_subscription(&self, key: ConnKey, name: &[u8]) -> Option<SubscriptionIndex> {
        let conn = self.connections.table.get(key)?;
        let hash = self.subscription_hash(name);
        conn.subscriptions.find(hash, |&at| *self.router.subscriptions[at as usize].id == *name).copied()
    }

    /// Finds a subscription by destination: STOMP 1.0 may unsubscribe this way even if the subscription has an id.
    fn find_by_destination(&mut self, key: ConnKey, name: &[u8]) -> Option<SubscriptionIndex> {
        let conn = self
            .connections
            .table
            .get(key)
            .filter(|conn| conn.protocol.session.version() == stompica_proto::Version::V1_0)?;
        self.turn.budget.visit(conn.subscriptions.len());
        let named = |at: &SubscriptionIndex| {
            let found = &self.router.subscriptions[*at as usize];
            match (self.queues.consumers.at(*at), found.filter_index()) {
                (Some(consumer), _) => *consumer.destination == *name,
                (None, filter) => filter.is_some_and(|filter| self.router.filter_name(filter) == name),
            }
        };
        conn.subscriptions.iter().copied().find(|at| named(at))
    }
}
