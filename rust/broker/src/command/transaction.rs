//! BEGIN, COMMIT and ABORT (STOMP 1.2, "BEGIN").

use smallvec::SmallVec;
use stompica_proto::ProtocolError;
use stompica_proto::encode::Message;
use stompica_proto::error::Code;

use crate::ids::{ConnKey, ShardId};
use crate::shard::Shard;

impl Shard {
    pub(super) fn begin(&mut self, key: ConnKey, id: &[u8]) -> Result<(), ProtocolError> {
        let open_max = self.config.max_transactions;
        let Some(conn) = self.conns.get_mut(key) else { return Ok(()) };
        conn.transactions.get_or_insert_default().begin(id, open_max)
    }

    /// Publishes all messages of a transaction, in their order and without anything between them.
    pub(super) fn commit(&mut self, key: ConnKey, id: &[u8]) -> Result<(), ProtocolError> {
        let Some(conn) = self.conns.get_mut(key) else { return Ok(()) };
        let batch = conn.transactions.get_or_insert_default().end(id)?;
        let mut at = 0;
        while let Some((message, next)) = batch.next_for(ShardId(0), at) {
            at = next;
            let destination = self.router.destination(message.destination)?;
            let shards = self.router.remote(destination);
            let id = SmallVec::<[u8; 40]>::from_slice(self.ids.next_id());
            self.publish(&Message { id: &id, ..message }, destination, shards);
        }
        Ok(())
    }

    pub(super) fn abort(&mut self, key: ConnKey, id: &[u8]) -> Result<(), ProtocolError> {
        let Some(conn) = self.conns.get_mut(key) else { return Ok(()) };
        conn.transactions.get_or_insert_default().end(id).map(drop)
    }

    /// Keeps a SEND until COMMIT.
    pub(super) fn keep_for_commit(
        &mut self,
        key: ConnKey,
        transaction: &[u8],
        message: &Message<'_>,
    ) -> Result<(), ProtocolError> {
        let bytes_max = self.config.max_transaction_size;
        let Some(conn) = self.conns.get_mut(key) else { return Ok(()) };
        conn.transactions.get_or_insert_default().add(transaction, message, bytes_max)
    }

    /// Refuses a frame of a transaction that is not open.
    pub(super) fn require_transaction(&mut self, key: ConnKey, id: &[u8]) -> Result<(), ProtocolError> {
        let open = self
            .conns
            .get(key)
            .and_then(|conn| conn.transactions.as_ref())
            .is_some_and(|all| all.is_open(id));
        if open {
            return Ok(());
        }
        let text = format!("transaction '{}' is not open", String::from_utf8_lossy(id));
        Err(ProtocolError::new(Code::TransactionUnknown, text))
    }
}
