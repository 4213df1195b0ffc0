//! The number of messages that a queue would deliver at once: the credit of its consumers minus the pending messages.

use std::hash::BuildHasher as _;

use super::Owners;
use super::home::Home;
use super::mail::MemoryNote;
use super::types::{Consumed, Consumer, Taker};
use crate::destination::Kind;
use crate::ids::{ConsumerKey, PatternKey, QueueKey, ShardId};

/// The maximum number of consumers of one queue that are checked.
const CONSUMERS_MAX: usize = 16;

/// The messages that would reach a consumer at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allowance {
    /// The number of messages.
    pub messages: i64,
    /// Their size in bytes; the last message may exceed it.
    pub bytes: i64,
}

impl Allowance {
    /// The maximum allowance, because several senders may use the same credit.
    pub const MOST: Allowance = Allowance { messages: 256, bytes: 1 << 20 };

    fn add(&mut self, consumer: &Consumer) {
        let credit = consumer.credit;
        if credit.is_left() {
            self.messages += credit.messages.min(Self::MOST.messages);
            self.bytes += credit.bytes.min(Self::MOST.bytes);
        } else if matches!(consumer.consumed, Consumed::Pattern(_))
            && !consumer.has_requested
            && credit.bytes > 0
        {
            // It has not requested credit from other homes yet.
            self.messages += 1;
            self.bytes += credit.bytes.min(Self::MOST.bytes);
        }
    }

    fn bounded(self) -> Option<Allowance> {
        (self.messages > 0 && self.bytes > 0).then(|| Allowance {
            messages: self.messages.min(Self::MOST.messages),
            bytes: self.bytes.min(Self::MOST.bytes),
        })
    }
}

impl Home {
    /// The allowance of a queue; `None` if the next message would be kept.
    #[must_use]
    pub fn allowance(&mut self, key: QueueKey) -> Option<Allowance> {
        if self.queues.get(key)?.patterns_as_of != self.patterns.generation {
            self.match_patterns(key);
        }
        let queue = self.queues.get(key)?;
        if !queue.barriers.is_empty() || queue.older.is_some() || queue.picking.is_some() {
            return None;
        }
        let mut sum = Allowance::default();
        for taker in queue.ready.iter().take(CONSUMERS_MAX) {
            match taker {
                Taker::One(consumer) => self.sum_consumer(*consumer, &mut sum),
                Taker::Pattern(pattern) => self.sum_pattern(*pattern, &mut sum),
            }
        }
        sum.messages -= i64::try_from(queue.pending.len()).unwrap_or(i64::MAX);
        sum.bytes -= i64::try_from(queue.pending.bytes()).unwrap_or(i64::MAX);
        sum.bounded()
    }

    /// Does the same for a queue that does not exist yet.
    pub fn allowance_of_new(&mut self, name: &[u8]) -> Option<Allowance> {
        let mut sum = Allowance::default();
        for pattern in self.patterns.matching(name, &mut self.visited) {
            self.sum_pattern(pattern, &mut sum);
        }
        sum.bounded()
    }

    fn sum_pattern(&self, pattern: PatternKey, sum: &mut Allowance) {
        let consumers = self.patterns.get(pattern).map(|pattern| pattern.ring.iter().take(CONSUMERS_MAX));
        consumers.into_iter().flatten().for_each(|consumer| self.sum_consumer(*consumer, sum));
    }

    fn sum_consumer(&self, consumer: ConsumerKey, sum: &mut Allowance) {
        if let Some(consumer) = self.consumers.get(consumer) {
            sum.add(consumer);
        }
    }
}

impl Owners<'_> {
    /// The allowance for SENDs to a name whose home is here, while memory is short.
    pub(crate) fn allowance_of(&mut self, name: &[u8]) -> Option<Allowance> {
        let drops_unmatched = self.turn.config.ttl_ms == 0;
        let allowance = match (self.queues.home.find(name), self.router.kind(name)) {
            (Some(queue), Kind::WorkerTopic)
                if drops_unmatched
                    && self
                        .queues
                        .home
                        .queue(queue)
                        .is_some_and(|queue| self.queues.home.consumers_of(queue) == 0) =>
            {
                Some(Allowance::MOST)
            }
            (Some(queue), _) => self.queues.home.allowance(queue),
            // It was removed with its owner, and messages to it are dropped.
            (None, Kind::TemporaryQueue) => Some(Allowance::MOST),
            (None, Kind::WorkerTopic) if drops_unmatched && !self.queues.home.has_patterns() => {
                Some(Allowance::MOST)
            }
            (None, _) => self.queues.home.allowance_of_new(name),
        };
        self.count_visits();
        allowance
    }

    /// Answers another shard, on which SENDs to a queue of this home wait.
    pub(super) fn tell_allowance(&mut self, from: ShardId, name: &[u8]) {
        self.turn.budget.visit(1);
        if let Some(allowance) = self.allowance_of(name) {
            let hash = self.turn.hasher.hash_one(name);
            self.notes.tell(from, MemoryNote::AllowanceGrant(hash, allowance));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::QueueKind;
    use super::super::types::Credit;
    use super::*;
    use crate::config::Config;
    use crate::ids::{Subscriber, SubscriptionKey};
    use crate::message::OwnedMessage;
    use crate::store::Memory;

    fn message() -> OwnedMessage {
        OwnedMessage::new(&stompica_proto::encode::Message {
            destination: b"/queue/a",
            id: b"1",
            sender: 0,
            headers: b"",
            plain: true,
            expires_ms: 0,
            body: b"x",
        })
    }

    #[test]
    fn the_allowance_is_the_unused_credit() {
        let mut home = Home::new(&Config::default(), crate::door::HashState::default(), Box::new(Memory));
        let queue = home.create(b"/queue/a", QueueKind::Work);
        assert_eq!(home.allowance(queue), None, "it has no consumer");
        let key = SubscriptionKey { index: 0, generation: 1 };
        let subscriber = Subscriber { shard: ShardId(0), key };
        home.attach(queue, subscriber, Credit { messages: 2, bytes: 1000 });
        assert_eq!(home.allowance(queue), Some(Allowance { messages: 2, bytes: 1000 }));
        home.enqueue(queue, message());
        assert_eq!(home.allowance(queue).map(|it| it.messages), Some(1), "one message is pending");
        home.dispatch(10);
        assert_eq!(home.allowance(queue).map(|it| it.messages), Some(1));
        home.enqueue(queue, message());
        home.dispatch(10);
        home.enqueue(queue, message());
        home.dispatch(10);
        assert_eq!(home.allowance(queue), None, "no credit is left");
    }
}
