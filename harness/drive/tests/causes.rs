//! Planted defects: the first line of a red run names what was planted. What it must say was written down from what is planted, and
//! not from what the program prints.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::fmt::Write as _;

use vlab_drive::alterations::find;
use vlab_drive::prepare::{Choices, Nowhere, Prepared, prepare};
use vlab_drive::simulate::{Whole, run_whole};
use vlab_judge::result::{CheckKind, CheckVerdict, RunResult, Verdict};
use vlab_judge::verdict::put_together;
use vlab_model::history::{HostsKind, MachineMoment, Observation, Source, What};
use vlab_scenario::{Catalogue, SourceFile};

/// What is wrong.
#[derive(Clone, Copy, Debug)]
enum Plant {
    /// An alteration of the simulated service, hosts or clusters, by its name.
    Altered(&'static str),
    /// Something that happens to hosts, clusters or the service and that the scenario does not know: the part `faults` of a scenario.
    /// The history is judged without it.
    Trouble(&'static str),
    /// A thing that is put into the history of a run in which all is well, just after the host came into that stage; the run ends
    /// there.
    Seen(fn() -> (Source, What)),
}

/// A planted defect, and what the first line must say.
struct Row {
    scenario: &'static str,
    plant: Plant,
    /// What it is, for people.
    about: &'static str,
    /// Names of hosts or clusters; one of them must be in the line. Empty: it is about nobody in particular.
    who: &'static [&'static str],
    /// Each of these must be in the line, in small or capital letters; `a|b`: one of them.
    says: &'static [&'static str],
}

const fn row(
    scenario: &'static str,
    plant: Plant,
    about: &'static str,
    who: &'static [&'static str],
    says: &'static [&'static str],
) -> Row {
    Row { scenario, plant, about, who, says }
}

use Plant::{Altered, Seen, Trouble};

const ALL: &[&str] = &["master-0", "master-1", "master-2", "worker-0"];

/// The defects of hosts and their surroundings.
const TROUBLES: &[Row] = &[
    row(
        "ha-3-1",
        Trouble(
            "[{name: a, at: {host: master-1, status: installing}, target: master-1, inject: disk-fails, with: {percent: 45}},\
              {name: b, at: {host: master-2, status: installing}, target: master-2, inject: disk-fails, with: {percent: 45}}]",
        ),
        "the disks of two masters fail while the image is written",
        &["master-1", "master-2"],
        &["installer", "writing image to disk"],
    ),
    row(
        "sno",
        Trouble(
            "[{name: a, at: {host: node-0, status: preparing-successful}, target: node-0, inject: image-unavailable}]",
        ),
        "the registry is gone when the installer is to be started",
        &["node-0"],
        &["install", "exit code"],
    ),
    row(
        "ha-3-1",
        Trouble(
            "[{name: a, at: {host: master-1, stage: Writing image to disk, percent: 20}, target: master-1, inject: crash}]",
        ),
        "a master loses its power while it writes",
        &["master-1"],
        &["silent|disconnected|contact|heard|connection"],
    ),
    row(
        "ha-3-1",
        Trouble(
            "[{name: a, at: {cluster: ha, status: installing}, target: worker-0, inject: installer-fails, with: {stage: Starting installation}}]",
        ),
        "the installer of a worker fails at its start",
        &["worker-0"],
        &["installer|install"],
    ),
    row(
        "ha-3-1",
        Trouble(
            "[{name: a, at: {host: master-0, status: installing}, target: master-0, inject: stuck-stage, with: {stage: Writing image to disk}}]",
        ),
        "a master hangs while it writes",
        &["master-0"],
        &["writing image to disk"],
    ),
    row(
        "sno",
        Trouble("[{name: a, at: {host: node-0, status: known}, target: node-0, inject: media-lost}]"),
        "the medium is lost",
        &["node-0"],
        &["media|medium"],
    ),
    row(
        "sno",
        Trouble("[{name: a, at: 0s, target: node-0, inject: few-cores, with: {cores: 1}}]"),
        "the host has one core",
        &["node-0"],
        &["cpu|cores"],
    ),
    row(
        "ha-3-1",
        Trouble("[{name: a, at: 0s, target: worker-0, inject: little-memory}]"),
        "the worker has too little memory",
        &["worker-0"],
        &["memory"],
    ),
    row(
        "sno",
        Trouble("[{name: a, at: 0s, target: node-0, inject: wrong-boot-order}]"),
        "the host boots the medium again",
        &["node-0"],
        &["pending-user-action|boot"],
    ),
    row(
        "ha-3-1",
        Trouble("[{name: a, at: {cluster: ha, did: bootkube-started}, target: control-plane, inject: bootkube-fails}]"),
        "bootkube fails",
        &["ha", "master-0", "master-1", "master-2"],
        &["bootkube"],
    ),
    row(
        "sno",
        Trouble(
            "[{name: a, at: {host: node-0, did: registered}, target: gateway, inject: http-error, with: {status: 503, host: node-0}}]",
        ),
        "the way to the service answers 503",
        &["node-0"],
        &["503"],
    ),
    row(
        "sno",
        Trouble("[{name: a, at: 0s, target: node-0, inject: bad-inventory, with: {form: malformed}}]"),
        "the inventory cannot be read",
        &["node-0"],
        &["inventory"],
    ),
    row(
        "ha-3-1",
        Trouble("[{name: a, at: 0s, target: master-2, inject: wrong-hostname, with: {name: master-0}}]"),
        "two hosts have one name",
        &["master-0", "master-2"],
        &["hostname"],
    ),
    row(
        "ha-3-1",
        Trouble("[{name: a, at: {cluster: ha, did: etcd-bootstrap-done}, target: control-plane, inject: quorum-lost}]"),
        "etcd loses its quorum",
        &["ha", "master-0", "master-1", "master-2"],
        &["etcd", "quorum"],
    ),
    row(
        "ha-3-1",
        Trouble("[{name: a, at: {cluster: ha, status: installing}, target: worker-0, inject: csr-not-approved}]"),
        "nobody approves the certificate of the worker",
        &["worker-0"],
        &["joined|error"],
    ),
    row(
        "ha-3-1",
        Trouble("[{name: a, at: 0s, target: worker-0, inject: no-address}]"),
        "the worker gets no address and never registers",
        &["worker-0"],
        &["registered|never"],
    ),
];

/// The defects of the service, of hosts' programs and of clusters.
const ALTERED: &[Row] = &[
    row("sno", Altered("conduct/preparation-fails"), "the preparation fails", &["sno"], &["prepar"]),
    row(
        "sno",
        Altered("conduct/preparation-never-done"),
        "the preparation never ends",
        &["sno", "node-0"],
        &["preparing"],
    ),
    row(
        "ha-3-1",
        Altered("conduct/two-bootstraps"),
        "two hosts are the bootstrap",
        &["ha", "master-0", "master-1"],
        &["bootstrap"],
    ),
    row("ha-3-1", Altered("conduct/no-bootstrap"), "nobody is the bootstrap", &["ha"], &["bootstrap"]),
    row("sno", Altered("conduct/polls-not-noted"), "polls are not noted", &["node-0"], &["disconnected|silent"]),
    row(
        "sno",
        Altered("host-validation/has-cpu-cores-for-role/failure"),
        "a validation of hosts always fails",
        &["node-0"],
        &["has-cpu-cores-for-role"],
    ),
    row(
        "ha-3-1",
        Altered("cluster-validation/api-vips-valid/failure"),
        "a validation of clusters always fails",
        &["ha"],
        &["api-vips-valid"],
    ),
    row(
        "ha-3-1",
        Altered("conduct/installing-percentage-goes-back"),
        "the percentage goes back",
        &["ha"],
        &["%|percent"],
    ),
    row(
        "sno",
        Altered("conduct/operators-not-noted"),
        "reports of operators are lost",
        &["sno"],
        &["operator|finalizing"],
    ),
    row("sno", Altered("conduct/stage-not-noted"), "reports of stages are lost", &["node-0"], &["stage|installing"]),
    row("ha-3-1", Altered("control-plane/reboots-too-early"), "the bootstrap reboots too early", ALL, &["reboot"]),
    row("ha-3-1", Altered("control-plane/loses-quorum"), "etcd loses a member in the pivot", ALL, &["quorum"]),
    row(
        "sno",
        Altered("answer/v2InstallCluster/failure"),
        "the order to install is answered with 500",
        &["sno"],
        &["500", "install"],
    ),
    row("sno", Altered("agent/inventory/ignored"), "the agent ignores the inventory", &["node-0"], &["inventory"]),
    row("sno", Altered("agent/inventory/fails"), "the inventory fails", &["node-0"], &["inventory", "exit code"]),
    row("sno", Altered("agent/install/fails"), "the step to install fails", &["node-0"], &["install", "exit code"]),
    row("sno", Altered("hosts/no-reboot"), "the host does not reboot", &["node-0"], &["reboot"]),
    row("ha-3-1", Altered("event/host_bootstrap_set/twice"), "an event is written twice", ALL, &["host_bootstrap_set"]),
    row(
        "sno",
        Altered("steps/discovering/lacks-inventory"),
        "nobody asks for the inventory",
        &["node-0"],
        &["inventory|discovering"],
    ),
    row(
        "cancel",
        Altered("conduct/cancel-spares-a-host"),
        "a cancel leaves one host as it is",
        ALL,
        &["cancel|installing"],
    ),
    row(
        "sno",
        Altered("conduct/host-monitor-sleeps"),
        "the monitor of hosts sleeps",
        &["node-0"],
        &["discovering|known|insufficient"],
    ),
    row(
        "sno",
        Altered("hosts/operators-not-told"),
        "the controller tells of no operators",
        &["sno"],
        &["operator|finalizing"],
    ),
];

/// What histories of real runs have and virtual time has not.
const SEEN: &[Row] = &[
    row("sno", Seen(panic_of_the_kernel), "the kernel of a machine panics", &["node-0"], &["panic"]),
    row("sno", Seen(crash), "a machine crashes", &["node-0"], &["crashed"]),
    row("sno", Seen(unreadable), "the row of a host cannot be read", &["node-0"], &["understood"]),
    row("sno", Seen(refused), "nobody listens where the service should", &["node-0"], &["refused"]),
];

fn panic_of_the_kernel() -> (Source, What) {
    let line = "Kernel panic - not syncing: Attempted to kill init!".to_owned();
    (Source::Console, What::Console { machine: "node-0".into(), line, finding: Some("kernel-panic".into()) })
}

fn crash() -> (Source, What) {
    (
        Source::Harness,
        What::Machine { machine: "node-0".into(), did: MachineMoment::Crashed, detail: "panicked".into() },
    )
}

fn unreadable() -> (Source, What) {
    let (of, error) = ("the row of a host".to_owned(), "unknown status `instaling`".to_owned());
    (Source::Database, What::Unreadable { subject: None, of, error })
}

fn refused() -> (Source, What) {
    let request = "GET /api/assisted-install/v2/infra-envs/1/hosts/2/instructions".to_owned();
    (Source::Hosts, What::BadAnswer { host: None, request, status: 0, took_ms: 1 })
}

fn prepared(name: &str, faults: Option<&str>) -> Prepared {
    let catalogue = Catalogue::discover().unwrap();
    let file = catalogue.find(name).unwrap();
    let file = match faults {
        Some(faults) => {
            SourceFile::new(file.name.clone(), format!("{}\nfaults: {faults}\n", String::from_utf8_lossy(&file.bytes)))
        }
        None => file,
    };
    let scenario = vlab_scenario::load(&file, &catalogue).unwrap_or_else(|e| panic!("{name}: {e}"));
    prepare(scenario, &catalogue, &Choices { seed: Some(1), ..Choices::default() }, &Nowhere).unwrap()
}

/// More steps than any of these runs needs that comes to an end.
const STEPS: u64 = 400_000;

fn run(row: &Row) -> RunResult {
    match row.plant {
        Altered(name) => {
            let alteration = find(name).unwrap_or_else(|| panic!("there is no alteration {name}"));
            let prepared = Prepared { alteration: Some(alteration), ..prepared(row.scenario, None) };
            run_whole(&prepared, STEPS).result
        }
        Trouble(faults) => {
            let Whole { result, history, .. } = run_whole(&prepared(row.scenario, Some(faults)), STEPS);
            judged_anew(row.scenario, result, history)
        }
        Seen(what) => {
            let Whole { result, mut history, .. } = run_whole(&prepared(row.scenario, None), STEPS);
            assert_eq!(result.verdict, Verdict::Passed);
            put_in(&mut history, what());
            judged_anew(row.scenario, result, history)
        }
    }
}

/// Puts that into a history behind the moment at which the host began to write, and lets nothing come after it.
fn put_in(history: &mut Vec<Observation>, (source, mut what): (Source, What)) {
    let mut node = None;
    for o in history.iter_mut() {
        // What is cut off lacks the events of its last changes: without settings nobody asks for them.
        if let What::RunStarted(info) = &mut o.what {
            info.settings = None;
        }
        if let What::HostNamed { host, kind, .. } = &mut o.what {
            node = Some(*host);
            *kind = HostsKind::Vm;
        }
    }
    match &mut what {
        What::Unreadable { subject, .. } => *subject = node,
        What::BadAnswer { host, .. } => *host = node,
        _ => {}
    }
    let writes = |o: &Observation| matches!(&o.what, What::HostStage { to: Some(stage), .. } if stage.as_str() == "Writing image to disk");
    let place = history.iter().position(writes).unwrap();
    history.truncate(place + 1);
    let last = history[place].clone();
    history.push(Observation { seq: last.seq + 1, source, service_time: None, what, ..last });
}

/// Judges a history by the scenario as it stands in the catalogue, without a word of faults in it.
fn judged_anew(scenario: &str, run: RunResult, mut history: Vec<Observation>) -> RunResult {
    history.retain(|o| !matches!(o.what, What::Fault { .. }));
    for (seq, o) in history.iter_mut().enumerate() {
        o.seq = seq as u64;
    }
    let prepared = prepared(scenario, None);
    let in_the_run = |name: &str| vlab_judge::verdict::MADE_WHILE_RUNNING.contains(&name);
    let mut result = RunResult { reason: None, cause: None, ..run };
    result.checks.retain(|check| in_the_run(&check.name));
    put_together(&mut result, &prepared.scenario, prepared.clock_scale, &history);
    result
}

/// Does the line say what it must?
fn names_it(row: &Row, line: &str) -> bool {
    let line = line.to_lowercase();
    let word = |name: &&&str| line.split(|c: char| !(c.is_alphanumeric() || c == '-')).any(|word| word == **name);
    let who = row.who.is_empty() || row.who.iter().any(|name| word(&name));
    who && row.says.iter().all(|says| says.split('|').any(|one| line.contains(one)))
}

#[test]
fn the_first_line_names_what_was_planted() {
    let rows: Vec<&Row> = TROUBLES.iter().chain(ALTERED).chain(SEEN).collect();
    let (mut table, mut named, mut folded, mut failed) = (String::new(), 0, 0, 0);
    for row in &rows {
        let result = run(row);
        let line = result.cause.as_ref().map(|cause| cause.line()).unwrap_or_default();
        let holds = result.verdict == Verdict::Failed && names_it(row, &line);
        named += usize::from(holds);
        let bad = |check: &&vlab_judge::result::CheckResult| {
            check.verdict == CheckVerdict::Failed && check.kind != CheckKind::Lab
        };
        let all = result.checks.iter().filter(bad).count();
        let follow = result.checks.iter().filter(|check| check.follows).count();
        (folded, failed) = (folded + follow, failed + all);
        let sign = if holds { "ok " } else { "BAD" };
        let _ = writeln!(table, "{sign} {}: {} ({follow} of {all} checks)\n      {line}", row.scenario, row.about);
        if !holds {
            for check in result.checks.iter().filter(bad) {
                let _ = writeln!(table, "        {} {:?} {} | {}", check.follows, check.seq, check.name, check.message);
            }
        }
    }
    println!("{table}\n{named} of {} named; {folded} of {failed} failed checks folded", rows.len());
    assert!(rows.len() >= 30);
    // 27 of 30.
    assert!(named * 10 >= rows.len() * 9, "{named} of {} are named\n{table}", rows.len());
}
