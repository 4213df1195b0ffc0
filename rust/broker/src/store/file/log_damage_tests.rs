//! Damage of a log's files: by a disk that fails, by a crash, and by clients that would like to be taken for the log.

use super::*;
use crate::store::file::damage::Damage;
use crate::store::file::encode;
use crate::store::file::entry::{Found, GROUP_BYTES, Group, Salt};
use crate::store::file::segment::Header;

/// A log of groups with three messages each, left without being closed: the bytes of its only file, and where groups end.
fn groups_of_three(groups: u64) -> (Vec<u8>, Vec<u64>) {
    let at = directory();
    let (mut log, _) = open(at.path());
    let mut ends = vec![HEADER_BYTES];
    for first in (1..=groups * 3).step_by(3) {
        write(&mut log, &[&[keep(first..first + 3)]]);
        ends.push(log.segments.current().expect("it was written to").end);
    }
    drop(log);
    (fs::read(only_file(at.path())).expect("a segment"), ends)
}

/// What is recovered from a log with this file, and the directory.
fn recover(bytes: &[u8]) -> (TempDir, Log, Recovered) {
    let at = directory();
    fs::write(only_file(at.path()), bytes).expect("a disk with room");
    let (log, recovered) = open(at.path());
    (at, log, recovered)
}

#[test]
fn damage_of_what_was_safe_loses_one_message_at_most_and_is_reported() {
    let (whole, ends) = groups_of_three(4);
    for byte in 0..ends[3] {
        let mut changed = whole.clone();
        changed[byte as usize] ^= 0x40;
        let (at, log, recovered) = recover(&changed);
        let lost = &set(1..=12) - &records(&recovered);
        assert!(lost.len() <= 1, "byte {byte}: {lost:?}");
        let [damage] = &recovered.damages[..] else { panic!("byte {byte}: {:?}", recovered.damages) };
        let Damage { segment: 1, from, to, copy: Some(copy), messages, affected } = damage else {
            panic!("byte {byte}: {damage:?}")
        };
        assert!((*from..*to).contains(&byte), "byte {byte}: {damage:?}");
        assert_eq!(fs::read(at.path().join(copy)).expect("a copy"), changed[*from as usize..*to as usize]);
        assert!(messages.is_none_or(|messages| messages == lost.len() as u64), "byte {byte}: {damage:?}");
        if *messages == Some(1) && !affected.is_empty() {
            assert_eq!(affected.len(), 1);
        }
        assert!(log.segments.iter().all(|segment| segment.is_damaged));
        assert!(damage.to_string().starts_with(&format!("segment 1 is damaged from byte {from} to {to}: ")));
    }
}

#[test]
fn damage_in_a_body_is_reported_with_its_queue_and_record() {
    let (mut bytes, ends) = groups_of_three(3);
    let last = ends[1] as usize - 1;
    bytes[last] ^= 1; // the last byte of the body of record 3
    let (_at, _, recovered) = recover(&bytes);
    assert_eq!(recovered.damages[0].affected, [(b"/queue/odd".to_vec(), 3)]);
    let text = recovered.damages[0].to_string();
    assert!(text.contains("1 messages are lost, probably record 3 of '/queue/odd'"), "{text}");
}

#[test]
fn a_block_that_is_lost_loses_only_what_was_in_it() {
    let at = directory();
    let (mut log, _) = open(at.path());
    write(&mut log, &[&[keep(1..=40)], &[keep([41])]]);
    drop(log);
    let mut bytes = fs::read(only_file(at.path())).expect("a segment");
    bytes[500..1000].fill(0);
    let (_at, _, recovered) = recover(&bytes);
    let found = records(&recovered);
    assert!(found.len() >= 41 - 500 / 33 - 2 && found.contains(&1) && found.contains(&40), "{found:?}");
    assert_eq!(recovered.damages.len(), 1, "{:?}", recovered.damages);
    assert_eq!((recovered.damages[0].messages, recovered.torn_bytes), (None, 0));
}

#[test]
fn the_other_messages_of_a_damaged_transaction_are_served_if_it_was_confirmed() {
    let at = directory();
    let (mut log, _) = open(at.path());
    write(&mut log, &[&[commit(&[1, 2, 3], &[])], &[keep([4])]]);
    let Lookup::At(_, stored) = log.find(2) else { panic!("it was written") };
    drop(log);
    let mut bytes = fs::read(only_file(at.path())).expect("a segment");
    bytes[stored.place.offset as usize + 20] ^= 1;
    let (_at, _, recovered) = recover(&bytes);
    assert_eq!(records(&recovered), set([1, 3, 4]));
    assert!(recovered.damages.iter().all(|damage| damage.messages != Some(0)));
}

#[test]
fn groups_that_are_missing_at_the_end_of_a_segment_are_reported() {
    let at = directory();
    let (mut log, _) = open(at.path());
    for record in 1..200 {
        write(&mut log, &[&[keep([record])]]);
    }
    assert!(log.figures().segments > 2);
    drop(log);
    let path = only_file(at.path());
    let mut bytes = fs::read(&path).expect("a segment");
    let length = bytes.len();
    bytes[length - 200..].fill(0);
    // Zeros from the beginning of a group on look like the end.
    let end = (0..length - 200).rev().find(|at| bytes[*at] != 0).expect("groups") + 1;
    fs::write(&path, &bytes).expect("a disk with room");
    let (_, recovered) = open(at.path());
    assert!(records(&recovered).len() < 199);
    let damage = recovered.damages.first().expect("it is reported");
    assert!(damage.to as usize >= end && damage.messages.is_none(), "{damage:?}");
    // The end of the file is missing.
    fs::write(&path, &bytes[..length - 300]).expect("a disk with room");
    let (_, recovered) = open(at.path());
    assert!(recovered.damages.iter().any(|damage| damage.segment == 1), "{:?}", recovered.damages);
}

#[test]
fn a_group_that_was_never_synced_is_cut_off_even_if_the_next_one_is_whole() {
    let at = directory();
    let (mut log, _) = open(at.path());
    write(&mut log, &[&[keep([1])]]);
    put(&mut log, &[keep([2])], 10);
    let torn = log.segments.current().expect("it was written to").end;
    put(&mut log, &[keep([3]), forget([1])], 10);
    drop(log);
    let whole = fs::read(only_file(at.path())).expect("a segment");
    for lost in [1, 10, 20, 60, GROUP_BYTES + 10] {
        let mut bytes = whole.clone();
        bytes[torn as usize - lost..torn as usize].fill(0);
        let (at, log, recovered) = recover(&bytes);
        assert_eq!((records(&recovered), recovered.damages.len()), (set([1]), 0), "{lost} bytes");
        drop(log);
        assert_eq!(records(&open(at.path()).1), set([1]), "{lost} bytes, opened again");
    }
}

/// A message whose body has whatever the log could be made to take for its own, with the salts that somebody may know.
fn forger(record: RecordId, body: &[u8]) -> Batch {
    batch(|batch| {
        batch.keep(&Message {
            record,
            queue: b"/queue/a",
            destination: b"/queue/a",
            body,
            ..Message::default()
        });
    })
}

/// A group that forgets record 1 and calls all groups synced, as a client would forge it.
fn forged() -> Vec<u8> {
    let mut entries = Vec::new();
    encode::append_message(&mut entries, &message(77));
    encode::append_forgotten(&mut entries, &mut [(1, 1)]);
    let mut forged = Vec::new();
    for mark in [Salt::NONE, Salt(u64::from_le_bytes(*b"\xA5stmpGRP"))] {
        let group = Group { number: 99, synced: 98, length: entries.len() as u32 };
        encode::append_group(&mut forged, group, mark);
        forged.extend_from_slice(&entries);
    }
    forged.repeat(3)
}

#[test]
fn a_body_that_looks_like_groups_is_not_taken_for_one() {
    let at = directory();
    let (mut log, _) = open(at.path());
    write(&mut log, &[&[keep([1])]]);
    let start = log.segments.current().expect("it was written to").end as usize;
    put(&mut log, &[forger(2, &forged())], 10);
    drop(log);
    let whole = fs::read(only_file(at.path())).expect("a segment");
    for damaged in [start, start + 5, start + 20, start + GROUP_BYTES, start + GROUP_BYTES + 9] {
        // Torn: it was never synced, whatever it says itself.
        let mut bytes = whole.clone();
        bytes[damaged] ^= 1;
        let (_at, _, recovered) = recover(&bytes);
        assert_eq!((records(&recovered), recovered.damages.len()), (set([1]), 0), "byte {damaged}");
        assert!(recovered.torn_bytes > 0);
    }
}

#[test]
fn a_body_that_looks_like_entries_is_not_read_behind_damage() {
    let at = directory();
    let (mut log, _) = open(at.path());
    write(&mut log, &[&[keep([1])], &[forger(2, &forged()), keep([3])], &[keep([4])]]);
    let Lookup::At(_, stored) = log.find(2) else { panic!("it was written") };
    drop(log);
    let whole = fs::read(only_file(at.path())).expect("a segment");
    for length in 1..400_u32 {
        // Its length leads into the body.
        let mut bytes = whole.clone();
        let at = stored.place.offset as usize;
        bytes[at..at + 4].copy_from_slice(&length.to_le_bytes());
        let (_at, _, recovered) = recover(&bytes);
        let found = records(&recovered);
        assert!(found.is_superset(&set([1, 4])) && !found.contains(&77), "length {length}: {found:?}");
    }
}

#[test]
fn every_segment_has_a_salt_of_its_own() {
    let salt = || {
        let (bytes, _) = groups_of_three(1);
        Header::read(&bytes).expect("a header").salt
    };
    let (one, other) = (salt(), salt());
    assert!(one != other && one != Salt::NONE);
    let (bytes, _) = groups_of_three(1);
    let group = &bytes[HEADER_BYTES as usize..];
    assert!(
        matches!(Found::at(group, one), Found::Damaged),
        "a group of another segment is none of this one"
    );
}

#[test]
fn a_damaged_header_loses_nothing_and_a_damaged_first_group_with_it_loses_the_segment() {
    let (whole, _) = groups_of_three(3);
    let mut bytes = whole.clone();
    bytes[34] ^= 1;
    let (_at, _, recovered) = recover(&bytes);
    assert_eq!(records(&recovered), set(1..=9));
    // Two segments, since a directory without any valid one is that of something else.
    let at = directory();
    let (mut log, _) = open(at.path());
    (1..200).for_each(|record| write(&mut log, &[&[keep([record])]]));
    drop(log);
    let path = only_file(at.path());
    let mut bytes = fs::read(&path).expect("a segment");
    bytes[34] ^= 1;
    bytes[HEADER_BYTES as usize + 10] ^= 1;
    fs::write(&path, &bytes).expect("a disk with room");
    let (_, recovered) = open(at.path());
    let [Damage { segment: 1, from: 0, to, copy: Some(_), messages: None, .. }] = &recovered.damages[..]
    else {
        panic!("{:?}", recovered.damages)
    };
    assert_eq!(*to, bytes.len() as u64);
    assert!(!records(&recovered).is_empty());
}

proptest! {
    #[test]
    fn any_bytes_are_opened_without_a_panic(
        bytes in proptest::collection::vec(any::<u8>(), 0..600),
        has_header: bool,
        group in any::<(u64, u64, u32)>(),
        record: u64,
    ) {
        let salt = Salt(0x1122_3344_5566_7788);
        let mut file = Vec::new();
        if has_header {
            file.extend_from_slice(&Header { number: 1, record, group: group.0, salt }.bytes());
            let (number, synced, length) = group;
            encode::append_group(&mut file, Group { number, synced, length }, salt);
            let start = file.len();
            encode::append_message(&mut file, &message(1_000_000));
            salt.change(&mut file[start..]);
            let start = file.len();
            encode::append_forgotten(&mut file, &mut [(u32::MAX, u64::MAX), (1, u64::MAX)]);
            salt.change(&mut file[start..]);
        }
        file.extend_from_slice(&bytes);
        let at = directory();
        fs::write(only_file(at.path()), &file).expect("a disk with room");
        if let Ok((mut log, _)) = open_at(at.path()) {
            let mut replacing = None;
            (0..10).for_each(|_| _ = log.compact(&mut replacing, true));
            _ = log.write(&[keep([5])], 9, Purpose::Messages);
        }
    }

    #[test]
    fn a_log_with_changed_bytes_is_opened_without_a_panic_and_invents_nothing(
        changes in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 1..8),
        cut in any::<Option<proptest::sample::Index>>(),
    ) {
        let (mut bytes, ends) = groups_of_three(6);
        bytes.truncate(ends[6] as usize);
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()) + 1);
        }
        let at = directory();
        fs::write(only_file(at.path()), &bytes).expect("a disk with room");
        if let Ok((log, recovered)) = open_at(at.path()) {
            let found = records(&recovered);
            prop_assert!(found.is_subset(&set(1..=18)));
            drop(log);
            let (_, again) = open(at.path());
            prop_assert_eq!(records(&again), found, "opened again");
        }
    }
}

#[test]
fn damage_stays_known_as_such_when_what_follows_it_is_cut_off() {
    let (mut bytes, ends) = groups_of_three(3);
    bytes[ends[1] as usize + GROUP_BYTES + 15] ^= 1; // the first message of group 2, which group 3 calls synced
    bytes[ends[3] as usize - 1] ^= 1; // group 3 is torn
    let (at, log, recovered) = recover(&bytes);
    assert_eq!(records(&recovered), set([1, 2, 3, 5, 6]));
    drop(log);
    let (_, recovered) = open(at.path());
    assert_eq!(records(&recovered), set([1, 2, 3, 5, 6]), "opened again");
}

#[test]
fn damage_of_the_last_group_of_a_log_that_was_closed_is_reported() {
    let at = directory();
    let (mut log, _) = open(at.path());
    write(&mut log, &[&[keep(1..=3)]]);
    let Lookup::At(_, stored) = log.find(2) else { panic!("it was written") };
    log.close().expect("a disk that works");
    drop(log);
    let mut bytes = fs::read(only_file(at.path())).expect("a segment");
    bytes[stored.place.offset as usize + 20] ^= 1;
    fs::write(only_file(at.path()), &bytes).expect("a disk with room");
    let (_, recovered) = open(at.path());
    assert_eq!((records(&recovered), recovered.torn_bytes), (set([1, 3]), 0));
    assert_eq!(recovered.damages[0].messages, Some(1));
}

#[test]
fn groups_that_went_with_their_segments_are_neither_missing_nor_numbered_again() {
    let at = directory();
    let header = |number, group| Header { number, record: 9, group, salt: Salt(77) }.bytes();
    fs::write(at.path().join(segment_name(8)), header(8, 50)).expect("a disk with room");
    fs::write(at.path().join(segment_name(9)), header(9, 50)).expect("a disk with room");
    let (mut log, recovered) = open(at.path());
    assert!(recovered.damages.is_empty(), "{:?}", recovered.damages);
    write(&mut log, &[&[keep([10])]]);
    drop(log);
    let bytes = fs::read(at.path().join(segment_name(10))).expect("a segment");
    assert_eq!(Header::read(&bytes).expect("a header").group, 50);
}
