//! Runs seeds of the simulator; see docs/simulator.md. Everything is chosen by environment variables:
//!
//! | variable | meaning | default |
//! |---|---|---|
//! | `SEED` | the first seed | a new one, from the clock |
//! | `SEEDS` | how many | 1 if `SEED` is given, else no limit |
//! | `SECONDS` | begin no seed after this time | 10 |
//! | `EVENTS` | steps of each seed before faults end | 2000 |
//! | `ONLY` | the name of the only checker whose findings count | all |
//! | `FAULT` | a planted fault to switch on; `all` prints a table of the seeds that each needs | none |
//!
//! A single seed prints its options. A failure prints the seed, the commit, the broken promise and a trace from which all
//! steps are removed that it does not need, and ends with status 1.

use std::process::{Command, ExitCode};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use stompica_sim::faults;
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
    if fault.as_deref() == Some("all") {
        return if faults::print_table(steps) { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    let options = |seed| Options { fault: fault.clone(), ..Options::new(seed, steps) };
    if count == 1 {
        println!("{:#?}", options(first));
    }
    let began = Instant::now();
    let (mut seeds, mut events) = (0_u64, 0_u64);
    while seeds < count && (is_chosen && count == 1 || began.elapsed() < limit) {
        let seed = first.wrapping_add(seeds);
        seeds += 1;
        match World::new(options(seed)).run(|_| true) {
            Ok(summary) => events += summary.events,
            Err(failure) if only.as_ref().is_none_or(|only| only == failure.violation.checker) => {
                report(&failure, &options(seed));
                return ExitCode::FAILURE;
            }
            Err(_) => {}
        }
    }
    let seconds = began.elapsed().as_secs_f64();
    println!(
        "{seeds} seeds from {first}: nothing found; {events} events of clients in {seconds:.1} s, {:.0} a second",
        events as f64 / seconds
    );
    ExitCode::SUCCESS
}

fn report(failure: &Failure, options: &Options) {
    let (kept, least) = shrink(failure, options);
    let trace = &least.trace;
    for line in &trace[trace.len().saturating_sub(SHOWN_LINES)..] {
        println!("{line}");
    }
    let commit = Command::new("git").args(["rev-parse", "--short", "HEAD"]).output();
    let commit =
        commit.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()).unwrap_or_default();
    println!("\n{}: {}", least.violation.checker, least.violation.text);
    println!(
        "seed {} at commit {commit}; {} of {} steps are needed. Again: make sim SEED={} EVENTS={}",
        failure.seed, kept, failure.step, failure.seed, options.steps
    );
}
