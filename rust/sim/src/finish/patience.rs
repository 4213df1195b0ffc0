//! Waits end: a SEND that has to wait goes on or is refused in time, and goes on once nothing is in its way.

use std::time::Duration;

use stompica_broker::config::SlowConsumer;
use stompica_broker::simulated::outside;

use super::BUFFER_BYTES;
use crate::checkers::slowness::LARGE_MEMORY;
use crate::client::{Client, Phase};
use crate::events::{AckMode, Request, Subscription, Violation, is_topic};
use crate::work::plain;
use crate::world::World;

/// The longest time that a SEND may wait: for room, and then for the receivers of its message.
const PATIENCE: Duration = Duration::from_secs(65);
/// The smallest memory that holds many messages.
const SMALL_MEMORY: u64 = 1 << 20;

/// What may still be in a client's way when all clients read, as seen while the broker was idle.
#[derive(Clone, Copy, Debug)]
pub(super) struct Obstacles {
    /// The `memory_limit`, and how much of it is used.
    limit: u64,
    held_bytes: i64,
    /// A rogue that does not read takes no more bytes, or messages wait for ACKs, which may wait behind a SEND.
    receivers: bool,
}

impl Obstacles {
    /// Whether the broker may end a client with this ERROR. `is_limited`: its own subscriptions may be too slow by its request.
    fn allow(self, code: &str, text: &str, is_limited: bool) -> bool {
        match code {
            "E-SLOW-CONSUMER" => is_limited || self.limit < LARGE_MEMORY,
            // Without a wait, the store has failed, or another check is about it. The text has only the last reason of a
            // wait: SENDs that waited for memory may meet a full mailbox or outbox when all of them go on at once.
            "E-MEMORY" if !text.contains("publish_timeout") || !self.has_memory() => true,
            "E-MEMORY" if text.contains("unfinished") => true, // frames that wait for something else
            // Mail and large fan-outs wait behind a message for a receiver, and a wait for it may go before another one.
            "E-MEMORY" => self.receivers && !text.contains("memory_limit"),
            _ => true,
        }
    }

    /// Whether so much memory is free that no SEND waits for it, not even a large one.
    fn has_memory(self) -> bool {
        // Less than that holds only a few messages.
        self.limit >= SMALL_MEMORY && self.held_bytes < self.limit as i64 / 4
    }
}

impl World {
    /// Lets time pass while some clients do not read. Every SEND is answered meanwhile.
    pub(super) fn outlast_patience(&mut self) -> Result<(), Violation> {
        self.note(|| "faults last".to_owned());
        self.clients
            .iter()
            .filter(|client| !client.is_stalled)
            .for_each(|client| client.wire.set_buffer(BUFFER_BYTES));
        self.widen_reading_rogues();
        self.run_until_idle()?;
        let is_asking = |world: &World, at: usize| {
            let client = &world.clients[at];
            let request = client.first_missing().filter(|request| matches!(plain(request), Request::Send(_)));
            let reads = client.phase == Phase::Open && !client.is_stalled;
            // A frame without a RECEIPT before it may be what waits.
            request.filter(|_| reads && client.unreceipted.is_empty()).cloned()
        };
        let before: Vec<_> = (0..self.clients.len()).map(|at| is_asking(self, at)).collect();
        let end = outside::now() + PATIENCE;
        while outside::now() < end {
            self.pass_idly(PATIENCE);
            self.run_until_idle()?;
        }
        for (at, asked) in before.into_iter().enumerate() {
            if asked.is_some() && is_asking(self, at) == asked {
                let text = format!("client {at} has waited for {PATIENCE:?} for the answer to {asked:?}");
                return Err(Violation { checker: "liveness", text });
            }
        }
        Ok(())
    }

    /// The connections that have got an ERROR.
    pub(super) fn complaints(&self) -> Vec<bool> {
        self.clients.iter().map(|client| client.complaint().is_some()).collect()
    }

    /// What is in the way of clients now.
    pub(super) fn obstacles(&self) -> Obstacles {
        Obstacles {
            limit: self.options.config.memory_limit,
            held_bytes: self.broker.snapshot().held_bytes,
            receivers: self.crowd.has_full(BUFFER_BYTES) || self.clients.iter().any(acknowledges),
        }
    }

    /// No connection ends for what was in its way, if nothing was while the broker was idle: `before` are those that had
    /// ended then.
    pub(super) fn check_complaints(&self, before: &[bool], obstacles: Obstacles) -> Result<(), Violation> {
        for (client, had_ended) in self.clients.iter().zip(before) {
            let Some((code, text)) = client.complaint().filter(|_| !had_ended) else { continue };
            if !obstacles.allow(code, text, acknowledges(client) || disconnects(client)) {
                let id = client.id;
                let text =
                    format!("client {id} got {code} when nothing was in its way, {obstacles:?}: {text}");
                return Err(Violation { checker: "liveness", text });
            }
        }
        Ok(())
    }

    /// Slow consumers are cut off before publishers have to give up.
    pub(super) fn check_patience(&self) -> Result<(), Violation> {
        let config = &self.options.config;
        let SlowConsumer::Block(patience) = config.slow_consumer else { return Ok(()) };
        // One slow consumer may follow another.
        if config.publish_timeout < patience * 20 || config.memory_limit < LARGE_MEMORY {
            return Ok(());
        }
        for client in &self.clients {
            if let Some(("E-MEMORY", text)) = client.complaint()
                && text.contains("a receiver's outbox is full")
            {
                let id = client.id;
                let text = format!("client {id} was refused, not a slow consumer cut off: {text}");
                return Err(Violation { checker: "liveness", text });
            }
        }
        Ok(())
    }
}

/// Whether a client acknowledges messages of topics: those that wait for its ACKs count as part of its outbox.
fn acknowledges(client: &Client) -> bool {
    subscriptions(client)
        .any(|it| it.ack != AckMode::Auto && it.durable.is_none() && is_topic(&it.destination))
}

/// Whether a client has asked to be cut off when messages of a topic fill a queue of its own.
fn disconnects(client: &Client) -> bool {
    subscriptions(client).any(|it| it.terms.policy == Some(SlowConsumer::Disconnect))
}

fn subscriptions(client: &Client) -> impl Iterator<Item = &Subscription> {
    let current = client.subscriptions.values().map(|held| &held.subscription);
    current.chain(client.ended.values().map(|(subscription, _)| subscription))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FULL: &str = "a SEND was held for publish_timeout=1000 ms: a receiver's outbox is full";
    const NEAR: &str = "a SEND was held for publish_timeout=1000 ms: memory_limit is near";
    const MAILBOX: &str = "a SEND was held for publish_timeout=1000 ms: max_input_queue_size is reached";
    const LARGE: &str = "a SEND was held for publish_timeout=1000 ms: \
                         messages with very many receivers are still being delivered";
    const HOMES: &str =
        "a COMMIT was held for publish_timeout=1000 ms: a COMMIT waits for the homes of its queues";
    const ALL: [&str; 5] = [FULL, NEAR, MAILBOX, LARGE, HOMES];

    /// Much memory is there, and nobody is in the way.
    fn nothing() -> Obstacles {
        Obstacles { limit: LARGE_MEMORY, held_bytes: 1000, receivers: false }
    }

    #[test]
    fn a_client_may_be_ended_for_what_is_in_its_way() {
        let receivers = Obstacles { receivers: true, ..nothing() };
        assert!([FULL, MAILBOX, LARGE].iter().all(|text| receivers.allow("E-MEMORY", text, false)));
        assert!(nothing().allow("E-SLOW-CONSUMER", "", true));
        assert!(nothing().allow("E-QUEUE-FULL", "", false));
    }

    #[test]
    fn a_client_that_waited_for_memory_may_be_ended_for_what_it_met_then() {
        let used = Obstacles { held_bytes: LARGE_MEMORY as i64 / 4, ..nothing() };
        let small = Obstacles { limit: SMALL_MEMORY - 1, ..nothing() };
        for obstacles in [used, small] {
            assert!(ALL.iter().all(|text| obstacles.allow("E-MEMORY", text, false)), "{obstacles:?}");
        }
    }

    #[test]
    fn a_client_may_not_be_ended_for_what_is_not_there() {
        let receivers = Obstacles { receivers: true, ..nothing() };
        let used = Obstacles { held_bytes: LARGE_MEMORY as i64 / 4 - 1, ..nothing() };
        let small = Obstacles { limit: SMALL_MEMORY, ..nothing() };
        for obstacles in [nothing(), used, small] {
            assert!(ALL.iter().all(|text| !obstacles.allow("E-MEMORY", text, true)), "{obstacles:?}");
        }
        assert!(!receivers.allow("E-MEMORY", NEAR, true));
        assert!(!receivers.allow("E-SLOW-CONSUMER", "", false));
    }
}
