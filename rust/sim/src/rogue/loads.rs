//! Many legal frames at once: what costs the broker much and the rogue little. All of it has to be answered.

use std::fmt::Write as _;

use rand::Rng as _;
use rand::seq::IndexedRandom as _;

use super::act::{Act, Rogue, Stage};
use super::wire;
use crate::events::{Event, Message, Request};
use crate::frames::frame;

/// Builds the frames of a load of about this size.
type Load = fn(&mut Rogue, &mut Act<'_>, usize) -> Vec<u8>;

impl Rogue {
    /// Sends a load. Returns its name.
    pub(super) fn load(&mut self, act: &mut Act<'_>) -> Option<&'static str> {
        let kinds: [(&'static str, Load); 14] = [
            ("names", Rogue::names),
            ("comings and goings", Rogue::comings_and_goings),
            ("sends", Rogue::sends),
            ("receipts", Rogue::many_receipts),
            ("fan-out", Rogue::fan_out),
            ("open transactions", Rogue::open_transactions),
            ("commit", Rogue::commit),
            ("begin and abort", Rogue::begin_and_abort),
            ("private queue", Rogue::private_queue),
            ("acks", Rogue::acks),
            ("topic unread", Rogue::topic_unread),
            ("queue held", Rogue::queue_held),
            ("limits", Rogue::limits),
            ("line ends", |_, _, count| b"\n\r\n\n".repeat(count)),
        ];
        let count = act.random.random_range(1..=act.options.rogues.load_max);
        if act.random.random_ratio(1, 12) {
            self.send_messages(act, count.min(30));
            return Some("shared messages");
        }
        if self.is_websocket && act.random.random_ratio(1, 6) {
            for _ in 0..count {
                let ping = wire::ping_payload(act.random);
                self.wire.send(&wire::frame(wire::LAST | wire::PING, &ping, act.random.random()));
                self.pings(ping);
            }
            return Some("pings");
        }
        let (name, build) = kinds.choose(act.random)?;
        let bytes = build(self, act, count);
        self.is_clean &= *name == "line ends" || *name == "begin and abort";
        self.send(&bytes, act.random);
        if act.random.random_ratio(1, 10) {
            self.disconnect(act);
        }
        Some(name)
    }

    /// DISCONNECT, with more behind it, which takes no effect.
    fn disconnect(&mut self, act: &mut Act<'_>) {
        let receipt = self.receipt();
        self.send(format!("DISCONNECT\nreceipt:{receipt}\n\n\0").as_bytes(), act.random);
        self.send(b"SEND\ndestination:/topic/0\n\n999999999;\0WHAT\n\n\0", act.random);
        self.leave(1000);
    }

    /// Subscriptions that may be added without exceeding the limit.
    fn subscriptions(&mut self, act: &Act<'_>, count: usize) -> std::ops::Range<u64> {
        let free = (act.options.config.max_subscriptions as u64 / 2).saturating_sub(self.names);
        let first = self.names;
        self.names += free.min(count as u64);
        first..self.names
    }

    fn names(&mut self, act: &mut Act<'_>, count: usize) -> Vec<u8> {
        let id = self.id;
        let of = |at| format!("SUBSCRIBE\nid:{at}\ndestination:/rogue/{id}/{at}\n\n\0");
        self.subscriptions(act, count).map(of).collect::<String>().into_bytes()
    }

    fn comings_and_goings(&mut self, act: &mut Act<'_>, count: usize) -> Vec<u8> {
        let mut text = String::new();
        let destinations = ["/rogue/a", "/topic/0", "/queue/rogue", "/rogue/*", "#rogue", "/temp-queue/r"];
        let mut all = destinations.to_vec();
        all.retain(|name| !name.starts_with("/queue/") || !act.options.patterns);
        for at in 0..count {
            let name = all.choose(act.random).copied().unwrap_or("/rogue/a");
            let receipt =
                if at + 1 == count { format!("receipt:{}\n", self.receipt()) } else { String::new() };
            _ = write!(
                text,
                "SUBSCRIBE\nid:storm\ndestination:{name}\n\n\0UNSUBSCRIBE\nid:storm\n{receipt}\n\0"
            );
        }
        text.into_bytes()
    }

    fn sends(&mut self, act: &mut Act<'_>, count: usize) -> Vec<u8> {
        let body = "x".repeat(act.random.random_range(0..200));
        let id = self.id;
        (0..count)
            .map(|at| format!("SEND\ndestination:/rogue/{id}.{at}\n\n{body}\0"))
            .collect::<String>()
            .into_bytes()
    }

    fn many_receipts(&mut self, _: &mut Act<'_>, count: usize) -> Vec<u8> {
        (0..count)
            .map(|_| format!("SEND\nreceipt:{}\ndestination:/rogue/a\n\n\0", self.receipt()))
            .collect::<String>()
            .into_bytes()
    }

    fn fan_out(&mut self, act: &mut Act<'_>, count: usize) -> Vec<u8> {
        let mut text = String::new();
        for at in self.subscriptions(act, count) {
            _ = write!(text, "SUBSCRIBE\nid:{at}\ndestination:/rogue/wide\n\n\0");
        }
        let body = "x".repeat(act.random.random_range(0..300));
        for _ in 0..act.random.random_range(1..4) {
            _ = write!(text, "SEND\nreceipt:{}\ndestination:/rogue/wide\n\n{body}\0", self.receipt());
        }
        text.into_bytes()
    }

    fn open_transactions(&mut self, act: &mut Act<'_>, count: usize) -> Vec<u8> {
        if self.transactions >= act.options.config.max_transactions / 2 {
            return Vec::new();
        }
        self.transactions += 1;
        let name = self.transactions;
        let mut text = format!("BEGIN\ntransaction:open{name}\n\n\0");
        let shared = act.options.topics.iter().chain(&act.options.queues).collect::<Vec<_>>();
        for _ in 0..count {
            let to = shared.choose(act.random).map_or("/rogue", |name| name.as_str());
            _ = write!(text, "SEND\ntransaction:open{name}\ndestination:{to}\n\n999999999;\0");
        }
        text.into_bytes()
    }

    fn commit(&mut self, act: &mut Act<'_>, count: usize) -> Vec<u8> {
        let mut text = "BEGIN\ntransaction:t\n\n\0".to_owned();
        for _ in 0..count {
            let to = ["/rogue/wide", "/rogue/a", "#rogue"].choose(act.random).copied().unwrap_or("/rogue/a");
            _ = write!(text, "SEND\ntransaction:t\ndestination:{to}\n\ny\0");
        }
        _ = write!(text, "COMMIT\nreceipt:{}\ntransaction:t\n\n\0", self.receipt());
        text.into_bytes()
    }

    fn begin_and_abort(&mut self, _: &mut Act<'_>, count: usize) -> Vec<u8> {
        let both = "BEGIN\ntransaction:t\n\n\0ABORT\ntransaction:t\n\n\0".repeat(count);
        format!("{both}BEGIN\ntransaction:t\n\n\0ABORT\nreceipt:{}\ntransaction:t\n\n\0", self.receipt())
            .into_bytes()
    }

    /// Messages for itself, which it may acknowledge later, all at once.
    fn private_queue(&mut self, act: &mut Act<'_>, count: usize) -> Vec<u8> {
        let Some(at) = self.subscriptions(act, 1).next() else { return Vec::new() };
        let (name, id) =
            (if act.random.random_ratio(1, 2) { "/temp-queue/own" } else { "/rogue/own" }, self.id);
        // Messages that nobody acknowledges in time would become dead letters, which nobody consumes.
        let acks = act.options.config.ack_timeout_ms == 0;
        let ack = if acks { "client" } else { "auto" };
        let mut text = format!(
            "SUBSCRIBE\nid:{at}\nack:{ack}\nprefetch-count:{}\ndestination:{name}{id}.{at}\n\n\0",
            count + 1
        );
        self.acking.extend(acks.then(|| at.to_string()));
        for _ in 0..count {
            _ = write!(text, "SEND\ndestination:{name}{id}.{at}\n\nz\0");
        }
        text.into_bytes()
    }

    /// One ACK for everything that has come, as far as it is its own.
    fn acks(&mut self, _: &mut Act<'_>, _: usize) -> Vec<u8> {
        let held = std::mem::take(&mut self.reader.held);
        let own = held.iter().rev().find(|(subscription, _)| self.acking.contains(subscription));
        let Some((subscription, id)) = own else { return Vec::new() };
        let headers =
            [("receipt", &*self.receipt()), ("id", id), ("message-id", id), ("subscription", subscription)];
        frame(self.version, "ACK", &headers, b"")
    }

    /// A subscription to a topic that others use.
    fn topic_unread(&mut self, act: &mut Act<'_>, _: usize) -> Vec<u8> {
        let Some(at) = self.subscriptions(act, 1).next() else { return Vec::new() };
        let Some(topic) = act.options.topics.choose(act.random) else { return Vec::new() };
        format!("SUBSCRIBE\nid:topic{at}\ndestination:{topic}\n\n\0").into_bytes()
    }

    /// A consumer of a queue that others use, which acknowledges nothing.
    fn queue_held(&mut self, act: &mut Act<'_>, _: usize) -> Vec<u8> {
        let Some(at) = self.subscriptions(act, 1).next() else { return Vec::new() };
        let Some(queue) = act.options.queues.choose(act.random) else { return Vec::new() };
        format!("SUBSCRIBE\nid:queue{at}\ndestination:{queue}\nack:client-individual\nprefetch-count:2\n\n\0")
            .into_bytes()
    }

    /// A frame of the largest size that is allowed.
    fn limits(&mut self, act: &mut Act<'_>, _: usize) -> Vec<u8> {
        let limits = &act.options.config.limits;
        let receipt = self.receipt();
        let body = if limits.message_bytes_max <= 1 << 17 { limits.message_bytes_max } else { 0 };
        let line = format!("x:{}\n", "y".repeat(limits.header_line_bytes_max - 2));
        let lines = "x:\n".repeat(limits.headers_max - 3);
        let head = format!("SEND\nreceipt:{receipt}\ndestination:/rogue/a\n{line}{lines}\n");
        [head.into_bytes(), vec![b'x'; body], vec![0]].concat()
    }

    /// Messages to destinations that others use: checkers know them.
    fn send_messages(&mut self, act: &mut Act<'_>, count: usize) {
        if self.stage != Stage::LoggedIn {
            return;
        }
        self.is_clean = false;
        for _ in 0..count {
            let all = act.options.topics.iter().chain(&act.options.queues).collect::<Vec<_>>();
            let Some(destination) = all.choose(act.random) else { return };
            let message = Message {
                id: act.numbers.next_message(),
                destination: (*destination).clone(),
                expires: None,
                ttl: None,
                max_exceptions: None,
                retain: None,
                persistent: false,
                transaction: None,
                header: "a".to_owned(),
                body_len: act.random.random_range(0..=act.options.body_max.min(300)),
            };
            let body = message.body();
            let len = body.len().to_string();
            let headers = [("destination", &*message.destination), ("x", "a"), ("content-length", &len)];
            self.send(&frame(self.version, "SEND", &headers, &body), act.random);
            self.events.push(Event::Requested(self.id, Request::Send(message)));
        }
    }
}
