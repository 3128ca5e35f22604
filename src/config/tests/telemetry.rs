//! Who is told of traces.

use super::{Files, check};

fn with(members: &str) -> String {
    format!("[telemetry]\n{members}\n\n[store]")
}

#[test]
fn a_collector_that_could_not_be_told_is_a_mistake() {
    let at = |url: &str| with(&format!("otlp_endpoint = \"{url}\""));
    check(&[
        (
            "[store]",
            &with(""),
            &["tallygate.toml:4:1: telemetry.otlp_endpoint: missing"],
        ),
        (
            "[store]",
            &at("collector:4318"),
            &[
                "tallygate.toml:5:17: telemetry.otlp_endpoint: must begin with https:// or http:// and a host",
            ],
        ),
        (
            "[store]",
            &at("http://127.0.0.1:4318/v1/traces"),
            &[
                "tallygate.toml:5:17: telemetry.otlp_endpoint: must end before /v1/traces, which is added to it",
            ],
        ),
        (
            "[store]",
            &at("https://user:secret@collector.example.com"),
            &[
                "tallygate.toml:5:17: telemetry.otlp_endpoint: holds a user or a password; credentials belong in headers",
            ],
        ),
        (
            "[store]",
            &with(
                "otlp_endpoint = \"http://127.0.0.1:4318\"\nsample_percent = 101\n\
                 headers = { authorization = \"Bearer x\", \"a b\" = { env = \"PROVIDER_KEY\" } }",
            ),
            &[
                "tallygate.toml:6:18: telemetry.sample_percent: must be at most 100",
                "tallygate.toml:7:29: telemetry.headers.authorization: must be { env = \"NAME\" } or { file = \"PATH\" }; a secret never stands in this file",
                "tallygate.toml:7:49: telemetry.headers.\"a b\": \"a b\" is no header name",
            ],
        ),
    ]);
}

#[test]
fn a_header_that_is_not_there_and_one_in_the_clear_are_warned_of() {
    let members = "otlp_endpoint = \"http://collector.example.com/otlp/\"\n\
                   headers = { authorization = { env = \"NOT_THERE\" } }";
    let files = Files::good().edited("tallygate.toml", "[store]", &with(members));
    assert_eq!(
        files.warnings(),
        [
            "tallygate.toml:6:11: telemetry.headers: http:// sends them in the clear",
            "tallygate.toml:6:29: telemetry.headers.authorization: env NOT_THERE is not set; until then no traces are sent",
        ]
    );
    assert!(files.load().unwrap().telemetry.is_none());
}

#[test]
fn the_path_of_traces_is_added_to_the_collectors() {
    for (written, posted) in [
        ("http://127.0.0.1:4318", "http://127.0.0.1:4318/v1/traces"),
        (
            "https://c.example.com/otlp/",
            "https://c.example.com/otlp/v1/traces",
        ),
    ] {
        let members = format!("otlp_endpoint = \"{written}\"");
        let files = Files::good().edited("tallygate.toml", "[store]", &with(&members));
        let config = files.load().unwrap();
        let telemetry = config.telemetry.as_ref().unwrap();
        assert_eq!(telemetry.endpoint.as_str(), posted);
        assert_eq!(telemetry.sample_percent, 100);
    }
}
