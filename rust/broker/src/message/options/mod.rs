//! Options that clients give in headers of SEND, SUBSCRIBE and UNSUBSCRIBE, validated.
//!
//! Pure functions: no state and no clock. A header that the broker acts on either has a valid
//! value or is refused with `E-VALUE`; it is never ignored. If a header is repeated, the first one counts.

mod durable;
mod replay;
mod send;
mod subscribe;
mod unbuilt;

use std::borrow::Cow;

use stompica_proto::error::Code;
use stompica_proto::{Frame, ProtocolError, header};

pub use self::durable::{Durable, durable_of};
#[cfg(test)]
pub use self::replay::Until;
pub use self::replay::{ReplayFrom, ReplayOptions, replay_options};
pub use self::send::{Retain, SendOptions, options_in, send_options};
pub use self::subscribe::{SubscribeOptions, subscribe_options};
pub use self::unbuilt::{require_built_send, require_built_subscribe, shared_no_local};
use crate::config::{Kind, quoted};
use crate::door::planted;

/// The outcome of a delivery, as reported by its consumer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// ACK: the message was processed.
    Accepted,
    /// NACK: the message is delivered again, or dead-lettered after the last delivery.
    Failed,
    /// NACK with `requeue:false`: the message is dead-lettered now.
    Rejected,
}

/// The outcome that an ACK (`accept`) or a NACK reports; `requeue:false` is RabbitMQ's header for rejecting a message.
///
/// # Errors
/// `E-VALUE` for a `requeue` of NACK that is neither true nor false.
pub fn verdict_of(frame: &Frame<'_>, accept: bool) -> Result<Verdict, ProtocolError> {
    Ok(match accept {
        true => Verdict::Accepted,
        false if flag(frame, header::REQUEUE)? == Some(false) && !planted!("requeue-ignored") => {
            Verdict::Rejected
        }
        false => Verdict::Failed,
    })
}

/// The error for a header with an invalid value; `allowed` ends the sentence "must be …".
#[must_use]
#[cold]
pub fn bad_value(header: &[u8], value: &[u8], allowed: &str) -> ProtocolError {
    let (header, value) = (String::from_utf8_lossy(header), quoted(&String::from_utf8_lossy(value)));
    ProtocolError::new(Code::HeaderValue, format!("header '{header}' (value {value}): must be {allowed}"))
}

fn boxed(value: Cow<'_, [u8]>) -> Box<[u8]> {
    value.into_owned().into_boxed_slice()
}

/// A header that overrides a setting for one subscription, with the setting's format and bounds. `start` is any value
/// of the type.
fn setting<T: crate::config::Field>(
    frame: &Frame<'_>,
    name: &[u8],
    kind: Kind,
    start: T,
) -> Result<Option<T>, ProtocolError> {
    let Some(value) = frame.header(name) else { return Ok(None) };
    let mut read = start;
    match std::str::from_utf8(&value) {
        Ok(text) if read.accept(&kind, text) => Ok(Some(read)),
        _ => Err(bad_value(name, &value, &kind.allowed())),
    }
}

fn flag(frame: &Frame<'_>, name: &[u8]) -> Result<Option<bool>, ProtocolError> {
    let read = |value: Cow<'_, [u8]>| match &*value {
        // Some clients send their language's own literals, such as True.
        word if word.eq_ignore_ascii_case(b"true") => Ok(true),
        word if word.eq_ignore_ascii_case(b"false") => Ok(false),
        word => Err(bad_value(name, word, "true or false")),
    };
    frame.header(name).map(read).transpose()
}

fn whole(frame: &Frame<'_>, name: &[u8], min: u64, max: u64) -> Result<Option<u64>, ProtocolError> {
    let Some(value) = frame.header(name) else { return Ok(None) };
    match digits(&value).filter(|number| (min..=max).contains(number)) {
        Some(number) => Ok(Some(number)),
        None => Err(bad_value(name, &value, &Kind::Integer { min, max }.allowed())),
    }
}

/// A number that consists of digits only: no sign, no space.
fn digits(text: &[u8]) -> Option<u64> {
    if text.is_empty() || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(text).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use stompica_proto::{Decoded, Decoder, Limits, Version};

    use super::*;

    /// Calls `check` with a frame of a 1.2 session that has these header lines.
    pub(super) fn with<T>(command: &str, lines: &str, check: impl FnOnce(&Frame<'_>) -> T) -> T {
        with_version(Version::V1_2, command, lines, check)
    }

    pub(super) fn with_version<T>(
        version: Version,
        command: &str,
        lines: &str,
        check: impl FnOnce(&Frame<'_>) -> T,
    ) -> T {
        let mut decoder = Decoder::new();
        decoder.connected(version);
        let text = format!("{command}\ndestination:/x\n{lines}\n\n\0");
        let mut spans = Vec::new();
        match decoder.decode(text.as_bytes(), &mut spans, &Limits::default()) {
            Ok(Decoded::Frame { frame, .. }) => check(&frame),
            other => panic!("{other:?}"),
        }
    }

    /// Asserts that each of these lines is refused with an error that names header and value.
    pub(super) fn assert_refused<T>(lines: &[&str], read: impl Fn(&str) -> Result<T, ProtocolError>) {
        for line in lines {
            let error = read(line).err().unwrap_or_else(|| panic!("'{line}' is accepted"));
            let (name, value) = line.split_once(':').expect("a header line");
            assert_eq!(error.code, Code::HeaderValue, "{line}");
            let start = format!("header '{name}' (value '{value}'): must be ");
            assert!(error.detail.starts_with(&start) && error.detail.len() > start.len(), "{}", error.detail);
        }
    }
}
