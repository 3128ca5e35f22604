//! `[server]`, `[store]` and `[ledger]`: the process and where it writes.

use std::{sync::Arc, time::Duration};

use super::{
    Approvals, Durability, OnDown, Server, Store, StoreUrl, Webhook,
    reader::Table,
    urls::{console_url, host, origin, store as store_url},
    values::{address, duration, one_of, positive, size, timeout},
    webhook,
};

pub(super) fn server(table: &mut Table<'_>) -> Server {
    let server = Server {
        listen: table.or("listen", ([127, 0, 0, 1], 8080).into(), address),
        admin_listen: table.or("admin_listen", ([127, 0, 0, 1], 8081).into(), address),
        max_request_body: table.or("max_request_body", 32 << 20, size),
        workers: workers(table),
        drain_timeout: table.or("drain_timeout", Duration::from_secs(30), duration),
        cors_origins: table.list("cors_origins", origin).unwrap_or_default(),
        console_url: table.optional("console_url", console_url),
        admin_hosts: table.list("admin_hosts", host).unwrap_or_default(),
    };
    if server.listen == server.admin_listen && server.listen.port() != 0 {
        let place = table.place_of("admin_listen");
        place.mistake("the same address as listen; clients and operators need one each");
    }
    server
}

fn workers(table: &mut Table<'_>) -> usize {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let written = table.optional("workers", |value| {
        match usize::try_from(positive(value)?.get()) {
            Ok(number) if number <= MOST_WORKERS => Ok(number),
            _ => Err(format!("must be at most {MOST_WORKERS}")),
        }
    });
    written.unwrap_or(cores)
}

/// `None`: there is no URL, which has been told.
pub(super) fn store(table: &mut Table<'_>) -> Option<Store> {
    let document = table.place().document();
    let url = table.required("url", store_url);
    let words = [("refuse", OnDown::Refuse), ("local", OnDown::Local)];
    let on_down = table.or("on_down", OnDown::Refuse, one_of(&words));
    let StoreUrl::Sqlite(path) = url?;
    Some(Store {
        url: StoreUrl::Sqlite(document.beside(&path)),
        on_down,
    })
}

pub(super) fn approvals(
    table: &mut Table<'_>,
    server: Option<&Server>,
) -> (Approvals, Option<Arc<Webhook>>) {
    let approvals = Approvals {
        wait: table.or("wait", Duration::from_mins(5), duration),
        expires: table.or("expires", Duration::from_hours(24), timeout),
    };
    for (member, given, most) in [
        ("wait", approvals.wait, LONGEST_WAIT),
        ("expires", approvals.expires, LONGEST_EXPIRY),
    ] {
        if given > most {
            let hours = most.as_secs() / 3600;
            let place = table.place_of(member);
            place.mistake(format!("is too long; up to \"{hours}h\""));
        }
    }
    let webhook = table.table("webhook", webhook::webhook).flatten();
    let place = table.place_of("webhook");
    if let (Some(_), Some(server)) = (&webhook, server.filter(|one| one.console_url.is_none())) {
        let address = server.admin_listen.ip();
        if address.is_unspecified() {
            place.mistake("needs console_url in [server]: its links must lead somewhere");
        } else if address.is_loopback() {
            place.warning("its links lead to this machine alone; see console_url in [server]");
        }
    }
    (approvals, webhook)
}

/// No client keeps a connection open for longer.
const LONGEST_WAIT: Duration = Duration::from_hours(1);
const LONGEST_EXPIRY: Duration = Duration::from_hours(30 * 24);

pub(super) fn durability(table: &mut Table<'_>) -> Durability {
    let words = [
        ("batched", Durability::Batched),
        ("before_release", Durability::BeforeRelease),
    ];
    table.or("durability", Durability::Batched, one_of(&words))
}

const MOST_WORKERS: usize = 1024;
