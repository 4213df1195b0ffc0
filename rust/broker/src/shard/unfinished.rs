//! Input that is not done with: frames that have come in part, and SENDs that wait.
//!
//! All shards together keep a quarter of `memory_limit` of it. What would have to wait when it is complete waits in the
//! kernel. For the rest there are three marks, in shares of the limit:
//!
//! | over | effect |
//! |---|---|
//! | a twelfth | frames take turns to arrive, one at a time on each shard; of the others only a *bite* is read |
//! | a sixth | every other turn is that of the one that lacks least; who was silent for 10 s is refused |
//! | three eighths, room for what is to come included | the largest are refused, but none that holds two bites or less |
//! | a half | those as well |

use std::sync::atomic::{AtomicI64, Ordering};

use stompica_proto::decode::{head_value, offending_head};
use stompica_proto::error::Code;
use stompica_proto::{ProtocolError, header};

use super::deadline::millis;
use super::input::offender_in;
use super::parking::Pause;
use super::passing::Load;
use super::{READ_BYTES, Shard};
use crate::connection::arrival::Arrival;
use crate::connection::conn::{Conn, Phase, Transport};
use crate::ids::ConnKey;
use crate::router::reach::Reach;

/// The others learn at once of a change by more than this, else once a turn.
const SYNC_BYTES: i64 = 1 << 20;
/// How long one frame may arrive alone while others wait…
const TURN_MS: u64 = 1000;
/// …unless nothing has come of it for this long…
const SILENCE_MS: u64 = 20;
/// …or less in all than this much for each millisecond behind those.
const PACE_BYTES: u64 = 1 << 10;
/// Who has sent nothing for this long gives way where there is much.
const STALLED_MS: u64 = 10_000;
/// How often it is looked at who has stalled.
const CHECK_MS: u64 = 100;
/// Connections that are looked at for the next turn.
const SEARCH_MAX: usize = 1024;
/// A connection is always read up to this, so that small frames pass.
const BITE_BYTES_MIN: i64 = 4 << 10;

/// What one shard knows of unfinished input: its own and that of all shards.
#[derive(Debug, Default)]
pub(super) struct Unfinished {
    bytes: i64,
    published: i64,
    elsewhere: i64,
    /// `memory_limit`.
    limit: i64,
    bite: i64,
    /// The connection that is read on all the same.
    turn: Option<Turn>,
    /// The next turn is that of the frame that has waited longest, not of the one that lacks least.
    longest_next: bool,
    next_check_ms: u64,
}

/// A frame arrives while others wait.
#[derive(Clone, Copy, Debug)]
struct Turn {
    key: ConnKey,
    since_ms: u64,
    /// Bytes of it that had come before.
    bytes_before: usize,
}

impl Unfinished {
    /// Counts a change on this shard.
    pub(super) fn add(&mut self, change: i64, everywhere: &AtomicI64) {
        self.bytes += change;
        if (self.bytes - self.published).abs() > SYNC_BYTES {
            self.sync(everywhere);
        }
    }

    fn sync(&mut self, everywhere: &AtomicI64) {
        let change = self.bytes - self.published;
        let before = match change {
            0 => everywhere.load(Ordering::Relaxed),
            _ => everywhere.fetch_add(change, Ordering::Relaxed),
        };
        self.elsewhere = before - self.published;
        self.published = self.bytes;
    }

    /// Brings it up to date, once a turn.
    pub(super) fn look(&mut self, everywhere: &AtomicI64, memory_limit: u64, connections: usize) {
        self.sync(everywhere);
        let limit = i64::try_from(memory_limit).unwrap_or(i64::MAX);
        self.limit = limit;
        let share = limit / 64 / i64::try_from(connections.max(1)).unwrap_or(i64::MAX);
        self.bite = share.clamp(BITE_BYTES_MIN, READ_BYTES as i64);
    }

    /// Bytes on all shards.
    fn total(&self) -> i64 {
        self.bytes + self.elsewhere
    }

    /// Whether frames arrive one at a time.
    pub(super) fn is_over(&self) -> bool {
        self.total() + READ_BYTES as i64 > self.limit / 12
    }

    /// By how much there is more than one frame after the other can relieve; negative if there is not.
    fn crowd(&self) -> i64 {
        self.total() - self.limit / 6
    }

    /// By how much there is more than there may ever be; negative if there is not. What has come may be a quarter, and
    /// there is room for half as much behind it.
    fn excess(&self) -> i64 {
        self.total() - self.limit / 8 * 3
    }

    /// How much a connection may hold and is not refused, though all hold too much together: others are to blame, maybe
    /// on other shards, and what everybody may hold is little.
    fn harmless(&self) -> i64 {
        if self.total() > self.limit / 2 { 0 } else { 2 * self.bite }
    }

    /// How little each connection may keep where much is kept.
    pub(super) fn bite(&self) -> usize {
        self.bite as usize
    }

    /// How much is read at a time from a connection.
    pub(super) fn read_bytes(&self, key: ConnKey) -> usize {
        if self.is_over() && !self.has_turn(key) { self.bite as usize } else { READ_BYTES }
    }

    /// Whether this is the connection whose frame may arrive.
    fn has_turn(&self, key: ConnKey) -> bool {
        self.turn.is_some_and(|turn| turn.key == key)
    }

    /// The shard ends.
    pub(super) fn forget(&mut self, everywhere: &AtomicI64) {
        self.bytes = 0;
        self.sync(everywhere);
    }
}

/// The command and headers of a SEND that begins `input`, as far as they are complete lines.
fn send_head(input: &[u8]) -> Option<&[u8]> {
    let head = offending_head(input);
    let lines = head.get(..head.iter().rposition(|byte| *byte == b'\n')? + 1)?;
    (lines.starts_with(b"SEND\n") || lines.starts_with(b"SEND\r\n")).then_some(lines)
}

impl Shard {
    /// Adjusts the count of bytes that connections hold before they are routed.
    pub(super) fn count_input(&mut self, key: ConnKey) {
        let Some(conn) = self.conns.get_mut(key) else { return };
        let (bytes, kept) = (conn.input_bytes(), conn.kept_bytes());
        self.memory.input_bytes = self.memory.input_bytes + bytes - conn.counted_bytes;
        conn.counted_bytes = bytes;
        if kept != conn.counted_input {
            let change = kept as i64 - conn.counted_input as i64;
            conn.counted_input = kept;
            self.memory.unfinished.add(change, &self.shared.unfinished);
        }
    }

    /// Takes note of what a connection kept of its input.
    pub(super) fn note_input(&mut self, key: ConnKey) {
        self.count_input(key);
        let Some(conn) = self.conns.get_mut(key) else { return };
        if conn.wait.is_on() {
            conn.stop_clock(self.now_ms);
        } else if conn.is_within_frame() && conn.deadline_ms > self.now_ms + millis(self.config.frame_timeout)
        {
            self.rearm(key);
        }
    }

    /// A connection is not read: its frame has more time.
    pub(super) fn stop_clock(&mut self, key: ConnKey) {
        if let Some(conn) = self.conns.get_mut(key) {
            conn.stop_clock(self.now_ms);
        }
    }

    /// When the frame that arrives has to be complete, and how long it may take.
    pub(super) fn frame_deadline(&self, conn: &Conn) -> Option<(u64, u64)> {
        let timeout_ms = millis(self.config.frame_timeout);
        let deadline = |arrival: &Arrival| {
            let came = conn.input.len();
            Some((arrival.deadline_ms(came, timeout_ms)?, arrival.allowed_ms(came, timeout_ms)))
        };
        let message = match &conn.transport {
            Transport::WebSocket(state) => deadline(&state.arrival),
            _ => None,
        };
        deadline(&conn.arrival).into_iter().chain(message).min()
    }

    /// Ends a connection whose frame was not complete in time.
    pub(super) fn time_out_frame(&mut self, key: ConnKey, allowed_ms: u64) {
        let Some(conn) = self.conns.get(key) else { return };
        let (offender, came) = (offender_in(&conn.input), conn.input.len());
        let text = format!(
            "{came} bytes of a frame came and not the rest of it within {allowed_ms} ms, which is frame_timeout and its \
             length at 64 KiB a second"
        );
        self.fail_with(key, ProtocolError::new(Code::FrameTimeout, text), &offender);
    }

    /// Why a connection that has sent a part of a frame is not read on now, if it is not.
    pub(super) fn pause_arrival(&mut self, key: ConnKey) -> Option<Pause> {
        let over = self.memory.unfinished.is_over();
        if !over && !self.memory.is_short {
            return None;
        }
        let conn =
            self.conns.get(key).filter(|conn| conn.kept_bytes() as i64 >= self.memory.unfinished.bite)?;
        if !conn.arrival.is_on() || self.may_exceed(key) {
            return None;
        }
        if let Some(pause) = self.pause_when_complete(key) {
            return Some(pause);
        }
        (over && !self.memory.unfinished.has_turn(key)).then_some(Pause::Arriving)
    }

    /// Why the SEND that arrives would have to wait if it were complete, as far as its head tells.
    fn pause_when_complete(&mut self, key: ConnKey) -> Option<Pause> {
        let conn = self.conns.get(key)?;
        let head = send_head(&conn.input)?;
        self.budget.visit(1 + head.len() / 256);
        let name = head_value(head, header::DESTINATION).filter(|name| !name.contains(&b'\\'))?.to_vec();
        let kept = [header::TRANSACTION, header::RETAIN].iter().any(|name| head_value(head, name).is_some());
        let bytes = conn.arrival.announced();
        let name = self.name_to_send_to(key, &name).ok()?;
        let destination = self.destination(&name).ok()?;
        let Reach { remote: shards, width, is_full, .. } = self.router.reach_of_any(destination, self.id);
        self.pause_for(key, &Load { name: &name, destination, shards, width, is_full, bytes, kept })
    }

    /// Lets the next frame arrive while there is too much unfinished input, and those give way that stalled.
    pub(super) fn look_at_unfinished(&mut self) {
        let connections = self.shared.connections.load(Ordering::Relaxed);
        self.memory.unfinished.look(&self.shared.unfinished, self.config.memory_limit, connections);
        if !self.memory.unfinished.is_over() {
            self.memory.unfinished.turn = None;
            if self.has_arriving() {
                self.retry_parked(&[Pause::Arriving]);
            }
            return;
        }
        if self.now_ms >= self.memory.unfinished.next_check_ms {
            self.memory.unfinished.next_check_ms = self.now_ms + CHECK_MS;
            self.let_some_give_way();
        }
        if !self.turn_goes_on()
            && let Some(next) = self.next_to_arrive()
        {
            let bytes_before = self.conns.get(next).map_or(0, Conn::incomplete_bytes);
            self.memory.unfinished.turn = Some(Turn { key: next, since_ms: self.now_ms, bytes_before });
            self.unpark(next);
        }
    }

    /// Whether a frame that waits to arrive could go on in the next turn: there is room, or the turn of another is over.
    pub(super) fn may_let_arrive(&self) -> bool {
        if !self.has_arriving() {
            return false;
        }
        let turn = self.memory.unfinished.turn.map(|turn| turn.key);
        let is_done = |key| self.conns.get(key).is_none_or(|conn| !conn.arrival.is_on());
        !self.memory.unfinished.is_over() || turn.is_some_and(is_done)
    }

    /// Whether frames wait to arrive. Other shards make room for them without a word.
    pub(crate) fn has_arriving(&self) -> bool {
        self.parking.first_of(&[Pause::Arriving]).is_some()
    }

    /// Whose frame may arrive next: whoever has waited longest; where there is much already, by turns whose frame lacks
    /// least, so that it can end, and whoever has waited longest.
    fn next_to_arrive(&mut self) -> Option<ConnKey> {
        let unfinished = &mut self.memory.unfinished;
        unfinished.longest_next = !unfinished.longest_next;
        if unfinished.longest_next || unfinished.crowd() <= 0 {
            return self.parking.first_of(&[Pause::Arriving]);
        }
        let longest = self.config.limits.message_bytes_max;
        let lacks = |conn: &Conn| match conn.arrival.announced() {
            0 => longest,
            announced => announced.saturating_sub(conn.input.len()),
        };
        let waiting = self.parking.waiting_for(Pause::Arriving).take(SEARCH_MAX);
        let waiting: Vec<_> = waiting.filter_map(|key| Some((lacks(self.conns.get(key)?), key))).collect();
        self.budget.visit(waiting.len());
        waiting.into_iter().min_by_key(|(lacks, _)| *lacks).map(|(_, key)| key)
    }

    /// Whether the connection whose turn it is needs it still.
    fn turn_goes_on(&mut self) -> bool {
        let Some(Turn { key, since_ms, bytes_before }) = self.memory.unfinished.turn else { return false };
        let now_ms = self.now_ms;
        let arrives = self.conns.get(key).is_some_and(|conn| {
            conn.phase == Phase::Open
                && !conn.wait.is_on()
                && conn.arrival.since_ms().is_some_and(|began_ms| began_ms <= since_ms)
                && (conn.undrained || {
                    let came = conn.incomplete_bytes().saturating_sub(bytes_before);
                    let allowed_ms = SILENCE_MS + came as u64 / PACE_BYTES;
                    now_ms - conn.read_ms.max(since_ms) < SILENCE_MS && now_ms - since_ms < allowed_ms
                })
        });
        if arrives && now_ms - since_ms < TURN_MS {
            return true;
        }
        self.memory.unfinished.turn = None;
        if arrives {
            self.park(key, Pause::Arriving); // behind the others
            self.stop_clock(key);
        }
        false
    }

    /// Refuses those whose frame has not gone on for long, where there is much; over the limit, the largest of all.
    fn let_some_give_way(&mut self) {
        let now_ms = self.now_ms;
        let turn = self.memory.unfinished.turn.map(|turn| turn.key);
        self.budget.visit(self.conns.len() / 16);
        if self.memory.unfinished.crowd() > 0 {
            let surplus = self.memory.unfinished.total() - self.memory.unfinished.limit / 16;
            self.give_way(surplus, |_, conn| !conn.wait.is_on() && now_ms - conn.read_ms >= STALLED_MS);
        }
        let (excess, harmless) = (self.memory.unfinished.excess(), self.memory.unfinished.harmless());
        self.give_way(excess, |key, conn| Some(key) != turn && conn.kept_bytes() as i64 > harmless);
    }

    fn give_way(&mut self, mut excess: i64, may: impl Fn(ConnKey, &Conn) -> bool) {
        if excess <= 0 {
            return;
        }
        let arriving = |conn: &Conn| conn.phase == Phase::Open && conn.arrival.is_on();
        let all = self.conns.iter().filter(|(key, conn)| arriving(conn) && may(*key, conn));
        let mut chosen: Vec<(usize, ConnKey)> = all.map(|(key, conn)| (conn.kept_bytes(), key)).collect();
        chosen.sort_unstable_by_key(|(bytes, _)| std::cmp::Reverse(*bytes));
        for (bytes, key) in chosen {
            if excess <= 0 {
                break;
            }
            excess -= bytes as i64;
            let offender = self.conns.get(key).map(|conn| offender_in(&conn.input)).unwrap_or_default();
            let text = format!(
                "{bytes} bytes of a frame that is not complete gave way: such frames may take a quarter of memory_limit"
            );
            self.parking.end(&mut self.conns, key);
            self.fail_with(key, ProtocolError::new(Code::Memory, text), &offender);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: i64 = 1 << 20;

    #[test]
    fn shards_learn_of_each_other() {
        let everywhere = AtomicI64::new(0);
        let (mut one, mut other) = (Unfinished::default(), Unfinished::default());
        for shard in [&mut one, &mut other] {
            shard.look(&everywhere, 96 << 20, 1);
            assert!(!shard.is_over());
        }
        one.add(4 * MIB, &everywhere);
        other.add(3 * MIB, &everywhere);
        assert_eq!((one.total(), other.total()), (4 * MIB, 7 * MIB), "by the last look of each");
        one.look(&everywhere, 96 << 20, 1);
        assert_eq!(one.total(), 7 * MIB);
        other.add(MIB, &everywhere);
        assert!(other.is_over() && !one.is_over());
        one.look(&everywhere, 96 << 20, 1);
        assert!(!one.is_over(), "a small change is told once a turn");
        other.look(&everywhere, 96 << 20, 1);
        one.look(&everywhere, 96 << 20, 1);
        assert!(one.is_over());
        other.forget(&everywhere);
        one.look(&everywhere, 96 << 20, 1);
        assert_eq!(one.total(), 4 * MIB);
    }

    #[test]
    fn reads_are_small_while_there_is_too_much() {
        let everywhere = AtomicI64::new(0);
        let mut shard = Unfinished::default();
        shard.look(&everywhere, 64 << 20, 100);
        let (key, other) = (ConnKey { index: 1, generation: 1 }, ConnKey { index: 2, generation: 1 });
        assert_eq!(shard.read_bytes(key), READ_BYTES);
        shard.add(16 * MIB, &everywhere);
        shard.turn = Some(Turn { key, since_ms: 0, bytes_before: 0 });
        assert_eq!((shard.read_bytes(key), shard.read_bytes(other)), (READ_BYTES, (1 << 20) / 100));
        shard.look(&everywhere, 64 << 20, 1_000_000);
        assert_eq!(shard.read_bytes(other), BITE_BYTES_MIN as usize);
    }

    #[test]
    fn only_the_lines_that_are_complete_are_looked_at() {
        assert_eq!(send_head(b"SEND\ndestination:/queue/a"), Some(&b"SEND\n"[..]));
        let head = send_head(b"SEND\r\ndestination:/queue/a\r\n\r\nbody").expect("a SEND");
        assert_eq!(head_value(head, header::DESTINATION), Some(&b"/queue/a"[..]));
        assert_eq!((send_head(b"SEN"), send_head(b"ACK\nid:1\n")), (None, None));
    }
}
