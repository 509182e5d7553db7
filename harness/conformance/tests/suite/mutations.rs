//! A check must be able to fail: services that are wrong on purpose, each in one thing, and the checks that must notice.

use rstest::rstest;
use serde_json::{Value, json};
use vlab_api::http::{Method, Request, Response};
use vlab_conformance::ConformanceVerdict;
use vlab_conformance::suite::selected;

use crate::{Mutation, OF_THE_SHELL, run, settings};

fn body(response: &Response) -> Value {
    response.decode().unwrap_or(Value::Null)
}

fn put(response: &mut Response, value: &Value) {
    response.body = serde_json::to_vec(value).unwrap().into();
}

/// Changes every object of an answer, however deep.
fn everywhere(value: &mut Value, change: &dyn Fn(&mut serde_json::Map<String, Value>)) {
    match value {
        Value::Array(list) => list.iter_mut().for_each(|item| everywhere(item, change)),
        Value::Object(map) => {
            change(map);
            map.values_mut().for_each(|item| everywhere(item, change));
        }
        _ => {}
    }
}

fn edit(response: &mut Response, change: impl Fn(&mut serde_json::Map<String, Value>)) {
    if response.body.first().is_some_and(|b| *b == b'{' || *b == b'[') {
        let mut value = body(response);
        everywhere(&mut value, &change);
        put(response, &value);
    }
}

fn is(request: &Request, method: Method, end: &str) -> bool {
    request.method == method && request.split_path().0.ends_with(end)
}

fn rename(map: &mut serde_json::Map<String, Value>, member: &str, from: &str, to: &str) {
    if map.get(member).is_some_and(|v| v == from) {
        map.insert(member.into(), json!(to));
    }
}

/// Makes every host look as if its validation had another status.
fn validation(response: &mut Response, id: &'static str, status: &'static str) {
    edit(response, |map| {
        let Some(text) = map.get("validations_info").and_then(Value::as_str) else { return };
        let mut all: Value = serde_json::from_str(text).unwrap_or_default();
        everywhere(&mut all, &|entry| {
            if entry.get("id").is_some_and(|v| v == id) {
                entry.insert("status".into(), json!(status));
            }
        });
        map.insert("validations_info".into(), json!(all.to_string()));
    });
}

fn steps(response: &mut Response, change: impl Fn(&mut Vec<Value>)) {
    let mut value = body(response);
    if let Some(list) = value.get_mut("instructions").and_then(Value::as_array_mut) {
        change(list);
        put(response, &value);
    }
}

fn status_of_error(from: u16, to: u16, response: &mut Response) {
    if response.status == from {
        response.status = to;
        edit(response, |map| {
            if map.contains_key("reason") {
                map.insert("code".into(), json!(to.to_string()));
                map.insert("id".into(), json!(to));
            }
        });
    }
}

#[rstest]
#[case::error_without_kind(|_: &Request, r: &mut Response| if r.status >= 400 { edit(r, |m| { m.remove("kind"); }) }, &["errors/unknown/cluster"])]
#[case::error_without_href(|_: &Request, r: &mut Response| if r.status >= 400 { edit(r, |m| { m.remove("href"); }) }, &["errors/unknown/host"])]
#[case::error_without_reason(|_: &Request, r: &mut Response| if r.status >= 400 { edit(r, |m| { m.remove("reason"); }) }, &["errors/unknown/infra-env"])]
#[case::error_with_a_number_for_its_code(|_: &Request, r: &mut Response| if r.status >= 400 { edit(r, |m| if m.contains_key("reason") { m.insert("code".into(), json!(404)); }) }, &["errors/unknown/cluster"])]
#[case::error_with_one_more_member(|_: &Request, r: &mut Response| if r.status >= 400 { edit(r, |m| { m.insert("stack".into(), json!("x")); }) }, &["errors/unknown/cluster", "errors/router/unknown-path"])]
#[case::gone_instead_of_not_found(|_: &Request, r: &mut Response| status_of_error(404, 410, r), &["errors/unknown/cluster", "host-delete", "errors/router/unknown-path"])]
#[case::unprocessable_instead_of_bad(|_: &Request, r: &mut Response| status_of_error(400, 422, r), &["errors/required/cluster-name", "clusters/create/refused/secret"])]
#[case::bad_request_instead_of_conflict(|_: &Request, r: &mut Response| status_of_error(409, 400, r), &["actions/cancel/refused/ready", "progress/backward", "register/again/installed", "files/early/credentials"])]
#[case::wrong_method_is_not_found(|_: &Request, r: &mut Response| status_of_error(405, 404, r), &["errors/router/wrong-method"])]
#[case::change_answers_200(|q: &Request, r: &mut Response| if q.method == Method::Patch && r.status == 201 { r.status = 200 }, &["clusters/change/name", "infra-envs/change", "actions/host-change/name"])]
#[case::install_answers_200(|q: &Request, r: &mut Response| if is(q, Method::Post, "/actions/install") && r.status == 202 { r.status = 200 }, &["actions/install", "day2/host"])]
#[case::reply_answers_200(|q: &Request, r: &mut Response| if is(q, Method::Post, "/instructions") && r.status == 204 { r.status = 200 }, &["steps/reply/failed"])]
#[case::known_is_called_ready(|_: &Request, r: &mut Response| edit(r, |m| rename(m, "status", "known", "ready")), &["register/again/known", "validations/gate/good"])]
#[case::error_is_called_cancelled(|_: &Request, r: &mut Response| edit(r, |m| rename(m, "status", "error", "cancelled")), &["progress/failed", "register/again/error"])]
#[case::no_resetting(|_: &Request, r: &mut Response| edit(r, |m| rename(m, "status", "resetting-pending-user-action", "insufficient")), &["actions/reset/cancelled", "steps/resetting-pending-user-action"])]
#[case::no_events(|q: &Request, r: &mut Response| if is(q, Method::Get, "/events") { put(r, &json!([])) }, &["events/sent/host_status_updated", "clusters/create/new", "register/new", "events/members"])]
#[case::events_are_all_info(|q: &Request, r: &mut Response| if is(q, Method::Get, "/events") { edit(r, |m| { m.insert("severity".into(), json!("info")); }) }, &["events/sent/host_status_updated", "disconnection/insufficient", "progress/failed"])]
#[case::events_newest_first(|q: &Request, r: &mut Response| if is(q, Method::Get, "/events") { let mut v = body(r); if let Some(l) = v.as_array_mut() { l.reverse(); } put(r, &v) }, &["events/paging/offset"])]
#[case::events_without_their_count(|q: &Request, r: &mut Response| if is(q, Method::Get, "/events") { r.headers.retain(|(n, _)| n != "event-count") }, &["events/headers"])]
#[case::events_show_their_category(|q: &Request, r: &mut Response| if is(q, Method::Get, "/events") { edit(r, |m| { m.insert("category".into(), json!("user")); }) }, &["events/members"])]
#[case::next_poll_in_a_minute_always(|q: &Request, r: &mut Response| if is(q, Method::Get, "/instructions") { edit(r, |m| if m.contains_key("next_instruction_seconds") { m.insert("next_instruction_seconds".into(), json!(60)); }) }, &["steps/disconnected", "steps/error", "steps/cancelled"])]
#[case::runner_never_ends(|q: &Request, r: &mut Response| if is(q, Method::Get, "/instructions") { edit(r, |m| rename(m, "post_step_action", "exit", "continue")) }, &["steps/binding", "binding/unbind"])]
#[case::steps_in_another_order(|q: &Request, r: &mut Response| if is(q, Method::Get, "/instructions") { steps(r, |l| l.reverse()) }, &["steps/known", "steps/preparing"])]
#[case::no_connectivity_check(|q: &Request, r: &mut Response| if is(q, Method::Get, "/instructions") { steps(r, |l| l.retain(|s| s["step_type"] != "connectivity-check")) }, &["steps/insufficient/others", "steps/known", "validations/majority/all"])]
#[case::install_is_never_sent(|q: &Request, r: &mut Response| if is(q, Method::Get, "/instructions") { steps(r, |l| l.retain(|s| s["step_type"] != "install")) }, &["steps/installing", "actions/install"])]
#[case::inventory_for_another_host(|q: &Request, r: &mut Response| if is(q, Method::Get, "/instructions") { steps(r, |l| for s in l { if s["step_type"] == "inventory" { s["args"] = json!(["x"]); } }) }, &["steps/discovering"])]
#[case::no_command_for_the_runner(|q: &Request, r: &mut Response| if is(q, Method::Post, "/hosts") { edit(r, |m| { m.remove("next_step_runner_command"); }) }, &["register/new"])]
#[case::cpu_is_never_too_little(|_: &Request, r: &mut Response| validation(r, "has-cpu-cores-for-role", "success"), &["validations/hardware/cpu-below", "validations/role/master-cpu-below"])]
#[case::memory_is_always_too_little(|_: &Request, r: &mut Response| validation(r, "has-memory-for-role", "failure"), &["validations/hardware/memory-tolerated"])]
#[case::vips_are_always_good(|_: &Request, r: &mut Response| validation(r, "api-vips-valid", "success"), &["validations/cluster/vips-unverified"])]
#[case::percentage_stays(|_: &Request, r: &mut Response| edit(r, |m| if m.contains_key("installation_percentage") { m.insert("installation_percentage".into(), json!(12)); }), &["progress/percentage/writing", "progress/stages/sno"])]
#[case::bootstrap_is_not_told(|_: &Request, r: &mut Response| edit(r, |m| { m.remove("bootstrap"); }), &["register/new/sno", "progress/roles/masters"])]
#[case::pull_secret_is_not_set(|_: &Request, r: &mut Response| edit(r, |m| { m.remove("pull_secret_set"); }), &["clusters/create/new", "infra-envs/create"])]
#[case::download_without_a_name(|q: &Request, r: &mut Response| if q.path.contains("/downloads/") { r.headers.retain(|(n, _)| n != "content-disposition") }, &["infra-envs/discovery-ignition", "files/installing/bootstrap"])]
#[case::manifest_keeps_its_content(|q: &Request, r: &mut Response| if is(q, Method::Get, "/manifests/files") { r.body = "kind: A".into() }, &["files/manifests/life"])]
#[case::logs_are_lost(|q: &Request, r: &mut Response| if is(q, Method::Get, "/logs") { r.body = "x".into() }, &["files/logs/upload"])]
#[case::deleted_clusters_stay_in_the_list(|q: &Request, r: &mut Response| if is(q, Method::Delete, "") && r.status == 204 { r.status = 200 }, &["clusters/delete", "infra-envs/delete", "actions/host-delete"])]
#[case::unbound_host_has_a_cluster(|_: &Request, r: &mut Response| edit(r, |m| if m.get("status").is_some_and(|s| s == "known-unbound") { m.insert("cluster_id".into(), json!("x")); }), &["binding/known"])]
#[case::day2_host_is_a_common_one(|_: &Request, r: &mut Response| edit(r, |m| rename(m, "kind", "AddToExistingClusterHost", "Host")), &["register/new/day2", "actions/day2/installed"])]
#[tokio::test]
async fn a_wrong_service_is_noticed(#[case] mutation: Mutation, #[case] noticed_by: &[&str]) {
    let right = run(noticed_by, settings("1s"), None).await;
    assert!(right.iter().all(|o| o.verdict == ConformanceVerdict::Passed), "they pass without the fault: {right:?}");
    let wrong = run(noticed_by, settings("1s"), Some(mutation)).await;
    for pattern in noticed_by {
        let patterns = [(*pattern).to_owned()];
        let failed = |o: &&vlab_conformance::CheckOutcome| {
            selected(&o.id, &patterns) && matches!(o.verdict, ConformanceVerdict::Failed { .. })
        };
        assert!(wrong.iter().find(failed).is_some(), "no check of {pattern} has noticed: {wrong:#?}");
    }
}

/// A service whose monitors sleep: whatever waits for them fails, and says for what it has waited.
#[tokio::test]
async fn a_service_without_monitors_is_noticed() {
    let outcomes = run(&["validations/gate/good", "disconnection/unbound"], settings("10h"), None).await;
    for outcome in &outcomes {
        let ConformanceVerdict::Failed { message } = &outcome.verdict else {
            panic!("{}: {:?}", outcome.id, outcome.verdict)
        };
        assert!(message.contains("expected status known") && message.contains("found discovering"), "{message}");
    }
}

/// No check passes over a service that answers everything with the same status.
#[rstest]
#[case::teapot(|_: &Request, r: &mut Response| r.status = 418)]
#[case::broken(|_: &Request, r: &mut Response| *r = Response::json(500, &json!({"kind": "Error", "id": 500, "href": "", "code": "500", "reason": "x"})))]
#[case::empty(|_: &Request, r: &mut Response| *r = Response::empty(200))]
#[tokio::test]
async fn no_check_passes_over_nothing(#[case] mutation: Mutation) {
    let outcomes = run(&[OF_THE_SHELL], settings("1s"), Some(mutation)).await;
    let passed: Vec<&str> =
        outcomes.iter().filter(|o| o.verdict == ConformanceVerdict::Passed).map(|o| o.id.as_str()).collect();
    assert!(passed.is_empty(), "{passed:?}");
}
