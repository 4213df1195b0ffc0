//! What this shard contributes to an answer of DIAG: made when somebody asks, from what is there.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::time::Duration;

use stompica_proto::session::AckMode;

use super::Shard;
use super::turn_clock::cpu_time;
use crate::diag::Query;
use crate::diag::part::{
    AckRow, Benchmark, Memory, Network, Part, QueueRow, Session, ShardRow, SlowRow, Store, Waiting, WsBuffer,
};
use crate::ids::ConnKey;
use crate::io::conn::{Conn, Phase, Transport};
use crate::queue::QueueKind;
use crate::queue::home::Home;
use crate::queue::parts::Queue;
use crate::router::group::Subscription;

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A queue's name without what others are not to know: the secret of a temporary one, the login of a durable one.
fn shown(queue: &Queue) -> String {
    match queue.kind {
        QueueKind::Temporary => text(&crate::router::destination::shown(&queue.name)),
        QueueKind::Durable { .. } => {
            text(queue.name.rsplit(|byte| *byte == b'\n').next().unwrap_or_default())
        }
        _ => text(&queue.name),
    }
}

fn queue_row(queue: &Queue, home: &Home) -> Option<QueueRow> {
    let kind = match queue.kind {
        QueueKind::Work => "work",
        QueueKind::Worker => "worker",
        QueueKind::Temporary => "temporary",
        QueueKind::Durable { .. } => "durable",
        QueueKind::Private => return None, // a part of its subscription, told by `ack`
    };
    Some(QueueRow {
        name: shown(queue),
        kind,
        size: queue.size(),
        waiting_bytes: queue.waiting_bytes() as u64,
        in_flight: queue.in_flight().0,
        consumers: u64::from(home.consumers_of(queue)),
        enqueued: queue.enqueued,
        dequeued: queue.dequeued,
    })
}

impl Shard {
    /// This shard's part of an answer.
    pub(super) fn diagnose(&mut self, query: Query) -> Part {
        match query {
            Query::Session | Query::SessionSize | Query::SessionEncodedSize | Query::SessionConnectedSize => {
                Part::Session(self.session_part())
            }
            Query::WsBuffer => {
                let (opened, allocated) = self.chunks.opened();
                Part::WsBuffer(WsBuffer { allocated, hits: opened - allocated, misses: allocated })
            }
            Query::Stale => Part::Stale(self.waiting_part()),
            Query::PubsubSize | Query::Subs => Part::Subs(self.subscribed_names()),
            Query::Network => Part::Network(Box::new(self.network_part())),
            Query::Benchmark => {
                self.stages.switch_on(self.now_ms);
                self.observe();
                Part::Benchmark(Benchmark::of(&self.stages, self.now_ms))
            }
            Query::Shards => Part::Shards(vec![self.shard_row()]),
            Query::Memory => Part::Memory(self.memory_part()),
            Query::Queues => {
                Part::Queues(self.home.iter().filter_map(|queue| queue_row(queue, &self.home)).collect())
            }
            Query::Ack => Part::Ack(self.subscribers().filter_map(|one| self.ack_row(one)).collect()),
            Query::Store => Part::Store(Store { kind: "memory" }),
            Query::Slow => Part::Slow(self.slow_rows()),
        }
    }

    /// Connections that are neither refused nor on their way out.
    fn clients(&self) -> impl Iterator<Item = &Conn> {
        self.conns.iter().map(|(_, conn)| conn).filter(|conn| conn.phase == Phase::Open && !conn.refused)
    }

    /// Subscriptions of clients; those that feed durable queues are the broker's own.
    fn subscribers(&self) -> impl Iterator<Item = &Subscription> {
        self.router.subscriptions.iter().map(|(_, one)| one).filter(|one| one.conn != ConnKey::NONE)
    }

    fn session_part(&self) -> Session {
        let mut session = Session { subscriptions: self.subscribers().count() as u64, ..Session::default() };
        for conn in self.clients() {
            session.clients += 1;
            session.websockets += u64::from(matches!(conn.transport, Transport::WebSocket(_)));
            session.stomp_connected += u64::from(conn.session.is_connected());
        }
        session
    }

    fn mailbox_frames(&self) -> u64 {
        self.shared.mailboxes[usize::from(self.id.0)].add_frames(0) as u64
    }

    fn waiting_part(&self) -> Waiting {
        let out: usize = self.conns.iter().map(|(_, conn)| conn.outbox.messages(&self.chunks)).sum();
        // The count of stale messages is the broker's: one shard tells it.
        let stale = if self.id.0 == 0 { self.shared.stale.count.load(Ordering::Relaxed) } else { 0 };
        Waiting {
            r#in: self.mailbox_frames() + self.parking.len() as u64,
            out: out as u64,
            stale: stale as u64,
        }
    }

    fn subscribed_names(&self) -> BTreeSet<String> {
        self.subscribers().map(|one| text(self.subscribed_name(one))).collect()
    }

    /// What a client subscribed to, in its own words.
    fn subscribed_name<'a>(&'a self, one: &'a Subscription) -> &'a [u8] {
        match (&one.receiver, one.entry()) {
            (Some(receiver), _) => &receiver.destination,
            (None, Some(entry)) => self.router.entry_name(entry),
            (None, None) => b"", // a consumer of queues has a receiver
        }
    }

    fn network_part(&self) -> Network {
        let counters = &self.counters;
        Network {
            bytes_in: counters.bytes_in,
            bytes_out: counters.bytes_out,
            frames_in: counters.frames_in,
            messages_in: counters.messages_in,
            deliveries: counters.deliveries,
            reads: counters.reads,
            writes: counters.writes,
            dropped_websocket_frames: 0,
            fixed_underruns: 0,
            cached_destinations: self.router.cached() as u64,
            connections: self.conns.len() as u64,
            accepted: counters.accepted,
            refused: counters.refused,
            closed: counters.closed,
            errors: counters.errors,
            dropped: counters.dropped,
        }
    }

    fn shard_row(&self) -> ShardRow {
        ShardRow {
            shard: u64::from(self.id.0),
            connections: self.conns.len() as u64,
            subscriptions: self.subscribers().count() as u64,
            queues: self.home.named() as u64,
            turns: self.turn,
            mailbox_frames: self.mailbox_frames(),
            frames_in: self.counters.frames_in,
            deliveries: self.counters.deliveries,
            parked: self.counters.parked,
            timers: self.timers.len() as u64,
            cpu_us: micros(cpu_time()),
            unanswered: self.unanswered() as u64,
            max_turn_bytes: self.heaviest.encoded as u64,
            max_turn_deliveries: self.heaviest.deliveries as u64,
            max_turn_visits: self.heaviest.visited as u64,
            max_turn_us: micros(self.heaviest.took),
        }
    }

    /// What waits for other shards.
    pub(super) fn unanswered(&self) -> usize {
        let receipts: usize = self.conns.iter().map(|(_, conn)| conn.answers.len()).sum();
        receipts + self.prepared.len() + self.backlogs.len() + self.diagnostics.asked()
    }

    fn memory_part(&self) -> Memory {
        let held = self.shared.memory.load(Ordering::Relaxed);
        let queued = self.home.iter().map(|queue| queue.waiting_bytes() as u64 + queue.in_flight().1);
        Memory {
            held_bytes: u64::try_from(held).unwrap_or(0),
            limit_bytes: self.config.memory_limit,
            short: self.memory.is_short,
            outbox_bytes: self.conns.iter().map(|(_, conn)| conn.outbox.bytes() as u64).sum(),
            input_bytes: self.memory.input_bytes as u64,
            chunk_bytes: self.chunks.held_bytes() as u64,
            queue_bytes: queued.sum(),
        }
    }

    fn ack_row(&self, one: &Subscription) -> Option<AckRow> {
        let mode = match one.ack {
            AckMode::Auto => return None,
            AckMode::Client => "client",
            AckMode::ClientIndividual => "client-individual",
        };
        let receiver = one.receiver.as_deref()?;
        let oldest_ms = receiver.unacked.oldest().map_or(0, |(_, at_ms)| self.now_ms.saturating_sub(at_ms));
        Some(AckRow {
            connection: self.conns.get(one.conn).map_or(0, |conn| conn.id),
            subscription: text(&one.id),
            destination: text(&receiver.destination),
            mode,
            in_flight: receiver.unacked.len() as u64,
            oldest_ms,
        })
    }

    fn slow_rows(&self) -> Vec<SlowRow> {
        let slow = self.clients().filter(|conn| conn.full_since_ms.is_some() || conn.dropped > 0);
        slow.map(|conn| SlowRow {
            connection: conn.id,
            peer: conn.peer.to_string(),
            outbox_bytes: conn.outbox.bytes() as u64,
            full_ms: conn.full_since_ms.map_or(0, |since_ms| self.now_ms.saturating_sub(since_ms)),
            dropped: u64::from(conn.dropped),
        })
        .collect()
    }
}
