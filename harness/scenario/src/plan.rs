//! Load plans: how many hosts, how they arrive, what they do, and how well the service has to bear it.

use std::sync::Arc;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::catalogue::Catalogue;
use crate::diagnostic::{LoadError, SourceFile};
use crate::spanned::{At, Plain, Text};
use crate::time::Span;
use crate::types::Scenario;
use crate::words::{Arrivals, LoadConnections, LoadMode, ReplyCache};

/// A shorter hold does not tell whether memory grows.
pub const SHORTEST_SOAK: Duration = Duration::from_secs(5 * 60);

/// A load plan: which load a service is put under, and how well it has to bear it.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "LoadPlan")]
pub(crate) struct PlanFile {
    /// Version of the language.
    #[schemars(range(min = 1, max = 1))]
    pub(crate) version: At<i64>,
    /// Name of the plan, the same as its file's. Lower-case letters, digits and dashes.
    pub(crate) name: Text<Plain>,
    /// What it is to find out, for people.
    pub(crate) description: Option<String>,
    /// Fixes the seed of all random choices. By default 1.
    pub(crate) seed: Option<u64>,
    /// What the hosts do: `idle`, `reboot-storm`, `reconnect`, `installs`.
    pub(crate) mode: Text<LoadMode>,
    /// Who they are.
    pub(crate) population: PopulationFile,
    /// How they arrive in a phase: `even`, `poisson`, or in ten groups: `burst`.
    #[schemars(extend("default" = "even"))]
    pub(crate) arrivals: Option<Text<Arrivals>>,
    /// Time between two polls of a host, which does not depend on how fast the service answers.
    #[schemars(extend("default" = "60s"))]
    pub(crate) cadence: Option<Text<Span>>,
    /// Does a host answer a step again that it has answered before: `real` or `off`.
    #[schemars(extend("default" = "real"))]
    pub(crate) reply_cache: Option<Text<ReplyCache>>,
    /// `per-host`, or `pooled`.
    #[schemars(extend("default" = "per-host"))]
    pub(crate) connections: Option<Text<LoadConnections>>,
    /// Number of shared connections, for `connections: pooled`.
    pub(crate) pool: Option<At<i64>>,
    /// With `installs`: how fast the clockwork of hosts and users runs; the service must have been started with the same. By default
    /// that of each scenario.
    pub(crate) time_profile: Option<Text<Plain>>,
    /// With `installs`: the wall time between two looks of a user at a cluster.
    #[schemars(extend("default" = "5s"))]
    pub(crate) look: Option<Text<Span>>,
    /// With `installs`: when a cluster has come to its end, the next one begins in its place, until the plan is over.
    #[schemars(extend("default" = false))]
    pub(crate) back_to_back: Option<At<bool>>,
    /// What happens one after the other. Each item has exactly one of `ramp`, `hold`, `storm`, `drain`, with how long it takes.
    pub(crate) phases: At<Vec<At<PhaseFile>>>,
    /// What ends the plan before its time.
    pub(crate) stop: Option<StopFile>,
    /// What must hold; what does not makes the exit code 5.
    pub(crate) thresholds: Option<ThresholdsFile>,
}

/// The hosts of a load plan.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Population")]
pub(crate) struct PopulationFile {
    /// Hosts that belong to no cluster. With all modes but `installs`; they may stand beside `clusters`.
    pub(crate) unbound: Option<At<i64>>,
    /// Clusters with their hosts, each as a scenario has it. With `installs` its user installs them; with the other modes they are made and
    /// nobody installs them: their hosts register, are asked what hosts of a cluster are asked, and answer.
    pub(crate) clusters: Option<At<Vec<At<ClustersFile>>>>,
    /// Infra-envs that they are spread over. By default 1.
    pub(crate) infra_envs: Option<At<i64>>,
    /// Hardware profiles, which hosts take in turns. By default `standard`.
    #[serde(default)]
    pub(crate) profiles: Vec<Text<Plain>>,
}

/// Clusters of a load plan that are alike.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Clusters")]
pub(crate) struct ClustersFile {
    /// The scenario that each of them plays: its clusters, its hosts, and with `installs` its user and what goes wrong with hosts. Nothing
    /// of it is judged.
    pub(crate) scenario: Text<Plain>,
    /// How many times.
    pub(crate) count: At<i64>,
}

/// A phase of a load plan.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Phase")]
pub(crate) struct PhaseFile {
    /// Hosts start to register.
    pub(crate) ramp: Option<Text<Span>>,
    /// Nothing new happens.
    pub(crate) hold: Option<Text<Span>>,
    /// All hosts reboot, or come back over new connections, within this time.
    pub(crate) storm: Option<Text<Span>>,
    /// Hosts stop to ask.
    pub(crate) drain: Option<Text<Span>>,
}

/// What ends a load plan early.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Stop")]
pub(crate) struct StopFile {
    /// More of a hundred requests failed in the last ten seconds.
    pub(crate) errors_percent: Option<At<f64>>,
}

/// What must hold in a load plan.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Thresholds")]
pub(crate) struct ThresholdsFile {
    /// 99 of 100 requests are answered within this time, counted from when they were to be made. Of every operation.
    pub(crate) latency_p99: Option<Text<Span>>,
    /// At most so many of a hundred requests fail.
    pub(crate) errors_percent: Option<At<f64>>,
    /// At least so many of a hundred requests that were to be made are answered.
    pub(crate) achieved_percent: Option<At<f64>>,
    /// With `installs`: of all that were to begin, the clusters of at least so many of a hundred are installed.
    pub(crate) installed_percent: Option<At<f64>>,
    /// With `installs`: 99 of 100 of those that are installed took no longer than this, counted from when they were to begin.
    pub(crate) installed_p99: Option<Text<Span>>,
    /// The resident memory of the generator, and that of the service (`--watch`), is at the end of the longest hold at most so many
    /// percent above what it was at its beginning. That hold must be at least 5 minutes long, and five cadences.
    pub(crate) memory_growth_percent: Option<At<f64>>,
}

/// A phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PhaseKind {
    /// Hosts start.
    Ramp,
    /// Nothing new happens.
    Hold,
    /// All hosts do it at once.
    Storm,
    /// Hosts stop.
    Drain,
}

impl PhaseKind {
    /// Its word in a plan.
    pub const fn as_str(self) -> &'static str {
        match self {
            PhaseKind::Ramp => "ramp",
            PhaseKind::Hold => "hold",
            PhaseKind::Storm => "storm",
            PhaseKind::Drain => "drain",
        }
    }
}

/// A phase with its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadPhase {
    /// What happens.
    pub kind: PhaseKind,
    /// How long it takes.
    pub takes: Duration,
}

/// What ends a plan early.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StopWhen {
    /// More of a hundred requests failed in the last ten seconds.
    pub errors_percent: Option<f64>,
}

/// What must hold.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Thresholds {
    /// Of every operation, from the intended moment.
    pub latency_p99: Option<Duration>,
    /// Failed requests of a hundred.
    pub errors_percent: Option<f64>,
    /// Answered requests of a hundred that were to be made.
    pub achieved_percent: Option<f64>,
    /// Installed of a hundred that were to begin.
    pub installed_percent: Option<f64>,
    /// Of those that are installed, from when they were to begin.
    pub installed_p99: Option<Duration>,
    /// Of the generator and of the service, from the second to the last fifth of the longest hold.
    pub memory_growth_percent: Option<f64>,
}

/// Clusters of a load plan, so many times.
#[derive(Clone, Debug, PartialEq)]
pub struct PlannedClusters {
    /// The name or the path by which the plan calls it.
    pub named: String,
    /// The line of that.
    pub line: usize,
    /// What each of them plays.
    pub scenario: Arc<Scenario>,
    /// How many times.
    pub count: u32,
}

/// A load plan, checked.
#[derive(Clone, Debug, PartialEq)]
pub struct LoadPlan {
    /// Its name.
    pub name: String,
    /// What it is to find out.
    pub description: String,
    /// Seed of all random choices.
    pub seed: u64,
    /// What the hosts do.
    pub mode: LoadMode,
    /// How many hosts there are, those of clusters included.
    pub hosts: u32,
    /// Those of them that belong to no cluster; they come first.
    pub unbound: u32,
    /// Clusters that are installed, or that are only there.
    pub clusters: Vec<PlannedClusters>,
    /// How fast the clockwork of hosts in clusters runs; `None`: as their scenarios have it.
    pub time_profile: Option<String>,
    /// Wall time between two looks of a user at a cluster.
    pub look: Duration,
    /// What has come to its end is followed by the next.
    pub back_to_back: bool,
    /// How many infra-envs they are spread over.
    pub infra_envs: u32,
    /// Names of their hardware profiles.
    pub profiles: Vec<String>,
    /// How they arrive.
    pub arrivals: Arrivals,
    /// Time between two polls.
    pub cadence: Duration,
    /// Do they remember what they answered?
    pub reply_cache: ReplyCache,
    /// Number of shared connections; `None`: each host has its own.
    pub pool: Option<u32>,
    /// What happens one after the other.
    pub phases: Vec<LoadPhase>,
    /// What ends it early.
    pub stop: StopWhen,
    /// What must hold.
    pub thresholds: Thresholds,
}

impl LoadPlan {
    /// How long it takes.
    pub fn takes(&self) -> Duration {
        self.phases.iter().map(|phase| phase.takes).sum()
    }

    /// When a phase begins, and which one it is, in order.
    pub fn timetable(&self) -> impl Iterator<Item = (Duration, LoadPhase)> + '_ {
        self.phases.iter().scan(Duration::ZERO, |begin, phase| {
            let at = *begin;
            *begin += phase.takes;
            Some((at, *phase))
        })
    }
}

/// Reads and checks a load plan. The scenarios that it names are the catalogue's, or files.
///
/// # Errors
/// [`LoadError`] with every mistake, its place and what to do about it.
pub fn load_plan(source: &SourceFile, catalogue: &Catalogue) -> Result<LoadPlan, LoadError> {
    let (file, text) = crate::parse::parse::<PlanFile>(source)?;
    crate::check::plan::check(&file, (source, &text), catalogue)
        .map_err(|problems| LoadError::new(&source.name, text, problems))
}

/// The JSON Schema (2020-12) of load plans, as the committed file has it.
pub fn plan_schema_text() -> String {
    let mut schema = schemars::schema_for!(PlanFile);
    schema.insert("title".to_owned(), "vlab load plan".into());
    let mut text = serde_json::to_string_pretty(&schema.to_value()).unwrap_or_default();
    text.push('\n');
    text
}
