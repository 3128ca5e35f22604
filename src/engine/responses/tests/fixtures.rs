//! The recorded answers of all dialects, where they are at hand.

use std::path::{Path, PathBuf};

use bytes::Bytes;
use serde_json::Value;

use super::*;

struct Fixture {
    path: PathBuf,
    bytes: Vec<u8>,
    expect: Value,
}

/// Answers of the Responses API under `folder` whose names end in `ending`.
fn fixtures(folder: &str, ending: &str) -> Vec<Fixture> {
    let home = std::env::var("TALLYGATE_FIXTURES")
        .unwrap_or_else(|_| concat!(env!("CARGO_MANIFEST_DIR"), "/../shared/fixtures").to_owned());
    let mut found = Vec::new();
    collect(&Path::new(&home).join(folder), ending, &mut found);
    if found.is_empty() {
        println!("skipped: no fixtures in {home}");
    }
    found
}

fn collect(folder: &Path, ending: &str, found: &mut Vec<Fixture>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, ending, found);
        } else if path.to_string_lossy().ends_with(ending) && speaks_responses(&path) {
            let side = format!("{}.expect.json", path.display());
            let side: Value = serde_json::from_slice(&std::fs::read(side).unwrap()).unwrap();
            if side["endpoint"]
                .as_str()
                .unwrap_or_default()
                .contains("/responses")
                && side["status"] == 200
            {
                let bytes = std::fs::read(&path).unwrap();
                let expect = side["expect"].clone();
                found.push(Fixture {
                    path,
                    bytes,
                    expect,
                });
            }
        }
    }
}

/// Made answers of other APIs lie beside ours.
fn speaks_responses(path: &Path) -> bool {
    let text = path.to_string_lossy();
    !text.ends_with(".expect.json")
        && (!text.contains("/synthetic/") || text.contains("/responses-"))
}

fn streams() -> Vec<Fixture> {
    let mut all = fixtures("responses", ".sse");
    all.extend(fixtures("synthetic", ".sse"));
    all
}

impl Fixture {
    fn says(&self, verdict: &str) -> bool {
        let said = self.expect["verdict"].as_str().unwrap_or("ok");
        said.starts_with(verdict)
    }

    fn expected_calls(&self) -> Vec<(String, String, Value)> {
        let calls = self.expect["tool_calls"].as_array();
        calls
            .into_iter()
            .flatten()
            .map(|call| {
                let text = |name: &str| call[name].as_str().unwrap_or_default().to_owned();
                (text("id"), text("name"), call["arguments"].clone())
            })
            .collect()
    }
}

/// Id, name as the fixtures have it, and arguments of a call.
fn call(item: &Value) -> (String, String, Value) {
    let text = |name: &str| item[name].as_str().unwrap_or_default().to_owned();
    let kind = text("type");
    let (id, name) = match kind.as_str() {
        "function_call" | "custom_tool_call" => (text("call_id"), text("name")),
        "mcp_approval_request" => (
            text("id"),
            format!("{}/{}", text("server_label"), text("name")),
        ),
        other => (text("call_id"), other.trim_end_matches("_call").to_owned()),
    };
    let members = ["arguments", "input", "action", "operation", "actions"];
    let payload = members.iter().find_map(|name| item.get(*name));
    (id, name, payload.cloned().unwrap_or_default())
}

fn client_calls(items: &[&Value]) -> Vec<(String, String, Value)> {
    let hosted = [
        "web_search_call",
        "file_search_call",
        "code_interpreter_call",
        "image_generation_call",
        "mcp_call",
    ];
    let run_by_client = |item: &&&Value| {
        let kind = item["type"].as_str().unwrap_or_default();
        let provider = item["execution"] == "server"
            || item["environment"]["type"]
                .as_str()
                .is_some_and(|kind| kind.starts_with("container"));
        !hosted.contains(&kind) && !provider
    };
    items
        .iter()
        .filter(run_by_client)
        .map(|item| call(item))
        .collect()
}

fn upstream_text(bytes: &[u8]) -> String {
    Seen::new(&trim_bom(bytes), Tally::default()).text()
}

fn trim_bom(bytes: &[u8]) -> Vec<u8> {
    bytes
        .strip_prefix(b"\xef\xbb\xbf")
        .unwrap_or(bytes)
        .to_vec()
}

fn assert_usage(fixture: &Fixture, tally: &Tally) {
    let expected = &fixture.expect["usage"];
    let Some(input) = expected["input"].as_u64() else {
        return;
    };
    let usage = tally.usage.unwrap().usage;
    assert_eq!(usage.input, input, "{}", fixture.path.display());
    assert_eq!(
        Some(usage.output),
        expected["output"].as_u64(),
        "{}",
        fixture.path.display()
    );
}

#[test]
fn allowed_calls_text_and_usage_arrive_as_they_were_meant() {
    for fixture in streams().iter().filter(|one| one.says("ok")) {
        for delivery in [
            Delivery::default(),
            Delivery {
                each: true,
                as_error: false,
            },
        ] {
            let whole = run(&fixture.bytes, usize::MAX, rules(all, delivery));
            whole.assert_consistent();
            let name = fixture.path.display();
            assert_eq!(
                client_calls(&whole.calls()),
                fixture.expected_calls(),
                "{name}"
            );
            let output = whole.response()["output"]
                .as_array()
                .cloned()
                .unwrap_or_default();
            let output: Vec<&Value> = output
                .iter()
                .filter(|item| {
                    let kind = item["type"].as_str().unwrap_or_default();
                    kind == "mcp_approval_request" || kind.ends_with("_call")
                })
                .collect();
            if !output.is_empty() {
                assert_eq!(client_calls(&output), fixture.expected_calls(), "{name}");
            }
            assert_eq!(whole.text(), upstream_text(&fixture.bytes), "{name}");
            assert_usage(fixture, &whole.tally);
            for size in [1, 7, 1000] {
                let cut = run(&fixture.bytes, size, rules(all, delivery));
                assert_eq!(cut.bytes, whole.bytes, "{name} in pieces of {size}");
            }
        }
    }
}

#[test]
fn an_answer_without_calls_keeps_every_byte() {
    for fixture in streams() {
        // One file misses an item, and gaps in the output are closed.
        let whole = !fixture.path.ends_with("phase.sse");
        let plain = fixture.expected_calls().is_empty() && fixture.expect["errors"].is_null();
        let seen = run(&fixture.bytes, usize::MAX, rules(all, Delivery::default()));
        if plain && whole && !fixture.says("error") && seen.error_code().is_none() {
            let came = String::from_utf8_lossy(&fixture.bytes);
            let mut came = came.split("\n\n");
            let left = String::from_utf8_lossy(&seen.bytes).into_owned();
            for event in left.split("\n\n") {
                let same = came.any(|one| one.trim() == event.trim());
                assert!(same, "{}: {event}", fixture.path.display());
            }
        }
    }
}

/// Everything of a call that must not be seen: ids, arguments, and pieces of them.
fn secrets(fixture: &Fixture) -> Vec<String> {
    let upstream = Seen::new(&trim_bom(&fixture.bytes), Tally::default());
    let mut secrets = Vec::new();
    for (id, _, arguments) in fixture.expected_calls() {
        secrets.push(id);
        match arguments {
            Value::String(text) => secrets.push(
                serde_json::to_string(&text)
                    .unwrap()
                    .trim_matches('"')
                    .to_owned(),
            ),
            Value::Null => {}
            other => secrets.push(other.to_string()),
        }
    }
    for event in &upstream.events {
        let kind = event["type"].as_str().unwrap_or_default();
        if kind.contains("_arguments.")
            || kind.contains("_input.")
            || kind.contains("shell_call_command")
            || kind.contains("_diff.")
        {
            secrets.extend(event["obfuscation"].as_str().map(str::to_owned));
        }
    }
    secrets.retain(|secret| secret.len() > 2);
    secrets
}

#[test]
fn of_denied_calls_nothing_is_seen_but_our_own_words() {
    for fixture in streams() {
        if fixture.expected_calls().is_empty() {
            continue;
        }
        for (each, as_error) in [(false, false), (true, false), (false, true)] {
            let delivery = Delivery { each, as_error };
            let seen = run(&fixture.bytes, usize::MAX, rules(none, delivery));
            let name = fixture.path.display();
            if seen.events.is_empty() {
                assert!(as_error, "{name}");
                continue;
            }
            seen.assert_consistent();
            for secret in secrets(&fixture) {
                assert!(!seen.holds(&secret), "{name}: {secret}");
            }
            for (_, tool, _) in fixture.expected_calls() {
                let said = |event: &Value| {
                    let mut event = event.clone();
                    event["guard"] = Value::Null;
                    // Echoes of the request name what was offered.
                    for echo in ["tools", "instructions", "tool_choice"] {
                        event["response"]
                            .as_object_mut()
                            .map(|object| object.remove(echo));
                    }
                    if let Some(items) = event["response"]["output"].as_array_mut() {
                        items.retain(|item| item["type"] != "tool_search_output");
                    }
                    // So do the definitions that a search brought.
                    if event["item"]["type"] == "tool_search_output" {
                        return false;
                    }
                    let text = event.to_string();
                    !tool.is_empty()
                        && text.contains(&format!("\"{tool}\""))
                        && !text.contains("Blocked by")
                };
                let shown = seen.events.iter().find(|event| said(event));
                assert!(shown.is_none(), "{name}: {tool} in {shown:?}");
            }
            if !as_error && seen.error_code().is_none() {
                assert!(seen.holds("Blocked by Tallygate"), "{name}");
                assert!(client_calls(&seen.calls()).is_empty(), "{name}");
            }
            assert_usage(&fixture, &seen.tally);
        }
    }
}

#[test]
fn verdicts_on_what_was_made_to_mislead() {
    for fixture in fixtures("synthetic", ".sse") {
        let seen = run(&fixture.bytes, usize::MAX, rules(all, Delivery::default()));
        let calls = client_calls(&seen.calls());
        if fixture.says("ambiguous") || fixture.says("incomplete") {
            assert!(calls.is_empty(), "{}", fixture.path.display());
            assert!(seen.holds("malformed_output"), "{}", fixture.path.display());
        } else if fixture.says("error") {
            assert_eq!(seen.error_code(), Some("server_error"));
            assert_eq!(seen.kinds().last(), Some(&"response.failed"));
        }
    }
}

#[test]
fn every_cut_of_a_small_answer_gives_the_same_bytes() {
    for fixture in fixtures("synthetic", ".sse") {
        for allows in [all as Says, none] {
            let whole = run(
                &fixture.bytes,
                usize::MAX,
                rules(allows, Delivery::default()),
            );
            for at in 1..fixture.bytes.len() {
                let mut stream = ResponsesStream::new(rules(allows, Delivery::default()));
                let mut out = Vec::new();
                let (one, other) = fixture.bytes.split_at(at);
                stream.feed(Bytes::copy_from_slice(one), &mut out);
                stream.feed(Bytes::copy_from_slice(other), &mut out);
                stream.end(false, &mut out);
                assert_eq!(
                    out.concat(),
                    whole.bytes,
                    "{} cut at {at}",
                    fixture.path.display()
                );
            }
        }
    }
}

#[test]
fn whole_bodies_are_judged_alike() {
    for fixture in fixtures("responses", ".json") {
        let body = Bytes::from(fixture.bytes.clone());
        let name = fixture.path.display();
        let allowed = whole(&body, call_rules(all, Delivery::default()));
        assert_usage(&fixture, &allowed.tally);
        let value: Value = serde_json::from_slice(&sent(&allowed)).unwrap();
        let items: Vec<&Value> = value["output"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|item| {
                let kind = item["type"].as_str().unwrap_or_default();
                kind == "mcp_approval_request" || kind.ends_with("_call")
            })
            .collect();
        assert_eq!(client_calls(&items), fixture.expected_calls(), "{name}");
        let denied = whole(&body, call_rules(none, Delivery::default()));
        let text = String::from_utf8(sent(&denied).to_vec()).unwrap();
        for (id, _, arguments) in fixture.expected_calls() {
            assert!(!text.contains(&id), "{name}");
            if let Value::String(arguments) = arguments {
                let escaped = serde_json::to_string(&arguments).unwrap();
                assert!(
                    arguments.len() < 3 || !text.contains(escaped.trim_matches('"')),
                    "{name}"
                );
            }
        }
    }
}
