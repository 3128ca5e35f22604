//! The built program as a process, for what only a process can do: crash, obey signals, log.

use std::{
    fs::File,
    net::{SocketAddr, TcpListener},
    path::PathBuf,
    process::Stdio,
    time::Duration,
};

use tokio::{
    net::TcpStream,
    process::{Child, Command},
};

use super::{Client, Setup, eventually, setup, within};

/// Killed when dropped.
pub struct Process {
    child: Child,
    listen: SocketAddr,
    admin: SocketAddr,
    log: PathBuf,
}

impl Process {
    /// Returns when both planes accept connections.
    pub async fn start(setup: Setup) -> (Setup, Self) {
        Self::start_after(setup, "").await
    }

    /// The same from a shell that did `before`, such as to set a limit.
    pub async fn start_after(setup: Setup, before: &str) -> (Setup, Self) {
        let [listen, admin] = free_ports();
        let setup = setup.ports(listen, admin);
        setup.write();
        let process = Self::restart(&setup, listen, admin, before).await;
        (setup, process)
    }

    /// Starts again on the same files and ports.
    pub async fn start_again(self, setup: &Setup) -> Self {
        let (listen, admin) = (self.listen.port(), self.admin.port());
        drop(self);
        Self::restart(setup, listen, admin, "").await
    }

    async fn restart(setup: &Setup, listen: u16, admin: u16, before: &str) -> Self {
        let log = setup.dir().join("log.txt");
        let output = File::options()
            .create(true)
            .append(true)
            .open(&log)
            .unwrap();
        let child = serve(setup, before)
            .stdout(output.try_clone().unwrap())
            .stderr(output)
            .spawn()
            .unwrap();
        let at = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let mut process = Self {
            child,
            listen: at(listen),
            admin: at(admin),
            log,
        };
        process.accepts_connections().await;
        process
    }

    pub fn client(&self) -> Client {
        self.client_with(setup::K1)
    }

    pub fn client_with(&self, key: &str) -> Client {
        Client::new(self.listen, key)
    }

    /// The control plane.
    pub fn admin(&self) -> Client {
        Client::new(self.admin, "").without_key()
    }

    /// The control plane with a token.
    pub fn operator(&self, token: &str) -> Client {
        Client::new(self.admin, token)
    }

    /// As the system knows it.
    pub fn id(&self) -> u32 {
        self.child.id().expect("a running process")
    }

    /// All that it has written to its outputs so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }

    /// As a crash or the kernel does: no chance to write anything down.
    pub async fn kill(&mut self) {
        self.child.kill().await.unwrap();
    }

    /// `HUP`, `TERM`, …
    pub async fn signal(&self, name: &str) {
        let id = self.id().to_string();
        let sent = Command::new("kill")
            .args(["-s", name, &id])
            .status()
            .await
            .unwrap();
        assert!(sent.success());
    }

    /// The exit code, once it has ended by itself.
    pub async fn ended(&mut self) -> Option<i32> {
        within("the process to end", self.child.wait())
            .await
            .unwrap()
            .code()
    }

    /// Returns when nobody listens for clients any more, though open connections may be served.
    pub async fn refuses_connections(&self) {
        eventually("a closed listener", async || {
            TcpStream::connect(self.listen).await.is_err()
        })
        .await;
    }

    /// A start that ends by itself: the exit code and all that was printed.
    pub async fn fails(setup: &Setup) -> (Option<i32>, String) {
        Self::fails_after(setup, "").await
    }

    /// The same from a shell that did `before`.
    pub async fn fails_after(setup: &Setup, before: &str) -> (Option<i32>, String) {
        let output = within("the start to fail", serve(setup, before).output())
            .await
            .unwrap();
        let printed = [output.stdout, output.stderr].concat();
        (
            output.status.code(),
            String::from_utf8_lossy(&printed).into_owned(),
        )
    }

    /// There is no event to wait for outside the process, hence the polling.
    async fn accepts_connections(&mut self) {
        let log = self.log.clone();
        let (listen, admin, child) = (self.listen, self.admin, &mut self.child);
        let ready = async {
            for address in [listen, admin] {
                while TcpStream::connect(address).await.is_err() {
                    if let Some(status) = child.try_wait().unwrap() {
                        panic!("{status}: {}", std::fs::read_to_string(&log).unwrap());
                    }
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            }
        };
        within("the process to listen", ready).await;
    }
}

/// Says as much as it can, so that what must not be logged would be.
fn serve(setup: &Setup, before: &str) -> Command {
    // The shell becomes the product, so that both are one process.
    let mut command = Command::new("sh");
    command.arg("-c").arg(format!("{before}\nexec \"$@\""));
    command.arg("sh").arg(env!("CARGO_BIN_EXE_tallygate"));
    command.arg("serve").arg("--config").arg(setup.file());
    command
        .env("RUST_LOG", "trace")
        .stdin(Stdio::null())
        .kill_on_drop(true);
    command
}

/// Bound for a moment to learn them; the product then takes them over.
fn free_ports() -> [u16; 2] {
    let bound = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    bound.map(|listener| listener.local_addr().unwrap().port())
}
