//! Answers requests for messages: from the database, or from what waits to be written.

use std::collections::BTreeMap;

use super::super::reader::Request;
use super::Writer;
use crate::door::HashMap;
use crate::ids::RecordId;
use crate::store::Unreadable;
use crate::store::file::inbox::{Inbox, Work};
use crate::store::file::waiting::find;

impl Writer {
    /// Goes on to answer requests for messages after a failure, until the last shard has ended.
    pub fn serve_reads(&mut self, inbox: &Inbox, read: &mut impl FnMut(Request)) {
        self.has_failed = true;
        self.answer_early(&HashMap::default(), inbox, read);
        let mut has_ended = self.ended_at.is_some();
        while !has_ended {
            let Work { batches, loads, has_ended: is_last } = inbox.take(None);
            has_ended = is_last;
            self.push(batches);
            self.drop_what_is_not_read();
            loads.into_iter().for_each(|(shard, record)| self.serve(shard, record, inbox, read));
            self.answer_early(&HashMap::default(), inbox, read);
        }
    }

    /// After a failure only messages that may be requested stay: nothing is written any more.
    fn drop_what_is_not_read(&mut self) {
        self.sift();
        self.urgent.clear();
        self.waiting.take_done();
    }

    fn has(&self, record: RecordId) -> bool {
        self.database.has(record).unwrap_or_default()
    }

    /// Lets messages be read that are written: they need not wait for what is to be made safe. Returns the others.
    pub(super) fn serve_written(
        &self,
        mut loads: Vec<(usize, RecordId)>,
        read: &mut impl FnMut(Request),
    ) -> Vec<(usize, RecordId)> {
        loads.retain(|(shard, record)| {
            let is_written = self.has(*record);
            if is_written {
                read(Request { shard: *shard, record: *record });
            }
            !is_written
        });
        loads
    }

    /// Lets a message be read, or notes that it is wanted.
    pub(super) fn serve(
        &mut self,
        shard: usize,
        record: RecordId,
        inbox: &Inbox,
        read: &mut impl FnMut(Request),
    ) {
        if self.has(record) {
            read(Request { shard, record });
        } else if !self.database.is_old(record) && record < inbox.next_record() {
            let refused = self.early.push(shard, record);
            refused.into_iter().for_each(|it| inbox.give(it.shard, (it.record, Err(Unreadable))));
        } else {
            inbox.give(shard, (record, Err(Unreadable)));
        }
    }

    /// Answers requests whose messages have come or wait in memory, and those whose messages will not come.
    pub(super) fn answer_early(
        &mut self,
        forgotten: &HashMap<RecordId, ()>,
        inbox: &Inbox,
        read: &mut impl FnMut(Request),
    ) {
        if self.early.is_empty() {
            return;
        }
        let database = &self.database;
        for early in self.early.take(|early| database.has(early.record).unwrap_or_default()) {
            self.serve(early.shard, early.record, inbox, read);
        }
        let waiting = self.waiting.batches();
        let in_memory: BTreeMap<_, _> = find(waiting, |record| self.early.has(record)).into_iter().collect();
        for early in self.early.take(|early| in_memory.contains_key(&early.record)) {
            let bytes = in_memory.get(&early.record).cloned();
            inbox.give(early.shard, (early.record, bytes.ok_or(Unreadable)));
        }
        let has_failed = self.has_failed;
        let mut refused = self.early.take(|early| has_failed || forgotten.contains_key(&early.record));
        refused.extend(self.early.take_old());
        refused.into_iter().for_each(|it| inbox.give(it.shard, (it.record, Err(Unreadable))));
    }
}
