//! The agent's protocol: how often it asks, what it does not say twice, when it gives up.

mod scripted;

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;
use rstest::rstest;
use scripted::*;
use serde_json::json;
use vlab_agents::*;
use vlab_api::Timestamp;
use vlab_api::http::{Method, Response, TransportError};
use vlab_model::history::What;
use vlab_model::settings::HostTiming;

const HOUR: Duration = Duration::from_secs(3600);

fn polls(lab: &Lab, connection: u32) -> Vec<Timestamp> {
    lab.service.log.iter().filter(|s| s.connection == connection && s.is_poll()).map(|s| s.at).collect()
}

fn gaps(times: &[Timestamp]) -> Vec<f64> {
    times.windows(2).map(|p| p[1].since(p[0]).as_secs_f64()).collect()
}

fn answers(lab: &Lab, step_type: &str) -> Vec<serde_json::Value> {
    lab.service.log.iter().filter_map(Sent::answer).filter(|a| a["step_type"] == step_type).collect()
}

#[test]
fn requests_look_like_the_real_agents() {
    let mut lab = Lab::new(fleet_with(1, 1, 0, |c, _| c.secret_key = "s3cret".into()), Service::new(1, 0));
    lab.run(Duration::from_secs(600), |_| false);
    let log = &lab.service.log;
    assert!(log[0].is_registration());
    let body: serde_json::Value = serde_json::from_slice(&log[0].request.body).unwrap();
    assert_eq!(body, json!({"host_id": host_id(0), "discovery_agent_version": VERSION}));
    for sent in log {
        assert_eq!(sent.request.get_header("x-secret-key"), Some("s3cret"));
        assert_eq!(sent.request.get_header("discovery_agent_version"), Some(VERSION));
    }
    let poll = log.iter().find(|s| s.is_poll()).unwrap();
    assert_eq!(poll.request.split_path().1, format!("timestamp={}", poll.at.as_secs()));
    let answer = &answers(&lab, "inventory")[0];
    assert!(answer["step_id"].as_str().unwrap().starts_with("inventory-"));
    assert!(answer.get("exit_code").is_none(), "the real agent leaves out a zero");
}

#[rstest]
#[case::unauthorized(401)]
#[case::forbidden(403)]
#[case::not_found(404)]
#[case::conflict(409)]
fn a_refused_registration_freezes_for_good(#[case] status: u16) {
    let mut service = Service::new(1, 0);
    service.misbehave = Box::new(move |_, r| r.path.ends_with("/hosts").then(|| Ok(Response::empty(status))));
    let mut lab = Lab::new(fleet(1, 1, 0), service);
    lab.run(24 * HOUR, |_| false);
    assert_eq!(lab.service.log.len(), 1);
    assert_eq!(lab.did("frozen").len(), 1);
    assert_eq!(lab.fleet.agent(0), Some(&Agent::Frozen));
}

#[test]
fn any_other_failure_to_register_is_tried_again() {
    let mut service = Service::new(1, 0);
    let mut left = 4;
    service.misbehave = Box::new(move |_, r| {
        let fails = r.path.ends_with("/hosts") && left > 0;
        left -= i32::from(fails);
        fails.then(|| Ok(Response::empty(500)))
    });
    let mut lab = Lab::new(fleet(1, 1, 0), service);
    lab.run(HOUR, |_| false);
    let tries: Vec<_> = lab.service.log.iter().filter(|s| s.is_registration()).map(|s| s.at).collect();
    assert_eq!(tries.len(), 5);
    assert!(gaps(&tries).iter().all(|g| (60.0..60.1).contains(g)), "{:?}", gaps(&tries));
}

#[test]
fn a_host_that_the_service_forgot_stops_for_good() {
    let mut service = Service::new(2, 0);
    let gone = format!("/hosts/{}/instructions", host_id(0));
    service.misbehave =
        Box::new(move |now, r| (now > START + HOUR && r.path.contains(&gone)).then(|| Ok(Response::empty(404))));
    let mut lab = Lab::new(fleet(1, 2, 0), service);
    lab.run(10 * HOUR, |_| false);
    let last = polls(&lab, 0).last().copied().unwrap();
    assert!(last > START + HOUR && last < START + HOUR + Duration::from_secs(121), "{last}");
    assert_eq!(lab.did("frozen").len(), 1);
    assert!(polls(&lab, 1).last().copied().unwrap() > START + 9 * HOUR, "the other host goes on");
}

/// The back-off: half a second, half as much again each time, a minute at most, and after a quarter of an hour the agent
/// registers again.
#[test]
fn failing_polls_back_off_and_end_in_a_new_registration() {
    let mut service = Service::new(1, 0);
    service.misbehave = Box::new(|now, r| {
        let down = now > START + Duration::from_secs(600) && now < START + HOUR;
        (down && r.path.contains("/instructions?")).then(|| Ok(Response::empty(500)))
    });
    let mut lab = Lab::new(fleet(1, 1, 0), service);
    lab.run(5 * HOUR, |_| false);
    let failed: Vec<_> = lab.service.log.iter().filter(|s| s.is_poll() && s.status == 500).map(|s| s.at).collect();
    let gaps = gaps(&failed);
    let mut expected = 0.5f64;
    for (i, gap) in gaps.iter().enumerate() {
        assert!((gap - expected).abs() < 0.01, "wait {i} is {gap} and not {expected}");
        expected = (expected * 1.5).min(60.0);
    }
    let lasted = failed.last().unwrap().since(failed[0]);
    assert!(lasted >= Duration::from_secs(900) && lasted < Duration::from_secs(961), "{lasted:?}");
    let registrations: Vec<_> = lab.service.log.iter().filter(|s| s.is_registration()).map(|s| s.at).collect();
    assert_eq!(registrations.len(), 2);
    assert!(registrations[1].since(*failed.last().unwrap()) >= HOUR, "without a time to wait it is an hour");
    assert!(polls(&lab, 0).last().unwrap() > &registrations[1]);
}

#[test]
fn the_transport_tries_three_times() {
    let mut service = Service::new(1, 0);
    service.misbehave = Box::new(|now, r| {
        let down = now > START + Duration::from_secs(600);
        (down && r.path.contains("/instructions?")).then(|| Err(TransportError::Connect("refused".into())))
    });
    let mut lab = Lab::new(fleet(1, 1, 0), service);
    lab.run(Duration::from_secs(800), |_| false);
    let failed: Vec<_> = lab.service.log.iter().filter(|s| s.is_poll() && s.status == 0).map(|s| s.at).collect();
    let gaps = gaps(&failed);
    for three in gaps.chunks(3).filter(|c| c.len() == 3) {
        assert!((2.0..=10.1).contains(&three[0]) && (2.0..=10.1).contains(&three[1]), "{gaps:?}");
    }
    assert!((gaps[2] - 0.5).abs() < 0.01, "{gaps:?}");
}

#[test]
fn an_agent_that_is_told_to_exit_registers_again() {
    let mut service = Service::new(1, 0);
    let mut told = false;
    service.misbehave = Box::new(move |_, r| {
        let now = r.path.contains("/instructions?") && !std::mem::replace(&mut told, true);
        now.then(|| Ok(Response::json(200, &json!({"next_instruction_seconds": 0, "post_step_action": "exit"}))))
    });
    let mut lab = Lab::new(fleet(1, 1, 0), service);
    lab.run(HOUR, |_| false);
    assert_eq!(lab.did("registered").len(), 2);
    assert_eq!(lab.did("agent-exited").len(), 1);
}

#[rstest]
#[case::empty_steps(json!({}))]
#[case::zero_seconds(json!({"next_instruction_seconds": 0}))]
fn a_service_that_cannot_make_steps_does_not_stop_the_clock(#[case] body: serde_json::Value) {
    let mut service = Service::new(1, 0);
    service.misbehave = Box::new(move |_, r| r.path.contains("/instructions?").then(|| Ok(Response::json(200, &body))));
    let mut lab = Lab::new(fleet(1, 1, 0), service);
    lab.run(Duration::from_secs(300), |_| false);
    assert_eq!(lab.now, START + Duration::from_secs(300));
    assert!(polls(&lab, 0).len() > 1000, "it asks as fast as it can");
}

#[test]
fn unknown_steps_are_answered_as_the_agent_does() {
    let mut service = Service::new(1, 0);
    service.steps = vec![("dance".into(), vec![]), ("execute".into(), vec!["ls".into()])];
    let mut lab = Lab::new(fleet(1, 1, 0), service);
    lab.run(Duration::from_secs(400), |_| false);
    for step_type in ["dance", "execute"] {
        let answer = &answers(&lab, step_type)[0];
        assert_eq!(answer["exit_code"], -1);
        assert_eq!(answer["error"], format!("failed to find action for step type {step_type}"));
    }
}

#[test]
fn logs_are_sent_in_order_before_the_step_is_answered() {
    let mut service = Service::new(1, 0);
    let args = json!({"cluster_id": service.cluster, "infra_env_id": service.infra_env, "host_id": host_id(0),
        "bootstrap": true, "installer_gather": true});
    service.steps = vec![("logs-gather".into(), vec![args.to_string()])];
    service.poll_seconds = 1000;
    let mut lab = Lab::new(fleet(1, 1, 0), service);
    lab.run(Duration::from_secs(900), |_| false);
    let of_logs =
        |s: &&Sent| s.request.path.contains("/logs") || s.answer().is_some_and(|a| a["step_type"] == "logs-gather");
    let words: Vec<String> = lab
        .service
        .log
        .iter()
        .filter(of_logs)
        .map(|s| match serde_json::from_slice::<serde_json::Value>(&s.request.body) {
            Ok(body) if body.get("logs_state").is_some() => body["logs_state"].as_str().unwrap().to_owned(),
            Ok(_) => "answer".to_owned(),
            Err(_) => "archive".to_owned(),
        })
        .collect();
    assert_eq!(words, ["requested", "archive", "completed", "answer"]);
}

#[test]
fn an_upgraded_agent_comes_back_in_its_new_version() {
    let mut service = Service::new(1, 0);
    service.steps = vec![("upgrade-agent".into(), vec![json!({"agent_image": "quay.io/lab/agent:2"}).to_string()])];
    let mut lab = Lab::new(fleet(1, 1, 0), service);
    lab.run(Duration::from_secs(420), |lab| lab.service.log.iter().filter(|s| s.is_registration()).count() == 2);
    let again = lab.service.log.iter().rfind(|s| s.is_registration()).unwrap();
    assert_eq!(again.request.get_header("discovery_agent_version"), Some("quay.io/lab/agent:2"));
}

#[test]
fn a_host_to_be_reclaimed_reboots_and_registers() {
    let mut service = Service::new(1, 0);
    let mut told = false;
    service.misbehave = Box::new(move |_, r| {
        let now = r.path.contains("/instructions?") && !std::mem::replace(&mut told, true);
        now.then(|| {
            Ok(Response::json(
                200,
                &json!({"next_instruction_seconds": 120, "post_step_action": "exit", "instructions": [
                {"step_type": "reboot-for-reclaim", "step_id": "r-1", "args": ["{\"host_fs_mount_dir\":\"/host\"}"]}]}),
            ))
        })
    });
    let mut lab = Lab::new(fleet(1, 1, 0), service);
    lab.run(HOUR, |_| false);
    assert_eq!(lab.did("rebooting").len(), 1);
    assert_eq!(lab.did("booted-discovery").len(), 2);
}

#[test]
fn a_host_without_network_sends_nothing_and_recovers() {
    let mut lab = Lab::new(fleet(1, 1, 0), Service::new(1, 0));
    lab.run(Duration::from_secs(1000), |_| false);
    let from = lab.now;
    assert!(lab.fleet.inject(from, 0, &"cut".into(), HostFault::Offline));
    lab.run(Duration::from_secs(300), |_| false);
    let until = lab.now;
    lab.fleet.clear(until, "cut");
    lab.run(HOUR, |_| false);
    assert!(!lab.service.log.iter().any(|s| s.at > from && s.at < until), "something got through");
    assert!(lab.service.log.iter().any(|s| s.at > until));
    assert_eq!(lab.did("registered").len(), 1, "a short outage needs no new registration");
}

#[test]
fn a_lost_medium_answers_256() {
    let mut lab = Lab::new(fleet(1, 1, 0), Service::new(1, 0));
    lab.run(Duration::from_secs(600), |_| false);
    let now = lab.now;
    assert!(lab.fleet.inject(now, 0, &"medium".into(), HostFault::NoMedia));
    lab.run(Duration::from_secs(120), |_| false);
    assert_eq!(answers(&lab, "inventory").last().unwrap()["exit_code"], 256);
}

#[test]
fn hosts_can_come_later() {
    let mut lab = Lab::new(fleet(1, 1, 0), Service::new(2, 0));
    lab.run(Duration::from_secs(600), |_| false);
    let mut late = host_plan(1);
    late.start_at = lab.now;
    assert_eq!(lab.fleet.add_hosts(vec![late]), 1);
    assert_eq!(lab.fleet.connection_count(), 3);
    assert_eq!(lab.fleet.connection_use(1), Some(ConnectionUse::Controller(0)));
    assert_eq!(lab.fleet.connection_use(2), Some(ConnectionUse::Host(1)));
    assert_eq!(lab.fleet.host_position(host_id(1)), Some(1));
    lab.run(Duration::from_secs(600), |_| false);
    assert!(!polls(&lab, 2).is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// The cadence is the service's, divided by the profile's divisor; there is never a second poll on its way.
    #[test]
    fn polls_keep_the_services_cadence(seed: u64, seconds in 1i64..300, divisor in 1u32..50, hosts in 1usize..6, latency in 0u64..3000) {
        let mut service = Service::new(hosts, 0);
        service.poll_seconds = seconds;
        let fleet = fleet_with(seed, hosts, 0, |c, _| {
            c.timing = HostTiming { next_instruction_divisor: f64::from(divisor), ..HostTiming::default() };
        });
        let mut lab = Lab::new(fleet, service);
        lab.latency = Duration::from_millis(latency);
        lab.run(Duration::from_secs(240 + 20 * seconds as u64 / u64::from(divisor) + 60), |_| false);
        let expected = (seconds as f64 / f64::from(divisor)).max(0.01) + lab.latency.as_secs_f64();
        for host in 0..hosts as u32 {
            let times = polls(&lab, host);
            prop_assert!(times.len() > 3);
            for gap in gaps(&times) {
                prop_assert!((gap - expected).abs() < 0.001, "{} and not {}", gap, expected);
            }
        }
        prop_assert_eq!(lab.most_polls, 1);
    }

    /// With the cache an answer that says nothing new is sent once in its life; without it each time. Either way the history
    /// has every answer.
    #[test]
    fn the_cache_sends_an_answer_once_an_hour(seed: u64, cache: bool, seconds in 20i64..200) {
        let mut service = Service::new(1, 0);
        service.poll_seconds = seconds;
        let fleet = fleet_with(seed, 1, 0, |c, _| c.reply_cache = cache);
        let mut lab = Lab::new(fleet, service);
        lab.run(2 * HOUR + HOUR / 2, |_| false);
        let asked = polls(&lab, 0).len();
        let sent = answers(&lab, "inventory").len();
        let noted: Vec<bool> = lab.seen.iter().filter_map(|(_, w)| match w {
            What::Step { answered: Some(0), cached, .. } => Some(*cached),
            _ => None,
        }).collect();
        prop_assert!(noted.len() + 1 >= asked);
        prop_assert_eq!(noted.iter().filter(|c| !**c).count(), sent);
        if cache { prop_assert_eq!(sent, 3) } else { prop_assert_eq!(sent, noted.len()) }
    }

    /// A GET that fails makes the agent forget what it said.
    #[test]
    fn a_failed_poll_flushes_the_cache(seed: u64, failing in 1000u64..3000) {
        let mut service = Service::new(1, 0);
        let down = START + Duration::from_secs(failing)..START + Duration::from_secs(failing + 70);
        service.misbehave = Box::new(move |now, r| {
            (down.contains(&now) && r.path.contains("/instructions?")).then(|| Ok(Response::empty(500)))
        });
        let mut lab = Lab::new(fleet(seed, 1, 0), service);
        lab.run(HOUR, |_| false);
        prop_assert_eq!(answers(&lab, "inventory").len(), 2);
    }

    /// Whatever a service answers: no panic, no second poll on its way, no report of an earlier stage.
    #[test]
    fn a_mad_service_is_survived(seed: u64, codes in proptest::collection::vec(0u16..12, 1..40)) {
        let mut service = Service::new(3, 1);
        service.install = true;
        let mut at = 0;
        service.misbehave = Box::new(move |_, r| {
            at += 1;
            // A report that is answered with success is taken: only answers that carry something can be nonsense.
            let carries = r.method == Method::Get || r.path.ends_with("/hosts");
            match codes[at % codes.len()] {
                0 => Some(Ok(Response::empty(500))),
                1 => Some(Err(TransportError::Lost("cut".into()))),
                2 if carries => Some(Ok(Response { status: 200, headers: vec![], body: "{\"instructions\":7".into() })),
                3 => Some(Ok(Response::empty(429))),
                4 if carries => Some(Ok(Response { status: 201, headers: vec![], body: "null".into() })),
                _ => None,
            }
        });
        let mut lab = Lab::new(fleet(seed, 3, 1), service);
        lab.run(HOUR, |_| false);
        prop_assert!(lab.most_polls <= 1);
        // Whoever reports on a host (itself, the bootstrap, the controller) never goes back, tries again included.
        let mut last = BTreeMap::new();
        for sent in lab.service.log.iter() {
            let Some((stage, _)) = sent.progress().filter(|(stage, _)| stage != "Failed") else { continue };
            let host = lab.service.hosts.iter().find(|h| sent.request.path.contains(&h.id.to_string())).unwrap();
            let at = legal(host.role, host.bootstrap, false).iter().position(|s| *s == stage);
            prop_assert!(at.is_some(), "{} is no stage of a {}", stage, host.role);
            let before = last.insert((sent.connection, host.id), at);
            prop_assert!(before.flatten() <= at, "{} was reported after a later stage: {:?}", stage, sent);
        }
    }

    #[test]
    fn the_same_seed_repeats_itself(seed: u64) {
        let log = |seed| {
            let mut lab = Lab::new(fleet(seed, 3, 2), Service::new(3, 2));
            lab.run(HOUR, |_| false);
            (lab.service.log, lab.seen)
        };
        let first = log(seed);
        prop_assert!(first == log(seed));
        prop_assert!(first.0 != log(seed ^ 1).0);
    }
}
