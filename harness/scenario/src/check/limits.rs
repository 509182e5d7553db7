//! When a run ends, and what it may take.

use std::collections::BTreeMap;

use vlab_model::pivot::{PivotMoment, SINGLE_NODE};

use super::{Checker, Known};
use crate::diagnostic::quoted;
use crate::file::{BudgetsFile, InterleavingFile, LoadFile, PivotFile, ReportFile, ScenarioFile, UntilFile};
use crate::interleaving::Interleaving;
use crate::spanned::{At, Text};
use crate::time::Span;
use crate::types::{Action, Budgets, Cluster, Load, Moment, Pivot, ReportOptions, Until};
use crate::words::{ActionKind, InstallMode, PivotOrder};

impl Checker<'_> {
    pub(super) fn budgets(&mut self, file: Option<&BudgetsFile>) -> Budgets {
        let none = BudgetsFile::default();
        let file = file.unwrap_or(&none);
        let positive = |c: &mut Self, text: &Option<Text<Span>>, what: &str| {
            let span = c.read_option(text)?;
            if span.as_written().is_zero() {
                let place = text.as_ref().map_or(0..0, |t| t.span.clone());
                c.refuse(&place, format!("the budget `{what}` is zero"), "can never be met", "write a time above zero");
            }
            Some(span)
        };
        Budgets {
            first_registration: positive(self, &file.first_registration, "first_registration"),
            known: positive(self, &file.known, "known"),
            ready: positive(self, &file.ready, "ready"),
            install: positive(self, &file.install, "install"),
            total: positive(self, &file.total, "total")
                .unwrap_or(Span::Service(std::time::Duration::from_secs(3 * 3600))),
        }
    }

    pub(super) fn pivot(&mut self, file: &At<PivotFile>, clusters: &[Cluster], actions: &[Action]) -> Option<Pivot> {
        let order = self.read_option(&file.order).unwrap_or(PivotOrder::Strict);
        let positive = |c: &mut Self, text: &Option<Text<Span>>| {
            let span = c.read_option(text)?;
            if span.as_written().is_zero() {
                let place = text.as_ref().map_or(0..0, |t| t.span.clone());
                c.refuse(&place, "a time limit of the pivot is zero", "can never be met", "write a time above zero");
            }
            Some(span)
        };
        let within = positive(self, &file.within);
        let of = &file.stages;
        let written = [
            (PivotMoment::TemporaryControlPlaneUp, &of.temporary_control_plane_up),
            (PivotMoment::FirstMasterJoined, &of.first_master_joined),
            (PivotMoment::SecondMasterJoined, &of.second_master_joined),
            (PivotMoment::BootkubeDone, &of.bootkube_done),
            (PivotMoment::EtcdQuorum, &of.etcd_quorum),
            (PivotMoment::BootstrapReboot, &of.bootstrap_reboot),
            (PivotMoment::Rejoined, &of.rejoined),
        ];
        let installs: Vec<&Cluster> = clusters.iter().filter(|c| c.is_installed_by(actions)).collect();
        if installs.is_empty() {
            self.refuse(&file.span, "no cluster is installed, so there is no pivot", "not used here", "remove `pivot`");
        }
        let mut stages = BTreeMap::new();
        for (moment, text) in written {
            let Some(span) = positive(self, text) else { continue };
            let has = |c: &&Cluster| PivotMoment::of(c.control_plane_count == 1).contains(&moment);
            if !installs.is_empty() && !installs.iter().any(has) {
                let place = text.as_ref().map_or(0..0, |t| t.span.clone());
                let words: Vec<&str> = SINGLE_NODE.iter().skip(1).map(|m| m.as_str()).collect();
                self.refuse(
                    &place,
                    format!("the pivot of a single node has no `{moment}`"),
                    "no other master joins",
                    format!("remove it, or use one of {}", quoted(&words, "and")),
                );
            }
            stages.insert(moment, span);
        }
        Some(Pivot { order, within, stages, line: self.line(&file.span) })
    }

    pub(super) fn until(&mut self, file: &ScenarioFile, known: &Known<'_>, installs: bool) -> Option<Until> {
        let none = UntilFile::default();
        let until = file.until.as_ref().map_or(&none, |u| &u.value);
        let seen: Vec<Option<Moment>> = until.seen.iter().map(|m| self.observation(m, known)).collect();
        let at = self.read_option(&until.at);
        let then = self.read_option(&until.then).unwrap_or(Span::ZERO);
        let idle_polls = until
            .idle_polls
            .as_ref()
            .and_then(|n| self.number(n, "the number of poll intervals", 0, 10_000))
            .unwrap_or(0);
        let rest = self.read_option(&until.rest);
        let says = !until.seen.is_empty() || until.at.is_some() || until.rest.is_some();
        if !says && !installs {
            let place = file.until.as_ref().map_or(file.name.span.clone(), |u| u.span.clone());
            self.refuse(
                &place,
                "nothing ends the run: no cluster is installed",
                "no end",
                "add `until:` with `seen` (something to wait for), `rest` or `at` (a time)",
            );
            return None;
        }
        Some(Until {
            seen: seen.into_iter().collect::<Option<_>>()?,
            clusters_ended: !says,
            at,
            rest,
            idle_polls: u32::try_from(idle_polls).unwrap_or(0),
            then,
        })
    }

    /// In which order and how late things come.
    pub(super) fn interleaving(&mut self, file: Option<&At<InterleavingFile>>) -> Interleaving {
        let Some(file) = file else { return Interleaving::default() };
        let zero = Span::ZERO;
        let of_a_thousand = |checker: &mut Self, n: &Option<At<i64>>, what: &str| {
            let n = n.as_ref().and_then(|n| checker.number(n, what, 0, 1000));
            n.and_then(|n| u32::try_from(n).ok()).unwrap_or(0)
        };
        let writes = |checker: &mut Self, all: &[At<i64>]| -> Vec<u64> {
            let numbers = all.iter().filter_map(|n| checker.number(n, "the number of a write", 1, 1_000_000_000));
            numbers.filter_map(|n| u64::try_from(n).ok()).collect()
        };
        Interleaving {
            seed: file.seed.unwrap_or(0),
            latency: self.read_option(&file.latency).unwrap_or(zero),
            any_order: file.any_order.unwrap_or(false),
            host_monitor: self.read_option(&file.host_monitor).unwrap_or(zero),
            cluster_monitor: self.read_option(&file.cluster_monitor).unwrap_or(zero),
            lost: of_a_thousand(self, &file.lost, "the number of lost requests of a thousand"),
            twice: of_a_thousand(self, &file.twice, "the number of requests of a thousand that come twice"),
            killed_before_writes: writes(self, &file.killed_before_writes),
            killed_after_writes: writes(self, &file.killed_after_writes),
        }
    }

    /// Without `expect` every cluster must end `installed`: where that cannot be, the scenario must say what is to come of it.
    pub(super) fn must_end_installed(
        &mut self,
        file: &ScenarioFile,
        clusters: &[Cluster],
        actions: &[Action],
        until: &Until,
    ) {
        let does = |kind: ActionKind, cluster: &Cluster| {
            let about = |a: &&Action| a.cluster.as_ref().is_none_or(|name| *name == cluster.name);
            actions.iter().filter(|a| a.kind == kind && a.refused.is_none()).any(|a| about(&a))
        };
        let installs = |c: &Cluster| c.install == InstallMode::Auto || does(ActionKind::Install, c);
        let why = if clusters.is_empty() {
            "there is no cluster".to_owned()
        } else if let Some(cluster) = clusters.iter().find(|c| !installs(c)) {
            format!("nobody installs the cluster {}", cluster.name)
        } else if let Some(cluster) = clusters.iter().find(|c| does(ActionKind::Cancel, c)) {
            format!("the user cancels the installation of {}", cluster.name)
        } else if !until.clusters_ended {
            "the run does not wait until its clusters are installed".to_owned()
        } else if file.infra_env.as_ref().is_some_and(|i| i.refused.is_some()) {
            "no host boots".to_owned()
        } else {
            return;
        };
        self.refuse(
            &file.name.span.clone(),
            format!("nothing says what must come of it: without `expect` every cluster must end installed, but {why}"),
            "this scenario has no `expect`",
            "add `expect:` with what must be true of the run, for example `- eventually: {hosts: all, status: known}`",
        );
    }

    pub(super) fn load(&mut self, file: Option<&LoadFile>) -> Option<Load> {
        let file = file?;
        let ramp = file.ramp_per_second.as_ref().filter(|r| {
            let good = r.is_finite() && ***r > 0.0;
            if !good {
                self.refuse(
                    &r.span,
                    format!("a ramp of {} hosts per second starts no hosts", r.value),
                    "must be above zero",
                    "write a number above zero, or leave it out",
                );
            }
            good
        });
        Some(Load {
            ramp_per_second: ramp.map(|r| r.value),
            measure: file.measure.unwrap_or(true),
            max_errors: self.positive_u64(&file.max_errors, "the number of failed requests", 0),
            latency_p99_at_most: self.read_option(&file.latency_p99_at_most),
        })
    }

    pub(super) fn report(&mut self, file: Option<&ReportFile>, hosts: usize) -> ReportOptions {
        let lanes =
            file.and_then(|f| f.max_lanes.as_ref()).and_then(|n| self.number(n, "the number of lanes", 1, 10_000));
        ReportOptions {
            max_lanes: lanes.and_then(|n| usize::try_from(n).ok()).unwrap_or(50),
            steps: file.and_then(|f| f.steps).unwrap_or(hosts <= 100),
        }
    }
}
