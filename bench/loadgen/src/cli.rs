//! The command line.

use std::net::SocketAddr;
use std::path::PathBuf;

use crate::login::Login;
use crate::target::Target;
use crate::workload::Transport;

/// The text that `--help` prints.
pub const HELP: &str = "\
stompica-loadgen: makes one repetition of one workload against one STOMP broker, and checks every message

  run FILE                 the workload of FILE (bench/workloads/NAME.toml); prints the result as one line of JSON;
                           exit status 1 if the repetition failed
      --connect ADDRESS:PORT   where the broker listens
      --transport tcp|ws     default: tcp
      --pid N                process of the broker, to measure its CPU and memory
      --relay                it is the ideal relay
      --login L --passcode P --vhost H --ws-path PATH   what it asks for; default: no login, localhost, /ws
      --close-is-receipt     it may close instead of answering DISCONNECT
      --series MS            also throughput and latency for each interval of so many ms
      --samples FILE         also every single latency (workloads of kind latency; needs --series)
      --store DIR            it answers DIAG store, and its store is on the disk of DIR (workloads of kind persist)
      --part fill|drain      which half of a workload of kind recover
  check FILE               checks that FILE is a workload and can be run over --transport
  relay [--port N]         is the ideal relay; default: any free port

`stompica bench` plans, repeats and records; see bench/README.md.
";

/// The requested action.
#[derive(Debug, PartialEq)]
pub enum Command {
    /// Print the help.
    Help,
    /// Print the version.
    Version,
    /// Make one repetition.
    Run(Box<Options>),
    /// Check a workload file for a transport.
    Check(PathBuf, Transport),
    /// Be the ideal relay on this port.
    Relay(u16),
}

/// Options of `run`.
#[derive(Debug, PartialEq)]
pub struct Options {
    /// File of the workload.
    pub workload: PathBuf,
    /// Transport to run it over.
    pub transport: Transport,
    /// The target to measure.
    pub target: Target,
    /// Length of the intervals in the result.
    pub series_ms: Option<u64>,
    /// File for single latencies.
    pub samples: Option<PathBuf>,
    /// A folder on the disk of the broker's store, if it answers DIAG `store`.
    pub store: Option<PathBuf>,
    /// The half of a workload of kind `recover`.
    pub part: Option<Part>,
}

/// Half of a workload: the broker is started again between the two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// Its messages are sent.
    Fill,
    /// They are consumed and checked.
    Drain,
}

/// Everything that may be on the command line.
#[derive(Default)]
struct Arguments {
    file: Option<PathBuf>,
    transport: Option<Transport>,
    connect: Option<SocketAddr>,
    pid: Option<u32>,
    relay: bool,
    login: Login,
    series_ms: Option<u64>,
    samples: Option<PathBuf>,
    store: Option<PathBuf>,
    part: Option<Part>,
    port: u16,
}

/// Parses the arguments.
pub fn parse(arguments: impl Iterator<Item = String>) -> Result<Command, String> {
    let mut rest = arguments;
    let mut taken = Arguments::default();
    let Some(command) = rest.next() else { return Ok(Command::Help) };
    while let Some(argument) = rest.next() {
        let value = || rest.next().ok_or_else(|| format!("{argument} needs a value"));
        match argument.as_str() {
            "--help" | "-h" => return Ok(Command::Help),
            name if name.starts_with('-') => taken.option(name, value)?,
            _ if taken.file.is_some() => return Err(format!("{argument:?}: one workload at a time")),
            file => taken.file = Some(file.into()),
        }
    }
    match command.as_str() {
        "run" => taken.run(),
        "check" => Ok(Command::Check(taken.workload()?, taken.transport.unwrap_or(Transport::Tcp))),
        "relay" => Ok(Command::Relay(taken.port)),
        "help" | "--help" | "-h" => Ok(Command::Help),
        "--version" => Ok(Command::Version),
        other => Err(format!("unknown command {other:?}: run, check or relay")),
    }
}

impl Arguments {
    fn option(&mut self, name: &str, value: impl FnOnce() -> Result<String, String>) -> Result<(), String> {
        match name {
            "--transport" => self.transport = Some(transport(&value()?)?),
            "--connect" => {
                let text = value()?;
                self.connect = Some(text.parse().map_err(|_| format!("--connect {text:?}: ADDRESS:PORT"))?);
            }
            "--pid" => self.pid = Some(number(name, &value()?)?),
            "--relay" => self.relay = true,
            "--login" => self.user().0 = value()?,
            "--passcode" => self.user().1 = value()?,
            "--vhost" => self.login.host = value()?,
            "--close-is-receipt" => self.login.close_is_receipt = true,
            "--ws-path" => self.login.ws_path = value()?,
            "--series" => self.series_ms = Some(number::<u64>(name, &value()?)?.max(1)),
            "--samples" => self.samples = Some(value()?.into()),
            "--store" => self.store = Some(value()?.into()),
            "--part" => self.part = Some(part(&value()?)?),
            "--port" => self.port = number(name, &value()?)?,
            _ => return Err(format!("unknown option {name}")),
        }
        Ok(())
    }

    fn user(&mut self) -> &mut (String, String) {
        self.login.user.get_or_insert_default()
    }

    fn workload(&mut self) -> Result<PathBuf, String> {
        self.file.take().ok_or_else(|| "which workload? name its file".to_owned())
    }

    fn run(mut self) -> Result<Command, String> {
        if self.samples.is_some() && self.series_ms.is_none() {
            return Err("--samples needs --series MS".to_owned());
        }
        let workload = self.workload()?;
        let address = self.connect.ok_or("which broker? --connect ADDRESS:PORT")?;
        let target = Target { address, pid: self.pid, login: self.login, is_relay: self.relay };
        let transport = self.transport.unwrap_or(Transport::Tcp);
        let Arguments { series_ms, samples, store, part, .. } = self;
        Ok(Command::Run(Box::new(Options { workload, transport, target, series_ms, samples, store, part })))
    }
}

fn number<T: std::str::FromStr>(name: &str, text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("{name} {text:?}: not a number in its range"))
}

fn transport(text: &str) -> Result<Transport, String> {
    match text {
        "tcp" => Ok(Transport::Tcp),
        "ws" => Ok(Transport::Ws),
        other => Err(format!("--transport {other:?}: tcp or ws")),
    }
}

fn part(text: &str) -> Result<Part, String> {
    match text {
        "fill" => Ok(Part::Fill),
        "drain" => Ok(Part::Drain),
        other => Err(format!("--part {other:?}: fill or drain")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Result<Command, String> {
        parse(text.split(' ').map(str::to_owned))
    }

    fn run(text: &str) -> Result<Options, String> {
        match words(text)? {
            Command::Run(options) => Ok(*options),
            other => Err(format!("{other:?}")),
        }
    }

    #[test]
    fn options_of_run_are_taken() {
        let options =
            run("run a/fan.toml --connect 127.0.0.1:1 --transport ws --pid 7 --relay").expect("legal");
        assert_eq!(options.workload, PathBuf::from("a/fan.toml"));
        assert_eq!(options.transport, Transport::Ws);
        assert_eq!(options.target.address, SocketAddr::from(([127, 0, 0, 1], 1)));
        assert!(options.target.pid == Some(7) && options.target.is_relay);
        let options = run("run q.toml --connect 127.0.0.1:1 --store /disk --part drain").expect("legal");
        assert_eq!((options.store, options.part), (Some("/disk".into()), Some(Part::Drain)));
        let login = "--passcode secret --login guest --vhost / --series 100 --samples s";
        let options = run(&format!("run fan.toml --connect 127.0.0.1:1 {login}")).expect("legal");
        assert_eq!(options.target.login.user, Some(("guest".to_owned(), "secret".to_owned())));
        assert_eq!((options.target.login.host.as_str(), options.series_ms), ("/", Some(100)));
        assert_eq!((options.transport, options.target.pid), (Transport::Tcp, None));
        assert!(!options.target.is_relay && options.samples == Some("s".into()));
    }

    #[test]
    fn other_commands_are_taken() {
        assert_eq!(words("relay --port 7"), Ok(Command::Relay(7)));
        assert_eq!(words("check q.toml --transport ws"), Ok(Command::Check("q.toml".into(), Transport::Ws)));
        assert_eq!(words("--version"), Ok(Command::Version));
        assert_eq!(words("run --help"), Ok(Command::Help));
    }

    #[test]
    fn wrong_arguments_are_named() {
        for (text, part) in [
            ("run fan.toml --transport udp", "udp"),
            ("run fan.toml --part half", "half"),
            ("run fan.toml --pid 0x7", "--pid \"0x7\""),
            ("run fan.toml --pid", "needs a value"),
            ("run fan.toml --what 1", "--what"),
            ("run fan.toml --connect host", "ADDRESS:PORT"),
            ("run fan.toml --connect 127.0.0.1:1 --samples x", "--series MS"),
            ("run fan.toml", "which broker"),
            ("run --connect 127.0.0.1:1", "which workload"),
            ("run a.toml b.toml", "one workload at a time"),
            ("walk", "walk"),
        ] {
            assert!(run(text).is_err_and(|error| error.contains(part)), "{text}");
        }
    }
}
