//! Looks that fail, and the last one, which must see everything or say that it did not.

use rstest::rstest;
use vlab_api::http::{Response, TransportError};
use vlab_api::types::Host;
use vlab_scenario::{Catalogue, SourceFile};

use super::*;

const CLUSTER: Uuid = Uuid::from_u128(100);

fn user() -> User {
    let text = "version: 1\nname: t\ncluster: {topology: sno}\nhosts: [{name: node}]\n";
    let scenario = vlab_scenario::load(&SourceFile::new("t.yaml", text), &Catalogue::embedded());
    let mut user = User::new(Arc::new(scenario.unwrap_or_else(|e| panic!("{e}"))), plain_config(), &[Uuid::nil()]);
    user.todo.clear();
    user.started = Some(now());
    user.clusters[0].id = Some(CLUSTER);
    user.cluster_index.insert(CLUSTER, 0);
    user
}

fn now() -> Timestamp {
    Timestamp::from_secs(100)
}

/// The path of the question that is open.
fn asked(user: &mut User) -> String {
    let sends = user.take_sends();
    assert_eq!(sends.len(), 1, "{sends:?}");
    assert_eq!(sends[0].connection, LOOK);
    sends[0].request.path.clone()
}

fn answer(user: &mut User, result: Result<Response, TransportError>) -> Vec<What> {
    user.deliver(now(), Reply { connection: LOOK, tag: 0, result });
    user.wake(now());
    user.take_seen().into_iter().map(|seen| seen.what).collect()
}

fn json(text: &str) -> Result<Response, TransportError> {
    Ok(Response { body: text.into(), ..Response::empty(200) })
}

/// The events of this list from the offset that is asked for, of so many that were written.
fn events(path: &str, written: usize) -> Result<Response, TransportError> {
    let (_, offset) = path.split_once("offset=").unwrap_or_else(|| panic!("{path}"));
    let of = |n: usize| Event {
        message: format!("event {n}"),
        event_time: now() + Duration::from_millis(n as u64),
        cluster_id: Some(CLUSTER),
        ..Event::default()
    };
    Ok(Response::json(200, &(offset.parse().unwrap()..written).map(of).collect::<Vec<_>>()))
}

/// After the events the list of clusters is asked for.
fn list_of_clusters(user: &mut User, list: Result<Response, TransportError>) -> Vec<What> {
    assert!(asked(user).ends_with("/clusters"));
    answer(user, list)
}

#[test]
fn the_last_look_reads_events_to_their_end() {
    let mut user = user();
    user.look_once_more(now());
    assert!(asked(&mut user).ends_with(&CLUSTER.to_string()));
    answer(&mut user, Ok(Response::empty(500)));
    let mut read = 0;
    for written in [5000, 10_000, 10_003] {
        let path = asked(&mut user);
        assert_eq!(answer(&mut user, events(&path, written)).len(), written - read);
        assert!(!user.has_looked());
        read = written;
    }
    let path = asked(&mut user);
    assert_eq!(answer(&mut user, events(&path, read)), []);
    list_of_clusters(&mut user, json("[]"));
    assert!(user.has_looked());
}

#[test]
fn a_service_that_always_has_one_more_is_given_up_and_that_is_told() {
    let mut user = user();
    user.look_once_more(now());
    asked(&mut user);
    answer(&mut user, Ok(Response::empty(500)));
    let (mut told, mut written) = (Vec::new(), 0);
    while !user.has_looked() {
        written += 1;
        let path = asked(&mut user);
        if path.ends_with("/clusters") {
            answer(&mut user, json("[]"));
        } else {
            told = answer(&mut user, events(&path, written));
        }
    }
    assert!(told.iter().any(|what| matches!(what, What::Incomplete { part: HistoryPart::Events, .. })), "{told:?}");
}

#[rstest]
#[case(Ok(Response::empty(500)), "500")]
#[case(Err(TransportError::Connect("refused".into())), "refused")]
#[case(Err(TransportError::Timeout(Duration::from_secs(30))), "no answer within 30s")]
fn a_last_look_that_fails_is_told_and_others_are_not(
    #[case] result: Result<Response, TransportError>,
    #[case] why: &str,
) {
    let mut user = user();
    user.next_look = Some(now());
    user.wake(now());
    asked(&mut user);
    assert_eq!(answer(&mut user, result.clone()), [], "there will be another one");
    let mut user = self::user();
    user.look_once_more(now());
    for part in [HistoryPart::LastLook, HistoryPart::Events, HistoryPart::LastLook] {
        asked(&mut user);
        let told = answer(&mut user, result.clone());
        let [What::Incomplete { part: of, machine: None, why: told }] = &told[..] else { panic!("{told:?}") };
        assert!(*of == part && told.contains(why), "{of}: {told}");
    }
    assert!(user.has_looked());
}

#[rstest]
#[case("no JSON")]
#[case(r#"{"id":"00000000-0000-0000-0000-000000000064","status":"flying"}"#)]
fn an_answer_that_cannot_be_understood_is_told_once(#[case] body: &str) {
    let mut user = user();
    let mut told = Vec::new();
    user.look_once_more(now());
    asked(&mut user);
    told.extend(answer(&mut user, json(body)));
    let path = asked(&mut user);
    told.extend(answer(&mut user, events(&path, 0)));
    told.extend(list_of_clusters(&mut user, json("[]")));
    user.look_once_more(now());
    asked(&mut user);
    told.extend(answer(&mut user, json(body)));
    let [What::Unreadable { subject: Some(CLUSTER), of, .. }] = &told[..] else { panic!("{told:?}") };
    assert_eq!(of, "v2GetCluster");
}

const INFRA_ENV: Uuid = Uuid::from_u128(200);

/// A user whose cluster and host are shown as they were: the last look comes to the lists.
fn at_the_lists() -> User {
    let mut user = user();
    user.clusters[0].infra_env = Some(INFRA_ENV);
    user.look_once_more(now());
    shows_cluster(&mut user);
    let path = asked(&mut user);
    answer(&mut user, events(&path, 0));
    user
}

fn host(status: HostStatus) -> Host {
    Host { id: Uuid::nil(), status, cluster_id: Some(CLUSTER), infra_env_id: Some(INFRA_ENV), ..Host::default() }
}

fn cluster(status: ClusterStatus, hosts: Option<Vec<Host>>) -> Cluster {
    Cluster { id: CLUSTER, status, hosts, ..Cluster::default() }
}

fn text<T: serde::Serialize>(body: &T) -> String {
    serde_json::to_string(body).unwrap()
}

fn shows_cluster(user: &mut User) {
    assert!(asked(user).ends_with(&CLUSTER.to_string()));
    answer(user, json(&text(&cluster(ClusterStatus::Installed, Some(vec![host(HostStatus::Installed)])))));
}

#[test]
fn lists_that_show_the_same_are_no_news() {
    let mut user = at_the_lists();
    let list = text(&[cluster(ClusterStatus::Installed, None)]);
    assert_eq!(list_of_clusters(&mut user, json(&list)), []);
    assert!(asked(&mut user).ends_with("/hosts"));
    assert_eq!(answer(&mut user, json(&text(&[host(HostStatus::Installed)]))), []);
    assert!(asked(&mut user).ends_with(&format!("/hosts/{}", Uuid::nil())));
    assert_eq!(answer(&mut user, json(&text(&host(HostStatus::Installed)))), []);
    assert!(user.has_looked());
}

/// What a list shows goes into the history as what any look shows, where it is compared with the rows.
#[test]
fn what_a_list_shows_otherwise_is_told() {
    let mut user = at_the_lists();
    let list = text(&[cluster(ClusterStatus::Finalizing, None)]);
    let told = list_of_clusters(&mut user, json(&list));
    assert!(matches!(told[..], [What::ClusterStatus { to: ClusterStatus::Finalizing, .. }]), "{told:?}");
    asked(&mut user);
    let told = answer(&mut user, json(&text(&[host(HostStatus::InstallingInProgress)])));
    assert!(matches!(told[..], [What::HostStatus { to: HostStatus::InstallingInProgress, .. }]), "{told:?}");
    asked(&mut user);
    let told = answer(&mut user, json(&text(&host(HostStatus::Known))));
    assert!(matches!(told[..], [What::HostStatus { to: HostStatus::Known, .. }]), "{told:?}");
}

/// Who is left out may just have been taken away: only when the cluster still shows it is that a mistake.
#[rstest]
#[case::of_clusters("/clusters", true)]
#[case::of_hosts("/hosts", true)]
#[case::one_host("/hosts/00000000-0000-0000-0000-000000000000", true)]
#[case::it_came_a_moment_later("/hosts", false)]
fn who_is_left_out_is_told(#[case] of: &str, #[case] for_good: bool) {
    let mut user = at_the_lists();
    let (mut told, mut left_out) = (Vec::new(), 0);
    while !user.has_looked() {
        let path = asked(&mut user);
        let lacks = path.ends_with(of) && (for_good || left_out == 0);
        left_out += usize::from(lacks);
        let body = match path.rsplit('/').next().unwrap() {
            "clusters" if lacks => "[]".to_owned(),
            "hosts" if lacks => "[]".to_owned(),
            "clusters" => text(&[cluster(ClusterStatus::Installed, None)]),
            "hosts" => text(&[host(HostStatus::Installed)]),
            id if id == CLUSTER.to_string() => {
                text(&cluster(ClusterStatus::Installed, Some(vec![host(HostStatus::Installed)])))
            }
            _ => text(&host(HostStatus::Installed)),
        };
        let answered = if lacks && body.starts_with('{') { Ok(Response::empty(404)) } else { json(&body) };
        told.extend(answer(&mut user, answered));
    }
    let lacked =
        told.iter().filter(|what| matches!(what, What::Unreadable { error, .. } if error.contains("it lacks this")));
    assert_eq!(lacked.count(), usize::from(for_good), "{told:?}");
    assert_eq!(told.len(), usize::from(for_good), "{told:?}");
}
