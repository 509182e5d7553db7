//! Checks of load plans.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::{Checker, Place};
use crate::catalogue::{Catalogue, CatalogueError};
use crate::diagnostic::{Problem, SourceFile};
use crate::plan::{
    ClustersFile, LoadPhase, LoadPlan, PhaseFile, PhaseKind, PlanFile, PlannedClusters, SHORTEST_SOAK, StopWhen,
    Thresholds,
};
use crate::spanned::{At, Plain, Text};
use crate::time::Span;
use crate::types::Scenario;
use crate::words::{Arrivals, LoadConnections, LoadMode, ReplyCache};

/// A hold in which hosts ask less often than that does not tell whether memory grows.
const CADENCES_OF_SOAK: u32 = 5;
/// Time between two polls of a host, if nothing is said.
const CADENCE: Duration = Duration::from_secs(60);
/// No plan has more hosts.
const MOST_HOSTS: i64 = 1_000_000;

/// Checks a plan and resolves it. It is there only when there are no problems.
pub(crate) fn check(
    file: &PlanFile,
    (source, text): (&SourceFile, &str),
    catalogue: &Catalogue,
) -> Result<LoadPlan, Vec<Problem>> {
    let (resources, problems, not_built) = (BTreeMap::new(), vec![], vec![]);
    let mut checker = Checker { source, text, catalogue, resources, problems, not_built };
    match checker.plan(file) {
        Some(plan) if checker.problems.is_empty() => Ok(plan),
        _ => Err(checker.problems),
    }
}

impl Checker<'_> {
    fn plan(&mut self, file: &PlanFile) -> Option<LoadPlan> {
        if *file.version != 1 {
            let message = format!("version {} of load plans is unknown", *file.version);
            self.refuse(&file.version.span, message, "must be 1", "write `version: 1`");
        }
        let name = self.label_name(&file.name, "the plan's name", 63);
        let mode = self.read(&file.mode);
        let population = &file.population;
        let installs = mode == Some(LoadMode::Installs);
        self.keys_of_mode(file, installs);
        let unbound = population.unbound.as_ref();
        let unbound = unbound.and_then(|n| self.number(n, "the number of hosts", 1, MOST_HOSTS));
        let clusters = self.clusters(population.clusters.as_ref().map_or(&[][..], |all| &all.value[..]));
        let in_clusters: i64 = clusters.iter().map(|c| c.scenario.hosts.len() as i64 * i64::from(c.count)).sum();
        // A number that was refused is told already.
        let refused = population.unbound.is_some() && unbound.is_none();
        let hosts = (!refused).then_some(unbound.unwrap_or(0) + in_clusters);
        if let (Some(all), Some(hosts)) = (&population.clusters, hosts.filter(|hosts| *hosts > MOST_HOSTS)) {
            let message = format!("these are {hosts} hosts, and a plan has at most {MOST_HOSTS}");
            self.refuse(&all.span, message, "too many", "lower a `count`");
        }
        let infra_envs = population.infra_envs.as_ref();
        let infra_envs = infra_envs.map_or(Some(1), |n| self.number(n, "the number of infra-envs", 1, 10_000));
        for profile in &population.profiles {
            let known = self.catalogue.hardware_profiles();
            if !known.contains(&profile.text) {
                self.unknown(&profile.span, "hardware profile", &profile.text, known.iter().map(String::as_str));
            }
        }
        let time_profile = self.time_profile_of(file);
        let look = self.length(file.look.as_ref(), "the time between two looks");
        let arrivals = self.read_option(&file.arrivals).unwrap_or(Arrivals::Even);
        let cadence = self.length(file.cadence.as_ref(), "the cadence");
        let phases = self.phases(file, mode);
        let pool = self.pool(file, hosts);
        let stop = file.stop.as_ref().and_then(|stop| stop.errors_percent.as_ref());
        let stop = StopWhen { errors_percent: self.percent(stop) };
        let wanted = file.thresholds.as_ref();
        let thresholds = Thresholds {
            latency_p99: wanted
                .and_then(|t| t.latency_p99.as_ref())
                .and_then(|text| self.length(Some(text), "the latency")),
            errors_percent: self.percent(wanted.and_then(|t| t.errors_percent.as_ref())),
            achieved_percent: self.percent(wanted.and_then(|t| t.achieved_percent.as_ref())),
            installed_percent: self.percent(wanted.and_then(|t| t.installed_percent.as_ref())),
            installed_p99: wanted
                .and_then(|t| t.installed_p99.as_ref())
                .and_then(|text| self.length(Some(text), "the time of an installation")),
            memory_growth_percent: self.percent(wanted.and_then(|t| t.memory_growth_percent.as_ref())),
        };
        self.soak(file, cadence.unwrap_or(CADENCE), &phases);
        let profiles: Vec<String> = population.profiles.iter().map(|p| p.text.clone()).collect();
        Some(LoadPlan {
            name,
            description: file.description.clone().unwrap_or_default(),
            seed: file.seed.unwrap_or(1),
            mode: mode?,
            hosts: u32::try_from(hosts?).ok()?,
            unbound: u32::try_from(unbound.unwrap_or(0)).ok()?,
            infra_envs: u32::try_from(infra_envs?).ok()?,
            clusters,
            time_profile,
            look: look.unwrap_or(Duration::from_secs(5)),
            back_to_back: file.back_to_back.as_ref().is_some_and(|yes| yes.value),
            profiles: if profiles.is_empty() { vec!["standard".to_owned()] } else { profiles },
            arrivals,
            cadence: cadence.unwrap_or(CADENCE),
            reply_cache: self.read_option(&file.reply_cache).unwrap_or(ReplyCache::Real),
            pool,
            phases,
            stop,
            thresholds,
        })
    }

    /// A hold must be long enough to tell whether memory grows.
    fn soak(&mut self, file: &PlanFile, cadence: Duration, phases: &[LoadPhase]) {
        let Some(limit) = file.thresholds.as_ref().and_then(|t| t.memory_growth_percent.as_ref()) else { return };
        let least = SHORTEST_SOAK.max(cadence * CADENCES_OF_SOAK);
        let holds = phases.iter().filter(|phase| phase.kind == PhaseKind::Hold).map(|phase| phase.takes);
        let longest = holds.max().unwrap_or_default();
        if longest < least {
            let (longest, least) = (longest.as_secs(), least.as_secs());
            let message = format!("whether memory grows cannot be told: the longest hold takes {longest} s");
            let label = format!("needs a hold of {least} s or more");
            self.refuse(&limit.span, message, label, format!("make the hold {least}s long, or remove this"));
        }
    }

    /// What one mode has and the others have not.
    fn keys_of_mode(&mut self, file: &PlanFile, installs: bool) {
        let population = &file.population;
        fn place<T>(key: &Option<At<T>>) -> Option<&Place> {
            key.as_ref().map(|at| &at.span)
        }
        fn of_text<T>(key: &Option<Text<T>>) -> Option<&Place> {
            key.as_ref().map(|text| &text.span)
        }
        let wanted = file.thresholds.as_ref();
        let of_installs: [(&str, Option<&Place>); 5] = [
            ("time_profile", of_text(&file.time_profile)),
            ("look", of_text(&file.look)),
            ("back_to_back", place(&file.back_to_back)),
            ("thresholds.installed_percent", wanted.and_then(|t| place(&t.installed_percent))),
            ("thresholds.installed_p99", wanted.and_then(|t| of_text(&t.installed_p99))),
        ];
        let of_others: [(&str, Option<&Place>); 7] = [
            ("population.unbound", place(&population.unbound)),
            ("population.infra_envs", place(&population.infra_envs)),
            ("population.profiles", population.profiles.first().map(|p| &p.span)),
            ("cadence", of_text(&file.cadence)),
            ("reply_cache", of_text(&file.reply_cache)),
            ("connections", of_text(&file.connections)),
            ("pool", place(&file.pool)),
        ];
        let (not_here, why) = if installs {
            (&of_others[..], "with `installs` the scenarios of the clusters say what hosts there are and what they do")
        } else {
            (&of_installs[..], "only the mode `installs` has it")
        };
        for (key, place) in not_here {
            if let Some(place) = place {
                self.refuse(place, format!("`{key}` does not go with the mode `{}`", file.mode.text), why, "remove it");
            }
        }
        let no_clusters = population.clusters.as_ref().is_none_or(|all| all.is_empty());
        let (missing, help) = if installs {
            (no_clusters, "add `clusters: [{scenario: sno, count: 10}]` to `population`")
        } else {
            (no_clusters && population.unbound.is_none(), "add `unbound: 100` to `population`")
        };
        if missing {
            self.refuse(&file.mode.span, "the plan has no hosts", format!("`{}` of whom?", file.mode.text), help);
        }
    }

    fn clusters(&mut self, all: &[At<ClustersFile>]) -> Vec<PlannedClusters> {
        let mut planned = Vec::new();
        for item in all {
            let count = self.number(&item.count, "the number of installations", 1, MOST_HOSTS);
            let scenario = self.scenario_of_plan(&item.scenario);
            if let (Some(scenario), Some(count)) = (scenario, count.and_then(|n| u32::try_from(n).ok())) {
                let (named, line) = (item.scenario.text.clone(), self.line(&item.scenario.span));
                planned.push(PlannedClusters { named, line, scenario: Arc::new(scenario), count });
            }
        }
        planned
    }

    /// The scenario that clusters of a plan play.
    fn scenario_of_plan(&mut self, name: &Text<Plain>) -> Option<Scenario> {
        let source = match self.catalogue.find(&name.text) {
            Ok(source) => source,
            Err(CatalogueError::NotFound(missing)) => {
                self.unknown(&name.span, "scenario", &name.text, missing.known.iter().map(String::as_str));
                return None;
            }
            Err(CatalogueError::Unreadable(error)) => {
                self.refuse(&name.span, error.to_string(), "cannot be used", "");
                return None;
            }
        };
        let scenario = match crate::load(&source, self.catalogue) {
            Ok(scenario) => scenario,
            Err(error) => {
                let help = format!("`vlab validate {}` shows what is wrong with it", name.text);
                self.refuse(&name.span, format!("the scenario `{}` is not valid", name.text), error.to_string(), help);
                return None;
            }
        };
        if scenario.clusters.is_empty() {
            let help = "name a scenario with a cluster; for hosts without one there is `mode: idle`";
            self.refuse(
                &name.span,
                format!("the scenario `{}` installs nothing", name.text),
                "it has no cluster",
                help,
            );
            return None;
        }
        Some(scenario)
    }

    fn time_profile_of(&mut self, file: &PlanFile) -> Option<String> {
        let profile = file.time_profile.as_ref()?;
        let known = self.catalogue.time_profile_names();
        if !known.contains(&profile.text) {
            self.unknown(&profile.span, "time profile", &profile.text, known.iter().map(String::as_str));
        }
        Some(profile.text.clone())
    }

    /// A length of time above zero. A plan is about the wall clock: there is no other.
    fn length(&mut self, text: Option<&Text<Span>>, what: &str) -> Option<Duration> {
        let text = text?;
        let span = self.read(text)?.as_written();
        if span.is_zero() {
            self.refuse(&text.span, format!("{what} is zero"), "must be above zero", "write a time above zero");
        }
        Some(span)
    }

    fn percent(&mut self, value: Option<&At<f64>>) -> Option<f64> {
        let value = value?;
        if !(0.0..=100.0).contains(&value.value) {
            let message = format!("{} is no percentage", value.value);
            self.refuse(&value.span, message, "must be between 0 and 100", "write a number from 0 to 100");
        }
        Some(value.value)
    }

    fn pool(&mut self, file: &PlanFile, hosts: Option<i64>) -> Option<u32> {
        let pooled = self.read_option(&file.connections) == Some(LoadConnections::Pooled);
        let size = file.pool.as_ref();
        match (pooled, size) {
            (false, Some(size)) => {
                let help = "write `connections: pooled`, or remove `pool`";
                self.refuse(&size.span, "each host has a connection of its own, so there is no pool", "not used", help);
                None
            }
            (true, None) => {
                let place = file.connections.as_ref().map_or(0..0, |c| c.span.clone());
                self.refuse(&place, "how many connections are shared is missing", "no `pool`", "add `pool: 64`");
                None
            }
            (true, Some(size)) => {
                let size = self.number(size, "the number of shared connections", 1, hosts.unwrap_or(MOST_HOSTS))?;
                u32::try_from(size).ok()
            }
            (false, None) => None,
        }
    }

    fn phases(&mut self, file: &PlanFile, mode: Option<LoadMode>) -> Vec<LoadPhase> {
        let mut phases: Vec<LoadPhase> = Vec::new();
        for item in file.phases.iter() {
            let Some(phase) = self.phase(item) else { continue };
            let first = phases.is_empty();
            let drained = phases.last().is_some_and(|last| last.kind == PhaseKind::Drain);
            let problem = match phase.kind {
                PhaseKind::Ramp if !first => Some(("hosts start only once", "the first phase is the ramp")),
                PhaseKind::Hold | PhaseKind::Storm | PhaseKind::Drain if first => {
                    Some(("no host has started", "begin with `- ramp: 60s`"))
                }
                _ if drained => Some(("after a drain no host is left", "a drain is the last phase")),
                PhaseKind::Storm | PhaseKind::Drain if mode == Some(LoadMode::Installs) => {
                    Some(("installations begin and end by themselves", "use `ramp` and `hold`"))
                }
                PhaseKind::Storm if mode == Some(LoadMode::Idle) => Some((
                    "idle hosts make no storm",
                    "use the mode `reboot-storm` or `reconnect`, or remove the storm",
                )),
                _ => None,
            };
            if let Some((why, help)) = problem {
                self.refuse(&item.span, why, "cannot be here", help);
            }
            phases.push(phase);
        }
        if file.phases.is_empty() {
            self.refuse(&file.phases.span, "there is no phase", "empty", "begin with `- ramp: 60s`");
        }
        let wants_storm = matches!(mode, Some(LoadMode::RebootStorm | LoadMode::Reconnect));
        if wants_storm && !phases.iter().any(|phase| phase.kind == PhaseKind::Storm) {
            let message = format!("the mode `{}` needs a storm, and there is none", file.mode.text);
            self.refuse(&file.mode.span, message, "no storm among the phases", "add `- storm: 10s` to `phases`");
        }
        phases
    }

    fn phase(&mut self, item: &At<PhaseFile>) -> Option<LoadPhase> {
        let written = [
            (PhaseKind::Ramp, &item.ramp),
            (PhaseKind::Hold, &item.hold),
            (PhaseKind::Storm, &item.storm),
            (PhaseKind::Drain, &item.drain),
        ];
        let mut there = written.iter().filter_map(|(kind, text)| Some((*kind, text.as_ref()?)));
        match (there.next(), there.next()) {
            (Some((kind, text)), None) => {
                let takes = self.length(Some(text), "the length of this phase")?;
                Some(LoadPhase { kind, takes })
            }
            (first, _) => {
                let message = if first.is_some() { "a phase is one thing" } else { "a phase says what happens" };
                self.refuse(&item.span, message, "one of them", "write one of `ramp`, `hold`, `storm`, `drain`");
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::plan::load_plan;

    const GOOD: &str =
        "version: 1\nname: p\nmode: idle\npopulation: {unbound: 100}\nphases:\n  - ramp: 10s\n  - hold: 1m\n";

    fn loaded(text: &str) -> Result<LoadPlan, String> {
        load_plan(&SourceFile::new("p.yaml", text), &Catalogue::embedded()).map_err(|error| error.render(false))
    }

    #[test]
    fn a_plan_has_its_defaults() {
        let plan = loaded(GOOD).unwrap();
        assert_eq!((plan.hosts, plan.infra_envs, plan.cadence, plan.pool), (100, 1, Duration::from_secs(60), None));
        assert_eq!(plan.takes(), Duration::from_secs(70));
        let begins: Vec<_> = plan.timetable().map(|(at, phase)| (at.as_secs(), phase.kind)).collect();
        assert_eq!(begins, [(0, PhaseKind::Ramp), (10, PhaseKind::Hold)]);
    }

    const INSTALLS: &str = "version: 1\nname: p\nmode: installs\ntime_profile: fast\npopulation:\n  clusters: [{scenario: sno, count: 10}, {scenario: ha-3-2, count: 4}]\nphases:\n  - ramp: 10s\n  - hold: 1m\n";

    #[test]
    fn clusters_are_those_of_scenarios() {
        let plan = loaded(INSTALLS).unwrap();
        let names: Vec<_> = plan.clusters.iter().map(|c| (c.scenario.name.as_str(), c.count)).collect();
        assert_eq!(names, [("sno", 10), ("ha-3-2", 4)]);
        assert_eq!((plan.hosts, plan.look, plan.back_to_back), (30, Duration::from_secs(5), false));
    }

    #[rstest]
    #[case::scenario("scenario: sno,", "scenario: snoo,", "did you mean `sno`", 6)]
    #[case::nothing_to_install("scenario: sno,", "scenario: fleet-2000,", "installs nothing", 6)]
    #[case::none("count: 10", "count: 0", "must be between 1", 6)]
    #[case::profile("time_profile: fast", "time_profile: fats", "did you mean `fast`", 4)]
    #[case::cadence("time_profile: fast", "cadence: 10s", "`cadence` does not go with the mode `installs`", 4)]
    #[case::unbound("  clusters:", "  unbound: 4\n  clusters:", "`population.unbound` does not go with", 6)]
    #[case::storm("hold: 1m", "storm: 1m", "begin and end by themselves", 9)]
    fn contradictions_of_installations_too(
        #[case] from: &str,
        #[case] to: &str,
        #[case] says: &str,
        #[case] line: usize,
    ) {
        let said = loaded(&INSTALLS.replace(from, to)).unwrap_err();
        assert!(said.contains(says) && said.contains(&format!("p.yaml:{line}:")), "{said}");
    }

    #[rstest]
    #[case::a_word("mode: idle", "mode: idel", "did you mean `idle`", 3)]
    #[case::a_key("mode: idle", "mode: idle\nmodes: x", "mode", 4)]
    #[case::no_hosts("{unbound: 100}", "{}", "the plan has no hosts", 3)]
    #[case::no_clusters("mode: idle", "mode: installs", "the plan has no hosts", 3)]
    #[case::too_many(
        "{unbound: 100}",
        "{unbound: 999999, clusters: [{scenario: sno, count: 2}]}",
        "these are 1000001 hosts",
        4
    )]
    #[case::unbound_when_installing("mode: idle", "mode: installs", "`population.unbound` does not go with", 4)]
    #[case::look_when_idle("mode: idle", "mode: idle\nlook: 1s", "`look` does not go with", 4)]
    #[case::storm_when_idle("  - hold: 1m", "  - storm: 1m", "idle hosts make no storm", 7)]
    #[case::no_storm("mode: idle", "mode: reboot-storm", "needs a storm", 3)]
    #[case::no_ramp("  - ramp: 10s\n", "", "no host has started", 6)]
    #[case::two_things("ramp: 10s", "{ramp: 10s, hold: 1s}", "a phase is one thing", 6)]
    #[case::zero("ramp: 10s", "ramp: 0s", "is zero", 6)]
    #[case::pool("mode: idle", "mode: idle\npool: 4", "no pool", 4)]
    #[case::pooled("mode: idle", "mode: idle\nconnections: pooled", "is missing", 4)]
    #[case::profile("{unbound: 100}", "{unbound: 100, profiles: [standart]}", "standard", 4)]
    #[case::soak(
        "  - hold: 1m",
        "  - hold: 299s\nthresholds: {memory_growth_percent: 1}",
        "needs a hold of 300 s or more",
        8
    )]
    #[case::soak_of_slow_hosts(
        "  - hold: 1m",
        "  - hold: 10m\ncadence: 3m\nthresholds: {memory_growth_percent: 1}",
        "needs a hold of 900 s or more",
        9
    )]
    #[case::percent("mode: idle", "mode: idle\nthresholds: {errors_percent: 101}", "no percentage", 4)]
    fn contradictions_are_refused_with_their_line(
        #[case] from: &str,
        #[case] to: &str,
        #[case] says: &str,
        #[case] line: usize,
    ) {
        let said = loaded(&GOOD.replace(from, to)).unwrap_err();
        assert!(said.contains(says) && said.contains(&format!("p.yaml:{line}:")), "{said}");
    }
}
