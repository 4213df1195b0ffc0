//! A consumer must accept what a work queue may deliver and nothing else, and acknowledge each message once.

use super::*;
use crate::body::Body;
use crate::receiver::Receiver;

const SIZE: usize = 117;

fn feeds() -> Vec<Rc<Feed>> {
    let feed = |number| {
        let body = Body::new(&format!("pub-{number:04}"), SIZE);
        Rc::new(Feed { body, destinations: vec!["/queue/bench".into()] })
    };
    (0..3).map(feed).collect()
}

/// Consumers of one queue to which three publishers may send 1,000 messages each.
fn consumers(count: usize, acks: Option<bool>) -> (Vec<Receiver>, Rc<RefCell<Arrivals>>) {
    let arrivals = Rc::new(RefCell::new(Arrivals::new(3)));
    for publisher in 0..3 {
        arrivals.borrow_mut().expect(publisher, 1_000);
    }
    let consumer = |_| {
        let consumer = QueueConsumer::new(
            Some("sub-0"),
            &feeds(),
            Rc::clone(&arrivals),
            count == 1,
            acks.map(Acks::new),
        );
        Receiver::consuming(consumer, false)
    };
    ((0..count).map(consumer).collect(), arrivals)
}

/// Ids have different lengths, so that the lengths of frames differ.
fn id(publisher: usize, sequence: u64) -> String {
    format!("{publisher}-{}", sequence * sequence)
}

fn message(publisher: usize, sequence: u64) -> Vec<u8> {
    let id = id(publisher, sequence);
    let head = format!(
        "MESSAGE\nsubscription:sub-0\nmessage-id:m{id}\nack:a\\c{id}\ndestination:/queue/bench\ncontent-length:{SIZE}\n\n"
    );
    [head.as_bytes(), &feeds()[publisher].body.numbered(sequence), b"\0"].concat()
}

fn stream(sequences: impl IntoIterator<Item = u64>) -> Vec<u8> {
    sequences.into_iter().flat_map(|sequence| message(0, sequence)).collect()
}

fn acks(receiver: &mut Receiver) -> Vec<u8> {
    let consumer = receiver.consumer.as_mut().expect("a consumer");
    consumer.acks().map(std::mem::take).unwrap_or_default()
}

#[test]
fn interleaved_publishers_are_accepted_and_each_message_is_acknowledged() {
    let (mut consumers, arrivals) = consumers(1, Some(false));
    let (mut bytes, mut expected) = (Vec::new(), String::new());
    for sequence in 0..1_000 {
        for publisher in 0..3 {
            bytes.extend(message(publisher, sequence));
            expected.push_str(&format!("ACK\nid:a\\c{}\n\n\0", id(publisher, sequence)));
        }
    }
    assert_eq!(consumers[0].feed(&bytes), Ok(bytes.len()));
    assert_eq!(consumers[0].delivered, 3_000);
    assert_eq!(String::from_utf8(acks(&mut consumers[0])).expect("text"), expected);
    assert!(acks(&mut consumers[0]).is_empty());
    assert!((0..3).all(|publisher| arrivals.borrow().arrived(publisher) == 1_000));
}

#[test]
fn any_split_gives_the_same_acks() {
    let bytes = stream(0..150);
    let (mut whole, _) = consumers(1, Some(false));
    whole[0].feed(&bytes).expect("nothing is wrong with it");
    let expected = acks(&mut whole[0]);
    for step in [1, 2, 7, 100, 333, 4_096] {
        let (mut consumers, _) = consumers(1, Some(false));
        let (mut rest, mut acked) = (Vec::new(), Vec::new());
        for piece in bytes.chunks(step) {
            rest.extend_from_slice(piece);
            let used = consumers[0].feed(&rest).expect("nothing is wrong with it");
            rest.drain(..used);
            acked.extend(acks(&mut consumers[0]));
        }
        assert!(rest.is_empty());
        assert_eq!(acked, expected, "pieces of {step}");
    }
}

#[test]
fn acks_over_websocket_are_masked_frames_of_their_own() {
    let (mut consumers, _) = consumers(1, Some(true));
    consumers[0].feed(&stream(0..100)).expect("nothing is wrong with it");
    let (frames, mut at) = (acks(&mut consumers[0]), 0);
    for sequence in 0..100 {
        let size = usize::from(frames[at + 1] & 0x7f);
        assert_eq!((frames[at], frames[at + 1] & 0x80), (0x81, 0x80));
        let key = frames[at + 2..at + 6].try_into().expect("four octets");
        let mut payload = frames[at + 6..at + 6 + size].to_vec();
        ws::mask(&mut payload, key, 0);
        assert_eq!(payload, format!("ACK\nid:a\\c{}\n\n\0", id(0, sequence)).into_bytes());
        at += 6 + size;
    }
    assert_eq!(at, frames.len());
}

#[test]
fn consumers_may_share_in_any_way() {
    let (mut consumers, arrivals) = consumers(2, None);
    for sequence in 0..1_000 {
        let bytes = message(1, sequence);
        let consumer = usize::from(sequence % 7 < 3);
        assert_eq!(consumers[consumer].feed(&bytes), Ok(bytes.len()));
    }
    assert_eq!(arrivals.borrow().arrived(1), 1_000);
    assert_eq!(arrivals.borrow_mut().first_missing(1), None);
    let taken: Vec<u64> = consumers.iter().filter_map(|one| Some(one.consumer.as_ref()?.taken)).collect();
    assert_eq!(taken, [571, 429]);
}

#[test]
fn a_doubled_message_is_a_fault_on_any_consumer() {
    for at in 0..200 {
        let (mut one, _) = consumers(1, None);
        let got = one[0].feed(&stream((0..=at).chain(at..201)));
        assert!(matches!(got, Err(Fault::Doubled { sequence, .. }) if sequence == at), "{got:?}");
        let (mut two, _) = consumers(2, None);
        two[0].feed(&stream(0..=at)).expect("nothing is wrong with it");
        let got = two[1].feed(&stream([at]));
        assert!(matches!(got, Err(Fault::Doubled { sequence, .. }) if sequence == at), "{got:?}");
    }
}

#[test]
fn a_message_that_was_never_sent_is_a_fault() {
    let (mut two, _) = consumers(2, None);
    assert!(two[0].feed(&stream([999])).is_ok());
    assert!(matches!(two[0].feed(&stream([1_000])), Err(Fault::Doubled { sequence: 1_000, .. })));
}

#[test]
fn a_sole_consumer_allows_no_gap_and_no_consumer_a_step_back() {
    for at in 0..200 {
        let swapped = stream((0..at).chain([at + 1, at]).chain(at + 2..201));
        let (mut one, _) = consumers(1, None);
        let got = one[0].feed(&swapped);
        assert!(matches!(got, Err(Fault::Gap { expected, .. }) if expected == at), "{got:?}");
        let (mut two, _) = consumers(2, None);
        let got = two[0].feed(&swapped);
        assert!(matches!(got, Err(Fault::Repeat { got, .. }) if got == at), "{got:?}");
    }
}

#[test]
fn messages_that_can_no_longer_arrive_are_known() {
    let (mut two, arrivals) = consumers(2, None);
    two[0].feed(&stream(0..10)).expect("nothing is wrong with it");
    two[1].feed(&stream(11..20)).expect("another may still get it");
    let next: Vec<u64> = two.iter().filter_map(|one| Some(one.consumer.as_ref()?.next(0))).collect();
    assert_eq!(next, [10, 20]);
    assert_eq!(arrivals.borrow_mut().first_missing(0), Some(10));
}

#[test]
fn altered_messages_are_faults() {
    let places: [(&[u8], usize, u8); 6] = [
        (b"sub-0", 4, b'9'),
        (b"\nack:", 1, b'x'),
        (b"pub-0002", 0, b'q'),
        // The last octet of the frame.
        (b"pub-0002", SIZE, b'x'),
        // Not checked in every message.
        (b"/queue/bench", 8, b'x'),
        (b"pub-0002", SIZE - 3, b'!'),
    ];
    // Message 0 is parsed; message 66 looks like the ones before it.
    for (sequence, places) in [(0, &places[..]), (66, &places[..4])] {
        let good = message(2, sequence);
        for &(needle, offset, octet) in places {
            let at = good.windows(needle.len()).position(|part| part == needle).expect("is there");
            let mut bytes: Vec<u8> = (0..sequence).flat_map(|sequence| message(2, sequence)).collect();
            let at = bytes.len() + at + offset;
            bytes.extend_from_slice(&good);
            bytes[at] = octet;
            let (mut one, _) = consumers(1, Some(false));
            assert!(one[0].feed(&bytes).is_err(), "octet {at} of message {sequence}");
        }
    }
}
