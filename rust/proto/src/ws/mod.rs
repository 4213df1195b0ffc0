//! WebSocket for a server (RFC 6455), and as much of HTTP as its handshake needs.
//!
//! - [`http`]: a request's head in, a response out;
//! - [`handshake`]: from a request to the 101 response or to a refusal;
//! - [`decode`]: client frames to payload bytes, unmasked in place;
//! - [`encode`]: frame headers and control frames of the server.
//!
//! Frame headers, opcodes, close codes and the accept key are tungstenite's.

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
