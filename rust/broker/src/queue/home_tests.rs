//! Tests of homes against a plain list of messages; the shard of the consumers is played here.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};
use std::mem::take;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use proptest::prelude::*;
use proptest::sample::Index;
use stompica_proto::encode::Message;

use super::*;
use crate::keyed::Key;
use crate::queue::parts::Delivery;
use crate::queue::stored::held_bytes;
use crate::store::Memory;

const IDLE_MS: u64 = 500;
const DELAY_MS: u64 = 10;
const DELIVERIES_MAX: u32 = 3;

fn home() -> Home {
    home_with(Memory)
}

fn home_with(store: impl Store + 'static) -> Home {
    let config = Config {
        queue_idle_expiry: Duration::from_millis(IDLE_MS),
        redelivery_delay: Duration::from_millis(DELAY_MS),
        max_deliveries: DELIVERIES_MAX,
        ..Config::default()
    };
    Home::new(&config, foldhash::fast::RandomState::default(), Box::new(store))
}

fn subscriber(number: usize) -> Subscriber {
    Subscriber { shard: ShardId(0), key: Key { index: number as u32, generation: 1 } }
}

fn stored(name: &str, id: usize, len: usize) -> Stored {
    let (id, body) = (id.to_string(), vec![b'x'; len]);
    Stored::new(&Message {
        destination: name.as_bytes(),
        id: id.as_bytes(),
        headers: b"",
        plain: true,
        body: &body,
    })
}

fn id_of(stored: &Stored) -> usize {
    let id = std::str::from_utf8(stored.message().id).expect("a number");
    id.parse().expect("a number")
}

/// Credit without bounds but in messages.
fn messages(messages: i64) -> Credit {
    Credit { messages, bytes: Credit::UNLIMITED }
}

/// What a home wants delivered, and to whom; everything else it wants is kept.
fn take_deliveries(home: &mut Home) -> Vec<Delivery> {
    let (deliveries, others) = take(&mut home.effects).into_iter().partition::<Vec<_>, _>(is_delivery);
    home.effects = others;
    deliveries.into_iter().filter_map(delivery).collect()
}

fn is_delivery(effect: &Effect) -> bool {
    matches!(effect, Effect::Deliver(_))
}

fn delivery(effect: Effect) -> Option<Delivery> {
    if let Effect::Deliver(delivery) = effect { Some(delivery) } else { None }
}

fn settled(delivery: &Delivery, messages: i64) -> Progress {
    Progress {
        queue: delivery.queue,
        consumer: delivery.consumer,
        settled: 1,
        settled_bytes: delivery.stored.size() as u64,
        credit: Credit { messages, bytes: 0 },
    }
}

#[test]
fn credit_that_is_wanted_back_leaves_no_queue_behind_that_cannot_ask_again() {
    let mut home = home();
    let key = home.attach_pattern(b"/queue/*", subscriber(1), messages(1));
    let queue = home.create(b"/queue/a", QueueKind::Work);
    home.enqueue(queue, stored("/queue/a", 1, 1));
    let mut short_lived = stored("/queue/a", 2, 1);
    short_lived.expires_ms = 10;
    home.enqueue(queue, short_lived);
    home.dispatch(usize::MAX);
    let first = take_deliveries(&mut home);
    assert!(home.effects.iter().any(|effect| matches!(effect, Effect::Want(..))), "the second one waits");
    home.set_time(10);
    home.meet(queue);
    // The first is acknowledged, and its credit kept at the consumer's shard for whoever wants it: this home.
    home.progress(&settled(&first[0], 0));
    home.lend(key, 1);
    home.reclaim(subscriber(1));
    home.dispatch(usize::MAX);
    assert!(
        home.effects.iter().any(|effect| matches!(effect, Effect::Unused(_, 1))),
        "nothing waits any more"
    );
    home.effects.clear();
    home.enqueue(queue, stored("/queue/a", 3, 1));
    home.dispatch(usize::MAX);
    assert!(home.effects.iter().any(|effect| matches!(effect, Effect::Want(..))), "{:?}", home.effects);
}

#[test]
fn timers_do_not_pile_up_while_a_queue_is_used() {
    let mut home = home();
    let mut timers = BinaryHeap::new();
    let queue = home.create(b"/queue/a", QueueKind::Work);
    home.attach_pattern(b"/queue/*", subscriber(1), messages(Credit::UNLIMITED));
    for step in 0..1000_usize {
        let now_ms = 50 * step as u64;
        home.set_time(now_ms);
        while timers.peek().is_some_and(|Reverse(at_ms)| *at_ms <= now_ms) {
            timers.pop();
            home.meet(queue);
        }
        let mut message = stored("/queue/a", step, 1);
        message.expires_ms = now_ms + 40;
        home.enqueue(queue, message);
        home.dispatch(usize::MAX);
        for effect in take(&mut home.effects) {
            match effect {
                Effect::Timer(at_ms, _) => timers.push(Reverse(at_ms)),
                Effect::Deliver(delivery) => home.progress(&settled(&delivery, 1)),
                other => panic!("unexpected: {other:?}"),
            }
        }
    }
    assert!(timers.len() as u64 <= 2 * IDLE_MS / 40, "{} timers wait for one queue", timers.len());
}

#[test]
fn a_queue_is_idle_from_the_moment_its_last_message_expired() {
    let mut home = home();
    let queue = home.create(b"/queue/dlq/a", QueueKind::Work);
    let mut message = stored("/queue/dlq/a", 1, 1);
    message.expires_ms = 2 * IDLE_MS;
    home.enqueue(queue, message);
    home.set_time(2 * IDLE_MS);
    home.meet(queue);
    assert_eq!(home.counts.expired, 1);
    assert!(home.queue(queue).is_some(), "it held a message a moment ago");
    home.set_time(3 * IDLE_MS);
    home.meet(queue);
    assert!(home.queue(queue).is_none());
}

#[test]
fn a_refused_message_finds_a_consumer_that_has_got_credit_in_the_same_turn() {
    let mut home = home();
    let queue = home.create(b"/queue/a", QueueKind::Work);
    let first = home.attach(queue, subscriber(1), messages(10));
    home.attach(queue, subscriber(2), messages(1));
    (0..2).for_each(|id| home.enqueue(queue, stored("/queue/a", id, 1)));
    home.dispatch(usize::MAX);
    let mut held = take_deliveries(&mut home);
    assert_eq!(held.iter().map(|it| it.subscriber.key.index).collect::<Vec<_>>(), [1, 2]);
    let why = GivenBack::Failed { deliveries_max: u32::MAX, delay_ms: 0, credit: messages(1) };
    home.give_back(queue, first, held.remove(0).stored, why);
    home.set_time(DELAY_MS);
    home.meet(queue);
    home.progress(&settled(&held[0], 1));
    home.dispatch(usize::MAX);
    let again = take_deliveries(&mut home);
    assert_eq!((id_of(&again[0].stored), again[0].subscriber.key.index), (0, 2));
}

#[test]
fn what_a_home_holds_is_given_back_with_it() {
    let before = held_bytes();
    let mut home = home();
    let queue = home.create(b"/queue/a", QueueKind::Work);
    let worker = home.create(b"#w", QueueKind::Worker);
    let consumer = home.attach(queue, subscriber(1), messages(3));
    for id in 0..6 {
        let mut message = stored("/queue/a", id, 1000);
        message.expires_ms = [0, 50][id % 2];
        message.failures_max = u16::from(id == 2);
        home.enqueue(queue, message);
    }
    home.enqueue(worker, stored("#w", 6, 1000));
    home.dispatch(2);
    let mut held = take_deliveries(&mut home);
    let why = GivenBack::Failed { deliveries_max: u32::MAX, delay_ms: 0, credit: messages(1) };
    home.give_back(queue, consumer, held.remove(0).stored, why); // delayed
    home.give_back(queue, consumer, held.remove(0).stored, GivenBack::Lost); // at its place
    home.dispatch(2); // on its way to the consumer
    let failed = take_deliveries(&mut home).remove(1).stored;
    home.give_back(queue, consumer, failed, why); // a dead letter
    home.dispatch(1);
    home.set_time(50);
    home.meet(queue); // others expire
    assert!(held_bytes() > before + 5000);
    let is_letter = |effect: &&Effect| matches!(effect, Effect::DeadLetter(_));
    assert!(home.effects.iter().filter(is_letter).count() > 1 && home.effects.iter().any(is_delivery));
    assert!(home.effects.iter().any(|effect| matches!(effect, Effect::Unmatched(_))));
    assert!(home.queue(queue).is_some_and(|queue| queue.pending.len() > 0));
    drop(home);
    assert_eq!(held_bytes(), before);
}

/// A store that remembers what it was told.
#[derive(Clone, Debug, Default)]
struct Ledger(Arc<Mutex<(u64, Vec<u64>)>>);

impl Store for Ledger {
    fn keep(&mut self, _: &[u8], _: &Stored) -> u64 {
        let mut ledger = self.0.lock().expect("no test panics while it holds the lock");
        ledger.0 += 1;
        ledger.0
    }

    fn forget(&mut self, record: u64) {
        self.0.lock().expect("no test panics while it holds the lock").1.push(record);
    }
}

#[test]
fn a_store_forgets_each_message_it_keeps_once_however_it_ends() {
    let ledger = Ledger::default();
    let config = Config { max_deliveries: 1, ..Config::default() };
    let mut home = Home::new(&config, foldhash::fast::RandomState::default(), Box::new(ledger.clone()));
    home.set_time(1);
    let queue = home.create(b"/queue/a", QueueKind::Work);
    for number in 0..6_u8 {
        let body = [number];
        let message = Message { destination: b"/queue/a", id: b"i", headers: b"", plain: true, body: &body };
        let mut stored = Stored::new(&message);
        stored.persistent = number != 5;
        stored.expires_ms = if number == 4 { 10 } else { 0 };
        home.enqueue(queue, stored);
    }
    let subscriber = Subscriber { shard: ShardId(0), key: Key { index: 0, generation: 0 } };
    let credit = Credit { messages: 2, bytes: 1000 };
    home.attach(queue, subscriber, credit);
    home.dispatch(10);
    let mut delivered = Vec::new();
    for effect in take(&mut home.effects) {
        if let Effect::Deliver(delivery) = effect {
            delivered.push(delivery);
        }
    }
    let failed = delivered.remove(0);
    let why = GivenBack::Failed { deliveries_max: 9, delay_ms: 0, credit: Credit::default() };
    home.give_back(failed.queue, failed.consumer, failed.stored, why); // dead
    home.forget(&delivered.remove(0).stored); // acknowledged
    home.set_time(20);
    home.meet(queue); // the fifth has expired
    home.delete(queue);
    let (kept, mut forgotten) = ledger.0.lock().expect("as above").clone();
    forgotten.sort_unstable();
    assert_eq!((kept, forgotten), (5, vec![1, 2, 3, 4, 5]), "the sixth was not to be kept");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn equal_consumers_get_equally_many(
        patterns in prop::collection::vec(any::<bool>(), 1..6),
        batches in prop::collection::vec((0..10_usize, 1..10_usize), 1..20),
    ) {
        let mut home = home();
        let queue = home.create(b"/queue/a", QueueKind::Work);
        for (number, pattern) in patterns.iter().enumerate() {
            match pattern {
                true => home.attach_pattern(b"/queue/*", subscriber(number), messages(Credit::UNLIMITED)),
                false => home.attach(queue, subscriber(number), messages(Credit::UNLIMITED)),
            };
        }
        let mut counts = vec![0_usize; patterns.len()];
        for (count, portion) in batches {
            (0..count).for_each(|id| home.enqueue(queue, stored("/queue/a", id, 1)));
            home.dispatch(portion);
            for delivery in take_deliveries(&mut home) {
                counts[delivery.subscriber.key.index as usize] += 1;
                let (least, most) = (counts.iter().min(), counts.iter().max());
                prop_assert!(most.zip(least).is_some_and(|(most, least)| most - least <= 1), "{:?}", counts);
            }
        }
    }

    #[test]
    fn many_queues_with_one_message_each_are_shared_evenly(consumers in 1..6_usize, queues in 1..40_usize) {
        let mut home = home();
        for number in 0..consumers {
            home.attach_pattern(b"/queue/*", subscriber(number), messages(Credit::UNLIMITED));
        }
        let mut counts = vec![0_usize; consumers];
        for number in 0..queues {
            let name = format!("/queue/{number}");
            let queue = home.create(name.as_bytes(), QueueKind::Work);
            home.enqueue(queue, stored(&name, number, 1));
            home.dispatch(usize::MAX);
            for delivery in take_deliveries(&mut home) {
                counts[delivery.subscriber.key.index as usize] += 1;
            }
        }
        let (least, most) = (counts.iter().min(), counts.iter().max());
        prop_assert!(most.zip(least).is_some_and(|(most, least)| most - least <= 1), "{:?}", counts);
        prop_assert_eq!(counts.iter().sum::<usize>(), queues);
    }
}

// The model.

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
        5 => Just(Step::Rest),
    ]
}

type Place = (usize, QueueKey);

#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    Waits,
    InFlight,
    /// It is to come out of its home, which is to say so.
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
    /// Who waits, by place.
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
    stored: Stored,
}

/// A subscription, as its shard sees it.
struct Party {
    source: Result<usize, usize>,
    is_alive: bool,
    prefetch: i64,
    window: i64,
    available: i64,
    wanting: VecDeque<(usize, ConsumerKey)>,
    held: Vec<Held>,
    unwritten: Vec<((usize, QueueKey, ConsumerKey), i64)>,
}

enum ToHome {
    Attach(usize, Credit),
    Detach(usize),
    Progress(Progress),
    GiveBack(QueueKey, ConsumerKey, Stored, GivenBack),
    Lend(ConsumerKey, i64),
    Reclaim(usize),
}

struct World {
    homes: Vec<Home>,
    ledger: Ledger,
    now_ms: u64,
    timers: BinaryHeap<Reverse<(u64, usize, QueueKey)>>,
    sent: Vec<Sent>,
    lines: BTreeMap<Place, Line>,
    /// Who is attached at each home.
    attached: Vec<BTreeMap<usize, ConsumerKey>>,
    parties: Vec<Party>,
    to_home: Vec<VecDeque<ToHome>>,
    from_home: Vec<VecDeque<Effect>>,
    /// Places kept by transactions: queue, the first here and there, how many.
    kept: Vec<(Place, u64, u64, u64)>,
}

impl World {
    fn new(homes: usize) -> Self {
        let ledger = Ledger::default();
        World {
            homes: (0..homes).map(|_| home_with(ledger.clone())).collect(),
            ledger,
            now_ms: 0,
            timers: BinaryHeap::new(),
            sent: Vec::new(),
            lines: BTreeMap::new(),
            attached: vec![BTreeMap::new(); homes],
            parties: Vec::new(),
            to_home: (0..homes).map(|_| VecDeque::new()).collect(),
            from_home: (0..homes).map(|_| VecDeque::new()).collect(),
            kept: Vec::new(),
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
            Step::Write(who) if !self.parties.is_empty() => self.write(who.index(self.parties.len())),
            Step::Settle(who, which) => self.with_held(who, which, Self::settle),
            Step::Refuse { who, which, deliveries_max, delay_ms } => {
                self.with_held(who, which, |world, party, at| {
                    world.refuse(party, at, deliveries_max, delay_ms)
                });
            }
            Step::Delete(which) if !self.lines.is_empty() => {
                let at = *which.get(&self.lines.keys().copied().collect::<Vec<_>>());
                self.delete(at);
            }
            Step::Pass(ms) => self.pass(ms),
            Step::Dispatch(home, count) => self.dispatch(home % homes, count),
            Step::Mail(home) => self.pump(home % homes, 3),
            Step::Rest => self.rest(),
            Step::Release { .. } | Step::Write(_) | Step::Delete(_) => {}
        }
        (0..homes).for_each(|home| self.run_effects(home));
        self.check();
    }

    fn alive(&self) -> Vec<usize> {
        (0..self.parties.len()).filter(|party| self.parties[*party].is_alive).collect()
    }

    fn with_held(&mut self, who: Index, which: Index, act: impl FnOnce(&mut Self, usize, usize)) {
        let holding: Vec<usize> =
            (0..self.parties.len()).filter(|party| !self.parties[*party].held.is_empty()).collect();
        if !holding.is_empty() {
            let party = *who.get(&holding);
            let at = which.index(self.parties[party].held.len());
            act(self, party, at);
        }
    }

    // The consumers' shard, as in `shard/receive.rs`.

    fn subscribe(&mut self, source: Result<usize, usize>, prefetch: i64, window: i64) {
        let (number, homes) = (self.parties.len(), self.homes.len());
        let mut party = Party {
            source,
            is_alive: true,
            prefetch,
            window,
            available: 0,
            wanting: VecDeque::new(),
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
                party.available = prefetch % homes as i64;
                self.to_home.iter_mut().for_each(|mail| mail.push_back(ToHome::Attach(number, credit)));
            }
        }
        self.parties.push(party);
    }

    fn unsubscribe(&mut self, number: usize) {
        let homes = self.homes.len();
        let party = &mut self.parties[number];
        party.is_alive = false;
        match party.source {
            Ok(name) => self.to_home[name % homes].push_back(ToHome::Detach(number)),
            Err(_) => self.to_home.iter_mut().for_each(|mail| mail.push_back(ToHome::Detach(number))),
        }
        for Held { origin: (home, queue, consumer), stored } in party.held.drain(..) {
            self.to_home[home].push_back(ToHome::GiveBack(queue, consumer, stored, GivenBack::Lost));
        }
    }

    fn write(&mut self, number: usize) {
        for ((home, queue, consumer), bytes) in take(&mut self.parties[number].unwritten) {
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
        let party = &mut self.parties[number];
        let messages = if party.wanting.is_empty() { 1 } else { 0 };
        party.available += 1 - messages;
        Credit { messages, bytes: 0 }
    }

    fn settle(&mut self, number: usize, at: usize) {
        let Held { origin: (home, queue, consumer), stored } = self.parties[number].held.remove(at);
        self.sent[id_of(&stored)].state = State::Ended;
        self.homes[0].forget(&stored);
        let credit = self.credit_for(number);
        let settled_bytes = stored.size() as u64;
        self.report(home, Progress { queue, consumer, settled: 1, settled_bytes, credit });
        self.lend(number);
    }

    fn refuse(&mut self, number: usize, at: usize, deliveries_max: u32, delay_ms: u64) {
        let Held { origin: (home, queue, consumer), stored } = self.parties[number].held.remove(at);
        let credit = self.credit_for(number);
        let why = GivenBack::Failed { deliveries_max, delay_ms, credit };
        self.to_home[home].push_back(ToHome::GiveBack(queue, consumer, stored, why));
        self.lend(number);
    }

    fn lend(&mut self, number: usize) {
        let party = &mut self.parties[number];
        let mut lent = Vec::new();
        while party.available > 0
            && let Some((home, consumer)) = party.wanting.pop_front()
        {
            let messages = (party.available / (party.wanting.len() as i64 + 1)).max(1);
            party.available -= messages;
            self.to_home[home].push_back(ToHome::Lend(consumer, messages));
            lent.push(home);
        }
        if !party.wanting.is_empty() {
            lent.into_iter().for_each(|home| self.to_home[home].push_back(ToHome::Reclaim(number)));
        }
    }

    fn receive(&mut self, home: usize, effect: Effect) {
        match effect {
            Effect::Deliver(Delivery { subscriber, queue, consumer, stored }) => {
                let party = &mut self.parties[subscriber.key.index as usize];
                if !party.is_alive {
                    let back = ToHome::GiveBack(queue, consumer, stored, GivenBack::Lost);
                    return self.to_home[home].push_back(back);
                }
                let origin = (home, queue, consumer);
                party.unwritten.push((origin, stored.size() as i64));
                party.held.push(Held { origin, stored });
                assert!(party.held.len() as i64 <= party.prefetch, "more than its credit");
            }
            Effect::Want(subscriber, consumer) => {
                let number = subscriber.key.index as usize;
                let party = &mut self.parties[number];
                if party.is_alive {
                    party.wanting.push_back((home, consumer));
                    let is_short = party.available == 0;
                    self.lend(number);
                    for other in (0..self.homes.len()).filter(|other| is_short && *other != home) {
                        self.to_home[other].push_back(ToHome::Reclaim(number));
                    }
                }
            }
            Effect::Unused(subscriber, messages) => {
                let number = subscriber.key.index as usize;
                self.parties[number].available += messages;
                self.lend(number);
            }
            other => panic!("not for a consumer: {other:?}"),
        }
    }

    // The homes, and what they are expected to do.

    /// The queue a message goes to, made if need be.
    fn line_for(&mut self, name: usize) -> Option<Place> {
        let home = name % self.homes.len();
        if let Some(key) = self.homes[home].find(NAMES[name].as_bytes()) {
            return Some((home, key));
        }
        (!is_worker(name) || self.homes[home].has_patterns()).then(|| self.create(name))
    }

    fn create(&mut self, name: usize) -> Place {
        let home = name % self.homes.len();
        let kind = if is_worker(name) { QueueKind::Worker } else { QueueKind::Work };
        let key = self.homes[home].create(NAMES[name].as_bytes(), kind);
        let consumes = |number: &&usize| match self.parties[**number].source {
            Ok(_) => false,
            Err(pattern) => matches(PATTERNS[pattern], NAMES[name]),
        };
        let line = Line {
            name,
            next_seq: 0,
            waiting: BTreeMap::new(),
            in_flight: 0,
            consumers: self.attached[home].keys().filter(consumes).copied().collect(),
            exact: 0,
            reserved: 0,
            barriers: BTreeSet::new(),
            busy_ms: self.now_ms,
            touched_ms: self.now_ms,
        };
        assert!(self.lines.insert((home, key), line).is_none());
        (home, key)
    }

    fn line(&mut self, at: Place) -> Option<&mut Line> {
        let now_ms = self.now_ms;
        let line = self.lines.get_mut(&at)?;
        line.touched_ms = now_ms;
        Some(line)
    }

    fn send(&mut self, name: usize, ttl_ms: Option<u64>, failures_max: u16) {
        if let Some(at) = self.line_for(name) {
            let now_ms = self.now_ms;
            let expires_ms = ttl_ms.map_or(0, |ttl_ms| (now_ms + ttl_ms).max(1));
            let Some(line) = self.line(at) else { return };
            let seq = line.next_seq;
            let is_taken = !is_worker(name) || !line.consumers.is_empty();
            let is_expired = expires_ms != 0 && expires_ms <= now_ms;
            line.next_seq += u64::from(is_taken && !is_expired);
            let stored = self.message(at, seq, expires_ms, failures_max);
            let id = id_of(&stored);
            if is_taken {
                self.put(id);
            } else {
                self.sent[id].state = State::Leaves("unmatched");
            }
            self.homes[at.0].enqueue(at.1, stored);
        }
    }

    /// A message that is not in its queue yet.
    fn message(&mut self, at: Place, seq: u64, expires_ms: u64, failures_max: u16) -> Stored {
        let (id, name) = (self.sent.len(), self.lines[&at].name);
        let mut stored = stored(NAMES[name], id, id % 20);
        (stored.expires_ms, stored.failures_max) = (expires_ms, failures_max);
        stored.persistent = is_persistent(id);
        self.sent.push(Sent {
            at,
            name,
            seq,
            expires_ms,
            eligible_ms: 0,
            deliveries: 0,
            failures: 0,
            failures_max,
            refused_by: None,
            state: State::Ended,
        });
        stored
    }

    /// A message comes into its queue, or back, unless its time is over.
    fn put(&mut self, id: usize) {
        let sent = &mut self.sent[id];
        if sent.expires_ms != 0 && sent.expires_ms <= self.now_ms {
            let letter = !is_worker(sent.name) && !is_dead_letters(sent.name);
            sent.state = if letter { State::Leaves("expired") } else { State::Ended };
            return;
        }
        sent.state = State::Waits;
        let (at, seq) = (sent.at, sent.seq);
        let line = self.lines.get_mut(&at).expect("it is there");
        assert!(line.waiting.insert(seq, id).is_none(), "a place for one message");
    }

    fn reserve(&mut self, name: usize, count: u64) {
        if is_worker(name) {
            return; // their messages need no room
        }
        if let Some(at) = self.line_for(name) {
            let first = self.homes[at.0].reserve(at.1, count, count * 100);
            let Some(line) = self.line(at) else { return };
            let place = line.next_seq;
            line.next_seq += count;
            line.reserved += count;
            line.barriers.insert(place);
            self.kept.push((at, place, first, count));
        }
    }

    fn release(&mut self, (at, place, first, count): (Place, u64, u64, u64), filled: bool) {
        for nth in (0..count).filter(|_| filled) {
            let stored = self.message(at, place + nth, 0, 0);
            self.put(id_of(&stored));
            self.homes[at.0].enqueue_at(at.1, stored, first + nth);
        }
        let Some(line) = self.line(at) else { return };
        line.reserved -= count;
        line.barriers.remove(&place);
        self.homes[at.0].release(at.1, first, count, count * 100);
    }

    fn delete(&mut self, at: Place) {
        self.homes[at.0].delete(at.1);
        let line = self.lines.remove(&at).expect("a line");
        line.waiting.values().for_each(|id| self.sent[*id].state = State::Ended);
        self.kept.retain(|kept| kept.0 != at);
    }

    fn pump(&mut self, home: usize, count: usize) {
        for _ in 0..count {
            let Some(effect) = self.from_home[home].pop_front() else { break };
            self.receive(home, effect);
        }
        for _ in 0..count {
            let Some(mail) = self.to_home[home].pop_front() else { break };
            self.tell(home, mail);
            self.run_effects(home);
        }
    }

    fn tell(&mut self, home: usize, mail: ToHome) {
        match mail {
            ToHome::Attach(number, credit) => self.attach(home, number, credit),
            ToHome::Detach(number) => self.detach(home, number),
            ToHome::Progress(progress) => {
                if let Some(line) = self.line((home, progress.queue)) {
                    line.in_flight -= progress.settled;
                }
                self.homes[home].progress(&progress);
            }
            ToHome::GiveBack(queue, consumer, stored, why) => {
                self.come_back(id_of(&stored), consumer, why);
                self.homes[home].give_back(queue, consumer, stored, why);
            }
            ToHome::Lend(consumer, messages) => self.homes[home].lend(consumer, messages),
            ToHome::Reclaim(number) => self.homes[home].reclaim(subscriber(number)),
        }
    }

    fn attach(&mut self, home: usize, number: usize, credit: Credit) {
        let key = match self.parties[number].source {
            Ok(name) => {
                let found = self.homes[home].find(NAMES[name].as_bytes());
                let at = found.map_or_else(|| self.create(name), |key| (home, key));
                let line = self.line(at).expect("it is there");
                line.consumers.insert(number);
                line.exact += 1;
                self.homes[home].attach(at.1, subscriber(number), credit)
            }
            Err(pattern) => {
                let now_ms = self.now_ms;
                for (at, line) in &mut self.lines {
                    if at.0 == home && matches(PATTERNS[pattern], NAMES[line.name]) {
                        line.touched_ms = now_ms;
                        line.consumers.insert(number);
                    }
                }
                self.homes[home].attach_pattern(PATTERNS[pattern].as_bytes(), subscriber(number), credit)
            }
        };
        self.attached[home].insert(number, key);
    }

    fn detach(&mut self, home: usize, number: usize) {
        self.attached[home].remove(&number);
        for (_, line) in self.lines.iter_mut().filter(|(at, _)| at.0 == home) {
            if line.consumers.remove(&number) {
                line.touched_ms = self.now_ms;
                line.exact -= usize::from(self.parties[number].source.is_ok());
                if is_worker(line.name) && line.consumers.is_empty() {
                    for id in take(&mut line.waiting).into_values() {
                        self.sent[id].state = State::Leaves("unmatched");
                    }
                }
            }
        }
        self.homes[home].detach(subscriber(number));
    }

    fn come_back(&mut self, id: usize, consumer: ConsumerKey, why: GivenBack) {
        let now_ms = self.now_ms;
        let sent = &mut self.sent[id];
        assert_eq!(sent.state, State::InFlight);
        let Some(line) = self.lines.get_mut(&sent.at) else {
            sent.state = State::Ended;
            return;
        };
        line.touched_ms = now_ms;
        line.in_flight -= 1;
        let is_expired = sent.expires_ms != 0 && sent.expires_ms <= now_ms;
        match why {
            GivenBack::Lost if is_worker(line.name) && line.consumers.is_empty() && !is_expired => {
                sent.state = State::Leaves("unmatched");
            }
            GivenBack::Failed { deliveries_max, delay_ms, .. } if !is_expired => {
                sent.failures += 1;
                sent.refused_by = Some(consumer);
                let by_message = sent.failures_max != 0 && sent.failures >= sent.failures_max;
                let by_count = u32::from(sent.failures) >= deliveries_max.min(DELIVERIES_MAX);
                if by_message || by_count {
                    let reason = if by_message { "max-exceptions" } else { "max-deliveries" };
                    let dead = is_dead_letters(sent.name);
                    sent.state = if dead { State::Ended } else { State::Leaves(reason) };
                } else {
                    sent.eligible_ms = now_ms + (delay_ms.max(DELAY_MS) << (sent.failures - 1)).min(10_000);
                    self.put(id);
                }
            }
            _ => self.put(id),
        }
    }

    fn dispatch(&mut self, home: usize, count: usize) {
        for key in self.homes[home].touched.clone() {
            self.line((home, key));
        }
        let delivered = self.homes[home].dispatch(count);
        assert!(delivered <= count);
        assert_eq!(self.homes[home].effects.iter().filter(|effect| is_delivery(effect)).count(), delivered);
        self.run_effects(home);
    }

    fn run_effects(&mut self, home: usize) {
        for effect in take(&mut self.homes[home].effects) {
            match &effect {
                Effect::Deliver(delivery) => self.expect_delivery(home, delivery),
                Effect::DeadLetter(stored) => {
                    let sent = &mut self.sent[id_of(stored)];
                    let State::Leaves(reason) = sent.state else { panic!("a {:?} message died", sent.state) };
                    let headers = String::from_utf8_lossy(stored.message().headers).into_owned();
                    let count = sent.deliveries;
                    assert!(headers.starts_with(&format!("dead-letter-reason:{reason}\n")), "{headers}");
                    assert!(headers.contains(&format!("\ndelivery-count:{count}\n")), "{headers}");
                    sent.state = State::Ended;
                }
                Effect::Unmatched(stored) => {
                    let sent = &mut self.sent[id_of(stored)];
                    assert_eq!(sent.state, State::Leaves("unmatched"));
                    sent.state = State::Ended;
                }
                Effect::Timer(at_ms, key) => self.timers.push(Reverse((*at_ms, home, *key))),
                Effect::Want(..) | Effect::Unused(..) => {}
            }
            if matches!(effect, Effect::Deliver(_) | Effect::Want(..) | Effect::Unused(..)) {
                self.from_home[home].push_back(effect);
            }
        }
    }

    /// The message that is to be delivered next: the first that is not delayed, unless a transaction may come first.
    fn next_of(&self, line: &Line) -> Option<usize> {
        let (seq, id) = line
            .waiting
            .iter()
            .find(|(_, id)| self.sent[**id].eligible_ms <= self.now_ms)
            .map(|(seq, id)| (*seq, *id))?;
        let is_barred = line.barriers.first().is_some_and(|barrier| seq > *barrier);
        (!is_barred).then_some(id)
    }

    fn expect_delivery(&mut self, home: usize, delivery: &Delivery) {
        let (id, at) = (id_of(&delivery.stored), (home, delivery.queue));
        let line = self.lines.get(&at).expect("a queue");
        assert_eq!(self.next_of(line), Some(id), "in order");
        let number = delivery.subscriber.key.index as usize;
        assert!(line.consumers.contains(&number) && self.attached[home][&number] == delivery.consumer);
        if self.sent[id].refused_by == Some(delivery.consumer) {
            // One of a pattern comes back to its queues one after the other, so it may come late.
            let others = line.consumers.iter().filter(|other| **other != number);
            for other in others.filter(|other| self.parties[**other].source.is_ok()) {
                assert!(!self.credit(home, *other).is_left(), "another one could have had it");
            }
        }
        let now_ms = self.now_ms;
        let line = self.lines.get_mut(&at).expect("a queue");
        let sent = &mut self.sent[id];
        line.waiting.remove(&sent.seq);
        line.in_flight += 1;
        line.touched_ms = now_ms;
        sent.state = State::InFlight;
        sent.deliveries += 1;
        assert_eq!(delivery.stored.deliveries, sent.deliveries);
    }

    fn credit(&self, home: usize, number: usize) -> Credit {
        let key = self.attached[home].get(&number);
        key.and_then(|key| self.homes[home].consumers.get(*key)).expect("it is attached").credit
    }

    fn pass(&mut self, ms: u64) {
        self.now_ms += ms;
        let now_ms = self.now_ms;
        for line in self.lines.values_mut().filter(|line| !line.is_idle()) {
            (line.busy_ms, line.touched_ms) = (now_ms, now_ms);
        }
        for id in 0..self.sent.len() {
            let (seq, at) = (self.sent[id].seq, self.sent[id].at);
            if self.sent[id].state == State::Waits {
                self.lines.get_mut(&at).and_then(|line| line.waiting.remove(&seq)).expect("it waits");
                self.put(id);
            }
        }
        self.homes.iter_mut().for_each(|home| home.set_time(now_ms));
        while let Some(Reverse((at_ms, home, key))) = self.timers.peek().copied()
            && at_ms <= now_ms
        {
            self.timers.pop();
            self.homes[home].meet(key);
            self.run_effects(home);
        }
        self.end_idle_lines();
    }

    fn end_idle_lines(&mut self) {
        let (now_ms, homes) = (self.now_ms, &self.homes);
        self.lines.retain(|at, line| {
            let is_there = homes[at.0].queue(at.1).is_some();
            let must_stay = !line.is_idle() || now_ms - line.busy_ms < IDLE_MS;
            let may_stay = must_stay || now_ms - line.touched_ms < IDLE_MS;
            assert!(is_there || !must_stay, "{} ended too early", NAMES[line.name]);
            assert!(may_stay || !is_there, "{} should have ended", NAMES[line.name]);
            is_there
        });
    }

    /// Lets everything reach its end that needs no time.
    fn rest(&mut self) {
        loop {
            for home in 0..self.homes.len() {
                self.pump(home, usize::MAX);
                self.dispatch(home, usize::MAX);
            }
            let is_quiet = |home: usize| self.to_home[home].is_empty() && self.from_home[home].is_empty();
            if (0..self.homes.len()).all(is_quiet) {
                break;
            }
        }
        self.check_credit();
        self.check_work();
    }

    /// What a consumer may be sent is neither lost nor made.
    fn check_credit(&self) {
        for number in self.alive() {
            let party = &self.parties[number];
            let homes: Vec<usize> =
                (0..self.homes.len()).filter(|home| self.attached[*home].contains_key(&number)).collect();
            let credit: i64 = homes.iter().map(|home| self.credit(*home, number).messages).sum();
            assert_eq!(credit + party.available + party.held.len() as i64, party.prefetch);
            for home in homes {
                let unwritten = party.unwritten.iter().filter(|((at, ..), _)| *at == home);
                let bytes: i64 = unwritten.map(|(_, bytes)| bytes).sum();
                assert_eq!(self.credit(home, number).bytes + bytes, party.window);
            }
        }
    }

    /// Nothing waits for somebody who could have it.
    fn check_work(&self) {
        let is_needed = |home: usize, number: usize| {
            let mut lines =
                self.lines.iter().filter(|(at, line)| at.0 == home && line.consumers.contains(&number));
            lines.any(|(_, line)| line.waiting.values().any(|id| self.sent[*id].eligible_ms <= self.now_ms))
        };
        for (at, line) in self.lines.iter().filter(|(_, line)| self.next_of(line).is_some()) {
            for number in &line.consumers {
                let (party, credit) = (&self.parties[*number], self.credit(at.0, *number));
                assert!(!credit.is_left(), "a message waits for a consumer that waits for one");
                if party.source.is_ok() || credit.messages > 0 {
                    continue;
                }
                let key = self.attached[at.0][number];
                assert!(party.wanting.contains(&(at.0, key)), "a home does not ask for credit");
                assert_eq!(party.available, 0, "its shard has credit");
                for other in (0..self.homes.len()).filter(|other| self.credit(*other, *number).messages > 0) {
                    assert!(is_needed(other, *number), "credit lies idle at another home");
                }
            }
        }
    }

    fn check(&mut self) {
        let leaves = |sent: &Sent| matches!(sent.state, State::Leaves(_));
        assert!(!self.sent.iter().any(leaves), "a message is lost");
        let (kept, forgotten) = self.ledger.0.lock().expect("no test panics while it holds the lock").clone();
        let sent = self.sent.iter().enumerate().filter(|(id, _)| is_persistent(*id));
        let live = sent.filter(|(_, sent)| matches!(sent.state, State::Waits | State::InFlight)).count();
        assert_eq!(kept - forgotten.len() as u64, live as u64, "the store keeps what is alive");
        for (number, home) in self.homes.iter().enumerate() {
            assert_eq!(home.queues.len(), self.lines.keys().filter(|at| at.0 == number).count());
            assert!(home.consumers.iter().all(|(_, consumer)| consumer.credit.messages >= 0));
        }
        let now_ms = self.now_ms;
        for (at, line) in &mut self.lines {
            let home = &self.homes[at.0];
            let queue = home.queue(at.1).expect("a queue");
            let seen = (queue.pending.len(), queue.in_flight, queue.consumers(), queue.is_idle());
            let size = line.consumers.len() as u32;
            assert_eq!(seen, (line.waiting.len(), line.in_flight, size, line.is_idle()));
            for number in &line.consumers {
                let key = self.attached[at.0][number];
                let starved = &home.consumers.get(key).expect("a consumer").starved;
                let places = queue.ready.iter().filter(|other| **other == key).count()
                    + starved.iter().filter(|other| **other == at.1).count();
                assert_eq!(places, 1, "a consumer stands in one place");
            }
            if !line.is_idle() {
                line.busy_ms = now_ms;
            }
        }
    }

    /// Lets every message reach its end, and everybody leave.
    fn finish(mut self) {
        for kept in take(&mut self.kept) {
            self.release(kept, true);
        }
        self.rest();
        let names: Vec<usize> = self.lines.values().map(|line| line.name).collect();
        names.into_iter().for_each(|name| self.subscribe(Ok(name), Credit::UNLIMITED, Credit::UNLIMITED));
        for _ in 0..3 {
            self.rest();
            for number in 0..self.parties.len() {
                self.write(number);
                while !self.parties[number].held.is_empty() {
                    self.settle(number, 0);
                }
            }
            self.rest();
            self.pass(10_000);
            self.check();
        }
        let left: Vec<usize> =
            (0..self.sent.len()).filter(|id| self.sent[*id].state != State::Ended).collect();
        assert!(left.is_empty(), "{left:?} never came");
        let forgotten = self.ledger.0.lock().expect("no test panics while it holds the lock").1.clone();
        assert_eq!(
            forgotten.iter().collect::<BTreeSet<_>>().len(),
            forgotten.len(),
            "each is forgotten once"
        );
        let redelivered: u64 =
            self.sent.iter().map(|sent| u64::from(sent.deliveries.saturating_sub(1))).sum();
        assert_eq!(self.homes.iter().map(|home| home.counts.redelivered).sum::<u64>(), redelivered);
        self.alive().into_iter().for_each(|number| self.unsubscribe(number));
        self.rest();
        self.pass(10_000);
        assert!(self.lines.is_empty() && self.timers.is_empty());
        for home in &self.homes {
            assert_eq!((home.queues.len(), home.named(), home.consumers.len()), (0, 0, 0));
            assert!(home.by_subscriber.is_empty() && home.patterns.is_empty() && home.by_pattern.is_empty());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(1500) })]

    #[test]
    fn homes_agree_with_a_list_of_messages(homes in 1..4_usize, steps in prop::collection::vec(step(), 1..120)) {
        let before = held_bytes();
        let mut world = World::new(homes);
        steps.into_iter().for_each(|step| world.run(step));
        world.finish();
        prop_assert_eq!(held_bytes(), before);
    }
}
