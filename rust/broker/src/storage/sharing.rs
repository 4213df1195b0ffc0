//! Gives each home its share of what the store has.

use std::hash::BuildHasher as _;
use std::sync::Arc;

use crate::destination::home_of;
use crate::door::{HashMap, HashState, planted, wall_clock_ms};
use crate::ids::RecordId;
use crate::message::OwnedMessage;
use crate::queue::restored::{Restoring, Share, Stub};
use crate::store::file::handle::LogHandle;
use crate::store::file::inbox::Inbox;
use crate::store::file::recovery::{self, Recovered};
use crate::store::{DEFINITIONS, RETAINED};

/// Sorts what was recovered by homes, whose handles meet at these inboxes; `read` reads a message. `now_ms` is the broker's clock.
///
/// Returns the shares, and how many definitions and retained messages could not be read.
pub(super) fn share(
    inbox: &Arc<Inbox>,
    page_file: &Arc<Inbox>,
    read: impl Fn(RecordId) -> Option<OwnedMessage>,
    recovered: Recovered,
    hasher: &HashState,
    now_ms: u64,
) -> (Vec<Share>, u64) {
    let shards = inbox.shards();
    let homes = Restoring::new(shards);
    let mut shares: Vec<Share> = (0..shards)
        .map(|shard| Share {
            store: Box::new(LogHandle::new(shard, Arc::clone(inbox)).with_page_file(Arc::clone(page_file))),
            counts: HashMap::default(),
            definitions: Vec::new(),
            retained: Vec::new(),
            lines: Vec::new(),
            homes: Arc::clone(&homes),
        })
        .collect();
    let home = |name: &[u8]| usize::from(home_of(hasher.hash_one(name), shards).0);
    let Recovered { queues, counts, .. } = recovered;
    let wall_ms = wall_clock_ms();
    // What has expired meanwhile expires at once.
    let on_clock = |at_ms: u64| match at_ms {
        0 => 0,
        _ => now_ms.saturating_add(at_ms).saturating_sub(wall_ms).max(1),
    };
    let mut unreadable = 0;
    for (name, waiting) in queues {
        if name == DEFINITIONS || name == RETAINED {
            for found in waiting {
                match read(found.record) {
                    Some(_) if name == DEFINITIONS && planted!("definition-not-restored") => {}
                    Some(message) if name == DEFINITIONS => {
                        shares[home(message.message().body)].definitions.push(message);
                    }
                    Some(mut message) => {
                        message.expires_ms = on_clock(found.expires_ms);
                        shares[home(message.destination())].retained.push(message);
                    }
                    None => unreadable += 1,
                }
            }
            continue;
        }
        let share = &mut shares[home(&name)];
        for found in &waiting {
            if let Some(known) = counts.get(&found.record)
                && !planted!("counts-not-restored")
            {
                share.counts.insert(found.record, *known);
            }
        }
        let stub = |recovery::Waiting { record, place, expires_ms, bytes }| Stub {
            record,
            seq: place,
            expires_ms: on_clock(expires_ms),
            bytes,
        };
        // The room of one list becomes that of the other: they have the same size.
        share.lines.push((name.into(), waiting.into_iter().map(stub).collect()));
    }
    (shares, unreadable)
}

/// Whether a message of the log is one of a client, not a definition or a retained message.
pub(super) fn is_message(queue: &[u8]) -> bool {
    queue != DEFINITIONS && queue != RETAINED
}
