//! RECEIPTs that wait for a store: each frame that causes a call of a store, on this shard or another one, is answered
//! once the call is safe, and refused if the store fails.

#[path = "store_dead_letter_tests.rs"]
mod dead_letter_tests;
#[path = "store_turns_tests.rs"]
mod turns_tests;

use super::SimulatedBroker;
use super::client::Client;
use super::support::{connect, exchange, names_at_home};
use crate::config::Config;
use crate::ids::ShardId;
use crate::mail::mailbox::Mail;
use crate::store::double::{Call, Journal};
use crate::store::handle::Handle;

/// The shard of the client.
const OWN: usize = 0;

/// A broker of at least two shards with handles of one store, and a client of the first shard.
fn world(config: Config) -> (SimulatedBroker, Journal, Client) {
    let mut broker =
        SimulatedBroker::new(Config { writers: config.writers.max(2), ..config }).expect("polls");
    let journal = Journal::default();
    for thread in &mut broker.threads {
        thread.shard.queues.home.store = Handle::new(journal.handle());
    }
    let client = connect(&mut broker, OWN);
    (broker, journal, client)
}

/// A broker of [`world`] whose store is up to date, and a frame of the client that causes a call of the store.
struct Case {
    what: String,
    broker: SimulatedBroker,
    journal: Journal,
    client: Client,
    /// Its head without `receipt` header and blank line.
    head: String,
    body: &'static str,
}

impl Case {
    fn new(what: &str, home: usize, config: Config, setup: impl Fn(&str) -> String, last: &str) -> Self {
        let (mut broker, journal, mut client) = world(config);
        let is_durable = last.contains("durable") || setup("").contains("durable");
        let prefix = match is_durable {
            true => "durable\n\nd",
            false if last.contains("retain") => "/topic/q",
            false => "/queue/q",
        };
        let name = names_at_home(&broker, prefix, home).next().expect("one of two");
        let name = name.trim_start_matches("durable\n\n").to_owned();
        for frame in setup(&name).split_inclusive('\0') {
            client.send(frame.as_bytes());
            exchange(&mut broker, &mut client);
        }
        journal.save_all();
        exchange(&mut broker, &mut client);
        let mut head = last.replace("NAME", &name);
        if let Some((ack, _)) = client.deliveries.back() {
            head = head.replace("ACKED", ack);
        }
        let body = if last.starts_with("SEND") { "x" } else { "" };
        Case { what: format!("{what}, home {home}"), broker, journal, client, head, body }
    }

    fn send(&mut self, with_receipt: bool) {
        let (head, body) = (&self.head, self.body);
        let receipt = match with_receipt {
            true => format!("receipt:{}\n", self.client.expect_receipt()),
            false => String::new(),
        };
        self.client.send(format!("{head}{receipt}\n{body}\0").as_bytes());
        exchange(&mut self.broker, &mut self.client);
    }

    fn exchange(&mut self) {
        exchange(&mut self.broker, &mut self.client);
    }

    /// The client gets its RECEIPTs as soon as the store has saved everything, and no earlier.
    fn expect_receipts_when_saved(&mut self) {
        assert!(!self.client.has_all_receipts(), "{}: it does not wait", self.what);
        self.journal.save_all();
        self.exchange();
        assert!(self.client.has_all_receipts(), "{}: it waits forever", self.what);
    }
}

const SENT: &str = "SEND\ndestination:NAME\npersistent:true\n\nx\0";

/// Each frame that causes a call of a store, for both homes.
fn cases() -> Vec<Case> {
    let consume = |name: &str| {
        let sent = SENT.replace("NAME", name);
        format!("SUBSCRIBE\nid:0\ndestination:{name}\nack:client-individual\n\n\0{sent}")
    };
    let transaction = |name: &str| {
        let consumed = consume(name);
        let sent = SENT.replace("NAME", "/queue/other").replace("\n\n", "\ntransaction:t\n\n");
        format!("{consumed}BEGIN\ntransaction:t\n\n\0{sent}")
    };
    let durable =
        |name: &str| format!("SUBSCRIBE\nid:0\ndestination:/topic/a\ndurable-subscriber-name:{name}\n\n\0");
    let held = |name: &str| {
        let (begin, sent) = (durable(name), SENT.replace("NAME", "/topic/a"));
        format!("{begin}UNSUBSCRIBE\nid:0\n\n\0{sent}")
    };
    let none = |_: &str| String::new();
    let set = "SEND\ndestination:NAME\nretain:set\n";
    let has_value = |name: &str| set.replace("NAME", name) + "\nx\0";
    let rejecting = || Config { max_deliveries: 1, ..Config::default() };
    let plain = Config::default;
    let topic = "SEND\ndestination:/topic/a\npersistent:true\n";
    let mut cases = Vec::new();
    for home in [0, 1] {
        cases.extend([
            Case::new("SEND to a queue", home, plain(), none, "SEND\ndestination:NAME\npersistent:true\n"),
            Case::new("SEND to a durable subscription", home, plain(), durable, topic),
            Case::new("SEND with retain:set", home, plain(), none, set),
            Case::new("SEND with retain:remove", home, plain(), has_value, &set.replace("set", "remove")),
            Case::new("ACK", home, plain(), consume, "ACK\nid:ACKED\n"),
            Case::new("NACK", home, rejecting(), consume, "NACK\nid:ACKED\n"),
            Case::new("COMMIT", home, plain(), transaction, "COMMIT\ntransaction:t\n"),
            Case::new(
                "UNSUBSCRIBE of a durable subscription",
                home,
                plain(),
                held,
                "UNSUBSCRIBE\ndurable-subscriber-name:NAME\n",
            ),
        ]);
    }
    cases
}

#[test]
fn a_receipt_waits_until_the_calls_of_its_frame_are_safe() {
    for mut case in cases() {
        let before = case.journal.calls().len();
        case.send(true);
        assert!(case.journal.calls().len() > before, "{}: no call of the store", case.what);
        case.expect_receipts_when_saved();
    }
}

#[test]
fn a_failed_store_turns_receipts_into_errors() {
    for mut case in cases() {
        case.send(true);
        case.journal.fail();
        case.exchange();
        let last = case.client.received_frames().last().expect("a frame").to_owned();
        assert!(last.starts_with("ERROR") && last.contains("the store has failed"), "{}: {last}", case.what);
        assert!(case.client.is_closed() && !case.client.has_all_receipts(), "{}", case.what);
    }
}

#[test]
fn a_disconnect_waits_for_the_calls_of_frames_without_a_receipt() {
    for mut case in cases() {
        case.send(false);
        let number = case.client.expect_receipt();
        case.client.send(format!("DISCONNECT\nreceipt:{number}\n\n\0").as_bytes());
        case.exchange();
        case.expect_receipts_when_saved();
    }
}

#[test]
fn a_drain_waits_for_the_store() {
    for with_receipt in [true, false] {
        for mut case in cases() {
            case.send(with_receipt);
            for mailbox in case.broker.shared.mailboxes.iter() {
                mailbox.post(&mut vec![Mail::Drain]);
            }
            case.exchange();
            let what = format!("{}, RECEIPT: {with_receipt}", case.what);
            assert!(!case.client.is_closed(), "{what}: it does not wait");
            case.journal.save_all();
            case.exchange();
            assert!(case.client.is_closed() && case.client.has_all_receipts(), "{what}");
        }
    }
}

#[test]
fn a_drain_waits_for_the_store_also_for_what_expires_during_it() {
    let (mut broker, journal, mut client) = world(Config::default());
    // The other shard has nothing to wait for, and ends.
    let dead_letters_are_here = |name: &String| {
        let name = name.replace("/queue/", "/queue/dlq/");
        broker.threads[OWN].shard.router.home(name.as_bytes()) == ShardId(OWN as u8)
    };
    let name = names_at_home(&broker, "/queue/q", OWN).find(dead_letters_are_here).expect("one of a few");
    let receipt = client.expect_receipt();
    client.send(
        format!("SEND\ndestination:{name}\npersistent:true\nttl:500\nreceipt:{receipt}\n\nx\0").as_bytes(),
    );
    exchange(&mut broker, &mut client);
    journal.save_all();
    exchange(&mut broker, &mut client);
    broker.shared.mailboxes.iter().for_each(|mailbox| mailbox.post(&mut vec![Mail::Drain]));
    broker.run_until_idle();
    broker.advance_ms(600);
    broker.run_until_idle();
    drop(client); // until now, the shards waited for it to close its side
    broker.run_until_idle();
    assert!(broker.threads.iter().any(|thread| !thread.shard.is_stopped()), "the end is not saved yet");
    journal.save_all();
    broker.run_until_idle();
    assert!(broker.threads.iter().all(|thread| thread.shard.is_stopped()));
}

#[test]
fn a_receipt_waits_for_no_later_call() {
    for home in [0, 1] {
        let (mut broker, journal, mut client) = world(Config::default());
        let name = names_at_home(&broker, "/queue/q", home).next().expect("one of two");
        let receipts =
            |client: &Client| client.received_frames().filter(|it| it.starts_with("RECEIPT")).count();
        for _ in 0..3 {
            let number = client.expect_receipt();
            let send = format!("SEND\ndestination:{name}\npersistent:true\nreceipt:{number}\n\nx\0");
            client.send(send.as_bytes());
        }
        exchange(&mut broker, &mut client);
        for saved in 0..4 {
            assert_eq!(receipts(&client), saved, "home {home}");
            journal.save_one();
            exchange(&mut broker, &mut client);
        }
    }
}

#[test]
fn other_connections_do_not_wait_for_the_store() {
    let (mut broker, journal, mut client) = world(Config::default());
    client.expect_receipt();
    client.send(b"SEND\ndestination:/queue/a\npersistent:true\nreceipt:1\n\nx\0");
    exchange(&mut broker, &mut client);
    assert!(!client.has_all_receipts() && journal.calls().len() == 1);
    for shard in [0, 1] {
        let mut other = connect(&mut broker, shard);
        for frame in [
            "SEND\ndestination:/queue/a\n",
            "SEND\ndestination:/topic/a\npersistent:true\n",
            "SUBSCRIBE\nid:0\ndestination:/queue/b\n",
            "UNSUBSCRIBE\nid:0\n",
            "BEGIN\ntransaction:t\n",
            "SEND\ndestination:/queue/a\npersistent:true\ntransaction:t\n",
            "ABORT\ntransaction:t\n",
        ] {
            let number = other.expect_receipt();
            other.send(format!("{frame}receipt:{number}\n\n\0").as_bytes());
            exchange(&mut broker, &mut other);
            assert!(other.has_all_receipts(), "{frame}");
        }
    }
}

#[test]
fn a_transaction_of_several_homes_is_one_record_with_the_places_of_its_messages() {
    let (mut broker, journal, mut client) = world(Config::default());
    let [near, far] = [0, 1].map(|home| names_at_home(&broker, "/queue/q", home).next().expect("one of two"));
    let consume = format!("SUBSCRIBE\nid:0\ndestination:{near}\nack:client-individual\n\n\0");
    client.send(format!("{consume}{}", SENT.replace("NAME", &near)).as_bytes());
    exchange(&mut broker, &mut client);
    let before = journal.calls().len();
    client.send(b"BEGIN\ntransaction:t\n\n\0");
    for (name, persistent) in [(&near, true), (&far, true), (&far, false), (&far, true)] {
        let frame = format!("SEND\ntransaction:t\ndestination:{name}\npersistent:{persistent}\n\nx\0");
        client.send(frame.as_bytes());
    }
    let acked = client.deliveries.back().expect("a delivery").0.clone();
    client.send(format!("ACK\nid:{acked}\ntransaction:t\n\n\0COMMIT\ntransaction:t\n\n\0").as_bytes());
    exchange(&mut broker, &mut client);
    let keep = |record, name: &str, place| (Call::Keep(record, name.to_owned()), place);
    let calls = journal.calls()[before..].to_vec();
    let places: Vec<u64> = match &calls[..] {
        [Call::Transaction(calls)] => calls.iter().map(|(_, place)| *place).collect(),
        other => panic!("{other:?}"),
    };
    assert!(places[1..3].iter().all(|place| *place > 0), "{places:?}");
    let expected = vec![
        (Call::Forget(1), 0),
        keep(2, &near, places[1]),
        keep(3, &far, places[2]),
        keep(4, &far, places[2] + 2), // one message is not persistent, and has a place
    ];
    assert_eq!(calls, [Call::Transaction(expected)]);
}

#[test]
fn a_durable_subscription_waits_until_its_stale_messages_are_safe() {
    for home in [0, 1] {
        let (mut broker, journal, mut client) = world(Config { ttl_ms: 60_000, ..Config::default() });
        let name = names_at_home(&broker, "durable\n\nd", home).next().expect("one of two");
        let name = name.trim_start_matches("durable\n\n");
        client.send(SENT.replace("NAME", "/topic/a").as_bytes());
        exchange(&mut broker, &mut client);
        let number = client.expect_receipt();
        let subscribe = format!(
            "SUBSCRIBE\nid:0\ndestination:/topic/a\nack:client\ndurable-subscriber-name:{name}\nreceipt:{number}\n\n\0"
        );
        client.send(subscribe.as_bytes());
        exchange(&mut broker, &mut client);
        assert_eq!((journal.calls().len(), client.bodies.len()), (1, 1), "home {home}");
        assert!(!client.has_all_receipts(), "home {home}: it does not wait");
        journal.save_all();
        exchange(&mut broker, &mut client);
        assert!(client.has_all_receipts(), "home {home}: it waits forever");
    }
}

#[test]
fn the_end_of_a_connection_waits_for_no_other_event_once_everything_is_safe() {
    let (mut broker, journal, mut client) = world(Config::default());
    let name = names_at_home(&broker, "/queue/q", OWN).next().expect("one of two");
    let number = client.expect_receipt();
    let send = format!("SEND\ndestination:{name}\npersistent:true\n");
    // The second SEND has no RECEIPT, so the end asks the own shard whether it is safe, too.
    client.send(format!("{send}receipt:{number}\n\nx\0{send}\nx\0DISCONNECT\n\n\0").as_bytes());
    exchange(&mut broker, &mut client);
    assert!(!client.has_all_receipts() && journal.calls().len() == 2);
    journal.save_all();
    broker.turn(OWN);
    while broker.threads[OWN].shard.has_work() {
        broker.turn(OWN);
    }
    while client.read(usize::MAX) {}
    assert!(client.has_all_receipts() && client.is_closed());
}
