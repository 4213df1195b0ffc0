//! What each client frame does: from a request of the session to the router and back to a RECEIPT.

mod send;
mod subscribe;
mod transaction;

use std::mem::take;

use stompica_proto::error::Code;
use stompica_proto::session::Request;
use stompica_proto::{Command, Frame, ProtocolError, Version, encode, header};

use crate::ids::{self, ConnKey};
use crate::log::Level;
use crate::shard::Shard;

/// What became of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// It is done with, be it by an ERROR.
    Done,
    /// It has to wait, and all behind it.
    Parked,
    /// It is to be looked at again in the next turn.
    Later,
}

impl Shard {
    /// Handles one frame of a client.
    pub(crate) fn handle(&mut self, key: ConnKey, frame: &Frame<'_>) -> Flow {
        if self.config.log_frames {
            self.log_frame(key, frame);
        }
        if frame.command == Command::Subscribe && !self.mail_is_routed(key) {
            return Flow::Later;
        }
        let Some(conn) = self.conns.get_mut(key) else { return Flow::Done };
        let mut own_headers = take(&mut self.own_headers);
        let flow = match conn.session.handle(frame, self.config.heartbeat_ms, &mut own_headers) {
            Ok(Request::Send { destination, transaction, plain, options: _, body }) => {
                let sent = send::Sent {
                    destination: &destination,
                    transaction: transaction.as_deref(),
                    headers: &own_headers,
                    plain,
                    body,
                };
                self.send(key, frame, &sent)
            }
            Ok(request) => self.handle_other(key, frame, request).map(|()| Flow::Done),
            Err(error) => Err(error),
        };
        self.own_headers = own_headers;
        flow.unwrap_or_else(|error| {
            self.fail(key, error, Some(frame));
            Flow::Done
        })
    }

    fn handle_other(
        &mut self,
        key: ConnKey,
        frame: &Frame<'_>,
        request: Request<'_>,
    ) -> Result<(), ProtocolError> {
        let receipt = frame.header(header::RECEIPT);
        let receipt = receipt.as_deref();
        match request {
            Request::Connect { .. } => self.connect(key),
            Request::Send { .. } => {} // handled by the caller, on the short way
            Request::Subscribe { id, destination, ack } => {
                subscribe::refuse_unbuilt(frame)?;
                return self.subscribe(key, id.as_deref(), &destination, ack, receipt);
            }
            Request::Unsubscribe { id, destination } => {
                self.unsubscribe(key, id.or(destination).as_deref().unwrap_or_default())?;
                self.receipt(key, receipt, 0);
            }
            Request::Ack { id, subscription, accept: _, transaction } => {
                self.check_ack(key, &id, subscription.as_deref())?;
                if let Some(transaction) = transaction {
                    self.require_transaction(key, &transaction)?;
                }
                self.receipt(key, receipt, 0);
            }
            Request::Transaction { command, id } => {
                match command {
                    Command::Begin => self.begin(key, &id)?,
                    Command::Commit => self.commit(key, &id)?,
                    _ => self.abort(key, &id)?,
                }
                self.receipt(key, receipt, 0);
            }
            Request::Disconnect => {
                self.receipt(key, receipt, 0);
                if let Some(conn) = self.conns.get_mut(key) {
                    conn.ending = true;
                }
                self.end_if_done(key);
            }
        }
        Ok(())
    }

    fn connect(&mut self, key: ConnKey) {
        let offer_ms = self.config.heartbeat_ms;
        let ids = self.config.ids;
        let Some(conn) = self.conns.get_mut(key) else { return };
        let version = conn.session.version();
        conn.decoder.connected(version);
        let offer_ms = if version == Version::V1_0 { (0, 0) } else { offer_ms };
        let session = ids::session_id(ids, conn.id);
        self.counters.sessions += 1;
        self.log_conn(Level::Debug, key, || format!("connected, STOMP {}", version.as_str()));
        self.control(key, |out| encode::connected(out, version, &session, offer_ms));
        self.rearm(key);
    }

    /// Whether a delivery with this id can have been made on this connection.
    fn check_ack(&self, key: ConnKey, id: &[u8], subscription: Option<&[u8]>) -> Result<(), ProtocolError> {
        let Some(conn) = self.conns.get(key) else { return Ok(()) };
        let known = match conn.session.version() {
            Version::V1_2 => self.is_ack_id(key, id),
            Version::V1_1 => {
                subscription.is_some_and(|name| self.find_subscription(key, name).is_some())
                    && self.ids.is_of_this_run(id)
            }
            Version::V1_0 => self.ids.is_of_this_run(id),
        };
        if known {
            return Ok(());
        }
        let text = format!("'{}' was not delivered on this connection", String::from_utf8_lossy(id));
        Err(ProtocolError::new(Code::AckUnknown, text))
    }

    /// Whether `id` is the `ack` of a delivery: the subscription's index, `-`, and a count it has reached.
    fn is_ack_id(&self, key: ConnKey, id: &[u8]) -> bool {
        let Some((index, count)) = std::str::from_utf8(id).ok().and_then(|text| text.split_once('-')) else {
            return false;
        };
        let (Ok(index), Ok(count)) = (index.parse::<u32>(), count.parse::<u64>()) else { return false };
        self.router
            .subscriptions
            .get(index as usize)
            .is_some_and(|found| found.conn == key && (1..=found.deliveries).contains(&count))
    }

    #[cold]
    fn log_frame(&self, key: ConnKey, frame: &Frame<'_>) {
        self.log_conn(Level::Debug, key, || {
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
}
