//! STOMP frames that break a rule, and the codes of the ERROR that has to follow.

use rand::Rng as _;
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom as _;
use stompica_broker::config::Config;

use super::deeds::Ending;
use crate::frames::Version::{self, V10, V11, V12};

/// A frame for which the connection has to end.
#[derive(Debug)]
pub struct Wrong {
    /// What is wrong.
    pub what: String,
    /// The frame.
    pub bytes: Vec<u8>,
    /// The codes of which one has to come.
    pub endings: Vec<Ending>,
    /// Its `receipt`.
    pub receipt: Option<String>,
}

/// Frames of a connected client: the versions from and to which they are wrong, the code, and the frame. `$` stands for
/// a `receipt` header, which the ERROR has to name.
const TABLE: &[(Version, Version, &str, &str)] = &[
    (V10, V12, "E-COMMAND", "WHAT\n$\n\0"),
    (V10, V12, "E-COMMAND", "send\n$destination:/rogue\n\n\0"),
    (V10, V12, "E-COMMAND", "SEND \n$destination:/rogue\n\n\0"),
    (V10, V12, "E-COMMAND", "SE\0ND\n\n\0"),
    (V10, V12, "E-COMMAND", "MESSAGE\n$destination:/topic/0\n\n999999999;\0"),
    (V10, V12, "E-COMMAND", "RECEIPT\nreceipt-id:1\n\n\0"),
    (V10, V12, "E-COMMAND", "UNSUBSCRIBEUNSUBSCRIBEUNSUBSCRIBE"),
    (V10, V11, "E-COMMAND", "SEND\r\n$destination:/rogue\r\n\r\n\0"),
    (V10, V10, "E-COMMAND", "NACK\n$message-id:1\n\n\0"),
    (V10, V12, "E-HEADER", "SEND\n$destination:/topic/0\nnothing\n\n999999999;\0"),
    (V10, V12, "E-HEADER", "SEND\n$destination:/topic/0\n:empty\n\n999999999;\0"),
    (V10, V12, "E-HEADER", "SEND\n$destination:/topic/0\na:b\0\n\n\0"),
    (V10, V12, "E-HEADER", "BEGIN\n$transaction:t\n\0"),
    (V12, V12, "E-HEADER", "SEND\n$destination:/topic/0\na:b\rc\n\n999999999;\0"),
    (V11, V12, "E-ESCAPE", "SEND\n$destination:/topic/0\na:\\t\n\n999999999;\0"),
    (V11, V12, "E-ESCAPE", "SEND\n$destination:/topic/0\na\\:b\n\n999999999;\0"),
    (V11, V12, "E-ESCAPE", "SUBSCRIBE\n$id:a\\\ndestination:/topic/0\n\n\0"),
    (V11, V11, "E-ESCAPE", "SEND\n$destination:/topic/0\na:\\r\n\n999999999;\0"),
    (V10, V12, "E-CONTENT-LENGTH", "SEND\n$destination:/topic/0\ncontent-length:abc\n\n999999999;\0"),
    (V10, V12, "E-CONTENT-LENGTH", "SEND\n$destination:/topic/0\ncontent-length:-1\n\n999999999;\0"),
    (V10, V12, "E-CONTENT-LENGTH", "SEND\n$destination:/topic/0\ncontent-length:\n\n999999999;\0"),
    (V10, V12, "E-CONTENT-LENGTH", "SEND\n$destination:/topic/0\ncontent-length:5\n\n999999999;\0"),
    (V10, V12, "E-CONTENT-LENGTH", "SEND\n$destination:/topic/0\ncontent-length:9\n\n999999999;\0"),
    (V11, V12, "E-BODY", "BEGIN\n$transaction:t\n\nx\0"),
    (V11, V12, "E-BODY", "SUBSCRIBE\n$id:b\ndestination:/topic/0\n\n\n\nx\0"),
    (V11, V12, "E-BODY", "ACK\n$id:1\ncontent-length:2\n\nxx\0"),
    (V10, V12, "E-CONNECTED", "CONNECT\n$accept-version:1.2\nhost:h\n\n\0"),
    (V10, V12, "E-CONNECTED", "STOMP\n$accept-version:1.0\nhost:h\n\n\0"),
    (V10, V12, "E-DEST-MISSING", "SEND\n$\n999999999;\0"),
    (V11, V12, "E-DEST-MISSING", "SEND\n$destination:\n\n999999999;\0"),
    (V10, V12, "E-DEST-MISSING", "SUBSCRIBE\n$id:c\n\n\0"),
    (V10, V12, "E-DEST-WILDCARD", "SEND\n$destination:/topic/*\n\n999999999;\0"),
    (V10, V12, "E-DEST-WILDCARD", "SEND\n$destination:/queue/>\n\n999999999;\0"),
    (V10, V12, "E-DEST-INVALID", "SUBSCRIBE\n$id:d\ndestination:/rogue/a*b\n\n\0"),
    (V10, V12, "E-DEST-INVALID", "SEND\n$destination:/exchange/other/a\n\n\0"),
    (V11, V12, "E-ID-MISSING", "SUBSCRIBE\n$destination:/rogue\n\n\0"),
    (V11, V12, "E-ID-MISSING", "UNSUBSCRIBE\n$destination:/rogue\n\n\0"),
    (V10, V12, "E-ID-MISSING", "ACK\n$\n\0"),
    (V11, V11, "E-ID-MISSING", "ACK\n$message-id:1\n\n\0"),
    (V11, V12, "E-ID-MISSING", "NACK\n$id:\n\n\0"),
    (V10, V12, "E-SUB-UNKNOWN", "UNSUBSCRIBE\n$id:nobody\n\n\0"),
    (V10, V10, "E-SUB-UNKNOWN", "UNSUBSCRIBE\n$destination:/rogue/nobody\n\n\0"),
    (V10, V12, "E-ACK-UNKNOWN", "ACK\n$id:no.1\nmessage-id:no.1\nsubscription:1\n\n\0"),
    (V10, V12, "E-ACK-UNKNOWN", "ACK\n$id:1\nmessage-id:1\nsubscription:nobody\n\n\0"),
    (V11, V12, "E-ACK-UNKNOWN", "NACK\n$id:18446744073709551616\nmessage-id:x\nsubscription:1\n\n\0"),
    (V10, V12, "E-ACK-MODE", "SUBSCRIBE\n$id:e\ndestination:/rogue\nack:maybe\n\n\0"),
    (V10, V12, "E-TX-MISSING", "BEGIN\n$\n\0"),
    (V10, V12, "E-TX-MISSING", "COMMIT\n$transaction:\n\n\0"),
    (V10, V12, "E-TX-UNKNOWN", "COMMIT\n$transaction:nobody\n\n\0"),
    (V10, V12, "E-TX-UNKNOWN", "ABORT\n$transaction:nobody\n\n\0"),
    (V10, V12, "E-TX-UNKNOWN", "SEND\n$destination:/topic/0\ntransaction:nobody\n\n999999999;\0"),
    (V10, V12, "E-VALUE", "SEND\n$destination:/topic/0\nexpires:soon\n\n999999999;\0"),
    (V10, V12, "E-VALUE", "SEND\n$destination:/topic/0\nexpiration:-5\n\n999999999;\0"),
    (V10, V12, "E-VALUE", "SUBSCRIBE\n$id:f\ndestination:/rogue\nack:client\nprefetch-count:many\n\n\0"),
    (V10, V12, "E-NOT-SUPPORTED", "SUBSCRIBE\n$id:g\ndestination:/rogue\nselector:a = 1\n\n\0"),
    (V10, V12, "E-DIAG-QUERY", "DIAG\n$\nwhat?\0"),
    (V10, V12, "E-TEMP-UNKNOWN", "SEND\n$destination:/temp-queue/nobody\n\n999999999;\0"),
    (V10, V12, "E-READ-ONLY", "SEND\n$destination:/queue/monitor\n\n999999999;\0"),
];

/// First frames for which a client is not let in.
const FIRST: &[(&str, &str)] = &[
    ("E-NOT-CONNECTED", "SEND\n$destination:/topic/0\n\n999999999;\0"),
    ("E-NOT-CONNECTED", "SUBSCRIBE\n$id:1\ndestination:/topic/0\n\n\0"),
    ("E-NOT-CONNECTED", "DISCONNECT\n$\n\0"),
    ("E-NOT-CONNECTED", "\n\r\nBEGIN\n$transaction:t\n\n\0"),
    ("E-COMMAND", "connect\naccept-version:1.2\nhost:h\n\n\0"),
    ("E-COMMAND", "CONNECTED\nversion:1.2\n\n\0"),
    ("E-COMMAND", "\0"),
    ("E-COMMAND", "{\"json\":true}\n\n\0"),
    ("E-VERSION", "CONNECT\naccept-version:2.0,3.1\nhost:h\n\n\0"),
    ("E-VERSION", "STOMP\naccept-version:\nhost:h\n\n\0"),
    ("E-HEART-BEAT", "CONNECT\naccept-version:1.2\nheart-beat:now\n\n\0"),
    ("E-HEART-BEAT", "CONNECT\naccept-version:1.1\nheart-beat:1000\n\n\0"),
    ("E-HEART-BEAT", "CONNECT\naccept-version:1.1,1.2\nheart-beat:1,2,3\n\n\0"),
    ("E-HEART-BEAT", "CONNECT\naccept-version:1.2\nheart-beat:-1,0\n\n\0"),
    ("E-HEART-BEAT", "CONNECT\naccept-version:1.2\nheart-beat: 0, 0\n\n\0"),
    ("E-HEADER", "CONNECT\naccept-version:1.2\n\0"),
    ("E-HEADER", "CONNECT\n:x\n\n\0"),
    ("E-CONTENT-LENGTH", "CONNECT\naccept-version:1.2\ncontent-length:2\n\nxxx\0"),
];

/// The largest frame before login.
const LOGIN_BYTES_MAX: usize = 64 << 10;

/// A wrong frame after CONNECT; its receipt, if it asks for one, has this id.
pub fn wrong(version: Version, config: &Config, receipt: &str, random: &mut SmallRng) -> Option<Wrong> {
    let of = |what: &str, bytes: Vec<u8>, codes: &[&'static str], receipt: Option<&str>| {
        let endings = codes.iter().map(|code| Ending::Error(code)).collect();
        Some(Wrong { what: what.to_owned(), bytes, endings, receipt: receipt.map(str::to_owned) })
    };
    let limits = &config.limits;
    let with_receipt = format!("SEND\nreceipt:{receipt}\ndestination:/topic/0\n");
    match random.random_range(0..40) {
        0 => {
            let line = "x:".len();
            let long = "y".repeat(limits.header_line_bytes_max + 1 - line);
            of(
                "a long header",
                format!("{with_receipt}x:{long}\n\n999999999;\0").into(),
                &["E-HEADER-SIZE"],
                Some(receipt),
            )
        }
        1 => {
            let more = "x:\n".repeat(limits.headers_max - 1);
            of(
                "many headers",
                format!("{with_receipt}{more}\n999999999;\0").into(),
                &["E-HEADER-COUNT"],
                Some(receipt),
            )
        }
        2 => {
            let len = limits.message_bytes_max + random.random_range(1..3);
            let frame = format!("{with_receipt}content-length:{len}\n\n999999999;");
            of("a long body", frame.into(), &["E-MESSAGE-SIZE"], Some(receipt))
        }
        3 if limits.message_bytes_max <= 1 << 17 => {
            let body = "9".repeat(limits.message_bytes_max + 1);
            of(
                "a long body without its length",
                format!("{with_receipt}\n{body}").into(),
                &["E-MESSAGE-SIZE"],
                Some(receipt),
            )
        }
        4 => {
            let frame = [with_receipt.as_bytes(), b"a:\xFF\n\n999999999;\0"].concat();
            of("a header that is not UTF-8", frame, &["E-UTF8"], Some(receipt))
        }
        5..9 => too_often(config, receipt, random),
        _ => {
            let rows: Vec<_> =
                TABLE.iter().filter(|(from, to, ..)| (*from..=*to).contains(&version)).collect();
            let (_, _, code, text) = rows.choose(random)?;
            row(code, text, receipt)
        }
    }
}

/// The same thing twice, or more often than a limit allows.
fn too_often(config: &Config, receipt: &str, random: &mut SmallRng) -> Option<Wrong> {
    let of = |what: &str, text: String, code: &'static str, receipt: Option<&str>| {
        let (what, endings) = (what.to_owned(), vec![Ending::Error(code)]);
        Some(Wrong { what, bytes: text.into_bytes(), endings, receipt: receipt.map(str::to_owned) })
    };
    match random.random_range(0..4) {
        0 => {
            let twice = format!(
                "SUBSCRIBE\nid:twice\ndestination:/rogue\n\n\0\
                 SUBSCRIBE\nreceipt:{receipt}\nid:twice\ndestination:/rogue\n\n\0"
            );
            of("a subscription id in use", twice, "E-SUB-DUPLICATE", Some(receipt))
        }
        1 => {
            let twice =
                format!("BEGIN\ntransaction:twice\n\n\0BEGIN\nreceipt:{receipt}\ntransaction:twice\n\n\0");
            of("a transaction twice", twice, "E-TX-OPEN", Some(receipt))
        }
        2 => {
            let many = (0..=config.max_transactions).map(|at| format!("BEGIN\ntransaction:many{at}\n\n\0"));
            of("many transactions", many.collect(), "E-TX-COUNT", None)
        }
        _ if config.max_subscriptions <= 1000 => {
            let one = |at| format!("SUBSCRIBE\nid:many{at}\ndestination:/rogue/m{at}\n\n\0");
            of("many subscriptions", (0..=config.max_subscriptions).map(one).collect(), "E-SUB-COUNT", None)
        }
        _ => None,
    }
}

fn row(code: &'static str, text: &str, receipt: &str) -> Option<Wrong> {
    Some(Wrong {
        what: text.chars().map(|char| if char.is_control() { '|' } else { char }).collect(),
        bytes: text.replace('$', &format!("receipt:{receipt}\n")).into_bytes(),
        endings: vec![Ending::Error(code)],
        receipt: text.contains('$').then(|| receipt.to_owned()),
    })
}

/// A wrong first frame.
pub fn wrong_first(random: &mut SmallRng, receipt: &str) -> Option<Wrong> {
    if random.random_ratio(1, 5) {
        return Some(Wrong {
            what: "a long CONNECT".to_owned(),
            bytes: long_connect(1),
            endings: vec![Ending::Error("E-LOGIN-SIZE")],
            receipt: None,
        });
    }
    let (code, text) = FIRST.choose(random)?;
    row(code, text, receipt)
}

/// A CONNECT of the largest size that is accepted, plus so many bytes. Its body is passed over.
pub fn long_connect(more: usize) -> Vec<u8> {
    let mut bytes = b"CONNECT\naccept-version:1.2\nhost:h\n\n".to_vec();
    bytes.resize(LOGIN_BYTES_MAX - 1 + more, b'x');
    bytes.push(0);
    bytes
}

/// The beginning of a frame that never ends, and the number of bytes that it announces: no more than any run allows.
pub fn part(version: Version, random: &mut SmallRng) -> (Vec<u8>, usize) {
    let announced = random.random_range(10_000..70_000_usize);
    let texts = [
        ("S".to_owned(), 0),
        ("SEND\ndestination:/topic/0\n".to_owned(), 0),
        ("SUBSCRIBE\nid:part\ndestination:/topic/0\nack:aut".to_owned(), 0),
        ("SEND\ndestination:/topic/0\n\n999999999;".to_owned(), 0),
        (format!("SEND\ndestination:/topic/0\ncontent-length:{announced}\n\n999999999;"), announced),
        (format!("BEGIN\ntransaction:t{}\n\n", if version == V10 { "" } else { "\\n" }), 0),
    ];
    let (text, announced) = texts.choose(random).cloned().unwrap_or_default();
    (text.into_bytes(), announced)
}
