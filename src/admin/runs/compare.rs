//! Groups of runs side by side: what they took, how far that spreads, how often they succeed.

use std::collections::BTreeMap;

use serde::Serialize;

use super::tally::RunTally;

/// What tells the groups apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    /// A run with several tags is in several groups; one without tags is in none.
    Tag,
    Policy,
    /// All models that answered in the run.
    Model,
}

impl By {
    pub const NAMES: &[&str] = &["tag", "policy", "model"];

    pub fn of(name: &str) -> Option<Self> {
        let all = [Self::Tag, Self::Policy, Self::Model];
        let at = Self::NAMES.iter().position(|known| *known == name)?;
        all.get(at).copied()
    }

    fn groups(self, run: &RunTally) -> Vec<String> {
        match self {
            Self::Tag => run.tags.iter().cloned().collect(),
            Self::Policy => run.policy.iter().cloned().collect(),
            Self::Model if run.models.is_empty() => Vec::new(),
            Self::Model => {
                let models: Vec<&str> = run.models.iter().map(String::as_str).collect();
                vec![models.join("+")]
            }
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Group {
    pub group: String,
    pub runs: usize,
    /// Runs whose callers told how they went.
    pub reported: usize,
    /// Successes of the reported ones, from 0 to 1.
    pub success_rate: Option<f64>,
    pub steps: Spread,
    pub model_calls: Spread,
    pub tool_calls: Spread,
    pub tokens: Spread,
    pub cost_nano_usd: Spread,
    pub duration_ms: Spread,
}

/// Quartiles by linear interpolation, and the ends.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Spread {
    pub least: f64,
    pub lower_quartile: f64,
    pub median: f64,
    pub upper_quartile: f64,
    pub most: f64,
}

/// By the names of the groups; `only` empty: all of them.
pub fn compare(runs: &[RunTally], by: By, only: &[String]) -> Vec<Group> {
    let mut groups: BTreeMap<String, Vec<&RunTally>> = BTreeMap::new();
    for run in runs {
        for group in by.groups(run) {
            if only.is_empty() || only.contains(&group) {
                groups.entry(group).or_default().push(run);
            }
        }
    }
    groups
        .into_iter()
        .map(|(name, runs)| group(name, &runs))
        .collect()
}

fn group(name: String, runs: &[&RunTally]) -> Group {
    let spread = |figure: fn(&RunTally) -> f64| {
        let mut all: Vec<f64> = runs.iter().map(|run| figure(run)).collect();
        all.sort_by(f64::total_cmp);
        Spread::of(&all)
    };
    let outcomes = || runs.iter().filter_map(|run| run.outcome.as_deref());
    let reported = outcomes().count();
    let successes = outcomes().filter(|outcome| *outcome == "success").count();
    Group {
        group: name,
        runs: runs.len(),
        reported,
        success_rate: (reported > 0).then(|| successes as f64 / reported as f64),
        steps: spread(|run| run.steps as f64),
        model_calls: spread(|run| run.model_calls as f64),
        tool_calls: spread(|run| run.tool_calls as f64),
        tokens: spread(|run| run.tokens as f64),
        cost_nano_usd: spread(|run| run.cost_nano_usd as f64),
        duration_ms: spread(|run| run.duration_ms as f64),
    }
}

impl Spread {
    fn of(sorted: &[f64]) -> Self {
        let at = |share: f64| {
            let place = share * sorted.len().saturating_sub(1) as f64;
            let (below, above) = (place.floor() as usize, place.ceil() as usize);
            let value = |at: usize| sorted.get(at).copied().unwrap_or_default();
            value(below) + (value(above) - value(below)) * place.fract()
        };
        Self {
            least: at(0.0),
            lower_quartile: at(0.25),
            median: at(0.5),
            upper_quartile: at(0.75),
            most: at(1.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(tags: &[&str], steps: u64, outcome: Option<&str>) -> RunTally {
        RunTally {
            tags: tags.iter().map(|tag| (*tag).to_owned()).collect(),
            steps,
            outcome: outcome.map(str::to_owned),
            ..RunTally::default()
        }
    }

    #[test]
    fn quartiles_lie_between_values() {
        let spread = Spread::of(&[1.0, 2.0, 3.0, 10.0]);
        assert_eq!(
            (spread.lower_quartile, spread.median, spread.upper_quartile),
            (1.75, 2.5, 4.75)
        );
        assert_eq!((spread.least, spread.most), (1.0, 10.0));
        assert_eq!(Spread::of(&[7.0]).median, 7.0);
    }

    #[test]
    fn runs_without_a_report_say_nothing_of_success() {
        let runs = [
            run(&["agent", "x"], 4, Some("success")),
            run(&["agent"], 6, Some("failure")),
            run(&["agent"], 8, None),
            run(&["workflow"], 1, None),
            run(&[], 100, Some("success")),
        ];
        let only = ["agent".to_owned(), "workflow".to_owned()];
        let told = compare(&runs, By::Tag, &only);
        let [agent, workflow] = told.as_slice() else {
            panic!("{told:?}");
        };
        assert_eq!((agent.runs, agent.reported), (3, 2));
        assert_eq!((agent.success_rate, agent.steps.median), (Some(0.5), 6.0));
        assert_eq!((workflow.runs, workflow.success_rate), (1, None));
        assert_eq!(compare(&runs, By::Tag, &[]).len(), 3);
    }
}
