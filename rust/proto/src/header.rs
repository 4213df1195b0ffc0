//! Names of the headers that have a meaning in the specifications or for this broker.

/// `accept-version` of CONNECT.
pub const ACCEPT_VERSION: &[u8] = b"accept-version";
/// `ack` of SUBSCRIBE and, in 1.2, of MESSAGE.
pub const ACK: &[u8] = b"ack";
/// `activemq.noLocal` of SUBSCRIBE: ActiveMQ's [`NO_LOCAL`].
pub const ACTIVEMQ_NO_LOCAL: &[u8] = b"activemq.noLocal";
/// `activemq.prefetchSize` of SUBSCRIBE: ActiveMQ's [`PREFETCH_COUNT`].
pub const ACTIVEMQ_PREFETCH_SIZE: &[u8] = b"activemq.prefetchSize";
/// `activemq.subscriptionName` of SUBSCRIBE and UNSUBSCRIBE: ActiveMQ's name of a durable subscription.
pub const ACTIVEMQ_SUBSCRIPTION_NAME: &[u8] = b"activemq.subscriptionName";
/// `client-id` of CONNECT: the owner of durable subscriptions.
pub const CLIENT_ID: &[u8] = b"client-id";
/// `consumer-window-size` of SUBSCRIBE: unacknowledged bytes that are allowed; Artemis's name.
pub const CONSUMER_WINDOW_SIZE: &[u8] = b"consumer-window-size";
/// `content-length`: octets of the body.
pub const CONTENT_LENGTH: &[u8] = b"content-length";
/// `credit` of SUBSCRIBE: deliveries and, after a comma, bytes that may be unacknowledged.
pub const CREDIT: &[u8] = b"credit";
/// `dead-letter-reason` of a MESSAGE from a dead-letter queue.
pub const DEAD_LETTER_REASON: &[u8] = b"dead-letter-reason";
/// `delivery-count` of MESSAGE: number of this delivery; sent from the second delivery on.
pub const DELIVERY_COUNT: &[u8] = b"delivery-count";
/// `destination` of SEND, SUBSCRIBE and MESSAGE.
pub const DESTINATION: &[u8] = b"destination";
/// `destination-type` of SEND: whether an address is a topic or a queue; Artemis's name.
pub const DESTINATION_TYPE: &[u8] = b"destination-type";
/// `dropped` of MESSAGE: number of messages dropped before it for the slow consumer.
pub const DROPPED: &[u8] = b"dropped";
/// `durable` of SUBSCRIBE and UNSUBSCRIBE: RabbitMQ's durable subscription, named by its `id`.
pub const DURABLE: &[u8] = b"durable";
/// `durable-subscriber-name` of SUBSCRIBE and UNSUBSCRIBE: Artemis's older [`DURABLE_SUBSCRIPTION_NAME`].
pub const DURABLE_SUBSCRIBER_NAME: &[u8] = b"durable-subscriber-name";
/// `durable-subscription-name` of SUBSCRIBE and UNSUBSCRIBE: Artemis's name of a durable subscription.
pub const DURABLE_SUBSCRIPTION_NAME: &[u8] = b"durable-subscription-name";
/// `expiration` of SEND: milliseconds from arrival; RabbitMQ's name.
pub const EXPIRATION: &[u8] = b"expiration";
/// `expires` of SEND: milliseconds since 1970; ActiveMQ's name.
pub const EXPIRES: &[u8] = b"expires";
/// `heart-beat` of CONNECT and CONNECTED.
pub const HEART_BEAT: &[u8] = b"heart-beat";
/// `id` of SUBSCRIBE, UNSUBSCRIBE and, in 1.2, of ACK and NACK.
pub const ID: &[u8] = b"id";
/// `JMSXGroupID` of SEND: messages of one group go to one consumer, in other brokers.
pub const GROUP_ID: &[u8] = b"JMSXGroupID";
/// `login` of CONNECT.
pub const LOGIN: &[u8] = b"login";
/// `max-deliveries` of SUBSCRIBE: number of failed deliveries after which a message is dead-lettered.
pub const MAX_DELIVERIES: &[u8] = b"max-deliveries";
/// `max-exceptions` of SEND: `max-deliveries` of one message; stompserver's name.
pub const MAX_EXCEPTIONS: &[u8] = b"max-exceptions";
/// `message-id` of MESSAGE and, up to 1.1, of ACK and NACK.
pub const MESSAGE_ID: &[u8] = b"message-id";
/// `no-local` of SUBSCRIBE: messages from the subscriber's own connection are not delivered.
pub const NO_LOCAL: &[u8] = b"no-local";
/// `original-destination` of a MESSAGE from a dead-letter queue.
pub const ORIGINAL_DESTINATION: &[u8] = b"original-destination";
/// `persistent` of SEND: the RECEIPT means that the message is stored. Of SUBSCRIBE: RabbitMQ's older [`DURABLE`].
pub const PERSISTENT: &[u8] = b"persistent";
/// `prefetch` of SUBSCRIBE: another name of [`PREFETCH_COUNT`].
pub const PREFETCH: &[u8] = b"prefetch";
/// `prefetch-count` of SUBSCRIBE: deliveries that may be unacknowledged; RabbitMQ's name.
pub const PREFETCH_COUNT: &[u8] = b"prefetch-count";
/// `receipt`: requests a RECEIPT.
pub const RECEIPT: &[u8] = b"receipt";
/// `redelivered` of MESSAGE: an earlier delivery failed or was lost.
pub const REDELIVERED: &[u8] = b"redelivered";
/// `redelivery-delay` of SUBSCRIBE: delay before the first redelivery.
pub const REDELIVERY_DELAY: &[u8] = b"redelivery-delay";
/// `reply-to` of SEND and MESSAGE: destination of the answer.
pub const REPLY_TO: &[u8] = b"reply-to";
/// `request-id` of CONNECT: CONNECTED repeats it as `response-id`; ActiveMQ's name.
pub const REQUEST_ID: &[u8] = b"request-id";
/// `requeue` of NACK: whether the message is delivered again; RabbitMQ's name.
pub const REQUEUE: &[u8] = b"requeue";
/// `retain` of SEND: the message becomes its topic's last value, or removes it.
pub const RETAIN: &[u8] = b"retain";
/// `retained` of MESSAGE: it is the last value, sent before the subscription began.
pub const RETAINED: &[u8] = b"retained";
/// `slow-consumer` of SUBSCRIBE: overrides the setting `slow_consumer` for this subscription.
pub const SLOW_CONSUMER: &[u8] = b"slow-consumer";
/// `subscription` of MESSAGE and, in 1.1, of ACK and NACK.
pub const SUBSCRIPTION: &[u8] = b"subscription";
/// `subscription-type` of SUBSCRIBE: Artemis's [`DESTINATION_TYPE`].
pub const SUBSCRIPTION_TYPE: &[u8] = b"subscription-type";
/// `transaction` of BEGIN, COMMIT, ABORT, SEND, ACK, NACK.
pub const TRANSACTION: &[u8] = b"transaction";
/// `ttl` of SEND: milliseconds from arrival.
pub const TTL: &[u8] = b"ttl";

/// Headers that name a durable subscription, in order of precedence.
pub const DURABLE_NAMES: [&[u8]; 3] =
    [DURABLE_SUBSCRIBER_NAME, DURABLE_SUBSCRIPTION_NAME, ACTIVEMQ_SUBSCRIPTION_NAME];

/// Whether a SEND's header is set by the server on MESSAGE, or is meant for the server alone. Such a header is never
/// passed on, so that a sender can neither forge nor shadow the server's headers.
#[must_use]
pub fn is_server_owned(name: &[u8]) -> bool {
    match name.len() {
        3 => name == ACK,
        7 => name == RECEIPT || name == DROPPED,
        8 => name == RETAINED,
        10 => name == MESSAGE_ID,
        11 => name == DESTINATION || name == TRANSACTION || name == REDELIVERED,
        12 => name == SUBSCRIPTION,
        14 => name == CONTENT_LENGTH || name == DELIVERY_COUNT,
        18 => name == DEAD_LETTER_REASON,
        20 => name == ORIGINAL_DESTINATION,
        _ => false,
    }
}

/// Whether a SEND's header is an option for this broker (docs/behaviour.md, section 7) or for other brokers. It is
/// also passed on to the receivers, unless the SEND is refused because of it.
#[must_use]
pub fn is_option(name: &[u8]) -> bool {
    match name.len() {
        3 => name == TTL,
        6 => name == RETAIN,
        7 => name == EXPIRES,
        8 => name == REPLY_TO,
        9 => matches!(name, b"x-expires" | b"x-max-age" | b"exclusive"),
        10 => name == EXPIRATION || name == PERSISTENT,
        11 => name == GROUP_ID || name == b"auto-delete",
        12 => matches!(name, b"x-queue-type" | b"x-max-length" | b"_AMQ_DUPL_ID"),
        13 => matches!(name, b"x-message-ttl" | b"_AMQ_LVQ_NAME" | b"_AMQ_GROUP_ID"),
        14 => name == MAX_EXCEPTIONS || matches!(name, b"x-max-priority" | b"transformation"),
        16 => name == DESTINATION_TYPE,
        18 => matches!(name, b"x-max-length-bytes" | b"AMQ_SCHEDULED_CRON"),
        19 => matches!(name, b"AMQ_SCHEDULED_DELAY" | b"_AMQ_SCHED_DELIVERY"),
        20 => matches!(name, b"AMQ_SCHEDULED_PERIOD" | b"AMQ_SCHEDULED_REPEAT"),
        22 => name == b"x-dead-letter-exchange",
        24 => name == b"x-single-active-consumer",
        25 => name == b"x-dead-letter-routing-key",
        26 => name == b"x-stream-filter-size-bytes",
        31 => name == b"x-stream-max-segment-size-bytes",
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::{is_option, is_server_owned};

    // docs/specification.md, items 62, 64
    #[test]
    fn server_owned_headers_are_recognised() {
        for name in [
            "ack",
            "receipt",
            "dropped",
            "retained",
            "message-id",
            "destination",
            "transaction",
            "redelivered",
            "subscription",
            "content-length",
            "delivery-count",
            "dead-letter-reason",
            "original-destination",
        ] {
            assert!(is_server_owned(name.as_bytes()), "{name}");
        }
        for name in
            ["", "id", "content-type", "Destination", "destinations", "priority", "receipt-id", "reply-to"]
        {
            assert!(!is_server_owned(name.as_bytes()), "{name}");
        }
    }

    #[test]
    fn options_of_send_are_recognised_and_passed_on() {
        for name in [
            "expires",
            "expiration",
            "ttl",
            "persistent",
            "retain",
            "reply-to",
            "max-exceptions",
            "JMSXGroupID",
            "AMQ_SCHEDULED_DELAY",
            "x-message-ttl",
            "destination-type",
        ] {
            assert!(is_option(name.as_bytes()), "{name}");
            assert!(!is_server_owned(name.as_bytes()), "{name}");
        }
        for name in
            ["", "TTL", "priority", "expired", "retained", "reply_to", "persistence", "receipt", "ack"]
        {
            assert!(!is_option(name.as_bytes()), "{name}");
        }
    }
}
