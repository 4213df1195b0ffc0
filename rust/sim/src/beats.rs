//! Heart-beats: connections of their own at the end of a run, when nothing else happens. They send what they have promised,
//! or fall silent.

use std::time::Duration;

use stompica_broker::simulated::outside::{self, Wire};

use crate::events::{ClientId, Event, Violation};
use crate::frames::{Version, take_frame};
use crate::options::Pulse;
use crate::world::World;

/// The first number of such a connection.
const FIRST: ClientId = 2_000_000;
/// For how long they are followed: more than twice the longest interval, which a silent one may last.
const TIME: Duration = Duration::from_secs(20);

/// What happens to a connection with heart-beats.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Beat {
    /// It has asked for this, and CONNECTED has brought that header.
    Agreed((u32, u32), String),
    /// Bytes of it have arrived at the broker.
    Sent,
    /// The broker has written so many bytes at this time.
    Heard(Duration, usize),
    /// The broker has ended it at this time, behind an ERROR with this code.
    Closed(Duration, Option<String>),
    /// Nothing follows: it is open.
    Over,
}

/// One connection.
struct Beater {
    id: ClientId,
    wire: Wire,
    pulse: Pulse,
    received: Vec<u8>,
    is_agreed: bool,
    is_over: bool,
    code: Option<String>,
    /// The time between its heart-beats, and of the next one.
    every: Duration,
    next: Option<Duration>,
    sent: u32,
}

impl Beater {
    fn new(id: ClientId, wire: Wire, pulse: Pulse) -> Self {
        let (can, wants) = pulse.asked;
        let connect = format!("CONNECT\naccept-version:1.2\nhost:h\nheart-beat:{can},{wants}\n\n\0");
        wire.send(connect.as_bytes());
        wire.arrive(usize::MAX);
        let (received, every) = (Vec::new(), Duration::ZERO);
        let (is_agreed, is_over, code) = (false, false, None);
        Beater { id, wire, pulse, received, is_agreed, is_over, code, every, next: None, sent: 0 }
    }

    /// Sends a heart-beat that is due.
    fn send(&mut self, events: &mut Vec<Event>) {
        let now = outside::now();
        if self.is_over || self.next.is_none_or(|next| next > now) {
            return;
        }
        self.sent += 1;
        self.next = (self.sent < self.pulse.bytes).then(|| now + self.every);
        self.wire.send(b"\n");
        self.wire.arrive(usize::MAX);
        events.push(Event::Beat(self.id, Beat::Sent));
    }

    /// Reads everything.
    fn receive(&mut self, offer: (u32, u32), events: &mut Vec<Event>) -> Result<(), String> {
        let mut last = outside::now();
        loop {
            let (bytes, written) = self.wire.receive_written(usize::MAX);
            if bytes.is_empty() {
                break;
            }
            last = written.at;
            events.push(Event::Beat(self.id, Beat::Heard(written.at, bytes.len())));
            self.received.extend(bytes);
        }
        while let Some(frame) = take_frame(&mut self.received, Version::V12)? {
            match &*frame.command {
                "CONNECTED" => self.agree(frame.expect("heart-beat")?, offer, events),
                "ERROR" => self.code = Some(frame.expect("code")?.to_owned()),
                other => return Err(format!("{other} to a connection that only beats")),
            }
        }
        if self.wire.is_ended() && !self.is_over {
            self.is_over = true;
            events.push(Event::Beat(self.id, Beat::Closed(last, self.code.clone())));
        }
        Ok(())
    }

    fn agree(&mut self, offered: &str, offer: (u32, u32), events: &mut Vec<Event>) {
        let (can, wanted) = (self.pulse.asked.0, offer.1);
        self.is_agreed = true;
        events.push(Event::Beat(self.id, Beat::Agreed(self.pulse.asked, offered.to_owned())));
        if can > 0 && wanted > 0 && self.pulse.bytes > 0 {
            self.every = Duration::from_millis(u64::from(can.max(wanted))) * self.pulse.percent / 100;
            self.next = Some(outside::now() + self.every);
        }
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
        while outside::now() < end {
            self.run_until_idle()?;
            let mut events = Vec::new();
            for beater in &mut all {
                let received = beater.receive(self.options.config.heartbeat_ms, &mut events);
                received.map_err(|text| Violation { checker: "beats", text })?;
                beater.send(&mut events);
            }
            self.tell(events)?;
            self.run_until_idle()?;
            let now = outside::now();
            let theirs = (0..self.broker.shards()).filter_map(|at| self.broker.sleep(at)).min();
            let ours = all.iter().filter_map(|beater| beater.next).map(|next| next.saturating_sub(now)).min();
            let time = theirs.into_iter().chain(ours).min().unwrap_or(TIME);
            self.advance(time.max(Duration::from_micros(100)).min(end.saturating_sub(now)));
        }
        let is_left = |beater: &&Beater| beater.is_agreed && !beater.is_over;
        let over = all.iter().filter(is_left).map(|beater| Event::Beat(beater.id, Beat::Over)).collect();
        all.iter().for_each(|beater| beater.wire.reset());
        self.tell(over)?;
        self.run_until_idle()
    }
}
