//! Tests of the deadlines of a connection.

use super::*;
use crate::connection::answers::Answer;
use crate::connection::fixtures::{connections, read_everything, turn};
use crate::connection::full::Full;
use crate::ids::ConnKey;

/// The next deadline of a connection, and what is overdue then.
fn next(connections: &mut Connections, turn: &mut Turn, key: ConnKey) -> (u64, Option<Overdue>) {
    let conn = connections.table.get(key).expect("an open connection");
    turn.now_ms = conn.next_deadline(turn);
    read_everything(connections, turn, key);
    (turn.now_ms, connections.overdue(turn, key))
}

#[test]
fn a_connection_has_login_timeout_for_connect_and_a_refused_one_less() {
    let (mut connections, mut turn) = (Connections::default(), turn(Config::default()));
    let key = connections.table.insert(Conn::scripted(1));
    assert_eq!(next(&mut connections, &mut turn, key), (10_000, Some(Overdue::Login)));
    connections.table.get_mut(key).expect("an open connection").life.refused = true;
    assert_eq!(next(&mut connections, &mut turn, key), (REFUSAL_MS, Some(Overdue::Refusal)));
}

#[test]
fn a_connection_that_waits_for_memory_is_not_ended_for_its_missing_answers() {
    let (mut connections, keys) = connections(1);
    let conn = connections.table.get_mut(keys[0]).expect("an open connection");
    conn.input.eof = true;
    assert_eq!(conn.answers_deadline(70_000), None, "it waits for nothing");
    conn.answers.push(1, Answer::Silence, 1);
    conn.pulls = Some(Box::default());
    assert_eq!(conn.answers_deadline(70_000), Some(ANSWERS_MS));
    if let Some(pulls) = &mut conn.pulls {
        pulls.is_listed = true;
    }
    assert_eq!(conn.answers_deadline(70_000), Some(70_000 + ANSWERS_MS));
}

#[test]
fn a_client_is_silent_only_if_everything_was_read_that_may_have_come() {
    let (mut connections, mut turn) = (Connections::default(), turn(Config::default()));
    let key = connections.table.insert(Conn::connected(1, "10000,0"));
    turn.now_ms = 19_999;
    assert!(!connections.has_to_be_read_first(&turn, key));
    turn.now_ms = 25_000;
    // Its timer must not be set for later: reading may find at any time that nothing has come.
    assert_eq!(connections.table.get(key).map(|conn| conn.next_deadline(&turn)), Some(20_000));
    assert_eq!(connections.overdue(&turn, key), None);
    assert!(connections.has_to_be_read_first(&turn, key) && connections.overdue(&turn, key).is_none());
    assert_eq!(connections.table.get(key).map(|conn| conn.next_deadline(&turn)), Some(25_001));
    read_everything(&mut connections, &turn, key);
    assert_eq!(connections.overdue(&turn, key), Some(Overdue::Silence));
    assert!(!connections.has_to_be_read_first(&turn, key));
}

#[test]
fn a_deadline_waits_a_second_for_a_client_that_sends_without_end() {
    let ((mut connections, keys), mut turn) = (connections(1), turn(Config::default()));
    let arriving = connections.table.get_mut(keys[0]).expect("an open connection");
    arriving.input.arrival.is_incomplete(true, 0, 0);
    turn.now_ms = 40_000;
    assert!(connections.has_to_be_read_first(&turn, keys[0]));
    turn.now_ms += BEHIND_MS - 1;
    assert_eq!(connections.overdue(&turn, keys[0]), None);
    turn.now_ms += 1;
    assert_eq!(connections.overdue(&turn, keys[0]), Some(Overdue::Frame(30_000)));
}

#[test]
fn nothing_is_expected_from_clients_that_are_not_read_during_a_drain() {
    let (mut connections, mut turn) = (Connections::default(), turn(Config::default()));
    let keys = [Conn::connected(1, "10000,0"), Conn::scripted(2)].map(|conn| connections.table.insert(conn));
    (turn.is_draining, turn.now_ms) = (true, 25_000);
    for key in keys {
        assert!(!connections.has_to_be_read_first(&turn, key));
        assert_eq!(connections.table.get(key).map(|conn| conn.next_deadline(&turn)), Some(NEVER));
    }
}

#[test]
fn a_heart_beat_is_due_before_silence() {
    let (mut connections, mut turn) = (Connections::default(), turn(Config::default()));
    let key = connections.table.insert(Conn::connected(1, "10000,10000"));
    let (at_ms, overdue) = next(&mut connections, &mut turn, key);
    assert!(overdue == Some(Overdue::HeartBeat) && at_ms <= 10_000);
    connections.table.get_mut(key).expect("an open connection").output.written_ms = 60_000;
    let (at_ms, overdue) = next(&mut connections, &mut turn, key);
    assert!(overdue == Some(Overdue::Silence) && at_ms >= 10_000, "{at_ms} {overdue:?}");
}

#[test]
fn a_consumer_is_slow_when_it_takes_nothing_for_a_second() {
    let ((mut connections, keys), mut turn) = (connections(1), turn(Config::default()));
    let conn = connections.table.get_mut(keys[0]).expect("an open connection");
    conn.output.full = Some(Full::since(100));
    conn.output.stuck_since_ms = 100;
    conn.output
        .outbox
        .append(&mut connections.chunks, crate::message::chunk::Kind::Message, |out| out.push(0));
    conn.socket.script().untaken = 5;
    conn.check_socket(100);
    turn.now_ms = 1100;
    conn.socket.script().untaken = 4;
    assert_eq!(connections.overdue(&turn, keys[0]), None, "its peer has taken a byte");
    assert_eq!(next(&mut connections, &mut turn, keys[0]), (2100, Some(Overdue::SlowConsumer)));
}

#[test]
fn a_frame_that_is_held_has_publish_timeout_and_one_that_arrives_frame_timeout() {
    let ((mut connections, keys), mut turn) = (connections(2), turn(Config::default()));
    turn.now_ms = 500;
    connections.park(&mut turn, keys[0], Pause::Mailbox);
    assert_eq!(next(&mut connections, &mut turn, keys[0]), (30_500, Some(Overdue::Held)));
    let arriving = connections.table.get_mut(keys[1]).expect("an open connection");
    arriving.input.arrival.is_incomplete(true, 128 << 10, 700);
    assert_eq!(next(&mut connections, &mut turn, keys[1]), (32_700, Some(Overdue::Frame(32_000))));
}

#[test]
fn a_frame_that_waits_for_messages_in_the_outbox_has_the_time_of_a_slow_consumer() {
    let config = Config { slow_consumer: SlowConsumer::Block(Duration::from_secs(5)), ..Config::default() };
    let ((mut connections, keys), mut turn) = (connections(1), turn(config));
    connections.park_for(&mut turn, keys[0], Pause::Deferred, Some(0));
    assert_eq!(next(&mut connections, &mut turn, keys[0]), (5000, None), "there is nothing to take");
    connections.control(&mut turn, keys[0], |out| out.push(b'b'));
    connections.table.get_mut(keys[0]).expect("an open connection").socket.script().untaken = 5;
    assert_eq!(next(&mut connections, &mut turn, keys[0]), (10_000, Some(Overdue::Untaken)));
}

#[test]
fn a_half_closed_client_may_be_silent_while_it_waits_for_answers() {
    let (mut connections, mut turn) = (Connections::default(), turn(Config::default()));
    let key = connections.table.insert(Conn::connected(1, "10000,0"));
    connections.ask(&mut turn, key, Some(b"1"), 0b10);
    connections.table.get_mut(key).expect("an open connection").input.eof = true;
    assert_eq!(next(&mut connections, &mut turn, key), (ANSWERS_MS, Some(Overdue::Answers)));
}

#[test]
fn a_connection_that_ends_is_timed_out_once_however_long_its_answers_take() {
    let ((mut connections, keys), mut turn) = (connections(1), turn(Config::default()));
    let key = connections.table.insert(Conn::connected(2, "10000,0"));
    connections.ask(&mut turn, keys[0], Some(b"1"), 0b10);
    let arriving = connections.table.get_mut(keys[0]).expect("an open connection");
    arriving.input.arrival.is_incomplete(true, 0, 0);
    assert_eq!(next(&mut connections, &mut turn, keys[0]), (30_000, Some(Overdue::Frame(30_000))));
    connections.handle_deadline(&mut turn, keys[0]);
    let answers_ms = 30_000 + ANSWERS_MS;
    assert_eq!(next(&mut connections, &mut turn, keys[0]), (answers_ms, Some(Overdue::Answers)));
    turn.now_ms = 0;
    connections.ask(&mut turn, key, Some(b"1"), 0b10);
    connections.disconnect(&mut turn, key, None);
    assert_eq!(
        next(&mut connections, &mut turn, key),
        (ANSWERS_MS, Some(Overdue::Answers)),
        "it may be silent"
    );
}

#[test]
fn a_fan_out_has_a_time_limit_only_while_memory_stops_it() {
    let ((mut connections, keys), mut turn) = (connections(1), turn(Config::default()));
    let (key, fan_out) = (keys[0], crate::collections::keyed::Key { index: 0, generation: 1 });
    connections.wait_for(&mut turn, key, Question::FanOut(fan_out));
    assert_eq!(next(&mut connections, &mut turn, key), (30_000, Some(Overdue::Held)));
    assert!(!connections.note_stopped(&turn, key, Some(10_000)), "memory has stopped it only since then");
    assert_eq!(next(&mut connections, &mut turn, key), (40_000, Some(Overdue::Held)));
    assert!(connections.note_stopped(&turn, key, Some(10_000)));
    assert!(!connections.note_stopped(&turn, key, None), "the fan-out waits for outboxes");
    assert_eq!(connections.table.get(key).map(|conn| conn.next_deadline(&turn)), Some(NEVER));
}

#[test]
fn a_replaced_deadline_is_ignored() {
    let ((mut connections, keys), mut turn) = (connections(1), turn(Config::default()));
    connections.park(&mut turn, keys[0], Pause::Mailbox);
    assert_eq!(turn.timers.pop_due(30_000), Some((30_000, Due::Conn(keys[0]))));
    assert!(!connections.take_deadline(keys[0], 40_000) && connections.take_deadline(keys[0], 30_000));
    assert!(!connections.take_deadline(keys[0], 30_000));
}
