//! Topics with retained messages: `retain:set` and `retain:remove`.

use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};
use stompica_broker::config::Compat;

use super::disturbances::Disturbances;
use super::limits::DESTINATIONS_MANY;
use super::store::StoreOptions;
use super::{Keeping, Options, Private, Tree, Watching, one_of};
use crate::work::LAST;

/// The use of retained messages. Zero and empty in most seeds.
#[derive(Clone, Debug, Default)]
pub struct Retained {
    /// Percentage of the actions that concern them.
    pub percent: u32,
    /// Topics.
    pub names: Vec<String>,
    /// Patterns that match some of them.
    pub patterns: Vec<String>,
    /// Percentage of the SENDs to these topics that set the value.
    pub sets: u32,
    /// Percentage of the SENDs that remove it.
    pub removes: u32,
}

/// Changes some of the runs: in these, other topics, and what would read or count these messages, are left out.
pub(super) fn draw(options: &mut Options) {
    let random = &mut SmallRng::seed_from_u64(options.seed ^ 0x1A57_0BE5);
    let is_other = options.rogues.pace > 0
        || options.config.compat == Compat::Stompica
        || options.timing.is_late
        || options.workers.percent > 0;
    if is_other || random.random_ratio(7, 10) {
        return;
    }
    let count = one_of(random, &[1, 2, 3, 8, 100]);
    let names: Vec<String> = (0..count).map(|at| format!("{LAST}{at}")).collect();
    let mut patterns = ["/last/*", "/last/>", "/last/#", "/last/1*"].map(str::to_owned).to_vec();
    patterns.retain(|pattern| names.iter().any(|name| options.rules().matches(pattern, name)));
    let config = &mut options.config;
    if random.random_ratio(1, 4) {
        config.max_retained = one_of(random, &[1, 2, 5]);
    }
    // Nothing is taken back while its consumer holds it: one that holds a message twice could not tell which.
    (config.ack_timeout_ms, options.timing.ack_timeout) = (0, Duration::ZERO);
    (config.max_destinations, config.max_subscriptions) = (DESTINATIONS_MANY, 1000);
    let percent = one_of(random, &[20, 50, 90]);
    let removes = one_of(random, &[0, 10, 40]);
    options.retained = Retained { percent, names, patterns, sets: one_of(random, &[20, 50]), removes };
    options.receipts = one_of(random, &[50, 100, 100]);
    if options.config.outbox_limit < 20_000 {
        options.body_max = options.body_max.min(5_000); // larger ones pass such outboxes one by one, to many subscriptions
    }
    options.topics.clear();
    (options.tree, options.private, options.watching) =
        (Tree::default(), Private::default(), Watching::default());
    (options.keeping, options.disturbances) = (Keeping::default(), Disturbances::default());
    options.timing.dead_letters = 0;
    if options.store.log.is_none() {
        options.store = StoreOptions::default();
    }
    options.acking.percent = one_of(random, &[0, 30, 100]);
    let weights = &mut options.weights;
    if random.random_ratio(1, 2) {
        // What a lost client has set last is uncertain until the end.
        (weights.reset, weights.abandon, weights.finish) = (0, 0, 0);
    }
}
