//! SEND with options, to a queue, or in a transaction (STOMP 1.2, "SEND"). The plain SEND to a topic is in `frame.rs`.
//!
//! A message to a queue is copied once, at its exact size, and moves to the home of its queue.

use stompica_proto::encode::Message;
use stompica_proto::error::Code;
use stompica_proto::{Frame, ProtocolError, header};

use super::Owners;
use super::frame::{Sent, To};
use crate::collections::paged_deque::PagedDeque;
use crate::connection::flow::Flow;
use crate::connection::pausing::Pause;
use crate::connection::transaction::Operation;
use crate::destination::Kind;
use crate::ids::ConnKey;
use crate::log::Level;
use crate::message::OwnedMessage;
use crate::message::options::{self, Retain, SendOptions};
use crate::queue::mail::{HomeNote, RecordNote};
use crate::router::Destination;
use crate::router::reach::Reach;

impl Owners<'_> {
    /// Handles a SEND that is not a plain message to a topic: it has options, goes to a queue, or waits for COMMIT.
    #[inline(never)]
    pub(super) fn send_other(
        &mut self,
        key: ConnKey,
        frame: &Frame<'_>,
        sent: &Sent<'_>,
        headers: &mut Vec<u8>,
        to: To<'_>,
    ) -> Result<Flow, ProtocolError> {
        let options = match sent.options {
            true => self.send_options(key, frame, to.kind, headers)?,
            false => SendOptions::default(),
        };
        let is_stored = options.persistent || options.retain == Some(Retain::Set);
        if to.destination.is_recorded {
            self.require_room(true)?;
        }
        if (is_stored && self.queues.home.store.is_far_behind())
            || (to.destination.is_recorded && self.queues.recorded.is_far_behind())
        {
            self.connections.park(self.turn, key, Pause::Store);
            return Ok(Flow::Parked);
        }
        if to.kind.is_reserved() {
            return self.send_query(key, frame, sent, to.name, headers);
        }
        let mut message = sent.message(to.name, b"", headers);
        message.expires_ms = options.expires_ms;
        if let Some(transaction) = sent.transaction {
            self.require_transaction(key, transaction)?;
            let pause =
                self.delivery().pause_for_memory(key, &to.load(&Reach::default(), sent.body.len(), true));
            if let Some(flow) = self.pause_or_pass(key, pause) {
                return Ok(flow);
            }
            let id = self.next_id();
            message.id = &id;
            let operation = Operation::Send(OwnedMessage::with_options(&message, &options), options.retain);
            self.keep_for_commit(key, transaction, operation)?;
            if sent.receipt.is_some() {
                self.connections.receipt(self.turn, key, sent.receipt);
            }
            return Ok(Flow::Done);
        }
        let reach = self.router.reach_of_any(to.destination, self.turn.id);
        let kept = options.retain.is_some();
        if let Some(flow) = self.pause_send(key, &to.load(&reach, sent.body.len(), kept)) {
            return Ok(flow);
        }
        let id = self.next_id();
        message.id = &id;
        if options.sets_value(self.turn.now_ms)
            && !self.queues.retained.reserve_ahead(self.turn.config.max_retained)
        {
            // Its home has to decide whether this is a new value of a known topic; nothing takes effect before.
            let mut operations = PagedDeque::default();
            operations
                .push_back(Operation::Send(OwnedMessage::with_options(&message, &options), options.retain));
            return Ok(self.commit_operations(key, operations, frame));
        }
        if to.kind.is_topic() {
            return Ok(self.send_to_topic(key, &message, to, &reach, &options, sent.receipt));
        }
        self.send_to_queue(
            key,
            OwnedMessage::with_options(&message, &options),
            to.destination,
            sent.receipt,
        )?;
        Ok(Flow::Done)
    }

    /// Parses the options in a SEND's headers, and handles those that take effect before it is sent.
    fn send_options(
        &mut self,
        key: ConnKey,
        frame: &Frame<'_>,
        kind: Kind,
        headers: &mut Vec<u8>,
    ) -> Result<SendOptions, ProtocolError> {
        options::require_built_send(frame, kind)?;
        let options = options::send_options(frame, self.turn.now_ms, self.turn.wall_ms())?;
        if options.retain.is_some() && kind != Kind::Topic {
            let value = frame.header(header::RETAIN).unwrap_or_default();
            return Err(options::bad_value(
                header::RETAIN,
                &value,
                "no such header unless the destination is a topic",
            ));
        }
        if let Some(reply_to) = &options.reply_to {
            self.rewrite_reply_to(key, frame, reply_to, headers)?;
        }
        if options.persistent || options.retain == Some(Retain::Set) {
            self.require_room(false)?;
        }
        if options.persistent
            && !self.queues.home.store.is_durable()
            && self.turn.totals.warned_of_memory.is_first()
        {
            self.turn.log(Level::Warn, || {
                "persistent:true was requested; with store=memory a RECEIPT means accepted, not stored"
                    .to_owned()
            });
        }
        Ok(options)
    }

    /// Refuses what the store, or the recording, cannot take.
    ///
    /// # Errors
    /// `E-STORE-FULL`, `E-STORE-IO`.
    fn require_room(&mut self, in_recording: bool) -> Result<(), ProtocolError> {
        let accepted = match in_recording {
            true => self.queues.recorded.accepts(),
            false => self.queues.home.store.accepts(),
        };
        if accepted.as_ref().is_err_and(|error| error.code == Code::StoreFull)
            && self.turn.totals.warned_of_full_disk.is_first()
        {
            self.turn.log(Level::Warn, || {
                "the disk of the store is full: messages to be stored or recorded are refused until there is room"
                    .to_owned()
            });
        }
        accepted
    }

    fn send_to_topic(
        &mut self,
        key: ConnKey,
        message: &Message<'_>,
        to: To<'_>,
        reach: &Reach,
        options: &SendOptions,
        receipt: Option<&[u8]>,
    ) -> Flow {
        if to.destination.is_recorded && !options.has_expired(self.turn.now_ms) {
            return self.send_to_recorded(key, message, to, options, receipt);
        }
        let mut going = None;
        if options.has_expired(self.turn.now_ms) {
            self.turn.counters.expired += 1;
        } else {
            going = self.delivery().publish(message, to.destination, reach);
            if options.persistent {
                self.queues.home.store.add_concerned(reach.remote); // durable subscriptions may have it there
            }
            // Retained messages are stored separately.
            if options.retain != Some(Retain::Set) && self.queue().waits_for_subscriber(to.destination) {
                self.notes.tell(to.home, HomeNote::Stale(OwnedMessage::with_options(message, options)));
            }
        }
        if options.retain.is_none() {
            let Some(fan_out) = going else {
                self.receipt(key, receipt);
                return Flow::Done;
            };
            let answer_to = self.connections.ask(self.turn, key, receipt, self.turn.id.bit());
            self.await_stores(answer_to);
            return self.delivery().await_fan_out(key, fan_out, answer_to.requester());
        }
        let answer_to = self.connections.ask(self.turn, key, receipt, to.home.bit());
        let requester = answer_to.requester();
        self.await_stores(answer_to);
        if receipt.is_none() && to.home == self.turn.id && self.queues.home.store.is_durable() {
            // Its change is stored behind this frame: a later DISCONNECT has to wait for that.
            self.connections.may_be_refused_by(key, to.home.bit());
        }
        let flow =
            going.map_or(Flow::Done, |fan_out| self.delivery().await_fan_out_too(key, fan_out, answer_to));
        let set = options.sets_value(self.turn.now_ms);
        let owned = OwnedMessage::with_options(message, options);
        self.notes.tell(to.home, HomeNote::Retain(owned, set, Some(requester)));
        flow
    }

    /// Passes a message to the home of its topic, which numbers, records and publishes it.
    fn send_to_recorded(
        &mut self,
        key: ConnKey,
        message: &Message<'_>,
        to: To<'_>,
        options: &SendOptions,
        receipt: Option<&[u8]>,
    ) -> Flow {
        let answer_to = self.connections.ask(self.turn, key, receipt, to.home.bit());
        let owned = OwnedMessage::with_options(message, options);
        let note = match options.retain {
            None => RecordNote::Publish(owned, Some(answer_to.requester())),
            Some(_) => RecordNote::PublishRetained(owned, Some(answer_to.requester())),
        };
        self.notes.tell(to.home, note);
        if options.retain.is_some() {
            let set = options.sets_value(self.turn.now_ms);
            self.connections.await_more(answer_to, 1);
            let value = OwnedMessage::with_options(message, options);
            self.notes.tell(to.home, HomeNote::Retain(value, set, Some(answer_to.requester())));
        }
        Flow::Done
    }

    fn send_to_queue(
        &mut self,
        key: ConnKey,
        message: OwnedMessage,
        destination: Destination,
        receipt: Option<&[u8]>,
    ) -> Result<(), ProtocolError> {
        self.turn.counters.messages_in += 1;
        let home = destination.home;
        if home == self.turn.id && !destination.is_recorded {
            self.queue().enqueue_at(message, destination).map_err(|(error, _)| error)?;
            self.receipt(key, receipt);
            return Ok(());
        }
        let requester = self.connections.ask(self.turn, key, receipt, home.bit()).requester();
        self.notes.tell(home, HomeNote::Enqueue(message, Some(requester)));
        Ok(())
    }
}
