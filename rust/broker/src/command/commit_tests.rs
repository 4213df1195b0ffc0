//! Tests of COMMIT and ABORT alone: the test acts as the other home.

#[path = "commit_wait_tests.rs"]
mod wait_tests;

use super::fixture::{Fixture, RECEIPT, bodies, config, fixture, header, with_clients};
use crate::connection::Effect;
use crate::connection::flow::Flow;
use crate::connection::pausing::{Pause, Question};
use crate::connection::transaction::Committing;
use crate::delivery::fixture::{OTHER, OWN};
use crate::ids::{ConnKey, ShardId};
use crate::queue::mail::{HomeNote, Note, TransactionNote};
use crate::requester::Requester;
use crate::store::double::{Call, Journal};
use crate::store::handle::Handle;
use crate::turn::budget::Budget;
use crate::turn::jobs::Job;
use stompica_proto::ProtocolError;
use stompica_proto::encode::Offender;
use stompica_proto::error::Code;

const COMMIT: &str = "COMMIT\ntransaction:t\nreceipt:r\n\n";

/// A client with the open transaction `t`, which has a message for each of these destinations.
fn transaction(fixture: &mut Fixture, destinations: &[&str]) -> ConnKey {
    let key = fixture.client();
    fixture.send(key, "BEGIN\ntransaction:t\n\n");
    for destination in destinations {
        fixture.send(key, &format!("SEND\ndestination:{destination}\ntransaction:t\n\nx"));
    }
    key
}

/// A client with the open transaction `t`, which has a message for a queue at each of these homes; and the queues.
fn with_transaction<const HOMES: usize>(homes: [ShardId; HOMES]) -> (Fixture, ConnKey, [String; HOMES]) {
    let mut fixture = fixture();
    let queues = homes.map(|home| fixture.name_at(home, "/queue/"));
    let key = transaction(&mut fixture, &queues.each_ref().map(String::as_str));
    (fixture, key, queues)
}

/// A queue of this shard, a client that consumes it with this ack mode, and another client.
fn with_consumer(mode: &str) -> (Fixture, String, [ConnKey; 2]) {
    let (mut fixture, [key, other]) = with_clients(|_| ());
    let queue = fixture.name_at(OWN, "/queue/");
    fixture.send(key, &format!("SUBSCRIBE\nid:s\ndestination:{queue}\nack:{mode}\n\n"));
    (fixture, queue, [key, other])
}

fn is_applying(fixture: &mut Fixture, key: ConnKey) -> bool {
    matches!(fixture.conn(key).committing, Some(Committing::Applying { .. }))
}

/// The request for a reservation to the other shard.
fn asked(fixture: &mut Fixture) -> Requester {
    match fixture.notes_to_other().pop() {
        Some(Note::Transaction(TransactionNote::Prepare(reservations, requester))) => {
            assert_eq!(reservations.iter().map(|it| it.count).sum::<u64>(), 1);
            requester
        }
        note => panic!("not a request for a reservation: {note:?}"),
    }
}

/// Grants the reservation at the other shard.
fn agree(fixture: &mut Fixture, requester: Requester) {
    let to = requester.answered();
    fixture.owners().prepare_answered(to.conn, Ok((OTHER, Box::new([0]))));
    fixture.settle();
}

/// Refuses the reservation at the other shard.
fn refuse(fixture: &mut Fixture, requester: Requester) {
    let refusal = (ProtocolError::new(Code::QueueFull, "no room"), Offender::default());
    fixture.notes.answer(requester, Err(refusal));
    fixture.settle();
}

#[test]
fn a_commit_takes_effect_at_all_homes_after_all_have_agreed() {
    let (mut fixture, key, [here, there]) = with_transaction([OWN, OTHER]);
    assert_eq!(fixture.send(key, COMMIT), Flow::Waiting);
    let requester = asked(&mut fixture);
    assert_eq!((fixture.waiting(&here), fixture.conn(key).wait.is_on()), (0, true));
    agree(&mut fixture, requester);
    assert_eq!(fixture.waiting(&here), 1);
    let Some(Note::Transaction(TransactionNote::Commit(placed, _, requester))) =
        fixture.notes_to_other().pop()
    else {
        panic!("the other home is not told");
    };
    assert_eq!(
        placed.iter().map(|it| it.message.destination().to_vec()).collect::<Vec<_>>(),
        [there.as_bytes()]
    );
    assert!(!fixture.conn(key).wait.is_on() && fixture.conn(key).committing.is_none());
    assert_eq!(fixture.sent_to(key), "", "the other home has not applied it");
    fixture.confirm(requester);
    assert_eq!(fixture.sent_to(key), RECEIPT);
}

#[test]
fn a_commit_that_one_home_refuses_has_no_effect() {
    let (mut fixture, key, [here, _]) = with_transaction([OWN, OTHER]);
    fixture.send(key, COMMIT);
    let requester = asked(&mut fixture);
    refuse(&mut fixture, requester);
    let note = fixture.notes_to_other().pop();
    assert!(matches!(note, Some(Note::Transaction(TransactionNote::Cancel(_)))), "{note:?}");
    assert_eq!(fixture.waiting(&here), 0);
    assert_eq!(fixture.queues.prepared.len(), 0, "the own room is free again");
    fixture.end(key);
    let sent = fixture.sent_to(key);
    assert_eq!((header(&sent, "code"), header(&sent, "receipt-id")), ("E-QUEUE-FULL".into(), "r".into()));
}

#[test]
fn a_store_gets_a_commit_of_several_homes_as_one_record() {
    let (mut fixture, journal) = (fixture(), Journal::default());
    fixture.queues.home.store = Handle::new(journal.handle());
    let (here, there) = (fixture.name_at(OWN, "/queue/"), fixture.name_at(OTHER, "/queue/"));
    let key = fixture.client();
    fixture.send(key, "BEGIN\ntransaction:t\n\n");
    for queue in [&here, &there] {
        fixture.send(key, &format!("SEND\ndestination:{queue}\ntransaction:t\npersistent:true\n\nx"));
    }
    fixture.send(key, COMMIT);
    let to = asked(&mut fixture).answered();
    assert!(journal.calls().is_empty(), "it is not decided");
    fixture.owners().prepare_answered(to.conn, Ok((OTHER, Box::new([77]))));
    fixture.settle();
    let calls = journal.calls();
    let [Call::Transaction(kept)] = &calls[..] else { panic!("{calls:?}") };
    assert!(
        matches!(&kept[..], [(Call::Keep(_, one), _), (Call::Keep(_, two), 77)] if *one == here && *two == there)
    );
    let Some(Note::Transaction(TransactionNote::Commit(_, _, requester))) = fixture.notes_to_other().pop()
    else {
        panic!("the other home is not told");
    };
    fixture.confirm(requester);
    assert_eq!(fixture.sent_to(key), "", "the record is not safe");
    journal.save_all();
    fixture.owners().queue().answer_saved();
    fixture.settle();
    assert_eq!(fixture.sent_to(key), RECEIPT);
}

#[test]
fn a_large_commit_that_is_refused_frees_all_it_was_checked_for() {
    let mut fixture = fixture();
    let publisher = fixture.client();
    let held = |fixture: &mut Fixture| fixture.commits.discarded.front().map(|discarded| discarded.len());
    let queues: Vec<String> = (0..400).map(|at| format!("/queue/{at}")).collect();
    let destinations: Vec<&str> = queues.iter().map(String::as_str).collect();
    let key = transaction(&mut fixture, &destinations);
    let queue = fixture.name_at(OWN, "/queue/acked");
    fixture.send(key, &format!("SUBSCRIBE\nid:s\ndestination:{queue}\nack:client\n\n"));
    fixture.send(publisher, &format!("SEND\ndestination:{queue}\n\nx"));
    let ack = header(&fixture.sent_to(key), "ack");
    fixture.send(key, &format!("ACK\nid:{ack}\ntransaction:t\n\n"));
    fixture.send(key, "UNSUBSCRIBE\nid:s\n\n");
    fixture.handle(key, COMMIT);
    let check = fixture.turn.jobs.pop().expect("a check");
    fixture.proceed_with(check);
    assert_eq!(held(&mut fixture), Some(401 + 400), "its operations, and the room that it needs");
    fixture.settle();
    assert!(fixture.commits.discarded.is_empty() && fixture.notes_to_other().is_empty());
    assert_eq!(fixture.error_to(key), "E-TX-LOST");
}

#[test]
fn a_commit_of_nothing_is_confirmed_at_once() {
    let mut fixture = fixture();
    let key = transaction(&mut fixture, &[]);
    fixture.send(key, COMMIT);
    assert_eq!(fixture.sent_to(key), RECEIPT);
}

#[test]
fn a_transaction_is_ended_once() {
    for frame in ["COMMIT\ntransaction:t\n\n", "ABORT\ntransaction:t\n\n"] {
        let (mut fixture, key, [queue]) = with_transaction([OWN]);
        fixture.send(key, "ABORT\ntransaction:t\nreceipt:r\n\n");
        assert_eq!(fixture.sent_to(key), RECEIPT);
        fixture.send(key, frame);
        assert_eq!(fixture.error_to(key), "E-TX-UNKNOWN");
        assert_eq!(fixture.waiting(&queue), 0);
        let key = fixture.client();
        fixture.send(key, frame);
        assert_eq!(fixture.error_to(key), "E-TX-UNKNOWN");
    }
}

#[test]
fn an_open_transaction_is_not_begun_again() {
    let mut fixture = Fixture::new(config(|config| config.max_transactions = 1));
    for (id, code) in [("t", "E-TX-OPEN"), ("u", "E-TX-COUNT")] {
        let key = transaction(&mut fixture, &[]);
        fixture.send(key, &format!("BEGIN\ntransaction:{id}\n\n"));
        assert_eq!(fixture.error_to(key), code);
    }
}

#[test]
fn a_large_transaction_is_dropped_over_several_turns() {
    let mut fixture = fixture();
    let key = transaction(&mut fixture, &["/queue/a"; 300]);
    fixture.turn.budget = Budget::nearly_over();
    fixture.handle(key, "ABORT\ntransaction:t\nreceipt:r\n\n");
    assert_eq!(fixture.sent_to(key), RECEIPT);
    assert_eq!(fixture.turn.jobs.pop(), Some(Job::Discard));
    let discarded = fixture.commits.discarded.pop_front().expect("a transaction");
    fixture.turn.budget = Budget::nearly_over();
    fixture.owners().proceed_with_discarding(discarded);
    assert_eq!(fixture.commits.discarded.front().map(|it| it.len()), Some(299));
    fixture.settle();
    assert!(fixture.commits.discarded.is_empty());
}

#[test]
fn a_large_commit_is_checked_and_applied_over_several_turns() {
    let mut fixture = fixture();
    let queue = fixture.name_at(OWN, "/queue/");
    let key = fixture.client();
    fixture.send(key, "BEGIN\ntransaction:t\n\n");
    for _ in 0..5000 {
        fixture.handle(key, &format!("SEND\ndestination:{queue}\ntransaction:t\n\nx"));
    }
    fixture.handle(key, COMMIT);
    let mut jobs = Vec::new();
    while let Some(job) = fixture.turn.jobs.pop() {
        jobs.push(job);
        assert_eq!(fixture.sent_to(key), "");
        fixture.proceed_with(job);
        while fixture.turn.jobs.is_empty() && fixture.notes.has_local() {
            fixture.settle_notes();
        }
    }
    let count = |wanted: fn(&Job) -> bool| jobs.iter().filter(|job| wanted(job)).count();
    assert!(
        count(|job| matches!(job, Job::Check(..))) > 1 && count(|job| *job == Job::Apply) > 1,
        "{jobs:?}"
    );
    fixture.settle();
    assert_eq!((fixture.waiting(&queue), fixture.sent_to(key).as_str()), (5000, RECEIPT));
}

#[test]
fn an_ack_whose_delivery_was_requeued_voids_its_transaction() {
    let (mut fixture, queue, [key, publisher]) = with_consumer("client");
    fixture.send(publisher, &format!("SEND\ndestination:{queue}\n\nx"));
    let ack = header(&fixture.sent_to(key), "ack");
    fixture.send(key, "BEGIN\ntransaction:t\n\n");
    fixture.send(key, &format!("SEND\ndestination:{queue}\ntransaction:t\n\ny"));
    fixture.send(key, &format!("ACK\nid:{ack}\ntransaction:t\n\n"));
    fixture.send(key, "UNSUBSCRIBE\nid:s\n\n");
    fixture.send(key, COMMIT);
    assert_eq!(fixture.error_to(key), "E-TX-LOST");
    assert_eq!(fixture.waiting(&queue), 1, "the message that was requeued");
}

#[test]
fn messages_to_topics_are_published_with_their_commit() {
    let mut fixture = fixture();
    let (subscriber, topic) = (fixture.client(), fixture.name_at(OTHER, "/topic/"));
    fixture.send(subscriber, &format!("SUBSCRIBE\nid:s\ndestination:{topic}\n\n"));
    let key = fixture.client();
    fixture.send(key, "BEGIN\ntransaction:t\n\n");
    for (headers, body) in [("", "a"), ("retain:set\n", "b")] {
        fixture.send(key, &format!("SEND\ndestination:{topic}\ntransaction:t\n{headers}\n{body}"));
    }
    fixture.send(key, COMMIT);
    let requester = asked(&mut fixture);
    assert_eq!(fixture.sent_to(subscriber), "");
    agree(&mut fixture, requester);
    assert_eq!(bodies(&fixture.sent_to(subscriber)), ["a", "b"]);
    let mut notes = fixture.notes_to_other();
    let Some(Note::Transaction(TransactionNote::Commit(_, _, requester))) = notes.pop() else {
        panic!("the home is not told of the end");
    };
    let is_set = |note: Note| matches!(note, Note::Home(HomeNote::Retain(_, true, None)));
    assert!(notes.pop().is_some_and(is_set), "its value goes there with the message");
    fixture.confirm(requester);
    assert_eq!(fixture.sent_to(key), RECEIPT);
}

#[test]
fn an_expired_message_of_a_commit_is_not_published() {
    let (mut fixture, [subscriber, key]) = with_clients(|_| ());
    fixture.send(subscriber, "SUBSCRIBE\nid:s\ndestination:/topic/a\n\n");
    fixture.send(key, "BEGIN\ntransaction:t\n\n");
    fixture.send(key, "SEND\ndestination:/topic/a\ntransaction:t\nttl:5\n\nx");
    fixture.turn.now_ms += 10;
    fixture.send(key, COMMIT);
    assert_eq!((fixture.sent_to(key).as_str(), fixture.sent_to(subscriber).as_str()), (RECEIPT, ""));
    assert_eq!(fixture.turn.counters.expired, 1);
}

#[test]
fn a_commit_of_a_connection_that_ends_before_the_decision_is_cancelled() {
    let (mut fixture, key, [_]) = with_transaction([OTHER]);
    fixture.send(key, COMMIT);
    let requester = asked(&mut fixture);
    fixture.drop_connection(key);
    let effects = std::mem::take(&mut fixture.connections.effects);
    for effect in effects {
        if let Effect::AbandonsCommit(commit) = effect {
            fixture.owners().forget_commit(*commit);
        }
    }
    let note = fixture.notes_to_other().pop();
    assert!(matches!(note, Some(Note::Transaction(TransactionNote::Cancel(_)))), "{note:?}");
    agree(&mut fixture, requester);
    assert!(fixture.notes_to_other().is_empty() && fixture.commits.applying.is_empty(), "it is too late");
}

#[test]
fn open_transactions_of_a_connection_that_ends_are_dropped() {
    let mut fixture = fixture();
    let key = transaction(&mut fixture, &["/queue/a"; 300]);
    let open = fixture.conn(key).transactions.take();
    fixture.owners().discard_transactions(open);
    assert_eq!(fixture.commits.discarded.front().map(|it| it.len()), Some(300));
    fixture.settle();
    fixture.owners().discard_transactions(None);
    assert!(fixture.commits.discarded.is_empty());
}

#[test]
fn a_decided_commit_is_applied_although_its_connection_ends() {
    let (mut fixture, queue, [key, publisher]) = with_consumer("client-individual");
    ["a", "b"].iter().for_each(|body| {
        fixture.send(publisher, &format!("SEND\ndestination:{queue}\n\n{body}"));
    });
    let sent = fixture.sent_to(key);
    fixture.send(key, "BEGIN\ntransaction:t\n\n");
    fixture.send(key, &format!("ACK\nid:{}\ntransaction:t\n\n", header(&sent, "ack")));
    fixture.handle(key, COMMIT);
    let Some(check @ Job::Check(..)) = fixture.turn.jobs.pop() else { panic!("no check") };
    fixture.proceed_with(check);
    assert!(is_applying(&mut fixture, key));
    fixture.drop_connection(key);
    assert!(fixture.owners().leave_some(key));
    assert_eq!((fixture.commits.late.len(), fixture.waiting(&queue)), (1, 0));
    fixture.settle();
    assert!(fixture.commits.late.is_empty());
    assert_eq!(
        (fixture.turn.counters.acked, fixture.waiting(&queue)),
        (1, 1),
        "the other delivery is requeued"
    );
}

#[test]
fn a_retained_message_without_room_for_it_is_refused_by_its_home() {
    let mut fixture = Fixture::new(config(|config| config.max_retained = 1));
    let (publisher, topic) = (fixture.client(), fixture.name_at(OTHER, "/topic/"));
    let own = fixture.name_at(OWN, "/topic/");
    fixture.send(publisher, &format!("SEND\ndestination:{own}\nretain:set\n\nx"));
    let frame = format!("SEND\ndestination:{topic}\nretain:set\nreceipt:r\n\nx");
    assert_eq!(fixture.send(publisher, &frame), Flow::Waiting);
    let requester = asked(&mut fixture);
    refuse(&mut fixture, requester);
    assert_eq!(fixture.error_to(publisher), "E-QUEUE-FULL");
    assert!(!fixture.notes_to_other().iter().any(|note| matches!(note, Note::Home(HomeNote::Retain(..)))));
}
