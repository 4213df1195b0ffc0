//! Runs seeds of the simulator; see docs/simulator.md. Everything is chosen by environment variables:
//!
//! | variable | meaning | default |
//! |---|---|---|
//! | `SEED` | the first seed | a new one, from the clock |
//! | `SEEDS` | how many | 1 if `SEED` is given, else no limit |
//! | `SECONDS` | begin no seed after this time | 10 |
//! | `EVENTS` | steps of each seed before faults end | 2000 |
//! | `ONLY` | the name of the only checker whose findings count | all |
//! | `CORES` | how many seeds run side by side | one for each core |
//! | `SHRINK` | seconds for cutting down the trace of a failure | 20 |
//! | `FAULT` | a planted fault to switch on | none |
//! | `FAULTS` | planted faults to search, with commas, in `SEEDS` seeds of each series; `all` writes the table to `README.md` | none |
//!
//! A single seed prints its options. A failure prints the seed, the commit, the broken promise and a trace from which all
//! steps are removed that it does not need, and ends with status 1.

use std::num::NonZero;
use std::process::{Command, ExitCode};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use stompica_sim::faults::{self, Search};
use stompica_sim::options::Options;
use stompica_sim::shrink::shrink;
use stompica_sim::world::{Failure, World};

/// Lines of a trace that are shown.
const SHOWN_LINES: usize = 200;

fn text(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|text| !text.is_empty())
}

/// A variable that is a number.
fn number(name: &str) -> Option<u64> {
    let text = text(name)?;
    let number = text.parse();
    if number.is_err() {
        eprintln!("{name}={text}: a whole number is expected");
        std::process::exit(2);
    }
    number.ok()
}

fn main() -> ExitCode {
    std::panic::set_hook(Box::new(|_| ())); // a panic is a finding like others, and is shown as such
    let steps = number("EVENTS").unwrap_or(2000);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64;
    let (first, is_chosen) = (number("SEED").unwrap_or(now), number("SEED").is_some());
    let count = number("SEEDS").unwrap_or(if is_chosen { 1 } else { u64::MAX });
    let limit = number("SECONDS").map_or(Duration::from_secs(10), Duration::from_secs);
    let (only, fault) = (text("ONLY"), text("FAULT"));
    let all_cores = number("CORES").map_or_else(cores, |cores| cores.max(1) as usize);
    if let Some(names) = text("FAULTS") {
        let seeds_max = number("SEEDS").unwrap_or(faults::SEEDS_MAX);
        return search_faults(&names, Search { steps, seeds_max, cores: all_cores });
    }
    let plan =
        Plan { first, count, limit: if count == 1 { Duration::MAX } else { limit }, steps, only, fault };
    if count == 1 {
        println!("{:#?}", plan.options(first));
    }
    let cores = all_cores.min(count as usize);
    let began = Instant::now();
    let (seeds, events, failure) = plan.run(cores);
    if let Some(failure) = failure {
        report(&failure, &plan.options(failure.seed));
        return ExitCode::FAILURE;
    }
    let seconds = began.elapsed().as_secs_f64();
    println!(
        "{seeds} seeds from {first}: nothing found; {events} events of clients in {seconds:.1} s, {:.0} a second on each of \
         {cores} cores",
        events as f64 / seconds / cores as f64
    );
    ExitCode::SUCCESS
}

/// The lines of the README between which the table of planted faults is.
const TABLE_MARKS: [&str; 2] = ["<!-- planted faults: begin -->\n", "<!-- planted faults: end -->\n"];

/// Searches planted faults, and prints or writes the table.
fn search_faults(names: &str, search: Search) -> ExitCode {
    let is_all = names == "all";
    let is_meant = |fault: &str| is_all || names.split(',').any(|name| name == fault);
    let faults: Vec<&str> = faults::ALL.iter().copied().filter(|fault| is_meant(fault)).collect();
    let began = Instant::now();
    let rows = search.run(&faults, |seeds, rows| {
        let missing: Vec<&str> = rows.iter().filter(|row| !row.is_found()).map(|row| row.fault).collect();
        eprintln!("{seeds} seeds, {:.0} s; not yet: {}", began.elapsed().as_secs_f64(), missing.join(", "));
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
    println!("{:.0} s on {} cores", began.elapsed().as_secs_f64(), search.cores);
    if is_all {
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
    only: Option<String>,
    fault: Option<String>,
}

impl Plan {
    fn options(&self, seed: u64) -> Options {
        Options { fault: self.fault.clone(), ..Options::new(seed, self.steps) }
    }

    /// Runs seeds on so many threads until one fails. Returns the numbers of seeds and of events, and the failure with the
    /// lowest seed.
    fn run(&self, cores: usize) -> (u64, u64, Option<Box<Failure>>) {
        let began = Instant::now();
        let (next, events, has_failed) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
        let failures: Mutex<Vec<Box<Failure>>> = Mutex::default();
        let work = || {
            while !has_failed.load(Ordering::Relaxed) && began.elapsed() < self.limit {
                let at = next.fetch_add(1, Ordering::Relaxed);
                if at >= self.count {
                    break;
                }
                match World::new(self.options(self.first.wrapping_add(at))).run(|_| true) {
                    Ok(summary) => _ = events.fetch_add(summary.events, Ordering::Relaxed),
                    Err(failure)
                        if self.only.as_ref().is_none_or(|only| only == failure.violation.checker) =>
                    {
                        has_failed.store(true, Ordering::Relaxed);
                        failures.lock().expect("no thread panics while it pushes").push(failure);
                    }
                    Err(_) => {}
                }
            }
        };
        thread::scope(|scope| (0..cores).for_each(|_| drop(scope.spawn(work))));
        let failures = failures.into_inner().expect("no thread panics while it pushes");
        let least = failures.into_iter().min_by_key(|failure| failure.seed);
        (next.into_inner().min(self.count), events.into_inner(), least)
    }
}

fn report(failure: &Failure, options: &Options) {
    let limit = Duration::from_secs(number("SHRINK").unwrap_or(20));
    eprintln!("{}: {}; cutting down the trace …", failure.violation.checker, failure.violation.text);
    let (kept, least) = shrink(failure, options, limit);
    let trace = &least.trace;
    for line in &trace[trace.len().saturating_sub(SHOWN_LINES)..] {
        println!("{line}");
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
