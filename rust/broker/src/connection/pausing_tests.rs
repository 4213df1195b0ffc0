//! Tests of waits.

use super::*;
use crate::connection::conn::Conn;

/// Creates connections whose sockets lead nowhere.
fn connections(count: usize) -> (Conns, Vec<ConnKey>) {
    let mut conns = Conns::default();
    let keys = (0..count).map(|at| conns.insert(Conn::scripted(at as u64))).collect();
    (conns, keys)
}

/// Creates a connection for each of these pauses; each has waited since 1, 2, … ms.
fn parked(pauses: &[Pause]) -> (Parking, Conns, Vec<ConnKey>) {
    let (mut conns, keys) = connections(pauses.len());
    let mut parking = Parking::default();
    for (since_ms, (key, pause)) in (1..).zip(keys.iter().zip(pauses)) {
        parking.hold(&mut conns, *key, *pause, since_ms);
    }
    (parking, conns, keys)
}

#[test]
fn only_its_own_answer_ends_the_wait_for_an_answer() {
    let (mut conns, keys) = connections(1);
    let (mut parking, key) = (Parking::default(), keys[0]);
    parking.ask(&mut conns, key, Question::Commit(7), 5);
    assert!(!parking.hold(&mut conns, key, Pause::Memory, 6) && !parking.end_wait(&mut conns, key));
    Pause::ALL.iter().for_each(|pause| parking.retry(*pause));
    assert_eq!((parking.next_to_retry(&mut conns), parking.len()), (None, 0));
    assert!(!Parking::answered(&mut conns, key, Question::Commit(8)));
    assert!(!Parking::answered(&mut conns, key, Question::Query(7)));
    assert_eq!(conns.get(key).and_then(|conn| conn.wait.since_ms()), Some(5));
    assert!(Parking::answered(&mut conns, key, Question::Commit(7)));
    assert!(!Parking::answered(&mut conns, key, Question::Commit(7)));
}

#[test]
fn an_error_names_what_its_frame_waited_for() {
    let (mut conns, keys) = connections(1);
    let (mut parking, key) = (Parking::default(), keys[0]);
    let mut texts: Vec<&str> = Vec::new();
    for pause in Pause::ALL {
        parking.hold(&mut conns, key, pause, 1);
        texts.extend(conns.get(key).map(|conn| conn.wait.describe()));
        parking.end_wait(&mut conns, key);
    }
    let fan_out = crate::collections::keyed::Key { index: 0, generation: 1 };
    for question in [Question::Commit(1), Question::FanOut(fan_out), Question::Turn(1)] {
        parking.ask(&mut conns, key, question, 1);
        texts.extend(conns.get(key).map(|conn| conn.wait.describe()));
        Parking::answered(&mut conns, key, question);
    }
    assert_eq!(texts.len(), Pause::ALL.len() + 3);
    assert_eq!(texts.iter().filter(|text| text.contains("memory_limit")).count(), 5, "{texts:?}");
    assert_eq!(texts.last(), Some(&"nothing"), "the end of a COMMIT is not waited for by a SEND");
    texts.sort_unstable();
    texts.dedup();
    assert_eq!(texts.len(), Pause::ALL.len() + 3, "each wait has its own text");
}

#[test]
fn a_connection_that_resumed_alone_is_no_longer_on_the_list() {
    let (mut parking, mut conns, keys) = parked(&[Pause::Arriving, Pause::Memory]);
    assert_eq!(parking.first_of(&[Pause::Memory, Pause::Arriving]), Some(keys[0]));
    assert!(parking.end_wait(&mut conns, keys[0]));
    parking.ask(&mut conns, keys[0], Question::Commit(1), 3);
    parking.retry(Pause::Arriving);
    assert!(!parking.has_retries());
    assert_eq!(conns.get(keys[0]).and_then(|conn| conn.wait.question()), Some(Question::Commit(1)));
    parking.end(&mut conns, keys[1]);
    assert!(parking.is_empty());
}

#[test]
fn a_retry_includes_those_that_wait_for_this_room_now() {
    let (mut parking, mut conns, keys) = parked(&[Pause::Mailbox, Pause::Memory, Pause::Mailbox]);
    parking.retry(Pause::Mailbox);
    assert_eq!(parking.next_to_retry(&mut conns), Some(keys[0]));
    // It has to wait again, after the others, with its original start time.
    parking.hold(&mut conns, keys[0], Pause::Mailbox, 9);
    assert_eq!(parking.next_to_retry(&mut conns), Some(keys[2]));
    assert_eq!((parking.next_to_retry(&mut conns), parking.len()), (None, 2));
    assert_eq!(conns.get(keys[0]).and_then(|conn| conn.wait.since_ms()), Some(1));
}
