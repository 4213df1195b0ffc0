//! Destination names: their kinds, and the meaning of wildcard patterns (docs/behaviour.md, section 5).
//!
//! A name is split into *segments* at `/` and `.`. A segment includes the separator before it, so that `/a.b` and
//! `/a/b` differ.

pub mod tree;

use memchr::memchr;
use smallvec::SmallVec;
use stompica_proto::ProtocolError;
use stompica_proto::error::Code;

use crate::config::{Compat, Wildcards};
use crate::ids::ShardId;

/// The kind of a destination: what happens to its messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Every matching subscription gets each message.
    Topic,
    /// One consumer gets each message, which is kept until then.
    Queue,
    /// One matching subscription gets each message, which is not kept.
    WorkerTopic,
    /// A queue that is private to a connection.
    TemporaryQueue,
    /// A topic that is private to a connection.
    TemporaryTopic,
    /// The status text.
    Monitor,
    /// The broker's own diagnostics.
    Diagnostics,
}

impl Kind {
    /// The kind of a name or pattern, determined by its first characters.
    #[must_use]
    pub fn of(name: &[u8], compat: Compat) -> Kind {
        match name.first() {
            Some(b'#') => Kind::WorkerTopic,
            Some(b'D') if name.starts_with(b"DIAG") => Kind::Diagnostics,
            Some(b'/') if compat == Compat::None => {
                if name == MONITOR {
                    Kind::Monitor
                } else if name.starts_with(b"/queue/") {
                    Kind::Queue
                } else if name.starts_with(TEMPORARY_QUEUE) {
                    Kind::TemporaryQueue
                } else if name.starts_with(TEMPORARY_TOPIC) {
                    Kind::TemporaryTopic
                } else {
                    Kind::Topic
                }
            }
            _ => Kind::Topic,
        }
    }

    /// Whether messages go to every matching subscription.
    #[must_use]
    pub fn is_topic(self) -> bool {
        matches!(self, Kind::Topic | Kind::TemporaryTopic | Kind::Monitor)
    }

    /// Whether only the broker may send to it.
    #[must_use]
    pub fn is_reserved(self) -> bool {
        matches!(self, Kind::Monitor | Kind::Diagnostics)
    }
}

/// The destination of the status text of all queues.
pub const MONITOR: &[u8] = b"/queue/monitor";
/// Prefix of the names of temporary queues.
pub const TEMPORARY_QUEUE: &[u8] = b"/temp-queue/";
/// Prefix of the names of temporary topics.
pub const TEMPORARY_TOPIC: &[u8] = b"/temp-topic/";
/// Length of the secret in the full name of a temporary destination, in hexadecimal digits; the first two are the shard
/// of its owner, which is its home.
pub const SECRET_LEN: usize = 32;

/// The full name of an owner's temporary destination.
#[must_use]
pub fn full_name(own: &[u8], secret: &str) -> Vec<u8> {
    let (prefix, rest) = own.split_at(TEMPORARY_QUEUE.len());
    [prefix, secret.as_bytes(), b"/", rest].concat()
}

/// The secret in the full name of a temporary destination; `None` for the name that its owner uses.
#[must_use]
pub fn secret_of(name: &[u8]) -> Option<&[u8]> {
    let rest = name.strip_prefix(TEMPORARY_QUEUE).or_else(|| name.strip_prefix(TEMPORARY_TOPIC))?;
    let (secret, rest) = rest.split_at_checked(SECRET_LEN)?;
    (rest.first() == Some(&b'/') && secret.iter().all(u8::is_ascii_hexdigit)).then_some(secret)
}

/// The name that the owner uses for a temporary destination; any other name unchanged.
#[must_use]
pub fn shown(destination: &[u8]) -> SmallVec<[u8; 128]> {
    let mut own = SmallVec::from_slice(destination);
    if secret_of(destination).is_some() {
        // Both prefixes have the same length.
        own.drain(TEMPORARY_QUEUE.len()..=TEMPORARY_QUEUE.len() + SECRET_LEN);
    }
    own
}

/// The home that a name contains: only names of temporary queues have one.
#[must_use]
pub fn home_in(name: &[u8], kind: Kind, shards: usize) -> Option<ShardId> {
    if kind != Kind::TemporaryQueue {
        return None;
    }
    let digits = std::str::from_utf8(&secret_of(name)?[..2]).ok()?;
    u8::from_str_radix(digits, 16).ok().map(|shard| ShardId((usize::from(shard) % shards) as u8))
}

/// Refuses a SEND to a pattern: `*` anywhere, or `>`, `**`, `#` as the last segment.
///
/// # Errors
/// `E-DEST-WILDCARD`.
pub fn require_plain(name: &[u8]) -> Result<(), ProtocolError> {
    let last = last_segment(name);
    if memchr(b'*', name).is_none() && !matches!(text(last), b">" | b"#") {
        return Ok(());
    }
    let text = format!("'{}' is a pattern; a message goes to one destination", String::from_utf8_lossy(name));
    Err(ProtocolError::new(Code::DestinationWildcard, text))
}

/// The names that a pattern allows after its segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tail {
    /// Nothing: the name ends here.
    End,
    /// One or more further segments, the first after this separator (0: any, or none).
    OneOrMore(u8),
    /// Zero or more further segments, the first after this separator (0: any, or none).
    NoneOrMore(u8),
    /// Anything that begins with the prefix, with any number of segments.
    PrefixDeep,
    /// One last segment that begins with the prefix.
    PrefixSegment,
}

/// A parsed wildcard pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern<'a> {
    /// Segments that are matched one by one; a segment with the text `*` matches any text after the same separator.
    pub segments: Vec<&'a [u8]>,
    /// For [`Tail::PrefixDeep`] and [`Tail::PrefixSegment`]: the prefix, including the separator.
    pub prefix: &'a [u8],
    /// The rule for names after the segments.
    pub tail: Tail,
}

impl<'a> Pattern<'a> {
    /// Parses the destination of a SUBSCRIBE; `None` if it is a plain name.
    ///
    /// # Errors
    /// `E-DEST-INVALID` for a `*` within a segment that is not the pattern's last character.
    pub fn parse(
        name: &'a [u8],
        wildcards: Wildcards,
        compat: Compat,
    ) -> Result<Option<Self>, ProtocolError> {
        let last = last_segment(name);
        let star = memchr(b'*', name);
        if star.is_none() && !matches!(text(last), b">" | b"#") {
            return Ok(None);
        }
        if let (Some(star), Compat::Stompica) = (star, compat) {
            return Ok(Some(Pattern { segments: Vec::new(), prefix: &name[..star], tail: Tail::PrefixDeep }));
        }
        let mut segments: Vec<&[u8]> = segments(name).collect();
        let separator = separator(last);
        let (mut prefix, mut tail) = (&b""[..], Tail::End);
        match text(last) {
            b">" | b"**" => tail = Tail::OneOrMore(separator),
            b"#" => tail = Tail::NoneOrMore(separator),
            b"*" if wildcards == Wildcards::Ancestor => tail = Tail::OneOrMore(separator),
            b"*" => {}
            text if text.ends_with(b"*") => {
                prefix = &last[..last.len() - 1];
                tail = if wildcards == Wildcards::Ancestor { Tail::PrefixDeep } else { Tail::PrefixSegment };
            }
            _ => {}
        }
        if tail != Tail::End {
            segments.pop();
        }
        let stray = |part: &&&[u8]| memchr(b'*', part).is_some() && text(part) != b"*";
        if let Some(part) =
            segments.iter().find(stray).or((memchr(b'*', prefix).is_some()).then_some(&prefix))
        {
            let text = format!(
                "'{}': '*' must be a whole segment or the pattern's last character, but is not in '{}'",
                String::from_utf8_lossy(name),
                String::from_utf8_lossy(part)
            );
            return Err(ProtocolError::new(Code::DestinationInvalid, text));
        }
        Ok(Some(Pattern { segments, prefix, tail }))
    }

    /// Whether `name` matches, compared segment by segment. The router's tree matches all patterns at once and is
    /// tested against this function.
    #[must_use]
    pub fn matches(&self, name: &[u8]) -> bool {
        let mut rest = name;
        for wanted in &self.segments {
            let Some(found) = segments(rest).next() else { return false };
            if *wanted != found && !(is_star(wanted) && separator(wanted) == separator(found)) {
                return false;
            }
            rest = &rest[found.len()..];
        }
        matches_tail(self.tail, self.prefix, rest)
    }
}

/// Whether the rest of a name matches the tail of a pattern.
#[must_use]
pub fn matches_tail(tail: Tail, prefix: &[u8], rest: &[u8]) -> bool {
    match tail {
        Tail::End => rest.is_empty(),
        Tail::OneOrMore(0) => !rest.is_empty(),
        Tail::NoneOrMore(0) => true,
        Tail::OneOrMore(separator) => rest.first() == Some(&separator),
        Tail::NoneOrMore(separator) => rest.first().is_none_or(|first| *first == separator),
        Tail::PrefixDeep => rest.starts_with(prefix),
        Tail::PrefixSegment => rest.starts_with(prefix) && segments(rest).nth(1).is_none(),
    }
}

/// The segments of a name, each with the separator before it; the first may have none.
pub fn segments(name: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = name;
    std::iter::from_fn(move || {
        let first = rest.first()?;
        let from = usize::from(is_separator(*first));
        let len = rest[from..].iter().position(|byte| is_separator(*byte)).map_or(rest.len(), |at| at + from);
        let (segment, behind) = rest.split_at(len);
        rest = behind;
        Some(segment)
    })
}

fn last_segment(name: &[u8]) -> &[u8] {
    let start = name.iter().rposition(|byte| is_separator(*byte)).unwrap_or(0);
    &name[start..]
}

/// Whether a segment is a `*`.
#[must_use]
pub fn is_star(segment: &[u8]) -> bool {
    text(segment) == b"*"
}

/// A segment without its separator.
fn text(segment: &[u8]) -> &[u8] {
    match segment.first() {
        Some(first) if is_separator(*first) => &segment[1..],
        _ => segment,
    }
}

/// A segment's separator; 0 if it has none.
#[must_use]
pub fn separator(segment: &[u8]) -> u8 {
    segment.first().copied().filter(|first| is_separator(*first)).unwrap_or(0)
}

fn is_separator(byte: u8) -> bool {
    byte == b'/' || byte == b'.'
}

/// The home of a name with this hash.
#[must_use]
pub fn home_of(hash: u64, shards: usize) -> ShardId {
    // The upper half, because hash tables use the lower bits.
    ShardId(((hash >> 32) as usize % shards) as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, name: &str, wildcards: Wildcards) -> bool {
        Pattern::parse(pattern.as_bytes(), wildcards, Compat::None)
            .expect("a legal pattern")
            .expect("a pattern")
            .matches(name.as_bytes())
    }

    #[test]
    fn wildcards_of_c_stompica_and_of_other_brokers() {
        use Wildcards::{Ancestor, Segment};
        for (pattern, name, ancestor, segment) in [
            ("/topic/*", "/topic/a", true, true),
            ("/topic/*", "/topic/a/b", true, false),
            ("/topic/*", "/topic/", true, true),
            ("/topic/*", "/topic", false, false),
            ("/topic/*", "/topics/a", false, false),
            ("/topic/*/c", "/topic/b/c", true, true),
            ("/topic/*/c", "/topic/b/b/c", false, false),
            ("/topic/>", "/topic/a/b", true, true),
            ("/topic/**", "/topic/a/b", true, true),
            ("/topic/>", "/topic", false, false),
            ("/topic/a/#", "/topic/a", true, true),
            ("/topic/a/#", "/topic/a/b/c", true, true),
            ("/topic/a/#", "/topic/ab", false, false),
            ("/topic/a.*", "/topic/a.b", true, true),
            ("/topic/a.*", "/topic/a/b", false, false),
            ("/topic/ab*", "/topic/abc", true, true),
            ("/topic/ab*", "/topic/ab/c", true, false),
            ("/topic/ab*", "/topic/ab", true, true),
            ("*", "/topic/a", true, false),
            ("*", "news", true, true),
            (">", "/topic/a.b", true, true),
            ("/*", "/topic/a", true, false),
            ("news.*", "news.sport", true, true),
        ] {
            assert_eq!(matches(pattern, name, Ancestor), ancestor, "{pattern} {name}, ancestor");
            assert_eq!(matches(pattern, name, Segment), segment, "{pattern} {name}, segment");
        }
    }

    #[test]
    fn in_compat_mode_everything_before_the_star_is_the_prefix() {
        let parse = |pattern: &'static str| {
            Pattern::parse(pattern.as_bytes(), Wildcards::Ancestor, Compat::Stompica)
                .expect("legal")
                .expect("a pattern")
        };
        assert!(parse("/q/a*").matches(b"/q/abc/d") && !parse("/q/a*").matches(b"/q/b"));
        assert!(parse("*").matches(b"anything") && parse("/q/*/z").matches(b"/q/x"));
    }

    #[test]
    fn a_star_within_a_segment_is_refused() {
        for pattern in ["/topic/a*b", "/topic/*a/c", "/topic/a*/c", "/topic/***", "/topic/a**"] {
            let error =
                Pattern::parse(pattern.as_bytes(), Wildcards::Ancestor, Compat::None).expect_err(pattern);
            assert_eq!(error.code, Code::DestinationInvalid);
        }
    }

    #[test]
    fn the_prefix_determines_the_kind() {
        for (name, kind) in [
            ("/topic/a", Kind::Topic),
            ("anything", Kind::Topic),
            ("/queue/a", Kind::Queue),
            ("/queues", Kind::Topic),
            ("#a", Kind::WorkerTopic),
            ("/temp-queue/a", Kind::TemporaryQueue),
            ("DIAG", Kind::Diagnostics),
            ("DIAG/x", Kind::Diagnostics),
            ("*", Kind::Topic),
        ] {
            assert_eq!(Kind::of(name.as_bytes(), Compat::None), kind, "{name}");
        }
        assert_eq!(Kind::of(b"/queue/a", Compat::Stompica), Kind::Topic);
    }

    #[test]
    fn a_send_to_a_pattern_is_refused() {
        for name in ["/topic/*", "/topic/a*b", "/topic/>", "a.#", "/topic/**", "*", ">"] {
            assert!(require_plain(name.as_bytes()).is_err(), "{name}");
        }
        for name in ["/topic/a", "/topic/#a", "/topic/>/a", "/topic/#/a", "a>b"] {
            assert!(require_plain(name.as_bytes()).is_ok(), "{name}");
        }
    }
}
