//! What must hold in every history, whatever the scenario. Here are the table of invariants and what reads a history for them;
//! each family of them is judged in a file of its own.

mod answered;
mod bootstrap;
mod calm;
mod completion;
mod controller;
mod edges;
mod events;
mod explained;
mod found;
mod instructed;
mod inventory;
mod leases;
mod limits;
mod outcome;
mod percentage;
mod reader;
mod repeats;
mod replicas;
mod resources;
mod rest;
mod roles;
mod script;
mod shown;
mod silence;
mod stages;
mod steps;
#[cfg(test)]
mod tests;
mod times;
mod told;
mod views;

use vlab_history::Timeline;
use vlab_model::history::Observation;

use self::reader::Reader;
pub use self::resources::SERVER_IS_BACK;

/// An invariant as data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Invariant {
    /// Its name in words, joined by `-`.
    pub id: &'static str,
    /// Its number in results of before it had a name.
    pub number: &'static str,
    /// The invariant in one sentence.
    pub title: &'static str,
    /// What a history must hold so that it can be judged.
    pub needs: &'static str,
}

/// What a checker found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InvariantVerdict {
    /// It was checked and held each time.
    Held,
    /// It did not hold.
    Violated {
        /// Each violation in one line, in order.
        details: Vec<String>,
        /// Observation that shows the first one.
        first_seq: u64,
    },
    /// The history does not hold what the check needs.
    NotApplicable {
        /// What is missing.
        reason: String,
    },
}

/// Result of one invariant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvariantResult {
    /// Name of the invariant.
    pub id: &'static str,
    /// The invariant in one sentence.
    pub title: &'static str,
    /// What was found.
    pub verdict: InvariantVerdict,
    /// How many times something was checked; above 0 unless not applicable.
    pub checked: usize,
}

/// The invariants.
pub static INVARIANTS: &[Invariant] = &[
    Invariant {
        id: "status-edges",
        number: "I1",
        title: "every change of a status is an edge of the state machine",
        needs: "changes of hosts' or clusters' statuses; with polls only, states may be skipped and paths are checked",
    },
    Invariant {
        id: "stages-forward",
        number: "I2",
        title: "a host's installation stage never goes back, and is one of its role",
        needs: "installation stages of hosts whose role is known",
    },
    Invariant {
        id: "one-bootstrap",
        number: "I3",
        title: "from the start of an installation to its end exactly one host is the bootstrap",
        needs: "a cluster that was installing, and its hosts' roles",
    },
    Invariant {
        id: "one-installer",
        number: "I4",
        title: "a host never runs two installers at a time",
        needs: "hosts that tell when their installer starts and ends",
    },
    Invariant {
        id: "all-installed",
        number: "I5",
        title: "when a cluster is installed, all its hosts are installed, or are workers that it went on without",
        needs: "a cluster that became installed",
    },
    Invariant {
        id: "pivot-order",
        number: "I6",
        title: "the bootstrap reboots only after other masters are ready, bootkube and etcd are done and the controller is ready",
        needs: "what happened inside a multi-node cluster whose bootstrap went on to the next stages",
    },
    Invariant {
        id: "workers-wait",
        number: "I6b",
        title: "no worker reboots before two masters or arbiters are done",
        needs: "a worker of a first installation that reported Rebooting",
    },
    Invariant {
        id: "one-event-each",
        number: "I7",
        title: "each change of a status has exactly one event, and no event is without a change",
        needs: "the database's changes and the service's events",
    },
    Invariant {
        id: "cancelled-only-stops",
        number: "I8",
        title: "a cancelled host is asked for nothing but its logs and to stop",
        needs: "steps that a cancelled host was given",
    },
    Invariant {
        id: "silence-disconnects",
        number: "I9",
        title: "a host that is silent for too long is disconnected, and no sooner",
        needs: "the times at which hosts asked for instructions",
    },
    Invariant {
        id: "percentage-forward",
        number: "I10",
        title: "a cluster's percentage never goes back within an installation",
        needs: "a cluster whose percentage changed",
    },
    Invariant {
        id: "too-few-hosts-fail",
        number: "I11",
        title: "a cluster whose failed hosts leave it too few goes to error",
        needs: "an installing cluster in which too many hosts failed, watched for a minute from then on",
    },
    Invariant {
        id: "validations-agree",
        number: "I12",
        title: "what a validation says of a host's hardware agrees with the last inventory that the service took",
        needs: "the inventories that the service took",
    },
    Invariant {
        id: "api-agrees",
        number: "I13",
        title: "the API shows what the database holds, of everything that both tell",
        needs: "the database's changes and polls of the API",
    },
    Invariant {
        id: "one-service-decides",
        number: "I14",
        title: "two services on one database never apply a transition twice",
        needs: "which of several services made each change",
    },
    Invariant {
        id: "bound-or-not",
        number: "I15",
        title: "an unbound host has no cluster, a bound host has one that exists",
        needs: "changes of hosts' statuses",
    },
    explained::EXPLAINED,
    Invariant {
        id: "operators-first",
        number: "I17",
        title: "a cluster is installed only when each of its built-in operators is available",
        needs: "the database's rows of monitored operators, and a cluster that became installed",
    },
    Invariant {
        id: "hosts-first",
        number: "I18",
        title: "a cluster is finalizing only when all its masters, an arbiter and two workers are installed, where it has them",
        needs: "the database's changes, and a cluster that became finalizing",
    },
    Invariant {
        id: "percentages",
        number: "I19",
        title: "a stage is worth what its role says, a cluster what its hosts and operators are, and 100 exactly when it is installed",
        needs: "the database's changes of progress",
    },
    Invariant {
        id: "roles-stay",
        number: "I20",
        title: "roles and the bootstrap stay as they are while hosts are installed",
        needs: "the database's changes of hosts that were installing",
    },
    Invariant {
        id: "end-complete",
        number: "I21",
        title: "the end of an installation has its event and its progress, and logs of hosts that failed are asked for or given up",
        needs: "a cluster that became installed, failed or was cancelled, with its events, or hosts that did, watched for long enough",
    },
    told::TOLD,
    times::TIMES,
    rest::REST,
    resources::VERSIONS,
    resources::CONDITIONS,
    resources::GO,
    resources::REST,
    shown::HIDDEN,
    shown::FROZEN,
    answered::ANSWERED,
    script::SCRIPT,
    controller::CONTROLLER,
    leases::LEASES,
    instructed::INSTRUCTED,
];

/// Place of an invariant in [`INVARIANTS`].
#[derive(Clone, Copy, PartialEq, Eq)]
enum Id {
    StatusEdges,
    StagesForward,
    OneBootstrap,
    OneInstaller,
    AllInstalled,
    PivotOrder,
    WorkersWait,
    OneEventEach,
    CancelledOnlyStops,
    SilenceDisconnects,
    PercentageForward,
    TooFewHostsFail,
    ValidationsAgree,
    ApiAgrees,
    OneServiceDecides,
    BoundOrNot,
    ExplainedByRules,
    OperatorsFirst,
    HostsFirst,
    Percentages,
    RolesStay,
    EndComplete,
    EventsTell,
    TimesFollow,
    AtRest,
    VersionsGrow,
    ConditionsAgree,
    DeletedGoes,
    ResourcesRest,
    SecretsHidden,
    SpecFrozen,
    StepsAnswered,
    InstallerScript,
    ControllerOrder,
    LeasesRenewed,
    AskedForAll,
}

/// An invariant in its results.
#[derive(Clone, Copy)]
struct Named {
    id: &'static str,
    title: &'static str,
}

impl From<&Invariant> for Named {
    fn from(Invariant { id, title, .. }: &Invariant) -> Self {
        Self { id, title }
    }
}

impl Id {
    fn named(self) -> Named {
        (&INVARIANTS[self as usize]).into()
    }
}

/// Checks all invariants over a history, in the order of [`INVARIANTS`]. What a history cannot show is not applicable, with
/// the reason; nothing is called held that was not checked at least once.
pub fn check_all(history: &[Observation]) -> Vec<InvariantResult> {
    check(&Timeline::new(history))
}

/// Judges a whole timeline.
type OfTimeline = fn(&Timeline<'_>) -> InvariantResult;

/// The same, over a history that was read before.
pub fn check(timeline: &Timeline<'_>) -> Vec<InvariantResult> {
    let mut reader = Reader::new(timeline);
    for (observation, change) in timeline.walk() {
        reader.see(observation, change.is_some());
    }
    let mut results = reader.finish();
    let whole: [(Id, OfTimeline); 19] = [
        (Id::ExplainedByRules, explained::explained_by_rules),
        (Id::EventsTell, told::events_tell),
        (Id::SilenceDisconnects, silence::silence_disconnects),
        (Id::ValidationsAgree, inventory::validations_agree),
        (Id::ApiAgrees, views::api_agrees),
        (Id::OneServiceDecides, replicas::one_service_decides),
        (Id::TimesFollow, times::times_follow),
        (Id::AtRest, rest::at_rest),
        (Id::VersionsGrow, resources::versions_grow),
        (Id::ConditionsAgree, resources::conditions_agree),
        (Id::DeletedGoes, resources::deleted_goes),
        (Id::ResourcesRest, resources::resources_rest),
        (Id::SecretsHidden, shown::secrets_hidden),
        (Id::SpecFrozen, shown::spec_frozen),
        (Id::StepsAnswered, answered::steps_answered),
        (Id::InstallerScript, script::installer_script),
        (Id::ControllerOrder, controller::controller_order),
        (Id::LeasesRenewed, leases::leases_renewed),
        (Id::AskedForAll, instructed::asked_for_all),
    ];
    for (id, judge) in whole {
        results[id as usize] = judge(timeline);
    }
    results
}
