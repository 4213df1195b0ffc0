//! Which durable subscription a SUBSCRIBE or an UNSUBSCRIBE names.

use stompica_proto::error::Code;
use stompica_proto::{Frame, ProtocolError, header};

use super::{bad_value, boxed, flag};

/// A durable subscription by its name, which is unique within its login or client-id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Durable {
    /// The name; not empty.
    pub name: Box<[u8]>,
    /// RabbitMQ's dialect: several active holders share it. Otherwise ActiveMQ's: it has one at a time.
    pub shared: bool,
}

/// The durable subscription that a SUBSCRIBE makes and an UNSUBSCRIBE with the same headers ends. `id` is the frame's
/// `id` header. A name of its own goes before RabbitMQ's `durable`, or the older
/// `persistent`, which take the `id` for the name.
///
/// # Errors
/// `E-VALUE` for a name that is empty or a `durable` that is neither true nor false; `E-ID-MISSING` for `durable:true`
/// without `id`.
pub fn durable_of(frame: &Frame<'_>, id: Option<&[u8]>) -> Result<Option<Durable>, ProtocolError> {
    let shared = [flag(frame, header::DURABLE)?, flag(frame, header::PERSISTENT)?].contains(&Some(true));
    for header in header::DURABLE_NAMES {
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
        let text = "'durable:true' (or 'persistent:true') needs an 'id' header: the name to come back to";
        ProtocolError::new(Code::IdMissing, text)
    })?;
    Ok(Some(Durable { name: id.into(), shared: true }))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{are_refused, with};
    use super::*;

    fn subscribe(lines: &str) -> Result<Option<Durable>, ProtocolError> {
        with("SUBSCRIBE", lines, |frame| durable_of(frame, frame.header(header::ID).as_deref()))
    }

    #[test]
    fn a_durable_subscription_is_named_by_its_id_or_by_its_own_header() {
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
            "a name of its own goes first"
        );
        are_refused(&["durable:", "durable:yes", "durable:1"], subscribe);
        are_refused(&["activemq.subscriptionName:", "durable-subscription-name:"], subscribe);
    }

    #[test]
    fn older_names_of_the_same_are_taken() {
        let named =
            |lines| subscribe(lines).expect(lines).map(|durable| (durable.name.to_vec(), durable.shared));
        assert_eq!(named("id:a\npersistent:true"), Some((b"a".to_vec(), true)));
        assert_eq!(named("id:a\npersistent:false"), None);
        assert_eq!(named("id:a\ndurable-subscriber-name:n"), Some((b"n".to_vec(), false)));
        are_refused(&["persistent:1", "durable-subscriber-name:"], subscribe);
    }

    #[test]
    fn durable_needs_an_id() {
        for lines in ["durable:true", "durable:true\nid:", "persistent:true"] {
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
