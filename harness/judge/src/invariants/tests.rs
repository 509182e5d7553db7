use rstest::rstest;
use uuid::Uuid;
use vlab_api::Timestamp;
use vlab_api::types::{ClusterStatus, HostRole, HostStage, HostStatus, Severity, StepType};
use vlab_model::history::{ClusterMoment, HISTORY_VERSION, HostMoment, Observation, Source, What};

use super::reader::KEPT_DETAILS;
use super::*;

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
}

impl Story {
    fn say(&mut self, source: Source, what: What) {
        let at = Timestamp::from_secs(1_000 + self.lines.len() as i64);
        let seq = self.lines.len() as u64;
        self.lines.push(Observation { v: HISTORY_VERSION, seq, source, service_time: None, harness_time: at, what });
    }
    fn event(&mut self, name: &str, cluster: Option<Uuid>, host: Option<Uuid>) {
        let message = String::new();
        self.say(
            Source::Events,
            What::Event { name: name.to_owned(), severity: Severity::Info, message, cluster, host },
        );
    }
    fn host(&mut self, host: usize, to: HostStatus) {
        let from = self.hosts[host].replace(to);
        let status = What::HostStatus { host: id(host), cluster: Some(C), from, to, info: String::new() };
        self.say(Source::Database, status.clone());
        self.say(Source::Poll, status);
        self.event("host_status_updated", Some(C), Some(id(host)));
    }
    fn cluster(&mut self, to: ClusterStatus) {
        let from = self.cluster.replace(to);
        let status = What::ClusterStatus { cluster: C, from, to, info: String::new() };
        self.say(Source::Database, status.clone());
        self.say(Source::Poll, status);
        if to != ClusterStatus::AddingHosts {
            self.event("cluster_status_updated", Some(C), None);
        }
    }
    fn stage(&mut self, host: usize, to: HostStage) {
        let from = self.stages[host].replace(to);
        let what = What::HostStage { host: id(host), from, to: Some(to), info: String::new(), percentage: 1 };
        self.say(Source::Database, what);
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
    fn step(&mut self, host: usize, step: StepType) {
        let (step_type, step_id) = (step.as_str().to_owned(), String::new());
        self.say(Source::Hosts, What::Step { host: id(host), step_type, step_id, answered: None, cached: false });
    }
}

/// Hosts 0 to 2 are masters (2 is the bootstrap), 3 and 4 are workers.
fn until_installing() -> Story {
    let mut s = Story::default();
    s.cluster(ClusterStatus::Insufficient);
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
    s.cluster(ClusterStatus::Installed);
    s.total(100);
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
    assert_only(&s, "status-edges", "went from known to installed");
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
    assert_only(&s, "one-bootstrap", "2 bootstrap hosts");
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

#[test]
fn cancelled_only_stops_lets_a_cancelled_host_send_its_logs() {
    let mut s = until_installing();
    s.host(0, HostStatus::Cancelled);
    s.step(0, StepType::LogsGather);
    assert_eq!(verdict(&s, "cancelled-only-stops"), InvariantVerdict::Held);
    s.step(0, StepType::Install);
    assert_only(&s, "cancelled-only-stops", "asked for install");
}

#[test]
fn percentage_forward_never_goes_back() {
    let mut s = until_installing();
    s.total(29);
    assert_only(&s, "percentage-forward", "from 30 % to 29 %");
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
    for _ in 0..70 {
        s.say(Source::Harness, What::Note { text: String::new() });
    }
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
    assert_only(&s, "api-agrees", "which the database never held");
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
