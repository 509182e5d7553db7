use rstest::rstest;
use uuid::Uuid;
use vlab_api::Timestamp;
use vlab_api::types::{
    ClusterStatus, HostRole, HostStage, HostStatus, LogsState, OperatorStatus, OperatorType, Severity, StepType,
};
use vlab_model::history::{
    ActionKind, ClusterMoment, FaultPhase, HISTORY_VERSION, HostMoment, Interleaved, Observation, RunInfo, Source,
    UserVerb, What,
};
use vlab_model::stages::{self, StageRole};

use super::reader::KEPT_DETAILS;
use super::*;

mod doings;
mod heard;
mod resources;

const C: Uuid = Uuid::from_u128(100);

fn id(host: usize) -> Uuid {
    Uuid::from_u128(host as u128 + 1)
}

/// Writes histories, one second between two observations.
#[derive(Default)]
struct Story {
    lines: Vec<Observation>,
    hosts: [Option<HostStatus>; 5],
    stages: [Option<HostStage>; 5],
    cluster: Option<ClusterStatus>,
    /// Seconds that were skipped.
    skipped: i64,
}

impl Story {
    fn say(&mut self, source: Source, what: What) {
        let at = Timestamp::from_secs(self.now());
        let seq = self.lines.len() as u64;
        self.lines.push(Observation { v: HISTORY_VERSION, seq, source, service_time: None, harness_time: at, what });
    }
    /// When the next thing is said.
    fn now(&self) -> i64 {
        1_000 + self.lines.len() as i64 + self.skipped
    }
    /// At the same time as what was said last.
    fn say_too(&mut self, source: Source, what: What) {
        self.say(source, what);
        let n = self.lines.len();
        self.lines[n - 1].harness_time = self.lines[n - 2].harness_time;
    }
    fn event(&mut self, name: &str, cluster: Option<Uuid>, host: Option<Uuid>) {
        self.event_says(name, cluster, host, String::new());
    }
    fn event_says(&mut self, name: &str, cluster: Option<Uuid>, host: Option<Uuid>, message: String) {
        let name = name.to_owned();
        self.say(Source::Events, What::Event { name, severity: Severity::Info, message, cluster, host });
    }
    fn wait(&mut self, seconds: usize) {
        for _ in 0..seconds {
            self.say(Source::Harness, What::Note { text: String::new() });
        }
    }
    fn host(&mut self, host: usize, to: HostStatus) {
        let from = self.hosts[host].replace(to);
        let status = What::HostStatus { host: id(host), cluster: Some(C), from, to, info: String::new() };
        self.say(Source::Database, status.clone());
        self.say(Source::Poll, status);
        let message = format!("Host {host}: updated status from {} to {to} (why)", from.unwrap_or(to));
        // The first status has no event.
        if from.is_some() {
            self.event_says("host_status_updated", Some(C), Some(id(host)), message);
            if let Some(Observation { what: What::Event { severity, .. }, .. }) = self.lines.last_mut() {
                *severity = vlab_model::event::of_status(to);
            }
        }
    }
    fn cluster(&mut self, to: ClusterStatus) {
        let from = self.cluster.replace(to);
        let status = What::ClusterStatus { cluster: C, from, to, info: String::new() };
        self.say(Source::Database, status.clone());
        if to == ClusterStatus::Installed {
            self.say_too(Source::Database, What::ClusterProgress { cluster: C, total: 100 });
        }
        self.say(Source::Poll, status);
        if to != ClusterStatus::AddingHosts {
            let message = format!("Updated status of the cluster to {to} (why)");
            self.event_says("cluster_status_updated", Some(C), None, message);
        }
    }
    fn stage(&mut self, host: usize, to: HostStage) {
        let from = self.stages[host].replace(to);
        let role =
            [StageRole::Master, StageRole::Master, StageRole::Bootstrap, StageRole::Worker, StageRole::Worker][host];
        let (info, percentage) = (String::new(), stages::percentage(role, to));
        self.say(Source::Database, What::HostStage { host: id(host), from, to: Some(to), info, percentage });
    }
    fn inside(&mut self, what: ClusterMoment, host: Option<usize>) {
        self.say(Source::Hosts, What::InCluster { cluster: C, host: host.map(id), what });
    }
    fn did(&mut self, host: usize, what: HostMoment) {
        self.say(Source::Hosts, What::HostDid { host: id(host), what });
    }
    fn total(&mut self, total: i64) {
        self.say(Source::Database, What::ClusterProgress { cluster: C, total });
    }
    fn role(&mut self, host: usize, role: HostRole, bootstrap: bool) {
        self.say(Source::Database, What::HostRole { host: id(host), role, bootstrap });
    }
    fn console(&mut self, status: Option<OperatorStatus>) {
        let (name, kind) = ("console".to_owned(), Some(OperatorType::Builtin));
        self.say(Source::Database, What::Operator { cluster: C, name, status, kind });
    }
    fn step(&mut self, host: usize, step: StepType) {
        let (step_type, step_id) = (step.as_str().to_owned(), String::new());
        self.say(Source::Hosts, What::Step { host: id(host), step_type, step_id, answered: None, cached: false });
    }
}

/// Hosts 0 to 2 are masters (2 is the bootstrap), 3 and 4 are workers.
fn until_installing() -> Story {
    let mut s = Story::default();
    s.cluster(ClusterStatus::Insufficient);
    s.console(None);
    for host in 0..5 {
        s.host(host, HostStatus::Discovering);
        s.host(host, HostStatus::Known);
    }
    s.cluster(ClusterStatus::Ready);
    s.cluster(ClusterStatus::PreparingForInstallation);
    for host in 0..5 {
        s.role(host, if host < 3 { HostRole::Master } else { HostRole::Worker }, host == 2);
        s.host(host, HostStatus::PreparingForInstallation);
        s.host(host, HostStatus::PreparingSuccessful);
    }
    s.cluster(ClusterStatus::Installing);
    for host in 0..5 {
        s.host(host, HostStatus::Installing);
        s.did(host, HostMoment::InstallerStarted);
        s.stage(host, HostStage::StartingInstallation);
        s.host(host, HostStatus::InstallingInProgress);
        s.stage(host, HostStage::WritingImageToDisk);
    }
    s.total(30);
    s
}

fn until_bootstrap_reboots(s: &mut Story) {
    s.stage(2, HostStage::WaitingForControlPlane);
    for master in 0..2 {
        s.did(master, HostMoment::InstallerStopped);
        s.stage(master, HostStage::Rebooting);
        s.stage(master, HostStage::Configuring);
        s.inside(ClusterMoment::NodeReady, Some(master));
    }
    s.stage(2, HostStage::WaitingForBootkube);
    s.inside(ClusterMoment::BootkubeDone, None);
    s.inside(ClusterMoment::EtcdBootstrapDone, None);
    s.stage(2, HostStage::WaitingForController);
    s.inside(ClusterMoment::ControllerReady, None);
    s.stage(2, HostStage::Rebooting);
}

fn until_installed(s: &mut Story) {
    for host in 0..5 {
        if host > 2 {
            s.stage(host, HostStage::WaitingForControlPlane);
            s.stage(host, HostStage::Rebooting);
        }
        s.stage(host, HostStage::Joined);
        s.stage(host, HostStage::Done);
        s.host(host, HostStatus::Installed);
    }
    s.total(80);
    s.cluster(ClusterStatus::Finalizing);
    s.console(Some(OperatorStatus::Available));
    s.total(95);
    s.cluster(ClusterStatus::Installed);
    s.event("cluster_installation_completed", Some(C), None);
}

fn good() -> Story {
    let mut s = until_installing();
    until_bootstrap_reboots(&mut s);
    until_installed(&mut s);
    s
}

fn verdict(story: &Story, id: &str) -> InvariantVerdict {
    check_all(&story.lines).into_iter().find(|r| r.id == id).unwrap().verdict
}

fn violations(story: &Story) -> Vec<(&'static str, Vec<String>, u64)> {
    let violated = |r: InvariantResult| match r.verdict {
        InvariantVerdict::Violated { details, first_seq } => Some((r.id, details, first_seq)),
        _ => None,
    };
    check_all(&story.lines).into_iter().filter_map(violated).collect()
}

/// The story ends here with the only violation.
fn assert_only(story: &Story, id: &str, says: &str) {
    let found = violations(story);
    assert_eq!(found.iter().map(|v| v.0).collect::<Vec<_>>(), [id], "{found:?}");
    assert!(found[0].1[0].contains(says), "{found:?}");
    assert!(found[0].2 < story.lines.len() as u64);
}

/// The story ends here with that violation, and maybe others.
fn assert_violated(story: &Story, id: &str, says: &str) {
    let found = violations(story);
    let details = found.iter().find(|v| v.0 == id).map(|v| v.1[0].clone()).unwrap_or_default();
    assert!(details.contains(says), "{found:?}");
}

#[test]
fn a_good_installation_holds_and_says_what_it_could_not_check() {
    let results = check_all(&good().lines);
    assert_eq!(results.len(), INVARIANTS.len());
    for result in results {
        match (result.id, result.verdict) {
            (
                "cancelled-only-stops"
                | "silence-disconnects"
                | "too-few-hosts-fail"
                | "validations-agree"
                | "one-service-decides"
                | "times-follow"
                | "at-rest"
                | "versions-grow"
                | "conditions-agree"
                | "deleted-goes"
                | "resources-rest"
                | "secrets-hidden"
                | "spec-frozen"
                | "steps-answered"
                | "installer-script"
                | "controller-order"
                | "leases-renewed"
                | "asked-for-all"
                | "explained-by-rules",
                InvariantVerdict::NotApplicable { reason },
            ) => {
                assert_eq!(result.checked, 0);
                assert!(!reason.is_empty());
            }
            (id, InvariantVerdict::Held) => assert!(result.checked > 0, "{id} was held unchecked"),
            (id, other) => panic!("{id}: {other:?}"),
        }
    }
}

#[test]
fn nothing_is_held_in_an_empty_history() {
    for result in check_all(&[]) {
        assert!(matches!(result.verdict, InvariantVerdict::NotApplicable { .. }), "{result:?}");
        assert_eq!(result.checked, 0);
    }
}

#[test]
fn status_edges_knows_no_way_from_known_to_installed() {
    let mut s = until_installing();
    s.hosts[0] = Some(HostStatus::Known);
    s.host(0, HostStatus::Installed);
    assert_violated(&s, "status-edges", "went from known to installed");
    assert_violated(&s, "end-complete", "is installed and in stage Writing image to disk");
}

#[test]
fn status_edges_follows_paths_when_states_were_polled() {
    let poll = |from, to| {
        let mut s = Story::default();
        let info = String::new();
        s.say(Source::Poll, What::HostStatus { host: id(0), cluster: Some(C), from: Some(from), to, info });
        verdict(&s, "status-edges")
    };
    assert_eq!(poll(HostStatus::Discovering, HostStatus::PreparingSuccessful), InvariantVerdict::Held);
    let back = poll(HostStatus::Cancelled, HostStatus::Installed);
    // After a reset anything is possible again; a status that nothing leads to is not.
    assert_eq!(back, InvariantVerdict::Held);
    assert!(matches!(poll(HostStatus::Known, HostStatus::Disabled), InvariantVerdict::Violated { .. }));
}

#[rstest]
#[case::back(HostStage::StartingInstallation, "went back")]
#[case::not_of_the_role(HostStage::WaitingForIgnition, "its role does not have")]
fn stages_forward_knows_the_order_of_each_role(#[case] stage: HostStage, #[case] says: &str) {
    let mut s = until_installing();
    s.stage(0, stage);
    assert_only(&s, "stages-forward", says);
}

#[test]
fn stages_forward_lets_a_host_begin_anew_after_a_reset() {
    let mut s = until_installing();
    let (host, from) = (id(0), Some(HostStage::WritingImageToDisk));
    s.say(Source::Database, What::HostStage { host, from, to: None, info: String::new(), percentage: 0 });
    s.stages[0] = None;
    s.stage(0, HostStage::StartingInstallation);
    assert_eq!(violations(&s), []);
}

#[test]
fn one_bootstrap_wants_one_bootstrap() {
    let mut s = until_installing();
    s.role(1, HostRole::Master, true);
    let mut made_good = Story { lines: s.lines.clone(), ..Story::default() };
    let role = What::HostRole { host: id(1), role: HostRole::Master, bootstrap: false };
    made_good.say_too(Source::Database, role);
    made_good.wait(2);
    assert_eq!(verdict(&made_good, "one-bootstrap"), InvariantVerdict::Held);
    s.wait(2);
    assert_violated(&s, "one-bootstrap", "2 bootstrap hosts");
}

#[test]
fn one_bootstrap_is_counted_when_a_host_goes() {
    let mut s = until_installing();
    s.say(Source::Database, What::HostDeleted { host: id(2) });
    let mut by_user = Story { lines: s.lines.clone(), ..Story::default() };
    s.wait(2);
    assert_only(&s, "one-bootstrap", "0 bootstrap hosts");
    let action = UserVerb::Action(ActionKind::DeleteHost);
    let (subject, reason) = (Some(id(2)), String::new());
    by_user.say(Source::Harness, What::UserAction { action, subject, status: 204, reason, planned: None });
    by_user.wait(2);
    assert_eq!(verdict(&by_user, "one-bootstrap"), InvariantVerdict::Held);
}

#[test]
fn one_installer_wants_one_installer() {
    let mut s = until_installing();
    s.did(0, HostMoment::InstallerStarted);
    assert_only(&s, "one-installer", "while another one ran");
}

#[rstest]
#[case(HostMoment::InstallerStopped)]
#[case(HostMoment::Rebooting)]
#[case(HostMoment::BootedDiscovery)]
fn one_installer_lets_an_installer_start_again_when_none_runs(#[case] between: HostMoment) {
    let mut s = until_installing();
    s.did(0, between);
    s.did(0, HostMoment::InstallerStarted);
    assert_eq!(violations(&s), []);
}

#[test]
fn all_installed_lets_a_cluster_go_on_without_a_worker_only() {
    let ends = |host| {
        let mut s = good();
        s.cluster = Some(ClusterStatus::Finalizing);
        s.hosts[host] = Some(HostStatus::InstallingInProgress);
        s.host(host, HostStatus::Error);
        s.cluster(ClusterStatus::Installed);
        s.event("after", None, None);
        verdict(&s, "all-installed")
    };
    assert_eq!(ends(4), InvariantVerdict::Held);
    assert!(matches!(ends(0), InvariantVerdict::Violated { .. }));
}

#[rstest]
#[case(ClusterMoment::NodeReady, "2 other masters are ready")]
#[case(ClusterMoment::BootkubeDone, "bootkube is done")]
#[case(ClusterMoment::EtcdBootstrapDone, "left etcd")]
#[case(ClusterMoment::ControllerReady, "the controller is ready")]
fn pivot_order_wants_everything_before_the_pivot(#[case] missing: ClusterMoment, #[case] says: &str) {
    let mut s = good();
    let at = s.lines.iter().position(|o| matches!(&o.what, What::InCluster { what, .. } if *what == missing)).unwrap();
    let end = s.lines.len() as i64;
    s.lines[at].seq = end as u64 - 1;
    s.lines[at].harness_time = Timestamp::from_secs(1_000 + end);
    assert_only(&s, "pivot-order", says);
}

/// Workers of day 2 make no control plane of more than one node.
#[test]
fn pivot_order_asks_nothing_of_an_only_node() {
    let mut s = good();
    let masters = [id(0), id(1), id(2)];
    for line in &mut s.lines {
        if let What::HostRole { host, role, .. } = &mut line.what
            && masters[..2].contains(host)
        {
            *role = HostRole::Worker;
        }
    }
    s.lines.retain(|o| !matches!(o.what, What::InCluster { what: ClusterMoment::ControllerReady, .. }));
    assert_ne!(verdict(&good(), "pivot-order"), verdict(&s, "pivot-order"));
    assert!(matches!(verdict(&s, "pivot-order"), InvariantVerdict::NotApplicable { .. }));
}

#[test]
fn pivot_order_takes_what_was_only_recorded_late() {
    let mut s = good();
    let at = s
        .lines
        .iter()
        .position(|o| matches!(&o.what, What::InCluster { what: ClusterMoment::BootkubeDone, .. }))
        .unwrap();
    let late = s.lines.remove(at);
    s.lines.push(late);
    for (seq, line) in s.lines.iter_mut().enumerate() {
        line.seq = seq as u64;
    }
    assert_eq!(violations(&s), []);
}

#[test]
fn workers_wait_wants_two_masters_done_before_a_worker_reboots() {
    let mut s = until_installing();
    s.stage(0, HostStage::Done);
    s.stage(3, HostStage::Rebooting);
    assert_only(&s, "workers-wait", "when 1 masters and arbiters are done");
}

/// What two machines report as one host is no order of things.
#[test]
fn nothing_is_asked_of_the_order_of_machines_that_share_an_id() {
    let story = |inject: &str| {
        let mut s = until_installing();
        let (name, phase, inject, detail) = ("f".to_owned(), FaultPhase::Begin, inject.to_owned(), String::new());
        s.say(Source::Harness, What::Fault { name, phase, inject, host: Some(id(2)), cluster: None, detail });
        s.stage(0, HostStage::Done);
        s.stage(3, HostStage::Rebooting);
        verdict(&s, "workers-wait")
    };
    assert!(matches!(story("latency"), InvariantVerdict::Violated { .. }));
    assert!(matches!(story("duplicate-id"), InvariantVerdict::NotApplicable { .. }));
}

#[test]
fn one_event_each_counts_events() {
    let mut s = good();
    s.event("host_status_updated", Some(C), Some(id(1)));
    s.event("host_status_updated", Some(C), Some(id(1)));
    assert_only(&s, "one-event-each", "host 00000000-0000-0000-0000-000000000002 has");
    let mut s = good();
    let lost =
        s.lines.iter().rposition(|o| matches!(&o.what, What::Event { host: Some(h), .. } if *h == id(1))).unwrap();
    s.lines[lost].what = What::Note { text: String::new() };
    let first =
        s.lines.iter().position(|o| matches!(&o.what, What::Event { host: Some(h), .. } if *h == id(1))).unwrap();
    s.lines[first].what = What::Note { text: String::new() };
    assert_only(&s, "one-event-each", "status events for");
}

/// Whatever the clock: the times of the service's own events are exact.
#[test]
fn an_event_that_is_told_twice_at_once_is_noticed_in_real_time() {
    let mut s = good();
    s.event("host_install_progress_updated", Some(C), Some(id(1)));
    let again = s.lines[s.lines.len() - 1].what.clone();
    s.say(Source::Events, again.clone());
    assert_eq!(verdict(&s, "events-tell"), InvariantVerdict::Held);
    s.say_too(Source::Events, again.clone());
    assert_violated(&s, "events-tell", "is told twice");
    // Who was asked twice has something to tell twice.
    s.say_too(Source::Harness, What::Interleaved { did: Interleaved::Twice, detail: "POST /logs".into() });
    assert_eq!(verdict(&s, "events-tell"), InvariantVerdict::Held);
}

/// Two looks at one moment tell of a validation twice now and then; a service that tells everything twice is another matter.
#[test]
fn an_event_about_a_validation_is_told_twice_by_two_looks() {
    let mut s = Story::default();
    let in_real_time = RunInfo { virtual_time: false, ..RunInfo::default() };
    s.say(Source::Harness, What::RunStarted(in_real_time));
    let event = |text: &str| What::Event {
        name: "host_validation_failed".to_owned(),
        severity: Severity::Warning,
        message: text.to_owned(),
        cluster: Some(C),
        host: Some(id(1)),
    };
    for text in ["validation 'a' failed", "validation 'b' failed"] {
        s.say(Source::Events, event(text));
    }
    s.say_too(Source::Events, event("validation 'b' failed"));
    assert_eq!(verdict(&s, "events-tell"), InvariantVerdict::Held);
    s.say(Source::Events, event("validation 'c' failed"));
    s.say_too(Source::Events, event("validation 'c' failed"));
    assert_violated(&s, "events-tell", "is told twice");
}

#[test]
fn cancelled_only_stops_lets_a_cancelled_host_send_its_logs() {
    let mut s = until_installing();
    s.host(0, HostStatus::Cancelled);
    s.step(0, StepType::LogsGather);
    assert_eq!(verdict(&s, "cancelled-only-stops"), InvariantVerdict::Held);
    s.step(0, StepType::Install);
    assert_only(&s, "cancelled-only-stops", "asked for install");
}

/// Where answers come late on purpose, one may be of before the cancellation: any as long as that lasts, and the first one after it.
#[rstest]
#[case::while_it_lasts(0, true)]
#[case::the_first_after_it(1, true)]
#[case::the_second_after_it(2, false)]
fn cancelled_only_stops_knows_late_answers(#[case] answers: usize, #[case] good: bool) {
    let mut s = until_installing();
    s.fault("slow-answer", FaultPhase::Begin);
    s.host(0, HostStatus::Cancelled);
    s.wait(60);
    if answers > 0 {
        s.fault("slow-answer", FaultPhase::End);
        s.wait(60);
    }
    (1..answers).for_each(|_| {
        s.step(0, StepType::LogsGather);
        s.wait(60);
    });
    s.step(0, StepType::Install);
    if good {
        assert!(!matches!(verdict(&s, "cancelled-only-stops"), InvariantVerdict::Violated { .. }));
    } else {
        assert_violated(&s, "cancelled-only-stops", "asked for install");
    }
}

#[test]
fn percentage_forward_never_goes_back() {
    let mut s = until_installing();
    s.total(29);
    assert_only(&s, "percentage-forward", "from 30 % to 29 %");
}

/// Without one of its hosts a cluster is worth something else, once.
#[test]
fn percentage_forward_counts_anew_when_a_host_goes() {
    let mut s = until_installing();
    s.say(Source::Database, What::HostDeleted { host: id(4) });
    s.total(29);
    assert_eq!(verdict(&s, "percentage-forward"), InvariantVerdict::Held);
    s.total(28);
    assert_violated(&s, "percentage-forward", "from 29 % to 28 %");
}

/// Two reports at once: what was computed from the earlier one is written last.
#[rstest]
#[case::at_once(true, 30, true)]
#[case::a_second_later(false, 30, false)]
#[case::only_half(true, 29, false)]
fn percentage_forward_forgives_what_is_made_good_at_once(#[case] at_once: bool, #[case] then: i64, #[case] good: bool) {
    let mut s = until_installing();
    s.total(28);
    s.total(then);
    if at_once {
        let n = s.lines.len();
        s.lines[n - 1].harness_time = s.lines[n - 2].harness_time;
    }
    if good {
        assert_eq!(verdict(&s, "percentage-forward"), InvariantVerdict::Held);
    } else {
        assert_only(&s, "percentage-forward", "from 30 % to 28 %");
    }
}

#[test]
fn percentage_forward_lets_hosts_of_day_2_begin_at_nothing() {
    let mut s = good();
    s.cluster(ClusterStatus::AddingHosts);
    s.total(68);
    assert_eq!(violations(&s), []);
}

#[rstest]
#[case::a_master(0)]
#[case::one_of_two_workers(4)]
fn too_few_hosts_fail_wants_a_cluster_with_too_few_hosts_to_fail(#[case] failed: usize) {
    let mut s = until_installing();
    s.host(failed, HostStatus::Error);
    s.wait(90);
    let mut never = Story { lines: s.lines.clone(), ..Story::default() };
    never.hosts = s.hosts;
    never.host(1, HostStatus::InstallingPendingUserAction);
    assert_only(&never, "too-few-hosts-fail", "never went to error");
    s.cluster(ClusterStatus::Error);
    assert_only(&s, "too-few-hosts-fail", "before it left the installation");
}

#[test]
fn too_few_hosts_fail_holds_when_the_cluster_fails_at_once() {
    let mut s = until_installing();
    s.host(0, HostStatus::Error);
    s.cluster(ClusterStatus::Error);
    assert_eq!(verdict(&s, "too-few-hosts-fail"), InvariantVerdict::Held);
}

#[test]
fn api_agrees_wants_the_api_to_show_what_the_database_held() {
    let mut s = until_installing();
    let (from, to) = (Some(HostStatus::InstallingInProgress), HostStatus::Resetting);
    s.say(Source::Poll, What::HostStatus { host: id(0), cluster: Some(C), from, to, info: String::new() });
    assert_only(&s, "api-agrees", "which the database did not hold then");
}

#[rstest]
#[case(Some(C), HostStatus::DiscoveringUnbound, "belongs to cluster")]
#[case(None, HostStatus::Discovering, "belongs to no cluster")]
#[case(Some(Uuid::from_u128(9)), HostStatus::Discovering, "never seen")]
fn bound_or_not_ties_status_and_cluster(#[case] cluster: Option<Uuid>, #[case] to: HostStatus, #[case] says: &str) {
    let mut s = Story::default();
    s.cluster(ClusterStatus::Insufficient);
    s.say(Source::Database, What::HostStatus { host: id(0), cluster, from: None, to, info: String::new() });
    assert_only(&s, "bound-or-not", says);
}

#[test]
fn many_violations_are_counted_and_the_first_ones_told() {
    let mut s = until_installing();
    for n in 0..30 {
        s.total(29 - n);
    }
    let InvariantVerdict::Violated { details, .. } = verdict(&s, "percentage-forward") else { panic!("it holds") };
    assert_eq!(details.len(), KEPT_DETAILS + 1);
    assert_eq!(details[KEPT_DETAILS], "and 10 more");
}

/// Six rounds of the cluster monitor, and some time for a busy computer, are not what they are on a clock that runs faster.
#[test]
fn too_few_hosts_fail_follows_the_clock_of_the_run() {
    let mut s = until_installing();
    let info = RunInfo { clock_scale: Some(60.0), ..RunInfo::default() };
    s.lines.insert(0, Observation { what: What::RunStarted(info), ..s.lines[0].clone() });
    s.host(0, HostStatus::Error);
    s.wait(15);
    s.cluster(ClusterStatus::Error);
    assert_violated(&s, "too-few-hosts-fail", "had too few hosts for");
}

/// A service that was stopped has had less time, and one that was stopped before has not.
#[rstest]
#[case::before(false, false)]
#[case::meanwhile(true, false)]
#[case::killed_by_an_interleaving(true, true)]
fn too_few_hosts_fail_forgives_a_service_that_was_away_then(#[case] meanwhile: bool, #[case] killed: bool) {
    let mut s = until_installing();
    let outage = |s: &mut Story| {
        if killed {
            let detail = "before it stored write 28".to_owned();
            return s.say(Source::Harness, What::Interleaved { did: Interleaved::Killed, detail });
        }
        s.fault("service-stop", FaultPhase::Begin);
        s.wait(5);
        s.fault("service-stop", FaultPhase::End);
        s.wait(10);
    };
    if !meanwhile {
        outage(&mut s);
    }
    s.host(0, HostStatus::Error);
    if meanwhile {
        outage(&mut s);
    }
    s.wait(90);
    s.cluster(ClusterStatus::Error);
    match meanwhile {
        true => assert_eq!(verdict(&s, "too-few-hosts-fail"), InvariantVerdict::Held),
        false => assert_violated(&s, "too-few-hosts-fail", "before it left the installation"),
    }
}

#[test]
fn too_few_hosts_fail_knows_one_way_out() {
    let mut s = until_installing();
    s.host(0, HostStatus::Error);
    s.cluster(ClusterStatus::Finalizing);
    s.wait(2);
    assert_violated(&s, "too-few-hosts-fail", "had too few hosts and went to finalizing");
    let mut s = until_installing();
    s.host(0, HostStatus::Error);
    s.cluster(ClusterStatus::Cancelled);
    assert_violated(&s, "too-few-hosts-fail", "had too few hosts and went to cancelled");
    let (action, reason) = (UserVerb::Action(ActionKind::Cancel), String::new());
    s.say(Source::Harness, What::UserAction { action, subject: Some(C), status: 202, reason, planned: None });
    assert_eq!(verdict(&s, "too-few-hosts-fail"), InvariantVerdict::Held);
}

#[test]
fn api_agrees_wants_what_the_database_held_then() {
    let mut s = until_installing();
    s.wait(15);
    let (from, to) = (Some(HostStatus::InstallingInProgress), HostStatus::Known);
    s.say(Source::Poll, What::HostStatus { host: id(0), cluster: Some(C), from, to, info: String::new() });
    assert_only(&s, "api-agrees", "did not hold then");
}

#[test]
fn one_event_each_compares_which_status_is_told() {
    let mut s = good();
    let told = s.lines.iter_mut().find_map(|o| match &mut o.what {
        What::Event { message, host: Some(h), .. } if *h == id(1) && message.contains(" to known") => Some(message),
        _ => None,
    });
    *told.unwrap() = "Host 1: updated status from discovering to insufficient (why)".to_owned();
    let InvariantVerdict::Violated { details, .. } = verdict(&s, "one-event-each") else { panic!("it holds") };
    assert_eq!(details.len(), 2, "{details:?}");
    assert!(details.iter().any(|d| d.contains("has 0 status events for 1 changes from discovering to known")));
}

#[test]
fn one_event_each_notices_a_service_that_stops_writing_events() {
    let silent = |look: bool| {
        let mut s = until_installing();
        let n = s.lines.len();
        until_bootstrap_reboots(&mut s);
        until_installed(&mut s);
        let told: Vec<Observation> = s.lines.split_off(n);
        s.lines.extend(told.into_iter().filter(|o| o.source != Source::Events));
        for (seq, line) in s.lines.iter_mut().enumerate() {
            line.seq = seq as u64;
        }
        if look {
            s.wait(400);
            s.say(Source::Harness, What::LastLook {});
        }
        s
    };
    assert_violated(&silent(true), "one-event-each", "has 0 status events for 1 changes");
    // Nobody looked at the end: the events may be there.
    assert_eq!(verdict(&silent(false), "one-event-each"), InvariantVerdict::Held);
}

#[rstest]
#[case::none_yet(None)]
#[case::progressing(Some(OperatorStatus::Progressing))]
#[case::failed(Some(OperatorStatus::Failed))]
fn operators_first_wants_built_in_operators_before_the_end(#[case] status: Option<OperatorStatus>) {
    let mut s = good();
    for line in &mut s.lines {
        if let What::Operator { status: found, .. } = &mut line.what {
            *found = status;
        }
    }
    assert_violated(&s, "operators-first", "its operators console are not available");
}

/// A service that completes a cluster whose operators it has never heard of.
#[test]
fn operators_first_wants_operators() {
    let mut s = good();
    s.lines.retain(|line| !matches!(line.what, What::Operator { .. }));
    for (seq, line) in s.lines.iter_mut().enumerate() {
        line.seq = seq as u64;
    }
    assert_violated(&s, "operators-first", "nobody has told of its operators");
}

#[test]
fn operators_first_takes_what_was_written_together() {
    let mut s = good();
    let at = s.lines.iter().position(|o| matches!(o.what, What::Operator { status: Some(_), .. })).unwrap();
    let report = s.lines.remove(at);
    let installed = s.lines.iter().position(|o| matches!(o.what, What::ClusterProgress { total: 100, .. })).unwrap();
    let time = s.lines[installed].harness_time;
    s.lines.insert(installed, Observation { harness_time: time, ..report });
    for (seq, line) in s.lines.iter_mut().enumerate() {
        line.seq = seq as u64;
    }
    assert_eq!(verdict(&s, "operators-first"), InvariantVerdict::Held);
}

#[rstest]
#[case::a_master(0, "2 masters of 3 that it needs are installed")]
#[case::one_of_two_workers(4, "1 workers of 2 that it needs are installed")]
fn hosts_first_wants_the_hosts_that_count(#[case] missing: usize, #[case] says: &str) {
    let mut s = until_installing();
    for host in (0..5).filter(|host| *host != missing) {
        s.host(host, HostStatus::Installed);
    }
    s.cluster(ClusterStatus::Finalizing);
    s.wait(2);
    // That they are installed without having come to their last stage is another's matter.
    assert_violated(&s, "hosts-first", says);
}

#[test]
fn percentages_knows_what_a_stage_is_worth() {
    let mut s = until_installing();
    let (from, to) = (Some(HostStage::WritingImageToDisk), Some(HostStage::Rebooting));
    s.say(Source::Database, What::HostStage { host: id(0), from, to, info: String::new(), percentage: 61 });
    assert_only(&s, "percentages", "in stage Rebooting and at 61 %, not 62 %");
}

#[test]
fn percentages_wants_a_hundred_exactly_at_the_end() {
    let mut s = good();
    s.lines.retain(|o| !matches!(o.what, What::ClusterProgress { total: 100, .. }));
    assert_only(&s, "percentages", "is installed and at 95 %");
    let mut s = until_installing();
    s.total(100);
    s.wait(2);
    assert_violated(&s, "percentages", "is installing and at 100 %");
}

#[test]
fn percentages_follow_what_hosts_have_reached() {
    let mut s = until_installing();
    s.total(35);
    s.wait(10);
    assert_only(&s, "percentages", "is at 35 %, and its hosts and operators are worth 33 %");
}

#[rstest]
#[case(HostRole::Master, true, "is master and bootstrap and was master")]
#[case(HostRole::Worker, false, "is worker and was master")]
fn roles_stay_while_hosts_are_installed(#[case] role: HostRole, #[case] bootstrap: bool, #[case] says: &str) {
    let mut s = until_installing();
    s.role(0, role, bootstrap);
    assert_violated(&s, "roles-stay", says);
    let mut s = until_installing();
    s.host(0, HostStatus::Cancelled);
    s.role(0, role, bootstrap);
    assert_eq!(verdict(&s, "roles-stay"), InvariantVerdict::Held);
}

#[test]
fn end_complete_wants_the_event_of_each_end() {
    let mut s = good();
    let event = s.lines.pop().unwrap();
    s.wait(5);
    s.event("after", None, None);
    assert_only(&s, "end-complete", "came to installed 1 times and has 0 events cluster_installation_completed");
    s.lines.push(Observation { seq: s.lines.len() as u64, ..event.clone() });
    assert_eq!(verdict(&s, "end-complete"), InvariantVerdict::Held);
    // And it is told once.
    s.lines.push(Observation { seq: s.lines.len() as u64, ..event });
    assert_violated(
        &s,
        "end-complete",
        "came to installed 1 times only and has 2 events cluster_installation_completed",
    );
}

/// A busy computer needs a while to end a run, in which nothing happens any more.
#[test]
fn what_comes_after_the_last_look_is_no_time_of_the_run() {
    let ends = |wait_before: usize| {
        let mut s = until_installing();
        let info = RunInfo { settings: Some(Box::default()), ..RunInfo::default() };
        s.lines.insert(0, Observation { what: What::RunStarted(info), ..s.lines[0].clone() });
        s.host(4, HostStatus::Error);
        s.wait(wait_before);
        s.say(Source::Harness, What::LastLook {});
        s.wait(200);
        matches!(verdict(&s, "end-complete"), InvariantVerdict::Violated { .. })
    };
    assert_eq!((ends(100), ends(200)), (false, true));
}

/// Settings are those of the built-in service: two minutes.
#[rstest]
#[case::nothing(None, 200, Some("nothing is known of its logs"))]
#[case::not_yet(None, 100, None)]
#[case::on_their_way(Some(LogsState::Collecting), 200, None)]
#[case::there(Some(LogsState::Completed), 900, None)]
#[case::given_up(Some(LogsState::Timeout), 900, None)]
fn end_complete_wants_logs_or_their_end(
    #[case] logs: Option<LogsState>,
    #[case] wait: usize,
    #[case] says: Option<&str>,
) {
    let mut s = until_installing();
    let info = RunInfo { settings: Some(Box::default()), ..RunInfo::default() };
    s.lines.insert(0, Observation { what: What::RunStarted(info), ..s.lines[0].clone() });
    s.host(4, HostStatus::Error);
    s.host(4, HostStatus::Cancelled);
    if let Some(state) = logs {
        s.say(Source::Database, What::HostLogs { host: id(4), state });
    }
    s.wait(wait);
    match says {
        Some(says) => assert_violated(&s, "end-complete", says),
        None => assert!(!matches!(verdict(&s, "end-complete"), InvariantVerdict::Violated { .. })),
    }
}
