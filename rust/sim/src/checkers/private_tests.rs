//! Histories of temporary destinations, wrong ones and the same without the break.

use std::time::Duration;

use super::Private;
use crate::checkers::Checker as _;
use crate::checkers::tests::{delivery, message};
use crate::events::{Event, Message, PrivateEvent, Request};
use crate::options::Options;

const QUEUE: &str = "/temp-queue/x";
const ADDRESS: &str = "/temp-queue/0123456789abcdef0123456789abcdef/x";
const OTHER: &str = "/temp-queue/1123456789abcdef0123456789abcdef/x";

fn found(events: impl IntoIterator<Item = Event>) -> Option<String> {
    let mut checker = Private::new(&Options::new(1, 1));
    events
        .into_iter()
        .find_map(|event| checker.see(&event, Duration::ZERO).err())
        .map(|violation| violation.text)
}

/// A client asks with message `id`, and another one gets this address.
fn asked(client: usize, id: u64, address: &str) -> [Event; 2] {
    let asked = PrivateEvent::Asked { message: id, name: QUEUE.to_owned() };
    let address = PrivateEvent::Addressed { message: id, address: address.to_owned() };
    [Event::Private(client, asked), Event::Private(9, address)]
}

fn answered(answer: &Message) -> [Event; 2] {
    let request = Request::Answer(answer.clone());
    [Event::Requested(9, request.clone()), Event::Confirmed(9, request)]
}

fn received(client: usize, answer: &Message) -> Event {
    let mut delivery = delivery(0, answer, 1);
    delivery.destination = QUEUE.to_owned();
    Event::Private(client, PrivateEvent::Received(Box::new(delivery)))
}

#[test]
fn an_answer_reaches_its_owner_once_and_in_order() {
    let [first, second] = [message(11, ADDRESS), message(12, ADDRESS)];
    let begin = [asked(0, 1, ADDRESS), asked(3, 2, OTHER), answered(&first), answered(&second)].concat();
    let with = |last: &[Event]| found(begin.iter().chain(last).cloned());
    let (one, two) = (received(0, &first), received(0, &second));
    let end = Event::Finished(vec![0, 3]);
    assert_eq!(with(&[one.clone(), two.clone(), end.clone()]), None);
    assert!(with(&[one.clone(), end.clone()]).is_some(), "the second one is lost");
    assert_eq!(with(&[one.clone(), Event::Damaged(12), end.clone()]), None, "the store cannot read it");
    assert!(with(&[one.clone(), Event::Damaged(11), end]).is_some());
    assert_eq!(with(&[one.clone(), Event::Finished(vec![3])]), None, "its owner has gone");
    assert!(with(&[one.clone(), one.clone()]).is_some(), "twice");
    assert!(with(&[two.clone(), one.clone()]).is_some(), "late");
    assert!(with(&[received(3, &first)]).is_some(), "a connection that uses the same name");
    let mut shown = received(0, &first);
    if let Event::Private(_, PrivateEvent::Received(delivery)) = &mut shown {
        delivery.destination = ADDRESS.to_owned();
    }
    assert!(with(&[shown]).is_some(), "the owner sees its own name");
}

#[test]
fn an_address_belongs_to_one_connection_and_does_not_change() {
    assert_eq!(found([asked(0, 1, ADDRESS), asked(0, 2, ADDRESS), asked(3, 3, OTHER)].concat()), None);
    assert!(found([asked(0, 1, ADDRESS), asked(3, 3, ADDRESS)].concat()).is_some());
    assert!(found([asked(0, 1, ADDRESS), asked(0, 2, OTHER)].concat()).is_some());
    assert!(found(asked(0, 1, QUEUE)).is_some(), "it was not rewritten");
}

#[test]
fn a_queue_ends_with_its_connection() {
    let with = |open: Vec<usize>, name: &str| {
        let end = [Event::Kept(vec![name.to_owned(), "/queue/a".to_owned()]), Event::Finished(open)];
        found(asked(0, 1, ADDRESS).into_iter().chain(end))
    };
    assert_eq!(with(vec![0], ADDRESS), None);
    assert!(with(vec![9], ADDRESS).is_some());
    assert_eq!(with(vec![0], OTHER), None, "nobody has learned this one");
    assert!(with(vec![9], OTHER).is_some());
}

#[test]
fn an_answer_of_a_transaction_waits_for_its_commit() {
    let answer = Message { transaction: Some(5), ..message(11, ADDRESS) };
    let mut events = [asked(0, 1, ADDRESS), answered(&answer)].concat();
    let arrives = received(0, &answer);
    assert!(found(events.iter().cloned().chain([arrives.clone()])).is_some());
    events.push(Event::Requested(9, Request::Commit(5)));
    assert_eq!(found(events.iter().cloned().chain([arrives])), None);
    assert_eq!(found(events.iter().cloned().chain([Event::Finished(vec![0])])), None);
    events.push(Event::Confirmed(9, Request::Commit(5)));
    assert!(found(events.into_iter().chain([Event::Finished(vec![0])])).is_some());
}
