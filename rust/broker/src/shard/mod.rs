//! One shard: a thread that owns its connections, its subscriptions and everything written to them.
//!
//! ```text
//! poll ─► mail ─► read each ready connection once ─► decode ─► route ─► encode into chunks
//!                                                              └──────► one batch per turn for other shards
//!   ◄──────────── flush every dirty connection once ◄── post batch ◄── distribute ranges
//! ```
//! Input: readiness, mail, the time. Output: bytes on sockets, mail. The state is owned and has no locks; only mail
//! and counters use atomics.
//!
//! Invariants: a turn ends when its [`Budget`] is used up, and the rest of the input stays in its connection; frames
//! are encoded in the order of arrival; before anything else is appended to an outbox, the [pending
//! range](crate::connection::pending_range) and the [pending copies](crate::connection::pending_copies) are distributed;
//! readiness is remembered until a read or write finds the socket drained.

#[cfg(any(test, simulated))]
mod audit;
mod deadline;
mod drain;
mod io;
mod jobs;
mod mail;
mod memory;
mod owners;
mod settle;
#[cfg(any(test, feature = "simulation", simulated))]
mod simulation;
mod sockets;

use std::sync::Arc;
use std::time::Duration;

use self::drain::Draining;
use self::memory::MemoryState;
use crate::command::commits::Commits;
use crate::config::Config;
use crate::connection::Connections;
use crate::connection::acceptor::Acceptor;
use crate::connection::listener::Listener;
use crate::delivery::Deliveries;
use crate::diag::inquiries::Diagnostics;
use crate::door::{Events, Instant, Poll, Token, planted};
use crate::ids::ShardId;
use crate::mail::peers::Peers;
pub use crate::mail::shared::Shared;
use crate::queue::notes::Notes;
use crate::queue::queues::Queues;
use crate::report::stages::Stage;
use crate::router::Router;
use crate::store::Store;
use crate::timer::POLL_MAX_MS;
use crate::turn::Turn;
use crate::turn::budget::{Budget, TurnPart};

/// Token of a mailbox's waker.
pub const WAKER: Token = Token(usize::MAX);
/// Token of the listening socket.
pub const LISTENER: Token = Token(usize::MAX - 1);
/// One I/O thread.
#[derive(Debug)]
pub struct Shard {
    pub(crate) turn: Turn,
    pub(crate) shared: Arc<Shared>,
    poll: Poll,
    acceptor: Acceptor,
    pub(crate) connections: Connections,
    pub(crate) router: Router,
    pub(crate) queues: Queues,
    pub(crate) notes: Notes,
    pub(crate) deliveries: Deliveries,
    pub(crate) peers: Peers,
    memory: MemoryState,
    commits: Commits,
    pub(crate) diagnostics: Diagnostics,
    draining: Option<Draining>,
    stopped: bool,
}

impl Shard {
    /// Creates a shard that is ready to run; only the first one has the listener.
    #[must_use]
    pub fn new(
        id: ShardId,
        shared: Arc<Shared>,
        config: Arc<Config>,
        poll: Poll,
        listener: Option<Listener>,
        epoch: &str,
        store: Box<dyn Store>,
    ) -> Self {
        let shards = shared.mailboxes.len();
        let (totals, log) = (Arc::clone(&shared.totals), Arc::clone(&shared.log));
        let (stale, retained) = (Arc::clone(&shared.stale), Arc::clone(&shared.retained));
        Shard {
            router: Router::new(&config, shared.hasher.clone()),
            queues: Queues::new(id, &config, shared.hasher.clone(), stale, retained, store),
            notes: Notes::new(id, shards),
            turn: Turn::new(id, shards, config, totals, log, shared.hasher.clone(), epoch),
            peers: Peers::new(id, Arc::clone(&shared.mailboxes)),
            shared,
            poll,
            acceptor: Acceptor::new(listener),
            connections: Connections::default(),
            deliveries: Deliveries::default(),
            memory: MemoryState::default(),
            commits: Commits::default(),
            diagnostics: Diagnostics::default(),
            draining: None,
            stopped: false,
        }
    }

    /// Lets nobody log in before the store is restored.
    pub fn await_store(&mut self) {
        self.turn.is_ready = false;
    }

    /// Runs until it is stopped.
    ///
    /// # Errors
    /// An error of the poll, after which the shard cannot be used.
    pub fn run(mut self) -> std::io::Result<()> {
        let mut events = Events::with_capacity(1024);
        self.diag().arm_monitor();
        while !self.stopped {
            let timeout = self.poll_timeout();
            match self.poll.poll(&mut events, timeout) {
                Err(error) if error.kind() != std::io::ErrorKind::Interrupted => return Err(error),
                _ => self.turn(&events),
            }
        }
        self.end();
        Ok(())
    }

    /// Whether there is work without an event.
    pub(crate) fn has_work(&self) -> bool {
        (!self.connections.undrained.is_empty() && !planted!("sleeps-with-input"))
            || !self.connections.dirty.is_empty()
            || !self.connections.paced.is_empty()
            || !self.connections.newly_full.is_empty()
            || !self.connections.too_slow.is_empty()
            || self.has_more_to_close()
            || self.peers.incoming.has_work()
            || self.connections.may_let_arrive()
            || self.peers.inbound.can_go_on(&self.deliveries.fan_outs)
            || self.has_deliveries()
            || self.deliveries.round_trips.has_ready(&self.peers, &self.deliveries.fan_outs)
            || self.connections.parking.has_retries()
            || self.has_queue_work()
            || self.has_jobs()
            || self.router.has_to_trim()
            || self.acceptor.listener.as_ref().is_some_and(Listener::is_ready)
    }

    fn poll_timeout(&self) -> Option<Duration> {
        if self.has_work() {
            return Some(Duration::ZERO);
        }
        self.timer_timeout().into_iter().chain(self.memory_timeout()).chain(self.reclaim_timeout()).min()
    }

    /// The time until the next deadline.
    fn timer_timeout(&self) -> Option<Duration> {
        let now_ms = self.clock_ms();
        let next_ms = [self.turn.timers.next_ms(), self.draining_deadline_ms(), self.accept_again_ms()];
        let next_ms = next_ms.into_iter().flatten().min()?;
        Some(Duration::from_millis(next_ms.saturating_sub(now_ms).min(POLL_MAX_MS)))
    }

    fn clock_ms(&self) -> u64 {
        self.ms_at(Instant::now())
    }

    fn ms_at(&self, at: Instant) -> u64 {
        self.shared.clock.ms_at(at, self.turn.ahead_ms)
    }

    fn turn(&mut self, events: &Events) {
        let began_at = Instant::now();
        self.turn.ahead_ms = self.shared.clock.ahead_ms();
        self.turn.now_ms = self.ms_at(began_at);
        self.turn.number += 1;
        let began = self.turn.stages.begin(Stage::Turn);
        self.queues.home.set_time(self.turn.now_ms);
        self.queues.home.store.begin_turn(self.turn.now_ms);
        self.turn.budget = Budget::default();
        self.note_readiness(events);
        self.delivery().check_memory();
        self.connections.check_unfinished(&mut self.turn);
        self.take_mail();
        self.delivery().take_history();
        self.proceed_with_jobs();
        self.dispatch_after_mail();
        let for_mail = self.turn.budget.go_on_to(TurnPart::Routes);
        // This comes before the sockets: a message whose RECEIPT has been sent must not reach a later subscription.
        self.delivery().route_inbound();
        self.settle();
        let for_routes = self.turn.budget.go_on_to(TurnPart::Deliveries);
        self.proceed_with_deliveries();
        self.settle();
        let for_deliveries = self.turn.budget.go_on_to(TurnPart::Sockets);
        self.serve_sockets();
        self.accept();
        self.settle();
        self.handle_deadlines();
        let for_sockets = self.turn.budget.go_on_to(TurnPart::Queues);
        self.dispatch_queues();
        self.connections.distribute(&mut self.turn);
        self.answer_saved();
        self.proceed_draining();
        self.settle();
        self.post();
        self.flush();
        self.act_on_outboxes();
        self.run_all_effects();
        self.connections.distribute(&mut self.turn);
        self.post();
        self.tell_restored();
        self.delivery().close_idle_groups();
        self.router.trim();
        self.note_lost_answers();
        self.publish_counters();
        self.turn.end_timing(began);
        let took = self.turn.cpu_clock.took(began_at);
        self.turn.heaviest.note([for_mail, for_routes, for_deliveries, for_sockets, self.turn.budget], took);
        self.reclaim_if_idle();
    }

    fn serve_sockets(&mut self) {
        self.resume_parked();
        self.settle();
        for _ in 0..self.connections.undrained.len() {
            if self.turn.budget.is_exhausted() {
                break;
            }
            let Some(key) = self.connections.undrained.pop_front() else { break };
            self.serve(key);
            self.settle();
            if self.notes.has_many_reports() {
                self.post(); // another home waits for the credit
            }
        }
    }
}
