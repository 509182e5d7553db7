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
    AnyStatus, AnyValidation, At, EventName, Happening, OperatorName, Plain, Scalar, Step, StepType, Text, UserRole,
    Version, words_schema,
};
use crate::time::Span;
use crate::words::{
    ActionKind, BootOrder, FaultPhase, Firmware, HostKind, InstallMode, Need, NetworkMistake, PivotOrder, RoleName,
    SequenceMode, ServiceKind, Topology, When,
};

/// A scenario: what is built, what happens, what must be true.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Scenario")]
pub(crate) struct ScenarioFile {
    /// Version of the language: 1.
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
    /// What the place of the run must offer: `postgres`, `docker`, `kvm`, `libvirt`, `qemu`, `root`, `netns`, `browser`, `image:<name>`.
    /// Where something is missing, the scenario is skipped with that reason.
    #[serde(default)]
    pub(crate) needs: Vec<Text<Need>>,
    /// The service under test. Without it: the simulated service under the `fast` time profile.
    pub(crate) service: Option<ServiceFile>,
    /// How the discovery image is made.
    pub(crate) infra_env: Option<InfraEnvFile>,
    /// The cluster. Leave it out (and `clusters` too) when all hosts stay in the pool.
    pub(crate) cluster: Option<At<ClusterFile>>,
    /// Clusters, when there are several.
    pub(crate) clusters: Option<Vec<At<ClusterFile>>>,
    /// Groups of hosts.
    pub(crate) hosts: At<Vec<At<GroupFile>>>,
    /// How simulated hosts behave.
    pub(crate) hosts_settings: Option<HostsSettingsFile>,
    /// What the user does beyond creating things and starting the installation.
    #[serde(default)]
    pub(crate) actions: Vec<At<ActionFile>>,
    /// What goes wrong on purpose.
    #[serde(default)]
    pub(crate) faults: Vec<At<FaultFile>>,
    /// What must be true of the history. Each item has exactly one of `sequence`, `eventually`, `never`, `see`, `validation`,
    /// `event`, `stage_duration`, `operator`.
    #[serde(default)]
    pub(crate) expect: Vec<At<ExpectFile>>,
    /// What must be true of the bootstrap's pivot in every cluster that is installed.
    pub(crate) pivot: Option<At<PivotFile>>,
    /// Time limits.
    pub(crate) budgets: Option<BudgetsFile>,
    /// When the run ends. Without it: when every cluster that installs is `installed`, `error` or `cancelled`.
    pub(crate) until: Option<At<UntilFile>>,
    /// For load scenarios: how hosts come and what is measured.
    pub(crate) load: Option<LoadFile>,
    /// What the report contains.
    pub(crate) report: Option<ReportFile>,
}

/// The service under test.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Service")]
pub(crate) struct ServiceFile {
    /// How it is started: `simulated` (without it), `process`, `container` or `remote`.
    pub(crate) kind: Option<Text<ServiceKind>>,
    /// For `process`: the program, its file or a name in `PATH`.
    pub(crate) program: Option<Text<Plain>>,
    /// For `container`: the service's image, for example `vlab-service` or `quay.io/edge-infrastructure/assisted-service:latest`.
    pub(crate) image: Option<Text<Plain>>,
    /// For `container`: the image of PostgreSQL; without it `vlab-postgres` when it is on the machine, else `postgres`.
    pub(crate) postgres_image: Option<Text<Plain>>,
    /// For `remote`: its address, `http://host[:port]`.
    pub(crate) url: Option<Text<Plain>>,
    /// Its settings under the real service's own (environment) names, for example `HOST_MONITOR_INTERVAL`. They win over those
    /// of the time profile. Times in them are like all times of a scenario: as they pass under the profile `real`; `10s wall` is
    /// the wall clock's.
    #[serde(default)]
    pub(crate) settings: BTreeMap<String, At<Value>>,
    /// Name of the time profile: `real`, `fast`, or a file in `profiles/time`. `fast` without it.
    pub(crate) time_profile: Option<Text<Plain>>,
}

/// How the discovery image is made.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "InfraEnv")]
pub(crate) struct InfraEnvFile {
    /// `x86_64` (without it), `aarch64`, `arm64`, `ppc64le` or `s390x`.
    pub(crate) cpu_architecture: Option<Text<Plain>>,
    /// `full-iso` or `minimal-iso` (without it).
    pub(crate) image_type: Option<Text<ImageType>>,
    /// NTP sources beside those of DHCP.
    #[serde(default)]
    pub(crate) additional_ntp_sources: Vec<String>,
    /// Kernel arguments to append.
    #[serde(default)]
    pub(crate) kernel_arguments: Vec<String>,
    /// For virtual machines: the live ISO that discovery images are made of, a file. Without it that of the lab OS. RHCOS' goes in
    /// here.
    pub(crate) iso: Option<Text<Plain>>,
    /// Static networks as the API has them, one for each host. An infra-env gets those of its own hosts and those of none.
    #[serde(default)]
    pub(crate) static_network_config: Vec<At<StaticNetworkFile>>,
    /// What is wrong with the static networks on purpose. Other mistakes in them are refused before the run.
    #[serde(default)]
    pub(crate) mistakes: Vec<Text<NetworkMistake>>,
    /// The service must refuse to make the infra-env with this HTTP status. No host then boots.
    pub(crate) refused: Option<At<i64>>,
}

/// The static network of a host: `network_yaml` and `mac_interface_map`, or a `resource`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "StaticNetwork")]
pub(crate) struct StaticNetworkFile {
    /// The network as nmstate takes it, with names of its own for interfaces.
    pub(crate) network_yaml: Option<Text<Plain>>,
    /// Which MAC is which of these names.
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
    /// Its name, 1 to 54 lower-case letters, digits and dashes. Without it: the scenario's name.
    pub(crate) name: Option<Text<Plain>>,
    /// `sno`, `compact` or `ha`. Without it, the groups decide.
    pub(crate) topology: Option<Text<Topology>>,
    /// Number of masters. Without it, the groups decide.
    pub(crate) control_plane_count: Option<At<i64>>,
    /// Version to install, `4.18` without it.
    pub(crate) openshift_version: Option<Text<Version>>,
    /// Base DNS domain, `lab.example` without it.
    pub(crate) base_domain: Option<Text<Plain>>,
    /// Networks in which its hosts live, `192.168.126.0/24` without it.
    pub(crate) machine_networks: Option<Vec<Text<IpNet>>>,
    /// Networks of the pods, `10.128.0.0/14` with host prefix 23 without it.
    pub(crate) cluster_networks: Option<Vec<At<ClusterNetworkFile>>>,
    /// Networks of the cluster's services, `172.30.0.0/16` without it.
    pub(crate) service_networks: Option<Vec<Text<IpNet>>>,
    /// Addresses of the API, in the machine network. Needed when there are several nodes, unless the networking is the user's.
    #[serde(default)]
    pub(crate) api_vips: Vec<Text<IpAddr>>,
    /// Addresses of the ingress, in the machine network.
    #[serde(default)]
    pub(crate) ingress_vips: Vec<Text<IpAddr>>,
    /// The service has the addresses of the API and the ingress leased by DHCP: the hosts ask for them. Needs an
    /// `openshift_version` before 4.15, and that release in the service's setting RELEASE_IMAGES.
    pub(crate) vip_dhcp_allocation: Option<At<bool>>,
    /// Platform: `baremetal`, `none`, `external`, `vsphere`, `nutanix`. Without it: `none` for a single node and with user-managed
    /// networking, else `baremetal`.
    pub(crate) platform: Option<Text<PlatformType>>,
    /// The user brings load balancers and DNS. Always so for a single node.
    pub(crate) user_managed_networking: Option<At<bool>>,
    /// SSH key to put on the nodes.
    pub(crate) ssh_public_key: Option<String>,
    /// NTP source to set on the cluster.
    pub(crate) additional_ntp_source: Option<String>,
    /// `auto` (without it): the driver installs as soon as the cluster is `ready`. `never`: only an action does.
    pub(crate) install: Option<Text<InstallMode>>,
}

/// A network of pods.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "ClusterNetwork")]
pub(crate) struct ClusterNetworkFile {
    /// The network.
    pub(crate) cidr: Text<IpNet>,
    /// Prefix length of each host's part of it; 23 without it (64 for IPv6).
    pub(crate) host_prefix: Option<At<i64>>,
}

/// A group of hosts that are alike.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "HostGroup")]
pub(crate) struct GroupFile {
    /// Name of the group. Its hosts are `<name>-0`, `<name>-1`, ...
    pub(crate) name: Text<Plain>,
    /// How many; 1 without it.
    #[schemars(range(min = 1, max = 20000))]
    pub(crate) count: Option<At<i64>>,
    /// Role that the user gives: `auto` (without it, the service chooses), `master`, `worker`, `arbiter`.
    pub(crate) role: Option<Text<UserRole>>,
    /// `simulated` (without it), `vm` (a virtual machine that boots the discovery image) or `auto` (a virtual machine where the
    /// place of the run can run one, else simulated; the run says which). In virtual time all hosts are simulated. The hosts of a
    /// cluster are of one kind.
    pub(crate) kind: Option<Text<HostKind>>,
    /// The virtual machines of the group, where its hosts are some. What the hardware profile has more than the machine is
    /// declared to the service, and the report says so.
    pub(crate) vm: Option<VmFile>,
    /// Name of the hardware profile, `standard` without it.
    pub(crate) profile: Option<Text<Plain>>,
    /// Addresses. Without it, hosts of a cluster get free addresses of its machine network.
    pub(crate) addresses: Option<At<AddressesFile>>,
    /// What differs from the hardware profile.
    pub(crate) overrides: Option<OverridesFile>,
    /// Does DHCP give them addresses? True without it. Asked only for hosts whose infra-env has static networks.
    pub(crate) dhcp: Option<bool>,
    /// True: their discovery medium carries a container registry (as that of an appliance for places without the Internet), and
    /// masters copy it to their disks. Simulated hosts only.
    pub(crate) registry_on_medium: Option<bool>,
    /// They start so long after hosts may come.
    pub(crate) register_after: Option<Text<Span>>,
    /// Name of their cluster, or `none` for the pool. Not needed where there is one cluster.
    pub(crate) cluster: Option<Text<Plain>>,
    /// True: they are added to the cluster after its installation. They boot when an action has opened it (`allow-add-hosts`), and
    /// another one installs them (`install-host`).
    pub(crate) day2: Option<At<bool>>,
}

/// Addresses of a group.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Addresses")]
pub(crate) struct AddressesFile {
    /// The first host's address; the others follow it.
    pub(crate) first: Option<Text<IpAddr>>,
    /// The network they are of, where it is not the machine network. Without `first` they begin at its tenth address.
    pub(crate) network: Option<Text<IpNet>>,
}

/// What a virtual machine really has, beside what its hardware profile declares.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Vm")]
pub(crate) struct VmFile {
    /// Processors; 1 without it.
    pub(crate) cpus: Option<At<i64>>,
    /// Memory in MiB; 1024 without it.
    pub(crate) memory_mib: Option<At<i64>>,
    /// Size of its disk in GB (10^9 bytes); that of the profile's first disk without it. It takes only what is written to it.
    pub(crate) disk_gb: Option<At<i64>>,
    /// `bios` (without it) or `uefi`.
    pub(crate) firmware: Option<Text<Firmware>>,
    /// With a TPM 2.0. Without it: none.
    pub(crate) tpm: Option<bool>,
    /// `disk-first` (without it) or `cd-first`, with which an installed host boots the discovery image again.
    pub(crate) boot_order: Option<Text<BootOrder>>,
    /// File with the real agent (openshift/assisted-installer-agent, a program for x86_64), which runs in the place of the lab's.
    pub(crate) agent: Option<Text<Plain>>,
    /// Console checks that do not count, by id: `kernel-panic`, `unit-failed` and so on.
    #[serde(default)]
    pub(crate) ignore_console: Vec<Text<Plain>>,
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
    /// Keep the real agent's cache: a reply that equals the last one is not sent. True without it.
    pub(crate) reply_cache: Option<bool>,
}

/// What the user does, and when: `at` a time or `after` something.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Action")]
pub(crate) struct ActionFile {
    /// What.
    #[serde(rename = "do")]
    pub(crate) act: Text<ActionKind>,
    /// So long after the start of the run.
    pub(crate) at: Option<Text<Span>>,
    /// After this was seen.
    pub(crate) after: Option<At<ObservationFile>>,
    /// With `after`: so long after it.
    pub(crate) then: Option<Text<Span>>,
    /// The cluster, where there are several.
    pub(crate) cluster: Option<Text<Plain>>,
    /// The host.
    pub(crate) host: Option<Text<Plain>>,
    /// A group of hosts, or `all`.
    pub(crate) hosts: Option<Text<Plain>>,
    /// For `set-vips`.
    #[serde(default)]
    pub(crate) api_vips: Vec<Text<IpAddr>>,
    /// For `set-vips`.
    #[serde(default)]
    pub(crate) ingress_vips: Vec<Text<IpAddr>>,
    /// For `patch-host`.
    pub(crate) role: Option<Text<UserRole>>,
    /// For `patch-host` on one host.
    pub(crate) hostname: Option<Text<Plain>>,
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
    /// When it begins: so long after the start of the run, or when something is seen. It begins later when what it hits is not
    /// there yet.
    pub(crate) at: At<FaultTimeFile>,
    /// When it begins with something that is seen: so long after it.
    pub(crate) then: Option<Text<Span>>,
    /// What it hits: name of a host or of a group, `bootstrap`, `control-plane`, `service`, `postgres`, `gateway`; or who is
    /// meant in more words.
    pub(crate) target: At<FaultTargetFile>,
    /// What happens.
    pub(crate) inject: Text<&'static FaultRow>,
    /// How long. Without it and without `until`: to the end of the run.
    #[serde(rename = "for")]
    pub(crate) lasts: Option<Text<Span>>,
    /// It ends when this is seen after its begin.
    pub(crate) until: Option<At<ObservationFile>>,
    /// Parameters of what happens.
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

/// What a fault hits: `host`, `hosts` or `role` (and of these so many as `choose` says), a `cluster`, or the way `between` hosts.
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
    /// This cluster. With `role`: the cluster of the hosts, where there are several.
    pub(crate) cluster: Option<Text<Plain>>,
    /// So many of the hosts, chosen by the seed. Without it: all.
    pub(crate) choose: Option<At<i64>>,
    /// The way between two: each the name of a host or of a group.
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
/// `finalizing_stage`, `validation`, `event`, `operator`, `action`, `step`, `fault`, `did`, `console`.
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
    /// Of this cluster. With `role`: the cluster of the hosts, where there are several.
    pub(crate) cluster: Option<Text<Plain>>,
    /// It enters this status.
    pub(crate) status: Option<Text<AnyStatus>>,
    /// With `status`: and was in this one before.
    pub(crate) from: Option<Text<AnyStatus>>,
    /// It reports this installation stage.
    pub(crate) stage: Option<Text<HostStage>>,
    /// With `stage`: the progress of it says at least so many percent.
    pub(crate) percent: Option<At<i64>>,
    /// The cluster reports this stage of finalizing.
    pub(crate) finalizing_stage: Option<Text<FinalizingStage>>,
    /// This validation takes the value that `is` says.
    pub(crate) validation: Option<Text<AnyValidation>>,
    /// For `validation`: `success`, `failure`, `pending`, `error`, `disabled`. For `operator`: `available`, `progressing`, `failed`.
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
    /// This fault of the scenario begins, has an effect or ends, as `phase` says. Needs no host and no cluster.
    pub(crate) fault: Option<Text<Plain>>,
    /// For `fault`: `begin` (without it), `effect` or `end`.
    pub(crate) phase: Option<Text<FaultPhase>>,
    /// A host does this by itself, or it happens inside the cluster, where the service does not see it.
    pub(crate) did: Option<Text<Happening>>,
    /// The serial console of a machine shows a line that has this in it.
    pub(crate) console: Option<Text<Plain>>,
    /// So many hosts are enough; all without it.
    pub(crate) at_least: Option<At<i64>>,
}

/// An expectation: a name if you like, and exactly one kind.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Expectation")]
pub(crate) struct ExpectFile {
    /// Name in the report. Without it, one is made from what it says.
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
    /// With `eventually`: so long after the start of the run. With `see`: so long between the two.
    pub(crate) within: Option<Text<Span>>,
    /// A validation has this value.
    pub(crate) validation: Option<At<ValidationFile>>,
    /// So many events are sent.
    pub(crate) event: Option<At<EventFile>>,
    /// A stage takes so long.
    pub(crate) stage_duration: Option<At<StageDurationFile>>,
    /// A monitored operator has this status in the end.
    pub(crate) operator: Option<At<OperatorFile>>,
}

/// Exactly one of `statuses`, `stages`, `finalizing_stages`. A step with `?` behind it may be missing: `insufficient?`.
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
    pub(crate) statuses: Option<At<Vec<Text<Step<AnyStatus>>>>>,
    /// Installation stages of hosts.
    pub(crate) stages: Option<At<Vec<Text<Step<HostStage>>>>>,
    /// Stages of a cluster's finalizing.
    pub(crate) finalizing_stages: Option<At<Vec<Text<Step<FinalizingStage>>>>>,
    /// `exact` (without it): these and no other. `partial`: others may be before, between and after.
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
    /// `end` (without it), `ever` or `always`.
    pub(crate) when: Option<Text<When>>,
}

/// A number of events: `count`, or `min` and `max`. Without any: at least one.
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
    /// Exactly so many.
    pub(crate) count: Option<At<i64>>,
    /// At least so many.
    pub(crate) min: Option<At<i64>>,
    /// At most so many.
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
    /// With `role`: the cluster of the hosts, where there are several.
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
    /// Of this cluster, where there are several.
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
    /// The whole run; reaching it ends the run. `3h` without it.
    pub(crate) total: Option<Text<Span>>,
}

/// The bootstrap's pivot: all of its moments must come. Durations are service time, from one moment to the next.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Pivot")]
pub(crate) struct PivotFile {
    /// `strict` (without it): the moments come in their order, and etcd keeps its quorum. `any`: they only have to come.
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
    /// Until bootkube is through.
    pub(crate) bootkube_done: Option<Text<Span>>,
    /// Until etcd has its quorum without the bootstrap's member; on a single node, which writes its disk and reboots first, until
    /// its own etcd runs from the disk.
    pub(crate) etcd_quorum: Option<Text<Span>>,
    /// Until the bootstrap reboots.
    pub(crate) bootstrap_reboot: Option<Text<Span>>,
    /// Until the bootstrap is a ready node of the control plane.
    pub(crate) rejoined: Option<Text<Span>>,
}

/// When the run ends: all of what is here, in this order: `seen` and `at`, then `idle_polls`, then `then`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Until")]
pub(crate) struct UntilFile {
    /// All of these were seen.
    #[serde(default)]
    pub(crate) seen: Vec<At<ObservationFile>>,
    /// So long after the start of the run, at the earliest.
    pub(crate) at: Option<Text<Span>>,
    /// Hosts then go on for so many of their poll intervals.
    pub(crate) idle_polls: Option<At<i64>>,
    /// The run then goes on for so long.
    pub(crate) then: Option<Text<Span>>,
}

/// How hosts come, and what is measured.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Load")]
pub(crate) struct LoadFile {
    /// Hosts that start in one second of service time. All at once without it.
    pub(crate) ramp_per_second: Option<At<f64>>,
    /// Put request rate, latencies, errors and memory into the report. True without it.
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
    /// Lanes in the timeline; hosts beyond this number are summed up. 50 without it.
    pub(crate) max_lanes: Option<At<i64>>,
    /// Write every step that was asked and answered into the history. True without it, for up to 100 hosts.
    pub(crate) steps: Option<bool>,
}
