//! Who connects, subscribes to what, and publishes what: a workload turned into connections.

use std::rc::Rc;

use crate::body::Body;
use crate::receiver::{Feed, Lane};
use crate::workload::{Ids, Kind, Workload};

/// One connection to make.
#[derive(Debug)]
pub struct Seat {
    /// Subscriptions in order: id, destination, publisher it hears.
    pub subscriptions: Vec<(String, String, usize)>,
    /// Publisher that writes here.
    pub publisher: Option<usize>,
    /// Never read, once it has subscribed.
    pub mute: bool,
}

/// All connections of a run.
#[derive(Debug)]
pub struct Plan {
    /// Connections, publishers last.
    pub seats: Vec<Seat>,
    /// What each publisher sends.
    pub feeds: Vec<Rc<Feed>>,
}

impl Plan {
    /// The connections of a workload.
    pub fn new(workload: &Workload) -> Plan {
        let feeds: Vec<_> =
            (0..workload.publishers).map(|publisher| Rc::new(feed(workload, publisher))).collect();
        let mut seats = Vec::new();
        let per_publisher = if workload.kind == Kind::Fanin { 0 } else { workload.connections };
        for (publisher, feed) in feeds.iter().enumerate() {
            let target = workload.pattern.as_ref().unwrap_or(&feed.destinations[0]);
            for connection in 0..per_publisher {
                let first = match workload.ids {
                    Ids::Same => 0,
                    Ids::Unique => seats.len() * workload.subscriptions,
                };
                let subscriptions = (first..first + workload.subscriptions)
                    .map(|number| (format!("sub-{number}"), target.clone(), publisher))
                    .collect();
                let writes = workload.joint.then_some(publisher);
                let mute = workload.kind == Kind::Firehose && connection == 0;
                seats.push(Seat { subscriptions, publisher: writes, mute });
            }
        }
        if !workload.joint {
            let publisher = |number| Seat { subscriptions: Vec::new(), publisher: Some(number), mute: false };
            seats.extend((0..workload.publishers).map(publisher));
        }
        Plan { seats, feeds }
    }

    /// The same without the connections that never read.
    pub fn without_mute(mut self) -> Plan {
        self.seats.retain(|seat| !seat.mute);
        self
    }

    /// Lanes of each publisher.
    pub fn lane_counts(&self) -> Vec<usize> {
        let mut counts = vec![0; self.feeds.len()];
        for (_, _, publisher) in self.seats.iter().flat_map(|seat| &seat.subscriptions) {
            counts[*publisher] += 1;
        }
        counts
    }

    /// The lanes of a seat, each with its place among its publisher's; `slots` counts those given out.
    pub fn lanes(&self, seat: &Seat, slots: &mut [usize], relay: bool) -> Vec<Lane> {
        let lane = |(id, _, publisher): &(String, String, usize)| {
            let slot = slots[*publisher];
            slots[*publisher] += 1;
            let id = (!relay).then_some(id.as_str());
            Lane::new(id, *publisher, slot, Rc::clone(&self.feeds[*publisher]), 0)
        };
        seat.subscriptions.iter().map(lane).collect()
    }
}

fn feed(workload: &Workload, publisher: usize) -> Feed {
    let tag = workload.tag.clone().unwrap_or_else(|| format!("pub-{publisher:04}"));
    let destinations = match workload.spread {
        0 => vec![format!("/topic/bench-{publisher}")],
        count => (0..count).map(|number| format!("/topic/{number}")).collect(),
    };
    Feed { body: Body::new(&tag, workload.body), destinations }
}
