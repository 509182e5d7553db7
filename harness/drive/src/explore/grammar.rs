//! A grammar of scenarios: topologies, numbers of hosts, hardware, networks and versions that are not in the catalogue.

use std::fmt::Write as _;

use super::asking;
use super::tape::Draw;

/// A form of a cluster.
struct Form {
    name: &'static str,
    /// What it says of itself, but for networks and version.
    topology: &'static str,
    /// Its groups: name, role, how many at least, how many more at most, and when they come to the cluster.
    groups: &'static [(&'static str, &'static str, u64, u64, Joins)],
    /// Its virtual addresses.
    vips: Vips,
    /// The oldest of [`VERSIONS`] that knows it.
    since: usize,
}

impl Form {
    /// The versions that it can have.
    fn versions(&self) -> &'static [&'static str] {
        if self.vips == Vips::Leased { OF_LEASES } else { &VERSIONS[self.since..] }
    }

    /// The networks that it can have: only addresses of IPv4 are leased.
    fn networks(&self) -> &'static [Network] {
        if self.vips == Vips::Leased { &NETWORKS[..1] } else { NETWORKS }
    }

    /// Can it be drawn? Hosts of the pool would be in doubt between two clusters, and addresses are leased over REST, where there is one.
    fn fits(&self, two: bool, kube: bool) -> bool {
        let is_of_pool = self.groups.iter().any(|(.., joins)| joins.is_of_pool());
        !(two && is_of_pool || self.vips == Vips::Leased && (two || kube))
    }
}

/// When the hosts of a group come to the cluster.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Joins {
    /// They are its hosts from the beginning.
    First,
    /// They are in the pool, and the user binds them.
    Bound,
    /// They are in the pool, and only chance takes them from there.
    Stays,
    /// They are in the pool, the user binds them, and takes them back when they are installed.
    Returns,
    /// They are added when it is installed.
    Day2,
}

impl Joins {
    /// Are they in the pool first?
    const fn is_of_pool(self) -> bool {
        matches!(self, Self::Bound | Self::Stays | Self::Returns)
    }

    /// What a group says of it.
    const fn text(self) -> &'static str {
        match self {
            Self::First => "",
            Self::Day2 => ", day2: true",
            Self::Bound | Self::Stays | Self::Returns => ", cluster: none",
        }
    }
}

/// Virtual addresses of a form.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Vips {
    /// It has none.
    None,
    /// The user names them.
    Named,
    /// The hosts get them by DHCP, before OpenShift 4.15 only.
    Leased,
}

/// Versions that the service offers, the plainest first.
const VERSIONS: &[&str] = &["4.18", "4.17", "4.16", "4.19", "4.20", "4.21"];

const FORMS: &[Form] = &[
    Form { name: "sno", topology: "sno", groups: &[("node", "auto", 1, 0, Joins::First)], vips: Vips::None, since: 0 },
    Form {
        name: "compact",
        topology: "compact",
        groups: &[("master", "master", 3, 0, Joins::First)],
        vips: Vips::Named,
        since: 0,
    },
    Form {
        name: "ha",
        topology: "ha",
        groups: &[("master", "master", 3, 0, Joins::First), ("worker", "worker", 2, 3, Joins::First)],
        vips: Vips::Named,
        since: 0,
    },
    Form { name: "auto", topology: "ha", groups: &[("node", "auto", 5, 2, Joins::First)], vips: Vips::Named, since: 0 },
    Form {
        name: "own",
        topology: "ha, user_managed_networking: true",
        groups: &[("master", "master", 3, 0, Joins::First), ("worker", "worker", 2, 1, Joins::First)],
        vips: Vips::None,
        since: 0,
    },
    Form {
        name: "five",
        topology: "compact, control_plane_count: 5",
        groups: &[("master", "master", 5, 0, Joins::First)],
        vips: Vips::Named,
        since: 3,
    },
    Form {
        name: "arbiter",
        topology: "compact, control_plane_count: 2",
        groups: &[("master", "master", 2, 0, Joins::First), ("arbiter", "arbiter", 1, 0, Joins::First)],
        vips: Vips::Named,
        since: 4,
    },
    Form {
        name: "pool",
        topology: "compact",
        groups: &[("master", "master", 3, 0, Joins::Bound)],
        vips: Vips::Named,
        since: 0,
    },
    Form {
        name: "pool-sno",
        topology: "sno",
        groups: &[("node", "auto", 1, 0, Joins::Bound)],
        vips: Vips::None,
        since: 0,
    },
    Form {
        name: "grows",
        topology: "compact",
        groups: &[("master", "master", 3, 0, Joins::First), ("extra", "worker", 1, 1, Joins::Day2)],
        vips: Vips::Named,
        since: 0,
    },
    Form {
        name: "grows-sno",
        topology: "sno",
        groups: &[("node", "auto", 1, 0, Joins::First), ("extra", "worker", 1, 1, Joins::Day2)],
        vips: Vips::None,
        since: 0,
    },
    Form {
        name: "spare",
        topology: "sno",
        groups: &[("node", "auto", 1, 0, Joins::First), ("spare", "auto", 1, 1, Joins::Stays)],
        vips: Vips::None,
        since: 0,
    },
    Form {
        name: "returns",
        topology: "sno",
        groups: &[("node", "auto", 1, 0, Joins::Returns)],
        vips: Vips::None,
        since: 0,
    },
    Form {
        name: "vsphere",
        topology: "compact, platform: vsphere",
        groups: &[("master", "master", 3, 0, Joins::First)],
        vips: Vips::Named,
        since: 0,
    },
    Form {
        name: "nutanix",
        topology: "ha, platform: nutanix",
        groups: &[("master", "master", 3, 0, Joins::First), ("worker", "worker", 2, 0, Joins::First)],
        vips: Vips::Named,
        since: 0,
    },
    Form {
        name: "leased",
        topology: "compact, vip_dhcp_allocation: true",
        groups: &[("master", "master", 3, 0, Joins::First)],
        vips: Vips::Leased,
        since: 0,
    },
];

/// The last version in which addresses were leased.
const OF_LEASES: &[&str] = &["4.14"];

/// The setting that makes the service know it.
const RELEASE_OF_LEASES: &str = r#"RELEASE_IMAGES: '[{"openshift_version": "4.14", "version": "4.14.50", "cpu_architecture": "x86_64", "cpu_architectures": ["x86_64"], "url": "quay.io/openshift-release-dev/ocp-release:4.14.50-x86_64", "default": true, "support_level": "maintenance"}]'"#;

/// Machine networks, API, ingress, and what else is said.
type Network = (&'static str, &'static str, &'static str, &'static str);

const NETWORKS: &[Network] = &[
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

/// Limits of the service that are drawn, with a value. Those that are compiled into the real service are left out: it would not heed them.
const SETTINGS: &[(&str, &str)] = &[
    ("FINALIZING_STAGE_ADDING_ROUTER_CA_TIMEOUT", "20m"),
    ("FINALIZING_STAGE_WAITING_FOR_CLUSTER_OPERATORS_TIMEOUT", "20m"),
    ("FINALIZING_TIMEOUT", "20m"),
    ("HOST_INSTALLING_PENDING_USER_ACTION_TIMEOUT", "20m"),
    ("HOST_LOG_COLLECTION_TIMEOUT", "1m"),
    ("HOST_LOG_PENDING_TIMEOUT", "1m"),
    ("HOST_MAX_DISCONNECTION_TIME", "10m"),
    ("HOST_STAGE_CONFIGURING_TIMEOUT", "30m"),
    ("HOST_STAGE_COPYING_REGISTRY_DATA_TO_DISK_TIMEOUT", "3m"),
    ("HOST_STAGE_REBOOTING_TIMEOUT", "20m"),
    ("HOST_STAGE_WAITING_FOR_BOOTKUBE_TIMEOUT", "10m"),
    ("HOST_STAGE_WAITING_FOR_CONTROL_PLANE_TIMEOUT", "30m"),
    ("HOST_STAGE_WRITING_IMAGE_TO_DISK_TIMEOUT", "3m"),
    ("INSTALLATION_TIMEOUT", "30m"),
    ("LOG_COLLECTION_TIMEOUT", "3m"),
    ("LOG_PENDING_TIMEOUT", "3m"),
];

/// What is drawn from tables here that may grow.
pub(super) fn tables() -> impl Iterator<Item = &'static str> {
    SETTINGS.iter().map(|(name, _)| *name).chain(OVERRIDES.iter().copied())
}

/// Draws what differs from the service's settings.
fn settings(draw: &mut Draw<'_>) -> Vec<String> {
    let mut chosen = std::collections::BTreeMap::new();
    if draw.chance("limits of time only warn", 12) {
        chosen.insert("ENABLE_SOFT_TIMEOUTS", "\"true\"");
    }
    while draw.stretch("setting", |draw| {
        let more = draw.chance("one more setting", 25) && chosen.len() < 4;
        if more {
            chosen.extend(draw.pick_kind("which setting", SETTINGS));
        }
        more
    }) {}
    chosen.iter().map(|(name, value)| format!("{name}: {value}")).collect()
}

/// What differs from the hardware profile, the plainest first.
const OVERRIDES: &[&str] = &[
    "overrides: {disk_gb: 120}",
    "overrides: {cpu_cores: 4, memory_mib: 16384}",
    "overrides: {memory_mib: 12000}",
    "overrides: {cpu_cores: 2}",
    "overrides: {memory_mib: 4096}",
    "overrides: {disk_gb: 20}",
    "registry_on_medium: true",
    "register_after: 5m",
    "register_after: 40m",
];

/// Draws the text of a scenario.
pub(super) fn draw(draw: &mut Draw<'_>) -> String {
    let mut settings = settings(draw);
    let mut parts = asking::infra_env(draw);
    let two = draw.chance("two clusters", 10);
    // Such a run takes twenty times as long.
    let kube = draw.chance("over Kubernetes", 6);
    let mut text = Text { two, kube, ..Text::default() };
    parts.push_str(if two { "clusters:\n" } else { "cluster:\n" });
    for nth in 0..=u64::from(two) {
        let cluster = draw.stretch("cluster", |draw| cluster(draw, nth, &mut text));
        let _ = writeln!(parts, "  {}{cluster}", if two { "- " } else { "" });
    }
    let Text { hosts, actions, leases, .. } = text;
    let _ = write!(parts, "hosts:\n{hosts}");
    if !actions.is_empty() {
        let _ = write!(parts, "actions:\n{actions}");
    }
    if leases {
        settings.push(RELEASE_OF_LEASES.to_owned());
    }
    let settings = if settings.is_empty() { String::new() } else { format!(", settings: {{{}}}", settings.join(", ")) };
    let door = if kube { "api: kube\n" } else { "" };
    // Nothing is installed where a cluster is held; what is built on it has an end of its own.
    parts.push_str("until: {rest: 30m}\n");
    format!("version: 1\nname: drawn\nservice: {{kind: simulated, time_profile: rapid{settings}}}\n{door}{parts}")
}

/// What is written while clusters are drawn.
#[derive(Default)]
struct Text {
    /// There are two clusters.
    two: bool,
    /// The service is asked over Kubernetes.
    kube: bool,
    hosts: String,
    actions: String,
    /// Addresses are leased.
    leases: bool,
}

fn cluster(draw: &mut Draw<'_>, nth: u64, text: &mut Text) -> String {
    let Text { two, kube, hosts, actions, leases } = text;
    let (two, kube) = (*two, *kube);
    let forms: Vec<&Form> = FORMS.iter().filter(|form| form.fits(two, kube)).collect();
    let form = draw.pick_kind("form of the cluster", &forms).unwrap_or(&FORMS[0]);
    *leases |= form.vips == Vips::Leased;
    let version = draw.pick("version", form.versions()).unwrap_or_default();
    let (machine, api, ingress, more) = draw.pick_kind("network", form.networks()).unwrap_or_default();
    // A second cluster is elsewhere.
    let here =
        |text: &str| if nth == 0 { text.to_owned() } else { text.replace(".126.", ".127.").replace("5dd8", "5dd9") };
    let name = format!("{}{}", form.name, if nth == 0 { "" } else { "-too" });
    for (group, role, least, more, joins) in form.groups {
        let count = least + draw.choose("more hosts of the group", more + 1);
        let profile = draw.pick_kind("hardware", PROFILES).unwrap_or_default();
        let differs = draw.chance("other than the profile", 15);
        let more = differs.then(|| draw.early("what differs", OVERRIDES)).flatten();
        let mut more = more.map_or(String::new(), |text| format!(", {text}"));
        let group = if nth == 0 { (*group).to_owned() } else { format!("{group}-too") };
        if kube && *joins == Joins::First && draw.chance("a BareMetalHost", 40) {
            more.push_str(", bare_metal_host: true");
        }
        let said = joins.text();
        let of = if two { format!(", cluster: {name}") } else { String::new() };
        let _ =
            writeln!(hosts, "  - {{name: {group}, count: {count}, role: {role}, profile: {profile}{more}{said}{of}}}");
        if matches!(joins, Joins::Bound | Joins::Returns) {
            let _ = writeln!(
                actions,
                "  - {{do: bind, hosts: {group}, cluster: {name}, after: {{hosts: {group}, status: known-unbound}}, then: 10m}}"
            );
        }
        if *joins == Joins::Returns {
            let _ = writeln!(
                actions,
                "  - {{do: unbind, hosts: {group}, after: {{cluster: {name}, status: installed}}, then: 10m}}"
            );
        }
        if *joins == Joins::Day2 {
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
        Vips::Named => format!(", api_vips: [{}], ingress_vips: [{}]", here(api), here(ingress)),
        Vips::None | Vips::Leased => String::new(),
    };
    let params = if kube { String::new() } else { asking::params(draw) };
    let held = if draw.chance("held", 8) { ", install: never" } else { "" };
    format!(
        "{{name: {name}, topology: {}, openshift_version: \"{version}\", machine_networks: [{}]{vips}{more}{params}{held}}}",
        form.topology,
        here(machine)
    )
}
