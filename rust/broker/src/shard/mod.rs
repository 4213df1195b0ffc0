//! One shard: a thread that owns its connections, its subscriptions and everything written to them.
//!
//! ```text
//! poll ─► mail ─► read each ready connection once ─► decode ─► route ─► encode into chunks
//!                                                              └──────► one batch per turn for other shards
//!   ◄──────────── flush every dirty connection once ◄── post batch ◄── hand out ranges
//! ```
//! In: readiness, mail, the time. Out: bytes on sockets, mail. Owned: all below; no locks, few atomics (mail, counts).
//!
//! Invariants: a turn ends when its [`Budget`] is used up, and the rest of the input waits in its connection; frames are
//! encoded in the order of arrival; before anything else is appended to an outbox, the open [`deliver::PendingRange`] is handed
//! out; readiness is remembered until a read or write says that the socket is drained.

mod accept;
mod answers;
mod apply;
mod assembly;
mod attach;
mod backpressure;
mod budget;
#[cfg(any(test, feature = "by-hand"))]
mod by_hand;
mod close;
mod commit;
mod deadline;
mod deliver;
mod diagnose;
mod drain;
mod effects;
mod fan_out;
mod gather;
mod http;
mod initial_replay;
mod input;
pub(crate) mod inquiries;
mod jobs;
mod keepers;
pub(crate) mod leaving;
mod mail;
mod memory;
mod monitor;
mod names;
mod orphans;
mod output;
mod owed;
mod own_answers;
pub(crate) mod parking;
pub(crate) mod passing;
mod queues;
mod receive;
pub(crate) mod replay;
mod report;
mod reserve;
mod returning;
mod revival;
mod shared;
mod survey;
mod turn_clock;
mod unfinished;
mod watch;
mod websocket;
mod wide;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mio::{Events, Poll, Token};
use stompica_proto::HeaderSpan;

use self::attach::Binding;
use self::backpressure::Busy;
pub(crate) use self::budget::Budget;
use self::budget::{Heaviest, TurnPart};
pub(crate) use self::close::describe;
use self::deliver::{EncodedSuffixes, PendingRange};
use self::drain::Draining;
use self::initial_replay::PendingReplay;
use self::inquiries::Diagnostics;
use self::jobs::Jobs;
use self::mail::Inbounds;
use self::memory::MemoryState;
use self::parking::Parking;
use self::replay::Replays;
use self::reserve::{Prepared, PreparedCommit};
pub use self::shared::Shared;
use self::turn_clock::TurnClock;
use crate::collections::spread::Map;
use crate::config::Config;
use crate::connection::conn::Conns;
use crate::connection::listener::Listener;
use crate::ids::{ConnKey, MessageIds, ShardId};
use crate::ids::{QueueKey, Subscriber};
use crate::mail::incoming::Incoming;
use crate::mail::mailbox::{Batch, Mail};
use crate::message::chunk::ChunkPool;
use crate::queue::home::Home;
use crate::queue::mail::QueueMail;
use crate::queue::retained::Retained;
use crate::queue::stale::Stale;
use crate::report::stages::{Stage, Stages};
use crate::router::Router;
use crate::router::fan_out::FanOuts;
use crate::router::group::GroupIndex;
use crate::stats::Counters;
use crate::store::Memory;
use crate::timer::{POLL_MAX_MS, Timers};

/// Token of a mailbox's waker.
pub const WAKER: Token = Token(usize::MAX);
/// Token of the listening socket.
pub const LISTENER: Token = Token(usize::MAX - 1);
/// Bytes read from one connection in one turn.
const READ_BYTES: usize = 64 << 10;
/// Receivers of wide fan-outs that are flushed in one turn, so that others need not wait for all of them.
const PACED_FLUSHES: usize = 32;

/// One I/O thread.
#[derive(Debug)]
pub struct Shard {
    id: ShardId,
    pub(crate) shared: Arc<Shared>,
    pub(crate) config: Arc<Config>,
    poll: Poll,
    listener: Option<Listener>,
    pub(crate) conns: Conns,
    /// Hashes subscription ids in the tables of connections.
    pub(crate) subscription_hasher: foldhash::fast::RandomState,
    pub(crate) router: Router,
    /// The queues that have their home here.
    pub(crate) home: Home,
    stale: Stale,
    retained: Retained,
    /// When the first stale or retained message expires, as far as the timers know.
    waiting_deadline_ms: u64,
    /// Topics that feed the queues of durable subscriptions.
    bindings: Map<QueueKey, Binding>,
    /// New subscriptions that are to get what this home holds, once nothing older is on its way here.
    pending_replays: Map<Subscriber, PendingReplay>,
    /// What this home holds of the past, on its way to them.
    replays: Replays,
    /// Room that is kept for transactions.
    prepared: Map<Prepared, PreparedCommit>,
    jobs: Jobs,
    queue_out: Vec<Vec<QueueMail>>,
    /// Deliveries in it that are not counted yet, in [`QueueMail::load`].
    deliveries_out: Vec<usize>,
    counted_queues: usize,
    chunks: ChunkPool,
    timers: Timers,
    returning: returning::Returning,
    pub(crate) ids: MessageIds,
    pub(crate) counters: Counters,
    now_ms: u64,
    pub(crate) budget: Budget,
    heaviest: Heaviest,
    turn_clock: TurnClock,
    turn: u64,
    read_buffer: Vec<u8>,
    spans: Vec<HeaderSpan>,
    pub(crate) own_headers: Vec<u8>,
    scratch: Vec<u8>,
    suffixes: EncodedSuffixes,
    /// Connections whose socket may have more to read, or whose input was left by the end of a turn.
    undrained: VecDeque<ConnKey>,
    parking: Parking,
    dirty: Vec<ConnKey>,
    paced: VecDeque<ConnKey>,
    /// Messages that take several turns, and connections whose outbox has room for what they are owed.
    pub(crate) fan_outs: FanOuts,
    refill: VecDeque<ConnKey>,
    pending_range: Option<PendingRange>,
    open_groups: Vec<GroupIndex>,
    newly_full: Vec<ConnKey>,
    too_slow: Vec<ConnKey>,
    batch: Batch,
    outgoing: Vec<Vec<Mail>>,
    inbound: Inbounds,
    incoming: Incoming,
    pub(crate) busy: Busy,
    counted_bytes: i64,
    memory: MemoryState,
    next_accept_log_ms: u64,
    next_token: u64,
    pub(crate) stages: Stages,
    /// Somebody looks on: times are taken, or frames logged.
    pub(crate) observes: bool,
    diagnostics: Diagnostics,
    draining: Option<Draining>,
    stopped: bool,
}

impl Shard {
    /// A shard that is ready to run; only the first one has the listener.
    #[must_use]
    pub fn new(
        id: ShardId,
        shared: Arc<Shared>,
        config: Arc<Config>,
        poll: Poll,
        listener: Option<Listener>,
        epoch: &str,
    ) -> Self {
        Shard {
            id,
            conns: Conns::default(),
            subscription_hasher: foldhash::fast::RandomState::default(),
            router: Router::new(&config, shared.hasher.clone()),
            home: Home::new(&config, shared.hasher.clone(), Box::new(Memory)),
            stale: Stale::new(id, Arc::clone(&shared.stale)),
            retained: Retained::new(Arc::clone(&shared.retained)),
            waiting_deadline_ms: u64::MAX,
            bindings: Map::default(),
            pending_replays: Map::default(),
            replays: Replays::default(),
            prepared: Map::default(),
            jobs: Jobs::default(),
            queue_out: shared.mailboxes.iter().map(|_| Vec::new()).collect(),
            deliveries_out: vec![0; shared.mailboxes.len()],
            counted_queues: 0,
            chunks: ChunkPool::default(),
            timers: Timers::default(),
            returning: returning::Returning::default(),
            ids: MessageIds::new(epoch, id),
            counters: Counters::default(),
            now_ms: 0,
            budget: Budget::default(),
            heaviest: Heaviest::default(),
            turn_clock: TurnClock::default(),
            turn: 0,
            read_buffer: vec![0; READ_BYTES],
            spans: Vec::new(),
            own_headers: Vec::new(),
            scratch: Vec::new(),
            suffixes: EncodedSuffixes::default(),
            undrained: VecDeque::new(),
            parking: Parking::default(),
            dirty: Vec::new(),
            paced: VecDeque::new(),
            fan_outs: FanOuts::default(),
            refill: VecDeque::new(),
            pending_range: None,
            open_groups: Vec::new(),
            newly_full: Vec::new(),
            too_slow: Vec::new(),
            batch: Batch::default(),
            outgoing: shared.mailboxes.iter().map(|_| Vec::new()).collect(),
            inbound: Inbounds::default(),
            incoming: Incoming::default(),
            busy: Busy::default(),
            counted_bytes: 0,
            memory: MemoryState::default(),
            next_accept_log_ms: 0,
            next_token: 0,
            stages: Stages::default(),
            observes: config.log_frames,
            diagnostics: Diagnostics::default(),
            draining: None,
            stopped: false,
            shared,
            config,
            poll,
            listener,
        }
    }

    /// Runs until told to stop.
    ///
    /// # Errors
    /// The poll's error, which leaves the shard of no use.
    pub fn run(mut self) -> std::io::Result<()> {
        let mut events = Events::with_capacity(1024);
        self.arm_monitor();
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

    /// Whether there is something to do without an event.
    pub(crate) fn has_work(&self) -> bool {
        !self.undrained.is_empty()
            || !self.dirty.is_empty()
            || !self.paced.is_empty()
            || !self.newly_full.is_empty()
            || !self.too_slow.is_empty()
            || self.has_more_to_close()
            || self.incoming.has_work()
            || self.may_let_arrive()
            || self.has_inbound()
            || self.has_deliveries()
            || self.parking.has_retries()
            || self.has_queue_work()
            || self.has_jobs()
            || self.router.has_to_trim()
            || self.listener.as_ref().is_some_and(Listener::is_ready)
    }

    fn poll_timeout(&self) -> Option<Duration> {
        if self.has_work() {
            return Some(Duration::ZERO);
        }
        let now_ms = self.clock_ms();
        let timer = [self.timers.next_ms(), self.draining_deadline_ms(), self.accept_again_ms()]
            .into_iter()
            .flatten()
            .min()
            .map(|at_ms| Duration::from_millis(at_ms.saturating_sub(now_ms).min(POLL_MAX_MS)));
        timer.into_iter().chain(self.memory_timeout()).chain(self.reclaim_timeout()).min()
    }

    fn clock_ms(&self) -> u64 {
        self.ms_at(Instant::now())
    }

    fn ms_at(&self, at: Instant) -> u64 {
        self.shared.clock.ms_at(at)
    }

    fn turn(&mut self, events: &Events) {
        let began_at = Instant::now();
        self.now_ms = self.ms_at(began_at);
        self.turn += 1;
        let began = self.stages.begin(Stage::Turn);
        self.home.set_time(self.now_ms);
        self.budget = Budget::default();
        self.note_readiness(events);
        self.look_at_memory();
        self.look_at_unfinished();
        self.take_mail();
        self.proceed_with_jobs();
        let for_mail = self.budget.go_on_to(TurnPart::Routes);
        // Before the sockets, so that a message whose RECEIPT has left never reaches a subscription that came after.
        self.route_inbound();
        let for_routes = self.budget.go_on_to(TurnPart::Deliveries);
        self.proceed_with_deliveries();
        let for_deliveries = self.budget.go_on_to(TurnPart::Sockets);
        self.serve_sockets();
        self.accept();
        self.meet_deadlines();
        let for_sockets = self.budget.go_on_to(TurnPart::Queues);
        self.dispatch_queues();
        self.distribute();
        self.proceed_draining();
        self.post();
        self.flush();
        self.act_on_outboxes();
        self.run_effects();
        self.post();
        self.close_idle_groups();
        self.router.trim();
        self.note_lost_answers();
        self.publish_counters();
        self.end_of_turn(began);
        let took = self.turn_clock.took(began_at);
        self.heaviest.note([for_mail, for_routes, for_deliveries, for_sockets, self.budget], took);
        self.reclaim_if_idle();
    }

    /// Milliseconds since the broker's start, as of the turn's beginning.
    pub(crate) fn now_ms(&self) -> u64 {
        self.now_ms
    }

    /// How many shards there are.
    pub(crate) fn shared_len(&self) -> usize {
        self.outgoing.len()
    }

    /// Remembers that a connection's socket, or its own input, has something to look at.
    fn queue_for_reading(&mut self, key: ConnKey) {
        if let Some(conn) = self.conns.get_mut(key)
            && !conn.undrained
        {
            conn.undrained = true;
            self.undrained.push_back(key);
        }
    }

    fn serve_sockets(&mut self) {
        self.resume_parked();
        for _ in 0..self.undrained.len() {
            if self.budget.is_exhausted() {
                break;
            }
            let Some(key) = self.undrained.pop_front() else { break };
            self.serve(key);
        }
    }
}
