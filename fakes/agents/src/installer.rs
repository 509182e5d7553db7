//! The installer on a host: one script for each role, from the first report to the shutdown.

use std::collections::BTreeSet;
use std::time::Duration;

use serde::Deserialize;
use uuid::Uuid;
use vlab_api::Timestamp;
use vlab_api::types::{Cluster, Host, HostRole, HostStage, InstallCmdRequest};
use vlab_model::history::HostMoment;
use vlab_model::settings::{HostTiming, Span};

use crate::alteration::{Alteration, Script};

/// Text of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Info {
    /// None.
    Empty,
    /// The host's role; the bootstrap calls itself so.
    Role,
    /// The role that the host will have as a node: the bootstrap is a master.
    NodeRole,
    /// These words.
    Words(&'static str),
}

/// What the installer downloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum File {
    /// `bootstrap.ign` of the cluster.
    BootstrapIgnition,
    /// The host's own ignition.
    HostIgnition,
}

impl File {
    /// What a history calls its being there.
    pub(crate) fn moment(self) -> HostMoment {
        match self {
            File::BootstrapIgnition => HostMoment::BootstrapIgnitionFetched,
            File::HostIgnition => HostMoment::IgnitionFetched,
        }
    }
}

/// What the installer waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// Two masters (fewer when the control plane is smaller) have the stage Done, as the service shows it. A day-2 host does
    /// not wait.
    MastersDone,
    /// As many masters are ready nodes as bootkube needs.
    MastersReady,
    /// bootkube is through.
    Bootkube,
    /// etcd is away from the bootstrap.
    EtcdBootstrap,
    /// The controller said that it is ready.
    Controller,
}

/// What the installer does with its own hands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Job {
    /// Disks are formatted and the installation disk is cleaned.
    CleanDisks,
    /// The bootstrap lays out its files.
    PrepareBootstrap,
    /// bootkube is started.
    StartBootkube,
    /// The host's ignition is put together.
    PrepareIgnition,
    /// The image is written to the disk.
    WriteImage,
    /// Boot order and cleaning up.
    BeforeReboot,
    /// Logs are gathered.
    GatherLogs,
}

/// A line of a script.
#[derive(Clone, Copy, Debug)]
pub enum Task {
    /// Tells the service the stage.
    Report(HostStage, Info),
    /// Takes time.
    Work(Job, fn(&HostTiming) -> Span),
    /// Downloads a file; without it the installation fails.
    Download(File),
    /// Starts bootkube.
    StartBootkube,
    /// Writes the image and tells percentages.
    WriteImage,
    /// Copies the medium's container registry to the disk and tells percentages.
    CopyRegistry,
    /// Waits, looking again and again.
    WaitFor(Condition),
    /// Tells the service that the cluster's logs will come.
    RequestClusterLogs,
    /// Gathers and sends the host's logs.
    SendLogs,
    /// Reboots after a delay (none on a single node).
    Shutdown {
        /// Wait before the machine goes down?
        delayed: bool,
    },
}

use Condition::*;
use HostStage::*;
use Task::*;

/// The bootstrap of a multi-node cluster.
pub const BOOTSTRAP: &[Task] = &[
    Report(StartingInstallation, Info::Role),
    Work(Job::CleanDisks, |t| t.disk_cleanup),
    Download(File::BootstrapIgnition),
    Work(Job::PrepareBootstrap, |t| t.bootstrap_preparation),
    StartBootkube,
    Report(Installing, Info::NodeRole),
    Download(File::HostIgnition),
    Work(Job::PrepareIgnition, |t| t.ignition_download),
    Report(WritingImageToDisk, Info::Empty),
    WriteImage,
    Work(Job::BeforeReboot, |t| t.before_reboot),
    Report(CopyingRegistryDataToDisk, Info::Empty),
    CopyRegistry,
    Report(WaitingForControlPlane, Info::Words("masters are joining")),
    WaitFor(MastersReady),
    Report(WaitingForBootkube, Info::Empty),
    WaitFor(Bootkube),
    Report(WaitingForBootkube, Info::Words("etcd is leaving the bootstrap")),
    WaitFor(EtcdBootstrap),
    Report(WaitingForController, Info::Words("waiting for the controller to be ready")),
    WaitFor(Controller),
    RequestClusterLogs,
    SendLogs,
    Report(Rebooting, Info::Empty),
    Shutdown { delayed: true },
];

/// Any other master, and arbiters.
pub const MASTER: &[Task] = &[
    Report(StartingInstallation, Info::Role),
    Work(Job::CleanDisks, |t| t.disk_cleanup),
    Report(Installing, Info::Role),
    Download(File::HostIgnition),
    Work(Job::PrepareIgnition, |t| t.ignition_download),
    Report(WritingImageToDisk, Info::Empty),
    WriteImage,
    Work(Job::BeforeReboot, |t| t.before_reboot),
    Report(CopyingRegistryDataToDisk, Info::Empty),
    CopyRegistry,
    SendLogs,
    Report(Rebooting, Info::Empty),
    Shutdown { delayed: true },
];

/// Workers, day-2 ones included.
pub const WORKER: &[Task] = &[
    Report(StartingInstallation, Info::Role),
    Work(Job::CleanDisks, |t| t.disk_cleanup),
    Report(Installing, Info::Role),
    Download(File::HostIgnition),
    Work(Job::PrepareIgnition, |t| t.ignition_download),
    Report(WritingImageToDisk, Info::Empty),
    WriteImage,
    Report(WaitingForControlPlane, Info::Empty),
    WaitFor(MastersDone),
    Work(Job::BeforeReboot, |t| t.before_reboot),
    SendLogs,
    Report(Rebooting, Info::Empty),
    Shutdown { delayed: true },
];

/// The only node of a cluster: it bootstraps in place.
pub const SINGLE_NODE: &[Task] = &[
    Report(StartingInstallation, Info::Role),
    Work(Job::CleanDisks, |t| t.disk_cleanup),
    Download(File::BootstrapIgnition),
    Work(Job::PrepareBootstrap, |t| t.bootstrap_preparation),
    StartBootkube,
    Report(Installing, Info::NodeRole),
    Report(WaitingForBootkube, Info::Empty),
    WaitFor(Bootkube),
    Download(File::HostIgnition),
    Work(Job::PrepareIgnition, |t| t.ignition_download),
    Report(WritingImageToDisk, Info::Empty),
    WriteImage,
    Work(Job::BeforeReboot, |t| t.before_reboot),
    Report(CopyingRegistryDataToDisk, Info::Empty),
    CopyRegistry,
    SendLogs,
    Report(Rebooting, Info::Empty),
    Shutdown { delayed: false },
];

/// The script of a role. Masters whose medium carries a container registry copy it.
pub fn script(
    role: HostRole,
    control_plane_count: u32,
    registry_on_medium: bool,
    alteration: Option<Alteration>,
) -> Box<[Task]> {
    let script = match role {
        HostRole::Bootstrap if control_plane_count == 1 => Script::SingleNode,
        HostRole::Bootstrap => Script::Bootstrap,
        HostRole::Master | HostRole::Arbiter => Script::Master,
        HostRole::Worker | HostRole::AutoAssign => Script::Worker,
    };
    let copies = registry_on_medium && matches!(role, HostRole::Bootstrap | HostRole::Master);
    let of_registry = |task: &Task| matches!(task, CopyRegistry | Report(CopyingRegistryDataToDisk, _));
    let left_out = |line: usize| alteration == Some(Alteration::LeavesOut(script, line));
    let lines = script.lines().iter().enumerate().filter(|(line, _)| !left_out(*line));
    lines.filter(|(_, task)| copies || !of_registry(task)).map(|(_, task)| *task).collect()
}

/// What the installer's requests are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// Goes on with the next line whatever the answer is.
    Step,
    /// The same, and fails without success.
    Needed(File),
    /// Nobody waits for the answer.
    Told,
    /// A percentage.
    Percentage,
    /// Is this a day-2 cluster?
    IsDay2,
    /// Masters and their stages.
    Masters,
    /// Hosts, to report those that became nodes.
    Nodes,
}

/// An installer at work.
#[derive(Debug)]
pub(crate) struct Installer {
    pub(crate) cluster: usize,
    pub(crate) cluster_id: Uuid,
    pub(crate) role: HostRole,
    /// The disk that it writes.
    pub(crate) boot_device: String,
    pub(crate) script: Box<[Task]>,
    pub(crate) line: usize,
    /// Raised at each line: timers of an earlier line are void.
    pub(crate) token: u32,
    /// It failed and only its container is left.
    pub(crate) dead: bool,
    pub(crate) writing: Option<Writing>,
    /// What real hands are doing for it.
    pub(crate) job: Option<Job>,
    /// Known after the first question.
    pub(crate) day2: Option<bool>,
    /// Nodes whose fetching of the ignition, and whose joining, was reported.
    pub(crate) reported_ignition: BTreeSet<usize>,
    pub(crate) reported_joined: BTreeSet<usize>,
    /// The installed system gets the network of the discovery system (`--copy-network` of coreos-installer).
    pub(crate) copies_network: bool,
}

/// The image, or the registry, on its way to the disk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Writing {
    /// The stage of which percentages are told.
    pub(crate) stage: HostStage,
    pub(crate) began: Timestamp,
    pub(crate) takes: Duration,
    /// The last line is only left after the report of 100 %.
    pub(crate) done: bool,
}

impl Installer {
    pub(crate) fn new(
        cluster: usize,
        control_plane_count: u32,
        registry_on_medium: bool,
        request: &InstallCmdRequest,
        alteration: Option<Alteration>,
    ) -> Self {
        let count = request.control_plane_count.and_then(|n| u32::try_from(n).ok()).unwrap_or(control_plane_count);
        Self {
            cluster,
            cluster_id: request.cluster_id,
            role: request.role,
            boot_device: request.boot_device.clone(),
            script: script(request.role, count, registry_on_medium, alteration),
            line: 0,
            token: 0,
            dead: false,
            writing: None,
            copies_network: request.installer_args.as_deref().is_some_and(|args| args.contains("--copy-network")),
            job: None,
            day2: None,
            reported_ignition: BTreeSet::new(),
            reported_joined: BTreeSet::new(),
        }
    }

    pub(crate) fn info(&self, info: Info) -> &'static str {
        match info {
            Info::Empty => "",
            Info::Role => self.role.as_str(),
            Info::NodeRole if self.role == HostRole::Bootstrap => HostRole::Master.as_str(),
            Info::NodeRole => self.role.as_str(),
            Info::Words(words) => words,
        }
    }
}

/// The little of a host that installer and controller look at. (Reading whole hosts, inventories and all, every few seconds
/// would be most of their work.)
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct HostBrief {
    pub(crate) id: Uuid,
    #[serde(default)]
    pub(crate) infra_env_id: Option<Uuid>,
    #[serde(default)]
    pub(crate) status: String,
    #[serde(default)]
    pub(crate) role: Option<String>,
    #[serde(default)]
    pub(crate) progress: Option<ProgressBrief>,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct ProgressBrief {
    #[serde(default)]
    current_stage: Option<HostStage>,
}

impl From<&Host> for HostBrief {
    fn from(host: &Host) -> Self {
        Self {
            id: host.id,
            infra_env_id: host.infra_env_id,
            status: host.status.as_str().to_owned(),
            role: host.role.map(|role| role.as_str().to_owned()),
            progress: host.progress.as_ref().map(|p| ProgressBrief { current_stage: p.current_stage }),
        }
    }
}

impl From<&Cluster> for ClusterBrief {
    fn from(cluster: &Cluster) -> Self {
        Self {
            kind: cluster.kind.clone(),
            status: cluster.status.as_str().to_owned(),
            hosts: cluster.hosts.as_ref().map(|hosts| hosts.iter().map(HostBrief::from).collect()),
            progress: cluster.progress.as_ref().map(|p| FinalizingBrief {
                finalizing_stage: p.finalizing_stage.map(|stage| stage.as_str().to_owned()),
                finalizing_stage_timed_out: p.finalizing_stage_timed_out,
            }),
        }
    }
}

impl HostBrief {
    pub(crate) fn stage(&self) -> Option<HostStage> {
        self.progress.as_ref().and_then(|p| p.current_stage)
    }
}

/// The little of a cluster that installer and controller look at.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct ClusterBrief {
    #[serde(default)]
    pub(crate) kind: String,
    #[serde(default)]
    pub(crate) status: String,
    #[serde(default)]
    pub(crate) hosts: Option<Vec<HostBrief>>,
    #[serde(default)]
    pub(crate) progress: Option<FinalizingBrief>,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct FinalizingBrief {
    #[serde(default)]
    pub(crate) finalizing_stage: Option<String>,
    #[serde(default)]
    pub(crate) finalizing_stage_timed_out: Option<bool>,
}

/// Stages of a host that has rebooted and is no node yet, as the service shows them.
pub(crate) const ON_ITS_WAY: &[HostStage] = &[Rebooting, WaitingForIgnition, Configuring];

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    /// The lists of stages that the service accepts, in their order.
    #[rstest]
    #[case::bootstrap(BOOTSTRAP, &[StartingInstallation, Installing, WritingImageToDisk, CopyingRegistryDataToDisk,
        WaitingForControlPlane, WaitingForBootkube, WaitingForController, Rebooting, Configuring, Joined, Done])]
    #[case::master(MASTER, &[StartingInstallation, Installing, WritingImageToDisk, CopyingRegistryDataToDisk, Rebooting,
        Configuring, Joined, Done])]
    #[case::worker(WORKER, &[StartingInstallation, Installing, WritingImageToDisk, WaitingForControlPlane, Rebooting,
        WaitingForIgnition, Configuring, Joined, Done])]
    #[case::single_node(SINGLE_NODE, &[StartingInstallation, Installing, WaitingForBootkube, WritingImageToDisk,
        CopyingRegistryDataToDisk, Rebooting, Joined, Done])]
    fn a_script_never_goes_back(#[case] script: &[Task], #[case] legal: &[HostStage]) {
        let mut last = 0;
        let mut reported = 0;
        for task in script {
            if let Report(stage, _) = task {
                let at = legal.iter().position(|s| s == stage).unwrap_or_else(|| panic!("{stage} is not of this role"));
                assert!(at >= last, "{stage} comes after {}", legal[last]);
                last = at;
                reported += 1;
            }
        }
        assert!(reported >= 4);
        assert_eq!(legal[last], Rebooting, "the last thing that an installer reports");
        assert!(matches!(script.last(), Some(Shutdown { .. })));
    }

    #[rstest]
    #[case::bootstrap(HostRole::Bootstrap, 3, true)]
    #[case::single_node(HostRole::Bootstrap, 1, true)]
    #[case::master(HostRole::Master, 3, true)]
    #[case::arbiter(HostRole::Arbiter, 2, false)]
    #[case::worker(HostRole::Worker, 3, false)]
    fn masters_copy_the_registry_of_their_medium(#[case] role: HostRole, #[case] count: u32, #[case] copies: bool) {
        let lines = |registry| {
            let script = script(role, count, registry, None);
            let of_it = script.iter().filter(|t| matches!(t, CopyRegistry | Report(CopyingRegistryDataToDisk, _)));
            (of_it.count(), script.len())
        };
        let (without, length) = lines(false);
        let added = if copies { 2 } else { 0 };
        assert_eq!((without, lines(true)), (0, (added, length + added)));
    }

    #[test]
    fn the_bootstrap_does_not_reboot_before_the_pivot() {
        let waits: Vec<_> = BOOTSTRAP.iter().filter_map(|t| if let WaitFor(c) = t { Some(*c) } else { None }).collect();
        assert_eq!(waits, [MastersReady, Bootkube, EtcdBootstrap, Controller]);
    }
}
