//! Persistent messages with receipts, with a peer that loses a message or doubles a RECEIPT: the generator must notice.

mod peer;
mod support;

use peer::Wrong;
use support::Workload;

const TWO: &str =
    "kind = 'persist'\npublishers = 2\nwindow = 10\nbody = 200\nmessages = 500\nmin_cpu_s = 0.0";

/// Makes one repetition against the peer, which is part of this process; returns the result.
fn run(name: &str, workload: &str, wrong: Wrong, arguments: &[&str]) -> serde_json::Value {
    Workload::new(name, workload).run(peer::start(wrong), arguments)
}

fn folder() -> String {
    std::env::temp_dir().to_str().expect("text").to_owned()
}

#[test]
fn receipts_are_counted_and_what_they_confirmed_is_consumed() {
    let result = run("receipts", TWO, Wrong::Nothing, &["--series", "100"]);
    assert_eq!((&result["deliveries"], &result["messages"]), (&1_000.into(), &1_000.into()), "{result}");
    assert_eq!(result["window_latency"]["from_batch"]["count"], 1_000);
    assert!(result["persist"]["groups_per_s"].is_null(), "nobody was asked: {result}");
}

#[test]
fn the_log_of_the_broker_is_beside_the_bare_loop() {
    let result = run("log", TWO, Wrong::Nothing, &["--store", &folder()]);
    let figure = |name: &str| result["persist"][name].as_f64().unwrap_or_else(|| panic!("{name}: {result}"));
    assert!((figure("receipts_per_group") - 1.0).abs() < 1e-9);
    assert!((figure("syncs_by_groups_ratio") - 1.0).abs() < 1e-9);
    assert!((figure("bare_write_bytes") - 1_000.0).abs() < 1e-9);
    let frame = "SEND\ndestination:/queue/bench-0\ncontent-length:200\npersistent:true\n\n\0".len() + 200;
    assert!((figure("written_by_sent_ratio") - 1_000.0 / frame as f64).abs() < 1e-9);
    let (groups, bare) = (figure("groups_per_s"), figure("bare_per_s"));
    assert!((figure("groups_by_bare_ratio") - groups / bare).abs() < 1e-6);
    assert!(figure("bare_p99_us") >= figure("bare_p50_us"));
}

#[test]
fn a_receipt_at_a_fixed_rate_has_a_latency() {
    let rate = "kind = 'persist-rate'\nrate = 500\nseconds = 0.4\nbody = 200";
    let result = run("rate", rate, Wrong::Nothing, &["--store", &folder(), "--series", "100"]);
    assert_eq!(result["latency"]["from_intended"]["count"], 180, "200 messages less a tenth: {result}");
    assert!(result["persist"]["bare_per_s"].as_f64().is_some_and(|rate| rate < 600.0), "{result}");
}

#[test]
fn a_confirmed_message_that_is_not_there_fails_the_run() {
    let fault = |name, wrong| run(name, TWO, wrong, &[])["fault"].as_str().unwrap_or_default().to_owned();
    assert!(fault("receipt-lost", Wrong::Lose(600)).contains("lost or out of order"));
    assert!(fault("receipt-twice", Wrong::DoubleReceipt(600)).contains("RECEIPT doubled or not asked for"));
    // The warm-up is one round of 1,000, so this is the last RECEIPT.
    assert!(fault("receipt-last", Wrong::DoubleReceipt(2_000)).contains("RECEIPT doubled or not asked for"));
}

#[test]
fn a_queue_is_filled_and_drained_by_two_processes() {
    let address = peer::start(Wrong::Nothing);
    let workload = Workload::new("halves", "kind = 'recover'\nbody = 200\nmessages = 2_000");
    for part in ["fill", "drain"] {
        assert_eq!(workload.run(address, &["--part", part])["deliveries"], 2_000, "{part}");
    }
    let output = workload.command("run", &["--connect", &address.to_string()]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("--part fill|drain"));
}
