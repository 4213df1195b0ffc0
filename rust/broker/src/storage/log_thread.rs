//! The thread of `store=file`: reads the log, restores the homes, and writes until the last shard has ended.

use std::sync::Arc;
use std::time::Duration;
use std::{io, iter};

use stompica_proto::ProtocolError;
use stompica_proto::error::Code;

use super::recording::Recording;
use super::restoring::{Found, report, restore};
use super::{Files, PROGRESS, READ_AT_ONCE, segment_bytes};
use crate::door::Instant;
use crate::door::sync::{channel, thread};
use crate::ids::RecordId;
use crate::log::{Level, LogQueue};
use crate::mail::shared::Shared;
use crate::message::OwnedMessage;
use crate::store::file::handle::message_of;
use crate::store::file::inbox::Inbox;
use crate::store::file::log::{Log, Lookup};
use crate::store::file::reader::{Request, answer_all};
use crate::store::file::recovery::{OpenError, Recovered};
use crate::store::file::writer::Writer;

/// Reads a message; `None`: it is damaged.
pub(super) fn read(log: &Log, record: RecordId) -> Option<OwnedMessage> {
    let Lookup::At(file, stored) = log.find(record) else { return None };
    let bytes = Request { shard: 0, record, file, stored }.read().ok()?;
    message_of(&bytes, RecordId::MAX)
}

/// Runs until the last shard has ended and everything is safe.
///
/// # Errors
/// The directory has no log that can be read, or the disk has failed, in one line.
pub(super) fn run(files: Files, shared: &Arc<Shared>) -> Result<(), String> {
    let Files { directory, fsync, reserve_bytes, control, recording, .. } = files;
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
    report(&recovered, &dir, began, shared);
    let recording = recording.map(|settings| Recording::start(settings, shared, &control)).transpose()?;
    report_losses(&recovered, &shared.log);
    let read = |record| read(&log, record);
    let (next_record, figures) = (log.next_record(), log.figures());
    let found = Found { recovered, next_record, figures, paging: (path, segment_bytes) };
    let (inbox, page_file) = restore(found, read, &control, shared);
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
    let mut writer = Writer::new(log, fsync);
    // The reader has ended only if this thread ends, too.
    let ended = writer.run(&inbox, &mut |request| _ = requests.send(request));
    if let Err(error) = ended {
        tell_failure(&error, &dir, &inbox, &shared.log);
        writer.serve_reads(&inbox, &mut |request| _ = requests.send(request));
    }
    drop(requests);
    _ = reader.join();
    page_file.join();
    recording.into_iter().for_each(Recording::end);
    Ok(())
}

/// Tells everybody that the disk has failed.
pub(super) fn tell_failure(error: &io::Error, dir: &str, inbox: &Inbox, log: &LogQueue) {
    let text = format!("the store in '{dir}' has failed, and takes nothing more until a restart: {error}");
    log.push(Level::Error, text.clone(), Vec::new());
    inbox.fail(ProtocolError::new(Code::StoreIo, text));
}

/// Logs what is not there any more.
fn report_losses(recovered: &Recovered, log: &LogQueue) {
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
