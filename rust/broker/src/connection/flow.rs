//! The outcome of handling a client frame.

/// The outcome of handling a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// It is handled, maybe by an ERROR.
    Done,
    /// It has to wait, and so do all frames behind it.
    Parked,
    /// It is handled again in the next turn.
    Later,
    /// It is handled, but all frames behind it have to wait.
    Waiting,
}
