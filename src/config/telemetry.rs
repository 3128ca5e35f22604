//! `[telemetry]`: who is told of requests as traces.

use std::sync::Arc;

use http::HeaderName;
use url::Url;

use super::{
    ApiKey, Secret,
    reader::{Table, Value},
    secret::header_value,
    urls::{collector, is_loopback},
    values::{name, percent},
};

/// `[telemetry]`: who is told of requests as traces.
#[derive(Debug)]
pub struct Telemetry {
    /// Where traces are posted to.
    pub endpoint: Url,
    /// Sent along.
    pub headers: Vec<(HeaderName, Secret)>,
    /// Of requests that bring no trace of their own. 1 to 100.
    pub sample_percent: u8,
    pub service_name: Box<str>,
}

impl Telemetry {
    /// For people and logs: the path may hold a secret.
    pub fn host(&self) -> &str {
        self.endpoint.host_str().unwrap_or("nowhere")
    }
}

/// `None`: nothing can be sent, which has been told.
pub(super) fn telemetry(table: &mut Table<'_>) -> Option<Arc<Telemetry>> {
    let endpoint = table.required("otlp_endpoint", collector);
    let headers = table.each("headers", header).unwrap_or_default();
    let sample_percent = table.or("sample_percent", 100, percent);
    let service_name = table.or("service_name", "tallygate", name).into();
    let endpoint = endpoint?;
    if endpoint.scheme() == "http" && !is_loopback(&endpoint) && !headers.is_empty() {
        table
            .place_of("headers")
            .warning("http:// sends them in the clear");
    }
    Some(Arc::new(Telemetry {
        endpoint,
        headers: headers.into_iter().collect::<Option<_>>()?,
        sample_percent,
        service_name,
    }))
}

fn header(name: &str, value: Value<'_>) -> Option<(HeaderName, Secret)> {
    let place = value.place().clone();
    let Ok(name) = HeaderName::from_bytes(name.as_bytes()) else {
        place.mistake(format!("{name:?} is no header name"));
        return None;
    };
    match header_value(&place, value, "no traces are sent") {
        ApiKey::Found(secret) => Some((name, secret)),
        ApiKey::None | ApiKey::Missing(_) => None,
    }
}
