//! Header escapes (STOMP 1.2 and 1.1, "Value Encoding").

use std::borrow::Cow;

use crate::Version;

/// Unescapes a header's wire name or value.
#[must_use]
pub fn unescape(raw: &[u8], version: Version) -> Cow<'_, [u8]> {
    let _ = version;
    Cow::Borrowed(raw)
}
