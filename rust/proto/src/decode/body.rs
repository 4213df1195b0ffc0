//! What a frame may have between its blank line and its NUL if the command has no body.

use super::head::Phase;
use crate::error::Code;
use crate::{Command, ProtocolError, Version};

/// How a frame's body is handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BodyRule {
    /// It is part of the frame.
    Kept,
    /// It is read and dropped. STOMP 1.0 does not forbid it, and a client that sends CONNECT may speak 1.0.
    Ignored,
    /// Line ends are dropped, since some clients write one too many. Anything else is an error.
    LineEnds,
}

impl BodyRule {
    pub(super) fn of(command: Command, phase: Phase) -> Self {
        match phase {
            _ if command.has_body() => BodyRule::Kept,
            Phase::BeforeLogin | Phase::Session(Version::V1_0) => BodyRule::Ignored,
            Phase::Session(_) if matches!(command, Command::Connect | Command::Stomp) => BodyRule::Ignored,
            Phase::Session(_) => BodyRule::LineEnds,
        }
    }
}

/// Skips line ends (LF or CRLF) in `bytes` from `at` up to `end`; returns the offset after them. Stops at a final CR,
/// which may become CRLF.
pub(super) fn skip_line_ends(bytes: &[u8], mut at: usize, end: usize) -> usize {
    let bytes = bytes.get(..end).unwrap_or(bytes);
    loop {
        match bytes.get(at) {
            Some(b'\n') => at += 1,
            Some(b'\r') if bytes.get(at + 1) == Some(&b'\n') => at += 2,
            _ => return at,
        }
    }
}

#[cold]
pub(super) fn unexpected_body(command: Option<Command>) -> ProtocolError {
    let command = command.map_or("the frame", Command::as_str);
    ProtocolError::new(Code::Body, format!("{command} must not have a body, only SEND may"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn complete_line_ends_are_skipped_up_to_the_end() {
        for (bytes, end, stop) in [
            (&b"\n\r\n\0"[..], usize::MAX, 3),
            (b"\n\r", usize::MAX, 1),
            (b"\n\rx", usize::MAX, 1),
            (b"\n\n\n", 2, 2),
            (b"\r\n", 1, 0),
            (b"", 5, 0),
        ] {
            assert_eq!(skip_line_ends(bytes, 0, end), stop, "{bytes:?}");
        }
    }

    #[test]
    fn only_later_versions_refuse_a_body() {
        use BodyRule::{Ignored, Kept, LineEnds};
        for (command, phase, rule) in [
            (Command::Send, Phase::Session(Version::V1_2), Kept),
            (Command::Diag, Phase::BeforeLogin, Kept),
            (Command::Connect, Phase::BeforeLogin, Ignored),
            (Command::Stomp, Phase::Session(Version::V1_2), Ignored),
            (Command::Begin, Phase::Session(Version::V1_0), Ignored),
            (Command::Begin, Phase::Session(Version::V1_1), LineEnds),
            (Command::Subscribe, Phase::Session(Version::V1_2), LineEnds),
        ] {
            assert_eq!(BodyRule::of(command, phase), rule, "{command:?} {phase:?}");
        }
    }
}
