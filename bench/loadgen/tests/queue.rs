//! Work queues, against a peer that can be made to lose, double, swap and forget: a run must notice.

mod support;

use std::path::PathBuf;
use std::process::Command;

use support::Wrong;

const INDIVIDUAL: &str =
    "kind = 'queue'\nack = 'client-individual'\nprefetch = 10\nmessages = 1_000\nmin_cpu_s = 0.0";

/// Runs one workload and returns its line of results.
fn run(name: &str, workload: &str, wrong: Wrong) -> serde_json::Value {
    let folder = std::env::temp_dir().join(format!("stompica-loadgen-{}-{name}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("the temporary folder can be written");
    let text = format!("name = '{name}'\n{workload}");
    std::fs::write(folder.join(format!("{name}.toml")), text).expect("so can a file in it");
    let results: PathBuf = folder.join("results.jsonl");
    let output = Command::new(env!("CARGO_BIN_EXE_stompica-loadgen"))
        .args(["run", "--runs", "1", "--no-relay", "--connect", &support::start(wrong).to_string()])
        .args(["--pid", &std::process::id().to_string(), "--workloads"])
        .args([&folder, &PathBuf::from("--out"), &results])
        .output()
        .expect("the program starts");
    let line = std::fs::read_to_string(&results).expect("results were written");
    let line: serde_json::Value = serde_json::from_str(&line).expect("a line is JSON");
    let failed = line["median"].is_null();
    assert_eq!(output.status.success(), !failed, "{}", String::from_utf8_lossy(&output.stderr));
    let _ = std::fs::remove_dir_all(folder);
    line
}

fn fault(name: &str, workload: &str, wrong: Wrong) -> String {
    let line = run(name, workload, wrong);
    line["runs"][0]["fault"].as_str().unwrap_or_else(|| panic!("nothing noticed: {line}")).to_owned()
}

#[test]
fn every_message_is_consumed_once_and_acknowledged() {
    let four = format!("{INDIVIDUAL}\npublishers = 4\nconnections = 4");
    let line = run("four", &four, Wrong::Nothing);
    let run = &line["runs"][0];
    assert_eq!((&run["deliveries"], &run["messages"]), (&4_000.into(), &4_000.into()), "{line}");
    let consumed = run["shares"]["consumed"].as_array().expect("of each consumer");
    assert_eq!(consumed.iter().filter_map(serde_json::Value::as_u64).sum::<u64>(), 8_000, "with warm-up");
    assert_eq!(consumed.len(), 4);
}

#[test]
fn a_lost_message_fails_the_run() {
    // So many come behind it that each consumer has some of them: only then it is known to be lost.
    let four = format!("{INDIVIDUAL}\nconnections = 4").replace("1_000", "20_000");
    assert_eq!(fault("lost-4", &four, Wrong::Lose(1_500)), "message lost: 1500 of publisher 0");
    let one = "kind = 'queue'\nmessages = 1_000\nmin_cpu_s = 0.0";
    assert!(fault("lost-1", one, Wrong::Lose(1_500)).contains("expected 1500, got 1501"));
}

#[test]
fn a_doubled_message_fails_the_run() {
    let four = format!("{INDIVIDUAL}\nconnections = 4");
    let fault = fault("doubled", &four, Wrong::Double(1_500));
    assert!(fault.contains("doubled or never sent: 1500 of publisher 0"), "{fault}");
}

#[test]
fn messages_out_of_order_fail_the_run() {
    let one = format!("{INDIVIDUAL}\nconnections = 1");
    let fault = fault("swapped", &one, Wrong::Swap(1_500));
    assert!(fault.contains("expected 1500, got 1501"), "{fault}");
}

#[test]
fn an_ack_that_had_no_effect_fails_the_run() {
    let one = format!("{INDIVIDUAL}\nconnections = 1");
    let fault = fault("unacked", &one, Wrong::ForgetAck(1_500));
    assert!(fault.contains("not empty after the last ACK"), "{fault}");
}

#[test]
fn queued_messages_are_weighed_and_consumed() {
    let line = run("backlog", "kind = 'backlog'\nmessages = 20_000", Wrong::Nothing);
    let held = &line["runs"][0]["held"];
    assert_eq!(held["count"], 20_000, "{line}");
    let figure = |name: &str| held[name].as_f64().expect("a figure");
    assert!((figure("frame_bytes") - 168.0).abs() < 1e-9, "head, body and NUL of a SEND");
    let over = figure("resident_bytes_each") - figure("frame_bytes");
    assert!((figure("resident_bytes_each_over_frame") - over).abs() < 1e-9, "{held}");
    let fault = fault("short", "kind = 'backlog'\nmessages = 2_000", Wrong::Lose(1_000));
    assert!(fault.contains("expected 1000, got 1001"), "{fault}");
}

#[test]
fn queues_are_made_and_counted() {
    let line = run("queues", "kind = 'queues'\nmessages = 1_200", Wrong::Nothing);
    assert_eq!(line["runs"][0]["held"]["count"], 1_200, "{line}");
}
