//! What is asked of all shards for DIAG and `/queue/monitor`, and who is to be told: one list for each subject.

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
use crate::report::types::ShardReport;
use crate::text::Weight;

/// What may be asked of all shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Subject {
    /// For DIAG.
    Query(Query),
    /// For `/queue/monitor`, whose text is its own.
    Monitor,
}

impl Subject {
    /// What each shard is asked.
    pub(crate) fn query(self) -> Query {
        match self {
            Subject::Query(query) => query,
            Subject::Monitor => Query::Queues,
        }
    }
}

/// How one who asked by a frame is answered.
#[derive(Debug)]
pub(crate) enum Purpose {
    /// By a DIAG frame, with a RECEIPT if it wants one.
    Frame(Option<Box<[u8]>>),
    /// By a MESSAGE to the subscriptions of the destination of its SEND.
    Publish {
        /// The destination.
        name: Box<[u8]>,
        /// The sender's own headers.
        headers: Box<[u8]>,
        /// The RECEIPT it wants.
        receipt: Option<Box<[u8]>>,
    },
}

/// A connection that is parked for an answer.
#[derive(Debug)]
pub(crate) struct FrameRequester {
    pub number: u64,
    pub conn: ConnKey,
    pub purpose: Purpose,
}

/// Who is told the same.
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

/// A question that is out, or whose answer is being put together.
#[derive(Debug)]
pub(crate) struct Gather {
    pub number: u64,
    pub audience: Audience,
    pub reports: Vec<ShardReport>,
    pub waiting: usize,
}

/// An answer that some have not been told.
#[derive(Debug)]
pub(crate) struct Telling {
    pub answer: Answer,
    /// As headers of a MESSAGE.
    pub headers: Vec<u8>,
    pub audience: Audience,
    /// Somebody has been told.
    pub is_begun: bool,
    pub _weight: Weight,
}

/// What happens about one subject.
#[derive(Debug, Default)]
pub(crate) struct Inquiry {
    /// Who is told what is gathered next.
    pub next: Audience,
    /// It is among those that are asked later.
    pub is_queued: bool,
    pub gather: Option<Gather>,
    pub telling: Option<Telling>,
}

/// Questions out, and subscriptions with an interval.
#[derive(Debug, Default)]
pub(crate) struct Diagnostics {
    pub last_number: u64,
    /// The last connection that was told had asked under this number.
    pub told: u64,
    /// What this shard is to tell whoever asked, in the order in which it does.
    pub surveys: VecDeque<Survey>,
    pub inquiries: BTreeMap<Subject, Inquiry>,
    /// Subjects that are to be asked, each once.
    pub later: VecDeque<Subject>,
    /// The one under way whose answer has rows: those are large, so they are gathered one after the other.
    pub busy: Option<Subject>,
    /// Answers of many rows that are put together.
    pub assemblies: VecDeque<Box<Assembly>>,
    /// Subjects of which some are still to be told.
    pub told_later: VecDeque<Subject>,
    pub watches: Map<SubscriptionKey, Watch>,
}

impl Diagnostics {
    /// What waits for other shards, but for RECEIPTs.
    pub(crate) fn asked_elsewhere(&self, queues: &Queues) -> usize {
        queues.prepared.len() + queues.pending_replays.len() + self.asked()
    }

    /// Answers that somebody waits for, once for each of them.
    pub(crate) fn asked(&self) -> usize {
        let waiting = |inquiry: &Inquiry| {
            let told = inquiry.telling.as_ref().map_or(0, |telling| telling.audience.len());
            // A text for `/queue/monitor` has no audience of its own.
            let asked = inquiry.gather.as_ref().map_or(0, |gather| gather.audience.len().max(1));
            inquiry.next.len() + asked + told
        };
        self.inquiries.values().map(waiting).sum()
    }

    pub(crate) fn inquiry(&mut self, subject: Subject) -> &mut Inquiry {
        self.inquiries.entry(subject).or_default()
    }

    /// Has a subject asked when its turn comes; false if it will be anyway.
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
