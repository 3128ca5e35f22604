//! Logs: text on a terminal, JSON lines otherwise. Secrets never reach a log field, since no
//! type that holds one prints it.

use std::io::IsTerminal;

use tracing_subscriber::{EnvFilter, fmt, layer::SubscriberExt, util::SubscriberInitExt};

/// Starts logging to standard error. `filter` as in `RUST_LOG`; a wrong one falls back to
/// `info` and says so. Called once; a second call changes nothing.
pub fn start(filter: Option<&str>) {
    let wanted = filter.unwrap_or("info");
    let (directives, wrong) = match EnvFilter::try_new(quiet(wanted)) {
        Ok(directives) => (directives, None),
        Err(error) => (EnvFilter::new(quiet("info")), Some(error)),
    };
    let terminal = std::io::stderr().is_terminal();
    let text = terminal.then(|| fmt::layer().with_writer(std::io::stderr).with_target(false));
    let json = (!terminal).then(|| {
        fmt::layer()
            .json()
            .flatten_event(true)
            .with_current_span(false)
            .with_writer(std::io::stderr)
    });
    let _ = tracing_subscriber::registry()
        .with(directives)
        .with(text)
        .with(json)
        .try_init();
    if let Some(error) = wrong {
        tracing::warn!(%error, "the log filter is not valid; using info");
    }
}

/// Libraries below us log headers, queries and bytes when asked for everything: they stay at
/// `warn`, whatever the filter says, because credentials pass through them.
fn quiet(filter: &str) -> String {
    const LIBRARIES: &[&str] = &[
        "hyper",
        "hyper_util",
        "h2",
        "reqwest",
        "rustls",
        "sqlx",
        "tower",
        "tower_http",
    ];
    let mut all = filter.to_owned();
    for library in LIBRARIES {
        all.push_str(&format!(",{library}=warn"));
    }
    all
}
