//! Diagnostics as clients ask for them, alone: what is refused, who is asked, and how the answer comes.

use super::fixture::{Fixture, fixture, header, with_clients};
use crate::connection::flow::Flow;
use crate::connection::pausing::Pause;
use crate::delivery::fixture::OTHER;
use crate::ids::ConnKey;
use crate::queue::mail::{DiagnosticsNote, Note};
use crate::report::Query;
use crate::report::merge::{Report, ShardReport};
use crate::text::Weight;

/// A client on another machine.
fn remote_client(fixture: &mut Fixture) -> ConnKey {
    let key = fixture.client();
    fixture.conn(key).peer = "192.0.2.1:1".parse().expect("an address");
    key
}

/// The other shard answers the query that it was asked.
fn answer(fixture: &mut Fixture, query: Query) {
    let number = match fixture.notes_to_other().pop() {
        Some(Note::Diagnostics(DiagnosticsNote::Diagnose(asked, number))) => {
            assert_eq!(asked, query);
            number
        }
        note => panic!("not a question: {note:?}"),
    };
    let report = ShardReport { report: Report::empty(query), left_out: 0, weight: Weight::new(0) };
    fixture.owners().diag().diagnosed(number, report);
    fixture.settle();
}

#[test]
fn a_diag_frame_is_answered_once_all_shards_have_reported() {
    let (mut fixture, [key]) = with_clients(|_| ());
    assert_eq!(fixture.send(key, "DIAG\nreceipt:r\n\nsession-size"), Flow::Waiting);
    assert_eq!(fixture.sent_to(key), "");
    answer(&mut fixture, Query::SessionSize);
    let sent = fixture.sent_to(key);
    assert!(sent.starts_with("DIAG\n") && sent.ends_with("RECEIPT\nreceipt-id:r\n\n\0"), "{sent}");
    assert!(!fixture.conn(key).wait.is_on());
}

#[test]
fn a_query_by_send_is_answered_to_the_subscriptions_of_its_destination() {
    let (mut fixture, [key, other]) = with_clients(|_| ());
    for subscriber in [key, other] {
        fixture.send(subscriber, "SUBSCRIBE\nid:0\ndestination:DIAG\n\n");
    }
    assert_eq!(fixture.send(key, "SEND\ndestination:DIAG\nx:y\n\nsession-size"), Flow::Waiting);
    answer(&mut fixture, Query::SessionSize);
    for subscriber in [key, other] {
        let sent = fixture.sent_to(subscriber);
        assert_eq!((header(&sent, "destination"), header(&sent, "x")), ("DIAG".into(), "y".into()));
    }
}

#[test]
fn peers_on_other_machines_get_no_diagnostics() {
    let mut fixture = fixture();
    for frame in [
        "DIAG\n\nsession-size",
        "SEND\ndestination:DIAG\n\nsession-size",
        "SUBSCRIBE\nid:0\ndestination:DIAG\n\n",
        "SUBSCRIBE\nid:0\ndestination:/queue/monitor\n\n",
    ] {
        let key = remote_client(&mut fixture);
        fixture.send(key, frame);
        assert_eq!(fixture.error_to(key), "E-FORBIDDEN", "{frame}");
    }
    assert_eq!(fixture.diagnostics.asked(), 0);
}

#[test]
fn queries_that_are_not_understood_are_refused() {
    let mut fixture = fixture();
    fixture.expect_refusals(&[
        ("DIAG\n\nnothing", "E-DIAG-QUERY"),
        ("SEND\ndestination:DIAG\n\nnothing", "E-DIAG-QUERY"),
        ("SEND\ndestination:DIAG\ntransaction:t\n\nsession-size", "E-VALUE"),
        ("SUBSCRIBE\nid:0\ndestination:DIAG\ninterval:99\n\n", "E-VALUE"),
        ("SUBSCRIBE\nid:0\ndestination:DIAG\ninterval:x\n\n", "E-VALUE"),
        ("SUBSCRIBE\nid:0\ndestination:DIAG\ninterval:100\nquery:nothing\n\n", "E-DIAG-QUERY"),
        ("SUBSCRIBE\nid:0\ndestination:DIAG/nothing\ninterval:100\n\n", "E-DIAG-QUERY"),
    ]);
    assert_eq!(fixture.diagnostics.asked(), 0);
}

#[test]
fn a_query_is_answered_behind_what_fills_the_outbox() {
    let (mut fixture, [key]) = with_clients(|config| config.outbox_limit = 10);
    fixture.send(key, "BEGIN\ntransaction:t\nreceipt:r\n\n");
    assert_eq!(fixture.send(key, "DIAG\n\nsession-size"), Flow::Waiting);
    answer(&mut fixture, Query::SessionSize);
    let sent = fixture.sent_to(key);
    assert!(sent.starts_with("RECEIPT\n") && sent.contains("\0DIAG\n"), "{sent}");
}

#[test]
fn a_query_by_send_waits_as_other_messages_do() {
    let (mut fixture, [key]) = with_clients(|_| ());
    fixture.subscribe_other("DIAG");
    fixture.peers.busy.congested = OTHER.bit();
    let frame = "SEND\ndestination:DIAG\n\nsession-size";
    assert_eq!(fixture.send(key, frame), Flow::Parked);
    assert_eq!(fixture.conn(key).wait.pause(), Some(Pause::Mailbox));
    fixture.peers.busy.congested = 0;
    fixture.unpark(key);
    assert_eq!(fixture.send(key, frame), Flow::Waiting);
}

#[test]
fn a_subscription_with_an_interval_watches_its_query() {
    let (mut fixture, [key]) = with_clients(|_| ());
    for (id, headers, query) in [
        ("0", "destination:DIAG\ninterval:100\n", Query::Session),
        ("1", "destination:DIAG\ninterval:100\nquery:ack\n", Query::Ack),
        ("2", "destination:DIAG/session-size\ninterval:500\n", Query::SessionSize),
        ("3", "destination:DIAG.ack\ninterval:500\n", Query::Ack),
    ] {
        fixture.send(key, &format!("SUBSCRIBE\nid:{id}\n{headers}\n"));
        let subscription = fixture.subscription(key, id);
        let watch = fixture.diagnostics.watches.get(&subscription).map(|watch| watch.query);
        assert_eq!(watch, Some(query), "{headers}");
        fixture.send(key, &format!("UNSUBSCRIBE\nid:{id}\n\n"));
        assert!(fixture.diagnostics.watches.is_empty());
    }
}
