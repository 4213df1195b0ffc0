//! SUBSCRIBE and UNSUBSCRIBE (STOMP 1.2, "SUBSCRIBE").
//!
//! A subscription to a topic is a member of a group, and gets what is encoded for all of them. One that acknowledges
//! has a queue of its own between the topic and itself; a durable one has its queue at a home of its own; one to
//! queues is a consumer at their homes. RECEIPT leaves when all who have to know know.

use std::hash::BuildHasher as _;

use stompica_proto::encode::{self, Offender};
use stompica_proto::error::Code;
use stompica_proto::session::AckMode;
use stompica_proto::{Frame, ProtocolError, header};

use crate::config::{SlowConsumer, Wildcards};
use crate::destination::Kind;
use crate::ids::{ConnKey, NOBODY, ShardId};
use crate::ids::{QueueKey, Subscriber, SubscriptionKey};
use crate::log::Level;
use crate::message::options::{self, SubscribeOptions};
use crate::queue::QueueKind;
use crate::queue::consumer_state::{ConsumerState, Feed, InitialReplay, SharedCredit};
use crate::queue::mail::{Attach, HomeNote, Source};
use crate::queue::replay::Newcomer;
use crate::queue::types::Credit;
use crate::queue::unacked::Unacked;
use crate::requester::AnswerTo;
use crate::router::group::{SubscriptionIndex, WireFormat};
use crate::router::{Holdup, InterestChange};
use crate::shard::Shard;
use crate::text::Weight;

/// Bytes that may wait in a consumer's outbox before it is sent more.
const WINDOW_BYTES: i64 = 256 << 10;
/// What is left of it at least at each home of a pattern's queues.
const WINDOW_PART_MIN: i64 = 32 << 10;
/// Messages on loan to the homes of a pattern's queues with ack auto, where each is settled as soon as it is written.
const SHARED_MESSAGES: i64 = 256;

/// A SUBSCRIBE as the session has read it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted<'a> {
    pub frame: &'a Frame<'a>,
    pub id: Option<&'a [u8]>,
    pub destination: &'a [u8],
    pub ack: AckMode,
}

impl<'a> Wanted<'a> {
    /// The name under which the connection knows the subscription.
    pub fn name(&self) -> &'a [u8] {
        self.id.unwrap_or(self.destination)
    }
}

impl Shard {
    /// Adds a subscription. It is live for the next frame of this connection.
    pub(super) fn subscribe(
        &mut self,
        key: ConnKey,
        wanted: &Wanted<'_>,
        receipt: Option<&[u8]>,
    ) -> Result<(), ProtocolError> {
        let options = options::subscribe_options(wanted.frame, wanted.id)?;
        let kind = self.router.kind(wanted.destination);
        options::require_built_subscribe(wanted.frame, kind, options.durable.is_some())?;
        if kind == Kind::TemporaryQueue {
            self.leave_answers(key, wanted.destination);
        }
        self.check_subscription(key, wanted.name())?;
        self.require_memory_for_subscription(wanted.destination, wanted.name())?;
        let destination = self.name_to_subscribe_to(key, wanted.destination)?;
        if kind.is_reserved() {
            self.require_local(key)?;
        }
        self.router.parse(&destination)?;
        match (&options.durable, kind) {
            (Some(durable), Kind::Topic) => {
                if durable.shared && options.no_local {
                    return Err(options::shared_no_local());
                }
                let name = self.durable_name(key, &durable.name);
                let without = if options.no_local { self.sender(key) } else { NOBODY };
                let topic = destination.as_ref().into();
                let source = Source::Durable { name, topic, shared: durable.shared, without };
                self.subscribe_queue(key, wanted, &options, source, receipt)?;
            }
            (_, Kind::Topic | Kind::TemporaryTopic | Kind::Monitor) => {
                self.subscribe_topic(key, &destination, wanted, &options, receipt)?;
            }
            (_, Kind::Diagnostics) => {
                self.subscribe_diagnostics(key, &destination, wanted, &options, receipt)?;
            }
            (_, Kind::Queue) => {
                self.subscribe_named(key, &destination, QueueKind::Work, wanted, &options, receipt)?
            }
            (_, Kind::WorkerTopic) => {
                self.subscribe_named(key, &destination, QueueKind::Worker, wanted, &options, receipt)?;
            }
            (_, Kind::TemporaryQueue) => {
                self.subscribe_named(key, &destination, QueueKind::Temporary, wanted, &options, receipt)?;
            }
        }
        self.router.warn_of_dotted(&self.turn, &destination);
        self.hint_at_deep_wildcard(&destination);
        Ok(())
    }

    pub(super) fn check_subscription(&self, key: ConnKey, name: &[u8]) -> Result<(), ProtocolError> {
        if self.find_subscription(key, name).is_some() {
            let text = format!("'{}' is in use on this connection", String::from_utf8_lossy(name));
            return Err(ProtocolError::new(Code::SubscriptionDuplicate, text));
        }
        let subscriptions_max = self.turn.config.max_subscriptions;
        if self.connections.table.get(key).is_some_and(|conn| conn.subscriptions.len() >= subscriptions_max) {
            let text = format!("max_subscriptions is {subscriptions_max}");
            return Err(ProtocolError::new(Code::SubscriptionCount, text));
        }
        Ok(())
    }

    /// What shows the state of the broker is for peers on the same machine, as long as nobody has to log in.
    pub(super) fn require_local(&self, key: ConnKey) -> Result<(), ProtocolError> {
        match self.connections.table.get(key).is_none_or(|conn| conn.peer.ip().to_canonical().is_loopback()) {
            true => Ok(()),
            false => {
                Err(ProtocolError::new(Code::Forbidden, "diagnostics are for peers on the loopback address"))
            }
        }
    }

    /// The name of a durable subscription, which counts within the connection's login and client-id.
    pub(super) fn durable_name(&self, key: ConnKey, name: &[u8]) -> Box<[u8]> {
        let scope = self.connections.table.get(key).and_then(|conn| conn.scope.as_deref());
        [b"durable\n", scope.unwrap_or_default(), b"\n", name].concat().into()
    }

    fn wire_format(&self, key: ConnKey) -> Option<WireFormat> {
        let conn = self.connections.table.get(key)?;
        Some(WireFormat {
            framing: conn.framing(),
            version: conn.protocol.session.version(),
            without: NOBODY,
        })
    }

    /// The number under which a connection's messages travel.
    fn sender(&self, key: ConnKey) -> u64 {
        self.connections.table.get(key).map_or(NOBODY, |conn| conn.id)
    }

    /// How a subscription to a topic is served.
    fn wire_format_of(&self, key: ConnKey, options: &SubscribeOptions) -> Option<WireFormat> {
        let without = if options.no_local { self.sender(key) } else { NOBODY };
        Some(WireFormat { without, ..self.wire_format(key)? })
    }

    fn list_subscription(&mut self, key: ConnKey, name: &[u8], index: SubscriptionIndex) {
        let hash = self.subscription_hash(name);
        let (subscriptions, hasher) = (&self.router.subscriptions, &self.connections.subscription_hasher);
        if let Some(conn) = self.connections.table.get_mut(key) {
            let rehash = |&at: &SubscriptionIndex| hasher.hash_one(&*subscriptions[at as usize].id);
            conn.subscriptions.insert_unique(hash, index, rehash);
        }
        self.count_names();
        self.turn.budget.change(1);
    }

    pub(super) fn subscribe_topic(
        &mut self,
        key: ConnKey,
        destination: &[u8],
        wanted: &Wanted<'_>,
        options: &SubscribeOptions,
        receipt: Option<&[u8]>,
    ) -> Result<(), ProtocolError> {
        let Some(wire_format) = self.wire_format_of(key, options) else { return Ok(()) };
        let full = self.connections.table.get(key).is_some_and(|conn| conn.output.full_since_ms.is_some());
        let others = self.turn.shards - 1;
        let has_replay = self.may_replay();
        let slow_consumer = self.own_policy(key, options)?;
        let has_queue = has_replay
            || slow_consumer.is_some()
            || wanted.ack != AckMode::Auto
            || self.router.kind(destination) == Kind::TemporaryTopic;
        let own_queue = has_queue.then(|| self.queues.home.create(destination, QueueKind::Private));
        // Frames that were encoded before belong to those who were members before.
        self.distribute();
        let queues = self.queues_everywhere();
        let who = (key, wanted.id, wanted.ack);
        let (found, change) = match self.router.subscribe(destination, who, wire_format, own_queue, queues) {
            Ok(done) => done,
            Err(error) => {
                own_queue.into_iter().for_each(|queue| self.queues.home.delete(queue));
                return Err(error);
            }
        };
        if wanted.id.is_none() {
            // By the name that its owner uses, as the destination may be a temporary one.
            self.router.subscriptions[found.index as usize].id = wanted.name().into();
        }
        self.list_subscription(key, wanted.name(), found.index);
        if let Some(queue) = own_queue {
            let mut credit =
                self.add_consumer_state(key, found, wanted, options, Feed::One(self.turn.id), Some(queue));
            if let Some(consumer) = self.queues.consumers.get_mut(found) {
                consumer.slow_consumer = slow_consumer;
                if has_replay {
                    // What it starts from stands before its RECEIPT, so bytes do not hold it back.
                    let lent = if wanted.ack == AckMode::Auto { Credit::UNLIMITED - credit.bytes } else { 0 };
                    credit.bytes += lent;
                    consumer.initial_replay = Some(InitialReplay::new(others + 1, lent));
                    self.queues.home.hold_live_back(queue);
                }
            }
            self.queues.home.attach(queue, Subscriber { shard: self.turn.id, key: found }, credit);
        }
        // Where nobody waits for the answer, the news is enough, and only the first subscription is news. A RECEIPT
        // asks everybody even so: the news of an earlier subscription may still be on its way.
        let newcomer = Newcomer { key: found, without: wire_format.without };
        let backlog = has_replay.then_some(newcomer);
        // While it catches up its own shard's answer is not at hand either.
        let own = if has_replay { 0 } else { self.turn.id.bit() };
        let to = receipt.map(|_| self.ask(key, receipt, self.all_shards() & !own));
        if has_replay {
            self.await_replay(destination, self.turn.id, newcomer, to.map(AnswerTo::requester));
        }
        if others > 0 && (to.is_some() || change == InterestChange::Changed || backlog.is_some()) {
            self.tell_interest(destination, to, backlog);
        }
        self.note_width_of(found.index);
        if full {
            // Behind the interest: what a shard hears of an entry that it does not have is lost.
            self.change_full_of(found.index, Holdup::Outbox, true);
        }
        Ok(())
    }

    /// The policy that a subscription asks for, if it is not the server's; `block` only changes its connection's patience.
    fn own_policy(
        &mut self,
        key: ConnKey,
        options: &SubscribeOptions,
    ) -> Result<Option<SlowConsumer>, ProtocolError> {
        match (options.slow_consumer, self.turn.config.slow_consumer) {
            (Some(SlowConsumer::Block(asked)), SlowConsumer::Block(_)) => {
                if let Some(conn) = self.connections.table.get_mut(key) {
                    let asked_ms = u64::try_from(asked.as_millis()).unwrap_or(u64::MAX);
                    conn.output.patience_ms = conn.output.patience_ms.min(asked_ms);
                }
                Ok(None)
            }
            (Some(SlowConsumer::Block(_)), _) => {
                let allowed = "drop-oldest, drop-newest or disconnect: this server does not block publishers";
                Err(options::bad_value(header::SLOW_CONSUMER, b"block", allowed))
            }
            (asked, own) => Ok(asked.filter(|asked| *asked != own)),
        }
    }

    pub(super) fn subscribe_named(
        &mut self,
        key: ConnKey,
        destination: &[u8],
        kind: QueueKind,
        wanted: &Wanted<'_>,
        options: &SubscribeOptions,
        receipt: Option<&[u8]>,
    ) -> Result<(), ProtocolError> {
        let source = match self.router.parse(destination)? {
            Some(_) => Source::Pattern(destination.into()),
            None => Source::Queue(destination.into(), kind),
        };
        self.subscribe_queue(key, wanted, options, source, receipt)
    }

    /// Adds a consumer, and tells the homes of what it consumes.
    fn subscribe_queue(
        &mut self,
        key: ConnKey,
        wanted: &Wanted<'_>,
        options: &SubscribeOptions,
        source: Source,
        receipt: Option<&[u8]>,
    ) -> Result<(), ProtocolError> {
        let feed = match &source {
            Source::Queue(name, QueueKind::Temporary) => Feed::One(self.home_of_temporary(name)),
            Source::Queue(name, _) | Source::Durable { name, .. } => Feed::One(self.router.home(name)),
            Source::Pattern(_) => Feed::All,
        };
        let shards = match (&source, feed) {
            (Source::Queue(..), Feed::One(home)) => home.bit(),
            // A durable one: its home's answer, and of all others that they know of the home's interest.
            _ => self.all_shards(),
        };
        let found = self.router.subscribe_queue(key, wanted.name(), wanted.ack);
        self.list_subscription(key, wanted.name(), found.index);
        let credit = self.add_consumer_state(key, found, wanted, options, feed, None);
        let subscriber = Subscriber { shard: self.turn.id, key: found };
        let to = self.ask(key, receipt, shards);
        match (feed, source) {
            (Feed::One(home), source) => {
                let offender = crate::shard::describe(wanted.frame);
                let attach = Attach { subscriber, source, credit, requester: to.requester(), offender };
                self.tell(home, HomeNote::Attach(Box::new(attach)));
            }
            (Feed::All, Source::Pattern(pattern)) => self.tell_everyone(|| {
                let (source, offender) = (Source::Pattern(pattern.clone()), Offender::default()); // it is not refused
                let requester = to.requester();
                HomeNote::Attach(Box::new(Attach { subscriber, source, credit, requester, offender }))
            }),
            (Feed::All, _) => {}
        }
        Ok(())
    }

    /// Gives a subscription what it needs as a consumer. Returns its credit at the home of its one queue.
    fn add_consumer_state(
        &mut self,
        key: ConnKey,
        subscription: SubscriptionKey,
        wanted: &Wanted<'_>,
        options: &SubscribeOptions,
        feed: Feed,
        own_queue: Option<QueueKey>,
    ) -> Credit {
        let Some(wire_format) = self.wire_format(key) else { return Credit::default() };
        let mut prefix = Vec::new();
        encode::message_prefix(&mut prefix, wanted.id, wire_format.version);
        let messages = match (wanted.ack, options.prefetch.unwrap_or(self.turn.config.prefetch)) {
            (AckMode::Auto, _) | (_, 0) => Credit::UNLIMITED,
            (_, prefetch) => i64::from(prefetch),
        };
        let window = options.window_bytes.filter(|_| wanted.ack != AckMode::Auto);
        let bytes = window.map_or(WINDOW_BYTES, |bytes| i64::try_from(bytes).unwrap_or(Credit::UNLIMITED));
        let mut credit = Credit { messages, bytes };
        let shared_credit = (feed == Feed::All).then(|| {
            let all = if wanted.ack == AckMode::Auto { SHARED_MESSAGES } else { messages };
            let homes = self.turn.shards as i64;
            // Each home may exceed its part by one message, as one home may exceed the whole.
            let part_min = if window.is_some() { 1 } else { WINDOW_PART_MIN.min(bytes) };
            credit = Credit { messages: all / homes, bytes: (bytes / homes).max(part_min) };
            SharedCredit { available: all % homes, ..SharedCredit::default() }
        });
        let is_topic = self.router.kind(wanted.destination) == Kind::Topic;
        let durable = options.durable.as_ref().filter(|_| is_topic);
        let consumer = ConsumerState {
            key: subscription,
            conn: key,
            ack: wanted.ack,
            destination: wanted.destination.into(),
            feed,
            own_queue,
            durable: durable.map(|durable| self.durable_name(key, &durable.name)),
            wire_format,
            prefix: prefix.into(),
            number: self.queues.consumers.number_floor(),
            unacked: Unacked::default(),
            bytes_on_ack: window.is_some(),
            shared_credit,
            deliveries_max: options.max_deliveries.unwrap_or(u32::MAX),
            delay_ms: options.redelivery_delay.map_or(0, |delay| delay.as_millis() as u64),
            slow_consumer: None,
            armed: false,
            initial_replay: None,
            _weight: Weight::of::<ConsumerState>(),
        };
        self.queues.consumers.insert(Box::new(consumer));
        credit
    }

    fn home_of_temporary(&self, name: &[u8]) -> ShardId {
        crate::destination::home_in(name, Kind::TemporaryQueue, self.turn.shards).unwrap_or(self.turn.id)
    }

    pub(super) fn subscription_hash(&self, name: &[u8]) -> u64 {
        self.connections.subscription_hasher.hash_one(name)
    }

    /// Tells once that a trailing `*` of a dotted pattern reaches deeper than in other brokers.
    fn hint_at_deep_wildcard(&mut self, pattern: &[u8]) {
        let deep = self.turn.config.wildcards == Wildcards::Ancestor && pattern.ends_with(b".*");
        if deep && self.turn.totals.explained_wildcard.is_first() {
            self.turn.log(Level::Info, || {
                format!(
                    "'{}' matches whatever remains of a destination; wildcards=segment makes it one segment",
                    String::from_utf8_lossy(pattern)
                )
            });
        }
    }
}
