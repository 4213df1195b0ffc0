//! Tests of how consumers share messages, and in what order queues are served.

use super::*;

#[test]
fn a_nacked_message_goes_to_a_consumer_that_got_credit_in_the_same_turn() {
    let mut home = home();
    let queue = home.create(b"/queue/a", QueueKind::Work);
    let first = home.attach(queue, subscriber(1), messages(10));
    home.attach(queue, subscriber(2), messages(1));
    (0..2).for_each(|id| home.enqueue(queue, message("/queue/a", id, 1)));
    home.dispatch(usize::MAX);
    let mut held = take_deliveries(&mut home);
    assert_eq!(held.iter().map(|it| it.subscriber.key.index).collect::<Vec<_>>(), [1, 2]);
    let why = GivenBack::Failed { deliveries_max: u32::MAX, delay_ms: 0, credit: messages(1) };
    home.give_back(queue, first, held.remove(0).message, why);
    home.set_time(DELAY_MS);
    home.handle_due(queue);
    home.progress(&settled(&held[0], 1));
    home.dispatch(usize::MAX);
    let again = take_deliveries(&mut home);
    assert_eq!((id_of(&again[0].message), again[0].subscriber.key.index), (0, 2));
}

#[test]
fn each_of_very_many_busy_queues_is_served_soon() {
    let mut home = home();
    let mut queue = |number: usize, count: usize| {
        let name = format!("/queue/{number}");
        let queue = home.create(name.as_bytes(), QueueKind::Work);
        home.attach(queue, subscriber(number), messages(1000));
        (0..count).for_each(|id| home.enqueue(queue, message(&name, id, 1)));
        queue
    };
    (0..5000).for_each(|number| _ = queue(number, 60));
    let last = queue(5000, 1);
    let mut delivered = 0;
    let mut is_served = false;
    while !is_served {
        delivered += home.dispatch(64);
        is_served = take_deliveries(&mut home).iter().any(|delivery| delivery.queue == last);
    }
    assert!(delivered < 5100, "{delivered} deliveries");
}

/// Adds one message to each of this many queues, one after another. Returns how many each consumer gets.
fn deliveries_of_queues(home: &mut Home, queues: usize, consumers: usize) -> Vec<usize> {
    let mut counts = vec![0; consumers];
    for number in 0..queues {
        let name = format!("/queue/{number}");
        let queue = home.create(name.as_bytes(), QueueKind::Work);
        home.enqueue(queue, message(&name, number, 1));
        home.dispatch(usize::MAX);
        for delivery in take_deliveries(home) {
            counts[delivery.subscriber.key.index as usize] += 1;
        }
    }
    counts
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn equal_consumers_get_equally_many_messages(
        patterns in prop::collection::vec(any::<bool>(), 1..6),
        batches in prop::collection::vec((0..10_usize, 1..10_usize), 1..20),
    ) {
        let mut home = home();
        let queue = home.create(b"/queue/a", QueueKind::Work);
        for (number, pattern) in patterns.iter().enumerate() {
            match pattern {
                true => home.attach_pattern(b"/queue/*", subscriber(number), messages(Credit::UNLIMITED)),
                false => home.attach(queue, subscriber(number), messages(Credit::UNLIMITED)),
            };
        }
        let mut counts = vec![0_usize; patterns.len()];
        for (count, portion) in batches {
            (0..count).for_each(|id| home.enqueue(queue, message("/queue/a", id, 1)));
            home.dispatch(portion);
            for delivery in take_deliveries(&mut home) {
                counts[delivery.subscriber.key.index as usize] += 1;
                let (least, most) = (counts.iter().min(), counts.iter().max());
                prop_assert!(most.zip(least).is_some_and(|(most, least)| most - least <= 1), "{:?}", counts);
            }
        }
    }

    #[test]
    fn several_patterns_share_many_queues_by_their_consumers(sizes in prop::collection::vec(1..4_usize, 1..4)) {
        let mut home = home();
        let mut consumers = 0;
        for (pattern, size) in sizes.iter().enumerate() {
            for _ in 0..*size {
                let text = ["/queue/*", "/queue/>", "/queue/#"][pattern];
                home.attach_pattern(text.as_bytes(), subscriber(consumers), messages(Credit::UNLIMITED));
                consumers += 1;
            }
        }
        let counts = deliveries_of_queues(&mut home, 10 * consumers, consumers);
        prop_assert!(counts.iter().all(|count| *count == 10), "{:?}", counts);
    }

    #[test]
    fn each_queue_serves_all_consumers_of_a_pattern_in_turn(
        consumers in 1..6_usize,
        order in prop::collection::vec(0..4_usize, 1..100),
    ) {
        let mut home = home();
        for number in 0..consumers {
            home.attach_pattern(b"#jobs/*", subscriber(number), messages(Credit::UNLIMITED));
        }
        let names = ["#jobs/a", "#jobs/b", "#jobs/c", "#jobs/d"];
        let queues = names.map(|name| home.create(name.as_bytes(), QueueKind::Worker));
        let mut counts = vec![vec![0_usize; consumers]; names.len()];
        for (id, queue) in order.iter().enumerate() {
            home.enqueue(queues[*queue], message(names[*queue], id, 1));
            home.dispatch(usize::MAX);
            for delivery in take_deliveries(&mut home) {
                counts[*queue][delivery.subscriber.key.index as usize] += 1;
            }
        }
        for (queue, of) in counts.iter().enumerate() {
            prop_assert!(of.iter().max() <= of.iter().min().map(|least| least + 1).as_ref(), "{}: {:?}", queue, of);
        }
    }

    #[test]
    fn many_queues_with_one_message_each_are_shared_evenly(consumers in 1..6_usize, queues in 1..40_usize) {
        let mut home = home();
        for number in 0..consumers {
            home.attach_pattern(b"/queue/*", subscriber(number), messages(Credit::UNLIMITED));
        }
        let counts = deliveries_of_queues(&mut home, queues, consumers);
        let (least, most) = (counts.iter().min(), counts.iter().max());
        prop_assert!(most.zip(least).is_some_and(|(most, least)| most - least <= 1), "{:?}", counts);
        prop_assert_eq!(counts.iter().sum::<usize>(), queues);
    }
}

#[test]
fn consumers_of_a_closed_shard_are_suspended_until_it_is_opened() {
    let mut home = home();
    let far = |number| Subscriber { shard: ShardId(5), ..subscriber(number) };
    let queues = ["/queue/a", "/queue/b"].map(|name| home.create(name.as_bytes(), QueueKind::Work));
    home.attach(queues[0], far(1), messages(10));
    home.attach_pattern(b"/queue/b*", far(2), messages(3));
    let near = home.attach(queues[1], subscriber(3), messages(1));
    home.close(ShardId(5));
    for id in 0..4 {
        home.enqueue(queues[0], message("/queue/a", id, 1));
        home.enqueue(queues[1], message("/queue/b", id, 1));
    }
    home.dispatch(usize::MAX);
    let shards =
        |home: &mut Home| take_deliveries(home).iter().map(|it| it.subscriber.shard.0).collect::<Vec<_>>();
    assert_eq!(
        (shards(&mut home), home.has_work()),
        (vec![0], false),
        "others go on, and nothing is tried again"
    );
    // Granted or revoked credit changes nothing meanwhile.
    let [pattern, exact] = [2, 1].map(|number| home.consumer_of(far(number)).expect("it consumes"));
    home.add_credit(exact, messages(1));
    home.grant(pattern, 1);
    home.dispatch(usize::MAX);
    assert_eq!((shards(&mut home), home.has_work()), (vec![], false));
    home.detach(far(1));
    home.attach(queues[0], far(4), messages(10));
    home.dispatch(usize::MAX);
    home.open(ShardId(5));
    assert!(home.has_work());
    home.dispatch(1);
    home.close(ShardId(5));
    let first = shards(&mut home).len();
    home.open(ShardId(5));
    home.dispatch(usize::MAX);
    assert_eq!(
        (first + shards(&mut home).len(), home.has_work()),
        (7, false),
        "all pending messages, once each"
    );
    home.add_credit(near, messages(1));
    assert!(!home.has_work());
}
