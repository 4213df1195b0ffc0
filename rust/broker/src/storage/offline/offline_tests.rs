use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use tempfile::TempDir;

use super::*;
use crate::door::Directory;
use crate::store::file::batch::Batch;
use crate::store::file::entry::Message;
use crate::store::file::log::Log;
use crate::store::file::segments::Purpose;
use crate::store::{DEFINITIONS, RETAINED};

fn message(queue: &str, body: &[u8]) -> StoredMessage {
    StoredMessage {
        queue: queue.into(),
        destination: queue.into(),
        id: b"m-1".to_vec(),
        headers: vec![(b"a:b".to_vec(), b"1\n2\\".to_vec()), (b"empty".to_vec(), Vec::new())],
        body: body.to_vec(),
        persistent: true,
        ..StoredMessage::default()
    }
}

/// Everything that can be set.
fn complete() -> StoredMessage {
    let id = b"shared".to_vec();
    let numbers =
        StoredMessage { expires_ms: 7, failures_max: 3, deliveries: 5, failures: 2, ..message("", b"") };
    StoredMessage {
        id,
        grouped: true,
        body: vec![0, 255, 10],
        queue: b"/queue/b".to_vec(),
        destination: b"/topic/x".to_vec(),
        ..numbers
    }
}

fn edit(at: &Path) -> Editor {
    Editor::open(at, "a test", |_, _| true).expect("nobody uses it")
}

fn view(at: &Path) -> View {
    View::open(at, |_, _| true).expect("nobody uses it")
}

/// What a view reads, without the places.
fn all(view: &View) -> Vec<StoredMessage> {
    let queues = view.queues();
    let of = |index: usize| (0..queues[index].messages).map(move |at| (index, at));
    let read = |(index, at)| view.read(index, at).expect("it exists").expect("it can be read");
    let without = |message| StoredMessage { place: 0, ..message };
    (0..queues.len()).flat_map(of).map(read).map(without).collect()
}

/// The files of a directory, with what they contain.
fn files(at: &Path) -> BTreeMap<String, Vec<u8>> {
    let entry = |entry: fs::DirEntry| {
        (entry.file_name().to_string_lossy().into_owned(), fs::read(entry.path()).expect("a file"))
    };
    fs::read_dir(at).expect("a directory").map(|found| entry(found.expect("an entry"))).collect()
}

#[test]
fn what_is_added_is_read_as_it_was() {
    let at = TempDir::new().expect("room");
    let mut editor = edit(at.path());
    let durable = StoredMessage {
        queue: DEFINITIONS.to_vec(),
        body: b"durable\nd".to_vec(),
        headers: Vec::new(),
        ..complete()
    };
    let retained = StoredMessage { queue: RETAINED.to_vec(), ..complete() };
    let waiting = StoredMessage { queue: b"durable\nd".to_vec(), ..complete() };
    let sent = [
        message("/queue/a", b"1"),
        complete(),
        message("/queue/a", b"2"),
        durable.clone(),
        retained.clone(),
        waiting.clone(),
    ];
    for one in &sent {
        assert_eq!(editor.add(one), Ok(true));
    }
    assert_eq!(editor.close(), Ok((6, 0)));
    let before = files(at.path());
    let view = view(at.path());
    assert_eq!(
        all(&view),
        [message("/queue/a", b"1"), message("/queue/a", b"2"), complete(), durable, waiting, retained]
    );
    let kinds: Vec<Kind> = view.queues().iter().map(|queue| queue.kind).collect();
    assert_eq!(kinds, [Kind::Message, Kind::Message, Kind::Durable, Kind::Message, Kind::Retained]);
    assert!(view.read(0, 2).is_none() && view.read(9, 0).is_none());
    assert_eq!((view.damages().len(), view.torn_bytes(), view.segments()), (0, 0, 1));
    drop(view);
    assert_eq!(files(at.path()), before, "a view changes nothing");
}

#[test]
fn later_messages_are_behind_earlier_ones_and_what_is_unique_is_added_once() {
    let at = TempDir::new().expect("room");
    let headers = Vec::new();
    let definition =
        StoredMessage { queue: DEFINITIONS.to_vec(), headers, ..message("/topic/a", b"durable\nd") };
    let value = |body| StoredMessage { queue: RETAINED.to_vec(), ..message("/topic/a", body) };
    for (round, is_new) in [("1", true), ("2", false)] {
        let mut editor = edit(at.path());
        assert_eq!(editor.add(&message("/queue/a", round.as_bytes())), Ok(true));
        assert_eq!(editor.add(&definition), Ok(is_new));
        assert_eq!(editor.add(&value(round.as_bytes())), Ok(is_new));
        editor.close().expect("room");
    }
    let found = all(&view(at.path()));
    assert_eq!(found, [message("/queue/a", b"1"), message("/queue/a", b"2"), definition, value(b"1")]);
}

/// As a start does: messages that a crash has left of an earlier subscription of the same name are not exported.
#[test]
fn messages_of_a_subscription_that_was_ended_are_left_out() {
    let at = TempDir::new().expect("room");
    let directory = Directory::claim(at.path(), "this test").expect("nobody uses it");
    let (mut log, _) = Log::open_with_reserve(directory, 1 << 20, 0, |_, _| true).expect("an empty log");
    let mut batch = Batch::default();
    let mut keep = |queue: &[u8], record, headers: &[u8], body: &[u8]| {
        let own = Message { queue, record, headers, body, destination: b"/topic/a", ..Message::default() };
        batch.keep(&own);
    };
    // The first one was defined anew while it was there, the second one was ended and created again.
    keep(b"durable\na", 2, b"", b"kept");
    keep(DEFINITIONS, 3, b"since:1\n", b"durable\na");
    keep(b"durable\nb", 4, b"", b"ended");
    keep(DEFINITIONS, 1, b"", b"durable\nb");
    keep(DEFINITIONS, 5, b"", b"durable\nb");
    keep(b"durable\nb", 6, b"", b"kept");
    log.write(&[batch], 7, Purpose::Messages).expect("room");
    log.close().expect("room");
    drop(log);
    let bodies = |message: StoredMessage| message.body;
    let found = all(&view(at.path())).into_iter().filter(|it| it.queue != DEFINITIONS);
    assert_eq!(found.map(bodies).collect::<Vec<_>>(), [b"kept", b"kept"]);
}

#[test]
fn an_invalid_message_is_refused_with_its_reason() {
    let at = TempDir::new().expect("room");
    let mut editor = edit(at.path());
    let good = message("/queue/a", b"1");
    let header = |name: &[u8], value: &[u8]| vec![(name.to_vec(), value.to_vec())];
    for (bad, why) in [
        (message("/topic/a", b""), "queue '/topic/a' is none that a store keeps: '/queue/…'"),
        (StoredMessage { destination: Vec::new(), ..good.clone() }, "the destination is empty"),
        (
            StoredMessage { id: b"a b".to_vec(), ..good.clone() },
            "message-id 'a b' has other than visible ASCII characters",
        ),
        (StoredMessage { headers: header(b"", b"x"), ..good.clone() }, "a header has no name"),
        (
            StoredMessage { headers: header(b"ack", b"x"), ..good.clone() },
            "header 'ack' is set by the broker",
        ),
        (
            StoredMessage { headers: header(b"x", b"\0"), ..good.clone() },
            "a header or the destination has a NUL",
        ),
    ] {
        assert_eq!(editor.add(&bad).expect_err("it is not valid").to_string(), why);
    }
    assert_eq!(editor.close(), Ok((0, 0)));
}

#[test]
fn damage_is_named_by_file_and_offset_and_the_rest_is_read() {
    let at = TempDir::new().expect("room");
    let mut editor = edit(at.path());
    for body in ["first", "second", "third"] {
        editor.add(&message("/queue/a", body.as_bytes())).expect("room");
    }
    editor.close().expect("room");
    let file = at.path().join("0000000001.log");
    let mut bytes = fs::read(&file).expect("the only segment");
    let damaged = bytes.windows(6).position(|bytes| bytes == b"second").expect("it is there");
    bytes[damaged] ^= 1;
    fs::write(&file, &bytes).expect("room");
    let before = files(at.path());
    let view = view(at.path());
    let [part] = &view.damages()[..] else { panic!("one part is damaged") };
    assert_eq!(
        (&*part.file, part.messages, &part.queues[..]),
        ("0000000001.log", Some(1), &[b"/queue/a".to_vec()][..])
    );
    assert!(part.from < damaged as u64 && (damaged as u64) < part.to);
    let bodies: Vec<Vec<u8>> = all(&view).into_iter().map(|message| message.body).collect();
    assert_eq!(bodies, [b"first".to_vec(), b"third".to_vec()]);
    assert_eq!(files(at.path()), before);
}

#[test]
fn a_torn_end_is_told_and_left_as_it_is() {
    let at = TempDir::new().expect("room");
    let mut editor = edit(at.path());
    editor.add(&message("/queue/a", b"1")).expect("room");
    editor.close().expect("room");
    let file = at.path().join("0000000001.log");
    let mut bytes = fs::read(&file).expect("the only segment");
    bytes.extend_from_slice(&[1; 50]);
    fs::write(&file, &bytes).expect("room");
    let view = view(at.path());
    assert_eq!((view.torn_bytes(), view.damages().len(), all(&view).len()), (50, 0, 1));
    assert_eq!(fs::read(&file).expect("it is there"), bytes);
}

#[test]
fn a_store_in_use_is_neither_viewed_nor_changed() {
    let at = TempDir::new().expect("room");
    let editor = edit(at.path());
    let holder = format!(
        "it is in use by process {} (a test); 'stompica diag store' asks a running broker",
        std::process::id()
    );
    let dir = at.path().display();
    let viewed = View::open(at.path(), |_, _| true).expect_err("it is in use").to_string();
    assert_eq!(viewed, format!("cannot read the store in '{dir}': {holder}"));
    let changed = Editor::open(at.path(), "another", |_, _| true).expect_err("it is in use").to_string();
    assert_eq!(changed, format!("cannot change the store in '{dir}': {holder}"));
    editor.close().expect("room");
}

#[test]
fn what_is_no_store_is_not_touched() {
    let at = TempDir::new().expect("room");
    fs::write(at.path().join("0000000001.log"), b"a log of something else\n".repeat(9)).expect("room");
    let before = files(at.path());
    for refused in [
        View::open(at.path(), |_, _| true).map(|_| ()),
        Editor::open(at.path(), "a test", |_, _| true).map(|_| ()),
    ] {
        let text = refused.expect_err("it is none").to_string();
        assert!(text.ends_with("'0000000001.log' is no segment of a stompica store"), "{text}");
    }
    assert_eq!(files(at.path()), before);
    assert!(View::open(&at.path().join("missing"), |_, _| true).is_err());
}

#[test]
fn compaction_keeps_what_is_needed_in_few_files() {
    let at = TempDir::new().expect("room");
    for round in 0..30 {
        let mut editor = edit(at.path());
        editor.add(&message("/queue/a", format!("{round}").as_bytes())).expect("room");
        editor.close().expect("room");
    }
    let before = all(&view(at.path()));
    assert_eq!((before.len(), view(at.path()).segments()), (30, 30));
    let mut editor = edit(at.path());
    editor.compact(|| true).expect("room");
    editor.close().expect("room");
    let view = view(at.path());
    assert_eq!(all(&view), before);
    assert!(view.segments() <= 18, "{} segments", view.segments());
    drop(view);
    let space = |at: &Path| files(at).values().map(Vec::len).sum::<usize>();
    let after = space(at.path());
    let mut editor = edit(at.path());
    editor.compact(|| true).expect("room");
    editor.close().expect("room");
    assert!(space(at.path()) <= after, "a second time saves nothing, and costs nothing");
}
