//! Checks that homes agree with the model: at any time, at rest, and at the end.

use super::*;

impl World {
    /// Completes all work that needs no passage of time.
    pub(super) fn rest(&mut self) {
        for home in 0..self.homes.len() {
            (0..homes::SHARDS).for_each(|shard| self.room(home, shard, true));
            self.homes[home].note_memory(0, 1 << 30, 1);
        }
        loop {
            for home in 0..self.homes.len() {
                self.pump(home, usize::MAX);
                self.homes[home].proceed(usize::MAX);
                self.dispatch(home, usize::MAX);
                self.load_all(home);
            }
            let is_quiet = |home: usize| {
                self.to_home[home].is_empty()
                    && self.from_home[home].is_empty()
                    && !self.homes[home].is_busy()
            };
            if (0..self.homes.len()).all(is_quiet) {
                break;
            }
        }
        assert!(self.homes.iter().all(|home| !home.has_work()));
        self.closed_before.iter_mut().for_each(BTreeSet::clear);
        self.check_credit();
        self.check_work();
    }

    /// Credit is neither lost nor created.
    pub(super) fn check_credit(&self) {
        for number in self.alive() {
            let model = &self.consumers[number];
            let homes: Vec<usize> =
                (0..self.homes.len()).filter(|home| self.attached[*home].contains_key(&number)).collect();
            let credit: i64 = homes.iter().map(|home| self.credit(*home, number).messages).sum();
            assert_eq!(credit + model.available + model.held.len() as i64, model.prefetch);
            for home in homes {
                let unwritten = model.unwritten.iter().filter(|((at, ..), _)| *at == home);
                let bytes: i64 = unwritten.map(|(_, bytes)| bytes).sum();
                assert_eq!(self.credit(home, number).bytes + bytes, model.window);
            }
        }
    }

    /// No message waits while a consumer could get it.
    pub(super) fn check_work(&self) {
        let is_needed = |home: usize, number: usize| {
            let mut lines =
                self.lines.iter().filter(|(at, line)| at.0 == home && line.consumers.contains(&number));
            lines.any(|(_, line)| line.waiting.values().any(|id| self.sent[*id].eligible_ms <= self.now_ms))
        };
        for (at, line) in self.lines.iter().filter(|(_, line)| self.next_of(line).is_some()) {
            for number in &line.consumers {
                let (model, credit) = (&self.consumers[*number], self.credit(at.0, *number));
                assert!(!credit.is_left(), "a message and a consumer with credit wait for each other");
                if model.source.is_ok() || credit.messages > 0 {
                    continue;
                }
                let key = self.attached[at.0][number];
                assert!(model.requests.contains(&(at.0, key)), "a home does not ask for credit");
                assert_eq!(model.available, 0, "its shard has credit");
                for other in (0..self.homes.len()).filter(|other| self.credit(*other, *number).messages > 0) {
                    assert!(is_needed(other, *number), "credit is unused at another home");
                }
            }
        }
    }

    pub(super) fn check(&mut self) {
        let leaves = |sent: &Sent| matches!(sent.state, State::Leaves(_));
        assert!(!self.sent.iter().any(leaves), "a message is lost");
        let is_kept = |id: usize, sent: &Sent| is_persistent(id) && !is_worker(sent.name);
        let sent = self.sent.iter().enumerate().filter(|(id, sent)| is_kept(*id, sent));
        let live = sent.filter(|(_, sent)| matches!(sent.state, State::Waits | State::InFlight)).count();
        assert_eq!(self.store.kept(), live as u64, "the store keeps exactly the live messages");
        for (number, home) in self.homes.iter().enumerate() {
            assert_eq!(home.queues.len(), self.lines.keys().filter(|at| at.0 == number).count());
            assert!(home.consumers.iter().all(|(_, consumer)| consumer.credit.messages >= 0));
        }
        let now_ms = self.now_ms;
        for (at, line) in &mut self.lines {
            let home = &self.homes[at.0];
            let queue = home.queue(at.1).expect("a queue");
            let seen = (queue.pending.len(), queue.in_flight, queue.is_idle());
            assert_eq!(seen, (line.waiting.len(), line.in_flight, line.is_idle()));
            let is_current = queue.patterns_as_of == home.patterns.generation;
            assert!(!is_current || home.consumers_of(queue) as usize == line.consumers.len());
            for number in &line.consumers {
                let key = self.attached[at.0][number];
                let consumer = home.consumers.get(key).expect("a consumer");
                let places = match consumer.consumed {
                    Consumed::Queue(_) => queue.ready.iter().filter(|it| **it == Taker::One(key)).count(),
                    Consumed::Pattern(key_of_pattern) => {
                        let pattern = home.patterns.get(key_of_pattern).expect("a pattern");
                        let ready = queue.ready.iter().filter(|it| **it == Taker::Pattern(key_of_pattern));
                        let out_of_credit = pattern.out_of_credit.iter().filter(|it| **it == at.1);
                        let places = ready.count() + out_of_credit.count();
                        assert!(places == 1 || !is_current, "a pattern is in exactly one place");
                        pattern.ring.iter().filter(|it| **it == key).count()
                    }
                };
                assert_eq!(
                    places + usize::from(consumer.out_of_credit),
                    1,
                    "a consumer is in exactly one place"
                );
            }
            if !line.is_idle() {
                line.busy_ms = now_ms;
            }
        }
    }

    /// Lets every message reach its end, and removes all consumers.
    pub(super) fn finish(mut self) {
        for kept in take(&mut self.kept) {
            self.release(kept, true);
        }
        self.rest();
        let names: Vec<usize> = self.lines.values().map(|line| line.name).collect();
        names.into_iter().for_each(|name| self.subscribe(Ok(name), Credit::UNLIMITED, Credit::UNLIMITED));
        for _ in 0..3 {
            self.rest();
            for number in 0..self.consumers.len() {
                self.write(number);
                while !self.consumers[number].held.is_empty() {
                    self.settle(number, 0);
                }
            }
            self.rest();
            self.pass(10_000);
            self.check();
        }
        let left: Vec<usize> =
            (0..self.sent.len()).filter(|id| self.sent[*id].state != State::Ended).collect();
        assert!(left.is_empty(), "{left:?} were never delivered");
        self.store.check_end();
        let redelivered: u64 =
            self.sent.iter().map(|sent| u64::from(sent.deliveries.saturating_sub(1))).sum();
        assert_eq!(self.homes.iter().map(|home| home.counts.redelivered).sum::<u64>(), redelivered);
        self.alive().into_iter().for_each(|number| self.unsubscribe(number));
        self.rest();
        self.pass(10_000);
        assert!(self.lines.is_empty() && self.timers.is_empty());
        for home in &self.homes {
            assert_eq!((home.queues.len(), home.named(), home.consumers.len()), (0, 0, 0));
            assert!(home.by_subscriber.is_empty() && home.patterns.is_empty() && !home.is_sweeping());
            assert_eq!((home.references, home.name_bytes, home.held_bytes()), (0, 0, 0));
        }
    }
}
