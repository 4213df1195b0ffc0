//! Tests of lines of which a part is held as stubs; the store is played here.

#[path = "paged_model_tests.rs"]
mod model_tests;

use stompica_proto::encode::Message;

use super::*;

const WINDOW: Window = Window { messages: 3, bytes: 1000 };

fn message(seq: u64, expires_ms: u64, len: usize) -> OwnedMessage {
    let body = vec![b'b'; len];
    let message = Message {
        destination: b"/queue/a",
        id: b"i",
        sender: 0,
        headers: b"",
        plain: true,
        expires_ms: 0,
        body: &body,
    };
    let mut owned = OwnedMessage::new(&message);
    (owned.seq, owned.expires_ms) = (seq, expires_ms);
    owned
}

/// A line of this many short messages, paged out.
fn line(count: u64) -> Pending {
    let mut pending = Pending::default();
    (1..=count).for_each(|seq| _ = pending.push(message(seq, 0, 1)));
    pending.page_out(WINDOW, usize::MAX, |message| message.seq);
    pending
}

fn next(pending: &mut Pending) -> Option<u64> {
    let first = pending.first().map(|message| message.seq);
    let popped = pending.pop().map(|message| message.seq);
    assert_eq!(first, popped);
    popped
}

fn drain(pending: &mut Pending) -> Vec<u64> {
    std::iter::from_fn(|| next(pending)).collect()
}

fn requests(pending: &mut Pending) -> Vec<u64> {
    std::iter::from_fn(|| pending.load_next(WINDOW)).map(|stub| stub.seq).collect()
}

#[test]
fn only_the_window_stays_loaded_and_nothing_is_requested_while_it_is_full() {
    let mut pending = line(10);
    assert_eq!((pending.len(), pending.stubs(), pending.bytes()), (10, 7, 10 * message(1, 0, 1).size()));
    assert!(requests(&mut pending).is_empty());
    pending.push(message(11, 0, 1));
    assert_eq!(drain(&mut pending), [1, 2, 3], "the newest message waits for those that are not loaded");
    assert!(pending.has_next() && pending.first().is_none());
    assert_eq!(requests(&mut pending), [4, 5, 6]);
    assert!(requests(&mut pending).is_empty());
}

#[test]
fn the_memory_of_expired_stubs_is_counted() {
    let mut pending = line(100);
    for seq in 50..100 {
        pending.expire_stub(seq);
        let paged = pending.paged.as_deref().unwrap();
        assert_eq!(paged.counted, paged.stub_bytes());
    }
}

#[test]
fn a_window_is_bounded_in_bytes_as_well() {
    let mut pending = Pending::default();
    (1..=5).for_each(|seq| _ = pending.push(message(seq, 0, 900)));
    pending.page_out(WINDOW, usize::MAX, |message| message.seq);
    assert_eq!(pending.stubs(), 3);
    assert_eq!((drain(&mut pending), requests(&mut pending)), (vec![1, 2], vec![3, 4]));
}

#[test]
fn messages_may_arrive_in_any_order_and_leave_in_theirs() {
    let mut pending = line(6);
    drain(&mut pending);
    assert_eq!(requests(&mut pending), [4, 5, 6]);
    assert!(pending.arrive(6, Some(message(6, 0, 1))) && pending.arrive(5, Some(message(5, 0, 1))));
    assert_eq!(next(&mut pending), None);
    assert!(pending.arrive(4, Some(message(4, 0, 1))));
    assert!(!pending.is_paged() || pending.stubs() == 0);
    pending.push(message(7, 0, 1));
    assert_eq!(drain(&mut pending), [4, 5, 6, 7]);
    assert_eq!((pending.len(), pending.bytes(), pending.is_paged()), (0, 0, false));
}

#[test]
fn a_message_that_comes_back_is_next_although_others_are_not_loaded() {
    let mut pending = line(6);
    let mut first = pending.pop().expect("it is loaded");
    drain(&mut pending);
    first.deliveries = 1;
    pending.put_back(first);
    assert_eq!(drain(&mut pending), [1]);
}

#[test]
fn a_message_that_cannot_be_read_holds_up_nobody() {
    let mut pending = line(5);
    drain(&mut pending);
    requests(&mut pending);
    assert!(pending.arrive(5, Some(message(5, 0, 1))) && pending.arrive(4, None));
    assert!(!pending.arrive(4, None), "it is gone");
    assert_eq!((drain(&mut pending), pending.len(), pending.bytes()), (vec![5], 0, 0));
}

#[test]
fn messages_that_the_store_cannot_take_stay_loaded_at_their_places() {
    let mut pending = Pending::default();
    (1..=8).for_each(|seq| _ = pending.push(message(seq, 0, 1)));
    let taken = pending.page_out(WINDOW, usize::MAX, |message| if message.seq % 2 == 0 { 0 } else { 7 });
    assert_eq!((taken, pending.stubs(), pending.len()), (5, 2, 8));
    assert_eq!(drain(&mut pending), [1, 2, 3, 4]);
    assert_eq!(requests(&mut pending), [5, 7]);
    pending.arrive(7, Some(message(7, 0, 1)));
    pending.arrive(5, Some(message(5, 0, 1)));
    assert_eq!(drain(&mut pending), [5, 6, 7, 8]);
}

#[test]
fn loaded_messages_before_the_first_stub_are_part_of_the_window() {
    let mut pending = Pending::default();
    (1..=9).for_each(|seq| _ = pending.push(message(seq, 0, 1)));
    // The store cannot take these messages, of which the last is behind all stubs.
    let is_refused = |seq| matches!(seq, 4 | 5 | 9);
    pending.page_out(WINDOW, usize::MAX, |message| if is_refused(message.seq) { 0 } else { message.seq });
    assert_eq!([1, 2, 3].map(|_| next(&mut pending)), [Some(1), Some(2), Some(3)]);
    assert_eq!(requests(&mut pending), [6], "two messages are loaded");
    assert_eq!(drain(&mut pending), [4, 5]);
    assert_eq!(requests(&mut pending), [7, 8]);
}

#[test]
fn a_message_of_a_transaction_stands_at_its_place_among_stubs() {
    let mut pending = Pending::default();
    [1, 2, 3, 5, 7].into_iter().for_each(|seq| _ = pending.push(message(seq, 0, 1)));
    pending.page_out(WINDOW, usize::MAX, |message| message.seq);
    [6, 4, 8].into_iter().for_each(|seq| _ = pending.place(message(seq, 0, 1)));
    assert_eq!(drain(&mut pending), [1, 2, 3, 4]);
    assert_eq!(requests(&mut pending), [5, 7]);
    [5, 7].into_iter().for_each(|seq| _ = pending.arrive(seq, Some(message(seq, 0, 1))));
    assert_eq!(drain(&mut pending), [5, 6, 7, 8]);
}

#[test]
fn a_stub_that_expires_leaves_the_line_without_being_loaded() {
    let mut pending = Pending::default();
    (1..=6).for_each(|seq| _ = pending.push(message(seq, if seq == 5 { 10 } else { 0 }, 1)));
    pending.page_out(WINDOW, usize::MAX, |message| 100 + message.seq);
    assert_eq!((pending.next_ms(), pending.drop_expired_stub()), (Some(10), None));
    let mut expired = Vec::new();
    assert_eq!((pending.advance(10, 9, &mut expired), expired.len(), pending.next_ms()), (1, 0, None));
    assert_eq!((pending.len(), pending.drop_expired_stub(), pending.len()), (6, Some(105), 5));
    drain(&mut pending);
    assert_eq!(requests(&mut pending), [4, 6]);
}

#[test]
fn an_expired_message_that_is_wanted_is_loaded_first_and_expires_then() {
    let mut pending = Pending::default();
    (1..=9).for_each(|seq| _ = pending.push(message(seq, if seq == 8 { 10 } else { 0 }, 1)));
    pending.page_out(WINDOW, usize::MAX, |message| message.seq);
    let mut expired = Vec::new();
    pending.advance(10, 9, &mut expired);
    assert_eq!(requests(&mut pending), [8]);
    pending.arrive(8, Some(message(8, 0, 1)));
    assert_eq!(pending.next_ms(), Some(10));
    pending.advance(10, 9, &mut expired);
    assert_eq!(expired.iter().map(|message| message.seq).collect::<Vec<_>>(), [8]);
    assert_eq!((pending.len(), drain(&mut pending)), (8, vec![1, 2, 3]));
}

#[test]
fn an_expired_message_that_is_loaded_stands_behind_one_that_was_placed_meanwhile() {
    let mut pending = Pending::default();
    (2..=5).for_each(|seq| _ = pending.push(message(seq, 1, 1)));
    pending.page_out(WINDOW, usize::MAX, |message| message.seq);
    let mut expired = Vec::new();
    pending.advance(1, usize::MAX, &mut expired);
    assert_eq!(expired.iter().map(|message| message.seq).collect::<Vec<_>>(), [2, 3, 4]);
    pending.place(message(1, 0, 1));
    assert_eq!(requests(&mut pending), [5]);
    pending.arrive(5, Some(message(5, 0, 1)));
    assert_eq!(drain(&mut pending), [1, 5]);
}

#[test]
fn everything_can_be_dropped_with_its_record_and_the_memory_is_given_back() {
    let before = held::bytes();
    let mut pending = Pending::default();
    for seq in 1..=9 {
        let mut message = message(seq, if seq > 7 { 10 } else { 0 }, 1);
        message.record = 100 + seq;
        pending.push(message);
    }
    let loaded = held::bytes();
    pending.page_out(WINDOW, usize::MAX, |message| message.record);
    assert!(held::bytes() < loaded, "stubs occupy less");
    pending.pop();
    assert_eq!(requests(&mut pending), [4]);
    pending.advance(10, 1, &mut Vec::new());
    let mut dropped: Vec<Dropped> = std::iter::from_fn(|| pending.drop_any()).collect();
    dropped.sort_unstable_by_key(|it| it.record);
    let expected = |record| Dropped { record, was_requested: record == 104 };
    assert_eq!(dropped, (102..=109).map(expected).collect::<Vec<_>>());
    assert_eq!((pending.len(), pending.bytes(), pending.next_ms(), pending.is_paged()), (0, 0, None, false));
    assert!(!pending.arrive(4, Some(message(4, 0, 1))), "it comes too late");
    let mut other = line(100);
    drain(&mut other);
    requests(&mut other);
    drop((pending, other));
    assert_eq!(held::bytes(), before);
}
