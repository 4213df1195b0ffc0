//! The command line.

use std::net::SocketAddr;
use std::path::PathBuf;

use crate::login::Login;
use crate::workload::Transport;

/// What `--help` prints.
pub const HELP: &str = "\
stompica-loadgen: load generator and checker for STOMP brokers

  list                     names and descriptions of the workloads
  run [WORKLOAD…]          run workloads (all: no name), broker and ideal relay in turn
      --transport tcp|ws     only this one
      --writers LIST         settings of `writers`, comma-separated; default: default,1
      --runs N               repetitions, default 5
      --quick                one short repetition of everything; the figures mean nothing
      --target broker|relay  relay: measure only the ideal relay
      --no-relay             leave the ideal relay out
      --set KEY=VALUE        one more setting of the broker (may be repeated)
      --python PATH          interpreter that has stompica, default .venv/bin/python
      --connect HOST:PORT    a broker that runs already; with --pid N its CPU and memory are read
      --login L --passcode P --vhost H --ws-path PATH   what that broker asks for; default: no login, localhost, /ws
      --close-is-receipt     it may close instead of answering DISCONNECT
      --series MS            also throughput and latency of each interval of so many ms
      --samples FILE         also every single latency, of one repetition (latency workloads)
      --out FILE             results, default bench/results/DATE/run-TIME.jsonl; `-`: none
  relay [--port N]         the ideal relay by itself
  render [FILE…]           write the tables of result files (default: all in bench/results) between the markers
                           of bench/README.md
      --readme PATH
  --workloads DIR          folder of the workloads, default bench/workloads

Run it from the top of the source tree.
";

/// What to do.
#[derive(Debug, PartialEq)]
pub enum Command {
    /// Print the help.
    Help,
    /// List the workloads.
    List,
    /// Run workloads.
    Run(Box<Options>),
    /// Be the ideal relay on this port.
    Relay(u16),
    /// Render result files into a document.
    Render(Vec<PathBuf>, PathBuf),
}

/// Options of `run`.
#[derive(Debug, PartialEq)]
pub struct Options {
    /// Workloads by name; none: all.
    pub names: Vec<String>,
    /// Only this transport.
    pub transport: Option<Transport>,
    /// Values of `writers` to try; none is the default.
    pub writers: Vec<Option<usize>>,
    /// Repetitions.
    pub runs: usize,
    /// Smoke run.
    pub quick: bool,
    /// Measure only the relay.
    pub relay_only: bool,
    /// Measure the relay beside the broker.
    pub relay: bool,
    /// Further settings of the broker.
    pub settings: Vec<String>,
    /// Interpreter for the broker.
    pub python: String,
    /// A broker that runs already.
    pub connect: Option<SocketAddr>,
    /// Its process.
    pub pid: Option<u32>,
    /// How to log in there.
    pub login: Login,
    /// Length of the intervals to be told apart.
    pub series_ms: Option<u64>,
    /// File for single latencies.
    pub samples: Option<PathBuf>,
    /// Where results go.
    pub out: Option<PathBuf>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            names: Vec::new(),
            transport: None,
            writers: vec![None, Some(1)],
            runs: 5,
            quick: false,
            relay_only: false,
            relay: true,
            settings: Vec::new(),
            python: ".venv/bin/python".to_owned(),
            connect: None,
            pid: None,
            login: Login::default(),
            series_ms: None,
            samples: None,
            out: None,
        }
    }
}

/// Parses the arguments; also returns the folder of the workloads.
pub fn parse(arguments: impl Iterator<Item = String>) -> Result<(Command, PathBuf), String> {
    let mut arguments = arguments.peekable();
    let mut workloads = PathBuf::from("bench/workloads");
    let mut options = Options::default();
    let mut readme = PathBuf::from("bench/README.md");
    let mut port = 0;
    let Some(command) = arguments.next() else { return Ok((Command::Help, workloads)) };
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or_else(|| format!("{argument} needs a value"));
        match argument.as_str() {
            "--workloads" => workloads = value()?.into(),
            "--readme" => readme = value()?.into(),
            "--port" => port = number(&argument, &value()?)?,
            "--help" | "-h" => return Ok((Command::Help, workloads)),
            name if !name.starts_with('-') => options.names.push(argument),
            _ => options.take(&argument, value)?,
        }
    }
    if options.samples.is_some() && (options.runs != 1 || options.series_ms.is_none()) {
        return Err("--samples is for one repetition with intervals: --runs 1 --series MS".to_owned());
    }
    let command = match command.as_str() {
        "list" => Command::List,
        "run" => Command::Run(Box::new(options)),
        "relay" => Command::Relay(port),
        "render" => Command::Render(options.names.into_iter().map(PathBuf::from).collect(), readme),
        "help" | "--help" | "-h" => Command::Help,
        other => return Err(format!("unknown command {other:?}: list, run, relay or render")),
    };
    Ok((command, workloads))
}

impl Options {
    fn take(&mut self, name: &str, value: impl FnOnce() -> Result<String, String>) -> Result<(), String> {
        match name {
            "--transport" => self.transport = Some(transport(&value()?)?),
            "--writers" => self.writers = value()?.split(',').map(writers).collect::<Result<_, _>>()?,
            "--runs" => self.runs = number(name, &value()?)?,
            "--quick" => {
                (self.quick, self.runs) = (true, 1);
                self.writers = vec![None];
            }
            "--target" => match value()?.as_str() {
                "broker" => self.relay_only = false,
                "relay" => self.relay_only = true,
                other => return Err(format!("--target {other:?}: broker or relay")),
            },
            "--no-relay" => self.relay = false,
            "--set" => self.settings.push(value()?),
            "--python" => self.python = value()?,
            "--connect" => {
                let text = value()?;
                self.connect = Some(text.parse().map_err(|_| format!("--connect {text:?}: ADDRESS:PORT"))?);
            }
            "--pid" => self.pid = Some(number(name, &value()?)?),
            "--login" => self.user().0 = value()?,
            "--passcode" => self.user().1 = value()?,
            "--vhost" => self.login.host = value()?,
            "--close-is-receipt" => self.login.close_is_receipt = true,
            "--ws-path" => self.login.ws_path = value()?,
            "--series" => self.series_ms = Some(number::<u64>(name, &value()?)?.max(1)),
            "--samples" => self.samples = Some(value()?.into()),
            "--out" => self.out = Some(value()?.into()),
            _ => return Err(format!("unknown option {name}")),
        }
        if self.runs == 0 {
            return Err("--runs is at least 1".to_owned());
        }
        Ok(())
    }

    fn user(&mut self) -> &mut (String, String) {
        self.login.user.get_or_insert_default()
    }
}

fn number<T: std::str::FromStr>(name: &str, text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("{name} {text:?}: not a number that fits"))
}

fn transport(text: &str) -> Result<Transport, String> {
    match text {
        "tcp" => Ok(Transport::Tcp),
        "ws" => Ok(Transport::Ws),
        other => Err(format!("--transport {other:?}: tcp or ws")),
    }
}

fn writers(text: &str) -> Result<Option<usize>, String> {
    if text == "default" { Ok(None) } else { number("--writers", text).map(Some) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(text: &str) -> Result<Options, String> {
        match parse(text.split(' ').map(str::to_owned))?.0 {
            Command::Run(options) => Ok(*options),
            other => Err(format!("{other:?}")),
        }
    }

    #[test]
    fn options_of_run_are_taken() {
        let options = run("run fanout-75 pair-1 --transport ws --writers 1,default,4 --runs 3 --set ttl=1")
            .expect("legal");
        assert_eq!(options.names, ["fanout-75", "pair-1"]);
        assert_eq!(options.transport, Some(Transport::Ws));
        assert_eq!(options.writers, [Some(1), None, Some(4)]);
        assert_eq!((options.runs, options.settings), (3, vec!["ttl=1".to_owned()]));
        let options = run("run --passcode secret --login guest --vhost / --series 100").expect("legal");
        assert_eq!(options.login.user, Some(("guest".to_owned(), "secret".to_owned())));
        assert_eq!((options.login.host.as_str(), options.series_ms), ("/", Some(100)));
    }

    #[test]
    fn wrong_arguments_are_named() {
        for (text, part) in [
            ("run --transport udp", "udp"),
            ("run --runs 0", "--runs"),
            ("run --runs", "needs a value"),
            ("run --what 1", "--what"),
            ("run --samples x --series 100", "--runs 1"),
            ("walk", "walk"),
        ] {
            assert!(run(text).is_err_and(|error| error.contains(part)), "{text}");
        }
    }
}
