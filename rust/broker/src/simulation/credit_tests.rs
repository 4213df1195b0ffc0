//! Consumers of patterns that acknowledge nothing: how many messages they get from queues at several homes.

use super::SimulatedBroker;
use super::client::Client;
use super::support::{broker, connect, exchange, messages, names_at_home};
use crate::config::Config;

const SHARDS: usize = 3;
/// More than the credit with `ack:auto`, and more than the default prefetch.
const COUNT: usize = 1200;

/// A broker whose worker topics keep messages without a consumer.
fn broker_with_ttl() -> SimulatedBroker {
    broker(Config { writers: SHARDS, ttl_ms: 3_600_000, ..Config::default() })
}

/// Sends messages to queues of a pattern, one queue at each of these homes.
fn fill(broker: &mut SimulatedBroker, pattern: &str, homes: &[usize]) {
    let mut publisher = connect(broker, 0);
    for home in homes {
        let name = names_at_home(broker, pattern.trim_end_matches('>'), *home).next().expect("one of three");
        let send = format!("SEND\ndestination:{name}\n\n\0");
        publisher.send(send.repeat(COUNT / homes.len()).as_bytes());
    }
    exchange(broker, &mut publisher);
}

fn consumer(broker: &mut SimulatedBroker, pattern: &str, headers: &str) -> Client {
    let mut client = connect(broker, 0);
    client.send(format!("SUBSCRIBE\nid:0\ndestination:{pattern}\n{headers}\n\0").as_bytes());
    exchange(broker, &mut client);
    client
}

/// The number of messages that a consumer gets if the queues were filled before it subscribed, and if they are filled
/// afterwards.
fn received_counts(pattern: &str, homes: &[usize], headers: &str) -> [usize; 2] {
    let mut broker = broker_with_ttl();
    fill(&mut broker, pattern, homes);
    let late = consumer(&mut broker, pattern, headers);
    let mut broker = broker_with_ttl();
    let mut early = consumer(&mut broker, pattern, headers);
    fill(&mut broker, pattern, homes);
    exchange(&mut broker, &mut early);
    [messages(&late), messages(&early)]
}

#[test]
fn a_consumer_of_a_pattern_without_a_limit_gets_all_messages() {
    for pattern in ["/queue/p/>", "#p/>"] {
        for homes in [&[0][..], &[2], &[0, 1, 2]] {
            for headers in [
                "ack:client-individual\nprefetch-count:0\n",
                "ack:client\nprefetch-count:0\nconsumer-window-size:-1\n",
                "ack:auto\n",
            ] {
                assert_eq!(
                    received_counts(pattern, homes, headers),
                    [COUNT; 2],
                    "{pattern} {homes:?} {headers:?}"
                );
            }
        }
    }
}

#[test]
fn the_limit_of_a_consumer_of_a_pattern_applies_to_all_homes_together() {
    for pattern in ["/queue/p/>", "#p/>"] {
        for homes in [&[0][..], &[2], &[0, 1, 2]] {
            for bound in [1, 2, 100, 1001, 100_000] {
                let headers = format!("ack:client-individual\nprefetch-count:{bound}\n");
                assert_eq!(
                    received_counts(pattern, homes, &headers),
                    [bound.min(COUNT); 2],
                    "{pattern} {homes:?} {bound}"
                );
            }
            let headers = "ack:client\nconsumer-window-size:-1\n";
            assert_eq!(
                received_counts(pattern, homes, headers),
                [1000; 2],
                "{pattern} {homes:?}: the default"
            );
        }
    }
}
