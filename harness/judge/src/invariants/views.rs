//! What the API shows against what the database held: everything that a look at a cluster and its hosts shows, while it is under
//! way, and in the last look what is left.

use std::collections::{HashMap, HashSet};

use uuid::Uuid;
use vlab_api::Timestamp;
use vlab_api::types::{ClusterStatus, FinalizingStage, HostRole, HostStage, HostStatus, LogsState, OperatorStatus};
use vlab_history::Timeline;
use vlab_model::history::{HistoryPart, Observation, ResourceState, Source, What};
use vlab_model::validation::ValidationStatus;

use super::found::Found;
use super::limits::Limits;
use super::told::LateAnswers;
use super::{Id, InvariantResult};

/// Something that a host or a cluster has, as several sources show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Item<'h> {
    Status,
    Stage,
    Role,
    Logs,
    Percentage,
    FinalizingStage,
    Validation(&'h str),
    Operator(&'h str),
}

impl Item<'_> {
    /// In a sentence.
    pub(super) fn word(&self) -> String {
        match self {
            Self::Status => "status".to_owned(),
            Self::Stage => "stage".to_owned(),
            Self::Role => "role".to_owned(),
            Self::Logs => "state of its logs".to_owned(),
            Self::Percentage => "percentage".to_owned(),
            Self::FinalizingStage => "finalizing stage".to_owned(),
            Self::Validation(id) => format!("validation {id}"),
            Self::Operator(name) => format!("operator {name}"),
        }
    }
}

/// A value of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Value<'h> {
    HostStatus(HostStatus),
    ClusterStatus(ClusterStatus),
    Stage(Option<HostStage>, &'h str, i64),
    Role(HostRole, bool),
    Logs(LogsState),
    Percentage(i64),
    Finalizing(FinalizingStage),
    Validation(Option<ValidationStatus>),
    Operator(Option<OperatorStatus>),
}

impl std::fmt::Display for Value<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::HostStatus(status) => status.fmt(f),
            Self::ClusterStatus(status) => status.fmt(f),
            Self::Stage(None, ..) => f.write_str("no stage"),
            Self::Stage(Some(stage), info, percentage) => write!(f, "stage {stage} ({info}; {percentage} %)"),
            Self::Role(role, bootstrap) => write!(f, "role {role}{}", if *bootstrap { " and bootstrap" } else { "" }),
            Self::Logs(state) => write!(f, "logs {state}"),
            Self::Percentage(total) => write!(f, "{total} %"),
            Self::Finalizing(stage) => write!(f, "finalizing stage {stage}"),
            Self::Validation(status) => write!(f, "{status:?}"),
            Self::Operator(status) => write!(f, "{status:?}"),
        }
    }
}

/// What an observation says that something is.
pub(super) fn item(what: &What) -> Option<((Uuid, Item<'_>), Value<'_>)> {
    Some(match what {
        What::HostStatus { host, to, .. } => ((*host, Item::Status), Value::HostStatus(*to)),
        What::ClusterStatus { cluster, to, .. } => ((*cluster, Item::Status), Value::ClusterStatus(*to)),
        What::HostStage { host, to, info, percentage, .. } => {
            ((*host, Item::Stage), Value::Stage(*to, info, *percentage))
        }
        What::HostRole { host, role, bootstrap } => ((*host, Item::Role), Value::Role(*role, *bootstrap)),
        What::HostLogs { host, state } => ((*host, Item::Logs), Value::Logs(*state)),
        What::ClusterLogs { cluster, state } => ((*cluster, Item::Logs), Value::Logs(*state)),
        What::ClusterProgress { cluster, total } => ((*cluster, Item::Percentage), Value::Percentage(*total)),
        What::ClusterFinalizingStage { cluster, stage } => {
            ((*cluster, Item::FinalizingStage), Value::Finalizing(*stage))
        }
        What::Validation { subject, id, to, .. } => ((*subject, Item::Validation(id)), Value::Validation(*to)),
        What::Operator { cluster, name, status, .. } => ((*cluster, Item::Operator(name)), Value::Operator(*status)),
        _ => return None,
    })
}

type Held<'h> = HashMap<(Uuid, Item<'h>), Vec<(Timestamp, Value<'h>)>>;

/// Judges it.
pub(super) fn api_agrees(timeline: &Timeline<'_>) -> InvariantResult {
    let of = Id::ApiAgrees.named();
    let mut found = Found::default();
    if timeline.truth != Source::Database {
        return found.result(of, || "not checked: what the API shows is all that is known of the states".to_owned());
    }
    let mut held: Held<'_> = HashMap::new();
    let mut deleted: HashMap<Uuid, Timestamp> = HashMap::new();
    for o in timeline.observations.iter().filter(|o| o.source == Source::Database) {
        if let What::HostDeleted { host } = o.what {
            deleted.insert(host, o.at());
        }
        if let Some((key, value)) = item(&o.what) {
            held.entry(key).or_default().push((o.at(), value));
        }
    }
    let limits = Limits::new(timeline.run);
    let late = !LateAnswers::new(timeline.observations).is_empty();
    let mut asked: Option<&Observation> = None;
    let mut shown: HashMap<(Uuid, Item<'_>), (Timestamp, &Observation)> = HashMap::new();
    for o in timeline.observations.iter().filter(|o| o.source == Source::Poll) {
        if matches!(o.what, What::Asked { .. }) {
            asked = Some(o);
            continue;
        }
        let Some((key, value)) = item(&o.what) else { continue };
        // The service's own time of an operator is not when it was shown.
        let at = o.harness_time;
        shown.insert(key, (at, o));
        let was_asked = asked.filter(|asked| asked.harness_time == o.harness_time).and_then(|asked| match asked.what {
            What::Asked { at } => Some(at),
            _ => None,
        });
        // Where it is not told when that was asked.
        let since = |left: Timestamp| match was_asked {
            Some(when) => left + limits.in_flight() >= when,
            None => left + limits.answer() >= at,
        };
        let latest = at + limits.in_flight();
        let holds = match held.get(&key) {
            Some(values) if came_back_without(&deleted, &key, at, values) => continue,
            Some(values) => values.iter().enumerate().any(|(n, (from, one))| {
                *one == value && (late || (*from <= latest && values.get(n + 1).is_none_or(|(left, _)| since(*left))))
            }),
            // Tables need not have a column for all that the API shows.
            None if key.1 != Item::Status => continue,
            None => false,
        };
        found.check(o.seq, holds, || says(timeline, key, value));
    }
    if !late {
        last_look(timeline, (&held, &deleted), &shown, &mut found);
    }
    found.result(of, || "the history does not show what the API shows".to_owned())
}

/// A host that was deleted comes back with nothing: no change says that its row lacks what it had before.
fn came_back_without(
    deleted: &HashMap<Uuid, Timestamp>,
    (host, _): &(Uuid, Item<'_>),
    at: Timestamp,
    values: &[(Timestamp, Value<'_>)],
) -> bool {
    deleted.get(host).is_some_and(|gone| *gone <= at && values.iter().all(|(then, _)| then <= gone))
}

fn says(timeline: &Timeline<'_>, (id, item): (Uuid, Item<'_>), value: Value<'_>) -> String {
    let whose = match timeline.clusters.contains_key(&id) {
        true => format!("cluster {}", timeline.cluster_name(id)),
        false => timeline.host_name(id),
    };
    match item {
        Item::Status => format!("the API showed {whose} in {value}, which the database did not hold then"),
        item => format!("the API showed {whose} with {}: {value}, which the database did not hold then", item.word()),
    }
}

/// What the API showed last of everything must be what the database held when it was asked for the last time.
fn last_look<'h>(
    timeline: &'h Timeline<'h>,
    (held, deleted): (&Held<'h>, &HashMap<Uuid, Timestamp>),
    shown: &HashMap<(Uuid, Item<'h>), (Timestamp, &'h Observation)>,
    found: &mut Found,
) {
    let failed = |o: &&Observation| matches!(o.what, What::Incomplete { part: HistoryPart::LastLook, .. });
    let look = timeline.observations.iter().rev().find(|o| matches!(o.what, What::LastLook {}));
    let Some(look) = look.filter(|_| !timeline.observations.iter().any(|o| failed(&o))) else { return };
    let limits = Limits::new(timeline.run);
    let clusters = clusters_of_hosts(timeline);
    // Nobody looks at a cluster that the user has deleted from the hub.
    let ended = timeline.observations.iter().filter_map(|o| match &o.what {
        What::Resource { kind, name, is: ResourceState::Gone, .. } if kind == "AgentClusterInstall" => Some(name),
        _ => None,
    });
    let ended: HashSet<&String> = ended.collect();
    let gone = |cluster: Uuid| timeline.directory.cluster_names.get(&cluster).is_some_and(|name| ended.contains(name));
    let is_looked_at = |id: &Uuid| {
        let cluster = if timeline.clusters.contains_key(id) { Some(*id) } else { clusters.get(id).copied().flatten() };
        cluster.is_some_and(|cluster| timeline.directory.cluster_names.contains_key(&cluster) && !gone(cluster))
    };
    let mut last: Vec<_> = shown.iter().filter(|((id, _), _)| is_looked_at(id)).collect();
    last.sort_by_key(|(_, (_, o))| o.seq);
    for (key, (_, o)) in last {
        let (Some((_, value)), Some(values)) = (item(&o.what), held.get(key)) else { continue };
        if came_back_without(deleted, key, o.harness_time, values) {
            continue;
        }
        let since = |left: Timestamp| left + limits.in_flight() >= look.harness_time;
        let holds = values
            .iter()
            .enumerate()
            .any(|(n, (_, one))| *one == value && values.get(n + 1).is_none_or(|(left, _)| since(*left)));
        found.check(o.seq, holds, || {
            format!(
                "{}; it was so to the last look",
                says(timeline, *key, value).replace(", which", ", and still at the end, which")
            )
        });
    }
}

/// The cluster that each host is in at the end.
fn clusters_of_hosts(timeline: &Timeline<'_>) -> HashMap<Uuid, Option<Uuid>> {
    let mut clusters = HashMap::new();
    for change in &timeline.changes {
        match change.observation.what {
            What::HostDeleted { host } => _ = clusters.insert(host, None),
            What::HostStatus { host, cluster, .. } => _ = clusters.insert(host, cluster),
            _ => {}
        }
    }
    clusters
}
