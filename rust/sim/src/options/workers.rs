//! Worker topics, and topics whose messages wait for a subscription (`TTL`).

use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};
use stompica_broker::config::{Compat, Wildcards};

use super::disturbances::Disturbances;
use super::{Keeping, Options, Pace, Private, Tree, Watching, one_of};
use crate::work::{STALE, WORK};

/// A time that no run lasts.
const LONG: Duration = Duration::from_secs(30 * 24 * 3600);

/// The number with which a seed draws that messages are refused after their wait. With it, the seeds that were kept before
/// draw none.
const REFUSED: u64 = 0x0713_a25a_0000_0742;

/// The use of worker topics and of stale messages. Zero and empty in most seeds.
#[derive(Clone, Debug, Default)]
pub struct Workers {
    /// Percentage of the actions that concern them.
    pub percent: u32,
    /// Worker topics, and topics whose messages become stale.
    pub names: Vec<String>,
    /// Patterns that match some of them.
    pub patterns: Vec<String>,
    /// `TTL` is so long that nothing ends by it, and any number of messages may wait.
    pub keeps: bool,
}

/// Changes some of the runs: in these, other topics, and what would read or count these messages, are left out.
pub(super) fn draw(options: &mut Options) {
    let random = &mut SmallRng::seed_from_u64(options.seed ^ 0x2037_0B5E);
    let is_other =
        options.rogues.pace > 0 || options.config.compat == Compat::Stompica || options.timing.is_late;
    if is_other || random.random_ratio(5, 6) {
        return;
    }
    let name = |start: &str, count: u32| (0..count).map(|at| format!("{start}{at}")).collect::<Vec<_>>();
    let ttl = one_of(random, &[Duration::ZERO, Duration::from_millis(40), LONG, LONG]);
    let mut names = name(WORK, random.random_range(0..=3));
    let stale = if names.is_empty() { random.random_range(1..=2) } else { random.random_range(0..=2) };
    names.extend(name(STALE, stale));
    let mut patterns = ["#work/*", "#>", "#work/#", "/stale/*", "/stale/>"].map(str::to_owned).to_vec();
    if options.config.wildcards == Wildcards::Ancestor {
        patterns.push("#*".to_owned());
    }
    patterns.retain(|pattern| names.iter().any(|name| options.rules().matches(pattern, name)));
    let config = &mut options.config;
    config.ttl_ms = ttl.as_millis() as u64;
    let is_small = random.random_ratio(1, 5);
    if is_small {
        config.max_stale_queue_size = one_of(random, &[1, 5, 40]);
    }
    let percent = one_of(random, &[20, 50, 90]);
    options.workers = Workers { percent, names, patterns, keeps: ttl == LONG && !is_small };
    options.topics.clear();
    (options.tree, options.private, options.watching) =
        (Tree::default(), Private::default(), Watching::default());
    (options.keeping, options.disturbances) = (Keeping::default(), Disturbances::default());
    options.timing.dead_letters = 0;
    options.acking.percent = one_of(random, &[0, 30, 100]);
    if SmallRng::seed_from_u64(options.seed ^ REFUSED).random_ratio(1, 2) {
        let short = Duration::from_millis(40);
        (config.ttl_ms, config.redelivery_delay) = (short.as_millis() as u64, short);
        (options.workers.keeps, options.acking.percent) = (false, 100);
        let weights = &mut options.weights;
        (weights.ack, weights.nack, weights.send, weights.stall) = (10, 20, 10, 0);
        (weights.begin, weights.unsubscribe, weights.disconnect) = (0, 1, 0);
        (weights.reset, weights.abandon, weights.finish) = (weights.reset.min(1), 0, 0);
        options.workers.percent = options.workers.percent.min(50);
        options.pace = Pace { act: 40, arrive: 40, receive: 40, turn: 60, pass: 4 };
        options.pause_max = Duration::from_millis(20);
    }
}
