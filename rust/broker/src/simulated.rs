//! The broker in the simulated build (`--cfg simulated`): its shards run on the thread of the driver, one turn at a
//! time, in an order that the driver chooses. The outside is [`outside`]. See `rust/sim`.

use std::sync::Arc;
use std::time::Duration;

pub use crate::door::simulated as outside;

use crate::config::Config;
use crate::connection::listener::Listener;
use crate::door::{Events, Interest, Poll, Waker};
use crate::ids::{self, ShardId};
use crate::log::{LogQueue, Record};
use crate::mail::mailbox::{Mail, Mailbox};
use crate::message;
use crate::requester;
use crate::shard::{LISTENER, Shard, Shared, WAKER};
use crate::snapshot::Snapshot;
pub use crate::store::{Memory, Store};

/// The maximum number of events that one turn of a shard gets.
const EVENTS_MAX: usize = 1024;

/// A shard and the byte count that its thread would have: see [`message::held_bytes`].
#[derive(Debug)]
struct Thread {
    /// `None` once it has ended.
    shard: Option<Shard>,
    message_bytes: i64,
}

/// A broker whose turns are run by the caller.
#[derive(Debug)]
pub struct SteppedBroker {
    shared: Arc<Shared>,
    threads: Vec<Thread>,
    events: Events,
}

impl SteppedBroker {
    /// Starts a broker in the current [`outside`], with one store for each shard.
    ///
    /// # Panics
    /// Never: nothing can fail in a simulated outside before the driver makes it fail.
    #[must_use]
    pub fn start(config: Config, log: Arc<LogQueue>, stores: Vec<Box<dyn Store>>) -> Self {
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
        let shared = Arc::new(Shared::new(mailboxes.collect(), log, || ()));
        let (epoch, config) = (ids::epoch(config.ids), Arc::new(config));
        let new = |(at, (poll, store)): (usize, (Poll, Box<dyn Store>))| {
            let (shared, config, id) = (Arc::clone(&shared), Arc::clone(&config), ShardId(at as u8));
            let mut shard = Shard::new(id, shared, config, poll, listener.take(), &epoch, store);
            shard.begin();
            Thread { shard: Some(shard), message_bytes: 0 }
        };
        let threads = polls.into_iter().zip(stores).enumerate().map(new).collect();
        SteppedBroker { shared, threads, events: Events::with_capacity(EVENTS_MAX) }
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

    /// How long a shard would sleep now; `None`: until an event comes. Zero if it has ended nothing is to be done.
    #[must_use]
    pub fn sleep(&self, shard: usize) -> Option<Duration> {
        let shard = self.threads[shard].shard.as_ref()?;
        if shard.has_events() { Some(Duration::ZERO) } else { shard.sleep() }
    }

    /// Runs one turn of a shard, unless it has ended.
    pub fn turn(&mut self, shard: usize) {
        let thread = &mut self.threads[shard];
        let Some(shard) = &mut thread.shard else { return };
        let previous_bytes = message::swap_held_bytes(thread.message_bytes);
        shard.run_turn(&mut self.events);
        if shard.is_stopped() {
            shard.end();
            thread.shard = None;
        }
        thread.message_bytes = message::swap_held_bytes(previous_bytes);
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
        Snapshot::of(
            &self.shared,
            self.threads.iter().map(|thread| (thread.shard.as_ref(), thread.message_bytes)),
        )
    }
}

impl Drop for SteppedBroker {
    fn drop(&mut self) {
        // The shards' messages are dropped on this thread, but were never added to its count.
        let previous_bytes = message::swap_held_bytes(0);
        self.threads.clear();
        message::swap_held_bytes(previous_bytes);
    }
}
