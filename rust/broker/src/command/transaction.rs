//! BEGIN and ABORT, and frames that wait for COMMIT (STOMP 1.2, "BEGIN").

use stompica_proto::ProtocolError;
use stompica_proto::error::Code;

use super::Owners;
use crate::connection::transaction::{self, Operation};
use crate::ids::ConnKey;

/// What the open transactions of a connection that has to acknowledge may take whatever memory is held: some 16 ACKs, so that
/// a worker can free memory.
const SMALL_BYTES: usize = 2 << 10;
/// The same of other connections while memory is short: the name of a transaction.
const NAME_BYTES: usize = 256;

impl Owners<'_> {
    pub(super) fn begin(&mut self, key: ConnKey, id: &[u8]) -> Result<(), ProtocolError> {
        self.require_memory_for_transaction(key, id.len())?;
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

    /// Keeps an ACK or NACK until COMMIT, unless memory is short.
    pub(super) fn keep_ack_for_commit(
        &mut self,
        key: ConnKey,
        transaction: &[u8],
        ack: Operation,
    ) -> Result<(), ProtocolError> {
        self.require_memory_for_transaction(key, size_of::<Operation>())?;
        self.keep_for_commit(key, transaction, ack)
    }

    /// Refuses a BEGIN, ACK or NACK of a connection whose open transactions take much while memory is short. Such a
    /// frame cannot wait as a SEND does: the COMMIT that frees the memory comes behind it. Messages do not count here:
    /// a SEND has waited for memory, and the ACK of a worker follows its result.
    ///
    /// # Errors
    /// `E-MEMORY`.
    fn require_memory_for_transaction(&mut self, key: ConnKey, bytes: usize) -> Result<(), ProtocolError> {
        if !self.turn.memory.is_paging {
            return Ok(()); // no turn brings it from 60 % to a shortage
        }
        let open = self.connections.table.get(key).and_then(|conn| conn.transactions.as_ref());
        let own = open.map_or(0, |open| open.bytes_besides_sends()) + bytes;
        if own <= NAME_BYTES {
            return Ok(());
        }
        let writes = self.connections.table.get(key).and_then(|conn| conn.pending_writes.as_ref());
        let acknowledges = writes.is_some_and(|writes| writes.unacked > 0);
        self.delivery().count_memory(); // transactions of other connections may have grown since the turn began
        let (held, limit) = (self.turn.held_bytes(), self.turn.memory_limit());
        if !self.turn.memory.is_short_at(held, limit) {
            return Ok(());
        }
        let most = match acknowledges {
            false => NAME_BYTES,
            true if held >= limit => SMALL_BYTES,
            true => self.connections.unfinished.portion(),
        };
        if own <= most {
            return Ok(());
        }
        let text = format!(
            "{held} bytes are held, memory_limit is {limit}: the connection's open transactions may take {most} bytes"
        );
        Err(ProtocolError::new(Code::Memory, text))
    }

    /// Refuses a frame of a transaction that is not open.
    pub(super) fn require_transaction(&mut self, key: ConnKey, id: &[u8]) -> Result<(), ProtocolError> {
        let open = self.connections.table.get(key).and_then(|conn| conn.transactions.as_ref());
        open.filter(|open| open.is_open(id)).map(drop).ok_or_else(|| transaction::not_open(id))
    }
}
