//! A client: reads events strictly and holds them to what SDK helpers rely on.

use serde_json::Value;

use crate::engine::{chat::Tally, sse};

pub struct Seen {
    pub bytes: Vec<u8>,
    pub events: Vec<Value>,
    pub tally: Tally,
}

impl Seen {
    pub fn new(bytes: &[u8], tally: Tally) -> Self {
        let mut events = Vec::new();
        let mut at = 0;
        while let Some(event) = sse::next_event(bytes, at) {
            at = event.bytes.end;
            if !event.data.is_empty() {
                let data = event.data(bytes);
                if data.starts_with(b"[DONE]") {
                    continue;
                }
                let value: Value = serde_json::from_slice(&data).unwrap();
                let lines = String::from_utf8_lossy(&bytes[event.bytes]).into_owned();
                if let Some(name) = lines.lines().find_map(|line| line.strip_prefix("event: ")) {
                    assert_eq!(value["type"], name);
                }
                events.push(value);
            }
        }
        assert_eq!(at, bytes.len(), "a whole number of events");
        Self {
            bytes: bytes.to_vec(),
            events,
            tally,
        }
    }

    pub fn kinds(&self) -> Vec<&str> {
        let kinds = self.events.iter();
        kinds.filter_map(|event| event["type"].as_str()).collect()
    }

    pub fn text(&self) -> String {
        let deltas = self.events.iter();
        deltas
            .filter(|event| event["type"] == "response.output_text.delta")
            .filter_map(|event| event["delta"].as_str())
            .collect()
    }

    /// Items as their last event gives them, in the order of their places.
    pub fn items(&self) -> Vec<&Value> {
        let done = self.events.iter();
        done.filter(|event| event["type"] == "response.output_item.done")
            .map(|event| &event["item"])
            .collect()
    }

    pub fn calls(&self) -> Vec<&Value> {
        let call = |item: &&Value| {
            let kind = item["type"].as_str().unwrap_or_default();
            kind == "mcp_approval_request" || kind.ends_with("_call")
        };
        self.items().into_iter().filter(call).collect()
    }

    /// The response object at the end.
    pub fn response(&self) -> &Value {
        &self.events.last().unwrap()["response"]
    }

    pub fn error_code(&self) -> Option<&str> {
        let error = self.events.iter().find(|event| event["type"] == "error");
        error?["error"]["code"].as_str()
    }

    pub fn holds(&self, text: &str) -> bool {
        memchr::memmem::find(&self.bytes, text.as_bytes()).is_some()
    }

    /// What a helper takes for granted: numbers rise, items get places in turn and keep them,
    /// pieces belong to items that began, and the end says the same as the events before it.
    pub fn assert_consistent(&self) {
        let mut last = None;
        let mut items: Vec<Option<&Value>> = Vec::new();
        for event in &self.events {
            if let Some(number) = event["sequence_number"].as_u64() {
                assert!(last.is_none_or(|last| number > last), "{event}");
                last = Some(number);
            }
            let Some(index) = event["output_index"].as_u64() else {
                continue;
            };
            let index = usize::try_from(index).unwrap();
            match event["type"].as_str().unwrap() {
                "response.output_item.added" => {
                    assert_eq!(index, items.len(), "{event}");
                    items.push(None);
                }
                "response.output_item.done" => items[index] = Some(&event["item"]),
                _ => assert!(index < items.len(), "{event}"),
            }
        }
        let end = self.events.last().unwrap();
        let status = end["type"].as_str().unwrap();
        let Some(output) = end["response"]["output"].as_array() else {
            return;
        };
        if status != "response.failed" && !output.is_empty() {
            assert_eq!(output.len(), items.len(), "{end}");
            for (item, last) in items.iter().zip(output) {
                let item = item.unwrap();
                for member in ["type", "call_id", "name", "arguments", "input", "action"] {
                    assert_eq!(item[member], last[member], "{end}");
                }
            }
        }
    }
}
