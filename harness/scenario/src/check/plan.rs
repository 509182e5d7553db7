//! Checks of load plans.

use std::collections::BTreeMap;
use std::time::Duration;

use super::Checker;
use crate::catalogue::Catalogue;
use crate::diagnostic::{Problem, SourceFile};
use crate::plan::{LoadPhase, LoadPlan, PhaseFile, PhaseKind, PlanFile, StopWhen, Thresholds};
use crate::spanned::{At, Text};
use crate::time::Span;
use crate::words::{Arrivals, LoadConnections, LoadMode, ReplyCache};

/// No plan has more hosts.
const MOST_HOSTS: i64 = 1_000_000;

/// Checks a plan and resolves it. It is there only when there are no problems.
pub(crate) fn check(file: &PlanFile, source: &SourceFile, text: &str) -> Result<LoadPlan, Vec<Problem>> {
    let catalogue = Catalogue::embedded();
    let (resources, problems, not_built) = (BTreeMap::new(), vec![], vec![]);
    let mut checker = Checker { source, text, catalogue: &catalogue, resources, problems, not_built };
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
        if let Some(mode @ (LoadMode::Installs | LoadMode::DayTwo)) = mode {
            self.refuse(
                &file.mode.span,
                format!("the mode `{mode}` is not built yet"),
                "this version cannot run it",
                "use `idle`, `reboot-storm` or `reconnect`; a scenario with many clusters installs them at once",
            );
        }
        let population = &file.population;
        let hosts = self.number(&population.unbound, "the number of hosts", 1, MOST_HOSTS);
        let infra_envs = population.infra_envs.as_ref();
        let infra_envs = infra_envs.map_or(Some(1), |n| self.number(n, "the number of infra-envs", 1, 10_000));
        for profile in &population.profiles {
            let known = self.catalogue.hardware_profiles();
            if !known.contains(&profile.text) {
                self.unknown(&profile.span, "hardware profile", &profile.text, known.iter().map(String::as_str));
            }
        }
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
        };
        let profiles: Vec<String> = population.profiles.iter().map(|p| p.text.clone()).collect();
        Some(LoadPlan {
            name,
            description: file.description.clone().unwrap_or_default(),
            seed: file.seed.unwrap_or(1),
            mode: mode?,
            hosts: u32::try_from(hosts?).ok()?,
            infra_envs: u32::try_from(infra_envs?).ok()?,
            profiles: if profiles.is_empty() { vec!["standard".to_owned()] } else { profiles },
            arrivals,
            cadence: cadence.unwrap_or(Duration::from_secs(60)),
            reply_cache: self.read_option(&file.reply_cache).unwrap_or(ReplyCache::Real),
            pool,
            phases,
            stop,
            thresholds,
        })
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
        load_plan(&SourceFile::new("p.yaml", text)).map_err(|error| error.render(false))
    }

    #[test]
    fn a_plan_has_its_defaults() {
        let plan = loaded(GOOD).unwrap();
        assert_eq!((plan.hosts, plan.infra_envs, plan.cadence, plan.pool), (100, 1, Duration::from_secs(60), None));
        assert_eq!(plan.takes(), Duration::from_secs(70));
        let begins: Vec<_> = plan.timetable().map(|(at, phase)| (at.as_secs(), phase.kind)).collect();
        assert_eq!(begins, [(0, PhaseKind::Ramp), (10, PhaseKind::Hold)]);
    }

    #[rstest]
    #[case::a_word("mode: idle", "mode: idel", "did you mean `idle`", 3)]
    #[case::a_key("mode: idle", "mode: idle\nmodes: x", "mode", 4)]
    #[case::not_built("mode: idle", "mode: installs", "not built yet", 3)]
    #[case::storm_when_idle("  - hold: 1m", "  - storm: 1m", "idle hosts make no storm", 7)]
    #[case::no_storm("mode: idle", "mode: reboot-storm", "needs a storm", 3)]
    #[case::no_ramp("  - ramp: 10s\n", "", "no host has started", 6)]
    #[case::two_things("ramp: 10s", "{ramp: 10s, hold: 1s}", "a phase is one thing", 6)]
    #[case::zero("ramp: 10s", "ramp: 0s", "is zero", 6)]
    #[case::pool("mode: idle", "mode: idle\npool: 4", "no pool", 4)]
    #[case::pooled("mode: idle", "mode: idle\nconnections: pooled", "is missing", 4)]
    #[case::profile("{unbound: 100}", "{unbound: 100, profiles: [standart]}", "standard", 4)]
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
