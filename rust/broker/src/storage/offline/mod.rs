//! A store that no broker uses: to be read ([`View`]), or to be changed ([`Editor`]). For commands of an operator.
//!
//! A view changes nothing in the directory, not even after a crash. An editor uses the directory as a broker does: it claims
//! it, and repairs what a crash has left.

mod edit;
mod view;

pub use self::edit::Editor;
pub use self::view::{DamagedPart, StoredQueue, View};
use stompica_proto::header;

use crate::door::ClaimError;
use crate::queue::restored::DURABLE;
use crate::store::file::entry::ENTRY_BYTES_MAX;
use crate::store::{DEFINITIONS, RETAINED};

/// The longest message: the log adds something to it.
const MESSAGE_BYTES_MAX: usize = ENTRY_BYTES_MAX / 2;
/// Headers that a dead letter is given: the only ones of the broker that a stored message has among its own.
const OF_DEAD_LETTERS: [&[u8]; 3] =
    [header::DEAD_LETTER_REASON, header::ORIGINAL_DESTINATION, header::DELIVERY_COUNT];

/// Names and values, unescaped.
pub type Headers = Vec<(Vec<u8>, Vec<u8>)>;

/// What kind of thing is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A message of a queue, or one that waits for a durable subscription.
    Message,
    /// The last value of a topic.
    Retained,
    /// The definition of a durable subscription.
    Durable,
}

/// A message in a store, or a definition of a durable subscription in the form of one: its destination is the topic, its body
/// the name of its queue, its id `shared` if several connections may hold it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoredMessage {
    /// Its queue: `/queue/…`, the name of a durable subscription's queue, or one of the two queues that nobody can name.
    pub queue: Vec<u8>,
    /// Its place in the queue; places grow.
    pub place: u64,
    /// Its destination.
    pub destination: Vec<u8>,
    /// Its `message-id`.
    pub id: Vec<u8>,
    /// The headers of its sender, and those that a dead letter was given.
    pub headers: Headers,
    /// Its body.
    pub body: Vec<u8>,
    /// `persistent:true`.
    pub persistent: bool,
    /// Whether it belongs to a message group.
    pub grouped: bool,
    /// When it expires, in milliseconds since 1970; 0: never.
    pub expires_ms: u64,
    /// `max-exceptions`; 0: not set.
    pub failures_max: u16,
    /// How often it was delivered.
    pub deliveries: u32,
    /// How often that has failed.
    pub failures: u16,
}

impl StoredMessage {
    /// Whether it may be added to a store.
    ///
    /// # Errors
    /// Why not, in one line.
    pub fn check(&self) -> Result<(), String> {
        let show = |text: &[u8]| String::from_utf8_lossy(text).escape_debug().to_string();
        let is_known = self.queue == DEFINITIONS || self.queue == RETAINED;
        if !is_known && !self.queue.starts_with(DURABLE) && !self.queue.starts_with(b"/queue/") {
            return Err(format!("queue '{}' is none that a store keeps: '/queue/…'", show(&self.queue)));
        }
        if self.destination.is_empty() {
            return Err("the destination is empty".to_owned());
        }
        if self.id.is_empty() && self.queue != DEFINITIONS {
            return Err("the message-id is empty".to_owned());
        }
        if !self.id.iter().all(|byte| byte.is_ascii_graphic() && !b":\\".contains(byte)) {
            return Err(format!("message-id '{}' has other than visible ASCII characters", show(&self.id)));
        }
        let mut texts = self.headers.iter().flat_map(|(name, value)| [name, value]);
        if texts.any(|text| text.contains(&0)) || self.destination.contains(&0) {
            return Err("a header or the destination has a NUL".to_owned());
        }
        for (name, _) in &self.headers {
            if name.is_empty() {
                return Err("a header has no name".to_owned());
            }
            if header::is_server_owned(name) && !OF_DEAD_LETTERS.contains(&&name[..]) {
                return Err(format!("header '{}' is set by the broker", show(name)));
            }
        }
        let bytes = |(name, value): &(Vec<u8>, Vec<u8>)| 2 * (name.len() + value.len() + 1);
        let all = self.headers.iter().map(bytes).sum::<usize>() + self.body.len() + self.queue.len();
        if all > MESSAGE_BYTES_MAX {
            return Err(format!("it has {all} bytes, more than {MESSAGE_BYTES_MAX}"));
        }
        Ok(())
    }
}

/// Why a store cannot be read or changed: one line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct OfflineError(String);

impl OfflineError {
    /// A directory cannot be used for what is wanted (`read`, `change`).
    fn of(verb: &str, dir: &str, cause: impl std::fmt::Display) -> Self {
        OfflineError(format!("cannot {verb} the store in '{dir}': {cause}"))
    }

    fn of_claim(verb: &str, dir: &str, error: &ClaimError) -> Self {
        match error {
            ClaimError::InUse(_) => {
                Self::of(verb, dir, format_args!("{error}; 'stompica diag store' asks a running broker"))
            }
            ClaimError::Io(_) => Self::of(verb, dir, error),
        }
    }
}

#[cfg(test)]
#[path = "offline_tests.rs"]
mod tests;
