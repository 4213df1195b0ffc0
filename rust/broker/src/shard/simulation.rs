//! Access to a shard for the simulated broker and its tests.

use std::time::Duration;

use super::Shard;
use crate::door::Events;
use crate::ids::SubscriptionKey;
use crate::snapshot::Snapshot;

impl Shard {
    /// Runs one turn with the sockets that are ready now.
    pub fn run_turn(&mut self, events: &mut Events) {
        // A poll that fails returns no events; ready sockets stay ready.
        if self.poll.poll(events, Some(Duration::ZERO)).is_ok() {
            self.turn(events);
        }
    }

    /// Whether something has happened that ends the wait of its poll. It is told once.
    #[cfg(test)]
    pub fn is_woken(&mut self) -> bool {
        let mut events = Events::with_capacity(4);
        self.poll.poll(&mut events, Some(Duration::ZERO)).is_ok() && !events.is_empty()
    }

    /// Whether the next turn follows without waiting for an event.
    #[cfg(test)]
    pub fn goes_on(&self) -> bool {
        self.poll_timeout() == Some(Duration::ZERO)
    }

    /// Prepares for the first turn, as [`Shard::run`] does.
    #[cfg(simulated)]
    pub fn begin(&mut self) {
        self.diag().arm_monitor();
    }

    /// Whether it runs no further turn.
    #[cfg(any(test, simulated))]
    pub fn is_stopped(&self) -> bool {
        self.stopped
    }

    /// Whether the poll would report an event now.
    #[cfg(simulated)]
    pub fn has_events(&self) -> bool {
        self.poll.has_events()
    }

    /// Whether another thread has woken the shard, as far as that can be told.
    #[cfg(any(test, simulated))]
    pub fn was_woken(&self) -> bool {
        #[cfg(simulated)]
        let was_woken = self.has_events();
        #[cfg(not(simulated))]
        let was_woken = false;
        was_woken
    }

    /// How long the shard would wait for the next event at most; `None`: without a limit.
    #[cfg(any(test, simulated))]
    pub fn sleep(&self) -> Option<Duration> {
        self.poll_timeout()
    }

    /// The time until its next deadline.
    #[cfg(simulated)]
    pub fn deadline(&self) -> Option<Duration> {
        self.timer_timeout()
    }

    /// Whether a subscription gets periodic answers to a query.
    #[cfg(simulated)]
    pub(crate) fn is_watch(&self, subscription: crate::router::group::SubscriptionIndex) -> bool {
        self.diagnostics.watches.keys().any(|key| key.index == subscription)
    }

    /// The number of connections whose initial replay waits for memory.
    #[cfg(test)]
    pub fn short_of_memory(&self) -> usize {
        self.queues.replays.short_of_memory.len()
    }

    /// Continues initial replays with one visit left of a turn; returns the number of open windows.
    #[cfg(test)]
    pub fn pull_last(&mut self) -> usize {
        self.turn.budget = crate::turn::budget::Budget::nearly_over();
        self.delivery().pull_again();
        self.queues.replays.open_windows()
    }

    /// Dispatches queues as at the end of a turn that used up all other budgets; returns the number of deliveries.
    #[cfg(test)]
    pub fn dispatch_last(&mut self) -> u64 {
        let before = self.turn.counters.deliveries;
        self.turn.budget = crate::turn::budget::Budget::least();
        self.dispatch_queues();
        self.settle();
        self.turn.counters.deliveries - before
    }

    /// Puts a message into a queue.
    #[cfg(test)]
    pub fn enqueue_now(&mut self, name: &[u8]) {
        let (id, headers, body) = (&b"i"[..], &b""[..], &b""[..]);
        let message = stompica_proto::encode::Message {
            destination: name,
            id,
            sender: 0,
            headers,
            plain: true,
            expires_ms: 0,
            body,
        };
        let owned = crate::message::OwnedMessage::new(&message);
        assert!(self.queue().enqueue(owned).is_ok());
    }

    /// Serves a connection with one visit left of a turn.
    #[cfg(test)]
    pub fn serve_last(&mut self, key: crate::ids::ConnKey) {
        self.turn.budget = crate::turn::budget::Budget::nearly_over();
        self.serve(key);
    }

    /// The visits since the start.
    #[cfg(not(simulated))]
    pub fn visits(&self) -> usize {
        self.turn.heaviest.all_visited
    }

    /// Adds what this shard holds to a snapshot.
    pub fn add_to(&self, snapshot: &mut Snapshot) {
        snapshot.subscriptions += self.router.subscriptions.len();
        let is_consumer = |(index, generation)| {
            self.queues.consumers.get(SubscriptionKey { index: index as u32, generation }).is_some()
        };
        let subscriptions = self.router.subscriptions.iter().map(|(index, found)| (index, found.generation));
        let consumers = subscriptions.filter(|key| is_consumer(*key)).count();
        assert_eq!(consumers, self.queues.consumers.len(), "a consumer outlives its subscription");
        snapshot.filters += self.router.filters.len();
        for queue in self.queues.home.iter() {
            let name = String::from_utf8_lossy(&queue.name).into_owned();
            if queue.has_pending() {
                snapshot.waiting.push(name.clone());
            }
            snapshot.queues.push(name);
        }
        snapshot.queued += self.queues.home.iter().map(|queue| queue.size()).sum::<u64>();
        snapshot.kept = self.queues.stale.everywhere() + self.queues.retained.count(); // of all shards
        snapshot.unanswered += self.unanswered();
        snapshot.timers += self.turn.timers.len();
    }

    /// The number of pending answers.
    fn unanswered(&self) -> usize {
        let receipts: usize = self.connections.table.iter().map(|(_, conn)| conn.answers.len()).sum();
        receipts + self.diagnostics.asked_elsewhere(&self.queues)
    }
}
