//! Frames of a group that its members do not know of yet.

use crate::message::chunk::ChunkId;
use crate::router::group::GroupIndex;

/// Frames of one group that its members do not know of yet.
#[derive(Clone, Copy, Debug)]
pub struct PendingRange {
    pub(crate) group: GroupIndex,
    pub(crate) chunk: ChunkId,
    pub(crate) start: u32,
    pub(crate) end: u32,
}
