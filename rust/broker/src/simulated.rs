//! The broker in the simulated build (`--cfg simulated`): its shards run on the thread of the driver, one turn at a
//! time, in an order that the driver chooses. The outside is [`outside`]. See `rust/sim`.

use std::sync::Arc;
use std::time::Duration;

pub use crate::door::simulated as outside;

use crate::audit::Before;
use crate::config::{Config, Fsync};
use crate::connection::listener::Listener;
use crate::door::{Events, Instant, Interest, Poll, Waker};
use crate::held::{self, Sums};
use crate::ids::{self, ShardId};
pub use crate::ids::{NO_RECORD, RecordId};
use crate::log::{LogQueue, Record};
use crate::mail::mailbox::{Mail, Mailbox};
pub use crate::message::OwnedMessage;
use crate::requester;
use crate::shard::{LISTENER, Shard, Shared, WAKER};
use crate::snapshot::{self, Snapshot};
use crate::storage::Control;
pub use crate::storage::simulated::{Contents, Found, SteppedLog, inspect};
pub use crate::store::file::medium_double::{Disk, Fault};
pub use crate::store::{Memory, Position, Store, TransactionId as StoreTransactionId, Unreadable};
use crate::usage::Usage;
pub use stompica_proto::encode::Message as StoreMessage;
pub use stompica_proto::{ProtocolError, error::Code};

/// The maximum number of events that one turn of a shard gets.
const EVENTS_MAX: usize = 1024;

/// A shard and the byte count that its thread would have: see [`held`].
#[derive(Debug)]
struct Thread {
    /// `None` once it has ended.
    shard: Option<Shard>,
    sums: Sums,
    slept_at: Instant,
    /// How long it sleeps since then without an event; `None`: without a limit.
    sleep: Option<Duration>,
}

impl Thread {
    fn new(shard: Shard) -> Self {
        Thread { sleep: shard.sleep(), shard: Some(shard), sums: Sums::default(), slept_at: Instant::now() }
    }
}

/// A broker whose turns are run by the caller.
#[derive(Debug)]
pub struct SteppedBroker {
    shared: Arc<Shared>,
    threads: Vec<Thread>,
    events: Events,
    before: Before,
    reclaimed_while_busy: bool,
    control: Arc<Control>,
    /// The thread of its log, once that is open.
    log: Option<SteppedLog>,
}

impl SteppedBroker {
    /// Starts a broker in the current [`outside`], with one store for each shard.
    ///
    /// # Panics
    /// Never: nothing can fail in a simulated outside before the driver makes it fail.
    #[must_use]
    pub fn start(config: Config, log: Arc<LogQueue>, stores: Vec<Box<dyn Store>>) -> Self {
        Self::start_with(config, log, stores, true)
    }

    /// Starts a broker whose shards wait for a log: nobody can log in before [`open_log`](SteppedBroker::open_log).
    #[must_use]
    pub fn start_without_log(config: Config, log: Arc<LogQueue>) -> Self {
        let stores = (0..config.writers).map(|_| Box::new(Memory) as Box<dyn Store>).collect();
        Self::start_with(config, log, stores, false)
    }

    fn start_with(config: Config, log: Arc<LogQueue>, stores: Vec<Box<dyn Store>>, is_ready: bool) -> Self {
        _ = requester::take_lost(); // those that an earlier run left open, also in its mailboxes, are of no concern
        _ = requester::take_lost(); // of an earlier broker that was dropped in the middle of its work
        let polls: Vec<Poll> = stores.iter().map(|_| Poll::new().expect("a simulated poll")).collect();
        let mailboxes = polls
            .iter()
            .map(|poll| Mailbox::new(Waker::new(poll.registry(), WAKER).expect("a simulated waker")));
        let mut listener = Some(Listener::bind("127.0.0.1", 61613).expect("any address is free"));
        if let (Some(first), Some(listener)) = (polls.first(), &mut listener) {
            let registered = first.registry().register(listener.socket(), LISTENER, Interest::READABLE);
            registered.expect("a simulated registration");
        }
        let shared = Arc::new(Shared::new(mailboxes.collect(), log, outside::note_reclaim));
        let (epoch, config) = (ids::epoch(config.ids), Arc::new(config));
        let new = |(at, (poll, store)): (usize, (Poll, Box<dyn Store>))| {
            let (shared, config, id) = (Arc::clone(&shared), Arc::clone(&config), ShardId(at as u8));
            let mut shard = Shard::new(id, shared, config, poll, listener.take(), &epoch, store);
            if !is_ready {
                shard.await_store();
            }
            shard.begin();
            Thread::new(shard)
        };
        let previous = held::swap(Sums::default());
        let threads = polls.into_iter().zip(stores).enumerate().map(new).collect();
        held::swap(previous);
        SteppedBroker {
            shared,
            threads,
            events: Events::with_capacity(EVENTS_MAX),
            before: Before::default(),
            reclaimed_while_busy: false,
            control: Arc::default(),
            log: None,
        }
    }

    /// Opens the log on a disk, and gives each home what the log has for it, as the thread of the log does. `sizes`: the bytes
    /// of a segment and of the reserve.
    ///
    /// # Errors
    /// It cannot be opened, in one line.
    pub fn open_log(&mut self, disk: Disk, sizes: (u64, u64), fsync: Fsync) -> Result<(), String> {
        // What the homes get is created by a thread of its own, which adds nothing to the sum of a shard.
        let previous = held::swap(Sums::default());
        let opened = SteppedLog::open(disk, sizes, fsync, &self.control, &self.shared);
        held::swap(previous);
        self.log = opened?;
        Ok(())
    }

    /// The thread of the log, once it is open.
    #[must_use]
    pub fn log_thread(&self) -> Option<&SteppedLog> {
        self.log.as_ref()
    }

    /// Likewise.
    pub fn log_thread_mut(&mut self) -> Option<&mut SteppedLog> {
        self.log.as_mut()
    }

    /// The number of shards.
    #[must_use]
    pub fn shards(&self) -> usize {
        self.threads.len()
    }

    /// Whether a shard has ended.
    #[must_use]
    pub fn has_ended(&self, shard: usize) -> bool {
        self.threads[shard].shard.is_none()
    }

    /// How much longer a shard sleeps; `None`: until an event comes, or it has ended. It chose the time after its last
    /// turn.
    #[must_use]
    pub fn sleep(&self, shard: usize) -> Option<Duration> {
        let thread = &self.threads[shard];
        if thread.shard.as_ref()?.has_events() {
            return Some(Duration::ZERO);
        }
        thread.sleep.map(|sleep| sleep.saturating_sub(thread.slept_at.elapsed()))
    }

    /// The time until the next deadline of a shard, if it has one: it may wake earlier, and look for free memory.
    #[must_use]
    pub fn deadline(&self, shard: usize) -> Option<Duration> {
        self.threads[shard].shard.as_ref()?.deadline()
    }

    /// Runs one turn of a shard, unless it has ended.
    pub fn turn(&mut self, at: usize) {
        let thread = &mut self.threads[at];
        let Some(shard) = &mut thread.shard else { return };
        let previous = held::swap(thread.sums);
        shard.run_turn(&mut self.events);
        self.reclaimed_while_busy |= outside::take_reclaims() > 0 && shard.has_work();
        (thread.slept_at, thread.sleep) = (Instant::now(), shard.sleep());
        let has_ended = shard.is_stopped();
        if has_ended {
            shard.end();
            thread.shard = None;
        }
        thread.sums = held::swap(previous);
        if has_ended {
            let is_last = self.threads.iter().all(|thread| thread.shard.is_none());
            if is_last {
                self.control.end();
            }
            self.shared.discard_mail(at, is_last);
            // Its thread would count them, and ends. Their connections end with it, or with shards that stop as well.
            _ = requester::take_lost();
        }
    }

    /// Sets the limits of the messages that stay loaded at the front of each queue while others are paged out.
    pub fn set_window(&mut self, messages: usize, bytes: usize) {
        for shard in self.threads.iter_mut().filter_map(|thread| thread.shard.as_mut()) {
            shard.queues.home.set_window(messages, bytes);
        }
    }

    /// Whether a shard with work to do has asked the allocator to give memory back.
    #[must_use]
    pub fn has_reclaimed_while_busy(&self) -> bool {
        self.reclaimed_while_busy
    }

    /// Wakes a shard, as a store does that has something for it.
    pub fn wake(&self, shard: usize) {
        self.shared.mailboxes[shard].wake();
    }

    /// Begins an ordered shutdown.
    pub fn drain(&self) {
        self.tell_all(|| Mail::Drain);
    }

    /// Stops at once.
    pub fn stop(&self) {
        self.tell_all(|| Mail::Stop);
    }

    /// Applies new settings.
    pub fn reload(&self, config: Config) {
        let config = Arc::new(config);
        self.tell_all(|| Mail::Reload(Arc::clone(&config)));
    }

    fn tell_all(&self, mut mail: impl FnMut() -> Mail) {
        for mailbox in self.shared.mailboxes.iter() {
            mailbox.post(&mut vec![mail()]);
        }
    }

    /// Takes the records of the log.
    #[must_use]
    pub fn log(&self) -> Vec<Record> {
        self.shared.log.drain(Duration::ZERO)
    }

    /// What the broker holds now.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::of(&self.shared, self.threads.iter().map(|thread| (thread.shard.as_ref(), thread.sums)))
    }

    /// How much of its limits the broker uses now; `None` once a shard has ended.
    #[must_use]
    pub fn usage(&self) -> Option<Usage> {
        let shards = self.threads.iter().filter_map(|thread| thread.shard.as_ref());
        (shards.clone().count() == self.threads.len()).then(|| Usage::of(&self.shared, shards))
    }

    /// Counts anew everything that the broker holds, and returns what is inconsistent with its own counts. Nothing once a
    /// shard has ended.
    pub fn audit(&mut self) -> Vec<String> {
        if self.threads.iter().any(|thread| thread.shard.is_none()) {
            return Vec::new();
        }
        let threads = self.threads.iter().filter_map(|thread| Some((thread.shard.as_ref()?, thread.sums)));
        snapshot::audit(&self.shared, threads, &mut self.before)
    }
}

impl SteppedBroker {
    /// The process ends here and now: its sockets are closed, and nothing else happens.
    pub fn kill(&mut self) {
        // What the shards hold is dropped on this thread, but was never added to its sum.
        let previous = held::swap(Sums::default());
        let shards = self.threads.len();
        self.threads.clear();
        self.log = None;
        (0..shards).for_each(|at| self.shared.discard_mail(at, at + 1 == shards));
        _ = requester::take_lost(); // their clients have lost their connections
        held::swap(previous);
    }
}

impl Drop for SteppedBroker {
    fn drop(&mut self) {
        self.kill();
    }
}
