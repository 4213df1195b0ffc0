//! What is refused, and what goes on, near `memory_limit`.

use std::sync::atomic::Ordering;

use super::crossing::{broker, connect, messages, receipts, talk};
use crate::config::Config;

#[test]
fn names_that_only_their_client_can_end_leave_room_for_what_passes_straight_through() {
    let mut broker = broker(Config { writers: 1, memory_limit: 64 << 20, ..Config::default() });
    let [mut reader, mut greedy, mut asker] = [0; 3].map(|shard| connect(&mut broker, shard));
    reader.say(b"SUBSCRIBE\nid:0\ndestination:/topic/a\n\n\0");
    broker.run();
    // As if other shards held so much.
    broker.shared.memory.fetch_add((64 << 20) / 100 * 91, Ordering::Relaxed);
    let long = "n".repeat(8000);
    greedy.say(format!("SUBSCRIBE\nid:0\ndestination:/topic/{long}\n\n\0").as_bytes());
    asker.say(format!("SEND\ndestination:/topic/a\nreply-to:/temp-queue/{long}\n\nrefused\0").as_bytes());
    broker.run();
    for client in [&mut greedy, &mut asker] {
        client.read(usize::MAX);
        let refused = client.heard().any(|head| head.starts_with("ERROR") && head.contains("code:E-MEMORY"));
        assert!(refused, "a name was taken where only messages may pass");
    }
    for _ in 0..10 {
        let receipt = reader.ask();
        reader.say(format!("SEND\ndestination:/topic/a\nreceipt:{receipt}\n\npasses\0").as_bytes());
        talk(&mut broker, &mut reader);
    }
    assert_eq!((messages(&reader), receipts(&reader)), (10, 10));
}
