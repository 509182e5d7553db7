//! Whole installations by scripted requests; restarts on the way.

use std::time::Duration;

use rstest::rstest;
use serde_json::json;
use vlab_api::http::Method;

use super::lab::{Fleet, Lab};

fn install(lab: &mut Lab, hosts: usize) -> Fleet {
    let mut fleet = Fleet::create(lab, hosts);
    fleet.until(lab, "ready");
    lab.ok(202, Method::Post, &format!("/clusters/{}/actions/install", fleet.cluster), None);
    assert_eq!(fleet.until(lab, "installing"), ["preparing-for-installation", "installing"]);
    fleet.until_told_to_install(lab);
    fleet.finish(lab);
    fleet
}

#[rstest]
#[case("true", true)]
#[case("false", false)]
fn installers_save_a_reboot_unless_it_is_switched_off(#[case] setting: &str, #[case] saved: bool) {
    let mut lab = Lab::with_setting("ENABLE_SKIP_MCO_REBOOT", setting);
    let fleet = install(&mut lab, 1);
    assert_eq!(fleet.hosts[0].install["enable_skip_mco_reboot"], saved, "{}", fleet.hosts[0].install);
}

#[rstest]
#[case(1)]
#[case(5)]
fn an_installation_reaches_installed(#[case] hosts: usize) {
    let mut lab = Lab::new(7);
    let fleet = install(&mut lab, hosts);
    let cluster = lab.cluster(&fleet.cluster);
    assert_eq!(cluster["status"], "installed", "{cluster:#}");
    assert_eq!(cluster["progress"]["total_percentage"], 100);
    let shown = cluster["hosts"].as_array().unwrap();
    assert_eq!(shown.len(), hosts);
    assert!(shown.iter().all(|h| h["status"] == "installed"));
    assert_eq!(shown.iter().filter(|h| h["bootstrap"] == true).count(), 1);
    let masters = shown.iter().filter(|h| h["role"] == "master").count();
    assert_eq!(masters, if hosts == 1 { 1 } else { 3 });
    // What the installation left can be downloaded.
    for (path, wanted) in [
        ("downloads/credentials?file_name=kubeconfig", "clusters:"),
        ("downloads/files?file_name=bootstrap.ign", "ignition"),
        ("credentials", "kubeadmin"),
    ] {
        let answer = lab.send(Method::Get, &format!("/clusters/{}/{path}", fleet.cluster), None);
        assert_eq!(answer.status, 200, "{path}");
        assert!(String::from_utf8_lossy(&answer.body).contains(wanted), "{path}");
    }
    let events = lab.ok(200, Method::Get, &format!("/events?cluster_id={}", fleet.cluster), None);
    let names: Vec<&str> = events.as_array().unwrap().iter().filter_map(|e| e["name"].as_str()).collect();
    for name in [
        "cluster_registration_succeeded",
        "host_registration_succeeded",
        "cluster_prepare_installation_started",
        "quick_disk_format_performed",
        "host_install_progress_updated",
        "cluster_operator_status",
        "cluster_installation_completed",
    ] {
        assert!(names.contains(&name), "event {name} is missing");
    }
    // A single node is the bootstrap from the beginning; and what happens to infra-envs is not in the cluster's list.
    assert_eq!(names.contains(&"host_bootstrap_set"), hosts > 1);
    assert!(!names.contains(&"infra_env_registered"));
}

#[test]
fn a_restart_after_every_commit_changes_nothing() {
    let mut plain = Lab::new(7);
    let fleet = install(&mut plain, 1);
    let mut restarted = Lab::new(7);
    restarted.restart_every = Some(1);
    let again = install(&mut restarted, 1);
    let pick = |lab: &mut Lab, id: &str| {
        let c = lab.cluster(id);
        (
            c["status"].clone(),
            c["progress"]["total_percentage"].clone(),
            c["hosts"][0]["status"].clone(),
            c["hosts"][0]["progress"]["current_stage"].clone(),
        )
    };
    assert_eq!(pick(&mut plain, &fleet.cluster), pick(&mut restarted, &again.cluster));
    assert_eq!(pick(&mut restarted, &again.cluster).0, json!("installed"));
}

/// Ids of steps are stored nowhere, and a poll of a host without news writes no event.
#[test]
fn a_service_that_is_restarted_twice_deals_no_id_again() {
    let mut lab = Lab::new(7);
    let mut fleet = Fleet::create(&mut lab, 1);
    fleet.until(&mut lab, "ready");
    let path = fleet.hosts[0].path(&fleet.infra_env, "instructions");
    let mut dealt = std::collections::BTreeSet::new();
    let mut events = lab.stored.events.len();
    for restart in 0..3 {
        let config = lab.core.config().clone();
        lab.core = crate::Core::new(config, lab.stored.clone());
        lab.now = lab.now + Duration::from_millis(700);
        lab.core.wake(lab.now);
        let steps = lab.ok(200, Method::Get, &format!("{path}?timestamp={}", lab.now.as_secs()), None);
        let steps = steps["instructions"].as_array().unwrap().clone();
        assert!(!steps.is_empty());
        for step in steps {
            let id = step["step_id"].as_str().unwrap().to_owned();
            assert!(dealt.insert(id.clone()), "restart {restart}: {id} was dealt before");
        }
        assert_eq!(std::mem::replace(&mut events, lab.stored.events.len()), events, "the case is another one");
    }
}

#[test]
fn idle_hosts_cost_the_monitor_nothing() {
    let mut lab = Lab::new(7);
    let mut fleet = Fleet::create(&mut lab, 5);
    fleet.until(&mut lab, "ready");
    for _ in 0..10 {
        fleet.hosts.iter_mut().for_each(|h| h.poll(&mut lab, &fleet.infra_env));
        lab.advance(Duration::from_secs(20));
    }
    let before = lab.core.stats();
    // 200 s of polling hosts: 25 intervals of the monitor.
    for _ in 0..10 {
        fleet.hosts.iter_mut().for_each(|h| h.poll(&mut lab, &fleet.infra_env));
        lab.advance(Duration::from_secs(20));
    }
    let looked = lab.core.stats().hosts_refreshed - before.hosts_refreshed;
    assert!(looked <= 15, "five idle hosts were looked at {looked} times in 200 s");
    assert_eq!(lab.cluster(&fleet.cluster)["status"], "ready");
}

#[test]
fn a_silent_host_is_disconnected_in_time_and_comes_back() {
    let mut lab = Lab::new(7);
    let mut fleet = Fleet::create(&mut lab, 1);
    fleet.until(&mut lab, "ready");
    // The bootstrap of a single node gets two minutes more than others.
    lab.advance(Duration::from_secs(5 * 60 - 20));
    let status = |lab: &mut Lab| lab.cluster(&fleet.cluster)["hosts"][0]["status"].clone();
    assert_eq!(status(&mut lab), json!("known"));
    lab.advance(Duration::from_secs(40));
    assert_eq!(status(&mut lab), json!("disconnected"));
    fleet.until(&mut lab, "ready");
}

#[test]
fn cancel_and_reset() {
    let mut lab = Lab::new(7);
    let mut fleet = Fleet::create(&mut lab, 1);
    fleet.until(&mut lab, "ready");
    let action = |name: &str| format!("/clusters/{}/actions/{name}", fleet.cluster);
    let (install, cancel, reset) = (action("install"), action("cancel"), action("reset"));
    lab.ok(202, Method::Post, &install, None);
    let c = lab.ok(202, Method::Post, &cancel, None);
    assert_eq!(c["status"], "ready");
    lab.advance(Duration::from_secs(30));
    fleet.until(&mut lab, "ready");
    lab.ok(202, Method::Post, &install, None);
    fleet.until_told_to_install(&mut lab);
    fleet.hosts[0].report(&mut lab, &fleet.infra_env, "Installing");
    let c = lab.ok(202, Method::Post, &cancel, None);
    assert_eq!((&c["status"], &c["hosts"][0]["status"]), (&json!("cancelled"), &json!("cancelled")));
    let c = lab.ok(202, Method::Post, &reset, None);
    assert_eq!(
        (&c["status"], &c["hosts"][0]["status"]),
        (&json!("insufficient"), &json!("resetting-pending-user-action"))
    );
    fleet.hosts[0].told_to_install = false;
    fleet.hosts[0].register(&mut lab, &fleet.infra_env);
    fleet.until(&mut lab, "ready");
    lab.ok(409, Method::Post, &reset, None);
}

#[test]
fn a_host_that_comes_back_in_the_middle_of_an_installation_has_failed() {
    let mut lab = Lab::new(7);
    let mut fleet = Fleet::create(&mut lab, 1);
    fleet.until(&mut lab, "ready");
    lab.ok(202, Method::Post, &format!("/clusters/{}/actions/install", fleet.cluster), None);
    fleet.until_told_to_install(&mut lab);
    fleet.hosts[0].report(&mut lab, &fleet.infra_env, "Writing image to disk");
    fleet.hosts[0].register(&mut lab, &fleet.infra_env);
    lab.advance(Duration::from_secs(20));
    let c = lab.cluster(&fleet.cluster);
    assert_eq!((&c["status"], &c["hosts"][0]["status"]), (&json!("error"), &json!("error")));
}

#[test]
fn pool_hosts_are_bound_and_unbound() {
    let mut lab = Lab::new(7);
    let body = json!({"name": "pool", "pull_secret": super::lab::PULL_SECRET});
    let pool = lab.ok(201, Method::Post, "/infra-envs", Some(body))["id"].as_str().unwrap().to_owned();
    let mut host = super::lab::FakeHost::new(0);
    host.register(&mut lab, &pool);
    let path = format!("/infra-envs/{pool}/hosts/{}", host.id);
    for _ in 0..3 {
        host.poll(&mut lab, &pool);
        lab.advance(Duration::from_secs(10));
    }
    assert_eq!(lab.ok(200, Method::Get, &path, None)["status"], "known-unbound");
    let body = json!({"name": "sno", "openshift_version": "4.18", "pull_secret": super::lab::PULL_SECRET, "base_dns_domain": "example.com", "high_availability_mode": "None"});
    let cluster = lab.ok(201, Method::Post, "/clusters", Some(body))["id"].as_str().unwrap().to_owned();
    let bound = lab.ok(200, Method::Post, &format!("{path}/actions/bind"), Some(json!({"cluster_id": cluster})));
    assert_eq!(bound["status"], "binding");
    let steps = lab.ok(200, Method::Get, &format!("{path}/instructions"), None);
    assert_eq!((&steps["post_step_action"], &steps["next_instruction_seconds"]), (&json!("exit"), &json!(0)));
    host.register(&mut lab, &pool);
    assert_eq!(lab.ok(200, Method::Get, &path, None)["status"], "discovering");
    lab.ok(200, Method::Post, &format!("{path}/actions/unbind"), None);
    host.register(&mut lab, &pool);
    let shown = lab.ok(200, Method::Get, &path, None);
    assert_eq!(shown["status"], "discovering-unbound");
    assert!(shown.get("cluster_id").is_none());
}

#[test]
fn every_report_that_changes_something_is_an_event() {
    let mut lab = Lab::new(3);
    let mut fleet = Fleet::create(&mut lab, 1);
    fleet.until(&mut lab, "ready");
    lab.ok(202, Method::Post, &format!("/clusters/{}/actions/install", fleet.cluster), None);
    fleet.until(&mut lab, "installing");
    fleet.until_told_to_install(&mut lab);
    let cluster = lab.cluster(&fleet.cluster);
    let host = &cluster["hosts"][0];
    let path = format!(
        "/infra-envs/{}/hosts/{}/progress",
        host["infra_env_id"].as_str().unwrap(),
        host["id"].as_str().unwrap()
    );
    for (stage, info) in [
        ("Starting installation", ""),
        ("Writing image to disk", ""),
        ("Writing image to disk", "5%"),
        ("Writing image to disk", "5%"),
        ("Writing image to disk", "10%"),
    ] {
        lab.ok(200, Method::Put, &path, Some(json!({"current_stage": stage, "progress_info": info})));
    }
    let events = lab.ok(200, Method::Get, &format!("/events?cluster_id={}", fleet.cluster), None);
    let updates = events.as_array().unwrap().iter().filter(|e| e["name"] == "host_install_progress_updated").count();
    assert_eq!(updates, 4, "the report that repeats the one before changes nothing");
}
