//! The program itself, with small workloads: every kind that the ideal relay can serve, over both transports.

mod support;

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;
use support::Workload;

/// The ideal relay, stopped at the end of the test.
struct Relay {
    process: Child,
    address: SocketAddr,
}

impl Relay {
    fn start() -> Relay {
        let mut process = Command::new(env!("CARGO_BIN_EXE_stompica-loadgen"))
            .arg("relay")
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let mut line = String::new();
        let stderr = process.stderr.take().expect("stderr is a pipe");
        BufReader::new(stderr).read_line(&mut line).expect("it says where it listens");
        let (_, address) = line.trim().split_once("listening on ").expect("it says where it listens");
        let address = address.parse().expect("an address");
        Relay { process, address }
    }

    /// Makes one repetition over each transport; returns the results. All must succeed.
    fn serve(&self, workload: &Workload, arguments: &[&str]) -> Vec<Value> {
        let pid = self.process.id().to_string();
        let once = |transport: &str| {
            let options = ["--relay", "--pid", &pid, "--transport", transport];
            let result = workload.run(self.address, &[&options, arguments].concat());
            assert!(result["fault"].is_null(), "over {transport}: {result}");
            result
        };
        ["tcp", "ws"].map(once).to_vec()
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn every_delivery_of_a_fanout_arrives() {
    let fields = "connections = 5\nmessages = 2_000\nwindow = 100\nmin_cpu_s = 0.0";
    let (workload, relay) = (Workload::new("fan", fields), Relay::start());
    // The second repetition opens new connections to the same process.
    for result in (0..2).flat_map(|_| relay.serve(&workload, &[])) {
        assert_eq!(result["deliveries"], 10_000);
        assert!(result["cpu_us_per_delivery"].as_f64().is_some_and(|cpu| cpu > 0.0));
        assert!(result["peak_rss_bytes"].as_u64().is_some_and(|peak| peak > 100_000));
    }
}

#[test]
fn every_delivery_under_a_window_has_a_latency() {
    let fields = "connections = 5\nmessages = 2_000\nwindow = 100\nmin_cpu_s = 0.0";
    let (workload, relay) = (Workload::new("window", fields), Relay::start());
    for result in (0..2).flat_map(|_| relay.serve(&workload, &["--series", "1"])) {
        let latency = &result["window_latency"];
        assert_eq!(latency["from_batch"]["count"], result["deliveries"]);
        let intervals = latency["intervals"].as_array().expect("asked for");
        let counted = intervals.iter().flat_map(|one| one["window_us"].as_array().expect("buckets"));
        assert_eq!(counted.filter_map(|bucket| bucket[1].as_u64()).sum::<u64>(), 10_000);
        assert!(result["latency"].is_null(), "there is no intended moment under a window");
    }
}

#[test]
fn large_bodies_arrive() {
    let fields = "connections = 3\nbody = 300_000\nmessages = 30\nwindow = 4\nmin_cpu_s = 0.0";
    let (workload, relay) = (Workload::new("large", fields), Relay::start());
    assert!(relay.serve(&workload, &[]).iter().all(|result| result["deliveries"] == 90));
}

#[test]
fn latencies_are_recorded_from_the_intended_moment() {
    let (workload, relay) =
        (Workload::new("late", "kind = 'latency'\nconnections = 2\nseconds = 0.5"), Relay::start());
    for result in relay.serve(&workload, &[]) {
        let latency = &result["latency"]["from_intended"];
        assert_eq!(latency["count"], 900, "500 messages less a tenth, two subscribers");
        let buckets = latency["buckets_ns"].as_array().expect("the raw histogram");
        assert_eq!(buckets.iter().filter_map(|bucket| bucket[1].as_u64()).sum::<u64>(), 900);
    }
}

#[test]
fn idle_connections_are_counted_and_all_get_the_message() {
    let (workload, relay) =
        (Workload::new("idle", "kind = 'idle'\nconnections = 50\nseconds = 0.1"), Relay::start());
    assert!(relay.serve(&workload, &[]).iter().all(|result| result["deliveries"] == 50));
}

#[test]
fn one_consumer_of_a_queue_gets_every_message() {
    let fields = "kind = 'queue'\nmessages = 2_000\nwindow = 100\nmin_cpu_s = 0.0";
    let (workload, relay) = (Workload::new("queue", fields), Relay::start());
    for result in relay.serve(&workload, &[]) {
        assert_eq!((&result["deliveries"], &result["shares"]["consumed"][0]), (&2_000.into(), &4_000.into()));
        let sampled = result["window_latency"]["from_batch"]["count"].as_u64().expect("a number");
        assert!((2_000 / 64 - 1..=2_000 / 64 + 1).contains(&sampled), "{sampled}: every 64th has a latency");
    }
}

/// The line on stderr with which the program refused to start.
fn refusal(output: &Output) -> String {
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!((output.status.code(), output.stdout.is_empty()), (Some(1), true), "{errors}");
    errors
}

#[test]
fn a_file_that_does_not_exist_is_named() {
    let output = Command::new(env!("CARGO_BIN_EXE_stompica-loadgen"))
        .args(["run", "no/fam.toml", "--connect", "127.0.0.1:1"])
        .output()
        .expect("the program starts");
    assert!(refusal(&output).contains("no/fam.toml: "));
}

#[test]
fn impossible_values_are_named() {
    for (field, what) in [
        ("body = 15", "body is at least 16"),
        ("tag = 'hello '\nbody = 13", "body is at least 14"),
        ("connections = 0", "publishers, connections and subscriptions are at least 1"),
        ("rate = 2_000_000", "rate is 1 to 1,000,000"),
        ("seconds = 1_000.0", "seconds is 0.1 to 600"),
        ("colour = 1", "colour"),
    ] {
        let workload = Workload::new("wrong", field);
        for command in ["check", "run"] {
            let output = workload.command(command, &["--connect", "127.0.0.1:1"]);
            assert!(refusal(&output).contains(what), "{command} {field}");
        }
    }
    let queues = Workload::new("ws", "kind = 'queues'\ntransports = ['tcp', 'ws']");
    assert!(queues.command("check", &[]).status.success());
    assert!(refusal(&queues.command("check", &["--transport", "ws"])).contains("queues are made over TCP"));
}

#[test]
fn the_workloads_of_this_tree_are_valid() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../workloads");
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder).expect("the tree has workloads") {
        let path = entry.expect("it can be read").path();
        let output = Command::new(env!("CARGO_BIN_EXE_stompica-loadgen"))
            .arg("check")
            .arg(&path)
            .output()
            .expect("the program starts");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        names.push(String::from_utf8_lossy(&output.stdout).trim().to_owned());
    }
    for name in [
        "fanout-75",
        "headline",
        "mux-75",
        "fanout-75-unique",
        "fanout-5000",
        "pairs-8",
        "pair-1",
        "queue-1x1",
        "queue-1x1-auto",
        "queue-4x4",
        "queue-4x4-auto",
        "queue-backlog",
        "queues-100000",
    ] {
        assert!(names.iter().any(|found| found == name), "{name}");
    }
}
