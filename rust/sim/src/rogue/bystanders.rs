//! A polite pair beside the rogues: what one sends, the other gets within a bounded number of turns and without a
//! wait, whatever rogues do meanwhile.
//!
//! The pair is timed by itself: each shard takes turns as long as it has something to do, bytes of the pair arrive at
//! once, and rogues act in between. Nothing of what the product makes wait concerns the pair: it reads everything, its
//! topic is its own, and while memory is short it is not timed.

use std::time::Duration;

use rand::rngs::SmallRng;
use stompica_broker::simulated::outside::{self, Wire};

use super::deeds::Heard;
use super::reader::Reader;
use crate::events::Violation;
use crate::frames::Version;
use crate::world::World;

/// The number of times that a pair is timed in a run.
const TIMINGS_MAX: u64 = 6;
/// Turns of each shard within which an answer comes. A turn serves each part of its work for at least 5,000 visits
/// (ARCHITECTURE.md, "A turn is bounded"), which is what a few rogues send at a time; the rest is for messages that
/// wait at several shards, one after the other. Where the limits of turns are divided, there are as many times more.
const ROUNDS_MAX: u32 = 100;
/// The longest time for which all shards may sleep meanwhile: no deadline is part of a message's way.
const SLEEP_MAX: Duration = Duration::from_millis(50);
/// Steps of rogues in each round.
const STEPS: u32 = 3;

/// One of the pair.
#[derive(Debug)]
struct Member {
    wire: Wire,
    reader: Reader,
}

/// The pair: a publisher and its subscriber.
#[derive(Debug, Default)]
pub struct Bystanders {
    pair: Vec<Member>,
    timings: u64,
    /// The largest number of rounds that were needed.
    pub rounds: u32,
}

impl World {
    /// Times the pair.
    pub(crate) fn time_bystanders(&mut self, random: &mut SmallRng) -> Result<(), Violation> {
        if self.bystanders.timings == TIMINGS_MAX || self.is_memory_short() {
            return Ok(());
        }
        self.bystanders.timings += 1;
        self.note(|| "the pair is timed".to_owned());
        if self.bystanders.pair.is_empty() {
            let [Some(publisher), Some(subscriber)] = [(); 2].map(|()| outside::connect()) else {
                return Ok(());
            };
            let member = |wire| Member { wire, reader: Reader::new(Version::V12) };
            self.bystanders.pair = vec![member(publisher), member(subscriber)];
            let connect = b"CONNECT\naccept-version:1.2\nhost:h\n\n\0";
            self.bystanders.pair.iter().for_each(|member| member.wire.send(connect));
            let subscribe = b"SUBSCRIBE\nid:1\ndestination:/bystander\nreceipt:0\n\n\0";
            self.bystanders.pair[1].wire.send(subscribe);
            let expected = [vec![Heard::Connected], vec![Heard::Connected, Heard::Receipt("0".to_owned())]];
            return self.time_until(expected, random);
        }
        let receipt = self.bystanders.timings.to_string();
        let frame = format!("SEND\nreceipt:{receipt}\ndestination:/bystander\n\nhello\0");
        self.bystanders.pair[0].wire.send(frame.as_bytes());
        self.time_until([vec![Heard::Receipt(receipt)], vec![Heard::Message]], random)
    }

    fn is_memory_short(&self) -> bool {
        // For a moment within a turn, a message is there twice: as input, and as a message.
        let held = self.broker.snapshot().held_bytes as f64 + self.options.body_max as f64;
        held > self.options.config.memory_limit as f64 * 0.6
    }

    /// Lets everybody but the polite clients act until both have heard this.
    fn time_until(&mut self, mut expected: [Vec<Heard>; 2], random: &mut SmallRng) -> Result<(), Violation> {
        let late = |text: String| Err(Violation { checker: "bystanders", text });
        let mut slept = Duration::ZERO;
        let rounds_max = ROUNDS_MAX * self.options.pressure.turn_divisor as u32;
        for round in 0..rounds_max {
            if self.is_memory_short() {
                // It may have to wait now, or have been refused, as long as memory is short.
                self.bystanders.timings = TIMINGS_MAX;
                return Ok(());
            }
            for (member, expected) in self.bystanders.pair.iter_mut().zip(&mut expected) {
                member.wire.arrive(usize::MAX);
                let heard = member.reader.read(&member.wire.receive(usize::MAX), Duration::ZERO);
                let heard = heard.map_err(|text| Violation { checker: "bystanders", text })?;
                if member.wire.is_ended() || !expected.starts_with(&heard) {
                    return late(format!("one of the pair got {heard:?} instead of {expected:?}"));
                }
                expected.drain(..heard.len());
            }
            if expected.iter().all(Vec::is_empty) {
                self.bystanders.rounds = self.bystanders.rounds.max(round);
                return Ok(());
            }
            let mut sleeps = true;
            for shard in 0..self.broker.shards() {
                if self.broker.sleep(shard) == Some(Duration::ZERO) {
                    sleeps = false;
                    self.turn(shard)?;
                }
            }
            if sleeps {
                let next = (0..self.broker.shards()).filter_map(|at| self.broker.sleep(at)).min();
                let next = next.unwrap_or(Duration::MAX);
                if slept.saturating_add(next) > SLEEP_MAX {
                    return late(format!(
                        "all shards sleep, for {next:?}, and the pair waits for {expected:?}"
                    ));
                }
                slept += next;
                outside::advance(next);
            }
            for _ in 0..STEPS {
                self.rogue_step(random)?;
            }
        }
        late(format!("after {rounds_max} turns of each shard the pair waits for {expected:?}"))
    }

    /// The pair is not timed any more.
    pub(crate) fn end_bystanders(&mut self) {
        self.bystanders.pair.drain(..).for_each(|member| member.wire.reset());
    }
}
