//! "This crate does no I/O" is a promise that the dependency graph keeps: what sockets, runtimes and databases are made of cannot be
//! reached from a pure crate by the dependencies that it is built with. Its own code is held to the same by the
//! `clippy.toml` in its folder.

#![expect(clippy::disallowed_methods, reason = "the test asks cargo")]

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::{Path, PathBuf};
use std::process::Command;

use rstest::rstest;
use serde_json::{Value, json};

/// The crates that do no I/O.
const PURE: &[&str] = &[
    "vlab-api",
    "vlab-model",
    "vlab-history",
    "vlab-scenario",
    "vlab-judge",
    "vlab-drive",
    "vlab-agents",
    "vlab-service",
    "vlab-installer",
    "vlab-kube",
];

/// What does I/O: runtimes, sockets, databases, processes, containers, machines, the terminal.
const IMPURE: &[&str] = &[
    "hyper",
    "hyper-util",
    "indicatif",
    "mio",
    "nix",
    "rustls",
    "socket2",
    "tempfile",
    "testcontainers",
    "tokio",
    "tokio-postgres",
    "tokio-util",
    "virt",
];

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// The ways by which that crate reaches something that does I/O, each as `a -> b -> c`. `None`: there is no such crate.
fn impure_ways(metadata: &Value, krate: &str) -> Option<Vec<String>> {
    let names: BTreeMap<&str, &str> = list(&metadata["packages"]).map(|p| (text(&p["id"]), text(&p["name"]))).collect();
    let mut uses: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for node in list(&metadata["resolve"]["nodes"]) {
        // A dependency of tests or of a build script has another kind than null.
        let normal = |dep: &&Value| list(&dep["dep_kinds"]).any(|kind| kind["kind"].is_null());
        let deps = list(&node["deps"]).filter(normal).map(|dep| text(&dep["pkg"]));
        uses.insert(text(&node["id"]), deps.collect());
    }
    let (start, _) = names.iter().find(|(_, name)| **name == krate)?;
    let mut ways = Vec::new();
    let mut seen = BTreeSet::from([*start]);
    let mut queue = VecDeque::from([(*start, krate.to_owned())]);
    while let Some((id, way)) = queue.pop_front() {
        for next in uses.get(id).into_iter().flatten() {
            let name = names.get(next).copied().unwrap_or_default();
            let way = format!("{way} -> {name}");
            if IMPURE.contains(&name) {
                ways.push(way);
            } else if seen.insert(next) {
                queue.push_back((next, way));
            }
        }
    }
    Some(ways)
}

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("the output is text")
}

/// Of the platform that is built for: the packages of other ones need not be on this computer.
fn metadata() -> Value {
    let about = run(Command::new("rustc").arg("-vV"));
    let host = about.lines().find_map(|line| line.strip_prefix("host: ")).expect("rustc names its host");
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["metadata", "--format-version", "1", "--offline", "--locked", "--filter-platform", host]);
    serde_json::from_str(&run(cargo.current_dir(workspace()))).expect("metadata is JSON")
}

#[test]
fn pure_crates_are_built_without_what_does_io() {
    let metadata = metadata();
    let ways: Vec<String> = PURE
        .iter()
        .flat_map(|krate| impure_ways(&metadata, krate).unwrap_or_else(|| panic!("no crate {krate}")))
        .collect();
    assert_eq!(ways, Vec::<String>::new());
}

/// The code of these crates itself: clippy takes the file in a crate's folder before the one of the workspace.
#[test]
fn pure_crates_may_not_call_what_does_io() {
    let read =
        |path: &Path| std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let shared = read(&workspace().join("harness/pure-clippy.toml"));
    let (_, methods) = shared.split_once("disallowed-methods").expect("the list of methods");
    let metadata = metadata();
    for krate in PURE {
        let package = list(&metadata["packages"]).find(|package| text(&package["name"]) == *krate).expect(krate);
        let file = Path::new(text(&package["manifest_path"])).with_file_name("clippy.toml");
        assert!(read(&file).contains(methods), "{} lacks the list of harness/pure-clippy.toml", file.display());
    }
}

#[rstest]
#[case::pure(&[("a", "b", None)], &[])]
#[case::itself(&[("a", "tokio", None)], &["a -> tokio"])]
#[case::through_another(&[("a", "b", None), ("b", "c", None), ("c", "hyper", None)], &["a -> b -> c -> hyper"])]
#[case::in_a_circle(&[("a", "b", None), ("b", "a", None), ("b", "nix", None)], &["a -> b -> nix"])]
#[case::only_in_tests(&[("a", "tokio", Some("dev")), ("a", "b", None), ("b", "mio", Some("build"))], &[])]
#[case::in_tests_too(&[("a", "tokio", Some("dev")), ("a", "tokio", None)], &["a -> tokio"])]
#[case::of_somebody_else(&[("a", "b", None), ("c", "tokio", None)], &[])]
fn a_way_to_io_is_found(#[case] edges: &[(&str, &str, Option<&str>)], #[case] expected: &[&str]) {
    let names: BTreeSet<&str> = edges.iter().flat_map(|(from, to, _)| [*from, *to]).collect();
    let packages: Vec<Value> = names.iter().map(|name| json!({ "id": format!("{name}#1"), "name": name })).collect();
    let node = |name: &&str| {
        let deps = edges.iter().filter(|(from, ..)| from == name);
        let deps: Vec<Value> =
            deps.map(|(_, to, kind)| json!({ "pkg": format!("{to}#1"), "dep_kinds": [{ "kind": kind }] })).collect();
        json!({ "id": format!("{name}#1"), "deps": deps })
    };
    let nodes: Vec<Value> = names.iter().map(node).collect();
    let metadata = json!({ "packages": packages, "resolve": { "nodes": nodes } });
    assert_eq!(impure_ways(&metadata, "a").unwrap(), expected);
    assert_eq!(impure_ways(&metadata, "unknown"), None);
}
