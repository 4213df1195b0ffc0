//! The ERROR that a client receives, what it says of the client's requests, and which of them are not answered.

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
                let at = self.expected.iter().position(|(number, _)| number.to_string() == id);
                // RECEIPTs are cut off with the rest of a slow consumer's outbox.
                if at.is_some_and(|at| at > 0) && code != "E-SLOW-CONSUMER" {
                    return Err(format!(
                        "ERROR {code} with receipt-id {id} before {:?}",
                        self.first_missing()
                    ));
                }
                if at == Some(0)
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
