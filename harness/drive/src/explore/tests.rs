use rstest::rstest;
use vlab_scenario::Catalogue;
use vlab_service::alteration::{Alteration as Service, Planted};

use super::*;
use crate::alterations::Alteration;
use crate::prepare::Prepared;

fn space(names: &[&str], grammar: bool) -> (Space, Catalogue) {
    let catalogue = Catalogue::embedded();
    let base = |name: &&str| Base::new(&catalogue.find(name).unwrap(), &catalogue).unwrap();
    (Space::new(names.iter().map(base).collect(), grammar, true), catalogue)
}

/// Whatever is drawn is a scenario that the language takes, and is drawn again from its tape.
#[test]
fn what_is_drawn_is_a_scenario() {
    let (space, catalogue) = space(&["sno", "ha-3-2", "reset", "late-binding"], true);
    let (mut things, mut refused) = (0, 0);
    for seed in 0..300 {
        let drawn =
            scenario::draw(&space, &catalogue, Draw::go_on(&[], seed, None)).unwrap_or_else(|e| panic!("{seed}: {e}"));
        things += drawn.added.faults.len() + drawn.added.actions.len();
        refused += drawn.refused;
        let again = scenario::draw(&space, &catalogue, Draw::replay(&drawn.trace.numbers())).unwrap();
        assert_eq!(again.source.bytes, drawn.source.bytes);
        search::prepared(&drawn, &catalogue).unwrap_or_else(|e| panic!("{seed}: {e}"));
    }
    assert!(things > 300 && refused * 10 < things, "{refused} of {things} were refused");
}

#[test]
fn what_holds_up_is_a_fault_that_lasts() {
    for word in scenario::HOLDS_UP {
        let row = vlab_scenario::fault_rows().find(|row| row.word == *word);
        assert!(row.is_some_and(|row| row.lasts == vlab_scenario::Lasting::Time), "{word}");
    }
}

#[test]
fn an_empty_tape_is_the_base_alone() {
    let (space, catalogue) = space(&["sno"], false);
    let drawn = scenario::draw(&space, &catalogue, Draw::replay(&[])).unwrap();
    assert_eq!((drawn.added.lines(), drawn.scenario.faults.len(), drawn.scenario.seed), (1, 0, Some(1)));
    let outcome = oracle::look(&search::prepared(&drawn, &catalogue).unwrap(), true);
    assert_eq!(outcome.violations, []);
}

/// Mistakes that no table can have, planted in the service, are found within so many runs and reduced to what a person reads at a
/// glance. The service as it is shows none of these signatures in as many.
#[rstest]
#[case::lost_update(Planted::NoLock, 22, 15, "one-event-each")]
#[case::timer_of_the_last_time(Planted::TimerSurvives, 11, 20, "did not do BeginInstallation")]
#[case::stale_read(Planted::StaleSteps, 5, 20, "cancelled-only-stops")]
fn what_is_planted_is_found_and_reduced(
    #[case] planted: Planted,
    #[case] seed: u64,
    #[case] most: u64,
    #[case] words: &str,
) {
    let (space, catalogue) = space(&["sno"], false);
    let search = |alter: &dyn Fn(&mut Prepared)| {
        let mut search = Search::new(seed, 1, Vec::new());
        while search.runs() < most {
            let tried = attempt(&space, &catalogue, &search.propose(), alter).unwrap();
            if let Some(violation) = search.accept(&tried).into_iter().find(|v| v.signature.contains(words)) {
                return Some((search.found()[&violation.signature].numbers.clone(), violation.signature));
            }
        }
        None
    };
    let alter = |prepared: &mut Prepared| prepared.alteration = Some(Alteration::Service(Service::Planted(planted)));
    let (numbers, signature) = search(&alter).unwrap_or_else(|| panic!("not found in {most} runs"));
    let small = shrink((&space, &catalogue, &alter), &numbers, &signature, 200, &mut |_, _| true).unwrap();
    let added = &small.tried.drawn.added;
    assert!(added.lines() <= 12 && added.faults.len() <= 2, "{} lines, {} faults", added.lines(), added.faults.len());
    assert_eq!(search(&|_| {}).map(|(_, signature)| signature), None, "the service as it is shows it, too");
}

/// What searches found and was the lab's own mistake, made as small as it went.
#[rstest]
#[case::one_host_fewer(
    "sno",
    "actions: [{do: delete-host, hosts: all, after: {host: node-0, stage: Waiting for bootkube}}]"
)]
#[case::it_stood_still(
    "sno",
    "faults: [{name: f, at: {host: node-0, status: installing}, target: service, inject: service-pause, for: 5m}]"
)]
#[case::told_much_later(
    "sno",
    "faults: [{name: f, at: {cluster: c, status: preparing-for-installation}, then: 60s, target: node-0, inject: uplink-cut, for: 5m}]"
)]
#[case::installed_before_the_last_stage("sno", "interleaving: {seed: 25, latency: 500ms}")]
#[case::one_stage_after_the_other("sno", "interleaving: {seed: 772, latency: 500ms}")]
#[case::said_again("sno", "interleaving: {seed: 482, lost: 100}")]
#[case::asked_twice("sno", "interleaving: {seed: 0, twice: 100}")]
#[case::a_master_fewer(
    "compact",
    "actions: [{do: delete-host, host: node-0, after: {host: node-0, status: installing}}]"
)]
#[case::all_gone("compact", "actions: [{do: delete-host, hosts: all, after: {host: node-0, status: installing}}]")]
#[case::one_id_twice(
    "compact",
    "faults: [{name: f, at: {host: node-0, status: installing}, target: node-0, inject: duplicate-id, for: 5m, with: {of: node-1}}]"
)]
#[case::reset_before_the_controller_looks(
    "sno",
    "actions:\n\
     - {do: cancel, cluster: c, after: {host: node-0, stage: Joined}, then: 60s}\n\
     - {do: reset, cluster: c, after: {cluster: c, status: cancelled}}"
)]
#[case::kept_from_its_last_word(
    "sno",
    "faults: [{name: f, at: {host: node-0, status: installing}, target: c, inject: finalizing-stuck, for: 1h, with: {stage: Done}}]"
)]
#[case::made_a_master_on_day_2(
    "grows",
    "actions:\n\
     - {do: allow-add-hosts, cluster: c, after: {cluster: c, status: installed}}\n\
     - {do: patch-host, host: extra-0, role: master, after: {host: extra-0, status: discovering}}\n\
     - {do: install-host, host: extra-0, after: {host: extra-0, status: known}, then: 5m}"
)]
#[case::deleted_before_it_is_told(
    "arbiter",
    "actions: [{do: delete-host, host: node-0, after: {cluster: c, status: preparing-for-installation}, then: 60s}]"
)]
#[case::killed_when_it_should_fail(
    "sno",
    "faults: [{name: f, at: {host: node-0, status: installing}, target: node-0, inject: reboot}]\n\
     interleaving: {seed: 0, killed_before_writes: [28]}\ntolerate: [refused-connections]"
)]
#[case::answers_when_it_is_gone(
    "",
    "actions: [{do: delete-host, hosts: all, after: {host: node-0, status: preparing-for-installation}, then: 60s}]"
)]
#[case::asked_before_it_was_cancelled(
    "",
    "actions: [{do: cancel, cluster: c, after: {host: node-0, status: installing}}]\n\
     faults: [{name: f, at: {host: node-1, status: preparing-for-installation}, target: gateway, inject: slow-answer, for: 5m, with: {by: 30s}}]"
)]
#[case::hub_away_for_long(
    "kube",
    "faults: [{name: f, at: 4m, target: kube, inject: kube-restart, for: 5m, with: {down: 2m, times: 1}}]"
)]
#[case::added_to_a_single_node(
    "kube-grows",
    "actions:\n\
     - {do: allow-add-hosts, cluster: c, after: {cluster: c, status: installed}}\n\
     - {do: install-host, host: extra-0, after: {host: extra-0, status: known}, then: 5m}"
)]
#[case::changed_by_the_user(
    "kube-ha",
    "actions: [{do: set-vips, cluster: c, api_vips: [192.168.126.101], ingress_vips: [192.168.126.100], at: 11m}]\n\
     faults: [{name: f1, at: {host: node-0, status: installing}, target: node-0, inject: reboot}]"
)]
fn what_was_the_labs_own_mistake_is_none_any_more(#[case] topology: &str, #[case] more: &str) {
    let catalogue = Catalogue::embedded();
    const VIPS: &str = ", api_vips: [192.168.126.100], ingress_vips: [192.168.126.101]";
    let (door, topology) = topology.strip_prefix("kube").map_or(("rest", topology), |rest| ("kube", rest));
    let settings = if topology == "-grows" { ", settings: {HOST_STAGE_REBOOTING_TIMEOUT: 20m}" } else { "" };
    let topology = topology.trim_start_matches('-');
    let (topology, version, hosts, vips) = match topology {
        "sno" => ("sno", "4.18", "{name: node}", ""),
        "grows" => ("sno", "4.18", "{name: node}, {name: extra, role: worker, day2: true}", ""),
        "arbiter" => (
            "compact, control_plane_count: 2",
            "4.20",
            "{name: node, count: 2, role: master}, {name: arbiter, role: arbiter}",
            VIPS,
        ),
        "" => ("ha", "4.18", "{name: node, count: 5, role: auto}", VIPS),
        "ha" => ("compact", "4.18", "{name: node, count: 3}", VIPS),
        topology => (topology, "4.18", "{name: node, count: 3}", VIPS),
    };
    let text = format!(
        "version: 1\nname: x\nseed: 1\nservice: {{kind: simulated, time_profile: fast{settings}}}\napi: {door}\ncluster: {{name: c, topology: {topology}, \
         openshift_version: \"{version}\", base_domain: lab.example, machine_networks: [192.168.126.0/24]{vips}}}\n\
         hosts: [{hosts}]\n{more}\nuntil: {{rest: 30m}}\nbudgets: {{total: 60h}}\n"
    );
    let source = vlab_scenario::SourceFile::new("x.yaml", text.into_bytes());
    let scenario = vlab_scenario::load(&source, &catalogue).unwrap_or_else(|error| panic!("{error:?}"));
    assert_eq!(oracle::look(&search::prepared_of(&scenario, &catalogue).unwrap(), false).violations, []);
}
