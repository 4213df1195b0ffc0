//! SUBSCRIBE and UNSUBSCRIBE.

use std::hash::BuildHasher as _;
use std::sync::Arc;

use stompica_proto::error::Code;
use stompica_proto::session::AckMode;
use stompica_proto::{Frame, ProtocolError};

use crate::config::Wildcards;
use crate::ids::ConnKey;
use crate::log::Level;
use crate::router::InterestChange;
use crate::router::group::{Dialect, SubscriptionIndex};
use crate::shard::Shard;
use crate::shard::mailbox::Mail;

/// Headers of SUBSCRIBE that promise what this version cannot keep. They are refused rather than passed over: whoever
/// asks for a durable subscription must not lose messages without knowing.
const UNBUILT: [&[u8]; 7] = [
    b"durable",
    b"activemq.subscriptionName",
    b"durable-subscription-name",
    b"replay-from",
    b"x-stream-offset",
    b"selector",
    b"exclusive",
];

/// Refuses a SUBSCRIBE that asks for what is not built yet.
///
/// # Errors
/// `E-NOT-SUPPORTED`, naming the header.
pub(super) fn refuse_unbuilt(frame: &Frame<'_>) -> Result<(), ProtocolError> {
    let asked = UNBUILT.into_iter().find(|name| frame.raw(name).is_some_and(|value| value != b"false"));
    asked.map_or(Ok(()), |name| {
        let text = format!(
            "header '{}': not built yet in this version; leave it out",
            String::from_utf8_lossy(name)
        );
        Err(ProtocolError::new(Code::NotSupported, text))
    })
}

impl Shard {
    /// Adds a subscription. It is live for the next frame of this connection; its RECEIPT leaves when every shard
    /// knows of it.
    pub(super) fn subscribe(
        &mut self,
        key: ConnKey,
        id: Option<&[u8]>,
        destination: &[u8],
        ack: AckMode,
        receipt: Option<&[u8]>,
    ) -> Result<(), ProtocolError> {
        let name = id.unwrap_or(destination);
        if self.find_subscription(key, name).is_some() {
            let text = format!("'{}' is in use on this connection", String::from_utf8_lossy(name));
            return Err(ProtocolError::new(Code::SubscriptionDuplicate, text));
        }
        let subscriptions_max = self.config.max_subscriptions;
        let Some(conn) = self.conns.get(key) else { return Ok(()) };
        if conn.subscriptions.len() >= subscriptions_max {
            let text = format!("max_subscriptions is {subscriptions_max}");
            return Err(ProtocolError::new(Code::SubscriptionCount, text));
        }
        let dialect = Dialect { framing: conn.framing(), version: conn.session.version() };
        let full = conn.full_since_ms.is_some();
        // Frames that were encoded before belong to those who were members before.
        self.hand_out();
        let (index, change) = self.router.subscribe(destination, key, id, ack, dialect)?;
        let hash = self.subscription_hash(name);
        let (subscriptions, hasher) = (&self.router.subscriptions, &self.subscription_hasher);
        if let Some(conn) = self.conns.get_mut(key) {
            conn.subscriptions
                .insert_unique(hash, index, |&at| hasher.hash_one(&*subscriptions[at as usize].id));
        }
        if full {
            self.change_full_of(index, true);
        }
        self.hint_at_deep_wildcard(destination);
        let others = self.shared_len() - 1;
        // Where nobody waits for the answer, the news is enough, and only the first subscription is news. A RECEIPT
        // asks everybody even so: the news of an earlier subscription may still be on its way.
        let waiting = if receipt.is_some() { others as u32 } else { 0 };
        let token = self.receipt(key, receipt, waiting);
        if others > 0 && (waiting > 0 || change == InterestChange::Changed) {
            let reply = (waiting > 0).then_some((key, token));
            let name: Arc<[u8]> = destination.into();
            self.tell_all(|from| Mail::Interest { from, name: Arc::clone(&name), interested: true, reply });
        }
        Ok(())
    }

    /// Removes a subscription, by its id or, for 1.0, by its destination.
    pub(super) fn unsubscribe(&mut self, key: ConnKey, name: &[u8]) -> Result<(), ProtocolError> {
        let index = self.find_subscription(key, name).or_else(|| self.find_by_destination(key, name));
        let Some(index) = index else {
            let text = format!("'{}' is no subscription of this connection", String::from_utf8_lossy(name));
            return Err(ProtocolError::new(Code::SubscriptionUnknown, text));
        };
        let hash = self.subscription_hash(&self.router.subscriptions[index as usize].id);
        let mut full = false;
        if let Some(conn) = self.conns.get_mut(key) {
            full = conn.full_since_ms.is_some();
            if let Ok(found) = conn.subscriptions.find_entry(hash, |&at| at == index) {
                found.remove();
            }
        }
        self.remove_subscription(index, full);
        Ok(())
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
            self.router.entry_name(self.router.subscriptions[*at as usize].entry) == name
        };
        conn.subscriptions.iter().copied().find(|at| named(at))
    }

    fn subscription_hash(&self, name: &[u8]) -> u64 {
        self.subscription_hasher.hash_one(name)
    }

    /// Tells once that a trailing `*` of a dotted pattern reaches deeper than in other brokers.
    fn hint_at_deep_wildcard(&mut self, pattern: &[u8]) {
        let deep = self.config.wildcards == Wildcards::Ancestor && pattern.ends_with(b".*");
        if deep && !self.hinted {
            self.hinted = true;
            self.log(Level::Info, || {
                format!(
                    "'{}' matches whatever remains of a destination; wildcards=segment makes it one segment",
                    String::from_utf8_lossy(pattern)
                )
            });
        }
    }
}
