//! ARCHITECTURE.md describes the crates and files that there are.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::markdown::{code_in, table_after};
use crate::place::{root, text_of};

/// Crates that a pure one must not be built with.
const IMPURE: &[&str] = &["tokio", "hyper", "tokio-postgres"];

/// A crate as the table of rooms has it, or as cargo knows it.
#[derive(Debug, PartialEq, Eq)]
struct Room {
    folder: String,
    /// Crates of the workspace that it depends on, without the `vlab-` of their names.
    uses: BTreeSet<String>,
    /// It claims to be pure; of what cargo knows: it is built without the crates for input and output. A program that reads files
    /// is, too, and claims nothing.
    pure: bool,
}

type Rooms = BTreeMap<String, Room>;

fn short(name: &str) -> String {
    name.strip_prefix("vlab-").unwrap_or(name).to_owned()
}

/// The crates of the table of rooms: folder and name, what lives there, what it uses, whether it is pure.
fn described(text: &str) -> Rooms {
    let row = |cells: Vec<String>| {
        let [room, _, uses, pure, ..] = &cells[..] else { panic!("a row of the rooms has too few columns: {cells:?}") };
        let code = code_in(room);
        let (folder, name) = (code.first().unwrap_or_else(|| panic!("no folder: {room}")), code.last().unwrap());
        let uses = uses.split([',', ' ']).filter(|word| !word.is_empty() && *word != "–").map(str::to_owned).collect();
        assert!(["yes", "no"].contains(&pure.as_str()), "is {room} pure? {pure}");
        (name.clone(), Room { folder: folder.clone(), uses, pure: pure == "yes" })
    };
    table_after(text, "Rooms").into_iter().map(row).collect()
}

/// The crates of the workspace, from the output of `cargo metadata`.
fn built(metadata: &Value) -> Rooms {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let name_of: BTreeMap<String, String> = list(&metadata["packages"])
        .iter()
        .map(|p| (p["id"].as_str().unwrap().to_owned(), p["name"].as_str().unwrap().to_owned()))
        .collect();
    // Only what is built into it: not what its tests and build scripts need.
    let normal = |dep: &Value| list(&dep["dep_kinds"]).iter().any(|kind| kind["kind"].is_null());
    let needs: BTreeMap<String, Vec<String>> = list(&metadata["resolve"]["nodes"])
        .iter()
        .map(|node| {
            let deps = list(&node["deps"]).into_iter().filter(normal);
            (node["id"].as_str().unwrap().to_owned(), deps.map(|dep| dep["pkg"].as_str().unwrap().to_owned()).collect())
        })
        .collect();
    let members: BTreeSet<String> =
        list(&metadata["workspace_members"]).iter().map(|id| id.as_str().unwrap().to_owned()).collect();
    let workspace = Path::new(metadata["workspace_root"].as_str().unwrap());
    let mut rooms = Rooms::new();
    for package in list(&metadata["packages"]) {
        let id = package["id"].as_str().unwrap();
        if !members.contains(id) {
            continue;
        }
        let manifest = Path::new(package["manifest_path"].as_str().unwrap());
        let folder = manifest.parent().unwrap().strip_prefix(workspace).unwrap().display().to_string();
        let uses = needs[id].iter().filter(|dep| members.contains(*dep)).map(|dep| short(&name_of[dep])).collect();
        let (mut seen, mut open) = (BTreeSet::new(), vec![id.to_owned()]);
        while let Some(next) = open.pop() {
            if seen.insert(next.clone()) {
                open.extend(needs[&next].iter().cloned());
            }
        }
        let pure = !seen.iter().any(|id| IMPURE.contains(&name_of[id].as_str()));
        rooms.insert(name_of[id].clone(), Room { folder, uses, pure });
    }
    rooms
}

/// What the table says and cargo does not.
fn differences(described: &Rooms, built: &Rooms) -> Vec<String> {
    let names: BTreeSet<&String> = described.keys().chain(built.keys()).collect();
    let mut wrong = Vec::new();
    for name in names {
        match (described.get(name), built.get(name)) {
            (Some(_), None) => wrong.push(format!("{name} is not a crate of the workspace")),
            (None, Some(room)) => wrong.push(format!("{name} ({}) is missing", room.folder)),
            (Some(said), Some(is)) => {
                if said.folder != is.folder {
                    wrong.push(format!("{name} is in {}, not in {}", is.folder, said.folder));
                }
                if said.uses != is.uses {
                    let uses: Vec<&str> = is.uses.iter().map(String::as_str).collect();
                    wrong.push(format!("{name} uses: {}", uses.join(", ")));
                }
                if said.pure && !is.pure {
                    wrong.push(format!("{name} is not built without {}", IMPURE.join(", ")));
                }
            }
            (None, None) => {}
        }
    }
    wrong
}

/// Neither the layout nor the promise that a crate is pure can rot.
#[test]
fn the_rooms_are_the_crates() {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args([
            "metadata",
            "--format-version",
            "1",
            "--offline",
            "--locked",
            "--filter-platform",
            "x86_64-unknown-linux-gnu",
        ])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let built = built(&serde_json::from_slice(&output.stdout).unwrap());
    let described = described(&text_of("ARCHITECTURE.md"));
    let mut wrong = differences(&described, &built);
    // The list of what must not be called lies in the folder of each pure crate.
    let listed =
        described.iter().filter(|(_, room)| room.pure != root().join(&room.folder).join("clippy.toml").exists());
    wrong.extend(listed.map(|(name, _)| format!("{name} is pure, or has a clippy.toml, and not both")));
    assert!(wrong.is_empty(), "the rooms in ARCHITECTURE.md:\n{}", wrong.join("\n"));
}

/// Paths in the code of these rows that are not there. A `*` in the last part stands for anything.
fn missing(rows: &[Vec<String>], root: &Path) -> Vec<String> {
    let is_path = |word: &String| word.contains('/') && !word.contains([' ', '<', '=', ':']);
    let is_there = |path: &String| match path.rsplit_once('/') {
        Some((folder, name)) if name.contains('*') => {
            let (start, end) = name.split_once('*').unwrap();
            let entries = std::fs::read_dir(root.join(folder)).into_iter().flatten().flatten();
            entries
                .map(|e| e.file_name().to_string_lossy().into_owned())
                .any(|name| name.starts_with(start) && name.ends_with(end))
        }
        _ => root.join(path).exists(),
    };
    rows.iter().flatten().flat_map(|cell| code_in(cell)).filter(is_path).filter(|path| !is_there(path)).collect()
}

/// The tables that send people to files.
const TABLES: &[&str] = &["Where to change what", "What an addition costs"];

#[test]
fn the_paths_open_as_they_are_written() {
    let text = text_of("ARCHITECTURE.md");
    for title in TABLES {
        let rows = table_after(&text, title);
        assert!(rows.len() >= 4, "the table \"{title}\" is gone");
        let missing = missing(&rows, &root());
        assert!(missing.is_empty(), "\"{title}\" names what does not exist: {missing:#?}");
    }
}

/// Lines that a file may have. A reader keeps no more in mind.
const LINES: usize = 900;

/// Longer ones: tables, and the mirror of the API.
const LONGER: &[&str] =
    &["harness/api/src/types.rs", "harness/model/src/host/table.rs", "harness/model/src/settings.rs"];

/// Files of Rust below a folder, with their lines.
fn sources(folder: &Path, found: &mut Vec<(String, usize)>) {
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            let name = path.strip_prefix(root()).unwrap().display().to_string();
            found.push((name, std::fs::read_to_string(&path).unwrap().lines().count()));
        }
    }
}

#[test]
fn no_file_is_too_long_to_read() {
    let mut found = Vec::new();
    for folder in ["fakes", "harness", "images", "reports", "xtask"] {
        sources(&root().join(folder), &mut found);
    }
    let long: Vec<&(String, usize)> = found.iter().filter(|(_, lines)| *lines > LINES).collect();
    let other: Vec<_> = long.iter().filter(|(name, _)| !LONGER.contains(&name.as_str())).collect();
    assert!(other.is_empty(), "more than {LINES} lines: {other:?}; split them");
    assert_eq!(long.len(), LONGER.len(), "a file of the list of exceptions is short enough, or gone: {long:?}");
}

#[test]
fn a_wrong_description_is_noticed() {
    let text = "## Rooms\n\n| room | what | uses | pure |\n| --- | --- | --- | --- |\n| `a`, `vlab-a` | x | – | yes |\n\
                | `b/b`, `vlab-b` | `y`, z | a | yes |\n| `gone` | x | – | no |\n";
    let package = |name: &str, path: &str| serde_json::json!({"id": name, "name": name, "manifest_path": format!("/w/{path}/Cargo.toml")});
    let dep = |name: &str, kind: Value| serde_json::json!({"pkg": name, "dep_kinds": [{"kind": kind}]});
    let metadata = serde_json::json!({
        "workspace_root": "/w",
        "workspace_members": ["vlab-a", "vlab-b", "vlab-c"],
        "packages": [package("vlab-a", "a"), package("vlab-b", "b"), package("vlab-c", "c"), package("serde", "s"), package("tokio", "t")],
        "resolve": {"nodes": [
            {"id": "vlab-a", "deps": [dep("serde", Value::Null), dep("tokio", "dev".into())]},
            {"id": "vlab-b", "deps": [dep("vlab-c", Value::Null), dep("vlab-a", "dev".into())]},
            {"id": "vlab-c", "deps": [dep("tokio", Value::Null)]},
            {"id": "serde", "deps": []},
            {"id": "tokio", "deps": []},
        ]},
    });
    assert_eq!(
        differences(&described(text), &built(&metadata)),
        [
            "gone is not a crate of the workspace",
            "vlab-b is in b, not in b/b",
            "vlab-b uses: c",
            "vlab-b is not built without tokio, hyper, tokio-postgres",
            "vlab-c (c) is missing",
        ]
    );
}

#[test]
fn a_path_that_is_gone_is_noticed() {
    let row = |cell: &str| vec!["do it".to_owned(), cell.to_owned()];
    let rows = [
        row(
            "`harness/cli/Cargo.toml`, `harness/cli/tests/do*`, `vlab_cli::main`, `VLAB_X=1 cargo test -p a/b`, `word`",
        ),
        row("`harness/cli/no.rs` (why), `harness/cli/tests/no*.rs`"),
    ];
    assert_eq!(missing(&rows, &root()), ["harness/cli/no.rs", "harness/cli/tests/no*.rs"]);
}
