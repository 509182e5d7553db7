//! What a fleet is told: which clusters there are, which machines, and what the network between them looks like.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use uuid::Uuid;
use vlab_api::Timestamp;

use crate::alteration::Alteration;
use crate::boot::Boot;
use crate::hands::Hands;
use crate::profile::{HardwareProfile, HostAddresses};
use vlab_model::settings::HostTiming;

/// What all hosts of a fleet have in common.
#[derive(Clone, Debug)]
pub struct FleetConfig {
    /// Seed of the run.
    pub seed: u64,
    /// How long things take on hosts and in clusters.
    pub timing: HostTiming,
    /// The real agent does not send an answer that is identical to its last one; switched off, it does.
    pub reply_cache: bool,
    /// Certificate that the controller uploads as the cluster's ingress CA: [`crate::ingress::LAB_INGRESS_PEM`] in virtual
    /// time, [`crate::ingress::make_ingress_pem`] otherwise.
    pub ingress_pem: Arc<str>,
    /// Image of the discovery agent, which is also its version. The service compares it with its own setting.
    pub agent_version: Arc<str>,
    /// Value of the header `X-Secret-Key`; sent also when empty, as the real agent does.
    pub secret_key: Arc<str>,
    /// Note every step given and answered in the observations. Thousands of polling hosts make a long list of them.
    pub observe_steps: bool,
    /// Who does the work of the hosts.
    pub hands: Hands,
    /// Hosts or clusters do something wrong, so that the checks can be tested.
    pub alteration: Option<Alteration>,
}

impl FleetConfig {
    /// A fleet with the real agent's habits.
    pub fn new(seed: u64, timing: HostTiming, agent_version: impl Into<Arc<str>>) -> Self {
        Self {
            seed,
            timing,
            reply_cache: true,
            ingress_pem: crate::ingress::LAB_INGRESS_PEM.into(),
            agent_version: agent_version.into(),
            secret_key: "".into(),
            observe_steps: true,
            hands: Hands::Simulated,
            alteration: None,
        }
    }
}

/// A cluster that hosts of the fleet belong to.
#[derive(Clone, Debug)]
pub struct ClusterPlan {
    /// Id in the service.
    pub cluster_id: Uuid,
    /// Name, first part of its domain.
    pub name: String,
    /// Base domain, rest of its domain.
    pub base_domain: String,
    /// Hosts of the control plane, 1 for a single node.
    pub control_plane_count: u32,
    /// API addresses; empty with user-managed networking and on a single node.
    pub api_vips: Vec<IpAddr>,
    /// Ingress addresses, likewise.
    pub ingress_vips: Vec<IpAddr>,
    /// What hosts of the cluster see when they look up a name.
    pub dns: DnsView,
}

/// What a host sees when it looks up a name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DnsView {
    /// Name (lower case, without trailing dot; `*.` at the start stands for one or more labels) to addresses.
    pub records: BTreeMap<String, Vec<IpAddr>>,
    /// Domains without records for any other name below them: everything else below them does not exist.
    pub authoritative: BTreeSet<String>,
    /// Address of every name outside the authoritative domains, such as that of an image registry; `None`: there is no
    /// internet and such names do not resolve.
    pub elsewhere: Option<IpAddr>,
    /// Hosts (names or addresses) that resolve but do not answer: registries, tang servers, NTP sources.
    pub down: BTreeSet<String>,
    /// What is [`DnsView::elsewhere`] has an address but cannot be reached: there is no way out of the network.
    pub shut_in: bool,
}

impl DnsView {
    /// Names of a cluster as its operator would enter them: `api`, `api-int` and `*.apps`, where addresses are given. Names
    /// outside the base domain resolve to an address of the documentation range.
    pub fn for_cluster(name: &str, base_domain: &str, api: &[IpAddr], ingress: &[IpAddr]) -> Self {
        let domain = format!("{name}.{base_domain}").to_ascii_lowercase();
        let mut view = Self {
            elsewhere: Some(IpAddr::from([198, 51, 100, 10])),
            authoritative: BTreeSet::from([base_domain.to_ascii_lowercase()]),
            ..Self::default()
        };
        for (prefix, addresses) in [("api", api), ("api-int", api), ("*.apps", ingress)] {
            if !addresses.is_empty() {
                view.records.insert(format!("{prefix}.{domain}"), addresses.to_vec());
            }
        }
        view
    }

    /// Addresses of that name; empty when it does not exist.
    pub fn lookup(&self, name: &str) -> Vec<IpAddr> {
        let name = name.trim_end_matches('.').to_ascii_lowercase();
        if let Ok(address) = name.parse() {
            return vec![address];
        }
        if let Some(addresses) = self.records.get(&name) {
            return addresses.clone();
        }
        // The longest wildcard wins: strip labels from the left until one fits.
        let mut rest = name.as_str();
        while let Some((_, parent)) = rest.split_once('.') {
            if let Some(addresses) = self.records.get(&format!("*.{parent}")) {
                return addresses.clone();
            }
            rest = parent;
        }
        let below = |domain: &String| name == *domain || name.ends_with(&format!(".{domain}"));
        if self.authoritative.iter().any(below) {
            return Vec::new();
        }
        self.elsewhere.into_iter().collect()
    }

    /// Does somebody answer there? `host` is a name or an address, without a port.
    pub fn answers(&self, host: &str) -> bool {
        let host = host.trim_matches(['[', ']']);
        let found = self.lookup(host);
        let outside = self.shut_in && found.iter().all(|a| Some(*a) == self.elsewhere);
        !self.down.contains(&host.to_ascii_lowercase()) && !found.is_empty() && !outside
    }
}

/// A machine.
#[derive(Clone, Debug)]
pub struct HostPlan {
    /// Number of the machine in the run: decides its MACs, serial numbers and dice. Unique in the fleet.
    pub index: u32,
    /// Host name that it reports.
    pub name: String,
    /// Id in the service.
    pub host_id: Uuid,
    /// Infra-env whose discovery image it boots.
    pub infra_env_id: Uuid,
    /// Position of its cluster among the fleet's clusters; `None`: unbound.
    pub cluster: Option<usize>,
    /// What the host has.
    pub profile: Arc<HardwareProfile>,
    /// The addresses of its NICs.
    pub addresses: HostAddresses,
    /// The image that it boots, where that has static networks: the addresses then come from it.
    pub boot: Option<Boot>,
    /// Its firmware tries the discovery medium before the disk: it boots the discovery image again after the installation.
    pub medium_first: bool,
    /// Its medium carries a container registry, which masters copy to their disks.
    pub registry_on_medium: bool,
    /// When it is switched on.
    pub start_at: Timestamp,
}

impl HostPlan {
    /// What this host sees of the names that its cluster sees: a static network can lack a name server or a way out.
    pub(crate) fn names<'a>(&self, of_cluster: &'a DnsView) -> Cow<'a, DnsView> {
        let (Some(boot), Some(servers)) = (&self.boot, &self.addresses.dns) else { return Cow::Borrowed(of_cluster) };
        let way_out = self.addresses.has_way_out(&boot.lab);
        // In the lab's own network there is one name server; the others are outside.
        let on_link = |server: &IpAddr| self.addresses.is_on_link(*server);
        if servers.iter().any(|server| if on_link(server) { boot.lab.contains(server) } else { way_out }) {
            Cow::Owned(DnsView { shut_in: !way_out, ..of_cluster.clone() })
        } else {
            Cow::Owned(DnsView::default())
        }
    }
}
