//! Hot path: collects consecutive messages that are copied for each receiver.

use stompica_proto::Version;
use stompica_proto::encode::Message;

use super::Owners;
use super::deliver::SUFFIX_BODY_MAX;
use crate::connection::pending_copies::Source;
use crate::ids::ConnKey;
use crate::router::group::GroupIndex;
use crate::router::reach::Reach;

impl Owners<'_> {
    /// Adds a message to [`PendingCopies`](crate::connection::pending_copies::PendingCopies), or returns false if its
    /// receivers have to get it at once. It is not inlined, so that messages to one group need no stack space for it.
    #[inline(never)]
    pub(super) fn collect_for_copies(&mut self, message: &Message<'_>, reach: &Reach) -> bool {
        let Some(group) = reach.group else { return false };
        if reach.filters != 1
            || reach.full > 0
            || message.body.len() > SUFFIX_BODY_MAX
            || self.takes_turns(message, reach)
        {
            return false;
        }
        let source = Source { filter: self.router.groups[group as usize].filter, groups: reach.groups };
        if !self.connections.pending_copies.takes(source) {
            self.connections.distribute(self.turn);
            if !self.begin_to_collect(source) {
                return false;
            }
        }
        let Owners { turn, connections, deliveries, .. } = self;
        let (copies, suffixes) = (&mut connections.pending_copies, &mut deliveries.suffixes);
        let opcode = copies.has_websockets().then(|| suffixes.opcode(message.body));
        for version in [Version::V1_0, Version::V1_1, Version::V1_2] {
            if copies.uses(version) {
                suffixes.prepare(message, version, &mut turn.counters.headers_left_out);
                let [suffix, ..] = suffixes.of(message, version); // a body this small needs no further parts
                copies.add_suffix(version, suffix, opcode);
            }
        }
        let (count, bytes) = copies.end_message();
        turn.budget.copy(count, bytes);
        true
    }

    /// Whether a run of messages has begun that can be collected for its receivers.
    fn begin_to_collect(&mut self, source: Source) -> bool {
        if !self.connections.pending_copies.is_worthwhile(source, self.turn.number) {
            return false;
        }
        let is_fit = self.add_receivers(source) && self.connections.pending_copies.is_fit();
        if !is_fit {
            self.connections.pending_copies.rule_out(self.turn.number);
        }
        is_fit
    }

    /// Adds the receivers of a source. Returns false if some of them need each message at once, or if most groups have
    /// several members, which share frames.
    fn add_receivers(&mut self, source: Source) -> bool {
        let Owners { turn, router, connections, .. } = self;
        let groups: &[GroupIndex] = &router.filters[source.filter as usize].groups;
        let copies = &mut connections.pending_copies;
        copies.begin(source);
        let mut receivers = 0;
        for group in groups.iter().map(|index| &router.groups[*index as usize]) {
            receivers += group.members.len();
            if !group.takes_all() || receivers > 2 * groups.len() {
                return false;
            }
            for member in &group.members[..] {
                let conn = connections.table.member_mut(member.conn);
                if !conn.has_room(turn.config.outbox_limit) || conn.output.dropped > 0 {
                    return false;
                }
                let key = ConnKey { index: member.conn, generation: conn.life.generation };
                copies.add_receiver(key, group.wire_format, &group.prefix);
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use stompica_proto::session::AckMode;

    use super::SUFFIX_BODY_MAX;
    use crate::config::{Config, SlowConsumer};
    use crate::delivery::fixture::{Fixture, message};
    use crate::ids::ConnKey;
    use crate::message::OwnedMessage;
    use crate::message::chunk::CHUNK_BYTES;
    use crate::router::group::Place;
    use crate::turn::budget::Budget;

    /// More than any test writes.
    const ROOM: usize = 1 << 20;

    /// Connections that subscribe to `/t` with these ids. Their sockets accept no bytes yet.
    fn subscribers<const N: usize>(fixture: &mut Fixture, ids: [&str; N]) -> [ConnKey; N] {
        ids.map(|id| {
            let conn = fixture.connect(0);
            fixture.subscribe(conn, "/t", id, None);
            conn
        })
    }

    fn is_pending(fixture: &Fixture) -> bool {
        !fixture.connections.pending_copies.is_empty()
    }

    fn waiting_bytes(fixture: &Fixture, conn: ConnKey) -> usize {
        fixture.connections.table.get(conn).expect("it is open").output.outbox.bytes()
    }

    #[test]
    fn a_run_of_messages_is_collected_from_the_second_on() {
        let mut fixture = Fixture::new(Config::default());
        let conns = subscribers(&mut fixture, ["0", "1", "long-id"]);
        fixture.deliver("/t", "a");
        assert!(!is_pending(&fixture));
        let one = waiting_bytes(&fixture, conns[0]);
        fixture.deliver("/t", "b");
        fixture.deliver("/t", "c");
        assert!(is_pending(&fixture));
        assert_eq!(waiting_bytes(&fixture, conns[0]), one);
        assert_eq!(fixture.turn.budget.deliveries, 9);
        for conn in conns {
            assert_eq!(fixture.write(conn, ROOM), ["a", "b", "c"]);
        }
        assert!(!is_pending(&fixture));
        assert_eq!(fixture.turn.counters.deliveries, 9);
    }

    #[test]
    fn copied_bytes_count_half() {
        let mut fixture = Fixture::new(Config::default());
        let [conn, _] = subscribers(&mut fixture, ["0", "1"]);
        fixture.deliver("/t", "a");
        let (encoded, one) = (fixture.turn.budget.encoded, waiting_bytes(&fixture, conn));
        assert_eq!(encoded, 2 * one);
        fixture.deliver("/t", "b");
        assert_eq!(fixture.turn.budget.encoded, encoded + one);
    }

    #[test]
    fn messages_to_other_destinations_stay_in_order_with_those_collected() {
        let mut fixture = Fixture::new(Config::default());
        let conns = subscribers(&mut fixture, ["0", "1"]);
        conns.iter().for_each(|conn| _ = fixture.subscribe(*conn, "/shared", "s", None));
        fixture.subscribe(conns[0], "/single", "x", None);
        let sent = [
            ("/t", "a"),
            ("/t", "b"),
            ("/shared", "c"),
            ("/t", "d"),
            ("/t", "e"),
            ("/shared", "f"),
            ("/shared", "g"),
            ("/t", "h"),
            ("/t", "i"),
            ("/single", "j"),
            ("/t", "k"),
        ];
        for (topic, body) in sent {
            fixture.deliver(topic, body);
        }
        let all: Vec<&str> = sent.iter().map(|(_, body)| *body).collect();
        assert_eq!(fixture.write(conns[0], ROOM), all);
        assert_eq!(fixture.write(conns[1], ROOM).concat(), "abcdefghik");
    }

    #[test]
    fn a_message_too_large_to_be_collected_stays_in_order() {
        let mut fixture = Fixture::new(Config::default());
        let conns = subscribers(&mut fixture, ["0", "1"]);
        let large = "x".repeat(SUFFIX_BODY_MAX + 1);
        let bodies = ["a", "b", "c", &large, "d", "e"];
        for body in bodies {
            fixture.deliver("/t", body);
            assert!(body != "c" || is_pending(&fixture));
        }
        for conn in conns {
            assert_eq!(fixture.write(conn, ROOM), bodies);
        }
    }

    #[test]
    fn the_first_message_after_dropped_ones_tells_their_number() {
        let config =
            Config { outbox_limit: 150, slow_consumer: SlowConsumer::DropNewest, ..Config::default() };
        let mut fixture = Fixture::new(config);
        let conns = subscribers(&mut fixture, ["0", "1"]);
        let dropped =
            |fixture: &Fixture, conn| fixture.connections.table.get(conn).expect("it is open").output.dropped;
        let mut sent = 0;
        while dropped(&fixture, conns[0]) == 0 {
            fixture.deliver("/t", "a");
            fixture.connections.distribute(&mut fixture.turn);
            sent += 1;
        }
        conns.iter().for_each(|conn| assert_eq!(fixture.write(*conn, ROOM).len(), sent - 1));
        fixture.turn.number += 1;
        fixture.deliver("/t", "b");
        for conn in conns {
            assert_eq!((fixture.write(conn, ROOM), dropped(&fixture, conn)), (vec!["b".to_owned()], 0));
        }
    }

    #[test]
    fn answers_and_deliveries_of_queues_follow_the_messages_collected_before() {
        let mut fixture = Fixture::new(Config::default());
        let [answered, consumes] = subscribers(&mut fixture, ["0", "1"]);
        fixture.consume(consumes, "/queue/a", AckMode::Auto);
        for body in ["a", "b", "c"] {
            fixture.deliver("/t", body);
        }
        assert!(is_pending(&fixture));
        fixture.enqueue("/queue/a", &["d"]);
        assert_eq!(fixture.write(consumes, ROOM), ["a", "b", "c", "d"]);
        fixture.deliver("/t", "e");
        fixture.deliver("/t", "f");
        assert!(is_pending(&fixture));
        let answer = |out: &mut Vec<u8>| out.extend_from_slice(b"RECEIPT\n\nanswer\0");
        fixture.connections.control(&mut fixture.turn, answered, answer);
        assert_eq!(fixture.write(answered, ROOM), ["a", "b", "c", "e", "f", "answer"]);
    }

    #[test]
    fn collected_messages_are_bounded_and_fill_outboxes() {
        let mut fixture = Fixture::new(Config { outbox_limit: 100_000, ..Config::default() });
        let [conn, _] = subscribers(&mut fixture, ["0", "1"]);
        let body = "x".repeat(SUFFIX_BODY_MAX);
        while fixture.connections.newly_full.is_empty() {
            let before = waiting_bytes(&fixture, conn);
            assert!(before < 100_000, "it is full");
            fixture.deliver("/t", &body);
            assert!(waiting_bytes(&fixture, conn) - before < 2 * CHUNK_BYTES);
        }
        assert!(fixture.connections.newly_full.contains(&conn));
    }

    /// Continues fan-outs over as many turns as they take.
    fn end_fan_outs(fixture: &mut Fixture) {
        while fixture.deliveries.fan_outs.first().is_some() {
            fixture.turn.budget = Budget::default();
            fixture.owners().proceed_with_fan_outs(1);
        }
    }

    #[test]
    fn a_message_that_has_to_follow_a_fan_out_is_not_collected() {
        let mut fixture = Fixture::new(Config { outbox_limit: 1 << 24, ..Config::default() });
        let conns = subscribers(&mut fixture, ["0", "1"]);
        ["2", "3"].iter().for_each(|id| _ = fixture.subscribe(conns[0], "/large", id, None));
        fixture.deliver("/t", "a");
        let large = "b".repeat(600_000);
        fixture.turn.budget = Budget::nearly_over();
        fixture.turn.budget.visit(1);
        let fan_out = fixture.deliver("/large", &large).expect("a fan-out of several turns");
        assert!(fixture.deliveries.fan_outs.is_going(fan_out));
        fixture.owners().publish_late(&OwnedMessage::new(&message(b"/t", b"c")));
        end_fan_outs(&mut fixture);
        assert_eq!(fixture.write(conns[0], usize::MAX), ["a", &large, &large, "c"]);
        assert_eq!(fixture.write(conns[1], ROOM), ["a", "c"]);
    }

    #[test]
    fn messages_that_are_encoded_over_several_turns_are_not_collected() {
        let mut fixture = Fixture::new(Config::default());
        let mut subscribe = |id: usize| subscribers(&mut fixture, [&id.to_string()])[0];
        let conns: Vec<ConnKey> = (0..900).map(&mut subscribe).collect();
        let body = "x".repeat(SUFFIX_BODY_MAX);
        for _ in 0..3 {
            fixture.turn.budget = Budget::nearly_over();
            let fan_out = fixture.deliver("/t", &body).expect("a fan-out of several turns");
            assert!(fixture.deliveries.fan_outs.is_going(fan_out) && !is_pending(&fixture));
            end_fan_outs(&mut fixture);
        }
        conns.iter().for_each(|conn| assert_eq!(fixture.write(*conn, ROOM), [&body[..]; 3]));
    }

    #[test]
    fn messages_of_a_connection_with_two_subscriptions_are_not_collected() {
        let mut fixture = Fixture::new(Config::default());
        let [conn, _] = subscribers(&mut fixture, ["0", "1"]);
        fixture.subscribe(conn, "/t", "2", None);
        for body in ["a", "b", "c"] {
            fixture.deliver("/t", body);
            assert!(!is_pending(&fixture));
        }
        assert_eq!(fixture.write(conn, ROOM), ["a", "a", "b", "b", "c", "c"]);
    }

    #[test]
    fn a_subscription_gets_what_was_sent_while_it_existed() {
        let mut fixture = Fixture::new(Config::default());
        let [stays, leaves] = [fixture.connect(0), fixture.connect(0)];
        fixture.subscribe(stays, "/t", "0", None);
        let key = fixture.subscribe(leaves, "/t", "1", None);
        for body in ["a", "b"] {
            fixture.deliver("/t", body);
        }
        assert!(is_pending(&fixture));
        let Place::Topic { group, .. } = fixture.router.subscriptions[key.index as usize].place else {
            panic!("a topic's")
        };
        fixture.owners().close_group(group);
        fixture.router.unsubscribe(key.index);
        // The number of groups is the same again.
        let [joins] = subscribers(&mut fixture, ["2"]);
        for body in ["c", "d"] {
            fixture.deliver("/t", body);
        }
        assert_eq!(fixture.write(stays, ROOM), ["a", "b", "c", "d"]);
        assert_eq!(fixture.write(leaves, ROOM), ["a", "b"]);
        assert_eq!(fixture.write(joins, ROOM), ["c", "d"]);
    }

    #[test]
    fn messages_to_a_full_outbox_are_deferred_in_order() {
        let block = SlowConsumer::Block(Duration::from_secs(5));
        let mut fixture =
            Fixture::new(Config { outbox_limit: 150, slow_consumer: block, ..Config::default() });
        let conns = subscribers(&mut fixture, ["0", "1"]);
        let bodies = ["a", "b", "c", "d", "e", "f"];
        for body in bodies {
            fixture.deliver("/t", body);
            fixture.connections.distribute(&mut fixture.turn);
        }
        assert!(fixture.connections.table.get(conns[0]).is_some_and(|conn| conn.output.deferred.is_some()));
        for conn in conns {
            let mut received = Vec::new();
            while received.len() < bodies.len() {
                let more = fixture.write(conn, ROOM);
                assert!(!more.is_empty(), "{received:?}");
                received.extend(more);
            }
            assert_eq!(received, bodies);
        }
    }

    #[test]
    fn a_large_outbox_that_was_empty_is_written_at_once_unless_an_answer_waits() {
        let mut fixture = Fixture::new(Config::default());
        let [taking, blocked, answered] = subscribers(&mut fixture, ["0", "1", "2"]);
        for conn in [taking, answered] {
            fixture.connections.table.get_mut(conn).expect("it is open").socket.script().room = ROOM;
        }
        fixture.deliver("/t", "a");
        fixture.write(taking, ROOM);
        fixture.write(answered, ROOM);
        fixture.connections.control(&mut fixture.turn, answered, |out| out.extend_from_slice(b"RECEIPT"));
        fixture.connections.dirty.clear();
        let body = "x".repeat(1000);
        for _ in 0..20 {
            fixture.deliver("/t", &body);
        }
        assert!(is_pending(&fixture));
        fixture.connections.distribute(&mut fixture.turn);
        assert_eq!(waiting_bytes(&fixture, taking), 0);
        assert!(waiting_bytes(&fixture, answered) > 20_000 && waiting_bytes(&fixture, blocked) > 20_000);
        assert!(!fixture.connections.dirty.contains(&taking) && fixture.turn.counters.writes == 1);
        assert_eq!(fixture.write(taking, ROOM), vec![body; 20]);
    }
}
