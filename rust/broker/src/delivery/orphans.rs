//! Temporary destinations of a connection that ends.

use super::Owners;
use crate::connection::temporary::Temporary;
use crate::door::planted;
use crate::ids::ConnKey;
use crate::queue::orphans::Orphans;

impl Owners<'_> {
    /// Removes the temporary destinations of a connection that ends.
    pub fn forget_temporary(&mut self, key: ConnKey) {
        let Some(own) = self.connections.table.get_mut(key).and_then(|conn| conn.temporary.take()) else {
            return;
        };
        let Temporary { secret, names, .. } = *own;
        if planted!("private-queue-outlives-owner") {
            return;
        }
        self.queue().remove_orphans(Orphans { secret, names: names.into_iter().collect() });
    }
}
