//! What an audit finds: the state of a broker between two turns, counted anew and compared with its own counts.
//!
//! Each owner has a method `audit`, which visits everything that it holds. It reports what is inconsistent in itself, and
//! adds to the sums of an [`Audit`] what other owners or shards have to agree with. [`Audit::conclude`] compares these
//! sums. Only tests and the simulator compile it.

use std::fmt::Debug;
use std::sync::Arc;

use crate::door::{HashMap, HashState};
use crate::ids::{ConnKey, ConsumerKey, QueueKey, ShardId, Subscriber};
use crate::requester::AnswerTo;
use crate::text::{Text, Weight};

/// A set whose order no result depends on.
type Set<T> = hashbrown::HashSet<T, HashState>;

/// Messages and bytes, on one side of an equation minus those on the other side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    /// Messages.
    pub messages: i128,
    /// Bytes.
    pub bytes: i128,
}

impl Amount {
    /// This many messages and bytes.
    #[must_use]
    pub fn new(messages: impl Into<i128>, bytes: impl Into<i128>) -> Self {
        Amount { messages: messages.into(), bytes: bytes.into() }
    }

    fn add(&mut self, other: Amount) {
        self.messages += other.messages;
        self.bytes += other.bytes;
    }
}

/// A filter, as its own shard has it or as another one believes it to be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LocalFilter {
    /// It has subscriptions there.
    pub is_subscribed: bool,
    /// One of its receivers there has a full outbox.
    pub full: bool,
    /// The private queue of one of its receivers there grows while memory is short.
    pub growing: bool,
}

/// What a shard may have too much of, so that others wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Load {
    /// Frames in its mailbox.
    Frames,
    /// Deliveries of queues.
    Deliveries,
    /// Large fan-outs.
    Work,
}

/// The sums and findings of one audit.
#[derive(Debug, Default)]
pub struct Audit {
    /// The number of shards.
    pub shards: usize,
    /// The shard whose owners are visited.
    pub shard: ShardId,
    /// The connection that is visited.
    pub conn: Option<u64>,
    findings: Vec<String>,
    /// Bytes of messages, as [`crate::held`] counts them.
    pub message_bytes: i64,
    /// Bytes of messages that are owed to subscriptions, as [`crate::held`] counts them.
    pub owed_bytes: i64,
    /// Bytes of texts and weights, as [`crate::held`] counts them.
    pub text_bytes: i64,
    /// Bytes of batches in the broker's count.
    pub batch_bytes: i64,
    /// Addresses of shared values that were counted.
    seen: Set<usize>,
    /// Messages in flight of each queue: what its home counts, minus those that were visited.
    in_flight: HashMap<(ShardId, QueueKey), Amount>,
    /// The queues of all homes.
    existing: Set<(ShardId, QueueKey)>,
    /// Bytes that shards have added to the broker's count of held bytes.
    pub memory: i64,
    /// Open connections, and accepted sockets on their way.
    pub connections: usize,
    /// Input of connections that is in the broker's count of unfinished input.
    pub unfinished: i64,
    /// Retained messages, on their way to their homes also, and room that is reserved for them.
    pub retained: usize,
    /// Stale messages.
    pub stale: usize,
    /// Queues with a name, as their homes have counted them.
    pub queues: usize,
    /// The credit of subscriptions that no home's consumer has yet, or any more.
    credit_of: HashMap<Subscriber, Amount>,
    /// The credit of each consumer of a home, and what it will get back.
    credit: HashMap<(ShardId, ConsumerKey), Amount>,
    /// The subscription waits for credit on behalf of the home.
    wanted_credit: Vec<(Subscriber, ShardId)>,
    /// The home has credit of the subscription, and has not been asked to return it.
    kept_credit: Vec<(Subscriber, ShardId)>,
    /// Notes on their way that ask the home to return credit of the subscription.
    revocations: Set<(Subscriber, ShardId)>,
    /// Subscriptions that consume queues, of connections that are open and do not end.
    open_subscriptions: Set<Subscriber>,
    /// The subscriptions behind the consumers of homes.
    subscribers: HashMap<(ShardId, ConsumerKey), Subscriber>,
    /// The filters of each shard, by the hashes of their names.
    filters: HashMap<(ShardId, u64), LocalFilter>,
    /// What the first shard believes about a filter of the second one.
    beliefs: HashMap<(ShardId, ShardId, u64), LocalFilter>,
    /// Mail from the first shard to the second one about a filter.
    news: Set<(ShardId, ShardId, u64)>,
    /// Shards that have too much of something.
    loaded: Set<(ShardId, Load)>,
    /// The first shard waits until the second one has less of something.
    stalls: Set<(ShardId, ShardId, Load)>,
    /// Mail from the first shard to the second one that it has less of something.
    reliefs: Set<(ShardId, ShardId, Load)>,
    /// The shards that were visited.
    visited: Set<ShardId>,
    /// The answers that frames wait for, minus those that were visited or are held by somebody who will send them.
    answers: HashMap<(ShardId, ConnKey, u64), i64>,
}

impl Audit {
    /// An audit of a broker with this number of shards.
    #[must_use]
    pub fn of(shards: usize) -> Self {
        Audit { shards, ..Audit::default() }
    }

    /// Reports something that is inconsistent.
    pub fn find(&mut self, text: String) {
        let conn = self.conn.map_or_else(String::new, |conn| format!(", connection {conn}"));
        self.findings.push(format!("shard {}{conn}: {text}", self.shard.0));
    }

    /// Reports a condition that does not hold.
    pub fn require(&mut self, holds: bool, text: impl FnOnce() -> String) {
        if !holds {
            self.find(text());
        }
    }

    /// Reports a count that differs from what is there.
    pub fn equal<T: PartialEq + Debug>(&mut self, what: &str, counted: T, found: T) {
        self.require(counted == found, || format!("{what}: counted {counted:?}, found {found:?}"));
    }

    /// Whether a shared value is visited for the first time.
    pub fn is_first_visit<T: ?Sized>(&mut self, shared: &Arc<T>) -> bool {
        self.seen.insert(Arc::as_ptr(shared).cast::<()>() as usize)
    }

    /// Visits a text.
    pub fn text(&mut self, text: &Text) {
        self.weight(text.weight());
    }

    /// Visits a text that several owners may share.
    pub fn shared_text(&mut self, text: &Arc<Text>) {
        if self.is_first_visit(text) {
            self.text(text);
        }
    }

    /// Visits a weight.
    pub fn weight(&mut self, weight: &Weight) {
        self.text_bytes += weight.bytes() as i64;
    }

    /// A home has this queue, and counts so many messages of it as in flight.
    pub fn queue(&mut self, queue: QueueKey, in_flight: Amount) {
        self.existing.insert((self.shard, queue));
        self.in_flight.entry((self.shard, queue)).or_default().add(in_flight);
    }

    /// A message of a queue, or a report about settled ones, was visited that its home counts as in flight.
    pub fn in_flight(&mut self, home: ShardId, queue: QueueKey, messages: u64, bytes: u64) {
        let visited = Amount::new(-i128::from(messages), -i128::from(bytes));
        self.in_flight.entry((home, queue)).or_default().add(visited);
    }

    /// A home has this consumer.
    pub fn consumer(&mut self, consumer: ConsumerKey, subscriber: Subscriber) {
        self.subscribers.insert((self.shard, consumer), subscriber);
    }

    /// A consumer of a home has this credit, or will get it back.
    pub fn credit(&mut self, home: ShardId, consumer: ConsumerKey, credit: Amount) {
        self.credit.entry((home, consumer)).or_default().add(credit);
    }

    /// A subscription has this credit, or will get it, besides that of its consumers.
    pub fn credit_of(&mut self, subscriber: Subscriber, credit: Amount) {
        self.credit_of.entry(subscriber).or_default().add(credit);
    }

    /// A home has asked a subscription for credit that it has not got.
    pub fn wants_credit(&mut self, subscriber: Subscriber, home: ShardId) {
        self.wanted_credit.push((subscriber, home));
    }

    /// The visited home has credit of a subscription, and has not been asked to return it.
    pub fn keeps_credit(&mut self, subscriber: Subscriber) {
        self.kept_credit.push((subscriber, self.shard));
    }

    /// A home will be asked to return credit of a subscription.
    pub fn revokes_credit(&mut self, subscriber: Subscriber, home: ShardId) {
        self.revocations.insert((subscriber, home));
    }

    /// A subscription consumes queues, and its connection is open and does not end.
    pub fn open_subscription(&mut self, subscriber: Subscriber) {
        self.open_subscriptions.insert(subscriber);
    }

    /// A frame waits for so many answers.
    pub fn awaited(&mut self, conn: ConnKey, token: u64, answers: u32) {
        *self.answers.entry((self.shard, conn, token)).or_default() += i64::from(answers);
    }

    /// Somebody will send an answer, or it is on its way.
    pub fn answer(&mut self, to: AnswerTo) {
        if to.awaited {
            self.answer_to(to.shard, to.conn, to.token);
        }
    }

    /// All other shards will answer a frame, once they are asked.
    pub fn answers_of_others(&mut self, to: AnswerTo) {
        (1..self.shards).for_each(|_| self.answer(to));
    }

    /// An answer is on its way.
    pub fn answer_to(&mut self, shard: ShardId, conn: ConnKey, token: u64) {
        *self.answers.entry((shard, conn, token)).or_default() -= 1;
    }

    /// The shard that is visited has a filter, whose name has this hash.
    pub fn own_filter(&mut self, hash: u64, filter: LocalFilter) {
        self.filters.insert((self.shard, hash), filter);
    }

    /// The shard that is visited believes something about a filter of another one.
    pub fn belief(&mut self, about: ShardId, hash: u64, filter: LocalFilter) {
        self.beliefs.insert((self.shard, about, hash), filter);
    }

    /// Mail about a filter of its sender is on the way.
    pub fn news(&mut self, from: ShardId, to: ShardId, hash: u64) {
        self.news.insert((from, to, hash));
    }

    /// Whether the shard that is visited has too much of something.
    pub fn is_loaded(&mut self, load: Load, is_loaded: bool) {
        self.visited.insert(self.shard);
        if is_loaded {
            self.loaded.insert((self.shard, load));
        }
    }

    /// The shard that is visited waits until another one has less of something.
    pub fn stalls_for(&mut self, shard: ShardId, load: Load) {
        self.stalls.insert((self.shard, shard, load));
    }

    /// Mail is on the way that its sender has less of something.
    pub fn relief(&mut self, from: ShardId, to: ShardId, load: Load) {
        self.reliefs.insert((from, to, load));
    }

    /// Compares what shards believe about each other with the truth, unless mail about it is on the way.
    /// While one home waits for credit, no other one keeps what it may not need.
    fn conclude_waits_for_credit(&mut self) {
        for (subscriber, home) in &self.wanted_credit {
            let is_kept = |(owner, keeper): &&(Subscriber, ShardId)| {
                owner == subscriber && keeper != home && !self.revocations.contains(&(*owner, *keeper))
            };
            let is_open = self.open_subscriptions.contains(subscriber);
            if let Some((_, keeper)) = self.kept_credit.iter().find(is_kept).filter(|_| is_open) {
                self.findings.push(format!(
                    "shard {} waits for credit of {subscriber:?}, and shard {} is not asked to return any",
                    home.0, keeper.0
                ));
            }
        }
    }

    fn conclude_beliefs(&mut self) {
        for ((own, hash), filter) in &self.filters {
            for other in self.visited.iter().filter(|other| *other != own) {
                let believed = self.beliefs.get(&(*other, *own, *hash)).copied().unwrap_or_default();
                if believed != *filter && !self.news.contains(&(*own, *other, *hash)) {
                    self.findings.push(format!(
                        "shard {} believes {believed:?}, shard {} has {filter:?}",
                        other.0, own.0
                    ));
                }
            }
        }
        for ((own, about, hash), believed) in &self.beliefs {
            let is_known =
                self.filters.contains_key(&(*about, *hash)) || self.news.contains(&(*about, *own, *hash));
            if !is_known {
                self.findings.push(format!(
                    "shard {} believes {believed:?} of shard {}, which has none",
                    own.0, about.0
                ));
            }
        }
        for (own, other, load) in &self.stalls {
            if !self.loaded.contains(&(*other, *load)) && !self.reliefs.contains(&(*other, *own, *load)) {
                self.findings
                    .push(format!("shard {} waits for shard {}, which has few {load:?}", own.0, other.0));
            }
        }
    }

    /// Compares the sums of all shards: with each other, and with those of the audit before. Returns what is inconsistent.
    pub fn conclude(mut self, before: &mut Before) -> Vec<String> {
        for ((home, queue), amount) in &self.in_flight {
            if self.existing.contains(&(*home, *queue)) && *amount != Amount::default() {
                let text =
                    format!("shard {}: {queue:?} counts more in flight than there is: {amount:?}", home.0);
                self.findings.push(text);
            }
        }
        for ((shard, conn, token), missing) in &self.answers {
            if *missing > 0 {
                let text =
                    format!("shard {}: {conn:?} waits for {missing} answers to frame {token}", shard.0);
                self.findings.push(format!("{text} that nobody will send"));
            }
        }
        self.conclude_waits_for_credit();
        self.conclude_beliefs();
        let credit = self.credit_of_open_ones();
        for (subscriber, amount) in &credit {
            if let Some(earlier) = before.credit.get(subscriber).filter(|earlier| *earlier != amount) {
                self.findings
                    .push(format!("the credit of {subscriber:?} was {earlier:?}, and is {amount:?}"));
            }
        }
        before.credit = credit;
        self.findings
    }

    /// The credit of the subscriptions of open connections, wherever it is.
    fn credit_of_open_ones(&mut self) -> HashMap<Subscriber, Amount> {
        let mut credit = std::mem::take(&mut self.credit_of);
        for (at, amount) in &self.credit {
            if let Some(subscriber) = self.subscribers.get(at) {
                credit.entry(*subscriber).or_default().add(*amount);
            }
        }
        credit.retain(|subscriber, _| self.open_subscriptions.contains(subscriber));
        credit
    }
}

/// What an audit remembers of the one before.
#[derive(Debug, Default)]
pub struct Before {
    credit: HashMap<Subscriber, Amount>,
}
