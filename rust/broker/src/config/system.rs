//! The machine's resources (cores, descriptors, memory) and the defaults that depend on them.

use std::fs;
use std::path::Path;

/// Descriptors that are not available to clients: `max_connections` is the descriptor limit minus this.
const RESERVED_DESCRIPTORS: u64 = 128;
/// Maximum number of I/O threads: more bring no gain. It is the bound of the setting `writers`.
pub(super) const WRITERS_MAX: usize = 64;
/// Maximum of the setting `max_connections`; some systems allow a billion descriptors.
pub(super) const CONNECTIONS_MAX: u64 = 10_000_000;
/// Assumed memory size if it cannot be read.
const ASSUMED_MEMORY: u64 = 1 << 30;

/// Cores this process may use, 1 to 64.
pub(super) fn default_writers() -> usize {
    std::thread::available_parallelism().map_or(1, |cores| cores.get().min(WRITERS_MAX))
}

/// The soft descriptor limit minus the reserve, within the bounds of the setting.
pub(super) fn default_max_connections() -> usize {
    connections_for(descriptor_limit().0)
}

fn connections_for(descriptors: u64) -> usize {
    let connections = descriptors.saturating_sub(RESERVED_DESCRIPTORS).clamp(1, CONNECTIONS_MAX);
    usize::try_from(connections).unwrap_or(usize::MAX)
}

/// The soft and the hard descriptor limit of this process (`ulimit -n`).
#[must_use]
pub fn descriptor_limit() -> (u64, u64) {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is a valid, writable `rlimit` for the whole call; getrlimit keeps no pointer.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } == 0 {
        (limit.rlim_cur, limit.rlim_max)
    } else {
        (1024, 1024)
    }
}

/// Raises the soft descriptor limit of the process to the hard limit and returns the new soft limit.
///
/// Only for a dedicated broker process: a broker embedded in another process must not change that process's limits. If
/// the system refuses, the limit stays unchanged.
pub fn raise_descriptor_limit() -> u64 {
    let (soft, hard) = descriptor_limit();
    if soft >= hard {
        return soft;
    }
    let wanted = libc::rlimit { rlim_cur: hard, rlim_max: hard };
    // SAFETY: `wanted` is a valid `rlimit` for the whole call; setrlimit only reads it and keeps no pointer.
    if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const wanted) } == 0 { hard } else { soft }
}

/// Keeps the kernel from backing this process's memory with huge pages: they triple the memory of 10,000 idle
/// connections (bench `idle-10000`) and make nothing faster (`fanout-75`).
///
/// Only for a dedicated broker process, since it affects all memory of the process. It has no effect if the system does
/// not support the call.
pub fn avoid_huge_pages() {
    let (on, unused): (libc::c_ulong, libc::c_ulong) = (1, 0);
    // SAFETY: PR_SET_THP_DISABLE takes integers only, all five are given, and it accesses no memory of this process.
    _ = unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, on, unused, unused, unused) };
}

/// `percent` of the machine's memory or of the cgroup's limit, whichever is smaller, in bytes, rounded down to whole
/// MiB.
pub(super) fn memory_share(percent: u64) -> u64 {
    let total = [ram(), cgroup_limit()].into_iter().flatten().min().unwrap_or(ASSUMED_MEMORY);
    ((total / 100 * percent) >> 20).max(1) << 20
}

fn ram() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("MemTotal:"))?;
    let kib: u64 = line.split_ascii_whitespace().nth(1)?.parse().ok()?;
    Some(kib * 1024)
}

/// The memory limit of this process's cgroup: of version 2 if present, else of version 1.
fn cgroup_limit() -> Option<u64> {
    let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let v2 = own.lines().find_map(|line| line.strip_prefix("0::")).unwrap_or("/");
    let v1 = own.lines().find_map(|line| line.split_once(":memory:").map(|(_, path)| path)).unwrap_or("/");
    smallest_limit("/sys/fs/cgroup", v2, "memory.max")
        .or_else(|| smallest_limit("/sys/fs/cgroup/memory", v1, "memory.limit_in_bytes"))
}

/// The smallest number in the files named `file` in the group's directory and its parents up to `root`; `max` means no
/// limit.
fn smallest_limit(root: &str, group: &str, file: &str) -> Option<u64> {
    let group = format!("{root}{}", group.trim_end_matches('/'));
    let folders = Path::new(&group).ancestors().take_while(|folder| folder.starts_with(root));
    folders.filter_map(|folder| fs::read_to_string(folder.join(file)).ok()?.trim().parse().ok()).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_positive() {
        assert!((1..=WRITERS_MAX).contains(&default_writers()));
        assert!(default_max_connections() >= 1);
        assert!(memory_share(60) > 0);
        assert!(memory_share(60) < memory_share(100));
    }

    #[test]
    fn the_default_of_max_connections_is_within_its_bounds() {
        for (descriptors, connections) in [
            (0, 1),
            (129, 1),
            (1_048_576, 1_048_448),
            (1_073_741_816, CONNECTIONS_MAX),
            (u64::MAX, CONNECTIONS_MAX),
        ] {
            assert_eq!(connections_for(descriptors) as u64, connections, "{descriptors}");
        }
    }

    #[test]
    fn the_smallest_limit_of_all_parent_groups_applies() {
        let root = std::env::temp_dir().join(format!("stompica-cgroup-{}", std::process::id()));
        let group = root.join("outer/inner");
        fs::create_dir_all(&group).expect("a temporary folder");
        for (folder, limit) in [(&root, "900"), (&root.join("outer"), "500\n"), (&group, "max\n")] {
            fs::write(folder.join("memory.max"), limit).expect("a temporary file");
        }
        let root_text = root.to_str().expect("an ASCII path");
        assert_eq!(smallest_limit(root_text, "/outer/inner", "memory.max"), Some(500));
        assert_eq!(smallest_limit(root_text, "/", "memory.max"), Some(900));
        assert_eq!(smallest_limit(root_text, "/outer", "other"), None);
        fs::remove_dir_all(&root).expect("our own folder");
    }

    #[test]
    fn raising_the_descriptor_limit_reaches_the_hard_one() {
        let (_, hard) = descriptor_limit();
        assert_eq!(raise_descriptor_limit(), hard);
        assert_eq!(descriptor_limit(), (hard, hard));
    }

    #[test]
    fn huge_pages_can_be_disabled() {
        avoid_huge_pages();
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let enabled = status.lines().find_map(|line| line.strip_prefix("THP_enabled:"));
        assert!(enabled.is_none_or(|value| value.trim() == "0"), "the kernel says {enabled:?}");
    }
}
