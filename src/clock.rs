//! The only reader of time and randomness. Tests use the manual clock and set it.
#![allow(
    clippy::disallowed_methods,
    reason = "this is the one place that may read them"
)]

use std::sync::{
    Arc,
    atomic::{AtomicI64, Ordering},
};

/// Wall time and fresh identifiers. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Clock {
    manual: Option<Arc<AtomicI64>>,
}

impl Clock {
    pub fn system() -> Self {
        Self::default()
    }

    /// A clock that stands at `now_ms` until it is moved.
    pub fn manual(now_ms: i64) -> Self {
        Self {
            manual: Some(Arc::new(AtomicI64::new(now_ms))),
        }
    }

    /// Moves a manual clock; a system clock does not care.
    pub fn set(&self, now_ms: i64) {
        if let Some(manual) = &self.manual {
            manual.store(now_ms, Ordering::SeqCst);
        }
    }

    pub fn advance(&self, ms: i64) {
        if let Some(manual) = &self.manual {
            manual.fetch_add(ms, Ordering::SeqCst);
        }
    }

    /// Milliseconds since 1970, UTC.
    pub fn now_ms(&self) -> i64 {
        match &self.manual {
            Some(manual) => manual.load(Ordering::SeqCst),
            None => std::time::SystemTime::now()
                .duration_since(std::time::UNIX_EPOCH)
                .map_or(0, |since| {
                    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
                }),
        }
    }

    /// 128 random bits as 32 hexadecimal digits.
    pub fn fresh_id(&self) -> String {
        hex::encode(random::<16>())
    }

    /// An id that tells when it was made: 48 bits of milliseconds since 1970, then 80 random
    /// ones, as 32 hexadecimal digits. What it names is found in the ledger by its time.
    pub fn fresh_timed_id(&self) -> String {
        let [_, _, time @ ..] = self.now_ms().to_be_bytes();
        hex::encode(time) + &hex::encode(random::<10>())
    }

    /// 256 random bits for a new client key.
    pub fn fresh_secret(&self) -> String {
        hex::encode(random::<32>())
    }

    /// The secret of a new signing key.
    pub fn fresh_seed(&self) -> [u8; 32] {
        random()
    }
}

/// # Panics
/// Never in practice: without a source of randomness no secret could be made, so the process
/// ends rather than go on with a guessable one.
fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    if getrandom::fill(&mut bytes).is_err() {
        std::process::abort();
    }
    bytes
}
