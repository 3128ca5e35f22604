//! Mistakes in models, keys and files, each as printed.

use super::check;

#[test]
fn a_wrong_model_is_refused() {
    check(&[
        (
            "up/m-small",
            "upp/m-small",
            &[
                r#"tallygate.toml:13:11: models.fast.routes[0]: no provider "upp"; did you mean "up"?"#,
            ],
        ),
        (
            "up/m-small",
            "m-small",
            &[
                r#"tallygate.toml:13:11: models.fast.routes[0]: "m-small" is no route; write "PROVIDER/MODEL""#,
            ],
        ),
        (
            "up/m-small",
            "up/",
            &[r#"tallygate.toml:13:11: models.fast.routes[0]: "" is no model name"#],
        ),
        (
            "up/m-small",
            "up/m-*",
            &[r#"tallygate.toml:13:11: models.fast.routes[0]: "m-*" is no model name"#],
        ),
        (
            r#"["up/m-small", "up/org/m-large"]"#,
            "[]",
            &["tallygate.toml:13:10: models.fast.routes: an empty list leads nowhere; remove it"],
        ),
        (
            r#"["up/m-small", "up/org/m-large"]"#,
            r#""up/m-small""#,
            &["tallygate.toml:13:10: models.fast.routes: must be a list"],
        ),
        (
            r#"routes = ["up/m-small", "up/org/m-large"]"#,
            "",
            &[
                "tallygate.toml:12:1: models.fast: says nothing; known: routes, price, max_output_tokens",
            ],
        ),
        (
            "[models.fast]",
            r#"[models."gpt-*"]"#,
            &[r#"tallygate.toml:12:1: models."gpt-*": "gpt-*" is no model name"#],
        ),
        (
            "[models.fast]",
            r#"[models."up/fast"]"#,
            &[
                r#"tallygate.toml:12:1: models."up/fast": "up" is a provider, whose name is taken off before a model is judged; write "fast""#,
            ],
        ),
        (
            "[models.fast]\n",
            "[models.fast]\nprice = { input = \"1\" }\nmax_output_tokens = \"9\"\n",
            &[
                "tallygate.toml:13:9: models.fast.price.output: missing",
                "tallygate.toml:14:21: models.fast.max_output_tokens: must be a whole number, not a string",
            ],
        ),
        (
            "[models.fast]\n",
            "[models.fast]\nprice = 3\n",
            &["tallygate.toml:13:9: models.fast.price: must be a table"],
        ),
    ]);
}

#[test]
fn a_wrong_key_or_shared_budget_is_refused() {
    check(&[
        (
            "name = \"one\"\n",
            "",
            &["tallygate.toml:15:1: keys[0].name: missing"],
        ),
        (
            r#"name = "one""#,
            r#"name = "one/two""#,
            &[
                r#"tallygate.toml:16:8: keys[0].name: "one/two" is no name; use 1 to 128 of the characters A-Z a-z 0-9 - _ . @ +"#,
            ],
        ),
        (
            "1111111111111111111111111111111111111111111111111111111111111111",
            "sk-never-to-be-seen",
            &[
                "tallygate.toml:18:10: keys[0].sha256: must be the SHA-256 of the key, 64 hexadecimal digits; `tallygate keys new` prints it",
            ],
        ),
        (
            "policy = \"basic\"\n",
            "",
            &["tallygate.toml:15:1: keys[0].policy: missing"],
        ),
        (
            r#"policy = "basic""#,
            r#"policy = "basik""#,
            &[
                r#"tallygate.toml:19:10: keys[0].policy: no policy "basik" in policies_dir; did you mean "basic"?"#,
            ],
        ),
        (
            r#"policy = "basic""#,
            r#"policy = "zzz""#,
            &[
                r#"tallygate.toml:19:10: keys[0].policy: no policy "zzz" in policies_dir; known: basic"#,
            ],
        ),
        (
            r#"policy = "basic""#,
            r#"policy = "basic@7""#,
            &[r#"tallygate.toml:19:10: keys[0].policy: policy "basic" has no version 7; known: 1"#],
        ),
        (
            r#"policy = "basic""#,
            r#"policy = "basic@new""#,
            &[
                r#"tallygate.toml:19:10: keys[0].policy: "basic@new" is no policy; write "ID" or "ID@VERSION""#,
            ],
        ),
        (
            r#"policy = "basic""#,
            "policy = \"basic\"\nexpires = \"2027-06-30\"",
            &[
                r#"tallygate.toml:20:11: keys[0].expires: "2027-06-30" is no instant with an offset such as "2027-06-30T00:00:00Z""#,
            ],
        ),
        (
            r#"policy = "basic""#,
            "policy = \"basic\"\nexpires = 2027-06-30T00:00:00",
            &[
                r#"tallygate.toml:20:11: keys[0].expires: "2027-06-30T00:00:00" is no instant with an offset such as "2027-06-30T00:00:00Z""#,
            ],
        ),
        (
            r#"policy = "basic""#,
            "policy = \"basic\"\ndisabled = \"no\"",
            &["tallygate.toml:20:12: keys[0].disabled: must be true or false, not a string"],
        ),
        (
            r#"policy = "basic""#,
            "policy = \"basic\"\nallow_from = [\"10.0.0.0/33\", \"home\"]",
            &[
                r#"tallygate.toml:20:15: keys[0].allow_from[0]: "10.0.0.0/33" is no network such as "10.0.0.0/8""#,
                r#"tallygate.toml:20:30: keys[0].allow_from[1]: "home" is no network such as "10.0.0.0/8""#,
            ],
        ),
        (
            r#"policy = "basic""#,
            "policy = \"basic\"\nallow_from = []",
            &[
                "tallygate.toml:20:14: keys[0].allow_from: an empty list would allow every address; remove it, or disable the key",
            ],
        ),
        (
            r#"policy = "basic""#,
            "policy = \"basic\"\nendpoints = [\"chats\"]",
            &[
                r#"tallygate.toml:20:14: keys[0].endpoints[0]: unknown "chats"; known: chat, responses, models"#,
            ],
        ),
        (
            r#"policy = "basic""#,
            "policy = \"basic\"\nendpoints = []",
            &[
                "tallygate.toml:20:13: keys[0].endpoints: an empty list would allow every endpoint; remove it, or disable the key",
            ],
        ),
        (
            "[[keys]]",
            "[[keys]]\nname = \"one\"\nsha256 = \"1111111111111111111111111111111111111111111111111111111111111111\"\npolicy = \"basic\"\n[[keys]]",
            &[
                "tallygate.toml:20:8: keys[1].name: the same name as keys[0]",
                "tallygate.toml:22:10: keys[1].sha256: the same key as keys[0]",
            ],
        ),
        (
            "[[keys]]",
            "[tenants.amce.budget]\ndaily_cost_usd = \"1\"\n[[keys]]",
            &[
                r#"tallygate.toml:15:10: tenants.amce: no key has the tenant "amce"; did you mean "acme"?"#,
            ],
        ),
        (
            "[[keys]]",
            "[global.budget]\ndaily_cost_usd = 1.5\n[[keys]]",
            &[
                r#"tallygate.toml:16:18: global.budget.daily_cost_usd: must stand in quotes to be exact: "1.5""#,
            ],
        ),
        (
            "[[keys]]",
            "[keys]",
            &["tallygate.toml:15:1: keys: must be written [[keys]]"],
        ),
    ]);
}

#[test]
fn a_wrong_path_or_broken_syntax_is_refused() {
    check(&[
        (
            "[server]",
            "price_table = \"nowhere.json\"\n[server]",
            &["tallygate.toml:1:15: price_table: no file at nowhere.json"],
        ),
        (
            "[server]",
            "policies_dir = \"nowhere\"\n[server]",
            &[
                "tallygate.toml:1:16: policies_dir: nowhere cannot be read: No such file or directory (os error 2)",
            ],
        ),
        (
            "[server]",
            "keys = 5\n[server]",
            &["tallygate.toml:16:3: duplicate key"],
        ),
        (
            "[server]",
            "[server]\nlisten = \"x\"",
            &["tallygate.toml:3:1: duplicate key"],
        ),
        (
            "[server]",
            "[server\nlist",
            &[
                "tallygate.toml:1:8: unclosed table, expected `]`",
                "tallygate.toml:2:5: key with no value, expected `=`",
            ],
        ),
        (
            "[server]",
            "providers.up.x = [\n[server]",
            &[
                "tallygate.toml:2:2: string values must be quoted, expected literal string",
                "tallygate.toml:3:1: missing comma between array elements, expected `,`",
                "tallygate.toml:3:1: string values must be quoted, expected literal string",
                "tallygate.toml:3:8: unexpected `=` in array, expected value, `]`",
                "tallygate.toml:3:10: missing comma between array elements, expected `,`",
            ],
        ),
    ]);
}
