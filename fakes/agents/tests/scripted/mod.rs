//! A service for tests: answers by a short script, remembers everything, and can be told to misbehave.
#![expect(dead_code, reason = "each test file uses its own part")]
#![expect(unreachable_pub, reason = "the module is part of each test crate")]
#![expect(clippy::unwrap_used, reason = "tests end where something is missing")]

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use serde_json::{Value, json};
use uuid::Uuid;
use vlab_agents::*;
use vlab_api::Timestamp;
use vlab_api::actor::{Actor, Reply, Send};
use vlab_api::http::{Method, Request, Response, TransportError};
use vlab_model::history::What;
use vlab_model::settings::HostTiming;

pub type HttpResult = Result<Response, TransportError>;
pub type Misbehaviour = Box<dyn FnMut(Timestamp, &Request) -> Option<HttpResult>>;

/// One request as it went out.
#[derive(Clone, Debug, PartialEq)]
pub struct Sent {
    pub at: Timestamp,
    pub connection: u32,
    pub request: Request,
    pub status: u16,
}

impl Sent {
    pub fn is_poll(&self) -> bool {
        self.request.method == Method::Get && self.request.split_path().0.ends_with("/instructions")
    }

    pub fn is_registration(&self) -> bool {
        self.request.method == Method::Post && self.request.path.ends_with("/hosts")
    }

    pub fn answer(&self) -> Option<Value> {
        let is = self.request.method == Method::Post && self.request.path.ends_with("/instructions");
        is.then(|| serde_json::from_slice(&self.request.body).unwrap())
    }

    pub fn progress(&self) -> Option<(String, String)> {
        if self.request.method != Method::Put || !self.request.path.ends_with("/progress") {
            return None;
        }
        let body: Value = serde_json::from_slice(&self.request.body).unwrap();
        Some((body.get("current_stage")?.as_str()?.to_owned(), body["progress_info"].as_str()?.to_owned()))
    }
}

pub struct HostRow {
    pub id: Uuid,
    pub role: &'static str,
    pub bootstrap: bool,
    pub stages: Vec<String>,
    pub has_inventory: bool,
}

/// The script.
pub struct Service {
    pub cluster: Uuid,
    pub infra_env: Uuid,
    pub hosts: Vec<HostRow>,
    /// Steps that every host is given at every poll besides the inventory: type and arguments.
    pub steps: Vec<(String, Vec<String>)>,
    pub poll_seconds: i64,
    /// Hosts are told to install once all have sent an inventory.
    pub install: bool,
    /// Asked first; `Some` is the answer.
    pub misbehave: Misbehaviour,
    pub log: Vec<Sent>,
    pub cluster_status: &'static str,
    pub console: &'static str,
    pub ingress: Option<String>,
    pub completed: Option<Value>,
    pub olm: bool,
    pub olm_status: String,
    serial: u32,
}

/// Legal stages of the roles.
pub fn legal(role: &str, bootstrap: bool, single: bool) -> &'static [&'static str] {
    match (role, bootstrap, single) {
        (_, true, true) => &[
            "Starting installation",
            "Installing",
            "Waiting for bootkube",
            "Writing image to disk",
            "Copying registry data to disk",
            "Rebooting",
            "Joined",
            "Done",
        ],
        (_, true, false) => &[
            "Starting installation",
            "Installing",
            "Writing image to disk",
            "Copying registry data to disk",
            "Waiting for control plane",
            "Waiting for bootkube",
            "Waiting for controller",
            "Rebooting",
            "Configuring",
            "Joined",
            "Done",
        ],
        ("master", ..) => &[
            "Starting installation",
            "Installing",
            "Writing image to disk",
            "Copying registry data to disk",
            "Rebooting",
            "Configuring",
            "Joined",
            "Done",
        ],
        _ => &[
            "Starting installation",
            "Installing",
            "Writing image to disk",
            "Waiting for control plane",
            "Rebooting",
            "Waiting for ignition",
            "Configuring",
            "Joined",
            "Done",
        ],
    }
}

impl Service {
    pub fn new(masters: usize, workers: usize) -> Self {
        let row = |i: usize| HostRow {
            id: host_id(i),
            role: if i < masters { "master" } else { "worker" },
            bootstrap: i == 0,
            stages: Vec::new(),
            has_inventory: false,
        };
        Self {
            cluster: Uuid::from_u128(0xc1),
            infra_env: Uuid::from_u128(0xe1),
            hosts: (0..masters + workers).map(row).collect(),
            steps: Vec::new(),
            poll_seconds: 60,
            install: false,
            misbehave: Box::new(|_, _| None),
            log: Vec::new(),
            cluster_status: "ready",
            console: "progressing",
            ingress: None,
            completed: None,
            olm: false,
            olm_status: "progressing".into(),
            serial: 0,
        }
    }

    fn masters(&self) -> usize {
        self.hosts.iter().filter(|h| h.role == "master").count()
    }

    pub fn handle(&mut self, now: Timestamp, send: &Send) -> HttpResult {
        let request = &send.request;
        let outcome = match (self.misbehave)(now, request) {
            Some(outcome) => outcome,
            None => Ok(self.answer(request)),
        };
        let status = outcome.as_ref().map_or(0, |r| r.status);
        self.log.push(Sent { at: now, connection: send.connection, request: request.clone(), status });
        outcome
    }

    fn answer(&mut self, request: &Request) -> Response {
        let (path, query) = request.split_path();
        let path = path.strip_prefix("/api/assisted-install/v2/").expect("the base path").to_owned();
        let parts: Vec<&str> = path.split('/').collect();
        let body = || serde_json::from_slice::<Value>(&request.body).expect("a JSON body");
        match (request.method, &parts[..]) {
            (Method::Post, ["infra-envs", _, "hosts"]) => {
                let id = body()["host_id"].as_str().unwrap().to_owned();
                let args = json!({"infra_env_id": self.infra_env, "host_id": id,
                    "agent_version": body()["discovery_agent_version"]});
                Response::json(201, &json!({"id": id, "next_step_runner_command": {"args": [args.to_string()]}}))
            }
            (Method::Get, ["infra-envs", _, "hosts", id, "instructions"]) => {
                assert!(query.starts_with("timestamp="), "{query}");
                let steps = self.steps_for(id.parse().unwrap());
                Response::json(200, &steps)
            }
            (Method::Post, ["infra-envs", _, "hosts", id, "instructions"]) => {
                let reply = body();
                let host = self.host(id);
                if reply["step_type"] == "inventory" {
                    host.has_inventory = true;
                }
                Response::empty(204)
            }
            (Method::Put, ["infra-envs", _, "hosts", id, "progress"]) => {
                let single = self.masters() == 1;
                let stage = body()["current_stage"].as_str().unwrap().to_owned();
                let host = self.host(id);
                if stage != "Failed" {
                    let list = legal(host.role, host.bootstrap, single);
                    let at = |s: &str| list.iter().position(|l| *l == s);
                    let last = host.stages.last().map(|s| at(s).unwrap());
                    if at(&stage).is_none() || at(&stage) < last {
                        return Response::json(409, &json!({"reason": format!("cannot go to {stage}")}));
                    }
                }
                host.stages.push(stage);
                let done = |h: &HostRow| h.stages.last().is_some_and(|s| s == "Done");
                if self.hosts.iter().all(done) && self.cluster_status == "installing" {
                    self.cluster_status = "finalizing";
                }
                if self.hosts.iter().any(|h| h.stages.last().is_some_and(|s| s == "Failed")) {
                    self.cluster_status = "error";
                }
                Response::empty(200)
            }
            (Method::Put, ["infra-envs", _, "hosts", _, "logs-progress"]) => Response::empty(204),
            (Method::Get, ["infra-env", _, "hosts", _, "downloads", "ignition"]) => Response::empty(200),
            (Method::Get, ["clusters", _, "downloads", _]) => Response::empty(200),
            (Method::Put, ["clusters", _, "logs-progress"]) => Response::empty(204),
            (Method::Post, ["clusters", _, "logs"]) => {
                assert!(request.get_header("content-type").unwrap().starts_with("multipart/form-data"));
                Response::empty(204)
            }
            (Method::Get, ["clusters", _, "hosts"]) => Response::json(200, &self.host_list()),
            (Method::Get, ["clusters", _]) => {
                let mut cluster = json!({"id": self.cluster, "kind": "Cluster", "status": self.cluster_status});
                if query != "exclude-hosts=true" {
                    cluster["hosts"] = self.host_list();
                }
                Response::json(200, &cluster)
            }
            (Method::Get, ["clusters", _, "monitored-operators"]) => {
                let mut list = vec![json!({"name": "console", "operator_type": "builtin", "status": self.console})];
                if self.olm {
                    list.push(json!({"name": "lso", "operator_type": "olm", "status": self.olm_status}));
                }
                Response::json(200, &list)
            }
            (Method::Put, ["clusters", _, "monitored-operators"]) => {
                let report = body();
                if report["status"] == "available" && report["name"] == "console" {
                    self.console = "available";
                }
                if report["name"] == "lso" {
                    self.olm_status = report["status"].as_str().unwrap().to_owned();
                }
                Response::empty(200)
            }
            (Method::Put, ["clusters", _, "progress"]) => Response::empty(200),
            (Method::Post, ["clusters", _, "uploads", "ingress-cert"]) => {
                self.ingress = Some(body().as_str().unwrap().to_owned());
                Response::empty(201)
            }
            (Method::Post, ["clusters", _, "actions", "complete-installation"]) => {
                self.completed = Some(body());
                self.cluster_status = "installed";
                Response::json(202, &json!({}))
            }
            (Method::Post, ["events"]) => Response::empty(201),
            _ => panic!("the script has no answer to {} {}", request.method, request.path),
        }
    }

    fn host(&mut self, id: &str) -> &mut HostRow {
        let id: Uuid = id.parse().unwrap();
        self.hosts.iter_mut().find(|h| h.id == id).expect("a known host")
    }

    fn host_list(&self) -> Value {
        let row = |h: &HostRow| {
            let stage = h.stages.last();
            let status = match stage.map(String::as_str) {
                Some("Done") => "installed",
                Some("Failed") => "error",
                Some(_) => "installing-in-progress",
                None => "installing",
            };
            json!({"id": h.id, "infra_env_id": self.infra_env, "status": status, "role": h.role,
                "progress": {"current_stage": stage.filter(|s| *s != "Failed")}})
        };
        self.hosts.iter().map(row).collect()
    }

    fn steps_for(&mut self, id: Uuid) -> Value {
        let ready = self.install && self.hosts.iter().all(|h| h.has_inventory);
        let masters = self.masters();
        let host = self.hosts.iter().find(|h| h.id == id).expect("a known host");
        let mut steps = Vec::new();
        if ready && host.stages.is_empty() {
            self.cluster_status = "installing";
            let role = if host.bootstrap { "bootstrap" } else { host.role };
            let args = json!({"cluster_id": self.cluster, "infra_env_id": self.infra_env, "host_id": id, "role": role,
                "boot_device": "/dev/vda", "controller_image": "quay.io/lab/controller:1",
                "installer_image": "quay.io/lab/installer:1", "control_plane_count": masters});
            steps.push(("install".to_owned(), vec![args.to_string()]));
        } else if host.stages.is_empty() {
            steps.push(("inventory".to_owned(), vec![id.to_string()]));
            steps.extend(self.steps.iter().cloned());
        }
        let serial = &mut self.serial;
        let steps: Vec<Value> = steps
            .into_iter()
            .map(|(t, args)| {
                *serial += 1;
                json!({"step_type": t, "step_id": format!("{t}-{serial:08x}"), "args": args})
            })
            .collect();
        json!({"next_instruction_seconds": self.poll_seconds, "post_step_action": "continue", "instructions": steps})
    }
}

pub fn host_id(i: usize) -> Uuid {
    Uuid::from_u128(0x1000 + i as u128)
}

/// When every test begins.
pub const START: Timestamp = Timestamp::from_secs(1_800_000_000);

pub fn cluster_plan(masters: u32) -> ClusterPlan {
    let vip = |n: u8| vec![[192, 168, 126, n].into()];
    ClusterPlan {
        cluster_id: Uuid::from_u128(0xc1),
        name: "lab".into(),
        base_domain: "example.com".into(),
        control_plane_count: masters,
        api_vips: vip(200),
        ingress_vips: vip(201),
        dns: DnsView::for_cluster("lab", "example.com", &vip(200), &vip(201)),
    }
}

pub fn host_plan(i: usize) -> HostPlan {
    HostPlan {
        index: i as u32,
        name: format!("host-{i}"),
        host_id: host_id(i),
        infra_env_id: Uuid::from_u128(0xe1),
        cluster: Some(0),
        profile: profile::builtin("standard").unwrap().unwrap(),
        addresses: HostAddresses::single(
            format!("192.168.126.{}/24", 10 + i).parse().unwrap(),
            Some([192, 168, 126, 1].into()),
        ),
        boot: None,
        medium_first: false,
        registry_on_medium: false,
        start_at: START,
    }
}

pub const VERSION: &str = "quay.io/edge-infrastructure/assisted-installer-agent:latest";

pub fn fleet_with(
    seed: u64,
    masters: usize,
    workers: usize,
    change: impl FnOnce(&mut FleetConfig, &mut Vec<HostPlan>),
) -> Fleet {
    let mut config = FleetConfig::new(seed, HostTiming::default(), VERSION);
    let mut hosts: Vec<_> = (0..masters + workers).map(host_plan).collect();
    change(&mut config, &mut hosts);
    Fleet::new(config, vec![cluster_plan(masters as u32)], hosts)
}

pub fn fleet(seed: u64, masters: usize, workers: usize) -> Fleet {
    fleet_with(seed, masters, workers, |_, _| {})
}

/// A fleet and a service on a virtual clock.
pub struct Lab {
    pub fleet: Fleet,
    pub service: Service,
    pub now: Timestamp,
    pub seen: Vec<(Timestamp, What)>,
    /// Time from a request to its answer.
    pub latency: Duration,
    replies: VecDeque<(Timestamp, Reply)>,
    /// Polls without an answer yet, by connection, and the most there ever were of one.
    pub polls: BTreeMap<u32, u32>,
    pub most_polls: u32,
    poll_tags: BTreeSet<(u32, u64)>,
}

impl Lab {
    pub fn new(fleet: Fleet, service: Service) -> Self {
        Self {
            fleet,
            service,
            now: START,
            seen: Vec::new(),
            latency: Duration::from_millis(2),
            replies: VecDeque::new(),
            polls: BTreeMap::new(),
            most_polls: 0,
            poll_tags: BTreeSet::new(),
        }
    }

    /// Runs until that much time has passed, or `until` holds, or nothing is left to do.
    pub fn run(&mut self, lasting: Duration, until: impl Fn(&Self) -> bool) {
        let end = self.now + lasting;
        self.fleet.wake(self.now);
        self.carry();
        while !until(self) {
            let wake = self.fleet.next_wake();
            let reply = self.replies.front().map(|(at, _)| *at);
            let Some(next) = [wake, reply].into_iter().flatten().min() else { break };
            if next > end {
                self.now = end;
                break;
            }
            assert!(next >= self.now, "time went back from {} to {next}", self.now);
            self.now = next;
            if reply == Some(next) {
                if let Some((_, reply)) = self.replies.pop_front() {
                    if self.poll_tags.remove(&(reply.connection, reply.tag)) {
                        *self.polls.entry(reply.connection).or_default() -= 1;
                    }
                    self.fleet.deliver(self.now, reply);
                }
            } else {
                self.fleet.wake(self.now);
            }
            self.carry();
        }
        self.seen.extend(self.fleet.take_observations());
    }

    fn carry(&mut self) {
        for send in self.fleet.take_sends() {
            let result = self.service.handle(self.now, &send);
            if self.service.log.last().is_some_and(Sent::is_poll) {
                let open = self.polls.entry(send.connection).or_default();
                *open += 1;
                self.most_polls = self.most_polls.max(*open);
                self.poll_tags.insert((send.connection, send.tag));
            }
            self.replies
                .push_back((self.now + self.latency, Reply { connection: send.connection, tag: send.tag, result }));
        }
    }

    pub fn did(&self, what: &str) -> Vec<(Timestamp, Uuid)> {
        let fits = |(at, w): &(Timestamp, What)| match w {
            What::HostDid { host, what: did } if did.word() == what => Some((*at, *host)),
            _ => None,
        };
        self.seen.iter().filter_map(fits).collect()
    }

    pub fn in_cluster(&self) -> Vec<(Timestamp, Option<Uuid>, String)> {
        let fits = |(at, w): &(Timestamp, What)| match w {
            What::InCluster { host, what, .. } => Some((*at, *host, what.to_string())),
            _ => None,
        };
        self.seen.iter().filter_map(fits).collect()
    }
}
