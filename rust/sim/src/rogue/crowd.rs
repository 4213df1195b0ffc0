//! All rogues of a run, and their part of the world's steps.

use rand::Rng as _;
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom as _;
use stompica_broker::simulated::outside;

use super::act::{Act, Reads, Rogue, Stage};
use super::deeds::Deed;
use crate::events::{ClientId, Violation};
use crate::finish::BUFFER_BYTES;
use crate::world::World;

/// The number of the first rogue: others have lower ones.
const FIRST_ID: ClientId = 1_000_000;

/// All rogues of a run.
#[derive(Debug, Default)]
pub struct Crowd {
    rogues: Vec<Rogue>,
}

impl Crowd {
    fn some(&self, random: &mut SmallRng, is_meant: impl Fn(&Rogue) -> bool) -> Option<usize> {
        let all: Vec<usize> = (0..self.rogues.len()).filter(|at| is_meant(&self.rogues[*at])).collect();
        all.choose(random).copied()
    }

    /// Whether a rogue takes no more bytes, if its buffer has this size.
    pub(crate) fn has_full(&self, buffer_bytes: usize) -> bool {
        self.rogues.iter().any(|rogue| rogue.wire.receivable() >= buffer_bytes)
    }

    fn open(&self) -> usize {
        self.rogues.iter().filter(|rogue| rogue.stage != Stage::Over).count()
    }
}

impl World {
    /// A rogue connects or acts, or bytes of one arrive, or one reads.
    pub(crate) fn rogue_step(&mut self, random: &mut SmallRng) -> Result<(), Violation> {
        let crowd = &self.crowd;
        let piece = random.random_range(1..=self.options.piece_max);
        match random.random_range(0..8) {
            0 if crowd.open() < self.options.rogues.rogues_max => return self.rogue_connects(random),
            0..3 => {
                let at = crowd.some(random, |rogue| rogue.stage != Stage::Over);
                return at.map_or(Ok(()), |at| self.rogue_acts(at, random));
            }
            3..6 => {
                let Some(at) = crowd.some(random, |rogue| rogue.wire.in_transit() > 0) else { return Ok(()) };
                let id = self.crowd.rogues[at].id;
                self.note(|| format!("{id} arrive {piece}"));
                self.crowd.rogues[at].arrive(piece);
            }
            _ => {
                let can_read = |rogue: &Rogue| rogue.wire.receivable() > 0 || rogue.wire.is_ended();
                let is_meant = |rogue: &Rogue| {
                    rogue.stage != Stage::Over && rogue.reads != Reads::Never && can_read(rogue)
                };
                let Some(at) = crowd.some(random, is_meant) else { return Ok(()) };
                let len = if crowd.rogues[at].reads == Reads::OneByte { 1 } else { piece };
                self.rogue_reads(at, len)?;
            }
        }
        self.tell_of_rogues()
    }

    fn rogue_connects(&mut self, random: &mut SmallRng) -> Result<(), Violation> {
        let Some(wire) = outside::connect() else { return Ok(()) };
        wire.set_buffer(self.options.buffer_bytes);
        let id = FIRST_ID + self.crowd.rogues.len();
        self.crowd.rogues.push(Rogue::new(id, wire, &self.options, random));
        self.tell_of_rogues()
    }

    fn rogue_acts(&mut self, at: usize, random: &mut SmallRng) -> Result<(), Violation> {
        let (rogue, options, numbers) = (&mut self.crowd.rogues[at], &self.options, &mut self.numbers);
        let id = rogue.id;
        if let Some(name) = rogue.act(&mut Act { options, numbers, random }) {
            self.note(|| format!("{id} {name}"));
        }
        self.tell_of_rogues()
    }

    fn rogue_reads(&mut self, at: usize, bytes_max: usize) -> Result<usize, Violation> {
        let id = self.crowd.rogues[at].id;
        let received = self.crowd.rogues[at].receive(bytes_max);
        self.tell_of_rogues()?;
        received.map_err(|text| Violation { checker: "rogues", text: format!("rogue {id}: {text}") })
    }

    /// Tells the checkers what rogues have done and heard.
    pub(crate) fn tell_of_rogues(&mut self) -> Result<(), Violation> {
        for rogue in &mut self.crowd.rogues {
            if !rogue.was_released && !rogue.wire.has_broker() {
                rogue.was_released = true;
                rogue.tell(Deed::Released);
            }
        }
        let events = self.crowd.rogues.iter_mut().flat_map(|rogue| rogue.events.drain(..)).collect();
        self.tell(events)
    }

    /// Lets those rogues that read take much at a time: a small buffer would need a turn of the broker for each few bytes.
    pub(crate) fn widen_reading_rogues(&mut self) {
        let reading = self.crowd.rogues.iter().filter(|rogue| rogue.reads == Reads::Everything);
        reading.for_each(|rogue| rogue.wire.set_buffer(BUFFER_BYTES));
    }

    /// When faults end: rogues whose connections would stay for ever leave. The others are to be ended by the broker.
    pub(crate) fn end_rogues(&mut self) -> Result<(), Violation> {
        self.end_bystanders();
        for rogue in &mut self.crowd.rogues {
            rogue.wire.set_buffer(BUFFER_BYTES);
            match rogue.stage {
                Stage::Fresh | Stage::LoggedIn if rogue.id % 2 == 0 || rogue.reads == Reads::Never => {
                    rogue.vanish(|wire| wire.reset());
                }
                Stage::Fresh | Stage::LoggedIn => {
                    rogue.wire.finish();
                    rogue.leave(1000);
                }
                _ => {}
            }
            if rogue.reads == Reads::OneByte {
                rogue.reads = Reads::Everything;
            }
        }
        self.tell_of_rogues()
    }

    /// Lets everything of rogues arrive, and lets those read that do. Returns whether something moved.
    pub(crate) fn serve_rogues(&mut self) -> Result<bool, Violation> {
        let mut moved = false;
        for at in 0..self.crowd.rogues.len() {
            let rogue = &mut self.crowd.rogues[at];
            if !rogue.wire.has_broker() && rogue.stage == Stage::Over {
                continue;
            }
            moved |= rogue.wire.in_transit() > 0;
            rogue.arrive(usize::MAX);
            if rogue.stage != Stage::Over && rogue.reads == Reads::Everything {
                moved |= self.rogue_reads(at, usize::MAX)? > 0;
            }
        }
        self.tell_of_rogues()?;
        Ok(moved)
    }
}
