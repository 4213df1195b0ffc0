//! The client's side of diagnostics: the DIAG frame, SEND and SUBSCRIBE to `DIAG…` (docs/behaviour.md, section 9).
//!
//! A query waits for all shards, and the connection's next frames wait for its answer. So a connection has one query
//! pending at a time, and answers come in the order of the queries.

use stompica_proto::error::Code;
use stompica_proto::{Frame, ProtocolError, header};

use super::Owners;
use super::frame::Sent;
use super::subscribe::Wanted;
use crate::connection::flow::Flow;
use crate::delivery::admission::Load;
use crate::destination::{Kind, MONITOR};
use crate::diag::inquiries::Purpose;
use crate::ids::ConnKey;
use crate::message::options::{self, SubscribeOptions};
use crate::report::Query;
use crate::router::reach::Reach;
use crate::text::Text;

/// Header `interval` of SUBSCRIBE: milliseconds between answers.
const INTERVAL: &[u8] = b"interval";
/// Header `query` of SUBSCRIBE: the query that is answered at that interval.
const QUERY: &[u8] = b"query";
/// The shortest interval that is accepted.
const INTERVAL_MIN_MS: u64 = 100;

fn query(text: &[u8]) -> Result<Query, ProtocolError> {
    Query::parse(text).map_err(|text| ProtocolError::new(Code::DiagnosticsQuery, text))
}

/// The query and the interval of a SUBSCRIBE that requests periodic answers.
fn watched(frame: &Frame<'_>, destination: &[u8]) -> Result<Option<(Query, u64)>, ProtocolError> {
    let Some(interval) = frame.header(INTERVAL) else { return Ok(None) };
    let interval_ms = std::str::from_utf8(&interval).ok().and_then(|text| text.parse().ok());
    let Some(interval_ms) = interval_ms.filter(|ms| *ms >= INTERVAL_MIN_MS) else {
        let allowed = format!("a whole number of milliseconds, {INTERVAL_MIN_MS} or more");
        return Err(options::bad_value(INTERVAL, &interval, &allowed));
    };
    let named = destination.strip_prefix(b"DIAG/").or_else(|| destination.strip_prefix(b"DIAG."));
    let asked = match frame.header(QUERY) {
        Some(text) => query(&text)?,
        None => named.map_or(Ok(Query::Session), query)?,
    };
    Ok(Some((asked, interval_ms)))
}

impl Owners<'_> {
    /// Handles a DIAG frame, which is answered by a DIAG frame.
    pub(super) fn diagnose_for(
        &mut self,
        key: ConnKey,
        text: &[u8],
        frame: &Frame<'_>,
    ) -> Result<Flow, ProtocolError> {
        self.require_local(key)?;
        let query = query(text)?;
        let receipt = frame.header(header::RECEIPT).map(|id| Text::from(id.as_ref()));
        Ok(self.diag().ask_for(key, query, Purpose::Frame(receipt)))
    }

    /// Handles a SEND to a destination that only the broker writes to: a query, or an error.
    pub(super) fn send_query(
        &mut self,
        key: ConnKey,
        frame: &Frame<'_>,
        sent: &Sent<'_>,
        name: &[u8],
        headers: &[u8],
    ) -> Result<Flow, ProtocolError> {
        if self.router.kind(name) == Kind::Monitor {
            let text = format!("'{}' is written by the broker only", String::from_utf8_lossy(MONITOR));
            return Err(ProtocolError::new(Code::ReadOnly, text));
        }
        self.require_local(key)?;
        if let Some(transaction) = sent.transaction {
            let allowed = "no such header with a diagnostics destination";
            return Err(options::bad_value(header::TRANSACTION, transaction, allowed));
        }
        let query = query(sent.body)?;
        let destination = self.router.destination_of(self.turn, name)?;
        let Reach { remote: shards, fan_out_size, is_full, .. } = self.router.reach(destination);
        let load =
            Load { name, destination, shards, fan_out_size, is_full, bytes: sent.body.len(), kept: false };
        if let Some(pause) = self.delivery().pause_for(key, &load) {
            self.connections.park(self.turn, key, pause);
            return Ok(Flow::Parked);
        }
        if let Some(conn) = self.connections.table.get_mut(key) {
            conn.wait.passed();
        }
        let receipt = frame.header(header::RECEIPT).map(|id| Text::from(id.as_ref()));
        Ok(self.diag().ask_for(
            key,
            query,
            Purpose::Publish { name: name.into(), headers: headers.into(), receipt },
        ))
    }

    /// Subscribes to `DIAG…`: to the answers to SENDs, or, with `interval`, to periodic answers.
    pub(super) fn subscribe_diagnostics(
        &mut self,
        key: ConnKey,
        destination: &[u8],
        wanted: &Wanted<'_>,
        options: &SubscribeOptions,
        receipt: Option<&[u8]>,
    ) -> Result<(), ProtocolError> {
        let watched = watched(wanted.frame, destination)?;
        self.subscribe_topic(key, destination, wanted, options, receipt)?;
        if let Some((query, interval_ms)) = watched
            && let Some(index) = self.find_subscription(key, wanted.name())
        {
            self.diag().watch(index, query, interval_ms);
        }
        Ok(())
    }
}
