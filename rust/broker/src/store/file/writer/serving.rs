//! Answers requests for messages: from the disk, or from what waits to be written.

use std::collections::BTreeMap;

use super::super::inbox::{Inbox, Work};
use super::super::log::Lookup;
use super::super::reader::Request;
use super::super::waiting::find;
use super::Writer;
use crate::door::HashMap;
use crate::ids::RecordId;
use crate::store::Unreadable;

impl Writer {
    /// Goes on to answer requests for messages after the log has failed, until the last shard has ended.
    pub fn serve_reads(&mut self, inbox: &Inbox, read: &mut impl FnMut(Request)) {
        self.begin_to_serve(inbox, read);
        while !self.has_ended {
            self.serve_turn(inbox.take(None), inbox, read);
        }
    }

    /// The log has failed: from now on only [`serve_turn`](Writer::serve_turn) is called.
    pub fn begin_to_serve(&mut self, inbox: &Inbox, read: &mut impl FnMut(Request)) {
        self.has_failed = true;
        self.answer_early(&HashMap::default(), inbox, read);
    }

    /// Answers requests after the log has failed.
    pub fn serve_turn(&mut self, work: Work, inbox: &Inbox, read: &mut impl FnMut(Request)) {
        let Work { batches, loads, has_ended } = work;
        self.has_ended |= has_ended;
        self.push(batches);
        self.drop_what_is_not_read();
        loads.into_iter().for_each(|(shard, record)| self.serve(shard, record, inbox, read));
        self.answer_early(&HashMap::default(), inbox, read);
    }

    /// After a failure only messages that may be requested stay: nothing is written any more.
    fn drop_what_is_not_read(&mut self) {
        self.sift();
        self.urgent.clear();
        self.waiting.take_done();
    }

    /// Lets messages be read that are written: they need not wait for what is to be made safe. Returns the others.
    pub(super) fn serve_written(
        &self,
        loads: Vec<(usize, RecordId)>,
        read: &mut impl FnMut(Request),
    ) -> Vec<(usize, RecordId)> {
        let mut others = Vec::new();
        for (shard, record) in loads {
            match self.log.find(record) {
                Lookup::At(file, stored) => read(Request { shard, record, file, stored }),
                Lookup::Lost | Lookup::Unknown => others.push((shard, record)),
            }
        }
        others
    }

    /// Lets a message be read, or notes that it is wanted.
    pub(super) fn serve(
        &mut self,
        shard: usize,
        record: RecordId,
        inbox: &Inbox,
        read: &mut impl FnMut(Request),
    ) {
        match self.log.find(record) {
            Lookup::At(file, stored) => read(Request { shard, record, file, stored }),
            Lookup::Unknown if !self.log.is_old(record) && record < inbox.next_record() => {
                let refused = self.early.push(shard, record);
                refused.into_iter().for_each(|it| inbox.give(it.shard, (it.record, Err(Unreadable))));
            }
            Lookup::Lost | Lookup::Unknown => inbox.give(shard, (record, Err(Unreadable))),
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
        let log = &self.log;
        for early in self.early.take(|early| !matches!(log.find(early.record), Lookup::Unknown)) {
            self.serve(early.shard, early.record, inbox, read);
        }
        let waiting = self.waiting.batches().chain(&self.stuck.batches);
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
