//! What became of a frame of a client.

/// What became of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// It is done with, be it by an ERROR.
    Done,
    /// It has to wait, and all behind it.
    Parked,
    /// It is to be looked at again in the next turn.
    Later,
    /// It is done with, but all behind it has to wait.
    Waiting,
}
