//! Collections that grow and shrink in small steps, and a slab whose keys are guarded against reuse.

pub mod keyed;
pub mod line;
pub mod paged;
pub mod paged_deque;
pub mod sparse;
pub mod spread;
