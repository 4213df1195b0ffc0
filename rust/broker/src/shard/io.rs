//! Hot path: bytes in and out. Input is read and decoded frame by frame, and each frame is handled; at the end of the
//! turn mail is posted and outboxes are flushed to sockets.

use std::mem::take;

use stompica_proto::error::Code;
use stompica_proto::transport::Sniffed;
use stompica_proto::{Decoded, Frame, ProtocolError};

use super::Shard;
use crate::connection::conn::{Phase, Transport};
use crate::connection::flow::Flow;
use crate::connection::input::{Decoding, offender_in};
use crate::connection::transfer::{Progress, Read};
use crate::door::planted;
use crate::ids::ConnKey;
use crate::log::Level;
use crate::report::stages::Stage;

impl Shard {
    /// Handles the input that a connection has kept, then reads once from its socket.
    pub(super) fn serve(&mut self, key: ConnKey) {
        if !self.connections.begin_serving(&mut self.turn, key) {
            return;
        }
        let Some(conn) = self.connections.table.get_mut(key) else { return };
        if conn.input.has_unparsed {
            conn.input.has_unparsed = false;
            self.consume(key, &mut []);
            self.connections.note_input(&mut self.turn, key);
        }
        let Some(conn) = self.connections.table.get_mut(key) else { return };
        if !conn.life.is_open() || conn.wait.is_on() {
            return;
        }
        if conn.input.has_unparsed {
            self.connections.queue_for_reading(key);
        } else if conn.input.eof || conn.life.ending || self.draining.is_some() {
            self.connections.end_if_done(&mut self.turn, key);
        } else if let Some(pause) = self.command().pause_arrival(key) {
            if self.connections.may_read_to_end(key) {
                self.read_to_end(key);
            } else {
                // Input that would have to wait can wait in the kernel.
                self.connections.park(&mut self.turn, key, pause);
                self.connections.stop_clock(&self.turn, key);
            }
        } else {
            self.read(key);
        }
    }

    /// Reads the rest of a peer that has hung up, as much as one turn and the limit of unfinished input allow, and the
    /// remainder later: a frame that stays incomplete is dropped at the end.
    fn read_to_end(&mut self, key: ConnKey) {
        loop {
            let conn = self.connections.table.get(key);
            if conn.is_none_or(|conn| !conn.life.is_open() || conn.input.eof || conn.wait.is_on()) {
                return;
            }
            if self.turn.budget.is_exhausted() || !self.connections.may_read_to_end(key) {
                self.connections.queue_for_reading(key);
                return;
            }
            let read_before = self.turn.counters.reads;
            self.read(key);
            if self.turn.counters.reads == read_before {
                return;
            }
        }
    }

    fn read(&mut self, key: ConnKey) {
        let mut buffer = take(&mut self.connections.read_buffer);
        let round = self.peers.incoming.round().0;
        if let Some(Read { len, is_drained }) = self.connections.read(&mut self.turn, key, round, &mut buffer)
        {
            self.consume(key, &mut buffer[..len]);
            self.connections.end_reading(&mut self.turn, key, is_drained);
        }
        self.connections.read_buffer = buffer;
    }

    /// Its callers call [`Connections::end_if_done`](crate::connection::Connections::end_if_done) then.
    fn consume(&mut self, key: ConnKey, bytes: &mut [u8]) {
        let Some(conn) = self.connections.table.get_mut(key) else { return };
        conn.input.is_being_decoded = true;
        match conn.protocol.transport {
            Transport::Unknown | Transport::Http => self.consume_first(key, bytes),
            Transport::Stomp => self.consume_stomp(key, bytes),
            Transport::WebSocket(_) => self.consume_websocket(key, bytes),
        }
        if let Some(conn) = self.connections.table.get_mut(key) {
            conn.input.is_being_decoded = false;
        }
    }

    /// Why the broker is not ready, for `/readyz`.
    fn unready(&mut self) -> Option<&'static str> {
        match self.turn.is_ready {
            _ if self.draining.is_some() => Some("draining"),
            false => Some("the store is still being read"),
            true => self.queues.home.store.has_failed().then_some("the store has failed"),
        }
    }

    /// Detects the protocol of a connection from its first bytes.
    fn consume_first(&mut self, key: ConnKey, bytes: &[u8]) {
        let sniffed = self.connections.detect(key, bytes);
        match sniffed {
            Sniffed::Incomplete => {}
            Sniffed::Tls => self.connections.refuse_tls(&mut self.turn, key),
            _ if self.stays_refused(key) => self.connections.refuse(&mut self.turn, key),
            Sniffed::Stomp => self.consume_stomp(key, &[]),
            Sniffed::Http => {
                let unready = self.unready();
                if let Some(mut rest) = self.connections.answer_http(&mut self.turn, key, unready) {
                    self.consume_websocket(key, &mut rest);
                }
            }
        }
    }

    /// Decodes kept input followed by `bytes`; keeps the part that cannot be handled now.
    pub(super) fn consume_stomp(&mut self, key: ConnKey, bytes: &[u8]) {
        let Some(conn) = self.connections.table.get_mut(key) else { return };
        if conn.input.bytes.is_empty() {
            let decoding = self.decode_timed(key, bytes);
            let rest = bytes.get(decoding.consumed..).unwrap_or_default();
            let Some(conn) = self.connections.table.get_mut(key) else { return };
            conn.input.note_arrival(&decoding, rest, self.turn.now_ms);
            if conn.life.is_open() {
                conn.input.keep(rest);
            }
        } else {
            let input = conn.input.take_with(bytes);
            let decoding = self.decode_timed(key, &input);
            let rest = input.get(decoding.consumed..).unwrap_or_default();
            let Some(conn) = self.connections.table.get_mut(key) else { return };
            conn.input.note_arrival(&decoding, rest, self.turn.now_ms);
            if conn.life.is_open() {
                conn.input.put_back(input, decoding.consumed);
            }
        }
    }

    fn decode_timed(&mut self, key: ConnKey, input: &[u8]) -> Decoding {
        let began = self.turn.stages.begin(Stage::Parse);
        let decoding = self.decode(key, input);
        self.turn.stages.end(Stage::Parse, began);
        decoding
    }

    /// Handles whole frames at the start of `input`.
    fn decode(&mut self, key: ConnKey, input: &[u8]) -> Decoding {
        let mut spans = take(&mut self.connections.spans);
        let (mut at, mut incomplete, mut waits) = (0, None, false);
        // Borrowed once for many frames, and again after something was settled.
        let mut command = self.command();
        while at < input.len() {
            let Some(conn) = command.connections.table.get_mut(key) else { break };
            if !conn.life.is_open() || (conn.life.ending && !planted!("frames-after-error")) {
                at = input.len();
                break;
            }
            if command.turn.budget.is_exhausted() {
                conn.input.has_unparsed = true;
                break;
            }
            match conn.protocol.decoder.decode(&input[at..], &mut spans, &command.turn.config.limits) {
                Ok(Decoded::Frame { frame, consumed }) => {
                    command.turn.counters.frames_in += 1;
                    command.turn.budget.decode(&frame, consumed);
                    let flow;
                    if command.turn.is_observed {
                        flow = self.handle_observed(key, &frame);
                        command = self.command();
                    } else {
                        flow = command.handle(key, &frame);
                        if command.has_work_left() {
                            self.settle();
                            command = self.command();
                        }
                    }
                    match flow {
                        Flow::Done => at += consumed,
                        Flow::Parked => {
                            command.turn.counters.frames_in -= 1; // it will be decoded again
                            waits = true;
                            break;
                        }
                        Flow::Waiting => {
                            at += consumed;
                            // The answer that it waited for may have come while the notes of this shard were read.
                            if command.connections.table.get(key).is_none_or(|conn| conn.wait.is_on()) {
                                break;
                            }
                        }
                        Flow::Later => {
                            command.turn.counters.frames_in -= 1;
                            waits = true;
                            command.connections.leave_for_next_turn(key);
                            break;
                        }
                    }
                }
                Ok(Decoded::Incomplete { consumed, frame_len }) => {
                    at += consumed;
                    incomplete = Some(frame_len.unwrap_or(0));
                    break;
                }
                Err(error) => {
                    self.fail_decoding(key, error, &input[at..]);
                    at = input.len();
                    break;
                }
            }
        }
        self.connections.spans = spans;
        Decoding { consumed: at, incomplete, waits }
    }

    /// Handles a frame while frames are timed or logged. Its duration includes its consequences on this shard.
    #[cold]
    #[inline(never)]
    fn handle_observed(&mut self, key: ConnKey, frame: &Frame<'_>) -> Flow {
        let began = self.turn.stages.begin(Stage::Route);
        let flow = self.command().handle_observed(key, frame);
        self.settle();
        self.turn.stages.end(Stage::Route, began);
        flow
    }

    #[cold]
    fn fail_decoding(&mut self, key: ConnKey, error: ProtocolError, input: &[u8]) {
        self.connections.fail_with(&mut self.turn, key, error, &offender_in(input));
    }

    /// Decodes kept input followed by `bytes`; keeps the part that cannot be handled now.
    pub(super) fn consume_websocket(&mut self, key: ConnKey, bytes: &mut [u8]) {
        let Some(conn) = self.connections.table.get_mut(key) else { return };
        if !conn.input.bytes.is_empty() && !planted!("websocket-rest-left") {
            self.consume_stomp(key, &[]);
        }
        let Some(state) = self.connections.table.get_mut(key).and_then(|conn| conn.websocket()) else {
            return;
        };
        if state.raw.is_empty() {
            let consumed = self.decode_websocket(key, bytes);
            self.connections.keep_raw(&self.turn, key, &bytes[consumed..]);
        } else {
            let mut raw = take(&mut state.raw);
            raw.extend_from_slice(bytes);
            let consumed = self.decode_websocket(key, &mut raw);
            self.connections.keep_raw(&self.turn, key, &raw[consumed..]);
        }
    }

    fn decode_websocket(&mut self, key: ConnKey, bytes: &mut [u8]) -> usize {
        let bytes_max = self.turn.config.limits.ws_message_bytes_max;
        let mut at = 0;
        while at < bytes.len() {
            let Some(conn) = self.connections.table.get_mut(key) else { break };
            if !conn.life.is_open() {
                return bytes.len();
            }
            if conn.wait.is_on() || conn.input.has_unparsed {
                break;
            }
            if self.turn.budget.is_exhausted() {
                conn.input.has_unparsed = true;
                break;
            }
            let Some(state) = conn.websocket() else { break };
            if state.peer_code.is_some() {
                return bytes.len();
            }
            let is_forgotten = planted!("fragments-unlimited") && state.decoder.is_mid_message();
            let bytes_max = if is_forgotten { usize::MAX } else { bytes_max };
            match state.decoder.decode(&mut bytes[at..], bytes_max) {
                Ok((event, consumed)) => {
                    self.turn.budget.look(consumed);
                    if let Some(payload) = self.connections.websocket_event(&mut self.turn, key, event) {
                        self.consume_stomp(key, payload);
                    }
                    at += consumed;
                }
                Err(error) => {
                    self.turn.counters.errors += 1;
                    // If an earlier frame ends the connection, its answers are still to come.
                    let is_ending = self.connections.table.get(key).is_some_and(|conn| conn.life.ending);
                    if !is_ending {
                        self.connections.begin_close(&mut self.turn, key, error.close_code, &error.detail);
                    }
                    return bytes.len();
                }
            }
        }
        at
    }
}

impl Shard {
    /// Flushes every dirty connection once, or as many as one turn allows. If a group is very large, it flushes only
    /// some of its members.
    pub(super) fn flush(&mut self) {
        for key in self.connections.take_dirty() {
            self.flush_one(key);
        }
    }

    /// Writes what the socket of a connection takes now.
    pub(super) fn flush_one(&mut self, key: ConnKey) {
        let Progress { consumes, may_settle, has_deferred, pulls, was_full } =
            self.connections.flush_one(&mut self.turn, key);
        if may_settle {
            self.delivery().note_written(key); // written messages are consumed before the connection may end
        }
        if has_deferred && !planted!("deferred-not-resumed") {
            self.delivery().note_room(key);
        }
        if pulls {
            self.delivery().pull_replay(key);
        }
        if was_full {
            self.delivery().note_progress(key);
        }
        if consumes && !planted!("pending-writes-uncounted") {
            self.connections.count_input(&self.turn, key); // deliveries were added, or have left
        }
    }

    /// Posts the batch and all other mail of the turn so far.
    pub(super) fn post(&mut self) {
        // What has caused the mail is before what it causes in the store.
        self.queues.home.store.end_turn();
        self.queue().end_turn_of_recording();
        self.peers.post(&mut self.notes, &mut self.queues.home, &self.turn);
    }

    /// Handles the outboxes that this turn filled and that flushing did not relieve. Some are left to the next turn
    /// if they belong to many subscriptions.
    pub(super) fn act_on_outboxes(&mut self) {
        self.connections.newly_full.sort_unstable();
        self.connections.newly_full.dedup(); // each message over the limit has added the connection once
        while self.turn.budget.may_change()
            && let Some(key) = self.connections.newly_full.pop()
        {
            self.delivery().mark_full(key);
        }
        let before = self.turn.budget.visited();
        while self.turn.budget.may_end_more(before)
            && let Some(key) = self.connections.too_slow.pop()
        {
            self.cut_off(key);
        }
    }

    /// Cuts off a connection whose consumer is too slow: the ERROR replaces messages of which nothing was sent.
    pub(super) fn cut_off(&mut self, key: ConnKey) {
        let Some(conn) = self.connections.table.get_mut(key) else { return };
        if !conn.life.is_open() || conn.life.leaving.is_some() {
            return;
        }
        let bytes = self.delivery().all_owed_bytes(key);
        self.connections.begin_leaving(&mut self.turn, key);
        // A SUBSCRIBE is answered when its subscription ends; the answer must not end the connection before it is told why.
        if let Some(conn) = self.connections.table.get_mut(key) {
            conn.life.phase = Phase::Closing;
        }
        self.settle(); // messages in flight are requeued before unwritten ones
        let frames = self.delivery().cut_unsent(key);
        if let Some(conn) = self.connections.table.get_mut(key) {
            if conn.life.phase == Phase::Closing {
                conn.life.phase = Phase::Open;
            }
            conn.answers.clear(); // RECEIPTs of earlier frames may have been cut, so no later one must be sent
            // An ERROR or a RECEIPT with which it was about to end is among them.
            if !planted!("slow-end-silent") {
                conn.life.ending = false;
            }
        }
        self.connections.count_input(&self.turn, key);
        self.turn.counters.slow_consumers += 1;
        self.connections.log(&self.turn, Level::Warn, key, || {
            format!("slow consumer cut off: {bytes} bytes waited, {frames} frames are lost to it")
        });
        let text = format!("{bytes} bytes waited for this connection; {frames} frames were not sent");
        self.connections.fail(&mut self.turn, key, ProtocolError::new(Code::SlowConsumer, text), None);
    }
}
