//! One repetition of a workload against one target.

mod dialogue;
mod memory;
mod persist;

use std::path::Path;
use std::time::{Duration, Instant};

use crate::cli::Part;
use crate::conn::Progress;
use crate::connections::Connections;
use crate::fault::Fault;
use crate::latency::WindowLatency;
use crate::procfs;
use crate::result::{Firehose, Idle, Outcome, Shares, Special};
use crate::round::Round;
use crate::series;
use crate::target::Target;
use crate::topology::Topology;
use crate::workload::{Kind, Transport, Workload};

/// Shortest warm-up before rounds are measured.
const WARM_UP: Duration = Duration::from_millis(300);
/// A repetition ends after this time, however little CPU the target has used.
const RUN_MAX: Duration = Duration::from_secs(12);

/// One repetition, before it is run.
pub struct Repetition<'a> {
    /// The workload.
    pub workload: &'a Workload,
    /// Its transport.
    pub transport: Transport,
    /// The measured target.
    pub target: &'a Target,
    /// Length of the intervals over time, if requested.
    pub series: Option<Duration>,
    /// File for single latencies, if requested.
    pub samples: Option<&'a Path>,
    /// A folder on the disk of the broker's store, if it answers DIAG `store`.
    pub store: Option<&'a Path>,
    /// The half of a workload of kind `recover` to run.
    pub part: Option<Part>,
}

/// Runs it. A fault becomes the `fault` of the outcome.
pub fn run(repetition: &Repetition<'_>) -> Outcome {
    let result = match repetition.workload.kind {
        Kind::Window | Kind::Fanin | Kind::Queue | Kind::Persist => repetition.rounds(),
        Kind::Latency | Kind::PersistRate => repetition.latency(),
        Kind::Idle => repetition.idle(),
        Kind::Backlog => repetition.backlog(),
        Kind::Queues => repetition.queues(),
        Kind::Firehose => repetition.firehose(),
        Kind::Recover => repetition.part(repetition.part.expect("it was checked")),
    };
    result.unwrap_or_else(|fault| Outcome { fault: Some(fault.to_string()), ..Outcome::default() })
}

/// CPU of target and generator over a period.
struct Meter {
    pid: Option<u32>,
    begun: Instant,
    begun_unix_us: u64,
    target_ns: u64,
    own_ns: u64,
}

impl Meter {
    fn start(target: &Target) -> Meter {
        let target_ns = target.pid.map_or(0, procfs::cpu_ns);
        Meter {
            pid: target.pid,
            target_ns,
            own_ns: procfs::own_cpu_ns(),
            begun_unix_us: series::now_unix_us(),
            begun: Instant::now(),
        }
    }

    fn target_s(&self) -> Option<f64> {
        self.pid.map(|pid| procfs::cpu_ns(pid).saturating_sub(self.target_ns) as f64 / 1e9)
    }

    fn finish(&self, sum: &Round, rounds: u64) -> Outcome {
        let own_s = (procfs::own_cpu_ns() - self.own_ns) as f64 / 1e9;
        let target_s = self.target_s();
        let seconds = sum.elapsed.as_secs_f64();
        Outcome {
            begun_unix_us: self.begun_unix_us,
            seconds,
            rounds,
            messages: sum.messages,
            deliveries: sum.deliveries,
            deliveries_per_s: sum.deliveries as f64 / seconds,
            target_cpu_s: target_s,
            cpu_us_per_delivery: target_s.map(|cpu| cpu * 1e6 / sum.deliveries as f64),
            generator_cpu_s: own_s,
            generator_share: own_s / self.begun.elapsed().as_secs_f64(),
            ..Outcome::default()
        }
    }
}

impl Repetition<'_> {
    fn open(&self, topology: &Topology) -> Result<Connections, Fault> {
        Connections::open(topology, self.target, self.transport)
    }

    /// The connections of the measurement: where only RECEIPTs are awaited, nobody subscribes.
    fn measured(&self) -> Result<Connections, Fault> {
        let topology = Topology::new(self.workload);
        self.open(&if self.workload.has_receipts() { topology.publishers_only() } else { topology })
    }

    fn round(&self, connections: &mut Connections) -> Result<Round, Fault> {
        match self.workload.kind {
            Kind::Fanin => connections.receipt_round(self.workload.messages),
            _ => connections.window_round(self.workload.messages, self.workload.window),
        }
    }

    /// Runs rounds until the target has used the requested CPU.
    fn rounds(&self) -> Result<Outcome, Fault> {
        let mut connections = self.measured()?;
        let begun = Instant::now();
        self.round(&mut connections)?;
        while self.workload.min_cpu_s > 0.0 && begun.elapsed() < WARM_UP {
            self.round(&mut connections)?;
        }
        let before = self.log()?;
        let meter = Meter::start(self.target);
        connections.begin_series(self.series);
        if self.workload.kind != Kind::Fanin {
            connections.begin_window_latency();
        }
        let (mut sum, mut rounds) = (Round::default(), 0);
        let enough = |elapsed: Duration| {
            let used = meter.target_s().unwrap_or(elapsed.as_secs_f64());
            used >= self.workload.min_cpu_s || elapsed > RUN_MAX
        };
        while rounds == 0 || !enough(sum.elapsed) {
            let round = self.round(&mut connections)?;
            sum.elapsed += round.elapsed;
            sum.messages += round.messages;
            sum.deliveries += round.deliveries;
            rounds += 1;
        }
        let mut run = meter.finish(&sum, rounds);
        run.series = connections.take_series();
        run.window_latency = connections.window_latency.take().map(WindowLatency::result);
        let log = self.log()?;
        connections.leave()?;
        if self.workload.kind == Kind::Persist {
            self.finish_persist(&mut run, connections, [before, log])?;
        } else if self.workload.kind == Kind::Queue {
            let consumers = connections.conns.iter().filter_map(|conn| conn.receiver.consumer.as_ref());
            let consumed = consumers.map(|consumer| consumer.taken).collect();
            run.special = Some(Special::Shares(Shares { consumed }));
            self.nothing_is_left()?;
        }
        Ok(run)
    }

    /// New consumers get nothing: every ACK took effect.
    fn nothing_is_left(&self) -> Result<(), Fault> {
        let empty = || self.open(&Topology::new(self.workload).subscribers_only())?.leave();
        empty().map_err(|fault| Fault::LeftOver(fault.to_string()))
    }

    fn latency(&self) -> Result<Outcome, Fault> {
        let mut connections = self.measured()?;
        let before = self.log()?;
        let meter = Meter::start(self.target);
        connections.begin_series(self.series);
        let round =
            connections.rate_round(self.workload.rate, self.workload.seconds, self.samples.is_some())?;
        let mut run = meter.finish(&round, 1);
        run.series = connections.take_series();
        run.latency = connections.latency.as_ref().map(crate::latency::Latency::result);
        if let (Some(path), Some(latency)) = (self.samples, &connections.latency) {
            latency.write_samples(path)?;
        }
        let log = self.log()?;
        connections.leave()?;
        if self.workload.kind == Kind::PersistRate {
            self.finish_persist(&mut run, connections, [before, log])?;
        }
        Ok(run)
    }

    fn idle(&self) -> Result<Outcome, Fault> {
        let count = self.workload.connections;
        let gained = |now: u64, before: u64| (now as f64 - before as f64) / count as f64;
        let before = self.memory();
        let begun = Instant::now();
        let mut connections = self.open(&Topology::new(self.workload))?;
        let connect_s = begun.elapsed().as_secs_f64();
        let connected = self.memory();
        let rest = Meter::start(self.target);
        let until = Instant::now() + Duration::from_secs_f64(self.workload.seconds);
        while let Some(left) = until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
            connections.turn(Some(left))?;
        }
        let idle_core_share = rest.target_s().unwrap_or_default() / self.workload.seconds;
        let meter = Meter::start(self.target);
        let round = connections.window_round(1, 1)?;
        let mut run = meter.finish(&round, 1);
        let after = self.memory();
        run.special = Some(Special::Idle(Idle {
            connections: count,
            connect_s,
            user_bytes_per_connection: gained(connected.anonymous, before.anonymous),
            resident_bytes_per_connection: gained(connected.resident, before.resident),
            user_bytes_per_connection_after: gained(after.anonymous, before.anonymous),
            idle_core_share,
            message_to_all_ms: round.elapsed.as_secs_f64() * 1e3,
        }));
        connections.leave()?;
        Ok(run)
    }

    fn firehose(&self) -> Result<Outcome, Fault> {
        let length = Duration::from_secs_f64(self.workload.seconds);
        let mut connections = self.open(&Topology::new(self.workload).without_slow())?;
        let meter = Meter::start(self.target);
        let mut alone = Timeline::default();
        let round = connections.firehose(length, |now, delivered| alone.seen(now, delivered))?;
        let mut run = meter.finish(&round, 1);
        connections.leave()?;
        drop(connections);
        let topology = Topology::new(self.workload);
        let mut connections = self.open(&topology)?;
        let mut beside = Timeline::default();
        connections.firehose(length, |now, delivered| beside.seen(now, delivered))?;
        let slow = topology
            .clients
            .iter()
            .position(|client| client.never_reads)
            .expect("one connection of a firehose never reads");
        let slow_ended = drain(&mut connections, slow)?;
        let alone_per_s = alone.rate_in_second_half(length);
        let beside_per_s = beside.rate_in_second_half(length);
        run.special = Some(Special::Firehose(Firehose {
            alone_per_s,
            beside_per_s,
            ratio: beside_per_s / alone_per_s,
            longest_stall_alone_ms: alone.longest_pause().as_secs_f64() * 1e3,
            longest_stall_ms: beside.longest_pause().as_secs_f64() * 1e3,
            slow_received: connections.conns[slow].receiver.delivered,
            slow_ended,
        }));
        connections.leave()?;
        Ok(run)
    }
}

/// Reads what the slow subscriber was sent, and says how its connection ends. It must end.
fn drain(connections: &mut Connections, slow: usize) -> Result<String, Fault> {
    let until = Instant::now() + Duration::from_secs(2);
    while Instant::now() < until {
        match connections.read(slow) {
            Err(Fault::Refused(message)) => return Ok(format!("ERROR: {message}")),
            Err(Fault::Closed(_)) if connections.conns[slow].is_between_frames() => {
                return Ok("closed without ERROR".to_owned());
            }
            Err(Fault::Closed(_)) => return Ok("closed within a frame".to_owned()),
            Err(Fault::Io(error)) => return Ok(format!("closed without ERROR: {error}")),
            Err(fault) => return Err(fault),
            Ok(Progress::Drained) => std::thread::yield_now(),
            Ok(_) => {}
        }
    }
    Err(Fault::Stalled("the slow subscriber was not disconnected".to_owned()))
}

/// Deliveries over time.
#[derive(Default)]
struct Timeline(Vec<(Instant, u64)>);

impl Timeline {
    /// Records how many are delivered, if that has changed.
    fn seen(&mut self, now: Instant, delivered: u64) {
        if self.0.last().is_none_or(|last| last.1 != delivered) {
            self.0.push((now, delivered));
        }
    }

    /// Longest time without a delivery.
    fn longest_pause(&self) -> Duration {
        let pauses = self.0.windows(2).map(|pair| pair[1].0.duration_since(pair[0].0));
        pauses.max().unwrap_or_default()
    }

    /// Deliveries per second in the second half of `length`.
    fn rate_in_second_half(&self, length: Duration) -> f64 {
        let Some(start) = self.0.first().map(|entry| entry.0) else { return 0.0 };
        let half = |entry: &&(Instant, u64)| {
            let at = entry.0.duration_since(start);
            at >= length / 2 && at <= length
        };
        let kept: Vec<_> = self.0.iter().filter(half).collect();
        match (kept.first(), kept.last()) {
            (Some(first), Some(last)) if last.0 > first.0 => {
                (last.1 - first.1) as f64 / last.0.duration_since(first.0).as_secs_f64()
            }
            _ => 0.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_that_of_the_second_half_and_pauses_are_measured() {
        let start = Instant::now();
        let mut timeline = Timeline::default();
        for step in 0..1_000_u64 {
            timeline.seen(start + Duration::from_millis(step), step * 5);
        }
        for step in 0..5_000_u64 {
            timeline.seen(start + Duration::from_millis(3_000 + step), 5_000 + step * 100);
        }
        assert!(timeline.longest_pause() >= Duration::from_secs(2));
        assert!((timeline.rate_in_second_half(Duration::from_secs(7)) - 100_000.0).abs() < 1.0);
    }
}
