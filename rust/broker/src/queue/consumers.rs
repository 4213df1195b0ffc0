//! Who consumes what: subscriptions that come and go, queues that match a pattern.

use super::home::Home;
use super::parts::{Consumer, Credit, Queue};
use super::stored::DEAD_LETTERS;
use super::{ConsumerKey, QueueKey, QueueKind, Subscriber};
use crate::config::Compat;
use crate::router::destination::Kind;

/// Lists of consumers are rid of those that left once they are this much longer than they need to be.
const STALE_MAX: usize = 32;

impl Home {
    /// Adds a consumer of one queue, with all its credit.
    pub fn attach(&mut self, queue: QueueKey, subscriber: Subscriber, credit: Credit) -> ConsumerKey {
        let key = self.add_consumer(Consumer::new(subscriber, credit, None));
        self.join(queue, key);
        if let Some(queue) = self.queues.get_mut(queue) {
            queue.exact += 1;
        }
        key
    }

    /// Adds a consumer of every queue that a pattern matches, now or later, with its share of credit.
    pub fn attach_pattern(&mut self, pattern: &[u8], subscriber: Subscriber, credit: Credit) -> ConsumerKey {
        let key = self.add_consumer(Consumer::new(subscriber, credit, Some(pattern.into())));
        let slot = match self.patterns.get(pattern) {
            Some(slot) => *slot,
            None => {
                let slot = self.by_pattern.insert(Vec::new()) as u32;
                self.patterns.insert(pattern.into(), slot);
                if let Ok(Some(parsed)) = self.rules.parse(pattern) {
                    self.tree.insert(&parsed, slot);
                }
                slot
            }
        };
        self.by_pattern[slot as usize].push(key);
        for queue in self.matching(pattern) {
            self.join(queue, key);
        }
        key
    }

    fn add_consumer(&mut self, consumer: Consumer) -> ConsumerKey {
        let subscriber = consumer.subscriber;
        let key = self.consumers.insert(consumer);
        self.by_subscriber.insert(subscriber, key);
        key
    }

    /// The queues that a pattern matches.
    fn matching(&self, pattern: &[u8]) -> Vec<QueueKey> {
        let Ok(Some(parsed)) = self.rules.parse(pattern) else { return Vec::new() };
        self.queues
            .iter()
            .filter(|(_, queue)| {
                queue.kind.is_named() && may_match(pattern, &queue.name) && parsed.matches(&queue.name)
            })
            .map(|(key, _)| key)
            .collect()
    }

    /// Lets all consumers of matching patterns consume a new queue. Each new queue begins its round at another one,
    /// so that many queues with few messages each are shared evenly too.
    pub(super) fn attach_patterns(&mut self, key: QueueKey) {
        let Some(queue) = self.queues.get(key) else { return };
        let mut slots = Vec::new();
        self.tree.matching(&queue.name, &mut slots);
        let name = queue.name.clone();
        let mut found: Vec<ConsumerKey> = slots
            .iter()
            .flat_map(|slot| &self.by_pattern[*slot as usize])
            .filter(|at| {
                let consumer = self.consumers.get(**at);
                consumer.and_then(|it| it.pattern.as_deref()).is_some_and(|pattern| may_match(pattern, &name))
            })
            .copied()
            .collect();
        if found.is_empty() {
            return;
        }
        let first = self.rotation % found.len();
        self.rotation = self.rotation.wrapping_add(1);
        found.rotate_left(first);
        for consumer in found {
            self.join(key, consumer);
        }
    }

    fn join(&mut self, queue: QueueKey, consumer: ConsumerKey) {
        if let (Some(joined), Some(joining)) = (self.queues.get_mut(queue), self.consumers.get_mut(consumer))
        {
            joined.ready.push_back(consumer);
            joined.consumers += 1;
            joining.queues.push(queue);
            if joining.queues.len() > STALE_MAX && joining.queues.len().is_power_of_two() {
                joining.queues.retain(|at| self.queues.get(*at).is_some()); // queues come and go
            }
            self.touch(queue);
        }
    }

    /// Removes a consumer. What it holds is its own shard's to give back.
    pub fn detach(&mut self, subscriber: Subscriber) {
        let Some(key) = self.by_subscriber.remove(&subscriber) else { return };
        let Some(consumer) = self.consumers.remove(key) else { return };
        for at in &consumer.queues {
            let Some(queue) = self.queues.get_mut(*at) else { continue };
            queue.consumers -= 1;
            queue.exact -= u32::from(consumer.pattern.is_none());
            if queue.ready.len() > STALE_MAX + 2 * queue.consumers as usize {
                queue.ready.retain(|other| self.consumers.get(*other).is_some());
            }
            self.without_consumer(*at);
        }
        if let Some(pattern) = consumer.pattern {
            self.forget_pattern(&pattern, key);
        }
    }

    fn without_consumer(&mut self, key: QueueKey) {
        self.release_unmatched(key);
        if self.queues.get(key).is_some_and(Queue::is_idle) {
            self.became_idle(key);
        }
    }

    fn forget_pattern(&mut self, pattern: &[u8], key: ConsumerKey) {
        let Some(&slot) = self.patterns.get(pattern) else { return };
        let consumers = &mut self.by_pattern[slot as usize];
        consumers.retain(|at| *at != key);
        if consumers.is_empty() {
            self.by_pattern.remove(slot as usize);
            self.patterns.remove(pattern);
            if let Ok(Some(parsed)) = self.rules.parse(pattern) {
                self.tree.remove(&parsed, slot);
            }
        }
    }

    /// Whether a durable subscription may have several holders.
    pub fn set_shared(&mut self, key: QueueKey, shared: bool) {
        if let Some(queue) = self.queues.get_mut(key) {
            queue.kind = QueueKind::Durable { shared };
        }
    }
}

/// Whether a pattern may match a name at all: only its own kind, and dead-letter queues only when its own text begins
/// like theirs.
fn may_match(pattern: &[u8], name: &[u8]) -> bool {
    Kind::of(pattern, Compat::None) == Kind::of(name, Compat::None)
        && (!name.starts_with(DEAD_LETTERS) || pattern.starts_with(DEAD_LETTERS))
}
