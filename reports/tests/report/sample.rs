//! Realistic histories for the tests and for the picture of a report: made by hand, with the stages of each role.

use vlab_api::Timestamp;
use vlab_api::types::{ClusterStatus, FinalizingStage, HostRole, HostStage, HostStatus, OperatorStatus, Severity};
use vlab_judge::cause::{Cause, CauseKind};
use vlab_judge::result::*;
use vlab_model::history::{
    ClusterMoment, FaultPhase, HostMoment, HostsKind, Observation, RunEnd, RunInfo, Source, TargetKind, UserVerb, What,
};

/// A v4-looking id that says what it is.
pub(crate) fn id(n: u128) -> uuid::Uuid {
    uuid::Uuid::from_u128(0x5a3c_9d10_0000_4000_8000_0000_0000_0000 + n)
}

pub(crate) const CLUSTER: u128 = 0x77;

/// 2026-11-20T12:50:00Z
const T0: i64 = 1_795_179_000_000_000;

pub(crate) fn at(ms: f64) -> Timestamp {
    Timestamp::from_micros(T0 + (ms * 1000.0) as i64)
}

#[derive(Default)]
pub(crate) struct Builder {
    items: Vec<(f64, Source, What)>,
}

impl Builder {
    pub(crate) fn add(&mut self, ms: f64, source: Source, what: What) {
        self.items.push((ms, source, what));
    }

    pub(crate) fn finish(mut self) -> Vec<Observation> {
        self.items.sort_by(|a, b| a.0.total_cmp(&b.0));
        let number = |(i, (ms, source, what)): (usize, (f64, Source, What))| Observation {
            v: 1,
            seq: i as u64,
            source,
            service_time: matches!(source, Source::Database | Source::Events).then(|| at(ms)),
            harness_time: at(ms + if source == Source::Harness { 0.0 } else { 1.7 }),
            what,
        };
        self.items.into_iter().enumerate().map(number).collect()
    }

    pub(crate) fn host_status(&mut self, host: u128, ms: f64, from: Option<HostStatus>, to: HostStatus, info: &str) {
        let what = What::HostStatus { host: id(host), cluster: Some(id(CLUSTER)), from, to, info: info.into() };
        self.add(ms, Source::Database, what);
        let severity = match to {
            HostStatus::Error => Severity::Error,
            HostStatus::Insufficient => Severity::Warning,
            _ => Severity::Info,
        };
        let event = What::Event {
            name: "host_status_updated".into(),
            severity,
            message: format!("updated status to \"{to}\" ({info})"),
            cluster: Some(id(CLUSTER)),
            host: Some(id(host)),
        };
        self.add(ms + 0.4, Source::Events, event);
    }

    pub(crate) fn stages(&mut self, host: u128, stages: &[(f64, HostStage, &str)]) {
        let mut from = None;
        for (ms, to, info) in stages {
            let (to, info) = (Some(*to), (*info).to_owned());
            self.add(*ms, Source::Database, What::HostStage { host: id(host), from, to, info, percentage: 0 });
            from = to;
        }
    }

    fn cluster(&mut self, states: &[(f64, ClusterStatus, &str)]) {
        let mut from = None;
        for (ms, to, info) in states {
            let what = What::ClusterStatus { cluster: id(CLUSTER), from, to: *to, info: (*info).into() };
            self.add(*ms, Source::Database, what);
            from = Some(*to);
        }
    }

    fn user(&mut self, ms: f64, action: &str, status: u16) {
        let (action, subject) = (UserVerb::of(action), Some(id(CLUSTER)));
        self.add(
            ms,
            Source::Harness,
            What::UserAction { action, subject, status, reason: String::new(), planned: None },
        );
    }
}

/// Statuses of a host until it installs: discovers itself, lacks things, has all.
fn discovery(b: &mut Builder, host: u128, ms: f64) {
    use HostStatus as S;
    b.host_status(host, ms, None, S::Discovering, "Waiting for host to send hardware details");
    b.host_status(
        host,
        ms + 260.0,
        Some(S::Discovering),
        S::Insufficient,
        "Host cannot be installed: NTP is not synced",
    );
    b.host_status(host, ms + 640.0, Some(S::Insufficient), S::Known, "Host is ready to be installed");
}

fn named(b: &mut Builder, info: &RunInfo, cluster: &str, hosts: &[(u128, &str, HostRole, bool)]) {
    b.add(0.0, Source::Harness, What::RunStarted(info.clone()));
    b.add(60.0, Source::Harness, What::ClusterNamed { cluster: id(CLUSTER), name: cluster.into(), vip_dhcp: false });
    for (host, name, role, bootstrap) in hosts {
        let (name, kind) = ((*name).to_owned(), HostsKind::Simulated);
        b.add(300.0 + *host as f64 * 31.0, Source::Harness, What::HostNamed { host: id(*host), name, kind });
        let what = What::HostRole { host: id(*host), role: *role, bootstrap: *bootstrap };
        b.add(2040.0, Source::Database, what);
    }
}

pub(crate) fn info(scenario: &str) -> RunInfo {
    RunInfo {
        run_id: format!("20261120-125000-{scenario}-7f3a"),
        scenario: scenario.into(),
        scenario_path: format!("scenarios/{scenario}.yaml"),
        seed: 42,
        service: TargetKind::Simulated,
        hosts: HostsKind::Simulated,
        time_profile: "fast".into(),
        vlab_version: "0.1.0".into(),
        versions: [("postgresql".to_owned(), "15.14".to_owned())].into(),
        ..RunInfo::default()
    }
}

const MASTERS: [(u128, &str); 3] = [(1, "master-0"), (2, "master-1"), (3, "master-2")];
const WORKERS: [(u128, &str); 2] = [(4, "worker-0"), (5, "worker-1")];

/// Three masters and two workers install; every role with its own stages.
pub(crate) fn ha() -> (RunResult, Vec<Observation>) {
    use HostStatus as S;
    let info = info("ha-3-2");
    let mut b = Builder::default();
    let mut hosts: Vec<_> = MASTERS.map(|(i, n)| (i, n, HostRole::Master, i == 1)).to_vec();
    hosts.extend(WORKERS.map(|(i, n)| (i, n, HostRole::Worker, false)));
    named(&mut b, &info, "ha", &hosts);
    b.user(80.0, "create-cluster", 201);
    b.user(130.0, "create-infra-env", 201);
    b.user(1500.0, "set-vips", 201);
    b.user(2100.0, "install", 202);
    b.cluster(&[
        (90.0, ClusterStatus::PendingForInput, "User input required"),
        (1530.0, ClusterStatus::Insufficient, "Cluster is not ready for install"),
        (1900.0, ClusterStatus::Ready, "Cluster ready to be installed"),
        (2120.0, ClusterStatus::PreparingForInstallation, "Preparing cluster for installation"),
        (2610.0, ClusterStatus::Installing, "Installation in progress"),
        (7420.0, ClusterStatus::Finalizing, "Finalizing cluster installation"),
        (8760.0, ClusterStatus::Installed, "Cluster is installed"),
    ]);
    for (host, ..) in &hosts {
        let skew = *host as f64 * 31.0;
        discovery(&mut b, *host, 320.0 + skew);
        b.host_status(*host, 2130.0, Some(S::Known), S::PreparingForInstallation, "Preparing host for installation");
        b.host_status(
            *host,
            2420.0 + skew,
            Some(S::PreparingForInstallation),
            S::PreparingSuccessful,
            "Ready to install",
        );
        b.host_status(*host, 2615.0, Some(S::PreparingSuccessful), S::Installing, "Installation is in progress");
        b.host_status(*host, 2660.0 + skew, Some(S::Installing), S::InstallingInProgress, "Starting installation");
    }
    masters_install(&mut b);
    workers_install(&mut b);
    inside_the_cluster(&mut b);
    b.add(8800.0, Source::Harness, What::RunFinished { how: RunEnd::Ended });
    (ha_result(info), b.finish())
}

fn masters_install(b: &mut Builder) {
    use HostStage::*;
    use HostStatus as S;
    b.stages(
        1,
        &[
            (2660.0, StartingInstallation, "bootstrap"),
            (2790.0, Installing, "master"),
            (2900.0, WritingImageToDisk, ""),
            (3800.0, WritingImageToDisk, "100%"),
            (3850.0, WaitingForControlPlane, "waiting for masters"),
            (5200.0, WaitingForBootkube, ""),
            (5700.0, WaitingForController, ""),
            (6000.0, Rebooting, ""),
            (6500.0, Configuring, ""),
            (6900.0, Joined, ""),
            (7250.0, Done, ""),
        ],
    );
    for (host, skew) in [(2, 0.0), (3, 110.0)] {
        b.stages(
            host,
            &[
                (2680.0 + skew, StartingInstallation, "master"),
                (2800.0 + skew, Installing, "master"),
                (2910.0 + skew, WritingImageToDisk, ""),
                (3760.0 + skew, WritingImageToDisk, "100%"),
                (3820.0 + skew, Rebooting, ""),
                (4350.0 + skew, Configuring, ""),
                (4800.0 + skew, Joined, ""),
                (5150.0 + skew, Done, ""),
            ],
        );
        b.host_status(host, 5160.0 + skew, Some(S::InstallingInProgress), S::Installed, "Done");
    }
    b.host_status(1, 7260.0, Some(S::InstallingInProgress), S::Installed, "Done");
}

fn workers_install(b: &mut Builder) {
    use HostStage::*;
    use HostStatus as S;
    for (host, skew) in [(4, 0.0), (5, 140.0)] {
        b.stages(
            host,
            &[
                (2700.0 + skew, StartingInstallation, "worker"),
                (2830.0 + skew, Installing, "worker"),
                (2950.0 + skew, WritingImageToDisk, ""),
                (3900.0 + skew, WaitingForControlPlane, ""),
                (5300.0 + skew, Rebooting, ""),
                (5750.0 + skew, WaitingForIgnition, ""),
                (6100.0 + skew, Configuring, ""),
                (6600.0 + skew, Joined, ""),
                (7000.0 + skew, Done, ""),
            ],
        );
        b.host_status(host, 7010.0 + skew, Some(S::InstallingInProgress), S::Installed, "Done");
    }
}

/// What hosts, the cluster inside of them and the end of the installation say.
fn inside_the_cluster(b: &mut Builder) {
    for (ms, host) in [(4200.0, 2), (4310.0, 3), (5600.0, 4), (5740.0, 5), (6380.0, 1)] {
        b.add(ms, Source::Hosts, What::HostDid { host: id(host), what: HostMoment::BootedInstalledOs });
    }
    for (ms, what, host) in [
        (4790.0, "node-ready", Some(2)),
        (5660.0, "bootkube-done", None),
        (5950.0, "controller-ready", None),
        (6890.0, "node-ready", Some(1)),
    ] {
        b.add(
            ms,
            Source::Hosts,
            What::InCluster { cluster: id(CLUSTER), host: host.map(id), what: ClusterMoment::of(what) },
        );
    }
    for (ms, stage) in [
        (7460.0, FinalizingStage::WaitingForClusterOperators),
        (8300.0, FinalizingStage::AddingRouterCa),
        (8500.0, FinalizingStage::ApplyingOlmManifests),
        (8700.0, FinalizingStage::Done),
    ] {
        b.add(ms, Source::Database, What::ClusterFinalizingStage { cluster: id(CLUSTER), stage });
    }
    for (ms, name) in [(7900.0, "console"), (8250.0, "cvo")] {
        let status = Some(OperatorStatus::Available);
        b.add(ms, Source::Database, What::Operator { cluster: id(CLUSTER), name: name.into(), status, kind: None });
    }
}

fn ha_result(info: RunInfo) -> RunResult {
    let mut result = result(info, 8812.0);
    for name in ["cluster installs", "workers wait for the control plane", "bootstrap pivots last"] {
        result.checks.push(CheckResult::new(CheckKind::Expectation, name, CheckVerdict::Passed));
    }
    for i in 1..=15 {
        let mut check = CheckResult::new(CheckKind::Invariant, format!("rule-{i}: what it says"), CheckVerdict::Passed);
        check.message = "held over the whole history".into();
        if i == 14 {
            check.verdict = CheckVerdict::Skipped { reason: "needs two replicas of the service".into() };
        }
        result.checks.push(check);
    }
    result.checks.push(CheckResult::new(CheckKind::Leak, "nothing is left behind", CheckVerdict::Passed));
    result.checks.push(CheckResult::new(CheckKind::Budget, "install to installed", CheckVerdict::Passed));
    let duration = |name: &str, took: f64, budget: Option<f64>, source: &str| DurationResult {
        name: name.into(),
        subject: None,
        took_ms: Some(took),
        budget_ms: budget,
        budget_source: budget.map(|_| source.to_owned()),
    };
    result.durations = vec![
        duration("start to first registration", 351.0, Some(3000.0), "built in"),
        duration("registration to known", 640.0, Some(5000.0), "time profile fast"),
        duration("install to installed", 6660.0, Some(9000.0), "scenario"),
        duration("whole run", 8812.0, Some(10000.0), "scenario"),
        duration("writing image to disk", 960.0, None, ""),
    ];
    result.overhead = Some(Overhead {
        wall_ms: 8812.0,
        forced_ms: 8690.0,
        overhead_ms: 122.0,
        limit_ms: Some(200.0),
        first_host_ms: Some(351.0),
    });
    result.detection_latency_ms = Some(Quantiles { count: 118, p50: 1.7, p90: 2.9, p99: 6.1, p999: 9.4, max: 9.4 });
    result.conclude();
    result
}

fn disk_cause() -> Cause {
    Cause {
        kind: CauseKind::InstallerFailed,
        subject: Some("master-0".into()),
        at: Some(at(3700.0)),
        seq: Some(30),
        title: "the installer on master-0 gave up in the stage Writing image to disk".into(),
        words: "failed after 3 attempts: write /dev/sda: input/output error".into(),
        around: vec![
            "+3.300s stage Writing image to disk: 35%".into(),
            "+3.700s stage Failed: failed after 3 attempts: write /dev/sda: input/output error".into(),
            "+3.710s status installing-in-progress → error (Failed - write /dev/sda: input/output error)".into(),
        ],
        console: vec!["[   41.2] I/O error, dev sda, sector 2048".into()],
        ..Cause::default()
    }
}

/// A single node whose disk cannot be written: the verdict is failed.
pub(crate) fn sno_failed() -> (RunResult, Vec<Observation>) {
    use HostStage::*;
    use HostStatus as S;
    let info = info("sno-disk-fails");
    let mut b = Builder::default();
    named(&mut b, &info, "sno", &[(1, "master-0", HostRole::Master, true)]);
    b.user(80.0, "create-cluster", 201);
    b.user(130.0, "create-infra-env", 201);
    b.user(1400.0, "install", 202);
    b.cluster(&[
        (90.0, ClusterStatus::Insufficient, "Cluster is not ready for install"),
        (1300.0, ClusterStatus::Ready, "Cluster ready to be installed"),
        (1420.0, ClusterStatus::PreparingForInstallation, "Preparing cluster for installation"),
        (1800.0, ClusterStatus::Installing, "Installation in progress"),
        (3900.0, ClusterStatus::Error, "cluster has hosts in error"),
    ]);
    discovery(&mut b, 1, 340.0);
    b.host_status(1, 1430.0, Some(S::Known), S::PreparingForInstallation, "Preparing host for installation");
    b.host_status(1, 1700.0, Some(S::PreparingForInstallation), S::PreparingSuccessful, "Ready to install");
    b.host_status(1, 1810.0, Some(S::PreparingSuccessful), S::Installing, "Installation is in progress");
    b.host_status(1, 1900.0, Some(S::Installing), S::InstallingInProgress, "Starting installation");
    b.stages(
        1,
        &[
            (1900.0, StartingInstallation, "master"),
            (2050.0, Installing, "master"),
            (2200.0, WaitingForBootkube, ""),
            (2900.0, WritingImageToDisk, ""),
            (3300.0, WritingImageToDisk, "35%"),
            (3700.0, Failed, "failed after 3 attempts: write /dev/sda: input/output error"),
        ],
    );
    b.host_status(1, 3710.0, Some(S::InstallingInProgress), S::Error, "Failed - write /dev/sda: input/output error");
    for (ms, phase) in [
        (3000.0, FaultPhase::Begin),
        (3310.0, FaultPhase::Effect),
        (3700.0, FaultPhase::Effect),
        (3950.0, FaultPhase::End),
    ] {
        let what = What::Fault {
            name: "disk-write-error".into(),
            phase,
            inject: String::new(),
            host: None,
            cluster: None,
            detail: String::new(),
        };
        b.add(ms, Source::Harness, what);
    }
    b.add(4020.0, Source::Harness, What::RunFinished { how: RunEnd::CutShort });
    let mut result = result(info, 4030.0);
    let mut check = CheckResult::new(CheckKind::Expectation, "host installs", CheckVerdict::Failed);
    check.subject = Some("master-0".into());
    check.message = "the host ended in error instead of installed".into();
    check.expected = "… → installing-in-progress → installed".into();
    check.seen = "… → installing-in-progress → error (Failed - write /dev/sda: input/output error)".into();
    check.at = Some(at(3710.0));
    check.seq = Some(31);
    check.follows = true;
    check.last_things = vec![
        "12:50:01.810 status installing".into(),
        "12:50:01.900 status installing-in-progress".into(),
        "12:50:01.900 stage Starting installation".into(),
        "12:50:02.050 stage Installing".into(),
        "12:50:02.200 stage Waiting for bootkube".into(),
        "12:50:02.900 stage Writing image to disk".into(),
        "12:50:03.300 progress 35%".into(),
        "12:50:03.310 step install: attempt 2 of 3".into(),
        "12:50:03.700 stage Failed".into(),
        "12:50:03.710 status error".into(),
    ];
    result.checks.push(CheckResult::new(CheckKind::Invariant, "I1", CheckVerdict::Passed));
    result.checks.push(check);
    let reason = "the history ends before a second bootstrap could be chosen".into();
    result.checks.push(CheckResult::new(CheckKind::Invariant, "I3", CheckVerdict::Inconclusive { reason }));
    result.checks.push(CheckResult::new(CheckKind::Leak, "nothing is left behind", CheckVerdict::Passed));
    let mut budget = CheckResult::new(CheckKind::Budget, "install to installed", CheckVerdict::Failed);
    budget.message = "never happened; 9 s are allowed".into();
    budget.follows = true;
    result.checks.push(budget);
    result.cause = Some(disk_cause());
    result.durations = vec![DurationResult {
        name: "install to installed".into(),
        took_ms: None,
        budget_ms: Some(9000.0),
        budget_source: Some("scenario".into()),
        ..DurationResult::default()
    }];
    result.conclude();
    (result, b.finish())
}

/// `hosts` hosts that register, become known and idle, with `changes` more changes each; a few get lost.
pub(crate) fn fleet(hosts: usize, changes: usize) -> (RunResult, Vec<Observation>) {
    use HostStatus as S;
    let info = info(&format!("fleet-{hosts}"));
    let mut b = Builder::default();
    b.add(0.0, Source::Harness, What::RunStarted(info.clone()));
    for i in 0..hosts {
        let host = 1000 + i as u128;
        let name = format!("{}-{i}", if i % 5 == 0 { "worker" } else { "edge" });
        b.add(10.0, Source::Harness, What::HostNamed { host: id(host), name, kind: HostsKind::Simulated });
        let start = 200.0 + i as f64 * 4000.0 / hosts as f64;
        let mut from = None;
        let flapping = [S::Disconnected, S::Known].into_iter().cycle().take(changes);
        for (n, to) in [S::Discovering, S::Insufficient, S::Known].into_iter().chain(flapping).enumerate() {
            let ms = start + n as f64 * if n < 3 { 300.0 + (i % 7) as f64 * 40.0 } else { 310.0 };
            let info = "Host is ready to be installed, and waits".to_owned();
            b.add(ms, Source::Database, What::HostStatus { host: id(host), cluster: None, from, to, info });
            from = Some(to);
        }
        if i % 401 == 17 {
            let what = What::HostStatus {
                host: id(host),
                cluster: None,
                from,
                to: S::Disconnected,
                info: "Host lost connection to the service".into(),
            };
            b.add(start + 9000.0, Source::Database, what);
        }
    }
    let mut result = result(info, 14_000.0);
    result.checks.push(CheckResult::new(CheckKind::Expectation, "all hosts become known", CheckVerdict::Passed));
    let latency = |operation: &str, p50: f64| OperationLatency {
        operation: operation.into(),
        latency_ms: Quantiles { count: 31_000, p50, p90: p50 * 2.1, p99: p50 * 4.7, p999: p50 * 11.0, max: p50 * 19.5 },
    };
    result.load = Some(LoadReport {
        hosts: hosts as u64,
        measured_s: 13.2,
        offered_rps: 2012.5,
        achieved_rps: 2008.1,
        requests: 61_400,
        errors: [("HTTP 500".to_owned(), 0), ("connection reset".to_owned(), 3)].into(),
        latency: vec![latency("GetNextSteps", 1.2), latency("PostStepReply", 2.6), latency("RegisterHost", 4.4)],
        agents_rss_kib: Some(88_000),
        service_rss_kib: Some(212_000),
        postgres_rss_kib: Some(160_500),
        per_host_kib_slope: Some(31.4),
    });
    result.conclude();
    (result, b.finish())
}

fn result(run: RunInfo, took_ms: f64) -> RunResult {
    RunResult {
        version: RESULT_VERSION,
        how_to_repeat: format!("cargo xtask scenario {} --seed {}", run.scenario, run.seed),
        run,
        started_at: at(0.0),
        finished_at: at(took_ms),
        environment: [("cores", "2"), ("kernel", "6.1.0"), ("memory", "8 GiB")]
            .map(|(k, v)| (k.to_owned(), v.to_owned()))
            .into(),
        files: vec![
            FileRef { path: "history.jsonl".into(), what: "everything that was observed, a line each".into() },
            FileRef { path: "logs/service.log".into(), what: "log of the service".into() },
        ],
        ..RunResult::default()
    }
}
