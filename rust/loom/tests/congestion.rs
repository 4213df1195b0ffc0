//! A shard that is told to wait, because another one has enough to do, is told to go on.

mod support;

use std::sync::Arc;

use loom::thread;
use stompica_broker::interleaved::{
    Config, Events, HashState, Home, Level, LogQueue, Mail, Mailbox, Memory, Next, Notes, Peers, Poll, Reach,
    ShardId, Token, Totals, Turn, Waker,
};
use stompica_proto::encode::Message;
use support::{check, check_that_it_fails};

/// The work of a message to very many receivers: half of what a shard accepts in advance.
const LARGE: usize = 10_000;

/// What a shard needs for its mail.
struct Shard {
    poll: Poll,
    events: Events,
    peers: Peers,
    notes: Notes,
    home: Home,
    turn: Turn,
}

impl Shard {
    fn new(own: usize, poll: Poll, mailboxes: Arc<[Mailbox]>) -> Self {
        let (id, shards) = (ShardId(own as u8), mailboxes.len());
        let config = Config { max_input_queue_size: 2 * shards, ..Config::default() };
        let hasher = HashState::default();
        let home = Home::new(&config, hasher.clone(), Box::new(Memory));
        let (totals, log) = (Arc::new(Totals::default()), LogQueue::new(1, Level::Error));
        Shard {
            poll,
            events: Events::with_capacity(1),
            peers: Peers::new(id, mailboxes),
            notes: Notes::new(id, shards),
            home,
            turn: Turn::new(id, shards, Arc::new(config), totals, log, hasher, "e"),
        }
    }

    /// Waits for mail, and takes it.
    fn read(&mut self, own: usize) -> Vec<Mail> {
        self.poll.poll(&mut self.events, None).expect("a poll");
        let mailboxes = Arc::clone(&self.peers.mailboxes);
        self.peers.incoming.refill(&mailboxes[own], 0);
        let next = std::iter::from_fn(|| self.peers.incoming.take_next());
        next.map(|next| match next {
            Next::Mail(mail) => mail,
            Next::Notes(notes) => panic!("nobody sent notes: {notes:?}"),
        })
        .collect()
    }

    fn post(&mut self) {
        self.peers.post(&mut self.notes, &mut self.home, &self.turn);
    }

    /// Sends one message in each turn, unless shard 0 has enough of them.
    fn send(mut self, own: usize, messages: usize, fan_out_size: usize) {
        let receiver = ShardId(0);
        let message = Message {
            destination: b"t",
            id: b"i",
            sender: 0,
            headers: b"",
            plain: true,
            expires_ms: 0,
            body: b"x",
        };
        for _ in 0..messages {
            while self.peers.busy.congested & receiver.bit() != 0
                || self.peers.holds_large_fan_outs(receiver.bit())
            {
                for mail in self.read(own) {
                    match mail {
                        Mail::Uncongested(shard) => self.peers.has_room(shard),
                        Mail::RoutesOn(shard) => self.peers.routes_on(shard),
                        other => panic!("nobody sent this: {other:?}"),
                    }
                }
            }
            let reach = Reach { remote: receiver.bit(), fan_out_size, ..Reach::default() };
            self.peers.mail_message(&message, &reach);
            self.post();
        }
    }

    /// Reads this many messages.
    fn receive(&mut self, messages: usize) {
        let mut received = 0;
        while received < messages {
            for mail in self.read(0) {
                let Mail::Batch(batch) = mail else { panic!("nobody sent this: {mail:?}") };
                let mut at = 0;
                while let Some((_, next)) = batch.next_for(ShardId(0), at) {
                    at = next;
                    received += 1;
                    self.peers.have_taken(1, &self.turn);
                    self.peers.have_routed(batch.work_before(next));
                }
            }
            self.post();
        }
    }
}

fn senders_and_a_receiver(senders: usize, messages: usize, fan_out_size: usize) {
    let polls: Vec<Poll> = (0..=senders).map(|_| Poll::new().expect("a poll")).collect();
    let waker = |poll: &Poll| Waker::new(poll.registry(), Token(0)).expect("a waker");
    let mailboxes: Arc<[Mailbox]> = polls.iter().map(|poll| Mailbox::new(waker(poll))).collect();
    let mut polls = polls.into_iter();
    let mut receiver = Shard::new(0, polls.next().expect("at least one"), Arc::clone(&mailboxes));
    let send = |(at, poll): (usize, Poll)| {
        let mailboxes = Arc::clone(&mailboxes);
        thread::spawn(move || Shard::new(at + 1, poll, mailboxes).send(at + 1, messages, fan_out_size))
    };
    let threads: Vec<_> = polls.enumerate().map(send).collect();
    receiver.receive(senders * messages);
    threads.into_iter().for_each(|thread| thread.join().expect("it does not panic"));
    let left = [mailboxes[0].add_frames(0), mailboxes[0].add_work(0), mailboxes[0].add_deliveries(0)];
    assert_eq!(left, [0; 3]);
}

fn one_sender() {
    senders_and_a_receiver(1, 4, 0);
}

fn two_senders() {
    senders_and_a_receiver(2, 2, 0);
}

fn large_fan_outs() {
    senders_and_a_receiver(1, 3, LARGE);
}

#[test]
fn a_congested_sender_goes_on() {
    check(Some(3), one_sender);
    check(Some(3), two_senders);
    check_that_it_fails("half-missed", one_sender);
    check_that_it_fails("count-torn", two_senders);
}

#[test]
fn large_fan_outs_go_on() {
    check(Some(3), large_fan_outs);
    check_that_it_fails("half-missed", large_fan_outs);
}
