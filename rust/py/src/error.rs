//! Converts Rust errors to the Python exceptions of `stompica/errors.py`. All conversions are here.

use pyo3::PyErr;
use pyo3::exceptions::PyValueError;

use stompica_broker::config;
use stompica_broker::offline::OfflineError;
use stompica_broker::{DiagError, StartError};

mod python {
    pyo3::import_exception!(stompica.errors, ConfigError);
    pyo3::import_exception!(stompica.errors, StartError);
    pyo3::import_exception!(stompica.errors, BrokerFailed);
    pyo3::import_exception!(stompica.errors, StoreError);
}

/// A setting was refused.
#[allow(clippy::needless_pass_by_value, reason = "the argument of map_err")]
pub(crate) fn config(error: config::ConfigError) -> PyErr {
    python::ConfigError::new_err(error.to_string())
}

/// The broker could not start: port in use, no such address.
pub(crate) fn start(error: &StartError) -> PyErr {
    python::StartError::new_err(error.to_string())
}

/// A shard panicked.
pub(crate) fn failed(cause: String) -> PyErr {
    python::BrokerFailed::new_err(cause)
}

/// A store cannot be read or changed.
pub(crate) fn store(error: &OfflineError) -> PyErr {
    python::StoreError::new_err(error.to_string())
}

/// A diagnostics query has no answer.
#[allow(clippy::needless_pass_by_value, reason = "the argument of map_err")]
pub(crate) fn diag(error: DiagError) -> PyErr {
    match error {
        DiagError::Unknown(_) => PyValueError::new_err(error.to_string()),
        DiagError::Silent(_) => python::BrokerFailed::new_err(error.to_string()),
    }
}
