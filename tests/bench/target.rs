//! What is measured: the mock provider itself, nginx before it, Tallygate before it. Each proxy
//! runs from a directory of its own that goes with it.

use std::{
    fs,
    io::{BufRead, BufReader},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};
use tempfile::TempDir;

use crate::{load, process::Process, scenario::KEY};

/// Where requests go, and the process whose cost is counted.
pub struct Target {
    pub name: &'static str,
    pub address: SocketAddr,
    pub pid: u32,
    // The mock's process is kept by `Mock`. Declared before the directory: it ends first.
    _process: Option<Process>,
    _directory: Option<TempDir>,
}

/// The mock provider as a process of its own.
pub struct Mock {
    process: Process,
    address: SocketAddr,
}

impl Mock {
    pub fn start() -> Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command
            .arg("mock")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut process = Process::start(&mut command)?;
        let output = process
            .child()
            .stdout
            .take()
            .context("the mock has no output")?;
        let mut port = String::new();
        BufReader::new(output).read_line(&mut port)?;
        let address = (Ipv4Addr::LOCALHOST, port.trim().parse()?).into();
        Ok(Self { process, address })
    }

    pub fn target(&self) -> Target {
        Target {
            name: "direct",
            address: self.address,
            pid: self.process.pid(),
            _process: None,
            _directory: None,
        }
    }
}

/// The proxies that can be had on this machine, each before `mock`.
pub fn proxies(mock: &Mock) -> Result<Vec<Target>> {
    let mut found = Vec::new();
    match Command::new("nginx").arg("-v").output() {
        Ok(_) => found.push(nginx(mock.address)?),
        Err(_) => eprintln!("nginx is not installed: there will be no ratios"),
    }
    let binary = tallygate_binary();
    match binary.exists() {
        true => found.push(tallygate(&binary, mock.address)?),
        false => eprintln!("{} is not there: measuring without it", binary.display()),
    }
    Ok(found)
}

fn tallygate_binary() -> PathBuf {
    let given = std::env::var_os("TALLYGATE_BIN").map(PathBuf::from);
    given.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("target/release/tallygate"))
}

fn nginx(upstream: SocketAddr) -> Result<Target> {
    let directory = tempfile::tempdir()?;
    let address = free_address()?;
    let home = directory.path().display();
    let file = directory.path().join("nginx.conf");
    fs::write(
        &file,
        format!(
            "daemon off;\nuser root;\nworker_processes 2;\nworker_rlimit_nofile 16384;\n\
             pid {home}/pid;\nerror_log {home}/error.log;\n\
             events {{ worker_connections 8192; }}\n\
             http {{\n  access_log off;\n  tcp_nodelay on;\n  client_max_body_size 64m;\n  \
             keepalive_requests 1000000000;\n  client_body_temp_path {home}/body;\n  \
             proxy_temp_path {home}/proxy;\n  fastcgi_temp_path {home}/f;\n  \
             uwsgi_temp_path {home}/u;\n  scgi_temp_path {home}/s;\n  \
             upstream mock {{ server {upstream}; keepalive 256; \
             keepalive_requests 1000000000; }}\n  \
             server {{\n    listen {address} backlog=4096;\n    location / {{\n      \
             proxy_pass http://mock;\n      proxy_http_version 1.1;\n      \
             proxy_set_header Connection \"\";\n      proxy_buffering off;\n      \
             proxy_request_buffering off;\n      proxy_read_timeout 300s;\n    }}\n  }}\n}}\n"
        ),
    )?;
    let mut command = Command::new("nginx");
    command.args([
        "-p".as_ref(),
        directory.path().as_os_str(),
        "-c".as_ref(),
        file.as_os_str(),
    ]);
    let start = Start {
        name: "nginx",
        command,
        address,
        ready: address,
        directory,
    };
    start.wait(|address| TcpStream::connect(address).is_ok())
}

/// With every guard on and every limit far away, so that all are asked and none refuses.
fn tallygate(binary: &Path, upstream: SocketAddr) -> Result<Target> {
    let directory = tempfile::tempdir()?;
    let (address, admin) = (free_address()?, free_address()?);
    let digest = Sha256::digest(KEY)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect::<String>();
    let file = directory.path().join("tallygate.toml");
    fs::write(
        &file,
        format!(
            "policies_dir = \"policies\"\n\n[server]\nlisten = \"{address}\"\n\
             admin_listen = \"{admin}\"\n\n[store]\nurl = \"sqlite:tallygate.db\"\n\n\
             [providers.mock]\ndialect = \"openai\"\nbase_url = \"http://{upstream}/v1\"\n\
             api_key = {{ file = \"provider-key\" }}\n\n[models.gpt-4o-mini]\n\
             price = {{ input = \"0.15\", cached_input = \"0.075\", output = \"0.60\" }}\n\n\
             [[keys]]\nname = \"load\"\ntenant = \"acme\"\nsha256 = \"{digest}\"\n\
             policy = \"load\"\n\n[tenants.acme.budget]\ndaily_cost_usd = \"1000000.00\"\n"
        ),
    )?;
    fs::write(directory.path().join("provider-key"), "sk-mock\n")?;
    fs::create_dir(directory.path().join("policies"))?;
    fs::write(directory.path().join("policies/load.toml"), POLICY)?;
    let mut command = Command::new(binary);
    command.arg("serve").arg("--config").arg(&file);
    let start = Start {
        name: "Tallygate",
        command,
        address,
        ready: admin,
        directory,
    };
    start.wait(|admin| matches!(load::get_status(admin, "/healthz"), Ok(200)))
}

/// A proxy that is about to run.
struct Start {
    name: &'static str,
    command: Command,
    address: SocketAddr,
    /// Where it is asked whether it is ready.
    ready: SocketAddr,
    directory: TempDir,
}

impl Start {
    /// Starts it and waits until it is ready; what it said stands in the error if it never is.
    fn wait(mut self, is_ready: impl Fn(SocketAddr) -> bool) -> Result<Target> {
        let log = self.directory.path().join("output.log");
        let output = fs::File::create(&log)?;
        self.command
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output);
        let mut process = Process::start(&mut self.command)?;
        let deadline = Instant::now() + START_TIMEOUT;
        while !is_ready(self.ready) {
            if Instant::now() > deadline || process.child().try_wait()?.is_some() {
                let said = fs::read_to_string(&log).unwrap_or_default();
                bail!("{} did not start:\n{said}", self.name);
            }
            sleep(Duration::from_millis(20));
        }
        Ok(Target {
            name: self.name,
            address: self.address,
            pid: process.pid(),
            _process: Some(process),
            _directory: Some(self.directory),
        })
    }
}

/// Free a moment ago, which is good enough on the loopback of a machine under our hands.
fn free_address() -> Result<SocketAddr> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?)
}

const START_TIMEOUT: Duration = Duration::from_secs(20);

const POLICY: &str = r#"
id = "load"
version = 1
status = "published"

[models]
allow = ["gpt-4o-mini"]
deny = ["gpt-4"]

[limits]
requests_per_minute = 100000000
tokens_per_minute = 100000000000
parallel_requests = 100000

[budget]
daily_cost_usd = "1000000.00"
daily_tokens = 1000000000000
total_cost_usd = "10000000.00"
total_requests = 1000000000000
timezone = "UTC"
max_output_tokens = 16384
default_output_tokens = 4096
min_output_tokens = 16

[input]
max_chars = 100000000
unsupported_patterns = ["<binary>"]
sensitive_patterns = ["SECRET=", "PRIVATE_KEY"]
"#;
