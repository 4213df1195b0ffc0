//! The checker must accept correct messages and nothing else.

use super::*;

const SIZE: usize = 40;

fn feed(size: usize) -> Rc<Feed> {
    Rc::new(Feed {
        body: Body::new("pub-0000", size),
        destinations: vec!["/topic/a".into(), "/topic/b".into()],
    })
}

fn message(subscription: &str, sequence: u64, feed: &Feed) -> Vec<u8> {
    let mut body = feed.body.template().to_vec();
    body[8..16].copy_from_slice(&crate::body::digits(sequence));
    let destination = &feed.destinations[(sequence % 2) as usize];
    let mut frame = format!(
        "MESSAGE\nsubscription:{subscription}\nmessage-id:{sequence}\ndestination:{destination}\ncontent-length:{}\n\n",
        body.len()
    )
    .into_bytes();
    frame.extend_from_slice(&body);
    frame.push(0);
    frame
}

fn receiver(subscriptions: usize, feed: &Rc<Feed>) -> Receiver {
    let subscription =
        |slot: usize| Subscription::new(Some(&format!("sub-{slot}")), 0, slot, Rc::clone(feed), 0);
    Receiver::new((0..subscriptions).map(subscription).collect(), false)
}

fn stream(feed: &Feed, sequences: impl IntoIterator<Item = u64>) -> Vec<u8> {
    sequences.into_iter().flat_map(|sequence| message("sub-0", sequence, feed)).collect()
}

#[test]
fn a_whole_stream_is_accepted() {
    let feed = feed(SIZE);
    let mut receiver = receiver(1, &feed);
    let bytes = stream(&feed, 0..1_000);
    assert_eq!(receiver.feed(&bytes), Ok(bytes.len()));
    assert_eq!(receiver.delivered, 1_000);
}

#[test]
fn a_lost_doubled_or_reordered_message_is_a_fault_anywhere() {
    let feed = feed(SIZE);
    for at in 0..200 {
        let lost = stream(&feed, (0..at).chain(at + 1..201));
        let got = receiver(1, &feed).feed(&lost);
        assert!(matches!(got, Err(Fault::Gap { expected, .. }) if expected == at), "{got:?}");
        let doubled = stream(&feed, (0..=at).chain(at..201));
        let got = receiver(1, &feed).feed(&doubled);
        assert!(matches!(got, Err(Fault::Repeat { got, .. }) if got == at), "{got:?}");
        let swapped = stream(&feed, (0..at).chain([at + 1, at]).chain(at + 2..201));
        assert!(matches!(receiver(1, &feed).feed(&swapped), Err(Fault::Gap { .. })));
    }
}

#[test]
fn a_message_missing_on_one_of_many_subscriptions_is_a_fault() {
    let feed = feed(SIZE);
    let mut bytes = Vec::new();
    for sequence in 0..100 {
        for subscription in (0..5).filter(|&subscription| (subscription, sequence) != (3, 50)) {
            bytes.extend(message(&format!("sub-{subscription}"), sequence, &feed));
        }
    }
    let mut receiver = receiver(5, &feed);
    assert!(matches!(receiver.feed(&bytes), Err(Fault::Gap { expected: 50, .. })));
    assert_eq!(receiver.subscriptions[3].due, 50);
}

#[test]
fn subscriptions_may_interleave_in_any_order() {
    let feed = feed(SIZE);
    let mut bytes = Vec::new();
    for sequence in 0..200 {
        for subscription in 0..5_u64 {
            bytes.extend(message(
                &format!("sub-{}", (subscription * 3 + sequence / 70) % 5),
                sequence,
                &feed,
            ));
        }
    }
    let mut receiver = receiver(5, &feed);
    assert_eq!(receiver.feed(&bytes), Ok(bytes.len()));
    assert_eq!(receiver.delivered, 1_000);
}

#[test]
fn altered_messages_are_faults() {
    let feed = feed(SIZE);
    let good = message("sub-0", 0, &feed);
    let at = |needle: &[u8]| good.windows(needle.len()).position(|part| part == needle).expect("is there");
    for (place, octet) in [
        (at(b"sub-0") + 4, b'9'),
        (at(b"/topic/a") + 7, b'b'),
        (at(b"pub-0000"), b'q'),
        (good.len() - 3, b'!'),
        (good.len() - 1, b'x'),
    ] {
        let mut bytes = good.clone();
        bytes[place] = octet;
        assert!(receiver(1, &feed).feed(&bytes).is_err(), "octet {place}");
    }
}

/// Feeds pieces of `step` octets, with the unused rest before the next piece, as a connection does.
fn in_pieces(receiver: &mut Receiver, bytes: &[u8], step: usize) -> Result<(), Fault> {
    let mut rest = Vec::new();
    for piece in bytes.chunks(step) {
        rest.extend_from_slice(piece);
        let used = receiver.feed(&rest)?;
        rest.drain(..used);
    }
    assert!(rest.is_empty());
    Ok(())
}

#[test]
fn any_split_gives_the_same_result() {
    for size in [SIZE, STREAM_MIN, STREAM_MIN + 7] {
        let feed = feed(size);
        let bytes = stream(&feed, 0..70);
        for step in [1, 2, 7, 100, 4_095, 4_097, 5_000, 20_000] {
            let mut receiver = receiver(1, &feed);
            in_pieces(&mut receiver, &bytes, step).expect("nothing is wrong with it");
            assert_eq!(receiver.delivered, 70);
        }
    }
}

#[test]
fn large_bodies_are_checked_too() {
    let feed = feed(STREAM_MIN + 100);
    let good = message("sub-0", 0, &feed);
    let mut altered = good.clone();
    altered[3_000] ^= 1;
    assert!(in_pieces(&mut receiver(1, &feed), &altered, 512).is_err());
    let mut endless = good;
    *endless.last_mut().expect("not empty") = b'x';
    assert!(in_pieces(&mut receiver(1, &feed), &endless, 512).is_err());
}

#[test]
fn control_frames_are_collected() {
    let mut receiver = receiver(1, &feed(SIZE));
    let bytes = b"CONNECTED\nversion:1.2\n\n\0\n\nRECEIPT\nreceipt-id:7\n\n\0ERROR\nmessage:no\ncontent-length:2\n\na\0\0";
    assert_eq!(receiver.feed(bytes), Ok(bytes.len()));
    let expected = [Control::Connected, Control::Receipt("7".into()), Control::Error("no".into())];
    assert_eq!(receiver.control, expected);
}
