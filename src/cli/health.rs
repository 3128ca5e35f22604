//! `tallygate health`: asks a serving process, for container health checks.

use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    path::Path,
    process::ExitCode,
    time::Duration,
};

use super::print;
use crate::config::Config;

const PATIENCE: Duration = Duration::from_secs(3);

pub fn health(file: &Path) -> anyhow::Result<ExitCode> {
    let config = Config::load(file)?;
    let mut address = config.server.admin_listen;
    if address.ip().is_unspecified() {
        address = SocketAddr::from(([127, 0, 0, 1], address.port()));
    }
    let mut socket = TcpStream::connect_timeout(&address, PATIENCE)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    socket.write_all(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    socket.read_to_string(&mut answer)?;
    let ready = answer.starts_with("HTTP/1.1 200");
    print(if ready { "ready" } else { "not ready" });
    Ok(if ready {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
