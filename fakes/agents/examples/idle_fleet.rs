//! How much memory and time an idle fleet takes: `cargo run --profile load -p vlab-agents --example idle_fleet`.
//!
//! Hosts register, answer the steps of a known host and poll, against a service that is one fixed answer, on a virtual clock.
//! Memory is the slope of the resident size between 100 hosts and more, so that what the program itself needs does not count.

#![expect(clippy::disallowed_methods, reason = "it measures")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;
use uuid::Uuid;
use vlab_agents::*;
use vlab_api::Timestamp;
use vlab_api::actor::{Actor, Reply};
use vlab_api::http::{Method, Response};
use vlab_model::settings::HostTiming;

const POLLS: u64 = 30;

/// Resident memory of this process in bytes.
fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = statm.split(' ').nth(1).and_then(|p| p.parse().ok()).unwrap_or(0);
    pages * 4096
}

fn plan(i: u32, profiles: &[Arc<HardwareProfile>]) -> Option<HostPlan> {
    let address = format!("10.{}.{}.{}/8", i >> 16, (i >> 8) & 0xff, (i & 0xff).max(1)).parse().ok()?;
    Some(HostPlan {
        index: i,
        name: format!("host-{i}"),
        host_id: Uuid::from_u128(u128::from(i)),
        infra_env_id: Uuid::from_u128(1),
        cluster: None,
        profile: Arc::clone(profiles.get(i as usize % profiles.len())?),
        addresses: HostAddresses::single(address, None),
        boot: None,
        medium_first: false,
        registry_on_medium: false,
        start_at: Timestamp::from_secs(1_800_000_000),
    })
}

fn run(hosts: u32) -> (Fleet, u64, Duration) {
    let mut config = FleetConfig::new(1, HostTiming::default(), "quay.io/lab/agent:1");
    config.observe_steps = false;
    let names = ["dell-poweredge-r650", "hpe-proliant-dl360-gen10"];
    let profiles: Vec<_> = names.iter().filter_map(|n| profile::builtin(n).ok().flatten()).collect();
    let plans = (0..hosts).filter_map(|i| plan(i, &profiles)).collect();
    let mut fleet = Fleet::new(config, Vec::new(), plans);
    let start = Timestamp::from_secs(1_800_000_000);
    let end = start + Duration::from_secs(60 * POLLS);
    let (mut now, mut requests) = (start, 0);
    let steps = json!({"next_instruction_seconds": 60, "post_step_action": "continue", "instructions": [
        {"step_type": "inventory", "step_id": "inventory-1", "args": ["id"]},
        {"step_type": "ntp-synchronizer", "step_id": "ntp-1", "args": ["{\"ntp_source\":\"\"}"]}]});
    let began = Instant::now();
    while now < end {
        fleet.wake(now);
        loop {
            let sends = fleet.take_sends();
            if sends.is_empty() {
                break;
            }
            for send in sends {
                requests += 1;
                let answer = match (send.request.method, send.request.path.ends_with("/hosts")) {
                    (Method::Get, _) => Response::json(200, &steps),
                    (_, true) => {
                        let body: serde_json::Value = serde_json::from_slice(&send.request.body).unwrap_or_default();
                        let args = json!({"infra_env_id": Uuid::from_u128(1), "host_id": body["host_id"]}).to_string();
                        Response::json(201, &json!({"next_step_runner_command": {"args": [args]}}))
                    }
                    _ => Response::empty(204),
                };
                fleet.deliver(now, Reply { connection: send.connection, tag: send.tag, result: Ok(answer) });
            }
        }
        match fleet.next_wake() {
            Some(next) => now = next.max(now),
            None => break,
        }
    }
    (fleet, requests, began.elapsed())
}

fn main() {
    let (small, _, _) = run(100);
    let base = resident();
    for hosts in [2_000, 10_000] {
        let (fleet, requests, took) = run(hosts);
        let slope = resident().saturating_sub(base) / u64::from(hosts);
        let each = took.as_secs_f64() * 1e6 / requests as f64;
        println!(
            "{hosts} hosts: {slope} bytes a host; {requests} requests and their steps in {took:?}, {each:.1} us each, {:.0} us a host and poll",
            took.as_secs_f64() * 1e6 / (u64::from(hosts) * POLLS) as f64
        );
        drop(fleet);
    }
    drop(small);
}
