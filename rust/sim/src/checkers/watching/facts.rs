//! What clients know about the numbers in an answer.

use std::collections::{BTreeMap, BTreeSet};

use super::super::broken;
use crate::events::{Answer, ClientId, Event, PrivateEvent, Request, Violation};
use crate::json::Json;
use crate::options::Options;

/// A position in the history of events.
type Place = u64;

/// When a question was asked.
#[derive(Clone, Debug)]
pub(super) struct Moment {
    at: Place,
    /// The largest counters that any client knew.
    counters: BTreeMap<String, u64>,
}

#[derive(Debug, Default)]
struct Known {
    is_websocket: bool,
    connected: Option<Place>,
    released: Option<Place>,
}

/// A subscription.
#[derive(Debug)]
struct Subscribed {
    name: String,
    confirmed: Option<Place>,
    ends: Option<Place>,
    ended: Option<Place>,
    prefetch: Option<u64>,
}

/// Least numbers of an answer, which hold if the clients that count are open until the end.
#[derive(Debug)]
struct Least {
    answer: Answer,
    asked: Place,
    answered: Place,
}

/// Counters: they never decrease, with an exception.
pub(super) const COUNTERS: [&str; 12] = [
    "bytes_in",
    "bytes_out",
    "frames_in",
    "messages_in",
    "deliveries",
    "reads",
    "writes",
    "accepted",
    "refused",
    "closed",
    "errors",
    "dropped",
];

/// What is known at each moment.
#[derive(Debug)]
pub(super) struct Facts {
    writers: u64,
    memory_limit: u64,
    /// Rows are left out for lack of room or memory, which most answers do not tell.
    is_tight: bool,
    place: Place,
    clients: BTreeMap<ClientId, Known>,
    /// The subscriptions of a client with an id, which it uses again once it has unsubscribed.
    subscribed: BTreeMap<(ClientId, String), Vec<Subscribed>>,
    counters: BTreeMap<String, u64>,
    /// The number of messages sent to each queue.
    sent: BTreeMap<String, u64>,
    least: Vec<Least>,
}

impl Facts {
    pub(super) fn new(options: &Options) -> Self {
        Facts {
            writers: options.config.writers as u64,
            memory_limit: options.config.memory_limit,
            is_tight: options.config.memory_limit < 16 << 20 || options.config.outbox_limit < 1 << 20,
            place: 0,
            clients: BTreeMap::new(),
            subscribed: BTreeMap::new(),
            counters: BTreeMap::new(),
            sent: BTreeMap::new(),
            least: Vec::new(),
        }
    }

    pub(super) fn moment(&self, query: &str) -> Moment {
        let counters = if query == "network" { self.counters.clone() } else { BTreeMap::new() };
        Moment { at: self.place, counters }
    }

    fn subscribe(&mut self, client: ClientId, id: String, name: &str, prefetch: Option<u64>) {
        let new = Subscribed { name: name.to_owned(), confirmed: None, ends: None, ended: None, prefetch };
        let all = self.subscribed.entry((client, id)).or_default();
        if all.last().is_none_or(|last| last.ends.is_some()) {
            all.push(new);
        }
    }

    /// Follows connections, subscriptions and messages.
    pub(super) fn see(&mut self, event: &Event) {
        self.place += 1;
        let place = self.place;
        match event {
            Event::Connecting(client, is_websocket) => {
                self.clients.entry(*client).or_default().is_websocket = *is_websocket;
            }
            Event::Connected(client) => self.clients.entry(*client).or_default().connected = Some(place),
            Event::Released(client) => self.clients.entry(*client).or_default().released = Some(place),
            Event::Requested(client, request) => match request {
                Request::Subscribe(it) => {
                    self.subscribe(*client, it.id.to_string(), &it.destination, it.prefetch)
                }
                Request::SubscribeOwn(id, name) => self.subscribe(*client, id.to_string(), name, None),
                Request::Watch(watch) => {
                    self.subscribe(*client, watch.id.to_string(), &watch.destination, None)
                }
                Request::Unsubscribe(id) => {
                    let all = self.subscribed.entry((*client, id.to_string())).or_default();
                    all.last_mut().into_iter().for_each(|last| last.ends = Some(place));
                }
                Request::Send(message) | Request::Answer(message) => {
                    *self.sent.entry(message.destination.clone()).or_default() += 1;
                }
                _ => {}
            },
            Event::Confirmed(client, request) => {
                let id = match request {
                    Request::Subscribe(it) => it.id,
                    Request::SubscribeOwn(id, _) | Request::Unsubscribe(id) => *id,
                    Request::Watch(watch) => watch.id,
                    _ => return,
                };
                // RECEIPTs come in order. One of which none was asked for counts as arrived with that of a later frame.
                let all = self.subscribed.entry((*client, id.to_string())).or_default();
                if matches!(request, Request::Unsubscribe(_)) {
                    let ended = all.iter_mut().find(|it| it.ends.is_some() && it.ended.is_none());
                    ended.into_iter().for_each(|it| it.ended = Some(place));
                } else {
                    let begun = all.iter_mut().find(|it| it.confirmed.is_none());
                    begun.into_iter().for_each(|it| it.confirmed = Some(place));
                }
            }
            Event::Private(client, PrivateEvent::Asked { name, .. }) => {
                self.subscribe(*client, name.clone(), name, None);
            }
            _ => {}
        }
    }

    /// Whether a client may have been there at some time from this place on.
    fn may_be_there(&self, client: ClientId, from: Place) -> bool {
        self.clients.get(&client).is_some_and(|known| known.released.is_none_or(|released| released > from))
    }

    fn most_clients(&self, from: Place, only_websockets: bool) -> u64 {
        let there = |(client, known): &(&ClientId, &Known)| {
            self.may_be_there(**client, from) && (known.is_websocket || !only_websockets)
        };
        self.clients.iter().filter(there).count() as u64
    }

    fn all_subscribed(&self) -> impl Iterator<Item = (ClientId, &Subscribed)> {
        self.subscribed.iter().flat_map(|((client, _), all)| all.iter().map(|it| (*client, it)))
    }

    fn most_subscriptions(&self, from: Place) -> impl Iterator<Item = &Subscribed> {
        let may_exist = move |(client, it): &(ClientId, &Subscribed)| {
            self.may_be_there(*client, from) && it.ended.is_none_or(|ended| ended > from)
        };
        self.all_subscribed().filter(may_exist).map(|(_, it)| it)
    }

    /// Compares an answer that has just come with what is known.
    pub(super) fn compare(&mut self, asked: &Moment, answer: &Answer) -> Result<(), Violation> {
        let wrong = match &*answer.query {
            "network" => self.compare_counters(asked, &answer.value),
            "shards" => self.compare_shards(&answer.value),
            "memory" => {
                (answer.value.number("limit_bytes") != Some(self.memory_limit)).then_some("limit_bytes")
            }
            "queues" => self.compare_queues(&answer.value),
            "ack" => self.compare_unacked(&answer.value),
            "subs" => self.compare_names(&answer.value),
            "store" => answer.value.text("kind").is_none().then_some("kind"),
            "ws_buffer" => {
                (answer.value.number("allocated") != answer.value.number("misses")).then_some("misses")
            }
            _ => self.compare_counts(asked.at, answer),
        };
        if let Some(what) = wrong {
            return broken("watching", format!("{what} is wrong in {answer:?}"));
        }
        self.least.push(Least { answer: answer.clone(), asked: asked.at, answered: self.place });
        Ok(())
    }

    fn compare_counts(&self, from: Place, answer: &Answer) -> Option<&'static str> {
        for (name, number) in counts(answer) {
            let most = match name {
                "websockets" => self.most_clients(from, true),
                "subscriptions" => self.most_subscriptions(from).count() as u64,
                "names" => {
                    self.most_subscriptions(from).map(|it| &it.name).collect::<BTreeSet<_>>().len() as u64
                }
                _ => self.most_clients(from, false),
            };
            if number.is_none_or(|number| number > most) {
                return Some(name);
            }
        }
        None
    }

    fn compare_counters(&mut self, asked: &Moment, value: &Json) -> Option<&'static str> {
        for name in COUNTERS {
            let Some(number) = value.number(name) else { return Some(name) };
            // A connection that is to be refused is accepted after all if one of the others ends first.
            let is_final = name != "refused";
            if is_final && asked.counters.get(name).is_some_and(|before| *before > number) {
                return Some(name);
            }
            let largest = self.counters.entry(name.to_owned()).or_default();
            *largest = number.max(*largest);
        }
        None
    }

    fn compare_shards(&self, value: &Json) -> Option<&'static str> {
        let numbers: Vec<Option<u64>> = value.items().iter().map(|row| row.number("shard")).collect();
        let expected: Vec<Option<u64>> = (0..self.writers).map(Some).collect();
        (numbers != expected).then_some("shard")
    }

    fn compare_queues(&self, value: &Json) -> Option<&'static str> {
        for row in value.items() {
            let (Some(name), Some(size), Some(in_flight)) =
                (row.text("name"), row.number("size"), row.number("in_flight"))
            else {
                return Some("a row");
            };
            let is_plain = name.starts_with("/queue/") && !name.starts_with("/queue/dlq/");
            let most = self.sent.get(name).copied().unwrap_or(0);
            if in_flight > size || (is_plain && size > most) {
                return Some("size");
            }
            if row.number("enqueued") < row.number("dequeued") {
                return Some("dequeued");
            }
        }
        None
    }

    fn compare_unacked(&self, value: &Json) -> Option<&'static str> {
        for row in value.items() {
            let (Some(id), Some(name), Some(in_flight)) =
                (row.text("subscription"), row.text("destination"), row.number("in_flight"))
            else {
                return Some("a row");
            };
            // Several clients may use the same id.
            let same = self.subscribed.iter().filter(|((_, other), _)| other == id).flat_map(|(_, all)| all);
            let most = same.filter(|it| it.name == name).map(|it| it.prefetch.unwrap_or(u64::MAX)).max();
            if most.is_none_or(|most| in_flight > most) {
                return Some("in_flight");
            }
        }
        None
    }

    fn compare_names(&self, value: &Json) -> Option<&'static str> {
        let names: Vec<&Json> = value.items().iter().collect();
        let is_known =
            |name: &Json| self.subscribed.values().flatten().any(|it| Json::Text(it.name.clone()) == *name);
        let all_known = names.len() > 100 || names.iter().all(|name| is_known(name));
        let mut texts: Vec<String> = names.iter().map(|name| format!("{name:?}")).collect();
        let count = texts.len();
        texts.sort();
        texts.dedup();
        (!all_known || texts.len() < count).then_some("a name")
    }

    /// Checks the least numbers: clients that are open in the end were there all the time.
    pub(super) fn finish(&self, open: &[ClientId]) -> Result<(), Violation> {
        for Least { answer, asked, answered } in &self.least {
            let is_open = |client: &ClientId, known: &&Known| {
                open.contains(client) && known.connected.is_some_and(|connected| connected < *asked)
            };
            let clients = self.clients.iter().filter(|(client, known)| is_open(client, known));
            let (mut least_clients, mut least_websockets) = (0, 0);
            for (_, known) in clients {
                least_clients += 1;
                least_websockets += u64::from(known.is_websocket);
            }
            let there = self.all_subscribed().filter(|(client, it)| {
                let has_begun = it.confirmed.is_some_and(|confirmed| confirmed < *asked);
                open.contains(client) && has_begun && it.ends.is_none_or(|ends| ends > *answered)
            });
            let names: Vec<&String> = there.map(|(_, it)| &it.name).collect();
            let distinct: BTreeSet<&String> = names.iter().copied().collect();
            for (name, number) in counts(answer) {
                let least = match name {
                    "websockets" => least_websockets,
                    "subscriptions" => names.len() as u64,
                    "names" => distinct.len() as u64,
                    _ => least_clients,
                };
                if number.is_some_and(|number| number < least) {
                    return broken("watching", format!("{name} is less than {least} in {answer:?}"));
                }
            }
            if answer.query == "subs" && !self.is_tight {
                let has = |name: &str| answer.value.items().contains(&Json::Text(name.to_owned()));
                if let Some(name) = distinct.iter().find(|name| !has(name)) {
                    return broken("watching", format!("{name} is missing in {answer:?}"));
                }
            }
        }
        Ok(())
    }
}

/// The counts of connections and subscriptions in an answer: what is counted, and the number.
fn counts(answer: &Answer) -> Vec<(&'static str, Option<u64>)> {
    let alone = match answer.value {
        Json::Number(number) => Some(number),
        _ => None,
    };
    match &*answer.query {
        "session" => ["clients", "websockets", "stomp_connected", "subscriptions"]
            .into_iter()
            .map(|name| (name, answer.value.number(name)))
            .collect(),
        "session-size" | "session-connected-size" => vec![("clients", alone)],
        "session-encoded-size" => vec![("websockets", alone)],
        "pubsub-size" => vec![("names", alone)],
        _ => Vec::new(),
    }
}
