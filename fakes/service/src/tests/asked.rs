//! What the conformance suite found out when it asked the real service (`docs/fidelity.md`).

use rstest::rstest;
use serde_json::{Value, json};
use uuid::Uuid;
use vlab_api::http::Method;

use super::lab::{Fleet, Lab, PULL_SECRET};

fn names(lab: &mut Lab, query: &str) -> Vec<String> {
    let events = lab.ok(200, Method::Get, &format!("/events?{query}"), None);
    events.as_array().unwrap().iter().map(|event| event["name"].as_str().unwrap().to_owned()).collect()
}

fn import(lab: &mut Lab, api: &str) -> Value {
    let body = json!({"name": "given", "api_vip_dnsname": api, "openshift_cluster_id": Uuid::from_u128(9)});
    lab.ok(201, Method::Post, "/clusters/import", Some(body))
}

/// A single node that is told to install.
fn installing() -> (Lab, Fleet) {
    let mut lab = Lab::new(7);
    let mut fleet = Fleet::create(&mut lab, 1);
    fleet.until(&mut lab, "ready");
    lab.ok(202, Method::Post, &format!("/clusters/{}/actions/install", fleet.cluster), None);
    fleet.until(&mut lab, "installing");
    fleet.until_told_to_install(&mut lab);
    (lab, fleet)
}

#[rstest]
#[case("api.prod.example.com", "prod", json!("example.com"))]
#[case("api.prod.a.b.example.com", "prod", json!("a.b.example.com"))]
#[case("api.prod", "given", Value::Null)]
#[case("lb.prod.example.com", "given", Value::Null)]
#[case("192.0.2.7", "given", Value::Null)]
fn the_name_of_an_api_tells_name_and_domain(#[case] api: &str, #[case] name: &str, #[case] domain: Value) {
    let made = import(&mut Lab::new(1), api);
    assert_eq!((&made["name"], &made["base_dns_domain"]), (&json!(name), &domain));
    assert_eq!(made["api_vip_dns_name"], api);
}

#[test]
fn an_imported_cluster_has_its_api_and_not_its_encryption_from_the_user() {
    let mut lab = Lab::new(1);
    let imported = format!("/clusters/{}", import(&mut lab, "api.prod.example.com")["id"].as_str().unwrap());
    let body =
        json!({"name": "c", "openshift_version": "4.16", "base_dns_domain": "example.com", "pull_secret": PULL_SECRET});
    let own = lab.ok(201, Method::Post, "/clusters", Some(body));
    let own = format!("/clusters/{}", own["id"].as_str().unwrap());
    let api = json!({"api_vip_dns_name": "api.other.example.com"});
    let encrypted = json!({"disk_encryption": {"enable_on": "all", "mode": "tpmv2"}});
    for (path, body, code) in
        [(&imported, &api, 201), (&own, &api, 400), (&imported, &encrypted, 400), (&own, &encrypted, 201)]
    {
        assert_eq!(lab.send(Method::Patch, path, Some(body)).status, code, "{path} {body}");
    }
}

#[test]
fn credentials_for_fencing_need_the_setting() {
    let mut lab = Lab::new(1);
    let fleet = Fleet::create(&mut lab, 1);
    let path = format!("/infra-envs/{}/hosts/{}", fleet.infra_env, fleet.hosts[0].id);
    let body =
        json!({"fencing_credentials": {"address": "redfish+https://192.0.2.1/1", "username": "a", "password": "b"}});
    assert_eq!(lab.send(Method::Patch, &path, Some(&body)).status, 400);
    let mut config = lab.core.config().clone();
    config.settings.tnf_clusters_support = true;
    lab.core = crate::Core::new(config, lab.stored.clone());
    assert_eq!(lab.send(Method::Patch, &path, Some(&body)).status, 201);
}

#[test]
fn a_release_of_several_architectures_makes_a_cluster_of_them() {
    let mut lab = Lab::new(1);
    let mut config = lab.core.config().clone();
    let mut release = config.settings.release_images.iter().find(|r| r.openshift_version == "4.18").unwrap().clone();
    release.openshift_version.push_str("-multi");
    release.version.push_str("-multi");
    release.url = release.url.replace("x86_64", "multi");
    release.cpu_architecture = "multi".into();
    release.cpu_architectures = Some(["x86_64", "arm64", "ppc64le", "s390x"].map(String::from).into());
    config.settings.release_images.push(release);
    lab.core = crate::Core::new(config, lab.stored.clone());
    let mut ask = |version: &str, arch: &str| {
        let body = json!({"name": "c", "openshift_version": version, "cpu_architecture": arch, "pull_secret": PULL_SECRET,
            "base_dns_domain": "example.com", "user_managed_networking": true});
        let response = lab.send(Method::Post, "/clusters", Some(&body));
        (response.status, serde_json::from_slice::<Value>(&response.body).unwrap())
    };
    for (version, arch, why) in [
        ("4.18", "s390x", "no release image found for openshiftVersion: '4.18' and CPU architecture 's390x'"),
        ("4.17", "s390x", "Requested CPU architecture s390x is not available"),
        ("4", "x86_64", "invalid openshiftVersion '4'"),
    ] {
        let (status, answer) = ask(version, arch);
        assert!(status == 400 && answer["reason"].as_str().unwrap().contains(why), "{version} {arch}: {answer}");
    }
    assert_eq!(ask("4.18", "x86_64").1["cpu_architecture"], "x86_64");
    assert_eq!(ask("4.18-multi", "x86_64").1["cpu_architecture"], "multi");
    let (_, cluster) = ask("4.18-multi", "s390x");
    assert_eq!(
        (&cluster["cpu_architecture"], &cluster["openshift_version"]),
        (&json!("multi"), &json!("4.18.52-multi"))
    );
    // A mainframe of it does not boot from a minimal image.
    let body =
        json!({"name": "i", "pull_secret": PULL_SECRET, "cluster_id": cluster["id"], "cpu_architecture": "s390x"});
    let made = lab.ok(201, Method::Post, "/infra-envs", Some(body));
    let path = format!("/infra-envs/{}", made["id"].as_str().unwrap());
    let minimal = json!({"image_type": "minimal-iso"});
    let refused = lab.send(Method::Patch, &path, Some(&minimal));
    assert!(refused.status == 400 && String::from_utf8_lossy(&refused.body).contains("cannot use Minimal ISO"));
    // And its networks are the user's.
    let cluster = format!("/clusters/{}", cluster["id"].as_str().unwrap());
    let refused = lab.send(Method::Patch, &cluster, Some(&json!({"user_managed_networking": false})));
    assert!(refused.status == 400 && String::from_utf8_lossy(&refused.body).contains("cannot use Cluster Managed"));
    lab.ok(201, Method::Patch, &cluster, Some(json!({"tags": "a"})));
    let levels = lab.ok(200, Method::Get, "/support-levels/architectures?openshift_version=4.18", None);
    assert_eq!(levels["architectures"]["MULTIARCH_RELEASE_IMAGE"], "tech-preview");
}

#[rstest]
#[case(json!([]), false, 400)]
#[case(json!([{"cidr": "192.168.126.0/24"}, {"cidr": "fd2e::/64"}]), false, 201)]
#[case(json!([{"cidr": "192.168.126.0/24"}]), true, 400)]
fn networks_of_both_families_need_machine_networks(
    #[case] machine: Value,
    #[case] user_balancer: bool,
    #[case] status: u16,
) {
    let balancer = if user_balancer { "user-managed" } else { "cluster-managed" };
    let body = json!({"name": "c", "openshift_version": "4.16", "base_dns_domain": "example.com", "pull_secret": PULL_SECRET,
        "load_balancer": {"type": balancer}, "machine_networks": machine,
        "service_networks": [{"cidr": "172.30.0.0/16"}, {"cidr": "fd02::/112"}]});
    let answer = Lab::new(1).send(Method::Post, "/clusters", Some(&body));
    assert_eq!(answer.status, status, "{}", String::from_utf8_lossy(&answer.body));
}

#[test]
fn an_override_of_a_discovery_ignition_is_not_in_the_list_of_the_cluster() {
    let mut lab = Lab::new(1);
    let fleet = Fleet::create(&mut lab, 1);
    let body = json!({"config": "{\"ignition\":{\"version\":\"3.1.0\"}}"});
    lab.ok(201, Method::Patch, &fleet.hosts[0].path(&fleet.infra_env, "ignition"), Some(body));
    let name = "host_discovery_ignition_config_applied".to_owned();
    assert!(names(&mut lab, &format!("infra_env_id={}", fleet.infra_env)).contains(&name));
    assert!(!names(&mut lab, &format!("cluster_id={}", fleet.cluster)).contains(&name));
}

#[test]
fn events_of_an_infra_env_that_is_gone_are_only_among_all_events() {
    let mut lab = Lab::new(1);
    let made = lab.ok(201, Method::Post, "/infra-envs", Some(json!({"name": "i", "pull_secret": PULL_SECRET})));
    let id = made["id"].as_str().unwrap();
    assert!(!names(&mut lab, &format!("infra_env_id={id}")).is_empty());
    lab.ok(204, Method::Delete, &format!("/infra-envs/{id}"), None);
    assert_eq!(names(&mut lab, &format!("infra_env_id={id}")), Vec::<String>::new());
    assert!(names(&mut lab, "limit=100").contains(&"infra_env_deregistered".to_owned()));
}

#[test]
fn resetting_a_validation_is_answered_with_nothing() {
    let mut lab = Lab::new(1);
    let mut fleet = Fleet::create(&mut lab, 1);
    fleet.until(&mut lab, "ready");
    let path = fleet.hosts[0].path(&fleet.infra_env, "actions/reset-validation/container-images-available");
    let answer = lab.send(Method::Patch, &path, None);
    assert_eq!((answer.status, answer.body.len()), (200, 0));
}

/// The hosts of this lab found one free address.
#[test]
fn a_virtual_address_that_is_not_free_is_refused() {
    let mut lab = Lab::new(1);
    let mut fleet = Fleet::create(&mut lab, 3);
    fleet.until(&mut lab, "ready");
    let path = format!("/clusters/{}", fleet.cluster);
    let vips = |api: &str, ingress: &str| json!({"api_vips": [{"ip": api}], "ingress_vips": [{"ip": ingress}]});
    let refused = lab.send(Method::Patch, &path, Some(&vips("192.168.126.99", "192.168.126.100")));
    let text = String::from_utf8_lossy(&refused.body).into_owned();
    assert_eq!(refused.status, 400, "{text}");
    assert!(text.contains("api-vip <192.168.126.99> is already in use in cidr 192.168.126.0/24"), "{text}");
    let refused = lab.send(Method::Patch, &path, Some(&vips("192.168.126.100", "192.168.126.99")));
    assert!(String::from_utf8_lossy(&refused.body).contains("ingress-vip <192.168.126.99> is already in use"));
}

#[test]
fn that_a_host_must_be_booted_after_a_reset_is_no_event() {
    let (mut lab, fleet) = installing();
    for stage in ["Starting installation", "Installing", "Writing image to disk", "Rebooting"] {
        fleet.hosts[0].report(&mut lab, &fleet.infra_env, stage);
    }
    for action in ["cancel", "reset"] {
        lab.ok(202, Method::Post, &format!("/clusters/{}/actions/{action}", fleet.cluster), None);
    }
    assert_eq!(lab.cluster(&fleet.cluster)["hosts"][0]["status"], "resetting-pending-user-action");
    let told = names(&mut lab, &format!("cluster_id={}", fleet.cluster));
    assert!(told.contains(&"host_installation_reset".to_owned()));
    assert!(!told.contains(&"user_required_complete_installation_reset".to_owned()));
}

/// Of three masters of a cancelled cluster one is the bootstrap: it is told where the two others are.
#[test]
fn the_bootstrap_collects_from_the_other_masters() {
    let mut lab = Lab::new(7);
    let mut fleet = Fleet::create(&mut lab, 3);
    fleet.until(&mut lab, "ready");
    lab.ok(202, Method::Post, &format!("/clusters/{}/actions/install", fleet.cluster), None);
    fleet.until(&mut lab, "installing");
    fleet.until_told_to_install(&mut lab);
    lab.ok(202, Method::Post, &format!("/clusters/{}/actions/cancel", fleet.cluster), None);
    let mut told = Vec::new();
    for host in &fleet.hosts {
        let steps = lab.ok(200, Method::Get, &host.path(&fleet.infra_env, "instructions"), None);
        let steps = steps["instructions"].as_array().unwrap();
        let logs = steps.iter().find(|step| step["step_type"] == "logs-gather").unwrap();
        let args: Value = serde_json::from_str(logs["args"][0].as_str().unwrap()).unwrap();
        let others = args["master_ips"].as_array().map_or(0, Vec::len);
        told.push((args["bootstrap"].as_bool().unwrap(), others));
    }
    told.sort_unstable();
    assert_eq!(told, [(false, 0), (false, 0), (true, 2)]);
}

/// Names of the features that a cluster uses, and what is said about one of them.
fn used(lab: &mut Lab, cluster: &str, feature: &str) -> (Vec<String>, Value) {
    let shown = lab.ok(200, Method::Get, cluster, None);
    let all: Value = serde_json::from_str(shown["feature_usage"].as_str().unwrap()).unwrap();
    (all.as_object().unwrap().keys().cloned().collect(), all[feature].clone())
}

#[test]
fn a_cluster_tells_which_features_it_uses() {
    let mut lab = Lab::new(1);
    let body = json!({"name": "c", "openshift_version": "4.16", "base_dns_domain": "example.com", "pull_secret": PULL_SECRET,
        "http_proxy": "http://p.example.com:1", "tags": "a", "schedulable_masters": true,
        "disk_encryption": {"enable_on": "all", "mode": "tpmv2"}, "platform": {"type": "nutanix"}});
    let cluster = lab.ok(201, Method::Post, "/clusters", Some(body));
    let path = format!("/clusters/{}", cluster["id"].as_str().unwrap());
    let (names, platform) = used(&mut lab, &path, "Platform selection");
    let all = "Cluster Tags, Disk encryption, Hyperthreading, Nutanix integration, OVN network type, Platform selection, Proxy";
    assert_eq!(names.join(", "), all);
    let expected =
        json!({"id": "PLATFORM_SELECTION", "name": "Platform selection", "data": {"platform_type": "nutanix"}});
    assert_eq!(platform, expected);
    // Whatever a change does not name stays, but for the proxies.
    let change = json!({"schedulable_masters": true, "additional_ntp_source": "a.example.com,b.example.com"});
    lab.ok(201, Method::Patch, &path, Some(change));
    let (names, sources) = used(&mut lab, &path, "Additional NTP Source");
    assert!(names.contains(&"Schedulable masters".to_owned()) && !names.contains(&"Proxy".to_owned()), "{names:?}");
    assert_eq!(sources["data"], json!({"source_count": 2}));
    for (text, fips) in [(r#"{"fips": true, "networking": {"mtu": 1}}"#, true), (r#"{"fips": false}"#, false)] {
        lab.ok(201, Method::Patch, &format!("{path}/install-config"), Some(json!(text)));
        let (names, overrides) = used(&mut lab, &path, "Install Config Overrides");
        assert_eq!(names.contains(&"FIPS".to_owned()), fips);
        assert_eq!(overrides["data"], json!({"fips": true, "networking mtu": true}));
    }
}

#[test]
fn what_an_infra_env_has_are_features_of_its_cluster() {
    let mut lab = Lab::new(1);
    let mut fleet = Fleet::create(&mut lab, 1);
    fleet.until(&mut lab, "ready");
    let (cluster, infra_env) = (format!("/clusters/{}", fleet.cluster), format!("/infra-envs/{}", fleet.infra_env));
    let ignition = r#"{"ignition": {"version": "3.1.0"}}"#;
    let change =
        json!({"ignition_config_override": ignition, "kernel_arguments": [{"operation": "append", "value": "p"}]});
    lab.ok(201, Method::Patch, &infra_env, Some(change));
    let host = format!("{infra_env}/hosts/{}/ignition", fleet.hosts[0].id);
    for (config, on_host) in [(ignition, true), ("", false)] {
        lab.ok(201, Method::Patch, &host, Some(json!({"config": config})));
        let (names, ignition) = used(&mut lab, &cluster, "Ignition Config Override");
        assert!(names.contains(&"discovery kernel arguments".to_owned()), "{names:?}");
        assert_eq!(ignition["data"], json!({"infra-env": true, "host": on_host}));
    }
    lab.ok(201, Method::Patch, &infra_env, Some(json!({"kernel_arguments": []})));
    assert!(!used(&mut lab, &cluster, "SNO").0.contains(&"discovery kernel arguments".to_owned()));
}

#[test]
fn of_a_host_that_was_not_reached_every_way_is_null() {
    let mut lab = Lab::new(1);
    let fleet = Fleet::create(&mut lab, 1);
    let id = Uuid::from_u128(3);
    let output = json!({"extra": "data", "remote_hosts": [{"host_id": id}]}).to_string();
    let reply =
        json!({"step_id": "connectivity-check-1", "step_type": "connectivity-check", "exit_code": 0, "output": output});
    lab.ok(204, Method::Post, &fleet.hosts[0].path(&fleet.infra_env, "instructions"), Some(reply));
    let kept = lab.cluster(&fleet.cluster)["hosts"][0]["connectivity"].as_str().unwrap().to_owned();
    let all = json!({"host_id": id, "l2_connectivity": null, "l3_connectivity": null, "mtu_report": null});
    assert_eq!(serde_json::from_str::<Value>(&kept).unwrap(), json!({"remote_hosts": [all]}));
}
