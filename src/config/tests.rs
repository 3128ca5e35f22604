//! What an operator sees of mistakes, oddities and a good configuration.

mod keys;
mod members;
mod operators;
mod policies;
mod shipped;
mod telemetry;
mod tools;
mod webhook;
mod whole;

use std::fs;

use tempfile::TempDir;

use super::{Config, ConfigError};

/// The operator's files in a directory of their own; paths are shown relative to it.
struct Files(TempDir);

impl Files {
    /// A configuration that is in order.
    fn good() -> Self {
        let files = Self(TempDir::new().unwrap());
        files.write("tallygate.toml", MAIN);
        files.write("policies/basic.toml", POLICY);
        files
    }

    fn write(&self, name: &str, text: impl AsRef<[u8]>) {
        let path = self.0.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// One place of a file changed. The place must be there.
    fn edited(self, name: &str, old: &str, new: &str) -> Self {
        let text = fs::read_to_string(self.0.path().join(name)).unwrap();
        assert!(text.contains(old), "{old:?} in {name}");
        self.write(name, text.replacen(old, new, 1));
        self
    }

    fn load(&self) -> Result<Config, ConfigError> {
        self.load_with(&|name| (name == "PROVIDER_KEY").then(|| SECRET.to_owned()))
    }

    fn load_with(
        &self,
        environment: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Config, ConfigError> {
        Config::load_with(&self.0.path().join("tallygate.toml"), environment)
    }

    fn mistakes(&self) -> Vec<String> {
        let error = self.load().unwrap_err();
        assert!(!error.problems.is_empty());
        error
            .problems
            .iter()
            .map(|problem| self.shown(problem))
            .collect()
    }

    fn warnings(&self) -> Vec<String> {
        let config = self.load().unwrap_or_else(|error| panic!("{error}"));
        config
            .warnings
            .iter()
            .map(|warning| self.shown(warning))
            .collect()
    }

    fn shown(&self, problem: &super::Problem) -> String {
        problem
            .to_string()
            .replace(&format!("{}/", self.0.path().display()), "")
    }
}

/// What an edit of the good main file is answered with, word for word.
type Case<'t> = (&'t str, &'t str, &'t [&'t str]);

fn check(cases: &[Case<'_>]) {
    for (old, new, lines) in cases {
        let mistakes = Files::good().edited("tallygate.toml", old, new).mistakes();
        assert_eq!(mistakes, *lines, "{old:?} -> {new:?}");
        assert!(!mistakes.concat().contains(SECRET), "{mistakes:?}");
    }
}

const SECRET: &str = "sk-never-to-be-seen";

const MAIN: &str = r#"[server]
listen = "127.0.0.1:8080"

[store]
url = "sqlite:var/tallygate.db"

[providers.up]
dialect = "openai"
base_url = "https://up.example/v1/"
api_key = { env = "PROVIDER_KEY" }

[models.fast]
routes = ["up/m-small", "up/org/m-large"]

[[keys]]
name = "one"
tenant = "acme"
sha256 = "1111111111111111111111111111111111111111111111111111111111111111"
policy = "basic"
"#;

const POLICY: &str = r#"id = "basic"
version = 1
status = "published"

[budget]
daily_cost_usd = "5.00"
"#;
