//! STOMP versions and their negotiation (STOMP 1.2, "Protocol Negotiation").

/// A supported STOMP version; versions are ordered by age.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Version {
    /// STOMP 1.0: no escapes, no heart-beats, no NACK.
    V1_0,
    /// STOMP 1.1: escapes `\n \c \\`.
    V1_1,
    /// STOMP 1.2: escapes `\r \n \c \\`, CRLF line ends.
    V1_2,
}

impl Version {
    /// The `version` header of an ERROR for a client without a common version.
    pub const SUPPORTED: &'static str = "1.0,1.1,1.2";

    /// All versions, oldest first.
    pub const ALL: [Version; 3] = [Version::V1_0, Version::V1_1, Version::V1_2];

    /// The version on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Version::V1_0 => "1.0",
            Version::V1_1 => "1.1",
            Version::V1_2 => "1.2",
        }
    }

    /// Returns the highest supported version in a comma-separated `accept-version`.
    ///
    /// A missing header means 1.0. `None`: there is no common version, so answer with ERROR.
    #[must_use]
    pub fn negotiate(accept_version: Option<&[u8]>) -> Option<Version> {
        let Some(list) = accept_version else { return Some(Version::V1_0) };
        let offered = |version: &Version| {
            list.split(|&byte| byte == b',').any(|item| item.trim_ascii() == version.as_str().as_bytes())
        };
        Version::ALL.into_iter().rev().find(offered)
    }
}

#[cfg(test)]
mod tests {
    use super::Version;

    #[test]
    fn highest_common_version_wins() {
        assert_eq!(Version::negotiate(None), Some(Version::V1_0));
        assert_eq!(Version::negotiate(Some(b"1.0,1.1,1.2")), Some(Version::V1_2));
        assert_eq!(Version::negotiate(Some(b"1.1, 1.0")), Some(Version::V1_1));
        assert_eq!(Version::negotiate(Some(b"2.0,1.1,3.7")), Some(Version::V1_1));
        assert_eq!(Version::negotiate(Some(b"2.0")), None);
        assert_eq!(Version::negotiate(Some(b"")), None);
    }
}
