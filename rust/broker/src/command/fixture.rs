//! Fixture for tests of commands: the owners of one shard of two, and clients that send literal frames. There is no
//! poll, and the sockets are test doubles.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;

use stompica_proto::Decoded;

use super::Owners;
use super::commits::Commits;
use crate::config::Config;
use crate::connection::conn::{Conn, Transport};
use crate::connection::flow::Flow;
use crate::connection::{Effect, fixtures};
use crate::delivery;
use crate::delivery::fixture::{OTHER, OWN};
use crate::diag::inquiries::Diagnostics;
use crate::diag::survey::ReportTo;
use crate::door::sync::Ordering;
use crate::ids::{ConnKey, ShardId, SubscriptionKey};
use crate::log::{Level, LogQueue};
use crate::mail::mailbox::Mail;
use crate::message::chunk::Kind;
use crate::queue::mail::{AnswerNote, DiagnosticsNote, HomeNote, Note};
use crate::queue::notes::Local;
use crate::requester::Requester;
use crate::timer::Due;
use crate::turn::budget::Budget;
use crate::turn::jobs::Job;

/// The RECEIPT for a frame with `receipt:r`.
pub(crate) const RECEIPT: &str = "RECEIPT\nreceipt-id:r\n\n\0";

/// The owners that commands need.
#[derive(Debug)]
pub(crate) struct Fixture {
    base: delivery::fixture::Fixture,
    pub diagnostics: Diagnostics,
    pub commits: Commits,
    clients: u64,
}

impl Deref for Fixture {
    type Target = delivery::fixture::Fixture;

    fn deref(&self) -> &Self::Target {
        &self.base
    }
}

impl DerefMut for Fixture {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.base
    }
}

/// The default settings with a change. Stale messages are off, so that a new subscription waits for no initial replay.
pub(crate) fn config(change: impl FnOnce(&mut Config)) -> Config {
    let mut config = Config { ttl_ms: 0, ..Config::default() };
    change(&mut config);
    config
}

/// The owners with the default settings.
pub(crate) fn fixture() -> Fixture {
    Fixture::new(config(|_| ()))
}

/// The owners with changed settings, and clients with a session.
pub(crate) fn with_clients<const CLIENTS: usize>(
    change: impl FnOnce(&mut Config),
) -> (Fixture, [ConnKey; CLIENTS]) {
    let mut fixture = Fixture::new(config(change));
    let clients = [(); CLIENTS].map(|()| fixture.client());
    (fixture, clients)
}

/// The code of the ERROR for a frame that a new client sends first.
pub(crate) fn refused_frame(frame: &str) -> String {
    let (mut fixture, [key]) = with_clients(|_| ());
    fixture.send(key, frame);
    fixture.error_to(key)
}

impl Fixture {
    pub fn new(config: Config) -> Self {
        let mut base = delivery::fixture::Fixture::new(config);
        base.turn.log = LogQueue::new(64, Level::Debug);
        // All mail that came before the first frame has been read.
        base.peers.incoming.refill(&base.peers.mailboxes[usize::from(OWN.0)], 0);
        Fixture { base, diagnostics: Diagnostics::default(), commits: Commits::default(), clients: 0 }
    }

    pub fn owners(&mut self) -> Owners<'_> {
        let Fixture { base, diagnostics, commits, .. } = self;
        let delivery::fixture::Fixture {
            turn, notes, router, queues, connections, deliveries, peers, ..
        } = base;
        Owners {
            turn,
            notes,
            router,
            queues,
            connections,
            deliveries,
            peers,
            diagnostics,
            commits,
            is_draining: false,
        }
    }

    /// A client that has sent nothing yet.
    pub fn accept(&mut self) -> ConnKey {
        self.clients += 1;
        let mut conn = Conn::scripted(self.clients);
        conn.protocol.transport = Transport::Stomp;
        self.connections.table.insert(conn)
    }

    /// A client with a session of this version.
    pub fn client_of(&mut self, version: &str) -> ConnKey {
        let key = self.accept();
        assert_eq!(self.handle(key, &format!("CONNECT\naccept-version:{version}\nhost:h\n\n")), Flow::Done);
        assert!(self.sent_to(key).starts_with("CONNECTED\n"));
        key
    }

    /// A client with a session of STOMP 1.2.
    pub fn client(&mut self) -> ConnKey {
        self.client_of("1.2")
    }

    pub fn conn(&mut self, key: ConnKey) -> &mut Conn {
        self.connections.table.get_mut(key).expect("an open connection")
    }

    /// Handles a frame of a client, given without its NUL. Notes and jobs that it causes remain.
    pub fn handle(&mut self, key: ConnKey, frame: &str) -> Flow {
        self.handle_for(key, key, frame)
    }

    /// Handles a frame that one connection has decoded as if another one had sent it.
    pub fn handle_for(&mut self, key: ConnKey, decoded_by: ConnKey, frame: &str) -> Flow {
        let bytes = format!("{frame}\0").into_bytes();
        let (mut spans, limits) = (Vec::new(), self.turn.config.limits);
        let decoder = &mut self.conn(decoded_by).protocol.decoder;
        let Ok(Decoded::Frame { frame, .. }) = decoder.decode(&bytes, &mut spans, &limits) else {
            panic!("not a whole frame: {frame}");
        };
        self.owners().handle_observed(key, &frame)
    }

    /// Handles a frame, and all notes and jobs that it causes on this shard.
    pub fn send(&mut self, key: ConnKey, frame: &str) -> Flow {
        let flow = self.handle(key, frame);
        self.settle();
        flow
    }

    /// Carries out all work of this shard: notes to itself, jobs, and deliveries of its queues.
    pub fn settle(&mut self) {
        loop {
            self.settle_notes();
            self.owners().delivery().run_effects();
            self.owners().delivery().dispatch();
            match self.turn.jobs.pop() {
                Some(job) => self.proceed_with(job),
                None if self.notes.has_local() || !self.queues.home.effects.is_empty() => {}
                None => return,
            }
        }
    }

    /// Carries out the notes of this shard to itself.
    pub fn settle_notes(&mut self) {
        while let Some(local) = self.notes.next_local() {
            self.carry_out_local(local);
        }
    }

    fn carry_out_local(&mut self, local: Local) {
        let mut owners = self.owners();
        match local {
            Local::Note(Note::Consumer(note)) => owners.delivery().read_consumer_note(OWN, note),
            Local::Note(Note::Answer(AnswerNote::Applied(conn, token))) => {
                owners.connections.applied(owners.turn, conn, token);
            }
            Local::Note(Note::Answer(AnswerNote::Reserved(conn, _, places))) => {
                owners.prepare_answered(conn, Ok((OWN, places)));
            }
            Local::Note(Note::Answer(AnswerNote::Refused(conn, token, refusal))) => {
                match owners.is_deciding(conn, token) {
                    true => owners.prepare_answered(conn, Err(refusal.0)),
                    false => owners.connections.refused(owners.turn, conn, token, *refusal),
                }
            }
            Local::Note(Note::Diagnostics(DiagnosticsNote::Diagnose(query, number))) => {
                owners.diag().survey(query, ReportTo::Shard(OWN, number));
            }
            Local::Note(Note::Diagnostics(DiagnosticsNote::Diagnosed(number, report))) => {
                owners.diag().diagnosed(number, *report);
            }
            Local::Note(note) => owners.queue().read(OWN, note),
            Local::Announce { topic, to, newcomer } => {
                owners.peers.tell_interest(owners.router, &topic, to, newcomer);
            }
            other => panic!("unexpected: {other:?}"),
        }
    }

    /// Continues a job, with the budget of a turn.
    pub fn proceed_with(&mut self, job: Job) {
        self.turn.budget = Budget::default();
        let mut owners = self.owners();
        match job {
            Job::Check(key, token) => owners.check_commit(key, token),
            Job::Apply => {
                let applying = owners.commits.applying.pop_front().expect("a COMMIT that is being applied");
                owners.apply(applying);
            }
            Job::Discard => {
                let discarded = owners.commits.discarded.pop_front().expect("a transaction");
                owners.proceed_with_discarding(discarded);
            }
            Job::Leave(key) => _ = owners.leave_some(key),
            Job::Reserve(shard, token) => owners.queue().proceed_with_reservation((shard, token)),
            Job::Ask => owners.diag().ask_next(),
            Job::Survey => owners.diag().proceed_with_survey(),
            Job::Revive => owners.queue().proceed_with_revivals(),
            other => panic!("unexpected: {other:?}"),
        }
    }

    /// Advances the time, and handles the deadlines of queues.
    pub fn pass_time(&mut self, ms: u64) {
        self.turn.now_ms += ms;
        let now_ms = self.turn.now_ms;
        self.queues.home.set_time(now_ms);
        while let Some((_, due)) = self.turn.timers.pop_due(now_ms) {
            if let Due::Queue(queue) = due {
                self.queues.home.handle_due(queue);
            }
        }
        self.settle();
    }

    /// Removes the subscriptions of an ended connection, and writes its last frames.
    pub fn end(&mut self, key: ConnKey) {
        assert!(
            self.connections.effects.iter().any(|effect| matches!(effect, Effect::Leaves(it) if *it == key))
        );
        self.connections.effects.clear();
        while !self.owners().leave_some(key) {
            self.turn.budget = Budget::default();
        }
        let Fixture { base, .. } = self;
        base.connections.write_last(&mut base.turn, key);
    }

    /// Everything sent to a client since the last call; its socket takes all bytes.
    pub fn sent_to(&mut self, key: ConnKey) -> String {
        let base = &mut self.base;
        base.connections.distribute(&mut base.turn);
        let sent = fixtures::told(&mut base.connections, &mut base.turn, key);
        let mut owners = base.owners();
        owners.note_written(key);
        owners.note_progress(key);
        sent
    }

    /// The code of the ERROR that ends the connection of a client.
    pub fn error_to(&mut self, key: ConnKey) -> String {
        self.end(key);
        let sent = self.sent_to(key);
        let (_, error) = sent.split_once("ERROR\n").unwrap_or_else(|| panic!("no ERROR: {sent:?}"));
        error.lines().find_map(|line| line.strip_prefix("code:")).unwrap_or_default().to_owned()
    }

    /// Each of these frames, sent by a client of its own, gets an ERROR with this code.
    #[track_caller]
    pub fn expect_refusals(&mut self, frames: &[(&str, &str)]) {
        for (frame, code) in frames {
            let key = self.client();
            assert_eq!(self.send(key, frame), Flow::Done);
            assert_eq!(self.error_to(key), *code, "{frame}");
        }
    }

    /// Makes memory usage reach `memory_limit`, or 0.
    pub fn fill_memory(&mut self, is_full: bool) {
        let held = if is_full { self.turn.memory_limit() } else { 0 };
        self.turn.totals.memory.store(held, Ordering::Relaxed);
        self.turn.memory.is_short = is_full;
    }

    /// Fills the memory, some of it by the outbox of another connection.
    pub fn fill_memory_and_an_outbox(&mut self) {
        let key = self.client();
        let base = &mut self.base;
        if let Some(conn) = base.connections.table.get_mut(key) {
            let chunks = &mut base.connections.chunks;
            conn.output.outbox.append(chunks, Kind::Message, |out| out.resize(100_000, b'\n'));
        }
        self.fill_memory(true);
    }

    /// Ends a connection whose peer has disconnected. Its subscriptions still exist.
    pub fn drop_connection(&mut self, key: ConnKey) {
        let base = &mut self.base;
        base.connections.drop_connection(&mut base.turn, key, "test");
    }

    /// Resumes reading of a connection that waits for room.
    pub fn unpark(&mut self, key: ConnKey) {
        let base = &mut self.base;
        base.connections.unpark(&mut base.turn, key);
    }

    /// Records that the other shard has subscriptions to a topic.
    pub fn subscribe_other(&mut self, topic: &str) {
        self.router.set_interest(&Arc::new(topic.as_bytes().into()), OTHER, true);
    }

    /// A name with this prefix whose home is the given shard.
    pub fn name_at(&self, home: ShardId, prefix: &str) -> String {
        let mut names = (0..).map(|at| format!("{prefix}{at}"));
        names.find(|name| self.router.home(name.as_bytes()) == home).expect("one of two shards")
    }

    /// Notes to the other shard since the last call.
    pub fn notes_to_other(&mut self) -> Vec<Note> {
        self.notes.take_outgoing().flat_map(|(_, notes)| notes).collect()
    }

    /// The one note to a home on the other shard.
    pub fn home_note(&mut self) -> HomeNote {
        let mut notes = self.notes_to_other();
        match (notes.pop(), notes.is_empty()) {
            (Some(Note::Home(note)), true) => note,
            (last, _) => panic!("not one note to a home: {notes:?} {last:?}"),
        }
    }

    /// Mail to the other shard since the last call.
    pub fn mail_to_other(&mut self) -> Vec<Mail> {
        std::mem::take(&mut self.peers.outgoing[usize::from(OTHER.0)])
    }

    /// Confirms a request as the other shard would.
    pub fn confirm(&mut self, requester: Requester) {
        self.notes.answer(requester, Ok(()));
        self.settle();
    }

    /// The subscription of a client with this id, or this destination if it has no id.
    pub fn subscription(&mut self, key: ConnKey, id: &str) -> SubscriptionKey {
        let index = self.owners().find_subscription(key, id.as_bytes()).expect("a subscription");
        SubscriptionKey { index, generation: self.router.subscriptions[index as usize].generation }
    }

    /// The texts that were logged since the last call.
    pub fn logged(&mut self) -> Vec<String> {
        self.turn.log.drain(Duration::ZERO).into_iter().map(|record| record.text).collect()
    }
}

/// The value of a header in a frame.
pub(crate) fn header(frame: &str, name: &str) -> String {
    let lines = frame.lines().take_while(|line| !line.is_empty());
    let mut values = lines.filter_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    values.next().unwrap_or_else(|| panic!("no header {name} in {frame:?}")).to_owned()
}

/// The bodies of the frames that were sent.
pub(crate) fn bodies(sent: &str) -> Vec<&str> {
    sent.split_terminator('\0').map(|frame| frame.split_once("\n\n").map_or("", |(_, body)| body)).collect()
}
