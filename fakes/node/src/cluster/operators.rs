//! Plays the operators of a cluster: nothing of them runs on lab machines. Their objects come and change by a table over time, and say
//! that the lab plays them.

use std::io;
use std::time::Duration;

use serde_json::{Value, json};
use vlab_api::Timestamp;
use vlab_model::disturbance;

use super::api::condition;
use super::controller::Here;
use super::faults;
use super::watch::{Client, is_master, items};
use crate::say;
use crate::shell::steady_now;

/// Objects of operators.
pub const PATH: &str = "/apis/config.openshift.io/v1/clusteroperators";
const VERSIONS: &str = "/apis/config.openshift.io/v1/clusterversions";
/// Operators that every lab cluster has.
pub const NAMES: [&str; 4] = disturbance::OPERATORS;
/// Between two looks.
const LOOK: Duration = Duration::from_secs(2);

/// How far a cluster's operators are: from which part of their time on, how many of them are available, and what the cluster version
/// says of it.
const PHASES: &[(u32, usize, &str)] = &[
    (0, 0, "Working towards the version: 120 of 900 done (13% complete)"),
    (25, 1, "Working towards the version: 480 of 900 done (53% complete)"),
    (60, 3, "Working towards the version: 820 of 900 done (91% complete), waiting on console"),
    (100, 4, "Cluster version is complete"),
];

/// How many operators are available after that part of their time (in hundredths), where nothing keeps one from it.
fn available_after(percent: u32) -> usize {
    PHASES.iter().rev().find(|(from, ..)| percent >= *from).unwrap_or(&PHASES[0]).1
}

/// What the cluster version says where so many are available.
fn said_of(available: usize) -> &'static str {
    PHASES.iter().rev().find(|(_, of, _)| available >= *of).unwrap_or(&PHASES[0]).2
}

fn conditions(states: [(&str, bool); 3], message: &str) -> Value {
    let now = Timestamp::now();
    states
        .map(|(kind, holds)| {
            json!({ "type": kind, "status": if holds { "True" } else { "False" }, "reason": "PlayedByTheLab",
                "message": message, "lastTransitionTime": now })
        })
        .to_vec()
        .into()
}

/// How an operator is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Progressing,
    Available,
    /// A fault of the scenario.
    Degraded,
}

impl State {
    fn of(name: &str, available: bool, degraded: &[String]) -> Self {
        match (degraded.iter().any(|d| d == name), available) {
            (true, _) => Self::Degraded,
            (false, true) => Self::Available,
            (false, false) => Self::Progressing,
        }
    }
}

fn operator(name: &str, state: State, version: &str) -> Value {
    let is = |other: State| state == other;
    let states = [
        ("Available", is(State::Available)),
        ("Progressing", !is(State::Available)),
        ("Degraded", is(State::Degraded)),
    ];
    json!({ "apiVersion": "config.openshift.io/v1", "kind": "ClusterOperator", "metadata": { "name": name }, "spec": {},
        "status": { "conditions": conditions(states, "the lab plays this operator"),
            "versions": [{ "name": "operator", "version": version }], "relatedObjects": [] } })
}

/// The status of the cluster's version.
fn version_status(version: &str, available: bool, message: &str) -> Value {
    let state = if available { "Completed" } else { "Partial" };
    let known = ["Console", "Insights", "MachineAPI", "baremetal", "marketplace", "openshift-samples"];
    json!({ "conditions": conditions([("Available", available), ("Progressing", !available), ("Failing", false)], message),
        "desired": { "version": version, "image": "" }, "history": [{ "state": state, "version": version, "verified": false }],
        "capabilities": { "enabledCapabilities": known, "knownCapabilities": known }, "availableUpdates": null,
        "observedGeneration": 1, "versionHash": "" })
}

/// Makes an operator's object, or says in it how it is now; `false`: it says that already.
async fn tell(client: &Client, object: &Value) -> io::Result<bool> {
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    // A creation leaves the status out: it is written afterwards, also where whoever made the object was interrupted in between.
    let known = match client.create(PATH, object).await? {
        true => Value::Null,
        false => client.get(&format!("{PATH}/{name}")).await?,
    };
    let same = ["Available", "Progressing", "Degraded"].iter().all(|c| condition(&known, c) == condition(object, c));
    if !same {
        client.patch(&format!("{PATH}/{name}/status"), &json!({ "status": object["status"] })).await?;
    }
    Ok(!same)
}

/// Says that the operators are available, but for those that a fault keeps from it, and puts the router's certificate where it is
/// looked for.
///
/// # Errors
/// When the API does not take it.
pub async fn all_available(
    client: &Client,
    certificate: &str,
    version: Option<&str>,
    degraded: &[String],
) -> io::Result<()> {
    for name in NAMES {
        if tell(client, &operator(name, State::of(name, true, degraded), version.unwrap_or_default())).await? {
            say::moment("controller", "operator-played", &json!({ "name": name }));
        }
    }
    router_certificate(client, certificate).await
}

async fn router_certificate(client: &Client, certificate: &str) -> io::Result<()> {
    let object = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "default-ingress-cert" },
        "data": { "ca-bundle.crt": certificate } });
    client.create("/api/v1/namespaces/openshift-config-managed/configmaps", &object).await.map(drop)
}

/// Plays them for a controller that only looks: from the moment on at which all masters are ready.
pub async fn play(here: Here) {
    let whole = here.config.timing.operators_available.at(0.5);
    let certificate = match vlab_agents::ingress::make_ingress_pem() {
        Ok(certificate) => certificate,
        Err(e) => return say::note("operators", &format!("no router's certificate can be made: {e}")),
    };
    let mut since: Option<Timestamp> = None;
    let mut said = 0;
    loop {
        match look(&here, whole, &certificate, &mut since).await {
            Ok(available) if available > said => {
                said = available;
                say::moment("operators", "available", &json!({ "operators": available, "of": NAMES.len() }));
            }
            Ok(_) => {}
            Err(e) => say::note("operators", &e.to_string()),
        }
        tokio::time::sleep(LOOK).await;
    }
}

async fn look(here: &Here, whole: Duration, certificate: &str, since: &mut Option<Timestamp>) -> io::Result<usize> {
    let nodes = here.client.get("/api/v1/nodes").await?;
    let ready = items(&nodes).iter().filter(|n| is_master(n) && condition(n, "Ready") == "True").count();
    let expected = usize::try_from(here.facts.control_plane_count).unwrap_or(3);
    if ready < expected && since.is_none() {
        return Ok(0);
    }
    let now = steady_now();
    let spent = now.since(*since.get_or_insert(now));
    let percent = (spent.as_millis() * 100).checked_div(whole.as_millis()).unwrap_or(100).min(100);
    let due = available_after(u32::try_from(percent).unwrap_or(100));
    let version = here.facts.openshift_version.as_deref().unwrap_or_default();
    let degraded = faults::degraded(&here.client).await?;
    for (at, name) in NAMES.into_iter().enumerate() {
        tell(&here.client, &operator(name, State::of(name, at < due, &degraded), version)).await?;
    }
    let available = NAMES.iter().take(due).filter(|name| degraded.iter().all(|d| d != *name)).count();
    let message = said_of(available);
    let complete = available == NAMES.len();
    let known = here.client.get(&format!("{VERSIONS}/version")).await?;
    let told = known["status"]["conditions"].as_array().into_iter().flatten().any(|c| c["message"] == message);
    if !told {
        let status = json!({ "status": version_status(version, complete, message) });
        here.client.patch(&format!("{VERSIONS}/version/status"), &status).await?;
    }
    if complete {
        router_certificate(&here.client, certificate).await?;
    }
    Ok(available)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use vlab_api::http::Response;

    use super::super::watch::tests::answered;
    use super::*;

    #[rstest]
    #[case::made_now(201, Value::Null, true)]
    #[case::made_and_never_finished(409, json!({ "status": {} }), true)]
    #[case::of_before(409, operator("etcd", State::Progressing, ""), true)]
    #[case::as_it_should_be(409, operator("etcd", State::Available, ""), false)]
    #[tokio::test]
    async fn an_operator_is_told_once(#[case] code: u16, #[case] known: Value, #[case] told: bool) {
        let mut answers = vec![Response::json(code, &json!({ "reason": "AlreadyExists" }))];
        answers.extend((code == 409).then(|| Response::json(200, &known)));
        answers.extend(told.then(|| Response::json(200, &json!({}))));
        let (client, task) = answered(answers).await;
        // A request more than there are answers gets none.
        assert_eq!(tell(&client, &operator("etcd", State::Available, "")).await.unwrap(), told);
        assert!(client.get(PATH).await.is_err(), "a request was left out");
        task.abort();
    }

    #[rstest]
    #[case(0, 0)]
    #[case(24, 0)]
    #[case(25, 1)]
    #[case(99, 3)]
    #[case(100, 4)]
    fn operators_come_one_after_the_other(#[case] percent: u32, #[case] available: usize) {
        assert_eq!(available_after(percent), available);
    }

    #[rstest]
    #[case(0, "13% complete")]
    #[case(2, "53% complete")]
    #[case(3, "waiting on console")]
    #[case(4, "is complete")]
    fn the_version_says_how_many_there_are(#[case] available: usize, #[case] words: &str) {
        assert!(said_of(available).contains(words), "{}", said_of(available));
    }

    #[test]
    fn an_operator_says_that_it_is_played() {
        let object = operator("console", State::Progressing, "4.20.0");
        assert_eq!(
            (condition(&object, "Available").as_str(), condition(&object, "Progressing").as_str()),
            ("False", "True")
        );
        assert_eq!(object["status"]["conditions"][0]["reason"], "PlayedByTheLab");
        let object = operator("console", State::of("console", true, &["console".to_owned()]), "4.20.0");
        assert_eq!(
            (condition(&object, "Available").as_str(), condition(&object, "Degraded").as_str()),
            ("False", "True")
        );
        assert_eq!(version_status("4.20.0", true, "")["history"][0]["state"], "Completed");
    }
}
