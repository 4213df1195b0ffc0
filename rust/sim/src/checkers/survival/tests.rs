//! Histories with crashes.

use std::time::Duration;

use super::super::Checker;
use super::super::tests::{delivery, message};
use super::atomicity::Atomicity;
use super::recount::Recount;
use super::resumption::Resumption;
use super::sequence::Sequence;
use super::values::Values;
use super::*;
use crate::events::{AckMode, Durable, Message, Request, Subscription, Terms};
use crate::options::DurableName;
use crate::work::Retain;

const QUEUE: &str = "/queue/a";

fn options() -> Options {
    let mut options = Options::new(1, 1);
    (options.config.max_queue_length, options.config.max_queue_bytes) = (u64::MAX, u64::MAX);
    options.config.compat = stompica_broker::config::Compat::None;
    let destination = "/topic/a".to_owned();
    options.keeping.durables = vec![DurableName { scope: None, name: 7, destination }];
    options
}

fn persistent(id: MessageId, destination: &str) -> Message {
    Message { persistent: true, ..message(id, destination) }
}

fn of_queue(id: MessageId) -> Message {
    persistent(id, QUEUE)
}

fn asked(request: Request) -> Vec<Event> {
    vec![Event::Requested(0, request)]
}

fn done(request: Request) -> Vec<Event> {
    vec![Event::Requested(0, request.clone()), Event::Confirmed(0, request)]
}

fn sent(id: MessageId) -> Vec<Event> {
    done(Request::Send(of_queue(id)))
}

fn survivor(id: MessageId) -> Survivor {
    Survivor { queue: QUEUE.to_owned(), place: id, record: id, message: Some(id), ..Survivor::default() }
}

fn crash(survivors: impl IntoIterator<Item = Survivor>) -> Vec<Event> {
    vec![Event::Crashed(Duration::ZERO), Event::Recovered(survivors.into_iter().collect())]
}

fn ack(id: MessageId) -> Request {
    Request::Ack(1, vec![id], None)
}

fn got(id: MessageId, count: u64, redelivered: bool) -> Vec<Event> {
    let delivery = Delivery { redelivered, ..delivery(1, &of_queue(id), count) };
    vec![Event::Delivered(0, delivery)]
}

/// What a checker finds in a history.
fn found(mut checker: impl Checker, history: &[Vec<Event>]) -> Option<String> {
    let mut events = history.iter().flatten();
    events.find_map(|event| checker.see(event, Duration::ZERO).err()).map(|violation| violation.text)
}

fn survival(history: &[Vec<Event>]) -> Option<String> {
    found(Survival::new(&options()), history)
}

#[test]
fn what_was_confirmed_survives_until_it_is_acknowledged() {
    assert_eq!(survival(&[sent(1), crash([survivor(1)])]), None);
    assert!(survival(&[sent(1), crash([])]).is_some_and(|text| text.contains("is lost")));
    assert_eq!(survival(&[asked(Request::Send(of_queue(1))), crash([])]), None, "it was not confirmed");
    assert_eq!(survival(&[sent(1), asked(ack(1)), crash([])]), None, "it may be acknowledged");
    assert_eq!(survival(&[sent(1), asked(ack(1)), crash([survivor(1)])]), None, "or not");
    assert!(survival(&[sent(1), done(ack(1)), crash([survivor(1)])]).is_some());
    assert!(survival(&[sent(1), crash([survivor(1)]), crash([])]).is_some(), "it was there");
    assert!(survival(&[sent(1), crash([survivor(1), survivor(1)])]).is_some(), "twice");
    let late = vec![Event::Crashed(Duration::ZERO), Event::Recovered(Vec::new())];
    let mut checker = Survival::new(&options());
    let mut events = [sent(1), late].concat().into_iter();
    let is_found = events.any(|event| checker.see(&event, Duration::from_secs(1)).is_err());
    assert!(!is_found, "it was confirmed too late");
}

#[test]
fn nothing_returns_that_a_crash_has_not_left() {
    let gone = [asked(Request::Send(of_queue(1))), crash([])].concat();
    assert!(survival(&[gone.clone(), got(1, 1, false)]).is_some());
    assert!(survival(&[gone, crash([survivor(1)])]).is_some());
    let volatile = done(Request::Send(message(1, QUEUE)));
    assert!(survival(&[volatile.clone(), crash([]), got(1, 1, false)]).is_some());
    assert!(survival(&[volatile, crash([survivor(1)])]).is_some());
    let end = vec![Event::Finished(vec![0])];
    let left = [sent(1), crash([survivor(1)])].concat();
    assert!(survival(&[left.clone(), end.clone()]).is_some(), "nobody gets it");
    assert_eq!(survival(&[left, got(1, 1, false), end]), None);
}

#[test]
fn a_transaction_is_whole_after_a_crash() {
    let send = |id| asked(Request::Send(Message { transaction: Some(5), ..of_queue(id) }));
    let acked = asked(Request::Ack(1, vec![1], Some(5)));
    let commit = asked(Request::Commit(5));
    let with = |survivors: &[MessageId], end: &[Event]| {
        let left = survivors.iter().copied().map(survivor);
        found(
            Atomicity::new(&options()),
            &[sent(1), send(2), send(3), acked.clone(), end.to_vec(), crash(left)],
        )
    };
    assert_eq!((with(&[1], &commit), with(&[2, 3], &commit)), (None, None));
    for half in [&[1, 2, 3][..], &[2], &[1, 3]] {
        assert!(with(half, &commit).is_some(), "{half:?}");
    }
    assert!(with(&[2, 3], &[]).is_some(), "there was no COMMIT");
}

#[test]
fn the_order_of_a_queue_survives() {
    let at = |id, place| Survivor { place, ..survivor(id) };
    let both = [sent(1), sent(2)].concat();
    let order = |history: &[Vec<Event>]| found(Sequence::default(), history);
    assert!(order(&[both.clone(), crash([at(2, 1), at(1, 2)])]).is_some());
    let left = [both, crash([at(1, 1), at(2, 2)])].concat();
    assert_eq!(order(&[left.clone(), got(1, 1, false), got(2, 1, false)]), None);
    assert!(order(&[left.clone(), got(2, 1, false), got(1, 1, false)]).is_some());
    assert_eq!(order(&[left, got(2, 1, false), got(1, 2, true)]), None, "it had been delivered before");
}

#[test]
fn deliveries_are_counted_across_crashes() {
    let counted = |deliveries| Survivor { deliveries, ..survivor(1) };
    let recount = |history: &[Vec<Event>]| found(Recount::default(), history);
    let delivered = [sent(1), got(1, 1, false)].concat();
    assert_eq!(recount(&[delivered.clone(), crash([counted(0)])]), None, "nothing later was confirmed");
    assert!(recount(&[delivered.clone(), sent(2), crash([counted(0), survivor(2)])]).is_some());
    assert_eq!(recount(&[delivered.clone(), sent(2), crash([counted(1), survivor(2)])]), None);
    let again = [delivered, crash([counted(1)])].concat();
    assert!(recount(&[again.clone(), got(1, 1, false)]).is_some());
    assert!(recount(&[again.clone(), got(1, 2, false)]).is_some());
    assert_eq!(recount(&[again.clone(), got(1, 2, true)]), None);
    assert!(recount(&[again, crash([counted(0)])]).is_some(), "the log has known it");
}

#[test]
fn durable_subscriptions_survive_with_their_messages() {
    let subscribe = done(Request::Subscribe(Subscription {
        id: 1,
        destination: "/topic/a".to_owned(),
        ack: AckMode::Individual,
        prefetch: None,
        terms: Terms::default(),
        durable: Some(Durable { number: 0, is_shared: true, has_receipt: true }),
    }));
    let (queue, name) = ("definitions\n".to_owned(), "durable\n\n7".to_owned());
    let defined = || Survivor { queue: queue.clone(), name: name.clone(), ..Survivor::default() };
    let kept = || Survivor { queue: name.clone(), ..survivor(1) };
    let send = done(Request::Send(persistent(1, "/topic/a")));
    let with = |history: &[Vec<Event>]| found(Resumption::new(&options()), history);
    assert_eq!(with(&[subscribe.clone(), crash([defined()])]), None);
    assert!(with(&[subscribe.clone(), crash([])]).is_some());
    let end = done(Request::EndDurable(0, Some(1)));
    assert_eq!(with(&[subscribe.clone(), end.clone(), crash([])]), None);
    let both = [subscribe.clone(), send].concat();
    assert!(with(&[both.clone(), crash([defined()])]).is_some());
    assert!(with(&[both.clone(), done(ack(1)), crash([defined(), kept()])]).is_some());
    let left = [both, crash([defined(), kept()])].concat();
    assert!(with(&[left.clone(), vec![Event::Finished(vec![0])]]).is_some());
    let volatile = done(Request::Send(message(1, "/topic/a")));
    let lost = [subscribe.clone(), volatile, crash([defined()]), subscribe].concat();
    assert!(with(&[lost, vec![Event::Delivered(0, delivery(1, &message(1, "/topic/a"), 1))]]).is_some());
}

#[test]
fn the_newest_value_survives() {
    let set = |id| Request::Send(Message { retain: Some(Retain::Set), ..message(id, "/last/1") });
    let value = |id: MessageId| Survivor {
        queue: "retained\n".to_owned(),
        destination: "/last/1".to_owned(),
        ..survivor(id)
    };
    let with = |history: &[Vec<Event>]| found(Values::default(), history);
    assert_eq!(with(&[done(set(1)), crash([value(1)])]), None);
    assert!(with(&[done(set(1)), crash([])]).is_some());
    assert!(with(&[done(set(1)), done(set(2)), crash([value(1)])]).is_some());
    let uncertain = [done(set(1)), asked(set(2))].concat();
    assert_eq!(with(&[uncertain.clone(), crash([value(1)])]), None);
    assert_eq!(with(&[uncertain.clone(), crash([value(1), value(2)])]), None);
    assert!(with(&[uncertain, crash([])]).is_some());
}
