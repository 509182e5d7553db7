//! What a comparison with the real service, request by request, found to differ (`docs/fidelity.md`). Each row is a request
//! and the answer that the real service gave to it.

use rstest::rstest;
use serde_json::{Value, json};
use vlab_api::http::{Method, Request};

use super::lab::{BASE, Lab, PULL_SECRET};

fn with(mut object: Value, more: Value) -> Value {
    object.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    object
}

fn new_cluster(more: Value) -> Value {
    let base = json!({
        "name": "c", "openshift_version": "4.16", "base_dns_domain": "example.com", "pull_secret": PULL_SECRET
    });
    with(base, more)
}

/// Text of a refusal in either of its two shapes.
fn reason(body: &[u8]) -> String {
    let value: Value = serde_json::from_slice(body).unwrap_or_default();
    let text = |name: &str| value[name].as_str().map(str::to_owned);
    text("reason").or_else(|| text("message")).unwrap_or_default()
}

#[rstest]
#[case(json!({"platform": {"type": "external"}}), 400, "External setting must be set when using platform type external")]
#[case(json!({"pull_secret": "{\"auths\":{\"a\":{}}}"}), 201, "")]
#[case(json!({"base_dns_domain": "com"}), 201, "")]
#[case(json!({"base_dns_domain": "1.2.3.4"}), 400, "DNS format mismatch: 1.2.3.4 ")]
#[case(json!({"http_proxy": "http://p.example.com:3128", "no_proxy": "*.x,10.0.0.0/8"}), 201, "")]
#[case(json!({"api_vips": [{"ip": "192.168.126.100"}]}), 400, "1 error occurred:\n\t* configuration must include the same number of apiVIPs (got 1) and ingressVIPs (got 0)")]
#[case(json!({"user_managed_networking": true, "api_vips": [{"ip": "192.168.126.100"}], "ingress_vips": [{"ip": "192.168.126.101"}]}), 400, "API VIPs cannot be set with User Managed Networking")]
#[case(json!({"high_availability_mode": "None", "api_vips": [{"ip": "192.168.126.100"}], "ingress_vips": [{"ip": "192.168.126.101"}]}), 201, "")]
#[case(json!({"api_vips": [{"ip": "1.1.1.1"}, {"ip": "1.1.1.2"}], "ingress_vips": [{"ip": "1.1.1.4"}, {"ip": "1.1.1.5"}]}), 400, "dual-stack apiVIPs must include exactly one IPv6 address")]
#[case(json!({"machine_networks": [{"cidr": "192.168.126.0/24"}], "api_vips": [{"ip": "10.0.0.1"}], "ingress_vips": [{"ip": "10.0.0.2"}]}), 400, "1 error occurred:\n\t* api-vip <10.0.0.1> does not belong to machine-network-cidr <192.168.126.0/24>\n\n")]
#[case(json!({"vip_dhcp_allocation": true, "api_vips": [{"ip": "192.168.126.100"}], "ingress_vips": [{"ip": "192.168.126.101"}]}), 400, "Setting API VIPs is forbidden when cluster is in vip-dhcp-allocation mode")]
#[case(json!({"vip_dhcp_allocation": true, "user_managed_networking": true}), 400, "VIP DHCP Allocation cannot be set with User Managed Networking")]
#[case(json!({"service_networks": [{"cidr": "172.30.0.0/30"}]}), 201, "")]
#[case(json!({"service_networks": [{"cidr": "1.2.3"}]}), 400, "service_networks.0.cidr in body should match '^")]
#[case(json!({"network_type": "OpenShiftSDN"}), 400, "is not supported for OpenShiftSDN NetworkType")]
#[case(json!({"additional_ntp_source": "a b"}), 400, "Invalid NTP source: a b")]
#[case(json!({"tags": "a,,b"}), 400, "Invalid format for Tags: a,,b.")]
#[case(json!({"tags": "a,b c"}), 201, "")]
#[case(json!({"disk_encryption": {"enable_on": "all", "mode": "tang"}}), 400, "Setting Tang mode but tang_servers isn't set")]
#[case(json!({"olm_operators": [{"name": "nosuch"}]}), 400, "operator nosuch isn't supported")]
#[case(json!({"olm_operators": [{"name": "mtv"}, {"name": "lvm"}]}), 201, "")]
#[case(json!({"olm_operators": [{"name": "odf"}]}), 501, "the OLM operator odf")]
#[case(json!({"olm_operators": [{"name": "ocs"}]}), 501, "the OLM operator ocs")]
#[case(json!({"olm_operators": [{"name": "mce"}, {"name": "lvm"}]}), 501, "mce and lvm need together")]
#[case(json!({"operator_bundles": [{"id": "virtualization"}]}), 501, "bundles of OLM operators")]
#[case(json!({"ssh_public_key": "foo"}), 400, "SSH key: foo does not match any supported type: ssh-rsa, ssh-ed25519, ecdsa-[VARIANT]")]
#[case(json!({"control_plane_count": 1, "high_availability_mode": "Full"}), 400, "there should be exactly 3 dedicated control plane nodes")]
#[case(json!({"high_availability_mode": "None", "user_managed_networking": false}), 400, "Can't disable user-managed-networking on single node OpenShift")]
fn creating_a_cluster(#[case] more: Value, #[case] code: u16, #[case] text: &str) {
    let mut lab = Lab::new(1);
    let answer = lab.send(Method::Post, "/clusters", Some(&new_cluster(more)));
    let found = reason(&answer.body);
    assert_eq!(answer.status, code, "{found}");
    assert!(found.contains(text), "{found:?} does not tell {text:?}");
}

#[test]
fn host_bits_of_networks_are_cut_off() {
    let mut lab = Lab::new(1);
    let networks = json!({
        "cluster_networks": [{"cidr": "10.128.0.1/14", "host_prefix": 23}], "machine_networks": [{"cidr": "192.168.126.5/24"}]
    });
    let made = lab.ok(201, Method::Post, "/clusters", Some(new_cluster(networks)));
    assert_eq!(made["cluster_networks"][0]["cidr"], "10.128.0.0/14");
    assert_eq!(made["machine_networks"][0]["cidr"], "192.168.126.0/24");
    let none = lab.ok(201, Method::Post, "/clusters", Some(new_cluster(json!({"cluster_networks": []}))));
    assert_eq!(none["cluster_networks"], json!([]), "an empty list is not the default");
}

#[rstest]
#[case(false, json!({"api_vips": [{"ip": "192.168.126.100"}], "ingress_vips": [{"ip": "192.168.126.101"}]}), "Calculate machine network CIDR: No suitable matching CIDR found for VIP 192.168.126.100")]
#[case(false, json!({"api_vips": [{"ip": "192.168.126.100"}]}), "(got 1) and ingressVIPs (got 0)")]
#[case(false, json!({"control_plane_count": 1}), "there should be exactly 3 dedicated control plane nodes")]
#[case(false, json!({"platform": {"type": "external", "external": {"platform_name": "x"}}}), "Can't set external platform with user-managed-networking disabled")]
#[case(false, json!({"pull_secret": "x"}), "pull secret must be a well-formed JSON")]
#[case(true, json!({"control_plane_count": 3}), "single-node clusters must have a single control plane node")]
#[case(true, json!({"vip_dhcp_allocation": true}), "cannot use Single Node OpenShift because it's not compatible with VIP Automatic Allocation")]
#[case(false, json!({"vip_dhcp_allocation": true}), "cannot use VIP Automatic Allocation because it's not compatible with the x86_64 architecture on version")]
#[case(true, json!({"network_type": "OpenShiftSDN"}), "OpenShiftSDN network type is not allowed in single node mode")]
#[case(true, json!({"platform": {"type": "baremetal"}}), "disabling User Managed Networking or setting platform different than none or oci platforms is not allowed in single node Openshift")]
fn changing_a_cluster(#[case] single: bool, #[case] change: Value, #[case] text: &str) {
    let mut lab = Lab::new(1);
    let mode = if single { json!({"high_availability_mode": "None"}) } else { json!({}) };
    let made = lab.ok(201, Method::Post, "/clusters", Some(new_cluster(mode)));
    let path = format!("/clusters/{}", made["id"].as_str().unwrap());
    let before = lab.ok(200, Method::Get, &path, None);
    let answer = lab.send(Method::Patch, &path, Some(&change));
    let found = reason(&answer.body);
    assert_eq!(answer.status, 400, "{found}");
    assert!(found.contains(text), "{found:?} does not tell {text:?}");
    assert_eq!(lab.ok(200, Method::Get, &path, None), before, "a refused change leaves no trace");
}

#[rstest]
#[case(Some("text/plain"), None, 400, "unsupported media type \"text/plain\", only [application/json] are allowed")]
#[case(
    Some("application/json"),
    Some("text/xml"),
    400,
    "unsupported media type requested, only [application/json] are available"
)]
#[case(Some("application/json"), Some("text/html, */*;q=0.1"), 400, "name in body is required")]
fn media_types(#[case] kind: Option<&str>, #[case] accept: Option<&str>, #[case] code: u16, #[case] text: &str) {
    let mut lab = Lab::new(1);
    let mut request = Request::new(Method::Post, format!("{BASE}/clusters"));
    request.body = "{}".into();
    for (name, value) in [("content-type", kind), ("accept", accept)] {
        request.headers.extend(value.map(|v| (name.to_owned(), v.to_owned())));
    }
    let answer = lab.core.handle(lab.now, &request);
    assert_eq!((answer.status, reason(&answer.body)), (code, text.to_owned()));
}

#[test]
fn a_flag_that_is_no_flag_counts_as_false() {
    let mut lab = Lab::new(1);
    lab.ok(201, Method::Post, "/clusters", Some(new_cluster(json!({}))));
    let list = lab.ok(200, Method::Get, "/clusters?with_hosts=maybe", None);
    assert_eq!(list.as_array().unwrap().len(), 1);
}

#[rstest]
#[case("additional_ntp_sources", json!("a b"), 400, "Invalid NTP source: a b")]
#[case("additional_trust_bundle", json!("zz"), 400, "invalid block")]
#[case("ignition_config_override", json!("{\"ignition\":{\"version\":\"9.9.9\"}}"), 400, "error parsing ignition: unsupported config version, error report: ")]
#[case("kernel_arguments", json!([{"operation": "append", "value": "a b"}]), 400, "kernel_arguments.0.value in body should match '^(?:(?:[^ \\t\\n\\r\"]+)|(?:\"[^\"]*\"))+$'")]
#[case("kernel_arguments", json!([{"operation": "append", "value": ""}]), 201, "")]
#[case("kernel_arguments", json!([{"operation": "delete", "value": "a"}]), 400, "Only kernel argument operation append is supported.  Got delete")]
#[case("ssh_authorized_key", json!("zz"), 400, "SSH key is not valid")]
fn creating_an_infra_env(#[case] field: &str, #[case] value: Value, #[case] code: u16, #[case] text: &str) {
    let mut lab = Lab::new(1);
    let body = json!({"name": "i", "openshift_version": "4.16", "pull_secret": PULL_SECRET, field: value});
    let answer = lab.send(Method::Post, "/infra-envs", Some(&body));
    assert_eq!((answer.status, reason(&answer.body)), (code, text.to_owned()));
}

#[test]
fn small_refusals_of_a_cluster_without_hosts() {
    let mut lab = Lab::new(1);
    let made = lab.ok(201, Method::Post, "/clusters", Some(new_cluster(json!({}))));
    let id = made["id"].as_str().unwrap().to_owned();
    let nobody = "00000000-0000-0000-0000-000000000005";
    let cases = [
        (
            Method::Delete,
            format!("/clusters/{nobody}"),
            None,
            404,
            "Failed to get cluster 00000000-0000-0000-0000-000000000005: record not found",
        ),
        (Method::Get, format!("/clusters/{id}/logs?logs_type=host&host_id={nobody}"), None, 404, "record not found"),
        (Method::Get, format!("/clusters/{id}/logs?logs_type=controller"), None, 409, "Controller Logs for cluster"),
        (Method::Get, format!("/clusters/{id}/monitored-operators?operator_name=zz"), None, 404, "record not found"),
        (
            Method::Put,
            format!("/clusters/{id}/monitored-operators"),
            Some(json!({"name": "zz", "status": "available"})),
            404,
            "record not found",
        ),
        (
            Method::Put,
            format!("/clusters/{id}/monitored-operators"),
            Some(json!({"status": "available"})),
            400,
            "empty operator name is not allowed",
        ),
        (
            Method::Post,
            format!("/clusters/{id}/manifests"),
            Some(json!({"file_name": "a b.yaml", "content": "YTogMQo="})),
            422,
            "should not include a space in its name.",
        ),
        (
            Method::Post,
            format!("/clusters/{id}/manifests"),
            Some(json!({"file_name": "a.txt", "content": "YTogMQo="})),
            400,
            "file_name in body should match",
        ),
        (Method::Get, "/openshift-versions?version=9".to_owned(), None, 200, ""),
    ];
    for (method, path, body, code, text) in cases {
        let answer = lab.send(method, &path, body.as_ref());
        let found = reason(&answer.body);
        assert_eq!(answer.status, code, "{path}: {found}");
        assert!(found.contains(text), "{path}: {found:?} does not tell {text:?}");
    }
}

/// What the real agent sends: no exit code when it is 0, `null` for lists that are empty.
#[test]
fn replies_in_the_shape_of_the_real_agent() {
    let mut lab = Lab::new(1);
    let cluster = lab.ok(201, Method::Post, "/clusters", Some(new_cluster(json!({"high_availability_mode": "None"}))));
    let infra = json!({"name": "i", "pull_secret": PULL_SECRET, "cluster_id": cluster["id"]});
    let infra = lab.ok(201, Method::Post, "/infra-envs", Some(infra));
    let hosts = format!("/infra-envs/{}/hosts", infra["id"].as_str().unwrap());
    let id = "00000000-0000-4000-8000-000000000001";
    lab.ok(201, Method::Post, &hosts, Some(json!({"host_id": id})));
    let host = format!("{hosts}/{id}");
    let reply = |lab: &mut Lab, kind: &str, output: Value| {
        let body = json!({"output": output.to_string(), "step_id": format!("{kind}-00000001"), "step_type": kind});
        let answer = lab.send(Method::Post, &format!("{host}/instructions"), Some(&body));
        assert_eq!(answer.status, 204, "{}", String::from_utf8_lossy(&answer.body));
    };
    let inventory = json!({
        "hostname": "real-agent", "bmc_address": "0.0.0.0", "bmc_v6address": "::/0", "interfaces": null, "disks": null,
        "gpus": null, "routes": null, "tpm_version": "none",
        "boot": {"current_boot_mode": "bios", "secure_boot_state": "NotSupported"},
        "cpu": {"architecture": "x86_64", "count": 2, "flags": ["fpu"]},
        "memory": {"physical_bytes": 25769803776_i64, "usable_bytes": 25276510208_i64, "physical_bytes_method": "ghw"},
        "system_vendor": {"manufacturer": "unknown", "product_name": "unknown", "serial_number": "unknown", "virtual": true}
    });
    reply(&mut lab, "inventory", inventory);
    reply(
        &mut lab,
        "ntp-synchronizer",
        json!({"ntp_sources": [{"source_name": "localhost", "source_state": "synced"}]}),
    );
    let names = json!({"resolutions": [{"cnames": null, "domain_name": "quay.io", "ipv4_addresses": [], "ipv6_addresses": []}]});
    reply(&mut lab, "domain-resolution", names.clone());
    lab.advance(std::time::Duration::from_secs(60));
    let shown = lab.ok(200, Method::Get, &host, None);
    assert_eq!(shown["status"], "insufficient");
    assert_eq!(shown["requested_hostname"], "real-agent");
    let stored: Value = serde_json::from_str(shown["domain_name_resolutions"].as_str().unwrap()).unwrap();
    assert_eq!(stored, names);
    let validations: Value = serde_json::from_str(shown["validations_info"].as_str().unwrap()).unwrap();
    let of = |id: &str| {
        let all = validations.as_object().unwrap().values().flat_map(|v| v.as_array().unwrap());
        let found = all.filter(|v| v["id"] == id).map(|v| (v["status"].clone(), v["message"].clone())).next();
        found.unwrap_or_else(|| panic!("no validation {id}"))
    };
    assert_eq!(of("has-min-valid-disks"), (json!("error"), json!("Failed to detected disks")));
    assert_eq!(of("sufficient-installation-disk-speed"), (json!("error"), json!("Validation error")));
    assert_eq!(of("numa-resources-requirements-satisfied").1, "numaresources is disabled");
    assert_eq!(of("ntp-synced").0, "success");
}

#[test]
fn overrides_of_the_install_config() {
    let mut lab = Lab::new(1);
    let made = lab.ok(201, Method::Post, "/clusters", Some(new_cluster(json!({}))));
    let path = format!("/clusters/{}", made["id"].as_str().unwrap());
    let patch = format!("{path}/install-config");
    for (text, code, why) in [
        ("{\"fips\":true}", 201, ""),
        ("{\"foo\":1}", 400, "json: unknown field \"foo\""),
        ("{", 400, "unexpected EOF"),
        ("", 201, ""),
    ] {
        let answer = lab.send(Method::Patch, &patch, Some(&json!(text)));
        assert_eq!((answer.status, reason(&answer.body)), (code, why.to_owned()), "{text}");
    }
    assert_eq!(lab.ok(200, Method::Get, &path, None).get("install_config_overrides"), None);
}

/// A single node registers in a cluster without a machine network: `machine-cidr-defined` was pending, fails, and is fixed
/// when the network is found. The real service tells of both, and names no reason.
#[test]
fn a_validation_that_was_pending_and_fails_is_told() {
    let mut lab = Lab::new(1);
    let body = with(new_cluster(json!({})), json!({"high_availability_mode": "None"}));
    let cluster = lab.ok(201, Method::Post, "/clusters", Some(body))["id"].as_str().unwrap().to_owned();
    // The monitor looks at the empty cluster first.
    lab.advance(std::time::Duration::from_secs(30));
    let body = json!({"name": "i", "pull_secret": PULL_SECRET, "cluster_id": cluster});
    let infra_env = lab.ok(201, Method::Post, "/infra-envs", Some(body))["id"].as_str().unwrap().to_owned();
    let host = super::lab::FakeHost::new(0);
    host.register(&mut lab, &infra_env);
    let mut fleet = super::lab::Fleet { cluster, infra_env, hosts: vec![host] };
    fleet.until(&mut lab, "ready");
    let events = lab.ok(200, Method::Get, &format!("/events?cluster_id={}", fleet.cluster), None);
    let told: Vec<(&str, &str)> = events
        .as_array()
        .unwrap()
        .iter()
        .filter(|e| e["name"].as_str().unwrap().starts_with("cluster_validation"))
        .map(|e| (e["severity"].as_str().unwrap(), e["message"].as_str().unwrap()))
        .filter(|(_, text)| text.contains("machine-cidr-defined"))
        .collect();
    assert_eq!(
        told,
        [
            ("warning", "Cluster validation 'machine-cidr-defined' failed"),
            ("info", "Cluster validation 'machine-cidr-defined' is now fixed")
        ]
    );
}

/// Where VIPs are leased by DHCP, the machine network is the one that all hosts are in; where they are in several, the user
/// has to name it. Who changes his mind about leases loses what there was.
#[rstest]
#[case::one_network(false)]
#[case::two_networks(true)]
fn vips_that_are_leased(#[case] two: bool) {
    let mut lab = Lab::with_release("4.14");
    let body = with(new_cluster(json!({})), json!({"openshift_version": "4.14", "vip_dhcp_allocation": true}));
    let cluster = lab.ok(201, Method::Post, "/clusters", Some(body))["id"].as_str().unwrap().to_owned();
    let body = json!({"name": "i", "pull_secret": PULL_SECRET, "cluster_id": cluster, "openshift_version": "4.14"});
    let infra_env = lab.ok(201, Method::Post, "/infra-envs", Some(body))["id"].as_str().unwrap().to_owned();
    let host = super::lab::FakeHost::new(0);
    host.register(&mut lab, &infra_env);
    let mut inventory = super::lab::inventory(0);
    if two {
        let second = json!({"name": "eth1", "type": "physical", "mac_address": "52:54:00:00:01:00",
            "ipv4_addresses": ["192.168.127.10/24"], "ipv6_addresses": [], "mtu": 1500, "has_carrier": true});
        inventory["interfaces"].as_array_mut().unwrap().push(second);
    }
    let reply = |kind: &str, output: Value| json!({"step_type": kind, "step_id": format!("{kind}-0"), "exit_code": 0, "output": output.to_string(), "error": ""});
    let answers = host.path(&infra_env, "instructions");
    lab.ok(204, Method::Post, &answers, Some(reply("inventory", inventory)));
    lab.advance(std::time::Duration::from_secs(30));
    let path = format!("/clusters/{cluster}");
    let networks = |shown: &Value| shown["machine_networks"].as_array().map_or(0, Vec::len);
    assert_eq!(networks(&lab.cluster(&cluster)), usize::from(!two));
    if two {
        let named = json!({"machine_networks": [{"cidr": "192.168.127.0/24"}]});
        let shown = lab.ok(201, Method::Patch, &path, Some(named));
        assert_eq!(networks(&shown), 1);
    }
    let net = if two { 127 } else { 126 };
    let lease = json!({"api_vip_address": format!("192.168.{net}.50"), "ingress_vip_address": format!("192.168.{net}.51"),
        "api_vip_lease": "a", "ingress_vip_lease": "b"});
    lab.ok(204, Method::Post, &answers, Some(reply("dhcp-lease-allocate", lease)));
    let shown = lab.cluster(&cluster);
    assert_eq!(shown["api_vips"][0]["ip"], json!(format!("192.168.{net}.50")));
    let shown = lab.ok(201, Method::Patch, &path, Some(json!({"vip_dhcp_allocation": false})));
    let count = |member: &str| shown[member].as_array().map_or(0, Vec::len);
    assert_eq!((count("api_vips"), count("ingress_vips"), count("machine_networks")), (0, 0, 0));
}

/// A host that registers again is no new host: there is no event of its own for it. A single node is the bootstrap from its
/// first registration on, but not after it has registered again: then `install` chooses it, and tells.
#[test]
fn registering_again() {
    let mut lab = Lab::new(1);
    let mut fleet = super::lab::Fleet::create(&mut lab, 1);
    fleet.until(&mut lab, "ready");
    let shown = |lab: &mut Lab, fleet: &super::lab::Fleet| lab.cluster(&fleet.cluster)["hosts"][0].clone();
    let count = |lab: &mut Lab, fleet: &super::lab::Fleet, name: &str| {
        let events = lab.ok(200, Method::Get, &format!("/events?cluster_id={}", fleet.cluster), None);
        events.as_array().unwrap().iter().filter(|e| e["name"] == name).count()
    };
    assert_eq!(shown(&mut lab, &fleet)["bootstrap"], true);
    let infra_env = fleet.infra_env.clone();
    fleet.hosts[0].register(&mut lab, &infra_env);
    let host = shown(&mut lab, &fleet);
    assert_eq!((&host["status"], &host["bootstrap"]), (&json!("discovering"), &Value::Null));
    assert_eq!(count(&mut lab, &fleet, "host_registration_succeeded"), 1);
    assert_eq!(count(&mut lab, &fleet, "host_bootstrap_set"), 0);
    lab.advance(std::time::Duration::from_secs(30));
    fleet.until(&mut lab, "ready");
    lab.ok(202, Method::Post, &format!("/clusters/{}/actions/install", fleet.cluster), None);
    assert_eq!(shown(&mut lab, &fleet)["bootstrap"], true);
    assert_eq!(count(&mut lab, &fleet, "host_bootstrap_set"), 1);
}

/// After a reset a host shows what it reached until it registers again.
#[test]
fn a_reset_leaves_the_progress_until_the_host_registers_again() {
    let mut lab = Lab::new(1);
    let mut fleet = super::lab::Fleet::create(&mut lab, 1);
    fleet.until(&mut lab, "ready");
    let cluster = format!("/clusters/{}", fleet.cluster);
    lab.ok(202, Method::Post, &format!("{cluster}/actions/install"), None);
    fleet.until(&mut lab, "installing");
    fleet.until_told_to_install(&mut lab);
    let infra_env = fleet.infra_env.clone();
    fleet.hosts[0].report(&mut lab, &infra_env, "Starting installation");
    lab.ok(202, Method::Post, &format!("{cluster}/actions/cancel"), None);
    lab.ok(202, Method::Post, &format!("{cluster}/actions/reset"), None);
    let host = lab.cluster(&fleet.cluster)["hosts"][0].clone();
    assert_eq!(host["status"], "resetting-pending-user-action");
    assert_eq!(host["progress"]["current_stage"], "Starting installation");
    assert_eq!(host["bootstrap"], true);
    fleet.hosts[0].register(&mut lab, &infra_env);
    let host = lab.cluster(&fleet.cluster)["hosts"][0].clone();
    assert_eq!((&host["status"], &host["progress"]["current_stage"]), (&json!("discovering"), &Value::Null));
}

/// That the installer failed is told like any other report, although the host's stage stays what it was.
#[test]
fn a_report_of_failure_is_an_event() {
    let mut lab = Lab::new(1);
    let mut fleet = super::lab::Fleet::create(&mut lab, 1);
    fleet.until(&mut lab, "ready");
    lab.ok(202, Method::Post, &format!("/clusters/{}/actions/install", fleet.cluster), None);
    fleet.until(&mut lab, "installing");
    fleet.until_told_to_install(&mut lab);
    let infra_env = fleet.infra_env.clone();
    fleet.hosts[0].report(&mut lab, &infra_env, "Starting installation");
    fleet.hosts[0].report(&mut lab, &infra_env, "Failed");
    let host = lab.cluster(&fleet.cluster)["hosts"][0].clone();
    assert_eq!(
        (&host["status"], &host["progress"]["current_stage"]),
        (&json!("error"), &json!("Starting installation"))
    );
    let events = lab.ok(200, Method::Get, &format!("/events?cluster_id={}", fleet.cluster), None);
    let told: Vec<&str> = events
        .as_array()
        .unwrap()
        .iter()
        .filter(|e| e["name"] == "host_install_progress_updated")
        .map(|e| e["message"].as_str().unwrap())
        .collect();
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(told[1].contains("reached installation stage Failed"), "{told:?}");
}

/// Requests to a new cluster and what the real service shows then; each was found by the conformance suite.
#[rstest]
// Of networks that are managed again no machine network is left.
#[case(json!({"user_managed_networking": true, "machine_networks": [{"cidr": "192.168.126.0/24"}]}), json!({"user_managed_networking": false}), "machine_networks", json!([]))]
// The old member has no effect.
#[case(json!({"high_availability_mode": "None"}), json!({"machine_network_cidr": "10.11.12.0/24"}), "machine_networks", json!([]))]
// Naming the number of nodes leaves the platform.
#[case(json!({"high_availability_mode": "None", "platform": {"type": "external", "external": {"platform_name": "lab"}}}), json!({"control_plane_count": 1}), "platform.type", json!("external"))]
fn changing_a_cluster_shows(#[case] made: Value, #[case] change: Value, #[case] member: &str, #[case] shown: Value) {
    let mut lab = Lab::new(1);
    let made = lab.ok(201, Method::Post, "/clusters", Some(new_cluster(made)));
    let path = format!("/clusters/{}", made["id"].as_str().unwrap());
    let found = lab.ok(201, Method::Patch, &path, Some(change));
    let found = member.split('.').fold(&found, |value, name| &value[name]);
    assert!(*found == shown || (found.is_null() && shown == json!([])), "{member}: {found}");
}

#[test]
fn an_empty_list_of_service_networks_is_not_the_default() {
    let mut lab = Lab::new(1);
    let made = lab.ok(201, Method::Post, "/clusters", Some(new_cluster(json!({"service_networks": []}))));
    assert_eq!(made["service_networks"], json!([]));
}

#[test]
fn a_registration_is_answered_with_what_the_agent_has_told() {
    let mut lab = Lab::new(1);
    let fleet = super::lab::Fleet::create(&mut lab, 1);
    let path = format!("/infra-envs/{}/hosts", fleet.infra_env);
    let first = lab.ok(201, Method::Post, &path, Some(json!({"host_id": uuid::Uuid::from_u128(7)})));
    assert_eq!(first["status"], "discovering");
    assert_eq!(first["created_at"], "0001-01-01T00:00:00Z");
    assert!(first.get("progress").is_none() && first["next_step_runner_command"].get("retry_seconds").is_none());
    let again = lab.ok(201, Method::Post, &path, Some(json!({"host_id": uuid::Uuid::from_u128(7)})));
    assert!(again["status"].is_null() && again["next_step_runner_command"]["args"][0].is_string(), "{again}");
    let shown = lab.ok(200, Method::Get, &format!("{path}/{}", uuid::Uuid::from_u128(7)), None);
    assert_eq!(shown["status"], "discovering");
    let events = lab.ok(200, Method::Get, &format!("/events?infra_env_id={}", fleet.infra_env), None);
    let told = |e: &&Value| e["name"] == "host_registration_succeeded" && e["host_id"] == shown["id"];
    assert_eq!(events.as_array().unwrap().iter().filter(told).count(), 1, "only the first time");
}

#[test]
fn an_install_config_is_json_text() {
    let mut lab = Lab::new(1);
    let made = lab.ok(201, Method::Post, "/clusters", Some(new_cluster(json!({}))));
    let path = format!("/clusters/{}/install-config", made["id"].as_str().unwrap());
    let text = lab.ok(200, Method::Get, &path, None);
    let config: Value = serde_json::from_str(text.as_str().unwrap()).unwrap();
    assert_eq!((&config["apiVersion"], &config["metadata"]["name"]), (&json!("v1"), &json!("c")));
}

#[test]
fn what_is_not_there_has_no_operators_and_no_platform_but_none() {
    let mut lab = Lab::new(1);
    let nobody = format!("/clusters/{}/monitored-operators", uuid::Uuid::from_u128(5));
    assert_eq!(lab.ok(200, Method::Get, &nobody, None), json!([]));
    let made = lab.ok(201, Method::Post, "/clusters", Some(new_cluster(json!({}))));
    let path = format!("/clusters/{}/supported-platforms", made["id"].as_str().unwrap());
    assert_eq!(lab.ok(200, Method::Get, &path, None), json!(["none"]));
}

#[test]
fn a_host_to_add_has_stages_up_to_its_reboot() {
    let mut lab = Lab::new(1);
    let import =
        json!({"name": "d", "api_vip_dnsname": "api.d.example.com", "openshift_cluster_id": uuid::Uuid::from_u128(9)});
    let made = lab.ok(201, Method::Post, "/clusters/import", Some(import));
    let body = json!({"name": "d", "pull_secret": PULL_SECRET, "cluster_id": made["id"]});
    let infra_env = lab.ok(201, Method::Post, "/infra-envs", Some(body));
    let path = format!("/infra-envs/{}/hosts", infra_env["id"].as_str().unwrap());
    let host = lab.ok(201, Method::Post, &path, Some(json!({"host_id": uuid::Uuid::from_u128(7)})));
    let stages = host["progress_stages"].as_array().unwrap();
    assert_eq!((stages.len(), &stages[4]), (5, &json!("Rebooting")));
}
