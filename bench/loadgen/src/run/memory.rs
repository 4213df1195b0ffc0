//! Memory of queues: one with many messages, and many empty ones.

use std::time::Instant;

use crate::body::Body;
use crate::cli::Part;
use crate::fault::Fault;
use crate::procfs::{self, Memory};
use crate::result::{Held, Outcome, Special};
use crate::round::Round;
use crate::stomp;
use crate::topology::Topology;

use super::dialogue::{Dialogue, Reply};
use super::{Meter, Repetition};

/// Number of queues that have a consumer at the same time.
const BATCH: u64 = 500;

impl Repetition<'_> {
    pub(super) fn memory(&self) -> Memory {
        self.target.pid.map(procfs::memory).unwrap_or_default()
    }

    /// Fills a queue, then consumes all of it, to prove that the messages were there.
    pub(super) fn backlog(&self) -> Result<Outcome, Fault> {
        let count = self.workload.messages;
        let topology = Topology::new(self.workload);
        let mut producer = self.open(&topology.publishers_only())?;
        let before = self.memory();
        let meter = Meter::start(self.target);
        let round = producer.receipt_round(count)?;
        let mut run = meter.finish(&round, 1);
        let full = self.memory();
        let frame = producer.publishers[0].stored_len();
        let consumed = self.consume(count)?;
        let per_s = [round, consumed].map(|round| round.messages as f64 / round.elapsed.as_secs_f64());
        run.special = Some(Special::Held(held(count, frame as f64, [before, full, self.memory()], per_s)));
        Ok(run)
    }

    /// One half of `backlog`: the harness starts the broker again between the two.
    pub(super) fn part(&self, part: Part) -> Result<Outcome, Fault> {
        let count = self.workload.messages;
        let meter = Meter::start(self.target);
        let round = match part {
            Part::Fill => self.open(&Topology::new(self.workload).publishers_only())?.receipt_round(count)?,
            Part::Drain => self.consume(count)?,
        };
        Ok(meter.finish(&round, 1))
    }

    /// Consumes all of the queue, which must hold this many messages, in order and once.
    fn consume(&self, count: u64) -> Result<Round, Fault> {
        let begun = Instant::now();
        let mut consumer = self.open(&Topology::new(self.workload).subscribers_only())?;
        consumer.take_all(count)?;
        let elapsed = begun.elapsed();
        consumer.leave()?;
        Ok(Round { elapsed, messages: count, deliveries: count })
    }

    /// Sends one message to each of many queues, consumes it and unsubscribes; then asks the broker whether all queues exist.
    pub(super) fn queues(&self) -> Result<Outcome, Fault> {
        let count = self.workload.messages;
        let mut dialogue = Dialogue::connect(self.target)?;
        let body = Body::new("queue ", self.workload.body);
        let before = self.memory();
        let meter = Meter::start(self.target);
        let mut first = 0;
        while first < count {
            let end = count.min(first + BATCH);
            use_queues(&mut dialogue, &body, first, end)?;
            first = end;
        }
        let sum = Round { elapsed: meter.begun.elapsed(), messages: count, deliveries: count };
        let mut run = meter.finish(&sum, 1);
        let full = self.memory();
        let per_s = [run.deliveries_per_s; 2];
        run.special = Some(Special::Held(held(count, 0.0, [before, full, full], per_s)));
        let there = monitored(&mut dialogue)?;
        if there != count {
            return Err(Fault::Altered(format!("/queue/monitor lists {there} of {count} queues")));
        }
        Ok(run)
    }
}

/// Sends to each of these queues, gets the message back, and unsubscribes.
fn use_queues(dialogue: &mut Dialogue, body: &Body, first: u64, end: u64) -> Result<(), Fault> {
    let mut out = Vec::new();
    for number in first..end {
        let queue = format!("/queue/bench-{number}");
        out.extend(stomp::send(&queue, &body.numbered(number), ""));
        out.extend(stomp::subscribe(&number.to_string(), &queue, "", "in"));
    }
    dialogue.write(&out)?;
    let (mut receipts, mut bodies) = (first, vec![None; (end - first) as usize]);
    while receipts < end || bodies.contains(&None) {
        match dialogue.reply()? {
            Reply::Receipt(id) if id == "in" => receipts += 1,
            Reply::Message { subscription, body } => {
                let number = subscription.parse::<u64>().ok().and_then(|number| number.checked_sub(first));
                let slot = number.and_then(|number| bodies.get_mut(usize::try_from(number).ok()?));
                match slot {
                    Some(slot) if slot.is_none() => *slot = Some(body),
                    _ => return Err(Fault::Altered(format!("a message too many on {subscription}"))),
                }
            }
            other => return Err(Fault::Malformed(format!("{other:?} while queues are made"))),
        }
    }
    let sent = (first..end).map(|number| Some(body.numbered(number)));
    if !sent.eq(bodies) {
        return Err(Fault::Altered("the body of a queue's message".to_owned()));
    }
    out.clear();
    for number in first..end {
        out.extend(stomp::unsubscribe(&number.to_string(), "out"));
    }
    dialogue.write(&out)?;
    for _ in first..end {
        match dialogue.reply()? {
            Reply::Receipt(id) if id == "out" => {}
            other => return Err(Fault::Malformed(format!("{other:?} while queues are left"))),
        }
    }
    Ok(())
}

/// Number of our queues in the broker's own list, all of them empty.
fn monitored(dialogue: &mut Dialogue) -> Result<u64, Fault> {
    dialogue.write(&stomp::subscribe("monitor", "/queue/monitor", "", "monitor"))?;
    loop {
        if let Reply::Message { body, .. } = dialogue.reply()? {
            let text = String::from_utf8_lossy(&body).into_owned();
            let ours = text.split("\n\n").filter(|queue| {
                queue.trim_start().starts_with("Queue: ")
                    && queue.contains("bench-")
                    && queue.contains("\nsize: 0\n")
            });
            return Ok(ours.count() as u64);
        }
    }
}

/// Figures from the memory before, at the peak, and after consumption, for frames of `frame` octets; and the rates of filling
/// and consuming.
fn held(count: u64, frame: f64, [before, full, after]: [Memory; 3], [queued, consumed]: [f64; 2]) -> Held {
    let each = |now: u64, before: u64| (now as f64 - before as f64) / count as f64;
    Held {
        count,
        frame_bytes: frame,
        resident_bytes_each: each(full.resident, before.resident),
        user_bytes_each: each(full.anonymous, before.anonymous),
        resident_bytes_each_over_frame: each(full.resident, before.resident) - frame,
        resident_bytes_each_after: each(after.resident, before.resident),
        queued_per_s: queued,
        consumed_per_s: consumed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_divided_and_the_frame_subtracted() {
        let at = |resident, anonymous| Memory { resident, anonymous, peak: 0 };
        let held = held(100, 170.0, [at(10_000, 5_000), at(50_000, 40_000), at(12_000, 6_000)], [1.0, 2.0]);
        assert!((held.resident_bytes_each - 400.0).abs() < 1e-9);
        assert!((held.user_bytes_each - 350.0).abs() < 1e-9);
        assert!((held.resident_bytes_each_over_frame - 230.0).abs() < 1e-9);
        assert!((held.resident_bytes_each_after - 20.0).abs() < 1e-9);
        assert!(held.queued_per_s < held.consumed_per_s);
    }
}
