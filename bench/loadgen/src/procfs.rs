//! CPU time and memory of a process and its children, from `/proc`.

use std::fs;

/// CPU time in ns of all tasks of the process and its descendants, from `schedstat` (`stat` counts in 10 ms).
pub fn cpu_ns(pid: u32) -> u64 {
    tree(pid).into_iter().map(process_cpu_ns).sum()
}

/// CPU time in ns of the calling process.
pub fn own_cpu_ns() -> u64 {
    process_cpu_ns(std::process::id())
}

fn process_cpu_ns(pid: u32) -> u64 {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else { return 0 };
    let task = |entry: fs::DirEntry| {
        let text = fs::read_to_string(entry.path().join("schedstat")).ok()?;
        text.split(' ').next()?.parse::<u64>().ok()
    };
    tasks.filter_map(|entry| task(entry.ok()?)).sum()
}

/// The process and its descendants.
fn tree(root: u32) -> Vec<u32> {
    let mut parents = Vec::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        // The name in parentheses may contain anything, so the fields begin after the last parenthesis.
        let parent = fs::read_to_string(format!("/proc/{pid}/stat"))
            .ok()
            .and_then(|text| text.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse::<u32>().ok());
        parents.extend(parent.map(|parent| (pid, parent)));
    }
    let mut pids = vec![root];
    let mut at = 0;
    while let Some(&parent) = pids.get(at) {
        pids.extend(parents.iter().filter(|entry| entry.1 == parent).map(|entry| entry.0));
        at += 1;
    }
    pids
}

/// Memory of a process tree, in bytes.
#[derive(Debug, Clone, Copy, Default)]
pub struct Memory {
    /// Resident now.
    pub resident: u64,
    /// The anonymous part of it: without mapped files.
    pub anonymous: u64,
    /// Peak of resident memory.
    pub peak: u64,
}

/// Memory of the process and its descendants.
pub fn memory(pid: u32) -> Memory {
    let mut sum = Memory::default();
    for pid in tree(pid) {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        sum.resident += field(&status, "VmRSS:");
        sum.anonymous += field(&status, "RssAnon:");
        sum.peak += field(&status, "VmHWM:");
    }
    sum
}

fn field(status: &str, name: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or_default() * 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_used_cpu_and_memory() {
        let memory = memory(std::process::id());
        assert!(
            memory.anonymous > 0 && memory.resident >= memory.anonymous && memory.peak >= memory.resident
        );
        assert!(cpu_ns(std::process::id()) >= own_cpu_ns() / 2);
        assert_eq!(field("VmHWM:\t   12 kB\n", "VmHWM:"), 12 * 1024);
    }
}
