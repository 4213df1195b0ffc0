//! The thread of `store=sqlite`: reads the database, restores the homes, and writes until the last shard has ended.

use std::iter;
use std::sync::Arc;
use std::time::Duration;

use stompica_proto::ProtocolError;
use stompica_proto::error::Code;

use super::restoring::{Found, report, restore};
use super::{Files, PROGRESS, READ_AT_ONCE, segment_bytes};
use crate::door::Instant;
use crate::door::sync::{channel, thread};
use crate::ids::RecordId;
use crate::log::Level;
use crate::mail::shared::Shared;
use crate::store::file::handle::message_of;
use crate::store::sqlite::database::Database;
use crate::store::sqlite::reader::{Reader, Request};
pub(super) use crate::store::sqlite::schema::{FILE, OpenError, check};
use crate::store::sqlite::writer::Writer;

/// Runs until the last shard has ended and everything is safe.
///
/// # Errors
/// The directory has no database that can be read, or the disk has failed, in one line.
pub(super) fn run(files: Files, shared: &Arc<Shared>) -> Result<(), String> {
    let Files { directory, fsync, reserve_bytes, control, .. } = files;
    let (dir, began) = (directory.path().display().to_string(), Instant::now());
    let paging = (directory.path().to_owned(), segment_bytes(&directory));
    let mut reported = began;
    let is_going_on = |share: u64| {
        if reported.elapsed() >= PROGRESS {
            reported = Instant::now();
            let text = format!("reading the store in '{dir}': {share} %");
            shared.log.push(Level::Info, text, Vec::new());
        }
        !control.has_ended()
    };
    let refused = |error: &dyn std::fmt::Display| format!("cannot use dir '{dir}' for store=sqlite: {error}");
    let (database, recovered) = match Database::open(directory, fsync, reserve_bytes, is_going_on) {
        Ok(opened) => opened,
        Err(OpenError::Stopped) => return Ok(()),
        Err(error) => return Err(refused(&error)),
    };
    report(&recovered, &dir, began, shared);
    let read = |record| message_of(&database.read(record).ok()??, RecordId::MAX);
    let reader = Reader::new(database.directory()).map_err(|error| refused(&error))?;
    let figures = database.figures().map_err(|error| refused(&error))?;
    let found = Found { recovered, next_record: database.next_record(), figures, paging };
    let (inbox, page_file) = restore(found, read, &control, shared);
    let (requests, wanted) = channel::<Request>();
    let (answering, ending) = (Arc::clone(&inbox), Arc::clone(&control));
    let reading = thread::Builder::new().name("stompica-reader".to_owned()).spawn(move || {
        while let Ok(first) = wanted.recv_timeout(Duration::MAX) {
            let more = iter::from_fn(|| wanted.try_recv().ok()).take(READ_AT_ONCE - 1);
            let requests: Vec<_> = iter::once(first).chain(more).collect();
            let mut rest = &requests[..];
            while !rest.is_empty() && !ending.has_ended() {
                rest = &rest[reader.answer(rest, &answering)..];
            }
            if ending.has_ended() {
                break; // nobody waits for what else was requested
            }
        }
    });
    let reading = reading.map_err(|error| format!("cannot start the reader of the store: {error}"))?;
    let mut writer = Writer::new(database, fsync);
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
    _ = reading.join();
    page_file.join();
    Ok(())
}
