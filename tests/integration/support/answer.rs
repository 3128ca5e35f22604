//! A whole answer, and what a client makes of it.

use bytes::Bytes;
use serde_json::Value;

use super::wire::Head;

#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub head: Head,
    pub body: Bytes,
    /// The body was cut before the end that HTTP says.
    pub cut: bool,
}

/// What the OpenAI SDKs read of an error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiError {
    pub message: String,
    pub kind: String,
    pub code: Option<String>,
    pub param: Option<String>,
}

impl Answer {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.header(name)
    }

    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("a body in UTF-8")
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }

    /// The data of all events but `[DONE]`. Fails on anything an SDK would stumble over: an event
    /// without data, an `event:` line, data after the end.
    pub fn chunks(&self) -> Vec<Value> {
        let text = self.text();
        let frames = text
            .split_terminator("\n\n")
            .filter(|frame| !frame.starts_with(':'));
        let mut chunks = Vec::new();
        let mut done = false;
        for frame in frames {
            assert!(!done, "{frame:?} follows [DONE]");
            let data = frame
                .strip_prefix("data: ")
                .unwrap_or_else(|| panic!("odd event {frame:?}"));
            done = data == "[DONE]";
            if !done {
                chunks.push(
                    serde_json::from_str(data).unwrap_or_else(|_| panic!("odd data {data:?}")),
                );
            }
        }
        chunks
    }

    pub fn is_done(&self) -> bool {
        self.text().ends_with("data: [DONE]\n\n")
    }

    /// The text of the first choice, streamed or not.
    pub fn content(&self) -> String {
        if !self.is_stream() {
            return self.json()["choices"][0]["message"]["content"]
                .as_str()
                .unwrap_or_default()
                .into();
        }
        let chunks = self.chunks();
        chunks
            .iter()
            .filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str())
            .collect()
    }

    pub fn finish_reason(&self) -> Option<String> {
        let chunks = if self.is_stream() {
            self.chunks()
        } else {
            vec![self.json()]
        };
        let mut reasons = chunks
            .iter()
            .filter_map(|c| c["choices"][0]["finish_reason"].as_str());
        reasons.next_back().map(str::to_owned)
    }

    pub fn is_stream(&self) -> bool {
        self.header("content-type")
            .is_some_and(|kind| kind.starts_with("text/event-stream"))
    }

    /// The body as an error in OpenAI's shape, and exactly that shape (R082).
    pub fn error(&self) -> ApiError {
        assert!(
            self.status >= 400,
            "status {} with {}",
            self.status,
            self.text()
        );
        assert_eq!(self.header("content-type"), Some("application/json"));
        ApiError::read(&self.json()["error"])
    }

    /// The error that ends a stream.
    pub fn stream_error(&self) -> ApiError {
        let chunks = self.chunks();
        let last = chunks.last().expect("an event");
        assert!(last.get("error").is_some(), "no error but {last}");
        ApiError::read(&last["error"])
    }

    pub fn code(&self) -> String {
        self.error().code.unwrap_or_default()
    }

    /// Status and code of a refusal, to compare both at once.
    pub fn refusal(&self) -> (u16, String) {
        (self.status, self.code())
    }
}

impl ApiError {
    fn read(error: &Value) -> Self {
        let members = error
            .as_object()
            .unwrap_or_else(|| panic!("{error} is no error object"));
        let names: Vec<_> = members.keys().map(String::as_str).collect();
        assert_eq!(names, ["message", "type", "param", "code"]);
        let text = |name: &str| match &error[name] {
            Value::Null => None,
            Value::String(text) => Some(text.clone()),
            other => panic!("{name} is {other}"),
        };
        Self {
            message: text("message").expect("a message"),
            kind: text("type").expect("a type"),
            param: text("param"),
            code: text("code"),
        }
    }
}
