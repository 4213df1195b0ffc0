//! Stands for `sqlite_thread.rs` in builds whose disk SQLite does not know.

use std::sync::Arc;

use super::Files;
use crate::door::Directory;
use crate::mail::shared::Shared;

/// The name of a database.
pub(super) const FILE: &str = "messages.db";

/// SQLite is not there.
#[derive(Debug, thiserror::Error)]
#[error("this build has no SQLite")]
pub struct OpenError;

/// Refuses every directory.
pub(super) fn check(_: &Directory) -> Result<(), OpenError> {
    Err(OpenError)
}

/// Refuses every directory.
pub(super) fn run(_: Files, _: &Arc<Shared>) -> Result<(), String> {
    Err(OpenError.to_string())
}
