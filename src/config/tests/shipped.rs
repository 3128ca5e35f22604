//! The files that ship with the product.

use std::path::Path;

use sha2::{Digest, Sha256};

use crate::{
    config::{ApiKey, Config},
    engine::policy::Binding,
};

#[test]
fn the_shipped_files_are_in_order_and_miss_nothing_but_the_provider_key() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/tallygate.toml");
    let config = Config::load_with(&file, &|_| None).unwrap_or_else(|error| panic!("{error}"));
    let [warning] = &config.warnings[..] else {
        panic!("{:?}", config.warnings)
    };
    assert!(warning.message.starts_with("env OPENAI_API_KEY is not set"));
    assert!(matches!(config.providers[0].api_key, ApiKey::Missing(_)));
    let demo: [u8; 32] = Sha256::digest("tg-demo-key").into();
    let Binding::To(policy) = &config.keys[&demo].policy else {
        panic!("no policy")
    };
    for model in ["sandbox-echo", "sandbox-agent", "gpt-4o-mini", "fast"] {
        let allow = policy.models.allow.as_ref().unwrap();
        assert!(
            allow.iter().any(|pattern| pattern.matches(model)),
            "{model}"
        );
    }
    for model in ["sandbox-echo", "sandbox-agent"] {
        assert!(config.aliases[model].price.is_some(), "{model}");
    }
}

#[test]
fn the_demo_key_is_warned_about_where_others_can_reach_it() {
    let directory = tempfile::TempDir::new().unwrap();
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("config");
    let text = std::fs::read_to_string(shipped.join("tallygate.toml")).unwrap();
    let text = text
        .replace("listen = \"127.0.0.1:8080\"", "listen = \"0.0.0.0:8080\"")
        .replace("\"policies\"", &format!("{:?}", shipped.join("policies")))
        .replace(
            "\"schemas/",
            &format!("\"{}/", shipped.join("schemas").display()),
        );
    let file = directory.path().join("tallygate.toml");
    std::fs::write(&file, text).unwrap();
    let config = Config::load_with(&file, &|_| Some("key".to_owned())).unwrap();
    let [warning] = &config.warnings[..] else {
        panic!("{:?}", config.warnings)
    };
    assert!(warning.message.contains("the published demo key"));
}
