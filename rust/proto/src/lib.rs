//! STOMP and WebSocket, without I/O.
//!
//! Its input is bytes and times, its output frames and answers; it uses no socket, clock or thread. The crate
//! implements what the specifications demand of a server:
//!
//! - [`decode`] and [`encode`]: STOMP 1.0, 1.1 and 1.2 frames in any fragmentation, by reference to the input;
//! - [`session`]: the state of one STOMP connection, from CONNECT to DISCONNECT;
//! - [`transport`]: detection of STOMP, HTTP and TLS by the first bytes;
//! - [`ws`]: RFC 6455 handshake and frames.
#![forbid(unsafe_code)]

pub mod command;
pub mod decode;
pub mod encode;
pub mod error;
pub mod escape;
pub mod frame;
pub mod header;
pub mod heartbeat;
pub mod limits;
pub mod session;
pub mod transport;
pub mod version;
pub mod ws;

pub use command::Command;
pub use decode::{Decoded, Decoder};
pub use error::ProtocolError;
pub use frame::{Frame, HeaderSpan};
pub use limits::Limits;
pub use version::Version;
