//! Numbers that all shards share. All are relaxed: none says anything about other memory, and each change is one step.

mod support;

use std::sync::Arc;

use loom::thread;
use stompica_broker::interleaved::{
    AtomicI64, Batch, MemoryGauge, Once, Ordering, OwnedMessage, Retained, RetainedCount, ShardId, Stale,
    StaleCounts, held_bytes,
};
use stompica_proto::encode::Message;
use support::{check, check_that_it_fails};

fn message<'a>(destination: &'a [u8], body: &'a [u8]) -> Message<'a> {
    Message { destination, id: b"i", sender: 0, headers: b"", plain: true, expires_ms: 0, body }
}

/// Messages that one thread creates and another one drops, and a batch that two threads read.
fn memory() {
    let memory = Arc::new(AtomicI64::new(0));
    let mut batch = Batch::default();
    batch.push(&message(b"/t", b"x"), 0b110, 0);
    batch.count_in(&memory);
    let batch = Arc::new(batch);
    let read = |_| {
        let (memory, batch, received) =
            (Arc::clone(&memory), Arc::clone(&batch), OwnedMessage::new(&message(b"/queue/a", b"x")));
        thread::spawn(move || {
            let mut gauge = MemoryGauge::default();
            drop(received);
            gauge.count(held_bytes(), &memory);
            drop(batch);
        })
    };
    let threads = [0, 1].map(read);
    drop(batch);
    MemoryGauge::default().count(held_bytes(), &memory);
    threads.into_iter().for_each(|thread| thread.join().expect("it does not panic"));
    assert_eq!(memory.load(Ordering::Relaxed), 0);
}

#[test]
fn the_memory_of_all_shards_is_the_sum_of_their_parts() {
    check(None, memory);
    check_that_it_fails("memory-torn", memory);
    check_that_it_fails("batch-counted-forever", memory);
}

fn hint() {
    let once = Arc::new(Once::default());
    let ask = |_| {
        let once = Arc::clone(&once);
        thread::spawn(move || once.is_first())
    };
    let threads = [0, 1].map(ask);
    let others = threads.into_iter().map(|thread| thread.join().expect("it does not panic"));
    let firsts = others.filter(|is_first| *is_first).count() + usize::from(once.is_first());
    assert_eq!(firsts, 1);
}

#[test]
fn a_hint_is_logged_once() {
    check(None, hint);
    check_that_it_fails("first-twice", hint);
}

/// Two homes want the last room for a retained message.
fn last_room() {
    let count = Arc::new(RetainedCount::default());
    let reserve = |name: &'static [u8]| {
        let mut retained = Retained::new(Arc::clone(&count));
        thread::spawn(move || {
            let reserved = retained.reserve_for(name, 1);
            if reserved.is_some() {
                retained.set(OwnedMessage::new(&message(name, b"x")));
            }
            reserved
        })
    };
    let threads = [reserve(b"/t/a"), reserve(b"/t/b")];
    let mut reserved = threads.map(|thread| thread.join().expect("it does not panic"));
    reserved.sort_unstable();
    assert_eq!(reserved, [None, Some(true)]);
    assert_eq!(count.get(), 1);
}

/// A home replaces its retained message while another one asks for room.
fn replacement() {
    let count = Arc::new(RetainedCount::default());
    let set = |retained: &mut Retained| {
        assert!(retained.reserve_for(b"/t/a", 1).is_some(), "it is the only one");
        retained.set(OwnedMessage::new(&message(b"/t/a", b"x")));
    };
    let (mut own, mut other) = (Retained::new(Arc::clone(&count)), Retained::new(Arc::clone(&count)));
    set(&mut own);
    let thread = thread::spawn(move || assert_eq!(other.reserve_for(b"/t/b", 1), None));
    set(&mut own);
    thread.join().expect("it does not panic");
    assert_eq!(count.get(), 1);
    assert!(own.remove(b"/t/a") && count.get() == 0);
}

#[test]
fn retained_messages_keep_to_their_limit() {
    check(None, last_room);
    check(None, replacement);
    check_that_it_fails("room-checked-before", last_room);
    check_that_it_fails("room-given-up-meanwhile", replacement);
}

/// Two homes keep stale messages, three in all, where two are the limit.
fn stale() {
    let counts = Arc::new(StaleCounts::new(3));
    let hold = |home: u8, names: &'static [&'static [u8]]| {
        let mut stale = Stale::new(ShardId(home), Arc::clone(&counts));
        thread::spawn(move || {
            let hold = |name| stale.hold(OwnedMessage::new(&message(name, b"x")), 1, 2);
            let told: Vec<ShardId> = names.iter().copied().filter_map(hold).collect();
            (stale, told)
        })
    };
    let threads = [hold(0, &[b"/a", b"/b"]), hold(1, &[b"/c"])];
    let [(mut one, told), (mut two, told_too)] =
        threads.map(|thread| thread.join().expect("it does not panic"));
    let last = one.first_to(b"/b").max(two.first_to(b"/c")).expect("they are held");
    let next = Stale::new(ShardId(2), Arc::clone(&counts)).next_arrival();
    assert!(last < next, "{last}, {next}");
    let told = [told, told_too].concat();
    assert_eq!(told.len(), 1, "one is too many");
    let dropped = if told[0] == ShardId(0) { one.take_oldest() } else { two.take_oldest() };
    assert!(dropped.is_some() && one.over(2).is_none() && one.everywhere() == 2);
}

#[test]
fn one_home_drops_the_stale_message_that_is_too_many() {
    check(None, stale);
    check_that_it_fails("arrival-torn", stale);
}
