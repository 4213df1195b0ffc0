//! A WebSocket echo server that uses the project's codec, for conformance tools:
//! `cargo run --release --example ws_echo -- 9001`.
//!
//! Echoes every message as one frame of the same type, answers pings, and closes as RFC 6455 requires. It uses a thread
//! for each connection and blocking sockets: it is a tool, not a model for the broker. Listens on 127.0.0.1.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::process::ExitCode;

use stompica_proto::Limits;
use stompica_proto::ws::encode::{self, NO_CLOSE_CODE, Opcode};
use stompica_proto::ws::{WsDecoder, WsEvent, http, upgrade};

/// Maximum length of a message.
const MESSAGE_BYTES_MAX: usize = 16 << 20;

fn main() -> ExitCode {
    let Some(port) = std::env::args().nth(1).and_then(|argument| argument.parse::<u16>().ok()) else {
        eprintln!("usage: ws_echo PORT");
        return ExitCode::from(2);
    };
    match serve(port) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("ws_echo: {error}");
            ExitCode::FAILURE
        }
    }
}

fn serve(port: u16) -> io::Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
    eprintln!("listening on {}", listener.local_addr()?);
    for stream in listener.incoming() {
        let stream = stream?;
        std::thread::spawn(move || {
            if let Err(error) = connection(stream) {
                eprintln!("connection: {error}");
            }
        });
    }
    Ok(())
}

/// Serves one client until the client or an error ends the connection.
fn connection(mut stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let Some(mut input) = handshake(&mut stream)? else { return finish(stream) };
    let mut echo = Echo::default();
    let mut len = input.len();
    input.resize(len.max(64 << 10), 0);
    loop {
        let open = echo.take(&mut input[..len]);
        stream.write_all(&echo.out)?;
        echo.out.clear();
        if !open {
            return finish(stream);
        }
        len = stream.read(&mut input)?;
        if len == 0 {
            return Ok(());
        }
    }
}

/// Reads the request and answers it. Returns the bytes after it, or `None` if the handshake failed.
fn handshake(stream: &mut TcpStream) -> io::Result<Option<Vec<u8>>> {
    let mut input = Vec::new();
    let mut piece = [0; 4096];
    while matches!(http::parse_request(&input, &Limits::default()), Ok(None)) {
        let len = stream.read(&mut piece)?;
        if len == 0 {
            return Ok(None);
        }
        input.extend_from_slice(&piece[..len]);
    }
    let (response, rest) = match http::parse_request(&input, &Limits::default()) {
        Ok(None) => return Ok(None),
        Err(status) => (status.response(), None),
        Ok(Some((request, len))) => match upgrade(&request, None) {
            Ok(upgrade) => (upgrade.response, Some(input[len..].to_vec())),
            Err(refusal) => (refusal.response(), None),
        },
    };
    stream.write_all(&response)?;
    Ok(rest)
}

/// Shuts down the write side, then waits for the client's end: closing with unread bytes would reset the connection,
/// and the last bytes written might not reach the client.
fn finish(mut stream: TcpStream) -> io::Result<()> {
    stream.shutdown(Shutdown::Write)?;
    io::copy(&mut stream, &mut io::sink()).map(drop)
}

/// The state of one connection.
#[derive(Default)]
struct Echo {
    decoder: WsDecoder,
    /// The message so far.
    message: Vec<u8>,
    /// Bytes to write.
    out: Vec<u8>,
}

impl Echo {
    /// Answers the input. Returns `false` if the connection must be closed once the answer is written.
    fn take(&mut self, mut input: &mut [u8]) -> bool {
        loop {
            let (event, consumed) = match self.decoder.decode(input, MESSAGE_BYTES_MAX) {
                Ok(decoded) => decoded,
                Err(error) => {
                    encode::close(&mut self.out, error.close_code, &error.detail);
                    return false;
                }
            };
            match event {
                WsEvent::Data { payload, text, message_end } => {
                    self.message.extend_from_slice(payload);
                    if message_end {
                        let opcode = if text { Opcode::Text } else { Opcode::Binary };
                        encode::header(&mut self.out, opcode, self.message.len());
                        self.out.append(&mut self.message);
                    }
                }
                WsEvent::Ping(payload) => encode::pong(&mut self.out, &payload),
                WsEvent::Pong(_) => {}
                WsEvent::Close { code } => {
                    encode::close(&mut self.out, code.unwrap_or(NO_CLOSE_CODE), "");
                    return false;
                }
                WsEvent::NeedMore => return true,
            }
            input = &mut input[consumed..];
        }
    }
}
