//! Tests of transactions, and of the calls of a store.

use super::*;
use crate::collections::paged_deque::PagedDeque;
use crate::queue::mail::{Placed, Reservation, TransactionNote};
use crate::queue::types::{FIRST_SEQ, Progress};
use crate::store::double::{Call, Journal, Kept};

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
    messages.push_back(Placed { reservation: Some(0), message: message("/queue/a", "placed") });
    world.tell(TransactionNote::Commit(messages, 1, frame(3)));
    world.do_jobs();
    world.owners().dispatch_at_once(found);
    assert_eq!(world.local(), ["applied 3", "deliver placed", "deliver later"]);
}

#[test]
fn messages_of_a_transaction_that_are_placed_count_once() {
    let mut world = World::new(1, Config { max_queue_length: 3, ..Config::default() });
    world.tell(TransactionNote::Prepare(reservations("/queue/a", 2), frame(1)));
    world.do_jobs();
    let mut messages = PagedDeque::default();
    for body in ["1", "2"] {
        messages.push_back(Placed { reservation: Some(0), message: message("/queue/a", body) });
    }
    world.tell(TransactionNote::Commit(messages, 1, frame(2)));
    world.owners().proceed_with_reservation((OWN, 1)); // all are placed, and the rest follows in the next turn
    world.tell(HomeNote::Enqueue(message("/queue/a", "3"), Some(frame(3))));
    world.tell(HomeNote::Enqueue(message("/queue/a", "4"), Some(frame(4))));
    world.do_jobs();
    let first = FIRST_SEQ;
    let expected = [
        format!("reserved 1 [{first}]"),
        "applied 3".into(),
        "refused 4 E-QUEUE-FULL".into(),
        "applied 2".into(),
    ];
    assert_eq!((world.local(), world.waiting(b"/queue/a")), (expected.to_vec(), 3));
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
        messages.push_back(Placed { reservation: Some(reservation), message: owned });
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
