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

use std::sync::atomic::Ordering;

use stompica_proto::decode::head_value;
use stompica_proto::error::Code;
use stompica_proto::{ProtocolError, header};

use super::Shard;
use super::deadline::millis;
use crate::connection::arrival::Arrival;
use crate::connection::conn::{Conn, Phase, Transport};
use crate::connection::input::offender_in;
use crate::connection::pausing::Pause;
use crate::connection::unfinished::{Turn as ArrivalTurn, send_head};
use crate::delivery::passing::Load;
use crate::ids::ConnKey;
use crate::router::reach::Reach;

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
impl Shard {
    /// Adjusts the count of bytes that connections hold before they are routed.
    pub(super) fn count_input(&mut self, key: ConnKey) {
        let Some(conn) = self.connections.table.get_mut(key) else { return };
        let (bytes, kept) = (conn.input_bytes(), conn.kept_bytes());
        self.memory.input_bytes = self.memory.input_bytes + bytes - conn.input.counted_bytes;
        conn.input.counted_bytes = bytes;
        if kept != conn.input.counted_input {
            let change = kept as i64 - conn.input.counted_input as i64;
            conn.input.counted_input = kept;
            self.memory.unfinished.add(change, &self.turn.totals.unfinished);
        }
    }

    /// Takes note of what a connection kept of its input.
    pub(super) fn note_input(&mut self, key: ConnKey) {
        self.count_input(key);
        let Some(conn) = self.connections.table.get_mut(key) else { return };
        if conn.wait.is_on() {
            conn.stop_clock(self.turn.now_ms);
        } else if conn.is_within_frame()
            && conn.deadline_ms > self.turn.now_ms + millis(self.turn.config.frame_timeout)
        {
            self.rearm(key);
        }
    }

    /// A connection is not read: its frame has more time.
    pub(super) fn stop_clock(&mut self, key: ConnKey) {
        if let Some(conn) = self.connections.table.get_mut(key) {
            conn.stop_clock(self.turn.now_ms);
        }
    }

    /// When the frame that arrives has to be complete, and how long it may take.
    pub(super) fn frame_deadline(&self, conn: &Conn) -> Option<(u64, u64)> {
        let timeout_ms = millis(self.turn.config.frame_timeout);
        let deadline = |arrival: &Arrival| {
            let came = conn.input.bytes.len();
            Some((arrival.deadline_ms(came, timeout_ms)?, arrival.allowed_ms(came, timeout_ms)))
        };
        let message = match &conn.transport {
            Transport::WebSocket(state) => deadline(&state.arrival),
            _ => None,
        };
        deadline(&conn.input.arrival).into_iter().chain(message).min()
    }

    /// Ends a connection whose frame was not complete in time.
    pub(super) fn time_out_frame(&mut self, key: ConnKey, allowed_ms: u64) {
        let Some(conn) = self.connections.table.get(key) else { return };
        let (offender, came) = (offender_in(&conn.input.bytes), conn.input.bytes.len());
        let text = format!(
            "{came} bytes of a frame came and not the rest of it within {allowed_ms} ms, which is frame_timeout and its \
             length at 64 KiB a second"
        );
        self.fail_with(key, ProtocolError::new(Code::FrameTimeout, text), &offender);
    }

    /// Why a connection that has sent a part of a frame is not read on now, if it is not.
    pub(super) fn pause_arrival(&mut self, key: ConnKey) -> Option<Pause> {
        let over = self.memory.unfinished.is_over();
        if !over && !self.turn.memory.is_short {
            return None;
        }
        let conn = self
            .connections
            .table
            .get(key)
            .filter(|conn| conn.kept_bytes() as i64 >= self.memory.unfinished.bite)?;
        if !conn.input.arrival.is_on() || self.may_exceed(key) {
            return None;
        }
        if let Some(pause) = self.pause_when_complete(key) {
            return Some(pause);
        }
        (over && !self.memory.unfinished.has_turn(key)).then_some(Pause::Arriving)
    }

    /// Why the SEND that arrives would have to wait if it were complete, as far as its head tells.
    fn pause_when_complete(&mut self, key: ConnKey) -> Option<Pause> {
        let conn = self.connections.table.get(key)?;
        let head = send_head(&conn.input.bytes)?;
        self.turn.budget.visit(1 + head.len() / 256);
        let name = head_value(head, header::DESTINATION).filter(|name| !name.contains(&b'\\'))?.to_vec();
        let kept = [header::TRANSACTION, header::RETAIN].iter().any(|name| head_value(head, name).is_some());
        let bytes = conn.input.arrival.announced();
        let name = self.name_to_send_to(key, &name).ok()?;
        let destination = self.destination(&name).ok()?;
        let Reach { remote: shards, width, is_full, .. } =
            self.router.reach_of_any(destination, self.turn.id);
        self.pause_for(key, &Load { name: &name, destination, shards, width, is_full, bytes, kept })
    }

    /// Lets the next frame arrive while there is too much unfinished input, and those give way that stalled.
    pub(super) fn look_at_unfinished(&mut self) {
        let connections = self.turn.totals.connections.load(Ordering::Relaxed);
        self.memory.unfinished.look(&self.turn.totals.unfinished, self.turn.config.memory_limit, connections);
        if !self.memory.unfinished.is_over() {
            self.memory.unfinished.turn = None;
            if self.has_arriving() {
                self.retry_parked(&[Pause::Arriving]);
            }
            return;
        }
        if self.turn.now_ms >= self.memory.unfinished.next_check_ms {
            self.memory.unfinished.next_check_ms = self.turn.now_ms + CHECK_MS;
            self.let_some_give_way();
        }
        if !self.turn_goes_on()
            && let Some(next) = self.next_to_arrive()
        {
            let bytes_before = self.connections.table.get(next).map_or(0, Conn::incomplete_bytes);
            self.memory.unfinished.turn =
                Some(ArrivalTurn { key: next, since_ms: self.turn.now_ms, bytes_before });
            self.unpark(next);
        }
    }

    /// Whether a frame that waits to arrive could go on in the next turn: there is room, or the turn of another is over.
    pub(super) fn may_let_arrive(&self) -> bool {
        if !self.has_arriving() {
            return false;
        }
        let turn = self.memory.unfinished.turn.map(|turn| turn.key);
        let is_done = |key| self.connections.table.get(key).is_none_or(|conn| !conn.input.arrival.is_on());
        !self.memory.unfinished.is_over() || turn.is_some_and(is_done)
    }

    /// Whether frames wait to arrive. Other shards make room for them without a word.
    pub(crate) fn has_arriving(&self) -> bool {
        self.connections.parking.first_of(&[Pause::Arriving]).is_some()
    }

    /// Whose frame may arrive next: whoever has waited longest; where there is much already, by turns whose frame lacks
    /// least, so that it can end, and whoever has waited longest.
    fn next_to_arrive(&mut self) -> Option<ConnKey> {
        let unfinished = &mut self.memory.unfinished;
        unfinished.longest_next = !unfinished.longest_next;
        if unfinished.longest_next || unfinished.crowd() <= 0 {
            return self.connections.parking.first_of(&[Pause::Arriving]);
        }
        let longest = self.turn.config.limits.message_bytes_max;
        let lacks = |conn: &Conn| match conn.input.arrival.announced() {
            0 => longest,
            announced => announced.saturating_sub(conn.input.bytes.len()),
        };
        let waiting = self.connections.parking.waiting_for(Pause::Arriving).take(SEARCH_MAX);
        let waiting: Vec<_> =
            waiting.filter_map(|key| Some((lacks(self.connections.table.get(key)?), key))).collect();
        self.turn.budget.visit(waiting.len());
        waiting.into_iter().min_by_key(|(lacks, _)| *lacks).map(|(_, key)| key)
    }

    /// Whether the connection whose turn it is needs it still.
    fn turn_goes_on(&mut self) -> bool {
        let Some(ArrivalTurn { key, since_ms, bytes_before }) = self.memory.unfinished.turn else {
            return false;
        };
        let now_ms = self.turn.now_ms;
        let arrives = self.connections.table.get(key).is_some_and(|conn| {
            conn.phase == Phase::Open
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
        self.memory.unfinished.turn = None;
        if arrives {
            self.park(key, Pause::Arriving); // behind the others
            self.stop_clock(key);
        }
        false
    }

    /// Refuses those whose frame has not gone on for long, where there is much; over the limit, the largest of all.
    fn let_some_give_way(&mut self) {
        let now_ms = self.turn.now_ms;
        let turn = self.memory.unfinished.turn.map(|turn| turn.key);
        self.turn.budget.visit(self.connections.table.len() / 16);
        if self.memory.unfinished.crowd() > 0 {
            let surplus = self.memory.unfinished.total() - self.memory.unfinished.limit / 16;
            self.give_way(surplus, |_, conn| !conn.wait.is_on() && now_ms - conn.input.read_ms >= STALLED_MS);
        }
        let (excess, harmless) = (self.memory.unfinished.excess(), self.memory.unfinished.harmless());
        self.give_way(excess, |key, conn| Some(key) != turn && conn.kept_bytes() as i64 > harmless);
    }

    fn give_way(&mut self, mut excess: i64, may: impl Fn(ConnKey, &Conn) -> bool) {
        if excess <= 0 {
            return;
        }
        let arriving = |conn: &Conn| conn.phase == Phase::Open && conn.input.arrival.is_on();
        let all = self.connections.table.iter().filter(|(key, conn)| arriving(conn) && may(*key, conn));
        let mut chosen: Vec<(usize, ConnKey)> = all.map(|(key, conn)| (conn.kept_bytes(), key)).collect();
        chosen.sort_unstable_by_key(|(bytes, _)| std::cmp::Reverse(*bytes));
        for (bytes, key) in chosen {
            if excess <= 0 {
                break;
            }
            excess -= bytes as i64;
            let offender = self
                .connections
                .table
                .get(key)
                .map(|conn| offender_in(&conn.input.bytes))
                .unwrap_or_default();
            let text = format!(
                "{bytes} bytes of a frame that is not complete gave way: such frames may take a quarter of memory_limit"
            );
            self.connections.parking.end(&mut self.connections.table, key);
            self.fail_with(key, ProtocolError::new(Code::Memory, text), &offender);
        }
    }
}
