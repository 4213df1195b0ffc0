//! The thread of `store=file`: reads the log, restores the homes, and writes until the last shard has ended.

use std::iter;
use std::sync::Arc;
use std::time::Duration;

use stompica_proto::ProtocolError;
use stompica_proto::error::Code;

use super::page_file::PageFile;
use super::sharing::{is_message, share};
use super::{Files, segment_bytes};
use crate::door::Instant;
use crate::door::sync::{channel, thread};
use crate::ids::RecordId;
use crate::log::{Level, LogQueue};
use crate::mail::mailbox::Mail;
use crate::mail::shared::Shared;
use crate::message::OwnedMessage;
use crate::store::file::handle::message_of;
use crate::store::file::inbox::Inbox;
use crate::store::file::log::{Log, Lookup};
use crate::store::file::reader::{Request, answer_all};
use crate::store::file::recovery::{OpenError, Recovered};
use crate::store::file::writer::Writer;

/// Reading the log is reported if it takes longer than this, and again after each further time.
const PROGRESS: Duration = Duration::from_secs(1);
/// The most messages that the reader takes at a time.
const READ_AT_ONCE: usize = 1024;

/// A log that is open, and the way to it.
pub(super) struct Opened {
    pub(super) log: Log,
    pub(super) inbox: Arc<Inbox>,
    /// The way to the page file.
    pub(super) page_file: Arc<Inbox>,
}

impl Opened {
    /// Reads a message; `None`: it is damaged.
    pub(super) fn read(&self, record: RecordId) -> Option<OwnedMessage> {
        let Lookup::At(file, stored) = self.log.find(record) else { return None };
        let bytes = Request { shard: 0, record, file, stored }.read().ok()?;
        message_of(&bytes, RecordId::MAX)
    }
}

/// Runs until the last shard has ended and everything is safe.
///
/// # Errors
/// The directory has no log that can be read, or the disk has failed, in one line.
pub(crate) fn run(files: Files, shared: &Arc<Shared>) -> Result<(), String> {
    let Files { directory, fsync, reserve_bytes, control } = files;
    let (dir, began) = (directory.path().display().to_string(), Instant::now());
    let path = directory.path().to_owned();
    let segment_bytes = segment_bytes(&directory);
    let mut reported = began;
    let is_going_on = |done: u64, all: u64| {
        if reported.elapsed() >= PROGRESS && done < all {
            reported = Instant::now();
            let text = format!("reading the store in '{dir}': {} of {} MiB", done >> 20, all >> 20);
            shared.log.push(Level::Info, text, Vec::new());
        }
        !control.has_ended()
    };
    let (log, recovered) = match Log::open_with_reserve(directory, segment_bytes, reserve_bytes, is_going_on)
    {
        Ok(opened) => opened,
        Err(OpenError::Stopped) => return Ok(()),
        Err(error) => return Err(format!("cannot use dir '{dir}' for store=file: {error}")),
    };
    report(&recovered, &dir, began, &shared.log);
    let inbox = Inbox::new(shared.mailboxes.len(), log.next_record(), waker(shared));
    inbox.publish(log.figures(), std::iter::empty());
    control.watch(&inbox);
    let page_file = PageFile::start(path, segment_bytes, shared, &control);
    let opened = Opened { log, inbox: Arc::clone(&inbox), page_file: page_file.inbox() };
    let now_ms = shared.clock.ms_at(Instant::now(), shared.clock.ahead_ms());
    let (shares, unreadable) = share(&opened, recovered, &shared.hasher, now_ms);
    if unreadable > 0 {
        let text =
            format!("{unreadable} durable subscriptions or retained messages cannot be read and are lost");
        shared.log.push(Level::Error, text, Vec::new());
    }
    for (mailbox, share) in shared.mailboxes.iter().zip(shares) {
        mailbox.post(&mut vec![Mail::Restore(Box::new(share))]);
    }
    let (requests, wanted) = channel::<Request>();
    let (answering, ending) = (Arc::clone(&inbox), Arc::clone(&control));
    let reader = thread::Builder::new().name("stompica-reader".to_owned()).spawn(move || {
        while let Ok(first) = wanted.recv_timeout(Duration::MAX) {
            if ending.has_ended() {
                break; // nobody waits for what else was requested
            }
            let more = iter::from_fn(|| wanted.try_recv().ok()).take(READ_AT_ONCE - 1);
            let requests: Vec<_> = iter::once(first).chain(more).collect();
            answer_all(&requests, &answering);
        }
    });
    let reader = reader.map_err(|error| format!("cannot start the reader of the store: {error}"))?;
    let mut writer = Writer::new(opened.log, fsync);
    // The reader has ended only if this thread ends, too.
    let ended = writer.run(&inbox, &mut |request| _ = requests.send(request));
    if let Err(error) = ended {
        let text =
            format!("the store in '{dir}' has failed, and takes nothing more until a restart: {error}");
        shared.log.push(Level::Error, text.clone(), Vec::new());
        inbox.fail(ProtocolError::new(Code::StoreIo, text));
        writer.serve_reads(&inbox, &mut |request| _ = requests.send(request));
    }
    drop(requests);
    _ = reader.join();
    page_file.join();
    Ok(())
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
fn report(recovered: &Recovered, dir: &str, began: Instant, log: &LogQueue) {
    let lines = recovered.queues.iter().filter(|(name, _)| is_message(name));
    let (queues, messages) =
        lines.fold((0, 0), |(queues, messages), (_, found)| (queues + 1, messages + found.len()));
    let ms = began.elapsed().as_millis();
    log.push(
        Level::Info,
        format!("the store in '{dir}' has {messages} messages in {queues} queues ({ms} ms)"),
        Vec::new(),
    );
    if recovered.torn_bytes > 0 {
        let text = format!(
            "the last {} bytes of the store were not complete, as after a crash; no RECEIPT was sent for them",
            recovered.torn_bytes
        );
        log.push(Level::Warn, text, Vec::new());
    }
    for damage in &recovered.damages {
        let copy = damage.copy.as_deref().unwrap_or("not copied");
        let text = format!(
            "segment {} of the store is damaged from byte {} to {}; what was there is lost ({copy})",
            damage.segment, damage.from, damage.to
        );
        log.push(Level::Error, text, Vec::new());
    }
}
