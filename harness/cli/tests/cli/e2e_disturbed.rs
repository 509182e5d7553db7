//! The service and PostgreSQL are killed with -9 in mid-install and started again: nothing that was acknowledged is lost, and
//! the installation goes on to its end.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::PathBuf;

use rstest::rstest;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;
use vlab_api::types::{ClusterStatus, HostStage, HostStatus};
use vlab_drive::prepare::Choices;
use vlab_judge::result::{CheckKind, CheckVerdict};
use vlab_model::history::{HostMoment, Observation, Source, What};
use vlab_run::prepare::prepare;
use vlab_run::real::{RealOptions, RunOutcome, run};
use vlab_scenario::{Catalogue, FaultPhase};

use crate::bench::VLAB;

/// A run of a shipped scenario with one more fault for each of these: a name, what it waits for, its target and its kind.
async fn disturbed(
    scenario: &str,
    faults: &[(&str, &str, &str, &str)],
) -> (RunOutcome, Vec<Observation>, tempfile::TempDir) {
    let runs = tempfile::tempdir().unwrap();
    let catalogue = Catalogue::discover().unwrap();
    let mut source = catalogue.find(scenario).unwrap();
    let text = String::from_utf8(source.bytes.clone()).unwrap();
    assert!(!text.contains("\nfaults:"), "{scenario} has faults of its own");
    let mut text = text.replacen("needs: [postgres]", "needs: [postgres, real-time]", 1) + "\nfaults:\n";
    // Who tells of it may find nobody to tell it to until the node has joined: `nothing_acknowledged_is_lost` says when.
    text = text.replace("- Configuring\n", "- Configuring?\n");
    for (name, at, target, kind) in faults {
        writeln!(text, "  - {{name: {name}, at: {{{at}}}, target: {target}, inject: {kind}}}").unwrap();
    }
    source.bytes = text.into_bytes();
    let scenario = vlab_scenario::load(&source, &catalogue).unwrap();
    let prepared = prepare(scenario, &catalogue, &Choices { seed: Some(3), ..Choices::default() }).unwrap();
    let options = RealOptions {
        real_tools: false,
        hub: None,
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
        freeze: None,
        from: None,
    };
    let outcome = Box::pin(run(&prepared, options)).await;
    let dir = outcome.dir.clone().unwrap();
    let history = vlab_history::read(&dir.join("history.jsonl")).unwrap();
    (outcome, history, runs)
}

/// Where in the history that fault has killed something, and where it is up again.
fn killed(history: &[Observation], fault: &str) -> (usize, usize) {
    let place = |wanted: FaultPhase, words: &str| {
        history.iter().position(|o| {
            matches!(&o.what, What::Fault { name, phase, detail, .. }
                if name == fault && *phase == wanted && detail.contains(words))
        })
    };
    let at = place(FaultPhase::Effect, "").expect("nothing was killed");
    let up = place(FaultPhase::End, "is up again").expect("it is not up again");
    assert!(up > at);
    (at, up)
}

/// What had been acknowledged before the last outage is still so at the end.
fn nothing_acknowledged_is_lost(history: &[Observation], outages: &[(usize, usize)]) {
    let before = outages.iter().map(|(at, _)| *at).max().unwrap();
    let deleted: BTreeSet<Uuid> = history
        .iter()
        .filter_map(|o| if let What::HostDeleted { host } = o.what { Some(host) } else { None })
        .collect();
    let mut registered = BTreeSet::new();
    let mut answered = 0;
    for o in &history[..before] {
        match &o.what {
            What::HostDid { host, what: HostMoment::Registered } => {
                registered.insert(*host);
            }
            What::UserAction { status, .. } if (200..300).contains(status) => answered += 1,
            _ => {}
        }
    }
    assert!(!registered.is_empty() && answered >= 2, "{} hosts, {answered} actions", registered.len());
    assert!(deleted.is_disjoint(&registered), "{deleted:?}");
    // Each host's stage, as the database has it, never falls: a lost report would show as one that comes again.
    let mut stages: BTreeMap<Uuid, Vec<(HostStage, usize)>> = BTreeMap::new();
    let mut statuses: BTreeMap<Uuid, HostStatus> = BTreeMap::new();
    let mut events: BTreeMap<(String, Option<Uuid>), usize> = BTreeMap::new();
    let mut clusters: BTreeMap<Uuid, ClusterStatus> = BTreeMap::new();
    for (place, o) in history.iter().enumerate() {
        match &o.what {
            What::HostStage { host, from, to: Some(to), .. } if o.source == Source::Database && from != &Some(*to) => {
                stages.entry(*host).or_default().push((*to, place));
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
    let hosts = stages.len();
    for (host, stages) in &stages {
        let once: BTreeSet<String> = stages.iter().map(|(stage, _)| stage.to_string()).collect();
        assert_eq!(once.len(), stages.len(), "a stage of {host} came twice: {stages:?}");
        assert_eq!(stages.last().map(|(stage, _)| *stage), Some(HostStage::Done));
        // Somebody else reports this one. It is missing only where nobody could be told between reboot and joining.
        let at = |wanted| stages.iter().find(|(stage, _)| *stage == wanted).map(|(_, place)| *place);
        let (rebooting, joined) = (at(HostStage::Rebooting).unwrap(), at(HostStage::Joined).unwrap());
        let unheard = outages.iter().any(|(down, up)| rebooting < *up && *down < joined);
        assert!(
            hosts < 2 || at(HostStage::Configuring).is_some() || unheard,
            "{host} was never seen configuring: {stages:?}, outages {outages:?}"
        );
    }
    for host in &registered {
        assert_eq!(statuses.get(host), Some(&HostStatus::Installed));
        assert_eq!(events.get(&("host_registration_succeeded".to_owned(), Some(*host))), Some(&1), "{events:?}");
    }
    assert!(clusters.values().all(|s| *s == ClusterStatus::Installed) && !clusters.is_empty(), "{clusters:?}");
}

#[rstest]
#[case::service_writing("sno", "service", "service-kill", "host: node-0, stage: Writing image to disk")]
#[case::postgres_writing("sno", "postgres", "postgres-kill", "host: node-0, stage: Writing image to disk")]
#[case::service_known("sno", "service", "service-kill", "host: node-0, status: known")]
#[case::postgres_ha("ha-3-2", "postgres", "postgres-kill", "host: worker-0, stage: Rebooting")]
#[case::service_ha("ha-3-2", "service", "service-restart", "host: worker-0, stage: Rebooting")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_installation_survives(
    #[case] scenario: &str,
    #[case] target: &str,
    #[case] kind: &str,
    #[case] moment: &str,
) {
    let (outcome, history, _runs) = Box::pin(disturbed(scenario, &[("killed", moment, target, kind)])).await;
    let outage = killed(&history, "killed");
    let wrong: Vec<_> = outcome
        .result
        .checks
        .iter()
        .filter(|c| c.verdict == CheckVerdict::Failed)
        .map(|c| (&c.kind, &c.name, &c.message, &c.last_things))
        .collect();
    assert_eq!(outcome.result.exit_code, 0, "{wrong:#?}");
    assert!(outcome.result.checks.iter().any(|c| c.kind == CheckKind::Invariant && c.verdict == CheckVerdict::Passed));
    nothing_acknowledged_is_lost(&history, &[outage]);
}

/// One after the other in one run.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_installation_survives_both() {
    let faults = [
        ("first", "host: node-0, stage: Waiting for bootkube", "service", "service-kill"),
        ("second", "host: node-0, stage: Writing image to disk", "postgres", "postgres-kill"),
        ("third", "host: node-0, status: installed", "service", "service-kill"),
    ];
    let (outcome, history, _runs) = Box::pin(disturbed("sno", &faults)).await;
    let outages = faults.map(|(name, ..)| killed(&history, name));
    assert_eq!(outcome.result.exit_code, 0, "{:#?}", outcome.result.reason);
    nothing_acknowledged_is_lost(&history, &outages);
}
