//! Which models a key may name, see, and reach by any other way.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use serde_json::json;

use crate::support::{Client, Reply, Setup, TestProxy, Upstream, reply};

#[tokio::test]
async fn the_list_shows_what_the_key_may_use_and_no_patterns() {
    let upstream = Upstream::start().await;
    let alias = "[models.fast]\nroutes = [\"upstream/m-small\"]\n[models.m-forbidden]\nprice = { input = \"1\", output = \"1\" }";
    let proxy = TestProxy::start(Setup::to(&upstream).tables(alias)).await;
    let list = proxy.k1().get("/v1/models").await.json();
    assert_eq!(list["object"], "list");
    let ids: Vec<_> = list["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|model| model["id"].as_str().unwrap())
        .collect();
    for id in ["m-small", "m-large", "fast"] {
        assert!(ids.contains(&id), "{id} in {ids:?}");
    }
    assert!(
        !ids.contains(&"m-forbidden") && ids.iter().all(|id| !id.contains('*')),
        "{ids:?}"
    );
}

/// A provider that tells what it has, and counts how often it is asked for that.
fn tells_its_models(upstream: &Upstream, names: &[&str]) -> Arc<AtomicUsize> {
    let data: Vec<_> = names
        .iter()
        .map(|name| json!({"id": name, "object": "model"}))
        .collect();
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    upstream.replies_with(move |request| match request.path.as_str() {
        "/v1/models" => {
            count.fetch_add(1, Ordering::SeqCst);
            Reply::json(200, &json!({"object": "list", "data": data}))
        }
        _ => Reply::says("Hi.", reply::usage(1, 1), request),
    });
    asked
}

async fn ids(client: &Client) -> Vec<String> {
    let list = client.get("/v1/models").await;
    assert_eq!(list.status, 200, "{}", list.text());
    let list = list.json();
    let data = list["data"].as_array().unwrap().iter();
    data.map(|model| model["id"].as_str().unwrap().to_owned())
        .collect()
}

#[tokio::test]
async fn of_what_the_provider_has_the_list_shows_what_the_key_may_use() {
    let upstream = Upstream::start().await;
    let names = [
        "m-small",
        "m-large",
        "m-big-one",
        "m-big-two",
        "m-forbidden",
        "m-other",
    ];
    let asked = tells_its_models(&upstream, &names);
    let proxy = TestProxy::to(&upstream).await;
    let expected = ["m-big-one", "m-big-two", "m-large", "m-new", "m-small"];
    let listed = ids(&proxy.k1()).await;
    assert!(
        listed
            .iter()
            .all(|id| expected.contains(&id.as_str()) || id == "fast"),
        "{listed:?}"
    );
    assert!(
        expected.iter().all(|id| listed.iter().any(|one| one == id)),
        "{listed:?}"
    );
    let all = ids(&proxy.k3()).await;
    assert!(
        names.iter().all(|id| all.iter().any(|one| one == id)),
        "{all:?}"
    );
    assert_eq!(
        asked.load(Ordering::SeqCst),
        1,
        "it is asked once, not for each key"
    );
    let sent = upstream.last_request();
    assert!(
        sent.everything()
            .contains(crate::support::setup::PROVIDER_KEY)
    );
    proxy.clock.advance(300_000);
    ids(&proxy.k1()).await;
    assert_eq!(
        asked.load(Ordering::SeqCst),
        2,
        "and again after five minutes"
    );
    let answer = proxy
        .k1()
        .chat_with("hi", json!({"model": "m-big-two"}))
        .await;
    assert_eq!(answer.status, 200, "what is listed can be used");
}

#[tokio::test]
async fn a_provider_that_tells_nothing_or_nonsense_does_no_harm() {
    let huge = format!("{{\"data\":[{{\"id\":\"{}\"}}]}}", "x".repeat(5 << 20));
    let odd = json!({"data": [{"id": ""}, {"id": "a\u{7}b"}, {"id": "x".repeat(300)}]});
    for reply in [
        Reply::error(500, "server_error", "No."),
        Reply::new(200, "text/html").piece("<html>"),
        Reply::json(200, &json!({"data": "none"})),
        Reply::json(200, &odd),
        Reply::new(200, "application/json").piece(huge),
        Reply::new(200, "application/json")
            .piece("{\"data\":[")
            .cut(),
    ] {
        let upstream = Upstream::start().await;
        upstream.replies(reply);
        let proxy = TestProxy::to(&upstream).await;
        let first = ids(&proxy.k3()).await;
        assert!(first.contains(&"m-small".to_owned()), "{first:?}");
        assert!(first.iter().all(|id| id.starts_with("m-")), "{first:?}");
        assert_eq!(ids(&proxy.k3()).await, first);
        assert_eq!(upstream.hits(), 1, "it is not asked again at once");
    }
    let proxy = TestProxy::start(Setup::at("http://127.0.0.1:1/v1")).await;
    assert!(ids(&proxy.k3()).await.contains(&"m-small".to_owned()));
}

#[tokio::test]
async fn a_single_model_is_found_only_by_who_may_use_it() {
    let upstream = Upstream::start().await;
    let tables = "[models.m-forbidden]\nprice = { input = \"1\", output = \"1\" }";
    let proxy = TestProxy::start(Setup::to(&upstream).tables(tables)).await;
    let found = proxy.k1().get("/v1/models/m-small").await;
    assert_eq!(
        (found.status, &found.json()["id"]),
        (200, &json!("m-small"))
    );
    assert_eq!(found.json()["object"], "model");
    let hidden = proxy.k1().get("/v1/models/m-forbidden").await;
    assert_eq!(hidden.refusal(), (404, "model_not_found".to_owned()));
    assert_eq!(proxy.k3().get("/v1/models/m-forbidden").await.status, 200);
    for path in ["/v1/models", "/v1/models/m-small"] {
        let refused = proxy.k1().without_key().get(path).await;
        assert_eq!(refused.refusal(), (401, "invalid_api_key".to_owned()));
    }
}

#[tokio::test]
async fn a_denied_model_is_refused_in_every_spelling() {
    let upstream = Upstream::start().await;
    let proxy = TestProxy::to(&upstream).await;
    for model in [
        "m-forbidden",
        "openai/m-forbidden",
        "upstream/m-forbidden",
        "M-Forbidden",
        " m-forbidden",
        "m-forbidden ",
        "m-forbidden:free",
        "m-forbidden\u{200b}",
        "gpt-does-not-exist",
        "m-big-*",
    ] {
        for stream in [false, true] {
            let refused = proxy
                .k1()
                .chat_with("hi", json!({"model": model, "stream": stream}))
                .await;
            assert!(
                [403, 404].contains(&refused.status),
                "{model:?}: {}",
                refused.text()
            );
            assert!(["model_denied", "model_not_found"].contains(&refused.code().as_str()));
            assert_eq!(refused.error().param.as_deref(), Some("model"));
        }
    }
    assert_eq!(upstream.hits(), 0);
    assert_eq!(
        proxy
            .k1()
            .chat_with("hi", json!({"model": "m-big-7"}))
            .await
            .status,
        200
    );
}

#[tokio::test]
async fn the_prefix_of_a_provider_is_taken_off_before_judging_and_sending() {
    let upstream = Upstream::start().await;
    let proxy = TestProxy::to(&upstream).await;
    let named = json!({"model": "upstream/m-small"});
    assert_eq!(proxy.k1().chat_with("hi", named).await.status, 200);
    assert_eq!(upstream.last_request().json()["model"], "m-small");
    assert_eq!(proxy.last_settled(1).await["cost_nano_usd"], 30_000);
}

#[tokio::test]
async fn deny_also_holds_for_the_model_behind_an_alias() {
    let upstream = Upstream::start().await;
    let alias = "[models.fast]\nroutes = [\"upstream/m-forbidden\"]";
    let proxy = TestProxy::start(Setup::to(&upstream).tables(alias)).await;
    let refused = proxy.k1().chat_with("hi", json!({"model": "fast"})).await;
    assert_eq!(refused.refusal(), (403, "model_denied".to_owned()));
    assert_eq!(upstream.hits(), 0);
    assert_eq!(
        proxy
            .k3()
            .chat_with("hi", json!({"model": "fast"}))
            .await
            .status,
        200
    );
}

#[tokio::test]
async fn a_second_place_to_name_the_model_changes_nothing() {
    let upstream = Upstream::start().await;
    let proxy = TestProxy::to(&upstream).await;
    let body =
        json!({"model": "m-small", "messages": [{"role": "user", "content": "hi"}]}).to_string();
    let path = "/v1/chat/completions";
    let requests = [
        proxy
            .k1()
            .post(&format!("{path}?model=m-forbidden"), body.clone()),
        proxy
            .k1()
            .post(path, body.clone())
            .header("x-model", "m-forbidden"),
        proxy.k1().post(
            "/openai/deployments/m-forbidden/chat/completions",
            body.clone(),
        ),
        proxy
            .k1()
            .post("/v1/models/m-forbidden/chat/completions", body),
    ];
    for request in requests {
        let answer = request.answer().await;
        assert!(
            [200, 400, 403, 404].contains(&answer.status),
            "{}",
            answer.status
        );
    }
    for request in upstream.requests() {
        assert!(
            !request.everything().contains("m-forbidden"),
            "{}",
            request.everything()
        );
    }
}

#[tokio::test]
async fn members_that_let_the_provider_choose_are_refused_under_model_rules() {
    let upstream = Upstream::start().await;
    let proxy = TestProxy::to(&upstream).await;
    for members in [
        json!({"fallbacks": ["m-forbidden"]}),
        json!({"models": ["m-small", "m-forbidden"]}),
        json!({"route": "fallback"}),
    ] {
        let refused = proxy.k1().chat_with("hi", members.clone()).await;
        assert_eq!(refused.status, 403, "{members}");
        assert!(members.get(refused.error().param.unwrap()).is_some());
    }
    assert_eq!(upstream.hits(), 0);
}

#[tokio::test]
async fn a_model_rule_that_only_observes_is_recorded_and_lets_pass() {
    let upstream = Upstream::start().await;
    let rules = "mode = \"observe\"\n[input]\nunsupported_patterns = [\"<binary>\"]";
    let proxy = TestProxy::start(Setup::to(&upstream).k1(rules)).await;
    let told =
        |model: &str| json!({"model": model, "messages": [{"role": "user", "content": "hi"}]});
    for model in ["m-small", "m-forbidden", "m-unlisted"] {
        let answer = proxy
            .k1()
            .post("/v1/chat/completions", told(model).to_string());
        let answer = answer.answer().await;
        assert_eq!(answer.status, 200, "{model}: {}", answer.text());
    }
    let started = proxy.records("request_started", 3).await;
    assert_eq!(started[0].get("warnings"), None, "{}", started[0]);
    for record in &started[1..] {
        assert_eq!(record["warnings"], json!(["model_denied"]), "{record}");
    }
    let other_rule = proxy.k1().chat("a <binary>").await;
    assert_eq!(other_rule.refusal(), (400, "input_unsupported".to_owned()));
}
