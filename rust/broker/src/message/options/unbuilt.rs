//! Headers for features that are not implemented. They are refused by name rather than ignored, unless their value
//! requests the existing behaviour.

use stompica_proto::error::Code;
use stompica_proto::{Frame, ProtocolError, header};

use super::bad_value;
use crate::destination::Kind;

/// A header and its accepted values, which request the existing behaviour.
type Unbuilt = (&'static [u8], &'static [&'static [u8]]);

const NOTHING: &[&[u8]] = &[b""];
const FALSE: &[&[u8]] = &[b"false"];
const ZERO: &[&[u8]] = &[b"0"];

/// Headers of SUBSCRIBE to any destination.
const SUBSCRIBE: [Unbuilt; 9] = [
    (b"selector", NOTHING),
    (b"browser", FALSE),
    (b"x-stream-filter", &[]),
    (b"transformation", NOTHING),
    (b"activemq.exclusive", FALSE),
    (b"activemq.retroactive", FALSE),
    (b"activemq.priority", ZERO),
    (b"activemq.maximumPendingMessageLimit", &[b"-1"]),
    (b"x-queue-name", &[]),
];

/// Headers of SEND to any destination.
const SEND: [Unbuilt; 8] = [
    (b"AMQ_SCHEDULED_DELAY", ZERO),
    (b"AMQ_SCHEDULED_PERIOD", ZERO),
    (b"AMQ_SCHEDULED_CRON", NOTHING),
    (b"AMQ_SCHEDULED_REPEAT", ZERO),
    (b"_AMQ_SCHED_DELIVERY", ZERO),
    (b"_AMQ_LVQ_NAME", NOTHING),
    (b"_AMQ_DUPL_ID", NOTHING),
    (b"transformation", NOTHING),
];

/// RabbitMQ's headers for creating a queue, in SUBSCRIBE and in SEND to a queue.
const QUEUE: [Unbuilt; 13] = [
    (b"x-queue-type", &[b"classic"]),
    (b"x-single-active-consumer", FALSE),
    (b"x-message-ttl", &[]),
    (b"x-expires", &[]),
    (b"x-max-length", &[]),
    (b"x-max-length-bytes", &[]),
    (b"x-max-age", &[]),
    (b"x-dead-letter-exchange", &[]),
    (b"x-dead-letter-routing-key", &[]),
    (b"x-stream-max-segment-size-bytes", &[]),
    (b"x-stream-filter-size-bytes", &[]),
    (b"x-max-priority", ZERO),
    (b"exclusive", FALSE),
];

const AUTO_DELETE: &[u8] = b"auto-delete";

/// Refuses a SUBSCRIBE that needs a missing feature; `durable`: it names a durable subscription.
///
/// # Errors
/// `E-NOT-SUPPORTED`, naming the header; `E-VALUE` for an unknown routing type.
pub fn require_built_subscribe(frame: &Frame<'_>, kind: Kind, durable: bool) -> Result<(), ProtocolError> {
    SUBSCRIBE.iter().chain(&QUEUE).try_for_each(|unbuilt| require(frame, unbuilt))?;
    // Other subscriptions leave no messages, so `auto-delete:true` is true of them.
    let outlives_subscription = matches!(kind, Kind::Queue) || durable;
    if outlives_subscription {
        require(frame, &(AUTO_DELETE, FALSE))?;
    }
    if !kind.is_topic() && kind != Kind::Diagnostics {
        for name in [header::NO_LOCAL, header::ACTIVEMQ_NO_LOCAL] {
            require(frame, &(name, FALSE))?;
        }
    }
    // With `block:TIME` it concerns the whole connection.
    let has_policy = !durable && (kind.is_topic() || kind == Kind::Diagnostics);
    let policy =
        frame.header(header::SLOW_CONSUMER).filter(|value| !value.trim_ascii().starts_with(b"block"));
    if policy.is_some() && !has_policy {
        let text = "only for subscriptions to topics that are not durable; leave it out";
        return Err(not_supported(header::SLOW_CONSUMER, text));
    }
    require_routing(frame, header::SUBSCRIPTION_TYPE, kind)?;
    require_routing(frame, header::DESTINATION_TYPE, kind)
}

/// Refuses a SEND that needs a missing feature.
///
/// # Errors
/// As [`require_built_subscribe`].
pub fn require_built_send(frame: &Frame<'_>, kind: Kind) -> Result<(), ProtocolError> {
    SEND.iter().try_for_each(|unbuilt| require(frame, unbuilt))?;
    if kind == Kind::Queue {
        QUEUE.iter().try_for_each(|unbuilt| require(frame, unbuilt))?;
        require(frame, &(AUTO_DELETE, FALSE))?;
    }
    require_routing(frame, header::DESTINATION_TYPE, kind)
}

fn require(frame: &Frame<'_>, (name, harmless): &Unbuilt) -> Result<(), ProtocolError> {
    let Some(value) = frame.header(name) else { return Ok(()) };
    let value = value.trim_ascii();
    match harmless.iter().any(|harmless| value.eq_ignore_ascii_case(harmless)) {
        true => Ok(()),
        false => Err(not_supported(name, "not built yet in this version; leave it out")),
    }
}

/// Artemis selects the routing type by a header; here the destination's name decides, and the header must agree.
fn require_routing(frame: &Frame<'_>, name: &[u8], kind: Kind) -> Result<(), ProtocolError> {
    let Some(value) = frame.header(name) else { return Ok(()) };
    let shared = match &*value.to_ascii_uppercase() {
        b"ANYCAST" => true,
        b"MULTICAST" => false,
        _ => return Err(bad_value(name, &value, "ANYCAST or MULTICAST")),
    };
    let (is_shared, text) = match kind {
        Kind::Queue | Kind::WorkerTopic | Kind::TemporaryQueue => {
            (true, "the destination is a queue by its name; a topic's name starts with /topic/")
        }
        _ => (false, "the destination is a topic by its name; a queue's name starts with /queue/"),
    };
    if shared == is_shared { Ok(()) } else { Err(not_supported(name, text)) }
}

/// The error for `no-local` on a durable subscription that several subscribers share.
#[must_use]
#[cold]
pub fn shared_no_local() -> ProtocolError {
    not_supported(
        header::NO_LOCAL,
        "not built yet for a durable subscription that several subscribers may share",
    )
}

#[cold]
fn not_supported(name: &[u8], text: &str) -> ProtocolError {
    ProtocolError::new(Code::NotSupported, format!("header '{}': {text}", String::from_utf8_lossy(name)))
}

#[cfg(test)]
mod tests {
    use super::super::tests::with;
    use super::*;

    fn send(lines: &str, kind: Kind) -> Option<Code> {
        with("SEND", lines, |frame| require_built_send(frame, kind)).err().map(|error| error.code)
    }

    fn subscribe(lines: &str, kind: Kind, durable: bool) -> Option<Code> {
        let checked = with("SUBSCRIBE", lines, |frame| require_built_subscribe(frame, kind, durable));
        checked.err().map(|error| error.code)
    }

    #[test]
    fn headers_for_creating_a_queue_are_checked_only_for_queues() {
        assert_eq!(send("x-message-ttl:5", Kind::Queue), Some(Code::NotSupported));
        assert_eq!(send("x-message-ttl:5", Kind::Topic), None);
        assert_eq!(subscribe("x-message-ttl:5", Kind::Topic, false), Some(Code::NotSupported));
        assert_eq!(
            subscribe("x-queue-type:classic\nx-single-active-consumer:False", Kind::Queue, false),
            None
        );
        assert_eq!(subscribe("x-queue-type:stream", Kind::Queue, false), Some(Code::NotSupported));
    }

    #[test]
    fn auto_delete_is_accepted_if_nothing_outlives_the_subscription() {
        assert_eq!(subscribe("auto-delete:true", Kind::Topic, false), None);
        assert_eq!(subscribe("auto-delete:true", Kind::Topic, true), Some(Code::NotSupported));
        assert_eq!(subscribe("auto-delete:true", Kind::Queue, false), Some(Code::NotSupported));
        assert_eq!(subscribe("auto-delete:false", Kind::Queue, true), None);
    }

    #[test]
    fn a_policy_of_its_own_is_refused_where_a_subscription_cannot_have_one() {
        for (kind, durable, allowed) in [
            (Kind::Topic, false, true),
            (Kind::TemporaryTopic, false, true),
            (Kind::Topic, true, false),
            (Kind::Queue, false, false),
            (Kind::WorkerTopic, false, false),
        ] {
            let refused = subscribe("slow-consumer:drop-oldest", kind, durable);
            assert_eq!(refused, (!allowed).then_some(Code::NotSupported), "{kind:?}, durable: {durable}");
            assert_eq!(subscribe("slow-consumer: block:1s", kind, durable), None, "of its connection");
        }
    }

    #[test]
    fn a_routing_type_must_agree_with_the_name() {
        for (value, kind, code) in [
            ("ANYCAST", Kind::Queue, None),
            ("anycast", Kind::WorkerTopic, None),
            ("MULTICAST", Kind::Topic, None),
            ("MULTICAST", Kind::Queue, Some(Code::NotSupported)),
            ("ANYCAST", Kind::Topic, Some(Code::NotSupported)),
            ("BOTH", Kind::Topic, Some(Code::HeaderValue)),
        ] {
            assert_eq!(send(&format!("destination-type:{value}"), kind), code, "{value}");
            assert_eq!(subscribe(&format!("subscription-type:{value}"), kind, false), code, "{value}");
        }
    }

    #[test]
    fn every_checked_header_of_send_is_a_known_option() {
        for (name, _) in SEND.iter().chain(&QUEUE) {
            assert!(header::is_option(name), "{}", String::from_utf8_lossy(name));
        }
        assert!(header::is_option(AUTO_DELETE) && header::is_option(header::DESTINATION_TYPE));
    }
}
