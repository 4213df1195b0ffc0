//! A subscription that gets answers of DIAG at an interval.

use crate::report::Query;

/// A subscription that gets answers at an interval.
#[derive(Debug)]
pub(crate) struct Watch {
    pub query: Query,
    pub interval_ms: u64,
    /// The destination of its MESSAGEs.
    pub name: Box<[u8]>,
    /// It has not been told yet what it asked last.
    pub asking: bool,
    /// When it is looked at again if the first question cannot be asked yet; `None`: it was.
    pub again_ms: Option<u64>,
    /// Where the last answer ends in what its connection was ever to be sent.
    pub sent_through: u64,
}
