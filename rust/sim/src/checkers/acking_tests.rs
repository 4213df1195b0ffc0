//! Histories of subscriptions to topics that acknowledge, right and wrong ones.

use stompica_broker::config::SlowConsumer;

use super::*;
use crate::checkers::tests::{delivery, message, sent};
use crate::events::Terms;

const TOPIC: &str = "/topic/a";

/// What the checker finds in these events, behind a subscription with this prefetch and the messages 1 to 3.
fn found(prefetch: u64, events: impl IntoIterator<Item = (u64, Event)>) -> Option<String> {
    let mut options = Options::new(1, 1);
    options.config.slow_consumer = SlowConsumer::Block(Duration::from_secs(1));
    options.config.redelivery_delay = Duration::from_millis(100);
    (options.config.max_deliveries, options.config.ack_timeout_ms) = (2, 0);
    (options.config.max_queue_length, options.config.max_queue_bytes) = (u64::MAX, u64::MAX);
    options.config.max_destinations = 10_000;
    options.config.compat = Compat::None;
    let (destination, prefetch) = (TOPIC.to_owned(), Some(prefetch));
    let (ack, terms) = (AckMode::Individual, Terms::default());
    let subscription = Subscription { id: 1, destination, ack, prefetch, terms, durable: None };
    let begin = [Event::Requested(0, Request::Subscribe(subscription))].into_iter();
    let begin = begin.chain((1..=3).flat_map(|id| sent(9, message(id, TOPIC))));
    let mut checker = Acking::new(&options);
    let mut all = begin.map(|event| (0, event)).chain(events);
    all.find_map(|(ms, event)| checker.see(&event, Duration::from_millis(ms)).err()).map(|it| it.text)
}

fn got(id: MessageId, count: u64, ms: u64) -> (u64, Event) {
    let mut delivery = delivery(1, &message(id, TOPIC), count);
    delivery.written.at = Duration::from_millis(ms);
    (ms, Event::Delivered(0, delivery))
}

fn asked(request: Request) -> (u64, Event) {
    (10, Event::Requested(0, request))
}

#[test]
fn prefetch_bounds_what_a_subscription_to_a_topic_holds() {
    assert!(found(2, [got(1, 1, 0), got(2, 1, 0)]).is_none());
    assert!(found(2, [got(1, 1, 0), got(2, 1, 0), got(3, 1, 0)]).is_some());
    let acked = asked(Request::Ack(1, vec![1], None));
    assert!(found(2, [got(1, 1, 0), got(2, 1, 0), acked, got(3, 1, 20)]).is_none());
    let later = asked(Request::Ack(1, vec![1], Some(7)));
    let held = [got(1, 1, 0), got(2, 1, 0), later.clone(), got(3, 1, 20)];
    assert!(found(2, held).is_some());
    let committed = [got(1, 1, 0), got(2, 1, 0), later, asked(Request::Commit(7)), got(3, 1, 20)];
    assert!(found(2, committed).is_none());
}

#[test]
fn a_message_comes_again_only_behind_a_nack_and_its_delay() {
    let after = |request: Request, count, ms| found(5, [got(1, 1, 0), asked(request), got(1, count, ms)]);
    assert!(after(Request::Nack(1, vec![1], None), 2, 115).is_none());
    assert!(after(Request::Nack(1, vec![1], None), 2, 50).is_some(), "too early");
    assert!(after(Request::Nack(1, vec![1], None), 3, 500).is_some(), "a count is left out");
    assert!(after(Request::Nack(1, vec![1], Some(7)), 2, 500).is_some(), "without COMMIT");
    assert!(after(Request::Ack(1, vec![1], None), 2, 500).is_some());
    assert!(after(Request::Reject(1, vec![1], None), 2, 500).is_some());
    let nack = || asked(Request::Nack(1, vec![1], None));
    let often = [got(1, 1, 0), nack(), got(1, 2, 500), nack(), got(1, 3, 5000)];
    assert!(found(5, often).is_some(), "more often than max_deliveries");
}

#[test]
fn what_was_refused_comes_before_later_messages() {
    let nack = Request::Nack(1, vec![1], None);
    let refused = [got(1, 1, 0), asked(nack.clone()), (20, Event::Confirmed(0, nack))];
    let later = |ms: u64| {
        let mut delivery = delivery(1, &message(2, TOPIC), 1);
        delivery.written.decided_from = Duration::from_millis(ms);
        (ms, Event::Delivered(0, delivery))
    };
    assert!(found(5, refused.clone().into_iter().chain([later(110)])).is_none(), "it waits for its delay");
    assert!(found(5, refused.clone().into_iter().chain([later(200)])).is_some());
    assert!(found(5, refused.into_iter().chain([got(1, 2, 200), later(200)])).is_none());
}

#[test]
fn what_was_refused_comes_again_or_becomes_a_dead_letter() {
    let end = || (9999, Event::Finished(vec![0]));
    let nack = || asked(Request::Nack(1, vec![1], None));
    let reject = || asked(Request::Reject(1, vec![1], None));
    let mut dead = delivery(7, &message(1, "/queue/dlq/topic/a"), 1);
    dead.dead_letter = Some("rejected".to_owned());
    let dead = (500, Event::Delivered(3, dead));
    assert!(found(5, [got(1, 1, 0), nack(), end()]).is_some());
    assert!(found(5, [got(1, 1, 0), nack(), got(1, 2, 500), end()]).is_none());
    assert!(found(5, [got(1, 1, 0), nack(), got(1, 2, 500), nack(), end()]).is_some());
    assert!(found(5, [got(1, 1, 0), reject(), end()]).is_some());
    assert!(found(5, [got(1, 1, 0), reject(), dead, end()]).is_none());
}
