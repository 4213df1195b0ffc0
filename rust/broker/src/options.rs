//! What clients ask of the broker by headers of SEND, SUBSCRIBE and UNSUBSCRIBE, checked.
//!
//! Pure: no state, and but for [`options_in`] no clock. A header that the broker acts on either has a value it can act on or is refused by
//! `E-VALUE`; it is never passed over. Of a header that is repeated the first counts.

use std::borrow::Cow;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use stompica_proto::error::Code;
use stompica_proto::{Frame, ProtocolError, header};

use crate::config::{Kind, SlowConsumer, Unit, quoted};

/// What a `retain` header does to its topic's last value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retain {
    /// This message becomes the last value.
    Set,
    /// There is no last value any more.
    Remove,
}

/// What a SEND asks of the broker (PRODUCT.md section 7).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SendOptions {
    /// When the message expires, on the broker's clock, milliseconds; 0: never.
    pub expires_ms: u64,
    /// Its RECEIPT means stored.
    pub persistent: bool,
    /// What becomes of its topic's last value.
    pub retain: Option<Retain>,
    /// Deliveries that may fail before it is dead-lettered; 0: none asked.
    pub max_exceptions: u16,
    /// Where the answer goes, as the sender names it; not empty.
    pub reply_to: Option<Box<[u8]>>,
}

/// Reads what a SEND asks for. `now_ms` is the broker's monotonic clock (milliseconds since its start), `wall_ms` the
/// milliseconds since 1970, both now. Of `expires`, `expiration` and `ttl` the earliest counts; a time that has passed
/// is now, and never 0.
///
/// # Errors
/// `E-VALUE`, naming the header, its value and what is allowed.
pub fn send_options(frame: &Frame<'_>, now_ms: u64, wall_ms: u64) -> Result<SendOptions, ProtocolError> {
    let expires = whole(frame, header::EXPIRES, 0, u64::MAX)?.filter(|&epoch_ms| epoch_ms > 0);
    let left_ms = [
        expires.map(|epoch_ms| epoch_ms.saturating_sub(wall_ms)),
        whole(frame, header::EXPIRATION, 0, u64::MAX)?,
        whole(frame, header::TTL, 0, u64::MAX)?,
    ];
    let earliest_ms = left_ms.into_iter().flatten().min();
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
    })
}

/// What the header lines of a message ask for, in 1.2's escapes: for a copy whose SEND was checked by [`send_options`],
/// maybe on another shard. Only what concerns a copy in a queue is read.
#[must_use]
pub fn options_in(headers: &[u8], now_ms: u64) -> SendOptions {
    let mut options = SendOptions::default();
    let mut left_ms = u64::MAX;
    for line in headers.split(|byte| *byte == b'\n') {
        let Some(colon) = memchr::memchr(b':', line) else { continue };
        let (name, value) = (&line[..colon], &line[colon + 1..]);
        let number = || std::str::from_utf8(value).ok().and_then(|value| value.parse::<u64>().ok());
        match name {
            header::EXPIRES => {
                let wall_ms = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
                let at_ms = number().filter(|at_ms| *at_ms > 0).unwrap_or(u64::MAX);
                left_ms = left_ms.min(at_ms.saturating_sub(u64::try_from(wall_ms).unwrap_or(u64::MAX)));
            }
            header::EXPIRATION | header::TTL => left_ms = left_ms.min(number().unwrap_or(u64::MAX)),
            header::MAX_EXCEPTIONS => {
                options.max_exceptions = number().and_then(|count| u16::try_from(count).ok()).unwrap_or(0);
            }
            header::PERSISTENT => options.persistent = value.eq_ignore_ascii_case(b"true"),
            _ => {}
        }
    }
    let lives = left_ms > u64::MAX / 2; // no header, or one far beyond any clock
    options.expires_ms = if lives { 0 } else { now_ms.saturating_add(left_ms).max(1) };
    options
}

/// A durable subscription by its name, which is unique within its login or client-id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Durable {
    /// The name; not empty.
    pub name: Box<[u8]>,
    /// RabbitMQ's dialect: several active holders share it. Otherwise ActiveMQ's: it has one at a time.
    pub shared: bool,
}

/// What a SUBSCRIBE asks of the broker (PRODUCT.md section 6). The broker takes what is stricter than its own
/// settings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SubscribeOptions {
    /// Deliveries that may be unacknowledged; `None`: the setting, `Some(0)`: unlimited.
    pub prefetch: Option<u32>,
    /// Bytes that may be unacknowledged; `None`: unlimited. Never 0.
    pub window_bytes: Option<u64>,
    /// The durable subscription to make or to take up again.
    pub durable: Option<Durable>,
    /// Deliveries of one message that may fail before it is dead-lettered; never 0.
    pub max_deliveries: Option<u32>,
    /// Wait before the first redelivery.
    pub redelivery_delay: Option<Duration>,
    /// What a full outbox does to this subscription.
    pub slow_consumer: Option<SlowConsumer>,
}

/// Reads what a SUBSCRIBE asks for; `id` is its `id` header. Of several bounds for what is unacknowledged each holds,
/// but `prefetch-count`, `activemq.prefetchSize` and `prefetch` are names of one: the first of them that is there
/// counts.
///
/// # Errors
/// `E-VALUE`, naming the header, its value and what is allowed; `E-ID-MISSING` for `durable:true` without `id`.
pub fn subscribe_options(frame: &Frame<'_>, id: Option<&[u8]>) -> Result<SubscribeOptions, ProtocolError> {
    let (credit_count, credit_bytes) = credit(frame)?;
    let (window_count, window_bytes) = consumer_window(frame)?;
    let max_deliveries = whole(frame, header::MAX_DELIVERIES, 1, u64::from(u32::MAX))?;
    Ok(SubscribeOptions {
        prefetch: stricter(stricter(prefetch(frame)?, credit_count), window_count),
        window_bytes: [credit_bytes, window_bytes].into_iter().flatten().min(),
        durable: durable_of(frame, id)?,
        max_deliveries: max_deliveries.and_then(|count| u32::try_from(count).ok()),
        redelivery_delay: setting(frame, header::REDELIVERY_DELAY, REDELIVERY_DELAY, Duration::ZERO)?,
        slow_consumer: setting(frame, header::SLOW_CONSUMER, Kind::SlowConsumer, SlowConsumer::Disconnect)?,
    })
}

/// The durable subscription that a SUBSCRIBE makes and an UNSUBSCRIBE with the same headers ends. `id` is the frame's
/// `id` header. A name of its own goes before RabbitMQ's `durable`, which takes the `id` for the name.
///
/// # Errors
/// `E-VALUE` for a name that is empty or a `durable` that is neither true nor false; `E-ID-MISSING` for `durable:true`
/// without `id`.
pub fn durable_of(frame: &Frame<'_>, id: Option<&[u8]>) -> Result<Option<Durable>, ProtocolError> {
    let shared = flag(frame, header::DURABLE)?.unwrap_or(false);
    for header in [header::ACTIVEMQ_SUBSCRIPTION_NAME, header::DURABLE_SUBSCRIPTION_NAME] {
        if let Some(name) = frame.header(header) {
            if name.is_empty() {
                return Err(bad_value(header, &name, "a name that is not empty"));
            }
            return Ok(Some(Durable { name: boxed(name), shared: false }));
        }
    }
    if !shared {
        return Ok(None);
    }
    let id = id.filter(|id| !id.is_empty()).ok_or_else(|| {
        ProtocolError::new(Code::IdMissing, "'durable:true' needs an 'id' header: the name to come back to")
    })?;
    Ok(Some(Durable { name: id.into(), shared: true }))
}

/// The error for a header whose value cannot be acted on; `allowed` ends the sentence "must be …".
#[must_use]
#[cold]
pub fn bad_value(header: &[u8], value: &[u8], allowed: &str) -> ProtocolError {
    let (header, value) = (String::from_utf8_lossy(header), quoted(&String::from_utf8_lossy(value)));
    ProtocolError::new(Code::HeaderValue, format!("header '{header}' (value {value}): must be {allowed}"))
}

const COUNT_MAX: u64 = u32::MAX as u64;
/// As the setting `redelivery_delay`.
const REDELIVERY_DELAY: Kind = Kind::Time { unit: Unit::Millis, min_ms: 0, max_ms: 24 * 3_600_000 };

fn boxed(value: Cow<'_, [u8]>) -> Box<[u8]> {
    value.into_owned().into_boxed_slice()
}

/// The prefetch under its three names: RabbitMQ's, ActiveMQ's, the short one.
fn prefetch(frame: &Frame<'_>) -> Result<Option<u32>, ProtocolError> {
    for name in [header::PREFETCH_COUNT, header::ACTIVEMQ_PREFETCH_SIZE, header::PREFETCH] {
        if let Some(count) = whole(frame, name, 0, COUNT_MAX)? {
            return Ok(u32::try_from(count).ok());
        }
    }
    Ok(None)
}

/// `credit:COUNT[,BYTES]`, 0 is unlimited.
fn credit(frame: &Frame<'_>) -> Result<(Option<u32>, Option<u64>), ProtocolError> {
    let Some(value) = frame.header(header::CREDIT) else { return Ok((None, None)) };
    let mut parts = value.splitn(2, |&byte| byte == b',');
    let count = parts.next().and_then(digits).and_then(|count| u32::try_from(count).ok());
    let bytes = parts.next().map(digits);
    match (count, bytes) {
        (Some(count), None) => Ok((Some(count), None)),
        (Some(count), Some(Some(bytes))) => Ok((Some(count), Some(bytes).filter(|&bytes| bytes > 0))),
        _ => {
            let allowed = format!("COUNT or COUNT,BYTES, COUNT 0 to {COUNT_MAX}; 0 is unlimited");
            Err(bad_value(header::CREDIT, &value, &allowed))
        }
    }
}

/// `consumer-window-size:BYTES`; -1 is unlimited, and 0 lets one message out at a time.
fn consumer_window(frame: &Frame<'_>) -> Result<(Option<u32>, Option<u64>), ProtocolError> {
    let Some(value) = frame.header(header::CONSUMER_WINDOW_SIZE) else { return Ok((None, None)) };
    match digits(&value) {
        Some(0) => Ok((Some(1), None)),
        Some(bytes) => Ok((None, Some(bytes))),
        None if &*value == b"-1" => Ok((None, None)),
        None => {
            let allowed = "a whole number of bytes, -1 (unlimited) or 0 (one message at a time)";
            Err(bad_value(header::CONSUMER_WINDOW_SIZE, &value, allowed))
        }
    }
}

/// The tighter of two bounds of which each may be missing, and 0 is unlimited.
fn stricter(one: Option<u32>, other: Option<u32>) -> Option<u32> {
    [one, other]
        .into_iter()
        .flatten()
        .min_by_key(|&count| if count == 0 { u64::MAX } else { u64::from(count) })
}

/// A header that is a setting for one subscription: the setting's words and bounds. `start` is any value of the type.
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
        // Some clients print their language's own words, as in True.
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

/// A number of digits only: no sign, no space.
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

    /// A frame of a 1.2 session with these header lines.
    fn with<T>(command: &str, lines: &str, look: impl FnOnce(&Frame<'_>) -> T) -> T {
        with_version(Version::V1_2, command, lines, look)
    }

    fn with_version<T>(
        version: Version,
        command: &str,
        lines: &str,
        look: impl FnOnce(&Frame<'_>) -> T,
    ) -> T {
        let mut decoder = Decoder::new();
        decoder.connected(version);
        let text = format!("{command}\ndestination:/x\n{lines}\n\n\0");
        let mut spans = Vec::new();
        match decoder.decode(text.as_bytes(), &mut spans, &Limits::default()) {
            Ok(Decoded::Frame { frame, .. }) => look(&frame),
            other => panic!("{other:?}"),
        }
    }

    const NOW_MS: u64 = 5_000;
    const WALL_MS: u64 = 1_700_000_000_000;

    fn send(lines: &str) -> Result<SendOptions, ProtocolError> {
        with("SEND", lines, |frame| send_options(frame, NOW_MS, WALL_MS))
    }

    fn subscribe(lines: &str) -> Result<SubscribeOptions, ProtocolError> {
        with("SUBSCRIBE", lines, |frame| subscribe_options(frame, frame.header(header::ID).as_deref()))
    }

    fn expires_ms(lines: &str) -> u64 {
        send(lines).expect(lines).expires_ms
    }

    fn asked(lines: &str) -> SubscribeOptions {
        subscribe(lines).expect(lines)
    }

    /// Each of these lines is refused, and the text tells header and value.
    fn are_refused<T>(lines: &[&str], read: impl Fn(&str) -> Result<T, ProtocolError>) {
        for line in lines {
            let error = read(line).err().unwrap_or_else(|| panic!("'{line}' is accepted"));
            let (name, value) = line.split_once(':').expect("a header line");
            assert_eq!(error.code, Code::HeaderValue, "{line}");
            let start = format!("header '{name}' (value '{value}'): must be ");
            assert!(error.detail.starts_with(&start) && error.detail.len() > start.len(), "{}", error.detail);
        }
    }

    #[test]
    fn a_send_without_options_asks_for_nothing() {
        assert_eq!(send("priority:4"), Ok(SendOptions::default()));
    }

    #[test]
    fn expires_is_wall_clock_and_the_others_count_from_arrival() {
        assert_eq!(expires_ms("expires:1700000000250"), 5_250);
        assert_eq!(expires_ms("expiration:250"), 5_250);
        assert_eq!(expires_ms("ttl:250"), 5_250);
        assert_eq!(expires_ms("expires:0"), 0, "0 is never");
    }

    #[test]
    fn the_earliest_of_several_times_counts() {
        assert_eq!(expires_ms("expires:1700000000100\nexpiration:250\nttl:300"), 5_100);
        assert_eq!(expires_ms("expires:1700000000400\nexpiration:350\nttl:300"), 5_300);
        assert_eq!(expires_ms("expires:0\nttl:300"), 5_300, "never is not the earliest");
        assert_eq!(expires_ms("ttl:300\nttl:100"), 5_300, "the first of a repeated header counts");
    }

    #[test]
    fn a_time_that_has_passed_is_now_and_never_0() {
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
        };
        assert_eq!(options, expected);
        let options =
            send("persistent:False\nretain:remove\nmax-exceptions:65535\nreply-to:").expect("valid");
        assert_eq!((options.persistent, options.retain), (false, Some(Retain::Remove)));
        assert_eq!((options.max_exceptions, options.reply_to), (65535, None));
        assert!(send("persistent:TRUE").expect("valid").persistent);
    }

    #[test]
    fn what_a_send_may_not_ask_is_refused_by_name() {
        let too_large = "ttl:18446744073709551616";
        are_refused(&["expires:", "expires:-1", "expires:1.5", "expires:soon", "expires: 5"], send);
        are_refused(&["expiration:5s", "expiration:+5", "ttl:0x5", "ttl:1_000", "ttl:", too_large], send);
        are_refused(&["persistent:", "persistent:1", "persistent:yes", "retain:", "retain:true"], send);
        are_refused(
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
    fn an_error_is_one_line_of_bounded_length() {
        let error = send(&format!("retain:a\\n{}", "x".repeat(5_000))).expect_err("refused");
        assert!(error.detail.len() < 200 && !error.detail.contains('\n'), "{}", error.detail);
        assert!(error.detail.ends_with("must be set or remove"), "{}", error.detail);
    }

    #[test]
    fn a_subscribe_without_options_asks_for_nothing() {
        assert_eq!(subscribe("id:1\nack:client"), Ok(SubscribeOptions::default()));
    }

    #[test]
    fn prefetch_has_three_names_and_the_first_of_them_counts() {
        for line in ["prefetch-count:7", "activemq.prefetchSize:7", "prefetch:7"] {
            assert_eq!(
                asked(line),
                SubscribeOptions { prefetch: Some(7), ..SubscribeOptions::default() },
                "{line}"
            );
        }
        assert_eq!(asked("prefetch:1\nactivemq.prefetchSize:2\nprefetch-count:3").prefetch, Some(3));
        assert_eq!(asked("prefetch:1\nactivemq.prefetchSize:2").prefetch, Some(2));
        assert_eq!(asked("prefetch:0").prefetch, Some(0), "unlimited");
        are_refused(&["prefetch:", "prefetch:-1", "prefetch-count:many", "prefetch:4294967296"], subscribe);
        are_refused(&["activemq.prefetchSize:1.0"], subscribe);
    }

    #[test]
    fn credit_is_a_count_and_bytes() {
        let bounds = |line| (asked(line).prefetch, asked(line).window_bytes);
        assert_eq!(bounds("credit:5"), (Some(5), None));
        assert_eq!(bounds("credit:5,65536"), (Some(5), Some(65536)));
        assert_eq!(bounds("credit:0,65536"), (Some(0), Some(65536)));
        assert_eq!(bounds("credit:5,0"), (Some(5), None));
        are_refused(
            &["credit:", "credit:,5", "credit:5,", "credit:5,x", "credit:5,6,7", "credit:-1"],
            subscribe,
        );
        are_refused(&["credit:4294967296"], subscribe);
    }

    #[test]
    fn consumer_window_size_is_bytes_and_0_is_one_message() {
        let bounds = |line| (asked(line).prefetch, asked(line).window_bytes);
        assert_eq!(bounds("consumer-window-size:1000"), (None, Some(1000)));
        assert_eq!(bounds("consumer-window-size:-1"), (None, None));
        assert_eq!(bounds("consumer-window-size:0"), (Some(1), None));
        are_refused(
            &["consumer-window-size:", "consumer-window-size:-2", "consumer-window-size:1k"],
            subscribe,
        );
    }

    #[test]
    fn of_several_bounds_each_holds() {
        assert_eq!(asked("prefetch:9\ncredit:5,300\nconsumer-window-size:200").prefetch, Some(5));
        assert_eq!(asked("prefetch:9\ncredit:5,300\nconsumer-window-size:200").window_bytes, Some(200));
        assert_eq!(asked("prefetch:0\ncredit:5").prefetch, Some(5), "unlimited is the least strict");
        assert_eq!(asked("prefetch:9\nconsumer-window-size:0").prefetch, Some(1));
    }

    #[test]
    fn redelivery_and_slow_consumer_take_what_the_settings_take() {
        assert_eq!(asked("max-deliveries:3").max_deliveries, Some(3));
        assert_eq!(asked("redelivery-delay:250").redelivery_delay, Some(Duration::from_millis(250)));
        assert_eq!(asked("redelivery-delay:0").redelivery_delay, Some(Duration::ZERO));
        assert_eq!(asked("redelivery-delay:2s").redelivery_delay, Some(Duration::from_secs(2)));
        let block = SlowConsumer::Block(Duration::from_secs(2));
        assert_eq!(asked("slow-consumer:block\\c2s").slow_consumer, Some(block));
        assert_eq!(asked("slow-consumer:drop-oldest").slow_consumer, Some(SlowConsumer::DropOldest));
        are_refused(&["max-deliveries:0", "max-deliveries:x", "max-deliveries:4294967296"], subscribe);
        are_refused(&["redelivery-delay:", "redelivery-delay:soon", "redelivery-delay:25h"], subscribe);
        are_refused(&["slow-consumer:", "slow-consumer:drop", "slow-consumer:block"], subscribe);
    }

    #[test]
    fn the_bounds_of_redelivery_delay_are_the_setting_s() {
        let row = crate::config::settings().iter().find(|setting| setting.key == "redelivery_delay");
        assert_eq!(row.map(|setting| setting.kind), Some(REDELIVERY_DELAY));
    }

    #[test]
    fn a_durable_subscription_is_named_by_its_id_or_by_its_own_header() {
        let durable = |lines| asked(lines).durable.map(|durable| (durable.name.to_vec(), durable.shared));
        assert_eq!(durable("id:a\\cb\ndurable:true"), Some((b"a:b".to_vec(), true)));
        assert_eq!(durable("id:a\ndurable:True"), Some((b"a".to_vec(), true)));
        assert_eq!(durable("id:a\ndurable:false"), None);
        assert_eq!(durable("id:a\nactivemq.subscriptionName:n"), Some((b"n".to_vec(), false)));
        assert_eq!(durable("durable-subscription-name:n\\cm"), Some((b"n:m".to_vec(), false)));
        assert_eq!(
            durable("id:a\ndurable:true\ndurable-subscription-name:n"),
            Some((b"n".to_vec(), false)),
            "a name of its own goes first"
        );
        are_refused(&["durable:", "durable:yes", "durable:1"], subscribe);
        are_refused(&["activemq.subscriptionName:", "durable-subscription-name:"], subscribe);
    }

    #[test]
    fn durable_needs_an_id() {
        for lines in ["durable:true", "durable:true\nid:"] {
            assert_eq!(subscribe(lines).expect_err(lines).code, Code::IdMissing, "{lines}");
        }
    }

    #[test]
    fn an_unsubscribe_names_the_durable_subscription_by_the_same_headers() {
        let ends = |lines| {
            with("UNSUBSCRIBE", lines, |frame| durable_of(frame, frame.header(header::ID).as_deref()))
                .expect(lines)
        };
        assert_eq!(ends("id:a"), None);
        assert_eq!(ends("id:a\ndurable:true"), Some(Durable { name: b"a"[..].into(), shared: true }));
        let named = Some(Durable { name: b"n"[..].into(), shared: false });
        assert_eq!(ends("id:a\nactivemq.subscriptionName:n"), named);
        assert_eq!(ends("id:a\ndurable-subscription-name:n"), named);
    }
}
