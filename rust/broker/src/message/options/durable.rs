//! The durable subscription that a SUBSCRIBE or an UNSUBSCRIBE names.

use stompica_proto::error::Code;
use stompica_proto::{Frame, ProtocolError, header};

use super::{bad_value, boxed, flag};

/// Identifies a durable subscription by its name, which is unique within its login or client-id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Durable {
    /// The name; not empty.
    pub name: Box<[u8]>,
    /// Whether several active subscribers may share it, as in RabbitMQ; otherwise it has one at a time, as in ActiveMQ.
    pub shared: bool,
}

/// The durable subscription that a SUBSCRIBE creates and an UNSUBSCRIBE with the same headers removes. `id` is the
/// frame's `id` header. A header with the subscription's name takes precedence over RabbitMQ's `durable` and the older
/// `persistent`, which use the `id` as the name.
///
/// # Errors
/// `E-VALUE` for a name that is empty or a `durable` that is neither true nor false; `E-ID-MISSING` for `durable:true`
/// without `id`.
pub fn durable_of(frame: &Frame<'_>, id: Option<&[u8]>) -> Result<Option<Durable>, ProtocolError> {
    let shared = [flag(frame, header::DURABLE)?, flag(frame, header::PERSISTENT)?].contains(&Some(true));
    for header in header::DURABLE_NAMES {
        if let Some(name) = frame.header(header) {
            if name.is_empty() {
                return Err(bad_value(header, &name, "a non-empty name"));
            }
            return Ok(Some(Durable { name: boxed(name), shared: false }));
        }
    }
    if !shared {
        return Ok(None);
    }
    let id = id.filter(|id| !id.is_empty()).ok_or_else(|| {
        let text = "'durable:true' (or 'persistent:true') needs an 'id' header, which names the subscription";
        ProtocolError::new(Code::IdMissing, text)
    })?;
    Ok(Some(Durable { name: id.into(), shared: true }))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{assert_refused, with};
    use super::*;

    fn subscribe(lines: &str) -> Result<Option<Durable>, ProtocolError> {
        with("SUBSCRIBE", lines, |frame| durable_of(frame, frame.header(header::ID).as_deref()))
    }

    #[test]
    fn a_durable_subscription_is_named_by_its_id_or_by_a_name_header() {
        let durable =
            |lines| subscribe(lines).expect(lines).map(|durable| (durable.name.to_vec(), durable.shared));
        assert_eq!(durable("id:a\\cb\ndurable:true"), Some((b"a:b".to_vec(), true)));
        assert_eq!(durable("id:a\ndurable:True"), Some((b"a".to_vec(), true)));
        assert_eq!(durable("id:a\ndurable:false"), None);
        assert_eq!(durable("id:a\nactivemq.subscriptionName:n"), Some((b"n".to_vec(), false)));
        assert_eq!(durable("durable-subscription-name:n\\cm"), Some((b"n:m".to_vec(), false)));
        assert_eq!(
            durable("id:a\ndurable:true\ndurable-subscription-name:n"),
            Some((b"n".to_vec(), false)),
            "the header with a name takes precedence"
        );
        assert_refused(&["durable:", "durable:yes", "durable:1"], subscribe);
        assert_refused(&["activemq.subscriptionName:", "durable-subscription-name:"], subscribe);
    }

    #[test]
    fn the_older_header_names_are_accepted() {
        let named =
            |lines| subscribe(lines).expect(lines).map(|durable| (durable.name.to_vec(), durable.shared));
        assert_eq!(named("id:a\npersistent:true"), Some((b"a".to_vec(), true)));
        assert_eq!(named("id:a\npersistent:false"), None);
        assert_eq!(named("id:a\ndurable-subscriber-name:n"), Some((b"n".to_vec(), false)));
        assert_refused(&["persistent:1", "durable-subscriber-name:"], subscribe);
    }

    #[test]
    fn durable_needs_an_id() {
        for lines in ["durable:true", "durable:true\nid:", "persistent:true"] {
            assert_eq!(subscribe(lines).expect_err(lines).code, Code::IdMissing, "{lines}");
        }
    }

    #[test]
    fn an_unsubscribe_uses_the_same_headers_as_the_subscribe() {
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
