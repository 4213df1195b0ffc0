//! Mail to homes and effects of homes, and their results in the model.

use super::*;

/// The number of shards with consumers.
pub(super) const SHARDS: u8 = 3;

/// A subscription of one of several shards.
fn subscriber_of(number: usize) -> Subscriber {
    Subscriber { shard: ShardId((number % usize::from(SHARDS)) as u8), ..subscriber(number) }
}

impl World {
    pub(super) fn create(&mut self, name: usize) -> Place {
        let home = name % self.homes.len();
        let kind = if is_worker(name) { QueueKind::Worker } else { QueueKind::Work };
        let key = self.homes[home].create(NAMES[name].as_bytes(), kind);
        let consumes = |number: &&usize| match self.consumers[**number].source {
            Ok(_) => false,
            Err(pattern) => matches(PATTERNS[pattern], NAMES[name]),
        };
        let line = Line {
            name,
            next_seq: 0,
            waiting: BTreeMap::new(),
            in_flight: 0,
            consumers: self.attached[home].keys().filter(consumes).copied().collect(),
            exact: 0,
            reserved: 0,
            barriers: BTreeSet::new(),
            busy_ms: self.now_ms,
            touched_ms: self.now_ms,
        };
        assert!(self.lines.insert((home, key), line).is_none());
        (home, key)
    }

    pub(super) fn line(&mut self, at: Place) -> Option<&mut Line> {
        let now_ms = self.now_ms;
        let line = self.lines.get_mut(&at)?;
        line.touched_ms = now_ms;
        Some(line)
    }

    pub(super) fn send(&mut self, name: usize, ttl_ms: Option<u64>, failures_max: u16) {
        if let Some(at) = self.line_for(name) {
            let now_ms = self.now_ms;
            let expires_ms = ttl_ms.map_or(0, |ttl_ms| (now_ms + ttl_ms).max(1));
            let Some(line) = self.line(at) else { return };
            let seq = line.next_seq;
            let is_taken = !is_worker(name) || !line.consumers.is_empty();
            let is_expired = expires_ms != 0 && expires_ms <= now_ms;
            line.next_seq += u64::from(is_taken && !is_expired);
            let message = self.message(at, seq, expires_ms, failures_max);
            let id = id_of(&message);
            if is_taken {
                self.put(id);
            } else {
                self.sent[id].state = State::Leaves("unmatched");
            }
            self.homes[at.0].enqueue(at.1, message);
        }
    }

    /// A message that is not in its queue yet.
    pub(super) fn message(
        &mut self,
        at: Place,
        seq: u64,
        expires_ms: u64,
        failures_max: u16,
    ) -> OwnedMessage {
        let (id, name) = (self.sent.len(), self.lines[&at].name);
        let mut message = message(NAMES[name], id, id % 20);
        (message.expires_ms, message.failures_max) = (expires_ms, failures_max);
        message.persistent = is_persistent(id);
        self.sent.push(Sent {
            at,
            name,
            seq,
            expires_ms,
            eligible_ms: 0,
            deliveries: 0,
            failures: 0,
            failures_max,
            refused_by: None,
            state: State::Ended,
        });
        message
    }

    /// Adds a message to its queue, or requeues it, unless it has expired.
    pub(super) fn put(&mut self, id: usize) {
        let sent = &mut self.sent[id];
        if sent.expires_ms != 0 && sent.expires_ms <= self.now_ms {
            let letter = !is_worker(sent.name) && !is_dead_letters(sent.name);
            sent.state = if letter { State::Leaves("expired") } else { State::Ended };
            return;
        }
        sent.state = State::Waits;
        let (at, seq) = (sent.at, sent.seq);
        let line = self.lines.get_mut(&at).expect("a known queue");
        assert!(line.waiting.insert(seq, id).is_none(), "a place is used once");
    }

    pub(super) fn reserve(&mut self, name: usize, count: u64) {
        if is_worker(name) {
            return; // their messages need no reservation
        }
        if let Some(at) = self.line_for(name) {
            let first = self.homes[at.0].reserve(at.1, count, count * 100);
            let Some(line) = self.line(at) else { return };
            let place = line.next_seq;
            line.next_seq += count;
            line.reserved += count;
            line.barriers.insert(place);
            self.kept.push((at, place, first, count));
        }
    }

    pub(super) fn release(&mut self, (at, place, first, count): (Place, u64, u64, u64), filled: bool) {
        for nth in (0..count).filter(|_| filled) {
            let message = self.message(at, place + nth, 0, 0);
            self.put(id_of(&message));
            self.homes[at.0].enqueue_at(at.1, message, first + nth);
        }
        let Some(line) = self.line(at) else { return };
        line.reserved -= count;
        line.barriers.remove(&place);
        self.homes[at.0].release(at.1, first, count, count * 100);
    }

    pub(super) fn delete(&mut self, at: Place) {
        self.homes[at.0].visited = 0; // as after each frame: so few messages are pending that they are dropped at once
        self.homes[at.0].delete(at.1);
        let line = self.lines.remove(&at).expect("a line");
        line.waiting.values().for_each(|id| self.sent[*id].state = State::Ended);
        self.kept.retain(|kept| kept.0 != at);
    }

    pub(super) fn pump(&mut self, home: usize, count: usize) {
        for _ in 0..count {
            let Some(effect) = self.from_home[home].pop_front() else { break };
            self.receive(home, effect);
        }
        for _ in 0..count {
            let Some(mail) = self.to_home[home].pop_front() else { break };
            self.tell(home, mail);
            self.run_effects(home);
        }
    }

    pub(super) fn tell(&mut self, home: usize, mail: ToHome) {
        match mail {
            ToHome::Attach(number, credit) => self.attach(home, number, credit),
            ToHome::Detach(number) => self.detach(home, number),
            ToHome::Progress(progress) => {
                if let Some(line) = self.line((home, progress.queue)) {
                    line.in_flight -= progress.settled;
                }
                self.homes[home].progress(&progress);
            }
            ToHome::GiveBack(queue, consumer, message, why) => {
                self.come_back(id_of(&message), consumer, why);
                self.homes[home].give_back(queue, consumer, message, why);
            }
            ToHome::Grant(consumer, messages) => self.homes[home].grant(consumer, messages),
            ToHome::Revoke(number) => self.homes[home].revoke(subscriber_of(number)),
        }
    }

    pub(super) fn attach(&mut self, home: usize, number: usize, credit: Credit) {
        let key = match self.consumers[number].source {
            Ok(name) => {
                let found = self.homes[home].find(NAMES[name].as_bytes());
                let at = found.map_or_else(|| self.create(name), |key| (home, key));
                let line = self.line(at).expect("a known queue");
                line.consumers.insert(number);
                line.exact += 1;
                self.homes[home].attach(at.1, subscriber_of(number), credit)
            }
            Err(pattern) => {
                let now_ms = self.now_ms;
                for (at, line) in &mut self.lines {
                    if at.0 == home && matches(PATTERNS[pattern], NAMES[line.name]) {
                        line.touched_ms = now_ms;
                        line.consumers.insert(number);
                    }
                }
                self.homes[home].attach_pattern(PATTERNS[pattern].as_bytes(), subscriber_of(number), credit)
            }
        };
        self.attached[home].insert(number, key);
    }

    pub(super) fn detach(&mut self, home: usize, number: usize) {
        self.attached[home].remove(&number);
        for (_, line) in self.lines.iter_mut().filter(|(at, _)| at.0 == home) {
            if line.consumers.remove(&number) {
                line.touched_ms = self.now_ms;
                line.exact -= usize::from(self.consumers[number].source.is_ok());
                if is_worker(line.name) && line.consumers.is_empty() {
                    for id in take(&mut line.waiting).into_values() {
                        self.sent[id].state = State::Leaves("unmatched");
                    }
                }
            }
        }
        self.homes[home].detach(subscriber_of(number));
        self.homes[home].proceed(usize::MAX); // messages of a worker topic leave when the sweep reaches it
    }

    pub(super) fn come_back(&mut self, id: usize, consumer: ConsumerKey, why: GivenBack) {
        let now_ms = self.now_ms;
        let sent = &mut self.sent[id];
        assert_eq!(sent.state, State::InFlight);
        let Some(line) = self.lines.get_mut(&sent.at) else {
            sent.state = State::Ended;
            return;
        };
        line.touched_ms = now_ms;
        line.in_flight -= 1;
        let is_expired = sent.expires_ms != 0 && sent.expires_ms <= now_ms;
        match why {
            GivenBack::Lost if is_worker(line.name) && line.consumers.is_empty() && !is_expired => {
                sent.state = State::Leaves("unmatched");
            }
            GivenBack::Failed { deliveries_max, delay_ms, .. } if !is_expired => {
                sent.failures += 1;
                sent.refused_by = Some(consumer);
                let by_message = sent.failures_max != 0 && sent.failures >= sent.failures_max;
                let by_count = u32::from(sent.failures) >= deliveries_max.min(DELIVERIES_MAX);
                if by_message || by_count {
                    let reason = if by_message { "max-exceptions" } else { "max-deliveries" };
                    let dead = is_dead_letters(sent.name);
                    sent.state = if dead { State::Ended } else { State::Leaves(reason) };
                } else {
                    sent.eligible_ms = now_ms + (delay_ms.max(DELAY_MS) << (sent.failures - 1)).min(10_000);
                    self.put(id);
                }
            }
            _ => self.put(id),
        }
    }

    pub(super) fn dispatch(&mut self, home: usize, count: usize) {
        self.homes[home].set_time(self.now_ms);
        for key in self.homes[home].ready_queues.clone() {
            self.line((home, key));
        }
        let delivered = self.homes[home].dispatch(count);
        assert!(delivered <= count);
        assert_eq!(self.homes[home].effects.iter().filter(|effect| is_delivery(effect)).count(), delivered);
        self.run_effects(home);
    }

    pub(super) fn run_effects(&mut self, home: usize) {
        for effect in take(&mut self.homes[home].effects) {
            match &effect {
                Effect::Deliver(delivery) => self.expect_delivery(home, delivery),
                Effect::DeadLetter(message) => {
                    let sent = &mut self.sent[id_of(message)];
                    let State::Leaves(reason) = sent.state else { panic!("a {:?} message died", sent.state) };
                    let headers = String::from_utf8_lossy(message.message().headers).into_owned();
                    let count = sent.deliveries;
                    assert!(headers.starts_with(&format!("dead-letter-reason:{reason}\n")), "{headers}");
                    assert!(headers.contains(&format!("\ndelivery-count:{count}\n")), "{headers}");
                    assert!(
                        message.record == NO_RECORD || message.persistent,
                        "only persistent ones are kept"
                    );
                    sent.state = State::Ended;
                    self.homes[home].forget(message); // as its new home does
                }
                Effect::Unmatched(message) => {
                    let sent = &mut self.sent[id_of(message)];
                    assert_eq!(sent.state, State::Leaves("unmatched"));
                    sent.state = State::Ended;
                }
                Effect::Timer(at_ms, key) => {
                    self.timers.retain(|Reverse((_, at, queue))| (*at, *queue) != (home, *key));
                    if *at_ms != u64::MAX {
                        self.timers.push(Reverse((*at_ms, home, *key)));
                    }
                }
                Effect::CreditRequest(..) | Effect::CreditReturn(..) => {}
                Effect::Unreadable(..) | Effect::Feed(_) => panic!("every message is here"),
            }
            if matches!(effect, Effect::Deliver(_) | Effect::CreditRequest(..) | Effect::CreditReturn(..)) {
                self.from_home[home].push_back(effect);
            }
        }
    }

    /// The next message to deliver: the first one that is not delayed, unless a transaction has reserved an earlier
    /// place.
    pub(super) fn next_of(&self, line: &Line) -> Option<usize> {
        let (seq, id) = line
            .waiting
            .iter()
            .find(|(_, id)| self.sent[**id].eligible_ms <= self.now_ms)
            .map(|(seq, id)| (*seq, *id))?;
        let is_barred = line.barriers.first().is_some_and(|barrier| seq > *barrier);
        (!is_barred).then_some(id)
    }

    pub(super) fn expect_delivery(&mut self, home: usize, delivery: &Delivery) {
        let (id, at) = (id_of(&delivery.message), (home, delivery.queue));
        let line = self.lines.get(&at).expect("a queue");
        assert_eq!(self.next_of(line), Some(id), "in order");
        let number = delivery.subscriber.key.index as usize;
        assert!(
            !self.closed[home].contains(&delivery.subscriber.shard.0),
            "a closed shard gets no deliveries"
        );
        assert!(line.consumers.contains(&number) && self.attached[home][&number] == delivery.consumer);
        if self.sent[id].refused_by == Some(delivery.consumer) {
            // A consumer of a pattern returns to its queues one after the other, so it may be late.
            let others = line.consumers.iter().filter(|other| **other != number);
            for other in others.filter(|other| self.consumers[**other].source.is_ok()) {
                // A consumer that is suspended or waits for others may be late, too.
                let was_away = self.closed_before[home].contains(&subscriber_of(*other).shard.0);
                assert!(
                    was_away || self.paces || !self.credit(home, *other).is_left(),
                    "another consumer could have got it"
                );
            }
        }
        let now_ms = self.now_ms;
        let line = self.lines.get_mut(&at).expect("a queue");
        let sent = &mut self.sent[id];
        line.waiting.remove(&sent.seq);
        line.in_flight += 1;
        line.touched_ms = now_ms;
        sent.state = State::InFlight;
        sent.deliveries += 1;
        assert_eq!(delivery.message.deliveries, sent.deliveries);
    }

    /// Closes or opens a shard for deliveries.
    pub(super) fn room(&mut self, home: usize, shard: u8, is_there: bool) {
        if is_there {
            self.closed[home].remove(&shard);
            return self.homes[home].open(ShardId(shard));
        }
        self.closed[home].insert(shard);
        self.closed_before[home].insert(shard);
        self.homes[home].close(ShardId(shard));
    }

    pub(super) fn credit(&self, home: usize, number: usize) -> Credit {
        let key = self.attached[home].get(&number);
        key.and_then(|key| self.homes[home].consumers.get(*key)).expect("an attached consumer").credit
    }

    pub(super) fn pass(&mut self, ms: u64) {
        self.now_ms += ms;
        let now_ms = self.now_ms;
        for line in self.lines.values_mut().filter(|line| !line.is_idle()) {
            (line.busy_ms, line.touched_ms) = (now_ms, now_ms);
        }
        for id in 0..self.sent.len() {
            let (seq, at) = (self.sent[id].seq, self.sent[id].at);
            if self.sent[id].state == State::Waits {
                self.lines
                    .get_mut(&at)
                    .and_then(|line| line.waiting.remove(&seq))
                    .expect("a waiting message");
                self.put(id);
            }
        }
        self.homes.iter_mut().for_each(|home| home.set_time(now_ms));
        loop {
            while let Some(Reverse((at_ms, home, key))) = self.timers.peek().copied()
                && at_ms <= now_ms
            {
                self.timers.pop();
                self.homes[home].handle_due(key);
                self.run_effects(home);
            }
            // A message that was loaded may have expired.
            if (0..self.homes.len()).filter(|home| self.load_all(*home)).count() == 0 {
                break;
            }
        }
        self.end_idle_lines();
    }

    pub(super) fn end_idle_lines(&mut self) {
        let (now_ms, homes) = (self.now_ms, &self.homes);
        self.lines.retain(|at, line| {
            let is_there = homes[at.0].queue(at.1).is_some();
            let must_stay = !line.is_idle() || now_ms - line.busy_ms < IDLE_MS;
            let may_stay = must_stay || now_ms - line.touched_ms < IDLE_MS;
            assert!(is_there || !must_stay, "{} ended too early", NAMES[line.name]);
            assert!(may_stay || !is_there, "{} should have ended", NAMES[line.name]);
            is_there
        });
    }
}
