use std::sync::atomic::Ordering;

use super::super::incoming::Next;
use super::*;
use crate::collections::keyed::Key;
use crate::config::Config;
use crate::ids::Subscriber;
use crate::log::{Level, LogQueue};
use crate::message::OwnedMessage;
use crate::queue::mail::{ConsumerNote, HomeNote, Note};
use crate::queue::types::Delivery;
use crate::store::Memory;
use crate::totals::Totals;

const OWN: ShardId = ShardId(0);
const OTHER: ShardId = ShardId(1);

/// The owners that `Peers` needs.
struct World {
    peers: Peers,
    notes: Notes,
    home: Home,
    turn: Turn,
}

impl World {
    fn new(config: Config) -> Self {
        let hasher = crate::door::HashState::default();
        let log = LogQueue::new(10, Level::Error);
        World {
            peers: Peers::new(OWN, Mailbox::detached(2)),
            notes: Notes::new(OWN, 2),
            home: Home::new(&config, hasher.clone(), Box::new(Memory)),
            turn: Turn::new(OWN, 2, Arc::new(config), Arc::new(Totals::default()), log, hasher, "e"),
        }
    }

    fn post(&mut self) -> Vec<Mail> {
        self.peers.post(&mut self.notes, &mut self.home, &self.turn);
        let mut mails = Vec::new();
        self.peers.mailboxes[1].take(&mut mails);
        mails
    }

    fn mail(&mut self, fan_out_size: usize) {
        let reach = Reach { remote: OTHER.bit(), fan_out_size, ..Reach::default() };
        self.peers.mail_message(&message(), &reach);
    }
}

fn message() -> Message<'static> {
    Message { destination: b"t", id: b"i", sender: 0, headers: b"", plain: true, expires_ms: 0, body: b"x" }
}

#[test]
fn notes_precede_the_batch_and_both_precede_other_mail() {
    let mut world = World::new(Config::default());
    world.peers.tell_all(Mail::Drained);
    world.mail(0);
    world.notes.tell(OTHER, HomeNote::DropStale);
    let mails = world.post();
    assert!(matches!(mails[..], [Mail::Queue(OWN, _), Mail::Batch(_), Mail::Drained(OWN)]), "{mails:?}");
    assert!(world.peers.have_posted_all() && world.post().is_empty());
}

#[test]
fn a_turn_can_post_its_mail_in_several_parts() {
    let mut world = World::new(Config { max_input_queue_size: 2, ..Config::default() });
    for _ in 0..2 {
        world.peers.tell_all(Mail::Drained);
        world.mail(0);
        world.notes.tell(OTHER, HomeNote::Enqueue(OwnedMessage::new(&message()), None));
        let mails = world.post();
        assert!(matches!(mails[..], [Mail::Queue(OWN, _), Mail::Batch(_), Mail::Drained(OWN)]), "{mails:?}");
        assert_eq!(world.peers.busy.congested, OTHER.bit(), "their frames are counted");
    }
    assert!(world.post().is_empty());
}

#[test]
fn a_posted_batch_counts_as_held_until_it_is_dropped() {
    let mut world = World::new(Config::default());
    world.mail(0);
    let mails = world.post();
    assert!(world.turn.totals.memory.load(Ordering::Relaxed) > 0);
    drop(mails);
    assert_eq!(world.turn.totals.memory.load(Ordering::Relaxed), 0);
}

#[test]
fn a_mailbox_above_its_limit_is_congested_until_it_is_under_half() {
    let mut world = World::new(Config { max_input_queue_size: 4, ..Config::default() });
    (0..2).for_each(|_| world.mail(0));
    world.post();
    assert_eq!(world.peers.busy.congested, 0, "at its limit of 4 / 2");
    let owned = OwnedMessage::new(&message());
    world.notes.tell(OTHER, HomeNote::Enqueue(owned, None));
    world.post();
    assert_eq!(world.peers.busy.congested, OTHER.bit());
    world.peers.has_room(OTHER);
    assert_eq!(world.peers.busy.congested, 0);
}

#[test]
fn a_shard_reports_once_that_its_mailbox_is_under_half() {
    let mut world = World::new(Config { max_input_queue_size: 16, ..Config::default() });
    world.peers.mailboxes[0].add_frames(9);
    for _ in 0..9 {
        world.peers.have_taken(1, &world.turn);
    }
    assert!(matches!(world.post()[..], [Mail::Uncongested(OWN)]));
}

#[test]
fn a_shard_with_many_unread_deliveries_is_closed_until_it_has_read_half() {
    let mut world = World::new(Config::default());
    let key = Key { index: 0, generation: 0 };
    let body = vec![b'x'; 64 * deliveries_max()];
    let message = OwnedMessage::new(&Message { body: &body, ..message() });
    let subscriber = Subscriber { shard: OTHER, key };
    world.notes.deliver(Delivery { subscriber, queue: key, consumer: key, message });
    let mails = world.post();
    assert!(
        matches!(&mails[..], [Mail::Queue(_, notes)] if matches!(notes[..], [Note::Consumer(ConsumerNote::Deliver(_))]))
    );
    assert!(world.home.is_closed(OTHER));
    world.peers.mailboxes[0].add_deliveries(deliveries_max());
    world.peers.have_read(0);
    world.peers.have_read(deliveries_max() / 4);
    assert!(world.post().is_empty(), "less than half is read");
    world.peers.have_read(deliveries_max() / 2);
    assert!(matches!(world.post()[..], [Mail::ReadsOn(OWN)]));
}

#[test]
fn a_shard_with_many_large_fan_outs_accepts_no_more_until_it_has_routed_half() {
    let mut world = World::new(Config::default());
    world.mail(fan_out_work_max() - 1);
    assert!(!world.peers.holds_large_fan_outs(OTHER.bit()));
    world.mail(1);
    assert!(world.peers.holds_large_fan_outs(OTHER.bit()) && !world.peers.holds_large_fan_outs(OWN.bit()));
    world.peers.routes_on(OTHER);
    assert!(!world.peers.holds_large_fan_outs(OTHER.bit()));
    world.post();
    world.peers.mailboxes[0].add_work(fan_out_work_max());
    world.peers.have_routed(fan_out_work_max() / 2);
    assert!(matches!(world.post()[..], [Mail::RoutesOn(OWN)]));
}

#[test]
fn commits_and_waiting_sends_alternate() {
    let mut world = World::new(Config::default());
    let first: Vec<bool> = (0..4)
        .map(|_| {
            world.peers.routes_on(OTHER);
            world.peers.share_room(true);
            std::mem::take(&mut world.peers.busy.sends_first)
        })
        .collect();
    assert_eq!(first, [true, false, true, false]);
    world.peers.routes_on(OTHER);
    world.peers.share_room(false);
    assert!(!world.peers.holds_large_fan_outs(OTHER.bit()), "no SEND waits");
}

#[test]
fn a_message_counts_as_routed_when_its_round_and_all_earlier_ones_are() {
    let mut world = World::new(Config::default());
    assert!(!world.peers.have_all_routed(0), "later mail was not read");
    for _ in 0..2 {
        world.peers.incoming.refill(&Arc::clone(&world.peers.mailboxes)[0], 0);
    }
    assert!(world.peers.have_all_routed(0));
    world.peers.mailboxes[0].post(&mut vec![Mail::Batch(Arc::default())]);
    world.peers.incoming.refill(&Arc::clone(&world.peers.mailboxes)[0], 0);
    assert!(!world.peers.have_all_routed(2), "its mail is unread");
    assert!(matches!(world.peers.incoming.take_next(), Some(Next::Mail(Mail::Batch(_)))));
}
