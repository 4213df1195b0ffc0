//! Python bindings: the private module `stompica._core`. It has no logic; the public API is `python/stompica`.
//!
//! No broker thread ever holds the GIL or calls into Python: Python calls in, and polls for logs.

mod broker;
mod error;
mod settings;
mod store;

use pyo3::prelude::*;

/// The broker often frees memory on another thread than the one that allocated it; mimalloc is built for that.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Returns to the system memory that this thread allocated and any thread freed.
fn reclaim() {
    // SAFETY: may be called at any time, from any thread; it accesses only the allocator's own state.
    unsafe { libmimalloc_sys::mi_collect(true) }
}

/// The native part of stompica.
#[pymodule(gil_used = false)]
fn _core(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<broker::Broker>()?;
    module.add_class::<settings::Setting>()?;
    module.add_class::<store::StoredMessage>()?;
    module.add_class::<store::StoreView>()?;
    module.add_class::<store::StoreEditor>()?;
    module.add_function(wrap_pyfunction!(settings::settings, module)?)?;
    module.add_function(wrap_pyfunction!(settings::check, module)?)?;
    module.add_function(wrap_pyfunction!(settings::parse_file, module)?)?;
    module.add_function(wrap_pyfunction!(settings::raise_descriptor_limit, module)?)?;
    module.add_function(wrap_pyfunction!(settings::avoid_huge_pages, module)?)?;
    Ok(())
}
