//! A scenario after reading and checking: defaults filled in, names resolved, groups expanded to hosts. What the runner uses.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;

use ipnet::IpNet;
use serde::Serialize;
use vlab_api::types::{
    ClusterStatus, FinalizingStage, HostRole, HostStage, HostStatus, ImageType, OperatorStatus, PlatformType, Severity,
};
use vlab_model::history::HostsKind;
use vlab_model::pivot::PivotMoment;
use vlab_model::validation::ValidationStatus;

use crate::faults::{FaultRow, Injection, KubeInjection};
use crate::follow::SequenceStep;
use crate::interleaving::Interleaving;
use crate::time::Span;
use crate::words::{
    ActionKind, BootOrder, ConditionStatus, DiskBus, FaultPhase, Firmware, FrontDoor, HostKind, InstallMode, Lasting,
    Leftover, Need, NetworkMistake, PivotOrder, Quantity, ResourceKind, ResourceState, RoleName, SequenceMode,
    ServiceKind, Tolerated, Topology, When,
};

/// A scenario that can be run: every name in it exists and nothing in it contradicts itself.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Scenario {
    /// Version of the language, 1.
    pub version: u32,
    /// Its name.
    pub name: String,
    /// What it proves.
    pub description: String,
    /// Words to select it by.
    pub tags: Vec<String>,
    /// Where it was read from, as messages should name it.
    pub path: String,
    /// Seed of all random choices, where the scenario fixes one.
    pub seed: Option<u64>,
    /// What the place of the run must offer.
    pub needs: Vec<Need>,
    /// The service under test.
    pub service: Service,
    /// How the user asks for things.
    pub api: FrontDoor,
    /// In real time, over Kubernetes: the folder with the programs of a real API server; `None`: the lab's own.
    pub hub_assets: Option<PathBuf>,
    /// Over Kubernetes: the version of the hub's operator for bare metal, if it has one.
    pub baremetal_operator: Option<String>,
    /// How the discovery image is made, the same for all infra-envs of the run.
    pub infra_env: InfraEnv,
    /// Clusters in the order of the file. Empty when all hosts stay in the pool.
    pub clusters: Vec<Cluster>,
    /// Every host, in the order of the groups and then of their number. `hosts[i].index == i`.
    pub hosts: Vec<Host>,
    /// How simulated hosts behave.
    pub hosts_settings: HostsSettings,
    /// What the user does beyond the plain way (create, wait, install), in the order of the file.
    pub actions: Vec<Action>,
    /// What goes wrong on purpose, in the order of the file.
    pub faults: Vec<Fault>,
    /// What must be true of the history. Empty: every cluster ends `installed`.
    pub expect: Vec<Expectation>,
    /// What the service may do without a fault that explains it.
    pub tolerate: Vec<Tolerated>,
    /// Time limits.
    pub budgets: Budgets,
    /// What must be true of the pivot, where the scenario says so.
    pub pivot: Option<Pivot>,
    /// When the run ends.
    pub until: Until,
    /// In which order and how late things come in virtual time.
    pub interleaving: Interleaving,
    /// For load scenarios: how hosts come and what is measured.
    pub load: Option<Load>,
    /// What the report contains.
    pub report: ReportOptions,
    /// Parts that the language knows and this version cannot run. A run of a scenario that has some must be refused.
    pub not_built: Vec<NotBuilt>,
}

/// A part of a scenario that the language knows and this version cannot run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NotBuilt {
    /// What it is, for example `hosts of kind vm`.
    pub what: String,
    /// Line of the scenario's file, from 1.
    pub line: usize,
    /// The same as a diagnostic with file, line and excerpt, ready to print.
    pub diagnostic: String,
}

impl Scenario {
    /// The cluster with that name.
    pub fn cluster(&self, name: &str) -> Option<&Cluster> {
        self.clusters.iter().find(|c| c.name == name)
    }

    /// The host with that name.
    pub fn host(&self, name: &str) -> Option<&Host> {
        self.hosts.iter().find(|h| h.name == name)
    }

    /// Everything that it looks at in a history, in actions, faults, expectations and `until`.
    pub fn moments(&self) -> impl Iterator<Item = &Moment> {
        let times = self.actions.iter().map(|a| &a.when).chain(self.faults.iter().map(|f| &f.when));
        let begins = times.filter_map(|when| match when {
            ActionTime::At(_) => None,
            ActionTime::After { moment, .. } => Some(moment),
        });
        let ends = self.faults.iter().filter_map(|f| f.until.as_ref());
        let expected = self.expect.iter().flat_map(|e| match &e.check {
            Criterion::Eventually { moment, .. } | Criterion::Never { moment } => vec![moment],
            Criterion::Order { see, before, after, .. } => {
                [Some(see), before.as_ref(), after.as_ref()].into_iter().flatten().collect()
            }
            _ => vec![],
        });
        begins.chain(ends).chain(expected).chain(&self.until.seen)
    }

    /// Is it for virtual time alone?
    pub fn is_virtual(&self) -> bool {
        !self.interleaving.is_plain()
    }

    /// Does it look at steps that the service gives to hosts?
    pub fn mentions_steps(&self) -> bool {
        self.moments().any(|m| matches!(m.seen, Seen::Step(_)))
    }

    /// Hosts of a cluster, in order of their index. `None`: hosts of the pool.
    pub fn hosts_of<'a>(&'a self, cluster: Option<&'a str>) -> impl Iterator<Item = &'a Host> + 'a {
        self.hosts.iter().filter(move |h| h.cluster.as_deref() == cluster)
    }

    /// Hosts that are in a cluster from the beginning, or that an action binds to it.
    pub fn hosts_ever_of<'a>(&'a self, cluster: &'a str) -> impl Iterator<Item = &'a Host> + 'a {
        self.hosts.iter().filter(move |h| h.clusters().any(|name| name == cluster))
    }
}

/// The service under test.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Service {
    /// How it is started.
    pub kind: ServiceKind,
    /// Its settings under their own (environment) names; they win over those of the time profile. Times are service time, as
    /// in [`Span`], unless they end in ` wall`.
    pub settings: BTreeMap<String, String>,
    /// Name of the time profile.
    pub time_profile: String,
    /// For `remote`: where it is.
    pub url: Option<String>,
    /// For `process`: the program, its file or a name in `PATH`.
    pub program: Option<String>,
    /// For `container`: the service's image.
    pub image: Option<String>,
    /// For `container`: the image of PostgreSQL, when it is not the usual one.
    pub postgres_image: Option<String>,
    /// How many of it there are.
    pub replicas: u64,
}

/// How the discovery image is made.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct InfraEnv {
    /// Processor architecture.
    pub cpu_architecture: String,
    /// Kind of image.
    pub image_type: ImageType,
    /// NTP sources beside those of DHCP.
    pub additional_ntp_sources: Vec<String>,
    /// Kernel arguments to append.
    pub kernel_arguments: Vec<String>,
    /// The live ISO that images of virtual machines are made of; `None`: that of the lab OS.
    pub iso: Option<PathBuf>,
    /// Static networks.
    pub static_networks: Vec<StaticNetwork>,
    /// Texts of the files with `NMStateConfig` resources, by the path that the scenario has for them.
    #[serde(skip)]
    pub resources: BTreeMap<String, String>,
    /// What is wrong with them on purpose.
    pub mistakes: Vec<NetworkMistake>,
    /// Further members of the API's `infra-env-create-params`.
    pub params: BTreeMap<String, serde_json::Value>,
    /// The service must refuse to make the infra-env with this HTTP status.
    pub refused: Option<u16>,
}

impl InfraEnv {
    /// The static networks of an infra-env with these hosts: those that are theirs, and those that are nobody's.
    pub fn networks_of<'a>(&'a self, hosts: &'a [&'a str]) -> impl Iterator<Item = &'a StaticNetwork> + 'a {
        self.static_networks
            .iter()
            .filter(|n| n.hosts.is_empty() || n.hosts.iter().any(|h| hosts.contains(&h.as_str())))
    }
}

/// The static network of a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StaticNetwork {
    /// As nmstate takes it.
    pub network_yaml: String,
    /// MACs and the names of their interfaces in the YAML.
    pub mac_interface_map: Vec<(String, String)>,
    /// Hosts that have one of these MACs.
    pub hosts: Vec<String>,
    /// Line of the scenario's file, from 1.
    pub line: usize,
}

/// A cluster.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Cluster {
    /// Its name, also in the service.
    pub name: String,
    /// Its form.
    pub topology: Topology,
    /// Number of masters.
    pub control_plane_count: u32,
    /// Version to install, for example `4.18`.
    pub openshift_version: String,
    /// Base DNS domain.
    pub base_domain: String,
    /// Networks in which its hosts live. With VIPs that the service manages, the service derives this from the VIPs and
    /// refuses to be told: give it to the hosts then, not to the service.
    pub machine_networks: Vec<IpNet>,
    /// Networks of the pods.
    pub cluster_networks: Vec<ClusterNetwork>,
    /// Networks of the cluster's services.
    pub service_networks: Vec<IpNet>,
    /// Addresses of the API; empty for a single node and with user-managed networking.
    pub api_vips: Vec<IpAddr>,
    /// Addresses of the ingress; empty for a single node and with user-managed networking.
    pub ingress_vips: Vec<IpAddr>,
    /// The service has both leased by DHCP.
    pub vip_dhcp_allocation: bool,
    /// Platform of the cluster, as the API has it.
    pub platform: PlatformType,
    /// The user brings load balancers and DNS.
    pub user_managed_networking: bool,
    /// Key to put on the nodes.
    pub ssh_public_key: Option<String>,
    /// NTP source to set on the cluster.
    pub additional_ntp_source: Option<String>,
    /// Further members of the API's `cluster-create-params`.
    pub params: BTreeMap<String, serde_json::Value>,
    /// Does the driver start the installation when the cluster is ready?
    pub install: InstallMode,
    /// Line of the scenario's file, from 1.
    pub line: usize,
}

impl Cluster {
    /// Does somebody start its installation: the driver, or one of these actions?
    pub fn is_installed_by(&self, actions: &[Action]) -> bool {
        let by_action = |a: &Action| {
            a.kind == ActionKind::Install && a.refused.is_none() && a.cluster.as_deref() == Some(&self.name)
        };
        self.install == InstallMode::Auto || actions.iter().any(by_action)
    }

    /// Has it machine networks of both address families?
    pub fn is_dual_stack(&self) -> bool {
        let of_four = |n: &IpNet| matches!(n, IpNet::V4(_));
        self.machine_networks.iter().any(of_four) && !self.machine_networks.iter().all(of_four)
    }
}

/// A network of pods.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ClusterNetwork {
    /// The network.
    pub cidr: IpNet,
    /// Prefix length of each host's part of it.
    pub host_prefix: u8,
}

impl HostKind {
    /// Does a provider of hosts run it? Simulated hosts are played.
    pub const fn is_machine(self) -> bool {
        match self {
            HostKind::Vm => true,
            HostKind::Simulated | HostKind::Auto => false,
        }
    }

    /// What hosts of this kind are in a history. Until a run is prepared, [`HostKind::Auto`] stands for simulated ones.
    pub const fn in_history(self) -> HostsKind {
        match self {
            HostKind::Vm => HostsKind::Vm,
            HostKind::Simulated | HostKind::Auto => HostsKind::Simulated,
        }
    }
}

impl Host {
    /// Does a provider of hosts run it? Simulated hosts are played.
    pub const fn is_machine(&self) -> bool {
        self.kind.is_machine()
    }

    /// The clusters that it is in, one after the other: its own, or those to which actions bind it.
    pub fn clusters(&self) -> impl Iterator<Item = &str> {
        self.cluster.iter().chain(&self.bound_to).map(String::as_str)
    }
}

/// A host.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Host {
    /// Its name: `<group>-<number>`, counted from 0. Also its host name.
    pub name: String,
    /// Its group.
    pub group: String,
    /// Position among all hosts, from 0.
    pub index: usize,
    /// Simulated or a machine. [`HostKind::Auto`] is decided when a run is prepared.
    pub kind: HostKind,
    /// What the machine has, where the host is one.
    pub vm: Vm,
    /// The role that the user sets; [`HostRole::AutoAssign`] leaves it to the service.
    pub role: HostRole,
    /// Name of the hardware profile.
    pub profile: String,
    /// What differs from the profile.
    pub overrides: Overrides,
    /// The cluster that it is to join; `None`: the pool.
    pub cluster: Option<String>,
    /// The clusters to which actions bind it, in the order of the file. Only hosts of the pool have some.
    pub bound_to: Vec<String>,
    /// It is added to its cluster when that is installed.
    pub day2: bool,
    /// Its address with the prefix length of its network; `None`: the profile's (DHCP) choice.
    pub address: Option<IpNet>,
    /// Does DHCP give it an address?
    pub dhcp: bool,
    /// Over Kubernetes: the user describes it by a BareMetalHost, and the service's controllers have it switched on and approve it.
    pub bare_metal_host: bool,
    /// Its discovery medium carries a container registry, as an appliance's does; masters copy it to their disks.
    pub registry_on_medium: bool,
    /// Its address of the other family, where its cluster is dual-stack.
    pub second_address: Option<IpNet>,
    /// When it starts, counted from the moment when hosts may come.
    pub register_after: Span,
}

/// What a virtual machine really has.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Vm {
    /// Number of processors.
    pub cpus: u32,
    /// Memory in MiB.
    pub memory_mib: u64,
    /// Size of its disk in GB (10^9 bytes); `None`: that of the profile's first disk.
    pub disk_gb: Option<u64>,
    /// Its disks; empty: the one of `disk_gb`.
    pub disks: Vec<VmDisk>,
    /// Firmware.
    pub firmware: Firmware,
    /// With a TPM 2.0.
    pub tpm: bool,
    /// What it tries first when it boots.
    pub boot_order: BootOrder,
    /// File with the agent that runs in the place of the lab's.
    pub agent: Option<PathBuf>,
    /// Likewise the installer, with its folder `deploy` beside it.
    pub installer: Option<PathBuf>,
    /// Likewise the controller in the cluster.
    pub controller: Option<PathBuf>,
    /// Ids of console checks that do not count.
    pub ignore_console: Vec<String>,
}

impl Vm {
    /// Programs that run in the place of the lab's: the key of each, and its file.
    pub fn programs(&self) -> impl Iterator<Item = (&'static str, &PathBuf)> {
        let all = [("agent", &self.agent), ("installer", &self.installer), ("controller", &self.controller)];
        all.into_iter().filter_map(|(key, file)| Some((key, file.as_ref()?)))
    }
}

impl Default for Vm {
    fn default() -> Self {
        Self {
            cpus: 1,
            memory_mib: 1024,
            disk_gb: None,
            disks: Vec::new(),
            firmware: Firmware::Bios,
            tpm: false,
            boot_order: BootOrder::DiskFirst,
            agent: None,
            installer: None,
            controller: None,
            ignore_console: Vec::new(),
        }
    }
}

impl DiskBus {
    /// By how many ways over the network the disk is reached; 0: it is the machine's own.
    #[must_use]
    pub fn network_paths(self) -> u16 {
        match self {
            Self::Iscsi => 1,
            Self::Multipath => 2,
            Self::Virtio | Self::Sata | Self::Scsi | Self::Nvme | Self::Usb => 0,
        }
    }
}

/// A disk of a virtual machine.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct VmDisk {
    /// How it is attached.
    pub bus: DiskBus,
    /// Size in GB (10^9 bytes).
    pub size_gb: u64,
    /// Serial number; `None`: one that no other disk has.
    pub serial: Option<String>,
    /// World-wide name; `None`: one that no other disk has, or none where the bus has none.
    pub wwn: Option<u64>,
    /// It does not turn.
    pub ssd: bool,
    /// It can be taken out.
    pub removable: bool,
    /// What somebody left on it.
    pub leftover: Option<Leftover>,
}

/// What differs from the hardware profile.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Overrides {
    /// Number of processor cores.
    pub cpu_cores: Option<u32>,
    /// Memory in MiB.
    pub memory_mib: Option<u64>,
    /// Size of every disk in GB (10^9 bytes).
    pub disk_gb: Option<u64>,
}

/// How simulated hosts behave.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HostsSettings {
    /// Keep the real agent's cache, which does not send a reply that equals the last one.
    pub reply_cache: bool,
}

/// What the user does, and when.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Action {
    /// The action.
    pub kind: ActionKind,
    /// The time of the action.
    pub when: ActionTime,
    /// The cluster it is done to, for actions on clusters and for `bind`.
    pub cluster: Option<String>,
    /// The hosts it is done to, for actions on hosts.
    pub hosts: Vec<String>,
    /// For `set-vips`.
    pub api_vips: Vec<IpAddr>,
    /// For `set-vips`.
    pub ingress_vips: Vec<IpAddr>,
    /// For `patch-host`: the new role.
    pub role: Option<HostRole>,
    /// For `patch-host`: the new name.
    pub hostname: Option<String>,
    /// For what is done to a resource: its kind.
    pub resource: Option<ResourceKind>,
    /// For `patch-resource` and `annotate` the patch, for `apply-resource` the object.
    pub object: Option<serde_json::Value>,
    /// For `request`: what is asked for.
    pub request: Option<ApiRequest>,
    /// HTTP status with which the user expects to be refused; `None`: the action must succeed.
    pub refused: Option<u16>,
    /// Line of the scenario's file, from 1.
    pub line: usize,
}

/// A request to the REST API for which there is no action.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ApiRequest {
    /// The operation's id in the API.
    pub operation: &'static str,
    /// Its parameters, but for the ids.
    pub with: BTreeMap<String, String>,
    /// Its body.
    pub body: Option<serde_json::Value>,
}

/// When an action is done.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ActionTime {
    /// So long after the start of the run.
    At(Span),
    /// So long after something was seen.
    After {
        /// What must be seen.
        moment: Moment,
        /// How long after it.
        then: Span,
    },
}

/// Something that goes wrong on purpose.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Fault {
    /// Its name in the history and the report. Unique in the scenario.
    pub name: String,
    /// What it does.
    pub injection: Injection,
    /// When it begins. It begins later when what it hits is not there yet.
    pub when: ActionTime,
    /// What it hits.
    pub target: FaultTarget,
    /// It ends so long after its begin.
    pub lasts: Option<Span>,
    /// It ends when this is seen after its begin.
    pub until: Option<Moment>,
    /// Line of the scenario's file, from 1.
    pub line: usize,
}

impl Fault {
    /// The row of the table that it is of.
    pub const fn row(&self) -> &'static FaultRow {
        self.injection.row()
    }

    /// The word of its kind.
    pub const fn word(&self) -> &'static str {
        self.row().word
    }

    /// Does it keep the service's controllers from their lease, so that the service ends?
    pub fn takes_the_lease(&self) -> bool {
        use KubeInjection::{KubeDown, KubeLeaseLost, KubeLeaseSlow};
        matches!(self.injection, Injection::Kube(KubeLeaseLost { .. } | KubeLeaseSlow { .. } | KubeDown))
    }

    /// Does it happen in a moment?
    pub fn is_momentary(&self) -> bool {
        self.row().lasts == Lasting::Moment
    }
}

/// Hosts that a fault is to hit. Which they are may be known only when it begins.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WantedHosts {
    /// Of these ([`Subject::Hosts`] or [`Subject::Role`]).
    pub of: Subject,
    /// So many of them, chosen by the seed; `None`: all.
    pub choose: Option<u32>,
}

/// What a fault hits. `Hosts` is [`WantedHosts`] in a scenario, and their names once the fault begins.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FaultTarget<Hosts = WantedHosts> {
    /// Hosts, in whichever way they are known.
    Hosts(Hosts),
    /// The way between two sets of hosts, by their names.
    Link {
        /// The first.
        from: Vec<String>,
        /// The second.
        to: Vec<String>,
    },
    /// A cluster, by its name.
    Cluster(String),
    /// The service under test.
    Service,
    /// Its database.
    Postgres,
    /// The way between hosts and the service.
    Gateway,
    /// The hub's API server.
    Kube,
}

/// Which things an observation or an expectation speaks of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Subject {
    /// A cluster, by its name in the scenario.
    Cluster(String),
    /// Hosts, by their names in the scenario, in order; never empty.
    Hosts(Vec<String>),
    /// Hosts of a role of a cluster. Which they are is known when the service has chosen (its bootstrap, automatic roles).
    Role {
        /// Role. `master` means the masters that are not the bootstrap.
        role: RoleName,
        /// Name of the cluster.
        cluster: String,
    },
    /// The run as a whole: events that belong to no host or cluster, actions, faults.
    Run,
}

/// Something that can be seen in a history.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Moment {
    /// Of what.
    pub subject: Subject,
    /// What is to be seen of them.
    pub seen: Seen,
    /// Of how many of the subject's hosts it must be seen to count as seen. Meaningless for `never`, where one is too many.
    pub of: Quantity,
}

/// What is seen.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Seen {
    /// A host enters this status.
    HostStatus(HostStatus),
    /// A cluster enters this status.
    ClusterStatus(ClusterStatus),
    /// A host goes from one status to another.
    HostTransition {
        /// From this one.
        from: HostStatus,
        /// Into this one.
        to: HostStatus,
    },
    /// A cluster goes from one status to another.
    ClusterTransition {
        /// From this one.
        from: ClusterStatus,
        /// Into this one.
        to: ClusterStatus,
    },
    /// A machine's serial console shows a line with this text in it.
    Console(String),
    /// A host reports this stage.
    Stage(HostStage),
    /// A cluster reports this stage of finalizing.
    FinalizingStage(FinalizingStage),
    /// A validation of a host or a cluster takes this value.
    Validation {
        /// Id of the validation.
        id: String,
        /// Value that the validation takes.
        status: ValidationStatus,
    },
    /// An event of this name.
    Event {
        /// Name.
        name: String,
        /// Severity, where it matters.
        severity: Option<Severity>,
    },
    /// A monitored operator takes this status.
    Operator {
        /// Name.
        name: String,
        /// Status that the operator reports.
        status: OperatorStatus,
    },
    /// The user did this.
    Action(ActionKind),
    /// A host has written so much of the image, or has copied so much: the progress text of this stage says at least so many
    /// percent.
    Progress {
        /// Installation stage, as the API has it.
        stage: HostStage,
        /// Percentage, 1 to 100.
        percent: u32,
    },
    /// The service gave a host a step of this type.
    Step(String),
    /// A fault of the scenario began, did something, or ended.
    Fault {
        /// Name.
        name: String,
        /// Which of it.
        phase: FaultPhase,
    },
    /// A host did this by itself, or it happened inside the cluster: what the service does not see, for example
    /// `booted-installed-os` of a host, `bootkube-done` of a cluster. One of a closed list.
    Did(String),
    /// A condition of the resource of a host or a cluster takes this status.
    Condition {
        /// Whose condition.
        resource: ResourceKind,
        /// Type of the condition.
        condition: String,
        /// What it becomes.
        status: ConditionStatus,
        /// Its reason, where that matters.
        reason: Option<String>,
    },
    /// The resource of a host or a cluster is made, deleted, gone.
    Resource {
        /// Which of its resources.
        resource: ResourceKind,
        /// What becomes of it.
        state: ResourceState,
    },
    /// The resource of a host or a cluster is being deleted, and a finalizer holds it.
    Held {
        /// Which of its resources.
        resource: ResourceKind,
        /// The finalizer.
        finalizer: String,
    },
}

/// Something that must be true of the history.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Expectation {
    /// Its name in the report: the scenario's, or one made from what it says. Unique in the scenario.
    pub name: String,
    /// Line of the scenario's file, from 1.
    pub line: usize,
    /// What must be true.
    pub check: Criterion,
}

/// What must be true.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Criterion {
    /// Each subject goes through these, in this order.
    Sequence {
        /// The hosts or the cluster that it is about.
        subject: Subject,
        /// The steps, in order. [`crate::follow`] compares.
        steps: Steps,
        /// Nothing else, or others between.
        mode: SequenceMode,
    },
    /// It is seen, for as many of the subject's hosts as `moment.of` says.
    Eventually {
        /// What must be seen, or must not.
        moment: Moment,
        /// At the latest so long after the start of the run.
        within: Option<Span>,
    },
    /// It is seen for none of the subject.
    Never {
        /// What must be seen, or must not.
        moment: Moment,
    },
    /// Order between two things. `see` must be seen, else it fails; each of `before` and `after` that is there must be seen too.
    Order {
        /// What must be seen, or must not.
        see: Moment,
        /// It is complete (seen for all that `see.of` asks) before the first of this.
        before: Option<Moment>,
        /// The first of it comes after this is complete.
        after: Option<Moment>,
        /// With `after`: `see` is complete at the latest so long after `after` is complete. With `before` alone: the first of
        /// `before` comes at the latest so long after `see` is complete.
        within: Option<Span>,
    },
    /// A validation has this value.
    Validation {
        /// Of all of these.
        subject: Subject,
        /// Id of the validation.
        id: String,
        /// Value that the validation takes.
        status: ValidationStatus,
        /// At which of its evaluations.
        when: When,
    },
    /// So many events. Counted for each host of the subject by itself; for a cluster those that carry its id.
    Event {
        /// The hosts or the cluster that it is about.
        subject: Subject,
        /// Name.
        name: String,
        /// Severity, where it matters.
        severity: Option<Severity>,
        /// At least.
        min: u64,
        /// At most.
        max: Option<u64>,
    },
    /// How long each host stays in a stage (until the next one).
    StageDuration {
        /// The hosts or the cluster that it is about.
        subject: Subject,
        /// Installation stage, as the API has it.
        stage: HostStage,
        /// At least.
        at_least: Option<Span>,
        /// At most.
        at_most: Option<Span>,
    },
    /// A monitored operator has this status at the end.
    Operator {
        /// Name of the cluster.
        cluster: String,
        /// Name.
        name: String,
        /// Status that the operator reports.
        status: OperatorStatus,
    },
}

/// Steps of a sequence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Steps {
    /// Of a host.
    HostStatuses(Vec<SequenceStep<HostStatus>>),
    /// Of a cluster.
    ClusterStatuses(Vec<SequenceStep<ClusterStatus>>),
    /// Of a host.
    Stages(Vec<SequenceStep<HostStage>>),
    /// Of a cluster.
    FinalizingStages(Vec<SequenceStep<FinalizingStage>>),
    /// Of a condition.
    Reasons {
        /// Whose condition.
        resource: ResourceKind,
        /// Type of the condition.
        condition: String,
        /// Its reasons.
        steps: Vec<SequenceStep<String>>,
    },
}

/// What must be true of the bootstrap's pivot in every cluster that is installed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Pivot {
    /// How strictly the moments are compared.
    pub order: PivotOrder,
    /// From the start of bootkube until the bootstrap is back as a master.
    pub within: Option<Span>,
    /// How long it may take to each moment from the one before it.
    pub stages: BTreeMap<PivotMoment, Span>,
    /// Line of the scenario's file, from 1.
    pub line: usize,
}

/// Time limits. Those that are `None` are not checked, except `total`, which always ends a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Budgets {
    /// From the start of the run until the first host is registered.
    pub first_registration: Option<Span>,
    /// From the start of the run until all hosts were `known` (or `known-unbound`) once.
    pub known: Option<Span>,
    /// From the start of the run until every cluster was `ready` once.
    pub ready: Option<Span>,
    /// From the user's `install` until the cluster is `installed`.
    pub install: Option<Span>,
    /// The whole run; reaching it ends the run.
    pub total: Span,
}

/// When the run ends. `budgets.total` ends it in any case.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Until {
    /// What must be seen, all of them. Empty only where `clusters_ended` or `at` says enough.
    pub seen: Vec<Moment>,
    /// Every cluster with `install: auto` must be `installed`, `error` or `cancelled`. The default where one installs.
    pub clusters_ended: bool,
    /// At the earliest so long after the start of the run.
    pub at: Option<Span>,
    /// Then hosts go on for so many of their poll intervals.
    pub idle_polls: u32,
    /// Everything was at rest for so long.
    pub rest: Option<Span>,
    /// Then the run goes on for so long.
    pub then: Span,
}

/// How hosts come, and what is measured.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Load {
    /// Hosts that start in a second of service time; `None`: all at once.
    pub ramp_per_second: Option<f64>,
    /// Measure request rate, latencies, errors and memory, and put them into the report.
    pub measure: bool,
    /// More failed requests than this fail the run.
    pub max_errors: Option<u64>,
    /// A 99th percentile of request latency above this fails the run. Wall time by nature.
    pub latency_p99_at_most: Option<Span>,
}

/// What the report contains.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ReportOptions {
    /// Lanes in the timeline: hosts beyond this number are summed up.
    pub max_lanes: usize,
    /// Write every step that was asked and answered into the history.
    pub steps: bool,
}
