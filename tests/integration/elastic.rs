//! `enforcement = "elastic"`: streams reserve little, grow as they come, and are cut at a limit.

use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::support::{Answer, Gate, Reply, Setup, TestProxy, Upstream, ledger, reply, within};

fn rules(budget: &str) -> String {
    format!("[budget]\nenforcement = \"elastic\"\n{budget}")
}

fn words(count: usize) -> impl Iterator<Item = Value> {
    (0..count).map(|_| reply::chunk(json!({"content": "word "}), None))
}

/// A model that would never stop by itself.
fn endless(count: usize) -> Reply {
    Reply::stream()
        .data(&reply::chunk(json!({"role": "assistant"}), None))
        .all_data(words(count))
        .hang()
}

async fn spent(proxy: &TestProxy, account: &str) -> u64 {
    let (spent, _) = ledger::spent_and_reserved(&ledger::database(&proxy.setup), account).await;
    spent as u64
}

fn tokens(record: &Value) -> u64 {
    record["input_tokens"].as_u64().unwrap() + record["output_tokens"].as_u64().unwrap()
}

fn cut_by(answer: &Answer) -> (String, String) {
    assert_eq!(answer.status, 200);
    assert!(answer.is_done() && !answer.cut, "a clear ending");
    let told = answer.chunks().pop().unwrap();
    let error = answer.stream_error();
    assert_eq!(error.kind, "insufficient_quota");
    (
        error.code.unwrap(),
        told["guard"]["rule"].as_str().unwrap().to_owned(),
    )
}

#[tokio::test]
async fn a_stream_that_fits_passes_unchanged_and_its_cap_stays_the_clients() {
    let upstream = Upstream::start().await;
    let text = "A few words and no more.";
    upstream.says(text, reply::usage(10, 7));
    let setup = Setup::to(&upstream).k1(&rules("daily_tokens = 1000"));
    let proxy = TestProxy::start(setup).await;
    let answer = proxy
        .k1()
        .stream_with("hi", json!({"max_tokens": 50_000}))
        .await
        .answer()
        .await;
    assert_eq!((answer.content().as_str(), answer.is_done()), (text, true));
    assert_eq!(answer.header("x-tallygate-output-cap"), None);
    assert_eq!(upstream.last_request().json()["max_tokens"], 50_000);
    let settled = proxy.last_settled(1).await;
    assert_eq!(
        (&settled["outcome"], tokens(&settled)),
        (&json!("completed"), 17)
    );
    let plain = proxy.k1().stream("hi").await.answer().await;
    assert!(plain.is_done());
    let sent = upstream.last_request().json();
    assert!(sent.get("max_tokens").is_none() && sent.get("max_completion_tokens").is_none());
}

#[tokio::test]
async fn many_open_streams_share_a_budget_that_their_caps_would_not_fit() {
    let upstream = Upstream::start().await;
    let gate = Gate::new();
    let waiting = Reply::stream()
        .all_data(words(1))
        .wait(&gate)
        .data(&reply::chunk(json!({}), Some("stop")))
        .done();
    upstream.replies(waiting);
    let setup = Setup::to(&upstream).k1(&rules("daily_tokens = 4000"));
    let proxy = TestProxy::start(setup).await;
    let mut open = Vec::new();
    for _ in 0..8 {
        let mut stream = proxy.k1().stream("hi").await;
        assert_eq!(stream.status, 200);
        stream.until("word").await;
        open.push(stream);
    }
    gate.open();
    for stream in open {
        assert!(stream.answer().await.is_done());
    }
    assert_eq!(proxy.settled(8).await.len(), 8);
}

#[tokio::test]
async fn an_endless_stream_is_cut_at_the_limit_and_not_a_token_later() {
    for (limit, name, account, most) in [
        (
            "daily_tokens = 900",
            "daily_tokens",
            "key/k1/tokens/day",
            900,
        ),
        (
            "total_cost_usd = \"0.003\"",
            "total_cost_usd",
            "key/k1/cost/total",
            3_000_000,
        ),
    ] {
        let upstream = Upstream::start().await;
        upstream.replies(endless(5_000));
        let proxy = TestProxy::start(Setup::to(&upstream).k1(&rules(limit))).await;
        let answer = proxy.k1().stream("hi").await.answer().await;
        assert_eq!(
            cut_by(&answer),
            ("insufficient_quota".to_owned(), name.to_owned())
        );
        let words = answer.content().len() / 5;
        assert!((500..900).contains(&words), "{words} words left");
        upstream.left_early(1).await;
        let settled = proxy.last_settled(1).await;
        assert_eq!(settled["outcome"], "cut");
        assert_eq!(settled["estimated"], true);
        assert!(settled["output_tokens"].as_u64().unwrap() >= words as u64);
        let refused = proxy.records("request_refused", 1).await;
        assert_eq!(refused[0]["rule"], name);
        assert_eq!(proxy.k1().stream("hi").await.status, 402, "{limit}");
        let proxy = proxy.restart().await;
        let spent = spent(&proxy, account).await;
        assert!(spent <= most, "{spent} of {most}");
        assert!(spent > most / 2, "{spent} of {most}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_at_once_never_pass_the_limit_together() {
    let upstream = Upstream::start().await;
    upstream.replies(endless(3_000));
    let setup = Setup::to(&upstream).k1(&rules("total_tokens = 20000"));
    let proxy = TestProxy::start(setup).await;
    let mut all = JoinSet::new();
    for _ in 0..24 {
        let client = proxy.k1();
        all.spawn(async move { client.stream("hi").await.answer().await });
    }
    let mut admitted = 0;
    while let Some(answer) = within("the end of a stream", all.join_next()).await {
        let answer = answer.unwrap();
        if answer.status == 200 {
            cut_by(&answer);
            admitted += 1;
        } else {
            assert_eq!(answer.status, 402, "{}", answer.text());
        }
    }
    assert!(admitted >= 6, "{admitted}");
    upstream.left_early(admitted).await;
    let settled: u64 = proxy.settled(admitted).await.iter().map(tokens).sum();
    assert!(settled <= 20_000, "{settled}");
    let proxy = proxy.restart().await;
    assert_eq!(spent(&proxy, "key/k1/tokens/total").await, settled);
}

#[tokio::test]
async fn what_comes_in_one_piece_passes_as_far_as_it_is_covered() {
    let upstream = Upstream::start().await;
    let all: String = words(2_000)
        .map(|word| format!("data: {word}\n\n"))
        .collect();
    upstream.replies(Reply::stream().piece(all).hang());
    let setup = Setup::to(&upstream).k1(&rules("daily_tokens = 900"));
    let proxy = TestProxy::start(setup).await;
    let answer = proxy.k1().stream("hi").await.answer().await;
    cut_by(&answer);
    assert!((500..900).contains(&(answer.content().len() / 5)));
}

#[tokio::test]
async fn a_stream_whose_first_text_does_not_fit_is_refused_with_a_status() {
    let upstream = Upstream::start().await;
    let long = reply::chunk(json!({"content": "word ".repeat(2_000)}), None);
    upstream.replies(Reply::stream().data(&long).hang());
    let setup = Setup::to(&upstream).k1(&rules("daily_tokens = 900"));
    let proxy = TestProxy::start(setup).await;
    let answer = proxy.k1().stream("hi").await.answer().await;
    assert_eq!(answer.refusal(), (402, "insufficient_quota".to_owned()));
    assert!(!answer.text().contains("word word"));
    assert_eq!(proxy.last_settled(1).await["outcome"], "cut");
}

#[tokio::test]
async fn what_is_reported_in_the_end_is_booked_although_it_is_more() {
    let upstream = Upstream::start().await;
    upstream.says("Hi.", reply::usage(10, 2_000));
    let setup = Setup::to(&upstream).k1(&rules("daily_tokens = 1000"));
    let proxy = TestProxy::start(setup).await;
    assert!(proxy.k1().stream("hi").await.answer().await.is_done());
    assert_eq!(tokens(&proxy.last_settled(1).await), 2_010);
    assert_eq!(proxy.k1().stream("hi").await.status, 402);
}

#[tokio::test]
async fn a_whole_answer_is_reserved_for_as_by_exact() {
    let upstream = Upstream::start().await;
    let setup = Setup::to(&upstream).k1(&rules("daily_tokens = 1000"));
    let proxy = TestProxy::start(setup).await;
    let answer = proxy
        .k1()
        .chat_with("hi", json!({"max_tokens": 50_000}))
        .await;
    let sent = upstream.last_request().json()["max_tokens"]
        .as_u64()
        .unwrap();
    assert!(sent < 1_000, "{sent}");
    assert_eq!(
        answer.header("x-tallygate-output-cap"),
        Some(sent.to_string().as_str())
    );
}

#[tokio::test]
async fn a_client_that_leaves_pays_for_what_came() {
    let upstream = Upstream::start().await;
    upstream.replies(Reply::stream().all_data(words(40)).hang());
    let setup = Setup::to(&upstream).k1(&rules("daily_tokens = 1000"));
    let proxy = TestProxy::start(setup).await;
    let mut open = proxy.k1().stream("hi").await;
    open.until("word").await;
    drop(open);
    upstream.left_early(1).await;
    let settled = proxy.last_settled(1).await;
    assert_eq!(settled["outcome"], "client_gone");
    assert!((1..=50).contains(&settled["output_tokens"].as_u64().unwrap()));
}

#[tokio::test]
async fn of_a_call_that_a_limit_cuts_nothing_leaves() {
    let upstream = Upstream::start().await;
    let part = |function: Value| {
        let call = json!({"index": 0, "id": "call_1", "type": "function", "function": function});
        reply::chunk(json!({"tool_calls": [call]}), None)
    };
    let long = "word ".repeat(200);
    let pieces = (0..50).map(|_| part(json!({"arguments": long})));
    let answer = Reply::stream()
        .all_data(words(3))
        .data(&part(json!({"name": "lookup", "arguments": "{\"q\":\""})))
        .all_data(pieces)
        .hang();
    upstream.replies(answer);
    let setup = Setup::to(&upstream).k1(&rules("daily_tokens = 1500"));
    let proxy = TestProxy::start(setup).await;
    let tool = json!({"type": "function", "function": {"name": "lookup", "parameters": {}}});
    let answer = proxy
        .k1()
        .stream_with("hi", json!({"tools": [tool]}))
        .await
        .answer()
        .await;
    cut_by(&answer);
    assert_eq!(answer.content(), "word word word ");
    assert!(!answer.text().contains("tool_calls") && !answer.text().contains("lookup"));
    upstream.left_early(1).await;
    assert_eq!(proxy.last_settled(1).await["outcome"], "cut");
}
