//! The mock provider: one thread, raw sockets, answers written down in advance. It must cost less
//! than any proxy before it, else the measurement shows the mock.

use std::{io::Read, net::Ipv4Addr, sync::Arc, time::Duration};

use anyhow::Result;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    time::{MissedTickBehavior, interval, sleep},
};

use crate::{
    scenario::{Answer, EVENTS},
    stamp,
    wire::{Message, write_chunk},
};

/// Serves until its standard input closes, so that it never outlives who started it. Prints its
/// port first.
pub fn run() -> Result<()> {
    std::thread::spawn(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(0);
    });
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        println!("{}", listener.local_addr()?.port());
        let script = Arc::new(Script::new());
        loop {
            let (socket, _) = listener.accept().await?;
            socket.set_nodelay(true)?;
            // A peer that goes away ends its own connection only.
            tokio::spawn(serve(socket, script.clone()));
        }
    })
}

async fn serve(mut socket: TcpStream, script: Arc<Script>) -> Result<()> {
    let mut buffer = vec![0; 16 * 1024];
    loop {
        let mut request = Message::default();
        let mut start = Vec::new();
        loop {
            let read = socket.read(&mut buffer).await?;
            if read == 0 {
                return Ok(());
            }
            let keep = |data: &[u8]| {
                let room = ANSWER_STANDS_WITHIN
                    .saturating_sub(start.len())
                    .min(data.len());
                start.extend_from_slice(&data[..room]);
            };
            if request.feed(&buffer[..read], keep)? {
                break;
            }
        }
        answer(&mut socket, &script, Answer::asked_by(&start)).await?;
    }
}

async fn answer(socket: &mut TcpStream, script: &Script, answer: Answer) -> Result<()> {
    match answer {
        Answer::Json => socket.write_all(&script.json).await?,
        Answer::Burst => {
            let mut all = script.text.whole.clone();
            let now = stamp::now();
            script
                .text
                .stamps
                .iter()
                .for_each(|at| stamp::write(&mut all, *at, now));
            socket.write_all(&all).await?;
        }
        Answer::Each => one_by_one(socket, &script.text, None).await?,
        Answer::Tools => one_by_one(socket, &script.tools, None).await?,
        Answer::Paced => one_by_one(socket, &script.text, Some(PACE)).await?,
        Answer::Idle => {
            socket
                .write_all(&script.text.whole[..script.text.ends[1]])
                .await?;
            let gone = async { socket.read(&mut [0; 1]).await.map(|_| ()) };
            tokio::select! {
                _ = gone => {}
                () = sleep(LONGEST_SILENCE) => {}
            }
            anyhow::bail!("an idle stream ends with its connection");
        }
    }
    Ok(())
}

/// Each event in a write of its own; without a pace the other streams get a turn in between.
async fn one_by_one(socket: &mut TcpStream, stream: &Stream, pace: Option<Duration>) -> Result<()> {
    let mut all = stream.whole.clone();
    let mut ticks = pace.map(interval);
    if let Some(ticks) = &mut ticks {
        ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    }
    let mut stamps = stream.stamps.iter().peekable();
    let mut start = 0;
    for end in &stream.ends {
        match &mut ticks {
            Some(ticks) => drop(ticks.tick().await),
            None => tokio::task::yield_now().await,
        }
        if let Some(at) = stamps.next_if(|at| *at < end) {
            stamp::write(&mut all, *at, stamp::now());
        }
        socket.write_all(&all[start..*end]).await?;
        start = *end;
    }
    Ok(())
}

/// The events of the text stream, as they stand in its body.
pub fn text_events() -> Vec<Vec<u8>> {
    bodies(text_deltas(), "stop")
}

/// The events of an answer with one call, whose arguments come in these pieces (escaped for JSON).
pub fn call_events(pieces: impl Iterator<Item = String>) -> Vec<Vec<u8>> {
    let pieces = pieces.map(|piece| format!("{FRAGMENT}{piece}\"}}}}]}}"));
    bodies(
        std::iter::once(OPENING.to_owned()).chain(pieces),
        "tool_calls",
    )
}

fn bodies(deltas: impl Iterator<Item = String>, finish: &str) -> Vec<Vec<u8>> {
    let events = deltas.map(|delta| event(&delta, "null"));
    let ending = [
        event("{}", &format!("\"{finish}\"")),
        format!("data: {{{CHUNK},\"choices\":[],{USAGE}}}\n\n"),
        "data: [DONE]\n\n".to_owned(),
    ];
    events.chain(ending).map(String::into_bytes).collect()
}

fn stamped(before: &str, after: &str) -> String {
    format!("{before}{}{after}", stamp::BLANK)
}

fn text_deltas() -> impl Iterator<Item = String> {
    std::iter::once(r#"{"role":"assistant","content":"","refusal":null}"#.into())
        .chain((0..EVENTS).map(|_| stamped(r#"{"content":" "#, r#""}"#)))
}

/// The tool that the calls are of.
pub const TOOL: &str = "write_note";
const FRAGMENT: &str = r#"{"tool_calls":[{"index":0,"function":{"arguments":""#;
const OPENING: &str = r#"{"role":"assistant","content":null,"tool_calls":[{"index":0,"id":"call_2Wq8LxVn0Rz5","type":"function","function":{"name":"write_note","arguments":""}}],"refusal":null}"#;

/// Every answer, written down once.
struct Script {
    json: Vec<u8>,
    text: Stream,
    tools: Stream,
}

/// A streamed answer from the status line to the last chunk.
#[derive(Default)]
struct Stream {
    whole: Vec<u8>,
    /// Where each event (with the HTTP chunk around it) ends; the head belongs to the first.
    ends: Vec<usize>,
    /// Where the stamps of the events stand.
    stamps: Vec<usize>,
}

impl Script {
    fn new() -> Self {
        let tools = [
            OPENING.into(),
            format!(r#"{FRAGMENT}{{\"text\":\""}}}}]}}"#),
        ]
        .into_iter()
        .chain((0..EVENTS).map(|_| stamped(FRAGMENT, r#""}}]}"#)))
        .chain([format!(r#"{FRAGMENT}\"}}"}}}}]}}"#)]);
        Self {
            json: json_answer(),
            text: Stream::new(text_deltas(), "stop"),
            tools: Stream::new(tools, "tool_calls"),
        }
    }
}

impl Stream {
    fn new(deltas: impl Iterator<Item = String>, finish: &str) -> Self {
        let mut stream = Self {
            whole: STREAM_HEAD.into(),
            ..Self::default()
        };
        for delta in deltas {
            stream.push(&event(&delta, "null"));
        }
        stream.push(&event("{}", &format!("\"{finish}\"")));
        stream.push(&format!("data: {{{CHUNK},\"choices\":[],{USAGE}}}\n\n"));
        stream.push("data: [DONE]\n\n");
        stream.whole.extend_from_slice(b"0\r\n\r\n");
        if let Some(end) = stream.ends.last_mut() {
            *end = stream.whole.len();
        }
        stream
    }

    fn push(&mut self, event: &str) {
        let start = self.whole.len();
        write_chunk(&mut self.whole, event.as_bytes());
        let stamp = memchr::memchr(stamp::MARK, &self.whole[start..]);
        self.stamps.extend(stamp.map(|at| start + at));
        self.ends.push(self.whole.len());
    }
}

fn event(delta: &str, finish: &str) -> String {
    format!(
        "data: {{{CHUNK},\"choices\":[{{\"index\":0,\"delta\":{delta},\"logprobs\":null,\
         \"finish_reason\":{finish}}}],\"usage\":null}}\n\n"
    )
}

fn json_answer() -> Vec<u8> {
    let body = format!(
        "{{\"id\":\"chatcmpl-CwT5mXq0uB8yKd3Zr\",\"object\":\"chat.completion\",\
         \"created\":1790000000,\"model\":\"gpt-4o-mini-2024-07-18\",\"choices\":[{{\"index\":0,\
         \"message\":{{\"role\":\"assistant\",\"content\":\"A fox is quick, a dog is lazy, and \
         both are content with that.\",\"refusal\":null,\"annotations\":[]}},\"logprobs\":null,\
         \"finish_reason\":\"stop\"}}],{USAGE},\"service_tier\":\"default\",\
         \"system_fingerprint\":\"fp_5a1c0d9e77\"}}"
    );
    format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\
         x-request-id: req_7f1e5a1c0d9e\r\nopenai-version: 2020-10-01\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

const STREAM_HEAD: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n\
    cache-control: no-cache\r\ntransfer-encoding: chunked\r\nx-request-id: req_7f1e5a1c0d9e\r\n\
    openai-version: 2020-10-01\r\n\r\n";
const CHUNK: &str = "\"id\":\"chatcmpl-CwT5mXq0uB8yKd3Zr\",\"object\":\"chat.completion.chunk\",\
    \"created\":1790000000,\"model\":\"gpt-4o-mini-2024-07-18\",\"service_tier\":\"default\",\
    \"system_fingerprint\":\"fp_5a1c0d9e77\"";
const USAGE: &str = "\"usage\":{\"prompt_tokens\":42,\"completion_tokens\":200,\
    \"total_tokens\":242,\"prompt_tokens_details\":{\"cached_tokens\":0,\"audio_tokens\":0},\
    \"completion_tokens_details\":{\"reasoning_tokens\":0,\"audio_tokens\":0,\
    \"accepted_prediction_tokens\":0,\"rejected_prediction_tokens\":0}}";

const PACE: Duration = Duration::from_millis(10);
const LONGEST_SILENCE: Duration = Duration::from_secs(120);
/// Bytes of a body that are searched for the wanted answer.
const ANSWER_STANDS_WITHIN: usize = 1024;
