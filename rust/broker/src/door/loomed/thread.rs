//! loom's threads, with room for a shard on their stacks.

use std::time::Duration;

pub use loom::thread::JoinHandle;

/// The size of a stack, in words.
const STACK_WORDS: usize = 1 << 17;

/// Starts threads.
#[derive(Debug)]
pub struct Builder;

impl Builder {
    /// Starts one with a large stack.
    #[expect(clippy::new_ret_no_self, reason = "it only sets an option")]
    pub fn new() -> loom::thread::Builder {
        loom::thread::Builder::new().stack_size(STACK_WORDS)
    }
}

/// Lets other threads run.
pub fn sleep(_: Duration) {
    loom::thread::yield_now();
}
