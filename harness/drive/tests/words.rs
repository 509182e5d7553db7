//! The words of the scenario language and those that hosts, clusters and the service say are the same: an expectation about
//! a word that nobody says could never be met, and one that must not be seen could never fail.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use rstest::rstest;
use serde_json::Value;
use uuid::Uuid;
use vlab_agents::ingress::LAB_INGRESS_PEM;
use vlab_drive::prepare::{Choices, Nowhere, Prepared, prepare};
use vlab_drive::simulate::simulate;
use vlab_history::Recorder;
use vlab_judge::result::CheckVerdict;
use vlab_judge::verdict::judge;
use vlab_model::history::{ClusterMoment, HostMoment, Observation, RunEnd, What};
use vlab_scenario::{Catalogue, SourceFile};

/// Events of the real service that the simulated one has no cause for. The real one sends none for a refused DELETE of a
/// cluster over REST either (see `docs/fidelity.md`), only for failures of its database.
const REAL_SERVICE_ONLY: [&str; 9] = [
    "after_inactivity_cluster_deregistered",
    "cluster_degraded_OLM_operators_failed",
    "cluster_deregister_failed",
    "generate_image_fetch_failed",
    "host_boot_logs_uploaded",
    "host_installation_reset_failed",
    "host_reset_fetch_failed",
    "host_set_status_failed",
    // Not even by that one: nothing in it sends the event.
    "user_required_complete_installation_reset",
];

/// A closed list of the language, from the schema that editors use.
fn list(pointer: &str) -> BTreeSet<String> {
    let schema = vlab_scenario::schema();
    let words =
        schema.pointer(pointer).and_then(|v| v["enum"].as_array()).unwrap_or_else(|| panic!("no list at {pointer}"));
    words.iter().filter_map(Value::as_str).map(str::to_owned).collect()
}

fn deeds() -> BTreeSet<String> {
    list("/$defs/Observation/properties/did/anyOf/0/anyOf/0")
}

fn events() -> BTreeSet<String> {
    list("/$defs/EventCount/properties/name")
}

/// The texts of a crate's sources that are not its tests.
fn sources(folder: &str) -> String {
    fn collect(folder: &Path, text: &mut String) {
        let mut entries: Vec<_> = fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
        entries.sort();
        for path in entries {
            let name = path.file_stem().and_then(|n| n.to_str()).unwrap_or_default();
            if name == "tests" {
                continue;
            } else if path.is_dir() {
                collect(&path, text);
            } else if path.extension().is_some_and(|e| e == "rs") {
                text.push_str(&fs::read_to_string(&path).unwrap());
            }
        }
    }
    let mut text = String::new();
    collect(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(folder), &mut text);
    assert!(text.len() > 10_000, "{folder} has {} bytes of sources", text.len());
    text
}

/// What no scenario can wait for: that bootkube failed is seen by its being started again.
const NOT_TO_BE_EXPECTED: [&str; 1] = ["bootkube-failed"];

#[test]
fn the_language_has_a_word_for_all_that_hosts_and_clusters_do() {
    let all = HostMoment::NAMES.iter().chain(ClusterMoment::NAMES).filter(|word| !NOT_TO_BE_EXPECTED.contains(word));
    assert_eq!(deeds(), all.map(|word| (*word).to_owned()).collect());
}

#[test]
fn every_event_of_the_language_is_sent_by_the_service_or_through_it() {
    // Hosts and controllers have the service send some.
    let service = sources("fakes/service/src") + &sources("fakes/agents/src");
    let missing: Vec<_> = events().into_iter().filter(|word| !service.contains(&format!("\"{word}\""))).collect();
    assert_eq!(missing, REAL_SERVICE_ONLY);
}

fn prepared(text: &[u8]) -> Prepared {
    let catalogue = Catalogue::discover().unwrap();
    let source = SourceFile::new("words.yaml", text);
    let scenario = vlab_scenario::load(&source, &catalogue).unwrap_or_else(|e| panic!("{}", e.render(false)));
    prepare(
        scenario,
        &catalogue,
        &Choices { seed: Some(11), time_profile: Some("real".into()), ..Choices::default() },
        &Nowhere,
    )
    .unwrap()
}

fn history(prepared: &Prepared) -> Vec<Observation> {
    let score = prepared.conductor_config(prepared.info("words", true, BTreeMap::new()), LAB_INGRESS_PEM.to_owned());
    let simulated = simulate(score, prepared.core_config("http://127.0.0.1:8090"), Recorder::new(None));
    simulated.conductor.finish(simulated.now, RunEnd::Ended)
}

/// Everything that is seen in a run can be expected, of the host, of its cluster and of the run, and forbidden.
#[rstest]
#[case("sno", "sno")]
#[case("ha-3-2", "ha")]
fn what_is_seen_can_be_expected_and_forbidden(#[case] name: &str, #[case] cluster_hint: &str) {
    let text = String::from_utf8(Catalogue::discover().unwrap().find(name).unwrap().bytes).unwrap();
    let plain = prepared(text.as_bytes());
    let cluster = plain.scenario.clusters[0].name.clone();
    assert!(cluster.starts_with(cluster_hint));
    let seen = history(&plain);
    let hosts: BTreeMap<Uuid, String> = seen
        .iter()
        .filter_map(
            |o| if let What::HostNamed { host, name, .. } = &o.what { Some((*host, name.clone())) } else { None },
        )
        .collect();
    let mut moments: BTreeSet<String> = BTreeSet::new();
    for o in &seen {
        match &o.what {
            What::HostDid { host, what } if !what.word().contains(':') => {
                moments.insert(format!("{{host: {}, did: {what}}}", hosts[host]));
            }
            What::InCluster { host: Some(host), what, .. } if !what.word().contains(':') => {
                moments.insert(format!("{{host: {}, did: {what}}}", hosts[host]));
            }
            What::InCluster { host: None, what, .. } if !what.word().contains(':') => {
                moments.insert(format!("{{cluster: {cluster}, did: {what}}}"));
            }
            What::Event { name, host, cluster: of, .. } if !name.is_empty() => {
                assert!(events().contains(name), "the service sends {name}, and the language does not know it");
                if let Some(host) = host.and_then(|id| hosts.get(&id)) {
                    moments.insert(format!("{{host: {host}, event: {name}}}"));
                }
                if of.is_some() {
                    moments.insert(format!("{{cluster: {cluster}, event: {name}}}"));
                }
                moments.insert(format!("{{event: {name}}}"));
            }
            _ => {}
        }
    }
    for word in ["did: rebooting", "did: node-ready", "did: bootkube-started", "event: host_status_updated"] {
        assert!(moments.iter().any(|m| m.contains(word)), "{word} was not seen at all");
    }
    // In place of the scenario's own expectations.
    let (before, rest) = text.split_once("\nexpect:\n").unwrap();
    let budgets = rest.rsplit_once("\nbudgets:").unwrap().1;
    for (verb, wanted) in [("eventually", CheckVerdict::Passed), ("never", CheckVerdict::Failed)] {
        let expect: String = moments.iter().map(|m| format!("  - {verb}: {m}\n")).collect();
        let prepared = prepared(format!("{before}\nexpect:\n{expect}\nbudgets:{budgets}").as_bytes());
        let judged = judge(&prepared.scenario, prepared.clock_scale, &seen).checks;
        assert_eq!(prepared.scenario.expect.len(), moments.len());
        let wrong: Vec<_> = judged
            .iter()
            .take(moments.len())
            .zip(&moments)
            .filter(|(check, _)| check.verdict != wanted)
            .map(|(check, moment)| (moment, &check.verdict, &check.message))
            .collect();
        assert!(wrong.is_empty(), "{verb}: {wrong:#?}");
    }
}
