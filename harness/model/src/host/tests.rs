use super::*;
use crate::validation::{HOST, HostValidationSpec, Validation, ValidationStatus};
use proptest::prelude::*;
use rstest::rstest;
use std::collections::{BTreeMap, BTreeSet};
use uuid::Uuid;
use vlab_api::types::{ContainerImageAvailability, DiskInfo, DiskSpeed, Host, HostProgressInfo, InfraEnv, Inventory};

const NOW: Timestamp = Timestamp::from_secs(1_000_000);

/// Rows that no host can fire, and why.
const UNREACHABLE: &[(&str, &str)] = &[(
    "Host progress change during installing-pending-user-action state when host is not in state Done (or Rebooting in \
     day2) should stay in installing-pending-user-action state",
    "the default row for progress comes before it, has the same source and no condition, in the real service, too",
)];

#[derive(Clone, Debug, Default)]
struct HostCase {
    host: HostView,
    cluster: Option<ClusterView>,
    others: Vec<HostView>,
    settings: Settings,
    failing: Vec<HostValidationId>,
    initial: bool,
    stage: Option<HostStage>,
    kube_api: bool,
}

fn bench(status: HostStatus, cluster: ClusterStatus) -> HostCase {
    let mut b = pool(status);
    b.host.host.cluster_id = Some(Uuid::from_u128(7));
    b.host.host.role = Some(HostRole::Worker);
    let mut c = ClusterView::default();
    c.cluster.status = cluster;
    c.cluster.control_plane_count = Some(3);
    b.cluster = Some(c);
    b.others = (2..=4)
        .map(|i| HostView {
            host: Host {
                id: Uuid::from_u128(i),
                role: Some(HostRole::Master),
                status: InstallingInProgress,
                ..Host::default()
            },
            ..HostView::default()
        })
        .collect();
    b
}

fn others_installed(b: &mut HostCase) {
    b.others.iter_mut().for_each(|other| other.host.status = Installed);
}

fn pool(status: HostStatus) -> HostCase {
    let mut b = HostCase::default();
    b.host.host.id = Uuid::from_u128(1);
    b.host.host.kind = "Host".to_owned();
    b.host.host.status = status;
    b.host.host.status_updated_at = ago(0);
    b.host.host.checked_in_at = ago(0);
    b.host.host.installation_disk_id = Some("disk".to_owned());
    b.host.inventory = Some(Inventory::default().into());
    b
}

fn ago(minutes: u64) -> Option<Timestamp> {
    Some(NOW - Duration::from_secs(minutes * 60 + 1))
}

impl HostCase {
    fn with(mut self, change: impl FnOnce(&mut HostCase)) -> Self {
        change(&mut self);
        self
    }
    fn failing(mut self, id: HostValidationId) -> Self {
        self.failing.push(id);
        self
    }
    fn silent(self) -> Self {
        self.failing(HostValidationId::Connected)
    }
    fn since(mut self, minutes: u64) -> Self {
        self.host.host.status_updated_at = ago(minutes);
        self
    }
    fn day2(mut self) -> Self {
        self.host.host.kind = "AddToExistingClusterHost".to_owned();
        self
    }
    fn in_stage(mut self, stage: HostStage, minutes: u64) -> Self {
        self.host.host.progress = Some(HostProgressInfo {
            current_stage: Some(stage),
            stage_updated_at: ago(minutes),
            ..HostProgressInfo::default()
        });
        self
    }
    fn reports(mut self, stage: HostStage) -> Self {
        self.stage = Some(stage);
        self
    }
    fn soft(mut self) -> Self {
        self.settings.enable_soft_timeouts = true;
        if let Some(c) = &mut self.cluster {
            c.cluster.org_soft_timeouts_enabled = Some(true);
        }
        self
    }
    fn disk(mut self, exit_code: i64) -> Self {
        let speed = DiskSpeed { tested: Some(true), exit_code: Some(exit_code), speed_ms: Some(1) };
        let info = DiskInfo { disk_speed: Some(speed), ..DiskInfo::default() };
        self.host.set_disks_info(BTreeMap::from([("disk".to_owned(), info)]));
        self
    }
    fn images(mut self, result: &str) -> Self {
        let image = ContainerImageAvailability {
            name: Some("image".to_owned()),
            size_bytes: Some(1e6),
            download_rate: Some(100.0),
            result: Some(result.to_owned()),
            ..ContainerImageAvailability::default()
        };
        self.host.set_images_status(BTreeMap::from([("image".to_owned(), image)]));
        self
    }
    fn checked(self) -> Self {
        self.disk(0).images("success")
    }
    fn in_scope<R>(&self, f: impl FnOnce(&Scope<'_>) -> R) -> R {
        let infra_env = InfraEnv::default();
        let hosts: Vec<&HostView> = std::iter::once(&self.host).chain(&self.others).collect();
        f(&Scope { infra_env: &infra_env, cluster: self.cluster.as_ref(), hosts: &hosts })
    }
    fn fire(&self, event: HostEvent) -> Result<HostDecision, NoTransition> {
        self.in_scope(|scope| {
            if event == HostEvent::RefreshHost {
                let answer = |spec: &HostValidationSpec| Validation {
                    id: spec.id.as_str(),
                    category: spec.category,
                    status: if self.failing.contains(&spec.id) {
                        ValidationStatus::Failure
                    } else {
                        ValidationStatus::Success
                    },
                    message: spec.needs.into(),
                    hidden: false,
                    ignored: false,
                };
                let validations = HostValidations(HOST.iter().map(answer).collect());
                return Ok(refresh_with(&self.host, scope, &self.settings, NOW, validations, None));
            }
            let args = EventArgs {
                initial: self.initial,
                stage: self.stage,
                reason: "",
                kube_api: self.kube_api,
                wrong: None,
            };
            on_event(event, &self.host, scope, &self.settings, NOW, &args)
        })
    }
    /// With the real validations.
    fn refresh_at(&self, now: Timestamp) -> HostDecision {
        self.in_scope(|scope| refresh(&self.host, scope, &self.settings, now))
    }
}

type Situation = (HostEvent, HostCase, &'static str, HostStatus);

#[expect(clippy::too_many_lines, reason = "a table: a row for each rule")]
fn requests() -> Vec<Situation> {
    use HostEvent::*;
    let b = |status| bench(status, ClusterStatus::Installing);
    let initial = |b: &mut HostCase| b.initial = true;
    vec![
        (CancelInstallation, b(Installed), "Installation canceled while host is installing", Cancelled),
        (CancelInstallation, b(PreparingSuccessful), "Cancel while preparing", Known),
        (CancelInstallation, b(Known), "Cancel while known", Known),
        (HostInstallationFailed, b(Installing), "Installation failed while host is installing", Error),
        (
            HostProgressChanged,
            b(Installing).day2().reports(HostStage::Rebooting).with(|b| b.kube_api = true),
            "host progress installing-in-progress on rebooting in kube-api mode",
            InstallingInProgress,
        ),
        (
            HostProgressChanged,
            b(InstallingInProgress).day2().reports(HostStage::Done),
            "host progress changed to added-to-existing-cluster for day2 host",
            AddedToExistingCluster,
        ),
        (
            HostProgressChanged,
            b(InstallingInProgress).reports(HostStage::Done),
            "host progress changed to installed",
            Installed,
        ),
        (
            HostProgressChanged,
            b(Installing).reports(HostStage::StartingInstallation),
            "default host progress changed",
            InstallingInProgress,
        ),
        // The real service's quirk: done, but in progress.
        (
            HostProgressChanged,
            b(InstallingPendingUserAction).reports(HostStage::Done),
            "default host progress changed",
            InstallingInProgress,
        ),
        (
            HostProgressChanged,
            b(Installed).reports(HostStage::Joined),
            "Host progress change during installed state when host is not in state Done (or Rebooting in day2) should stay in installed state",
            Installed,
        ),
        (
            HostProgressChanged,
            b(HostStatus::ResettingPendingUserAction).reports(HostStage::Joined),
            "Host progress change during resetting-pending-user-action state when host is not in state Done (or Rebooting in day2) should stay in resetting-pending-user-action state",
            HostStatus::ResettingPendingUserAction,
        ),
        (InstallHost, b(Known).day2(), "Install known host", Installing),
        (
            MediaDisconnect,
            b(Known),
            "Move to disconnected when virtual media disconnects pre-installation",
            Disconnected,
        ),
        (MediaDisconnect, b(Installing), "Move to error when virtual media disconnects post-installation", Error),
        (RebootingForReclaim, b(Reclaiming), "Rebooting for reclaim reclaiming host", ReclaimingRebooting),
        (ReclaimHost, b(Installed), "Reclaim successful host", Reclaiming),
        (ReclaimHost, b(Known), "Reclaim pre-installation", Unbinding),
        (ReclaimHost, b(Error), "Reclaim failed host", UnbindingPendingUserAction),
        (ReclaimHostFailed, b(ReclaimingRebooting), "Reclaim failure for reclaiming host", UnbindingPendingUserAction),
        (RegisterHost, b(Discovering).with(initial), "Initial registration", Discovering),
        (RegisterHost, b(PreparingSuccessful), "Re-registration during preparation", Known),
        (RegisterHost, b(Disconnected), "Re-registration", Discovering),
        (
            RegisterHost,
            b(Resetting).in_stage(HostStage::Rebooting, 0),
            "Ignore register while rebooting host in resetting",
            Resetting,
        ),
        (
            RegisterHost,
            b(Resetting).in_stage(HostStage::Installing, 0),
            "Register non-rebooting host in resetting",
            Discovering,
        ),
        (
            RegisterHost,
            b(InstallingInProgress).in_stage(HostStage::Rebooting, 0),
            "Wrong boot order detection",
            InstallingPendingUserAction,
        ),
        (
            RegisterHost,
            b(AddedToExistingCluster).day2().in_stage(HostStage::Done, 0),
            "Wrong boot order detection",
            InstallingPendingUserAction,
        ),
        (
            RegisterHost,
            b(InstallingInProgress).in_stage(HostStage::WritingImageToDisk, 0),
            "Register during installation",
            Error,
        ),
        (RegisterHost, b(Error), "Register during error", Error),
        (RegisterHost, b(Installed), "Register post-installation", Installed),
        (
            ResettingPendingUserAction,
            b(Cancelled),
            "Reset pending user action all states",
            HostStatus::ResettingPendingUserAction,
        ),
        (UnbindHost, b(Known), "Unbind pre-installation", Unbinding),
        (UnbindHost, b(Installed), "Unbind during or after installation", UnbindingPendingUserAction),
        (BindHost, pool(KnownUnbound), "Bind host", Binding),
        (
            MediaDisconnect,
            pool(KnownUnbound),
            "Move to disconnected when virtual media disconnects pre-installation",
            DisconnectedUnbound,
        ),
        (RegisterHost, pool(DiscoveringUnbound).with(initial), "Initial registration", DiscoveringUnbound),
        (RegisterHost, pool(Unbinding), "Initial registration", DiscoveringUnbound),
    ]
}

#[expect(clippy::too_many_lines, reason = "a table: a row for each rule")]
fn refreshes() -> Vec<(HostCase, &'static str, HostStatus)> {
    use HostValidationId as V;
    let ready = |s| bench(s, ClusterStatus::Ready);
    let prep = |s| bench(s, ClusterStatus::PreparingForInstallation);
    let inst = |s| bench(s, ClusterStatus::Installing);
    let noted = |b: &mut HostCase| b.host.host.connection_timed_out = Some(true);
    let writing = HostStage::WritingImageToDisk;
    let copying = HostStage::CopyingRegistryDataToDisk;
    vec![
        (inst(Reclaiming).since(61), "Refresh reclaiming host", UnbindingPendingUserAction),
        (prep(Known), "Refresh known host in preparing cluster", PreparingForInstallation),
        (prep(PreparingForInstallation).checked(), "Refresh successfully preparing host", PreparingSuccessful),
        (prep(PreparingSuccessful), "Stay in preparing successful", PreparingSuccessful),
        (inst(PreparingSuccessful), "Move successfully prepared host to installing", Installing),
        (ready(PreparingForInstallation), "Move preparing host to known when cluster stops preparing", Known),
        (prep(PreparingForInstallation).disk(1), "Preparing failed disk speed host move to insufficient", Insufficient),
        (prep(PreparingForInstallation).disk(0).since(18), "Preparing timed out host move to known", PreparingFailed),
        (
            prep(PreparingForInstallation).disk(0).images("failure"),
            "Preparing failed image pull host move to preparing failed",
            PreparingFailed,
        ),
        (prep(PreparingForInstallation).disk(0), "Stay in preparing for installation", PreparingForInstallation),
        // A silent one is not kept, whatever is still to be measured or has failed.
        (
            prep(PreparingForInstallation).disk(0).silent(),
            "Move preparing host to disconnected when connection times out",
            Disconnected,
        ),
        (
            prep(PreparingForInstallation).disk(0).images("failure").silent(),
            "Move preparing host to disconnected when connection times out",
            Disconnected,
        ),
        (
            prep(PreparingForInstallation).disk(0).since(18).silent(),
            "Move preparing host to disconnected when connection times out",
            Disconnected,
        ),
        (ready(PreparingFailed), "Failed preparing to known when cluster is no longer preparing", Known),
        (ready(PreparingSuccessful), "Successful preparing to known when cluster is no longer preparing", Known),
        (ready(Known).silent(), "Move host to disconnected when connected times out", Disconnected),
        (ready(Known).failing(V::MediaConnected), "Move host to disconnected when connected times out", Disconnected),
        (bench(Installed, ClusterStatus::Error), "Move host to error when cluster is in error", Error),
        (inst(Installing).since(21), "Move host to error when installation times out", Error),
        (
            prep(PreparingSuccessful).silent(),
            "Move preparing host to disconnected when connection times out",
            Disconnected,
        ),
        (
            inst(InstallingInProgress).in_stage(writing, 0).silent(),
            "Move installing host to error when connection times out",
            Error,
        ),
        (inst(Installing).soft().silent(), "Keep installing host when connection times out", Installing),
        (inst(Installing).soft().with(noted), "Keep installing host when host recovers from disconnection", Installing),
        (
            inst(InstallingInProgress).soft().silent(),
            "Keep installing host when connection times out",
            InstallingInProgress,
        ),
        (
            inst(InstallingInProgress).soft().with(noted),
            "Keep installing host when host recovers from disconnection",
            InstallingInProgress,
        ),
        (
            bench(InstallingInProgress, ClusterStatus::InstallingPendingUserAction)
                .in_stage(HostStage::WaitingForControlPlane, 61),
            "Ignore timeout if host is in particular installation in progress stages",
            InstallingInProgress,
        ),
        (
            inst(InstallingInProgress).in_stage(HostStage::Joined, 61),
            "Move to error on timeout if host is in particular installation in progress stages other than [writing-image-to-disk, copying-registry-data-to-disk, rebooting]",
            Error,
        ),
        (
            inst(InstallingInProgress).in_stage(writing, 31),
            "Move to error on timeout if host is in particular installation in progress stage writing-image-to-disk",
            Error,
        ),
        (
            inst(InstallingInProgress).in_stage(copying, 91),
            "Move to error on timeout if host is in particular installation in progress stage copying-registry-data-to-disk",
            Error,
        ),
        (
            inst(InstallingInProgress).soft().in_stage(HostStage::Joined, 61),
            "Indicate that timeout occurred and continue installation in particular installation in progress stages other than [writing-image-to-disk, copying-registry-data-to-disk, rebooting]",
            InstallingInProgress,
        ),
        (
            inst(InstallingInProgress).soft().in_stage(writing, 31),
            "Indicate that timeout occurred and continue installation in particular installation in progress stage writing-image-to-disk",
            InstallingInProgress,
        ),
        (
            inst(InstallingInProgress).soft().in_stage(copying, 91),
            "Indicate that timeout occurred and continue installation in particular installation in progress stage copying-registry-data-to-disk",
            InstallingInProgress,
        ),
        (
            inst(InstallingInProgress).in_stage(HostStage::Rebooting, 41),
            "Tell user about boot order wen reboot takes too long",
            InstallingPendingUserAction,
        ),
        (
            inst(InstallingPendingUserAction).since(61).with(others_installed),
            "Host pending user action timeout with cluster viability check (day1 only)",
            Error,
        ),
        (
            inst(Installing),
            "Refresh during installing state without cluster error should stay in installing state",
            Installing,
        ),
        (
            inst(InstallingInProgress).in_stage(writing, 29),
            "Refresh during installing-in-progress state without cluster error should stay in installing-in-progress state",
            InstallingInProgress,
        ),
        (
            inst(Installed),
            "Refresh during installed state without cluster error should stay in installed state",
            Installed,
        ),
        // The cluster could not do without a master.
        (
            inst(InstallingPendingUserAction).since(61).with(|b| {
                others_installed(b);
                b.host.host.role = Some(HostRole::Master);
            }),
            "Refresh during installing-pending-user-action state without cluster error should stay in installing-pending-user-action state",
            InstallingPendingUserAction,
        ),
        // Nobody knows yet whether it could do without a worker.
        (
            inst(InstallingPendingUserAction).since(61),
            "Refresh during installing-pending-user-action state without cluster error should stay in installing-pending-user-action state",
            InstallingPendingUserAction,
        ),
        (
            inst(ResettingPendingUserAction),
            "Refresh during resetting-pending-user-action state without cluster error should stay in resetting-pending-user-action state",
            ResettingPendingUserAction,
        ),
        (ready(Disconnected).failing(V::HasInventory), "Host reconnected without inventory", Discovering),
        (ready(Known).failing(V::HasMinMemory), "Host has insufficient hardware", Insufficient),
        (ready(Known).failing(V::MachineCidrDefined), "Host pending input", PendingForInput),
        (ready(Discovering).failing(V::HasCpuCoresForRole), "Host not ready", Insufficient),
        (ready(Insufficient), "Host ready", Known),
        // Nothing that only informs holds a host back.
        (ready(Insufficient).failing(V::NtpSynced), "Host ready", Known),
        (ready(Known), "Host stay ready", Known),
        (ready(Error).since(3), "Log collection timed out during error should stay in error", Error),
        (ready(Cancelled).since(3), "Log collection timed out during cancelled should stay in cancelled", Cancelled),
        (ready(Error), "Refresh during error should stay in error", Error),
        (ready(Cancelled), "Refresh during cancelled should stay in cancelled", Cancelled),
        (ready(Resetting), "Refresh during resetting should stay in resetting", Resetting),
        (
            bench(AddedToExistingCluster, ClusterStatus::AddingHosts).day2(),
            "Day 2 hosts should stay in added state",
            AddedToExistingCluster,
        ),
        (inst(Reclaiming), "Refresh without timeout during reclaiming should stay in reclaiming", Reclaiming),
        (
            inst(ReclaimingRebooting),
            "Refresh without timeout during reclaiming-rebooting should stay in reclaiming-rebooting",
            ReclaimingRebooting,
        ),
        (pool(KnownUnbound).silent(), "Move host to disconnected when connected times out", DisconnectedUnbound),
        (pool(DisconnectedUnbound).failing(V::HasInventory), "Host reconnected without inventory", DiscoveringUnbound),
        (pool(KnownUnbound).failing(V::HostnameValid), "Host has insufficient hardware", InsufficientUnbound),
        (pool(Binding), "Refresh during binding should stay in binding", Binding),
        (pool(Unbinding), "Refresh during unbinding should stay in unbinding", Unbinding),
        (pool(DiscoveringUnbound), "Host ready", KnownUnbound),
    ]
}

#[test]
fn every_row_fires_in_its_situation() {
    let all: Vec<&HostRule> = RULES.iter().chain(POOL_RULES).collect();
    let mut fired = BTreeSet::new();
    let situations = requests()
        .into_iter()
        .chain(refreshes().into_iter().map(|(b, name, to)| (HostEvent::RefreshHost, b, name, to)));
    for (event, bench, name, to) in situations {
        let from = bench.host.host.status;
        let decision = bench.fire(event).unwrap_or_else(|e| panic!("{name}: {e}"));
        let rule = decision.rule.unwrap_or_else(|| panic!("{name}: no row fired from {from}"));
        assert_eq!((rule.name, decision.to), (name, to), "{} from {from}", event.as_str());
        fired.insert(all.iter().position(|r| *r == rule).unwrap());
    }
    let silent: Vec<&str> = (0..all.len()).filter(|i| !fired.contains(i)).map(|i| all[i].name).collect();
    assert_eq!(silent, UNREACHABLE.iter().map(|(name, _)| *name).collect::<Vec<_>>());
}

#[rstest]
#[case(HostEvent::RegisterHost, Cancelled)]
#[case(HostEvent::RegisterHost, PreparingFailed)]
#[case(HostEvent::RegisterHost, Reclaiming)]
#[case(HostEvent::ResettingPendingUserAction, Disconnected)]
#[case(HostEvent::ResettingPendingUserAction, Insufficient)]
#[case(HostEvent::UnbindHost, Binding)]
#[case(HostEvent::CancelInstallation, Discovering)]
#[case(HostEvent::InstallHost, Known)]
#[case(HostEvent::BindHost, Known)]
fn other_requests_are_refused(#[case] event: HostEvent, #[case] from: HostStatus) {
    let refused = bench(from, ClusterStatus::Installing).fire(event);
    assert_eq!(refused, Err(NoTransition { event, state: At(from) }));
}

#[rstest]
#[case::installed(bench(Installed, ClusterStatus::Installing), Some(409))]
#[case::told_before(bench(InstallingPendingUserAction, ClusterStatus::Installing).in_stage(HostStage::Rebooting, 0), Some(400))]
#[case::first_time(bench(InstallingInProgress, ClusterStatus::Installing).in_stage(HostStage::Rebooting, 0), None)]
#[case::failed(bench(Error, ClusterStatus::Installing), None)]
fn registrations_that_a_row_accepts_may_still_be_refused(#[case] bench: HostCase, #[case] refused: Option<u16>) {
    let decision = bench.fire(HostEvent::RegisterHost).unwrap();
    assert_eq!(decision.refused, refused);
    assert_eq!(decision.changes_status(&bench.host), refused.is_none() && bench.host.host.status != Error);
}

#[test]
fn timers_are_noted_once() {
    let late = bench(InstallingInProgress, ClusterStatus::Installing).soft().in_stage(HostStage::Joined, 61);
    assert!(late.fire(HostEvent::RefreshHost).unwrap().stage_timed_out);
    let told = late.with(|b| b.host.host.progress.as_mut().unwrap().stage_timed_out = Some(true));
    assert!(!told.fire(HostEvent::RefreshHost).unwrap().stage_timed_out);

    let silent = bench(Installing, ClusterStatus::Installing).soft().silent();
    assert_eq!(silent.fire(HostEvent::RefreshHost).unwrap().connection_timed_out, Some(true));
    let told = silent.with(|b| b.host.host.connection_timed_out = Some(true));
    assert_eq!(told.fire(HostEvent::RefreshHost).unwrap().connection_timed_out, None);

    let logs = bench(Error, ClusterStatus::Ready).since(3);
    assert!(logs.fire(HostEvent::RefreshHost).unwrap().logs_timed_out);
    let told = logs.with(|b| b.host.host.logs_info = Some(LogsState::Timeout));
    assert!(!told.fire(HostEvent::RefreshHost).unwrap().logs_timed_out);
}

/// Minutes ago: the failure, the request for logs, the last logs. Limits: 2 minutes until they are asked for or go on, 10 until they
/// come.
#[rstest]
#[case::nobody_asks(LogsState::Empty, 1, None, None, false)]
#[case::nobody_asked(LogsState::Empty, 3, None, None, true)]
#[case::asked_and_forgotten(LogsState::Empty, 30, Some(30), None, false)]
#[case::asked(LogsState::Requested, 30, Some(9), None, false)]
#[case::asked_long_ago(LogsState::Requested, 30, Some(11), None, true)]
#[case::asked_again_after_some_came(LogsState::Requested, 30, Some(11), Some(9), false)]
#[case::some_came_long_ago(LogsState::Requested, 30, Some(1), Some(11), true)]
#[case::coming(LogsState::Collecting, 30, Some(30), Some(1), false)]
#[case::stuck(LogsState::Collecting, 30, Some(1), Some(3), true)]
#[case::never_came(LogsState::Collecting, 0, Some(0), None, true)]
#[case::there(LogsState::Completed, 30, Some(30), Some(30), false)]
fn logs_of_a_failed_host_time_out(
    #[case] state: LogsState,
    #[case] failed: u64,
    #[case] asked: Option<u64>,
    #[case] came: Option<u64>,
    #[case] over: bool,
) {
    let host = bench(Error, ClusterStatus::Error).since(failed).with(|b| {
        b.host.host.logs_info = Some(state);
        b.host.host.logs_started_at = asked.and_then(ago);
        b.host.host.logs_collected_at = came.and_then(ago);
    });
    assert_eq!(host.fire(HostEvent::RefreshHost).unwrap().logs_timed_out, over);
}

#[test]
fn a_host_that_waits_while_the_user_is_needed_has_its_timer_restarted_once_a_minute() {
    let waits = |minutes| {
        bench(InstallingInProgress, ClusterStatus::InstallingPendingUserAction)
            .in_stage(HostStage::Rebooting, minutes)
            .fire(HostEvent::RefreshHost)
            .unwrap()
    };
    assert!(!waits(0).touch_stage_timer);
    assert!(waits(1).touch_stage_timer);
    assert_eq!(waits(41).to, InstallingInProgress);
}

#[rstest]
#[case(Installing, true)]
#[case(InstallingPendingUserAction, true)]
#[case(Known, false)]
#[case(Installed, false)]
fn stage_failed_leads_to_error_from_the_installation_only(#[case] from: HostStatus, #[case] taken: bool) {
    let b = bench(from, ClusterStatus::Installing);
    let decision = installation_failed(&b.host, "disk is gone");
    assert_eq!(decision.is_some(), taken);
    if let Some(decision) = decision {
        assert_eq!((decision.to, decision.status_info.as_str()), (Error, "Failed - disk is gone"));
    }
}

#[test]
fn what_is_unmet_is_told_within_the_limit_of_the_api() {
    let mut b = bench(Known, ClusterStatus::Ready);
    b.failing = HOST.iter().filter(|s| s.gate == HostGate::Sufficient).map(|s| s.id).collect();
    let decision = b.fire(HostEvent::RefreshHost).unwrap();
    assert!(decision.status_info.contains("memory of its role"), "{}", decision.status_info);
    assert!(decision.status_info.len() <= 2040);
}

fn any_bench() -> impl Strategy<Value = HostCase> {
    let status = prop::sample::select(HostStatus::ALL);
    let cluster = prop::option::weighted(0.8, prop::sample::select(ClusterStatus::ALL));
    let stage = prop::option::of((prop::sample::select(HostStage::ALL), 0..120_u64));
    let times = (0..120_u64, 0..6_u64, prop::option::of(-80..80_i64), prop::option::of(0..15_u64));
    let flags = prop::collection::vec(any::<bool>(), 6);
    let role = prop::sample::select(HostRole::ALL);
    let logs = prop::sample::select(LogsState::ALL);
    (status, cluster, stage, times, flags, role, logs).prop_map(
        |(status, cluster, stage, (since, silent, clock, logs_since), flags, role, logs)| {
            let mut b = match cluster {
                Some(cluster) => bench(status, cluster),
                None => pool(status),
            };
            b = b.since(since);
            if let Some((stage, minutes)) = stage {
                b = b.in_stage(stage, minutes);
            }
            if flags[0] {
                b = b.soft();
            }
            if flags[1] {
                b = b.day2();
            }
            if flags[2] {
                b = b.checked();
            }
            if flags[3] {
                b.host.host.bootstrap = Some(true);
            }
            if flags[4] {
                b.host.host.connection_timed_out = Some(true);
            }
            if flags[5] {
                b.host.inventory = None;
            }
            b.host.host.role = Some(role);
            b.host.host.checked_in_at = ago(silent);
            b.host.host.timestamp = clock.map(|minutes| NOW.as_secs() + minutes * 60);
            b.host.host.logs_info = Some(logs);
            b.host.host.logs_started_at = logs_since.and_then(ago);
            b
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    #[test]
    fn no_decision_leaves_the_table(mut bench in any_bench(), stage in prop::sample::select(HostStage::ALL)) {
        bench.stage = Some(stage);
        let from = bench.host.host.status;
        for event in HostEvent::ALL {
            let table = bench.in_scope(|scope| machine_of(&bench.host, scope, *event));
            let decision = if *event == HostEvent::RefreshHost {
                bench.refresh_at(NOW)
            } else {
                match bench.fire(*event) {
                    Ok(decision) => decision,
                    Err(e) => {
                        prop_assert_eq!(e, NoTransition { event: *event, state: At(from) });
                        continue;
                    }
                }
            };
            match decision.rule {
                Some(rule) => prop_assert!(
                    table.contains(rule)
                        && rule.event == *event
                        && rule.from.contains(&At(from))
                        && rule.to == At(decision.to)
                ),
                None => prop_assert_eq!((decision.to, *event), (from, HostEvent::RefreshHost)),
            }
        }
    }

    #[test]
    fn nothing_happens_before_the_deadline(bench in any_bench(), part in 0.0..1.0_f64) {
        let decision = bench.refresh_at(NOW);
        let deadline = bench.in_scope(|scope| next_deadline(&bench.host, scope, &bench.settings, NOW));
        prop_assert!(deadline.is_none_or(|d| d > NOW));
        let gap = deadline.map_or(Duration::from_secs(1 << 30), |d| d.since(NOW)) - Duration::from_micros(1);
        prop_assert_eq!(&bench.refresh_at(NOW + gap.mul_f64(part)), &decision);
        prop_assert_eq!(&bench.refresh_at(NOW + gap), &decision);
    }
}
