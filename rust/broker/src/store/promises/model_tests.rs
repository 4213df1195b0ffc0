//! Random calls of two shards against a model, with kills between the turns of the store: what it has then is exactly what it has
//! confirmed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};
use stompica_proto::encode::Message as Sent;
use tempfile::TempDir;

use super::{Backend, Fixture, for_each_store};
use crate::config::Fsync;
use crate::ids::RecordId;
use crate::message::OwnedMessage;
use crate::store::file::recovery::Recovered;
use crate::store::{Counts, Store as _, TransactionId};

const QUEUES: [&[u8]; 3] = [b"/queue/a", b"/queue/b", b"durable\nd"];

/// A message that is there.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Kept {
    queue: usize,
    place: u64,
    counts: Counts,
    body: Vec<u8>,
}

/// What a transaction of a shard has done so far.
#[derive(Debug, Default)]
struct Open {
    kept: Vec<(RecordId, Kept)>,
    forgotten: Vec<RecordId>,
}

struct Run<B> {
    random: SmallRng,
    fixture: Fixture<B>,
    /// What is there after all calls.
    kept: BTreeMap<RecordId, Kept>,
    /// For each shard, its transaction.
    open: [Option<(TransactionId, Open)>; 2],
    /// Messages that an open transaction is going to forget.
    claimed: BTreeSet<RecordId>,
    /// Messages of this turn: no other shard knows them before its end.
    fresh: [BTreeSet<RecordId>; 2],
    next_place: u64,
}

impl<B: Backend> Run<B> {
    fn new(seed: u64) -> Self {
        Run {
            random: SmallRng::seed_from_u64(seed),
            fixture: Fixture::new(),
            kept: BTreeMap::new(),
            open: [None, None],
            claimed: BTreeSet::new(),
            fresh: Default::default(),
            next_place: 1 << 40,
        }
    }

    /// A message that is there, that this shard knows, and that nobody forgets meanwhile.
    fn any(&mut self, shard: usize) -> Option<RecordId> {
        let others = &self.fresh[1 - shard];
        let is_free = |record: &&RecordId| !self.claimed.contains(record) && !others.contains(record);
        let free: Vec<_> = self.kept.keys().filter(is_free).copied().collect();
        (!free.is_empty()).then(|| free[self.random.random_range(0..free.len())])
    }

    fn keep(&mut self, shard: usize) -> (RecordId, Kept) {
        let length = *[0, 10, 200, 5000, 40_000].get(self.random.random_range(0..7)).unwrap_or(&50);
        let body: Vec<u8> = (0..length).map(|_| self.random.random()).collect();
        let queue = self.random.random_range(0..QUEUES.len());
        self.next_place += self.random.random_range(1..5);
        let (destination, id) = (&b"/topic/x"[..], &b"id"[..]);
        let sent = Sent { destination, id, sender: 1, headers: b"", plain: true, expires_ms: 0, body: &body };
        let mut message = OwnedMessage::new(&sent);
        (message.persistent, message.seq) = (true, self.next_place);
        let record = self.fixture.handles[shard].keep(QUEUES[queue], &message);
        self.fresh[shard].insert(record);
        (record, Kept { queue, place: self.next_place, counts: Counts::default(), body })
    }

    fn call(&mut self, shard: usize) {
        let forgotten = self.any(shard);
        let handle = &mut self.fixture.handles[shard];
        match (self.random.random_range(0..10), forgotten) {
            (0..4, _) => {
                let (record, kept) = self.keep(shard);
                self.kept.insert(record, kept);
            }
            (4..6, Some(record)) => {
                handle.forget(record);
                self.kept.remove(&record);
            }
            (6, Some(record)) => {
                let counts = Counts { deliveries: self.random.random_range(1..4), failures: 0 };
                handle.deliver(record, counts);
                let known = &mut self.kept.get_mut(&record).expect("it is there").counts;
                *known = (*known).max(counts);
            }
            (7, _) if self.open[shard].is_none() => {
                self.open[shard] = Some((handle.begin_transaction(), Open::default()));
            }
            (7, _) => self.commit(shard),
            (8, Some(record)) if self.open[shard].is_some() => self.inside(shard, Some(record)),
            (9, _) if self.open[shard].is_some() => self.inside(shard, None),
            _ => {}
        }
    }

    /// A call that belongs to the transaction of a shard.
    fn inside(&mut self, shard: usize, forgotten: Option<RecordId>) {
        let Some((id, mut open)) = self.open[shard].take() else { return };
        self.fixture.handles[shard].enter(Some(id));
        match forgotten {
            Some(record) => {
                self.fixture.handles[shard].forget(record);
                self.claimed.insert(record);
                open.forgotten.push(record);
            }
            None => open.kept.push(self.keep(shard)),
        }
        self.fixture.handles[shard].enter(None);
        self.open[shard] = Some((id, open));
    }

    fn commit(&mut self, shard: usize) {
        let Some((id, open)) = self.open[shard].take() else { return };
        self.fixture.handles[shard].end_transaction(id);
        self.kept.extend(open.kept);
        for record in open.forgotten {
            self.claimed.remove(&record);
            self.kept.remove(&record);
        }
    }

    fn turn(&mut self) {
        for _ in 0..self.random.random_range(0..12) {
            let shard = self.random.random_range(0..2);
            self.call(shard);
        }
        let wanted = self.any(1);
        wanted.into_iter().for_each(|record| self.fixture.handles[1].load(record));
        self.fixture.turn();
        self.fresh = Default::default();
        for handle in &mut self.fixture.handles {
            assert_eq!(handle.safe().expect("it has not failed"), handle.position());
        }
        if let Some(record) = wanted {
            let (found, loaded) = self.fixture.handles[1].loaded().expect("an answer");
            let loaded = loaded.expect("it can be read");
            assert_eq!((found, loaded.message().body), (record, &self.kept[&record].body[..]));
        }
    }

    /// The process is killed, and another one opens what it has left.
    fn kill(mut self) -> Self {
        // It has told nothing of this.
        self.fixture.handles[0].forget(1);
        let copy = TempDir::new_in("/dev/shm").or_else(|_| TempDir::new()).expect("a disk with room");
        for entry in fs::read_dir(self.fixture.at.path()).expect("a directory") {
            let entry = entry.expect("a name");
            fs::copy(entry.path(), copy.path().join(entry.file_name())).expect("a disk with room");
        }
        let (fixture, recovered) = Fixture::open(copy, Fsync::Always);
        self.check(&recovered);
        Run { fixture, open: [None, None], claimed: BTreeSet::new(), ..self }
    }

    fn check(&self, recovered: &Recovered) {
        let mut expected: BTreeMap<&[u8], Vec<(u64, RecordId)>> = BTreeMap::new();
        for (record, kept) in &self.kept {
            expected.entry(QUEUES[kept.queue]).or_default().push((kept.place, *record));
        }
        expected.values_mut().for_each(|line| line.sort_unstable());
        let found: BTreeMap<&[u8], Vec<(u64, RecordId)>> = recovered
            .queues
            .iter()
            .map(|(name, line)| (&name[..], line.iter().map(|it| (it.place, it.record)).collect()))
            .collect();
        assert_eq!(found, expected);
        for (record, kept) in &self.kept {
            let found = recovered.counts.get(record).copied().unwrap_or_default();
            assert!(found == kept.counts, "{record}: {found:?}, not {:?}", kept.counts);
        }
    }
}

for_each_store! {
    fn what_a_killed_process_leaves_is_exactly_what_it_has_confirmed<B>() {
        for seed in 0..12 {
            let mut run = Run::<B>::new(seed);
            for _ in 0..5 {
                (0..run.random.random_range(0..40)).for_each(|_| run.turn());
                run = run.kill();
            }
        }
    }
}
