//! Tests of which SENDs have to wait: for outboxes, mailboxes and memory.

use std::hash::BuildHasher as _;
use std::sync::atomic::Ordering;

use super::*;
use crate::delivery::admission::{LARGE_BODY, Load};
use crate::queue::allowance::Allowance;

/// A shard that holds this many bytes of a limit of 1000.
fn holding(bytes: i64) -> Fixture {
    let mut fixture = Fixture::new(Config { memory_limit: 1000, ..Config::default() });
    hold(&mut fixture, bytes);
    fixture
}

fn hold(fixture: &mut Fixture, bytes: i64) {
    fixture.turn.totals.memory.store(bytes, Ordering::Relaxed);
    fixture.owners().check_memory();
}

/// The reason why a small SEND of a connection has to wait, if there is one.
fn pause(fixture: &mut Fixture, conn: ConnKey, name: &str, shards: u64) -> Option<Pause> {
    let mut destination = fixture.router.destination(name.as_bytes()).expect("a destination");
    destination.home = if shards == 0 { OWN } else { OTHER };
    let load = Load {
        name: name.as_bytes(),
        destination,
        shards,
        fan_out_size: 0,
        is_full: false,
        bytes: 1,
        kept: false,
    };
    fixture.owners().pause_for(conn, &load)
}

#[test]
fn a_send_waits_for_full_outboxes_mailboxes_and_memory() {
    let mut fixture = with_large_outboxes();
    let conn = fixture.connect(ROOM);
    let destination = fixture.router.destination(b"/t").expect("a topic");
    let load =
        Load { name: b"/t", destination, shards: 2, fan_out_size: 1, is_full: true, bytes: 1, kept: false };
    fixture.peers.busy.congested = 2;
    fixture.peers.busy.saturated = 2;
    assert_eq!(fixture.owners().pause_for(conn, &load), Some(Pause::Mailbox));
    fixture.peers.busy.congested = 1;
    assert_eq!(fixture.owners().pause_for(conn, &load), Some(Pause::LargeFanOut));
    let load = Load { fan_out_size: 0, ..load };
    assert_eq!(fixture.owners().pause_for(conn, &load), Some(Pause::SlowConsumer));
    let load = Load { is_full: false, ..load };
    assert_eq!(fixture.owners().pause_for(conn, &load), None);
}

/// The short check before [`Owners::pause_for`] must not admit a SEND that has to wait.
#[test]
fn a_send_that_has_to_wait_for_any_reason_is_not_admitted_by_the_short_check() {
    for reasons in 0..1_u32 << 6 {
        let is = |bit: u32| reasons & 1 << bit != 0;
        let mut fixture = if is(5) { holding(800) } else { with_large_outboxes() };
        let conn = fixture.connect(ROOM);
        let destination = fixture.router.destination(b"/queue/a").expect("a queue");
        fixture.peers.busy.congested = if is(0) { 2 } else { 1 };
        fixture.peers.busy.saturated = if is(1) { 2 } else { 1 };
        let (fan_out_size, is_full) = (usize::from(is(2)), is(3));
        let bytes = if is(4) { LARGE_BODY } else { LARGE_BODY - 1 };
        let load =
            Load { name: b"/queue/a", destination, shards: 2, fan_out_size, is_full, bytes, kept: false };
        let is_admitted = load.is_admitted(&fixture.turn, &fixture.peers);
        let pause = fixture.owners().pause_for(conn, &load);
        assert!(!is_admitted || pause.is_none(), "{reasons:06b}: {pause:?}");
        let is_plain = reasons & !0b100 == 0; // the size of a fan-out matters only to saturated shards
        assert_eq!(is_admitted, is_plain, "{reasons:06b}: most SENDs are admitted at once, others are not");
    }
}

#[test]
fn while_memory_is_short_only_messages_that_would_be_kept_wait() {
    let mut fixture = holding(800);
    let (conn, consumer) = (fixture.connect(ROOM), fixture.connect(ROOM));
    fixture.queue("/queue/kept");
    fixture.consume(consumer, "/queue/read", AckMode::Client);
    fixture.subscribe(consumer, "/t", "1", None);
    assert_eq!(pause(&mut fixture, conn, "/queue/kept", 0), Some(Pause::Kept));
    assert_eq!(pause(&mut fixture, conn, "/queue/read", 0), None);
    assert_eq!(pause(&mut fixture, conn, "/t", 0), None);
    hold(&mut fixture, 950);
    assert_eq!(pause(&mut fixture, conn, "/t", 0), Some(Pause::Memory), "nothing passes");
}

#[test]
fn without_memory_a_fan_out_goes_on_unless_outboxes_take_the_rest() {
    for (unread, waits) in [(1000, false), (100_000, true)] {
        let mut fixture = Fixture::new(Config { memory_limit: 1 << 20, ..Config::default() });
        let conn = fixture.connect(NO_ROOM);
        fixture.subscribe(conn, "/t", "0", None);
        fixture.deliver("/t", &"x".repeat(unread));
        hold(&mut fixture, 1 << 20);
        let destination = fixture.router.destination(b"/t").expect("a topic");
        let going = fixture.owners().fan_out(&message(b"/t", b"next"), destination);
        assert_eq!(going.is_some(), waits, "{unread}");
    }
}

#[test]
fn a_connection_that_holds_deliveries_may_send_while_memory_is_short() {
    let (mut fixture, conn, _) = with_consumer(holding(800), ROOM, AckMode::Client);
    fixture.enqueue("/queue/a", &["a"]);
    fixture.queue("/queue/kept");
    assert_eq!(pause(&mut fixture, conn, "/queue/kept", 0), None);
    hold(&mut fixture, 950);
    assert_eq!(pause(&mut fixture, conn, "/queue/kept", 0), Some(Pause::Memory));
}

#[test]
fn the_home_of_a_remote_queue_is_asked_whether_a_send_may_pass() {
    let mut fixture = holding(800);
    let conn = fixture.connect(ROOM);
    let asked =
        |fixture: &mut Fixture| fixture.notes.take_outgoing().map(|(_, list)| list.len()).sum::<usize>();
    for count in [1, 0] {
        assert_eq!(pause(&mut fixture, conn, "/queue/far", 2), Some(Pause::Kept));
        assert_eq!(asked(&mut fixture), count, "the home is asked once");
    }
    fixture.connections.park(&mut fixture.turn, conn, Pause::Kept);
    let hash = fixture.turn.hasher.hash_one(&b"/queue/far"[..]);
    fixture.owners().admit(hash, Allowance { messages: 1, bytes: 10 }, true);
    assert_eq!(fixture.connections.undrained, [conn], "the connection retries");
    assert_eq!(pause(&mut fixture, conn, "/queue/far", 2), None);
    assert_eq!(pause(&mut fixture, conn, "/queue/far", 2), Some(Pause::Kept), "the allowance is used up");
}

#[test]
fn all_sends_resume_when_memory_is_free_again() {
    let mut fixture = holding(800);
    let conn = fixture.connect(ROOM);
    fixture.queue("/queue/kept");
    assert_eq!(pause(&mut fixture, conn, "/queue/kept", 0), Some(Pause::Kept));
    fixture.connections.park(&mut fixture.turn, conn, Pause::Kept);
    hold(&mut fixture, 700);
    assert!(!fixture.connections.parking.has_retries());
    hold(&mut fixture, 699);
    assert!(fixture.connections.parking.has_retries());
    assert_eq!(pause(&mut fixture, conn, "/queue/kept", 0), None);
}
