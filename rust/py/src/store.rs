//! A store that no broker uses, as Python objects: to be read, or to be changed.

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use stompica_broker::offline::{Editor, Kind, OfflineError, StoredMessage as Stored, View};

use crate::error;

/// Lets Python run its signal handlers while a store is read; keeps the exception of one that raises.
#[derive(Default)]
struct Signals(Mutex<Option<PyErr>>);

impl Signals {
    /// Whether to go on.
    fn check(&self) -> bool {
        let checked = Python::attach(|py| py.check_signals());
        let goes_on = checked.is_ok();
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = checked.err();
        goes_on
    }

    /// The exception that has ended something, or else its error.
    fn error(self, error: &OfflineError) -> PyErr {
        let raised = self.0.into_inner().unwrap_or_else(PoisonError::into_inner);
        raised.unwrap_or_else(|| error::store(error))
    }
}

/// A message in a store; docs/store.md describes the fields, in the form of JSON.
#[pyclass(frozen, get_all, module = "stompica._core")]
pub(crate) struct StoredMessage {
    queue: Vec<u8>,
    place: u64,
    destination: Vec<u8>,
    id: Vec<u8>,
    headers: Vec<(Vec<u8>, Vec<u8>)>,
    body: Vec<u8>,
    persistent: bool,
    grouped: bool,
    expires_ms: u64,
    failures_max: u16,
    deliveries: u32,
    failures: u16,
}

#[pymethods]
impl StoredMessage {
    /// A message to be added to a store. ValueError if it is none that a store may have.
    #[new]
    #[pyo3(signature = (
        *, queue, destination, id, headers, body, persistent,
        grouped=false, expires_ms=0, failures_max=0, deliveries=0, failures=0
    ))]
    #[allow(clippy::too_many_arguments, reason = "the fields of a record, all of them named by the caller")]
    fn new(
        queue: &[u8],
        destination: &[u8],
        id: &[u8],
        headers: Vec<(Vec<u8>, Vec<u8>)>,
        body: &[u8],
        persistent: bool,
        grouped: bool,
        expires_ms: u64,
        failures_max: u16,
        deliveries: u32,
        failures: u16,
    ) -> PyResult<Self> {
        let stored = Stored {
            queue: queue.to_vec(),
            place: 0,
            destination: destination.to_vec(),
            id: id.to_vec(),
            headers,
            body: body.to_vec(),
            persistent,
            grouped,
            expires_ms,
            failures_max,
            deliveries,
            failures,
        };
        stored.check().map_err(PyValueError::new_err)?;
        Ok(stored.into())
    }
}

impl From<Stored> for StoredMessage {
    fn from(stored: Stored) -> Self {
        let Stored { queue, place, destination, id, headers, body, persistent, grouped, .. } = stored;
        let Stored { expires_ms, failures_max, deliveries, failures, .. } = stored;
        StoredMessage {
            queue,
            place,
            destination,
            id,
            headers,
            body,
            persistent,
            grouped,
            expires_ms,
            failures_max,
            deliveries,
            failures,
        }
    }
}

/// A queue of a store: name, kind (`message`, `retained`, `durable`), messages, bytes.
type QueueRow = (Vec<u8>, &'static str, usize, u64);
/// A damaged part: file, first byte, the byte behind it, lost messages if that is known, their queues as far as known.
type DamageRow = (String, u64, u64, Option<u64>, Vec<Vec<u8>>);
/// A message, or the file and the offset of one that cannot be read.
type Read = (Option<StoredMessage>, Option<(String, u64)>);

/// A store that is read, and not changed.
#[pyclass(frozen, module = "stompica._core")]
pub(crate) struct StoreView(Mutex<View>);

impl StoreView {
    fn view(&self) -> MutexGuard<'_, View> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl StoreView {
    /// Opens the store in a directory.
    #[staticmethod]
    fn open(py: Python<'_>, dir: PathBuf) -> PyResult<Self> {
        let signals = Signals::default();
        let opened = py.detach(|| View::open(&dir, |_, _| signals.check()));
        opened.map(|view| StoreView(Mutex::new(view))).map_err(|error| signals.error(&error))
    }

    /// The number of its files.
    #[getter]
    fn segments(&self) -> usize {
        self.view().segments()
    }

    /// The bytes of its files that are needed.
    #[getter]
    fn needed_bytes(&self) -> u64 {
        self.view().needed_bytes()
    }

    /// The bytes at the end that a crash has left incomplete.
    #[getter]
    fn torn_bytes(&self) -> u64 {
        self.view().torn_bytes()
    }

    /// What the disk has lost.
    fn damages(&self) -> Vec<DamageRow> {
        let row = |part: stompica_broker::offline::DamagedPart| {
            (part.file, part.from, part.to, part.messages, part.queues)
        };
        self.view().damages().into_iter().map(row).collect()
    }

    /// Its queues, sorted by name.
    fn queues(&self) -> Vec<QueueRow> {
        let kind = |kind| match kind {
            Kind::Message => "message",
            Kind::Retained => "retained",
            Kind::Durable => "durable",
        };
        let queues = self.view().queues().into_iter();
        queues.map(|queue| (queue.name, kind(queue.kind), queue.messages, queue.bytes)).collect()
    }

    /// Reads a message by the index of its queue and its index in the queue. ValueError if there is none.
    fn read(&self, py: Python<'_>, queue: usize, index: usize) -> PyResult<Read> {
        match py.detach(|| self.view().read(queue, index)) {
            Some(Ok(message)) => Ok((Some(message.into()), None)),
            Some(Err(place)) => Ok((None, Some(place))),
            None => Err(PyValueError::new_err("no such message")),
        }
    }
}

/// A store that only this process uses, to be changed.
#[pyclass(frozen, module = "stompica._core")]
pub(crate) struct StoreEditor(Mutex<Option<Editor>>);

impl StoreEditor {
    fn with<T: Send>(
        &self,
        py: Python<'_>,
        act: impl FnOnce(&mut Editor) -> Result<T, OfflineError> + Send,
    ) -> PyResult<T> {
        // Without the GIL throughout: a thread that waits for the lock must not hold the GIL.
        let done = py.detach(|| {
            let mut editor = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            editor.as_mut().map(act)
        });
        done.ok_or_else(closed)?.map_err(|error| error::store(&error))
    }
}

fn closed() -> PyErr {
    PyValueError::new_err("the store is closed")
}

#[pymethods]
impl StoreEditor {
    /// Opens the store in a directory, which is created if it does not exist; `purpose` is what others are told meanwhile.
    #[staticmethod]
    fn open(py: Python<'_>, dir: PathBuf, purpose: &str) -> PyResult<Self> {
        let signals = Signals::default();
        let opened = py.detach(|| Editor::open(&dir, purpose, |_, _| signals.check()));
        opened.map(|editor| StoreEditor(Mutex::new(Some(editor)))).map_err(|error| signals.error(&error))
    }

    /// Adds a message; false if it is a last value or a durable subscription that exists.
    fn add(&self, py: Python<'_>, message: &StoredMessage) -> PyResult<bool> {
        let stored = Stored {
            queue: message.queue.clone(),
            place: 0,
            destination: message.destination.clone(),
            id: message.id.clone(),
            headers: message.headers.clone(),
            body: message.body.clone(),
            persistent: message.persistent,
            grouped: message.grouped,
            expires_ms: message.expires_ms,
            failures_max: message.failures_max,
            deliveries: message.deliveries,
            failures: message.failures,
        };
        self.with(py, |editor| editor.add(&stored))
    }

    /// Rewrites files until that saves nothing more. A signal handler that raises ends it between two files.
    fn compact(&self, py: Python<'_>) -> PyResult<()> {
        let signals = Signals::default();
        self.with(py, |editor| editor.compact(|| signals.check()))?;
        match signals.0.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Some(raised) => Err(raised),
            None => Ok(()),
        }
    }

    /// Makes everything safe, and gives the directory back. Returns how many messages were added, and how many were lost
    /// because they could not be read.
    fn close(&self, py: Python<'_>) -> PyResult<(u64, u64)> {
        let taken = || self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        let closed_now = py.detach(|| taken().map(Editor::close));
        closed_now.ok_or_else(closed)?.map_err(|error| error::store(&error))
    }
}
