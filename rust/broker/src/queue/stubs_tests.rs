use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::sample::Index;

use super::*;

fn stub(seq: u64, record: RecordId) -> Stub {
    Stub { record, seq, expires_ms: 0, bytes: 300 }
}

#[test]
fn a_million_stubs_take_little_more_than_twelve_bytes_each() {
    let mut stubs = Stubs::default();
    for number in 0..1_000_000 {
        stubs.push_back(stub(number + 7, 3 * number));
    }
    let runs = 1_000_000 / RUN * size_of::<Run>();
    assert!(stubs.bytes() < 12_000_000 + 2 * runs, "{} bytes", stubs.bytes());
    assert_eq!((stubs.front(), stubs.back()), (Some(stub(7, 0)), Some(stub(1_000_006, 2_999_997))));
    for number in 0..1_000_000 {
        assert_eq!(stubs.pop_front(), Some(stub(number + 7, 3 * number)));
    }
    assert_eq!((stubs.len(), stubs.front(), stubs.pop_front()), (0, None, None));
    assert_eq!(stubs.bytes, 0);
}

#[test]
fn records_far_apart_in_turn_share_a_run() {
    let mut stubs = Stubs::default();
    let record = |number: u64| if number.is_multiple_of(2) { number } else { (1 << 62) + number };
    (0..500).for_each(|number| stubs.push_back(stub(number, record(number))));
    assert_eq!(stubs.runs.len(), 1);
    (0..500).for_each(|number| assert_eq!(stubs.pop_front(), Some(stub(number, record(number)))));
}

/// A step: a stub is added, or one is removed.
#[derive(Clone, Debug)]
enum Step {
    Push { gap: u64, record: RecordId, expires_ms: u64 },
    Pop,
    Remove(Index),
    RemoveOther(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let gap = prop_oneof![9 => 1..5_u64, 1 => 1..(1_u64 << 34)];
    let record = prop_oneof![
        6 => 0..1000_u64,
        2 => (1_u64 << 62)..(1 << 62) + 1000,
        1 => (1_u64 << 29)..(1 << 32),
        1 => any::<u64>()
    ];
    let push = (gap, record, prop_oneof![3 => Just(0), 1 => any::<u64>()]);
    let push = push.prop_map(|(gap, record, expires_ms)| Step::Push { gap, record, expires_ms });
    let step = prop_oneof![
        6 => push,
        2 => Just(Step::Pop),
        2 => any::<Index>().prop_map(Step::Remove),
        1 => (0..2000_u64).prop_map(Step::RemoveOther)
    ];
    proptest::collection::vec(step, 0..400)
}

proptest! {
    #[test]
    fn they_agree_with_a_map(steps in steps()) {
        let (mut stubs, mut map, mut last) = (Stubs::default(), BTreeMap::new(), 0);
        for step in steps {
            match step {
                Step::Push { gap, record, expires_ms } => {
                    last += gap;
                    let stub = Stub { record, seq: last, expires_ms, bytes: gap as u32 };
                    stubs.push_back(stub);
                    map.insert(last, stub);
                }
                Step::Pop => prop_assert_eq!(stubs.pop_front(), map.pop_first().map(|(_, stub)| stub)),
                Step::Remove(at) if !map.is_empty() => {
                    let seq = *map.keys().nth(at.index(map.len())).expect("it is one of them");
                    prop_assert_eq!(stubs.remove(seq), map.remove(&seq));
                }
                Step::Remove(_) => {}
                Step::RemoveOther(seq) => prop_assert_eq!(stubs.remove(seq), map.remove(&seq)),
            }
            prop_assert_eq!(stubs.len(), map.len());
            prop_assert_eq!(stubs.front(), map.values().next().copied());
            prop_assert_eq!(stubs.back(), map.values().next_back().copied());
            let held: usize = stubs.runs.iter().map(Run::bytes).sum();
            prop_assert_eq!(stubs.bytes, held);
            prop_assert!(stubs.runs.iter().all(|run| !run.stubs.is_empty()));
        }
    }
}
