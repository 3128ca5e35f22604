//! What agents did over whole tasks, as the ledger has it.

mod compare;
pub(super) mod routes;
mod tally;

use serde_json::Value;

pub use self::{
    compare::{By, Group, Spread, compare},
    tally::{RunTally, Tallies},
};
use crate::store::{
    StoreError,
    reader::{Reader, Stretch, Wanted},
};

/// One statement looks at so many records.
const CHUNK: i64 = 10_000;

/// Which runs.
#[derive(Debug, Clone, Default)]
pub struct WantedRuns {
    pub key: Option<String>,
    pub run: Option<String>,
    /// Milliseconds since 1970: records since then.
    pub from_ms: Option<i64>,
}

/// The records about runs in `within`, oldest first, each given to `see`.
///
/// # Errors
/// The store cannot be read.
pub async fn each_record(
    reader: &mut dyn Reader,
    runs: &WantedRuns,
    within: Stretch,
    mut see: impl FnMut(i64, Value),
) -> Result<(), StoreError> {
    let wanted = Wanted {
        kinds: tally::KINDS.iter().map(ToString::to_string).collect(),
        key: runs.key.clone(),
        run: runs.run.clone(),
        from_ms: runs.from_ms,
        in_a_run: true,
        ..Wanted::default()
    };
    let mut after = within.after;
    while after < within.up_to {
        let chunk = Stretch {
            after,
            up_to: within.up_to.min(after.saturating_add(CHUNK)),
        };
        let found = reader.find(&wanted, chunk, CHUNK).await?;
        for one in found.iter().rev() {
            see(one.seq, serde_json::from_str(&one.body).unwrap_or_default());
        }
        after = chunk.up_to;
    }
    Ok(())
}

/// The last heard of first.
///
/// # Errors
/// The store cannot be read.
pub async fn tallies(
    reader: &mut dyn Reader,
    runs: &WantedRuns,
    within: Stretch,
) -> Result<Vec<RunTally>, StoreError> {
    let mut all = Tallies::default();
    each_record(reader, runs, within, |_, record| all.see(&record)).await?;
    Ok(all.newest_first())
}
