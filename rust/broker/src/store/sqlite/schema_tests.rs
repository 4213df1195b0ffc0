use std::fs;
use std::path::Path;

use tempfile::TempDir;

use super::*;

fn directory() -> (TempDir, Directory) {
    let at = TempDir::new().expect("a disk with room");
    let directory = Directory::claim(at.path(), "this test").expect("nobody else uses it");
    (at, directory)
}

fn names(at: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(at)
        .expect("a directory")
        .map(|entry| entry.expect("a name").file_name().into_string().expect("UTF-8"))
        .collect();
    names.sort();
    names
}

/// What is refused, and that nothing was changed by it.
fn refusal(at: &TempDir, directory: &Directory) -> String {
    let contents = |name: &String| fs::read(at.path().join(name)).expect("a file");
    let before: Vec<_> = names(at.path()).into_iter().map(|name| (contents(&name), name)).collect();
    let error = check(directory).expect_err("it is refused").to_string();
    assert_eq!(connect(directory).expect_err("it is refused").to_string(), error);
    let after: Vec<_> = names(at.path()).into_iter().map(|name| (contents(&name), name)).collect();
    assert!(before == after, "nothing is changed");
    error
}

#[test]
fn a_database_is_created_as_a_whole_and_found_again() {
    let (at, directory) = directory();
    fs::write(at.path().join(NEW), "what a crash has left").expect("a disk with room");
    fs::write(at.path().join(format!("{NEW}-journal")), "the same").expect("a disk with room");
    assert!(check(&directory).is_ok() && !is_there(&directory).expect("a directory"));
    let connection = connect(&directory).expect("a new database");
    let number = |pragma: &str| connection.pragma_query_value(None, pragma, |row| row.get::<_, i32>(0));
    assert_eq!(number("application_id"), Ok(APPLICATION));
    assert_eq!(number("user_version"), Ok(VERSION));
    assert_eq!(number("auto_vacuum"), Ok(2), "room can be given back");
    let mode = connection.pragma_query_value(None, "journal_mode", |row| row.get::<_, String>(0));
    assert_eq!(mode.as_deref(), Ok("wal"));
    drop(connection);
    assert_eq!(names(at.path()), ["lock", FILE]);
    assert!(check(&directory).is_ok());
    connect(&directory).expect("the same database");
}

#[test]
fn other_files_of_the_name_are_refused() {
    let (at, directory) = directory();
    for contents in [&b""[..], b"a database of something else", &[0; 4096]] {
        fs::write(at.path().join(FILE), contents).expect("a disk with room");
        assert_eq!(refusal(&at, &directory), "'messages.db' is no database of a stompica store");
    }
    fs::remove_file(at.path().join(FILE)).expect("it is there");
    let other = Connection::open(at.path().join(FILE)).expect("a database");
    other.execute_batch("CREATE TABLE t (x)").expect("a disk with room");
    other.close().expect("a disk with room");
    assert_eq!(refusal(&at, &directory), "'messages.db' is no database of a stompica store");
}

#[test]
fn a_newer_version_is_refused() {
    let (at, directory) = directory();
    let connection = connect(&directory).expect("a new database");
    connection.pragma_update(None, "user_version", 7).expect("a disk with room");
    connection.close().expect("a disk with room");
    let refused = "'messages.db' has version 7 of the format, and this stompica knows version 1";
    assert_eq!(refusal(&at, &directory), refused);
}

#[test]
fn a_newer_version_is_refused_that_is_not_in_the_file_itself() {
    let (at, directory) = directory();
    let newer = connect(&directory).expect("a new database");
    newer.pragma_update(None, "user_version", 7).expect("a disk with room");
    assert!(check(&directory).is_ok(), "it stands in the file beside it");
    let before = fs::read(at.path().join(FILE)).expect("a file");
    let error = connect(&directory).expect_err("it is refused").to_string();
    assert_eq!(error, "'messages.db' has version 7 of the format, and this stompica knows version 1");
    assert_eq!(fs::read(at.path().join(FILE)).expect("a file"), before);
}

#[test]
fn what_belongs_to_a_database_that_is_gone_is_not_taken_for_a_part_of_a_new_one() {
    for end in COMPANIONS {
        let (at, directory) = directory();
        let name = format!("{FILE}{end}");
        fs::write(at.path().join(&name), "of a database").expect("a disk with room");
        let refused = format!("'{name}' is there without its database 'messages.db'");
        assert_eq!(refusal(&at, &directory), refused);
    }
}

#[test]
fn waiting_messages_are_shown_as_frames() {
    let (_at, directory) = directory();
    let connection = connect(&directory).expect("a new database");
    let insert = "INSERT INTO messages (record, queue, place, message_id, destination, persistent, deliveries, failures,
        grouped, plain, sender, headers, body) VALUES (?, ?, ?, ?, ?, 1, 0, 0, 0, 0, 0, ?, ?)";
    let rows = [
        (1, "/queue/a", 2, "i2", "/queue/a", "k:v\n", &b"two"[..]),
        (2, "/queue/a", 1, "i1", "/queue/\\a:\nb\r", "", b"a\0b"),
        (3, "definitions\n", 0, "shared", "/topic/a", "", b"durable\nd"),
        (4, "durable\nd", 1, "i3", "/topic/a", "", b"x"),
    ];
    for row in rows {
        connection.execute(insert, row).expect("a disk with room");
    }
    let mut statement = connection.prepare("SELECT stomp_id, frame FROM ar_messages").expect("a view");
    let found = statement.query_map([], |row| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?)));
    let found: Vec<_> = found.expect("rows").collect::<Result<_, _>>().expect("text");
    let frames = [
        ("i1", "MESSAGE\nmessage-id:i1\ndestination:/queue/\\\\a\\c\\nb\\r\ncontent-length:3\n\na\0b\0"),
        ("i2", "MESSAGE\nmessage-id:i2\ndestination:/queue/a\nk:v\ncontent-length:3\n\ntwo\0"),
    ];
    assert_eq!(found, frames.map(|(id, frame)| (id.to_owned(), frame.to_owned())));
}
