//! Queries for diagnostics: the DIAG frame, SENDs to `DIAG…`, subscriptions to their answers, and `/queue/monitor`.

use std::time::Duration;

use rand::Rng as _;
use rand::seq::IndexedRandom as _;

use super::{Actor, Headers};
use crate::events::{Event, Request, SubscriptionId, Watch};
use crate::frames::frame;

/// Subscriptions to diagnostics that a client has at most.
const WATCHES_MAX: usize = 4;
/// The time between two texts of `/queue/monitor`.
const MONITOR_INTERVAL: Duration = Duration::from_secs(5);

impl Actor<'_> {
    /// Asks or watches. Returns its name; `None` if nothing is possible.
    pub(super) fn watch_something(&mut self) -> Option<&'static str> {
        let all = ["diag", "diag", "diag", "query", "query", "watch", "unwatch", "crowd"];
        let name = *all.choose(self.random)?;
        match name {
            "diag" => self.diagnose()?,
            "query" => self.query()?,
            "watch" => self.watch()?,
            "unwatch" => self.unwatch()?,
            _ => self.crowd()?,
        }
        Some(name)
    }

    /// A DIAG frame.
    fn diagnose(&mut self) -> Option<()> {
        let query = *self.options.watching.queries.choose(self.random)?;
        let request = Request::Diagnose(self.numbers.next_query(), query);
        self.client.expect_receipt(request.clone()); // its answer comes in the same order as RECEIPTs
        let mut headers = Vec::new();
        if self.percent(self.options.receipts) {
            headers.push(("receipt", self.client.expect_receipt(Request::AfterAnswer)));
        }
        let headers: Vec<(&str, &str)> =
            headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
        self.client.send(&frame(self.client.version, "DIAG", &headers, query.as_bytes()));
        self.events.push(Event::Requested(self.client.id, request));
        Some(())
    }

    fn destination(&mut self, has_patterns: bool) -> String {
        let all = ["DIAG", "DIAG/a", "DIAG.a", "DIAG/*"];
        let count = if has_patterns { all.len() } else { all.len() - 1 };
        all[self.random.random_range(0..count)].to_owned()
    }

    /// A SEND whose answer goes to all who have subscribed to the destination.
    fn query(&mut self) -> Option<()> {
        let query = *self.options.watching.queries.choose(self.random)?;
        let (id, destination) = (self.numbers.next_query(), self.destination(false));
        let mut headers: Headers = vec![("destination", destination.clone()), ("ts", id.to_string())];
        if self.random.random_ratio(1, 4) {
            headers.push(("clients", "many".to_owned())); // the statistic of this name counts
        }
        self.write("SEND", headers, query.as_bytes(), Request::Query { id, destination, query });
        Some(())
    }

    fn watch(&mut self) -> Option<()> {
        if self.client.watching.watches.len() >= WATCHES_MAX {
            return None;
        }
        let options = &self.options.watching;
        if options.has_monitor && self.random.random_ratio(1, 3) {
            let destination = "/queue/monitor".to_owned();
            self.subscribe_to_watch(destination, Some(("monitor", MONITOR_INTERVAL)));
        } else {
            let query = *options.queries.choose(self.random)?;
            let has_interval = options.interval_ms > 0 && self.random.random_ratio(1, 2);
            let destination = self.destination(true);
            let interval = Duration::from_millis(options.interval_ms);
            self.subscribe_to_watch(destination, has_interval.then_some((query, interval)));
        }
        Some(())
    }

    fn subscribe_to_watch(&mut self, destination: String, pushes: Option<(&'static str, Duration)>) {
        let id = self.client.next_subscription();
        let mut headers: Headers = vec![("id", id.to_string()), ("destination", destination.clone())];
        if let Some((query, interval)) = pushes.filter(|(query, _)| *query != "monitor") {
            headers.push(("interval", interval.as_millis().to_string()));
            headers.push(("query", query.to_owned()));
        }
        let watch = Watch { id, destination, pushes };
        self.client.watching.watches.insert(id, watch.clone());
        self.write("SUBSCRIBE", headers, b"", Request::Watch(watch));
    }

    fn unwatch(&mut self) -> Option<()> {
        let ids: Vec<SubscriptionId> = self.client.watching.watches.keys().copied().collect();
        let id = *ids.choose(self.random)?;
        self.end_watch(id);
        Some(())
    }

    fn end_watch(&mut self, id: SubscriptionId) {
        if self.client.watching.end(id) {
            self.write("UNSUBSCRIBE", vec![("id", id.to_string())], b"", Request::Unsubscribe(id));
        }
    }

    /// Ends all that would go on for ever, at the end of the run.
    pub fn end_watches(&mut self) {
        let pushed = self.client.watching.watches.values().filter(|watch| watch.pushes.is_some());
        let ids: Vec<SubscriptionId> = pushed.map(|watch| watch.id).collect();
        ids.into_iter().for_each(|id| self.end_watch(id));
    }

    /// Many subscriptions at once, so that answers are long.
    fn crowd(&mut self) -> Option<()> {
        let count = self.options.watching.crowd;
        if count == 0 || std::mem::replace(&mut self.numbers.has_crowd, true) {
            return None;
        }
        for at in 0..count {
            let id = self.client.next_subscription();
            let destination = format!("/topic/crowd/{}/{at}", self.client.id);
            let headers = [("id", &*id.to_string()), ("destination", &*destination)];
            self.client.send(&frame(self.client.version, "SUBSCRIBE", &headers, b""));
            let watch = Watch { id, destination, pushes: None };
            self.events.push(Event::Requested(self.client.id, Request::Watch(watch)));
        }
        Some(())
    }

    /// Asks once more, right before the broker ends.
    pub fn ask_at_last(&mut self) {
        if self.options.watching.percent > 0 {
            _ = self.diagnose();
        }
    }
}
