//! What an ACK or NACK acts on.

use crate::ids::SubscriptionKey;
use crate::message::options::Verdict;

/// The deliveries that an ACK or NACK covers.
///
/// In STOMP 1.1 it names a message, not a delivery. If the broker has taken the message back and it has come again, an ACK may
/// be the late answer to the earlier delivery: in client mode it covers that message alone, since the client may not know the
/// deliveries between. A NACK covers all before it even then: else a later ACK would cover what the client has refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Covers {
    /// The named one.
    Named,
    /// The named one in client mode, because the ACK may be late.
    NamedLate,
    /// All up to the named one.
    AllBefore,
    /// The same, of a NACK that may be late.
    AllBeforeLate,
}

impl Covers {
    /// Whether it covers deliveries before the named one.
    #[must_use]
    pub fn is_cumulative(self) -> bool {
        matches!(self, Covers::AllBefore | Covers::AllBeforeLate)
    }
}

/// An ACK or NACK as it was accepted: what it covers does not change until it takes effect, however long that is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Acknowledgement {
    /// The subscription.
    pub subscription: SubscriptionKey,
    /// The number of the named delivery.
    pub number: u64,
    /// What it covers.
    pub covers: Covers,
    /// ACK or NACK.
    pub verdict: Verdict,
}
