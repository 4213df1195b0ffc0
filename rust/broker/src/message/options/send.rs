//! Options of SEND.

use stompica_proto::{Frame, ProtocolError, header};

use super::{bad_value, boxed, flag, whole};

/// The effect of a `retain` header on the topic's retained message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retain {
    /// This message becomes the retained message.
    Set,
    /// The retained message is removed.
    Remove,
}

/// Options of a SEND (docs/behaviour.md, section 7).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SendOptions {
    /// The time at which the message expires, on the broker's clock, milliseconds; 0: never.
    pub expires_ms: u64,
    /// Whether its RECEIPT confirms that the message is stored.
    pub persistent: bool,
    /// The effect on the topic's retained message.
    pub retain: Option<Retain>,
    /// Failed deliveries after which it is dead-lettered; 0: not set.
    pub max_exceptions: u16,
    /// The destination for replies, as the sender wrote it; not empty.
    pub reply_to: Option<Box<[u8]>>,
    /// Whether it belongs to a message group, which one consumer should receive.
    pub grouped: bool,
}

impl SendOptions {
    /// Whether the message has expired at this time of the broker's clock.
    #[must_use]
    pub fn has_expired(&self, now_ms: u64) -> bool {
        self.expires_ms != 0 && self.expires_ms <= now_ms
    }

    /// Whether the message becomes the topic's retained one at this time: one that has expired only removes the last value.
    #[must_use]
    pub fn sets_value(&self, now_ms: u64) -> bool {
        self.retain == Some(Retain::Set) && !self.has_expired(now_ms)
    }
}

/// Reads the options of a SEND. `now_ms` is the broker's monotonic clock (milliseconds since its start), `wall_ms` the
/// milliseconds since 1970, both at present. Of `expires`, `expiration` and `ttl`, the earliest time counts. A time
/// that has passed becomes the present, and never 0.
///
/// # Errors
/// `E-VALUE`, naming the header, its value and what is allowed.
pub fn send_options(frame: &Frame<'_>, now_ms: u64, wall_ms: u64) -> Result<SendOptions, ProtocolError> {
    let expires = whole(frame, header::EXPIRES, 0, u64::MAX)?.filter(|&epoch_ms| epoch_ms > 0);
    let remaining_ms = [
        expires.map(|epoch_ms| epoch_ms.saturating_sub(wall_ms)),
        whole(frame, header::EXPIRATION, 0, u64::MAX)?,
        whole(frame, header::TTL, 0, u64::MAX)?,
    ];
    let earliest_ms = remaining_ms.into_iter().flatten().min();
    let retain = frame.header(header::RETAIN).map(|value| match &*value {
        b"set" => Ok(Retain::Set),
        b"remove" => Ok(Retain::Remove),
        _ => Err(bad_value(header::RETAIN, &value, "set or remove")),
    });
    let max_exceptions = whole(frame, header::MAX_EXCEPTIONS, 1, u64::from(u16::MAX))?;
    Ok(SendOptions {
        expires_ms: earliest_ms.map_or(0, |ms| now_ms.saturating_add(ms).max(1)),
        persistent: flag(frame, header::PERSISTENT)?.unwrap_or(false),
        retain: retain.transpose()?,
        max_exceptions: max_exceptions.and_then(|count| u16::try_from(count).ok()).unwrap_or(0),
        reply_to: frame.header(header::REPLY_TO).filter(|value| !value.is_empty()).map(boxed),
        grouped: [header::GROUP_ID, b"_AMQ_GROUP_ID"]
            .iter()
            .any(|name| frame.raw(name).is_some_and(|value| !value.is_empty())),
    })
}

/// Reads the options that matter for a copy in a queue, apart from its expiry, from header lines with the escapes of
/// 1.2. [`send_options`] has checked them, maybe on another shard. The first of a repeated header counts.
#[must_use]
pub fn options_in(headers: &[u8]) -> SendOptions {
    let mut options = SendOptions::default();
    for line in headers.rsplit(|byte| *byte == b'\n') {
        let Some(colon) = memchr::memchr(b':', line) else { continue };
        let (name, value) = (&line[..colon], &line[colon + 1..]);
        match name {
            header::MAX_EXCEPTIONS => {
                let count = std::str::from_utf8(value).ok().and_then(|value| value.parse().ok());
                options.max_exceptions = count.unwrap_or(0);
            }
            header::PERSISTENT => options.persistent = value.eq_ignore_ascii_case(b"true"),
            _ => {}
        }
    }
    options
}

#[cfg(test)]
mod tests {
    use stompica_proto::Version;

    use super::super::tests::{assert_refused, with, with_version};
    use super::*;

    const NOW_MS: u64 = 5_000;
    const WALL_MS: u64 = 1_700_000_000_000;

    fn send(lines: &str) -> Result<SendOptions, ProtocolError> {
        with("SEND", lines, |frame| send_options(frame, NOW_MS, WALL_MS))
    }

    fn expires_ms(lines: &str) -> u64 {
        send(lines).expect(lines).expires_ms
    }

    #[test]
    fn a_send_without_headers_has_default_options() {
        assert_eq!(send("priority:4"), Ok(SendOptions::default()));
    }

    #[test]
    fn expires_is_wall_clock_time_and_the_others_are_relative() {
        assert_eq!(expires_ms("expires:1700000000250"), 5_250);
        assert_eq!(expires_ms("expiration:250"), 5_250);
        assert_eq!(expires_ms("ttl:250"), 5_250);
        assert_eq!(expires_ms("expires:0"), 0, "0 means never");
    }

    #[test]
    fn the_earliest_of_several_times_counts() {
        assert_eq!(expires_ms("expires:1700000000100\nexpiration:250\nttl:300"), 5_100);
        assert_eq!(expires_ms("expires:1700000000400\nexpiration:350\nttl:300"), 5_300);
        assert_eq!(expires_ms("expires:0\nttl:300"), 5_300, "0 means never and is not the earliest");
        assert_eq!(expires_ms("ttl:300\nttl:100"), 5_300, "the first of a repeated header counts");
    }

    #[test]
    fn a_time_that_has_passed_becomes_the_present_and_never_0() {
        for line in ["expires:1", "expires:1700000000000", "expiration:0", "ttl:0"] {
            assert_eq!(expires_ms(line), 5_000, "{line}");
            let at_start = with("SEND", line, |frame| send_options(frame, 0, WALL_MS)).expect(line);
            assert_eq!(at_start.expires_ms, 1, "{line}");
        }
        assert_eq!(expires_ms(&format!("ttl:{}", u64::MAX)), u64::MAX, "no overflow");
    }

    #[test]
    fn the_other_options_of_a_send_are_read() {
        let options =
            send("persistent:true\nretain:set\nmax-exceptions:3\nreply-to:/temp-queue/a\\cb").expect("valid");
        let expected = SendOptions {
            expires_ms: 0,
            persistent: true,
            retain: Some(Retain::Set),
            max_exceptions: 3,
            reply_to: Some(b"/temp-queue/a:b"[..].into()),
            grouped: false,
        };
        assert_eq!(options, expected);
        let options =
            send("persistent:False\nretain:remove\nmax-exceptions:65535\nreply-to:").expect("valid");
        assert_eq!((options.persistent, options.retain), (false, Some(Retain::Remove)));
        assert_eq!((options.max_exceptions, options.reply_to), (65535, None));
        assert!(send("persistent:TRUE").expect("valid").persistent);
    }

    #[test]
    fn the_error_for_an_invalid_value_names_the_header() {
        let too_large = "ttl:18446744073709551616";
        assert_refused(&["expires:", "expires:-1", "expires:1.5", "expires:soon", "expires: 5"], send);
        assert_refused(&["expiration:5s", "expiration:+5", "ttl:0x5", "ttl:1_000", "ttl:", too_large], send);
        assert_refused(&["persistent:", "persistent:1", "persistent:yes", "retain:", "retain:true"], send);
        assert_refused(
            &["max-exceptions:0", "max-exceptions:65536", "max-exceptions:x", "max-exceptions:-1"],
            send,
        );
    }

    #[test]
    fn values_of_1_0_lose_their_leading_spaces() {
        let options = with_version(Version::V1_0, "SEND", "ttl: 5", |frame| send_options(frame, 1, WALL_MS));
        assert_eq!(options.expect("valid").expires_ms, 6);
    }

    #[test]
    fn a_copy_has_the_options_that_the_send_had() {
        for lines in
            ["a:b", "persistent:true\nmax-exceptions:3", "persistent:False", "x:y\nmax-exceptions:65535"]
        {
            let sent = send(lines).expect("valid");
            assert_eq!(options_in(format!("{lines}\n").as_bytes()), sent, "{lines}");
        }
        let repeated = options_in(b"max-exceptions:3\npersistent:true\nmax-exceptions:4\npersistent:false\n");
        assert_eq!((repeated.max_exceptions, repeated.persistent), (3, true), "the first counts");
    }

    #[test]
    fn an_error_is_one_line_of_bounded_length() {
        let error = send(&format!("retain:a\\n{}", "x".repeat(5_000))).expect_err("refused");
        assert!(error.detail.len() < 200 && !error.detail.contains('\n'), "{}", error.detail);
        assert!(error.detail.ends_with("must be set or remove"), "{}", error.detail);
    }
}
