//! Where and with what a result was made.

use std::fs;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

/// The machine.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Machine {
    /// Cores that may be used.
    pub cores: usize,
    /// Model of the CPU.
    pub cpu: String,
    /// Kernel release.
    pub kernel: String,
    /// Memory.
    pub memory_bytes: u64,
}

impl Machine {
    /// This machine.
    pub fn here() -> Machine {
        let line = |file: &str, name: &str| {
            let text = fs::read_to_string(file).unwrap_or_default();
            let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
            line.trim_start_matches([' ', '\t', ':']).to_owned()
        };
        let kib =
            line("/proc/meminfo", "MemTotal").split(' ').next().and_then(|text| text.parse::<u64>().ok());
        Machine {
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            cpu: line("/proc/cpuinfo", "model name"),
            kernel: fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned(),
            memory_bytes: kib.unwrap_or_default() * 1024,
        }
    }
}

/// Versions of what ran.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Versions {
    /// Load generator.
    pub loadgen: String,
    /// Broker, as it says itself.
    pub broker: Option<String>,
    /// Python it runs in.
    pub python: Option<String>,
}

impl Versions {
    /// Asks the broker's command (`PYTHON -m stompica …`), if there is one.
    pub fn of(command: Option<&[String]>) -> Versions {
        let (mut broker, mut python) = (None, None);
        if let Some([program, flag, module, ..]) = command
            && flag == "-m"
        {
            broker = output(program, &["-m", module, "--version"]);
            python = output(program, &["--version"]);
        }
        Versions { loadgen: env!("CARGO_PKG_VERSION").to_owned(), broker, python }
    }
}

/// Commit of the working tree, and whether the code differs from it.
pub fn commit() -> (String, bool) {
    let commit = output("git", &["rev-parse", "--short=12", "HEAD"]).unwrap_or_else(|| "unknown".to_owned());
    let code =
        ["status", "--porcelain", "--", "rust", "python", "bench/loadgen", "bench/workloads", "Cargo.lock"];
    (commit, output("git", &code).is_some())
}

/// First line a command prints; `None` if it prints none or fails.
fn output(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = text.lines().next()?.trim().to_owned();
    (output.status.success() && !line.is_empty()).then_some(line)
}

/// Seconds since 1970.
pub fn now_unix_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// `2031-02-03` and `040506` (UTC) of a moment.
pub fn date_and_time(unix_s: u64) -> (String, String) {
    let (days, second) = (unix_s / 86_400, unix_s % 86_400);
    // Civil date from days: years begin in March, so that the leap day is the last.
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let time = format!("{:02}{:02}{:02}", second / 3_600, second / 60 % 60, second % 60);
    (format!("{year:04}-{month:02}-{day:02}"), time)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_of_known_moments() {
        assert_eq!(date_and_time(0), ("1970-01-01".into(), "000000".into()));
        assert_eq!(date_and_time(951_782_399).0, "2000-02-28");
        assert_eq!(date_and_time(951_868_799), ("2000-02-29".into(), "235959".into()));
        assert_eq!(date_and_time(1_735_689_600).0, "2025-01-01");
    }
}
