//! HTTP on the broker's port: the WebSocket upgrade and the health checks (docs/behaviour.md, section 2).

use std::mem::take;
use std::sync::atomic::Ordering;

use stompica_proto::error::Code;
use stompica_proto::{ProtocolError, ws};

use super::Shard;
use super::close::NORMAL;
use crate::connection::conn::{Transport, WebSocket};
use crate::connection::outbox::Kind;
use crate::ids::ConnKey;

/// A TLS alert: fatal, handshake_failure (RFC 8446, 6). Encryption is not built yet.
const TLS_HANDSHAKE_FAILURE: &[u8] = &[0x15, 3, 1, 0, 2, 2, 40];

/// What is to happen with a request.
enum Answer {
    Incomplete,
    Respond(Vec<u8>),
    Upgrade { response: Vec<u8>, consumed: usize },
}

impl Shard {
    /// Answers the request at the start of a connection, as soon as it is complete.
    pub(super) fn answer_http(&mut self, key: ConnKey) {
        let Some(conn) = self.connections.table.get_mut(key) else { return };
        let mut input = take(&mut conn.input.bytes);
        self.turn.budget.look(input.len()); // from the start, however little has come since
        match self.http_answer(key, &input) {
            Answer::Incomplete => {
                if let Some(conn) = self.connections.table.get_mut(key) {
                    conn.input.bytes = input;
                }
            }
            Answer::Respond(response) => self.respond(key, &response),
            Answer::Upgrade { response, consumed } => {
                let Some(conn) = self.connections.table.get_mut(key) else { return };
                conn.outbox.append(&mut self.connections.chunks, Kind::Answer, |out| {
                    out.extend_from_slice(&response)
                });
                conn.transport = Transport::WebSocket(Box::new(WebSocket::new(self.turn.now_ms)));
                self.turn.counters.upgrades += 1;
                self.queue_for_flushing(key);
                self.consume_websocket(key, &mut input[consumed..]);
            }
        }
    }

    fn http_answer(&self, key: ConnKey, input: &[u8]) -> Answer {
        let (request, consumed) = match ws::parse_request(input, &self.turn.config.limits) {
            Ok(None) => return Answer::Incomplete,
            Ok(Some(parsed)) => parsed,
            Err(status) => return Answer::Respond(status.response()),
        };
        let head_only = request.method == "HEAD";
        if request.wants_websocket() {
            return match ws::upgrade(&request, self.turn.config.ws_origins.as_deref()) {
                Ok(upgrade) => Answer::Upgrade { response: upgrade.response, consumed },
                Err(refusal) => Answer::Respond(refusal.response()),
            };
        }
        let loopback =
            self.connections.table.get(key).is_some_and(|conn| conn.peer.ip().to_canonical().is_loopback());
        let path = request.path;
        let known = matches!(path, "/healthz" | "/readyz");
        Answer::Respond(match request.method {
            "GET" | "HEAD" if path == "/healthz" => text(200, &[], "ok", head_only),
            "GET" | "HEAD" if known && !loopback => {
                text(403, &[], "only answered on loopback while auth is off", head_only)
            }
            "GET" | "HEAD" if known && self.draining.is_some() => text(503, &[], "draining", head_only),
            "GET" | "HEAD" if known => text(200, &[], "ready", head_only),
            "GET" | "HEAD" => {
                text(404, &[], "nothing here; a WebSocket may be opened on any path", head_only)
            }
            _ => text(405, &[("Allow", "GET, HEAD")], "only GET and HEAD", false),
        })
    }

    fn respond(&mut self, key: ConnKey, response: &[u8]) {
        let Some(conn) = self.connections.table.get_mut(key) else { return };
        conn.outbox.append(&mut self.connections.chunks, Kind::Answer, |out| out.extend_from_slice(response));
        self.turn.counters.http_requests += 1;
        self.begin_close(key, NORMAL, "");
    }

    /// Tells a connection over `max_connections` so, in its own protocol.
    pub(super) fn refuse(&mut self, key: ConnKey) {
        let Some(conn) = self.connections.table.get(key) else { return };
        let connections = self.turn.totals.connections.load(Ordering::Relaxed);
        let why = format!(
            "{connections} connections are open, max_connections is {}",
            self.turn.config.max_connections
        );
        match conn.transport {
            Transport::Http => self.respond(key, &text(503, &[], &why, false)),
            _ => self.fail(key, ProtocolError::new(Code::Connections, why), None),
        }
    }

    /// A TLS client learns that there is no TLS here.
    pub(super) fn refuse_tls(&mut self, key: ConnKey) {
        self.respond(key, TLS_HANDSHAKE_FAILURE);
    }

    /// A request that did not come in time.
    pub(super) fn time_out_http(&mut self, key: ConnKey) {
        self.respond(key, &text(408, &[], "the request did not come within login_timeout", false));
    }
}

fn text(status: u16, headers: &[(&str, &str)], text: &str, head_only: bool) -> Vec<u8> {
    ws::response(status, headers, format!("{text}\n").as_bytes(), head_only)
}
