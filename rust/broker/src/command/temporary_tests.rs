//! Temporary destinations and answers without a SUBSCRIBE, alone.

use super::fixture::{Fixture, bodies, config, fixture, header, with_clients};
use crate::ids::ConnKey;

/// A request with this `reply-to`, and the `reply-to` with which its consumer gets it.
fn request(fixture: &mut Fixture, key: ConnKey, consumer: ConnKey, reply_to: &str) -> String {
    fixture.send(key, &format!("SEND\ndestination:/topic/requests\nreply-to:{reply_to}\n\nplease"));
    header(&fixture.sent_to(consumer), "reply-to")
}

/// A client that is sent requests.
fn service(fixture: &mut Fixture) -> ConnKey {
    let key = fixture.client();
    fixture.send(key, "SUBSCRIBE\nid:0\ndestination:/topic/requests\n\n");
    key
}

fn send(fixture: &mut Fixture, key: ConnKey, destination: &str, body: &str) {
    fixture.send(key, &format!("SEND\ndestination:{destination}\n\n{body}"));
}

#[test]
fn a_subscription_makes_the_temporary_destination() {
    let mut fixture = fixture();
    for name in ["/temp-queue/x", "/temp-topic/x"] {
        let key = fixture.client();
        fixture.send(key, &format!("SUBSCRIBE\nid:0\ndestination:{name}\n\n"));
        send(&mut fixture, key, name, "hello");
        let sent = fixture.sent_to(key);
        assert_eq!((bodies(&sent), header(&sent, "destination")), (vec!["hello"], name.to_owned()));
        let other = fixture.client();
        send(&mut fixture, other, name, "hello");
        assert_eq!(fixture.error_to(other), "E-TEMP-UNKNOWN");
    }
}

#[test]
fn only_its_owner_consumes_a_temporary_destination_and_everyone_sends_to_it() {
    let mut fixture = fixture();
    let (key, service, other) = (fixture.client(), service(&mut fixture), fixture.client());
    fixture.send(key, "SUBSCRIBE\nid:0\ndestination:/temp-queue/x\n\n");
    let full = request(&mut fixture, key, service, "/temp-queue/x");
    assert_ne!(full, "/temp-queue/x");
    send(&mut fixture, service, &full, "done");
    assert_eq!(bodies(&fixture.sent_to(key)), ["done"]);
    fixture.send(other, &format!("SUBSCRIBE\nid:0\ndestination:{full}\n\n"));
    assert_eq!(fixture.error_to(other), "E-TEMP-OWNER");
    fixture.send(key, "UNSUBSCRIBE\nid:0\n\n");
    fixture.send(key, &format!("SUBSCRIBE\nid:1\ndestination:{full}\n\n"));
    send(&mut fixture, service, &full, "again");
    assert_eq!(bodies(&fixture.sent_to(key)), ["again"]);
}

#[test]
fn a_reply_to_brings_the_answer_without_a_subscription() {
    let mut fixture = fixture();
    let (key, service) = (fixture.client(), service(&mut fixture));
    let full = request(&mut fixture, key, service, "/temp-queue/x");
    assert_eq!(full, request(&mut fixture, key, service, "/temp-queue/x"));
    assert_eq!(fixture.conn(key).subscriptions.len(), 1);
    send(&mut fixture, service, &full, "done");
    let sent = fixture.sent_to(key);
    assert_eq!((bodies(&sent), header(&sent, "subscription")), (vec!["done"], "/temp-queue/x".to_owned()));
}

#[test]
fn other_reply_tos_are_left_as_they_are() {
    let mut fixture = fixture();
    let (key, service) = (fixture.client(), service(&mut fixture));
    let full = request(&mut fixture, key, service, "/temp-queue/x");
    for reply_to in ["/queue/answers", full.as_str()] {
        assert_eq!(request(&mut fixture, service, service, reply_to), reply_to);
    }
    assert_eq!(fixture.conn(service).subscriptions.len(), 1);
    assert_ne!(request(&mut fixture, key, service, "/temp-topic/x"), "/temp-topic/x");
    assert_eq!(fixture.conn(key).subscriptions.len(), 1, "a topic is not subscribed to");
}

#[test]
fn a_reply_to_that_nobody_could_answer_is_refused() {
    let mut fixture = fixture();
    let (key, service) = (fixture.client(), service(&mut fixture));
    let full = request(&mut fixture, key, service, "/temp-queue/x");
    for reply_to in ["/temp-queue/*", "/temp-queue/a/>", "/temp-topic/#", &format!("{full}*")] {
        let key = fixture.client();
        fixture.send(key, "SUBSCRIBE\nid:0\ndestination:/temp-queue/*\n\n");
        fixture.send(key, &format!("SEND\ndestination:/topic/requests\nreply-to:{reply_to}\n\nplease"));
        assert_eq!(fixture.error_to(key), "E-DEST-WILDCARD", "{reply_to}");
    }
    assert_eq!(fixture.sent_to(service), "");
}

#[test]
fn an_explicit_subscription_replaces_the_implicit_one() {
    let mut fixture = fixture();
    let (key, service) = (fixture.client(), service(&mut fixture));
    let full = request(&mut fixture, key, service, "/temp-queue/x");
    fixture.send(key, "SUBSCRIBE\nid:s\ndestination:/temp-queue/x\n\n");
    assert_eq!(fixture.conn(key).subscriptions.len(), 1);
    assert_eq!(full, request(&mut fixture, key, service, "/temp-queue/x"));
    assert_eq!(fixture.conn(key).subscriptions.len(), 1, "the explicit one stays");
    send(&mut fixture, service, &full, "done");
    assert_eq!(header(&fixture.sent_to(key), "subscription"), "s");
}

#[test]
fn a_pattern_replaces_the_implicit_subscriptions_that_it_matches() {
    let mut fixture = fixture();
    let (key, service) = (fixture.client(), service(&mut fixture));
    let names = ["/temp-queue/a", "/temp-queue/b"].map(|name| request(&mut fixture, key, service, name));
    assert_eq!(fixture.conn(key).subscriptions.len(), 2);
    fixture.send(key, "SUBSCRIBE\nid:s\ndestination:/temp-queue/*\n\n");
    assert_eq!(fixture.conn(key).subscriptions.len(), 1);
    for full in &names {
        send(&mut fixture, service, full, "done");
        assert_eq!(header(&fixture.sent_to(key), "subscription"), "s");
    }
}

#[test]
fn an_id_that_the_client_uses_itself_is_left_to_it() {
    let mut fixture = fixture();
    let (key, service) = (fixture.client(), service(&mut fixture));
    fixture.send(key, "SUBSCRIBE\nid:/temp-queue/x\ndestination:/topic/t\n\n");
    let full = request(&mut fixture, key, service, "/temp-queue/x");
    send(&mut fixture, service, &full, "done");
    assert_eq!((fixture.sent_to(key).as_str(), fixture.conn(key).subscriptions.len()), ("", 1));
    // The implicit subscription was left, and its id is used for something else.
    request(&mut fixture, key, service, "/temp-queue/y");
    fixture.send(key, "UNSUBSCRIBE\nid:/temp-queue/y\n\n");
    fixture.send(key, "SUBSCRIBE\nid:/temp-queue/y\ndestination:/topic/t\n\n");
    fixture.send(key, "SUBSCRIBE\nid:s\ndestination:/temp-queue/y\n\n");
    assert_eq!(fixture.conn(key).subscriptions.len(), 3);
}

#[test]
fn a_connection_has_no_more_temporary_destinations_than_subscriptions() {
    let mut fixture = Fixture::new(config(|config| config.max_subscriptions = 1));
    for (second, code) in [("/temp-queue/b", "E-SUB-COUNT"), ("/temp-topic/b", "E-SUB-COUNT")] {
        let key = fixture.client();
        fixture.send(key, "SEND\ndestination:/queue/a\nreply-to:/temp-queue/a\n\n");
        fixture.send(key, &format!("SEND\ndestination:/queue/a\nreply-to:{second}\n\n"));
        assert_eq!(fixture.error_to(key), code);
    }
    let key = fixture.client();
    fixture.send(key, "SUBSCRIBE\nid:0\ndestination:/topic/a\n\n");
    fixture.send(key, "SEND\ndestination:/queue/a\nreply-to:/temp-queue/a\n\n");
    assert_eq!(fixture.error_to(key), "E-SUB-COUNT", "the answer needs a subscription");
}

#[test]
fn a_new_temporary_destination_needs_memory() {
    let (mut fixture, [key]) = with_clients(|_| ());
    fixture.fill_memory(true);
    fixture.turn.memory.is_short = false;
    fixture.send(key, "SEND\ndestination:/topic/a\nreply-to:/temp-queue/a\n\n");
    assert_eq!(fixture.error_to(key), "E-MEMORY");
}
