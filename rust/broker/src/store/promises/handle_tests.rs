//! What a shard tells and asks through its handle.

use stompica_proto::encode::Message as Sent;

use super::{Fixture, for_each_store};
use crate::door::wall_clock_ms;
use crate::ids::NOBODY;
use crate::message::OwnedMessage;
use crate::store::{Counts, DEFINITIONS, RETAINED, Store as _, Unreadable};

fn message(body: &[u8], expires_ms: u64) -> OwnedMessage {
    let sent = Sent {
        destination: b"/queue/a",
        id: b"i",
        sender: 7,
        headers: b"x:1\n",
        plain: true,
        expires_ms,
        body,
    };
    let mut owned = OwnedMessage::new(&sent);
    owned.persistent = true;
    owned
}

fn placed(body: &[u8], place: u64) -> OwnedMessage {
    let mut owned = message(body, 0);
    owned.seq = place;
    owned
}

for_each_store! {
    fn a_call_is_safe_once_it_is_written<B>() {
        let mut fixture = Fixture::<B>::new();
        let record = fixture.handles[0].keep(b"/queue/a", &message(b"x", 0));
        let position = fixture.handles[0].position();
        assert!(position > fixture.handles[0].safe().expect("it has not failed"));
        fixture.turn();
        assert_eq!(fixture.handles[0].safe().expect("it has not failed"), position);
        // Another shard acknowledges it.
        fixture.handles[1].forget(record);
        fixture.turn();
        assert!(fixture.records_after_end().is_empty());
    }

    fn a_message_is_loaded_as_it_was_kept<B>() {
        let mut fixture = Fixture::<B>::new();
        let record = fixture.handles[0].keep(b"/queue/a", &message(b"hello", 0));
        fixture.handles[0].load(record);
        fixture.turn();
        let (found, loaded) = fixture.handles[0].loaded().expect("an answer");
        let loaded = loaded.expect("it can be read");
        assert_eq!((found, loaded.record, loaded.persistent), (record, record, true));
        let read = loaded.message();
        assert_eq!((read.destination, read.id, read.sender), (&b"/queue/a"[..], &b"i"[..], 7));
        assert_eq!((read.headers, read.body, read.plain), (&b"x:1\n"[..], &b"hello"[..], true));
        assert!(fixture.handles[0].loaded().is_none());
    }

    fn everything_of_a_message_comes_back_in_the_next_process<B>() {
        let mut fixture = Fixture::<B>::new();
        let sent = Sent {
            destination: b"/topic/a:\\b",
            id: b"i",
            sender: u64::MAX,
            headers: b"x:\\c\n\xc3\xa4:2\n",
            plain: false,
            expires_ms: 0,
            body: b"\0\xff binary \0",
        };
        let mut kept = OwnedMessage::new(&sent);
        (kept.persistent, kept.grouped, kept.failures_max, kept.seq) = (false, true, 9, 1 << 41);
        (kept.deliveries, kept.failures) = (3, 2);
        let record = fixture.handles[0].keep(b"durable\nname", &kept);
        fixture.turn();
        let (mut fixture, recovered) = fixture.reopen();
        let waiting = recovered.queues[&b"durable\nname"[..]][0];
        assert_eq!((waiting.record, waiting.place, waiting.expires_ms), (record, 1 << 41, 0));
        assert_eq!(recovered.counts[&record], Counts { deliveries: 3, failures: 2 });
        let bytes: usize = [sent.destination, sent.id, sent.headers, sent.body].iter().map(|part| part.len()).sum();
        assert_eq!(waiting.bytes as usize, bytes);
        fixture.handles[1].load(record);
        fixture.turn();
        let (_, loaded) = fixture.handles[1].loaded().expect("an answer");
        let loaded = loaded.expect("it can be read");
        assert_eq!((loaded.persistent, loaded.grouped, loaded.failures_max), (false, true, 9));
        assert_eq!((loaded.deliveries, loaded.failures), (3, 2));
        let read = loaded.message();
        assert_eq!((read.destination, read.id, read.sender), (sent.destination, sent.id, NOBODY));
        assert_eq!((read.headers, read.body, read.plain), (sent.headers, sent.body, false));
    }

    fn queues_come_back_in_the_order_of_their_places<B>() {
        let mut fixture = Fixture::<B>::new();
        let places = [5, 3, 9, 1, 7];
        let records = places.map(|place| fixture.handles[(place % 2) as usize].keep(b"/queue/a", &placed(b"x", place)));
        let other = fixture.handles[0].keep(b"/queue/b", &placed(b"x", 4));
        let definition = fixture.handles[0].keep(DEFINITIONS, &placed(b"d", 0));
        let retained = fixture.handles[1].keep(RETAINED, &placed(b"r", 0));
        fixture.turn();
        let queues = fixture.reopen().1.queues;
        let line = |name: &[u8]| -> Vec<_> { queues[name].iter().map(|waiting| waiting.record).collect() };
        assert_eq!(line(b"/queue/a"), [records[3], records[1], records[0], records[4], records[2]]);
        assert_eq!((line(b"/queue/b"), line(DEFINITIONS), line(RETAINED)), (vec![other], vec![definition], vec![retained]));
    }

    fn deliveries_are_counted_for_the_next_process_and_never_less<B>() {
        let mut fixture = Fixture::<B>::new();
        let counts = |deliveries, failures| Counts { deliveries, failures };
        let [first, second] = [0, 1].map(|shard| fixture.handles[shard].keep(b"/queue/a", &message(b"x", 0)));
        fixture.handles[0].deliver(first, counts(1, 0));
        fixture.turn();
        fixture.handles[1].deliver(first, counts(3, 1));
        fixture.handles[0].deliver(first, counts(2, 1));
        fixture.turn();
        fixture.handles[0].deliver(first, counts(2, 1));
        fixture.handles[0].deliver(u64::MAX >> 1, counts(2, 1));
        fixture.turn();
        let recovered = fixture.reopen().1;
        assert_eq!(recovered.counts.get(&first), Some(&counts(3, 1)));
        assert_eq!(recovered.counts.get(&second), None);
        assert_eq!(recovered.counts.len(), 1);
    }

    fn a_request_is_answered_once_even_if_its_message_is_forgotten_meanwhile<B>() {
        let mut fixture = Fixture::<B>::new();
        let record = fixture.handles[0].keep(b"/queue/a", &message(b"x", 0));
        fixture.turn();
        fixture.handles[0].load(record);
        fixture.handles[0].forget(record);
        assert!(matches!(fixture.handles[0].loaded(), Some((found, Err(Unreadable))) if found == record));
        fixture.turn();
        assert!(fixture.handles[0].loaded().is_none());
    }

    fn a_transaction_is_written_when_it_is_complete<B>() {
        let mut fixture = Fixture::<B>::new();
        let before = fixture.handles[0].keep(b"/queue/a", &message(b"x", 0));
        fixture.turn();
        let transaction = fixture.handles[0].begin_transaction();
        fixture.handles[0].enter(Some(transaction));
        let inside = fixture.handles[0].keep(b"/queue/a", &placed(b"y", 1));
        fixture.handles[0].forget(before);
        fixture.handles[0].enter(None);
        let beside = fixture.handles[0].keep(b"/queue/a", &placed(b"z", 2));
        fixture.turn();
        // Nothing of it has taken effect.
        let mut found = Vec::new();
        for record in [before, beside] {
            fixture.handles[1].load(record);
            fixture.turn();
            found.push(fixture.handles[1].loaded().expect("an answer").1.is_ok());
        }
        assert_eq!(found, [true, true]);
        fixture.handles[0].end_transaction(transaction);
        fixture.turn();
        assert_eq!(fixture.records_after_end(), [inside, beside]);
    }

    fn nothing_of_an_incomplete_transaction_is_there_after_a_crash<B>() {
        let mut fixture = Fixture::<B>::new();
        let before = fixture.handles[0].keep(b"/queue/a", &message(b"x", 0));
        let transaction = fixture.handles[0].begin_transaction();
        fixture.handles[0].enter(Some(transaction));
        fixture.handles[0].keep(b"/queue/a", &message(b"y", 0));
        fixture.handles[0].forget(before);
        fixture.turn();
        assert_eq!(fixture.records_after_end(), [before]);
    }

    fn expiry_is_kept_as_a_time_that_the_next_process_understands<B>() {
        let mut fixture = Fixture::<B>::new();
        fixture.handles[0].begin_turn(10_000);
        let before = wall_clock_ms();
        fixture.handles[0].keep(b"/queue/a", &message(b"x", 15_000));
        let after = wall_clock_ms();
        fixture.turn();
        let queues = fixture.reopen().1.queues;
        let expires_ms = queues[&b"/queue/a"[..]][0].expires_ms;
        assert!((before + 5_000..=after + 5_000).contains(&expires_ms));
    }
}
