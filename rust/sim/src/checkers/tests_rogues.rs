//! What the checker of rogues accepts, and the same with a break.

use std::time::Duration;

use super::Checker;
use super::rogues::Rogues;
use crate::events::Event;
use crate::options::Options;
use crate::rogue::{Deed, Ending, Heard, Misdeed};

const ROGUE: usize = 1_000_000;

fn misdeed(endings: Vec<Ending>, patience: u64) -> Deed {
    Deed::Breaks(Misdeed {
        what: "it".to_owned(),
        endings,
        receipt: Some("r".to_owned()),
        patience: Duration::from_secs(patience),
        since: None,
        is_timed: true,
    })
}

fn error(code: &str) -> Deed {
    error_of(code, 0)
}

/// An ERROR that was encoded in this second or later.
fn error_of(code: &str, second: u64) -> Deed {
    let (code, receipt) = (code.to_owned(), Some("r".to_owned()));
    Deed::Hears(Heard::Error { code, receipt, encoded_from: Duration::from_secs(second) })
}

fn wrong_command() -> Deed {
    misdeed(vec![Ending::Error("E-COMMAND")], 0)
}

/// Whether these deeds, each at a second, are accepted.
fn is_right(deeds: &[(u64, Deed)]) -> bool {
    let mut options = Options::new(1, 1);
    (options.config.login_timeout, options.config.frame_timeout) =
        (Duration::from_secs(10), Duration::from_secs(30));
    let mut checker = Rogues::new(&options);
    let opens = [(0, Deed::Opens)];
    let events = opens
        .iter()
        .chain(deeds)
        .map(|(second, deed)| (Duration::from_secs(*second), Event::Rogue(ROGUE, deed.clone())));
    let last = Duration::from_secs(100);
    let ends = [(last, Event::Resting(Vec::new())), (last, Event::Finished(Vec::new()))];
    events.chain(ends).all(|(now, event)| checker.see(&event, now).is_ok())
}

#[test]
fn a_misdeed_is_answered_by_its_code_and_a_close_in_time() {
    let told = |code: &str| [(0, wrong_command()), (1, Deed::Arrives), (1, error(code))];
    let ends = |code: &str, released: u64| {
        [&told(code)[..], &[(1, Deed::Ends { is_cut: false }), (released, Deed::Released)]].concat()
    };
    assert!(is_right(&ends("E-COMMAND", 3)));
    assert!(is_right(&ends("E-MEMORY", 3)), "others may have filled it");
    assert!(!is_right(&ends("E-BODY", 3)));
    assert!(!is_right(&ends("E-LOGIN-TIMEOUT", 3)), "it came too early");
    assert!(!is_right(&ends("E-COMMAND", 90)));
    assert!(!is_right(&told("E-COMMAND")), "an ERROR without a close");
    assert!(!is_right(&[(0, wrong_command()), (1, Deed::Arrives)]));
    let silent = [(0, wrong_command()), (1, Deed::Arrives), (2, Deed::Ends { is_cut: false })];
    assert!(!is_right(&silent));
}

#[test]
fn receipts_of_earlier_frames_come_before_the_error() {
    let with = |heard: &[Deed]| {
        let before = [(0, Deed::Asks("1".to_owned())), (0, wrong_command()), (1, Deed::Arrives)];
        let heard = heard.iter().map(|deed| (1, deed.clone())).collect::<Vec<_>>();
        is_right(&[&before[..], &heard, &[(1, Deed::Ends { is_cut: false }), (2, Deed::Released)]].concat())
    };
    let receipt = Deed::Hears(Heard::Receipt("1".to_owned()));
    assert!(with(&[receipt, error("E-COMMAND")]));
    assert!(!with(&[error("E-COMMAND")]));
    assert!(with(&[error("E-SLOW-CONSUMER")]), "its outbox was cut");
}

#[test]
fn nothing_follows_an_error() {
    let with = |last: Heard| {
        is_right(&[
            (0, wrong_command()),
            (1, Deed::Arrives),
            (1, error("E-COMMAND")),
            (1, Deed::Hears(last)),
            (2, Deed::Released),
        ])
    };
    assert!(with(Heard::Close(1002)));
    assert!(!with(Heard::Close(1009)), "the code of another ERROR");
    assert!(!with(Heard::Receipt("1".to_owned())));
    assert!(!with(Heard::Message));
}

#[test]
fn an_error_over_websocket_is_followed_by_a_close_frame() {
    let with = |close: &[(u64, Deed)]| {
        let before = [
            (0, Deed::Hears(Heard::Status(101))),
            (0, wrong_command()),
            (1, Deed::Arrives),
            (1, error("E-COMMAND")),
        ];
        is_right(&[&before[..], close, &[(1, Deed::Ends { is_cut: false }), (2, Deed::Released)]].concat())
    };
    assert!(with(&[(1, Deed::Hears(Heard::Close(1002)))]));
    assert!(!with(&[]));
}

#[test]
fn a_timeout_comes_neither_early_nor_late() {
    let with = |heard: u64, released: u64| {
        is_right(&[
            (0, Deed::Hears(Heard::Connected)),
            (5, misdeed(vec![Ending::Error("E-FRAME-TIMEOUT")], 20)),
            (6, Deed::Arrives),
            (heard, error("E-FRAME-TIMEOUT")),
            (released, Deed::Released),
        ])
    };
    assert!(with(26, 28));
    assert!(!with(10, 12));
    assert!(!with(26, 60));
}

#[test]
fn who_has_sent_no_connect_and_takes_the_error_slowly_is_kept_longer() {
    let since = Some(Duration::ZERO);
    let Deed::Breaks(wrong) = misdeed(vec![Ending::Error("E-LOGIN-TIMEOUT")], 10) else {
        panic!("a misdeed")
    };
    let with = |taken: &[u64], released: u64| {
        let taken = taken.iter().map(|second| (*second, Deed::Takes)).collect::<Vec<_>>();
        let stalls = (20, Deed::Breaks(Misdeed { since, ..wrong.clone() }));
        is_right(&[&taken[..], &[stalls, (20, Deed::Arrives), (released, Deed::Released)]].concat())
    };
    assert!(with(&[], 23) && !with(&[], 24));
    assert!(with(&[14, 19], 32) && !with(&[14, 19], 33), "each byte that it takes gives it more time");
}

#[test]
fn a_frame_that_arrives_late_may_be_timed_out_before_a_misdeed() {
    let with = |encoded: u64, heard: u64| {
        is_right(&[
            (0, Deed::Hears(Heard::Connected)),
            (0, Deed::Asks("1".to_owned())),
            (5, misdeed(vec![Ending::Error("E-FRAME-TIMEOUT")], 20)),
            (40, Deed::Arrives),
            (heard, error_of("E-FRAME-TIMEOUT", encoded)),
            (heard, Deed::Released),
        ])
    };
    assert!(with(41, 41));
    assert!(with(41, 61), "it was read late");
    assert!(!with(60, 60));
    assert!(!with(60, 61));
}

#[test]
fn whoever_breaks_no_rule_gets_all_answers_in_order() {
    let with = |heard: &[Heard]| {
        let asks =
            [(0, Deed::Asks("1".to_owned())), (0, Deed::Asks("2".to_owned())), (0, Deed::Pings(vec![7]))];
        let hears = heard.iter().map(|heard| (1, Deed::Hears(heard.clone())));
        let ends = [(2, Deed::Leaves(1000)), (2, Deed::Ends { is_cut: false }), (2, Deed::Released)];
        is_right(&asks.into_iter().chain(hears).chain(ends).collect::<Vec<_>>())
    };
    let receipt = |id: &str| Heard::Receipt(id.to_owned());
    assert!(with(&[receipt("1"), Heard::Pong(vec![7]), receipt("2")]));
    assert!(!with(&[receipt("2"), receipt("1")]));
    assert!(!with(&[receipt("1")]));
    assert!(!with(&[receipt("1"), Heard::Pong(vec![8]), receipt("2")]));
    assert!(!with(&[
        receipt("1"),
        Heard::Error { code: "E-BODY".to_owned(), receipt: None, encoded_from: Duration::ZERO }
    ]));
}
