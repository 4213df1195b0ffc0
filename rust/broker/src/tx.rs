//! Transactions of one connection: SENDs that wait for COMMIT (STOMP 1.2, "BEGIN").

use stompica_proto::ProtocolError;
use stompica_proto::encode::Message;
use stompica_proto::error::Code;

use crate::shard::mailbox::Batch;

/// The open transactions of a connection.
#[derive(Debug, Default)]
pub struct Transactions {
    open: Vec<(Box<[u8]>, Batch)>,
    bytes: usize,
}

impl Transactions {
    /// Opens a transaction.
    ///
    /// # Errors
    /// `E-TX-OPEN` if it is open, `E-TX-COUNT` over the limit.
    pub fn begin(&mut self, id: &[u8], open_max: usize) -> Result<(), ProtocolError> {
        if self.find(id).is_some() {
            return Err(error(Code::TransactionOpen, id, "is open already"));
        }
        if self.open.len() >= open_max {
            return Err(error(
                Code::TransactionCount,
                id,
                &format!("is one more than max_transactions={open_max}"),
            ));
        }
        self.open.push((id.into(), Batch::default()));
        Ok(())
    }

    /// Keeps a copy of a SEND until COMMIT.
    ///
    /// # Errors
    /// `E-TX-UNKNOWN`, or `E-TX-COUNT` when the open transactions hold more than `bytes_max`.
    pub fn add(&mut self, id: &[u8], message: &Message<'_>, bytes_max: usize) -> Result<(), ProtocolError> {
        let Some(at) = self.find(id) else { return Err(error(Code::TransactionUnknown, id, "is not open")) };
        let bytes = message.destination.len() + message.headers.len() + message.body.len();
        if self.bytes + bytes > bytes_max {
            return Err(error(
                Code::TransactionCount,
                id,
                &format!("exceeds max_transaction_size={bytes_max}"),
            ));
        }
        self.bytes += bytes;
        self.open[at].1.push(message, 1);
        Ok(())
    }

    /// Ends a transaction, for COMMIT or ABORT; returns what was sent in it.
    ///
    /// # Errors
    /// `E-TX-UNKNOWN`.
    pub fn end(&mut self, id: &[u8]) -> Result<Batch, ProtocolError> {
        let Some(at) = self.find(id) else { return Err(error(Code::TransactionUnknown, id, "is not open")) };
        let batch = self.open.remove(at).1;
        self.bytes -= batch.message_bytes();
        Ok(batch)
    }

    /// Whether a transaction is open.
    #[must_use]
    pub fn is_open(&self, id: &[u8]) -> bool {
        self.find(id).is_some()
    }

    fn find(&self, id: &[u8]) -> Option<usize> {
        self.open.iter().position(|(open, _)| **open == *id)
    }

    /// Bytes reserved by all of them.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.open.iter().map(|(_, batch)| batch.held_bytes()).sum()
    }
}

fn error(code: Code, id: &[u8], what: &str) -> ProtocolError {
    ProtocolError::new(code, format!("transaction '{}' {what}", String::from_utf8_lossy(id)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(body: &[u8]) -> Message<'_> {
        Message { destination: b"/t", id: b"", headers: b"", plain: true, body }
    }

    #[test]
    fn a_transaction_is_opened_filled_and_ended_once() {
        let mut transactions = Transactions::default();
        transactions.begin(b"a", 2).expect("the first");
        assert_eq!(transactions.begin(b"a", 2).expect_err("twice").code, Code::TransactionOpen);
        transactions.begin(b"b", 2).expect("the second");
        assert_eq!(transactions.begin(b"c", 2).expect_err("over the limit").code, Code::TransactionCount);
        transactions.add(b"a", &message(b"12345678"), 12).expect("within the limit");
        assert_eq!(
            transactions.add(b"b", &message(b"1"), 12).expect_err("over").code,
            Code::TransactionCount
        );
        assert_eq!(transactions.end(b"a").expect("open").count_for(crate::ids::ShardId(0)), 1);
        assert_eq!(transactions.end(b"a").expect_err("ended").code, Code::TransactionUnknown);
        transactions.add(b"b", &message(b"12345678"), 12).expect("the space is free again");
        transactions.begin(b"a", 2).expect("an id may be used again");
    }
}
