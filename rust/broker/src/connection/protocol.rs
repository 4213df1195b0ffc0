//! The protocol of a connection, and its state.

use stompica_proto::Decoder;
use stompica_proto::session::Session;
use stompica_proto::ws::WsDecoder;

use super::arrival::Arrival;
use super::pulse::Pulse;
use crate::router::group::Framing;

/// The protocol of a connection.
#[derive(Debug)]
pub enum Transport {
    /// Not known yet: too few bytes.
    Unknown,
    /// STOMP.
    Stomp,
    /// An HTTP request that is not complete.
    Http,
    /// STOMP in WebSocket messages.
    WebSocket(Box<WebSocket>),
}

/// State of a WebSocket connection.
#[derive(Debug)]
pub struct WebSocket {
    /// Splits the input into frames.
    pub decoder: WsDecoder,
    /// Bytes that were received and not decoded, because the turn ended or a SEND is parked.
    pub raw: Vec<u8>,
    /// The message, or the frame of one, that has arrived in part.
    pub arrival: Arrival,
    /// A Close frame was sent: nothing may follow it.
    pub close_sent: bool,
    /// The code of the Close frame that was received: everything after it is ignored.
    pub peer_code: Option<u16>,
    /// Its liveness.
    pub pulse: Pulse,
}

impl WebSocket {
    /// The state right after the upgrade.
    #[must_use]
    pub fn new(now_ms: u64) -> Self {
        let pulse = Pulse::new(now_ms);
        let arrival = Arrival::default();
        let (decoder, raw) = (WsDecoder::default(), Vec::new());
        WebSocket { decoder, raw, arrival, close_sent: false, peer_code: None, pulse }
    }
}

/// Splits the input of a connection into frames, and checks them.
#[derive(Debug)]
pub struct Protocol {
    /// The transport.
    pub transport: Transport,
    /// Splits the input into STOMP frames.
    pub decoder: Decoder,
    /// The STOMP state.
    pub session: Session,
}

impl Default for Protocol {
    fn default() -> Self {
        Protocol { transport: Transport::Unknown, decoder: Decoder::new(), session: Session::new() }
    }
}

impl Protocol {
    /// The framing of frames to this connection.
    #[must_use]
    pub fn framing(&self) -> Framing {
        match self.transport {
            Transport::WebSocket(_) => Framing::WebSocket,
            _ => Framing::Stomp,
        }
    }

    /// The WebSocket state, if it is one.
    pub fn websocket(&mut self) -> Option<&mut WebSocket> {
        match &mut self.transport {
            Transport::WebSocket(state) => Some(state),
            _ => None,
        }
    }

    /// The WebSocket message that has arrived in part, if it is a WebSocket.
    #[must_use]
    pub fn message_arrival(&self) -> Option<&Arrival> {
        match &self.transport {
            Transport::WebSocket(state) => Some(&state.arrival),
            _ => None,
        }
    }

    /// The time at which a silent client is pinged or disconnected; its last byte came at `read_ms`.
    #[must_use]
    pub fn silence_deadline(&self, read_ms: u64) -> u64 {
        let beats = self.session.heartbeat();
        match &self.transport {
            Transport::WebSocket(state) => state.pulse.deadline(beats, read_ms),
            _ => beats.receive_deadline(read_ms).unwrap_or(crate::timer::NEVER),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection::conn::Conn;
    use crate::timer::NEVER;

    #[test]
    fn a_silent_stomp_client_is_disconnected_and_a_websocket_is_pinged_even_without_heart_beats() {
        let mut protocol = Conn::connected(1, "0,0").protocol;
        assert_eq!(protocol.silence_deadline(7), NEVER);
        assert!(Conn::connected(1, "10000,0").protocol.silence_deadline(7) < 60_000);
        protocol.transport = Transport::WebSocket(Box::new(WebSocket::new(0)));
        assert!((1..NEVER).contains(&protocol.silence_deadline(7)));
    }

    #[test]
    fn only_a_websocket_wraps_frames_and_has_partial_messages() {
        let mut protocol = Protocol::default();
        assert!(protocol.websocket().is_none() && protocol.message_arrival().is_none());
        protocol.transport = Transport::WebSocket(Box::new(WebSocket::new(0)));
        assert_eq!(protocol.framing(), Framing::WebSocket);
        assert!(protocol.websocket().is_some() && protocol.message_arrival().is_some_and(|it| !it.is_on()));
    }
}
