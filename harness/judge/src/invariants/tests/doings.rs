//! Invariants over what simulated hosts and controllers do: each holds over a good story, and notices what is left out of it.

use vlab_api::types::FinalizingStage;
use vlab_model::history::{FaultPhase, HostsKind};

use super::*;

/// What is said, of host 0 or of the cluster.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Line {
    Did(&'static str),
    Inside(&'static str),
    Stage(HostStage, &'static str),
    HostLogs(LogsState),
    ClusterLogs(LogsState),
    Cluster(ClusterStatus),
    Finalizing(FinalizingStage),
    Console(OperatorStatus),
    Reboots,
}

use Line::{ClusterLogs, Console, Did, Finalizing, HostLogs, Inside, Reboots};

impl Story {
    fn tell(&mut self, line: Line) {
        match line {
            Did(word) => self.did(0, HostMoment::of(word)),
            Inside(word) => {
                let what = ClusterMoment::of(word);
                let host = what.is_of_host().then_some(0);
                self.inside(what, host);
            }
            Line::Stage(to, info) => {
                let (from, info) = (self.stages[0].replace(to), info.to_owned());
                self.say(Source::Database, What::HostStage { host: id(0), from, to: Some(to), info, percentage: 0 });
            }
            HostLogs(state) => self.say(Source::Database, What::HostLogs { host: id(0), state }),
            ClusterLogs(state) => self.say(Source::Database, What::ClusterLogs { cluster: C, state }),
            Line::Cluster(to) => self.cluster(to),
            Finalizing(stage) => self.say(Source::Database, What::ClusterFinalizingStage { cluster: C, stage }),
            Console(status) => self.console(Some(status)),
            Reboots => self.event("reboots_for_node", Some(C), Some(id(0))),
        }
    }
    fn answer(&mut self, step: StepType, answered: Option<i64>) {
        let (step_type, step_id) = (step.as_str().to_owned(), String::new());
        self.say(Source::Hosts, What::Step { host: id(0), step_type, step_id, answered, cached: false });
    }
    fn says(&self, id: &str) -> String {
        match verdict(self, id) {
            InvariantVerdict::Held => "held".to_owned(),
            InvariantVerdict::Violated { details, .. } => details.join("; "),
            InvariantVerdict::NotApplicable { reason } => reason,
        }
    }
}

/// So many simulated hosts that are told to install. Host 0 has that role.
fn told_to_install(hosts: usize, role: HostRole, bootstrap: bool) -> Story {
    let mut s = Story::default();
    for host in 0..hosts {
        let (host, name) = (id(host), format!("host-{host}"));
        s.say(Source::Harness, What::HostNamed { host, name, kind: HostsKind::Simulated });
    }
    s.cluster(ClusterStatus::Insufficient);
    for host in 0..hosts {
        s.host(host, HostStatus::Discovering);
        s.host(host, HostStatus::Known);
        s.role(host, HostRole::Master, false);
    }
    s.role(0, role, bootstrap);
    s.cluster(ClusterStatus::Ready);
    s.cluster(ClusterStatus::PreparingForInstallation);
    s.cluster(ClusterStatus::Installing);
    s
}

const BEGIN: &[Line] = &[Did("installer-started"), Line::Stage(HostStage::StartingInstallation, "")];
const BOOTKUBE: &[Line] = &[Did("bootstrap-ignition-fetched"), Line::Stage(HostStage::Installing, "")];
const INSTALLING: &[Line] = &[Line::Stage(HostStage::Installing, "")];
const WRITE: &[Line] = &[
    Did("ignition-fetched"),
    Line::Stage(HostStage::WritingImageToDisk, ""),
    Line::Stage(HostStage::WritingImageToDisk, "50%"),
    Line::Stage(HostStage::WritingImageToDisk, "100%"),
];
const REGISTRY: &[Line] = &[
    Line::Stage(HostStage::CopyingRegistryDataToDisk, ""),
    Line::Stage(HostStage::CopyingRegistryDataToDisk, "40%"),
    Line::Stage(HostStage::CopyingRegistryDataToDisk, "100%"),
];
const PIVOT: &[Line] = &[
    Line::Stage(HostStage::WaitingForControlPlane, "masters"),
    Line::Stage(HostStage::WaitingForBootkube, ""),
    Inside("bootkube-done"),
    Line::Stage(HostStage::WaitingForBootkube, "etcd"),
    Line::Stage(HostStage::WaitingForController, "controller"),
    Inside("controller-ready"),
    ClusterLogs(LogsState::Requested),
];
const END: &[Line] = &[
    HostLogs(LogsState::Requested),
    HostLogs(LogsState::Completed),
    Line::Stage(HostStage::Rebooting, ""),
    Did("rebooting"),
];

/// What a script need not have, or what makes it one.
const SPARE: &[Line] = &[
    Did("installer-started"),
    Did("rebooting"),
    HostLogs(LogsState::Requested),
    Line::Stage(HostStage::Rebooting, ""),
];

#[rstest]
#[case::bootstrap(3, HostRole::Master, true, &[BEGIN, BOOTKUBE, WRITE, REGISTRY, PIVOT, END])]
#[case::master(3, HostRole::Master, false, &[BEGIN, INSTALLING, WRITE, REGISTRY, END])]
#[case::worker(3, HostRole::Worker, false, &[BEGIN, INSTALLING, WRITE, &[Line::Stage(HostStage::WaitingForControlPlane, "")], END])]
#[case::single(1, HostRole::Master, true, &[BEGIN, BOOTKUBE, &[Line::Stage(HostStage::WaitingForBootkube, "")], WRITE, END])]
fn whatever_an_installer_leaves_out_is_noticed(
    #[case] hosts: usize,
    #[case] role: HostRole,
    #[case] bootstrap: bool,
    #[case] script: &[&[Line]],
) {
    let script: Vec<Line> = script.concat();
    let story = |without: Option<usize>| {
        let mut s = told_to_install(hosts, role, bootstrap);
        // Another installer tells what it fetches: the history has that.
        s.did(1, HostMoment::InstallerStarted);
        s.did(1, HostMoment::IgnitionFetched);
        script.iter().enumerate().filter(|(n, _)| Some(*n) != without).for_each(|(_, line)| s.tell(*line));
        s.wait(2);
        s
    };
    assert_eq!(story(None).says("installer-script"), "held");
    // A stage that is told twice may be left out once.
    let waits = |line: &&Line| matches!(line, Line::Stage(HostStage::WaitingForBootkube, _));
    let once = |line: &Line| !waits(&line) || script.iter().filter(waits).count() == 1;
    for (n, line) in script.iter().enumerate().filter(|(_, line)| once(line) && !SPARE.contains(line)) {
        let said = story(Some(n)).says("installer-script");
        assert!(said.starts_with("host-0 reboots, and "), "{line:?}: {said}");
    }
}

#[test]
fn a_bootstrap_waits_for_what_it_says_it_waits_for() {
    let order = |early: Line, before: Line| {
        let mut script = [BEGIN, BOOTKUBE, WRITE, PIVOT, END].concat();
        let from = script.iter().position(|line| *line == early).unwrap();
        let line = script.remove(from);
        let to = script.iter().position(|line| *line == before).unwrap();
        script.insert(to, line);
        let mut s = told_to_install(3, HostRole::Master, true);
        script.iter().for_each(|line| s.tell(*line));
        s.says("installer-script")
    };
    let etcd = Line::Stage(HostStage::WaitingForBootkube, "etcd");
    assert!(order(etcd, Inside("bootkube-done")).contains("before bootkube was done"));
    let logs = HostLogs(LogsState::Requested);
    assert!(order(logs, Inside("controller-ready")).contains("before the controller was ready"));
}

#[test]
fn what_a_fault_hits_is_not_judged() {
    let mut s = told_to_install(3, HostRole::Master, false);
    let fault = |host, cluster| What::Fault {
        name: "f".into(),
        phase: FaultPhase::Begin,
        inject: "stuck-stage".into(),
        host,
        cluster,
        detail: String::new(),
    };
    s.tell(Did("installer-started"));
    s.tell(Line::Stage(HostStage::Rebooting, ""));
    s.tell(Did("rebooting"));
    s.answer(StepType::Install, Some(1));
    let with = |host, cluster| {
        let mut s = Story { lines: s.lines.clone(), ..Story::default() };
        s.say(Source::Harness, fault(host, cluster));
        ["installer-script", "steps-answered"].map(|id| s.says(id))
    };
    assert!(with(Some(id(1)), None).iter().all(|said| said.starts_with("host-0")), "{:?}", with(Some(id(1)), None));
    for (host, cluster) in [(Some(id(0)), None), (None, Some(C)), (None, None)] {
        for said in with(host, cluster) {
            assert!(said.starts_with("not checked: ") || said.starts_with("the history"), "{said}");
        }
    }
}

/// Whose request was lost on the way says it again, and whoever asks a service that was killed, too.
#[rstest]
#[case::of_it(Interleaved::Lost, format!("POST /v2/infra-envs/{C}/hosts/{}/instructions", id(0)), false)]
#[case::of_its_cluster(Interleaved::Twice, format!("PUT /v2/clusters/{C}/progress"), true)]
#[case::of_another(Interleaved::Lost, format!("POST /v2/infra-envs/{C}/hosts/{}/instructions", id(2)), true)]
#[case::of_all(Interleaved::Killed, "before it stored write 7".to_owned(), false)]
fn what_an_interleaving_hits_is_not_judged(#[case] did: Interleaved, #[case] detail: String, #[case] judged: bool) {
    let mut s = told_to_install(3, HostRole::Master, false);
    s.tell(Did("installer-started"));
    s.tell(Line::Stage(HostStage::Rebooting, ""));
    s.tell(Did("rebooting"));
    s.say(Source::Harness, What::Interleaved { did, detail });
    assert_eq!(s.says("installer-script").starts_with("host-0"), judged, "{}", s.says("installer-script"));
}

const FINISH: &[Line] = &[
    Inside("controller-ready"),
    Inside("node-ready"),
    Line::Stage(HostStage::Done, ""),
    Reboots,
    Line::Cluster(ClusterStatus::Finalizing),
    ClusterLogs(LogsState::Collecting),
    Finalizing(FinalizingStage::WaitingForClusterOperators),
    Inside("operator-available:console"),
    Console(OperatorStatus::Available),
    Finalizing(FinalizingStage::AddingRouterCa),
    Finalizing(FinalizingStage::WaitingForOlmOperatorsCsvInitialization),
    Finalizing(FinalizingStage::Done),
    Inside("installation-completed"),
];

fn finished(without: Option<usize>, seconds_before_installed: usize) -> Story {
    let mut s = told_to_install(1, HostRole::Master, true);
    for (_, line) in FINISH.iter().enumerate().filter(|(n, _)| Some(*n) != without) {
        // Long enough for its logs to have come.
        s.skipped += if *line == Inside("installation-completed") { 600 } else { 0 };
        s.tell(*line);
    }
    s.wait(seconds_before_installed);
    s.tell(Line::Cluster(ClusterStatus::Installed));
    s.skipped += 600;
    s.say(Source::Harness, What::LastLook {});
    s
}

#[test]
fn whatever_a_controller_leaves_out_is_noticed() {
    assert_eq!(finished(None, 20).says("controller-order"), "held");
    let of_no_matter = [
        Inside("controller-ready"),
        Line::Stage(HostStage::Done, ""),
        Line::Cluster(ClusterStatus::Finalizing),
        Console(OperatorStatus::Available),
        // Nothing shows that an operator is up but this.
        Inside("operator-available:console"),
    ];
    for (n, line) in FINISH.iter().enumerate().filter(|(_, line)| !of_no_matter.contains(line)) {
        let said = finished(Some(n), 20).says("controller-order");
        assert!(said.contains("controller") || said.contains("rebooted"), "{line:?}: {said}");
    }
}

#[test]
fn a_controller_that_has_had_no_time_yet_may_complete_later() {
    let complete = FINISH.iter().position(|line| *line == Inside("installation-completed"));
    assert_eq!(finished(complete, 0).says("controller-order"), "held");
}

#[test]
fn a_controller_says_of_operators_what_is_so_where_it_is_known() {
    let up = FINISH.iter().position(|line| *line == Inside("operator-available:console"));
    let mut s = finished(up, 20);
    assert_eq!(s.says("controller-order"), "held");
    let settings = Some(Box::default());
    let first =
        Observation { what: What::RunStarted(RunInfo { settings, ..RunInfo::default() }), ..s.lines[0].clone() };
    s.lines.insert(0, first);
    assert!(s.says("controller-order").contains("told that console is available, which it is not"));
}

#[test]
fn a_controller_leaves_a_cluster_that_has_ended() {
    let ended = |leaves: bool| {
        let mut s = told_to_install(1, HostRole::Master, true);
        s.tell(Inside("controller-ready"));
        s.tell(Line::Cluster(ClusterStatus::Cancelled));
        if leaves {
            s.tell(ClusterLogs(LogsState::Requested));
        }
        s.skipped += 3600;
        s.wait(1);
        s.says("controller-order")
    };
    assert_eq!(ended(true), "held");
    assert!(ended(false).contains("did not leave a cluster that has ended"));
}

/// It has left when the cluster failed, and does so once.
#[test]
fn a_controller_leaves_a_cluster_that_failed_and_was_cancelled_once() {
    let mut s = told_to_install(1, HostRole::Master, true);
    s.tell(Inside("controller-ready"));
    s.tell(Line::Cluster(ClusterStatus::Error));
    s.tell(ClusterLogs(LogsState::Requested));
    s.tell(ClusterLogs(LogsState::Completed));
    s.skipped += 3600;
    s.tell(Line::Cluster(ClusterStatus::Cancelled));
    s.skipped += 3600;
    s.wait(1);
    assert_eq!(s.says("controller-order"), "held");
}

#[test]
fn steps_are_answered_and_done() {
    let ask = |s: &mut Story, times: usize| (0..times).for_each(|_| s.answer(StepType::NtpSynchronizer, None));
    let mut s = told_to_install(1, HostRole::Master, true);
    ask(&mut s, 2);
    assert!(s.says("steps-answered").starts_with("the history does not show"));
    ask(&mut s, 1);
    assert!(s.says("steps-answered").contains("was asked 3 times for ntp-synchronizer and never answered"));
    let mut restarted = Story { lines: s.lines.clone(), ..Story::default() };
    s.answer(StepType::NtpSynchronizer, Some(0));
    assert_eq!(s.says("steps-answered"), "held");
    s.answer(StepType::NtpSynchronizer, Some(-1));
    assert!(s.says("steps-answered").contains("could not do ntp-synchronizer (-1)"));
    // What it was asked for before it began anew is another matter, and was not answered then.
    restarted.tell(Did("powered-on"));
    restarted.answer(StepType::NtpSynchronizer, Some(0));
    assert!(restarted.says("steps-answered").contains("never answered"));
}

#[test]
fn a_host_that_says_it_has_stopped_has() {
    let stops = |between: &[&'static str]| {
        let mut s = told_to_install(1, HostRole::Master, true);
        s.tell(Did("installer-started"));
        between.iter().for_each(|word| s.tell(Did(word)));
        s.answer(StepType::StopInstallation, Some(0));
        s.says("steps-answered")
    };
    assert_eq!(stops(&["installer-stopped"]), "held");
    assert!(stops(&[]).contains("its installer runs"));
}

#[test]
fn leases_are_asked_for_in_each_status() {
    let asked = |preparing: bool, in_progress: bool, late: bool| {
        let mut s = Story::default();
        s.say(Source::Harness, What::ClusterNamed { cluster: C, name: "c".into(), vip_dhcp: true });
        if late {
            s.fault("slow-answer", FaultPhase::Begin);
        }
        let poll = |s: &mut Story, other: Option<StepType>, leases: bool| {
            s.skipped += 10;
            if leases {
                s.answer(StepType::DhcpLeaseAllocate, None);
            }
            if let Some(other) = other {
                s.answer(other, None);
                let n = s.lines.len();
                if leases {
                    s.lines[n - 1].harness_time = s.lines[n - 2].harness_time;
                }
            }
            s.skipped += 10;
        };
        let began = Timestamp::from_secs(s.now());
        s.host(0, HostStatus::Known);
        poll(&mut s, Some(StepType::Inventory), true);
        s.host(0, HostStatus::PreparingForInstallation);
        poll(&mut s, Some(StepType::ContainerImageAvailability), preparing);
        s.host(0, HostStatus::InstallingInProgress);
        s.skipped += 600;
        poll(&mut s, None, in_progress);
        let to = Timestamp::from_secs(s.now());
        let what = What::Polls { host: id(0), from: began, to, count: 9, longest_ms: 60_000, tried: to };
        s.say(Source::Hosts, what);
        s.says("leases-renewed")
    };
    assert_eq!(asked(true, true, false), "held");
    assert!(asked(false, true, false).contains("is preparing-for-installation and was not asked for the leases"));
    assert!(asked(true, false, false).contains("is installing-in-progress and was not asked for the leases"));
    // What comes late on purpose was asked in another status.
    assert!(!asked(false, true, true).contains("was not asked"));
}
