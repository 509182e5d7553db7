//! Helpers: a core with a clock, a user, hosts that answer every step well, and a controller.

use std::time::Duration;

use serde_json::{Value, json};
use uuid::Uuid;
use vlab_api::Timestamp;
use vlab_api::http::{Method, Request, Response};
use vlab_model::settings::Settings;

use crate::{Core, CoreConfig, Snapshot};

pub(super) const BASE: &str = "/api/assisted-install/v2";
pub(super) const PULL_SECRET: &str = r#"{"auths":{"quay.io":{"auth":"dXNlcjpwYXNz"}}}"#;

pub(super) fn config(seed: u64) -> CoreConfig {
    CoreConfig {
        settings: Settings::default(),
        seed,
        base_url: "http://127.0.0.1:8090".into(),
        image_service_url: String::new(),
        alteration: None,
    }
}

/// A core and its clock. Every change is applied to `stored`, as a shell would store it.
pub(super) struct Lab {
    pub(super) core: Core,
    pub(super) now: Timestamp,
    pub(super) stored: Snapshot,
    /// Restart from what is stored after every so many commits.
    pub(super) restart_every: Option<u32>,
    commits: u32,
}

impl Lab {
    pub(super) fn new(seed: u64) -> Self {
        let now: Timestamp = "2026-11-20T12:50:08.900Z".parse().unwrap();
        let mut lab = Self {
            core: Core::new(config(seed), Snapshot::default()),
            now,
            stored: Snapshot::default(),
            restart_every: None,
            commits: 0,
        };
        lab.core.wake(now);
        lab
    }

    /// A service with that setting.
    pub(super) fn with_setting(name: &str, value: &str) -> Self {
        let mut lab = Self::new(1);
        let mut config = lab.core.config().clone();
        config.settings.apply_vars([(name, value)]).unwrap();
        lab.core = Core::new(config, Snapshot::default());
        lab.core.wake(lab.now);
        lab
    }

    /// A service that knows also the last release of that version.
    pub(super) fn with_release(version: &str) -> Self {
        let mut lab = Self::new(1);
        let mut config = lab.core.config().clone();
        let mut release = config.settings.release_images[0].clone();
        release.openshift_version = version.to_owned();
        release.version = format!("{version}.50");
        config.settings.release_images.push(release);
        lab.core = Core::new(config, Snapshot::default());
        lab.core.wake(lab.now);
        lab
    }

    fn commit(&mut self) {
        let writes = self.core.take_writes();
        if writes.is_empty() {
            return;
        }
        for write in &writes {
            self.stored.apply(&through_json(write));
        }
        self.core.confirm();
        self.commits += 1;
        if self.restart_every.is_some_and(|n| self.commits.is_multiple_of(n)) {
            let mut config = self.core.config().clone();
            config.seed += 1;
            self.core = Core::new(config, self.stored.clone());
            self.core.wake(self.now);
            self.commit();
        }
    }

    pub(super) fn call(&mut self, request: &Request) -> Response {
        let response = self.core.handle(self.now, request);
        self.commit();
        response
    }

    pub(super) fn send(&mut self, method: Method, path: &str, body: Option<&Value>) -> Response {
        let mut request = Request::new(method, format!("{BASE}{path}"));
        if let Some(body) = body {
            request = request.json(body);
        }
        self.call(&request)
    }

    /// Sends a request that must be answered with that status.
    pub(super) fn ok(&mut self, status: u16, method: Method, path: &str, body: Option<Value>) -> Value {
        let response = self.send(method, path, body.as_ref());
        let text = String::from_utf8_lossy(&response.body).into_owned();
        assert_eq!(response.status, status, "{method} {path}: {text}");
        serde_json::from_slice(&response.body).unwrap_or(Value::Null)
    }

    /// Moves the clock, waking the core whenever it wants to be.
    pub(super) fn advance(&mut self, by: Duration) {
        let end = self.now + by;
        while let Some(at) = self.core.next_wake().filter(|at| *at <= end) {
            self.now = self.now.max(at);
            let before = self.core.next_wake();
            self.core.wake(self.now);
            self.commit();
            assert!(
                self.core.next_wake() != before || before.is_none(),
                "the core asks to be woken at {before:?} for ever"
            );
        }
        self.now = end;
    }

    pub(super) fn cluster(&mut self, id: &str) -> Value {
        self.ok(200, Method::Get, &format!("/clusters/{id}"), None)
    }
}

/// A write as it is after it was stored and read again.
fn through_json(write: &crate::Write) -> crate::Write {
    use crate::Write;
    fn again<T: serde::Serialize + serde::de::DeserializeOwned>(row: &T) -> T {
        serde_json::from_str(&serde_json::to_string(row).unwrap()).unwrap()
    }
    match write {
        Write::PutCluster(row) => {
            let new = again(&**row);
            assert_eq!(new, **row);
            Write::PutCluster(new.into())
        }
        Write::PutHost(row) => {
            let new = again(&**row);
            assert_eq!(new, **row);
            Write::PutHost(new.into())
        }
        Write::PutInfraEnv(row) => Write::PutInfraEnv(again(&**row).into()),
        Write::AppendEvent(row) => Write::AppendEvent(again(row)),
        other => other.clone(),
    }
}

/// What a host of this lab has.
pub(super) fn inventory(n: usize) -> Value {
    json!({
        "hostname": format!("host-{n}"),
        "cpu": {"count": 16, "architecture": "x86_64", "flags": [], "frequency": 2500.0, "model_name": "lab"},
        "memory": {"physical_bytes": 68_719_476_736_i64, "usable_bytes": 68_719_476_736_i64, "physical_bytes_method": "dmidecode"},
        "disks": [{"id": format!("/dev/disk/by-id/wwn-{n}"), "by_id": format!("/dev/disk/by-id/wwn-{n}"), "name": "sda",
            "path": "/dev/sda", "drive_type": "SSD", "size_bytes": 214_748_364_800_i64, "bootable": true}],
        "interfaces": [{"name": "eth0", "type": "physical", "mac_address": format!("52:54:00:00:00:{n:02x}"),
            "ipv4_addresses": [format!("192.168.126.{}/24", 10 + n)], "ipv6_addresses": [], "mtu": 1500, "has_carrier": true}],
        "routes": [{"destination": "0.0.0.0", "gateway": "192.168.126.1", "interface": "eth0", "family": 2, "metric": 100}],
        "system_vendor": {"manufacturer": "Lab", "product_name": "Box", "serial_number": "1"},
        "boot": {"current_boot_mode": "bios"}, "tpm_version": "none",
    })
}

/// A host that answers every step well.
pub(super) struct FakeHost {
    pub(super) id: Uuid,
    pub(super) n: usize,
    pub(super) told_to_install: bool,
    /// The argument of that step.
    pub(super) install: Value,
}

impl FakeHost {
    pub(super) fn new(n: usize) -> Self {
        Self { id: Uuid::from_u128(0x1000 + n as u128), n, told_to_install: false, install: Value::Null }
    }

    pub(super) fn register(&self, lab: &mut Lab, infra_env: &str) {
        let agent = lab.core.config().settings.agent_docker_image.clone();
        let body = json!({"host_id": self.id, "discovery_agent_version": agent});
        let answer = lab.ok(201, Method::Post, &format!("/infra-envs/{infra_env}/hosts"), Some(body));
        let args: Value =
            serde_json::from_str(answer["next_step_runner_command"]["args"][0].as_str().unwrap()).unwrap();
        assert_eq!(args["host_id"], json!(self.id));
    }

    pub(super) fn path(&self, infra_env: &str, below: &str) -> String {
        format!("/infra-envs/{infra_env}/hosts/{}/{below}", self.id)
    }

    pub(super) fn poll(&mut self, lab: &mut Lab, infra_env: &str) {
        let path = self.path(infra_env, "instructions");
        let steps = lab.ok(200, Method::Get, &format!("{path}?timestamp={}", lab.now.as_secs()), None);
        for step in steps["instructions"].as_array().unwrap().clone() {
            let kind = step["step_type"].as_str().unwrap();
            let args: Vec<&str> = step["args"].as_array().unwrap().iter().map(|a| a.as_str().unwrap()).collect();
            let arg: Value = args.first().and_then(|a| serde_json::from_str(a).ok()).unwrap_or(Value::Null);
            let output = match kind {
                "inventory" => inventory(self.n).to_string(),
                "connectivity-check" => self.reach_all(&arg).to_string(),
                "free-network-addresses" => {
                    json!([{"network": arg[0], "free_addresses": ["192.168.126.100"]}]).to_string()
                }
                "ntp-synchronizer" => {
                    json!({"ntp_sources": [{"source_name": "clock", "source_state": "synced"}]}).to_string()
                }
                "domain-resolution" => {
                    let all = arg["domains"].as_array().unwrap().iter();
                    let resolutions: Vec<Value> = all
                        .map(|d| {
                            let name = d["domain_name"].as_str().unwrap();
                            let address =
                                if name.starts_with("validateNo") { json!([]) } else { json!(["192.168.126.10"]) };
                            json!({"domain_name": name, "ipv4_addresses": address, "ipv6_addresses": []})
                        })
                        .collect();
                    json!({ "resolutions": resolutions }).to_string()
                }
                "verify-vips" => {
                    let mut vips = arg.clone();
                    for vip in vips.as_array_mut().unwrap() {
                        vip["verification"] = json!("succeeded");
                    }
                    vips.to_string()
                }
                "installation-disk-speed-check" => json!({"io_sync_duration": 2, "path": arg["path"]}).to_string(),
                "container-image-availability" => {
                    let images = arg["images"].as_array().unwrap().iter();
                    let images: Vec<Value> = images
                        .map(|i| json!({"name": i, "result": "success", "size_bytes": 1000, "time": 1, "download_rate": 100}))
                        .collect();
                    json!({ "images": images }).to_string()
                }
                "install" => {
                    self.told_to_install = true;
                    self.install = arg.clone();
                    String::new()
                }
                other => panic!("step {other} was not expected"),
            };
            let reply =
                json!({"step_type": kind, "step_id": step["step_id"], "exit_code": 0, "output": output, "error": ""});
            lab.ok(204, Method::Post, &path, Some(reply));
        }
    }

    fn reach_all(&self, hosts: &Value) -> Value {
        let own = format!("192.168.126.{}", 10 + self.n);
        let remote: Vec<Value> = hosts
            .as_array()
            .unwrap()
            .iter()
            .map(|h| {
                let nic = &h["nics"][0];
                let ip = &nic["ip_addresses"][0];
                json!({"host_id": h["host_id"],
                    "l2_connectivity": [{"outgoing_nic": "eth0", "outgoing_ip_address": own, "remote_ip_address": ip,
                        "remote_mac": nic["mac"], "successful": true}],
                    "l3_connectivity": [{"outgoing_nic": "eth0", "remote_ip_address": ip, "successful": true,
                        "average_rtt_ms": 1.0, "packet_loss_percentage": 0.0}]})
            })
            .collect();
        json!({ "remote_hosts": remote })
    }

    pub(super) fn report(&self, lab: &mut Lab, infra_env: &str, stage: &str) {
        let path = self.path(infra_env, "progress");
        lab.ok(200, Method::Put, &path, Some(json!({"current_stage": stage, "progress_info": ""})));
        lab.advance(Duration::from_secs(1));
    }
}

/// A cluster with its hosts.
pub(super) struct Fleet {
    pub(super) cluster: String,
    pub(super) infra_env: String,
    pub(super) hosts: Vec<FakeHost>,
}

impl Fleet {
    pub(super) fn create(lab: &mut Lab, hosts: usize) -> Self {
        let mut body = json!({"name": "lab", "openshift_version": "4.18", "pull_secret": PULL_SECRET, "base_dns_domain": "example.com"});
        if hosts == 1 {
            body["high_availability_mode"] = json!("None");
        } else {
            body["api_vips"] = json!([{"ip": "192.168.126.200"}]);
            body["ingress_vips"] = json!([{"ip": "192.168.126.201"}]);
        }
        let cluster = lab.ok(201, Method::Post, "/clusters", Some(body))["id"].as_str().unwrap().to_owned();
        let body = json!({"name": "lab", "pull_secret": PULL_SECRET, "cluster_id": cluster});
        let infra_env = lab.ok(201, Method::Post, "/infra-envs", Some(body))["id"].as_str().unwrap().to_owned();
        let hosts: Vec<FakeHost> = (0..hosts).map(FakeHost::new).collect();
        for host in &hosts {
            host.register(lab, &infra_env);
        }
        Self { cluster, infra_env, hosts }
    }

    /// Lets the hosts poll every few seconds until the cluster has that status.
    pub(super) fn until(&mut self, lab: &mut Lab, status: &str) -> Vec<String> {
        let mut seen: Vec<String> = Vec::new();
        for _ in 0..200 {
            let found = lab.cluster(&self.cluster)["status"].as_str().unwrap().to_owned();
            if seen.last() != Some(&found) {
                seen.push(found.clone());
            }
            if found == status {
                return seen;
            }
            for host in &mut self.hosts {
                host.poll(lab, &self.infra_env);
            }
            lab.advance(Duration::from_secs(3));
        }
        panic!("cluster never became {status}; it went {seen:?}; {:#}", lab.cluster(&self.cluster));
    }

    pub(super) fn until_told_to_install(&mut self, lab: &mut Lab) {
        for _ in 0..100 {
            if self.hosts.iter().all(|h| h.told_to_install) {
                return;
            }
            for host in &mut self.hosts {
                host.poll(lab, &self.infra_env);
            }
            lab.advance(Duration::from_secs(3));
        }
        panic!("not all hosts were told to install");
    }

    /// Plays the installer of every host and the controller.
    pub(super) fn finish(&mut self, lab: &mut Lab) {
        let shown = lab.cluster(&self.cluster);
        let sno = self.hosts.len() == 1;
        for host in &self.hosts {
            let row = shown["hosts"].as_array().unwrap().iter().find(|h| h["id"] == json!(host.id)).unwrap().clone();
            let stages: Vec<String> =
                row["progress_stages"].as_array().unwrap().iter().map(|s| s.as_str().unwrap().to_owned()).collect();
            assert_eq!(stages.iter().any(|s| s == "Waiting for bootkube"), sno || row["bootstrap"] == json!(true));
            for stage in stages.iter().filter(|s| *s != "Copying registry data to disk") {
                host.report(lab, &self.infra_env, stage);
            }
        }
        lab.advance(Duration::from_secs(30));
        assert_eq!(lab.cluster(&self.cluster)["status"], "finalizing");
        let cluster = self.cluster.clone();
        let pem = ingress_pem();
        lab.ok(201, Method::Post, &format!("/clusters/{cluster}/uploads/ingress-cert"), Some(json!(pem)));
        let report = json!({"name": "console", "status": "available", "status_info": "ok"});
        lab.ok(200, Method::Put, &format!("/clusters/{cluster}/monitored-operators"), Some(report));
        lab.advance(Duration::from_secs(30));
    }
}

/// A certificate that parses.
pub(super) fn ingress_pem() -> String {
    let key = rcgen::KeyPair::generate().unwrap();
    rcgen::CertificateParams::new(vec!["ingress".to_owned()]).unwrap().self_signed(&key).unwrap().pem()
}
