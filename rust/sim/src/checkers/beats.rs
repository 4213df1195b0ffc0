//! Heart-beats: the broker sends within the agreed interval, and ends a connection that is silent for twice its own one,
//! no earlier and no later, with the right ERROR.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Checker, broken};
use crate::beats::Beat;
use crate::events::{ClientId, Event, Violation};
use crate::options::Options;

/// The broker counts in milliseconds, from the beginning of a turn.
const PRECISION: Duration = Duration::from_millis(2);

/// A connection that has agreed on heart-beats.
#[derive(Clone, Copy, Debug)]
struct Known {
    /// The interval of the client, and that of the broker; zero: none.
    client: Duration,
    broker: Duration,
    /// When something of each side was last on its way.
    sent: Duration,
    heard: Duration,
}

/// Follows who sends when.
#[derive(Debug)]
pub struct Beats {
    offer: (u32, u32),
    all: BTreeMap<ClientId, Known>,
}

/// The longer interval; none if either side wants none.
fn agreed(sends: u32, wants: u32) -> Duration {
    Duration::from_millis(if sends == 0 || wants == 0 { 0 } else { u64::from(sends.max(wants)) })
}

impl Beats {
    /// Expects what the settings promise.
    #[must_use]
    pub fn new(options: &Options) -> Self {
        Beats { offer: options.config.heartbeat_ms, all: BTreeMap::new() }
    }

    /// What is wrong with an event of a connection.
    fn is_wrong(&mut self, client: ClientId, beat: &Beat, now: Duration) -> Option<&'static str> {
        let (sends, wants) = self.offer;
        if let Beat::Agreed(asked, offered) = beat {
            let (client_beats, broker_beats) = (agreed(asked.0, wants), agreed(sends, asked.1));
            let known = Known { client: client_beats, broker: broker_beats, sent: now, heard: now };
            self.all.insert(client, known);
            return (*offered != format!("{sends},{wants}")).then_some("another offer");
        }
        let known = self.all.get_mut(&client)?;
        let tolerance = known.client * 2;
        let is_late = |at: Duration| known.broker > Duration::ZERO && at > known.heard + known.broker;
        match beat {
            Beat::Sent => known.sent = now,
            Beat::Heard(at, _) if is_late(*at) => return Some("a late heart-beat of the broker"),
            Beat::Heard(at, 1) if known.broker.is_zero() && *at > known.heard => {
                return Some("a heart-beat that nobody wants");
            }
            Beat::Heard(at, _) => known.heard = known.heard.max(*at),
            Beat::Closed(..) if tolerance.is_zero() => return Some("an end without a reason"),
            Beat::Closed(_, code) if code.as_deref() != Some("E-HEART-BEAT-TIMEOUT") => {
                return Some("an end with another code");
            }
            Beat::Closed(at, _) if *at + PRECISION < known.sent + tolerance => return Some("an early end"),
            Beat::Closed(at, _) if *at > known.sent + tolerance + PRECISION => return Some("a late end"),
            Beat::Over if !tolerance.is_zero() && now > known.sent + tolerance + PRECISION => {
                return Some("a silent client that is not closed");
            }
            Beat::Over if is_late(now) => return Some("no heart-beat of the broker"),
            _ => {}
        }
        None
    }
}

impl Checker for Beats {
    fn see(&mut self, event: &Event, now: Duration) -> Result<(), Violation> {
        let Event::Beat(client, beat) = event else { return Ok(()) };
        match self.is_wrong(*client, beat, now) {
            Some(what) => {
                let known = self.all.get(client);
                broken("beats", format!("{what}: connection {client}, {beat:?} at {now:?}, {known:?}"))
            }
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// What is found behind an agreement on 1 s of the client and 500 ms of the broker.
    fn found(events: impl IntoIterator<Item = (u64, Beat)>) -> bool {
        let mut options = Options::new(1, 1);
        options.config.heartbeat_ms = (500, 1000);
        let mut checker = Beats::new(&options);
        let begin = (0, Beat::Agreed((100, 100), "500,1000".to_owned()));
        let mut all = [begin].into_iter().chain(events);
        all.any(|(at, beat)| checker.see(&Event::Beat(1, beat), ms(at)).is_err())
    }

    fn heard(at: u64) -> (u64, Beat) {
        (at, Beat::Heard(ms(at), 1))
    }

    fn closed(at: u64, code: &str) -> (u64, Beat) {
        (at, Beat::Closed(ms(at), Some(code.to_owned())))
    }

    #[test]
    fn the_broker_sends_within_its_interval() {
        assert!(!found([heard(400), heard(800), (1200, Beat::Over)]));
        assert!(found([heard(400), heard(901)]));
        assert!(found([heard(400), (901, Beat::Over)]));
    }

    #[test]
    fn a_silent_client_is_closed_in_time_and_no_other() {
        let code = "E-HEART-BEAT-TIMEOUT";
        let beats = || (1..=10).map(|at| heard(at * 400));
        assert!(!found([closed(2000, code)]));
        assert!(found([closed(1500, code)]), "within the tolerance");
        assert!(found([closed(2010, code)]));
        assert!(found([closed(2000, "E-MEMORY")]));
        assert!(found(beats().take(6).chain([(2500, Beat::Over)])), "it stays");
        let sent = [(1500, Beat::Sent)];
        assert!(!found(sent.clone().into_iter().chain([closed(3500, code)])));
        assert!(found(sent.into_iter().chain([closed(2000, code)])));
    }
}
