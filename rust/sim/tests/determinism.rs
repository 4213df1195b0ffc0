//! A seed is always the same run.

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
    let (kept, least) = stompica_sim::shrink::shrink(&found, &options(found.seed));
    assert_eq!(least.violation.checker, found.violation.checker);
    assert!(kept < 200, "{kept} steps");
}
