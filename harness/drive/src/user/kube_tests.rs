//! What waits for what where the user applies resources, on a computer as slow as one likes.

use serde_json::{Value, json};
use vlab_api::http::{Method, Response};
use vlab_scenario::{Catalogue, SourceFile};

use super::*;

const SNO: &str = "version: 1\nname: t\ncluster: {name: sno, topology: sno}\nhosts: [{name: node}]\n";
const POOL: &str = "version: 1\nname: t\n\
    clusters: [{name: a, topology: sno}, {name: b, topology: sno}]\n\
    hosts: [{name: own, cluster: a}, {name: node, cluster: none}]\n\
    actions:\n  - {at: 1m, do: bind, host: node-0, cluster: b}\n";

fn user(text: &str) -> User {
    let scenario = vlab_scenario::load(&SourceFile::new("t.yaml", text), &Catalogue::embedded());
    let config = UserConfig {
        macs: vec!["02:00:00:00:00:01".to_owned(), "02:00:00:00:00:02".to_owned()],
        kube: Some(KubeUser { releases: vec![("4.18.0".to_owned(), "quay.io/r:4.18".to_owned())], label: None }),
        ..plain_config()
    };
    let scenario = scenario.unwrap_or_else(|e| panic!("{e}"));
    let ids: Vec<Uuid> = (0..scenario.hosts.len()).map(|i| Uuid::from_u128(10 + i as u128)).collect();
    User::new(Arc::new(scenario), config, &ids)
}

/// The status of a resource that has its row.
fn with_a_row(path: &str) -> Value {
    let (what, id) = if path.contains("infraenvs") { ("infra_env", 1) } else { ("cluster", 2) };
    let url = format!("http://service/events?{what}_id={}", Uuid::from_u128(id));
    json!({"status": {"isoDownloadURL": "http://service/iso", "debugInfo": {"eventsURL": url}}})
}

/// Lets the user go on until the service has no row for the cluster's resource for so many looks, and gives back the infra-envs
/// that hosts may boot, with what had been found out before.
fn booted(text: &str, late: usize, cluster: &str) -> Vec<(Ready, bool)> {
    let mut user = user(text);
    let (mut now, mut looks, mut ready) = (Timestamp::from_secs(100), 0, Vec::new());
    for _ in 0..200 {
        user.wake(now);
        for send in user.take_sends() {
            let path = &send.request.path;
            let get = send.request.method == Method::Get;
            let is_late = path.contains("agentclusterinstalls") && path.contains(&format!("/namespaces/{cluster}/"));
            let body = match get {
                true if is_late && looks < late => {
                    looks += 1;
                    json!({})
                }
                true => with_a_row(path),
                false => json!({}),
            };
            let response = Response { body: body.to_string().into(), ..Response::empty(200) };
            user.deliver(now, Reply { connection: send.connection, tag: send.tag, result: Ok(response) });
        }
        let known = user.clusters.iter().all(|cluster| cluster.id.is_some());
        ready.extend(user.take_ready().into_iter().map(|ready| (ready, known)));
        now = now + Duration::from_millis(500);
    }
    assert_eq!(looks, late);
    ready
}

#[test]
fn hosts_boot_when_their_cluster_is_known() {
    let ready = booted(SNO, 5, "sno");
    assert_eq!(ready.len(), 1, "{ready:?}");
    assert_eq!((ready[0].0.cluster, ready[0].0.cluster_id), (Some(0), Some(Uuid::from_u128(2))));
}

#[test]
fn hosts_of_the_pool_boot_when_every_cluster_is_known() {
    let ready = booted(POOL, 5, "b");
    let pool: Vec<bool> = ready.iter().filter(|(ready, _)| ready.cluster.is_none()).map(|(_, known)| *known).collect();
    assert_eq!(pool, [true], "{ready:?}");
}
