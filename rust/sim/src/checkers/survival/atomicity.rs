//! After a crash, all of a COMMIT is there or nothing: its persistent messages to queues, and its ACKs.

use std::collections::BTreeSet;
use std::time::Duration;

use super::super::{Checker, broken};
use super::known::Known;
use crate::events::{Event, MessageId, Survivor, Violation};
use crate::options::Options;

/// Follows transactions.
#[derive(Debug)]
pub struct Atomicity {
    known: Known,
}

impl Atomicity {
    /// Expects what the settings promise.
    #[must_use]
    pub fn new(options: &Options) -> Self {
        Atomicity { known: Known::new(options) }
    }

    fn recover(&self, survivors: &[Survivor]) -> Result<(), Violation> {
        let of_queues = survivors.iter().filter(|survivor| survivor.is_of_queue());
        let there: BTreeSet<MessageId> = of_queues.filter_map(|survivor| survivor.message).collect();
        for operations in self.known.open.values() {
            let (some, missing): (Vec<MessageId>, Vec<MessageId>) =
                operations.sends.iter().partition(|id| there.contains(id));
            let Some(one) = some.first() else { continue };
            if !operations.is_committed {
                return broken("atomicity", format!("{one} is in the log without a COMMIT"));
            }
            if let Some(other) = missing.iter().find(|id| !self.known.is_excused(**id)) {
                let text = format!("{one} is in the log, and {other} of its transaction is not");
                return broken("atomicity", text);
            }
            if let Some(acked) = operations.acks.iter().find(|id| there.contains(id)) {
                let text =
                    format!("{one} is in the log, and so is {acked}, which its transaction acknowledges");
                return broken("atomicity", text);
            }
        }
        Ok(())
    }
}

impl Checker for Atomicity {
    fn see(&mut self, event: &Event, now: Duration) -> Result<(), Violation> {
        if let Event::Recovered(survivors) = event {
            self.recover(survivors)?;
        }
        self.known.see(event, now);
        Ok(())
    }
}
