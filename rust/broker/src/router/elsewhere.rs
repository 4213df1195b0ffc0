//! Destination names of other brokers: RabbitMQ's names for queues and topics are translated. Names without an
//! equivalent here are refused, so that no client waits at a topic of that name.

use std::borrow::Cow;

use memchr::{memchr, memmem};
use stompica_proto::ProtocolError;
use stompica_proto::error::Code;

use super::Router;
use crate::config::Compat;

const QUEUE: &[u8] = b"/amq/queue/";
const TOPIC: &[u8] = b"/exchange/amq.topic/";
const EXCHANGE: &[u8] = b"/exchange/";
const REPLY: &[u8] = b"/reply-queue/";

impl Router {
    /// Translates the destination of a SEND or SUBSCRIBE to this broker's names.
    ///
    /// # Errors
    /// `E-DEST-INVALID` for a kind of destination that this broker does not have.
    #[inline]
    pub fn translate<'a>(&self, name: &'a [u8]) -> Result<Cow<'a, [u8]>, ProtocolError> {
        let may_be_known = match name {
            [b'/', second, ..] => matches!(second, b'a' | b'e' | b'r'),
            [first, ..] => first.is_ascii_alphabetic() && memchr(b':', name).is_some(),
            [] => false,
        };
        if may_be_known && self.compat == Compat::None { translate(name) } else { Ok(Cow::Borrowed(name)) }
    }
}

#[cold]
fn translate(name: &[u8]) -> Result<Cow<'_, [u8]>, ProtocolError> {
    if let Some(rest) = name.strip_prefix(QUEUE) {
        return Ok(Cow::Owned([b"/queue/", rest].concat()));
    }
    if let Some(rest) = name.strip_prefix(TOPIC) {
        return Ok(Cow::Owned([b"/topic/", rest].concat()));
    }
    let way_out = if name.starts_with(EXCHANGE) {
        "there are no exchanges; '/topic/…' is what '/exchange/amq.topic/…' is, '/queue/…' a queue"
    } else if name.starts_with(REPLY) {
        "there are no reply queues of this name; 'reply-to:/temp-queue/…' makes one"
    } else if is_uri(name) {
        "a destination is no URI; it begins with '/topic/', '/queue/', '/temp-queue/' or '/temp-topic/'"
    } else {
        return Ok(Cow::Borrowed(name));
    };
    let text = format!("'{}': {way_out}", String::from_utf8_lossy(name));
    Err(ProtocolError::new(Code::DestinationInvalid, text))
}

/// Whether a name begins with a scheme, as in `queue://a`.
fn is_uri(name: &[u8]) -> bool {
    let scheme = memmem::find(name, b"://").map_or(&name[..0], |end| &name[..end]);
    !scheme.is_empty() && scheme.iter().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_other_brokers_are_translated_or_refused() {
        for (name, own) in [
            ("/amq/queue/a", Some("/queue/a")),
            ("/amq/queue/a/b.c", Some("/queue/a/b.c")),
            ("/exchange/amq.topic/a.b", Some("/topic/a.b")),
            ("/exchange/amq.topic/a.*", Some("/topic/a.*")),
            ("/exchange/amq.direct/a", None),
            ("/exchange/amq.topic", None),
            ("/exchange/", None),
            ("/reply-queue/amq.gen-a", None),
            ("queue://a", None),
            ("amqp+ssl://host/a", None),
            ("/amq/topic/a", Some("/amq/topic/a")),
            ("/exchanges/a", Some("/exchanges/a")),
            ("a b://c", Some("a b://c")),
            ("a:b", Some("a:b")),
            ("://", Some("://")),
        ] {
            let translated = translate(name.as_bytes());
            assert_eq!(translated.ok().as_deref(), own.map(str::as_bytes), "{name}");
        }
    }
}
