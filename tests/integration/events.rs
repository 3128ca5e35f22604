//! Pages are told what to fetch again: by events that say nothing else, to so many at once, and
//! no longer than who listens may ask.

use serde_json::json;
use sha2::{Digest as _, Sha256};

use crate::support::{
    Reply, Setup, TestProxy, Upstream, client::Open, eventually, reply, setup::replace,
};

const VIEWER: &str = "tgo-viewer-m3n4b5v6c7x8";
const EVENTS: &str = "/admin/v1/events";
const MOST: usize = 64;

async fn proxy(upstream: &Upstream, policy: &str) -> TestProxy {
    let digest = hex::encode(Sha256::digest(VIEWER));
    let tables = format!(
        "[approvals]\nwait = \"0s\"\n\
         [[operators]]\nname = \"ada\"\nrole = \"viewer\"\nsha256 = \"{digest}\""
    );
    let proxy = TestProxy::start(Setup::to(upstream).tables(&tables).k1(policy)).await;
    // What the start wrote is no news.
    proxy.records("started", 1).await;
    proxy
}

async fn listen(proxy: &TestProxy) -> Open {
    let open = proxy.operator(VIEWER).request("GET", EVENTS).send().await;
    assert_eq!(open.status, 200);
    assert_eq!(open.head.header("content-type"), Some("text/event-stream"));
    assert_eq!(open.head.header("cache-control"), Some("no-store"));
    open
}

async fn sign_in(proxy: &TestProxy) -> String {
    let answer = proxy
        .admin()
        .post("/admin/v1/session", json!({ "token": VIEWER }).to_string())
        .header("x-tallygate-console", "1")
        .answer()
        .await;
    let set = answer.header("set-cookie").unwrap();
    set.split(';').next().unwrap().to_owned()
}

async fn listen_by(proxy: &TestProxy, cookie: &str) -> Open {
    let request = proxy.admin().request("GET", EVENTS);
    let open = request.header("cookie", cookie).send().await;
    assert_eq!(open.status, 200);
    open
}

/// Reads to the end, which is an orderly one.
async fn ended(open: Open) {
    assert!(!open.answer().await.cut);
}

#[tokio::test]
async fn a_new_record_and_a_waiting_call_are_told_without_their_contents() {
    let upstream = Upstream::start().await;
    let mut body = reply::completion("", reply::usage(1, 1));
    body["choices"][0]["message"]["tool_calls"] = json!([{"id": "c1", "type": "function",
        "function": {"name": "pay", "arguments": "{}"}}]);
    upstream.replies(Reply::json(200, &body));
    let proxy = proxy(&upstream, "[tools]\nrequire_approval = [\"pay\"]").await;
    let (mut first, mut second) = (listen(&proxy).await, listen(&proxy).await);
    let offer = json!({"tools": [{"type": "function", "function": {"name": "pay"}}]});
    proxy.k1().chat_with("pay", offer).await;
    let seen = first.until("event: approvals\ndata: {}\n\n").await;
    second.until("event: activity\ndata: {}\n\n").await;
    let told = seen.replace("event: approvals\ndata: {}\n\n", "");
    let told = told.replace("event: activity\ndata: {}\n\n", "");
    assert_eq!(told, "");
}

#[tokio::test]
async fn events_end_with_the_session() {
    let upstream = Upstream::start().await;
    let proxy = proxy(&upstream, "").await;
    let cookie = sign_in(&proxy).await;
    let open = listen_by(&proxy, &cookie).await;
    let out = proxy.admin().request("DELETE", "/admin/v1/session");
    let out = out
        .header("cookie", &cookie)
        .header("x-tallygate-console", "1");
    assert_eq!(out.answer().await.status, 204);
    ended(open).await;

    // Listening is no sign of life.
    let open = listen_by(&proxy, &sign_in(&proxy).await).await;
    proxy.clock.advance(60 * 60 * 1000);
    ended(open).await;
}

#[tokio::test]
async fn events_end_with_the_token_and_with_the_process() {
    let upstream = Upstream::start().await;
    let proxy = proxy(&upstream, "").await;
    let open = listen(&proxy).await;
    let file = proxy.setup.file();
    let text = std::fs::read_to_string(&file).unwrap();
    let digest = |token: &str| hex::encode(Sha256::digest(token));
    replace(&file, &text.replace(&digest(VIEWER), &digest("another")));
    ended(open).await;

    replace(&file, &text);
    eventually("the token to be back", async || {
        let answer = proxy.operator(VIEWER).get("/admin/v1/session").await;
        answer.status == 200
    })
    .await;
    let open = listen(&proxy).await;
    proxy.end().await;
    ended(open).await;
}

#[tokio::test]
async fn only_so_many_listen_at_once() {
    let upstream = Upstream::start().await;
    let proxy = proxy(&upstream, "").await;
    let mut open = Vec::new();
    for _ in 0..MOST {
        open.push(listen(&proxy).await);
    }
    let one_more = proxy.operator(VIEWER).get(EVENTS).await;
    assert_eq!(one_more.status, 503);
    assert_eq!(one_more.json()["error"]["code"], "busy");
    drop(open.pop());
    eventually("the place to be free", async || {
        let request = proxy.operator(VIEWER).request("GET", EVENTS);
        request.send().await.status == 200
    })
    .await;
}
