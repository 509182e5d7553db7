//! Agents in network namespaces: real packets over virtual cables and a bridge, hardware made of files, and the simulated service.
//! Needs the right to make network namespaces and `ip`; says so when it is skipped.

#![expect(clippy::unwrap_used, reason = "helpers of tests: whatever fails ends the test")]

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;
use vlab_api::ops;
use vlab_api::types::*;
use vlab_client::Client;
use vlab_client::Endpoint;
use vlab_model::settings::Settings;
use vlab_service::CoreConfig;
use vlab_service_server::store::MemoryStore;
use vlab_service_server::{Listen, ServeOptions, serve};

const AGENT_VERSION: &str = "quay.io/edge-infrastructure/assisted-installer-agent:latest";
const GATEWAY: &str = "192.168.130.1";

/// A switch (namespace `<name>-sw` with a bridge) and machines (namespaces with one cable to it). Gone when dropped.
struct Lab {
    name: String,
    guard: Child,
    folder: tempfile::TempDir,
    programs: Vec<Child>,
}

/// Removes all namespaces whose names begin so when its stdin ends, that is, when the test is over, even if it was killed. Whoever
/// ends a test with all its programs ends its process group, so it has one of its own.
fn guard(beginning: &str) -> Child {
    let script = "cat; for made in /run/netns/\"$1\"*; do [ -e \"$made\" ] && ip netns del \"${made##*/}\"; done; true";
    let mut command = Command::new("/bin/sh");
    command.args(["-c", script, "guard", beginning]).process_group(0);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

fn sh(words: &str) -> bool {
    let mut words = words.split_whitespace();
    let program = words.next().unwrap();
    let output = Command::new(program).args(words).stdin(Stdio::null()).output();
    match output {
        Ok(output) if output.status.success() => true,
        Ok(output) => {
            eprintln!("{}", String::from_utf8_lossy(&output.stderr));
            false
        }
        Err(e) => {
            eprintln!("{program}: {e}");
            false
        }
    }
}

impl Lab {
    /// `None`, with the reason printed, where namespaces cannot be made.
    fn new(name: &str) -> Option<Self> {
        let name = format!("vn{}{name}", std::process::id());
        let guard = guard(&name);
        let lab = Self { name, guard, folder: tempfile::tempdir().unwrap(), programs: vec![] };
        if !lab.namespace("sw") {
            vlab_skip::skip!("network namespaces cannot be made here (needs root and `ip`)");
            return None;
        }
        let sw = lab.ns("sw");
        assert!(sh(&format!("ip -n {sw} link add br0 type bridge")));
        assert!(sh(&format!("ip -n {sw} address add {GATEWAY}/24 dev br0")));
        assert!(sh(&format!("ip -n {sw} link set br0 up")));
        assert!(sh(&format!("ip -n {sw} link set lo up")));
        Some(lab)
    }

    fn ns(&self, of: &str) -> String {
        format!("{}{of}", self.name)
    }

    fn namespace(&self, of: &str) -> bool {
        sh(&format!("ip netns add {}", self.ns(of)))
    }

    /// A machine with that address; its hardware is the folder that comes back.
    fn machine(&self, number: u8) -> PathBuf {
        assert!(self.namespace(&number.to_string()));
        let (ns, sw) = (self.ns(&number.to_string()), self.ns("sw"));
        let mac = format!("52:54:00:00:00:{number:02x}");
        assert!(sh(&format!("ip -n {sw} link add p{number} type veth peer name eth0 address {mac} netns {ns}")));
        assert!(sh(&format!("ip -n {sw} link set p{number} master br0 up")));
        assert!(sh(&format!("ip -n {ns} link set lo up")));
        assert!(sh(&format!("ip -n {ns} address add 192.168.130.{number}/24 dev eth0")));
        assert!(sh(&format!("ip -n {ns} link set eth0 up")));
        assert!(sh(&format!("ip -n {ns} route add default via {GATEWAY}")));
        let root = self.folder.path().join(number.to_string());
        let file = |path: &str, content: &str| {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        };
        file("proc/sys/kernel/hostname", &format!("node-{number}"));
        file("proc/cpuinfo", "processor : 0\nmodel name : files\nflags : hypervisor\n");
        file("proc/meminfo", "MemTotal: 524288 kB\n");
        file("sys/class/dmi/id/board_serial", &format!("board-{number}"));
        file("sys/class/dmi/id/sys_vendor", "Files");
        file("sys/class/dmi/id/product_name", "Folder");
        file("sys/block/vda/size", "16384");
        fs::create_dir_all(root.join("dev/disk/by-path")).unwrap();
        fs::write(root.join("dev/vda"), vec![0u8; 8 << 20]).unwrap();
        symlink("../../vda", root.join("dev/disk/by-path/virtio-0")).unwrap();
        file("sys/class/net/eth0/address", &mac);
        file("sys/class/net/eth0/mtu", "1500");
        file("sys/class/net/eth0/carrier", "1");
        file("sys/class/net/eth0/flags", "0x1003");
        file("sys/class/net/eth0/ifindex", "2");
        file("sys/class/net/eth0/iflink", "9");
        file(
            "proc/net/route",
            "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\neth0\t00000000\t0182A8C0\t0003\t0\t0\t0\t00000000\neth0\t0082A8C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\n",
        );
        file("etc/resolv.conf", "");
        let overlay = json!({ "cpus": 8, "memory_mib": 16384, "disk_gb": 120, "physical_nics": ["eth0"] });
        // Waits of the agent run fast; the work is what it is.
        let timing = json!({ "next_instruction_divisor": "60", "registration_retry": "1s" });
        file("node.json", &json!({ "overlay": overlay, "timing": timing }).to_string());
        root
    }

    /// A program inside a namespace.
    fn inside(&self, of: &str, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.ns(of), program]);
        command
    }

    fn node(&self, number: u8) -> Command {
        let root = self.folder.path().join(number.to_string());
        let mut command = self.inside(&number.to_string(), env!("CARGO_BIN_EXE_vlab-node"));
        command
            .env("VLAB_NODE_CONFIG", root.join("node.json"))
            .env("VLAB_NODE_ROOT", root)
            .env("VLAB_NODE_CONSOLE", "no")
            .stdin(Stdio::null());
        command
    }

    /// Does one step on a machine: the answer, which must be a success.
    fn step(&self, number: u8, step: &str, arg: &Value) -> Value {
        let output = self.node(number).args(["step", step, &arg.to_string()]).output().unwrap();
        assert!(output.status.success(), "{step}: {}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        for program in &mut self.programs {
            let _ = program.kill();
            let _ = program.wait();
        }
        drop(self.guard.stdin.take());
        let _ = self.guard.wait();
    }
}

/// Not a test by itself: the service, run inside the namespace of the switch by the test below.
#[tokio::test]
#[ignore = "run by heavy_three_agents_become_known in a namespace"]
async fn service_inside() {
    let address: SocketAddr = std::env::var("VLAB_TEST_LISTEN").unwrap().parse().unwrap();
    let settings =
        Settings::from_vars([("HOST_MONITOR_INTERVAL", "300ms"), ("CLUSTER_MONITOR_INTERVAL", "300ms")]).unwrap();
    let core =
        CoreConfig { settings, seed: 1, base_url: String::new(), image_service_url: String::new(), alteration: None };
    let options = ServeOptions::new(Listen::Address(address), MemoryStore::default(), core);
    serve(options, CancellationToken::new()).await.unwrap();
}

/// The test's own requests go through the namespace, too: a thread of its own is moved there.
fn in_namespace<T: Send>(ns: &str, work: impl FnOnce(&tokio::runtime::Runtime) -> T + Send) -> T {
    let file = fs::File::open(format!("/run/netns/{ns}")).unwrap();
    std::thread::scope(|scope| {
        scope
            .spawn(move || {
                nix::sched::setns(&file, nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
                work(&tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap())
            })
            .join()
            .unwrap()
    })
}

fn statuses(cluster: &Cluster) -> Vec<String> {
    cluster.hosts.iter().flatten().map(|h| format!("{} {:?}: {}", h.id, h.status, h.status_info)).collect()
}

#[test]
fn heavy_three_agents_become_known() {
    let Some(mut lab) = Lab::new("k") else { return };
    let listen = format!("{GATEWAY}:8090");
    let own = std::env::current_exe().unwrap();
    let service = lab
        .inside("sw", own.to_str().unwrap())
        .args(["--exact", "service_inside", "--ignored", "--nocapture"])
        .env("VLAB_TEST_LISTEN", &listen)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    lab.programs.push(service);
    let switch = lab.ns("sw");
    in_namespace(&switch, |runtime| {
        runtime.block_on(async {
            let endpoint = Endpoint::resolve(&format!("http://{listen}")).await.unwrap();
            let client = Client::new(endpoint, Duration::from_secs(10));
            let until = Instant::now() + Duration::from_secs(60);
            while client.call(ops::list_infra_envs()).await.is_err() {
                assert!(Instant::now() < until, "the service does not come up");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            let secret = r#"{"auths":{"cloud.openshift.com":{"auth":"dXNlcjpwYXNz"}}}"#;
            let params: ClusterCreateParams = serde_json::from_value(json!({
                "name": "net", "openshift_version": "4.16", "pull_secret": secret, "base_dns_domain": "lab.test",
                "control_plane_count": 3, "api_vips": [{"ip": "192.168.130.100"}], "ingress_vips": [{"ip": "192.168.130.101"}],
            }))
            .unwrap();
            let cluster = client.call(ops::create_cluster(&params)).await.unwrap();
            let params: InfraEnvCreateParams = serde_json::from_value(json!({
                "name": "net", "pull_secret": secret, "cluster_id": cluster.id, "openshift_version": "4.16", "cpu_architecture": "x86_64",
            }))
            .unwrap();
            let infra_env = client.call(ops::create_infra_env(&params)).await.unwrap();

            for number in [10, 11, 12] {
                let root = lab.machine(number);
                let log = fs::File::create(root.join("agent.log")).unwrap();
                let agent = lab
                    .node(number)
                    .args(["agent", "--url", &format!("http://{listen}"), "--infra-env-id", &infra_env.id.to_string()])
                    .args(["--agent-version", AGENT_VERSION, "--insecure=false"])
                    .stderr(log)
                    .spawn()
                    .unwrap();
                lab.programs.push(agent);
            }
            let until = Instant::now() + Duration::from_secs(150);
            let cluster = loop {
                let now = client.call(ops::get_cluster(cluster.id)).await.unwrap();
                if now.status == ClusterStatus::Ready {
                    break now;
                }
                let log = || fs::read_to_string(lab.folder.path().join("10/agent.log")).unwrap_or_default();
                assert!(
                    Instant::now() < until,
                    "{:?} {}\n{:#?}\n{}\n{}",
                    now.status,
                    now.status_info,
                    statuses(&now),
                    now.validations_info.as_deref().unwrap_or_default(),
                    log()
                );
                tokio::time::sleep(Duration::from_millis(200)).await;
            };
            let hosts = cluster.hosts.as_deref().unwrap();
            assert_eq!(hosts.len(), 3);
            for host in hosts {
                assert_eq!(host.status, HostStatus::Known, "{:?}", statuses(&cluster));
                let inventory: Value = serde_json::from_str(host.inventory.as_deref().unwrap()).unwrap();
                assert_eq!(inventory["disks"][0]["by_path"], "/dev/disk/by-path/virtio-0");
                assert_eq!(inventory["cpu"]["count"], 8, "the overlay");
                let connectivity: Value = serde_json::from_str(host.connectivity.as_deref().unwrap()).unwrap();
                let remote = connectivity["remote_hosts"].as_array().unwrap();
                assert_eq!(remote.len(), 2);
                for other in remote {
                    assert_eq!(other["l2_connectivity"][0]["successful"], true, "{connectivity}");
                    assert_eq!(other["l3_connectivity"][0]["packet_loss_percentage"], 0.0, "{connectivity}");
                    assert!(other["l3_connectivity"][0]["average_rtt_ms"].as_f64().unwrap() > 0.0, "{connectivity}");
                    assert_eq!(other["mtu_report"][0]["mtu_successful"], true, "{connectivity}");
                }
            }
            // Ids are those that real agents would have: from the board's serial number.
            let mut ids: Vec<Uuid> = hosts.iter().map(|h| h.id).collect();
            ids.sort();
            let mut expected: Vec<Uuid> = [10, 11, 12]
                .map(|n| vlab_node::inventory::id_of(format!("board-{n}").as_bytes()))
                .to_vec();
            expected.sort();
            assert_eq!(ids, expected);
            // What was declared is said.
            let log = fs::read_to_string(lab.folder.path().join("10/agent.log")).unwrap();
            let overlay = log.lines().filter_map(vlab_node::say::read).find(|(_, what, _)| *what == "hardware-overlay");
            assert!(overlay.unwrap().2.to_string().contains("cpu.count: 1 declared as 8"), "{log}");
        });
    });
}

#[test]
fn heavy_what_machines_see_of_each_other() {
    let Some(lab) = Lab::new("s") else { return };
    for number in [20, 21, 22] {
        lab.machine(number);
    }
    let host = |number: u8, ip: u8| {
        json!({ "host_id": Uuid::from_u128(u128::from(number)), "nics": [{
            "name": "eth0", "mac": format!("52:54:00:00:00:{number:02x}"), "ip_addresses": [format!("192.168.130.{ip}")] }] })
    };
    let check = |lab: &Lab, hosts: &[Value]| lab.step(20, "connectivity-check", &json!(hosts));

    let seen = check(&lab, &[host(21, 21), host(23, 23)]);
    let (there, nobody) = (&seen["remote_hosts"][0], &seen["remote_hosts"][1]);
    assert_eq!(there["l2_connectivity"][0]["remote_mac"], "52:54:00:00:00:15");
    assert_eq!(there["l3_connectivity"][0]["successful"], true);
    assert_eq!(there["mtu_report"][0]["mtu_successful"], true);
    assert_eq!(nobody["l2_connectivity"], json!([]));
    assert_eq!(nobody["l3_connectivity"][0]["successful"], false);
    assert_eq!(nobody["l3_connectivity"][0]["packet_loss_percentage"], 100.0);
    assert_eq!(nobody["mtu_report"][0]["mtu_successful"], false);

    // The wrong hardware address: somebody answers, but not whom the service means.
    let mut wrong = host(21, 21);
    wrong["nics"][0]["mac"] = json!("52:54:00:00:00:99");
    assert_eq!(check(&lab, &[wrong])["remote_hosts"][0]["l2_connectivity"][0]["successful"], false);

    // A cable that takes small packets only.
    let sw = lab.ns("sw");
    assert!(sh(&format!("ip -n {} link set eth0 mtu 1300", lab.ns("21"))));
    assert!(sh(&format!("ip -n {sw} link set p21 mtu 1300")));
    let seen = check(&lab, &[host(21, 21)]);
    assert_eq!(seen["remote_hosts"][0]["l3_connectivity"][0]["successful"], true);
    assert_eq!(seen["remote_hosts"][0]["mtu_report"][0]["mtu_successful"], false);

    // Addresses that are free, and virtual ones.
    let free = lab.step(20, "free-network-addresses", &json!(["192.168.130.16/29"]));
    assert_eq!(
        free,
        json!([{ "network": "192.168.130.16/29", "free_addresses":
        ["192.168.130.17", "192.168.130.18", "192.168.130.19"] }])
    );
    let vips = lab.step(
        20,
        "verify-vips",
        &json!([
        { "vip": "192.168.130.100", "vip_type": "api" }, { "vip": "192.168.130.22", "vip_type": "ingress" },
        { "vip": "192.168.130.20", "vip_type": "ingress" }, { "vip": "10.0.0.1", "vip_type": "api" }]),
    );
    let said: Vec<_> = vips.as_array().unwrap().iter().map(|v| v["verification"].as_str().unwrap()).collect();
    assert_eq!(said, ["succeeded", "failed", "failed", "unverified"]);

    // Two machines with one address.
    assert!(sh(&format!("ip -n {} address add 192.168.130.22/24 dev eth0", lab.ns("21"))));
    let seen = check(&lab, &[host(22, 22)]);
    let macs: Vec<_> = seen["remote_hosts"][0]["l2_connectivity"]
        .as_array()
        .unwrap()
        .iter()
        .map(|l| l["remote_mac"].clone())
        .collect();
    assert_eq!(macs, [json!("52:54:00:00:00:15"), json!("52:54:00:00:00:16")]);

    // A cable that is pulled.
    assert!(sh(&format!("ip -n {sw} link set p21 down")));
    assert!(sh(&format!("ip -n {sw} link set p22 down")));
    let seen = check(&lab, &[host(22, 22)]);
    assert_eq!(seen["remote_hosts"][0]["l2_connectivity"], json!([]));

    // A name server that does not answer gives names without addresses.
    let names = lab.step(
        20,
        "domain-resolution",
        &json!({ "domains": [{ "domain_name": "validateNoWildcardDNS.net.lab.test." }] }),
    );
    assert_eq!(names["resolutions"][0]["ipv4_addresses"], json!([]));
}

#[test]
fn heavy_ipv6_neighbours() {
    let Some(lab) = Lab::new("6") else { return };
    for number in [30, 31] {
        lab.machine(number);
        // No waiting for duplicates: the address is there at once.
        assert!(sh(&format!(
            "ip -n {} -6 address add fd00:130::{number}/64 dev eth0 nodad",
            lab.ns(&number.to_string())
        )));
    }
    let other = json!([{ "host_id": Uuid::from_u128(31), "nics": [{
        "name": "eth0", "mac": "52:54:00:00:00:1f", "ip_addresses": ["fd00:130::31"] }] }]);
    let until = Instant::now() + Duration::from_secs(60);
    let seen = loop {
        let seen = lab.step(30, "connectivity-check", &other);
        // The bridge learns and the link-local address settles within seconds.
        if seen["remote_hosts"][0]["l2_connectivity"] != json!([]) || Instant::now() > until {
            break seen;
        }
    };
    let remote = &seen["remote_hosts"][0];
    assert_eq!(remote["l2_connectivity"][0]["remote_mac"], "52:54:00:00:00:1f", "{seen}");
    assert_eq!(remote["l3_connectivity"][0]["packet_loss_percentage"], 0.0, "{seen}");
    assert_eq!(remote["mtu_report"][0]["mtu_successful"], true, "{seen}");
}
