//! What is kept of the recording: which segments go, what has to be noted of them, and the leases that keep them.

use std::sync::Arc;

use super::block::{Lease, Note};
use super::catalog::{Catalog, Track};
use crate::store::file::entry::SegmentNumber;

/// With more destinations than this, those without messages are forgotten.
const IDLE_MAX: usize = if cfg!(test) { 50 } else { 10_000 };
/// Leases of all readers.
const LEASES_MAX: usize = 1000;

impl Catalog {
    /// The oldest segment, if it is to be removed: it is older than `oldest_ms`, or there are more than `bytes_max`. Leases
    /// keep segments, but for no more than as many bytes again.
    #[must_use]
    pub fn removable(&self, oldest_ms: u64, bytes_max: u64) -> Option<SegmentNumber> {
        let (number, segment) = self.segments.first_key_value()?;
        let all = self.disk_bytes();
        let is_last = self.segments.len() == 1;
        let is_over = all > bytes_max && !is_last;
        if !is_over && segment.last_ms >= oldest_ms {
            return None;
        }
        let is_leased = || {
            self.leases.iter().any(|lease| {
                let track = self.track(&lease.destination);
                let behind =
                    track.and_then(|track| track.marks.iter().find(|mark| mark.place.segment > *number));
                // The first number behind this segment.
                let next = behind.map_or_else(|| track.map_or(0, |track| track.next), |mark| mark.first);
                lease.next < next
                    && track.is_some_and(|track| {
                        track.marks.first().is_some_and(|mark| mark.place.segment == *number)
                    })
            })
        };
        (all > bytes_max.saturating_mul(2) || !is_leased()).then_some(*number)
    }

    /// What has to be noted elsewhere when a segment is removed: destinations that no later segment has. If there are very
    /// many, those that have only a note here are forgotten: when they are used again, they begin a new epoch.
    #[must_use]
    pub fn notes_of(&self, number: SegmentNumber) -> Vec<Note> {
        let Some(segment) = self.segments.get(&number) else { return Vec::new() };
        let forgets = self.by_name.len() > IDLE_MAX;
        let tracks = segment.tracks.iter().filter_map(|at| self.tracks[*at as usize].as_ref());
        let last = tracks.filter(|track| track.segment == number && !(forgets && track.marks.is_empty()));
        let note = |track: &Track| Note {
            name: Arc::clone(&track.name),
            next: track.next,
            last_ms: track.last_ms,
            spans: track.spans.clone(),
        };
        last.map(note).collect()
    }

    /// Removes a segment, after its notes were written elsewhere.
    pub fn remove(&mut self, number: SegmentNumber) {
        let Some(segment) = self.segments.remove(&number) else { return };
        for at in segment.tracks {
            let Some(track) = &mut self.tracks[at as usize] else { continue };
            let gone = track.marks.partition_point(|mark| mark.place.segment <= number);
            track.marks.drain(..gone);
            self.marks -= gone;
            if track.segment <= number {
                self.by_name.remove(&track.name);
                self.tracks[at as usize] = None;
                self.free.push(at);
            }
        }
    }

    /// All leases.
    #[must_use]
    pub fn leases(&self) -> &[Lease] {
        &self.leases
    }

    /// Sets a lease. Returns whether there was room for it.
    pub fn set_lease(&mut self, lease: Lease) -> bool {
        self.leases_changed = true;
        let is_same =
            |other: &&mut Lease| (&other.name, &other.destination) == (&lease.name, &lease.destination);
        if let Some(other) = self.leases.iter_mut().find(is_same) {
            *other = lease;
        } else if self.leases.len() >= LEASES_MAX {
            return false;
        } else {
            self.leases.push(lease);
        }
        true
    }

    /// Replaces all leases, as they were found.
    pub fn restore_leases(&mut self, leases: Vec<Lease>) {
        self.leases = leases;
    }

    /// Ends leases that have expired.
    pub fn expire_leases(&mut self, now_ms: u64) {
        let before = self.leases.len();
        self.leases.retain(|lease| lease.expires_ms > now_ms);
        self.leases_changed |= self.leases.len() != before;
    }
}
