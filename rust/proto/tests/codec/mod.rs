//! A caller that uses the decoder as the broker does, and a simple encoder to check it against.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use stompica_proto::error::Code;
use stompica_proto::{Command, Decoded, Decoder, HeaderSpan, Limits, Version};

/// An owned copy of everything in a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owned {
    pub command: Command,
    /// Unescaped names and values.
    pub headers: Vec<(Vec<u8>, Vec<u8>)>,
    pub body: Vec<u8>,
    pub plain: bool,
}

/// The result of decoding a stream of bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    pub frames: Vec<Owned>,
    pub error: Option<Code>,
    /// Bytes of an incomplete frame; 0 after an error.
    pub left: usize,
}

/// One connection: the decoder and the bytes that it needs again.
pub struct Reader {
    decoder: Decoder,
    pub kept: Vec<u8>,
    limits: Limits,
    pub outcome: Outcome,
}

impl Reader {
    /// A connection with a session of `version`; `None`: before login.
    pub fn new(version: Option<Version>, limits: Limits) -> Self {
        let mut decoder = Decoder::new();
        if let Some(version) = version {
            decoder.connected(version);
        }
        Reader { decoder, kept: Vec::new(), limits, outcome: Outcome::default() }
    }

    /// Feeds some bytes, and checks the decoder's guarantees for each result.
    pub fn feed(&mut self, bytes: &[u8]) {
        if self.outcome.error.is_some() {
            return;
        }
        self.kept.extend_from_slice(bytes);
        // As left by another connection: the decoder must not rely on earlier content.
        let mut spans = vec![HeaderSpan { start: 7, colon: 9, end: 70_000 }];
        loop {
            match self.decoder.decode(&self.kept, &mut spans, &self.limits) {
                Ok(Decoded::Frame { frame, consumed }) => {
                    assert!(consumed > 0 && consumed <= self.kept.len());
                    self.outcome.frames.push(Owned {
                        command: frame.command,
                        headers: frame
                            .raw_headers()
                            .map(|(name, value)| {
                                (frame.name(name).into_owned(), frame.value(value).into_owned())
                            })
                            .collect(),
                        body: frame.body.to_vec(),
                        plain: frame.plain,
                    });
                    self.kept.drain(..consumed);
                }
                Ok(Decoded::Incomplete { consumed, frame_len }) => {
                    assert!(self.kept[..consumed].iter().all(|byte| b"\r\n".contains(byte)));
                    self.kept.drain(..consumed);
                    assert!(frame_len.is_none_or(|len| len > self.kept.len()));
                    self.outcome.left = self.kept.len();
                    return;
                }
                Err(error) => {
                    let head = stompica_proto::decode::offending_head(&self.kept);
                    assert!(spans.iter().all(|span| span.end as usize <= head.len()));
                    self.outcome.error = Some(error.code);
                    self.outcome.left = 0;
                    return;
                }
            }
        }
    }
}

/// Decodes a stream that arrives in these pieces.
pub fn decode_pieces<'a>(
    version: Option<Version>,
    limits: Limits,
    pieces: impl IntoIterator<Item = &'a [u8]>,
) -> Outcome {
    let mut reader = Reader::new(version, limits);
    for piece in pieces {
        reader.feed(piece);
    }
    reader.outcome
}

/// Decodes a stream that arrives at once, within the default limits.
pub fn decode(version: Option<Version>, bytes: &[u8]) -> Outcome {
    decode_pieces(version, Limits::default(), [bytes])
}

/// The only frame of a stream.
pub fn one(version: Option<Version>, bytes: &[u8]) -> Owned {
    let outcome = decode(version, bytes);
    assert_eq!((outcome.frames.len(), outcome.error, outcome.left), (1, None, 0), "{outcome:?}");
    outcome.frames.into_iter().next().expect("one frame was counted")
}

/// The error that ends a stream.
pub fn error(version: Option<Version>, bytes: &[u8]) -> Option<Code> {
    decode(version, bytes).error
}

/// Escapes in the slow and obvious way.
pub fn escaped(text: &str, version: Version) -> String {
    match version {
        Version::V1_0 => text.to_owned(),
        Version::V1_1 => text.replace('\\', r"\\").replace('\n', r"\n").replace(':', r"\c"),
        Version::V1_2 => {
            text.replace('\\', r"\\").replace('\r', r"\r").replace('\n', r"\n").replace(':', r"\c")
        }
    }
}

/// Encodes a SEND. Its lines use `eols` in turn.
pub fn send(headers: &[(String, String)], body: &[u8], version: Version, eols: &[&str]) -> Vec<u8> {
    let mut eols = eols.iter().copied().cycle();
    let mut eol = || eols.next().unwrap_or("\n");
    let mut wire = format!("SEND{}", eol());
    for (name, value) in headers {
        wire += &format!("{}:{}{}", escaped(name, version), escaped(value, version), eol());
    }
    if body.contains(&0) {
        wire += &format!("content-length:{}{}", body.len(), eol());
    }
    wire += eol();
    let mut wire = wire.into_bytes();
    wire.extend_from_slice(body);
    wire.push(0);
    wire
}
