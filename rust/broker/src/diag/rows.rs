//! The rows of a report about one connection, subscription or queue, and its numbers about the shard as a whole; the
//! walk is in [`super::survey`].

use std::time::Duration;

use stompica_proto::session::AckMode;

use super::View;
use crate::connection::conn::{Conn, Transport};
use crate::door::thread_cpu_time;
use crate::queue::QueueKind;
use crate::queue::home::Home;
use crate::queue::types::Queue;
use crate::report::merge::Report;
use crate::report::types::{
    AckRow, Benchmark, Memory, Network, QueueRow, RecordedRow, Session, ShardRow, SlowRow, Store, Waiting,
    WsBuffer,
};
use crate::router::group::{Subscription, SubscriptionIndex};
use crate::store::recording::catalog::Extent;

/// The most recorded destinations in one answer.
const RECORDED_MAX: usize = 1000;

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A queue's name without confidential parts: the secret of a temporary one, the login of a durable one.
fn shown(queue: &Queue) -> String {
    match queue.kind {
        QueueKind::Temporary => text(&crate::destination::shown(&queue.name)),
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
        QueueKind::Private => return None, // part of its subscription, reported by `ack`
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

/// Counts a client among the sessions.
pub(crate) fn add_client(session: &mut Session, conn: &Conn) {
    session.clients += 1;
    session.websockets += u64::from(matches!(conn.protocol.transport, Transport::WebSocket(_)));
    session.stomp_connected += u64::from(conn.protocol.session.is_connected());
}

/// Whether a connection is neither refused nor closing.
pub(crate) fn is_client(conn: &Conn) -> bool {
    conn.life.is_open() && !conn.life.refused
}

impl View<'_> {
    /// Adds the numbers that need no walk to a report.
    pub(crate) fn complete(&self, report: &mut Report) {
        match report {
            Report::WsBuffer(buffer) => {
                let (opened, allocated) = self.connections.chunks.opened();
                *buffer = WsBuffer { allocated, hits: opened - allocated, misses: allocated };
            }
            Report::Stale(waiting) => self.complete_waiting(waiting),
            Report::Network(network) => **network = self.network_report(),
            Report::Benchmark(benchmark) => {
                *benchmark = Benchmark::of(&self.turn.stages, self.turn.now_ms);
            }
            Report::Shards(rows) => rows.iter_mut().for_each(|row| self.complete_row(row)),
            Report::Memory(memory) => self.complete_memory(memory),
            Report::Store(store) => self.complete_store(store),
            Report::Recorded(rows) => *rows = self.recorded_rows(),
            Report::Session(_)
            | Report::Subs(_)
            | Report::Subscribed(_)
            | Report::Queues(_)
            | Report::Ack(_)
            | Report::Slow(_) => {}
        }
    }

    /// Recorded destinations, at most [`RECORDED_MAX`]; the first shard tells them.
    fn recorded_rows(&self) -> Vec<RecordedRow> {
        let Some(desk) = self.queues.recorded.desk.as_ref().filter(|_| self.turn.id.0 == 0) else {
            return Vec::new();
        };
        let catalog = desk.catalog();
        let row = |extent: Extent| RecordedRow {
            name: text(&extent.name),
            epoch: extent.epoch,
            first: extent.first,
            last: extent.next - 1,
            durable: extent.durable - 1,
            bytes: extent.bytes,
        };
        catalog.extents().take(RECORDED_MAX).map(row).collect()
    }

    fn complete_waiting(&self, waiting: &mut Waiting) {
        // The count of stale messages is the broker's: one shard reports it.
        let stale = if self.turn.id.0 == 0 { self.stale } else { 0 };
        waiting.r#in = self.mailbox_frames as u64 + self.connections.parking.len() as u64;
        waiting.stale = stale as u64;
    }

    /// The destination that a client subscribed to, as the client wrote it.
    pub(crate) fn subscribed_name(&self, index: SubscriptionIndex, one: &Subscription) -> &[u8] {
        match (self.queues.consumers.at(index), one.filter_index()) {
            (Some(consumer), _) => &consumer.destination,
            (None, Some(filter)) => self.router.filter_name(filter),
            (None, None) => b"", // a subscription to queues is a consumer
        }
    }

    fn network_report(&self) -> Network {
        let counters = &self.turn.counters;
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
            connections: self.connections.table.len() as u64,
            accepted: counters.accepted,
            refused: counters.refused,
            closed: counters.closed,
            errors: counters.errors,
            dropped: counters.dropped,
        }
    }

    fn complete_row(&self, row: &mut ShardRow) {
        *row = ShardRow {
            shard: u64::from(self.turn.id.0),
            connections: self.connections.table.len() as u64,
            subscriptions: row.subscriptions,
            queues: self.queues.home.named() as u64,
            turns: self.turn.number,
            mailbox_frames: self.mailbox_frames as u64,
            frames_in: self.turn.counters.frames_in,
            deliveries: self.turn.counters.deliveries,
            parked: self.turn.counters.parked,
            timers: self.turn.timers.len() as u64,
            cpu_us: micros(thread_cpu_time()),
            unanswered: row.unanswered + self.unanswered as u64,
            max_turn_bytes: self.turn.heaviest.encoded as u64,
            max_turn_deliveries: self.turn.heaviest.deliveries as u64,
            max_turn_visits: self.turn.heaviest.visited as u64,
            max_turn_us: micros(self.turn.heaviest.took),
        };
    }

    fn complete_memory(&self, memory: &mut Memory) {
        let held = self.turn.held_bytes();
        memory.held_bytes = u64::try_from(held).unwrap_or(0);
        memory.limit_bytes = self.turn.config.memory_limit;
        memory.short = self.turn.memory.is_short;
        memory.input_bytes = self.connections.input_bytes as u64;
        memory.chunk_bytes = self.connections.chunks.held_bytes() as u64;
    }

    fn complete_store(&self, store: &mut Store) {
        store.kind = self.turn.config.store.name();
        if self.turn.id.0 == 0 {
            store.status.add(self.queues.home.store.status());
            if !self.turn.is_ready {
                store.status.state = "recovering";
            }
        }
    }

    pub(crate) fn ack_row(&self, index: SubscriptionIndex, one: &Subscription) -> Option<AckRow> {
        let mode = match one.ack {
            AckMode::Auto => return None,
            AckMode::Client => "client",
            AckMode::ClientIndividual => "client-individual",
        };
        let consumer = self.queues.consumers.at(index)?;
        let oldest_ms =
            consumer.unacked.oldest().map_or(0, |(_, at_ms)| self.turn.now_ms.saturating_sub(at_ms));
        Some(AckRow {
            connection: self.connections.table.get(one.conn).map_or(0, |conn| conn.id),
            subscription: text(&one.id),
            destination: text(&consumer.destination),
            mode,
            in_flight: consumer.unacked.len() as u64,
            oldest_ms,
        })
    }

    pub(crate) fn slow_row(&self, conn: &Conn) -> Option<SlowRow> {
        let is_slow = is_client(conn) && (conn.output.is_full() || conn.output.dropped > 0);
        is_slow.then(|| SlowRow {
            connection: conn.id,
            peer: conn.peer.to_string(),
            outbox_bytes: conn.output.outbox.bytes() as u64,
            full_ms: conn
                .output
                .full
                .as_ref()
                .map_or(0, |full| self.turn.now_ms.saturating_sub(full.since_ms())),
            dropped: u64::from(conn.output.dropped),
        })
    }

    /// The row of one queue.
    pub(crate) fn queue_row(&self, queue: &Queue) -> Option<QueueRow> {
        queue_row(queue, &self.queues.home)
    }
}
