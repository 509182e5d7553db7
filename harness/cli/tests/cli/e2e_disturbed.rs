//! The service and PostgreSQL are killed with -9 in mid-install and started again: nothing that was acknowledged is lost, and
//! the installation goes on to its end.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use rstest::rstest;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;
use vlab_api::types::{ClusterStatus, HostStage, HostStatus};
use vlab_model::history::{Observation, Source, What};
use vlab_reports::result::{CheckKind, CheckVerdict};
use vlab_run::prepare::{Choices, prepare};
use vlab_run::real::{Disturbance, Outcome, RealOptions, Target, run};
use vlab_scenario::{Catalogue, Moment, Quantity, Seen, Subject};

use crate::bench::VLAB;

async fn disturbed(scenario: &str, disturbances: Vec<Disturbance>) -> (Outcome, Vec<Observation>, tempfile::TempDir) {
    let runs = tempfile::tempdir().unwrap();
    let catalogue = Catalogue::discover().unwrap();
    let source = catalogue.find(scenario).unwrap();
    let scenario = vlab_scenario::load(&source, &catalogue).unwrap();
    let prepared = prepare(scenario, &catalogue, &Choices { seed: Some(3), ..Choices::default() }).unwrap();
    let options = RealOptions {
        real_tools: false,
        ready_within: None,
        vlab: PathBuf::from(VLAB),
        runs: runs.path().to_owned(),
        scenario_text: source.bytes.clone(),
        interrupted: CancellationToken::new(),
        live: vlab_run::live::Show::Nothing,
        keep: false,
        pause_on_failure: false,
        ability: None,
        tell: |_| {},
        disturbances,
    };
    let outcome = Box::pin(run(&prepared, options)).await;
    let dir = outcome.dir.clone().unwrap();
    let history = vlab_history::read(&dir.join("history.jsonl")).unwrap();
    (outcome, history, runs)
}

fn stage(host: &str, stage: HostStage) -> Moment {
    Moment { subject: Subject::Hosts(vec![host.to_owned()]), seen: Seen::Stage(stage), of: Quantity::AtLeast(1) }
}

fn status(host: &str, status: HostStatus) -> Moment {
    Moment { subject: Subject::Hosts(vec![host.to_owned()]), seen: Seen::HostStatus(status), of: Quantity::AtLeast(1) }
}

/// What had been acknowledged before a point of the history is still so at the end.
fn nothing_acknowledged_is_lost(history: &[Observation], before: usize) {
    let deleted: BTreeSet<Uuid> = history
        .iter()
        .filter_map(|o| if let What::HostDeleted { host } = o.what { Some(host) } else { None })
        .collect();
    let mut registered = BTreeSet::new();
    let mut answered = 0;
    for o in &history[..before] {
        match &o.what {
            What::HostDid { host, what } if what == "registered" => {
                registered.insert(*host);
            }
            What::UserAction { status, .. } if (200..300).contains(status) => answered += 1,
            _ => {}
        }
    }
    assert!(!registered.is_empty() && answered >= 2, "{} hosts, {answered} actions", registered.len());
    assert!(deleted.is_disjoint(&registered), "{deleted:?}");
    // Each host's stage, as the database has it, never falls: a lost report would show as one that comes again.
    let mut stages: BTreeMap<Uuid, Vec<HostStage>> = BTreeMap::new();
    let mut statuses: BTreeMap<Uuid, HostStatus> = BTreeMap::new();
    let mut events: BTreeMap<(String, Option<Uuid>), usize> = BTreeMap::new();
    let mut clusters: BTreeMap<Uuid, ClusterStatus> = BTreeMap::new();
    for o in history {
        match &o.what {
            What::HostStage { host, from, to: Some(to), .. } if o.source == Source::Database && from != &Some(*to) => {
                stages.entry(*host).or_default().push(*to);
            }
            What::HostStatus { host, to, .. } if o.source == Source::Database => {
                statuses.insert(*host, *to);
            }
            What::ClusterStatus { cluster, to, .. } if o.source == Source::Database => {
                clusters.insert(*cluster, *to);
            }
            What::Event { name, host, .. } if o.source == Source::Events => {
                *events.entry((name.clone(), *host)).or_default() += 1;
            }
            _ => {}
        }
    }
    for (host, stages) in &stages {
        let once: BTreeSet<String> = stages.iter().map(ToString::to_string).collect();
        assert_eq!(once.len(), stages.len(), "a stage of {host} came twice: {stages:?}");
        assert_eq!(stages.last(), Some(&HostStage::Done));
    }
    for host in &registered {
        assert_eq!(statuses.get(host), Some(&HostStatus::Installed));
        assert_eq!(events.get(&("host_registration_succeeded".to_owned(), Some(*host))), Some(&1), "{events:?}");
    }
    assert!(clusters.values().all(|s| *s == ClusterStatus::Installed) && !clusters.is_empty(), "{clusters:?}");
}

#[rstest]
#[case::service_writing(
    "sno",
    Target::Service,
    stage("node-0", HostStage::WritingImageToDisk),
    "the service is up again"
)]
#[case::postgres_writing(
    "sno",
    Target::Postgres,
    stage("node-0", HostStage::WritingImageToDisk),
    "PostgreSQL is up again"
)]
#[case::service_known("sno", Target::Service, status("node-0", HostStatus::Known), "the service is up again")]
#[case::postgres_ha("ha-3-2", Target::Postgres, stage("worker-0", HostStage::Rebooting), "PostgreSQL is up again")]
#[case::service_ha("ha-3-2", Target::Service, stage("worker-0", HostStage::Rebooting), "the service is up again")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_installation_survives(
    #[case] scenario: &str,
    #[case] target: Target,
    #[case] moment: Moment,
    #[case] note: &str,
) {
    let (outcome, history, _runs) = Box::pin(disturbed(scenario, vec![Disturbance { moment, target }])).await;
    let at = history
        .iter()
        .position(|o| matches!(&o.what, What::Note { text } if text.starts_with("kill -9 of")))
        .expect("nothing was killed");
    assert!(history[at..].iter().any(|o| matches!(&o.what, What::Note { text } if text == note)), "it is not up again");
    let wrong: Vec<_> = outcome
        .result
        .checks
        .iter()
        .filter(|c| c.verdict == CheckVerdict::Failed)
        .map(|c| (&c.kind, &c.name, &c.message, &c.last_things))
        .collect();
    assert_eq!(outcome.result.exit_code, 0, "{wrong:#?}");
    assert!(outcome.result.checks.iter().any(|c| c.kind == CheckKind::Invariant && c.verdict == CheckVerdict::Passed));
    nothing_acknowledged_is_lost(&history, at);
}

/// One after the other in one run.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_installation_survives_both() {
    let disturbances = vec![
        Disturbance { moment: stage("node-0", HostStage::WaitingForBootkube), target: Target::Service },
        Disturbance { moment: stage("node-0", HostStage::WritingImageToDisk), target: Target::Postgres },
        Disturbance { moment: status("node-0", HostStatus::Installed), target: Target::Service },
    ];
    let (outcome, history, _runs) = Box::pin(disturbed("sno", disturbances)).await;
    let killed: Vec<usize> = history
        .iter()
        .enumerate()
        .filter(|(_, o)| matches!(&o.what, What::Note { text } if text.starts_with("kill -9 of")))
        .map(|(n, _)| n)
        .collect();
    assert_eq!(killed.len(), 3);
    assert_eq!(outcome.result.exit_code, 0, "{:#?}", outcome.result.reason);
    nothing_acknowledged_is_lost(&history, killed[2]);
}
