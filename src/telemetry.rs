//! Logs: text on a terminal, JSON lines otherwise. Secrets never reach a log field, since no
//! type that holds one prints it.

use std::io::IsTerminal;

use tracing::{Level, Metadata};
use tracing_subscriber::{
    EnvFilter,
    filter::{ParseError, filter_fn},
    fmt,
    layer::SubscriberExt,
    util::SubscriberInitExt,
};

/// Starts logging to standard error. `filter` as in `RUST_LOG`; a wrong one falls back to
/// `info` and says so. Called once; a second call changes nothing.
pub fn start(filter: Option<&str>) {
    let (directives, wrong) = directives(filter.unwrap_or("info"));
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
        .with(filter_fn(may_speak))
        .with(text)
        .with(json)
        .try_init();
    if let Some(error) = wrong {
        tracing::warn!(%error, "the log filter is not valid; using info");
    }
}

fn directives(wanted: &str) -> (EnvFilter, Option<ParseError>) {
    match EnvFilter::try_new(wanted) {
        Ok(directives) => (directives, None),
        Err(error) => (EnvFilter::new("info"), Some(error)),
    }
}

/// Libraries below us log headers, queries and bytes when asked for everything: they stay at
/// `warn`, however exactly a filter names a part of them, because credentials pass through them.
fn may_speak(metadata: &Metadata<'_>) -> bool {
    let root = metadata.target().split("::").next().unwrap_or_default();
    root == env!("CARGO_CRATE_NAME") || *metadata.level() <= Level::WARN
}

#[cfg(test)]
mod tests {
    use std::{
        io::Write,
        sync::{Arc, Mutex},
    };

    use super::*;

    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<u8>>>);

    impl Write for Log {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn no_filter_makes_a_library_tell_what_passes_through_it() {
        for filter in [
            "trace",
            "reqwest::connect=trace,hyper=trace,h2::codec=trace",
            "hyper::proto::h1::io=trace,tallygate=trace,some_library[span]=trace",
        ] {
            let log = Log::default();
            let writer = log.clone();
            let lines = fmt::layer().with_writer(move || writer.clone());
            let subscriber = tracing_subscriber::registry()
                .with(directives(filter).0)
                .with(filter_fn(may_speak))
                .with(lines);
            tracing::subscriber::with_default(subscriber, || {
                tracing::trace!(target: "reqwest::connect", "secret");
                tracing::trace!(target: "hyper::proto::h1::io", "secret");
                tracing::debug!(target: "h2::codec::framed_write", "secret");
                tracing::info!(target: "some_library", "secret");
                tracing::warn!(target: "hyper_util::client", "a warning");
                tracing::info!("our own");
            });
            let text = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
            assert!(!text.contains("secret"), "{filter}: {text}");
            if filter != "reqwest::connect=trace,hyper=trace,h2::codec=trace" {
                assert!(text.contains("our own"), "{filter}: {text}");
            }
        }
    }
}
