//! Heart-beats: connections of their own at the end of a run, over TCP and WebSocket. They send what they have promised,
//! fall silent, or only answer pings; some of them have other traffic.

use std::time::Duration;

use stompica_broker::simulated::outside::{self, Wire};

use crate::events::{ClientId, Event, Violation};
use crate::frames::{Frame, Version, take_frame};
use crate::options::Pulse;
use crate::websocket;
use crate::world::World;

/// The first number of such a connection.
const FIRST: ClientId = 2_000_000;
/// For how long they are followed at least: more than twice the longest interval over TCP, which a silent one may last.
const TIME: Duration = Duration::from_secs(20);
/// Without heart-beats, a silent WebSocket is pinged and then ended within this time.
const WITHOUT_BEATS: Duration = Duration::from_secs(130);
/// The topic of busy connections: no pattern of other clients matches it.
const BUSY: &str = "/beats/busy";

/// What happens to a connection with heart-beats.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Beat {
    /// It has asked for this, and CONNECTED has brought that header; with `true`, over WebSocket.
    Agreed((u32, u32), String, bool),
    /// STOMP bytes of it have arrived at the broker.
    Sent,
    /// It has answered a ping.
    Answered,
    /// The broker has written so many bytes of STOMP at this time.
    Heard(Duration, usize),
    /// The broker has written a ping at this time.
    Pinged(Duration),
    /// The broker has not answered a frame at once, so that it may not read this connection. Nothing more is said of it.
    Waits,
    /// The broker has ended it at this time, behind an ERROR with this code.
    Closed(Duration, Option<String>),
    /// Nothing follows: it is open.
    Over,
}

/// The time without STOMP bytes after which a WebSocket is ended, although it answers pings.
#[must_use]
pub fn longest_silence(interval: Duration) -> Duration {
    (10 * interval).max(Duration::from_secs(90))
}

/// One connection.
struct Beater {
    id: ClientId,
    wire: Wire,
    pulse: Pulse,
    /// Of a WebSocket, what is not STOMP yet.
    raw: Vec<u8>,
    is_upgraded: bool,
    received: Vec<u8>,
    is_agreed: bool,
    is_over: bool,
    /// When an ERROR was written, and its code.
    error: Option<(Duration, String)>,
    /// RECEIPTs that it waits for.
    missing: u32,
    /// The time between its heart-beats, and of the next one.
    every: Duration,
    next: Option<Duration>,
    sent: u32,
    pongs: u32,
    /// It is followed until then.
    until: Duration,
}

impl Beater {
    fn new(id: ClientId, wire: Wire, pulse: Pulse) -> Self {
        let beater = Beater {
            id,
            wire,
            pulse,
            raw: Vec::new(),
            is_upgraded: pulse.pongs.is_none(),
            received: Vec::new(),
            is_agreed: false,
            is_over: false,
            error: None,
            missing: 0,
            every: Duration::ZERO,
            next: None,
            sent: 0,
            pongs: 0,
            until: outside::now() + TIME,
        };
        if pulse.pongs.is_some() {
            beater.wire.send(websocket::HANDSHAKE);
        }
        let (can, wants) = pulse.asked;
        beater
            .write(format!("CONNECT\naccept-version:1.2\nhost:h\nheart-beat:{can},{wants}\n\n\0").as_bytes());
        beater
    }

    /// Lets STOMP bytes arrive at the broker.
    fn write(&self, bytes: &[u8]) {
        match self.pulse.pongs {
            Some(_) => self.wire.send(&websocket::message(bytes)),
            None => self.wire.send(bytes),
        }
        self.wire.arrive(usize::MAX);
    }

    /// Whether it neither sends nor is followed any more.
    fn is_ending(&self) -> bool {
        self.is_over || self.error.is_some()
    }

    /// Sends a heart-beat that is due, or a message instead.
    fn send(&mut self, events: &mut Vec<Event>) {
        let now = outside::now();
        if self.is_over || self.next.is_none_or(|next| next > now) {
            return;
        }
        self.sent += 1;
        self.next = (self.sent < self.pulse.bytes).then(|| now + self.every);
        if self.pulse.is_busy {
            self.missing += 1;
            self.write(format!("SEND\ndestination:{BUSY}\nreceipt:r\n\nbusy\0").as_bytes());
        } else {
            self.write(b"\n");
        }
        events.push(Event::Beat(self.id, Beat::Sent));
    }

    /// Reads everything.
    fn receive(&mut self, offer: (u32, u32), events: &mut Vec<Event>) -> Result<(), String> {
        loop {
            let (bytes, written) = self.wire.receive_written(usize::MAX);
            if bytes.is_empty() {
                break;
            }
            if self.pulse.pongs.is_some() {
                self.raw.extend(bytes);
                self.take_messages(written.at, offer, events)?;
            } else {
                self.take_stomp(&bytes, written.at, offer, events)?;
            }
        }
        if self.wire.is_ended() && !self.is_over {
            self.is_over = true;
            if self.missing > 0 {
                events.push(Event::Beat(self.id, Beat::Waits));
            }
            let (at, code) = self.error.clone().map_or((outside::now(), None), |(at, code)| (at, Some(code)));
            events.push(Event::Beat(self.id, Beat::Closed(at, code)));
        }
        Ok(())
    }

    /// Takes what the broker has sent over a WebSocket.
    fn take_messages(
        &mut self,
        at: Duration,
        offer: (u32, u32),
        events: &mut Vec<Event>,
    ) -> Result<(), String> {
        if !self.is_upgraded {
            let Some(end) = self.raw.windows(4).position(|four| four == b"\r\n\r\n") else { return Ok(()) };
            if !self.raw.starts_with(b"HTTP/1.1 101 ") {
                return Ok(()); // it is refused
            }
            self.raw.drain(..end + 4);
            self.is_upgraded = true;
        }
        while let Some((opcode, payload)) = websocket::take_frame(&mut self.raw)? {
            match opcode {
                1 => self.take_stomp(&payload, at, offer, events)?,
                8 => self.answer(&websocket::close(&payload)),
                9 if payload.len() <= 125 => {
                    events.push(Event::Beat(self.id, Beat::Pinged(at)));
                    if self.pulse.pongs.is_some_and(|pongs| self.pongs < pongs) && !self.is_ending() {
                        self.pongs += 1;
                        self.answer(&websocket::pong(&payload));
                        events.push(Event::Beat(self.id, Beat::Answered));
                    }
                }
                _ => return Err(format!("opcode {opcode} with {} bytes", payload.len())),
            }
        }
        Ok(())
    }

    fn answer(&self, frame: &[u8]) {
        self.wire.send(frame);
        self.wire.arrive(usize::MAX);
    }

    fn take_stomp(
        &mut self,
        bytes: &[u8],
        at: Duration,
        offer: (u32, u32),
        events: &mut Vec<Event>,
    ) -> Result<(), String> {
        events.push(Event::Beat(self.id, Beat::Heard(at, bytes.len())));
        self.received.extend(bytes);
        while let Some(frame) = take_frame(&mut self.received, Version::V12)? {
            match &*frame.command {
                "CONNECTED" => self.agree(&frame, offer, events)?,
                "ERROR" => {
                    self.error = Some((at, frame.expect("code")?.to_owned()));
                    self.next = None;
                }
                "RECEIPT" if self.missing > 0 => self.missing -= 1,
                "MESSAGE" if self.pulse.is_busy => {}
                other => return Err(format!("{other} to a connection that only beats")),
            }
        }
        Ok(())
    }

    fn agree(&mut self, frame: &Frame, offer: (u32, u32), events: &mut Vec<Event>) -> Result<(), String> {
        let Pulse { asked, percent, bytes, pongs, is_busy } = self.pulse;
        let (can, wanted) = (asked.0, offer.1);
        self.is_agreed = true;
        let offered = frame.expect("heart-beat")?.to_owned();
        events.push(Event::Beat(self.id, Beat::Agreed(asked, offered, pongs.is_some())));
        let interval = Duration::from_millis(u64::from(can.max(wanted)));
        if is_busy {
            self.missing += 1;
            self.write(format!("SUBSCRIBE\nid:1\ndestination:{BUSY}\nreceipt:r\n\n\0").as_bytes());
            events.push(Event::Beat(self.id, Beat::Sent));
        }
        if can == 0 || wanted == 0 {
            self.until += if pongs.is_some() { WITHOUT_BEATS } else { Duration::ZERO };
            return Ok(());
        }
        self.every = interval * percent / 100;
        if bytes > 0 {
            self.next = Some(outside::now() + self.every);
        }
        if pongs.is_some() {
            self.until += match bytes {
                u32::MAX => self.every * 3,
                _ => self.every * bytes + longest_silence(interval),
            };
        }
        Ok(())
    }

    /// Ends a connection that has been followed for long enough, or whose frames wait.
    fn stop(&mut self, events: &mut Vec<Event>) {
        let waits = self.missing > 0;
        if self.is_over || (!waits && outside::now() < self.until) {
            return;
        }
        if self.is_agreed {
            events.push(Event::Beat(self.id, if waits { Beat::Waits } else { Beat::Over }));
        }
        self.is_over = true;
        self.wire.reset();
    }
}

impl World {
    /// Lets connections agree on heart-beats, and follows them for a while.
    pub(crate) fn beat_at_rest(&mut self) -> Result<(), Violation> {
        let pulses = self.options.beats.pulses.clone();
        let wires = pulses.iter().map(|_| outside::connect());
        let wires = wires.collect::<Vec<_>>().into_iter().zip(pulses).enumerate();
        let mut all: Vec<Beater> =
            wires.filter_map(|(at, (wire, pulse))| Some(Beater::new(FIRST + at, wire?, pulse))).collect();
        if all.is_empty() {
            return Ok(());
        }
        self.note(|| "heart-beats".to_owned());
        let end = outside::now() + TIME;
        while outside::now() < end || all.iter().any(|beater| !beater.is_over) {
            self.run_until_idle()?;
            self.read_beaters(&mut all)?;
            let mut events = Vec::new();
            all.iter_mut().for_each(|beater| beater.send(&mut events));
            self.tell(events)?;
            self.run_until_idle()?;
            self.read_beaters(&mut all)?;
            let mut events = Vec::new();
            all.iter_mut().for_each(|beater| beater.stop(&mut events));
            self.tell(events)?;
            let left = all.iter().filter(|beater| !beater.is_over);
            let ours = left.flat_map(|beater| beater.next.into_iter().chain([beater.until])).min();
            self.await_beat(ours.unwrap_or(end));
        }
        self.run_until_idle()
    }

    /// Lets time pass until a shard wakes, at most until then. Shards that look for free memory wake often: these wakes are
    /// left out once they have changed nothing many times.
    fn await_beat(&mut self, until: Duration) {
        let skips = self.is_idle_for_long();
        let wake = |at| if skips { self.broker.deadline(at) } else { self.broker.sleep(at) };
        let theirs = (0..self.broker.shards()).filter_map(wake).min();
        let ours = until.saturating_sub(outside::now());
        self.advance(theirs.map_or(ours, |theirs| theirs.min(ours)).max(Duration::from_micros(100)));
    }

    fn read_beaters(&mut self, all: &mut [Beater]) -> Result<(), Violation> {
        let mut events = Vec::new();
        for beater in all.iter_mut().filter(|beater| !beater.is_over) {
            let received = beater.receive(self.options.config.heartbeat_ms, &mut events);
            received.map_err(|text| Violation { checker: "beats", text })?;
        }
        self.tell(events)
    }
}
