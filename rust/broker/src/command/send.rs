//! Hot path: SEND to a topic.

use stompica_proto::encode::Message;
use stompica_proto::{Frame, ProtocolError, header};

use super::Flow;
use crate::ids::ConnKey;
use crate::router::DestinationIndex;
use crate::shard::Shard;
use smallvec::SmallVec;

/// A SEND as the session has read it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent<'a> {
    pub destination: &'a [u8],
    pub transaction: Option<&'a [u8]>,
    pub headers: &'a [u8],
    pub plain: bool,
    pub body: &'a [u8],
}

impl Shard {
    /// Publishes a message, or keeps it for COMMIT.
    pub(super) fn send(
        &mut self,
        key: ConnKey,
        frame: &Frame<'_>,
        sent: &Sent<'_>,
    ) -> Result<Flow, ProtocolError> {
        let destination = self.router.destination(sent.destination)?;
        let mut message = Message {
            destination: sent.destination,
            id: b"",
            headers: sent.headers,
            plain: sent.plain,
            body: sent.body,
        };
        if let Some(transaction) = sent.transaction {
            self.keep_for_commit(key, transaction, &message)?;
        } else {
            let shards = self.router.remote(destination);
            if let Some(pause) = self.pause_for(destination, shards, sent.body.len()) {
                self.park(key, pause);
                return Ok(Flow::Parked);
            }
            if let Some(conn) = self.conns.get_mut(key) {
                conn.waits_since_ms = None;
            }
            let id = SmallVec::<[u8; 40]>::from_slice(self.ids.next_id());
            message.id = &id;
            self.publish(&message, destination, shards);
        }
        let receipt = frame.header(header::RECEIPT);
        if receipt.is_some() {
            self.receipt(key, receipt.as_deref(), 0);
        }
        Ok(Flow::Done)
    }

    /// Gives a message to the local subscriptions and to the other shards that have some.
    pub(super) fn publish(&mut self, message: &Message<'_>, destination: DestinationIndex, shards: u64) {
        self.counters.messages_in += 1;
        if shards != 0 {
            self.mail_message(message, shards);
        }
        self.deliver(message, destination);
    }
}
