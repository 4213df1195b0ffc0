//! BEGIN and ABORT, and frames that wait for COMMIT (STOMP 1.2, "BEGIN").

use stompica_proto::ProtocolError;

use super::Owners;
use crate::connection::transaction::{self, Operation};
use crate::ids::ConnKey;

impl Owners<'_> {
    pub(super) fn begin(&mut self, key: ConnKey, id: &[u8]) -> Result<(), ProtocolError> {
        let open_max = self.turn.config.max_transactions;
        let Some(conn) = self.connections.table.get_mut(key) else { return Ok(()) };
        conn.transactions.get_or_insert_default().begin(id, open_max)
    }

    pub(super) fn abort(&mut self, key: ConnKey, id: &[u8]) -> Result<(), ProtocolError> {
        let Some(conn) = self.connections.table.get_mut(key) else { return Ok(()) };
        let operations = conn.transactions.get_or_insert_default().end(id)?;
        self.discard_operations(operations);
        Ok(())
    }

    /// Keeps a frame until COMMIT.
    pub(super) fn keep_for_commit(
        &mut self,
        key: ConnKey,
        transaction: &[u8],
        operation: Operation,
    ) -> Result<(), ProtocolError> {
        let bytes_max = self.turn.config.max_transaction_size;
        let Some(conn) = self.connections.table.get_mut(key) else { return Ok(()) };
        conn.transactions.get_or_insert_default().add(transaction, operation, bytes_max)
    }

    /// Refuses a frame of a transaction that is not open.
    pub(super) fn require_transaction(&mut self, key: ConnKey, id: &[u8]) -> Result<(), ProtocolError> {
        let open = self.connections.table.get(key).and_then(|conn| conn.transactions.as_ref());
        open.filter(|open| open.is_open(id)).map(drop).ok_or_else(|| transaction::not_open(id))
    }
}
