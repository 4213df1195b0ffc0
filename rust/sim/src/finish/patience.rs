//! Waits end: a SEND that has to wait goes on or is refused in time, and goes on once nothing is in its way.

use std::time::Duration;

use stompica_broker::config::SlowConsumer;
use stompica_broker::simulated::outside;

use crate::client::{Client, Phase};
use crate::events::{AckMode, Request, Violation, is_topic};
use crate::world::World;

/// The longest time that a SEND may wait: for room, and then for the receivers of its message.
const PATIENCE: Duration = Duration::from_secs(65);
/// The smallest memory that holds many messages.
const SMALL_MEMORY: u64 = 1 << 20;
/// No run fills a good part of so much memory.
const LARGE_MEMORY: u64 = 64 << 20;

/// Whether a SEND was refused that waited for a receiver, or for mail behind one that did.
fn waits_for_receiver(text: &str) -> bool {
    ["a receiver's outbox is full", "max_input_queue_size"].iter().any(|reason| text.contains(reason))
}

impl World {
    /// Lets time pass while some clients do not read. Every SEND is answered meanwhile.
    pub(super) fn outlast_patience(&mut self) -> Result<(), Violation> {
        self.note(|| "faults last".to_owned());
        self.clients
            .iter()
            .filter(|client| !client.is_stalled)
            .for_each(|client| client.wire.set_buffer(64 << 10));
        self.widen_reading_rogues();
        self.run_until_idle()?;
        let is_asking = |world: &World, at: usize| {
            let client = &world.clients[at];
            let request = client.first_missing().filter(|request| matches!(request, Request::Send(_)));
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

    /// No connection ends for what was in its way, if nothing was while the broker was idle with so many held bytes:
    /// `before` are those that had ended then.
    pub(super) fn check_complaints(&self, before: &[bool], held_bytes: i64) -> Result<(), Violation> {
        let limit = self.options.config.memory_limit;
        // Less holds only a few messages.
        let has_memory = limit >= SMALL_MEMORY && held_bytes < limit as i64 / 4;
        // From 95 % of the limit on, fan-outs stop. Then outboxes and mailboxes stay full because of memory.
        let is_out_of_memory = held_bytes >= limit as i64 / 100 * 95;
        for (client, had_ended) in self.clients.iter().zip(before) {
            let Some((code, text)) = client.complaint().filter(|_| !had_ended) else { continue };
            let is_stuck = match code {
                // An ACK behind a SEND waits with it, and the SEND may wait for that ACK. Mail waits behind its fan-out.
                "E-SLOW-CONSUMER" if acknowledges(client) => false,
                "E-MEMORY" if waits_for_receiver(text) && self.clients.iter().any(acknowledges) => false,
                // The store has failed; or frames that wait for something else take that much.
                "E-MEMORY" if !text.contains("publish_timeout") || text.contains("unfinished") => false,
                "E-MEMORY" => has_memory || !(is_out_of_memory || text.contains("memory_limit")),
                "E-SLOW-CONSUMER" => limit >= LARGE_MEMORY,
                _ => false,
            };
            if is_stuck {
                let id = client.id;
                let text = format!(
                    "client {id} got {code} when nothing was in its way, and {held_bytes} of {limit} bytes were held: {text}"
                );
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
    let current = client.subscriptions.values().map(|held| &held.subscription);
    let mut all = current.chain(client.ended.values().map(|(subscription, _)| subscription));
    all.any(|it| it.ack != AckMode::Auto && it.durable.is_none() && is_topic(&it.destination))
}
