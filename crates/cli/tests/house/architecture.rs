//! The crates and the arrows between them are those of ARCHITECTURE.md.

use super::{assert_none, read, root};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

/// Crates that only tests may use.
const TEST_ONLY: &str = "testkit";
/// Third-party crates that do IO, read clocks, draw random numbers or are async: not for `model`.
const NOT_FOR_MODEL: [&str; 9] =
    ["tokio", "rustix", "hyper", "axum", "reqwest", "sqlx", "rand", "getrandom", "futures-util"];
/// Crates that must not be anywhere in Cargo.lock, also where cargo-deny cannot be had.
const BANNED: [&str; 5] = ["openssl", "openssl-sys", "native-tls", "aws-lc-rs", "aws-lc-sys"];

type Edges = BTreeMap<String, BTreeSet<String>>;

/// What `cargo metadata` says of our own crates.
struct Workspace {
    /// Dependencies that are built into programs.
    built: Edges,
    /// Dependencies of tests alone.
    tests: Edges,
    /// Third-party dependencies that are built into programs.
    foreign: Edges,
}

#[test]
fn arrows_are_those_of_the_document() {
    let (workspace, allowed) = (workspace(), document());
    let named: BTreeSet<_> = allowed.keys().collect();
    assert_eq!(
        named,
        workspace.built.keys().collect(),
        "the table of ARCHITECTURE.md names other crates than there are"
    );
    let mut faults = Vec::new();
    for (krate, used) in &workspace.built {
        let surplus = used.iter().filter(|used| !allowed[krate].contains(*used));
        faults.extend(
            surplus.map(|used| format!("{krate} uses {used}, which the table of ARCHITECTURE.md does not allow")),
        );
    }
    for (krate, used) in &workspace.tests {
        let surplus = used.iter().filter(|used| *used != TEST_ONLY && !allowed[krate].contains(*used));
        faults.extend(surplus.map(|used| format!("tests of {krate} use {used}, which the table does not allow")));
    }
    for (krate, _) in workspace.built.iter().filter(|(_, used)| used.contains(TEST_ONLY)) {
        faults.push(format!("{krate} uses {TEST_ONLY} outside of tests"));
    }
    assert_none(&faults, "arrows between crates");
}

#[test]
fn the_document_has_no_cycle() {
    let allowed = document();
    let mut below: BTreeSet<&String> = BTreeSet::new();
    while below.len() < allowed.len() {
        let next: Vec<_> = allowed
            .iter()
            .filter(|(krate, used)| !below.contains(krate) && used.iter().all(|used| below.contains(used)))
            .map(|(krate, _)| krate)
            .collect();
        assert!(!next.is_empty(), "a cycle among {:?}", allowed.keys().filter(|krate| !below.contains(krate)));
        below.extend(next);
    }
}

#[test]
fn model_is_values_only() {
    let foreign = &workspace().foreign["model"];
    let faults: Vec<_> = foreign.iter().filter(|name| NOT_FOR_MODEL.contains(&name.as_str())).cloned().collect();
    assert_none(&faults, "model does no IO, reads no clock, is not async; it must not use");
}

#[test]
fn one_tls_stack() {
    let lock = read(&root().join("Cargo.lock"));
    let names: BTreeSet<_> =
        lock.lines().filter_map(|line| line.strip_prefix("name = ")).map(|name| name.trim_matches('"')).collect();
    let faults: Vec<_> = BANNED.iter().filter(|name| names.contains(*name)).map(|name| (*name).to_owned()).collect();
    assert_none(&faults, "banned by deny.toml, but in Cargo.lock");
}

fn workspace() -> Workspace {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let output = Command::new(cargo)
        .args(["metadata", "--no-deps", "--format-version", "1", "--locked", "--offline"])
        .current_dir(root())
        .output()
        .expect("cargo metadata runs");
    assert!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("cargo metadata is JSON");
    let packages = metadata["packages"].as_array().expect("a list of packages");
    let mut workspace = Workspace { built: Edges::new(), tests: Edges::new(), foreign: Edges::new() };
    for package in packages {
        let krate = short(text(&package["name"])).expect("all packages are ours");
        let (built, tests, foreign) = (&mut workspace.built, &mut workspace.tests, &mut workspace.foreign);
        let sets = [built, tests, foreign].map(|edges| edges.entry(krate.clone()).or_default());
        for dependency in package["dependencies"].as_array().expect("a list of dependencies") {
            let name = text(&dependency["name"]);
            let is_test = dependency["kind"] == "dev";
            match short(name).filter(|_| !dependency["path"].is_null()) {
                Some(ours) => sets[usize::from(is_test)].insert(ours),
                None => !is_test && sets[2].insert(name.to_owned()),
            };
        }
    }
    workspace
}

/// `vmm` for `warren-vmm`, `cli` for `warren`.
fn short(name: &str) -> Option<String> {
    if name == "warren" { Some("cli".to_owned()) } else { name.strip_prefix("warren-").map(str::to_owned) }
}

fn text(value: &Value) -> &str {
    value.as_str().expect("a text")
}

/// The table `| crate | question it answers | may use |`.
fn document() -> Edges {
    let document = read(&root().join("ARCHITECTURE.md"));
    let table = document.lines().skip_while(|line| !line.starts_with("| crate |")).skip(2);
    let rows: Vec<(String, String)> = table
        .take_while(|line| line.starts_with('|'))
        .map(|line| {
            let cells: Vec<_> = line.trim_matches('|').split('|').map(str::trim).collect();
            assert_eq!(cells.len(), 3, "a row of the table in ARCHITECTURE.md: {line}");
            (cells[0].to_owned(), cells[2].to_owned())
        })
        .collect();
    assert!(!rows.is_empty(), "ARCHITECTURE.md has a table that begins with `| crate |`");
    let all: BTreeSet<String> = rows.iter().map(|(krate, _)| krate.clone()).collect();
    rows.iter().map(|(krate, uses)| (krate.clone(), uses_of(krate, uses, &all))).collect()
}

fn uses_of(krate: &str, cell: &str, all: &BTreeSet<String>) -> BTreeSet<String> {
    match cell {
        "–" => BTreeSet::new(),
        "all" => all.iter().filter(|name| *name != krate && *name != TEST_ONLY).cloned().collect(),
        list => list.split(',').map(|name| name.trim().to_owned()).collect(),
    }
}
