//! A disk in memory for tests: it fills up, fails at a call, and crashes. What was not synced at a crash is lost, written or
//! torn, in any order.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};

use crate::door::medium::{Medium, MediumFile, SharedFile};

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
    calls_left: Option<(u64, io::ErrorKind)>,
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
        self.lock().calls_left = Some((calls, kind));
    }

    /// What another process finds after the power has failed.
    pub fn crash(&self, seed: u64) -> Disk {
        let mut random = SmallRng::seed_from_u64(seed);
        let state = self.lock();
        let mut files = state.files.clone();
        for file in &mut files {
            let loses_all = random.random_ratio(1, 3);
            let mut safe = file.safe.clone();
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

    fn call(&mut self) -> io::Result<()> {
        match &mut self.calls_left {
            Some((0, kind)) => Err((*kind).into()),
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

impl MediumFile for OpenFile {
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let mut state = self.0.lock();
        let failed = state.call();
        let free = state.capacity.saturating_sub(state.used());
        let file = &mut state.files[self.1];
        // Some of the bytes are written before the call fails.
        let fitting = (file.room + free).saturating_sub(offset).min(bytes.len() as u64) as usize;
        let count = if failed.is_err() { fitting / 2 } else { fitting };
        let change = Change::Write(offset, bytes[..count].to_vec());
        apply(&mut file.now, &change);
        file.changes.push(change);
        file.room = file.room.max(offset + count as u64);
        failed?;
        if count < bytes.len() { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }

    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        let state = self.0.lock();
        let from = state.files[self.1].now.get(offset as usize..).unwrap_or_default();
        let count = bytes.len().min(from.len());
        bytes[..count].copy_from_slice(&from[..count]);
        Ok(count)
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut state = self.0.lock();
        state.call()?;
        let file = &mut state.files[self.1];
        file.changes.clear();
        file.safe = file.now.clone();
        Ok(())
    }

    fn sync_all(&self) -> io::Result<()> {
        self.sync_data()
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.0.lock().files[self.1].now.len() as u64)
    }

    fn set_length(&self, bytes: u64) -> io::Result<()> {
        let mut state = self.0.lock();
        state.call()?;
        let file = &mut state.files[self.1];
        file.now.resize(bytes as usize, 0);
        file.changes.push(Change::Length(bytes));
        file.room = file.room.min(bytes);
        Ok(())
    }
}
