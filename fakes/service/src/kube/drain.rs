//! A node whose host is taken away is emptied first: nothing new comes to it, and what runs there is asked to go. How far that is stands in
//! annotations of the BareMetalHost.

use std::time::Duration;

use serde_json::{Value, json};
use vlab_api::Timestamp;
use vlab_api::http::{Method, Request};

use super::object::{annotation, is_deleted, namespace, reference, text, time};
use super::pass::{Pass, Stop, put};
use super::spoke::{self, NODES, Trouble, ask, look, node_name};

/// How far it is.
const STATUS: &str = "bmac.agent-install.openshift.io/drain-status";
/// When it began.
const BEGAN: &str = "bmac.agent-install.openshift.io/drain-started-at";
/// How long it may take; without it nobody gives up.
const TIMEOUT: &str = "bmac.agent-install.openshift.io/drain-timeout";
const DONE: &str = "drain succeeded";
const UNDER_WAY: &str = "draining in progress";
const GIVEN_UP: &str = "drain timed out";
/// What is still there is looked for again.
const AGAIN: Duration = Duration::from_secs(20);
/// What is to go and does not is not waited for where its node is silent.
const SILENCE: Duration = Duration::from_secs(300);

fn say(bmh: &Value, name: &str, what: Value) -> Result<(), Stop> {
    if bmh["metadata"]["annotations"][name] == what {
        return Ok(());
    }
    let mut changed = bmh.clone();
    changed["metadata"]["annotations"][name] = what;
    Err(put(changed))
}

/// Empties the node of that Agent; is it empty, or was it given up?
pub(super) fn node(pass: &Pass<'_>, bmh: &Value, agent: &Value) -> Result<bool, Stop> {
    let late = match is_late(pass, bmh) {
        Ok(late) => late,
        // Who wrote it must change it.
        Err(why) => {
            return say(bmh, STATUS, json!(format!("failed to check node drain timeout: {why}"))).map(|()| false);
        }
    };
    if matches!(annotation(bmh, STATUS), DONE | GIVEN_UP) {
        return Ok(true);
    }
    if late {
        return say(bmh, STATUS, json!(GIVEN_UP)).map(|()| true);
    }
    if annotation(bmh, BEGAN).is_empty() {
        say(bmh, BEGAN, time(pass.now))?;
    }
    match empty(pass, agent) {
        Ok(true) => say(bmh, STATUS, json!(DONE)).map(|()| true),
        Ok(false) => {
            say(bmh, STATUS, json!(UNDER_WAY))?;
            Err(Stop::Later(AGAIN))
        }
        Err(Trouble::Stop(stop)) => Err(stop),
        Err(Trouble::Unknown(why) | Trouble::Says(why)) => {
            say(bmh, STATUS, json!(format!("failed to drain node: {why}")))?;
            Err(Stop::Failed)
        }
    }
}

fn is_late(pass: &Pass<'_>, bmh: &Value) -> Result<bool, String> {
    let (timeout, began) = (annotation(bmh, TIMEOUT), annotation(bmh, BEGAN));
    if timeout.is_empty() || began.is_empty() {
        return Ok(false);
    }
    let timeout = duration(timeout).ok_or_else(|| format!("{timeout:?} is no duration"))?;
    let began: Timestamp = began.parse().map_err(|_| format!("{began:?} is no time"))?;
    Ok(pass.now.since(began) >= timeout.div_f64(pass.config.pace.max(0.001)))
}

/// A duration as Go writes it, for example `1h15m30.5s`.
fn duration(text: &str) -> Option<Duration> {
    const UNITS: &[(&str, f64)] =
        &[("ns", 1e-9), ("us", 1e-6), ("µs", 1e-6), ("ms", 1e-3), ("s", 1.0), ("m", 60.0), ("h", 3600.0)];
    if text == "0" {
        return Some(Duration::ZERO);
    }
    let (mut rest, mut sum) = (text, 0.0);
    while !rest.is_empty() {
        let (number, after) = rest.split_at(rest.find(|c: char| !c.is_ascii_digit() && c != '.')?);
        let (unit, after) = after.split_at(after.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(after.len()));
        let (_, seconds) = UNITS.iter().find(|(name, _)| *name == unit)?;
        sum += number.parse::<f64>().ok()? * seconds;
        rest = after;
    }
    (!text.is_empty()).then(|| Duration::try_from_secs_f64(sum).ok()).flatten()
}

/// Keeps what is new away from the node, and asks what runs there to go; is nothing left?
fn empty(pass: &Pass<'_>, agent: &Value) -> Result<bool, Trouble> {
    let cluster = reference(&agent["spec"]["clusterDeploymentName"], namespace(agent));
    let server = spoke::server(pass, &cluster)?;
    let name = node_name(agent);
    let path = format!("{NODES}/{name}");
    let Some(node) = look(pass, &server, path.clone())? else {
        return Err(Trouble::Says(format!("nodes {name:?} not found")));
    };
    if node["spec"]["unschedulable"] != true {
        spoke::merge(pass, &server, path, &json!({ "spec": { "unschedulable": true } }))?;
    }
    let is_silent = node["status"]["conditions"].as_array().into_iter().flatten();
    let is_silent = is_silent.into_iter().any(|c| c["type"] == "Ready" && c["status"] == "Unknown");
    let list = look(pass, &server, format!("/api/v1/pods?fieldSelector=spec.nodeName%3D{name}"))?.unwrap_or_default();
    let goes = |pod: &&Value| must_go(pod) && !(is_silent && has_gone(pass, pod));
    let pods: Vec<&Value> = list["items"].as_array().into_iter().flatten().filter(goes).collect();
    for pod in &pods {
        let (of, name) = (namespace(pod), text(&pod["metadata"]["name"]));
        let eviction = json!({ "apiVersion": "policy/v1", "kind": "Eviction",
                               "metadata": { "name": name, "namespace": of } });
        let path = format!("/api/v1/namespaces/{of}/pods/{name}/eviction");
        match ask(pass, &server, Request::new(Method::Post, path).json(&eviction)) {
            Err(Trouble::Stop(stop)) => return Err(stop.into()),
            // A budget for disruptions does not let it go yet: that is seen below.
            _ => continue,
        }
    }
    for pod in pods {
        let (of, name) = (namespace(pod), text(&pod["metadata"]["name"]));
        let there = look(pass, &server, format!("/api/v1/namespaces/{of}/pods/{name}"))?;
        if there.is_some_and(|now| now["metadata"]["uid"] == pod["metadata"]["uid"]) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Is it a pod that goes? Those of a DaemonSet come back at once, and those of files on the node belong to it.
fn must_go(pod: &Value) -> bool {
    let owners = pod["metadata"]["ownerReferences"].as_array();
    let of_node = owners.into_iter().flatten().any(|owner| owner["kind"] == "DaemonSet");
    !of_node && annotation(pod, "kubernetes.io/config.mirror").is_empty()
}

/// Is a pod to go for so long that its node will not say any more that it has?
fn has_gone(pass: &Pass<'_>, pod: &Value) -> bool {
    let since: Option<Timestamp> = text(&pod["metadata"]["deletionTimestamp"]).parse().ok();
    is_deleted(pod) && since.is_some_and(|since| pass.now.since(since) > SILENCE.div_f64(pass.config.pace.max(0.001)))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("90s", Some(90.0))]
    #[case("1h15m30.5s", Some(4530.5))]
    #[case("250ms", Some(0.25))]
    #[case("0", Some(0.0))]
    #[case("", None)]
    #[case("5", None)]
    #[case("5 s", None)]
    #[case("soon", None)]
    fn a_duration_is_read_as_go_does(#[case] text: &str, #[case] seconds: Option<f64>) {
        assert_eq!(duration(text), seconds.map(Duration::from_secs_f64));
    }

    #[test]
    fn what_belongs_to_the_node_stays() {
        let pod = |owner: &str, annotations: Value| json!({ "metadata": { "annotations": annotations, "ownerReferences": [{ "kind": owner }] } });
        assert!(must_go(&pod("ReplicaSet", json!({}))));
        assert!(!must_go(&pod("DaemonSet", json!({}))));
        assert!(!must_go(&pod("Node", json!({ "kubernetes.io/config.mirror": "x" }))));
    }
}
