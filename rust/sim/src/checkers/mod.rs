//! Checkers: each follows the events of a run and knows one promise of the broker. They know nothing of the broker's
//! state, so what they find is what a client would find.

mod acking;
mod beats;
mod bounds;
mod content;
mod drain;
mod durability;
#[cfg(test)]
mod durability_tests;
mod durable;
mod expiry;
mod farewell;
mod gaps;
mod holding;
mod identity;
#[cfg(test)]
mod keeping_tests;
mod loss;
mod matching;
mod order;
mod private;
mod queue_order;
mod redelivery;
mod retained;
mod rogues;
pub mod slowness;
mod starvation;
mod survival;
#[cfg(test)]
pub(crate) mod tests;
#[cfg(test)]
mod tests_rogues;
#[cfg(test)]
mod tests_timing;
mod transactions;
mod watching;
mod workers;

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

/// The names of all checkers, of those outside this folder, too.
pub const NAMES: &[&str] = &[
    "accounting",
    "acking",
    "atomicity",
    "beats",
    "bounds",
    "bystanders",
    "connections",
    "content",
    "drain",
    "durability",
    "durable",
    "expiry",
    "farewell",
    "gaps",
    "holding",
    "identity",
    "limits",
    "liveness",
    "loss",
    "matching",
    "memory",
    "order",
    "panic",
    "private",
    "protocol",
    "recount",
    "recovery",
    "redelivery",
    "resumption",
    "retained",
    "rogues",
    "sequence",
    "starvation",
    "store",
    "survival",
    "transactions",
    "values",
    "watching",
    "workers",
];

/// The checkers that follow events.
#[must_use]
pub fn all(options: &Options) -> Vec<Box<dyn Checker>> {
    vec![
        Box::new(content::Content::default()),
        Box::new(order::Order::default()),
        Box::new(queue_order::QueueOrder::new(options)),
        Box::new(identity::Identity::default()),
        Box::new(expiry::Expiry::new(options)),
        Box::new(holding::Holding::new(options)),
        Box::new(acking::Acking::new(options)),
        Box::new(redelivery::Redelivery::new(options)),
        Box::new(starvation::Starvation::new(options)),
        Box::new(transactions::Transactions::new(options)),
        Box::new(loss::Loss::new(options)),
        Box::new(farewell::Farewell::new(options)),
        Box::new(gaps::Gaps::new(options)),
        Box::new(bounds::Bounds::new(options)),
        Box::new(matching::Matching::new(options)),
        Box::new(private::Private::new(options)),
        Box::new(drain::Drain::default()),
        Box::new(durability::Durability::new(options)),
        Box::new(durable::DurableSubscriptions::new(options)),
        Box::new(watching::Watching::new(options)),
        Box::new(workers::Workers::new(options)),
        Box::new(retained::Retained::new(options)),
        Box::new(beats::Beats::new(options)),
        Box::new(rogues::Rogues::new(options)),
    ]
}

/// The checkers of what survives crashes. They see the events of all lives of the broker.
#[must_use]
pub fn across_crashes(options: &Options) -> Vec<Box<dyn Checker>> {
    if options.store.log.is_none() {
        return Vec::new();
    }
    vec![
        Box::new(survival::Survival::new(options)),
        Box::new(survival::atomicity::Atomicity::new(options)),
        Box::new(survival::sequence::Sequence::default()),
        Box::new(survival::recount::Recount::default()),
        Box::new(survival::resumption::Resumption::new(options)),
        Box::new(survival::values::Values::default()),
    ]
}

/// What a client has at least to acknowledge a delivery: `ack_timeout`, less the precision of the broker, which counts in
/// milliseconds.
fn ack_timeout(options: &Options) -> Duration {
    match options.config.ack_timeout_ms {
        0 => Duration::MAX,
        timeout => Duration::from_millis(timeout - 1),
    }
}

/// A broken promise.
fn broken<T>(checker: &'static str, text: String) -> Result<T, Violation> {
    Err(Violation { checker, text })
}
