//! What the other shards are told of subscriptions to topics here.

use std::sync::Arc;

use super::Shard;
use crate::mail::mailbox::Mail;
use crate::queue::replay::Newcomer;
use crate::requester::AnswerTo;
use crate::text::Text;

impl Shard {
    /// Tells the other shards of the first subscription to a name or pattern here; `to` waits for their
    /// answers, `backlog` is to get what they hold for a new subscription.
    pub(crate) fn tell_interest(&mut self, name: &[u8], to: Option<AnswerTo>, backlog: Option<Newcomer>) {
        let name = self.router.shared_text(name);
        let to = to.filter(|to| to.awaited);
        self.tell_all(|from| {
            let reply = to.map(AnswerTo::requester);
            Mail::Interest { from, name: Arc::clone(&name), interested: true, reply, backlog }
        });
    }

    /// Tells the other shards that nobody here subscribes to a name or pattern any more. They share the one copy that is
    /// left of it.
    pub(super) fn tell_disinterest(&mut self, name: &Arc<Text>) {
        self.tell_all(|from| Mail::Interest {
            from,
            name: Arc::clone(name),
            interested: false,
            reply: None,
            backlog: None,
        });
    }
}
