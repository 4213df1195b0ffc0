use super::{WsDecoder, WsEvent};

const MAX: usize = 1 << 20;
const KEY: [u8; 4] = [0x37, 0xfa, 0x21, 0x3d];

/// A masked frame; `first` is its first byte.
fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    assert!(payload.len() < 126, "short frames only");
    let mut bytes = vec![first, 0x80 | payload.len() as u8];
    bytes.extend(KEY);
    bytes.extend(payload.iter().zip(KEY.iter().cycle()).map(|(byte, key)| byte ^ key));
    bytes
}

#[test]
fn stays_small_for_an_idle_connection() {
    assert!(size_of::<WsDecoder>() <= 64, "{} bytes", size_of::<WsDecoder>());
    let mut decoder = WsDecoder::new();
    for message in [frame(0x81, b"one"), frame(0x89, b"ping")] {
        let mut bytes = message;
        decoder.decode(&mut bytes, MAX).expect("valid");
        assert_eq!(decoder.held.capacity(), 0, "complete frames are not held");
    }
    let mut cut = frame(0x82, b"abc");
    let mut end = cut.split_off(4);
    assert_eq!(decoder.decode(&mut cut, MAX), Ok((WsEvent::NeedMore, 4)));
    decoder.decode(&mut end, MAX).expect("valid");
    assert_eq!(decoder.held.capacity(), 0, "released");
}

#[test]
fn payload_is_returned_as_it_arrives() {
    let mut decoder = WsDecoder::new();
    let mut first = frame(0x81, b"hello");
    let mut second = first.split_off(8);
    let event = WsEvent::Data { payload: b"he", text: true, message_end: false };
    assert_eq!(decoder.decode(&mut first, MAX), Ok((event, 8)));
    assert_eq!(decoder.decode(&mut [], MAX), Ok((WsEvent::NeedMore, 0)));
    let event = WsEvent::Data { payload: b"llo", text: true, message_end: true };
    assert_eq!(decoder.decode(&mut second, MAX), Ok((event, 3)));
}

#[test]
fn empty_messages_are_reported_and_empty_fragments_are_not() {
    let mut bytes = [frame(0x81, b""), frame(0x02, b""), frame(0x00, b""), frame(0x80, b"")].concat();
    let mut decoder = WsDecoder::new();
    let event = WsEvent::Data { payload: b"", text: true, message_end: true };
    assert_eq!(decoder.decode(&mut bytes, MAX), Ok((event, 6)));
    let event = WsEvent::Data { payload: b"", text: false, message_end: true };
    assert_eq!(decoder.decode(&mut bytes[6..], MAX), Ok((event, 18)));
}

#[test]
fn nothing_is_decoded_after_the_end() {
    for last in [frame(0x88, b"\x03\xe8"), frame(0x8b, b"")] {
        let mut decoder = WsDecoder::new();
        let mut bytes = last;
        let _ = decoder.decode(&mut bytes, MAX);
        assert_eq!(decoder.decode(&mut frame(0x81, b"late"), MAX), Ok((WsEvent::NeedMore, 10)));
    }
}
