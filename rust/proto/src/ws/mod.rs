//! WebSocket for a server (RFC 6455), and the part of HTTP that its handshake needs.
//!
//! - [`http`]: parses request heads, builds responses;
//! - [`handshake`]: answers a request with the 101 response or a refusal;
//! - [`decode`]: decodes client frames to payload bytes, unmasked in place;
//! - [`encode`]: encodes frame headers and control frames of the server.
//!
//! The types of frame headers, opcodes and close codes, and the accept key come from tungstenite.

pub mod decode;
pub mod encode;
pub mod handshake;
pub mod http;
mod mask;
mod utf8;

pub use decode::{WsDecoder, WsError, WsEvent};
pub use encode::Opcode;
pub use handshake::{Refusal, Upgrade, upgrade};
pub use http::{Request, Status, parse_request, response};
