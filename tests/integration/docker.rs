//! The container's configuration is the shipped one, but for what a container must have otherwise.

use std::{fs, path::Path};

use toml::Table;

#[test]
fn the_container_runs_by_the_shipped_rules() {
    let (shipped, docker) = (read("tallygate.toml"), read("docker.toml"));
    assert_eq!(docker["server"]["listen"].as_str(), Some("0.0.0.0:8080"));
    assert_eq!(
        docker["server"]["admin_listen"].as_str(),
        Some("0.0.0.0:8081")
    );
    assert_ne!(docker["store"]["url"], shipped["store"]["url"]);
    assert_eq!(without_places(docker), without_places(shipped));
}

fn read(name: &str) -> Table {
    let file = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("config")
        .join(name);
    fs::read_to_string(file).unwrap().parse().unwrap()
}

fn without_places(mut config: Table) -> Table {
    for (table, member) in [
        ("server", "listen"),
        ("server", "admin_listen"),
        ("store", "url"),
    ] {
        config[table]
            .as_table_mut()
            .unwrap()
            .remove(member)
            .unwrap();
    }
    config
}
