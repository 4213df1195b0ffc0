//! A store for tests, which receives the calls of its handles in any order.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::Store;
use crate::ids::RecordId;
use crate::message::OwnedMessage;

/// A call of a handle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    /// `keep` of a message of this queue, with this record id.
    Keep(RecordId, String),
    /// `forget` of the message with this record id.
    Forget(RecordId),
}

/// The calls of all handles, in order.
#[derive(Clone, Debug, Default)]
pub struct Journal(Arc<Mutex<Vec<Told>>>);

/// The messages that remain in the store after all calls.
#[derive(Debug, Default)]
pub struct Kept {
    records: BTreeSet<RecordId>,
    tombstones: BTreeSet<RecordId>,
}

impl Journal {
    fn lock(&self) -> MutexGuard<'_, Vec<Told>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A handle of the store.
    pub fn handle(&self) -> Box<dyn Store> {
        Box::new(self.clone())
    }

    /// The calls so far.
    pub fn told(&self) -> Vec<Told> {
        self.lock().clone()
    }
}

impl Store for Journal {
    fn keep(&mut self, queue: &[u8], _: &OwnedMessage) -> RecordId {
        let mut told = self.lock();
        let record = told.iter().filter(|it| matches!(it, Told::Keep(..))).count() as RecordId + 1;
        told.push(Told::Keep(record, String::from_utf8_lossy(queue).into_owned()));
        record
    }

    fn forget(&mut self, record: RecordId) {
        self.lock().push(Told::Forget(record));
    }
}

impl Kept {
    /// The messages that remain after these calls, in this order.
    pub fn after<'a>(told: impl IntoIterator<Item = &'a Told>) -> BTreeSet<RecordId> {
        let mut kept = Kept::default();
        for one in told {
            match one {
                Told::Keep(record, _) if !kept.tombstones.remove(record) => _ = kept.records.insert(*record),
                Told::Forget(record) if !kept.records.remove(record) => _ = kept.tombstones.insert(*record),
                _ => {}
            }
        }
        assert!(kept.tombstones.is_empty(), "each record was kept once");
        kept.records
    }
}

#[test]
fn what_is_forgotten_before_it_is_kept_is_not_kept() {
    let keep = |record| Told::Keep(record, "/queue/a".to_owned());
    let told = [keep(1), keep(2), Told::Forget(1), keep(3), Told::Forget(3)];
    let in_order = Kept::after(&told);
    assert_eq!(in_order, BTreeSet::from([2]));
    assert_eq!(Kept::after(told.iter().rev()), in_order);
}
