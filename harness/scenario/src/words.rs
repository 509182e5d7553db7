//! The closed lists of words of the language that are not the API's own.

use std::fmt;

use schemars::JsonSchema;
use serde::{Serialize, Serializer};
pub use vlab_model::history::{ActionKind, ConditionStatus, FaultPhase, ResourceState};

macro_rules! words {
    ($(#[$meta:meta])* $name:ident { $($rest:tt)* }) => {
        vlab_model::closed_words! { $(#[$meta])* #[derive(JsonSchema)] $name { $($rest)* } }
    };
}

words! {
    /// Form of a cluster.
    Topology {
        /// One node that is everything.
        Sno = "sno",
        /// Three to five masters (or two with an arbiter) that also run workloads.
        Compact = "compact",
        /// Masters and workers.
        Ha = "ha",
    }
}

words! {
    /// What can be wrong with static networks on purpose.
    NetworkMistake {
        /// A MAC that no host has.
        UnknownMac = "unknown-mac",
        /// A MAC that is there twice.
        DuplicateMac = "duplicate-mac",
        /// An address that two hosts have.
        DuplicateAddress = "duplicate-address",
        /// A default gateway outside of all networks of the host.
        GatewayOutside = "gateway-outside",
        /// No YAML, or not of nmstate's form.
        InvalidYaml = "invalid-yaml",
        /// An interface in the YAML that no MAC stands for, or no MAC at all.
        MissingInterface = "missing-interface",
    }
}

words! {
    /// How the service under test is started.
    ServiceKind {
        /// The built-in one.
        Simulated = "simulated",
        /// A program on this machine.
        Process = "process",
        /// A container.
        Container = "container",
        /// It runs somewhere already.
        Remote = "remote",
    }
}

words! {
    /// What a host is.
    HostKind {
        /// A behaviour in the harness's own process.
        Simulated = "simulated",
        /// A virtual machine that boots the discovery image.
        Vm = "vm",
        /// A virtual machine where this machine can run one, else simulated.
        Auto = "auto",
    }
}

words! {
    /// Firmware of a virtual machine.
    Firmware {
        /// SeaBIOS.
        Bios = "bios",
        /// OVMF, without secure boot.
        Uefi = "uefi",
        /// OVMF with secure boot: it starts only what Microsoft's keys have signed, and what that lets pass.
        UefiSecure = "uefi-secure",
    }
}

words! {
    /// What a virtual machine tries first when it boots.
    BootOrder {
        /// The disk: while it is empty, the discovery image boots; after the installation, the installed system.
        DiskFirst = "disk-first",
        /// The discovery image: the wrong order, with which an installed host comes back as one that is to be discovered.
        CdFirst = "cd-first",
        /// What the firmware remembers, and the installer sets. With UEFI only.
        Nvram = "nvram",
    }
}

words! {
    /// How a disk is attached to a machine.
    DiskBus {
        /// virtio: `vda`. Has no world-wide name.
        Virtio = "virtio",
        /// SATA: `sda`.
        Sata = "sata",
        /// SCSI: `sda`, with an address (HCTL).
        Scsi = "scsi",
        /// NVMe: `nvme0n1`. Never turns.
        Nvme = "nvme",
        /// USB. Not built: the kernel of the lab OS has no USB.
        Usb = "usb",
        /// iSCSI: `sda`, on a target in the lab's network, which the machine's firmware knows. Nothing boots from it.
        Iscsi = "iscsi",
        /// Two paths by iSCSI to one disk: `dm-0`. Nothing boots from it.
        Multipath = "multipath",
    }
}

words! {
    /// What somebody left on a disk.
    Leftover {
        /// A partition table (GPT) with two partitions, and a first sector that looks bootable.
        Partitions = "partitions",
        /// A physical volume of LVM with a volume group and an active logical volume.
        Lvm = "lvm",
        /// A member of a RAID 1. All such disks of a machine are members of the same array.
        Raid = "raid",
    }
}

words! {
    /// Who starts the installation.
    InstallMode {
        /// The driver, as soon as the cluster is `ready`.
        Auto = "auto",
        /// Nobody, unless an action of the scenario does.
        Never = "never",
    }
}

words! {
    /// What a service under test may do without the run failing for it.
    Tolerated {
        /// Answers of 500 and above.
        ServerErrors = "server-errors",
        /// Nobody listens where it should be.
        RefusedConnections = "refused-connections",
        /// A program does not end when it is asked to, and has to be killed.
        Kills = "kills",
    }
}

words! {
    /// How strictly a sequence is compared.
    SequenceMode {
        /// These steps and no other, from the first to the last.
        Exact = "exact",
        /// These steps in this order; others may be between, before and after.
        Partial = "partial",
    }
}

words! {
    /// How strictly the moments of a pivot are compared.
    PivotOrder {
        /// In their order, and etcd keeps its quorum.
        Strict = "strict",
        /// They only have to come.
        Any = "any",
    }
}

words! {
    /// When a value is looked at.
    When {
        /// In the end.
        End = "end",
        /// At some time.
        Ever = "ever",
        /// Whenever it was evaluated.
        Always = "always",
    }
}

words! {
    /// A role that hosts have in the end.
    RoleName {
        /// The master that is the bootstrap; with a single node, that node.
        Bootstrap = "bootstrap",
        /// Masters that are not the bootstrap.
        Master = "master",
        /// Workers.
        Worker = "worker",
        /// Arbiters.
        Arbiter = "arbiter",
    }
}

words! {
    /// In which direction a link is bad.
    LinkDirection {
        /// Both.
        Both = "both",
        /// Only what the first says to the second, as behind a firewall that lets answers through.
        OneWay = "one-way",
    }
}

words! {
    /// How a clock is wrong.
    Skew {
        /// It shows a later time.
        Ahead = "ahead",
        /// It shows an earlier time.
        Behind = "behind",
    }
}

words! {
    /// What is wrong with an inventory.
    InventoryDefect {
        /// It is not JSON.
        Malformed = "malformed",
        /// It is cut off.
        Truncated = "truncated",
        /// It is right, and huge.
        Huge = "huge",
    }
}

words! {
    /// A virtual address of a cluster.
    VipName {
        /// That of the API.
        Api = "api",
        /// That of the ingress.
        Ingress = "ingress",
    }
}

words! {
    /// A name of a cluster in the DNS.
    DnsName {
        /// That of the API, for everybody.
        Api = "api",
        /// That of the API, for the cluster itself.
        ApiInt = "api-int",
        /// Those of all routes.
        Apps = "apps",
    }
}

words! {
    /// Where on its way a request is lost.
    LostAt {
        /// The service never sees it.
        Request = "request",
        /// The service has done what was asked, and its answer is lost.
        Answer = "answer",
    }
}

words! {
    /// A table of the service's database that can be locked.
    LockedTable {
        /// That of hosts.
        Hosts = "hosts",
        /// That of clusters.
        Clusters = "clusters",
        /// That of infra-envs.
        InfraEnvs = "infra_envs",
        /// That of events.
        Events = "events",
    }
}

words! {
    /// Which of the service's replicas.
    WhichReplica {
        /// The one that decides.
        Leader = "leader",
        /// One that only answers.
        Other = "other",
        /// All of them.
        All = "all",
    }
}

words! {
    /// Who asks the service.
    RequestSide {
        /// Hosts.
        Hosts = "hosts",
        /// The user.
        User = "user",
        /// Both.
        All = "all",
    }
}

words! {
    /// Where a kind of fault is.
    FaultPlace {
        /// A host.
        Host = "host",
        /// The network between hosts.
        Network = "network",
        /// The inside of a cluster.
        ControlPlane = "control-plane",
        /// The service, its database and the way to it.
        Service = "service",
        /// The hub's API server.
        Kube = "kube",
    }
}

words! {
    /// How the user asks for things.
    FrontDoor {
        /// By requests to the service's REST API.
        Rest = "rest",
        /// By resources on a hub, on which the service's controllers act.
        Kube = "kube",
    }
}

words! {
    /// A kind of resource on a hub.
    ResourceKind {
        /// A host that has registered.
        Agent = "Agent",
        /// What is to be installed, and how far that is.
        AgentClusterInstall = "AgentClusterInstall",
        /// The cluster, as Hive knows it.
        ClusterDeployment = "ClusterDeployment",
        /// The discovery image.
        InfraEnv = "InfraEnv",
        /// A static network.
        NMStateConfig = "NMStateConfig",
        /// A release image by name.
        ClusterImageSet = "ClusterImageSet",
        /// A machine, as metal3 knows it.
        BareMetalHost = "BareMetalHost",
        /// What metal3 boots a machine from.
        PreprovisioningImage = "PreprovisioningImage",
        /// Labels that hosts get by their hardware.
        AgentClassification = "AgentClassification",
        /// How the service is deployed.
        AgentServiceConfig = "AgentServiceConfig",
        /// A secret.
        Secret = "Secret",
        /// A config map.
        ConfigMap = "ConfigMap",
    }
}

words! {
    /// A kind of resource that an admission webhook of the product is asked about.
    HookedKind {
        /// What is to be installed.
        AgentClusterInstall = "AgentClusterInstall",
        /// The discovery image.
        InfraEnv = "InfraEnv",
        /// A host that has registered.
        Agent = "Agent",
    }
}

words! {
    /// What becomes of a call of an admission webhook.
    HookFailure {
        /// It gets no answer in time.
        Timeout = "timeout",
        /// Nobody is there who could answer.
        Unavailable = "unavailable",
    }
}

words! {
    /// Why a lease cannot be kept.
    LeaseLoss {
        /// Somebody else takes it over, and renews it.
        Taken = "taken",
        /// Whoever writes it is answered with 500.
        Refused = "refused",
    }
}

words! {
    /// A part of an object that is written by itself.
    KubePart {
        /// All but its status.
        Spec = "spec",
        /// Its status.
        Status = "status",
    }
}

words! {
    /// Requests to an API server by what they do.
    KubeVerb {
        /// Making an object.
        Create = "create",
        /// Replacing one.
        Update = "update",
        /// Changing parts of one.
        Patch = "patch",
        /// Deleting one.
        Delete = "delete",
        /// Any of these.
        Write = "write",
        /// Reading one.
        Get = "get",
        /// Reading many.
        List = "list",
        /// Following changes.
        Watch = "watch",
    }
}

words! {
    /// How long a kind of fault is there.
    Lasting {
        /// It happens and is over.
        Moment = "moment",
        /// It lasts until its time is over, until something is seen, or until the run ends.
        Time = "time",
    }
}

/// Something that the place of a run must offer. Where it does not, the scenario is skipped with that reason.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Need {
    /// PostgreSQL's server programs.
    Postgres,
    /// A Docker (or Podman) socket that answers.
    Docker,
    /// `/dev/kvm` that works.
    Kvm,
    /// libvirt.
    Libvirt,
    /// A machine emulator.
    Qemu,
    /// Root rights.
    Root,
    /// The right to create network namespaces.
    Netns,
    /// A headless browser.
    Browser,
    /// Real time: virtual time has no such part.
    RealTime,
    /// The simulated service: what the scenario waits for is compiled into the real one and cannot be shortened.
    SimulatedService,
    /// The REST API as its door: over Kubernetes the service's controllers do by themselves what its user does.
    Rest,
    /// Resources on a hub as its door: what the scenario is about there is only where the service's controllers act.
    Kube,
    /// This container image on the machine.
    Image(String),
}

impl Need {
    /// The words without a parameter, and the form of the one that has one.
    pub const NAMES: &'static [&'static str] = &[
        "postgres",
        "docker",
        "kvm",
        "libvirt",
        "qemu",
        "root",
        "netns",
        "browser",
        "real-time",
        "simulated-service",
        "rest",
        "kube",
        "image:<name>",
    ];

    /// The need of that word.
    pub fn from_word(word: &str) -> Option<Self> {
        Some(match word {
            "postgres" => Need::Postgres,
            "docker" => Need::Docker,
            "kvm" => Need::Kvm,
            "libvirt" => Need::Libvirt,
            "qemu" => Need::Qemu,
            "root" => Need::Root,
            "netns" => Need::Netns,
            "browser" => Need::Browser,
            "real-time" => Need::RealTime,
            "simulated-service" => Need::SimulatedService,
            "rest" => Need::Rest,
            "kube" => Need::Kube,
            other => Need::Image(other.strip_prefix("image:").filter(|n| !n.trim().is_empty())?.to_owned()),
        })
    }
}

impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Need::Postgres => f.write_str("postgres"),
            Need::Docker => f.write_str("docker"),
            Need::Kvm => f.write_str("kvm"),
            Need::Libvirt => f.write_str("libvirt"),
            Need::Qemu => f.write_str("qemu"),
            Need::Root => f.write_str("root"),
            Need::Netns => f.write_str("netns"),
            Need::Browser => f.write_str("browser"),
            Need::RealTime => f.write_str("real-time"),
            Need::SimulatedService => f.write_str("simulated-service"),
            Need::Rest => f.write_str("rest"),
            Need::Kube => f.write_str("kube"),
            Need::Image(name) => write!(f, "image:{name}"),
        }
    }
}

impl Serialize for Need {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Of how many hosts something must be seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Quantity {
    /// Of all (with a role: of all hosts that have it, at least one).
    All,
    /// Of at least so many.
    AtLeast(u32),
}

words! {
    /// What the hosts of a load plan do.
    LoadMode {
        /// They register, and ask for instructions from then on.
        Idle = "idle",
        /// The same; then they all reboot, and register again.
        RebootStorm = "reboot-storm",
        /// The same; then they all lose their connections, and come back over new ones.
        Reconnect = "reconnect",
        /// Clusters are installed, each as a scenario has it.
        Installs = "installs",
    }
}

words! {
    /// How hosts of a load plan arrive.
    Arrivals {
        /// One after the other, at equal distances.
        Even = "even",
        /// Independently of each other, at the same rate on average.
        Poisson = "poisson",
        /// In ten groups.
        Burst = "burst",
    }
}

words! {
    /// Connections of a load plan's hosts.
    LoadConnections {
        /// Each host has one of its own, as agents do.
        PerHost = "per-host",
        /// They share some, as behind a proxy.
        Pooled = "pooled",
    }
}

words! {
    /// Does an agent answer again what it has answered before?
    ReplyCache {
        /// As the real agent: not before what it remembers is too old, or the answer is another one.
        Real = "real",
        /// Each time.
        Off = "off",
    }
}
