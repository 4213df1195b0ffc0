//! The head of a frame: its command line and header lines, up to the blank line.

use memchr::memchr;

use crate::error::Code;
use crate::header::CONTENT_LENGTH;
use crate::{Command, HeaderSpan, Limits, ProtocolError, Version, escape};

use super::line::Line;
use super::offender::masked_text;

/// Length of the longest command line, CRLF included.
const COMMAND_LINE_BYTES_MAX: usize = "UNSUBSCRIBE\r\n".len();

/// Phase of the connection, which determines line ends and escapes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    BeforeLogin,
    Session(Version),
}

impl Phase {
    /// The version whose escapes apply to a frame; CONNECT and STOMP have none in any version.
    pub(super) fn escapes_of(self, command: Command) -> Version {
        match self {
            Phase::Session(version) if command.is_escaped() => version,
            _ => Version::V1_0,
        }
    }

    /// Whether a CR before LF belongs to the line end: in 1.2, and in CONNECT and STOMP of any version.
    fn has_crlf(self, command: Command) -> bool {
        matches!(self, Phase::BeforeLogin | Phase::Session(Version::V1_2)) || !command.is_escaped()
    }
}

/// What is known of a frame's head. Offsets are from the frame's first byte.
#[derive(Debug)]
pub(super) struct Head {
    /// End of the lines that were checked; start of the body once the head is complete.
    pub done: usize,
    /// End of the bytes that were searched for the line end (later the NUL); they are not searched again.
    pub searched: usize,
    /// The first content-length, whether or not the command may have a body.
    pub content_length: Option<usize>,
    count: u32,
    pub command: Option<Command>,
    pub is_complete: bool,
    /// See [`crate::Frame::plain`].
    pub plain: bool,
}

impl Default for Head {
    fn default() -> Self {
        Head {
            done: 0,
            searched: 0,
            content_length: None,
            count: 0,
            command: None,
            is_complete: false,
            plain: true,
        }
    }
}

impl Head {
    /// Whether earlier calls have seen bytes of this frame.
    pub(super) fn is_started(&self) -> bool {
        self.searched > 0 || self.command.is_some()
    }

    /// Checks the complete lines and appends their spans; returns `true` once the blank line is found.
    pub(super) fn scan(
        &mut self,
        bytes: &[u8],
        spans: &mut Vec<HeaderSpan>,
        limits: &Limits,
        phase: Phase,
    ) -> Result<bool, ProtocolError> {
        let command = match self.command {
            Some(command) => command,
            None => match self.command_line(bytes, phase)? {
                Some(command) => command,
                None => return Ok(false),
            },
        };
        let line_rules = LineRules {
            has_crlf: phase.has_crlf(command),
            allows_cr: phase != Phase::Session(Version::V1_2) || !command.is_escaped(),
            escapes: phase.escapes_of(command),
        };
        loop {
            if bytes.get(self.done) == Some(&b'\n') {
                return Ok(self.complete(self.done + 1));
            }
            let quick = match self.searched <= self.done {
                true => Line::quick(bytes, self.done, line_rules.has_crlf),
                false => None,
            };
            let line = match quick {
                Some(line) => line,
                None => match self.line_feed(bytes, limits, line_rules)? {
                    Some(line_feed) => Line::slow(bytes, self.done, line_feed, line_rules.has_crlf),
                    None => return Ok(false),
                },
            };
            if line.end == self.done {
                return Ok(self.complete(line.next));
            }
            spans.push(self.header_line(bytes, line, limits, line_rules)?);
            self.done = line.next;
        }
    }

    fn complete(&mut self, body_start: usize) -> bool {
        self.done = body_start;
        self.is_complete = true;
        true
    }

    /// Parses the command; `None` while its line is incomplete.
    #[inline]
    fn command_line(&mut self, bytes: &[u8], phase: Phase) -> Result<Option<Command>, ProtocolError> {
        // Fast path, without a search, for the two commands that are sent for every message.
        let (done, command) = if bytes.starts_with(b"SEND\n") {
            (b"SEND\n".len(), Command::Send)
        } else if bytes.starts_with(b"ACK\n") {
            (b"ACK\n".len(), Command::Ack)
        } else {
            return self.other_command_line(bytes, phase);
        };
        self.done = done;
        self.command = Some(command);
        Ok(Some(command))
    }

    #[inline(never)]
    fn other_command_line(&mut self, bytes: &[u8], phase: Phase) -> Result<Option<Command>, ProtocolError> {
        let visible = bytes.get(..COMMAND_LINE_BYTES_MAX).unwrap_or(bytes);
        let Some(line_feed) = visible.iter().position(|&byte| byte == b'\n') else {
            self.searched = visible.len();
            return match visible.len() == COMMAND_LINE_BYTES_MAX || memchr(0, visible).is_some() {
                true => Err(unknown_command(visible)),
                false => Ok(None),
            };
        };
        let line = visible.get(..line_feed).unwrap_or_default();
        let command = match line.strip_suffix(b"\r") {
            None => Command::from_client(line),
            Some(line) => Command::from_client(line).filter(|&command| phase.has_crlf(command)),
        };
        let Some(command) = command else { return Err(unknown_command(line)) };
        self.done = line_feed + 1;
        self.command = Some(command);
        Ok(Some(command))
    }

    /// Offset of the LF that ends the line at `done`; `None` while it has not arrived.
    #[cold]
    fn line_feed(
        &mut self,
        bytes: &[u8],
        limits: &Limits,
        rules: LineRules,
    ) -> Result<Option<usize>, ProtocolError> {
        let line_max = limits.header_line_bytes_max;
        let visible_end = self.done.saturating_add(line_max).saturating_add(2).min(bytes.len());
        let from = self.searched.max(self.done);
        let unsearched = bytes.get(from..visible_end).unwrap_or_default();
        if let Some(at) = memchr(b'\n', unsearched) {
            return Ok(Some(from + at));
        }
        let line = bytes.get(self.done..visible_end).unwrap_or_default();
        let may_be_line = if rules.has_crlf { line.strip_suffix(b"\r").unwrap_or(line) } else { line };
        // A NUL is an error at once: after a frame without its blank line no line end would follow.
        if memchr(0, unsearched).is_some() || may_be_line.len() > line_max {
            return Err(self.bad_line(line, line_max));
        }
        self.searched = visible_end;
        Ok(None)
    }

    /// Checks the header line that starts at `done`.
    #[inline]
    fn header_line(
        &mut self,
        bytes: &[u8],
        line: Line,
        limits: &Limits,
        rules: LineRules,
    ) -> Result<HeaderSpan, ProtocolError> {
        let start = self.done;
        self.count = self.count.saturating_add(1);
        let within_limits = line.end - start <= limits.header_line_bytes_max
            && self.count as usize <= limits.headers_max
            && line.end <= u32::MAX as usize;
        let Some(colon) = line.colon.filter(|&colon| colon > start && within_limits) else {
            return Err(self.refuse_line(bytes.get(start..line.end).unwrap_or_default(), limits));
        };
        let span = HeaderSpan { start: start as u32, colon: colon as u32, end: line.end as u32 };
        if line.is_unusual {
            let text = bytes.get(start..line.end).unwrap_or_default();
            self.unusual_line(text, span.name(bytes), span.value(bytes), rules)?;
        }
        // An empty value is recognised by the line end after the colon.
        if line.has_more_colons || matches!(bytes.get(colon + 1), None | Some(b' ' | b'\n' | b'\r')) {
            self.plain = false;
        }
        let may_be_length = colon - start == CONTENT_LENGTH.len() && self.content_length.is_none();
        if may_be_length && span.name(bytes) == CONTENT_LENGTH {
            self.content_length = Some(parse_length(span.value(bytes))?);
        }
        Ok(span)
    }

    /// Checks a line with control characters, a backslash or octets beyond ASCII.
    #[cold]
    fn unusual_line(
        &mut self,
        line: &[u8],
        name: &[u8],
        value: &[u8],
        rules: LineRules,
    ) -> Result<(), ProtocolError> {
        let number = self.count;
        if memchr(0, line).is_some() {
            return Err(nul_in_head(number));
        }
        if memchr(b'\r', line).is_some() {
            self.plain = false;
            if !rules.allows_cr {
                return Err(ProtocolError::new(
                    Code::Header,
                    format!("header line {number} has a CR that is not part of its line end"),
                ));
            }
        }
        if simdutf8::basic::from_utf8(line).is_err() {
            return Err(ProtocolError::new(Code::Utf8, format!("header line {number} is not valid UTF-8")));
        }
        if memchr(b'\\', line).is_some() {
            self.plain = false;
            if !escape::check(name, rules.escapes) || !escape::check(value, rules.escapes) {
                let known = if rules.escapes == Version::V1_1 { r"\n \c \\" } else { r"\r \n \c \\" };
                let version = rules.escapes.as_str();
                return Err(ProtocolError::new(
                    Code::Escape,
                    format!(
                        "header line {number} has an escape that STOMP {version} does not define (it has {known})"
                    ),
                ));
            }
        }
        Ok(())
    }

    /// The reason why a complete line is refused before its content is examined.
    #[cold]
    fn refuse_line(&self, line: &[u8], limits: &Limits) -> ProtocolError {
        let (number, line_max, count_max) = (self.count, limits.header_line_bytes_max, limits.headers_max);
        if line.len() > line_max || memchr(0, line).is_some() {
            return self.bad_line(line, line_max);
        }
        if number as usize > count_max {
            return ProtocolError::new(
                Code::HeaderCount,
                format!("more header lines than the {count_max} of max_headers"),
            );
        }
        let detail = match line {
            [b':', ..] => format!("header line {number} has an empty name"),
            b"\r" => format!("line {number} is a lone CR: lines end in LF alone before STOMP 1.2"),
            _ if u32::try_from(self.done + line.len()).is_err() => "the header lines exceed 4 GiB".to_owned(),
            _ => format!("header line {number} has no colon"),
        };
        ProtocolError::new(Code::Header, detail)
    }

    /// The error for a line that is too long or has a NUL, whichever comes first.
    #[cold]
    fn bad_line(&self, line: &[u8], line_max: usize) -> ProtocolError {
        let within = line.get(..line_max.saturating_add(1)).unwrap_or(line);
        if memchr(0, within).is_some() {
            return nul_in_head(self.count);
        }
        ProtocolError::new(
            Code::HeaderSize,
            format!("a header line is longer than the {line_max} bytes of max_header_size"),
        )
    }
}

#[cold]
fn unknown_command(line: &[u8]) -> ProtocolError {
    ProtocolError::new(Code::Command, format!("\"{}\" is not a client command", masked_text(line)))
}

#[cold]
fn nul_in_head(number: u32) -> ProtocolError {
    ProtocolError::new(
        Code::Header,
        format!("NUL in the header lines (line {number}): the blank line is missing"),
    )
}

/// Parses a content-length: digits, optionally surrounded by blanks, which some clients write. A number beyond `usize`
/// becomes its maximum, which the size limit refuses.
fn parse_length(value: &[u8]) -> Result<usize, ProtocolError> {
    let mut digits = value;
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = digits {
        digits = rest;
    }
    let number = digits.iter().try_fold(0_usize, |sum, &digit| {
        digit.is_ascii_digit().then(|| sum.saturating_mul(10).saturating_add(usize::from(digit - b'0')))
    });
    number.filter(|_| !digits.is_empty()).ok_or_else(|| bad_length(value))
}

#[cold]
fn bad_length(value: &[u8]) -> ProtocolError {
    ProtocolError::new(
        Code::ContentLength,
        format!("content-length \"{}\" is not a number", masked_text(value)),
    )
}

/// What a header line may contain, determined by phase and command.
#[derive(Clone, Copy)]
struct LineRules {
    has_crlf: bool,
    /// A CR that is not part of the line end is data.
    allows_cr: bool,
    escapes: Version,
}
