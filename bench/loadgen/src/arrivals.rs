//! Hot path: which messages of a work queue have arrived, over all its consumers.
//!
//! It has one bit for each message. If the bit would be set twice, the message was doubled; if it is not set at the
//! end, the message was lost.

/// The messages of one publisher.
#[derive(Debug, Default)]
struct Sent {
    /// One bit for each message that may have been sent; set if it arrived.
    bits: Vec<u64>,
    /// Sequence numbers from here on were not sent yet.
    end: u64,
    arrived: u64,
    /// All words of `bits` before this one are full.
    full: usize,
}

/// The messages of all publishers of a work queue.
#[derive(Debug)]
pub struct Arrivals(Vec<Sent>);

impl Arrivals {
    /// Begins with no message sent.
    pub fn new(publishers: usize) -> Arrivals {
        Arrivals((0..publishers).map(|_| Sent::default()).collect())
    }

    /// Makes room for the messages of a publisher before `end`.
    pub fn expect(&mut self, publisher: usize, end: u64) {
        let sent = &mut self.0[publisher];
        sent.end = end;
        sent.bits.resize(usize::try_from(end.div_ceil(64)).expect("64-bit"), 0);
    }

    /// Records an arrival. False if the message arrived before, or was never sent.
    #[inline]
    pub fn note(&mut self, publisher: usize, sequence: u64) -> bool {
        let sent = &mut self.0[publisher];
        let Some(word) = sent.bits.get_mut((sequence / 64) as usize) else { return false };
        let bit = 1 << (sequence % 64);
        if *word & bit != 0 || sequence >= sent.end {
            return false;
        }
        *word |= bit;
        sent.arrived += 1;
        true
    }

    /// The number of messages of a publisher that have arrived.
    #[inline]
    pub fn arrived(&self, publisher: usize) -> u64 {
        self.0[publisher].arrived
    }

    /// The first message of a publisher that has not arrived.
    pub fn first_missing(&mut self, publisher: usize) -> Option<u64> {
        let sent = &mut self.0[publisher];
        while sent.bits.get(sent.full) == Some(&u64::MAX) {
            sent.full += 1;
        }
        let word = sent.bits.get(sent.full)?;
        let missing = sent.full as u64 * 64 + u64::from(word.trailing_ones());
        (missing < sent.end).then_some(missing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_message_is_noted_once_in_any_order() {
        let mut arrivals = Arrivals::new(2);
        arrivals.expect(1, 130);
        for sequence in (0..130).rev() {
            assert!(arrivals.note(1, sequence));
            assert!(!arrivals.note(1, sequence), "{sequence} again");
        }
        assert_eq!((arrivals.arrived(0), arrivals.arrived(1)), (0, 130));
        assert_eq!(arrivals.first_missing(1), None);
        assert!(
            !arrivals.note(1, 130) && !arrivals.note(1, 191) && !arrivals.note(1, 99_999_999),
            "never sent"
        );
        assert!(!arrivals.note(0, 0), "never sent");
    }

    #[test]
    fn missing_messages_are_known() {
        for missing in [0, 1, 63, 64, 127, 128, 129] {
            let mut arrivals = Arrivals::new(1);
            arrivals.expect(0, 60);
            arrivals.expect(0, 130);
            for sequence in (0..130).filter(|&sequence| sequence != missing) {
                arrivals.note(0, sequence);
            }
            assert_eq!(arrivals.first_missing(0), Some(missing));
            assert_eq!(arrivals.arrived(0), 129);
            arrivals.note(0, missing);
            assert_eq!(arrivals.first_missing(0), None);
            arrivals.expect(0, 131);
            assert_eq!(arrivals.first_missing(0), Some(130));
        }
    }
}
