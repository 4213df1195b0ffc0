//! What shards tell each other: the mailbox, and the mail that was taken from it.

pub mod incoming;
pub mod mailbox;
