//! Dispatches client frames: from a request of the session to the command that carries it out.

use std::borrow::Cow;
use std::mem::take;

use stompica_proto::session::Request;
use stompica_proto::{Command, Frame, ProtocolError, header};

use super::{Owners, ack, send, subscribe};
use crate::connection::flow::Flow;
use crate::connection::login::Login;
use crate::connection::pausing::Pause;
use crate::ids::ConnKey;
use crate::log::Level;

impl Owners<'_> {
    /// Handles one frame of a client, and logs it first if frames are logged.
    #[cold]
    #[inline(never)]
    pub(crate) fn handle_observed(&mut self, key: ConnKey, frame: &Frame<'_>) -> Flow {
        // A frame that waits is handled again and again.
        let is_logged =
            self.connections.table.get_mut(key).is_some_and(|conn| take(&mut conn.input.is_logged));
        if self.turn.config.log_frames && !is_logged {
            self.log_frame(key, frame);
        }
        let flow = self.handle(key, frame);
        if let Some(conn) = self.connections.table.get_mut(key) {
            conn.input.is_logged = self.turn.config.log_frames && matches!(flow, Flow::Parked | Flow::Later);
        }
        flow
    }

    /// The wait of a frame that begins or ends subscriptions, if something must be done before it.
    #[cold]
    #[inline(never)]
    fn wait_for_what_is_due(&mut self, key: ConnKey, command: Command) -> Option<Flow> {
        if let Some(flow) = self.wait_for_mail(key) {
            return Some(flow);
        }
        let waits = command != Command::Subscribe && self.connections.is_owed_accepted(key);
        waits.then(|| {
            self.connections.park(self.turn, key, Pause::Owed);
            Flow::Parked
        })
    }

    /// Handles one frame of a client. Inlined, so that frames that are not observed cost no additional call.
    #[inline(always)]
    pub(crate) fn handle(&mut self, key: ConnKey, frame: &Frame<'_>) -> Flow {
        // Messages sent before a subscription begins are not delivered to it; those sent before it ends are.
        let bounds = matches!(frame.command, Command::Subscribe | Command::Unsubscribe | Command::Disconnect);
        if bounds && let Some(flow) = self.wait_for_what_is_due(key, frame.command) {
            return flow;
        }
        let Some(conn) = self.connections.table.get_mut(key) else { return Flow::Done };
        let sender = conn.id;
        self.queues.home.store.begin();
        let mut own_headers = take(&mut self.connections.own_headers);
        let flow = match conn.protocol.session.handle(frame, self.turn.config.heartbeat_ms, &mut own_headers)
        {
            Ok(Request::Send { destination, transaction, plain, options, receipt, body }) => {
                let sent = send::Sent {
                    destination: &destination,
                    transaction: transaction.as_deref(),
                    sender,
                    plain,
                    options,
                    receipt: receipt.as_deref(),
                    body,
                };
                self.send(key, frame, &sent, &mut own_headers)
            }
            Ok(Request::Transaction { command: Command::Commit, id }) => self.commit(key, &id, frame),
            Ok(Request::Diagnose { query }) => self.diagnose_for(key, query, frame),
            Ok(Request::Ack { id, subscription, accept, transaction, receipt }) => {
                let acked = ack::Acked {
                    id: &id,
                    subscription: subscription.as_deref(),
                    accept,
                    transaction: transaction.as_deref(),
                    receipt: receipt.as_deref(),
                };
                self.ack(key, frame, &acked)
            }
            Ok(request) => self.handle_other(key, frame, request),
            Err(error) => Err(error),
        };
        self.connections.own_headers = own_headers;
        flow.unwrap_or_else(|error| {
            self.connections.fail(self.turn, key, error, Some(frame));
            Flow::Done
        })
    }

    fn handle_other(
        &mut self,
        key: ConnKey,
        frame: &Frame<'_>,
        request: Request<'_>,
    ) -> Result<Flow, ProtocolError> {
        let receipt = frame.header(header::RECEIPT);
        let receipt = receipt.as_deref();
        match request {
            Request::Connect { login, client_id } => {
                let login = Login {
                    login: login.as_deref().map(Into::into),
                    client_id: client_id.as_deref().map(Into::into),
                    request_id: frame.raw(header::REQUEST_ID).map(Into::into),
                };
                if self.connections.connect(self.turn, key, login) {
                    return Ok(Flow::Waiting);
                }
            }
            Request::Send { .. } | Request::Ack { .. } | Request::Diagnose { .. } => {} // handled by the caller
            Request::Subscribe { id, destination, ack } => {
                let destination = self.router.translate(&destination)?.into_owned();
                let wanted = subscribe::Wanted { frame, id: id.as_deref(), destination: &destination, ack };
                self.subscribe(key, &wanted, receipt)?;
            }
            Request::Unsubscribe { id, destination } => {
                let destination =
                    destination.as_deref().map(|name| self.router.translate(name)).transpose()?;
                let destination = destination.map(Cow::into_owned);
                self.unsubscribe(key, frame, id.as_deref(), destination.as_deref(), receipt)?;
            }
            Request::Transaction { command, id } => {
                match command {
                    Command::Begin => self.begin(key, &id)?,
                    _ => self.abort(key, &id)?, // COMMIT is handled by the caller
                }
                self.connections.receipt(self.turn, key, receipt);
            }
            Request::Disconnect => self.connections.disconnect(self.turn, key, receipt),
        }
        Ok(Flow::Done)
    }

    #[cold]
    fn log_frame(&self, key: ConnKey, frame: &Frame<'_>) {
        self.connections.log(self.turn, Level::Debug, key, || {
            let mut head = frame.command.as_str().as_bytes().to_vec();
            head.push(b'\n');
            for (name, value) in frame.raw_headers() {
                for part in [name, b":", value, b"\n"] {
                    head.extend_from_slice(part);
                }
            }
            let head = stompica_proto::decode::masked_head(&head);
            let head = String::from_utf8_lossy(&head).trim_end().replace('\n', " | ");
            format!("frame {head} | body of {} bytes", frame.body.len())
        });
    }

    /// Whether every message that was mailed before the connection's last read has been routed.
    fn mail_is_routed(&self, key: ConnKey) -> bool {
        let Some(conn) = self.connections.table.get(key) else { return true };
        self.peers.have_all_routed(conn.input.read_round)
    }

    /// The wait of a frame that begins or ends a subscription, if mail has to be routed before it.
    fn wait_for_mail(&mut self, key: ConnKey) -> Option<Flow> {
        if !self.mail_is_routed(key) {
            if !self.delivery().mail_waits_for_memory() {
                return Some(Flow::Later);
            }
            self.connections.park(self.turn, key, Pause::Mail);
            return Some(Flow::Parked);
        }
        if let Some(conn) = self.connections.table.get_mut(key) {
            conn.wait.passed();
        }
        None
    }
}
