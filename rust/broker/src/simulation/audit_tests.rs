//! The audit finds nothing in a broker that works, and finds each wrong state.

use super::SimulatedBroker;
use super::support::{broker, connect, exchange};
use crate::config::Config;
use crate::connection::pausing::Pause;
use crate::ids::{ConsumerKey, ShardId};
use crate::shard::Shard;

/// A broker with a consumer that has not acknowledged a message, and a publisher.
fn at_work() -> SimulatedBroker {
    let mut broker = broker(Config { writers: 2, ..Config::default() });
    let [mut consumer, mut publisher] = [0, 1].map(|shard| connect(&mut broker, shard));
    consumer.send(
        b"SUBSCRIBE\nid:0\ndestination:/queue/a\nack:client\n\n\0SUBSCRIBE\nid:1\ndestination:/topic/a\n\n\0\
          SUBSCRIBE\nid:2\ndestination:/queue/b/*\nack:client\nprefetch-count:2\n\n\0",
    );
    exchange(&mut broker, &mut consumer);
    publisher.send(b"SEND\ndestination:/queue/a\n\nhello\0SEND\ndestination:/topic/a\n\nhello\0");
    exchange(&mut broker, &mut publisher);
    exchange(&mut broker, &mut consumer);
    broker.round(); // the last frames of the clients, and those of others
    broker
}

/// What is found after a wrong state was made on the consumer's shard.
fn found_after(wrong: impl FnOnce(&mut Shard)) -> String {
    let mut broker = at_work();
    assert_eq!(broker.audit(), Vec::<String>::new());
    wrong(&mut broker.threads[0].shard);
    broker.audit().join("\n")
}

#[test]
fn each_wrong_state_is_found() {
    let found = found_after(|shard| shard.connections.input_bytes += 1);
    assert!(found.contains("bytes of input"), "{found}");
    let found = found_after(|shard| shard.connections.undrained.clear());
    assert_eq!(found, "", "an idle connection is on no list");
    let found = found_after(|shard| {
        let keys = shard.connections.table.keys();
        shard.connections.table.get_mut(keys[0]).expect("the consumer").input.is_listed = true;
    });
    assert!(found.contains("readable"), "{found}");
    let found = found_after(|shard| shard.peers.busy.congested = 0b10);
    assert!(found.contains("waits for shard 1"), "{found}");
    let found = found_after(|shard| shard.deliveries.open_groups.push(7));
    assert!(found.contains("open"), "{found}");
    let found = found_after(|shard| {
        let consumer = shard.queues.consumers.iter_mut().next().expect("one");
        drop(consumer.unacked.pop());
    });
    assert!(found.contains("in flight"), "{found}");
    let found = found_after(|shard| {
        let mut shared =
            shard.queues.consumers.iter_mut().filter_map(|consumer| consumer.shared_credit.as_mut());
        let consumer = ConsumerKey { index: 0, generation: 0 };
        shared.next().expect("that of the pattern").requests.push_back((ShardId(1), consumer));
    });
    assert!(found.contains("shard 1 waits for credit"), "{found}");
}

/// What is found when the consumer waits with this SEND as if its message would be kept, while memory is short.
fn found_of_wait(send: &[u8]) -> String {
    found_after(|shard| {
        shard.turn.memory.is_short = true;
        let key = shard.connections.table.keys()[0];
        shard.connections.park(&mut shard.turn, key, Pause::Kept);
        shard.connections.table.get_mut(key).expect("the consumer").input.bytes = send.to_vec();
    })
}

#[test]
fn a_wait_with_a_message_that_nobody_keeps_is_found() {
    let found = found_of_wait(b"SEND\ndestination:/topic/a\n\n");
    assert!(found.contains("waits for Kept"), "{found}");
    let found = found_of_wait(b"SEND\ndestination:/topic/a\nretain:set\n\n");
    assert!(!found.contains("waits for Kept"), "{found}");
}
