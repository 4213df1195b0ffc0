//! RECEIPTs that wait for a store although the work of their frame takes several turns or posts.

use super::*;
use crate::queue::mail::{HomeNote, Note};

#[test]
fn a_receipt_waits_even_if_reports_to_homes_are_posted_before_the_turn_ends() {
    const ACKS: usize = 100;
    let (mut broker, journal, mut client) = world(Config::default());
    let mut others: Vec<Client> = (0..8).map(|_| connect(&mut broker, OWN)).collect();
    let durable = names_at_home(&broker, "durable\n\nd", 1).next().expect("one of two");
    let durable = durable.trim_start_matches("durable\n\n");
    let name = names_at_home(&broker, "/queue/q", 1).next().expect("one of two");
    client.send(
        format!(
            "SUBSCRIBE\nid:d\ndestination:/topic/a\ndurable-subscriber-name:{durable}\n\n\0UNSUBSCRIBE\nid:d\n\n\0\
             SUBSCRIBE\nid:0\ndestination:{name}\nack:client-individual\n\n\0"
        )
        .as_bytes(),
    );
    client.send(format!("SEND\ndestination:{name}\n\nx\0").repeat(ACKS).as_bytes());
    exchange(&mut broker, &mut client);
    let ids = client.received_frames().flat_map(|head| head.split(" | "));
    let acks: String =
        ids.filter_map(|line| line.strip_prefix("ack:")).map(|id| format!("ACK\nid:{id}\n\n\0")).collect();
    let number = client.expect_receipt();
    let send = format!("SEND\ndestination:/topic/a\npersistent:true\nreceipt:{number}\n\nx\0");
    client.send(format!("{send}{acks}").as_bytes());
    others.iter_mut().for_each(|other| other.send(format!("SEND\ndestination:{name}\n\nx\0").as_bytes()));
    broker.turn(0);
    // The other shard may take its mail between two posts; each begins with notes.
    let (mut mails, mut posts) = (Vec::new(), Vec::<Vec<Mail>>::new());
    broker.shared.mailboxes[1].take(&mut mails);
    for mail in mails {
        match (&mail, posts.last_mut()) {
            (Mail::Queue(..), _) | (_, None) => posts.push(vec![mail]),
            (_, Some(post)) => post.push(mail),
        }
    }
    assert_eq!(posts.len(), 2, "{posts:?}");
    for mut post in posts {
        broker.shared.mailboxes[1].post(&mut post);
        broker.turn(1);
        broker.turn(0);
        client.read(usize::MAX);
    }
    exchange(&mut broker, &mut client);
    assert_eq!(journal.calls().len(), 1);
    assert!(!client.has_all_receipts(), "it does not wait");
    journal.save_all();
    exchange(&mut broker, &mut client);
    assert!(client.has_all_receipts(), "it waits forever");
}

#[test]
fn a_receipt_waits_for_messages_whose_mail_is_read_over_several_turns() {
    let (mut broker, journal, mut client) = world(Config::default());
    let durable = names_at_home(&broker, "durable\n\nd", 1).next().expect("one of two");
    let durable = durable.trim_start_matches("durable\n\n");
    let subscribe = format!("SUBSCRIBE\nid:d\ndestination:/topic/a\ndurable-subscriber-name:{durable}\n\n\0");
    client.send(format!("{subscribe}UNSUBSCRIBE\nid:d\n\n\0").as_bytes());
    exchange(&mut broker, &mut client);
    let number = client.expect_receipt();
    let send = format!("SEND\ndestination:/topic/a\npersistent:true\nreceipt:{number}\n\nx\0");
    client.send(send.as_bytes());
    broker.turn(0);
    // The other shard is asked whether its store has the message. More notes of the same turn follow than it reads in a
    // turn, and then the message.
    let mut mails = Vec::new();
    broker.shared.mailboxes[1].take(&mut mails);
    let [Mail::Queue(_, notes), Mail::Batch(_)] = &mut mails[..] else { panic!("{mails:?}") };
    notes.extend((0..20_000).map(|_| Note::from(HomeNote::DropStale)));
    broker.shared.mailboxes[1].post(&mut mails);
    exchange(&mut broker, &mut client);
    assert_eq!(journal.calls().len(), 1);
    assert!(!client.has_all_receipts(), "it does not wait");
    journal.save_all();
    exchange(&mut broker, &mut client);
    assert!(client.has_all_receipts(), "it waits forever");
}

#[test]
fn a_receipt_waits_for_messages_that_are_routed_over_several_turns() {
    let body = "x".repeat(60_000);
    let large = format!("SEND\ndestination:/topic/a\n\n{body}\0").repeat(5);
    let begin = "BEGIN\ntransaction:t\n\n\0";
    // The message itself goes on in later turns, or those before it do.
    for (before, topic) in [("", "/topic/a"), (&large, "/topic/b")] {
        for (home, is_commit) in [(0, false), (0, true), (1, false), (1, true)] {
            let what = format!("{topic}, home {home}, COMMIT: {is_commit}");
            let (mut broker, journal, mut client) = with_wide_topic(topic, home);
            let number = client.expect_receipt();
            let send = format!("SEND\ndestination:{topic}\npersistent:true\n");
            let frames = match is_commit {
                true => format!(
                    "{begin}{send}transaction:t\n\n{body}\0COMMIT\ntransaction:t\nreceipt:{number}\n\n\0"
                ),
                false => format!("{send}receipt:{number}\n\n{body}\0"),
            };
            client.send(format!("{before}{frames}").as_bytes());
            exchange(&mut broker, &mut client);
            assert_eq!(journal.calls().len(), 1, "{what}");
            assert!(!client.has_all_receipts(), "{what}: it does not wait");
            journal.save_all();
            exchange(&mut broker, &mut client);
            assert!(client.has_all_receipts(), "{what}: it waits forever");
        }
    }
}

/// A broker of [`world`] with many subscriptions to `/topic/a` at one shard, and then a durable one to `topic`.
fn with_wide_topic(topic: &str, home: usize) -> (SimulatedBroker, Journal, Client) {
    let (mut broker, journal, mut client) = world(Config::default());
    let mut subscriber = connect(&mut broker, home);
    let subscribe = |at| format!("SUBSCRIBE\nid:{at}\ndestination:/topic/a\n\n\0");
    subscriber.send((0..30).map(subscribe).collect::<String>().as_bytes());
    exchange(&mut broker, &mut subscriber);
    let name = names_at_home(&broker, "durable\n\nd", home).next().expect("one of two");
    let name = name.trim_start_matches("durable\n\n");
    let subscribe = format!("SUBSCRIBE\nid:d\ndestination:{topic}\ndurable-subscriber-name:{name}\n\n\0");
    client.send(format!("{subscribe}UNSUBSCRIBE\nid:d\n\n\0").as_bytes());
    exchange(&mut broker, &mut client);
    std::mem::forget(subscriber);
    (broker, journal, client)
}
