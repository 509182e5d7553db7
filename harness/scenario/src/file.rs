//! The form of a scenario's file, as it is written. The comments here are what editors show.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use vlab_api::types::{FinalizingStage, HostStage, ImageType, OperatorStatus, PlatformType, Severity};
use vlab_model::validation::ValidationStatus;

use crate::faults::{FaultRow, OWN_STAGES, ParamDefault, ParamForm, fault_rows, operation_ids};
use crate::spanned::{
    AnyStatus, AnyValidation, At, ConditionType, EventName, Happening, OperatorName, Plain, Scalar, StepType, Text,
    UserRole, Version, WrittenStep, words_schema,
};
use crate::time::Span;
use crate::words::{
    ActionKind, FaultPhase, FrontDoor, HostKind, InstallMode, Need, NetworkMistake, PivotOrder, ResourceKind,
    ResourceState, RoleName, SequenceMode, ServiceKind, Tolerated, Topology, When,
};

mod machine;

pub(crate) use machine::{DiskFile, VmFile};

/// A scenario: what is built, what happens, what must be true.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Scenario")]
pub(crate) struct ScenarioFile {
    /// Version of the language.
    #[schemars(range(min = 1, max = 1))]
    pub(crate) version: At<i64>,
    /// Name of the scenario, the same as its file's. Lower-case letters, digits and dashes.
    pub(crate) name: Text<Plain>,
    /// What it proves, for the person who reads a list of scenarios.
    pub(crate) description: Option<String>,
    /// Words to select scenarios by.
    #[serde(default)]
    pub(crate) tags: Vec<Text<Plain>>,
    /// Fixes the seed of all random choices. Without it every run draws one and reports it.
    pub(crate) seed: Option<u64>,
    /// What the machine must offer: `postgres`, `docker`, `kvm`, `libvirt`, `qemu`, `root`, `netns`, `browser`, `real-time`,
    /// `simulated-service`, `rest` (it cannot be asked over Kubernetes), `kube` (it means nothing over REST), `image:<name>`. Where
    /// something is missing, the scenario is skipped and says why.
    #[serde(default)]
    pub(crate) needs: Vec<Text<Need>>,
    /// The service under test. By default: the simulated service under the `fast` time profile.
    pub(crate) service: Option<ServiceFile>,
    /// How the user asks for things: by requests to the REST API, or by resources on a hub (`kube`).
    #[schemars(extend("default" = "rest"))]
    pub(crate) api: Option<Text<FrontDoor>>,
    /// With `api: kube`: what hub a run has. By default the lab's own, with nothing on it.
    pub(crate) hub: Option<At<HubFile>>,
    /// How the discovery image is made.
    pub(crate) infra_env: Option<InfraEnvFile>,
    /// The cluster. Leave it out (and `clusters` too) when all hosts stay in the pool.
    pub(crate) cluster: Option<At<ClusterFile>>,
    /// Clusters, if there are several.
    pub(crate) clusters: Option<Vec<At<ClusterFile>>>,
    /// Groups of hosts.
    pub(crate) hosts: At<Vec<At<GroupFile>>>,
    /// How simulated hosts behave.
    pub(crate) hosts_settings: Option<HostsSettingsFile>,
    /// What the user does, apart from creating things and starting the installation.
    #[serde(default)]
    pub(crate) actions: Vec<At<ActionFile>>,
    /// What goes wrong on purpose.
    #[serde(default)]
    pub(crate) faults: Vec<At<FaultFile>>,
    /// What must be true of the history. Each item has exactly one of `sequence`, `eventually`, `never`, `see`, `validation`,
    /// `event`, `stage_duration`, `operator`. By default: every cluster ends `installed`.
    #[serde(default)]
    pub(crate) expect: Vec<At<ExpectFile>>,
    /// What the service may do although no fault of the scenario explains it: `server-errors` (answers of 500 and above),
    /// `refused-connections`, `kills` (one of its programs has to be killed because it does not end when it is asked to).
    /// Without it each of these fails the run.
    #[serde(default)]
    pub(crate) tolerate: Vec<Text<Tolerated>>,
    /// What must be true of the bootstrap's pivot in every cluster that is installed.
    pub(crate) pivot: Option<At<PivotFile>>,
    /// Time limits.
    pub(crate) budgets: Option<BudgetsFile>,
    /// When the run ends. By default: when every cluster that is installed has become `installed`, `error` or `cancelled`.
    pub(crate) until: Option<At<UntilFile>>,
    /// In which order and how late things come. By default every message takes as long in virtual time, and what is due at the same
    /// instant comes in the same order. In real time only what is done to requests of simulated hosts can be had.
    pub(crate) interleaving: Option<At<InterleavingFile>>,
    /// For load scenarios: how hosts arrive and what is measured.
    pub(crate) load: Option<LoadFile>,
    /// What the report contains.
    pub(crate) report: Option<ReportFile>,
}

/// The service under test.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Service")]
pub(crate) struct ServiceFile {
    /// How it is started.
    #[schemars(extend("default" = "simulated"))]
    pub(crate) kind: Option<Text<ServiceKind>>,
    /// For `process`: the program, as a file or as a name in `PATH`.
    pub(crate) program: Option<Text<Plain>>,
    /// For `container`: the service's image, for example `vlab-service` or `quay.io/edge-infrastructure/assisted-service:latest`.
    pub(crate) image: Option<Text<Plain>>,
    /// For `container`: the image of PostgreSQL. By default `vlab-postgres` if it is on the machine, otherwise `postgres`.
    pub(crate) postgres_image: Option<Text<Plain>>,
    /// So many of it work on one database, 1 to 5, and requests are spread over them. Over REST and in real time only.
    #[schemars(extend("default" = 1))]
    pub(crate) replicas: Option<At<i64>>,
    /// For `remote`: its address, `http://host[:port]`.
    pub(crate) url: Option<Text<Plain>>,
    /// Its settings, by the names of the real service's environment variables, for example `HOST_MONITOR_INTERVAL`. They take
    /// precedence over those of the time profile. Times in them are service time, like all times of a scenario; `10s wall` is
    /// wall-clock time.
    #[serde(default)]
    pub(crate) settings: BTreeMap<String, At<Value>>,
    /// Name of the time profile: `real`, `fast`, or a file in `profiles/time`.
    #[schemars(extend("default" = "fast"))]
    pub(crate) time_profile: Option<Text<Plain>>,
}

/// How the discovery image is made.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "InfraEnv")]
pub(crate) struct InfraEnvFile {
    /// `x86_64`, `aarch64`, `arm64`, `ppc64le` or `s390x`.
    #[schemars(extend("default" = "x86_64"))]
    pub(crate) cpu_architecture: Option<Text<Plain>>,
    /// Type of the discovery image.
    #[schemars(extend("default" = "minimal-iso"))]
    pub(crate) image_type: Option<Text<ImageType>>,
    /// NTP sources in addition to those from DHCP.
    #[serde(default)]
    pub(crate) additional_ntp_sources: Vec<String>,
    /// Kernel arguments to append.
    #[serde(default)]
    pub(crate) kernel_arguments: Vec<String>,
    /// For virtual machines: file with the live ISO that discovery images are made from, for example that of RHCOS. By default
    /// that of the lab OS.
    pub(crate) iso: Option<Text<Plain>>,
    /// Static networks in the form of the API, one for each host. An infra-env gets those of its own hosts and those that belong
    /// to no host.
    #[serde(default)]
    pub(crate) static_network_config: Vec<At<StaticNetworkFile>>,
    /// What is wrong with the static networks on purpose. Any other mistake in them is refused before the run.
    #[serde(default)]
    pub(crate) mistakes: Vec<Text<NetworkMistake>>,
    /// Members of the API's `infra-env-create-params` for which there is no key here. Over REST only.
    #[serde(default)]
    pub(crate) params: BTreeMap<String, At<Value>>,
    /// The service must refuse to create the infra-env, with this HTTP status. Then no host boots.
    pub(crate) refused: Option<At<i64>>,
}

/// The static network of a host: `network_yaml` and `mac_interface_map`, or a `resource`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "StaticNetwork")]
pub(crate) struct StaticNetworkFile {
    /// The network in nmstate's form, with interface names of its own.
    pub(crate) network_yaml: Option<Text<Plain>>,
    /// Which MAC belongs to which of these names.
    pub(crate) mac_interface_map: Option<Vec<At<MacMappingFile>>>,
    /// File with `NMStateConfig` resources (`agent-install.openshift.io/v1beta1`), with a path relative to the scenario's file.
    pub(crate) resource: Option<Text<Plain>>,
}

/// An interface by its MAC.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "MacMapping")]
pub(crate) struct MacMappingFile {
    /// The MAC, `52:54:00:00:00:10`.
    pub(crate) mac_address: Option<Text<Plain>>,
    /// Instead: the MAC of this NIC, `<host>/<NIC of its hardware profile>`.
    pub(crate) nic: Option<Text<Plain>>,
    /// Its name in the YAML.
    pub(crate) logical_nic_name: Text<Plain>,
}

/// A cluster.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Cluster")]
pub(crate) struct ClusterFile {
    /// Its name, 1 to 54 lower-case letters, digits and dashes. By default the scenario's name.
    pub(crate) name: Option<Text<Plain>>,
    /// So many clusters that are alike: `<name>-0`, `<name>-1`, ... A group whose `cluster` is `<name>` has as many hosts in each of
    /// them as its `count` says. Not for clusters with VIPs.
    #[schemars(range(min = 1, max = 20000))]
    pub(crate) count: Option<At<i64>>,
    /// A single node (`sno`), masters only (`compact`), or masters and workers (`ha`). By default the groups decide.
    pub(crate) topology: Option<Text<Topology>>,
    /// Number of masters. By default the groups decide.
    pub(crate) control_plane_count: Option<At<i64>>,
    /// Version to install.
    #[schemars(extend("default" = "4.18"))]
    pub(crate) openshift_version: Option<Text<Version>>,
    /// Base DNS domain.
    #[schemars(extend("default" = "lab.example"))]
    pub(crate) base_domain: Option<Text<Plain>>,
    /// Networks of its hosts. By default `192.168.126.0/24`.
    pub(crate) machine_networks: Option<Vec<Text<IpNet>>>,
    /// Networks of the pods. By default `10.128.0.0/14` with host prefix 23.
    pub(crate) cluster_networks: Option<Vec<At<ClusterNetworkFile>>>,
    /// Networks of the cluster's services. By default `172.30.0.0/16`.
    pub(crate) service_networks: Option<Vec<Text<IpNet>>>,
    /// Addresses of the API, in the machine network. Needed for several nodes, unless the networking is user-managed.
    #[serde(default)]
    pub(crate) api_vips: Vec<Text<IpAddr>>,
    /// Addresses of the ingress, in the machine network.
    #[serde(default)]
    pub(crate) ingress_vips: Vec<Text<IpAddr>>,
    /// The addresses of the API and the ingress are leased by DHCP: the hosts ask for them. Needs an `openshift_version` before
    /// 4.15, and that release in the service's setting RELEASE_IMAGES.
    #[schemars(extend("default" = false))]
    pub(crate) vip_dhcp_allocation: Option<At<bool>>,
    /// Platform. By default `none` for a single node and with user-managed networking, otherwise `baremetal`.
    pub(crate) platform: Option<Text<PlatformType>>,
    /// The user provides load balancers and DNS. Always true for a single node.
    pub(crate) user_managed_networking: Option<At<bool>>,
    /// SSH key for the nodes.
    pub(crate) ssh_public_key: Option<String>,
    /// NTP source for the cluster.
    pub(crate) additional_ntp_source: Option<String>,
    /// What else the user asks for when the cluster is made: members of the API's `cluster-create-params` for which there is no key
    /// here, for example `{olm_operators: [{name: lvm}]}`. Over REST only.
    #[serde(default)]
    pub(crate) params: BTreeMap<String, At<Value>>,
    /// `auto`: the installation starts as soon as the cluster is `ready`. `never`: only an action starts it.
    #[schemars(extend("default" = "auto"))]
    pub(crate) install: Option<Text<InstallMode>>,
}

/// A network of pods.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "ClusterNetwork")]
pub(crate) struct ClusterNetworkFile {
    /// The network.
    pub(crate) cidr: Text<IpNet>,
    /// Prefix length of each host's part of it. By default 23, for IPv6 64.
    pub(crate) host_prefix: Option<At<i64>>,
}

/// What hub a run has that asks over Kubernetes.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Hub")]
pub(crate) struct HubFile {
    /// In real time it has a real API server, of the programs in this folder (`etcd`, `kube-apiserver`, `kubectl`: the one that envtest
    /// uses). A path is relative to the scenario's file. `--hub-assets` and `--kubeconfig` on the command line win.
    pub(crate) assets: Option<Text<Plain>>,
    /// It has an operator for bare metal, of this version (`4.20.0`), before the service is started. From 4.12 on service and metal3 share
    /// hosts: the *converged flow*.
    pub(crate) baremetal_operator: Option<Text<Plain>>,
}

/// A group of hosts that are alike.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "HostGroup")]
pub(crate) struct GroupFile {
    /// Name of the group. Its hosts are `<name>-0`, `<name>-1`, ...
    pub(crate) name: Text<Plain>,
    /// How many hosts.
    #[schemars(extend("default" = 1))]
    #[schemars(range(min = 1, max = 20000))]
    pub(crate) count: Option<At<i64>>,
    /// Role that the user assigns. `auto`: the service chooses.
    #[schemars(extend("default" = "auto"))]
    pub(crate) role: Option<Text<UserRole>>,
    /// `simulated`, `vm` (a virtual machine that boots the discovery image) or `auto` (a virtual machine where the machine of the
    /// run can run one, otherwise simulated; the run says which). In virtual time all hosts are simulated. All hosts of a
    /// cluster are of the same kind.
    #[schemars(extend("default" = "simulated"))]
    pub(crate) kind: Option<Text<HostKind>>,
    /// The virtual machines, if the hosts of the group are virtual machines. Where the hardware profile has more than the
    /// machine, the service is told what the profile says, and the report mentions it.
    pub(crate) vm: Option<VmFile>,
    /// Name of the hardware profile.
    #[schemars(extend("default" = "standard"))]
    pub(crate) profile: Option<Text<Plain>>,
    /// Addresses. By default hosts of a cluster get free addresses of its machine network.
    pub(crate) addresses: Option<At<AddressesFile>>,
    /// What differs from the hardware profile.
    pub(crate) overrides: Option<OverridesFile>,
    /// Does DHCP give them addresses? This only matters for hosts whose infra-env has static networks.
    #[schemars(extend("default" = true))]
    pub(crate) dhcp: Option<bool>,
    /// Their discovery medium contains a container registry (as in an appliance for places without internet access), and masters
    /// copy it to their disks. Simulated hosts only.
    #[schemars(extend("default" = false))]
    pub(crate) registry_on_medium: Option<bool>,
    /// With `api: kube`: the user describes each of them by a BareMetalHost and does nothing else. The service's controllers give it the
    /// discovery image and approve its Agent; it starts when it is provisioned with that image.
    #[schemars(extend("default" = false))]
    pub(crate) bare_metal_host: Option<At<bool>>,
    /// How long they wait to start once hosts may start.
    pub(crate) register_after: Option<Text<Span>>,
    /// Name of their cluster, or `none` for the pool. Not needed if there is only one cluster.
    pub(crate) cluster: Option<Text<Plain>>,
    /// They are added to the cluster after its installation. They boot when an action has opened it (`allow-add-hosts`), and
    /// another action installs them (`install-host`).
    #[schemars(extend("default" = false))]
    pub(crate) day2: Option<At<bool>>,
}

/// Addresses of a group.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Addresses")]
pub(crate) struct AddressesFile {
    /// The first host's address. The others get the following ones.
    pub(crate) first: Option<Text<IpAddr>>,
    /// Their network, if it is not the machine network. Without `first` they begin at its tenth address.
    pub(crate) network: Option<Text<IpNet>>,
}

/// What differs from the hardware profile.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Overrides")]
pub(crate) struct OverridesFile {
    /// Number of processor cores.
    pub(crate) cpu_cores: Option<At<i64>>,
    /// Memory in MiB.
    pub(crate) memory_mib: Option<At<i64>>,
    /// Size of every disk in GB (10^9 bytes).
    pub(crate) disk_gb: Option<At<i64>>,
}

/// How simulated hosts behave.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "HostsSettings")]
pub(crate) struct HostsSettingsFile {
    /// Behave like the real agent's cache: a reply that equals the previous one is not sent.
    #[schemars(extend("default" = true))]
    pub(crate) reply_cache: Option<bool>,
}

/// What the user does, and when: `at` a time or `after` something.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Action")]
pub(crate) struct ActionFile {
    /// What the user does.
    #[serde(rename = "do")]
    pub(crate) act: Text<ActionKind>,
    /// This long after the start of the run.
    pub(crate) at: Option<Text<Span>>,
    /// After this was seen.
    pub(crate) after: Option<At<ObservationFile>>,
    /// With `after`: this long after it.
    pub(crate) then: Option<Text<Span>>,
    /// The cluster, if there are several.
    pub(crate) cluster: Option<Text<Plain>>,
    /// The host.
    pub(crate) host: Option<Text<Plain>>,
    /// A group of hosts, or `all`.
    pub(crate) hosts: Option<Text<Plain>>,
    /// For `set-vips`: the addresses of the API.
    #[serde(default)]
    pub(crate) api_vips: Vec<Text<IpAddr>>,
    /// For `set-vips`: the addresses of the ingress.
    #[serde(default)]
    pub(crate) ingress_vips: Vec<Text<IpAddr>>,
    /// For `patch-host`: the new role.
    pub(crate) role: Option<Text<UserRole>>,
    /// For `patch-host` on one host: the new name.
    pub(crate) hostname: Option<Text<Plain>>,
    /// For `patch-resource`, `annotate` and `delete-resource`: which resource. By default the `Agent` of a host and the
    /// `AgentClusterInstall` of a cluster.
    pub(crate) resource: Option<Text<ResourceKind>>,
    /// For `patch-resource`: what is merged into it, for example `{spec: {holdInstallation: true}}`; `null` takes a member away.
    pub(crate) patch: Option<At<Value>>,
    /// For `annotate`: annotations and their values, which are texts; `null` takes one away.
    pub(crate) annotations: Option<At<Value>>,
    /// For `apply-resource`: the object, with `kind`, `metadata` and `spec`. Without a namespace it goes into that of the cluster.
    pub(crate) object: Option<At<Value>>,
    /// For `apply-resource`: a file with one or more objects, in the place of `object`, with a path relative to the scenario's file.
    pub(crate) file: Option<Text<Plain>>,
    /// For `request`: the operation's id in the API, for example `V2UpdateCluster`.
    pub(crate) operation: Option<Text<Plain>>,
    /// For `request`: its parameters, but for the ids of what it is about.
    #[serde(default)]
    pub(crate) with: BTreeMap<String, At<Value>>,
    /// For `request`: its body.
    pub(crate) body: Option<At<Value>>,
    /// The service must refuse it with this HTTP status.
    pub(crate) refused: Option<At<i64>>,
}

/// A fault: what goes wrong on purpose.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Fault", transform = fault_parameters)]
pub(crate) struct FaultFile {
    /// Its name in the history and the report.
    pub(crate) name: Text<Plain>,
    /// When it begins: this long after the start of the run, or when something is seen. It begins later if its target does not
    /// exist yet.
    pub(crate) at: At<FaultTimeFile>,
    /// If it begins when something is seen: this long after it.
    pub(crate) then: Option<Text<Span>>,
    /// What it hits: the name of a host, a group or a cluster, `all`, `bootstrap`, `control-plane`, `service`, `postgres`,
    /// `gateway` or `kube` (the hub's API server); or a mapping.
    pub(crate) target: At<FaultTargetFile>,
    /// What happens.
    pub(crate) inject: Text<&'static FaultRow>,
    /// How long it lasts. Without this and without `until`: to the end of the run.
    #[serde(rename = "for")]
    pub(crate) lasts: Option<Text<Span>>,
    /// It ends when this is seen after it has begun.
    pub(crate) until: Option<At<ObservationFile>>,
    /// Its parameters.
    #[serde(default)]
    pub(crate) with: BTreeMap<String, At<Value>>,
}

/// A time, or something that is seen.
#[derive(Debug)]
pub(crate) enum FaultTimeFile {
    /// So long after the start of the run.
    Time(String),
    /// When this is seen.
    Seen(Box<ObservationFile>),
}

/// A name, or who is meant in more words.
#[derive(Debug)]
pub(crate) enum FaultTargetFile {
    /// A name.
    Name(String),
    /// In more words.
    Who(Box<FaultWhoFile>),
}

/// What a fault hits: `host`, `hosts` or `role` (and of these as many as `choose` says), a `cluster`, or the link `between` hosts.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "FaultTarget")]
pub(crate) struct FaultWhoFile {
    /// This host.
    pub(crate) host: Option<Text<Plain>>,
    /// The hosts of this group, or `all`.
    pub(crate) hosts: Option<Text<Plain>>,
    /// The hosts of this role. `bootstrap` is the master that is the bootstrap (or the single node), `master` the other masters.
    pub(crate) role: Option<Text<RoleName>>,
    /// This cluster. With `role`: the cluster of the hosts, if there are several.
    pub(crate) cluster: Option<Text<Plain>>,
    /// This many of the hosts, chosen by the seed. By default all.
    pub(crate) choose: Option<At<i64>>,
    /// The link between two hosts or groups, by their names.
    pub(crate) between: Option<At<Vec<Text<Plain>>>>,
}

/// Reads a scalar as it is written, or a mapping.
macro_rules! scalar_or_mapping {
    ($name:ident, $scalar:ident, $mapping:ident($of:ty), $expecting:literal) => {
        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Either;
                impl<'de> Visitor<'de> for Either {
                    type Value = $name;
                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str($expecting)
                    }
                    fn visit_str<E: Error>(self, text: &str) -> Result<$name, E> {
                        Ok($name::$scalar(text.to_owned()))
                    }
                    // What is no text is told to be wrong when it is read as one.
                    fn visit_i64<E: Error>(self, number: i64) -> Result<$name, E> {
                        Ok($name::$scalar(number.to_string()))
                    }
                    fn visit_u64<E: Error>(self, number: u64) -> Result<$name, E> {
                        Ok($name::$scalar(number.to_string()))
                    }
                    fn visit_f64<E: Error>(self, number: f64) -> Result<$name, E> {
                        Ok($name::$scalar(number.to_string()))
                    }
                    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<$name, A::Error> {
                        <$of>::deserialize(MapAccessDeserializer::new(map)).map(|m| $name::$mapping(Box::new(m)))
                    }
                }
                deserializer.deserialize_any(Either)
            }
        }

        impl JsonSchema for $name {
            fn schema_name() -> Cow<'static, str> {
                stringify!($name).trim_end_matches("File").into()
            }
            fn inline_schema() -> bool {
                true
            }
            fn json_schema(generator: &mut SchemaGenerator) -> Schema {
                let mapping = generator.subschema_for::<$of>();
                json_schema!({ "anyOf": [{ "type": "string" }, mapping] })
            }
        }
    };
}

scalar_or_mapping!(FaultTimeFile, Time, Seen(ObservationFile), "a time, or a mapping that says what must be seen");
scalar_or_mapping!(FaultTargetFile, Name, Who(FaultWhoFile), "a name, or a mapping that says who is meant");

/// What can stand under `with`, for each kind of fault.
fn fault_parameters(schema: &mut Schema) {
    let rules: Vec<Value> = fault_rows()
        .map(|row| {
            let properties: serde_json::Map<String, Value> = row
                .all_params()
                .map(|p| {
                    let mut form = match p.form {
                        ParamForm::Span => <Span as Scalar>::schema(),
                        ParamForm::Number(min, max) => {
                            json_schema!({ "type": "integer", "minimum": min, "maximum": max })
                        }
                        ParamForm::Address => <IpAddr as Scalar>::schema(),
                        ParamForm::Text | ParamForm::Host => json_schema!({ "type": "string" }),
                        ParamForm::Words(words) => words_schema(&[words]),
                        ParamForm::Stage => {
                            let own: Vec<&str> = OWN_STAGES.iter().map(|s| s.as_str()).collect();
                            words_schema(&[&own])
                        }
                        ParamForm::FinalizingStage => words_schema(&[FinalizingStage::NAMES]),
                        ParamForm::Operation => words_schema(&[&operation_ids()]),
                    };
                    form.insert("description".to_owned(), p.purpose.into());
                    (p.name.to_owned(), form.to_value())
                })
                .collect();
            let required: Vec<&str> = row.all_params().filter(|p| p.default == ParamDefault::Needed).map(|p| p.name).collect();
            let mut then = serde_json::json!({
                "properties": { "with": { "properties": properties, "required": required, "additionalProperties": false } }
            });
            if !required.is_empty() {
                then["required"] = serde_json::json!(["with"]);
            }
            serde_json::json!({ "if": { "properties": { "inject": { "const": row.word } } }, "then": then })
        })
        .collect();
    schema.insert("allOf".to_owned(), Value::Array(rules));
}

/// Something that can be seen: of a `host`, of `hosts`, of hosts of a `role`, or of a `cluster`; one of `status`, `stage`,
/// `finalizing_stage`, `validation`, `event`, `operator`, `action`, `step`, `fault`, `did`, `console`, `condition`, `resource_is`, `held_by`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Observation")]
pub(crate) struct ObservationFile {
    /// Of this host.
    pub(crate) host: Option<Text<Plain>>,
    /// Of the hosts of this group, or of `all`.
    pub(crate) hosts: Option<Text<Plain>>,
    /// Of the hosts of this role. `bootstrap` is the master that is the bootstrap (or the single node), `master` the other masters.
    pub(crate) role: Option<Text<RoleName>>,
    /// Of this cluster. With `role`: the cluster of the hosts, if there are several.
    pub(crate) cluster: Option<Text<Plain>>,
    /// It enters this status.
    pub(crate) status: Option<Text<AnyStatus>>,
    /// With `status`: and it comes from this one.
    pub(crate) from: Option<Text<AnyStatus>>,
    /// It reports this installation stage.
    pub(crate) stage: Option<Text<HostStage>>,
    /// With `stage`: its progress is at least this many percent.
    pub(crate) percent: Option<At<i64>>,
    /// The cluster reports this stage of finalizing.
    pub(crate) finalizing_stage: Option<Text<FinalizingStage>>,
    /// This validation takes the value that `is` says.
    pub(crate) validation: Option<Text<AnyValidation>>,
    /// For `validation`: `success`, `failure`, `pending`, `error`, `disabled`. For `operator`: `available`, `progressing`, `failed`.
    /// For `condition`: `True` (the default), `False`, `Unknown`.
    pub(crate) is: Option<Text<Plain>>,
    /// An event of this name is sent.
    pub(crate) event: Option<Text<EventName>>,
    /// For `event`: of this severity.
    pub(crate) severity: Option<Text<Severity>>,
    /// This operator takes the status that `is` says.
    pub(crate) operator: Option<Text<OperatorName>>,
    /// The user does this.
    pub(crate) action: Option<Text<ActionKind>>,
    /// The service gives it a step of this type.
    pub(crate) step: Option<Text<StepType>>,
    /// This fault of the scenario begins, has an effect or ends, as `phase` says. Needs neither a host nor a cluster.
    pub(crate) fault: Option<Text<Plain>>,
    /// For `fault`: which moment of it.
    #[schemars(extend("default" = "begin"))]
    pub(crate) phase: Option<Text<FaultPhase>>,
    /// Something that a host does on its own, or that happens inside the cluster; the service does not see it.
    pub(crate) did: Option<Text<Happening>>,
    /// The serial console of a virtual machine shows a line that contains this.
    pub(crate) console: Option<Text<Plain>>,
    /// With `api: kube`: this condition of its resource takes the status that `is` says.
    pub(crate) condition: Option<Text<ConditionType>>,
    /// For `condition`: and it has this reason.
    pub(crate) reason: Option<Text<Plain>>,
    /// With `api: kube`: its resource is in this state.
    pub(crate) resource_is: Option<Text<ResourceState>>,
    /// With `api: kube`: its resource is being deleted, and this finalizer holds it.
    pub(crate) held_by: Option<Text<Plain>>,
    /// For `condition`, `resource_is` and `held_by`: which resource. By default the `Agent` of a host and the `AgentClusterInstall` of a
    /// cluster.
    pub(crate) resource: Option<Text<ResourceKind>>,
    /// This many hosts are enough. By default all of them.
    pub(crate) at_least: Option<At<i64>>,
}

/// An expectation: a name if you like, and exactly one kind.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Expectation")]
pub(crate) struct ExpectFile {
    /// Name in the report. By default one is made from what it says.
    pub(crate) name: Option<Text<Plain>>,
    /// Each of these goes through these statuses or stages, in this order.
    pub(crate) sequence: Option<At<SequenceFile>>,
    /// This is seen.
    pub(crate) eventually: Option<At<ObservationFile>>,
    /// This is never seen.
    pub(crate) never: Option<At<ObservationFile>>,
    /// This is seen, `before` or `after` something else.
    pub(crate) see: Option<At<ObservationFile>>,
    /// With `see`: it is complete before the first of this.
    pub(crate) before: Option<At<ObservationFile>>,
    /// With `see`: its first comes after this is complete.
    pub(crate) after: Option<At<ObservationFile>>,
    /// With `eventually`: within this time from the start of the run. With `see`: within this time between the two.
    pub(crate) within: Option<Text<Span>>,
    /// A validation has this value.
    pub(crate) validation: Option<At<ValidationFile>>,
    /// This many events are sent.
    pub(crate) event: Option<At<EventFile>>,
    /// A stage takes this long.
    pub(crate) stage_duration: Option<At<StageDurationFile>>,
    /// A monitored operator has this status at the end.
    pub(crate) operator: Option<At<OperatorFile>>,
}

/// Exactly one of `statuses`, `stages`, `finalizing_stages`, `reasons`. A step followed by `?` may be missing (`insufficient?`), one
/// followed by `*` may also come again and again, and `|` stands between words of which each is right (`insufficient|known*`). Among
/// `statuses` also the names of stretches (`until-ready`).
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Sequence")]
pub(crate) struct SequenceFile {
    /// Of this host.
    pub(crate) host: Option<Text<Plain>>,
    /// Of each host of this group, or of `all`.
    pub(crate) hosts: Option<Text<Plain>>,
    /// Of each host of this role.
    pub(crate) role: Option<Text<RoleName>>,
    /// Of this cluster.
    pub(crate) cluster: Option<Text<Plain>>,
    /// Statuses.
    pub(crate) statuses: Option<At<Vec<Text<WrittenStep<AnyStatus>>>>>,
    /// Installation stages of hosts.
    pub(crate) stages: Option<At<Vec<Text<WrittenStep<HostStage>>>>>,
    /// Stages of a cluster's finalizing.
    pub(crate) finalizing_stages: Option<At<Vec<Text<WrittenStep<FinalizingStage>>>>>,
    /// With `api: kube`: reasons of the condition that `condition` names.
    pub(crate) reasons: Option<At<Vec<Text<WrittenStep<Plain>>>>>,
    /// For `reasons`: which condition.
    pub(crate) condition: Option<Text<ConditionType>>,
    /// For `reasons`: of which resource. By default the `Agent` of a host and the `AgentClusterInstall` of a cluster.
    pub(crate) resource: Option<Text<ResourceKind>>,
    /// `exact`: these and no others. `partial`: others may come before, between and after.
    #[schemars(extend("default" = "exact"))]
    pub(crate) mode: Option<Text<SequenceMode>>,
}

/// A validation of hosts, or of a cluster.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Validation")]
pub(crate) struct ValidationFile {
    /// Of this host.
    pub(crate) host: Option<Text<Plain>>,
    /// Of each host of this group, or of `all`.
    pub(crate) hosts: Option<Text<Plain>>,
    /// Of each host of this role.
    pub(crate) role: Option<Text<RoleName>>,
    /// Of this cluster.
    pub(crate) cluster: Option<Text<Plain>>,
    /// Its id.
    pub(crate) id: Text<AnyValidation>,
    /// Its value.
    pub(crate) is: Text<ValidationStatus>,
    /// At the end (`end`), at some time (`ever`), or whenever it was evaluated (`always`).
    #[schemars(extend("default" = "end"))]
    pub(crate) when: Option<Text<When>>,
}

/// A number of events: `count`, or `min` and `max`. By default at least one.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "EventCount")]
pub(crate) struct EventFile {
    /// Of this host.
    pub(crate) host: Option<Text<Plain>>,
    /// Of each host of this group, or of `all`.
    pub(crate) hosts: Option<Text<Plain>>,
    /// Of each host of this role.
    pub(crate) role: Option<Text<RoleName>>,
    /// Of this cluster. Without any of the four: of the whole run.
    pub(crate) cluster: Option<Text<Plain>>,
    /// Name of the event.
    pub(crate) name: Text<EventName>,
    /// Only those of this severity count.
    pub(crate) severity: Option<Text<Severity>>,
    /// Exactly this many.
    pub(crate) count: Option<At<i64>>,
    /// At least this many.
    pub(crate) min: Option<At<i64>>,
    /// At most this many.
    pub(crate) max: Option<At<i64>>,
}

/// How long hosts are in a stage, until they report the next.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "StageDuration")]
pub(crate) struct StageDurationFile {
    /// Of this host.
    pub(crate) host: Option<Text<Plain>>,
    /// Of each host of this group, or of `all`.
    pub(crate) hosts: Option<Text<Plain>>,
    /// Of each host of this role.
    pub(crate) role: Option<Text<RoleName>>,
    /// With `role`: the cluster of the hosts, if there are several.
    pub(crate) cluster: Option<Text<Plain>>,
    /// The stage.
    pub(crate) stage: Text<HostStage>,
    /// At least.
    pub(crate) at_least: Option<Text<Span>>,
    /// At most.
    pub(crate) at_most: Option<Text<Span>>,
}

/// A monitored operator.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Operator")]
pub(crate) struct OperatorFile {
    /// Of this cluster, if there are several.
    pub(crate) cluster: Option<Text<Plain>>,
    /// Its name.
    pub(crate) name: Text<OperatorName>,
    /// Its status.
    pub(crate) is: Text<OperatorStatus>,
}

/// Time limits.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Budgets")]
pub(crate) struct BudgetsFile {
    /// From the start of the run until the first host is registered.
    pub(crate) first_registration: Option<Text<Span>>,
    /// From the start of the run until every host was `known` (or `known-unbound`).
    pub(crate) known: Option<Text<Span>>,
    /// From the start of the run until every cluster was `ready`.
    pub(crate) ready: Option<Text<Span>>,
    /// From the user's `install` until the cluster is `installed`.
    pub(crate) install: Option<Text<Span>>,
    /// The whole run. Reaching this limit ends the run.
    #[schemars(extend("default" = "3h"))]
    pub(crate) total: Option<Text<Span>>,
}

/// The bootstrap's pivot: all of its moments must happen. Durations are service time, from one moment to the next.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Pivot")]
pub(crate) struct PivotFile {
    /// `strict`: the moments come in their order, and etcd keeps its quorum. `any`: they come in any order.
    #[schemars(extend("default" = "strict"))]
    pub(crate) order: Option<Text<PivotOrder>>,
    /// From the start of bootkube until the bootstrap is back as a master.
    pub(crate) within: Option<Text<Span>>,
    /// How long each may take, from the moment before it.
    #[serde(default)]
    pub(crate) stages: PivotStagesFile,
}

/// How long the stages of a pivot may take. Each is named after the moment with which it ends.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
#[schemars(rename = "PivotStages")]
pub(crate) struct PivotStagesFile {
    /// Until the temporary control plane answers.
    pub(crate) temporary_control_plane_up: Option<Text<Span>>,
    /// Until the first other master (or arbiter) is a ready node. Not on a single node.
    pub(crate) first_master_joined: Option<Text<Span>>,
    /// Until the second one is. Not on a single node.
    pub(crate) second_master_joined: Option<Text<Span>>,
    /// Until bootkube has finished.
    pub(crate) bootkube_done: Option<Text<Span>>,
    /// Until etcd has its quorum without the bootstrap's member; on a single node, which writes its disk and reboots first, until
    /// its own etcd runs from the disk.
    pub(crate) etcd_quorum: Option<Text<Span>>,
    /// Until the bootstrap reboots.
    pub(crate) bootstrap_reboot: Option<Text<Span>>,
    /// Until the bootstrap is a ready node of the control plane.
    pub(crate) rejoined: Option<Text<Span>>,
}

/// When the run ends: everything here must hold, in this order: `seen` and `at`, then `idle_polls`, then `then`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Until")]
pub(crate) struct UntilFile {
    /// All of these were seen.
    #[serde(default)]
    pub(crate) seen: Vec<At<ObservationFile>>,
    /// At the earliest this long after the start of the run.
    pub(crate) at: Option<Text<Span>>,
    /// Hosts then continue for this many of their poll intervals.
    #[schemars(extend("default" = 0))]
    pub(crate) idle_polls: Option<At<i64>>,
    /// Everything has come to rest: for this long no host or cluster was in a status that it must leave again, none changed its
    /// status or stage, and no action or fault has still to begin or to end. A run that never rests misses its total budget.
    pub(crate) rest: Option<Text<Span>>,
    /// The run then continues for this long.
    pub(crate) then: Option<Text<Span>>,
}

/// In which order and how late things come. Each key by itself changes nothing else. In real time only `latency`, `lost` and `twice` can be had, with simulated hosts.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Interleaving")]
pub(crate) struct InterleavingFile {
    /// Seed of the dice of all of this.
    #[schemars(extend("default" = 0))]
    pub(crate) seed: Option<u64>,
    /// Every request and every answer takes up to this much longer.
    pub(crate) latency: Option<Text<Span>>,
    /// What is due at the same instant comes in any order. For virtual time.
    #[schemars(extend("default" = false))]
    pub(crate) any_order: Option<bool>,
    /// The host monitor looks this much later than at the multiples of its interval. For virtual time.
    pub(crate) host_monitor: Option<Text<Span>>,
    /// The same for the cluster monitor.
    pub(crate) cluster_monitor: Option<Text<Span>>,
    /// Of a thousand requests of hosts, so many are lost: half of them before the service sees them, half with their answers.
    pub(crate) lost: Option<At<i64>>,
    /// Of a thousand requests of hosts, so many reach the service twice.
    pub(crate) twice: Option<At<i64>>,
    /// The service is killed before it stores these writes, counted from 1, and started again five seconds later. For virtual time.
    #[serde(default)]
    pub(crate) killed_before_writes: Vec<At<i64>>,
    /// The service is killed when it has stored these writes and has not answered yet, and started again five seconds later. For virtual time.
    #[serde(default)]
    pub(crate) killed_after_writes: Vec<At<i64>>,
}

/// How hosts arrive, and what is measured.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Load")]
pub(crate) struct LoadFile {
    /// How many hosts start in one second of service time. By default they all start at once.
    pub(crate) ramp_per_second: Option<At<f64>>,
    /// Put request rate, latencies, errors and memory into the report.
    #[schemars(extend("default" = true))]
    pub(crate) measure: Option<bool>,
    /// More failed requests than this fail the run.
    pub(crate) max_errors: Option<At<i64>>,
    /// A 99th percentile of request latency above this fails the run. Latency is wall time: write `250ms wall`.
    pub(crate) latency_p99_at_most: Option<Text<Span>>,
}

/// What the report contains.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Report")]
pub(crate) struct ReportFile {
    /// Lanes in the timeline. Hosts beyond this number are summarized.
    #[schemars(extend("default" = 50))]
    pub(crate) max_lanes: Option<At<i64>>,
    /// Write every step that was asked for and answered into the history. By default true for up to 100 hosts.
    pub(crate) steps: Option<bool>,
}
