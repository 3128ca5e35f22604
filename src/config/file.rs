//! The main file, section by section, and the policies it names.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{
    Config, ConfigError, keys,
    loading::{Document, Loading},
    models::models,
    operators,
    policies::Policies,
    providers::providers,
    reader::Table,
    server, telemetry, tools,
    values::text,
};

pub(super) fn load(
    file: &Path,
    environment: &dyn Fn(&str) -> Option<String>,
) -> Result<Config, ConfigError> {
    let loading = Loading::new(environment);
    let config = Document::open(&loading, file)
        .and_then(|document| document.read(main))
        .flatten();
    loading.finish(config)
}

/// `None` is a mistake that has been told.
fn main(root: &mut Table<'_>) -> Option<Config> {
    let document = root.place().document();
    let server = root.section("server", server::server);
    let store = root.section("store", server::store);
    let durability = root.section("ledger", server::durability);
    let approvals = root.section("approvals", |table| {
        server::approvals(table, server.as_ref())
    });
    let telemetry = root.table("telemetry", telemetry::telemetry).flatten();
    let providers = providers(root);
    let aliases = models(root, &providers);
    let contracts = tools::contracts(root);
    let directory = root.or("policies_dir", "policies", text);
    let policies = Policies::read(
        &root.place_of("policies_dir"),
        directory,
        &providers,
        &contracts,
    );
    let listen = server.as_ref().map(|server| server.listen);
    let keys = keys::keys(root, &policies, listen);
    let operators = operators::operators(root, &keys);
    let tenant_budgets = keys::tenant_budgets(root, &keys);
    let global_budget = keys::global_budget(root);
    let price_table = price_table(root);
    let (approvals, webhook) = approvals?;
    Some(Config {
        file: document.path.clone(),
        server: server?,
        store: store??,
        durability: durability?,
        approvals,
        webhook,
        telemetry,
        providers: providers.all,
        aliases,
        keys: keys.all,
        operators,
        policies: policies.all,
        policy_files: policies.files,
        contracts: Arc::new(contracts),
        tenant_budgets,
        global_budget,
        price_table,
        warnings: Vec::new(),
        sources: Vec::new(),
    })
}

fn price_table(root: &mut Table<'_>) -> Option<PathBuf> {
    let document = root.place().document();
    root.optional("price_table", |value| {
        let path = document.beside(Path::new(text(value)?));
        document.loading.source(&path);
        if path.is_file() {
            Ok(path)
        } else {
            Err(format!("no file at {}", path.display()))
        }
    })
}
