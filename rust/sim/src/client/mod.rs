//! One connection of a client: what it has asked for, and what it holds. It follows the protocol strictly; what it
//! receives becomes events.

mod errors;
mod held;
mod private;
mod watching;

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write as _;
use std::time::Duration;

use stompica_broker::simulated::outside::{Wire, Written};

pub use self::held::{Held, Unacked};
use self::private::Private;
use self::watching::Watching;
use crate::events::{
    AckMode, ClientId, Delivery, End, Event, Message, MessageId, PrivateEvent, Request, Subscription,
};
use crate::events::{SubscriptionId, TransactionId};
use crate::frames::{Frame, Version, take_frame};
use crate::websocket::{self, WebSocket};
use crate::work::{is_work, plain};

/// The phase of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// CONNECT was sent.
    Connecting,
    /// CONNECTED has come.
    Open,
    /// The client sends nothing more, but reads.
    Leaving,
    /// It is over.
    Over,
}

/// One connection of a client.
#[derive(Debug)]
pub struct Client {
    /// Its number.
    pub id: ClientId,
    /// Its end of the connection.
    pub wire: Wire,
    /// The version it uses.
    pub version: Version,
    /// How far it has come.
    pub phase: Phase,
    /// It reads nothing.
    pub is_stalled: bool,
    /// Its `client-id`.
    pub scope: Option<u64>,
    /// It has ended durable subscriptions by name, which may not exist.
    pub has_ended_durables: bool,
    /// Its subscriptions.
    pub subscriptions: BTreeMap<SubscriptionId, Held>,
    /// Ended subscriptions, from which messages may still be on the way; with `true`, UNSUBSCRIBE is confirmed.
    pub ended: BTreeMap<SubscriptionId, (Subscription, bool)>,
    /// Open transactions, and the messages acknowledged in each.
    pub transactions: BTreeMap<TransactionId, Vec<(SubscriptionId, MessageId, String, Duration)>>,
    /// It has sent a COMMIT: deliveries do not time out while one waits.
    pub has_committed: bool,
    /// Its temporary destinations.
    pub private: Private,
    /// Its subscriptions to diagnostics.
    pub watching: Watching,
    /// Requests with a RECEIPT, in order.
    expected: VecDeque<(u64, Request)>,
    last_receipt: u64,
    last_subscription: SubscriptionId,
    received: Vec<u8>,
    /// The times of the first byte in `received`.
    began: Written,
    error: Option<String>,
    complaint: String,
    /// Requests without a RECEIPT.
    pub unreceipted: Vec<Request>,
    /// DISCONNECT is confirmed: nothing follows.
    has_left: bool,
    /// The client ends the connection, and reads what is still to come.
    pub leaves: bool,
    /// The broker stops at once, or its time for the drain is over, so that the last frame may be cut.
    pub may_be_cut: bool,
    was_released: bool,
    websocket: Option<WebSocket>,
}

impl Client {
    /// A client that sends CONNECT.
    #[must_use]
    pub fn new(id: ClientId, wire: Wire, version: Version, is_websocket: bool, scope: Option<u64>) -> Self {
        if is_websocket {
            wire.send(websocket::HANDSHAKE);
        }
        let client = Client {
            id,
            wire,
            version,
            phase: Phase::Connecting,
            is_stalled: false,
            scope,
            has_ended_durables: false,
            subscriptions: BTreeMap::new(),
            ended: BTreeMap::new(),
            transactions: BTreeMap::new(),
            private: Private::default(),
            watching: Watching::default(),
            has_committed: false,
            expected: VecDeque::new(),
            last_receipt: 0,
            last_subscription: 0,
            received: Vec::new(),
            began: Written::default(),
            error: None,
            complaint: String::new(),
            unreceipted: Vec::new(),
            has_left: false,
            leaves: false,
            may_be_cut: false,
            was_released: false,
            websocket: is_websocket.then(WebSocket::default),
        };
        let mut connect = format!("CONNECT\naccept-version:{}\nhost:h\n", version.text());
        if let Some(scope) = scope {
            _ = writeln!(connect, "client-id:{scope}");
        }
        client.send((connect + "\n\0").as_bytes());
        client
    }

    /// Sends a frame.
    pub fn send(&self, frame: &[u8]) {
        match self.websocket {
            Some(_) => self.wire.send(&websocket::message(frame)),
            None => self.wire.send(frame),
        }
    }

    /// Registers a request whose RECEIPT is expected behind those of all earlier requests; returns its id.
    pub fn expect_receipt(&mut self, request: Request) -> String {
        self.last_receipt += 1;
        self.expected.push_back((self.last_receipt, request));
        self.last_receipt.to_string()
    }

    /// A new number for a subscription.
    pub fn next_subscription(&mut self) -> SubscriptionId {
        self.last_subscription += 1;
        self.last_subscription
    }

    /// Notes that the broker has closed its end; reported once.
    pub fn release(&mut self) -> Option<Event> {
        let is_new = !self.wire.has_broker() && !self.was_released;
        self.was_released |= is_new;
        is_new.then_some(Event::Released(self.id))
    }

    /// Ends the connection without reading further.
    pub fn lose(&mut self) -> Event {
        self.phase = Phase::Over;
        self.expected.clear();
        Event::Ended(self.id, End::Lost)
    }

    /// Reads up to so many bytes.
    ///
    /// # Errors
    /// What the broker has sent is not allowed by the protocol.
    pub fn receive(&mut self, bytes_max: usize, events: &mut Vec<Event>) -> Result<usize, String> {
        let mut total = 0;
        loop {
            let (bytes, written) = self.wire.receive_written(bytes_max - total);
            if bytes.is_empty() {
                break;
            }
            total += bytes.len();
            self.read_bytes(&bytes, written, events)?;
        }
        if self.phase != Phase::Over && self.wire.is_ended() {
            let part = self.websocket.as_ref().map_or(&[][..], WebSocket::part);
            let is_cut = !part.is_empty() || self.received.iter().any(|byte| *byte != b'\n');
            if is_cut && !self.may_be_cut && !self.wire.is_broken() && !self.wire.was_cut_off() {
                return Err(format!(
                    "the last frame is cut: {}",
                    crate::frames::shown(&[part, &self.received].concat())
                ));
            }
            let may_end = self.wire.is_broken() || self.wire.was_cut_off();
            if self.error.is_none() && !may_end && self.phase == Phase::Open {
                return Err("closed without an ERROR".to_owned());
            }
            if let Some(missing) = self.first_missing()
                && self.error.is_none()
                && self.leaves
                && !may_end
            {
                return Err(format!("closed before the RECEIPT of {missing:?}"));
            }
            self.phase = Phase::Over;
            events.push(Event::Ended(self.id, End::Closed(self.error.clone())));
        }
        Ok(total)
    }

    /// Whether all bytes that have come belong to whole frames.
    fn is_between_frames(&self) -> bool {
        self.received.is_empty()
            && self.websocket.as_ref().is_none_or(|websocket| websocket.part().is_empty())
    }

    /// Reads bytes of one write.
    fn read_bytes(&mut self, bytes: &[u8], written: Written, events: &mut Vec<Event>) -> Result<(), String> {
        if self.is_between_frames() {
            self.began = written;
        }
        match &mut self.websocket {
            Some(websocket) => {
                let answers = websocket.receive(bytes, &mut self.received)?;
                self.wire.send(&answers);
                if let Some(code) = websocket.refusal {
                    self.error = Some(code.to_owned());
                }
            }
            None => self.received.extend_from_slice(bytes),
        }
        while let Some(frame) = take_frame(&mut self.received, self.version)? {
            self.read(&frame, events)?;
            self.began = written;
        }
        Ok(())
    }

    /// Whether messages may wait for its ACKs, or for RECEIPTs that it misses.
    #[must_use]
    pub fn is_owed(&self) -> bool {
        self.subscriptions.values().any(|held| held.subscription.ack != AckMode::Auto)
            || self.first_missing().is_some()
    }

    /// The messages in frames that the broker has written as a whole and the client has not read, once it reads no more.
    pub fn take_unread(&mut self) -> Vec<(SubscriptionId, MessageId)> {
        let mut unread = self.wire.receive(usize::MAX);
        unread.extend(self.wire.take_lost());
        match &mut self.websocket {
            Some(websocket) => _ = websocket.receive(&unread, &mut self.received),
            None => self.received.extend(unread),
        }
        let mut messages = Vec::new();
        while let Ok(Some(frame)) = take_frame(&mut self.received, self.version) {
            if let (Ok(Some(subscription)), Some(message)) =
                (number(&frame, "subscription"), Message::id_in(&frame.body))
            {
                messages.push((subscription, message));
            }
        }
        messages
    }

    fn read(&mut self, frame: &Frame, events: &mut Vec<Event>) -> Result<(), String> {
        if self.has_left {
            return Err(format!("{} after the RECEIPT of DISCONNECT", frame.command));
        }
        if let Some(code) = &self.error {
            return Err(format!("{} after an ERROR {code}", frame.command));
        }
        match frame.command.as_str() {
            "CONNECTED" => self.read_connected(frame, events),
            "DIAG" => self.read_diag(frame, events),
            "RECEIPT" => self.read_receipt(frame, events),
            "MESSAGE" => self.read_message(frame, events),
            _ => self.read_error(frame, events),
        }
    }

    fn read_connected(&mut self, frame: &Frame, events: &mut Vec<Event>) -> Result<(), String> {
        let version = frame.header("version").unwrap_or("1.0");
        if self.phase == Phase::Connecting {
            self.phase = Phase::Open;
            events.push(Event::Connected(self.id));
        } else if self.phase == Phase::Open {
            return Err("a second CONNECTED".to_owned());
        }
        if version != self.version.text() {
            return Err(format!("CONNECTED with version {version} instead of {}", self.version.text()));
        }
        Ok(())
    }

    fn read_receipt(&mut self, frame: &Frame, events: &mut Vec<Event>) -> Result<(), String> {
        let id = frame.expect("receipt-id")?;
        let Some((number, request)) = self.expected.pop_front() else {
            return Err(format!("RECEIPT {id} that nobody asked for"));
        };
        if number.to_string() != id {
            let other = self.expected.iter().find(|(other, _)| other.to_string() == id);
            return Err(format!("RECEIPT {id} ({other:?}) instead of {number} ({request:?})"));
        }
        if let Request::Unsubscribe(subscription) | Request::EndDurable(_, Some(subscription)) =
            plain(&request)
            && let Some((_, is_confirmed)) = self.ended.get_mut(subscription)
        {
            *is_confirmed = true;
        }
        self.private.confirm(&request);
        self.watching.confirm(&request);
        if request == Request::Disconnect {
            // It confirms every earlier frame.
            self.has_left = true;
            let earlier = std::mem::take(&mut self.unreceipted).into_iter();
            events.extend(earlier.map(|earlier| Event::Confirmed(self.id, earlier)));
        }
        events.push(Event::Confirmed(self.id, request));
        Ok(())
    }

    fn read_message(&mut self, frame: &Frame, events: &mut Vec<Event>) -> Result<(), String> {
        events.extend(number(frame, "dropped")?.map(|count| Event::Dropped(self.id, count)));
        if self.read_watched(frame, events)? {
            return Ok(());
        }
        if let Some(subscription) = self.private.subscription_of(frame)? {
            let delivery = self.delivery(frame, subscription)?;
            events.push(Event::Private(self.id, PrivateEvent::Received(Box::new(delivery))));
            return Ok(());
        }
        let delivery =
            self.delivery(frame, number(frame, "subscription")?.ok_or("MESSAGE without subscription")?)?;
        let id = delivery.subscription;
        let (subscription, is_confirmed) = match (self.subscriptions.get(&id), self.ended.get(&id)) {
            (Some(held), _) => (&held.subscription, false),
            (None, Some((subscription, is_confirmed))) => (subscription, *is_confirmed),
            (None, None) => return Err(format!("MESSAGE for the unknown subscription {id}")),
        };
        if is_confirmed {
            return Err(format!("MESSAGE for subscription {id} after the RECEIPT of its UNSUBSCRIBE"));
        }
        let has_ack_id = self.version == Version::V12 && subscription.ack != AckMode::Auto;
        let is_work = is_work(&subscription.destination);
        let name = if has_ack_id { "ack" } else { "message-id" };
        let ack_id = frame.expect(name)?.to_owned();
        if !has_ack_id && frame.header("ack").is_some() {
            return Err("MESSAGE with an ack header that nobody needs".to_owned());
        }
        if let Some(held) = self.subscriptions.get_mut(&id)
            && held.subscription.ack != AckMode::Auto
        {
            held.hold(&delivery, ack_id);
        }
        let message = delivery.message;
        events.push(match is_work {
            true => Event::Work(self.id, Box::new(delivery)),
            false => Event::Delivered(self.id, delivery),
        });
        self.read_reply_to(frame, events, message);
        Ok(())
    }

    fn delivery(&self, frame: &Frame, subscription: SubscriptionId) -> Result<Delivery, String> {
        let message = Message::id_in(&frame.body)
            .ok_or_else(|| format!("a body of nobody: {}", crate::frames::shown(&frame.body)))?;
        let dead_letter = frame.header("dead-letter-reason").map(str::to_owned);
        let redelivered = frame.header("redelivered") == Some("true");
        // A dead letter has the count of its old queue, behind its own one if it is redelivered.
        let mut counts = frame.headers.iter().filter(|(name, _)| name == "delivery-count");
        let mut next_count = || -> Result<Option<u64>, String> {
            let text = counts.next().map(|(_, count)| count);
            text.map(|text| text.parse().map_err(|_| format!("delivery-count:{text} is no number")))
                .transpose()
        };
        let count = if dead_letter.is_some() && !redelivered { 1 } else { next_count()?.unwrap_or(1) };
        Ok(Delivery {
            subscription,
            message,
            destination: frame.expect("destination")?.to_owned(),
            retained: frame.header("retained") == Some("true"),
            redelivered,
            count,
            dead_count: if dead_letter.is_some() { next_count()? } else { None },
            dead_letter,
            original: frame.header("original-destination").map(str::to_owned),
            message_id: frame.expect("message-id")?.to_owned(),
            written: self.began,
            header: frame.header("x").map(str::to_owned),
            version: self.version,
            body: frame.body.clone(),
        })
    }
}

/// The value of a header that is a number, if it is there.
fn number(frame: &Frame, name: &str) -> Result<Option<u64>, String> {
    let text = frame.header(name);
    text.map(|text| text.parse().map_err(|_| format!("{name}:{text} is no number"))).transpose()
}
