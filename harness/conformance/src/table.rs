//! The checks as data: files of YAML, each an area of the API. This module reads them, expands their tables and finds mistakes in
//! them before anything is asked.
//!
//! ```yaml
//! area: clusters
//! source: 'REST API: POST /v2/clusters'        # where the facts come from; a check may name its own
//! checks:
//!   - id: refused/<case>                        # with the area in front: `clusters/refused/no-name`
//!     purpose: a cluster with <what> is refused
//!     table:                                    # one check for each row; `<case>` and so on come from the row
//!       - {case: no-name, what: no name, body: {name: $remove}, says: name in body is required}
//!     steps:
//!       - call: POST /clusters
//!         base: cluster
//!         body: <body>
//!         infra: {status: 400, says: <says>}
//! ```
//!
//! `<name>` stands for a value: of the row, or one that is known when the check runs (`<cluster>`, `<infra_env>`, hosts `<a>`,
//! `<b>`, …, `<missing>`, what a call has saved). A text that is nothing else takes the value as it is, with its type.

pub mod resources;

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value};

pub use self::resources::ResourceStep;
use crate::matcher;

/// The checks over Kubernetes that come with the program.
const OVER_KUBERNETES: &[(&str, &str)] = &[
    ("resources.yaml", include_str!("../kube/resources.yaml")),
    ("infra-envs.yaml", include_str!("../kube/infra-envs.yaml")),
    ("agents.yaml", include_str!("../kube/agents.yaml")),
    ("installation.yaml", include_str!("../kube/installation.yaml")),
    ("binding.yaml", include_str!("../kube/binding.yaml")),
    ("changes.yaml", include_str!("../kube/changes.yaml")),
    ("manifests.yaml", include_str!("../kube/manifests.yaml")),
    ("mirrors.yaml", include_str!("../kube/mirrors.yaml")),
    ("bare-metal.yaml", include_str!("../kube/bare-metal.yaml")),
    ("converged.yaml", include_str!("../kube/converged.yaml")),
    ("service-config.yaml", include_str!("../kube/service-config.yaml")),
    ("spoke.yaml", include_str!("../kube/spoke.yaml")),
    ("status.yaml", include_str!("../kube/status.yaml")),
    ("specs.yaml", include_str!("../kube/specs.yaml")),
    ("classifications.yaml", include_str!("../kube/classifications.yaml")),
    ("deletion.yaml", include_str!("../kube/deletion.yaml")),
    ("clients.yaml", include_str!("../kube/clients.yaml")),
];

/// The checks over REST that come with the program.
const FILES: &[(&str, &str)] = &[
    ("service.yaml", include_str!("../checks/service.yaml")),
    ("errors.yaml", include_str!("../checks/errors.yaml")),
    ("clusters.yaml", include_str!("../checks/clusters.yaml")),
    ("infra-envs.yaml", include_str!("../checks/infra-envs.yaml")),
    ("register.yaml", include_str!("../checks/register.yaml")),
    ("steps.yaml", include_str!("../checks/steps.yaml")),
    ("progress.yaml", include_str!("../checks/progress.yaml")),
    ("validations.yaml", include_str!("../checks/validations.yaml")),
    ("actions.yaml", include_str!("../checks/actions.yaml")),
    ("events.yaml", include_str!("../checks/events.yaml")),
    ("binding.yaml", include_str!("../checks/binding.yaml")),
    ("day2.yaml", include_str!("../checks/day2.yaml")),
    ("files.yaml", include_str!("../checks/files.yaml")),
    ("disconnection.yaml", include_str!("../checks/disconnection.yaml")),
    ("rules.yaml", include_str!("../checks/rules.yaml")),
    ("answers.yaml", include_str!("../checks/answers.yaml")),
    ("members.yaml", include_str!("../checks/members.yaml")),
    ("timers.yaml", include_str!("../checks/timers.yaml")),
    ("sources.yaml", include_str!("../checks/sources.yaml")),
    ("arguments.yaml", include_str!("../checks/arguments.yaml")),
];

/// What a check needs of the service under test. What is not met is a skip with the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Need {
    /// Monitors that tick every second or more often: everything that waits for a change of state.
    QuickMonitors,
    /// Hosts that count as disconnected after fifteen seconds of silence, or less.
    ShortDisconnection,
    /// The settings that the suite gives to a service of its own ([`crate::SETTINGS`]).
    OwnSettings,
    /// Times that are those of the real service, and not made shorter by a time profile.
    RealTimes,
    /// An image service behind the service.
    ImageService,
    /// No image service behind the service.
    NoImageService,
    /// Nobody else uses the service.
    Alone,
    /// What goes with its owner on a cluster: a controller collects it.
    GarbageCollection,
    /// The operator that deploys the service.
    Operator,
    /// API servers of clusters behind the hub's door.
    Clusters,
    /// A hub whose operator for bare metal shares hosts with the service.
    ConvergedFlow,
    /// A hub without one.
    NoConvergedFlow,
    /// Controllers whose waits are not made shorter: an image that is young stays that for a minute.
    LongWaits,
}

impl Need {
    /// The need for people.
    pub const fn as_str(self) -> &'static str {
        match self {
            Need::QuickMonitors => {
                "monitors that run every second or more often (HOST_MONITOR_INTERVAL, CLUSTER_MONITOR_INTERVAL)"
            }
            Need::ShortDisconnection => "HOST_MAX_DISCONNECTION_TIME of fifteen seconds or less",
            Need::RealTimes => "times as the real service has them (--time-profile real)",
            Need::OwnSettings => "settings that the suite makes itself, which it can only for a service that it starts",
            Need::ImageService => "an image service behind the service (ENABLE_IMAGE_SERVICE=true)",
            Need::NoImageService => "a service without an image service (ENABLE_IMAGE_SERVICE=false)",
            Need::Alone => "a service that nobody else uses",
            Need::GarbageCollection => "somebody who deletes what belongs to a resource that is gone",
            Need::Operator => "the operator that deploys the service",
            Need::Clusters => "API servers of clusters, which the lab's own hub has",
            Need::ConvergedFlow => "a hub with an operator for bare metal (--baremetal-operator 4.20.0)",
            Need::LongWaits => {
                "controllers that wait as long as the real ones (--time-profile real for the simulated ones)"
            }
            Need::NoConvergedFlow => "a hub without an operator for bare metal that shares hosts with the service",
        }
    }
}

/// One check.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConformanceCheck {
    /// Stable name, `<area>/…`.
    pub id: String,
    /// What must be so, in one sentence.
    pub purpose: String,
    /// Where that is known from.
    #[serde(default)]
    pub source: String,
    /// What the service must offer.
    #[serde(default)]
    pub needs: Vec<Need>,
    /// What the service does by itself and its steps must come before: where it differs it may have been too late, and is tried
    /// again.
    #[serde(default)]
    pub races: Option<String>,
    /// What is there before the first step.
    #[serde(default)]
    pub world: World,
    /// What is done and expected.
    pub steps: Vec<CheckStep>,
    /// The file's area.
    #[serde(skip)]
    pub area: String,
    /// The user asks over Kubernetes: the world is made of resources, and steps are about resources, too.
    #[serde(skip)]
    pub over_kube: bool,
}

/// What sort of cluster a check begins with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ClusterKind {
    /// Neither a cluster nor an infra-env: the steps make what they want.
    #[default]
    Nothing,
    /// An infra-env without a cluster: hosts are unbound.
    None,
    /// A single node.
    Sno,
    /// Three masters, virtual addresses.
    Ha,
    /// Three masters, networks managed by the user.
    Umn,
    /// An imported cluster that takes more hosts.
    Day2,
}

/// How far it has got, in order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Milestone {
    /// Cluster and infra-env are made.
    #[default]
    Made,
    /// The hosts have registered and not asked yet.
    Registered,
    /// They are known, or known-unbound.
    Known,
    /// The cluster is ready.
    Ready,
    /// It prepares, and the hosts hold back the answers for which it waits.
    Preparing,
    /// It installs, and every host has been told to.
    Installing,
    /// Every host has reported its first stage.
    InProgress,
    /// Every host is done.
    Finalizing,
    /// It is installed.
    Installed,
    /// The installation has failed.
    Error,
    /// It was cancelled.
    Cancelled,
}

/// What is there before the first step.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct World {
    /// Sort of cluster.
    #[serde(default)]
    pub cluster: ClusterKind,
    /// Number of hosts: `a`, `b`, `c` and so on.
    #[serde(default)]
    pub hosts: usize,
    /// How far it has got.
    #[serde(default)]
    pub at: Milestone,
    /// Changes to the body that makes the cluster.
    #[serde(default)]
    pub patch: Value,
    /// Changes to the body that makes the infra-env.
    #[serde(default)]
    pub infra_env: Value,
    /// Changes to what single hosts have (`a: {cpu: {count: 1}}`).
    #[serde(default)]
    pub inventory: BTreeMap<String, Value>,
    /// What single hosts answer to steps instead of what is good (`a: {ntp-synchronizer: {ntp_sources: []}}`); `null`: nothing.
    #[serde(default)]
    pub answers: BTreeMap<String, BTreeMap<String, Value>>,
    /// Roles that the user sets after the hosts have registered.
    #[serde(default)]
    pub roles: BTreeMap<String, String>,
    /// Over Kubernetes: the infra-env is of no cluster, and its hosts are bound to the cluster when they are known.
    #[serde(default)]
    pub pool: bool,
}

/// One or several.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub enum Many<T> {
    /// One.
    One(T),
    /// Several.
    Several(Vec<T>),
}

impl<T> Many<T> {
    /// As a slice.
    pub fn as_slice(&self) -> &[T] {
        match self {
            Many::One(one) => std::slice::from_ref(one),
            Many::Several(list) => list,
        }
    }
}

/// A refusal: its status, and a text that its reason contains (or a question about it).
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Refusal {
    /// HTTP status.
    pub status: Value,
    /// What the reason contains; a question of [`matcher`] where that is not enough.
    #[serde(default)]
    pub says: Value,
}

/// A request and what is expected of the answer.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RequestStep {
    /// Method and path behind the API's base path; `root:` before the path: behind nothing.
    pub call: String,
    /// Name of a body that `body` changes: `cluster`, `ha-cluster`, `infra-env`.
    #[serde(default)]
    pub base: Option<String>,
    /// JSON body, or the changes to `base`. A member with the value `$remove` is taken out.
    #[serde(default)]
    pub body: Value,
    /// Body as text, sent as it is.
    #[serde(default)]
    pub text: Option<String>,
    /// Body as a form with files: field to content.
    #[serde(default)]
    pub form: BTreeMap<String, String>,
    /// Headers; `content-type` replaces the one of the body.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// Expected status or statuses; any 2xx when nothing else is said.
    #[serde(default)]
    pub status: Value,
    /// Expected refusal by the service's handlers: `{kind, id, href, code, reason}`.
    #[serde(default)]
    pub error: Option<Refusal>,
    /// Expected refusal by its router and its validators: `{code, message}`.
    #[serde(default)]
    pub infra: Option<Refusal>,
    /// What the JSON body matches.
    #[serde(default)]
    pub expect: Option<Value>,
    /// What the body as text matches.
    #[serde(default)]
    pub content: Option<Value>,
    /// What headers match.
    #[serde(default)]
    pub head: BTreeMap<String, Value>,
    /// Variables, and the path in the body of each; the empty path is the body.
    #[serde(default)]
    pub save: BTreeMap<String, String>,
    /// Ask again, with the hosts at work, until the answer is as expected.
    #[serde(default)]
    pub retry: bool,
}

/// A host asks for instructions once and answers none.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Poll {
    /// Which host.
    pub host: String,
    /// Types of the steps, in order.
    #[serde(default)]
    pub steps: Option<Value>,
    /// Seconds until it shall ask again.
    #[serde(default)]
    pub next: Option<i64>,
    /// `continue` or `exit`.
    #[serde(default)]
    pub then: Option<String>,
    /// What the arguments of a step match: its type to a list; an argument that is JSON is compared as JSON.
    #[serde(default)]
    pub args: BTreeMap<String, Value>,
}

/// A host answers a step.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reply {
    /// Which host.
    pub host: String,
    /// Type of the step.
    pub step: String,
    /// Output: JSON, or a text as it is; nothing: the good answer.
    #[serde(default)]
    pub output: Option<Value>,
    /// For `inventory`: changes to what the host has.
    #[serde(default)]
    pub patch: Value,
    /// Exit code.
    #[serde(default)]
    pub exit: i64,
    /// Expected status, 204 when nothing else is said.
    #[serde(default)]
    pub status: Option<u16>,
}

/// A host reports a stage.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Report {
    /// Which host.
    pub host: String,
    /// Stage or stages, one after the other.
    pub stage: Many<String>,
    /// What it tells beside.
    #[serde(default)]
    pub info: String,
    /// Expected status, 200 when nothing else is said.
    #[serde(default)]
    pub status: Option<u16>,
}

/// A validation comes to have a status.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ValidationIs {
    /// Host; the cluster when there is none.
    #[serde(default)]
    pub host: Option<String>,
    /// Id of the validation.
    pub id: String,
    /// `success`, `failure`, `pending`, `error`, `disabled` or `absent`; a question of [`matcher`] is possible.
    pub is: Value,
    /// What its message contains.
    #[serde(default)]
    pub says: Value,
}

/// An event is there, or comes.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EventIs {
    /// Members of the event.
    pub event: Value,
    /// Exactly so many.
    #[serde(default)]
    pub count: Option<usize>,
    /// Query that selects events; those of the cluster when nothing else is said.
    #[serde(default)]
    pub query: Option<String>,
}

/// A host registers.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Register {
    /// Which host.
    pub host: String,
    /// Expected status, 201 when nothing else is said.
    #[serde(default)]
    pub status: Option<u16>,
    /// Expected refusal of the handlers.
    #[serde(default)]
    pub error: Option<Refusal>,
    /// What the answer matches.
    #[serde(default)]
    pub expect: Option<Value>,
}

/// A host changes.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Change {
    /// Which host.
    pub host: String,
    /// Changes to what it has.
    #[serde(default)]
    pub inventory: Value,
    /// Changes to what it answers.
    #[serde(default)]
    pub answers: BTreeMap<String, Value>,
    /// It stops asking, or asks again.
    #[serde(default)]
    pub silent: Option<bool>,
    /// Seconds by which its clock is ahead of the time; negative: behind it.
    #[serde(default)]
    pub clock_ahead: Option<i64>,
}

/// How much time lies between two times that the service shows of a host or the cluster, by its own clock.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Took {
    /// Host; the cluster when there is none.
    #[serde(default)]
    pub host: Option<String>,
    /// Path of the first time in what the service shows.
    pub from: String,
    /// Path of the second one; `event_time` of the event where one is named.
    pub to: String,
    /// Members of the event whose time is the second one; it is waited for.
    #[serde(default)]
    pub event: Option<Value>,
    /// At least so many seconds.
    pub at_least: f64,
    /// At most so many: what is twice as long must be more.
    pub at_most: f64,
}

/// One step of a check.
#[derive(Clone, Debug)]
pub enum CheckStep {
    /// A request.
    Call(Box<RequestStep>),
    /// A host registers.
    Register(Register),
    /// A host asks for instructions.
    Poll(Poll),
    /// A host answers a step.
    Reply(Reply),
    /// A host reports stages.
    Report(Report),
    /// The hosts work until all of these have the named status (a list: one of them).
    Wait(BTreeMap<String, Many<String>>),
    /// The hosts work for some ticks of the monitors, and all of these keep the status.
    Stay(BTreeMap<String, Many<String>>),
    /// A validation comes to have a status.
    Validation(ValidationIs),
    /// An event comes.
    Event(EventIs),
    /// No such event is there after some ticks of the monitors.
    NoEvent(EventIs),
    /// The world goes on to a milestone.
    Reach(Milestone),
    /// A host changes.
    Change(Change),
    /// Two times that the service shows lie so far from each other.
    Took(Took),
    /// Something over Kubernetes.
    Resource(Box<ResourceStep>),
}

impl<'de> Deserialize<'de> for CheckStep {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        use serde::de::Error as _;
        let map: Map<String, Value> = Map::deserialize(deserializer)?;
        fn read<T: serde::de::DeserializeOwned, E: serde::de::Error>(value: Value) -> Result<T, E> {
            serde_json::from_value(value).map_err(E::custom)
        }
        let whole = || Value::Object(map.clone());
        if map.contains_key("call") {
            return Ok(CheckStep::Call(Box::new(read(whole())?)));
        }
        if map.contains_key("event") {
            return Ok(CheckStep::Event(read(whole())?));
        }
        if let Some(step) = ResourceStep::read(&map) {
            return step.map(Box::new).map(CheckStep::Resource).map_err(D::Error::custom);
        }
        let (Some((verb, value)), 1) = (map.iter().next(), map.len()) else {
            return Err(D::Error::custom(format!("a step is one verb: {}", matcher::shown(Some(&whole())))));
        };
        let value = value.clone();
        Ok(match verb.as_str() {
            "register" => CheckStep::Register(match value {
                Value::String(host) => Register { host, status: None, error: None, expect: None },
                other => read(other)?,
            }),
            "poll" => CheckStep::Poll(read(value)?),
            "reply" => CheckStep::Reply(read(value)?),
            "report" => CheckStep::Report(read(value)?),
            "wait" => CheckStep::Wait(read(value)?),
            "stay" => CheckStep::Stay(read(value)?),
            "validation" => CheckStep::Validation(read(value)?),
            "no-event" => CheckStep::NoEvent(EventIs { event: value, count: None, query: None }),
            "reach" => CheckStep::Reach(read(value)?),
            "change" => CheckStep::Change(read(value)?),
            "took" => CheckStep::Took(read(value)?),
            other => return Err(D::Error::custom(format!("{other:?} is not a verb of a step"))),
        })
    }
}

/// A mistake in the tables.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}: {problem}")]
pub struct TableError {
    /// The table's file.
    pub file: String,
    /// What is wrong.
    pub problem: String,
}

/// What every check knows by itself; single letters are hosts.
const RESERVED: &[&str] =
    &["cluster", "infra_env", "name", "version", "agent", "pull_secret", "missing", "missing_too"];

/// How the user of a check asks the service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum FrontDoor {
    #[default]
    Rest,
    Kube,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AreaFile {
    area: String,
    /// `kube`: the checks are over Kubernetes.
    #[serde(default)]
    api: FrontDoor,
    #[serde(default)]
    source: String,
    /// What all of its checks need.
    #[serde(default)]
    needs: Vec<Need>,
    checks: Vec<Map<String, Value>>,
}

/// The checks over REST that come with the program.
///
/// # Errors
/// Mistakes in them; the tests of this crate find those.
pub fn built_in() -> Result<Vec<ConformanceCheck>, TableError> {
    read_all(FILES)
}

/// The checks over Kubernetes that come with the program.
///
/// # Errors
/// Mistakes in them; the tests of this crate find those.
pub fn over_kubernetes() -> Result<Vec<ConformanceCheck>, TableError> {
    read_all(OVER_KUBERNETES)
}

fn read_all(files: &[(&str, &str)]) -> Result<Vec<ConformanceCheck>, TableError> {
    let mut all = Vec::new();
    for (file, text) in files {
        all.extend(read(file, text)?);
    }
    unique(&all)?;
    Ok(all)
}

/// Checks of files that the user names, instead of the built-in ones.
///
/// # Errors
/// Files that cannot be read and mistakes in them.
pub fn from_files(files: &[std::path::PathBuf]) -> Result<Vec<ConformanceCheck>, TableError> {
    let mut all = Vec::new();
    for file in files {
        let name = file.display().to_string();
        let text = std::fs::read_to_string(file)
            .map_err(|error| TableError { file: name.clone(), problem: error.to_string() })?;
        all.extend(read(&name, &text)?);
    }
    unique(&all)?;
    Ok(all)
}

fn unique(checks: &[ConformanceCheck]) -> Result<(), TableError> {
    let mut seen = std::collections::BTreeSet::new();
    match checks.iter().find(|check| !seen.insert(&check.id)) {
        Some(check) => Err(TableError { file: check.area.clone(), problem: format!("{} is there twice", check.id) }),
        None => Ok(()),
    }
}

/// Reads the text of one file.
///
/// # Errors
/// What is wrong with it, and where.
pub fn read(file: &str, text: &str) -> Result<Vec<ConformanceCheck>, TableError> {
    let wrong = |problem: String| TableError { file: file.to_owned(), problem };
    let area: AreaFile = serde_yaml::from_str(text).map_err(|e| wrong(e.to_string()))?;
    let mut checks = Vec::new();
    for mut template in area.checks {
        let rows = match template.remove("table") {
            None => vec![Map::new()],
            Some(Value::Array(rows)) => rows
                .into_iter()
                .map(|row| match row {
                    Value::Object(row) => Ok(row),
                    other => Err(wrong(format!("a row of a table is an object, not {other}"))),
                })
                .collect::<Result<_, _>>()?,
            Some(other) => return Err(wrong(format!("a table is a list of rows, not {other}"))),
        };
        let named = template.get("id").map(Value::to_string).unwrap_or_default();
        for row in rows {
            let vars: BTreeMap<String, Value> = row.into_iter().collect();
            if let Some(column) = vars.keys().find(|name| RESERVED.contains(&name.as_str()) || name.len() == 1) {
                return Err(wrong(format!(
                    "check {named}: a column {column:?} would hide what checks know by that name"
                )));
            }
            let filled = fill_known(&Value::Object(template.clone()), &vars);
            let mut check: ConformanceCheck =
                serde_json::from_value(filled).map_err(|e| wrong(format!("check {named}: {e}")))?;
            check.id = format!("{}/{}", area.area, check.id);
            check.area.clone_from(&area.area);
            check.needs.extend(&area.needs);
            check.over_kube = area.api == FrontDoor::Kube;
            if check.source.is_empty() {
                check.source.clone_from(&area.source);
            }
            let problems = problems(&check);
            if !problems.is_empty() {
                return Err(wrong(format!("{}: {}", check.id, problems.join("; "))));
            }
            checks.push(check);
        }
    }
    Ok(checks)
}

fn problems(check: &ConformanceCheck) -> Vec<String> {
    let mut out = Vec::new();
    if check.steps.is_empty() {
        out.push("it has no steps".to_owned());
    }
    if check.source.is_empty() {
        out.push("it names no source of what it expects".to_owned());
    }
    if check.world.pool && !check.over_kube {
        out.push("only over Kubernetes its hosts can come from a pool".to_owned());
    }
    if check.id.contains(['<', '>', ' ']) || check.purpose.contains('<') {
        out.push("something of its row is missing".to_owned());
    }
    for step in &check.steps {
        match step {
            CheckStep::Call(call) => {
                for value in call.expect.iter().chain(&call.content).chain(call.head.values()) {
                    matcher::unknown_questions(value, &mut out);
                }
                for refusal in call.error.iter().chain(&call.infra) {
                    matcher::unknown_questions(&refusal.says, &mut out);
                }
            }
            CheckStep::Event(event) | CheckStep::NoEvent(event) => matcher::unknown_questions(&event.event, &mut out),
            CheckStep::Validation(validation) => {
                matcher::unknown_questions(&validation.is, &mut out);
                matcher::unknown_questions(&validation.says, &mut out);
            }
            CheckStep::Register(register) => {
                register.expect.iter().for_each(|v| matcher::unknown_questions(v, &mut out))
            }
            CheckStep::Resource(step) => {
                step.problems(&mut out);
                step.expectations().into_iter().for_each(|value| matcher::unknown_questions(value, &mut out));
                if !check.over_kube {
                    out.push(format!("{}: its file does not say `api: kube`", step.title()));
                }
            }
            CheckStep::Poll(poll) => poll.args.values().for_each(|v| matcher::unknown_questions(v, &mut out)),
            _ => {}
        }
    }
    out
}

/// Puts values for their names; a name that is not known stays as it is.
pub(crate) fn fill_known(value: &Value, vars: &BTreeMap<String, Value>) -> Value {
    match value {
        Value::String(text) => {
            if let Some(whole) = text.strip_prefix('<').and_then(|t| t.strip_suffix('>')).and_then(|n| vars.get(n)) {
                return whole.clone();
            }
            Value::String(fill_text(text, vars))
        }
        Value::Array(list) => Value::Array(list.iter().map(|v| fill_known(v, vars)).collect()),
        Value::Object(map) => {
            Value::Object(map.iter().map(|(name, value)| (fill_text(name, vars), fill_known(value, vars))).collect())
        }
        other => other.clone(),
    }
}

fn fill_text(text: &str, vars: &BTreeMap<String, Value>) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find('<') {
        out.push_str(&rest[..start]);
        rest = &rest[start..];
        let value = rest.find('>').and_then(|end| Some((end, vars.get(&rest[1..end])?)));
        match value {
            Some((end, value)) => {
                match value {
                    Value::String(text) => out.push_str(text),
                    other => out.push_str(&other.to_string()),
                }
                rest = &rest[end + 1..];
            }
            None => {
                out.push('<');
                rest = &rest[1..];
            }
        }
    }
    out.push_str(rest);
    out
}

/// `base` with `changes` in it: objects member by member, `$remove` takes a member out, everything else replaces.
pub(crate) fn merged(base: &Value, changes: &Value) -> Value {
    match (base, changes) {
        (base, Value::Null) => base.clone(),
        (Value::Object(base), Value::Object(changes)) => {
            let mut out = base.clone();
            for (name, change) in changes {
                if change == "$remove" {
                    out.remove(name);
                } else if change == "$null" {
                    out.insert(name.clone(), Value::Null);
                } else {
                    let new = merged(out.get(name).unwrap_or(&Value::Null), change);
                    out.insert(name.clone(), new);
                }
            }
            Value::Object(out)
        }
        (_, changes) => changes.clone(),
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[rstest]
    #[case("checks", FILES)]
    #[case("kube", OVER_KUBERNETES)]
    fn each_file_of_checks_is_read(#[case] folder: &str, #[case] files: &[(&str, &str)]) {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
        let mut there: Vec<String> =
            std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        let mut read: Vec<&str> = files.iter().map(|(name, _)| *name).collect();
        there.sort();
        read.sort_unstable();
        assert_eq!(there, read);
    }

    #[test]
    fn a_table_becomes_checks() {
        let text = "
area: x
source: s
checks:
  - id: refused/<case>
    purpose: <what> is refused
    table:
      - {case: one, what: a number, body: {name: 1}, says: must be string}
      - {case: two, what: nothing, body: {name: $remove}, says: {$re: required}}
    steps:
      - {call: POST /clusters, base: cluster, body: <body>, infra: {status: 400, says: <says>}}
";
        let checks = read("t", text).unwrap();
        assert_eq!(checks.iter().map(|c| c.id.as_str()).collect::<Vec<_>>(), ["x/refused/one", "x/refused/two"]);
        let CheckStep::Call(call) = &checks[1].steps[0] else { panic!() };
        assert_eq!(call.body, json!({"name": "$remove"}));
        assert_eq!(call.infra.as_ref().unwrap().says, json!({"$re": "required"}));
        assert_eq!(checks[0].purpose, "a number is refused");
    }

    #[rstest]
    #[case("area: x\nsource: s\nchecks: [{id: a, purpose: p, steps: []}]", "has no steps")]
    #[case("area: x\nchecks: [{id: a, purpose: p, steps: [{reach: ready}]}]", "names no source")]
    #[case("area: x\nsource: s\nchecks: [{id: a, purpose: p, steps: [{jump: high}]}]", "is not a verb")]
    #[case("area: x\nsource: s\nchecks: [{id: a, purpose: p, stepz: []}]", "unknown field `stepz`")]
    #[case("area: x\nsource: s\nchecks: [{id: a, purpose: p, steps: [{gone: Agent}]}]", "does not say `api: kube`")]
    #[case(
        "area: x\nsource: s\nchecks: [{id: <b>, purpose: p, table: [{what: 1}], steps: [{reach: ready}]}]",
        "its row is missing"
    )]
    #[case(
        "area: x\nsource: s\nchecks: [{id: a, purpose: p, steps: [{call: GET /, expect: {$hass: 1}}]}]",
        "$hass is not a question"
    )]
    fn mistakes_are_found(#[case] text: &str, #[case] says: &str) {
        let error = read("t", text).unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    }

    #[test]
    fn values_keep_their_type() {
        let vars: BTreeMap<String, Value> =
            [("n".to_owned(), json!(7)), ("s".to_owned(), json!("x"))].into_iter().collect();
        let filled = fill_known(&json!({"a": "<n>", "b": "<n>-<s>", "c": "<o>", "d": ["<s> <"]}), &vars);
        assert_eq!(filled, json!({"a": 7, "b": "7-x", "c": "<o>", "d": ["x <"]}));
    }

    #[test]
    fn changes_go_into_a_base() {
        let base = json!({"a": {"b": 1, "c": 2}, "d": 3});
        let changes = json!({"a": {"b": "$remove", "e": [1]}, "d": "$null"});
        assert_eq!(merged(&base, &changes), json!({"a": {"c": 2, "e": [1]}, "d": null}));
        assert_eq!(merged(&base, &Value::Null), base);
    }

    #[test]
    fn the_built_in_checks_can_be_read() {
        let checks = built_in().unwrap_or_else(|e| panic!("{e}"));
        assert!(!checks.is_empty() && checks.iter().all(|check| !check.over_kube));
        let checks = over_kubernetes().unwrap_or_else(|e| panic!("{e}"));
        assert!(!checks.is_empty() && checks.iter().all(|check| check.over_kube));
    }
}
