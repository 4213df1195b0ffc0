//! Answers of diagnostics as a client reads them.

use std::collections::BTreeMap;

use super::{Client, number};
use crate::events::{Answer, Event, Request, SubscriptionId, Watch, WatchEvent};
use crate::frames::{Frame, Version};
use crate::json::Json;

/// Queries whose answers are headers; those of others are JSON in a body.
const IN_HEADERS: [(&str, &[&str]); 8] = [
    ("session", &["clients", "websockets", "stomp_connected", "subscriptions"]),
    ("ws_buffer", &["allocated", "hits", "misses"]),
    ("stale", &["input-queue-size", "output-queue-size", "stale-queue-size"]),
    ("session-size", &["session-size"]),
    ("session-encoded-size", &["session-encoded-size"]),
    ("session-connected-size", &["session-connected-size"]),
    ("pubsub-size", &["pubsub-size"]),
    ("subs", &["subs"]),
];

/// The subscriptions of one connection to diagnostics.
#[derive(Debug, Default)]
pub struct Watching {
    /// Those that it has.
    pub watches: BTreeMap<SubscriptionId, Watch>,
    /// Ended ones; with `true`, UNSUBSCRIBE is confirmed.
    ended: BTreeMap<SubscriptionId, (Watch, bool)>,
}

impl Watching {
    /// Notes an UNSUBSCRIBE; false if there is no such subscription.
    pub fn end(&mut self, id: SubscriptionId) -> bool {
        let watch = self.watches.remove(&id);
        watch.map(|watch| self.ended.insert(id, (watch, false))).is_some()
    }

    /// Notes a RECEIPT.
    pub(super) fn confirm(&mut self, request: &Request) {
        if let Request::Unsubscribe(id) = request
            && let Some((_, is_confirmed)) = self.ended.get_mut(id)
        {
            *is_confirmed = true;
        }
    }

    fn get(&self, id: SubscriptionId) -> Result<&Watch, String> {
        match (self.watches.get(&id), self.ended.get(&id)) {
            (Some(watch), _) | (None, Some((watch, false))) => Ok(watch),
            (None, Some((_, true))) => {
                Err(format!("an answer for subscription {id} after the RECEIPT of its UNSUBSCRIBE"))
            }
            (None, None) => Err(format!("an answer for the unknown subscription {id}")),
        }
    }
}

impl Client {
    /// Reads a DIAG frame: the answer to the oldest request that is not confirmed.
    pub(super) fn read_diag(&mut self, frame: &Frame, events: &mut Vec<Event>) -> Result<(), String> {
        let Some((_, request @ Request::Diagnose(number, query))) = self.expected.pop_front() else {
            return Err(format!("an answer that nobody has asked for, or too early: {frame:?}"));
        };
        let answer = answer_in_diag(frame, query)?;
        events.push(Event::Watch(self.id, WatchEvent::Answered(number, answer)));
        events.push(Event::Confirmed(self.id, request));
        Ok(())
    }

    /// Reads a MESSAGE of diagnostics; false if it is none.
    pub(super) fn read_watched(&mut self, frame: &Frame, events: &mut Vec<Event>) -> Result<bool, String> {
        let destination = frame.expect("destination")?;
        if !destination.starts_with("DIAG") && destination != "/queue/monitor" {
            return Ok(false);
        }
        let id = number(frame, "subscription")?.ok_or("an answer without subscription")?;
        let watch = self.watching.get(id)?;
        let event = match (number(frame, "ts")?, watch.pushes) {
            (None, Some(("monitor", _))) => WatchEvent::Text(id, rows_of_text(frame)?),
            (None, None) => return Err(format!("a periodic answer that was not requested: {frame:?}")),
            (asked, _) => {
                let destination = destination.to_owned();
                WatchEvent::Told {
                    subscription: id,
                    asked,
                    destination,
                    answer: answer_in_message(frame, self.version)?,
                }
            }
        };
        events.push(Event::Watch(self.id, event));
        Ok(true)
    }
}

fn names_in(text: &str) -> Json {
    let names = text.split(',').filter(|name| !name.trim().is_empty());
    Json::List(names.map(|name| Json::Text(name.to_owned())).collect())
}

fn number_in(text: &str) -> Result<Json, String> {
    text.parse().map(Json::Number).map_err(|_| format!("'{text}' is no number"))
}

fn json_in(frame: &Frame, query: &str) -> Result<Answer, String> {
    if (frame.expect("content-type")?, frame.expect("query")?) != ("application/json", query) {
        return Err(format!("not the answer to {query}: {frame:?}"));
    }
    let text = std::str::from_utf8(&frame.body).map_err(|_| "an answer that is not UTF-8".to_owned())?;
    let left_out = number(frame, "left-out")?.unwrap_or(0);
    Ok(Answer { query: query.to_owned(), value: Json::parse(text)?, left_out })
}

fn answer_in_diag(frame: &Frame, query: &str) -> Result<Answer, String> {
    if !IN_HEADERS.iter().any(|(name, _)| *name == query) {
        return json_in(frame, query);
    }
    let [(name, value)] = &frame.headers[..] else { return Err(format!("not one header: {frame:?}")) };
    if name != query || !frame.body.is_empty() {
        return Err(format!("not the answer to {query}: {frame:?}"));
    }
    let value = match query {
        "subs" => names_in(value),
        "session" | "ws_buffer" | "stale" => Json::parse(value)?,
        _ => number_in(value)?,
    };
    Ok(Answer { query: query.to_owned(), value, left_out: 0 })
}

fn answer_in_message(frame: &Frame, version: Version) -> Result<Answer, String> {
    if let Some(query) = frame.header("query") {
        return json_in(frame, query);
    }
    let query = String::from_utf8_lossy(&frame.body).into_owned();
    let found = IN_HEADERS.iter().find(|(name, _)| *name == query);
    let (_, headers) = found.ok_or_else(|| format!("an answer to an unknown query: {frame:?}"))?;
    let mut members = Vec::new();
    for name in *headers {
        // STOMP 1.0 cannot carry the empty list.
        let may_lack = version == Version::V10 && query == "subs";
        let text = if may_lack { frame.header(name).unwrap_or("") } else { frame.expect(name)? };
        members.push(((*name).to_owned(), if query == "subs" { names_in(text) } else { number_in(text)? }));
    }
    let value = match &mut members[..] {
        [(_, value)] => value.clone(),
        _ => Json::Object(members),
    };
    Ok(Answer { query, value, left_out: 0 })
}

/// The rows of the text of `/queue/monitor`: name, size, dequeued, enqueued.
fn rows_of_text(frame: &Frame) -> Result<Vec<(String, [u64; 3])>, String> {
    let wrong = || format!("not the text of a monitor: {}", crate::frames::shown(&frame.body));
    let text = std::str::from_utf8(&frame.body).map_err(|_| wrong())?;
    let mut rows = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let name = line.strip_prefix("Queue: ").ok_or_else(wrong)?;
        let mut numbers = [0; 3];
        for (number, start) in numbers.iter_mut().zip(["size: ", "dequeued: ", "enqueued: "]) {
            let text = lines.next().and_then(|line| line.strip_prefix(start)).ok_or_else(wrong)?;
            *number = text.parse().map_err(|_| wrong())?;
        }
        if lines.next() != Some("") {
            return Err(wrong());
        }
        rows.push((name.to_owned(), numbers));
    }
    Ok(rows)
}
