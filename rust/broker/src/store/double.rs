//! A store for tests: what its handles are told reaches it in any order.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::Store;
use crate::ids::RecordId;
use crate::message::OwnedMessage;

/// What a handle was told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    /// Keep a message, under this record, in this queue.
    Keep(RecordId, String),
    /// Forget the message under this record.
    Forget(RecordId),
}

/// What all handles were told, in this order.
#[derive(Clone, Debug, Default)]
pub struct Journal(Arc<Mutex<Vec<Told>>>);

/// What is left in a store once it has heard all.
#[derive(Debug, Default)]
pub struct Kept {
    records: BTreeSet<RecordId>,
    tombstones: BTreeSet<RecordId>,
}

impl Journal {
    fn lock(&self) -> MutexGuard<'_, Vec<Told>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A handle of it.
    pub fn handle(&self) -> Box<dyn Store> {
        Box::new(self.clone())
    }

    /// What was told.
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
    /// Those that are left when a store has heard this, in this order.
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
