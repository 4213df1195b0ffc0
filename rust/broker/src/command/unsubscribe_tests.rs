//! Tests of the ends of subscriptions: by UNSUBSCRIBE, and with their connection.

use super::*;
use crate::turn::jobs::Job;

#[test]
fn the_end_of_the_last_subscription_to_a_topic_is_news() {
    let (mut fixture, [key, publisher]) = with_clients(|_| ());
    for id in 0..2 {
        fixture.send(key, &format!("SUBSCRIBE\nid:{id}\ndestination:/topic/a\n\n"));
    }
    fixture.mail_to_other();
    fixture.send(key, "UNSUBSCRIBE\nid:0\nreceipt:r\n\n");
    assert_eq!(fixture.sent_to(key), RECEIPT);
    assert!(interest(&mut fixture).is_empty());
    send(&mut fixture, publisher, "/topic/a", "x");
    assert_eq!(header(&fixture.sent_to(key), "subscription"), "1");
    fixture.send(key, "UNSUBSCRIBE\nid:1\n\n");
    let told = interest(&mut fixture);
    assert_eq!((told.len(), told[0].0.as_str(), told[0].1), (1, "/topic/a", false));
}

#[test]
fn what_is_not_subscribed_to_cannot_be_left() {
    assert_eq!(refused_frame("UNSUBSCRIBE\nid:0\n\n"), "E-SUB-UNKNOWN");
}

#[test]
fn in_1_0_a_destination_names_a_subscription_even_if_that_has_an_id() {
    let mut fixture = fixture();
    let key = fixture.client_of("1.0");
    for destination in ["/topic/a", "/queue/a"] {
        fixture.send(key, &format!("SUBSCRIBE\nid:0\ndestination:{destination}\n\n"));
        fixture.send(key, &format!("UNSUBSCRIBE\ndestination:{destination}\nreceipt:r\n\n"));
        assert_eq!(fixture.sent_to(key), RECEIPT);
        assert!(fixture.conn(key).subscriptions.is_empty() && fixture.router.subscriptions.is_empty());
        fixture.send(key, &format!("SUBSCRIBE\ndestination:{destination}\n\n"));
        fixture.send(key, &format!("UNSUBSCRIBE\ndestination:{destination}\n\n"));
        assert!(fixture.conn(key).subscriptions.is_empty());
    }
    let later = fixture.client();
    fixture.send(later, "SUBSCRIBE\nid:0\ndestination:/topic/a\n\n");
    fixture.send(later, "UNSUBSCRIBE\nid:/topic/a\n\n");
    assert_eq!(fixture.error_to(later), "E-SUB-UNKNOWN");
}

#[test]
fn the_homes_are_told_of_the_end_of_a_consumer() {
    let mut fixture = fixture();
    let (key, queue) = (fixture.client(), fixture.name_at(OTHER, "/queue/"));
    for destination in [queue.as_str(), "/queue/p/*"] {
        fixture.send(key, &format!("SUBSCRIBE\nid:0\ndestination:{destination}\n\n"));
        let subscription = fixture.subscription(key, "0");
        fixture.notes_to_other();
        fixture.send(key, "UNSUBSCRIBE\nid:0\nreceipt:r\n\n");
        let note = fixture.home_note();
        assert!(matches!(&note, HomeNote::Detach(subscriber) if subscriber.key == subscription), "{note:?}");
        assert_eq!(fixture.sent_to(key), RECEIPT);
    }
    assert!(!fixture.queues.home.has_patterns());
}

/// A client-id for which the home of the durable subscription `n` is the other shard.
fn remote_client(fixture: &mut Fixture) -> (ConnKey, String) {
    let name = |client: &str| format!("durable\n\n{client}\nn");
    let client = (0..).map(|at| format!("c{at}"));
    let client = client.into_iter().find(|client| fixture.router.home(name(client).as_bytes()) == OTHER);
    let client = client.expect("one of two shards");
    let key = fixture.accept();
    fixture.handle(key, &format!("CONNECT\naccept-version:1.2\nhost:h\nclient-id:{client}\n\n"));
    fixture.sent_to(key);
    (key, name(&client))
}

#[test]
fn the_end_of_a_durable_subscription_is_confirmed_by_its_home() {
    let mut fixture = fixture();
    let (key, name) = remote_client(&mut fixture);
    for (subscribe, unsubscribe) in [
        (
            Some("SUBSCRIBE\nid:n\ndestination:/topic/d\ndurable:true\n\n"),
            "UNSUBSCRIBE\nid:n\ndurable:true\nreceipt:r\n\n",
        ),
        (
            Some("SUBSCRIBE\nid:x\ndestination:/topic/d\nactivemq.subscriptionName:n\n\n"),
            "UNSUBSCRIBE\nid:y\nactivemq.subscriptionName:n\nreceipt:r\n\n",
        ),
        (None, "UNSUBSCRIBE\nid:n\ndurable:true\nreceipt:r\n\n"),
    ] {
        if let Some(subscribe) = subscribe {
            fixture.send(key, subscribe);
            let Attach { requester, .. } = attach(&mut fixture);
            fixture.confirm(requester);
        }
        assert_eq!(fixture.send(key, unsubscribe), Flow::Done);
        assert!(fixture.conn(key).subscriptions.is_empty(), "its holder has left");
        let Some(Note::Home(HomeNote::EndDurable(ended, requester, _))) = fixture.notes_to_other().pop()
        else {
            panic!("its home is not told");
        };
        assert_eq!(String::from_utf8_lossy(&ended), name);
        assert_eq!(fixture.sent_to(key), "");
        fixture.confirm(requester);
        assert_eq!(fixture.sent_to(key), RECEIPT);
    }
}

#[test]
fn without_the_header_a_durable_subscription_only_loses_its_holder() {
    let mut fixture = fixture();
    let (key, _) = remote_client(&mut fixture);
    fixture.send(key, "SUBSCRIBE\nid:n\ndestination:/topic/d\ndurable:true\n\n");
    let Attach { requester, .. } = attach(&mut fixture);
    fixture.confirm(requester);
    fixture.send(key, "UNSUBSCRIBE\nid:n\nreceipt:r\n\n");
    assert!(matches!(fixture.home_note(), HomeNote::Detach(_)));
    assert_eq!(fixture.sent_to(key), RECEIPT);
}

#[test]
fn the_header_does_not_affect_another_kind_of_subscription() {
    let (mut fixture, [key]) = with_clients(|_| ());
    fixture.send(key, "SUBSCRIBE\nid:n\ndestination:/topic/a\n\n");
    fixture.send(key, "UNSUBSCRIBE\nid:n\ndurable:true\nreceipt:r\n\n");
    assert_eq!(fixture.sent_to(key), RECEIPT);
    assert!(fixture.notes_to_other().is_empty() && fixture.router.subscriptions.is_empty());
}

#[test]
fn what_a_subscription_holds_goes_back_when_it_ends() {
    let mut fixture = fixture();
    let (key, queue) = (fixture.client(), fixture.name_at(OWN, "/queue/"));
    fixture.send(key, &format!("SUBSCRIBE\nid:0\ndestination:{queue}\nack:client\n\n"));
    ["a", "b"].iter().for_each(|body| send(&mut fixture, key, &queue, body));
    assert_eq!(bodies(&fixture.sent_to(key)).len(), 2);
    assert_eq!(fixture.waiting(&queue), 0);
    fixture.send(key, "UNSUBSCRIBE\nid:0\n\n");
    assert_eq!(fixture.waiting(&queue), 2);
    fixture.send(key, &format!("SUBSCRIBE\nid:1\ndestination:{queue}\nack:client\n\n"));
    let sent = fixture.sent_to(key);
    assert_eq!(bodies(&sent), ["a", "b"]);
    assert_eq!(header(&sent, "redelivered"), "true");
}

#[test]
fn what_a_subscription_to_a_topic_holds_goes_with_it() {
    let (mut fixture, [key, publisher]) = with_clients(|_| ());
    fixture.send(key, "SUBSCRIBE\nid:0\ndestination:/topic/a\nack:client\nprefetch:1\n\n");
    ["a", "b"].iter().for_each(|body| send(&mut fixture, publisher, "/topic/a", body));
    assert_eq!(bodies(&fixture.sent_to(key)), ["a"]);
    fixture.send(key, "UNSUBSCRIBE\nid:0\n\n");
    assert_eq!(fixture.queues.home.iter().count(), 0);
    assert_eq!(fixture.conn(key).pending_writes.as_ref().map(|writes| writes.unacked), Some(0));
}

#[test]
fn very_many_subscriptions_of_a_connection_that_ends_leave_over_several_jobs() {
    let (mut fixture, [key]) = with_clients(|_| ());
    for id in 0..600 {
        fixture.send(key, &format!("SUBSCRIBE\nid:{id}\ndestination:/topic/{id}\n\n"));
        fixture.turn.budget = crate::turn::budget::Budget::default();
    }
    fixture.handle(key, "DISCONNECT\n\n");
    let mut left = Vec::new();
    while !fixture.owners().leave_some(key) {
        assert_eq!(fixture.turn.jobs.pop(), Some(Job::Leave(key)));
        left.push(fixture.router.subscriptions.len());
        fixture.turn.budget = crate::turn::budget::Budget::default();
    }
    assert_eq!((left, fixture.router.subscriptions.len()), (vec![344, 88], 0));
    assert!(fixture.turn.jobs.is_empty() && fixture.conn(key).life.leaving.is_none());
    assert!(fixture.owners().leave_some(ConnKey::NONE), "one that is gone has none left");
}
