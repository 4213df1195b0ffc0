//! Seeds that have found a defect once find nothing now.

use stompica_sim::options::Options;
use stompica_sim::world::World;

#[test]
fn kept_seeds_find_nothing() {
    let lines = include_str!("../seeds.txt").lines().filter(|line| !line.starts_with('#'));
    for line in lines {
        let mut words = line.split_whitespace().map(str::parse);
        let (Some(Ok(seed)), Some(Ok(steps))) = (words.next(), words.next()) else {
            panic!("a seed and a number of steps are expected: {line}");
        };
        let outcome = World::new(Options::new(seed, steps)).run(|_| true);
        assert!(outcome.is_ok(), "{line}: {:?}", outcome.map_err(|failure| failure.violation));
    }
}
