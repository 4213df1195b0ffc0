//! The running broker as a Python object.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, UNIX_EPOCH};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use stompica_broker::config::{self, Config};
use stompica_broker::log::{Level, LogQueue, Record};

use crate::error;
use crate::settings::{Triple, entries};

/// Capacity of the log queue; when it is full, new records are dropped and counted.
const LOG_CAPACITY: usize = 10_000;
/// How often a waiting call lets Python run its signal handlers.
const SIGNAL_CHECK: Duration = Duration::from_millis(100);

/// One log record: seconds since the epoch, level, text, fields.
type LogRecord = (f64, &'static str, String, Vec<(&'static str, String)>);

/// A running broker. Every method that may wait releases the GIL.
#[pyclass(frozen, module = "stompica._core")]
pub(crate) struct Broker {
    broker: stompica_broker::Broker,
    log: Arc<LogQueue>,
    /// The effective settings, to determine at a reload which changes need a restart.
    config: Mutex<Config>,
}

#[pymethods]
impl Broker {
    /// Starts a broker with these settings, lowest priority first; returns once it listens.
    #[staticmethod]
    fn start(py: Python<'_>, given: Vec<Triple>) -> PyResult<Broker> {
        let config = Config::from_map(&entries(given)).map_err(error::config)?;
        let log = LogQueue::new(LOG_CAPACITY, config.log_level);
        let started =
            py.detach(|| stompica_broker::Broker::start(config.clone(), Arc::clone(&log), crate::reclaim));
        let broker = started.map_err(|error| error::start(&error))?;
        Ok(Broker { broker, log, config: Mutex::new(config) })
    }

    /// The address it listens on: host and port.
    fn address(&self) -> (String, u16) {
        let address = self.broker.address();
        (address.ip().to_string(), address.port())
    }

    /// Begins an orderly shutdown; returns at once.
    fn drain(&self) {
        self.broker.drain();
    }

    /// Stops the broker without draining; does not wait for the end.
    fn stop(&self) {
        self.broker.stop();
    }

    /// Waits until the broker has ended and returns true; returns false after `timeout` seconds.
    #[pyo3(signature = (timeout=None))]
    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<bool> {
        let ended = poll(py, timeout, |slice| self.broker.wait(Some(slice)))?;
        match ended {
            None => Ok(false),
            Some(Ok(())) => Ok(true),
            Some(Err(cause)) => Err(error::failed(cause)),
        }
    }

    /// Waits until mailboxes are empty and outboxes flushed and returns true; returns false after `timeout` seconds or
    /// when the broker has ended.
    fn settle(&self, py: Python<'_>, timeout: f64) -> PyResult<bool> {
        let settled = poll(py, Some(timeout), |slice| {
            let settled = self.broker.settle(slice);
            (settled || self.broker.wait(Some(Duration::ZERO)).is_some()).then_some(settled)
        })?;
        Ok(settled.unwrap_or(false))
    }

    /// The open connections, one dictionary each.
    fn connections<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyDict>>> {
        let connections = py.detach(|| self.broker.connections());
        let row = |connection: stompica_broker::ConnectionInfo| {
            let row = PyDict::new(py);
            row.set_item("id", connection.id)?;
            row.set_item("peer", peer(connection.peer))?;
            row.set_item("shard", connection.shard)?;
            row.set_item("transport", connection.transport)?;
            row.set_item("version", connection.version)?;
            row.set_item("subscriptions", connection.subscriptions)?;
            row.set_item("outbox_bytes", connection.outbox_bytes)?;
            Ok(row)
        };
        connections.into_iter().map(row).collect()
    }

    /// Answers a diagnostics query, in JSON. ValueError for an unknown query.
    fn diag(&self, py: Python<'_>, query: &str) -> PyResult<String> {
        py.detach(|| self.broker.diag(query)).map_err(error::diag)
    }

    /// The broker's counters, by name.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let stats = PyDict::new(py);
        for (name, count) in py.detach(|| self.broker.stats()) {
            stats.set_item(name, count)?;
        }
        Ok(stats)
    }

    /// Applies the reloadable ones of these settings; returns the keys of changed ones that need a restart.
    fn reload(&self, py: Python<'_>, given: Vec<Triple>) -> PyResult<Vec<&'static str>> {
        let wanted = Config::from_map(&entries(given)).map_err(error::config)?;
        // Without the GIL throughout: a thread that waits for the lock must not hold the GIL, which the lock's owner
        // needs to return.
        let restart = py.detach(|| {
            let mut running = self.config.lock().unwrap_or_else(PoisonError::into_inner);
            let restart = config::needing_restart(&running, &wanted);
            *running = config::reloaded(&running, &wanted);
            self.log.set_level(running.log_level);
            self.broker.reload(running.clone());
            restart
        });
        Ok(restart)
    }

    /// Takes the records logged since the last call; waits up to `timeout` seconds for the first one.
    /// Returns None when the log has ended.
    fn poll_logs(&self, py: Python<'_>, timeout: f64) -> PyResult<Option<Vec<LogRecord>>> {
        let timeout = seconds(timeout)?;
        let records = py.detach(|| self.log.drain(timeout));
        if records.is_empty() && self.log.is_finished() {
            return Ok(None);
        }
        Ok(Some(records.into_iter().map(log_record).collect()))
    }

    /// Adds a record to the log, regardless of the log level.
    fn announce(&self, level: &str, text: String) -> PyResult<()> {
        let level = [Level::Debug, Level::Info, Level::Warn, Level::Error]
            .into_iter()
            .find(|known| known.name() == level)
            .ok_or_else(|| PyValueError::new_err(format!("no level {level:?}")))?;
        self.log.announce(level, text, Vec::new());
        Ok(())
    }

    /// Ends the log: `poll_logs` returns the remaining records, then None.
    fn close_logs(&self) {
        self.log.close();
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        self.broker.stop();
        self.log.close();
    }
}

/// Calls `step` with slices of the timeout, without the GIL, until it returns a value. Between slices Python's signal
/// handlers run; an exception from one of them ends the wait.
fn poll<T: Send>(
    py: Python<'_>,
    timeout: Option<f64>,
    step: impl Fn(Duration) -> Option<T> + Sync,
) -> PyResult<Option<T>> {
    let deadline = timeout.map(seconds).transpose()?.and_then(|timeout| Instant::now().checked_add(timeout));
    loop {
        let left = deadline.map_or(SIGNAL_CHECK, |at| at.saturating_duration_since(Instant::now()));
        let done = py.detach(|| step(left.min(SIGNAL_CHECK)));
        if done.is_some() || left.is_zero() {
            return Ok(done);
        }
        py.check_signals()?;
    }
}

fn seconds(timeout: f64) -> PyResult<Duration> {
    if timeout.is_nan() {
        return Err(PyValueError::new_err("timeout: must be a number of seconds"));
    }
    Ok(Duration::try_from_secs_f64(timeout.max(0.0)).unwrap_or(Duration::MAX))
}

fn peer(address: SocketAddr) -> (String, u16) {
    (address.ip().to_string(), address.port())
}

fn log_record(record: Record) -> LogRecord {
    let time = record.time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
    (time, record.level.name(), record.text, record.fields)
}
