//! What counts in the last 60 seconds.

use std::collections::BTreeMap;

use super::window::{MINUTE_MS, live_after};

/// Amounts by bucket, as far as they still count. A change that is not written down yet may be
/// below zero.
#[derive(Debug, Clone, Default)]
pub struct Sliding {
    entries: BTreeMap<i64, i64>,
    /// The sum of `entries`.
    counted: i64,
}

impl Sliding {
    pub fn new(entries: BTreeMap<i64, i64>) -> Self {
        Self {
            counted: entries.values().sum(),
            entries,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub fn add(&mut self, bucket: i64, change: i64) {
        *self.entries.entry(bucket).or_default() += change;
        self.counted += change;
    }

    /// What counts now. What no longer does is forgotten.
    pub fn used(&mut self, now_ms: i64) -> u64 {
        while let Some(oldest) = self.entries.first_entry() {
            if *oldest.key() > live_after(now_ms) {
                break;
            }
            self.counted -= oldest.remove();
        }
        u64::try_from(self.counted).unwrap_or(0)
    }

    /// When nothing counts any more, if nothing is added.
    pub fn empty_at(&self) -> Option<i64> {
        let (bucket, _) = self.entries.last_key_value()?;
        Some(bucket + MINUTE_MS)
    }

    /// When `needed` fits again as old entries stop counting; `None` if it never can.
    pub fn fits_at(&mut self, limit: u64, needed: u64, now_ms: i64) -> Option<i64> {
        if needed > limit {
            return None;
        }
        let mut left = limit.saturating_sub(self.used(now_ms));
        for (bucket, amount) in &self.entries {
            left = left.saturating_add_signed(*amount);
            if left >= needed {
                return Some(bucket + MINUTE_MS);
            }
        }
        self.empty_at()
    }
}
