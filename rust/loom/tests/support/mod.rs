//! Runs a test in every order of its threads' steps that makes a difference, with every value that a relaxed read may see.

use std::panic::{set_hook, take_hook};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Once};
use std::time::{Duration, Instant};

use loom::model::Builder;
use stompica_broker::interleaved::plant;

/// The limit for tests that plant a fault. Few errors need more interruptions.
const INTERRUPTIONS: Option<usize> = Some(3);

/// The fault that this process plants; others do not look for it.
const FAULT: &str = "STOMPICA_LOOM_FAULT";

fn number(name: &str) -> Option<usize> {
    let text = std::env::var(name).ok().filter(|text| !text.is_empty())?;
    Some(text.parse().expect("a number"))
}

fn builder(interruptions: Option<usize>) -> Builder {
    let mut builder = Builder::new();
    builder.preemption_bound = interruptions;
    builder.max_branches = 100_000;
    builder
}

/// Runs the test in all orders with at most so many interruptions of threads where they could go on; `None`: in all orders.
/// A deadlock is a failure. `INTERRUPTIONS=n` sets another limit for all tests, and `SECONDS=n` ends each after this time.
pub fn check(interruptions: Option<usize>, test: impl Fn() + Send + Sync + 'static) {
    if std::env::var(FAULT).is_ok() {
        return;
    }
    hide_expected_panics();
    let began = Instant::now();
    let orders = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&orders);
    let mut builder = builder(number("INTERRUPTIONS").or(interruptions));
    builder.max_duration = number("SECONDS").map(|seconds| Duration::from_secs(seconds as u64));
    builder.checkpoint_interval = 1000; // when the time is checked
    builder.check(move || {
        count.fetch_add(1, Ordering::Relaxed);
        test();
    });
    println!("{} orders in {:.1?}", orders.load(Ordering::Relaxed), began.elapsed());
}

/// Shows that the test can fail: with this fault, it fails in some order. It runs in a process of its own, because a
/// broker in the middle of its work cannot be dropped while its threads are.
pub fn check_that_it_fails(fault: &'static str, test: impl Fn() + Send + Sync + 'static) {
    match std::env::var(FAULT) {
        Ok(planted) if planted == fault => {
            plant(Some(fault));
            builder(INTERRUPTIONS).check(test);
        }
        Ok(_) => {}
        Err(_) => {
            let current = std::thread::current();
            let name = current.name().expect("the runner names threads after tests");
            let program = std::env::current_exe().expect("a running program");
            let mut command = Command::new(program);
            command.args(["--exact", name]).env(FAULT, fault).env("RUST_BACKTRACE", "0");
            let output = command.output().expect("a program that runs");
            assert!(!output.status.success(), "{fault} was not found");
        }
    }
}

/// loom ends its threads with panics without a text, and some tests ask for a panic.
fn hide_expected_panics() {
    static HIDDEN: Once = Once::new();
    HIDDEN.call_once(|| {
        let show = take_hook();
        set_hook(Box::new(move |panic| {
            if panic.payload_as_str().is_some_and(|text| text != "a test requested this panic") {
                show(panic);
            }
        }));
    });
}
