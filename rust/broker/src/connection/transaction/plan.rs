//! The plan of a transaction, which has the home and place of each operation: made by its check, followed when it is
//! applied.

use std::hash::BuildHasher as _;

use hashbrown::HashTable;

use crate::collections::paged_deque::PagedDeque;
use crate::ids::ShardId;
use crate::message::OwnedMessage;
use crate::message::options::Retain;
use crate::queue::mail::{Reservation, Reservations};

/// The place at which one operation takes effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Here: an ACK or NACK.
    Here,
    /// At a home.
    Home {
        /// The index in the plan's list of homes.
        home: u32,
        /// The index in the home's list of reservations, if room is reserved for it.
        reservation: Option<u32>,
    },
    /// All subscriptions of a topic, and maybe its retained message.
    Topic {
        /// The index of the home of the retained message.
        retained: Option<u32>,
    },
}

/// The places of a transaction's operations, in order.
#[derive(Debug)]
pub struct Plan {
    hasher: crate::door::HashState,
    homes: Vec<(ShardId, Reservations)>,
    /// Reservations by name and kind, each with its hash, so that moving an entry need not look at names.
    reservations: HashTable<(u64, u32, u32)>,
    /// The places of operations that have not taken effect.
    places: PagedDeque<Place>,
}

impl Plan {
    /// An empty plan.
    #[must_use]
    pub fn new(hasher: crate::door::HashState) -> Self {
        Plan { hasher, homes: Vec::new(), reservations: HashTable::new(), places: PagedDeque::default() }
    }

    /// The number of its operations, which is the index of the next one.
    #[must_use]
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Adds an ACK or NACK.
    pub fn add_ack(&mut self) {
        self.places.push_back(Place::Here);
    }

    /// Adds a message to a queue, whose home reserves room, or (not `kept`) to another destination that is not a
    /// topic.
    pub fn add_queued(&mut self, home: ShardId, message: &OwnedMessage, kept: bool) {
        let home = self.home(home);
        let reservation = kept.then(|| self.reservation(home, message, false));
        self.places.push_back(Place::Home { home, reservation });
    }

    /// Adds a message to a topic.
    pub fn add_topic(&mut self, home: ShardId, message: &OwnedMessage, retain: Option<Retain>) {
        let retained = retain.map(|retain| {
            let home = self.home(home);
            if retain == Retain::Set {
                self.reservation(home, message, true);
            }
            home
        });
        self.places.push_back(Place::Topic { retained });
    }

    fn home(&mut self, home: ShardId) -> u32 {
        let at = self.homes.iter().position(|(at, _)| *at == home).unwrap_or_else(|| {
            self.homes.push((home, Reservations::default()));
            self.homes.len() - 1
        });
        at as u32
    }

    fn reservation(&mut self, home: u32, message: &OwnedMessage, retained: bool) -> u32 {
        let (name, bytes) = (message.destination(), message.size() as u64);
        let (homes, hasher) = (&mut self.homes, &self.hasher);
        let hash = hasher.hash_one((name, retained));
        let named = |&(own, home, reservation): &(u64, u32, u32)| {
            let reservation = homes[home as usize].1.get(reservation as usize);
            own == hash
                && reservation
                    .is_some_and(|reservation| *reservation.name == *name && reservation.retained == retained)
        };
        if let Some(&(_, home, at)) = self.reservations.find(hash, named) {
            if let Some(reservation) = homes[home as usize].1.get_mut(at as usize) {
                reservation.count += 1;
                reservation.bytes += bytes;
            }
            return at;
        }
        let at = homes[home as usize].1.len() as u32;
        homes[home as usize].1.push_back(Reservation {
            name: name.into(),
            retained,
            count: 1,
            bytes,
            ..Reservation::default()
        });
        self.reservations.insert_unique(hash, (hash, home, at), |&(hash, ..)| hash);
        at
    }

    /// The homes concerned.
    pub fn homes(&self) -> impl Iterator<Item = ShardId> {
        self.homes.iter().map(|(home, _)| *home)
    }

    /// The reservations for each home; homes without any are omitted.
    pub fn take_reservations(&mut self) -> Vec<(ShardId, Reservations)> {
        self.reservations = HashTable::new();
        let taken = self.homes.iter_mut().map(|(home, reservations)| (*home, std::mem::take(reservations)));
        taken.filter(|(_, reservations)| !reservations.is_empty()).collect()
    }

    /// The place of the first operation that has not taken effect.
    #[must_use]
    pub fn next_place(&self) -> Place {
        self.places.front().copied().unwrap_or(Place::Here)
    }

    /// Takes the place of the next operation, which takes effect now.
    pub fn take_place(&mut self) -> Place {
        self.places.pop_front().unwrap_or(Place::Here)
    }

    /// The approximate memory that it uses, in bytes.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        let reservations: usize = self.homes.iter().map(|(_, reservations)| reservations.capacity()).sum();
        let places = self.places.capacity() * size_of::<Place>();
        places + reservations * (size_of::<Reservation>() + 32)
    }
}

#[cfg(test)]
mod tests {
    use stompica_proto::encode::Message;

    use super::*;

    fn plan() -> Plan {
        Plan::new(crate::door::HashState::default())
    }

    fn message(destination: &str) -> OwnedMessage {
        let destination = destination.as_bytes();
        OwnedMessage::new(&Message {
            destination,
            id: b"",
            sender: 0,
            headers: b"",
            plain: true,
            expires_ms: 0,
            body: b"body",
        })
    }

    #[test]
    fn messages_to_one_queue_share_one_reservation() {
        let mut plan = plan();
        for (name, home) in [("/queue/a", 1), ("/queue/b", 0), ("/queue/a", 1), ("/queue/c", 1)] {
            plan.add_queued(ShardId(home), &message(name), true);
        }
        plan.add_queued(ShardId(2), &message("#jobs"), false);
        plan.add_ack();
        let places: Vec<Place> = plan.places.iter().copied().collect();
        let (a, c) = (Some(0), Some(1));
        assert_eq!(places[0], Place::Home { home: 0, reservation: a });
        assert_eq!(
            places[2..4],
            [Place::Home { home: 0, reservation: a }, Place::Home { home: 0, reservation: c }]
        );
        assert_eq!(places[4..], [Place::Home { home: 2, reservation: None }, Place::Here]);
        let reservations = plan.take_reservations();
        let counts: Vec<(u8, Vec<u64>)> = reservations
            .iter()
            .map(|(home, reservations)| {
                (home.0, reservations.iter().map(|reservation| reservation.count).collect())
            })
            .collect();
        assert_eq!(counts, [(1, vec![2, 1]), (0, vec![1])]);
        assert_eq!(plan.homes().count(), 3);
    }

    #[test]
    fn a_retained_message_needs_a_reservation_and_its_removal_none() {
        let mut plan = plan();
        plan.add_topic(ShardId(3), &message("/topic/a"), Some(Retain::Set));
        plan.add_topic(ShardId(3), &message("/topic/a"), Some(Retain::Remove));
        let place = Place::Topic { retained: Some(0) };
        assert_eq!([plan.next_place(), plan.take_place(), plan.take_place()], [place; 3]);
        let reservations = plan.take_reservations();
        assert!(
            reservations.len() == 1
                && reservations[0].1.len() == 1
                && reservations[0].1.front().is_some_and(|reservation| reservation.retained)
        );
    }
}
