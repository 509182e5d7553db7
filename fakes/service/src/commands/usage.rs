//! Which of the API's features a cluster uses: the JSON object in its `feature_usage`.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use uuid::Uuid;
use vlab_api::Timestamp;
use vlab_api::types::{Cluster, DiskEncryption, Inventory, PlatformType, V2ClusterUpdateParams};
use vlab_model::view::{ClusterView, HostView};

use crate::Core;

/// Name of the feature that says what runs on machines that are virtual.
const VIRTUAL: &str = "Cluster managed networking with VMs";
const IGNITION: &str = "Ignition Config Override";
const OVERRIDES: &str = "Install Config Overrides";

/// Kinds of networks, each a feature.
const NETWORK_TYPES: [(&str, &str); 6] = [
    ("OVNKubernetes", "OVN network type"),
    ("OpenShiftSDN", "SDN network type"),
    ("CiscoACI", "CiscoACI network type"),
    ("Cilium", "Cilium network type"),
    ("Calico", "Calico network type"),
    ("None", "None network type"),
];

/// Architectures that are features of their own.
const ARCHITECTURES: [&str; 3] = ["arm64", "ppc64le", "s390x"];

/// The features by name.
pub(crate) struct Usage(Map<String, Value>);

/// Notes something of a cluster, where there is one.
pub(crate) fn note(core: &mut Core, now: Timestamp, id: Option<Uuid>, what: impl FnOnce(&mut Usage)) {
    let Some(id) = id else { return };
    core.state.edit_cluster(id, now, |row| {
        let mut usage = Usage::of(&row.view.cluster);
        what(&mut usage);
        usage.write(&mut row.view.cluster);
    });
}

impl Usage {
    /// What was noted of a cluster so far.
    pub(crate) fn of(cluster: &Cluster) -> Self {
        let noted = cluster.feature_usage.as_deref().and_then(|text| serde_json::from_str(text).ok());
        Self(noted.unwrap_or_default())
    }

    /// Notes it, sorted by name.
    pub(crate) fn write(self, cluster: &mut Cluster) {
        let sorted: BTreeMap<String, Value> = self.0.into_iter().collect();
        cluster.feature_usage = Some(json!(sorted).to_string());
    }

    /// A feature is used, or is not.
    pub(crate) fn set(&mut self, name: &str, used: bool) {
        self.note(name, used.then_some(Value::Null));
    }

    /// A feature is used, with what there is to say about it.
    fn note(&mut self, name: &str, used: Option<Value>) {
        let Some(data) = used else {
            self.0.remove(name);
            return;
        };
        let id = name.replace(' ', "_").replace('.', "").to_uppercase();
        let mut feature = json!({"id": id, "name": name});
        if !data.is_null() {
            feature["data"] = data;
        }
        self.0.insert(name.to_owned(), feature);
    }

    fn data(&self, name: &str) -> Map<String, Value> {
        self.0.get(name).and_then(|f| f["data"].as_object()).cloned().unwrap_or_default()
    }

    /// Of a cluster that was made just now. Masters that run workloads count only once they are changed.
    pub(crate) fn of_new(view: &ClusterView) -> Self {
        let c = &view.cluster;
        let mut all = Self(Map::new());
        all.set("SNO", view.is_sno());
        // The second proxy is told by the first, as the real service does it.
        all.proxies(c.http_proxy.as_deref(), c.http_proxy.as_deref(), c.no_proxy.as_deref());
        all.sources_of_time(c.additional_ntp_source.as_deref());
        all.set("Cluster Tags", c.tags.is_some());
        all.hyperthreading(c.hyperthreading.as_deref().unwrap_or("all"));
        all.network_type(c.network_type.as_deref());
        if let Some(encryption) = &c.disk_encryption {
            all.encryption(c.disk_encryption.as_ref(), encryption);
        }
        all.managed_by_user(view.user_managed_networking(), c.control_plane_count);
        all.platform(view.platform());
        all.networks(view);
        all.operators(c);
        all
    }

    /// Of a cluster that was changed: what the change names, and what follows from what it is now.
    pub(crate) fn change(&mut self, before: &Cluster, view: &ClusterView, p: &V2ClusterUpdateParams) {
        // A change without proxies counts as one that has none, although the cluster keeps them.
        self.proxies(p.http_proxy.as_deref(), p.https_proxy.as_deref(), p.no_proxy.as_deref());
        if let Some(sources) = &p.additional_ntp_source {
            self.sources_of_time(Some(sources));
        }
        if let Some(tags) = &p.tags {
            self.set("Cluster Tags", !tags.is_empty());
        }
        if let Some(schedulable) = p.schedulable_masters {
            self.set("Schedulable masters", schedulable);
        }
        if let Some(encryption) = &p.disk_encryption {
            self.encryption(before.disk_encryption.as_ref(), encryption);
        }
        if let Some(hyperthreading) = &p.hyperthreading {
            self.hyperthreading(hyperthreading);
        }
        if let Some(umn) = p.user_managed_networking {
            self.managed_by_user(umn, before.control_plane_count);
        }
        if let Some(platform) = &p.platform {
            self.platform(platform.type_);
        }
        if p.network_type.is_some() {
            self.network_type(p.network_type.as_deref());
        }
        self.networks(view);
        for arch in ARCHITECTURES {
            self.set(&format!("{arch} architecture"), view.cluster.cpu_architecture.as_deref() == Some(arch));
        }
    }

    /// Hosts that are virtual, where the cluster manages its networks. Nothing changes while a host is unknown.
    pub(crate) fn virtual_hosts(&mut self, view: &ClusterView, hosts: &[&HostView]) {
        let counts =
            matches!(view.platform(), PlatformType::Baremetal | PlatformType::None) && !view.user_managed_networking();
        if !counts {
            self.set(VIRTUAL, false);
            return;
        }
        let is_virtual = |i: &Inventory| i.system_vendor.as_ref().is_some_and(|v| v.virtual_ == Some(true));
        if hosts.iter().any(|h| h.inventory.is_none()) {
            return;
        }
        let ids: Vec<_> = hosts.iter().filter(|h| h.inventory.as_deref().is_some_and(is_virtual)).collect();
        let ids: Vec<_> = ids.iter().map(|h| h.host.id).collect();
        self.note(VIRTUAL, (!ids.is_empty()).then(|| json!({"VM Hosts": ids})));
    }

    /// What is merged into the install config, by its members. What was there once is not forgotten.
    pub(crate) fn overrides(&mut self, members: &Map<String, Value>) {
        let mut data = self.data(OVERRIDES);
        for (name, value) in members {
            let inner = value.as_object().into_iter().flat_map(Map::keys);
            data.insert(inner.fold(name.clone(), |all, inner| format!("{all} {inner}")), json!(true));
        }
        self.note(OVERRIDES, Some(Value::Object(data)));
        if let Some(fips) = members.get("fips").and_then(Value::as_bool) {
            self.set("FIPS", fips);
        }
    }

    /// The ignition of an `infra-env` or of a `host` has something of the user's, or nothing any more.
    pub(crate) fn ignition(&mut self, level: &str, used: bool) {
        let mut data = self.data(IGNITION);
        data.insert(level.to_owned(), json!(used));
        let any = data.values().any(|v| *v == json!(true));
        self.note(IGNITION, any.then_some(Value::Object(data)));
    }

    /// OLM operators that are installed with it.
    pub(crate) fn operators(&mut self, cluster: &Cluster) {
        super::clusters::operator_names(cluster).for_each(|name| self.set(&name.to_uppercase(), true));
    }

    /// A host was given a name.
    pub(crate) fn hostname(&mut self) {
        self.note("Requested hostname", Some(json!({"host_count": 1})));
    }

    fn proxies(&mut self, http: Option<&str>, https: Option<&str>, no_proxy: Option<&str>) {
        let all = [("http_proxy", http), ("https_proxy", https), ("no_proxy", no_proxy)];
        let set = all.into_iter().filter(|(_, text)| text.is_some_and(|t| !t.is_empty()));
        let data: Map<String, Value> = set.map(|(name, _)| (name.to_owned(), json!(1))).collect();
        self.note("Proxy", (!data.is_empty()).then_some(Value::Object(data)));
    }

    fn sources_of_time(&mut self, sources: Option<&str>) {
        let data = sources.filter(|s| !s.is_empty()).map(|s| json!({"source_count": s.split(',').count()}));
        self.note("Additional NTP Source", data);
    }

    fn hyperthreading(&mut self, on: &str) {
        self.note("Hyperthreading", (on != "none").then(|| json!({"hyperthreading_enabled": on})));
    }

    fn network_type(&mut self, network_type: Option<&str>) {
        for (kind, name) in NETWORK_TYPES {
            self.set(name, network_type == Some(kind));
        }
    }

    /// What is asked for counts only where disks were encrypted before, or from the beginning.
    fn encryption(&mut self, before: Option<&DiskEncryption>, asked: &DiskEncryption) {
        if !before.and_then(|d| d.enable_on.as_deref()).is_some_and(|on| !on.is_empty() && on != "none") {
            return;
        }
        let mut data = Map::new();
        if let Some(on) = &asked.enable_on {
            data.insert("enable_on".into(), json!(on));
        }
        if let Some(mode) = &asked.mode {
            data.insert("mode".into(), json!(mode));
            data.insert("tang_servers".into(), json!(asked.tang_servers.as_deref().unwrap_or("")));
        }
        self.note("Disk encryption", Some(Value::Object(data)));
    }

    fn managed_by_user(&mut self, umn: bool, masters: Option<i64>) {
        self.set("User Managed Networking With Multi Node", umn && masters.is_some_and(|n| n >= 3));
    }

    fn platform(&mut self, platform: PlatformType) {
        let data = json!({"platform_type": platform.to_string()});
        let own = !matches!(platform, PlatformType::Baremetal | PlatformType::None);
        self.note("Platform selection", own.then(|| data.clone()));
        if platform == PlatformType::Nutanix {
            self.note("Nutanix integration", Some(data));
        }
    }

    fn networks(&mut self, view: &ClusterView) {
        self.set("VIP auto alloc.", view.vip_dhcp_allocation());
        self.set("Dual-stack", view.is_dual_stack());
        self.set("Dual-stack VIPs", view.cluster.api_vips.as_ref().is_some_and(|vips| vips.len() > 1));
    }
}
