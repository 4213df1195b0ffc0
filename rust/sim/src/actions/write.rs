//! Frames are written, and told to checkers as requests.

use super::{Actor, Headers};
use crate::events::{Event, Request};
use crate::frames::frame;

impl Actor<'_> {
    /// Writes a frame, with a RECEIPT as often as the options say.
    pub(super) fn write(&mut self, command: &str, headers: Headers, body: &[u8], request: Request) {
        let has_receipt = self.percent(self.options.receipts);
        self.write_with(command, headers, body, request, has_receipt);
    }

    pub(super) fn write_with(
        &mut self,
        command: &str,
        mut headers: Headers,
        body: &[u8],
        request: Request,
        has_receipt: bool,
    ) {
        let request = crate::work::told(self.client, request);
        if has_receipt {
            headers.push(("receipt", self.client.expect_receipt(request.clone())));
        } else {
            self.client.unreceipted.push(request.clone());
        }
        let headers: Vec<(&str, &str)> =
            headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
        self.client.send(&frame(self.client.version, command, &headers, body));
        self.events.push(Event::Requested(self.client.id, request));
    }
}
