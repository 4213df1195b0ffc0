//! HTTP on the broker's port: the WebSocket upgrade and the health checks (docs/behaviour.md, section 2).

use std::mem::take;

use stompica_proto::error::Code;
use stompica_proto::{ProtocolError, ws};

use super::Connections;
use super::closing::NORMAL;
use super::conn::{Transport, WebSocket};
use super::deadline::millis;
use crate::config::Config;
use crate::door::sync::Ordering;
use crate::ids::ConnKey;
use crate::turn::Turn;

/// A TLS alert: fatal, handshake_failure (RFC 8446, 6). Encryption is not built yet.
const TLS_HANDSHAKE_FAILURE: &[u8] = &[0x15, 3, 1, 0, 2, 2, 40];

/// The response to a request, or its other outcome.
#[derive(Debug)]
enum Answer {
    Incomplete,
    Respond(Vec<u8>),
    Upgrade { response: Vec<u8>, consumed: usize },
}

impl Connections {
    /// Answers the request at the start of a connection once it is complete; `unready` is what `/readyz` says. Returns the
    /// WebSocket frames that followed an upgrade.
    pub fn answer_http(&mut self, turn: &mut Turn, key: ConnKey, unready: Option<&str>) -> Option<Vec<u8>> {
        let conn = self.table.get_mut(key)?;
        let mut input = take(&mut conn.input.bytes);
        turn.budget.look(input.len()); // the request is parsed from its start each time
        let is_loopback = conn.peer.ip().to_canonical().is_loopback();
        match answer(&input, &turn.config, is_loopback, unready) {
            Answer::Incomplete => conn.input.bytes = input,
            Answer::Respond(response) => self.respond(turn, key, &response),
            Answer::Upgrade { response, consumed } => {
                conn.protocol.transport = Transport::WebSocket(Box::new(WebSocket::new(turn.now_ms)));
                self.append_raw(turn, key, |out| out.extend_from_slice(&response));
                turn.counters.upgrades += 1;
                input.drain(..consumed);
                return Some(input);
            }
        }
        None
    }

    fn respond(&mut self, turn: &mut Turn, key: ConnKey, response: &[u8]) {
        if self.table.get(key).is_some() {
            self.append_raw(turn, key, |out| out.extend_from_slice(response));
            turn.counters.http_requests += 1;
            self.begin_close(turn, key, NORMAL, "");
        }
    }

    /// Refuses a connection over `max_connections`, in its own protocol.
    pub fn refuse(&mut self, turn: &mut Turn, key: ConnKey) {
        let Some(conn) = self.table.get(key) else { return };
        let connections = turn.totals.connections.load(Ordering::Relaxed);
        let why =
            format!("{connections} connections are open, max_connections is {}", turn.config.max_connections);
        match conn.protocol.transport {
            Transport::Http => self.respond(turn, key, &text(503, &[], &why, false)),
            _ => self.fail(turn, key, ProtocolError::new(Code::Connections, why), None),
        }
    }

    /// Refuses a TLS client with an alert, since TLS is not available.
    pub fn refuse_tls(&mut self, turn: &mut Turn, key: ConnKey) {
        self.respond(turn, key, TLS_HANDSHAKE_FAILURE);
    }

    /// Ends a connection that sent no CONNECT, or no whole HTTP request, in time.
    pub fn time_out_login(&mut self, turn: &mut Turn, key: ConnKey) {
        if self.table.get(key).is_some_and(|conn| matches!(conn.protocol.transport, Transport::Http)) {
            let response = text(408, &[], "the request did not come within login_timeout", false);
            return self.respond(turn, key, &response);
        }
        let is_checked = self.table.get(key).is_some_and(|conn| conn.protocol.session.was_connected());
        if is_checked && !turn.is_ready {
            let text = "the store is still being read";
            return self.fail(turn, key, ProtocolError::new(Code::NotReady, text), None);
        }
        let what = if is_checked { "no answer about the login" } else { "no CONNECT" };
        let text = format!("{what} within login_timeout={} ms", millis(turn.config.login_timeout));
        self.fail(turn, key, ProtocolError::new(Code::LoginTimeout, text), None);
    }
}

/// The response to a request of which `input` has arrived.
fn answer(input: &[u8], config: &Config, is_loopback: bool, unready: Option<&str>) -> Answer {
    let (request, consumed) = match ws::parse_request(input, &config.limits) {
        Ok(None) => return Answer::Incomplete,
        Ok(Some(parsed)) => parsed,
        Err(status) => return Answer::Respond(status.response()),
    };
    let head_only = request.method == "HEAD";
    if request.wants_websocket() {
        return match ws::upgrade(&request, config.ws_origins.as_deref()) {
            Ok(upgrade) => Answer::Upgrade { response: upgrade.response, consumed },
            Err(refusal) => Answer::Respond(refusal.response()),
        };
    }
    let path = request.path;
    let known = matches!(path, "/healthz" | "/readyz");
    Answer::Respond(match request.method {
        "GET" | "HEAD" if path == "/healthz" => text(200, &[], "ok", head_only),
        "GET" | "HEAD" if known && !is_loopback => {
            text(403, &[], "only answered on loopback while auth is off", head_only)
        }
        "GET" | "HEAD" if known => match unready {
            Some(why) => text(503, &[], why, head_only),
            None => text(200, &[], "ready", head_only),
        },
        "GET" | "HEAD" => text(404, &[], "nothing here; a WebSocket may be opened on any path", head_only),
        _ => text(405, &[("Allow", "GET, HEAD")], "only GET and HEAD", false),
    })
}

fn text(status: u16, headers: &[(&str, &str)], text: &str, head_only: bool) -> Vec<u8> {
    ws::response(status, headers, format!("{text}\n").as_bytes(), head_only)
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::connection::fixtures::{connections, told, turn};

    fn status(request: &str, is_loopback: bool, is_draining: bool) -> String {
        match answer(request.as_bytes(), &Config::default(), is_loopback, is_draining.then_some("draining")) {
            Answer::Respond(response) => String::from_utf8_lossy(&response[9..12]).into_owned(),
            other => format!("{other:?}"),
        }
    }

    #[test]
    fn health_checks_report_the_state_and_respect_the_loopback_rule() {
        let get = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: h\r\n\r\n");
        assert_eq!(status(&get("/healthz"), false, true), "200");
        assert_eq!(status(&get("/readyz"), true, false), "200");
        assert_eq!(status(&get("/readyz"), true, true), "503");
        assert_eq!(status(&get("/readyz"), false, false), "403");
        assert_eq!(status(&get("/"), true, false), "404");
        assert_eq!(status("POST /readyz HTTP/1.1\r\nHost: h\r\n\r\n", true, false), "405");
        assert_eq!(status("GET /readyz HTTP/1.1\r\n", true, false), "Incomplete");
    }

    #[test]
    fn bytes_after_an_upgrade_are_websocket_frames() {
        let ((mut connections, keys), mut turn) = (connections(1), turn(Config::default()));
        let conn = connections.table.get_mut(keys[0]).expect("an open connection");
        conn.protocol.transport = Transport::Http;
        conn.input.keep(
            b"GET /ws HTTP/1.1\r\nHost: h\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n\
              Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\nab",
        );
        assert_eq!(connections.answer_http(&mut turn, keys[0], None).as_deref(), Some(&b"ab"[..]));
        let conn = connections.table.get(keys[0]).expect("an open connection");
        assert!(matches!(conn.protocol.transport, Transport::WebSocket(_)) && conn.life.is_open());
        assert!(told(&mut connections, &mut turn, keys[0]).starts_with("HTTP/1.1 101"));
    }

    /// The answer to a connection that begins with these bytes, and the frames that end it.
    fn answered(request: &str, is_draining: bool) -> String {
        let ((mut connections, keys), mut turn) = (connections(1), turn(Config::default()));
        let conn = connections.table.get_mut(keys[0]).expect("an open connection");
        conn.protocol.transport = Transport::Http;
        conn.input.keep(request.as_bytes());
        assert_eq!(connections.answer_http(&mut turn, keys[0], is_draining.then_some("draining")), None);
        if connections.table.get(keys[0]).is_some_and(|conn| !conn.life.is_open()) {
            assert_eq!(turn.counters.http_requests, 1);
            connections.write_last(&mut turn, keys[0]);
        }
        told(&mut connections, &mut turn, keys[0])
    }

    #[test]
    fn a_request_is_answered_once_it_is_complete_and_then_the_connection_closes() {
        assert_eq!(answered("GET /healthz HTTP/1.1\r\nHost: h\r\n", false), "");
        let response = answered("GET /healthz HTTP/1.1\r\nHost: h\r\n\r\n", false);
        assert!(response.starts_with("HTTP/1.1 200") && response.ends_with("\r\n\r\nok\n"), "{response}");
        let response = answered("HEAD /readyz HTTP/1.1\r\nHost: h\r\n\r\n", true);
        assert!(response.starts_with("HTTP/1.1 503") && response.ends_with("\r\n\r\n"), "{response}");
        assert!(answered("GET /healthz NONSENSE\r\n\r\n", false).starts_with("HTTP/1.1 400"));
        let upgrade = "GET /ws HTTP/1.1\r\nHost: h\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
            Sec-WebSocket-Version: 12\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
        assert!(answered(upgrade, false).starts_with("HTTP/1.1 426"), "the version is unknown");
    }

    /// What a connection is sent before it ends.
    fn last_told(connections: &mut Connections, turn: &mut Turn, key: ConnKey) -> String {
        connections.write_last(turn, key);
        told(connections, turn, key)
    }

    /// Two connections, the first of which speaks HTTP.
    fn http_and_stomp() -> (Connections, Vec<ConnKey>, Turn) {
        let (mut connections, keys) = connections(2);
        connections.table.get_mut(keys[0]).expect("an open connection").protocol.transport = Transport::Http;
        (connections, keys, turn(Config::default()))
    }

    #[test]
    fn a_connection_too_many_is_refused_in_its_own_protocol() {
        let (mut connections, keys, mut turn) = http_and_stomp();
        for (key, start) in keys.into_iter().zip(["HTTP/1.1 503", "ERROR\n"]) {
            connections.refuse(&mut turn, key);
            let told = last_told(&mut connections, &mut turn, key);
            assert!(told.starts_with(start) && told.contains("max_connections is"), "{told}");
        }
        connections.refuse(&mut turn, ConnKey::NONE);
    }

    #[test]
    fn a_tls_client_gets_an_alert() {
        let ((mut connections, keys), mut turn) = (connections(1), turn(Config::default()));
        connections.refuse_tls(&mut turn, keys[0]);
        connections.write_last(&mut turn, keys[0]);
        let told: Vec<u8> = told(&mut connections, &mut turn, keys[0]).chars().map(|it| it as u8).collect();
        assert_eq!(told, TLS_HANDSHAKE_FAILURE);
    }

    #[test]
    fn a_request_that_does_not_come_in_time_gets_408_and_a_stomp_client_an_error() {
        let (mut connections, keys, mut turn) = http_and_stomp();
        for (key, start) in keys.into_iter().zip(["HTTP/1.1 408", "ERROR\n"]) {
            connections.time_out_login(&mut turn, key);
            assert!(last_told(&mut connections, &mut turn, key).starts_with(start));
        }
    }
}
