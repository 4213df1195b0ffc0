//! Tests of the queues of a home with the other owners they need, without connections.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use stompica_proto::encode::{Message, Offender};
use stompica_proto::error::Code;

use super::allowance::Allowance;
use super::home::Home;
use super::mail::{
    AnswerNote, Attach, ConsumerNote, HomeNote, MemoryNote, Note, Placed, ReplayNote, Reservation, Source,
    TransactionNote,
};
use super::notes::{Local, Notes};
use super::orphans::Orphans;
use super::queues::Queues;
use super::replay::Newcomer;
use super::stale::StaleCounts;
use super::types::{Credit, FIRST_SEQ, GivenBack, Progress};
use super::unacked::Origin;
use super::{Owners, QueueKind};
use crate::collections::keyed::Key;
use crate::collections::paged_deque::PagedDeque;
use crate::config::Config;
use crate::ids::{ConnKey, QueueKey, ShardId, Subscriber};
use crate::log::{Level, LogQueue};
use crate::message::OwnedMessage;
use crate::queue::pick::tests::Priority;
use crate::requester::{AnswerTo, Requester, take_lost};
use crate::router::Router;
use crate::store::Memory;
use crate::store::double::{Call, Journal, Kept};
use crate::totals::Totals;
use crate::turn::Turn;
use crate::turn::jobs::Job;

/// The home, in a broker of two shards.
const OWN: ShardId = ShardId(0);
/// The other shard.
const OTHER: ShardId = ShardId(1);
/// The credit of most consumers.
const CREDIT: Credit = Credit { messages: 10, bytes: 10_000 };

/// The owners that [`Owners`] borrows.
struct World {
    turn: Turn,
    notes: Notes,
    router: Router,
    queues: Queues,
}

impl World {
    fn new(shards: usize, config: Config) -> Self {
        let config = Config { writers: shards, ..config };
        let hasher = foldhash::fast::RandomState::default();
        let log = LogQueue::new(10, Level::Error);
        let (totals, counts) = (Arc::new(Totals::default()), Arc::new(StaleCounts::new(shards)));
        World {
            router: Router::new(&config, hasher.clone()),
            queues: Queues::new(OWN, &config, hasher.clone(), counts, Arc::default(), Box::new(Memory)),
            notes: Notes::new(OWN, shards),
            turn: Turn::new(OWN, shards, Arc::new(config), totals, log, hasher, "e"),
        }
    }

    fn owners(&mut self) -> Owners<'_> {
        lend!(self => Owners { turn, notes, router, queues })
    }

    fn tell(&mut self, note: impl Into<Note>) {
        self.owners().tell(OWN, note);
    }

    fn find(&self, name: &[u8]) -> Option<QueueKey> {
        self.queues.home.find(name)
    }

    fn waiting(&self, name: &[u8]) -> u64 {
        self.find(name).and_then(|queue| self.queues.home.queue(queue)).map_or(0, |queue| queue.size())
    }

    /// The items for the own shard, as text.
    fn local(&mut self) -> Vec<String> {
        std::iter::from_fn(|| self.notes.next_local()).map(describe_local).collect()
    }

    /// The notes to the other shard, as text.
    fn remote(&mut self) -> Vec<String> {
        self.notes.take_outgoing().flat_map(|(_, list)| list).map(describe).collect()
    }

    fn attach(&mut self, subscriber: Subscriber, source: Source, requester: Requester) {
        let attach = Attach { subscriber, source, credit: CREDIT, requester, offender: Offender::default() };
        self.tell(HomeNote::Attach(Box::new(attach)));
    }
}

fn describe(note: Note) -> String {
    match note {
        Note::Answer(AnswerNote::Applied(_, token)) => format!("applied {token}"),
        Note::Answer(AnswerNote::Reserved(_, token, places)) => format!("reserved {token} {places:?}"),
        Note::Answer(AnswerNote::Refused(_, token, refusal)) => {
            format!("refused {token} {}", refusal.0.code.as_str())
        }
        Note::Consumer(ConsumerNote::Deliver(delivery)) => format!("deliver {}", body(&delivery.message)),
        Note::Consumer(ConsumerNote::Replayed(_, message, retained)) => {
            format!("replayed {}{}", body(&message), if retained { " (retained)" } else { "" })
        }
        Note::Consumer(ConsumerNote::ReplayEnd(_)) => "replay end".to_owned(),
        Note::Consumer(ConsumerNote::Opens(_, token, _)) => format!("opens {token}"),
        Note::Home(HomeNote::Enqueue(message, _)) => {
            format!("enqueue to {}", String::from_utf8_lossy(message.destination()))
        }
        Note::Replay(ReplayNote::InterestAck(_)) => "interest ack".to_owned(),
        Note::Memory(MemoryNote::AllowanceGrant(_, Allowance { messages, .. })) => {
            format!("allowance {messages}")
        }
        other => format!("{other:?}"),
    }
}

fn describe_local(local: Local) -> String {
    match local {
        Local::Note(note) => describe(note),
        Local::Publish(message) => format!("publish {}", body(&message)),
        Local::Announce { topic, newcomer, .. } => {
            format!(
                "announce {}{}",
                String::from_utf8_lossy(&topic),
                if newcomer.is_some() { " (new)" } else { "" }
            )
        }
        Local::Unbind(_) => "unbind".to_owned(),
    }
}

fn body(message: &OwnedMessage) -> String {
    String::from_utf8_lossy(message.message().body).into_owned()
}

fn message(destination: &str, body: &str) -> OwnedMessage {
    let (destination, body) = (destination.as_bytes(), body.as_bytes());
    OwnedMessage::new(&Message { destination, id: b"i", sender: 7, headers: b"", plain: true, body })
}

/// A frame of a connection of this shard, whose RECEIPT waits.
fn frame(token: u64) -> Requester {
    frame_of(OWN, token)
}

fn frame_of(shard: ShardId, token: u64) -> Requester {
    AnswerTo { shard, conn: ConnKey::NONE, token, awaited: true }.requester()
}

fn subscriber(shard: ShardId, index: u32) -> Subscriber {
    Subscriber { shard, key: Key { index, generation: 1 } }
}

fn queue(name: &[u8]) -> Source {
    Source::Queue(name.into(), QueueKind::Work)
}

fn worker(name: &[u8]) -> Source {
    Source::Queue(name.into(), QueueKind::Worker)
}

fn durable(topic: &[u8], shared: bool) -> Source {
    Source::Durable { name: b"durable\nc\nd".as_slice().into(), topic: topic.into(), shared, without: 0 }
}

fn end_durable(token: u64) -> HomeNote {
    HomeNote::EndDurable(b"durable\nc\nd".as_slice().into(), frame(token), Box::default())
}

#[test]
fn a_message_creates_its_queue_and_is_answered() {
    let mut world = World::new(1, Config::default());
    world.tell(HomeNote::Enqueue(message("/queue/a", "x"), Some(frame(1))));
    assert_eq!((world.waiting(b"/queue/a"), world.local()), (1, vec!["applied 1".to_owned()]));
    assert_eq!(world.turn.totals.queues.load(Ordering::Relaxed), 1);
    assert_eq!(take_lost(), 0);
}

#[test]
fn a_full_queue_refuses_messages_with_a_receipt_and_drops_others() {
    let mut world = World::new(1, Config { max_queue_length: 1, ..Config::default() });
    for token in 1..=2 {
        world.tell(HomeNote::Enqueue(message("/queue/a", "x"), Some(frame(token))));
    }
    world.tell(HomeNote::Enqueue(message("/queue/a", "x"), None));
    assert_eq!(world.local(), ["applied 1", "refused 2 E-QUEUE-FULL"]);
    assert_eq!((world.waiting(b"/queue/a"), world.turn.counters.dropped), (1, 1));
}

#[test]
fn one_queue_more_than_max_destinations_is_refused() {
    let mut world = World::new(1, Config { max_destinations: 1, ..Config::default() });
    world.tell(HomeNote::Enqueue(message("/queue/a", "x"), Some(frame(1))));
    world.tell(HomeNote::Enqueue(message("/queue/b", "x"), Some(frame(2))));
    assert_eq!(world.local(), ["applied 1", "refused 2 E-DEST-COUNT"]);
    assert_eq!(world.turn.totals.queues.load(Ordering::Relaxed), 1);
}

#[test]
fn a_consumer_does_not_recreate_a_removed_temporary_queue() {
    let mut world = World::new(1, Config::default());
    let name = Source::Queue((*b"/temp-queue/secret/t").into(), QueueKind::Temporary);
    world.attach(subscriber(OWN, 0), name, frame(1));
    assert_eq!((world.find(b"/temp-queue/secret/t"), world.local()), (None, vec!["applied 1".to_owned()]));
}

#[test]
fn a_note_to_another_home_is_not_acted_on_here() {
    let mut world = World::new(2, Config::default());
    world.owners().tell(OTHER, HomeNote::Enqueue(message("/queue/a", "x"), None));
    assert_eq!((world.waiting(b"/queue/a"), world.remote()), (0, vec!["enqueue to /queue/a".to_owned()]));
}

#[test]
fn deliveries_go_to_the_shard_of_the_consumer() {
    for (shard, is_local) in [(OWN, true), (OTHER, false)] {
        let mut world = World::new(2, Config::default());
        world.attach(subscriber(shard, 0), queue(b"/queue/a"), frame_of(shard, 1));
        world.tell(HomeNote::Enqueue(message("/queue/a", "x"), None));
        let found = world.find(b"/queue/a").expect("a queue");
        world.owners().dispatch_at_once(found);
        let (local, remote) = (world.local(), world.remote());
        assert_eq!(if is_local { &local } else { &remote }, &["applied 1", "deliver x"]);
        assert!(if is_local { remote } else { local }.is_empty());
        assert_eq!(world.turn.budget.deliveries, 1);
    }
}

#[test]
fn a_message_that_fails_too_often_is_sent_to_its_dead_letter_queue() {
    let mut world = World::new(1, Config { max_deliveries: 1, ..Config::default() });
    world.attach(subscriber(OWN, 0), queue(b"/queue/a"), frame(1));
    world.tell(HomeNote::Enqueue(message("/queue/a", "x"), None));
    let queue = world.find(b"/queue/a").expect("a queue");
    world.owners().dispatch_at_once(queue);
    let delivery = std::iter::from_fn(|| world.notes.next_local())
        .find_map(|local| match local {
            Local::Note(Note::Consumer(ConsumerNote::Deliver(delivery))) => Some(delivery),
            _ => None,
        })
        .expect("a delivery");
    let origin = Origin { home: OWN, queue, consumer: delivery.consumer };
    let why = GivenBack::Failed { deliveries_max: 1, delay_ms: 0, credit: Credit::default() };
    world.tell(HomeNote::GiveBack(origin, delivery.message, Box::new(why)));
    world.owners().run_effects();
    let names: Vec<_> =
        world.queues.home.iter().map(|queue| String::from_utf8_lossy(&queue.name).into_owned()).collect();
    assert_eq!((names.len(), world.queues.home.counts.dead_lettered), (2, 1), "{names:?}");
    assert_eq!((world.waiting(b"/queue/a"), world.waiting(names[1].as_bytes())), (0, 1));
}

#[test]
fn a_durable_subscription_announces_its_topic_and_waits_for_its_initial_replay() {
    let mut world = World::new(2, Config::default());
    world.attach(subscriber(OWN, 0), durable(b"t", false), frame(1));
    assert_eq!(world.local(), ["announce t (new)"]);
    let found = world.find(b"durable\nc\nd").expect("a queue");
    world.owners().durable_replay_ended(found);
    world.owners().durable_replay_ended(found);
    assert_eq!(world.local(), ["applied 1", "applied 1"], "each home's answer");
    assert_eq!(take_lost(), 0);
}

#[test]
fn a_durable_subscription_has_one_topic_and_one_holder() {
    let mut world = World::new(1, Config::default());
    world.attach(subscriber(OWN, 0), durable(b"t", false), frame(1));
    world.attach(subscriber(OWN, 1), durable(b"t", true), frame(2));
    world.attach(subscriber(OWN, 1), durable(b"u", false), frame(3));
    assert_eq!(
        world.local(),
        ["announce t (new)", "refused 2 E-DURABLE-IN-USE", "refused 3 E-DURABLE-OTHER"]
    );
    world.tell(HomeNote::Detach(subscriber(OWN, 0)));
    world.attach(subscriber(OWN, 1), durable(b"t", false), frame(4));
    assert_eq!(world.local(), ["announce t", "opens 4", "applied 4"], "its credit follows the RECEIPT");
    world.tell(end_durable(5));
}

#[test]
fn the_end_of_a_durable_subscription_answers_all_requesters() {
    let mut world = World::new(1, Config::default());
    world.attach(subscriber(OWN, 0), durable(b"t", false), frame(1));
    world.local();
    world.tell(end_durable(2));
    assert_eq!(world.local(), ["unbind", "applied 1", "applied 2"]);
    world.tell(end_durable(3));
    assert_eq!(world.local(), [format!("refused 3 {}", Code::SubscriptionUnknown.as_str())]);
    assert!(world.queues.bindings.is_empty() && world.find(b"durable\nc\nd").is_none());
    assert_eq!(take_lost(), 0);
}

#[test]
fn a_consumer_of_a_worker_topic_gets_stale_messages_before_its_receipt() {
    let mut world = World::new(1, Config { ttl_ms: 1000, ..Config::default() });
    for text in ["a", "b"] {
        world.tell(HomeNote::Enqueue(message("#w", text), None));
    }
    assert!(world.find(b"#w").is_none() && !world.queues.stale.is_empty());
    world.attach(subscriber(OWN, 0), worker(b"#w"), frame(1));
    assert_eq!(world.local(), ["deliver a", "deliver b", "applied 1"]);
    assert!(world.queues.stale.is_empty());
}

#[test]
fn many_stale_messages_for_a_consumer_are_delivered_as_a_job() {
    let mut world = World::new(1, Config { ttl_ms: 1000, ..Config::default() });
    for _ in 0..100 {
        world.tell(HomeNote::Enqueue(message("#w", "x"), None));
    }
    let credit = Credit { messages: 1000, bytes: 1 << 20 };
    let (source, requester) = (worker(b"#w"), frame(1));
    let attach =
        Attach { subscriber: subscriber(OWN, 0), source, credit, requester, offender: Offender::default() };
    world.tell(HomeNote::Attach(Box::new(attach)));
    let first = world.local();
    assert!(first.len() < 100 && first.iter().all(|note| note == "deliver x"), "{first:?}");
    assert_eq!(world.turn.jobs.pop(), Some(Job::Revive));
    world.owners().proceed_with_revivals();
    let rest = world.local();
    assert_eq!((first.len() + rest.len(), rest.last().map(String::as_str)), (101, Some("applied 1")));
}

#[test]
fn a_replay_begins_once_all_shards_know_the_new_subscription() {
    let mut world = World::new(3, Config { ttl_ms: 1000, ..Config::default() });
    world.tell(HomeNote::Retain(message("t", "last"), true, Some(frame(1))));
    world.tell(HomeNote::Stale(message("t", "stale")));
    assert_eq!(world.local(), ["applied 1"]);
    let newcomer = Newcomer { key: subscriber(OWN, 0).key, without: 0 };
    world.owners().await_replay(b"t", OWN, newcomer, Some(frame(2)));
    assert!(!world.owners().proceed_with_next_replay(), "two shards have not acknowledged it");
    world.tell(ReplayNote::InterestAck(subscriber(OWN, 0)));
    assert!(!world.owners().proceed_with_next_replay());
    world.tell(ReplayNote::InterestAck(subscriber(OWN, 0)));
    assert!(world.owners().proceed_with_next_replay());
    world.tell(ReplayNote::More(subscriber(OWN, 0)));
    while world.owners().proceed_with_next_replay() {}
    let told = world.local();
    assert_eq!(told.iter().filter(|it| it.starts_with("replayed")).count(), 2, "{told:?}");
    assert_eq!(told[told.len() - 2..], ["applied 2", "replay end"], "{told:?}");
}

#[test]
fn a_home_tells_the_others_that_it_knows_a_subscription_of_another_shard() {
    let mut world = World::new(3, Config::default());
    let newcomer = Newcomer { key: subscriber(OTHER, 0).key, without: 0 };
    world.owners().await_replay(b"t", OTHER, newcomer, Some(frame_of(OTHER, 1)));
    assert_eq!(world.remote(), ["interest ack", "interest ack"]);
    world.tell(ReplayNote::InterestAck(subscriber(OTHER, 0)));
    world.tell(ReplayNote::Stop(subscriber(OTHER, 0)));
    assert_eq!(world.remote(), ["applied 1"], "the end of a subscription ends its replay");
}

#[test]
fn more_retained_messages_than_max_retained_are_refused() {
    let mut world = World::new(1, Config { max_retained: 1, ..Config::default() });
    for (token, topic) in [(1, "t"), (2, "t"), (3, "u")] {
        world.tell(HomeNote::Retain(message(topic, "x"), true, Some(frame(token))));
    }
    assert_eq!(world.local(), ["applied 1", "applied 2", "refused 3 E-RETAINED-COUNT"]);
    assert!(world.owners().is_full_of_retained() && world.owners().may_replay());
    world.tell(HomeNote::Retain(message("t", ""), false, Some(frame(4))));
    assert!(!world.owners().is_full_of_retained());
}

#[test]
fn a_stale_message_expires_at_its_time() {
    let mut world = World::new(1, Config { ttl_ms: 1000, ..Config::default() });
    world.tell(HomeNote::Stale(message("t", "x")));
    assert_eq!(world.turn.timers.next_ms(), Some(1000));
    world.turn.now_ms = 1000;
    world.owners().expire_waiting();
    assert_eq!((world.queues.stale.is_empty(), world.turn.counters.expired), (true, 1));
}

#[test]
fn a_stale_message_is_published_if_a_subscription_has_begun_meanwhile() {
    let mut world = World::new(1, Config { ttl_ms: 1000, ..Config::default() });
    world.attach(subscriber(OWN, 0), durable(b"t", false), frame(1));
    world.owners().proceed_with_next_replay();
    world.local();
    world.tell(HomeNote::Stale(message("t", "x")));
    assert_eq!(world.local(), ["publish x"]);
    world.tell(end_durable(2));
}

fn reservations(name: &str, count: u64) -> PagedDeque<Reservation> {
    let mut reservations = PagedDeque::default();
    reservations.push_back(Reservation {
        name: name.as_bytes().into(),
        count,
        bytes: count,
        ..Reservation::default()
    });
    reservations
}

impl World {
    fn do_jobs(&mut self) {
        while let Some(job) = self.turn.jobs.pop() {
            if let Job::Reserve(shard, token) = job {
                self.owners().proceed_with_reservation((shard, token));
            }
        }
    }
}

#[test]
fn reserved_places_of_a_transaction_precede_later_messages() {
    let mut world = World::new(1, Config::default());
    world.tell(TransactionNote::Prepare(reservations("/queue/a", 1), frame(1)));
    world.do_jobs();
    let first = FIRST_SEQ;
    assert_eq!(world.local(), [format!("reserved 1 [{first}]")]);
    world.tell(HomeNote::Enqueue(message("/queue/a", "later"), None));
    world.attach(subscriber(OWN, 0), queue(b"/queue/a"), frame(2));
    let found = world.find(b"/queue/a").expect("a queue");
    world.owners().dispatch_at_once(found);
    assert_eq!(world.local(), ["applied 2"], "nothing after a reserved place is delivered");
    let mut messages = PagedDeque::default();
    messages.push_back(Placed { reservation: Some(0), retain: None, message: message("/queue/a", "placed") });
    world.tell(TransactionNote::Commit(messages, 1, frame(3)));
    world.do_jobs();
    world.owners().dispatch_at_once(found);
    assert_eq!(world.local(), ["applied 3", "deliver placed", "deliver later"]);
}

#[test]
fn a_cancelled_transaction_leaves_nothing() {
    let mut world = World::new(1, Config::default());
    world.tell(TransactionNote::Prepare(reservations("/queue/a", 1), frame(1)));
    world.do_jobs();
    world.tell(TransactionNote::Cancel(1));
    world.do_jobs();
    assert!(world.find(b"/queue/a").is_none() && world.local().len() == 1);
    assert!(world.queues.prepared.is_empty());
}

#[test]
fn a_transaction_without_room_is_refused_and_reserves_nothing() {
    let mut world = World::new(1, Config { max_queue_length: 1, ..Config::default() });
    world.tell(TransactionNote::Prepare(reservations("/queue/a", 2), frame(1)));
    world.do_jobs();
    assert_eq!((world.local(), world.queues.prepared.len()), (vec!["refused 1 E-QUEUE-FULL".to_owned()], 0));
    assert_eq!(take_lost(), 0);
}

#[test]
fn a_home_tells_how_many_messages_it_would_deliver_at_once() {
    let mut world = World::new(2, Config::default());
    world.owners().read(OTHER, MemoryNote::AllowanceRequest(b"/queue/a".as_slice().into()).into());
    assert!(world.remote().is_empty(), "the queue has no consumer");
    world.attach(subscriber(OWN, 0), queue(b"/queue/a"), frame(1));
    world.owners().read(OTHER, MemoryNote::AllowanceRequest(b"/queue/a".as_slice().into()).into());
    assert_eq!(world.remote(), ["allowance 10"]);
}

#[test]
fn a_consumer_of_a_pattern_allows_messages_to_queues_that_do_not_exist_yet() {
    let mut world = World::new(2, Config::default());
    world.attach(subscriber(OWN, 0), Source::Pattern(b"/queue/p/*".as_slice().into()), frame(1));
    let allowance = |world: &mut World, name: &str| world.owners().allowance_of(name.as_bytes());
    assert_eq!(allowance(&mut world, "/queue/other"), None);
    assert_eq!(allowance(&mut world, "/queue/p/a").map(|it| it.messages), Some(10));
    assert!(world.find(b"/queue/p/a").is_none(), "nothing was created");
    for _ in 0..10 {
        world.tell(HomeNote::Enqueue(message("/queue/p/a", "x"), None));
    }
    world.queues.home.dispatch(100);
    // It may be granted more, as long as it has not requested credit from other homes.
    assert_eq!(allowance(&mut world, "/queue/p/a").map(|it| it.messages), Some(1));
    world.tell(HomeNote::Enqueue(message("/queue/p/a", "x"), None));
    world.queues.home.dispatch(100);
    assert_eq!(allowance(&mut world, "/queue/p/a"), None);
    assert_eq!(allowance(&mut world, "/queue/p/b"), None);
}

#[test]
fn messages_that_would_be_dropped_need_no_allowance() {
    let temporary = crate::destination::full_name(b"/temp-queue/x", &"0".repeat(32));
    for (ttl_ms, worker_topic) in [(0, Some(Allowance::MOST)), (1000, None)] {
        let mut world = World::new(1, Config { ttl_ms, ..Config::default() });
        assert_eq!(world.owners().allowance_of(&temporary), Some(Allowance::MOST), "its owner has gone");
        assert_eq!(world.owners().allowance_of(b"#w"), worker_topic);
        world.attach(subscriber(OWN, 0), worker(b"#w"), frame(1));
        assert_eq!(world.owners().allowance_of(b"#w").map(|it| it.messages), Some(10));
        world.tell(HomeNote::Detach(subscriber(OWN, 0)));
        assert_eq!(world.owners().allowance_of(b"#w"), worker_topic, "without a consumer");
    }
}

#[test]
fn a_queue_behind_reserved_places_allows_nothing() {
    let mut world = World::new(1, Config::default());
    world.attach(subscriber(OWN, 0), queue(b"/queue/a"), frame(1));
    assert!(world.owners().allowance_of(b"/queue/a").is_some());
    world.tell(TransactionNote::Prepare(reservations("/queue/a", 1), frame(2)));
    world.do_jobs();
    assert_eq!(world.owners().allowance_of(b"/queue/a"), None);
    world.tell(TransactionNote::Cancel(2));
    world.do_jobs();
    assert!(world.owners().allowance_of(b"/queue/a").is_some());
}

#[test]
fn a_group_header_on_a_queue_of_several_consumers_is_explained_once() {
    let mut world = World::new(1, Config::default());
    world.turn.log = LogQueue::new(10, Level::Warn);
    let grouped = || {
        let mut grouped = message("/queue/a", "x");
        grouped.grouped = true;
        HomeNote::Enqueue(grouped, None)
    };
    world.attach(subscriber(OWN, 0), queue(b"/queue/a"), frame(1));
    world.tell(grouped());
    world.attach(subscriber(OWN, 1), queue(b"/queue/a"), frame(2));
    (0..2).for_each(|_| world.tell(grouped()));
    let logged = world.turn.log.drain(std::time::Duration::ZERO);
    assert_eq!(logged.len(), 1, "{logged:?}");
    assert!(logged[0].text.contains("JMSXGroupID") && logged[0].text.contains("/queue/a"), "{logged:?}");
}

#[test]
fn a_message_to_a_temporary_queue_that_has_gone_is_counted() {
    let mut world = World::new(1, Config::default());
    let gone = crate::destination::full_name(b"/temp-queue/x", &"0".repeat(32));
    let gone = String::from_utf8(gone).expect("plain letters");
    world.tell(HomeNote::Enqueue(message(&gone, "x"), Some(frame(1))));
    assert_eq!((world.turn.counters.unmatched, world.local()), (1, vec!["applied 1".to_owned()]));
}

#[test]
fn a_worker_topic_without_consumers_has_a_queue_only_if_a_pattern_may_match() {
    let mut world = World::new(1, Config { ttl_ms: 0, ..Config::default() });
    world.tell(HomeNote::Enqueue(message("#w/a", "x"), None));
    assert_eq!((world.find(b"#w/a"), world.turn.counters.unmatched), (None, 1));
    world.attach(subscriber(OWN, 0), Source::Pattern(b"#w/*".as_slice().into()), frame(1));
    world.tell(HomeNote::Enqueue(message("#w/a", "x"), None));
    assert_eq!(world.waiting(b"#w/a"), 1);
}

#[test]
fn an_unmatched_message_goes_to_a_consumer_that_has_come_meanwhile() {
    let mut world = World::new(1, Config { ttl_ms: 1000, ..Config::default() });
    world.owners().unmatched(message("#w", "early"));
    assert!(!world.queues.stale.is_empty());
    world.attach(subscriber(OWN, 0), worker(b"#w"), frame(1));
    world.owners().unmatched(message("#w", "late"));
    assert!(world.waiting(b"#w") >= 1);
    assert_eq!(world.turn.counters.unmatched, 0);
}

#[test]
fn without_a_ttl_a_message_without_subscriber_is_only_counted() {
    let mut world = World::new(1, Config { ttl_ms: 0, ..Config::default() });
    world.tell(HomeNote::Stale(message("t", "x")));
    assert_eq!((world.queues.stale.is_empty(), world.turn.counters.unmatched), (true, 1));
}

#[test]
fn a_returned_message_that_has_expired_is_not_kept() {
    let mut world = World::new(1, Config { ttl_ms: 1000, ..Config::default() });
    world.turn.now_ms = 10;
    let mut late = message("t", "x");
    late.expires_ms = 5;
    world.tell(HomeNote::Stale(late));
    assert_eq!((world.queues.stale.is_empty(), world.turn.counters.expired), (true, 1));
}

#[test]
fn of_too_many_stale_messages_the_oldest_is_dropped() {
    let mut world = World::new(1, Config { ttl_ms: 1000, max_stale_queue_size: 2, ..Config::default() });
    for body in ["a", "b", "c"] {
        world.tell(HomeNote::Stale(message("t", body)));
    }
    assert_eq!(world.turn.counters.dropped, 1);
    let newcomer = Newcomer { key: subscriber(OWN, 0).key, without: 0 };
    world.owners().await_replay(b"t", OWN, newcomer, None);
    world.tell(ReplayNote::More(subscriber(OWN, 0)));
    while world.owners().proceed_with_next_replay() {}
    let told = world.local();
    assert_eq!(told[told.len() - 3..], ["replayed b", "replayed c", "replay end"], "{told:?}");
    assert!(!told.contains(&"replayed a".to_owned()));
    world.tell(HomeNote::DropStale);
    assert_eq!(world.turn.counters.dropped, 1, "there is none left to drop");
}

#[test]
fn a_pattern_is_replayed_what_it_matches_window_by_window() {
    let mut world = World::new(1, Config { ttl_ms: 1000, ..Config::default() });
    for at in 0..100 {
        world.tell(HomeNote::Stale(message(&format!("a.{at}"), "x")));
        world.tell(HomeNote::Stale(message(&format!("b.{at}"), "x")));
    }
    let newcomer = Newcomer { key: subscriber(OWN, 0).key, without: 0 };
    world.owners().await_replay(b"a.*", OWN, newcomer, Some(frame(1)));
    let mut windows = Vec::new();
    loop {
        world.tell(ReplayNote::More(subscriber(OWN, 0)));
        while world.owners().proceed_with_next_replay() {}
        let told = world.local();
        windows.push(told.iter().filter(|it| it.starts_with("replayed")).count());
        if told.last().is_some_and(|last| last == "replay end") {
            assert!(told.contains(&"applied 1".to_owned()), "{told:?}");
            break;
        }
    }
    assert_eq!(windows.iter().sum::<usize>(), 100, "{windows:?}");
    assert!(windows.len() > 1, "{windows:?}");
}

#[test]
fn a_subscription_without_credit_is_confirmed_before_the_end_of_its_replay() {
    let mut world = World::new(1, Config { ttl_ms: 1000, ..Config::default() });
    (0..100).for_each(|_| world.tell(HomeNote::Stale(message("t", "x"))));
    let newcomer = Newcomer { key: subscriber(OWN, 0).key, without: 0 };
    world.owners().await_replay(b"t", OWN, newcomer, Some(frame(1)));
    world.tell(ReplayNote::More(subscriber(OWN, 0)));
    while world.owners().proceed_with_next_replay() {}
    let told = world.local();
    assert!(told.contains(&"replayed x".to_owned()) && !told.contains(&"applied 1".to_owned()), "{told:?}");
    world.tell(ReplayNote::Unacked(subscriber(OWN, 0)));
    assert_eq!(world.local(), ["applied 1"]);
    world.tell(ReplayNote::Stop(subscriber(OWN, 0)));
    assert!(world.local().is_empty() && !world.owners().proceed_with_next_replay());
}

#[test]
fn temporary_queues_are_removed_with_their_owner_over_several_jobs() {
    let mut world = World::new(1, Config::default());
    let names: Vec<String> = (0..1500).map(|at| format!("/temp-queue/{at}")).collect();
    for name in &names {
        let full = crate::destination::full_name(name.as_bytes(), "secret");
        world.owners().create_queue(&full, QueueKind::Temporary).expect("there is room");
    }
    let names = names.iter().map(|name| name.as_bytes().into()).collect();
    world.owners().remove_orphans(Orphans { secret: "secret".to_owned(), names });
    assert!(world.queues.home.named() > 0);
    assert_eq!(world.turn.jobs.pop(), Some(Job::Orphans));
    world.owners().proceed_with_orphans();
    assert_eq!((world.queues.home.named(), world.turn.jobs.is_empty()), (0, true));
    assert_eq!(world.turn.totals.queues.load(Ordering::Relaxed), 0);
}

#[test]
fn a_dead_letter_is_kept_at_its_new_place_before_it_is_forgotten_at_the_old_one() {
    let journal = Journal::fast();
    let mut world = World::new(1, Config { max_deliveries: 1, ..Config::default() });
    world.queues.home = Home::new(&world.turn.config, world.turn.hasher.clone(), journal.handle());
    let mut owned = message("/queue/a", "x");
    owned.persistent = true;
    owned.expires_ms = 10;
    world.tell(HomeNote::Enqueue(owned, None));
    world.queues.home.set_time(10);
    let queue = world.find(b"/queue/a").expect("a queue");
    world.owners().dispatch_at_once(queue);
    assert_eq!(journal.calls().len(), 1, "it has its old record meanwhile");
    world.owners().run_effects();
    let expected =
        [Call::Keep(1, "/queue/a".to_owned()), Call::Keep(2, "/queue/dlq/a".to_owned()), Call::Forget(1)];
    assert_eq!(journal.calls(), expected);
}

#[test]
fn a_dead_letter_that_is_refused_is_forgotten() {
    let journal = Journal::fast();
    let mut world = World::new(1, Config { max_queue_length: 1, ..Config::default() });
    world.queues.home = Home::new(&world.turn.config, world.turn.hasher.clone(), journal.handle());
    world.tell(HomeNote::Enqueue(message("/queue/dlq/a", "full"), None));
    let mut owned = message("/queue/a", "x");
    (owned.persistent, owned.expires_ms) = (true, 10);
    world.tell(HomeNote::Enqueue(owned, None));
    world.queues.home.set_time(10);
    let queue = world.find(b"/queue/a").expect("a queue");
    world.owners().dispatch_at_once(queue);
    world.owners().run_effects();
    assert_eq!(journal.calls(), [Call::Keep(1, "/queue/a".to_owned()), Call::Forget(1)]);
    assert!(Kept::after(&journal.calls()).is_empty());
}

#[test]
fn a_store_may_be_told_to_forget_a_message_before_it_is_told_to_keep_it() {
    let journal = Journal::fast();
    let mut world = World::new(2, Config::default());
    world.queues.home = Home::new(&world.turn.config, world.turn.hasher.clone(), journal.handle());
    world.attach(subscriber(OTHER, 0), queue(b"/queue/a"), frame_of(OTHER, 1));
    let mut owned = message("/queue/a", "x");
    owned.persistent = true;
    world.tell(HomeNote::Enqueue(owned, None));
    let queue = world.find(b"/queue/a").expect("a queue");
    world.owners().dispatch_at_once(queue);
    let delivery = world.notes.take_outgoing().flat_map(|(_, list)| list).find_map(|note| match note {
        Note::Consumer(ConsumerNote::Deliver(delivery)) => Some(delivery),
        _ => None,
    });
    let delivery = delivery.expect("a delivery to the other shard");
    // The other shard has its own handle. A note tells the home about the ACK; it may be merged with other notes.
    journal.handle().forget(delivery.message.record);
    let credit = Credit { messages: 1, bytes: 0 };
    let (consumer, settled_bytes) = (delivery.consumer, delivery.message.size() as u64);
    world.tell(HomeNote::Progress(Progress { queue, consumer, settled: 1, settled_bytes, credit }));
    let told = journal.calls();
    assert_eq!(
        told,
        [Call::Keep(1, "/queue/a".to_owned()), Call::Forget(1)],
        "the home forgets nothing again"
    );
    assert!(Kept::after(&told).is_empty() && Kept::after(told.iter().rev()).is_empty());
}

/// A test double of a store writes a transaction of several homes as one record: the queue and place of each message.
#[test]
fn the_asking_shard_can_write_a_transaction_with_all_its_places() {
    let mut home = World::new(2, Config::default());
    home.tell(HomeNote::Enqueue(message("/queue/a", "x"), None));
    let mut wanted = reservations("/queue/a", 2);
    wanted.push_back(reservations("/queue/b", 1).pop_front().expect("one"));
    home.owners().read(OTHER, TransactionNote::Prepare(wanted, frame_of(OTHER, 1)).into());
    home.turn.jobs.push(Job::Reserve(OTHER, 1));
    home.do_jobs();
    let told = home.notes.take_outgoing().flat_map(|(_, list)| list).find_map(|note| match note {
        Note::Answer(AnswerNote::Reserved(_, 1, places)) => Some(places),
        _ => None,
    });
    let places = told.expect("the places");
    let names = ["/queue/a", "/queue/a", "/queue/b"];
    let record: Vec<(&str, u64)> = names.into_iter().zip([places[0], places[0] + 1, places[1]]).collect();
    let mut messages = PagedDeque::default();
    for (reservation, name) in [(0, "/queue/a"), (0, "/queue/a"), (1, "/queue/b")] {
        let owned = message(name, "placed");
        messages.push_back(Placed { reservation: Some(reservation), retain: None, message: owned });
    }
    home.owners().read(OTHER, TransactionNote::Commit(messages, 1, frame_of(OTHER, 2)).into());
    home.do_jobs();
    home.attach(subscriber(OWN, 0), queue(b"/queue/a"), frame(3));
    home.attach(subscriber(OWN, 1), queue(b"/queue/b"), frame(4));
    home.queues.home.dispatch(10);
    home.owners().run_effects();
    let delivered = std::iter::from_fn(|| home.notes.next_local()).filter_map(|local| match local {
        Local::Note(Note::Consumer(ConsumerNote::Deliver(delivery)))
            if body(&delivery.message) == "placed" =>
        {
            Some((String::from_utf8_lossy(delivery.message.destination()).into_owned(), delivery.message.seq))
        }
        _ => None,
    });
    let mut delivered: Vec<(String, u64)> = delivered.collect();
    delivered.sort();
    assert!(delivered.iter().map(|(name, seq)| (name.as_str(), *seq)).eq(record), "{delivered:?}");
}

#[test]
fn a_queue_can_have_another_order_than_arrival() {
    let mut world = World::new(1, Config::default());
    for text in ["2a", "1a", "2b", "0", "1b"] {
        world.tell(HomeNote::Enqueue(message("/queue/a", text), None));
    }
    let found = world.find(b"/queue/a").expect("a queue");
    world.queues.home.pick_by(found, Priority);
    let (source, requester) = (queue(b"/queue/a"), frame(1));
    let credit = Credit { messages: 3, bytes: 1000 };
    let attach =
        Attach { subscriber: subscriber(OWN, 0), source, credit, requester, offender: Offender::default() };
    world.tell(HomeNote::Attach(Box::new(attach)));
    world.owners().dispatch_at_once(found);
    assert_eq!(world.local(), ["applied 1", "deliver 0", "deliver 1a", "deliver 1b"]);
    world.tell(HomeNote::Enqueue(message("/queue/a", "0late"), None));
    let more = Credit { messages: 3, bytes: 0 };
    world.queues.home.add_credit_of(subscriber(OWN, 0), more);
    world.owners().dispatch_at_once(found);
    assert_eq!(world.local(), ["deliver 0late", "deliver 2a", "deliver 2b"]);
    assert_eq!(world.waiting(b"/queue/a"), 6, "all of them are in flight");
}
