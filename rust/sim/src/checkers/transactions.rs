//! A transaction takes effect as a whole or not at all.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::{Checker, broken};
use crate::events::{ClientId, Event, MessageId, Request, TransactionId, Violation};

/// Follows the messages of transactions.
#[derive(Debug, Default)]
pub struct Transactions {
    members: BTreeMap<MessageId, (ClientId, TransactionId)>,
    committed: BTreeSet<(ClientId, TransactionId)>,
}

impl Checker for Transactions {
    fn see(&mut self, event: &Event, _: Duration) -> Result<(), Violation> {
        match event {
            Event::Requested(client, Request::Send(message)) => {
                if let Some(transaction) = message.transaction {
                    self.members.insert(message.id, (*client, transaction));
                }
            }
            Event::Requested(client, Request::Commit(transaction)) => {
                self.committed.insert((*client, *transaction));
            }
            Event::Delivered(client, delivery) => {
                let transaction = self.members.get(&delivery.message);
                if let Some(transaction) =
                    transaction.filter(|transaction| !self.committed.contains(transaction))
                {
                    let text = format!(
                        "client {client} got {} of {transaction:?}, which has no COMMIT",
                        delivery.message
                    );
                    return broken("transactions", text);
                }
            }
            _ => {}
        }
        Ok(())
    }
}
