//! The load generator: closed loops on one thread, a fixed rate on several, and open idle streams.

use std::{
    io::{Read, Write},
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Result, bail, ensure};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    task::JoinSet,
    time::{sleep, timeout},
};

use crate::{
    process,
    scenario::{Answer, EVENTS, Load, request},
    stamp::Seen,
    target::Target,
    wire::Message,
};

/// What one load on one target came to.
#[derive(Default)]
pub struct Sample {
    /// Events of streams, else requests.
    pub units: u64,
    pub elapsed: Duration,
    /// Of the target's process tree.
    pub cpu: Duration,
    /// Nanoseconds: of each event from send to receipt, else of each exchange.
    pub delays: Vec<u64>,
}

/// Every connection asks again as soon as it was answered, until the span is over.
pub fn closed_loop(target: &Target, load: &Load) -> Result<Sample> {
    run(async {
        let wire = Arc::new(request(load.answer, load.message));
        let mut lines = Vec::new();
        for _ in 0..load.connections {
            lines.push(Line::open(target.address).await?);
        }
        let (start, cpu) = (Instant::now(), process::cpu(target.pid));
        let mut tasks = JoinSet::new();
        for line in lines {
            tasks.spawn(line.ask_until(start + load.span, wire.clone(), load.answer));
        }
        let mut sample = Sample::default();
        while let Some(one) = tasks.join_next().await {
            let (units, delays) = one??;
            sample.units += units;
            sample.delays.extend(delays);
        }
        sample.elapsed = start.elapsed();
        // What a proxy puts off until later is its cost all the same.
        sleep(AFTERWORK).await;
        sample.cpu = process::cpu(target.pid).saturating_sub(cpu);
        Ok(sample)
    })
}

/// Resident bytes for each open stream, at each of the given numbers of open streams.
pub fn idle_streams(target: &Target, counts: &[usize]) -> Result<Vec<f64>> {
    run(async {
        let warm = request(Answer::Json, 120);
        for _ in 0..100 {
            Line::open(target.address)
                .await?
                .exchange(&warm, |_| ())
                .await?;
        }
        sleep(SETTLING).await;
        let empty = process::resident(target.pid);
        let wire = request(Answer::Idle, 120);
        let (mut open, mut sizes) = (Vec::new(), Vec::new());
        for count in counts {
            while open.len() < *count {
                let mut line = Line::open(target.address).await?;
                line.first_event(&wire).await?;
                open.push(line);
            }
            sleep(SETTLING).await;
            let more = process::resident(target.pid) as f64 - empty as f64;
            sizes.push(more / *count as f64);
        }
        Ok(sizes)
    })
}

/// Nanoseconds of each exchange at a fixed rate, counted from the instant it was due: a proxy
/// that stalls pays for all that had to wait. Threads, because timers of the runtime are too coarse.
pub fn fixed_rate(target: &Target, rate: u32, span: Duration) -> Result<Vec<u64>> {
    let wire = request(Answer::Json, 120);
    let interval = Duration::from_secs(1) / rate;
    let total = (span.as_secs_f64() * f64::from(rate)) as u32;
    let start = Instant::now() + Duration::from_millis(100);
    std::thread::scope(|scope| {
        let lanes = (0..LANES)
            .map(|lane| {
                let wire = &wire;
                scope.spawn(move || -> Result<Vec<u64>> {
                    let mut socket = connect(target.address)?;
                    let mut delays = Vec::new();
                    for turn in (lane..total).step_by(LANES as usize) {
                        let due = start + interval * turn;
                        std::thread::sleep(due.saturating_duration_since(Instant::now()));
                        blocking_exchange(&mut socket, wire)?;
                        delays.push(due.elapsed().as_nanos() as u64);
                    }
                    Ok(delays)
                })
            })
            .collect::<Vec<_>>();
        let mut all = Vec::new();
        for lane in lanes {
            all.extend(
                lane.join()
                    .map_err(|_| anyhow::anyhow!("a lane panicked"))??,
            );
        }
        Ok(all)
    })
}

/// The status with which a path is answered.
pub fn get_status(address: SocketAddr, path: &str) -> Result<u16> {
    let wire = format!("GET {path} HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n");
    exchange_status(&mut connect(address)?, wire.as_bytes())
}

/// One keep-alive connection.
struct Line {
    socket: TcpStream,
    buffer: Vec<u8>,
}

impl Line {
    async fn open(address: SocketAddr) -> Result<Self> {
        let socket = TcpStream::connect(address).await?;
        socket.set_nodelay(true)?;
        Ok(Self {
            socket,
            buffer: vec![0; 64 * 1024],
        })
    }

    /// Units done and their delays.
    async fn ask_until(
        mut self,
        end: Instant,
        wire: Arc<Vec<u8>>,
        answer: Answer,
    ) -> Result<(u64, Vec<u64>)> {
        let (mut units, mut delays) = (0, Vec::new());
        while Instant::now() < end {
            let (start, mut seen) = (Instant::now(), Seen::default());
            self.exchange(&wire, |data| seen.read(data)).await?;
            if answer == Answer::Json {
                units += 1;
                delays.push(start.elapsed().as_nanos() as u64);
            } else {
                let events = seen.events;
                ensure!(
                    events == EVENTS as u64,
                    "{events} of {EVENTS} events in a stream"
                );
                units += events;
                delays.extend(seen.delays);
            }
        }
        Ok((units, delays))
    }

    async fn exchange(&mut self, wire: &[u8], mut on_body: impl FnMut(&[u8])) -> Result<()> {
        self.socket.write_all(wire).await?;
        let mut answer = Message::default();
        while !answer.feed(self.receive().await?, &mut on_body)? {}
        ensure!(answer.status() == 200, "answered {}", answer.status());
        Ok(())
    }

    /// Asks for a stream and returns once its first event is there; the stream stays open.
    async fn first_event(&mut self, wire: &[u8]) -> Result<()> {
        self.socket.write_all(wire).await?;
        let (mut answer, mut body) = (Message::default(), 0);
        while body == 0 {
            let ended = answer.feed(self.receive().await?, |data| body += data.len())?;
            ensure!(
                !ended && answer.status() == 200,
                "answered {}",
                answer.status()
            );
        }
        // Of a client that waits for the next event, nothing but the connection is measured.
        self.buffer = Vec::new();
        Ok(())
    }

    async fn receive(&mut self) -> Result<&[u8]> {
        let read = timeout(LONGEST_WAIT, self.socket.read(&mut self.buffer)).await??;
        ensure!(
            read > 0,
            "the connection was closed before the answer had ended"
        );
        Ok(&self.buffer[..read])
    }
}

fn run<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?
        .block_on(work)
}

fn connect(address: SocketAddr) -> Result<std::net::TcpStream> {
    let socket = std::net::TcpStream::connect(address)?;
    socket.set_nodelay(true)?;
    socket.set_read_timeout(Some(LONGEST_WAIT))?;
    Ok(socket)
}

fn blocking_exchange(socket: &mut std::net::TcpStream, wire: &[u8]) -> Result<()> {
    match exchange_status(socket, wire)? {
        200 => Ok(()),
        status => bail!("answered {status}"),
    }
}

fn exchange_status(socket: &mut std::net::TcpStream, wire: &[u8]) -> Result<u16> {
    socket.write_all(wire)?;
    let (mut answer, mut buffer) = (Message::default(), [0; 8 * 1024]);
    loop {
        let read = socket.read(&mut buffer)?;
        ensure!(
            read > 0,
            "the connection was closed before the answer had ended"
        );
        if answer.feed(&buffer[..read], |_| ())? {
            return Ok(answer.status());
        }
    }
}

const LANES: u32 = 32;
const LONGEST_WAIT: Duration = Duration::from_secs(20);
const AFTERWORK: Duration = Duration::from_millis(200);
const SETTLING: Duration = Duration::from_millis(1_000);
