//! Invariants over resources on a hub: each holds over a good story, and notices an altered one.

use std::collections::BTreeMap;
use std::time::Duration;

use vlab_model::history::{ConditionStatus, FaultPhase, OddCondition, Oddity, ResourceCondition, ResourceState};

use super::*;

const INSTALL: &str = "AgentClusterInstall";

#[derive(Default)]
struct Version(u64);

impl Story {
    /// A change of a resource; `conditions` as `Type=Status`.
    fn resource(&mut self, n: &mut Version, kind: &str, name: &str, is: ResourceState, conditions: &[&str]) {
        n.0 += 1;
        let condition = |text: &&str| {
            let (kind, status) = text.split_once('=').unwrap();
            let status = ConditionStatus::from_word(status).unwrap();
            (kind.to_owned(), Some(ResourceCondition { status, reason: String::new() }))
        };
        let conditions: BTreeMap<_, _> = conditions.iter().map(condition).collect();
        let finalizers = if is == ResourceState::Deleting { vec!["of.the/controller".to_owned()] } else { vec![] };
        self.say(
            Source::Harness,
            What::Resource {
                kind: kind.to_owned(),
                namespace: "c".to_owned(),
                name: name.to_owned(),
                version: n.0,
                generation: Some(1),
                is,
                conditions,
                finalizers,
                spec: Vec::new(),
                secrets: Vec::new(),
                odd: Vec::new(),
                shows: BTreeMap::new(),
            },
        );
    }

    pub(super) fn fault(&mut self, inject: &str, phase: FaultPhase) {
        let (name, detail) = ("it".to_owned(), String::new());
        let what = What::Fault { name, phase, inject: inject.to_owned(), host: None, cluster: None, detail };
        self.say(Source::Harness, what);
    }
}

fn says(story: &Story, id: &str) -> String {
    match verdict(story, id) {
        InvariantVerdict::Held => "held".to_owned(),
        InvariantVerdict::Violated { details, .. } => details.join("; "),
        InvariantVerdict::NotApplicable { reason } => reason,
    }
}

/// A cluster that was made, and its AgentClusterInstall.
fn made() -> (Story, Version) {
    let (mut s, mut n) = (Story::default(), Version::default());
    s.resource(&mut n, INSTALL, "c", ResourceState::There, &[]);
    s.say(Source::Harness, What::ClusterNamed { cluster: C, name: "c".to_owned(), vip_dhcp: false });
    s.cluster(ClusterStatus::Insufficient);
    s.resource(
        &mut n,
        INSTALL,
        "c",
        ResourceState::Changed,
        &["Validated=False", "Completed=False", "Failed=False", "Stopped=False"],
    );
    s.wait(60);
    (s, n)
}

/// A computer may show the condition first, and then the row that it is about.
#[test]
fn a_condition_may_be_seen_before_its_row() {
    let (mut s, mut n) = made();
    s.cluster(ClusterStatus::Ready);
    s.wait(60);
    let moved = Timestamp::from_secs(s.now());
    s.resource(&mut n, INSTALL, "c", ResourceState::Changed, &["Failed=True"]);
    let first = s.lines.len();
    s.cluster(ClusterStatus::Error);
    assert!(says(&s, "conditions-agree").contains("Failed is True while the row says ready"));
    s.lines[first].service_time = Some(moved);
    assert_eq!(says(&s, "conditions-agree"), "held");
}

#[rstest]
#[case::told(&["Validated=True"], None, "held")]
#[case::not_told(&[], None, "held")]
#[case::failed(&["Failed=True"], None, "AgentClusterInstall c/c: Failed is True while the row says ready")]
#[case::completed(&["Completed=True"], None, "Completed is True while the row says ready")]
#[case::nobody_knows(&["Stopped=Unknown"], None, "held")]
#[case::the_server_is_away(&["Failed=True"], Some("kube-down"), "held")]
#[case::an_event_was_lost(&["Failed=True"], Some("kube-event-lost"), "held")]
#[case::a_conflict_is_no_excuse(&["Failed=True"], Some("kube-conflict"), "Failed is True while the row says installing")]
fn conditions_say_what_rows_say(#[case] told: &[&str], #[case] fault: Option<&str>, #[case] expected: &str) {
    let (mut s, mut n) = made();
    s.cluster(ClusterStatus::Ready);
    if let Some(fault) = fault {
        s.fault(fault, FaultPhase::Begin);
        s.fault(fault, FaultPhase::Effect);
    }
    s.resource(&mut n, INSTALL, "c", ResourceState::Changed, told);
    s.wait(60);
    // A status that comes later, and long after what happened at once.
    s.cluster(ClusterStatus::Installing);
    s.wait(60);
    assert!(says(&s, "conditions-agree").contains(expected), "{}", says(&s, "conditions-agree"));
}

/// A server that restarts is away until it is back, and no longer.
#[rstest]
#[case::it_is_back(SERVER_IS_BACK, "Failed is False while the row says error")]
#[case::it_restarts_again("the server restarts", "no status stayed long enough to be told")]
fn a_server_is_away_until_it_is_back(#[case] later: &str, #[case] expected: &str) {
    let (mut s, _) = made();
    s.fault("kube-restart", FaultPhase::Begin);
    s.fault("kube-restart", FaultPhase::Effect);
    s.wait(600);
    s.fault("kube-restart", FaultPhase::Effect);
    match s.lines.last_mut().map(|line| &mut line.what) {
        Some(What::Fault { detail, .. }) => *detail = later.to_owned(),
        other => panic!("{other:?}"),
    }
    s.wait(600);
    s.cluster(ClusterStatus::Error);
    s.wait(600);
    assert!(says(&s, "conditions-agree").contains(expected), "{}", says(&s, "conditions-agree"));
}

/// What has just changed need not be told yet.
#[test]
fn controllers_have_time_to_take_notice() {
    let (mut s, _) = made();
    s.cluster(ClusterStatus::Error);
    s.wait(5);
    assert_eq!(says(&s, "conditions-agree"), "held");
    s.wait(60);
    assert!(says(&s, "conditions-agree").contains("Failed is False while the row says error"));
}

#[rstest]
#[case::of_a_host(HostStatus::Disconnected, "Connected=True", "Connected is True while the row says disconnected")]
#[case::bound(HostStatus::KnownUnbound, "Bound=True", "Bound is True while the row says known-unbound")]
#[case::right(HostStatus::Installed, "Installed=True", "held")]
fn agents_say_what_rows_say(#[case] status: HostStatus, #[case] told: &str, #[case] expected: &str) {
    let (mut s, mut n) = made();
    s.host(0, status);
    s.resource(&mut n, "Agent", &id(0).to_string(), ResourceState::There, &[told]);
    s.wait(60);
    assert!(says(&s, "conditions-agree").contains(expected), "{}", says(&s, "conditions-agree"));
}

#[test]
fn versions_only_grow() {
    let (mut s, mut n) = made();
    assert_eq!(says(&s, "versions-grow"), "held");
    n.0 = 0;
    s.resource(&mut n, INSTALL, "c", ResourceState::Changed, &[]);
    assert!(says(&s, "versions-grow").contains("AgentClusterInstall c/c: version 1 came after 2"));
    assert!(says(&Story::default(), "versions-grow").contains("no resource of a hub"));
}

#[rstest]
#[case::gone(&[(INSTALL, ResourceState::Deleting), (INSTALL, ResourceState::Gone)], "held")]
#[case::held(&[(INSTALL, ResourceState::Deleting)], "AgentClusterInstall c/c is not gone; it is held by of.the/controller")]
#[case::left(&[("ClusterDeployment", ResourceState::Gone)], "AgentClusterInstall c/c is still there without its ClusterDeployment c/c")]
#[case::nothing_left(&[(INSTALL, ResourceState::Gone), ("ClusterDeployment", ResourceState::Gone)], "held")]
fn what_is_deleted_goes(#[case] changes: &[(&str, ResourceState)], #[case] expected: &str) {
    let (mut s, mut n) = made();
    for (kind, is) in changes {
        s.resource(&mut n, kind, "c", *is, &[]);
    }
    s.wait(70);
    assert!(says(&s, "deleted-goes").contains(expected), "{}", says(&s, "deleted-goes"));
}

#[rstest]
#[case::now_and_then(INSTALL, 20, 0, "held")]
#[case::again_and_again(INSTALL, 40, 0, "AgentClusterInstall c/c: written 25 times, and nobody told anything new")]
#[case::once_a_minute(INSTALL, 40, 60, "AgentClusterInstall c/c: written 25 times, and nobody told anything new")]
#[case::of_a_host("Agent", 40, 20, "Agent c/c: written 25 times, and nobody told anything new")]
#[case::of_a_host_that_waits("Agent", 40, 60, "held")]
fn controllers_come_to_rest(#[case] kind: &str, #[case] writes: usize, #[case] apart: usize, #[case] expected: &str) {
    let (mut s, mut n) = made();
    for _ in 0..writes {
        s.wait(apart);
        s.resource(&mut n, kind, "c", ResourceState::Changed, &[]);
    }
    assert_eq!(says(&s, "resources-rest"), expected);
}

/// What the last change of a resource says beside its conditions.
fn says_more(s: &mut Story, members: &[&str], shown: &[&str]) {
    let Some(What::Resource { spec, secrets, .. }) = s.lines.last_mut().map(|line| &mut line.what) else {
        panic!("it is no resource")
    };
    *spec = members.iter().map(|m| (*m).to_owned()).collect();
    *secrets = shown.iter().map(|m| (*m).to_owned()).collect();
}

/// The last change of a resource, for what it says beside its conditions.
fn last(s: &mut Story) -> (&mut Vec<OddCondition>, &mut BTreeMap<String, serde_json::Value>) {
    let found = s.lines.iter_mut().rev().find_map(|line| match &mut line.what {
        What::Resource { odd, shows, .. } => Some((odd, shows)),
        _ => None,
    });
    found.expect("a resource")
}

#[rstest]
#[case::right("error", "debugInfo.state", serde_json::json!("error"), "held")]
#[case::another("error", "debugInfo.state", serde_json::json!("ready"), "AgentClusterInstall c/c: status.debugInfo.state is \"ready\" while the row says \"error\"")]
#[case::nothing_of_it("error", "progress.totalPercentage", serde_json::json!(5), "AgentClusterInstall c/c: status.debugInfo.state is \"insufficient\" while the row says \"error\"")]
fn a_status_repeats_what_the_row_says(
    #[case] row: &str,
    #[case] path: &str,
    #[case] shown: serde_json::Value,
    #[case] expected: &str,
) {
    let (mut s, mut n) = made();
    last(&mut s).1.insert("debugInfo.state".to_owned(), serde_json::json!("insufficient"));
    s.cluster(row.parse().unwrap());
    s.resource(&mut n, INSTALL, "c", ResourceState::Changed, &["Failed=True", "Stopped=True"]);
    last(&mut s).1.insert(path.to_owned(), shown);
    s.wait(60);
    assert!(says(&s, "conditions-agree").contains(expected), "{}", says(&s, "conditions-agree"));
}

/// Where its spec is wrong the real controllers may not look at the row: the conditions say so, and the old words are gone.
#[rstest]
#[case::not_available("NotAvailable", "held")]
#[case::another_reason(
    "ClusterNotReady",
    "AgentClusterInstall c/c: status.debugInfo.state is null while the row says \"error\""
)]
fn a_status_that_knows_nothing_repeats_nothing(#[case] reason: &str, #[case] expected: &str) {
    let (mut s, mut n) = made();
    last(&mut s).1.insert("debugInfo.state".to_owned(), serde_json::json!("insufficient"));
    s.cluster(ClusterStatus::Error);
    s.resource(
        &mut n,
        INSTALL,
        "c",
        ResourceState::Changed,
        &["Failed=True", "Stopped=True", "RequirementsMet=Unknown"],
    );
    let nothing = ["debugInfo.state", "debugInfo.stateInfo"].map(|path| (path.to_owned(), serde_json::Value::Null));
    last(&mut s).1.extend(nothing);
    if let Some(What::Resource { conditions, .. }) = s.lines.last_mut().map(|line| &mut line.what)
        && let Some(Some(condition)) = conditions.get_mut("RequirementsMet")
    {
        condition.reason = reason.to_owned();
    }
    s.wait(60);
    assert!(says(&s, "conditions-agree").contains(expected), "{}", says(&s, "conditions-agree"));
}

#[rstest]
#[case::stayed(Oddity::Stayed, 100, "times-follow", "AgentClusterInstall c/c: Failed turned, and its time stayed")]
#[case::within_a_second(Oddity::Stayed, 0, "times-follow", "held")]
#[case::seen_a_little_late(Oddity::Stayed, 6, "times-follow", "held")]
#[case::moved(Oddity::Moved, 0, "times-follow", "AgentClusterInstall c/c: Failed has another time, and did not turn")]
#[case::silent(Oddity::Silent, 0, "conditions-agree", "AgentClusterInstall c/c: Failed has no message")]
fn a_condition_has_its_time_and_its_words(
    #[case] is: Oddity,
    #[case] ago: i64,
    #[case] invariant: &str,
    #[case] expected: &str,
) {
    let (mut s, mut n) = made();
    s.wait(200);
    let since = Some(Timestamp::from_secs(s.now() - ago));
    s.resource(&mut n, INSTALL, "c", ResourceState::Changed, &["Failed=False"]);
    last(&mut s).0.push(OddCondition { condition: "Failed".to_owned(), is, since });
    assert!(says(&s, invariant).contains(expected), "{}", says(&s, invariant));
}

/// The real controllers may write a turn twice, with two times; in virtual time nobody reads an old copy.
#[rstest]
#[case::at_once(4_000, false, "held")]
#[case::later(6_000, false, "Failed has another time, and did not turn")]
#[case::in_virtual_time(4_000, true, "Failed has another time, and did not turn")]
fn a_turn_may_be_written_twice(#[case] millis: u64, #[case] virtual_time: bool, #[case] expected: &str) {
    let (mut s, mut n) = made();
    s.say(Source::Harness, What::RunStarted(RunInfo { virtual_time, ..RunInfo::default() }));
    let turned = Timestamp::from_secs(s.now());
    s.resource(&mut n, INSTALL, "c", ResourceState::Changed, &["Failed=True"]);
    s.resource(&mut n, INSTALL, "c", ResourceState::Changed, &[]);
    let again = OddCondition { condition: "Failed".to_owned(), is: Oddity::Moved, since: Some(turned) };
    last(&mut s).0.push(again);
    s.lines.last_mut().unwrap().harness_time = turned + Duration::from_millis(millis);
    assert!(says(&s, "times-follow").contains(expected), "{}", says(&s, "times-follow"));
}

#[test]
fn a_secret_that_is_shown_is_noticed() {
    let (mut s, mut n) = made();
    assert_eq!(says(&s, "secrets-hidden"), "held");
    s.resource(&mut n, INSTALL, "c", ResourceState::Changed, &[]);
    says_more(&mut s, &[], &["a pull secret in status.conditions[SpecSynced].message"]);
    let told = "AgentClusterInstall c/c shows a pull secret in status.conditions[SpecSynced].message";
    assert_eq!(says(&s, "secrets-hidden"), told);
}

#[rstest]
#[case::not_yet(INSTALL, "InstallationNotStarted", &["networking"], "held")]
#[case::its_release_is_mended(INSTALL, "InstallationNotStarted", &["imageSetRef"], "held")]
#[case::its_release(INSTALL, "InstallationInProgress", &["imageSetRef"], "AgentClusterInstall c/c: spec.imageSetRef was changed after InstallationInProgress")]
#[case::under_way(INSTALL, "InstallationInProgress", &["networking"], "AgentClusterInstall c/c: spec.networking was changed after InstallationInProgress")]
#[case::what_controllers_add(INSTALL, "InstallationInProgress", &["clusterMetadata", "ignitionEndpoint"], "held")]
#[case::more_hosts(INSTALL, "InstallationCompleted", &["provisionRequirements"], "held")]
#[case::more_hosts_too_early(INSTALL, "InstallationInProgress", &["provisionRequirements"], "spec.provisionRequirements was changed")]
#[case::of_an_image("InfraEnv", "", &["cpuArchitecture"], "InfraEnv c/c: spec.cpuArchitecture was changed")]
#[case::of_an_image_that_may("InfraEnv", "", &["kernelArguments"], "held")]
#[case::of_a_label("AgentClassification", "", &["labelValue"], "AgentClassification c/c: spec.labelValue was changed")]
fn a_frozen_spec_stays_frozen(
    #[case] kind: &str,
    #[case] reason: &str,
    #[case] members: &[&str],
    #[case] expected: &str,
) {
    let (mut s, mut n) = made();
    s.resource(&mut n, kind, "c", ResourceState::Changed, &["Completed=False"]);
    if let Some(What::Resource { conditions, .. }) = s.lines.last_mut().map(|line| &mut line.what) {
        let condition = conditions.get_mut("Completed").unwrap().as_mut().unwrap();
        condition.reason = reason.to_owned();
    }
    s.resource(&mut n, kind, "c", ResourceState::Changed, &[]);
    says_more(&mut s, members, &[]);
    let told = says(&s, "spec-frozen");
    assert!(if expected == "held" { told == "held" } else { told.contains(expected) }, "{told}");
}

/// A hub without the product's webhooks takes it from a user who is told to by the scenario.
#[rstest]
#[case::told_to(Some(0), C, 200, "held")]
#[case::not_told_to(None, C, 200, "spec.networking was changed")]
#[case::refused(Some(0), C, 403, "spec.networking was changed")]
#[case::of_another_cluster(Some(0), Uuid::from_u128(77), 200, "spec.networking was changed")]
fn the_user_may_change_what_is_frozen(
    #[case] planned: Option<usize>,
    #[case] cluster: Uuid,
    #[case] status: u16,
    #[case] expected: &str,
) {
    let (mut s, mut n) = made();
    s.resource(&mut n, INSTALL, "c", ResourceState::Changed, &["Completed=False"]);
    if let Some(What::Resource { conditions, .. }) = s.lines.last_mut().map(|line| &mut line.what) {
        let condition = conditions.get_mut("Completed").unwrap().as_mut().unwrap();
        condition.reason = "InstallationInProgress".to_owned();
    }
    s.resource(&mut n, INSTALL, "c", ResourceState::Changed, &[]);
    says_more(&mut s, &["networking"], &[]);
    let action = UserVerb::Action(ActionKind::PatchResource);
    s.say(Source::Harness, What::UserAction { action, subject: Some(cluster), status, reason: String::new(), planned });
    let told = says(&s, "spec-frozen");
    assert!(told.contains(expected), "{told}");
}
