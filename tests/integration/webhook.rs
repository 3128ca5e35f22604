//! A webhook is told of calls that wait, and its links decide: once, in time, and for nobody who
//! asks with a client's key.

use std::fs;

use ring::hmac;
use serde_json::{Value, json};

use crate::support::{Answer, Reply, Setup, TestProxy, Upstream, eventually, reply, setup::K1};

const SECRET: &str = "hook-secret-0123456789";

fn calling_pay() -> Reply {
    let mut body = reply::completion("", reply::usage(1, 1));
    body["choices"][0]["message"]["tool_calls"] = json!([{"id": "c1", "type": "function",
        "function": {"name": "pay", "arguments": "{\"to\":\"<b>planted</b>\"}"}}]);
    Reply::json(200, &body)
}

struct Scene {
    upstream: Upstream,
    hook: Upstream,
    proxy: TestProxy,
}

impl Scene {
    async fn with(members: &str, hook: Upstream) -> Self {
        let upstream = Upstream::start().await;
        upstream.replies(calling_pay());
        let url = format!("http://{}/services/T0/secret-path", hook.address());
        let tables = format!(
            "[approvals]\nwait = \"0s\"\n[approvals.webhook]\nurl = \"{url}\"\n\
             secret = {{ file = \"hook-secret\" }}\n{members}"
        );
        let policy = "[tools]\nrequire_approval = [\"pay\"]";
        let setup = Setup::to(&upstream).tables(&tables).k1(policy);
        fs::write(setup.dir().join("hook-secret"), SECRET).unwrap();
        let proxy = TestProxy::start(setup).await;
        Self {
            upstream,
            hook,
            proxy,
        }
    }

    async fn start() -> Self {
        Self::with("", taking().await).await
    }

    async fn asks(&self) -> Answer {
        let offer = json!({"tools": [{"type": "function", "function": {"name": "pay"}}]});
        self.proxy.k1().chat_with("go", offer).await
    }

    /// Opens an approval; the link's path.
    async fn link(&self) -> String {
        assert!(self.asks().await.text().contains("Approval pending"));
        self.hook.hit(1).await;
        path(&self.hook.last_request().json())
    }

    async fn get(&self, path: &str) -> Answer {
        self.proxy.admin().get(path).await
    }

    async fn post(&self, path: &str, form: &str) -> Answer {
        self.proxy
            .admin()
            .post(path, form.to_owned())
            .answer()
            .await
    }
}

async fn taking() -> Upstream {
    let hook = Upstream::start().await;
    hook.replies(Reply::json(200, &json!("ok")));
    hook
}

fn path(message: &Value) -> String {
    let url = message["metadata"]["event_payload"]["url"]
        .as_str()
        .unwrap();
    let at = url.find("/decide/").unwrap();
    url[at..].to_owned()
}

#[tokio::test]
async fn the_webhook_gets_a_signed_message_without_arguments() {
    let scene = Scene::start().await;
    let path = scene.link().await;
    let sent = scene.hook.last_request();
    assert_eq!(
        (&*sent.method, &*sent.path),
        ("POST", "/services/T0/secret-path")
    );
    assert!(!sent.everything().contains("planted"));
    let timestamp = sent.header("x-tallygate-timestamp").unwrap();
    let signature = sent.header("x-tallygate-signature").unwrap();
    let signed = [format!("v1:{timestamp}:").as_bytes(), &sent.body].concat();
    let key = hmac::Key::new(hmac::HMAC_SHA256, SECRET.as_bytes());
    let proof = hex::decode(signature.strip_prefix("v1=").unwrap()).unwrap();
    hmac::verify(&key, &signed, &proof).unwrap();
    let message = sent.json();
    assert!(message["text"].as_str().unwrap().contains("`pay`"));
    assert!(message["blocks"].to_string().contains(&path));
    assert_eq!(message["metadata"]["event_payload"]["key"], "k1");
}

#[tokio::test]
async fn arguments_are_sent_where_the_configuration_says_so() {
    let scene = Scene::with("include_arguments = true", taking().await).await;
    scene.link().await;
    let message = scene.hook.last_request().json();
    assert!(message["blocks"].to_string().contains("&lt;b&gt;planted"));
}

#[tokio::test]
async fn a_link_decides_once_after_it_was_only_looked_at() {
    let scene = Scene::start().await;
    let path = scene.link().await;
    for _ in 0..2 {
        let seen = scene.get(&path).await;
        assert_eq!(seen.status, 200);
        assert!(
            !seen.text().contains("planted"),
            "a preview sees no arguments"
        );
    }
    assert!(scene.asks().await.text().contains("Approval pending"));
    let shown = scene.post(&path, "action=show").await;
    assert!(shown.text().contains("&lt;b&gt;planted"));
    assert_eq!(scene.post(&path, "action=perhaps").await.status, 400);
    assert_eq!(
        scene.post(&path, "action=approve&reason=fine").await.status,
        200
    );
    let again = scene.post(&path, "action=reject").await;
    assert_eq!(again.status, 409);
    assert!(again.text().contains("webhook-link"));
    assert_eq!(scene.get(&path).await.status, 409);
    let decided = scene.proxy.records("approval_decided", 1).await;
    assert_eq!(
        (&decided[0]["status"], &decided[0]["by"]),
        (&json!("approved"), &json!("webhook-link"))
    );
    assert!(scene.asks().await.text().contains("planted"));
    assert_eq!(scene.upstream.hits(), 1, "no second model call");
}

#[tokio::test]
async fn a_link_that_was_changed_or_comes_with_a_clients_key_does_nothing() {
    let scene = Scene::start().await;
    let path = scene.link().await;
    let last = if path.ends_with('0') { '1' } else { '0' };
    let tampered = format!("{}{last}", &path[..path.len() - 1]);
    let (start, token) = path.rsplit_once('/').unwrap();
    let later = format!("{start}/9{token}");
    for wrong in [&tampered, &later, "/decide/apr_0/1-00"] {
        assert_eq!(scene.get(wrong).await.status, 404, "{wrong}");
        assert_eq!(
            scene.post(wrong, "action=approve").await.status,
            404,
            "{wrong}"
        );
    }
    let by_key = scene.proxy.operator(K1);
    let refused = by_key.post(&path, "action=approve").answer().await;
    assert_eq!(refused.status, 403);
    assert_eq!(scene.get(&path).await.status, 200, "it still waits");
}

#[tokio::test]
async fn a_link_expires_with_its_approval() {
    let scene = Scene::start().await;
    let path = scene.link().await;
    scene.proxy.clock.advance(24 * 3_600_000);
    assert_eq!(scene.post(&path, "action=approve").await.status, 410);
    let decided = scene.proxy.records("approval_decided", 1).await;
    assert_eq!(decided[0]["status"], "expired");
}

#[tokio::test]
async fn what_the_receiver_could_not_take_is_sent_again_later() {
    let hook = taking().await;
    hook.replies_once(Reply::json(500, &json!("no")));
    let scene = Scene::with("", hook).await;
    scene.link().await;
    // Not taken: it is due again a second later, by the clock.
    eventually("a second delivery", async || {
        scene.proxy.clock.advance(1_000);
        scene.hook.hits() == 2
    })
    .await;
    let sent: Vec<String> = scene
        .hook
        .requests()
        .iter()
        .map(|one| path(&one.json()))
        .collect();
    assert_eq!(sent[0], sent[1]);
}

#[tokio::test]
async fn a_receiver_that_is_not_there_holds_nobody_up_and_is_told_once_the_url_is_mended() {
    let gone = Upstream::start().await;
    let address = gone.address();
    drop(gone);
    let upstream = Upstream::start().await;
    upstream.replies(calling_pay());
    let tables = |address| {
        format!(
            "[approvals]\nwait = \"0s\"\n[approvals.webhook]\nurl = \"http://{address}/x\"\n\
             secret = {{ file = \"hook-secret\" }}"
        )
    };
    let policy = "[tools]\nrequire_approval = [\"pay\"]";
    let setup = Setup::to(&upstream).tables(&tables(address)).k1(policy);
    fs::write(setup.dir().join("hook-secret"), SECRET).unwrap();
    let proxy = TestProxy::start(setup).await;
    let offer = json!({"tools": [{"type": "function", "function": {"name": "pay"}}]});
    let answer = proxy.k1().chat_with("go", offer).await;
    assert!(answer.text().contains("Approval pending"));
    let hook = taking().await;
    let file = proxy.setup.file();
    let text = fs::read_to_string(&file).unwrap();
    let mended = text.replace(&address.to_string(), &hook.address().to_string());
    crate::support::setup::replace(&file, &mended);
    eventually("a delivery to the mended address", async || {
        proxy.clock.advance(1_000);
        hook.hits() > 0
    })
    .await;
}
