//! The end of a run: faults end, everybody reads and acknowledges, and everything must come to its end.

use std::time::Duration;

use rand::SeedableRng as _;
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom as _;
use stompica_broker::simulated::outside;

use crate::checkers::slowness::is_lossy;
use crate::client::Phase;
use crate::events::{Event, Violation};
use crate::store::Disk;
use crate::world::World;

mod patience;

/// Rounds without events after which a broker that is not idle counts as spinning.
const QUIET_ROUNDS_MAX: usize = 20_000;
/// Rounds after which all its events count as going in circles.
const ROUNDS_MAX: usize = 1_000_000;
/// So much the broker can write to each connection, before somebody reads.
pub(crate) const BUFFER_BYTES: usize = 64 << 10;
/// The number of clients that consume what is left in the end, at most.
const ATTEMPTS_MAX: usize = 30;

impl World {
    /// Ends all faults, and checks that everything comes to its end.
    pub(crate) fn finish(&mut self) -> Result<(), Violation> {
        self.finishes = true;
        self.mend_disk();
        self.restart_failed_log()?;
        if self.options.pressure.outlasts_patience {
            self.outlast_patience()?;
        }
        self.note(|| "faults end".to_owned());
        for client in &mut self.clients {
            client.is_stalled = false;
            client.wire.set_buffer(BUFFER_BYTES);
        }
        self.act_as_each(|actor| actor.consume_own())?;
        self.end_disturbances();
        self.watch_at_rest()?;
        self.end_rogues()?;
        self.come_to_rest()?;
        self.check_patience()?;
        self.expect_acceptance()?;
        self.tell_of_gaps()?;
        self.beat_at_rest()?;
        self.tell(vec![Event::Resting(self.open())])?;
        if self.disk.as_ref().is_some_and(Disk::has_failed) {
            self.expect_answers()?;
            return self.shut_down(); // whoever acknowledges is cut off
        }
        if !self.read_durables()?
            || !self.take_all_work()?
            || !self.drain_queues()?
            || !self.set_last_values()?
        {
            // The values that come before a RECEIPT wait for memory, beyond the end of the drain.
            self.clients.iter_mut().for_each(|client| client.leaves = false);
            return self.shut_down();
        }
        self.expect_answers()?;
        let open = self.open();
        self.tell_unread()?;
        let snapshot = self.broker.snapshot();
        self.tell(vec![Event::Kept(snapshot.queues.clone()), Event::Finished(open)])?;
        if (snapshot.queued, snapshot.unanswered, snapshot.fan_out_work) != (0, 0, 0) {
            return Err(Violation {
                checker: "accounting",
                text: format!("left after all was read: {snapshot:?}"),
            });
        }
        self.leave_nothing()?;
        self.shut_down()
    }

    /// Where slow consumers lose messages, a further message to each topic tells them of their loss.
    fn tell_of_gaps(&mut self) -> Result<(), Violation> {
        let options = &self.options;
        if [options.config.slow_consumer].into_iter().chain(options.policies.asked.clone()).any(is_lossy) {
            self.act_as_each(|actor| actor.send_to_each_topic())?;
            self.come_to_rest()?;
        }
        Ok(())
    }

    /// Each RECEIPT has come, unless an ERROR has.
    fn expect_answers(&self) -> Result<(), Violation> {
        for client in self.clients.iter().filter(|client| client.phase == Phase::Open) {
            if let Some(request) = client.first_missing() {
                let text = format!("client {} still waits for the RECEIPT of {request:?}", client.id);
                return Err(Violation { checker: "liveness", text });
            }
        }
        Ok(())
    }

    /// Tells what the broker has written and clients that are gone have never read.
    fn tell_unread(&mut self) -> Result<(), Violation> {
        let mut unread = Vec::new();
        for client in self.clients.iter_mut().filter(|client| client.phase == Phase::Over) {
            let id = client.id;
            let messages = client.take_unread().into_iter();
            unread.extend(messages.map(|(subscription, message)| Event::Unread(id, subscription, message)));
        }
        self.tell(unread)
    }

    /// Runs until nothing changes any more, and no deadline within a minute changes anything.
    pub(crate) fn come_to_rest(&mut self) -> Result<(), Violation> {
        let mut idle_for = Duration::ZERO;
        while idle_for < Duration::from_secs(60) {
            let before = self.summary.events;
            let (complaints, obstacles) = (self.complaints(), self.obstacles());
            self.run_until_idle()?;
            if idle_for > Duration::ZERO {
                self.check_complaints(&complaints, obstacles)?;
            }
            if self.summary.events != before {
                idle_for = Duration::ZERO;
            }
            idle_for += self.pass_idly(Duration::from_secs(10));
        }
        Ok(())
    }

    /// Lets all bytes arrive and all clients read and acknowledge, until the broker is idle.
    pub(crate) fn run_until_idle(&mut self) -> Result<(), Violation> {
        let (mut quiet, mut events) = (0, self.summary.events);
        for _ in 0..ROUNDS_MAX {
            let mut moved = false;
            for at in 0..self.clients.len() {
                let client = &self.clients[at];
                moved |= client.wire.in_transit() > 0;
                client.wire.arrive(usize::MAX);
                if client.phase != Phase::Over && !client.is_stalled {
                    moved |= self.receive(at, usize::MAX)? > 0;
                    moved |= self.acknowledge_all(at)?;
                }
            }
            moved |= self.serve_rogues()?;
            for shard in 0..self.broker.shards() {
                if self.broker.sleep(shard) == Some(Duration::ZERO) {
                    moved = true;
                    self.turn(shard)?;
                }
            }
            moved |= self.write_all(&mut SmallRng::seed_from_u64(self.summary.events))?;
            if !moved {
                return Ok(());
            }
            quiet = if self.summary.events == events { quiet + 1 } else { 0 };
            events = self.summary.events;
            if quiet > QUIET_ROUNDS_MAX {
                break;
            }
        }
        Err(Violation { checker: "liveness", text: "the broker does not become idle".to_owned() })
    }

    fn acknowledge_all(&mut self, at: usize) -> Result<bool, Violation> {
        self.act_as(at, &mut SmallRng::seed_from_u64(self.step), |actor| actor.settle())
    }

    /// New clients consume what is left in the queues. One takes one of them: whatever memory is held, the first consumer of
    /// a connection begins if messages wait in its queue.
    ///
    /// Returns false if the clients ended for other reasons.
    fn drain_queues(&mut self) -> Result<bool, Violation> {
        for _ in 0..ATTEMPTS_MAX {
            let mut queues = self.broker.snapshot().queues;
            queues.retain(|name| {
                name.starts_with("/queue/") && !name.contains("rogue") && !self.drained.contains(name)
            });
            queues.sort();
            let Some(queue) = queues.choose(&mut SmallRng::seed_from_u64(self.summary.events)).cloned()
            else {
                return Ok(true);
            };
            self.drain_some(vec![queue.clone()])?;
            let Some(client) = self.clients.last() else { continue };
            if client.phase == Phase::Open {
                self.drained.insert(queue);
            } else if let Some(("E-MEMORY", text)) = client.complaint()
                && self.broker.snapshot().waiting.contains(&queue)
            {
                let text = format!("the only consumer of {queue} was refused: {text}");
                return Err(Violation { checker: "liveness", text });
            }
        }
        Ok(false)
    }

    /// A new client can connect. Returns its number.
    pub(crate) fn expect_connection(&mut self, random: &mut SmallRng) -> Result<usize, Violation> {
        self.connect(random)?;
        self.run_until_idle()?;
        let at = self.clients.len() - 1;
        match self.clients[at].phase {
            Phase::Open => Ok(at),
            _ => Err(Violation { checker: "liveness", text: "nobody can connect at the end".to_owned() }),
        }
    }

    pub(crate) fn drain_some(&mut self, queues: Vec<String>) -> Result<(), Violation> {
        let mut random = SmallRng::seed_from_u64(0);
        let at = self.expect_connection(&mut random)?;
        self.act_as(at, &mut random, |actor| actor.subscribe_to(queues))?;
        self.come_to_rest()
    }

    fn shut_down(&mut self) -> Result<(), Violation> {
        self.ask_at_last()?;
        self.note(|| "drain".to_owned());
        for client in self.clients.iter_mut().filter(|client| client.phase != Phase::Over) {
            client.phase = Phase::Leaving;
        }
        self.broker.drain();
        self.await_end(outside::now() + self.options.config.drain + Duration::from_secs(1))
    }
}
