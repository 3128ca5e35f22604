//! Label sets and what is counted for each: read without a lock, copied when a new one comes.

use std::{
    collections::HashMap,
    hash::Hash,
    sync::{Arc, Mutex, PoisonError},
};

use arc_swap::ArcSwap;

/// A client may name models without end; beyond this they are counted together.
const MOST: usize = 2000;

pub(super) struct Table<K, V> {
    known: ArcSwap<HashMap<K, Arc<V>>>,
    growing: Mutex<()>,
    /// What has no room.
    others: V,
}

impl<K, V: Default> Default for Table<K, V> {
    fn default() -> Self {
        Self {
            known: ArcSwap::from_pointee(HashMap::new()),
            growing: Mutex::new(()),
            others: V::default(),
        }
    }
}

impl<K: Clone + Eq + Hash + Ord, V: Default> Table<K, V> {
    /// Counts for these labels.
    pub fn with(&self, labels: K, count: impl FnOnce(&V)) {
        if let Some(known) = self.known.load().get(&labels) {
            return count(known);
        }
        match self.add(labels) {
            Some(fresh) => count(&fresh),
            None => count(&self.others),
        }
    }

    fn add(&self, labels: K) -> Option<Arc<V>> {
        let _alone = self.growing.lock().unwrap_or_else(PoisonError::into_inner);
        let known = self.known.load_full();
        if let Some(known) = known.get(&labels) {
            return Some(Arc::clone(known));
        }
        if known.len() >= MOST {
            return None;
        }
        let mut more = HashMap::clone(&known);
        let fresh = Arc::new(V::default());
        more.insert(labels, Arc::clone(&fresh));
        self.known.store(Arc::new(more));
        Some(fresh)
    }

    /// All of them in order, and what had no room, if anything.
    pub fn read(&self, mut each: impl FnMut(Option<&K>, &V)) {
        let known = self.known.load_full();
        let mut sorted: Vec<_> = known.iter().collect();
        sorted.sort_by_key(|(labels, _)| *labels);
        for (labels, value) in sorted {
            each(Some(labels), value);
        }
        if known.len() >= MOST {
            each(None, &self.others);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    use super::*;

    #[test]
    fn many_threads_count_everything_and_labels_are_bounded() {
        let table = Table::<usize, AtomicU64>::default();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for label in 0..MOST + 50 {
                        table.with(label, |count| {
                            count.fetch_add(1, Relaxed);
                        });
                    }
                });
            }
        });
        let (mut sum, mut rest, mut sets) = (0, 0, 0);
        table.read(|labels, count| {
            let count = count.load(Relaxed);
            sum += count;
            sets += 1;
            if labels.is_none() {
                rest = count;
            }
        });
        assert_eq!((sum, sets), (4 * (MOST as u64 + 50), MOST + 1));
        assert_eq!(rest, 200);
    }
}
