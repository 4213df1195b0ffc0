//! The outcome of handling a client frame.

/// The outcome of handling a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// It is handled, maybe by an ERROR.
    Done,
    /// It has to wait, and so do all later frames.
    Parked,
    /// It is handled again in the next turn.
    Later,
    /// It is handled, but all later frames have to wait.
    Waiting,
}
