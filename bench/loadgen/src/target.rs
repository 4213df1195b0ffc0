//! The process under test: started here, or one that runs already.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use crate::login::Login;

/// How long a start may take.
const START_MAX: Duration = Duration::from_secs(20);
/// How long an ordered stop may take.
const STOP_MAX: Duration = Duration::from_secs(10);
/// Lines of the log that are kept for a failure report.
const LOG_MAX: usize = 20;

/// A broker or relay that listens.
pub struct Target {
    /// How clients introduce themselves there.
    pub login: Login,
    /// Where it listens.
    pub address: SocketAddr,
    /// Its process, when it may be measured.
    pub pid: Option<u32>,
    child: Option<Child>,
    log: Arc<Mutex<VecDeque<String>>>,
}

impl Target {
    /// A broker that runs already.
    pub fn existing(address: SocketAddr, pid: Option<u32>, login: Login) -> Target {
        Target { login, address, pid, child: None, log: Arc::default() }
    }

    /// Starts a command and waits for `listening on HOST:PORT` on its stderr.
    pub fn start(command: &[String]) -> Result<Target, String> {
        let [program, arguments @ ..] = command else { return Err("no command to start".to_owned()) };
        let shown = command.join(" ");
        let mut child = Command::new(program)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| format!("{shown}: {error}"))?;
        let stderr = child.stderr.take().expect("stderr was asked for");
        let log = Arc::new(Mutex::new(VecDeque::new()));
        let (found, address) = mpsc::channel();
        let kept = Arc::clone(&log);
        // Reads to the end, so that the process never waits for its log to be taken.
        std::thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                if let Some(address) = listening(&line) {
                    let _ = found.send(address);
                }
                let mut kept = kept.lock().expect("nobody panics while holding it");
                kept.push_back(line);
                if kept.len() > LOG_MAX {
                    kept.pop_front();
                }
            }
        });
        let pid = child.id();
        let mut target = Target {
            login: Login::default(),
            address: ([127, 0, 0, 1], 0).into(),
            pid: Some(pid),
            child: Some(child),
            log,
        };
        match address.recv_timeout(START_MAX) {
            Ok(address) => target.address = address,
            Err(_) => return Err(format!("{shown} does not listen\n{}", target.log())),
        }
        Ok(target)
    }

    /// The last lines it logged.
    pub fn log(&self) -> String {
        let log = self.log.lock().expect("nobody panics while holding it");
        log.iter().map(|line| format!("  | {line}\n")).collect()
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        let Some(mut child) = self.child.take() else { return };
        let pid = libc::pid_t::try_from(child.id()).expect("a process id fits");
        // SAFETY: no pointers; the child is not waited for yet, so the id is still its own.
        unsafe { libc::kill(pid, libc::SIGTERM) };
        let deadline = Instant::now() + STOP_MAX;
        while Instant::now() < deadline {
            if !matches!(child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        eprintln!("process {pid} did not stop on SIGTERM within {} s: killed", STOP_MAX.as_secs());
        let _ = child.kill();
        let _ = child.wait();
    }
}

/// Address in a line like `… listening on 127.0.0.1:61613 …`.
fn listening(line: &str) -> Option<SocketAddr> {
    let (_, rest) = line.split_once("listening on ")?;
    let word = rest.split([' ', ',', '"', ';']).next()?;
    word.trim_end_matches('.').parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_is_found_in_text_and_json() {
        let v4 = Some(SocketAddr::from(([127, 0, 0, 1], 4711)));
        assert_eq!(listening("12:00 info stompica listening on 127.0.0.1:4711, 2 writers"), v4);
        assert_eq!(listening(r#"{"message":"listening on 127.0.0.1:4711"}"#), v4);
        assert!(listening("x listening on [::1]:80").is_some_and(|address| address.is_ipv6()));
        assert_eq!(listening("starting"), None);
    }
}
