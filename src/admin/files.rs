//! The console's page: plain files, part of the binary, the same for everybody. What they show
//! comes from `/admin/v1` to who has signed in.

use axum::{
    Router,
    http::{HeaderValue, header},
    response::IntoResponse,
    routing::get,
};

use super::Shared;

struct File {
    path: &'static str,
    kind: &'static str,
    text: &'static str,
}

const SCRIPT: &str = "text/javascript; charset=utf-8";

macro_rules! script {
    ($name:literal) => {
        File {
            path: concat!("/console/", $name),
            kind: SCRIPT,
            text: include_str!(concat!("ui/", $name)),
        }
    };
}

const FILES: &[File] = &[
    File {
        path: "/",
        kind: "text/html; charset=utf-8",
        text: include_str!("ui/index.html"),
    },
    File {
        path: "/console/style.css",
        kind: "text/css; charset=utf-8",
        text: include_str!("ui/style.css"),
    },
    File {
        path: "/console/icon.svg",
        kind: "image/svg+xml",
        text: include_str!("ui/icon.svg"),
    },
    script!("main.js"),
    script!("api.js"),
    script!("dom.js"),
    script!("words.js"),
    script!("chart.js"),
    script!("signin.js"),
    script!("activity.js"),
    script!("request.js"),
    script!("runs.js"),
    script!("approvals.js"),
    script!("json.js"),
    script!("live.js"),
    script!("spend.js"),
    script!("policies.js"),
    script!("ledger.js"),
];

pub(super) fn routes() -> Router<Shared> {
    FILES.iter().fold(Router::new(), |router, file| {
        router.route(file.path, get(async || answer(file)))
    })
}

/// Asked for anew each time: a console of one version never runs with a part of another.
fn answer(file: &'static File) -> impl IntoResponse {
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static(file.kind)),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-cache")),
    ];
    (headers, file.text)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a strict content security policy would stop, or what could make text into markup.
    #[test]
    fn the_page_holds_nothing_inline_and_makes_no_markup_of_text() {
        for file in FILES {
            for bad in [
                "innerHTML",
                "outerHTML",
                "insertAdjacentHTML",
                "document.write",
                "eval(",
                " onclick=",
                " style=",
                "<style",
                "javascript:",
                "https://",
                "new Function",
            ] {
                assert!(!file.text.contains(bad), "{bad} in {}", file.path);
            }
            let inline = file.text.contains("<script")
                && !file.text.contains("<script type=\"module\" src=");
            assert!(!inline, "{}", file.path);
        }
    }

    #[test]
    fn every_script_that_is_asked_for_is_there() {
        let named = regex::Regex::new(r#"(?:from|import) "\./([a-z]+\.js)""#).unwrap();
        let mut count = 0;
        for file in FILES {
            for found in named.captures_iter(file.text) {
                count += 1;
                let path = format!("/console/{}", &found[1]);
                assert!(
                    FILES.iter().any(|file| file.path == path),
                    "{path} of {}",
                    file.path
                );
            }
        }
        assert!(count > 5);
    }
}
