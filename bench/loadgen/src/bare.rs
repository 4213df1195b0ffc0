//! What the disk can do: a loop that writes so many bytes and makes them safe, with nothing else.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

/// Length of the file, as a segment of a log may have it. It is written again from its beginning when it is full.
const FILE_BYTES: u64 = 64 * 1024 * 1024;
/// Longer times count as this: a minute.
const HIGHEST_NS: u64 = 60_000_000_000;
/// Name of the file, which is removed at the end.
const NAME: &str = "bare-loop";

/// What the loop has reached.
#[derive(Debug, Clone, Copy)]
pub struct Bare {
    /// Writes, each made safe, per second.
    pub per_s: f64,
    /// Time of a write and its `fdatasync`: the median, µs.
    pub p50_us: f64,
    /// 99 in 100 were faster, µs.
    pub p99_us: f64,
}

/// Writes `bytes` and calls `fdatasync`, again and again for `length`; with `interval` at that interval, else at once.
///
/// The whole file has been written before: only the bytes themselves have to reach the disk, not where they are.
pub fn measure(
    folder: &Path,
    bytes: usize,
    length: Duration,
    interval: Option<Duration>,
) -> io::Result<Bare> {
    let path = folder.join(NAME);
    let result = prepared(&path).and_then(|file| repeat(&file, bytes, length, interval));
    let _ = std::fs::remove_file(&path);
    result
}

fn prepared(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().create(true).truncate(true).read(true).write(true).open(path)?;
    let zeros = vec![0; 1024 * 1024];
    for part in 0..FILE_BYTES / zeros.len() as u64 {
        file.write_all_at(&zeros, part * zeros.len() as u64)?;
    }
    file.sync_all()?;
    Ok(file)
}

fn repeat(file: &File, bytes: usize, length: Duration, interval: Option<Duration>) -> io::Result<Bare> {
    // No zeros: a disk may treat them as nothing.
    let content: Vec<u8> =
        (0..bytes.max(1)).map(|at| b'a' + u8::try_from(at % 26).expect("under 26")).collect();
    let mut times = Histogram::<u64>::new_with_bounds(1, HIGHEST_NS, 3).map_err(io::Error::other)?;
    let (start, mut at) = (Instant::now(), 0);
    while start.elapsed() < length {
        if at + content.len() as u64 > FILE_BYTES {
            at = 0;
        }
        if let Some(interval) = interval {
            let due = start + interval * u32::try_from(times.len()).map_err(io::Error::other)?;
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
        }
        let begun = Instant::now();
        file.write_all_at(&content, at)?;
        file.sync_data()?;
        times.saturating_record(u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX));
        at += content.len() as u64;
    }
    let micros = |quantile| times.value_at_quantile(quantile) as f64 / 1_000.0;
    Ok(Bare {
        per_s: times.len() as f64 / start.elapsed().as_secs_f64(),
        p50_us: micros(0.5),
        p99_us: micros(0.99),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_writes_as_often_as_it_says_and_leaves_nothing() {
        let folder = std::env::temp_dir().join(format!("stompica-bare-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("the temporary folder can be written");
        let fast = measure(&folder, 300, Duration::from_millis(20), None).expect("so can a file");
        assert!(fast.per_s > 0.0 && fast.p99_us >= fast.p50_us && fast.p50_us > 0.1, "{fast:?}");
        let interval = Some(Duration::from_millis(20));
        let paced = measure(&folder, 300, Duration::from_millis(60), interval).expect("so can a file");
        assert!(paced.per_s <= 4.0 / 0.06, "{}: at 0, 20, 40 and 60 ms", paced.per_s);
        assert_eq!(std::fs::read_dir(&folder).expect("it exists").count(), 0);
        std::fs::remove_dir(&folder).expect("it is empty");
        assert!(measure(&folder, 300, Duration::ZERO, None).is_err());
    }
}
