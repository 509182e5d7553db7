use proptest::prelude::*;
use rstest::rstest;
use uuid::Uuid;
use vlab_api::Timestamp;
use vlab_api::types::{HostRole, HostStage, HostStatus, Severity};
use vlab_model::history::{
    ConditionStatus, FaultPhase, HostsKind, ResourceCondition, ResourceState, RunEnd, Source, TargetKind, What,
};
use vlab_model::validation::ValidationStatus;

use super::*;
use crate::Recorder;

const CLUSTER: Uuid = Uuid::from_u128(99);

/// One thing in a made-up history: whom it is about, and what.
#[derive(Clone, Debug, PartialEq)]
enum Thing {
    Status(u8, HostStatus),
    Stage(u8, HostStage),
    Role(u8, HostRole, bool),
    Event(u8, &'static str, String),
    ClusterEvent(&'static str, String),
    Validation(u8, &'static str, ValidationStatus),
    /// A condition of its Agent, with its reason; of the cluster's AgentClusterInstall without a host.
    Condition(Option<u8>, &'static str, ConditionStatus, &'static str),
}

impl Thing {
    fn host(&self) -> Option<u8> {
        match self {
            Self::Status(h, _)
            | Self::Stage(h, _)
            | Self::Role(h, ..)
            | Self::Event(h, ..)
            | Self::Validation(h, ..) => Some(*h),
            Self::ClusterEvent(..) => None,
            Self::Condition(h, ..) => *h,
        }
    }
}

struct Made<'a> {
    service: &'a str,
    source: Source,
    names: &'a [&'a str],
    id_base: u128,
}

const SIMULATED: Made<'static> =
    Made { service: "simulated", source: Source::Database, names: &["master-0", "master-1", "worker-0"], id_base: 1 };

/// A history of these things, each with its second.
fn made(how: &Made<'_>, things: &[(i64, Thing)]) -> Vec<Observation> {
    let mut r = Recorder::new(None);
    let at = |s: i64| Timestamp::from_secs(1_700_000_000 + s);
    let id = |h: u8| Uuid::from_u128(how.id_base + u128::from(h));
    let info = RunInfo {
        run_id: format!("run-{}", how.service.split(':').next().unwrap()),
        scenario: "made".into(),
        seed: 7,
        service: TargetKind::of(how.service),
        time_profile: "real".into(),
        ..RunInfo::default()
    };
    r.record(Source::Harness, None, at(0), What::RunStarted(info));
    for (h, name) in how.names.iter().enumerate() {
        let host = id(u8::try_from(h).unwrap());
        r.record(
            Source::Harness,
            None,
            at(0),
            What::HostNamed { host, name: (*name).into(), kind: HostsKind::Simulated },
        );
    }
    r.record(Source::Harness, None, at(0), What::ClusterNamed { cluster: CLUSTER, name: "c".into(), vip_dhcp: false });
    for (second, thing) in things {
        let event = |name: &str, message: &str, host| What::Event {
            name: name.into(),
            severity: Severity::Info,
            message: message.into(),
            cluster: Some(CLUSTER),
            host,
        };
        let (source, what) = match thing.clone() {
            Thing::Status(h, to) => {
                (how.source, What::HostStatus { host: id(h), cluster: Some(CLUSTER), from: None, to, info: "".into() })
            }
            Thing::Stage(h, to) => {
                (how.source, What::HostStage { host: id(h), from: None, to: Some(to), info: "".into(), percentage: 0 })
            }
            Thing::Role(h, role, bootstrap) => (how.source, What::HostRole { host: id(h), role, bootstrap }),
            Thing::Event(h, name, message) => (Source::Events, event(name, &message, Some(id(h)))),
            Thing::ClusterEvent(name, message) => (Source::Events, event(name, &message, None)),
            Thing::Condition(h, name, status, reason) => {
                let condition = ResourceCondition { status, reason: reason.into() };
                let what = What::Resource {
                    kind: if h.is_some() { "Agent" } else { "AgentClusterInstall" }.into(),
                    namespace: "c".into(),
                    name: h.map_or_else(|| "c".to_owned(), |h| id(h).to_string()),
                    version: 1,
                    generation: None,
                    is: ResourceState::Changed,
                    conditions: [(name.to_owned(), Some(condition))].into(),
                    finalizers: Vec::new(),
                    spec: Vec::new(),
                    secrets: Vec::new(),
                    odd: Vec::new(),
                    shows: [].into(),
                };
                (Source::Harness, what)
            }
            Thing::Validation(h, name, to) => (
                how.source,
                What::Validation {
                    subject: id(h),
                    is_cluster: false,
                    id: name.into(),
                    from: None,
                    to: Some(to),
                    message: String::new(),
                },
            ),
        };
        r.record(source, Some(at(*second)), at(*second), what);
    }
    r.record(Source::Harness, None, at(1000), What::RunFinished { how: RunEnd::Ended });
    r.into_observations()
}

fn statuses(host: u8, all: &[HostStatus]) -> Vec<(i64, Thing)> {
    all.iter().enumerate().map(|(n, s)| (n as i64 * 100, Thing::Status(host, *s))).collect()
}

fn things() -> impl Strategy<Value = Vec<(i64, Thing)>> {
    use HostStatus::{Discovering, Insufficient, Known};
    let status = prop::sample::select(vec![Discovering, Insufficient, Known]);
    let stage = prop::sample::select(vec![HostStage::Installing, HostStage::Rebooting, HostStage::Done]);
    let name = prop::sample::select(vec!["host_bootstrap_set", "host_registration_succeeded", "x"]);
    let value = prop::sample::select(vec![ValidationStatus::Success, ValidationStatus::Failure]);
    let id = prop::sample::select(vec!["connected", "ntp-synced"]);
    let host = || 0u8..3;
    let thing = prop_oneof![
        (host(), status).prop_map(|(h, s)| Thing::Status(h, s)),
        (host(), stage).prop_map(|(h, s)| Thing::Stage(h, s)),
        (host(), any::<bool>()).prop_map(|(h, b)| Thing::Role(h, HostRole::Master, b)),
        (host(), name.clone()).prop_map(|(h, n)| Thing::Event(h, n, String::new())),
        name.prop_map(|n| Thing::ClusterEvent(n, String::new())),
        (host(), id, value).prop_map(|(h, i, v)| Thing::Validation(h, i, v)),
    ];
    prop::collection::vec((0i64..30, thing), 0..40).prop_map(|steps| {
        let mut now = 0;
        steps
            .into_iter()
            .map(|(gap, thing)| {
                now += gap;
                (now, thing)
            })
            .collect()
    })
}

fn differences(a: &[Observation], b: &[Observation]) -> Vec<Difference> {
    compare(a, b, &Options::default()).differences
}

proptest! {
    #[test]
    fn a_history_does_not_differ_from_itself(a in things()) {
        let a = made(&SIMULATED, &a);
        prop_assert_eq!(differences(&a, &a), vec![]);
    }

    #[test]
    fn the_two_sides_are_alike(a in things(), b in things()) {
        let (a, b) = (made(&SIMULATED, &a), made(&SIMULATED, &b));
        let mut swapped = differences(&b, &a);
        for d in &mut swapped {
            std::mem::swap(&mut d.a, &mut d.b);
        }
        swapped.sort();
        let mut forth = differences(&a, &b);
        forth.sort();
        prop_assert_eq!(forth, swapped);
    }

    #[test]
    fn repeats_do_not_count(a in things(), b in things(), times in prop::collection::vec(1usize..4, 40)) {
        let again: Vec<_> =
            a.iter().zip(times).flat_map(|(thing, n)| std::iter::repeat_n(thing.clone(), n)).collect();
        let b = made(&SIMULATED, &b);
        prop_assert_eq!(differences(&made(&SIMULATED, &a), &b), differences(&made(&SIMULATED, &again), &b));
    }

    #[test]
    fn the_order_between_hosts_does_not_count(a in things()) {
        let mut by_host = a.clone();
        by_host.sort_by_key(|(_, thing)| thing.host());
        prop_assert_eq!(differences(&made(&SIMULATED, &a), &made(&SIMULATED, &by_host)), vec![]);
    }

    #[test]
    fn ids_do_not_count(a in things()) {
        let other = Made { id_base: 5000, ..SIMULATED };
        prop_assert_eq!(differences(&made(&SIMULATED, &a), &made(&other, &a)), vec![]);
    }

    #[test]
    fn a_status_more_is_found(a in things(), host in 0u8..3) {
        let mut more = a.clone();
        more.push((a.last().map_or(0, |t| t.0), Thing::Status(host, HostStatus::Error)));
        let found = differences(&made(&SIMULATED, &a), &made(&SIMULATED, &more));
        prop_assert!(found.iter().any(|d| d.strand == Strand::Status && d.b == ["error"] && d.a.is_empty()));
    }
}

#[test]
fn it_says_where_they_part() {
    use HostStatus::{Discovering, Installing, Known, PreparingForInstallation, PreparingSuccessful};
    let a = made(&SIMULATED, &statuses(0, &[Discovering, Known, PreparingForInstallation, PreparingSuccessful]));
    let b = made(&SIMULATED, &statuses(0, &[Discovering, Known, PreparingForInstallation, Installing]));
    let found = differences(&a, &b);
    assert_eq!(found.len(), 1, "{found:#?}");
    assert_eq!(found[0].name, "master-0");
    assert_eq!(found[0].common, ["discovering", "known", "preparing-for-installation"]);
    assert_eq!((&found[0].a[..], &found[0].b[..]), (&["preparing-successful".into()][..], &["installing".into()][..]));
}

#[test]
fn another_bootstrap_is_no_difference() {
    let play = |bootstrap: u8, other: u8| {
        vec![
            (0, Thing::Status(bootstrap, HostStatus::Installing)),
            (0, Thing::Status(other, HostStatus::Installing)),
            (0, Thing::Role(bootstrap, HostRole::Master, true)),
            (0, Thing::Role(other, HostRole::Master, false)),
            (1, Thing::Stage(bootstrap, HostStage::WaitingForBootkube)),
            (1, Thing::Stage(other, HostStage::Rebooting)),
        ]
    };
    let (a, b) = (made(&SIMULATED, &play(0, 1)), made(&SIMULATED, &play(1, 0)));
    assert_eq!(differences(&a, &b), vec![]);
    // But that one has become a worker is.
    let mut worker = play(0, 1);
    worker[3].1 = Thing::Role(1, HostRole::Worker, false);
    let found = differences(&a, &made(&SIMULATED, &worker));
    assert_eq!(found.len(), 1, "{found:#?}");
    assert_eq!((found[0].name.as_str(), found[0].role.as_str()), ("master-1", "master / worker"));
    assert_eq!((&found[0].a[..], &found[0].b[..]), (&["master".into()][..], &["worker".into()][..]));
}

/// A host that a fault hits is itself, whatever part it plays.
#[test]
fn a_host_that_a_fault_hits_is_compared_with_itself() {
    let with_fault = |bootstrap: u8, other: u8| {
        let play = [
            (0, Thing::Status(bootstrap, HostStatus::Installing)),
            (0, Thing::Status(other, HostStatus::Installing)),
            (0, Thing::Role(bootstrap, HostRole::Master, true)),
            (0, Thing::Role(other, HostRole::Master, false)),
        ];
        let mut history = made(&SIMULATED, &play);
        let mut fault = history[1].clone();
        fault.what = What::Fault {
            name: "f".into(),
            phase: FaultPhase::Begin,
            inject: String::new(),
            host: Some(Uuid::from_u128(1)),
            cluster: None,
            detail: String::new(),
        };
        history.insert(5, fault);
        history
    };
    assert!(same_parts(&with_fault(0, 1), &with_fault(0, 2)));
    assert!(!same_parts(&with_fault(0, 1), &with_fault(1, 0)));
    let found = differences(&with_fault(0, 1), &with_fault(1, 0));
    assert!(found.iter().any(|d| d.name == "master-0" && d.strand == Strand::Role), "{found:#?}");
}

/// How far a host gets before it is stopped depends on the moment; that it failed does not.
#[rstest]
#[case(HostStage::Rebooting, 100, HostStatus::Cancelled, true)]
#[case(HostStage::Rebooting, 10, HostStatus::Cancelled, false)]
#[case(HostStage::Rebooting, 100, HostStatus::Installed, false)]
#[case(HostStage::Failed, 100, HostStatus::Error, false)]
fn what_a_host_did_at_last_before_it_was_stopped(
    #[case] stage: HostStage,
    #[case] second: i64,
    #[case] end: HostStatus,
    #[case] same: bool,
) {
    let short = vec![
        (0, Thing::Status(0, HostStatus::InstallingInProgress)),
        (1, Thing::Stage(0, HostStage::WritingImageToDisk)),
        (120, Thing::Status(0, end)),
    ];
    let mut long = short.clone();
    long.insert(2, (second, Thing::Stage(0, stage)));
    let found = differences(&made(&SIMULATED, &short), &made(&SIMULATED, &long));
    assert_eq!(found.is_empty(), same, "{found:#?}");
}

/// Logs are sent beside the last report, and the run is over with that.
#[rstest]
#[case("cluster_logs_uploaded", 990, true)]
#[case("cluster_logs_uploaded", 500, false)]
#[case("cluster_installation_completed", 990, false)]
fn logs_that_came_at_last(#[case] name: &'static str, #[case] second: i64, #[case] same: bool) {
    let with = made(&SIMULATED, &[(second, Thing::ClusterEvent(name, "Uploaded logs for the cluster".into()))]);
    let found = differences(&made(&SIMULATED, &[]), &with);
    assert_eq!(found.is_empty(), same, "{found:#?}");
}

#[test]
fn a_host_that_is_only_in_one_is_told() {
    let fewer = Made { names: &["master-0", "master-1"], ..SIMULATED };
    let found = differences(&made(&SIMULATED, &[]), &made(&fewer, &[]));
    assert_eq!(found.len(), 1, "{found:#?}");
    assert_eq!((found[0].name.as_str(), &found[0].strand), ("worker-0", &Strand::Presence));
    assert_eq!((found[0].a.len(), found[0].b.len()), (1, 0));
}

/// Two events of different kinds have an order only when they are clearly apart, in both.
#[rstest]
#[case(100, 100, 1)]
#[case(100, 10, 0)]
#[case(10, 100, 0)]
#[case(20, 21, 0)]
#[case(21, 21, 1)]
fn the_order_of_events_counts_when_it_is_clear(#[case] apart_a: i64, #[case] apart_b: i64, #[case] expected: usize) {
    let event = |name: &'static str| Thing::Event(0, name, String::new());
    let a = made(&SIMULATED, &[(0, event("x")), (apart_a, event("y"))]);
    let b = made(&SIMULATED, &[(0, event("y")), (apart_b, event("x"))]);
    let found = differences(&a, &b);
    assert_eq!(found.len(), expected, "{found:#?}");
    assert!(found.iter().all(|d| d.strand == Strand::Order && d.a == ["x", "y"] && d.b == ["y", "x"]));
}

/// The real host was looked at before its inventory was there, the simulated one after it, or the other way round.
#[rstest]
#[case::brief(&[(0, "failure"), (5, "success")], &[(3, "success")], true)]
#[case::long(&[(0, "failure"), (50, "success")], &[(3, "success")], false)]
#[case::in_the_middle(&[(0, "success"), (50, "pending"), (60, "success")], &[(0, "success")], true)]
#[case::another_end(&[(0, "success"), (50, "failure")], &[(0, "success")], false)]
#[case::both_have_their_own(&[(0, "pending"), (9, "success")], &[(0, "error"), (9, "success")], true)]
#[case::left_alone(&[(0, "pending"), (9, "gone")], &[], true)]
fn a_monitor_may_miss_a_moment(#[case] a: &[(i64, &str)], #[case] b: &[(i64, &str)], #[case] same: bool) {
    let line = |words: &[(i64, &str)]| {
        let mut r = Recorder::new(None);
        let at = Timestamp::from_secs;
        let host = Uuid::from_u128(1);
        r.record(Source::Harness, None, at(0), What::HostNamed { host, name: "h".into(), kind: HostsKind::Simulated });
        let known = What::HostStatus { host, cluster: None, from: None, to: HostStatus::Known, info: "".into() };
        r.record(Source::Database, None, at(0), known);
        for (second, word) in words {
            let what = What::Validation {
                subject: host,
                is_cluster: false,
                id: "x".into(),
                from: None,
                to: serde_json::from_value((*word).into()).ok(),
                message: String::new(),
            };
            r.record(Source::Database, None, at(*second), what);
        }
        r.into_observations()
    };
    let found: Vec<_> =
        differences(&line(a), &line(b)).into_iter().filter(|d| matches!(d.strand, Strand::Validation(_))).collect();
    assert_eq!(found.is_empty(), same, "{found:#?}");
}

/// Statuses of an installation are never missed, however short they are.
#[rstest]
#[case(&[HostStatus::Discovering, HostStatus::PendingForInput, HostStatus::Known], true)]
#[case(&[HostStatus::Discovering, HostStatus::Disconnected, HostStatus::Known], false)]
fn only_statuses_that_follow_from_validations_may_be_missed(#[case] all: &[HostStatus], #[case] same: bool) {
    let quick = |all: &[HostStatus]| {
        let things: Vec<_> = all.iter().enumerate().map(|(n, s)| (n as i64, Thing::Status(0, *s))).collect();
        made(&SIMULATED, &things)
    };
    let found = differences(&quick(all), &quick(&[HostStatus::Discovering, HostStatus::Known]));
    assert_eq!(found.is_empty(), same, "{found:#?}");
}

#[rstest]
#[case(&[ValidationStatus::Pending, ValidationStatus::Failure, ValidationStatus::Success], &["failed", "fixed"], &[])]
#[case(&[ValidationStatus::Pending, ValidationStatus::Failure, ValidationStatus::Success], &["fixed"], &["told fixed instead of failed and fixed"])]
#[case(&[ValidationStatus::Failure, ValidationStatus::Success], &["fixed"], &[])]
#[case(&[ValidationStatus::Success], &["fixed"], &["told fixed instead of nothing"])]
#[case(&[ValidationStatus::Success, ValidationStatus::Failure], &[], &["told nothing instead of failed"])]
fn what_is_told_of_a_validation_must_be_what_it_went_through(
    #[case] path: &[ValidationStatus],
    #[case] told: &[&str],
    #[case] expected: &[&str],
) {
    let mut things = statuses(0, &[HostStatus::Known]);
    things.extend(path.iter().map(|to| (1, Thing::Validation(0, "connected", *to))));
    things.extend(told.iter().map(|word| {
        let name = if *word == "failed" { "host_validation_failed" } else { "host_validation_fixed" };
        (2, Thing::Event(0, name, "Host h: validation 'connected' x".into()))
    }));
    let projection = project(&made(&SIMULATED, &things));
    let host = &projection.entities[&(EntityKind::Host, "master-0".to_owned())];
    let strand = Strand::Event("validation connected".into());
    let found = host.strands.get(&strand).map(Line::texts).unwrap_or_default();
    assert_eq!(found, expected);
}

#[test]
fn what_polls_missed_is_not_counted_but_what_they_saw_is() {
    use HostStatus::{Discovering, Installing, Known, PreparingForInstallation};
    let whole = made(&SIMULATED, &statuses(0, &[Discovering, Known, PreparingForInstallation, Installing]));
    let polled = Made { source: Source::Poll, service: "remote:http://h", ..SIMULATED };
    assert_eq!(differences(&whole, &made(&polled, &statuses(0, &[Discovering, Installing]))), vec![]);
    let wrong = made(&polled, &statuses(0, &[Discovering, HostStatus::Error]));
    assert_eq!(differences(&whole, &wrong).len(), 1);
    // The other way round nothing is forgiven: the polls saw what the database never held.
    let short = made(&SIMULATED, &statuses(0, &[Discovering, Installing]));
    let long = made(&polled, &statuses(0, &[Discovering, Known, Installing]));
    assert_eq!(differences(&short, &long).len(), 1);
}

const TABLE: &str = "# a comment
sessions: 3
within: 2
rows:
  - scenarios: [made]
    of: host
    strand: event host_role_updated
    either: [{simulated: '', real: master}, {simulated: '', real: worker}]
    at_most: 2
    why: a reason
  - scenarios: [made]
    of: cluster
    strand: event x
    either: [{simulated: '', real: seen}]
    at_most: 1
    why: never met
  - scenarios: [made]
    of: cluster
    strand: event y
    either: [{simulated: '', real: seen}]
    at_most: 1
    seen: 1
    why: met now and then
";

#[rstest]
#[case("simulated", "process:/p", 1)]
#[case("process:/p", "simulated", 0)]
#[case("process:/p", "process:/p", 0)]
#[case("simulated", "simulated", 0)]
fn an_explanation_knows_its_sides(#[case] a: &str, #[case] b: &str, #[case] explained: usize) {
    let table = Explanations::read(TABLE).unwrap();
    let role = (5, Thing::Event(0, "host_role_updated", "Host m: calculated role is master".into()));
    let (a, b) = (Made { service: a, ..SIMULATED }, Made { service: b, ..SIMULATED });
    let mut comparison = compare(&made(&a, &[]), &made(&b, &[role]), &Options::default());
    comparison.explain(&table);
    assert_eq!((comparison.explained.len(), comparison.differences.len()), (explained, 1 - explained));
    assert_eq!(comparison.is_same(), explained == 1);
    let stale: Vec<_> = table.stale(&[comparison]).into_iter().map(|e| e.why.as_str()).collect();
    // What is met now and then, and what belongs to another scenario, is never stale.
    assert_eq!(stale, if explained == 1 { vec!["never met"] } else { vec!["a reason", "never met"] });
}

/// A row explains what it names, and not more of it than it says.
#[test]
fn an_explanation_has_a_limit() {
    let table = Explanations::read(TABLE).unwrap();
    let event =
        |host, role: &str| (5, Thing::Event(host, "host_role_updated", format!("Host h: calculated role is {role}")));
    let real = Made { service: "process:/p", ..SIMULATED };
    let explained = |things: &[(i64, Thing)]| {
        let mut comparison = compare(&made(&SIMULATED, &[]), &made(&real, things), &Options::default());
        comparison.explain(&table);
        (comparison.explained.len(), comparison.differences.len())
    };
    assert_eq!(explained(&[event(0, "master"), event(1, "worker")]), (2, 0));
    assert_eq!(explained(&[event(0, "master"), event(1, "worker"), event(2, "worker")]), (2, 1));
    assert_eq!(explained(&[event(0, "arbiter")]), (0, 1));
}

/// A session changes the numbers of the rows that it used, and nothing else.
#[test]
fn a_session_is_recorded() {
    let real = Made { service: "process:/p", ..SIMULATED };
    let session = |things: &[(i64, Thing)]| {
        let mut comparison = compare(&made(&SIMULATED, &[]), &made(&real, things), &Options::default());
        comparison.explain(&Explanations::read(TABLE).unwrap());
        comparison
    };
    let used = [session(&[(5, Thing::ClusterEvent("y", String::new()))])];
    let expected = TABLE.replace("sessions: 3", "sessions: 4").replace("seen: 1", "seen: 4");
    assert_eq!(Explanations::recorded(TABLE, &used).unwrap(), expected);
    // Once more without it, and it has explained nothing for too long.
    let unused = Explanations::recorded(TABLE, &[session(&[])]).unwrap();
    assert_eq!(unused, TABLE.replace("sessions: 3", "sessions: 4"));
    assert!(Explanations::read(&unused).unwrap_err().to_string().contains("row 3: it has explained nothing"));
    let error = Explanations::recorded(TABLE, &[]).unwrap_err().to_string();
    assert!(error.ends_with("not compared: made"), "{error}");
}

fn a_pair() -> Comparison {
    use HostStatus::{Discovering, Insufficient, Known, PreparingForInstallation};
    let mut one = Vec::new();
    let mut other = Vec::new();
    for host in 0..3u8 {
        let role = if host < 2 { HostRole::Master } else { HostRole::Worker };
        for side in [&mut one, &mut other] {
            side.push((0, Thing::Role(host, role, host == 0)));
        }
        one.extend(statuses(host, &[Discovering, Known, PreparingForInstallation]));
        other.extend(statuses(host, &[Discovering, Insufficient, Known, PreparingForInstallation]));
        other.push((9, Thing::Event(host, "host_role_updated", format!("Host {host}: calculated role is {role}"))));
    }
    one.push((3, Thing::Stage(0, HostStage::WaitingForBootkube)));
    one.push((4, Thing::ClusterEvent("cluster_logs_uploaded", String::new())));
    other.push((4, Thing::Validation(1, "ntp-synced", ValidationStatus::Failure)));
    let real = Made { service: "process:/usr/bin/assisted-service", id_base: 700, ..SIMULATED };
    let mut comparison = compare(&made(&SIMULATED, &one), &made(&real, &other), &Options::default());
    comparison.explain(&Explanations::read(TABLE).unwrap());
    comparison
}

#[test]
fn a_comparison_in_words() {
    insta::assert_snapshot!(show(&a_pair(), false));
}

#[test]
fn a_comparison_as_json() {
    let mut comparison = a_pair();
    comparison.differences.truncate(2);
    comparison.explained.truncate(1);
    insta::assert_snapshot!(serde_json::to_string_pretty(&comparison).unwrap());
}

#[test]
fn two_equal_histories_in_words() {
    let a = made(&SIMULATED, &statuses(0, &[HostStatus::Discovering, HostStatus::Known]));
    insta::assert_snapshot!(show(&compare(&a, &a, &Options::default()), false));
}

#[test]
fn many_differences_fit_on_one_screen() {
    let events = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"];
    let b: Vec<_> = events.iter().map(|name| (1, Thing::ClusterEvent(name, String::new()))).collect();
    let comparison = compare(&made(&SIMULATED, &[]), &made(&SIMULATED, &b), &Options::default());
    assert_eq!(comparison.differences.len(), 10);
    let text = show(&comparison, false);
    assert!(text.lines().count() <= 40, "{text}");
    assert!(text.contains("… and 2 more places (--all shows them)"), "{text}");
    assert!(show(&comparison, true).contains("event j"), "{text}");
}

/// Conditions are compared as statuses are: what stays counts, what was there for a moment only does not.
#[test]
fn conditions_of_resources_are_compared() {
    use ConditionStatus::{False, True};
    let of = |last: &'static str, moment: bool| {
        let mut things = vec![(0, Thing::Condition(None, "Completed", False, "InstallationNotStarted"))];
        things.push((100, Thing::Condition(Some(0), "RequirementsMet", False, "AgentIsNotApproved")));
        if moment {
            things.push((200, Thing::Condition(None, "Completed", False, "InstallationOnHold")));
        }
        things.push((205, Thing::Condition(None, "Completed", False, "InstallationInProgress")));
        things.push((500, Thing::Condition(None, "Completed", True, last)));
        made(&SIMULATED, &things)
    };
    let options = Options::default();
    let good = of("InstallationCompleted", false);
    assert!(compare(&good, &of("InstallationCompleted", true), &options).is_same(), "that was a moment");
    let found = compare(&good, &of("InstallationFailed", false), &options).differences;
    let [difference] = found.as_slice() else { panic!("{found:?}") };
    assert_eq!(difference.strand.to_string(), "condition AgentClusterInstall/Completed");
    assert_eq!(difference.a, ["True InstallationCompleted"]);
    // A whole side without conditions is none that is the same.
    let silent = made(&SIMULATED, &[]);
    let found = compare(&good, &silent, &options).differences;
    assert!(found.iter().any(|d| d.strand.to_string() == "condition Agent/RequirementsMet"), "{found:?}");
}
