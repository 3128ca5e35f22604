//! A child process and what it costs: CPU time and resident memory of its whole tree, from /proc.

use std::{
    collections::HashMap,
    fs,
    process::{Child, Command},
    thread::sleep,
    time::Duration,
};

use anyhow::{Context, Result};

/// Ended with SIGTERM, and killed if that does not help, when it goes out of scope.
pub struct Process {
    child: Child,
}

impl Process {
    pub fn start(command: &mut Command) -> Result<Self> {
        let child = command
            .spawn()
            .with_context(|| format!("cannot start {command:?}"))?;
        Ok(Self { child })
    }

    pub fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = Command::new("kill")
            .args(["-TERM", &self.pid().to_string()])
            .status();
        for _ in 0..PATIENCE_ROUNDS {
            if matches!(self.child.try_wait(), Ok(Some(_)) | Err(_)) {
                return;
            }
            sleep(Duration::from_millis(20));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// CPU time, user and system, that the tree below `root` has used so far. Exact to a clock tick.
pub fn cpu(root: u32) -> Duration {
    let of_one = |pid: &u32| -> Option<u64> {
        let stat = Stat::read(*pid)?;
        Some(stat.field(UTIME)? + stat.field(STIME)?)
    };
    let ticks = tree(root).iter().filter_map(of_one).sum::<u64>();
    Duration::from_millis(ticks * 10)
}

/// Resident memory of the tree below `root`, in bytes.
pub fn resident(root: u32) -> u64 {
    let of_one = |pid: &u32| -> Option<u64> {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:"))?;
        line.trim().trim_end_matches(" kB").parse().ok()
    };
    tree(root).iter().filter_map(of_one).sum::<u64>() * 1024
}

fn tree(root: u32) -> Vec<u32> {
    let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let pid = entry.file_name().to_string_lossy().parse::<u32>().ok();
        let parent = pid.and_then(|pid| Stat::read(pid)?.field(PPID));
        if let (Some(pid), Some(parent)) = (pid, parent) {
            children.entry(parent as u32).or_default().push(pid);
        }
    }
    let mut found = vec![root];
    let mut next = 0;
    while let Some(pid) = found.get(next) {
        found.extend(children.remove(pid).unwrap_or_default());
        next += 1;
    }
    found
}

/// The text of /proc/PID/stat behind the command's name, which may hold anything.
struct Stat(String);

impl Stat {
    fn read(pid: u32) -> Option<Self> {
        let line = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        Some(Self(line.rsplit_once(')')?.1.to_owned()))
    }

    /// By its number in proc(5).
    fn field(&self, number: usize) -> Option<u64> {
        self.0
            .split_ascii_whitespace()
            .nth(number - 3)?
            .parse()
            .ok()
    }
}

const PPID: usize = 4;
const UTIME: usize = 14;
const STIME: usize = 15;
/// Of 20 ms each: a drain may take a while.
const PATIENCE_ROUNDS: u32 = 250;
