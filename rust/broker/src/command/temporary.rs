//! Temporary destinations: names with a different meaning on each connection (docs/behaviour.md, section 5).
//!
//! The owner uses `/temp-queue/x`; all others, and the broker, use `/temp-queue/SECRET/x`. The queue's home is its
//! owner's shard, which the secret encodes, so that the queue exists before anyone can send an answer to it.

use std::borrow::Cow;

use stompica_proto::error::Code;
use stompica_proto::escape::escape_into;
use stompica_proto::{Frame, ProtocolError, Version, header};

use super::Owners;
use crate::connection::temporary::Temporary;
use crate::destination::{Kind, TEMPORARY_QUEUE, full_name, require_plain, secret_of};
use crate::door::planted;
use crate::ids::{self, ConnKey};
use crate::queue::QueueKind;

/// The prefix of temporary destinations of both kinds.
const TEMPORARY: &[u8] = b"/temp-";

impl Owners<'_> {
    fn is_temporary(&self, name: &[u8]) -> bool {
        matches!(self.router.kind(name), Kind::TemporaryQueue | Kind::TemporaryTopic)
    }

    /// The full name of the destination of a SEND, by this broker's rules.
    ///
    /// # Errors
    /// `E-TEMP-UNKNOWN` if it is one of the sender's own names, which does not exist; `E-DEST-INVALID` if it is
    /// another broker's.
    #[inline]
    pub(crate) fn name_to_send_to<'a>(
        &self,
        key: ConnKey,
        name: &'a [u8],
    ) -> Result<Cow<'a, [u8]>, ProtocolError> {
        if !name.starts_with(TEMPORARY) {
            return self.router.translate(name);
        }
        self.temporary_to_send_to(key, name)
    }

    #[cold]
    fn temporary_to_send_to<'a>(&self, key: ConnKey, name: &'a [u8]) -> Result<Cow<'a, [u8]>, ProtocolError> {
        if !self.is_temporary(name) || secret_of(name).is_some() || require_plain(name).is_err() {
            return Ok(Cow::Borrowed(name)); // patterns are refused elsewhere
        }
        let own = self.connections.table.get(key).and_then(|conn| conn.temporary.as_ref());
        match own.filter(|own| own.names.contains(name)) {
            Some(own) => Ok(Cow::Owned(full_name(name, &own.secret))),
            None => {
                let text = format!("'{}' does not exist on this connection", String::from_utf8_lossy(name));
                Err(ProtocolError::new(Code::TemporaryUnknown, text))
            }
        }
    }

    /// The full name of the destination of a SUBSCRIBE, which is created if it does not exist.
    ///
    /// # Errors
    /// `E-TEMP-OWNER` if it is another connection's; `E-SUB-COUNT`, `E-DEST-COUNT`.
    pub(super) fn name_to_subscribe_to<'a>(
        &mut self,
        key: ConnKey,
        name: &'a [u8],
    ) -> Result<Cow<'a, [u8]>, ProtocolError> {
        if !self.is_temporary(name) {
            return Ok(Cow::Borrowed(name));
        }
        if let Some(secret) = secret_of(name) {
            let own = self.connections.table.get(key).and_then(|conn| conn.temporary.as_ref());
            if own.is_some_and(|own| own.secret.as_bytes() == secret) {
                return Ok(Cow::Borrowed(name));
            }
            let text = format!("'{}' can only be consumed by its owner", String::from_utf8_lossy(name));
            return Err(ProtocolError::new(Code::TemporaryOwner, text));
        }
        self.own_temporary(key, name).map(Cow::Owned)
    }

    /// Rewrites `reply-to` in a SEND's header lines if it names a temporary destination of the sender; if that is a
    /// queue, also subscribes the sender to it.
    ///
    /// # Errors
    /// `E-DEST-WILDCARD`: who answers would get it otherwise, and be disconnected. `E-SUB-COUNT`, `E-DEST-COUNT`,
    /// `E-MEMORY`.
    pub(super) fn rewrite_reply_to(
        &mut self,
        key: ConnKey,
        frame: &Frame<'_>,
        reply_to: &[u8],
        headers: &mut Vec<u8>,
    ) -> Result<(), ProtocolError> {
        if !self.is_temporary(reply_to) {
            return Ok(());
        }
        require_plain(reply_to)?;
        if secret_of(reply_to).is_some() {
            return Ok(());
        }
        let full = self.own_temporary(key, reply_to)?;
        self.subscribe_to_answers(key, frame, reply_to, &full)?;
        let mut line = [header::REPLY_TO, b":"].concat();
        let start = headers
            .split_inclusive(|byte| *byte == b'\n')
            .scan(0, |at, line| {
                let start = *at;
                *at += line.len();
                Some((start, line))
            })
            .find(|(_, found)| found.starts_with(&line))
            .map(|(start, found)| start..start + found.len());
        escape_into(&mut line, &full, Version::V1_2);
        line.push(b'\n');
        if let Some(range) = start {
            headers.splice(range, line);
        }
        Ok(())
    }

    /// The full name of a connection's own temporary destination, created if necessary. A pattern creates nothing.
    fn own_temporary(&mut self, key: ConnKey, name: &[u8]) -> Result<Vec<u8>, ProtocolError> {
        let shard = self.turn.id;
        let own = self.connections.table.get(key).and_then(|conn| conn.temporary.as_ref());
        if own.is_none_or(|own| !own.names.contains(name)) {
            self.require_memory_for(name, &[])?;
        }
        let Some(conn) = self.connections.table.get_mut(key) else { return Ok(name.to_vec()) };
        let own = conn.temporary.get_or_insert_with(|| Box::new(Temporary::new(ids::secret(shard))));
        let full = full_name(name, &own.secret);
        if own.names.contains(name) || self.router.parse(name)?.is_some() {
            return Ok(full);
        }
        let names_max = self.turn.config.max_subscriptions;
        if own.names.len() >= names_max && !planted!("temporary-too-many") {
            let text = format!("max_subscriptions is {names_max}, for temporary destinations too");
            return Err(ProtocolError::new(Code::SubscriptionCount, text));
        }
        own.names.insert(name.into());
        if name.starts_with(TEMPORARY_QUEUE) {
            self.queue().create_queue(&full, QueueKind::Temporary)?;
        }
        Ok(full)
    }
}
