//! `tallygate check`: every mistake at once, or what would be in force.

use std::{path::Path, process::ExitCode};

use serde_json::json;

use super::{
    print,
    serve::{providers, webhook},
};
use crate::{
    config::{Config, Problem},
    engine::policy::Binding,
};

pub fn check(file: &Path, as_json: bool) -> anyhow::Result<ExitCode> {
    let (config, problems) = match Config::load(file) {
        Ok(config) => (Some(config), Vec::new()),
        Err(error) => (None, error.problems),
    };
    if as_json {
        let warnings = config.iter().flat_map(|config| &config.warnings);
        print(&serde_json::to_string_pretty(&json!({
            "ok": problems.is_empty(),
            "problems": problems.iter().map(told).collect::<Vec<_>>(),
            "warnings": warnings.map(told).collect::<Vec<_>>(),
        }))?);
    } else if let Some(config) = &config {
        summary(config);
    } else {
        problems
            .iter()
            .for_each(|problem| print(&problem.to_string()));
        let many = problems.len();
        print(&format!(
            "{many} mistake{}; nothing was changed",
            if many == 1 { "" } else { "s" }
        ));
    }
    Ok(if problems.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn told(problem: &Problem) -> serde_json::Value {
    json!({
        "file": problem.file,
        "line": problem.position.map(|(line, _)| line),
        "column": problem.position.map(|(_, column)| column),
        "path": problem.path,
        "message": problem.message,
    })
}

fn summary(config: &Config) {
    print(&format!("{}: no mistakes", config.file.display()));
    print(&format!(
        "  listen     {} (operators: {})",
        config.server.listen, config.server.admin_listen
    ));
    providers(config).iter().for_each(|line| print(line));
    webhook(config).iter().for_each(|line| print(line));
    let mut keys: Vec<_> = config.keys.values().collect();
    keys.sort_by(|a, b| a.name.cmp(&b.name));
    for key in keys {
        let policy = match &key.policy {
            Binding::To(policy) => policy.label.to_string(),
            Binding::Unusable(reason) => format!("cannot be used: {reason}"),
        };
        let disabled = if key.disabled { " (disabled)" } else { "" };
        print(&format!(
            "  key        {} of {}: {policy}{disabled}",
            key.name, key.tenant
        ));
    }
    let mut operators: Vec<_> = config.operators.values().collect();
    operators.sort_by(|a, b| a.name.cmp(&b.name));
    for operator in operators {
        let role = operator.role.name();
        print(&format!("  operator   {} ({role})", operator.name));
    }
    config
        .warnings
        .iter()
        .for_each(|warning| print(&format!("  warning    {warning}")));
}
