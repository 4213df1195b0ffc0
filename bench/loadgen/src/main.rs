//! Load generator, checker and ideal relay for STOMP brokers. See `bench/README.md`.
//!
//! One process makes one repetition of one [`workload`] against one [`target`] that already listens, and prints the
//! result. Planning, repeating and recording is the harness's part (`stompica bench`).
//!
//! One thread and one poll hold all connections of a repetition ([`connections`]). Bytes read go from [`inbound`]
//! (WebSocket frames unwrapped in place) to [`receiver`], which checks every message; [`round`] drives the [`publisher`]s;
//! [`run`] combines these to a repetition. The [`relay`] is a separate process. No code is shared with the broker.

mod arrivals;
mod bare;
mod body;
mod cli;
mod conn;
mod connections;
mod fault;
mod inbound;
mod latency;
mod login;
mod procfs;
mod publisher;
mod receipts;
mod receiver;
mod relay;
mod result;
mod round;
mod run;
mod series;
mod stomp;
mod target;
mod timer;
mod topology;
mod workload;
mod ws;

use std::process::ExitCode;
use std::time::Duration;

use cli::{Command, Options};
use run::Repetition;
use workload::{Kind, Workload};

fn main() -> ExitCode {
    let command = match cli::parse(std::env::args().skip(1)) {
        Ok(command) => command,
        Err(error) => {
            eprintln!("stompica-loadgen: {error}");
            return ExitCode::from(2);
        }
    };
    match execute(command) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("stompica-loadgen: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Executes a command; false: the repetition failed.
fn execute(command: Command) -> Result<bool, String> {
    match command {
        Command::Help => print!("{}", cli::HELP),
        Command::Version => println!("stompica-loadgen {}", env!("CARGO_PKG_VERSION")),
        Command::Run(options) => return repetition(&options),
        Command::Check(file, transport) => {
            let workload = Workload::load(&file)?;
            workload.check_transport(transport)?;
            println!("{}", workload.name);
        }
        Command::Relay(port) => {
            raise_descriptor_limit();
            relay::serve(port).map_err(|error| error.to_string())?;
        }
    }
    Ok(true)
}

/// Makes one repetition and prints its result; false: it failed.
fn repetition(options: &Options) -> Result<bool, String> {
    let workload = Workload::load(&options.workload)?;
    workload.check_transport(options.transport)?;
    if (workload.kind == Kind::Recover) != options.part.is_some() {
        return Err("--part fill|drain belongs to workloads of kind recover".to_owned());
    }
    raise_descriptor_limit();
    let repetition = Repetition {
        workload: &workload,
        transport: options.transport,
        target: &options.target,
        series: options.series_ms.map(Duration::from_millis),
        samples: options.samples.as_deref(),
        store: options.store.as_deref(),
        part: options.part,
    };
    let mut outcome = run::run(&repetition);
    outcome.peak_rss_bytes = options.target.pid.map(|pid| procfs::memory(pid).peak);
    println!("{}", serde_json::to_string(&outcome).map_err(|error| error.to_string())?);
    Ok(outcome.fault.is_none())
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
