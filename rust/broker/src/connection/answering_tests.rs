//! Tests of answers in order.

use stompica_proto::error::Code;

use super::*;
use crate::config::Config;
use crate::connection::conn::Phase;
use crate::connection::deadline::ANSWERS_MS;
use crate::connection::fixtures::{connections, told, turn};

fn refusal() -> ProtocolError {
    ProtocolError::new(Code::Memory, "no room".to_owned())
}

#[test]
fn receipts_leave_in_the_order_of_frames() {
    let ((mut connections, keys), mut turn) = (connections(1), turn(Config::default()));
    let key = keys[0];
    connections.receipt(&mut turn, key, Some(b"1"));
    let waits = connections.ask(&mut turn, key, Some(b"2"), 0b110);
    connections.receipt(&mut turn, key, Some(b"3"));
    connections.receipt(&mut turn, key, None);
    assert!(waits.awaited && told(&mut connections, &mut turn, key).ends_with("receipt-id:1\n\n\0"));
    connections.applied(&mut turn, key, waits.token);
    assert_eq!(told(&mut connections, &mut turn, key), "");
    connections.applied(&mut turn, key, waits.token);
    let told = told(&mut connections, &mut turn, key);
    assert_eq!(told, "RECEIPT\nreceipt-id:2\n\n\0RECEIPT\nreceipt-id:3\n\n\0");
}

#[test]
fn an_error_replaces_the_receipt_of_its_frame_and_ends_the_connection() {
    let ((mut connections, keys), mut turn) = (connections(1), turn(Config::default()));
    let key = keys[0];
    let first = connections.ask(&mut turn, key, Some(b"1"), 0b10);
    let second = connections.ask(&mut turn, key, Some(b"2"), 0b10);
    connections.receipt(&mut turn, key, Some(b"3"));
    connections.refused(&mut turn, key, second.token, (refusal(), Offender::default()));
    assert_eq!(told(&mut connections, &mut turn, key), "", "the first frame is not answered");
    connections.applied(&mut turn, key, first.token);
    assert!(matches!(connections.effects.back(), Some(Effect::Leaves(leaving)) if *leaving == key));
    connections.write_last(&mut turn, key);
    let told = told(&mut connections, &mut turn, key);
    assert!(told.starts_with("RECEIPT\nreceipt-id:1\n\n\0ERROR\n"), "{told}");
    assert!(told.contains("receipt-id:2\n") && !told.contains("receipt-id:3"), "{told}");
}

#[test]
fn a_disconnect_waits_until_no_shard_can_refuse_anything() {
    let ((mut connections, keys), mut turn) = (connections(1), turn(Config::default()));
    let key = keys[0];
    connections.ask(&mut turn, key, None, 0b110);
    connections.disconnect(&mut turn, key, Some(b"end"));
    let Some(Effect::AsksForRoundTrips(to, 0b110)) = connections.effects.pop_front() else {
        panic!("{:?}", connections.effects);
    };
    connections.applied(&mut turn, key, to.token);
    assert_eq!(connections.table.get(key).map(|conn| conn.life.phase), Some(Phase::Open));
    connections.applied(&mut turn, key, to.token);
    assert_eq!(connections.table.get(key).map(|conn| conn.life.phase), Some(Phase::Leaving));
    connections.write_last(&mut turn, key);
    assert_eq!(told(&mut connections, &mut turn, key), "RECEIPT\nreceipt-id:end\n\n\0");
}

#[test]
fn the_receipt_of_a_disconnect_is_the_last_frame_although_input_is_left() {
    let ((mut connections, keys), mut turn) = (connections(1), turn(Config::default()));
    // As after a COMMIT before it that was decided at once.
    connections.table.get_mut(keys[0]).expect("an open connection").input.has_unparsed = true;
    connections.disconnect(&mut turn, keys[0], Some(b"end"));
    assert_eq!(connections.table.get(keys[0]).map(|conn| conn.life.phase), Some(Phase::Leaving));
}

#[test]
fn an_answer_does_not_end_a_half_closed_connection_before_its_frames_are_decoded() {
    let ((mut connections, keys), mut turn) = (connections(1), turn(Config::default()));
    let waits = connections.ask(&mut turn, keys[0], Some(b"1"), 0b10);
    let input = &mut connections.table.get_mut(keys[0]).expect("an open connection").input;
    (input.eof, input.is_being_decoded) = (true, true);
    connections.applied(&mut turn, keys[0], waits.token);
    assert_eq!(connections.table.get(keys[0]).map(|conn| conn.life.phase), Some(Phase::Open));
    connections.table.get_mut(keys[0]).expect("an open connection").input.is_being_decoded = false;
    connections.end_if_done(&mut turn, keys[0]);
    assert_eq!(connections.table.get(keys[0]).map(|conn| conn.life.phase), Some(Phase::Leaving));
}

#[test]
fn the_time_for_the_last_answers_begins_with_the_end_of_the_stream_or_the_error() {
    let ((mut connections, keys), mut turn) = (connections(2), turn(Config::default()));
    keys.iter().for_each(|key| _ = connections.ask(&mut turn, *key, None, 0b10));
    connections.ask(&mut turn, keys[1], Some(b"1"), 0b10);
    turn.now_ms = 2 * ANSWERS_MS; // they were silent
    let script = connections.table.get_mut(keys[0]).expect("an open connection").socket.script();
    script.incoming.push_back(Ok(Vec::new()));
    assert_eq!(connections.read(&mut turn, keys[0], 0, &mut [0; 8]), None);
    connections.fail_with(&mut turn, keys[1], refusal(), &Offender::default());
    for key in keys {
        assert_eq!(connections.overdue(&turn, key), None);
        let conn = connections.table.get(key).expect("its answers are missing");
        assert_eq!(conn.next_deadline(&turn), 3 * ANSWERS_MS);
    }
}

#[test]
fn answers_that_never_come_are_counted_and_end_the_connection() {
    let ((mut connections, keys), mut turn) = (connections(1), turn(Config::default()));
    connections.ask(&mut turn, keys[0], Some(b"1"), 0b10);
    connections.give_up_answers(&mut turn, keys[0]);
    assert_eq!(turn.counters.lost_answers, 1);
    assert!(connections.effects.iter().any(|effect| matches!(effect, Effect::Leaves(_))));
}
