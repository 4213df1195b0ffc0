//! Tests of messages in the store that expire, cannot be read, or whose queue is gone.

use super::*;

#[test]
fn a_message_that_cannot_be_read_is_counted_and_those_behind_it_are_delivered() {
    let (mut world, queue) = with_paged_out(10);
    world.store.damage(b"4");
    world.store.damage(b"9");
    world.home.attach(queue, subscriber(1), credit(100));
    assert_eq!(bodies(&world.consume()), [0, 1, 2, 3, 5, 6, 7, 8]);
    let unreadable = |effect: &&Effect| matches!(effect, Effect::Unreadable(at, _) if *at == queue);
    assert_eq!((world.home.counts.dropped, world.home.effects.iter().filter(unreadable).count()), (2, 2));
    assert_eq!((world.queue(queue).size(), world.queue(queue).waiting_bytes()), (0, 0));
    let mut left = world.store.bodies();
    left.sort();
    assert_eq!(left, ["4", "9"], "the operator may want to look at them");
}

#[test]
fn a_queue_is_idle_from_the_time_at_which_its_last_message_could_not_be_read() {
    let queue_idle_expiry = Duration::from_millis(500);
    let mut world = World::with(Config { queue_idle_expiry, ..Config::default() });
    let queue = world.home.create(b"/queue/a", QueueKind::Work);
    world.send(queue, WINDOW + 1);
    world.page_out();
    world.store.damage(WINDOW.to_string().as_bytes());
    world.home.attach_pattern(b"/queue/*", subscriber(1), credit(100));
    world.home.proceed(usize::MAX);
    let delivered = world.dispatch();
    assert_eq!(delivered.len(), WINDOW);
    delivered.iter().for_each(|delivery| world.settle(delivery));
    world.home.set_time(1000);
    world.home.handle_due(queue); // no deadline is left
    world.home.effects.clear();
    world.home.take_loaded();
    assert_eq!((world.home.counts.dropped, world.queue(queue).size()), (1, 0));
    let is_armed = |effect: &Effect| matches!(effect, Effect::Timer(1500, at) if *at == queue);
    assert!(world.home.effects.iter().any(is_armed), "{:?}", world.home.effects);
    for (now_ms, remains) in [(1499, true), (1500, false)] {
        world.home.set_time(now_ms);
        world.home.handle_due(queue);
        assert_eq!(world.home.queue(queue).is_some(), remains, "at {now_ms}");
    }
}

#[test]
fn what_arrives_for_a_queue_that_is_gone_is_dropped() {
    for (with_damage, is_dropped_late) in [(false, false), (false, true), (true, false), (true, true)] {
        let before = held::bytes();
        let mut world = World::new();
        let queue = world.home.create(b"/queue/a", QueueKind::Durable { shared: false });
        world.send(queue, 20);
        world.page_out();
        world.home.attach(queue, subscriber(1), credit(100));
        assert_eq!(bodies(&world.dispatch()).len(), WINDOW);
        assert_eq!(world.home.requested(), WINDOW);
        if with_damage {
            world.store.damage(b"5");
        }
        world.home.detach(subscriber(1));
        if is_dropped_late {
            world.home.visited = usize::MAX / 2; // others were removed before it
        }
        world.home.delete(queue);
        if !is_dropped_late {
            world.home.proceed(usize::MAX);
        }
        world.home.take_loaded();
        world.home.proceed(usize::MAX);
        assert_eq!((world.home.counts.dropped, world.home.requested()), (20 - WINDOW as u64, 0));
        let is_unreadable = |effect: &Effect| matches!(effect, Effect::Unreadable(..));
        assert!(!world.home.effects.iter().any(is_unreadable));
        assert!(world.store.bodies().iter().all(|body| body.parse::<usize>().is_ok_and(|it| it < WINDOW)));
        drop(world);
        assert_eq!(held::bytes(), before);
    }
}

#[test]
fn stubs_that_expire_are_forgotten_or_loaded_for_their_dead_letter_queue() {
    for (name, is_dead_lettered) in [(&b"/queue/a"[..], true), (b"/queue/dlq/a", false)] {
        let mut world = World::new();
        let queue = world.home.create(name, QueueKind::Work);
        for number in 0..20 {
            world.send_one(queue, if number % 2 == 0 { 0 } else { 50 });
        }
        world.page_out();
        assert!(world.home.effects.iter().any(|effect| matches!(effect, Effect::Timer(50, _))));
        world.home.set_time(50);
        let mut loaded = 0;
        for _ in 0..20 {
            world.home.handle_due(queue);
            loaded += world.home.requested();
            world.home.take_loaded();
        }
        // Two messages are loaded to fill the window again.
        assert_eq!((loaded, world.home.counts.expired), (if is_dead_lettered { 10 } else { 2 }, 10));
        let letters: Vec<OwnedMessage> = take(&mut world.home.effects)
            .into_iter()
            .filter_map(|effect| if let Effect::DeadLetter(message) = effect { Some(message) } else { None })
            .collect();
        assert_eq!(letters.len(), if is_dead_lettered { 10 } else { 0 });
        letters.iter().for_each(|message| world.home.forget(message));
        world.home.attach(queue, subscriber(1), credit(100));
        assert!(bodies(&world.consume()).into_iter().eq((0..20).step_by(2)));
        assert!(world.store.bodies().is_empty());
    }
}

#[test]
fn an_expired_message_that_is_loaded_is_not_paged_out_again() {
    let mut world = World::new();
    let queue = world.home.create(b"/queue/a", QueueKind::Work);
    world.send(queue, WINDOW);
    world.send_one(queue, 50);
    world.page_out();
    world.home.set_time(50);
    world.home.handle_due(queue);
    assert_eq!(world.home.requested(), 1);
    world.home.take_loaded();
    world.home.enqueue(queue, message("new"));
    world.home.page_out();
    world.home.handle_due(queue);
    assert_eq!((world.home.requested(), world.home.counts.expired, world.home.stubs()), (0, 1, 1));
}
