use stompica_proto::encode::Message;

use super::super::QueueKind;
use super::super::types::{Credit, Effect, Progress};
use super::*;
use crate::collections::keyed::Key;
use crate::config::Config;
use crate::ids::{QueueKey, Subscriber};
use crate::message::OwnedMessage;
use crate::store::Memory;

const OWN: ShardId = ShardId(1);
const OTHER: ShardId = ShardId(0);
const PREFETCH: i64 = 10;

fn subscriber(shard: ShardId) -> Subscriber {
    Subscriber { shard, key: Key { index: 0, generation: 1 } }
}

/// A home whose queue has a consumer on each of these shards.
struct World {
    home: Home,
    queue: QueueKey,
    consumers: Vec<ConsumerKey>,
}

impl World {
    fn new(messages: usize, shards: &[ShardId]) -> Self {
        let hasher = crate::door::HashState::default();
        let mut home = Home::new(&Config::default(), hasher, Box::new(Memory)).on(OWN);
        let queue = home.create(b"/queue/a", QueueKind::Work);
        let credit = Credit { messages: PREFETCH, bytes: Credit::UNLIMITED };
        let consumers = shards.iter().map(|shard| home.attach(queue, subscriber(*shard), credit)).collect();
        for _ in 0..messages {
            home.enqueue(queue, message());
        }
        World { home, queue, consumers }
    }

    /// Dispatches in a turn that begins; returns the number of deliveries to the own shard and to the other one.
    fn turn(&mut self) -> (usize, usize) {
        self.turn_at(0)
    }

    fn turn_at(&mut self, now_ms: u64) -> (usize, usize) {
        self.home.set_time(now_ms);
        self.dispatch()
    }

    fn dispatch(&mut self) -> (usize, usize) {
        self.home.dispatch(usize::MAX);
        let mut found = (0, 0);
        for effect in std::mem::take(&mut self.home.effects) {
            match effect {
                Effect::Deliver(delivery) if delivery.subscriber.shard == OWN => found.0 += 1,
                Effect::Deliver(_) => found.1 += 1,
                _ => {}
            }
        }
        found
    }

    /// The consumer with this number acknowledges all that it may have.
    fn acknowledge(&mut self, consumer: usize) {
        let credit = Credit { messages: PREFETCH, bytes: 0 };
        let (queue, consumer) = (self.queue, self.consumers[consumer]);
        let settled = PREFETCH as u64;
        self.home.progress(&Progress { queue, consumer, settled, settled_bytes: settled, credit });
    }
}

fn message() -> OwnedMessage {
    let destination = b"/queue/a";
    OwnedMessage::new(&Message {
        destination,
        id: b"i",
        sender: 0,
        headers: b"",
        plain: true,
        expires_ms: 0,
        body: b"",
    })
}

#[test]
fn consumers_of_both_shards_get_similar_shares_though_the_acks_of_one_take_longer() {
    for turns_on_the_way in 1..=TURNS_MAX {
        let mut world = World::new(20_000, &[OWN, OTHER]);
        let (mut own, mut other, mut due) = (0, 0, std::collections::VecDeque::new());
        for turn in 0..600 {
            if due.pop_front_if(|at| *at == turn).is_some() {
                world.acknowledge(1);
            }
            let got = world.turn();
            (own, other) = (own + got.0, other + got.1);
            if got.1 > 0 {
                due.push_back(turn + turns_on_the_way);
            }
            if got.0 > 0 {
                world.acknowledge(0); // in the same turn
            }
        }
        let limit = other as i64 * SHARE_OWN / SHARE_OTHERS + 2 * PREFETCH;
        assert!(own as i64 <= limit && own >= other, "{turns_on_the_way}: {own}, {other}");
        assert_eq!(
            other as u64,
            (600_u64.div_ceil(turns_on_the_way)) * PREFETCH as u64,
            "{turns_on_the_way}"
        );
    }
}

#[test]
fn a_consumer_waits_for_a_few_turns_if_the_other_acknowledges_nothing() {
    let mut world = World::new(100, &[OWN, OTHER]);
    assert_eq!(world.turn(), (10, 10));
    world.acknowledge(0);
    assert_eq!(world.turn(), (10, 0), "nobody is ahead");
    world.acknowledge(0);
    assert_eq!(world.dispatch(), (0, 0));
    for _ in 1..TURNS_MAX {
        assert_eq!((world.turn(), world.home.has_work(), world.home.is_busy()), ((0, 0), false, true));
    }
    assert_eq!(world.turn(), (10, 0));
    assert!(!world.home.is_busy());
}

#[test]
fn nobody_waits_for_a_slow_consumer() {
    let mut world = World::new(200, &[OWN, OTHER]);
    assert_eq!(world.turn_at(5), (10, 10));
    for _ in 0..5 {
        world.acknowledge(0);
        assert_eq!(world.turn_at(5 + SLOW_MS), (10, 0));
    }
    world.acknowledge(1);
    assert_eq!(world.turn_at(6 + SLOW_MS), (0, 10));
    world.acknowledge(0);
    assert_eq!(world.dispatch(), (0, 0), "the other has got messages again");
    assert_eq!(world.turn_at(6 + 2 * SLOW_MS), (10, 0));
}

#[test]
fn a_wait_ends_when_the_other_consumer_catches_up_or_leaves() {
    for leaves in [false, true] {
        let mut world = World::new(100, &[OWN, OTHER]);
        world.turn();
        world.acknowledge(0);
        world.turn();
        world.acknowledge(0);
        assert_eq!(world.dispatch(), (0, 0));
        if leaves {
            world.home.detach(subscriber(OTHER));
            assert_eq!(world.dispatch(), (10, 0));
        } else {
            world.acknowledge(1);
            assert_eq!(world.dispatch(), (10, 10));
        }
    }
}

#[test]
fn deliveries_to_consumers_of_a_pattern_do_not_count() {
    let mut world = World::new(100, &[OWN, OTHER]);
    let of_pattern = Subscriber { shard: OWN, key: Key { index: 1, generation: 1 } };
    let credit = Credit { messages: PREFETCH, bytes: Credit::UNLIMITED };
    world.home.attach_pattern(b"/queue/*", of_pattern, credit);
    world.home.proceed(usize::MAX);
    assert_eq!(world.turn(), (20, 10));
    world.acknowledge(0);
    assert_eq!(world.turn(), (10, 0), "the exact consumers have got equally many");
}

#[test]
fn only_a_limited_lead_is_made_up_for() {
    for fast in [0, 1] {
        let mut world = World::new(20_000, &[OWN, OTHER]);
        world.turn();
        for _ in 0..5 * LEAD_MAX / PREFETCH {
            world.acknowledge(fast);
            (0..=TURNS_MAX).for_each(|_| _ = world.turn());
        }
        // Now the other one gets messages, until both get their shares again.
        let mut caught_up = 0;
        world.acknowledge(fast);
        loop {
            world.acknowledge(1 - fast);
            let (own, other) = world.dispatch();
            match fast {
                0 if own > 0 => break,
                1 if own == 0 => break,
                _ => caught_up += if fast == 0 { other } else { own },
            }
        }
        let caught_up = caught_up as i64;
        assert!(caught_up > LEAD_MAX / 2 && caught_up <= LEAD_MAX + PREFETCH, "{fast}: {caught_up}");
    }
}

#[test]
fn a_home_records_that_a_consumer_has_credit_again_until_the_turn_ends() {
    let mut world = World::new(100, &[OTHER]);
    world.turn();
    assert!(!world.home.has_regained_credit());
    world.acknowledge(0);
    assert!(world.home.has_regained_credit());
    world.turn();
    assert!(!world.home.has_regained_credit());
}

#[test]
fn a_consumer_that_leaves_does_not_wait() {
    let mut world = World::new(100, &[OWN, OTHER]);
    world.turn();
    world.acknowledge(0);
    world.turn();
    world.acknowledge(0);
    world.home.detach(subscriber(OWN));
    assert_eq!(world.dispatch(), (0, 0));
    assert!(!world.home.is_busy());
    world.acknowledge(1);
    assert_eq!(world.turn(), (0, 10));
}

#[test]
fn a_consumer_does_not_wait_if_no_message_does() {
    let mut world = World::new(30, &[OWN, OTHER]);
    world.turn();
    world.acknowledge(0);
    assert_eq!(world.turn(), (10, 0));
    world.acknowledge(0);
    assert!(!world.home.is_busy());
    world.home.enqueue(world.queue, message());
    assert_eq!(world.dispatch(), (1, 0));
}

#[test]
fn consumers_of_one_shard_do_not_wait_for_each_other() {
    for shard in [OWN, OTHER] {
        let mut world = World::new(100, &[shard]);
        for _ in 0..5 {
            let got = world.turn();
            assert_eq!(got.0 + got.1, 10);
            world.acknowledge(0);
        }
    }
}
