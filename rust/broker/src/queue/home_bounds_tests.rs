//! Tests that homes bound their timers, their memory and the work of one step.

use super::*;

#[test]
fn timers_do_not_accumulate_while_a_queue_is_used() {
    let mut home = home();
    let mut timers = BinaryHeap::new();
    let queue = home.create(b"/queue/a", QueueKind::Work);
    home.attach_pattern(b"/queue/*", subscriber(1), messages(Credit::UNLIMITED));
    for step in 0..1000_usize {
        let now_ms = 50 * step as u64;
        home.set_time(now_ms);
        while timers.peek().is_some_and(|Reverse(at_ms)| *at_ms <= now_ms) {
            timers.pop();
            home.handle_due(queue);
        }
        let mut message = message("/queue/a", step, 1);
        message.expires_ms = now_ms + 40;
        home.enqueue(queue, message);
        home.dispatch(usize::MAX);
        for effect in take(&mut home.effects) {
            match effect {
                Effect::Timer(at_ms, _) => timers.push(Reverse(at_ms)),
                Effect::Deliver(delivery) => home.progress(&settled(&delivery, 1)),
                other => panic!("unexpected: {other:?}"),
            }
        }
    }
    assert!(timers.len() as u64 <= 2 * IDLE_MS / 40, "{} timers wait for one queue", timers.len());
}

#[test]
fn remaining_overdue_messages_do_not_precede_the_deadlines_of_other_queues() {
    let (mut home, queue) = with_expiring(1000, |at| 10 + at as u64 / 500);
    home.set_time(100);
    home.effects.clear();
    let mut meets = 0;
    while home.queue(queue).is_some_and(|queue| queue.size() > 0) && meets < 10 {
        home.handle_due(queue);
        meets += 1;
        let timers = take(&mut home.effects).into_iter().filter_map(|effect| match effect {
            Effect::Timer(at_ms, _) => Some(at_ms),
            _ => None,
        });
        assert!(timers.min().is_some_and(|at_ms| at_ms >= 100), "after {meets}");
    }
    assert_eq!((meets, home.counts.expired), (4, 1000));
}

#[test]
fn the_memory_of_a_home_is_released_with_it() {
    let before = held::bytes();
    let mut home = home();
    let queue = home.create(b"/queue/a", QueueKind::Work);
    let worker = home.create(b"#w", QueueKind::Worker);
    let consumer = home.attach(queue, subscriber(1), messages(3));
    for id in 0..6 {
        let mut message = message("/queue/a", id, 1000);
        message.expires_ms = [0, 50][id % 2];
        message.failures_max = u16::from(id == 2);
        home.enqueue(queue, message);
    }
    home.enqueue(worker, message("#w", 6, 1000));
    home.dispatch(2);
    let mut held = take_deliveries(&mut home);
    let why = GivenBack::Failed { deliveries_max: u32::MAX, delay_ms: 0, credit: messages(1) };
    home.give_back(queue, consumer, held.remove(0).message, why); // delayed
    home.give_back(queue, consumer, held.remove(0).message, GivenBack::Lost); // at its old place
    home.dispatch(2); // to the consumer
    let failed = take_deliveries(&mut home).remove(1).message;
    home.give_back(queue, consumer, failed, why); // a dead letter
    home.dispatch(1);
    home.set_time(50);
    home.handle_due(queue); // others expire
    assert!(held::bytes() > before + 5000);
    let is_letter = |effect: &&Effect| matches!(effect, Effect::DeadLetter(_));
    assert!(home.effects.iter().filter(is_letter).count() > 1 && home.effects.iter().any(is_delivery));
    assert!(home.effects.iter().any(|effect| matches!(effect, Effect::Unmatched(_))));
    assert!(home.queue(queue).is_some_and(|queue| queue.pending.len() > 0));
    drop(home);
    assert_eq!(held::bytes(), before);
}

#[test]
fn consumers_of_a_pattern_cost_its_queues_nothing() {
    let mut home = home();
    for number in 0..2000 {
        home.create(format!("/queue/{number}").as_bytes(), QueueKind::Work);
    }
    home.attach_pattern(b"/queue/>", subscriber(0), messages(1));
    home.proceed(usize::MAX);
    let (bytes, references) = (home.held_bytes(), home.references);
    home.visited = 0;
    for number in 1..1000 {
        home.attach_pattern(b"/queue/>", subscriber(number), messages(1));
    }
    assert_eq!((references, home.references, home.visited), (2000, 2000, 0));
    assert!(!home.is_sweeping() && home.held_bytes() - bytes < 1000 * 200, "{}", home.held_bytes() - bytes);
    for number in 0..1000 {
        home.detach(subscriber(number));
    }
    home.proceed(usize::MAX);
    assert_eq!((home.references, home.patterns.is_empty()), (0, true));
}

#[test]
fn several_changes_of_patterns_cause_one_walk_over_the_queues() {
    let mut home = home();
    for number in 0..5000 {
        home.create(format!("/queue/{number}").as_bytes(), QueueKind::Work);
    }
    home.visited = 0;
    for number in 0..1000 {
        home.attach_pattern(format!("/queue/{number}*").as_bytes(), subscriber(number), messages(1));
        if number % 2 == 0 {
            home.detach(subscriber(number));
        }
    }
    assert_eq!(home.visited, 0, "no queue is visited at once");
    let mut walked = 0;
    while home.is_sweeping() {
        home.proceed(100);
        let visited = take(&mut home.visited);
        assert!(visited <= 200, "{visited} in one portion of 100");
        walked += visited;
    }
    // Each step walks down the tree, and the patterns are at the end of three paths.
    assert!(walked < 20 * home.queues.slots(), "{walked} for {} queues", home.queues.len());
}

#[test]
fn pending_messages_reach_a_new_pattern_in_portions() {
    let mut home = home();
    for number in 0..100 {
        let name = format!("/queue/{number}");
        let queue = home.create(name.as_bytes(), QueueKind::Work);
        home.enqueue(queue, message(&name, number, 1));
    }
    home.dispatch(usize::MAX);
    home.attach_pattern(b"/queue/*", subscriber(1), messages(Credit::UNLIMITED));
    let mut seen = BTreeSet::new();
    while home.is_sweeping() {
        home.proceed(10);
        home.dispatch(usize::MAX);
        let portion = take_deliveries(&mut home);
        assert!(portion.len() <= 20, "{} at once", portion.len());
        seen.extend(portion.iter().map(|delivery| id_of(&delivery.message)));
    }
    assert_eq!(seen.len(), 100);
}

#[test]
fn a_full_queue_is_removed_in_portions() {
    let before = held::bytes();
    let mut home = home();
    let queue = home.create(b"/queue/a", QueueKind::Work);
    (0..5000).for_each(|id| home.enqueue(queue, message("/queue/a", id, 1)));
    let worker = home.create(b"#w", QueueKind::Worker);
    home.attach(worker, subscriber(1), messages(0));
    (0..5000).for_each(|id| home.enqueue(worker, message("#w", id, 1)));
    home.visited = 0;
    home.delete(queue);
    home.detach(subscriber(1));
    assert!(home.visited <= 600 && home.is_sweeping(), "{} at once", home.visited);
    while home.is_sweeping() {
        home.visited = 0;
        home.proceed(100);
        assert!(home.visited <= 400, "{} at once", home.visited);
    }
    let unmatched = take(&mut home.effects).into_iter().filter(|it| matches!(it, Effect::Unmatched(_)));
    assert_eq!((unmatched.count(), home.counts.dropped), (5000, 5000));
    drop(home);
    assert_eq!(held::bytes(), before);
}

#[test]
fn the_growth_of_a_list_counts_as_visits() {
    let mut home = home();
    let queue = home.create(b"/queue/a", QueueKind::Work);
    home.visited = 0;
    (0..1000).for_each(|id| home.enqueue(queue, message("/queue/a", id, 1)));
    let few = take(&mut home.visited);
    (1000..100_000).for_each(|id| home.enqueue(queue, message("/queue/a", id, 1)));
    assert!(few >= 100 && home.visited >= 50 * few, "{few} and {} visits", home.visited);
}

#[test]
fn many_queues_removed_together_drop_their_messages_in_portions() {
    let mut home = home();
    let queues: Vec<_> =
        (0..100).map(|at| home.create(format!("/queue/{at}").as_bytes(), QueueKind::Work)).collect();
    for queue in &queues {
        (0..100).for_each(|id| home.enqueue(*queue, message("/queue/a", id, 1)));
    }
    home.visited = 0;
    queues.into_iter().for_each(|queue| home.delete(queue));
    assert!(home.visited < 600 && home.is_sweeping(), "{} at once", home.visited);
    home.proceed(usize::MAX);
    assert_eq!((home.counts.dropped, home.is_sweeping()), (10_000, false));
}

#[test]
fn messages_that_expire_together_are_dropped_in_portions() {
    let (mut home, queue) = with_expiring(5000, |id| if id == 0 { 0 } else { 50 });
    home.set_time(50);
    let mut portions = 0;
    while home.counts.expired < 4999 {
        home.visited = 0;
        home.handle_due(queue);
        assert!(home.visited <= 300, "{} at once", home.visited);
        portions += 1;
    }
    assert!(portions < 30 && home.queue(queue).is_some_and(|queue| queue.size() == 1));
}
