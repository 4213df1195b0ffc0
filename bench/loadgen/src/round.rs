//! Drives the publishers: under a window, at a rate, for a time, or with a receipt at the end.

use std::time::{Duration, Instant};

use crate::connections::{Connections, StallTimer};
use crate::fault::Fault;
use crate::latency::Latency;
use crate::publisher::SEQUENCE_END;

/// Most octets per write.
const WRITE_MAX: usize = 256 * 1024;
/// Most octets that a publisher writes in a turn, so that readers get their turn.
const TURN_MAX: usize = 1024 * 1024;
/// How long before a message is due the generator polls busily: a sleeping thread would send it late.
const LEAD: Duration = Duration::from_micros(200);
/// Longest wait for an event before checking for a stall.
const PATIENCE: Duration = Duration::from_secs(1);

/// Figures of a round.
#[derive(Debug, Clone, Copy, Default)]
pub struct Round {
    /// From the first write to the last delivery (or RECEIPT).
    pub elapsed: Duration,
    /// Messages sent, over all publishers.
    pub messages: u64,
    /// Messages delivered, over all subscriptions.
    pub deliveries: u64,
}

impl Connections {
    /// Each publisher sends `messages` under the window; waits until every subscription has received all of them.
    pub fn window_round(&mut self, messages: u64, window: u64) -> Result<Round, Fault> {
        let (start, before) = (Instant::now(), self.delivered);
        self.set_goals(messages)?;
        let mut stall = StallTimer::new();
        loop {
            let delivered = self.delivered;
            let (mut more, mut done) = (false, true);
            for publisher in 0..self.publishers.len() {
                more |= self.push(publisher, window)?;
                done &= self.is_done(publisher);
            }
            if done {
                break;
            }
            self.turn(Some(if more { Duration::ZERO } else { PATIENCE }))?;
            let moved = more || self.delivered > delivered;
            if !moved {
                self.find_lost()?;
            }
            stall.moved(moved, || self.where_it_stands())?;
        }
        let messages = messages * self.publishers.len() as u64;
        Ok(Round { elapsed: start.elapsed(), messages, deliveries: self.delivered - before })
    }

    /// Each publisher sends `messages`, the last with a receipt; waits for all RECEIPTs.
    pub fn receipt_round(&mut self, messages: u64) -> Result<Round, Fault> {
        let start = Instant::now();
        self.set_goals(messages - 1)?;
        let receipts =
            |connections: &Connections| connections.conns.iter().map(|conn| conn.receipts).sum::<u64>();
        let due = receipts(self) + self.publishers.len() as u64;
        let mut asked = vec![false; self.publishers.len()];
        let mut stall = StallTimer::new();
        let mut at = 0;
        while receipts(self) < due {
            let mut more = false;
            for (number, asked) in asked.iter_mut().enumerate() {
                more |= self.push(number, u64::MAX)?;
                let publisher = &mut self.publishers[number];
                let conn = &mut self.conns[publisher.connection];
                if publisher.next == publisher.goal && !*asked && !conn.is_blocked() {
                    publisher.fill_with_receipt(&mut conn.out, "round");
                    publisher.goal += 1;
                    conn.flush()?;
                    *asked = true;
                }
            }
            self.turn(Some(if more { Duration::ZERO } else { PATIENCE }))?;
            let sent = self.publishers.iter().map(|publisher| publisher.next).sum();
            stall.moved(sent > at, || format!("{sent} messages sent, no RECEIPT"))?;
            at = sent;
        }
        let messages = messages * self.publishers.len() as u64;
        Ok(Round { elapsed: start.elapsed(), messages, deliveries: messages })
    }

    /// Waits until this many messages have arrived.
    pub fn take_all(&mut self, messages: u64) -> Result<(), Fault> {
        let mut stall = StallTimer::new();
        while self.delivered < messages {
            let delivered = self.delivered;
            self.turn(Some(PATIENCE))?;
            stall.moved(self.delivered > delivered, || {
                format!("{delivered} of {messages} messages arrived")
            })?;
        }
        Ok(())
    }

    /// Sends at a fixed rate for `seconds`; the first tenth is warm-up. There must be one publisher, at message 0.
    pub fn rate_round(&mut self, rate: u64, seconds: f64, samples: bool) -> Result<Round, Fault> {
        let interval = Duration::from_nanos(1_000_000_000 / rate);
        let total = (rate as f64 * seconds) as u64;
        let begun = Instant::now();
        let start = self.tick(interval)? + LEAD;
        let latency = Latency::new(start, interval, total / 10);
        self.latency = Some(latency.over_time(self.series.as_ref(), samples));
        self.set_goals(total)?;
        let mut stall = StallTimer::new();
        while !self.is_done(0) {
            let delivered = self.delivered;
            let busy = self.latency.as_ref().is_some_and(|latency| {
                let next = self.publishers[0].next;
                next < total && latency.intended(next) < Instant::now() + LEAD
            });
            self.turn(Some(if busy { Duration::ZERO } else { PATIENCE }))?;
            self.send_due(total)?;
            stall.moved(self.delivered > delivered, || self.where_it_stands())?;
        }
        Ok(Round { elapsed: begun.elapsed(), messages: total, deliveries: self.delivered })
    }

    /// Sends the messages that are due, with one write each.
    fn send_due(&mut self, total: u64) -> Result<(), Fault> {
        let Some(latency) = &mut self.latency else { return Ok(()) };
        let publisher = &mut self.publishers[0];
        let conn = &mut self.conns[publisher.connection];
        let now = Instant::now();
        while publisher.next < latency.due(now).min(total) {
            latency.writing(Instant::now());
            publisher.fill(&mut conn.out, 1);
            conn.flush()?;
        }
        Ok(())
    }

    /// Publishes without a window for `length`, calls `seen` after each turn, then waits until everything is delivered.
    pub fn firehose(&mut self, length: Duration, mut seen: impl FnMut(Instant, u64)) -> Result<Round, Fault> {
        let (start, before) = (Instant::now(), self.delivered);
        let first = self.publishers[0].next;
        self.publishers[0].goal = SEQUENCE_END;
        let mut stall = StallTimer::new();
        loop {
            let now = Instant::now();
            seen(now, self.delivered);
            if now.duration_since(start) >= length {
                // Frames already in the buffer are still sent in full.
                self.publishers[0].goal = self.publishers[0].next;
            }
            let delivered = self.delivered;
            let more = self.push(0, u64::MAX)?;
            if self.is_done(0) {
                break;
            }
            self.turn(Some(if more { Duration::ZERO } else { Duration::from_millis(10) }))?;
            stall.moved(more || self.delivered > delivered, || self.where_it_stands())?;
        }
        let messages = self.publishers[0].next - first;
        Ok(Round { elapsed: start.elapsed(), messages, deliveries: self.delivered - before })
    }

    fn set_goals(&mut self, messages: u64) -> Result<(), Fault> {
        for (number, publisher) in self.publishers.iter_mut().enumerate() {
            publisher.goal = publisher.next + messages;
            if publisher.goal >= SEQUENCE_END {
                return Err(Fault::Stalled("sequence numbers are used up: shorten the run".to_owned()));
            }
            if let Some(arrivals) = &self.arrivals {
                arrivals.borrow_mut().expect(number, publisher.goal);
            }
        }
        Ok(())
    }

    /// Whether every subscription has received all that the publisher was to send.
    fn is_done(&self, publisher: usize) -> bool {
        let Publishing { next, goal, .. } = self.publishing(publisher);
        next == goal && self.slowest(publisher).is_none_or(|slowest| slowest >= goal)
    }

    fn publishing(&self, publisher: usize) -> Publishing {
        let publisher = &self.publishers[publisher];
        Publishing { next: publisher.next, goal: publisher.goal, connection: publisher.connection }
    }

    /// Writes what window and socket allow. True if it stopped only to let readers have their turn.
    fn push(&mut self, number: usize, window: u64) -> Result<bool, Fault> {
        let Publishing { next, goal, connection } = self.publishing(number);
        let conn = &mut self.conns[connection];
        if conn.is_blocked() {
            conn.flush()?;
            if conn.is_blocked() {
                return Ok(false);
            }
        }
        if next == goal {
            return Ok(false);
        }
        let slowest = self.slowest(number).unwrap_or(next);
        let ahead = next.saturating_sub(slowest);
        let mut allowed = window.saturating_sub(ahead).min(goal - next);
        // Small portions cost a system call each: wait for an eighth of the window, unless nothing is in flight.
        if allowed == 0 || (allowed < window / 8 && allowed < goal - next && ahead > 0) {
            return Ok(false);
        }
        let publisher = &mut self.publishers[number];
        let conn = &mut self.conns[connection];
        let portion = (WRITE_MAX / publisher.frame_len()).max(1) as u64;
        let mut written = 0;
        while allowed > 0 && written < TURN_MAX {
            let count = portion.min(allowed);
            if let Some(latency) = &mut self.window_latency {
                latency.writing(number, publisher.next + count, Instant::now());
            }
            publisher.fill(&mut conn.out, count);
            written += conn.out.len();
            conn.flush()?;
            allowed -= count;
            if conn.is_blocked() {
                return Ok(false);
            }
        }
        Ok(allowed > 0)
    }

    fn where_it_stands(&self) -> String {
        let one = |(number, publisher): (usize, &crate::publisher::Publisher)| {
            let slowest = self.slowest(number);
            let missing =
                self.arrivals.as_ref().and_then(|arrivals| arrivals.borrow_mut().first_missing(number));
            let missing = missing.map(|missing| format!(", {missing} is missing")).unwrap_or_default();
            format!(
                "publisher {number} sent {} of {}, slowest subscription at {slowest:?}{missing}",
                publisher.next, publisher.goal
            )
        };
        self.publishers.iter().enumerate().map(one).take(4).collect::<Vec<_>>().join("; ")
    }
}

struct Publishing {
    next: u64,
    goal: u64,
    connection: usize,
}
