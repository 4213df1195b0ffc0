//! Work queues, with a peer that loses, doubles or swaps messages, or forgets an ACK: the generator must notice.

mod peer;
mod support;

use peer::Wrong;
use support::Workload;

const INDIVIDUAL: &str =
    "kind = 'queue'\nack = 'client-individual'\nprefetch = 10\nmessages = 1_000\nmin_cpu_s = 0.0";

/// Makes one repetition against the peer, which is part of this process; returns the result.
fn run(name: &str, workload: &str, wrong: Wrong) -> serde_json::Value {
    let pid = std::process::id().to_string();
    Workload::new(name, workload).run(peer::start(wrong), &["--pid", &pid])
}

fn fault(name: &str, workload: &str, wrong: Wrong) -> String {
    let result = run(name, workload, wrong);
    result["fault"].as_str().unwrap_or_else(|| panic!("no fault was noticed: {result}")).to_owned()
}

/// A run with this many consumers that acknowledge each message fails, and the fault contains this text.
fn expect_fault(name: &str, connections: usize, wrong: Wrong, text: &str) {
    let fault = fault(name, &format!("{INDIVIDUAL}\nconnections = {connections}"), wrong);
    assert!(fault.contains(text), "{fault}");
}

#[test]
fn every_message_is_consumed_once_and_acknowledged() {
    let four = format!("{INDIVIDUAL}\npublishers = 4\nconnections = 4");
    let result = run("four", &four, Wrong::Nothing);
    assert_eq!((&result["deliveries"], &result["messages"]), (&4_000.into(), &4_000.into()), "{result}");
    let consumed = result["shares"]["consumed"].as_array().expect("of each consumer");
    assert_eq!(consumed.iter().filter_map(serde_json::Value::as_u64).sum::<u64>(), 8_000, "with warm-up");
    assert_eq!(consumed.len(), 4);
}

#[test]
fn a_lost_message_fails_the_run() {
    // Enough messages follow for each consumer to receive some: only then is it known to be lost.
    let four = format!("{INDIVIDUAL}\nconnections = 4").replace("1_000", "20_000");
    assert_eq!(fault("lost-4", &four, Wrong::Lose(1_500)), "message lost: 1500 of publisher 0");
    let one = "kind = 'queue'\nmessages = 1_000\nmin_cpu_s = 0.0";
    assert!(fault("lost-1", one, Wrong::Lose(1_500)).contains("expected 1500, got 1501"));
}

#[test]
fn a_doubled_message_fails_the_run() {
    expect_fault("doubled", 4, Wrong::Double(1_500), "doubled or never sent: 1500 of publisher 0");
}

#[test]
fn messages_out_of_order_fail_the_run() {
    expect_fault("swapped", 1, Wrong::Swap(1_500), "expected 1500, got 1501");
}

#[test]
fn an_ack_that_had_no_effect_fails_the_run() {
    expect_fault("unacked", 1, Wrong::ForgetAck(1_500), "not empty after the last ACK");
}

#[test]
fn memory_of_queued_messages_is_measured() {
    let result = run("backlog", "kind = 'backlog'\nmessages = 20_000", Wrong::Nothing);
    let held = &result["held"];
    assert_eq!(held["count"], 20_000, "{result}");
    let figure = |name: &str| held[name].as_f64().expect("a figure");
    assert!((figure("frame_bytes") - 168.0).abs() < 1e-9, "head, body and NUL of a SEND");
    let over = figure("resident_bytes_each") - figure("frame_bytes");
    assert!((figure("resident_bytes_each_over_frame") - over).abs() < 1e-9, "{held}");
    assert!(figure("queued_per_s") > 0.0 && figure("consumed_per_s") > 0.0);
    let persistent = run("stored", "kind = 'backlog'\nmessages = 2_000\npersistent = true", Wrong::Nothing);
    assert_eq!(persistent["held"]["frame_bytes"], 184.0, "with persistent:true: {persistent}");
    let fault = fault("short", "kind = 'backlog'\nmessages = 2_000", Wrong::Lose(1_000));
    assert!(fault.contains("expected 1000, got 1001"), "{fault}");
}

#[test]
fn queues_are_made_and_counted() {
    let result = run("queues", "kind = 'queues'\nmessages = 1_200", Wrong::Nothing);
    assert_eq!(result["held"]["count"], 1_200, "{result}");
}
