//! Subscriptions that begin or stop to consume queues of this home: a single queue, a pattern, or a durable
//! subscription.

use stompica_proto::error::Code;
use stompica_proto::session::AckMode;
use stompica_proto::{ProtocolError, Version};

use super::durable::Binding;
use super::mail::{Attach, ConsumerNote, Source};
use super::notes::Local;
use super::replay::Newcomer;
use super::restored::definition;
use super::types::{Credit, Progress};
use super::{Owners, QueueKind};
use crate::collections::spread::give_back;
use crate::destination::Kind;
use crate::door::planted;
use crate::ids::ConnKey;
use crate::ids::{NO_RECORD, QueueKey, Subscriber};
use crate::requester::AnswerTo;
use crate::router::group::{Framing, WireFormat};
use crate::store::DEFINITIONS;

/// A queue with so many consumers gets no more of them while memory is full.
const LATE_CONSUMERS: u32 = 16;

/// Whether a subscription has everything that its RECEIPT confirms.
#[derive(Debug)]
enum Attached {
    /// It has everything.
    Now,
    /// The answer follows when all homes have sent their stale and retained messages to this queue.
    Later(QueueKey),
    /// The answer follows when the stale messages of these worker topics have been delivered.
    Behind(Box<[u8]>),
}

impl Owners<'_> {
    /// Attaches a subscription to its source, and answers it.
    pub(super) fn attach(&mut self, attach: Attach) {
        let Attach { subscriber, source, credit, requester, offender, without_backlog } = attach;
        if let Some(refusal) = without_backlog.filter(|_| !self.has_backlog(&source)) {
            return self.notes.answer(requester, Err((refusal, offender)));
        }
        match self.attach_to(source, subscriber, credit, requester.to()) {
            Ok(Attached::Now) => self.answer(requester, Ok(())),
            Ok(Attached::Behind(name)) => self.revive(&name, subscriber, requester),
            Ok(Attached::Later(queue)) => match self.queues.bindings.get_mut(&queue) {
                Some(binding) => binding.requesters.push(requester),
                None => self.notes.answer(requester, Ok(())),
            },
            Err(error) => self.notes.answer(requester, Err((error, offender))),
        }
    }

    /// # Errors
    /// `E-DEST-COUNT`; for durable subscriptions `E-DURABLE-IN-USE`, `E-DURABLE-OTHER`, `E-DEST-INVALID`.
    fn attach_to(
        &mut self,
        source: Source,
        subscriber: Subscriber,
        credit: Credit,
        to: AnswerTo,
    ) -> Result<Attached, ProtocolError> {
        let mut attached = Attached::Now;
        match source {
            Source::Queue(name, kind) => {
                let queue = match self.queues.home.find(&name) {
                    Some(queue) => queue,
                    // Only its owner creates it, and it is removed with its owner.
                    None if kind == QueueKind::Temporary => return Ok(Attached::Now),
                    None => self.create_queue(&name, kind)?,
                };
                self.queues.home.attach(queue, subscriber, credit);
                if kind == QueueKind::Worker {
                    attached = Attached::Behind(name);
                }
            }
            Source::Pattern(pattern) => {
                self.queues.home.attach_pattern(&pattern, subscriber, credit);
                if self.router.kind(&pattern) == Kind::WorkerTopic {
                    attached = Attached::Behind(pattern);
                }
            }
            Source::Durable { name, topic, shared, without } => {
                let waits = self.queues.home.find(&name).is_some() && to.awaited;
                let queue;
                (queue, attached) = self.durable(&name, &topic, (shared, without), to)?;
                if waits && !planted!("durable-credit-early") {
                    // Kept messages follow the RECEIPT: it has no credit until that has been sent.
                    let consumer = self.queues.home.attach(queue, subscriber, Credit::default());
                    let credit = Progress { queue, consumer, settled: 0, settled_bytes: 0, credit };
                    self.tell(subscriber.shard, ConsumerNote::Opens(to.conn, to.token, credit));
                } else {
                    self.queues.home.attach(queue, subscriber, credit);
                    self.dispatch_at_once(queue);
                }
            }
        }
        Ok(attached)
    }

    /// Whether a consumer can free memory: messages wait in its queue, and few others consume it.
    fn has_backlog(&self, source: &Source) -> bool {
        let (Source::Queue(name, _) | Source::Durable { name, .. }) = source else { return false };
        let queue = self.queues.home.find(name).and_then(|key| self.queues.home.queue(key));
        queue.is_some_and(|queue| queue.has_pending() && queue.holders() < LATE_CONSUMERS)
    }

    /// The queue of a durable subscription, created and bound to its topic if necessary.
    fn durable(
        &mut self,
        name: &[u8],
        topic: &[u8],
        (shared, without): (bool, u64),
        to: AnswerTo,
    ) -> Result<(QueueKey, Attached), ProtocolError> {
        if let Some(queue) = self.queues.home.find(name) {
            let bound_to = self.queues.bindings.get(&queue).map(|binding| &*binding.topic);
            if bound_to != Some(topic) {
                let other = String::from_utf8_lossy(bound_to.unwrap_or_default()).into_owned();
                let text =
                    format!("the durable subscription is one to '{other}'; end it first by UNSUBSCRIBE");
                return Err(ProtocolError::new(Code::DurableOther, text));
            }
            let held = self.queues.home.queue(queue).filter(|queue| queue.holders() > 0);
            if held
                .filter(|_| !planted!("durable-in-use-ignored"))
                .is_some_and(|queue| !shared || queue.kind == QueueKind::Durable { shared: false })
            {
                let text = "the durable subscription has an active holder, and is not one to be shared";
                return Err(ProtocolError::new(Code::DurableInUse, text));
            }
            if self.queues.home.set_shared(queue, shared) {
                self.define(queue, name, shared);
            }
            if let Some(binding) = self.queues.bindings.get(&queue).map(|binding| binding.subscription) {
                self.router.leave_out(binding, without);
            }
            let topic = self.router.shared_text(topic);
            self.notes.leave(Local::Announce { topic, to: Some(to), newcomer: None });
            return Ok((queue, Attached::Now));
        }
        let queue = self.create_queue(name, QueueKind::Durable { shared })?;
        // This group writes to no connection: its messages go to the queue.
        let wire_format = WireFormat { framing: Framing::Stomp, version: Version::V1_2, without };
        let nobody = (ConnKey::NONE, None, AckMode::Auto);
        match self.router.subscribe(topic, nobody, wire_format, Some(queue), Some(self.queues_everywhere())) {
            Ok((binding, _)) => {
                // Each home answers once; the last requester is the caller's own.
                let requesters = (1..self.turn.shards).map(|_| to.requester()).collect();
                let topic_text = topic.into();
                let binding_of = Binding {
                    subscription: binding,
                    topic: topic_text,
                    requesters,
                    record: NO_RECORD,
                    since: NO_RECORD,
                };
                self.queues.bindings.insert(queue, binding_of);
                self.define(queue, name, shared);
                let newcomer = Newcomer { key: binding, without };
                let shared = self.router.shared_text(topic);
                self.notes.leave(Local::Announce { topic: shared, to: None, newcomer: Some(newcomer) });
                self.await_replay(topic, self.turn.id, newcomer, None);
                Ok((queue, Attached::Later(queue)))
            }
            Err(error) => {
                self.queues.home.delete(queue);
                self.count_queues();
                Err(error)
            }
        }
    }

    /// Keeps the definition of a durable subscription in the store, in place of the one before.
    fn define(&mut self, queue: QueueKey, name: &[u8], shared: bool) {
        let Some(binding) = self.queues.bindings.get_mut(&queue) else { return };
        let mut definition = definition(name, &binding.topic, shared, binding.since);
        self.queues.home.store.keep(DEFINITIONS, &mut definition);
        if binding.since == NO_RECORD {
            binding.since = definition.record;
        }
        let before = std::mem::replace(&mut binding.record, definition.record);
        self.queues.home.store.forget(before);
    }

    /// Ends a durable subscription and drops its messages.
    ///
    /// # Errors
    /// `E-SUB-UNKNOWN`.
    pub(super) fn end_durable(&mut self, name: &[u8]) -> Result<(), ProtocolError> {
        let bound =
            self.queues.home.find(name).and_then(|queue| Some((queue, self.queues.bindings.remove(&queue)?)));
        let Some((queue, binding)) = bound else {
            let text = "there is no durable subscription of this name";
            return Err(ProtocolError::new(Code::SubscriptionUnknown, text));
        };
        give_back(&mut self.queues.bindings);
        self.queues.home.store.forget(binding.record);
        if planted!("durable-interest-left") {
            self.queues.home.delete(queue);
            return Ok(());
        }
        self.queues.home.delete(queue);
        self.count_queues();
        self.notes.leave(Local::Unbind(binding.subscription));
        if !binding.requesters.is_empty() && planted!("durable-askers-forgotten") {
            return Ok(());
        }
        // Its subscription is complete, and no further initial replay follows.
        binding.requesters.into_iter().for_each(|requester| self.notes.answer(requester, Ok(())));
        Ok(())
    }

    /// Records that one more home has completed the initial replay of a durable subscription: one more answer for the
    /// RECEIPT of its holder, after the messages that its queue can deliver.
    pub(crate) fn durable_replay_ended(&mut self, queue: QueueKey) {
        let binding = self.queues.bindings.get_mut(&queue);
        if let Some(requester) = binding.and_then(|binding| binding.requesters.pop()) {
            self.dispatch_at_once(queue);
            self.answer_when_saved(requester, 0);
        }
    }
}
