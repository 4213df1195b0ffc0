//! Acts on mail from other shards and from the handle.

use std::sync::Arc;

use super::Shard;
use crate::config::Config;
use crate::connection::closing::GOING_AWAY;
use crate::connection::conn::{Conn, Transport};
use crate::connection::pausing::Pause;
use crate::connection::socket::Socket;
use crate::diag::survey::ReportTo;
use crate::door::planted;
use crate::ids::ShardId;
use crate::log::Level;
use crate::mail::inbound::Inbound;
use crate::mail::incoming::{Next, Notes};
use crate::mail::mailbox::{Accepted, Mail};
use crate::queue::mail::Note;
use crate::report::ConnectionInfo;
use crate::text::Text;

/// The number of notes whose messages are fetched into the cache of this core at a time.
const FETCHED_AHEAD: usize = 8;

impl Shard {
    /// Reads mail for half of a turn; messages are only queued here and routed by [`Shard::route_inbound`].
    pub(super) fn take_mail(&mut self) {
        let newest = self.router.newest_subscription();
        self.peers.incoming.refill(&self.shared.mailboxes[usize::from(self.turn.id.0)], newest);
        while let Some(next) = self.peers.incoming.take_next() {
            match next {
                Next::Notes(notes) => self.read_notes(notes),
                Next::Mail(mail) => {
                    self.read_mail(mail);
                    self.settle();
                }
            }
            if self.turn.budget.is_half_spent() {
                break;
            }
        }
    }

    /// Reads the notes of one shard about queues.
    fn read_notes(&mut self, mut notes: Notes) {
        let (mut frames, mut deliveries, mut fetched) = (0, 0, 0);
        while let Some(note) = notes.left.next() {
            if fetched == 0 {
                fetched = FETCHED_AHEAD;
                notes.left.as_slice().iter().take(FETCHED_AHEAD).for_each(Note::fetch);
            }
            fetched -= 1;
            frames += usize::from(note.is_frame());
            deliveries += note.load();
            self.turn.budget.visit(1);
            self.read_note(notes.from, note);
            self.settle();
            if self.turn.budget.is_half_spent() {
                break;
            }
        }
        self.peers.have_taken(frames, &self.turn);
        self.peers.have_read(deliveries);
        self.peers.incoming.put_back(notes);
    }

    /// Records that another shard has its first subscription to a name, or no longer has one.
    fn read_interest(&mut self, name: &Arc<Text>, from: ShardId, interested: bool) {
        self.connections.distribute(&mut self.turn);
        self.router.set_interest(name, from, interested);
        self.turn.budget.visit(1 + name.len() / 64 + self.router.take_visited());
    }

    fn read_mail(&mut self, mail: Mail) {
        match mail {
            Mail::Batch(batch) => {
                let (round, newest) = self.peers.incoming.round();
                self.peers.inbound.batches.push_back(Inbound { batch, round, newest, next: 0, behind: None });
            }
            Mail::Accepted(accepted) => self.adopt(accepted),
            Mail::Interest { from, name, interested, reply, newcomer } => {
                self.read_interest(&name, from, interested);
                match (newcomer, reply) {
                    (Some(newcomer), reply) => self.queue().await_replay(&name, from, newcomer, reply),
                    (None, Some(requester)) => self.notes.answer(requester, Ok(())),
                    (None, None) => {}
                }
                if !interested {
                    self.connections.retry_parked(&[Pause::SlowConsumer, Pause::Kept]);
                }
            }
            Mail::Queue(from, notes) => self.read_notes(Notes { from, left: notes.into_iter() }),
            Mail::Full { from, name, holdup, full } => {
                self.router.set_full(&name, from, holdup, full);
                if !full {
                    self.connections.retry_parked(&[holdup.into()]);
                }
            }
            Mail::Uncongested(shard) => {
                if !planted!("congested-forever") {
                    self.peers.has_room(shard);
                }
                self.connections.retry_parked(&[Pause::Mailbox]);
            }
            Mail::ReadsOn(shard) => self.queues.home.open(shard),
            Mail::RoutesOn(shard) => {
                self.peers.routes_on(shard);
                self.connections.retry_parked(&[Pause::LargeFanOut]);
            }
            Mail::FanOutSize { from, name, fan_out_size } => {
                self.router.set_fan_out_size(&name, from, fan_out_size)
            }
            Mail::Drained(shard) => self.peer_drained(shard),
            Mail::Closed => {
                if let Some(listener) = &mut self.acceptor.listener {
                    listener.descriptor_freed();
                }
            }
            Mail::Record(desk) => self.queues.recorded.desk = Some(desk),
            Mail::Restore(share) => self.queue().restore(*share),
            Mail::Ready => self.open_logins(),
            Mail::Drain => self.begin_draining(),
            Mail::Stop => self.stopped = true,
            Mail::Reload(config) => self.reload(config),
            #[cfg(any(test, loom))]
            Mail::Panic => panic!("a test requested this panic"),
            // The caller may have given up waiting.
            Mail::Connections(reply) => _ = reply.send(self.connection_infos()),
            Mail::Diagnose(query, reply) => self.diag().survey(query, ReportTo::Handle(reply)),
            Mail::Settle(reply) => _ = reply.send((self.is_settled(), self.activity())),
        }
    }

    /// Adds an accepted connection.
    pub(super) fn adopt(&mut self, accepted: Accepted) {
        let Accepted { stream, peer, id, refused, accepted_ms } = accepted;
        self.turn.budget.read(0);
        let socket = Socket::plain(stream, self.turn.now_ms);
        let key = self.connections.table.insert(Conn::new(socket, peer, id, refused, self.turn.now_ms));
        let Some(conn) = self.connections.table.get_mut(key) else { return };
        if let Err(error) = conn.socket.register(self.poll.registry(), key.token()) {
            return self.connections.drop_connection(&mut self.turn, key, &error.to_string());
        }
        self.turn.counters.accepted += 1;
        // `login_timeout` counts from accept, however long this shard was busy.
        conn.life.since_ms = accepted_ms.min(self.turn.now_ms);
        if conn.next_deadline(&self.turn) <= self.turn.now_ms {
            self.connections.queue_for_reading(key); // its CONNECT may have come in time
        }
        self.connections.log(&self.turn, Level::Debug, key, || "accepted".to_owned());
        // The poll also reports data that came before the registration.
        self.connections.rearm(&mut self.turn, key);
        if self.draining.is_some() {
            self.connections.begin_close(&mut self.turn, key, GOING_AWAY, "");
        }
    }

    fn reload(&mut self, config: Arc<Config>) {
        self.router.reload(&config);
        self.queues.home.reload(&config);
        self.turn.config = config;
        self.turn.observe();
        self.delivery().stop_blocking();
        for key in self.connections.table.keys() {
            self.connections.rearm(&mut self.turn, key);
        }
        self.rearm_deliveries();
        self.connections.retry_parked(&Pause::ALL);
    }

    fn connection_infos(&self) -> Vec<ConnectionInfo> {
        self.connections
            .table
            .iter()
            .map(|(_, conn)| ConnectionInfo {
                id: conn.id,
                peer: conn.peer,
                shard: usize::from(self.turn.id.0),
                transport: match conn.protocol.transport {
                    Transport::Unknown => "unknown",
                    Transport::Stomp => "stomp",
                    Transport::Http => "http",
                    Transport::WebSocket(_) => "websocket",
                },
                version: conn
                    .protocol
                    .session
                    .was_connected()
                    .then(|| conn.protocol.session.version().as_str()),
                subscriptions: conn.subscriptions.len(),
                outbox_bytes: conn.output.outbox.bytes(),
            })
            .collect()
    }

    /// Whether nothing is pending in this shard: no input, no mail, no outbox.
    fn is_settled(&self) -> bool {
        self.peers.inbound.is_empty()
            && !self.peers.incoming.has_work()
            && self.deliveries.fan_outs.is_empty()
            && self.connections.refill.is_empty()
            && !self.queues.replays.has_work()
            && !self.queues.recorded.replays.has_listed()
            && self.has_no_jobs()
            && self.connections.undrained.is_empty()
            && self.connections.parking.is_empty()
            && self.connections.table.iter().all(|(_, conn)| conn.output.outbox.is_empty())
            && self.peers.have_posted_all()
            && self.notes.is_empty()
            && !self.has_queue_work()
    }

    /// A number that grows with all work done.
    pub(crate) fn activity(&self) -> u64 {
        self.turn.counters.frames_in
            + self.turn.counters.frames_mailed
            + self.turn.counters.bytes_in
            + self.turn.counters.bytes_out
            + self.peers.incoming.read
    }
}
