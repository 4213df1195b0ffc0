//! UNSUBSCRIBE (STOMP 1.2, "UNSUBSCRIBE"), and how a connection's subscriptions are found.

use stompica_proto::encode::Offender;
use stompica_proto::error::Code;
use stompica_proto::{Frame, ProtocolError};

use crate::ids::ConnKey;
use crate::options;
use crate::queue::mail::QueueMail;
use crate::router::group::SubscriptionIndex;
use crate::shard::Shard;

impl Shard {
    /// Removes a subscription, by its id or, for 1.0, by its destination. A durable one, named as such, ends.
    pub(super) fn unsubscribe(
        &mut self,
        key: ConnKey,
        frame: &Frame<'_>,
        name: &[u8],
        receipt: Option<&[u8]>,
    ) -> Result<(), ProtocolError> {
        let durable = options::durable_of(frame, Some(name))?;
        let index = self.find_subscription(key, name).or_else(|| self.find_by_destination(key, name));
        // The headers of a durable subscription change nothing for a queue.
        let is_other = index
            .is_some_and(|index| self.router.receiver_mut(index).is_none_or(|receiver| !receiver.durable));
        let durable = durable.filter(|_| !is_other);
        match index {
            Some(index) => self.leave(key, index),
            None if durable.is_some() => {}
            None => {
                let name = String::from_utf8_lossy(name);
                let text = format!("'{name}' is no subscription of this connection");
                return Err(ProtocolError::new(Code::SubscriptionUnknown, text));
            }
        }
        let Some(durable) = durable else {
            self.receipt(key, receipt);
            return Ok(());
        };
        let name = self.durable_name(key, &durable.name);
        let home = self.router.home(&name);
        let asker = self.ask(key, receipt, home.bit()).asker();
        let offender: Offender = crate::shard::describe(frame);
        self.tell(home, QueueMail::EndDurable(name, asker, Box::new(offender)));
        Ok(())
    }

    /// Removes a subscription of a connection that stays.
    fn leave(&mut self, key: ConnKey, index: SubscriptionIndex) {
        let hash = self.subscription_hash(&self.router.subscriptions[index as usize].id);
        let mut full = false;
        if let Some(conn) = self.conns.get_mut(key) {
            full = conn.full_since_ms.is_some();
            if let Ok(found) = conn.subscriptions.find_entry(hash, |&at| at == index) {
                found.remove();
            }
        }
        self.remove_subscription(index, full);
    }

    /// A connection's subscription by its id.
    pub(super) fn find_subscription(&self, key: ConnKey, name: &[u8]) -> Option<SubscriptionIndex> {
        let conn = self.conns.get(key)?;
        let hash = self.subscription_hash(name);
        conn.subscriptions.find(hash, |&at| *self.router.subscriptions[at as usize].id == *name).copied()
    }

    /// STOMP 1.0 may unsubscribe by destination what it subscribed with an id.
    fn find_by_destination(&self, key: ConnKey, name: &[u8]) -> Option<SubscriptionIndex> {
        let conn =
            self.conns.get(key).filter(|conn| conn.session.version() == stompica_proto::Version::V1_0)?;
        let named = |at: &SubscriptionIndex| {
            let found = &self.router.subscriptions[*at as usize];
            match (&found.receiver, found.entry()) {
                (Some(receiver), _) => *receiver.destination == *name,
                (None, entry) => entry.is_some_and(|entry| self.router.entry_name(entry) == name),
            }
        };
        conn.subscriptions.iter().copied().find(|at| named(at))
    }
}
