//! Mistakes in the settings of the process and the providers, each as printed.

use super::check;

#[test]
fn what_nothing_reads_is_refused_with_the_nearest_name() {
    check(&[
        (
            "listen = ",
            "lissten = ",
            &[r#"tallygate.toml:2:1: server.lissten: unknown member; did you mean "listen"?"#],
        ),
        (
            "[server]",
            "[sever]",
            &[r#"tallygate.toml:1:2: sever: unknown member; did you mean "server"?"#],
        ),
        (
            "[server]",
            "[totally_else]\nx = 1\n[server]",
            &[
                "tallygate.toml:1:2: totally_else: unknown member; known: server, store, ledger, approvals, telemetry, providers, models, tools, policies_dir, keys, operators, tenants, global, price_table",
            ],
        ),
        (
            "policy =",
            "polcy =",
            &[
                "tallygate.toml:15:1: keys[0].policy: missing",
                r#"tallygate.toml:19:1: keys[0].polcy: unknown member; did you mean "policy"?"#,
            ],
        ),
        (
            "[server]",
            "[operators]\n[[approvals]]\n[server]",
            &[
                "tallygate.toml:1:1: operators: must be written [[operators]]",
                "tallygate.toml:2:1: approvals: must be a table",
            ],
        ),
        (
            r#"{ env = "PROVIDER_KEY" }"#,
            r#"{ enf = "A" }"#,
            &[
                r#"tallygate.toml:10:11: providers.up.api_key: must be { env = "NAME" } or { file = "PATH" }; a secret never stands in this file"#,
                r#"tallygate.toml:10:13: providers.up.api_key.enf: unknown member; did you mean "env"?"#,
            ],
        ),
        (
            "[models.fast]",
            "[providers.box]\ndialect = \"sandbox\"\nbase_url = \"http://x\"\n[models.fast]",
            &[
                "tallygate.toml:14:1: providers.box.base_url: unknown member; known: dialect, models",
            ],
        ),
        (
            "[models.fast]\n",
            "[models.fast]\nprice = { input = 0.15, output = \"x\", outputs = 1 }\n",
            &[
                r#"tallygate.toml:13:19: models.fast.price.input: must stand in quotes to be exact: "0.15""#,
                r#"tallygate.toml:13:34: models.fast.price.output: "x" is no amount in dollars; write "25.00", with at most 9 decimals"#,
                r#"tallygate.toml:13:39: models.fast.price.outputs: unknown member; did you mean "output"?"#,
            ],
        ),
        (
            "[[keys]]",
            "[tenants.acme.budget]\nmax_output_tokens = 5\n[[keys]]",
            &[
                r#"tallygate.toml:16:1: tenants.acme.budget.max_output_tokens: unknown member; did you mean "total_tokens"?"#,
            ],
        ),
        (
            "[[keys]]",
            "[tenants.acme]\nbudgets = 5\n[[keys]]",
            &[
                r#"tallygate.toml:16:1: tenants.acme.budgets: unknown member; did you mean "budget"?"#,
            ],
        ),
    ]);
}

#[test]
fn a_wrong_server_store_or_ledger_is_refused() {
    check(&[
        (
            r#""127.0.0.1:8080""#,
            r#""localhost:8080""#,
            &[
                r#"tallygate.toml:2:10: server.listen: "localhost:8080" is no address and port such as "127.0.0.1:8080""#,
            ],
        ),
        (
            r#""127.0.0.1:8080""#,
            "8080",
            &[
                r#"tallygate.toml:2:10: server.listen: must be a string such as "127.0.0.1:8080", not a whole number"#,
            ],
        ),
        (
            r#""127.0.0.1:8080""#,
            r#""127.0.0.1:8081""#,
            &[
                "tallygate.toml:1:1: server.admin_listen: the same address as listen; clients and operators need one each",
            ],
        ),
        (
            "[store]",
            "max_request_body = \"10MB\"\n[store]",
            &[
                r#"tallygate.toml:4:20: server.max_request_body: "10MB" is no size; write "512KiB", "10MiB" or "1GiB""#,
            ],
        ),
        (
            "[store]",
            "max_request_body = \"0B\"\n[store]",
            &[
                r#"tallygate.toml:4:20: server.max_request_body: "0B" is no size; write "512KiB", "10MiB" or "1GiB""#,
            ],
        ),
        (
            "[store]",
            "max_request_body = 1000\n[store]",
            &[
                r#"tallygate.toml:4:20: server.max_request_body: must be a string such as "10MiB", not a whole number"#,
            ],
        ),
        (
            "[store]",
            "drain_timeout = \"1d\"\n[store]",
            &[
                r#"tallygate.toml:4:17: server.drain_timeout: "1d" is no duration; write "500ms", "30s", "5m" or "24h""#,
            ],
        ),
        (
            "[store]",
            "drain_timeout = \"99999999999999999999h\"\n[store]",
            &[
                r#"tallygate.toml:4:17: server.drain_timeout: "99999999999999999999h" is no duration; write "500ms", "30s", "5m" or "24h""#,
            ],
        ),
        (
            "[store]",
            "workers = 0\n[store]",
            &["tallygate.toml:4:11: server.workers: must be at least 1"],
        ),
        (
            "[store]",
            "workers = 9999\n[store]",
            &["tallygate.toml:4:11: server.workers: must be at most 1024"],
        ),
        (
            "[store]",
            "cors_origins = [\"https://a.example/\", \"*\", 5]\n[store]",
            &[
                r#"tallygate.toml:4:17: server.cors_origins[0]: is no origin such as "https://app.example.com", without a path"#,
                "tallygate.toml:4:44: server.cors_origins[2]: must be a string, not a whole number",
            ],
        ),
        (
            r#"url = "sqlite:var/tallygate.db""#,
            "",
            &["tallygate.toml:4:1: store.url: missing"],
        ),
        (
            "sqlite:var/tallygate.db",
            "postgres://u:sk-never-to-be-seen@h/db",
            &[
                r#"tallygate.toml:5:7: store.url: PostgreSQL is not in this version; write "sqlite:PATH""#,
            ],
        ),
        (
            "sqlite:var/tallygate.db",
            "var/tallygate.db",
            &[
                r#"tallygate.toml:5:7: store.url: must be "sqlite:PATH", such as "sqlite:../var/tallygate.db""#,
            ],
        ),
        (
            "[store]\n",
            "[store]\non_down = \"ignore\"\n",
            &[r#"tallygate.toml:5:11: store.on_down: unknown "ignore"; known: refuse, local"#],
        ),
        (
            "[store]\n",
            "[ledger]\ndurability = true\n[store]\n",
            &[
                "tallygate.toml:5:14: ledger.durability: must be a string, one of batched, before_release; not true or false",
            ],
        ),
    ]);
}

#[test]
fn a_wrong_provider_is_refused() {
    check(&[
        (
            r#"dialect = "openai""#,
            r#"dialect = "openapi""#,
            &[
                r#"tallygate.toml:8:11: providers.up.dialect: unknown "openapi"; known: openai, sandbox"#,
            ],
        ),
        (
            "dialect = \"openai\"\n",
            "",
            &["tallygate.toml:7:1: providers.up.dialect: missing"],
        ),
        (
            r#"{ env = "PROVIDER_KEY" }"#,
            r#""sk-never-to-be-seen""#,
            &[
                r#"tallygate.toml:10:11: providers.up.api_key: must be { env = "NAME" } or { file = "PATH" }; a secret never stands in this file"#,
            ],
        ),
        (
            r#"{ env = "PROVIDER_KEY" }"#,
            r#"{ env = "sk-never-to-be-seen" }"#,
            &[
                "tallygate.toml:10:11: providers.up.api_key: env must name an environment variable in capitals, such as OPENAI_API_KEY",
            ],
        ),
        (
            r#"{ env = "PROVIDER_KEY" }"#,
            r#"{ env = "A", file = "b" }"#,
            &[
                r#"tallygate.toml:10:11: providers.up.api_key: must be { env = "NAME" } or { file = "PATH" }; a secret never stands in this file"#,
            ],
        ),
        (
            "https://up.example/v1/",
            "https://u:sk-never-to-be-seen@up.example/v1",
            &[
                "tallygate.toml:9:12: providers.up.base_url: holds a user or a password; a credential belongs in api_key",
            ],
        ),
        (
            "https://up.example/v1/",
            "https://up.example/v1?key=sk-never-to-be-seen",
            &[
                "tallygate.toml:9:12: providers.up.base_url: must end with its path, without ? and #",
            ],
        ),
        (
            "https://up.example/v1/",
            "https://up.example/v1/chat/completions/",
            &[
                "tallygate.toml:9:12: providers.up.base_url: must end before /chat/completions, which is added to it",
            ],
        ),
        (
            "https://up.example/v1/",
            "up.example/v1",
            &[
                r#"tallygate.toml:9:12: providers.up.base_url: is no URL such as "https://api.openai.com/v1": relative URL without a base"#,
            ],
        ),
        (
            "https://up.example/v1/",
            "ftp://up.example/v1",
            &[
                "tallygate.toml:9:12: providers.up.base_url: must begin with https:// or http:// and a host",
            ],
        ),
        (
            "https://up.example/v1/",
            "https://sk-never-to-be-seen@/",
            &[
                r#"tallygate.toml:9:12: providers.up.base_url: is no URL such as "https://api.openai.com/v1": empty host"#,
            ],
        ),
        (
            "base_url = \"https://up.example/v1/\"\n",
            "",
            &["tallygate.toml:7:1: providers.up.base_url: missing"],
        ),
        (
            "base_url",
            "connect_timeout = \"0s\"\nbase_url",
            &["tallygate.toml:9:19: providers.up.connect_timeout: must be longer than 0"],
        ),
        (
            "base_url",
            "forward_headers = [\"X-Ok\", \"Authorization\", \"a b\"]\nbase_url",
            &[
                "tallygate.toml:9:28: providers.up.forward_headers[1]: authorization is never forwarded: it holds a credential or concerns one connection only",
                r#"tallygate.toml:9:45: providers.up.forward_headers[2]: "a b" is no header name"#,
            ],
        ),
        (
            "base_url",
            "stream_usage = \"yes\"\nbase_url",
            &[
                "tallygate.toml:9:16: providers.up.stream_usage: must be true or false, not a string",
            ],
        ),
        (
            "base_url",
            "cap_member = \"max_output_tokens\"\nbase_url",
            &[
                r#"tallygate.toml:9:14: providers.up.cap_member: unknown "max_output_tokens"; known: as_client, max_tokens, max_completion_tokens"#,
            ],
        ),
        (
            "base_url",
            "http = 2\nbase_url",
            &[
                "tallygate.toml:9:8: providers.up.http: must be a string, one of auto, 1, 2; not a whole number",
            ],
        ),
        (
            "base_url",
            "models = [\"\", \"a*b\", \" a\"]\nbase_url",
            &[
                r#"tallygate.toml:9:11: providers.up.models[0]: "" is neither a name nor a prefix; write "gpt-4o" or "gpt-4o-*""#,
                r#"tallygate.toml:9:15: providers.up.models[1]: "a*b" is neither a name nor a prefix; write "gpt-4o" or "gpt-4o-*""#,
                r#"tallygate.toml:9:22: providers.up.models[2]: " a" is neither a name nor a prefix; write "gpt-4o" or "gpt-4o-*""#,
            ],
        ),
        (
            "[providers.up]",
            r#"[providers."up/x"]"#,
            &[
                r#"tallygate.toml:7:1: providers."up/x": "up/x" is no name; use 1 to 128 of the characters A-Z a-z 0-9 - _ . @ +"#,
                r#"tallygate.toml:13:11: models.fast.routes[0]: no provider "up"; did you mean "up/x"?"#,
                r#"tallygate.toml:13:25: models.fast.routes[1]: no provider "up"; did you mean "up/x"?"#,
            ],
        ),
    ]);
}
