//! The status text of all queues, every 5 s to whoever subscribed to `/queue/monitor` (PRODUCT.md, section 9).

use smallvec::SmallVec;
use stompica_proto::encode::Message;

use super::Shard;
use super::timer::Due;
use crate::queue::QueueKind;
use crate::queue::mail::QueueMail;
use crate::router::destination::MONITOR;

/// Time between two texts.
const INTERVAL_MS: u64 = 5000;

/// A text of which parts are still to come.
#[derive(Debug, Default)]
pub(super) struct Monitor {
    text: Vec<u8>,
    waiting: usize,
}

impl Shard {
    /// Sets the timer for the next text; one shard does.
    pub(super) fn arm_monitor(&mut self) {
        if self.id.0 == 0 {
            self.timers.add(self.now_ms + INTERVAL_MS, Due::Monitor);
        }
    }

    /// Gathers a text, if somebody wants it.
    pub(super) fn begin_monitor(&mut self) {
        self.arm_monitor();
        if !self.router.has_entry(MONITOR) {
            return;
        }
        self.monitor = Monitor { text: Vec::new(), waiting: self.shared_len() };
        self.tell_everyone(|| QueueMail::Monitor);
    }

    /// What this home has to say.
    pub(super) fn monitor_text(&self) -> Vec<u8> {
        let mut queues: Vec<_> = self.home.iter().filter(|queue| queue.kind == QueueKind::Work).collect();
        queues.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        let mut text = Vec::new();
        for queue in queues {
            text.extend_from_slice(b"Queue: ");
            text.extend_from_slice(&queue.name);
            let numbers = (queue.size(), queue.dequeued, queue.enqueued);
            let rest = format!("\nsize: {}\ndequeued: {}\nenqueued: {}\n\n", numbers.0, numbers.1, numbers.2);
            text.extend_from_slice(rest.as_bytes());
        }
        text
    }

    /// A part has come; the last one completes the text.
    pub(super) fn monitor_answered(&mut self, text: &[u8]) {
        self.monitor.text.extend_from_slice(text);
        self.monitor.waiting = self.monitor.waiting.saturating_sub(1);
        if self.monitor.waiting > 0 {
            return;
        }
        let body = std::mem::take(&mut self.monitor.text);
        let Ok(destination) = self.router.destination(MONITOR) else { return };
        let id = SmallVec::<[u8; 40]>::from_slice(self.ids.next_id());
        let headers = b"content-type:text/plain\n";
        let message = Message { destination: MONITOR, id: &id, headers, plain: true, body: &body };
        let shards = self.router.remote(destination);
        self.publish(&message, destination, shards);
    }
}
