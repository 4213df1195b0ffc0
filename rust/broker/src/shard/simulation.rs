//! A shard that takes its turns when it is told to.

use std::time::Duration;

use mio::Events;

use super::Shard;
use crate::ids::SubscriptionKey;
use crate::simulation::Snapshot;

impl Shard {
    /// One turn, with what is ready now.
    pub fn run_turn(&mut self, events: &mut Events) {
        // A poll that fails has no events; what was ready stays so.
        if self.poll.poll(events, Some(Duration::ZERO)).is_ok() {
            self.turn(events);
        }
    }

    /// Whether the next turn follows at once, whatever comes.
    #[cfg(test)]
    pub fn goes_on(&self) -> bool {
        self.poll_timeout() == Some(Duration::ZERO)
    }

    /// How long it waits for the next event at most; `None`: for ever.
    #[cfg(test)]
    pub fn sleep(&self) -> Option<Duration> {
        self.poll_timeout()
    }

    /// Entries of the list of connections that ask for more of the past once there is memory.
    #[cfg(test)]
    pub fn short_of_memory(&self) -> usize {
        self.queues.replays.short_of_memory.len()
    }

    /// Lets connections ask for more of the past with one visit snapshot of a turn; how many homes' windows are open then.
    #[cfg(test)]
    pub fn pull_last(&mut self) -> usize {
        self.turn.budget = crate::turn::budget::Budget::nearly_over();
        self.delivery().pull_again();
        self.queues.replays.open_windows()
    }

    /// Lets queues deliver as at the end of a turn of which all else had all it may have; how many deliveries they made.
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
        let message =
            stompica_proto::encode::Message { destination: name, id, sender: 0, headers, plain: true, body };
        let stored = crate::message::OwnedMessage::new(&message);
        assert!(self.queue().enqueue(stored).is_ok());
    }

    /// Serves a connection with one visit snapshot of a turn.
    #[cfg(test)]
    pub fn serve_last(&mut self, key: crate::ids::ConnKey) {
        self.turn.budget = crate::turn::budget::Budget::nearly_over();
        self.serve(key);
    }

    /// Queues, names and the like that it has looked at since the start.
    pub fn visits(&self) -> usize {
        self.turn.heaviest.all_visited
    }

    /// Adds what this shard holds.
    pub fn add_to(&self, snapshot: &mut Snapshot) {
        snapshot.subscriptions += self.router.subscriptions.len();
        let is_consumer = |(index, generation)| {
            self.queues.consumers.get(SubscriptionKey { index: index as u32, generation }).is_some()
        };
        let subscriptions = self.router.subscriptions.iter().map(|(index, found)| (index, found.generation));
        let consumers = subscriptions.filter(|key| is_consumer(*key)).count();
        assert_eq!(consumers, self.queues.consumers.len(), "a consumer outlives its subscription");
        snapshot.filters += self.router.filters.len();
        snapshot
            .queues
            .extend(self.queues.home.iter().map(|queue| String::from_utf8_lossy(&queue.name).into_owned()));
        snapshot.unanswered += self.unanswered();
        snapshot.timers += self.turn.timers.len();
    }
}
