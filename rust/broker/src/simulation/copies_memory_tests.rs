//! Messages that wait in private queues of subscriptions to topics, near `memory_limit`.

use super::SimulatedBroker;
use super::client::Client;
use super::near_limit::{LIMIT, fill_up_to, held, last_ack_id, near_the_limit, publish, subscriber, wait};
use super::support::{broker, connect, exchange, messages, receipts};
use crate::config::Config;

#[test]
fn subscribers_that_never_acknowledge_are_cut_off_when_memory_is_short() {
    let mut broker = near_the_limit();
    let mut silent = ["a", "b", "c"].map(|topic| subscriber(&mut broker, topic));
    let mut publisher = connect(&mut broker, 0);
    for at in 0..1000 {
        publish(&mut broker, &mut publisher, ["a", "b", "c"][at % 3], 10_000);
    }
    assert!(!publisher.has_all_receipts(), "nothing waits");
    for _ in 0..60 {
        broker.advance_ms(100);
        broker.run_until_idle();
    }
    exchange(&mut broker, &mut publisher);
    let cut_off = silent.iter_mut().filter_map(|client| {
        exchange(&mut broker, client);
        client.is_closed().then_some(())
    });
    assert!(cut_off.count() > 0, "all of them are still connected");
    assert!(publisher.has_all_receipts() && !publisher.is_closed());
}

#[test]
fn a_message_that_waits_once_for_many_subscribers_is_not_copied_for_all_of_them_at_once() {
    const COUNT: usize = 100;
    let mut broker = near_the_limit();
    let mut subscribers: Vec<Client> = (0..COUNT).map(|_| subscriber(&mut broker, "a")).collect();
    let mut publisher = connect(&mut broker, 0);
    publish(&mut broker, &mut publisher, "a", 1);
    publish(&mut broker, &mut publisher, "a", 500_000);
    subscribers.iter_mut().for_each(|subscriber| exchange(&mut broker, subscriber));
    assert!(held(&broker) < LIMIT / 4, "it waits once: {} bytes", held(&broker));
    for subscriber in &mut subscribers {
        let ack = last_ack_id(subscriber);
        let receipt = subscriber.expect_receipt();
        subscriber.send(format!("ACK\nid:{ack}\nreceipt:{receipt}\n\n\0").as_bytes());
    }
    for _ in 0..5 * COUNT {
        broker.run_until_idle();
        assert!(held(&broker) < LIMIT + LIMIT / 8, "{} bytes are held", held(&broker));
        for subscriber in &mut subscribers {
            subscriber.read(usize::MAX);
        }
        broker.advance_ms(1);
    }
    let counts = subscribers.iter().map(|it| (messages(it), receipts(it))).collect::<Vec<_>>();
    assert!(counts.iter().all(|counts| *counts == (2, 1)), "{counts:?}");
}

/// Lets clients acknowledge one message every 3 s, ten times: longer than one may stall that has something to take, and
/// not as long as the time of `block`.
fn acknowledge_slowly(broker: &mut SimulatedBroker, clients: &mut [Client]) {
    for _ in 0..10 {
        wait(broker, 3000);
        for client in &mut *clients {
            exchange(broker, client);
            let ack = last_ack_id(client);
            if !client.is_closed() {
                client.send(format!("ACK\nid:{ack}\n\n\0").as_bytes());
            }
        }
    }
    clients.iter_mut().for_each(|client| exchange(broker, client));
}

#[test]
fn a_subscriber_that_acknowledges_slowly_is_cut_off_only_if_its_messages_take_an_eighth_of_memory() {
    for (count, is_cut_off) in [(80, false), (150, true)] {
        let mut broker = near_the_limit();
        let mut slow = ["a", "b"].map(|topic| subscriber(&mut broker, topic));
        let mut publisher = connect(&mut broker, 0);
        for at in 0..2 * count {
            publish(&mut broker, &mut publisher, ["a", "b"][at % 2], 10_000);
        }
        fill_up_to(&broker, 85);
        acknowledge_slowly(&mut broker, &mut slow);
        assert_eq!(slow.each_ref().map(Client::is_closed), [is_cut_off; 2], "{count} messages");
    }
}

#[test]
fn a_message_that_many_subscribers_wait_for_counts_once() {
    let mut broker = near_the_limit();
    let mut silent: Vec<Client> = (0..20).map(|_| subscriber(&mut broker, "a")).collect();
    let mut publisher = connect(&mut broker, 0);
    (0..10).for_each(|_| publish(&mut broker, &mut publisher, "a", 20_000));
    fill_up_to(&broker, 85);
    wait(&mut broker, 10_000);
    silent.iter_mut().for_each(|client| exchange(&mut broker, client));
    assert!(silent.iter().all(|client| !client.is_closed()), "others fill the memory");
}

#[test]
fn a_subscriber_with_too_much_in_flight_is_cut_off_when_memory_is_short() {
    let mut broker = near_the_limit();
    let [mut greedy, mut publisher] = [0; 2].map(|shard| connect(&mut broker, shard));
    let headers = "id:0\nack:client-individual\nprefetch-count:10000";
    greedy.send(format!("SUBSCRIBE\n{headers}\ndestination:/topic/a\n\n\0").as_bytes());
    for _ in 0..500 {
        publish(&mut broker, &mut publisher, "a", 10_000);
        exchange(&mut broker, &mut greedy);
    }
    fill_up_to(&broker, 85);
    wait(&mut broker, 10_000);
    exchange(&mut broker, &mut greedy);
    assert!(messages(&greedy) > 100 && greedy.is_closed(), "it has {} messages", messages(&greedy));
}

#[test]
fn many_small_queues_of_one_client_are_acted_on_together() {
    for policy in ["disconnect", "drop-oldest"] {
        let mut broker = near_the_limit();
        let [mut reader, mut publisher] = [0; 2].map(|shard| connect(&mut broker, shard));
        for id in 0..50 {
            let headers = format!("id:{id}\nack:client-individual\nprefetch-count:1\nslow-consumer:{policy}");
            reader.send(format!("SUBSCRIBE\n{headers}\ndestination:/topic/{id}\n\n\0").as_bytes());
        }
        exchange(&mut broker, &mut reader);
        for at in 0..250 {
            publish(&mut broker, &mut publisher, &(at % 50).to_string(), 10_000);
        }
        let before = held(&broker);
        fill_up_to(&broker, 96);
        let others = held(&broker) - before;
        wait(&mut broker, 1000);
        exchange(&mut broker, &mut reader);
        assert_eq!(reader.is_closed(), policy == "disconnect");
        assert!(held(&broker) - others < before * 3 / 4, "{policy}: {before}, {}", held(&broker) - others);
    }
}

#[test]
fn last_values_are_not_dropped_for_live_messages() {
    let mut broker =
        broker(Config { outbox_limit: 64 << 10, writers: 1, heartbeat_ms: (0, 0), ..Config::default() });
    let [mut reader, mut publisher] = [0; 2].map(|shard| connect(&mut broker, shard));
    for topic in ["a", "b", "c"] {
        publisher.send(format!("SEND\ndestination:/topic/{topic}\nretain:set\n\nvalue\0").as_bytes());
    }
    exchange(&mut broker, &mut publisher);
    let headers = "id:0\nack:client-individual\nprefetch-count:1\nslow-consumer:drop-oldest";
    reader.send(format!("SUBSCRIBE\n{headers}\ndestination:/topic/*\n\n\0").as_bytes());
    exchange(&mut broker, &mut reader);
    (0..100).for_each(|_| publish(&mut broker, &mut publisher, "live", 10_000));
    for _ in 0..4 {
        exchange(&mut broker, &mut reader);
        reader.send(format!("ACK\nid:{}\n\n\0", last_ack_id(&reader)).as_bytes());
    }
    exchange(&mut broker, &mut reader);
    assert_eq!(reader.bodies.iter().filter(|body| *body == "value").count(), 3);
}
