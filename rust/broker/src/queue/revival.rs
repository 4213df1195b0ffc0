//! Messages to worker topics that wait for a consumer, on their way to one that has come.

use super::stale::Place;
use crate::ids::Subscriber;
use crate::requester::Requester;
use crate::text::Text;

/// What waited for one consumer.
#[derive(Debug)]
pub(crate) struct Revival {
    pub(crate) subscriber: Subscriber,
    /// What it consumes: a name or a pattern.
    pub(crate) name: Text,
    pub(crate) place: Place,
    pub(crate) requester: Requester,
}
