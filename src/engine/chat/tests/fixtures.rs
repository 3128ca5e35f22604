//! Recorded streams and bodies of many providers, if they are there: `TALLYGATE_FIXTURES`, or
//! `../shared/fixtures` beside the repository.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use bytes::Bytes;
use serde_json::{Value, json};

use super::support::{Relayed, relay_cut};
use crate::engine::{
    chain::{CallGuard, Delivery, Offered},
    chat::{Answer, Body, CallRules, StreamRules, Tally},
    policy::ToolRules,
};

/// Of these nothing may be delivered, whatever is allowed.
const NEVER_DELIVERED: &[&str] = &[
    "name-replaced",
    "duplicate-json-keys",
    "duplicate-keys-inside-arguments",
    "lone-surrogate-in-arguments",
    "nan-literal",
    "deep-nesting-arguments",
    "unknown-tool-type",
    "name-case-and-space",
    "error-mid-stream-vllm",
    "truncated-no-done",
    "truncated-mid-event",
    "framing-unknown-field-line",
    "data-after-done",
    "openai/truncated-tool-call",
];

struct Fixture {
    name: String,
    bytes: Vec<u8>,
    expect: Value,
    status: u64,
}

fn fixtures(extension: &str) -> Vec<Fixture> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/fixtures");
    let root = std::env::var("TALLYGATE_FIXTURES").map_or(beside, PathBuf::from);
    let mut files = Vec::new();
    for part in ["chat", "synthetic"] {
        walk(&root.join(part), extension, &mut files);
    }
    files.sort();
    if files.is_empty() {
        println!("no fixtures at {}", root.display());
    }
    let read = |file: &PathBuf| {
        let sidecar = format!("{}.expect.json", file.display());
        // One of them tells of half a surrogate pair.
        let sidecar = fs::read_to_string(sidecar)
            .unwrap()
            .replace("\\ud", "\\\\ud");
        let sidecar: Value = serde_json::from_str(&sidecar).unwrap();
        Fixture {
            name: file.with_extension("").display().to_string(),
            bytes: fs::read(file).unwrap(),
            expect: sidecar["expect"].clone(),
            status: sidecar["status"].as_u64().unwrap_or(200),
        }
    };
    let all = files.iter().map(read);
    // Those of other APIs are read by others.
    let other = |fixture: &Fixture| {
        let file = fixture.name.rsplit('/').next().unwrap();
        file.starts_with("responses-") || file.starts_with("anthropic-")
    };
    all.filter(|fixture| !other(fixture)).collect()
}

fn walk(folder: &Path, extension: &str, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            walk(&path, extension, files);
        } else if path.extension().is_some_and(|found| found == extension)
            && !path.to_string_lossy().ends_with(".expect.json")
        {
            files.push(path);
        }
    }
}

impl Fixture {
    fn calls(&self) -> Vec<Value> {
        self.expect["tool_calls"]
            .as_array()
            .cloned()
            .unwrap_or_default()
    }

    /// A request that offers every tool that this answer calls.
    fn offered(&self) -> Offered {
        let mut offered = Offered::default();
        let inner = self.expect["inner_calls"].as_array().cloned();
        for call in self.calls().iter().chain(&inner.unwrap_or_default()) {
            if let Some(name) = call["name"].as_str() {
                offered.add(None, name, call["kind"] == "custom", None);
            }
        }
        if self.name.contains("name-replaced") {
            for name in self.expect["readings"].as_array().unwrap() {
                offered.add(None, name.as_str().unwrap(), false, None);
            }
        }
        offered
    }

    fn rules(&self, allow: bool) -> CallRules {
        let rules = ToolRules {
            allow: (!allow).then(Vec::new),
            ..ToolRules::default()
        };
        let guard = CallGuard::new(
            "p@1".into(),
            Arc::new(rules),
            Arc::default(),
            "acme".into(),
            Arc::new(self.offered()),
            Arc::default(),
        );
        CallRules {
            judge: Arc::new(guard),
            delivery: Delivery::default(),
            policy: "p@1".into(),
            decision: "dec_0000".to_owned(),
            rulings: None,
        }
    }

    fn stream_rules(&self, allow: bool) -> StreamRules {
        StreamRules {
            hide_usage: false,
            largest_event: 1 << 20,
            most_withheld: 1 << 20,
            calls: self.rules(allow),
        }
    }

    fn delivers(&self) -> bool {
        !NEVER_DELIVERED.iter().any(|name| self.name.ends_with(name))
    }

    /// Kind, id if it has one, name, arguments.
    fn wanted(&self) -> Vec<(String, Option<String>, String, String)> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let calls = self.calls();
        let alone = calls.len() == 1;
        let calls = calls.iter().filter(|_| self.delivers());
        calls
            .map(|call| {
                let kind = match text(&call["kind"]).as_str() {
                    "function_call" if !alone => "function".to_owned(),
                    kind => kind.to_owned(),
                };
                let arguments = match text(&call["arguments"]).as_str() {
                    "" if kind != "custom" => "{}".to_owned(),
                    arguments => arguments.to_owned(),
                };
                let id = Some(text(&call["id"])).filter(|id| !id.is_empty());
                (kind, id, text(&call["name"]), arguments)
            })
            .collect()
    }

    fn check_usage(&self, tally: &Tally) {
        let wanted = &self.expect["usage"];
        let Some(input) = wanted["input"].as_u64() else {
            return;
        };
        if wanted["output"].is_null() {
            return;
        }
        let read = tally.usage.map(|read| read.usage).unwrap_or_default();
        assert_eq!(read.input, input, "{}", self.name);
        assert_eq!(
            read.output,
            wanted["output"].as_u64().unwrap(),
            "{}",
            self.name
        );
        // A server of one's own tells beside the usage what it had cached; it costs nothing.
        let beside = self.name.ends_with("llamacpp-timings");
        if let Some(cached) = wanted["cache_read"].as_u64().filter(|_| !beside) {
            assert_eq!(read.cached_input, cached, "{}", self.name);
        }
    }

    /// Names, ids and pieces of arguments that a client must never see of a blocked call.
    fn secrets(&self) -> Vec<String> {
        let mut secrets = Vec::new();
        for call in self.calls() {
            secrets.extend(call["id"].as_str().map(str::to_owned));
            let arguments = call["arguments"].as_str().unwrap_or_default();
            // As they stand in an answer, and as any reader might write them.
            let escaped = json!(arguments).to_string();
            for (text, quotes) in [(arguments, false), (&escaped, true)] {
                let chars: Vec<char> = text.chars().collect();
                let windows = chars
                    .windows(6)
                    .map(|window| window.iter().collect::<String>());
                secrets.extend(windows.filter(|text: &String| {
                    text.contains(char::is_alphabetic) && (quotes || !text.contains('"'))
                }));
            }
        }
        secrets.retain(|secret| !secret.is_empty());
        secrets
    }
}

/// Every cut of a short stream, some of a long one.
fn cuts(length: usize) -> impl Iterator<Item = usize> {
    let step = if length > 1500 { length / 61 } else { 1 };
    (1..length).step_by(step)
}

/// What the deltas of a stream say, read without any care.
fn said(events: &[Value]) -> Vec<String> {
    let members = ["content", "reasoning", "reasoning_content", "refusal"];
    let mut said = Vec::new();
    for event in events {
        for choice in event["choices"].as_array().into_iter().flatten() {
            let values = members.iter().map(|member| &choice["delta"][member]);
            let values = values.filter(|value| !value.is_null() && **value != "");
            said.extend(values.map(ToString::to_string));
        }
    }
    said
}

fn events(stream: &str) -> Vec<Value> {
    let lines = stream
        .lines()
        .filter_map(|line| line.strip_prefix("data: "));
    lines
        .filter_map(|data| serde_json::from_str(data).ok())
        .collect()
}

fn calls_of(relayed: &Relayed) -> Vec<(String, Option<String>, String, String)> {
    let mut calls = Vec::new();
    for event in relayed.events() {
        for choice in event["choices"].as_array().into_iter().flatten() {
            let delta = &choice["delta"];
            let text = |value: &Value| value.as_str().unwrap().to_owned();
            for call in delta["tool_calls"].as_array().into_iter().flatten() {
                let kind = text(&call["type"]);
                let input = if kind == "custom" {
                    "input"
                } else {
                    "arguments"
                };
                let (name, input) = (text(&call[&kind]["name"]), text(&call[&kind][input]));
                calls.push((kind, Some(text(&call["id"])), name, input));
            }
            if delta["function_call"].is_object() {
                let call = &delta["function_call"];
                let (name, arguments) = (text(&call["name"]), text(&call["arguments"]));
                calls.push(("function_call".to_owned(), None, name, arguments));
            }
        }
    }
    calls
}

fn assert_calls(fixture: &Fixture, got: &[(String, Option<String>, String, String)]) {
    let wanted = fixture.wanted();
    assert_eq!(got.len(), wanted.len(), "{} gives {got:?}", fixture.name);
    for (got, wanted) in got.iter().zip(&wanted) {
        assert_eq!(
            (&got.0, &got.2, &got.3),
            (&wanted.0, &wanted.2, &wanted.3),
            "{}",
            fixture.name
        );
        assert!(wanted.1.is_none() || got.1 == wanted.1, "{}", fixture.name);
    }
}

#[test]
fn allowed_calls_text_and_usage_of_recorded_streams_arrive() {
    for fixture in fixtures("sse") {
        let whole = relay_cut(fixture.stream_rules(true), &fixture.bytes, &[]);
        assert_calls(&fixture, &calls_of(&whole));
        let _ = whole.choices();
        if fixture.delivers() || fixture.calls().is_empty() {
            fixture.check_usage(&whole.tally);
            let input = String::from_utf8_lossy(&fixture.bytes);
            if !fixture.name.contains("framing") && !fixture.name.contains("data-after-done") {
                assert_eq!(
                    said(&whole.events()),
                    said(&events(&input)),
                    "{}",
                    fixture.name
                );
            }
        }
        if !fixture.delivers() && !fixture.calls().is_empty() {
            let refused = whole.tally.error.is_some() || whole.out.contains("malformed_output");
            assert!(refused, "{}: {}", fixture.name, whole.out);
        }
        for cut in cuts(fixture.bytes.len()) {
            let pieces = relay_cut(fixture.stream_rules(true), &fixture.bytes, &[cut]);
            assert_eq!(pieces.out, whole.out, "{} cut at {cut}", fixture.name);
        }
        let every: Vec<usize> = (1..fixture.bytes.len()).collect();
        let bytes = relay_cut(fixture.stream_rules(true), &fixture.bytes, &every);
        assert_eq!(bytes.out, whole.out, "{} byte by byte", fixture.name);
    }
}

#[test]
fn of_denied_calls_in_recorded_streams_nothing_leaves() {
    for fixture in fixtures("sse") {
        let denied = relay_cut(fixture.stream_rules(false), &fixture.bytes, &[]);
        assert_eq!(calls_of(&denied), [], "{}", fixture.name);
        if fixture.calls().is_empty() {
            continue;
        }
        let (mut rest, mut notice) = (String::new(), String::new());
        for mut event in denied.events() {
            if event.get("guard").is_some() {
                notice += &event.to_string();
                continue;
            }
            for choice in event["choices"].as_array_mut().into_iter().flatten() {
                // Text is the model's own; it is no call.
                for member in ["content", "reasoning", "reasoning_content"] {
                    choice["delta"][member] = Value::Null;
                }
            }
            rest += &event.to_string();
        }
        for call in fixture.calls() {
            let name = call["name"].as_str().unwrap_or("\"");
            notice = notice.replace(name, "");
        }
        notice = notice.replace("tool_not_allowlisted", "");
        for secret in fixture.secrets() {
            assert!(
                !rest.contains(&secret),
                "{} leaks {secret:?}: {rest}",
                fixture.name
            );
            assert!(
                !notice.contains(&secret),
                "{} tells {secret:?}: {notice}",
                fixture.name
            );
        }
        for call in fixture.calls() {
            let name = call["name"].as_str().unwrap_or("\"");
            assert!(
                !rest.contains(&format!("\"{name}\"")),
                "{} leaks {name}: {rest}",
                fixture.name
            );
        }
    }
}

#[test]
fn recorded_bodies_are_judged_like_streams() {
    for fixture in fixtures("json") {
        if fixture.status != 200 {
            continue;
        }
        let body = Bytes::from(fixture.bytes.clone());
        let answer = Answer::read(&body, &fixture.rules(true)).unwrap();
        fixture.check_usage(&answer.tally);
        let Body::Send(sent) = answer.body else {
            panic!("{}", fixture.name)
        };
        if fixture.calls().is_empty() {
            assert_eq!(sent, body, "{}", fixture.name);
            continue;
        }
        let sent: Value = serde_json::from_slice(&sent).unwrap();
        let mut calls = Vec::new();
        for choice in sent["choices"].as_array().unwrap() {
            for call in choice["message"]["tool_calls"]
                .as_array()
                .into_iter()
                .flatten()
            {
                let text = |value: &Value| value.as_str().unwrap().to_owned();
                calls.push((
                    text(&call["type"]),
                    Some(text(&call["id"])),
                    text(&call["function"]["name"]),
                    text(&call["function"]["arguments"]),
                ));
            }
        }
        assert_calls(&fixture, &calls);
        let denied = Answer::read(&body, &fixture.rules(false)).unwrap();
        let Body::Send(denied) = denied.body else {
            panic!()
        };
        let denied = String::from_utf8(denied.to_vec()).unwrap();
        for secret in fixture.secrets() {
            let said = String::from_utf8_lossy(&fixture.bytes)
                .matches(&secret)
                .count()
                > 1;
            assert!(
                said || !denied.contains(&secret),
                "{} leaks {secret:?}",
                fixture.name
            );
        }
        assert!(!denied.contains("\"tool_calls\""));
    }
}
