//! The end of a run: what topics have kept is read, then ended; everybody leaves, and the broker keeps nothing.

use rand::SeedableRng as _;
use rand::rngs::SmallRng;
use stompica_broker::simulated::outside;
use stompica_broker::snapshot::Snapshot;

use crate::actions::Actor;
use crate::client::Phase;
use crate::events::{AckMode, Violation};
use crate::options::Dialect;
use crate::work::Retain;
use crate::world::World;

/// Connections that try to hold a durable subscription, one after the other: memory may be short.
const ATTEMPTS_MAX: usize = 3;
/// Topics whose values are set and read in the end, at most.
const VALUES_MAX: usize = 3;

impl World {
    /// All holders of durable subscriptions leave, and a new client takes what each of them has kept.
    ///
    /// Returns false if it is refused, because memory is short.
    pub(crate) fn read_durables(&mut self) -> Result<bool, Violation> {
        if self.options.keeping.durables.is_empty() {
            return Ok(true);
        }
        let mut random = SmallRng::seed_from_u64(0);
        for at in 0..self.clients.len() {
            if self.clients[at].phase == Phase::Open {
                self.act_as(at, &mut random, |actor| actor.detach())?;
            }
        }
        self.come_to_rest()?;
        for number in 0..self.options.keeping.durables.len() {
            let mut is_held = false;
            for _ in 0..ATTEMPTS_MAX {
                let at = self.connect_for(number)?;
                // With so little credit it is not cut off as a slow consumer.
                let mode = (AckMode::Client, Some(1));
                let dialect = self.options.keeping.dialects[0];
                self.act_as(at, &mut random, |actor| actor.hold(number, dialect, mode, true))?;
                self.run_until_idle()?;
                is_held = self.clients[at].phase == Phase::Open;
                if is_held {
                    break;
                }
            }
            if !is_held {
                return Ok(false);
            }
        }
        self.come_to_rest()?;
        Ok(true)
    }

    /// New clients take what worker topics hold, and stale messages.
    ///
    /// Returns false if one is refused, because memory is short.
    pub(crate) fn take_all_work(&mut self) -> Result<bool, Violation> {
        for name in self.options.workers.names.clone() {
            let mut attempts = 0..ATTEMPTS_MAX;
            while {
                self.drain_some(vec![name.clone()])?;
                self.clients.last().is_none_or(|client| client.phase != Phase::Open)
            } {
                if attempts.next().is_none() {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// New clients read the last value of each topic. Then one client sets and removes values, and others read them.
    ///
    /// Returns false if one is refused, because memory is short.
    pub(crate) fn set_last_values(&mut self) -> Result<bool, Violation> {
        let names = self.options.retained.names.clone();
        // Each of them is confirmed, and none expires.
        (self.options.receipts, self.options.expiring) = (100, 0);
        let some = &names[..names.len().min(VALUES_MAX)];
        for name in some {
            if !self.act_as_new(|actor| actor.read_values(name))? {
                return Ok(false);
            }
        }
        // `max_retained` may leave room for one value.
        if !names.is_empty() && !self.act_as_new(|actor| actor.retain_at(&names, Retain::Remove))? {
            return Ok(false);
        }
        for name in some {
            for retain in [Retain::Set, Retain::Remove] {
                let own = std::slice::from_ref(name);
                let is_done = self.act_as_new(|actor| actor.retain_at(own, retain))?
                    && self.act_as_new(|actor| actor.read_values(name))?;
                if !is_done {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// Lets a new client act, and everything come to rest. Returns whether its connection is still open.
    fn act_as_new(&mut self, act: impl FnOnce(&mut Actor<'_>)) -> Result<bool, Violation> {
        let mut random = SmallRng::seed_from_u64(0);
        let at = self.expect_connection(&mut random)?;
        self.act_as(at, &mut random, act)?;
        self.come_to_rest()?;
        Ok(self.clients[at].phase == Phase::Open)
    }

    /// Ends all that topics keep. Then all clients leave, and nothing remains.
    pub(crate) fn leave_nothing(&mut self) -> Result<(), Violation> {
        self.end_durables()?;
        let mut random = SmallRng::seed_from_u64(0);
        for at in 0..self.clients.len() {
            if self.clients[at].phase == Phase::Open {
                self.act_as(at, &mut random, |actor| actor.disconnect())?;
            }
        }
        self.run_until_idle()?;
        // Empty queues are removed after a while.
        outside::advance(self.options.config.queue_idle_expiry);
        self.come_to_rest()?;
        let left = self.broker.snapshot();
        // Tables keep names and room for what they held. The text of `/queue/monitor` has a deadline, and each shard may have
        // one for a stale or retained message that it had.
        let may_wait = self.options.workers.percent + self.options.retained.percent > 0;
        let timers_max = if may_wait { 1 + self.options.config.writers } else { 1 };
        let rest = Snapshot { held_bytes: 0, timers: 0, message_bytes: 0, ..left.clone() };
        if left.timers > timers_max || rest != Snapshot::default() {
            return Err(Violation {
                checker: "accounting",
                text: format!("left by clients that are gone: {left:?}"),
            });
        }
        Ok(())
    }

    /// Ends all durable subscriptions.
    fn end_durables(&mut self) -> Result<(), Violation> {
        let mut random = SmallRng::seed_from_u64(0);
        for number in 0..self.options.keeping.durables.len() {
            let at = self.connect_for(number)?;
            self.act_as(at, &mut random, |actor| actor.end(number, Dialect::Durable, true))?;
            self.run_until_idle()?;
            if self.clients[at].first_missing().is_some() {
                let text = format!("durable subscription {number} cannot be ended");
                return Err(Violation { checker: "liveness", text });
            }
        }
        Ok(())
    }

    /// A new connection that can name a durable subscription.
    fn connect_for(&mut self, number: usize) -> Result<usize, Violation> {
        self.connect_as(&mut SmallRng::seed_from_u64(0), self.options.keeping.durables[number].scope)?;
        self.run_until_idle()?;
        let at = self.clients.len() - 1;
        match self.clients[at].phase {
            Phase::Open => Ok(at),
            _ => Err(Violation { checker: "liveness", text: "nobody can connect at the end".to_owned() }),
        }
    }
}
