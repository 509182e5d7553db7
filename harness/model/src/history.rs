//! What a run observes: one line of `history.jsonl` is one [`Observation`]. The file is append-only and versioned; verdicts
//! and every report are functions of it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use uuid::Uuid;
use vlab_api::Timestamp;
use vlab_api::types::{
    ClusterStatus, FinalizingStage, HostRole, HostStage, HostStatus, LogsState, OperatorStatus, OperatorType, Severity,
};

use crate::settings::Settings;
use crate::validation::ValidationStatus;

mod words;

pub use words::{
    ActionKind, ClusterMoment, ConditionStatus, FaultPhase, HistoryPart, HostMoment, HostsKind, Interleaved,
    MachineMoment, ResourceState, RunEnd, TargetKind, UserVerb,
};

/// Version of the format. Raised when the meaning of a member changes; new optional members do not raise it.
pub const HISTORY_VERSION: u32 = 1;

/// One thing that was seen.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Observation {
    /// [`HISTORY_VERSION`] of the writer.
    pub v: u32,
    /// Position in the file, from 0, without gaps.
    pub seq: u64,
    /// Who saw it.
    pub source: Source,
    /// When it happened by the service's (or its database's) clock, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_time: Option<Timestamp>,
    /// When the harness learned of it, by the harness's clock.
    pub harness_time: Timestamp,
    /// What was seen.
    pub what: What,
}

impl Observation {
    /// When it happened, as well as is known: the service's time, else the harness's.
    pub fn at(&self) -> Timestamp {
        self.service_time.unwrap_or(self.harness_time)
    }
}

/// Who saw it. Where several sources see the same change, the database is the truth and the others confirm it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    /// The service's tables (a trigger), or the simulator's store.
    Database,
    /// `GET /v2/events`.
    Events,
    /// The service's state as the API shows it, asked for again and again.
    Poll,
    /// The harness itself: what the user did, faults, start and end.
    Harness,
    /// A simulated host: what it was asked and what it answered.
    Hosts,
    /// A machine's serial console.
    Console,
}

impl Source {
    /// Does this source tell states, in a history whose states come from `truth`? The database is complete by itself. Polls
    /// are not: the events that tell of a change stand beside them, and no change is recorded by both.
    pub fn tells_states(self, truth: Self) -> bool {
        self == truth || (truth == Self::Poll && self == Self::Events)
    }
}

/// What was seen. Externally tagged, so that a line reads `{"host_status": {...}}`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum What {
    /// First line of every history.
    RunStarted(RunInfo),
    /// Last line of a history whose run was not killed.
    RunFinished {
        /// How. In the file the member has the name that it had when it was meant for something else.
        #[serde(rename = "verdict")]
        how: RunEnd,
    },
    /// A cluster is known by this name in the scenario.
    ClusterNamed {
        /// Id in the service.
        cluster: Uuid,
        /// Name in the scenario.
        name: String,
        /// Its VIPs are leased by DHCP.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        vip_dhcp: bool,
    },
    /// A host is known by this name in the scenario.
    HostNamed {
        /// Id in the service.
        host: Uuid,
        /// Name in the scenario, for example `master-0`.
        name: String,
        /// What it is.
        kind: HostsKind,
    },
    /// A host's status changed; `from` is `None` when it registered for the first time.
    HostStatus {
        /// The host's id in the service.
        host: Uuid,
        /// Its cluster, when bound.
        cluster: Option<Uuid>,
        /// Status before.
        from: Option<HostStatus>,
        /// Status after.
        to: HostStatus,
        /// The service's words.
        info: String,
    },
    /// A host's installation stage or its progress text changed; `to` is `None` when progress was cleared.
    HostStage {
        /// The host's id in the service.
        host: Uuid,
        /// Stage before.
        from: Option<HostStage>,
        /// Stage after.
        to: Option<HostStage>,
        /// Progress text, for example `42%`.
        info: String,
        /// Percentage that the service computed for the host.
        percentage: i64,
    },
    /// A host's role or its being the bootstrap changed.
    HostRole {
        /// The host's id in the service.
        host: Uuid,
        /// Effective role.
        role: HostRole,
        /// Is it the bootstrap?
        bootstrap: bool,
    },
    /// What the service knows about a host's logs changed.
    HostLogs {
        /// The host's id in the service.
        host: Uuid,
        /// State of its logs.
        state: LogsState,
    },
    /// What the service knows about the logs of a cluster's controller changed.
    ClusterLogs {
        /// The cluster's id in the service.
        cluster: Uuid,
        /// State of these logs.
        state: LogsState,
    },
    /// A host was removed from the service.
    HostDeleted {
        /// The host's id in the service.
        host: Uuid,
    },
    /// A cluster's status changed; `from` is `None` when it was created.
    ClusterStatus {
        /// The cluster's id in the service.
        cluster: Uuid,
        /// Status before.
        from: Option<ClusterStatus>,
        /// Status after.
        to: ClusterStatus,
        /// The service's words.
        info: String,
    },
    /// The service's words about a host or cluster changed, and its status did not.
    StatusInfo {
        /// Host, or cluster when `is_cluster`.
        subject: Uuid,
        /// Of a cluster?
        is_cluster: bool,
        /// The service's words.
        info: String,
    },
    /// A cluster's installation percentage changed.
    ClusterProgress {
        /// The cluster's id in the service.
        cluster: Uuid,
        /// Total percentage.
        total: i64,
    },
    /// The controller reported a finalizing stage.
    ClusterFinalizingStage {
        /// The cluster's id in the service.
        cluster: Uuid,
        /// The finalizing stage that was entered.
        stage: FinalizingStage,
    },
    /// A validation of a host (or of a cluster) changed its status.
    Validation {
        /// Host, or cluster when `is_cluster`.
        subject: Uuid,
        /// Of a cluster?
        is_cluster: bool,
        /// Id of the validation.
        id: String,
        /// Before; `None` when it was not evaluated.
        from: Option<ValidationStatus>,
        /// After; `None` when it is no longer evaluated.
        to: Option<ValidationStatus>,
        /// The service's words.
        message: String,
    },
    /// A member of a row changed that rules write beside all that has an observation of its own.
    Member {
        /// Host, or cluster when `is_cluster`.
        subject: Uuid,
        /// Of a cluster?
        is_cluster: bool,
        /// Its name in the API.
        name: String,
        /// What it is now; empty when there is nothing.
        value: String,
    },
    /// A monitored operator changed.
    Operator {
        /// The cluster's id in the service.
        cluster: Uuid,
        /// The operator's name, as the API has it.
        name: String,
        /// Its status as the controller reports it; `None`: none yet.
        status: Option<OperatorStatus>,
        /// Whether it comes with the product, where that is told.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        kind: Option<OperatorType>,
    },
    /// An event of the service's events API.
    Event {
        /// Name, for example `host_status_updated`; empty for metrics events.
        name: String,
        /// How serious the service takes it.
        severity: Severity,
        /// The event's message, as the service words it.
        message: String,
        /// Cluster it speaks of.
        cluster: Option<Uuid>,
        /// Host it speaks of.
        host: Option<Uuid>,
    },
    /// The service asked a host for something (`answered` is `None`), or the host answered.
    Step {
        /// The host's id in the service.
        host: Uuid,
        /// Step type on the wire.
        step_type: String,
        /// Id of the instruction.
        step_id: String,
        /// Exit code of the answer.
        answered: Option<i64>,
        /// The answer was identical to the last one and was not sent (the agent's reply cache).
        cached: bool,
    },
    /// Something that happened on a host and that the service does not see.
    HostDid {
        /// The host's id in the service.
        host: Uuid,
        /// The moment, a word of the history.
        what: HostMoment,
    },
    /// Something that happened inside the cluster that is being installed.
    InCluster {
        /// The cluster's id in the service.
        cluster: Uuid,
        /// Host it concerns.
        host: Option<Uuid>,
        /// The moment, a word of the history.
        what: ClusterMoment,
    },
    /// The user did something through the API.
    UserAction {
        /// The request, by the user's word for it.
        action: UserVerb,
        /// What it was done to.
        subject: Option<Uuid>,
        /// HTTP status of the answer; 0 when there was none.
        status: u16,
        /// Reason in the answer when it was not a success.
        reason: String,
        /// Position in the scenario's `actions`; `None`: the user did it without being told to.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        planned: Option<usize>,
    },
    /// A host asked for instructions again and again, and was answered each time: one line for all the times between two silences.
    /// To register counts, too.
    Polls {
        /// The host's id in the service.
        host: Uuid,
        /// When the first question was sent.
        from: Timestamp,
        /// When the last question was sent that was answered well.
        to: Timestamp,
        /// How many were.
        count: u64,
        /// The longest time between two of them, in milliseconds, rounded up.
        longest_ms: u64,
        /// When the last attempt came to its end, answered or in vain: after this the host was silent.
        tried: Timestamp,
    },
    /// A host was answered the same again and again when it asked for instructions: one line for all the times until it was
    /// answered something else, or was silent.
    Instructed {
        /// The host's id in the service.
        host: Uuid,
        /// When the first question was sent.
        from: Timestamp,
        /// When the last answer came.
        to: Timestamp,
        /// How many questions were.
        count: u64,
        /// The longest time from a question until the answer to the next one, in milliseconds, rounded up.
        longest_ms: u64,
        /// Kinds of the steps that it was given, in their order.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        steps: Vec<String>,
        /// Seconds until it was to ask again.
        next: i64,
        /// Its agent was to start over.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        exit: bool,
    },
    /// The service took a host's inventory: it answered the report with a success. Of an inventory here is what validations
    /// count; the same one again is not told.
    Inventory {
        /// The host's id in the service.
        host: Uuid,
        /// When it was sent.
        sent: Timestamp,
        /// Cores.
        cores: i64,
        /// Memory, in bytes.
        memory: i64,
        /// The kernel's figure, which leaves out what it keeps for itself.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        meminfo: bool,
        /// The largest disk that can be installed to if it is large enough, in bytes.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        disk: Option<i64>,
        /// The host's own name.
        name: String,
        /// The host got no answer: nobody knows whether the service took it.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        unanswered: bool,
    },
    /// A time of a row did not follow what it times. The times of all other changes do, and are not told.
    OddTime {
        /// Host, or cluster when `is_cluster`.
        subject: Uuid,
        /// Of a cluster?
        is_cluster: bool,
        /// Its name in the API.
        name: String,
        /// It moved, and what it times did not change; else it is the other way round.
        moved: bool,
        /// What it is now; nothing: it was never set.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        value: Option<Timestamp>,
    },
    /// What the API shows at this moment was asked for then; the service has looked at its rows in between. Not told in virtual
    /// time, where both are a millisecond apart.
    Asked {
        /// When the question was sent.
        at: Timestamp,
    },
    /// The database's changes that follow were written by this service, until another one is told. Where a run has one service,
    /// it is told once.
    Writer {
        /// As it is called at the database.
        name: String,
    },
    /// The service answered with 5xx, or there was nobody to connect to.
    BadAnswer {
        /// Host that had asked, or the cluster whose controller had; `None`: the user.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        host: Option<Uuid>,
        /// Method and path of what was asked.
        request: String,
        /// HTTP status; 0: the connection was refused.
        status: u16,
        /// Time between the question and this, in milliseconds.
        took_ms: u64,
    },
    /// Somebody asked the service for something, and it was answered, or was not. For people who look at a moment of the run;
    /// nothing is judged by it. What is asked again and again and answered the same is told once, and an answer that nobody
    /// should get is a [`What::BadAnswer`] instead.
    Request {
        /// Host that had asked, or the cluster whose controller had; `None`: the user.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        host: Option<Uuid>,
        /// Method and path of what was asked.
        request: String,
        /// HTTP status; 0: there was no answer.
        status: u16,
        /// Time between the question and this, in milliseconds.
        took_ms: u64,
    },
    /// A program under test did not end when it was asked to and had to be killed.
    Killed {
        /// Which program.
        program: String,
        /// What was waited for.
        detail: String,
    },
    /// Something that the service told cannot be understood: a row with an unknown status, an answer of another shape.
    Unreadable {
        /// Host or cluster that it is about, where that is known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        subject: Option<Uuid>,
        /// What it is, for example `the row of a host`, `v2GetCluster`.
        of: String,
        /// What is wrong with it.
        error: String,
    },
    /// A part of what a run observes could not be read to its end: what is not in this history may have happened all the same.
    Incomplete {
        /// Which part.
        part: HistoryPart,
        /// Of the console of this machine.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        machine: Option<String>,
        /// Why.
        why: String,
    },
    /// A program of the run could have worked and had no processor: the computer is too busy.
    Starved {
        /// Which.
        program: String,
        /// How long one of its threads waited for a processor, in milliseconds.
        waited_ms: u64,
        /// Within so many milliseconds that end now.
        within_ms: u64,
    },
    /// The database could not be asked for a while, and can be again.
    DatabaseAway {
        /// For how long, in milliseconds, up to now.
        for_ms: u64,
        /// What was answered last.
        why: String,
    },
    /// A fault began, did something, or ended.
    Fault {
        /// Name in the scenario.
        name: String,
        /// Which of these.
        phase: FaultPhase,
        /// Its kind, at the begin.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        inject: String,
        /// Host that it hits; at the begin one observation names each.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        host: Option<Uuid>,
        /// Cluster that it hits.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cluster: Option<Uuid>,
        /// What it does, what came of it, or why it ended.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        detail: String,
    },
    /// A machine's serial console said a line. Before the host is registered nobody knows its id: machines are named.
    Console {
        /// Name of the host in the scenario.
        machine: String,
        /// The line, without control sequences.
        line: String,
        /// Id of the console check that it fails ([`crate::console::CHECKS`]).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        finding: Option<String>,
    },
    /// Something happened to a virtual machine: as the hypervisor reports it, or by the harness's own hand.
    Machine {
        /// Name of the host in the scenario.
        machine: String,
        /// What happened to the machine.
        did: MachineMoment,
        /// For example `failed` (its QEMU was killed), `shutdown`.
        detail: String,
    },
    /// The run is over, and everything that is looked at is looked at once more: what happened some time before this must be in
    /// the history. Where it is there more than once, the last one counts.
    LastLook {},
    /// A resource on the hub was made, changed, or is gone: every change that its watch tells.
    Resource {
        /// Its kind, for example `Agent`.
        kind: String,
        /// Its namespace; empty where the kind has none.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        namespace: String,
        /// Its name. An Agent is called as its host's id.
        name: String,
        /// Its resource version after the change.
        version: u64,
        /// Counts the changes of what is wanted (`metadata.generation`), where the kind has it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        generation: Option<i64>,
        /// What became of it.
        is: ResourceState,
        /// Conditions that are new or otherwise than before, by type. `None`: it is gone.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        conditions: BTreeMap<String, Option<ResourceCondition>>,
        /// Finalizers that hold it while it is being deleted.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        finalizers: Vec<String>,
        /// Members of its `spec` that are otherwise than before.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        spec: Vec<String>,
        /// Secrets that stand where everybody may read them: which kind, and where. Never the secret.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        secrets: Vec<String>,
        /// Conditions with a time or a text that they should not have.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        odd: Vec<OddCondition>,
        /// Members of its `status` that repeat what a row of the service says, where they are new or otherwise than before; `null` is gone.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        shows: BTreeMap<String, serde_json::Value>,
    },
    /// An interleaving did something that no fault of the scenario asks for.
    Interleaved {
        /// What it did.
        did: Interleaved,
        /// To which request, or when; for people.
        detail: String,
    },
    /// A line of text worth keeping, for example a service that was restarted.
    Note {
        /// What is to be said, for people.
        text: String,
    },
}

/// A condition whose time or text is odd.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OddCondition {
    /// Its type.
    pub condition: String,
    /// What is odd.
    pub is: Oddity,
    /// Since when it is so, as it says itself (`lastTransitionTime`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
}

/// What is odd about a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Oddity {
    /// It turned, and its time stayed.
    Stayed,
    /// Its time moved, and it did not turn.
    Moved,
    /// It has no text.
    Silent,
}

/// A condition of a resource, without its text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourceCondition {
    /// Does it hold?
    pub status: ConditionStatus,
    /// Why, in a word.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

/// Is that as good as nothing in a resource? Whoever writes an object back that it read into its own form leaves such members out.
pub fn is_nothing(value: &serde_json::Value) -> bool {
    use serde_json::Value;
    match value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.values().all(is_nothing),
    }
}

/// What a run is: enough to understand the history without the scenario's file, and to repeat it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RunInfo {
    /// Id of the run.
    pub run_id: String,
    /// Name of the scenario.
    pub scenario: String,
    /// Path of the scenario's file, as given.
    pub scenario_path: String,
    /// Seed of all random choices.
    pub seed: u64,
    /// What the service under test is.
    pub service: TargetKind,
    /// What the hosts are.
    pub hosts: HostsKind,
    /// Name of the time profile.
    pub time_profile: String,
    /// Clock is virtual.
    pub virtual_time: bool,
    /// Version of the harness.
    pub vlab_version: String,
    /// Versions of other parts: `postgresql`, `service`, ...
    pub versions: BTreeMap<String, String>,
    /// The source from which states are to be taken; nothing where that is the database.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub states_from: Option<Source>,
    /// All settings of the built-in service, as they were in the run; nothing of another one, which has more than these.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settings: Option<Box<Settings>>,
    /// Settings that the run gave another service: those that it shares with the built-in one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub given: Option<Box<Settings>>,
    /// How many times faster than the real service's own the intervals and timeouts of this one are; nothing where nobody told it
    /// how fast to be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock_scale: Option<f64>,
    /// The times of rows are followed: one that is odd is told ([`What::OddTime`]).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub times_followed: bool,
    /// Roles, for readers without the scenario.
    pub expected_hosts: BTreeMap<String, HostRole>,
}
