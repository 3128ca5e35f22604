//! `[[operators]]`: mistakes as printed, and what a good table becomes.

use super::{Files, MAIN};
use crate::config::Role;

const DANA: &str = r#"
[[operators]]
name = "dana"
role = "approver"
sha256 = "2222222222222222222222222222222222222222222222222222222222222222"
"#;

fn mistakes(tables: &str) -> Vec<String> {
    let files = Files::good();
    files.write("tallygate.toml", format!("{MAIN}{tables}"));
    files.mistakes()
}

#[test]
fn operators_are_found_by_the_digests_of_their_tokens() {
    let files = Files::good();
    assert!(files.load().unwrap().operators.is_empty());
    files.write("tallygate.toml", format!("{MAIN}{DANA}"));
    let config = files.load().unwrap();
    let dana = &config.operators[&[0x22; 32]];
    assert_eq!((&*dana.name, dana.role), ("dana", Role::Approver));
    assert!(Role::Viewer < Role::Approver && Role::Approver < Role::Operator);
}

#[test]
fn a_wrong_operator_is_refused() {
    let cases: &[(&str, &str, &str)] = &[
        (
            "\"approver\"",
            "\"aprover\"",
            r#"tallygate.toml:23:8: operators[0].role: unknown "aprover"; known: viewer, approver, operator"#,
        ),
        (
            "role = \"approver\"\n",
            "",
            "tallygate.toml:21:1: operators[0].role: missing",
        ),
        (
            "2222222222222222222222222222222222222222222222222222222222222222",
            "tgo-a-token-put-here-by-mistake",
            "tallygate.toml:24:10: operators[0].sha256: must be the SHA-256 of the token, 64 hexadecimal digits; `tallygate keys new --operator` prints it",
        ),
        (
            "2222222222222222222222222222222222222222222222222222222222222222",
            "1111111111111111111111111111111111111111111111111111111111111111",
            "tallygate.toml:24:10: operators[0].sha256: is a client key too; an operator needs a token of their own",
        ),
        (
            "role",
            "rolle",
            r#"tallygate.toml:23:1: operators[0].rolle: unknown member; did you mean "role"?"#,
        ),
    ];
    for (old, new, wanted) in cases {
        assert!(DANA.contains(old));
        let found = mistakes(&DANA.replace(old, new));
        assert!(found.contains(&(*wanted).to_owned()), "{new}: {found:#?}");
    }
}

#[test]
fn two_operators_are_two_people_with_two_tokens() {
    assert_eq!(
        mistakes(&DANA.repeat(2)),
        [
            "tallygate.toml:27:8: operators[1].name: another operator has this name",
            "tallygate.toml:29:10: operators[1].sha256: another operator has this token",
        ]
    );
}
