//! The stores of the homes, and the properties that are checked with each of them.

use super::*;

/// The store of the homes.
pub(super) enum ModelStore {
    Ledger(Ledger),
    /// Queues keep so many messages loaded at their fronts.
    Paging(PagingStore, usize),
}

impl ModelStore {
    pub(super) fn home(&self) -> Home {
        match self {
            ModelStore::Ledger(ledger) => home_with(Box::new(ledger.clone())),
            ModelStore::Paging(store, window) => {
                let mut home = home_with(store.handle());
                home.set_window(*window, 50);
                home
            }
        }
    }

    pub(super) fn pages(&self) -> bool {
        matches!(self, ModelStore::Paging(..))
    }

    /// Messages that were kept and not forgotten.
    pub(super) fn kept(&self) -> u64 {
        match self {
            ModelStore::Ledger(ledger) => {
                let (kept, forgotten) = ledger.calls();
                kept - forgotten.len() as u64
            }
            ModelStore::Paging(store, _) => store.kept() as u64,
        }
    }

    /// Everything has ended.
    pub(super) fn check_end(&self) {
        match self {
            ModelStore::Ledger(ledger) => {
                let (_, forgotten) = ledger.calls();
                let different: BTreeSet<_> = forgotten.iter().collect();
                assert_eq!(different.len(), forgotten.len(), "each is forgotten once");
            }
            ModelStore::Paging(store, _) => {
                assert!(store.bodies().is_empty() && store.requested().is_empty())
            }
        }
    }
}

impl World {
    /// Pages out from a home while memory is short, or full.
    pub(super) fn page_out(&mut self, home: usize, is_full: bool) {
        self.homes[home].note_memory(if is_full { 1 << 30 } else { 0 }, 1 << 30, 1);
        self.homes[home].page_out();
    }

    /// Loads all messages that a home may load now. Returns whether there were any.
    pub(super) fn load_all(&mut self, home: usize) -> bool {
        let keys: Vec<QueueKey> = self.lines.keys().filter(|at| at.0 == home).map(|at| at.1).collect();
        let mut has_loaded = false;
        loop {
            keys.iter().for_each(|key| self.homes[home].read_ahead(*key));
            if self.homes[home].requested() == 0 {
                return has_loaded;
            }
            has_loaded = true;
            self.homes[home].take_loaded();
            self.run_effects(home);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(1500) })]

    #[test]
    fn homes_agree_with_a_list_of_messages(
        homes in 1..4_usize,
        paces in any::<bool>(),
        steps in prop::collection::vec(step(), 1..120),
    ) {
        let before = held::bytes();
        let mut world = World::new(homes, paces, ModelStore::Ledger(Ledger::default()));
        steps.into_iter().for_each(|step| world.run(step));
        world.finish();
        prop_assert_eq!(held::bytes(), before);
    }

    #[test]
    fn homes_with_messages_in_the_store_agree_with_a_list_of_messages(
        homes in 1..4_usize,
        paces in any::<bool>(),
        seed in any::<u64>(),
        window in 1..4_usize,
        steps in prop::collection::vec(step(), 1..120),
    ) {
        let before = held::bytes();
        let mut world = World::new(homes, paces, ModelStore::Paging(PagingStore::new(seed, 60), window));
        steps.into_iter().for_each(|step| world.run(step));
        world.finish();
        prop_assert_eq!(held::bytes(), before);
    }
}
