use proptest::prelude::*;

use super::*;
use crate::store::file::encode::{
    append, append_delivered, append_forgotten, append_group, append_message, append_shared,
    complete_transaction,
};

const SALT: Salt = Salt(0x1234_5678_9ABC_DEF0);

fn text() -> impl Strategy<Value = Vec<u8>> {
    proptest::collection::vec(any::<u8>(), 0..40)
}

/// The only entry of these bytes.
fn only(bytes: &[u8]) -> Entry<'_> {
    let Found::Entry(entry, length) = Found::at(bytes, Salt::NONE) else { panic!("no entry in {bytes:?}") };
    assert_eq!(length, bytes.len());
    entry
}

fn message(record: RecordId) -> Message<'static> {
    Message {
        record,
        queue: b"/queue/a",
        destination: b"/queue/a",
        id: b"e-0-1",
        body: b"hello",
        ..Message::default()
    }
}

fn bytes_of(message: &Message<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    append_message(&mut out, message);
    out
}

/// The bytes on disk of a small message: a change of the format shows here, and needs a new version.
#[test]
fn a_message_has_these_bytes() {
    let expected = [
        &[30, 0, 0, 0, 20, 163, 93, 229][..], // length, checksum
        &[2, 1, 2, 3, 7],                     // kind, record, place, flags, sender
        b"\x08/queue/a\x05e-0-1\x04x:1\nhello",
    ]
    .concat();
    let sent =
        Message { place: 2, persistent: true, plain: true, sender: 7, headers: b"x:1\n", ..message(1) };
    let bytes = bytes_of(&sent);
    assert_eq!(bytes, expected, "{bytes:?}");
    assert!(matches!(only(&bytes), Entry::Message(read) if read == sent));
}

#[test]
fn the_overhead_of_a_message_is_small() {
    let (destination, id, headers, body) =
        (&b"/queue/orders"[..], &b"a1b2c3d4e5-0-1000000"[..], [b'h'; 40], [b'b'; 117]);
    let (record, place, sender) = (1_000_000_000, 1_000_000_000, 1000);
    let sent = Message {
        record,
        place,
        sender,
        queue: destination,
        destination,
        id,
        headers: &headers,
        body: &body,
        ..message(0)
    };
    let payload = destination.len() + id.len() + headers.len() + body.len();
    assert!(bytes_of(&sent).len() - payload <= 26, "{} bytes of overhead", bytes_of(&sent).len() - payload);
}

#[test]
fn zeros_are_the_end_and_other_bytes_are_damage() {
    assert!(matches!(Found::at(&[], Salt::NONE), Found::End));
    assert!(matches!(Found::at(&[0; 3], Salt::NONE), Found::End));
    assert!(matches!(Found::at(&[0; 100], Salt::NONE), Found::End));
    assert!(matches!(Found::at(&[1], Salt::NONE), Found::Damaged));
    assert!(matches!(Found::at(&[0, 0, 0, 0, 1, 0, 0, 0], Salt::NONE), Found::Damaged));
    assert!(matches!(Found::at(&[255; 100], Salt::NONE), Found::Damaged));
}

#[test]
fn an_unknown_kind_or_flag_is_damage_even_with_a_valid_checksum() {
    let mut out = Vec::new();
    append(&mut out, 7, |_| ());
    assert!(matches!(Found::at(&out, Salt::NONE), Found::Damaged));
    out.clear();
    append(&mut out, MESSAGE, |out| out.extend_from_slice(&[1, 2, 128, 0, 0, 0, 0]));
    assert!(matches!(Found::at(&out, Salt::NONE), Found::Damaged));
}

#[test]
fn every_changed_bit_is_noticed() {
    let bytes = bytes_of(&Message { expires_ms: 99, failures_max: 3, ..message(1) });
    for bit in 0..bytes.len() * 8 {
        let mut changed = bytes.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        assert!(!matches!(Found::at(&changed, Salt::NONE), Found::Entry(..)), "bit {bit}");
    }
}

#[test]
fn an_entry_that_is_cut_off_is_no_entry() {
    let bytes = bytes_of(&message(1));
    for length in 1..bytes.len() {
        assert!(matches!(Found::at(&bytes[..length], Salt::NONE), Found::Damaged), "{length} bytes");
    }
}

#[test]
fn a_group_tells_its_number_and_length() {
    let mut out = Vec::new();
    let group = Group { number: 7, synced: 5, length: 99 };
    append_group(&mut out, group, SALT);
    assert_eq!(out.len(), GROUP_BYTES);
    assert!(matches!(Found::at(&out, SALT), Found::Entry(Entry::Group(read), GROUP_BYTES) if read == group));
    assert!(matches!(Found::at(&out, Salt::NONE), Found::Damaged));
    SALT.change(&mut out);
    assert!(matches!(Found::at(&out, Salt::NONE), Found::Damaged), "its salt is also in its fields");
}

#[test]
fn no_records_make_no_entry() {
    let mut out = Vec::new();
    append_forgotten(&mut out, &mut []);
    append_delivered(&mut out, &mut []);
    assert!(out.is_empty());
}

#[test]
fn a_shared_message_has_its_payload_once_and_all_else_for_each_queue() {
    let first =
        Message { queue: b"durable\na", persistent: true, sender: 9, body: &[b'b'; 1000], ..message(1) };
    let counts = Counts { deliveries: 2, failures: 1 };
    let second = Message { queue: b"durable\nb", record: 2, place: 77, expires_ms: 5, counts, ..first };
    let third = Message { queue: b"/queue/a", record: 3, failures_max: 4, grouped: true, ..first };
    let mut out = Vec::new();
    append_shared(&mut out, &first, [second, third].into_iter());
    assert!(out.len() < 1100, "{}", out.len());
    let Entry::Shared(shared) = only(&out) else { panic!("not shared") };
    assert_eq!(shared.collect::<Vec<_>>(), [first, second, third]);
    out[4] ^= 1;
    assert_eq!(messages_in(&out).map(|message| message.record).collect::<Vec<_>>(), [1, 2, 3]);
    // It announces more than it has.
    out.clear();
    append(&mut out, SHARED, |out| out.extend_from_slice(&[255, 255, 255, 255, 15, 1, 2, 0]));
    assert!(matches!(Found::at(&out, Salt::NONE), Found::Damaged));
}

#[test]
fn a_transaction_has_its_entries_with_their_offsets() {
    let mut out = vec![0; HEAD_BYTES];
    append_message(&mut out, &message(1));
    append_message(&mut out, &message(2));
    append_forgotten(&mut out, &mut [(3, 9)]);
    complete_transaction(&mut out, Salt::NONE);
    let Entry::Transaction(entries) = only(&out) else { panic!("no transaction") };
    let entries: Vec<_> = entries.collect();
    assert_eq!(entries.len(), 3);
    for ((at, entry, length), record) in entries.iter().zip(1..) {
        let alone = &out[HEAD_BYTES + at..HEAD_BYTES + at + length];
        match entry {
            Entry::Message(read) => {
                assert_eq!((*read, alone), (message(record), &bytes_of(&message(record))[..]))
            }
            Entry::Forgotten(forgotten) => assert_eq!(forgotten.collect::<Vec<_>>(), [(3, 9)]),
            other => panic!("{other:?}"),
        }
    }
}

proptest! {
    #[test]
    fn messages_are_read_as_they_were_written(
        (record, place, expires_ms, sender) in any::<(u64, u64, u64, u64)>(),
        (persistent, plain, grouped, has_queue) in any::<(bool, bool, bool, bool)>(),
        (failures_max, deliveries, failures) in any::<(u16, u32, u16)>(),
        (queue, destination, id, headers, body) in (text(), text(), text(), text(), text()),
    ) {
        let counts = Counts { deliveries, failures };
        let queue = if has_queue { &queue[..] } else { &destination };
        let message = Message {
            record, place, persistent, plain, grouped, expires_ms, failures_max, counts, sender,
            queue, destination: &destination, id: &id, headers: &headers, body: &body,
        };
        let bytes = bytes_of(&message);
        let Entry::Message(read) = only(&bytes) else { panic!("no message") };
        prop_assert_eq!(read, message);
    }

    #[test]
    fn forgotten_and_delivered_records_are_read_as_they_were_written(
        mut forgotten in proptest::collection::vec(any::<(u32, u64)>(), 1..40),
        mut delivered in proptest::collection::vec(any::<(u64, u32, u16)>(), 1..40),
    ) {
        let mut out = Vec::new();
        append_forgotten(&mut out, &mut forgotten);
        let Entry::Forgotten(read) = only(&out) else { panic!("none forgotten") };
        prop_assert_eq!(read.collect::<Vec<_>>(), forgotten);
        let counts = |(record, deliveries, failures)| (record, Counts { deliveries, failures });
        let mut delivered: Vec<_> = delivered.drain(..).map(counts).collect();
        out.clear();
        append_delivered(&mut out, &mut delivered);
        let Entry::Delivered(read) = only(&out) else { panic!("none delivered") };
        prop_assert_eq!(read.collect::<Vec<_>>(), delivered);
    }

    #[test]
    fn any_bytes_are_an_entry_or_damage(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        if let Found::Entry(_, length) = Found::at(&bytes, Salt::NONE) {
            prop_assert!(length <= bytes.len());
        }
    }

    #[test]
    fn any_fields_with_a_valid_checksum_do_not_panic(kind: u8, fields in text()) {
        let mut out = Vec::new();
        append(&mut out, kind, |out| out.extend_from_slice(&fields));
        match Found::at(&out, Salt::NONE) {
            Found::Entry(Entry::Forgotten(all), _) => prop_assert!(all.take(1000).count() <= 1000),
            Found::Entry(Entry::Delivered(all), _) => prop_assert!(all.count() <= fields.len()),
            Found::Entry(Entry::Transaction(all), _) => prop_assert!(all.count() <= fields.len()),
            Found::Entry(Entry::Shared(all), _) => prop_assert!(all.count() <= fields.len()),
            _ => {}
        }
    }
}
