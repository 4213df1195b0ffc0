//! Answers that wait for a store, without one on disk.

use stompica_proto::encode::Message;

use super::*;
use crate::ids::{ConnKey, ShardId};
use crate::requester::AnswerTo;
use crate::store::Memory;
use crate::store::double::{Call, Journal};

fn requester(token: u64) -> Requester {
    AnswerTo { shard: ShardId(0), conn: ConnKey::NONE, token, awaited: true }.requester()
}

/// A persistent message.
fn persistent() -> OwnedMessage {
    let destination = b"/queue/a".as_slice();
    let sent =
        Message { destination, id: b"i", sender: 7, headers: b"", plain: true, expires_ms: 0, body: b"x" };
    let mut message = OwnedMessage::new(&sent);
    message.persistent = true;
    message
}

/// The tokens of the answers that are ready, with the shards to ask next or the failure.
fn answers(handle: &mut Handle) -> Vec<(u64, Result<u64, String>)> {
    std::iter::from_fn(|| handle.next_answer())
        .map(|(requester, outcome)| (requester.answered().token, outcome.map_err(|error| error.detail)))
        .collect()
}

/// A store that has not saved a message yet, for which the requester with token 1 waits.
fn with_waiting() -> (Journal, Handle) {
    let journal = Journal::default();
    let mut handle = Handle::new(journal.handle());
    handle.keep(b"/queue/a", &mut persistent());
    handle.hold(requester(1), 0);
    (journal, handle)
}

#[test]
fn an_answer_waits_until_earlier_calls_are_safe() {
    let (journal, mut handle) = with_waiting();
    handle.keep(b"/queue/a", &mut persistent());
    handle.hold(requester(2), 0b100);
    handle.hold(requester(3), 0);
    assert!(answers(&mut handle).is_empty() && handle.is_behind());
    journal.save_one();
    assert_eq!(answers(&mut handle), [(1, Ok(0))]);
    assert!(handle.is_behind() && !handle.is_settled());
    journal.save_one();
    assert_eq!(answers(&mut handle), [(2, Ok(0b100)), (3, Ok(0))]);
    assert!(!handle.is_behind() && handle.is_settled() && !handle.is_waited_for());
}

#[test]
fn a_failed_store_answers_everything_with_its_failure() {
    let (journal, mut handle) = with_waiting();
    journal.fail();
    assert!(handle.is_behind(), "calls of a failed store are never safe");
    assert_eq!(answers(&mut handle), [(1, Err("the store has failed".to_owned()))]);
    handle.hold(requester(2), 0);
    assert_eq!(answers(&mut handle), [(2, Err("the store has failed".to_owned()))]);
    assert!(handle.is_settled(), "a drain does not wait for calls that can never be safe");
}

#[test]
fn only_calls_since_the_beginning_of_a_frame_count_as_its_own() {
    let mut handle = Handle::new(Journal::default().handle());
    handle.begin();
    assert!(!handle.has_written());
    handle.keep(b"/queue/a", &mut persistent());
    assert!(handle.has_written());
    handle.begin();
    assert!(!handle.has_written() && handle.is_behind());
    handle.began_before();
    assert!(handle.has_written(), "it began in an earlier turn");
}

#[test]
fn a_moved_message_is_kept_at_its_new_place_before_it_is_forgotten_at_the_old_one() {
    let journal = Journal::default();
    let mut handle = Handle::new(journal.handle());
    let mut message = persistent();
    handle.move_to(b"/queue/a", true, &mut message);
    handle.move_to(b"/queue/b", true, &mut message);
    handle.move_to(b"/temp-queue/c", false, &mut message);
    assert_eq!(message.record, NO_RECORD);
    let keep = |record, name: &str| Call::Keep(record, name.to_owned());
    let calls = [keep(1, "/queue/a"), keep(2, "/queue/b"), Call::Forget(1), Call::Forget(2)];
    assert_eq!(journal.calls(), calls);
}

#[test]
fn a_store_in_memory_is_never_behind_and_asks_no_other_shards() {
    let mut handle = Handle::new(Box::new(Memory));
    handle.begin();
    handle.move_to(b"/queue/a", true, &mut persistent());
    handle.add_concerned(0b10);
    handle.moves(0b10);
    handle.began_before();
    assert!(!handle.has_written() && !handle.is_behind() && handle.is_settled());
    assert_eq!((handle.take_concerned(), handle.moved(), handle.begin_transaction()), (0, 0, None));
}

#[test]
fn concerned_shards_are_reset_by_each_frame() {
    let mut handle = Handle::new(Journal::default().handle());
    handle.add_concerned(0b10);
    handle.add_concerned(0b100);
    assert_eq!(handle.take_concerned(), 0b110);
    assert_eq!(handle.take_concerned(), 0);
    handle.add_concerned(0b10);
    handle.begin();
    assert_eq!(handle.take_concerned(), 0);
}

#[test]
fn shards_that_messages_were_sent_to_are_asked_together_and_again_after_their_answer() {
    let mut handle = Handle::new(Journal::default().handle());
    assert_eq!(handle.ask_for_moved(), None);
    handle.moves(0b10);
    handle.moves(0b100);
    assert_eq!(handle.ask_for_moved(), Some(0b110));
    handle.moves(0b1000);
    assert_eq!((handle.ask_for_moved(), handle.moved()), (None, 0b1110));
    handle.moved_is_saved();
    assert_eq!((handle.moved(), handle.is_settled()), (0b1000, false));
    assert_eq!(handle.ask_for_moved(), Some(0b1000));
    handle.moved_is_saved();
    assert!(handle.moved() == 0 && handle.is_settled());
}

#[test]
fn answers_of_a_shard_that_ends_are_abandoned_not_lost() {
    let mut handle = Handle::new(Journal::default().handle());
    handle.keep(b"/queue/a", &mut persistent());
    handle.hold(requester(1), 0);
    handle.abandon_answers();
    assert!(!handle.is_waited_for() && crate::requester::take_lost() == 0);
}
