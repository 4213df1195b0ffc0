//! Doubles of queues by priority, by selector and by group.

use std::collections::BTreeMap;
use std::mem::take;

use stompica_proto::encode::Message;

use super::super::QueueKind;
use super::super::types::{Credit, Delivery, Effect, GivenBack, Progress};
use super::*;
use crate::config::Config;
use crate::ids::{ShardId, SubscriptionKey};
use crate::store::Memory;

/// Delivers the message with the lowest first byte of its body.
#[derive(Debug)]
pub struct Priority;

impl Pick for Priority {
    fn pick(
        &mut self,
        _: ConsumerKey,
        _: Subscriber,
        _: &dyn Fn(ConsumerKey) -> bool,
        waiting: &mut dyn Iterator<Item = &OwnedMessage>,
    ) -> Option<u64> {
        waiting.min_by_key(|message| (first_byte(message), message.seq)).map(|message| message.seq)
    }
}

/// Delivers to each subscription only messages whose bodies begin with its byte.
#[derive(Debug, Default)]
struct Selectors(Vec<(Subscriber, u8)>);

impl Pick for Selectors {
    fn pick(
        &mut self,
        _: ConsumerKey,
        subscriber: Subscriber,
        _: &dyn Fn(ConsumerKey) -> bool,
        mut waiting: &mut dyn Iterator<Item = &OwnedMessage>,
    ) -> Option<u64> {
        let (_, wanted) = self.0.iter().find(|(of, _)| *of == subscriber)?;
        Iterator::find(&mut waiting, |message| first_byte(message) == *wanted).map(|message| message.seq)
    }
}

/// Messages whose bodies begin with the same byte are a group, which belongs to one consumer until that has left.
#[derive(Debug, Default)]
struct Groups(BTreeMap<u8, ConsumerKey>);

impl Pick for Groups {
    fn pick(
        &mut self,
        consumer: ConsumerKey,
        _: Subscriber,
        is_there: &dyn Fn(ConsumerKey) -> bool,
        mut waiting: &mut dyn Iterator<Item = &OwnedMessage>,
    ) -> Option<u64> {
        let may_have = |owner: &ConsumerKey| *owner == consumer || !is_there(*owner);
        let is_suitable = |message: &&OwnedMessage| self.0.get(&first_byte(message)).is_none_or(may_have);
        let found = Iterator::find(&mut waiting, is_suitable)?;
        self.0.insert(first_byte(found), consumer);
        Some(found.seq)
    }
}

fn first_byte(message: &OwnedMessage) -> u8 {
    message.message().body.first().copied().unwrap_or_default()
}

/// A home with one queue that is dispatched by a [`Pick`].
struct World {
    home: Home,
    queue: QueueKey,
    /// Messages that consumers hold.
    held: Vec<Delivery>,
}

impl World {
    fn new(pick: impl Pick + 'static) -> Self {
        let mut home = Home::new(&Config::default(), crate::door::HashState::default(), Box::new(Memory));
        let queue = home.create(b"/queue/a", QueueKind::Work);
        home.pick_by(queue, pick);
        World { home, queue, held: Vec::new() }
    }

    fn send(&mut self, bodies: &[&str]) {
        for body in bodies {
            self.home.enqueue(self.queue, message(body));
        }
    }

    fn attach(&mut self, number: u32, messages: i64) {
        self.home.attach(self.queue, subscriber(number), credit(messages));
    }

    /// Delivers what can be delivered: the number of each subscription, and the body.
    fn dispatch(&mut self) -> Vec<(u32, String)> {
        while self.home.has_work() || self.home.is_sweeping() {
            self.home.proceed(100);
            self.home.dispatch(1);
        }
        let mut delivered = Vec::new();
        for effect in take(&mut self.home.effects) {
            if let Effect::Deliver(delivery) = effect {
                let body = String::from_utf8_lossy(delivery.message.message().body).into_owned();
                delivered.push((delivery.subscriber.key.index, body));
                self.held.push(delivery);
            }
        }
        delivered
    }

    /// The consumer of the first delivery that was not settled consumes it.
    fn settle(&mut self) {
        let delivery = self.held.remove(0);
        self.home.progress(&Progress {
            queue: delivery.queue,
            consumer: delivery.consumer,
            settled: 1,
            settled_bytes: delivery.message.size() as u64,
            credit: Credit { messages: 1, bytes: 0 },
        });
    }

    fn waiting(&self) -> usize {
        self.home.queue(self.queue).map_or(0, |queue| queue.pending.len())
    }
}

pub(in crate::queue) fn message(body: &str) -> OwnedMessage {
    let body = body.as_bytes();
    OwnedMessage::new(&Message {
        destination: b"/queue/a",
        id: b"i",
        sender: 7,
        headers: b"h:v\n",
        plain: true,
        expires_ms: 0,
        body,
    })
}

pub(in crate::queue) fn subscriber(number: u32) -> Subscriber {
    Subscriber { shard: ShardId(0), key: SubscriptionKey { index: number, generation: 1 } }
}

pub(in crate::queue) fn credit(messages: i64) -> Credit {
    Credit { messages, bytes: Credit::UNLIMITED }
}

fn to(number: u32, bodies: &[&str]) -> Vec<(u32, String)> {
    bodies.iter().map(|body| (number, (*body).to_owned())).collect()
}

#[test]
fn the_most_urgent_message_is_delivered_first() {
    let mut world = World::new(Priority);
    world.send(&["5a", "1a", "5b", "3"]);
    world.attach(1, 2);
    assert_eq!(world.dispatch(), to(1, &["1a", "3"]));
    world.send(&["2", "5c"]);
    assert_eq!(world.dispatch(), to(1, &[]), "no credit is left");
    world.settle();
    assert_eq!(world.dispatch(), to(1, &["2"]));
    world.attach(2, 10);
    assert_eq!(world.dispatch(), to(2, &["5a", "5b", "5c"]), "equal ones in their order");
}

#[test]
fn a_message_that_was_refused_or_delayed_keeps_its_priority() {
    let mut world = World::new(Priority);
    world.send(&["1", "2", "3"]);
    world.attach(1, 1);
    assert_eq!(world.dispatch(), to(1, &["1"]));
    let refused = world.held.remove(0);
    let why = GivenBack::Failed { deliveries_max: 9, delay_ms: 100, credit: credit(1) };
    world.home.give_back(refused.queue, refused.consumer, refused.message, why);
    assert_eq!(world.dispatch(), to(1, &["2"]));
    world.home.set_time(100);
    world.home.handle_due(world.queue);
    world.settle();
    assert_eq!(world.dispatch(), to(1, &["1"]));
}

#[test]
fn a_message_that_has_expired_is_not_delivered() {
    let mut world = World::new(Priority);
    let mut urgent = message("1");
    urgent.expires_ms = 10;
    world.home.enqueue(world.queue, urgent);
    world.send(&["2"]);
    world.home.set_time(10);
    world.attach(1, 9);
    assert_eq!(world.dispatch(), to(1, &["2"]));
    world.home.handle_due(world.queue);
    assert_eq!((world.home.counts.expired, world.waiting()), (1, 0));
}

#[test]
fn nothing_behind_a_place_that_is_kept_for_a_transaction_is_delivered() {
    let mut world = World::new(Priority);
    world.send(&["5"]);
    let first = world.home.reserve(world.queue, 1, 100);
    world.send(&["1"]);
    world.attach(1, 9);
    assert_eq!(world.dispatch(), to(1, &["5"]));
    world.home.enqueue_at(world.queue, message("3"), first);
    assert_eq!(world.dispatch(), to(1, &["3"]));
    world.home.release(world.queue, first, 1, 100);
    assert_eq!(world.dispatch(), to(1, &["1"]));
}

#[test]
fn a_consumer_gets_only_the_messages_that_it_selects() {
    let selectors = vec![(subscriber(1), b'a'), (subscriber(2), b'b')];
    let mut world = World::new(Selectors(selectors));
    world.send(&["c1", "b1", "a1", "a2", "c2", "b2"]);
    world.attach(1, 1);
    world.attach(2, 9);
    let mut delivered = world.dispatch();
    delivered.sort();
    assert_eq!(delivered, [to(1, &["a1"]), to(2, &["b1", "b2"])].concat());
    assert_eq!(world.waiting(), 3, "what nobody selects stays, and so does what exceeds the credit");
    world.send(&["b3"]);
    assert_eq!(
        world.dispatch(),
        to(2, &["b3"]),
        "a consumer without a suitable message gets the next suitable one"
    );
    world.home.detach(subscriber(2));
    world.send(&["b4"]);
    assert_eq!(world.dispatch(), []);
    let settled = world.held.iter().position(|held| held.subscriber == subscriber(1)).expect("it holds one");
    world.held.swap(0, settled);
    world.settle();
    assert_eq!(world.dispatch(), to(1, &["a2"]));
    assert_eq!(world.waiting(), 3);
}

#[test]
fn consumers_of_a_pattern_get_only_the_messages_that_they_select() {
    let selectors = vec![(subscriber(1), b'a'), (subscriber(2), b'b'), (subscriber(3), b'c')];
    let mut world = World::new(Selectors(selectors));
    for number in 1..=2 {
        world.home.attach_pattern(b"/queue/*", subscriber(number), credit(2));
    }
    world.send(&["c1", "b1", "b2", "b3", "a1"]);
    let mut delivered = world.dispatch();
    delivered.sort();
    assert_eq!(delivered, [to(1, &["a1"]), to(2, &["b1", "b2"])].concat());
    world.home.attach_pattern(b"/queue/*", subscriber(3), credit(2));
    assert_eq!(world.dispatch(), to(3, &["c1"]), "one that comes to the pattern later");
    let settled = world.held.iter().position(|held| held.subscriber == subscriber(2)).expect("it holds some");
    world.held.swap(0, settled);
    world.settle();
    assert_eq!(world.dispatch(), to(2, &["b3"]), "one that has credit again");
}

#[test]
fn the_messages_of_a_group_go_to_one_consumer_until_it_leaves() {
    let mut world = World::new(Groups::default());
    world.attach(1, 100);
    world.attach(2, 100);
    world.send(&["a1", "b1", "a2", "a3", "b2", "c1", "b3", "a4"]);
    let delivered = world.dispatch();
    let mut owners = BTreeMap::new();
    for (number, body) in &delivered {
        assert_eq!(owners.entry(body.as_bytes()[0]).or_insert(*number), number, "{body}");
    }
    let of =
        |group| delivered.iter().map(|(_, body)| body.as_str()).filter(move |body| body.starts_with(group));
    assert!(of('a').eq(["a1", "a2", "a3", "a4"]) && of('b').eq(["b1", "b2", "b3"]) && of('c').eq(["c1"]));
    let (leaves, stays) = (owners[&b'a'], 3 - owners[&b'a']);
    assert!(owners.values().any(|owner| *owner == stays), "both have a group");
    // What it held is given back, and all of it goes to the other one, in order.
    world.home.detach(subscriber(leaves));
    let is_lost = |held: &Delivery| held.subscriber == subscriber(leaves);
    let (lost, held): (Vec<_>, Vec<_>) = take(&mut world.held).into_iter().partition(is_lost);
    world.held = held;
    lost.into_iter()
        .for_each(|held| world.home.give_back(held.queue, held.consumer, held.message, GivenBack::Lost));
    world.send(&["a5"]);
    let again = world.dispatch();
    let of_a: Vec<_> = again.into_iter().filter(|(_, body)| body.starts_with('a')).collect();
    assert_eq!(of_a, to(stays, &["a1", "a2", "a3", "a4", "a5"]));
}

#[test]
fn a_group_whose_consumer_has_no_credit_holds_up_no_other_group() {
    let mut world = World::new(Groups::default());
    world.attach(1, 1);
    world.attach(2, 3);
    world.send(&["a1", "a2", "a3", "b1", "b2"]);
    assert_eq!(world.dispatch(), [to(1, &["a1"]), to(2, &["b1", "b2"])].concat());
    world.settle();
    assert_eq!(world.dispatch(), to(1, &["a2"]));
    assert_eq!(world.waiting(), 1);
}
