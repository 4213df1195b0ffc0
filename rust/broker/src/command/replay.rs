//! SUBSCRIBE with `replay-from`: the history of a recorded destination, and then its live messages.

use std::sync::Arc;

use stompica_proto::error::Code;
use stompica_proto::{ProtocolError, header};

use super::Owners;
use super::subscribe::Wanted;
use crate::connection::answering::describe;
use crate::destination::Kind;
use crate::ids::{ConnKey, Subscriber};
use crate::message::options::{ReplayOptions, SubscribeOptions};
use crate::queue::QueueKind;
use crate::queue::consumer_state::Feed;
use crate::queue::mail::RecordNote;
use crate::queue::types::Credit;
use crate::recorded::replay::Replay;

impl Owners<'_> {
    /// Adds a subscription with a queue of its own, which a replay feeds.
    ///
    /// # Errors
    /// `E-NOT-SUPPORTED` for a destination that is not recorded, and for what a replay cannot be combined with.
    pub(super) fn subscribe_replay(
        &mut self,
        key: ConnKey,
        destination: &[u8],
        wanted: &Wanted<'_>,
        (options, replay): (&SubscribeOptions, ReplayOptions),
        receipt: Option<&[u8]>,
    ) -> Result<(), ProtocolError> {
        let refuse = |header: &[u8], why: &str| {
            let text = format!("header '{}': {why}", String::from_utf8_lossy(header));
            Err(ProtocolError::new(Code::NotSupported, text))
        };
        let given =
            |names: [&'static [u8]; 2]| names.into_iter().find(|name| wanted.frame.raw(name).is_some());
        let name = given([b"replay-from", b"x-stream-offset"]).unwrap_or(b"replay-from");
        if self.router.parse(destination)?.is_some() {
            return refuse(name, "for one destination, not for a pattern");
        }
        let kind = self.router.kind(destination);
        let found = match kind {
            Kind::Topic | Kind::Queue => Some(self.router.destination_of(self.turn, destination)?),
            _ => None,
        };
        let Some(found) = found.filter(|found| found.is_recorded) else {
            return refuse(name, "the destination is not recorded; the setting record names those that are");
        };
        if options.durable.is_some() {
            return refuse(
                name,
                "not for a durable subscription; resume with replay-from:seq=NUMBER and epoch",
            );
        }
        if options.no_local {
            return refuse(
                header::NO_LOCAL,
                "not with replay-from: a recording does not know who sent a message",
            );
        }
        if options.slow_consumer.is_some() {
            return refuse(
                header::SLOW_CONSUMER,
                "not with replay-from: a slow replay reads on when it has room",
            );
        }
        let key_of_subscription = self.router.subscribe_queue(key, wanted.name(), wanted.ack);
        self.list_subscription(key, wanted.name(), key_of_subscription.index);
        let queue = self.queues.home.create(destination, QueueKind::Private);
        let feed = Feed::One(self.turn.id);
        let credit = self.add_consumer_state(key, key_of_subscription, wanted, options, feed, Some(queue));
        let subscriber = Subscriber { shard: self.turn.id, key: key_of_subscription };
        // It has no credit until its RECEIPT has been sent.
        let consumer = self.queues.home.attach(queue, subscriber, Credit::default());
        let to = self.connections.ask(self.turn, key, receipt, found.home.bit());
        let name: Arc<[u8]> = destination.into();
        let offender = describe(wanted.frame);
        let replay = Replay::new(
            Arc::clone(&name),
            key,
            (queue, consumer, (credit.messages, credit.bytes)),
            replay,
            (to.requester(), offender),
        );
        self.queues.recorded.replays.insert(key_of_subscription, replay);
        self.notes.tell(found.home, RecordNote::Watch(name, key_of_subscription));
        Ok(())
    }
}
