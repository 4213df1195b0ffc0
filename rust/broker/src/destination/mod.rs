//! Destination names: their kinds, and what a wildcard pattern means (docs/behaviour.md, section 5).
//!
//! A name is cut into *segments* at `/` and `.`. A segment keeps the separator in front of it, so that `/a.b` and
//! `/a/b` differ.

pub mod tree;

use memchr::memchr;
use smallvec::SmallVec;
use stompica_proto::ProtocolError;
use stompica_proto::error::Code;

use crate::config::{Compat, Wildcards};
use crate::ids::ShardId;

/// What a destination does with a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// To every matching subscription.
    Topic,
    /// To one consumer, held until consumed.
    Queue,
    /// To one matching subscription, not held.
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
    /// The kind of a name or pattern, fixed by its first characters.
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

    /// Whether clients only read from it: the broker alone writes there.
    #[must_use]
    pub fn is_reserved(self) -> bool {
        matches!(self, Kind::Monitor | Kind::Diagnostics)
    }
}

/// Where the status text of all queues goes.
pub const MONITOR: &[u8] = b"/queue/monitor";
/// What the names of temporary queues begin with.
pub const TEMPORARY_QUEUE: &[u8] = b"/temp-queue/";
/// What the names of temporary topics begin with.
pub const TEMPORARY_TOPIC: &[u8] = b"/temp-topic/";
/// Length of the secret in the full name of a temporary destination: hexadecimal digits, the first two of them the
/// shard of its owner, which is its home.
pub const SECRET_LEN: usize = 32;

/// The full name of an owner's temporary destination.
#[must_use]
pub fn full_name(own: &[u8], secret: &str) -> Vec<u8> {
    let (prefix, rest) = own.split_at(TEMPORARY_QUEUE.len());
    [prefix, secret.as_bytes(), b"/", rest].concat()
}

/// The secret in the full name of a temporary destination; `None` for a name as its owner uses it.
#[must_use]
pub fn secret_of(name: &[u8]) -> Option<&[u8]> {
    let rest = name.strip_prefix(TEMPORARY_QUEUE).or_else(|| name.strip_prefix(TEMPORARY_TOPIC))?;
    let (secret, rest) = rest.split_at_checked(SECRET_LEN)?;
    (rest.first() == Some(&b'/') && secret.iter().all(u8::is_ascii_hexdigit)).then_some(secret)
}

/// A temporary destination as its owner knows it; another name as it is.
#[must_use]
pub fn shown(destination: &[u8]) -> SmallVec<[u8; 128]> {
    let mut own = SmallVec::from_slice(destination);
    if secret_of(destination).is_some() {
        // Both prefixes are equally long.
        own.drain(TEMPORARY_QUEUE.len()..=TEMPORARY_QUEUE.len() + SECRET_LEN);
    }
    own
}

/// The home that a name itself names: that of a temporary queue.
#[must_use]
pub fn home_in(name: &[u8], kind: Kind, shards: usize) -> Option<ShardId> {
    if kind != Kind::TemporaryQueue {
        return None;
    }
    let digits = std::str::from_utf8(&secret_of(name)?[..2]).ok()?;
    u8::from_str_radix(digits, 16).ok().map(|shard| ShardId((usize::from(shard) % shards) as u8))
}

/// Refuses a SEND to a wildcard: `*` anywhere, or `>`, `**`, `#` as the last segment.
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

/// How the end of a pattern matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tail {
    /// The name ends here too.
    End,
    /// One or more further segments, the first behind this separator (0: any, or none).
    OneOrMore(u8),
    /// No, one or more further segments.
    NoneOrMore(u8),
    /// Whatever begins with the last segment's text, however many segments follow.
    PrefixDeep,
    /// A last segment that begins with the text.
    PrefixSegment,
}

/// A wildcard pattern, taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern<'a> {
    /// Segments to be matched one by one; one whose text is `*` matches any text behind the same separator.
    pub segments: Vec<&'a [u8]>,
    /// For [`Tail::PrefixDeep`] and [`Tail::PrefixSegment`]: the text, separator included.
    pub prefix: &'a [u8],
    /// What follows the segments.
    pub tail: Tail,
}

impl<'a> Pattern<'a> {
    /// Takes a SUBSCRIBE's destination apart; `None` if it is a plain name.
    ///
    /// # Errors
    /// `E-DEST-INVALID` for a `*` inside a segment that is not the pattern's last character.
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
                "'{}': '*' stands for a whole segment, or ends the pattern; not so in '{}'",
                String::from_utf8_lossy(name),
                String::from_utf8_lossy(part)
            );
            return Err(ProtocolError::new(Code::DestinationInvalid, text));
        }
        Ok(Some(Pattern { segments, prefix, tail }))
    }

    /// Whether `name` matches, by walking both. The router's tree looks at all patterns at once and is tested against
    /// this.
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

/// Whether what is left of a name satisfies the end of a pattern.
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

/// The segments of a name, each with the separator in front of it; the first may have none.
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

/// Whether a segment stands for any text.
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

/// A segment's separator; 0 where it has none.
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
    // The upper half: tables use the lower bits.
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
    fn compat_takes_everything_before_the_star_as_prefix() {
        let parse = |pattern: &'static str| {
            Pattern::parse(pattern.as_bytes(), Wildcards::Ancestor, Compat::Stompica)
                .expect("legal")
                .expect("a pattern")
        };
        assert!(parse("/q/a*").matches(b"/q/abc/d") && !parse("/q/a*").matches(b"/q/b"));
        assert!(parse("*").matches(b"anything") && parse("/q/*/z").matches(b"/q/x"));
    }

    #[test]
    fn a_star_inside_a_segment_is_refused() {
        for pattern in ["/topic/a*b", "/topic/*a/c", "/topic/a*/c", "/topic/***", "/topic/a**"] {
            let error =
                Pattern::parse(pattern.as_bytes(), Wildcards::Ancestor, Compat::None).expect_err(pattern);
            assert_eq!(error.code, Code::DestinationInvalid);
        }
    }

    #[test]
    fn kinds_are_fixed_by_the_prefix() {
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
    fn a_send_goes_to_no_pattern() {
        for name in ["/topic/*", "/topic/a*b", "/topic/>", "a.#", "/topic/**", "*", ">"] {
            assert!(require_plain(name.as_bytes()).is_err(), "{name}");
        }
        for name in ["/topic/a", "/topic/#a", "/topic/>/a", "/topic/#/a", "a>b"] {
            assert!(require_plain(name.as_bytes()).is_ok(), "{name}");
        }
    }
}
