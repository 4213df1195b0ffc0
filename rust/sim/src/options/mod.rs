//! What a seed expands into: settings of the broker, and which commands, faults and sizes occur, and how often.
//!
//! Each seed leaves some of them out altogether (swarm testing): a run in which nobody ever unsubscribes reaches states
//! that a run with a bit of everything does not reach.

mod acking;
mod beats;
pub mod disturbances;
mod holders;
mod keeping;
mod late;
mod limits;
pub mod log;
mod policies;
mod pressure;
mod private;
mod retained;
mod shortage;
pub mod store;
mod timing;
mod transactions;
mod tree;
mod watching;
mod workers;

use std::time::Duration;

use rand::rngs::SmallRng;
use rand::seq::IndexedRandom as _;
use rand::{Rng as _, SeedableRng as _};
use stompica_broker::config::{Compat, Config, Ids, SlowConsumer};

pub use self::acking::Acking;
pub use self::beats::{Beats, Pulse};
use self::disturbances::{Disturbance, Disturbances};
pub use self::keeping::{Dialect, DurableName, Keeping};
pub use self::policies::Policies;
pub use self::private::Private;
pub use self::retained::Retained;
use self::store::StoreOptions;
pub use self::timing::Timing;
pub use self::tree::Tree;
pub use self::watching::Watching;
pub use self::workers::Workers;
use crate::frames::Version;
use crate::options::pressure::Pressure;
use crate::patterns::Rules;
use crate::rogue::options::RogueOptions;

/// How often the actions of clients occur, as weights; 0: never.
#[derive(Clone, Debug)]
pub struct Weights {
    /// A new connection.
    pub connect: u32,
    /// SUBSCRIBE.
    pub subscribe: u32,
    /// UNSUBSCRIBE.
    pub unsubscribe: u32,
    /// SEND.
    pub send: u32,
    /// ACK.
    pub ack: u32,
    /// NACK.
    pub nack: u32,
    /// BEGIN.
    pub begin: u32,
    /// COMMIT.
    pub commit: u32,
    /// ABORT.
    pub abort: u32,
    /// DISCONNECT.
    pub disconnect: u32,
    /// The client shuts its write side.
    pub finish: u32,
    /// The connection breaks.
    pub reset: u32,
    /// The client closes without reading.
    pub abandon: u32,
    /// The client stops or begins to read.
    pub stall: u32,
}

/// How often the steps of the world occur, as weights.
#[derive(Clone, Debug)]
pub struct Pace {
    /// A client acts.
    pub act: u32,
    /// Bytes of a client arrive at the broker.
    pub arrive: u32,
    /// A client reads.
    pub receive: u32,
    /// A shard takes a turn.
    pub turn: u32,
    /// Time passes although there is work.
    pub pass: u32,
}

/// Everything that a seed determines before the first step.
#[derive(Clone, Debug)]
pub struct Options {
    /// The seed.
    pub seed: u64,
    /// The number of steps before faults end.
    pub steps: u64,
    /// The settings of the broker.
    pub config: Config,
    /// How often clients do what.
    pub weights: Weights,
    /// How often what happens.
    pub pace: Pace,
    /// The largest number of open connections.
    pub clients_max: usize,
    /// The versions that clients use.
    pub versions: Vec<Version>,
    /// Topics.
    pub topics: Vec<String>,
    /// Queues.
    pub queues: Vec<String>,
    /// Whether subscriptions may use patterns.
    pub patterns: bool,
    /// Patterns over a tree of names.
    pub tree: Tree,
    /// Diagnostics.
    pub watching: Watching,
    /// Temporary destinations.
    pub private: Private,
    /// Percentage of connections that use WebSocket.
    pub websockets: u32,
    /// Percentage of SENDs, ACKs and others with a RECEIPT.
    pub receipts: u32,
    /// Percentage of SENDs that expire.
    pub expiring: u32,
    /// The largest body in bytes.
    pub body_max: usize,
    /// The largest piece that arrives or is read at a time, in bytes.
    pub piece_max: usize,
    /// The broker's buffer towards a client, in bytes.
    pub buffer_bytes: usize,
    /// The longest time that passes at a time.
    pub pause_max: Duration,
    /// What happens to the broker.
    pub disturbances: Disturbances,
    /// The store.
    pub store: StoreOptions,
    /// Clients that break rules.
    pub rogues: RogueOptions,
    /// What topics keep.
    pub keeping: Keeping,
    /// Subscriptions to topics that acknowledge.
    pub acking: Acking,
    /// Heart-beats.
    pub beats: Beats,
    /// What brings the broker to its limits.
    pub pressure: Pressure,
    /// Policies for slow consumers that subscriptions ask for.
    pub policies: Policies,
    /// Worker topics and stale messages.
    pub workers: Workers,
    /// Retained messages.
    pub retained: Retained,
    /// What depends on time.
    pub timing: Timing,
    /// The planted fault that is switched on.
    pub fault: Option<String>,
}

/// `0` for most, so that each seed does without some.
fn weight(random: &mut SmallRng, max: u32) -> u32 {
    if random.random_ratio(1, 3) { 0 } else { random.random_range(1..=max) }
}

fn one_of<T: Clone>(random: &mut SmallRng, all: &[T]) -> T {
    all.choose(random).expect("a list that is not empty").clone()
}

impl Options {
    /// What a seed expands into.
    #[must_use]
    pub fn new(seed: u64, steps: u64) -> Self {
        let random = &mut SmallRng::seed_from_u64(seed ^ 0x0551_0115);
        let versions = [Version::V10, Version::V11, Version::V12];
        let used: Vec<Version> = versions.into_iter().filter(|_| random.random_ratio(2, 3)).collect();
        let (topics, queues) = (random.random_range(0..4), random.random_range(0..5));
        let names =
            |prefix: &str, count: usize| (0..count).map(|at| format!("/{prefix}/{at}")).collect::<Vec<_>>();
        let mut options = Options {
            seed,
            steps,
            config: config(random),
            weights: Weights {
                connect: random.random_range(1..=4),
                subscribe: random.random_range(1..=6),
                unsubscribe: weight(random, 4),
                send: random.random_range(4..=40),
                ack: random.random_range(2..=30),
                nack: weight(random, 6),
                begin: weight(random, 4),
                commit: random.random_range(1..=6),
                abort: weight(random, 2),
                disconnect: weight(random, 2),
                finish: weight(random, 1),
                reset: weight(random, 2),
                abandon: weight(random, 1),
                stall: weight(random, 2),
            },
            pace: Pace {
                act: random.random_range(5..=40),
                arrive: random.random_range(5..=30),
                receive: random.random_range(2..=30),
                turn: random.random_range(5..=40),
                pass: weight(random, 4),
            },
            clients_max: random.random_range(2..=12),
            versions: if used.is_empty() { versions.to_vec() } else { used },
            topics: if topics + queues == 0 { names("topic", 1) } else { names("topic", topics) },
            queues: names("queue", queues),
            patterns: random.random_ratio(1, 3),
            tree: Tree::default(),
            private: Private::default(),
            watching: Watching::default(),
            websockets: one_of(random, &[0, 0, 50, 100]),
            receipts: one_of(random, &[0, 10, 50, 100]),
            expiring: one_of(random, &[0, 0, 10, 60]),
            body_max: one_of(random, &[0, 40, 300, 5_000, 70_000]),
            piece_max: one_of(random, &[3, 100, 2_000, 1 << 20]),
            buffer_bytes: one_of(random, &[64, 1_000, 8_000, 64_000, 1 << 20]),
            pause_max: Duration::from_millis(one_of(random, &[1, 20, 500, 6_000])),
            disturbances: Disturbances::default(),
            store: StoreOptions::default(),
            rogues: RogueOptions::new(seed),
            keeping: Keeping::default(),
            acking: Acking::draw(seed),
            beats: Beats::default(),
            pressure: Pressure::default(),
            policies: Policies::default(),
            workers: Workers::default(),
            retained: Retained::default(),
            timing: Timing::default(),
            fault: None,
        };
        options.draw_parts();
        options.adjust();
        options
    }

    /// Draws what has files of its own.
    fn draw_parts(&mut self) {
        self.keeping = Keeping::draw(self.seed, &mut self.topics);
        Pressure::draw(self);
        self.tree = Tree::draw(self.seed, &mut self.config, &mut self.topics, &mut self.queues);
        self.private = Private::draw(self.seed, &self.config);
        self.store = StoreOptions::new(self.seed, &mut self.config);
        self.timing = Timing::draw(self.seed, &mut self.config, self.store.is_durable);
        self.draw_disturbances();
        self.watching = Watching::draw(self.seed, &self.config);
    }

    /// Adjusts what was drawn to the rest of it.
    fn adjust(&mut self) {
        let (has_patterns, is_watched) = (self.tree.patterns > 0, self.watching.percent > 0);
        self.rogues.adjust(&mut self.config, has_patterns, is_watched);
        if self.rogues.pace == 0 {
            self.beats = Beats::draw(self.seed, &mut self.config.heartbeat_ms); // rogues ask for heart-beats, too
        }
        limits::draw(self);
        self.keeping.draw_haste(self.seed, &mut self.config.writers, &mut self.topics, &mut self.weights);
        late::draw(self);
        workers::draw(self);
        retained::draw(self);
        shortage::draw(self);
        holders::draw(self);
        policies::draw(self);
        beats::draw_more(self);
        transactions::draw(self);
        Private::allow_few(self);
        log::adjust(self);
        self.pause_max = self.pause_max.min(self.store.pause_max());
        self.weights.nack = self.weights.nack.max(self.acking.nack);
        late::draw_by_message(self);
    }

    fn draw_disturbances(&mut self) {
        if self.rogues.pace > 0 {
            return; // rogues count on times and answers that disturbances change
        }
        self.disturbances = Disturbances::draw(self.seed, &mut self.config, self.clients_max);
        if self.disturbances.kinds.contains(&Disturbance::WallClock) {
            self.timing.odd_expiries = 0; // `expires` means the wall clock
        }
    }

    /// Whether there are clients that expect their answers in time, or whose messages nothing but an ACK may end.
    fn has_special_clients(&self) -> bool {
        self.rogues.pace > 0
            || self.watching.percent > 0
            || self.workers.percent > 0
            || self.retained.percent > 0
            || self.timing.is_late
    }

    /// Whether dead letters may be dropped: their queue is full, cannot be created, or does not exist in this broker.
    #[must_use]
    pub fn may_refuse_dead_letters(&self) -> bool {
        let config = &self.config;
        config.max_queue_length < u64::MAX
            || config.max_queue_bytes < u64::MAX
            || config.max_destinations < limits::DESTINATIONS_MANY
            || config.compat == Compat::Stompica
    }

    /// The rules of patterns.
    #[must_use]
    pub fn rules(&self) -> Rules {
        Rules::new(self.config.wildcards, self.config.compat)
    }
}

fn config(random: &mut SmallRng) -> Config {
    let seconds = Duration::from_secs;
    Config {
        writers: random.random_range(1..=6),
        ids: Ids::Sequential,
        log_level: stompica_broker::log::Level::Warn,
        heartbeat_ms: (0, 0),
        max_connections: limits::CONNECTIONS_MANY, // the default is the machine's
        memory_limit: one_of(random, &[1 << 20, 4 << 20, 64 << 20, 64 << 20]),
        outbox_limit: one_of(random, &[2_000, 20_000, 1 << 20, 32 << 20]),
        slow_consumer: one_of(
            random,
            &[
                SlowConsumer::Block(seconds(1)),
                SlowConsumer::Block(seconds(30)),
                SlowConsumer::DropNewest,
                SlowConsumer::DropOldest,
                SlowConsumer::Disconnect,
            ],
        ),
        max_queue_length: one_of(random, &[3, 50, u64::MAX, u64::MAX]),
        max_queue_bytes: one_of(random, &[10_000, u64::MAX, u64::MAX]),
        max_input_queue_size: one_of(random, &[10, 1000, 1_000_000]),
        max_deliveries: one_of(random, &[1, 2, 10]),
        redelivery_delay: Duration::from_millis(one_of(random, &[0, 20, 100])),
        prefetch: one_of(random, &[1, 5, 1000]),
        publish_timeout: seconds(one_of(random, &[1, 30])),
        queue_idle_expiry: seconds(one_of(random, &[1, 300])),
        drain: seconds(5),
        ..Config::default()
    }
}
