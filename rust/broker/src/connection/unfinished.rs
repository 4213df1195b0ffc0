//! Unfinished input: frames of which only a part has arrived, and SENDs that wait.
//!
//! All shards together keep at most a quarter of `memory_limit` of it. A frame that would have to wait once complete
//! stays in the kernel. For the rest there are four thresholds, as shares of the limit:
//!
//! | over | effect |
//! |---|---|
//! | a twelfth | frames take turns to arrive, one at a time on each shard; only a *portion* of the others is read |
//! | a sixth | every other turn goes to the frame that lacks the fewest bytes; connections that sent nothing for 10 s
//! are refused |
//! | three eighths, spare capacity included | the connections with the most input of all shards are refused, except those
//! with two portions or less; what peers sent before they hung up stays in the kernel, too |
//! | a half | these are refused, too |

use stompica_proto::ProtocolError;
use stompica_proto::decode::offending_head;
use stompica_proto::error::Code;

use super::conn::Conn;
use super::deadline::millis;
use super::input::offender_in;
use super::pausing::Pause;
use super::{Connections, READ_BYTES};
use crate::door::planted;
use crate::door::sync::{AtomicI64, Ordering};
use crate::ids::ConnKey;
use crate::turn::Turn;

/// The maximum turn of a frame: for this long it alone may be received while others wait.
const TURN_MS: u64 = 1000;
/// The turn of a frame ends early if none of its bytes arrive for this long.
const SILENCE_MS: u64 = 20;
/// After that time, the turn of a frame also ends if it is slower than this, in bytes per millisecond.
const PACE_BYTES: u64 = 1 << 10;
/// A connection that has sent nothing for this long is refused when there is too much unfinished input.
const STALLED_MS: u64 = 10_000;
/// The interval of checks for stalled connections.
const CHECK_MS: u64 = 100;
/// Connections that are compared to choose the next one to arrive.
const SEARCH_MAX: usize = 1024;
/// Changes of more than this are shared with other shards at once, others once a turn.
pub(crate) const SYNC_BYTES: i64 = 1 << 20;

/// The minimum that is always read from a connection, so that small frames pass.
pub(crate) const PORTION_BYTES_MIN: i64 = 4 << 10;

/// One shard's view of unfinished input: its own, and that of all shards.
#[derive(Debug, Default)]
pub(crate) struct Unfinished {
    pub(super) bytes: i64,
    pub(super) published: i64,
    elsewhere: i64,
    /// `memory_limit`.
    limit: i64,
    portion: i64,
    /// The connection that may be read although there is too much input.
    turn: Option<ArrivalTurn>,
    /// The next turn goes to the frame with the longest wait, not to the one that lacks the fewest bytes.
    longest_next: bool,
    next_check_ms: u64,
}

/// The turn of one frame to arrive while others wait.
#[derive(Clone, Copy, Debug)]
struct ArrivalTurn {
    key: ConnKey,
    since_ms: u64,
    /// Bytes of it that had come before its turn.
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

    pub(super) fn sync(&mut self, everywhere: &AtomicI64) {
        let change = self.bytes - self.published;
        let before = match change {
            0 => everywhere.load(Ordering::Relaxed),
            _ => everywhere.fetch_add(change, Ordering::Relaxed),
        };
        self.elsewhere = before - self.published;
        self.published = self.bytes;
    }

    /// Updates the state, once a turn.
    pub(super) fn look(&mut self, everywhere: &AtomicI64, memory_limit: u64, connections: usize) {
        self.sync(everywhere);
        let limit = i64::try_from(memory_limit).unwrap_or(i64::MAX);
        self.limit = limit;
        let share = limit / 64 / i64::try_from(connections.max(1)).unwrap_or(i64::MAX);
        self.portion = share.clamp(PORTION_BYTES_MIN, READ_BYTES as i64);
    }

    /// Bytes on all shards.
    pub(super) fn total(&self) -> i64 {
        self.bytes + self.elsewhere
    }

    /// Whether frames arrive one at a time.
    pub(crate) fn is_over(&self) -> bool {
        self.total() + READ_BYTES as i64 > self.limit / 12
    }

    /// Bytes above the threshold from which taking turns is not enough; negative below it.
    pub(super) fn overload(&self) -> i64 {
        self.total() - self.limit / 6
    }

    /// Bytes above the absolute limit; negative below it. A quarter of the limit may have arrived, and buffers have
    /// half as much spare capacity.
    pub(super) fn excess(&self) -> i64 {
        self.total() - self.limit / 8 * 3
    }

    /// The amount that a connection may hold without being refused, even if all together hold too much: then others,
    /// maybe on other shards, hold more than their share.
    pub(super) fn harmless(&self) -> i64 {
        if self.total() > self.limit / 2 { 0 } else { 2 * self.portion }
    }

    /// The amount that each connection may keep when there is too much.
    pub(crate) fn portion(&self) -> usize {
        self.portion as usize
    }

    /// The amount that is read from a connection at a time.
    pub(super) fn read_bytes(&self, key: ConnKey) -> usize {
        if self.is_over() && !self.has_turn(key) { self.portion as usize } else { READ_BYTES }
    }

    /// Whether it is the turn of this connection's frame to arrive.
    pub(crate) fn has_turn(&self, key: ConnKey) -> bool {
        self.turn.is_some_and(|turn| turn.key == key)
    }

    /// Removes this shard's input from the total when the shard ends.
    pub(crate) fn forget(&mut self, everywhere: &AtomicI64) {
        self.bytes = 0;
        self.sync(everywhere);
    }
}

impl Connections {
    /// Updates the count of input bytes of a connection.
    pub fn count_input(&mut self, turn: &Turn, key: ConnKey) {
        let Some(conn) = self.table.get_mut(key) else { return };
        let (bytes, kept) = (conn.input_bytes(), conn.kept_bytes());
        self.input_bytes = self.input_bytes + bytes - conn.input.counted_bytes;
        conn.input.counted_bytes = bytes;
        if kept != conn.input.counted_input {
            let change = kept as i64 - conn.input.counted_input as i64;
            conn.input.counted_input = kept;
            self.unfinished.add(change, &turn.totals.unfinished);
        }
    }

    /// Subtracts the input of a removed connection.
    pub fn discount_input(&mut self, turn: &Turn, conn: &Conn) {
        self.input_bytes -= conn.input.counted_bytes;
        self.unfinished.add(-(conn.input.counted_input as i64), &turn.totals.unfinished);
    }

    /// Accounts for the input that a connection has kept.
    pub fn note_input(&mut self, turn: &mut Turn, key: ConnKey) {
        self.count_input(turn, key);
        let Some(conn) = self.table.get_mut(key) else { return };
        if conn.wait.is_on() {
            conn.stop_clock(turn.now_ms);
        } else if conn.is_within_frame()
            && conn.life.deadline_ms > turn.now_ms + millis(turn.config.frame_timeout)
            && !planted!("frame-timeout-forgotten")
        {
            self.rearm(turn, key);
        }
    }

    /// Whether the rest of an incomplete frame may have to wait, because too much input is kept or memory is short.
    #[must_use]
    pub fn may_hold_arrival(&self, turn: &Turn, key: ConnKey) -> bool {
        let is_long = |conn: &Conn| conn.kept_bytes() as i64 >= self.unfinished.portion;
        (self.unfinished.is_over() || turn.memory.is_short)
            && self.table.get(key).is_some_and(|conn| is_long(conn) && conn.input.arrival.is_on())
    }

    /// Whether the arriving frame waits for its turn.
    #[must_use]
    pub fn waits_to_arrive(&self, key: ConnKey) -> bool {
        self.unfinished.is_over() && !self.unfinished.has_turn(key)
    }

    /// Whether the peer has hung up, and the rest that it sent may be read although its frame would have to wait:
    /// whole frames keep waiting, so the absolute limit holds for them, too.
    #[must_use]
    pub fn may_read_to_end(&self, key: ConnKey) -> bool {
        self.unfinished.excess() <= 0 && self.table.get(key).is_some_and(|conn| conn.socket.has_hung_up())
    }

    /// Lets the next frame arrive while there is too much unfinished input, and refuses connections whose frame has
    /// stalled; above the absolute limit, also those with the most input.
    pub fn check_unfinished(&mut self, turn: &mut Turn) {
        let connections = turn.totals.connections.load(Ordering::Relaxed);
        self.unfinished.look(&turn.totals.unfinished, turn.config.memory_limit, connections);
        if !self.unfinished.is_over() {
            self.unfinished.turn = None;
            turn.totals.largest_input.note_free(turn.id);
            if self.has_arriving() {
                self.retry_parked(&[Pause::Arriving]);
            }
            return;
        }
        let is_due = turn.now_ms >= self.unfinished.next_check_ms;
        if is_due {
            self.unfinished.next_check_ms = turn.now_ms + CHECK_MS;
            turn.budget.visit(self.table.len() / 16);
            let stalled = self.stalled(turn.now_ms);
            self.refuse_unfinished(turn, stalled);
            let largest = self.largest(turn);
            self.refuse_unfinished(turn, largest);
        }
        // Above the absolute limit, each shard adds one frame between two checks at most.
        if is_due || self.unfinished.excess() <= 0 {
            self.let_next_arrive(turn);
        }
    }

    fn refuse_unfinished(&mut self, turn: &mut Turn, chosen: Vec<(ConnKey, usize)>) {
        for (key, bytes) in chosen {
            let offender = self.table.get(key).map(|conn| offender_in(&conn.input.bytes)).unwrap_or_default();
            let text = format!(
                "{bytes} bytes of an incomplete frame were discarded: such frames may take a quarter of memory_limit"
            );
            self.fail_with(turn, key, ProtocolError::new(Code::Memory, text), &offender);
        }
    }

    /// Lets the next frame arrive, unless another one still does.
    fn let_next_arrive(&mut self, turn: &mut Turn) {
        if !self.turn_goes_on(turn)
            && let Some(key) = self.next_to_arrive(turn)
        {
            let bytes_before = self.table.get(key).map_or(0, Conn::incomplete_bytes);
            self.unfinished.turn = Some(ArrivalTurn { key, since_ms: turn.now_ms, bytes_before });
            self.unpark(turn, key);
        }
    }

    /// Whether a frame that waits to arrive could continue in the next turn: there is room, or the other frame's turn
    /// is over. Above the absolute limit the next check lets it continue.
    #[must_use]
    pub fn may_let_arrive(&self) -> bool {
        if !self.has_arriving() {
            return false;
        }
        let turn = self.unfinished.turn.map(|turn| turn.key);
        let is_done = |key| self.table.get(key).is_none_or(|conn| !conn.input.arrival.is_on());
        !self.unfinished.is_over() || (self.unfinished.excess() <= 0 && turn.is_some_and(is_done))
    }

    /// Whether frames wait to arrive. Other shards free input without sending a note.
    #[must_use]
    pub fn has_arriving(&self) -> bool {
        self.parking.first_of(&[Pause::Arriving]).is_some()
    }

    /// The connection whose frame may arrive next: the one with the longest wait. Over the second threshold it
    /// alternates with the one that lacks the fewest bytes, so that a frame can be completed.
    fn next_to_arrive(&mut self, turn: &mut Turn) -> Option<ConnKey> {
        let unfinished = &mut self.unfinished;
        unfinished.longest_next = !unfinished.longest_next;
        if unfinished.longest_next || unfinished.overload() <= 0 {
            return self.parking.first_of(&[Pause::Arriving]);
        }
        let longest = turn.config.limits.message_bytes_max;
        let lacks = |conn: &Conn| match conn.input.arrival.announced() {
            0 => longest,
            announced => announced.saturating_sub(conn.input.bytes.len()),
        };
        let waiting = self.parking.waiting_for(Pause::Arriving).take(SEARCH_MAX);
        let waiting: Vec<_> = waiting.filter_map(|key| Some((lacks(self.table.get(key)?), key))).collect();
        turn.budget.visit(waiting.len());
        waiting.into_iter().min_by_key(|(lacks, _)| *lacks).map(|(_, key)| key)
    }

    /// Whether the connection whose turn it is still needs it.
    fn turn_goes_on(&mut self, turn: &mut Turn) -> bool {
        let Some(ArrivalTurn { key, since_ms, bytes_before }) = self.unfinished.turn else {
            return false;
        };
        let now_ms = turn.now_ms;
        let arrives = self.table.get(key).is_some_and(|conn| {
            conn.life.is_open()
                && !conn.wait.is_on()
                && conn.input.arrival.since_ms().is_some_and(|began_ms| began_ms <= since_ms)
                && (conn.input.is_listed || {
                    let came = conn.incomplete_bytes().saturating_sub(bytes_before);
                    let allowed_ms = SILENCE_MS + came as u64 / PACE_BYTES;
                    now_ms - conn.input.read_ms.max(since_ms) < SILENCE_MS && now_ms - since_ms < allowed_ms
                })
        });
        if arrives && now_ms - since_ms < TURN_MS {
            return true;
        }
        self.unfinished.turn = None;
        if arrives {
            self.park(turn, key, Pause::Arriving); // behind the others
            self.stop_clock(turn, key);
        }
        false
    }

    /// Connections to refuse because their frame has stalled while there is too much input, with the bytes that each
    /// keeps.
    fn stalled(&self, now_ms: u64) -> Vec<(ConnKey, usize)> {
        if self.unfinished.overload() <= 0 {
            return Vec::new();
        }
        let surplus = self.unfinished.total() - self.unfinished.limit / 16;
        self.largest_of(surplus, |_, conn| !conn.wait.is_on() && now_ms - conn.input.read_ms >= STALLED_MS)
    }

    /// Connections to refuse because the absolute limit is exceeded: the largest ones, with the bytes that each
    /// keeps. They have at least half as much as the largest one of all shards, unless there is far too much. Who waits for
    /// an answer gets it first: the ERROR would overtake it.
    fn largest(&self, shared: &Turn) -> Vec<(ConnKey, usize)> {
        let turn = self.unfinished.turn.map(|turn| turn.key);
        let harmless = self.unfinished.harmless();
        let may = |key, conn: &Conn| {
            Some(key) != turn && conn.wait.question().is_none() && conn.kept_bytes() as i64 > harmless
        };
        let own = self.arriving().filter(|(key, conn)| may(*key, conn)).map(|(_, conn)| conn.kept_bytes());
        shared.totals.largest_input.note(shared.id, own.max().unwrap_or_default());
        let largest = shared.totals.largest_input.of_all().unwrap_or_default();
        let least = if harmless == 0 { 0 } else { largest / 2 };
        self.largest_of(self.unfinished.excess(), |key, conn| may(key, conn) && conn.kept_bytes() >= least)
    }

    fn arriving(&self) -> impl Iterator<Item = (ConnKey, &Conn)> {
        self.table.iter().filter(|(_, conn)| conn.life.is_open() && conn.input.arrival.is_on())
    }

    /// The connections with the largest incomplete frames that together exceed `excess`.
    fn largest_of(&self, mut excess: i64, may: impl Fn(ConnKey, &Conn) -> bool) -> Vec<(ConnKey, usize)> {
        if excess <= 0 {
            return Vec::new();
        }
        let all = self.arriving().filter(|(key, conn)| may(*key, conn));
        let mut chosen: Vec<(ConnKey, usize)> = all.map(|(key, conn)| (key, conn.kept_bytes())).collect();
        chosen.sort_unstable_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
        let is_needed = |(_, bytes): &(ConnKey, usize)| {
            let needed = excess > 0;
            excess -= *bytes as i64;
            needed
        };
        chosen.into_iter().take_while(is_needed).collect()
    }
}

/// The command and headers of a SEND at the start of `input`, as far as they are complete lines.
pub(crate) fn send_head(input: &[u8]) -> Option<&[u8]> {
    let head = offending_head(input);
    let lines = head.get(..head.iter().rposition(|byte| *byte == b'\n')? + 1)?;
    (lines.starts_with(b"SEND\n") || lines.starts_with(b"SEND\r\n")).then_some(lines)
}

#[cfg(test)]
#[path = "unfinished_tests.rs"]
mod tests;
