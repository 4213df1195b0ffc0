//! Histories of retained messages, wrong ones and the same without the break.

use std::slice::from_ref;
use std::time::Duration;

use stompica_broker::config::SlowConsumer;

use super::Retained;
use crate::checkers::Checker as _;
use crate::checkers::tests::{delivery, message};
use crate::events::{AckMode, Delivery, End, Event, Message, Request, Subscription, Terms};
use crate::options::{Options, Retained as Use};
use crate::work::Retain;

const TOPIC: &str = "/last/0";

fn found(events: impl IntoIterator<Item = Event>) -> Option<String> {
    let mut options = Options::new(1, 1);
    options.config.slow_consumer = SlowConsumer::Block(Duration::from_secs(1));
    options.config.max_retained = 100_000;
    options.retained = Use { percent: 1, ..Use::default() };
    let mut checker = Retained::new(&options);
    let mut found = events.into_iter().map(|event| checker.see(&event, Duration::ZERO).err());
    found.find_map(|found| found).map(|violation| violation.text)
}

fn requested(client: usize, request: &Request) -> Event {
    Event::Requested(client, told(request))
}

fn confirmed(client: usize, request: &Request) -> Event {
    Event::Confirmed(client, told(request))
}

fn told(request: &Request) -> Request {
    match request {
        Request::Begin(_) | Request::Commit(_) | Request::Disconnect => request.clone(),
        request => Request::Work(Box::new(request.clone())),
    }
}

fn done(client: usize, request: &Request) -> Vec<Event> {
    vec![requested(client, request), confirmed(client, request)]
}

fn value(id: u64, retain: Retain) -> Message {
    Message { retain: Some(retain), ..message(id, TOPIC) }
}

fn send(message: &Message) -> Request {
    Request::Send(message.clone())
}

fn subscribe(ack: AckMode) -> Request {
    let (destination, prefetch) = ("/last/*".to_owned(), None);
    Request::Subscribe(Subscription {
        id: 1,
        destination,
        ack,
        prefetch,
        terms: Terms::default(),
        durable: None,
    })
}

fn live(message: &Message) -> Event {
    Event::Work(0, Box::new(delivery(1, message, 1)))
}

fn retained(message: &Message) -> Event {
    Event::Work(0, Box::new(Delivery { retained: true, ..delivery(1, message, 1) }))
}

/// What is found if these events come between the SUBSCRIBE of a client and its RECEIPT, after those before.
fn found_between(before: &[Vec<Event>], between: &[Event], after: &[Event]) -> Option<String> {
    let own = subscribe(AckMode::Auto);
    let begin = before.concat().into_iter().chain([requested(0, &own)]);
    let events = begin.chain(between.iter().cloned()).chain([confirmed(0, &own)]);
    found(events.chain(after.iter().cloned()))
}

#[test]
fn the_value_comes_before_the_receipt_once() {
    let first = value(1, Retain::Set);
    let set = done(9, &send(&first));
    let found = |between: &[Event], after: &[Event]| found_between(from_ref(&set), between, after);
    assert_eq!(found(&[retained(&first)], &[]), None);
    assert!(found(&[], &[]).is_some_and(|text| text.contains("has not got 1")));
    assert!(found(&[live(&first)], &[]).is_some_and(|text| text.contains("before its SUBSCRIBE")));
    let twice = found(&[retained(&first), retained(&first)], &[]);
    assert!(twice.is_some_and(|text| text.contains("twice")));
    // What is set meanwhile may come instead.
    let second = value(2, Retain::Set);
    let meanwhile = requested(9, &send(&second));
    assert_eq!(found(&[meanwhile.clone(), retained(&second)], &[live(&second)]), None);
    assert_eq!(found(from_ref(&meanwhile), &[]), None, "the value may have been removed");
    let late = found(&[meanwhile, retained(&first)], &[retained(&second)]);
    assert!(late.is_some_and(|text| text.contains("after its RECEIPT")));
}

#[test]
fn a_value_that_was_replaced_or_removed_does_not_come() {
    let first = value(1, Retain::Set);
    for retain in [Retain::Set, Retain::Remove] {
        let second = value(2, retain);
        let found = |publisher: usize, is_confirmed: bool| {
            let mut next = done(publisher, &send(&second));
            next.truncate(1 + usize::from(is_confirmed));
            let rest = (retain == Retain::Set).then(|| retained(&second));
            let between: Vec<Event> = [retained(&first)].into_iter().chain(rest).collect();
            found_between(&[done(9, &send(&first)), next], &between, &[])
        };
        assert!(found(9, true).is_some_and(|text| text.contains("the value before")));
        assert!(found(8, true).is_some());
        assert_eq!(found(8, false), None, "it may come later");
    }
    let never = found_between(&[], &[retained(&message(3, TOPIC))], &[]);
    assert!(never.is_some_and(|text| text.contains("nobody has set it")));
}

#[test]
fn a_commit_sets_values() {
    let first = Message { transaction: Some(5), ..value(1, Retain::Set) };
    let begun = [done(9, &Request::Begin(5)), done(9, &send(&first))].concat();
    let committed = done(9, &Request::Commit(5));
    assert_eq!(found_between(from_ref(&begun), &[], &[]), None);
    assert!(found_between(from_ref(&begun), &[retained(&first)], &[]).is_some(), "it is open");
    assert!(found_between(&[begun.clone(), committed.clone()], &[], &[]).is_some());
    assert_eq!(found_between(&[begun, committed], &[retained(&first)], &[]), None);
}

#[test]
fn a_subscription_that_acknowledges_has_all_values_in_the_end() {
    let first = value(1, Retain::Set);
    let begin = [done(9, &send(&first)), done(0, &subscribe(AckMode::Client))].concat();
    let found = |rest: &[Event]| found(begin.iter().chain(rest).cloned());
    let [resting, finished] = [Event::Resting(vec![0, 9]), Event::Finished(vec![0, 9])];
    assert_eq!(found(&[]), None);
    assert!(found(&[resting.clone(), finished.clone()]).is_some());
    assert_eq!(found(&[retained(&first), resting.clone(), finished.clone()]), None);
    assert_eq!(found(&[Event::Resting(vec![9]), finished.clone()]), None, "it acknowledges nothing");
    let left = requested(0, &Request::Unsubscribe(1));
    assert_eq!(found(&[left, resting.clone(), finished.clone()]), None);
    let second = value(2, Retain::Set);
    let next = requested(9, &send(&second));
    assert_eq!(found(&[next.clone(), resting.clone(), finished.clone()]), None, "the value may have changed");
    assert!(found(&[resting.clone(), next.clone()]).is_some(), "it changed later");
    let set = [next, confirmed(9, &send(&second))];
    let changed = |rest: &[Event]| found(&[&set, rest, &[resting.clone(), finished.clone()]].concat());
    assert!(changed(&[]).is_some_and(|text| text.contains("has not got 2")));
    assert_eq!(changed(&[live(&second)]), None);
    assert_eq!(changed(&[retained(&second)]), None);
}

#[test]
fn live_messages_are_those_of_any_topic() {
    let [first, second] = [1, 2].map(|id| value(id, Retain::Set));
    let sent = [done(9, &send(&first)), done(9, &send(&second))].concat();
    let found = |arrived: &[Event]| {
        let begin = done(0, &subscribe(AckMode::Auto)).into_iter().chain(sent.iter().cloned());
        found(begin.chain(arrived.iter().cloned()))
    };
    assert_eq!(found(&[live(&first), live(&second)]), None);
    assert!(found(&[live(&second), live(&first)]).is_some(), "order");
    assert!(found(&[live(&first), live(&first)]).is_some(), "twice");
    assert!(found(&[live(&second)]).is_some_and(|text| text.starts_with("gaps")), "one is missed");
    let other = Message { header: "b".to_owned(), ..first.clone() };
    assert!(found(&[live(&other)]).is_some_and(|text| text.starts_with("content")));
    assert!(found(&done(0, &Request::Unsubscribe(1))).is_some_and(|text| text.starts_with("farewell")));
}

#[test]
fn nobody_is_refused_while_there_is_room() {
    let refused = Event::Ended(9, End::Closed(Some("E-RETAINED-COUNT".to_owned())));
    assert!(found([refused]).is_some());
}

#[test]
fn a_value_that_is_set_meanwhile_comes_if_another_one_was_retained_before() {
    let first = Message { destination: "/last/1".to_owned(), ..value(1, Retain::Set) };
    let removal = Message { destination: "/last/1".to_owned(), ..value(3, Retain::Remove) };
    let (second, own) = (value(2, Retain::Set), subscribe(AckMode::Auto));
    let found = |before: &[&Message], rest: &[Event]| {
        let values: Vec<Event> = (before.len() == 1).then(|| retained(&first)).into_iter().collect();
        let before: Vec<Event> = before.iter().flat_map(|message| done(9, &send(message))).collect();
        let meanwhile = [vec![requested(0, &own)], done(9, &send(&second))].concat();
        let end = [Event::Resting(vec![0, 9]), Event::Finished(vec![0, 9])];
        found([before, meanwhile, values, vec![confirmed(0, &own)], rest.to_vec(), end.to_vec()].concat())
    };
    assert!(found(&[&first], &[]).is_some_and(|text| text.contains("has not got 2")));
    assert_eq!(found(&[&first], &[live(&second)]), None);
    assert!(found(&[&first, &removal], &[]).is_some_and(|text| text.contains("has not got 2")));
    assert_eq!(found(&[], &[]), None);
}
