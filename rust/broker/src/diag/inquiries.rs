//! Diagnostics queries that are pending or queued, and their recipients: one entry for each subject.

use std::collections::{BTreeMap, VecDeque};

use super::assembly::Assembly;
use super::survey::Survey;
use super::watch::Watch;
use crate::collections::spread::Map;
use crate::ids::ConnKey;
use crate::ids::SubscriptionKey;
use crate::queue::queues::Queues;
use crate::report::Query;
use crate::report::answer::Answer;
use crate::report::merge::ShardReport;
use crate::text::{Text, Weight};

/// The subject of a query to all shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Subject {
    /// The answer to a DIAG query.
    Query(Query),
    /// The text of `/queue/monitor`, which has a format of its own.
    Monitor,
}

impl Subject {
    /// The query that is sent to each shard.
    pub(crate) fn query(self) -> Query {
        match self {
            Subject::Query(query) => query,
            Subject::Monitor => Query::Queues,
        }
    }
}

/// The way in which a request by a frame is answered.
#[derive(Debug)]
pub(crate) enum Purpose {
    /// By a DIAG frame, with a RECEIPT if requested.
    Frame(Option<Text>),
    /// By a MESSAGE to the subscriptions of the destination of its SEND.
    Publish {
        /// The destination.
        name: Text,
        /// The sender's own headers.
        headers: Text,
        /// The requested RECEIPT.
        receipt: Option<Text>,
    },
}

/// A connection that is parked for an answer.
#[derive(Debug)]
pub(crate) struct FrameRequester {
    pub number: u64,
    pub conn: ConnKey,
    pub purpose: Purpose,
}

/// The recipients of one answer.
#[derive(Debug, Default)]
pub(crate) struct Audience {
    pub requesters: VecDeque<FrameRequester>,
    pub watches: VecDeque<SubscriptionKey>,
}

impl Audience {
    pub(crate) fn len(&self) -> usize {
        self.requesters.len() + self.watches.len()
    }

    pub(crate) fn append(&mut self, mut other: Audience) {
        self.requesters.append(&mut other.requesters);
        self.watches.append(&mut other.watches);
    }
}

/// A query that is pending, or whose answer is being assembled.
#[derive(Debug)]
pub(crate) struct Gather {
    pub number: u64,
    pub audience: Audience,
    pub reports: Vec<ShardReport>,
    pub waiting: usize,
}

/// An answer that some recipients have not got.
#[derive(Debug)]
pub(crate) struct Telling {
    pub answer: Answer,
    /// The answer as headers of a MESSAGE.
    pub headers: Vec<u8>,
    pub audience: Audience,
    /// At least one recipient has got it.
    pub is_begun: bool,
    pub _weight: Weight,
}

/// The state of one subject.
#[derive(Debug, Default)]
pub(crate) struct Inquiry {
    /// The recipients of the next answer.
    pub next: Audience,
    /// It is in the list of subjects to be asked later.
    pub is_queued: bool,
    pub gather: Option<Gather>,
    pub telling: Option<Telling>,
}

/// Pending queries, and subscriptions with an interval.
#[derive(Debug, Default)]
pub(crate) struct Diagnostics {
    pub last_number: u64,
    /// The query number of the connection that got the last answer.
    pub told: u64,
    /// Reports that this shard has to make, in order.
    pub surveys: VecDeque<Survey>,
    pub inquiries: BTreeMap<Subject, Inquiry>,
    /// Subjects that are to be asked, each once.
    pub later: VecDeque<Subject>,
    /// The pending subject whose answer has rows: such answers are large, so they are gathered one after the other.
    pub busy: Option<Subject>,
    /// Answers of many rows that are being assembled.
    pub assemblies: VecDeque<Box<Assembly>>,
    /// Subjects whose answers are still being delivered.
    pub told_later: VecDeque<Subject>,
    pub watches: Map<SubscriptionKey, Watch>,
}

impl Diagnostics {
    /// The number of answers of other shards that are pending, without those for RECEIPTs.
    pub(crate) fn asked_elsewhere(&self, queues: &Queues) -> usize {
        queues.prepared.len() + queues.pending_replays.len() + self.asked()
    }

    /// The number of pending answers, counted once for each recipient.
    pub(crate) fn asked(&self) -> usize {
        let waiting = |inquiry: &Inquiry| {
            let told = inquiry.telling.as_ref().map_or(0, |telling| telling.audience.len());
            // The text for `/queue/monitor` has no recipients of its own.
            let asked = inquiry.gather.as_ref().map_or(0, |gather| gather.audience.len().max(1));
            inquiry.next.len() + asked + told
        };
        self.inquiries.values().map(waiting).sum()
    }

    pub(crate) fn inquiry(&mut self, subject: Subject) -> &mut Inquiry {
        self.inquiries.entry(subject).or_default()
    }

    /// Queues a subject to be asked; false if it is queued already.
    pub(crate) fn queue(&mut self, subject: Subject) -> bool {
        let inquiry = self.inquiry(subject);
        if inquiry.is_queued || inquiry.gather.is_some() {
            return false;
        }
        inquiry.is_queued = true;
        self.later.push_back(subject);
        true
    }

    /// The first subject that may be asked now.
    pub(crate) fn pop_later(&mut self) -> Option<Subject> {
        let at = self.first_askable()?;
        let subject = self.later.remove(at)?;
        self.inquiry(subject).is_queued = false;
        Some(subject)
    }

    pub fn first_askable(&self) -> Option<usize> {
        let is_busy = self.busy.is_some();
        self.later.iter().position(|subject| !(is_busy && subject.query().has_rows()))
    }
}
