//! The program itself, in small: every kind of workload that the ideal relay can serve, over both transports.

use std::path::PathBuf;
use std::process::{Command, Output};

/// A folder with one tiny workload, gone at the end of the test.
struct Folder(PathBuf);

impl Folder {
    fn with(name: &str, workload: &str) -> Folder {
        let folder = std::env::temp_dir().join(format!("stompica-loadgen-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("the temporary folder can be written");
        std::fs::write(folder.join(format!("{name}.toml")), workload).expect("so can a file in it");
        Folder(folder)
    }

    fn run(&self, arguments: &[&str]) -> Output {
        let results = self.0.join("results.jsonl");
        Command::new(env!("CARGO_BIN_EXE_stompica-loadgen"))
            .args(["run", "--target", "relay", "--workloads"])
            .arg(&self.0)
            .arg("--out")
            .arg(&results)
            .args(arguments)
            .output()
            .expect("the program starts")
    }

    fn results(&self) -> Vec<serde_json::Value> {
        let text = std::fs::read_to_string(self.0.join("results.jsonl")).expect("results were written");
        text.lines().map(|line| serde_json::from_str(line).expect("a line is JSON")).collect()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn assert_success(output: &Output) {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn every_delivery_of_a_fanout_arrives() {
    let workload = "name = 'fan'\ntransports = ['tcp', 'ws']\nconnections = 5\nmessages = 2_000\nwindow = 100\nrelay = true\nmin_cpu_s = 0.0";
    let folder = Folder::with("fan", workload);
    assert_success(&folder.run(&["--runs", "2"]));
    let results = folder.results();
    assert_eq!(results.len(), 2, "one line for each transport");
    for line in results {
        let runs = line["runs"].as_array().expect("repetitions");
        assert_eq!(runs.len(), 2);
        assert!(runs.iter().all(|run| run["deliveries"] == 10_000 && run["fault"].is_null()));
        assert!(line["median"]["cpu_us_per_delivery"].as_f64().is_some_and(|cpu| cpu > 0.0));
    }
}

#[test]
fn every_delivery_under_a_window_has_a_latency() {
    let workload = "name = 'window'\ntransports = ['tcp', 'ws']\nconnections = 5\nmessages = 2_000\nwindow = 100\nrelay = true\nmin_cpu_s = 0.0";
    let folder = Folder::with("window", workload);
    assert_success(&folder.run(&["--runs", "2", "--series", "1"]));
    for run in folder.results().iter().flat_map(|line| line["runs"].as_array().expect("repetitions")) {
        let latency = &run["window_latency"];
        assert_eq!(latency["from_batch"]["count"], run["deliveries"]);
        let intervals = latency["intervals"].as_array().expect("asked for");
        let counted = intervals.iter().flat_map(|one| one["window_us"].as_array().expect("buckets"));
        assert_eq!(counted.filter_map(|bucket| bucket[1].as_u64()).sum::<u64>(), 10_000);
        assert!(run["latency"].is_null(), "nothing was meant to be sent at a moment");
    }
}

#[test]
fn large_bodies_arrive() {
    let workload = "name = 'large'\ntransports = ['tcp', 'ws']\nconnections = 3\nbody = 300_000\nmessages = 30\nwindow = 4\nrelay = true\nmin_cpu_s = 0.0";
    let folder = Folder::with("large", workload);
    assert_success(&folder.run(&["--runs", "1"]));
    assert!(folder.results().iter().all(|line| line["runs"][0]["deliveries"] == 90));
}

#[test]
fn latencies_are_recorded_from_the_intended_moment() {
    let workload = "name = 'late'\nkind = 'latency'\ntransports = ['tcp', 'ws']\nconnections = 2\nseconds = 0.5\nrelay = true";
    let folder = Folder::with("late", workload);
    assert_success(&folder.run(&["--runs", "1"]));
    for line in folder.results() {
        let latency = &line["runs"][0]["latency"]["from_intended"];
        assert_eq!(latency["count"], 900, "500 messages less a tenth, two subscribers");
        let buckets = latency["buckets_ns"].as_array().expect("the raw histogram");
        assert_eq!(buckets.iter().filter_map(|bucket| bucket[1].as_u64()).sum::<u64>(), 900);
    }
}

#[test]
fn idle_connections_are_counted_and_all_get_the_message() {
    let workload = "name = 'idle'\nkind = 'idle'\ntransports = ['tcp', 'ws']\nconnections = 50\nseconds = 0.1\nrelay = true";
    let folder = Folder::with("idle", workload);
    assert_success(&folder.run(&["--runs", "1"]));
    assert!(folder.results().iter().all(|line| line["runs"][0]["deliveries"] == 50));
}

#[test]
fn one_consumer_of_a_queue_gets_every_message() {
    let workload = "name = 'queue'\nkind = 'queue'\ntransports = ['tcp', 'ws']\nmessages = 2_000\nwindow = 100\nrelay = true\nmin_cpu_s = 0.0";
    let folder = Folder::with("queue", workload);
    assert_success(&folder.run(&["--runs", "1"]));
    for line in folder.results() {
        let run = &line["runs"][0];
        assert_eq!((&run["deliveries"], &run["shares"]["consumed"][0]), (&2_000.into(), &4_000.into()));
        let sampled = run["window_latency"]["from_batch"]["count"].as_u64().expect("a number");
        assert!((2_000 / 64 - 1..=2_000 / 64 + 1).contains(&sampled), "{sampled}: every 64th has a latency");
    }
}

#[test]
fn unknown_workloads_are_named() {
    let folder = Folder::with("fan", "name = 'fan'\nrelay = true");
    let output = folder.run(&["fam"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("\"fam\""));
}

#[test]
fn values_that_can_not_be_are_named() {
    for (field, what) in [
        ("body = 15", "body is at least 16"),
        ("tag = 'hello '\nbody = 13", "body is at least 14"),
        ("connections = 0", "publishers, connections and subscriptions are at least 1"),
        ("rate = 2_000_000", "rate is 1 to 1,000,000"),
        ("colour = 1", "colour"),
    ] {
        let folder = Folder::with("wrong", &format!("name = 'wrong'\n{field}"));
        let output = folder.run(&[]);
        assert_eq!(output.status.code(), Some(1), "{field}");
        assert!(String::from_utf8_lossy(&output.stderr).contains(what), "{field}");
    }
}

#[test]
fn the_workloads_of_this_tree_are_valid() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../workloads");
    let output = Command::new(env!("CARGO_BIN_EXE_stompica-loadgen"))
        .args(["list", "--workloads", folder])
        .output()
        .expect("the program starts");
    assert_success(&output);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    for name in ["fanout-75", "headline", "mux-75", "fanout-75-unique", "fanout-5000", "pairs-8", "pair-1"] {
        assert!(text.contains(name), "{name}");
    }
    for name in
        ["queue-1x1 ", "queue-1x1-auto", "queue-4x4 ", "queue-4x4-auto", "queue-backlog", "queues-100000"]
    {
        assert!(text.contains(name), "{name}");
    }
}
