//! Histories of worker topics and stale messages, wrong ones and the same without the break.

use std::time::Duration;

use super::Workers;
use crate::checkers::Checker as _;
use crate::checkers::tests::{delivery, message};
use crate::events::{AckMode, Delivery, Event, Message, Request, Subscription, Terms};
use crate::options::{Options, Workers as Use};

const WORK: &str = "#work/0";

/// What is found if `TTL` is so long, or (`false`) 0.
fn found(keeps: bool, events: impl IntoIterator<Item = Event>) -> Option<String> {
    let mut options = Options::new(1, 1);
    options.config.ack_timeout_ms = 0;
    options.config.prefetch = 10;
    options.workers = Use { percent: 1, keeps, ..Use::default() };
    let mut checker = Workers::new(&options);
    let mut found = events.into_iter().map(|event| checker.see(&event, Duration::ZERO).err());
    found.find_map(|found| found).map(|violation| violation.text)
}

fn wrapped(request: Request) -> Request {
    Request::Work(Box::new(request))
}

fn done(client: usize, request: Request) -> [Event; 2] {
    let request = wrapped(request);
    [Event::Requested(client, request.clone()), Event::Confirmed(client, request)]
}

fn sent(message: &Message) -> [Event; 2] {
    done(9, Request::Send(message.clone()))
}

fn subscribed(client: usize, destination: &str) -> [Event; 2] {
    let (destination, terms) = (destination.to_owned(), Terms::default());
    let (ack, prefetch, durable) = (AckMode::Individual, Some(1), None);
    done(client, Request::Subscribe(Subscription { id: 1, destination, ack, prefetch, terms, durable }))
}

fn received(client: usize, message: &Message, count: u64) -> Event {
    Event::Work(client, Box::new(delivery(1, message, count)))
}

fn finished() -> Event {
    Event::Finished(vec![0, 1, 2, 9])
}

#[test]
fn a_message_has_one_consumer_at_a_time() {
    let first = message(1, WORK);
    let begin = || [subscribed(0, WORK), subscribed(1, "#work/*"), sent(&first)].concat();
    let next = received(1, &first, 2);
    let history = |between: Vec<Event>| {
        begin().into_iter().chain([received(0, &first, 1)]).chain(between).chain([next.clone(), finished()])
    };
    assert!(found(false, history(Vec::new())).is_some());
    assert_eq!(found(false, history(vec![Event::Released(0)])), None);
    assert_eq!(found(false, history(done(0, Request::Unsubscribe(1)).to_vec())), None);
    let acked = done(0, Request::Ack(1, vec![1], None));
    assert!(
        found(false, history([&acked[..], &[Event::Released(0)]].concat())).is_some(),
        "it was confirmed"
    );
}

#[test]
fn prefetch_order_content_and_redelivered_are_right() {
    let [first, second] = [1, 2].map(|id| message(id, WORK));
    let found = |arrived: &[Event]| {
        let sent = [sent(&first), sent(&second)].concat();
        found(true, [&subscribed(0, WORK)[..], &sent, arrived].concat())
    };
    let acked = wrapped(Request::Ack(1, vec![1], None));
    let between = [received(0, &first, 1), Event::Requested(0, acked), received(0, &second, 1)];
    assert_eq!(found(&between), None);
    assert!(found(&[between[0].clone(), between[2].clone()]).is_some(), "prefetch is 1");
    assert!(found(&[between[2].clone(), between[0].clone()]).is_some(), "order");
    assert!(found(&[received(0, &message(1, "#work/1"), 1)]).is_some(), "another destination");
    let again = Delivery { redelivered: true, ..delivery(1, &first, 1) };
    assert!(found(&[Event::Work(0, Box::new(again))]).is_some(), "the first delivery");
}

#[test]
fn a_message_waits_for_a_consumer_or_is_given_to_the_one_that_is_there() {
    let first = message(1, WORK);
    let alone = || sent(&first).into_iter().chain([finished()]);
    assert!(found(true, alone()).is_some(), "TTL is long");
    assert_eq!(found(false, alone()), None);
    let consumed = |consumer: &str| [&subscribed(0, consumer)[..], &sent(&first), &[finished()]].concat();
    assert!(found(false, consumed("#work/>")).is_some_and(|text| text.contains("nobody got 1")));
    assert_eq!(found(false, consumed("#work/1")), None);
    let left = [subscribed(0, WORK), sent(&first), done(0, Request::Unsubscribe(1))].concat();
    assert_eq!(found(false, left.into_iter().chain([finished()])), None);
    let read = [subscribed(0, WORK), sent(&first)].concat().into_iter().chain([received(0, &first, 1)]);
    assert_eq!(found(false, read.chain([finished()])), None);
}
