//! Subscribes to queues: creates a consumer, and tells the homes of its queues.

use super::Owners;
use super::subscribe::Wanted;
use crate::destination::Kind;
use crate::door::planted;
use crate::ids::{ConnKey, ShardId};
use crate::ids::{QueueKey, Subscriber, SubscriptionKey};
use crate::message::options::SubscribeOptions;
use crate::queue::QueueKind;
use crate::queue::consumer_state::{ConsumerState, Feed, SharedCredit};
use crate::queue::mail::{Attach, HomeNote, Source};
use crate::queue::types::Credit;
use crate::queue::unacked::Unacked;
use crate::text::Weight;
use stompica_proto::ProtocolError;
use stompica_proto::encode::{self, Offender};
use stompica_proto::session::AckMode;

/// Bytes that may wait in a consumer's outbox before it is sent more.
const WINDOW_BYTES: i64 = 256 << 10;
/// The minimum of it that each home of a pattern's queues gets.
const WINDOW_PART_MIN: i64 = 32 << 10;
/// Message credit granted to the homes of a pattern's queues with ack auto, where each message is settled as soon as
/// it is written.
const SHARED_MESSAGES: i64 = 256;

impl Owners<'_> {
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

    /// Adds a consumer, and tells the homes of its queues.
    pub(super) fn subscribe_queue(
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
            // For a durable one, its home answers, and all others confirm the home's interest.
            _ => self.turn.all_shards(),
        };
        let found = self.router.subscribe_queue(key, wanted.name(), wanted.ack);
        self.list_subscription(key, wanted.name(), found.index);
        let credit = self.add_consumer_state(key, found, wanted, options, feed, None);
        let subscriber = Subscriber { shard: self.turn.id, key: found };
        let to = self.connections.ask(self.turn, key, receipt, shards);
        match (feed, source) {
            (Feed::One(home), source) => {
                let offender = crate::connection::answering::describe(wanted.frame);
                let requester = to.requester();
                let without_backlog = wanted.without_backlog.cloned();
                let attach = Attach { subscriber, source, credit, requester, offender, without_backlog };
                self.notes.tell(home, HomeNote::Attach(Box::new(attach)));
            }
            (Feed::All, Source::Pattern(pattern)) => self.notes.tell_everyone(|| {
                let (source, offender) = (Source::Pattern(pattern.clone()), Offender::default()); // a pattern is not refused
                let requester = to.requester();
                let without_backlog = None;
                HomeNote::Attach(Box::new(Attach {
                    subscriber,
                    source,
                    credit,
                    requester,
                    offender,
                    without_backlog,
                }))
            }),
            (Feed::All, _) => {}
        }
        Ok(())
    }

    /// Adds the consumer state of a subscription. Returns its credit at the home of its one queue.
    pub(super) fn add_consumer_state(
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
            (_, prefetch) => i64::from(prefetch) + i64::from(planted!("prefetch-plus-one")),
        };
        let window = options.window_bytes.filter(|_| wanted.ack != AckMode::Auto);
        let bytes = window.map_or(WINDOW_BYTES, |bytes| i64::try_from(bytes).unwrap_or(Credit::UNLIMITED));
        let mut credit = Credit { messages, bytes };
        let shared_credit = (feed == Feed::All).then(|| {
            let all = if wanted.ack == AckMode::Auto { SHARED_MESSAGES } else { messages };
            let homes = self.turn.shards as i64;
            // Each home may exceed its part by one message, as a single home may exceed the whole.
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
            durable: durable.map(|durable| self.durable_name(key, &durable.name).into()),
            wire_format,
            prefix: prefix.into(),
            number: self.queues.consumers.number_floor(),
            unacked: Unacked::default(),
            timed_out: 0,
            bytes_on_ack: window.is_some(),
            shared_credit,
            deliveries_max: options.max_deliveries.unwrap_or(u32::MAX),
            delay_ms: options.redelivery_delay.map_or(0, |delay| delay.as_millis() as u64),
            slow_consumer: None,
            ends: false,
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
}
