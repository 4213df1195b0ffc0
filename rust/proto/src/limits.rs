//! All limits on a peer's input, with units and defaults (docs/behaviour.md, section 1).

/// Limits of one connection. A peer that exceeds one gets an ERROR frame, and the connection is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a frame's body; setting `max_message_size`.
    pub message_bytes_max: usize,
    /// Bytes of one header line without its line end; setting `max_header_size`.
    pub header_line_bytes_max: usize,
    /// Header lines of one frame; setting `max_headers`.
    pub headers_max: usize,
    /// Bytes of a whole frame before the session is connected.
    pub before_login_bytes_max: usize,
    /// Payload bytes of one WebSocket data frame and of one assembled message.
    pub ws_message_bytes_max: usize,
    /// Bytes of an HTTP request head.
    pub http_head_bytes_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        let message_bytes_max = 16 << 20;
        Limits {
            message_bytes_max,
            header_line_bytes_max: 10 << 10,
            headers_max: 100,
            before_login_bytes_max: 64 << 10,
            ws_message_bytes_max: message_bytes_max + (1 << 20) + (64 << 10),
            http_head_bytes_max: 16 << 10,
        }
    }
}
