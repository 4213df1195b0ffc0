//! The end of a connection, once its subscriptions have ended.

use super::Shard;
use crate::connection::conn::Phase;
use crate::ids::ConnKey;

impl Shard {
    /// Goes on with that; behind the last one the connection ends as it was to.
    pub(super) fn proceed_with_leaving(&mut self, key: ConnKey) {
        let leaving = self.connections.table.get(key).and_then(|conn| conn.life.leaving.as_ref());
        let is_lost = leaving.is_some_and(|leaving| leaving.is_lost);
        if !self.command().leave_some(key) {
            return;
        }
        self.delivery().forget_temporary(key);
        if is_lost {
            self.take_out(key);
        } else if self.connections.table.get(key).is_some_and(|conn| conn.life.phase == Phase::Leaving) {
            self.connections.write_last(&mut self.turn, key);
        }
    }
}
