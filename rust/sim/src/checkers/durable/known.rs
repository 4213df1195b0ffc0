//! What is known of one durable subscription, although the effects of requests come some time after them.

use std::collections::BTreeSet;

use crate::events::{AckMode, ClientId, MessageId, Subscription, SubscriptionId};

/// The number of an event.
pub(super) type At = usize;

/// A client that holds, or asks to hold, a durable subscription.
#[derive(Debug)]
pub(super) struct Holder {
    pub(super) client: ClientId,
    pub(super) id: SubscriptionId,
    pub(super) ack: AckMode,
    pub(super) is_shared: bool,
    pub(super) has_receipt: bool,
    /// When it was requested.
    pub(super) at: At,
    pub(super) confirmed: Option<At>,
    /// When its client asked for its end.
    pub(super) left: Option<At>,
    /// When it certainly held no longer.
    pub(super) gone: Option<At>,
    /// Nobody else's request for the end could come after it.
    pub(super) is_alone: bool,
    /// The durable subscription existed when it was requested.
    pub(super) resumes: bool,
}

/// A request whose effect may still come.
#[derive(Debug)]
struct Pending {
    client: ClientId,
    at: At,
    /// A SUBSCRIBE's id; `None`: it ends the durable subscription.
    subscribes: Option<SubscriptionId>,
    /// Nobody else had asked for the opposite at that time.
    is_alone: bool,
    /// The durable subscription existed.
    existed: bool,
    /// The broker has closed the connection: no effect follows.
    is_over: bool,
}

/// What is known of one durable subscription.
#[derive(Debug, Default)]
pub(super) struct Known {
    pub(super) name: String,
    pub(super) destination: String,
    pub(super) holders: Vec<Holder>,
    pending: Vec<Pending>,
    pub(super) last_subscribe: At,
    pub(super) last_end: At,
    /// It certainly exists.
    pub(super) exists: bool,
    /// The last time during which it certainly did not exist: from its end to the next SUBSCRIBE.
    pub(super) absent: (At, Option<At>),
    /// What it has to give to a holder.
    pub(super) due: BTreeSet<MessageId>,
    /// What holders have acknowledged, or got with ack auto.
    pub(super) settled: BTreeSet<MessageId>,
}

impl Known {
    /// It does not exist yet.
    pub(super) fn new(name: &str, destination: &str) -> Self {
        Known { name: name.to_owned(), destination: destination.to_owned(), ..Known::default() }
    }

    /// It exists since an earlier life of the broker.
    pub(super) fn survive(&mut self) {
        (self.exists, self.absent) = (true, (0, Some(0)));
    }

    pub(super) fn holder(&mut self, client: ClientId, id: SubscriptionId) -> Option<&mut Holder> {
        self.holders.iter_mut().rev().find(|holder| (holder.client, holder.id) == (client, id))
    }

    /// When the SUBSCRIBE was requested that created it, if no other can have done so.
    pub(super) fn sole_creator(&self) -> Option<At> {
        let created = self.absent.1?;
        self.holders.iter().all(|holder| holder.at <= created).then_some(created)
    }

    fn has_pending(&self, is_end: bool) -> bool {
        self.pending.iter().any(|pending| !pending.is_over && pending.subscribes.is_none() == is_end)
    }

    pub(super) fn subscribe(&mut self, client: ClientId, subscription: &Subscription, at: At) {
        let Some(durable) = &subscription.durable else { return };
        let is_alone = !self.has_pending(true);
        let (id, existed) = (subscription.id, self.exists);
        self.last_subscribe = at;
        self.absent.1.get_or_insert(at);
        self.pending.push(Pending { client, at, subscribes: Some(id), is_alone, existed, is_over: false });
        self.holders.push(Holder {
            client,
            id,
            ack: subscription.ack,
            is_shared: durable.is_shared,
            has_receipt: durable.has_receipt,
            at,
            confirmed: None,
            left: None,
            gone: None,
            is_alone,
            resumes: existed && is_alone,
        });
    }

    pub(super) fn subscribed(&mut self, client: ClientId, id: SubscriptionId, at: At) {
        let Some(place) = self.pending.iter().position(|it| (it.client, it.subscribes) == (client, Some(id)))
        else {
            return;
        };
        let pending = self.pending.remove(place);
        if pending.is_alone && self.last_end < pending.at {
            self.exists = true;
        }
        if let Some(holder) = self.holder(client, id) {
            holder.confirmed = Some(at);
        }
    }

    pub(super) fn end(&mut self, client: ClientId, at: At) {
        let (is_alone, existed) = (!self.has_pending(false), self.exists && !self.has_pending(true));
        self.pending.push(Pending { client, at, subscribes: None, is_alone, existed, is_over: false });
        self.last_end = at;
        self.exists = false;
        self.due.clear();
    }

    pub(super) fn ended(&mut self, client: ClientId, at: At) {
        let is_meant = |it: &Pending| it.client == client && it.subscribes.is_none();
        let Some(place) = self.pending.iter().position(is_meant) else { return };
        let pending = self.pending.remove(place);
        if pending.is_alone && self.last_subscribe < pending.at {
            self.absent = (at, None);
        }
    }

    /// A client's connection has ended. What ack auto has written to it may be lost.
    pub(super) fn lose(&mut self, client: ClientId) {
        if self.holders.iter().any(|holder| holder.client == client && holder.ack == AckMode::Auto) {
            self.due.clear();
        }
    }

    pub(super) fn release(&mut self, client: ClientId, at: At) {
        self.lose(client);
        let pending = self.pending.iter_mut().filter(|pending| pending.client == client);
        pending.for_each(|pending| pending.is_over = true);
        let held = self.holders.iter_mut().filter(|holder| holder.client == client && holder.gone.is_none());
        held.for_each(|holder| holder.gone = Some(at));
    }

    /// Whether a refusal of this client's last SUBSCRIBE as a second holder is right.
    pub(super) fn may_be_in_use(&self, client: ClientId) -> bool {
        let asked = self.pending.iter().filter(|it| it.client == client && it.subscribes.is_some());
        asked.into_iter().any(|asked| {
            let mine = self.holders.iter().find(|holder| holder.at == asked.at);
            let is_shared = mine.is_some_and(|holder| holder.is_shared);
            let others = self.holders.iter().filter(|holder| holder.at != asked.at);
            others
                .filter(|other| !(is_shared && other.is_shared))
                .any(|other| other.gone.is_none_or(|gone| gone > asked.at))
        })
    }

    /// Whether a refusal of this client's UNSUBSCRIBE of an unknown durable subscription is right.
    pub(super) fn may_be_unknown(&self, client: ClientId) -> bool {
        let mut asked = self.pending.iter().filter(|it| it.client == client && it.subscribes.is_none());
        asked.any(|asked| !asked.existed || self.last_end > asked.at)
    }

    /// Two clients that hold at the same time what one of them does not share.
    pub(super) fn rivals(&self, open: &[ClientId]) -> Option<(ClientId, ClientId)> {
        let holds = |it: &&Holder| it.confirmed.is_some() && it.left.is_none() && open.contains(&it.client);
        let all: Vec<&Holder> =
            self.holders.iter().filter(holds).filter(|it| it.is_alone && it.at > self.last_end).collect();
        let pairs =
            all.iter().enumerate().flat_map(|(at, one)| all[..at].iter().map(move |other| (one, other)));
        let rivals = pairs.into_iter().find(|(one, other)| !(one.is_shared && other.is_shared));
        rivals.map(|(one, other)| (one.client, other.client))
    }
}
