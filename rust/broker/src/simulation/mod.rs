//! A simulated broker for tests and fuzz targets: its shards run on one thread, one turn at a time, when told to.
//!
//! ```text
//! client's end of a socket pair ◄──► shards 0, 1, …: the caller chooses whose turn it is
//!                                    clock: the system's, plus the time that the caller skips
//! ```
//! Only the poll's order of ready sockets is left to chance, so an input that causes a failure causes it again.
//! [`scenario`] interprets bytes as frames of several clients and checks the broker's guarantees; [`router_scenario`]
//! interprets them as changes of one router, [`recovery_scenario`] as the files of a log.

pub mod client;
pub mod recovery_scenario;
pub mod router_scenario;
pub mod scenario;

#[cfg(test)]
mod ack_tests;
#[cfg(test)]
mod ack_timeout_tests;
#[cfg(test)]
mod audit_tests;
#[cfg(test)]
mod bounds_tests;
#[cfg(test)]
mod copies_memory_tests;
#[cfg(test)]
mod copies_tests;
#[cfg(test)]
mod credit_tests;
#[cfg(test)]
mod diag_tests;
#[cfg(test)]
mod disconnect_tests;
#[cfg(test)]
mod ending_tests;
#[cfg(test)]
mod fairness_tests;
#[cfg(test)]
mod fan_out_tests;
#[cfg(test)]
mod forgetting_tests;
#[cfg(test)]
mod held_frames_tests;
#[cfg(test)]
mod initial_replay_tests;
#[cfg(test)]
mod interleaving_tests;
#[cfg(test)]
mod large_fan_out_tests;
#[cfg(test)]
mod largest_tests;
#[cfg(test)]
mod late_ack_tests;
#[cfg(test)]
mod memory_tests;
#[cfg(test)]
mod near_limit;
#[cfg(test)]
mod outbox_tests;
#[cfg(test)]
mod own_policy_tests;
#[cfg(test)]
mod paging_tests;
#[cfg(test)]
mod progress_tests;
#[cfg(test)]
mod revoked_id_tests;
#[cfg(test)]
mod session_tests;
#[cfg(test)]
mod shortage_tests;
#[cfg(test)]
mod socket_tests;
#[cfg(test)]
mod store_tests;
#[cfg(test)]
mod support;
#[cfg(test)]
mod transaction_tests;
#[cfg(test)]
mod turn_tests;
#[cfg(test)]
mod worker_topic_tests;

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use mio::{Events, Poll, Waker};

use crate::config::Config;
use crate::door::Instant;
use crate::held::{self, Sums};
use crate::ids::ShardId;
use crate::log::{Level, LogQueue};
use crate::mail::mailbox::{Accepted, Mail, Mailbox};
use crate::shard::{Shard, Shared, WAKER};
pub use crate::snapshot::Snapshot;
use crate::store::Memory;

/// Kernel buffer for one end of a connection: small, so that slow readers are noticed soon.
const SOCKET_BYTES: usize = 8 << 10;
/// Rounds after which a broker that is not idle counts as spinning.
const ROUNDS_MAX: usize = 20_000;

/// A shard and the thread-local byte count that it would have on its own thread: see [`held`].
#[derive(Debug)]
struct SimulatedThread {
    shard: Shard,
    sums: Sums,
}

impl SimulatedThread {
    /// Whether the shard has nothing to do, on its own thread.
    fn rests(&self) -> bool {
        let previous = held::swap(self.sums);
        let has_work = self.shard.has_work();
        held::swap(previous);
        !has_work
    }
}

/// A broker whose turns are run by the caller.
#[derive(Debug)]
pub struct SimulatedBroker {
    shared: Arc<Shared>,
    threads: Vec<SimulatedThread>,
    events: Events,
    accepted: u64,
}

impl SimulatedBroker {
    /// A broker with `writers` shards and without a listener.
    ///
    /// # Errors
    /// A system error, if a poll cannot be created for each shard.
    pub fn new(config: Config) -> io::Result<Self> {
        ignore_broken_pipes();
        let polls = (0..config.writers).map(|_| Poll::new()).collect::<io::Result<Vec<_>>>()?;
        let mailboxes = polls.iter().map(|poll| Waker::new(poll.registry(), WAKER).map(Mailbox::new));
        let log = LogQueue::new(16, Level::Error);
        let shared = Arc::new(Shared::new(mailboxes.collect::<io::Result<Vec<_>>>()?, log, || ()));
        let config = Arc::new(config);
        let thread = |(at, poll)| {
            let (shared, config) = (Arc::clone(&shared), Arc::clone(&config));
            SimulatedThread {
                shard: Shard::new(ShardId(at as u8), shared, config, poll, None, "0", Box::new(Memory)),
                sums: Sums::default(),
            }
        };
        let threads = polls.into_iter().enumerate().map(thread).collect();
        Ok(SimulatedBroker { shared, threads, events: Events::with_capacity(64), accepted: 0 })
    }

    /// The number of shards.
    #[must_use]
    pub fn shards(&self) -> usize {
        self.threads.len()
    }

    /// Connects to a shard; returns the client's end, which is non-blocking.
    ///
    /// # Errors
    /// A system error, if a socket pair cannot be created.
    pub fn connect(&mut self, shard: usize) -> io::Result<UnixStream> {
        let (client, server) = UnixStream::pair()?;
        for end in [&client, &server] {
            end.set_nonblocking(true)?;
            socket2::SockRef::from(end).set_send_buffer_size(SOCKET_BYTES)?;
        }
        self.accepted += 1;
        self.shared.totals.connections.fetch_add(1, Ordering::Relaxed);
        let stream = mio::net::TcpStream::from_std(TcpStream::from(OwnedFd::from(server)));
        let peer = SocketAddr::from(([127, 0, 0, 1], 1));
        let accepted =
            Accepted { stream, peer, id: self.accepted, refused: false, accepted_ms: self.clock_ms() };
        self.shared.mailboxes[shard].post(&mut vec![Mail::Accepted(accepted)]);
        Ok(client)
    }

    /// Runs one turn of one shard.
    pub fn turn(&mut self, shard: usize) {
        let thread = &mut self.threads[shard];
        let previous = held::swap(thread.sums);
        thread.shard.run_turn(&mut self.events);
        thread.sums = held::swap(previous);
    }

    /// Runs one turn of each shard.
    pub fn round(&mut self) {
        (0..self.shards()).for_each(|shard| self.turn(shard));
    }

    /// Runs turns until none changes anything.
    ///
    /// # Panics
    /// If the broker does not become idle: it would keep a processor busy forever.
    pub fn run_until_idle(&mut self) {
        let mut quiet = 0;
        for _ in 0..ROUNDS_MAX {
            let before = self.activity();
            self.round();
            let rests = self.threads.iter().all(SimulatedThread::rests);
            let mail = self.shared.mailboxes.iter().any(|mailbox| !mailbox.is_empty());
            quiet = if rests && !mail && self.activity() == before { quiet + 1 } else { 0 };
            if quiet == 2 {
                return;
            }
        }
        panic!("the broker does not become idle");
    }

    fn activity(&self) -> u64 {
        self.threads.iter().map(|thread| thread.shard.activity()).sum()
    }

    fn clock_ms(&self) -> u64 {
        let clock = &self.shared.clock;
        clock.ms_at(Instant::now(), clock.ahead_ms())
    }

    /// Advances the clock.
    pub fn advance_ms(&mut self, ms: u64) {
        self.shared.clock.advance(Duration::from_millis(ms));
    }

    /// The visits of each shard since the start: see [`crate::turn::budget::Budget::visit`].
    #[must_use]
    pub fn visits(&self) -> Vec<usize> {
        self.threads.iter().map(|thread| thread.shard.visits()).collect()
    }

    /// What is inconsistent in the broker.
    #[cfg(test)]
    fn audit(&self) -> Vec<String> {
        let threads = self.threads.iter().map(|thread| (&thread.shard, thread.sums));
        crate::snapshot::audit(&self.shared, threads, &mut crate::audit::Before::default())
    }

    /// The current contents of the broker.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::of(&self.shared, self.threads.iter().map(|thread| (Some(&thread.shard), thread.sums)))
    }
}

/// A client may close its end while it is written to, which must not end the process. Rust programs ignore SIGPIPE
/// before `main`, fuzz targets do not.
fn ignore_broken_pipes() {
    // SAFETY: SIG_IGN is a disposition that any signal but SIGKILL and SIGSTOP may have; no handler is installed.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
}

impl Drop for SimulatedBroker {
    fn drop(&mut self) {
        // What the shards hold is dropped on this thread, but was never added to its sum.
        let previous = held::swap(Sums::default());
        self.threads.clear();
        held::swap(previous);
    }
}
