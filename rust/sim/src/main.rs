//! Runs seeds of the simulator; see docs/simulator.md. Everything is chosen by environment variables:
//!
//! | variable | meaning | default |
//! |---|---|---|
//! | `SEED` | the first seed | a new one, from the clock |
//! | `SEEDS` | how many | 1 if `SEED` is given, else no limit |
//! | `SECONDS` | begin no seed after this time; a single seed has no limit | 10 |
//! | `EVENTS` | steps of each seed before faults end | 2000 |
//! | `ONLY` | the name of the only checker whose findings count | all |
//! | `CORES` | how many seeds run side by side | one for each core |
//! | `SHRINK` | seconds for cutting down the trace of a failure | 20 |
//! | `LOG` | 0: no seed has the real log on the simulated disk | 1 |
//! | `FAULT` | a planted fault to switch on | none |
//! | `FAULTS` | planted faults to search, with commas, in `SEEDS` seeds of each series; `all` writes the table to `README.md` | none |
//!
//! A single seed prints its options. A failure prints a trace from which all steps are removed that it does not need, the
//! broken promise, the seed and the commit. The exit status is 1 after a failure, or if a fault was not found, and 2 after
//! a wrong value.

use std::num::NonZero;
use std::process::{Command, ExitCode};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use stompica_sim::faults::{self, Search};
use stompica_sim::options::Options;
use stompica_sim::shrink::shrink;
use stompica_sim::variables::{Sought, Variables};
use stompica_sim::world::{Failure, World};

/// Lines of a trace that are shown: half of them from its beginning, where its steps are, and half from its end.
const SHOWN_LINES: usize = 200;

fn main() -> ExitCode {
    let variables = match Variables::read(|name| std::env::var(name).ok()) {
        Ok(variables) => variables,
        Err(line) => {
            eprintln!("{line}");
            return ExitCode::from(2);
        }
    };
    std::panic::set_hook(Box::new(|_| ())); // a panic is a finding like others, and is shown as such
    stompica_sim::options::log::IS_LEFT_OUT.store(!variables.log, Ordering::Relaxed);
    let steps = variables.events;
    let all_cores = variables.cores.map_or_else(cores, |cores| cores as usize);
    if let Some(sought) = &variables.faults {
        let seeds_max = variables.seeds.unwrap_or(faults::SEEDS_MAX);
        return search_faults(sought, Search { steps, seeds_max, cores: all_cores });
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64;
    let first = variables.seed.unwrap_or(now);
    let count = variables.seeds.unwrap_or(if variables.seed.is_some() { 1 } else { u64::MAX });
    let limit = if count == 1 { Duration::MAX } else { Duration::from_secs(variables.seconds) };
    let plan = Plan { first, count, limit, steps, only: variables.only, fault: variables.fault };
    if count == 1 {
        println!("{:#?}", plan.options(first));
    }
    let cores = all_cores.min(usize::try_from(count).unwrap_or(usize::MAX));
    let began = Instant::now();
    let outcome = plan.run(cores);
    if let Some(failure) = outcome.failure {
        report(&failure, &plan.options(failure.seed), Duration::from_secs(variables.shrink));
        return ExitCode::FAILURE;
    }
    let seconds = began.elapsed().as_secs_f64();
    let found = plan.only.map_or("nothing found".to_owned(), |only| {
        format!(
            "nothing found by {only}; other checkers ended {} {}",
            outcome.others,
            counted(outcome.others, "run")
        )
    });
    let crashes = match outcome.crashes {
        0 => String::new(),
        crashes => {
            format!(" {crashes} {} of the broker,", counted(crashes, "crash").replace("crashs", "crashes"))
        }
    };
    println!(
        "{} {} from {first}: {found};{crashes} {} events of clients in {seconds:.1} s on {cores} {}, {:.0} a second on each",
        outcome.seeds,
        counted(outcome.seeds, "seed"),
        outcome.events,
        counted(cores as u64, "core"),
        outcome.events as f64 / seconds / cores as f64
    );
    ExitCode::SUCCESS
}

/// A noun behind this number.
fn counted(number: u64, noun: &str) -> String {
    if number == 1 { noun.to_owned() } else { format!("{noun}s") }
}

/// The lines of the README between which the table of planted faults is.
const TABLE_MARKS: [&str; 2] = ["<!-- planted faults: begin -->\n", "<!-- planted faults: end -->\n"];

/// Searches planted faults, and prints or writes the table.
fn search_faults(sought: &Sought, search: Search) -> ExitCode {
    let began = Instant::now();
    let rows = search.run(sought.names(), |seeds, rows| {
        let missing: Vec<&str> = rows.iter().filter(|row| !row.is_found()).map(|row| row.fault).collect();
        let state = if missing.is_empty() {
            "all found".to_owned()
        } else {
            format!("not yet found: {}", missing.join(", "))
        };
        eprintln!("{seeds} seeds of each series, {:.0} s; {state}", began.elapsed().as_secs_f64());
    });
    let lines: Vec<String> = rows.iter().map(|row| row.line(search.seeds_max)).collect();
    let found = rows.iter().filter(|row| row.is_found()).count();
    let table = format!(
        "{found} of {} planted faults are found in each of five series of at most {} seeds.\n\n{}\n{}\n",
        rows.len(),
        search.seeds_max,
        faults::table_head(),
        lines.join("\n")
    );
    print!("{table}");
    let cores = counted(search.cores as u64, "core");
    println!("{:.0} s on {} {cores}", began.elapsed().as_secs_f64(), search.cores);
    if *sought == Sought::All {
        let text = std::fs::read_to_string("README.md").unwrap_or_default();
        let parts = text
            .split_once(TABLE_MARKS[0])
            .and_then(|(before, rest)| Some((before, rest.split_once(TABLE_MARKS[1])?.1)));
        let Some((before, after)) = parts else {
            eprintln!("README.md with the marks of the table is expected in this folder");
            return ExitCode::from(2);
        };
        let text = format!("{before}{}\n{table}\n{}{after}", TABLE_MARKS[0], TABLE_MARKS[1]);
        if let Err(error) = std::fs::write("README.md", text) {
            eprintln!("README.md: {error}");
            return ExitCode::from(2);
        }
    }
    if found == rows.len() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn cores() -> usize {
    thread::available_parallelism().map_or(1, NonZero::get)
}

/// Which seeds run, and how.
struct Plan {
    first: u64,
    count: u64,
    limit: Duration,
    steps: u64,
    only: Option<&'static str>,
    fault: Option<&'static str>,
}

/// What seeds have shown.
struct Outcome {
    seeds: u64,
    /// Runs that ended with a finding of a checker that does not count.
    others: u64,
    events: u64,
    crashes: u64,
    /// That of the lowest seed.
    failure: Option<Box<Failure>>,
}

impl Plan {
    fn options(&self, seed: u64) -> Options {
        Options { fault: self.fault.map(str::to_owned), ..Options::new(seed, self.steps) }
    }

    /// Runs seeds on so many threads until one fails.
    fn run(&self, cores: usize) -> Outcome {
        let began = Instant::now();
        let (next, has_failed) = (AtomicU64::new(0), AtomicBool::new(false));
        let (events, others, crashes) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
        let failures: Mutex<Vec<Box<Failure>>> = Mutex::default();
        let work = || {
            while !has_failed.load(Ordering::Relaxed) && began.elapsed() < self.limit {
                let at = next.fetch_add(1, Ordering::Relaxed);
                if at >= self.count {
                    break;
                }
                match World::new(self.options(self.first.wrapping_add(at))).run(|_| true) {
                    Ok(summary) => {
                        events.fetch_add(summary.events, Ordering::Relaxed);
                        crashes.fetch_add(summary.crashes, Ordering::Relaxed);
                    }
                    Err(failure) if self.only.is_none_or(|only| only == failure.violation.checker) => {
                        has_failed.store(true, Ordering::Relaxed);
                        failures.lock().expect("no thread panics while it pushes").push(failure);
                    }
                    Err(_) => _ = others.fetch_add(1, Ordering::Relaxed),
                }
            }
        };
        thread::scope(|scope| (0..cores).for_each(|_| drop(scope.spawn(work))));
        let failures = failures.into_inner().expect("no thread panics while it pushes");
        Outcome {
            seeds: next.into_inner().min(self.count),
            others: others.into_inner(),
            events: events.into_inner(),
            crashes: crashes.into_inner(),
            failure: failures.into_iter().min_by_key(|failure| failure.seed),
        }
    }
}

/// Shows a failure, after so much time for cutting down its trace.
fn report(failure: &Failure, options: &Options, limit: Duration) {
    eprintln!("{}: {}; cutting down the trace …", failure.violation.checker, failure.violation.text);
    let (kept, least) = shrink(failure, options, limit);
    let trace = &least.trace;
    let left_out = trace.len().saturating_sub(SHOWN_LINES);
    for (at, line) in trace.iter().enumerate() {
        match at.checked_sub(SHOWN_LINES / 2) {
            Some(0) if left_out > 0 => println!("… {left_out} lines …"),
            Some(behind) if behind < left_out => {}
            _ => println!("{line}"),
        }
    }
    let commit = Command::new("git").args(["rev-parse", "--short", "HEAD"]).output();
    let commit =
        commit.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()).unwrap_or_default();
    println!("\n{}: {}", least.violation.checker, least.violation.text);
    println!(
        "seed {} at commit {commit}; {} of {} steps are needed. Again: make sim SEED={} EVENTS={}{}",
        failure.seed,
        kept,
        failure.step,
        failure.seed,
        options.steps,
        options.fault.as_ref().map_or(String::new(), |fault| format!(" FAULT={fault}"))
    );
}
