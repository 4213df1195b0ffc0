//! A disk in memory, for tests and for the simulator: it fills up, fails at a call, and crashes. What was not synced at a crash is
//! lost, written or torn, in any order.

mod open_file;

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};

use crate::door::medium::{Medium, SharedFile};

/// The number of a file.
type Inode = usize;

#[derive(Clone, Debug)]
enum Change {
    Write(u64, Vec<u8>),
    Length(u64),
}

#[derive(Clone, Debug, Default)]
struct Contents {
    now: Vec<u8>,
    safe: Vec<u8>,
    /// What is in `now` and not in `safe`.
    changes: Vec<Change>,
    /// The bytes that it takes on the disk.
    room: u64,
}

impl Contents {
    fn sync(&mut self) {
        for change in self.changes.drain(..) {
            apply(&mut self.safe, &change);
        }
    }
}

/// What happens at a call.
#[cfg_attr(test, allow(dead_code))] // the simulator uses more of it
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It fails, and so do all later ones.
    Always(io::ErrorKind),
    /// It fails, and later ones do not.
    Once(io::ErrorKind),
    /// The process ends during it: nothing has an effect any more.
    End,
}

#[derive(Clone, Debug)]
enum Naming {
    Set(String, Inode),
    Remove(String),
}

#[derive(Debug)]
struct State {
    files: Vec<Contents>,
    names: BTreeMap<String, Inode>,
    safe_names: BTreeMap<String, Inode>,
    namings: Vec<Naming>,
    capacity: u64,
    /// Whether files get room when they are created.
    reserves: bool,
    /// The calls that change something until one fails, and how it does.
    calls_left: Option<(u64, Fault)>,
    /// Whether the process has ended during a call.
    has_ended: bool,
    /// Whether a call has failed, otherwise than by being full.
    has_failed: bool,
    /// Files that can be created.
    descriptors: usize,
}

/// The disk; clones are the same one.
#[derive(Clone, Debug)]
pub struct Disk(Arc<Mutex<State>>);

#[derive(Debug)]
struct OpenFile(Disk, Inode);

fn apply(bytes: &mut Vec<u8>, change: &Change) {
    match change {
        Change::Length(length) => bytes.resize(*length as usize, 0),
        Change::Write(offset, written) => {
            let end = *offset as usize + written.len();
            bytes.resize(bytes.len().max(end), 0);
            bytes[*offset as usize..end].copy_from_slice(written);
        }
    }
}

// A disk that fills up waits for the tests of that.
#[allow(dead_code)]
impl Disk {
    /// An empty disk of so many bytes.
    pub fn new(capacity: u64) -> Self {
        Disk(Arc::new(Mutex::new(State {
            files: Vec::new(),
            names: BTreeMap::new(),
            safe_names: BTreeMap::new(),
            namings: Vec::new(),
            capacity,
            reserves: true,
            calls_left: None,
            has_ended: false,
            has_failed: false,
            descriptors: usize::MAX,
        })))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes its size.
    pub fn set_capacity(&self, capacity: u64) {
        self.lock().capacity = capacity;
    }

    /// The bytes that its files take.
    pub fn used(&self) -> u64 {
        self.lock().used()
    }

    /// As a file system that cannot reserve room.
    pub fn without_reservations(&self) {
        self.lock().reserves = false;
    }

    /// How many files can still be created.
    pub fn set_descriptors(&self, count: usize) {
        self.lock().descriptors = count;
    }

    /// The call after so many that change something fails, and so do all later ones.
    pub fn fail_after(&self, calls: u64, kind: io::ErrorKind) {
        self.plan(calls, Fault::Always(kind));
    }

    /// What happens at the call after so many that change something.
    pub fn plan(&self, calls: u64, fault: Fault) {
        self.lock().calls_left = Some((calls, fault));
    }

    /// Whether a call has failed as it was planned, once.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.lock().has_failed
    }

    /// Nothing is planned any more.
    pub fn plan_nothing(&self) {
        self.lock().calls_left = None;
    }

    /// Whether the process has ended during a call: [`Fault::End`].
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.lock().has_ended
    }

    /// What another process finds after this one was killed: what was written is there, but not safe.
    #[must_use]
    pub fn kill(&self) -> Disk {
        let state = self.lock();
        let after = Disk::new(state.capacity);
        {
            let mut new = after.lock();
            new.files = state.files.iter().enumerate().map(|(at, file)| state.kept(at, file)).collect();
            (new.names, new.safe_names) = (state.names.clone(), state.safe_names.clone());
            (new.namings, new.reserves) = (state.namings.clone(), state.reserves);
        }
        after
    }

    /// A bit of a file's first `bytes` bytes is another one than was written. Returns the file's name and the place of the byte;
    /// `None`: there is none.
    pub fn flip(&self, seed: u64, bytes: impl Fn(&str) -> u64) -> Option<(String, u64)> {
        let mut random = SmallRng::seed_from_u64(seed);
        let mut state = self.lock();
        let state = &mut *state;
        let is_whole = |name: &str| bytes(name) > 0;
        let mut names: Vec<_> = state.names.iter().filter(|(name, _)| is_whole(name)).collect();
        names.retain(|(_, inode)| !state.files[**inode].now.is_empty());
        let (name, inode) = names.get(random.random_range(0..names.len().max(1)))?;
        let file = &mut state.files[**inode];
        let at = random.random_range(0..file.now.len().min(bytes(name) as usize));
        let bit = 1 << random.random_range(0..8);
        file.now[at] ^= bit;
        if let Some(byte) = file.safe.get_mut(at) {
            *byte ^= bit;
        }
        Some(((*name).clone(), at as u64))
    }

    /// What another process finds after the power has failed.
    pub fn crash(&self, seed: u64) -> Disk {
        let mut random = SmallRng::seed_from_u64(seed);
        let state = self.lock();
        let mut files: Vec<_> =
            state.files.iter().enumerate().map(|(at, file)| state.kept(at, file)).collect();
        for file in &mut files {
            let loses_all = random.random_ratio(1, 3);
            let mut safe = std::mem::take(&mut file.safe);
            for change in file.changes.drain(..) {
                if loses_all || random.random_ratio(1, 3) {
                    continue;
                }
                match change {
                    Change::Write(offset, bytes) if random.random_ratio(1, 2) => {
                        let cut = random.random_range(0..=bytes.len());
                        let (from, to) = if random.random() { (0, cut) } else { (cut, bytes.len()) };
                        apply(&mut safe, &Change::Write(offset + from as u64, bytes[from..to].to_vec()));
                    }
                    other => apply(&mut safe, &other),
                }
            }
            file.room = file.room.max(safe.len() as u64);
            (file.now, file.safe) = (safe.clone(), safe);
        }
        let mut names = state.safe_names.clone();
        let count = random.random_range(0..=state.namings.len());
        for naming in &state.namings[..count] {
            match naming {
                Naming::Set(name, inode) => _ = names.insert(name.clone(), *inode),
                Naming::Remove(name) => _ = names.remove(name),
            }
        }
        let after = Disk::new(state.capacity);
        {
            let mut new = after.lock();
            (new.files, new.reserves) = (files, state.reserves);
            (new.names, new.safe_names) = (names.clone(), names);
        }
        after
    }
}

impl State {
    fn used(&self) -> u64 {
        self.names.values().map(|inode| self.files[*inode].room).sum()
    }

    /// A file as another process finds it; nobody does that has no name any more.
    fn kept(&self, inode: Inode, file: &Contents) -> Contents {
        let is_set = |naming: &Naming| matches!(naming, Naming::Set(_, it) if *it == inode);
        let is_named = self.names.values().chain(self.safe_names.values()).any(|it| *it == inode);
        if is_named || self.namings.iter().any(is_set) { file.clone() } else { Contents::default() }
    }

    fn call(&mut self) -> io::Result<()> {
        match &mut self.calls_left {
            Some((0, Fault::Always(kind))) => Err((*kind).into()),
            Some((0, Fault::Once(kind))) => {
                let kind = *kind;
                (self.calls_left, self.has_failed) = (None, true);
                Err(kind.into())
            }
            Some((0, Fault::End)) => {
                self.has_ended = true;
                Err(io::ErrorKind::Other.into())
            }
            Some((left, _)) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn find(&self, name: &str) -> io::Result<Inode> {
        self.names.get(name).copied().ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

impl Medium for Disk {
    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.lock().names.keys().cloned().collect())
    }

    fn create(&self, name: &str, bytes: u64) -> io::Result<SharedFile> {
        let mut state = self.lock();
        state.call()?;
        if state.names.contains_key(name) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        if state.descriptors == 0 {
            return Err(io::Error::from_raw_os_error(libc::EMFILE));
        }
        let room = if state.reserves { bytes } else { 0 };
        if state.used() + room > state.capacity {
            return Err(io::ErrorKind::StorageFull.into());
        }
        state.descriptors = state.descriptors.saturating_sub(1);
        let inode = state.files.len();
        let now = vec![0; bytes as usize];
        let changes = vec![Change::Length(bytes)];
        state.files.push(Contents { now, changes, room, ..Contents::default() });
        state.names.insert(name.to_owned(), inode);
        state.namings.push(Naming::Set(name.to_owned(), inode));
        drop(state);
        Ok(Arc::new(OpenFile(self.clone(), inode)))
    }

    fn open(&self, name: &str) -> io::Result<SharedFile> {
        let inode = self.lock().find(name)?;
        Ok(Arc::new(OpenFile(self.clone(), inode)))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut state = self.lock();
        state.call()?;
        state.find(name)?;
        state.names.remove(name);
        state.namings.push(Naming::Remove(name.to_owned()));
        Ok(())
    }

    fn rename(&self, name: &str, other: &str) -> io::Result<()> {
        let mut state = self.lock();
        state.call()?;
        let inode = state.find(name)?;
        state.names.remove(name);
        state.names.insert(other.to_owned(), inode);
        state.namings.push(Naming::Set(other.to_owned(), inode));
        state.namings.push(Naming::Remove(name.to_owned()));
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.lock();
        state.call()?;
        state.namings.clear();
        state.safe_names = state.names.clone();
        Ok(())
    }

    fn name(&self) -> String {
        "a disk in memory".to_owned()
    }
}
