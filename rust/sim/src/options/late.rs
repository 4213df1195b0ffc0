//! Acknowledgements of STOMP 1.1 that come after `ack_timeout` has taken the messages back and delivered them again, on
//! connections that break soon.

use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};
use stompica_broker::config::{Compat, Config, SlowConsumer};

use super::disturbances::Disturbances;
use super::limits::CONNECTIONS_MANY;
use super::store::StoreOptions;
use super::{Keeping, Options, Pace, Private, Tree, Watching, one_of};
use crate::frames::Version;

/// The number with which a seed draws that messages are refused, too. With it, the seeds that were kept before draw none.
const REFUSED: u64 = 0x0a13_a25a_0000_2fa4;

/// The number with which a seed draws that everybody acknowledges by message.
const BY_MESSAGE: u64 = 0x11ac_4b1d_0000_01e6;

/// Lets all clients speak STOMP 1.1 in some of the runs with `ack_timeout`, acknowledge and refuse: there, an id may mean two
/// deliveries.
pub(super) fn draw_by_message(options: &mut Options) {
    let is_drawn = SmallRng::seed_from_u64(options.seed ^ BY_MESSAGE).random_ratio(1, 8);
    if !is_drawn || options.config.ack_timeout_ms == 0 || options.has_special_clients() {
        return;
    }
    options.versions = vec![Version::V11];
    (options.weights.ack, options.weights.nack) = (options.weights.ack.max(10), options.weights.nack.max(5));
}

/// Makes ACKs late in some of the runs. Nothing but its ACK may end a message there: what an ACK covers without right and
/// nobody gets is lost.
pub(super) fn draw(options: &mut Options) {
    let random = &mut SmallRng::seed_from_u64(options.seed ^ 0x1A7E_AC40);
    let has_queues = options.config.compat != Compat::Stompica;
    let is_refusing = SmallRng::seed_from_u64(options.seed ^ REFUSED).random_ratio(1, 8);
    if options.rogues.pace > 0 || !has_queues || (random.random_ratio(5, 6) && !is_refusing) {
        return;
    }
    let (config, default) = (&mut options.config, Config::default());
    let timeout = Duration::from_millis(30);
    (config.ack_timeout_ms, options.timing.ack_timeout) = (timeout.as_millis() as u64, timeout);
    // New messages overtake those that were taken back.
    config.redelivery_delay = Duration::from_millis(one_of(random, &[20, 50]));
    (config.max_deliveries, config.max_destinations) = (10, default.max_destinations);
    config.max_connections = CONNECTIONS_MANY;
    (config.max_queue_length, config.max_queue_bytes) = (u64::MAX, u64::MAX);
    (config.memory_limit, config.outbox_limit) = (64 << 20, 1 << 20);
    config.slow_consumer = SlowConsumer::Block(Duration::from_secs(30));
    let timing = &mut options.timing;
    (timing.is_late, timing.dead_letters, timing.rejects, timing.exceptions) = (true, 0, 0, 0);
    (timing.terms, options.expiring, options.body_max) = (0, 0, options.body_max.min(300));
    (options.tree, options.private, options.watching) =
        (Tree::default(), Private::default(), Watching::default());
    (options.versions, options.patterns) = (vec![Version::V11], false);
    options.topics.clear();
    options.queues = vec!["/queue/0".to_owned()];
    options.clients_max = options.clients_max.min(3);
    options.pause_max = Duration::from_millis(20);
    options.piece_max = options.piece_max.max(2_000);
    (options.keeping, options.store) = (Keeping::default(), StoreOptions::default());
    options.disturbances = Disturbances::default();
    // A message is read, taken back and delivered again before its ACK comes, and others between.
    options.pace = Pace { act: 20, arrive: 20, receive: 8, turn: 30, pass: 10 };
    let weights = &mut options.weights;
    (weights.send, weights.ack, weights.subscribe, weights.connect) = (20, 4, 1, 1);
    (weights.stall, weights.reset, weights.nack, weights.unsubscribe) = (2, 1, 0, 0);
    if is_refusing {
        // Refused messages come again at once, and ACKs before `ack_timeout` takes everything back.
        (config.max_deliveries, config.redelivery_delay) = (1000, Duration::ZERO);
        (options.weights.ack, options.weights.nack, options.weights.stall) = (12, 8, 0);
        options.pace = Pace { act: 40, arrive: 40, receive: 40, turn: 60, pass: 3 };
    }
}
