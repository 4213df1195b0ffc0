//! Transactions of one connection: SENDs, ACKs and NACKs that wait for COMMIT (STOMP 1.2, "BEGIN").

pub mod plan;

use stompica_proto::ProtocolError;
use stompica_proto::encode::Offender;
use stompica_proto::error::Code;

use super::acknowledgement::Acknowledgement;
use crate::collections::paged_deque::PagedDeque;
use crate::connection::transaction::plan::Plan;
use crate::door::planted;
use crate::ids::ShardId;
use crate::message::OwnedMessage;
use crate::message::options::Retain;
use crate::queue::mail::Places;

/// One frame of a transaction.
#[derive(Debug)]
pub enum Operation {
    /// SEND.
    Send(OwnedMessage, Option<Retain>),
    /// ACK or NACK of a delivery.
    Ack {
        /// What it acts on.
        acknowledgement: Acknowledgement,
        /// The first delivery that it covers, as of its arrival.
        first: u64,
    },
}

impl Operation {
    /// The memory that it takes, as `max_transaction_size` counts it.
    pub(super) fn bytes(&self) -> usize {
        let message = match self {
            Operation::Send(message, _) => message.size(),
            Operation::Ack { .. } => 0,
        };
        size_of::<Operation>() + message
    }
}

/// A COMMIT that is not decided yet.
#[derive(Debug)]
pub struct Commit {
    /// Its token, here and at all homes.
    pub token: u64,
    /// Its operations.
    pub operations: PagedDeque<Operation>,
    /// The places of the operations that have been checked.
    pub plan: Plan,
    /// The requested RECEIPT.
    pub receipt: Option<Box<[u8]>>,
    /// The description of the COMMIT for an ERROR.
    pub offender: Offender,
    /// The homes that were asked to reserve room for it.
    pub asked: Vec<ShardId>,
    /// The number of homes that have not answered.
    pub waiting: usize,
    /// The places that they reserved, each in the order of its reservations.
    pub places: Vec<(ShardId, Places)>,
    /// The first refusal.
    pub refusal: Option<ProtocolError>,
}

impl Commit {
    /// Bytes of its operations and their places; the messages are counted separately.
    #[must_use]
    pub fn applied_bytes(&self) -> usize {
        bytes_of(&self.operations) + self.plan.held_bytes()
    }

    /// The same, and those of its frame.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.applied_bytes()
            + self.receipt.as_ref().map_or(0, |receipt| receipt.len())
            + self.offender.held_bytes()
    }
}

/// The state of a connection's COMMIT.
#[derive(Debug)]
pub enum Committing {
    /// It may still be refused.
    Deciding(Box<Commit>),
    /// It is being applied in any case, and the connection waits for the end of that.
    Applying {
        /// Some of its ACKs may not have taken effect.
        has_acks: bool,
    },
}

#[derive(Debug)]
pub(super) struct Open {
    id: Box<[u8]>,
    pub(super) operations: PagedDeque<Operation>,
    pub(super) bytes: usize,
    /// The number of ACKs and NACKs.
    acks: usize,
}

/// The open transactions of a connection.
#[derive(Debug, Default)]
pub struct Transactions {
    pub(super) open: Vec<Open>,
    pub(super) bytes: usize,
}

impl Transactions {
    /// Opens a transaction.
    ///
    /// # Errors
    /// `E-TX-OPEN` if it is open, `E-TX-COUNT` over the limit.
    pub fn begin(&mut self, id: &[u8], open_max: usize) -> Result<(), ProtocolError> {
        if self.find(id).is_ok() {
            return Err(error(Code::TransactionOpen, id, "is open already"));
        }
        if self.open.len() >= open_max + usize::from(planted!("transaction-too-many")) {
            let what = format!("is one more than max_transactions={open_max}");
            return Err(error(Code::TransactionCount, id, &what));
        }
        self.open.push(Open { id: id.into(), operations: PagedDeque::default(), bytes: 0, acks: 0 });
        Ok(())
    }

    /// The number of open transactions, and the bytes in them.
    #[cfg(simulated)]
    pub fn used(&self) -> (usize, usize) {
        (self.open.len(), self.bytes)
    }

    /// Keeps a frame until COMMIT.
    ///
    /// # Errors
    /// `E-TX-UNKNOWN`, or `E-TX-COUNT` when the open transactions hold more than `bytes_max`.
    pub fn add(&mut self, id: &[u8], operation: Operation, bytes_max: usize) -> Result<(), ProtocolError> {
        let at = self.find(id)?;
        let bytes = operation.bytes();
        if self.bytes + bytes > bytes_max && !planted!("transaction-without-end") {
            let what = format!("exceeds max_transaction_size={bytes_max}");
            return Err(error(Code::TransactionCount, id, &what));
        }
        self.bytes += bytes;
        self.open[at].bytes += bytes;
        self.open[at].acks += usize::from(matches!(operation, Operation::Ack { .. }));
        self.open[at].operations.push_back(operation);
        Ok(())
    }

    /// Whether a transaction is open.
    #[must_use]
    pub fn is_open(&self, id: &[u8]) -> bool {
        self.find(id).is_ok()
    }

    /// Ends a transaction, for COMMIT or ABORT; returns its operations.
    ///
    /// # Errors
    /// `E-TX-UNKNOWN`.
    pub fn end(&mut self, id: &[u8]) -> Result<PagedDeque<Operation>, ProtocolError> {
        let mut at = self.find(id)?;
        if at + 1 < self.open.len() && planted!("newest-transaction-ended") {
            at = self.open.len() - 1;
        }
        let ended = self.open.remove(at);
        self.bytes -= ended.bytes;
        if self.open.len() < self.open.capacity() / 4 {
            self.open.shrink_to(2 * self.open.len()); // unused capacity counts as held
        }
        Ok(ended.operations)
    }

    /// Ends all transactions; returns the operations of each.
    pub fn end_all(self) -> impl Iterator<Item = PagedDeque<Operation>> {
        self.open.into_iter().map(|open| open.operations)
    }

    fn find(&self, id: &[u8]) -> Result<usize, ProtocolError> {
        let found = self.open.iter().position(|open| *open.id == *id);
        found.ok_or_else(|| not_open(id))
    }

    /// Bytes of names, ACKs and NACKs of all transactions.
    #[must_use]
    pub fn bytes_besides_sends(&self) -> usize {
        let each = |open: &Open| size_of::<Open>() + open.id.len() + open.acks * size_of::<Operation>();
        self.open.iter().map(each).sum()
    }

    /// Bytes of all transactions; the messages are counted separately.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        let each = |open: &Open| open.id.len() + bytes_of(&open.operations);
        self.open.capacity() * size_of::<Open>() + self.open.iter().map(each).sum::<usize>()
    }
}

/// The memory of operations without their messages.
fn bytes_of(operations: &PagedDeque<Operation>) -> usize {
    operations.capacity() * size_of::<Operation>()
}

/// The error for a transaction that is not open.
#[cold]
pub fn not_open(id: &[u8]) -> ProtocolError {
    error(Code::TransactionUnknown, id, "is not open")
}

#[cold]
fn error(code: Code, id: &[u8], what: &str) -> ProtocolError {
    ProtocolError::new(code, format!("transaction '{}' {what}", String::from_utf8_lossy(id)))
}

#[cfg(test)]
mod tests {
    use stompica_proto::encode::Message;

    use super::*;
    use crate::connection::acknowledgement::Covers;
    use crate::ids::SubscriptionKey;
    use crate::message::options::Verdict;

    fn send(body: &[u8]) -> Operation {
        let message = Message {
            destination: b"/t",
            id: b"",
            sender: 0,
            headers: b"",
            plain: true,
            expires_ms: 0,
            body,
        };
        Operation::Send(OwnedMessage::new(&message), None)
    }

    #[test]
    fn a_large_transaction_has_at_most_a_page_to_spare() {
        let page = PagedDeque::<Operation>::PAGE;
        let mut transactions = Transactions::default();
        transactions.begin(b"a", 1).expect("the first");
        for count in 1..=64 * page + 1 {
            transactions.add(b"a", send(b""), usize::MAX).expect("within the limit");
            let room = transactions.held_bytes() / size_of::<Operation>();
            assert!(count <= page || room <= count + page + 4, "{room} for {count}");
        }
    }

    /// docs/protocol.md has this size.
    #[test]
    fn an_operation_counts_what_it_takes() {
        let subscription = SubscriptionKey { index: 0, generation: 0 };
        let (covers, verdict) = (Covers::Named, Verdict::Accepted);
        let acknowledgement = Acknowledgement { subscription, number: 1, covers, verdict };
        let ack = Operation::Ack { acknowledgement, first: 1 };
        assert_eq!((size_of::<Operation>(), ack.bytes()), (88, 88));
        assert_eq!(send(b"12345678").bytes(), 88 + b"/t12345678".len());
    }

    #[test]
    fn names_of_transactions_are_held_until_these_end() {
        let mut transactions = Transactions::default();
        let names = [0, 1, 2, 3, 4, 5, 6, 7, 8].map(|at| [at; 1000]);
        for (at, name) in names.iter().enumerate() {
            transactions.begin(name, 100).expect("within the limit");
            let texts = 1000 * (at + 1);
            let held = transactions.held_bytes();
            assert!((texts..texts + 2 * 9 * size_of::<Open>()).contains(&held), "{held} for {texts}");
        }
        names.iter().for_each(|name| drop(transactions.end(name).expect("it is open")));
        assert_eq!(transactions.held_bytes(), 0);
    }

    #[test]
    fn a_transaction_is_opened_filled_and_ended_once() {
        let mut transactions = Transactions::default();
        transactions.begin(b"a", 2).expect("the first");
        assert_eq!(transactions.begin(b"a", 2).expect_err("twice").code, Code::TransactionOpen);
        transactions.begin(b"b", 2).expect("the second");
        assert_eq!(transactions.begin(b"c", 2).expect_err("over the limit").code, Code::TransactionCount);
        let bytes_max = send(b"12345678").bytes();
        transactions.add(b"a", send(b"12345678"), bytes_max).expect("within the limit");
        let over = transactions.add(b"b", send(b"1"), bytes_max).expect_err("over");
        assert_eq!(over.code, Code::TransactionCount);
        assert!(transactions.is_open(b"a") && !transactions.is_open(b"c"));
        assert_eq!(transactions.end(b"a").expect("open").len(), 1);
        assert_eq!(transactions.end(b"a").expect_err("ended").code, Code::TransactionUnknown);
        transactions.add(b"b", send(b"12345678"), bytes_max).expect("the space is free again");
        transactions.begin(b"a", 2).expect("an id may be used again");
    }
}
