//! Tests of stale messages.

use stompica_proto::encode::Message;

use super::*;

pub(in crate::queue) fn message(destination: &[u8], body: &[u8], expires_ms: u64) -> OwnedMessage {
    let mut message = OwnedMessage::new(&Message {
        destination,
        id: b"i",
        sender: 0,
        headers: b"",
        plain: true,
        expires_ms: 0,
        body,
    });
    message.expires_ms = expires_ms;
    message
}

impl Stale {
    /// Keeps a message as long as it lives.
    pub(in crate::queue) fn keep(&mut self, message: OwnedMessage, messages_max: usize) -> Option<ShardId> {
        let until_ms = message.expires_ms;
        self.hold(message, until_ms, messages_max)
    }
}

/// Takes all messages that match, with at most two visits at a time. Returns their bodies.
fn take(stale: &mut Stale, matches: impl Fn(&[u8]) -> bool) -> Vec<u8> {
    let search = Search::new(b"/", true);
    let (mut place, mut bodies) = (Place::default(), Vec::new());
    loop {
        let mut visits = Visits { count: 0, max: 2 };
        match stale.next_behind(&search, &mut place, &matches, &mut visits) {
            Some(arrival) => bodies.push(stale.take_one(arrival).expect("found").message().body[0]),
            None if visits.is_exhausted() => {}
            None => return bodies,
        }
    }
}

#[test]
fn messages_are_taken_once_in_order_of_arrival_until_they_expire() {
    let counts = Arc::new(StaleCounts::new(2));
    let mut stale = Stale::new(ShardId(0), Arc::clone(&counts));
    let mut other = Stale::new(ShardId(1), Arc::clone(&counts));
    for (number, name) in [b"/b", b"/a", b"/c", b"/a"].into_iter().enumerate() {
        assert!(stale.keep(message(name, &[number as u8], 10 + number as u64), 4).is_none());
    }
    assert_eq!(other.keep(message(b"/d", &[9], 14), 4), Some(ShardId(0)), "the home of the oldest message");
    assert!(stale.take_oldest().is_some() && other.take_oldest().is_some());
    assert!(other.take_oldest().is_none());
    assert!(stale.keep(message(b"/b", &[4], 14), 4).is_none());
    assert_eq!((counts.count.load(Ordering::Relaxed), stale.next_ms()), (4, Some(11)));
    assert_eq!(take(&mut stale, |name| name != b"/c"), [1, 3, 4]);
    assert!(stale.first_to(b"/c").is_some() && stale.first_to(b"/a").is_none());
    assert!(stale.take_expired(11).is_none() && stale.take_expired(12).is_some() && stale.is_empty());
    assert_eq!((counts.count.load(Ordering::Relaxed), stale.next_ms(), stale.by_name.len()), (0, None, 0));
}

#[test]
fn expired_messages_are_removed_and_not_found() {
    let mut stale = Stale::new(ShardId(0), Arc::new(StaleCounts::new(1)));
    for number in 0..5 {
        assert!(stale.keep(message(b"/a", &[number], 10), 9).is_none());
    }
    let first = stale.first_to(b"/a").expect("five are held");
    assert!(stale.holds_for(first, NOBODY, 9) && !stale.holds_for(first, NOBODY, 10));
    let gone = std::iter::from_fn(|| stale.take_expired(10)).map(|message| message.message().body[0]);
    assert!(gone.eq(0..5) && stale.is_empty() && stale.next_ms().is_none());
}

#[test]
fn a_message_that_has_found_a_subscriber_lives_as_long_as_without_a_wait() {
    let mut stale = Stale::new(ShardId(0), Arc::new(StaleCounts::new(1)));
    for (expires_ms, end_ms) in [(0, 10), (20, 10), (7, 7)] {
        assert!(stale.hold(message(b"/a", b"x", expires_ms), 10, 1).is_none());
        let first = stale.first_to(b"/a").expect("one is held");
        assert!(stale.holds_for(first, NOBODY, end_ms - 1) && !stale.holds_for(first, NOBODY, end_ms));
        assert_eq!(stale.take_one(first).map(|message| message.expires_ms), Some(expires_ms));
        assert_eq!(stale.next_ms(), None);
    }
}

#[test]
fn what_is_held_is_counted_as_memory() {
    let mut stale = Stale::new(ShardId(0), Arc::new(StaleCounts::new(1)));
    assert_eq!(stale.held_bytes(), 0);
    for at in 0..10_u8 {
        _ = stale.keep(message(&[b'/', at % 2], b"x", 10), 10);
    }
    assert_eq!(stale.held_bytes(), 10 * ENTRY_BYTES + 2 * NAME_BYTES);
    while stale.take_oldest().is_some() {}
    assert_eq!(stale.held_bytes(), 0);
}

#[test]
fn a_new_arrival_number_is_higher_than_those_of_all_homes() {
    let counts = Arc::new(StaleCounts::new(2));
    let [mut one, mut two] = [0, 1].map(|home| Stale::new(ShardId(home), Arc::clone(&counts)));
    let numbers = [one.next_arrival(), one.next_arrival()];
    assert!(numbers[0] > FIRST_SEQ && numbers[1] > numbers[0]);
    let mut placed = message(b"#w", b"x", 10);
    placed.seq = one.next_arrival();
    assert!(one.keep(placed, 2).is_none() && two.keep(message(b"/a", b"x", 10), 2).is_none());
    assert!(two.first_to(b"/a") > one.first_to(b"#w"));
    assert_eq!(
        one.keep(message(b"/a", b"x", 10), 2),
        Some(ShardId(0)),
        "the one with its own number is older"
    );
    assert!(one.first_to(b"/a") > two.first_to(b"/a"));
}

#[test]
fn a_requeued_message_has_its_old_place() {
    let mut stale = Stale::new(ShardId(0), Arc::new(StaleCounts::new(1)));
    for number in 0..3 {
        assert!(stale.keep(message(b"/a", &[number], 10), 4).is_none());
    }
    let mut taken: Vec<OwnedMessage> = std::iter::from_fn(|| stale.take_oldest()).collect();
    let later = stale.next_arrival();
    assert!(stale.is_empty() && taken.iter().all(|message| message.seq < later));
    for _ in 0..3 {
        assert!(stale.keep(taken.pop().expect("three were held"), 4).is_none());
    }
    assert_eq!(take(&mut stale, |_| true), [0, 1, 2]);
}
