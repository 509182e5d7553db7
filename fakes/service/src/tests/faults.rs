//! Hosts and users that send nonsense; storing that fails.

use proptest::prelude::*;
use rstest::rstest;
use serde_json::{Value, json};
use vlab_api::http::{Method, Request};

use super::lab::{BASE, Fleet, Lab, PULL_SECRET};

#[rstest]
#[case("inventory", 0, "{{{", 400)]
#[case("inventory", 0, "[]", 400)]
#[case("inventory", 1, "{{{", 204)]
#[case("connectivity-check", 0, "", 400)]
#[case("free-network-addresses", 0, "[]", 500)]
#[case("ntp-synchronizer", 0, "null", 400)]
#[case("domain-resolution", 0, "{\"resolutions\":5}", 400)]
#[case("verify-vips", 0, "{}", 400)]
#[case("dhcp-lease-allocate", 0, "{\"api_vip_address\":\"1.2.3.4\",\"ingress_vip_address\":\"1.2.3.5\"}", 500)]
#[case("installation-disk-speed-check", 0, "", 204)]
#[case("container-image-availability", 2, "{\"images\":[]}", 204)]
#[case("tang-connectivity-check", 1, "", 204)]
#[case("api-vip-connectivity-check", 0, "{\"is_success\":true}", 204)]
#[case("install", 1, "", 204)]
#[case("upgrade-agent", 0, "{\"result\":\"failure\"}", 204)]
#[case("logs-gather", 0, "anything", 204)]
#[case("stop-installation", -1, "", 204)]
#[case("download-boot-artifacts", 0, "", 204)]
#[case("reboot-for-reclaim", 0, "", 204)]
#[case("execute", 0, "", 204)]
#[case("next-step-runner", 0, "", 204)]
fn replies_to_steps_that_were_never_given(
    #[case] kind: &str,
    #[case] exit: i64,
    #[case] output: &str,
    #[case] status: u16,
) {
    let mut lab = Lab::new(3);
    let mut fleet = Fleet::create(&mut lab, 1);
    let path = fleet.hosts[0].path(&fleet.infra_env, "instructions");
    let reply =
        json!({"step_type": kind, "step_id": "never-given", "exit_code": exit, "output": output, "error": "boom"});
    let answer = lab.send(Method::Post, &path, Some(&reply));
    assert_eq!(answer.status, status, "{}", String::from_utf8_lossy(&answer.body));
    // The service goes on as if nothing had happened.
    fleet.until(&mut lab, "ready");
}

#[test]
fn the_boot_medium_goes_and_comes_back() {
    let mut lab = Lab::new(3);
    let mut fleet = Fleet::create(&mut lab, 1);
    fleet.until(&mut lab, "ready");
    let path = fleet.hosts[0].path(&fleet.infra_env, "instructions");
    lab.ok(204, Method::Post, &path, Some(json!({"step_type": "inventory", "step_id": "x", "exit_code": 256})));
    assert_eq!(lab.cluster(&fleet.cluster)["hosts"][0]["status"], "disconnected");
    fleet.until(&mut lab, "ready");
}

#[test]
fn huge_bodies_are_answered() {
    let mut lab = Lab::new(3);
    let fleet = Fleet::create(&mut lab, 1);
    let path = format!("{BASE}{}", fleet.hosts[0].path(&fleet.infra_env, "instructions"));
    let mut request = Request::new(Method::Post, path).header("content-type", "application/json");
    request.body = vec![b'['; 10_000_000].into();
    assert_eq!(lab.call(&request).status, 400);
    request.body = format!("{{\"step_type\":\"inventory\",\"output\":\"{}\"}}", "x".repeat(10_000_000)).into();
    assert_eq!(lab.call(&request).status, 400);
    request.body = vec![0xff; 1000].into();
    assert_eq!(lab.call(&request).status, 400);
    assert_eq!(lab.cluster(&fleet.cluster)["hosts"][0]["status"], "discovering");
}

#[test]
fn every_operation_answers_for_ids_that_nobody_has() {
    let mut lab = Lab::new(3);
    let nil = "00000000-0000-0000-0000-000000000000";
    for route in crate::rest::routes::ROUTES {
        for id in [nil, "nope"] {
            let path = route.path.replace("{c}", id).replace("{i}", id).replace("{h}", id).replace("{word}", id);
            let answer = lab.send(route.method, &path[3..], None);
            assert!(answer.status >= 200 && answer.status < 600, "{path}");
            let has_id = route.path.contains("{c}") || route.path.contains("{i}");
            if has_id && id == "nope" {
                assert_eq!(answer.status, 400, "{path}");
            } else if route.method == Method::Delete && route.path.ends_with("/hosts/{h}") {
                // The one that the real service knows no better answer for (`actions/host-delete` of the conformance suite).
                assert_eq!(answer.status, 500, "{path}");
            } else if has_id {
                assert!((400..500).contains(&answer.status) || answer.status == 200, "{path}: {}", answer.status);
            }
        }
    }
    assert_eq!(lab.stored.clusters.len() + lab.stored.hosts.len() + lab.stored.infra_envs.len(), 0);
}

/// One of the requests that a confused world sends.
fn any_request() -> impl Strategy<Value = (Method, String, Option<Value>)> {
    let cluster = prop_oneof![Just("C"), Just("00000000-0000-0000-0000-000000000000")];
    let host = 0..3usize;
    (0..16usize, cluster, host, 0..6usize).prop_map(|(what, cluster, n, stage)| {
        let id = uuid::Uuid::from_u128(0x1000 + n as u128);
        let stage = ["Installing", "Done", "Rebooting", "Failed", "Joined", "Starting installation"][stage];
        let c = format!("/clusters/{cluster}");
        let h = format!("/infra-envs/I/hosts/{id}");
        match what {
            0 => (
                Method::Post,
                "/clusters".into(),
                Some(json!({"name": "x", "openshift_version": "4.18", "pull_secret": PULL_SECRET})),
            ),
            1 => (Method::Patch, c, Some(json!({"name": "y", "base_dns_domain": "other.example.com"}))),
            2 => (Method::Delete, c, None),
            3 => (Method::Post, "/infra-envs/I/hosts".into(), Some(json!({"host_id": id}))),
            4 => (Method::Get, format!("{h}/instructions?timestamp=1795179008"), None),
            5 => (
                Method::Post,
                format!("{h}/instructions"),
                Some(json!({"step_type": "inventory", "exit_code": 0, "output": super::lab::inventory(n).to_string()})),
            ),
            6 => (Method::Post, format!("{h}/instructions"), Some(json!({"step_type": "inventory", "exit_code": 256}))),
            7 => (Method::Patch, h, Some(json!({"host_role": "master", "host_name": format!("n{n}")}))),
            8 => (Method::Delete, h, None),
            9 => (Method::Put, format!("{h}/progress"), Some(json!({"current_stage": stage}))),
            10 => (Method::Post, format!("{c}/actions/install"), None),
            11 => (Method::Post, format!("{c}/actions/cancel"), None),
            12 => (Method::Post, format!("{c}/actions/reset"), None),
            13 => (
                Method::Put,
                format!("{c}/monitored-operators"),
                Some(json!({"name": "console", "status": "available"})),
            ),
            14 => (Method::Post, format!("{c}/manifests"), Some(json!({"file_name": "a.yaml", "content": "YTogMQo="}))),
            _ => (
                Method::Post,
                "/events".into(),
                Some(json!({"severity": "info", "message": "m", "event_time": "2026-11-20T12:50:08.900Z"})),
            ),
        }
    })
}

fn at(request: &(Method, String, Option<Value>), fleet: &Fleet) -> Request {
    let path = request
        .1
        .replace("/clusters/C", &format!("/clusters/{}", fleet.cluster))
        .replace("/infra-envs/I", &format!("/infra-envs/{}", fleet.infra_env));
    let made = Request::new(request.0, format!("{BASE}{path}"));
    match &request.2 {
        Some(body) => made.json(body),
        None => made,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn rollback_restores_the_last_confirmed_state(
        before in prop::collection::vec((any_request(), 0..20u64), 0..12),
        after in prop::collection::vec((any_request(), 0..20u64), 1..25),
    ) {
        let mut lab = Lab::new(11);
        let fleet = Fleet::create(&mut lab, 1);
        for (request, secs) in &before {
            lab.call(&at(request, &fleet));
            lab.advance(std::time::Duration::from_secs(*secs));
        }
        let confirmed = lab.core.snapshot();
        // What is stored by the writes is what the core holds.
        prop_assert_eq!(sorted(&lab.stored), sorted(&confirmed));
        let mut now = lab.now;
        for (request, secs) in &after {
            lab.core.handle(now, &at(request, &fleet));
            now = now + std::time::Duration::from_secs(*secs);
            lab.core.wake(now);
        }
        lab.core.take_writes();
        lab.core.rollback();
        prop_assert_eq!(sorted(&lab.core.snapshot()), sorted(&confirmed));
        prop_assert!(lab.core.take_writes().is_empty());
        // The same requests again lead where they would have led without the failure.
        let mut other = crate::Core::new(lab.core.config().clone(), confirmed);
        other.wake(lab.now);
        lab.core.wake(lab.now);
        let list = |core: &mut crate::Core| core.handle(lab.now, &Request::new(Method::Get, format!("{BASE}/clusters?with_hosts=true"))).body;
        prop_assert_eq!(list(&mut lab.core), list(&mut other));
    }
}

fn sorted(snapshot: &crate::Snapshot) -> crate::Snapshot {
    let mut s = snapshot.clone();
    s.clusters.sort_by_key(|r| r.private.ordinal);
    s.infra_envs.sort_by_key(|r| r.ordinal);
    s.hosts.sort_by_key(|r| r.private.ordinal);
    s.events.sort_by_key(|r| r.seq);
    s.files.sort_by(|a, b| a.key.cmp(&b.key));
    s
}
