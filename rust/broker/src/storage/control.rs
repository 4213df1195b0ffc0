//! Tells the thread of a store that the last shard has ended.

use std::sync::Arc;

use crate::door::sync::{Mutex, MutexGuard, PoisonError};
use crate::report::types::StoreFigures;
use crate::store::file::inbox::Inbox;

/// Where the end of the shards and the thread of the store meet, in either order.
#[derive(Debug, Default)]
pub struct Control(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    has_ended: bool,
    /// That of the store comes first.
    inboxes: Vec<Arc<Inbox>>,
}

impl Control {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The last shard has ended: no call of the store follows.
    pub fn end(&self) {
        let mut state = self.lock();
        state.has_ended = true;
        state.inboxes.iter().for_each(|inbox| inbox.end());
    }

    /// Whether the last shard has ended.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.lock().has_ended
    }

    /// The figures of the store; all 0 before it was read, and without one.
    #[must_use]
    pub fn figures(&self) -> StoreFigures {
        self.lock().inboxes.first().map_or_else(StoreFigures::default, |inbox| inbox.figures())
    }

    /// The shards are about to use this inbox, which learns of their end, also if they have ended already.
    pub fn watch(&self, inbox: &Arc<Inbox>) {
        let mut state = self.lock();
        if state.has_ended {
            inbox.end();
        }
        state.inboxes.push(Arc::clone(inbox));
    }
}
