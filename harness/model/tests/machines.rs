//! The tables of the state machines against those of the real service.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use vlab_facts::{agrees, source, table};
use vlab_model::{cluster, host};

/// Event, source, destination and name of the rule, to how many times.
type Edges = BTreeMap<(String, String, String, String), usize>;

const TABLE: &str = "state-machines.yaml";
const HEADING: &str = "The rules of the real service's state machines, in the order in which it tries them, reduced from its own dump:\n\
                       what happens (`on`), in which states (`from`), what it leads to, and the name of the rule.";
const MACHINES: [&str; 3] = ["host", "unbound-host", "cluster"];

/// The edges of the rows of a machine.
fn edges(rows: &Value) -> Edges {
    let mut edges = Edges::new();
    let word = |v: &Value| v.as_str().expect("events, states and names are text").to_owned();
    for row in rows.as_array().expect("a machine has a list of rules") {
        for from in row["from"].as_array().expect("a rule has a list of sources") {
            let edge = (word(&row["on"]), word(from), word(&row["to"]), word(&row["name"]));
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
            lines.push(format!("{machine}: {event}: {from} -> {to} ({name:?}): {mine} here, {real} there"));
        }
    }
    lines.sort();
    lines.dedup();
    lines
}

#[test]
fn our_rules_are_those_of_the_real_service() {
    let facts = table(TABLE);
    let mut all = Vec::new();
    for (machine, ours) in MACHINES.into_iter().zip([of_hosts(host::RULES), of_hosts(host::POOL_RULES), of_clusters()])
    {
        let theirs = edges(&facts[machine]);
        assert!(!theirs.is_empty(), "there are no rules of {machine}");
        all.extend(differences(machine, &ours, &theirs));
    }
    assert!(all.is_empty(), "the rules differ:\n{}", all.join("\n"));
}

#[test]
fn the_table_of_facts_is_the_real_services_dump() {
    let mut machines = serde_json::Map::new();
    for machine in MACHINES {
        let Some(text) = source(&format!("{machine}-state-machine.json")) else { return };
        let dump: Value = serde_json::from_str(&text).expect("a dump is JSON");
        let row = |r: &Value| {
            json!({
                "on": r["transition_type"], "from": r["source_states"], "to": r["destination_state"], "name": r["name"],
            })
        };
        machines
            .insert(machine.to_owned(), dump["transition_rules"].as_array().into_iter().flatten().map(row).collect());
    }
    agrees(TABLE, HEADING, &Value::Object(machines));
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
            format!("cluster: {}: {} -> {} ({:?}): 1 here, 0 there", edge.0, edge.1, edge.2, edge.3),
            "cluster: Explode: ready -> error (\"New rule\"): 0 here, 1 there".to_owned(),
        ]
    );
}
