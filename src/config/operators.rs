//! `[[operators]]`: who may look into the console, and who may decide there.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use super::{
    Operator, Role,
    keys::Keys,
    reader::{Place, Table},
    values::{name, one_of, operator_digest},
};

/// An operator as read, with the places at which a comparison with others can complain.
struct Entry<'a> {
    name: Option<&'a str>,
    sha256: Option<[u8; 32]>,
    role: Option<Role>,
    at: [Place<'a>; 2],
}

pub(super) fn operators(root: &mut Table<'_>, keys: &Keys) -> HashMap<[u8; 32], Arc<Operator>> {
    let entries = root.tables("operators", entry).unwrap_or_default();
    let mut names = BTreeSet::new();
    let mut all = HashMap::new();
    for entry in entries {
        let [at_name, at_digest] = entry.at;
        if entry.name.is_some_and(|name| !names.insert(name)) {
            at_name.mistake("another operator has this name");
        }
        let Some(sha256) = entry.sha256 else { continue };
        if keys.all.contains_key(&sha256) {
            // Who asks must never be who decides.
            at_digest.mistake("is a client key too; an operator needs a token of their own");
        }
        let operator = entry.name.zip(entry.role).map(|(name, role)| Operator {
            name: name.into(),
            role,
        });
        if let Some(operator) = operator
            && all.insert(sha256, Arc::new(operator)).is_some()
        {
            at_digest.mistake("another operator has this token");
        }
    }
    all
}

fn entry<'a>(table: &mut Table<'a>) -> Entry<'a> {
    Entry {
        name: table.required("name", name),
        role: table.required("role", one_of(Role::NAMES)),
        sha256: table.required("sha256", operator_digest),
        at: [table.place_of("name"), table.place_of("sha256")],
    }
}
