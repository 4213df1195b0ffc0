//! Each checker of time, order and effect gets a wrong history, and the same history without the break.

use std::time::Duration;

use stompica_broker::simulated::outside::Written;

use super::tests::{QUEUE, TOPIC, delivered, delivery, found_with, message, sent, subscribed};
use crate::events::{AckMode, Delivery, Event, Message, MessageId, Request, Subscription, Terms};
use crate::frames::Version;
use crate::options::Options;

const DEAD: &str = "/queue/dlq/a";

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Whether any checker finds something in events at these milliseconds, with prefetch 2, `ack_timeout` and two deliveries
/// with a delay of 100 ms.
fn found(ack_timeout_ms: u64, events: impl IntoIterator<Item = (u64, Event)>) -> Option<&'static str> {
    let mut options = Options::new(1, 1);
    let config = &mut options.config;
    (config.ack_timeout_ms, config.max_deliveries, config.prefetch) = (ack_timeout_ms, 2, 2);
    (config.redelivery_delay, config.max_queue_length, config.max_queue_bytes) =
        (ms(100), u64::MAX, u64::MAX);
    found_with(&options, events.into_iter().map(|(at, event)| (ms(at), event)))
}

/// A delivery that was written and decided at this time.
fn at(client: usize, at_ms: u64, delivery: Delivery) -> (u64, Event) {
    let at = ms(at_ms);
    let written = Written { at, encoded_from: at, decided_from: at };
    (at_ms, Event::Delivered(client, Delivery { written, ..delivery }))
}

fn dead(message: &Message, reason: &str, count: u64) -> Delivery {
    Delivery {
        destination: DEAD.to_owned(),
        dead_letter: Some(reason.to_owned()),
        dead_count: Some(count),
        original: Some(QUEUE.to_owned()),
        ..delivery(1, message, 1)
    }
}

fn nack(messages: &[MessageId]) -> Event {
    Event::Requested(0, Request::Nack(1, messages.to_vec(), None))
}

fn all(at: u64, events: impl IntoIterator<Item = Event>) -> Vec<(u64, Event)> {
    events.into_iter().map(|event| (at, event)).collect()
}

/// A consumer (client 0), one of dead letters (client 1), and a message.
fn begin(message: &Message) -> Vec<(u64, Event)> {
    let mut events = all(0, subscribed(0, 1, QUEUE, 2));
    events.extend(all(0, subscribed(1, 1, DEAD, 2)));
    events.extend(all(0, sent(9, message.clone())));
    events
}

#[test]
fn an_expired_message_is_not_delivered() {
    let absolute = Message { expires: Some(ms(50)), ..message(1, QUEUE) };
    let with = |message: &Message, last: (u64, Event)| found(0, begin(message).into_iter().chain([last]));
    assert_eq!(with(&absolute, at(0, 49, delivery(1, &absolute, 1))), None);
    assert_eq!(with(&absolute, at(0, 60, delivery(1, &absolute, 1))), Some("expiry"));
    assert_eq!(with(&absolute, at(1, 51, dead(&absolute, "expired", 0))), None);
    assert_eq!(with(&absolute, at(1, 40, dead(&absolute, "expired", 0))), Some("expiry"));
    let relative = Message { ttl: Some(ms(50)), ..absolute };
    assert_eq!(
        with(&relative, at(0, 60, delivery(1, &relative, 1))),
        Some("expiry"),
        "its arrival is confirmed"
    );
    let late = Event::Delivered(0, delivery(1, &relative, 1));
    assert_eq!(with(&relative, (90, late)), None, "it may have been on its way for long");
}

#[test]
fn a_message_that_waits_for_credit_expires() {
    let last = Message { expires: Some(ms(50)), ..message(3, QUEUE) };
    let mut events = begin(&message(1, QUEUE));
    events.extend(all(0, sent(9, message(2, QUEUE)).into_iter().chain(sent(9, last.clone()))));
    events
        .extend([at(0, 1, delivery(1, &message(1, QUEUE), 1)), at(0, 1, delivery(1, &message(2, QUEUE), 1))]);
    let early = Written { at: ms(70), encoded_from: ms(1), decided_from: ms(1) };
    let third = Event::Delivered(0, Delivery { written: early, ..delivery(1, &last, 1) });
    let with = |ack_ms: u64| {
        let ack = (ack_ms, Event::Requested(0, Request::Ack(1, vec![1], None)));
        found(0, events.iter().cloned().chain([ack, (70, third.clone())]))
    };
    assert_eq!((with(10), with(60)), (None, Some("expiry")));
}

#[test]
fn a_refused_message_comes_after_its_delay_and_a_lost_one_at_once() {
    let only = message(1, QUEUE);
    let mut events = begin(&only);
    events.push(at(0, 10, delivery(1, &only, 1)));
    let with = |end: Event, again_ms: u64| {
        let last = [(20, end), at(0, again_ms, delivery(1, &only, 2)), (500, Event::Finished(vec![0]))];
        let ack = (300, Event::Requested(0, Request::Ack(1, vec![1], None)));
        let [end, again, finished] = last;
        found(0, events.iter().cloned().chain([end, again, ack, finished]))
    };
    assert_eq!(with(nack(&[1]), 120), None);
    assert_eq!(with(nack(&[1]), 110), Some("redelivery"));
    let left = Event::Requested(0, Request::Unsubscribe(1));
    assert_eq!(with(left, 30), None);
}

#[test]
fn a_message_that_is_not_acknowledged_in_time_comes_again() {
    let only = message(1, QUEUE);
    let mut events = begin(&only);
    events.extend(all(0, subscribed(2, 1, QUEUE, 2)));
    events.push(at(0, 10, delivery(1, &only, 1)));
    let with = |again_ms: u64| {
        let last = [
            at(2, again_ms, delivery(1, &only, 2)),
            (900, Event::Requested(2, Request::Ack(1, vec![1], None))),
        ];
        let last = last.into_iter().chain([(999, Event::Finished(vec![0, 2]))]);
        found(50, events.iter().cloned().chain(last))
    };
    assert_eq!((with(161), with(150)), (None, Some("redelivery")));
    assert!(with(40).is_some(), "it was held");
}

#[test]
fn a_dead_letter_tells_the_truth_and_comes_once() {
    let only = message(1, QUEUE);
    let mut events = begin(&only);
    events.extend([at(0, 10, delivery(1, &only, 1)), (20, nack(&[1]))]);
    events.extend([at(0, 130, delivery(1, &only, 2)), (140, nack(&[1]))]);
    let with = |letter: Delivery| found(0, events.iter().cloned().chain([at(1, 150, letter)]));
    let right = dead(&only, "max-deliveries", 2);
    assert_eq!(with(right.clone()), None);
    for (reason, count) in
        [("max-deliveries", 1), ("rejected", 2), ("max-exceptions", 2), ("expired", 2), ("odd", 2)]
    {
        assert!(with(dead(&only, reason, count)).is_some(), "{reason} {count}");
    }
    assert_eq!(with(Delivery { original: None, ..right.clone() }), Some("redelivery"));
    let twice = [at(1, 150, right.clone()), at(1, 160, right)];
    assert!(found(0, events.iter().cloned().chain(twice)).is_some());
    let early: Vec<_> = events.iter().take(events.len() - 2).cloned().collect();
    assert_eq!(
        found(0, early.into_iter().chain([at(1, 150, dead(&only, "max-deliveries", 1))])),
        Some("redelivery"),
        "two failures are needed"
    );
}

#[test]
fn after_the_last_failure_nothing_comes() {
    let only = message(1, QUEUE);
    let mut events = begin(&only);
    let refused = |at_ms: u64, count: u64| {
        let confirmed = Event::Confirmed(0, Request::Nack(1, vec![1], None));
        [at(0, at_ms, delivery(1, &only, count)), (at_ms + 1, nack(&[1])), (at_ms + 2, confirmed)]
    };
    events.extend(refused(10, 1).into_iter().chain(refused(130, 2)));
    assert_eq!(
        found(0, events.iter().cloned().chain([at(0, 900, delivery(1, &only, 3))])),
        Some("redelivery")
    );
}

#[test]
fn a_queue_is_in_order_over_all_publishers() {
    let (first, second) = (message(1, QUEUE), message(2, QUEUE));
    let mut events = begin(&first);
    events.extend(all(1, subscribed(3, 1, QUEUE, 2)));
    events.extend(all(5, sent(8, second.clone())));
    let with = |last: [(u64, Event); 2]| found(0, events.iter().cloned().chain(last));
    let (one, two) = (delivery(1, &first, 1), delivery(1, &second, 1));
    assert_eq!(with([at(0, 10, one.clone()), at(0, 11, two.clone())]), None);
    assert_eq!(with([at(0, 10, two.clone()), at(0, 11, one.clone())]), Some("order"));
    assert_eq!(with([at(3, 10, two.clone()), at(0, 20, one.clone())]), Some("order"), "another consumer");
    // The consumer of the first one is lost: it goes to its old place, in front of the second one.
    events.extend([at(3, 6, one), (7, Event::Released(3))]);
    let again = delivery(1, &first, 2);
    assert_eq!(
        found(0, events.iter().cloned().chain([at(0, 10, two.clone()), at(0, 11, again.clone())])),
        Some("order")
    );
    assert_eq!(found(0, events.iter().cloned().chain([at(0, 10, again), at(0, 11, two)])), None);
}

#[test]
fn a_connection_gets_a_publisher_s_messages_to_topics_in_order() {
    let other = "/topic/b";
    let mut events = all(0, subscribed(0, 1, TOPIC, 9).into_iter().chain(subscribed(0, 2, other, 9)));
    let (first, second) = (message(1, TOPIC), message(2, other));
    events.extend(all(0, sent(9, first.clone()).into_iter().chain(sent(9, second.clone()))));
    let (one, two) = (delivered(0, 1, &first, 1), delivered(0, 2, &second, 1));
    let with = |last: [Event; 2]| found(0, events.iter().cloned().chain(all(1, last)));
    assert_eq!(with([one.clone(), two.clone()]), None);
    assert_eq!(with([two, one]), Some("order"));
}

#[test]
fn a_message_id_names_one_message() {
    let (first, second) = (message(1, QUEUE), message(2, QUEUE));
    let mut events = begin(&first);
    events.extend(all(0, sent(9, second.clone())));
    let with = |id: &str| {
        let other = Delivery { message_id: id.to_owned(), ..delivery(1, &second, 1) };
        found(
            0,
            events.iter().cloned().chain([(1, delivered(0, 1, &first, 1)), (1, Event::Delivered(0, other))]),
        )
    };
    assert_eq!((with("id-2"), with("id-1")), (None, Some("identity")));
}

#[test]
fn a_late_nack_of_stomp_1_1_may_refuse_one_later_delivery() {
    let only = message(1, QUEUE);
    let with = |version: Version, ack: AckMode, nacks: &[u64], times: &[u64]| {
        let terms = Terms { max_deliveries: Some(9), ..Terms::default() };
        let destination = QUEUE.to_owned();
        let subscription = Subscription { id: 1, destination, ack, prefetch: None, terms, durable: None };
        let mut events = vec![(0, Event::Requested(0, Request::Subscribe(subscription)))];
        events.extend(all(0, sent(9, only.clone())));
        let number = |(before, at_ms): (usize, &u64)| {
            at(0, *at_ms, Delivery { version, ..delivery(1, &only, before as u64 + 1) })
        };
        events.extend(times.iter().enumerate().map(number));
        events.extend(nacks.iter().map(|at| (*at, nack(&[1]))));
        events.sort_by_key(|(at, _)| *at);
        let ack = Event::Requested(0, Request::Ack(1, vec![1], None));
        found(3000, events.into_iter().chain([(4000, ack), (5000, Event::Finished(vec![0]))]))
    };
    let times = [10, 3200, 3500];
    for ack in [AckMode::Individual, AckMode::Client] {
        assert_eq!(with(Version::V11, ack, &[3100], &times), None);
        assert_eq!(with(Version::V12, ack, &[3100], &times), Some("holding"), "it names the delivery");
        assert_eq!(with(Version::V11, ack, &[], &times), Some("holding"));
    }
    let more = [10, 3200, 3500, 3900];
    assert_eq!(with(Version::V11, AckMode::Individual, &[3100], &more), Some("holding"), "only one of them");
    let early = [10, 3200, 3350];
    assert_eq!(
        with(Version::V11, AckMode::Individual, &[3100], &early),
        Some("redelivery"),
        "its delay is 200 ms"
    );
}

#[test]
fn credit_has_a_default_and_may_be_in_bytes() {
    let messages = [message(1, QUEUE), message(2, QUEUE), message(3, QUEUE)];
    let with = |prefetch: Option<u64>, window: Option<u64>| {
        let terms = Terms { window, ..Terms::default() };
        let destination = QUEUE.to_owned();
        let subscription =
            Subscription { id: 1, destination, ack: AckMode::Individual, prefetch, terms, durable: None };
        let mut events = vec![(0, Event::Requested(0, Request::Subscribe(subscription)))];
        for message in &messages {
            events.extend(all(0, sent(9, message.clone())));
            events.push((1, delivered(0, 1, message, 1)));
        }
        found(0, events)
    };
    assert_eq!(with(Some(3), None), None);
    assert_eq!(with(None, None), Some("holding"), "the setting is 2");
    assert_eq!((with(Some(9), Some(21)), with(Some(9), Some(20))), (None, Some("holding")));
}

#[test]
fn what_was_written_to_a_lost_consumer_may_be_missing_and_nothing_else() {
    let messages = [message(1, QUEUE), message(2, QUEUE)];
    let subscription = Subscription {
        id: 1,
        destination: QUEUE.to_owned(),
        ack: AckMode::Auto,
        prefetch: None,
        terms: Terms::default(),
        durable: None,
    };
    let mut events = vec![(0, Event::Requested(0, Request::Subscribe(subscription)))];
    messages.iter().for_each(|message| events.extend(all(0, sent(9, message.clone()))));
    events.push((1, delivered(0, 1, &messages[0], 1)));
    events.push((2, Event::Ended(0, crate::events::End::Lost)));
    let finished = (3, Event::Finished(vec![]));
    assert_eq!(found(0, events.iter().cloned().chain([finished.clone()])), Some("loss"));
    assert_eq!(found(0, events.iter().cloned().chain([(2, Event::Unread(0, 1, 2)), finished])), None);
}

#[test]
fn an_acknowledgement_that_is_undone_lets_the_message_come_again() {
    let only = message(1, QUEUE);
    let mut events = begin(&only);
    events.push(at(0, 1, delivery(1, &only, 1)));
    let ack = Request::Ack(1, vec![1], Some(7));
    events.push((2, Event::Requested(0, Request::Begin(7))));
    events.push((2, Event::Requested(0, ack.clone())));
    let with = |last: Vec<Event>| found(0, events.iter().cloned().chain(all(3, last)));
    assert_eq!(with(vec![Event::Requested(0, Request::Abort(7)), Event::Finished(vec![])]), Some("loss"));
    assert_eq!(with(vec![Event::Requested(0, Request::Commit(7)), Event::Finished(vec![])]), None);
    // A message of the transaction arrives, and what it acknowledged, too.
    let inside = Message { transaction: Some(7), ..message(2, QUEUE) };
    let both = |confirmed: bool| {
        let mut last = vec![Event::Requested(0, Request::Send(inside.clone()))];
        last.extend(confirmed.then(|| Event::Confirmed(0, ack.clone())));
        last.extend([Event::Requested(0, Request::Commit(7)), Event::Released(0)]);
        last.extend(subscribed(3, 1, QUEUE, 2));
        last.extend([delivered(3, 1, &only, 2), delivered(3, 1, &inside, 1)]);
        with(last)
    };
    assert_eq!(both(true), Some("transactions"));
    assert_eq!(both(false), None, "nothing tells that the ACK was in time");
}

#[test]
fn an_acknowledgement_in_a_transaction_means_the_delivery_that_came_before_it() {
    let mut options = Options::new(1, 1);
    let config = &mut options.config;
    (config.ack_timeout_ms, config.max_deliveries, config.redelivery_delay) = (50, 10, ms(0));
    (config.max_queue_length, config.max_queue_bytes) = (u64::MAX, u64::MAX);
    let (only, inside) = (message(1, QUEUE), Message { transaction: Some(7), ..message(2, QUEUE) });
    let ack = Request::Ack(1, vec![1], Some(7));
    let with = |requested_ms: u64| {
        let mut events = begin(&only);
        events.push(at(0, 1, delivery(1, &only, 1)));
        let mut later = all(2, [Event::Requested(0, Request::Begin(7))]);
        later.push(at(0, 60, delivery(1, &only, 2)));
        later.extend(all(61, [Event::Requested(0, Request::Send(inside.clone()))]));
        later.push((70, Event::Confirmed(0, ack.clone())));
        later.push((71, Event::Requested(0, Request::Commit(7))));
        later.extend(all(72, subscribed(3, 1, QUEUE, 2)));
        later.extend([at(3, 73, delivery(1, &inside, 1)), at(0, 120, delivery(1, &only, 3))]);
        later.push((requested_ms, Event::Requested(0, ack.clone())));
        later.sort_by_key(|(at, _)| *at);
        events.extend(later);
        found_with(&options, events.into_iter().map(|(at, event)| (ms(at), event)))
    };
    assert_eq!(with(40), None, "it meant the first delivery, which was taken back");
    assert_eq!(with(65), Some("transactions"));
}
