//! Options of SUBSCRIBE.

use std::time::Duration;

use stompica_proto::{Frame, ProtocolError, header};

use super::{Durable, bad_value, digits, durable_of, flag, setting, whole};
use crate::config::{Kind, SlowConsumer, Unit};

/// Options of a SUBSCRIBE (docs/behaviour.md, section 6). Where the broker's settings are stricter, they apply.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SubscribeOptions {
    /// Maximum number of unacknowledged deliveries; `None`: the setting, `Some(0)`: unlimited.
    pub prefetch: Option<u32>,
    /// Maximum number of unacknowledged bytes; `None`: unlimited. Never 0.
    pub window_bytes: Option<u64>,
    /// The durable subscription to create or resume.
    pub durable: Option<Durable>,
    /// Whether messages sent by the same connection are left out.
    pub no_local: bool,
    /// Failed deliveries after which a message is dead-lettered; never 0.
    pub max_deliveries: Option<u32>,
    /// Delay before the first redelivery.
    pub redelivery_delay: Option<Duration>,
    /// The policy for this subscription when the outbox is full.
    pub slow_consumer: Option<SlowConsumer>,
}

/// Reads the options of a SUBSCRIBE; `id` is its `id` header. If several limits for unacknowledged deliveries are
/// given, all apply, except that `prefetch-count`, `activemq.prefetchSize` and `prefetch` are names of one limit: the
/// first that is present counts.
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
        no_local: [flag(frame, header::NO_LOCAL)?, flag(frame, header::ACTIVEMQ_NO_LOCAL)?]
            .contains(&Some(true)),
        slow_consumer: setting(frame, header::SLOW_CONSUMER, Kind::SlowConsumer, SlowConsumer::Disconnect)?,
    })
}

const COUNT_MAX: u64 = u32::MAX as u64;
/// The bounds of the setting `redelivery_delay`.
const REDELIVERY_DELAY: Kind = Kind::Time { unit: Unit::Millis, min_ms: 0, max_ms: 24 * 3_600_000 };

/// The prefetch, which has three names: RabbitMQ's, ActiveMQ's and the short one.
fn prefetch(frame: &Frame<'_>) -> Result<Option<u32>, ProtocolError> {
    for name in [header::PREFETCH_COUNT, header::ACTIVEMQ_PREFETCH_SIZE, header::PREFETCH] {
        if let Some(count) = whole(frame, name, 0, COUNT_MAX)? {
            return Ok(u32::try_from(count).ok());
        }
    }
    Ok(None)
}

/// `credit:COUNT[,BYTES]`; 0: unlimited.
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

/// `consumer-window-size:BYTES`; -1: unlimited, 0: one message at a time.
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

/// The stricter of two optional limits, where 0 means unlimited.
fn stricter(one: Option<u32>, other: Option<u32>) -> Option<u32> {
    [one, other]
        .into_iter()
        .flatten()
        .min_by_key(|&count| if count == 0 { u64::MAX } else { u64::from(count) })
}

#[cfg(test)]
mod tests {
    use super::super::tests::{assert_refused, with};
    use super::*;

    fn subscribe(lines: &str) -> Result<SubscribeOptions, ProtocolError> {
        with("SUBSCRIBE", lines, |frame| subscribe_options(frame, frame.header(header::ID).as_deref()))
    }

    fn options_of(lines: &str) -> SubscribeOptions {
        subscribe(lines).expect(lines)
    }

    #[test]
    fn a_subscribe_without_headers_has_default_options() {
        assert_eq!(subscribe("id:1\nack:client"), Ok(SubscribeOptions::default()));
    }

    #[test]
    fn prefetch_has_three_names_and_the_first_one_counts() {
        for line in ["prefetch-count:7", "activemq.prefetchSize:7", "prefetch:7"] {
            assert_eq!(
                options_of(line),
                SubscribeOptions { prefetch: Some(7), ..SubscribeOptions::default() },
                "{line}"
            );
        }
        assert_eq!(options_of("prefetch:1\nactivemq.prefetchSize:2\nprefetch-count:3").prefetch, Some(3));
        assert_eq!(options_of("prefetch:1\nactivemq.prefetchSize:2").prefetch, Some(2));
        assert_eq!(options_of("prefetch:0").prefetch, Some(0), "unlimited");
        assert_refused(
            &["prefetch:", "prefetch:-1", "prefetch-count:many", "prefetch:4294967296"],
            subscribe,
        );
        assert_refused(&["activemq.prefetchSize:1.0"], subscribe);
    }

    #[test]
    fn credit_is_a_count_and_bytes() {
        let bounds = |line| (options_of(line).prefetch, options_of(line).window_bytes);
        assert_eq!(bounds("credit:5"), (Some(5), None));
        assert_eq!(bounds("credit:5,65536"), (Some(5), Some(65536)));
        assert_eq!(bounds("credit:0,65536"), (Some(0), Some(65536)));
        assert_eq!(bounds("credit:5,0"), (Some(5), None));
        assert_refused(
            &["credit:", "credit:,5", "credit:5,", "credit:5,x", "credit:5,6,7", "credit:-1"],
            subscribe,
        );
        assert_refused(&["credit:4294967296"], subscribe);
    }

    #[test]
    fn consumer_window_size_is_bytes_and_0_is_one_message() {
        let bounds = |line| (options_of(line).prefetch, options_of(line).window_bytes);
        assert_eq!(bounds("consumer-window-size:1000"), (None, Some(1000)));
        assert_eq!(bounds("consumer-window-size:-1"), (None, None));
        assert_eq!(bounds("consumer-window-size:0"), (Some(1), None));
        assert_refused(
            &["consumer-window-size:", "consumer-window-size:-2", "consumer-window-size:1k"],
            subscribe,
        );
    }

    #[test]
    fn if_several_limits_are_given_all_apply() {
        assert_eq!(options_of("prefetch:9\ncredit:5,300\nconsumer-window-size:200").prefetch, Some(5));
        assert_eq!(options_of("prefetch:9\ncredit:5,300\nconsumer-window-size:200").window_bytes, Some(200));
        assert_eq!(options_of("prefetch:0\ncredit:5").prefetch, Some(5), "unlimited is the least strict");
        assert_eq!(options_of("prefetch:9\nconsumer-window-size:0").prefetch, Some(1));
    }

    #[test]
    fn redelivery_and_slow_consumer_accept_the_values_of_the_settings() {
        assert_eq!(options_of("max-deliveries:3").max_deliveries, Some(3));
        assert_eq!(options_of("redelivery-delay:250").redelivery_delay, Some(Duration::from_millis(250)));
        assert_eq!(options_of("redelivery-delay:0").redelivery_delay, Some(Duration::ZERO));
        assert_eq!(options_of("redelivery-delay:2s").redelivery_delay, Some(Duration::from_secs(2)));
        let block = SlowConsumer::Block(Duration::from_secs(2));
        assert_eq!(options_of("slow-consumer:block\\c2s").slow_consumer, Some(block));
        assert_eq!(options_of("slow-consumer:drop-oldest").slow_consumer, Some(SlowConsumer::DropOldest));
        assert_refused(&["max-deliveries:0", "max-deliveries:x", "max-deliveries:4294967296"], subscribe);
        assert_refused(&["redelivery-delay:", "redelivery-delay:soon", "redelivery-delay:25h"], subscribe);
        assert_refused(&["slow-consumer:", "slow-consumer:drop", "slow-consumer:block"], subscribe);
    }

    #[test]
    fn no_local_has_two_names() {
        for line in ["no-local:true", "activemq.noLocal:true", "activemq.noLocal:True\nno-local:false"] {
            assert!(options_of(line).no_local, "{line}");
        }
        assert!(!options_of("no-local:false").no_local && !options_of("id:1").no_local);
        assert_refused(&["no-local:", "no-local:yes", "activemq.noLocal:1"], subscribe);
    }

    #[test]
    fn redelivery_delay_has_the_bounds_of_the_setting() {
        let row = crate::config::settings().iter().find(|setting| setting.key == "redelivery_delay");
        assert_eq!(row.map(|setting| setting.kind), Some(REDELIVERY_DELAY));
    }
}
