//! Histories of what topics keep.

use super::tests::{TOPIC, delivered, found, message, sent};
use crate::events::{AckMode, Durable, End, Event, Message, Request, Subscription, Terms};

/// A SUBSCRIBE that creates or resumes the durable subscription 0.
fn holds(client: usize, is_shared: bool) -> Request {
    Request::Subscribe(Subscription {
        id: 1,
        destination: TOPIC.to_owned(),
        ack: AckMode::Individual,
        prefetch: None,
        terms: Terms::default(),
        durable: Some(Durable { number: 0, is_shared, has_receipt: client != 8 }),
    })
}

fn requested(client: usize, request: Request) -> [Event; 2] {
    [Event::Requested(client, request.clone()), Event::Confirmed(client, request)]
}

fn acknowledged(client: usize, message: &Message) -> Event {
    Event::Requested(client, Request::Ack(1, vec![message.id], None))
}

fn lost(client: usize) -> [Event; 2] {
    [Event::Ended(client, End::Lost), Event::Released(client)]
}

/// A durable subscription that was created and left, and a message that was sent meanwhile.
fn kept() -> (Vec<Event>, Message) {
    let kept = message(1, TOPIC);
    let events = [requested(0, holds(0, true)), lost(0), sent(9, kept.clone())].concat();
    (events, kept)
}

#[test]
fn a_durable_subscription_keeps_what_is_sent_while_its_holder_is_away() {
    let (events, kept) = kept();
    let end = [Event::Finished(vec![1])];
    let with = |more: &[Event]| found(events.iter().chain(more).chain(&end).cloned());
    let returned = requested(1, holds(1, true));
    assert_eq!(with(&returned), Some("durable"));
    let got = [&returned[..], &[delivered(1, 1, &kept, 1)]].concat();
    assert_eq!(with(&got), Some("durable"), "it is not acknowledged");
    assert_eq!(with(&[&got[..], &[acknowledged(1, &kept)]].concat()), None);
    let damaged = |id| [&[Event::Damaged(id)], &returned[..]].concat();
    assert_eq!((with(&damaged(1)), with(&damaged(2))), (None, Some("durable")), "the store cannot read it");
    let over = requested(1, Request::EndDurable(0, None));
    assert_eq!(with(&over), None, "its end discards what it keeps");
}

#[test]
fn what_was_kept_follows_the_receipt() {
    let (events, kept) = kept();
    let first = |client: usize| {
        let more = [Event::Requested(client, holds(client, true)), delivered(client, 1, &kept, 1)];
        found(events.iter().cloned().chain(more))
    };
    assert_eq!(first(1), Some("durable"));
    assert_eq!(first(8), None, "it did not ask for a RECEIPT");
}

#[test]
fn nothing_comes_from_before_the_creation_or_after_the_end() {
    let past = message(1, TOPIC);
    let early = [sent(9, past.clone()), requested(0, holds(0, true))].concat();
    assert_eq!(found(early.into_iter().chain([delivered(0, 1, &past, 1)])), Some("durable"));
    let unconfirmed = |publisher: usize, rivals: &[Event]| {
        let sends = [Event::Requested(publisher, Request::Send(past.clone()))];
        let creates = [rivals, &requested(0, holds(0, true)), &[delivered(0, 1, &past, 1)]].concat();
        found(sends.into_iter().chain(creates))
    };
    assert_eq!(unconfirmed(0, &[]), Some("durable"), "a client's frames are carried out in order");
    assert_eq!(unconfirmed(9, &[]), None, "it may be late");
    assert_eq!(
        unconfirmed(0, &[Event::Requested(1, holds(1, true))]),
        None,
        "another may have created it before"
    );
    let (events, kept) = kept();
    let over = requested(2, Request::EndDurable(0, None));
    let again = requested(1, holds(1, true));
    let discarded = [&over[..], &again[..], &[delivered(1, 1, &kept, 1)]].concat();
    assert_eq!(found(events.iter().cloned().chain(discarded)), Some("durable"));
    let later = message(2, TOPIC);
    let held = [requested(0, holds(0, true)), over, sent(9, later.clone())].concat();
    assert_eq!(found(held.into_iter().chain([delivered(0, 1, &later, 1)])), Some("durable"));
}

#[test]
fn a_durable_subscription_that_is_not_shared_has_one_holder() {
    let with = |shared: [bool; 2], last: Event| {
        let both = [requested(0, holds(0, shared[0])), requested(1, holds(1, shared[1]))].concat();
        found(both.into_iter().chain([last]))
    };
    let rest = || Event::Resting(vec![0, 1]);
    assert_eq!(with([true, true], rest()), None);
    assert_eq!(with([false, true], rest()), Some("durable"));
    assert_eq!(with([true, false], Event::Resting(vec![1])), None);
}

#[test]
fn refusals_have_a_reason() {
    let refused = |code: &str| Event::Ended(1, End::Closed(Some(code.to_owned())));
    let asks = Event::Requested(1, holds(1, false));
    let held = requested(0, holds(0, false));
    let in_use = [&held[..], &[asks.clone(), refused("E-DURABLE-IN-USE")]].concat();
    assert_eq!(found(in_use), None);
    let free = [&held[..], &lost(0)[..], &[asks, refused("E-DURABLE-IN-USE")]].concat();
    assert_eq!(found(free), Some("durable"));
    let ends = [Event::Requested(1, Request::EndDurable(0, None)), refused("E-SUB-UNKNOWN")];
    assert_eq!(found(ends.clone()), None);
    assert_eq!(found(held.into_iter().chain(ends)), Some("durable"));
}

#[test]
fn a_message_of_a_durable_subscription_has_one_holder() {
    let (mut events, kept) = kept();
    events.extend([requested(1, holds(1, true)), requested(2, holds(2, true))].concat());
    events.extend([delivered(1, 1, &kept, 1), delivered(2, 1, &kept, 2), acknowledged(2, &kept)]);
    let with = |open: Vec<usize>| found(events.iter().cloned().chain([Event::Finished(open)]));
    assert_eq!(with(vec![1, 2]), Some("holding"));
    assert_eq!(with(vec![2]), None);
}
