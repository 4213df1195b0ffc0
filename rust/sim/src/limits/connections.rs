//! What each connection may keep in memory, and when it may be stopped for want of it.
//!
//! | what | bound |
//! |---|---|
//! | its own answers (RECEIPTs, pongs) | `outbox_limit`, and those to the frames of one turn: with so many in its outbox it is not read |
//! | memory for its input | twice the bytes that have come, whatever a frame has announced |
//! | a wait for memory | none begins while it has unacknowledged deliveries and less than 95 % of `memory_limit` is held |
//! | one that has begun before it got deliveries | 100 ms while memory is short and less than 95 % is held |

use std::collections::BTreeMap;
use std::time::Duration;

use stompica_broker::config::Config;
use stompica_broker::simulated::outside::Traffic;
use stompica_broker::usage::{OfConnection, Pause, Usage};

use super::at_most;
use crate::events::Violation;

/// Bytes of answers for one byte of frames: a frame of 23 bytes may add an entry of 100.
const ANSWER_SHARE: usize = 8;
/// CONNECTED, an HTTP response, or another answer for which a frame waits, without its `receipt-id`.
const ANSWER_BYTES: usize = 4096;
/// A heart-beat, over WebSocket too.
const BEAT_BYTES: usize = 16;
/// A connection that got deliveries while it waits is tried again after this time, in whole milliseconds.
const RETRY: Duration = Duration::from_millis(102);
/// The beginning of a frame that is kept without a large buffer.
const SHORT_BYTES: usize = 1024;

/// Compares each connection before and after a turn of a shard.
///
/// # Errors
/// What a connection has too much of, or a wait that should not have begun.
pub(super) fn check(
    config: &Config,
    shard: usize,
    before: &Usage,
    after: &Usage,
    traffic: Traffic,
) -> Result<(), Violation> {
    let held_most = after.work[shard].held_most.max(before.held_bytes).max(after.held_bytes);
    // A query may have come and been answered in this turn.
    let has_queries = before.work.get(shard).is_none_or(|work| work.queries != after.work[shard].queries);
    let has_memory = held_most < out_of_memory(config);
    for is in &after.each {
        let new = OfConnection::default();
        let at = before.each.binary_search_by_key(&is.id, |conn| conn.id);
        let was = at.map_or(&new, |at| &before.each[at]);
        let owner = format!("of connection {}", is.id);
        let grown = 2 * (was.input + traffic.read + SHORT_BYTES);
        at_most("memory for input", &owner, is.input_memory as u64, (was.input_memory + grown) as u64)?;
        let is_told = is.is_told || was.is_told || has_queries;
        if is.is_open && !is_told {
            let answers = is.answers + is.pending_answers;
            at_most("answers", &owner, answers as u64, answers_max(config, was, traffic) as u64)?;
        }
        if has_memory && holds_throughout(was, is) && !was.has_turn && begins_to_wait(was, is) {
            let text = format!(
                "connection {} has {} unacknowledged deliveries and begins to wait: {:?}; {held_most} bytes are held",
                is.id, is.unacked, is.wait
            );
            return Err(Violation { checker: "limits", text });
        }
    }
    Ok(())
}

/// The held bytes from which all connections wait.
fn out_of_memory(config: &Config) -> i64 {
    config.memory_limit as i64 / 100 * 95
}

/// The waits of connections with unacknowledged deliveries while memory is short: the place of each, and since when.
#[derive(Clone, Debug, Default)]
pub(super) struct Waits(BTreeMap<u64, (u64, Duration)>);

impl Waits {
    /// Looks at the waits that remain after a turn of a shard.
    ///
    /// # Errors
    /// One that the shard should have ended to try its frame again.
    pub(super) fn check(
        &mut self,
        config: &Config,
        shard: usize,
        after: &Usage,
        now: Duration,
    ) -> Result<(), Violation> {
        let mut waits = BTreeMap::new();
        for conn in &after.each {
            let Some((Pause::Kept | Pause::Arriving, place)) = conn.wait else { continue };
            if conn.unacked == 0
                || !after.work[conn.shard].is_short
                || after.held_bytes >= out_of_memory(config)
            {
                continue;
            }
            let earlier = self.0.get(&conn.id).filter(|wait| wait.0 == place);
            let since = earlier.map_or(now, |wait| wait.1);
            if conn.shard == shard && now > since + RETRY {
                let (id, unacked, waited) = (conn.id, conn.unacked, now - since);
                let text = format!(
                    "connection {id} with {unacked} unacknowledged deliveries has waited for {waited:?}"
                );
                return Err(Violation { checker: "limits", text });
            }
            waits.insert(conn.id, (place, since));
        }
        self.0 = waits;
        Ok(())
    }
}

/// The bound on a connection's own answers after a turn.
fn answers_max(config: &Config, was: &OfConnection, traffic: Traffic) -> usize {
    // An answer that could be sent at last has another form in the outbox.
    let mut bound = was.answers + 2 * was.pending_answers + BEAT_BYTES;
    if was.asks {
        bound += 2 * config.limits.header_line_bytes_max + ANSWER_BYTES;
    }
    if was.answers < config.outbox_limit {
        bound += ANSWER_SHARE * (was.input + traffic.read) + ANSWER_BYTES;
    }
    bound
}

/// Whether a connection had unacknowledged deliveries at each moment of the turn: it had some, and settled none. A
/// subscription that ends settles them, and takes its count along.
fn holds_throughout(was: &OfConnection, is: &OfConnection) -> bool {
    was.unacked > 0
        && is.consumers == was.consumers
        && is.delivered >= was.delivered
        && is.unacked.checked_sub(was.unacked) == is.delivered.checked_sub(was.delivered)
}

fn begins_to_wait(was: &OfConnection, is: &OfConnection) -> bool {
    is.wait.is_some() && is.wait != was.wait
}

#[cfg(test)]
mod tests {
    use stompica_broker::usage::Work;

    use super::*;

    fn config() -> Config {
        Config { outbox_limit: 1000, memory_limit: 1 << 20, ..Config::default() }
    }

    fn usage(conn: OfConnection) -> Usage {
        Usage { work: vec![Work::default()], each: vec![OfConnection { id: 7, ..conn }], ..Usage::default() }
    }

    fn found(was: OfConnection, is: OfConnection, read: usize) -> Option<String> {
        let traffic = Traffic { read, ..Traffic::default() };
        check(&config(), 0, &usage(was), &usage(is), traffic).err().map(|violation| violation.text)
    }

    #[test]
    fn input_takes_memory_as_it_comes() {
        let of = |input, input_memory| OfConnection { input, input_memory, ..OfConnection::default() };
        assert_eq!(found(of(0, 0), of(1000, 1500), 1000), None);
        assert_eq!(found(of(1000, 1500), of(0, 1500), 0), None, "it may be kept for what follows");
        let text = found(of(0, 0), of(1000, 50_000), 1000);
        assert!(text.is_some_and(|text| text.starts_with("memory for input of connection 7: 50000")));
    }

    #[test]
    fn a_connection_is_not_read_while_its_answers_fill_its_outbox() {
        let of = |answers, pending_answers| OfConnection {
            is_open: true,
            answers,
            pending_answers,
            ..OfConnection::default()
        };
        assert_eq!(found(of(999, 0), of(5000, 0), 1000), None, "it was read for one turn more");
        assert!(found(of(999, 0), of(20_000, 0), 1000).is_some());
        assert_eq!(found(of(1000, 300), of(1500, 0), 1000), None, "answers that waited");
        let text = found(of(1000, 0), of(1030, 0), 1000);
        assert!(text.is_some_and(|text| text.starts_with("answers of connection 7: 1030")));
        // Seed 22000559: a query came and was answered in one turn.
        let mut answered = usage(of(9000, 0));
        answered.work[0].queries = 1;
        let checked = check(&config(), 0, &usage(of(1000, 0)), &answered, Traffic::default());
        assert!(checked.is_ok(), "the answer to a query has any size");
        let told = |answers| OfConnection { is_told: true, ..of(answers, 0) };
        assert_eq!(found(told(1000), told(9000), 1000), None);
        let asking = OfConnection { asks: true, ..of(1000, 0) };
        assert_eq!(found(asking, of(1030, 0), 0), None, "the RECEIPT of a COMMIT");
    }

    #[test]
    fn a_connection_with_deliveries_is_read_while_there_is_memory() {
        let of = |unacked, delivered, place: Option<u64>| OfConnection {
            unacked,
            delivered,
            wait: place.map(|place| (Pause::Kept, place)),
            ..OfConnection::default()
        };
        assert!(found(of(1, 1, None), of(1, 1, Some(3)), 0).is_some());
        assert!(found(of(1, 1, Some(2)), of(2, 2, Some(3)), 0).is_some(), "it was read, and waits again");
        assert_eq!(found(of(1, 1, Some(3)), of(1, 1, Some(3)), 0), None, "it has waited before");
        assert_eq!(found(of(0, 0, None), of(1, 1, Some(3)), 0), None, "it had none when it began to wait");
        assert_eq!(found(of(1, 1, None), of(1, 2, Some(3)), 0), None, "it may have had none in between");
        let turn = OfConnection { has_turn: true, ..of(1, 1, None) };
        assert_eq!(found(turn, of(1, 1, Some(3)), 0), None, "its time is over");
        let (before, mut after) = (usage(of(1, 1, None)), usage(of(1, 1, Some(3))));
        after.work[0].held_most = 1 << 20;
        assert!(check(&config(), 0, &before, &after, Traffic::default()).is_ok(), "there is no memory");
    }

    #[test]
    fn a_connection_that_gets_deliveries_while_it_waits_is_tried_again() {
        let of = |unacked, place| OfConnection {
            unacked,
            wait: Some((Pause::Kept, place)),
            ..OfConnection::default()
        };
        let mut short = usage(of(1, 3));
        short.work[0].is_short = true;
        let at = Duration::from_millis;
        let found = |seen: &[(&Usage, u64)]| {
            let mut waits = Waits::default();
            seen.iter().any(|(usage, ms)| waits.check(&config(), 0, usage, at(*ms)).is_err())
        };
        assert!(found(&[(&short, 5), (&short, 50), (&short, 108)]));
        assert!(!found(&[(&short, 5), (&short, 107)]));
        let changed = |change: fn(&mut Usage)| {
            let mut usage = short.clone();
            change(&mut usage);
            usage
        };
        for between in [
            changed(|usage| usage.each[0].wait = Some((Pause::Kept, 4))),
            changed(|usage| usage.each[0].wait = Some((Pause::Memory, 3))),
            changed(|usage| usage.each[0].unacked = 0),
            changed(|usage| usage.work[0].is_short = false),
            changed(|usage| usage.held_bytes = 1 << 20),
        ] {
            assert!(!found(&[(&short, 5), (&between, 50), (&short, 108)]), "{between:?}");
        }
    }
}
