use super::*;
use crate::validation::{CLUSTER, Validation, ValidationStatus};
use proptest::prelude::*;
use rstest::rstest;
use std::collections::BTreeSet;
use uuid::Uuid;
use vlab_api::types::{ClusterProgressInfo, Host, LastInstallationPreparation, MonitoredOperator};

const NOW: Timestamp = Timestamp::from_secs(1_000_000);

/// Rows that no cluster can fire here, and why.
const UNREACHABLE: &[(&str, &str)] =
    &[("Update AMS subscription", "needs a service that is tied to a subscription system, which a lab is not")];

#[derive(Clone, Debug, Default)]
struct ClusterCase {
    cluster: ClusterView,
    hosts: Vec<HostView>,
    settings: Settings,
    failing: Option<ClusterGate>,
}

fn bench(status: ClusterStatus) -> ClusterCase {
    let mut bench = ClusterCase::default();
    bench.cluster.cluster.status = status;
    bench.cluster.cluster.control_plane_count = Some(3);
    bench.cluster.cluster.status_updated_at = Some(NOW - Duration::from_secs(1));
    bench.cluster.cluster.install_started_at = Some(NOW - Duration::from_secs(1));
    bench
}

fn hosts(roles_and_statuses: &[(HostRole, HostStatus)]) -> Vec<HostView> {
    let host = |(i, (role, status)): (usize, &(HostRole, HostStatus))| HostView {
        host: Host { id: Uuid::from_u128(i as u128 + 1), role: Some(*role), status: *status, ..Host::default() },
        ..HostView::default()
    };
    roles_and_statuses.iter().enumerate().map(host).collect()
}

impl ClusterCase {
    fn masters(mut self, statuses: [HostStatus; 3]) -> Self {
        self.hosts = hosts(&statuses.map(|s| (HostRole::Master, s)));
        self
    }
    fn with(mut self, change: impl FnOnce(&mut ClusterCase)) -> Self {
        change(&mut self);
        self
    }
    fn failing(mut self, gate: ClusterGate) -> Self {
        self.failing = Some(gate);
        self
    }
    fn refresh_at(&self, now: Timestamp) -> ClusterDecision {
        let validations = EVALUATED_IN.contains(&self.cluster.cluster.status).then(|| {
            let answer = |spec: &crate::validation::ClusterValidationSpec| Validation {
                id: spec.id.as_str(),
                category: spec.category,
                status: if self.failing == Some(spec.gate) {
                    ValidationStatus::Failure
                } else {
                    ValidationStatus::Success
                },
                message: "".into(),
                hidden: false,
                ignored: false,
            };
            ClusterValidations(CLUSTER.iter().map(answer).collect())
        });
        let hosts: Vec<&HostView> = self.hosts.iter().collect();
        refresh_with(&self.cluster, &hosts, &self.settings, now, validations, None)
    }
    fn on(&self, event: ClusterEvent) -> Result<ClusterDecision, NoTransition> {
        let hosts: Vec<&HostView> = self.hosts.iter().collect();
        on_event(event, &self.cluster, &hosts, &self.settings, NOW, &EventArgs::default())
    }
}

fn ago(minutes: u64) -> Option<Timestamp> {
    Some(NOW - Duration::from_secs(minutes * 60))
}

fn soft(bench: &mut ClusterCase) {
    bench.settings.enable_soft_timeouts = true;
    bench.cluster.cluster.org_soft_timeouts_enabled = Some(true);
}

fn finalizing(stage: FinalizingStage, minutes: u64) -> impl FnOnce(&mut ClusterCase) {
    move |b| {
        b.cluster.cluster.progress = Some(ClusterProgressInfo {
            finalizing_stage: Some(stage),
            finalizing_stage_started_at: ago(minutes),
            ..ClusterProgressInfo::default()
        });
    }
}

fn prepared(status: &str) -> impl FnOnce(&mut ClusterCase) {
    let status = status.to_owned();
    move |b| {
        b.cluster.cluster.last_installation_preparation =
            Some(LastInstallationPreparation { status: Some(status), reason: None });
    }
}

/// One situation for each row, with the destination that it must lead to.
#[expect(clippy::too_many_lines, reason = "a table: a row for each rule")]
fn refreshes() -> Vec<(&'static str, ClusterCase, &'static str, ClusterStatus)> {
    use HostStatus as H;
    let dhcp = |b: &mut ClusterCase| b.cluster.cluster.vip_dhcp_allocation = Some(true);
    let todo = "TODO: Name this transition";
    let preparing = || bench(PreparingForInstallation).masters([H::PreparingSuccessful; 3]);
    let installed = || {
        bench(Finalizing).masters([H::Installed; 3]).with(|b| {
            b.cluster.kubeconfig_uploaded = true;
            b.cluster.cluster.monitored_operators = Some(vec![MonitoredOperator {
                operator_type: Some(OperatorType::Builtin),
                status: Some(OperatorStatus::Available),
                ..MonitoredOperator::default()
            }]);
        })
    };
    let lost = [H::Error, H::Installed, H::Installed];
    let waiting = [H::InstallingPendingUserAction, H::Installed, H::Installed];
    let running = [H::InstallingInProgress, H::Installed, H::Installed];
    vec![
        (
            "inputs missing",
            bench(Insufficient).failing(ClusterGate::PendingInput),
            "Refresh discovering cluster - detect required input",
            PendingForInput,
        ),
        (
            "VIPs missing",
            bench(Ready).failing(ClusterGate::Vips),
            "Refresh discovering cluster - detect required input",
            PendingForInput,
        ),
        (
            "a host not ready",
            bench(Ready).failing(ClusterGate::Sufficient),
            "Refresh discovering cluster - detect insufficient",
            Insufficient,
        ),
        ("DHCP, inputs missing", bench(Ready).with(dhcp).failing(ClusterGate::PendingInput), todo, PendingForInput),
        ("DHCP, no lease yet", bench(Ready).with(dhcp).failing(ClusterGate::Vips), todo, Insufficient),
        ("all well", bench(PendingForInput), "Refresh discovering cluster - detect ready", Ready),
        (
            "prepared too long",
            preparing().with(|b| b.cluster.cluster.status_updated_at = ago(19)),
            "Refresh preparing cluster - detect timeout",
            Ready,
        ),
        ("prepared", preparing().with(prepared("success")), "Refresh preparing cluster - done preparing", Installing),
        (
            "a host left",
            preparing().masters([H::Disconnected, H::PreparingSuccessful, H::Known]),
            "Refresh preparing cluster - insufficient",
            Insufficient,
        ),
        (
            "a host failed to prepare",
            preparing().masters([H::PreparingFailed, H::PreparingSuccessful, H::Known]),
            "Refresh preparing cluster - failed",
            Ready,
        ),
        ("the preparation failed", preparing().with(prepared("failed")), "Refresh preparing cluster - failed", Ready),
        ("still preparing", preparing(), "Maintain preparing-for-installation state", PreparingForInstallation),
        ("too few hosts, user asked", bench(InstallingPendingUserAction).masters(lost), todo, Error),
        (
            "user asked for a day",
            bench(InstallingPendingUserAction)
                .masters(waiting)
                .with(|b| b.cluster.cluster.install_started_at = ago(24 * 60 + 1)),
            "Timed out while waiting for user",
            Error,
        ),
        (
            "soft: installed for a day",
            bench(Installing)
                .masters(running)
                .with(soft)
                .with(|b| b.cluster.cluster.install_started_at = ago(24 * 60 + 1)),
            "Timed out while installing",
            Error,
        ),
        (
            "finalizing for too long",
            bench(Finalizing).masters([H::Installed; 3]).with(|b| b.cluster.cluster.status_updated_at = ago(301)),
            "Timed out while finalizing",
            Error,
        ),
        (
            "a finalizing stage for too long",
            bench(Finalizing).masters([H::Installed; 3]).with(finalizing(FinalizingStage::AddingRouterCa, 71)),
            "Finalizing stage timed out.  Move to error",
            Error,
        ),
        (
            "a stage that only warns",
            bench(Finalizing).masters([H::Installed; 3]).with(finalizing(FinalizingStage::ApplyingOlmManifests, 11)),
            "Finalizing stage is taking too long.  Emit an appropriate event",
            Finalizing,
        ),
        (
            "soft: any stage only warns",
            bench(Finalizing)
                .masters([H::Installed; 3])
                .with(soft)
                .with(finalizing(FinalizingStage::WaitingForClusterOperators, 71)),
            "Finalizing stage is taking too long.  Emit an appropriate event",
            Finalizing,
        ),
        ("user still asked", bench(InstallingPendingUserAction).masters(waiting), todo, InstallingPendingUserAction),
        ("user did it", bench(InstallingPendingUserAction).masters(running), todo, Installing),
        ("user did it, all installed", bench(InstallingPendingUserAction).masters([H::Installed; 3]), todo, Finalizing),
        ("user is needed", bench(Installing).masters(waiting), todo, InstallingPendingUserAction),
        ("all installed", bench(Installing).masters([H::Installed; 3]), "Move to finalizing", Finalizing),
        ("still installing", bench(Installing).masters(running), "Stay in installing", Installing),
        ("all done", installed(), "Finalizing complete", Installed),
        (
            "operators missing",
            installed().with(|b| b.cluster.cluster.monitored_operators = Some(vec![MonitoredOperator::default()])),
            "Maintain finalizing state",
            Finalizing,
        ),
        (
            "kubeconfig missing",
            installed().with(|b| b.cluster.kubeconfig_uploaded = false),
            "Maintain finalizing state",
            Finalizing,
        ),
        ("too few hosts", bench(Installing).masters(lost), "Installation error", Error),
        (
            "logs missing after failure",
            bench(Error).with(|b| b.cluster.cluster.status_updated_at = ago(11)),
            "Log collection timeout during error",
            Error,
        ),
        (
            "logs missing after cancel",
            bench(Cancelled).with(|b| b.cluster.cluster.status_updated_at = ago(11)),
            "Log collection timeout during cancelled",
            Cancelled,
        ),
        ("failed", bench(Error), "Maintain error state", Error),
        ("cancelled", bench(Cancelled), "Maintain cancelled state", Cancelled),
        ("installed", bench(Installed), "Maintain installed state", Installed),
        ("adding hosts", bench(AddingHosts), "Maintain adding-hosts state", AddingHosts),
        ("unmonitored", bench(Unmonitored), "Maintain unmonitored state", Unmonitored),
    ]
}

#[test]
fn every_row_fires_in_its_situation() {
    let mut fired = BTreeSet::new();
    let mut note = |what: &str, decision: &ClusterDecision, name: &str, to: ClusterStatus| {
        let rule = decision.rule.unwrap_or_else(|| panic!("{what}: no row fired"));
        assert_eq!((rule.name, decision.to), (name, to), "{what}");
        fired.insert(RULES.iter().position(|r| r == rule).unwrap());
    };
    for (what, bench, name, to) in refreshes() {
        note(what, &bench.refresh_at(NOW), name, to);
    }
    for (event, from, name, to) in [
        (ClusterEvent::CancelInstallation, Finalizing, "Cancel installation of installing cluster", Cancelled),
        (ClusterEvent::CancelInstallation, PreparingForInstallation, "Cancel installation of preparing cluster", Ready),
        (ClusterEvent::PrepareForInstallation, Ready, "Start installation", PreparingForInstallation),
        (ClusterEvent::ResetCluster, Cancelled, "Reset installation", Insufficient),
    ] {
        note(event.as_str(), &bench(from).on(event).unwrap(), name, to);
    }
    let silent: Vec<&str> = (0..RULES.len()).filter(|i| !fired.contains(i)).map(|i| RULES[i].name).collect();
    assert_eq!(silent, UNREACHABLE.iter().map(|(name, _)| *name).collect::<Vec<_>>());
}

#[rstest]
#[case(ClusterEvent::PrepareForInstallation, Insufficient)]
#[case(ClusterEvent::CancelInstallation, Installed)]
#[case(ClusterEvent::CancelInstallation, Ready)]
#[case(ClusterEvent::ResetCluster, Installed)]
fn other_requests_are_refused(#[case] event: ClusterEvent, #[case] state: ClusterStatus) {
    assert_eq!(bench(state).on(event), Err(NoTransition { event, state }));
}

const M: HostRole = HostRole::Master;
const W: HostRole = HostRole::Worker;
const A: HostRole = HostRole::Arbiter;
const IN: HostStatus = HostStatus::Installed;
const OUT: HostStatus = HostStatus::Error;

#[rstest]
#[case::single_node(1, &[(M, IN)], true)]
#[case::single_node_and_a_worker(1, &[(M, IN), (W, IN)], false)]
#[case::single_node_failed(1, &[(M, OUT)], false)]
#[case::arbiter(2, &[(M, IN), (M, IN), (A, IN)], true)]
#[case::arbiter_failed(2, &[(M, IN), (M, IN), (A, OUT)], false)]
#[case::two_masters_alone(2, &[(M, IN), (M, IN)], false)]
#[case::arbiter_beside_three(3, &[(M, IN), (M, IN), (M, IN), (A, IN)], true)]
#[case::arbiter_beside_three_failed(3, &[(M, IN), (M, IN), (M, IN), (A, OUT)], false)]
#[case::one_of_two_arbiters_failed(2, &[(M, IN), (M, IN), (A, IN), (A, OUT)], true)]
#[case::arbiter_a_master_failed(2, &[(M, IN), (M, OUT), (A, IN)], false)]
#[case::single_node_and_a_failed_worker(1, &[(M, IN), (W, OUT)], true)]
#[case::three(3, &[(M, IN), (M, IN), (M, IN)], true)]
#[case::a_master_failed(3, &[(M, IN), (M, IN), (M, OUT)], false)]
#[case::five_one_failed(5, &[(M, IN), (M, IN), (M, IN), (M, IN), (M, OUT)], false)]
#[case::one_of_three_workers_failed(3, &[(M, IN), (M, IN), (M, IN), (W, IN), (W, IN), (W, OUT)], true)]
#[case::one_of_two_workers_failed(3, &[(M, IN), (M, IN), (M, IN), (W, IN), (W, OUT)], false)]
#[case::the_only_worker_failed(3, &[(M, IN), (M, IN), (M, IN), (W, OUT)], true)]
fn how_many_hosts_are_enough(#[case] count: i64, #[case] members: &[(HostRole, HostStatus)], #[case] enough: bool) {
    let mut cluster = ClusterView::default();
    cluster.cluster.control_plane_count = Some(count);
    let member = |(role, status): &(HostRole, HostStatus)| Member {
        role: *role,
        effective: *role,
        status: *status,
        fenced: false,
    };
    assert_eq!(quorum_of(&cluster, members.iter().map(member), &[IN]), enough);
}

/// What is asked for follows from the roles that were given, what is there from those that are played.
#[test]
fn a_suggested_master_helps_and_is_not_asked_for() {
    let mut cluster = ClusterView::default();
    cluster.cluster.control_plane_count = Some(3);
    let member = |role, status| Member { role, effective: M, status, fenced: false };
    let open = HostRole::AutoAssign;
    let with = |fourth| quorum_of(&cluster, [member(M, IN), member(M, IN), member(M, OUT), fourth], &[IN]);
    assert!(with(member(open, IN)));
    assert!(!with(member(open, OUT)));
    assert!(!with(member(M, IN)));
}

#[test]
fn two_masters_that_can_be_fenced_need_no_arbiter() {
    let mut cluster = ClusterView::default();
    cluster.cluster.control_plane_count = Some(2);
    let mut all = hosts(&[(M, IN), (M, IN)]);
    let enough = |all: &[HostView]| quorum(&cluster, &all.iter().collect::<Vec<_>>(), &[IN]);
    assert!(!enough(&all));
    all[0].host.fencing_credentials = Some("{}".to_owned());
    assert!(!enough(&all), "one of them alone is not enough");
    all[1].host.fencing_credentials = Some("{}".to_owned());
    assert!(enough(&all));
}

fn any_bench() -> impl Strategy<Value = ClusterCase> {
    let status = prop::sample::select(ClusterStatus::ALL);
    let host = (prop::sample::select(HostRole::ALL), prop::sample::select(HostStatus::ALL));
    let gate = prop::sample::select(vec![
        None,
        Some(ClusterGate::PendingInput),
        Some(ClusterGate::Vips),
        Some(ClusterGate::Sufficient),
    ]);
    let stage = prop::option::of(prop::sample::select(FinalizingStage::ALL));
    let times = (0..2_000_u64, 0..2_000_u64, 0..2_000_u64);
    let flags = (any::<bool>(), any::<bool>(), prop::sample::select(&["not_started", "failed", "success"][..]));
    (status, prop::collection::vec(host, 0..6), gate, stage, times, flags).prop_map(
        |(status, members, gate, stage, times, flags)| {
            let mut b = bench(status);
            b.hosts = hosts(&members);
            b.failing = gate;
            b.cluster.cluster.status_updated_at = ago(times.0);
            b.cluster.cluster.install_started_at = ago(times.1);
            if let Some(stage) = stage {
                finalizing(stage, times.2)(&mut b);
            }
            if flags.0 {
                soft(&mut b);
            }
            b.cluster.kubeconfig_uploaded = flags.1;
            prepared(flags.2)(&mut b);
            b
        },
    )
}

proptest! {
    #[test]
    fn no_decision_leaves_the_table(bench in any_bench()) {
        let decision = bench.refresh_at(NOW);
        let from = bench.cluster.cluster.status;
        match decision.rule {
            Some(rule) => prop_assert!(rule.from.contains(&from) && rule.to == decision.to),
            None => prop_assert_eq!(decision.to, from),
        }
        for event in ClusterEvent::ALL.iter().filter(|e| **e != ClusterEvent::RefreshStatus) {
            let row = RULES.iter().find(|r| r.event == *event && r.from.contains(&from));
            prop_assert_eq!(bench.on(*event).ok().map(|d| d.to), row.map(|r| r.to));
        }
    }

    #[test]
    fn nothing_happens_before_the_deadline(bench in any_bench(), part in 0.0..1.0_f64) {
        let decision = bench.refresh_at(NOW);
        let deadline = next_deadline(&bench.cluster, &bench.settings, NOW);
        prop_assert!(deadline.is_none_or(|d| d > NOW));
        let gap = deadline.map_or(Duration::from_secs(1 << 30), |d| d.since(NOW)) - Duration::from_micros(1);
        prop_assert_eq!(&bench.refresh_at(NOW + gap.mul_f64(part)), &decision);
        prop_assert_eq!(&bench.refresh_at(NOW + gap), &decision);
    }
}
