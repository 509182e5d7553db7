//! The guards of the state machines against those of the real service: whatever holds, the same rule fires.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use vlab_facts::table;
use vlab_model::cluster::{self, ClusterCond, ClusterRule};
use vlab_model::host::{self, HostCond, HostRule};
use vlab_model::machine::Guard;
use vlab_model::validation::{self, ClusterGate, HostGate};

const TABLE: &str = "state-machine-guards.yaml";
const MACHINES: [&str; 3] = ["host", "unbound-host", "cluster"];

/// What a rule is known by: its name and where it leads. In one state and on one event no two have both in common.
type Fired = Option<(String, String)>;

/// A rule of either side: name, destination, guard in the table's words.
struct Row {
    name: String,
    to: String,
    when: Value,
}

/// Event and state, to the rules that can fire there, in order.
type Machine = BTreeMap<(String, String), Vec<Row>>;

/// What a condition of ours means in the table's words.
fn of_host(condition: HostCond) -> Value {
    use HostCond as C;
    let word = match condition {
        C::Connected => "connected",
        C::MediaConnected => "media-connected",
        C::HasInventory => return json!({"all": ["has-inventory", "inventory-not-cut-to-nothing"]}),
        C::InventoryCut => return json!({"all": ["has-inventory", {"not": "inventory-not-cut-to-nothing"}]}),
        C::MinimumHardware => "minimum-hardware",
        C::InputsGiven => "inputs-given",
        C::SufficientForInstall => "sufficient-for-install",
        C::DiskUuids => "vsphere-disk-uuid-enabled",
        C::PoolMinimum => "pool-minimum",
        C::RoleCanInstall => "role-can-install",
        C::Day2Host => "day-2-host",
        // Without Kubernetes such a report is stored as `Done`, so the real rule needs no word for it.
        C::KubeApi => "always",
        C::ReportsRebooting | C::StageIsRebooting => "stage-rebooting",
        C::ReportsDone | C::StageIsDone => "stage-done",
        C::ClusterPreparing => "cluster-preparing",
        C::ClusterInstalling => "cluster-installing",
        C::ClusterInError => "cluster-in-error",
        C::ClusterPendingUserAction => "cluster-pending-user-action",
        C::ClusterInstalledOrAddingHosts => "cluster-installed-or-adding-hosts",
        C::QuorumWithoutHost => "quorum-of-installed-hosts",
        C::DiskSpeedChecked => "disk-speed-checked",
        C::DiskSpeedFailed => return json!({"not": "disk-speed-not-failed"}),
        C::DiskSpeedUnknown => return json!({"all": ["disk-speed-not-failed", {"not": "disk-speed-checked"}]}),
        C::ImagesAvailable => "images-available",
        C::ImagesFailed => return json!({"not": "images-not-failed"}),
        C::ImagesUnknown => return json!({"all": ["images-not-failed", {"not": "images-available"}]}),
        C::PreparationTimedOut => "preparation-timed-out",
        C::InstallingTimedOut => "installing-timed-out",
        C::ReclaimTimedOut => "reclaim-timed-out",
        C::PendingUserActionTimedOut => "pending-user-action-timed-out",
        C::StageTimedOut => "stage-timed-out",
        C::StageTimeoutNoted => "stage-timeout-noted",
        C::ConnectionTimeoutNoted => "connection-timeout-noted",
        C::SoftTimeouts => "soft-timeouts",
        C::StageMayWaitForUser => "stage-may-wait-for-user",
        C::StageIsWritingImage => "stage-writing-image",
        C::StageIsCopyingRegistryData => "stage-copying-registry-data",
        C::LogsTimedOut => "logs-timed-out",
    };
    json!(word)
}

fn of_cluster(condition: ClusterCond) -> Value {
    use ClusterCond as C;
    json!(match condition {
        C::PendingInputsGiven => "inputs-given",
        C::VipsDefined => "vips-defined",
        C::SufficientForInstall => "sufficient-for-install",
        C::VipDhcp => "vip-dhcp",
        C::PreparationTimedOut => "preparation-timed-out",
        C::PreparationSucceeded => "preparation-succeeded",
        C::PreparationFailed => "preparation-failed",
        C::AllHostsPrepared => "all-hosts-prepared",
        C::SomeHostPreparingFailed => "some-host-preparing-failed",
        C::SomeHostLeftPreparation => "some-host-left-preparation",
        C::SomeHostPendingUserAction => "some-host-pending-user-action",
        C::QuorumAlive => "quorum-alive",
        C::QuorumInstalled => "quorum-installed",
        C::InstallationTimedOut => "installation-timed-out",
        C::FinalizingTimedOut => "finalizing-timed-out",
        C::FinalizingStageTimedOut => "finalizing-stage-timed-out",
        C::FinalizingStageTimeoutNoted => "finalizing-stage-timeout-noted",
        C::FinalizingStageNeverFails => "finalizing-stage-never-fails",
        C::SoftTimeouts => "soft-timeouts",
        C::ConsoleUrlToPush => "console-url-to-push",
        C::AllHostsFinished => "all-hosts-finished",
        C::KubeconfigUploaded => "kubeconfig-uploaded",
        C::OperatorsDone => "operators-done",
        C::LogsTimedOut => "logs-timed-out",
    })
}

/// What cannot be otherwise: each of these holds. Only where all words of one are asked for does it say anything.
fn laws(machine: &str) -> Vec<Value> {
    let implies = |a: Value, b: Value| json!({"any": [{"not": a}, b]});
    let never_both = |a: &str, b: &str| json!({"not": {"all": [a, b]}});
    let mut laws = vec![
        implies(json!("disk-speed-checked"), json!("disk-speed-not-failed")),
        implies(json!("images-available"), json!("images-not-failed")),
        implies(json!("quorum-installed"), json!("quorum-alive")),
        implies(json!("stage-rebooting"), json!("stage-may-wait-for-user")),
        never_both("stage-done", "stage-rebooting"),
        never_both("stage-writing-image", "stage-may-wait-for-user"),
        never_both("stage-copying-registry-data", "stage-may-wait-for-user"),
        never_both("stage-writing-image", "stage-copying-registry-data"),
        never_both("stage-writing-image", "stage-rebooting"),
        never_both("stage-copying-registry-data", "stage-rebooting"),
        never_both("cluster-preparing", "cluster-installing"),
        never_both("cluster-in-error", "cluster-pending-user-action"),
        never_both("preparation-succeeded", "preparation-failed"),
        never_both("all-hosts-prepared", "some-host-preparing-failed"),
        never_both("all-hosts-prepared", "some-host-left-preparation"),
        // What is not there is not cut.
        implies(json!({"not": "has-inventory"}), json!("inventory-not-cut-to-nothing")),
        // Nothing can be said about the hardware of a host without inventory.
        implies(json!("minimum-hardware"), json!({"all": ["has-inventory", "inventory-not-cut-to-nothing"]})),
    ];
    match machine {
        "host" => laws.push(json!({"not": "unbound"})),
        "unbound-host" => laws.push(json!("unbound")),
        _ => {}
    }
    laws
}

fn words(when: &Value, out: &mut BTreeSet<String>) {
    match when {
        Value::String(word) if word != "always" => drop(out.insert(word.clone())),
        Value::Array(list) => list.iter().for_each(|w| words(w, out)),
        Value::Object(map) => map.values().for_each(|w| words(w, out)),
        _ => {}
    }
}

fn holds(when: &Value, true_ones: &BTreeSet<&str>) -> bool {
    match when {
        Value::String(word) => word == "always" || true_ones.contains(word.as_str()),
        Value::Object(map) => match map.iter().next() {
            Some((how, inner)) if how == "not" => !holds(inner, true_ones),
            Some((how, Value::Array(list))) if how == "all" => list.iter().all(|w| holds(w, true_ones)),
            Some((how, Value::Array(list))) if how == "any" => list.iter().any(|w| holds(w, true_ones)),
            _ => panic!("no guard: {when}"),
        },
        other => panic!("no guard: {other}"),
    }
}

fn guard<C: Copy>(guard: &Guard<C>, word: fn(C) -> Value) -> Value {
    let list = |all: &[Guard<C>]| -> Value { all.iter().map(|g| self::guard(g, word)).collect() };
    match guard {
        Guard::Always => json!("always"),
        Guard::Is(c) => word(*c),
        Guard::Not(inner) => json!({"not": self::guard(inner, word)}),
        Guard::All(all) => json!({"all": list(all)}),
        Guard::Any(any) => json!({"any": list(any)}),
    }
}

fn of_hosts(rules: &'static [HostRule]) -> Machine {
    let mut machine = Machine::new();
    for rule in rules {
        for from in rule.from {
            let row =
                Row { name: rule.name.to_owned(), to: rule.to.as_str().to_owned(), when: guard(&rule.guard, of_host) };
            machine.entry((rule.event.as_str().to_owned(), from.as_str().to_owned())).or_default().push(row);
        }
    }
    machine
}

fn of_clusters(rules: &'static [ClusterRule]) -> Machine {
    let mut machine = Machine::new();
    for rule in rules {
        for from in rule.from {
            let row = Row {
                name: rule.name.to_owned(),
                to: rule.to.as_str().to_owned(),
                when: guard(&rule.guard, of_cluster),
            };
            machine.entry((rule.event.as_str().to_owned(), from.as_str().to_owned())).or_default().push(row);
        }
    }
    machine
}

fn of_facts(rows: &Value) -> Machine {
    let mut machine = Machine::new();
    let text = |v: &Value| v.as_str().expect("events, states and names are text").to_owned();
    for row in rows.as_array().expect("a machine has a list of rules") {
        for from in row["from"].as_array().expect("a rule has a list of sources") {
            let new = Row { name: text(&row["name"]), to: text(&row["to"]), when: row["when"].clone() };
            machine.entry((text(&row["on"]), text(from))).or_default().push(new);
        }
    }
    machine
}

fn fired(rows: &[Row], true_ones: &BTreeSet<&str>) -> Fired {
    rows.iter().find(|row| holds(&row.when, true_ones)).map(|row| (row.name.clone(), row.to.clone()))
}

/// Where the two do not fire the same rule: one line for each pair of rules, with the first case.
fn differences(machine: &str, ours: &Machine, theirs: &Machine) -> Vec<String> {
    let laws = laws(machine);
    let none = Vec::new();
    let mut lines = Vec::new();
    let places: BTreeSet<_> = ours.keys().chain(theirs.keys()).collect();
    for place in places {
        let (a, b) = (ours.get(place).unwrap_or(&none), theirs.get(place).unwrap_or(&none));
        let mut asked = BTreeSet::new();
        a.iter().chain(b).for_each(|row| words(&row.when, &mut asked));
        let of_asked = |law: &&Value| {
            let mut in_law = BTreeSet::new();
            words(law, &mut in_law);
            in_law.is_subset(&asked)
        };
        let binding: Vec<&Value> = laws.iter().filter(of_asked).collect();
        let asked: Vec<&String> = asked.iter().collect();
        assert!(asked.len() <= 16, "{machine}: {place:?} asks {} questions: {asked:?}", asked.len());
        let mut seen = BTreeSet::new();
        for case in 0..1u32 << asked.len() {
            let true_ones: BTreeSet<&str> =
                asked.iter().enumerate().filter(|(n, _)| case >> n & 1 == 1).map(|(_, w)| w.as_str()).collect();
            if !binding.iter().all(|law| holds(law, &true_ones)) {
                continue;
            }
            let (mine, real) = (fired(a, &true_ones), fired(b, &true_ones));
            if mine != real && seen.insert((mine.clone(), real.clone())) {
                let (event, state) = place;
                lines
                    .push(format!("{machine}: {event} in {state}, where {true_ones:?}: {mine:?} here, {real:?} there"));
            }
        }
    }
    lines
}

fn ours() -> [(&'static str, Machine); 3] {
    let [host, pool, cluster] = MACHINES;
    [(host, of_hosts(host::RULES)), (pool, of_hosts(host::POOL_RULES)), (cluster, of_clusters(cluster::RULES))]
}

#[test]
fn whatever_holds_the_same_rule_fires() {
    let facts = table(TABLE);
    let all: Vec<String> =
        ours().iter().flat_map(|(machine, rules)| differences(machine, rules, &of_facts(&facts[machine]))).collect();
    assert!(all.is_empty(), "the guards differ:\n{}", all.join("\n"));
}

/// The validations for which a word of a guard stands. Those that the service never emits are not among ours.
#[test]
fn a_word_stands_for_the_same_validations() {
    let facts = table(TABLE);
    let host = |gate: HostGate| -> BTreeSet<String> {
        validation::HOST
            .iter()
            .filter(|s| s.gate == gate && s.never.is_none())
            .map(|s| s.id.as_str().to_owned())
            .collect()
    };
    let cluster = |gate: ClusterGate| -> BTreeSet<String> {
        validation::CLUSTER
            .iter()
            .filter(|s| s.gate == gate && s.never.is_none())
            .map(|s| s.id.as_str().to_owned())
            .collect()
    };
    let pool = host::POOL_MINIMUM.iter().map(|id| id.as_str().to_owned()).collect();
    let ours = BTreeMap::from([
        ("host minimum-hardware", host(HostGate::MinimumHardware)),
        ("host inputs-given", host(HostGate::PendingInput)),
        ("host sufficient-for-install", host(HostGate::Sufficient)),
        ("host pool-minimum", pool),
        ("cluster inputs-given", cluster(ClusterGate::PendingInput)),
        ("cluster vips-defined", cluster(ClusterGate::Vips)),
        ("cluster sufficient-for-install", cluster(ClusterGate::Sufficient)),
    ]);
    let groups = facts["groups"].as_object().expect("the groups");
    let names = |keys: Vec<&str>| keys.into_iter().map(str::to_owned).collect::<BTreeSet<_>>();
    assert_eq!(names(ours.keys().copied().collect()), names(groups.keys().map(String::as_str).collect()));
    for (group, mine) in ours {
        let real: BTreeSet<String> =
            groups[group].as_array().into_iter().flatten().filter_map(|v| v.as_str().map(str::to_owned)).collect();
        let more = |a: &BTreeSet<String>, b: &BTreeSet<String>| a.difference(b).cloned().collect::<Vec<_>>();
        assert_eq!((more(&mine, &real), more(&real, &mine)), (vec![], vec![]), "{group}: (only here, only there)");
    }
}

/// A guard that asks for less, one that is missing, and two rules in the other order are all noticed.
#[test]
fn a_difference_is_told_with_its_case() {
    let facts = table(TABLE);
    let mut theirs = of_facts(&facts["cluster"]);
    let rows = theirs.get_mut(&("RefreshStatus".to_owned(), "error".to_owned())).expect("rules of a failed cluster");
    assert!(rows.len() >= 2, "the logs' timeout, and the rule that keeps the status");
    rows.swap(0, 1);
    let lines = differences("cluster", &of_clusters(cluster::RULES), &theirs);
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].contains("logs-timed-out"), "{lines:?}");
    let mut theirs = of_facts(&facts["host"]);
    let rows = theirs.get_mut(&("RefreshHost".to_owned(), "known".to_owned())).expect("rules of a known host");
    rows[0].when = json!("cluster-preparing");
    assert!(!differences("host", &of_hosts(host::RULES), &theirs).is_empty());
}
