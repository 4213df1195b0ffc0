//! Tests of COMMITs that wait for room or memory, before or after they are decided.

use super::*;
use crate::command::commits::WaitReason;

/// Makes a COMMIT of a message to a topic wait once it is decided. Returns the reason.
fn make_wait(fixture: &mut Fixture, key: ConnKey, obstruct: impl FnOnce(&mut Fixture)) -> WaitReason {
    fixture.handle(key, COMMIT);
    let Some(check @ Job::Check(..)) = fixture.turn.jobs.pop() else { panic!("no check") };
    fixture.proceed_with(check);
    assert!(is_applying(fixture, key));
    obstruct(fixture);
    fixture.settle();
    assert_eq!(fixture.sent_to(key), "");
    fixture.commits.held.front().and_then(|applying| applying.wait_reason).expect("it waits")
}

/// Continues a COMMIT whose reason to wait no longer exists.
fn go_on(fixture: &mut Fixture, key: ConnKey, wait_reason: WaitReason) {
    let base = &mut **fixture;
    assert!(!wait_reason.stands(&base.turn, &base.connections, &base.deliveries, &base.peers));
    let applying = fixture.commits.held.pop_front().expect("it waits");
    fixture.owners().apply(applying);
    fixture.settle();
    assert_eq!(fixture.sent_to(key), RECEIPT);
}

#[test]
fn a_decided_commit_does_not_wait_for_memory_that_nobody_frees() {
    let mut fixture = Fixture::new(config(|config| config.memory_limit = 1 << 20));
    let key = transaction(&mut fixture, &["/topic/a"]);
    fixture.handle(key, COMMIT);
    let Some(check @ Job::Check(..)) = fixture.turn.jobs.pop() else { panic!("no check") };
    fixture.proceed_with(check);
    fixture.fill_memory(true); // by what waits in queues, or its own next frames
    fixture.settle();
    assert_eq!(fixture.sent_to(key), RECEIPT);
}

#[test]
fn a_decided_commit_waits_for_memory_that_outboxes_take() {
    let mut fixture = Fixture::new(config(|config| config.memory_limit = 1 << 20));
    let key = transaction(&mut fixture, &["/topic/a"]);
    let wait_reason = make_wait(&mut fixture, key, Fixture::fill_memory_and_an_outbox);
    assert!(matches!(wait_reason, WaitReason::Memory));
    assert_eq!(fixture.turn.counters.messages_in, 0);
    let applying = fixture.commits.held.pop_front().expect("it waits");
    fixture.owners().apply(applying);
    assert!(matches!(fixture.commits.held[0].wait_reason, Some(WaitReason::Memory)), "it waits again");
    fixture.fill_memory(false);
    go_on(&mut fixture, key, wait_reason);
    assert_eq!(fixture.turn.counters.messages_in, 1);
}

#[test]
fn a_decided_commit_waits_for_a_congested_shard() {
    let mut fixture = fixture();
    fixture.subscribe_other("/topic/a");
    let key = transaction(&mut fixture, &["/topic/a"]);
    let wait_reason = make_wait(&mut fixture, key, |fixture| fixture.peers.busy.congested = OTHER.bit());
    assert!(matches!(wait_reason, WaitReason::Mailboxes(shards) if shards == OTHER.bit()));
    fixture.peers.busy.congested = 0;
    go_on(&mut fixture, key, wait_reason);
    assert_eq!(fixture.peers.batch.count_for(OTHER), 1);
}

#[test]
fn a_decided_commit_waits_for_a_shard_that_is_laden_with_wide_messages() {
    let mut fixture = fixture();
    fixture.subscribe_other("/topic/a");
    fixture.router.set_fan_out_size(b"/topic/a", OTHER, 64);
    let key = transaction(&mut fixture, &["/topic/a"]);
    let wait_reason = make_wait(&mut fixture, key, |fixture| fixture.peers.busy.saturated = OTHER.bit());
    assert!(matches!(wait_reason, WaitReason::LargeFanOut(shards) if shards == OTHER.bit()));
    fixture.peers.busy.saturated = 0;
    go_on(&mut fixture, key, wait_reason);
}

#[test]
fn a_decided_commit_waits_for_a_full_outbox_elsewhere() {
    let mut fixture = fixture();
    fixture.subscribe_other("/topic/a");
    let key = transaction(&mut fixture, &["/topic/a"]);
    let holdup = crate::router::Holdup::Outbox;
    let wait_reason =
        make_wait(&mut fixture, key, |fixture| fixture.router.set_full(b"/topic/a", OTHER, holdup, true));
    assert!(matches!(wait_reason, WaitReason::SlowConsumer(_)));
    fixture.router.set_full(b"/topic/a", OTHER, holdup, false);
    fixture.connections.retry_parked(&[Pause::SlowConsumer]);
    go_on(&mut fixture, key, wait_reason);
}

#[test]
fn a_commit_waits_for_each_fan_out() {
    let (mut fixture, [subscriber]) = with_clients(|_| ());
    (0..3000).for_each(|id| _ = fixture.subscribe(subscriber, "/topic/a", &id.to_string(), None));
    let key = transaction(&mut fixture, &[]);
    for _ in 0..2 {
        let body = "x".repeat(1000);
        fixture.send(key, &format!("SEND\ndestination:/topic/a\ntransaction:t\n\n{body}"));
    }
    let wait_reason = make_wait(&mut fixture, key, |_| ());
    assert!(matches!(wait_reason, WaitReason::FanOut(_)));
    assert_eq!(fixture.turn.counters.messages_in, 1);
    for published in [2, 2] {
        while fixture.deliveries.fan_outs.first().is_some() {
            fixture.turn.budget = Budget::default();
            fixture.owners().delivery().proceed_with_fan_outs(2);
        }
        let applying = fixture.commits.held.pop_front().expect("it waits");
        fixture.owners().apply(applying);
        assert_eq!(fixture.turn.counters.messages_in, published);
    }
    fixture.settle();
    assert_eq!(fixture.sent_to(key), RECEIPT);
}

#[test]
fn a_commit_is_not_checked_before_there_is_memory_for_it() {
    let (mut fixture, key, [queue]) = with_transaction([OWN]);
    fixture.fill_memory(true);
    fixture.send(key, COMMIT);
    assert_eq!(fixture.conn(key).wait.pause(), Some(Pause::Memory));
    fixture.fill_memory(false);
    fixture.unpark(key);
    assert!(matches!(fixture.conn(key).wait.question(), Some(Question::Commit(_))));
    fixture.settle();
    assert_eq!((fixture.waiting(&queue), fixture.sent_to(key).as_str()), (1, RECEIPT));
}

#[test]
fn a_commit_that_got_room_late_has_publish_timeout_for_its_homes() {
    let (mut fixture, key, [_]) = with_transaction([OTHER]);
    fixture.fill_memory(true);
    fixture.send(key, COMMIT);
    fixture.turn.now_ms = 30_000;
    fixture.fill_memory(false);
    fixture.unpark(key);
    fixture.settle();
    assert_eq!(fixture.conn(key).wait.bounded_since_ms(), Some(30_000));
    let requester = asked(&mut fixture);
    agree(&mut fixture, requester);
}
