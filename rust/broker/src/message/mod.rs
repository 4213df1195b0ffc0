//! Messages at rest. An owned message is an exact-size copy that moves, without being copied again, from the shard that
//! received it to the home of its queue and on to the shard of its consumer. Its holder is responsible for it. If one
//! message goes to many receivers (retained messages, queues of single subscriptions), the copies share its bytes.

pub mod chunk;
pub mod options;

use std::hint::black_box;
use std::sync::Arc;

use stompica_proto::Version;
use stompica_proto::encode::Message;
use stompica_proto::escape::escape_into;

#[cfg(any(test, simulated))]
use crate::audit::Audit;
use crate::collections::keyed::Key;
use crate::door::sync::{AtomicUsize, Ordering};
use crate::held;
use crate::ids::{NO_RECORD, RecordId};
use crate::message::options::SendOptions;

/// The approximate memory of a delivery to a subscription that acknowledges, besides the message's bytes: the message itself,
/// its place in a queue or in the list of unacknowledged deliveries, and its ids (measured).
pub const DELIVERY_BYTES: usize = 192;

/// The bytes of a message: destination, id, headers, body. If they are not shared, they are one allocation.
#[derive(Debug)]
enum Payload {
    Own(Box<[u8]>),
    Shared(Arc<Shared>),
}

/// Bytes that several messages share, counted once.
#[derive(Debug)]
struct Shared {
    bytes: Box<[u8]>,
    /// The number of messages among them that are owed to a subscription.
    owed: AtomicUsize,
}

impl Drop for Shared {
    fn drop(&mut self) {
        held::add(-(self.bytes.len() as i64));
    }
}

impl Payload {
    fn bytes(&self) -> &[u8] {
        match self {
            Payload::Own(bytes) => bytes,
            Payload::Shared(shared) => &shared.bytes,
        }
    }
}

/// One message at rest.
#[derive(Debug)]
pub struct OwnedMessage {
    payload: Payload,
    destination_len: u32,
    headers_len: u32,
    id_len: u16,
    plain: bool,
    /// It waits in the private queue of a subscription, or for its ACK.
    is_owed: bool,
    /// The number of the connection that sent it.
    sender: u64,
    /// `persistent:true`: the store must keep it.
    pub persistent: bool,
    /// Whether it belongs to a message group.
    pub grouped: bool,
    /// Failed deliveries (NACK, `ack_timeout`).
    pub failures: u16,
    /// The value of `max-exceptions` of its SEND; 0: not set.
    pub failures_max: u16,
    /// The number of its deliveries.
    pub deliveries: u32,
    /// Its id in the store.
    pub record: RecordId,
    /// Its position in its queue; 0 before it is in a queue.
    pub seq: u64,
    /// The time at which it expires, on the broker's clock; 0: never.
    pub expires_ms: u64,
    /// The consumer that rejected it last, or [`NOBODY`].
    refused_by: Key,
}

/// Stands for no consumer, in less space than an `Option`: messages are moved often.
const NOBODY: Key = Key { index: u32::MAX, generation: 0 };

impl Drop for OwnedMessage {
    fn drop(&mut self) {
        held::add(-self.cost());
        if self.is_owed {
            self.count_owed(false);
        }
    }
}

impl OwnedMessage {
    /// Copies a message.
    #[must_use]
    pub fn new(message: &Message<'_>) -> Self {
        let parts = [message.destination, message.id, message.headers, message.body];
        let mut bytes = Vec::with_capacity(parts.iter().map(|part| part.len()).sum());
        for part in parts {
            bytes.extend_from_slice(part);
        }
        let owned = OwnedMessage {
            payload: Payload::Own(bytes.into_boxed_slice()),
            destination_len: message.destination.len() as u32,
            headers_len: message.headers.len() as u32,
            id_len: message.id.len() as u16,
            plain: message.plain,
            is_owed: false,
            sender: message.sender,
            persistent: false,
            grouped: false,
            failures: 0,
            failures_max: 0,
            deliveries: 0,
            record: NO_RECORD,
            seq: 0,
            expires_ms: message.expires_ms,
            refused_by: NOBODY,
        };
        held::add(owned.cost());
        owned
    }

    /// Counts its bytes on this thread. Another one has created it, and counts nothing any more.
    pub fn count_here(&self) {
        held::add(self.cost());
    }

    /// Copies a message and applies the options of its SEND; the message itself has the time of its expiry.
    #[must_use]
    pub fn with_options(message: &Message<'_>, options: &SendOptions) -> Self {
        let mut owned = OwnedMessage::new(message);
        owned.persistent = options.persistent;
        owned.grouped = options.grouped;
        owned.failures_max = options.max_exceptions;
        owned
    }

    /// The bytes that `memory_limit` counts for it; shared bytes are counted separately.
    fn cost(&self) -> i64 {
        let own = match &self.payload {
            Payload::Own(bytes) => bytes.len(),
            Payload::Shared(_) => 0,
        };
        (own + size_of::<OwnedMessage>() + 16) as i64
    }

    /// Records that it is owed to a subscription from now on. Its bytes, which others may share, count once; besides them
    /// counts [`DELIVERY_BYTES`].
    pub fn owe(&mut self) {
        if !self.is_owed {
            self.is_owed = true;
            self.count_owed(true);
        }
    }

    /// Counts this message among those that are owed, or no longer.
    fn count_owed(&self, is_owed: bool) {
        let is_counted = match &self.payload {
            Payload::Own(_) => true,
            Payload::Shared(shared) if is_owed => shared.owed.fetch_add(1, Ordering::Relaxed) == 0,
            Payload::Shared(shared) => shared.owed.fetch_sub(1, Ordering::Relaxed) == 1,
        };
        let bytes = if is_counted { self.size() as i64 } else { 0 } + DELIVERY_BYTES as i64;
        held::add_owed(if is_owed { bytes } else { -bytes });
    }

    /// Makes a second instance; from now on both share the bytes.
    #[must_use]
    pub fn share(&mut self) -> OwnedMessage {
        if let Payload::Own(bytes) = &mut self.payload {
            // The bytes were counted as a part of this message; now they are counted separately.
            let owed = AtomicUsize::new(usize::from(self.is_owed));
            self.payload = Payload::Shared(Arc::new(Shared { bytes: std::mem::take(bytes), owed }));
        }
        self.copy().unwrap_or_else(|| OwnedMessage::new(&self.message()))
    }

    /// A copy that shares the bytes; `None` if they are not shared yet.
    fn copy(&self) -> Option<OwnedMessage> {
        let Payload::Shared(shared) = &self.payload else { return None };
        let copy = OwnedMessage { payload: Payload::Shared(Arc::clone(shared)), is_owed: false, ..*self };
        held::add(copy.cost());
        Some(copy)
    }

    /// Counts the message, and its bytes unless they are shared and were counted before.
    #[cfg(any(test, simulated))]
    pub fn audit(&self, audit: &mut Audit) {
        audit.message_bytes += self.cost();
        if let Payload::Shared(shared) = &self.payload
            && audit.is_first_visit(shared)
        {
            audit.message_bytes += shared.bytes.len() as i64;
            if shared.owed.load(Ordering::Relaxed) > 0 {
                audit.owed_bytes += shared.bytes.len() as i64;
            }
        }
        if self.is_owed {
            let own = if matches!(self.payload, Payload::Own(_)) { self.size() } else { 0 };
            audit.owed_bytes += (own + DELIVERY_BYTES) as i64;
        }
    }

    /// A view of the message.
    #[must_use]
    pub fn message(&self) -> Message<'_> {
        let (destination, rest) = self.payload.bytes().split_at(self.destination_len as usize);
        let (id, rest) = rest.split_at(usize::from(self.id_len));
        let (headers, body) = rest.split_at(self.headers_len as usize);
        let OwnedMessage { sender, plain, expires_ms, .. } = *self;
        Message { destination, id, sender, headers, plain, expires_ms, body }
    }

    /// Reads its first and last byte, so that they come into the cache of this core.
    #[inline]
    pub fn fetch(&self) {
        let bytes = self.payload.bytes();
        black_box((bytes.first().copied(), bytes.last().copied()));
    }

    /// Its destination.
    #[must_use]
    pub fn destination(&self) -> &[u8] {
        &self.payload.bytes()[..self.destination_len as usize]
    }

    /// Bytes of destination, id, headers and body, as counted by credit and `max_queue_bytes`.
    #[must_use]
    pub fn size(&self) -> usize {
        self.payload.bytes().len()
    }

    /// The consumer that rejected it last; another one is preferred.
    #[must_use]
    pub fn refused_by(&self) -> Option<Key> {
        (self.refused_by != NOBODY).then_some(self.refused_by)
    }

    /// Records that a consumer rejected it.
    pub fn set_refused_by(&mut self, consumer: Key) {
        self.refused_by = consumer;
    }

    /// Whether it has expired.
    #[must_use]
    pub fn is_expired(&self, now_ms: u64) -> bool {
        self.expires_ms != 0 && self.expires_ms <= now_ms
    }

    /// A copy with `retained:true` before its headers, for a new subscription.
    #[must_use]
    pub fn as_retained(&self) -> OwnedMessage {
        let message = self.message();
        let headers = [b"retained:true\n", message.headers].concat();
        OwnedMessage::new(&Message { headers: &headers, ..message })
    }

    /// A copy with these headers instead of its own, which is otherwise the same message.
    #[must_use]
    pub fn with_headers(&self, headers: &[u8]) -> OwnedMessage {
        let mut copy = OwnedMessage::new(&Message { headers, ..self.message() });
        copy.persistent = self.persistent;
        copy.grouped = self.grouped;
        (copy.failures, copy.failures_max) = (self.failures, self.failures_max);
        (copy.deliveries, copy.record, copy.seq) = (self.deliveries, self.record, self.seq);
        copy
    }

    /// A copy for its dead-letter queue; `None` if it came from a dead-letter queue.
    #[must_use]
    pub fn as_dead_letter(&self, reason: &str) -> Option<OwnedMessage> {
        let message = self.message();
        if message.destination.starts_with(DEAD_LETTERS) {
            return None;
        }
        let own = message.destination;
        let name = own.strip_prefix(b"/queue/").or_else(|| own.strip_prefix(b"/")).unwrap_or(own);
        let destination = [DEAD_LETTERS, name].concat();
        let mut headers = format!("dead-letter-reason:{reason}\noriginal-destination:").into_bytes();
        escape_into(&mut headers, own, Version::V1_2);
        headers.extend_from_slice(format!("\ndelivery-count:{}\n", self.deliveries).as_bytes());
        headers.extend_from_slice(message.headers);
        let (destination, headers) = (&destination[..], &headers[..]);
        let mut dead = OwnedMessage::new(&Message { destination, headers, expires_ms: 0, ..message });
        dead.persistent = self.persistent;
        Some(dead)
    }
}

/// Prefix of the names of dead-letter queues.
pub const DEAD_LETTERS: &[u8] = b"/queue/dlq/";

#[cfg(test)]
mod tests {
    use super::*;

    fn message<'a>(destination: &'a [u8], headers: &'a [u8]) -> Message<'a> {
        Message { destination, id: b"e-0-1", sender: 7, headers, plain: true, expires_ms: 0, body: b"body" }
    }

    #[test]
    fn a_copy_equals_the_message_and_is_counted_until_it_is_dropped() {
        let before = held::bytes();
        let owned = OwnedMessage::new(&message(b"/queue/a", b"x:1\n"));
        let read = owned.message();
        assert_eq!(
            (read.destination, read.id, read.headers, read.body),
            (&b"/queue/a"[..], &b"e-0-1"[..], &b"x:1\n"[..], &b"body"[..])
        );
        assert!(held::bytes() > before + owned.size() as i64);
        drop(owned);
        assert_eq!(held::bytes(), before);
    }

    #[test]
    fn a_dead_letter_queue_is_named_after_the_destination_and_its_messages_have_none() {
        for (own, expected) in [
            (&b"/queue/jobs"[..], &b"/queue/dlq/jobs"[..]),
            (b"/topic/a", b"/queue/dlq/topic/a"),
            (b"#jobs", b"/queue/dlq/#jobs"),
        ] {
            let mut owned = OwnedMessage::new(&message(own, b"x:1\n"));
            owned.deliveries = 3;
            let dead = owned.as_dead_letter("max-deliveries").expect("not dead yet");
            assert_eq!(dead.destination(), expected);
            let headers = String::from_utf8_lossy(dead.message().headers).into_owned();
            let original = String::from_utf8_lossy(own);
            assert_eq!(
                headers,
                format!(
                    "dead-letter-reason:max-deliveries\noriginal-destination:{original}\ndelivery-count:3\nx:1\n"
                )
            );
            assert!(dead.as_dead_letter("expired").is_none());
        }
    }
}
