//! Tests of unfinished input.

use std::sync::Arc;

use stompica_proto::decode::head_value;
use stompica_proto::header;

use super::*;
use crate::config::Config;
use crate::connection::fixtures::connections;
use crate::connection::pausing::Question;
use crate::ids::ShardId;
use crate::totals::{Largest, Totals};

const MIB: i64 = 1 << 20;

#[test]
fn shards_share_their_totals() {
    let everywhere = AtomicI64::new(0);
    let (mut one, mut other) = (Unfinished::default(), Unfinished::default());
    for shard in [&mut one, &mut other] {
        shard.look(&everywhere, 96 << 20, 1);
        assert!(!shard.is_over());
    }
    one.add(4 * MIB, &everywhere);
    other.add(3 * MIB, &everywhere);
    assert_eq!((one.total(), other.total()), (4 * MIB, 7 * MIB), "as of each one's last update");
    one.look(&everywhere, 96 << 20, 1);
    assert_eq!(one.total(), 7 * MIB);
    other.add(MIB, &everywhere);
    assert!(other.is_over() && !one.is_over());
    one.look(&everywhere, 96 << 20, 1);
    assert!(!one.is_over(), "a small change is shared once a turn");
    other.look(&everywhere, 96 << 20, 1);
    one.look(&everywhere, 96 << 20, 1);
    assert!(one.is_over());
    other.forget(&everywhere);
    one.look(&everywhere, 96 << 20, 1);
    assert_eq!(one.total(), 4 * MIB);
}

#[test]
fn reads_are_small_while_there_is_too_much() {
    let everywhere = AtomicI64::new(0);
    let mut shard = Unfinished::default();
    shard.look(&everywhere, 64 << 20, 100);
    let (key, other) = (ConnKey { index: 1, generation: 1 }, ConnKey { index: 2, generation: 1 });
    assert_eq!(shard.read_bytes(key), READ_BYTES);
    shard.add(16 * MIB, &everywhere);
    shard.turn = Some(ArrivalTurn { key, since_ms: 0, bytes_before: 0 });
    assert_eq!((shard.read_bytes(key), shard.read_bytes(other)), (READ_BYTES, (1 << 20) / 100));
    shard.look(&everywhere, 64 << 20, 1_000_000);
    assert_eq!(shard.read_bytes(other), PORTION_BYTES_MIN as usize);
}

#[test]
fn only_complete_lines_are_parsed() {
    assert_eq!(send_head(b"SEND\ndestination:/queue/a"), Some(&b"SEND\n"[..]));
    let head = send_head(b"SEND\r\ndestination:/queue/a\r\n\r\nbody").expect("a SEND");
    assert_eq!(head_value(head, header::DESTINATION), Some(&b"/queue/a"[..]));
    assert_eq!((send_head(b"SEN"), send_head(b"ACK\nid:1\n")), (None, None));
}

/// A connection that keeps this many bytes of a frame, which began at a given time.
fn arrives(connections: &mut Connections, turn: &Turn, key: ConnKey, bytes: usize, since_ms: u64) {
    let conn = connections.table.get_mut(key).expect("an open connection");
    conn.input.bytes = vec![0; bytes];
    conn.input.arrival.is_incomplete(true, 0, since_ms);
    conn.input.read_ms = since_ms;
    connections.count_input(turn, key);
}

fn limited(memory_limit: u64) -> Turn {
    crate::connection::fixtures::turn(Config { memory_limit, ..Config::default() })
}

#[test]
fn input_is_counted_by_its_capacity_until_the_connection_is_removed() {
    let ((mut connections, keys), turn) = (connections(1), limited(64 << 20));
    arrives(&mut connections, &turn, keys[0], 3000, 0);
    assert_eq!((connections.input_bytes, connections.unfinished.bytes), (3000, 3000));
    let conn = connections.table.remove(keys[0]).expect("an open connection");
    connections.discount_input(&turn, &conn);
    assert_eq!((connections.input_bytes, connections.unfinished.bytes), (0, 0));
}

#[test]
fn with_much_unfinished_input_frames_arrive_one_at_a_time() {
    let ((mut connections, keys), mut turn) = (connections(3), limited(12 << 20));
    for key in &keys {
        arrives(&mut connections, &turn, *key, 400 << 10, 0);
    }
    connections.unfinished.look(&turn.totals.unfinished, turn.config.memory_limit, 3);
    for key in &keys {
        assert!(connections.may_hold_arrival(&turn, *key) && connections.waits_to_arrive(*key));
        connections.park(&mut turn, *key, Pause::Arriving);
    }
    connections.check_unfinished(&mut turn);
    connections.check_unfinished(&mut turn);
    assert_eq!(connections.undrained, [keys[0]], "its turn has begun");
    assert!(!connections.waits_to_arrive(keys[0]) && connections.waits_to_arrive(keys[1]));
    connections.undrained.clear();
    connections.table.get_mut(keys[0]).expect("an open connection").input.arrival.is_over();
    assert!(connections.may_let_arrive());
    connections.check_unfinished(&mut turn);
    assert_eq!(connections.undrained, [keys[1]]);
}

/// Seed 52036554: a shard was busy until the next check.
#[test]
fn above_the_absolute_limit_the_next_frame_waits_for_the_next_check() {
    let ((mut connections, keys), mut turn) = (connections(3), limited(12 << 20));
    for key in &keys {
        arrives(&mut connections, &turn, *key, 400 << 10, 0);
    }
    connections.check_unfinished(&mut turn);
    keys.iter().for_each(|key| connections.park(&mut turn, *key, Pause::Arriving));
    turn.now_ms += CHECK_MS;
    connections.check_unfinished(&mut turn);
    connections.table.get_mut(keys[0]).expect("an open connection").input.arrival.is_over();
    assert!(connections.may_let_arrive());
    arrives(&mut connections, &turn, keys[1], 5 << 20, 0);
    connections.unfinished.look(&turn.totals.unfinished, turn.config.memory_limit, 3);
    assert!(connections.unfinished.excess() > 0 && !connections.may_let_arrive());
    connections.undrained.clear();
    connections.check_unfinished(&mut turn);
    assert!(connections.undrained.is_empty(), "it would be busy for nothing");
}

#[test]
fn stalled_frames_are_refused_first_then_the_largest() {
    let ((mut connections, keys), mut turn) = (connections(3), limited(6 << 20));
    turn.now_ms = STALLED_MS;
    arrives(&mut connections, &turn, keys[0], 500 << 10, 0);
    arrives(&mut connections, &turn, keys[1], 800 << 10, STALLED_MS);
    let ended = |connections: &Connections| {
        let has_ended = |key: &&ConnKey| connections.table.get(**key).is_some_and(|conn| conn.life.ending);
        keys.iter().filter(has_ended).copied().collect::<Vec<_>>()
    };
    connections.check_unfinished(&mut turn);
    assert_eq!(ended(&connections), [keys[0]]);
    arrives(&mut connections, &turn, keys[2], 1900 << 10, STALLED_MS);
    connections.check_unfinished(&mut turn);
    assert_eq!(ended(&connections), [keys[0]], "the interval of checks is not over");
    turn.now_ms += CHECK_MS;
    connections.unfinished.turn = None;
    connections.check_unfinished(&mut turn);
    assert!(ended(&connections).contains(&keys[2]) && connections.input_bytes < 1 << 20);
}

#[test]
fn who_waits_for_the_answer_to_a_query_is_not_refused_before_it_comes() {
    let ((mut connections, keys), mut turn) = (connections(2), limited(6 << 20));
    turn.now_ms = 1;
    arrives(&mut connections, &turn, keys[0], 3 << 20, 1);
    connections.wait_for(&mut turn, keys[0], Question::Query(7));
    arrives(&mut connections, &turn, keys[1], 2 << 20, 1);
    let has_ended = |connections: &Connections, key| {
        connections.table.get(key).is_none_or(|conn: &Conn| conn.life.ending)
    };
    connections.check_unfinished(&mut turn);
    assert!(!has_ended(&connections, keys[0]) && has_ended(&connections, keys[1]));
    connections.go_on_after(&mut turn, keys[0], Question::Query(7));
    turn.now_ms += CHECK_MS;
    connections.check_unfinished(&mut turn);
    assert!(has_ended(&connections, keys[0]));
}

#[test]
fn a_small_frame_is_not_refused_for_large_ones_of_other_shards() {
    for (largest_elsewhere, is_refused) in [(1 << 20, false), (300 << 10, true)] {
        let ((mut connections, keys), mut turn) = (connections(1), limited(6 << 20));
        let totals = Totals { largest_input: Largest::new(2), ..Totals::default() };
        turn.totals = Arc::new(totals);
        turn.totals.unfinished.fetch_add(5 << 19, Ordering::Relaxed);
        turn.totals.largest_input.note(ShardId(1), largest_elsewhere);
        turn.now_ms = CHECK_MS;
        arrives(&mut connections, &turn, keys[0], 200 << 10, CHECK_MS);
        connections.check_unfinished(&mut turn);
        let has_ended = connections.table.get(keys[0]).is_none_or(|conn| conn.life.ending);
        assert_eq!(has_ended, is_refused, "another shard has one of {largest_elsewhere} bytes");
    }
}
