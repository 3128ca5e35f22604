//! Listeners and connections of both planes. The data plane has one current-thread runtime for
//! each worker, each with its own `SO_REUSEPORT` socket, so that workers share nothing.
//!
//! What is done with a request is `proxy`'s and `admin`'s business; this file knows sockets and
//! draining.

use std::{convert::Infallible, error::Error, future::Future, io, net::SocketAddr, time::Duration};

use http_body::Body as HttpBody;
use hyper::{Request, Response, body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::graceful::GracefulShutdown,
};
use socket2::{Domain, Protocol, Socket, Type};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
};

/// A client that has not sent its request head by then is dropped.
const HEADER_READ_TIMEOUT: Duration = Duration::from_secs(30);
/// Pause after a failed `accept` (out of file descriptors), so that it cannot spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
const BACKLOG: i32 = 4096;

/// Binds `count` sockets to one address. Fails if anything else listens there already.
pub fn bind(address: SocketAddr, count: usize) -> io::Result<Vec<std::net::TcpListener>> {
    // `SO_REUSEPORT` would let a second process share the port unnoticed: a first bind
    // without it finds out.
    if address.port() != 0 {
        drop(socket(address, false)?);
    }
    let first = socket(address, true)?;
    let address = first.local_addr()?;
    let mut sockets = vec![first];
    while sockets.len() < count.max(1) {
        sockets.push(socket(address, true)?);
    }
    Ok(sockets)
}

fn socket(address: SocketAddr, share: bool) -> io::Result<std::net::TcpListener> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM,
        Some(Protocol::TCP),
    )?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(share)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// Serves until `stop` turns true, then lets open requests finish within `drain`.
pub async fn serve<H, F, B>(
    listener: TcpListener,
    handler: H,
    mut stop: watch::Receiver<bool>,
    drain: Duration,
) where
    H: Fn(Request<Incoming>, SocketAddr) -> F + Clone + Send + 'static,
    F: Future<Output = Response<B>> + Send + 'static,
    B: HttpBody + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(HEADER_READ_TIMEOUT);
    let open = GracefulShutdown::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stop.wait_for(|stop| *stop) => break,
        };
        match accepted {
            Ok((stream, peer)) => connect(&http, &open, handler.clone(), stream, peer),
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    drop(listener);
    if tokio::time::timeout(drain, open.shutdown()).await.is_err() {
        tracing::warn!(
            seconds = drain.as_secs(),
            "drain timed out: open requests are cut"
        );
    }
}

/// Serves one connection beside the others, to its end.
fn connect<H, F, B>(
    http: &http1::Builder,
    open: &GracefulShutdown,
    handler: H,
    stream: TcpStream,
    peer: SocketAddr,
) where
    H: Fn(Request<Incoming>, SocketAddr) -> F + Send + 'static,
    F: Future<Output = Response<B>> + Send + 'static,
    B: HttpBody + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    // Without it first bytes wait for the peer's acknowledgement (170 ms were measured).
    let _ = stream.set_nodelay(true);
    let service = service_fn(move |request| {
        // On the heap, so that its room is free again while the answer streams.
        let answer = Box::pin(handler(request, peer));
        async move { Ok::<_, Infallible>(answer.await) }
    });
    let connection = open.watch(http.serve_connection(TokioIo::new(stream), service));
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::trace!(%error, %peer, "connection ended");
        }
    });
}

#[cfg(test)]
mod tests {
    use http_body_util::Empty;
    use hyper::body::Bytes;
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        time::Instant,
    };

    use super::*;

    /// Time moves by itself where everybody waits.
    #[tokio::test(start_paused = true)]
    async fn who_does_not_finish_a_request_head_is_dropped() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (_stop, stopped) = watch::channel(false);
        let handler = |_, _| async { Response::new(Empty::<Bytes>::new()) };
        tokio::spawn(serve(listener, handler, stopped, Duration::ZERO));
        for (head, answered) in [
            ("GET / HTTP/1.1\r\nhost: a\r\nslow", false),
            ("GET / HTTP/1.1\r\nhost: a\r\n\r\n", true),
        ] {
            let begun = Instant::now();
            let mut client = TcpStream::connect(address).await.unwrap();
            client.write_all(head.as_bytes()).await.unwrap();
            let mut got = Vec::new();
            client.read_to_end(&mut got).await.unwrap();
            assert_eq!(got.starts_with(b"HTTP/1.1 200 OK\r\n"), answered);
            assert!(begun.elapsed() >= HEADER_READ_TIMEOUT, "closed too early");
        }
    }
}
