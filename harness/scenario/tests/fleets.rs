//! Clusters that are alike, and hosts that BareMetalHosts describe.

use rstest::rstest;
use vlab_scenario::{Catalogue, Scenario, SourceFile};

fn load(rest: &str) -> Result<Scenario, String> {
    let text = format!("version: 1\nname: t\n{rest}\n");
    vlab_scenario::load(&SourceFile::new("t.yaml", text), &Catalogue::embedded()).map_err(|error| error.to_string())
}

/// Hosts go to one cluster after the other, and each has an address of its own.
#[test]
fn a_group_has_so_many_hosts_in_each_of_the_clusters() {
    let scenario = load(
        "clusters: [{name: edge, count: 3, topology: sno, machine_networks: [10.0.0.0/16]}, {name: hub, topology: sno}]\n\
         hosts: [{name: node, cluster: edge}, {name: other, cluster: hub}]",
    )
    .unwrap();
    let clusters: Vec<&str> = scenario.clusters.iter().map(|cluster| cluster.name.as_str()).collect();
    assert_eq!(clusters, ["edge-0", "edge-1", "edge-2", "hub"]);
    let hosts: Vec<String> = scenario
        .hosts
        .iter()
        .map(|host| format!("{} {} {}", host.name, host.cluster.as_deref().unwrap(), host.address.unwrap().addr()))
        .collect();
    assert_eq!(
        hosts,
        ["node-0 edge-0 10.0.0.10", "node-1 edge-1 10.0.0.11", "node-2 edge-2 10.0.0.12", "other-0 hub 192.168.126.10"]
    );
}

#[rstest]
#[case::in_order("count: 2", "count: 2", "m-0 c-0, m-1 c-0, m-2 c-1, m-3 c-1")]
#[case::one_is_counted_too("count: 1", "count: 2", "m-0 c-0, m-1 c-0")]
fn who_is_where(#[case] clusters: &str, #[case] hosts: &str, #[case] expected: &str) {
    let text = format!(
        "cluster: {{name: c, {clusters}, topology: compact, control_plane_count: 3, user_managed_networking: true}}\n\
         hosts: [{{name: m, {hosts}}}, {{name: n}}]"
    );
    let scenario = load(&text).unwrap();
    let of_m = scenario.hosts.iter().filter(|host| host.group == "m");
    let all: Vec<String> = of_m.map(|host| format!("{} {}", host.name, host.cluster.as_deref().unwrap())).collect();
    assert_eq!(all.join(", "), expected);
}

#[rstest]
#[case::vips(
    "cluster: {name: c, count: 2, api_vips: [192.168.126.100], ingress_vips: [192.168.126.101]}\nhosts: [{name: m, count: 3}]",
    "clusters with VIPs cannot be alike"
)]
#[case::none("cluster: {name: c, count: 0, topology: sno}\nhosts: [{name: m}]", "it must be between 1 and")]
#[case::too_many("cluster: {name: c, count: 20000, topology: sno}\nhosts: [{name: m, count: 2}]", "more than 20000")]
#[case::the_same_name(
    "clusters: [{name: c, count: 2, topology: sno}, {name: c-1, topology: sno}]\nhosts: [{name: m, cluster: c}, {name: n, cluster: c-1}]",
    "two clusters are named `c-1`"
)]
#[case::one_of_them(
    "cluster: {name: c, count: 2, topology: sno}\nhosts: [{name: m, cluster: c-0}]",
    "there is no cluster `c-0`"
)]
#[case::day_2(
    "cluster: {name: c, count: 2, topology: sno}\nhosts: [{name: m}, {name: w, day2: true}]",
    "clusters with a `count` take no day-2 hosts"
)]
#[case::no_room(
    "cluster: {name: c, count: 9, topology: sno, machine_networks: [10.0.0.0/28]}\nhosts: [{name: m}]",
    "has no address left"
)]
#[case::described_over_rest(
    "cluster: {name: c, topology: sno}\nhosts: [{name: m, bare_metal_host: true}]",
    "only over Kubernetes is a host described by a BareMetalHost"
)]
fn what_cannot_be_is_refused(#[case] rest: &str, #[case] why: &str) {
    let refused = load(rest).unwrap_err();
    assert!(refused.contains(why), "{refused}");
}
