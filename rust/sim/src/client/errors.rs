//! The ERROR that a client receives, what it says of the client's requests, and which of them are not answered.

use std::collections::VecDeque;

use super::{Client, Phase};
use crate::events::{Event, Request};
use crate::frames::Frame;

/// Codes of ERRORs that a client does not get if it keeps the rules.
const NEVER: [&str; 12] = [
    "E-TX-UNKNOWN",
    "E-SUB-UNKNOWN",
    "E-SUB-DUPLICATE",
    "E-COMMAND",
    "E-DEST-INVALID",
    "E-DIAG-QUERY",
    "E-FORBIDDEN",
    "E-READ-ONLY",
    "E-VALUE",
    "E-DEST-WILDCARD",
    "E-TEMP-UNKNOWN",
    "E-TEMP-OWNER",
];

/// How many answers to frames before the one with this RECEIPT are expected. The answer to a DIAG comes before its
/// RECEIPT, and does not come if it is refused.
fn answers_before(expected: &VecDeque<(u64, Request)>, own: usize) -> usize {
    let has_answer = expected.get(own).is_some_and(|(_, request)| matches!(request, Request::AfterAnswer));
    own.saturating_sub(usize::from(has_answer))
}

impl Client {
    /// The first request whose RECEIPT has not come.
    #[must_use]
    pub fn first_missing(&self) -> Option<&Request> {
        self.expected.front().map(|(_, request)| request)
    }

    /// The requests whose RECEIPT has not come.
    pub fn missing(&self) -> impl Iterator<Item = &Request> {
        self.expected.iter().map(|(_, request)| request)
    }

    /// The code of the ERROR that has come.
    #[must_use]
    pub fn error(&self) -> Option<&str> {
        self.error.as_deref()
    }

    /// Whether the broker has closed the connection in order.
    #[must_use]
    pub fn is_closed_in_order(&self) -> bool {
        self.phase == Phase::Over
            && self.error.is_none()
            && !self.wire.is_broken()
            && !self.wire.was_cut_off()
    }

    /// Reads an ERROR. The refused frame's RECEIPT follows those of all frames before it, and so does its ERROR.
    pub(super) fn read_error(&mut self, frame: &Frame, events: &mut Vec<Event>) -> Result<(), String> {
        let code = frame.expect("code")?.to_owned();
        let is_due = code == "E-SUB-UNKNOWN" && self.has_ended_durables;
        if NEVER.contains(&&*code) && !is_due {
            return Err(format!("ERROR {code} to a client that keeps the rules: {frame:?}"));
        }
        let text = String::from_utf8_lossy(&frame.body).into_owned();
        self.complaint = format!("{} {text}", frame.header("message").unwrap_or_default());
        match frame.header("receipt-id") {
            Some(id) => {
                let own = self.expected.iter().position(|(number, _)| number.to_string() == id);
                let before = own.map_or(0, |own| answers_before(&self.expected, own));
                // RECEIPTs are cut off with the rest of a slow consumer's outbox.
                if before > 0 && code != "E-SLOW-CONSUMER" {
                    return Err(format!(
                        "ERROR {code} with receipt-id {id} before {:?}: {}",
                        self.first_missing(),
                        self.complaint
                    ));
                }
                if before == 0
                    && own.is_some()
                    && let Some((_, request)) = self.expected.pop_front()
                {
                    events.push(Event::Refused(self.id, request));
                }
            }
            None if code == "E-QUEUE-FULL" && self.unreceipted.is_empty() => {
                return Err(format!(
                    "ERROR {code} without receipt-id, although each frame asks for a RECEIPT"
                ));
            }
            None => {}
        }
        self.error = Some(code);
        Ok(())
    }

    /// The code and the text of the ERROR that it has got.
    #[must_use]
    pub fn complaint(&self) -> Option<(&str, &str)> {
        Some((self.error.as_deref()?, &self.complaint))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_query_owes_no_answer_and_earlier_frames_do() {
        let query = |number| [(number, Request::Diagnose(number, "ack")), (number + 1, Request::AfterAnswer)];
        let expected: VecDeque<_> = [query(1), query(3)].concat().into();
        let before = [0, 1, 2, 3].map(|own| answers_before(&expected, own));
        assert_eq!(before, [0, 0, 2, 2]);
        let behind = VecDeque::from([(1, Request::Diagnose(1, "ack")), (2, Request::Commit(1))]);
        assert_eq!(answers_before(&behind, 1), 1, "the ERROR for another frame overtakes the answer");
    }
}
