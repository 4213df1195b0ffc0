//! Histories of diagnostics, wrong ones and the same without the break.

use std::time::Duration;

use super::Watching;
use crate::checkers::Checker as _;
use crate::checkers::tests::{message, sent, subscribed};
use crate::events::{Answer, Event, Request, Watch, WatchEvent};
use crate::json::Json;
use crate::options::Options;

fn found(events: impl IntoIterator<Item = (u64, Event)>) -> Option<String> {
    let mut options = Options::new(1, 1);
    options.config.slow_consumer = stompica_broker::config::SlowConsumer::Block(Duration::from_secs(1));
    let mut checker = Watching::new(&options);
    let broken =
        events.into_iter().find_map(|(ms, event)| checker.see(&event, Duration::from_millis(ms)).err());
    broken.map(|violation| violation.text)
}

fn found_at_once(events: impl IntoIterator<Item = Event>) -> Option<String> {
    found(events.into_iter().map(|event| (0, event)))
}

/// A client over TCP and one over WebSocket, with two subscriptions to one topic.
fn clients() -> Vec<Event> {
    let mut events = vec![Event::Connecting(0, false), Event::Connecting(1, true)];
    events.extend([Event::Connected(0), Event::Connected(1)]);
    events.extend(subscribed(0, 1, "/topic/a", 1));
    events.extend(subscribed(1, 1, "/topic/a", 1));
    events
}

fn answer(query: &str, json: &str) -> Answer {
    Answer { query: query.to_owned(), value: Json::parse(json).expect("JSON"), left_out: 0 }
}

/// The client asks by a DIAG frame, which is answered.
fn asked(query: &'static str, json: &str) -> [Event; 2] {
    let told = WatchEvent::Answered(1, answer(query, json));
    [Event::Requested(0, Request::Diagnose(1, query)), Event::Watch(0, told)]
}

#[test]
fn numbers_are_between_what_was_true_before_and_after() {
    let with = |query, json: &str, open: &[usize]| {
        found_at_once([clients(), asked(query, json).to_vec(), vec![Event::Finished(open.to_vec())]].concat())
    };
    let session = |clients: u64, websockets: u64, subscriptions: u64| {
        let connected =
            format!("\"clients\":{clients},\"websockets\":{websockets},\"stomp_connected\":{clients}");
        with("session", &format!("{{{connected},\"subscriptions\":{subscriptions}}}"), &[0, 1])
    };
    assert_eq!(session(2, 1, 2), None);
    assert!(session(3, 1, 2).is_some() && session(2, 2, 2).is_some() && session(2, 1, 3).is_some());
    assert!(session(1, 1, 2).is_some() && session(2, 0, 2).is_some() && session(2, 1, 1).is_some());
    for (query, right, wrong) in [
        ("session-size", "2", ["1", "3"]),
        ("session-encoded-size", "1", ["0", "2"]),
        ("pubsub-size", "1", ["0", "2"]),
        ("subs", "[\"/topic/a\"]", ["[\"/topic/b\"]", "[\"/topic/a\",\"/topic/a\"]"]),
    ] {
        assert_eq!(with(query, right, &[0, 1]), None, "{query}");
        wrong.iter().for_each(|wrong| assert!(with(query, wrong, &[0, 1]).is_some(), "{query} {wrong}"));
    }
    assert_eq!(with("session-size", "1", &[0]), None, "the other one may have been closed before");
    let released = [clients(), vec![Event::Released(1)], asked("session-size", "2").to_vec()].concat();
    assert!(found_at_once(released).is_some(), "one was gone before the question");
}

#[test]
fn a_subscription_counts_again_when_its_id_is_used_again() {
    let end = || [Event::Requested(1, Request::Unsubscribe(1)), Event::Confirmed(1, Request::Unsubscribe(1))];
    let with = |again: &str, count: &str| {
        let mut events = [clients(), end().to_vec()].concat();
        events.extend(subscribed(1, 1, again, 1));
        events.extend(asked("pubsub-size", count));
        events.push(Event::Finished(vec![0, 1]));
        found_at_once(events)
    };
    assert_eq!(with("/topic/a", "1"), None);
    assert_eq!(with("/topic/b", "2"), None);
    assert!(with("/topic/a", "2").is_some() && with("/topic/b", "3").is_some());
    assert!(with("/topic/b", "1").is_some(), "the new one is missing");
}

#[test]
fn rows_are_possible() {
    let with = |query, json: &str| {
        let mut events = clients();
        events.extend(sent(0, message(1, "/queue/a")));
        events.extend(subscribed(1, 7, "/queue/a", 2));
        found_at_once(events.into_iter().chain(asked(query, json)))
    };
    let queue = |size: u64, in_flight: u64, dequeued: u64| {
        let numbers =
            format!("\"size\":{size},\"in_flight\":{in_flight},\"enqueued\":1,\"dequeued\":{dequeued}");
        with("queues", &format!("[{{\"name\":\"/queue/a\",{numbers}}}]"))
    };
    assert_eq!(queue(1, 1, 0), None);
    assert!(queue(2, 1, 0).is_some() && queue(0, 1, 0).is_some() && queue(1, 1, 2).is_some());
    let unacked = |count: u64| {
        let names = "\"subscription\":\"7\",\"destination\":\"/queue/a\"";
        with("ack", &format!("[{{{names},\"in_flight\":{count}}}]"))
    };
    assert_eq!(unacked(2), None);
    assert!(unacked(3).is_some(), "its prefetch is 2");
}

#[test]
fn an_answer_comes_once_and_counters_never_decrease() {
    let network = |bytes: u64| {
        let names = super::facts::COUNTERS
            .map(|name| format!("\"{name}\":{}", if name == "bytes_in" { bytes } else { 0 }));
        format!("{{{}}}", names.join(","))
    };
    let two = |second: u64| {
        let again = Event::Requested(0, Request::Diagnose(2, "network"));
        let told = Event::Watch(0, WatchEvent::Answered(2, answer("network", &network(second))));
        found_at_once(asked("network", &network(7)).into_iter().chain([again, told]))
    };
    assert_eq!(two(7), None);
    assert!(two(6).is_some());
    let [question, told] = asked("store", "{\"kind\":\"memory\"}");
    assert!(found_at_once([question, told.clone(), told]).is_some(), "twice");
}

#[test]
fn the_answer_to_a_send_reaches_each_subscription_once() {
    let watch = Request::Watch(Watch { id: 5, destination: "DIAG/*".to_owned(), pushes: None });
    let query = Request::Query { id: 1, destination: "DIAG/a".to_owned(), query: "store" };
    let begin = [
        Event::Requested(0, watch.clone()),
        Event::Confirmed(0, watch),
        Event::Requested(1, query.clone()),
        Event::Confirmed(1, query),
    ];
    let told = |destination: &str, query: &str| {
        let (answer, destination) = (answer(query, "{\"kind\":\"memory\"}"), destination.to_owned());
        Event::Watch(0, WatchEvent::Told { subscription: 5, asked: Some(1), destination, answer })
    };
    let with = |last: &[Event]| found_at_once(begin.iter().chain(last).cloned());
    let (right, end) = (told("DIAG/a", "store"), Event::Finished(vec![0]));
    assert_eq!(with(&[right.clone(), end.clone()]), None);
    assert!(with(&[end]).is_some(), "lost");
    assert!(with(&[right.clone(), right]).is_some(), "twice");
    assert!(with(&[told("DIAG/b", "store")]).is_some() && with(&[told("DIAG/a", "memory")]).is_some());
}

#[test]
fn periodic_answers_come_neither_early_nor_late() {
    let pushes = Some(("store", Duration::from_millis(100)));
    let watch = Watch { id: 5, destination: "DIAG".to_owned(), pushes };
    let told = |query: &str| WatchEvent::Told {
        subscription: 5,
        asked: None,
        destination: "DIAG".to_owned(),
        answer: answer(query, "{\"kind\":\"memory\"}"),
    };
    let with = |times: &[u64], end: u64| {
        let begin =
            [(0, Event::Requested(0, Request::Watch(watch.clone()))), (0, Event::Watch(0, told("store")))];
        let rest = [(0, Event::WatchBegins(vec![0]))];
        let pushed = times.iter().map(|ms| (*ms, Event::Watch(0, told("store"))));
        found(begin.into_iter().chain(rest).chain(pushed).chain([(end, Event::WatchEnds(vec![0]))]))
    };
    assert_eq!(with(&[100, 200, 300], 300), None);
    assert_eq!(with(&[100, 200], 250), None);
    let late = |ms| {
        let asked = (0, Event::Requested(0, Request::Watch(watch.clone())));
        found([asked, (1, Event::WatchEnds(vec![0])), (ms, Event::Watch(0, told("store")))])
    };
    assert!(late(1000).is_none() && late(700_000).is_some(), "it does not end");
    assert!(with(&[100, 101, 102], 300).is_some(), "too many");
    assert!(with(&[100], 300).is_some(), "too few");
    assert!(found_at_once([Event::Watch(0, told("store"))]).is_some(), "nobody has asked");
    let other = [Event::Requested(0, Request::Watch(watch.clone())), Event::Watch(0, told("memory"))];
    assert!(found_at_once(other).is_some(), "another query");
}
