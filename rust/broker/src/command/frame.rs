//! Hot path: dispatches client frames, from a request of the session to the command that carries it out.
//!
//! The most frequent frame, a plain SEND to a topic, is published here: it is encoded directly for its subscriptions.

use std::borrow::Cow;
use std::mem::take;

use smallvec::SmallVec;
use stompica_proto::encode::Message;
use stompica_proto::session::Request;
use stompica_proto::{Command, Frame, ProtocolError, header};

use super::{Owners, ack, subscribe};
use crate::connection::flow::Flow;
use crate::connection::login::Login;
use crate::connection::pausing::Pause;
use crate::delivery::admission::Load;
use crate::destination::Kind;
use crate::ids::{ConnKey, ShardId};
use crate::log::Level;
use crate::message::OwnedMessage;
use crate::queue::mail::HomeNote;
use crate::router::Destination;
use crate::router::reach::Reach;

/// A SEND as the session has parsed it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent<'a> {
    pub destination: &'a [u8],
    pub transaction: Option<&'a [u8]>,
    /// The number of the sending connection.
    pub sender: u64,
    pub plain: bool,
    pub options: bool,
    pub receipt: Option<&'a [u8]>,
    pub body: &'a [u8],
}

impl<'a> Sent<'a> {
    #[inline]
    pub(super) fn message(&self, destination: &'a [u8], id: &'a [u8], headers: &'a [u8]) -> Message<'a> {
        let Sent { sender, plain, body, .. } = *self;
        Message { destination, id, sender, headers, plain, expires_ms: 0, body }
    }
}

/// The destination of a SEND.
#[derive(Clone, Copy, Debug)]
pub(super) struct To<'a> {
    /// Its full name.
    pub name: &'a [u8],
    pub destination: Destination,
    pub kind: Kind,
    pub home: ShardId,
}

impl<'a> To<'a> {
    pub(super) fn load(self, reach: &Reach, bytes: usize, kept: bool) -> Load<'a> {
        let Reach { remote: shards, fan_out_size, is_full, .. } = *reach;
        Load { name: self.name, destination: self.destination, shards, fan_out_size, is_full, bytes, kept }
    }
}

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
        let awaited = match command {
            Command::Subscribe => return None,
            _ if self.connections.has_accepted_deferred(key) => None,
            Command::Disconnect => Some(self.delivery().first_owed(key)?),
            _ => return None, // an UNSUBSCRIBE waits for its own subscription only, which is not known yet
        };
        self.connections.park_for(self.turn, key, Pause::Deferred, awaited);
        Some(Flow::Parked)
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
                let sent = Sent {
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

    /// Publishes a message, or keeps it for COMMIT. `headers` are those of the SEND.
    fn send(
        &mut self,
        key: ConnKey,
        frame: &Frame<'_>,
        sent: &Sent<'_>,
        headers: &mut Vec<u8>,
    ) -> Result<Flow, ProtocolError> {
        let name = self.name_to_send_to(key, sent.destination)?;
        let destination = self.router.destination_of(self.turn, &name)?;
        let to = To { name: &name, destination, kind: destination.kind, home: destination.home };
        if sent.options || sent.transaction.is_some() || to.kind != Kind::Topic || destination.is_recorded {
            return self.send_other(key, frame, sent, headers, to);
        }
        let reach = self.router.reach(destination);
        if let Some(flow) = self.pause_send(key, &to.load(&reach, sent.body.len(), false)) {
            return Ok(flow);
        }
        let id = self.next_id();
        let message = sent.message(&name, &id, headers);
        let going = self.delivery().publish(&message, destination, &reach);
        if self.queue().waits_for_subscriber(destination) {
            self.notes.tell(to.home, HomeNote::Stale(OwnedMessage::new(&message)));
        }
        if let Some(fan_out) = going {
            let requester =
                self.connections.ask(self.turn, key, sent.receipt, self.turn.id.bit()).requester();
            return Ok(self.delivery().await_fan_out(key, fan_out, requester));
        }
        if sent.receipt.is_some() {
            self.connections.receipt(self.turn, key, sent.receipt);
        }
        Ok(Flow::Done)
    }

    /// Whether a SEND has to wait now.
    #[inline(always)]
    pub(super) fn pause_send(&mut self, key: ConnKey, load: &Load<'_>) -> Option<Flow> {
        let pause = match load.is_admitted(self.turn, self.peers) {
            true => None,
            false => self.delivery().pause_for(key, load),
        };
        self.pause_or_pass(key, pause)
    }

    #[inline(always)]
    pub(super) fn pause_or_pass(&mut self, key: ConnKey, pause: Option<Pause>) -> Option<Flow> {
        if let Some(pause) = pause {
            self.connections.park(self.turn, key, pause);
            return Some(Flow::Parked);
        }
        if let Some(conn) = self.connections.table.get_mut(key) {
            conn.wait.passed();
        }
        None
    }

    pub(super) fn next_id(&mut self) -> SmallVec<[u8; 40]> {
        SmallVec::from_slice(self.turn.message_ids.next_id())
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
                let (id, destination) = (id.as_deref(), &*destination);
                let wanted = subscribe::Wanted { frame, id, destination, ack, without_backlog: None };
                self.subscribe(key, &wanted, receipt)?;
            }
            Request::Unsubscribe { id, destination } => {
                let destination =
                    destination.as_deref().map(|name| self.router.translate(name)).transpose()?;
                let destination = destination.map(Cow::into_owned);
                return self.unsubscribe(key, frame, id.as_deref(), destination.as_deref(), receipt);
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
