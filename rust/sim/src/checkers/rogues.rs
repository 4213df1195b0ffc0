//! Whoever breaks a rule is told so, with the right code, and then the connection ends in time: no silence, nothing
//! after an ERROR. Whoever only strains limits gets all answers, in order.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use super::{Checker, broken};
use crate::events::{ClientId, Event, Violation};
use crate::options::Options;
use crate::rogue::{Deed, Ending, Heard, Misdeed};

/// The longest time for which the broker keeps a connection that it ends: the rogue takes no byte for 5 s (the broker
/// looks every 5 s whether it took any), and does not close within 2 s; turns take a part of the last second. Its shard may
/// be late each of these [`LOOKS`] times.
const LINGER_MAX: Duration = Duration::from_secs(5 + 5 + 2 + 1);

/// The times at which the broker looks at a connection that it ends.
const LOOKS: u32 = 3;

/// The broker's times are whole milliseconds.
const TICK: Duration = Duration::from_millis(1);

/// The time after which a WebSocket counts as dead that sends nothing, not even pongs.
const PINGED_FOR: Duration = Duration::from_secs(120);

/// Follows all rogues.
#[derive(Debug)]
pub struct Rogues {
    login_timeout: Duration,
    frame_timeout: Duration,
    linger_max: Duration,
    /// Codes that may come without a misdeed: what others do can be the reason.
    excusable: Vec<&'static str>,
    all: BTreeMap<ClientId, Rogue>,
}

/// What is known of one rogue.
#[derive(Debug, Default)]
struct Rogue {
    opened: Duration,
    has_connected: bool,
    has_upgraded: bool,
    misdeed: Option<Misdeed>,
    /// When the misdeed was sent.
    broken: Duration,
    /// When the misdeed arrived.
    arrived: Option<Duration>,
    /// When it took bytes after that: the broker waits for more.
    taken: Duration,
    receipts: VecDeque<String>,
    pings: VecDeque<Vec<u8>>,
    /// The code of the ERROR that has come.
    error: Option<String>,
    /// The last thing that may come has come: a Close frame, a status, an alert.
    last: Option<Heard>,
    /// The code of the Close frame that answers its own end.
    leaves: Option<u16>,
    is_over: bool,
    was_released: bool,
}

impl Rogue {
    /// Whether this is the ERROR for its misdeed. A frame before it may have been late, too: an ERROR that the broker
    /// encoded earlier than the patience allows behind the misdeed's arrival is that frame's, whenever it is read.
    fn is_own_error(&self, heard: &Heard) -> bool {
        let Some(misdeed) = &self.misdeed else { return false };
        let Heard::Error { code, encoded_from, .. } = heard else { return false };
        let is_late = |arrived| *encoded_from + TICK >= arrived + misdeed.patience;
        let is_own = misdeed.endings.iter().any(|it| matches!(it, Ending::Error(own) if own == code));
        is_own && (code != "E-FRAME-TIMEOUT" || self.arrived.is_some_and(is_late))
    }
}

impl Rogues {
    /// Expects what the settings promise.
    #[must_use]
    pub fn new(options: &Options) -> Self {
        let config = &options.config;
        let mut excusable = vec!["E-MEMORY", "E-SLOW-CONSUMER", "E-QUEUE-FULL"];
        if config.max_connections < 10_000 {
            excusable.push("E-CONNECTIONS");
        }
        if config.heartbeat_ms != (0, 0) {
            excusable.push("E-HEART-BEAT-TIMEOUT");
        }
        let (login_timeout, frame_timeout) = (config.login_timeout, config.frame_timeout);
        let linger_max = LINGER_MAX + LOOKS * options.disturbances.lateness_max();
        Rogues { login_timeout, frame_timeout, linger_max, excusable, all: BTreeMap::new() }
    }

    /// Whether the broker may end a connection like this whatever its client did; the network may have been slow.
    fn is_excusable(&self, rogue: &Rogue, ending: &Heard, now: Duration) -> bool {
        let has_had = |time: Duration| now + TICK >= rogue.opened + time;
        match ending {
            Heard::Error { code, .. } if code == "E-LOGIN-TIMEOUT" => {
                !rogue.has_connected && has_had(self.login_timeout)
            }
            Heard::Error { code, .. } if code == "E-FRAME-TIMEOUT" => has_had(self.frame_timeout),
            // Over WebSocket a client that answers no ping counts as dead.
            Heard::Error { code, .. } if code == "E-HEART-BEAT-TIMEOUT" && rogue.has_upgraded => {
                has_had(PINGED_FOR)
            }
            Heard::Error { code, .. } => self.excusable.contains(&code.as_str()),
            Heard::Status(408) => has_had(self.login_timeout),
            _ => false,
        }
    }

    fn hear(&mut self, client: ClientId, heard: &Heard, now: Duration) -> Result<(), Violation> {
        let wrong = |text: String| broken("rogues", format!("rogue {client}: {text}"));
        let Some(rogue) = self.all.get(&client) else { return Ok(()) };
        if rogue.last.is_some() || (rogue.error.is_some() && !matches!(heard, Heard::Close(_))) {
            return wrong(format!("{heard:?} after {:?} {:?}", rogue.error, rogue.last));
        }
        if is_end(heard, rogue) && !self.is_right_end(rogue, heard, now) {
            return wrong(format!("{heard:?} after {:?}", rogue.misdeed));
        }
        let Some(rogue) = self.all.get_mut(&client) else { return Ok(()) };
        if rogue.is_own_error(heard) && !rogue.receipts.is_empty() {
            return wrong(format!("{heard:?} before the RECEIPTs {:?}", rogue.receipts));
        }
        match heard {
            Heard::Connected if rogue.has_connected => return wrong("a second CONNECTED".to_owned()),
            Heard::Connected => rogue.has_connected = true,
            Heard::Receipt(id) => {
                let next = rogue.receipts.pop_front();
                if next.as_ref() != Some(id) {
                    return wrong(format!("RECEIPT {id} instead of {next:?}"));
                }
            }
            Heard::Pong(payload) => {
                let next = rogue.pings.pop_front();
                if next.as_ref() != Some(payload) {
                    return wrong(format!("a pong with {payload:?} instead of {next:?}"));
                }
            }
            Heard::Error { code, .. } => rogue.error = Some(code.clone()),
            Heard::Status(101) => rogue.has_upgraded = true,
            Heard::Status(_) | Heard::Alert | Heard::Close(_) => rogue.last = Some(heard.clone()),
            Heard::Message => {}
        }
        Ok(())
    }

    /// Whether a connection may end like this.
    fn is_right_end(&self, rogue: &Rogue, heard: &Heard, now: Duration) -> bool {
        if let (Heard::Close(code), Some(error)) = (heard, &rogue.error) {
            return *code == close_code_of(error);
        }
        if let (Heard::Close(code), Some(own)) = (heard, rogue.leaves) {
            return *code == own;
        }
        if self.is_excusable(rogue, heard, now) {
            return true;
        }
        let Some(misdeed) = &rogue.misdeed else { return false };
        // A timeout never comes early.
        let since = misdeed.since.unwrap_or(rogue.broken);
        if now + TICK < since + misdeed.patience {
            return false;
        }
        misdeed.endings.iter().any(|ending| match (ending, heard) {
            (Ending::Error(code), Heard::Error { code: other, receipt, .. }) => {
                // An unknown command is refused before its headers have come.
                let is_unknown = receipt.is_none() && other == "E-COMMAND";
                code == other && (*receipt == misdeed.receipt || is_unknown)
            }
            (Ending::Close(code), Heard::Close(other)) => code == other,
            (Ending::Status(status), Heard::Status(other)) => status == other,
            (Ending::Alert, Heard::Alert) => true,
            _ => false,
        })
    }

    fn end(&mut self, client: ClientId, is_cut: bool) -> Result<(), Violation> {
        let Some(rogue) = self.all.get_mut(&client) else { return Ok(()) };
        rogue.is_over = true;
        let was_told = rogue.error.is_some() || rogue.last.is_some();
        if is_cut {
            return Ok(());
        }
        let text = if !was_told && rogue.leaves.is_none() {
            "was closed without a word"
        } else if rogue.error.is_some() && rogue.has_upgraded && rogue.last.is_none() {
            "got no Close frame"
        } else if rogue.error.is_none()
            && rogue.misdeed.is_none()
            && matches!(rogue.last, None | Some(Heard::Close(_)))
            && !rogue.receipts.is_empty()
        {
            "did not get all RECEIPTs"
        } else {
            return Ok(());
        };
        broken("rogues", format!("rogue {client} {text}: {rogue:?}"))
    }

    /// The broker has closed its end.
    fn release(&mut self, client: ClientId, now: Duration) -> Result<(), Violation> {
        let Some(rogue) = self.all.get_mut(&client) else { return Ok(()) };
        rogue.was_released = true;
        let Some((misdeed, arrived)) = rogue.misdeed.as_ref().zip(rogue.arrived) else { return Ok(()) };
        let due = (misdeed.since.unwrap_or(arrived) + misdeed.patience).max(rogue.taken) + self.linger_max;
        if misdeed.is_timed && now > due {
            return broken("rogues", format!("rogue {client} was ended after {due:?}: {misdeed:?}"));
        }
        Ok(())
    }

    /// Everything is at rest for longer than any timeout.
    fn rest(&self) -> Result<(), Violation> {
        let late = self.all.iter().find(|(_, rogue)| {
            let must_end = rogue.misdeed.as_ref().is_some_and(|misdeed| misdeed.is_timed);
            must_end && rogue.arrived.is_some() && !rogue.was_released
        });
        match late {
            Some((client, rogue)) => broken("rogues", format!("rogue {client} is not ended: {rogue:?}")),
            None => Ok(()),
        }
    }

    /// Everything is over that had to wait for anything.
    fn finish(&self) -> Result<(), Violation> {
        let left = self.all.iter().find(|(_, rogue)| !rogue.was_released && !rogue.is_over);
        match left {
            Some((client, rogue)) => broken("rogues", format!("rogue {client} is still there: {rogue:?}")),
            None => Ok(()),
        }
    }
}

/// Whether the connection ends with this.
fn is_end(heard: &Heard, rogue: &Rogue) -> bool {
    match heard {
        Heard::Error { .. } | Heard::Alert | Heard::Close(_) => true,
        Heard::Status(status) => *status != 101 || rogue.misdeed.is_some() && rogue.has_upgraded,
        _ => false,
    }
}

/// The code of the Close frame after an ERROR, as docs/errors.md lists them.
fn close_code_of(code: &str) -> u16 {
    match code {
        "E-HEADER-SIZE" | "E-HEADER-COUNT" | "E-MESSAGE-SIZE" | "E-LOGIN-SIZE" => 1009,
        "E-LOGIN-TIMEOUT" | "E-FRAME-TIMEOUT" | "E-TEMP-OWNER" | "E-READ-ONLY" | "E-FORBIDDEN"
        | "E-TX-COUNT" | "E-NOT-SUPPORTED" | "E-SUB-COUNT" | "E-DURABLE-IN-USE" => 1008,
        "E-DEST-COUNT" | "E-RETAINED-COUNT" | "E-QUEUE-FULL" | "E-CONNECTIONS" | "E-MEMORY"
        | "E-SLOW-CONSUMER" => 1013,
        _ => 1002,
    }
}

impl Checker for Rogues {
    fn see(&mut self, event: &Event, now: Duration) -> Result<(), Violation> {
        let (client, deed) = match event {
            Event::Rogue(client, deed) => (*client, deed),
            Event::Resting(_) => return self.rest(),
            Event::Finished(_) => return self.finish(),
            _ => return Ok(()),
        };
        if *deed == Deed::Opens {
            self.all.insert(client, Rogue { opened: now, ..Rogue::default() });
        }
        let Some(rogue) = self.all.get_mut(&client) else { return Ok(()) };
        match deed {
            Deed::Opens => {}
            Deed::Asks(receipt) => rogue.receipts.push_back(receipt.clone()),
            Deed::Pings(payload) => rogue.pings.push_back(payload.clone()),
            Deed::Breaks(misdeed) => (rogue.misdeed, rogue.broken) = (Some(misdeed.clone()), now),
            Deed::Arrives => rogue.arrived = Some(now),
            Deed::Takes => rogue.taken = now,
            Deed::Leaves(code) => rogue.leaves = Some(*code),
            Deed::Hears(heard) => return self.hear(client, heard, now),
            Deed::Ends { is_cut } => return self.end(client, *is_cut),
            Deed::Vanishes => rogue.is_over = true,
            Deed::Released => return self.release(client, now),
        }
        Ok(())
    }
}
