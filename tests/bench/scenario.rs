//! What is asked: the requests, in OpenAI's form, and how many connections ask at once.

use std::time::Duration;

/// Events of one stream that carry a stamp.
pub const EVENTS: usize = 200;
/// The client key, of which the generated configuration holds the digest.
pub const KEY: &str = "tg-load-key";
/// Requests a second in the latency measurement.
pub const FIXED_RATE: u32 = 1_500;

/// How the mock provider answers. The request says it in `user`, which proxies leave alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    Json,
    /// A stream whose events arrive together.
    Burst,
    /// A stream in which each event is a write of its own.
    Each,
    /// An event every 10 ms.
    Paced,
    /// The arguments of one tool call in fragments, each a write of its own.
    Tools,
    /// One event, then silence for as long as the client stays.
    Idle,
}

impl Answer {
    const ALL: [Self; 6] = [
        Self::Json,
        Self::Burst,
        Self::Each,
        Self::Paced,
        Self::Tools,
        Self::Idle,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Json => "bench-json",
            Self::Burst => "bench-burst",
            Self::Each => "bench-each",
            Self::Paced => "bench-paced",
            Self::Tools => "bench-tools",
            Self::Idle => "bench-idle",
        }
    }

    /// The answer that a request's body asks for.
    pub fn asked_by(body: &[u8]) -> Self {
        let names = |answer: &Self| memchr::memmem::find(body, answer.name().as_bytes()).is_some();
        Self::ALL.into_iter().find(names).unwrap_or(Self::Json)
    }
}

/// A load that is put on each target in turn.
pub struct Load {
    pub name: &'static str,
    pub answer: Answer,
    pub connections: usize,
    /// No exchange begins later than this; those that run are waited for.
    pub span: Duration,
    /// Bytes of the user's message.
    pub message: usize,
}

/// The closed loops of a round, in the order of the table.
pub fn loads(scale: f64) -> Vec<Load> {
    let load = |name, answer, connections, seconds: f64, message| Load {
        name,
        answer,
        connections,
        span: Duration::from_secs_f64(seconds * scale),
        message,
    };
    vec![
        load("small", Answer::Json, 64, 3.0, 120),
        load("burst", Answer::Burst, 16, 2.0, 120),
        load("each", Answer::Each, 16, 2.0, 120),
        load("paced", Answer::Paced, 64, 2.0, 120),
        load("half", Answer::Paced, 350, 2.0, 120),
        load("tools", Answer::Tools, 16, 2.0, 120),
        load("large", Answer::Json, 8, 2.0, 1 << 20),
    ]
}

/// One request as it goes over the wire.
pub fn request(answer: Answer, message: usize) -> Vec<u8> {
    let stream = match answer {
        Answer::Json => "",
        _ => r#""stream":true,"stream_options":{"include_usage":true},"#,
    };
    let tools = match answer {
        Answer::Tools => TOOLS,
        _ => "",
    };
    let words = "the quick brown fox jumps over the lazy dog ";
    let text = words.chars().cycle().take(message).collect::<String>();
    let body = format!(
        "{{\"model\":\"gpt-4o-mini\",\"user\":\"{}\",{stream}{tools}\"temperature\":0.2,\
         \"messages\":[{{\"role\":\"system\",\"content\":\"You are a helpful assistant.\"}},\
         {{\"role\":\"user\",\"content\":\"{text}\"}}]}}",
        answer.name(),
    );
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\naccept: application/json\r\n\
         content-type: application/json\r\nauthorization: Bearer {KEY}\r\n\
         user-agent: OpenAI/Python 3.3.0\r\nx-stainless-lang: python\r\n\
         x-stainless-retry-count: 0\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    [head, body].concat().into_bytes()
}

const TOOLS: &str = "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"write_note\",\
    \"description\":\"Keeps a note\",\"parameters\":{\"type\":\"object\",\"properties\":\
    {\"text\":{\"type\":\"string\"}},\"required\":[\"text\"]}}}],";
