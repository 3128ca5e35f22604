//! The operator's files in a directory of their own: keys k1 (tenant acme), k2 (globex) and k3
//! (no rules), models m-small and m-large with prices, m-new without, m-forbidden denied to k1.

use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
};

use sha2::{Digest, Sha256};
use tempfile::TempDir;

use super::Upstream;

/// What the provider is asked with. Nothing a client sees may hold a part of it.
pub const PROVIDER_KEY: &str = "sk-prov-4kd93jfm20slqpw8";

pub const K1: &str = "tg-k1-q8w7e6r5t4z3u2i1";
pub const K2: &str = "tg-k2-a1s2d3f4g5h6j7k8";
pub const K3: &str = "tg-k3-y9x8c7v6b5n4m3l2";

/// In USD per million tokens; m-large costs ten times that.
const PRICES: &str = r#"
[models.m-small]
price = { input = "1.00", cached_input = "0.10", output = "4.00", input_audio = "10.00", output_audio = "20.00" }

[models.m-large]
price = { input = "10.00", cached_input = "1.00", output = "40.00", input_audio = "100.00", output_audio = "200.00" }
"#;

#[derive(Debug)]
pub struct Setup {
    dir: TempDir,
    base_url: String,
    server: String,
    store: String,
    provider: String,
    more: String,
    k1: String,
    k1_key: String,
    k1_status: String,
    k1_version: u32,
}

impl Setup {
    pub fn to(upstream: &Upstream) -> Self {
        Self::at(&format!("http://{}/v1", upstream.address()))
    }

    /// With a provider that need not be there.
    pub fn at(base_url: &str) -> Self {
        Self {
            dir: TempDir::new().unwrap(),
            base_url: base_url.to_owned(),
            server: "listen = \"127.0.0.1:0\"\nadmin_listen = \"127.0.0.1:0\"\n".to_owned(),
            store: String::new(),
            provider: String::new(),
            more: String::new(),
            k1: String::new(),
            k1_key: String::new(),
            k1_status: "published".to_owned(),
            k1_version: 1,
        }
    }

    /// Tables of k1's policy besides `[models]`.
    pub fn k1(mut self, tables: &str) -> Self {
        self.set_k1(tables);
        self
    }

    /// The same on a running product: takes effect with the next `write`.
    pub fn set_k1(&mut self, tables: &str) {
        tables.clone_into(&mut self.k1);
    }

    /// More members of the key itself.
    pub fn k1_key(mut self, members: &str) -> Self {
        self.set_k1_key(members);
        self
    }

    pub fn set_k1_key(&mut self, members: &str) {
        members.clone_into(&mut self.k1_key);
    }

    /// A published version never changes: other rules need another version.
    pub fn set_k1_version(&mut self, version: u32) {
        self.k1_version = version;
    }

    /// Of k1's policy: published, draft or archived.
    pub fn k1_status(mut self, status: &str) -> Self {
        status.clone_into(&mut self.k1_status);
        self
    }

    /// More members of `[server]`.
    pub fn server(mut self, members: &str) -> Self {
        self.server += members;
        self.server.push('\n');
        self
    }

    /// More members of `[store]`.
    pub fn store(mut self, members: &str) -> Self {
        self.store += members;
        self.store.push('\n');
        self
    }

    /// Fixed ports instead of free ones.
    pub fn ports(mut self, listen: u16, admin: u16) -> Self {
        self.server =
            format!("listen = \"127.0.0.1:{listen}\"\nadmin_listen = \"127.0.0.1:{admin}\"\n");
        self
    }

    /// More members of the provider's table.
    pub fn provider(mut self, members: &str) -> Self {
        self.provider += members;
        self.provider.push('\n');
        self
    }

    /// More tables of the main file.
    pub fn tables(mut self, tables: &str) -> Self {
        self.more += tables;
        self.more.push('\n');
        self
    }

    pub fn file(&self) -> PathBuf {
        self.dir.path().join("tallygate.toml")
    }

    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub fn write(&self) {
        let policies = self.dir.path().join("policies");
        fs::create_dir_all(&policies).unwrap();
        replace(&self.dir.path().join("provider.key"), PROVIDER_KEY);
        let k1 = format!(
            "[models]\nallow = [\"m-small\", \"m-large\", \"m-new\", \"m-big-*\", \"fast\"]\n\
             deny = [\"m-forbidden\"]\n{}",
            self.k1
        );
        let policies_of = [
            ("k1", self.k1_status.as_str(), k1.as_str()),
            ("k2", "published", ""),
            ("k3", "published", ""),
        ];
        for (name, status, tables) in policies_of {
            let version = if name == "k1" { self.k1_version } else { 1 };
            let policy =
                format!("id = \"{name}\"\nversion = {version}\nstatus = \"{status}\"\n{tables}");
            replace(&policies.join(format!("{name}.toml")), &policy);
        }
        replace(&self.file(), &self.main());
    }

    fn main(&self) -> String {
        let Self {
            base_url,
            server,
            store,
            provider,
            more,
            ..
        } = self;
        let mut text = format!(
            "policies_dir = \"policies\"\n\n[server]\n{server}\n\
             [store]\nurl = \"sqlite:var/tallygate.db\"\n{store}\n\
             [providers.upstream]\ndialect = \"openai\"\nbase_url = \"{base_url}\"\n\
             api_key = {{ file = \"provider.key\" }}\n{provider}\n{PRICES}\n{more}\n"
        );
        let keys = [
            ("k1", "acme", K1, self.k1_key.as_str()),
            ("k2", "globex", K2, ""),
            ("k3", "acme", K3, ""),
        ];
        for (name, tenant, key, members) in keys {
            let digest = hex(&Sha256::digest(key));
            let _ = write!(
                text,
                "[[keys]]\nname = \"{name}\"\ntenant = \"{tenant}\"\nsha256 = \"{digest}\"\n\
                 policy = \"{name}\"\n{members}\n\n"
            );
        }
        text
    }
}

/// In one step, as careful operators do: a reader sees the old text or the new one.
pub fn replace(file: &Path, text: &str) {
    let fresh = file.with_extension("new");
    fs::write(&fresh, text).unwrap();
    fs::rename(fresh, file).unwrap();
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
