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

/// The number of running shards, and the failure of the first one that failed.
#[derive(Debug)]
struct Running {
    shards: usize,
    failure: Option<String>,
}

#[derive(Debug)]
struct Lifetime {
    running: Mutex<Running>,
    changed: Condvar,
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
        let running = Running { shards: writers, failure: None };
        let lifetime = Arc::new(Lifetime { running: Mutex::new(running), changed: Condvar::new() });
        let broker = Broker { shared, lifetime, address };
        broker.spawn(config, polls, listener).map_err(thread_error)?;
        Ok(broker)
    }

    fn spawn(&self, config: Config, polls: Vec<Poll>, listener: Listener) -> io::Result<()> {
        let epoch = ids::epoch(config.ids);
        let config = Arc::new(config);
        let mut listener = Some(listener);
        let writers = polls.len();
        for (at, poll) in polls.into_iter().enumerate() {
            let (shared, config, listener) = (Arc::clone(&self.shared), Arc::clone(&config), listener.take());
            let store = Box::new(Memory);
            let shard = Shard::new(ShardId(at as u8), shared, config, poll, listener, &epoch, store);
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
        while running.shards > 0 {
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

    /// Counters over all shards, as of their last turns, and the bytes held against `memory_limit`.
    #[must_use]
    pub fn stats(&self) -> Vec<(&'static str, u64)> {
        let mut all = stats::sum(&self.shared.published);
        let memory = self.shared.totals.memory.load(Ordering::Relaxed);
        all.push(("memory_bytes", u64::try_from(memory).unwrap_or(0)));
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
        let text = format!("{lost} messages of queues end with the broker (store=memory)");
        shared.log.push(Level::Info, text, Vec::new());
    }
    running.failure = running.failure.take().or(failure);
    let is_last = running.shards == 0;
    lifetime.changed.notify_all();
    drop(running);
    // Queries that it has not read get no answer: the handle learns that by the end of their channels. Those that come
    // from now on find that a shard has ended.
    if !planted_in_loom!("queries-of-ended-kept") {
        shared.discard_mail(at, is_last);
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpStream;

    use super::*;

    #[test]
    fn a_panic_in_one_shard_ends_the_broker_and_is_reported() {
        let config = Config { port: 0, writers: 3, ..Config::default() };
        let log = LogQueue::new(100, Level::Info);
        let broker = Broker::start(config, Arc::clone(&log), || ()).expect("a free port");
        broker.shared.mailboxes[1].post(&mut vec![Mail::Panic]);
        let ended = broker.wait(Some(Duration::from_secs(10))).expect("all shards end");
        let failure = ended.expect_err("it did not end in order");
        assert_eq!(failure, "shard 1 panicked (a bug in stompica): a test requested this panic");
        assert!(log.drain(Duration::ZERO).iter().any(|record| record.text == failure));
        assert!(broker.connections().is_empty() && !broker.settle(Duration::from_secs(1)));
    }

    #[test]
    fn every_query_is_answered_in_json_until_the_broker_ends() {
        let config = Config { port: 0, writers: 3, ..Config::default() };
        let broker = Broker::start(config, LogQueue::new(100, Level::Info), || ()).expect("a free port");
        for query in Query::ALL {
            let text = broker.diag(query.name()).expect("an answer");
            serde_json::from_str::<serde_json::Value>(&text).expect("JSON");
        }
        let shards = broker.diag("shards").expect("an answer");
        assert_eq!(shards.matches("\"shard\":").count(), 3);
        assert!(
            matches!(broker.diag("sessions"), Err(DiagError::Unknown(text)) if text.contains("'sessions'"))
        );
        broker.stop();
        assert_eq!(broker.wait(Some(Duration::from_secs(10))), Some(Ok(())));
        assert_eq!(broker.diag("session"), Err(DiagError::Silent(PATIENCE)));
    }

    /// A WebSocket frame of a client, with a mask of zeros.
    fn masked(opcode: u8, payload: &[u8]) -> Vec<u8> {
        let len = u8::try_from(payload.len()).expect("short");
        [&[0x80 | opcode, 0x80 | len, 0, 0, 0, 0], payload].concat()
    }

    fn read_until(stream: &mut TcpStream, end: &[u8]) -> Vec<u8> {
        let mut read = Vec::new();
        let mut byte = [0];
        while !read.ends_with(end) && stream.read(&mut byte).expect("bytes in time, and no reset") == 1 {
            read.push(byte[0]);
        }
        read
    }

    /// A WebSocket session whose client promised a heart-beat every 10 s.
    fn open_websocket(broker: &Broker) -> TcpStream {
        let mut stream = TcpStream::connect(broker.address()).expect("a listening broker");
        stream.set_read_timeout(Some(Duration::from_secs(10))).expect("a socket");
        let request = "GET /ws HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
                       Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
        stream.write_all(request.as_bytes()).expect("a broker that reads");
        read_until(&mut stream, b"\r\n\r\n");
        let connect = b"CONNECT\naccept-version:1.2\nheart-beat:10000,0\n\n\0";
        stream.write_all(&masked(1, connect)).expect("a broker that reads");
        assert!(read_until(&mut stream, b"\0").windows(9).any(|at| at == b"CONNECTED"));
        stream
    }

    /// Sends frames and a ping, and returns what is read up to the pong or the end.
    fn exchange(stream: &mut TcpStream, frames: &[u8]) -> Vec<u8> {
        stream.write_all(&[frames, &masked(9, b"?")].concat()).expect("a broker that reads");
        read_until(stream, b"\x8a\x01?")
    }

    #[test]
    fn a_clock_that_is_advanced_lets_messages_expire_and_wakes_sleeping_shards() {
        let config = Config { port: 0, writers: 2, ..Config::default() };
        let broker = Broker::start(config, LogQueue::new(100, Level::Info), || ()).expect("a free port");
        let mut stream = TcpStream::connect(broker.address()).expect("a listening broker");
        stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a socket");
        let mut ask = |frames: &str| {
            stream.write_all(frames.as_bytes()).expect("a broker that reads");
            String::from_utf8_lossy(&read_until(&mut stream, b"receipt-id:r\n\n\0")).into_owned()
        };
        let hour_ms = 3_600_000;
        let in_an_hour = crate::door::wall_clock_ms() + hour_ms;
        ask(&format!(
            "CONNECT\naccept-version:1.2\nhost:h\n\n\0\
             SEND\ndestination:/queue/a\nttl:{hour_ms}\n\nttl\0\
             SEND\ndestination:/queue/a\nexpires:{in_an_hour}\n\nexpires\0\
             SEND\ndestination:/queue/a\nreceipt:r\n\nstays\0"
        ));
        let expired = |broker: &Broker| {
            broker.stats().iter().find(|(name, _)| *name == "queue_expired").map_or(0, |(_, count)| *count)
        };
        assert_eq!(expired(&broker), 0);
        broker.advance_clock(Duration::from_secs(3601));
        // No client does anything: the shards have to wake up by themselves.
        let deadline = Instant::now() + Duration::from_secs(20);
        while expired(&broker) < 2 && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(expired(&broker), 2);
        let read = ask(&format!(
            "SEND\ndestination:/queue/a\nexpires:{in_an_hour}\n\nlate\0\
             SUBSCRIBE\ndestination:/queue/a\nid:1\nreceipt:r\n\n\0"
        ));
        let rest = ask("SEND\ndestination:/queue/a\nreceipt:r\n\nlast\0");
        let read = read + &rest + &ask("UNSUBSCRIBE\nid:1\nreceipt:r\n\n\0");
        assert!(read.contains("stays\0") && read.contains("last\0"), "{read}");
        assert!(!read.contains("late\0") && !read.contains("ttl\0"), "{read}");
    }

    #[test]
    fn a_websocket_client_that_only_answers_pings_is_closed_after_ten_intervals() {
        let config = Config { port: 0, writers: 1, ..Config::default() };
        let broker = Broker::start(config, LogQueue::new(100, Level::Info), || ()).expect("a free port");
        let (mut dead, mut living) = (open_websocket(&broker), open_websocket(&broker));
        for _ in 0..6 {
            broker.advance_clock(Duration::from_secs(15));
            assert_eq!(exchange(&mut living, &masked(1, b"\n")), b"\x8a\x01?");
            assert_eq!(exchange(&mut dead, &masked(10, b"")), b"\x8a\x01?", "up to 90 s");
        }
        broker.advance_clock(Duration::from_secs(15));
        assert_eq!(exchange(&mut living, &masked(1, b"\n")), b"\x8a\x01?");
        dead.write_all(&masked(10, b"")).expect("a broker that reads");
        let end = String::from_utf8_lossy(&read_until(&mut dead, b"\0\x88")).into_owned();
        assert!(end.contains("E-HEART-BEAT-TIMEOUT") && end.contains("no STOMP data in 105"), "{end}");
        assert_eq!(exchange(&mut living, &masked(1, b"\n")), b"\x8a\x01?");
    }
}
