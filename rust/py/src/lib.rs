//! Python bindings: the private module `stompica._core`. No logic; the front is `python/stompica`.
//!
//! No broker thread ever holds the GIL or calls into Python: Python calls in, and polls for logs.

mod broker;
mod error;
mod settings;

use std::ffi::c_long;
use std::sync::OnceLock;

use pyo3::prelude::*;
use stompica_broker::GiveBack;

/// Memory freed on another thread than it was taken on is the broker's normal case; mimalloc is built for it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The number of mimalloc's option `purge_delay`: after so many milliseconds the system gets back what is free.
const PURGE_DELAY: libmimalloc_sys::mi_option_t = 15;
/// That delay while memory is short.
const SHORT_DELAY_MS: c_long = 10;

/// Has the allocator give the system back what is free.
fn reclaim(when: GiveBack) {
    static OWN_DELAY_MS: OnceLock<c_long> = OnceLock::new();
    // SAFETY: these may be called at any time, from any thread; they touch nothing but the allocator's own state. An
    // option is one machine word, which others read as it was or as it is.
    unsafe {
        let own_ms = *OWN_DELAY_MS.get_or_init(|| libmimalloc_sys::mi_option_get(PURGE_DELAY));
        match when {
            GiveBack::Now => libmimalloc_sys::mi_collect(true),
            GiveBack::Soon if own_ms > SHORT_DELAY_MS => {
                libmimalloc_sys::mi_option_set(PURGE_DELAY, SHORT_DELAY_MS);
            }
            GiveBack::Soon => {}
            GiveBack::Late => libmimalloc_sys::mi_option_set(PURGE_DELAY, own_ms),
        }
    }
}

/// The native part of stompica.
#[pymodule(gil_used = false)]
fn _core(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<broker::Broker>()?;
    module.add_class::<settings::Setting>()?;
    module.add_function(wrap_pyfunction!(settings::settings, module)?)?;
    module.add_function(wrap_pyfunction!(settings::check, module)?)?;
    module.add_function(wrap_pyfunction!(settings::parse_file, module)?)?;
    module.add_function(wrap_pyfunction!(settings::raise_descriptor_limit, module)?)?;
    module.add_function(wrap_pyfunction!(settings::avoid_huge_pages, module)?)?;
    Ok(())
}
