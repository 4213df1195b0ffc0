//! Mail that was taken from the mailbox. It is read in order; a turn leaves mail that exceeds its budget to the next
//! turn.
//!
//! The mailbox is emptied only when all mail taken before has been read. So once a *round* begins, all mail of earlier
//! rounds has been read.

use std::collections::VecDeque;
use std::mem::take;
use std::vec::IntoIter;

use super::mailbox::{Mail, Mailbox, give_back};
use crate::door::planted;
use crate::ids::ShardId;
use crate::queue::mail::Note;

/// Notes of one shard about queues, some of which have been read.
#[derive(Debug)]
pub struct Notes {
    /// The shard.
    pub from: ShardId,
    /// Those that have not been read.
    pub left: IntoIter<Note>,
}

/// The next item to read.
#[derive(Debug)]
pub enum Next {
    /// Mail of a shard or of the handle.
    Mail(Mail),
    /// Notes of which some have been read.
    Notes(Notes),
}

/// Mail that has not been read yet.
#[derive(Debug, Default)]
pub struct Incoming {
    pub(super) mails: VecDeque<Mail>,
    pub(super) notes: Option<Notes>,
    /// The number of times that the mailbox was emptied.
    round: u64,
    /// The newest subscription at that time; later subscriptions get none of the messages.
    newest: u32,
    /// The mailbox has not been checked since this turn began.
    is_late: bool,
    /// The number of mails that were read, besides questions of the handle whether all work is done.
    pub read: u64,
}

impl Incoming {
    /// Takes all mail from the mailbox, if all earlier mail has been read.
    pub fn refill(&mut self, mailbox: &Mailbox, newest: u32) {
        let is_waiting = self.is_waiting();
        self.is_late = is_waiting && !planted!("late-mail-forgotten");
        if !is_waiting {
            let mut mails = Vec::from(take(&mut self.mails));
            give_back(&mut mails);
            mailbox.take(&mut mails);
            self.mails = VecDeque::from(mails);
            self.round += 1;
            self.newest = newest;
        }
    }

    /// Takes the next item.
    pub fn take_next(&mut self) -> Option<Next> {
        let next = match self.notes.take() {
            Some(notes) => Next::Notes(notes),
            None => Next::Mail(self.mails.pop_front()?),
        };
        self.read += u64::from(!matches!(next, Next::Mail(Mail::Settle(_))));
        Some(next)
    }

    /// Puts partially read notes back.
    pub fn put_back(&mut self, notes: Notes) {
        if notes.left.len() > 0 {
            self.notes = Some(notes);
        }
    }

    /// The current round, and the newest subscription when it was taken.
    pub fn round(&self) -> (u64, u32) {
        (self.round, self.newest)
    }

    /// Whether all mail that was taken in this round has been read.
    pub fn has_read(&self, round: u64) -> bool {
        self.round > round || !self.is_waiting()
    }

    /// Whether all mail posted during a round has been read.
    pub fn has_read_behind(&self, round: u64) -> bool {
        self.round > round + 1 || (self.round > round && !self.is_waiting())
    }

    fn is_waiting(&self) -> bool {
        self.notes.is_some() || !self.mails.is_empty()
    }

    /// Whether there may be mail to read although the poll reports no event.
    pub fn has_work(&self) -> bool {
        self.is_waiting() || self.is_late
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use mio::{Poll, Waker};

    use super::*;
    use crate::queue::mail::MemoryNote;
    use crate::shard::WAKER;

    fn mailbox(poll: &Poll) -> Mailbox {
        Mailbox::new(Waker::new(poll.registry(), WAKER).expect("a waker"))
    }

    fn number(next: Option<Next>) -> Option<u8> {
        match next? {
            Next::Mail(Mail::Uncongested(shard)) => Some(shard.0),
            _ => None,
        }
    }

    #[test]
    fn the_mailbox_is_emptied_when_all_earlier_mail_has_been_read() {
        let poll = Poll::new().expect("a poll");
        let mailbox = mailbox(&poll);
        let mut incoming = Incoming::default();
        mailbox.post(&mut vec![Mail::Uncongested(ShardId(1)), Mail::Uncongested(ShardId(2))]);
        incoming.refill(&mailbox, 5);
        assert_eq!(number(incoming.take_next()), Some(1));
        assert!(!incoming.has_read_behind(0) && incoming.has_work());
        assert!(!incoming.has_read(1) && incoming.has_read(0));
        mailbox.post(&mut vec![Mail::Uncongested(ShardId(3))]);
        incoming.refill(&mailbox, 6);
        assert_eq!((incoming.round(), number(incoming.take_next())), ((1, 5), Some(2)));
        assert!(incoming.has_read_behind(0) && !incoming.has_read_behind(1));
        assert!(incoming.has_read(1), "though more may have been posted since");
        assert!(incoming.has_work(), "there may be mail without a wake-up");
        incoming.refill(&mailbox, 6);
        assert_eq!((incoming.round(), number(incoming.take_next())), ((2, 6), Some(3)));
        assert!(incoming.has_read_behind(1) && !incoming.has_work());
    }

    #[test]
    fn notes_that_were_put_back_come_first() {
        let poll = Poll::new().expect("a poll");
        let mailbox = mailbox(&poll);
        let mut incoming = Incoming::default();
        let notes = (1..=3).map(|hash| Note::from(MemoryNote::AllowanceRequest(Box::from([hash])))).collect();
        mailbox.post(&mut vec![Mail::Queue(ShardId(1), notes), Mail::Batch(Arc::default())]);
        incoming.refill(&mailbox, 0);
        let Some(Next::Mail(Mail::Queue(from, notes))) = incoming.take_next() else {
            panic!("expected notes")
        };
        let mut left = notes.into_iter();
        left.next();
        incoming.put_back(Notes { from, left });
        let Some(Next::Notes(mut notes)) = incoming.take_next() else {
            panic!("expected the rest of the notes")
        };
        assert_eq!((notes.from, notes.left.len()), (ShardId(1), 2));
        notes.left.by_ref().for_each(drop);
        incoming.put_back(notes);
        assert!(matches!(incoming.take_next(), Some(Next::Mail(Mail::Batch(_)))));
        assert!(incoming.take_next().is_none());
    }

    #[test]
    fn mail_between_two_questions_whether_all_work_is_done_is_noticed() {
        let poll = Poll::new().expect("a poll");
        let mailbox = mailbox(&poll);
        let mut incoming = Incoming::default();
        let (reply, _answers) = std::sync::mpsc::channel();
        let question = || Mail::Settle(reply.clone());
        mailbox.post(&mut vec![question(), Mail::Queue(ShardId(1), Vec::new()), question()]);
        incoming.refill(&mailbox, 0);
        let read = std::iter::from_fn(|| incoming.take_next().map(|_| incoming.read));
        assert_eq!(read.collect::<Vec<_>>(), [0, 1, 1]);
    }
}
