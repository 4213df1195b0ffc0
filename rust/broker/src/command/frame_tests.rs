//! The way of a frame to its command, alone: refusals, waits, and the log of frames; and frames that arrive in parts.

use std::sync::Arc;

use super::fixture::{Fixture, RECEIPT, config, fixture, header, with_clients};
use crate::config::SlowConsumer;
use crate::connection::flow::Flow;
use crate::connection::pausing::Pause;
use crate::delivery::fixture::{OTHER, OWN};
use crate::ids::ConnKey;
use crate::mail::inbound::Inbound;
use crate::mail::mailbox::Batch;
use crate::turn::budget::Budget;

#[test]
fn a_frame_that_is_refused_is_described_in_the_error() {
    let (mut fixture, [key]) = with_clients(|_| ());
    let frame = "SEND\ndestination:/queue/*\nreceipt:r\npasscode:secret\n\nhello";
    assert_eq!(fixture.send(key, frame), Flow::Done);
    fixture.end(key);
    let sent = fixture.sent_to(key);
    assert_eq!((header(&sent, "code"), header(&sent, "receipt-id")), ("E-DEST-WILDCARD".into(), "r".into()));
    assert!(sent.contains("/queue/*") && !sent.contains("secret"), "{sent}");
    assert_eq!(fixture.turn.counters.errors, 1);
}

#[test]
fn frames_that_the_session_refuses_end_the_connection() {
    let mut fixture = fixture();
    fixture.expect_refusals(&[
        ("CONNECT\naccept-version:1.2\nhost:h\n\n", "E-CONNECTED"),
        ("SEND\n\n", "E-DEST-MISSING"),
        ("SUBSCRIBE\ndestination:/topic/a\n\n", "E-ID-MISSING"),
        ("COMMIT\n\n", "E-TX-MISSING"),
    ]);
    let key = fixture.accept();
    fixture.send(key, "SEND\ndestination:/queue/a\n\n");
    assert_eq!(fixture.error_to(key), "E-NOT-CONNECTED");
}

#[test]
fn a_connect_waits_for_its_login_check() {
    let mut fixture = fixture();
    fixture.connections.check_logins_later();
    let key = fixture.accept();
    assert_eq!(fixture.send(key, "CONNECT\naccept-version:1.2\nhost:h\nlogin:me\n\n"), Flow::Waiting);
    assert!(fixture.conn(key).wait.is_on() && fixture.sent_to(key).is_empty());
}

#[test]
fn a_disconnect_is_confirmed_after_what_other_shards_may_refuse() {
    let mut fixture = fixture();
    let (key, queue) = (fixture.client(), fixture.name_at(OTHER, "/queue/"));
    fixture.send(key, "DISCONNECT\nreceipt:r\n\n");
    fixture.end(key);
    assert_eq!(fixture.sent_to(key), RECEIPT);
    let key = fixture.client();
    fixture.send(key, &format!("SEND\ndestination:{queue}\n\nx"));
    fixture.send(key, "DISCONNECT\nreceipt:r\n\n");
    assert!(fixture.conn(key).life.is_open() && fixture.sent_to(key).is_empty());
}

/// A message of the other shard, mailed before the last read of the connection, has not been routed.
fn mail_before(fixture: &mut Fixture, key: ConnKey) {
    let inbound = Inbound { batch: Arc::new(Batch::default()), round: 0, newest: 0, next: 0, behind: None };
    fixture.peers.inbound.batches.push_back(inbound);
    fixture.conn(key).input.read_round = 0;
}

#[test]
fn a_subscription_begins_and_ends_behind_the_messages_before_it() {
    let (mut fixture, [key]) = with_clients(|_| ());
    fixture.send(key, "SUBSCRIBE\nid:0\ndestination:/topic/a\n\n");
    mail_before(&mut fixture, key);
    for frame in ["SUBSCRIBE\nid:1\ndestination:/topic/a\n\n", "UNSUBSCRIBE\nid:0\n\n", "DISCONNECT\n\n"] {
        assert_eq!(fixture.send(key, frame), Flow::Later, "{frame}");
    }
    assert_eq!(fixture.send(key, "SEND\ndestination:/topic/a\nreceipt:r\n\n"), Flow::Done);
    assert_eq!((fixture.router.subscriptions.len(), fixture.conn(key).subscriptions.len()), (1, 1));
    fixture.peers.inbound.batches.clear();
    assert_eq!(fixture.send(key, "UNSUBSCRIBE\nid:0\n\n"), Flow::Done);
    assert_eq!(fixture.router.subscriptions.len(), 0);
}

#[test]
fn a_frame_behind_mail_that_waits_for_memory_is_parked() {
    let (mut fixture, [key, subscriber]) = with_clients(|config| config.memory_limit = 1 << 20);
    (0..3000).for_each(|id| _ = fixture.subscribe(subscriber, "/topic/a", &id.to_string(), None));
    fixture.turn.budget = Budget::nearly_over();
    let fan_out = fixture.deliver("/topic/a", "x").expect("it takes turns");
    mail_before(&mut fixture, key);
    fixture.peers.inbound.batches[0].behind = Some(fan_out);
    fixture.fill_memory_and_an_outbox();
    assert_eq!(fixture.send(key, "SUBSCRIBE\nid:0\ndestination:/topic/b\n\n"), Flow::Parked);
    assert_eq!(fixture.conn(key).wait.pause(), Some(Pause::Mail));
}

#[test]
fn a_subscription_ends_behind_what_its_connection_is_owed() {
    let policy = SlowConsumer::Block(std::time::Duration::from_secs(5));
    let mut fixture = Fixture::new(config(|config| {
        (config.outbox_limit, config.slow_consumer) = (40, policy);
    }));
    let (key, publisher) = (fixture.client(), fixture.client());
    for member in [key, publisher] {
        fixture.send(member, "SUBSCRIBE\nid:0\ndestination:/topic/a\n\n");
    }
    for _ in 0..2 {
        fixture.send(publisher, "SEND\ndestination:/topic/a\n\nx");
        let base = &mut *fixture;
        base.connections.distribute(&mut base.turn);
    }
    assert!(fixture.connections.has_deferred(key));
    assert!(fixture.connections.has_accepted_deferred(key));
    assert_eq!(fixture.send(key, "UNSUBSCRIBE\nid:0\n\n"), Flow::Parked);
    assert_eq!(fixture.conn(key).wait.pause(), Some(Pause::Deferred));
}

#[test]
fn a_frame_of_a_connection_that_is_gone_is_ignored() {
    let (mut fixture, [key]) = with_clients(|_| ());
    let gone = ConnKey { generation: key.generation + 1, ..key };
    assert_eq!(fixture.handle_for(gone, key, "SEND\ndestination:/queue/a\n\nx"), Flow::Done);
    assert_eq!(fixture.turn.counters.messages_in, 0);
}

#[test]
fn a_logged_frame_shows_no_passcode_and_no_body() {
    let mut fixture = Fixture::new(config(|config| config.log_frames = true));
    let key = fixture.accept();
    fixture.handle(key, "CONNECT\naccept-version:1.2\nhost:h\nlogin:me\npasscode:secret\n\n");
    let logged = fixture.logged().join("\n");
    assert!(logged.contains("frame CONNECT | accept-version:1.2") && logged.contains("login:me"), "{logged}");
    assert!(!logged.contains("secret"), "{logged}");
    fixture.handle(key, "SEND\ndestination:/queue/a\n\nhello");
    let logged = fixture.logged().join("\n");
    assert!(logged.contains("frame SEND") && logged.contains("body of 5 bytes"), "{logged}");
    assert!(!logged.contains("hello"), "{logged}");
}

#[test]
fn a_frame_that_waits_is_logged_once() {
    let mut fixture = Fixture::new(config(|config| config.log_frames = true));
    let (key, queue) = (fixture.client(), fixture.name_at(OTHER, "/queue/"));
    fixture.peers.busy.congested = OTHER.bit();
    fixture.logged();
    let frame = format!("SEND\ndestination:{queue}\n\nx");
    for _ in 0..3 {
        assert_eq!(fixture.handle(key, &frame), Flow::Parked);
        fixture.unpark(key);
    }
    fixture.peers.busy.congested = 0;
    assert_eq!(fixture.handle(key, &frame), Flow::Done);
    assert_eq!(fixture.logged().iter().filter(|text| text.starts_with("frame SEND")).count(), 1);
    fixture.handle(key, &frame);
    assert_eq!(fixture.logged().len(), 1, "the next one is logged again");
}

/// A client of whose next frame this has arrived.
fn arriving(fixture: &mut Fixture, head: &str) -> ConnKey {
    let key = fixture.client();
    let base = &mut **fixture;
    base.connections.check_unfinished(&mut base.turn); // so that it knows its limits
    let conn = fixture.conn(key);
    conn.input.bytes = format!("{head}\n\n{}", "x".repeat(100_000)).into_bytes();
    conn.input.has_unparsed = true;
    conn.input.arrival.is_incomplete(true, 200_000, 0);
    key
}

#[test]
fn a_send_that_would_have_to_wait_is_not_read_to_its_end() {
    let mut fixture = fixture();
    let queue = fixture.name_at(OWN, "/queue/");
    for (head, pause) in [
        (format!("SEND\ndestination:{queue}"), Some(Pause::Memory)),
        (format!("SEND\ndestination:{queue}\ntransaction:t"), Some(Pause::Memory)),
        ("SEND\ndestination:/temp-queue/unknown".to_owned(), None),
        ("SEND\nx:y".to_owned(), None),
        ("ACK\nid:1".to_owned(), None),
    ] {
        let key = arriving(&mut fixture, &head);
        assert_eq!(fixture.owners().pause_arrival(key), None, "there is memory");
        fixture.fill_memory(true);
        assert_eq!(fixture.owners().pause_arrival(key), pause, "{head}");
        fixture.fill_memory(false);
    }
}
