//! Which models a key may name, see, and reach by any other way.

use serde_json::json;

use crate::support::{Setup, TestProxy, Upstream};

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
