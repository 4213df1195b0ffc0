//! Each checker gets a history in which a promise is broken, and the same history without the break.

use std::time::Duration;

use super::Checker;
use stompica_broker::simulated::outside::Written;

use crate::events::{AckMode, Delivery, End, Event, Message, Request, Subscription, Terms};
use crate::frames::Version;
use crate::options::{DurableName, Options};

pub(crate) const QUEUE: &str = "/queue/a";
pub(super) const TOPIC: &str = "/topic/a";

pub(crate) fn message(id: u64, destination: &str) -> Message {
    let (destination, header) = (destination.to_owned(), "a:b".to_owned());
    Message {
        id,
        destination,
        persistent: false,
        expires: None,
        ttl: None,
        max_exceptions: None,
        retain: None,
        transaction: None,
        header,
        body_len: 10,
    }
}

pub(super) fn sent(client: usize, message: Message) -> [Event; 2] {
    let request = Request::Send(message);
    [Event::Requested(client, request.clone()), Event::Confirmed(client, request)]
}

pub(super) fn subscribed(client: usize, id: u64, destination: &str, prefetch: u64) -> [Event; 2] {
    let ack = if destination.starts_with("/queue/") { AckMode::Individual } else { AckMode::Auto };
    let request = Request::Subscribe(Subscription {
        id,
        destination: destination.to_owned(),
        ack,
        prefetch: Some(prefetch),
        terms: Terms::default(),
        durable: None,
    });
    [Event::Requested(client, request.clone()), Event::Confirmed(client, request)]
}

pub(crate) fn delivery(subscription: u64, message: &Message, count: u64) -> Delivery {
    Delivery {
        subscription,
        message: message.id,
        destination: message.destination.clone(),
        retained: false,
        redelivered: count > 1,
        count,
        dead_letter: None,
        dead_count: None,
        original: None,
        message_id: format!("id-{}", message.id),
        written: Written::default(),
        header: Some(message.header.clone()),
        version: Version::V12,
        body: message.body(),
    }
}

pub(super) fn delivered(client: usize, subscription: u64, message: &Message, count: u64) -> Event {
    Event::Delivered(client, delivery(subscription, message, count))
}

/// Whether any checker finds something, and which.
pub(super) fn found(events: impl IntoIterator<Item = Event>) -> Option<&'static str> {
    found_with(&Options::new(1, 1), events.into_iter().map(|event| (Duration::ZERO, event)))
}

/// Does the same with events at times, and these options under the policy `block`.
pub(super) fn found_with(
    options: &Options,
    events: impl IntoIterator<Item = (Duration, Event)>,
) -> Option<&'static str> {
    let mut options = options.clone();
    options.config.slow_consumer = stompica_broker::config::SlowConsumer::Block(Duration::from_secs(1));
    let durable = DurableName { scope: None, name: 1, destination: TOPIC.to_owned() };
    options.keeping.durables = vec![durable];
    let mut checkers: Vec<Box<dyn Checker>> = super::all(&options);
    for (at, event) in events {
        for checker in &mut checkers {
            if let Err(violation) = checker.see(&event, at) {
                return Some(violation.checker);
            }
        }
    }
    None
}

/// Two messages to a queue with a consumer.
fn queue() -> (Vec<Event>, [Message; 2]) {
    let messages = [message(1, QUEUE), message(2, QUEUE)];
    let mut events = subscribed(0, 1, QUEUE, 2).to_vec();
    messages.iter().for_each(|message| events.extend(sent(9, message.clone())));
    (events, messages)
}

#[test]
fn a_message_arrives_as_it_was_sent() {
    let (events, [first, _]) = queue();
    let with = |change: fn(&mut Delivery)| {
        let mut delivery = delivery(1, &first, 1);
        change(&mut delivery);
        found(events.iter().cloned().chain([Event::Delivered(0, delivery)]))
    };
    assert_eq!(with(|_| ()), None);
    assert_eq!(with(|it| it.body[2] ^= 1), Some("content"));
    assert_eq!(with(|it| it.body.truncate(9)), Some("content"));
    assert_eq!(with(|it| it.header = None), Some("content"));
    assert_eq!(with(|it| it.header = Some("a\\cb".to_owned())), Some("content"));
    assert_eq!(with(|it| it.destination = TOPIC.to_owned()), Some("content"));
    assert_eq!(with(|it| it.message = 77), Some("content"));
}

#[test]
fn messages_of_one_publisher_stay_in_order() {
    let (events, [first, second]) = queue();
    let with = |last: [Event; 2]| found(events.iter().cloned().chain(last));
    assert_eq!(with([delivered(0, 1, &first, 1), delivered(0, 1, &second, 1)]), None);
    assert_eq!(with([delivered(0, 1, &second, 1), delivered(0, 1, &first, 1)]), Some("order"));
    assert_eq!(with([delivered(0, 1, &second, 1), delivered(0, 1, &first, 2)]), None, "it was redelivered");
}

#[test]
fn a_topic_s_message_arrives_once_at_each_subscription() {
    let only = message(1, TOPIC);
    let events = [subscribed(0, 1, TOPIC, 9), subscribed(0, 2, TOPIC, 9), sent(9, only.clone())].concat();
    let with = |ids: [u64; 2]| {
        found(
            events
                .iter()
                .cloned()
                .chain(ids.map(|id| delivered(0, id, &only, 1)))
                .chain([Event::Finished(vec![0])]),
        )
    };
    assert_eq!(with([1, 2]), None);
    assert_eq!(with([1, 1]), Some("order"));
    assert_eq!(found(events.iter().cloned().chain([Event::Finished(vec![0])])), Some("loss"));
    assert_eq!(
        found(events.iter().cloned().chain([Event::Finished(vec![])])),
        None,
        "its connection is closed"
    );
}

#[test]
fn a_message_has_one_holder() {
    let (mut events, [first, _]) = queue();
    events.extend(subscribed(3, 1, QUEUE, 2));
    events.extend([delivered(0, 1, &first, 1), delivered(3, 1, &first, 2)]);
    let with = |open: Vec<usize>| found(events.iter().cloned().chain([Event::Finished(open)]));
    assert_eq!(with(vec![0, 3]), Some("holding"));
    let nack = Event::Requested(0, Request::Nack(1, vec![1], None));
    events.insert(events.len() - 1, nack);
    assert_ne!(found(events), Some("holding"));
}

#[test]
fn an_acknowledged_message_never_comes_again() {
    let (mut events, [first, _]) = queue();
    let ack = Request::Ack(1, vec![1], None);
    events.extend([delivered(0, 1, &first, 1), Event::Requested(0, ack.clone())]);
    let again = delivered(0, 1, &first, 2);
    assert_eq!(found(events.iter().cloned().chain([again.clone()])), None, "the ACK may not have arrived");
    events.push(Event::Confirmed(0, ack));
    assert_eq!(found(events.iter().cloned().chain([again])), Some("holding"));
}

#[test]
fn deliveries_are_numbered_and_within_the_prefetch() {
    let (events, [first, second]) = queue();
    let mut odd = delivery(1, &first, 1);
    odd.redelivered = true;
    assert_eq!(found(events.iter().cloned().chain([Event::Delivered(0, odd)])), Some("holding"));
    let third = message(3, QUEUE);
    let more =
        sent(9, third.clone()).into_iter().chain([&first, &second, &third].map(|it| delivered(0, 1, it, 1)));
    assert_eq!(found(events.iter().cloned().chain(more)), Some("holding"), "its prefetch is 2");
}

#[test]
fn a_transaction_takes_effect_with_its_commit() {
    let inside = Message { transaction: Some(5), ..message(1, QUEUE) };
    let mut events = subscribed(0, 1, QUEUE, 2).to_vec();
    events
        .extend([Event::Requested(9, Request::Begin(5)), Event::Requested(9, Request::Send(inside.clone()))]);
    let arrives = delivered(0, 1, &inside, 1);
    assert!(found(events.iter().cloned().chain([arrives.clone()])).is_some());
    events.push(Event::Requested(9, Request::Commit(5)));
    assert_eq!(found(events.iter().cloned().chain([arrives])), None);
    events.push(Event::Confirmed(9, Request::Commit(5)));
    assert_eq!(found(events.into_iter().chain([Event::Finished(vec![])])), Some("loss"));
}

#[test]
fn a_confirmed_message_of_a_queue_is_consumed_in_the_end() {
    let (events, [first, second]) = queue();
    let with = |all: &[&Message]| {
        let acked = |message: &Message| Event::Requested(0, Request::Ack(1, vec![message.id], None));
        let received = all.iter().flat_map(|message| [delivered(0, 1, message, 1), acked(message)]);
        found(events.iter().cloned().chain(received).chain([Event::Finished(vec![])]))
    };
    assert_eq!(with(&[&first, &second]), None);
    assert_eq!(with(&[&first]), Some("loss"));
}

#[test]
fn nothing_waits_beside_a_consumer() {
    let (mut events, [first, second]) = queue();
    events.push(delivered(0, 1, &first, 1));
    let last = subscribed(7, 1, QUEUE, 1).into_iter().chain([delivered(7, 1, &second, 1)]);
    let with =
        |open: Vec<usize>| found(events.iter().cloned().chain([Event::Resting(open)]).chain(last.clone()));
    assert_eq!(with(vec![0]), Some("starvation"));
    assert_eq!(with(vec![]), None);
    let lost = [Event::Ended(0, End::Lost), Event::Released(0)];
    assert_eq!(
        found(events.iter().cloned().chain(lost).chain([Event::Resting(vec![])]).chain(last.clone())),
        None
    );
}

#[test]
fn only_a_subscription_that_acknowledges_may_lose_what_the_store_cannot_read() {
    let only = message(1, TOPIC);
    let with = |ack: AckMode| {
        let events = subscribed(0, 1, TOPIC, 9).map(|event| match event {
            Event::Requested(client, Request::Subscribe(it)) => {
                Event::Requested(client, Request::Subscribe(Subscription { ack, ..it }))
            }
            Event::Confirmed(client, Request::Subscribe(it)) => {
                Event::Confirmed(client, Request::Subscribe(Subscription { ack, ..it }))
            }
            event => event,
        });
        let lost = [Event::Damaged(1), Event::Finished(vec![0])];
        found(events.into_iter().chain(sent(9, only.clone())).chain(lost))
    };
    assert_eq!(with(AckMode::Client), None);
    assert_eq!(with(AckMode::Auto), Some("loss"), "its messages are never paged out");
}
