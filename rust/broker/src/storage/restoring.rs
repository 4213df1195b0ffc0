//! What all stores on disk do at the start: they report what was found, and give each home its share of it.

use std::path::PathBuf;
use std::sync::Arc;

use super::Control;
use super::page_file::PageFile;
use super::sharing::{is_message, share};
use crate::door::{Instant, planted};
use crate::ids::RecordId;
use crate::log::Level;
use crate::mail::mailbox::Mail;
use crate::mail::shared::Shared;
use crate::message::OwnedMessage;
use crate::report::types::StoreFigures;
use crate::store::file::inbox::Inbox;
use crate::store::file::recovery::Recovered;

/// What a store has at the start.
pub(super) struct Found {
    /// Its messages.
    pub recovered: Recovered,
    /// All its records are smaller.
    pub next_record: RecordId,
    /// Its figures.
    pub figures: StoreFigures,
    /// Its directory, and the longest segment of a page file in it.
    pub paging: (PathBuf, u64),
}

/// Gives the homes what was found; `read` reads a message of it. Returns where the shards and the thread of the store meet from
/// now on, and the page file.
pub(super) fn restore(
    found: Found,
    read: impl Fn(RecordId) -> Option<OwnedMessage>,
    control: &Control,
    shared: &Arc<Shared>,
) -> (Arc<Inbox>, PageFile) {
    let Found { recovered, next_record, figures, paging: (path, segment_bytes) } = found;
    let inbox = meet(next_record, figures, control, shared);
    let page_file = PageFile::start(path, segment_bytes, shared, control);
    give(recovered, read, (&inbox, &page_file.inbox()), shared);
    (inbox, page_file)
}

/// Where the shards and the thread of a store with these figures meet.
pub(super) fn meet(
    next_record: RecordId,
    figures: StoreFigures,
    control: &Control,
    shared: &Arc<Shared>,
) -> Arc<Inbox> {
    let next_record = if next_record > 1 && planted!("records-reused") { 1 } else { next_record };
    let inbox = Inbox::new(shared.mailboxes.len(), next_record, waker(shared));
    inbox.publish(figures, std::iter::empty());
    control.watch(&inbox);
    inbox
}

/// Gives each home its share; the inboxes are those of the store and of the page file.
pub(super) fn give(
    recovered: Recovered,
    read: impl Fn(RecordId) -> Option<OwnedMessage>,
    (inbox, page_file): (&Arc<Inbox>, &Arc<Inbox>),
    shared: &Shared,
) {
    let now_ms = shared.clock.ms_at(Instant::now(), shared.clock.ahead_ms());
    let (shares, unreadable) = share(inbox, page_file, read, recovered, &shared.hasher, now_ms);
    if unreadable > 0 {
        let text =
            format!("{unreadable} durable subscriptions or retained messages cannot be read and are lost");
        shared.log.push(Level::Error, text, Vec::new());
    }
    for (mailbox, share) in shared.mailboxes.iter().zip(shares) {
        mailbox.post(&mut vec![Mail::Restore(Box::new(share))]);
    }
}

/// Wakes shards.
pub(super) fn waker(shared: &Arc<Shared>) -> Box<dyn Fn(usize) + Send + Sync> {
    // A mailbox that nobody reads any more may hold a share, and so an inbox with this function.
    let mailboxes = Arc::downgrade(&shared.mailboxes);
    Box::new(move |shard: usize| {
        if let Some(mailboxes) = mailboxes.upgrade() {
            mailboxes[shard].wake();
        }
    })
}

/// Logs what was found.
pub(super) fn report(recovered: &Recovered, dir: &str, began: Instant, shared: &Shared) {
    let lines = recovered.queues.iter().filter(|(name, _)| is_message(name));
    let (queues, messages) =
        lines.fold((0, 0), |(queues, messages), (_, found)| (queues + 1, messages + found.len()));
    let ms = began.elapsed().as_millis();
    let text = format!("the store in '{dir}' has {messages} messages in {queues} queues ({ms} ms)");
    shared.log.push(Level::Info, text, Vec::new());
}
