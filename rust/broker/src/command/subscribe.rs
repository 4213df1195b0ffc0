//! SUBSCRIBE and UNSUBSCRIBE (STOMP 1.2, "SUBSCRIBE").
//!
//! A subscription to a topic is a member of a group, and gets the bytes that are encoded once for the group. One that
//! acknowledges has a private queue between the topic and itself; a durable one has a queue at its home; one to
//! queues is a consumer at their homes. The RECEIPT is sent once all shards concerned have confirmed.

use std::hash::BuildHasher as _;

use stompica_proto::error::Code;
use stompica_proto::session::AckMode;
use stompica_proto::{Frame, ProtocolError, header};

use super::Owners;
use crate::config::{SlowConsumer, Wildcards};
use crate::destination::Kind;
use crate::door::planted;
use crate::ids::Subscriber;
use crate::ids::{ConnKey, NOBODY};
use crate::log::Level;
use crate::message::options::{self, SubscribeOptions};
use crate::queue::QueueKind;
use crate::queue::consumer_state::{Feed, InitialReplay};
use crate::queue::mail::Source;
use crate::queue::replay::Newcomer;
use crate::queue::types::Credit;
use crate::requester::AnswerTo;
use crate::router::group::{SubscriptionIndex, WireFormat};
use crate::router::{Holdup, InterestChange};

/// A SUBSCRIBE as the session has parsed it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted<'a> {
    pub frame: &'a Frame<'a>,
    pub id: Option<&'a [u8]>,
    pub destination: &'a [u8],
    pub ack: AckMode,
    /// The refusal if there is no backlog that it could consume, because memory is full.
    pub without_backlog: Option<&'a ProtocolError>,
}

impl<'a> Wanted<'a> {
    /// The name by which the connection identifies the subscription.
    pub fn name(&self) -> &'a [u8] {
        self.id.unwrap_or(self.destination)
    }
}

impl Owners<'_> {
    /// Adds a subscription. It is active for the next frame of this connection.
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
        let refusal = self.require_memory_for_subscription(wanted.destination, wanted.name()).err();
        if let Some(refusal) = &refusal
            && !self.may_empty_queue(key, wanted.destination, wanted.name(), options.durable.is_some())?
        {
            return Err(refusal.clone());
        }
        let wanted = &Wanted { without_backlog: refusal.as_ref(), ..*wanted };
        let destination = self.name_to_subscribe_to(key, wanted.destination)?;
        if kind.is_reserved() {
            self.require_local(key)?;
        }
        self.router.parse(&destination)?;
        let now_ms = self.turn.wall_ms();
        if let Some(replay) = options::replay_options(wanted.frame, now_ms)? {
            return self.subscribe_replay(key, &destination, wanted, (&options, replay), receipt);
        }
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
        self.router.warn_of_dotted(self.turn, &destination);
        self.hint_at_deep_wildcard(&destination);
        Ok(())
    }

    pub(super) fn check_subscription(&self, key: ConnKey, name: &[u8]) -> Result<(), ProtocolError> {
        if self.find_subscription(key, name).is_some() {
            let text = format!("'{}' is in use on this connection", String::from_utf8_lossy(name));
            return Err(ProtocolError::new(Code::SubscriptionDuplicate, text));
        }
        let subscriptions_max =
            self.turn.config.max_subscriptions + usize::from(planted!("subscription-too-many"));
        if self.connections.table.get(key).is_some_and(|conn| conn.subscriptions.len() >= subscriptions_max) {
            let text = format!("max_subscriptions is {subscriptions_max}");
            return Err(ProtocolError::new(Code::SubscriptionCount, text));
        }
        Ok(())
    }

    /// Refuses diagnostics to peers on other machines, unless clients have to log in.
    pub(super) fn require_local(&self, key: ConnKey) -> Result<(), ProtocolError> {
        match self.connections.table.get(key).is_none_or(|conn| conn.peer.ip().to_canonical().is_loopback()) {
            true => Ok(()),
            false => {
                Err(ProtocolError::new(Code::Forbidden, "diagnostics are for peers on the loopback address"))
            }
        }
    }

    /// The full name of a durable subscription, which is unique within the connection's login and client-id.
    pub(super) fn durable_name(&self, key: ConnKey, name: &[u8]) -> Box<[u8]> {
        let scope = self
            .connections
            .table
            .get(key)
            .and_then(|conn| conn.scope.as_deref())
            .filter(|_| !planted!("durable-scope-ignored"));
        [b"durable\n", scope.unwrap_or_default(), b"\n", name].concat().into()
    }

    pub(super) fn wire_format(&self, key: ConnKey) -> Option<WireFormat> {
        let conn = self.connections.table.get(key)?;
        Some(WireFormat {
            framing: conn.framing(),
            version: conn.protocol.session.version(),
            without: NOBODY,
        })
    }

    /// The sender number of a connection's messages.
    fn sender(&self, key: ConnKey) -> u64 {
        self.connections.table.get(key).map_or(NOBODY, |conn| conn.id)
    }

    /// The wire format of a subscription to a topic.
    fn wire_format_of(&self, key: ConnKey, options: &SubscribeOptions) -> Option<WireFormat> {
        let without = if options.no_local { self.sender(key) } else { NOBODY };
        Some(WireFormat { without, ..self.wire_format(key)? })
    }

    pub(super) fn list_subscription(&mut self, key: ConnKey, name: &[u8], index: SubscriptionIndex) {
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
        let full = self.connections.table.get(key).is_some_and(|conn| conn.output.is_full());
        let others = self.turn.shards - 1;
        let has_replay = self.queue().may_replay();
        let slow_consumer = self.own_policy(key, options)?;
        let has_queue = has_replay
            || slow_consumer.is_some()
            || wanted.ack != AckMode::Auto
            || self.router.kind(destination) == Kind::TemporaryTopic;
        let own_queue = has_queue.then(|| self.queues.home.create(destination, QueueKind::Private));
        // Frames encoded before belong to the previous members.
        self.connections.distribute(self.turn);
        let queues = self.queue().queues_everywhere();
        let who = (key, wanted.id, wanted.ack);
        let (found, change) =
            match self.router.subscribe(destination, who, wire_format, own_queue, Some(queues)) {
                Ok(done) => done,
                Err(error) => {
                    own_queue.into_iter().for_each(|queue| self.queues.home.delete(queue));
                    return Err(error);
                }
            };
        if wanted.id.is_none() {
            // Its id is the name that the client uses, because the destination may be a temporary one.
            self.router.subscriptions[found.index as usize].id = wanted.name().into();
        }
        self.list_subscription(key, wanted.name(), found.index);
        if let Some(queue) = own_queue {
            let mut credit =
                self.add_consumer_state(key, found, wanted, options, Feed::One(self.turn.id), Some(queue));
            if wanted.ack != AckMode::Auto && planted!("topic-prefetch-ignored") {
                credit.messages = Credit::UNLIMITED;
            }
            if let Some(consumer) = self.queues.consumers.get_mut(found) {
                consumer.slow_consumer = slow_consumer;
                if has_replay {
                    // The initial replay comes before its RECEIPT, so it is not limited by bytes.
                    let lent = if wanted.ack == AckMode::Auto { Credit::UNLIMITED - credit.bytes } else { 0 };
                    credit.bytes += lent;
                    consumer.initial_replay = Some(InitialReplay::new(others + 1, lent));
                    self.queues.home.hold_live_back(queue);
                }
            }
            self.queues.home.attach(queue, Subscriber { shard: self.turn.id, key: found }, credit);
        }
        let newcomer = Newcomer { key: found, without: wire_format.without };
        let is_news = change == InterestChange::Changed;
        let is_early = full && planted!("full-before-interest");
        if is_early {
            self.delivery().change_full_of(found.index, Holdup::Outbox, true);
        }
        self.announce(key, destination, newcomer, (has_replay, is_news), receipt);
        if full && !is_early {
            // After the interest: a shard ignores a filter that it does not know.
            self.delivery().change_full_of(found.index, Holdup::Outbox, true);
        }
        Ok(())
    }

    /// Tells the other shards about a new subscription to a topic, requests its initial replay from all of them
    /// (`has_replay`), and lets its RECEIPT wait for their answers.
    ///
    /// Without a RECEIPT and a replay, only the first subscription (`is_news`) is reported. With a RECEIPT every
    /// shard answers: the report of an earlier subscription may still be on its way.
    fn announce(
        &mut self,
        key: ConnKey,
        destination: &[u8],
        newcomer: Newcomer,
        (has_replay, is_news): (bool, bool),
        receipt: Option<&[u8]>,
    ) {
        let replayed = has_replay.then_some(newcomer);
        // The own shard answers at once, unless it has messages to replay.
        let here = self.turn.id;
        let own = if has_replay { 0 } else { here.bit() };
        let shards = self.turn.all_shards() & !own;
        let to = receipt.map(|_| self.connections.ask(self.turn, key, receipt, shards));
        if has_replay {
            self.queue().await_replay(destination, here, newcomer, to.map(AnswerTo::requester));
        }
        if self.turn.shards > 1 && (to.is_some() || is_news || has_replay) {
            self.peers.tell_interest(self.router, destination, to, replayed);
        }
        let subscription = &self.router.subscriptions[newcomer.key.index as usize];
        if let Some(filter) = subscription.filter_index() {
            self.peers.tell_fan_out_size(self.router, filter);
        }
    }

    /// The policy that a subscription requests, if it differs from the server's; `block` only changes its
    /// connection's time limit.
    fn own_policy(
        &mut self,
        key: ConnKey,
        options: &SubscribeOptions,
    ) -> Result<Option<SlowConsumer>, ProtocolError> {
        match (options.slow_consumer, self.turn.config.slow_consumer) {
            (Some(SlowConsumer::Block(asked)), SlowConsumer::Block(_)) => {
                if let Some(conn) = self.connections.table.get_mut(key) {
                    let asked_ms = u32::try_from(asked.as_millis()).unwrap_or(u32::MAX);
                    conn.output.patience_ms = conn.output.patience_ms.min(asked_ms);
                }
                self.connections.rearm(self.turn, key); // its outbox may be full already
                Ok(None)
            }
            (Some(SlowConsumer::Block(_)), _) => {
                let allowed = "drop-oldest, drop-newest or disconnect: this server does not block publishers";
                Err(options::bad_value(header::SLOW_CONSUMER, b"block", allowed))
            }
            (asked, own) => Ok(asked.filter(|asked| *asked != own)),
        }
    }

    pub(super) fn subscription_hash(&self, name: &[u8]) -> u64 {
        self.connections.subscription_hasher.hash_one(name)
    }

    /// Logs once that a trailing `*` of a dotted pattern matches more levels than in other brokers.
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
