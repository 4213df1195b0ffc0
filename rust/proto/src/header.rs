//! Names of the headers that the specifications and this broker give a meaning.

/// `accept-version` of CONNECT.
pub const ACCEPT_VERSION: &[u8] = b"accept-version";
/// `ack` of SUBSCRIBE and, in 1.2, of MESSAGE.
pub const ACK: &[u8] = b"ack";
/// `content-length`: octets of the body.
pub const CONTENT_LENGTH: &[u8] = b"content-length";
/// `destination` of SEND, SUBSCRIBE and MESSAGE.
pub const DESTINATION: &[u8] = b"destination";
/// `heart-beat` of CONNECT and CONNECTED.
pub const HEART_BEAT: &[u8] = b"heart-beat";
/// `id` of SUBSCRIBE, UNSUBSCRIBE and, in 1.2, of ACK and NACK.
pub const ID: &[u8] = b"id";
/// `message-id` of MESSAGE and, up to 1.1, of ACK and NACK.
pub const MESSAGE_ID: &[u8] = b"message-id";
/// `receipt`: asks for a RECEIPT.
pub const RECEIPT: &[u8] = b"receipt";
/// `subscription` of MESSAGE and, in 1.1, of ACK and NACK.
pub const SUBSCRIPTION: &[u8] = b"subscription";
/// `transaction` of BEGIN, COMMIT, ABORT, SEND, ACK, NACK.
pub const TRANSACTION: &[u8] = b"transaction";

/// Whether a SEND's header is the server's own on MESSAGE, or meant for the server alone: such a header is never
/// passed on, so that a sender can neither forge nor shadow what the server says.
#[must_use]
pub fn is_server_owned(name: &[u8]) -> bool {
    match name.len() {
        3 => name == ACK,
        7 => name == RECEIPT || name == b"dropped",
        8 => name == b"retained",
        10 => name == MESSAGE_ID,
        11 => name == DESTINATION || name == TRANSACTION || name == b"redelivered",
        12 => name == SUBSCRIPTION,
        14 => name == CONTENT_LENGTH || name == b"delivery-count",
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::is_server_owned;

    // PROTOCOL 62, 64
    #[test]
    fn the_server_s_own_names_are_known() {
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
        ] {
            assert!(is_server_owned(name.as_bytes()), "{name}");
        }
        for name in
            ["", "id", "content-type", "Destination", "destinations", "priority", "receipt-id", "reply-to"]
        {
            assert!(!is_server_owned(name.as_bytes()), "{name}");
        }
    }
}
