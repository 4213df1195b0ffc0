//! Heart-beats: the broker sends within the agreed interval, and ends a connection that is silent for twice its own one,
//! no earlier and no later, with the right ERROR. A WebSocket is pinged then, and ended after the same time again; one that
//! answers stays until it has sent no STOMP for ten intervals, but at least 90 s.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Checker, broken};
use crate::beats::{Beat, longest_silence};
use crate::events::{ClientId, Event, Violation};
use crate::options::Options;

/// The broker counts in milliseconds, from the beginning of a turn.
const PRECISION: Duration = Duration::from_millis(2);
/// A silent WebSocket without heart-beats is pinged after this time.
const PING: Duration = Duration::from_secs(60);

/// A connection that has agreed on heart-beats.
#[derive(Clone, Copy, Debug)]
struct Known {
    is_websocket: bool,
    /// The interval of the client, and that of the broker; zero: none.
    client: Duration,
    broker: Duration,
    /// When STOMP of each side was last on its way.
    sent: Duration,
    heard: Duration,
    /// When anything of the client was last on its way, and of the ping that it has not answered.
    alive: Duration,
    pinged: Option<Duration>,
}

/// Whether something that was due at this time happened at another one.
fn is_off(at: Duration, due: Option<Duration>) -> Option<&'static str> {
    match due {
        None => Some("without a reason"),
        Some(due) if at + PRECISION < due => Some("early"),
        Some(due) if at > due + PRECISION => Some("late"),
        Some(_) => None,
    }
}

impl Known {
    /// How long the client may be silent before it is pinged, or ended.
    fn patience(&self) -> Duration {
        if self.client.is_zero() { PING } else { self.client * 2 }
    }

    /// When the broker ends the connection if nothing more comes.
    fn end_due(&self) -> Option<Duration> {
        let beats = !self.client.is_zero();
        if !self.is_websocket {
            return beats.then(|| self.sent + self.patience());
        }
        let unanswered = self.pinged.map(|pinged| pinged + self.patience());
        let without_stomp = beats.then(|| self.sent + longest_silence(self.client));
        unanswered.into_iter().chain(without_stomp).min()
    }

    /// When the broker pings the client if nothing more comes.
    fn ping_due(&self) -> Option<Duration> {
        (self.is_websocket && self.pinged.is_none()).then(|| self.alive + self.patience())
    }

    /// What the broker should have done until now.
    fn is_overdue(&self, now: Duration) -> Option<&'static str> {
        let has_passed = |due: Option<Duration>| due.is_some_and(|due| now > due + PRECISION);
        if has_passed(self.end_due()) {
            return Some("a silent client that is not closed");
        }
        has_passed(self.ping_due()).then_some("a silent client that is not pinged")
    }
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

    /// Notes an agreement.
    fn agree(&mut self, client: ClientId, asked: (u32, u32), is_websocket: bool, now: Duration) {
        let (sends, wants) = self.offer;
        let (client_beats, broker_beats) = (agreed(asked.0, wants), agreed(sends, asked.1));
        let known = Known {
            is_websocket,
            client: client_beats,
            broker: broker_beats,
            sent: now,
            heard: now,
            alive: now,
            pinged: None,
        };
        self.all.insert(client, known);
    }

    /// What is wrong with an event of a connection.
    fn is_wrong(&mut self, client: ClientId, beat: &Beat, now: Duration) -> Option<String> {
        if let Beat::Agreed(asked, offered, is_websocket) = beat {
            self.agree(client, *asked, *is_websocket, now);
            let (sends, wants) = self.offer;
            return (*offered != format!("{sends},{wants}")).then(|| "another offer".to_owned());
        }
        let known = self.all.get_mut(&client)?;
        let is_late = |at: Duration| known.broker > Duration::ZERO && at > known.heard + known.broker;
        let wrong = match beat {
            Beat::Heard(at, _) if is_late(*at) => Some("a late heart-beat of the broker"),
            Beat::Heard(at, 1) if known.broker.is_zero() && *at > known.heard => {
                Some("a heart-beat that nobody wants")
            }
            Beat::Pinged(at) => {
                return is_off(*at, known.ping_due()).map(|how| format!("a ping {how}")).or_else(|| {
                    known.pinged = Some(*at);
                    None
                });
            }
            Beat::Closed(at, code) => {
                let is_other = code.as_deref() != Some("E-HEART-BEAT-TIMEOUT");
                let wrong = is_off(*at, known.end_due()).map(|how| format!("an end {how}"));
                return wrong.or_else(|| is_other.then(|| "an end with another code".to_owned()));
            }
            Beat::Over if is_late(now) => Some("no heart-beat of the broker"),
            Beat::Sent | Beat::Answered | Beat::Over => known.is_overdue(now),
            _ => None,
        };
        match beat {
            Beat::Heard(at, _) => known.heard = known.heard.max(*at),
            Beat::Sent => (known.sent, known.alive, known.pinged) = (now, now, None),
            Beat::Answered => (known.alive, known.pinged) = (now, None),
            Beat::Waits => _ = self.all.remove(&client),
            _ => {}
        }
        wrong.map(str::to_owned)
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

    const LATE: &str = "E-HEART-BEAT-TIMEOUT";

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// What is found behind an agreement on these intervals of the client and of the broker.
    fn found_with(
        asked: (u32, u32),
        is_websocket: bool,
        events: impl IntoIterator<Item = (u64, Beat)>,
    ) -> bool {
        let mut options = Options::new(1, 1);
        options.config.heartbeat_ms = (500, 1000);
        let mut checker = Beats::new(&options);
        let begin = (0, Beat::Agreed(asked, "500,1000".to_owned(), is_websocket));
        let mut all = [begin].into_iter().chain(events);
        all.any(|(at, beat)| checker.see(&Event::Beat(1, beat), ms(at)).is_err())
    }

    /// What is found over TCP, behind an agreement on 1 s of the client and 500 ms of the broker.
    fn found(events: impl IntoIterator<Item = (u64, Beat)>) -> bool {
        found_with((100, 100), false, events)
    }

    /// What is found over WebSocket, behind an agreement on 1 s of the client and nothing of the broker.
    fn found_over_websocket(events: impl IntoIterator<Item = (u64, Beat)>) -> bool {
        found_with((100, 0), true, events)
    }

    fn heard(at: u64) -> (u64, Beat) {
        (at, Beat::Heard(ms(at), 1))
    }

    fn pinged(at: u64) -> (u64, Beat) {
        (at, Beat::Pinged(ms(at)))
    }

    fn closed(at: u64, code: &str) -> (u64, Beat) {
        (at, Beat::Closed(ms(at), Some(code.to_owned())))
    }

    /// Pings every 2 s, which are answered, until then.
    fn answered(until: u64) -> impl Iterator<Item = (u64, Beat)> {
        (2000..until).step_by(2000).flat_map(|at| [pinged(at), (at, Beat::Answered)])
    }

    #[test]
    fn the_broker_sends_within_its_interval() {
        assert!(!found([heard(400), heard(800), (1200, Beat::Over)]));
        assert!(found([heard(400), heard(901)]));
        assert!(found([heard(400), (901, Beat::Over)]));
        assert!(found_with((0, 100), true, [heard(400), heard(901)]));
        assert!(found_over_websocket([heard(400)]), "nobody wants it");
    }

    #[test]
    fn a_silent_client_is_closed_in_time_and_no_other() {
        let beats = || (1..=10).map(|at| heard(at * 400));
        assert!(!found([closed(2000, LATE)]));
        assert!(found([closed(1500, LATE)]), "within the tolerance");
        assert!(found([closed(2010, LATE)]));
        assert!(found([closed(2000, "E-MEMORY")]));
        assert!(found(beats().take(6).chain([(2500, Beat::Over)])), "it stays");
        assert!(found([pinged(2000)]), "a ping over TCP");
        let sent = [(1500, Beat::Sent)];
        assert!(!found(sent.clone().into_iter().chain([closed(3500, LATE)])));
        assert!(found(sent.into_iter().chain([closed(2000, LATE)])));
    }

    #[test]
    fn a_connection_whose_frames_wait_is_not_judged() {
        assert!(!found([(0, Beat::Waits), closed(700, "E-MEMORY")]));
    }

    #[test]
    fn a_silent_websocket_is_pinged_and_then_closed() {
        assert!(!found_over_websocket([pinged(2000), closed(4000, LATE)]));
        assert!(found_over_websocket([closed(2000, LATE)]), "without a ping");
        assert!(found_over_websocket([pinged(2000), closed(3000, LATE)]), "early");
        assert!(found_over_websocket([pinged(2000), closed(4010, LATE)]), "late");
        assert!(found_over_websocket([pinged(2000), (4010, Beat::Over)]), "it stays");
        assert!(found_over_websocket([pinged(1500)]), "it is not late");
        assert!(found_over_websocket([pinged(2000), pinged(2100)]), "a second ping");
        assert!(found_over_websocket([(2010, Beat::Over)]), "no ping");
    }

    #[test]
    fn a_websocket_that_sends_in_time_stays() {
        let sent = || [(1500, Beat::Sent), (3000, Beat::Sent)].into_iter();
        assert!(!found_over_websocket(sent().chain([(4500, Beat::Over)])));
        assert!(found_over_websocket(sent().chain([closed(4500, LATE)])));
        assert!(found_over_websocket(sent().chain([pinged(4500)])));
        let late = [pinged(2000), (3500, Beat::Sent)].into_iter();
        assert!(!found_over_websocket(late.clone().chain([pinged(5500), closed(7500, LATE)])));
        assert!(found_over_websocket(late.chain([closed(4000, LATE)])), "it has sent behind the ping");
    }

    #[test]
    fn a_websocket_that_only_answers_pings_stays_for_90_s_and_no_longer() {
        assert!(!found_over_websocket(answered(90_000).chain([closed(90_000, LATE)])));
        assert!(found_over_websocket(answered(50_000).chain([closed(50_000, LATE)])), "early");
        assert!(found_over_websocket(answered(92_000).chain([(91_000, Beat::Over)])), "it stays");
        assert!(found_over_websocket(answered(96_000)), "it is pinged again");
        let sent = [(10_500, Beat::Sent)];
        assert!(found_over_websocket(answered(10_400).chain(sent).chain([closed(90_000, LATE)])), "early");
    }

    #[test]
    fn a_websocket_without_heart_beats_is_pinged_once_a_minute() {
        let without = |events: Vec<(u64, Beat)>| found_with((0, 0), true, events);
        assert!(!without(vec![pinged(60_000), closed(120_000, LATE)]));
        assert!(!without(vec![
            pinged(60_000),
            (60_000, Beat::Answered),
            pinged(120_000),
            (120_000, Beat::Over)
        ]));
        assert!(without(vec![closed(90_000, LATE)]));
        assert!(without(vec![(70_000, Beat::Over)]));
    }
}
