//! What is compared of a history: for each host and cluster some strands (its statuses, its stages, each of its validations,
//! each kind of event), each a line of words in the order in which they came. Ids, times, texts and repeats are left out.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::LazyLock;
use std::time::Duration;

use regex::Regex;
use serde::{Serialize, Serializer};
use uuid::Uuid;
use vlab_api::Timestamp;
use vlab_api::types::{HostRole, LogsState, Severity};
use vlab_model::history::{Observation, ResourceCondition, RunInfo, Source, What};
use vlab_model::validation::ValidationStatus;

use crate::Timeline;

/// One thing about a host or cluster that goes from word to word.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Strand {
    /// Statuses.
    Status,
    /// Installation stages.
    Stage,
    /// Stages of finalizing a cluster.
    Finalizing,
    /// Role, and whether it is the bootstrap.
    Role,
    /// What the user did to it and how the service answered.
    User,
    /// Events of one kind; for some kinds of one validation or operator.
    Event(String),
    /// One validation.
    Validation(String),
    /// How much of the installation is done: of a host with each of its stages, of an installed cluster at the end.
    Percentage,
    /// What is known about its logs.
    Logs,
    /// One condition of a resource that stands for it: its kind, a slash, the condition's type.
    Condition(String),
    /// Severities of the events of one kind and word, and whom they name.
    Form(String),
    /// Order of two events.
    Order,
    /// Is it there at all?
    Presence,
}

impl fmt::Display for Strand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Status => f.write_str("status"),
            Self::Stage => f.write_str("stage"),
            Self::Finalizing => f.write_str("finalizing stage"),
            Self::Role => f.write_str("role"),
            Self::User => f.write_str("user"),
            Self::Event(kind) => write!(f, "event {kind}"),
            Self::Validation(id) => write!(f, "validation {id}"),
            Self::Percentage => f.write_str("percentage"),
            Self::Logs => f.write_str("logs"),
            Self::Condition(of) => write!(f, "condition {of}"),
            Self::Form(of) => write!(f, "form of event {of}"),
            Self::Order => f.write_str("order of events"),
            Self::Presence => f.write_str("presence"),
        }
    }
}

impl Serialize for Strand {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Host or cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EntityKind {
    /// The run as a whole: what belongs to no cluster and no host.
    Run,
    /// A cluster.
    Cluster,
    /// A host.
    Host,
}

/// Events that tell of logs that have come.
const LOGS_UPLOADED: &[&str] = &["host_logs_uploaded", "cluster_logs_uploaded"];

/// In place of such an event, where nothing is known of logs.
const TOLD_TOO_EARLY: &str = "told of logs that did not come";

/// How the kinds of events about validations begin.
const VALIDATION: &str = "validation ";

impl Strand {
    /// Does it follow from what monitors see, so that a word that held for a moment only may be missing?
    pub(super) fn may_miss(&self, word: &str) -> bool {
        match self {
            Self::Validation(_) => true,
            // A controller looks when it comes to it, and writes what is then.
            Self::Condition(_) => true,
            Self::Status => DERIVED.contains(&word),
            // What a monitor suggests for a host to which the user is about to give a role. Who is the bootstrap is decided once.
            Self::Role => !word.ends_with("bootstrap"),
            Self::Event(kind) if kind == "host_status_updated" || kind == "cluster_status_updated" => {
                DERIVED.contains(&word)
            }
            _ => false,
        }
    }

    /// May a word be missing that came just before the host was stopped, or after it? How far it gets until then depends on the
    /// moment. Not that it failed.
    pub(super) fn may_be_cut(&self, word: &str) -> bool {
        match self {
            Self::Validation(_) | Self::Condition(_) => true,
            Self::Stage => word != "Failed",
            Self::Percentage => true,
            Self::Event(kind) => kind == "host_install_progress_updated" && word != "Failed",
            _ => false,
        }
    }

    /// May this word be missing at the very end? Logs are sent beside the last report, and the end of a run does not wait for them:
    /// they may be told of and not be known yet. That they did not come in time is a word of its own.
    pub(super) fn runs_beside(&self, word: &str) -> bool {
        match self {
            Self::Event(kind) => LOGS_UPLOADED.contains(&kind.as_str()) && word == TOLD_TOO_EARLY,
            Self::Logs => word != logs_word(LogsState::Timeout),
            _ => false,
        }
    }

    /// Is it what was told of a validation?
    pub(super) fn is_of_validation(&self) -> bool {
        matches!(self, Self::Event(kind) if kind.starts_with(VALIDATION))
    }
}

impl EntityKind {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Run => "run",
            Self::Cluster => "cluster",
            Self::Host => "host",
        }
    }
}

/// A word of a line, with the time from which on it holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Word {
    /// The word.
    pub text: String,
    /// Since when.
    pub since: Timestamp,
}

/// A line of words, no two equal ones side by side.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Line {
    /// The words.
    pub words: Vec<Word>,
}

impl Line {
    fn push(&mut self, text: &str, since: Timestamp) {
        if self.words.last().is_none_or(|last| last.text != text) {
            self.words.push(Word { text: text.to_owned(), since });
        }
    }

    /// The words without their times.
    pub fn texts(&self) -> Vec<String> {
        self.words.iter().map(|w| w.text.clone()).collect()
    }

    /// Did the word at this position last so short a time? The last one lasts.
    pub fn is_brief(&self, position: usize, short: Duration) -> bool {
        match (self.words.get(position), self.words.get(position + 1)) {
            (Some(word), Some(next)) => next.since.since(word.since) <= short,
            _ => false,
        }
    }
}

/// Statuses that follow from validations alone, with each round of a monitor. Which of them are met on the way depends on the
/// moment at which the monitor looks.
const DERIVED: &[&str] = &[
    "discovering",
    "discovering-unbound",
    "insufficient",
    "insufficient-unbound",
    "known",
    "known-unbound",
    "pending-for-input",
    "ready",
];

/// Statuses that stop a host in the middle of whatever it does.
const STOPPED: &[&str] = &["error", "cancelled"];

/// What a validation is before it is looked at for the first time, and when it is not looked at any more.
pub(super) const NOT_EVALUATED: &str = "not evaluated";

/// When the first and the last of some equal events were.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// When it was first seen.
    pub first: Timestamp,
    /// When it was last seen.
    pub last: Timestamp,
}

/// A host or cluster of one history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entity {
    /// What it is.
    pub kind: EntityKind,
    /// Its name in the scenario.
    pub name: String,
    /// Its last role with "is the bootstrap"; hosts only.
    pub role: Option<(HostRole, bool)>,
    /// Its strands.
    pub strands: BTreeMap<Strand, Line>,
    /// A fault of the scenario hits it: no other host can play its part.
    pub hit: bool,
    /// Since when it is `error` or `cancelled`, if that is how it ended.
    pub stopped: Option<Timestamp>,
    /// Until when the run was looked at.
    pub ended: Timestamp,
    /// Each event (kind and word) with its time: for the order of events.
    pub moments: BTreeMap<(String, String), Span>,
    /// Last total percentage of a cluster, and since when.
    total: Option<(i64, Timestamp)>,
    /// Forms of its events, by kind and word, while they are gathered.
    forms: BTreeMap<String, BTreeSet<String>>,
}

impl Entity {
    fn new(kind: EntityKind, name: String) -> Self {
        Self {
            kind,
            name,
            role: None,
            strands: BTreeMap::new(),
            hit: false,
            stopped: None,
            ended: Timestamp::UNSET,
            moments: BTreeMap::new(),
            total: None,
            forms: BTreeMap::new(),
        }
    }

    fn push(&mut self, strand: Strand, word: &str, at: Timestamp) {
        self.strands.entry(strand).or_default().push(word, at);
    }

    /// An event that is told of it.
    fn add_event(&mut self, o: &Observation) {
        let What::Event { name, message, cluster, host, severity } = &o.what else { return };
        let (kind, word) = words_of(name, message);
        let whom = match (host, cluster) {
            (Some(_), Some(_)) => "of host and cluster",
            (Some(_), None) => "of host",
            (None, Some(_)) => "of cluster",
            (None, None) => "of nobody",
        };
        let form = format!("{} {whom}", severity_word(*severity));
        self.forms.entry(format!("{kind} {word}")).or_default().insert(form);
        let strand = Strand::Event(kind.clone());
        let timely = strand.is_of_validation() || strand.may_miss(&word);
        self.push(strand, &word, o.at());
        if timely {
            return;
        }
        let span = self.moments.entry((kind, word)).or_insert(Span { first: o.at(), last: o.at() });
        span.first = span.first.min(o.at());
        span.last = span.last.max(o.at());
    }

    /// Everything is read: what follows from the whole of it.
    fn finish(&mut self, ended: Timestamp, polled: bool) {
        self.check_validation_events();
        // Who only looks now and then may have missed that they came.
        if !polled {
            self.check_log_events();
        }
        for (of, forms) in std::mem::take(&mut self.forms) {
            let line = self.strands.entry(Strand::Form(of)).or_default();
            forms.iter().for_each(|form| line.push(form, Timestamp::UNSET));
        }
        self.ended = ended;
        let last = self.strands.get(&Strand::Status).and_then(|line| line.words.last());
        self.stopped = last.filter(|word| STOPPED.contains(&word.text.as_str())).map(|word| word.since);
        let installed = last.is_some_and(|word| word.text == "installed");
        if let (true, Some((total, at))) = (installed, self.total) {
            self.push(Strand::Percentage, &format!("{total} % at the end"), at);
        }
    }

    /// Compares what was told of each validation with what it went through: in place of the events stays what was told
    /// wrongly, or nothing.
    ///
    /// The real service tells of a failure unless it was one before, and of a success only after a failure; of a validation that
    /// is looked at for the first time it tells nothing.
    fn check_validation_events(&mut self) {
        let ids: BTreeSet<String> = (self.strands.keys())
            .filter_map(|strand| match strand {
                Strand::Validation(id) => Some(id.clone()),
                Strand::Event(kind) => kind.strip_prefix(VALIDATION).map(str::to_owned),
                _ => None,
            })
            .collect();
        for id in ids {
            let strand = Strand::Event(format!("{VALIDATION}{id}"));
            let told = self.strands.remove(&strand).unwrap_or_default();
            let mut due = Line::default();
            let path = self.strands.get(&Strand::Validation(id)).map(|l| l.words.as_slice()).unwrap_or_default();
            for pair in path.windows(2) {
                match (pair[0].text.as_str(), pair[1].text.as_str()) {
                    (NOT_EVALUATED, _) => {}
                    (_, "failure") => due.push("failed", pair[1].since),
                    ("failure", "success") => due.push("fixed", pair[1].since),
                    _ => {}
                }
            }
            let words = |line: &Line| match line.words.is_empty() {
                true => "nothing".to_owned(),
                false => line.texts().join(" and "),
            };
            if told.texts() != due.texts() {
                let at = told.words.first().or(due.words.first()).map(|w| w.since).unwrap_or_default();
                self.push(strand, &format!("told {} instead of {}", words(&told), words(&due)), at);
            }
        }
    }

    /// Compares what was told of logs with what is known about them: in place of the events stays what was told wrongly, or
    /// nothing. When they came is in what is known about them.
    fn check_log_events(&mut self) {
        let known = self.strands.get(&Strand::Logs).map(Line::texts).unwrap_or_default();
        let came = known.iter().any(|word| word == "collecting" || word == "completed");
        for kind in LOGS_UPLOADED {
            let of = if kind.starts_with("host") { EntityKind::Host } else { EntityKind::Cluster };
            let strand = Strand::Event((*kind).to_owned());
            let told = self.strands.remove(&strand);
            let wrong = match (&told, came) {
                (None, true) if of == self.kind => "told nothing although logs came",
                (Some(_), false) => TOLD_TOO_EARLY,
                _ => continue,
            };
            let line = told.as_ref().or(self.strands.get(&Strand::Logs));
            let at = line.and_then(|l| l.words.first()).map(|w| w.since).unwrap_or_default();
            self.push(strand, wrong, at);
        }
    }

    /// `master, bootstrap`, or nothing.
    pub fn role_text(&self) -> String {
        self.role.map(role_text).unwrap_or_default()
    }
}

/// What is compared of a history.
#[derive(Clone, Debug, PartialEq)]
pub struct Projection {
    /// The run.
    pub run: RunInfo,
    /// States were only looked at now and then: one that is missing may have been there.
    pub polled: bool,
    /// Hosts and clusters, by kind and name.
    pub entities: BTreeMap<(EntityKind, String), Entity>,
    /// Did the run come to its end, so that the history has a last line?
    pub whole: bool,
}

fn role_text((role, bootstrap): (HostRole, bool)) -> String {
    format!("{role}{}", if bootstrap { ", bootstrap" } else { "" })
}

/// How the words of an event are found in its text: a name, and a pattern with the groups `of` (what it is about: a kind of its
/// own) and `word`. The texts are those of the real service; where one does not match, the event's name has to do.
const TEXTS: &[(&str, &str)] = &[
    ("host_status_updated", r"updated status from \S+ to (?<word>\S+)"),
    ("cluster_status_updated", r"^Updated status of the cluster to (?<word>\S+)"),
    ("host_install_progress_updated", r"reached installation stage (?<word>[^:]+)"),
    ("cluster_finalizing_stage_updated", r"finalizing stage of the cluster to '(?<word>[^']+)'"),
    ("cluster_operator_status", r"^Operator (?<of>\S+) status: (?<word>\S+)"),
    ("host_role_updated", r"calculated role is (?<word>\S+)"),
    ("image_status_updated", r"result: (?<word>\w+)"),
    ("host_validation_failed", r"validation '(?<of>[^']+)'"),
    ("host_validation_fixed", r"validation '(?<of>[^']+)'"),
    ("cluster_validation_failed", r"validation '(?<of>[^']+)'"),
    ("cluster_validation_fixed", r"validation '(?<of>[^']+)'"),
];

static PATTERNS: LazyLock<BTreeMap<&'static str, Regex>> =
    LazyLock::new(|| TEXTS.iter().filter_map(|(name, p)| Some((*name, Regex::new(p).ok()?))).collect());

/// Kind and word of an event.
fn words_of(name: &str, message: &str) -> (String, String) {
    // Both sorts of events of a validation are one strand: failed, fixed, failed, ...
    let (kind, otherwise) = match name {
        "host_validation_failed" | "cluster_validation_failed" => ("validation", "failed"),
        "host_validation_fixed" | "cluster_validation_fixed" => ("validation", "fixed"),
        other => (other, "seen"),
    };
    let found = PATTERNS.get(name).and_then(|p| p.captures(message));
    let part = |group: &str| found.as_ref().and_then(|c| c.name(group)).map(|m| m.as_str().trim().to_owned());
    let kind = match part("of") {
        Some(of) => format!("{kind} {of}"),
        None => kind.to_owned(),
    };
    (kind, part("word").unwrap_or_else(|| otherwise.to_owned()))
}

fn logs_word(state: LogsState) -> &'static str {
    match state {
        LogsState::Empty => "none",
        LogsState::Requested => "requested",
        LogsState::Collecting => "collecting",
        LogsState::Completed => "completed",
        LogsState::Timeout => "timeout",
    }
}

fn severity_word(severity: Severity) -> &'static str {
    match severity {
        Severity::Info => "info",
        Severity::Warning => "warning",
        Severity::Error => "error",
        Severity::Critical => "critical",
    }
}

fn validation_word(status: Option<ValidationStatus>) -> String {
    match status {
        Some(status) => match serde_json::to_value(status) {
            Ok(serde_json::Value::String(word)) => word,
            _ => format!("{status:?}"),
        },
        None => NOT_EVALUATED.to_owned(),
    }
}

/// `True Reason`, or that it is not there any more.
fn condition_word(condition: Option<&ResourceCondition>) -> String {
    condition.map_or_else(|| "(gone)".to_owned(), |c| format!("{} {}", c.status, c.reason).trim_end().to_owned())
}

/// Kinds of resources whose conditions are those of a cluster, in whose namespace they are.
const OF_CLUSTERS: &[&str] = &["AgentClusterInstall", "ClusterDeployment", "InfraEnv"];

/// Reads off a history what is compared.
pub fn project(history: &[Observation]) -> Projection {
    let timeline = Timeline::new(history);
    let mut projection = Projection {
        run: timeline.run.cloned().unwrap_or_default(),
        polled: timeline.truth == Source::Poll && history.iter().any(|o| o.source == Source::Poll),
        entities: BTreeMap::new(),
        whole: matches!(history.last().map(|o| &o.what), Some(What::RunFinished { .. })),
    };
    for name in timeline.directory.hosts.keys() {
        projection.entity(EntityKind::Host, name.clone());
    }
    for name in timeline.directory.clusters.keys() {
        projection.entity(EntityKind::Cluster, name.clone());
    }
    let who = |host: Option<Uuid>, cluster: Option<Uuid>| match (host, cluster) {
        (Some(host), _) => (EntityKind::Host, timeline.host_name(host)),
        (None, Some(id)) => (EntityKind::Cluster, timeline.cluster_name(id)),
        (None, None) => (EntityKind::Run, "run".to_owned()),
    };
    let host = |id: Uuid| who(Some(id), None);
    let cluster = |id: Uuid| who(None, Some(id));
    // Events are told in pages; their own time is their order.
    let mut events: Vec<&Observation> = history.iter().filter(|o| matches!(o.what, What::Event { .. })).collect();
    events.sort_by_key(|o| (o.at(), o.seq));
    for o in timeline.changes.iter().map(|change| change.observation) {
        let at = o.at();
        match &o.what {
            What::HostStatus { host: id, to, .. } => projection.add(host(*id), Strand::Status, to.as_str(), at),
            What::HostStage { host: id, from, to, percentage, .. } if from != to => {
                let stage = to.map_or("(none)", |stage| stage.as_str());
                projection.add(host(*id), Strand::Stage, stage, at);
                projection.add(host(*id), Strand::Percentage, &format!("{stage} {percentage} %"), at);
            }
            What::HostLogs { host: id, state } => projection.add(host(*id), Strand::Logs, logs_word(*state), at),
            What::ClusterLogs { cluster: id, state } => {
                projection.add(cluster(*id), Strand::Logs, logs_word(*state), at);
            }
            What::ClusterProgress { cluster: id, total } => {
                // On the way it depends on who reports first.
                let (kind, name) = cluster(*id);
                projection.entity(kind, name).total = Some((*total, at));
            }
            What::HostRole { host: id, role, bootstrap } => {
                projection.add(host(*id), Strand::Role, &role_text((*role, *bootstrap)), at);
                let (kind, name) = host(*id);
                projection.entity(kind, name).role = Some((*role, *bootstrap));
            }
            What::HostDeleted { host: id } => projection.add(host(*id), Strand::Status, "(deleted)", at),
            What::ClusterStatus { cluster: id, to, .. } => {
                projection.add(cluster(*id), Strand::Status, to.as_str(), at);
            }
            What::ClusterFinalizingStage { cluster: id, stage } => {
                projection.add(cluster(*id), Strand::Finalizing, stage.as_str(), at);
            }
            What::Validation { subject, is_cluster, id, to, .. } => {
                let who = if *is_cluster { cluster(*subject) } else { host(*subject) };
                projection.add(who, Strand::Validation(id.clone()), &validation_word(*to), at);
            }
            _ => {}
        }
    }
    for o in history {
        if let What::Fault { host: Some(id), .. } = &o.what {
            let (kind, name) = host(*id);
            projection.entity(kind, name).hit = true;
        }
        if let What::Resource { kind, namespace, name, conditions, .. } = &o.what {
            let of_host = Uuid::parse_str(name).ok().filter(|id| timeline.directory.host_names.contains_key(id));
            let who = match of_host {
                Some(id) if kind == "Agent" => host(id),
                _ if !OF_CLUSTERS.contains(&kind.as_str()) => continue,
                // Hosts of no cluster belong to an InfraEnv with a namespace of its own.
                _ if timeline.directory.clusters.contains_key(namespace) => (EntityKind::Cluster, namespace.clone()),
                _ => (EntityKind::Run, "run".to_owned()),
            };
            for (condition, word) in conditions {
                let strand = Strand::Condition(format!("{kind}/{condition}"));
                projection.add(who.clone(), strand, &condition_word(word.as_ref()), o.at());
            }
        }
        if let What::UserAction { action, subject, status, .. } = &o.what {
            let who = match subject {
                Some(id) if timeline.directory.host_names.contains_key(id) => host(*id),
                Some(id) => cluster(*id),
                None => who(None, None),
            };
            projection.add(who, Strand::User, &format!("{action} {status}"), o.at());
        }
    }
    for o in events {
        if let What::Event { name, host, cluster, .. } = &o.what
            && !name.is_empty()
        {
            let (kind, name) = who(*host, *cluster);
            projection.entity(kind, name).add_event(o);
        }
    }
    let ended = history.last().map_or(Timestamp::UNSET, Observation::at);
    let polled = projection.polled;
    projection.entities.values_mut().for_each(|entity| entity.finish(ended, polled));
    projection
}

impl Projection {
    fn entity(&mut self, kind: EntityKind, name: String) -> &mut Entity {
        self.entities.entry((kind, name.clone())).or_insert_with(|| Entity::new(kind, name))
    }

    fn add(&mut self, (kind, name): (EntityKind, String), strand: Strand, word: &str, at: Timestamp) {
        self.entity(kind, name).push(strand, word, at);
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case(
        "host_status_updated",
        "Host m: updated status from known to installing (go)",
        "host_status_updated",
        "installing"
    )]
    #[case("cluster_status_updated", "Updated status of the cluster to ready", "cluster_status_updated", "ready")]
    #[case(
        "host_install_progress_updated",
        "Host: m, reached installation stage Writing image to disk: 42%",
        "host_install_progress_updated",
        "Writing image to disk"
    )]
    #[case(
        "cluster_operator_status",
        "Operator console status: available message: all well",
        "cluster_operator_status console",
        "available"
    )]
    #[case(
        "host_validation_failed",
        "Host m: validation 'ntp-synced' that used to succeed is now failing",
        "validation ntp-synced",
        "failed"
    )]
    #[case(
        "cluster_validation_fixed",
        "Cluster validation 'api-vips-valid' is now fixed",
        "validation api-vips-valid",
        "fixed"
    )]
    #[case(
        "image_status_updated",
        "Host m: New image status q/i@x. result: success. time: 1.00 s",
        "image_status_updated",
        "success"
    )]
    #[case("host_bootstrap_set", "Host m: set as bootstrap", "host_bootstrap_set", "seen")]
    // A text that nobody knows: the name has to do.
    #[case("host_status_updated", "?", "host_status_updated", "seen")]
    fn events_have_a_kind_and_a_word(
        #[case] name: &str,
        #[case] message: &str,
        #[case] kind: &str,
        #[case] word: &str,
    ) {
        assert_eq!(words_of(name, message), (kind.to_owned(), word.to_owned()));
    }

    #[test]
    fn every_pattern_can_be_read() {
        assert_eq!(PATTERNS.len(), TEXTS.len());
    }
}
