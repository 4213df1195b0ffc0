//! The end of a run: faults end, everybody reads and acknowledges, and everything must come to its end.

use std::time::Duration;

use rand::SeedableRng as _;
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom as _;
use stompica_broker::simulated::outside;

use crate::client::Phase;
use crate::events::{Event, Violation};
use crate::world::World;

/// Turns after which a broker without events that is not idle counts as spinning.
const TURNS_MAX: usize = 20_000;
/// The number of clients that consume what is left in the end, at most.
const ATTEMPTS_MAX: usize = 30;

impl World {
    /// Ends all faults, and checks that everything comes to its end.
    pub(crate) fn finish(&mut self) -> Result<(), Violation> {
        self.finishes = true;
        self.note(|| "faults end".to_owned());
        for client in &mut self.clients {
            client.is_stalled = false;
            client.wire.set_buffer(64 << 10);
        }
        self.come_to_rest()?;
        let open = self.clients.iter().filter(|client| client.phase == Phase::Open).map(|client| client.id);
        let open = open.collect();
        self.tell(vec![Event::Resting(open)])?;
        if !self.drain_queues()? {
            return self.shut_down();
        }
        let open = self.clients.iter().filter(|client| client.phase == Phase::Open).map(|client| client.id);
        let open: Vec<usize> = open.collect();
        for at in &open {
            if let Some(request) = self.clients[*at].first_missing() {
                let text = format!("client {at} still waits for the RECEIPT of {request:?}");
                return Err(Violation { checker: "liveness", text });
            }
        }
        self.tell(vec![Event::Finished(open)])?;
        let snapshot = self.broker.snapshot();
        if (snapshot.queued, snapshot.unanswered, snapshot.fan_out_work) != (0, 0, 0) {
            return Err(Violation {
                checker: "accounting",
                text: format!("left after all was read: {snapshot:?}"),
            });
        }
        self.shut_down()
    }

    /// Runs until nothing changes any more, and no deadline within a minute changes anything.
    fn come_to_rest(&mut self) -> Result<(), Violation> {
        let mut idle_for = Duration::ZERO;
        while idle_for < Duration::from_secs(60) {
            let before = self.summary.events;
            self.run_until_idle()?;
            if self.summary.events != before {
                idle_for = Duration::ZERO;
            }
            let next = (0..self.broker.shards()).filter_map(|at| self.broker.sleep(at)).min();
            let time = next.unwrap_or(Duration::MAX).clamp(Duration::from_millis(1), Duration::from_secs(10));
            outside::advance(time);
            idle_for += time;
        }
        Ok(())
    }

    /// Lets all bytes arrive and all clients read and acknowledge, until the broker is idle.
    fn run_until_idle(&mut self) -> Result<(), Violation> {
        for _ in 0..TURNS_MAX {
            let mut moved = false;
            for at in 0..self.clients.len() {
                let client = &self.clients[at];
                moved |= client.wire.in_transit() > 0;
                client.wire.arrive(usize::MAX);
                if client.phase != Phase::Over {
                    moved |= self.receive(at, usize::MAX)? > 0;
                    moved |= self.acknowledge_all(at)?;
                }
            }
            for shard in 0..self.broker.shards() {
                if self.broker.sleep(shard) == Some(Duration::ZERO) {
                    moved = true;
                    self.turn(shard)?;
                }
            }
            if !moved {
                return Ok(());
            }
        }
        Err(Violation { checker: "liveness", text: "the broker does not become idle".to_owned() })
    }

    fn acknowledge_all(&mut self, at: usize) -> Result<bool, Violation> {
        self.act_as(at, &mut SmallRng::seed_from_u64(self.step), |actor| actor.settle())
    }

    /// New clients consume what is left in the queues. One takes one of them, because memory may be short: then it may be
    /// refused, and succeeds when others are empty.
    ///
    /// Returns false if all were refused: a broker whose memory is full to the last bytes lets nobody subscribe.
    fn drain_queues(&mut self) -> Result<bool, Violation> {
        for _ in 0..ATTEMPTS_MAX {
            let mut queues = self.broker.snapshot().queues;
            queues.retain(|name| name.starts_with("/queue/") && !self.drained.contains(name));
            queues.sort();
            let Some(queue) = queues.choose(&mut SmallRng::seed_from_u64(self.summary.events)).cloned()
            else {
                return Ok(true);
            };
            self.drain_some(vec![queue.clone()])?;
            if self.clients.last().is_some_and(|client| client.phase == Phase::Open) {
                self.drained.insert(queue);
            }
        }
        Ok(false)
    }

    fn drain_some(&mut self, queues: Vec<String>) -> Result<(), Violation> {
        let mut random = SmallRng::seed_from_u64(0);
        self.connect(&mut random)?;
        self.run_until_idle()?;
        let at = self.clients.len() - 1;
        if self.clients[at].phase != Phase::Open {
            return Err(Violation { checker: "liveness", text: "nobody can connect at the end".to_owned() });
        }
        self.act_as(at, &mut random, |actor| actor.subscribe_to(queues))?;
        self.come_to_rest()
    }

    fn shut_down(&mut self) -> Result<(), Violation> {
        self.note(|| "drain".to_owned());
        for client in self.clients.iter_mut().filter(|client| client.phase != Phase::Over) {
            client.phase = Phase::Leaving;
        }
        self.broker.drain();
        let deadline = outside::now() + self.options.config.drain + Duration::from_secs(1);
        while (0..self.broker.shards()).any(|at| !self.broker.has_ended(at)) {
            self.run_until_idle()?;
            let next = (0..self.broker.shards()).filter_map(|at| self.broker.sleep(at)).min();
            outside::advance(next.unwrap_or(Duration::from_millis(10)).max(Duration::from_micros(100)));
            if outside::now() > deadline {
                return Err(Violation { checker: "liveness", text: "the drain does not end".to_owned() });
            }
        }
        let snapshot = self.broker.snapshot();
        if (snapshot.held_bytes, snapshot.connections, snapshot.fan_out_work) != (0, 0, 0) {
            return Err(Violation { checker: "accounting", text: format!("left at the end: {snapshot:?}") });
        }
        Ok(())
    }
}
