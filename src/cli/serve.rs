//! `tallygate serve`: start, say where and with what, serve until told to stop.

use std::{path::Path, process::ExitCode};

use tokio::signal::unix::{SignalKind, signal};

use super::{block_on, print};
use crate::{
    app::App,
    clock::Clock,
    config::{ApiKey, Config, Dialect},
    provider::openai,
    telemetry,
};

/// The key in the shipped configuration, told at start so that a newcomer can paste a line.
const DEMO_KEY: &str = "tg-demo-key";

pub fn serve(file: &Path) -> anyhow::Result<ExitCode> {
    telemetry::start(std::env::var("RUST_LOG").ok().as_deref());
    block_on(async {
        let mut term = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut hangup = signal(SignalKind::hangup())?;
        // Only now can anybody know that we are there, and stop us.
        let app = App::start(file, Clock::system()).await?;
        greet(&app);
        loop {
            tokio::select! {
                _ = term.recv() => break,
                _ = interrupt.recv() => break,
                _ = hangup.recv() => app.reload(),
            }
        }
        tracing::info!("stopping: open requests may finish");
        app.shutdown().await;
        Ok(ExitCode::SUCCESS)
    })
}

fn greet(app: &App) {
    let live = app.live();
    let config = &live.config;
    print(&format!(
        "Tallygate {} serves {}",
        env!("CARGO_PKG_VERSION"),
        config.file.display()
    ));
    print(&format!("  clients    http://{}/v1", app.listen));
    let operators = if config.operators.is_empty() {
        " (nobody may sign in yet: `tallygate keys new --operator --name NAME --role operator`)"
    } else {
        ""
    };
    print(&format!("  console    http://{}/{operators}", app.admin));
    providers(config).iter().for_each(|line| print(line));
    webhook(config).iter().for_each(|line| print(line));
    config
        .warnings
        .iter()
        .for_each(|warning| print(&format!("  warning    {warning}")));
    print("  limits     per process (one process serves from a SQLite store)");
    if has_demo_key(config) {
        print(&format!("  demo key   {DEMO_KEY}\n\nTry it:\n"));
        print(&format!(
            "  curl http://{}/v1/chat/completions -H 'Authorization: Bearer {DEMO_KEY}' -H 'Content-Type: application/json' -d '{{\"model\":\"sandbox-echo\",\"messages\":[{{\"role\":\"user\",\"content\":\"Hello, Tallygate\"}}]}}'\n",
            app.listen
        ));
    }
}

/// A line for each provider: its full chat URL, and whether its key was found.
pub(super) fn providers(config: &Config) -> Vec<String> {
    let line = |provider: &std::sync::Arc<crate::config::Provider>| {
        let place = match (&provider.base_url, provider.dialect) {
            (Some(base), Dialect::OpenAi) => openai::endpoint(base, "chat/completions").to_string(),
            _ => "built in".to_owned(),
        };
        let key = match &provider.api_key {
            ApiKey::None => "no key needed".to_owned(),
            ApiKey::Found(_) => "key found".to_owned(),
            ApiKey::Missing(what) => format!("key missing ({what}): answers 503"),
        };
        format!("  provider   {}: {place} ({key})", provider.name)
    };
    config.providers.iter().map(line).collect()
}

/// Who is told of calls that wait; the host alone, since its path may be a secret.
pub(super) fn webhook(config: &Config) -> Option<String> {
    let webhook = config.webhook.as_ref()?;
    let state = match (&webhook.url, &webhook.secret) {
        (Err(what), _) => format!("URL missing ({what}): nothing is sent"),
        (Ok(_), ApiKey::Found(_)) => "secret found".to_owned(),
        (Ok(_), ApiKey::Missing(what)) => format!("secret missing ({what}): nothing is sent"),
        (Ok(_), ApiKey::None) => "no secret: nothing is sent".to_owned(),
    };
    let arguments = if webhook.include_arguments {
        ", with arguments"
    } else {
        ""
    };
    Some(format!(
        "  webhook    {} ({state}{arguments})",
        webhook.host()
    ))
}

fn has_demo_key(config: &Config) -> bool {
    use sha2::{Digest as _, Sha256};
    let digest: [u8; 32] = Sha256::digest(DEMO_KEY.as_bytes()).into();
    config.keys.contains_key(&digest)
}
