//! What may stand between a frame's blank line and its NUL, where the command has no body.

use super::head::Phase;
use crate::error::Code;
use crate::{Command, ProtocolError, Version};

/// What becomes of a frame's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BodyRule {
    /// It belongs to the frame.
    Kept,
    /// It is read and dropped, whatever it is. STOMP 1.0 does not forbid it, and who sends CONNECT may speak 1.0.
    Ignored,
    /// Line ends are dropped, as some clients write one more than is asked for. Anything else is an error.
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

/// Skips the line ends (LF or CRLF) that `bytes` has from `at` on, up to `end`. Stops at a CR that may become CRLF.
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
    ProtocolError::new(Code::Body, format!("{command} has no body, only SEND has one"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_ends_are_skipped_up_to_the_end_and_half_ones_wait() {
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
    fn only_later_versions_mind_a_body() {
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
