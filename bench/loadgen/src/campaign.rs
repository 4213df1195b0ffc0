//! All repetitions of all variants: starts broker and relay, alternates between them, writes what came out.

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use crate::cli::Options;
use crate::machine::{self, Machine, Versions};
use crate::procfs;
use crate::result::{FORMAT, Median, Record, Relay, Run};
use crate::run::{Setting, run};
use crate::table;
use crate::target::Target;
use crate::workload::{Transport, Workload};

/// Runs everything; true: no repetition failed.
pub fn campaign(options: &Options, workloads: &[Workload]) -> Result<bool, String> {
    raise_descriptor_limit();
    let started = machine::now_unix_s();
    let mut out = Output::open(options, started)?;
    let relay = if options.relay_only || options.relay { Some(start_relay()?) } else { None };
    let versions = match (options.relay_only, options.connect) {
        (false, None) => Versions::of(Some(&broker_command(options, None))),
        _ => Versions::of(None),
    };
    let (commit, changed) = machine::commit();
    let mut records = Vec::new();
    for workload in workloads {
        for variant in variants(options, workload) {
            let mut record = Record {
                format: FORMAT,
                workload: workload.clone(),
                target: if options.relay_only { "relay" } else { "broker" }.to_owned(),
                transport: variant.transport,
                writers: variant.writers,
                settings: options.settings.clone(),
                quick: options.quick,
                commit: commit.clone(),
                changed,
                machine: Machine::here(),
                versions: versions.clone(),
                started_unix_s: machine::now_unix_s(),
                peak_rss_bytes: None,
                runs: Vec::new(),
                median: None,
                relay: None,
            };
            variant.measure(options, relay.as_ref(), &mut record)?;
            table::progress(&record);
            out.write(&record)?;
            records.push(record);
        }
    }
    println!("\n{}", table::tables(&records));
    out.close();
    Ok(records.iter().all(|record| record.median.is_some()))
}

struct Variant {
    transport: Transport,
    writers: Option<usize>,
}

fn variants(options: &Options, workload: &Workload) -> Vec<Variant> {
    let transports = workload.transports.iter().copied();
    let wanted = transports.filter(|transport| options.transport.is_none_or(|only| only == *transport));
    let one = [None];
    let writers = if options.relay_only || options.connect.is_some() { &one[..] } else { &options.writers };
    wanted.flat_map(|transport| writers.iter().map(move |&writers| Variant { transport, writers })).collect()
}

impl Variant {
    fn measure(&self, options: &Options, relay: Option<&Target>, record: &mut Record) -> Result<(), String> {
        let workload = record.workload.clone();
        let (mut runs, mut relay_runs) = (Vec::new(), Vec::new());
        let once = |target: &Target, relay: bool| {
            let series = options.series_ms.map(Duration::from_millis);
            let samples = options.samples.as_deref();
            run(&Setting { workload: &workload, transport: self.transport, target, relay, series, samples })
        };
        let mut broker: Option<Target> = None;
        for _ in 0..options.runs {
            if let (true, Some(relay)) = (options.relay_only, relay) {
                runs.push(once(relay, true));
                record.peak_rss_bytes = relay.pid.map(|pid| procfs::memory(pid).peak);
                continue;
            }
            // Memory is compared with a broker that never had a connection.
            if workload.kind.needs_fresh_broker() {
                broker = None;
            }
            let target = match broker.take() {
                Some(target) => target,
                None => self.start(options)?,
            };
            let result = once(&target, false);
            let peak = target.pid.map(|pid| procfs::memory(pid).peak);
            record.peak_rss_bytes = record.peak_rss_bytes.max(peak);
            let failed = result.fault.clone();
            runs.push(result);
            if let Some(fault) = failed {
                eprintln!(
                    "{} over {} failed: {fault}\n{}",
                    workload.name,
                    self.transport.name(),
                    target.log()
                );
                break;
            }
            if let (true, Some(relay)) = (workload.relay, relay) {
                relay_runs.push(once(relay, true));
            }
            broker = Some(target);
        }
        record.median = Median::of(&runs);
        record.runs = runs;
        if !relay_runs.is_empty() {
            record.relay = Some(self.beside(&record.median, relay_runs));
        }
        Ok(())
    }

    fn start(&self, options: &Options) -> Result<Target, String> {
        match options.connect {
            Some(address) => Ok(Target::existing(address, options.pid, options.login.clone())),
            None => Target::start(&broker_command(options, self.writers)),
        }
    }

    fn beside(&self, broker: &Option<Median>, runs: Vec<Run>) -> Relay {
        let median = Median::of(&runs);
        let ratio = match (broker, &median) {
            (Some(broker), Some(relay)) => Some(broker.deliveries_per_s / relay.deliveries_per_s),
            _ => None,
        };
        let least = match self.transport {
            Transport::Tcp => 15e6,
            Transport::Ws => 10e6,
        };
        let counts = median.as_ref().is_some_and(|median| median.deliveries_per_s >= least);
        Relay { runs, median, ratio, counts }
    }
}

fn broker_command(options: &Options, writers: Option<usize>) -> Vec<String> {
    let mut command: Vec<String> =
        [&options.python, "-m", "stompica", "port=0", "host=127.0.0.1"].map(str::to_owned).to_vec();
    command.extend(writers.map(|writers| format!("writers={writers}")));
    command.extend(options.settings.iter().cloned());
    command
}

fn start_relay() -> Result<Target, String> {
    let program = std::env::current_exe().map_err(|error| format!("own program: {error}"))?;
    Target::start(&[program.display().to_string(), "relay".to_owned()])
}

/// Ten thousand connections need as many descriptors.
fn raise_descriptor_limit() {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is a valid place for the answer.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) } == 0 {
        limit.rlim_cur = limit.rlim_max;
        // SAFETY: `limit` is initialised and lives through the call; a failure leaves the old limit.
        unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) };
    }
}

/// File of JSON lines.
struct Output(Option<(File, PathBuf)>);

impl Output {
    fn open(options: &Options, started: u64) -> Result<Output, String> {
        let path = match &options.out {
            Some(path) if path.as_os_str() == "-" => return Ok(Output(None)),
            Some(path) => path.clone(),
            None if options.quick => return Ok(Output(None)),
            None => {
                let (date, time) = machine::date_and_time(started);
                PathBuf::from(format!("bench/results/{date}/run-{time}.jsonl"))
            }
        };
        let shown = path.display().to_string();
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(|error| format!("{shown}: {error}"))?;
        }
        let file = File::create(&path).map_err(|error| format!("{shown}: {error}"))?;
        Ok(Output(Some((file, path))))
    }

    fn write(&mut self, record: &Record) -> Result<(), String> {
        let Some((file, path)) = &mut self.0 else { return Ok(()) };
        let line = serde_json::to_string(record).map_err(|error| error.to_string())?;
        writeln!(file, "{line}").map_err(|error| format!("{}: {error}", path.display()))
    }

    fn close(self) {
        if let Some((_, path)) = self.0 {
            println!("results: {}", path.display());
        }
    }
}
