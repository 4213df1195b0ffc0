//! All connections of a repetition, on one thread and one poll: connect, take turns, leave.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::time::{Duration, Instant};

use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};

use crate::arrivals::Arrivals;
use crate::conn::{Conn, Progress, State};
use crate::fault::Fault;
use crate::inbound::HEADROOM;
use crate::latency::{Latency, WindowLatency};
use crate::publisher::Publisher;
use crate::receipts::Unconfirmed;
use crate::receiver::Subscription;
use crate::series::{Interval, Series};
use crate::target::Target;
use crate::timer::Timer;
use crate::topology::Topology;
use crate::workload::Transport;

/// Octets read at once.
const READ_MAX: usize = 256 * 1024;
/// Most connections that are opening at the same time.
const OPENING_MAX: usize = 128;
/// A repetition without progress for this long fails.
pub const STALL: Duration = Duration::from_secs(20);

const TIMER: Token = Token(usize::MAX);

/// All connections of a repetition.
pub struct Connections {
    poll: Poll,
    events: Events,
    /// Connections, in the order of the topology's clients.
    pub conns: Vec<Conn>,
    /// Publishers, in the order of the topology's feeds.
    pub publishers: Vec<Publisher>,
    /// For each publisher, the sequence number due on each subscription; of a work queue, how many messages arrived; where
    /// each has a receipt, how many RECEIPTs.
    pub progress: Vec<Vec<u64>>,
    /// Which messages of a work queue arrived.
    pub arrivals: Option<Rc<RefCell<Arrivals>>>,
    /// Messages that have no RECEIPT yet, for each publisher, if each message has a receipt.
    pub unconfirmed: Vec<Unconfirmed>,
    /// Messages that arrived and were checked, over all subscriptions; or RECEIPTs, if each message has one.
    pub delivered: u64,
    /// Records latencies at a fixed rate.
    pub latency: Option<Latency>,
    /// Records latencies under a window.
    pub window_latency: Option<WindowLatency>,
    /// Records throughput over time, if requested.
    pub series: Option<Series>,
    timer: Option<Timer>,
    buffer: Vec<u8>,
    ready: Vec<usize>,
    is_ready: Vec<bool>,
}

impl Connections {
    /// Opens all connections and waits for every RECEIPT.
    pub fn open(topology: &Topology, target: &Target, transport: Transport) -> Result<Connections, Fault> {
        let relay = target.is_relay;
        let login = Rc::new(target.login.clone());
        let mut connections = Connections {
            poll: Poll::new()?,
            events: Events::with_capacity(1024),
            conns: Vec::new(),
            publishers: Vec::new(),
            progress: topology.subscription_counts().into_iter().map(|count| vec![0; count]).collect(),
            arrivals: topology.arrivals.clone(),
            unconfirmed: topology.feeds.iter().map(|_| Unconfirmed::default()).collect(),
            delivered: 0,
            latency: None,
            window_latency: None,
            series: None,
            timer: None,
            buffer: vec![0; HEADROOM + READ_MAX],
            ready: Vec::new(),
            is_ready: vec![false; topology.clients.len()],
        };
        let mut slots = vec![0; topology.feeds.len()];
        let mut stall = StallTimer::new();
        let mut settled = 0;
        while settled < topology.clients.len() {
            while connections.conns.len() < topology.clients.len()
                && connections.conns.len() - settled < OPENING_MAX
            {
                let client = &topology.clients[connections.conns.len()];
                let receiver = topology.receiver(client, &mut slots, transport, relay);
                let mut conn = Conn::open(
                    target.address,
                    Rc::clone(&login),
                    transport,
                    &client.subscriptions,
                    &topology.headers,
                    receiver,
                )?;
                let token = Token(connections.conns.len());
                let interest = Interest::READABLE | Interest::WRITABLE;
                connections.poll.registry().register(conn.stream(), token, interest)?;
                connections.conns.push(conn);
            }
            connections.turn(Some(Duration::from_secs(1)))?;
            let before = settled;
            while connections.conns.get(settled).is_some_and(|conn| conn.state == State::Ready) {
                settled += 1;
            }
            stall.moved(settled > before, || {
                format!("{settled} of {} connections ready", topology.clients.len())
            })?;
        }
        for (client, conn) in topology.clients.iter().zip(&mut connections.conns) {
            conn.never_reads = client.never_reads;
        }
        connections.add_publishers(topology, transport);
        Ok(connections)
    }

    fn add_publishers(&mut self, topology: &Topology, transport: Transport) {
        for (number, feed) in topology.feeds.iter().enumerate() {
            let Some(client) = topology.clients.iter().position(|client| client.publisher == Some(number))
            else {
                continue;
            };
            self.publishers.push(Publisher::new(
                client,
                feed.clone(),
                topology.sending,
                transport == Transport::Ws,
            ));
        }
        // A subscription that is never read must not hold the window back.
        for conn in self.conns.iter().filter(|conn| conn.never_reads) {
            for subscription in &conn.receiver.subscriptions {
                self.progress[subscription.publisher][subscription.slot] = u64::MAX;
            }
        }
    }

    /// Wakes the following turns at a fixed interval; returns the moment from which the interval counts.
    pub fn tick(&mut self, interval: Duration) -> Result<Instant, Fault> {
        let (timer, start) = Timer::start(interval)?;
        self.poll.registry().register(&mut SourceFd(&timer.descriptor()), TIMER, Interest::READABLE)?;
        self.timer = Some(timer);
        Ok(start)
    }

    /// Sequence number due on the slowest subscription of a publisher; `None` without subscriptions.
    pub fn slowest(&self, publisher: usize) -> Option<u64> {
        self.progress[publisher].iter().copied().min()
    }

    /// Fails if a message of a work queue can't arrive any more: it arrived nowhere, and every consumer got later
    /// messages of its publisher.
    pub fn find_lost(&self) -> Result<(), Fault> {
        let Some(arrivals) = &self.arrivals else { return Ok(()) };
        for publisher in 0..self.publishers.len() {
            let consumers = self.conns.iter().filter_map(|conn| conn.receiver.consumer.as_ref());
            let passed = consumers.map(|consumer| consumer.next(publisher)).min().unwrap_or_default();
            let missing = arrivals.borrow_mut().first_missing(publisher);
            if let Some(sequence) = missing.filter(|&missing| missing < passed) {
                return Err(Fault::Lost { publisher, sequence });
            }
        }
        Ok(())
    }

    /// Waits for events (at most `wait`, without limit if `None`) and reads once from each readable connection.
    pub fn turn(&mut self, wait: Option<Duration>) -> Result<(), Fault> {
        let wait = if self.ready.is_empty() { wait } else { Some(Duration::ZERO) };
        match self.poll.poll(&mut self.events, wait) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(()),
            other => other?,
        }
        for event in &self.events {
            let Token(index) = event.token();
            if event.token() == TIMER {
                if let Some(timer) = &self.timer {
                    timer.acknowledge();
                }
                continue;
            }
            let conn = &mut self.conns[index];
            if event.is_writable() {
                conn.writable()?;
            }
            conn.hung_up |= event.is_read_closed() || event.is_error();
            if event.is_readable() && !conn.never_reads && !self.is_ready[index] {
                self.is_ready[index] = true;
                self.ready.push(index);
            }
        }
        for index in std::mem::take(&mut self.ready) {
            self.is_ready[index] = false;
            self.read(index)?;
        }
        if self.series.is_some() {
            self.end_interval(false);
        }
        Ok(())
    }

    /// Starts to record what is sent and delivered in each interval.
    pub fn begin_series(&mut self, interval: Option<Duration>) {
        let (sent, delivered) = (self.sent(), self.delivered);
        self.series = interval.map(|interval| Series::new(interval, Instant::now(), sent, delivered));
    }

    /// Starts to record latencies under a window. Everything sent before must be delivered; `begin_series` comes first.
    pub fn begin_window_latency(&mut self) {
        let begun = self.series.as_ref().map_or_else(Instant::now, |series| series.begun);
        let interval = self.series.as_ref().map(|series| series.interval);
        self.window_latency = Some(WindowLatency::new(self.publishers.len(), begun, interval));
    }

    /// Ends the series and returns its intervals.
    pub fn take_series(&mut self) -> Option<Vec<Interval>> {
        self.end_interval(true);
        self.series.take().map(Series::result)
    }

    fn end_interval(&mut self, at_once: bool) {
        let (now, sent, delivered) = (Instant::now(), self.sent(), self.delivered);
        if let Some(series) = self.series.as_mut().filter(|series| at_once || series.is_due(now)) {
            series.end_interval(now, sent, delivered);
        }
    }

    fn sent(&self) -> u64 {
        self.publishers.iter().map(|publisher| publisher.next).sum()
    }

    /// Reads once from one connection.
    pub fn read(&mut self, index: usize) -> Result<Progress, Fault> {
        let conn = &mut self.conns[index];
        let before = conn.receiver.delivered;
        let progress = conn.read(&mut self.buffer)?;
        if conn.receiver.delivered > before {
            self.delivered += conn.receiver.delivered - before;
            self.note_arrivals(index);
        }
        if self.conns[index].receiver.receipts.as_ref().is_some_and(|numbers| !numbers.is_empty()) {
            self.note_receipts(index)?;
        }
        let conn = &mut self.conns[index];
        if progress == Progress::Closed && conn.state == State::Leaving && conn.login.close_is_receipt {
            conn.state = State::Left;
        }
        match progress {
            Progress::Closed if !matches!(conn.state, State::Left) => {
                return Err(Fault::Closed(format!("connection {index} while {:?}", conn.state)));
            }
            Progress::Closed => {}
            _ if conn.never_reads => {}
            // After a hang-up there are no more events: read to the end.
            Progress::More | Progress::Drained if progress == Progress::More || conn.hung_up => {
                self.is_ready[index] = true;
                self.ready.push(index);
            }
            _ => {}
        }
        Ok(progress)
    }

    /// Records the progress and the latencies of what a read of this connection brought.
    fn note_arrivals(&mut self, index: usize) {
        let receiver = &mut self.conns[index].receiver;
        let sampled =
            receiver.consumer.as_mut().map(|consumer| consumer.sampled.drain(..)).into_iter().flatten();
        let due = |subscription: &Subscription| self.progress[subscription.publisher][subscription.slot];
        if let Some(latency) = &mut self.latency {
            let now = Instant::now();
            receiver
                .subscriptions
                .iter()
                .for_each(|subscription| latency.arrived(due(subscription), subscription.due, now));
        }
        if let Some(latency) = &mut self.window_latency {
            let now = Instant::now();
            let same = |a: &Subscription, b: &Subscription| {
                (a.publisher, due(a), a.due) == (b.publisher, due(b), b.due)
            };
            for subscriptions in receiver.subscriptions.chunk_by(same) {
                let subscription = &subscriptions[0];
                latency.arrived(
                    subscription.publisher,
                    due(subscription),
                    subscription.due,
                    subscriptions.len() as u64,
                    now,
                );
            }
            for (publisher, sequence) in sampled {
                latency.arrived(publisher, sequence, sequence + 1, 1, now);
            }
        }
        for subscription in &receiver.subscriptions {
            self.progress[subscription.publisher][subscription.slot] = subscription.due;
        }
        if let Some(arrivals) = &self.arrivals {
            let arrivals = arrivals.borrow();
            for (publisher, progress) in self.progress.iter_mut().enumerate() {
                progress[0] = arrivals.arrived(publisher);
            }
        }
    }

    /// Records the RECEIPTs, and their latencies, that a read of this connection brought.
    fn note_receipts(&mut self, index: usize) -> Result<(), Fault> {
        let Some(numbers) = &mut self.conns[index].receiver.receipts else { return Ok(()) };
        let sender = self.publishers.iter().enumerate().find(|(_, publisher)| publisher.connection == index);
        let Some((publisher, sending)) = sender else {
            return Err(Fault::Malformed("a RECEIPT for a connection that has sent nothing".to_owned()));
        };
        let unconfirmed = &mut self.unconfirmed[publisher];
        for &number in numbers.iter() {
            unconfirmed.confirm(publisher, number, sending.next)?;
        }
        self.delivered += numbers.len() as u64;
        self.progress[publisher][0] = unconfirmed.confirmed;
        let now = Instant::now();
        for run in numbers.chunk_by(|a, b| a + 1 == *b) {
            let (from, to) = (run[0], run[0] + run.len() as u64);
            if let Some(latency) = &mut self.latency {
                latency.arrived(from, to, now);
            }
            if let Some(latency) = &mut self.window_latency {
                latency.arrived(publisher, from, to, 1, now);
            }
        }
        numbers.clear();
        Ok(())
    }

    /// Sends DISCONNECT on every connection that subscribes or gets RECEIPTs, and reads until its RECEIPT, so that what is
    /// surplus is seen.
    pub fn leave(&mut self) -> Result<(), Fault> {
        let leaving: Vec<usize> = (0..self.conns.len())
            .filter(|&index| {
                let receiver = &self.conns[index].receiver;
                !self.conns[index].never_reads && (receiver.subscribes() || receiver.receipts.is_some())
            })
            .collect();
        for &index in &leaving {
            self.conns[index].leave()?;
        }
        let mut stall = StallTimer::new();
        let mut left = 0;
        while left < leaving.len() {
            self.turn(Some(Duration::from_secs(1)))?;
            let before = left;
            left = leaving.iter().filter(|&&index| self.conns[index].state == State::Left).count();
            stall.moved(left > before, || "no RECEIPT for DISCONNECT".to_owned())?;
        }
        Ok(())
    }
}

/// Notices that there is no progress.
pub struct StallTimer(Instant);

impl StallTimer {
    /// Starts now.
    #[allow(clippy::new_without_default, reason = "it starts now, which is not a default")]
    pub fn new() -> StallTimer {
        StallTimer(Instant::now())
    }

    /// Takes note of progress. A fault after [`STALL`] without any.
    pub fn moved(&mut self, moved: bool, what: impl Fn() -> String) -> Result<(), Fault> {
        if moved {
            self.0 = Instant::now();
        } else if self.0.elapsed() > STALL {
            return Err(Fault::Stalled(what()));
        }
        Ok(())
    }
}
