//! The checker `limits`: after each turn, no limit of the settings is exceeded by more than a turn's work, and no turn
//! has done more than its budget and the step that it had begun.
//!
//! What one turn may do follows from `rust/broker/src/turn/budget.rs`; all budgets are divided by the `turn_divisor` of the
//! run, steps are not:
//!
//! | what | bound |
//! |---|---|
//! | visits | 11 eighths of 20,000, and a step of up to [`STEP_VISITS`]; connections that end together 10,000 more |
//! | bytes encoded | 4.25 MiB; each part of a turn finishes a fan-out of up to 1 MiB, or a frame |
//! | deliveries | 85,000; each part finishes a group, which has a subscription once, and what a queue delivers at once |
//! | bytes read | all are counted in the visits, 512 for each |
//! | calls that write | one for each connection, and one for each that is written to early or at its end; and for each `outbox_limit` |
//! | `memory_limit` | each shard may add one turn's work; and names that it is told |
//! | `max_destinations` | a shard does not know names of others while the mail about them is on the way |
//! | `max_stale_queue_size` | each shard may hold more by one turn's visits, before the home of the oldest one drops it |
//! | each connection: answers, input, waits | see `connections` |
//! | all other settings | exact |
//!
//! The first three are sums over the parts of a turn: mail, routes, deliveries, sockets and queues are granted 3, 2, 2, 2 and
//! 2 eighths of the visits if each uses all; mail and routes share 1.25 times the bytes and deliveries, the others have all of
//! them each. Bytes that are read or encoded are held up to four times: as input, as a message, in a batch, in chunks that
//! are not full. Shards do not see what others add in turns that run at the same time.
//!
//! Reloads of a run only raise what is compared here.

mod connections;

use stompica_broker::config::{Config, SlowConsumer};
use stompica_broker::simulated::outside::{self, Traffic};
use stompica_broker::usage::{Largest, Usage, Work};

use crate::events::Violation;
use crate::options::Options;

/// Visits of the longest step, undivided: a sweep of queues makes 4,000, with another step of 1,000 before it.
const STEP_VISITS: usize = 5_000;
/// Visits of connections that end together.
const ENDS_VISITS: usize = 10_000;
/// Bytes of input that count as one visit.
const VISIT_BYTES: usize = 512;
/// The parts of a turn.
const PARTS: usize = 5;
/// What one queue delivers at once.
const QUEUE_DELIVERIES: usize = 64;
/// A fan-out of this size is not split.
const FAN_OUT_BYTES: usize = 1 << 20;
/// What a shard holds for a name that others subscribe to, and what a connection holds that has just been opened.
const NAME_BYTES: usize = 1024;
const CONNECTION_BYTES: usize = 4096;
/// What a shard holds besides: open chunks and tables.
const SHARD_BYTES: usize = 128 << 10;

/// What has to be remembered from turn to turn.
#[derive(Clone, Debug, Default)]
pub(crate) struct Limits {
    /// The largest number of bytes that each shard has read in one turn.
    read: Vec<usize>,
    /// The largest number of subscriptions that any shard has had.
    subscriptions: usize,
    /// The largest number of destinations that the broker has had: shards may not know yet which are gone.
    destinations: usize,
    /// Connections that wait although they have unacknowledged deliveries.
    waits: connections::Waits,
}

/// Refuses a use by one owner that is larger than its bound.
fn at_most(what: &str, owner: &str, found: u64, bound: u64) -> Result<(), Violation> {
    if found <= bound {
        return Ok(());
    }
    Err(Violation { checker: "limits", text: format!("{what} {owner}: {found}, and {bound} are allowed") })
}

/// Refuses the first of several uses by one owner that is larger than its bound.
fn all_at_most(owner: &str, uses: &[(&str, usize, usize)]) -> Result<(), Violation> {
    uses.iter().try_for_each(|(what, found, bound)| at_most(what, owner, *found as u64, *bound as u64))
}

impl Limits {
    /// Compares what is used after a turn of a shard, and the traffic in it, with the settings.
    ///
    /// # Errors
    /// A limit that was exceeded.
    pub(crate) fn check(
        &mut self,
        options: &Options,
        shard: usize,
        before: &Usage,
        after: &Usage,
        traffic: Traffic,
    ) -> Result<(), Violation> {
        self.read.resize(after.work.len(), 0);
        self.read[shard] = self.read[shard].max(traffic.read);
        self.subscriptions = self.subscriptions.max(after.work[shard].subscriptions);
        self.destinations = self.destinations.max(after.destinations);
        self.check_turn(options, shard, before, after, traffic)?;
        self.check_broker(&options.config, shard, before, after)?;
        connections::check(&options.config, shard, before, after, traffic)?;
        self.waits.check(&options.config, shard, after, outside::now())?;
        let config = &options.config;
        let each: [(&str, &Largest, u64); 6] = [
            ("subscriptions of", &after.subscriptions, config.max_subscriptions as u64),
            ("temporary destinations of", &after.temporary, config.max_subscriptions as u64),
            ("transactions of", &after.transactions, config.max_transactions as u64),
            ("bytes in transactions of", &after.transaction_bytes, config.max_transaction_size as u64),
            ("messages of", &after.queue_length, config.max_queue_length),
            ("bytes of", &after.queue_bytes, config.max_queue_bytes),
        ];
        each.iter().try_for_each(|(what, found, bound)| at_most(what, &found.owner, found.amount, *bound))
    }

    /// Compares what the whole broker uses.
    fn check_broker(
        &self,
        config: &Config,
        shard: usize,
        before: &Usage,
        after: &Usage,
    ) -> Result<(), Violation> {
        // Each name that it did not know at some moment of the turn it has learned since, or does not know now.
        let unknown = after.unknown[shard] + after.learned[shard] - before.learned[shard];
        let known = config.max_destinations.saturating_add(unknown);
        let turn_of = |(work, read): (&Work, &usize)| 4 * (work.encoded + read) + SHARD_BYTES;
        let turns: usize = after.work.iter().zip(&self.read).map(turn_of).sum();
        let names = self.destinations * after.work.len() * NAME_BYTES;
        let held_max = config.memory_limit as usize + turns + names + after.connections * CONNECTION_BYTES;
        let returned: usize = after.work.iter().map(|work| work.visited).sum();
        let uses = [
            ("connections", after.connections, config.max_connections),
            ("retained messages", after.retained, config.max_retained),
            ("stale messages", after.stale, config.max_stale_queue_size.saturating_add(returned)),
            ("destinations", after.destinations, known.max(before.destinations)),
            ("held bytes", usize::try_from(after.held_bytes).unwrap_or(0), held_max),
        ];
        all_at_most("of the broker", &uses)
    }

    /// Compares the work of the turn with its budget.
    fn check_turn(
        &self,
        options: &Options,
        shard: usize,
        before: &Usage,
        after: &Usage,
        traffic: Traffic,
    ) -> Result<(), Violation> {
        let divisor = options.pressure.turn_divisor;
        // Rogues send bodies of their own.
        let body_max = options.body_max.max(options.config.limits.message_bytes_max.min(1 << 17));
        let work = after.work[shard];
        let visited = work.all_visited - before.work[shard].all_visited;
        let all = |usage: &Usage| usage.connections + usage.refused;
        let ends = if all(after) < all(before) { ENDS_VISITS } else { 0 };
        let step = FAN_OUT_BYTES + body_max;
        // Where nobody waits for a full outbox, each time that it is full it is written before a message is dropped.
        let is_waited_for = matches!(options.config.slow_consumer, SlowConsumer::Block(_));
        let full = if is_waited_for { 0 } else { traffic.written / options.config.outbox_limit.max(1) };
        let uses = [
            ("visits", visited, 20_000 * 11 / 8 / divisor + STEP_VISITS + ends),
            ("bytes encoded", work.encoded, (17 << 18) / divisor + PARTS * step),
            (
                "deliveries",
                work.deliveries,
                85_000 / divisor + PARTS * (self.subscriptions + QUEUE_DELIVERIES),
            ),
            ("bytes read", traffic.read, visited * VISIT_BYTES),
            ("calls that write", traffic.writes, 3 * all(before).max(all(after)) + 64 + full),
        ];
        all_at_most(&format!("in a turn of shard {shard}"), &uses)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// A broker of two shards at rest, with room for one of everything.
    fn options() -> Options {
        let mut options = Options::new(1, 1);
        (options.pressure.turn_divisor, options.body_max) = (20, 100);
        let config = &mut options.config;
        (config.max_connections, config.max_destinations, config.memory_limit) = (1, 1, 1 << 20);
        (config.max_subscriptions, config.max_transactions, config.max_transaction_size) = (1, 1, 10);
        (config.max_queue_length, config.max_queue_bytes) = (1, 10);
        (config.max_retained, config.max_stale_queue_size) = (1, 1);
        config.limits.message_bytes_max = 100;
        options
    }

    fn usage() -> Usage {
        let one = Largest { amount: 1, owner: "connection 1".to_owned() };
        let ten = Largest { amount: 10, ..one.clone() };
        Usage {
            work: vec![Work { visited: 10, all_visited: 10, ..Work::default() }; 2],
            held_bytes: 1 << 20,
            connections: 1,
            refused: 1,
            destinations: 1,
            unknown: vec![0; 2],
            learned: vec![0; 2],
            subscriptions: one.clone(),
            temporary: one.clone(),
            transactions: one.clone(),
            transaction_bytes: ten.clone(),
            queue_length: one,
            queue_bytes: ten,
            retained: 1,
            stale: 1,
            each: Vec::new(),
        }
    }

    /// What is found after a turn of the first shard that changes what is used.
    fn found_from(before: &Usage, change: impl FnOnce(&mut Usage, &mut Traffic)) -> Option<String> {
        let (mut after, mut traffic) = (before.clone(), Traffic::default());
        change(&mut after, &mut traffic);
        let found = Limits::default().check(&options(), 0, before, &after, traffic);
        found.err().map(|violation| violation.text)
    }

    fn found(change: impl FnOnce(&mut Usage, &mut Traffic)) -> Option<String> {
        found_from(&usage(), change)
    }

    #[test]
    fn limits_may_be_reached() {
        assert_eq!(found(|_, _| ()), None);
    }

    /// Makes one amount exceed its limit.
    type Change = fn(&mut Usage);

    #[test]
    fn each_limit_may_not_be_exceeded() {
        let changes: [(&str, Change); 11] = [
            ("connections of", |usage| usage.connections += 1),
            ("destinations", |usage| usage.destinations += 1),
            ("subscriptions", |usage| usage.subscriptions.amount += 1),
            ("temporary", |usage| usage.temporary.amount += 1),
            ("transactions", |usage| usage.transactions.amount += 1),
            ("bytes in transactions", |usage| usage.transaction_bytes.amount += 1),
            ("messages", |usage| usage.queue_length.amount += 1),
            ("bytes of", |usage| usage.queue_bytes.amount += 1),
            ("retained", |usage| usage.retained += 1),
            ("stale", |usage| usage.stale += 21), // each of two shards may have returned ten
            ("held bytes", |usage| usage.held_bytes += 1 << 19),
        ];
        for (what, change) in changes {
            let text = found(|usage, _| change(usage));
            assert!(text.as_ref().is_some_and(|text| text.starts_with(what)), "{what}: {text:?}");
        }
    }

    #[test]
    fn shards_may_hold_names_that_they_do_not_know_to_be_gone() {
        let (mut limits, options) = (Limits::default(), options());
        let full = Usage { destinations: 1000, ..usage() };
        let held = Usage { held_bytes: 3 << 20, ..usage() };
        let mut check = |before, after| limits.check(&options, 0, before, after, Traffic::default()).is_ok();
        assert!(!check(&held, &held));
        assert!(check(&full, &full) && check(&full, &held));
    }

    #[test]
    fn a_turn_does_no_more_than_its_budget_and_a_step() {
        let most = 20_000 * 11 / 8 / 20 + STEP_VISITS;
        assert_eq!(found(|usage, _| usage.work[0].all_visited += most), None);
        let text = found(|usage, _| usage.work[0].all_visited += most + 1);
        assert!(text.is_some_and(|text| text.starts_with("visits")));
        let ends = |usage: &mut Usage, _: &mut Traffic| {
            (usage.work[0].all_visited, usage.connections) = (10 + most + ENDS_VISITS, 0);
        };
        assert_eq!(found(ends), None, "connections end together");
        let text = found(|usage, _| usage.work[0].encoded = 8 << 20);
        assert!(text.is_some_and(|text| text.starts_with("bytes encoded")));
        let most = 85_000 / 20 + PARTS * QUEUE_DELIVERIES;
        assert_eq!(found(|usage, _| usage.work[0].deliveries = most), None);
        let text = found(|usage, _| usage.work[0].deliveries = most + 1);
        assert!(text.is_some_and(|text| text.starts_with("deliveries")));
    }

    #[test]
    fn traffic_is_counted_and_bounded() {
        assert_eq!(
            found(|usage, traffic| (usage.work[0].all_visited, traffic.read) = (12, 1024)),
            None,
            "two visits for 1024 bytes"
        );
        let text = found(|usage, traffic| (usage.work[0].all_visited, traffic.read) = (12, 1025));
        assert!(text.is_some_and(|text| text.starts_with("bytes read")));
        let text = found(|_, traffic| traffic.writes = 100);
        assert!(text.is_some_and(|text| text.starts_with("calls")));
        let with = |slow_consumer: SlowConsumer, written: usize| {
            let (mut options, usage) = (options(), usage());
            (options.config.slow_consumer, options.config.outbox_limit) = (slow_consumer, 1000);
            let traffic = Traffic { writes: 100, written, ..Traffic::default() };
            Limits::default().check(&options, 0, &usage, &usage, traffic).is_ok()
        };
        assert!(with(SlowConsumer::DropNewest, 30_000) && !with(SlowConsumer::DropNewest, 29_000));
        assert!(!with(SlowConsumer::Block(Duration::from_secs(1)), 100_000));
    }

    #[test]
    fn a_shard_may_not_know_the_destinations_of_others_yet() {
        let added = |unknown, learned, destinations| {
            found(|usage, _| {
                (usage.unknown[0], usage.learned[0], usage.destinations) = (unknown, learned, destinations);
            })
        };
        assert_eq!((added(1, 0, 2), added(0, 1, 2)), (None, None));
        assert!(added(1, 0, 3).is_some() && added(0, 1, 3).is_some());
        let above = Usage { destinations: 5, ..usage() };
        assert_eq!(found_from(&above, |_, _| ()), None, "nothing was added");
    }
}
