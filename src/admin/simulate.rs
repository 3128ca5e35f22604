//! What the ledger's records would have come to under another policy: reads them page by page,
//! and gives them to `engine::replay`. Changes nothing.

use std::{collections::HashMap, sync::Arc};

use crate::{
    config::Config,
    engine::{
        policy::Policy,
        replay::{Entry, Names, PriceOf, Replay, Report, Setting, Used, Whose},
    },
    store::{
        StoreError,
        reader::{By, HOUR_MS, Hours, Reader, Stretch, narrowed},
    },
};

/// Records that are in memory at once.
const PAGE: i64 = 1_000;

/// What is to be tried, on which records.
pub struct Wish {
    pub policy: Arc<Policy>,
    /// Only of this key; else whatever a version of the same policy judged.
    pub key: Option<String>,
    /// Milliseconds since 1970; taken down to the full hour.
    pub from_ms: i64,
    /// Exclusive.
    pub to_ms: i64,
    /// At most so many of the last records; the beginning moves up for that.
    pub most: Option<i64>,
}

/// Replays the records; `told` hears how many are done, of how many.
///
/// # Errors
/// The store cannot be read.
pub async fn simulate(
    reader: &mut dyn Reader,
    config: &Config,
    price_of: PriceOf,
    mut wish: Wish,
    mut told: impl FnMut(i64, i64),
) -> Result<Report, StoreError> {
    let within = begin(reader, &mut wish).await?;
    let mut replay = Replay::new(setting(config, price_of, &wish));
    carry(reader, &mut replay, wish.from_ms).await?;
    let (mut after, all) = (within.after, within.up_to - within.after);
    while after < within.up_to {
        let most = PAGE.min(within.up_to - after);
        let lines = reader.lines_after(after, most).await?;
        let Some(last) = lines.last() else { break };
        after = last.seq;
        for line in lines.iter().filter(|line| line.seq <= within.up_to) {
            if let Some(entry) = Entry::read(&line.body) {
                replay.see(&entry);
            }
        }
        told(after - within.after, all);
    }
    Ok(replay.end())
}

/// Where to begin: at a full hour, since what was used before is added up by the hour.
async fn begin(reader: &mut dyn Reader, wish: &mut Wish) -> Result<Stretch, StoreError> {
    wish.from_ms = wish.from_ms.div_euclid(HOUR_MS) * HOUR_MS;
    let all = Stretch {
        after: 0,
        up_to: reader.last_seq().await?,
    };
    let within = narrowed(reader, all, Some(wish.from_ms), Some(wish.to_ms)).await?;
    let Some(most) = wish.most.filter(|most| within.up_to - within.after > *most) else {
        return Ok(within);
    };
    let after = within.up_to - most;
    if let Some(at) = reader.time_at(after + 1).await? {
        wish.from_ms = (at.div_euclid(HOUR_MS) + 1) * HOUR_MS;
    }
    Ok(Stretch { after, ..within })
}

fn setting(config: &Config, price_of: PriceOf, wish: &Wish) -> Setting {
    let routes = config.aliases.iter().map(|(name, alias)| {
        let models = alias.routes.iter().map(|route| route.model.clone());
        (name.clone(), models.collect())
    });
    let routes = routes.filter(|(_, models): &(_, Vec<_>)| !models.is_empty());
    let providers = config.providers.iter();
    let tenants = config.keys.values();
    Setting {
        policy: Arc::clone(&wish.policy),
        whose: wish
            .key
            .as_deref()
            .map_or(Whose::Policy, |key| Whose::Key(key.into())),
        versions: config.policies.clone(),
        contracts: Arc::clone(&config.contracts),
        names: Names {
            providers: providers.map(|one| Box::from(&*one.name)).collect(),
            routes: routes.collect(),
        },
        tenant_budgets: config.tenant_budgets.clone(),
        global_budget: config.global_budget.clone(),
        tenants: tenants
            .map(|key| (Arc::clone(&key.name), Arc::clone(&key.tenant)))
            .collect(),
        price_of,
        from_ms: wish.from_ms,
        to_ms: wish.to_ms,
    }
}

/// What keys had used in periods that began before.
async fn carry(
    reader: &mut dyn Reader,
    replay: &mut Replay,
    from_ms: i64,
) -> Result<(), StoreError> {
    let before = from_ms.div_euclid(HOUR_MS);
    for start_ms in replay.begun() {
        // A period that begins within an hour has the whole of that hour.
        let from = start_ms.div_euclid(HOUR_MS);
        let hours = Hours { from, before };
        let width = (before - from).max(1);
        let mut keys: HashMap<String, Used> = HashMap::new();
        for usage in reader.usage(hours, By::Key, width).await? {
            let used = Used {
                requests: usage.requests,
                tokens: usage.tokens,
                cost: usage.cost_nano_usd,
            };
            let known = keys.entry(usage.name).or_default();
            *known = known.plus(used);
        }
        for (key, used) in keys {
            replay.carry(start_ms, &key, used);
        }
    }
    Ok(())
}
