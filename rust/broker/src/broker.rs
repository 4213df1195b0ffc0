//! The handle of a running broker: starts, queries and stops it. It can be used from any thread.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::config::Config;
use crate::connection::listener::Listener;
use crate::door::sync::{
    Condvar, Mutex, MutexGuard, Ordering, PoisonError, RecvTimeoutError, Sender, channel, thread,
};
use crate::door::{Instant, Interest, Poll, Waker, planted_in_loom};
use crate::ids::{self, ShardId};
use crate::log::{Level, LogQueue};
use crate::mail::mailbox::{Mail, Mailbox};
use crate::report::Query;
use crate::report::answer::Answer;
use crate::report::{ConnectionInfo, merge};
use crate::shard::{LISTENER, Shard, Shared, WAKER};
use crate::stats;
use crate::storage::{self, Control, Storage, StorageError};
use crate::store::Memory;

/// The reason why a broker did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The address cannot be bound.
    #[error("cannot listen on host '{host}', port {port}: {error}")]
    Bind {
        /// The setting `host`.
        host: String,
        /// The setting `port`.
        port: u16,
        /// The operating system's error.
        error: io::Error,
    },
    /// Threads or polls cannot be created.
    #[error("cannot start {writers} writers: {error}")]
    Threads {
        /// The setting `writers`.
        writers: usize,
        /// The operating system's error.
        error: io::Error,
    },
    /// The directory of the store cannot be used.
    #[error("{0}")]
    Storage(#[from] StorageError),
}

/// The reason why a diagnostics query has no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DiagError {
    /// The query is unknown; the text lists all queries.
    #[error("{0}")]
    Unknown(String),
    /// The broker has ended, or a shard did not answer in time.
    #[error("the broker has ended, or did not answer within {0:?}")]
    Silent(Duration),
}

/// The maximum time until an answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// What runs, and the failure of the first part that failed.
#[derive(Debug)]
struct Running {
    shards: usize,
    has_storage: bool,
    failure: Option<String>,
}

#[derive(Debug)]
struct Lifetime {
    running: Mutex<Running>,
    changed: Condvar,
    /// Tells the storage that the last shard has ended.
    storage: Arc<Control>,
}

impl Lifetime {
    fn lock(&self) -> MutexGuard<'_, Running> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A running broker. Dropping it stops it at once.
#[derive(Debug)]
pub struct Broker {
    shared: Arc<Shared>,
    lifetime: Arc<Lifetime>,
    address: SocketAddr,
}

impl Broker {
    /// Binds the port and starts the shards. An idle shard calls `reclaim` after it has freed much memory: the function
    /// gives free memory back to the system, which some allocators do only on the thread that allocated it. `|| ()`
    /// does nothing.
    ///
    /// # Errors
    /// See [`StartError`]; no thread is left running.
    pub fn start(config: Config, log: Arc<LogQueue>, reclaim: fn()) -> Result<Broker, StartError> {
        let (host, port) = (config.host.clone(), config.port);
        let bind_error = |error| StartError::Bind { host: host.clone(), port, error };
        let mut listener = Listener::bind(&host, port).map_err(bind_error)?;
        let address = listener.address().map_err(bind_error)?;
        let control = Arc::new(Control::default());
        let storage = Storage::open(&config, address, &control)?;
        let writers = config.writers;
        let thread_error = |error| StartError::Threads { writers, error };
        let polls =
            (0..writers).map(|_| Poll::new()).collect::<io::Result<Vec<_>>>().map_err(thread_error)?;
        let mailboxes = polls
            .iter()
            .map(|poll| Waker::new(poll.registry(), WAKER).map(Mailbox::new))
            .collect::<io::Result<Vec<_>>>()
            .map_err(thread_error)?;
        if let Some(first) = polls.first() {
            first
                .registry()
                .register(listener.socket(), LISTENER, Interest::READABLE)
                .map_err(thread_error)?;
        }
        let shared = Arc::new(Shared::new(mailboxes, log, reclaim));
        let running = Running { shards: writers, has_storage: false, failure: None };
        let running = Mutex::new(running);
        let lifetime = Arc::new(Lifetime { running, changed: Condvar::new(), storage: control });
        let broker = Broker { shared, lifetime, address };
        broker.spawn(config, polls, listener, matches!(storage, Storage::Memory)).map_err(thread_error)?;
        if let Storage::Disk(files) = storage {
            broker.lifetime.lock().has_storage = true;
            let (shared, lifetime) = (Arc::clone(&broker.shared), Arc::clone(&broker.lifetime));
            let body = move || supervise_storage(files, &shared, &lifetime);
            if let Err(error) = thread::Builder::new().name("stompica-log".to_owned()).spawn(body) {
                broker.lifetime.lock().has_storage = false;
                return Err(thread_error(error));
            }
        }
        Ok(broker)
    }

    fn spawn(&self, config: Config, polls: Vec<Poll>, listener: Listener, is_ready: bool) -> io::Result<()> {
        let epoch = ids::epoch(config.ids);
        let config = Arc::new(config);
        let mut listener = Some(listener);
        let writers = polls.len();
        for (at, poll) in polls.into_iter().enumerate() {
            let (shared, config, listener) = (Arc::clone(&self.shared), Arc::clone(&config), listener.take());
            let store = Box::new(Memory);
            let mut shard = Shard::new(ShardId(at as u8), shared, config, poll, listener, &epoch, store);
            if !is_ready {
                shard.await_store();
            }
            let (shared, lifetime) = (Arc::clone(&self.shared), Arc::clone(&self.lifetime));
            let body = move || supervise(shard, at, &shared, &lifetime);
            if let Err(error) = thread::Builder::new().name(format!("stompica-{at}")).spawn(body) {
                self.lifetime.lock().shards -= writers - at; // the shards that were not started
                return Err(error); // dropping the broker stops the started ones
            }
        }
        Ok(())
    }

    /// The address it listens on, with the actual port if the setting `port` is 0.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Begins an ordered shutdown, which takes at most the setting `drain`. Returns at once.
    pub fn drain(&self) {
        self.tell_all(|| Mail::Drain);
    }

    /// Stops the broker at once. Returns without waiting.
    pub fn stop(&self) {
        self.tell_all(|| Mail::Stop);
    }

    /// Waits for the end. Returns `None` if the broker still runs after `timeout`, and an error if a shard failed.
    #[must_use]
    pub fn wait(&self, timeout: Option<Duration>) -> Option<Result<(), String>> {
        let deadline = timeout.map(|timeout| Instant::now() + timeout);
        let mut running = self.lifetime.lock();
        while running.shards > 0 || running.has_storage {
            let changed = &self.lifetime.changed;
            running = match deadline {
                None => changed.wait(running).unwrap_or_else(PoisonError::into_inner),
                Some(deadline) => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return None;
                    }
                    changed.wait_timeout(running, left).unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
        Some(running.failure.clone().map_or(Ok(()), Err))
    }

    /// Waits until everything that was sent to the broker has been processed: mailboxes are empty and outboxes are
    /// flushed in two consecutive checks without activity in between. Returns false if this takes longer than `timeout`
    /// or the broker ends.
    #[must_use]
    pub fn settle(&self, timeout: Duration) -> bool {
        let deadline = Instant::now() + timeout;
        let mut before = None;
        while Instant::now() < deadline {
            let Some(states) = self.ask(deadline, Mail::Settle) else {
                // Some shard did not answer, so the broker is ending: waiting for its end keeps a caller from asking in
                // a busy loop.
                _ = self.wait(Some(deadline.saturating_duration_since(Instant::now())));
                return false;
            };
            let quiet = states.iter().all(|(settled, _)| *settled);
            let activity: u64 = states.iter().map(|(_, activity)| activity).sum();
            if quiet && before == Some(activity) {
                return true;
            }
            before = quiet.then_some(activity);
            if !quiet {
                thread::sleep(Duration::from_micros(200));
            }
        }
        false
    }

    /// All connections.
    #[must_use]
    pub fn connections(&self) -> Vec<ConnectionInfo> {
        let deadline = Instant::now() + PATIENCE;
        let mut all: Vec<ConnectionInfo> =
            self.ask(deadline, Mail::Connections).unwrap_or_default().into_iter().flatten().collect();
        all.sort_unstable_by_key(|info| info.id);
        all
    }

    /// Counters over all shards, as of their last turns, the bytes held against `memory_limit`, and the figures of the store.
    #[must_use]
    pub fn stats(&self) -> Vec<(&'static str, u64)> {
        let mut all = stats::sum(&self.shared.published);
        let memory = self.shared.totals.memory.load(Ordering::Relaxed);
        all.push(("memory_bytes", u64::try_from(memory).unwrap_or(0)));
        let store = self.lifetime.storage.figures();
        all.extend([
            ("store_messages", store.messages),
            ("store_disk_bytes", store.disk_bytes),
            ("store_reserve_bytes", store.reserve_bytes),
            ("store_needed_bytes", store.needed_bytes),
            ("store_unwritten_bytes", store.unwritten_bytes),
            ("store_written_bytes", store.written_bytes),
            ("store_groups", store.groups),
            ("store_syncs", store.syncs),
        ]);
        all
    }

    /// Answers a diagnostics query in JSON: an object, a number or a list (docs/behaviour.md, section 9). It takes as
    /// long as the longest turn of any shard.
    ///
    /// # Errors
    /// See [`DiagError`].
    pub fn diag(&self, query: &str) -> Result<String, DiagError> {
        let query = Query::parse(query.as_bytes()).map_err(DiagError::Unknown)?;
        let reports = self.ask(Instant::now() + PATIENCE, |reply| Mail::Diagnose(query, reply));
        let all = reports.and_then(merge::merge).ok_or(DiagError::Silent(PATIENCE))?;
        Ok(Answer::new(query, all).json())
    }

    /// Sets the broker's clock ahead of the system's clocks by some time more, at most a thousand years in all. Everything
    /// that would happen in this time happens now: messages expire, deadlines pass, `expires` is compared with the later
    /// time. Waits of this handle and times of log records follow the system's clocks.
    pub fn advance_clock(&self, time: Duration) {
        self.shared.advance_clock(time);
    }

    /// Passes new settings to the shards; settings that need a restart are ignored.
    pub fn reload(&self, config: Config) {
        self.shared.log.set_level(config.log_level);
        let config = Arc::new(config);
        self.tell_all(|| Mail::Reload(Arc::clone(&config)));
    }

    /// Lets a shard panic.
    #[cfg(loom)]
    pub fn fail(&self, shard: usize) {
        self.shared.mailboxes[shard].post(&mut vec![Mail::Panic]);
    }

    /// Whether a shard has ended, and the others will.
    fn is_ending(&self) -> bool {
        self.lifetime.lock().shards < self.shared.mailboxes.len()
    }

    fn tell_all(&self, mut mail: impl FnMut() -> Mail) {
        tell_all(&self.shared, &mut mail);
    }

    /// Asks every shard; returns `None` if one of them does not answer in time.
    fn ask<T>(&self, deadline: Instant, question: impl Fn(Sender<T>) -> Mail) -> Option<Vec<T>> {
        if self.is_ending() {
            return None; // some shards would not answer
        }
        let (reply, answers) = channel();
        self.tell_all(|| question(reply.clone()));
        drop(reply);
        if self.is_ending() && !planted_in_loom!("end-not-checked-again") {
            return None; // a shard may have emptied its mailbox for the last time before this question
        }
        let mut all = Vec::new();
        while all.len() < self.shared.mailboxes.len() {
            match answers.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(answer) => all.push(answer),
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return None,
            }
        }
        Some(all)
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        self.stop();
        // A failed shard stops the others, so this wait ends.
        _ = self.wait(None);
    }
}

fn tell_all(shared: &Shared, mail: &mut impl FnMut() -> Mail) {
    for mailbox in shared.mailboxes.iter() {
        mailbox.post(&mut vec![mail()]);
    }
}

/// Runs a shard. A panic is a bug and stops the whole broker, since messages for a dead shard would be lost silently.
fn supervise(shard: Shard, at: usize, shared: &Shared, lifetime: &Lifetime) {
    let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| shard.run()));
    let failure = match ended {
        Ok(Ok(())) => None,
        Ok(Err(error)) => Some(format!("shard {at} failed: {error}")),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
            Some(format!("shard {at} panicked (a bug in stompica): {text}"))
        }
    };
    if let Some(failure) = &failure {
        shared.log.push(Level::Error, failure.clone(), Vec::new());
        if !planted_in_loom!("panic-not-told") {
            tell_all(shared, &mut || Mail::Stop);
        }
    }
    let mut running = lifetime.lock();
    running.shards -= 1;
    let lost = shared.totals.lost.load(Ordering::Relaxed);
    if running.shards == 0 && lost > 0 {
        let text = format!("{lost} messages of queues end with the broker: they are not stored");
        shared.log.push(Level::Info, text, Vec::new());
    }
    running.failure = running.failure.take().or(failure);
    let is_last = running.shards == 0;
    lifetime.changed.notify_all();
    drop(running);
    if is_last {
        lifetime.storage.end();
    }
    // Queries that it has not read get no answer: the handle learns that by the end of their channels. Those that come
    // from now on find that a shard has ended.
    if !planted_in_loom!("queries-of-ended-kept") {
        shared.discard_mail(at, is_last);
    }
}

/// Runs the thread of the store. A store that cannot be opened ends the broker; one that fails later does not: what it has can
/// still be read, and the rest goes on.
fn supervise_storage(files: storage::Files, shared: &Arc<Shared>, lifetime: &Lifetime) {
    let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| storage::run(files, shared)));
    let failure = match ended {
        Ok(Ok(())) => None,
        Ok(Err(failure)) => Some(failure),
        Err(_) => Some("the thread of the store panicked (a bug in stompica)".to_owned()),
    };
    if let Some(failure) = &failure {
        shared.log.push(Level::Error, failure.clone(), Vec::new());
        tell_all(shared, &mut || Mail::Stop);
    }
    let mut running = lifetime.lock();
    running.has_storage = false;
    running.failure = running.failure.take().or(failure);
    lifetime.changed.notify_all();
}

#[cfg(test)]
#[path = "broker_tests.rs"]
mod tests;
