//! RECEIPTs that wait until the store has a dead letter.

use super::*;

/// All combinations of a queue's home and the home of its dead letters, of three shards.
fn homes_and_homes_of_letters() -> impl Iterator<Item = (usize, usize)> {
    (0..3).flat_map(|home| (0..3).map(move |letter| (home, letter)))
}

/// A queue with this home, whose dead letters have that one.
fn name_with_letters_at(broker: &SimulatedBroker, home: usize, home_of_letter: usize) -> String {
    let letters: Vec<String> = names_at_home(broker, "/queue/dlq/q", home_of_letter).take(100).collect();
    names_at_home(broker, "/queue/q", home)
        .find(|name| letters.contains(&name.replace("/queue/", "/queue/dlq/")))
        .expect("a name with this home whose dead letters have that one")
}

/// Expects that a client gets its RECEIPTs when the store has all calls, and not before.
fn expect_to_wait(broker: &mut SimulatedBroker, client: &mut Client, journal: &Journal, what: &str) {
    assert!(!client.has_all_receipts(), "{what}: it does not wait");
    journal.save_all();
    exchange(broker, client);
    assert!(client.has_all_receipts(), "{what}: it waits forever");
}

#[test]
fn a_nack_waits_for_the_store_of_the_dead_letter() {
    for (home, home_of_letter) in homes_and_homes_of_letters() {
        let rejecting = Config { max_deliveries: 1, writers: 3, ..Config::default() };
        let (mut broker, journal, mut client) = world(rejecting);
        let name = name_with_letters_at(&broker, home, home_of_letter);
        let consume = format!("SUBSCRIBE\nid:0\ndestination:{name}\nack:client-individual\n\n\0");
        client.send(format!("{consume}{}", SENT.replace("NAME", &name)).as_bytes());
        exchange(&mut broker, &mut client);
        journal.save_all();
        let number = client.expect_receipt();
        let nacked = client.deliveries.back().expect("a delivery").0.clone();
        client.send(format!("NACK\nid:{nacked}\nreceipt:{number}\n\n\0").as_bytes());
        exchange(&mut broker, &mut client);
        let letter = name.replace("/queue/", "/queue/dlq/");
        assert_eq!(journal.calls()[1..], [Call::Keep(2, letter), Call::Forget(1)], "{home} {home_of_letter}");
        let what = format!("home {home}, letter's {home_of_letter}");
        expect_to_wait(&mut broker, &mut client, &journal, &what);
    }
}

#[test]
fn a_receipt_waits_for_the_dead_letter_of_a_message_that_is_expired_when_it_comes() {
    for (home, home_of_letter) in homes_and_homes_of_letters() {
        let (mut broker, journal, _) = world(Config { writers: 3, ..Config::default() });
        broker.advance_ms(1000);
        let mut client = connect(&mut broker, OWN);
        let name = name_with_letters_at(&broker, home, home_of_letter);
        let number = client.expect_receipt();
        client.send(
            format!("SEND\ndestination:{name}\npersistent:true\nexpires:1\nreceipt:{number}\n\nx\0")
                .as_bytes(),
        );
        exchange(&mut broker, &mut client);
        assert_eq!(journal.calls().len(), 1, "{:?}", journal.calls());
        let what = format!("home {home}, letter's {home_of_letter}");
        expect_to_wait(&mut broker, &mut client, &journal, &what);
    }
}

#[test]
fn a_commit_waits_for_the_store_of_the_dead_letter() {
    for (home, home_of_letter) in homes_and_homes_of_letters() {
        let rejecting = Config { max_deliveries: 1, writers: 3, ..Config::default() };
        let (mut broker, journal, mut client) = world(rejecting);
        let name = name_with_letters_at(&broker, home, home_of_letter);
        let consume = format!("SUBSCRIBE\nid:0\ndestination:{name}\nack:client-individual\n\n\0");
        client.send(format!("{consume}{}", SENT.replace("NAME", &name)).as_bytes());
        exchange(&mut broker, &mut client);
        journal.save_all();
        let nacked = client.deliveries.back().expect("a delivery").0.clone();
        let number = client.expect_receipt();
        client.send(
            format!(
                "BEGIN\ntransaction:t\n\n\0NACK\nid:{nacked}\ntransaction:t\n\n\0COMMIT\ntransaction:t\nreceipt:{number}\n\n\0"
            )
            .as_bytes(),
        );
        exchange(&mut broker, &mut client);
        assert!(journal.calls().len() > 1, "{:?}", journal.calls());
        let what = format!("home {home}, letter's {home_of_letter}");
        expect_to_wait(&mut broker, &mut client, &journal, &what);
    }
}
