//! Tests of what homes tell about queues while memory is short.

use super::*;

#[test]
fn a_home_tells_how_many_messages_it_would_deliver_at_once() {
    let mut world = World::new(2, Config::default());
    world.owners().read(OTHER, MemoryNote::AllowanceRequest(b"/queue/a".as_slice().into()).into());
    assert!(world.remote().is_empty(), "the queue has no consumer");
    world.attach(subscriber(OWN, 0), queue(b"/queue/a"), frame(1));
    world.owners().read(OTHER, MemoryNote::AllowanceRequest(b"/queue/a".as_slice().into()).into());
    assert_eq!(world.remote(), ["allowance 10"]);
}

#[test]
fn a_consumer_of_a_pattern_allows_messages_to_queues_that_do_not_exist_yet() {
    let mut world = World::new(2, Config::default());
    world.attach(subscriber(OWN, 0), Source::Pattern(b"/queue/p/*".as_slice().into()), frame(1));
    let allowance = |world: &mut World, name: &str| world.owners().allowance_of(name.as_bytes());
    assert_eq!(allowance(&mut world, "/queue/other"), None);
    assert_eq!(allowance(&mut world, "/queue/p/a").map(|it| it.messages), Some(10));
    assert!(world.find(b"/queue/p/a").is_none(), "nothing was created");
    for _ in 0..10 {
        world.tell(HomeNote::Enqueue(message("/queue/p/a", "x"), None));
    }
    world.queues.home.dispatch(100);
    // It may be granted more, as long as it has not requested credit from other homes.
    assert_eq!(allowance(&mut world, "/queue/p/a").map(|it| it.messages), Some(1));
    world.tell(HomeNote::Enqueue(message("/queue/p/a", "x"), None));
    world.queues.home.dispatch(100);
    assert_eq!(allowance(&mut world, "/queue/p/a"), None);
    assert_eq!(allowance(&mut world, "/queue/p/b"), None);
}

#[test]
fn messages_that_would_be_dropped_need_no_allowance() {
    let temporary = crate::destination::full_name(b"/temp-queue/x", &"0".repeat(32));
    for (ttl_ms, worker_topic) in [(0, Some(Allowance::MOST)), (1000, None)] {
        let mut world = World::new(1, Config { ttl_ms, ..Config::default() });
        assert_eq!(world.owners().allowance_of(&temporary), Some(Allowance::MOST), "its owner has gone");
        assert_eq!(world.owners().allowance_of(b"#w"), worker_topic);
        world.attach(subscriber(OWN, 0), worker(b"#w"), frame(1));
        assert_eq!(world.owners().allowance_of(b"#w").map(|it| it.messages), Some(10));
        world.tell(HomeNote::Detach(subscriber(OWN, 0)));
        assert_eq!(world.owners().allowance_of(b"#w"), worker_topic, "without a consumer");
    }
}
