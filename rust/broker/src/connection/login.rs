//! CONNECT: checks whether a client may log in, and answers CONNECTED. The result of the check may come later; the
//! later frames are not read before that, and it has to come within `login_timeout`.

use stompica_proto::{ProtocolError, Version, encode};

use super::Connections;
use super::pausing::Question;
use crate::door::HashMap;
use crate::ids::{self, ConnKey};
use crate::log::Level;
use crate::turn::Turn;

/// The data of a CONNECT that describe the client.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Login {
    /// `login`.
    pub login: Option<Box<[u8]>>,
    /// `client-id`.
    pub client_id: Option<Box<[u8]>>,
    /// `request-id`, still escaped; CONNECTED repeats it as `response-id`.
    pub request_id: Option<Box<[u8]>>,
}

impl Login {
    /// The scope of the names of the client's durable subscriptions, if it identifies itself.
    fn scope(&self) -> Option<Box<[u8]>> {
        if self.login.is_none() && self.client_id.is_none() {
            return None;
        }
        let (login, client_id) = (self.login.as_deref(), self.client_id.as_deref());
        Some([login.unwrap_or_default(), b"\n", client_id.unwrap_or_default()].concat().into())
    }
}

/// The check of a login.
#[derive(Debug, Default)]
enum Check {
    /// No check: every client may log in.
    #[default]
    None,
    /// A test double that answers later.
    #[cfg(test)]
    Later,
}

/// Clients that are logging in.
#[derive(Debug, Default)]
pub struct Logins {
    check: Check,
    /// Clients whose check has not been answered, with the token of their CONNECT.
    waiting: HashMap<ConnKey, (u64, Login)>,
}

impl Logins {
    /// Whether a client may log in at once; otherwise its check is answered later. Nobody may before the broker is ready.
    fn may_log_in(&self, turn: &Turn) -> bool {
        match self.check {
            _ if !turn.is_ready => false,
            Check::None => true,
            #[cfg(test)]
            Check::Later => false,
        }
    }

    /// Whether the check of a login has not been answered.
    #[cfg(any(test, simulated))]
    pub(super) fn is_awaited(&self, key: ConnKey) -> bool {
        self.waiting.contains_key(&key)
    }

    /// Removes a connection that ends.
    pub(super) fn forget(&mut self, key: ConnKey) {
        self.waiting.remove(&key);
    }
}

impl Connections {
    /// Handles CONNECT. Returns whether later frames have to wait.
    pub fn connect(&mut self, turn: &mut Turn, key: ConnKey, login: Login) -> bool {
        if self.logins.may_log_in(turn) {
            self.log_in(turn, key, &login);
            return false;
        }
        let token = self.next_token();
        self.logins.waiting.insert(key, (token, login));
        self.wait_for(turn, key, Question::Login(token));
        true
    }

    /// Handles the answer to the check of a CONNECT, unless the connection no longer waits for it.
    pub fn login_checked(
        &mut self,
        turn: &mut Turn,
        key: ConnKey,
        token: u64,
        outcome: Result<(), ProtocolError>,
    ) {
        let Some((_, login)) = self.logins.waiting.remove(&key).filter(|(waiting, _)| *waiting == token)
        else {
            return;
        };
        match outcome {
            Ok(()) => {
                self.log_in(turn, key, &login);
                self.go_on_after(turn, key, Question::Login(token));
            }
            Err(error) => self.fail(turn, key, error, None),
        }
    }

    /// The broker is ready: answers the clients that have waited for that.
    pub fn open_logins(&mut self, turn: &mut Turn) {
        let waiting: Vec<_> = self.logins.waiting.iter().map(|(key, (token, _))| (*key, *token)).collect();
        waiting.into_iter().for_each(|(key, token)| self.login_checked(turn, key, token, Ok(())));
    }

    fn log_in(&mut self, turn: &mut Turn, key: ConnKey, login: &Login) {
        let Some(conn) = self.table.get_mut(key) else { return };
        let version = conn.protocol.session.version();
        conn.protocol.decoder.connected(version);
        conn.scope = login.scope();
        let offer_ms = if version == Version::V1_0 { (0, 0) } else { turn.config.heartbeat_ms };
        let session = ids::session_id(turn.config.ids, conn.id);
        turn.counters.sessions += 1;
        self.log(turn, Level::Debug, key, || format!("connected, STOMP {}", version.as_str()));
        let request_id = login.request_id.as_deref();
        self.control(turn, key, |out| encode::connected(out, version, &session, offer_ms, request_id));
        self.rearm(turn, key);
    }

    /// From now on checks of logins are answered through [`Connections::login_checked`].
    #[cfg(test)]
    pub(crate) fn check_logins_later(&mut self) {
        self.logins.check = Check::Later;
    }

    /// The connections whose check has not been answered, with the tokens of their CONNECTs.
    #[cfg(test)]
    pub(crate) fn unchecked_logins(&self) -> Vec<(ConnKey, u64)> {
        self.logins.waiting.iter().map(|(key, (token, _))| (*key, *token)).collect()
    }
}

#[cfg(test)]
mod tests {
    use stompica_proto::error::Code;

    use super::*;
    use crate::config::Config;
    use crate::connection::deadline::Overdue;
    use crate::connection::fixtures::{connections, told, turn};

    /// A connection whose CONNECT waits.
    fn waiting(turn: &mut Turn) -> (Connections, ConnKey, u64) {
        let (mut connections, keys) = connections(1);
        connections.check_logins_later();
        let login = Login { login: Some((*b"me").into()), ..Login::default() };
        assert!(connections.connect(turn, keys[0], login));
        let unchecked = connections.unchecked_logins();
        assert!(matches!(unchecked[..], [(key, _)] if key == keys[0]));
        (connections, keys[0], unchecked[0].1)
    }

    #[test]
    fn without_a_check_a_client_is_connected_at_once() {
        let ((mut connections, keys), mut turn) = (connections(1), turn(Config::default()));
        let login = Login { request_id: Some((*b"7").into()), ..Login::default() };
        assert!(!connections.connect(&mut turn, keys[0], login));
        let told = told(&mut connections, &mut turn, keys[0]);
        assert!(told.starts_with("CONNECTED\n") && told.contains("response-id:7\n"), "{told}");
        assert_eq!(connections.table.get(keys[0]).and_then(|conn| conn.scope.clone()), None);
    }

    #[test]
    fn frames_behind_a_connect_wait_until_it_is_answered() {
        let mut turn = turn(Config::default());
        let (mut connections, key, token) = waiting(&mut turn);
        connections.login_checked(&mut turn, key, token + 1, Ok(()));
        assert_eq!(told(&mut connections, &mut turn, key), "");
        let (mut connections, key, token) = waiting(&mut turn);
        assert!(!connections.begin_serving(&mut turn, key), "a waiting connection is not read");
        connections.login_checked(&mut turn, key, token, Ok(()));
        assert!(told(&mut connections, &mut turn, key).starts_with("CONNECTED\n"));
        assert_eq!(connections.undrained, [key]);
        let scope = connections.table.get(key).and_then(|conn| conn.scope.clone());
        assert_eq!(scope.as_deref(), Some(&b"me\n"[..]));
    }

    #[test]
    fn a_refused_login_gets_an_error_and_no_connected() {
        let mut turn = turn(Config::default());
        let (mut connections, key, token) = waiting(&mut turn);
        let error = ProtocolError::new(Code::NotConnected, "wrong passcode".to_owned());
        connections.login_checked(&mut turn, key, token, Err(error));
        connections.write_last(&mut turn, key);
        assert!(told(&mut connections, &mut turn, key).starts_with("ERROR\n"));
    }

    #[test]
    fn a_check_must_be_answered_within_login_timeout() {
        let mut turn = turn(Config::default());
        let (mut connections, key, _) = waiting(&mut turn);
        turn.now_ms = 10_000;
        assert_eq!(connections.overdue(&turn, key), Some(Overdue::Login));
        connections.time_out_login(&mut turn, key);
        assert!(connections.unchecked_logins().is_empty(), "the login has ended");
    }
}
