//! The stubs of a line, packed: twelve bytes each, twenty if they expire. There may be millions of them.
//!
//! Neighbours have places and records that differ little, so a run of them keeps a first place and up to two records, and of
//! each stub only the difference. (Messages that are kept and those that are only paged out have records far apart.)

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::mem::{size_of, size_of_val};

use super::paged::Stub;
use crate::collections::paged_deque::PagedDeque;
use crate::ids::RecordId;

/// The stubs of a run at most: a power of two, so that it reaches this size by doubling.
const RUN: usize = 512;

/// One stub: differences from its run.
#[derive(Clone, Copy, Debug)]
struct Packed {
    seq: u32,
    /// The difference from one of the run's two records; the lowest bit says from which.
    record: i32,
    bytes: u32,
}

/// Stubs that differ little.
#[derive(Debug)]
struct Run {
    first_seq: u64,
    records: [RecordId; 2],
    stubs: VecDeque<Packed>,
    /// When each of them expires; empty if none does.
    expires_ms: VecDeque<u64>,
}

/// The difference from a record, if it can be packed.
fn difference(from: RecordId, to: RecordId) -> Option<i32> {
    let difference = i32::try_from(to.wrapping_sub(from).cast_signed()).ok()?;
    difference.checked_mul(2)
}

impl Run {
    fn new(stub: Stub, capacity: usize) -> Self {
        let mut run = Run {
            first_seq: stub.seq,
            records: [stub.record; 2],
            stubs: VecDeque::with_capacity(capacity),
            expires_ms: VecDeque::new(),
        };
        run.push(stub);
        run
    }

    /// Adds a stub at the end, and says whether it is near enough and there is room.
    fn push(&mut self, stub: Stub) -> bool {
        let Ok(seq) = u32::try_from(stub.seq.wrapping_sub(self.first_seq)) else { return false };
        if self.stubs.len() >= RUN {
            return false;
        }
        let [near, far] = self.records;
        if near == far && difference(near, stub.record).is_none() {
            self.records[1] = stub.record;
        }
        let near = difference(near, stub.record);
        let Some(record) = near.or_else(|| Some(difference(self.records[1], stub.record)? | 1)) else {
            return false;
        };
        if stub.expires_ms != 0 && self.expires_ms.is_empty() {
            self.expires_ms.resize(self.stubs.len(), 0);
        }
        if stub.expires_ms != 0 || !self.expires_ms.is_empty() {
            self.expires_ms.push_back(stub.expires_ms);
        }
        self.stubs.push_back(Packed { seq, record, bytes: stub.bytes });
        true
    }

    fn seq_of(&self, packed: Packed) -> u64 {
        self.first_seq + u64::from(packed.seq)
    }

    fn get(&self, at: usize) -> Option<Stub> {
        let packed = *self.stubs.get(at)?;
        let from = self.records[(packed.record & 1) as usize];
        Some(Stub {
            record: from.wrapping_add_signed(i64::from(packed.record >> 1)),
            seq: self.seq_of(packed),
            expires_ms: self.expires_ms.get(at).copied().unwrap_or(0),
            bytes: packed.bytes,
        })
    }

    fn remove(&mut self, at: usize) -> Option<Stub> {
        let stub = self.get(at)?;
        self.stubs.remove(at);
        if !self.expires_ms.is_empty() {
            self.expires_ms.remove(at);
        }
        Some(stub)
    }

    /// Where a place is, as seen from this run.
    fn compare(&self, seq: u64) -> Ordering {
        let of = |packed: Option<&Packed>| packed.map(|packed| self.seq_of(*packed));
        match (of(self.stubs.front()), of(self.stubs.back())) {
            (_, Some(last)) if last < seq => Ordering::Less,
            (Some(first), _) if first > seq => Ordering::Greater,
            _ => Ordering::Equal,
        }
    }

    /// Its memory in bytes, without what the deque of runs takes for it.
    fn bytes(&self) -> usize {
        self.stubs.capacity() * size_of::<Packed>() + self.expires_ms.capacity() * size_of::<u64>()
    }
}

/// Stubs in the order of their places.
#[derive(Debug, Default)]
pub(super) struct Stubs {
    runs: PagedDeque<Run>,
    len: usize,
    /// The memory of the runs.
    bytes: usize,
}

impl Stubs {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Approximate memory in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes + self.runs.capacity() * size_of::<Run>() + size_of_val(self)
    }

    pub(super) fn front(&self) -> Option<Stub> {
        self.runs.front()?.get(0)
    }

    pub(super) fn back(&self) -> Option<Stub> {
        let run = self.runs.back()?;
        run.get(run.stubs.len().checked_sub(1)?)
    }

    /// All stubs in order.
    #[cfg(any(test, simulated))]
    pub(super) fn iter(&self) -> impl Iterator<Item = Stub> {
        self.runs.iter().flat_map(|run| (0..run.stubs.len()).filter_map(|at| run.get(at)))
    }

    /// Adds a stub whose place is higher than all others.
    pub(super) fn push_back(&mut self, stub: Stub) {
        self.len += 1;
        if let Some(last) = self.runs.back_mut() {
            let before = last.bytes();
            let is_added = last.push(stub);
            self.bytes += last.bytes() - before;
            if is_added {
                return;
            }
        }
        // A short queue has one run that is not full.
        let is_long = self.runs.back().is_some_and(|last| last.stubs.len() == RUN);
        let run = Run::new(stub, if is_long { RUN } else { 1 });
        self.bytes += run.bytes();
        self.runs.push_back(run);
    }

    pub(super) fn pop_front(&mut self) -> Option<Stub> {
        let first = self.runs.get_mut(0)?;
        let stub = first.remove(0)?;
        self.len -= 1;
        if first.stubs.is_empty() {
            self.bytes -= first.bytes();
            self.runs.pop_front();
        }
        Some(stub)
    }

    /// Removes the stub at a place.
    pub(super) fn remove(&mut self, seq: u64) -> Option<Stub> {
        let run = self.runs.get_by_mut(|run| run.compare(seq))?;
        let at = run.stubs.binary_search_by(|packed| run.seq_of(*packed).cmp(&seq)).ok()?;
        let stub = run.remove(at)?;
        self.len -= 1;
        if run.stubs.is_empty() {
            self.bytes -= run.bytes();
            self.runs.remove_by(|run| if run.stubs.is_empty() { Ordering::Equal } else { run.compare(seq) });
        }
        Some(stub)
    }
}

#[cfg(test)]
#[path = "stubs_tests.rs"]
mod tests;
