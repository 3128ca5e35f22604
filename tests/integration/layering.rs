//! Which module may know which: a row that is read from left to right, held by reading the
//! `crate::` paths of the source. `src/lib.rs` only names the modules and is not asked.

use std::{collections::BTreeSet, fs, path::Path};

/// Each may use what stands before it. Neighbours in one step do not know each other.
const ROW: &[&[&str]] = &[
    &["clock", "telemetry"],
    &["engine"],
    &["provider"],
    &["config", "store", "metrics"],
    &["books", "approval", "failures", "traces", "webhook"],
    &["proxy", "admin"],
    &["server"],
    &["app"],
    &["cli"],
    &["main"],
];

/// The same within the decision core.
const ENGINE_ROW: &[&[&str]] = &[
    &["failover", "json", "money", "names", "sse"],
    &["pricing", "run"],
    &["contract"],
    &["policy"],
    &["budget", "call"],
    &["tokens", "chain"],
    &["record", "chat"],
    &["guard"],
    &["responses"],
    &["replay"],
];

/// The decision core reads no clock and writes no log: what it needs is handed to it.
const PURE: &str = "engine";

#[test]
fn modules_know_only_what_stands_before_them() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut read = 0;
    let mut wrong = Vec::new();
    for file in rust_files(&source) {
        let relative = file.strip_prefix(&source).unwrap();
        let module = module_of(relative);
        if module == "lib" {
            continue;
        }
        read += 1;
        let text = fs::read_to_string(&file).unwrap();
        let found = violations(&module, &text);
        wrong.extend(
            found
                .iter()
                .map(|found| format!("src/{}: {found}", relative.display())),
        );
    }
    assert!(read > 3, "only {read} files were read");
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn parts_of_the_core_know_only_what_stands_before_them() {
    let core = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/engine");
    let is_known = |name: &str| step_in(ENGINE_ROW, name).is_some();
    let mut wrong = Vec::new();
    for file in rust_files(&core) {
        let relative = file.strip_prefix(&core).unwrap();
        let (part, path) = (module_of(relative), relative.display().to_string());
        if part == "mod" || path.contains("tests") {
            continue;
        }
        assert!(is_known(&part), "{part} is not in the row of the core");
        let text = fs::read_to_string(&file).unwrap();
        let product = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
        let own = step_in(ENGINE_ROW, &part);
        let used = parts_used(product, relative);
        let not_before = |used: &String| *used != part && step_in(ENGINE_ROW, used) >= own;
        let found = used
            .into_iter()
            .filter(|used| is_known(used) && not_before(used));
        wrong.extend(found.map(|used| format!("src/engine/{path}: may not use `{used}`")));
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn a_wrong_use_within_the_core_is_found() {
    let used = |text, path| parts_used(text, Path::new(path)).contains("chain");
    assert!(used(
        "use super::{json::Json, chain::Call};",
        "policy/mod.rs"
    ));
    assert!(used("use super::super::chain::Call;", "policy/tools.rs"));
    assert!(used(
        "use crate::engine::{money, chain::Call};",
        "policy/tools.rs"
    ));
    assert!(!used("use super::chain::Call;", "policy/tools.rs"));
}

/// Parts of the core that a file of it names, by the crate's path or relative to its own.
fn parts_used(text: &str, relative: &Path) -> BTreeSet<String> {
    let own = relative.components().count();
    let depth = own - usize::from(relative.ends_with("mod.rs"));
    names_after(text, &["crate::engine::", &"super::".repeat(depth)])
}

#[test]
fn a_wrong_use_is_found() {
    let found = |module, text| violations(module, text).len();
    assert_eq!(found("engine", "use crate::store::Store;"), 1);
    assert_eq!(found("engine", "use crate::clock::Clock;"), 1);
    assert_eq!(
        found(
            "config",
            "use crate::{\n    engine::policy::Key,\n    store,\n};"
        ),
        1
    );
    assert_eq!(found("store", "fn f(config: &crate::config::Config) {}"), 1);
    assert_eq!(
        found(
            "admin",
            "pub use crate::proxy::{self, auth::{Caller, Permit}};"
        ),
        1
    );
    assert_eq!(found("clock", "use crate::engine::money::Money;"), 1);
    assert_eq!(found("main", "use tallygate::unheard_of;"), 1);
    assert_eq!(found("unheard_of", ""), 1);
}

#[test]
fn a_right_use_is_left_alone() {
    assert_eq!(
        violations(
            "proxy",
            "use crate::{books, clock::Clock, engine::{a, b::{c}}};"
        ),
        [""; 0]
    );
    assert_eq!(
        violations("engine", "use crate::engine::money::Money;"),
        [""; 0]
    );
    assert_eq!(
        violations("engine", "//! Nothing of `crate::store` belongs here."),
        [""; 0]
    );
    assert_eq!(
        violations("main", "use tallygate::{app::App, cli};"),
        [""; 0]
    );
}

/// What `text`, a file of `module`, uses and may not.
fn violations(module: &str, text: &str) -> Vec<String> {
    let Some(own_step) = step(module) else {
        return vec![format!(
            "module `{module}` is not in the row of tests/integration/layering.rs"
        )];
    };
    let allowed = |used: &str| {
        let is_ambient = step(used) == Some(0);
        used == module
            || step(used).is_some_and(|step| step < own_step) && !(module == PURE && is_ambient)
    };
    used_modules(text)
        .into_iter()
        .filter(|used| !allowed(used))
        .map(|used| format!("`{module}` may not use `{used}`"))
        .collect()
}

fn step(module: &str) -> Option<usize> {
    step_in(ROW, module)
}

fn step_in(row: &[&[&str]], module: &str) -> Option<usize> {
    row.iter().position(|modules| modules.contains(&module))
}

/// The first name of every path that begins at the crate, in `use` lines and in the code.
fn used_modules(text: &str) -> BTreeSet<String> {
    names_after(text, &["crate::", "tallygate::"])
}

fn names_after(text: &str, roots: &[&str]) -> BTreeSet<String> {
    let code = text
        .lines()
        .map(|line| line.split("//").next().unwrap_or_default())
        .collect::<Vec<_>>()
        .join("\n");
    roots
        .iter()
        .flat_map(|root| {
            code.match_indices(*root)
                .map(|(at, root)| &code[at + root.len()..])
        })
        .flat_map(first_names)
        .collect()
}

/// Of `a::b` it is `a`; of `{a::{b, c}, d}` it is `a` and `d`.
fn first_names(path: &str) -> Vec<String> {
    let Some(group) = path.strip_prefix('{') else {
        return vec![identifier(path)];
    };
    let (mut depth, mut names, mut at_start) = (0, Vec::new(), true);
    for (at, letter) in group.char_indices() {
        match letter {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => at_start = true,
            letter if at_start && !letter.is_whitespace() => {
                names.push(identifier(&group[at..]));
                at_start = false;
            }
            _ => {}
        }
    }
    names
}

fn identifier(text: &str) -> String {
    text.chars()
        .take_while(|letter| letter.is_alphanumeric() || *letter == '_')
        .collect()
}

fn module_of(relative: &Path) -> String {
    let first = relative
        .components()
        .next()
        .unwrap()
        .as_os_str()
        .to_str()
        .unwrap();
    first.trim_end_matches(".rs").to_owned()
}

fn rust_files(directory: &Path) -> Vec<std::path::PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(rust_files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files.sort();
    files
}
