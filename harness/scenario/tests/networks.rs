//! Which networks virtual machines can have, in one cluster and in several.

use vlab_scenario::{Catalogue, LoadError, Scenario, SourceFile, load};

fn read(text: String) -> Result<Scenario, LoadError> {
    load(&SourceFile::new("test.yaml", text), &Catalogue::embedded())
}

/// Four single nodes in these networks, and a host of the pool that goes from the first to the last.
fn sites(kind: &str, networks: [&str; 4]) -> String {
    let mut text = "version: 1\nname: test\nclusters:\n".to_owned();
    for (name, network) in ["a", "b", "c", "d"].into_iter().zip(networks) {
        text += &format!("  - {{name: {name}, topology: sno, machine_networks: [{network}]}}\n");
    }
    text += "hosts:\n";
    for name in ["b", "c"] {
        text += &format!("  - {{name: {name}, kind: {kind}, cluster: {name}}}\n");
    }
    text += &format!("  - {{name: goes, kind: {kind}, cluster: none}}\nactions:\n");
    for (name, at) in [("a", "1h"), ("d", "9h")] {
        text += &format!("  - {{do: bind, host: goes-0, cluster: {name}, at: {at}}}\n");
    }
    text
}

/// Who asks for machines where the scenario has none is refused for the same reasons.
#[test]
fn networks_that_machines_cannot_have_are_known_whatever_the_hosts_are() {
    let lines = |kind| {
        let text = sites(kind, ["192.168.126.0/24", "192.168.0.0/16", "fd00:1::/64", "10.1.0.0/24"]);
        let scenario = read(text).unwrap_or_else(|e| panic!("{e}"));
        scenario.not_built.iter().map(|n| n.line).collect::<Vec<_>>()
    };
    assert_eq!(lines("vm"), [6, 11, 4]);
    assert_eq!(lines("simulated"), lines("vm"));
    let fine = sites("vm", ["10.1.0.0/24", "192.168.126.0/24", "192.168.126.0/24", "10.1.0.0/24"]);
    assert!(read(fine).unwrap_or_else(|e| panic!("{e}")).not_built.is_empty());
}

/// A host of the pool counts for the clusters to which it is bound.
#[test]
fn a_cluster_s_hosts_are_of_one_kind_when_they_come_from_the_pool_too() {
    let text = "version: 1\nname: test\ncluster: {topology: compact, user_managed_networking: true}\nhosts:\n  \
                - {name: m, count: 2, role: master}\n  - {name: late, role: master, cluster: none, kind: vm}\n\
                actions:\n  - {do: bind, at: 5m, host: late-0}\n";
    let refused = read(text.to_owned()).unwrap_err().to_string();
    assert!(refused.contains("are of two kinds: `m` is `simulated`, and `late` is `vm`"), "{refused}");
}

#[test]
fn what_is_not_built_yet_loads_and_says_so() {
    let text = sites("vm", ["192.168.126.0/24", "192.168.0.0/16", "fd00:1::/64", "10.1.0.0/24"]);
    let scenario = read(text).unwrap_or_else(|e| panic!("{e}"));
    let what: Vec<_> = scenario.not_built.iter().map(|n| (n.what.as_str(), n.line)).collect();
    insta::with_settings!({ snapshot_path => "snapshots", prepend_module_to_snapshot => false, omit_expression => true }, {
        insta::assert_debug_snapshot!("not_built_list", what);
        insta::assert_snapshot!("not_built", scenario.not_built[0].diagnostic);
    });
}
