//! A provider that speaks HTTP/2 and resets streams as told.

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use bytes::Bytes;
use h2::{Reason, server};
use http::{Request, Response};
use tokio::{
    net::{TcpListener, TcpStream},
    task::{AbortHandle, JoinSet},
};

/// What becomes of one stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    Answered,
    /// At once, before anything of the body was read.
    Refused,
    /// After the whole request was read.
    Failed,
    /// Answered, and the connection takes no more streams.
    LastOfItsConnection,
}

pub struct H2Upstream {
    pub address: SocketAddr,
    shared: Arc<Shared>,
    accepting: AbortHandle,
}

struct Shared {
    fates: Mutex<Vec<Fate>>,
    streams: AtomicUsize,
    answered: AtomicUsize,
    body: Bytes,
}

impl Drop for H2Upstream {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl H2Upstream {
    /// The fates of the first streams, whatever connection they come on; later ones are answered
    /// with `body`.
    pub async fn start(fates: &[Fate], body: &serde_json::Value) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            fates: Mutex::new(fates.iter().rev().copied().collect()),
            streams: AtomicUsize::new(0),
            answered: AtomicUsize::new(0),
            body: body.to_string().into(),
        });
        let accepting = tokio::spawn(accept(listener, Arc::clone(&shared))).abort_handle();
        Self {
            address,
            shared,
            accepting,
        }
    }

    pub fn streams(&self) -> usize {
        self.shared.streams.load(Ordering::SeqCst)
    }

    pub fn answered(&self) -> usize {
        self.shared.answered.load(Ordering::SeqCst)
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    while let Ok((socket, _)) = listener.accept().await {
        connections.spawn(serve(socket, Arc::clone(&shared)));
    }
}

async fn serve(socket: TcpStream, shared: Arc<Shared>) {
    let mut builder = server::Builder::new();
    builder.max_concurrent_streams(10);
    let Ok(mut connection) = builder.handshake::<_, Bytes>(socket).await else {
        return;
    };
    let mut answers = JoinSet::new();
    while let Some(Ok((request, reply))) = connection.accept().await {
        shared.streams.fetch_add(1, Ordering::SeqCst);
        let fate = shared.fates.lock().unwrap().pop();
        if fate == Some(Fate::LastOfItsConnection) {
            connection.graceful_shutdown();
        }
        let fate = fate.unwrap_or(Fate::Answered);
        answers.spawn(answer(request, reply, fate, Arc::clone(&shared)));
    }
}

async fn answer(
    request: Request<h2::RecvStream>,
    mut reply: server::SendResponse<Bytes>,
    fate: Fate,
    shared: Arc<Shared>,
) {
    if fate == Fate::Refused {
        return reply.send_reset(Reason::REFUSED_STREAM);
    }
    let mut body = request.into_body();
    while let Some(Ok(piece)) = body.data().await {
        let _ = body.flow_control().release_capacity(piece.len());
    }
    if fate == Fate::Failed {
        return reply.send_reset(Reason::INTERNAL_ERROR);
    }
    let head = Response::builder()
        .header("content-type", "application/json")
        .body(())
        .unwrap();
    if let Ok(mut stream) = reply.send_response(head, false) {
        shared.answered.fetch_add(1, Ordering::SeqCst);
        let _ = stream.send_data(shared.body.clone(), true);
    }
}
