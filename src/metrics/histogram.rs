//! Durations, counted by size.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

/// Upper bounds in microseconds: from what judging costs to what a slow provider takes.
pub(super) const BOUNDS: [u64; 20] = [
    50,
    100,
    250,
    500,
    1_000,
    2_500,
    5_000,
    10_000,
    25_000,
    50_000,
    100_000,
    250_000,
    500_000,
    1_000_000,
    2_500_000,
    5_000_000,
    10_000_000,
    30_000_000,
    60_000_000,
    120_000_000,
];

#[derive(Default)]
pub(super) struct Histogram {
    /// One for each bound, not added up.
    counts: [AtomicU64; BOUNDS.len()],
    /// Longer than the last bound.
    longer: AtomicU64,
    sum_micros: AtomicU64,
}

/// A histogram at one moment: counts up to each bound, of all, and their sum.
pub(super) struct Reading {
    pub up_to: [u64; BOUNDS.len()],
    pub count: u64,
    pub sum_micros: u64,
}

impl Histogram {
    pub fn observe(&self, took: Duration) {
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let place = BOUNDS.partition_point(|bound| *bound < micros);
        let count = self.counts.get(place).unwrap_or(&self.longer);
        count.fetch_add(1, Relaxed);
        self.sum_micros.fetch_add(micros, Relaxed);
    }

    pub fn read(&self) -> Reading {
        let mut count = 0;
        let mut up_to = [0; BOUNDS.len()];
        for (total, own) in up_to.iter_mut().zip(&self.counts) {
            count += own.load(Relaxed);
            *total = count;
        }
        Reading {
            up_to,
            count: count + self.longer.load(Relaxed),
            sum_micros: self.sum_micros.load(Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_counts_for_every_bound_it_does_not_pass() {
        let histogram = Histogram::default();
        for micros in [0, 50, 51, 1_000, 500_000_000] {
            histogram.observe(Duration::from_micros(micros));
        }
        let reading = histogram.read();
        assert_eq!(reading.up_to[..5], [2, 3, 3, 3, 4]);
        assert_eq!(reading.up_to.last(), Some(&4));
        assert_eq!((reading.count, reading.sum_micros), (5, 500_001_101));
    }
}
