//! What a policy file says, as a digest: its members and values, whatever their order and the
//! comments between them. Its status is left out, since that is what changes in its life.

use std::collections::BTreeMap;

use sha2::{Digest, Sha256};
use toml::{Table, Value};

/// SHA-256 in hexadecimal. `others` are the contents of the files that it names. `None`: no TOML.
pub(super) fn of_policy(text: &str, others: &[Vec<u8>]) -> Option<String> {
    let mut table: Table = toml::from_str(text).ok()?;
    table.remove("status");
    let mut digest = Sha256::new();
    digest.update(canonical(&Value::Table(table)));
    for other in others {
        digest.update(Sha256::digest(other));
    }
    Some(hex::encode(digest.finalize()))
}

fn canonical(value: &Value) -> String {
    match value {
        Value::Table(table) => {
            let sorted: BTreeMap<_, _> = table.iter().collect();
            let members = sorted
                .iter()
                .map(|(name, value)| format!("{name:?}={}", canonical(value)));
            format!("{{{}}}", members.collect::<Vec<_>>().join(","))
        }
        Value::Array(values) => {
            let values: Vec<String> = values.iter().map(canonical).collect();
            format!("[{}]", values.join(","))
        }
        Value::String(text) => format!("{text:?}"),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> String {
        of_policy(text, &[]).unwrap()
    }

    #[test]
    fn order_comments_and_status_are_not_what_a_policy_says() {
        let one = "id = \"a\"\nstatus = \"draft\"\n[limits]\nburst = 1\nparallel_requests = 2";
        let same = "# why\nstatus = \"published\"\nid = 'a'\nlimits = { parallel_requests = 2, burst = 1 }";
        assert_eq!(of(one), of(same));
    }

    #[test]
    fn every_value_counts_and_so_do_named_files() {
        let one = of("a = [1, 2]\nb = \"x\"");
        for other in [
            "a = [2, 1]\nb = \"x\"",
            "a = [1, 2]\nb = \"y\"",
            "a = [1, 2]\nb = \"x\"\nc = 1",
        ] {
            assert_ne!(one, of(other), "{other}");
        }
        assert_ne!(
            one,
            of_policy("a = [1, 2]\nb = \"x\"", &[b"{}".to_vec()]).unwrap()
        );
    }
}
