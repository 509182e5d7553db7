//! The controller inside the cluster, which runs on the master that holds its lease: that of `vlab_agents`, looking at the real
//! cluster, or the product's own program ([`job`]). The operators are played ([`operators`]).

use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::sync::mpsc;
use vlab_agents::{Fleet, FleetConfig, Hands, HostPlan, Observed};
use vlab_api::Timestamp;
use vlab_api::ops;
use vlab_client::Client as Service;

use super::api::{condition, micro};
use super::facts::ClusterFacts;
use super::pki::Pki;
use super::watch::{CONTROLLER_READY, Client, is_master, items, match_nodes};
use super::{faults, job, mcs, operators};
use crate::install::{NEVER, plan};
use crate::machine::NodeConfig;
use crate::say;
use crate::shell::{Event, Events, Shell, drive, find_service, steady_now};

/// How long a lease is good without being renewed, and how often it is renewed. OpenShift's operators take 137 s and 26 s: a machine that
/// is slow must not lose what it holds, because whoever takes over begins anew.
const LEASE: Duration = Duration::from_secs(90);
const RENEW: Duration = Duration::from_secs(10);
/// How often the cluster is looked at, whatever faster time says: each look costs an emulated processor some requests with TLS.
const SHORTEST_LOOK: Duration = Duration::from_secs(1);
const LONGEST_LOOK: Duration = Duration::from_secs(2);
const NAMESPACE: &str = "/api/v1/namespaces/assisted-installer";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/assisted-installer/leases";

/// The machine on which a controller may run.
#[derive(Clone, Debug)]
pub struct Here {
    /// The cluster.
    pub facts: ClusterFacts,
    /// Name of the node.
    pub name: String,
    /// Its address.
    pub own: IpAddr,
    /// What the lab told it.
    pub config: NodeConfig,
    /// The cluster's API, as its administrator.
    pub client: Client,
    /// Keys of the cluster.
    pub pki: Pki,
    /// Where programs that are started write.
    pub logs: PathBuf,
}

/// Takes part in the question of who runs the controller, and runs it when it is us: the product's, where the run gives it, else the
/// lab's.
pub async fn when_it_is_our_turn(here: Here) {
    let mut running: Vec<tokio::task::JoinHandle<()>> = Vec::new();
    let mut lease = SeenLease::default();
    loop {
        match hold(&here.client, &here.name, &mut lease).await {
            Ok(true) if running.is_empty() => {
                say::moment("controller", "started", &json!({ "node": here.name }));
                if here.config.controller.is_some() {
                    running.push(tokio::spawn(operators::play(here.clone())));
                    running.push(tokio::spawn(job::run(here.clone())));
                } else {
                    running.push(tokio::spawn(run(here.facts.clone(), here.config.clone(), here.client.clone())));
                }
            }
            Ok(true) | Err(_) => {}
            Ok(false) if !running.is_empty() => {
                say::note("controller", "another node holds the lease now");
                running.drain(..).for_each(|task| task.abort());
            }
            Ok(false) => {}
        }
        tokio::time::sleep(RENEW).await;
    }
}

/// A lease as it was last seen to change.
#[derive(Debug, Default)]
struct SeenLease(Option<(Value, Instant)>);

impl SeenLease {
    /// Has nobody renewed it for its whole time? By our own clock since we saw it change: the clocks of machines differ.
    fn is_over(&mut self, spec: &Value, now: Instant) -> bool {
        match &self.0 {
            Some((seen, since)) if seen == spec => now.saturating_duration_since(*since) >= LEASE,
            _ => {
                self.0 = Some((spec.clone(), now));
                false
            }
        }
    }
}

/// Tries to hold the lease: ours already, nobody's, or of somebody who does not renew it.
async fn hold(client: &Client, name: &str, seen: &mut SeenLease) -> io::Result<bool> {
    let renewed = micro(Timestamp::now());
    let spec = json!({ "holderIdentity": name, "renewTime": renewed, "leaseDurationSeconds": LEASE.as_secs() });
    if client.create(LEASES, &json!({ "metadata": { "name": "controller" }, "spec": spec })).await? {
        return Ok(true);
    }
    let lease = client.get(&format!("{LEASES}/controller")).await?;
    let ours = lease["spec"]["holderIdentity"] == name;
    if !ours && !seen.is_over(&lease["spec"], Instant::now()) {
        return Ok(false);
    }
    // With the version that was read: who is slower loses.
    let change = json!({ "metadata": { "resourceVersion": lease["metadata"]["resourceVersion"] }, "spec": spec });
    let answer = client.send("PATCH", &format!("{LEASES}/controller"), Some(&change)).await?;
    Ok(answer.is_success())
}

/// Runs the controller until it has told the service everything.
async fn run(facts: ClusterFacts, config: NodeConfig, client: Client) {
    let service = match find_service("controller", &facts.url).await {
        Ok(service) => service,
        Err(e) => return say::moment("controller", "failed", &json!({ "problem": e.to_string() })),
    };
    // The list of hosts is the service's; it answers when it answers.
    let asking = Service::new(service.clone(), Duration::from_secs(30));
    let cluster = loop {
        match asking.call(ops::get_cluster(facts.cluster_id)).await {
            Ok(cluster) => break cluster,
            Err(e) => say::note("controller", &format!("cannot read the cluster: {e}; trying again")),
        }
        tokio::time::sleep(Duration::from_secs(2)).await;
    };
    let hosts = cluster.hosts.clone().unwrap_or_default();
    let mut fleet_config = FleetConfig::new(config.seed, config.timing.clone(), "");
    fleet_config.hands = Hands::Real;
    fleet_config.secret_key = facts.token.clone().into();
    if let Ok(pem) = vlab_agents::ingress::make_ingress_pem() {
        fleet_config.ingress_pem = pem.into();
    }
    let pem = fleet_config.ingress_pem.to_string();
    let never = Timestamp::from_secs(NEVER);
    let plans = hosts.iter().zip(0u32..).map(|(h, index)| {
        HostPlan::real(index, h.id.to_string(), h.id, h.infra_env_id.unwrap_or(facts.infra_env_id), never)
    });
    let fleet = Fleet::new(fleet_config, vec![plan(&cluster, facts.control_plane_count)], plans.collect());
    let (events, incoming) = mpsc::unbounded_channel();
    let timing = config.timing.clone();
    let available_after = timing.operators_available.at(0.5);
    let looking = Looking { client, hosts, facts, events: events.clone(), available_after, pem };
    tokio::spawn(looking.run(timing.controller_loop.clamp(SHORTEST_LOOK, LONGEST_LOOK)));
    let request_timeout = timing.request_timeout;
    drive(Shell { part: "controller", service, events, incoming, request_timeout }, fleet, |_, _, _| {}).await;
}

struct Looking {
    client: Client,
    hosts: Vec<vlab_api::types::Host>,
    facts: ClusterFacts,
    events: Events,
    available_after: Duration,
    pem: String,
}

/// The masters as the controller has seen them until now.
#[derive(Debug, Default)]
struct Masters {
    /// Since when all of them are ready.
    ready_since: Option<Timestamp>,
    /// What follows from it was told to the cluster, with these operators degraded.
    operators_told: Option<Vec<String>>,
}

/// How far it is known that the controller is ready.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ready {
    No,
    /// On the console.
    Said,
    /// In the cluster.
    Known,
}

impl Looking {
    /// Looks again and again, and tells the core.
    async fn run(self, every: Duration) {
        let mut masters = Masters::default();
        let mut ready = Ready::No;
        loop {
            match self.look(&mut masters).await {
                Ok(mut seen) => {
                    if let Err(e) = self.say_ready(&mut ready).await {
                        say::note("controller", &e.to_string());
                    }
                    seen.controller_ready = ready == Ready::Known;
                    if self.events.send(Event::Observed(0, seen)).is_err() {
                        return;
                    }
                }
                Err(e) => say::note("controller", &e.to_string()),
            }
            tokio::time::sleep(every).await;
        }
    }

    /// Tells the cluster, unless a controller before us has.
    async fn say_ready(&self, ready: &mut Ready) -> io::Result<()> {
        if *ready == Ready::Known {
            return Ok(());
        }
        let events = format!("{NAMESPACE}/events");
        let said = self.client.get(&events).await?;
        if items(&said).iter().any(|event| event["reason"] == CONTROLLER_READY) {
            *ready = Ready::Known;
            return Ok(());
        }
        // Said before it is known, as a node does: the installer must not seem to act on what has not happened.
        if std::mem::replace(ready, Ready::Said) == Ready::No {
            say::moment("controller", "controller-ready", &json!({}));
        }
        // The product's installer looks for the name, and ours for the reason.
        let event = json!({ "metadata": { "name": CONTROLLER_READY, "namespace": "assisted-installer" },
            "reason": CONTROLLER_READY, "message": "the controller talks to the service", "type": "Normal",
            "involvedObject": { "kind": "Job", "namespace": "assisted-installer", "name": "assisted-installer-controller" } });
        self.client.create(&events, &event).await?;
        *ready = Ready::Known;
        Ok(())
    }

    async fn look(&self, masters: &mut Masters) -> io::Result<Observed> {
        let nodes = self.client.get("/api/v1/nodes").await?;
        let ready = items(&nodes).iter().filter(|n| is_master(n) && condition(n, "Ready") == "True").count();
        let expected = usize::try_from(self.facts.control_plane_count).unwrap_or(3);
        let now = steady_now();
        if ready >= expected {
            let since = *masters.ready_since.get_or_insert(now);
            if now.since(since) >= self.available_after {
                let degraded = faults::degraded(&self.client).await?;
                if masters.operators_told.as_ref() != Some(&degraded) {
                    let version = self.facts.openshift_version.as_deref();
                    operators::all_available(&self.client, &self.pem, version, &degraded).await?;
                    masters.operators_told = Some(degraded);
                }
            }
        }
        let operators = self.client.get(operators::PATH).await?;
        let available = items(&operators).iter().filter(|o| condition(o, "Available") == "True");
        let mut available: Vec<String> =
            available.filter_map(|o| o["metadata"]["name"].as_str().map(str::to_owned)).collect();
        // The version is there when all operators are.
        if operators::NAMES.iter().all(|b| available.iter().any(|a| a == b)) {
            available.push("cvo".into());
        }
        let certificate =
            self.client.get("/api/v1/namespaces/openshift-config-managed/configmaps/default-ingress-cert").await;
        let fetches = self.client.get(mcs::FETCHES).await?;
        Ok(Observed {
            nodes: match_nodes(&self.hosts, items(&nodes), &mcs::fetches(items(&fetches))),
            bootkube_done: true,
            etcd_bootstrap_done: true,
            controller_runs: true,
            controller_ready: false,
            operators: available,
            router_ca: certificate.is_ok(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_over_when_it_has_not_changed_for_its_time() {
        let begin = Instant::now();
        let spec = |renewed: &str| json!({ "holderIdentity": "master-1", "renewTime": renewed });
        let mut seen = SeenLease::default();
        // However old it looks by another clock, it may just have been renewed.
        assert!(!seen.is_over(&spec("2001-01-01T00:00:00.000000Z"), begin + 3 * LEASE));
        assert!(!seen.is_over(&spec("2001-01-01T00:00:00.000000Z"), begin + 4 * LEASE - RENEW));
        assert!(seen.is_over(&spec("2001-01-01T00:00:00.000000Z"), begin + 4 * LEASE));
        assert!(!seen.is_over(&spec("2001-01-01T00:00:10.000000Z"), begin + 4 * LEASE), "it was renewed");
    }
}
