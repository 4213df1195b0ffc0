//! Histories for the checkers of the store and of drains, with a broken promise and without it.

use std::time::Duration;

use super::Checker as _;
use super::drain::Drain;
use super::durability::Durability;
use super::tests::delivered;
use crate::events::{AckMode, Change, Event, Message, MessageId, Request, Subscription, Terms};
use crate::options::Options;

fn message(id: MessageId, transaction: Option<u64>) -> Message {
    let (destination, header) = ("/queue/a".to_owned(), String::new());
    Message { persistent: true, transaction, header, body_len: 9, ..super::tests::message(id, &destination) }
}

/// The first violation, if there is one.
fn found(events: impl IntoIterator<Item = Event>) -> Option<String> {
    let mut options = Options::new(1, 1);
    (options.store.is_durable, options.store.log) = (true, None);
    (options.config.max_queue_length, options.config.max_queue_bytes) = (u64::MAX, u64::MAX);
    let mut checker = Durability::new(&options);
    events.into_iter().find_map(|event| checker.see(&event, Duration::ZERO).err()).map(|found| found.text)
}

fn kept(record: u64, message: MessageId) -> Change {
    Change::Kept { record, queue: "/queue/a".to_owned(), message: Some(message) }
}

fn written(changes: &[Change]) -> Event {
    Event::Written(changes.to_vec())
}

fn both(request: Request) -> [Event; 2] {
    [Event::Requested(1, request.clone()), Event::Confirmed(1, request)]
}

fn acked(id: MessageId) -> [Event; 2] {
    both(Request::Ack(1, vec![id], None))
}

#[test]
fn a_persistent_message_is_written_before_its_receipt() {
    let [requested, confirmed] = both(Request::Send(message(1, None)));
    let write = written(&[kept(1, 1)]);
    assert_eq!(found([requested.clone(), write.clone(), confirmed.clone()]), None);
    assert!(found([requested.clone(), confirmed.clone()]).is_some());
    let auto = Subscription {
        id: 1,
        destination: "/queue/a".to_owned(),
        ack: AckMode::Auto,
        prefetch: None,
        terms: Terms::default(),
        durable: None,
    };
    let consumed = Event::Requested(2, Request::Subscribe(auto));
    assert_eq!(found([consumed, requested, confirmed]), None, "it may be consumed already");
}

#[test]
fn a_record_goes_only_once_its_message_is_consumed() {
    let requested = Event::Requested(1, Request::Send(message(1, None)));
    let [ack, confirmed] = acked(1);
    let (write, gone) = (written(&[kept(1, 1)]), written(&[Change::Forgotten(1)]));
    let all = [requested.clone(), write.clone(), ack.clone(), gone.clone(), confirmed.clone()];
    assert_eq!(found(all), None);
    assert!(found([requested.clone(), write.clone(), gone.clone()]).is_some());
    assert!(found([requested.clone(), write.clone(), ack.clone(), confirmed.clone()]).is_some());
    assert_eq!(found([requested.clone(), ack.clone(), gone, write, confirmed.clone()]), None, "a tombstone");
    let again = written(&[kept(2, 1)]);
    assert!(found([requested, ack, confirmed, again]).is_some(), "it would be delivered again");
}

#[test]
fn a_message_may_fail_only_once_it_can_have_been_taken_back() {
    let found_at = |ms: u64, has_room: bool| {
        let mut options = Options::new(1, 1);
        (options.config.ack_timeout_ms, options.config.max_destinations) = (100, usize::MAX);
        let most = if has_room { u64::MAX } else { 3 };
        (options.config.max_queue_length, options.config.max_queue_bytes) = (most, u64::MAX);
        let mut checker = Durability::new(&options);
        let sent = Event::Requested(1, Request::Send(message(1, None)));
        let events = [(0, sent), (0, written(&[kept(1, 1)])), (ms, written(&[Change::Forgotten(1)]))];
        events.into_iter().any(|(ms, event)| checker.see(&event, Duration::from_millis(ms)).is_err())
    };
    assert!(!found_at(100, false), "there is no room for its dead letter");
    assert!(found_at(90, false) && found_at(100, true));
}

#[test]
fn a_transaction_is_written_as_a_whole() {
    let begin = [
        Event::Requested(1, Request::Send(message(1, None))),
        written(&[kept(1, 1)]),
        Event::Requested(1, Request::Send(message(2, Some(7)))),
        Event::Requested(1, Request::Send(message(3, Some(7)))),
        Event::Requested(1, Request::Ack(1, vec![1], Some(7))),
        Event::Requested(1, Request::Commit(7)),
    ];
    let with = |last: &[Event]| found(begin.iter().chain(last).cloned());
    let confirmed = Event::Confirmed(1, Request::Commit(7));
    let all = [kept(2, 2), kept(3, 3), Change::Forgotten(1)];
    assert_eq!(with(&[written(&all), confirmed.clone()]), None);
    assert!(with(&[confirmed]).is_some());
    assert!(with(&[written(&all[..1])]).is_some());
    assert!(with(&[written(&all[..2])]).is_some());
}

#[test]
fn nothing_is_left_in_the_store_when_everything_is_consumed() {
    let begin = [Event::Requested(1, Request::Send(message(1, None))), written(&[kept(1, 1)])];
    let with = |last: Event| found(begin.iter().cloned().chain([last, Event::Finished(Vec::new())]));
    assert!(with(Event::Resting(Vec::new())).is_some());
    assert_eq!(with(Event::Damaged(1)), None);
    assert_eq!(with(Event::StoreFailed), None);
}

#[test]
fn what_was_delivered_is_answered_before_a_drain_ends() {
    let request = Request::Send(message(1, None));
    let with = |is_delivered: bool, missing: Vec<Request>| {
        let missing = missing.into_iter().map(|request| (1, request)).collect();
        let delivered = Some(delivered(2, 1, &message(1, None), 1)).filter(|_| is_delivered);
        let mut checker = Drain::default();
        delivered
            .into_iter()
            .chain([Event::Drained(missing)])
            .any(|event| checker.see(&event, Duration::ZERO).is_err())
    };
    assert!(with(true, vec![request.clone()]));
    assert!(!with(false, vec![request]), "it may not have arrived");
    assert!(!with(true, Vec::new()));
}
