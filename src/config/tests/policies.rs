//! Policy files: their mistakes as printed, and what keys are bound to.

use super::Files;
use crate::{
    config::Config,
    engine::{
        money::Money,
        policy::{Binding, Enforcement},
    },
};

#[test]
fn a_wrong_policy_is_refused() {
    let file = "policies/basic.toml";
    for (old, new, line) in [
        (
            "id = \"basic\"",
            "id = \"basic@2\"",
            "1:6: id: \"basic@2\" holds an @; the version has a member of its own",
        ),
        (
            "version = 1",
            "version = \"1\"",
            "2:11: version: must be a whole number, not a string",
        ),
        (
            "published",
            "publishd",
            "3:10: status: unknown \"publishd\"; known: draft, published, archived",
        ),
        (
            "[budget]",
            "[run]\nmax_iterations = 0\n[budget]",
            "6:18: run.max_iterations: must be at least 1",
        ),
        (
            "[budget]",
            "[loops]\non_open = \"halt\"\n[budget]",
            "6:11: loops.on_open: unknown \"halt\"; known: stop, retry, fallback, escalate",
        ),
        (
            "[budget]",
            "[budgets]",
            "5:2: budgets: unknown member; did you mean \"budget\"?",
        ),
        (
            "daily_cost_usd",
            "dayly_cost_limit",
            "6:1: budget.dayly_cost_limit: unknown member; did you mean \"daily_cost_usd\"?",
        ),
        (
            "\"5.00\"",
            "\"-5\"",
            "6:18: budget.daily_cost_usd: \"-5\" is no amount in dollars; write \"25.00\", with at most 9 decimals",
        ),
        (
            "\"5.00\"",
            "-5",
            "6:18: budget.daily_cost_usd: \"-5\" is no amount in dollars; write \"25.00\", with at most 9 decimals",
        ),
        (
            "\"5.00\"",
            "true",
            "6:18: budget.daily_cost_usd: must be an amount such as \"25.00\", not true or false",
        ),
        (
            "\"5.00\"",
            "\"5\"\ndaily_tokens = -1",
            "7:16: budget.daily_tokens: -1 is not a number from 0 to 18446744073709551615",
        ),
        (
            "\"5.00\"",
            "\"5\"\ntimezone = \"Europe/Amsterdan\"",
            "7:12: budget.timezone: \"Europe/Amsterdan\" is no time zone such as \"UTC\" or \"Europe/Amsterdam\"; did you mean \"Europe/Amsterdam\"?",
        ),
        (
            "\"5.00\"",
            "\"5\"\ntimezone = \"+5\"",
            "7:12: budget.timezone: \"+5\" is no time zone such as \"UTC\" or \"Europe/Amsterdam\"",
        ),
        (
            "\"5.00\"",
            "\"5\"\nreset_at = \"6:00\"",
            "7:12: budget.reset_at: \"6:00\" is no time of day such as \"06:00\"",
        ),
        (
            "\"5.00\"",
            "\"5\"\nreset_at = \"24:00\"",
            "7:12: budget.reset_at: \"24:00\" is no time of day such as \"06:00\"",
        ),
        (
            "\"5.00\"",
            "\"5\"\nreset_at = 06:00:00",
            "7:12: budget.reset_at: must be a string such as \"06:00\", not a date",
        ),
        (
            "\"5.00\"",
            "\"5\"\nenforcement = \"strict\"",
            "7:15: budget.enforcement: unknown \"strict\"; known: exact, elastic",
        ),
        (
            "\"5.00\"",
            "\"5\"\nmax_output_tokens = 0",
            "7:21: budget.max_output_tokens: must be at least 1",
        ),
        (
            "\"5.00\"",
            "\"5\"\nmax_output_tokens = 8\nmin_output_tokens = 9",
            "8:21: budget.min_output_tokens: is more than an answer may have (max_output_tokens, default_output_tokens)",
        ),
        (
            "\"5.00\"",
            "\"5\"\nmax_output_tokens = 8\ndefault_output_tokens = 9",
            "8:25: budget.default_output_tokens: is more than max_output_tokens",
        ),
        (
            "[budget]",
            "[limits]\nrequests_per_minute = 0\n[budget]",
            "6:23: limits.requests_per_minute: must be at least 1",
        ),
        (
            "[budget]",
            "[limits]\nburst = 5\n[budget]",
            "6:9: limits.burst: spreads requests_per_minute, which is missing",
        ),
        (
            "[budget]",
            "[limits]\nburst = 5\nrequests_per_minute = 4\n[budget]",
            "6:9: limits.burst: is more than requests_per_minute",
        ),
        (
            "[budget]",
            "[models]\ndeny = [\"\"]\n[budget]",
            "6:9: models.deny[0]: \"\" is neither a name nor a prefix; write \"gpt-4o\" or \"gpt-4o-*\"",
        ),
        (
            "[budget]",
            "[models]\nallow = \"gpt-4o\"\n[budget]",
            "6:9: models.allow: must be a list",
        ),
        (
            "[budget]",
            "[input]\nsensitive_patterns = [\"a\", \"\"]\n[budget]",
            "6:28: input.sensitive_patterns[1]: an empty pattern would be found in every text",
        ),
        (
            "[budget]",
            "[input]\nmax_chars = 1.5\n[budget]",
            "6:13: input.max_chars: must be a whole number, not a number with a point",
        ),
    ] {
        assert_eq!(
            Files::good().edited(file, old, new).mistakes(),
            [format!("{file}:{line}")]
        );
    }
}

#[test]
fn a_version_stands_in_one_file_only() {
    let files = Files::good();
    files.write(
        "policies/copy.toml",
        "id = \"basic\"\nversion = 1\nstatus = \"draft\"\n",
    );
    assert_eq!(
        files.mistakes(),
        [
            "policies/copy.toml:2:11: version: version 1 of \"basic\" is in another file too; give a new one"
        ]
    );
}

#[test]
fn a_key_gets_the_newest_published_version_or_the_one_it_names() {
    let files = with_versions(&[
        (1, "published"),
        (3, "published"),
        (4, "draft"),
        (2, "archived"),
    ]);
    for (reference, bound) in [
        ("many", "version 3"),
        ("many@1", "version 1"),
        ("many@2", "policy many@2 is archived"),
        ("many@4", "policy many@4 is a draft"),
    ] {
        let files = files.bound_to(reference);
        assert_eq!(binding(&files.load().unwrap()), bound);
        let warned = files.warnings();
        let line = format!(
            "tallygate.toml:19:10: keys[0].policy: {bound}; requests with this key are answered 503"
        );
        assert_eq!(
            warned,
            if bound.starts_with("policy") {
                vec![line]
            } else {
                vec![]
            }
        );
    }
    let versions = with_versions(&[(1, "draft"), (2, "archived")]);
    let unpublished = versions.bound_to("many");
    assert_eq!(
        binding(&unpublished.load().unwrap()),
        "policy many has no published version"
    );
}

#[test]
fn a_policy_whose_file_is_broken_is_not_called_missing_too() {
    let files = Files::good();
    files.write("policies/basic.toml", "id = \"basic\"\nversion 1");
    let mistakes = files.mistakes();
    assert!(
        mistakes
            .iter()
            .all(|line| line.starts_with("policies/basic.toml")),
        "{mistakes:?}"
    );
}

#[test]
fn a_policy_says_what_it_says_and_nothing_else_is_limited() {
    let text = "[models]\nallow = []\ndeny = [\"gpt-*\"]\n[limits]\nburst = 2\nrequests_per_minute = 4\n\
                [input]\nmax_chars = 10\n[budget]\nmonthly_cost_usd = 3\ntimezone = \"Europe/Amsterdam\"\n\
                reset_at = \"06:30\"\nenforcement = \"elastic\"\nmax_output_tokens = 8\n";
    let files = Files::good().edited(
        "policies/basic.toml",
        "[budget]\ndaily_cost_usd = \"5.00\"\n",
        text,
    );
    let config = files.load().unwrap();
    let policy = &config.policies[0];
    assert_eq!(policy.models.allow.as_deref(), Some(&[][..]));
    assert!(policy.models.deny[0].matches("gpt-4o"));
    assert_eq!(policy.limits.burst.map(u64::from), Some(2));
    assert_eq!(
        (policy.limits.tokens_per_minute, policy.input.max_chars),
        (None, Some(10))
    );
    let budget = &policy.budget;
    assert_eq!(budget.monthly.cost, Some(Money::from_nanos(3_000_000_000)));
    assert_eq!((budget.daily.cost, budget.total.tokens), (None, None));
    assert_eq!(budget.calendar.zone.iana_name(), Some("Europe/Amsterdam"));
    assert_eq!(budget.calendar.reset_at, jiff::civil::time(6, 30, 0, 0));
    assert_eq!(budget.enforcement, Enforcement::Elastic);
    // The usual floor of 16 would refuse every request under a ceiling of 8.
    assert_eq!(budget.min_output_tokens, 8);
}

#[test]
fn a_rule_that_names_a_provider_before_the_model_is_a_warning() {
    let rule = "[models]\ndeny = [\"up/m-forbidden\", \"else/m\"]\n[budget]";
    let files = Files::good().edited("policies/basic.toml", "[budget]", rule);
    assert_eq!(
        files.warnings(),
        [
            "policies/basic.toml:6:8: models.deny: \"up/m-forbidden\" begins with the provider \"up\", which is taken off before a model is judged; \"m-forbidden\" may be meant"
        ]
    );
}

fn with_versions(versions: &[(u32, &str)]) -> Files {
    let files = Files::good();
    for (version, status) in versions {
        let text = format!("id = \"many\"\nversion = {version}\nstatus = \"{status}\"\n");
        files.write(&format!("policies/many-{version}.toml"), text);
    }
    files
}

impl Files {
    fn bound_to(&self, reference: &str) -> &Self {
        let policy = format!("policy = \"{reference}\"");
        self.write(
            "tallygate.toml",
            super::MAIN.replace("policy = \"basic\"", &policy),
        );
        self
    }
}

fn binding(config: &Config) -> String {
    match &config.keys[&[0x11; 32]].policy {
        Binding::To(policy) => format!("version {}", policy.version),
        Binding::Unusable(reason) => reason.to_string(),
    }
}
