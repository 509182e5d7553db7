//! What can be wrong with the service on purpose, so that whoever judges it can be judged: one [`Alteration`] for each row of the
//! tables that the service acts by, made from these tables, so that a new row brings its own.
//!
//! An alteration is chosen by [`crate::CoreConfig::alteration`] and by nothing else: no request, setting or scenario leads here.
//! It takes hold in the one place where the service looks at the row in question.

mod argument;

use std::collections::BTreeSet;
use std::time::Duration;

pub use argument::WrongArgument;
use serde_json::Value;
use vlab_api::spec::{FieldKind, WireObject};
use vlab_api::types::{
    Cluster, ClusterStatus, ClusterValidationId, Host, HostStatus, HostValidationId, Severity, StepType,
    VersionedClusterHostRequirementsDetails,
};
use vlab_model::cluster::{self, ClusterRule, ClusterWrong};
use vlab_model::event;
use vlab_model::host::{self, HostRule, HostState, HostWrong, plan};
use vlab_model::machine::Wrong;
use vlab_model::settings::{Constants, Settings};
use vlab_model::validation::{self, Validation, ValidationStatus};
use vlab_model::view::{ClusterView, HostView};

use crate::kube::{WrongController, wrong_controllers};
use crate::rest::routes::ROUTES;
use crate::rows::{ClusterRow, HostRow};

/// One thing that is wrong with the service.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Alteration {
    /// The machines of hosts.
    Hosts(HostWrong),
    /// The machine of clusters.
    Clusters(ClusterWrong),
    /// A validation of hosts always has that status.
    HostValidation(HostValidationId, ValidationStatus),
    /// A validation of clusters always has that status.
    ClusterValidation(ClusterValidationId, ValidationStatus),
    /// A time or another amount of the settings is that many times as large.
    Amount(&'static str, f64),
    /// What a role asks of a host is that many times as much.
    Requirement(Column, Asked, f64),
    /// What a status asks of a host. The flag: of a host of day 2.
    Plan(bool, HostStatus, WrongPlan),
    /// An argument of a step.
    Argument(StepType, &'static str, WrongArgument),
    /// An event.
    Event(&'static str, WrongEvent),
    /// A member of a host's row.
    HostMember(&'static str, WrongWrite),
    /// A member of a cluster's row.
    ClusterMember(&'static str, WrongWrite),
    /// What an operation answers when it is done.
    Answer(&'static str, WrongAnswer),
    /// What the service does in one place.
    Conduct(Conduct),
    /// Its controllers.
    Controllers(WrongController),
    /// What shows only when two things meet. Not in the list of all: no scenario of the catalogue is there for it, it is what a
    /// search must find.
    Planted(Planted),
}

/// Mistakes of the kind that tables cannot have: they show only when something comes at the wrong moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Planted {
    /// What one request changes is stored in two steps, its events first: a service that dies between them has told what is not.
    EventsFirst,
    /// A lock is missing: the host monitor writes what it has decided a moment later, over a cancellation that came meanwhile.
    NoLock,
    /// The time at which an installation began survives a reset, and the next one has only the rest of it.
    TimerSurvives,
    /// What a host is to do is read from a copy that is as old as the poll before.
    StaleSteps,
}

impl Planted {
    /// All of them.
    pub const ALL: [Planted; 4] = [Planted::EventsFirst, Planted::NoLock, Planted::TimerSurvives, Planted::StaleSteps];
}

/// A role in the list of hardware requirements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Column {
    /// Masters.
    Master,
    /// Arbiters.
    Arbiter,
    /// Workers.
    Worker,
    /// Single nodes.
    SingleNode,
}

/// What a role asks of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// Cores.
    Cores,
    /// Memory.
    Memory,
    /// The size of the disk.
    Disk,
    /// The speed of the disk.
    DiskSpeed,
    /// Round trips.
    Latency,
    /// Packet loss.
    Loss,
}

/// What is wrong with what a status asks of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WrongPlan {
    /// That step is not asked for.
    Lacks(StepType),
    /// That step is asked for, too.
    Adds(StepType),
    /// The host is to come back sooner, or later.
    OtherPace,
    /// The agent starts over where it should go on, or the other way round.
    OtherEnd,
}

/// What is wrong with an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WrongEvent {
    /// It is not written.
    Missing,
    /// It is written twice.
    Twice,
    /// It is written half a minute late.
    Late,
    /// It has another severity.
    OtherSeverity,
}

/// What is wrong with writing a member of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WrongWrite {
    /// It keeps the value that it had first.
    Never,
    /// It is written with the next change of the row, in another unit of work.
    Late,
}

/// What is wrong with an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WrongAnswer {
    /// Another code for a success.
    Code,
    /// What was asked for is done, and the answer says that the service failed.
    Failure,
    /// The body that the same request was answered with first.
    Stale,
}

vlab_model::closed_words! {
    /// What the service does in one place, without a table.
    Conduct {
        /// A host's stage is worth one percent less than it is.
        HostPercentage = "host-percentage",
        /// A cluster's percentage does not follow its hosts.
        InstallingPercentageStands = "installing-percentage-stands",
        /// A cluster's percentage goes back when its hosts have come half way.
        InstallingPercentageGoesBack = "installing-percentage-goes-back",
        /// The end of the preparation is worth nothing.
        PreparingPercentage = "preparing-percentage",
        /// Operators that are done are worth nothing.
        FinalizingPercentage = "finalizing-percentage",
        /// No role is suggested.
        NoRoleSuggested = "no-role-suggested",
        /// Every host is suggested as a worker.
        WorkersSuggested = "workers-suggested",
        /// Every host is suggested as a master.
        MastersSuggested = "masters-suggested",
        /// Roles are not settled when the installation begins.
        RolesNotSettled = "roles-not-settled",
        /// No host is made the bootstrap.
        NoBootstrap = "no-bootstrap",
        /// Two hosts are made the bootstrap.
        TwoBootstraps = "two-bootstraps",
        /// The host that registered last is made the bootstrap, whatever its role.
        LastIsBootstrap = "last-is-bootstrap",
        /// Polls leave no trace.
        PollsNotNoted = "polls-not-noted",
        /// What hosts say of their clocks leaves no trace.
        ClocksNotNoted = "clocks-not-noted",
        /// Polls are noted, and a host that was away is not looked at again.
        ReturnNotNoticed = "return-not-noticed",
        /// The host monitor does nothing.
        HostMonitorSleeps = "host-monitor-sleeps",
        /// The cluster monitor does nothing.
        ClusterMonitorSleeps = "cluster-monitor-sleeps",
        /// The host monitor leaves out the host of a cluster that came last, where there are several.
        MonitorSkipsLast = "monitor-skips-last",
        /// Of several machine networks only the first one counts for hosts.
        FirstMachineNetworkOnly = "first-machine-network-only",
        /// Files and kubeconfigs are given out in any status.
        FilesInAnyStatus = "files-in-any-status",
        /// Events about hosts do not name them.
        EventsWithoutHost = "events-without-host",
        /// Events about hosts do not name their cluster.
        EventsWithoutCluster = "events-without-cluster",
        /// Cancelling leaves one host as it is.
        CancelSparesAHost = "cancel-spares-a-host",
        /// Cancelling leaves all hosts as they are.
        CancelSparesHosts = "cancel-spares-hosts",
        /// Cancelling does not end the background preparation.
        CancelKeepsPreparing = "cancel-keeps-preparing",
        /// A reset leaves one host as it is.
        ResetSparesAHost = "reset-spares-a-host",
        /// A reset leaves all hosts as they are.
        ResetSparesHosts = "reset-spares-hosts",
        /// A reset keeps what the preparation made.
        ResetKeepsFiles = "reset-keeps-files",
        /// The background preparation is never done.
        PreparationNeverDone = "preparation-never-done",
        /// The background preparation fails.
        PreparationFails = "preparation-fails",
        /// The kubeconfig is not completed with the ingress certificate.
        KubeconfigNotCompleted = "kubeconfig-not-completed",
        /// Reports about operators are lost.
        OperatorsNotNoted = "operators-not-noted",
        /// Reports of finalizing stages are lost.
        FinalizingStageNotNoted = "finalizing-stage-not-noted",
        /// Reports of hosts' stages are lost.
        StageNotNoted = "stage-not-noted",
        /// A stage that lies before the present one is taken.
        LowerStageTaken = "lower-stage-taken",
        /// A stage that is not one of the host's role is taken.
        StageOfAnotherRoleTaken = "stage-of-another-role-taken",
        /// A report that the installation failed is taken for any other.
        FailureNotNoticed = "failure-not-noticed",
        /// Uploaded logs are lost.
        LogsLost = "logs-lost",
        /// The machine network is not derived.
        NoMachineNetwork = "no-machine-network",
        /// Who reaches whom is not worked out.
        NoMajorityGroup = "no-majority-group",
        /// The answer to a step is not stored.
        RepliesNotStored = "replies-not-stored",
        /// A host whose answer says that its medium is gone goes on.
        MediaNotNoticed = "media-not-noticed",
        /// Hosts are taken in whatever the status of their cluster.
        HostsTakenAlways = "hosts-taken-always",
        /// A cluster that is not ready is installed all the same.
        InstallsUnready = "installs-unready",
        /// A host stays in its cluster's list when it is unbound.
        StaysBound = "stays-bound",
        /// A bound host does not get its cluster.
        NotBound = "not-bound",
        /// Allowing hosts to be added does not change the cluster's status.
        NotAddingHosts = "not-adding-hosts",
        /// A host that is removed stays.
        HostNotDeleted = "host-not-deleted",
        /// A restart loses all hosts.
        RestartForgets = "restart-forgets",
    }
}

/// So late is an event that is late.
pub(crate) const EVENT_LATE_BY: Duration = Duration::from_secs(30);

/// The severity that an event has instead of its own.
pub(crate) fn other_severity(severity: Severity) -> Severity {
    if severity == Severity::Info { Severity::Warning } else { Severity::Info }
}

// --- the list -------------------------------------------------------------------------------------------------------------------

/// Everything that can be wrong, in the order of the tables.
pub fn alterations() -> Vec<Alteration> {
    let mut all = Vec::new();
    for table in [host::RULES, host::POOL_RULES] {
        all.extend(table.iter().flat_map(|rule| of_host_rule(table, rule)).map(Alteration::Hosts));
    }
    all.extend(cluster::RULES.iter().flat_map(of_cluster_rule).map(Alteration::Clusters));
    let mut conditions = BTreeSet::new();
    for rule in host::RULES.iter().chain(host::POOL_RULES) {
        rule.guard.each(&mut |c| _ = conditions.insert(c));
    }
    let both = [true, false];
    all.extend(conditions.into_iter().flat_map(|c| both.map(|b| Alteration::Hosts(Wrong::Believes(c, b)))));
    let mut conditions = BTreeSet::new();
    cluster::RULES.iter().for_each(|rule| rule.guard.each(&mut |c| _ = conditions.insert(c)));
    all.extend(conditions.into_iter().flat_map(|c| both.map(|b| Alteration::Clusters(Wrong::Believes(c, b)))));
    let always = [ValidationStatus::Success, ValidationStatus::Failure];
    let emitted = validation::HOST.iter().filter(|spec| spec.never.is_none());
    let both = emitted.flat_map(|spec| always.map(|status| (spec.id, status)));
    let both = both.filter(|(id, status)| !is_always(id.as_str(), *status));
    all.extend(both.map(|(id, status)| Alteration::HostValidation(id, status)));
    let emitted = validation::CLUSTER.iter().filter(|spec| spec.never.is_none());
    let both = emitted.flat_map(|spec| always.map(|status| (spec.id, status)));
    let both = both.filter(|(id, status)| !is_always(id.as_str(), *status));
    all.extend(both.map(|(id, status)| Alteration::ClusterValidation(id, status)));
    let amounts = Settings::NAMES.iter().filter(|name| Settings::is_amount(name));
    let amounts = amounts.chain(Constants::NAMES.iter().filter(|name| Constants::is_amount(name)));
    let amounts = amounts.filter(|name| !NOT_READ.contains(name));
    all.extend(amounts.flat_map(|name| FACTORS.iter().map(|(_, factor)| Alteration::Amount(name, *factor))));
    // Many times nothing is nothing, and half of it, too.
    let default = Settings::default();
    let changes = |alteration: &Alteration| alteration.settings(default.clone()) != default;
    for column in COLUMNS {
        // One host alone has no way to others.
        let alone = *column == Column::SingleNode;
        for asked in ASKED.iter().filter(|asked| !(alone && matches!(asked, Asked::Latency | Asked::Loss))) {
            let both = [0.5, 2.0].map(|factor| Alteration::Requirement(*column, *asked, factor));
            all.extend(both.into_iter().filter(changes));
        }
    }
    all.extend(of_plans());
    all.extend(argument::all().map(|(step, name, how)| Alteration::Argument(step, name, how)));
    for name in event::written() {
        use WrongEvent::*;
        all.extend([Missing, Twice, Late, OtherSeverity].map(|how| Alteration::Event(name, how)));
    }
    let writes = [WrongWrite::Never, WrongWrite::Late];
    all.extend(members::<Host>().flat_map(|name| writes.map(|how| Alteration::HostMember(name, how))));
    all.extend(members::<Cluster>().flat_map(|name| writes.map(|how| Alteration::ClusterMember(name, how))));
    for route in ROUTES.iter().filter(|route| !NEVER_DONE.contains(&route.operation)) {
        use WrongAnswer::*;
        let constant = SAME_ANSWER.contains(&route.operation);
        let wrong = [Code, Failure, Stale].into_iter().filter(|how| !(constant && *how == Stale));
        all.extend(wrong.map(|how| Alteration::Answer(route.operation, how)));
    }
    all.extend(Conduct::ALL.iter().map(|conduct| Alteration::Conduct(*conduct)));
    all.extend(wrong_controllers().into_iter().map(Alteration::Controllers));
    all
}

/// Amounts that only the real service reads, or only the program around this core, or that are nothing. What nobody reads cannot be
/// wrong.
const NOT_READ: &[&str] = &[
    "MONITOR_ACTIVE_WINDOW",
    "MONITOR_QUIET_WINDOW",
    "MONITOR_QUIET_PERIOD",
    "MONITOR_FULL_PERIOD",
    "HOST_MONITOR_BATCH_SIZE",
    "CLUSTER_MONITOR_BATCH_SIZE",
    "CLUSTER_MONITOR_PER_CLUSTER_DEADLINE",
    "CLUSTER_MONITOR_BLACKLIST_DURATION",
    "CLUSTER_MONITOR_CYCLE_DEADLINE",
    "LIVENESS_VALIDATION_TIMEOUT",
    "RESET_CLUSTER_TIMEOUT",
    "DELETION_WORKER_INTERVAL",
    "INFRAENV_DELETION_WORKER_INTERVAL",
    "DEREGISTER_WORKER_INTERVAL",
    "DELETED_UNREGISTERED_AFTER",
    "INFRAENV_DELETED_INACTIVE_AFTER",
    "MAX_GC_CLUSTERS_PER_INTERVAL",
    "MAX_GC_INFRAENVS_PER_INTERVAL",
    "DB_MAX_OPEN_CONNECTIONS",
    "IMAGE_EXPIRATION_TIME",
    // Nothing, where nobody says otherwise: many times nothing is nothing.
    "NETWORK_DISCOVERY_DELAY_SECONDS",
    "AGENT_INVENTORY_MAX_SIZE",
    "AGENT_INVENTORY_DISK_MIN_SIZE",
];

/// Operations that the simulated service always refuses: they are about operators beside those that come with the product, or need a
/// store for objects, which there is none of.
const NEVER_DONE: &[&str] = &[
    "GetDetailedSupportedFeatures",
    "V2GetBundle",
    "V2GetPresignedForClusterCredentials",
    "V2GetPresignedForClusterFiles",
    "V2ListOperatorProperties",
];

/// Operations whose answer has no body, or to the same request always the same, or that are done once for each cluster and no more:
/// none is older than another.
const SAME_ANSWER: &[&str] = &[
    "DeregisterInfraEnv",
    "GetInfraEnvPresignedFileURL",
    "GetSupportedArchitectures",
    "GetSupportedFeatures",
    "RegenerateInfraEnvSigningKey",
    "TransformClusterToAddingHosts",
    "TransformClusterToDay2",
    "V2DeleteClusterManifest",
    "V2GetClusterDefaultConfig",
    "V2ListBundles",
    "V2ListManagedDomains",
    "V2ListSupportedOperators",
    "V2UploadLogs",
    "v2CompleteInstallation",
    "v2DeregisterCluster",
    "v2DeregisterHost",
    "v2GetPreflightRequirements",
    "v2ListComponentVersions",
    "v2ListReleaseSources",
    "v2ListSupportedOpenshiftVersions",
    "v2PostStepReply",
    "v2ReportMonitoredOperatorStatus",
    "v2TriggerEvent",
    "v2UpdateClusterFinalizingProgress",
    "v2UpdateClusterInstallConfig",
    "v2UpdateClusterLogsProgress",
    "v2UpdateHostIgnition",
    "v2UpdateHostInstallProgress",
    "v2UpdateHostLogsProgress",
    "v2UploadClusterIngressCert",
];

/// Does the simulated service say that of it anyway? No operator can be asked for beside those that come with the product, so what
/// the others require holds always, and what one of them requires of graphics cards is never shown.
fn is_always(id: &str, status: ValidationStatus) -> bool {
    const NO_OPERATORS: &[&str] = &[
        "disk-encryption-requirements-satisfied",
        "custom-manifests-requirements-satisfied",
        "platform-requirements-satisfied",
    ];
    let of_operator = id.ends_with("-requirements-satisfied") && !NO_OPERATORS.contains(&id);
    of_operator && (status == ValidationStatus::Success || id == "openshift-ai-gpu-requirements-satisfied")
}

/// What an amount is multiplied by, and the word for it.
const FACTORS: &[(&str, f64)] = &[("quarter", 0.25), ("double", 2.0), ("endless", 1000.0)];

const COLUMNS: &[Column] = &[Column::Master, Column::Arbiter, Column::Worker, Column::SingleNode];
const ASKED: &[Asked] = &[Asked::Cores, Asked::Memory, Asked::Disk, Asked::DiskSpeed, Asked::Latency, Asked::Loss];

/// Another place to which a rule could lead: one to which the same event leads from one of the same states, where there is one,
/// because that is what is hardest to see.
fn other_place<S: Copy + PartialEq>(to: S, near: impl Iterator<Item = S>, far: &[S]) -> Option<S> {
    near.chain(far.iter().copied()).find(|other| *other != to)
}

/// The sources of a rule, where there is more than one: a rule without its only one is not there.
fn several<S>(from: &'static [S]) -> impl Iterator<Item = &'static S> {
    from.iter().filter(|_| from.len() > 1)
}

fn of_host_rule(table: &'static [HostRule], rule: &'static HostRule) -> Vec<HostWrong> {
    use HostState::At;
    let shares = |other: &&HostRule| other.event == rule.event && other.from.iter().any(|s| rule.from.contains(s));
    let near = table.iter().filter(shares).map(|other| other.to);
    let far: &[HostState] = if std::ptr::eq(table, host::POOL_RULES) {
        &[At(HostStatus::InsufficientUnbound), At(HostStatus::KnownUnbound)]
    } else {
        &[At(HostStatus::Error), At(HostStatus::Insufficient)]
    };
    let mut all = vec![Wrong::Without(rule)];
    all.extend(several(rule.from).map(|from| Wrong::NotFrom(rule, *from)));
    all.extend(other_place(rule.to, near, far).map(|to| Wrong::LeadsTo(rule, to)));
    all.extend(rule.effects.iter().map(|effect| Wrong::Omits(rule, *effect)));
    all.push(Wrong::Misspeaks(rule));
    all
}

fn of_cluster_rule(rule: &'static ClusterRule) -> Vec<ClusterWrong> {
    let shares = |other: &&ClusterRule| other.event == rule.event && other.from.iter().any(|s| rule.from.contains(s));
    let near = cluster::RULES.iter().filter(shares).map(|other| other.to);
    let mut all = vec![Wrong::Without(rule)];
    all.extend(several(rule.from).map(|from| Wrong::NotFrom(rule, *from)));
    let far = [ClusterStatus::Error, ClusterStatus::Insufficient];
    all.extend(other_place(rule.to, near, &far).map(|to| Wrong::LeadsTo(rule, to)));
    all.extend(rule.effects.iter().map(|effect| Wrong::Omits(rule, *effect)));
    all.push(Wrong::Misspeaks(rule));
    all
}

fn of_plans() -> Vec<Alteration> {
    let mut all = Vec::new();
    let reached = |(day2, status, _): &(bool, HostStatus, &[StepType])| match status {
        // No rule leads there; hosts are reclaimed by the service's controllers in Kubernetes alone.
        HostStatus::Disabled | HostStatus::DisabledUnbound | HostStatus::Resetting => false,
        HostStatus::Reclaiming | HostStatus::ReclaimingRebooting => false,
        // A host of day 2 is not prepared.
        HostStatus::PreparingForInstallation => !day2,
        _ => true,
    };
    for (day2, status, asked) in plan::plans().filter(reached) {
        let of = |how| Alteration::Plan(day2, status, how);
        all.extend(asked.iter().map(|step| of(WrongPlan::Lacks(*step))));
        if !asked.contains(&StepType::Install) {
            all.push(of(WrongPlan::Adds(StepType::Install)));
        }
        all.extend([of(WrongPlan::OtherPace), of(WrongPlan::OtherEnd)]);
    }
    all
}

/// The members of an object, those of the objects in it as `outer.inner`. What a row does not hold, or what its key is, is left out.
fn members<T: WireObject>() -> impl Iterator<Item = &'static str> {
    const NOT_STORED: &[&str] = &[
        "id",
        "kind",
        "href",
        "hosts",
        "deleted_at",
        "host_networks",
        "progress_stages",
        "total_host_count",
        "enabled_host_count",
        "ready_host_count",
        "schedulable_masters_forced_true",
        "infra_env_id",
        "created_at",
        "updated_at",
        "checked_in_at",
        "timestamp",
        "free_addresses",
        // Written when the object is made and never again, by the simulated service: the first value is the only one.
        "ams_subscription_id",
        "cluster_network_cidr",
        "cluster_network_host_prefix",
        "cpu_architecture",
        "email_domain",
        // A single node stays one, and several stay several.
        "high_availability_mode",
        "image_info",
        "imported",
        "machine_network_cidr",
        "ocp_release_image",
        "openshift_version",
        "operator_bundles",
        "org_id",
        "org_soft_timeouts_enabled",
        "service_network_cidr",
        "user_name",
    ];
    let all = T::SPEC.fields.iter().filter(|f| !NOT_STORED.contains(&f.name)).flat_map(|field| match field.kind {
        FieldKind::Object(inner) if field.name == "progress" => inner.fields.iter().map(|f| f.name).collect::<Vec<_>>(),
        _ => vec![field.name],
    });
    // A host has some of those of its progress, too: one alteration takes both.
    let mut seen = BTreeSet::new();
    all.filter(move |name| seen.insert(*name))
}

// --- names ----------------------------------------------------------------------------------------------------------------------

impl Alteration {
    /// Its name: stable as long as the row is in its table.
    pub fn name(&self) -> String {
        match self {
            Alteration::Hosts(wrong) => match wrong {
                Wrong::Believes(c, value) => format!("host-condition/{c:?}/{value}"),
                _ => host_rule_name(wrong),
            },
            Alteration::Clusters(wrong) => match wrong {
                Wrong::Believes(c, value) => format!("cluster-condition/{c:?}/{value}"),
                _ => cluster_rule_name(wrong),
            },
            Alteration::HostValidation(id, status) => format!("host-validation/{id}/{}", status.as_str()),
            Alteration::ClusterValidation(id, status) => format!("cluster-validation/{id}/{}", status.as_str()),
            Alteration::Amount(name, factor) => {
                let word = FACTORS.iter().find(|(_, f)| f == factor).map_or("other", |(word, _)| word);
                format!("amount/{name}/{word}")
            }
            Alteration::Requirement(column, asked, factor) => {
                format!("requirement/{column:?}-{asked:?}/{}", if *factor < 1.0 { "half" } else { "double" })
            }
            Alteration::Plan(day2, status, how) => {
                let day = if *day2 { "day2-" } else { "" };
                match how {
                    WrongPlan::Lacks(step) => format!("steps/{day}{status}/lacks-{step}"),
                    WrongPlan::Adds(step) => format!("steps/{day}{status}/adds-{step}"),
                    WrongPlan::OtherPace => format!("steps/{day}{status}/other-pace"),
                    WrongPlan::OtherEnd => format!("steps/{day}{status}/other-end"),
                }
            }
            Alteration::Argument(step, name, how) => format!("argument/{step}/{name}/{}", word_of(how)),
            Alteration::Event(name, how) => format!("event/{name}/{}", word_of(how)),
            Alteration::HostMember(name, how) => format!("host-member/{name}/{}", word_of(how)),
            Alteration::ClusterMember(name, how) => format!("cluster-member/{name}/{}", word_of(how)),
            Alteration::Answer(operation, how) => format!("answer/{operation}/{}", word_of(how)),
            Alteration::Conduct(conduct) => format!("conduct/{}", conduct.as_str()),
            Alteration::Controllers(wrong) => format!("kube-{}", wrong.name()),
            Alteration::Planted(planted) => format!("planted/{}", word_of(planted)),
        }
    }

    /// What is wrong, in a few words.
    pub fn about(&self) -> String {
        let rule = |name: &str, how: String| format!("{name:?} {how}");
        match self {
            Alteration::Hosts(wrong) => match wrong {
                Wrong::Without(r) => rule(r.name, "is not there".into()),
                Wrong::NotFrom(r, from) => rule(r.name, format!("does not hold in {}", from.as_str())),
                Wrong::LeadsTo(r, to) => rule(r.name, format!("leads to {} and not to {}", to.as_str(), r.to.as_str())),
                Wrong::Omits(r, effect) => rule(r.name, format!("omits {effect:?}")),
                Wrong::Misspeaks(r) => rule(r.name, "says something else".into()),
                Wrong::Believes(c, value) => format!("guards take {c:?} for {value}"),
            },
            Alteration::Clusters(wrong) => match wrong {
                Wrong::Without(r) => rule(r.name, "is not there".into()),
                Wrong::NotFrom(r, from) => rule(r.name, format!("does not hold in {from}")),
                Wrong::LeadsTo(r, to) => rule(r.name, format!("leads to {to} and not to {}", r.to)),
                Wrong::Omits(r, effect) => rule(r.name, format!("omits {effect:?}")),
                Wrong::Misspeaks(r) => rule(r.name, "says something else".into()),
                Wrong::Believes(c, value) => format!("guards take {c:?} for {value}"),
            },
            Alteration::HostValidation(id, status) => format!("{id} is always {}", status.as_str()),
            Alteration::ClusterValidation(id, status) => format!("{id} is always {}", status.as_str()),
            Alteration::Amount(name, factor) => format!("{name} is {factor} times what it is"),
            Alteration::Requirement(column, asked, factor) => {
                format!("{column:?} needs {factor} times as much: {asked:?}")
            }
            Alteration::Plan(_, status, how) => match how {
                WrongPlan::Lacks(step) => format!("a host in {status} is not asked for {step}"),
                WrongPlan::Adds(step) => format!("a host in {status} is asked for {step}"),
                WrongPlan::OtherPace => format!("a host in {status} is to come back sooner or later"),
                WrongPlan::OtherEnd => format!("the agent of a host in {status} starts over or does not"),
            },
            Alteration::Argument(step, name, how) => format!("{name} of {step}: {}", word_of(how)),
            Alteration::Event(name, how) => format!("event {name}: {}", word_of(how)),
            Alteration::HostMember(name, how) => format!("a host's {name} is written {}", word_of(how)),
            Alteration::ClusterMember(name, how) => format!("a cluster's {name} is written {}", word_of(how)),
            Alteration::Answer(operation, how) => format!("the answer of {operation}: {}", word_of(how)),
            Alteration::Conduct(conduct) => conduct.meaning().to_owned(),
            Alteration::Controllers(wrong) => wrong.about(),
            Alteration::Planted(planted) => format!("planted: {}", word_of(planted)),
        }
    }

    /// The rule of a host that is altered, with its table's word.
    fn host_rule(wrong: &HostWrong) -> Option<&'static HostRule> {
        match wrong {
            Wrong::Without(r) | Wrong::NotFrom(r, _) | Wrong::LeadsTo(r, _) => Some(r),
            Wrong::Omits(r, _) | Wrong::Misspeaks(r) => Some(r),
            Wrong::Believes(..) => None,
        }
    }
}

/// `OtherSeverity` as `other-severity`.
pub(crate) fn word_of(how: &impl std::fmt::Debug) -> String {
    let mut word = String::new();
    for c in format!("{how:?}").chars() {
        if c.is_ascii_uppercase() && !word.is_empty() {
            word.push('-');
        }
        word.push(c.to_ascii_lowercase());
    }
    word
}

fn host_rule_name(wrong: &HostWrong) -> String {
    let Some(rule) = Alteration::host_rule(wrong) else { return String::new() };
    let place = |table: &'static [HostRule]| table.iter().position(|r| r == rule);
    let at = match (place(host::RULES), place(host::POOL_RULES)) {
        (Some(at), _) => format!("host-rule/{at}"),
        (None, at) => format!("unbound-host-rule/{}", at.unwrap_or_default()),
    };
    match wrong {
        Wrong::Without(_) => format!("{at}/without"),
        Wrong::NotFrom(_, from) => format!("{}/not-from-{}", at.replace("rule", "source"), from.as_str()),
        Wrong::LeadsTo(..) => format!("{at}/leads-elsewhere"),
        Wrong::Omits(_, effect) => format!("{at}/omits-{}", word_of(effect)),
        Wrong::Misspeaks(_) | Wrong::Believes(..) => format!("{at}/misspeaks"),
    }
}

fn cluster_rule_name(wrong: &ClusterWrong) -> String {
    let (Wrong::Without(rule)
    | Wrong::NotFrom(rule, _)
    | Wrong::LeadsTo(rule, _)
    | Wrong::Omits(rule, _)
    | Wrong::Misspeaks(rule)) = wrong
    else {
        return String::new();
    };
    let at = cluster::RULES.iter().position(|r| r == *rule).unwrap_or_default();
    match wrong {
        Wrong::Without(_) => format!("cluster-rule/{at}/without"),
        Wrong::NotFrom(_, from) => format!("cluster-source/{at}/not-from-{from}"),
        Wrong::LeadsTo(..) => format!("cluster-rule/{at}/leads-elsewhere"),
        Wrong::Omits(_, effect) => format!("cluster-rule/{at}/omits-{}", word_of(effect)),
        Wrong::Misspeaks(_) | Wrong::Believes(..) => format!("cluster-rule/{at}/misspeaks"),
    }
}

// --- what they do ---------------------------------------------------------------------------------------------------------------

impl Alteration {
    /// The settings under it.
    pub(crate) fn settings(&self, settings: Settings) -> Settings {
        match self {
            Alteration::Amount(name, factor) => settings.with_factor(name, *factor),
            Alteration::Requirement(column, asked, factor) => {
                let mut settings = settings;
                for row in &mut settings.hw_validator_requirements {
                    let details = match column {
                        Column::Master => &mut row.master,
                        Column::Arbiter => &mut row.arbiter,
                        Column::Worker => &mut row.worker,
                        Column::SingleNode => &mut row.sno,
                    };
                    if let Some(details) = details {
                        ask(details, *asked, *factor);
                    }
                }
                settings
            }
            _ => settings,
        }
    }

    /// The arguments of a step under it.
    pub(crate) fn arguments(&self, of: StepType, args: Vec<String>) -> Vec<String> {
        match self {
            Alteration::Argument(step, name, how) if *step == of => argument::alter(args, name, *how),
            _ => args,
        }
    }

    /// What validations say under it.
    pub(crate) fn validations(&self, all: &mut [Validation]) {
        let (id, always) = match self {
            Alteration::HostValidation(id, status) => (id.as_str(), *status),
            Alteration::ClusterValidation(id, status) => (id.as_str(), *status),
            _ => return,
        };
        for validation in all.iter_mut().filter(|v| v.id == id && v.status != ValidationStatus::Disabled) {
            validation.status = always;
        }
    }

    /// A host's row as it is written under it, after a row that was written and one that should have been before this unit of work.
    pub(crate) fn host_row(&self, written: &HostRow, meant: &HostRow, new: &HostRow) -> Option<HostRow> {
        let Alteration::HostMember(name, how) = self else { return None };
        let before = match how {
            WrongWrite::Never => written,
            WrongWrite::Late => meant,
        };
        let host = with_member(&new.view.host, &before.view.host, name)?;
        Some(HostRow { view: HostView::new(host), private: new.private.clone() })
    }

    /// The same for a cluster's row.
    pub(crate) fn cluster_row(&self, written: &ClusterRow, meant: &ClusterRow, new: &ClusterRow) -> Option<ClusterRow> {
        let Alteration::ClusterMember(name, how) = self else { return None };
        let before = match how {
            WrongWrite::Never => written,
            WrongWrite::Late => meant,
        };
        let cluster = with_member(&new.view.cluster, &before.view.cluster, name)?;
        let kubeconfig_uploaded = new.view.kubeconfig_uploaded;
        let view = ClusterView {
            kubeconfig_uploaded,
            has_pull_secret: new.view.has_pull_secret,
            has_custom_manifests: new.view.has_custom_manifests,
            ..ClusterView::new(cluster)
        };
        Some(ClusterRow { view, private: new.private.clone() })
    }
}

fn ask(details: &mut VersionedClusterHostRequirementsDetails, asked: Asked, factor: f64) {
    let whole = |n: &mut Option<i64>| *n = n.map(|n| (n as f64 * factor).round() as i64);
    match asked {
        Asked::Cores => whole(&mut details.cpu_cores),
        Asked::Memory => whole(&mut details.ram_mib),
        Asked::Disk => whole(&mut details.disk_size_gb),
        Asked::DiskSpeed => whole(&mut details.installation_disk_speed_threshold_ms),
        Asked::Latency => {
            details.network_latency_threshold_ms = details.network_latency_threshold_ms.map(|l| l * factor)
        }
        // Twice nothing is nothing.
        Asked::Loss => {
            details.packet_loss_percentage =
                details.packet_loss_percentage.map(|l| if l > 0.0 { l * factor } else { (factor - 0.5) * 10.0 });
        }
    }
}

/// `new` with that member of `old`, wherever the member is.
fn with_member<T: serde::Serialize + serde::de::DeserializeOwned>(new: &T, old: &T, name: &str) -> Option<T> {
    let (mut value, old) = (serde_json::to_value(new).ok()?, serde_json::to_value(old).ok()?);
    let put = |into: &mut Value, from: &Value| {
        let Some(members) = into.as_object_mut() else { return };
        match from.get(name) {
            Some(before) => _ = members.insert(name.to_owned(), before.clone()),
            None => _ = members.remove(name),
        }
    };
    let inner = |v: &Value| v.get("progress").is_some_and(|p| p.get(name).is_some());
    match inner(&value) || inner(&old) {
        true => put(value.get_mut("progress")?, &old["progress"]),
        false => put(&mut value, &old),
    }
    serde_json::from_value(value).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_alteration_has_a_name_of_its_own() {
        let mut names: Vec<String> = alterations().iter().map(Alteration::name).collect();
        let all = names.len();
        names.sort();
        let twice: Vec<&[String]> = names.windows(2).filter(|pair| pair[0] == pair[1]).collect();
        assert!(twice.is_empty(), "{twice:?}");
        assert!(all > 1000, "{all} alterations");
    }

    #[test]
    fn every_row_of_the_machines_has_its_alterations() {
        let names: BTreeSet<String> = alterations().iter().map(Alteration::name).collect();
        let tables = [
            ("host-rule", host::RULES.len()),
            ("unbound-host-rule", host::POOL_RULES.len()),
            ("cluster-rule", cluster::RULES.len()),
        ];
        for (word, count) in tables {
            for at in 0..count {
                for how in ["without", "leads-elsewhere", "misspeaks"] {
                    assert!(names.contains(&format!("{word}/{at}/{how}")), "{word}/{at}/{how}");
                }
            }
        }
    }

    #[test]
    fn a_member_is_taken_from_the_old_row_wherever_it_is() {
        let mut old = Host { status_info: "a".into(), ..Host::default() };
        old.progress.get_or_insert_default().installation_percentage = Some(10);
        let mut new = Host { status_info: "b".into(), ..old.clone() };
        new.progress.get_or_insert_default().installation_percentage = Some(20);
        let words = with_member(&new, &old, "status_info").unwrap();
        assert_eq!((words.status_info.as_str(), words.progress.unwrap().installation_percentage), ("a", Some(20)));
        let percentage = with_member(&new, &old, "installation_percentage").unwrap();
        assert_eq!(
            (percentage.status_info.as_str(), percentage.progress.unwrap().installation_percentage),
            ("b", Some(10))
        );
    }
}
