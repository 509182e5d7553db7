//! What is looked at in a host and a cluster, and what has changed between two looks.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::str::FromStr;
use std::sync::Arc;

use serde::Deserialize;
use uuid::Uuid;
use vlab_api::Timestamp;
use vlab_api::types::{
    Cluster, ClusterStatus, FinalizingStage, Host, HostRole, HostStage, HostStatus, LogsState, MonitoredOperator,
    OperatorStatus, OperatorType, Text,
};
use vlab_model::history::What;
use vlab_model::validation::{ClusterValidations, HostValidations, Validation, ValidationStatus};
use vlab_model::view::{ClusterView, HostView};

use crate::times;

/// The members of a host that a history follows. The names are those of the columns in the service's table.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct HostFacts {
    /// Status as the service has it.
    pub status: HostStatus,
    /// The service's words about it.
    pub status_info: String,
    /// Cluster, when bound.
    pub cluster_id: Option<Uuid>,
    /// Installation stage; empty when there is none.
    pub progress_current_stage: String,
    /// Text about the stage.
    pub progress_progress_info: String,
    /// Percentage of the installation.
    pub progress_installation_percentage: i64,
    /// Role as set, or `auto-assign`.
    pub role: String,
    /// Role that the service would choose.
    pub suggested_role: String,
    /// Is it the bootstrap?
    pub bootstrap: bool,
    /// State of its logs; empty when there are none.
    pub logs_info: String,
    /// It was noted that it does not answer any more.
    pub connection_timed_out: Option<bool>,
    /// When its status changed.
    #[serde(deserialize_with = "times::time")]
    pub status_updated_at: Option<Timestamp>,
    /// When its stage began.
    #[serde(deserialize_with = "times::time")]
    pub progress_stage_started_at: Option<Timestamp>,
    /// When it told something of its stage.
    #[serde(deserialize_with = "times::time")]
    pub progress_stage_updated_at: Option<Timestamp>,
    /// Which of the things that hosts tell are there, where the row is not read from a table: they are long texts.
    #[serde(skip)]
    pub held: Option<[bool; HELD.len()]>,
    /// Validations as JSON text. `None`: not looked at this time.
    pub validations_info: Option<Text>,
    /// The same as they were evaluated, where the row is not read from a table: then nobody has to read the text.
    #[serde(skip)]
    pub evaluated: Option<Arc<HostValidations>>,
}

/// Members of a host of which a history follows only whether they are there.
const HELD: [&str; 4] = ["inventory", "ntp_sources", "images_status", "logs_collected_at"];

fn held(host: &Host) -> [bool; HELD.len()] {
    let is = |text: &Option<Text>| text.as_deref().is_some_and(|t| !["", "null", "{}", "[]"].contains(&t));
    let logs = host.logs_collected_at.is_some_and(|t| t.is_set());
    [is(&host.inventory), is(&host.ntp_sources), is(&host.images_status), logs]
}

impl HostFacts {
    /// The role that counts: the one that was set, else the suggested one.
    pub fn effective_role(&self) -> HostRole {
        let set: HostRole = self.role.parse().unwrap_or(HostRole::AutoAssign);
        if set == HostRole::AutoAssign { self.suggested_role.parse().unwrap_or(set) } else { set }
    }

    fn stage(&self) -> Option<HostStage> {
        self.progress_current_stage.parse().ok()
    }

    fn told(&self) -> Told<'_> {
        Told { text: self.validations_info.as_ref(), evaluated: self.evaluated.as_ref().map(|all| &*all.0) }
    }
}

impl From<&HostView> for HostFacts {
    fn from(view: &HostView) -> Self {
        Self { evaluated: view.evaluated().cloned(), ..Self::from(&view.host) }
    }
}

impl From<&Host> for HostFacts {
    fn from(host: &Host) -> Self {
        let progress = host.progress.clone().unwrap_or_default();
        Self {
            status: host.status,
            status_info: host.status_info.clone(),
            cluster_id: host.cluster_id,
            progress_current_stage: progress.current_stage.map(|s| s.as_str().to_owned()).unwrap_or_default(),
            progress_progress_info: progress.progress_info.unwrap_or_default(),
            progress_installation_percentage: progress.installation_percentage.unwrap_or_default(),
            role: host.role.map(|r| r.as_str().to_owned()).unwrap_or_default(),
            suggested_role: host.suggested_role.map(|r| r.as_str().to_owned()).unwrap_or_default(),
            bootstrap: host.bootstrap.unwrap_or_default(),
            logs_info: host.logs_info.map(|l| l.as_str().to_owned()).unwrap_or_default(),
            connection_timed_out: host.connection_timed_out,
            status_updated_at: host.status_updated_at,
            progress_stage_started_at: progress.stage_started_at,
            progress_stage_updated_at: progress.stage_updated_at,
            held: Some(held(host)),
            validations_info: host.validations_info.clone(),
            evaluated: None,
        }
    }
}

/// The members of a cluster that a history follows. The names are those of the columns in the service's table.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ClusterFacts {
    /// Status as the service has it.
    pub status: ClusterStatus,
    /// The service's words about it.
    pub status_info: String,
    /// Percentage of the installation.
    pub progress_total_percentage: i64,
    /// What the controller said it is at; empty when nothing.
    pub progress_finalizing_stage: String,
    /// State of its controller's logs; empty when there are none.
    pub logs_info: String,
    /// When its status changed.
    #[serde(deserialize_with = "times::time")]
    pub status_updated_at: Option<Timestamp>,
    /// When its installation began.
    #[serde(deserialize_with = "times::time")]
    pub install_started_at: Option<Timestamp>,
    /// When it came to its end.
    #[serde(deserialize_with = "times::time")]
    pub install_completed_at: Option<Timestamp>,
    /// Since when it is in its finalizing stage.
    #[serde(deserialize_with = "times::time")]
    pub progress_finalizing_stage_started_at: Option<Timestamp>,
    /// These three are told as they are. Where the row is read from a table, only one that does not follow is told.
    #[serde(skip)]
    pub tells_times: bool,
    /// What came of its last preparation, where the row is not read from a table.
    #[serde(skip)]
    pub last_preparation: Option<String>,
    /// Validations as JSON text. `None`: not looked at this time.
    pub validations_info: Option<Text>,
    /// The same as they were evaluated, where the row is not read from a table: then nobody has to read the text.
    #[serde(skip)]
    pub evaluated: Option<Arc<ClusterValidations>>,
}

impl ClusterFacts {
    fn told(&self) -> Told<'_> {
        Told { text: self.validations_info.as_ref(), evaluated: self.evaluated.as_ref().map(|all| &*all.0) }
    }
}

impl From<&ClusterView> for ClusterFacts {
    fn from(view: &ClusterView) -> Self {
        Self { evaluated: view.evaluated().cloned(), ..Self::from(&view.cluster) }
    }
}

impl From<&Cluster> for ClusterFacts {
    fn from(cluster: &Cluster) -> Self {
        let progress = cluster.progress.clone().unwrap_or_default();
        Self {
            status: cluster.status,
            status_info: cluster.status_info.clone(),
            progress_total_percentage: progress.total_percentage.unwrap_or_default(),
            progress_finalizing_stage: progress.finalizing_stage.map(|s| s.as_str().to_owned()).unwrap_or_default(),
            logs_info: cluster.logs_info.map(|l| l.as_str().to_owned()).unwrap_or_default(),
            status_updated_at: cluster.status_updated_at,
            install_started_at: cluster.install_started_at,
            install_completed_at: cluster.install_completed_at,
            progress_finalizing_stage_started_at: progress.finalizing_stage_started_at,
            tells_times: true,
            last_preparation: cluster.last_installation_preparation.as_ref().and_then(|p| p.status.clone()),
            validations_info: cluster.validations_info.clone(),
            evaluated: None,
        }
    }
}

/// The members of a monitored operator that a history follows. The names are those of the columns in the service's table.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct OperatorFacts {
    /// Its name, which with the cluster's id makes it unique.
    pub name: String,
    /// `builtin` or `olm`.
    pub operator_type: String,
    /// As the controller reported it; empty when it did not yet.
    pub status: String,
    /// When it changed.
    #[serde(deserialize_with = "times::time")]
    pub status_updated_at: Option<Timestamp>,
}

impl From<&MonitoredOperator> for OperatorFacts {
    fn from(operator: &MonitoredOperator) -> Self {
        Self {
            name: operator.name.clone().unwrap_or_default(),
            operator_type: operator.operator_type.map(|t| t.as_str().to_owned()).unwrap_or_default(),
            status: operator.status.map(|s| s.as_str().to_owned()).unwrap_or_default(),
            status_updated_at: operator.status_updated_at,
        }
    }
}

/// What changed in a monitored operator. `old` is `None` for one that was not seen before.
pub fn diff_operator(cluster: Uuid, old: Option<&OperatorFacts>, new: &OperatorFacts) -> Vec<What> {
    let said = |facts: &OperatorFacts| (facts.operator_type.clone(), facts.status.clone());
    if old.is_some_and(|old| said(old) == said(new)) {
        return Vec::new();
    }
    let (name, status, kind) = (new.name.clone(), new.status.parse().ok(), new.operator_type.parse().ok());
    let mut changes = vec![What::Operator { cluster, name, status, kind }];
    let blank = OperatorFacts::default();
    let before = old.unwrap_or(&blank);
    let words = [
        ("operator_type", &before.operator_type, &new.operator_type, is::<OperatorType> as Known),
        ("status", &before.status, &new.status, is::<OperatorStatus>),
    ];
    changes.extend(unknown_words(cluster, OPERATOR, &words));
    changes
}

/// What changed in a host. `old` is `None` for a host that was not seen before.
pub fn diff_host(host: Uuid, old: Option<&HostFacts>, new: &HostFacts) -> Vec<What> {
    let mut changes = Vec::new();
    if old.is_none_or(|o| o.status != new.status) {
        changes.push(What::HostStatus {
            host,
            cluster: new.cluster_id,
            from: old.map(|o| o.status),
            to: new.status,
            info: new.status_info.clone(),
        });
    }
    changes.extend(
        old.filter(|o| o.status == new.status && o.status_info != new.status_info).map(|_| What::StatusInfo {
            subject: host,
            is_cluster: false,
            info: new.status_info.clone(),
        }),
    );
    let blank = HostFacts::default();
    let before = old.unwrap_or(&blank);
    let progress = |facts: &HostFacts| {
        (facts.stage(), facts.progress_progress_info.clone(), facts.progress_installation_percentage)
    };
    if progress(before) != progress(new) {
        changes.push(What::HostStage {
            host,
            from: before.stage(),
            to: new.stage(),
            info: new.progress_progress_info.clone(),
            percentage: new.progress_installation_percentage,
        });
    }
    if old.is_none_or(|o| (o.effective_role(), o.bootstrap) != (new.effective_role(), new.bootstrap)) {
        changes.push(What::HostRole { host, role: new.effective_role(), bootstrap: new.bootstrap });
    }
    if before.logs_info != new.logs_info
        && let Ok(state) = new.logs_info.parse()
    {
        changes.push(What::HostLogs { host, state });
    }
    let silent = |facts: &HostFacts| facts.connection_timed_out.filter(|noted| *noted).map(|noted| noted.to_string());
    changes.extend(member((host, false), "connection_timed_out", silent(before), silent(new)));
    if let Some(now) = new.held {
        let was = before.held.unwrap_or_default();
        for ((name, old), new) in HELD.iter().zip(was).zip(now) {
            let there = |is: bool| is.then(|| "there".to_owned());
            changes.extend(member((host, false), name, there(old), there(new)));
        }
    }
    diff_validations(host, false, before.told(), new.told(), &mut changes);
    let words = [
        (
            "progress_current_stage",
            &before.progress_current_stage,
            &new.progress_current_stage,
            is::<HostStage> as Known,
        ),
        ("role", &before.role, &new.role, is::<HostRole>),
        ("suggested_role", &before.suggested_role, &new.suggested_role, is::<HostRole>),
        ("logs_info", &before.logs_info, &new.logs_info, is::<LogsState>),
    ];
    changes.extend(unknown_words(host, HOST, &words));
    changes
}

/// A member that has no observation of its own, where it changed.
fn member((subject, is_cluster): (Uuid, bool), name: &str, old: Option<String>, new: Option<String>) -> Option<What> {
    let value = new.clone().unwrap_or_default();
    (old != new).then(|| What::Member { subject, is_cluster, name: name.to_owned(), value })
}

/// A time that was set: the service writes the beginning of the year 1, or of 2000, for one that was not.
fn time(time: Option<Timestamp>) -> Option<String> {
    time.filter(|time| time.is_set()).map(|time| time.to_string()).filter(|text| !text.starts_with("2000-"))
}

/// What a row of a host is called in [`What::Unreadable`].
const HOST: &str = "the row of a host";
/// The same of a monitored operator, told of its cluster.
const OPERATOR: &str = "the row of a monitored operator";
/// The same of a cluster.
const CLUSTER: &str = "the row of a cluster";

/// Is the text one of the API's words?
type Known = fn(&str) -> bool;

fn is<T: FromStr>(word: &str) -> bool {
    word.parse::<T>().is_ok()
}

/// New texts that should be words of the API and are none: member, before, after, and which words there are.
fn unknown_words(subject: Uuid, of: &str, words: &[(&str, &String, &String, Known)]) -> Vec<What> {
    let unknown = |(member, old, new, known): &(&str, &String, &String, Known)| {
        (!new.is_empty() && old != new && !known(new)).then(|| What::Unreadable {
            subject: Some(subject),
            of: of.to_owned(),
            error: format!("its {member} is {new:?}, which is not a word of the API"),
        })
    };
    words.iter().filter_map(unknown).collect()
}

/// What changed in a cluster. `old` is `None` for a cluster that was not seen before.
pub fn diff_cluster(cluster: Uuid, old: Option<&ClusterFacts>, new: &ClusterFacts) -> Vec<What> {
    let mut changes = Vec::new();
    if old.is_none_or(|o| o.status != new.status) {
        changes.push(What::ClusterStatus {
            cluster,
            from: old.map(|o| o.status),
            to: new.status,
            info: new.status_info.clone(),
        });
    }
    changes.extend(
        old.filter(|o| o.status == new.status && o.status_info != new.status_info).map(|_| What::StatusInfo {
            subject: cluster,
            is_cluster: true,
            info: new.status_info.clone(),
        }),
    );
    let blank = ClusterFacts::default();
    let before = old.unwrap_or(&blank);
    if before.progress_total_percentage != new.progress_total_percentage {
        changes.push(What::ClusterProgress { cluster, total: new.progress_total_percentage });
    }
    if before.progress_finalizing_stage != new.progress_finalizing_stage
        && let Ok(stage) = new.progress_finalizing_stage.parse::<FinalizingStage>()
    {
        changes.push(What::ClusterFinalizingStage { cluster, stage });
    }
    if before.logs_info != new.logs_info
        && let Ok(state) = new.logs_info.parse()
    {
        changes.push(What::ClusterLogs { cluster, state });
    }
    let times = [
        ("install_started_at", before.install_started_at, new.install_started_at),
        ("install_completed_at", before.install_completed_at, new.install_completed_at),
        (
            "finalizing_stage_started_at",
            before.progress_finalizing_stage_started_at,
            new.progress_finalizing_stage_started_at,
        ),
    ];
    for (name, old, new) in times.into_iter().filter(|_| new.tells_times) {
        changes.extend(member((cluster, true), name, time(old), time(new)));
    }
    let preparations = (before.last_preparation.clone(), new.last_preparation.clone());
    changes.extend(member((cluster, true), "last-installation-preparation", preparations.0, preparations.1));
    diff_validations(cluster, true, before.told(), new.told(), &mut changes);
    let (stage, logs) = (&new.progress_finalizing_stage, &new.logs_info);
    let words = [
        ("progress_finalizing_stage", &before.progress_finalizing_stage, stage, is::<FinalizingStage> as Known),
        ("logs_info", &before.logs_info, logs, is::<LogsState>),
    ];
    changes.extend(unknown_words(cluster, CLUSTER, &words));
    changes
}

#[derive(Deserialize)]
struct StoredValidation<'a> {
    #[serde(borrow)]
    id: Cow<'a, str>,
    status: ValidationStatus,
    #[serde(borrow, default)]
    message: Cow<'a, str>,
}

/// What a row says of its validations.
#[derive(Clone, Copy)]
struct Told<'a> {
    text: Option<&'a Text>,
    evaluated: Option<&'a [Validation]>,
}

impl<'a> Told<'a> {
    /// Its validations; a row that has none has no text, or `null`.
    fn validations(self) -> Result<Vec<StoredValidation<'a>>, serde_json::Error> {
        if let Some(evaluated) = self.evaluated {
            let shown = evaluated.iter().filter(|v| !v.hidden);
            let entry = |v: &'a Validation| StoredValidation {
                id: Cow::Borrowed(v.id),
                status: v.status,
                message: Cow::Borrowed(&*v.message),
            };
            return Ok(shown.map(entry).collect());
        }
        let text = self.text.map_or("", |text| text);
        if text.is_empty() {
            return Ok(Vec::new());
        }
        let by_category: Option<BTreeMap<Cow<'a, str>, Option<Vec<StoredValidation<'a>>>>> =
            serde_json::from_str(text)?;
        Ok(by_category.into_iter().flat_map(BTreeMap::into_values).flatten().flatten().collect())
    }
}

fn diff_validations(subject: Uuid, is_cluster: bool, old: Told<'_>, new: Told<'_>, changes: &mut Vec<What>) {
    if new.text.is_none() || old.text == new.text {
        return;
    }
    let now = match new.validations() {
        Ok(now) => now,
        Err(error) => {
            let of = if is_cluster { CLUSTER } else { HOST }.to_owned();
            let error = format!("its validations_info: {error}");
            return changes.push(What::Unreadable { subject: Some(subject), of, error });
        }
    };
    // What could not be read before was told then, and counts as none.
    let before = old.validations().unwrap_or_default();
    // Both lists have nearly the same order: the place behind the one that was found last is the best guess.
    let mut place = 0;
    let mut gone: Vec<bool> = vec![true; before.len()];
    let mut find = |id: &str| {
        let (earlier, later) = before.split_at(place);
        let is = |entry: &StoredValidation<'_>| entry.id == id;
        let found = later.iter().position(is).map(|i| place + i).or_else(|| earlier.iter().position(is))?;
        place = found + 1;
        gone[found] = false;
        Some(before[found].status)
    };
    let mut told: Vec<(StoredValidation<'_>, Option<ValidationStatus>)> = Vec::new();
    for entry in now {
        let from = find(&entry.id);
        if from != Some(entry.status) {
            told.push((entry, from));
        }
    }
    told.sort_by(|(a, _), (b, _)| a.id.cmp(&b.id));
    changes.extend(told.into_iter().map(|(StoredValidation { id, status, message }, from)| What::Validation {
        subject,
        is_cluster,
        id: id.into_owned(),
        from,
        to: Some(status),
        message: message.into_owned(),
    }));
    let mut gone: Vec<&StoredValidation<'_>> =
        before.iter().zip(gone).filter_map(|(entry, gone)| gone.then_some(entry)).collect();
    gone.sort_by(|a, b| a.id.cmp(&b.id));
    changes.extend(gone.into_iter().map(|entry| What::Validation {
        subject,
        is_cluster,
        id: entry.id.clone().into_owned(),
        from: Some(entry.status),
        to: None,
        message: String::new(),
    }));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(status: HostStatus, stage: &str, validations: &str) -> HostFacts {
        HostFacts {
            status,
            progress_current_stage: stage.into(),
            role: "auto-assign".into(),
            suggested_role: "worker".into(),
            validations_info: Some(validations.into()),
            ..HostFacts::default()
        }
    }

    #[test]
    fn a_new_host_has_a_status_a_role_and_validations() {
        let id = Uuid::from_u128(1);
        let text = r#"{"hardware":[{"id":"has-inventory","status":"failure","message":"none"}],"operators":null}"#;
        let changes = diff_host(id, None, &host(HostStatus::Discovering, "", text));
        assert_eq!(changes.len(), 3, "{changes:?}");
        assert!(matches!(changes[0], What::HostStatus { from: None, to: HostStatus::Discovering, .. }));
        assert!(matches!(changes[1], What::HostRole { role: HostRole::Worker, bootstrap: false, .. }));
        assert!(
            matches!(&changes[2], What::Validation { id, from: None, to: Some(ValidationStatus::Failure), .. } if id == "has-inventory")
        );
    }

    #[test]
    fn only_what_changed_is_told() {
        let id = Uuid::from_u128(1);
        let a =
            host(HostStatus::Installing, "", r#"{"x":[{"id":"a","status":"success"},{"id":"b","status":"pending"}]}"#);
        let b = host(
            HostStatus::InstallingInProgress,
            "Installing",
            r#"{"x":[{"id":"a","status":"success"},{"id":"c","status":"success"}]}"#,
        );
        assert_eq!(diff_host(id, Some(&a), &a), vec![]);
        let changes = diff_host(id, Some(&a), &b);
        assert_eq!(changes.len(), 4, "{changes:?}");
        assert!(matches!(&changes[1], What::HostStage { from: None, to: Some(HostStage::Installing), .. }));
        assert!(matches!(&changes[2], What::Validation { id, from: None, .. } if id == "c"));
        assert!(matches!(&changes[3], What::Validation { id, to: None, .. } if id == "b"));
        let unseen = HostFacts { validations_info: None, ..b.clone() };
        assert_eq!(diff_host(id, Some(&b), &unseen), vec![], "validations that were not looked at have not changed");
    }

    #[test]
    fn a_cluster_moves() {
        let id = Uuid::from_u128(2);
        let a = ClusterFacts { status: ClusterStatus::Installing, progress_total_percentage: 50, ..Default::default() };
        let b = ClusterFacts {
            status: ClusterStatus::Finalizing,
            progress_total_percentage: 80,
            progress_finalizing_stage: "Adding router ca".into(),
            ..Default::default()
        };
        let changes = diff_cluster(id, Some(&a), &b);
        assert_eq!(changes.len(), 3, "{changes:?}");
        assert!(matches!(changes[2], What::ClusterFinalizingStage { stage: FinalizingStage::AddingRouterCa, .. }));
    }

    #[test]
    fn what_cannot_be_understood_is_told_once() {
        let id = Uuid::from_u128(1);
        let unreadable = |changes: Vec<What>| -> Vec<String> {
            let told = changes.into_iter().filter_map(|what| match what {
                What::Unreadable { subject, of, error } => {
                    assert_eq!(subject, Some(id));
                    Some(format!("{of}: {error}"))
                }
                _ => None,
            });
            told.collect()
        };
        let good = host(HostStatus::Installing, "Installing", r#"{"x":null}"#);
        assert_eq!(unreadable(diff_host(id, None, &good)), [] as [&str; 0]);
        assert_eq!(unreadable(diff_host(id, None, &host(HostStatus::Known, "", "null"))), [] as [&str; 0]);
        let odd = HostFacts {
            role: "boss".into(),
            logs_info: "lost".into(),
            ..host(HostStatus::Installing, "Flying", r#"{"x":[{"id":"a","status":"so so"}]}"#)
        };
        let told = unreadable(diff_host(id, Some(&good), &odd));
        assert_eq!(told.len(), 4, "{told:?}");
        assert!(told[0].starts_with("the row of a host: its validations_info: unknown variant"), "{told:?}");
        assert_eq!(
            told[1],
            "the row of a host: its progress_current_stage is \"Flying\", which is not a word of the API"
        );
        let moved = HostFacts { status_info: "new".into(), ..odd.clone() };
        assert_eq!(unreadable(diff_host(id, Some(&odd), &moved)), [] as [&str; 0], "it was told before");
        let odd = ClusterFacts { progress_finalizing_stage: "Dreaming".into(), ..ClusterFacts::default() };
        let told = unreadable(diff_cluster(id, None, &odd));
        assert_eq!(
            told,
            ["the row of a cluster: its progress_finalizing_stage is \"Dreaming\", which is not a word of the API"]
        );
    }
}
