//! One rogue: its connection, and what it does in a step.

use std::time::Duration;

use rand::Rng as _;
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom as _;
use stompica_broker::simulated::outside::{self, Wire};

use super::deeds::{Deed, Ending, Misdeed};
use super::reader::Reader;
use super::{http, stomp, wire};
use crate::events::{ClientId, Event};
use crate::frames::Version;
use crate::options::Options;
use crate::websocket;

/// The largest WebSocket message that is sent: it is under all limits.
const MESSAGE_BYTES_MAX: usize = 100_000;
/// The least bytes of answers with which a connection that does not read them is not read.
const PONGS_MAX: usize = 4 << 10;
/// A frame of this size arrives whatever others send.
const SHORT_BYTES: usize = 1000;
/// A frame of a stream at 64 KiB a second gets this much more time.
const BYTES_A_SECOND: usize = 64 << 10;

/// How a rogue reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reads {
    Everything,
    OneByte,
    Never,
}

/// How far a rogue has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Nothing was sent.
    Fresh,
    /// CONNECT was sent.
    LoggedIn,
    /// It has done something for which its connection has to end.
    Doomed,
    /// It sends nothing more, and reads.
    Leaving,
    Over,
}

/// What a rogue sends after its misdeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Then {
    /// Nothing.
    Nothing,
    /// So many bytes of a body that never ends, one at a time.
    Trickle(u32),
    /// Frames that have to be passed over.
    Frames,
}

/// One rogue.
#[derive(Debug)]
pub(super) struct Rogue {
    pub(super) id: ClientId,
    pub(super) wire: Wire,
    pub(super) version: Version,
    pub(super) is_websocket: bool,
    pub(super) reads: Reads,
    pub(super) stage: Stage,
    pub(super) reader: Reader,
    /// Memory is never short.
    has_memory: bool,
    /// Nothing that may have to wait was sent.
    pub(super) is_clean: bool,
    /// Bytes of pongs that the broker owes it at most, from which on it is not read.
    pongs_left: usize,
    /// Bytes up to the end of the misdeed that have not arrived.
    pub(super) to_arrive: usize,
    /// What it goes on sending after its misdeed.
    pub(super) then: Then,
    pub(super) opened: Duration,
    pub(super) receipts: u64,
    pub(super) names: u64,
    pub(super) transactions: usize,
    /// Subscriptions whose messages it may acknowledge.
    pub(super) acking: Vec<String>,
    pub(super) was_released: bool,
    /// What is to be told.
    pub(super) events: Vec<Event>,
}

/// What a rogue acts with.
pub(super) struct Act<'a> {
    pub(super) options: &'a Options,
    pub(super) numbers: &'a mut crate::actions::Numbers,
    pub(super) random: &'a mut SmallRng,
}

impl Rogue {
    pub(super) fn new(id: ClientId, wire: Wire, options: &Options, random: &mut SmallRng) -> Self {
        let version = *[Version::V10, Version::V11, Version::V12].choose(random).expect("three of them");
        let reads = [Reads::Everything, Reads::Everything, Reads::Everything, Reads::OneByte, Reads::Never];
        let mut rogue = Rogue {
            id,
            wire,
            version,
            is_websocket: false,
            reads: *reads.choose(random).unwrap_or(&Reads::Never),
            stage: Stage::Fresh,
            reader: Reader::new(version),
            has_memory: options.config.memory_limit >= 64 << 20,
            is_clean: true,
            pongs_left: options.config.outbox_limit.min(PONGS_MAX),
            to_arrive: 0,
            then: Then::Nothing,
            opened: outside::now(),
            receipts: 0,
            names: 0,
            transactions: 0,
            acking: Vec::new(),
            was_released: false,
            events: Vec::new(),
        };
        rogue.tell(Deed::Opens);
        rogue
    }

    pub(super) fn tell(&mut self, deed: Deed) {
        self.events.push(Event::Rogue(self.id, deed));
    }

    /// Sends bytes of STOMP: over WebSocket in a message of any form.
    pub(super) fn send(&mut self, bytes: &[u8], random: &mut SmallRng) {
        if !self.is_websocket {
            return self.wire.send(bytes);
        }
        for piece in bytes.chunks(MESSAGE_BYTES_MAX) {
            let (message, pings) = wire::message(piece, random);
            self.wire.send(&message);
            pings.into_iter().for_each(|ping| self.pings(ping));
        }
    }

    /// It has sent a ping. If it does not read the pongs, the broker may not read what follows.
    pub(super) fn pings(&mut self, ping: Vec<u8>) {
        self.pongs_left = self.pongs_left.saturating_sub(ping.len() + 2);
        self.is_clean &= self.pongs_left > 0;
        self.tell(Deed::Pings(ping));
    }

    /// A new `receipt`, which is expected.
    pub(super) fn receipt(&mut self) -> String {
        self.receipts += 1;
        let receipt = format!("{}.{}", self.id, self.receipts);
        self.tell(Deed::Asks(receipt.clone()));
        receipt
    }

    /// Does something. Returns its name.
    pub(super) fn act(&mut self, act: &mut Act<'_>) -> Option<&'static str> {
        match self.stage {
            Stage::Fresh => Some(self.begin(act)),
            Stage::LoggedIn => self.go_on(act),
            Stage::Doomed => match self.then {
                Then::Trickle(left) if left > 0 => {
                    self.then = Then::Trickle(left - 1);
                    self.send(b"x", act.random);
                    Some("trickles")
                }
                Then::Frames if act.random.random_ratio(1, 20) => {
                    self.wire.send(b"SEND\ndestination:/topic/0\n\n999999999;\0");
                    Some("goes on")
                }
                _ => None,
            },
            Stage::Leaving | Stage::Over => None,
        }
    }

    fn begin(&mut self, act: &mut Act<'_>) -> &'static str {
        let weights = [(0, act.options.rogues.misdeeds), (1, act.options.rogues.stalls), (2, 20)];
        match weights.choose_weighted(act.random, |(_, weight)| *weight).map_or(2, |(kind, _)| *kind) {
            0 if act.random.random_ratio(1, 2) => self.request(act),
            0 => {
                let receipt = format!("{}.first", self.id);
                if let Some(wrong) = stomp::wrong_first(act.random, &receipt) {
                    self.is_websocket = act.random.random_ratio(1, 3);
                    if self.is_websocket {
                        self.wire.send(websocket::HANDSHAKE);
                    }
                    self.send_wrong(wrong, act.random);
                }
                "a wrong beginning"
            }
            1 => self.stall_before_login(act),
            _ => {
                self.log_in(act.random);
                "log-in"
            }
        }
    }

    fn log_in(&mut self, random: &mut SmallRng) {
        self.is_websocket = random.random_ratio(1, 3);
        if self.is_websocket {
            self.wire.send(websocket::HANDSHAKE);
        }
        let beats = ["", "heart-beat:0,0\n", "heart-beat:99999999999999999999,1\n", "heart-beat:1,1\n"];
        let beat = beats[random.random_range(0..beats.len())];
        let mut connect =
            format!("CONNECT\naccept-version:{}\nhost:h\n{beat}\n\0", self.version.text()).into_bytes();
        if random.random_ratio(1, 8) {
            (self.version, connect) = (Version::V12, stomp::long_connect(0));
            self.reader.version = self.version;
        }
        self.send(&connect, random);
        self.stage = Stage::LoggedIn;
    }

    fn request(&mut self, act: &mut Act<'_>) -> &'static str {
        let (ending, bytes) = match act.random.random_range(0..8) {
            0 => (Ending::Status(414), http::long_line()),
            1 => (Ending::Alert, b"\x16\x03\x01\x02\0\x01\0\x01\xFC\x03\x03".to_vec()),
            _ => {
                let (status, bytes) = http::request(act.random);
                (Ending::Status(status), bytes)
            }
        };
        self.wire.send(&bytes);
        let mut endings = vec![ending];
        if act.options.store.failure_steps > 0 && bytes.windows(7).any(|part| part == b"/readyz") {
            endings.push(Ending::Status(503)); // the store has failed
        }
        self.dooms("a request".to_owned(), endings, None, Duration::ZERO, None);
        "request"
    }

    fn stall_before_login(&mut self, act: &mut Act<'_>) -> &'static str {
        let late = Ending::Error("E-LOGIN-TIMEOUT");
        let ending = match act.random.random_range(0..5) {
            0 => late,
            1 => {
                self.wire.send(&http::part(act.random));
                Ending::Status(408)
            }
            2 => {
                self.wire.send(b"CONNECT\naccept-version:1.2\nhost:h\n");
                late
            }
            3 => {
                self.wire.send(websocket::HANDSHAKE);
                late
            }
            _ => {
                self.wire.send(b"\n\r\n\n\nSTOMP\naccept-version:1.1\nhost:h\n\n");
                late
            }
        };
        // What has arrived until then decides how it is refused.
        let endings = vec![ending, late];
        let patience = act.options.config.login_timeout;
        self.dooms("no CONNECT".to_owned(), endings, None, patience, Some(self.opened));
        "stall before log-in"
    }

    fn go_on(&mut self, act: &mut Act<'_>) -> Option<&'static str> {
        let rogues = &act.options.rogues;
        let weights = [(0, rogues.misdeeds), (1, rogues.stalls), (2, rogues.loads * 3), (3, rogues.exits)];
        match weights.choose_weighted(act.random, |(_, weight)| *weight).ok()?.0 {
            0 if self.is_websocket && act.random.random_ratio(1, 2) => Some(self.break_websocket(act)),
            0 => {
                let receipt = format!("{}.wrong", self.id);
                let wrong = stomp::wrong(self.version, &act.options.config, &receipt, act.random)?;
                self.send_wrong(wrong, act.random);
                Some("misdeed")
            }
            1 => Some(self.stall(act)),
            2 => self.load(act),
            _ => Some(self.exit(act)),
        }
    }

    fn send_wrong(&mut self, wrong: stomp::Wrong, random: &mut SmallRng) {
        let mut bytes = wrong.bytes;
        if bytes.ends_with(b"\0") && random.random_ratio(1, 4) {
            bytes.extend_from_slice(b"SEND\ndestination:/topic/0\n\n999999999;\0"); // it takes no effect
        }
        if self.stage == Stage::LoggedIn && random.random_ratio(1, 3) {
            // Its ERROR comes behind a RECEIPT that waits for all shards.
            let receipt = self.receipt();
            let subscribe =
                format!("SUBSCRIBE\nid:before\nreceipt:{receipt}\ndestination:/rogue/before\n\n\0");
            bytes.splice(..0, subscribe.into_bytes());
            self.is_clean = false;
        }
        self.send(&bytes, random);
        self.dooms(wrong.what, wrong.endings, wrong.receipt, Duration::ZERO, None);
        self.then = Then::Frames;
    }

    fn break_websocket(&mut self, act: &mut Act<'_>) -> &'static str {
        let (what, bytes, code) = wire::misdeed(act.options.config.limits.ws_message_bytes_max, act.random);
        self.wire.send(&bytes);
        self.dooms(what.to_owned(), vec![Ending::Close(code)], None, Duration::ZERO, None);
        "WebSocket misdeed"
    }

    fn stall(&mut self, act: &mut Act<'_>) -> &'static str {
        let (bytes, mut announced) = stomp::part(self.version, act.random);
        if self.is_websocket && act.random.random_ratio(1, 2) {
            // The frame of the WebSocket is what never ends.
            let mask: [u8; 4] = act.random.random();
            announced = bytes.len() + 1000;
            let begun = [&wire::header(wire::LAST | wire::BINARY, announced as u64)[..], &mask].concat();
            let whole = wire::frame(wire::TEXT, b"\n", mask);
            let forms = [&begun[..], &whole[..], &begun[..1], &[wire::LAST | wire::PING][..], &begun[..2]];
            self.wire.send(forms[act.random.random_range(0..forms.len())]);
        } else {
            self.send(&bytes, act.random);
            if announced > 0 && !self.is_websocket && act.random.random_ratio(1, 2) {
                self.then = Then::Trickle(1000);
            }
        }
        let patience = act.options.config.frame_timeout
            + Duration::from_millis((announced.max(bytes.len()) * 1000 / BYTES_A_SECOND) as u64 + 1);
        let endings = vec![Ending::Error("E-FRAME-TIMEOUT")];
        self.dooms(format!("a frame that never ends, {announced}"), endings, None, patience, None);
        "stall"
    }

    /// Records a misdeed.
    fn dooms(
        &mut self,
        what: String,
        endings: Vec<Ending>,
        receipt: Option<String>,
        patience: Duration,
        since: Option<Duration>,
    ) {
        self.stage = Stage::Doomed;
        self.to_arrive = self.wire.in_transit();
        // While memory is short, long frames wait for their turn to arrive, and their clock stands still.
        let is_short = self.to_arrive < SHORT_BYTES && (patience.is_zero() || since.is_some());
        let is_timed = self.is_clean && (is_short || self.has_memory);
        self.tell(Deed::Breaks(Misdeed { what, endings, receipt, patience, since, is_timed }));
        if self.to_arrive == 0 {
            self.tell(Deed::Arrives);
        }
    }

    /// Lets bytes arrive.
    pub(super) fn arrive(&mut self, bytes_max: usize) {
        let before = self.wire.in_transit();
        self.wire.arrive(bytes_max);
        let arrived = before - self.wire.in_transit();
        if self.to_arrive > 0 {
            self.to_arrive = self.to_arrive.saturating_sub(arrived);
            if self.to_arrive == 0 {
                self.tell(Deed::Arrives);
            }
        }
    }

    /// Reads. Returns the number of bytes.
    pub(super) fn receive(&mut self, bytes_max: usize) -> Result<usize, String> {
        if self.stage == Stage::Over {
            return Ok(0);
        }
        let mut len = 0;
        loop {
            let (bytes, written) = self.wire.receive_written(bytes_max - len);
            if bytes.is_empty() {
                break;
            }
            if len == 0 && matches!(self.stage, Stage::Fresh | Stage::Doomed) {
                self.tell(Deed::Takes);
            }
            len += bytes.len();
            for heard in self.reader.read(&bytes, written.encoded_from)? {
                self.tell(Deed::Hears(heard));
            }
        }
        if self.wire.is_ended() {
            let is_cut = self.wire.is_broken() || self.wire.was_cut_off();
            let part = self.reader.part();
            if !is_cut && part.iter().any(|byte| *byte != b'\n') {
                return Err(format!("the last frame is cut: {}", crate::frames::shown(part)));
            }
            self.stage = Stage::Over;
            self.tell(Deed::Ends { is_cut });
        }
        Ok(len)
    }
}
