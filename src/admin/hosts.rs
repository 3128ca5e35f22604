//! By which names the control plane may be reached. A foreign name that leads here is another
//! site's page in somebody's browser (DNS rebinding): it gets no answer.

use axum::{
    extract::{Request, State},
    http::{header, uri::Authority},
    middleware::Next,
    response::{IntoResponse, Response},
};

use super::{Shared, fault::Fault};
use crate::config::Server;

pub(super) async fn check(State(console): State<Shared>, request: Request, next: Next) -> Response {
    let mut names = request.headers().get_all(header::HOST).iter();
    let name = names.next().and_then(|name| name.to_str().ok());
    let known = match (name, names.next()) {
        (Some(name), None) => is_ours(name, &console.status.config().server),
        _ => false,
    };
    if known {
        next.run(request).await
    } else {
        Fault::ForeignHost.into_response()
    }
}

/// Addresses are ours: only names can be made to lead elsewhere.
fn is_ours(host: &str, server: &Server) -> bool {
    // No browser sends a user here.
    let authority = host.parse::<Authority>();
    let Some(authority) = authority.ok().filter(|_| !host.contains('@')) else {
        return false;
    };
    let name = authority.host().trim_end_matches('.').to_ascii_lowercase();
    let bare = name.trim_start_matches('[').trim_end_matches(']');
    if bare.parse::<std::net::IpAddr>().is_ok()
        || name == "localhost"
        || name.ends_with(".localhost")
    {
        return true;
    }
    let console = server.console_url.as_ref().and_then(url::Url::host_str);
    let mut configured = server.admin_hosts.iter().map(String::as_str).chain(console);
    configured.any(|known| known.eq_ignore_ascii_case(&name))
}
