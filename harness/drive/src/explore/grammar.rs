//! A grammar of scenarios: topologies, numbers of hosts, hardware, networks and versions that are not in the catalogue.

use std::fmt::Write as _;

use super::tape::Draw;

/// A form of a cluster.
struct Form {
    name: &'static str,
    /// What it says of itself, but for networks and version.
    topology: &'static str,
    /// Its groups: name, role, how many at least, how many more at most, and what else is said of it.
    groups: &'static [(&'static str, &'static str, u64, u64, &'static str)],
    /// Has it virtual addresses?
    vips: bool,
    /// The oldest of [`VERSIONS`] that knows it.
    since: usize,
}

/// Versions that the service offers, the plainest first.
const VERSIONS: &[&str] = &["4.18", "4.17", "4.16", "4.19", "4.20", "4.21"];

const FORMS: &[Form] = &[
    Form { name: "sno", topology: "sno", groups: &[("node", "auto", 1, 0, "")], vips: false, since: 0 },
    Form { name: "compact", topology: "compact", groups: &[("master", "master", 3, 0, "")], vips: true, since: 0 },
    Form {
        name: "ha",
        topology: "ha",
        groups: &[("master", "master", 3, 0, ""), ("worker", "worker", 2, 3, "")],
        vips: true,
        since: 0,
    },
    Form { name: "auto", topology: "ha", groups: &[("node", "auto", 5, 2, "")], vips: true, since: 0 },
    Form {
        name: "own",
        topology: "ha, user_managed_networking: true",
        groups: &[("master", "master", 3, 0, ""), ("worker", "worker", 2, 1, "")],
        vips: false,
        since: 0,
    },
    Form {
        name: "five",
        topology: "compact, control_plane_count: 5",
        groups: &[("master", "master", 5, 0, "")],
        vips: true,
        since: 3,
    },
    Form {
        name: "arbiter",
        topology: "compact, control_plane_count: 2",
        groups: &[("master", "master", 2, 0, ""), ("arbiter", "arbiter", 1, 0, "")],
        vips: true,
        since: 4,
    },
    Form {
        name: "pool",
        topology: "compact",
        groups: &[("master", "master", 3, 0, ", cluster: none")],
        vips: true,
        since: 0,
    },
    Form {
        name: "pool-sno",
        topology: "sno",
        groups: &[("node", "auto", 1, 0, ", cluster: none")],
        vips: false,
        since: 0,
    },
    Form {
        name: "grows",
        topology: "compact",
        groups: &[("master", "master", 3, 0, ""), ("extra", "worker", 1, 1, ", day2: true")],
        vips: true,
        since: 0,
    },
    Form {
        name: "grows-sno",
        topology: "sno",
        groups: &[("node", "auto", 1, 0, ""), ("extra", "worker", 1, 1, ", day2: true")],
        vips: false,
        since: 0,
    },
];

/// Networks: machine networks, API, ingress, and what else is said.
const NETWORKS: &[(&str, &str, &str, &str)] = &[
    ("192.168.126.0/24", "192.168.126.100", "192.168.126.101", ""),
    (
        "\"fd2e:6f44:5dd8::/64\"",
        "\"fd2e:6f44:5dd8::64\"",
        "\"fd2e:6f44:5dd8::65\"",
        ", cluster_networks: [{cidr: \"fd01::/48\", host_prefix: 64}], service_networks: [\"fd02::/112\"]",
    ),
    (
        "192.168.126.0/24, \"fd2e:6f44:5dd8::/64\"",
        "192.168.126.100, \"fd2e:6f44:5dd8::64\"",
        "192.168.126.101, \"fd2e:6f44:5dd8::65\"",
        ", cluster_networks: [{cidr: 10.128.0.0/14, host_prefix: 23}, {cidr: \"fd01::/48\", host_prefix: 64}], \
         service_networks: [172.30.0.0/16, \"fd02::/112\"]",
    ),
];

/// Hardware profiles, the plainest first.
const PROFILES: &[&str] = &["standard", "dell-poweredge-r650", "hpe-proliant-dl360-gen10", "small"];

/// Draws the text of a scenario.
pub(super) fn draw(draw: &mut Draw<'_>) -> String {
    let mut text = "version: 1\nname: drawn\nservice: {kind: simulated, time_profile: rapid}\n".to_owned();
    let two = draw.chance("two clusters", 10);
    let mut hosts = String::new();
    let mut actions = String::new();
    text.push_str(if two { "clusters:\n" } else { "cluster:\n" });
    for nth in 0..=u64::from(two) {
        let cluster = draw.stretch("cluster", |draw| cluster(draw, nth, two, &mut hosts, &mut actions));
        let _ = writeln!(text, "  {}{cluster}", if two { "- " } else { "" });
    }
    let _ = write!(text, "hosts:\n{hosts}");
    if !actions.is_empty() {
        let _ = write!(text, "actions:\n{actions}");
    }
    text
}

fn cluster(draw: &mut Draw<'_>, nth: u64, two: bool, hosts: &mut String, actions: &mut String) -> String {
    // Hosts of the pool would be in doubt between two clusters.
    let forms: Vec<&Form> = FORMS.iter().filter(|form| !(two && form.name.starts_with("pool"))).collect();
    let index = draw.kind("form of the cluster", forms.len() as u64);
    let form = forms[usize::try_from(index).unwrap_or(0).min(forms.len() - 1)];
    let old_enough = &VERSIONS[form.since..];
    let version = old_enough[usize::try_from(draw.choose("version", old_enough.len() as u64)).unwrap_or(0)];
    let network = draw.kind("network", NETWORKS.len() as u64);
    let (machine, api, ingress, more) = NETWORKS[usize::try_from(network).unwrap_or(0)];
    // A second cluster is elsewhere.
    let here =
        |text: &str| if nth == 0 { text.to_owned() } else { text.replace(".126.", ".127.").replace("5dd8", "5dd9") };
    let name = format!("{}{}", form.name, if nth == 0 { "" } else { "-too" });
    for (group, role, least, more, said) in form.groups {
        let count = least + draw.choose("more hosts of the group", more + 1);
        let profile = PROFILES[usize::try_from(draw.kind("hardware", PROFILES.len() as u64)).unwrap_or(0)];
        let group = if nth == 0 { (*group).to_owned() } else { format!("{group}-too") };
        let of = if two { format!(", cluster: {name}") } else { String::new() };
        let _ = writeln!(hosts, "  - {{name: {group}, count: {count}, role: {role}, profile: {profile}{said}{of}}}");
        if said.contains("none") {
            let _ = writeln!(
                actions,
                "  - {{do: bind, hosts: {group}, cluster: {name}, after: {{hosts: {group}, status: known-unbound}}, then: 10m}}"
            );
        }
        if said.contains("day2") {
            let _ = writeln!(
                actions,
                "  - {{do: allow-add-hosts, cluster: {name}, after: {{cluster: {name}, status: installed}}}}"
            );
            let _ = writeln!(
                actions,
                "  - {{do: install-host, host: {group}-0, after: {{host: {group}-0, status: known}}, then: 5m}}"
            );
        }
    }
    let vips = match form.vips {
        true => format!(", api_vips: [{}], ingress_vips: [{}]", here(api), here(ingress)),
        false => String::new(),
    };
    format!(
        "{{name: {name}, topology: {}, openshift_version: \"{version}\", machine_networks: [{}]{vips}{more}}}",
        form.topology,
        here(machine)
    )
}
