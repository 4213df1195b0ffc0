//! SUBSCRIBE and UNSUBSCRIBE alone: what they check, whom they tell, and when they are confirmed.

#[path = "unsubscribe_tests.rs"]
mod unsubscribe_tests;

use std::time::Duration;

use stompica_proto::error::Code;

use super::fixture::{Fixture, RECEIPT, bodies, config, fixture, header, refused_frame, with_clients};
use crate::config::{SlowConsumer, Wildcards};
use crate::connection::flow::Flow;
use crate::connection::full::Full;
use crate::connection::pausing::Pause;
use crate::delivery::fixture::{OTHER, OWN};
use crate::ids::ConnKey;
use crate::mail::mailbox::Mail;
use crate::queue::QueueKind;
use crate::queue::mail::{Attach, ConsumerNote, HomeNote, Note, Source};
use crate::queue::types::Credit;
use crate::requester::Requester;
use crate::router::Holdup;

/// The other shard's copy of a change of interest: name, whether there is interest, and who waits for an answer.
fn interest(fixture: &mut Fixture) -> Vec<(String, bool, Option<Requester>)> {
    let of = |mail| match mail {
        Mail::Interest { name, interested, reply, .. } => {
            Some((String::from_utf8_lossy(&name).into_owned(), interested, reply))
        }
        _ => None,
    };
    fixture.mail_to_other().into_iter().filter_map(of).collect()
}

fn attach(fixture: &mut Fixture) -> Attach {
    match fixture.home_note() {
        HomeNote::Attach(attach) => *attach,
        note => panic!("not a new consumer: {note:?}"),
    }
}

/// The code of the ERROR that a SUBSCRIBE with these headers gets.
fn refused(fixture: &mut Fixture, headers: &str) -> String {
    let key = fixture.client();
    fixture.send(key, &format!("SUBSCRIBE\n{headers}\n"));
    fixture.error_to(key)
}

fn send(fixture: &mut Fixture, key: ConnKey, destination: &str, body: &str) {
    fixture.send(key, &format!("SEND\ndestination:{destination}\n\n{body}"));
}

#[test]
fn a_subscription_is_confirmed_when_the_other_shards_know_of_it() {
    let (mut fixture, [key]) = with_clients(|_| ());
    fixture.send(key, "SUBSCRIBE\nid:0\ndestination:/topic/a\nreceipt:r\n\n");
    let mut told = interest(&mut fixture);
    assert_eq!((told.len(), told[0].0.as_str(), told[0].1), (1, "/topic/a", true));
    assert_eq!(fixture.sent_to(key), "");
    let requester = told[0].2.take().expect("a question");
    fixture.confirm(requester);
    assert_eq!(fixture.sent_to(key), RECEIPT);
}

#[test]
fn only_the_first_subscription_to_a_topic_is_news_unless_a_receipt_waits() {
    let (mut fixture, [key]) = with_clients(|_| ());
    for (id, headers, told) in [(0, "", 1), (1, "", 0), (2, "receipt:r\n", 1)] {
        fixture.send(key, &format!("SUBSCRIBE\nid:{id}\ndestination:/topic/a\n{headers}\n"));
        let mut mail = interest(&mut fixture);
        assert_eq!(mail.len(), told, "{id}");
        mail.drain(..).filter_map(|(_, _, requester)| requester).for_each(|it| fixture.confirm(it));
    }
    assert_eq!(fixture.sent_to(key), RECEIPT);
}

#[test]
fn an_id_is_used_once_at_a_time() {
    let (mut fixture, [key]) = with_clients(|_| ());
    for frame in [
        "SUBSCRIBE\nid:0\ndestination:/topic/a\n\n",
        "UNSUBSCRIBE\nid:0\n\n",
        "SUBSCRIBE\nid:0\ndestination:/topic/b\n\n",
        "SUBSCRIBE\nid:0\ndestination:/topic/c\n\n",
    ] {
        fixture.send(key, frame);
    }
    assert_eq!(fixture.error_to(key), "E-SUB-DUPLICATE");
}

#[test]
fn a_connection_has_no_more_subscriptions_than_allowed() {
    let (mut fixture, [key]) = with_clients(|config| config.max_subscriptions = 1);
    for id in 0..2 {
        fixture.send(key, &format!("SUBSCRIBE\nid:{id}\ndestination:/topic/a\n\n"));
    }
    assert_eq!(fixture.error_to(key), "E-SUB-COUNT");
}

#[test]
fn a_refused_subscription_to_a_topic_leaves_no_queue() {
    let (mut fixture, [key]) = with_clients(|config| config.max_destinations = 1);
    fixture.send(key, "SUBSCRIBE\nid:0\ndestination:/topic/a\nack:client\n\n");
    assert_eq!(fixture.queues.home.iter().count(), 1);
    assert_eq!(refused(&mut fixture, "id:0\ndestination:/topic/b\nack:client\n"), "E-DEST-COUNT");
    assert_eq!(fixture.queues.home.iter().count(), 1);
}

#[test]
fn values_that_are_not_understood_are_refused() {
    let mut fixture = fixture();
    for (headers, code) in [
        ("id:0\ndestination:/topic/a/**\nack:none\n", "E-ACK-MODE"),
        ("id:0\ndestination:/queue/a\nprefetch:x\n", "E-VALUE"),
        ("id:0\ndestination:/exchange/a\n", "E-DEST-INVALID"),
        ("id:0\ndestination:/queue/a\nx-message-ttl:5\n", "E-NOT-SUPPORTED"),
        ("id:0\ndestination:/topic/a\ndurable:true\nno-local:true\n", "E-NOT-SUPPORTED"),
    ] {
        assert_eq!(refused(&mut fixture, headers), code, "{headers}");
    }
    assert_eq!(fixture.router.subscriptions.len(), 0);
}

#[test]
fn the_names_of_other_brokers_are_translated() {
    let (mut fixture, [key]) = with_clients(|_| ());
    fixture.send(key, "SUBSCRIBE\nid:0\ndestination:/amq/queue/a\n\n");
    fixture.notes_to_other();
    let key = fixture.subscription(key, "0");
    assert_eq!(&*fixture.queues.consumers.get(key).expect("a consumer").destination, b"/queue/a");
}

#[test]
fn a_consumer_of_a_queue_elsewhere_is_attached_there_with_its_credit() {
    let mut fixture = fixture();
    let (key, queue) = (fixture.client(), fixture.name_at(OTHER, "/queue/"));
    for (id, headers, messages, bytes) in [
        (0, "ack:client\nprefetch:7\n", 7, 256 << 10),
        (1, "ack:client\nprefetch:0\n", Credit::UNLIMITED, 256 << 10),
        (2, "ack:client\nconsumer-window-size:1000\nprefetch:9\n", 9, 1000),
        (3, "consumer-window-size:1000\nprefetch:9\n", Credit::UNLIMITED, 256 << 10),
    ] {
        fixture.send(key, &format!("SUBSCRIBE\nid:{id}\ndestination:{queue}\n{headers}receipt:r\n\n"));
        let Attach { source, credit, requester, subscriber, .. } = attach(&mut fixture);
        assert!(matches!(source, Source::Queue(name, QueueKind::Work) if *name == *queue.as_bytes()));
        assert_eq!(credit, Credit { messages, bytes }, "{headers}");
        assert_eq!(subscriber.key, fixture.subscription(key, &id.to_string()));
        assert_eq!(fixture.sent_to(key), "");
        fixture.confirm(requester);
        assert_eq!(fixture.sent_to(key), RECEIPT);
    }
}

#[test]
fn a_consumer_of_a_pattern_is_attached_everywhere_with_a_part_of_its_credit() {
    let (mut fixture, [key]) = with_clients(|_| ());
    for (id, headers, part, available) in [(0, "ack:client\nprefetch:7\n", 3, 1), (1, "", 128, 0)] {
        fixture.send(key, &format!("SUBSCRIBE\nid:{id}\ndestination:/queue/p/*\n{headers}receipt:r\n\n"));
        let Attach { source, credit, requester, .. } = attach(&mut fixture);
        assert!(matches!(source, Source::Pattern(pattern) if *pattern == *b"/queue/p/*"));
        assert_eq!(credit, Credit { messages: part, bytes: 128 << 10 });
        let subscription = fixture.subscription(key, &id.to_string());
        let consumer = fixture.queues.consumers.get(subscription).expect("a consumer");
        assert_eq!(consumer.shared_credit.as_ref().map(|shared| shared.available), Some(available));
        assert_eq!(fixture.sent_to(key), "", "the other shard has not answered");
        fixture.confirm(requester);
        assert_eq!(fixture.sent_to(key), RECEIPT);
    }
}

#[test]
fn a_durable_subscription_is_named_within_its_client() {
    let mut fixture = fixture();
    let key = fixture.accept();
    fixture.handle(key, "CONNECT\naccept-version:1.2\nhost:h\nlogin:me\nclient-id:c\n\n");
    fixture.sent_to(key);
    for (id, headers, name, is_shared) in [
        ("x", "durable:true\n", "durable\nme\nc\nx", true),
        ("y", "activemq.subscriptionName:n\nno-local:true\n", "durable\nme\nc\nn", false),
    ] {
        fixture.send(key, &format!("SUBSCRIBE\nid:{id}\ndestination:/topic/d\n{headers}\n"));
        let attached = fixture.subscription(key, id);
        let consumer = fixture.queues.consumers.get(attached).expect("a consumer");
        assert_eq!(consumer.durable.as_deref(), Some(name.as_bytes()));
        let remote = fixture.router.home(name.as_bytes()) == OTHER;
        let Some(Note::Home(HomeNote::Attach(attach))) = fixture.notes_to_other().pop() else {
            assert!(!remote, "{name}");
            continue;
        };
        let Source::Durable { shared, without, ref topic, .. } = attach.source else { panic!("{attach:?}") };
        assert_eq!((shared, &**topic), (is_shared, &b"/topic/d"[..]));
        assert_eq!(without == fixture.conn(key).id, !is_shared);
    }
}

#[test]
fn no_local_leaves_out_what_the_connection_sends_itself() {
    let (mut fixture, [own, other]) = with_clients(|_| ());
    fixture.send(own, "SUBSCRIBE\nid:0\ndestination:/topic/a\nno-local:true\n\n");
    send(&mut fixture, own, "/topic/a", "mine");
    send(&mut fixture, other, "/topic/a", "theirs");
    let sent = fixture.sent_to(own);
    assert_eq!(bodies(&sent), ["theirs"]);
}

#[test]
fn a_policy_for_slow_consumers_gives_a_subscription_a_queue_of_its_own() {
    let (mut fixture, [key]) = with_clients(|config| config.slow_consumer = SlowConsumer::Disconnect);
    fixture.send(key, "SUBSCRIBE\nid:0\ndestination:/topic/a\nslow-consumer:drop-oldest\n\n");
    let subscription = fixture.subscription(key, "0");
    let consumer = fixture.queues.consumers.get(subscription).expect("a consumer");
    assert_eq!(
        (consumer.slow_consumer, consumer.own_queue.is_some()),
        (Some(SlowConsumer::DropOldest), true)
    );
    fixture.send(key, "SUBSCRIBE\nid:1\ndestination:/topic/a\nslow-consumer:disconnect\n\n");
    let subscription = fixture.subscription(key, "1");
    assert!(fixture.queues.consumers.get(subscription).is_none(), "it is the server's policy");
    assert_eq!(refused(&mut fixture, "id:0\ndestination:/topic/a\nslow-consumer:block\n"), "E-VALUE");
}

#[test]
fn a_subscription_may_shorten_the_time_that_its_outbox_blocks() {
    let policy = SlowConsumer::Block(Duration::from_secs(5));
    let (mut fixture, [key]) = with_clients(|config| config.slow_consumer = policy);
    for (id, seconds, patience_ms) in [(0, 3, 3000), (1, 4, 3000)] {
        let frame = format!("SUBSCRIBE\nid:{id}\ndestination:/topic/a\nslow-consumer:block:{seconds}s\n\n");
        fixture.send(key, &frame);
        assert_eq!(fixture.conn(key).output.patience_ms, patience_ms);
    }
}

#[test]
fn a_subscription_behind_a_full_outbox_is_told_after_its_interest() {
    let policy = SlowConsumer::Block(Duration::from_secs(5));
    let (mut fixture, [key]) = with_clients(|config| config.slow_consumer = policy);
    fixture.conn(key).output.full = Some(Full::since(0));
    fixture.send(key, "SUBSCRIBE\nid:0\ndestination:/topic/a\n\n");
    let mail = fixture.mail_to_other();
    assert!(matches!(
        &mail[..],
        [Mail::Interest { interested: true, .. }, Mail::Full { holdup: Holdup::Outbox, full: true, .. }]
    ));
    fixture.send(key, "UNSUBSCRIBE\nid:0\n\n");
    let mail = fixture.mail_to_other();
    assert!(matches!(
        &mail[..],
        [Mail::Full { holdup: Holdup::Outbox, full: false, .. }, Mail::Interest { interested: false, .. }]
    ));
}

#[test]
fn live_messages_wait_for_the_end_of_the_initial_replay() {
    let (mut fixture, [key, publisher]) = with_clients(|config| config.ttl_ms = 1000);
    fixture.send(key, "SUBSCRIBE\nid:0\ndestination:/topic/a\nreceipt:r\n\n");
    let mail = fixture.mail_to_other();
    let [Mail::Interest { newcomer: Some(newcomer), .. }, ..] = &mail[..] else { panic!("{mail:?}") };
    let subscription = fixture.subscription(key, "0");
    assert_eq!(newcomer.key, subscription);
    send(&mut fixture, publisher, "/topic/a", "live");
    assert_eq!(fixture.sent_to(key), "");
    assert_eq!(fixture.send(key, "UNSUBSCRIBE\nid:0\n\n"), Flow::Parked, "it is owed a message");
    assert_eq!(fixture.conn(key).wait.pause(), Some(Pause::Deferred));
    for shard in [OWN, OTHER] {
        let note = ConsumerNote::ReplayEnd(subscription);
        fixture.owners().delivery().read_consumer_note(shard, note);
    }
    fixture.settle();
    let sent = fixture.sent_to(key);
    assert_eq!(bodies(&sent), ["live"]);
    assert_eq!(fixture.conn(key).wait.pause(), None);
}

#[test]
fn a_trailing_star_of_a_dotted_pattern_is_explained_once() {
    let (mut fixture, [key]) = with_clients(|config| config.wildcards = Wildcards::Ancestor);
    for id in 0..2 {
        fixture.send(key, &format!("SUBSCRIBE\nid:{id}\ndestination:a.b.*\n\n"));
    }
    let logged = fixture.logged();
    assert_eq!(logged.iter().filter(|text| text.contains("wildcards=segment")).count(), 1, "{logged:?}");
}

#[test]
fn while_memory_is_short_only_small_subscriptions_begin() {
    let mut fixture = Fixture::new(config(|config| config.memory_limit = 1 << 20));
    let limit = fixture.turn.memory_limit();
    let hold = |fixture: &mut Fixture, bytes: i64| {
        fixture.owners().delivery().count_memory();
        let others = bytes - fixture.turn.held_bytes();
        fixture.turn.totals.memory.fetch_add(others, std::sync::atomic::Ordering::Relaxed);
    };
    hold(&mut fixture, limit / 100 * 92);
    let key = fixture.client();
    fixture.send(key, "SUBSCRIBE\nid:0\ndestination:/topic/a\nreceipt:r\n\n");
    assert_eq!(fixture.mail_to_other().len(), 1);
    let long = "x".repeat(1000);
    assert_eq!(refused(&mut fixture, &format!("id:0\ndestination:/topic/{long}\n")), "E-MEMORY");
    hold(&mut fixture, limit);
    assert_eq!(refused(&mut fixture, "id:0\ndestination:/topic/a\n"), "E-MEMORY");
}

#[test]
fn the_first_consumer_of_a_queue_that_exists_begins_whatever_memory_is_held() {
    let (mut fixture, [key, second, publisher]) = with_clients(|_| ());
    let (own, new) = (fixture.name_at(OWN, "/queue/old"), fixture.name_at(OWN, "/queue/new"));
    let other = fixture.name_at(OTHER, "/queue/");
    send(&mut fixture, publisher, &own, "kept");
    fixture.send(second, "SUBSCRIBE\nid:0\ndestination:/topic/a\n\n");
    fixture.fill_memory(true);
    fixture.send(key, &format!("SUBSCRIBE\nid:0\ndestination:{own}\nack:client\nreceipt:r\n\n"));
    let sent = fixture.sent_to(key);
    assert!(sent.contains("RECEIPT\n") && sent.ends_with("\n\nkept\0"), "{sent:?}");
    fixture.notes_to_other();
    let key = fixture.client();
    fixture.send(key, &format!("SUBSCRIBE\nid:0\ndestination:{other}\n\n"));
    let refusal = attach(&mut fixture).without_backlog.map(|refusal| refusal.code);
    assert_eq!(refusal, Some(Code::Memory), "its home decides");
    fixture.send(second, &format!("SUBSCRIBE\nid:1\ndestination:{own}\n\n"));
    assert_eq!(fixture.error_to(second), "E-MEMORY", "it is not its first subscription");
    for destination in [&new, "/queue/>", "/topic/a"] {
        let headers = format!("id:0\ndestination:{destination}\n");
        assert_eq!(refused(&mut fixture, &headers), "E-MEMORY", "{destination}");
    }
}
