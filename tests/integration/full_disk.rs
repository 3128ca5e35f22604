//! A database that cannot be written: no room is left, or it may only be read.

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path, process::Command};

use sha2::{Digest as _, Sha256};

use crate::support::{Process, Setup, Upstream, eventually, ledger, setup};

const VIEWER: &str = "tgo-viewer-w2e3r4t5z6u7";

/// Files grow to a megabyte or two and no further: the write-ahead log is the first to get there.
const LITTLE_ROOM: &str = "export RUST_LOG=info; trap '' XFSZ; ulimit -S -f 2048";

/// Enough to open a database, and nothing to write at the end of its log.
const NO_ROOM: &str = "export RUST_LOG=info; trap '' XFSZ; ulimit -S -f 96";

/// What the file's mode forbids is forbidden to the superuser too.
const NO_PRIVILEGES: &str = "export RUST_LOG=info
[ \"$(id -u)\" -ne 0 ] || set -- setpriv --bounding-set=-all --inh-caps=-all \"$@\"";

fn operated(upstream: &Upstream) -> Setup {
    let digest = hex::encode(Sha256::digest(VIEWER));
    let operator =
        format!("[[operators]]\nname = \"ada\"\nrole = \"viewer\"\nsha256 = \"{digest}\"");
    Setup::to(upstream)
        .tables(&operator)
        .k1("[budget]\ntotal_requests = 16000")
}

/// Asks until it is refused; how often it was served.
async fn fill(process: &Process) -> usize {
    let mut served = 0;
    loop {
        let answer = process.client().chat("hi").await;
        if answer.status != 200 {
            assert_eq!(answer.refusal(), (503, "guard_unavailable".to_owned()));
            return served;
        }
        served += 1;
    }
}

fn make_room(process: &Process) {
    let id = process.id().to_string();
    let room = Command::new("prlimit")
        .args(["--pid", &id, "--fsize=1000000000:"])
        .status();
    assert!(room.unwrap().success());
}

async fn gauge(process: &Process, name: &str) -> String {
    let page = process.operator(VIEWER).get("/metrics").await;
    let text = page.text();
    let line = text.lines().find(|line| line.starts_with(name));
    line.expect(text).rsplit(' ').next().unwrap().to_owned()
}

async fn is_ready(process: &Process) -> bool {
    process.admin().get("/readyz").await.status == 200
}

/// What all three tell of a store that is down.
async fn is_seen_to_be_down(process: &Process) {
    let ready = process.admin().get("/readyz").await;
    assert!(ready.json()["store"] != "ok", "{}", ready.text());
    assert_eq!(gauge(process, "tallygate_store_up ").await, "0");
    let log = process.log();
    assert_eq!(log.matches("the store does not answer").count(), 1, "{log}");
}

#[tokio::test]
async fn a_full_disk_refuses_until_there_is_room_and_no_record_is_lost() {
    let upstream = Upstream::start().await;
    let (setup, mut process) = Process::start_after(operated(&upstream), LITTLE_ROOM).await;
    let served = fill(&process).await;
    assert_eq!(served, upstream.hits(), "nothing else was sent");
    assert!(!is_ready(&process).await);
    is_seen_to_be_down(&process).await;
    assert_ne!(gauge(&process, "tallygate_records_queued ").await, "0");
    ledger::holds(&setup);

    make_room(&process);
    eventually("a ready proxy", async || is_ready(&process).await).await;
    assert_eq!(gauge(&process, "tallygate_store_up ").await, "1");
    assert_eq!(process.client().chat("hi").await.status, 200);
    process.signal("TERM").await;
    assert_eq!(process.ended().await, Some(0));
    ledger::holds(&setup);
    let database = ledger::database(&setup);
    let settled = ledger::records(&database, "request_settled", served + 1).await;
    assert_eq!(settled.len(), served + 1);
    let account = "key/k1/requests/total";
    let counted = ledger::spent_and_reserved(&database, account).await;
    assert_eq!(counted, (served + 1, 0));
}

#[tokio::test]
async fn a_crash_on_a_full_disk_leaves_a_chain_that_holds_and_no_account_below_what_was_served() {
    let upstream = Upstream::start().await;
    let (setup, mut process) = Process::start_after(operated(&upstream), LITTLE_ROOM).await;
    let served = fill(&process).await;
    process.kill().await;
    ledger::holds(&setup);
    let (code, told) = Process::fails_after(&setup, NO_ROOM).await;
    assert_ne!(code, Some(0));
    assert!(told.contains("tallygate.db"), "{told}");

    let process = process.start_again(&setup).await;
    assert_eq!(process.client().chat("hi").await.status, 200);
    ledger::holds(&setup);
    let account = "key/k1/requests/total";
    let (spent, reserved) = ledger::spent_and_reserved(&ledger::database(&setup), account).await;
    assert!(
        spent + reserved >= served,
        "{spent} + {reserved}, {served} served"
    );
}

#[tokio::test]
async fn on_a_full_disk_local_goes_on_without_limits_and_tells() {
    let upstream = Upstream::start().await;
    let setup = operated(&upstream).store("on_down = \"local\"");
    let (setup, process) = Process::start_after(setup, LITTLE_ROOM).await;
    fill(&process).await;
    is_seen_to_be_down(&process).await;
    let before = upstream.hits();
    for _ in 0..5 {
        let answer = process.client_with(setup::K3).chat("hi").await;
        assert_eq!(answer.status, 200, "k3 has no limits");
    }
    assert!(is_ready(&process).await, "it serves");
    assert_eq!(upstream.hits(), before + 5);
    make_room(&process);
    let served = upstream.hits();
    let database = ledger::database(&setup);
    let settled = ledger::records(&database, "request_settled", served).await;
    assert_eq!(settled.len(), served, "nothing was lost");
    ledger::holds(&setup);
}

fn mode(file: &Path, mode: u32) {
    fs::set_permissions(file, fs::Permissions::from_mode(mode)).unwrap();
}

#[tokio::test]
async fn a_database_that_may_only_be_read_refuses_until_it_may_be_written_again() {
    let upstream = Upstream::start().await;
    let (setup, process) = Process::start_after(operated(&upstream), NO_PRIVILEGES).await;
    let database = ledger::database(&setup);
    // What is open stays writable; what is opened after a failure does not.
    let lock = ledger::Lock::on(&setup).await;
    mode(&database, 0o444);
    assert_eq!(process.client().chat("hi").await.status, 503);
    eventually("the store's own words", async || {
        let ready = process.admin().get("/readyz").await;
        ready.text().contains("readonly database")
    })
    .await;
    lock.release().await;
    assert_eq!(process.client().chat("hi").await.status, 503);
    is_seen_to_be_down(&process).await;
    assert_eq!(upstream.hits(), 0);
    ledger::holds(&setup);

    mode(&database, 0o644);
    eventually("a ready proxy", async || is_ready(&process).await).await;
    assert_eq!(process.client().chat("hi").await.status, 200);
    ledger::records(&database, "request_settled", 1).await;
    ledger::holds(&setup);
}

#[tokio::test]
async fn a_start_on_what_may_only_be_read_says_which_file() {
    let upstream = Upstream::start().await;
    let (setup, mut process) = Process::start(operated(&upstream)).await;
    process.signal("TERM").await;
    process.ended().await;
    let database = ledger::database(&setup);
    let directory = database.parent().unwrap();
    for (what, forbidden, usual) in [
        (database.as_path(), 0o444, 0o644),
        (directory, 0o500, 0o700),
    ] {
        mode(what, forbidden);
        let (code, told) = Process::fails_after(&setup, NO_PRIVILEGES).await;
        mode(what, usual);
        assert_eq!(code, Some(1), "{told}");
        let words = ["tallygate.db: ", "readonly database"];
        assert!(words.iter().all(|words| told.contains(words)), "{told}");
    }
}
