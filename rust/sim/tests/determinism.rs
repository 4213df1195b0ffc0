//! A seed is always the same run.

use std::thread;

use stompica_sim::options::Options;
use stompica_sim::world::World;

#[test]
fn a_seed_runs_the_same_way_each_time() {
    for seed in 0..200 {
        let run = || World::new(Options::new(seed, 500)).run(|_| true).map_err(|failure| failure.violation);
        let (first, second) = (run(), run());
        assert!(first.is_ok(), "seed {seed}: {first:?}");
        assert_eq!(first, second, "seed {seed}");
    }
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// The outcome of a seed.
fn hash(seed: u64, steps: u64) -> u64 {
    let outcome = World::new(Options::new(seed, steps)).run(|_| true);
    outcome.unwrap_or_else(|failure| panic!("seed {seed}: {:?}", failure.violation)).trace_hash
}

/// `SEEDS=n` and `EVENTS=n` set how many seeds run, and their steps.
#[test]
fn nothing_that_ran_before_on_a_thread_changes_a_run() {
    let (seeds, steps) = (number("SEEDS", 100), number("EVENTS", 500));
    let threads = 4;
    // Each seed by itself on a new thread, then on other threads in reverse order, after runs that broke off.
    let alone = |seed| thread::spawn(move || hash(seed, steps)).join().expect("it finds nothing");
    let hashes: Vec<u64> = (0..seeds).map(alone).collect();
    let check = |first: u64| {
        for seed in (0..seeds).rev().filter(|seed| seed % threads == first) {
            let fault = ["credit-twice", "requeued-message-lost", "wake-up-forgotten"][(seed % 3) as usize];
            let broken = Options { fault: Some(fault.to_owned()), ..Options::new(seed + 1, steps) };
            _ = World::new(broken).run(|step| step % 7 != 0);
            assert_eq!(hash(seed, steps), hashes[seed as usize], "seed {seed}");
        }
    };
    let check = &check;
    thread::scope(|scope| (0..threads).for_each(|first| _ = scope.spawn(move || check(first))));
}

#[test]
fn other_seeds_are_other_runs() {
    let hash = |seed| World::new(Options::new(seed, 500)).run(|_| true).expect("nothing is wrong").trace_hash;
    assert_ne!(hash(1), hash(2));
}

#[test]
fn a_planted_fault_is_found_and_its_steps_are_reduced() {
    let options = |seed| Options { fault: Some("credit-twice".to_owned()), ..Options::new(seed, 2000) };
    let found =
        (1..5000).find_map(|seed| World::new(options(seed)).run(|_| true).err()).expect("it is found");
    let (kept, least) =
        stompica_sim::shrink::shrink(&found, &options(found.seed), std::time::Duration::from_secs(600));
    assert_eq!(least.violation.checker, found.violation.checker);
    assert!(kept < 200, "{kept} steps");
}
