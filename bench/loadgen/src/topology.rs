//! The connections of a workload: who subscribes to what, and who publishes what.

use std::cell::RefCell;
use std::rc::Rc;

use crate::arrivals::Arrivals;
use crate::body::Body;
use crate::publisher::Sending;
use crate::receiver::{Acks, Feed, QueueConsumer, Receiver, Subscription};
use crate::workload::{Ack, Ids, Kind, Transport, Workload};

/// One client: a connection to open, and what it is for.
#[derive(Debug)]
pub struct Client {
    /// Subscriptions in order: id, destination, index of the publisher.
    pub subscriptions: Vec<(String, String, usize)>,
    /// Publisher that writes to this connection.
    pub publisher: Option<usize>,
    /// Nothing is read from it after it has subscribed.
    pub never_reads: bool,
}

/// All connections of a repetition.
#[derive(Debug)]
pub struct Topology {
    /// The clients, publishers last.
    pub clients: Vec<Client>,
    /// The messages of each publisher.
    pub feeds: Vec<Rc<Feed>>,
    /// Which messages arrived, if connections are consumers of one work queue.
    pub arrivals: Option<Rc<RefCell<Arrivals>>>,
    /// Further header lines of every SUBSCRIBE.
    pub headers: String,
    /// Further headers of every SEND.
    pub sending: Sending,
    ack: Ack,
}

impl Topology {
    /// The connections of a workload.
    pub fn new(workload: &Workload) -> Topology {
        let feeds: Vec<_> =
            (0..workload.publishers).map(|publisher| Rc::new(feed(workload, publisher))).collect();
        let queue = workload.kind == Kind::Queue;
        let mut clients = Vec::new();
        for (publisher, feed) in feeds.iter().enumerate() {
            let connections = match workload.kind {
                Kind::Fanin => 0,
                // All publishers share the consumers.
                Kind::Queue if publisher > 0 => 0,
                _ => workload.connections,
            };
            let target = workload.pattern.as_ref().unwrap_or(&feed.destinations[0]);
            for connection in 0..connections {
                let first = match workload.ids {
                    Ids::Same => 0,
                    Ids::Unique => clients.len() * workload.subscriptions,
                };
                let subscriptions = (first..first + workload.subscriptions)
                    .map(|number| (format!("sub-{number}"), target.clone(), publisher))
                    .collect();
                let writes = workload.joint.then_some(publisher);
                let never_reads = workload.kind == Kind::Firehose && connection == 0;
                clients.push(Client { subscriptions, publisher: writes, never_reads });
            }
        }
        if !workload.joint {
            let publisher =
                |number| Client { subscriptions: Vec::new(), publisher: Some(number), never_reads: false };
            clients.extend((0..workload.publishers).map(publisher));
        }
        let arrivals = queue.then(|| Rc::new(RefCell::new(Arrivals::new(workload.publishers))));
        let sending = Sending { persistent: workload.is_persistent(), receipts: workload.has_receipts() };
        Topology { clients, feeds, arrivals, headers: headers(workload), sending, ack: workload.ack }
    }

    /// Only the connections that publish.
    pub fn publishers_only(mut self) -> Topology {
        self.clients.retain(|client| client.publisher.is_some());
        self
    }

    /// Only the connections that subscribe; nobody publishes.
    pub fn subscribers_only(mut self) -> Topology {
        self.clients.retain(|client| !client.subscriptions.is_empty());
        self
    }

    /// The same without the connections that never read.
    pub fn without_slow(mut self) -> Topology {
        self.clients.retain(|client| !client.never_reads);
        self
    }

    /// Number of subscriptions of each publisher; for a work queue 1, which stands for all consumers, and where only RECEIPTs
    /// count 1, which stands for them.
    pub fn subscription_counts(&self) -> Vec<usize> {
        if self.arrivals.is_some() || self.counts_receipts() {
            return vec![1; self.feeds.len()];
        }
        let mut counts = vec![0; self.feeds.len()];
        for (_, _, publisher) in self.clients.iter().flat_map(|client| &client.subscriptions) {
            counts[*publisher] += 1;
        }
        counts
    }

    /// Whether publishers wait for RECEIPTs, since nobody subscribes.
    pub fn counts_receipts(&self) -> bool {
        self.sending.receipts && self.clients.iter().all(|client| client.subscriptions.is_empty())
    }

    /// The receiver that checks the messages of a client; `slots` counts the subscriptions of each publisher so far.
    pub fn receiver(
        &self,
        client: &Client,
        slots: &mut [usize],
        transport: Transport,
        relay: bool,
    ) -> Receiver {
        let (Some(arrivals), Some((id, ..))) = (&self.arrivals, client.subscriptions.first()) else {
            let mut receiver = Receiver::new(self.subscriptions(client, slots, relay), relay);
            receiver.receipts = self.counts_receipts().then(Vec::new);
            return receiver;
        };
        let id = (!relay).then_some(id.as_str());
        let sole = self.clients.iter().filter(|client| !client.subscriptions.is_empty()).count() == 1;
        let acks = (self.ack == Ack::ClientIndividual).then(|| Acks::new(transport == Transport::Ws));
        Receiver::consuming(QueueConsumer::new(id, &self.feeds, Rc::clone(arrivals), sole, acks), relay)
    }

    /// The subscriptions of a client, each with its index among those of its publisher; `slots` counts them so far.
    fn subscriptions(&self, client: &Client, slots: &mut [usize], relay: bool) -> Vec<Subscription> {
        let subscription = |(id, _, publisher): &(String, String, usize)| {
            let slot = slots[*publisher];
            slots[*publisher] += 1;
            let id = (!relay).then_some(id.as_str());
            Subscription::new(id, *publisher, slot, Rc::clone(&self.feeds[*publisher]), 0)
        };
        client.subscriptions.iter().map(subscription).collect()
    }
}

fn feed(workload: &Workload, publisher: usize) -> Feed {
    let tag = workload.tag.clone().unwrap_or_else(|| format!("pub-{publisher:04}"));
    let destinations = match workload.spread {
        _ if matches!(workload.kind, Kind::Queue | Kind::Backlog | Kind::Recover) => {
            vec!["/queue/bench".to_owned()]
        }
        _ if workload.has_receipts() => vec![format!("/queue/bench-{publisher}")],
        0 => vec![format!("/topic/bench-{publisher}")],
        count => (0..count).map(|number| format!("/topic/{number}")).collect(),
    };
    Feed { body: Body::new(&tag, workload.body), destinations }
}

fn headers(workload: &Workload) -> String {
    let mut headers = String::new();
    if workload.ack == Ack::ClientIndividual {
        headers.push_str("ack:client-individual\n");
    }
    if workload.prefetch > 0 {
        headers.push_str(&format!("prefetch-count:{}\n", workload.prefetch));
    }
    headers
}
