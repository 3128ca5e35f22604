//! An application: sends a request and sees the answer as it arrives on the socket.

use std::net::SocketAddr;

use bytes::{Bytes, BytesMut};
use serde_json::{Value, json};
use tokio::net::TcpStream;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::{
    Answer,
    wire::{Framing, Head, Wire},
    within,
};

/// Opens a connection for each request.
#[derive(Debug, Clone)]
pub struct Client {
    address: SocketAddr,
    key: Option<String>,
}

impl Client {
    pub fn new(address: SocketAddr, key: &str) -> Self {
        Self {
            address,
            key: Some(key.to_owned()),
        }
    }

    pub fn without_key(&self) -> Self {
        Self {
            address: self.address,
            key: None,
        }
    }

    /// The same credential elsewhere.
    pub fn at(&self, address: SocketAddr) -> Self {
        Self {
            address,
            ..self.clone()
        }
    }

    /// Asks m-small, not streamed.
    pub async fn chat(&self, text: &str) -> Answer {
        self.chat_with(text, json!({})).await
    }

    /// The same with `members` added to the body, or put in place of its own.
    pub async fn chat_with(&self, text: &str, members: Value) -> Answer {
        self.chat_request(text, members).answer().await
    }

    /// Asks m-small of a proxy that may be killed meanwhile: the status, if one came.
    pub async fn tries(&self, text: &str) -> Option<u16> {
        let body = json!({"model": "m-small", "messages": [{"role": "user", "content": text}]})
            .to_string();
        let key = self.key.as_deref().unwrap_or_default();
        let head = format!(
            "POST /v1/chat/completions HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {key}\r\n\
             connection: close\r\ncontent-length: {}\r\n\r\n",
            self.address,
            body.len()
        );
        let mut socket = tokio::net::TcpStream::connect(self.address).await.ok()?;
        socket.write_all((head + &body).as_bytes()).await.ok()?;
        let mut answer = Vec::new();
        socket.read_to_end(&mut answer).await.ok()?;
        let status = answer.get(9..12)?;
        std::str::from_utf8(status).ok()?.parse().ok()
    }

    /// Asks m-small for a stream and returns when its head has come.
    pub async fn stream(&self, text: &str) -> Open {
        self.stream_with(text, json!({})).await
    }

    pub async fn stream_with(&self, text: &str, members: Value) -> Open {
        let mut streamed = json!({"stream": true});
        merge(&mut streamed, members);
        self.chat_request(text, streamed).send().await
    }

    pub fn chat_request(&self, text: &str, members: Value) -> Request {
        let mut body = json!({"model": "m-small", "messages": [{"role": "user", "content": text}]});
        merge(&mut body, members);
        self.post("/v1/chat/completions", body.to_string())
    }

    /// A JSON body, as far as the header goes.
    pub fn post(&self, path: &str, body: impl Into<Bytes>) -> Request {
        self.request("POST", path)
            .header("content-type", "application/json")
            .body(body)
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.request("GET", path).answer().await
    }

    pub fn request(&self, method: &str, path: &str) -> Request {
        let mut headers = vec![("host".to_owned(), self.address.to_string())];
        headers.extend(
            self.key
                .iter()
                .map(|key| ("authorization".to_owned(), format!("Bearer {key}"))),
        );
        Request {
            address: self.address,
            method: method.to_owned(),
            path: path.to_owned(),
            headers,
            body: Bytes::new(),
        }
    }

    /// Sends bytes that may be no HTTP at all.
    pub async fn raw(&self, bytes: &[u8]) -> Answer {
        open(self.address, bytes, "POST").await.answer().await
    }
}

fn merge(body: &mut Value, members: Value) {
    let Value::Object(members) = members else {
        panic!("members are an object")
    };
    for (name, value) in members {
        body[name] = value;
    }
}

#[derive(Debug, Clone)]
pub struct Request {
    address: SocketAddr,
    method: String,
    path: String,
    headers: Vec<(String, String)>,
    body: Bytes,
}

impl Request {
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub fn body(mut self, body: impl Into<Bytes>) -> Self {
        self.body = body.into();
        self
    }

    /// Returns when the head of the answer has come.
    pub async fn send(self) -> Open {
        open(self.address, &self.bytes(), &self.method).await
    }

    pub async fn answer(self) -> Answer {
        self.send().await.answer().await
    }

    /// Sends the request and returns without reading: for a client that leaves.
    pub async fn send_only(self) -> Waiting {
        Waiting(connect(self.address, &self.bytes()).await)
    }

    fn bytes(&self) -> Vec<u8> {
        let mut head = format!("{} {} HTTP/1.1\r\n", self.method, self.path);
        for (name, value) in &self.headers {
            head += &format!("{name}: {value}\r\n");
        }
        if !self.body.is_empty() || self.method == "POST" {
            head += &format!("content-length: {}\r\n", self.body.len());
        }
        [head.as_bytes(), b"\r\n", &self.body].concat()
    }
}

/// A request whose answer nobody has read yet. Dropped, the client has left.
pub struct Waiting(#[expect(dead_code, reason = "held open until dropped")] Wire);

async fn connect(address: SocketAddr, bytes: &[u8]) -> Wire {
    let stream = TcpStream::connect(address).await.unwrap();
    let mut wire = Wire::new(stream);
    // Node's SDK gives up on a connection that closes while it sends, and never reads the refusal.
    let sent = within("a request to be taken", wire.write(bytes)).await;
    sent.expect("a request is read to its end, refused or not");
    wire
}

async fn open(address: SocketAddr, bytes: &[u8], method: &str) -> Open {
    let mut wire = connect(address, bytes).await;
    let head = within("the head of an answer", wire.read_head()).await;
    let head = head
        .unwrap()
        .expect("the connection was closed without an answer");
    let status = head
        .start_line
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok());
    let framing = Framing::of_response(&head, method);
    Open {
        status: status.expect("a status"),
        head,
        wire,
        framing,
        cut: false,
    }
}

/// An answer whose head has come. Dropped, the client has left.
pub struct Open {
    pub status: u16,
    pub head: Head,
    wire: Wire,
    framing: Framing,
    cut: bool,
}

impl Open {
    /// The next bytes as they arrive; `None` at the end, also at an early one.
    pub async fn next_piece(&mut self) -> Option<Bytes> {
        let piece = within(
            "a piece of an answer",
            self.wire.next_piece(&mut self.framing),
        )
        .await;
        self.cut |= piece.is_err();
        piece.ok().flatten()
    }

    /// Reads until `text` was received, and returns all since the call.
    pub async fn until(&mut self, text: &str) -> String {
        let mut seen = BytesMut::new();
        while memchr::memmem::find(&seen, text.as_bytes()).is_none() {
            let piece = self.next_piece().await;
            let so_far = String::from_utf8_lossy(&seen);
            seen.extend_from_slice(&piece.unwrap_or_else(|| panic!("no {text:?} in {so_far:?}")));
        }
        String::from_utf8(seen.to_vec()).unwrap()
    }

    /// The rest of it, to the end.
    pub async fn answer(mut self) -> Answer {
        let mut body = BytesMut::new();
        while let Some(piece) = self.next_piece().await {
            body.extend_from_slice(&piece);
        }
        Answer {
            status: self.status,
            head: self.head,
            body: body.freeze(),
            cut: self.cut,
        }
    }
}
