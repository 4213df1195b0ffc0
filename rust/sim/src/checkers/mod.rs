//! Checkers: each follows the events of a run and knows one promise of the broker. They know nothing of the broker's
//! state, so what they find is what a client would find.

mod content;
mod holding;
mod loss;
mod order;
mod starvation;
#[cfg(test)]
mod tests;
mod transactions;

use std::time::Duration;

use crate::events::{Event, Violation};
use crate::options::Options;

/// Follows the events of a run.
pub trait Checker {
    /// Takes the next event, at this time.
    ///
    /// # Errors
    /// The event breaks a promise.
    fn see(&mut self, event: &Event, now: Duration) -> Result<(), Violation>;
}

/// All checkers.
#[must_use]
pub fn all(options: &Options) -> Vec<Box<dyn Checker>> {
    vec![
        Box::new(content::Content::default()),
        Box::new(order::Order::default()),
        Box::new(holding::Holding::default()),
        Box::new(starvation::Starvation::default()),
        Box::new(transactions::Transactions::default()),
        Box::new(loss::Loss::new(options)),
    ]
}

/// A broken promise.
fn broken<T>(checker: &'static str, text: String) -> Result<T, Violation> {
    Err(Violation { checker, text })
}
