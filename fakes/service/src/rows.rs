//! What the service keeps: one row per cluster, infra-env, host, event and file. A row is the API object plus what the API
//! does not show (secrets, timers). A [`Snapshot`] of all rows is everything that a restart needs; [`Write`]s are how it
//! changes.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use uuid::Uuid;
use vlab_api::Timestamp;
use vlab_api::types::{Cluster, Event, Host, InfraEnv};
use vlab_installer::Mirrors;
use vlab_model::view::{ClusterView, HostView};

/// A cluster: what the rules look at, and the rest.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClusterRow {
    /// The API object (`hosts` is `None`) with its JSON texts parsed.
    pub view: ClusterView,
    /// What neither the API nor the rules see.
    pub private: ClusterPrivate,
}

/// What of a cluster neither the API nor the rules see.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ClusterPrivate {
    /// Position in the order of creation: lists are sorted by it.
    pub ordinal: u64,
    /// Pull secret as given.
    pub pull_secret: String,
    /// Stored by the user interface, returned as it is.
    pub ui_settings: String,
    /// Background preparation of an installation that is due and not done yet: when to do it.
    pub preparation_due: Option<Timestamp>,
    /// Where the keys and the password of the cluster come from.
    pub artifact_seed: [u8; 32],
    /// When the machine network was set (DHCP lease warning).
    pub machine_network_set_at: Option<Timestamp>,
    /// The DHCP lease warning was given.
    pub dhcp_warned: bool,
    /// Lease of the API VIP, as the agent reported it.
    pub api_vip_lease: Option<String>,
    /// Lease of the ingress VIP, as the agent reported it.
    pub ingress_vip_lease: Option<String>,
    /// Its ClusterDeployment, `namespace/name`; `None`: it was made over REST.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kube_key: Option<String>,
    /// What its resources said when they were last taken in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kube_spec: Option<String>,
    /// Mirrors of registries that only this cluster has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mirrors: Option<Mirrors>,
}

/// An infra-env.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct InfraEnvRow {
    /// The API object.
    pub infra_env: InfraEnv,
    /// Position in the order of creation.
    pub ordinal: u64,
    /// Pull secret as given.
    pub pull_secret: String,
    /// Key of the image tokens; a new one invalidates the old tokens.
    pub signing_key_generation: u64,
    /// Namespace of its resource, which has its name; `None`: it was made over REST.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kube_namespace: Option<String>,
    /// What its resource said when it was last taken in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kube_spec: Option<String>,
    /// Mirrors of registries that only this infra-env has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mirrors: Option<Mirrors>,
    /// What the controllers themselves put into its ignition: metal3's agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub internal_ignition: Option<String>,
}

/// A host.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HostRow {
    /// The API object with its JSON texts parsed.
    pub view: HostView,
    /// What neither the API nor the rules see.
    pub private: HostPrivate,
}

/// What of a host neither the API nor the rules see.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct HostPrivate {
    /// Position in the order of registration: lists are sorted by it.
    pub ordinal: u64,
    /// Token for the machine-config endpoint of a day-2 cluster.
    pub ignition_endpoint_token: Option<String>,
    /// Headers for it: JSON text of key/value pairs.
    pub ignition_endpoint_http_headers: Option<String>,
    /// The events of disk formatting were written for this installation.
    pub formatting_announced: bool,
    /// Last `upgrade_agent_*` events by name: one per hour each.
    pub last_upgrade_events: BTreeMap<String, Timestamp>,
    /// Its Agent is approved. Without a resource nobody asks.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub approved: bool,
}

impl ClusterRow {
    /// The API object.
    pub fn cluster(&self) -> &Cluster {
        &self.view.cluster
    }
}

impl HostRow {
    /// The API object.
    pub fn host(&self) -> &Host {
        &self.view.host
    }

    /// Infra-env of the host; nil only in a row that was never registered.
    pub fn infra_env_id(&self) -> Uuid {
        self.view.host.infra_env_id.unwrap_or_default()
    }
}

/// An event.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EventRow {
    /// Position in the order of writing, from 0, without gaps.
    pub seq: u64,
    /// As stored: with category and request id, which the API does not return.
    pub event: Event,
}

/// A file: ignition configs, kubeconfig, logs, manifests.
#[derive(Clone, Debug, PartialEq)]
pub struct FileRow {
    /// `<cluster id>/<name>`.
    pub key: String,
    /// Content of the file.
    pub bytes: Arc<[u8]>,
}

/// Everything that a restart needs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Snapshot {
    /// Clusters in any order.
    pub clusters: Vec<ClusterRow>,
    /// Infra-envs in any order.
    pub infra_envs: Vec<InfraEnvRow>,
    /// Hosts in any order.
    pub hosts: Vec<HostRow>,
    /// Events by `seq`.
    pub events: Vec<EventRow>,
    /// Files in any order.
    pub files: Vec<FileRow>,
}

/// A change of the stored state.
#[derive(Clone, Debug, PartialEq)]
pub enum Write {
    /// Insert or replace.
    PutCluster(Arc<ClusterRow>),
    /// Removes a cluster, by its id.
    DeleteCluster(Uuid),
    /// Insert or replace.
    PutInfraEnv(Arc<InfraEnvRow>),
    /// Removes an infra-env, by its id.
    DeleteInfraEnv(Uuid),
    /// Insert or replace; the key is (infra-env, host).
    PutHost(Arc<HostRow>),
    /// Removes a host of an infra-env.
    DeleteHost {
        /// Infra-env of the host.
        infra_env_id: Uuid,
        /// Id of the host.
        host_id: Uuid,
    },
    /// A poll: by far the most frequent write, and nothing else of the row changed. Sets `host.checked_in_at`, and
    /// `host.timestamp` when given.
    Heartbeat {
        /// Infra-env of the host.
        infra_env_id: Uuid,
        /// Id of the host.
        host_id: Uuid,
        /// New value of `checked_in_at`.
        checked_in_at: Timestamp,
        /// New value of `timestamp` (Unix seconds); `None` leaves it.
        timestamp: Option<i64>,
    },
    /// Appends an event; events are never changed.
    AppendEvent(EventRow),
    /// Insert or replace.
    PutFile(FileRow),
    /// Removes a file, by its name.
    DeleteFile(String),
}

impl Snapshot {
    /// Applies a write. Deleting what is not there, or a heartbeat of a host that is not there, changes nothing.
    pub fn apply(&mut self, write: &Write) {
        fn put<T: Clone>(rows: &mut Vec<T>, row: &T, same: impl Fn(&T) -> bool) {
            match rows.iter_mut().find(|r| same(r)) {
                Some(old) => *old = row.clone(),
                None => rows.push(row.clone()),
            }
        }
        match write {
            Write::PutCluster(row) => put(&mut self.clusters, row, |r| r.view.cluster.id == row.view.cluster.id),
            Write::DeleteCluster(id) => self.clusters.retain(|r| r.view.cluster.id != *id),
            Write::PutInfraEnv(row) => put(&mut self.infra_envs, row, |r| r.infra_env.id == row.infra_env.id),
            Write::DeleteInfraEnv(id) => self.infra_envs.retain(|r| r.infra_env.id != *id),
            Write::PutHost(row) => put(&mut self.hosts, row, |r| {
                r.view.host.id == row.view.host.id && r.view.host.infra_env_id == row.view.host.infra_env_id
            }),
            Write::DeleteHost { infra_env_id, host_id } => {
                self.hosts.retain(|r| r.view.host.id != *host_id || r.infra_env_id() != *infra_env_id);
            }
            Write::Heartbeat { infra_env_id, host_id, checked_in_at, timestamp } => {
                let row =
                    self.hosts.iter_mut().find(|r| r.view.host.id == *host_id && r.infra_env_id() == *infra_env_id);
                if let Some(row) = row {
                    row.view.host.checked_in_at = Some(*checked_in_at);
                    if timestamp.is_some() {
                        row.view.host.timestamp = *timestamp;
                    }
                }
            }
            Write::AppendEvent(row) => self.events.push(row.clone()),
            Write::PutFile(row) => put(&mut self.files, row, |r| r.key == row.key),
            Write::DeleteFile(key) => self.files.retain(|r| r.key != *key),
        }
    }
}

// Rows are stored as the API object and the private part; the parsed texts are made again when a row is read.

#[derive(Serialize)]
struct HostRowOut<'a> {
    host: &'a Host,
    private: &'a HostPrivate,
}

#[derive(Deserialize)]
struct HostRowIn {
    host: Host,
    #[serde(default)]
    private: HostPrivate,
}

impl Serialize for HostRow {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        HostRowOut { host: &self.view.host, private: &self.private }.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for HostRow {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let row = HostRowIn::deserialize(deserializer)?;
        Ok(HostRow { view: HostView::new(row.host), private: row.private })
    }
}

#[derive(Serialize)]
struct ClusterRowOut<'a> {
    cluster: &'a Cluster,
    kubeconfig_uploaded: bool,
    has_custom_manifests: bool,
    private: &'a ClusterPrivate,
}

#[derive(Deserialize)]
struct ClusterRowIn {
    cluster: Cluster,
    #[serde(default)]
    kubeconfig_uploaded: bool,
    #[serde(default)]
    has_custom_manifests: bool,
    #[serde(default)]
    private: ClusterPrivate,
}

impl Serialize for ClusterRow {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        ClusterRowOut {
            cluster: &self.view.cluster,
            kubeconfig_uploaded: self.view.kubeconfig_uploaded,
            has_custom_manifests: self.view.has_custom_manifests,
            private: &self.private,
        }
        .serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for ClusterRow {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let row = ClusterRowIn::deserialize(deserializer)?;
        let mut view = ClusterView::new(row.cluster);
        view.kubeconfig_uploaded = row.kubeconfig_uploaded;
        view.has_custom_manifests = row.has_custom_manifests;
        Ok(ClusterRow { view, private: row.private })
    }
}
