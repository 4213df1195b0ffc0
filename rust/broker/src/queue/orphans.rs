//! Temporary queues whose owner has gone.

use crate::text::Text;

/// Temporary destinations of one connection that has gone.
#[derive(Debug)]
pub(crate) struct Orphans {
    pub(crate) secret: String,
    pub(crate) names: Vec<Text>,
}
