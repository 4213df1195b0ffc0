//! Mail between shards: each piece is read once, in the order of its sender, and no shard sleeps while it has mail.

mod support;

use std::sync::Arc;
use std::time::Duration;

use loom::thread;
use stompica_broker::interleaved::{
    Events, Incoming, Level, LogQueue, Mail, Mailbox, Next, Poll, ShardId, Shared, Token, Waker,
};
use support::{check, check_that_it_fails};

/// A piece of mail that carries a number.
fn mail(number: u8) -> Mail {
    Mail::Uncongested(ShardId(number))
}

fn number(next: Next) -> u8 {
    match next {
        Next::Mail(Mail::Uncongested(ShardId(number))) => number,
        other => panic!("nobody sent this: {other:?}"),
    }
}

/// What a shard does in its loop, with its mail only: it reads at most `at_once` pieces in a turn, and sleeps when there
/// is no more work.
fn read(poll: &mut Poll, mailbox: &Mailbox, count: usize, at_once: usize) -> Vec<u8> {
    let (mut incoming, mut events) = (Incoming::default(), Events::with_capacity(1));
    let mut read = Vec::new();
    while read.len() < count {
        let timeout = incoming.has_work().then_some(Duration::ZERO);
        poll.poll(&mut events, timeout).expect("a poll");
        incoming.refill(mailbox, 0);
        let pieces = std::iter::from_fn(|| incoming.take_next()).take(at_once);
        read.extend(pieces.map(number));
    }
    read
}

/// Several senders post some pieces each, each piece by itself or (`together`) two at a time.
fn senders_and_an_owner(senders: u8, pieces: u8, together: bool, at_once: usize) {
    let mut poll = Poll::new().expect("a poll");
    let mailbox = Arc::new(Mailbox::new(Waker::new(poll.registry(), Token(0)).expect("a waker")));
    let send = |sender: u8| {
        let mailbox = Arc::clone(&mailbox);
        thread::spawn(move || {
            let numbers: Vec<u8> = (0..pieces).map(|piece| sender * 16 + piece).collect();
            for some in numbers.chunks(if together { 2 } else { 1 }) {
                let mut mails = some.iter().copied().map(mail).collect();
                mailbox.post(&mut mails);
                assert!(mails.is_empty());
            }
        })
    };
    let threads: Vec<_> = (0..senders).map(send).collect();
    let read = read(&mut poll, &mailbox, usize::from(senders * pieces), at_once);
    for sender in 0..senders {
        let numbers = read.iter().filter(|number| *number / 16 == sender).map(|number| number % 16);
        assert!(numbers.eq(0..pieces), "sender {sender}: {read:?}");
    }
    threads.into_iter().for_each(|thread| thread.join().expect("it does not panic"));
    let mut rest = Vec::new();
    mailbox.take(&mut rest);
    assert!(rest.is_empty());
}

fn one_sender() {
    senders_and_an_owner(1, 3, false, 9);
}

fn two_senders() {
    senders_and_an_owner(2, 2, false, 9);
}

fn a_slow_owner() {
    senders_and_an_owner(2, 2, true, 1);
}

/// The clock is set ahead while a shard sleeps.
fn the_clock() {
    let mut poll = Poll::new().expect("a poll");
    let mailbox = Mailbox::new(Waker::new(poll.registry(), Token(0)).expect("a waker"));
    let shared = Arc::new(Shared::new(vec![mailbox], LogQueue::new(1, Level::Error), || ()));
    let sleeping = Arc::clone(&shared);
    let thread = thread::spawn(move || {
        poll.poll(&mut Events::with_capacity(1), None).expect("a poll");
        assert_eq!(sleeping.clock.ahead_ms(), 5);
    });
    shared.advance_clock(Duration::from_millis(5));
    thread.join().expect("it does not panic");
}

#[test]
fn a_clock_that_is_set_ahead_wakes_a_sleeping_shard() {
    check(None, the_clock);
    check_that_it_fails("woken-before-the-clock", the_clock);
}

#[test]
fn no_wake_up_is_lost() {
    check(None, one_sender);
    check(Some(3), two_senders);
    check_that_it_fails("wake-up-forgotten", one_sender);
    check_that_it_fails("wake-up-before-mail", one_sender);
    check_that_it_fails("wake-up-decided-late", two_senders);
}

#[test]
fn mail_keeps_its_order() {
    check_that_it_fails("mail-reordered", one_sender);
}

#[test]
fn a_shard_that_leaves_mail_to_its_next_turn_looks_again() {
    check(Some(3), a_slow_owner);
    check_that_it_fails("late-mail-forgotten", a_slow_owner);
}
