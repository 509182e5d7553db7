//! What came of a plan: one file, which can be merged with those of other generators and compared with those of other runs.

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use vlab_scenario::{LoadPhase, Thresholds};

use crate::database::{DatabaseSecond, Statement};
use crate::growth::{self, Growth};
use crate::record::{LONGEST_US, histogram, histogram_of_spans};

/// Version of the form.
pub const VERSION: u32 = 1;

/// The kind of error of what a service sent away for now, with 429: it is not part of the latencies.
pub const TURNED_AWAY: &str = "turned away (HTTP 429)";
/// The kind of error of what was not sent because the generator, or its computer, had no file descriptor free.
pub const NO_DESCRIPTOR: &str = "the generator had no descriptor free";
/// So many different words about refusals are kept of an operation in a phase.
pub const MOST_WORDS: usize = 20;
/// Where the others are counted.
pub const OTHER_WORDS: &str = "other words";

/// What was put under load. Figures of one are never compared with those of another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Target {
    /// What only answers, to show what the generator can do.
    Stub,
    /// The simulated service.
    Simulated,
    /// Something else: a real service.
    #[default]
    Real,
}

impl Target {
    /// Its word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Target::Stub => "stub",
            Target::Simulated => "simulated service",
            Target::Real => "real service",
        }
    }
}

/// Values and how often each was recorded, in microseconds. Adding up two of them loses nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Values(pub Vec<(u64, u64)>);

impl From<Histogram<u64>> for Values {
    fn from(histogram: Histogram<u64>) -> Self {
        Self(histogram.iter_recorded().map(|v| (v.value_iterated_to(), v.count_at_value())).collect())
    }
}

impl Values {
    /// As a histogram.
    pub fn histogram(&self) -> Histogram<u64> {
        let longest = self.0.last().map_or(0, |(value, _)| *value);
        let mut histogram = if longest > LONGEST_US { histogram_of_spans() } else { histogram() };
        for (value, count) in &self.0 {
            histogram.saturating_record_n(*value, *count);
        }
        histogram
    }

    fn add(&mut self, other: &Values) {
        let mut all: BTreeMap<u64, u64> = self.0.drain(..).collect();
        for (value, count) in &other.0 {
            *all.entry(*value).or_default() += count;
        }
        self.0 = all.into_iter().collect();
    }

    /// The value below which that share lies, in milliseconds; 0 of nothing.
    pub fn quantile_ms(&self, quantile: f64) -> f64 {
        self.histogram().value_at_quantile(quantile) as f64 / 1000.0
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.0.iter().map(|(_, count)| count).sum()
    }
}

/// What was counted of an operation in a phase.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counted {
    /// Requests that were to be made.
    pub offered: u64,
    /// Requests that were answered with a status below 400.
    pub answered: u64,
    /// The others, by what was wrong.
    pub errors: BTreeMap<String, u64>,
    /// What the service said about those that it refused, without ids.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub said: BTreeMap<String, u64>,
    /// Of all that were looked at, from the moment at which the request was to be made to the whole answer, or to the error.
    pub latency: Values,
}

impl Counted {
    fn add(&mut self, other: &Counted) {
        self.offered += other.offered;
        self.answered += other.answered;
        for (kind, count) in &other.errors {
            *self.errors.entry(kind.clone()).or_default() += count;
        }
        for (words, count) in &other.said {
            *self.said.entry(words.clone()).or_default() += count;
        }
        self.latency.add(&other.latency);
    }

    /// How many were neither answered nor failed: they were under way when the plan, or the connection of their host, ended.
    pub fn unanswered(&self) -> u64 {
        self.offered.saturating_sub(self.answered + self.failed())
    }

    /// How many failed.
    pub fn failed(&self) -> u64 {
        self.errors.values().sum()
    }
}

/// An operation in a phase.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Line {
    /// Position of the phase.
    pub phase: usize,
    /// Id of the operation, as in the API's schema.
    pub operation: String,
    /// What was counted.
    #[serde(flatten)]
    pub counted: Counted,
}

/// A second of the run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Second {
    /// Since the start.
    pub at: u64,
    /// Requests that were to be made.
    pub offered: u64,
    /// Answers.
    pub answered: u64,
    /// Errors.
    pub failed: u64,
    /// Half of the answers took no longer.
    pub p50_us: u64,
    /// 99 of 100 answers took no longer.
    pub p99_us: u64,
    /// The latest that a request was made after its moment.
    pub late_us: u64,
    /// Processor time of the generators, in milliseconds.
    pub generator_cpu_ms: u64,
    /// Resident memory of the generators, in KiB.
    pub generator_kib: u64,
    /// Processor time of the watched process, in milliseconds.
    pub service_cpu_ms: Option<u64>,
    /// Its resident memory, in KiB.
    pub service_kib: Option<u64>,
    /// What PostgreSQL said about the service's database.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub database: Option<DatabaseSecond>,
}

impl Second {
    fn add(&mut self, other: &Second) {
        self.offered += other.offered;
        self.answered += other.answered;
        self.failed += other.failed;
        // Quantiles cannot be added up: the worst is what can be said.
        self.p50_us = self.p50_us.max(other.p50_us);
        self.p99_us = self.p99_us.max(other.p99_us);
        self.late_us = self.late_us.max(other.late_us);
        self.generator_cpu_ms += other.generator_cpu_ms;
        self.generator_kib += other.generator_kib;
        self.service_cpu_ms = self.service_cpu_ms.max(other.service_cpu_ms);
        self.service_kib = self.service_kib.max(other.service_kib);
        match (&mut self.database, &other.database) {
            (Some(own), Some(other)) => own.add(other),
            (own, other) => *own = own.or(*other),
        }
    }
}

/// What a threshold came to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Check {
    /// What must hold.
    pub name: String,
    /// Does it?
    pub holds: bool,
    /// What was seen.
    pub seen: String,
}

/// What came of installations.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Installs {
    /// So many began.
    pub begun: u64,
    /// Of so many all clusters were installed.
    pub installed: u64,
    /// The others, by how they ended.
    pub ended_otherwise: BTreeMap<String, u64>,
    /// From when each was to begin until all of its clusters were installed, in microseconds.
    pub took: Values,
}

impl Installs {
    pub(crate) fn ended_as(&mut self, how: &str) {
        *self.ended_otherwise.entry(how.to_owned()).or_default() += 1;
    }

    fn add(&mut self, other: &Installs) {
        self.begun += other.begun;
        self.installed += other.installed;
        for (how, count) in &other.ended_otherwise {
            *self.ended_otherwise.entry(how.clone()).or_default() += count;
        }
        self.took.add(&other.took);
    }
}

/// What came of a plan.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LoadResult {
    /// Version of the form.
    pub version: u32,
    /// Name of the plan.
    pub plan: String,
    /// What was put under load.
    pub target: Target,
    /// Where it is.
    pub url: String,
    /// Seed of all random choices.
    pub seed: u64,
    /// Hosts of the plan.
    pub hosts: u32,
    /// Generators that it was spread over, and how many of them are in this result.
    pub parts: (u32, u32),
    /// When it began, in seconds since the epoch.
    pub started_at: i64,
    /// The phases.
    pub phases: Vec<LoadPhase>,
    /// How long it took, in seconds.
    pub took_s: f64,
    /// Why it ended before its time; empty: it did not.
    pub cut_short: String,
    /// So long after its time the last part began, in seconds: parts that do not begin together are not the load that was planned.
    #[serde(default)]
    pub began_late_s: f64,
    /// Operations by phase.
    pub lines: Vec<Line>,
    /// How late requests were made, in microseconds: the generator's doing.
    pub late: Values,
    /// Second by second.
    pub seconds: Vec<Second>,
    /// Requests that were neither answered nor failed: they were under way when the plan, or the connection of their host, ended.
    #[serde(default)]
    pub unanswered: u64,
    /// TCP connections that were opened.
    pub connections_opened: u64,
    /// Steps that the service asked for and that the hosts of a plan do not answer, by type.
    pub steps_left: BTreeMap<String, u64>,
    /// Installations, where the plan has any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub installs: Option<Installs>,
    /// Numbers of the service's own metrics at the end less those at the start, by name.
    pub service_metrics: BTreeMap<String, f64>,
    /// On what the service's PostgreSQL spent most time, if it was asked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub statements: Vec<Statement>,
    /// Why that is not known; empty: it was not asked, or is known.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub without_statements: String,
    /// Processors that the generator could use.
    pub processors: u32,
    /// What must hold.
    pub checks: Vec<Check>,
    /// What a reader must know before the figures.
    pub warnings: Vec<String>,
}

impl LoadResult {
    /// All phases of each operation together.
    pub fn operations(&self) -> BTreeMap<&str, Counted> {
        let mut all: BTreeMap<&str, Counted> = BTreeMap::new();
        for line in &self.lines {
            all.entry(&line.operation).or_default().add(&line.counted);
        }
        all
    }

    /// Everything together.
    pub fn total(&self) -> Counted {
        let mut all = Counted::default();
        self.lines.iter().for_each(|line| all.add(&line.counted));
        all
    }

    /// Judges the thresholds and says what limits the worth of the figures.
    pub fn judge(&mut self, wanted: &Thresholds) {
        let total = self.total();
        let share = |part: u64, of: u64| if of == 0 { 0.0 } else { part as f64 * 100.0 / of as f64 };
        let mut checks = Vec::new();
        if let Some(limit) = wanted.latency_p99 {
            for (operation, counted) in self.operations() {
                let p99 = counted.latency.quantile_ms(0.99);
                let limit = limit.as_secs_f64() * 1000.0;
                checks.push(Check {
                    name: format!("the 99th percentile of {operation} is at most {limit:.1} ms"),
                    holds: p99 <= limit && counted.latency.count() > 0,
                    seen: format!("{p99:.1} ms"),
                });
            }
        }
        if let Some(limit) = wanted.errors_percent {
            let seen = share(total.failed(), total.offered);
            checks.push(Check {
                name: format!("at most {limit} % of the requests fail"),
                holds: seen <= limit && total.offered > 0,
                seen: format!("{seen:.3} % ({} of {})", total.failed(), total.offered),
            });
        }
        if let Some(limit) = wanted.achieved_percent {
            let seen = share(total.answered, total.offered);
            checks.push(Check {
                name: format!("at least {limit} % of the requests are answered"),
                holds: seen >= limit && total.offered > 0,
                seen: format!("{seen:.3} % ({} of {})", total.answered, total.offered),
            });
        }
        let installs = self.installs.as_ref();
        if let (Some(limit), Some(installs)) = (wanted.installed_percent, installs) {
            let seen = share(installs.installed, installs.begun);
            checks.push(Check {
                name: format!("at least {limit} % of the installations come to their end"),
                holds: seen >= limit && installs.begun > 0,
                seen: format!("{seen:.1} % ({} of {})", installs.installed, installs.begun),
            });
        }
        if let (Some(limit), Some(installs)) = (wanted.installed_p99, installs) {
            let p99 = installs.took.quantile_ms(0.99) / 1000.0;
            checks.push(Check {
                name: format!("the 99th percentile of an installation is at most {:.1} s", limit.as_secs_f64()),
                holds: p99 <= limit.as_secs_f64() && installs.installed > 0,
                seen: format!("{p99:.1} s"),
            });
        }
        if let Some(limit) = wanted.memory_growth_percent {
            checks.extend(self.judge_memory(limit));
        }
        self.checks = checks;
        self.unanswered = total.unanswered();
        self.warnings = self.limits();
    }

    /// Does the memory of the generator grow, or that of the service?
    fn judge_memory(&self, limit: f64) -> Vec<Check> {
        let memory = growth::of(self);
        let check = |who: &str, growth: Option<Growth>, why_not: &str| Check {
            name: format!("the memory of the {who} grows by at most {limit} % within the hold"),
            holds: growth.is_some_and(|growth| growth.percent() <= limit),
            seen: growth.map_or_else(|| format!("nothing: {why_not}"), |growth| growth.to_string()),
        };
        let mut checks = vec![check("generator", memory.generator, "the hold did not come to its end")];
        // A part sees its own process; who watches the service is another one, perhaps. Together they are judged by that.
        // A stub is a part of the generator, where it has no process that is watched.
        let is_elsewhere = self.parts.0 != self.parts.1 || self.target == Target::Stub;
        if memory.service.is_some() || !is_elsewhere {
            let why_not = "the hold did not come to its end, or nobody watched the service (`--watch PID`)";
            checks.push(check("service", memory.service, why_not));
        }
        checks
    }

    /// The most of each figure of the database in a second; `None`: it was not asked, or said nothing.
    pub fn most_of_database(&self) -> Option<DatabaseSecond> {
        let mut all: Option<DatabaseSecond> = None;
        for second in self.seconds.iter().filter_map(|second| second.database.as_ref()) {
            all.get_or_insert_default().add(second);
        }
        all
    }

    /// Requests that were not made, because the generator had no descriptor for their connection.
    pub fn lacked_descriptors(&self) -> u64 {
        self.total().errors.get(NO_DESCRIPTOR).copied().unwrap_or(0)
    }

    /// Was it the generator that could not do more?
    fn limits(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        let late = self.late.quantile_ms(0.99);
        if late > 10.0 {
            warnings.push(format!(
                "the generator was the limit: 1 of 100 requests was made more than {late:.0} ms after its moment; use more \
                 workers, or another computer"
            ));
        }
        let room = f64::from(self.processors.max(1)) * 1000.0;
        let busy = self.seconds.iter().filter(|s| s.generator_cpu_ms as f64 > 0.9 * room).count();
        if busy > 0 {
            warnings.push(format!(
                "the generator was the limit: it used more than 90 % of {} processors in {busy} of {} seconds",
                self.processors,
                self.seconds.len()
            ));
        }
        let total = self.total();
        if let Some(away) = total.errors.get(TURNED_AWAY) {
            warnings.push(format!(
                "the service turned {away} of {} requests away (HTTP 429): the latencies are those of the others",
                total.offered
            ));
        }
        if let count @ 1.. = self.lacked_descriptors() {
            warnings.push(format!(
                "the generator was the limit: {count} of {} requests were not made, because it had no descriptor free \
                 (`ulimit -Hn`)",
                total.offered
            ));
        }
        if total.unanswered() > 0 {
            warnings.push(format!(
                "{} of {} requests were under way, and nobody waited for their answers, when the plan or their host's \
                 connection ended",
                total.unanswered(),
                total.offered
            ));
        }
        let left = total.errors.get("not sent: too many were waiting on the connection").copied();
        if let Some(left) = left {
            warnings.push(format!("{left} requests were not sent, because too many were waiting on their connection"));
        }
        if self.began_late_s >= 1.0 {
            warnings.push(format!(
                "a part began {:.1} s after its time: give a later `--start-at`, until which all parts are ready",
                self.began_late_s
            ));
        }
        if !self.cut_short.is_empty() {
            warnings.push(format!("the plan was not carried out to its end: {}", self.cut_short));
        }
        if self.parts.0 != self.parts.1 {
            warnings.push(format!("these are {} of the {} parts of the plan", self.parts.1, self.parts.0));
        }
        if !self.without_statements.is_empty() {
            warnings.push(format!(
                "what the database spent its time on is not known: {} (it needs the extension pg_stat_statements, and \
                 `shared_preload_libraries` must name it)",
                self.without_statements
            ));
        }
        if !self.steps_left.is_empty() {
            let all: Vec<String> = self.steps_left.iter().map(|(kind, n)| format!("{kind} ({n})")).collect();
            warnings.push(format!("steps that these hosts do not answer: {}", all.join(", ")));
        }
        warnings
    }
}

/// Why results cannot be put together.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MergeError {
    /// There is none.
    #[error("there is nothing to merge: name the result files of the parts")]
    Nothing,
    /// They are not parts of one thing.
    #[error("{0} are not the same in all files: these are not parts of one run")]
    Differ(&'static str),
    /// The same part twice.
    #[error("there are more results than parts: {got} of {parts}")]
    TooMany {
        /// Results.
        got: u32,
        /// Parts.
        parts: u32,
    },
}

/// Puts the parts of a plan together.
///
/// # Errors
/// [`MergeError`] when they are not parts of one plan against one target.
pub fn merge(results: Vec<LoadResult>, thresholds: Option<&Thresholds>) -> Result<LoadResult, MergeError> {
    let mut results = results.into_iter();
    let mut all = results.next().ok_or(MergeError::Nothing)?;
    for one in results {
        let same = [
            ("plan and seed", (&one.plan, one.seed, one.hosts) == (&all.plan, all.seed, all.hosts)),
            ("targets", (one.target, &one.url) == (all.target, &all.url)),
            ("numbers of parts", one.parts.0 == all.parts.0),
            ("phases", one.phases == all.phases),
        ];
        if let Some((what, _)) = same.iter().find(|(_, is_same)| !is_same) {
            return Err(MergeError::Differ(what));
        }
        all.parts.1 += one.parts.1;
        if all.parts.1 > all.parts.0 {
            return Err(MergeError::TooMany { got: all.parts.1, parts: all.parts.0 });
        }
        take_in(&mut all, one);
    }
    if let Some(thresholds) = thresholds {
        all.judge(thresholds);
    } else {
        all.unanswered = all.total().unanswered();
        all.warnings = all.limits();
        all.checks.clear();
    }
    Ok(all)
}

fn take_in(all: &mut LoadResult, one: LoadResult) {
    for line in one.lines {
        let same = |l: &&mut Line| (l.phase, &l.operation) == (line.phase, &line.operation);
        match all.lines.iter_mut().find(same) {
            Some(there) => there.counted.add(&line.counted),
            None => all.lines.push(line),
        }
    }
    all.lines.sort_by(|a, b| (a.phase, &a.operation).cmp(&(b.phase, &b.operation)));
    all.late.add(&one.late);
    // The same second of the wall clock, not of each part.
    let shift = one.started_at - all.started_at;
    for second in one.seconds {
        let at = u64::try_from(i64::try_from(second.at).unwrap_or(i64::MAX).saturating_add(shift)).unwrap_or(0);
        match all.seconds.iter_mut().find(|s| s.at == at) {
            Some(there) => there.add(&second),
            None => all.seconds.push(Second { at, ..second }),
        }
    }
    all.seconds.sort_by_key(|second| second.at);
    all.took_s = all.took_s.max(one.took_s);
    all.began_late_s = all.began_late_s.max(one.began_late_s);
    all.connections_opened += one.connections_opened;
    if let Some(installs) = &one.installs {
        all.installs.get_or_insert_default().add(installs);
    }
    // One part asks for them, like all else about the service.
    if all.statements.is_empty() {
        all.statements = one.statements;
    }
    if all.without_statements.is_empty() {
        all.without_statements = one.without_statements;
    }
    for (kind, count) in one.steps_left {
        *all.steps_left.entry(kind).or_default() += count;
    }
    if all.cut_short.is_empty() {
        all.cut_short = one.cut_short;
    }
}

/// Length of a run in seconds.
pub(crate) fn seconds(time: Duration) -> f64 {
    (time.as_secs_f64() * 1000.0).round() / 1000.0
}

#[cfg(test)]
mod tests {
    use vlab_scenario::PhaseKind;

    use super::*;

    fn part(values: &[(u64, u64)]) -> LoadResult {
        let latency = Values(values.to_vec());
        let n = latency.count();
        let counted = Counted { offered: n, answered: n, latency, ..Counted::default() };
        LoadResult {
            version: VERSION,
            plan: "p".into(),
            parts: (2, 1),
            lines: vec![Line { phase: 0, operation: "v2GetNextSteps".into(), counted }],
            seconds: vec![Second { at: 0, offered: n, answered: n, ..Second::default() }],
            ..LoadResult::default()
        }
    }

    #[test]
    fn two_parts_are_one_whole() {
        let thresholds = Thresholds { latency_p99: Some(Duration::from_millis(5)), ..Thresholds::default() };
        let all = merge(vec![part(&[(1000, 90)]), part(&[(1000, 9), (9000, 1)])], Some(&thresholds)).unwrap();
        let total = all.total();
        assert_eq!((total.offered, total.latency.count(), all.parts), (100, 100, (2, 2)));
        assert!((total.latency.quantile_ms(0.5) - 1.0).abs() < 0.01 && total.latency.quantile_ms(1.0) > 8.9);
        assert_eq!(all.seconds[0].offered, 100);
        assert!(all.checks[0].holds, "{:?}", all.checks);
        assert!(all.warnings.is_empty(), "{:?}", all.warnings);
        let third = merge(vec![part(&[]), part(&[]), part(&[])], None);
        assert_eq!(third, Err(MergeError::TooMany { got: 3, parts: 2 }));
        let other = LoadResult { target: Target::Stub, ..part(&[]) };
        assert_eq!(merge(vec![part(&[]), other], None), Err(MergeError::Differ("targets")));
    }

    #[test]
    fn what_was_never_asked_holds_nothing() {
        let mut result = part(&[]);
        result.judge(&Thresholds {
            latency_p99: Some(Duration::from_secs(1)),
            errors_percent: Some(1.0),
            achieved_percent: Some(99.0),
            ..Thresholds::default()
        });
        assert_eq!(result.checks.iter().filter(|check| check.holds).count(), 0, "{:?}", result.checks);
        assert!(result.warnings[0].contains("1 of the 2 parts"));
    }

    #[test]
    fn installations_are_judged_and_added_up() {
        let of = |installed, took: u64| {
            let ended_otherwise = BTreeMap::from([("a cluster is error".to_owned(), 10 - installed)]);
            let took = Values(vec![(took, installed)]);
            LoadResult { installs: Some(Installs { begun: 10, installed, ended_otherwise, took }), ..part(&[]) }
        };
        let wanted = Thresholds {
            installed_percent: Some(90.0),
            installed_p99: Some(Duration::from_secs(60)),
            ..Thresholds::default()
        };
        let all = merge(vec![of(9, 30_000_000), of(8, 61_000_000)], Some(&wanted)).unwrap();
        let installs = all.installs.as_ref().unwrap();
        assert_eq!((installs.begun, installs.installed, installs.took.count()), (20, 17, 17));
        assert_eq!(installs.ended_otherwise["a cluster is error"], 3);
        assert_eq!(all.checks.iter().filter(|check| check.holds).count(), 0, "{:?}", all.checks);
        let good = merge(vec![of(9, 30_000_000), of(9, 40_000_000)], Some(&wanted)).unwrap();
        assert!(good.checks.iter().all(|check| check.holds) && good.checks.len() == 2, "{:?}", good.checks);
    }

    /// Two processes: the memory of one stays, that of the other grows by 30 KiB a second.
    fn soaked(seconds: u64) -> LoadResult {
        let hold = Duration::from_secs(300);
        let of =
            |at: u64| Second { at, generator_kib: 50_000, service_kib: Some(100_000 + 30 * at), ..Second::default() };
        LoadResult {
            phases: vec![LoadPhase { kind: PhaseKind::Hold, takes: hold }],
            seconds: (0..seconds).map(of).collect(),
            ..LoadResult { parts: (1, 1), ..part(&[(1000, 9)]) }
        }
    }

    #[rstest::rstest]
    #[case::grows(soaked(300), 4.0, [(true, "+0.0 %"), (false, "+5.3 %")])]
    #[case::may(soaked(300), 6.0, [(true, "+0.0 %"), (true, "+5.3 %")])]
    #[case::over_too_early(soaked(100), 6.0, [(false, "nothing"), (false, "nothing")])]
    fn memory_that_grows_is_seen(
        #[case] mut result: LoadResult,
        #[case] limit: f64,
        #[case] wanted: [(bool, &str); 2],
    ) {
        result.judge(&Thresholds { memory_growth_percent: Some(limit), ..Thresholds::default() });
        assert_eq!(result.checks.len(), 2);
        for (check, (holds, seen)) in result.checks.iter().zip(wanted) {
            assert!(check.holds == holds && check.seen.starts_with(seen), "{check:?}");
        }
    }

    #[test]
    fn a_service_that_nobody_watches_does_not_hold() {
        let unwatched = |target| {
            let mut result = LoadResult { target, ..soaked(300) };
            result.seconds.iter_mut().for_each(|second| second.service_kib = None);
            result.judge(&Thresholds { memory_growth_percent: Some(1.0), ..Thresholds::default() });
            result.checks.iter().map(|check| check.holds).collect::<Vec<_>>()
        };
        assert_eq!(unwatched(Target::Simulated), [true, false]);
        assert_eq!(unwatched(Target::Stub), [true], "it is in the generator's own memory");
    }

    #[test]
    fn what_the_generator_could_not_do_is_not_blamed_on_the_service() {
        let mut result = part(&[(1000, 5)]);
        result.parts = (1, 1);
        let counted = &mut result.lines[0].counted;
        counted.offered = 10;
        counted.errors.insert(NO_DESCRIPTOR.to_owned(), 3);
        result.judge(&Thresholds::default());
        let [limit, open] = result.warnings.as_slice() else { panic!("{:?}", result.warnings) };
        assert!(limit.starts_with("the generator was the limit: 3 of 10"), "{limit}");
        assert!(open.starts_with("2 of 10 requests were under way"), "{open}");
    }

    #[test]
    fn a_late_generator_says_so() {
        let mut result = LoadResult { parts: (1, 1), late: Values(vec![(50_000, 10)]), ..LoadResult::default() };
        result.judge(&Thresholds::default());
        assert!(result.warnings[0].contains("the generator was the limit"), "{:?}", result.warnings);
    }
}
