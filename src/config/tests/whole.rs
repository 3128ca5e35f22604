//! Files as a whole: what is read, what is never shown, what a reload may meet.

use std::{fs, time::Duration};

use super::{Files, SECRET};
use crate::{
    config::{ApiKey, CapMember, Durability, HttpVersion, OnDown, StoreUrl},
    engine::{
        money::Money,
        policy::{Binding, Endpoint, Pattern},
    },
};

#[test]
fn all_mistakes_of_all_files_are_told_at_once_and_in_order() {
    let files = Files::good()
        .edited("tallygate.toml", "listen =", "lissten =")
        .edited("tallygate.toml", "policy =", "disabled = 1\npolcy =")
        .edited("policies/basic.toml", "\"5.00\"", "5.5");
    files.write("policies/added.toml", "id = \"added\"\nversion = 0\n");
    files.write("policies/broken.toml", "id = ");
    assert_eq!(
        files.mistakes(),
        [
            "tallygate.toml:2:1: server.lissten: unknown member; did you mean \"listen\"?",
            "tallygate.toml:15:1: keys[0].policy: missing",
            "tallygate.toml:19:12: keys[0].disabled: must be true or false, not a whole number",
            "tallygate.toml:20:1: keys[0].polcy: unknown member; did you mean \"policy\"?",
            "policies/added.toml: status: missing",
            "policies/added.toml:2:11: version: must be at least 1",
            "policies/basic.toml:6:18: budget.daily_cost_usd: must stand in quotes to be exact: \"5.5\"",
            "policies/broken.toml:1:6: string values must be quoted, expected literal string",
        ]
    );
}

#[test]
fn columns_count_characters_also_behind_wide_ones() {
    let files = Files::good().edited(
        "tallygate.toml",
        "{ env =",
        "{ \"žluťoučký kůň\" = 1, env =",
    );
    assert_eq!(
        files.mistakes(),
        [
            "tallygate.toml:10:13: providers.up.api_key.\"žluťoučký kůň\": unknown member; known: env, file"
        ]
    );
    let files = Files::good();
    files.write(
        "policies/basic.toml",
        "\u{feff}id = \"basic\" # é\r\nverzion = 1\r\n",
    );
    assert_eq!(
        files.mistakes(),
        [
            "policies/basic.toml: version: missing",
            "policies/basic.toml: status: missing",
            "policies/basic.toml:2:1: verzion: unknown member; did you mean \"version\"?",
        ]
    );
}

#[test]
fn what_a_reload_may_meet_is_a_clear_mistake() {
    let missing = [
        "tallygate.toml: store.url: missing",
        "tallygate.toml: providers: missing; at least one [providers.NAME] is needed",
        "tallygate.toml: keys: missing; nobody could call (`tallygate keys new` prints a [[keys]] block)",
    ];
    let unclosed = ["tallygate.toml:1:17: unclosed array, expected `]`"];
    let latin1 = ["tallygate.toml: is not UTF-8 text"];
    let cases: [(&[u8], &[&str]); 4] = [
        (b"", &missing),
        (b"# nothing but a comment", &missing),
        (b"policies_dir = [", &unclosed),
        (b"# caf\xe9", &latin1),
    ];
    for (text, lines) in cases {
        let files = Files::good();
        files.write("tallygate.toml", text);
        assert_eq!(files.mistakes(), lines);
    }
    let files = Files::good();
    let path = files.0.path().join("tallygate.toml");
    let text = fs::read_to_string(&path).unwrap();
    let (without_keys, _) = text.split_once("[[keys]]").unwrap();
    files.write("tallygate.toml", without_keys);
    assert_eq!(files.mistakes(), missing.get(2..).unwrap());
    fs::remove_file(&path).unwrap();
    let gone = "tallygate.toml: cannot be read: No such file or directory (os error 2)";
    assert_eq!(files.mistakes(), [gone]);
}

#[test]
fn what_is_not_written_has_its_default() {
    let config = Files::good().load().unwrap();
    assert_eq!(config.server.listen, "127.0.0.1:8080".parse().unwrap());
    assert_eq!(
        config.server.admin_listen,
        "127.0.0.1:8081".parse().unwrap()
    );
    assert_eq!(config.server.max_request_body, 32 * 1024 * 1024);
    assert_eq!(config.server.drain_timeout, Duration::from_secs(30));
    assert_eq!(
        (config.store.on_down, config.durability),
        (OnDown::Refuse, Durability::Batched)
    );
    let provider = &config.providers[0];
    assert_eq!(provider.first_byte_timeout, Duration::from_secs(120));
    assert_eq!(
        (provider.models.is_none(), provider.stream_usage),
        (true, true)
    );
    assert_eq!(
        (provider.cap_member, provider.http),
        (CapMember::AsClient, HttpVersion::Auto)
    );
    let key = &config.keys[&[0x11; 32]];
    assert!(!key.disabled && key.expires.is_none() && key.allow_from.is_empty());
    assert!(matches!(&key.policy, Binding::To(policy) if policy.version == 1));
    assert!(config.warnings.is_empty() && config.global_budget.is_none());
}

#[test]
fn what_is_written_is_in_force() {
    let files = Files::good()
        .edited(
            "tallygate.toml",
            "base_url",
            "idle_timeout = \"1500ms\"\nforward_headers = [\"X-Trace\"]\nmodels = [\"m-*\", \"n\"]\nbase_url",
        )
        .edited(
            "tallygate.toml",
            "policy =",
            "expires = 2027-06-30T02:00:00+02:00\nallow_from = [\"10.1.2.3/8\", \"::1\"]\nendpoints = [\"chat\"]\npolicy =",
        )
        .edited(
            "tallygate.toml",
            "[models.fast]",
            "[models.\"m-4.1\"]\nprice = { input = \"0.15\", output = 1, request = \"0.01\" }\nmax_output_tokens = 0x10\n[models.fast]",
        )
        .edited(
            "tallygate.toml",
            "[[keys]]",
            "[tenants.acme.budget]\nmonthly_tokens = 1_000\n[global.budget]\ntotal_cost_usd = 7\n[[keys]]",
        );
    let config = files.load().unwrap();
    let StoreUrl::Sqlite(store) = &config.store.url;
    assert_eq!(*store, files.0.path().join("var/tallygate.db"));
    let provider = &config.providers[0];
    assert_eq!(
        provider.url("chat/completions").as_deref(),
        Some("https://up.example/v1/chat/completions")
    );
    assert_eq!(provider.idle_timeout, Duration::from_millis(1500));
    assert_eq!(provider.forward_headers, ["x-trace"]);
    let patterns = vec![Pattern::Prefix("m-".into()), Pattern::Exact("n".into())];
    assert_eq!(provider.models.as_ref(), Some(&patterns));
    let routes = &config.aliases["fast"].routes;
    assert_eq!(
        (&*routes[1].provider.name, &*routes[1].model),
        ("up", "org/m-large")
    );
    let priced = &config.aliases["m-4.1"];
    let price = priced.price.unwrap();
    assert_eq!(price.input, Money::from_nanos(150_000_000));
    assert_eq!(
        (price.cached_input, priced.max_output_tokens),
        (None, Some(16))
    );
    let key = &config.keys[&[0x11; 32]];
    assert_eq!(key.expires, Some("2027-06-30T00:00:00Z".parse().unwrap()));
    let networks = ["10.0.0.0/8".parse().unwrap(), "::1/128".parse().unwrap()];
    assert_eq!(
        (&*key.allow_from, &*key.endpoints),
        (&networks[..], &[Endpoint::Chat][..])
    );
    assert_eq!(config.tenant_budgets["acme"].monthly.tokens, Some(1000));
    let global = config.global_budget.unwrap();
    assert_eq!(global.total.cost, Some(Money::from_nanos(7_000_000_000)));
}

#[test]
fn a_secret_is_found_and_never_shown() {
    let config = Files::good().load().unwrap();
    assert!(matches!(&config.providers[0].api_key, ApiKey::Found(key) if key.reveal() == SECRET));
    assert!(!format!("{config:?}").contains(SECRET));
    let from_file = "{ file = \"up.key\" }";
    let files = Files::good().edited("tallygate.toml", "{ env = \"PROVIDER_KEY\" }", from_file);
    files.write("up.key", format!("{SECRET}\r\n"));
    let config = files.load().unwrap();
    assert!(matches!(&config.providers[0].api_key, ApiKey::Found(key) if key.reveal() == SECRET));
    let unquoted = Files::good().edited("tallygate.toml", "{ env = \"PROVIDER_KEY\" }", SECRET);
    let mistakes = unquoted.mistakes().concat();
    assert!(
        mistakes.contains("must be quoted") && !mistakes.contains(SECRET),
        "{mistakes}"
    );
}

#[test]
fn a_secret_that_cannot_be_found_is_a_warning() {
    let until = "until then requests for it are answered 503";
    for (value, why) in [
        (None, "is not set"),
        (Some(" \n"), "is empty"),
        (
            Some("a\nb"),
            "holds characters that no key has, such as a line end",
        ),
    ] {
        let files = Files::good();
        let config = files.load_with(&|_| value.map(str::to_owned)).unwrap();
        let api_key = &config.providers[0].api_key;
        assert!(matches!(api_key, ApiKey::Missing(what) if what == "env PROVIDER_KEY"));
        let warning =
            format!("tallygate.toml:10:11: providers.up.api_key: env PROVIDER_KEY {why}; {until}");
        assert_eq!(files.shown(&config.warnings[0]), warning);
    }
    let nowhere = "{ file = \"nowhere.key\" }";
    let files = Files::good().edited("tallygate.toml", "{ env = \"PROVIDER_KEY\" }", nowhere);
    assert!(matches!(
        &files.load().unwrap().providers[0].api_key,
        ApiKey::Missing(_)
    ));
    assert!(
        files
            .warnings()
            .concat()
            .contains("nowhere.key cannot be read: No such file")
    );
}

#[test]
fn what_is_odd_but_no_mistake_is_a_warning() {
    let in_the_clear =
        Files::good().edited("tallygate.toml", "https://up.example", "http://up.example");
    assert_eq!(
        in_the_clear.warnings(),
        [
            "tallygate.toml:9:12: providers.up.base_url: http:// sends the key and every prompt in the clear"
        ]
    );
    let local = Files::good().edited("tallygate.toml", "https://up.example", "http://127.0.0.1:9");
    assert!(local.warnings().is_empty());
    let two = "[providers.two]\ndialect = \"openai\"\nbase_url = \"https://two.example/v1\"\n[models.fast]";
    let two = Files::good().edited("tallygate.toml", "[models.fast]", two);
    let [warning] = &two.warnings()[..] else {
        panic!("one warning")
    };
    assert!(warning.ends_with("up, two take any model; plain names go to up (see `models`)"));
}

#[test]
fn the_files_to_watch_are_named_also_when_something_is_wrong() {
    let reference = "{ file = \"nowhere.key\" }";
    let files = Files::good().edited("tallygate.toml", "{ env = \"PROVIDER_KEY\" }", reference);
    let names = [
        "tallygate.toml",
        "nowhere.key",
        "policies",
        "policies/basic.toml",
    ];
    let paths = names.map(|name| files.0.path().join(name));
    assert_eq!(files.load().unwrap().sources, paths);
    files.write("policies/basic.toml", "");
    assert_eq!(files.load().unwrap_err().sources, paths);
}

#[test]
fn only_visible_toml_files_of_the_directory_are_policies() {
    let files = Files::good();
    for name in [
        "policies/.basic.toml",
        "policies/basic.toml~",
        "policies/notes.txt",
    ] {
        files.write(name, "no policy");
    }
    assert_eq!(files.load().unwrap().policies.len(), 1);
}
