//! One connection of a client: what it has asked for, and what it holds. It follows the protocol strictly; what it
//! receives becomes events.

use std::collections::{BTreeMap, VecDeque};

use stompica_broker::simulated::outside::Wire;

use crate::events::{AckMode, ClientId, Delivery, End, Event, Message, MessageId, Request, Subscription};
use crate::events::{SubscriptionId, TransactionId};
use crate::frames::{Frame, Version, take_frame};
use crate::websocket::{self, WebSocket};

/// A subscription, and the messages that it holds.
#[derive(Debug)]
pub struct Held {
    /// As it was requested.
    pub subscription: Subscription,
    /// Messages that were received and not acknowledged, with the value that an ACK names, in order.
    pub unacked: Vec<(MessageId, String)>,
}

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
    /// Its subscriptions.
    pub subscriptions: BTreeMap<SubscriptionId, Held>,
    /// Ended subscriptions, from which messages may still be on the way; with `true`, UNSUBSCRIBE is confirmed.
    pub ended: BTreeMap<SubscriptionId, (Subscription, bool)>,
    /// Open transactions, and the messages acknowledged in each.
    pub transactions: BTreeMap<TransactionId, Vec<(SubscriptionId, MessageId, String)>>,
    /// Requests with a RECEIPT, in order.
    expected: VecDeque<(u64, Request)>,
    last_receipt: u64,
    last_subscription: SubscriptionId,
    received: Vec<u8>,
    error: Option<String>,
    was_released: bool,
    websocket: Option<WebSocket>,
}

impl Client {
    /// A client that sends CONNECT.
    #[must_use]
    pub fn new(id: ClientId, wire: Wire, version: Version, is_websocket: bool) -> Self {
        if is_websocket {
            wire.send(websocket::HANDSHAKE);
        }
        let client = Client {
            id,
            wire,
            version,
            phase: Phase::Connecting,
            is_stalled: false,
            subscriptions: BTreeMap::new(),
            ended: BTreeMap::new(),
            transactions: BTreeMap::new(),
            expected: VecDeque::new(),
            last_receipt: 0,
            last_subscription: 0,
            received: Vec::new(),
            error: None,
            was_released: false,
            websocket: is_websocket.then(WebSocket::default),
        };
        client.send(format!("CONNECT\naccept-version:{}\nhost:h\n\n\0", version.text()).as_bytes());
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

    /// The first request whose RECEIPT has not come.
    #[must_use]
    pub fn first_missing(&self) -> Option<&Request> {
        self.expected.front().map(|(_, request)| request)
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
        Event::Ended(self.id, End::Lost)
    }

    /// Reads up to so many bytes.
    ///
    /// # Errors
    /// What the broker has sent is not allowed by the protocol.
    pub fn receive(&mut self, bytes_max: usize, events: &mut Vec<Event>) -> Result<usize, String> {
        let bytes = self.wire.receive(bytes_max);
        match &mut self.websocket {
            Some(websocket) => {
                let answers = websocket.receive(&bytes, &mut self.received)?;
                self.wire.send(&answers);
                if websocket.was_late {
                    self.error = Some("E-LOGIN-TIMEOUT".to_owned());
                }
            }
            None => self.received.extend_from_slice(&bytes),
        }
        while let Some(frame) = take_frame(&mut self.received, self.version)? {
            self.read(&frame, events)?;
        }
        if self.phase != Phase::Over && self.wire.is_ended() {
            let part = self.websocket.as_ref().map_or(&[][..], WebSocket::part);
            let is_cut = !part.is_empty() || self.received.iter().any(|byte| *byte != b'\n');
            if is_cut && !self.wire.is_broken() && !self.wire.was_cut_off() {
                return Err(format!(
                    "the last frame is cut: {}",
                    crate::frames::shown(&[part, &self.received].concat())
                ));
            }
            let may_end = self.wire.is_broken() || self.wire.was_cut_off();
            if self.error.is_none() && !may_end && self.phase == Phase::Open {
                return Err("closed without an ERROR".to_owned());
            }
            self.phase = Phase::Over;
            events.push(Event::Ended(self.id, End::Closed(self.error.clone())));
        }
        Ok(bytes.len())
    }

    fn read(&mut self, frame: &Frame, events: &mut Vec<Event>) -> Result<(), String> {
        if let Some(code) = &self.error {
            return Err(format!("{} after an ERROR {code}", frame.command));
        }
        match frame.command.as_str() {
            "CONNECTED" => self.read_connected(frame),
            "RECEIPT" => self.read_receipt(frame, events),
            "MESSAGE" => self.read_message(frame, events),
            _ => {
                let code = frame.expect("code")?.to_owned();
                if code == "E-TX-UNKNOWN" || code == "E-SUB-UNKNOWN" || code == "E-COMMAND" {
                    return Err(format!("ERROR {code} to a client that keeps the rules: {frame:?}"));
                }
                self.error = Some(code);
                Ok(())
            }
        }
    }

    fn read_connected(&mut self, frame: &Frame) -> Result<(), String> {
        let version = frame.header("version").unwrap_or("1.0");
        if self.phase == Phase::Connecting {
            self.phase = Phase::Open;
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
        if let Request::Unsubscribe(subscription) = &request
            && let Some((_, is_confirmed)) = self.ended.get_mut(subscription)
        {
            *is_confirmed = true;
        }
        events.push(Event::Confirmed(self.id, request));
        Ok(())
    }

    fn read_message(&mut self, frame: &Frame, events: &mut Vec<Event>) -> Result<(), String> {
        let delivery = self.delivery(frame)?;
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
        let name = if has_ack_id { "ack" } else { "message-id" };
        let ack_id = frame.expect(name)?.to_owned();
        if !has_ack_id && frame.header("ack").is_some() {
            return Err("MESSAGE with an ack header that nobody needs".to_owned());
        }
        if let Some(held) = self.subscriptions.get_mut(&id)
            && held.subscription.ack != AckMode::Auto
        {
            held.unacked.push((delivery.message, ack_id));
        }
        events.push(Event::Delivered(self.id, delivery));
        Ok(())
    }

    fn delivery(&self, frame: &Frame) -> Result<Delivery, String> {
        let number = |name: &str| -> Result<Option<u64>, String> {
            let text = frame.header(name);
            text.map(|text| text.parse().map_err(|_| format!("{name}:{text} is no number"))).transpose()
        };
        let subscription = match number("subscription")? {
            Some(subscription) => subscription,
            None => return Err("MESSAGE without subscription".to_owned()),
        };
        let message = Message::id_in(&frame.body)
            .ok_or_else(|| format!("a body of nobody: {}", crate::frames::shown(&frame.body)))?;
        Ok(Delivery {
            subscription,
            message,
            destination: frame.expect("destination")?.to_owned(),
            redelivered: frame.header("redelivered") == Some("true"),
            count: number("delivery-count")?.unwrap_or(1),
            dead_letter: frame.header("dead-letter-reason").map(str::to_owned),
            header: frame.header("x").map(str::to_owned),
            version: self.version,
            body: frame.body.clone(),
        })
    }
}
