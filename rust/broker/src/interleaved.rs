//! The parts of the broker in which threads meet, for the tests of `rust/loom`.

pub use crate::config::Config;
pub use crate::door::loomed::plant;
pub use crate::door::sync::thread::Builder as ThreadBuilder;
pub use crate::door::sync::{AtomicI64, AtomicUsize, Ordering};
pub use crate::door::{Events, HashState, Poll, Token, Waker};
pub use crate::held::bytes as held_bytes;
pub use crate::ids::ShardId;
pub use crate::log::{Level, LogQueue};
pub use crate::mail::incoming::{Incoming, Next};
pub use crate::mail::mailbox::{Batch, Mail, Mailbox};
pub use crate::mail::peers::Peers;
pub use crate::mail::shared::Shared;
pub use crate::message::OwnedMessage;
pub use crate::queue::home::Home;
pub use crate::queue::mail::{HomeNote, Note};
pub use crate::queue::notes::Notes;
pub use crate::queue::retained::{Retained, RetainedCount};
pub use crate::queue::stale::{Stale, StaleCounts};
pub use crate::router::reach::Reach;
pub use crate::store::Memory;
pub use crate::totals::{Once, Totals};
pub use crate::turn::Turn;
pub use crate::turn::memory::MemoryGauge;
