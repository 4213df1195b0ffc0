//! Transactions while memory is short.

use std::sync::atomic::Ordering;

use super::fixture::{Fixture, fixture, header};
use crate::connection::pausing::Pause;
use crate::connection::transaction::Operation;
use crate::delivery::fixture::OWN;
use crate::ids::ConnKey;

/// A client to which messages of a queue were delivered, the queue, and the ids of the deliveries.
fn consumer(fixture: &mut Fixture, count: usize) -> (ConnKey, String, Vec<String>) {
    let (key, publisher) = (fixture.client(), fixture.client());
    let queue = fixture.name_at(OWN, "/queue/");
    fixture.send(key, &format!("SUBSCRIBE\nid:s\ndestination:{queue}\nack:client-individual\n\n"));
    for at in 0..count {
        fixture.send(publisher, &format!("SEND\ndestination:{queue}\n\n{at}"));
    }
    let sent = fixture.sent_to(key);
    let ids: Vec<String> = sent.split_terminator('\0').map(|frame| header(frame, "ack")).collect();
    assert_eq!(ids.len(), count);
    (key, queue, ids)
}

/// Makes this share of `memory_limit`, in percent, be held, by others.
fn hold(fixture: &mut Fixture, percent: i64) {
    let limit = fixture.turn.memory_limit();
    let held = limit / 100 * percent;
    fixture.turn.totals.memory.store(held, Ordering::Relaxed);
    fixture.turn.memory.compare(held, limit);
    let owners = fixture.owners();
    owners.connections.check_unfinished(owners.turn);
}

fn is_open(fixture: &mut Fixture, key: ConnKey) -> bool {
    fixture.conn(key).life.is_open() && !fixture.conn(key).life.ending
}

/// Sends a frame until it is refused, at most so many times. Returns how many were accepted.
fn repeat(fixture: &mut Fixture, key: ConnKey, most: usize, frame: impl Fn(usize) -> String) -> usize {
    for at in 0..most {
        fixture.handle(key, &frame(at));
        if !is_open(fixture, key) {
            return at;
        }
    }
    most
}

#[test]
fn the_operations_of_a_commit_that_waits_are_held() {
    let mut fixture = fixture();
    let (key, _, ids) = consumer(&mut fixture, 1);
    fixture.send(key, "BEGIN\ntransaction:t\n\n");
    fixture.send(key, "SEND\ndestination:/queue/unread\ntransaction:t\n\nwaits");
    repeat(&mut fixture, key, 1000, |_| format!("ACK\nid:{}\ntransaction:t\n\n", ids[0]));
    hold(&mut fixture, 100);
    fixture.send(key, "COMMIT\ntransaction:t\n\n");
    assert_eq!(fixture.conn(key).wait.pause(), Some(Pause::Memory));
    let held = fixture.conn(key).input_bytes();
    assert!(held >= 1000 * size_of::<Operation>(), "{held}");
}
