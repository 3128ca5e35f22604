//! Who is told of waiting calls.

use super::{Files, check};

const GOOD: &str = "[approvals.webhook]\nurl = \"https://hooks.example.com/x\"\nsecret = { env = \"PROVIDER_KEY\" }\n\n[store]";

#[test]
fn a_webhook_that_could_not_work_is_a_mistake() {
    check(&[
        (
            "[store]",
            "[approvals.webhook]\n\n[store]",
            &[
                "tallygate.toml:4:1: approvals.webhook.url: missing",
                "tallygate.toml:4:1: approvals.webhook.secret: missing; what is sent, and the links in it, are signed with it",
            ],
        ),
        (
            "[store]",
            &GOOD.replace("https://hooks.example.com/x", "ftp://x/y"),
            &[
                "tallygate.toml:5:7: approvals.webhook.url: must begin with https:// or http:// and a host",
            ],
        ),
        (
            "[store]",
            &GOOD.replace("{ env = \"PROVIDER_KEY\" }", "\"open\""),
            &[
                "tallygate.toml:6:10: approvals.webhook.secret: must be { env = \"NAME\" } or { file = \"PATH\" }; a secret never stands in this file",
            ],
        ),
    ]);
}

#[test]
fn a_missing_secret_and_links_to_this_machine_are_warned_of() {
    let files = Files::good().edited(
        "tallygate.toml",
        "[store]",
        &GOOD.replace("PROVIDER_KEY", "NOT_THERE"),
    );
    assert_eq!(
        files.warnings(),
        [
            "tallygate.toml:4:1: approvals.webhook: its links lead to this machine alone; see console_url in [server]",
            "tallygate.toml:6:10: approvals.webhook.secret: env NOT_THERE is not set; until then nobody is told of calls that wait",
        ]
    );
}
