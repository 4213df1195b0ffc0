//! BEGIN, and ACKs that wait for COMMIT, while memory is short.

use std::sync::atomic::Ordering;

use super::fixture::{Fixture, RECEIPT, bodies, fixture, header};
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
    fixture.turn.memory.compare(held, limit, &std::sync::atomic::AtomicBool::new(false));
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
fn while_memory_is_short_the_acks_of_a_transaction_take_a_portion_at_most() {
    for command in ["ACK", "NACK"] {
        let mut fixture = fixture();
        let (key, queue, ids) = consumer(&mut fixture, 1);
        let ack = |_| format!("{command}\nid:{}\ntransaction:t\n\n", ids[0]);
        fixture.send(key, "BEGIN\ntransaction:t\n\n");
        hold(&mut fixture, 79);
        let portion = fixture.connections.unfinished.portion();
        let fitting = portion / size_of::<Operation>();
        assert_eq!(repeat(&mut fixture, key, fitting / 4, ack), fitting / 4);
        hold(&mut fixture, 81);
        let more = repeat(&mut fixture, key, fitting, ack);
        assert!((fitting / 4..fitting).contains(&(fitting / 4 + more)), "{more} more, {fitting} fit");
        assert_eq!(fixture.error_to(key), "E-MEMORY");
        hold(&mut fixture, 0);
        let other = fixture.client();
        fixture.send(other, &format!("SUBSCRIBE\nid:s\ndestination:{queue}\n\n"));
        let sent = fixture.sent_to(other);
        assert_eq!(bodies(&sent), ["0"], "it is requeued");
    }
}

#[test]
fn a_large_transaction_may_grow_while_memory_is_not_short() {
    let mut fixture = fixture();
    let (key, _, ids) = consumer(&mut fixture, 1);
    fixture.send(key, "BEGIN\ntransaction:t\n\n");
    hold(&mut fixture, 50);
    assert_eq!(repeat(&mut fixture, key, 2000, |_| format!("ACK\nid:{}\ntransaction:t\n\n", ids[0])), 2000);
}

#[test]
fn transactions_of_other_connections_count_within_the_turn() {
    let mut fixture = fixture();
    let (key, _, ids) = consumer(&mut fixture, 1);
    fixture.send(key, "BEGIN\ntransaction:t\n\n");
    hold(&mut fixture, 79);
    let ack = |_| format!("ACK\nid:{}\ntransaction:t\n\n", ids[0]);
    assert_eq!(repeat(&mut fixture, key, 1000, ack), 1000);
    fixture.connections.input_bytes += usize::try_from(fixture.turn.memory_limit() / 50).expect("it fits");
    assert_eq!(repeat(&mut fixture, key, 1, ack), 0);
    assert_eq!(fixture.error_to(key), "E-MEMORY");
}

#[test]
fn a_small_transaction_is_committed_whatever_memory_is_held() {
    let mut fixture = fixture();
    let (key, _, ids) = consumer(&mut fixture, 5);
    hold(&mut fixture, 110);
    fixture.send(key, "BEGIN\ntransaction:t\n\n");
    for id in ids {
        fixture.send(key, &format!("ACK\nid:{id}\ntransaction:t\n\n"));
    }
    fixture.send(key, "COMMIT\ntransaction:t\nreceipt:r\n\n");
    assert_eq!((fixture.sent_to(key).as_str(), fixture.turn.counters.acked), (RECEIPT, 5));
}

#[test]
fn while_memory_is_full_a_transaction_takes_little() {
    let mut fixture = fixture();
    let (key, _, ids) = consumer(&mut fixture, 1);
    hold(&mut fixture, 100);
    fixture.send(key, "BEGIN\ntransaction:t\n\n");
    let accepted = repeat(&mut fixture, key, 40, |_| format!("ACK\nid:{}\ntransaction:t\n\n", ids[0]));
    assert!((5..40).contains(&accepted), "{accepted}");
    assert_eq!(fixture.error_to(key), "E-MEMORY");
    let other = fixture.client();
    fixture.send(other, &format!("BEGIN\ntransaction:{}\n\n", "n".repeat(3000)));
    assert_eq!(fixture.error_to(other), "E-MEMORY");
}

#[test]
fn while_memory_is_short_the_names_of_transactions_take_a_portion_at_most() {
    let mut fixture = fixture();
    let (key, ..) = consumer(&mut fixture, 1);
    let other = fixture.client();
    hold(&mut fixture, 81);
    let portion = fixture.connections.unfinished.portion();
    let begin = |at| format!("BEGIN\ntransaction:{at}{}\n\n", "n".repeat(5000));
    let accepted = repeat(&mut fixture, key, 50, begin);
    assert!((portion / 2..portion).contains(&(5000 * accepted)), "{accepted}");
    assert_eq!(fixture.error_to(key), "E-MEMORY");
    fixture.send(other, "BEGIN\ntransaction:t\nreceipt:r\n\n");
    assert_eq!(fixture.sent_to(other), RECEIPT);
    fixture.send(other, &begin(0));
    assert_eq!(fixture.error_to(other), "E-MEMORY", "it has nothing to acknowledge");
}

#[test]
fn sends_in_a_transaction_do_not_count_against_its_acks() {
    let mut fixture = fixture();
    let (key, _, ids) = consumer(&mut fixture, 1);
    fixture.send(key, "BEGIN\ntransaction:t\n\n");
    repeat(&mut fixture, key, 1000, |_| "SEND\ndestination:/topic/a\ntransaction:t\n\nresult".to_owned());
    hold(&mut fixture, 81);
    fixture.send(key, &format!("ACK\nid:{}\ntransaction:t\nreceipt:r\n\n", ids[0]));
    assert_eq!(fixture.sent_to(key), RECEIPT);
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
