//! Plans in virtual time: what monitors that take their time do to installations.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::time::Duration;

use tokio_util::sync::CancellationToken;
use vlab_load::generate::LoadError;
use vlab_load::rehearsal::{Options, Rehearsal, rehearse};
use vlab_scenario::{Catalogue, LoadPlan, SourceFile, load_plan};
use vlab_service::Pace;

fn plan(rest: &str) -> LoadPlan {
    let text = format!("version: 1\nname: p\n{rest}\n");
    load_plan(&SourceFile::new("p.yaml", text), &Catalogue::embedded()).unwrap_or_else(|error| panic!("{error}"))
}

const SINGLE_NODES: &str = "mode: installs\ntime_profile: real\npopulation: {clusters: [{scenario: sno, count: 6}]}\nlook: 30s\n\
                            phases: [ramp: 1m, hold: 8h]\nthresholds: {installed_percent: 100, installed_p99: 2h, latency_p99: 1s}";

fn played(plan: &LoadPlan, host: Duration, cluster: Duration) -> Rehearsal {
    let options = Options { pace: Pace { host, cluster }, stop: CancellationToken::new(), live: None };
    Rehearsal { wall_s: 0.0, ..rehearse(plan, &Catalogue::embedded(), options).unwrap() }
}

#[test]
fn monitors_that_are_quick_enough_are_never_late() {
    let plan = plan(SINGLE_NODES);
    let (host, cluster) = (Duration::from_millis(4), Duration::from_millis(15));
    let played_once = played(&plan, host, cluster);
    assert_eq!((played_once.installs.begun, played_once.installs.installed), (6, 6), "{}", played_once.text());
    assert!(played_once.host_monitor.count > 0 && played_once.cluster_monitor.count > 0);
    assert_eq!((played_once.host_monitor.overdue, played_once.cluster_monitor.overdue), (0, 0));
    assert_eq!(played_once.host_monitor.looked_at_most, 6);
    assert_eq!(played_once.refused(), 0);
    assert_eq!(u64::from(played_once.per_second.iter().sum::<u32>()), played_once.asked());
    assert!(played_once.checks.len() == 2 && played_once.checks.iter().all(|check| check.holds));
    assert_eq!(played_once.not_judged, ["latency_p99: requests take no time here"]);
    assert_eq!(played(&plan, host, cluster), played_once, "the same seed is the same history");
}

#[test]
fn slow_looks_make_installations_late() {
    let plan = plan(SINGLE_NODES);
    let median = |played: &Rehearsal| played.installs.took.quantile_ms(0.5);
    let quick = played(&plan, Duration::from_millis(1), Duration::from_millis(1));
    // Six hosts take a pass of two minutes, which begins anew at once instead of every 8 s.
    let slow = played(&plan, Duration::from_secs(20), Duration::from_millis(1));
    assert!(slow.host_monitor.overdue > 0 && slow.host_monitor.took.quantile_ms(1.0) > 100_000.0, "{}", slow.text());
    assert!(median(&slow) > median(&quick) + 60_000.0, "{} and {}", slow.text(), quick.text());
    assert_eq!(slow.installs.installed, 6);
}

/// After four minutes a pass over clusters ends, seen or not.
#[test]
fn a_pass_over_clusters_has_its_time() {
    let played = played(&plan(SINGLE_NODES), Duration::from_millis(1), Duration::from_secs(90));
    assert!(played.cluster_monitor.cut_short > 0, "{}", played.text());
    assert!(played.cluster_monitor.took.quantile_ms(1.0) < 331_000.0, "{}", played.text());
}

#[test]
fn what_is_missed_is_told() {
    let plan = plan(&SINGLE_NODES.replace("installed_p99: 2h", "installed_p99: 1m").replace("hold: 8h", "hold: 20m"));
    let played = played(&plan, Duration::from_millis(1), Duration::from_millis(1));
    assert!(played.checks.iter().all(|check| !check.holds), "{}", played.text());
    assert_eq!(played.installs.ended_otherwise["under way when the plan was over"], 6);
}

#[test]
fn only_installations_are_played() {
    let plan = plan("mode: idle\npopulation: {unbound: 2}\ncadence: 1s\nphases: [ramp: 1s, hold: 5s]");
    let options = Options {
        pace: Pace { host: Duration::ZERO, cluster: Duration::ZERO },
        stop: CancellationToken::new(),
        live: None,
    };
    let refused = rehearse(&plan, &Catalogue::embedded(), options);
    assert!(matches!(refused, Err(LoadError::NotVirtual { mode: "idle", .. })), "{refused:?}");
}
