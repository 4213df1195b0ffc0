//! What clients still do at the end of a run, once faults have ended.

use std::time::Duration;

use rand::SeedableRng as _;
use rand::rngs::SmallRng;
use stompica_broker::simulated::outside;

use crate::actions::Actor;
use crate::client::Phase;
use crate::events::{ClientId, Event, Violation};
use crate::world::World;

/// For how long periodic answers are followed: three intervals, or two texts of the monitor.
const INTERVALS: u32 = 3;
const MONITOR: Duration = Duration::from_secs(11);

impl World {
    /// The connections that are open.
    pub(crate) fn open(&self) -> Vec<ClientId> {
        self.clients.iter().filter(|client| client.phase == Phase::Open).map(|client| client.id).collect()
    }

    /// Lets each client with an open connection act.
    pub(crate) fn act_as_each(&mut self, act: impl Fn(&mut Actor<'_>)) -> Result<(), Violation> {
        for at in self.open() {
            self.act_as(at, &mut SmallRng::seed_from_u64(at as u64), &act)?;
        }
        Ok(())
    }

    /// Follows periodic answers for a while, and ends them, since they would never end by themselves.
    pub(crate) fn watch_at_rest(&mut self) -> Result<(), Violation> {
        let pushes = self.clients.iter().filter(|client| client.phase == Phase::Open);
        let pushes =
            pushes.flat_map(|client| client.watching.watches.values().filter_map(|watch| watch.pushes));
        let times =
            pushes.map(|(query, interval)| if query == "monitor" { MONITOR } else { interval * INTERVALS });
        let Some(time) = times.max() else { return Ok(()) };
        self.run_until_idle()?;
        // One whose SEND waits for the room that its own ACKs behind it would make is full, and misses answers. When such
        // SENDs go on, their messages fill those that would have to acknowledge them.
        let mut open = self.open();
        let is_calm = open.iter().all(|at| self.clients[*at].first_missing().is_none());
        open.retain(|at| is_calm || !self.clients[*at].is_owed());
        self.tell(vec![Event::WatchBegins(open)])?;
        let end = outside::now() + time;
        while outside::now() < end {
            self.pass_idly(end.saturating_sub(outside::now()));
            self.run_until_idle()?;
        }
        self.tell(vec![Event::WatchEnds(self.open())])?;
        self.act_as_each(|actor| actor.end_watches())
    }

    /// Asks for diagnostics, and lets the queries reach the broker, which is about to end.
    pub(crate) fn ask_at_last(&mut self) -> Result<(), Violation> {
        self.act_as_each(|actor| actor.ask_at_last())?;
        self.clients.iter().for_each(|client| client.wire.arrive(usize::MAX));
        (0..self.broker.shards()).try_for_each(|shard| self.turn(shard))
    }
}
