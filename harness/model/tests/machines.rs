//! The tables of the state machines against the real service's own dump of its machines.

#![expect(clippy::disallowed_methods, reason = "a test looks where its facts are")]

use std::collections::BTreeMap;
use std::path::Path;

use vlab_model::{cluster, host};

/// Event, source, destination and name of the rule, to how many times.
type Edges = BTreeMap<(String, String, String, String), usize>;

fn dump(folder: &Path, machine: &str) -> Edges {
    let path = folder.join(format!("{machine}-state-machine.json"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let dump: serde_json::Value = serde_json::from_str(&text).expect("a dump is JSON");
    let mut edges = Edges::new();
    let word = |v: &serde_json::Value| v.as_str().expect("events, states and names are text").to_owned();
    for rule in dump["transition_rules"].as_array().expect("a dump has a list of rules") {
        for source in rule["source_states"].as_array().expect("a rule has a list of sources") {
            let edge =
                (word(&rule["transition_type"]), word(source), word(&rule["destination_state"]), word(&rule["name"]));
            *edges.entry(edge).or_default() += 1;
        }
    }
    edges
}

fn count(rows: impl Iterator<Item = (&'static str, &'static str, &'static str, &'static str)>) -> Edges {
    let mut edges = Edges::new();
    for (event, from, to, name) in rows {
        *edges.entry((event.to_owned(), from.to_owned(), to.to_owned(), name.to_owned())).or_default() += 1;
    }
    edges
}

fn of_hosts(table: &'static [host::HostRule]) -> Edges {
    count(table.iter().flat_map(|r| r.from.iter().map(|f| (r.event.as_str(), f.as_str(), r.to.as_str(), r.name))))
}

fn of_clusters() -> Edges {
    let row =
        |r: &'static cluster::ClusterRule| r.from.iter().map(|f| (r.event.as_str(), f.as_str(), r.to.as_str(), r.name));
    count(cluster::RULES.iter().flat_map(row))
}

/// Lines of what one has and the other has not.
fn differences(machine: &str, ours: &Edges, theirs: &Edges) -> Vec<String> {
    let mut lines = Vec::new();
    for edge in ours.keys().chain(theirs.keys()) {
        let (mine, real) = (ours.get(edge).unwrap_or(&0), theirs.get(edge).unwrap_or(&0));
        if mine != real {
            let (event, from, to, name) = edge;
            lines.push(format!("{machine}: {event}: {from} -> {to} ({name:?}): {mine} here, {real} in the dump"));
        }
    }
    lines.sort();
    lines.dedup();
    lines
}

#[test]
fn tables_equal_the_dumps_of_the_real_service() {
    let Some(folder) = std::env::var_os("VLAB_REFERENCE") else {
        vlab_skip::skip!("VLAB_REFERENCE is not set; it names the folder of the real service's state machine dumps");
        return;
    };
    let folder = Path::new(&folder);
    let mut all = Vec::new();
    for (machine, ours) in
        [("host", of_hosts(host::RULES)), ("unbound-host", of_hosts(host::POOL_RULES)), ("cluster", of_clusters())]
    {
        let theirs = dump(folder, machine);
        assert!(!theirs.is_empty(), "the dump of {machine} is empty");
        all.extend(differences(machine, &ours, &theirs));
    }
    assert!(all.is_empty(), "the tables differ from the dumps:\n{}", all.join("\n"));
}

#[test]
fn a_difference_is_told_by_name() {
    let ours = of_clusters();
    let mut theirs = ours.clone();
    let edge = theirs.keys().next().unwrap().clone();
    theirs.remove(&edge);
    theirs.insert(("Explode".into(), "ready".into(), "error".into(), "New rule".into()), 1);
    assert_eq!(
        differences("cluster", &ours, &theirs),
        [
            format!("cluster: {}: {} -> {} ({:?}): 1 here, 0 in the dump", edge.0, edge.1, edge.2, edge.3),
            "cluster: Explode: ready -> error (\"New rule\"): 0 here, 1 in the dump".to_owned(),
        ]
    );
}
