//! SEND alone: what it publishes, keeps, tells the homes, and answers.

use std::time::Duration;

use super::fixture::{Fixture, RECEIPT, config, fixture, refused_frame, with_clients};
use crate::config::SlowConsumer;
use crate::connection::flow::Flow;
use crate::connection::pausing::Pause;
use crate::delivery::fixture::{OTHER, OWN};
use crate::queue::mail::{HomeNote, Note};
use crate::turn::budget::Budget;

#[test]
fn a_message_to_a_topic_reaches_its_subscribers_and_is_confirmed() {
    let (mut fixture, [publisher, subscriber]) = with_clients(|_| ());
    fixture.send(subscriber, "SUBSCRIBE\nid:0\ndestination:/topic/a\n\n");
    assert_eq!(fixture.send(publisher, "SEND\ndestination:/topic/a\nreceipt:r\nx:y\n\nhello"), Flow::Done);
    assert_eq!(fixture.sent_to(publisher), RECEIPT);
    let sent = fixture.sent_to(subscriber);
    assert!(sent.starts_with("MESSAGE\nsubscription:0\n") && sent.ends_with("\n\nhello\0"), "{sent}");
    assert!(sent.contains("\nx:y\n") && sent.contains("\ndestination:/topic/a\n"), "{sent}");
    assert!(fixture.notes_to_other().is_empty() && fixture.peers.batch.is_empty());
}

#[test]
fn a_message_to_a_topic_of_another_shard_joins_the_batch_of_the_turn() {
    let (mut fixture, [publisher]) = with_clients(|_| ());
    fixture.subscribe_other("/topic/a");
    fixture.send(publisher, "SEND\ndestination:/topic/a\nreceipt:r\n\nhello");
    assert_eq!(fixture.peers.batch.count_for(OTHER), 1);
    assert_eq!(fixture.sent_to(publisher), RECEIPT, "the batch is posted before it is written");
}

#[test]
fn a_message_to_a_queue_of_this_shard_is_queued_and_confirmed_at_once() {
    let mut fixture = fixture();
    let (publisher, queue) = (fixture.client(), fixture.name_at(OWN, "/queue/"));
    let frame = format!("SEND\ndestination:{queue}\nreceipt:r\n\nhello");
    assert_eq!(fixture.handle(publisher, &frame), Flow::Done);
    assert_eq!(fixture.sent_to(publisher), RECEIPT);
    assert_eq!((fixture.waiting(&queue), fixture.turn.counters.messages_in), (1, 1));
}

#[test]
fn a_message_to_a_queue_of_another_shard_is_confirmed_by_that_shard() {
    let mut fixture = fixture();
    let (publisher, queue) = (fixture.client(), fixture.name_at(OTHER, "/queue/"));
    fixture.send(publisher, &format!("SEND\ndestination:{queue}\nreceipt:r\n\nhello"));
    let HomeNote::Enqueue(message, Some(requester)) = fixture.home_note() else { panic!("not a message") };
    assert_eq!((message.destination(), message.message().body), (queue.as_bytes(), &b"hello"[..]));
    assert_eq!(fixture.sent_to(publisher), "");
    fixture.confirm(requester);
    assert_eq!(fixture.sent_to(publisher), RECEIPT);
}

#[test]
fn a_full_queue_refuses_a_message() {
    let mut fixture = Fixture::new(config(|config| config.max_queue_length = 1));
    let (publisher, queue) = (fixture.client(), fixture.name_at(OWN, "/queue/"));
    let frame = format!("SEND\ndestination:{queue}\n\nhello");
    fixture.send(publisher, &frame);
    fixture.send(publisher, &frame);
    assert_eq!(fixture.error_to(publisher), "E-QUEUE-FULL");
    assert_eq!(fixture.waiting(&queue), 1);
}

#[test]
fn a_pattern_is_no_destination_of_a_message() {
    assert_eq!(refused_frame("SEND\ndestination:/queue/*\n\nhello"), "E-DEST-WILDCARD");
}

#[test]
fn a_retained_message_is_confirmed_by_the_home_of_its_topic() {
    let mut fixture = fixture();
    let (publisher, topic) = (fixture.client(), fixture.name_at(OTHER, "/topic/"));
    for (value, is_set) in [("set", true), ("remove", false)] {
        fixture.send(publisher, &format!("SEND\ndestination:{topic}\nretain:{value}\nreceipt:r\n\nhello"));
        let HomeNote::Retain(message, set, Some(requester)) = fixture.home_note() else {
            panic!("not retained")
        };
        assert_eq!((message.message().body, set), (&b"hello"[..], is_set));
        assert_eq!(fixture.sent_to(publisher), "");
        fixture.confirm(requester);
        assert_eq!(fixture.sent_to(publisher), RECEIPT);
    }
}

#[test]
fn only_a_topic_has_a_retained_message() {
    assert_eq!(refused_frame("SEND\ndestination:/queue/a\nretain:set\n\nhello"), "E-VALUE");
}

#[test]
fn where_retained_messages_are_at_their_limit_the_home_decides_first() {
    let (mut fixture, [publisher]) = with_clients(|config| config.max_retained = 1);
    let topics = [fixture.name_at(OWN, "/topic/a"), fixture.name_at(OWN, "/topic/b")];
    fixture.send(publisher, &format!("SEND\ndestination:{}\nretain:set\nreceipt:r\n\nhello", topics[0]));
    assert_eq!(fixture.sent_to(publisher), RECEIPT);
    let again = format!("SEND\ndestination:{}\nretain:set\nreceipt:r\n\nagain", topics[0]);
    assert_eq!(fixture.handle(publisher, &again), Flow::Waiting);
    assert_eq!(fixture.turn.counters.messages_in, 1, "it is not published yet");
    fixture.settle();
    assert_eq!(fixture.sent_to(publisher), RECEIPT, "it replaces a value");
    fixture.send(publisher, &format!("SEND\ndestination:{}\nretain:set\nreceipt:r\n\nmore", topics[1]));
    assert_eq!(fixture.error_to(publisher), "E-RETAINED-COUNT");
    assert_eq!(fixture.turn.counters.messages_in, 2, "the refused one is not published");
}

#[test]
fn an_expired_message_is_counted_and_not_published() {
    let (mut fixture, [publisher, subscriber]) = with_clients(|_| ());
    fixture.turn.now_ms = 5;
    fixture.send(subscriber, "SUBSCRIBE\nid:0\ndestination:/topic/a\n\n");
    fixture.send(publisher, "SEND\ndestination:/topic/a\nexpires:1\nreceipt:r\n\nhello");
    assert_eq!(fixture.sent_to(publisher), RECEIPT);
    assert_eq!(fixture.sent_to(subscriber), "");
    assert_eq!((fixture.turn.counters.expired, fixture.turn.counters.messages_in), (1, 0));
}

#[test]
fn with_a_ttl_a_message_without_subscriber_is_kept_at_its_home() {
    let mut fixture = Fixture::new(config(|config| config.ttl_ms = 1000));
    let (publisher, topic) = (fixture.client(), fixture.name_at(OTHER, "/topic/"));
    for headers in ["", "ttl:500\n"] {
        fixture.send(publisher, &format!("SEND\ndestination:{topic}\n{headers}\nhello"));
        let note = fixture.home_note();
        assert!(matches!(&note, HomeNote::Stale(message) if message.message().body == b"hello"), "{note:?}");
    }
}

#[test]
fn a_message_of_a_transaction_waits_for_commit() {
    let mut fixture = fixture();
    let (publisher, queue) = (fixture.client(), fixture.name_at(OWN, "/queue/"));
    fixture.send(publisher, "BEGIN\ntransaction:t\n\n");
    fixture.send(publisher, &format!("SEND\ndestination:{queue}\ntransaction:t\nreceipt:r\n\nhello"));
    assert_eq!(fixture.sent_to(publisher), RECEIPT);
    assert_eq!((fixture.waiting(&queue), fixture.turn.counters.messages_in), (0, 0));
    fixture.send(publisher, "SEND\ndestination:/topic/a\ntransaction:u\n\nhello");
    assert_eq!(fixture.error_to(publisher), "E-TX-UNKNOWN");
}

#[test]
fn a_transaction_takes_no_more_than_its_limit() {
    let (mut fixture, [publisher]) = with_clients(|config| config.max_transaction_size = 100);
    fixture.send(publisher, "BEGIN\ntransaction:t\n\n");
    fixture.send(publisher, &format!("SEND\ndestination:/queue/a\ntransaction:t\n\n{}", "x".repeat(101)));
    assert_eq!(fixture.error_to(publisher), "E-TX-COUNT");
}

#[test]
fn a_message_waits_while_memory_is_out_and_goes_on_afterwards() {
    let mut fixture = fixture();
    let (publisher, queue) = (fixture.client(), fixture.name_at(OWN, "/queue/"));
    fixture.fill_memory(true);
    let frame = format!("SEND\ndestination:{queue}\nreceipt:r\n\nhello");
    let in_transaction = format!("SEND\ndestination:{queue}\ntransaction:t\n\nhello");
    assert_eq!(fixture.send(publisher, &frame), Flow::Parked);
    assert_eq!(fixture.conn(publisher).wait.pause(), Some(Pause::Memory));
    let other = fixture.client();
    fixture.send(other, "BEGIN\ntransaction:t\n\n");
    assert_eq!(fixture.send(other, &in_transaction), Flow::Parked);
    fixture.fill_memory(false);
    for (key, frame) in [(publisher, &frame), (other, &in_transaction)] {
        fixture.unpark(key);
        assert_eq!(fixture.send(key, frame), Flow::Done);
    }
    assert_eq!((fixture.sent_to(publisher).as_str(), fixture.waiting(&queue)), (RECEIPT, 1));
}

#[test]
fn a_message_waits_for_a_full_outbox_behind_its_topic() {
    let policy = SlowConsumer::Block(Duration::from_secs(5));
    let mut fixture = Fixture::new(config(|config| {
        (config.outbox_limit, config.slow_consumer) = (40, policy);
    }));
    let (publisher, subscriber) = (fixture.client(), fixture.client());
    fixture.send(subscriber, "SUBSCRIBE\nid:0\ndestination:/topic/a\n\n");
    let frame = "SEND\ndestination:/topic/a\n\nhello";
    assert_eq!(fixture.send(publisher, frame), Flow::Done);
    let base = &mut *fixture;
    base.connections.distribute(&mut base.turn);
    fixture.owners().delivery().mark_full(subscriber);
    assert_eq!(fixture.send(publisher, frame), Flow::Parked);
    assert_eq!(fixture.conn(publisher).wait.pause(), Some(Pause::SlowConsumer));
}

#[test]
fn a_message_waits_for_a_congested_mailbox_of_its_home() {
    let mut fixture = fixture();
    let (publisher, queue) = (fixture.client(), fixture.name_at(OTHER, "/queue/"));
    fixture.peers.busy.congested = OTHER.bit();
    assert_eq!(fixture.send(publisher, &format!("SEND\ndestination:{queue}\n\nhello")), Flow::Parked);
    assert_eq!(fixture.conn(publisher).wait.pause(), Some(Pause::Mailbox));
    assert!(fixture.notes_to_other().is_empty());
}

#[test]
fn a_persistent_message_is_accepted_with_one_warning() {
    let (mut fixture, [publisher]) = with_clients(|_| ());
    fixture.logged();
    for _ in 0..2 {
        assert_eq!(fixture.send(publisher, "SEND\ndestination:/queue/a\npersistent:true\n\nx"), Flow::Done);
    }
    let logged = fixture.logged();
    assert_eq!(logged.iter().filter(|text| text.contains("store=memory")).count(), 1, "{logged:?}");
}

#[test]
fn nobody_sends_to_the_monitor() {
    assert_eq!(refused_frame("SEND\ndestination:/queue/monitor\n\nhello"), "E-READ-ONLY");
}

#[test]
fn a_message_that_takes_turns_is_confirmed_when_it_has_reached_everyone() {
    let (mut fixture, [publisher, subscriber]) = with_clients(|_| ());
    for id in 0..3000 {
        fixture.subscribe(subscriber, "/topic/a", &id.to_string(), None);
    }
    for (headers, retained) in [("", false), ("ttl:9\n", false), ("retain:set\n", true)] {
        fixture.turn.budget = Budget::nearly_over();
        let frame = format!("SEND\ndestination:/topic/a\nreceipt:r\n{headers}\nhello");
        assert_eq!(fixture.handle(publisher, &frame), Flow::Waiting);
        let notes = fixture.notes_to_other();
        assert_eq!(fixture.sent_to(publisher), "", "{headers}");
        while fixture.deliveries.fan_outs.first().is_some() {
            fixture.turn.budget = Budget::default();
            fixture.owners().delivery().proceed_with_fan_outs(2);
        }
        fixture.settle();
        for note in notes {
            let Note::Home(HomeNote::Retain(_, true, Some(requester))) = note else { panic!("{note:?}") };
            assert!(retained && fixture.sent_to(publisher).is_empty(), "its home has not answered");
            fixture.confirm(requester);
        }
        assert_eq!(fixture.sent_to(publisher), RECEIPT, "{headers}");
        assert_eq!(fixture.sent_to(subscriber).matches("MESSAGE\n").count(), 3000);
    }
}
