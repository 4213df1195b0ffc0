//! Tests of the queues of a home with the other owners they need, without connections.

#[path = "owners_allowance_tests.rs"]
mod allowance_tests;
#[path = "owners_replay_tests.rs"]
mod replay_tests;
#[path = "owners_transaction_tests.rs"]
mod transaction_tests;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use stompica_proto::ProtocolError;
use stompica_proto::encode::{Message, Offender};
use stompica_proto::error::Code;

use super::allowance::Allowance;
use super::home::Home;
use super::mail::{AnswerNote, Attach, ConsumerNote, HomeNote, MemoryNote, Note, ReplayNote, Source};
use super::notes::{Local, Notes};
use super::orphans::Orphans;
use super::queues::Queues;
use super::stale::StaleCounts;
use super::types::{Credit, GivenBack};
use super::unacked::Origin;
use super::{Owners, QueueKind};
use crate::collections::keyed::Key;
use crate::config::Config;
use crate::ids::{ConnKey, QueueKey, ShardId, Subscriber};
use crate::log::{Level, LogQueue};
use crate::message::OwnedMessage;
use crate::queue::pick::tests::Priority;
use crate::requester::{AnswerTo, Requester, take_lost};
use crate::router::Router;
use crate::store::Memory;
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
        let hasher = crate::door::HashState::default();
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
        self.tell_attach(attach(subscriber, source, requester));
    }

    fn tell_attach(&mut self, attach: Attach) {
        self.tell(HomeNote::Attach(Box::new(attach)));
    }
}

/// A SUBSCRIBE of a queue.
fn attach(subscriber: Subscriber, source: Source, requester: Requester) -> Attach {
    let offender = Offender::default();
    Attach { subscriber, source, credit: CREDIT, requester, offender, without_backlog: None }
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
    OwnedMessage::new(&Message {
        destination,
        id: b"i",
        sender: 7,
        headers: b"",
        plain: true,
        expires_ms: 0,
        body,
    })
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
fn while_memory_is_full_a_consumer_needs_a_queue_with_messages() {
    let mut world = World::new(1, Config::default());
    world.tell(HomeNote::Enqueue(message("/queue/a", "x"), None));
    for (token, name) in [(1, b"/queue/a"), (2, b"/queue/b")] {
        let without_backlog = Some(ProtocolError::new(Code::Memory, "memory is full"));
        let attach = attach(subscriber(OWN, token), queue(name), frame(token.into()));
        world.tell_attach(Attach { without_backlog, ..attach });
    }
    assert_eq!(world.local(), ["applied 1", "refused 2 E-MEMORY"]);
    assert_eq!((world.queues.home.named(), world.find(b"/queue/b")), (1, None));
    world.queues.home.dispatch(10); // nothing waits in it any more
    let without_backlog = Some(ProtocolError::new(Code::Memory, "memory is full"));
    world.tell_attach(Attach { without_backlog, ..attach(subscriber(OWN, 3), queue(b"/queue/a"), frame(3)) });
    assert!(world.local().contains(&"refused 3 E-MEMORY".to_owned()));
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
fn a_queue_is_on_the_list_of_ready_queues_once() {
    let mut world = World::new(1, Config::default());
    for (id, name) in [(1, "/queue/a"), (2, "/queue/b")] {
        world.attach(subscriber(OWN, id), queue(name.as_bytes()), frame(u64::from(id)));
    }
    for _ in 0..3 {
        for name in ["/queue/a", "/queue/b"] {
            world.tell(HomeNote::Enqueue(message(name, "x"), None));
        }
        for name in [b"/queue/a", b"/queue/b"] {
            let found = world.find(name).expect("a queue");
            world.owners().dispatch_at_once(found);
        }
        let ready = &world.queues.home.ready_queues;
        assert!(ready.len() <= 2, "{ready:?}");
    }
}

#[test]
fn a_portion_of_a_long_queue_is_dispatched_at_once() {
    let mut world = World::new(1, Config::default());
    let credit = Credit { messages: 1000, bytes: 100_000 };
    world.tell_attach(Attach { credit, ..attach(subscriber(OWN, 0), queue(b"/queue/a"), frame(1)) });
    (0..200).for_each(|_| world.tell(HomeNote::Enqueue(message("/queue/a", "x"), None)));
    let queue = world.find(b"/queue/a").expect("a queue");
    let dispatched = [(), ()].map(|()| {
        world.owners().dispatch_at_once(queue);
        world.turn.budget.deliveries
    });
    assert_eq!(dispatched, [64, 128]);
    assert!(world.queues.home.has_work(), "the rest is left to the turn");
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
fn a_queue_can_have_another_order_than_arrival() {
    let mut world = World::new(1, Config::default());
    for text in ["2a", "1a", "2b", "0", "1b"] {
        world.tell(HomeNote::Enqueue(message("/queue/a", text), None));
    }
    let found = world.find(b"/queue/a").expect("a queue");
    world.queues.home.pick_by(found, Priority);
    let credit = Credit { messages: 3, bytes: 1000 };
    world.tell_attach(Attach { credit, ..attach(subscriber(OWN, 0), queue(b"/queue/a"), frame(1)) });
    world.owners().dispatch_at_once(found);
    assert_eq!(world.local(), ["applied 1", "deliver 0", "deliver 1a", "deliver 1b"]);
    world.tell(HomeNote::Enqueue(message("/queue/a", "0late"), None));
    let more = Credit { messages: 3, bytes: 0 };
    world.queues.home.add_credit_of(subscriber(OWN, 0), more);
    world.owners().dispatch_at_once(found);
    assert_eq!(world.local(), ["deliver 0late", "deliver 2a", "deliver 2b"]);
    assert_eq!(world.waiting(b"/queue/a"), 6, "all of them are in flight");
}
