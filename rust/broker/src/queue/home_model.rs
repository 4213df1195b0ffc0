//! Compares homes with a simple model: random steps, and the behaviour of clients and their shards in them.

#[path = "home_model_check.rs"]
mod check;
#[path = "home_model_homes.rs"]
mod homes;
#[path = "home_model_store.rs"]
mod store;

use self::store::ModelStore;
use super::*;

const NAMES: [&str; 5] = ["/queue/a", "/queue/b", "/queue/a/b", "#w/a", "/queue/dlq/a"];
const PATTERNS: [&str; 4] = ["/queue/*", "/queue/a/*", "#w/*", "/queue/dlq/*"];

fn is_worker(name: usize) -> bool {
    NAMES[name].starts_with('#')
}

fn is_dead_letters(name: usize) -> bool {
    NAMES[name].starts_with("/queue/dlq/")
}

fn is_persistent(id: usize) -> bool {
    id.is_multiple_of(3)
}

fn matches(pattern: &str, name: &str) -> bool {
    let (prefix, dead) = (pattern.trim_end_matches('*'), "/queue/dlq/");
    name.starts_with(prefix) && (!name.starts_with(dead) || pattern.starts_with(dead))
}

#[derive(Clone, Debug)]
enum Step {
    Attach { name: usize, prefetch: i64, bytes: i64 },
    AttachPattern { pattern: usize, prefetch: i64, bytes: i64 },
    Detach(Index),
    Send { name: usize, count: usize, ttl_ms: Option<u64>, failures_max: u16 },
    Reserve { name: usize, count: u64 },
    Release { which: Index, filled: bool },
    Write(Index),
    Settle(Index, Index),
    Refuse { who: Index, which: Index, deliveries_max: u32, delay_ms: u64 },
    Delete(Index),
    Pass(u64),
    Dispatch(usize, usize),
    Mail(usize),
    Room(usize, u8, bool),
    Sweep(usize, usize),
    PageOut(usize, bool),
    Load(usize),
    Rest,
}

fn step() -> impl Strategy<Value = Step> {
    let bytes = || prop_oneof![3 => Just(Credit::UNLIMITED), 1 => 1..60_i64];
    let pick = || any::<Index>();
    prop_oneof![
        2 => (0..5_usize, 1..6_i64, bytes())
            .prop_map(|(name, prefetch, bytes)| Step::Attach { name, prefetch, bytes }),
        3 => (0..4_usize, 1..6_i64, bytes())
            .prop_map(|(pattern, prefetch, bytes)| Step::AttachPattern { pattern, prefetch, bytes }),
        2 => pick().prop_map(Step::Detach),
        8 => (0..5_usize, 1..5_usize, prop::option::weighted(0.3, 0..300_u64), 0..3_u16)
            .prop_map(|(name, count, ttl_ms, failures_max)| Step::Send { name, count, ttl_ms, failures_max }),
        1 => (0..5_usize, 1..4_u64).prop_map(|(name, count)| Step::Reserve { name, count }),
        2 => (pick(), any::<bool>()).prop_map(|(which, filled)| Step::Release { which, filled }),
        3 => pick().prop_map(Step::Write),
        8 => (pick(), pick()).prop_map(|(who, which)| Step::Settle(who, which)),
        3 => (pick(), pick(), 1..5_u32, 0..40_u64).prop_map(|(who, which, deliveries_max, delay_ms)| {
            Step::Refuse { who, which, deliveries_max, delay_ms }
        }),
        1 => pick().prop_map(Step::Delete),
        3 => prop_oneof![3 => 1..60_u64, 1 => 60..700_u64].prop_map(Step::Pass),
        5 => (0..3_usize, 1..8_usize).prop_map(|(home, count)| Step::Dispatch(home, count)),
        8 => (0..3_usize).prop_map(Step::Mail),
        4 => (0..3_usize, 0..homes::SHARDS, any::<bool>())
            .prop_map(|(home, shard, is_there)| Step::Room(home, shard, is_there)),
        5 => (0..3_usize, 1..4_usize).prop_map(|(home, count)| Step::Sweep(home, count)),
        4 => (0..3_usize, any::<bool>()).prop_map(|(home, is_full)| Step::PageOut(home, is_full)),
        6 => (0..3_usize).prop_map(Step::Load),
        5 => Just(Step::Rest),
    ]
}

type Place = (usize, QueueKey);

#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    Waits,
    InFlight,
    /// It has to leave its home for this reason, which the home has to report.
    Leaves(&'static str),
    Ended,
}

/// A message that was enqueued.
struct Sent {
    at: Place,
    name: usize,
    seq: u64,
    expires_ms: u64,
    eligible_ms: u64,
    deliveries: u32,
    failures: u16,
    failures_max: u16,
    refused_by: Option<ConsumerKey>,
    state: State,
}

/// A queue.
struct Line {
    name: usize,
    next_seq: u64,
    /// Waiting messages, by place.
    waiting: BTreeMap<u64, usize>,
    in_flight: u64,
    consumers: BTreeSet<usize>,
    exact: usize,
    reserved: u64,
    barriers: BTreeSet<u64>,
    busy_ms: u64,
    touched_ms: u64,
}

impl Line {
    fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.in_flight == 0 && self.exact == 0 && self.reserved == 0
    }
}

struct Held {
    origin: (usize, QueueKey, ConsumerKey),
    message: OwnedMessage,
}

/// A subscription, as its shard sees it.
struct ConsumerModel {
    source: Result<usize, usize>,
    is_alive: bool,
    prefetch: i64,
    window: i64,
    available: i64,
    requests: VecDeque<(usize, ConsumerKey)>,
    held: Vec<Held>,
    unwritten: Vec<((usize, QueueKey, ConsumerKey), i64)>,
}

enum ToHome {
    Attach(usize, Credit),
    Detach(usize),
    Progress(Progress),
    GiveBack(QueueKey, ConsumerKey, OwnedMessage, GivenBack),
    Grant(ConsumerKey, i64),
    Revoke(usize),
}

struct World {
    homes: Vec<Home>,
    /// Consumers on the own shard of a home wait for others (`pacing.rs`).
    paces: bool,
    store: ModelStore,
    now_ms: u64,
    timers: BinaryHeap<Reverse<(u64, usize, QueueKey)>>,
    sent: Vec<Sent>,
    lines: BTreeMap<Place, Line>,
    /// The consumers that are attached at each home.
    attached: Vec<BTreeMap<usize, ConsumerKey>>,
    consumers: Vec<ConsumerModel>,
    to_home: Vec<VecDeque<ToHome>>,
    from_home: Vec<VecDeque<Effect>>,
    /// Places reserved by transactions: queue, first place in the model and in the home, number of places.
    kept: Vec<(Place, u64, u64, u64)>,
    /// The closed shards, by home.
    closed: Vec<BTreeSet<u8>>,
    /// The shards that were closed since the home was last idle.
    closed_before: Vec<BTreeSet<u8>>,
}

impl World {
    fn new(homes: usize, paces: bool, store: ModelStore) -> Self {
        let home = |at: usize| if paces { store.home().on(ShardId(at as u8)) } else { store.home() };
        World {
            homes: (0..homes).map(home).collect(),
            paces,
            store,
            now_ms: 0,
            timers: BinaryHeap::new(),
            sent: Vec::new(),
            lines: BTreeMap::new(),
            attached: vec![BTreeMap::new(); homes],
            consumers: Vec::new(),
            to_home: (0..homes).map(|_| VecDeque::new()).collect(),
            from_home: (0..homes).map(|_| VecDeque::new()).collect(),
            kept: Vec::new(),
            closed: vec![BTreeSet::new(); homes],
            closed_before: vec![BTreeSet::new(); homes],
        }
    }

    fn run(&mut self, step: Step) {
        let homes = self.homes.len();
        match step {
            Step::Attach { name, prefetch, bytes } => self.subscribe(Ok(name), prefetch, bytes),
            Step::AttachPattern { pattern, prefetch, bytes } => self.subscribe(Err(pattern), prefetch, bytes),
            Step::Detach(who) => {
                let alive: Vec<usize> = self.alive();
                if !alive.is_empty() {
                    self.unsubscribe(alive[who.index(alive.len())]);
                }
            }
            Step::Send { name, count, ttl_ms, failures_max } => {
                (0..count).for_each(|_| self.send(name, ttl_ms, failures_max));
            }
            Step::Reserve { name, count } => self.reserve(name, count),
            Step::Release { which, filled } if !self.kept.is_empty() => {
                let kept = self.kept.swap_remove(which.index(self.kept.len()));
                self.release(kept, filled);
            }
            Step::Write(who) if !self.consumers.is_empty() => self.write(who.index(self.consumers.len())),
            Step::Settle(who, which) => self.with_held(who, which, Self::settle),
            Step::Refuse { who, which, deliveries_max, delay_ms } => {
                self.with_held(who, which, |world, number, at| {
                    world.refuse(number, at, deliveries_max, delay_ms)
                });
            }
            Step::Delete(which) if !self.lines.is_empty() => {
                let at = *which.get(&self.lines.keys().copied().collect::<Vec<_>>());
                self.delete(at);
            }
            Step::Pass(ms) => self.pass(ms),
            Step::Dispatch(home, count) => self.dispatch(home % homes, count),
            Step::Mail(home) => self.pump(home % homes, 3),
            Step::Room(home, shard, is_there) => self.room(home % homes, shard, is_there),
            Step::Sweep(home, count) => self.homes[home % homes].proceed(count),
            Step::PageOut(home, is_full) if self.store.pages() => self.page_out(home % homes, is_full),
            Step::Load(home) => self.homes[home % homes].take_loaded(),
            Step::Rest => self.rest(),
            Step::Release { .. } | Step::Write(_) | Step::Delete(_) | Step::PageOut(..) => {}
        }
        (0..homes).for_each(|home| self.run_effects(home));
        self.check();
    }

    fn alive(&self) -> Vec<usize> {
        (0..self.consumers.len()).filter(|number| self.consumers[*number].is_alive).collect()
    }

    fn with_held(&mut self, who: Index, which: Index, act: impl FnOnce(&mut Self, usize, usize)) {
        let holding: Vec<usize> =
            (0..self.consumers.len()).filter(|number| !self.consumers[*number].held.is_empty()).collect();
        if !holding.is_empty() {
            let number = *who.get(&holding);
            let at = which.index(self.consumers[number].held.len());
            act(self, number, at);
        }
    }

    // The shard of the consumers, as in `delivery/receive.rs`.

    fn subscribe(&mut self, source: Result<usize, usize>, prefetch: i64, window: i64) {
        let (number, homes) = (self.consumers.len(), self.homes.len());
        let mut model = ConsumerModel {
            source,
            is_alive: true,
            prefetch,
            window,
            available: 0,
            requests: VecDeque::new(),
            held: Vec::new(),
            unwritten: Vec::new(),
        };
        match source {
            Ok(name) => {
                let credit = Credit { messages: prefetch, bytes: window };
                self.to_home[name % homes].push_back(ToHome::Attach(number, credit));
            }
            Err(_) => {
                let credit = Credit { messages: prefetch / homes as i64, bytes: window };
                model.available = prefetch % homes as i64;
                self.to_home.iter_mut().for_each(|mail| mail.push_back(ToHome::Attach(number, credit)));
            }
        }
        self.consumers.push(model);
    }

    fn unsubscribe(&mut self, number: usize) {
        let homes = self.homes.len();
        let model = &mut self.consumers[number];
        model.is_alive = false;
        match model.source {
            Ok(name) => self.to_home[name % homes].push_back(ToHome::Detach(number)),
            Err(_) => self.to_home.iter_mut().for_each(|mail| mail.push_back(ToHome::Detach(number))),
        }
        for Held { origin: (home, queue, consumer), message } in model.held.drain(..) {
            self.to_home[home].push_back(ToHome::GiveBack(queue, consumer, message, GivenBack::Lost));
        }
    }

    fn write(&mut self, number: usize) {
        for ((home, queue, consumer), bytes) in take(&mut self.consumers[number].unwritten) {
            let credit = Credit { messages: 0, bytes };
            self.report(home, Progress { queue, consumer, settled: 0, settled_bytes: 0, credit });
        }
    }

    fn report(&mut self, home: usize, progress: Progress) {
        match self.to_home[home].back_mut() {
            Some(ToHome::Progress(last)) if last.is_of_same(&progress) => last.add(&progress),
            _ => self.to_home[home].push_back(ToHome::Progress(progress)),
        }
    }

    fn credit_for(&mut self, number: usize) -> Credit {
        let model = &mut self.consumers[number];
        let messages = if model.requests.is_empty() { 1 } else { 0 };
        model.available += 1 - messages;
        Credit { messages, bytes: 0 }
    }

    fn settle(&mut self, number: usize, at: usize) {
        let Held { origin: (home, queue, consumer), message } = self.consumers[number].held.remove(at);
        self.sent[id_of(&message)].state = State::Ended;
        self.homes[0].forget(&message);
        let credit = self.credit_for(number);
        let settled_bytes = message.size() as u64;
        self.report(home, Progress { queue, consumer, settled: 1, settled_bytes, credit });
        self.grant(number);
    }

    fn refuse(&mut self, number: usize, at: usize, deliveries_max: u32, delay_ms: u64) {
        let Held { origin: (home, queue, consumer), message } = self.consumers[number].held.remove(at);
        let credit = self.credit_for(number);
        let why = GivenBack::Failed { deliveries_max, delay_ms, credit };
        self.to_home[home].push_back(ToHome::GiveBack(queue, consumer, message, why));
        self.grant(number);
    }

    fn grant(&mut self, number: usize) {
        let model = &mut self.consumers[number];
        let mut lent = Vec::new();
        while model.available > 0
            && let Some((home, consumer)) = model.requests.pop_front()
        {
            let messages = (model.available / (model.requests.len() as i64 + 1)).max(1);
            model.available -= messages;
            self.to_home[home].push_back(ToHome::Grant(consumer, messages));
            lent.push(home);
        }
        if !model.requests.is_empty() {
            lent.into_iter().for_each(|home| self.to_home[home].push_back(ToHome::Revoke(number)));
        }
    }

    fn receive(&mut self, home: usize, effect: Effect) {
        match effect {
            Effect::Deliver(Delivery { subscriber, queue, consumer, message }) => {
                let model = &mut self.consumers[subscriber.key.index as usize];
                if !model.is_alive {
                    let back = ToHome::GiveBack(queue, consumer, message, GivenBack::Lost);
                    return self.to_home[home].push_back(back);
                }
                let origin = (home, queue, consumer);
                model.unwritten.push((origin, message.size() as i64));
                model.held.push(Held { origin, message });
                assert!(model.held.len() as i64 <= model.prefetch, "more than its credit");
            }
            Effect::CreditRequest(subscriber, consumer) => {
                let number = subscriber.key.index as usize;
                let model = &mut self.consumers[number];
                if model.is_alive {
                    model.requests.push_back((home, consumer));
                    let is_short = model.available == 0;
                    self.grant(number);
                    for other in (0..self.homes.len()).filter(|other| is_short && *other != home) {
                        self.to_home[other].push_back(ToHome::Revoke(number));
                    }
                }
            }
            Effect::CreditReturn(subscriber, messages) => {
                let number = subscriber.key.index as usize;
                self.consumers[number].available += messages;
                self.grant(number);
            }
            other => panic!("unexpected effect: {other:?}"),
        }
    }

    // The homes, and the expected behaviour.

    /// The queue for a message, created if necessary.
    fn line_for(&mut self, name: usize) -> Option<Place> {
        let home = name % self.homes.len();
        if let Some(key) = self.homes[home].find(NAMES[name].as_bytes()) {
            return Some((home, key));
        }
        (!is_worker(name) || self.homes[home].has_patterns()).then(|| self.create(name))
    }
}
