//! Load generator, checker and ideal relay for STOMP brokers. See `bench/README.md`.
//!
//! One thread and one poll hold all connections of a run ([`fleet`]). What is read goes from [`inbound`] (WebSocket
//! frames unwrapped in place) to [`receiver`], which checks every message; [`round`] drives the [`publisher`]s;
//! [`run`] makes one repetition of a [`workload`] and [`campaign`] all of them, with the broker and the [`relay`] in
//! turn. Nothing here is shared with the broker's code.

mod body;
mod campaign;
mod cli;
mod conn;
mod fault;
mod fleet;
mod inbound;
mod latency;
mod ledger;
mod login;
mod machine;
mod procfs;
mod publisher;
mod receiver;
mod relay;
mod render;
mod result;
mod round;
mod run;
mod series;
mod stomp;
mod table;
mod target;
mod timer;
mod topology;
mod workload;
mod ws;

use std::process::ExitCode;

use cli::Command;

fn main() -> ExitCode {
    let (command, workloads) = match cli::parse(std::env::args().skip(1)) {
        Ok(parsed) => parsed,
        Err(error) => {
            eprintln!("stompica-loadgen: {error}");
            return ExitCode::from(2);
        }
    };
    match execute(command, &workloads) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("stompica-loadgen: {error}");
            ExitCode::FAILURE
        }
    }
}

/// True: everything went well.
fn execute(command: Command, folder: &std::path::Path) -> Result<bool, String> {
    match command {
        Command::Help => print!("{}", cli::HELP),
        Command::List => {
            for workload in workload::load(folder)? {
                let transports: Vec<&str> =
                    workload.transports.iter().map(|transport| transport.name()).collect();
                println!("{:<20} {:<7} {}", workload.name, transports.join(","), workload.about);
            }
        }
        Command::Run(options) => {
            let mut picked = workload::pick(&workload::load(folder)?, &options.names)?;
            if options.relay_only {
                picked.retain(|workload| workload.relay);
            }
            if options.quick {
                picked = picked.into_iter().map(workload::Workload::quick).collect();
            }
            return campaign::campaign(&options, &picked);
        }
        Command::Relay(port) => relay::serve(port).map_err(|error| error.to_string())?,
        Command::Render(files, document) => render::render(&files, &document)?,
    }
    Ok(true)
}
