//! Every answer against the API's own schema, against what the real agent and the recorded hosts answered, and against what
//! the host sees.

use std::collections::{BTreeMap, BTreeSet};

use rstest::rstest;
use serde_json::{Value, json};
use uuid::Uuid;
use vlab_api::Timestamp;
use vlab_api::spec::{FieldKind, FieldLimit, Wire};
use vlab_facts::recording::{Exchange, Recording};

use super::*;
use crate::network::Reachability;
use crate::plan::ClusterPlan;
use crate::profile::{self, HostAddresses};

const HOSTS: usize = 5;

fn id(i: usize) -> Uuid {
    Uuid::from_u128(0x100 + i as u128)
}

fn plan(i: usize) -> HostPlan {
    HostPlan {
        index: i as u32,
        name: format!("host-{i}"),
        host_id: id(i),
        infra_env_id: Uuid::from_u128(1),
        cluster: Some(0),
        profile: profile::builtin("standard").unwrap().unwrap(),
        addresses: HostAddresses::single(
            format!("192.168.126.{}/24", 10 + i).parse().unwrap(),
            Some("192.168.126.1".parse().unwrap()),
        ),
        boot: None,
        medium_first: false,
        registry_on_medium: false,
        start_at: Timestamp::from_secs(0),
    }
}

/// Five hosts in one network, all up.
struct StepFixture {
    plan: HostPlan,
    network: Network,
    cluster: ClusterPlan,
    api: Option<bool>,
    faults: ActiveFaults<HostFault>,
    effects: Vec<(Arc<str>, &'static str)>,
}

impl StepFixture {
    fn new() -> Self {
        let mut network = Network::new(1);
        for i in 0..HOSTS {
            network.add(&plan(i));
            network.set_up(i, true);
        }
        let vip = |n: u8| vec![IpAddr::from([192, 168, 126, n])];
        let cluster = ClusterPlan {
            cluster_id: Uuid::from_u128(2),
            name: "sno".into(),
            base_domain: "example.com".into(),
            control_plane_count: 3,
            api_vips: vip(200),
            ingress_vips: vip(201),
            dns: DnsView::for_cluster("sno", "example.com", &vip(200), &vip(201)),
        };
        Self { plan: plan(0), network, cluster, api: None, faults: ActiveFaults::default(), effects: vec![] }
    }

    fn ask(&mut self, step_type: &str, args: &[String]) -> StepAnswer {
        let row = &STEPS[find(step_type).unwrap_or_else(|| panic!("{step_type} is in no row"))];
        let api = self.api;
        let mut site = Site {
            seed: 1,
            position: 0,
            plan: &self.plan,
            dns: &self.cluster.dns,
            faults: &self.faults,
            dns_faults: &ActiveFaults::default(),
            effects: RefCell::default(),
            network: &mut self.network,
            api_answers: &|_| api,
        };
        let answer = (row.answer)(&mut site, args);
        self.effects = site.effects.into_inner();
        answer
    }

    fn inject(&mut self, fault: HostFault) {
        self.faults.add(&"it".into(), fault);
    }

    fn ask_json(&mut self, step_type: &str, argument: Value) -> (StepAnswer, Value) {
        let answer = self.ask(step_type, &[argument.to_string()]);
        let output = serde_json::from_str(&answer.output).unwrap_or(Value::Null);
        (answer, output)
    }
}

/// Everything in which a value is not of that kind.
fn against(kind: &FieldKind, value: &Value, path: &str, problems: &mut Vec<String>) {
    let fits = match (kind, value) {
        (FieldKind::Any, _) => true,
        (FieldKind::String, Value::String(_))
        | (FieldKind::Number, Value::Number(_))
        | (FieldKind::Bool, Value::Bool(_)) => true,
        (FieldKind::Integer, Value::Number(n)) => n.is_i64(),
        (FieldKind::Uuid, Value::String(s)) => s.parse::<Uuid>().is_ok(),
        (FieldKind::DateTime, Value::String(s)) => s.parse::<Timestamp>().is_ok(),
        (FieldKind::Enum(words), Value::String(s)) => words.contains(&s.as_str()),
        (FieldKind::Array(inner), Value::Array(items)) => {
            items.iter().for_each(|i| against(inner, i, &format!("{path}[]"), problems));
            true
        }
        (FieldKind::Map(inner), Value::Object(members)) => {
            members.values().for_each(|m| against(inner, m, &format!("{path}.*"), problems));
            true
        }
        (FieldKind::Object(spec), Value::Object(members)) => {
            for (name, member) in members {
                let Some(field) = spec.field(name) else {
                    problems.push(format!("{path}.{name} is not in the schema of {}", spec.name));
                    continue;
                };
                against(&field.kind, member, &format!("{path}.{name}"), problems);
                for check in field.checks {
                    if let (FieldLimit::OneOf(words), Value::String(s)) = (check, member)
                        && !words.contains(&s.as_str())
                    {
                        problems.push(format!("{path}.{name}: {s:?} is none of {words:?}"));
                    }
                }
            }
            for field in spec.fields.iter().filter(|f| f.required && !members.contains_key(f.name)) {
                problems.push(format!("{path}.{} is missing", field.name));
            }
            true
        }
        _ => false,
    };
    if !fits {
        problems.push(format!("{path}: {value} is no {kind:?}"));
    }
}

fn schema_of(step_type: &str) -> Option<FieldKind> {
    Some(match step_type {
        "inventory" => Inventory::KIND,
        "connectivity-check" => ConnectivityReport::KIND,
        "free-network-addresses" => Vec::<FreeNetworkAddresses>::KIND,
        "dhcp-lease-allocate" => DhcpAllocationResponse::KIND,
        "api-vip-connectivity-check" => ApiVipConnectivityResponse::KIND,
        "tang-connectivity-check" => TangConnectivityResponse::KIND,
        "ntp-synchronizer" => NtpSynchronizationResponse::KIND,
        "installation-disk-speed-check" => DiskSpeedCheckResponse::KIND,
        "container-image-availability" => ContainerImageAvailabilityResponse::KIND,
        "domain-resolution" => DomainResolutionResponse::KIND,
        "verify-vips" => Vec::<VerifiedVip>::KIND,
        "upgrade-agent" => UpgradeAgentResponse::KIND,
        _ => return None,
    })
}

/// A sensible argument for every step type.
fn example(step_type: &str) -> Vec<String> {
    let ids = json!({"cluster_id": id(90), "infra_env_id": id(91), "host_id": id(0)});
    let with = |more: Value| {
        let mut all = ids.clone();
        for (k, v) in more.as_object().unwrap() {
            all[k] = v.clone();
        }
        all
    };
    let one = |value: Value| vec![value.to_string()];
    match step_type {
        "inventory" => vec![id(0).to_string()],
        "connectivity-check" => one(json!([{"host_id": id(1), "nics": [
            {"name": "enp1s0", "mac": plan(1).profile.mac(1, 0).to_string(), "ip_addresses": ["192.168.126.11"]}]}])),
        "free-network-addresses" => one(json!(["192.168.126.0/24"])),
        "dhcp-lease-allocate" => one(json!({"interface": "enp1s0", "api_vip_mac": "00:1a:4a:00:00:01",
            "ingress_vip_mac": "00:1a:4a:00:00:02"})),
        "api-vip-connectivity-check" => one(json!({"url": "https://api-int.sno.example.com:22624/config/worker"})),
        "tang-connectivity-check" => {
            one(json!({"tang_servers": "[{\"url\":\"http://tang.example.org:7500\",\"thumbprint\":\"x\"}]"}))
        }
        "ntp-synchronizer" => one(json!({"ntp_source": "a.example.org, b.example.org"})),
        "installation-disk-speed-check" => vec![json!({"path": "/dev/vda"}).to_string(), "480.00".into()],
        "container-image-availability" => {
            one(json!({"images": ["quay.io/a/b:1", "quay.io:443/c/d@sha256:00"], "timeout": 960}))
        }
        "domain-resolution" => one(json!({"domains": [{"domain_name": "api.sno.example.com"}]})),
        "verify-vips" => one(
            json!([{"vip": "192.168.126.200", "vip_type": "api"}, {"vip": "192.168.126.201", "vip_type": "ingress"}]),
        ),
        "install" => {
            one(with(json!({"role": "master", "boot_device": "/dev/vda", "controller_image": "quay.io/a/c:1",
            "installer_image": "quay.io/a/i:1"})))
        }
        "logs-gather" => one(with(json!({"bootstrap": false, "installer_gather": true}))),
        "upgrade-agent" => one(json!({"agent_image": "quay.io/a/agent:2"})),
        "download-boot-artifacts" => one(json!({"kernel_url": "http://images.example.org/k", "rootfs_url":
            "http://images.example.org/r", "initrd_url": "http://images.example.org/i", "host_fs_mount_dir": "/host"})),
        "reboot-for-reclaim" => one(json!({"host_fs_mount_dir": "/host"})),
        _ => Vec::new(),
    }
}

#[test]
fn every_type_that_an_agent_runs_has_a_row() {
    let known: BTreeSet<&str> = STEPS.iter().map(|s| s.step_type).collect();
    assert_eq!(known.len(), STEPS.len(), "a type has two rows");
    let missing: Vec<_> = StepType::NAMES.iter().filter(|n| !known.contains(**n)).collect();
    assert_eq!(missing, [&"execute", &"next-step-runner"]);
    assert_eq!(unknown("dance"), StepAnswer::failed(-1, "failed to find action for step type dance"));
}

#[test]
fn every_answer_fits_the_schema() {
    for row in STEPS {
        let answer = StepFixture::new().ask(row.step_type, &example(row.step_type));
        assert_eq!((answer.exit_code, &*answer.error), (0, ""), "{}", row.step_type);
        match schema_of(row.step_type) {
            Some(kind) => {
                let output: Value = serde_json::from_str(&answer.output).unwrap();
                let mut problems = Vec::new();
                against(&kind, &output, row.step_type, &mut problems);
                assert_eq!(problems, [] as [String; 0]);
            }
            None => assert_eq!(answer.output, "", "{} has no output", row.step_type),
        }
    }
}

#[rstest]
fn an_argument_that_makes_no_sense_is_the_agents_failure(
    #[values(
        "connectivity-check",
        "free-network-addresses",
        "dhcp-lease-allocate",
        "api-vip-connectivity-check",
        "tang-connectivity-check",
        "ntp-synchronizer",
        "installation-disk-speed-check",
        "container-image-availability",
        "domain-resolution",
        "verify-vips",
        "install",
        "logs-gather",
        "upgrade-agent",
        "download-boot-artifacts",
        "reboot-for-reclaim"
    )]
    step_type: &str,
) {
    for args in [vec![], vec!["{{{".to_owned()], vec!["7".to_owned()]] {
        let answer = StepFixture::new().ask(step_type, &args);
        assert_eq!(answer.exit_code, AGENT_FAILURE, "{args:?}");
        assert!(answer.error.starts_with(step_type), "{}", answer.error);
    }
}

#[test]
fn inventory_takes_one_argument() {
    let answer = StepFixture::new().ask("inventory", &["id".into(), "--output-max-size=10".into()]);
    assert_eq!(answer.exit_code, AGENT_FAILURE);
}

#[test]
fn connectivity_sees_who_is_there() {
    let argument = json!(
        (1..4)
            .map(|i| json!({"host_id": id(i), "nics": [{"name": "enp1s0",
        "mac": plan(i).profile.mac(i as u32, 0).to_string(), "ip_addresses": [format!("192.168.126.{}", 10 + i)]}]}))
            .collect::<Vec<_>>()
    );
    let mut bench = StepFixture::new();
    bench.network.inject_link(0, 2, &"cut".into(), Reachability::Cut);
    bench.network.inject_link(3, 0, &"other direction".into(), Reachability::Cut);
    let poor = Reachability::Poor { rtt_ms: 150.0, loss_percent: 7.5, mtu: 1400 };
    bench.network.inject_link(0, 3, &"poor".into(), poor);
    let (_, out) = bench.ask_json("connectivity-check", argument.clone());
    let remote = |i: usize| out["remote_hosts"][i - 1].clone();
    assert_eq!(remote(1)["l2_connectivity"][0]["successful"], true);
    assert_eq!(remote(1)["l2_connectivity"][0]["outgoing_ip_address"], "192.168.126.10");
    assert_eq!(remote(1)["l3_connectivity"][0]["packet_loss_percentage"], 0.0);
    assert!(remote(1)["l3_connectivity"][0]["average_rtt_ms"].as_f64().unwrap() < 1.0);
    assert_eq!(remote(1)["mtu_report"][0]["mtu_successful"], true);
    assert_eq!(remote(2)["l2_connectivity"], json!([]));
    assert_eq!(remote(2)["l3_connectivity"][0]["successful"], false);
    assert_eq!(remote(3)["l3_connectivity"][0]["average_rtt_ms"], 150.0);
    assert_eq!(remote(3)["l3_connectivity"][0]["packet_loss_percentage"], 7.5);
    assert_eq!(remote(3)["mtu_report"][0]["mtu_successful"], false);
    let effects: Vec<_> = bench.effects.iter().map(|(fault, _)| &**fault).collect();
    assert_eq!(effects, ["cut", "poor"]);
    // The same question has the same answer: that is what the reply cache lives from.
    assert_eq!(bench.ask_json("connectivity-check", argument.clone()).1, out);
    bench.network.set_up(1, false);
    assert_eq!(
        bench.ask_json("connectivity-check", argument).1["remote_hosts"][0]["l3_connectivity"][0]["successful"],
        false
    );
}

#[test]
fn two_machines_with_one_address_are_both_seen() {
    let mut bench = StepFixture::new();
    let mut double = plan(7);
    double.addresses = plan(1).addresses;
    bench.network.add(&double);
    bench.network.set_up(HOSTS, true);
    let answer = bench.ask("connectivity-check", &example("connectivity-check"));
    let report: ConnectivityReport = serde_json::from_str(&answer.output).unwrap();
    let macs: BTreeSet<_> =
        report.remote_hosts.unwrap()[0].l2_connectivity.iter().flatten().map(|l| l.remote_mac.clone()).collect();
    assert_eq!(macs.len(), 2);
}

#[test]
fn free_addresses_leave_out_machines_and_the_gateway() {
    let (_, out) = StepFixture::new().ask_json("free-network-addresses", json!(["192.168.126.0/24", "10.0.0.0/22"]));
    let free = |i: usize| out[i]["free_addresses"].as_array().unwrap().len();
    assert_eq!(out[0]["network"], "192.168.126.0/24");
    assert_eq!((free(0), free(1)), (254 - HOSTS - 1, 1022));
    assert!(!out[0]["free_addresses"].as_array().unwrap().contains(&json!("192.168.126.12")));
    let (_, out) = StepFixture::new().ask_json("free-network-addresses", json!(["10.0.0.0/16"]));
    assert_eq!(out[0]["free_addresses"].as_array().unwrap().len(), 8000);
}

#[test]
fn a_lease_is_free_and_the_same_for_everybody() {
    let args = example("dhcp-lease-allocate");
    let first = StepFixture::new().ask("dhcp-lease-allocate", &args);
    let mut other = StepFixture::new();
    other.plan = plan(3);
    assert_eq!(first, other.ask("dhcp-lease-allocate", &args));
    let lease: DhcpAllocationResponse = serde_json::from_str(&first.output).unwrap();
    assert_ne!(lease.api_vip_address, lease.ingress_vip_address);
    let bench = StepFixture::new();
    assert!(!bench.network.is_taken(0, lease.api_vip_address.parse().unwrap()));
}

#[test]
fn names_resolve_as_the_zone_says_and_wildcards_do_not() {
    let names = [
        "api.sno.example.com",
        "api-int.sno.example.com",
        "console-openshift-console.apps.sno.example.com",
        "validateNoWildcardDNS.sno.example.com.",
        "validateNoWildcardDNS.sno.example.com",
        "quay.io",
    ];
    let argument = json!({"domains": names.map(|n| json!({"domain_name": n}))});
    let mut bench = StepFixture::new();
    let count = |out: &Value| -> Vec<usize> {
        (0..6).map(|i| out["resolutions"][i]["ipv4_addresses"].as_array().unwrap().len()).collect()
    };
    let (_, out) = bench.ask_json("domain-resolution", argument.clone());
    assert_eq!(count(&out), [1, 1, 1, 0, 0, 1]);
    assert_eq!(out["resolutions"][3]["domain_name"], names[3], "names come back as they were asked for");
    // A zone with a wildcard is what the check is for.
    bench.cluster.dns.records.insert("*.sno.example.com".into(), vec![[192, 168, 126, 1].into()]);
    let (_, out) = bench.ask_json("domain-resolution", argument);
    assert_eq!(count(&out), [1, 1, 1, 1, 1, 1]);
}

#[rstest]
#[case::free("192.168.126.200", "succeeded")]
#[case::a_host_has_it("192.168.126.12", "failed")]
#[case::the_gateway_has_it("192.168.126.1", "failed")]
#[case::another_network("10.1.2.3", "unverified")]
fn vips_must_be_free(#[case] vip: &str, #[case] expected: &str) {
    let (_, out) = StepFixture::new().ask_json("verify-vips", json!([{"vip": vip, "vip_type": "api"}]));
    assert_eq!(out, json!([{"vip": vip, "vip_type": "api", "verification": expected}]));
}

#[test]
fn ntp_sources_that_are_down_are_unreachable() {
    let mut bench = StepFixture::new();
    bench.cluster.dns.down.insert("a.example.org".into());
    let states = |out: &Value| -> Vec<String> {
        out["ntp_sources"].as_array().unwrap().iter().map(|s| s["source_state"].as_str().unwrap().to_owned()).collect()
    };
    let argument = json!({"ntp_source": "a.example.org,b.example.org,c.example.org"});
    assert_eq!(states(&bench.ask_json("ntp-synchronizer", argument.clone()).1), ["unreachable", "synced", "combined"]);
    assert_eq!(
        bench.ask_json("ntp-synchronizer", json!({"ntp_source": ""})).1["ntp_sources"][0]["source_name"],
        DEFAULT_NTP_SOURCE
    );
    bench.inject(HostFault::NoNtp);
    assert_eq!(states(&bench.ask_json("ntp-synchronizer", argument).1), ["unreachable"; 3]);
}

#[test]
fn images_that_cannot_be_pulled_are_named() {
    let mut bench = StepFixture::new();
    bench.inject(HostFault::NoImage("c/d".into()));
    let answer = bench.ask("container-image-availability", &example("container-image-availability"));
    assert_eq!(answer.exit_code, 2);
    let out: ContainerImageAvailabilityResponse = serde_json::from_str(&answer.output).unwrap();
    let results: Vec<_> = out.images.iter().map(|i| i.result.clone().unwrap()).collect();
    assert_eq!(results, ["success", "failure"]);
    let good = &out.images[0];
    assert!(good.download_rate.unwrap() > 0.001 && good.size_bytes.unwrap() > 0.0 && good.time.unwrap() > 0.0);
    bench.cluster.dns.down.insert("quay.io".into());
    let answer = bench.ask("container-image-availability", &example("container-image-availability"));
    assert!(!answer.output.contains("success"));
}

#[test]
fn a_disk_that_is_not_there_fails_with_an_output() {
    let (answer, out) = StepFixture::new().ask_json("installation-disk-speed-check", json!({"path": "/dev/sdz"}));
    assert_ne!(answer.exit_code, 0);
    assert_eq!(out["path"], "/dev/sdz");
    let mut bench = StepFixture::new();
    bench.inject(HostFault::FsyncMs(40));
    assert_eq!(bench.ask_json("installation-disk-speed-check", json!({"path": "/dev/vda"})).1["io_sync_duration"], 40);
}

#[test]
fn the_api_address_must_answer() {
    let ask = |bench: &mut StepFixture| {
        let answer = bench.ask("api-vip-connectivity-check", &example("api-vip-connectivity-check"));
        assert_eq!(answer.exit_code, 0, "the agent exits 0 whatever came of the download");
        serde_json::from_str::<Value>(&answer.output).unwrap()
    };
    let mut bench = StepFixture::new();
    assert_eq!(ask(&mut bench)["is_success"], true);
    bench.api = Some(false);
    let out = ask(&mut bench);
    assert_eq!(out["is_success"], false);
    assert!(out["download_error"].as_str().unwrap().contains("192.168.126.200"), "{out}");
}

#[test]
fn a_tang_server_that_is_down_fails_the_check() {
    let mut bench = StepFixture::new();
    bench.cluster.dns.down.insert("tang.example.org".into());
    let answer = bench.ask("tang-connectivity-check", &example("tang-connectivity-check"));
    assert_eq!(answer.exit_code, 1);
    assert!(answer.error.contains("tang.example.org"), "{}", answer.error);
}

#[rstest]
#[case("http://a.b:80/x", Some("a.b"))]
#[case("https://[fd00::1]:443/x", Some("fd00::1"))]
#[case("https://user:p@h/x", Some("h"))]
#[case("h/x", None)]
#[case("http:///x", None)]
fn hosts_of_urls(#[case] url: &str, #[case] expected: Option<&str>) {
    assert_eq!(url_host(url), expected);
}

// --- recorded exchanges ----------------------------------------------------------------------------------------------

/// Paths of all members in a JSON value, with the kind of what is there.
fn paths(value: &Value, at: String, into: &mut BTreeMap<String, &'static str>) {
    match value {
        Value::Object(members) => {
            members.iter().for_each(|(name, member)| paths(member, format!("{at}.{name}"), into));
        }
        Value::Array(items) => {
            into.insert(at.clone(), "list");
            items.iter().for_each(|item| paths(item, format!("{at}[]"), into));
        }
        Value::String(_) => drop(into.insert(at, "text")),
        Value::Number(_) => drop(into.insert(at, "number")),
        Value::Bool(_) => drop(into.insert(at, "bool")),
        Value::Null => {}
    }
}

/// What a recorded answer has and a simulated one may lack, with the reason.
const NOT_EVERYWHERE: &[(&str, &str)] = &[
    (".timestamp", "not in the schema; the recorded host made it up"),
    (".boot.command_line", "optional, and the recorded one is empty"),
    (".disks[].smart", "optional, and the recorded one is empty"),
    (".interfaces[].biosdevname", "optional, and the recorded one is empty"),
];

/// What was recorded, with the name of the recording.
fn recorded() -> Vec<(&'static str, Exchange)> {
    let files = ["recorded-sno.yaml", "recorded-ha-3-2.yaml", "recorded-agent.yaml"];
    let of = |name| Recording::of(&vlab_facts::table(name)).exchanges.into_iter().map(move |e| (name, e));
    files.into_iter().flat_map(of).collect()
}

/// Steps in an answer: type, id and arguments.
fn steps_in(exchange: &Exchange) -> Vec<(String, String, Vec<String>)> {
    let text = |v: &Value| {
        let text = v.as_str().unwrap();
        text.replace("{cluster}", &Uuid::from_u128(1).to_string())
            .replace("{infra-env}", &Uuid::from_u128(2).to_string())
    };
    let args = |step: &Value| step["args"].as_array().into_iter().flatten().map(text).collect();
    let steps = exchange.shows["steps"].as_array().into_iter().flatten();
    steps.map(|step| (text(&step["type"]), text(&step["id"]), args(step))).collect()
}

#[test]
fn answers_have_the_shape_of_the_recorded_ones() {
    let mut asked: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut compared: BTreeSet<String> = BTreeSet::new();
    for (file, exchange) in &recorded() {
        for (_, id, args) in steps_in(exchange) {
            asked.insert(id, args);
        }
        let reply = &exchange.body;
        let (Some(step_type), Some(step_id)) = (reply["step_type"].as_str(), reply["step_id"].as_str()) else {
            continue;
        };
        // Long answers are cut in the recording.
        let Some(recorded) = reply["output"].as_str().and_then(|o| serde_json::from_str::<Value>(o).ok()) else {
            continue;
        };
        let Some(args) = asked.get(step_id) else { continue };
        let mut bench = StepFixture::new();
        // A machine with SCSI disks, as the recorded ones: virtual disks lack some of their names.
        if step_type == "inventory" {
            bench.plan.profile = profile::builtin("dell-poweredge-r650").unwrap().unwrap();
        }
        let ours = bench.ask(step_type, args);
        let ours: Value =
            serde_json::from_str(&ours.output).unwrap_or_else(|e| panic!("{file}: {step_type}: {e}: {ours:?}"));
        let (mut want, mut have) = (BTreeMap::new(), BTreeMap::new());
        paths(&recorded, String::new(), &mut want);
        paths(&ours, String::new(), &mut have);
        for (path, kind) in &want {
            if NOT_EVERYWHERE.iter().any(|(p, _)| p == path) {
                continue;
            }
            // An element of a list that is empty here says nothing.
            if let Some((list, _)) = path.rsplit_once("[]")
                && !have.keys().any(|h| h.starts_with(&format!("{list}[]")))
                && have.contains_key(list)
            {
                continue;
            }
            assert_eq!(have.get(path), Some(kind), "{file}: {step_type}: {path}");
        }
        compared.insert(step_type.to_owned());
    }
    let expected = [
        "connectivity-check",
        "container-image-availability",
        "domain-resolution",
        "installation-disk-speed-check",
        "inventory",
        "ntp-synchronizer",
        "verify-vips",
    ];
    let missing: Vec<_> = expected.iter().filter(|e| !compared.contains(**e)).collect();
    assert!(missing.is_empty(), "no recorded exchange was compared for {missing:?}");
}

#[test]
fn every_recorded_instruction_has_a_row_and_its_arguments_are_understood() {
    let mut seen = BTreeSet::new();
    for (file, exchange) in &recorded() {
        for (step_type, _, args) in steps_in(exchange) {
            let answer = StepFixture::new().ask(&step_type, &args);
            // The recorded hosts' disks are not ours; everything else must be understood.
            let other_disk = answer.error.contains("there is no disk");
            assert!(answer.exit_code == 0 || other_disk, "{file}: {step_type}: {answer:?}");
            seen.insert(step_type);
        }
    }
    assert!(seen.len() >= 9, "{seen:?}");
}
