//! A provider on a port of its own, scripted by the test.

use std::{
    collections::VecDeque,
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use bytes::{Bytes, BytesMut};
use serde_json::Value;
use tokio::{
    net::TcpListener,
    sync::watch,
    task::{AbortHandle, JoinSet},
};

use super::{
    reply::{Act, Ending, Reply, usage},
    wire::{Framing, Head, Wire},
    within,
};

/// A request as it arrived.
#[derive(Debug, Clone)]
pub struct Captured {
    pub method: String,
    /// With the query.
    pub path: String,
    pub head: Head,
    pub body: Bytes,
}

impl Captured {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.header(name)
    }

    /// `null` when the body is none.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    /// Everything that arrived, as text: to look for what must not be there.
    pub fn everything(&self) -> String {
        format!("{:?}\n{}", self.head, String::from_utf8_lossy(&self.body))
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Counts {
    hits: usize,
    in_flight: usize,
    connections: usize,
    open_connections: usize,
    closed_early: usize,
    /// Raised to close the connections that carry no request.
    idle_closings: usize,
}

type Answering = Arc<dyn Fn(&Captured) -> Reply + Send + Sync>;

struct Shared {
    counts: watch::Sender<Counts>,
    captured: Mutex<Vec<Captured>>,
    queue: Mutex<VecDeque<Reply>>,
    default: Mutex<Answering>,
}

/// Dropped, it closes its port and all its connections.
pub struct Upstream {
    address: SocketAddr,
    shared: Arc<Shared>,
    accepting: AbortHandle,
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl Upstream {
    /// Answers "Hello there." with 10 prompt and 5 completion tokens until told otherwise.
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let hello: Answering =
            Arc::new(|request| Reply::says("Hello there.", usage(10, 5), request));
        let shared = Arc::new(Shared {
            counts: watch::Sender::default(),
            captured: Mutex::default(),
            queue: Mutex::default(),
            default: Mutex::new(hello),
        });
        let address = listener.local_addr().unwrap();
        let accepting = tokio::spawn(accept(listener, Arc::clone(&shared))).abort_handle();
        Self {
            address,
            shared,
            accepting,
        }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The answer to every request that no queued reply takes.
    pub fn replies(&self, reply: Reply) {
        self.replies_with(move |_| reply.clone());
    }

    pub fn replies_with(&self, answering: impl Fn(&Captured) -> Reply + Send + Sync + 'static) {
        *self.shared.default.lock().unwrap() = Arc::new(answering);
    }

    /// Says `text` and reports `usage`, streamed or not as asked.
    pub fn says(&self, text: &str, usage: Value) {
        let text = text.to_owned();
        self.replies_with(move |request| Reply::says(&text, usage.clone(), request));
    }

    /// The answer to the next request, after those queued before.
    pub fn replies_once(&self, reply: Reply) {
        self.shared.queue.lock().unwrap().push_back(reply);
    }

    /// Requests that arrived whole.
    pub fn hits(&self) -> usize {
        self.counts().hits
    }

    /// Requests being answered.
    pub fn in_flight(&self) -> usize {
        self.counts().in_flight
    }

    /// Connections ever accepted.
    pub fn connections(&self) -> usize {
        self.counts().connections
    }

    pub fn requests(&self) -> Vec<Captured> {
        self.shared.captured.lock().unwrap().clone()
    }

    pub fn last_request(&self) -> Captured {
        self.requests()
            .pop()
            .expect("a request reached the upstream")
    }

    pub async fn hit(&self, times: usize) {
        self.until(&format!("{times} upstream hits"), |counts| {
            counts.hits >= times
        })
        .await;
    }

    /// Returns when the proxy has left that many answers before their end.
    pub async fn left_early(&self, times: usize) {
        self.until(&format!("{times} left answers"), |counts| {
            counts.closed_early >= times
        })
        .await;
    }

    pub async fn idle(&self) {
        self.until("an idle upstream", |counts| counts.in_flight == 0)
            .await;
    }

    /// Closes the connections that carry no request, as servers do with idle ones.
    pub async fn close_idle(&self) {
        self.shared
            .counts
            .send_modify(|counts| counts.idle_closings += 1);
        self.until("closed connections", |counts| {
            counts.open_connections == counts.in_flight
        })
        .await;
    }

    async fn until(&self, what: &str, reached: impl Fn(&Counts) -> bool) {
        let mut counts = self.shared.counts.subscribe();
        within(what, counts.wait_for(reached)).await.unwrap();
    }

    fn counts(&self) -> Counts {
        *self.shared.counts.borrow()
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    // Dropped with this task, and all connections with it.
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let shared = Arc::clone(&shared);
        shared.counts.send_modify(|counts| {
            counts.connections += 1;
            counts.open_connections += 1;
        });
        connections.spawn(async move {
            serve(Wire::new(stream), &shared).await;
            shared
                .counts
                .send_modify(|counts| counts.open_connections -= 1);
        });
    }
}

async fn serve(mut wire: Wire, shared: &Shared) {
    loop {
        let mut counts = shared.counts.subscribe();
        let closings = counts.borrow_and_update().idle_closings;
        let request = tokio::select! {
            biased;
            request = read_request(&mut wire) => request,
            _ = counts.wait_for(|counts| counts.idle_closings > closings) => return,
        };
        let Some(request) = request else { return };
        let reply = shared.reply_to(request);
        let answered = play(&mut wire, &reply).await;
        shared.counts.send_modify(|counts| {
            counts.in_flight -= 1;
            counts.closed_early += usize::from(answered == Played::LeftEarly);
        });
        match (answered, reply.ending) {
            (Played::ToTheEnd, Ending::Whole) => {}
            (Played::ToTheEnd, Ending::Reset) => return wire.reset(),
            _ => return,
        }
    }
}

async fn read_request(wire: &mut Wire) -> Option<Captured> {
    let head = wire.read_head().await.ok()??;
    let mut framing = Framing::of_request(&head);
    let mut body = BytesMut::new();
    while let Some(piece) = wire.next_piece(&mut framing).await.ok()? {
        body.extend_from_slice(&piece);
    }
    let mut words = head.start_line.split(' ').map(str::to_owned);
    let (method, path) = (words.next()?, words.next()?);
    Some(Captured {
        method,
        path,
        head,
        body: body.freeze(),
    })
}

impl Shared {
    fn reply_to(&self, request: Captured) -> Reply {
        let queued = self.queue.lock().unwrap().pop_front();
        let reply = queued.unwrap_or_else(|| {
            let answering = Arc::clone(&self.default.lock().unwrap());
            answering(&request)
        });
        self.captured.lock().unwrap().push(request);
        self.counts.send_modify(|counts| {
            counts.hits += 1;
            counts.in_flight += 1;
        });
        reply
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Played {
    ToTheEnd,
    LeftEarly,
}

async fn play(wire: &mut Wire, reply: &Reply) -> Played {
    if let Some(gate) = &reply.before_head
        && wait(wire, gate).await == Played::LeftEarly
    {
        return Played::LeftEarly;
    }
    if wire.write(head(reply).as_bytes()).await.is_err() {
        return Played::LeftEarly;
    }
    let chunked = reply.length().is_none();
    for act in &reply.acts {
        let played = match act {
            Act::Piece(bytes) if chunked => write(wire, &chunk(bytes)).await,
            Act::Piece(bytes) => write(wire, bytes).await,
            Act::Wait(gate) => wait(wire, gate).await,
        };
        if played == Played::LeftEarly {
            return played;
        }
    }
    match reply.ending {
        Ending::Whole | Ending::WholeThenClosed if chunked => write(wire, &chunk(b"")).await,
        Ending::Hang => {
            wire.closed().await;
            Played::LeftEarly
        }
        _ => Played::ToTheEnd,
    }
}

fn head(reply: &Reply) -> String {
    let headers: String = reply
        .headers
        .iter()
        .map(|(name, value)| format!("{name}: {value}\r\n"))
        .collect();
    let framing = match reply.length() {
        Some(length) => format!("content-length: {length}"),
        None => "transfer-encoding: chunked".to_owned(),
    };
    format!(
        "HTTP/1.1 {} Scripted\r\n{framing}\r\n{headers}\r\n",
        reply.status
    )
}

/// The empty one ends the body.
fn chunk(bytes: &[u8]) -> Vec<u8> {
    [format!("{:x}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat()
}

async fn write(wire: &mut Wire, bytes: &[u8]) -> Played {
    match wire.write(bytes).await {
        Ok(()) => Played::ToTheEnd,
        Err(_) => Played::LeftEarly,
    }
}

async fn wait(wire: &mut Wire, gate: &super::Gate) -> Played {
    tokio::select! {
        biased;
        () = gate.passed() => Played::ToTheEnd,
        () = wire.closed() => Played::LeftEarly,
    }
}
